//! What a peer must know of a queue pair to connect to it.

use std::fmt;
use std::net::IpAddr;
use std::str::FromStr;

use ferroce_wire::{Gid, PathMtu, Psn, Qpn};

use crate::error::ParseAddressError;

/// What a peer must know of a queue pair to connect to it: exchanged over any other channel, as bytes
/// ([`to_bytes`](Self::to_bytes)) or as text (`Display` and `FromStr`).
///
/// ```
/// # use ferroce_verbs::QpAddress;
/// let address: QpAddress = "0x0112ab/0x3c51d2/1024@192.0.2.1".parse()?;
/// assert_eq!(address.to_string(), "0x0112ab/0x3c51d2/1024@192.0.2.1");
/// # Ok::<(), ferroce_verbs::ParseAddressError>(())
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct QpAddress {
    /// Its number.
    pub qpn: Qpn,
    /// The first PSN that it sends.
    pub psn: Psn,
    /// The largest path MTU of its device; a connection takes the smaller one of both ends.
    pub mtu: PathMtu,
    /// Its device.
    pub gid: Gid,
}

impl QpAddress {
    /// Length of [`to_bytes`](Self::to_bytes).
    pub const LEN: usize = 24;

    /// For sending it to a peer.
    #[must_use]
    pub fn to_bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..16].copy_from_slice(&self.gid.0);
        bytes[16..20].copy_from_slice(&self.qpn.get().to_be_bytes());
        bytes[20..].copy_from_slice(&self.psn.get().to_be_bytes());
        // QPNs have 24 bits: the byte before is free.
        bytes[16] = self.mtu.code();
        bytes
    }

    /// Reads what [`to_bytes`](Self::to_bytes) wrote.
    ///
    /// # Errors
    /// The number of bytes is wrong, or there is no such MTU.
    pub fn from_bytes(bytes: &[u8]) -> Result<Self, ParseAddressError> {
        let wrong = ParseAddressError::Length { given: bytes.len(), needed: Self::LEN };
        let bytes: &[u8; Self::LEN] = bytes.try_into().map_err(|_| wrong)?;
        let mut gid = Gid::default();
        gid.0.copy_from_slice(&bytes[..16]);
        let number = |at: usize| u32::from_be_bytes([0, bytes[at + 1], bytes[at + 2], bytes[at + 3]]);
        let mtu = PathMtu::from_code(bytes[16]).ok_or(ParseAddressError::Part { part: "MTU" })?;
        Ok(Self { qpn: Qpn::new(number(16)), psn: Psn::new(number(20)), mtu, gid })
    }
}

impl fmt::Display for QpAddress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}@{}", self.qpn, self.psn, self.mtu, self.gid.ip())
    }
}

impl FromStr for QpAddress {
    type Err = ParseAddressError;

    fn from_str(text: &str) -> Result<Self, ParseAddressError> {
        let wrong = |part| ParseAddressError::Part { part };
        let (numbers, address) = text.split_once('@').ok_or(wrong("address"))?;
        let mut numbers = numbers.split('/');
        let qpn = numbers.next().and_then(number).ok_or(wrong("QPN"))?;
        let psn = numbers.next().and_then(number).ok_or(wrong("PSN"))?;
        let bytes: Option<usize> = numbers.next().and_then(|mtu| mtu.parse().ok());
        let mtu = PathMtu::ALL.into_iter().find(|mtu| Some(mtu.bytes()) == bytes).ok_or(wrong("MTU"))?;
        if numbers.next().is_some() {
            return Err(wrong("part after the MTU"));
        }
        let ip: IpAddr = address.parse().map_err(|_| wrong("address"))?;
        Ok(Self { qpn: Qpn::new(qpn), psn: Psn::new(psn), mtu, gid: ip.into() })
    }
}

/// A number of 24 bits, as 0x1234 or decimal.
fn number(text: &str) -> Option<u32> {
    let value = match text.strip_prefix("0x") {
        Some(digits) => u32::from_str_radix(digits, 16),
        None => text.parse(),
    };
    value.ok().filter(|value| *value < 1 << 24)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_survives_the_way_to_a_peer() {
        for ip in ["192.0.2.1", "2001:db8::1"] {
            let gid = ip.parse::<IpAddr>().unwrap().into();
            let (qpn, psn) = (Qpn::new(0xff_ffff), Psn::new(0x80_0001));
            let address = QpAddress { qpn, psn, mtu: PathMtu::B4096, gid };
            assert_eq!(QpAddress::from_bytes(&address.to_bytes()), Ok(address));
            assert_eq!(address.to_string().parse(), Ok(address));
        }
    }

    #[test]
    fn what_is_wrong_is_named() {
        for (text, part) in [
            ("1/2/1024", "address"),
            ("x/2/1024@127.0.0.1", "QPN"),
            ("0x1000000/2/1024@127.0.0.1", "QPN"),
            ("1/@127.0.0.1", "PSN"),
            ("1/2/1000@127.0.0.1", "MTU"),
            ("1/2/1024/3@127.0.0.1", "part after the MTU"),
            ("1/2/1024@host", "address"),
        ] {
            assert_eq!(text.parse::<QpAddress>(), Err(ParseAddressError::Part { part }), "{text}");
        }
        assert!(QpAddress::from_bytes(&[0; 24]).is_err(), "no MTU");
    }
}
