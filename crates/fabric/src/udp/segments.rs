//! How many packets the network stack cuts apart at once.

use std::net::{Ipv4Addr, UdpSocket};
use std::os::fd::AsRawFd;
use std::sync::OnceLock;

use super::super::{Route, Run};
use super::messages::Messages;
use super::name::Name;
use super::socket::{Family, Socket};

/// Bytes of the longest run: with its headers it must be a datagram, over IPv6 too.
pub(super) const LONGEST: usize = 65_487;

/// Whether, and how far, runs may leave in one piece.
#[derive(Clone, Copy, Debug)]
pub(super) struct Segments {
    most: usize,
}

impl Segments {
    /// Every packet by itself.
    pub(super) const SINGLE: Self = Self { most: 1 };

    /// What this system can do on this socket.
    pub(super) fn of(socket: &Socket) -> Self {
        match socket.get(libc::SOL_UDP, libc::UDP_SEGMENT) {
            Ok(_) => Self { most: limit() },
            Err(_) => Self::SINGLE,
        }
    }

    /// Packets of the longest run.
    pub(super) const fn most(self) -> usize {
        self.most
    }

    /// Whether runs may have more than one packet.
    pub(super) const fn allowed(self) -> bool {
        self.most > 1
    }

    /// The segment size to tell the kernel, if this run may leave in one piece.
    pub(super) fn cut_run(self, run: &Run) -> Option<u16> {
        self.cut(run.segment, run.len, run.packets)
    }

    /// The same of a run of so many packets, which have `len` bytes together, and the first of them `segment`.
    #[inline(always)]
    pub(super) fn cut(self, segment: usize, len: usize, packets: usize) -> Option<u16> {
        let fits = packets <= self.most && len <= LONGEST;
        if packets > 1 && fits { u16::try_from(segment).ok() } else { None }
    }
}

/// What Linux has allowed since it can cut datagrams apart at all.
const FEW: usize = 64;

/// What it allows since 2024; releases of distributions have it under older numbers, so we try.
const MANY: usize = 128;

/// The kernel's limit, tried once per process.
fn limit() -> usize {
    static LIMIT: OnceLock<usize> = OnceLock::new();
    *LIMIT.get_or_init(|| if takes(MANY).unwrap_or(false) { MANY } else { FEW })
}

/// Whether the kernel cuts a run of this many packets: tried with one byte each from a socket of
/// loopback to itself, so that no other socket sees any of it.
fn takes(packets: usize) -> Option<bool> {
    let socket = UdpSocket::bind((Ipv4Addr::LOCALHOST, 0)).ok()?;
    let port = socket.local_addr().ok()?.port();
    let local = Ipv4Addr::LOCALHOST.into();
    let route =
        Route { local, remote: local, source_port: port, traffic_class: 0, hop_limit: 1, flow_label: 0 };
    let payload = [0_u8; MANY];
    let mut messages = Messages::new();
    messages.control(0).describe(&route, Some(1), None);
    messages.outgoing(0, payload.get(..packets)?, Name::new(Family::V4, local, port)?);
    // SAFETY: entry 0 was set just now, and `payload` lives until the end of this function.
    let sent = unsafe { messages.send(socket.as_raw_fd(), 0..1) };
    Some(sent.is_ok())
}
