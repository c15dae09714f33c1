//! The two headers of datagrams: the one in front of what goes over the UDP socket, by which peers learn of each other's
//! queue pairs, and the one in front of what goes from queue pair to queue pair. Nothing here asks or changes anything.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ferroce_wire::Qpn;

/// Bytes of the longest message with the header of a queue pair.
const LONGEST: usize = 2048;

const TAG: [u8; 4] = [0x55; 4];
const DATA: u8 = 0;
const ANSWER: u8 = 7;

/// What stands in front of a datagram of the UDP socket.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Envelope {
    /// It only tells of the sender's queue pair: no message follows.
    pub(super) is_answer: bool,
    /// The sender's queue pair.
    pub(super) qpn: Qpn,
    /// The address that it was sent to.
    pub(super) to: IpAddr,
}

/// Bytes of the longer form of an envelope.
pub(super) const ENVELOPE: usize = 28;

impl Envelope {
    /// Its bytes, and how many of them count.
    pub(super) fn emit(&self) -> ([u8; ENVELOPE], usize) {
        let mut bytes = [0; ENVELOPE];
        bytes[..4].copy_from_slice(&TAG);
        bytes[5] = if self.is_answer { ANSWER } else { DATA };
        bytes[8..12].copy_from_slice(&self.qpn.get().to_be_bytes());
        let (version, len): (u8, u8) = match self.to {
            IpAddr::V4(v4) => {
                bytes[12..16].copy_from_slice(&v4.octets());
                (4, 16)
            }
            IpAddr::V6(v6) => {
                bytes[12..28].copy_from_slice(&v6.octets());
                (6, 28)
            }
        };
        (bytes[4], bytes[6]) = (version, len);
        (bytes, len.into())
    }

    /// The envelope, and the message behind it; nothing if a stranger sent it.
    pub(super) fn parse(bytes: &[u8]) -> Option<(Self, &[u8])> {
        let fixed = bytes.first_chunk::<12>()?;
        let is_answer = match fixed[5] {
            DATA => false,
            ANSWER => true,
            _ => return None,
        };
        let to = match (fixed[4], fixed[6]) {
            (4, 16) => IpAddr::from(*bytes.get(12..)?.first_chunk::<4>()?),
            (6, 28) => IpAddr::from(*bytes.get(12..)?.first_chunk::<16>()?),
            _ => return None,
        };
        if fixed[..4] != TAG {
            return None;
        }
        // The highest byte means nothing.
        let qpn = Qpn::new(u32::from_be_bytes([0, fixed[9], fixed[10], fixed[11]]));
        // Those are for the management of a device.
        if qpn.get() < 2 || qpn == Qpn::MULTICAST {
            return None;
        }
        Some((Self { is_answer, qpn, to }, bytes.get(usize::from(fixed[6])..)?))
    }
}

/// Bytes of the longer form of a label.
pub(super) const LABEL: usize = 24;

const fn label_len(is_v4: bool) -> usize {
    if is_v4 { 8 } else { LABEL }
}

/// Bytes of the longest message of a family.
pub(super) const fn longest(is_v4: bool) -> usize {
    LONGEST - label_len(is_v4)
}

/// What stands in front of a message between queue pairs: the sender's address, and how many bytes of it count.
pub(super) fn label(from: SocketAddr) -> ([u8; LABEL], usize) {
    let mut bytes = [0; LABEL];
    bytes[2..4].copy_from_slice(&from.port().to_be_bytes());
    match from.ip() {
        IpAddr::V4(v4) => bytes[4..8].copy_from_slice(&v4.octets()),
        IpAddr::V6(v6) => bytes[8..24].copy_from_slice(&v6.octets()),
    }
    let len = label_len(from.is_ipv4());
    (bytes[0], bytes[1]) = (if from.is_ipv4() { 4 } else { 6 }, u8::try_from(len).unwrap_or(0));
    (bytes, len)
}

/// The sender's port and the length of its label, if it is one of this family. Its address is told by the packet.
pub(super) fn parse_label(bytes: &[u8], is_v4: bool) -> Option<(u16, usize)> {
    let fixed = bytes.first_chunk::<4>()?;
    let len = label_len(is_v4);
    let is_known = fixed[0] == if is_v4 { 4 } else { 6 } && usize::from(fixed[1]) == len;
    let port = u16::from_be_bytes([fixed[2], fixed[3]]);
    (is_known && bytes.len() >= len && port != 0).then_some((port, len))
}

/// An address as a key: what a packet does not tell is left out.
pub(super) fn key(mut address: SocketAddr) -> SocketAddr {
    if let SocketAddr::V6(v6) = &mut address {
        v6.set_flowinfo(0);
        if !v6.ip().is_unicast_link_local() {
            v6.set_scope_id(0);
        }
    }
    address
}

/// The wildcard address of a family.
pub(super) const fn any(is_v4: bool) -> IpAddr {
    if is_v4 { IpAddr::V4(Ipv4Addr::UNSPECIFIED) } else { IpAddr::V6(Ipv6Addr::UNSPECIFIED) }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn envelopes_come_back_as_they_went() {
        for (to, len) in [("10.1.2.3", 16), ("fd00::7", 28)] {
            for is_answer in [false, true] {
                let sent = Envelope { is_answer, qpn: Qpn::new(0xab_cdef), to: to.parse().unwrap() };
                let (bytes, counted) = sent.emit();
                assert_eq!(counted, len);
                let mut whole = bytes[..counted].to_vec();
                assert_eq!(Envelope::parse(&whole), Some((sent, &[][..])));
                whole.extend(b"hello");
                assert_eq!(Envelope::parse(&whole), Some((sent, &b"hello"[..])));
            }
        }
    }

    /// The form of rsockets everywhere: tag, version, operation, length, queue pair, target.
    #[test]
    fn an_envelope_has_the_form_of_other_rsockets() {
        let sent = Envelope { is_answer: true, qpn: Qpn::new(0x12), to: "127.0.0.1".parse().unwrap() };
        let (bytes, len) = sent.emit();
        assert_eq!(bytes[..len], [0x55, 0x55, 0x55, 0x55, 4, 7, 16, 0, 0, 0, 0, 0x12, 127, 0, 0, 1]);
        let (bytes, len) = label("127.0.0.1:7174".parse().unwrap());
        assert_eq!(bytes[..len], [4, 8, 28, 6, 127, 0, 0, 1]);
        let (bytes, len) = label("[::1]:1".parse().unwrap());
        assert_eq!((bytes[..8].to_vec(), bytes[23], len), (vec![6, 24, 0, 1, 0, 0, 0, 0], 1, 24));
    }

    #[test]
    fn what_is_no_envelope_is_not_taken_for_one() {
        let sent = Envelope { is_answer: false, qpn: Qpn::new(77), to: "::1".parse().unwrap() };
        let (good, len) = sent.emit();
        for short in 0..len {
            assert_eq!(Envelope::parse(&good[..short]), None, "{short} bytes");
        }
        for (at, value) in [(0, 0), (3, 0), (4, 5), (4, 4), (5, 1), (6, 16), (6, 255), (11, 1), (11, 0)] {
            let mut bad = good;
            bad[at] = value;
            assert_eq!(Envelope::parse(&bad), None, "byte {at} is {value}");
        }
        let mut reserved = good;
        (reserved[7], reserved[8]) = (0xff, 0xff);
        assert_eq!(Envelope::parse(&reserved), Some((sent, &[][..])));
    }

    #[test]
    fn labels_are_taken_from_their_own_family_only() {
        for (from, is_v4) in [("10.1.2.3:7", true), ("[fd00::7]:9", false)] {
            let from: SocketAddr = from.parse().unwrap();
            let (bytes, len) = label(from);
            assert_eq!(parse_label(&bytes[..len], is_v4), Some((from.port(), len)));
            assert_eq!(parse_label(&bytes[..len], !is_v4), None);
            for short in 0..len {
                assert_eq!(parse_label(&bytes[..short], is_v4), None, "{short} bytes");
            }
            let (without_port, len) = label(SocketAddr::new(from.ip(), 0));
            assert_eq!(parse_label(&without_port[..len], is_v4), None);
        }
    }
}
