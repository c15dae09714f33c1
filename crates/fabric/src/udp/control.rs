//! Control messages: what the kernel is told, and tells, about a datagram beside its bytes.
//!
//! They are written and read as bytes in the layout of the kernel: a length of the width of a
//! pointer, a level and a type, the value, padding up to the width of a pointer.

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};

use libc::c_int;

use super::super::Route;

/// Hops that a packet may take where nothing else was asked for; every socket is set to it.
pub(super) const DEFAULT_HOPS: u8 = 64;

/// The control messages of one datagram.
#[derive(Clone, Copy, Debug)]
#[repr(C, align(8))]
pub struct Control {
    bytes: [u8; Self::ROOM],
    used: usize,
}

/// What the kernel tells about a datagram that came.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Notes {
    /// The destination address in its IP header.
    pub local: Option<IpAddr>,
    /// Bytes of each packet but the last, if several were put together.
    pub segment: Option<usize>,
    /// IPv4 type of service or IPv6 traffic class.
    pub traffic_class: u8,
    /// Time to live or hop limit, 0 if unknown.
    pub hop_limit: u8,
    /// The flow label of IPv6, 0 if unknown.
    pub flow_label: u32,
    /// When it came, in nanoseconds since 1970, 0 if unknown.
    pub stamp: u64,
}

impl Control {
    /// Bytes: more than all the messages that our options bring about (200).
    pub const ROOM: usize = 224;

    /// No messages.
    pub const EMPTY: Self = Self { bytes: [0; Self::ROOM], used: 0 };

    /// Writes what the kernel must know of a run: its source address, its marks, and where to cut
    /// it apart if it is several packets.
    ///
    /// An IPv6 socket that sends to an IPv4 address takes the messages of IPv4: those of IPv6 for
    /// class and hops would be ignored without a word.
    ///
    /// A socket that is bound to an address, `bound`, sends from it without being told.
    pub fn describe(&mut self, route: &Route, segment: Option<u16>, bound: Option<IpAddr>) {
        self.used = 0;
        let is_usual = route.traffic_class == 0 && route.hop_limit == DEFAULT_HOPS && route.flow_label == 0;
        if !is_usual || bound != Some(route.local) {
            self.describe_route(route, bound);
        }
        if let Some(segment) = segment {
            self.push(libc::SOL_UDP, libc::UDP_SEGMENT, &segment.to_ne_bytes());
        }
    }

    /// Writes what the socket would not do by itself.
    fn describe_route(&mut self, route: &Route, bound: Option<IpAddr>) {
        let is_told = bound != Some(route.local);
        let class = c_int::from(route.traffic_class).to_ne_bytes();
        // A socket cannot send a packet that may take no hop at all.
        let hops = c_int::from(route.hop_limit.max(1)).to_ne_bytes();
        let (level, class_type, hops_type) = match route.local {
            IpAddr::V4(local) => {
                // struct in_pktinfo: interface (any), source address, unused.
                let mut info = [0; 12];
                info[4..8].copy_from_slice(&local.octets());
                if is_told {
                    self.push(libc::IPPROTO_IP, libc::IP_PKTINFO, &info);
                }
                (libc::IPPROTO_IP, libc::IP_TOS, libc::IP_TTL)
            }
            IpAddr::V6(local) => {
                // struct in6_pktinfo: source address, interface (any).
                let mut info = [0; 20];
                info[..16].copy_from_slice(&local.octets());
                if is_told {
                    self.push(libc::IPPROTO_IPV6, libc::IPV6_PKTINFO, &info);
                }
                (libc::IPPROTO_IPV6, libc::IPV6_TCLASS, libc::IPV6_HOPLIMIT)
            }
        };
        if route.traffic_class != 0 {
            self.push(level, class_type, &class);
        }
        if route.hop_limit != DEFAULT_HOPS {
            self.push(level, hops_type, &hops);
        }
        if route.flow_label != 0 && route.local.is_ipv6() {
            let label = (route.flow_label & FLOW_LABEL).to_be_bytes();
            self.push(libc::IPPROTO_IPV6, libc::IPV6_FLOWINFO, &label);
        }
    }

    /// Asks for the time at which the datagram leaves, beside what [`describe`](Self::describe) has written.
    pub(super) fn ask_for_stamp(&mut self) {
        self.push(libc::SOL_SOCKET, libc::SO_TIMESTAMPING, &libc::SOF_TIMESTAMPING_TX_SOFTWARE.to_ne_bytes());
    }

    /// What is in the first `used` bytes, as the kernel has written them.
    #[must_use]
    #[inline(always)]
    pub fn notes(&self, used: usize) -> Notes {
        // Most datagrams come with none, or with how they were put together and nothing else.
        if used == 0 {
            return Notes::default();
        }
        if used == ALONE.next_multiple_of(WORD)
            && let Some(size) = self.size_alone()
        {
            return Notes { segment: Some(size), ..Notes::default() };
        }
        Self::notes_of(&self.bytes[..used.min(Self::ROOM)])
    }

    /// How the datagram was put together, if the first message says so.
    #[inline(always)]
    fn size_alone(&self) -> Option<usize> {
        let (head, value) = self.bytes[..ALONE].split_first_chunk::<HEADER>()?;
        let size = value.first_chunk().filter(|_| *head == SIZE_ALONE)?;
        usize::try_from(c_int::from_ne_bytes(*size)).ok()
    }

    fn notes_of(mut rest: &[u8]) -> Notes {
        let mut notes = Notes::default();
        while let Some((level, kind, value, after)) = split(rest) {
            match (level, kind) {
                (libc::IPPROTO_IP, libc::IP_PKTINFO) => {
                    let address = value.get(8..).and_then(|value| value.first_chunk::<4>());
                    notes.local = address.map(|octets| Ipv4Addr::from(*octets).into());
                }
                (libc::IPPROTO_IPV6, libc::IPV6_PKTINFO) => {
                    let address = value.first_chunk::<16>();
                    notes.local = address.map(|octets| IpAddr::V6(Ipv6Addr::from(*octets)).to_canonical());
                }
                (libc::IPPROTO_IP, libc::IP_TOS) | (libc::IPPROTO_IPV6, libc::IPV6_TCLASS) => {
                    notes.traffic_class = small(value);
                }
                (libc::IPPROTO_IP, libc::IP_TTL) | (libc::IPPROTO_IPV6, libc::IPV6_HOPLIMIT) => {
                    notes.hop_limit = small(value);
                }
                (libc::IPPROTO_IPV6, libc::IPV6_FLOWINFO) => {
                    // The class stands in it too, and comes in a message of its own.
                    let label = value.first_chunk().map(|bytes| u32::from_be_bytes(*bytes) & FLOW_LABEL);
                    notes.flow_label = label.unwrap_or(0);
                }
                (libc::SOL_SOCKET, libc::SO_TIMESTAMPNS) => notes.stamp = nanoseconds(value).unwrap_or(0),
                (libc::SOL_UDP, libc::UDP_GRO) => {
                    let size = value.first_chunk().map(|bytes| c_int::from_ne_bytes(*bytes));
                    notes.segment = size.and_then(|size| usize::try_from(size).ok());
                }
                _ => {}
            }
            rest = after;
        }
        notes
    }

    /// Where the bytes are.
    pub const fn as_mut_ptr(&mut self) -> *mut u8 {
        self.bytes.as_mut_ptr()
    }

    /// How many bytes were written.
    #[must_use]
    pub const fn used(&self) -> usize {
        self.used
    }

    fn push(&mut self, level: c_int, kind: c_int, value: &[u8]) {
        let len = HEADER + value.len();
        let end = self.used + len.next_multiple_of(WORD);
        let bytes = &mut self.bytes[self.used..end];
        bytes[..WORD].copy_from_slice(&len.to_ne_bytes());
        bytes[WORD..WORD + 4].copy_from_slice(&level.to_ne_bytes());
        bytes[WORD + 4..HEADER].copy_from_slice(&kind.to_ne_bytes());
        bytes[HEADER..len].copy_from_slice(value);
        self.used = end;
    }
}

/// The bits of a flow label.
const FLOW_LABEL: u32 = 0xf_ffff;

/// The width of a pointer: lengths have it, and messages begin at its multiples.
const WORD: usize = size_of::<usize>();

/// Bytes before the value.
const HEADER: usize = WORD + 8;

/// Bytes of a message whose value is a number of C.
const ALONE: usize = HEADER + size_of::<c_int>();

/// What comes before the value of a message that says how a datagram was put together.
const SIZE_ALONE: [u8; HEADER] = {
    let mut head = [0; HEADER];
    let (len, rest) = head.split_at_mut(WORD);
    let (level, kind) = rest.split_at_mut(4);
    len.copy_from_slice(&ALONE.to_ne_bytes());
    level.copy_from_slice(&libc::SOL_UDP.to_ne_bytes());
    kind.copy_from_slice(&libc::UDP_GRO.to_ne_bytes());
    head
};

/// A `struct timespec` as nanoseconds; `None` for none, which is all zeros, and for times before 1970.
pub(super) fn nanoseconds(value: &[u8]) -> Option<u64> {
    let number = |at: usize| Some(i64::from_ne_bytes(*value.get(at..)?.first_chunk()?));
    let (seconds, rest) = (u64::try_from(number(0)?).ok()?, u64::try_from(number(8)?).ok()?);
    let at = seconds.checked_mul(1_000_000_000)?.checked_add(rest)?;
    (at > 0).then_some(at)
}

/// The first message (level, type, value) and what follows it.
pub(super) fn split(bytes: &[u8]) -> Option<(c_int, c_int, &[u8], &[u8])> {
    let len = usize::from_ne_bytes(*bytes.first_chunk()?);
    let level = c_int::from_ne_bytes(*bytes.get(WORD..)?.first_chunk()?);
    let kind = c_int::from_ne_bytes(*bytes.get(WORD + 4..)?.first_chunk()?);
    let value = bytes.get(HEADER..len)?;
    let after = bytes.get(len.next_multiple_of(WORD)..).unwrap_or_default();
    Some((level, kind, value, after))
}

/// A number below 256 that comes as one byte or as an `int`; 0 if it is neither.
fn small(value: &[u8]) -> u8 {
    match value.first_chunk() {
        Some(bytes) => u8::try_from(c_int::from_ne_bytes(*bytes)).unwrap_or(0),
        None => value.first().copied().unwrap_or(0),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn route(local: &str, remote: &str) -> Route {
        let (local, remote) = (local.parse().unwrap(), remote.parse().unwrap());
        Route { local, remote, source_port: 0, traffic_class: 0x62, hop_limit: 7, flow_label: 0xfe_dcba }
    }

    #[test]
    fn what_is_sent_is_what_a_receiver_would_read() {
        let mut control = Control::EMPTY;
        control.describe(&route("fd00::2", "fd00::3"), None, None);
        let notes = control.notes(control.used());
        let local = Some("fd00::2".parse().unwrap());
        let (traffic_class, hop_limit, flow_label) = (0x62, 7, 0xe_dcba);
        assert_eq!(notes, Notes { local, segment: None, traffic_class, hop_limit, flow_label, stamp: 0 });
        control.describe(&route("127.0.0.2", "127.0.0.3"), Some(100), None);
        let notes = control.notes(control.used());
        assert_eq!((notes.traffic_class, notes.hop_limit, notes.flow_label), (0x62, 7, 0));
    }

    #[test]
    fn the_usual_marks_cost_no_message() {
        let mut control = Control::EMPTY;
        let usual = Route { traffic_class: 0, hop_limit: DEFAULT_HOPS, flow_label: 0, ..route("::1", "::1") };
        control.describe(&usual, None, None);
        assert_eq!(control.used(), (HEADER + 20).next_multiple_of(WORD));
        control.describe(&usual, None, Some(usual.local));
        assert_eq!(control.used(), 0, "a bound socket knows its address");
    }

    #[test]
    fn the_size_of_packets_that_came_together_is_the_same_alone_and_among_others() {
        for size in [1, 96, 4112, i32::MAX, -1, 0] {
            let mut alone = Control::EMPTY;
            alone.push(libc::SOL_UDP, libc::UDP_GRO, &c_int::to_ne_bytes(size));
            let mut among = alone;
            among.push(libc::IPPROTO_IP, libc::IP_TTL, &c_int::to_ne_bytes(7));
            let (alone, among) = (alone.notes(alone.used()), among.notes(among.used()));
            assert_eq!(alone, Notes { hop_limit: 0, ..among });
            assert_eq!(alone.segment, usize::try_from(size).ok(), "{size}");
        }
        let mut other = Control::EMPTY;
        other.push(libc::IPPROTO_IP, libc::IP_TTL, &c_int::to_ne_bytes(9));
        assert_eq!(other.notes(other.used()), Notes { hop_limit: 9, ..Notes::default() });
    }

    #[test]
    fn damaged_messages_end_the_list_quietly() {
        let mut control = Control::EMPTY;
        control.describe(&route("::1", "::1"), Some(9), None);
        for at in 0..control.used() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut damaged = control;
                damaged.bytes[at] = value;
                for used in [0, 1, at, Control::ROOM, usize::MAX] {
                    let _ = damaged.notes(used);
                }
            }
        }
    }
}
