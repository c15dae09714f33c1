//! The conformance suite over our own drop-in library as a card: each case passes, or names what a card does not have.
//!
//! Every case is a process of its own, with the library, an address and a time limit.
#![allow(clippy::unwrap_used, reason = "a case that cannot go on has failed")]

#[path = "conformance/mod.rs"]
mod suite;

use std::collections::BTreeMap;
use std::env;
use std::process::{ExitCode, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use ferroce_testkit::dropin;
use suite::rig::{Rig, Setup};

/// Set for the process of a case, to its name.
const CASE: &str = "FERROCE_SYSTEM_CASE";
/// Cases at a time.
const AT_ONCE: usize = 2;

/// What a card does not have that a case asks for, and no other case may miss.
const MISSING: &[(&str, &str)] = &[];

/// What a case says when it meets it.
const LACKS: &str = "capability: ";

fn main() -> ExitCode {
    if env::args().any(|word| word == "--list") {
        return ExitCode::SUCCESS;
    }
    if let Ok(name) = env::var(CASE) {
        run_here(&name);
        return ExitCode::SUCCESS;
    }
    let wanted = env::args().skip(1).find(|word| !word.starts_with('-')).unwrap_or_default();
    let names: Vec<&str> =
        suite::CASES.iter().map(|(name, _)| *name).filter(|name| name.contains(&wanted)).collect();
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let missed: Mutex<BTreeMap<&str, String>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let output = start(name);
                    let told = outcome(name, &output);
                    println!("test system_dropin::{name} ... {}", told.as_deref().unwrap_or("ok"));
                    match told {
                        Some(told) if told.starts_with(LACKS) => {
                            missed.lock().unwrap_or_else(PoisonError::into_inner).insert(name, told);
                        }
                        Some(_) => failed.lock().unwrap_or_else(PoisonError::into_inner).push(*name),
                        None => {}
                    }
                }
            });
        }
    });
    let failed = failed.into_inner().unwrap();
    let missed = missed.into_inner().unwrap();
    println!(
        "\n{} cases passed, {} miss something, {} failed: {failed:?}",
        names.len() - missed.len() - failed.len(),
        missed.len(),
        failed.len()
    );
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Why a case did not pass; it must miss what is listed, and nothing else.
fn outcome(name: &str, output: &Output) -> Option<String> {
    let said = String::from_utf8_lossy(&output.stderr);
    let listed = MISSING.iter().find(|(case, _)| *case == name).map(|(_, what)| *what);
    let lacks = said.find(LACKS).map(|at| &said[at + LACKS.len()..]);
    let lacks = lacks.map(|rest| rest.split([' ', '\n', '"']).next().unwrap_or_default());
    match (output.status.success(), lacks, listed) {
        (true, _, None) => None,
        (true, _, Some(what)) => Some(format!("FAILED: it passed, but is listed as one that misses {what}")),
        (false, Some(lacks), Some(what)) if lacks == what => Some(format!("{LACKS}{lacks}")),
        (false, lacks, _) => Some(format!("FAILED ({}), misses {lacks:?}\n{said}", output.status)),
    }
}

/// Runs a case in a process of its own.
fn start(name: &str) -> Output {
    let place = suite::CASES.iter().position(|(known, _)| *known == name).unwrap_or(0);
    let address = format!("127.0.{}.{}", 181 + place / 200, place % 200 + 1);
    dropin::command(&dropin::own_program(), &address).env(CASE, name).output().unwrap()
}

fn run_here(name: &str) {
    let (_, case) = suite::CASES.iter().find(|(known, _)| *known == name).expect("no such case");
    suite::run_on(&Rig::open(Setup::DropIn, 0), *case);
}
