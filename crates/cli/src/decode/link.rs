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

    /// The IP packet of a frame and its Ethernet header, or `None` if the frame carries
    /// something else, or another version of IP than it announces.
    pub(super) fn ip(self, mut frame: &[u8]) -> Option<(Option<Ethernet>, &[u8])> {
        let (ethernet, version, ip) = match self {
            Self::Ip => return Some((None, frame)),
            Self::Ethernet => {
                let (ethernet, ethertype) = Ethernet::parse(&mut frame).ok()?;
                (Some(ethernet), version_of_ethertype(ethertype)?, frame)
            }
            Self::Family => {
                let (family, ip) = frame.split_first_chunk()?;
                (None, version_of_family(*family)?, ip)
            }
            Self::LinuxCooked => {
                let (header, ip) = frame.split_first_chunk::<16>()?;
                (None, version_of_ethertype(u16::from_be_bytes([header[14], header[15]]))?, ip)
            }
            Self::LinuxCooked2 => {
                let (header, ip) = frame.split_first_chunk::<20>()?;
                (None, version_of_ethertype(u16::from_be_bytes([header[0], header[1]]))?, ip)
            }
        };
        (ip.first()? >> 4 == version).then_some((ethernet, ip))
    }
}

fn version_of_ethertype(ethertype: u16) -> Option<u8> {
    match ethertype {
        Ethernet::IPV4 => Some(4),
        Ethernet::IPV6 => Some(6),
        _ => None,
    }
}

/// The family is in the byte order of the machine that captured it, and IPv6 has another
/// number on every system: Linux 10, NetBSD and OpenBSD 24, FreeBSD 28, macOS 30.
fn version_of_family(family: [u8; 4]) -> Option<u8> {
    match family {
        [0, 0, 0, 2] | [2, 0, 0, 0] => Some(4),
        [0, 0, 0, 10 | 24 | 28 | 30] | [10 | 24 | 28 | 30, 0, 0, 0] => Some(6),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn headers_are_taken_off_and_what_is_not_ip_is_left() {
        let header = |len: usize, at: usize, bytes: &[u8], version: u8| {
            let mut frame = vec![0; len];
            frame[at..at + bytes.len()].copy_from_slice(bytes);
            frame.push(version << 4);
            frame
        };
        let stacked = vec![0x88, 0xa8, 0, 5, 0x81, 0, 0, 6, 0x08, 0x00];
        let too_deep = vec![0x81, 0, 0, 5, 0x81, 0, 0, 6, 0x81, 0];
        for (number, len, at, version, ip, other) in [
            (1, 14, 12, 4, vec![0x08, 0x00], vec![0x08, 0x06]),
            (1, 18, 12, 6, vec![0x81, 0, 0, 5, 0x86, 0xdd], vec![0x81, 0, 0, 5, 0x08, 0x06]),
            (1, 22, 12, 4, stacked, too_deep),
            (113, 16, 14, 6, vec![0x86, 0xdd], vec![0x00, 0x04]),
            (276, 20, 0, 4, vec![0x08, 0x00], vec![0x88, 0xcc]),
            (0, 4, 0, 4, vec![2, 0, 0, 0], vec![7, 0, 0, 0]),
            (108, 4, 0, 6, vec![0, 0, 0, 24], vec![2, 0, 0, 2]),
        ] {
            let link = Link::from_number(number).unwrap();
            let frame = header(len, at, &ip, version);
            assert_eq!(link.ip(&frame).unwrap().1, [version << 4], "{number}");
            assert_eq!(link.ip(&header(len, at, &other, version)), None, "{number}");
            // Neither 4 for 6 nor 6 for 4.
            assert_eq!(link.ip(&header(len, at, &ip, 10 - version)), None, "{number}");
            for short in 0..=len {
                let frame = &frame[..short];
                assert_eq!(link.ip(frame), None, "{number} {short}");
            }
        }
        for number in [12, 14, 101, 228, 229] {
            assert_eq!(Link::from_number(number).unwrap().ip(&[0x45]), Some((None, &[0x45][..])));
        }
    }
}
