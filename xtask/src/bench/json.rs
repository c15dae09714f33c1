//! Just enough JSON for the lines of our own benchmark: one flat object of text, numbers and flags.

use anyhow::{Context, Result, bail};

/// A flat object.
#[derive(Debug)]
pub(crate) struct Object(Vec<(String, Value)>);

#[derive(Debug, PartialEq)]
enum Value {
    Text(String),
    Number(f64),
    Flag(bool),
}

impl Object {
    pub(crate) fn parse(line: &str) -> Result<Self> {
        let inner = line.trim().strip_prefix('{').and_then(|rest| rest.strip_suffix('}'));
        let mut rest = inner.context("no object of JSON")?.trim_start();
        let mut fields = Vec::new();
        while !rest.is_empty() {
            let (name, after) = text(rest)?;
            let after = after.trim_start().strip_prefix(':').context("a colon is missing")?.trim_start();
            let (value, after) = value(after)?;
            fields.push((name, value));
            rest = after.trim_start().trim_start_matches(',').trim_start();
        }
        Ok(Self(fields))
    }

    pub(crate) fn text(&self, name: &str) -> Result<&str> {
        match self.get(name)? {
            Value::Text(text) => Ok(text),
            other => bail!("`{name}` is {other:?}; text was expected"),
        }
    }

    pub(crate) fn number(&self, name: &str) -> Result<f64> {
        match self.get(name)? {
            Value::Number(number) => Ok(*number),
            other => bail!("`{name}` is {other:?}; a number was expected"),
        }
    }

    pub(crate) fn flag(&self, name: &str) -> Result<bool> {
        match self.get(name)? {
            Value::Flag(flag) => Ok(*flag),
            other => bail!("`{name}` is {other:?}; true or false was expected"),
        }
    }

    fn get(&self, name: &str) -> Result<&Value> {
        let field = self.0.iter().find(|(known, _)| known == name);
        field.map(|(_, value)| value).with_context(|| format!("there is no `{name}`"))
    }
}

fn value(from: &str) -> Result<(Value, &str)> {
    if from.starts_with('"') {
        let (text, rest) = text(from)?;
        return Ok((Value::Text(text), rest));
    }
    let (word, rest) = from.split_at(from.find(',').unwrap_or(from.len()));
    let value = match word.trim() {
        "true" => Value::Flag(true),
        "false" => Value::Flag(false),
        number => Value::Number(number.parse().with_context(|| format!("{number:?} is no number"))?),
    };
    Ok((value, rest))
}

/// A quoted text, and what follows it.
fn text(from: &str) -> Result<(String, &str)> {
    let inner = from.strip_prefix('"').context("a quote is missing")?;
    let mut text = String::new();
    let mut chars = inner.char_indices();
    while let Some((at, c)) = chars.next() {
        match c {
            '"' => return Ok((text, &inner[at + 1..])),
            '\\' => text.extend(chars.next().map(|(_, escaped)| escaped)),
            c => text.push(c),
        }
    }
    bail!("a text has no end");
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_of_the_benchmark_is_read() {
        let object = Object::parse(r#"{"a":"x, \"y\"}","b":-1.5,"c":true,"d":""}"#).unwrap();
        assert_eq!(object.text("a").unwrap(), "x, \"y\"}");
        assert!((object.number("b").unwrap() + 1.5).abs() < 1e-9);
        assert!(object.flag("c").unwrap());
        assert_eq!(object.text("d").unwrap(), "");
        assert_eq!(object.text("e").unwrap_err().to_string(), "there is no `e`");
        assert!(object.number("a").unwrap_err().to_string().contains("a number was expected"));
    }

    #[test]
    fn other_lines_are_refused() {
        for line in ["", "running 1 test", "{\"a\"}", "{\"a\":}", "{\"a", "{a:1}", "{\"a\":[1]}"] {
            assert!(Object::parse(line).is_err(), "{line}");
        }
    }
}
