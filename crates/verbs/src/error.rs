//! Why something was refused: lists of reasons, each with what was given, what is allowed and what to do.
//!
//! What caused an error is its source, and is not part of its own text: [`Chain`](crate::Chain) prints both.

use std::fmt;
use std::io;
use std::net::IpAddr;
use std::time::Duration;

use ferroce_wire::{Gid, Qpn, Rkey, Service};
use thiserror::Error;

use crate::capability::Unsupported;

pub use crate::object_error::{CreateError, QpError};
pub use ferroce_device::discovery::DiscoveryError;
pub use ferroce_device::memory::{AccessError, MemoryError};
pub use ferroce_device::{NicOpenError, RouteError, SettingError};
pub use ferroce_system::{CallError, LibraryError, LoaderMessage, OpenCardError, RegisterError};

/// Why a device could not be opened, or devices not be listed.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum OpenError {
    /// The interfaces of this machine cannot be listed.
    #[error("the operating system did not list its interfaces")]
    Interfaces(#[source] io::Error),
    /// The device is not among those that the user opened for RDMA.
    #[error(
        "{name:?} is not offered as a device; {offered:?} are. Memory is exposed to every program that can send \
         to a device, so name its interface in FERROCE_NETDEV first"
    )]
    NotOffered {
        /// What was asked for.
        name: String,
        /// What there is.
        offered: Vec<String>,
    },
    /// `FERROCE_PROVIDER` does not mean anything.
    #[error("FERROCE_PROVIDER: {given:?} is none of soft, system and auto")]
    UnknownProvider {
        /// What it is.
        given: String,
    },
    /// The list in `FERROCE_NETDEV` is wrong.
    #[error("no device can be chosen (FERROCE_NETDEV says which)")]
    Discovery(#[from] DiscoveryError),
    /// A variable of the environment does not mean anything.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The device refused.
    #[error(transparent)]
    Device(#[from] NicOpenError),
    /// There is no library of verbs on this machine, or it cannot be used.
    #[error("the cards of this machine cannot be asked for")]
    Library(#[from] LibraryError),
    /// The library does not list the cards.
    #[error("the cards of this machine cannot be listed")]
    Cards(#[from] CallError),
    /// The card was not opened.
    #[error(transparent)]
    Card(#[from] OpenCardError),
    /// The port of the card is not one of Ethernet.
    #[error("{name} has a port of InfiniBand; only cards with Ethernet ports (RoCEv2) are used")]
    NotEthernet {
        /// The card.
        name: String,
    },
    /// The device cannot be set up as it was asked for.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
}

impl OpenError {
    /// Whether a device at one address was asked for and another one has all addresses of the interface, or the other way
    /// round. Then the device that is there can be used instead.
    #[must_use]
    pub const fn overlaps(&self) -> bool {
        matches!(self, Self::Device(error) if error.overlaps())
    }
}

/// Why a queue pair could not be made.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A queue completes nowhere.
    #[error(
        "the {queue} queue has no completion queue; name one with completion_queue, send_queue or \
         receive_queue"
    )]
    NoCompletionQueue {
        /// Send or receive.
        queue: &'static str,
    },
    /// The address is not of this device.
    #[error("the device does not have the address {address}; it has {has:?}")]
    ForeignAddress {
        /// What was asked for.
        address: IpAddr,
        /// The GID table.
        has: Vec<Gid>,
    },
    /// The device refused.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// The new queue pair could not be moved to INIT.
    #[error(transparent)]
    Modify(#[from] QpError),
}

/// Why a queue pair could not be brought to work.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum QpConnectError {
    /// The method is for another service.
    #[error("queue pair {qpn} is {}: use {instead}", service.name())]
    WrongService {
        /// The queue pair.
        qpn: Qpn,
        /// Its service.
        service: Service,
        /// The method for it.
        instead: &'static str,
    },
    /// A step was refused. The queue pair is in the state that it had reached.
    #[error("queue pair {qpn} cannot be connected")]
    Refused {
        /// The queue pair.
        qpn: Qpn,
        /// Why.
        #[source]
        error: QpError,
    },
}

/// The object that refused work.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PostTarget {
    /// A queue pair.
    QueuePair(Qpn),
    /// A shared receive queue, by its number.
    SharedReceiveQueue(u32),
    /// A memory window that is bound at once, by its key.
    Window(Rkey),
}

impl fmt::Display for PostTarget {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::QueuePair(qpn) => write!(f, "queue pair {qpn}"),
            Self::Window(key) => write!(f, "the memory window with key {key}"),
            Self::SharedReceiveQueue(number) => write!(f, "shared receive queue {number}"),
        }
    }
}

/// Why work was not taken. Nothing has changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum PostError {
    /// The queue refused it.
    #[error("{by} did not take the work")]
    Refused {
        /// Which.
        by: PostTarget,
        /// Why.
        #[source]
        error: ferroce_transport::PostError,
    },
    /// A local slice reaches beyond its region.
    #[error("bytes {start}..{end} are not inside a memory region of {size} bytes; slice what is inside")]
    OutsideRegion {
        /// First byte.
        start: usize,
        /// The byte after the last.
        end: usize,
        /// Bytes of the region.
        size: usize,
    },
    /// A remote slice reaches beyond its region.
    #[error("bytes {start}..{end} are not inside a remote region of {size} bytes; slice what is inside")]
    OutsideRemote {
        /// First byte.
        start: u64,
        /// The byte after the last.
        end: u64,
        /// Bytes of the region.
        size: u64,
    },
    /// The remote slice has no room for the bytes, or not as many as are wanted.
    #[error("{local} bytes here, but the remote slice has {remote}; make the two fit")]
    RemoteTooShort {
        /// Bytes of the local pieces.
        local: u64,
        /// Bytes of the remote slice.
        remote: u64,
    },
    /// A slice longer than any message.
    #[error("a piece of {len} bytes is longer than any message; post several of at most 2147483648 bytes")]
    PieceTooLong {
        /// Bytes of the piece.
        len: usize,
    },
    /// More pieces than any queue pair takes.
    #[error("{given} pieces; no request takes more than {allowed}")]
    TooManyPieces {
        /// Pieces given.
        given: usize,
        /// Pieces allowed.
        allowed: u32,
    },
    /// The memory region belongs to another protection domain.
    #[error(
        "{by} cannot use a memory region of another protection domain; register the memory in the domain of \
         the queue too"
    )]
    OtherDomain {
        /// Which queue.
        by: PostTarget,
    },
    /// A group of queue pairs has one number for all, and other destinations have not.
    #[error("{qpn} is no queue pair at this address; a multicast group has the number {}", Qpn::MULTICAST)]
    NotOfGroup {
        /// What was given.
        qpn: Qpn,
    },
    /// The address handle belongs to another device.
    #[error("queue pair {qpn} cannot use an address handle of another device; make one from its own")]
    OtherDevice {
        /// The queue pair.
        qpn: Qpn,
    },
    /// Immediate data or a key to invalidate, on an operation that carries none.
    #[error("{what} goes with {allowed}, not with {operation}")]
    NotCarried {
        /// What was given.
        what: &'static str,
        /// What carries it.
        allowed: &'static str,
        /// What was asked for.
        operation: &'static str,
    },
    /// A receive of one queue in the batch of another.
    #[error("a receive of {work} cannot go into a batch of {batch}")]
    OtherQueue {
        /// Of the receive.
        work: PostTarget,
        /// Of the batch.
        batch: PostTarget,
    },
    /// Work of one queue pair in the batch of another.
    #[error("work of queue pair {work} cannot go into a batch of queue pair {batch}")]
    OtherQueuePair {
        /// Of the work.
        work: Qpn,
        /// Of the batch.
        batch: Qpn,
    },
    /// The card, or its library, refused it.
    #[error("{by} did not take the work")]
    Card {
        /// Which.
        by: PostTarget,
        /// Why.
        #[source]
        error: CallError,
    },
    /// The device cannot do this.
    #[error(transparent)]
    Unsupported(Unsupported),
}

/// Why a batch was not taken whole: the first `taken` requests are posted, the next one was refused,
/// and the rest was not looked at.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[error("{taken} of {given} requests were posted, and the next was refused")]
pub struct BatchError {
    /// Requests that were posted, and will complete.
    pub taken: usize,
    /// Requests in the batch.
    pub given: usize,
    /// Why the next was refused.
    #[source]
    pub error: PostError,
}

/// Why waiting ended without a result.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WaitError {
    /// The time is over.
    #[error("nothing within {0:?}; wait longer, or see whether the work was posted and signaled")]
    TimedOut(Duration),
    /// The completion queue was too small: completions are lost and its queue pairs in error.
    #[error("the completion queue for {capacity} completions was overrun; make it larger and poll sooner")]
    Overrun {
        /// What it holds.
        capacity: u32,
    },
    /// This process was forked from the one that opened the device.
    #[error("the device was opened before a fork, and belongs to the parent; open it anew")]
    Forked,
    /// The operating system does not let us wait.
    #[error("the operating system refused to wait: {0}")]
    System(io::ErrorKind),
}

/// Why text or bytes are no address of a queue pair, or no remote region.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ParseAddressError {
    /// The number of bytes is wrong.
    #[error("{given} bytes, {needed} needed; send what to_bytes gives")]
    Length {
        /// Bytes given.
        given: usize,
        /// Bytes needed.
        needed: usize,
    },
    /// A part does not mean anything.
    #[error(
        "the {part} cannot be read; the form is QPN/PSN/MTU@ADDRESS, such as 0x0112ab/0x3c51d2/4096@192.0.2.1"
    )]
    Part {
        /// Which.
        part: &'static str,
    },
}

/// Why a datagram's header cannot be read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HeaderError {
    /// The forty bytes are not inside the region.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// The bytes are no header.
    #[error("no datagram header at offset {offset}: give the offset at which the receive began")]
    NotThere {
        /// Where.
        offset: usize,
    },
    /// So few bytes are no header.
    #[error("{given} bytes are no datagram header, which has 40: give all that was received")]
    TooShort {
        /// Bytes.
        given: usize,
    },
}

/// Why a datagram cannot be answered.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ReplyError {
    /// The completion says nothing of a sender.
    #[error("completion {id} is not of a datagram that arrived: give that of its receive")]
    NotADatagram {
        /// The program's name for the work.
        id: u64,
    },
    /// The way back leads nowhere.
    #[error(transparent)]
    Address(#[from] CreateError),
    /// The queue pair cannot tell its Q_Key.
    #[error(transparent)]
    QueuePair(#[from] QpError),
}
