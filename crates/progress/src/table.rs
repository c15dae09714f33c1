//! Every constant of progress, with its unit, its reason and the figure that it serves.
//!
//! The figures are rows of `cargo xtask bench --only device`; [`TABLE`] lists them all for programs and
//! tests.

use std::time::Duration;

/// Makes the constants, and a list of them.
macro_rules! constants {
    ($($(#[doc = $why:literal])+ $name:ident: $type:ty = $value:expr, $unit:literal, $row:literal;)+) => {
        $(
            $(#[doc = $why])+
            #[doc = ""]
            #[doc = concat!("Unit: ", $unit, ". Serves: ", $row, ".")]
            pub const $name: $type = $value;
        )+

        /// All constants of progress: name, value, unit, and the row of the benchmark that each serves.
        pub const TABLE: &[Constant] = &[
            $(Constant { name: stringify!($name), value: stringify!($value), unit: $unit, serves: $row },)+
        ];
    };
}

/// A row of [`TABLE`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Constant {
    /// The name of the constant.
    pub name: &'static str,
    /// The value, as it is written here.
    pub value: &'static str,
    /// What the value counts.
    pub unit: &'static str,
    /// The row of the benchmark that a change of it moves first.
    pub serves: &'static str,
}

constants! {
    // The driver.

    /// Polls that found nothing before the driver is parked: a program that asks so often in vain is waiting,
    /// and takes packets in sooner than a thread that has to be woken first.
    PARK_AFTER: u8 = 4, "polls", "SEND 64 B, RTT/2, both poll";
    /// The same where the program has asked for an event on a channel: its thread may go to sleep on the descriptor of that
    /// after its next poll, which cannot be seen. So many polls in a row since it last asked are of one that polls.
    PARK_AFTER_ASKED: u8 = 250, "polls", "tag_lat of ucx_perftest, which asks and polls";
    /// Polls that found something, beside those in vain, if such a program was found gone a moment ago: one that sleeps for its
    /// events asks again each time.
    FOUND_IN_DOUBT: u8 = 16, "polls", "tag_lat of ucx_perftest, which asks and polls";
    /// Polls that found something before the driver is parked: a program that keeps coming needs no driver to
    /// go before it, although it never has to wait.
    PARK_AFTER_FINDING: u8 = 64, "polls", "WRITE 64 B rate, lists of 16, depth 128";
    /// How long only polls that found nothing park the driver, once a program was found to look elsewhere
    /// than in its completion queue: it may be one that waits for its memory to change.
    DOUBT: Duration = Duration::from_secs(1), "time", "WRITE 8 B, RTT/2, target spins on memory";
    /// How often a parked driver looks whether the program still polls; a packet for a program that stopped
    /// waits so long at most.
    TICK: Duration = Duration::from_millis(1), "time", "WRITE 8 B, RTT/2, target spins on memory";
    /// Looks without a poll before a driver that is not parked stops looking, and waits for packets and timers
    /// only. Each waits twice as long as the one before. A thread that parks the driver later than that has to
    /// wake it, which takes no more than a look does: so one look is enough for those that come back soon.
    QUIET_LOOKS: u32 = 1, "looks", "20 probes/s, of a core";
    /// Polls that find packets and arm the driver at once, after a program was found gone: such a program
    /// polls for its own work and then turns to its memory, again and again.
    PERMITS: u8 = 16, "polls", "WRITE 64 B, RTT/2, target spins on memory";
    /// Sockets that a thread of the program sleeps on in the driver's place; an engine with more leaves them
    /// to its driver.
    SEAT_SOCKETS: usize = 4, "sockets", "SEND 64 B, RTT/2, both asleep";

    // Entering, polling and leaving.

    /// Times that a thread which leaves an engine goes round again because others have rung; then the driver
    /// comes.
    ROUNDS: usize = 3, "turns", "local SEND 64 B, RTT/2, two threads asleep";
    /// Engines that a thread calls on after leaving its own, before it sends their drivers.
    ERRANDS: usize = 16, "engines", "local SEND 64 B, RTT/2, two threads asleep";
    /// Polls between two looks at a socket whose packets concern no queue pair: they are counted and thrown
    /// away.
    POLLS_BETWEEN_LOOKS: u64 = 256, "polls", "poll of an empty queue, local queue pairs only";
    /// Polls with nothing to do until one makes a whole turn although nothing seems to have happened.
    IDLE_POLLS: u64 = 32, "polls", "poll of an empty queue, with a wire";
    /// Polls with nothing to do until one asks the clock whether a timer is due: that takes a tenth of a poll, and timers of packets
    /// have time. A program that polls once a millisecond is so many of them late.
    POLLS_BETWEEN_CLOCKS: u64 = 4, "polls", "SEND 64 B, RTT/2, both poll";
    /// Polls that find the engine taken before the thread lets others have its processor: about as long as a
    /// turn.
    SHUT_OUT: u32 = 64, "polls", "local SEND 64 B, RTT/2, two threads asleep";
    /// Polls between two looks at the clock, while a thread looks for a moment before it sleeps.
    POLLS_PER_CLOCK: usize = 8, "polls", "SEND 64 B, RTT/2, both asleep";
    /// How long a process that ends waits for an engine that another thread has: that may be the thread that
    /// ends it.
    PATIENCE: u32 = 50, "milliseconds", "none: the end of a process";

    // Where there are more threads than processors.

    /// Polls in vain, one after the other, until the thread lets others have its processor: several round trips, since a peer
    /// that runs would have answered.
    YIELD_AFTER: u64 = 128, "polls", "WRITE 1 MiB beside a busy loop on each core, depth 16";
    /// A thread that has its processor back so soon shared it with no other.
    YIELD_FREE: Duration = Duration::from_micros(10), "time", "SEND 64 B, RTT/2, both poll";
    /// A thread that has its processor back so soon shared it with one that had little to do, as a peer has.
    YIELD_BRIEF: Duration = Duration::from_millis(1), "time", "WRITE 1 MiB beside a busy loop on each core, depth 16";
    /// What this adds to the score of letting others run; once that took longer takes 1 away.
    YIELD_GAIN: u32 = 4, "score", "WRITE 1 MiB beside a busy loop on each core, depth 16";
    /// The highest score: so many times that took long, one after the other, end it.
    YIELD_MOST: u32 = 8, "score", "WRITE 1 MiB beside a busy loop on each core, depth 16";
    /// How long it then takes until it is tried again.
    YIELD_RETRY: Duration = Duration::from_millis(100), "time", "WRITE 1 MiB beside a busy loop on each core, depth 16";

    // Looking before sleeping.

    /// How long a thread looks for completions before it sleeps, if that pays: to be woken takes longer than
    /// most answers do.
    SPIN: Duration = Duration::from_micros(25), "time", "SEND 64 B, RTT/2, both asleep";
    /// What a look that found something adds to the score of looking; one in vain takes 1 away.
    SPIN_GAIN: u32 = 2, "score", "SEND 64 B, RTT/2, both asleep";
    /// The highest score: so many looks in vain, one after the other, end the looking.
    SPIN_MOST: u32 = 16, "score", "SEND 64 B, RTT/2, both asleep";
    /// Waits that sleep at once, until looking is tried again.
    SPIN_RETRY: u32 = 256, "waits", "SEND 64 B, RTT/2, both asleep";

    /// How long a driver goes on to look, as packets come, before it asks again whether the program lets its processors rest.
    LOOKOUT: Duration = Duration::from_micros(200), "time", "READ 8 B, RTT/2, target idle";

    // Acknowledgements.

    /// How long the driver keeps an acknowledgement back at least, for an answer of the program to take it
    /// along.
    ACK_SHORTEST: Duration = Duration::from_micros(100), "time", "WRITE 8 B, RTT/2, target spins on memory";
    /// How long at most: the peer that waits for it should not begin to ask.
    ACK_LONGEST: Duration = Duration::from_micros(500), "time", "WRITE 8 B, RTT/2, target spins on memory";
    /// What an answer in time adds to the score of waiting for answers; a wait in vain takes 1 away.
    ACK_GAIN: u8 = 2, "score", "WRITE 8 B, RTT/2, target spins on memory";
    /// The highest score: so many waits in vain, one after the other, end the waiting.
    ACK_MOST: u8 = 16, "score", "WRITE 8 B, RTT/2, target spins on memory";
    /// How long an acknowledgement waits for a packet to ride with, if no thread looks again.
    ACK_RIDE: Duration = Duration::from_millis(1), "time", "SEND 64 B, RTT/2, both poll";

    // Gathering.

    /// How soon after the post before it one belongs to the same stream.
    GATHER_GAP: Duration = Duration::from_micros(5), "time", "WRITE 64 B rate, single posts, depth 128";
    /// Packets under way with which a post belongs to a stream, whenever the one before it was.
    GATHER_BUSY: u32 = 16, "packets", "WRITE 64 B rate, single posts, depth 128";
    /// Posts of a stream that leave at once: two in a row are no stream yet.
    GATHER_AFTER: u8 = 2, "posts", "WRITE 64 B rate, single posts, depth 128";
    /// Messages that leave together: with 128 under way, half of them. An alarm has to be set for each lot, which costs more
    /// than the ends lose by waiting for each other.
    GATHER_MESSAGES: u32 = 64, "messages", "WRITE 64 B rate, single posts, depth 128";
    /// Bytes of messages that leave together: about the largest run of packets.
    GATHER_BYTES: u64 = 60_000, "bytes", "WRITE 64 KiB, depth 16";
    /// How long the oldest waits, if the program goes on to post.
    GATHER_LONGEST: Duration = Duration::from_micros(10), "time", "WRITE 64 B rate, single posts, depth 128";
    /// Packets under way with which a poll leaves those waiting that wait: the peer has enough to do.
    GATHER_DEEP: u32 = 64, "packets", "WRITE 64 B rate, single posts, depth 128";
    /// How long the oldest waits, if the program does something else: then the driver sends it.
    GATHER_ALARM: Duration = Duration::from_micros(20), "time", "wait for company";
    /// An alarm that goes off sooner than this is set again: a stream should not hear it.
    GATHER_SPARE: Duration = Duration::from_micros(12), "time", "WRITE 64 B rate, single posts, depth 128";
    /// Posts that leave at once after a program had others wait and went away.
    GATHER_RESTS: u16 = 16, "posts", "wait for company";
    /// The same after it did so again and again.
    GATHER_RESTS_MOST: u16 = 512, "posts", "wait for company";

    // A turn.

    /// Looks at the sockets in one turn of the driver, before other threads may have the engine.
    TURN_LOOKS: usize = 8, "looks", "WRITE 1 MiB, depth 16, target asleep";
    /// A timer that comes up so much too late says more about this process than about the peer: it is started
    /// anew.
    LATE: Duration = Duration::from_millis(20), "time", "none: a process that was stopped";
    /// How soon to call a fabric again that keeps packets back, as one with planned faults does.
    HELD: Duration = Duration::from_micros(100), "time", "WRITE 1 MiB under 1 % loss, depth 16, mean";
    /// More packets than this in one look are a stream: their acknowledgements do not wait for a ride, but
    /// for what is left in the socket.
    STREAM: usize = 4, "packets", "WRITE 1 MiB, depth 16";
    /// What of a stream is acknowledged at the latest, although more is there: about the largest run of
    /// packets. Else a peer whose window holds little more than that could not send while this one takes in.
    STREAM_BYTES: usize = 60_000, "bytes", "WRITE 1 MiB into 208 KiB, depth 16";
    /// What a packet of a stream counts for at least.
    PACKET_BYTES: usize = 1_000, "bytes", "WRITE 64 B rate, lists of 32, depth 4096";
}
