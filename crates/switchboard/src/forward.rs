//! Packets that came to a wrong slot, and messages for queue pair 1, on their way to the process that they
//! are for: a datagram to a socket whose name its owner has published.

use std::net::{IpAddr, Ipv6Addr};

use ferroce_fabric::Received;
use ferroce_sys::unix;

/// Packets that belong together: as they came, with where they came from. Their ICRC was checked before
/// they were handed on.
#[derive(Clone, Copy, Debug)]
pub struct Arrival<'a> {
    /// How they came; its lengths are those of `bytes`.
    pub received: Received,
    /// The IPv4 identification of the first of them.
    pub place: usize,
    /// The packets.
    pub bytes: &'a [u8],
}

impl Arrival<'_> {
    /// How many packets there are.
    #[must_use]
    pub fn packets(&self) -> u64 {
        self.bytes.len().div_ceil(self.received.segment.max(1)) as u64
    }
}

/// What a message is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    /// Packets for queue pairs of a slot.
    Packets,
    /// A packet for queue pair 1, whose ICRC was checked.
    Management,
}

/// What became of packets that were handed to the owner of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Handed {
    /// It has them.
    Taken,
    /// It has no room at the moment.
    Full,
    /// There is no owner, or it does not take them.
    Gone,
}

/// Bytes before the packets.
pub(super) const HEAD: usize = 64;

/// Where the group's secret stands in them.
pub(super) const SECRET: usize = 56;

/// Bytes of the longest message.
pub(super) const LONGEST: usize = HEAD + 65_536;

const MAGIC: [u8; 4] = *b"FRFW";

/// What stands before the packets; the secret is added when it is sent.
pub(super) fn head(kind: Kind, slot: u8, arrival: &Arrival<'_>) -> [u8; HEAD] {
    let Received { segment, source: (source, port), local, traffic_class, hop_limit, flow_label, .. } =
        arrival.received;
    let mut bytes = [0; HEAD];
    bytes[..4].copy_from_slice(&MAGIC);
    bytes[4] = match kind {
        Kind::Packets => 1,
        Kind::Management => 2,
    };
    bytes[5] = slot;
    bytes[6] = traffic_class;
    bytes[7] = hop_limit;
    bytes[8..24].copy_from_slice(&wide(source));
    bytes[24..40].copy_from_slice(&wide(local));
    bytes[40..42].copy_from_slice(&port.to_ne_bytes());
    bytes[42..44].copy_from_slice(&u16::try_from(arrival.place).unwrap_or(0).to_ne_bytes());
    bytes[44..48].copy_from_slice(&u32::try_from(segment).unwrap_or(u32::MAX).to_ne_bytes());
    bytes[48..52].copy_from_slice(&super::protocol::VERSION_WORD.to_ne_bytes());
    bytes[52..56].copy_from_slice(&flow_label.to_ne_bytes());
    bytes
}

/// Reads a message; `None` if it is none.
pub(super) fn parse(bytes: &[u8]) -> Option<(Kind, u8, Arrival<'_>)> {
    let (head, packets) = bytes.split_first_chunk::<HEAD>()?;
    let version = u32::from_ne_bytes(*head[48..].first_chunk()?);
    if head[..4] != MAGIC || version != super::protocol::VERSION_WORD || packets.is_empty() {
        return None;
    }
    let kind = match head[4] {
        1 => Kind::Packets,
        2 => Kind::Management,
        _ => return None,
    };
    let segment = u32::from_ne_bytes(*head[44..].first_chunk()?) as usize;
    let received = Received {
        len: packets.len(),
        segment: segment.clamp(1, packets.len()),
        source: (narrow(*head[8..].first_chunk()?), u16::from_ne_bytes([head[40], head[41]])),
        local: narrow(*head[24..].first_chunk()?),
        traffic_class: head[6],
        hop_limit: head[7],
        flow_label: u32::from_ne_bytes(*head[52..].first_chunk()?),
        stamp: 0,
    };
    let place = usize::from(u16::from_ne_bytes([head[42], head[43]]));
    Some((kind, head[5], Arrival { received, place, bytes: packets }))
}

fn wide(address: IpAddr) -> [u8; 16] {
    match address {
        IpAddr::V4(address) => address.to_ipv6_mapped().octets(),
        IpAddr::V6(address) => address.octets(),
    }
}

fn narrow(bytes: [u8; 16]) -> IpAddr {
    IpAddr::V6(Ipv6Addr::from(bytes)).to_canonical()
}

/// Whether a message was sent by this user.
pub(super) fn is_ours(message: &unix::Message, uid: u32) -> bool {
    message.sender.is_some_and(|sender| sender.uid == uid)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn arrival(bytes: &[u8]) -> Arrival<'_> {
        let received = Received {
            len: bytes.len(),
            segment: 3,
            source: ("127.0.0.3".parse().unwrap(), 50_000),
            local: "fd00::2".parse().unwrap(),
            traffic_class: 0x62,
            hop_limit: 9,
            flow_label: 0xa_bcde,
            stamp: 0,
        };
        Arrival { received, place: 5, bytes }
    }

    #[test]
    fn a_message_reads_as_it_was_written() {
        let packets = [1, 2, 3, 4, 5];
        for kind in [Kind::Packets, Kind::Management] {
            let mut message = head(kind, 17, &arrival(&packets)).to_vec();
            message.extend(packets);
            let (seen, slot, seen_arrival) = parse(&message).unwrap();
            assert_eq!((seen, slot, seen_arrival.place), (kind, 17, 5));
            assert_eq!(seen_arrival.received, arrival(&packets).received);
            assert_eq!(seen_arrival.bytes, packets);
            for len in 0..=HEAD {
                assert!(parse(&message[..len]).is_none());
            }
        }
    }

    #[test]
    fn any_bytes_are_read_without_harm() {
        let mut message = head(Kind::Packets, 1, &arrival(&[1])).to_vec();
        message.push(1);
        for at in 0..message.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut other = message.clone();
                other[at] = value;
                if let Some((_, _, arrival)) = parse(&other) {
                    assert!(arrival.received.segment >= 1);
                }
            }
        }
    }

    #[test]
    fn a_message_of_another_protocol_or_version_is_none() {
        let mut message = head(Kind::Packets, 1, &arrival(&[1])).to_vec();
        message.push(1);
        assert!(parse(&message).is_some());
        for at in [0, 3, 48, 51] {
            let mut other = message.clone();
            other[at] ^= 1;
            assert!(parse(&other).is_none(), "byte {at}");
        }
    }
}
