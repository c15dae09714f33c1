//! Two hosts, the way between them, and what a case needs to make its objects.

use std::cell::Cell;
use std::net::{IpAddr, Ipv6Addr};
use std::sync::atomic::AtomicBool;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::{Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use ferroce_transport::{Data, Remote, SendFlags, SendOp, SendRequest, Sge};
use ferroce_verbs::*;

use crate::Missing;
use crate::waiting::{Wait, completion, until};

/// Long enough for a loaded machine; no case waits for it to pass.
pub const SOON: Duration = Duration::from_secs(20);

/// All that memory can be used for.
pub(crate) const OPEN: Access =
    Access::LOCAL_WRITE.union(Access::REMOTE_WRITE).union(Access::REMOTE_READ).union(Access::REMOTE_ATOMIC);

/// Bytes of an end's region.
pub(crate) const REGION: usize = 64 << 10;

/// A way between two hosts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Setup {
    /// Two devices on two addresses.
    Wire,
    /// Two queue pairs of one device, which must meet directly.
    Local,
    /// Two devices that lose, repeat and reorder packets.
    WireFaults,
    /// Two devices with the receive buffer that a kernel grants to every program.
    WireSmallBuffer,
    /// Two devices that neither have runs cut apart nor put together.
    WireNoOffload,
    /// Only put together.
    WireNoSegmentation,
    /// Only cut apart.
    WireNoCoalescing,
    /// One device on `::1` that must not use the direct way.
    WireV6,
    /// Two queue pairs in two engines of one device, which must meet directly.
    EnginesLocal,
    /// The same over the network.
    EnginesWire,
    /// The same through memory, as between two processes.
    Shared,
    /// What the caller opened.
    Given,
}

/// Only one case at a time can have `::1`.
static V6: Mutex<()> = Mutex::new(());

/// One case's hosts and the way between them. Each case opens its devices itself, so counters and
/// events are its own.
#[derive(Debug)]
pub struct Rig {
    /// The one host.
    pub a: Host,
    /// The other one.
    pub b: Host,
    setup: Setup,
    /// The way that packets must take.
    way: Path,
    quiet: Cell<bool>,
    /// The case has connected queue pairs.
    connected: Cell<bool>,
    _turn: Option<MutexGuard<'static, ()>>,
}

/// A program's view of one host.
#[derive(Debug)]
pub struct Host {
    /// Its device.
    pub context: Context,
    pub(crate) pd: ProtectionDomain,
    /// Which of the device's addresses queue pairs have.
    pub address: IpAddr,
    /// The engine of its ends, where it matters.
    engine: Option<usize>,
    /// Completions of its ends tell when work ended, which on cards is to be asked for.
    timed: AtomicBool,
}

impl Rig {
    /// Opens the devices of a setup. `number` tells cases apart.
    ///
    /// # Panics
    /// They cannot be opened.
    #[must_use]
    pub fn open(setup: Setup, number: usize) -> Self {
        let turn = (setup == Setup::WireV6).then(|| V6.lock().unwrap_or_else(PoisonError::into_inner));
        let net = 60 + setup as u8;
        let address = |side: u8| {
            let (hundred, number) = (number / 100, number % 100);
            let [hundred, number] = [hundred, number].map(|part| u8::try_from(part).unwrap());
            IpAddr::from([127, hundred, net, 2 * number + side])
        };
        let (first, second) = match setup {
            Setup::Local | Setup::EnginesLocal | Setup::EnginesWire | Setup::Shared => {
                (address(1), address(1))
            }
            Setup::WireV6 => (Ipv6Addr::LOCALHOST.into(), Ipv6Addr::LOCALHOST.into()),
            _ => (address(1), address(2)),
        };
        let open = |address: IpAddr, seed: u64| {
            let builder = Context::builder("ferroce_lo").address(address);
            let builder = match setup {
                Setup::Local => builder.path(PathPolicy::Require),
                Setup::WireV6 => builder.path(PathPolicy::Forbid),
                Setup::EnginesLocal => builder.engines(2).path(PathPolicy::Require),
                Setup::EnginesWire => builder.engines(2).path(PathPolicy::Forbid),
                Setup::Shared => builder.engines(2).path(PathPolicy::Shared),
                Setup::WireFaults => {
                    let plan =
                        FaultPlan { loss: 0.02, dup: 0.02, reorder: 0.02, seed, ..FaultPlan::default() };
                    builder.faults(plan)
                }
                Setup::WireSmallBuffer => builder.receive_buffer(212_992),
                Setup::WireNoOffload => builder.segmentation(false).coalescing(false),
                Setup::WireNoSegmentation => builder.segmentation(false),
                Setup::WireNoCoalescing => builder.coalescing(false),
                Setup::Wire | Setup::Given => builder,
            };
            builder.open().unwrap()
        };
        let a = open(first, 1);
        let b = if first == second { a.clone() } else { open(second, 2) };
        let way = match setup {
            Setup::Local | Setup::EnginesLocal => Path::Local,
            Setup::Shared => Path::Shared,
            _ => Path::Wire,
        };
        let apart = matches!(setup, Setup::EnginesLocal | Setup::EnginesWire | Setup::Shared);
        Self { _turn: turn, ..Self::made((a, first), (b, second), setup, way, apart) }
    }

    /// Two hosts on devices that are open, with a network between them.
    ///
    /// # Panics
    /// A device is full.
    #[must_use]
    pub fn of(a: (Context, IpAddr), b: (Context, IpAddr)) -> Self {
        Self::made(a, b, Setup::Given, Path::Wire, false)
    }

    /// Two hosts on one device that is open, with this way between them. A card has a way of its own.
    pub(crate) fn on(context: Context, address: IpAddr, way: Path) -> Self {
        let apart = way == Path::Shared;
        Self::made((context.clone(), address), (context, address), Setup::Given, way, apart)
    }

    /// With `apart`, the ends are in two engines.
    fn made(a: (Context, IpAddr), b: (Context, IpAddr), setup: Setup, way: Path, apart: bool) -> Self {
        let host = |(context, address): (Context, IpAddr), engine| {
            let pd = context.protection_domain().unwrap();
            Host { context, pd, address, engine: apart.then_some(engine), timed: AtomicBool::new(false) }
        };
        Self {
            a: host(a, 0),
            b: host(b, 1),
            setup,
            way,
            quiet: Cell::new(false),
            connected: Cell::new(false),
            _turn: None,
        }
    }

    /// The way that packets must take here.
    pub(crate) fn path(&self) -> Path {
        self.way
    }

    /// Whether the device is a card.
    pub(crate) fn is_card(&self) -> bool {
        self.a.context.provider() == Provider::System
    }

    /// Whether packets between the hosts stay in one machine as far as their devices know.
    pub(crate) fn is_one_machine(&self) -> bool {
        self.a.address == self.b.address || self.a.address.is_loopback()
    }

    /// Whether the devices count what they do.
    pub(crate) fn counts(&self) -> bool {
        self.a.context.can(Capability::Counters)
    }

    /// Whether a completion tells that its sender asked for an event.
    pub(crate) fn marks(&self) -> bool {
        self.a.context.can(Capability::SolicitedMarks)
    }

    /// Says what a case cannot do without; where there is none of it, the case ends here.
    pub(crate) fn needs(&self, capability: Capability) {
        if !self.a.context.can(capability) {
            Missing::Capability(capability).raise();
        }
        if capability == Capability::Timestamps {
            [&self.a, &self.b].iter().for_each(|host| host.timed.store(true, Relaxed));
        }
    }

    /// Whether packets get lost here.
    pub(crate) fn is_lossy(&self) -> bool {
        self.setup == Setup::WireFaults
    }

    /// Does something that ends a receive of the other end, until it has: over a good wire that is the first time.
    #[track_caller]
    pub(crate) fn deliver(&self, from: &End, to: &End, mut send: impl FnMut()) -> Completion {
        if !self.is_lossy() {
            send();
            from.sent();
            return to.received();
        }
        let mut got = None;
        until(|| {
            send();
            from.sent();
            got = (0..1000).find_map(|_| {
                std::thread::yield_now();
                to.receives.poll_one()
            });
            got.is_some()
        });
        to.expect(&got.unwrap_or(Completion::EMPTY))
    }

    /// Says that a case sends no packets.
    pub(crate) fn without_traffic(&self) {
        self.quiet.set(true);
    }

    /// What must hold after each case: the packets took the way of this setup, and none was odd.
    pub(crate) fn check(&self, before: (DeviceCounters, DeviceCounters)) {
        if !self.counts() {
            return;
        }
        let now = self.counters();
        for (before, now) in [(before.0, now.0), (before.1, now.1)] {
            let odd = |c: &DeviceCounters| {
                [c.icrc_errors, c.unknown_opcode, c.malformed, c.send_too_long, c.send_unreachable]
            };
            assert_eq!(odd(&before), odd(&now), "odd packets: {now:?}");
            if self.path() != Path::Wire {
                assert_eq!(
                    (before.packets_sent, before.packets_received),
                    (now.packets_sent, now.packets_received)
                );
            }
        }
        let received = |c: &(DeviceCounters, DeviceCounters)| c.0.packets_received + c.1.packets_received;
        if self.path() == Path::Wire && !self.quiet.get() {
            assert!(received(&now) > received(&before), "nothing went over the wire");
        }
        let by_lane = |c: &(DeviceCounters, DeviceCounters)| c.0.lane_packets_received;
        let goes = by_lane(&now) > by_lane(&before);
        match self.path() {
            Path::Shared if self.connected.get() && !self.quiet.get() => {
                assert!(goes, "nothing went through memory");
            }
            Path::Shared => {}
            Path::Local | Path::Wire => assert!(!goes, "something went through memory"),
        }
    }

    /// What both devices have counted.
    #[must_use]
    pub fn counters(&self) -> (DeviceCounters, DeviceCounters) {
        (self.a.context.counters(), self.b.context.counters())
    }

    /// A reliable connection with nothing special.
    pub(crate) fn rc(&self) -> (End, End) {
        self.connected(Service::Rc, &Shape::default())
    }

    /// A reliable connection of a particular kind.
    pub(crate) fn rc_with(&self, shape: &Shape) -> (End, End) {
        self.connected(Service::Rc, shape)
    }

    /// An unreliable connection.
    pub(crate) fn uc(&self) -> (End, End) {
        self.connected(Service::Uc, &Shape::default())
    }

    pub(crate) fn connected(&self, service: Service, shape: &Shape) -> (End, End) {
        let (a, b) = (self.a.end(service, shape), self.b.end(service, shape));
        self.connect(&a.qp, &b.qp, &shape.options);
        (a, b)
    }

    /// Connects two queue pairs, and looks at the way that was chosen.
    pub(crate) fn connect(&self, a: &QueuePair, b: &QueuePair, options: &ConnectOptions) {
        self.connected.set(true);
        a.connect_with(&b.local_address(), options).unwrap();
        b.connect_with(&a.local_address(), options).unwrap();
        for qp in [a, b] {
            assert_eq!(qp.state(), State::Rts);
            if self.a.context.can(Capability::Paths) {
                assert_eq!(qp.path().unwrap().path, self.path());
            }
        }
    }

    /// Two datagram queue pairs with this Q_Key.
    pub(crate) fn ud(&self, qkey: QKey) -> (End, End) {
        let shape = Shape::default();
        let (a, b) = (self.a.end(Service::Ud, &shape), self.b.end(Service::Ud, &shape));
        a.qp.activate(qkey).unwrap();
        b.qp.activate(qkey).unwrap();
        (a, b)
    }

    /// Asserts that the peer refused work with this status. Where packets get lost, the refusal itself may
    /// be lost; its sender is in error and does not repeat it, so then the peer was silent.
    pub(crate) fn assert_refused(&self, completion: &Completion, status: Status) {
        let silent = self.is_lossy() && completion.status == Status::RetryExceeded;
        assert!(completion.status == status || silent, "{completion:?} instead of {status:?}");
    }
}

/// What a queue pair is to be like.
#[derive(Clone, Copy)]
pub(crate) struct Shape {
    pub(crate) options: ConnectOptions,
    pub(crate) depth: u32,
    pub(crate) completions: u32,
    pub(crate) signal_all: bool,
    pub(crate) region: usize,
}

impl Default for Shape {
    fn default() -> Self {
        // A short RNR wait keeps cases quick.
        let options = ConnectOptions { min_rnr_timer: 1, ..ConnectOptions::default() };
        Self { options, depth: 128, completions: 256, signal_all: true, region: REGION }
    }
}

impl Shape {
    pub(crate) fn with(change: impl FnOnce(&mut ConnectOptions)) -> Self {
        let mut shape = Self::default();
        change(&mut shape.options);
        shape
    }

    pub(crate) fn unsignaled() -> Self {
        Self { signal_all: false, ..Self::default() }
    }

    pub(crate) fn depth(depth: u32) -> Self {
        Self { depth, ..Self::default() }
    }
}

impl Host {
    pub(crate) fn end(&self, service: Service, shape: &Shape) -> End {
        self.end_in(&self.pd, service, shape)
    }

    pub(crate) fn end_in(&self, pd: &ProtectionDomain, service: Service, shape: &Shape) -> End {
        let queue = || match self.timed.load(Relaxed) {
            true => self.context.timed_completion_queue(shape.completions),
            false => self.context.completion_queue(shape.completions),
        };
        let (sends, receives) = (queue().unwrap(), queue().unwrap());
        let builder = pd
            .queue_pair(service)
            .send_queue(&sends, shape.depth)
            .receive_queue(&receives, shape.depth)
            .signal_all(shape.signal_all)
            .address(self.address);
        let builder = match self.engine {
            Some(engine) => builder.engine(engine),
            None => builder,
        };
        let qp = builder.build().unwrap();
        let region = pd.allocate(shape.region, OPEN).unwrap();
        End { qp, sends, receives, region, pd: pd.clone() }
    }

    /// The address of the other host's datagram queue pairs.
    pub(crate) fn handle_to(&self, other: &Self) -> AddressHandle {
        let index = self.context.gid_index(self.address).unwrap();
        self.pd.address_handle(&AddressVector::new(other.address.into(), index)).unwrap()
    }

    /// Waits for an event; others that come before it are passed over.
    #[track_caller]
    pub(crate) fn event(&self, wanted: AsyncEvent) {
        let wait = Wait::begin("an event of the device");
        let events = self.context.events();
        let mut seen = Vec::new();
        loop {
            match events.wait(SOON) {
                Ok(event) if event == wanted => return wait.end(),
                Ok(event) => seen.push(event),
                Err(error) => {
                    wait.in_vain();
                    panic!("{wanted:?} did not come, but {seen:?}: {error}")
                }
            }
        }
    }
}

/// A queue pair with completion queues and memory of its own.
pub(crate) struct End {
    pub(crate) qp: QueuePair,
    pub(crate) sends: CompletionQueue,
    pub(crate) receives: CompletionQueue,
    pub(crate) region: MemoryRegion,
    pub(crate) pd: ProtectionDomain,
}

impl End {
    /// The next completion of a send, which must be a success.
    #[track_caller]
    pub(crate) fn sent(&self) -> Completion {
        self.expect(&self.ended())
    }

    /// The next completion of a send.
    #[track_caller]
    pub(crate) fn ended(&self) -> Completion {
        completion(&self.sends, "the end of a send", || format!("{:?}", self.qp.query()))
    }

    /// The next completion of a receive, which must be a success.
    #[track_caller]
    pub(crate) fn received(&self) -> Completion {
        self.expect(&self.receive_ended())
    }

    #[track_caller]
    fn expect(&self, completion: &Completion) -> Completion {
        match completion.result() {
            Ok(completion) => *completion,
            Err(error) => panic!("{error}: {:?}", self.qp.counters()),
        }
    }

    /// The next completion of a receive.
    #[track_caller]
    pub(crate) fn receive_ended(&self) -> Completion {
        completion(&self.receives, "the end of a receive", || format!("{:?}", self.qp.query()))
    }

    /// Waits until it has told the peer that there is no receive, more often than so many times. Where the device does
    /// not count, it may not have done so yet: what follows has to be right all the same.
    pub(crate) fn until_not_ready(&self, times: u64) {
        if self.counts() {
            until(|| self.qp.counters().rnr_sent > times);
        }
    }

    /// Whether the device counts what its queue pairs do.
    pub(crate) fn counts(&self) -> bool {
        self.qp.as_device().is_some()
    }

    /// Asserts that the queue pair works, by a WRITE of one byte into the end of the peer's region.
    pub(crate) fn still_works(&self, peer: &Self) {
        let last = peer.region.len() as u64 - 1;
        self.qp.write_inline(b"!", peer.region.remote().slice(last..)).id(0x600d).signaled().post().unwrap();
        let done = self.sent();
        assert_eq!((done.id, done.kind), (0x600d, WorkKind::Write));
        assert_eq!(peer.region.load_u8(peer.region.len() - 1), Ok(b'!'));
    }

    /// A piece of memory as the device wants it, unchecked.
    pub(crate) fn sge(&self, offset: u64, length: u32) -> Sge {
        Sge { address: self.region.address() + offset, length, lkey: self.region.lkey() }
    }

    /// A place of this end, as a peer's raw request names it.
    pub(crate) fn at(&self, offset: u64) -> Remote {
        Remote { address: self.region.address().wrapping_add(offset), rkey: self.region.rkey() }
    }

    /// Posts a request that the safe API would not make.
    pub(crate) fn post_raw(&self, id: u64, op: SendOp, sges: &[Sge]) -> Result<(), PostRefusal> {
        let Some(device) = self.qp.as_device() else { return self.post_on_card(id, op, sges) };
        let data = Data::Gather(sges);
        let request = SendRequest { id, op, data, flags: SendFlags::SIGNALED, dest: None };
        device.post_send(&[request]).map_err(|refused| refused.error)
    }
}

impl End {
    /// As a card takes it, whose API has no raw requests: the memory here must be that of this end, and what is the peer's
    /// may be anything.
    fn post_on_card(&self, id: u64, op: SendOp, sges: &[Sge]) -> Result<(), PostRefusal> {
        let first = self.region.address();
        let own = |sge: &Sge| {
            let start = usize::try_from(sge.address.wrapping_sub(first)).ok()?;
            let end = start.checked_add(sge.length as usize)?;
            let is_own = sge.lkey == self.region.lkey() && end <= self.region.len();
            is_own.then(|| self.region.slice(start..end))
        };
        let pieces: Option<Vec<LocalSlice<'_>>> = sges.iter().map(own).collect();
        let Some(pieces) = pieces else { Missing::RawRequests.raise() };
        let at =
            |remote: Remote| RemoteRegion { address: remote.address, length: 1 << 32, rkey: remote.rkey };
        let work = match op {
            SendOp::Write(to) => self.qp.write(&pieces[..], at(to)),
            SendOp::Read(from) => self.qp.read(&pieces[..], at(from)),
            SendOp::CompareSwap { remote, compare, swap } => {
                self.qp.compare_swap(&pieces[..], at(remote), compare, swap)
            }
            SendOp::FetchAdd { remote, add } => self.qp.fetch_add(&pieces[..], at(remote), add),
            SendOp::AtomicWrite(to) => self.qp.atomic_write(&pieces[..], at(to)),
            SendOp::Send => self.qp.send(&pieces[..]),
            SendOp::SendInvalidate(rkey) => self.qp.send(&pieces[..]).invalidate(rkey),
            SendOp::LocalInvalidate(rkey) => self.qp.local_invalidate(rkey),
            SendOp::MaskedCompareSwap { remote, swap } => {
                self.qp.masked_compare_swap(&pieces[..], at(remote), swap)
            }
            SendOp::MaskedFetchAdd { remote, add } => self.qp.masked_fetch_add(&pieces[..], at(remote), add),
            _ => Missing::RawRequests.raise(),
        };
        work.id(id).signaled().post().map_err(|error| match error {
            PostError::Refused { error, .. } => error,
            other => panic!("{other:?}"),
        })
    }
}

/// Bytes that differ everywhere, so that a byte at a wrong place is seen.
pub(crate) fn pattern(len: usize, seed: u32) -> Vec<u8> {
    let mut state = seed.wrapping_mul(2_654_435_761).wrapping_add(1);
    let next = |_| {
        state ^= state << 13;
        state ^= state >> 17;
        state ^= state << 5;
        state.to_le_bytes()[1]
    };
    (0..len).map(next).collect()
}
