//! What happened to a device, beside what happened to its queue pairs.

use ferroce_switchboard::{Refusals, Traffic};
use ferroce_transport::{Level, QpTotals};

/// What a queue pair has done so far, and how full its queues are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct QpReport {
    /// What it has done since it was made: completions by status, retries, time-outs, RNR NAKs and the rest.
    pub totals: QpTotals,
    /// How full its send queue is. A send has its place until it has ended and, if it is to be completed,
    /// until the program has taken its completion off.
    pub send_queue: Level,
    /// How full its own receive queue is, by the same rule; it has no room if receives come from a shared
    /// queue.
    pub receive_queue: Level,
}

/// What a device has done so far.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub struct DeviceReport {
    /// What happened to the device itself.
    pub counters: DeviceCounters,
    /// What all its queue pairs have done, also those that are gone: none of these ever gets less.
    pub totals: QpTotals,
    /// Queue pairs that it has now.
    pub queue_pairs: u64,
    /// Queue pairs that it ever had.
    pub queue_pairs_made: u64,
}

/// Writes the counters once, with their names and what they count.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What happened to a device, counted by name.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct DeviceCounters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl DeviceCounters {
            /// Name and value of each.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }
        }

        impl std::ops::AddAssign for DeviceCounters {
            fn add_assign(&mut self, other: Self) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

counters! {
    /// Packets that the network took.
    packets_sent,
    /// Packets that arrived.
    packets_received,
    /// Packets that went from one queue pair of this process to another.
    local_packets,
    /// Packets that went through memory to other processes of this machine.
    lane_packets_sent,
    /// Packets that came through memory from other processes of this machine.
    lane_packets_received,
    /// Packets lost here because the ring to another process of this machine was full.
    lane_no_room,
    /// Rings of memory that were given up because the other process broke their rules.
    lanes_broken,
    /// Copies of multicast datagrams that went to queue pairs of this process.
    multicast_copies,
    /// Multicast datagrams that were handed to other processes which listen to their group.
    multicast_forwarded,
    /// Messages that were executed directly between two queue pairs of this process.
    local_messages,
    /// System calls made for sending.
    send_calls,
    /// Posts whose messages waited a moment for others.
    posts_gathered,
    /// Times that the driver sent what waited, because the program had gone on to something else.
    gathered_by_driver,
    /// Packets lost here because the socket, or another engine of this process, had no room.
    send_no_room,
    /// Packets longer than the interface carries.
    send_too_long,
    /// Packets that could not be sent for another reason, such as no route.
    send_unreachable,
    /// Packets given up because their memory or address handle was gone.
    send_refused,
    /// Packets that a router or a host sent back, as far as they are followed.
    sent_back,
    /// Datagrams that arrived and could not be taken in: cut short, or for no address of ours.
    receive_dropped,
    /// Datagrams that were lost here because the receive buffer of a socket was full; a run that arrives in one
    /// piece counts as one.
    receive_buffer_full,
    /// Arrived packets with a wrong ICRC.
    icrc_errors,
    /// Arrived packets with an unknown opcode.
    unknown_opcode,
    /// Arrived bytes that are no packet for another reason.
    malformed,
    /// Arrived packets for a queue pair that does not exist.
    unknown_qp,
    /// Arrived packets that a queue pair had acknowledged before it went, acknowledged again.
    answered_for_departed,
    /// Arrived packets for a queue pair of another engine, of this process or another one, handed on to it.
    forwarded,
    /// Packets that other processes handed on to us.
    forwarded_in,
    /// Arrived packets of the whole port that are for no process, counted by the one that leads.
    strays,
    /// Arrived messages of connection management that no process waits for, counted by the one that leads.
    mads_unclaimed,
    /// Messages of connection management for this process that found its queue full.
    mads_dropped,
    /// Connections and messages of this user's other processes that broke the rules of the switchboard.
    switch_violations,
    /// Arrived packets that no device sent: from an address of this machine, but from another port than that
    /// of RoCEv2, which any user could bind. What the kernel turned away counts for all processes of the
    /// address.
    foreign_source,
    /// Connections of other users to the switchboard, refused.
    switch_foreign_connections,
    /// Letters of other users to the switchboard, dropped.
    switch_foreign_letters,
    /// Connections to the switchboard beyond those that are taken at a time.
    switch_connections_full,
    /// Times that another user's socket was at a name where the switchboard's leader could have been.
    switch_names_skipped,
    /// Arrived packets of a connection that do not come from its peer.
    wrong_peer,
    /// Arrived packets of another partition than their queue pair's: the P_Keys do not match.
    wrong_pkey,
    /// Packets that arrived over the network for a queue pair that meets its peer in this process.
    wrong_path,
    /// Arrived packets with a congestion mark of the network.
    ecn_marked,
    /// Timers that came up so late that they said nothing about the peer.
    late_timers,
}

impl DeviceCounters {
    /// Adds what has happened at the switchboard.
    pub(crate) const fn add_traffic(&mut self, traffic: &Traffic) {
        self.packets_received += traffic.group_packets;
        self.icrc_errors += traffic.group_icrc_errors;
        self.malformed += traffic.group_malformed;
        self.forwarded += traffic.forwarded;
        self.forwarded_in += traffic.forwarded_in;
        self.strays += traffic.strays;
        self.mads_unclaimed += traffic.mads_unclaimed;
        self.mads_dropped += traffic.mads_dropped;
        self.foreign_source += traffic.foreign_source;
        self.switch_violations += traffic.refused.violations;
        self.switch_foreign_connections += traffic.refused.foreign_connections;
        self.switch_foreign_letters += traffic.refused.foreign_letters;
        self.switch_connections_full += traffic.refused.connections_full;
        self.switch_names_skipped += traffic.refused.names_skipped;
    }

    /// Adds what an engine has refused to what the process tells of itself.
    pub(crate) const fn add_to(&self, refused: &mut Refusals) {
        refused.foreign_source += self.foreign_source;
        refused.malformed += self.malformed;
        refused.unknown_opcode += self.unknown_opcode;
        refused.icrc_errors += self.icrc_errors;
        refused.unknown_qp += self.unknown_qp;
        refused.wrong_peer += self.wrong_peer;
        refused.wrong_path += self.wrong_path;
        refused.wrong_pkey += self.wrong_pkey;
        refused.receive_buffer_full += self.receive_buffer_full;
    }
}
