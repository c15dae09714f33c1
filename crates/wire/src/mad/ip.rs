//! The IP addresses behind a connection request.

use core::fmt;
use core::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use super::{Opaque, ServiceId, bits, opaque, place};
use crate::bytes::{field, put};
use crate::describe::{Describe, Value, Visitor};
use crate::error::{BufferTooSmall, ParseError};

/// The IP CM header: the two ends of a connection, in terms of IP (IBA A11.3).
///
/// It stands at the front of the private data of a request for an IP service ID,
/// which holds the destination port.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct IpCmHeader {
    /// Minor version, 4 bits; peers need not agree on it. The major version is always 0.
    pub minor_version: u8,
    /// Port of the requester.
    pub source_port: u16,
    /// The two addresses.
    pub addresses: IpPair,
}

/// Source and destination addresses, which are always of one family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum IpPair {
    /// Two IPv4 addresses.
    V4 {
        /// Address of the requester.
        source: Ipv4Addr,
        /// Address of the service.
        destination: Ipv4Addr,
    },
    /// Two IPv6 addresses.
    V6 {
        /// Address of the requester.
        source: Ipv6Addr,
        /// Address of the service.
        destination: Ipv6Addr,
    },
}

impl IpPair {
    /// The pair of these addresses, if they are of one family.
    #[must_use]
    pub const fn new(source: IpAddr, destination: IpAddr) -> Option<Self> {
        match (source, destination) {
            (IpAddr::V4(source), IpAddr::V4(destination)) => Some(Self::V4 { source, destination }),
            (IpAddr::V6(source), IpAddr::V6(destination)) => Some(Self::V6 { source, destination }),
            _ => None,
        }
    }

    /// Address of the requester.
    #[must_use]
    pub const fn source(self) -> IpAddr {
        match self {
            Self::V4 { source, .. } => IpAddr::V4(source),
            Self::V6 { source, .. } => IpAddr::V6(source),
        }
    }

    /// Address of the service.
    #[must_use]
    pub const fn destination(self) -> IpAddr {
        match self {
            Self::V4 { destination, .. } => IpAddr::V4(destination),
            Self::V6 { destination, .. } => IpAddr::V6(destination),
        }
    }

    /// The IP version, as the header writes it.
    #[must_use]
    pub const fn version(self) -> u8 {
        match self {
            Self::V4 { .. } => 4,
            Self::V6 { .. } => 6,
        }
    }
}

impl IpCmHeader {
    /// Length on the wire.
    pub const LEN: usize = 36;

    /// The header of a request from `source_port`, in the version that all speak.
    #[must_use]
    pub const fn new(source_port: u16, addresses: IpPair) -> Self {
        Self { minor_version: 0, source_port, addresses }
    }

    /// Reads the header; it must have major version 0 and a known IP version.
    pub const fn parse(bytes: &[u8; Self::LEN]) -> Result<Self, ParseError> {
        let [versions, ip_version] = field::<0, 2, _>(bytes);
        let major = bits::<4, 4>(versions);
        if major != 0 {
            return Err(ParseError::BadField { field: "IP CM major version", value: major as u64 });
        }
        let addresses = match bits::<4, 4>(ip_version) {
            4 => IpPair::V4 {
                source: Ipv4Addr::from_octets(field::<16, 4, _>(bytes)),
                destination: Ipv4Addr::from_octets(field::<32, 4, _>(bytes)),
            },
            6 => IpPair::V6 {
                source: Ipv6Addr::from_octets(field::<4, 16, _>(bytes)),
                destination: Ipv6Addr::from_octets(field::<20, 16, _>(bytes)),
            },
            version => return Err(ParseError::BadField { field: "IP CM IP version", value: version as u64 }),
        };
        Ok(Self {
            minor_version: bits::<0, 4>(versions),
            source_port: u16::from_be_bytes(field::<2, 2, _>(bytes)),
            addresses,
        })
    }

    /// Writes the header.
    pub const fn emit(&self, bytes: &mut [u8; Self::LEN]) {
        *bytes = [0; Self::LEN];
        put::<0, 1, _>(bytes, [place::<0, 4>(self.minor_version)]);
        put::<1, 1, _>(bytes, [place::<4, 4>(self.addresses.version())]);
        put::<2, 2, _>(bytes, self.source_port.to_be_bytes());
        match self.addresses {
            IpPair::V4 { source, destination } => {
                put::<16, 4, _>(bytes, source.octets());
                put::<32, 4, _>(bytes, destination.octets());
            }
            IpPair::V6 { source, destination } => {
                put::<4, 16, _>(bytes, source.octets());
                put::<20, 16, _>(bytes, destination.octets());
            }
        }
    }

    /// Private data of `N` bytes that begin with this header and go on with the
    /// `consumer`'s own; fails if those do not fit.
    pub fn private_data<const N: usize>(&self, consumer: &[u8]) -> Result<Opaque<N>, BufferTooSmall> {
        let too_small = BufferTooSmall { need: Self::LEN + consumer.len(), have: N };
        let mut all = Opaque::default();
        let (header, rest) = all.0.split_first_chunk_mut().ok_or(too_small)?;
        self.emit(header);
        rest.get_mut(..consumer.len()).ok_or(too_small)?.copy_from_slice(consumer);
        Ok(all)
    }

    /// The header in front of `private_data` and the consumer's own bytes behind it,
    /// if the service is an IP port and the header can be read.
    pub(super) fn split(service: ServiceId, private_data: &[u8]) -> Option<(Self, &[u8])> {
        service.as_rdma_ip()?;
        let (header, consumer) = private_data.split_first_chunk()?;
        Some((Self::parse(header).ok()?, consumer))
    }

    fn describe_as(&self, key: &'static str, visitor: &mut dyn Visitor) -> fmt::Result {
        visitor.header(key, "IP CM Header", Self::LEN)?;
        visitor.field("major_version", "Major Version", Value::Decimal(0))?;
        visitor.field("minor_version", "Minor Version", Value::decimal(bits::<0, 4>(self.minor_version)))?;
        visitor.field("ip_version", "IP Version", Value::decimal(self.addresses.version()))?;
        visitor.field("source_port", "Source Port", Value::decimal(self.source_port))?;
        visitor.field("source_ip", "Source IP", Value::Ip(self.addresses.source()))?;
        visitor.field("destination_ip", "Destination IP", Value::Ip(self.addresses.destination()))
    }
}

/// Tells the private data of a request: the IP CM header, if there is one, and what follows it.
pub(super) fn describe_private_data(
    [ip_key, private_key]: [&'static str; 2],
    service: ServiceId,
    private_data: &[u8],
    visitor: &mut dyn Visitor,
) -> fmt::Result {
    let (header, consumer) = match IpCmHeader::split(service, private_data) {
        Some((header, consumer)) => (Some(header), consumer),
        None => (None, private_data),
    };
    if let Some(header) = header {
        header.describe_as(ip_key, visitor)?;
    }
    visitor.header(private_key, "CM Private Data", consumer.len())?;
    visitor.field("private_data", "Private Data", Value::Bytes(opaque::trim(consumer)))
}

impl Describe for IpCmHeader {
    fn describe(&self, visitor: &mut dyn Visitor) -> fmt::Result {
        self.describe_as("cm.ip", visitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn v4() -> IpCmHeader {
        let addresses =
            IpPair::V4 { source: Ipv4Addr::new(10, 77, 0, 3), destination: Ipv4Addr::new(10, 77, 0, 2) };
        IpCmHeader::new(0xbb06, addresses)
    }

    #[test]
    fn ipv4_stands_in_the_last_four_bytes() {
        let mut expected = [0; IpCmHeader::LEN];
        expected[..4].copy_from_slice(&[0x00, 0x40, 0xbb, 0x06]);
        expected[16..20].copy_from_slice(&[10, 77, 0, 3]);
        expected[32..36].copy_from_slice(&[10, 77, 0, 2]);
        let mut bytes = [0xee; IpCmHeader::LEN];
        v4().emit(&mut bytes);
        assert_eq!(bytes, expected);
        assert_eq!(IpCmHeader::parse(&bytes), Ok(v4()));
    }

    #[test]
    fn ipv6_takes_all_sixteen() {
        let (source, destination) = (Ipv6Addr::from([0x33; 16]), Ipv6Addr::from([0x22; 16]));
        let header =
            IpCmHeader { minor_version: 5, source_port: 1, addresses: IpPair::V6 { source, destination } };
        let mut bytes = [0xee; IpCmHeader::LEN];
        header.emit(&mut bytes);
        assert_eq!(bytes[..4], [0x05, 0x60, 0, 1]);
        assert_eq!(bytes[4..20], [0x33; 16]);
        assert_eq!(bytes[20..], [0x22; 16]);
        assert_eq!(IpCmHeader::parse(&bytes), Ok(header));
    }

    #[test]
    fn unknown_versions_are_refused() {
        let mut bytes = [0; IpCmHeader::LEN];
        bytes[1] = 0x50;
        let error = ParseError::BadField { field: "IP CM IP version", value: 5 };
        assert_eq!(IpCmHeader::parse(&bytes), Err(error));
        bytes[..2].copy_from_slice(&[0x10, 0x40]);
        let error = ParseError::BadField { field: "IP CM major version", value: 1 };
        assert_eq!(IpCmHeader::parse(&bytes), Err(error));
    }

    #[test]
    fn families_cannot_be_mixed() {
        let (v4, v6) = (IpAddr::V4(Ipv4Addr::LOCALHOST), IpAddr::V6(Ipv6Addr::LOCALHOST));
        assert_eq!(IpPair::new(v4, v6), None);
        let pair = IpPair::new(v6, v6).unwrap();
        assert_eq!((pair.source(), pair.destination()), (v6, v6));
    }

    #[test]
    fn private_data_holds_header_and_consumer() {
        let data: Opaque<92> = v4().private_data(b"hello").unwrap();
        assert_eq!(data.0[36..41], *b"hello");
        assert!(data.0[41..].iter().all(|&byte| byte == 0));
        assert_eq!(v4().private_data::<92>(&[1; 57]), Err(BufferTooSmall { need: 93, have: 92 }));
        assert_eq!(v4().private_data::<8>(&[]), Err(BufferTooSmall { need: 36, have: 8 }));
    }
}
