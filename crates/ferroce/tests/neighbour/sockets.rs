//! What the system shows of the port's sockets to all of its users: `/proc/net/udp`, and netlink with the
//! sizes of buffers.

use std::fs;
use std::io;
use std::net::{IpAddr, Ipv4Addr};

use ferroce_device::fabric::PORT;
use rustix::net::netlink;
use rustix::net::{AddressFamily, RecvFlags, SendFlags, SocketType, recv, send, socket};

/// Bytes of the header of a netlink message: length, type, flags, number, sender.
const HEAD: usize = 16;

/// Bytes of what names a socket: ports, addresses, interface, cookie.
const NAME: usize = 48;

/// Bytes of what is told about a socket before its attributes: four, its name, and five numbers.
const TOLD: usize = 4 + NAME + 20;

const SOCK_DIAG_BY_FAMILY: u16 = 20;
const DONE: u16 = 3;
const REQUEST_DUMP: u16 = 0x301;
/// The attribute with the sizes of buffers.
const MEMORY: u16 = 7;

/// Every socket of the port at this address, a word each: what is the same for two sockets unless the
/// system tells them apart. What waits in them and what was dropped shows traffic, and is left out.
pub(crate) fn shown(address: IpAddr) -> io::Result<String> {
    let IpAddr::V4(address) = address else { return Ok(String::new()) };
    let mut all = over_netlink(address)?;
    all.extend(from_proc(address));
    Ok(all.join(" "))
}

fn over_netlink(address: Ipv4Addr) -> io::Result<Vec<String>> {
    let socket = socket(AddressFamily::NETLINK, SocketType::RAW, Some(netlink::SOCK_DIAG))?;
    let mut request = [0; HEAD + 8 + NAME];
    let len = u32::try_from(request.len()).unwrap_or(0);
    request[..4].copy_from_slice(&len.to_ne_bytes());
    request[4..6].copy_from_slice(&SOCK_DIAG_BY_FAMILY.to_ne_bytes());
    request[6..8].copy_from_slice(&REQUEST_DUMP.to_ne_bytes());
    // IPv4, UDP, the sizes of buffers, all states, the port.
    request[HEAD] = 2;
    request[HEAD + 1] = 17;
    request[HEAD + 2] = 1 << (MEMORY - 1);
    request[HEAD + 4..HEAD + 8].copy_from_slice(&u32::MAX.to_ne_bytes());
    request[HEAD + 8..HEAD + 10].copy_from_slice(&PORT.to_be_bytes());
    send(&socket, &request, SendFlags::empty())?;
    let mut all = Vec::new();
    loop {
        let mut bytes = vec![0; 1 << 16];
        let (len, _) = recv(&socket, &mut bytes[..], RecvFlags::empty())?;
        let mut rest = &bytes[..len];
        while let Some(head) = rest.first_chunk::<HEAD>() {
            let len = u32::from_ne_bytes([head[0], head[1], head[2], head[3]]) as usize;
            match u16::from_ne_bytes([head[4], head[5]]) {
                SOCK_DIAG_BY_FAMILY => all.extend(told(&rest[HEAD..len], address)),
                DONE => return Ok(all),
                kind => return Err(io::Error::other(format!("netlink says {kind}"))),
            }
            rest = rest.get(len.next_multiple_of(4)..).unwrap_or_default();
        }
    }
}

/// What one message tells of a socket at the address.
fn told(message: &[u8], address: Ipv4Addr) -> Option<String> {
    let port = u16::from_be_bytes([message[4], message[5]]);
    if port != PORT || message[8..12] != address.octets() {
        return None;
    }
    let word = |bytes: &[u8], at: usize| bytes.get(at..)?.first_chunk().copied().map(u32::from_ne_bytes);
    let (interface, user) = (word(message, 40)?, word(message, 4 + NAME + 12)?);
    let mut rest = message.get(TOLD..)?;
    while let Some(&[a, b, c, d]) = rest.first_chunk() {
        let (len, kind) = (usize::from(u16::from_ne_bytes([a, b])), u16::from_ne_bytes([c, d]));
        if kind == MEMORY {
            let memory = rest.get(4..len)?;
            // Waiting, room, sending, room, reserved, queued, options, backlog, dropped.
            let (receive, send, options) = (word(memory, 4)?, word(memory, 12)?, word(memory, 24)?);
            return Some(format!(
                "netlink:interface={interface},user={user},receive={receive},send={send},options={options}"
            ));
        }
        rest = rest.get(len.next_multiple_of(4).max(4)..).unwrap_or_default();
    }
    None
}

/// State, user, references and timers of the sockets in the list that all users can read.
fn from_proc(address: Ipv4Addr) -> Vec<String> {
    let list = fs::read_to_string("/proc/net/udp").unwrap_or_default();
    let place = format!("{:08X}:{PORT:04X}", u32::from_ne_bytes(address.octets()));
    let row = |line: &str| {
        let words: Vec<_> = line.split_whitespace().collect();
        let (own, other) = (words.get(1)?, words.get(2)?);
        let (state, timer, user, references) = (words.get(3)?, words.get(5)?, words.get(7)?, words.get(10)?);
        (*own == place).then(|| {
            format!("proc:other={other},state={state},timer={timer},user={user},references={references}")
        })
    };
    list.lines().filter_map(row).collect()
}
