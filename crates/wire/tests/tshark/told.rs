//! What our own code says about a frame, kept so that it can be looked up by key.

use std::fmt;
use std::net::IpAddr;

use ferroce_wire::Frame;
use ferroce_wire::describe::{Describe, Value, Visitor};

/// A frame as our [`Describe`] tells it.
#[derive(Debug, Default)]
pub(crate) struct Told {
    /// Its headers in wire order, the ICRC last.
    headers: Vec<Header>,
    /// Message bytes that no header accounts for, and where they begin in the frame.
    payload: Option<(usize, Vec<u8>)>,
    /// Where in the frame the next header begins.
    end: usize,
}

/// A header of the frame.
#[derive(Debug)]
pub(crate) struct Header {
    /// Its key, such as `bth`.
    pub(crate) key: &'static str,
    /// Its name for people.
    pub(crate) title: &'static str,
    /// Where it begins in the frame.
    pub(crate) at: usize,
    fields: Vec<(&'static str, Known)>,
}

/// A field's value without the form in which people like to see it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Known {
    /// A number, or a bit.
    Number(u64),
    /// Bytes in the order of the wire.
    Bytes(Vec<u8>),
    /// Words.
    Text(String),
}

impl Told {
    /// Listens to what `frame` says about itself.
    pub(crate) fn of(frame: &Frame<'_>) -> Self {
        let mut told = Self::default();
        frame.describe(&mut told).expect("listening cannot fail");
        told
    }

    /// The headers of the transport: what follows UDP.
    pub(crate) fn transport(&self) -> &[Header] {
        let udp = self.headers.iter().position(|header| header.key == "udp").expect("a UDP header");
        &self.headers[udp + 1..]
    }

    /// Where the transport begins and how long it is.
    pub(crate) fn span(&self) -> (usize, usize) {
        let start = self.header("bth").expect("a BTH").at;
        (start, self.end - start)
    }

    /// The header with this key, if the frame has it.
    pub(crate) fn header(&self, key: &str) -> Option<&Header> {
        self.headers.iter().find(|header| header.key == key)
    }

    /// A number that some header must have.
    pub(crate) fn number(&self, header: &str, field: &str) -> u64 {
        self.header(header).unwrap_or_else(|| panic!("no header {header}")).number(field)
    }

    /// The payload with the zeros that fill it up to a multiple of four, and where
    /// it begins in the frame.
    pub(crate) fn padded_payload(&self) -> Option<(usize, Vec<u8>)> {
        self.payload.clone().map(|(at, mut bytes)| {
            bytes.resize(bytes.len().next_multiple_of(4), 0);
            (at, bytes)
        })
    }
}

impl Header {
    /// The value of a field that this header must have.
    pub(crate) fn field(&self, key: &str) -> &Known {
        let found = self.fields.iter().find(|(name, _)| *name == key);
        &found.unwrap_or_else(|| panic!("{} has no field {key}", self.key)).1
    }

    /// The number in a field that this header must have.
    pub(crate) fn number(&self, key: &str) -> u64 {
        match self.field(key) {
            Known::Number(number) => *number,
            other => panic!("{}.{key} is no number: {other:?}", self.key),
        }
    }

    /// The bytes in a field that this header must have.
    pub(crate) fn bytes(&self, key: &str) -> &[u8] {
        match self.field(key) {
            Known::Bytes(bytes) => bytes,
            other => panic!("{}.{key} are no bytes: {other:?}", self.key),
        }
    }

    /// The words in a field that this header must have.
    pub(crate) fn text(&self, key: &str) -> &str {
        match self.field(key) {
            Known::Text(text) => text,
            other => panic!("{}.{key} are no words: {other:?}", self.key),
        }
    }
}

impl Visitor for Told {
    fn header(&mut self, key: &'static str, title: &'static str, len: usize) -> fmt::Result {
        self.headers.push(Header { key, title, at: self.end, fields: Vec::new() });
        self.end += len;
        Ok(())
    }

    fn field(&mut self, key: &'static str, _label: &'static str, value: Value<'_>) -> fmt::Result {
        let known = match value {
            Value::Flag(flag) => Known::Number(flag.into()),
            Value::Decimal(number) => Known::Number(number),
            Value::Hex { value, .. } | Value::Named { value, .. } => Known::Number(value),
            Value::Text(text) => Known::Text(text.to_owned()),
            Value::Ip(IpAddr::V4(ip)) => Known::Bytes(ip.octets().to_vec()),
            Value::Ip(IpAddr::V6(ip)) => Known::Bytes(ip.octets().to_vec()),
            Value::Gid(gid) => Known::Bytes(gid.0.to_vec()),
            Value::Mac(mac) => Known::Bytes(mac.to_vec()),
            Value::Bytes(bytes) => Known::Bytes(bytes.to_vec()),
        };
        let header = self.headers.last_mut().expect("a field follows its header");
        // The name of a number is a field of its own, so that names can be compared too.
        if let Value::Named { name, .. } = value {
            header.fields.push((key, known));
            header.fields.push((NAME_OF, Known::Text(name.to_owned())));
        } else {
            header.fields.push((key, known));
        }
        Ok(())
    }

    fn data(&mut self, _len: usize, bytes: &[u8]) -> fmt::Result {
        assert!(self.payload.is_none(), "a packet has one payload");
        self.payload = Some((self.end, bytes.to_vec()));
        self.end += bytes.len().next_multiple_of(4);
        Ok(())
    }
}

/// The key under which a header keeps the name of its first number that has one:
/// the operation in a BTH, the syndrome in an AETH.
pub(crate) const NAME_OF: &str = "(name)";
