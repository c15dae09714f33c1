//! Bugs planted on purpose, to show that the simulator finds them.
//!
//! Without the feature `planted` every question here is answered "no" at compile time and
//! nothing of this is left. With it, `plant` switches one bug on for the whole process.

/// Writes the list of bugs once.
macro_rules! bugs {
    ($($(#[doc = $doc:literal])* $bug:ident,)*) => {
        /// A mistake that could be made in these machines.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[repr(u8)]
        pub enum Bug {
            $($(#[doc = $doc])* $bug,)*
        }

        impl Bug {
            /// All of them.
            pub const ALL: &'static [Self] = &[$(Self::$bug,)*];

            /// What is wrong, in words.
            #[must_use]
            pub const fn what(self) -> &'static str {
                match self { $(Self::$bug => concat!($($doc,)*).trim_ascii_start(),)* }
            }
        }
    };
}

bugs! {
    /// A repeated SEND or WRITE is executed again instead of only acknowledged.
    DuplicateExecuted,
    /// A request after a gap is taken as if nothing were missing.
    GapAccepted,
    /// The last packet of a WRITE is acknowledged but never placed.
    AcknowledgedBeforePlacement,
    /// A repeated atomic is executed a second time.
    AtomicTwice,
    /// The wait after an RNR NAK never ends.
    LostRnrTimer,
    /// A READ that is restarted in the middle asks for the memory of the packet before.
    ReadRestartAddress,
    /// PSNs are compared as plain numbers, which fails where they wrap.
    PsnWrap,
    /// The acknowledgement of something later completes a READ whose answer is missing.
    ImpliedNakIgnored,
    /// Work completes when its last packet is sent, not when it is acknowledged.
    CompletedWhenSent,
    /// The window is not given back when sending goes back.
    WindowLeak,
    /// Retries are not renewed by progress.
    RetriesNotRenewed,
    /// A fence does not wait.
    FenceIgnored,
    /// The second piece of a scattered message begins one byte too early.
    ScatterOffset,
    /// UC goes on with a message after a gap.
    UcGapAccepted,
    /// A datagram with a wrong Q_Key is delivered.
    QKeyIgnored,
    /// Receives are not flushed when a queue pair fails.
    ReceivesNotFlushed,
    /// More READs are sent than the responder can hold.
    ReadDepthIgnored,
    /// The time-out is not started again after sending went back.
    TimeoutNotRestarted,
    /// The key of a repeated READ is not looked at.
    RepeatedReadKeyUnchecked,
    /// A repeated READ may ask for more than the first one.
    RepeatedReadTooLong,
    /// A READ is answered although its key is gone.
    ReadAnsweredWithoutKey,
    /// The last packet of a WRITE may have any length.
    WriteEndUnchecked,
    /// A WRITE may go on beyond the length that it began with.
    WriteGoesOn,
    /// A packet inside a message may be short.
    ShortPacketTaken,
    /// A middle or last packet may come without a first one.
    SegmentOrderUnchecked,
    /// The rights of the queue pair are not looked at.
    RightsUnchecked,
    /// A packet from nowhere is taken for a loss.
    ImplausibleGapTold,
    /// An acknowledgement of what was never sent is believed.
    GhostAckBelieved,
    /// The message number of an acknowledgement is believed.
    MessageNumberBelieved,
    /// The answer to a READ may have any length.
    ReadAnswerLengthUnchecked,
    /// The answer to a READ is taken for that to a WRITE.
    ReadAnswerToWrite,
    /// The answer to an atomic is taken for that to a READ.
    AtomicAnswerToRead,
}

#[cfg(feature = "planted")]
mod active {
    use core::sync::atomic::{AtomicU8, Ordering};

    const NONE: u8 = u8::MAX;
    static ACTIVE: AtomicU8 = AtomicU8::new(NONE);

    /// Switches this bug on, and any other off; `None` switches all off.
    pub fn plant(bug: Option<super::Bug>) {
        ACTIVE.store(bug.map_or(NONE, |bug| bug as u8), Ordering::Relaxed);
    }

    pub(crate) fn is_planted(bug: super::Bug) -> bool {
        ACTIVE.load(Ordering::Relaxed) == bug as u8
    }
}

#[cfg(feature = "planted")]
pub(crate) use active::is_planted;
#[cfg(feature = "planted")]
pub use active::plant;

#[cfg(not(feature = "planted"))]
#[inline]
pub(crate) const fn is_planted(_bug: Bug) -> bool {
    false
}
