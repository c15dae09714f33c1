//! Series as Prometheus takes them from others: remote-write 1.0, a message of Protocol Buffers in Snappy.
//!
//! Counters are cumulative, so that a request that is lost loses no sum.

use hyper::body::Bytes;
use prost::Message;

use super::post::Envelope;
use crate::metrics::Family;

/// The port and the path that Prometheus has.
pub(super) const USUAL: (u16, &str) = (9090, "/api/v1/write");

/// How requests are sent.
pub(super) const ENVELOPE: Envelope = Envelope {
    content_type: "application/x-protobuf",
    headers: &[("content-encoding", "snappy"), ("x-prometheus-remote-write-version", "0.1.0")],
};

/// What all series of this analyzer carry: `job` and `instance`, as if they were scraped.
const JOB: &str = "ferroce-mesh";

/// All series of a moment, in milliseconds of the Unix clock, told by the analyzer at this address.
pub(super) fn encode(families: &[Family], instance: &str, millis: i64) -> Bytes {
    let request = request(families, instance, millis);
    let plain = request.encode_to_vec();
    // It fails beyond 4 GiB, and the number of series is bounded.
    snap::raw::Encoder::new().compress_vec(&plain).unwrap_or_default().into()
}

fn request(families: &[Family], instance: &str, millis: i64) -> WriteRequest {
    let mut timeseries = Vec::new();
    for family in families {
        family.each(|suffix, labels, value| {
            let own = [("__name__", format!("{}{suffix}", family.name))];
            let all = own.into_iter().chain([("instance", instance.to_owned()), ("job", JOB.to_owned())]);
            let told = labels.iter().map(|(name, text)| (*name, (*text).to_owned()));
            let label = |(name, value): (&str, String)| Label { name: name.to_owned(), value };
            let mut labels: Vec<Label> = all.chain(told).map(label).collect();
            // They have to be in order.
            labels.sort_unstable_by(|one, other| one.name.cmp(&other.name));
            let samples = vec![Sample { value: value.to_f64(), timestamp: millis }];
            timeseries.push(TimeSeries { labels, samples });
        });
    }
    WriteRequest { timeseries }
}

/// `prometheus.WriteRequest`.
#[derive(Clone, PartialEq, Message)]
struct WriteRequest {
    #[prost(message, repeated, tag = "1")]
    timeseries: Vec<TimeSeries>,
}

/// `prometheus.TimeSeries`.
#[derive(Clone, PartialEq, Message)]
struct TimeSeries {
    #[prost(message, repeated, tag = "1")]
    labels: Vec<Label>,
    #[prost(message, repeated, tag = "2")]
    samples: Vec<Sample>,
}

/// `prometheus.Label`.
#[derive(Clone, PartialEq, Eq, Message)]
struct Label {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    value: String,
}

/// `prometheus.Sample`.
#[derive(Clone, Copy, PartialEq, Message)]
struct Sample {
    #[prost(double, tag = "1")]
    value: f64,
    #[prost(int64, tag = "2")]
    timestamp: i64,
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;

    use super::*;
    use crate::metrics::{Point, Spread, Value, Values};

    fn decode(bytes: &[u8]) -> WriteRequest {
        let plain = snap::raw::Decoder::new().decompress_vec(bytes).unwrap();
        WriteRequest::decode(&*plain).unwrap()
    }

    proptest! {
        #[test]
        fn whatever_tors_are_called_series_survive_the_way(
            tors in proptest::collection::vec(".*", 0..20),
            count in 0_u64..1 << 53,
        ) {
            let point = |tor: &String| Point {
                labels: vec![("tor", Arc::from(tor.as_str())), ("outcome", Arc::from("ok"))],
                value: Value::Count(count),
            };
            let values = Values::Counter(tors.iter().map(point).collect());
            let families = [Family { name: "probes_total", help: "Probes", values }];
            let request = decode(&encode(&families, "127.0.0.1:1", 77));
            prop_assert_eq!(request.timeseries.len(), tors.len());
            for (series, tor) in request.timeseries.iter().zip(&tors) {
                let names: Vec<&str> = series.labels.iter().map(|label| label.name.as_str()).collect();
                prop_assert_eq!(names, ["__name__", "instance", "job", "outcome", "tor"]);
                prop_assert_eq!(&series.labels[4].value, tor);
                #[expect(clippy::cast_precision_loss, reason = "below 2^53")]
                let value = count as f64;
                prop_assert_eq!(&series.samples, &[Sample { value, timestamp: 77 }]);
            }
        }
    }

    #[test]
    fn times_are_buckets_that_add_up_a_sum_and_a_count() {
        let mut spread =
            Spread { labels: vec![("tor", Arc::from("t1"))], counts: [0; 17], sum: 1_500_000_000 };
        (spread.counts[0], spread.counts[16]) = (2, 1);
        let values = Values::Histogram(vec![spread]);
        let families = [Family { name: "trip_seconds", help: "Trips", values }];
        let series = decode(&encode(&families, "i", 1)).timeseries;
        let value =
            |number: usize| (series[number].labels[0].value.as_str(), series[number].samples[0].value);
        assert_eq!(series.len(), 19);
        assert_eq!(value(0), ("trip_seconds_bucket", 2.0));
        assert_eq!(value(16), ("trip_seconds_bucket", 3.0));
        assert_eq!(value(17), ("trip_seconds_sum", 1.5));
        assert_eq!(value(18), ("trip_seconds_count", 3.0));
        let limit = |number: usize| &series[number].labels[3];
        assert_eq!((limit(0).name.as_str(), limit(0).value.as_str()), ("le", "0.000004096"));
        assert_eq!(limit(16).value, "+Inf");
    }
}
