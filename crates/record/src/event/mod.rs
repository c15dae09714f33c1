//! What a record tells: a closed list of events, each of 64 bytes.
//!
//! ```text
//!   word 0   time, in nanoseconds of the clock of the device
//!   word 1   kind (8 bits) | lap (8) | flags (16) | queue pair, shared queue or 0 (32)
//!   words 2  what differs from kind to kind
//!   to 7
//! ```
//!
//! The lap is not of the event, but of its place in a ring: it says that the event was written to its end.

mod object;
mod of;
mod packet;
mod timing;
mod work;

use ferroce_wire::Qpn;

pub use self::object::{
    Connection, ConnectionStep, Ends, QueuePair, Region, RegionKind, StateChange, Step, Way,
};
pub use self::packet::{HEADERS, MoreHeaders, Packet, PacketFlags, PacketHead, Refusal};
pub use self::timing::{Timer, TimerKind, Wait, WaitReason};
pub use self::work::{
    Begun, Completed, CompletedFlags, Doorbell, Matched, Operands, Piece, Polled, Posted, PostedFlags, Queue,
    WorkOp,
};
use crate::packing::Body;

/// Words of an event.
pub(crate) const WORDS: usize = 8;

/// Bytes of an event.
pub const EVENT_LEN: usize = WORDS * 8;

/// An event as it is written.
pub(crate) type Words = [u64; WORDS];

/// What all kinds have besides the time.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Head {
    pub(crate) flags: u16,
    /// A queue pair, or another number where there is none.
    pub(crate) number: u32,
}

impl Head {
    /// Of a queue pair, without flags.
    const fn of(qpn: Qpn) -> Self {
        Self { flags: 0, number: qpn.get() }
    }

    /// The queue pair; none if it cannot be one.
    fn qpn(self) -> Option<Qpn> {
        qpn(self.number)
    }
}

/// The queue pair with this number, if it is one of 24 bits.
fn qpn(number: u32) -> Option<Qpn> {
    (number < 1 << 24).then(|| Qpn::new(number))
}

/// One kind of event.
pub(crate) trait Kind: Sized {
    /// Its number in the file. A number is never used again for something else.
    const KIND: u8;

    fn head(&self) -> Head;

    fn body(&self) -> Body;

    /// The event with these; none if no writer of ours writes such a one.
    fn read(head: Head, body: &Body) -> Option<Self>;
}

/// Makes the list of events from that of their kinds.
macro_rules! events {
    ($($(#[$doc:meta])* $name:ident($type:ty),)*) => {
        /// Something that happened.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum Event {
            $($(#[$doc])* $name($type),)*
        }

        impl Event {
            /// The event with these words.
            fn read(kind: u8, head: Head, body: &Body) -> Option<Self> {
                match kind {
                    $(<$type as Kind>::KIND => <$type as Kind>::read(head, body).map(Self::$name),)*
                    _ => None,
                }
            }

            /// The words of the event, without time and lap.
            // Events are made where they are written: which one it is is known there.
            #[inline(always)]
            pub(crate) fn words(&self) -> Words {
                match self {
                    $(Self::$name(event) => words(event),)*
                }
            }
        }

        $(impl From<$type> for Event {
            #[inline(always)]
            fn from(event: $type) -> Self {
                Self::$name(event)
            }
        })*
    };
}

events! {
    /// A program posted work.
    Posted(Posted),
    /// One more piece of memory of work that has several; it comes after [`Event::Posted`].
    Piece(Piece),
    /// The numbers of an atomic; they come after [`Event::Posted`].
    Operands(Operands),
    /// A program told the device that it has posted work.
    Doorbell(Doorbell),
    /// The machine began with work: its packets have these numbers.
    Begun(Begun),
    /// A packet left or came.
    Packet(Packet),
    /// The rest of the headers of the packet before.
    MoreHeaders(MoreHeaders),
    /// The addresses of the datagram before.
    Ends(Ends),
    /// A timer fired.
    Timer(Timer),
    /// Work waits for something.
    Wait(Wait),
    /// Work ended.
    Completed(Completed),
    /// A program took a completion from its queue.
    Polled(Polled),
    /// A message took a receive.
    Matched(Matched),
    /// A queue pair is in another state.
    State(StateChange),
    /// A queue pair was made, or is gone.
    QueuePair(QueuePair),
    /// A queue pair knows its peer and the way there.
    Way(Way),
    /// Memory was registered, or is no more.
    Region(Region),
    /// A connection came, or went.
    Connection(Connection),
}

/// The words of an event, without time and lap.
#[inline]
pub(crate) fn words<K: Kind>(event: &K) -> Words {
    let (head, body) = (event.head(), event.body());
    let first = u64::from(K::KIND) | u64::from(head.flags) << 16 | u64::from(head.number) << 32;
    let mut words = [0, first, 0, 0, 0, 0, 0, 0];
    words[2..].copy_from_slice(&body);
    words
}

impl Event {
    /// The event with these words; none if they are not one that is known here.
    #[expect(clippy::cast_possible_truncation, reason = "fields of a word")]
    pub(crate) fn from_words(words: &Words) -> Option<Self> {
        let [_, first, body @ ..] = words;
        let head = Head { flags: (first >> 16) as u16, number: (first >> 32) as u32 };
        Self::read(*first as u8, head, body)
    }
}

#[cfg(test)]
mod tests;
