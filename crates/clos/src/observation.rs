//! What agents report of a flow: how its probes ended. It is all that an analyzer gets, with traces and the
//! shape.

use ferroce_probe::Outcome;

use crate::hash::Tuple;

/// The probes of one flow in one window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Observation {
    /// The probes' RNICs and source port.
    pub from: u32,
    /// The RNIC that they went to.
    pub to: u32,
    /// The source port of probes.
    pub port: u16,
    /// The source port of answers.
    pub reply_port: u16,
    /// Ended well.
    pub ok: u32,
    /// Of those that ended well: how many took longer than healthy links explain.
    pub slow: u32,
    /// The second ACK did not come.
    pub ack2_lost: u32,
    /// The first ACK did not come.
    pub ack1_lost: u32,
    /// Nothing came.
    pub time_out: u32,
    /// Everything came, too late.
    pub late: u32,
    /// The times cannot be true.
    pub invalid: u32,
    /// The prober's own host was at fault.
    pub host: u32,
}

impl Observation {
    /// The tuple of the probes.
    #[must_use]
    pub const fn tuple(&self) -> Tuple {
        Tuple { from: self.from, to: self.to, port: self.port }
    }

    /// All probes.
    #[must_use]
    pub const fn sent(&self) -> u32 {
        self.ok + self.ack2_lost + self.ack1_lost + self.time_out + self.late + self.invalid + self.host
    }

    /// Probes that the network lost.
    #[must_use]
    pub const fn lost(&self) -> u32 {
        self.time_out + self.ack1_lost
    }

    /// Counts a probe.
    pub(crate) fn count(&mut self, outcome: Outcome, is_slow: bool) {
        *match outcome {
            Outcome::Ok => &mut self.ok,
            Outcome::Ack2Lost => &mut self.ack2_lost,
            Outcome::Ack1Lost => &mut self.ack1_lost,
            Outcome::TimeOut => &mut self.time_out,
            Outcome::Late => &mut self.late,
            Outcome::Invalid(_) => &mut self.invalid,
            Outcome::Host(_) => &mut self.host,
        } += 1;
        self.slow += u32::from(is_slow && outcome == Outcome::Ok);
    }

    /// Adds the counts of another flow.
    pub fn add(&mut self, other: &Self) {
        let pairs = [
            (&mut self.ok, other.ok),
            (&mut self.slow, other.slow),
            (&mut self.ack2_lost, other.ack2_lost),
            (&mut self.ack1_lost, other.ack1_lost),
            (&mut self.time_out, other.time_out),
            (&mut self.late, other.late),
            (&mut self.invalid, other.invalid),
            (&mut self.host, other.host),
        ];
        for (sum, count) in pairs {
            *sum += count;
        }
    }
}
