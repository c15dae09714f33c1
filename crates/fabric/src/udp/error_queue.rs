//! The error queue of a socket: when packets left, and which were sent back.
//!
//! The kernel puts both into one queue: stamps of packets for which one was asked, and ICMP messages about packets of
//! this socket. They are read as bytes in the layout of the kernel, like other control messages.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::RawFd;

use libc::{c_int, c_long, c_void};

use super::super::PathErrorKind;
use super::control::{nanoseconds, split};
use super::name::Name;

/// Room for one message of an error queue.
pub(super) struct ErrorQueue {
    control: Box<ControlBytes>,
    /// The beginning of the packet that was sent back.
    quoted: Box<[u8; QUOTED]>,
    name: Name,
}

/// Control messages begin at multiples of the width of a pointer.
#[repr(C, align(8))]
struct ControlBytes([u8; CONTROL]);

/// More than all the messages that our options bring about.
const CONTROL: usize = 512;

/// Bytes that are kept of a packet that was sent back: all headers of a datagram and a probe behind them.
const QUOTED: usize = 128;

/// `struct sock_extended_err`: number, origin, type, code, pad, info, data.
const EXTENDED: usize = 16;

/// What an error queue had to tell.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// The stamped packet of this number left at this time.
    Left { number: u32, at: u64 },
    /// A packet to this address was sent back; so many of its bytes were kept.
    SentBack { offender: IpAddr, remote: IpAddr, kind: PathErrorKind, len: usize },
    /// Something that is not for us.
    Other,
}

impl ErrorQueue {
    pub(super) fn new() -> Self {
        Self {
            control: Box::new(ControlBytes([0; CONTROL])),
            quoted: Box::new([0; QUOTED]),
            name: Name::EMPTY,
        }
    }

    /// The next message of this socket's queue, if there is one.
    pub(super) fn next(&mut self, socket: RawFd) -> io::Result<Option<Told>> {
        let Some((len, used)) = self.receive(socket)? else { return Ok(None) };
        let remote = self.name.parse().map(|(address, _)| address);
        Ok(Some(read(&self.control.0[..used.min(CONTROL)], remote, len.min(QUOTED))))
    }

    /// The beginning of the packet that was told of last.
    pub(super) fn quoted(&self, len: usize) -> &[u8] {
        &self.quoted[..len.min(QUOTED)]
    }

    /// Bytes of the packet and of the control messages.
    fn receive(&mut self, socket: RawFd) -> io::Result<Option<(usize, usize)>> {
        self.name = Name::EMPTY;
        let mut piece =
            libc::iovec { iov_base: self.quoted.as_mut_ptr().cast::<c_void>(), iov_len: self.quoted.len() };
        // SAFETY: a header of C is numbers and pointers, for which zero is a value.
        let mut header = unsafe { std::mem::zeroed::<libc::msghdr>() };
        header.msg_name = self.name.as_mut_ptr().cast::<c_void>();
        header.msg_namelen = Name::ROOM;
        header.msg_iov = &raw mut piece;
        header.msg_iovlen = 1;
        header.msg_control = self.control.0.as_mut_ptr().cast::<c_void>();
        header.msg_controllen = CONTROL;
        let flags = c_long::from(libc::MSG_ERRQUEUE | libc::MSG_DONTWAIT);
        loop {
            // SAFETY: the header points to a name, a piece and room for control messages that this struct or this
            // stack owns, with their true sizes; none of them moves during the call.
            let result =
                unsafe { libc::syscall(libc::SYS_recvmsg, c_long::from(socket), &raw mut header, flags) };
            if let Ok(len) = usize::try_from(result) {
                return Ok(Some((len, header.msg_controllen)));
            }
            let error = io::Error::last_os_error();
            match error.raw_os_error() {
                Some(libc::EAGAIN) => return Ok(None),
                Some(libc::EINTR) => {}
                _ => return Err(error),
            }
        }
    }
}

/// What these control messages say of a packet to `remote`, of which `len` bytes are quoted.
fn read(control: &[u8], remote: Option<IpAddr>, len: usize) -> Told {
    let (mut stamp, mut number, mut sent_back) = (None, None, None);
    let mut rest = control;
    while let Some((level, kind, value, after)) = split(rest) {
        match (level, kind) {
            // struct scm_timestamping: three times, the first is the kernel's own.
            (libc::SOL_SOCKET, libc::SO_TIMESTAMPING) => stamp = nanoseconds(value),
            (libc::SOL_IP, libc::IP_RECVERR) | (libc::SOL_IPV6, libc::IPV6_RECVERR) => {
                match value.first_chunk::<EXTENDED>().map(|extended| (extended[4], extended)) {
                    Some((libc::SO_EE_ORIGIN_TIMESTAMPING, extended)) => number = Some(word(extended, 12)),
                    Some((origin @ (libc::SO_EE_ORIGIN_ICMP | libc::SO_EE_ORIGIN_ICMP6), extended)) => {
                        let (kind, code, mtu) = (extended[5], extended[6], word(extended, 8));
                        let kind = match origin {
                            libc::SO_EE_ORIGIN_ICMP => PathErrorKind::of_v4(kind, code, mtu),
                            _ => PathErrorKind::of_v6(kind, code, mtu),
                        };
                        sent_back = address(&value[EXTENDED..]).map(|offender| (offender, kind));
                    }
                    _ => {}
                }
            }
            _ => {}
        }
        rest = after;
    }
    match (stamp, number, sent_back, remote) {
        (Some(at), Some(number), ..) => Told::Left { number, at },
        (_, _, Some((offender, kind)), Some(remote)) => Told::SentBack { offender, remote, kind, len },
        _ => Told::Other,
    }
}

fn word(extended: &[u8; EXTENDED], at: usize) -> u32 {
    extended.get(at..).and_then(|bytes| bytes.first_chunk()).map_or(0, |bytes| u32::from_ne_bytes(*bytes))
}

/// The address in a `struct sockaddr_in` or `sockaddr_in6`.
fn address(name: &[u8]) -> Option<IpAddr> {
    match c_int::from(u16::from_ne_bytes(*name.first_chunk()?)) {
        libc::AF_INET => Some(Ipv4Addr::from(*name.get(4..)?.first_chunk::<4>()?).into()),
        libc::AF_INET6 => {
            Some(IpAddr::V6(Ipv6Addr::from(*name.get(8..)?.first_chunk::<16>()?)).to_canonical())
        }
        _ => None,
    }
}
