//! One field as tshark shows it, and which value of ours it must show.

use super::told::{Header, Known, Told};

/// One field as tshark shows it.
#[derive(Debug)]
pub(crate) struct Row {
    /// Its name in tshark.
    pub(crate) name: &'static str,
    /// How far behind the start of our header it begins.
    pub(crate) at: usize,
    /// How many bytes it covers.
    pub(crate) len: usize,
    /// What it must show.
    pub(crate) source: Source,
    /// In which frames it appears.
    when: When,
}

/// Where the value of a field comes from.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Source {
    /// The bytes of the frame: tshark shows whole headers that way.
    Wire,
    /// The field of ours with this key. Bytes are filled up with zeros.
    Field(&'static str),
    /// Some bits of a field of ours: its key, the lowest bit, how many.
    Bits(&'static str, u32, u32),
    /// Flags of ours that share a byte: their keys and bits.
    Flags(&'static [(&'static str, u32)]),
    /// The last bytes of a field of ours.
    Tail(&'static str),
    /// A number of ours, its bytes in the other order.
    Reversed(&'static str),
    /// Reserved: zero.
    Zero,
}

/// In which frames tshark shows a field, among those that have the header.
#[derive(Clone, Copy, Debug)]
pub(crate) enum When {
    /// In all of them.
    Always,
    /// Over IPv4.
    OverIpv4,
    /// Over IPv6.
    OverIpv6,
    /// A request for a service with an IP port, whose private data begin with an IP CM header.
    ForIpService,
    /// A request for any other service.
    ForOtherService,
    /// A request whose IP CM header has IPv4 addresses.
    BetweenIpv4,
    /// A request whose IP CM header has IPv6 addresses.
    BetweenIpv6,
    /// Bits 5 and 6 of the AETH syndrome.
    Syndrome(u64),
}

/// A field in every frame that has the header.
pub(crate) const fn row(name: &'static str, at: usize, len: usize, source: Source) -> Row {
    Row { name, at, len, source, when: When::Always }
}

impl Row {
    /// The same field, but not in every frame.
    pub(crate) const fn when(mut self, when: When) -> Self {
        self.when = when;
        self
    }

    /// Whether tshark shows this field of a frame.
    pub(crate) fn appears(&self, told: &Told) -> bool {
        let ip_service = || told.header("cm.req.ip");
        let ip_version = |version| ip_service().is_some_and(|ip| ip.number("ip_version") == version);
        match self.when {
            When::Always => true,
            When::OverIpv4 => told.header("ipv4").is_some(),
            When::OverIpv6 => told.header("ipv6").is_some(),
            When::ForIpService => ip_service().is_some(),
            When::ForOtherService => ip_service().is_none(),
            When::BetweenIpv4 => ip_version(4),
            When::BetweenIpv6 => ip_version(6),
            When::Syndrome(class) => told.number("aeth", "syndrome") >> 5 & 3 == class,
        }
    }

    /// What this field must show, by our description of the frame.
    pub(crate) fn value(&self, header: &Header, frame: &[u8]) -> Known {
        match self.source {
            Source::Wire => {
                let at = header.at + self.at;
                Known::Bytes(frame[at..at + self.len].to_vec())
            }
            Source::Zero => Known::Number(0),
            Source::Bits(key, low, count) => Known::Number(header.number(key) >> low & ((1 << count) - 1)),
            Source::Flags(flags) => {
                Known::Number(flags.iter().map(|(key, bit)| header.number(key) << bit).sum())
            }
            Source::Reversed(key) => {
                let unused = u64::BITS - 8 * u32::try_from(self.len).expect("a small number");
                Known::Number(header.number(key).swap_bytes() >> unused)
            }
            Source::Tail(key) => {
                let bytes = header.bytes(key);
                Known::Bytes(bytes[bytes.len() - self.len..].to_vec())
            }
            Source::Field(key) => match header.field(key).clone() {
                Known::Bytes(mut bytes) => {
                    bytes.resize(self.len, 0);
                    Known::Bytes(bytes)
                }
                other => other,
            },
        }
    }
}
