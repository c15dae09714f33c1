//! Why two processes have no lane between them, in words for a person that asks: why the wire?

use std::fmt;

use thiserror::Error;

/// Why a process has no lane to the owner of a slot.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NoLane {
    /// The slot is of this process.
    #[error("slot {slot} is of this process, too: the local path leads there")]
    SameProcess {
        /// Which.
        slot: u8,
    },
    /// This process was forked from the one that owns the slot.
    #[error("the device was opened before a fork, and belongs to the parent; open it anew")]
    Forked,
    /// The user of this process is one that the kernel shows for others, too.
    #[error(
        "this process runs as uid {uid}, which is also how the kernel shows users that it cannot name: processes of \
         other users could look like its own; run it as another user"
    )]
    UserUnknown {
        /// As which.
        uid: u32,
    },
    /// A descriptor that comes from another process could end the record locks of this one.
    #[error(
        "this system lets no thread have descriptors of its own (close_range of Linux 5.9, or unshare), so this process \
         takes none from others"
    )]
    LocksOfProcess,
    /// More descriptors than one message takes.
    #[error("{count} descriptors were offered, and at most {most} can be")]
    TooManyOffered {
        /// How many.
        count: usize,
        /// How many can be.
        most: usize,
    },
    /// The slot has no owner that lives.
    #[error("no process owns slot {slot}")]
    NoOwner {
        /// Which.
        slot: u8,
    },
    /// The owner takes no offers.
    #[error(
        "the process that owns slot {slot} takes no offers: it runs as an unknown user, its system does not allow it, it \
         had no descriptor for it, or this thread is in another network namespace"
    )]
    NotListening {
        /// Which.
        slot: u8,
    },
    /// The socket where the owner should be is another user's.
    #[error("what listens for the owner of slot {slot} is of another user")]
    OtherUser {
        /// Which.
        slot: u8,
    },
    /// The owner speaks another version of the protocol.
    #[error(
        "the process that owns slot {slot} speaks version {theirs} of the switchboard's protocol, and this is version \
         {ours}"
    )]
    OtherVersion {
        /// Which.
        slot: u8,
        /// Its version.
        theirs: u16,
        /// Ours.
        ours: u16,
    },
    /// The owner went before it had answered, or the slot has another one by now.
    #[error("the process that owned slot {slot} went before it had answered")]
    Gone {
        /// Which.
        slot: u8,
    },
    /// The owner does not answer.
    #[error("the process that owns slot {slot} did not answer in {millis} ms; is it stopped?")]
    NoAnswer {
        /// Which.
        slot: u8,
        /// How long we waited.
        millis: u64,
    },
    /// This process may not have as many descriptors, or not as many under way.
    #[error("this process has no descriptors left: raise its limit (ulimit -n)")]
    NoDescriptors,
    /// The owner has answered, and refused.
    #[error("the process that owns slot {slot} refused: {why}")]
    Refused {
        /// Which.
        slot: u8,
        /// Why.
        why: LaneRefusal,
    },
    /// The answer of the owner is none.
    #[error("the process that owns slot {slot} answered with something else; it breaks the rules")]
    BrokenAnswer {
        /// Which.
        slot: u8,
    },
    /// The operating system refused something else.
    #[error("the operating system refused a connection to the process that owns slot {slot} (error {code})")]
    System {
        /// Which.
        slot: u8,
        /// Its number for the reason.
        code: i32,
    },
}

/// Writes the reasons once, with their numbers in messages and their words.
macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident = $code:literal, $words:literal;)*) => {
        /// Why a process refuses the descriptors that the owner of another slot offers.
        #[derive(Clone, Copy, Debug, PartialEq, Eq)]
        #[non_exhaustive]
        pub enum LaneRefusal {
            $($(#[$doc])* $name,)*
        }

        impl LaneRefusal {
            #[cfg(test)]
            pub(super) const ALL: &[Self] = &[$(Self::$name,)*];

            /// As it stands in a message.
            pub(super) const fn code(self) -> u8 {
                match self {
                    $(Self::$name => $code,)*
                }
            }

            /// What this stands for.
            pub(super) const fn of_code(code: u8) -> Option<Self> {
                match code {
                    $($code => Some(Self::$name),)*
                    _ => None,
                }
            }
        }

        impl fmt::Display for LaneRefusal {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str(match self {
                    $(Self::$name => $words,)*
                })
            }
        }
    };
}

reasons! {
    /// Both offered at the same moment, and its own offer stands.
    TheirsStands = 1, "it made an offer at the same moment, which stands";
    /// Its settings do not allow it.
    Forbidden = 2, "its settings do not allow it";
    /// What was offered is not what it should be.
    Broken = 3, "what was offered is not what it should be";
    /// It has no memory for it.
    NoMemory = 4, "it has no memory left for it";
    /// It may not have as many descriptors.
    NoDescriptors = 5, "it has no descriptors left";
    /// It has as many connections as it takes.
    Busy = 6, "it has as many connections as it takes";
    /// Its device is not open yet, or not any more.
    NotReady = 7, "its device is not open yet, or not any more";
    /// It does not own the slot, or took it anew.
    NotTheOwner = 8, "it does not own the slot any more";
    /// The slot that the offer comes from has another owner, or none.
    UnknownSender = 9, "it sees another owner of the slot that the offer came from, or none";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_read_as_they_were_written() {
        for why in LaneRefusal::ALL {
            assert_eq!(LaneRefusal::of_code(why.code()), Some(*why));
            assert!(!why.to_string().is_empty());
        }
        let known = (0..=u8::MAX).filter_map(LaneRefusal::of_code).count();
        assert_eq!(known, LaneRefusal::ALL.len(), "each has a number of its own");
    }
}
