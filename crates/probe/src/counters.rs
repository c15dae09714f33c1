//! Named counters: what a machine met, by kind.

/// Writes counters once, with their names and what they count.
macro_rules! counters {
    ($(#[$about:meta])* $type:ident { $($(#[$doc:meta])* $name:ident,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $type {
            $($(#[$doc])* pub $name: u64,)*
        }

        impl $type {
            /// Name and value of each.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [$((stringify!($name), self.$name),)*].into_iter()
            }

            /// Adds the counts of another machine to these.
            pub fn add(&mut self, other: &Self) {
                $(self.$name += other.$name;)*
            }
        }
    };
}

counters! {
    /// What a prober sent and what came, by kind.
    ProberCounters {
        /// Probes that were handed out to be sent.
        probes,
        /// Probes that found no place among those that are pending.
        no_room,
        /// Probes that lost their place before the end of the wait for late answers, as others needed it.
        cut_short,
        /// First ACKs taken.
        first_acks,
        /// Second ACKs taken.
        second_acks,
        /// Packets of another length than 40 bytes.
        wrong_length,
        /// Packets of another version.
        wrong_version,
        /// Packets whose type and ack do not belong together.
        wrong_kind,
        /// Probes that came to the queue pair of a prober.
        not_answers,
        /// Answers with the epoch of another prober, or of none.
        foreign_epoch,
        /// Answers to probes that were never sent.
        never_sent,
        /// Answers to probes that are over: copies, replays, or later than the wait for late answers.
        already_over,
        /// The same answer again, while its probe was pending.
        repeated,
        /// Answers from another address than that of the target.
        wrong_address,
        /// Answers from the target's address, but another queue pair.
        wrong_queue_pair,
        /// Answers with another T1 than that of their probe.
        wrong_echo,
        /// Second ACKs whose T3 is not that of the first ACK.
        contradictions,
        /// Stamps of sends for probes that are over or never were.
        stray_stamps,
        /// Stalls of our own host.
        stalls,
        /// Steps of our own clock.
        clock_steps,
    }
}

counters! {
    /// How many probes ended which way.
    OutcomeCounters {
        /// Both answers in time, and times that make sense.
        ok,
        /// The first ACK came and the second one did not: the probe was delivered and answered.
        ack2_lost,
        /// Only the second ACK came: loss on the way back.
        ack1_lost,
        /// No answer at all: loss.
        time_out,
        /// Both answers, too late.
        late,
        /// Times that cannot be true.
        invalid,
        /// Our own host was at fault, or may have been.
        host,
    }
}

counters! {
    /// What a responder met, by kind.
    ResponderCounters {
        /// Probes that were answered.
        answered,
        /// Second ACKs handed out.
        second_acks,
        /// Packets of another length than 40 bytes.
        wrong_length,
        /// Packets of another version.
        wrong_version,
        /// Packets whose type and ack do not belong together.
        wrong_kind,
        /// ACKs that came to the queue pair of a responder.
        not_probes,
        /// Probes beyond the rate of their source.
        over_limit,
        /// Probes of new sources while all places for sources are taken.
        crowded,
        /// First ACKs that could not be sent.
        send_failures,
        /// First ACKs whose send stamp did not come in time, so that no second ACK was sent.
        stamps_missing,
        /// First ACKs that lost their place to newer ones before their send stamp came.
        pushed_out,
        /// Send stamps for first ACKs that are not pending.
        stray_stamps,
        /// Probes of sources and ports beyond those that are counted one by one.
        untallied,
    }
}

impl OutcomeCounters {
    /// Probes that the network lost, or the answers to them.
    #[must_use]
    pub const fn lost(&self) -> u64 {
        self.time_out + self.ack1_lost
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn counters_have_names_and_add_up() {
        let mut counters = OutcomeCounters { ok: 3, host: 1, ..OutcomeCounters::default() };
        counters.add(&OutcomeCounters { ok: 4, ..OutcomeCounters::default() });
        let all: Vec<_> = counters.iter().filter(|(_, count)| *count > 0).collect();
        assert_eq!(all, [("ok", 7), ("host", 1)]);
    }
}
