//! What stands in front of the IP header, by the link types of captures.

use ferroce_wire::net::Ethernet;

/// The link layer of a frame.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Link {
    /// An Ethernet header.
    Ethernet,
    /// Nothing: the frame begins with its IP header.
    Ip,
    /// The header of Linux's "any" device, 16 bytes.
    LinuxCooked,
    /// Its second version, 20 bytes.
    LinuxCooked2,
    /// The address family in 4 bytes, as BSD's loopback has it.
    Family,
}

impl Link {
    /// The link layer of a number in a capture.
    pub(super) fn from_number(number: u32) -> Option<Self> {
        match number {
            0 | 108 => Some(Self::Family),
            1 => Some(Self::Ethernet),
            12 | 14 | 101 | 228 | 229 => Some(Self::Ip),
            113 => Some(Self::LinuxCooked),
            276 => Some(Self::LinuxCooked2),
            _ => None,
        }
    }

    /// The IP packet of a frame and its Ethernet header, or `None` if the frame carries something else.
    pub(super) fn ip(self, mut frame: &[u8]) -> Option<(Option<Ethernet>, &[u8])> {
        let (ethertype, ip) = match self {
            Self::Ip => return Some((None, frame)),
            Self::Ethernet => {
                let (ethernet, ethertype) = Ethernet::parse(&mut frame).ok()?;
                return is_ip(ethertype).then_some((Some(ethernet), frame));
            }
            Self::Family => {
                let (family, ip) = frame.split_first_chunk()?;
                return is_ip_family(*family).then_some((None, ip));
            }
            Self::LinuxCooked => {
                let (header, ip) = frame.split_first_chunk::<16>()?;
                ([header[14], header[15]], ip)
            }
            Self::LinuxCooked2 => {
                let (header, ip) = frame.split_first_chunk::<20>()?;
                ([header[0], header[1]], ip)
            }
        };
        is_ip(u16::from_be_bytes(ethertype)).then_some((None, ip))
    }
}

fn is_ip(ethertype: u16) -> bool {
    matches!(ethertype, Ethernet::IPV4 | Ethernet::IPV6)
}

/// The family is in the byte order of whoever captured it, and IPv6 has another
/// number on every system: Linux 10, NetBSD and OpenBSD 24, FreeBSD 28, macOS 30.
fn is_ip_family(family: [u8; 4]) -> bool {
    matches!(family, [0, 0, 0, 2 | 10 | 24 | 28 | 30] | [2 | 10 | 24 | 28 | 30, 0, 0, 0])
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_taken_off_and_what_is_not_ip_is_left() {
        let header = |len: usize, at: usize, bytes: &[u8]| {
            let mut frame = vec![0; len];
            frame[at..at + bytes.len()].copy_from_slice(bytes);
            frame.push(0x45);
            frame
        };
        for (number, len, at, ip, other) in [
            (1, 14, 12, vec![0x08, 0x00], vec![0x08, 0x06]),
            (1, 18, 12, vec![0x81, 0, 0, 5, 0x86, 0xdd], vec![0x81, 0, 0, 5, 0x08, 0x06]),
            (113, 16, 14, vec![0x86, 0xdd], vec![0x00, 0x04]),
            (276, 20, 0, vec![0x08, 0x00], vec![0x88, 0xcc]),
            (0, 4, 0, vec![2, 0, 0, 0], vec![7, 0, 0, 0]),
            (108, 4, 0, vec![0, 0, 0, 24], vec![2, 0, 0, 2]),
        ] {
            let link = Link::from_number(number).unwrap();
            let frame = header(len, at, &ip);
            assert_eq!(link.ip(&frame).unwrap().1, [0x45], "{number}");
            assert_eq!(link.ip(&header(len, at, &other)), None, "{number}");
            for short in 0..len {
                assert_eq!(link.ip(&frame[..short]), None, "{number} {short}");
            }
        }
        for number in [12, 14, 101, 228, 229] {
            assert_eq!(Link::from_number(number).unwrap().ip(&[0x45]), Some((None, &[0x45][..])));
        }
    }
}
