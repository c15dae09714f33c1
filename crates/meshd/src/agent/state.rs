//! What the threads of an agent share.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ferroce_mesh::Outcomes;
use ferroce_verbs::time::Notice;
use tokio::sync::{Notify, watch};

use super::schedule::Wanted;
use super::tally::Tally;
use super::{AgentConfig, AgentRnic};
use crate::ledger::Outbox;
use crate::window::WindowReport;

/// How an agent is.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct AgentState {
    /// It has a lease of the controller.
    pub is_registered: bool,
    /// A stream to the analyzer is open.
    pub is_reporting: bool,
    /// Why it has no lease; empty if it has, or has not tried.
    pub controller_trouble: String,
    /// Why no stream is open; empty if one is, or it has not tried.
    pub analyzer_trouble: String,
    /// Pairs that it probes.
    pub targets: usize,
    /// Windows that wait for the analyzer.
    pub waiting: usize,
    /// Windows that are settled.
    pub settled: u64,
    /// Windows that had to make room before they were.
    pub dropped: u64,
    /// Windows that the analyzer refused.
    pub refused: u64,
    /// Why it refused the latest of them.
    pub refusal: String,
    /// Probes that were not sent: the card was busy, or gave no port.
    pub unsent: u64,
    /// Why the latest of them was not.
    pub unsent_trouble: String,
    /// Probes that left from another port than was asked for, since packets to hosts on this machine have one.
    pub unsteered: u64,
    /// Paths that were traced.
    pub traces: u64,
    /// Paths that could not be traced: no packet can leave from their ports.
    pub untraced: u64,
    /// Times that a queue pair broke and was made anew.
    pub reopened: u64,
    /// How all probes of all windows ended, also of those that wait.
    pub outcomes: Outcomes,
    /// The probes of this agent that no window tells one by one.
    pub untold: u64,
    /// Queue pairs of services of this host that are connected to RNICs of the mesh.
    pub services: usize,
    /// Of these, those that are probed from their own ports.
    pub borrowed: usize,
    /// Queue pairs of services that no window tells, since there are too many.
    pub services_left_out: u64,
    /// Why it is not known what services of this host do; empty if it is.
    pub services_trouble: String,
}

#[derive(Debug)]
pub(super) struct Shared {
    pub(super) config: AgentConfig,
    pub(super) rnics: Vec<AgentRnic>,
    /// What waits are drawn from.
    pub(super) seed: u64,
    pub(super) outbox: Notice<Outbox<WindowReport>>,
    /// There is another window.
    pub(super) pushed: Notify,
    /// The queue pairs of the responders.
    pub(super) qpns: watch::Sender<Vec<u32>>,
    /// The controller that is talked to.
    pub(super) controller: watch::Sender<String>,
    /// Where the analyzer is.
    pub(super) analyzer: watch::Sender<String>,
    /// How long a window is, in nanoseconds; 0 until the controller says it.
    pub(super) window: watch::Sender<u64>,
    /// What each RNIC probes, and how often that has changed.
    wanted: Vec<Mutex<Wanted>>,
    /// What each RNIC probes from ports of services.
    borrowed: Vec<Mutex<Wanted>>,
    changes: AtomicU64,
    tally: Mutex<Tally>,
    state: Mutex<AgentState>,
    stopped: AtomicBool,
}

impl Shared {
    pub(super) fn new(config: AgentConfig, rnics: Vec<AgentRnic>, now: u64, seed: u64) -> Self {
        Self {
            outbox: Notice::new(Outbox::new(now, config.queue)),
            config,
            seed,
            pushed: Notify::new(),
            qpns: watch::Sender::new(vec![0; rnics.len()]),
            controller: watch::Sender::new(String::new()),
            analyzer: watch::Sender::new(String::new()),
            window: watch::Sender::new(0),
            wanted: rnics.iter().map(|_| Mutex::default()).collect(),
            borrowed: rnics.iter().map(|_| Mutex::default()).collect(),
            changes: AtomicU64::new(0),
            tally: Mutex::new(Tally::new(now)),
            state: Mutex::default(),
            stopped: AtomicBool::new(false),
            rnics,
        }
    }

    pub(super) fn state(&self) -> AgentState {
        let mut state = lock(&self.state).clone();
        self.outbox.look(|outbox| {
            (state.waiting, state.settled, state.dropped) =
                (outbox.waiting(), outbox.settled(), outbox.dropped());
        });
        state
    }

    pub(super) fn change(&self, change: impl FnOnce(&mut AgentState)) {
        change(&mut lock(&self.state));
    }

    pub(super) fn tally(&self) -> MutexGuard<'_, Tally> {
        lock(&self.tally)
    }

    pub(super) fn is_stopped(&self) -> bool {
        self.stopped.load(Ordering::Relaxed)
    }

    pub(super) fn stop(&self) {
        self.stopped.store(true, Ordering::Relaxed);
    }

    /// The responder of an RNIC has this queue pair from now on.
    pub(super) fn set_qpn(&self, place: usize, qpn: u32) {
        self.qpns.send_modify(|qpns| qpns[place] = qpn);
    }

    /// How often what is to be probed has changed.
    pub(super) fn changes(&self) -> u64 {
        self.changes.load(Ordering::Acquire)
    }

    /// What an RNIC probes.
    pub(super) fn wanted(&self, place: usize) -> Wanted {
        lock(&self.wanted[place]).clone()
    }

    /// The responder of an RNIC that one of ours probes, or that probes one of ours.
    pub(super) fn target(&self, address: IpAddr) -> Option<u32> {
        self.wanted.iter().find_map(|wanted| lock(wanted).get(&address).map(|pair| pair.qpn))
    }

    /// What an RNIC probes from ports of services.
    pub(super) fn borrowed(&self, place: usize) -> Wanted {
        lock(&self.borrowed[place]).clone()
    }

    /// From now on, RNICs probe this from ports of services.
    pub(super) fn borrow_ports(&self, all: Vec<Wanted>) {
        let mut has_changed = false;
        for (known, new) in self.borrowed.iter().zip(all) {
            let mut known = lock(known);
            has_changed |= *known != new;
            *known = new;
        }
        if has_changed {
            self.changes.fetch_add(1, Ordering::Release);
        }
    }

    /// Changes what RNICs probe.
    pub(super) fn want(&self, change: impl FnOnce(&mut BTreeMap<IpAddr, MutexGuard<'_, Wanted>>)) {
        let mut all: BTreeMap<_, _> =
            self.rnics.iter().zip(&self.wanted).map(|(rnic, wanted)| (rnic.address, lock(wanted))).collect();
        change(&mut all);
        let is_probed = |pair: &&super::schedule::Pair| !pair.ports.is_empty();
        let targets = all.values().map(|wanted| wanted.values().filter(is_probed).count()).sum();
        drop(all);
        self.changes.fetch_add(1, Ordering::Release);
        self.change(|state| state.targets = targets);
    }

    /// A window ends now; times are of the Unix clock, in nanoseconds.
    pub(super) fn close_window(&self, now: u64) {
        let drops = self.rnics.iter().map(|rnic| rnic.context.counters().receive_buffer_full).sum();
        let window = self.tally().close(now, drops);
        self.change(|state| {
            window.flows.iter().for_each(|flow| state.outcomes.add(&flow.outcomes));
            state.untold += window.untold;
        });
        self.outbox.change(|outbox| outbox.push(window));
        self.pushed.notify_one();
    }

    /// Our own host stood still for so long.
    pub(super) fn stalled(&self, time: Duration) {
        self.tally().stalled(time);
    }
}

fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
