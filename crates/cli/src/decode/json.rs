//! Frames as JSON, one object per line.
//!
//! The objects are written as the headers are visited, so that keys stand in wire order.

use std::fmt::{self, Write};
use std::net::SocketAddr;

use ferroce_wire::Captured;
use ferroce_wire::describe::{Describe, Value, Visitor};

use super::capture::Record;
use super::seen::{Envelope, Undecoded};

/// Numbers of more than 32 bits are strings: many readers of JSON keep only 53 bits of a number.
const NUMBER_DIGITS: usize = 8;

/// Writes a frame as one line.
pub(super) fn frame(record: &Record<'_>, captured: &Captured<'_>, out: &mut String) -> fmt::Result {
    begin(record, out)?;
    let mut json = Json { out, open: false };
    captured.describe(&mut json)?;
    json.close()?;
    let notes: Vec<String> = captured.notes.iter().map(|note| note.to_string()).collect();
    if !notes.is_empty() {
        write!(out, ",\"notes\":{}", serde_json::Value::from(notes))?;
    }
    writeln!(out, "}}")
}

/// Writes what is known of a frame that cannot be decoded as one line.
pub(super) fn undecoded(record: &Record<'_>, undecoded: &Undecoded, out: &mut String) -> fmt::Result {
    begin(record, out)?;
    let Envelope { source, dest, .. } = undecoded.envelope;
    let mut json = Json { out, open: false };
    json.header(if matches!(source, SocketAddr::V4(_)) { "ipv4" } else { "ipv6" }, "", 0)?;
    json.field("source", "", Value::Ip(source.ip()))?;
    json.field("dest", "", Value::Ip(dest.ip()))?;
    json.header("udp", "", 0)?;
    json.field("source_port", "", Value::decimal(source.port()))?;
    json.field("dest_port", "", Value::decimal(dest.port()))?;
    json.close()?;
    writeln!(out, ",\"error\":{}}}", quoted(&undecoded.reason.to_string()))
}

fn begin(record: &Record<'_>, out: &mut String) -> fmt::Result {
    write!(out, "{{\"frame\":{},\"time\":", record.number)?;
    match record.time {
        Some(time) => write!(out, "\"{time}\""),
        None => out.write_str("null"),
    }
}

/// Text as a JSON string.
fn quoted(text: &str) -> serde_json::Value {
    serde_json::Value::from(text)
}

/// Writes headers as members of an object that has members already.
struct Json<'a> {
    out: &'a mut String,
    /// Whether a header's object is open.
    open: bool,
}

impl Json<'_> {
    fn close(&mut self) -> fmt::Result {
        if self.open {
            self.open = false;
            self.out.push('}');
        }
        Ok(())
    }

    fn key(&mut self, key: &str) -> fmt::Result {
        if !self.out.ends_with('{') {
            self.out.push(',');
        }
        write!(self.out, "\"{key}\":")
    }
}

impl Visitor for Json<'_> {
    fn header(&mut self, key: &'static str, _title: &'static str, _len: usize) -> fmt::Result {
        self.close()?;
        self.key(key)?;
        self.open = true;
        self.out.write_char('{')
    }

    fn field(&mut self, key: &'static str, _label: &'static str, value: Value<'_>) -> fmt::Result {
        self.key(key)?;
        match value {
            Value::Flag(flag) => write!(self.out, "{flag}"),
            Value::Decimal(value) => write!(self.out, "{value}"),
            Value::Hex { value, digits } => number(self.out, value, digits),
            Value::Named { name, value, digits } => {
                number(self.out, value, digits)?;
                write!(self.out, ",\"{key}_name\":{}", quoted(name))
            }
            Value::Text(text) => write!(self.out, "{}", quoted(text)),
            Value::Ip(_) | Value::Gid(_) | Value::Mac(_) | Value::Bytes(_) => write!(self.out, "\"{value}\""),
        }
    }

    fn data(&mut self, len: usize, bytes: &[u8]) -> fmt::Result {
        self.close()?;
        self.key("payload")?;
        write!(self.out, "{{\"length\":{len},\"bytes\":\"")?;
        hex(self.out, bytes);
        self.out.write_str("\"}")
    }
}

/// A number of so many hexadecimal digits.
fn number(out: &mut String, value: u64, digits: usize) -> fmt::Result {
    if digits > NUMBER_DIGITS { write!(out, "\"0x{value:0digits$x}\"") } else { write!(out, "{value}") }
}

/// Bytes as hexadecimal digits, without a formatter for each: they are most of the output.
fn hex(out: &mut String, bytes: &[u8]) {
    const DIGITS: &[u8; 16] = b"0123456789abcdef";
    for chunk in bytes.chunks(64) {
        let mut text = [0; 128];
        for (pair, byte) in text.as_chunks_mut().0.iter_mut().zip(chunk) {
            *pair = [DIGITS[usize::from(byte >> 4)], DIGITS[usize::from(byte & 0xf)]];
        }
        out.push_str(str::from_utf8(&text[..2 * chunk.len()]).unwrap_or_default());
    }
}
