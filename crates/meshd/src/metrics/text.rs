//! The text that Prometheus scrapes.

use std::fmt::Write;

use super::family::{Family, Value, Values, seconds};

/// All families as text.
#[must_use]
pub fn text(families: &[Family]) -> String {
    let mut text = String::new();
    for family in families {
        let Family { name, help, values } = family;
        let kind = match values {
            Values::Counter(_) => "counter",
            Values::Gauge(_) => "gauge",
            Values::Histogram(_) => "histogram",
        };
        // Writing to a string cannot fail.
        let _ = writeln!(text, "# HELP {name} {help}.\n# TYPE {name} {kind}");
        family.each(|suffix, labels, value| sample(&mut text, &[name, suffix], labels, value));
    }
    text
}

fn sample(to: &mut String, name: &[&str; 2], labels: &[(&str, &str)], value: Value) {
    name.iter().for_each(|part| to.push_str(part));
    let mut before = '{';
    for (label, text) in labels {
        let _ = write!(to, "{before}{label}=\"{}\"", escaped(text));
        before = ',';
    }
    let end = if before == ',' { "}" } else { "" };
    let _ = match value {
        Value::Count(count) => writeln!(to, "{end} {count}"),
        Value::Nanos(nanos) => writeln!(to, "{end} {}", seconds(nanos)),
    };
}

/// A value of a label: agents choose the names of ToRs, and these three letters would end it.
fn escaped(text: &str) -> String {
    text.replace('\\', "\\\\").replace('"', "\\\"").replace('\n', "\\n")
}
