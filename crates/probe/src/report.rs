//! What a probe found out: seven times, three delays, one outcome.

use std::net::IpAddr;
use std::time::Duration;

use crate::counters::OutcomeCounters;
use crate::packet::{Ports, Sequence};
use crate::stamp::{Stamp, StampSource};

/// The queue pair at the other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Peer {
    /// The address of its card.
    pub address: IpAddr,
    /// The number of its queue pair.
    pub qpn: u32,
}

/// A probe that is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Report {
    /// Which probe.
    pub sequence: Sequence,
    /// Where it went.
    pub target: Peer,
    /// The UDP source port that it left from.
    pub port: u16,
    /// The ports of the answers, if the responder tells them.
    pub answer_ports: Option<Ports>,
    /// How it ended.
    pub outcome: Outcome,
    /// All times that are known.
    pub times: Times,
    /// The delays, of probes that are ok or late.
    pub delays: Option<Delays>,
}

/// How a probe ended. Each probe ends exactly once.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Outcome {
    /// Both answers in time, and times that make sense.
    Ok,
    /// The first ACK came and the second one did not: the probe was delivered and answered.
    Ack2Lost,
    /// Only the second ACK came: loss on the way back.
    Ack1Lost,
    /// No answer at all: loss.
    TimeOut,
    /// Both answers, the last of them after the time-out.
    Late,
    /// Times that cannot be true.
    Invalid(Invalid),
    /// Our own host was at fault, or may have been: nothing is said of the network.
    Host(HostFault),
}

/// Why times cannot be true.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum Invalid {
    /// The round trip is negative: the responder claims more time than there was, or a stamp is wrong.
    NegativeRoundTrip,
    /// T4 lies before T3.
    NegativeResponder,
    /// Our own delay is negative: one of our stamps is wrong.
    NegativeProber,
    /// An answer repeats another T1 than that of its probe.
    Echo,
    /// The two ACKs disagree about T3.
    Contradiction,
    /// It is not known when the probe left.
    NoSendStamp,
    /// Our clock made a step while the probe was under way.
    ClockStep,
}

/// What our own host did.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum HostFault {
    /// It stood still while the probe was under way, so that packets may have been dropped or handled late.
    Stalled,
    /// The send failed.
    SendFailed,
}

impl Outcome {
    /// Whether the network lost something: only time-outs and lost first ACKs are loss.
    #[must_use]
    pub const fn is_loss(self) -> bool {
        matches!(self, Self::TimeOut | Self::Ack1Lost)
    }

    /// The name in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Ack2Lost => "ack2-lost",
            Self::Ack1Lost => "ack1-lost",
            Self::TimeOut => "time-out",
            Self::Late => "late",
            Self::Invalid(_) => "invalid",
            Self::Host(_) => "host",
        }
    }

    /// Counts it.
    pub fn count(self, counters: &mut OutcomeCounters) {
        *match self {
            Self::Ok => &mut counters.ok,
            Self::Ack2Lost => &mut counters.ack2_lost,
            Self::Ack1Lost => &mut counters.ack1_lost,
            Self::TimeOut => &mut counters.time_out,
            Self::Late => &mut counters.late,
            Self::Invalid(_) => &mut counters.invalid,
            Self::Host(_) => &mut counters.host,
        } += 1;
    }
}

/// The seven times of a probe. T3 and T4 are on the responder's clock, the others on ours.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Times {
    /// The probe was posted.
    pub t1: Stamp,
    /// The probe left.
    pub t2: Option<Stamp>,
    /// The probe arrived at the responder.
    pub t3: Option<Stamp>,
    /// The first ACK left the responder.
    pub t4: Option<Stamp>,
    /// The first ACK arrived.
    pub t5: Option<Stamp>,
    /// The first ACK was handled.
    pub t6: Option<Stamp>,
    /// The second ACK was handled.
    pub t7: Option<Stamp>,
    /// The worst source among T2 and T5.
    pub source: StampSource,
}

/// What follows from the times: each bracket is on one clock, so offsets between clocks do not matter.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Delays {
    /// In the network, both ways: `(T5 - T2) - (T4 - T3)`.
    pub round_trip: Duration,
    /// In the responder: `T4 - T3`.
    pub responder: Duration,
    /// In the prober: `(T6 - T1) - (T5 - T2)`.
    pub prober: Duration,
}

impl Times {
    /// The delays, if all of T1 to T6 are known; else what is missing cannot be waited for, and nothing is
    /// said.
    ///
    /// # Errors
    /// If the times cannot be true.
    #[must_use]
    pub fn delays(&self) -> Option<Result<Delays, Invalid>> {
        let Self { t1, t2: Some(t2), t3: Some(t3), t4: Some(t4), t5: Some(t5), t6: Some(t6), .. } = *self
        else {
            return None;
        };
        let away = t5.minus(t2);
        let responder = t4.minus(t3);
        let nanos =
            |value: i128, otherwise| u64::try_from(value).map(Duration::from_nanos).map_err(|_| otherwise);
        let delays = || {
            Ok(Delays {
                responder: nanos(responder, Invalid::NegativeResponder)?,
                round_trip: nanos(away - responder, Invalid::NegativeRoundTrip)?,
                prober: nanos(t6.minus(t1) - away, Invalid::NegativeProber)?,
            })
        };
        Some(delays())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn times(micros: [u64; 6]) -> Times {
        let [t1, t2, t3, t4, t5, t6] = micros.map(|micros| Stamp::from_nanos(micros * 1000));
        let (t2, t3, t4, t5, t6) = (Some(t2), Some(t3), Some(t4), Some(t5), Some(t6));
        Times { t1, t2, t3, t4, t5, t6, ..Times::default() }
    }

    #[test]
    fn delays_follow_from_six_times_of_two_clocks() {
        let delays = times([100, 103, 900_010, 900_060, 170, 175]).delays().unwrap().unwrap();
        assert_eq!(delays.round_trip, Duration::from_micros(17));
        assert_eq!(delays.responder, Duration::from_micros(50));
        assert_eq!(delays.prober, Duration::from_micros(8));
    }

    #[test]
    fn what_is_negative_is_invalid_and_says_where() {
        for (micros, invalid) in [
            ([100, 103, 900_060, 900_010, 170, 175], Invalid::NegativeResponder),
            ([100, 103, 900_010, 900_078, 170, 175], Invalid::NegativeRoundTrip),
            ([100, 103, 900_010, 900_060, 170, 166], Invalid::NegativeProber),
        ] {
            assert_eq!(times(micros).delays(), Some(Err(invalid)), "{micros:?}");
        }
        let edges =
            Times { t3: Some(Stamp::from_nanos(0)), t4: Some(Stamp::from_nanos(u64::MAX)), ..times([1; 6]) };
        assert_eq!(edges.delays(), Some(Err(Invalid::NegativeRoundTrip)));
    }

    #[test]
    fn without_one_of_the_times_nothing_is_said() {
        let all = times([100, 103, 900_010, 900_060, 170, 175]);
        for missing in [
            Times { t2: None, ..all },
            Times { t3: None, ..all },
            Times { t4: None, ..all },
            Times { t5: None, ..all },
            Times { t6: None, ..all },
        ] {
            assert_eq!(missing.delays(), None);
        }
        assert!(Times { t7: None, ..all }.delays().is_some(), "T7 is shown, and in no delay");
    }

    #[test]
    fn only_time_outs_and_lost_first_acks_are_loss() {
        let all = [
            Outcome::Ok,
            Outcome::Ack2Lost,
            Outcome::Ack1Lost,
            Outcome::TimeOut,
            Outcome::Late,
            Outcome::Invalid(Invalid::Echo),
            Outcome::Host(HostFault::Stalled),
        ];
        let lost: Vec<_> =
            all.iter().filter(|outcome| outcome.is_loss()).map(|outcome| outcome.name()).collect();
        assert_eq!(lost, ["ack1-lost", "time-out"]);
        let mut counters = OutcomeCounters::default();
        all.iter().for_each(|outcome| outcome.count(&mut counters));
        assert!(counters.iter().all(|(_, count)| count == 1), "each has a counter of its own: {counters:?}");
        assert_eq!(counters.lost(), 2, "the same two");
    }
}
