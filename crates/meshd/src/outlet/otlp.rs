//! Series as OpenTelemetry has them: cumulative sums, gauges and histograms, over OTLP/HTTP.
//!
//! The messages are those parts of `opentelemetry.proto.collector.metrics.v1` and of what it needs that are
//! used here; names and numbers of fields are the public ones.

use hyper::body::Bytes;
use prost::{Message, Oneof};

use super::post::Envelope;
use crate::metrics::{Family, Labels, Point, Spread, Value, Values};

/// The port and the path that collectors have.
pub(super) const USUAL: (u16, &str) = (4318, "/v1/metrics");

/// How requests are sent.
pub(super) const ENVELOPE: Envelope = Envelope { content_type: "application/x-protobuf", headers: &[] };

/// Sums count from the start on.
const CUMULATIVE: i32 = 2;

/// When the sums began, and now, in nanoseconds of the Unix clock.
#[derive(Clone, Copy, Debug)]
pub(super) struct Times {
    pub(super) start: u64,
    pub(super) now: u64,
}

/// All series of a moment, told by the analyzer at this address.
pub(super) fn encode(families: &[Family], instance: &str, times: Times) -> Bytes {
    request(families, instance, times).encode_to_vec().into()
}

/// What is wrong although a request was taken: a collector may refuse a part of it.
pub(super) fn wrong(said: &Bytes) -> Option<String> {
    let part = ExportMetricsServiceResponse::decode(said.clone()).ok()?.partial_success?;
    let why: String = part.error_message.chars().take(200).collect();
    (part.rejected_data_points > 0)
        .then(|| format!("{} series were refused: {why}", part.rejected_data_points))
}

fn request(families: &[Family], instance: &str, times: Times) -> ExportMetricsServiceRequest {
    let scope = InstrumentationScope {
        name: "ferroce-mesh".to_owned(),
        version: env!("CARGO_PKG_VERSION").to_owned(),
    };
    let attributes = [("service.name", "ferroce-mesh"), ("service.instance.id", instance)];
    let resource = Resource { attributes: attributes.map(|(key, text)| attribute(key, text)).to_vec() };
    let metrics = families.iter().map(|family| metric(family, times)).collect();
    let scope_metrics = vec![ScopeMetrics { scope: Some(scope), metrics }];
    let resource_metrics = vec![ResourceMetrics { resource: Some(resource), scope_metrics }];
    ExportMetricsServiceRequest { resource_metrics }
}

fn metric(family: &Family, times: Times) -> Metric {
    let points = |points: &[Point]| points.iter().map(|point| number(point, times)).collect();
    let data = match &family.values {
        Values::Gauge(all) => Data::Gauge(Gauge { data_points: points(all) }),
        Values::Counter(all) => Data::Sum(Sum {
            data_points: points(all),
            aggregation_temporality: CUMULATIVE,
            is_monotonic: true,
        }),
        Values::Histogram(all) => Data::Histogram(Histogram {
            data_points: all.iter().map(|spread| buckets(spread, times)).collect(),
            aggregation_temporality: CUMULATIVE,
        }),
    };
    let unit = if family.name.ends_with("_seconds") {
        "s"
    } else if family.name.ends_with("_bytes") {
        "By"
    } else {
        "1"
    };
    Metric {
        name: family.name.to_owned(),
        description: family.help.to_owned(),
        unit: unit.to_owned(),
        data: Some(data),
    }
}

fn number(point: &Point, times: Times) -> NumberDataPoint {
    let value = match point.value {
        Value::Count(count) => Number::AsInt(i64::try_from(count).unwrap_or(i64::MAX)),
        nanos @ Value::Nanos(_) => Number::AsDouble(nanos.to_f64()),
    };
    NumberDataPoint {
        start_time_unix_nano: times.start,
        time_unix_nano: times.now,
        attributes: attributes(&point.labels),
        value: Some(value),
    }
}

fn buckets(spread: &Spread, times: Times) -> HistogramDataPoint {
    HistogramDataPoint {
        start_time_unix_nano: times.start,
        time_unix_nano: times.now,
        count: spread.count(),
        sum: Some(Value::Nanos(spread.sum).to_f64()),
        bucket_counts: spread.counts.to_vec(),
        explicit_bounds: Spread::limits().map(|nanos| Value::Nanos(nanos).to_f64()).collect(),
        attributes: attributes(&spread.labels),
    }
}

fn attributes(labels: &Labels) -> Vec<KeyValue> {
    labels.iter().map(|(name, text)| attribute(name, text)).collect()
}

fn attribute(key: &str, text: &str) -> KeyValue {
    KeyValue { key: key.to_owned(), value: Some(AnyValue { value: Some(Any::StringValue(text.to_owned())) }) }
}

#[derive(Clone, PartialEq, Message)]
struct ExportMetricsServiceRequest {
    #[prost(message, repeated, tag = "1")]
    resource_metrics: Vec<ResourceMetrics>,
}

#[derive(Clone, PartialEq, Message)]
struct ExportMetricsServiceResponse {
    #[prost(message, optional, tag = "1")]
    partial_success: Option<ExportMetricsPartialSuccess>,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct ExportMetricsPartialSuccess {
    #[prost(int64, tag = "1")]
    rejected_data_points: i64,
    #[prost(string, tag = "2")]
    error_message: String,
}

#[derive(Clone, PartialEq, Message)]
struct ResourceMetrics {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    scope_metrics: Vec<ScopeMetrics>,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Message)]
struct ScopeMetrics {
    #[prost(message, optional, tag = "1")]
    scope: Option<InstrumentationScope>,
    #[prost(message, repeated, tag = "2")]
    metrics: Vec<Metric>,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct InstrumentationScope {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
}

#[derive(Clone, PartialEq, Message)]
struct Metric {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    description: String,
    #[prost(string, tag = "3")]
    unit: String,
    #[prost(oneof = "Data", tags = "5, 7, 9")]
    data: Option<Data>,
}

#[derive(Clone, PartialEq, Oneof)]
enum Data {
    #[prost(message, tag = "5")]
    Gauge(Gauge),
    #[prost(message, tag = "7")]
    Sum(Sum),
    #[prost(message, tag = "9")]
    Histogram(Histogram),
}

#[derive(Clone, PartialEq, Message)]
struct Gauge {
    #[prost(message, repeated, tag = "1")]
    data_points: Vec<NumberDataPoint>,
}

#[derive(Clone, PartialEq, Message)]
struct Sum {
    #[prost(message, repeated, tag = "1")]
    data_points: Vec<NumberDataPoint>,
    #[prost(int32, tag = "2")]
    aggregation_temporality: i32,
    #[prost(bool, tag = "3")]
    is_monotonic: bool,
}

#[derive(Clone, PartialEq, Message)]
struct Histogram {
    #[prost(message, repeated, tag = "1")]
    data_points: Vec<HistogramDataPoint>,
    #[prost(int32, tag = "2")]
    aggregation_temporality: i32,
}

#[derive(Clone, PartialEq, Message)]
struct NumberDataPoint {
    #[prost(fixed64, tag = "2")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "3")]
    time_unix_nano: u64,
    #[prost(message, repeated, tag = "7")]
    attributes: Vec<KeyValue>,
    #[prost(oneof = "Number", tags = "4, 6")]
    value: Option<Number>,
}

#[derive(Clone, Copy, PartialEq, Oneof)]
enum Number {
    #[prost(double, tag = "4")]
    AsDouble(f64),
    #[prost(sfixed64, tag = "6")]
    AsInt(i64),
}

#[derive(Clone, PartialEq, Message)]
struct HistogramDataPoint {
    #[prost(fixed64, tag = "2")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "3")]
    time_unix_nano: u64,
    #[prost(fixed64, tag = "4")]
    count: u64,
    #[prost(double, optional, tag = "5")]
    sum: Option<f64>,
    #[prost(fixed64, repeated, tag = "6")]
    bucket_counts: Vec<u64>,
    #[prost(double, repeated, tag = "7")]
    explicit_bounds: Vec<f64>,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, Eq, Message)]
struct AnyValue {
    #[prost(oneof = "Any", tags = "1")]
    value: Option<Any>,
}

#[derive(Clone, PartialEq, Eq, Oneof)]
enum Any {
    #[prost(string, tag = "1")]
    StringValue(String),
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_part_that_is_refused_is_said() {
        let part = ExportMetricsPartialSuccess { rejected_data_points: 3, error_message: "too old".into() };
        let said = ExportMetricsServiceResponse { partial_success: Some(part) }.encode_to_vec();
        assert_eq!(wrong(&said.into()).unwrap(), "3 series were refused: too old");
        assert_eq!(wrong(&Bytes::new()), None);
        assert_eq!(wrong(&Bytes::from_static(b"{}")), None, "another format says nothing");
    }

    #[test]
    fn sums_are_whole_cumulative_and_say_since_when() {
        let labels: Labels = vec![("tor", "t\"1\\\n".into())];
        let points = vec![Point { labels, value: Value::Count((1 << 53) + 1) }];
        let families = [Family { name: "probes_total", help: "Probes", values: Values::Counter(points) }];
        let bytes = encode(&families, "127.0.0.1:1", Times { start: 5, now: 9 });
        let request = ExportMetricsServiceRequest::decode(bytes).unwrap();
        assert_eq!(request, super::request(&families, "127.0.0.1:1", Times { start: 5, now: 9 }));
        let metric = &request.resource_metrics[0].scope_metrics[0].metrics[0];
        let Some(Data::Sum(sum)) = &metric.data else { panic!("{metric:?}") };
        assert_eq!((sum.aggregation_temporality, sum.is_monotonic), (CUMULATIVE, true));
        let point = &sum.data_points[0];
        assert_eq!((point.start_time_unix_nano, point.time_unix_nano), (5, 9));
        assert_eq!(point.value, Some(Number::AsInt((1 << 53) + 1)));
        assert_eq!(point.attributes, [attribute("tor", "t\"1\\\n")]);
    }
}
