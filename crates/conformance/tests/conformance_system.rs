//! The conformance suite over our own drop-in library as a card: each case passes, or names what a card does not have.
//!
//! Every case is a process of its own, with the library, an address and a time limit.
//!
//! With `FERROCE_CARD=rxe0 FERROCE_ADDRESS=192.0.2.1` it runs over that card, by the machine's own library: both ends are queue pairs of
//! it. Then a case may miss anything that the card says that it does not have.

use std::env;
use std::process::{Command, ExitCode};
use std::time::Duration;

use ferroce_conformance::{CASES, Case, Ended, Outcome, Runner, Under, child};
use ferroce_testkit::dropin;

/// Set for the process of a case, to its name.
const CASE: &str = "FERROCE_SYSTEM_CASE";
/// Names a card of this machine.
const CARD: &str = "FERROCE_CARD";
/// How long a case may take: the programs beside it are tests, too.
const LIMIT: Duration = Duration::from_secs(110);
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
    ("type_1_window_belongs_to_its_domain", "BindingAtOnce"),
    ("type_1_window_is_not_closed_by_a_peer", "BindingAtOnce"),
    ("windows_are_no_wider_than_they_say", "BindingAtOnce"),
    ("bad_bindings", "BindingAtOnce"),
    ("a_window_of_type_1_bound_again_cannot_be_opened_by_guessing_from_its_old_key", "BindingAtOnce"),
    ("a_refused_change_changes_nothing", "BindingAtOnce"),
    ("bindings_of_type_1_follow_each_other", "KeysAhead"),
];

/// What a case says when it misses something.
const LACKS: &str = "capability: ";

fn main() -> ExitCode {
    let asked = |what: &str| env::args().any(|word| word == what);
    if asked("--list") || asked("--version") {
        return ExitCode::SUCCESS;
    }
    if asked("--cases") {
        CASES.iter().for_each(|case| println!("{}", case.name));
        return ExitCode::SUCCESS;
    }
    if let Ok(name) = env::var(CASE) {
        return run_here(&name);
    }
    let wanted = env::args().skip(1).find(|word| !word.starts_with('-')).unwrap_or_default();
    let names: Vec<&str> = CASES.iter().map(|case| case.name).filter(|name| name.contains(&wanted)).collect();
    let setup = given_card().map_or_else(|| "system_dropin".to_owned(), |card| format!("system_{card}"));
    let tell = |ended: &Ended<'_>| {
        let told =
            wrong_with(ended).map_or_else(|| ended.outcome.to_string(), |why| format!("FAILED: {why}"));
        println!("test {setup}::{} ... {told}", ended.name);
    };
    let runner = Runner { limit: LIMIT, at_once: AT_ONCE, ..Runner::new(&command) };
    let all = runner.run(&names, &|_| {}, &tell).expect("this program can be started");
    let failed: Vec<&str> =
        all.iter().filter(|ended| wrong_with(ended).is_some()).map(|ended| ended.name).collect();
    let passed = all.iter().filter(|ended| ended.outcome == Outcome::Passed).count();
    let missed = all.iter().filter(|ended| matches!(ended.outcome, Outcome::Missing(_))).count();
    println!("\n{passed} cases passed, {missed} miss something, {} failed: {failed:?}", failed.len());
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// The card that is to be used instead of the drop-in library.
fn given_card() -> Option<String> {
    env::var(CARD).ok().filter(|name| !name.is_empty())
}

/// A case must pass, or miss what is listed and nothing else.
fn wrong_with(ended: &Ended<'_>) -> Option<String> {
    let listed = MISSING.iter().find(|(case, _)| *case == ended.name).map(|(_, what)| *what);
    match (&ended.outcome, listed) {
        (Outcome::Passed, None) => None,
        (Outcome::Passed | Outcome::Missing(_), _) if given_card().is_some() => None,
        (Outcome::Passed, Some(what)) => Some(format!("it passed, but is listed as one that misses {what}")),
        (Outcome::Missing(missing), Some(what)) if missing.name() == what => None,
        (Outcome::Missing(missing), _) => Some(format!("it misses {}", missing.name())),
        (outcome, _) => Some(format!("{}: {outcome}\n{}", outcome.word(), ended.said)),
    }
}

/// What starts the process of a case.
fn command(name: &str) -> Command {
    if let Some(card) = given_card() {
        let mut command = Command::new(dropin::own_program());
        command.env(CASE, name).env(CARD, card).env("FERROCE_PROVIDER", "system");
        return command;
    }
    let place = CASES.iter().position(|case| case.name == name).unwrap_or(0);
    let address = format!("127.0.{}.{}", 181 + place / 200, place % 200 + 1);
    let mut command = dropin::command(&dropin::own_program(), &address);
    command.env(CASE, name);
    command
}

fn run_here(name: &str) -> ExitCode {
    let address = env::var("FERROCE_ADDRESS").ok().and_then(|address| address.parse().ok());
    let device = given_card().unwrap_or_else(|| "ferroce_lo".to_owned());
    let under = Under { device, address, path: None };
    match child::run(Case::named(name), LIMIT, || under.open()) {
        Outcome::Passed => return ExitCode::SUCCESS,
        Outcome::Missing(missing) => eprintln!("{LACKS}{}", missing.name()),
        outcome => eprintln!("{}: {outcome}", outcome.word()),
    }
    ExitCode::FAILURE
}
