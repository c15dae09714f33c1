//! The socket of the kernel that first datagrams go over, and that has the port.

use std::ffi::c_int;
use std::io;
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use libc::{AF_INET, IPPROTO_IP, IPPROTO_IPV6, SOL_SOCKET, iovec, msghdr, socklen_t};

use super::headers::key;
use crate::cm::address::written;
use crate::refusal::{Answer, Refused, last_errno};

/// A socket of the kernel that never waits, for one family of addresses.
pub(super) struct Udp {
    socket: UdpSocket,
    pub(super) is_v4: bool,
    /// What it was bound to; the port is never 0.
    pub(super) bound: Option<SocketAddr>,
}

impl Udp {
    pub(super) fn new(domain: c_int) -> Answer<Self> {
        let kind = libc::SOCK_DGRAM | libc::SOCK_NONBLOCK | libc::SOCK_CLOEXEC;
        // SAFETY: a system call without pointers.
        let fd = unsafe { libc::socket(domain, kind, 0) };
        if fd < 0 {
            return Err(last_errno("no socket of the kernel"));
        }
        // SAFETY: it was made just now, and nothing else has it.
        let socket = UdpSocket::from(unsafe { OwnedFd::from_raw_fd(fd) });
        let made = Self { socket, is_v4: domain == AF_INET, bound: None };
        if !made.is_v4 {
            // Peers of IPv4 are for sockets of IPv4.
            made.set(IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
        }
        Ok(made)
    }

    pub(super) fn descriptor(&self) -> RawFd {
        self.socket.as_raw_fd()
    }

    fn set(&self, level: c_int, name: c_int, value: c_int) -> Answer<()> {
        let len = socklen_t::try_from(size_of::<c_int>()).unwrap_or(0);
        // SAFETY: the value lives during the call, and is so long.
        let done =
            unsafe { libc::setsockopt(self.descriptor(), level, name, (&raw const value).cast(), len) };
        if done == 0 { Ok(()) } else { Err(last_errno("an option of the kernel's socket")) }
    }

    pub(super) fn bind(&mut self, address: SocketAddr, reuse: bool) -> Answer<()> {
        if reuse {
            self.set(SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
        }
        let (storage, len) = written(address);
        // SAFETY: the storage lives during the call, and is at least so long.
        let done = unsafe {
            libc::bind(self.descriptor(), (&raw const storage).cast(), socklen_t::try_from(len).unwrap_or(0))
        };
        if done != 0 {
            return Err(last_errno(format_args!("{address} cannot be had")));
        }
        let bound = self.socket.local_addr();
        self.bound = Some(bound.map_err(|error| Refused::new(libc::EINVAL, error))?);
        Ok(())
    }

    /// Sends from this address. What finds no room is lost, as datagrams may be.
    pub(super) fn send(&self, from: IpAddr, to: SocketAddr, pieces: [&[u8]; 2]) -> Answer<()> {
        let (mut storage, len) = written(to);
        let mut parts =
            pieces.map(|piece| iovec { iov_base: piece.as_ptr().cast_mut().cast(), iov_len: piece.len() });
        let mut control = Control([0; 64]);
        // SAFETY: a structure of numbers and pointers, all of which may be zero.
        let mut message: msghdr = unsafe { std::mem::zeroed() };
        message.msg_name = (&raw mut storage).cast();
        message.msg_namelen = socklen_t::try_from(len).unwrap_or(0);
        message.msg_iov = parts.as_mut_ptr();
        message.msg_iovlen = parts.len();
        message.msg_control = (&raw mut control).cast();
        message.msg_controllen = size_of::<Control>();
        match from {
            IpAddr::V4(v4) => {
                let from = libc::in_addr { s_addr: v4.to_bits().to_be() };
                let info = libc::in_pktinfo {
                    ipi_ifindex: 0,
                    ipi_spec_dst: from,
                    ipi_addr: libc::in_addr { s_addr: 0 },
                };
                write_control(&mut message, (IPPROTO_IP, libc::IP_PKTINFO), info);
            }
            IpAddr::V6(v6) => {
                let ipi6_addr = libc::in6_addr { s6_addr: v6.octets() };
                let info = libc::in6_pktinfo { ipi6_addr, ipi6_ifindex: 0 };
                write_control(&mut message, (IPPROTO_IPV6, libc::IPV6_PKTINFO), info);
            }
        }
        // SAFETY: all that the message points to lives during the call, and is only read.
        let sent = unsafe { libc::sendmsg(self.descriptor(), &raw const message, libc::MSG_NOSIGNAL) };
        let error = io::Error::last_os_error();
        if sent >= 0 || matches!(error.raw_os_error(), Some(libc::EAGAIN | libc::ENOBUFS | libc::EINTR)) {
            return Ok(());
        }
        let code = error.raw_os_error().unwrap_or(libc::EIO);
        Err(Refused::new(code, format_args!("to {to} from {from}: {error}")))
    }

    /// The next datagram, and where it came from.
    pub(super) fn receive(&self, into: &mut [u8]) -> Option<(usize, SocketAddr)> {
        // An error tells of a datagram of ours that was lost.
        for _ in 0..16 {
            match self.socket.recv_from(into) {
                Ok((len, from)) => return Some((len, key(from))),
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return None,
                Err(_) => {}
            }
        }
        None
    }
}

/// Room for one control message, aligned as they are.
#[repr(C, align(8))]
struct Control([u8; 64]);

/// Makes this the only control message.
fn write_control<T>(message: &mut msghdr, (level, kind): (c_int, c_int), value: T) {
    let len = u32::try_from(size_of::<T>()).unwrap_or(0);
    // SAFETY: arithmetic with a small number.
    let whole = unsafe { libc::CMSG_SPACE(len) } as usize;
    // SAFETY: as above.
    let used = unsafe { libc::CMSG_LEN(len) } as usize;
    assert!(whole <= message.msg_controllen, "{whole} bytes of control messages");
    message.msg_controllen = whole;
    // SAFETY: there is room for one, as was just seen.
    let header = unsafe { libc::CMSG_FIRSTHDR(message) };
    // SAFETY: it is the beginning of the room, which is aligned for it.
    unsafe {
        header.write(libc::cmsghdr { cmsg_len: used, cmsg_level: level, cmsg_type: kind });
    }
    // SAFETY: the header is a whole one.
    let data = unsafe { libc::CMSG_DATA(header) };
    // SAFETY: there is room for the value behind the header.
    unsafe { data.cast::<T>().write_unaligned(value) };
}
