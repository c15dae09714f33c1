//! What is counted, by name, before it is written for any reader.

use std::sync::Arc;

use crate::board::POWERS;

/// Labels of a series, in the order in which they are told.
pub type Labels = Vec<(&'static str, Arc<str>)>;

/// All series of one name.
#[derive(Clone, Debug)]
pub struct Family {
    /// The name.
    pub name: &'static str,
    /// What it means.
    pub help: &'static str,
    /// The series.
    pub values: Values,
}

/// The series of a family.
#[derive(Clone, Debug)]
pub enum Values {
    /// They only grow, until the analyzer ends.
    Counter(Vec<Point>),
    /// They are as they are now.
    Gauge(Vec<Point>),
    /// Times in buckets.
    Histogram(Vec<Spread>),
}

/// One series.
#[derive(Clone, Debug)]
pub struct Point {
    /// Its labels.
    pub labels: Labels,
    /// Its value.
    pub value: Value,
}

/// A number, exactly.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value {
    /// As many.
    Count(u64),
    /// Nanoseconds, which readers are told as seconds.
    Nanos(u64),
}

impl Value {
    /// As readers take it that know no whole numbers.
    #[must_use]
    #[expect(clippy::cast_precision_loss, reason = "exact up to 2^53, and no reader takes more")]
    pub const fn to_f64(self) -> f64 {
        match self {
            Self::Count(count) => count as f64,
            Self::Nanos(nanos) => nanos as f64 / 1e9,
        }
    }
}

/// Times of one kind, in buckets.
#[derive(Clone, Debug)]
pub struct Spread {
    /// Its labels.
    pub labels: Labels,
    /// How many are in each bucket, beginning with the shortest; the last has those beyond all limits.
    pub counts: [u64; POWERS.len() + 1],
    /// Their sum in nanoseconds.
    pub sum: u64,
}

impl Spread {
    /// The longest time of each bucket but the last, in nanoseconds.
    pub fn limits() -> impl Iterator<Item = u64> {
        POWERS.iter().map(|power| 1 << power)
    }

    /// How many there are.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.counts.iter().fold(0, |sum, count| sum.saturating_add(*count))
    }
}

impl Family {
    /// Shows each series as Prometheus has them: what follows the name, the labels, and the value.
    pub(crate) fn each<'a>(&'a self, mut see: impl FnMut(&str, &[(&'static str, &str)], Value)) {
        let borrowed = |labels: &'a Labels| -> Vec<(&'static str, &'a str)> {
            labels.iter().map(|(name, text)| (*name, text.as_ref())).collect()
        };
        match &self.values {
            Values::Counter(points) | Values::Gauge(points) => {
                for point in points {
                    see("", &borrowed(&point.labels), point.value);
                }
            }
            Values::Histogram(spreads) => {
                let limits: Vec<String> = Spread::limits().map(seconds).chain(["+Inf".to_owned()]).collect();
                for spread in spreads {
                    let mut labels = borrowed(&spread.labels);
                    let mut all: u64 = 0;
                    for (limit, count) in limits.iter().zip(spread.counts) {
                        all = all.saturating_add(count);
                        labels.push(("le", limit));
                        see("_bucket", &labels, Value::Count(all));
                        labels.pop();
                    }
                    see("_sum", &labels, Value::Nanos(spread.sum));
                    see("_count", &labels, Value::Count(all));
                }
            }
        }
    }
}

/// Nanoseconds as seconds, exactly.
pub(crate) fn seconds(nanos: u64) -> String {
    let (whole, part) = (nanos / 1_000_000_000, nanos % 1_000_000_000);
    let text = format!("{whole}.{part:09}");
    text.trim_end_matches('0').trim_end_matches('.').to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn seconds_are_exact() {
        for (nanos, text) in [(0, "0"), (4096, "0.000004096"), (1 << 30, "1.073741824"), (2_000_000_000, "2")]
        {
            assert_eq!(seconds(nanos), text);
        }
    }
}
