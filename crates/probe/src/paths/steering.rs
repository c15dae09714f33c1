//! Steering: one port for each path, instead of many ports by chance.

use super::coverage::Occupancy;
use super::trace::{Path, Trace};

/// Ports and their paths, as traces tell them.
#[derive(Clone, Debug)]
pub struct Steering {
    expected: u32,
    /// Any two of them differ for sure.
    kept: Vec<Kept>,
    /// Traces in which nothing was missing.
    complete: u64,
}

/// A port that is kept, and its path as far as it is known.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Kept {
    /// The port.
    pub port: u16,
    /// Its path.
    pub path: Path,
}

/// What a trace was good for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Offer {
    /// Its path is a new one, and its port is kept.
    New,
    /// Its path is, or may be, that of a port that is kept.
    Known {
        /// That port.
        port: u16,
    },
    /// It says nothing.
    Nothing,
}

/// There are fewer paths than there should be: some switches choose by the same hash as those before them.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Polarised {
    /// Paths that there should be.
    pub expected: u32,
    /// Paths that were seen.
    pub seen: u32,
    /// Ports that were traced for it.
    pub ports: u64,
    /// Paths that so many ports hit in the mean, if each path has the same chance.
    pub mean: f64,
    /// The chance of seeing no more than this, if each path has the same chance.
    pub chance: f64,
}

impl Steering {
    /// Looks for so many paths.
    #[must_use]
    pub const fn new(expected: u32) -> Self {
        Self { expected, kept: Vec::new(), complete: 0 }
    }

    /// Takes a trace.
    pub fn offer(&mut self, trace: &Trace) -> Offer {
        let path = trace.path();
        if path.routers.iter().all(Option::is_none) && !path.is_complete() {
            return Offer::Nothing;
        }
        if path.is_complete() {
            self.complete += 1;
            // What may be this path, but is not sure to be another one, is better known now.
            self.kept.retain(|kept| kept.path == path || !kept.path.may_be(&path));
        }
        if let Some(kept) = self.kept.iter().find(|kept| kept.path.may_be(&path)) {
            return Offer::Known { port: kept.port };
        }
        self.kept.push(Kept { port: trace.port(), path });
        Offer::New
    }

    /// Whether there is a port for every path.
    #[must_use]
    pub fn is_done(&self) -> bool {
        self.kept.len() >= self.expected as usize
    }

    /// Whether it is this sure that there are no more paths than those that were seen: if there was one
    /// more, all of them would have been seen with this confidence. For networks of which the number of
    /// paths is not known.
    #[must_use]
    pub fn is_exhausted(&self, confidence: f64) -> bool {
        self.complete > 0 && Occupancy::after(self.seen() + 1, self.complete).all() >= confidence
    }

    /// The ports, one for each path, in the order in which they were found.
    #[must_use]
    pub fn kept(&self) -> &[Kept] {
        &self.kept
    }

    /// Whether fewer paths were seen than chance explains: if what was seen is less likely than
    /// `significance`. Only complete traces count, since others cannot be told apart.
    #[must_use]
    pub fn polarised(&self, significance: f64) -> Option<Polarised> {
        let (expected, seen, ports) = (self.expected, self.seen(), self.complete);
        if seen >= expected {
            return None;
        }
        let chances = Occupancy::after(expected, ports);
        let chance = chances.at_most(seen);
        let found = Polarised { expected, seen, ports, mean: chances.mean(), chance };
        (chance < significance).then_some(found)
    }

    fn seen(&self) -> u32 {
        u32::try_from(self.kept.iter().filter(|kept| kept.path.is_complete()).count()).unwrap_or(u32::MAX)
    }
}
