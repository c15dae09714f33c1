//! A seeded simulator: many queue pairs, bad links, and checkers at every step.
//!
//! One 64-bit seed is a whole run: hosts, queue pairs, network, faults and work all follow from
//! it ([`plan`](Plan)). The machines of `ferroce-transport` run unchanged; time is virtual. After every call of a
//! machine the [checkers](check) compare what it did with what was posted.
//!
//! [`Pair`] is the small form for tests: two queue pairs and a link that a closure controls.
#![forbid(unsafe_code)]

mod chaos;
pub mod check;
mod coverage;
mod dice;
pub mod fuzz;
pub mod goodput;
mod host;
mod liar;
mod link;
mod memory;
mod node;
mod pair;
mod plan;
mod post;
mod rings;
mod run;
mod setup;
mod trace;
mod watch;
mod workload;
mod world;

pub use coverage::Coverage;
pub use dice::Dice;
pub use host::{Action, Device};
pub use memory::Memory;
pub use node::{Datagram, Node, Received};
pub use pair::{Pair, Sent, Setup, Side, Verdict};
pub use plan::Plan;
pub use run::{MIN_PACKETS, Outcome, run, run_with};
pub use trace::Trace;
