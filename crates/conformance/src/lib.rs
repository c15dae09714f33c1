//! The conformance suite: what RDMA must do, through the API of verbs, whatever device and whatever path.
//!
//! A [`Case`] is a function over a [`Rig`]: two hosts and the way between them. The cases are one list, [`CASES`]. The test programs of
//! this crate run all of them over every [`Setup`], a column each ([`column!`]); `ferroce selftest` runs them over the device that it is
//! told ([`Under`]), each in a process of its own ([`Runner`], [`child`]). What becomes of one is an [`Outcome`].
#![forbid(unsafe_code)]
#![allow(clippy::unwrap_used, reason = "a case that cannot go on has failed")]

mod cases;
pub mod child;
pub mod known;
mod outcome;
mod rig;
mod runner;
mod under;
mod waiting;

use ferroce_trace::Timeline;
use ferroce_verbs::Recording;

pub use cases::{CASES, Case, GROUPS, SIXTEEN_MEBIBYTES};
pub use outcome::{Missing, Outcome};
pub use rig::{Host, Rig, SOON, Setup};
pub use runner::{Ended, Runner};
pub use under::{Under, UnderError};

/// One test for each case: `column!(local: run, Local)` makes a module `local` in which each test calls `run` with that [`Setup`] and
/// its [`Case`].
#[macro_export]
macro_rules! column {
    ($name:ident: $run:path, $setup:ident) => {
        $crate::all_cases! { [$crate::tests_of_column] $name, $run, $setup }
    };
}

#[doc(hidden)]
#[macro_export]
macro_rules! tests_of_column {
    ($name:ident, $run:path, $setup:ident; $($module:ident: $($case:ident)*;)*) => {
        mod $name {
            $($(
                #[test]
                fn $case() {
                    $run($crate::Setup::$setup, $crate::Case::named(stringify!($case)));
                }
            )*)*
        }
    };
}

/// Runs one case over one setup.
///
/// # Panics
/// The case failed.
pub fn run(setup: Setup, case: &Case) {
    run_on(&Rig::open(setup, case.number()), case);
}

/// As [`run`], with everything written down, and the record looked at: each request has one fate, each completion one origin,
/// each packet with data one request.
///
/// # Panics
/// The case failed, or what was written down is wrong.
pub fn run_recorded(setup: Setup, case: &Case) {
    let rig = Rig::open(setup, case.number());
    let contexts = [&rig.a.context, &rig.b.context];
    let is_one = rig.a.address == rig.b.address;
    let mut recording = Recording::of(if is_one { &contexts[..1] } else { &contexts }).unwrap();
    run_on(&rig, case);
    let Rig { a, b, .. } = rig;
    drop((a, b));
    recording.stop();
    let timeline = Timeline::open(&[recording.path().to_owned()]).unwrap();
    for check in ferroce_trace::check(&timeline) {
        assert!(check.is_clean() && check.outstanding == 0, "{check}\n{}", recording.text().unwrap());
    }
}

/// Runs one case on a rig, and looks at what must hold after each.
///
/// # Panics
/// The case failed. Where the device cannot do what the case is about, what it says is a [`Missing`].
pub fn run_on(rig: &Rig, case: &Case) {
    let before = rig.counters();
    (case.run)(rig);
    rig.check(before);
}
