//! The conformance suite over our own drop-in library as a card: each case passes, or names what a card does not have.
//!
//! Every case is a process of its own, with the library, an address and a time limit.
//!
//! With `FERROCE_CARD=rxe0 FERROCE_ADDRESS=192.0.2.1` it runs over that card, by the machine's own library: both ends are queue pairs of
//! it. Then a case may miss anything that the card says that it does not have.
#![allow(clippy::unwrap_used, reason = "a case that cannot go on has failed")]

#[path = "conformance/mod.rs"]
mod suite;

use std::collections::BTreeMap;
use std::env;
use std::process::{Command, ExitCode, Output};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Mutex, PoisonError};

use ferroce_testkit::dropin;
use suite::rig::{Rig, Setup};

/// Set for the process of a case, to its name.
const CASE: &str = "FERROCE_SYSTEM_CASE";
/// Names a card of this machine.
const CARD: &str = "FERROCE_CARD";
/// Seconds after which a case over it hangs.
const PATIENCE: &str = "60";
/// Cases at a time.
const AT_ONCE: usize = 2;

/// What a card does not have that a case asks for, and no other case may miss.
const MISSING: &[(&str, &str)] = &[
    ("masked_compare_and_swap", "MaskedAtomics"),
    ("masked_fetch_and_add", "MaskedAtomics"),
    // They need what the API never makes: memory that is not the program's, and windows that are none.
    ("unknown_local_key", "RawRequests"),
    ("local_key_of_another_domain", "RawRequests"),
    ("local_range_outside", "RawRequests"),
    ("read_into_read_only_memory", "RawRequests"),
    ("atomic_into_read_only_memory", "RawRequests"),
    ("binding_a_window_that_is_none", "RawRequests"),
    ("uc_failed_send_stops_sending", "RawRequests"),
    ("limits_are_named", "RawRequests"),
    ("the_rate_limit_is_kept", "Timestamps"),
    ("datagrams_keep_the_rate_limit", "Timestamps"),
    ("completions_are_timed", "Timestamps"),
    ("type_1_window_belongs_to_its_domain", "BindingAtOnce"),
    ("type_1_window_is_not_closed_by_a_peer", "BindingAtOnce"),
    ("windows_are_no_wider_than_they_say", "BindingAtOnce"),
    ("bad_bindings", "BindingAtOnce"),
    ("a_window_of_type_1_bound_again_cannot_be_opened_by_guessing_from_its_old_key", "BindingAtOnce"),
    ("a_refused_change_changes_nothing", "BindingAtOnce"),
    ("bindings_of_type_1_follow_each_other", "KeysAhead"),
    ("events_wait_for_several_completions", "Moderation"),
];

/// What a case says when it meets it.
const LACKS: &str = "capability: ";

fn main() -> ExitCode {
    if env::args().any(|word| word == "--list") {
        return ExitCode::SUCCESS;
    }
    if env::args().any(|word| word == "--version") {
        return ExitCode::SUCCESS;
    }
    if env::args().any(|word| word == "--cases") {
        suite::CASES.iter().for_each(|(name, _)| println!("{name}"));
        return ExitCode::SUCCESS;
    }
    if let Ok(name) = env::var(CASE) {
        run_here(&name);
        return ExitCode::SUCCESS;
    }
    let wanted = env::args().skip(1).find(|word| !word.starts_with('-')).unwrap_or_default();
    let names: Vec<&str> =
        suite::CASES.iter().map(|(name, _)| *name).filter(|name| name.contains(&wanted)).collect();
    let setup = given_card().map_or_else(|| "system_dropin".to_owned(), |card| format!("system_{card}"));
    let (next, failed) = (AtomicUsize::new(0), Mutex::new(Vec::new()));
    let missed: Mutex<BTreeMap<&str, String>> = Mutex::default();
    std::thread::scope(|scope| {
        for _ in 0..AT_ONCE {
            scope.spawn(|| {
                while let Some(name) = names.get(next.fetch_add(1, Ordering::Relaxed)) {
                    let output = start(name);
                    let told = outcome(name, &output);
                    println!("test {setup}::{name} ... {}", told.as_deref().unwrap_or("ok"));
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

/// The card that is to be used instead of the drop-in library.
fn given_card() -> Option<String> {
    env::var(CARD).ok().filter(|name| !name.is_empty())
}

/// Why a case did not pass; it must miss what is listed, and nothing else.
fn outcome(name: &str, output: &Output) -> Option<String> {
    let said = String::from_utf8_lossy(&output.stderr);
    let listed = MISSING.iter().find(|(case, _)| *case == name).map(|(_, what)| *what);
    let lacks = said.find(LACKS).map(|at| &said[at + LACKS.len()..]);
    let lacks = lacks.map(|rest| rest.split([' ', '\n', '"']).next().unwrap_or_default());
    match (output.status.success(), lacks, listed) {
        (true, _, None) => None,
        (true, _, Some(_)) if given_card().is_some() => None,
        (true, _, Some(what)) => Some(format!("FAILED: it passed, but is listed as one that misses {what}")),
        (false, Some(lacks), Some(what)) if lacks == what => Some(format!("{LACKS}{lacks}")),
        (false, Some(lacks), _) if given_card().is_some() => Some(format!("{LACKS}{lacks}")),
        (false, lacks, _) => Some(format!("FAILED ({}), misses {lacks:?}\n{said}", output.status)),
    }
}

/// Runs a case in a process of its own.
fn start(name: &str) -> Output {
    if let Some(card) = given_card() {
        let mut command = Command::new("timeout");
        command.args(["-k", "5", PATIENCE]).arg(dropin::own_program());
        return command.env(CASE, name).env(CARD, card).env("FERROCE_PROVIDER", "system").output().unwrap();
    }
    let place = suite::CASES.iter().position(|(known, _)| *known == name).unwrap_or(0);
    let address = format!("127.0.{}.{}", 181 + place / 200, place % 200 + 1);
    dropin::command(&dropin::own_program(), &address).env(CASE, name).output().unwrap()
}

fn run_here(name: &str) {
    let (_, case) = suite::CASES.iter().find(|(known, _)| *known == name).expect("no such case");
    suite::run_on(&Rig::open(Setup::DropIn, 0), *case);
}
