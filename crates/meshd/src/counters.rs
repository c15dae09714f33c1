//! Named counters: what a service met, by kind.

use std::sync::atomic::Ordering;

use crate::proto::v1;
use crate::tls::HandshakeCounts;

/// Writes counters once, with their names and what they count.
macro_rules! counters {
    ($(#[$about:meta])* $type:ident { $($(#[$doc:meta])* $name:ident,)* }) => {
        $(#[$about])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
        pub struct $type {
            $($(#[$doc])* pub $name: u64,)*
            /// Requests in the name of an agent, or of the analyzer, that the certificate does not carry.
            pub foreign_names: u64,
            /// Connections that were let in.
            pub connections: u64,
            /// Connections without TLS, refused since the service speaks nothing else.
            pub refused_plain_text: u64,
            /// Connections with TLS, refused since the service has no certificates.
            pub refused_tls: u64,
            /// Handshakes refused since no certificate was shown.
            pub refused_no_certificate: u64,
            /// Handshakes refused for a certificate that is expired, of another CA, or none.
            pub refused_certificates: u64,
            /// Connections that broke before they were let in.
            pub broken_handshakes: u64,
            /// Connections that did not show in time what they are.
            pub late_handshakes: u64,
            /// Connections that gave way to newer ones before they had shown what they are, since too many
            /// had not.
            pub crowded_handshakes: u64,
        }

        impl $type {
            /// Name and value of each.
            pub fn iter(&self) -> impl Iterator<Item = (&'static str, u64)> {
                [
                    $((stringify!($name), self.$name),)*
                    ("foreign_names", self.foreign_names),
                    ("connections", self.connections),
                    ("refused_plain_text", self.refused_plain_text),
                    ("refused_tls", self.refused_tls),
                    ("refused_no_certificate", self.refused_no_certificate),
                    ("refused_certificates", self.refused_certificates),
                    ("broken_handshakes", self.broken_handshakes),
                    ("late_handshakes", self.late_handshakes),
                    ("crowded_handshakes", self.crowded_handshakes),
                ]
                .into_iter()
            }

            /// Takes over how connections began.
            pub(crate) fn set_handshakes(&mut self, counts: &HandshakeCounts) {
                self.connections = counts.connections.load(Ordering::Relaxed);
                self.refused_plain_text = counts.refused_plain_text.load(Ordering::Relaxed);
                self.refused_tls = counts.refused_tls.load(Ordering::Relaxed);
                self.refused_no_certificate = counts.refused_no_certificate.load(Ordering::Relaxed);
                self.refused_certificates = counts.refused_certificates.load(Ordering::Relaxed);
                self.broken_handshakes = counts.broken_handshakes.load(Ordering::Relaxed);
                self.late_handshakes = counts.late_handshakes.load(Ordering::Relaxed);
                self.crowded_handshakes = counts.crowded_handshakes.load(Ordering::Relaxed);
            }

            pub(crate) fn to_message(self) -> Vec<v1::Counter> {
                self.iter().map(|(name, count)| v1::Counter { name: name.to_owned(), count }).collect()
            }
        }
    };
}

counters! {
    /// What a controller met.
    ControllerCounters {
        /// Agents that were registered, or told the same again.
        registered,
        /// Agents that were taken over from the database.
        restored,
        /// Times that something could not be kept in the database, and was tried again.
        not_kept,
        /// Leases that were renewed.
        renewed,
        /// Leases that were asked for and had lapsed, or were those of another life.
        leases_lost,
        /// Registrations of a life older than the one that is known.
        old_epochs,
        /// Registrations refused for their names.
        refused_names,
        /// Registrations refused for their lists of RNICs: none, too many, one twice.
        refused_lists,
        /// Registrations refused for an address, a GID, a queue pair or a Q_Key that cannot be.
        refused_rnics,
        /// Registrations refused since an RNIC belongs to another agent.
        refused_taken,
        /// Registrations refused since there are as many agents as there may be.
        refused_full,
        /// Streams of pinglists and rosters that were begun.
        watches,
        /// Streams that were refused, since there are as many as there may be.
        watches_refused,
        /// Questions of agents for RNICs that services talk to.
        located,
        /// Pinglists and rosters that were sent, whole or what is new of them.
        lists_sent,
        /// Times that all RNICs were put in order, to make pinglists.
        rosters_drawn,
        /// Registrations of agents of the public rebuild.
        rebuild_registered,
        /// Pinglists for agents of the rebuild.
        rebuild_pinglists,
        /// Lines of reports of the rebuild that were taken.
        rebuild_summaries,
        /// Lines of reports of the rebuild that were refused.
        rebuild_refused,
        /// Probes of the rebuild's reports.
        rebuild_probes,
        /// Of these, probes that failed.
        rebuild_failed,
    }
}

counters! {
    /// What an analyzer met.
    AnalyzerCounters {
        /// Streams of windows that were begun.
        streams,
        /// Streams that were refused: a wrong beginning, or too many agents.
        streams_refused,
        /// Windows that were kept.
        kept,
        /// Windows that came again, and were dropped.
        replays,
        /// Windows of the future, too old, or with wrong marks.
        refused,
        /// Messages that are no window.
        malformed,
        /// Windows that were left out by agents whose queues were full.
        lost,
        /// Windows that were kept, but came after their time was looked at.
        too_late,
        /// Flows whose RNIC is not one of the agent that tells of them.
        foreign_flows,
        /// Flows of RNICs that no agent registered.
        unknown_flows,
        /// Paths that agents traced.
        traces,
        /// Traces of RNICs that are not those of the agent, or not known, or beyond those that are kept.
        foreign_traces,
        /// Queue pairs of services that were told.
        services,
        /// Queue pairs of services that leave from RNICs that are not those of the agent.
        foreign_services,
        /// Queue pairs of services that are connected to no RNIC that is known, or beyond those that are kept.
        unknown_services,
        /// Queue pairs of services that agents left out, since there were too many.
        untold_services,
        /// Stretches of time that were looked at.
        windows,
        /// Of these, those that were looked at before all agents had told theirs.
        incomplete,
        /// Times that the wiring changed: RNICs came, or hang elsewhere.
        topologies,
        /// RNICs that have no place in the wiring: their names collide, or the topology file lacks their ToR.
        misplaced,
        /// Times that what is new could not be kept in the file; it is tried again.
        not_kept,
        /// Windows of all agents that were lost since judging them failed by a mistake of ours.
        judges_lost,
    }
}
