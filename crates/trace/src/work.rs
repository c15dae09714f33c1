//! One work request, with all that happened to it.

use ferroce_record::{
    Begun, Completed, CompletedFlags, Ends, HEADERS, MoreHeaders, Operands, Packet, PacketFlags, Piece,
    Posted, PostedFlags, Wait,
};
use ferroce_transport::Status;
use ferroce_wire::Qpn;

/// A packet, and when.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketAt {
    /// When it left or came, in nanoseconds of the clock of the device.
    pub time: u64,
    /// The packet.
    pub packet: Packet,
    /// The rest of its headers, if they are long.
    pub more: Option<MoreHeaders>,
    /// Its addresses, if it is a datagram.
    pub ends: Option<Ends>,
}

impl PacketAt {
    /// Its transport headers, as they were on the wire.
    #[must_use]
    pub fn headers(&self) -> Vec<u8> {
        let (bytes, len) = self.header_bytes();
        bytes[..len].to_vec()
    }

    /// The same, and how many bytes they are.
    pub(crate) fn header_bytes(&self) -> ([u8; LONGEST], usize) {
        let mut bytes = [0; LONGEST];
        bytes[..HEADERS].copy_from_slice(&self.packet.headers);
        let held = match &self.more {
            Some(more) => {
                let room = &mut bytes[HEADERS..];
                let held = room.len().min(more.bytes.len());
                room[..held].copy_from_slice(&more.bytes[..held]);
                HEADERS + held
            }
            None => HEADERS,
        };
        (bytes, usize::from(self.packet.headers_len).min(held))
    }

    /// Bytes from its first header to its ICRC, with the bytes that fill the payload up.
    #[must_use]
    pub fn wire_len(&self) -> usize {
        usize::from(self.packet.headers_len) + usize::from(self.packet.payload).next_multiple_of(4) + ICRC
    }
}

/// The longest headers that a record holds.
pub(crate) const LONGEST: usize = HEADERS + 48;

/// Bytes of the ICRC.
const ICRC: usize = 4;

/// The message that a receive met.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Arrival {
    /// When its first packet came.
    pub time: u64,
    /// The number of that packet.
    pub psn: u32,
}

/// The state of a work request, as people speak of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum WorkState {
    /// It is in its queue.
    Posted,
    /// The device is at it.
    Processing,
    /// It ended well.
    Completed,
    /// It failed.
    Error,
}

/// The state of a completion.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum CompletionState {
    /// It waits in its queue.
    Pending,
    /// The program has taken it.
    Polled,
    /// The program has come back to the queue pair.
    Processed,
}

/// A work request, with all that happened to it. Times are nanoseconds of the clock of the device.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Work {
    /// When it was posted.
    pub posted_at: u64,
    /// What was posted.
    pub posted: Posted,
    /// Pieces of memory beyond the first.
    pub pieces: Vec<Piece>,
    /// The numbers of an atomic.
    pub operands: Option<Operands>,
    /// When the device was told of it.
    pub doorbell_at: Option<u64>,
    /// When the device began with it, and which packets it has. It is told of work that has several packets, or none;
    /// else [`begun_at`](Self::begun_at) says when.
    pub begun: Option<(u64, Begun)>,
    /// Its packets, in the order of their times.
    pub packets: Vec<PacketAt>,
    /// Packets beyond those that are held.
    pub more_packets: u64,
    /// When the last answer came.
    pub answered_at: Option<u64>,
    /// What it waited for.
    pub waits: Vec<(u64, Wait)>,
    /// The message that took it, if it is a receive.
    pub arrival: Option<Arrival>,
    /// When and how it ended.
    pub completed: Option<(u64, Completed)>,
    /// When the program took its completion.
    pub polled_at: Option<u64>,
    /// When the program came back to the queue pair after that, to post or to take another completion.
    pub processed_at: Option<u64>,
}

impl Work {
    pub(crate) const fn new(time: u64, posted: Posted) -> Self {
        Self {
            posted_at: time,
            posted,
            pieces: Vec::new(),
            operands: None,
            doorbell_at: None,
            begun: None,
            packets: Vec::new(),
            more_packets: 0,
            answered_at: None,
            waits: Vec::new(),
            arrival: None,
            completed: None,
            polled_at: None,
            processed_at: None,
        }
    }

    /// When the device began with it.
    #[must_use]
    pub fn begun_at(&self) -> Option<u64> {
        let is_out = |at: &&PacketAt| at.packet.flags.contains(PacketFlags::OUT);
        let first = || self.packets.iter().find(is_out).map(|at| at.time);
        let told = self.begun.map(|(time, _)| time);
        told.or_else(first).or_else(|| self.arrival.map(|arrival| arrival.time))
    }

    /// The state that it was in at the end of the record.
    #[must_use]
    pub fn state(&self) -> WorkState {
        match self.completed {
            Some((_, completed)) if completed.status == Status::Success => WorkState::Completed,
            Some(_) => WorkState::Error,
            None if self.begun_at().is_some() => WorkState::Processing,
            None => WorkState::Posted,
        }
    }

    /// The state of its completion; none if it has none, or none yet.
    #[must_use]
    pub fn completion_state(&self) -> Option<CompletionState> {
        self.has_completion().then_some(match (self.polled_at, self.processed_at) {
            (_, Some(_)) => CompletionState::Processed,
            (Some(_), None) => CompletionState::Polled,
            (None, None) => CompletionState::Pending,
        })
    }

    /// Whether a completion was written for it.
    #[must_use]
    pub fn has_completion(&self) -> bool {
        let without = CompletedFlags::QUIET | CompletedFlags::FORGOTTEN | CompletedFlags::OVERRUN;
        self.completed.is_some_and(|(_, completed)| !completed.flags.intersects(without))
    }

    /// Whether it did not end well, or its completion was lost. What was forgotten because the program wanted it is none.
    #[must_use]
    pub fn is_failure(&self) -> bool {
        self.completed.is_some_and(|(_, completed)| {
            completed.flags.contains(CompletedFlags::OVERRUN)
                || completed.status != Status::Success && !completed.flags.contains(CompletedFlags::FORGOTTEN)
        })
    }

    /// Bytes of its first piece of memory.
    #[must_use]
    pub fn first_piece(&self) -> u32 {
        let rest = self.pieces.iter().fold(0_u32, |sum, piece| sum.saturating_add(piece.sge.length));
        self.posted.length.saturating_sub(rest)
    }

    /// Whether it was posted before the record began.
    #[must_use]
    pub const fn is_earlier(&self) -> bool {
        self.posted.flags.contains(PostedFlags::EARLIER)
    }

    /// The queue pair that it is of; a receive of a shared queue has one when it has ended.
    #[must_use]
    pub fn qpn(&self) -> Option<Qpn> {
        self.posted.queue.qpn().or_else(|| self.completed.map(|(_, completed)| completed.qpn))
    }

    /// From the call that posted it to its end.
    #[must_use]
    pub fn took(&self) -> Option<u64> {
        self.completed.map(|(time, _)| time.saturating_sub(self.posted_at))
    }
}
