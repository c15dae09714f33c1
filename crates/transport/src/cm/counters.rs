//! A named counter for everything that happens to connections.

/// Writes the counters once, with their names and what they count.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What happened to the connections of a device, counted by name.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct CmCounters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl CmCounters {
            /// Name and value of each.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }
    };
}

counters! {
    /// Messages that arrived.
    received,
    /// Messages sent, repeated ones included.
    sent,
    /// Messages sent again because the answer did not come.
    repeated,
    /// Questions that came again and were answered again.
    duplicates,
    /// Connections that were established.
    established,
    /// Connections of ours that ended, whichever side wanted it.
    ended,
    /// Requests that were refused by the program, or in its place.
    rejected,
    /// Requests that asked for what cannot be: rejected.
    invalid,
    /// Requests for a queue pair that is connected already: rejected, and the peer of the old connection asked.
    stale,
    /// Connections in doubt whose peer answered, or could not be asked: they go on.
    stale_refuted,
    /// Requests for a service that no program listens for: rejected.
    unserved,
    /// Requests that found a full backlog: rejected.
    backlog_full,
    /// Requests that waited in a full backlog and made room for an address with fewer: rejected.
    crowded_out,
    /// Requests dropped because too many were half open.
    half_open_full,
    /// Requests dropped because too many of their address were half open.
    source_full,
    /// Requests that their peer gave up, or that were not answered in time.
    withdrawn,
    /// Connections and questions that no peer answered, as often as it was tried.
    timed_out,
    /// Ended connections that were forgotten early because there were too many.
    forgotten,
    /// Messages for connections that do not exist.
    unknown,
    /// Messages that name a connection but do not come from its peer.
    strangers,
    /// Messages, requests and questions of partitions that the device does not belong to: messages are dropped, what
    /// they ask for is rejected.
    wrong_pkey,
    /// Messages that a connection does not expect in its state.
    unexpected,
    /// Questions for datagram services that were answered.
    resolved,
}
