//! One UDP socket: how it is opened, bound and set.

use std::io;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr};
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;

use ferroce_sys::descriptor::owned;
use ferroce_sys::fork::{Record, Tracked};
use libc::{c_int, c_long, c_void, socklen_t};

use super::control::DEFAULT_HOPS;
use super::error::SocketError;
use super::name::Name;

/// Words that the kernel tells of the memory of a socket; the last is what it has dropped.
const MEMORY_INFO: usize = 9;

/// Room for news of packets that left. The kernel doubles it, and stamps take up less than 1 KiB each: there
/// is room for as many as a socket waits for.
const NEWS: usize = 512 << 10;

/// The family of a socket. One of IPv6 speaks IPv4 too, unless it is bound to an address.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Family {
    /// Only IPv4.
    V4,
    /// IPv6, and IPv4 in mapped addresses.
    V6,
}

/// Where a socket is bound to, but for the port.
#[derive(Clone, Debug)]
pub struct Binding {
    /// The interface.
    pub interface: String,
    /// One address instead of all.
    pub address: Option<IpAddr>,
    /// Bytes of send buffer to ask for.
    pub send_buffer: usize,
}

/// An unconnected UDP socket that never fragments.
///
/// It may only stay unconnected: a connected socket counts the IPv4 identification up from a random
/// number, which the ICRC covers and a socket does not tell, and takes the packets of its peer
/// away from other sockets on the port.
///
/// Clones are the same socket and the same descriptor.
#[derive(Clone, Debug)]
pub struct Socket {
    descriptor: Arc<Kept>,
    family: Family,
}

/// What sees to it that a forked child does not keep the descriptor.
#[derive(Debug)]
enum Kept {
    /// Its owner, for all its sockets together.
    ByOwner(OwnedFd),
    /// A record that knows it for as long as it is open.
    ByRecord(Tracked),
}

impl Kept {
    fn raw(&self) -> RawFd {
        match self {
            Self::ByOwner(descriptor) => descriptor.as_raw_fd(),
            Self::ByRecord(descriptor) => descriptor.raw(),
        }
    }
}

/// Whether others may bind to the same port.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Sharing {
    /// No other socket has the port, or the socket is not opened.
    Alone,
    /// The socket joins those that are on the port, all of them shared and of this user.
    Shared,
}

impl Socket {
    /// Opens a socket and binds it; port 0 lets the system choose.
    pub fn open(binding: &Binding, port: u16, sharing: Sharing) -> Result<Self, SocketError> {
        Self::open_for(None, binding, port, sharing)
    }

    /// The same, and no child keeps it if there is a record.
    pub fn open_for(
        record: Option<&'static Record>,
        binding: &Binding,
        port: u16,
        sharing: Sharing,
    ) -> Result<Self, SocketError> {
        let refused = |step, error| refusal(binding, port, step, error);
        let socket =
            Self::new(record, binding.address).map_err(|error| refused("open a UDP socket", error))?;
        socket.bind_to_device(&binding.interface).map_err(|error| refused("bind to the interface", error))?;
        socket.set_paths(binding.address.is_some()).map_err(|error| refused("set path options", error))?;
        // A refusal leaves the system's usual size, which works.
        let _ = socket.set_buffer(libc::SO_SNDBUFFORCE, libc::SO_SNDBUF, binding.send_buffer);
        if sharing == Sharing::Shared {
            socket.share_port().map_err(|error| refused("share the port", error))?;
        }
        socket.bind(binding.address, port).map_err(|error| refused("bind to the port", error))?;
        Ok(socket)
    }

    /// Takes over a socket that another process opened; `None` if it is none of UDP on this port.
    #[must_use]
    pub fn adopt(descriptor: OwnedFd, port: u16) -> Option<Self> {
        let mut socket = Self { descriptor: Arc::new(Kept::ByOwner(descriptor)), family: Family::V4 };
        socket.family = match socket.get(libc::SOL_SOCKET, libc::SO_DOMAIN).ok()? {
            libc::AF_INET => Family::V4,
            libc::AF_INET6 => Family::V6,
            _ => return None,
        };
        let is_udp = socket.get(libc::SOL_SOCKET, libc::SO_PROTOCOL).ok()? == libc::IPPROTO_UDP;
        (is_udp && socket.local_port().ok()? == port).then_some(socket)
    }

    /// Opens a socket that gets a copy of everything that is sent to a multicast group on an interface. Any
    /// number of them may be open, each with a copy of its own.
    pub fn of_group(
        record: &'static Record,
        group: IpAddr,
        interface: &str,
        port: u16,
        buffer: usize,
    ) -> io::Result<Self> {
        let socket = Self::new(Some(record), Some(group))?;
        socket.bind_to_device(interface)?;
        // The first is for other sockets of groups, the second for those that share the port of this user.
        socket.set(libc::SOL_SOCKET, libc::SO_REUSEADDR, 1)?;
        socket.share_port()?;
        if socket.family == Family::V6 {
            socket.set(libc::IPPROTO_IPV6, libc::IPV6_V6ONLY, 1)?;
        }
        socket.prepare_to_receive(buffer, false)?;
        socket.show_marks();
        // A run that arrives in one piece keeps the places of its packets, which the ICRC covers.
        let _ = socket.set(libc::SOL_UDP, libc::UDP_GRO, 1);
        socket.bind(Some(group), port)?;
        socket.join(group, interface)?;
        Ok(socket)
    }

    /// Has the kernel take in what is sent to a group on an interface.
    fn join(&self, group: IpAddr, interface: &str) -> io::Result<()> {
        let name = std::ffi::CString::new(interface)?;
        // SAFETY: the pointer is to a text with its zero, which lives during the call.
        let index = unsafe { libc::if_nametoindex(name.as_ptr()) };
        if index == 0 {
            return Err(io::Error::last_os_error());
        }
        let index = index.to_ne_bytes();
        match group {
            // struct ip_mreqn: group, address of the interface (its number is enough), number.
            IpAddr::V4(group) => {
                let request = [group.octets(), [0; 4], index].concat();
                self.set_bytes(libc::IPPROTO_IP, libc::IP_ADD_MEMBERSHIP, &request)
            }
            // struct ipv6_mreq: group, number of the interface.
            IpAddr::V6(group) => {
                let request = [&group.octets()[..], &index].concat();
                self.set_bytes(libc::IPPROTO_IPV6, libc::IPV6_ADD_MEMBERSHIP, &request)
            }
        }
    }

    /// Lets others of this user bind to the same port from now on.
    pub fn share_port(&self) -> io::Result<()> {
        self.set(libc::SOL_SOCKET, libc::SO_REUSEPORT, 1)
    }

    /// Says which socket of those that share a port gets a datagram: the program returns its
    /// number, in the order in which they were bound.
    pub fn steer(&self, program: &mut [libc::sock_filter]) -> io::Result<()> {
        self.attach(libc::SO_ATTACH_REUSEPORT_CBPF, program)
    }

    /// Has the kernel drop every datagram for this socket, until [`hear`](Self::hear). What it holds already
    /// stays.
    pub fn turn_deaf(&self) -> io::Result<()> {
        self.keep_of_each(0)
    }

    /// Has the kernel keep datagrams for this socket again. It has a filter all the same, which takes
    /// everything: what the kernel shows of sockets to other users must not tell which ones are deaf.
    pub fn hear(&self) -> io::Result<()> {
        self.keep_of_each(u32::MAX)
    }

    /// Has the kernel keep so many bytes of each datagram, and drop it if that is none.
    fn keep_of_each(&self, bytes: u32) -> io::Result<()> {
        let code = u16::try_from(libc::BPF_RET | libc::BPF_K).unwrap_or(0);
        self.attach(libc::SO_ATTACH_FILTER, &mut [libc::sock_filter { code, jt: 0, jf: 0, k: bytes }])
    }

    /// How many datagrams the kernel has dropped here, for want of room or because the socket was deaf. It
    /// counts round after 2^32.
    #[must_use]
    pub fn drops(&self) -> u32 {
        let mut told = [0_u32; MEMORY_INFO];
        let mut len = socklen_t::try_from(size_of_val(&told)).unwrap_or(0);
        let to = told.as_mut_ptr().cast::<c_void>();
        // SAFETY: `to` and `len` point to that many bytes and their number on this stack, which outlive the
        // call; the kernel writes at most `len` bytes.
        let result =
            unsafe { libc::getsockopt(self.raw(), libc::SOL_SOCKET, libc::SO_MEMINFO, to, &raw mut len) };
        if result == 0 { told[MEMORY_INFO - 1] } else { 0 }
    }

    fn attach(&self, option: c_int, program: &mut [libc::sock_filter]) -> io::Result<()> {
        let len = libc::c_ushort::try_from(program.len()).unwrap_or(0);
        let program = libc::sock_fprog { len, filter: program.as_mut_ptr() };
        let from = (&raw const program).cast::<c_void>();
        let size = socklen_t::try_from(size_of::<libc::sock_fprog>()).unwrap_or(0);
        // SAFETY: `from` points to a program of that length and, through it, to its steps; both are borrowed
        // for longer than the call, which copies them.
        let result = unsafe { libc::setsockopt(self.raw(), libc::SOL_SOCKET, option, from, size) };
        outcome(result)
    }

    /// Asks for what must be known about each datagram that comes, and for room to keep them. Its
    /// destination is known without asking where the socket has one address.
    pub fn prepare_to_receive(&self, buffer: usize, any_address: bool) -> io::Result<()> {
        let ask = c_int::from(any_address);
        match self.family {
            Family::V4 => self.set(libc::IPPROTO_IP, libc::IP_PKTINFO, ask)?,
            // It tells mapped addresses for IPv4 too: IP_PKTINFO would tell them twice.
            Family::V6 => self.set(libc::IPPROTO_IPV6, libc::IPV6_RECVPKTINFO, ask)?,
        }
        // They may be shown since an earlier owner of the socket.
        self.set_marks(0);
        // Nice to have: without these, groups that other programs have joined are seen, and a datagram over
        // IPv6 without a checksum is not (the ICRC guards it).
        let _ = self.set(libc::IPPROTO_IP, libc::IP_MULTICAST_ALL, 0);
        if self.family == Family::V6 {
            let _ = self.set(libc::IPPROTO_IPV6, libc::IPV6_MULTICAST_ALL, 0);
            let _ = self.set(libc::SOL_UDP, libc::UDP_NO_CHECK6_RX, 1);
        }
        self.set_buffer(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, buffer)
    }

    /// Asks for traffic class, hop limit and flow label of each datagram. Without being asked they read as 0.
    pub(super) fn show_marks(&self) {
        self.set_marks(1);
    }

    fn set_marks(&self, shown: c_int) {
        for name in [libc::IP_RECVTOS, libc::IP_RECVTTL] {
            let _ = self.set(libc::IPPROTO_IP, name, shown);
        }
        if self.family == Family::V6 {
            for name in [libc::IPV6_RECVTCLASS, libc::IPV6_RECVHOPLIMIT, libc::IPV6_FLOWINFO] {
                let _ = self.set(libc::IPPROTO_IPV6, name, shown);
            }
        }
    }

    /// Whether nothing waits to be read.
    #[inline]
    pub(super) fn is_empty(&self) -> bool {
        let flags = libc::MSG_PEEK | libc::MSG_DONTWAIT;
        let (nowhere, none) = (std::ptr::null_mut::<c_void>(), std::ptr::null_mut::<c_void>());
        // The system call itself: the function of the C library lets others cancel the thread in it, which
        // takes longer. SAFETY: nothing is written where there is no room.
        let result = unsafe {
            libc::syscall(
                libc::SYS_recvfrom,
                c_long::from(self.raw()),
                nowhere,
                0_usize,
                c_long::from(flags),
                none,
                none,
            )
        };
        result < 0 && io::Error::last_os_error().raw_os_error() == Some(libc::EAGAIN)
    }

    /// Has the kernel tell of packets that routers or hosts have sent back. From then on such news also ends a call
    /// that has nothing to do with it, once.
    pub(super) fn hear_of_errors(&self) -> io::Result<()> {
        self.set(libc::IPPROTO_IP, libc::IP_RECVERR, 1)?;
        if self.family == Family::V6 {
            self.set(libc::IPPROTO_IPV6, libc::IPV6_RECVERR, 1)?;
        }
        Ok(())
    }

    /// Has the kernel tell when each datagram came.
    pub(super) fn stamp_arrivals(&self) -> io::Result<()> {
        self.set(libc::SOL_SOCKET, libc::SO_TIMESTAMPNS, 1)
    }

    /// Forgets an error that no call has told yet.
    pub(super) fn forget_error(&self) {
        let _ = self.get(libc::SOL_SOCKET, libc::SO_ERROR);
    }

    /// Keeps nothing of what may come, for no thread will read it, and has room for news of packets that
    /// left. The kernel takes that from the room for what comes: without any, it keeps two stamps.
    pub fn prepare_to_ignore(&self) -> io::Result<()> {
        self.turn_deaf()?;
        self.set_buffer(libc::SO_RCVBUFFORCE, libc::SO_RCVBUF, NEWS)
    }

    /// Sets an option that is a number.
    pub fn set(&self, level: c_int, name: c_int, value: c_int) -> io::Result<()> {
        self.set_bytes(level, name, &value.to_ne_bytes())
    }

    /// Reads an option that is a number.
    pub fn get(&self, level: c_int, name: c_int) -> io::Result<c_int> {
        let mut value: c_int = 0;
        let mut len: socklen_t = 4;
        let to = (&raw mut value).cast::<c_void>();
        // SAFETY: `to` and `len` point to a c_int and its size on this stack, which outlive the call;
        // the kernel writes at most `len` bytes.
        let result = unsafe { libc::getsockopt(self.raw(), level, name, to, &raw mut len) };
        outcome(result).map(|()| value)
    }

    /// The port that it is bound to.
    pub fn local_port(&self) -> io::Result<u16> {
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
    #[must_use]
    pub const fn family(&self) -> Family {
        self.family
    }

    /// The descriptor, for system calls.
    #[must_use]
    pub fn raw(&self) -> RawFd {
        self.descriptor.raw()
    }

    /// A socket for all addresses or for one, not bound yet.
    fn new(record: Option<&'static Record>, address: Option<IpAddr>) -> io::Result<Self> {
        match address {
            Some(IpAddr::V4(_)) => Self::of(record, Family::V4),
            Some(IpAddr::V6(_)) => Self::of(record, Family::V6),
            // A machine without IPv6 has no sockets of that family.
            None => Self::of(record, Family::V6).or_else(|error| match error.raw_os_error() {
                Some(libc::EAFNOSUPPORT) => Self::of(record, Family::V4),
                _ => Err(error),
            }),
        }
    }

    fn of(record: Option<&'static Record>, family: Family) -> io::Result<Self> {
        let domain = match family {
            Family::V4 => libc::AF_INET,
            Family::V6 => libc::AF_INET6,
        };
        // SAFETY: takes and gives plain numbers.
        let open = || owned(unsafe { libc::socket(domain, libc::SOCK_DGRAM | libc::SOCK_CLOEXEC, 0) });
        let kept = match record {
            Some(record) => Kept::ByRecord(Tracked::open(record, open)?),
            None => Kept::ByOwner(open()?),
        };
        Ok(Self { descriptor: Arc::new(kept), family })
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
            // A label that was not asked for is 0, as other network cards have it, and not one that the kernel
            // makes up. Where it cannot be said, nothing depends on it: the ICRC does not cover labels.
            let _ = self.set(libc::IPPROTO_IPV6, libc::IPV6_AUTOFLOWLABEL, 0);
        }
        Ok(())
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
        let result = unsafe { libc::bind(self.raw(), from, name.size()) };
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

/// The case of [`SocketError`] that a refusal is.
fn refusal(binding: &Binding, port: u16, step: &'static str, source: io::Error) -> SocketError {
    let interface = binding.interface.clone();
    match (source.raw_os_error(), binding.address) {
        (Some(libc::EADDRINUSE), address) => SocketError::PortTaken { port, interface, address },
        (Some(libc::ENODEV), _) => SocketError::NoSuchInterface { interface },
        (Some(libc::EADDRNOTAVAIL), Some(address)) => SocketError::NoSuchAddress { address, interface },
        (Some(libc::EPERM | libc::EACCES), _) => SocketError::NotPermitted { step, interface, port, source },
        _ => SocketError::System { step, interface, port, source },
    }
}
