//! A named counter for every event.

/// Writes the counters once, with their names and what they count.
macro_rules! counters {
    ($($(#[$doc:meta])* $name:ident,)*) => {
        /// What happened to a queue pair, counted by name.
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct Counters {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl Counters {
            /// Name and value of each.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }

            /// Adds another queue pair's counts to these.
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

counters! {
    /// Request packets sent, repeated ones included.
    requests_sent,
    /// Response packets sent, repeated ones included.
    responses_sent,
    /// Acknowledgements sent that no READ response or atomic carried.
    acks_sent,
    /// Request packets accepted.
    requests_received,
    /// Response packets accepted.
    responses_received,
    /// Request packets sent again.
    retransmitted,
    /// Times that sending went back to an earlier PSN.
    rewinds,
    /// Questions whether the peer is there, sent without work.
    questions_sent,
    /// Probes for a lost tail.
    probes,
    /// Probes that found a lost tail.
    probe_recoveries,
    /// Probes that were sent for nothing: the peer had the packet, and was only late to say so.
    needless_probes,
    /// Transport time-outs.
    timeouts,
    /// Sequence error NAKs sent.
    nak_sequence_sent,
    /// Sequence error NAKs received.
    nak_sequence_received,
    /// Sequence error NAKs ignored, because the same was answered within a round trip.
    nak_repeats_ignored,
    /// READ responses or atomic answers found missing from what came after them.
    implied_naks,
    /// RNR NAKs sent.
    rnr_sent,
    /// RNR NAKs received.
    rnr_received,
    /// Invalid request NAKs sent.
    nak_invalid_request_sent,
    /// Remote access NAKs sent.
    nak_remote_access_sent,
    /// Remote operational NAKs sent.
    nak_remote_operation_sent,
    /// NAKs received that end the connection.
    nak_fatal_received,
    /// Requests after a gap, dropped.
    out_of_sequence,
    /// Requests so far ahead that no peer can have sent them, dropped without a word.
    implausible,
    /// Requests that had been received already.
    duplicate_requests,
    /// Duplicate READs executed again.
    duplicate_reads,
    /// Duplicate atomics answered from the replay store.
    duplicate_atomics,
    /// Duplicate READs or atomics too old to be answered.
    stale_duplicates,
    /// Responses that had been received already.
    duplicate_responses,
    /// Acknowledgements of something never sent.
    ghost_acks,
    /// Responses with a reserved syndrome.
    bad_syndromes,
    /// Packets dropped because the state of the queue pair does not take them.
    wrong_state,
    /// Packets of another service.
    wrong_service,
    /// Packets of another partition: their P_Key does not match.
    wrong_pkey,
    /// Datagrams with the wrong Q_Key.
    wrong_qkey,
    /// UC messages given up because of a gap.
    uc_messages_dropped,
    /// UC and UD packets dropped because no receive was posted.
    no_receive,
    /// UC packets dropped because their message cannot be taken.
    uc_refused,
    /// Messages that waited for end-to-end credits.
    credit_waits,
    /// Requests that waited for the READ and atomic depth.
    depth_waits,
    /// Requests that waited for the window.
    window_waits,
    /// Packets and messages that waited for the rate limit.
    rate_waits,
    /// Messages done directly at a peer in the same process.
    direct_requests,
    /// Messages of a peer in the same process done directly here.
    direct_responses,
    /// Packets with a congestion mark.
    congestion_marks,
    /// Congestion notifications received.
    congestion_notifications,
}

impl Counters {
    /// Packets that only a peer sends which knows of the connection: new and repeated requests, and answers to what was
    /// sent at any time; and messages that a peer in this process has done directly.
    #[must_use]
    pub const fn signs_of_life(&self) -> u64 {
        self.requests_received
            + self.duplicate_requests
            + self.responses_received
            + self.duplicate_responses
            + self.direct_responses
    }
}
