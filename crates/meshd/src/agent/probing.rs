//! The threads of an RNIC: one answers probes, one sends them.

use std::time::Duration;

use ferroce_probe::net::{ProbeEndError, ProberEnd, ResponderEnd};
use ferroce_probe::{ProbeEvent, Stamp};
use ferroce_verbs::time::park;
use ferroce_verbs::{CreateError, PortRefusal, RouteError};

use super::AgentRnic;
use super::schedule::Schedule;
use super::state::Shared;
use super::tracing::Tracing;
use crate::backoff::Backoff;
use crate::clock;

/// How often it is looked whether the end has come, or something else is to be probed.
const LOOK: Duration = Duration::from_millis(50);

/// A thread that wakes so much later than it wanted stood still.
const STALL: Duration = Duration::from_millis(50);

/// Answers probes until the end. A queue pair that breaks is made anew, with another number.
pub(super) fn answer(shared: &Shared, place: usize, first: ResponderEnd) {
    let AgentRnic { context, address, .. } = &shared.rnics[place];
    let mut responder = Some(first);
    let mut backoff = Backoff::new(shared.config.backoff, shared.seed ^ place as u64);
    while !shared.is_stopped() {
        let Some(end) = &mut responder else {
            wait(shared, backoff.wait());
            responder = ResponderEnd::open(context, *address, None, shared.config.responder).ok();
            if let Some(end) = &responder {
                shared.change(|state| state.reopened += 1);
                shared.set_qpn(place, end.qpn());
            }
            continue;
        };
        if end.turn().is_err() {
            responder = None;
            continue;
        }
        let before = clock::now();
        end.sleep(LOOK);
        note_stall(shared, before.plus(LOOK));
    }
}

/// Probes what is wanted until the end.
pub(super) fn probe(shared: &Shared, place: usize, first: ProberEnd) {
    let AgentRnic { context, address, .. } = &shared.rnics[place];
    let mut prober = Some(first);
    let mut backoff = Backoff::new(shared.config.backoff, shared.seed ^ !(place as u64));
    let mut schedule = Schedule::default();
    let mut tracing = Tracing::new(shared.config.traces);
    let mut known = None;
    while !shared.is_stopped() {
        let Some(end) = &mut prober else {
            wait(shared, backoff.wait());
            prober = ProberEnd::open(context, *address, shared.config.prober).ok();
            shared.change(|state| state.reopened += u64::from(prober.is_some()));
            continue;
        };
        let changes = shared.changes();
        if known != Some(changes) {
            known = Some(changes);
            let (wanted, borrowed) = (shared.wanted(place), shared.borrowed(place));
            tracing.set(&wanted, &borrowed);
            schedule.set(wanted, borrowed, shared.config.rate, end.now());
        }
        let turned = turn(shared, place, end, &mut schedule);
        if turned.and_then(|()| tracing.turn(shared, place, end)).is_err() {
            prober = None;
            tracing = Tracing::new(shared.config.traces);
            known = None;
            continue;
        }
        if tracing.is_busy() {
            continue;
        }
        let look = end.now().plus(LOOK);
        let due = schedule.wake_at().map_or(look, |due| due.min(look));
        end.sleep_until(due);
        note_stall(shared, due);
    }
}

/// Sends what is due, and counts what ended.
fn turn(
    shared: &Shared,
    place: usize,
    prober: &mut ProberEnd,
    schedule: &mut Schedule,
) -> Result<(), ProbeEndError> {
    while let Some((target, port)) = schedule.next(prober.now(), prober.pace()) {
        let mut sent = prober.probe(target, port);
        if sent.as_ref().is_err_and(has_one_port) {
            // The window says which port it was; only the choice of the way is lost.
            sent = prober.probe(target, None);
            shared.change(|state| state.unsteered += u64::from(sent.is_ok()));
        }
        if let Err(error) = sent {
            shared.change(|state| {
                state.unsent += 1;
                state.unsent_trouble = chain(&error);
            });
        }
    }
    let turned = prober.turn();
    let from = shared.rnics[place].address;
    while let Some(event) = prober.poll() {
        if let ProbeEvent::Ended(report) = event {
            shared.tally().ended(from, &report);
        }
    }
    turned
}

/// Whether packets to this target have one port: it is on this machine, where any other port could be a stranger's.
const fn has_one_port(error: &ProbeEndError) -> bool {
    matches!(
        error,
        ProbeEndError::Port {
            error: CreateError::Address(RouteError::SourcePort { why: PortRefusal::Fixed { .. }, .. }),
            ..
        }
    )
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}

fn note_stall(shared: &Shared, due: Stamp) {
    let late = clock::now().since(due);
    if late >= STALL {
        shared.stalled(late);
    }
}

/// Lets a time pass, unless the end comes first.
fn wait(shared: &Shared, time: Duration) {
    let end = clock::now().plus(time);
    while !shared.is_stopped() {
        let left = end.since(clock::now());
        if left.is_zero() {
            return;
        }
        park(Some(left.min(LOOK)));
    }
}
