//! What a process of a switchboard has refused, counted by reason.

use std::fmt;
use std::sync::atomic::{AtomicU64, Ordering};

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

            pub(super) fn parse(bytes: &[u8; Self::LEN]) -> Self {
                let mut words = bytes.as_chunks().0.iter().map(|word| u64::from_ne_bytes(*word));
                Self { $($name: words.next().unwrap_or(0),)* }
            }

            /// Bytes of all of them.
            pub(super) const LEN: usize = 8 * [$(stringify!($name),)*].len();
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
}

impl Refusals {
    pub(super) fn emit(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        for (to, (_, count)) in bytes.as_chunks_mut().0.iter_mut().zip(self.iter()) {
            *to = count.to_ne_bytes();
        }
        bytes
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
        let refusals = Refusals {
            violations: 1,
            foreign_connections: u64::MAX,
            foreign_letters: 3,
            connections_full: 4,
            names_skipped: 5,
        };
        assert_eq!(Refusals::parse(&refusals.emit()), refusals);
        let few = Refusals { foreign_letters: 2, names_skipped: 1, ..Refusals::default() };
        assert_eq!(few.to_string(), "2 foreign letters, 1 names skipped");
        assert_eq!(Refusals::default().to_string(), "");
        assert_eq!(refusals.iter().map(|(_, count)| count).collect::<Vec<_>>(), [1, u64::MAX, 3, 4, 5]);
    }
}
