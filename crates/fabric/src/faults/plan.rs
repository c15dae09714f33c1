//! What faults shall happen, and to which packet.

use ferroce_wire::Bth;
use rand_core::Rng;
use thiserror::Error;

use super::MAX_STEPS;

/// How often which fault happens. The rates say which share of packets it hits, from 0 to 1, each
/// on its own.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct FaultPlan {
    /// Packets that are thrown away.
    pub loss: f64,
    /// Packets that are sent twice. One that is also held back leaves once now and once late.
    pub dup: f64,
    /// Packets that are held back while up to 8 others pass.
    pub reorder: f64,
    /// Packets with one bit flipped, which the ICRC covers.
    pub corrupt: f64,
    /// What all decisions are made from.
    pub seed: u64,
}

/// Why a text is not a plan.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum FaultPlanError {
    /// Something without an equals sign.
    #[error("{item:?} is not KEY=VALUE; the keys are {KEYS}, with commas between them")]
    NotAPair {
        /// What was found.
        item: String,
    },
    /// No such key.
    #[error("there is no fault {key:?}; the keys are {KEYS}")]
    UnknownKey {
        /// The key.
        key: String,
    },
    /// The same key twice.
    #[error("{key} is given twice; give each key once")]
    Twice {
        /// The key.
        key: &'static str,
    },
    /// A rate that is none.
    #[error(
        "{key}={value:?} is not a rate; a rate is a number from 0 to 1, such as 0.01 for one packet in 100"
    )]
    BadRate {
        /// The key.
        key: &'static str,
        /// Its value.
        value: String,
    },
    /// A seed that is none.
    #[error("seed={value:?} is not a seed; a seed is a whole number from 0 to 18446744073709551615")]
    BadSeed {
        /// The value.
        value: String,
    },
}

const KEYS: &str = "loss, dup, reorder, corrupt and seed";

impl FaultPlan {
    /// Reads a plan such as `loss=0.01,dup=0.01,reorder=0.02,corrupt=0.001,seed=7`. What is not named
    /// is 0; nothing at all is the empty plan.
    ///
    /// # Errors
    /// Which key or value is wrong, and what it could be.
    pub fn parse(text: &str) -> Result<Self, FaultPlanError> {
        let mut plan = Self::default();
        let mut seen: [Option<&'static str>; 5] = [None; 5];
        for item in text.split(',').map(str::trim).filter(|_| !text.trim().is_empty()) {
            let Some((key, value)) = item.split_once('=') else {
                return Err(FaultPlanError::NotAPair { item: item.to_owned() });
            };
            let value = value.trim();
            let key = match key.trim() {
                "loss" => plan.loss.set("loss", value)?,
                "dup" => plan.dup.set("dup", value)?,
                "reorder" => plan.reorder.set("reorder", value)?,
                "corrupt" => plan.corrupt.set("corrupt", value)?,
                "seed" => plan.seed.set("seed", value)?,
                unknown => return Err(FaultPlanError::UnknownKey { key: unknown.to_owned() }),
            };
            if seen.contains(&Some(key)) {
                return Err(FaultPlanError::Twice { key });
            }
            if let Some(place) = seen.iter_mut().find(|place| place.is_none()) {
                *place = Some(key);
            }
        }
        Ok(plan)
    }

    /// Whether nothing ever happens.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        [self.loss, self.dup, self.reorder, self.corrupt].iter().all(|rate| *rate <= 0.0)
    }
}

/// A value of the plan that can be read from text.
trait Setting {
    fn set(&mut self, key: &'static str, value: &str) -> Result<&'static str, FaultPlanError>;
}

impl Setting for f64 {
    fn set(&mut self, key: &'static str, value: &str) -> Result<&'static str, FaultPlanError> {
        match value.parse() {
            Ok(rate) if (0.0..=1.0).contains(&rate) => *self = rate,
            _ => return Err(FaultPlanError::BadRate { key, value: value.to_owned() }),
        }
        Ok(key)
    }
}

impl Setting for u64 {
    fn set(&mut self, key: &'static str, value: &str) -> Result<&'static str, FaultPlanError> {
        *self = value.parse().map_err(|_| FaultPlanError::BadSeed { value: value.to_owned() })?;
        Ok(key)
    }
}

/// What happens to one packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Fate {
    pub(super) lost: bool,
    pub(super) twice: bool,
    /// For how many steps it is held back.
    pub(super) held: Option<u8>,
    /// The bit that is flipped, counted from the first byte on.
    pub(super) flipped: Option<usize>,
}

impl Fate {
    /// Whether it goes on unharmed.
    pub(super) const fn is_none(&self) -> bool {
        !self.lost && !self.twice && self.held.is_none() && self.flipped.is_none()
    }

    /// Every packet takes as many draws as any other, whatever becomes of it, so that one fault
    /// does not shift the others.
    pub(super) fn draw(dice: &mut impl Rng, plan: &FaultPlan, len: usize) -> Self {
        let [lost, twice, held, flipped] =
            [plan.loss, plan.dup, plan.reorder, plan.corrupt].map(|rate| share(dice.next_u64()) < rate);
        let steps = 1 + below(dice.next_u64(), MAX_STEPS);
        let bit = covered_bit(dice.next_u64(), len);
        Self {
            lost,
            twice,
            held: u8::try_from(steps).ok().filter(|_| held),
            flipped: bit.filter(|_| flipped),
        }
    }
}

/// A bit of a packet of `len` bytes that its ICRC covers: any but those of the one byte that
/// switches may change, which would go unnoticed.
fn covered_bit(word: u64, len: usize) -> Option<usize> {
    let has_variant_byte = len > Bth::VARIANT_BYTE;
    let bits = (len - usize::from(has_variant_byte)) * 8;
    let bit = below(word, bits);
    let behind = has_variant_byte && bit >= Bth::VARIANT_BYTE * 8;
    (bits > 0).then_some(if behind { bit + 8 } else { bit })
}

/// From 0 up to, but without, 1.
fn share(word: u64) -> f64 {
    const STEPS: f64 = (1_u64 << 53) as f64;
    (word >> 11) as f64 / STEPS
}

/// From 0 to `bound - 1`; 0 if `bound` is 0.
fn below(word: u64, bound: usize) -> usize {
    let wide = u128::from(word) * (bound as u128);
    usize::try_from(wide >> 64).unwrap_or(0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_plan_is_read() {
        let plan = FaultPlan::parse("loss=0.01,dup=0.02, reorder = 1,corrupt=1e-3,seed=7").unwrap();
        assert_eq!(plan, FaultPlan { loss: 0.01, dup: 0.02, reorder: 1.0, corrupt: 0.001, seed: 7 });
        assert!(!plan.is_empty());
        for nothing in ["", " ", "seed=3", "loss=0,dup=0"] {
            assert!(FaultPlan::parse(nothing).unwrap().is_empty(), "{nothing:?}");
        }
    }

    #[test]
    fn a_mistake_is_named() {
        for (text, said) in [
            ("loss", "\"loss\" is not KEY=VALUE; the keys are loss, dup, reorder, corrupt and seed"),
            ("loss=0.1,", "\"\" is not KEY=VALUE"),
            ("delay=3", "no fault \"delay\"; the keys are loss, dup, reorder, corrupt and seed"),
            ("loss=0.1,loss=0.2", "loss is given twice"),
            ("dup=1.01", "dup=\"1.01\" is not a rate; a rate is a number from 0 to 1"),
            ("dup=-0.1", "dup=\"-0.1\" is not a rate"),
            ("corrupt=NaN", "corrupt=\"NaN\" is not a rate"),
            ("reorder=", "reorder=\"\" is not a rate"),
            ("seed=-1", "seed=\"-1\" is not a seed"),
        ] {
            let error = FaultPlan::parse(text).unwrap_err().to_string();
            assert!(error.contains(said), "{text:?} gives {error:?}");
        }
    }

    #[test]
    fn every_covered_bit_can_be_chosen_and_no_other() {
        for len in [0, 1, 4, 5, 20] {
            let mut hit = [false; 160];
            for word in (0..4096_u64).map(|part| part << 52) {
                if let Some(bit) = covered_bit(word, len) {
                    hit[bit] = true;
                }
            }
            for (bit, hit) in hit.into_iter().enumerate() {
                assert_eq!(hit, bit / 8 < len && bit / 8 != Bth::VARIANT_BYTE, "bit {bit} of {len} bytes");
            }
        }
    }

    #[test]
    fn rates_of_0_and_1_are_never_and_always() {
        assert!(share(u64::MAX) < 1.0);
        assert!(share(0) >= 0.0);
    }
}
