//! The UDP sockets on the port, as the kernel lists them: over netlink, which tells the interface that each is bound
//! to, or else from `/proc`, which does not.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, OwnedFd};

use ferroce_fabric::PORT;
use ferroce_sys::descriptor::owned;
use libc::c_int;

/// A socket on the port.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Suspect {
    pub(super) address: IpAddr,
    /// The number of the interface that it is bound to; `None` if that is not known, and 0 for none.
    pub(super) interface: Option<u32>,
    pub(super) uid: u32,
    pub(super) inode: u64,
}

/// All sockets on the port.
pub(super) fn on_port() -> Vec<Suspect> {
    over_netlink().unwrap_or_else(|_| from_proc())
}

/// Bytes of the header of a netlink message: length, type, flags, number, sender.
const HEAD: usize = 16;

/// Bytes of what names a socket: ports, addresses, interface, cookie.
const NAME: usize = 48;

/// Bytes of a request: family, protocol, what more is wanted, states, name.
const REQUEST: usize = HEAD + 8 + NAME;

/// Bytes of what is told about a socket: four, its name, and five numbers.
const TOLD: usize = 4 + NAME + 20;

const SOCK_DIAG_BY_FAMILY: u16 = 20;

fn over_netlink() -> io::Result<Vec<Suspect>> {
    let kind = libc::SOCK_RAW | libc::SOCK_CLOEXEC;
    // SAFETY: takes and gives plain numbers.
    let socket = owned(unsafe { libc::socket(libc::AF_NETLINK, kind, libc::NETLINK_SOCK_DIAG) })?;
    let mut all = Vec::new();
    for family in [libc::AF_INET, libc::AF_INET6] {
        ask(&socket, family)?;
        while hear(&socket, &mut all)? {}
    }
    Ok(all)
}

/// Asks for all UDP sockets of a family on the port.
fn ask(socket: &OwnedFd, family: c_int) -> io::Result<()> {
    let flags = u16::try_from(libc::NLM_F_REQUEST | libc::NLM_F_DUMP).unwrap_or(0);
    let mut request = [0; REQUEST];
    request[..4].copy_from_slice(&u32::try_from(REQUEST).unwrap_or(0).to_ne_bytes());
    request[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request[6..8].copy_from_slice(&flags.to_ne_bytes());
    request[HEAD] = u8::try_from(family).unwrap_or(0);
    request[HEAD + 1] = u8::try_from(libc::IPPROTO_UDP).unwrap_or(0);
    // All states.
    request[HEAD + 4..HEAD + 8].copy_from_slice(&u32::MAX.to_ne_bytes());
    request[HEAD + 8..HEAD + 10].copy_from_slice(&PORT.to_be_bytes());
    // SAFETY: the pointer is to that many bytes, which live during the call.
    let sent = unsafe { libc::send(socket.as_raw_fd(), request.as_ptr().cast(), REQUEST, 0) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Takes in one piece of the answer; whether more follow.
fn hear(socket: &OwnedFd, into: &mut Vec<Suspect>) -> io::Result<bool> {
    let mut bytes = vec![0; 1 << 16];
    // SAFETY: the pointer is to that many bytes, which are borrowed for longer than the call. The kernel answers
    // at once: it has nothing to wait for.
    let len = unsafe { libc::recv(socket.as_raw_fd(), bytes.as_mut_ptr().cast(), bytes.len(), 0) };
    let len = usize::try_from(len).map_err(|_| io::Error::last_os_error())?;
    read_answer(bytes.get(..len).unwrap_or_default(), into).ok_or_else(|| io::ErrorKind::InvalidData.into())
}

/// Reads messages; `None` if the kernel refused, else whether more follow.
fn read_answer(mut rest: &[u8], into: &mut Vec<Suspect>) -> Option<bool> {
    while let Some(head) = rest.first_chunk::<HEAD>() {
        let len = usize::try_from(u32::from_ne_bytes(*head.first_chunk()?)).ok()?;
        let message = rest.get(HEAD..len)?;
        match u16::from_ne_bytes([head[4], head[5]]) {
            SOCK_DIAG_BY_FAMILY => into.extend(told(message)),
            kind if c_int::from(kind) == libc::NLMSG_DONE => return Some(false),
            _ => return None,
        }
        rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
    }
    Some(true)
}

/// What one message tells of a socket.
fn told(message: &[u8]) -> Option<Suspect> {
    let message: &[u8; TOLD] = message.first_chunk()?;
    let word = |at: usize| message[at..].first_chunk().copied().map(u32::from_ne_bytes);
    if u16::from_be_bytes([message[4], message[5]]) != PORT {
        return None;
    }
    let address: [u8; 16] = *message[8..].first_chunk()?;
    let address = if c_int::from(message[0]) == libc::AF_INET {
        IpAddr::V4(Ipv4Addr::from(*address.first_chunk::<4>()?))
    } else {
        IpAddr::V6(Ipv6Addr::from(address)).to_canonical()
    };
    let numbers = 4 + NAME;
    Some(Suspect {
        address,
        interface: Some(word(40)?),
        uid: word(numbers + 12)?,
        inode: word(numbers + 16)?.into(),
    })
}

fn from_proc() -> Vec<Suspect> {
    let text = |path| std::fs::read_to_string(path).unwrap_or_default();
    let (v4, v6) = (text("/proc/net/udp"), text("/proc/net/udp6"));
    v4.lines().chain(v6.lines()).filter_map(parse).collect()
}

/// One line of `/proc/net/udp` or `/proc/net/udp6`, if it is of our port.
fn parse(line: &str) -> Option<Suspect> {
    let mut words = line.split_whitespace().skip(1);
    let (address, port) = words.next()?.split_once(':')?;
    if u16::from_str_radix(port, 16) != Ok(PORT) {
        return None;
    }
    let mut words = words.skip(5);
    let uid = words.next()?.parse().ok()?;
    let inode = words.nth(1)?.parse().ok()?;
    Some(Suspect { address: address_of(address)?, interface: None, uid, inode })
}

/// An address as the kernel prints it: words of the machine's order.
fn address_of(text: &str) -> Option<IpAddr> {
    let mut octets = [0; 16];
    if !text.is_ascii() || text.len() > 32 {
        return None;
    }
    for (word, to) in text.as_bytes().chunks(8).zip(octets.as_chunks_mut::<4>().0) {
        let word = std::str::from_utf8(word).ok()?;
        *to = u32::from_str_radix(word, 16).ok()?.to_ne_bytes();
    }
    match text.len() {
        8 => Some(Ipv4Addr::from(*octets.first_chunk::<4>()?).into()),
        32 => Some(IpAddr::V6(Ipv6Addr::from(octets)).to_canonical()),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use std::net::UdpSocket;

    use super::*;

    #[test]
    fn lines_of_the_kernel_are_read() {
        let v4 = " 16: 0200007F:12B7 00000000:0000 07 00000000:00000000 00:00000000 00000000  1000        0 12345 2 0 0";
        let address = "127.0.0.2".parse().unwrap();
        let suspect = Suspect { address, interface: None, uid: 1000, inode: 12345 };
        assert_eq!(parse(v4), Some(suspect));
        let v6 = " 16: 00000000000000000000000000000000:12B7 00000000000000000000000000000000:0000 07 \
                  00000000:00000000 00:00000000 00000000     0        0 777 2 0 0";
        assert_eq!(parse(v6).map(|found| (found.address.is_unspecified(), found.inode)), Some((true, 777)));
        assert_eq!(parse(&v4.replace("12B7", "12B8")), None);
        for len in 0..v4.len() {
            let _ = parse(&v4[..len]);
        }
    }
    #[test]
    fn both_lists_know_the_same_sockets() {
        let addresses = ["127.0.61.30", "127.0.61.31"];
        let sockets = addresses.map(|address| UdpSocket::bind((address, PORT)).unwrap());
        // SAFETY: the pointer is to the three bytes of a name, which live during the call.
        let bound = unsafe {
            let (name, fd) = (c"lo".as_ptr().cast(), sockets[1].as_raw_fd());
            libc::setsockopt(fd, libc::SOL_SOCKET, libc::SO_BINDTODEVICE, name, 3)
        };
        assert_eq!(bound, 0);
        let find = |all: Vec<Suspect>, address: &str| {
            let address: IpAddr = address.parse().unwrap();
            all.into_iter().find(|suspect| suspect.address == address)
        };
        for (address, interface) in addresses.into_iter().zip([0, 1]) {
            let by_proc = find(from_proc(), address).expect("it is listed");
            match over_netlink() {
                Ok(all) => {
                    let expected = Suspect { interface: Some(interface), ..by_proc };
                    assert_eq!(find(all, address), Some(expected), "lo has the number 1");
                }
                Err(error) => assert_eq!(find(on_port(), address), Some(by_proc), "{error}"),
            }
        }
    }

    #[test]
    fn any_answer_is_read_without_harm() {
        let mut message = vec![0; HEAD + TOLD];
        message[..4].copy_from_slice(&u32::try_from(HEAD + TOLD).unwrap().to_ne_bytes());
        message[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
        message[HEAD + 4..HEAD + 6].copy_from_slice(&PORT.to_be_bytes());
        let mut found = Vec::new();
        assert_eq!(read_answer(&message, &mut found), Some(true));
        assert_eq!(found.len(), 1);
        for at in 0..message.len() {
            for value in [0, 1, 0x7f, 0xff] {
                let mut other = message.clone();
                other[at] = value;
                let _ = read_answer(&other, &mut found);
                let _ = read_answer(&other[..at], &mut found);
            }
        }
    }
}
