//! The sockets of all slots: made in order, steered by a filter, and tried.

use std::io;
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::BorrowedFd;
use std::time::Duration;

use ferroce_fabric::udp::{Binding, Name, Sharing, Socket};
use ferroce_fabric::{PORT, udp};
use ferroce_sys::Random;
use ferroce_sys::clock;
use ferroce_sys::descriptor::wait_readable;
use libc::{
    BPF_A, BPF_ABS, BPF_ALU, BPF_AND, BPF_B, BPF_H, BPF_IND, BPF_JA, BPF_JEQ, BPF_JGE, BPF_JMP, BPF_K,
    BPF_LD, BPF_LDX, BPF_MSH, BPF_RET, BPF_RSH, BPF_W, sock_filter,
};

use super::bpf::step;
use super::error::{SwitchError, refused};
use super::{Group, SLOTS, SOCKETS};

/// Bytes of send buffer to ask for.
const SEND_BUFFER: usize = 4 << 20;

/// The number of slots, as wide as it stands in a filter.
#[expect(clippy::cast_possible_truncation, reason = "it is 128")]
const SLOTS_WORD: u32 = SLOTS as u32;

/// Bytes of receive buffer to ask for. It is the same for all sockets, as much as a device asks for that says nothing
/// else: what the kernel shows of them to other users must not tell which slots are taken.
pub(super) const BUFFER: usize = 4 << 20;

/// The number of the socket for what no device has sent.
#[expect(clippy::cast_possible_truncation, reason = "it is 128")]
const FOREIGN: u32 = SLOTS as u32;

/// Bytes of the header of IPv6.
const IPV6_HEADER: u32 = 40;

/// Datagrams that are dropped when a slot is taken, at most: a flood must not keep a process for ever.
const MOST_DRAINED: usize = 1 << 17;

/// How long a datagram of this machine to itself may take.
const ARRIVAL: Duration = Duration::from_secs(2);

/// Makes the sockets of all slots, and the one that hears nothing.
///
/// The first is bound alone: the kernel refuses while any socket of another group, dying or alive, is on the
/// port. If it were shared from the beginning, it would join such a group instead, and all slots
/// would be shifted. Only then it is shared, and the others join it: their order is their number.
pub(super) fn create(group: &Group, is_loopback: bool) -> Result<Vec<Socket>, SwitchError> {
    let binding =
        Binding { interface: group.interface.clone(), address: group.address, send_buffer: SEND_BUFFER };
    let mut sockets = Vec::with_capacity(SOCKETS);
    for slot in 0..SOCKETS {
        let sharing = if slot == 0 { first_sharing() } else { Sharing::Shared };
        let socket = Socket::open(&binding, PORT, sharing)?;
        socket.prepare_to_receive(BUFFER, true).map_err(refused("the options of a socket"))?;
        match slot {
            0 => socket.share_port().map_err(refused("a shared port"))?,
            // The kernel takes a filter when the group has its second socket.
            1 => socket.steer(&mut filter(is_loopback)).map_err(refused("a filter of datagrams"))?,
            _ => {}
        }
        sockets.push(socket);
    }
    if is_loopback && !(cfg!(test) && super::planted("shared-first")) {
        check(group, &sockets[..SLOTS])?;
    }
    for (slot, socket) in sockets.iter().enumerate() {
        // Nothing reads the others before they have an owner.
        let set = if slot == 0 { socket.hear() } else { socket.turn_deaf() };
        set.map_err(refused("a filter of datagrams"))?;
    }
    Ok(sockets)
}

fn first_sharing() -> Sharing {
    // A bug on purpose, which the test of churn has to find.
    if cfg!(test) && super::planted("shared-first") { Sharing::Shared } else { Sharing::Alone }
}

/// Picks the socket of the slot in the top byte of the destination queue pair; what is too short for one,
/// and what is beyond the slots, goes to slot 0. On a loopback interface what comes from another port than ours goes
/// to the socket that hears nothing.
fn filter(is_loopback: bool) -> Vec<sock_filter> {
    // Behind the IP header stands the source port; that of IPv4 tells its own length.
    let ip = libc::SKF_NET_OFF.cast_unsigned();
    let from_our_port = [
        step([BPF_LD, BPF_B, BPF_ABS], 0, 0, ip),
        step([BPF_ALU, BPF_RSH, BPF_K], 0, 0, 4),
        step([BPF_JMP, BPF_JEQ, BPF_K], 0, 3, 4),
        step([BPF_LDX, BPF_B, BPF_MSH], 0, 0, ip),
        step([BPF_LD, BPF_H, BPF_IND], 0, 0, ip),
        step([BPF_JMP, BPF_JA], 0, 0, 1),
        step([BPF_LD, BPF_H, BPF_ABS], 0, 0, ip.wrapping_add(IPV6_HEADER)),
        step([BPF_JMP, BPF_JEQ, BPF_K], 1, 0, PORT.into()),
        step([BPF_RET, BPF_K], 0, 0, FOREIGN),
    ];
    let by_slot = [
        step([BPF_LD, BPF_W, BPF_ABS], 0, 0, 4),
        step([BPF_ALU, BPF_AND, BPF_K], 0, 0, 0x00ff_ffff),
        step([BPF_ALU, BPF_RSH, BPF_K], 0, 0, 16),
        step([BPF_JMP, BPF_JGE, BPF_K], 0, 1, SLOTS_WORD),
        step([BPF_RET, BPF_K], 0, 0, 0),
        step([BPF_RET, BPF_A], 0, 0, 0),
    ];
    if is_loopback { [&from_our_port[..], &by_slot].concat() } else { by_slot.to_vec() }
}

/// Sends one datagram to each slot and sees where it lands. Only loopback brings a datagram of this
/// machine back to it through the very interface that the sockets are bound to.
fn check(group: &Group, sockets: &[Socket]) -> Result<(), SwitchError> {
    let mut random = Random::from_system().map_err(refused("random numbers"))?;
    let mark = [random.next_u32().to_ne_bytes(), random.next_u32().to_ne_bytes()].concat();
    let address = group.address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST));
    // From our port: from another one it would go nowhere.
    let sender = &sockets[0];
    let to = Name::new(sender.family(), address, PORT)
        .ok_or_else(|| refused("an address")(io::Error::from_raw_os_error(libc::EAFNOSUPPORT)))?;
    for (slot, socket) in sockets.iter().enumerate() {
        let mut probe = [0; 20];
        probe[5] = u8::try_from(slot).unwrap_or(0);
        probe[8..16].copy_from_slice(&mark);
        probe[16] = probe[5];
        send(sender, &probe, to).map_err(refused("a datagram to itself"))?;
        let end = clock::now() + ARRIVAL;
        while !arrived(socket, &probe) {
            // SAFETY: the descriptor is open as long as the socket, which is borrowed here.
            let fd = unsafe { BorrowedFd::borrow_raw(socket.raw()) };
            wait_readable(fd, Some(clock::until(end))).map_err(refused("a wait"))?;
            if clock::now() >= end && !arrived(socket, &probe) {
                return Err(SwitchError::NotSteered { group: group.clone(), slot });
            }
        }
    }
    Ok(())
}

fn send(socket: &Socket, bytes: &[u8], to: Name) -> io::Result<()> {
    let address = to.as_ptr().cast::<libc::sockaddr>();
    let from = bytes.as_ptr().cast();
    // SAFETY: both pointers are to bytes of those lengths that live during the call.
    let sent = unsafe { libc::sendto(socket.raw(), from, bytes.len(), 0, address, to.size()) };
    if sent < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// Whether the probe is in the socket; anything before it is dropped.
fn arrived(socket: &Socket, probe: &[u8]) -> bool {
    let mut bytes = [0; 64];
    loop {
        match take(socket, &mut bytes) {
            Ok(len) if bytes.get(..len) == Some(probe) => return true,
            Ok(_) => {}
            Err(_) => return false,
        }
    }
}

/// Drops everything that lies in a socket; how many datagrams.
pub(super) fn drain(socket: &Socket) -> usize {
    let mut bytes = [0; 1];
    let mut errors = 0;
    let mut drained = 0;
    while drained < MOST_DRAINED && errors < 64 {
        match take(socket, &mut bytes) {
            Ok(_) => drained += 1,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => break,
            // What became of a packet that was sent long ago, or a signal.
            Err(_) => errors += 1,
        }
    }
    drained
}

fn take(socket: &Socket, bytes: &mut [u8]) -> io::Result<usize> {
    let to = bytes.as_mut_ptr().cast();
    // SAFETY: `to` points to that many bytes, which are borrowed for longer than the call.
    let len = unsafe { libc::recv(socket.raw(), to, bytes.len(), libc::MSG_DONTWAIT) };
    usize::try_from(len).map_err(|_| io::Error::last_os_error())
}

/// Whether an error says that the port is taken.
pub(super) fn is_taken(error: &SwitchError) -> bool {
    matches!(error, SwitchError::Socket(udp::SocketError::PortTaken { .. }))
}
