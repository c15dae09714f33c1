//! Unix sockets with abstract names: how members talk, and pass sockets to each other.
//!
//! Every call is made without waiting; a thread that wants to wait polls. What rustix has, it does; messages
//! with credentials are taken apart by hand, for the reason at [`peer`].

use std::io;
use std::mem;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, FromRawFd, OwnedFd, RawFd};
use std::ptr;

use libc::{c_int, c_void, socklen_t};
use rustix::net::{self, AddressFamily, SocketAddrUnix, SocketFlags, SocketType};

/// What every socket here is: not inherited, and never waited for.
const FLAGS: SocketFlags = SocketFlags::CLOEXEC.union(SocketFlags::NONBLOCK);

/// The process at the other end of a connection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Peer {
    /// The process; 0 if it is of another namespace.
    pub pid: u32,
    /// The user that it acted for.
    pub uid: u32,
}

/// Descriptors that one message may carry; the kernel takes 253.
pub const MOST_DESCRIPTORS: usize = 200;

/// The user that this process acts for.
#[must_use]
pub fn own_uid() -> u32 {
    rustix::process::geteuid().as_raw()
}

/// A socket of this type that keeps messages apart.
pub fn socket(kind: c_int) -> io::Result<OwnedFd> {
    let kind = SocketType::from_raw(kind.cast_unsigned());
    Ok(net::socket_with(AddressFamily::UNIX, kind, FLAGS, None)?)
}

/// Binds to an abstract name.
pub fn bind(socket: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
    Ok(net::bind(socket, &SocketAddrUnix::new_abstract_name(name)?)?)
}

/// Connects to an abstract name; fails at once if no process listens or the queue is full.
pub fn connect(socket: BorrowedFd<'_>, name: &[u8]) -> io::Result<()> {
    Ok(net::connect(socket, &SocketAddrUnix::new_abstract_name(name)?)?)
}

/// What is at a name.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Reached {
    /// A socket of this user listens, and the connection is there.
    Ours(Peer),
    /// One of another user, or one that this process may not talk to.
    Foreign,
    /// None listens.
    Nothing,
    /// One listens, but takes no connection just now: whose it is cannot be told.
    Busy,
}

/// Connects to a name, and asks the kernel whose it is. Nothing has been said by then.
pub fn reach(socket: BorrowedFd<'_>, name: &[u8], uid: u32) -> io::Result<Reached> {
    match connect(socket, name) {
        Ok(()) => {}
        Err(error) => {
            return match error.raw_os_error() {
                Some(libc::ECONNREFUSED | libc::ENOENT) => Ok(Reached::Nothing),
                Some(libc::EAGAIN | libc::EINTR | libc::EPROTOTYPE) => Ok(Reached::Busy),
                // A security module keeps us from each other.
                Some(libc::EPERM | libc::EACCES) => Ok(Reached::Foreign),
                _ => Err(error),
            };
        }
    }
    let peer = peer(socket)?;
    Ok(if peer.uid == uid { Reached::Ours(peer) } else { Reached::Foreign })
}

/// A socket that listens at an abstract name.
pub fn listen(name: &[u8]) -> io::Result<OwnedFd> {
    let socket = socket(libc::SOCK_SEQPACKET)?;
    bind(socket.as_fd(), name)?;
    net::listen(&socket, BACKLOG)?;
    Ok(socket)
}

/// Connections that wait to be accepted; the system may cut it.
const BACKLOG: c_int = 1024;

/// The next connection; `WouldBlock` if there is none.
pub fn accept(listener: BorrowedFd<'_>) -> io::Result<OwnedFd> {
    Ok(net::accept_with(listener, FLAGS)?)
}

/// Has a socket keep so many bytes that were sent and not yet read, as far as the system lets it. What the
/// kernel needs for itself counts too.
pub fn keep_more(socket: BorrowedFd<'_>, bytes: usize) -> io::Result<()> {
    // The kernel doubles what it is asked for.
    Ok(net::sockopt::set_socket_send_buffer_size(socket, bytes / 2)?)
}

/// The process at the other end: of a listener's side, the one that connected; of the other, the one that
/// listens. It is asked by hand: a process of another namespace has the number 0, which the types of rustix
/// cannot hold.
pub fn peer(socket: BorrowedFd<'_>) -> io::Result<Peer> {
    let mut seen = libc::ucred { pid: 0, uid: u32::MAX, gid: u32::MAX };
    let mut len = socklen_t::try_from(size_of::<libc::ucred>()).unwrap_or(0);
    let to = (&raw mut seen).cast::<c_void>();
    // SAFETY: `to` and `len` point to a ucred and its size on this stack, which outlive the call.
    let result = unsafe {
        libc::getsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_PEERCRED, to, &raw mut len)
    };
    outcome(result)?;
    Ok(Peer { pid: u32::try_from(seen.pid).unwrap_or(0), uid: seen.uid })
}

/// Ends a connection for both sides, whatever other descriptors of it there are.
pub fn cut(socket: BorrowedFd<'_>) {
    // One that has ended already is as it should be.
    let _ = net::shutdown(socket, net::Shutdown::Both);
}

/// Lets a datagram socket say which process sent each message.
pub fn tell_senders(socket: BorrowedFd<'_>) -> io::Result<()> {
    Ok(net::sockopt::set_socket_passcred(socket, true)?)
}

/// Lets only messages in that a program takes.
pub fn admit(socket: BorrowedFd<'_>, program: &mut [libc::sock_filter]) -> io::Result<()> {
    let len = libc::c_ushort::try_from(program.len()).unwrap_or(0);
    let program = libc::sock_fprog { len, filter: program.as_mut_ptr() };
    let from = (&raw const program).cast::<c_void>();
    let size = socklen_t::try_from(size_of::<libc::sock_fprog>()).unwrap_or(0);
    // SAFETY: `from` points to a program of that length and, through it, to its steps; both are borrowed for
    // longer than the call, which copies them.
    let result =
        unsafe { libc::setsockopt(socket.as_raw_fd(), libc::SOL_SOCKET, libc::SO_ATTACH_FILTER, from, size) };
    outcome(result)
}

/// Sends one message with descriptors.
pub fn send(socket: BorrowedFd<'_>, bytes: &[u8], descriptors: &[RawFd]) -> io::Result<()> {
    let mut space = Space::new();
    let control = space.with_descriptors(descriptors);
    transmit(socket, &[bytes], control)
}

/// Sends one message, made of several pieces, to where a socket is connected.
pub fn send_pieces(socket: BorrowedFd<'_>, pieces: [&[u8]; 2]) -> io::Result<()> {
    transmit(socket, &pieces, &mut [])
}

fn transmit(socket: BorrowedFd<'_>, pieces: &[&[u8]], control: &mut [u8]) -> io::Result<()> {
    let mut vectors = [libc::iovec { iov_base: ptr::null_mut(), iov_len: 0 }; 2];
    for (vector, piece) in vectors.iter_mut().zip(pieces) {
        // The kernel only reads what it sends.
        *vector = libc::iovec { iov_base: piece.as_ptr().cast_mut().cast(), iov_len: piece.len() };
    }
    let mut header = empty_header();
    header.msg_iov = vectors.as_mut_ptr();
    header.msg_iovlen = pieces.len().min(vectors.len());
    if !control.is_empty() {
        header.msg_control = control.as_mut_ptr().cast();
        header.msg_controllen = control.len();
    }
    let flags = libc::MSG_DONTWAIT | libc::MSG_NOSIGNAL;
    // SAFETY: the header points to pieces and control bytes that are borrowed for longer than the call.
    // The system call is made directly: the wrapper of the C library is where a thread may be cancelled.
    let result = unsafe { libc::syscall(libc::SYS_sendmsg, socket.as_raw_fd(), &raw const header, flags) };
    if result < 0 { Err(io::Error::last_os_error()) } else { Ok(()) }
}

/// One message as it came.
#[derive(Debug)]
pub struct Message {
    /// Bytes of it, all of which are in the buffer.
    pub len: usize,
    /// It was longer than the buffer, or not all that came with it could be taken.
    pub cut: bool,
    /// Descriptors that came with it.
    pub descriptors: Vec<OwnedFd>,
    /// The process that sent it, if the socket tells.
    pub sender: Option<Peer>,
}

/// What may come with a message.
///
/// Descriptors are a danger: if a process sends the shared file to a member, closing that second descriptor
/// of it would release all record locks of the member. What there is no room for never becomes a descriptor
/// of this process, and the kernel only says that something was cut.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Room {
    /// Nothing.
    None,
    /// The process that sent it, on a socket that tells, and then nothing else.
    Sender,
    /// Descriptors.
    Descriptors,
    /// So many descriptors and no more, at most [`MOST_DESCRIPTORS`].
    Few(usize),
}

impl Room {
    /// Bytes for control messages.
    const fn bytes(self) -> usize {
        match self {
            Self::None => 0,
            Self::Sender => (HEAD + size_of::<libc::ucred>()).next_multiple_of(size_of::<usize>()),
            // Not rounded up to words: there would be room for one more.
            Self::Few(count) if count <= MOST_DESCRIPTORS => HEAD + 4 * count,
            Self::Descriptors | Self::Few(_) => size_of::<Space>(),
        }
    }
}

/// Receives one message; `len` is 0 when the connection has ended.
pub fn receive(socket: BorrowedFd<'_>, bytes: &mut [u8], room: Room) -> io::Result<Message> {
    let mut space = Space::new();
    let mut vector = libc::iovec { iov_base: bytes.as_mut_ptr().cast(), iov_len: bytes.len() };
    let mut header = empty_header();
    header.msg_iov = &raw mut vector;
    header.msg_iovlen = 1;
    header.msg_control = space.0.as_mut_ptr().cast();
    header.msg_controllen = room.bytes();
    let flags = libc::MSG_DONTWAIT | libc::MSG_CMSG_CLOEXEC;
    // SAFETY: the header points to bytes and control space that this function borrows alone during the call,
    // with lengths that they have: no room is larger than the space.
    let result = unsafe { libc::syscall(libc::SYS_recvmsg, socket.as_raw_fd(), &raw mut header, flags) };
    let len = usize::try_from(result).map_err(|_| io::Error::last_os_error())?;
    let mut message = Message { len, cut: false, descriptors: Vec::new(), sender: None };
    message.cut = header.msg_flags & (libc::MSG_TRUNC | libc::MSG_CTRUNC) != 0;
    let used = header.msg_controllen.min(size_of::<Space>());
    let mut rest = &space.bytes()[..used];
    while let Some((level, kind, value, after)) = split(rest) {
        match (level, kind) {
            (libc::SOL_SOCKET, libc::SCM_RIGHTS) => {
                for number in value.chunks_exact(4).filter_map(|bytes| bytes.first_chunk()) {
                    // SAFETY: the kernel has just put this descriptor into our table; nothing else knows it.
                    message.descriptors.push(unsafe { OwnedFd::from_raw_fd(c_int::from_ne_bytes(*number)) });
                }
            }
            (libc::SOL_SOCKET, libc::SCM_CREDENTIALS) => message.sender = credentials(value),
            _ => {}
        }
        rest = after;
    }
    Ok(message)
}

/// `struct ucred`: process, user, group.
fn credentials(value: &[u8]) -> Option<Peer> {
    let pid = u32::from_ne_bytes(*value.first_chunk()?);
    let uid = u32::from_ne_bytes(*value.get(4..)?.first_chunk()?);
    Some(Peer { pid, uid })
}

/// Room for the control messages of one message.
#[repr(C, align(8))]
struct Space([mem::MaybeUninit<u64>; WORDS]);

const WORDS: usize = (64 + 4 * MOST_DESCRIPTORS).div_ceil(8);

/// Bytes before the value of a control message: a length of the width of a pointer, level, type.
const HEAD: usize = size_of::<usize>() + 8;

impl Space {
    fn new() -> Self {
        Self([mem::MaybeUninit::zeroed(); WORDS])
    }

    fn bytes(&self) -> &[u8] {
        // SAFETY: all of it was zeroed, so every byte has a value, and it lives as long as the borrow.
        unsafe { std::slice::from_raw_parts(self.0.as_ptr().cast(), size_of::<Self>()) }
    }

    fn bytes_mut(&mut self) -> &mut [u8] {
        // SAFETY: as above, and the borrow is the only one.
        unsafe { std::slice::from_raw_parts_mut(self.0.as_mut_ptr().cast(), size_of::<Self>()) }
    }

    /// A control message that passes these descriptors, at most [`MOST_DESCRIPTORS`]; nothing for none.
    fn with_descriptors(&mut self, descriptors: &[RawFd]) -> &mut [u8] {
        debug_assert!(descriptors.len() <= MOST_DESCRIPTORS, "more than fit");
        if descriptors.is_empty() {
            return &mut [];
        }
        let word = size_of::<usize>();
        let len = HEAD + 4 * descriptors.len();
        let bytes = self.bytes_mut();
        bytes[..word].copy_from_slice(&len.to_ne_bytes());
        bytes[word..word + 4].copy_from_slice(&libc::SOL_SOCKET.to_ne_bytes());
        bytes[word + 4..HEAD].copy_from_slice(&libc::SCM_RIGHTS.to_ne_bytes());
        for (place, descriptor) in bytes[HEAD..].chunks_exact_mut(4).zip(descriptors) {
            place.copy_from_slice(&descriptor.to_ne_bytes());
        }
        &mut bytes[..len.next_multiple_of(word)]
    }
}

/// The first control message (level, type, value) and what follows it.
fn split(bytes: &[u8]) -> Option<(c_int, c_int, &[u8], &[u8])> {
    let word = size_of::<usize>();
    let len = usize::from_ne_bytes(*bytes.first_chunk()?);
    let level = c_int::from_ne_bytes(*bytes.get(word..)?.first_chunk()?);
    let kind = c_int::from_ne_bytes(*bytes.get(word + 4..)?.first_chunk()?);
    let value = bytes.get(HEAD..len)?;
    let after = bytes.get(len.next_multiple_of(word)..).unwrap_or_default();
    Some((level, kind, value, after))
}

fn empty_header() -> libc::msghdr {
    // SAFETY: a header of C is numbers and pointers, for which zero is a value.
    unsafe { mem::zeroed() }
}

fn outcome(result: c_int) -> io::Result<()> {
    if result == 0 { Ok(()) } else { Err(io::Error::last_os_error()) }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Both ends of a connection.
    fn pair() -> [OwnedFd; 2] {
        let (one, two) = net::socketpair(AddressFamily::UNIX, SocketType::SEQPACKET, FLAGS, None).unwrap();
        [one, two]
    }

    #[test]
    fn descriptors_beyond_the_room_never_come() {
        let [sender, receiver] = pair();
        let pipe = io::pipe().unwrap().0;
        for room in 0..6 {
            for count in 0..8 {
                send(sender.as_fd(), b"some", &vec![pipe.as_raw_fd(); count]).unwrap();
                let message = receive(receiver.as_fd(), &mut [0; 8], Room::Few(room)).unwrap();
                let seen = (message.len, message.descriptors.len(), message.cut);
                assert_eq!(seen, (4, count.min(room), count > room), "{count} with room for {room}");
            }
        }
    }

    #[test]
    fn a_connection_that_was_cut_has_ended_for_both_sides() {
        let [one, two] = pair();
        let copy = one.try_clone().unwrap();
        cut(one.as_fd());
        for end in [copy, two] {
            assert_eq!(receive(end.as_fd(), &mut [0; 8], Room::None).unwrap().len, 0);
            assert!(send(end.as_fd(), b"more", &[]).is_err());
        }
    }
}
