//! How likely it is that the probes of a flow ended as they did.

use crate::observation::Outcomes;

/// What is looked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Trouble {
    /// Probes and answers are lost.
    Loss,
    /// Round trips take longer than usual.
    Delay,
}

/// The ends of a flow's probes, as what was good and bad on its two ways.
///
/// Loss: a probe arrives with chance `f`, and each of its two ACKs with chance `b`. So both came with `f b b`,
/// only one of them with `f b (1 - b)` each, and none with `1 - f + f (1 - b)^2`. Delay: a round trip is
/// quick with `f b`, and else slow.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Counts {
    trouble: Trouble,
    /// Packets that passed on the way there.
    pub(crate) there: f64,
    /// Packets that passed on the way back.
    pub(crate) back: f64,
    /// Packets that did not pass on the way back, for sure.
    pub(crate) back_bad: f64,
    /// Probes of which it is not known on which way they met trouble.
    pub(crate) bad: f64,
}

impl Counts {
    pub(crate) fn new(trouble: Trouble, outcomes: &Outcomes) -> Self {
        let acks = f64::from(outcomes.ack1_lost) + f64::from(outcomes.ack2_lost);
        match trouble {
            Trouble::Loss => Self {
                trouble,
                there: f64::from(outcomes.arrived()),
                back: 2.0 * f64::from(outcomes.whole()) + acks,
                back_bad: acks,
                bad: f64::from(outcomes.time_out),
            },
            Trouble::Delay => {
                let quick = f64::from(outcomes.ok.saturating_sub(outcomes.slow));
                Self {
                    trouble,
                    there: quick,
                    back: quick,
                    back_bad: 0.0,
                    bad: f64::from(outcomes.slow.min(outcomes.ok)),
                }
            }
        }
    }

    /// Whether nothing is told.
    pub(crate) fn is_empty(&self) -> bool {
        self.there + self.bad <= 0.0
    }

    /// Whether all went well.
    pub(crate) fn is_good(&self) -> bool {
        self.bad + self.back_bad <= 0.0
    }

    /// Whether nothing went well: it may be that its tuple never passes.
    pub(crate) fn is_dead(&self) -> bool {
        self.there <= 0.0 && self.bad > 0.0
    }

    /// Packets that met trouble.
    pub(crate) fn troubled(&self) -> f64 {
        self.bad + self.back_bad
    }

    /// The logarithm of the chance of these ends, if each packet passes with these chances.
    fn each(&self, there: Chance, back: Chance) -> f64 {
        let mut sum = self.there * there.log + self.back * back.log;
        if self.back_bad > 0.0 {
            sum += self.back_bad * (1.0 - back.value).ln();
        }
        if self.bad > 0.0 {
            sum += self.bad * self.is_bad(there.value, back.value).ln();
        }
        sum
    }

    /// The chance that nothing comes back of a probe, or that it is slow.
    pub(crate) fn is_bad(&self, f: f64, b: f64) -> f64 {
        match self.trouble {
            Trouble::Loss => 1.0 - f + f * (1.0 - b) * (1.0 - b),
            Trouble::Delay => 1.0 - f * b,
        }
    }

    /// The same, if besides its tuple passes at all with a chance of its own.
    pub(crate) fn log(&self, there: Chance, back: Chance, keeps: Chance) -> f64 {
        let each = self.each(there, back);
        if self.is_dead() { (keeps.value * each.exp() + (1.0 - keeps.value)).ln() } else { keeps.log + each }
    }

    /// The same for mixtures of ways: weights, and chances there and back.
    pub(crate) fn log_mixed(
        &self,
        there: impl Iterator<Item = Part>,
        back: impl Iterator<Item = Part> + Clone,
    ) -> f64 {
        let (mut sum, mut passes) = (0.0, 0.0);
        for one in there {
            for other in back.clone() {
                let weight = one.weight * other.weight * one.keeps * other.keeps;
                passes += weight;
                sum += weight * self.each(Chance::of(one.passes), Chance::of(other.passes)).exp();
            }
        }
        if self.is_dead() {
            sum += 1.0 - passes;
        }
        sum.max(f64::MIN_POSITIVE).ln()
    }
}

/// A chance, above 0, with its logarithm, which takes long to find.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Chance {
    pub(crate) value: f64,
    log: f64,
}

impl Chance {
    pub(crate) fn of(value: f64) -> Self {
        Self { value, log: value.ln() }
    }

    /// That both happen.
    pub(crate) fn and(self, other: Self) -> Self {
        Self { value: self.value * other.value, log: self.log + other.log }
    }
}

/// One path of a mixture.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Part {
    pub(crate) weight: f64,
    /// The chance that a packet passes.
    pub(crate) passes: f64,
    /// The chance that the tuple passes at all.
    pub(crate) keeps: f64,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn log(counts: &Counts, there: f64, back: f64, keeps: f64) -> f64 {
        counts.log(Chance::of(there), Chance::of(back), Chance::of(keeps))
    }

    /// Over all ends that a flow of one probe may have, chances sum to 1.
    #[test]
    fn chances_of_all_ends_sum_to_one() {
        let one = |outcomes| Counts::new(Trouble::Loss, &outcomes);
        let mixed = |end, f, b, q: f64| {
            let [there, back] =
                [f, b].map(|passes| [Part { weight: 1.0, passes, keeps: q.sqrt() }].into_iter());
            one(end).log_mixed(there, back)
        };
        let ends = [
            Outcomes { ok: 1, ..Outcomes::default() },
            Outcomes { ack1_lost: 1, ..Outcomes::default() },
            Outcomes { ack2_lost: 1, ..Outcomes::default() },
            Outcomes { time_out: 1, ..Outcomes::default() },
        ];
        for (f, b, q) in [(0.9, 0.8, 1.0), (0.5, 0.99, 0.7), (0.01, 0.5, 0.2)] {
            let sum: f64 = ends.iter().map(|end| log(&one(*end), f, b, q).exp()).sum();
            assert!((sum - 1.0).abs() < 1e-12, "{f} {b} {q}: {sum}");
            let mixed: f64 = ends.iter().map(|end| mixed(*end, f, b, q).exp()).sum();
            assert!((mixed - 1.0).abs() < 1e-12, "{mixed}");
        }
        let (quick, slow) =
            (Outcomes { ok: 1, ..Outcomes::default() }, Outcomes { ok: 1, slow: 1, ..Outcomes::default() });
        let delay = [quick, slow].map(|end| log(&Counts::new(Trouble::Delay, &end), 0.7, 0.9, 0.8).exp());
        assert!((delay[0] + delay[1] - 1.0).abs() < 1e-12);
    }

    #[test]
    fn a_lost_answer_says_more_than_silence() {
        let answer = Counts::new(Trouble::Loss, &Outcomes { ok: 9, ack1_lost: 1, ..Outcomes::default() });
        let silence = Counts::new(Trouble::Loss, &Outcomes { ok: 9, time_out: 1, ..Outcomes::default() });
        let with = |counts: &Counts, there, back| log(counts, there, back, 1.0);
        assert!(with(&answer, 0.999, 0.9) > with(&answer, 0.9, 0.999) + 3.0, "it was on the way back");
        assert!(with(&silence, 0.9, 0.999) > with(&silence, 0.999, 0.9) + 1.0, "there, more likely");
    }
}
