//! What came back from one target.

use std::fmt;

use ferroce::{DatagramHeader, Time};
use hdrhistogram::Histogram;
use serde_json::{Value, json};

/// The six times of a probe.
///
/// T3 and T4 are of the responder's clock, the others of the prober's. Times of different clocks are never
/// compared.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Times {
    pub(crate) t1: Time,
    pub(crate) t2: Time,
    pub(crate) t3: Time,
    pub(crate) t4: Time,
    pub(crate) t5: Time,
    pub(crate) t6: Time,
}

/// What follows from them, in nanoseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Delays {
    pub(crate) network: u64,
    pub(crate) prober: u64,
    pub(crate) responder: u64,
}

impl Times {
    /// None if one of them is negative: then the times are wrong, and nothing is known of the network.
    pub(crate) fn delays(&self) -> Option<Delays> {
        let between = |later: Time, earlier: Time| i128::from(later.nanos()) - i128::from(earlier.nanos());
        let (away, there) = (between(self.t5, self.t2), between(self.t4, self.t3));
        let positive = |nanos: i128| u64::try_from(nanos).ok();
        Some(Delays {
            network: positive(away - there)?,
            prober: positive(between(self.t6, self.t1) - away)?,
            responder: positive(there)?,
        })
    }
}

/// Counters and times of one target.
#[derive(Clone, Debug)]
pub(crate) struct Measured {
    pub(crate) sent: u64,
    pub(crate) lost: u64,
    pub(crate) invalid: u64,
    /// Answers that came when the probe was lost or over already.
    pub(crate) late: u64,
    /// What the header of the last answer says of its way.
    pub(crate) header: Option<DatagramHeader>,
    network: Histogram<u64>,
    prober: Histogram<u64>,
    responder: Histogram<u64>,
}

/// The columns, with the share of probes that were as fast.
const COLUMNS: [(&str, f64); 5] = [("least", 0.0), ("p50", 0.5), ("p90", 0.9), ("p99", 0.99), ("most", 1.0)];

impl Measured {
    pub(crate) fn new() -> anyhow::Result<Self> {
        // From a nanosecond to a minute, with three digits.
        let empty = || Histogram::new_with_bounds(1, 60_000_000_000, 3);
        let (network, prober, responder) = (empty()?, empty()?, empty()?);
        Ok(Self { sent: 0, lost: 0, invalid: 0, late: 0, header: None, network, prober, responder })
    }

    pub(crate) fn add(&mut self, times: &Times) {
        match times.delays() {
            Some(delays) => {
                self.network.saturating_record(delays.network);
                self.prober.saturating_record(delays.prober);
                self.responder.saturating_record(delays.responder);
            }
            None => self.invalid += 1,
        }
    }

    /// Probes with two answers and times that make sense.
    pub(crate) fn answered(&self) -> u64 {
        self.network.len()
    }

    fn rows(&self) -> [(&'static str, &'static str, &Histogram<u64>); 3] {
        [
            ("network round trip", "network_rtt_ns", &self.network),
            ("prober delay", "prober_delay_ns", &self.prober),
            ("responder delay", "responder_delay_ns", &self.responder),
        ]
    }

    pub(crate) fn to_json(&self, target: &str) -> Value {
        let mut value = json!({
            "target": target, "sent": self.sent, "answered": self.answered(), "lost": self.lost,
            "invalid": self.invalid, "late": self.late,
        });
        for (_, name, times) in self.rows() {
            if times.is_empty() {
                value[name] = Value::Null;
                continue;
            }
            for (column, share) in COLUMNS {
                value[name][column] = times.value_at_quantile(share).into();
            }
        }
        value["answers"] = self.header.map_or(Value::Null, |header| {
            json!({
                "source": header.source.ip().to_string(),
                "traffic_class": header.traffic_class,
                "hop_limit": header.hop_limit,
            })
        });
        value
    }
}

impl fmt::Display for Measured {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { sent, lost, invalid, late, .. } = self;
        let answered = self.answered();
        writeln!(
            f,
            "  {sent} sent, {answered} answered, {lost} lost, {invalid} invalid, {late} late answers"
        )?;
        if let Some(DatagramHeader { source, traffic_class, hop_limit, .. }) = self.header {
            writeln!(
                f,
                "  answers from {}, traffic class {traffic_class}, hop limit {hop_limit}",
                source.ip()
            )?;
        }
        if answered == 0 {
            return Ok(());
        }
        write!(f, "  {:<18}", "microseconds")?;
        for (column, _) in COLUMNS {
            write!(f, " {column:>9}")?;
        }
        writeln!(f)?;
        for (name, _, times) in self.rows() {
            write!(f, "  {name:<18}")?;
            for (_, share) in COLUMNS {
                let nanos = times.value_at_quantile(share);
                write!(f, " {:>9}", format!("{}.{}", nanos / 1000, nanos % 1000 / 100))?;
            }
            writeln!(f)?;
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(all: [u64; 6]) -> Times {
        let [t1, t2, t3, t4, t5, t6] = all.map(Time::from_nanos);
        Times { t1, t2, t3, t4, t5, t6 }
    }

    #[test]
    fn delays_follow_from_six_times_of_two_clocks() {
        // The responder's clock is far ahead, and that changes nothing.
        let delays = times([100, 130, 9_000, 9_050, 330, 400]).delays();
        assert_eq!(delays, Some(Delays { network: 150, prober: 100, responder: 50 }));
    }

    #[test]
    fn negative_delays_are_invalid_and_not_lost() {
        let mut measured = Measured::new().unwrap();
        for wrong in [
            // The answer came before the responder can have sent it.
            [100, 130, 9_000, 9_300, 330, 400],
            // The responder answered before it was asked.
            [100, 130, 9_000, 8_999, 330, 400],
            // The second answer was handled before the first one came.
            [100, 130, 9_000, 9_050, 330, 250],
        ] {
            assert_eq!(times(wrong).delays(), None, "{wrong:?}");
            measured.add(&times(wrong));
        }
        assert_eq!((measured.invalid, measured.lost, measured.answered()), (3, 0, 0));
        assert_eq!(measured.to_json("x")["network_rtt_ns"], Value::Null);
    }
}
