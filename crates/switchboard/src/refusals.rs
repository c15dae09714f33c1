//! What a process of a switchboard has refused, counted by reason.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

use ferroce_transport::cm::CmCounters;

/// Writes the reasons once, with their names.
macro_rules! reasons {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What a process of a switchboard has refused so far, counted by reason.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Refusals {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Refusals {
            /// Name and count of each reason.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }

            /// Adds what was refused elsewhere.
            pub const fn add(&mut self, other: &Self) {
                $(self.$name = self.$name.saturating_add(other.$name);)*
            }

            /// How many reasons there are.
            pub(super) const LEN: usize = [$(stringify!($name),)*].len();

            pub(super) const fn words(&self) -> [u64; Self::LEN] {
                [$(self.$name,)*]
            }

            pub(super) const fn from_words([$($name,)*]: [u64; Self::LEN]) -> Self {
                Self { $($name,)* }
            }
        }

        /// The same while they are counted.
        #[derive(Debug, Default)]
        pub(super) struct RefusalCounts {
            $($(#[$doc])* pub(super) $name: AtomicU64,)*
        }

        impl RefusalCounts {
            pub(super) fn read(&self) -> Refusals {
                Refusals { $($name: self.$name.load(Ordering::Relaxed),)* }
            }
        }
    };
}

reasons! {
    /// Connections and messages of this user's processes that broke the rules.
    violations,
    /// Connections of other users.
    foreign_connections,
    /// Letters of other users.
    foreign_letters,
    /// Connections beyond those that are taken at a time.
    connections_full,
    /// Times that another user's socket was at a name where the leader could have been.
    names_skipped,
    /// Packets from this machine that no device has sent; those that the kernel turned away are of all processes.
    foreign_source,
    /// Packets of the whole port that are for no queue pair.
    strays,
    /// Messages of connection management for which there is no process.
    mads_unclaimed,
    /// Bytes that are no packet.
    malformed,
    /// Packets with an opcode that does not exist.
    unknown_opcode,
    /// Packets with a wrong ICRC.
    icrc_errors,
    /// Packets for a queue pair that does not exist.
    unknown_qp,
    /// Packets of a connection that do not come from its peer.
    wrong_peer,
    /// Packets from the network for a queue pair that meets its peer in the process.
    wrong_path,
    /// Packets, and messages of connection management, of another partition.
    wrong_pkey,
    /// Datagrams that found the receive buffer of their socket full.
    receive_buffer_full,
    /// Requests for connections that cannot be.
    cm_invalid,
    /// Requests of queue pairs that are connected already.
    cm_stale,
    /// Requests for services that no process listens for.
    cm_unserved,
    /// Requests beyond the backlog, those that made room for others included.
    cm_backlog_full,
    /// Requests beyond those that may be half open.
    cm_half_open_full,
    /// Messages for connections that do not exist.
    cm_unknown,
    /// Messages that name a connection and do not come from its peer.
    cm_strangers,
}

impl Refusals {
    /// Adds what a connection manager has refused.
    pub const fn add_connections(&mut self, counters: &CmCounters) {
        self.cm_invalid += counters.invalid;
        self.cm_stale += counters.stale;
        self.wrong_pkey += counters.wrong_pkey;
        self.cm_unserved += counters.unserved;
        self.cm_backlog_full += counters.backlog_full + counters.crowded_out;
        self.cm_half_open_full += counters.half_open_full + counters.source_full;
        self.cm_unknown += counters.unknown;
        self.cm_strangers += counters.strangers;
    }
}

/// The reasons with a count, in one line; nothing if nothing was refused.
impl fmt::Display for Refusals {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut between = "";
        for (name, count) in self.iter().filter(|(_, count)| *count > 0) {
            write!(f, "{between}{count} {}", name.replace('_', " "))?;
            between = ", ";
        }
        Ok(())
    }
}

/// Counts one more.
pub(super) fn count(reason: &AtomicU64) {
    reason.fetch_add(1, Ordering::Relaxed);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn refusals_read_as_they_were_written() {
        let words = std::array::from_fn(|at| at as u64 + 1);
        let refusals = Refusals::from_words(words);
        assert_eq!(refusals.words(), words);
        let few = Refusals { foreign_letters: 2, names_skipped: 1, ..Refusals::default() };
        assert_eq!(few.to_string(), "2 foreign letters, 1 names skipped");
        assert_eq!(Refusals::default().to_string(), "");
        assert!(refusals.iter().map(|(_, count)| count).eq(1..=Refusals::LEN as u64));
    }

    #[test]
    fn what_connection_managers_refuse_adds_up_by_reason() {
        let counters = CmCounters {
            invalid: 1,
            stale: 2,
            unserved: 3,
            backlog_full: 4,
            crowded_out: 50,
            half_open_full: 6,
            source_full: 70,
            unknown: 8,
            strangers: 9,
            sent: 1000,
            ..CmCounters::default()
        };
        let mut all = Refusals { cm_invalid: 100, ..Refusals::default() };
        for _ in 0..2 {
            all.add_connections(&counters);
        }
        let expected = Refusals {
            cm_invalid: 102,
            cm_stale: 4,
            cm_unserved: 6,
            cm_backlog_full: 108,
            cm_half_open_full: 152,
            cm_unknown: 16,
            cm_strangers: 18,
            ..Refusals::default()
        };
        assert_eq!(all, expected);
    }
}
