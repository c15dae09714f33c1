//! One UDP socket: how it is opened, bound and set.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, FromRawFd, OwnedFd, RawFd};

use libc::{c_int, c_void, socklen_t};

use super::control::DEFAULT_HOPS;
use super::error::OpenError;
use super::name::Name;

/// The family of a socket. One of IPv6 speaks IPv4 too, unless it is bound to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Family {
    /// Only IPv4.
    V4,
    /// IPv6, and IPv4 in mapped addresses.
    V6,
}

/// Where a socket is bound to, but for the port.
#[derive(Clone, Debug)]
pub(super) struct Binding {
    /// The interface.
    pub(super) interface: String,
    /// One address instead of all.
    pub(super) address: Option<IpAddr>,
    /// Bytes of send buffer to ask for.
    pub(super) send_buffer: usize,
}

/// An unconnected UDP socket that never fragments.
///
/// It may only stay unconnected: a connected socket counts the IPv4 identification up from a random
/// number, which the ICRC covers and a socket does not tell, and takes the packets of its peer
/// away from other sockets on the port.
#[derive(Debug)]
pub(super) struct Socket {
    descriptor: OwnedFd,
    family: Family,
}

impl Socket {
    /// Opens a socket and binds it; port 0 lets the system choose.
    pub(super) fn open(binding: &Binding, port: u16) -> Result<Self, OpenError> {
        Self::open_beside(binding, port, false)
    }

    /// Opens several on one port. Packets for slot `first + i` go to socket `i`, the rest to the first.
    pub(super) fn open_group(
        binding: &Binding,
        port: u16,
        first: u8,
        count: usize,
    ) -> Result<Vec<Self>, OpenError> {
        let refused = |step, error| refusal(binding, port, step, error);
        // The first is bound alone, so that it is refused if another program has the port, and only then
        // lets others in. Their order is the order of binding.
        let mut sockets = vec![Self::open(binding, port)?];
        if count > 1 {
            let share = sockets[0].set(libc::SOL_SOCKET, libc::SO_REUSEPORT, 1);
            share.map_err(|error| refused("share the port between engines", error))?;
            for _ in 1..count {
                sockets.push(Self::open_beside(binding, port, true)?);
            }
            let steered = sockets[0].steer(first, count);
            steered.map_err(|error| refused("steer packets to engines", error))?;
        }
        Ok(sockets)
    }

    fn open_beside(binding: &Binding, port: u16, others: bool) -> Result<Self, OpenError> {
        let refused = |step, error| refusal(binding, port, step, error);
        let socket = Self::new(binding.address).map_err(|error| refused("open a UDP socket", error))?;
        socket.bind_to_device(&binding.interface).map_err(|error| refused("bind to the interface", error))?;
        socket.set_paths(binding.address.is_some()).map_err(|error| refused("set path options", error))?;
        // A refusal leaves the system's usual size, which works.
        let _ = socket.set_buffer(libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, binding.send_buffer);
        if others {
            let share = socket.set(libc::SOL_SOCKET, libc::SO_REUSEPORT, 1);
            share.map_err(|error| refused("share the port between engines", error))?;
        }
        socket.bind(binding.address, port).map_err(|error| refused("bind to the port", error))?;
        Ok(socket)
    }

    /// Asks for what must be known about each datagram that comes, and for room to keep them. Its
    /// destination is known without asking where the socket has one address.
    pub(super) fn prepare_to_receive(&self, buffer: usize, any_address: bool) -> io::Result<()> {
        match self.family {
            _ if !any_address => {}
            Family::V4 => self.set(libc::IPPROTO_IP, libc::IP_PKTINFO, 1)?,
            // It tells mapped addresses for IPv4 too: IP_PKTINFO would tell them twice.
            Family::V6 => self.set(libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, 1)?,
        }
        // Nice to have: without these, groups that other programs have joined are seen, and a datagram over
        // IPv6 without a checksum is not (the ICRC guards it).
        let _ = self.set(libc::IPPROTO_IP, libc::IP_MULTICAST_ALL, 0);
        if self.family == Family::V6 {
            let _ = self.set(libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_ALL, 0);
            let _ = self.set(libc::SOL_UDP, libc::UDP_NO_CHECK6_RX, 1);
        }
        self.set_buffer(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, buffer)
    }

    /// Asks for traffic class and hop limit of each datagram. Without them they read as 0.
    pub(super) fn show_marks(&self) {
        for name in [libc::IP_RECVTOS, libc::IP_RECVTTL] {
            let _ = self.set(libc::IPPROTO_IP, name, 1);
        }
        if self.family == Family::V6 {
            for name in [libc::IPV6_RECVTCLASS, libc::IPV6_RECVHOPLIMIT] {
                let _ = self.set(libc::IPPROTO_IPV6, name, 1);
            }
        }
    }

    /// Keeps next to nothing of what may come: nobody will read it.
    pub(super) fn prepare_to_ignore(&self) -> io::Result<()> {
        self.set(libc::SOL_SOCKET, libc::SO_RCVBUF, 0)
    }

    /// Sets an option that is a number.
    pub(super) fn set(&self, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
        self.set_bytes(level, name, &value.to_ne_bytes())
    }

    /// Reads an option that is a number.
    pub(super) fn get(&self, level: c_int, name: c_int) -> io::Result<c_int> {
        let mut value: c_int = 0;
        let mut len: socklen_t = 4;
        let to = (&raw mut value).cast::<c_void>();
        // SAFETY: `to` and `len` point to a c_int and its size on this stack, which outlive the call;
        // the kernel writes at most `len` bytes.
        let result = unsafe { libc::getsockopt(self.raw(), level, name, to, &raw mut len) };
        outcome(result).map(|()| value)
    }

    /// The port that it is bound to.
    pub(super) fn local_port(&self) -> io::Result<u16> {
        let mut name = Name::EMPTY;
        let mut len: socklen_t = Name::ROOM;
        let to = name.as_mut_ptr().cast::<libc::sockaddr>();
        // SAFETY: `to` has room for `len` bytes, both live on this stack and outlive the call; the kernel
        // writes at most `len` bytes.
        let result = unsafe { libc::getsockname(self.raw(), to, &raw mut len) };
        outcome(result)?;
        name.parse().map(|(_, port)| port).ok_or_else(|| io::Error::from_raw_os_error(libc::EAFNOSUPPORT))
    }

    /// What addresses it understands.
    pub(super) const fn family(&self) -> Family {
        self.family
    }

    /// The descriptor, for system calls.
    pub(super) fn raw(&self) -> RawFd {
        self.descriptor.as_raw_fd()
    }

    /// A socket for all addresses or for one, not bound yet.
    fn new(address: Option<IpAddr>) -> io::Result<Self> {
        match address {
            Some(IpAddr::V4(_)) => Self::of(Family::V4),
            Some(IpAddr::V6(_)) => Self::of(Family::V6),
            // A machine without IPv6 has no sockets of that family.
            None => Self::of(Family::V6).or_else(|error| match error.raw_os_error() {
                Some(libc::EAFNOSUPPORT) => Self::of(Family::V4),
                _ => Err(error),
            }),
        }
    }

    fn of(family: Family) -> io::Result<Self> {
        let domain = match family {
            Family::V4 => libc::AF_INET,
            Family::V6 => libc::AF_INET6,
        };
        // SAFETY: takes and gives plain numbers.
        let result = unsafe { libc::socket(domain, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) };
        if result < 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: the call above has just made this descriptor, and nobody else knows it.
        let descriptor = unsafe { OwnedFd::from_raw_fd(result) };
        Ok(Self { descriptor, family })
    }

    fn bind_to_device(&self, interface: &str) -> io::Result<()> {
        // The kernel cuts a longer name, and takes an empty one for "no interface".
        if interface.is_empty() || interface.len() >= libc::IFNAMSIZ || interface.contains('\0') {
            return Err(io::Error::from_raw_os_error(libc::ENODEV));
        }
        self.set_bytes(libc::SOL_SOCKET, libc::SO_BINDTODEVICE, interface.as_bytes())
    }

    /// Never fragment, and with it: every datagram over IPv4 has identification 0 and DF, or the
    /// number of its segment. Both levels count for a socket of IPv6 that sends to mapped addresses.
    fn set_paths(&self, one_address: bool) -> io::Result<()> {
        let hops = c_int::from(DEFAULT_HOPS);
        self.set(libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO)?;
        // So that hops left unsaid are 64 whatever the machine's own rule, for groups too.
        self.set(libc::IPPROTO_IP, libc::IP_TTL, hops)?;
        self.set(libc::IPPROTO_IP, libc::IP_MULTICAST_TTL, hops)?;
        if self.family == Family::V6 {
            self.set(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, c_int::from(one_address))?;
            self.set(libc::IPPROTO_IPV6, libc::IPV6_MTU_DISCOVER, libc::IPV6_PMTUDISC_DO)?;
            self.set(libc::IPPROTO_IPV6, libc::IPV6_UNICAST_HOPS, hops)?;
            self.set(libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_HOPS, hops)?;
        }
        Ok(())
    }

    /// Has the kernel choose among the sockets of the port by the slot: the first byte of the destination
    /// queue pair, which is the sixth of the payload.
    fn steer(&self, first: u8, count: usize) -> io::Result<()> {
        let op = |code: u32| u16::try_from(code).unwrap_or(0);
        let step = |code, k| libc::sock_filter { code: op(code), jt: 0, jf: 0, k };
        let count = u32::try_from(count).unwrap_or(1);
        let mut program = [
            step(libc::BPF_LD | libc::BPF_B | libc::BPF_ABS, 5),
            step(libc::BPF_ALU | libc::BPF_SUB | libc::BPF_K, u32::from(first)),
            // A slot before the first is a very large number by now.
            libc::sock_filter { jt: 1, ..step(libc::BPF_JMP | libc::BPF_JGE | libc::BPF_K, count) },
            step(libc::BPF_RET | libc::BPF_A, 0),
            step(libc::BPF_RET | libc::BPF_K, 0),
        ];
        let program = libc::sock_fprog { len: 5, filter: program.as_mut_ptr() };
        let from = (&raw const program).cast::<c_void>();
        let len = socklen_t::try_from(size_of::<libc::sock_fprog>()).unwrap_or(0);
        let name = libc::SO_ATTACH_REUSEPORT_CBPF;
        // SAFETY: `from` points to a description of that length, and that to as many steps as it says; all of
        // it lives on this stack, and the kernel copies it during the call.
        let result = unsafe { libc::setsockopt(self.raw(), libc::SOL_SOCKET, name, from, len) };
        outcome(result)
    }

    fn bind(&self, address: Option<IpAddr>, port: u16) -> io::Result<()> {
        let any = match self.family {
            Family::V4 => Ipv4Addr::UNSPECIFIED.into(),
            Family::V6 => Ipv6Addr::UNSPECIFIED.into(),
        };
        let name = Name::new(self.family, address.unwrap_or(any), port)
            .ok_or_else(|| io::Error::from_raw_os_error(libc::EAFNOSUPPORT))?;
        let from = name.as_ptr().cast::<libc::sockaddr>();
        // SAFETY: `from` points to a name of that length on this stack, which outlives the call.
        let result = unsafe { libc::bind(self.raw(), from, name.len()) };
        outcome(result)
    }

    /// Sets a buffer beyond the machine's limit where this program may, up to the limit elsewhere.
    fn set_buffer(&self, force: c_int, ask: c_int, bytes: usize) -> io::Result<()> {
        let bytes = c_int::try_from(bytes).unwrap_or(c_int::MAX);
        self.set(libc::SOL_SOCKET, force, bytes).or_else(|_| self.set(libc::SOL_SOCKET, ask, bytes))
    }

    fn set_bytes(&self, level: c_int, name: c_int, value: &[u8]) -> io::Result<()> {
        let len = socklen_t::try_from(value.len()).unwrap_or(0);
        let from = value.as_ptr().cast::<c_void>();
        // SAFETY: `from` points to `len` bytes that are borrowed for longer than the call.
        let result = unsafe { libc::setsockopt(self.raw(), level, name, from, len) };
        outcome(result)
    }
}

/// The result of a system call that is 0 or an error.
fn outcome(result: c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

/// The case of [`OpenError`] that a refusal is.
fn refusal(binding: &Binding, port: u16, step: &'static str, source: io::Error) -> OpenError {
    let interface = binding.interface.clone();
    match (source.raw_os_error(), binding.address) {
        (Some(libc::EADDRINUSE), address) => OpenError::PortTaken { port, interface, address },
        (Some(libc::ENODEV), _) => OpenError::NoSuchInterface { interface },
        (Some(libc::EADDRNOTAVAIL), Some(address)) => OpenError::NoSuchAddress { address, interface },
        (Some(libc::EPERM | libc::EACCES), _) => OpenError::NotPermitted { step, interface, port, source },
        _ => OpenError::System { step, interface, port, source },
    }
}
