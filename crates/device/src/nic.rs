//! A device that is open: what all its objects hold on to.

mod groups;
mod memory;

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::{Arc, Condvar, Mutex, OnceLock, PoisonError, TryLockError, Weak};
use std::thread::JoinHandle;

use ferroce_fabric::capture::Capture;
use ferroce_memory::MemoryTable;
use ferroce_progress::Sleepers;
use ferroce_record::Recorder;
use ferroce_switchboard::{Membership, Records, Slot};
use ferroce_sys::Random;
use ferroce_sys::fork::{self, PerProcess};
use ferroce_sys::sync::Share;
use ferroce_sys::sync::lock;
use ferroce_transport::DomainId;
use ferroce_transport::cm::CmCounters;
use ferroce_wire::{Gid, PKey, PKeyTable, PathMtu};

use crate::cm::{ConnectionManager, Managing};
use crate::config::Config;
use crate::counters::{DeviceCounters, DeviceReport};
use crate::discovery::{self, DeviceInfo, GidTable, Opening};
use crate::driver::{self, Driver};
use crate::engine::Engine;
use crate::engines::{Engines, Station};
use crate::error::{NicCreateError, NicOpenError, SettingError};
use crate::event::{AsyncEvent, EventQueue};
use crate::exit;
use crate::gate::Gate;
use crate::limits::Limits;
use crate::neighbours::Neighbours;
use crate::ports::{Ports, open_ports};
use crate::record::RecordDesk;
use crate::trace;

/// An open device. Clones are the same device; it closes when the last of them and of its objects is gone.
#[derive(Clone)]
pub struct Nic {
    running: Arc<Running>,
}

/// A handle that does not keep the device open.
#[derive(Clone)]
pub(crate) struct WeakNic(Weak<Running>);

impl WeakNic {
    /// The device, if it is open still.
    pub(crate) fn upgrade(&self) -> Option<Nic> {
        self.0.upgrade().map(|running| Nic { running })
    }
}

/// A device and its driver threads.
struct Running {
    engines: Arc<Engines>,
    sleepers: Arc<Sleepers>,
    config: Config,
    info: DeviceInfo,
    gids: Mutex<GidTable>,
    domains: Mutex<Domains>,
    receive_buffer: usize,
    threads: Mutex<Vec<JoinHandle<()>>>,
    /// What the engines receive for. The sockets belong to the membership, which goes last.
    slots: Vec<Slot>,
    /// Where packets come in that others have forwarded to these slots.
    #[cfg_attr(not(test), expect(dead_code, reason = "it is there to be held"))]
    gates: Vec<Arc<Gate>>,
    member: Arc<Membership>,
    /// Connections, once there were any.
    connections: Mutex<Option<Managing>>,
    /// What hears of other processes that want this one to write down what happens.
    desk: OnceLock<Arc<RecordDesk>>,
    /// What writes down what happens, if something does.
    recorder: Mutex<Option<Arc<Recorder>>>,
    /// The file that everything is captured in, if there is one.
    capture: Option<Capture<()>>,
    /// Which process opened it, counted in forks.
    generation: u32,
}

#[derive(Debug, Default)]
struct Domains {
    next: u32,
    users: HashMap<u32, u32>,
}

/// The devices that this process has open. Two openings of one interface share a device.
static OPEN: PerProcess<Open> = PerProcess::new();

#[derive(Default)]
struct Open {
    devices: Mutex<Vec<(Config, Weak<Running>)>>,
    closed: Condvar,
}

impl Nic {
    /// Opens a device.
    ///
    /// # Errors
    /// What is missing, and what to do.
    pub fn open(config: Config) -> Result<Self, NicOpenError> {
        let Open { devices, closed } = OPEN.get();
        let mut open = lock(devices);
        loop {
            let same =
                |other: &Config| other.interface == config.interface && other.address == config.address;
            let Some((known, running)) = open.iter().find(|(known, _)| same(known)) else { break };
            let same_settings = *known == config;
            match running.upgrade() {
                Some(running) if same_settings => return Ok(Self { running }),
                Some(running) => {
                    // It may be the last handle by now, and closing takes the list.
                    drop(open);
                    drop(running);
                    return Err(NicOpenError::OtherSettings { interface: config.interface });
                }
                // It is closing just now: the port is free when it has closed.
                None => open = closed.wait(open).unwrap_or_else(PoisonError::into_inner),
            }
        }
        let recorder =
            config.trace.as_ref().map(|trace| trace::recorder(trace, config.engines)).transpose()?;
        let running = Arc::new(Running::start(config.clone())?);
        open.push((config, Arc::downgrade(&running)));
        let nic = Self { running };
        nic.can_be_asked_to_record();
        // Another process may have asked this one to record before it opened the device.
        if let Some(recorder) = recorder.or_else(trace::current_recorder) {
            // Cannot fail: it was opened by this process.
            let _ = nic.record(&recorder);
        }
        Ok(nic)
    }

    /// The devices of an interface that this process has open: one for all its addresses, or several with one each.
    #[must_use]
    pub fn opened_here(interface: &str) -> Vec<Self> {
        let devices = lock(&OPEN.get().devices);
        let of_it = devices.iter().filter(|(config, _)| config.interface == interface);
        let open = of_it.filter_map(|(_, running)| running.upgrade()).collect::<Vec<_>>();
        // One of these may be the last handle by now, and closing takes the list.
        drop(devices);
        open.into_iter().map(|running| Self { running }).collect()
    }

    /// Whether this process opened the device, and not one that it was forked from. If not, everything
    /// returns errors, and the device has to be opened anew.
    #[must_use]
    #[inline]
    pub fn is_ours(&self) -> bool {
        self.running.generation == fork::generation()
    }

    /// Fails in a process that was forked from the one which opened the device: other threads may have been
    /// in the middle of anything then, so nothing of it is touched.
    pub(crate) fn check_ours(&self) -> Result<(), NicCreateError> {
        if self.is_ours() { Ok(()) } else { Err(NicCreateError::Forked) }
    }

    pub(crate) fn member(&self) -> &Arc<Membership> {
        &self.running.member
    }

    pub(crate) fn slots(&self) -> &[Slot] {
        &self.running.slots
    }

    /// What the engine of this place receives for.
    pub(crate) fn slot(&self, engine: usize) -> Option<&Slot> {
        self.running.slots.get(engine)
    }

    /// What is known of the interface.
    #[must_use]
    pub fn info(&self) -> &DeviceInfo {
        &self.running.info
    }

    /// How it was opened.
    #[must_use]
    pub fn config(&self) -> &Config {
        &self.running.config
    }

    /// Bytes of the receive buffer that the kernel granted.
    #[must_use]
    pub fn receive_buffer(&self) -> usize {
        self.running.receive_buffer
    }

    /// The largest payload of a packet here.
    #[must_use]
    pub fn active_mtu(&self) -> PathMtu {
        self.running.info.active_mtu()
    }

    /// All GIDs of the port.
    #[must_use]
    pub fn gids(&self) -> Vec<Gid> {
        lock(&self.running.gids).iter().collect()
    }

    /// The GID at an index.
    #[must_use]
    pub fn gid(&self, index: usize) -> Option<Gid> {
        lock(&self.running.gids).get(index)
    }

    /// How many GIDs there are.
    #[must_use]
    pub fn gid_count(&self) -> usize {
        lock(&self.running.gids).len()
    }

    /// The index of an address; every address of 127.0.0.0/8 gets one on the loopback device.
    #[must_use]
    pub fn gid_index(&self, address: IpAddr) -> Option<usize> {
        lock(&self.running.gids).index_of(address)
    }

    /// Whether packets to this address come back to this device.
    #[must_use]
    pub fn has_address(&self, address: IpAddr) -> bool {
        lock(&self.running.gids).has(address)
    }

    /// The partitions that the port belongs to.
    #[must_use]
    pub fn pkeys(&self) -> PKeyTable {
        self.config().pkeys
    }

    /// The P_Key at an index.
    #[must_use]
    pub fn pkey(&self, index: usize) -> Option<PKey> {
        self.config().pkeys.get(index)
    }

    /// Events that are not completions.
    #[must_use]
    pub fn next_event(&self) -> Option<AsyncEvent> {
        if self.is_ours() { self.engines().events.pop() } else { None }
    }

    /// Where to wait for events: readable while some wait.
    #[must_use]
    pub fn events(&self) -> &EventQueue {
        &self.engines().events
    }

    /// How many engines its queue pairs are spread over.
    #[must_use]
    pub fn engine_count(&self) -> usize {
        self.engines().len()
    }

    /// What happened to the device.
    #[must_use]
    pub fn counters(&self) -> DeviceCounters {
        let engines = self.engines();
        let mut sum = DeviceCounters::default();
        if !self.is_ours() {
            return sum;
        }
        sum.add_traffic(&self.member().traffic());
        for index in 0..engines.len() {
            sum += engines.control(index, |engine| engine.counted());
        }
        sum
    }

    /// The gate of its first engine.
    #[cfg(test)]
    pub(crate) fn first_gate(&self) -> &Arc<Gate> {
        &self.running.gates[0]
    }

    /// What the device and all its queue pairs have done so far.
    #[must_use]
    pub fn report(&self) -> DeviceReport {
        let mut report = DeviceReport { counters: self.counters(), ..DeviceReport::default() };
        if !self.is_ours() {
            return report;
        }
        let engines = self.engines();
        for index in 0..engines.len() {
            engines.control(index, |engine| {
                report.totals.add(&engine.totals());
                report.queue_pairs += engine.qps.count() as u64;
                report.queue_pairs_made += engine.qps_made;
            });
        }
        report
    }

    /// The connection manager of the device, which is started if it is not running.
    ///
    /// # Errors
    /// The system gives neither a thread nor a descriptor, or the device was opened before a fork.
    pub fn connections(&self) -> std::io::Result<Arc<ConnectionManager>> {
        if !self.is_ours() {
            return Err(std::io::ErrorKind::NotConnected.into());
        }
        let mut connections = lock(&self.running.connections);
        if connections.is_none() {
            let capture = self.running.capture.as_ref().map(|capture| capture.around(()));
            let managing = Managing::start(self, capture)?;
            managing.manager.record(lock(&self.running.recorder).as_deref());
            *connections = Some(managing);
        }
        connections.as_ref().map(|it| Arc::clone(&it.manager)).ok_or_else(|| std::io::ErrorKind::Other.into())
    }

    /// Lets other processes ask this one to write down what happens.
    fn can_be_asked_to_record(&self) {
        let desk = self.running.desk.get_or_init(|| Arc::new(RecordDesk(self.downgrade())));
        self.member().records_by(Arc::downgrade(desk) as Weak<dyn Records>);
    }

    /// A handle that does not keep the device open.
    fn downgrade(&self) -> WeakNic {
        WeakNic(Arc::downgrade(&self.running))
    }

    /// Takes note that this recorder records the device; false if another one does.
    pub(crate) fn recorded_by(&self, recorder: &Arc<Recorder>) -> bool {
        let mut current = lock(&self.running.recorder);
        Arc::ptr_eq(current.get_or_insert_with(|| Arc::clone(recorder)), recorder)
    }

    /// Takes note that this recorder does not record the device any more; false if it did not.
    pub(crate) fn no_longer_recorded_by(&self, recorder: &Arc<Recorder>) -> bool {
        let mut current = lock(&self.running.recorder);
        current.take_if(|current| Arc::ptr_eq(current, recorder)).is_some()
    }

    /// Has it written down what happens to connections, or no longer.
    pub(crate) fn record_connections(&self, recorder: Option<&Arc<Recorder>>) {
        // A manager that starts just now sees whether there is a recorder.
        let connections = lock(&self.running.connections);
        if let Some(managing) = &*connections {
            managing.manager.record(recorder.map(|recorder| &**recorder));
        }
    }

    /// What happened to its connections.
    #[must_use]
    pub fn connection_counters(&self) -> CmCounters {
        if !self.is_ours() {
            return CmCounters::default();
        }
        let manager = lock(&self.running.connections).as_ref().map(|it| Arc::clone(&it.manager));
        manager.map_or_else(CmCounters::default, |manager| manager.counters())
    }

    /// A number that no other process can guess, such as the PSN that a connection begins with.
    #[must_use]
    pub fn random_u32(&self) -> u32 {
        if self.is_ours() {
            return self.engines().control(0, |engine| engine.random.next_u32());
        }
        // The parent's generator would give the same numbers there.
        Random::from_system().map_or(0, |mut random| random.next_u32())
    }

    /// Whether two handles are of the same device.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.running, &other.running)
    }

    /// A new protection domain.
    ///
    /// # Errors
    /// There are too many.
    pub fn create_domain(&self) -> Result<DomainId, NicCreateError> {
        self.check_ours()?;
        let mut domains = lock(&self.running.domains);
        if domains.users.len() >= Limits::DOMAINS {
            return Err(NicCreateError::TooMany { what: "protection domains", allowed: Limits::DOMAINS });
        }
        loop {
            let id = domains.next;
            domains.next = domains.next.wrapping_add(1);
            if let std::collections::hash_map::Entry::Vacant(free) = domains.users.entry(id) {
                free.insert(0);
                return Ok(DomainId(id));
            }
        }
    }

    /// Ends a protection domain. False, and nothing changed, while objects belong to it.
    #[must_use]
    pub fn destroy_domain(&self, domain: DomainId) -> bool {
        if !self.is_ours() {
            return true;
        }
        let mut domains = lock(&self.running.domains);
        let unused = domains.users.get(&domain.0) == Some(&0);
        if unused {
            domains.users.remove(&domain.0);
        }
        unused
    }

    /// Counts one more object of a protection domain, if there is such a domain.
    pub(crate) fn use_domain(&self, domain: DomainId) -> Result<(), NicCreateError> {
        self.check_ours()?;
        match lock(&self.running.domains).users.get_mut(&domain.0) {
            Some(users) => {
                *users += 1;
                Ok(())
            }
            None => Err(NicCreateError::UnknownDomain),
        }
    }

    pub(crate) fn leave_domain(&self, domain: DomainId) {
        if !self.is_ours() {
            return;
        }
        if let Some(users) = lock(&self.running.domains).users.get_mut(&domain.0) {
            *users = users.saturating_sub(1);
        }
    }

    /// Whether packets pass middleware that must see all of them.
    pub(crate) fn has_middleware(&self) -> bool {
        self.running.config.faults.is_some() || self.running.config.capture.is_some()
    }

    pub(crate) fn engines(&self) -> &Engines {
        &self.running.engines
    }

    /// The completion queues that the program sleeps for.
    pub(crate) fn sleepers(&self) -> Arc<Sleepers> {
        Arc::clone(&self.running.sleepers)
    }
}

impl fmt::Debug for Nic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Nic({})", self.running.info.name)
    }
}

/// The process is about to end with these devices open. Nothing is waited for that may never come: another
/// thread, or the one that ends the process, may be in the middle of anything.
fn say_farewell() {
    let devices = match OPEN.get().devices.try_lock() {
        Ok(devices) => devices,
        Err(TryLockError::Poisoned(devices)) => devices.into_inner(),
        Err(TryLockError::WouldBlock) => return,
    };
    let running: Vec<Arc<Running>> = devices.iter().filter_map(|(_, running)| running.upgrade()).collect();
    // One of these may be the last handle by now, and closing takes the list.
    drop(devices);
    for device in running {
        device.engines.say_farewell();
        // One that is just being started has no connections.
        let manager = device.connections.try_lock().ok();
        if let Some(managing) = manager.as_ref().and_then(|managing| managing.as_ref()) {
            managing.manager.say_farewell();
        }
    }
    trace::end();
}

impl Running {
    fn start(config: Config) -> Result<Self, NicOpenError> {
        let all =
            discovery::interfaces().map_err(|error| NicOpenError::System { what: "interfaces", error })?;
        let opening = Opening::Named(vec![config.interface.clone()]);
        let info = discovery::select(all, &opening)?.swap_remove(0);
        let gids = match config.address {
            None => GidTable::new(&info),
            Some(address) => {
                let of_loopback = info.loopback && address.is_loopback();
                if !info.addresses.contains(&address) && !of_loopback {
                    let (interface, has) = (info.interface, info.addresses);
                    return Err(NicOpenError::ForeignAddress { interface, address, has });
                }
                GidTable::restricted_to(address)
            }
        };
        let count = config.engines;
        if !(1..=Limits::ENGINES).contains(&count) {
            let (given, most) = (count.to_string(), Limits::ENGINES);
            return Err(SettingError::Engines { given, most }.into());
        }
        // In this order: should anything fail from here on, the ports go first, then the slots that they are
        // of.
        let Ports { member, slots, receive_buffer, ports, capture } = open_ports(&config, &info, count)?;
        let system = |what| move |error| NicOpenError::System { what, error };
        let events = Arc::new(EventQueue::new().map_err(system("a descriptor for events"))?);
        let mut random = Random::from_system().map_err(system("random numbers"))?;
        let shares = Share::split(MemoryTable::new(random.fork()), count);
        let sleepers = Arc::default();
        let mut stations = Vec::with_capacity(count);
        let has_bell = config.shares_memory();
        for ((index, mut port), memory) in ports.into_iter().enumerate().zip(shares) {
            // A network may mark packets; loopback does not.
            if !info.loopback || config.capture.is_some() {
                port.1.show_marks();
            }
            let driver = Driver::new(port.1.descriptors(), Arc::clone(&sleepers), has_bell)
                .map_err(system("descriptors for the driver"))?;
            let random = Random::from_system().map_err(system("random numbers"))?;
            let mut engine = Engine::new(index, port, memory, random, Arc::clone(&events));
            engine.gathers = config.gathering;
            engine.port.passes = config.passes;
            stations.push(Station::new(engine, driver, Neighbours::new(has_bell)));
        }
        let engines = Arc::new(Engines::new(stations, events, Arc::clone(&member)));
        let running = Self {
            gates: slots.iter().zip(0..).map(|(slot, index)| Gate::open(slot, &engines, index)).collect(),
            engines,
            sleepers,
            config,
            info,
            gids: Mutex::new(gids),
            domains: Mutex::default(),
            receive_buffer,
            threads: Mutex::default(),
            slots,
            member,
            connections: Mutex::default(),
            desk: OnceLock::new(),
            recorder: Mutex::default(),
            capture,
            generation: fork::generation(),
        };
        for index in 0..count {
            let thread = driver::spawn(Arc::clone(&running.engines), index);
            lock(&running.threads).push(thread.map_err(system("a driver thread"))?);
        }
        exit::watch(say_farewell);
        Ok(running)
    }
}

impl Drop for Running {
    fn drop(&mut self) {
        let connections = self.connections.get_mut().unwrap_or_else(PoisonError::into_inner).take();
        if let Some(managing) = connections {
            managing.stop(self.generation);
        }
        if self.generation != fork::generation() {
            // The threads are the parent's, and so is everything else.
            std::mem::take(self.threads.get_mut().unwrap_or_else(PoisonError::into_inner))
                .into_iter()
                .for_each(std::mem::forget);
            return;
        }
        for station in self.engines.iter() {
            station.driver.stop();
        }
        for thread in lock(&self.threads).drain(..) {
            // A waker may have held the last handle, and a driver may have called it: then we are
            // that driver, and will end by ourselves. One that panicked has said so already.
            if thread.thread().id() != std::thread::current().id() {
                drop(thread.join());
            }
        }
        for station in self.engines.iter() {
            station.turnstile.enter().port.close();
        }
        let Open { devices, closed } = OPEN.get();
        let mut open = lock(devices);
        // Only this one: others may be on their way here, with their sockets still open.
        open.retain(|(_, running)| !std::ptr::eq(running.as_ptr(), self));
        closed.notify_all();
    }
}

/// The descriptor of a device's events, for a program's own poll loop.
impl AsFd for Nic {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.events().as_fd()
    }
}

#[cfg(test)]
mod tests;
