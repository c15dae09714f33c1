//! How a header tells what it says: one visitor serves the printer, the JSON
//! output and the comparison with other dissectors.

use core::fmt;
use core::net::IpAddr;

use crate::num::Gid;

/// One field's value, with the form in which people expect to see it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Value<'a> {
    /// A bit.
    Flag(bool),
    /// A count.
    Decimal(u64),
    /// A number or key, with the digits its width asks for.
    Hex {
        /// The number.
        value: u64,
        /// How many hexadecimal digits it is printed with.
        digits: usize,
    },
    /// A number with a name, printed as `name (0x..)`.
    Named {
        /// What the number stands for.
        name: &'a str,
        /// The number.
        value: u64,
        /// How many hexadecimal digits it is printed with.
        digits: usize,
    },
    /// Words.
    Text(&'a str),
    /// An IP address.
    Ip(IpAddr),
    /// A global identifier.
    Gid(Gid),
    /// An Ethernet address.
    Mac([u8; 6]),
    /// Uninterpreted bytes.
    Bytes(&'a [u8]),
}

impl Value<'_> {
    /// A number of `bits` bits, in hexadecimal.
    #[must_use]
    pub fn hex(value: impl Into<u64>, bits: usize) -> Self {
        Self::Hex { value: value.into(), digits: bits.div_ceil(4) }
    }

    /// A count.
    #[must_use]
    pub fn decimal(value: impl Into<u64>) -> Self {
        Self::Decimal(value.into())
    }
}

impl<'a> Value<'a> {
    /// A number of `bits` bits that has a name.
    #[must_use]
    pub fn named(name: &'a str, value: impl Into<u64>, bits: usize) -> Self {
        Self::Named { name, value: value.into(), digits: bits.div_ceil(4) }
    }
}

impl fmt::Display for Value<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Value::Flag(flag) => write!(f, "{}", u8::from(flag)),
            Value::Decimal(value) => write!(f, "{value}"),
            Value::Hex { value, digits } => write!(f, "0x{value:0digits$x}"),
            Value::Named { name, value, digits } => write!(f, "{name} (0x{value:0digits$x})"),
            Value::Text(text) => f.write_str(text),
            Value::Ip(ip) => write!(f, "{ip}"),
            Value::Gid(gid) => write!(f, "{gid}"),
            Value::Mac([a, b, c, d, e, g]) => {
                write!(f, "{a:02x}:{b:02x}:{c:02x}:{d:02x}:{e:02x}:{g:02x}")
            }
            Value::Bytes(bytes) => bytes.iter().try_for_each(|byte| write!(f, "{byte:02x}")),
        }
    }
}

/// Receives headers and their fields in wire order.
pub trait Visitor {
    /// A header begins: a short key for machines, a title for people, its length on the wire.
    fn header(&mut self, key: &'static str, title: &'static str, len: usize) -> fmt::Result;

    /// A field of the header that began last.
    fn field(&mut self, key: &'static str, label: &'static str, value: Value<'_>) -> fmt::Result;

    /// A message, or the part of it that no header accounts for: its length, and as many
    /// of its first bytes as are at hand.
    fn data(&mut self, len: usize, bytes: &[u8]) -> fmt::Result;
}

/// A value that can tell its headers and fields to a [`Visitor`].
pub trait Describe {
    /// Visits every header and field in wire order.
    fn describe(&self, visitor: &mut dyn Visitor) -> fmt::Result;
}
