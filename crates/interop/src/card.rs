//! The conformance suite of verbs in the guest, over the kernel's soft-RoCE as a card, by the guest's own `libibverbs`.
//!
//! Each case passes, or misses what the card says that it does not have, or is listed here with what the kernel does otherwise.

use std::collections::BTreeMap;
use std::path::Path;

use crate::doctor::bring;
use crate::far::Far;
use crate::proof::{self, Reason};
use crate::{Args, Result};

/// The program of the suite in the guest.
const PROGRAM: &str = "conformance_system";

/// What becomes of a case.
enum Outcome {
    Passed,
    /// The card does not have this, and says so.
    Misses(String),
    /// What it said.
    Failed(String),
}

/// What rdma_rxe of Linux 6.1 does otherwise than the IBA wants.
const OTHERWISE: &[(&str, &Reason)] = &[
    ("a_region_changes_under_load", &proof::STATUS),
    ("datagram_longer_than_the_receive", &proof::STATUS),
    ("message_longer_than_the_receive", &proof::STATUS),
    ("overrun_ends_the_queue_pair", &proof::OVERRUN),
    ("receive_into_read_only_memory", &proof::STATUS),
    ("send_with_a_key_that_cannot_be_invalidated", &proof::INVALIDATION),
    ("type_2_window_belongs_to_one_queue_pair", &proof::OWNER),
    ("type_2_window_opens_a_part", &proof::BOUNDS),
];

/// Runs it: how many cases passed, and which surprised us.
pub(crate) fn run(args: &Args, program: &Path) -> Result<()> {
    bring::bring(args.guest, program, PROGRAM)?;
    let names = Far::connect(args.guest)?.run(&format!("{PROGRAM} --cases"))?;
    let wanted =
        |name: &str| args.only.is_empty() || args.only.iter().any(|part| name.contains(part.as_str()));
    let (mut passed, mut missed) = (0, BTreeMap::<String, Vec<&str>>::new());
    let (mut otherwise, mut wrong) = (Vec::new(), Vec::new());
    // The same reason for several is shown once.
    let mut shown: Vec<&Reason> = Vec::new();
    for (_, reason) in OTHERWISE.iter().filter(|(name, _)| wanted(name)) {
        if shown.iter().any(|known| std::ptr::eq(*known, *reason)) {
            continue;
        }
        shown.push(reason);
        if !reason.is_shown(args.guest)? {
            return Err(format!("the kernel alone does not do this any more: {}", reason.why).into());
        }
    }
    for name in names.lines().map(str::trim).filter(|name| !name.is_empty() && wanted(name)) {
        let known = OTHERWISE.iter().find(|(case, _)| *case == name).map(|(_, reason)| reason.why);
        let outcome = one(args, name)?;
        let told = match (&outcome, known) {
            (Outcome::Passed, None) => "ok".to_owned(),
            (Outcome::Passed, Some(why)) => format!("ok, though {why}"),
            (Outcome::Misses(what), _) => format!("the card has no {what}"),
            (Outcome::Failed(_), Some(why)) => format!("differs: {why}"),
            (Outcome::Failed(said), None) => format!("FAILED\n{said}"),
        };
        eprintln!("system_rxe::{name} ... {told}");
        match (outcome, known) {
            (Outcome::Passed, _) => passed += 1,
            (Outcome::Misses(what), _) => missed.entry(what).or_default().push(name),
            (Outcome::Failed(_), Some(_)) => otherwise.push(name),
            (Outcome::Failed(_), None) => wrong.push(name),
        }
    }
    let missing: usize = missed.values().map(Vec::len).sum();
    println!(
        "system_rxe: {passed} cases passed, {missing} miss something, {} differ as is known, {} surprise: {wrong:?}",
        otherwise.len(),
        wrong.len()
    );
    if wrong.is_empty() { Ok(()) } else { Err(format!("{wrong:?} surprise us").into()) }
}

/// Runs one case in a process of its own.
fn one(args: &Args, name: &str) -> Result<Outcome> {
    let mut far = Far::connect(args.guest)?;
    let guest = args.guest;
    far.start(&format!(
        "ulimit -l unlimited; FERROCE_SYSTEM_CASE={name} FERROCE_CARD=rxe0 FERROCE_ADDRESS={guest} FERROCE_PROVIDER=system \
         timeout 60 {PROGRAM} 2>&1"
    ))?;
    let (status, said) = far.finish()?;
    let lacks = said.split("capability: ").nth(1);
    let lacks = lacks.and_then(|rest| rest.split([' ', '\n', '"']).next());
    Ok(match (status, lacks) {
        (0, _) => Outcome::Passed,
        (_, Some(what)) => Outcome::Misses(what.to_owned()),
        _ => Outcome::Failed(said),
    })
}
