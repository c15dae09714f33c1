//! A device that is open: what all its objects hold on to.

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::os::fd::AsFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, MutexGuard, PoisonError, Weak};
use std::thread::JoinHandle;
use std::time::Duration;

use ferroce_transport::{Access, DomainId, MAX_RESOURCES, Time};
use ferroce_wire::{Gid, Lkey, PKey, PathMtu, Qpn, Rkey};

use crate::address::connection_label;
use crate::clock;
use crate::completion::Wake;
use crate::config::Config;
use crate::counters::DeviceCounters;
use crate::discovery::{self, DeviceInfo, GidTable, Opening};
use crate::driver::{self, Driver};
use crate::engine::{Engine, Reason, Turned};
use crate::error::{CreateError, OpenError};
use crate::event::{AsyncEvent, EventQueue};
use crate::fabric::Fabric;
use crate::fabric::capture::Capture;
use crate::fabric::faults::Faults;
use crate::fabric::udp::{self, UdpConfig, UdpFabric};
use crate::mail::{Mail, Parcel};
use crate::memory::{Allocation, RegionSpec, WindowKind};
use crate::random::Random;
use crate::sync::{Calls, Inside, Turnstile};

/// How large the objects of a device may be, and how many it has.
#[derive(Clone, Copy, Debug)]
pub struct Limits;

impl Limits {
    /// Requests of a queue.
    pub const QUEUE_DEPTH: u32 = 32_768;
    /// Pieces of a request.
    pub const SGE: u32 = 32;
    /// Bytes of an inline request.
    pub const INLINE: u32 = 1024;
    /// Completions of a completion queue.
    pub const COMPLETIONS: u32 = 1 << 22;
    /// Queue pairs.
    pub const QUEUE_PAIRS: usize = 65_000;
    /// Completion queues.
    pub const COMPLETION_QUEUES: usize = 1 << 16;
    /// Shared receive queues.
    pub const SHARED_QUEUES: usize = 1 << 16;
    /// Address handles.
    pub const ADDRESS_HANDLES: usize = 1 << 20;
    /// Protection domains.
    pub const DOMAINS: usize = 1 << 16;
    /// READs and atomics under way on each side of a queue pair.
    pub const READ_DEPTH: u8 = MAX_RESOURCES;
}

/// The flow label of everything on loopback that was given none.
const LOOPBACK_LABEL: u32 = 0x1_2345;

/// Parcels that the mailbox has room for before it grows.
pub(crate) const MAIL: usize = 256;

/// Times that a thread which leaves the engine goes round again because others have rung.
const ROUNDS: usize = 3;

/// An open device. Clones are the same device; it closes when the last of them and of its objects is gone.
#[derive(Clone)]
pub struct Nic {
    running: Arc<Running>,
}

/// What the driver thread and all objects share.
pub(crate) struct Shared {
    pub(crate) turnstile: Turnstile<Engine>,
    pub(crate) mail: Mail,
    pub(crate) driver: Driver,
    /// Looks that programs took at the sockets: the driver steps back while they go on.
    pub(crate) looks: AtomicU64,
    pub(crate) events: Arc<EventQueue>,
}

/// A device and its driver thread.
struct Running {
    shared: Arc<Shared>,
    config: Config,
    info: DeviceInfo,
    gids: Mutex<GidTable>,
    domains: Mutex<Domains>,
    receive_buffer: usize,
    thread: Mutex<Option<JoinHandle<()>>>,
}

#[derive(Debug, Default)]
struct Domains {
    next: u32,
    users: HashMap<u32, u32>,
}

/// The devices that this process has open. Two openings of one interface share a device.
static OPEN: Mutex<Vec<(Config, Weak<Running>)>> = Mutex::new(Vec::new());
static CLOSED: Condvar = Condvar::new();

impl Nic {
    /// Opens a device.
    ///
    /// # Errors
    /// What is missing, and what to do.
    pub fn open(config: Config) -> Result<Self, OpenError> {
        let mut open = lock(&OPEN);
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
                    return Err(OpenError::OtherSettings { interface: config.interface });
                }
                // It is closing just now: the port is free when it has closed.
                None => open = CLOSED.wait(open).unwrap_or_else(PoisonError::into_inner),
            }
        }
        let running = Arc::new(Running::start(config.clone())?);
        open.push((config, Arc::downgrade(&running)));
        Ok(Self { running })
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

    /// The P_Key at an index: there is one.
    #[must_use]
    pub fn pkey(&self, index: usize) -> Option<PKey> {
        (index == 0).then_some(PKey::DEFAULT)
    }

    /// Events that are not completions.
    #[must_use]
    pub fn next_event(&self) -> Option<AsyncEvent> {
        self.shared().events.pop()
    }

    /// Where to wait for events: readable while some wait.
    #[must_use]
    pub fn events(&self) -> &EventQueue {
        &self.shared().events
    }

    /// What happened to the device.
    #[must_use]
    pub fn counters(&self) -> DeviceCounters {
        self.control(|engine| DeviceCounters {
            receive_dropped: engine.port.fabric.dropped(),
            ..engine.counters
        })
    }

    /// A number that nobody outside can guess, such as the PSN that a connection begins with.
    #[must_use]
    pub fn random_u32(&self) -> u32 {
        self.control(|engine| engine.random.next_u32())
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
    pub fn create_domain(&self) -> Result<DomainId, CreateError> {
        let mut domains = lock(&self.running.domains);
        if domains.users.len() >= Limits::DOMAINS {
            return Err(CreateError::TooMany { what: "protection domains", allowed: Limits::DOMAINS });
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
        let mut domains = lock(&self.running.domains);
        let unused = domains.users.get(&domain.0) == Some(&0);
        if unused {
            domains.users.remove(&domain.0);
        }
        unused
    }

    /// Counts one more object of a protection domain, if there is such a domain.
    pub(crate) fn use_domain(&self, domain: DomainId) -> Result<(), CreateError> {
        match lock(&self.running.domains).users.get_mut(&domain.0) {
            Some(users) => {
                *users += 1;
                Ok(())
            }
            None => Err(CreateError::UnknownDomain),
        }
    }

    pub(crate) fn leave_domain(&self, domain: DomainId) {
        if let Some(users) = lock(&self.running.domains).users.get_mut(&domain.0) {
            *users = users.saturating_sub(1);
        }
    }

    /// Registers `len` bytes of an allocation from `offset` on. `iova` is the address that work
    /// and peers use for the first of them.
    ///
    /// # Errors
    /// What was asked and what is allowed.
    pub fn register(
        &self,
        domain: DomainId,
        memory: &Arc<Allocation>,
        (offset, len): (usize, usize),
        iova: u64,
        access: Access,
    ) -> Result<(Lkey, Rkey), CreateError> {
        self.use_domain(domain)?;
        let memory = Arc::clone(memory);
        let spec = RegionSpec { domain, access, iova, memory, offset, len };
        match self.control(|engine| engine.tables.memory.register(spec)) {
            Ok(keys) => Ok((keys.lkey, keys.rkey)),
            Err(error) => {
                self.leave_domain(domain);
                Err(error.into())
            }
        }
    }

    /// Deregisters a region at once: work that names it fails from now on, and nothing touches
    /// its memory any more.
    ///
    /// # Errors
    /// There is no such region, or a window is bound to it.
    pub fn deregister(&self, domain: DomainId, lkey: Lkey) -> Result<(), CreateError> {
        let memory = self.control(|engine| {
            engine.leaving.retain(|leaving| leaving.lkey != lkey);
            engine.tables.memory.deregister(lkey)
        })?;
        // The memory is given back outside of the engine: it may be large.
        drop(memory);
        self.leave_domain(domain);
        Ok(())
    }

    /// Deregisters a region as soon as no posted work names it.
    pub fn release(&self, domain: DomainId, lkey: Lkey) {
        self.control(|engine| {
            engine.release_region(lkey);
        });
        self.leave_domain(domain);
    }

    /// The flow label of a connection that was given none. On loopback there is one way only, and
    /// one socket to send from is enough.
    pub(crate) fn label_of(&self, ours: Qpn, theirs: Qpn) -> u32 {
        if self.running.info.loopback { LOOPBACK_LABEL } else { connection_label(ours, theirs) }
    }

    /// A memory window that opens nothing yet. Type 2 windows are bound by work of a queue pair.
    ///
    /// # Errors
    /// There is no such domain, or there are too many windows.
    pub fn allocate_window(&self, domain: DomainId, kind: WindowKind) -> Result<Rkey, CreateError> {
        self.use_domain(domain)?;
        let key = self.control(|engine| engine.tables.memory.allocate_window(domain, kind));
        Ok(key.inspect_err(|_| self.leave_domain(domain))?)
    }

    /// Gives a memory window back; from now on its key opens nothing.
    ///
    /// # Errors
    /// There is no such window.
    pub fn free_window(&self, domain: DomainId, window: Rkey) -> Result<(), CreateError> {
        self.control(|engine| {
            engine.tables.memory.free_window(window)?;
            // A region may have waited for it.
            engine.release_regions();
            Ok::<_, CreateError>(())
        })?;
        self.leave_domain(domain);
        Ok(())
    }

    /// Whether packets pass middleware that must see all of them.
    pub(crate) fn has_middleware(&self) -> bool {
        self.running.config.faults.is_some() || self.running.config.capture.is_some()
    }

    pub(crate) fn shared(&self) -> &Shared {
        &self.running.shared
    }

    /// Does something in the engine, waiting for it if need be.
    pub(crate) fn control<R>(&self, action: impl FnOnce(&mut Engine) -> R) -> R {
        let shared = self.shared();
        let mut inside = shared.turnstile.enter();
        inside.tables.now = clock::now();
        // Work that met a busy engine was posted before this.
        inside.take_mail(&shared.mail);
        let result = action(&mut inside);
        shared.turn_and_leave(inside, Reason::Posted);
        result
    }

    /// Posts work that needs no turn: does it in the engine if it is free, else leaves a parcel.
    pub(crate) fn post(&self, direct: impl FnOnce(&mut Engine), parcel: impl FnOnce() -> Parcel) {
        let shared = self.shared();
        match shared.turnstile.try_enter() {
            Some(mut inside) => {
                inside.take_mail(&shared.mail);
                direct(&mut inside);
                shared.leave(inside);
            }
            None => {
                shared.mail.push(parcel());
                shared.bell_posted();
            }
        }
    }
}

impl fmt::Debug for Nic {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Nic({})", self.running.info.name)
    }
}

impl Shared {
    /// Mail was left because the engine was busy: the one inside sees the bell when leaving,
    /// and if it has just left, this thread goes in itself.
    pub(crate) fn bell_posted(&self) {
        self.turnstile.ring(Calls::POSTED);
        if let Some(inside) = self.turnstile.try_enter() {
            self.turn_and_leave(inside, Reason::Posted);
        }
    }

    /// Somebody looked for completions and found none.
    pub(crate) fn poll_turn(&self) {
        let Some(mut inside) = self.turnstile.try_enter() else { return };
        // Only whoever is inside counts.
        let looks = self.looks.load(Ordering::Relaxed).wrapping_add(1);
        self.looks.store(looks, Ordering::Relaxed);
        inside.take_calls();
        let mut turned = inside.turn(clock::now(), Reason::Polled, &self.mail);
        self.driver.polled(turned.received == 0, looks);
        // Who polls comes back for the rest, and wants to see first what is there.
        turned.more &= !self.driver.is_parked();
        inside.ring(left_over(turned));
        self.leave(inside);
    }

    pub(crate) fn turn_and_leave(&self, mut inside: Inside<'_, Engine>, reason: Reason) {
        // What the driver rang for must not be lost because work was posted.
        let arrived = inside.take_calls().contains(Calls::ARRIVED);
        let reason = if arrived { Reason::Driver } else { reason };
        let turned = inside.turn(clock::now(), reason, &self.mail);
        inside.ring(left_over(turned));
        self.leave(inside);
    }

    /// Leaves the engine, going round again if somebody rang, and wakes whoever has to be woken.
    pub(crate) fn leave(&self, mut inside: Inside<'_, Engine>) {
        for _ in 0..ROUNDS {
            let wakes = std::mem::take(&mut inside.tables.wakes);
            let next = inside.wants_to_run_at();
            match inside.leave() {
                Ok(()) => {
                    self.left(wakes, next);
                    return;
                }
                Err(again) => {
                    inside = again;
                    inside.tables.wakes = wakes;
                    let calls = inside.take_calls();
                    let reason = if calls.contains(Calls::ARRIVED) { Reason::Driver } else { Reason::Posted };
                    let turned = inside.turn(clock::now(), reason, &self.mail);
                    inside.ring(left_over(turned));
                }
            }
        }
        let wakes = std::mem::take(&mut inside.tables.wakes);
        let next = inside.wants_to_run_at();
        if !inside.leave_ringing().is_empty() {
            self.driver.wake();
        }
        self.left(wakes, next);
    }

    fn left(&self, wakes: Vec<Wake>, next: Option<Time>) {
        self.driver.needed_at(next);
        for wake in wakes {
            wake.run();
        }
    }
}

/// What a turn has left for the next one.
pub(crate) fn left_over(turned: Turned) -> Calls {
    let mut calls = Calls::empty();
    calls.set(Calls::ARRIVED, turned.more);
    calls.set(Calls::POSTED, turned.unsent);
    calls
}

impl Running {
    fn start(config: Config) -> Result<Self, OpenError> {
        let all = discovery::interfaces().map_err(|error| OpenError::System { what: "interfaces", error })?;
        let opening = Opening::Named(vec![config.interface.clone()]);
        let info = discovery::select(all, &opening)?.swap_remove(0);
        let gids = match config.address {
            None => GidTable::new(&info),
            Some(address) => {
                let of_loopback = info.loopback && address.is_loopback();
                if !info.addresses.contains(&address) && !of_loopback {
                    let (interface, has) = (info.interface, info.addresses);
                    return Err(OpenError::ForeignAddress { interface, address, has });
                }
                GidTable::restricted_to(address)
            }
        };
        let udp = open_socket(&UdpConfig {
            address: config.address,
            receive_buffer: config.receive_buffer,
            segmentation: config.segmentation,
            coalescing: config.coalescing,
            ..UdpConfig::new(info.interface.clone())
        })?;
        let receive_buffer = udp.receive_buffer();
        let fabric = with_middleware(Box::new(udp), &config)?;
        let system = |what| move |error| OpenError::System { what, error };
        let events = Arc::new(EventQueue::new().map_err(system("a descriptor for events"))?);
        let random = Random::from_system().map_err(system("random numbers"))?;
        let driver = Driver::new(fabric.descriptors()).map_err(system("descriptors for the driver"))?;
        let engine = Engine::new(fabric, SLOT, random, Arc::clone(&events));
        let shared = Arc::new(Shared {
            turnstile: Turnstile::new(engine),
            mail: Mail::with_capacity(MAIL),
            driver,
            looks: AtomicU64::new(0),
            events,
        });
        let thread = driver::spawn(Arc::clone(&shared)).map_err(system("a driver thread"))?;
        Ok(Self {
            shared,
            config,
            info,
            gids: Mutex::new(gids),
            domains: Mutex::default(),
            receive_buffer,
            thread: Mutex::new(Some(thread)),
        })
    }
}

/// The slot of the one engine. Slot 0 is for the general services and strays.
const SLOT: u8 = 1;

/// Opens the socket. A child of this process that has not yet become another program may hold a
/// copy of one that was closed a moment ago, so a port that is taken is tried for a while.
#[expect(clippy::disallowed_methods, reason = "there is nothing to wait for but time")]
fn open_socket(config: &UdpConfig) -> Result<UdpFabric, udp::OpenError> {
    let give_up = clock::now() + PORT_PATIENCE;
    loop {
        match UdpFabric::open(config) {
            Err(udp::OpenError::PortTaken { .. }) if clock::now() < give_up => {
                std::thread::sleep(PORT_PATIENCE / 50);
            }
            result => return result,
        }
    }
}

/// How long a port that is taken is tried.
const PORT_PATIENCE: Duration = Duration::from_millis(50);

fn with_middleware(udp: Box<dyn Fabric>, config: &Config) -> Result<Box<dyn Fabric>, OpenError> {
    let mut fabric = udp;
    if let Some(path) = &config.capture {
        fabric = Box::new(Capture::create(path, fabric)?);
    }
    if let Some(plan) = &config.faults {
        fabric = Box::new(Faults::new(*plan, fabric));
    }
    Ok(fabric)
}

impl Drop for Running {
    fn drop(&mut self) {
        self.shared.driver.stop();
        if let Some(thread) = lock(&self.thread).take() {
            // A waker may have held the last handle, and the driver may have called it: then we are
            // the driver, and will end by ourselves. One that panicked has said so already.
            if thread.thread().id() != std::thread::current().id() {
                drop(thread.join());
            }
        }
        self.shared.turnstile.enter().port.close();
        let mut open = lock(&OPEN);
        // Only this one: others may be on their way here, with their sockets still open.
        open.retain(|(_, running)| !std::ptr::eq(running.as_ptr(), self));
        CLOSED.notify_all();
    }
}

/// Locks; a thread that panicked while it had the lock has left nothing half done.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}

/// The descriptor of a device's events, for a program's own poll loop.
impl AsFd for Nic {
    fn as_fd(&self) -> std::os::fd::BorrowedFd<'_> {
        self.events().as_fd()
    }
}

#[cfg(test)]
mod tests;
