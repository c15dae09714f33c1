//! What benchmarks say: a JSON object in each line.

use anyhow::{Context, Result};
use serde_json::Value;

/// An object of JSON, whose fields are asked for by name and type.
#[derive(Debug)]
pub(crate) struct Line(Value);

impl Line {
    pub(crate) fn parse(line: &str) -> Result<Self> {
        let value: Value = serde_json::from_str(line).with_context(|| format!("{line:?} is no JSON"))?;
        value.is_object().then_some(Self(value)).with_context(|| format!("{line:?} is no object of JSON"))
    }

    pub(crate) fn text(&self, name: &str) -> Result<&str> {
        self.get(name, "text", Value::as_str)
    }

    pub(crate) fn number(&self, name: &str) -> Result<f64> {
        self.get(name, "a number", Value::as_f64)
    }

    pub(crate) fn count(&self, name: &str) -> Result<u64> {
        self.get(name, "a count", Value::as_u64)
    }

    pub(crate) fn flag(&self, name: &str) -> Result<bool> {
        self.get(name, "true or false", Value::as_bool)
    }

    /// All of it.
    pub(crate) fn into_value(self) -> Value {
        self.0
    }

    fn get<'a, T>(&'a self, name: &str, what: &str, take: impl FnOnce(&'a Value) -> Option<T>) -> Result<T> {
        let value = self.0.get(name).with_context(|| format!("there is no `{name}`"))?;
        take(value).with_context(|| format!("`{name}` is {value}; {what} was expected"))
    }
}

/// A number without a fraction, as JSON writes a count.
pub(super) fn whole(value: f64) -> Value {
    format!("{value:.0}").parse::<i64>().map_or(Value::Null, Value::from)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_benchmark_is_read() {
        let line = Line::parse(r#"{"a":"x, \"y\"}","b":-1.5,"c":true,"d":"","n":7}"#).unwrap();
        assert_eq!(line.text("a").unwrap(), "x, \"y\"}");
        assert!((line.number("b").unwrap() + 1.5).abs() < 1e-9);
        assert!(line.flag("c").unwrap());
        assert_eq!(line.text("d").unwrap(), "");
        assert_eq!(line.count("n").unwrap(), 7);
        assert_eq!(line.text("e").unwrap_err().to_string(), "there is no `e`");
        let error = line.count("b").unwrap_err().to_string();
        assert_eq!(error, "`b` is -1.5; a count was expected");
    }

    #[test]
    fn other_lines_are_refused() {
        for line in ["", "running 1 test", "{\"a\"}", "{\"a\":}", "{\"a", "{a:1}", "[1]", "7"] {
            assert!(Line::parse(line).is_err(), "{line}");
        }
    }

    #[test]
    fn a_count_has_no_fraction() {
        assert_eq!(whole(1499.6).to_string(), "1500");
        assert_eq!(whole(f64::NAN).to_string(), "null");
    }
}
