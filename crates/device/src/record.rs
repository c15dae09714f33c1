//! A device that writes down what happens in it.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use ferroce_fabric::Path;
use ferroce_memory::{Allocation, MemoryError, RegionKeys, RegionSpec};
use ferroce_record::{PostedFlags, QueuePair as Pair, Recorder, Region, RegionKind, Shade, Step, Way};
use ferroce_switchboard::{RecordReply, RecordRequest, Records};
use ferroce_transport::{Bind, DomainId, PostedSend, SendFlags, SharedQueueId};
use ferroce_wire::{Lkey, Rkey};

use crate::chain::Chain;
use crate::engine::Engine;
use crate::engine::qps::Entry;
use crate::engine::recording::Recording;
use crate::engine::srq_side::PLACE_BITS;
use crate::engine::watch::Watch;
use crate::engines::Everywhere;
use crate::error::NicCreateError;
use crate::nic::{Nic, WeakNic};
use crate::trace::{self, TraceSetting};

impl Nic {
    /// Writes down what happens from now on. It begins with what is there: queue pairs, memory, and work that is not over.
    ///
    /// # Errors
    /// The device is of another process, or is recorded already by another recorder.
    pub fn record(&self, recorder: &Arc<Recorder>) -> Result<(), NicCreateError> {
        self.check_ours()?;
        if !self.recorded_by(recorder) {
            return Err(NicCreateError::Recorded);
        }
        let device = recorder.number_device();
        self.engines().control_all(|all| {
            for engine in &mut all.visits {
                engine.begin_record(recorder, device);
            }
        });
        self.engines().records.store(true, Ordering::Relaxed);
        self.record_connections(Some(recorder));
        Ok(())
    }

    /// Writes nothing down any more with this recorder.
    pub fn stop_recording(&self, recorder: &Arc<Recorder>) {
        if self.check_ours().is_err() || !self.no_longer_recorded_by(recorder) {
            return;
        }
        self.engines().records.store(false, Ordering::Relaxed);
        self.record_connections(None);
        self.engines().control_all(|all| {
            for engine in &mut all.visits {
                engine.end_record();
            }
        });
    }
}

/// Hears of other processes that want this one to write down what its devices do.
pub(crate) struct RecordDesk(pub(crate) WeakNic);

impl Records for RecordDesk {
    fn record(&self, request: RecordRequest, reply: RecordReply) {
        let Self(nic) = self;
        let nic = nic.clone();
        // The thread that hears of it serves others, too; a file may take its time.
        let thread = std::thread::Builder::new().name("ferroce record".to_owned());
        // Without a thread the process that asks hears nothing, and says so.
        let _ = thread.spawn(move || {
            let started = serve(&nic, &request, &reply);
            // The process that asked may be killed: then this one is not to record for ever.
            if let Some(recorder) = started {
                reply.wait_for_the_end();
                if let Some(nic) = nic.upgrade() {
                    nic.stop_recording(&recorder);
                }
                trace::stop_with(&recorder);
            }
        });
    }
}

/// Does what another process asks for, and answers. What is recorded with, if that has begun.
fn serve(nic: &WeakNic, request: &RecordRequest, reply: &RecordReply) -> Option<Arc<Recorder>> {
    let nic = nic.upgrade()?;
    let done = match request {
        RecordRequest::Start { path, flight, sample } => {
            let setting = TraceSetting { path: path.clone(), flight: *flight, sample: *sample };
            nic.start_recording(&setting)
        }
        RecordRequest::Stop => {
            if let Some(recorder) = trace::current_recorder() {
                nic.stop_recording(&recorder);
            }
            trace::stop()
        }
        RecordRequest::Where => trace::current(),
    };
    reply.answer(done.as_deref().map_err(String::as_str));
    let is_begun = done.is_ok() && matches!(request, RecordRequest::Start { .. });
    if is_begun { trace::current_recorder() } else { None }
}

impl Nic {
    /// Writes down what happens as another process wants it.
    fn start_recording(&self, setting: &TraceSetting) -> Result<PathBuf, String> {
        if let Ok(path) = trace::current()
            && !trace::is_current(setting)
        {
            return Err(format!("it records already, into {}", path.display()));
        }
        let recorder =
            trace::recorder(setting, self.engine_count()).map_err(|error| Chain::of(&error).to_string())?;
        self.record(&recorder).map_err(|error| error.to_string())?;
        trace::current()
    }
}

/// What a record says of a region.
pub(crate) fn region(step: Step, keys: RegionKeys, spec: &RegionSpec) -> Region {
    let RegionSpec { domain, access, iova, len, .. } = *spec;
    let (kind, length) = (RegionKind::Region, len as u64);
    Region { step, kind, lkey: keys.lkey, rkey: keys.rkey, address: iova, length, access, domain: domain.0 }
}

impl Everywhere<'_> {
    /// Writes down what became of a region.
    pub(crate) fn record_region(&mut self, step: Step, keys: RegionKeys, spec: &RegionSpec) {
        if let Some(record) = self.visits.first_mut().and_then(|engine| engine.tables.record.as_mut()) {
            record.region(region(step, keys, spec));
        }
    }
}

impl Everywhere<'_> {
    /// Takes a region out of use, and gives its memory back.
    pub(crate) fn deregister(&mut self, lkey: Lkey) -> Result<Arc<Allocation>, MemoryError> {
        let before = self.memory().region(lkey);
        let memory = self.memory().deregister(lkey)?;
        if let Some(spec) = before {
            self.record_region(Step::Gone, RegionKeys { lkey, rkey: Rkey(lkey.0) }, &spec);
        }
        Ok(memory)
    }

    /// Writes down that a window opens something else.
    pub(crate) fn record_binding(&mut self, domain: DomainId, bind: &Bind) {
        if let Some(record) = self.visits.first_mut().and_then(|engine| engine.tables.record.as_mut()) {
            record.tick();
            record.bound(domain, bind);
        }
    }

    /// Writes down that a window is gone.
    pub(crate) fn record_unbinding(&mut self, domain: DomainId, key: Rkey) {
        if let Some(record) = self.visits.first_mut().and_then(|engine| engine.tables.record.as_mut()) {
            record.tick();
            record.unbound(domain, key);
        }
    }
}

/// What a record says of a queue pair.
pub(crate) fn pair(step: Step, entry: &Entry) -> Pair {
    let machine = &entry.machine;
    Pair {
        qpn: machine.qpn(),
        step,
        service: machine.service(),
        state: machine.state(),
        send_cq: entry.send_cq.0,
        receive_cq: entry.receive_cq.0,
        shared: entry.shared.shared_queue.map(|queue| queue.0),
        sends: machine.caps().max_send,
        receives: machine.caps().max_receive,
    }
}

/// What a record says of the way to the peer, if there is one.
pub(crate) fn way(entry: &Entry) -> Option<Way> {
    let (route, choice) = (entry.way?.route, entry.path?);
    Some(Way {
        qpn: entry.machine.qpn(),
        peer: entry.peer,
        local: route.local,
        remote: route.remote,
        port: route.source_port,
        mtu: u16::try_from(entry.machine.rules().path_mtu.bytes()).unwrap_or(u16::MAX),
        is_local: choice.path == Path::Local,
    })
}

impl Engine {
    /// Begins to write down what happens here, with what is there.
    fn begin_record(&mut self, recorder: &Arc<Recorder>, device: u32) {
        if self.tables.record.as_ref().is_some_and(|record| record.is_of(recorder)) {
            return;
        }
        let mut record = Recording::new(recorder, device);
        for side in self.tables.cqs.iter().flatten() {
            side.shared().record(Some(record.program_ring()));
        }
        self.port.fabric.watch_harm(true);
        if self.index() == 0 {
            for (keys, spec) in self.tables.memory.regions() {
                record.push(region(Step::Earlier, keys, &spec));
            }
        }
        let home = u32::try_from(self.index()).unwrap_or(0) << PLACE_BITS;
        for (place, side) in &self.tables.srqs {
            let queue = record.shared_queue(SharedQueueId(home | u32::try_from(place).unwrap_or(0)));
            for (number, id, sges) in side.queue.iter() {
                record.posted_receive((queue, number), (id, sges), None, PostedFlags::EARLIER);
            }
        }
        let Self { qps, windows, tables, .. } = self;
        let now = tables.now;
        for entry in qps.iter_mut() {
            let shared = entry.shared.shared_queue.map(|queue| record.shared_queue(queue));
            let mut watch = Watch::new(&entry.machine, shared);
            record.push(pair(Step::Earlier, entry));
            if let Some(way) = way(entry) {
                record.push(way);
            }
            let machine = &entry.machine;
            let mut psn = machine.oldest_psn();
            for PostedSend { number, request, length, packets } in machine.posted_sends() {
                let (id, kind) = (request.id, request.op.kind());
                let shade = Shade { work: number, id, kind, psn, packets };
                psn += packets;
                let is_signaled = machine.signals_all() || request.flags.contains(SendFlags::SIGNALED);
                let mut flags = PostedFlags::EARLIER;
                flags.set(PostedFlags::REPORTS, is_signaled);
                record.posted_send(&mut watch, (shade, length), &request, None, flags);
            }
            watch.rung();
            let taken = machine.taken_receive().map(|it| (it.number(), it.id(), it.sges()));
            for (number, id, sges) in taken.into_iter().chain(machine.posted_receives()) {
                let to = (watch.receives(), number);
                record.posted_receive(to, (id, sges), None, PostedFlags::EARLIER);
            }
            record.waits(&mut watch, machine.waits(now, windows.get(entry.window)));
            entry.tally.watch = Some(Box::new(watch));
        }
        tables.record = Some(Box::new(record));
    }

    fn end_record(&mut self) {
        self.tables.record = None;
        self.port.fabric.watch_harm(false);
        for side in self.tables.cqs.iter().flatten() {
            side.shared().record(None);
        }
        self.qps.iter_mut().for_each(|entry| entry.tally.watch = None);
    }

    /// A queue pair was made: what happens to it is written down from now on, if so.
    pub(crate) fn record_made(&mut self, qpn: ferroce_wire::Qpn) {
        let Self { qps, tables, .. } = self;
        if let (Some(record), Some(entry)) = (&mut tables.record, qps.get(qpn)) {
            record.tick();
            record.push(pair(Step::Made, entry));
            let shared = entry.shared.shared_queue.map(|queue| record.shared_queue(queue));
            entry.tally.watch = Some(Box::new(Watch::new(&entry.machine, shared)));
        }
    }
}
