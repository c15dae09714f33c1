//! The process whose instructions are counted.

use std::net::IpAddr;
use std::sync::{Arc, OnceLock};
use std::time::Duration;

use ferroce_device::cm::{ConnectionManager, ListeningTo};
use ferroce_device::{PathPolicy, now, park};
use ferroce_transport::{Completion, State};
use ferroce_wire::mad::CommId;
use ferroce_wire::{Qpn, Rkey};

use crate::Outcome;
use crate::class::{Class, Counter, Lie};
use crate::common::{PATIENCE, Peer, Side, device};
use crate::connections::Listener;
use crate::sender::{PEER, PEER_QPN, SERVICE, Sender, VICTIM};

/// A communication id that no connection has, as there is at most one.
const UNUSED: u32 = 0x00ab_cdef;

/// A device with a connected queue pair and a listener.
pub(crate) struct Victim {
    counter: Counter,
    lie: Lie,
    side: Side,
    manager: Arc<ConnectionManager>,
    listener: Arc<Listener>,
    _listening: ListeningTo,
}

impl Victim {
    pub(crate) fn new(class: &Class) -> Outcome<Self> {
        let side = Side::new(&device(VICTIM), VICTIM, PathPolicy::Forbid);
        // There is no such peer: the sender speaks in its name.
        side.connect(&Peer { qpn: PEER_QPN, gid: IpAddr::from(PEER).into(), memory: 0, rkey: Rkey(0) });
        let manager = side.nic.connections()?;
        let accepts_with = (class.lie != Lie::Backlog).then(|| side.qp.qpn());
        let listener = Arc::new(Listener { accepts_with, first: OnceLock::new() });
        let listening = manager.listen(&side.nic, SERVICE, 1, Arc::clone(&listener) as _)?;
        let Class { counter, lie, .. } = *class;
        Ok(Self { counter, lie, side, manager, listener, _listening: listening })
    }

    pub(crate) fn qpn(&self) -> Qpn {
        self.side.qp.qpn()
    }

    /// The connection that requests to end one name.
    pub(crate) fn name(&self) -> CommId {
        let unused = || CommId(self.side.nic.communication_id(UNUSED));
        self.listener.first.get().copied().unwrap_or_else(unused)
    }

    /// Has the sender open the connection, or fill the backlog, if its lies need that.
    pub(crate) fn prepare(&self, sender: &mut Sender) -> Outcome<()> {
        if !matches!(self.lie, Lie::Claim | Lie::StrangerId | Lie::Backlog) {
            return Ok(());
        }
        sender.ask_for_connection()?;
        let came = || self.listener.first.get().is_some();
        until("a request", came, || park(Some(Duration::from_millis(1))))?;
        if self.lie == Lie::Backlog {
            return Ok(());
        }
        sender.confirm(self.name())?;
        let stands = || self.manager.counters().established == 1;
        until("a connection", stands, || park(Some(Duration::from_millis(1))))
    }

    /// Packets of the class that were counted so far.
    pub(crate) fn counted(&self) -> u64 {
        match self.counter {
            Counter::Engine(count) | Counter::Switchboard(count) => count(&self.side.nic.counters()),
            Counter::Qp(count) => self.side.qp.query().map_or(0, |state| count(&state.counters)),
            Counter::Connections(count) => count(&self.manager.counters()),
        }
    }

    /// Works, or lets its threads work, until so many were counted.
    pub(crate) fn wait_for(&self, many: u64) -> Outcome<()> {
        let turns_engine = matches!(self.counter, Counter::Engine(_) | Counter::Qp(_));
        until(
            "a lot",
            || self.counted() >= many,
            || {
                if turns_engine {
                    self.side.cq.poll(&mut [Completion::EMPTY]);
                } else {
                    // The work is done by other threads; this one looks seldom, so that it is not what is
                    // counted.
                    park(Some(Duration::from_millis(1)));
                }
            },
        )
        .map_err(|error| format!("{error}: {} of {many} were counted", self.counted()).into())
    }

    /// Whether the connection still stands.
    pub(crate) fn check(&self) -> Outcome<()> {
        let state = self.side.qp.query()?.attributes.state;
        let ended = self.manager.counters().ended;
        if state == State::Rts && ended == 0 {
            return Ok(());
        }
        Err(format!("the queue pair is in {state:?} and {ended} connections ended; RTS and 0 were expected")
            .into())
    }
}

/// Works until it is so.
fn until(what: &str, is_so: impl Fn() -> bool, work: impl Fn()) -> Outcome<()> {
    let end = now() + PATIENCE;
    // First work: when a lot is complete, nothing was done for it yet.
    work();
    while !is_so() {
        if now() > end {
            return Err(format!("{what} did not come within {PATIENCE:?}").into());
        }
        work();
    }
    Ok(())
}
