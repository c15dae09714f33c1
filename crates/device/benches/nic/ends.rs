//! One end of a connection: a device with one queue pair and a piece of memory.

use std::net::Ipv4Addr;
use std::sync::Arc;

use ferroce_device::fabric::faults::FaultPlan;
use ferroce_device::memory::Allocation;
use ferroce_device::{AddressVector, CompletionQueue, Config, Nic, PathPolicy, Qp, QpSpec};
use ferroce_testkit::process::{Parent, Peer};
use ferroce_transport::{
    Access, AttributeMask, Attributes, Caps, Completion, DomainId, ReceiveRequest, Remote, Sge, State, Status,
};
use ferroce_wire::{Gid, Lkey, PathMtu, Psn, Qpn, Rkey, Service};

use crate::{Outcome, Settings};

/// Where the first process is, and the other one.
pub(crate) const HERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
pub(crate) const THERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);

/// Receives that are kept posted.
pub(crate) const RECEIVES: u32 = 64;

/// Receives that an end with so many requests under way keeps posted: as many again as a peer like it may send.
pub(crate) fn receives(depth: u32) -> u32 {
    RECEIVES.max(depth.min(256) * 2)
}

/// How the ends of a wire between two processes are made; the first process tells the other.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Shape {
    /// Requests of each queue pair.
    pub(crate) depth: u32,
    /// Bytes of memory of each queue pair.
    pub(crate) bytes: usize,
    /// Bytes of a message, for an end that has to know.
    pub(crate) message: u32,
    /// Queue pairs, all with one completion queue.
    pub(crate) pairs: usize,
    /// Bytes of receive buffer to ask for; of these the kernel makes twice as many.
    pub(crate) receive_buffer: usize,
    /// Share of packets that each device loses.
    pub(crate) loss: f64,
    /// The two processes share memory.
    pub(crate) shared: bool,
}

/// What a device asks for.
pub(crate) const WIDE: usize = 4 << 20;

/// What becomes the 208 KiB that a socket has if the program does not ask.
pub(crate) const NARROW: usize = 104 << 10;

/// One end.
#[derive(Debug)]
pub(crate) struct End {
    pub(crate) nic: Nic,
    pub(crate) cq: Arc<CompletionQueue>,
    pub(crate) qp: Arc<Qp>,
    pub(crate) memory: Arc<Allocation>,
    pub(crate) lkey: Lkey,
    rkey: Rkey,
    address: Ipv4Addr,
}

/// What ends can have in common: all but the queue pair.
#[derive(Debug)]
pub(crate) struct Site {
    nic: Nic,
    cq: Arc<CompletionQueue>,
    domain: DomainId,
    memory: Arc<Allocation>,
    keys: (Lkey, Rkey),
    address: Ipv4Addr,
}

/// What may be done to the memory of an end.
const ACCESS: Access = Access::LOCAL_WRITE.union(Access::REMOTE_WRITE).union(Access::REMOTE_READ);

/// What the other end has to know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Card {
    pub(crate) address: Ipv4Addr,
    pub(crate) qpn: Qpn,
    pub(crate) remote: Remote,
}

/// A device of one address, or of all of loopback.
pub(crate) fn device(address: Option<Ipv4Addr>) -> Outcome<Nic> {
    let config = Config { address: address.map(Into::into), ..Config::new("lo") };
    Ok(Nic::open(config)?)
}

impl Shape {
    /// One queue pair and nothing special.
    pub(crate) const fn new(depth: u32, bytes: usize) -> Self {
        Self { depth, bytes, message: 64, pairs: 1, receive_buffer: WIDE, loss: 0.0, shared: false }
    }

    /// The same with or without memory in common, as it is set.
    pub(crate) const fn like(self, settings: &Settings) -> Self {
        Self { shared: settings.shared, ..self }
    }

    fn device(&self, address: Ipv4Addr) -> Outcome<Nic> {
        let Self { receive_buffer, loss, .. } = *self;
        // Other packets are lost on the way back than on the way there.
        let seed = u64::from(u32::from(address));
        let faults = (loss > 0.0).then(|| FaultPlan { loss, seed, ..FaultPlan::default() });
        let address = Some(address.into());
        // What is measured may be recorded, and single messages may gather or not, as the environment wants it.
        let Config { trace, gathering, passes, .. } = Config::from_env("lo")?;
        let shared = self.shared;
        let config =
            Config { address, receive_buffer, faults, trace, gathering, passes, shared, ..Config::new("lo") };
        Ok(Nic::open(config)?)
    }

    /// The ends of one process, with one completion queue for all.
    fn ends(&self, address: Ipv4Addr) -> Outcome<Vec<End>> {
        // Processes that share memory have one address.
        let address = if self.shared { HERE } else { address };
        let nic = self.device(address)?;
        let all = u32::try_from(self.pairs)?;
        let cq = CompletionQueue::new(&nic, all * (self.depth + receives(self.depth)), None)?;
        (0..self.pairs).map(|_| End::with_queue(&nic, &cq, address, self.depth, self.bytes)).collect()
    }

    fn to_line(self) -> String {
        let Self { depth, bytes, message, pairs, receive_buffer, loss, shared } = self;
        format!("{depth} {bytes} {message} {pairs} {receive_buffer} {loss} {shared}")
    }

    fn parse(line: &str) -> Outcome<Self> {
        let mut parts = line.split(' ');
        let mut part = || parts.next().ok_or("the first process said too little");
        Ok(Self {
            depth: part()?.parse()?,
            bytes: part()?.parse()?,
            message: part()?.parse()?,
            pairs: part()?.parse()?,
            receive_buffer: part()?.parse()?,
            loss: part()?.parse()?,
            shared: part()?.parse()?,
        })
    }
}

impl Site {
    pub(crate) fn new(
        nic: &Nic,
        cq: &Arc<CompletionQueue>,
        address: Ipv4Addr,
        bytes: usize,
    ) -> Outcome<Self> {
        let domain = nic.create_domain()?;
        let memory = Allocation::zeroed(bytes)?;
        memory.fill(0, bytes, 0)?;
        let keys = nic.register(domain, &memory, (0, bytes), memory.address(), ACCESS)?;
        Ok(Self { nic: nic.clone(), cq: Arc::clone(cq), domain, memory, keys, address })
    }

    /// Registers its memory once more.
    pub(crate) fn register_again(&self) -> Outcome<()> {
        let Self { nic, domain, memory, .. } = self;
        nic.register(*domain, memory, (0, memory.len()), memory.address(), ACCESS)?;
        Ok(())
    }

    /// An end with a queue pair of its own.
    pub(crate) fn end(&self, caps: Caps) -> Outcome<End> {
        let spec = QpSpec {
            service: Service::Rc,
            domain: self.domain,
            send_cq: &self.cq,
            receive_cq: &self.cq,
            shared_queue: None,
            caps,
            signal_all: false,
            path: Some(PathPolicy::Prefer),
            engine: None,
            stamps: false,
        };
        let qp = Qp::new(&self.nic, &spec)?;
        let (memory, (lkey, rkey)) = (Arc::clone(&self.memory), self.keys);
        let (nic, cq, address) = (self.nic.clone(), Arc::clone(&self.cq), self.address);
        Ok(End { nic, cq, qp, memory, lkey, rkey, address })
    }
}

impl End {
    /// An end on this device, with so many requests and so many bytes.
    pub(crate) fn new(nic: &Nic, address: Ipv4Addr, depth: u32, bytes: usize) -> Outcome<Self> {
        let cq = CompletionQueue::new(nic, depth + receives(depth), None)?;
        Self::with_queue(nic, &cq, address, depth, bytes)
    }

    /// One that completes into this queue.
    fn with_queue(
        nic: &Nic,
        cq: &Arc<CompletionQueue>,
        address: Ipv4Addr,
        depth: u32,
        bytes: usize,
    ) -> Outcome<Self> {
        let caps = Caps {
            max_send: depth,
            max_receive: receives(depth),
            max_send_sge: 1,
            max_receive_sge: 1,
            max_inline: 64,
        };
        Site::new(nic, cq, address, bytes)?.end(caps)
    }

    /// The first process's ends, each connected to one of the other process.
    pub(crate) fn with_peer(peer: &mut Peer, shape: &Shape) -> Outcome<Vec<(Self, Card)>> {
        let ends = shape.ends(HERE)?;
        peer.say(shape.to_line())?;
        let mut connected = Vec::with_capacity(ends.len());
        for end in ends {
            peer.say(end.card().to_line())?;
            let card = Card::parse(&peer.hear()?)?;
            end.connect(&card)?;
            connected.push((end, card));
        }
        // It is ready to receive before it says so.
        peer.hear()?;
        Ok(connected)
    }

    /// The only one of them.
    pub(crate) fn alone_with_peer(peer: &mut Peer, shape: &Shape) -> Outcome<(Self, Card)> {
        Self::with_peer(peer, shape)?.pop().ok_or_else(|| "there is no queue pair".into())
    }

    /// The other process's ends; `prepare` is called before the first process hears that it may begin.
    pub(crate) fn with_parent(
        parent: Parent,
        prepare: impl Fn(&Self, &Shape) -> Outcome<()>,
    ) -> Outcome<(Vec<(Self, Card)>, Shape)> {
        let shape = Shape::parse(&parent.hear()?)?;
        let mut connected = Vec::with_capacity(shape.pairs);
        for end in shape.ends(THERE)? {
            let card = Card::parse(&parent.hear()?)?;
            end.connect(&card)?;
            prepare(&end, &shape)?;
            parent.say(end.card().to_line())?;
            connected.push((end, card));
        }
        parent.say("ready")?;
        Ok((connected, shape))
    }

    /// The only one of them.
    pub(crate) fn alone_with_parent(
        parent: Parent,
        prepare: impl Fn(&Self, &Shape) -> Outcome<()>,
    ) -> Outcome<(Self, Card, Shape)> {
        let (mut ends, shape) = Self::with_parent(parent, prepare)?;
        let (end, card) = ends.pop().ok_or("there is no queue pair")?;
        Ok((end, card, shape))
    }

    pub(crate) fn card(&self) -> Card {
        let remote = Remote { address: self.memory.address(), rkey: self.rkey };
        Card { address: self.address, qpn: self.qp.qpn(), remote }
    }

    /// A piece of its memory.
    pub(crate) fn piece(&self, offset: u64, length: u32) -> Sge {
        Sge { address: self.memory.address() + offset, length, lkey: self.lkey }
    }

    pub(crate) fn connect(&self, other: &Card) -> Outcome<()> {
        let access = Access::REMOTE_WRITE | Access::REMOTE_READ;
        let init = Attributes::to(State::Init).with_pkey_index(0).with_port(1).with_access(access);
        self.qp.modify(&init, None)?;
        let rtr = Attributes::to(State::Rtr)
            .with(AttributeMask::AV)
            .with_path_mtu(PathMtu::B4096)
            .with_dest_qpn(other.qpn)
            .with_rq_psn(Psn::new(77))
            .with_max_dest_rd_atomic(16)
            .with_min_rnr_timer(1);
        let sgid = self.nic.gid_index(self.address.into()).ok_or("the device has not its own address")?;
        let address = AddressVector::new(Gid::from(other.address), sgid);
        self.qp.modify(&rtr, Some(&address))?;
        let rts = Attributes::to(State::Rts)
            .with_timeout(14)
            .with_retry_count(7)
            .with_rnr_retry(7)
            .with_sq_psn(Psn::new(77))
            .with_max_rd_atomic(16);
        self.qp.modify(&rts, None)?;
        Ok(())
    }

    /// Posts receives for the last 64 bytes of its memory.
    pub(crate) fn post_receives(&self, count: u32) -> Outcome<()> {
        self.post_receives_of(count, 64)
    }

    /// Posts receives for so many bytes, the last of its memory.
    pub(crate) fn post_receives_of(&self, count: u32, len: u32) -> Outcome<()> {
        let end = self.memory.len() as u64;
        let piece = [self.piece(end - u64::from(len), len)];
        for id in 0..count {
            let request = ReceiveRequest { id: id.into(), sges: &piece };
            self.qp.post_receive(&[request]).map_err(|refused| refused.error)?;
        }
        Ok(())
    }

    /// What happened that explains a figure: how packets left, and what went wrong.
    pub(crate) fn note(&self) -> Outcome<String> {
        let device = self.nic.counters();
        let queue_pair = self.qp.query()?.counters;
        let per_call = device.packets_sent as f64 / (device.send_calls as f64).max(1.0);
        let told = [
            "acks_sent",
            "retransmitted",
            "rewinds",
            "probes",
            "needless_probes",
            "timeouts",
            "implied_naks",
            "duplicate_responses",
            "duplicate_reads",
            "rnr_received",
        ];
        let odd = ["send_no_room", "send_too_long", "icrc_errors", "malformed", "wrong_peer", "late_timers"];
        let seen = queue_pair.iter().filter(|(name, n)| *n > 0 && told.contains(name));
        let seen = seen.chain(device.iter().filter(|(name, n)| *n > 0 && odd.contains(name)));
        let seen: Vec<String> = seen.map(|(name, n)| format!("{name} {n}")).collect();
        Ok(format!("packets {} per call {per_call:.1} {}", device.packets_sent, seen.join(" ")))
    }
}

impl Card {
    fn to_line(self) -> String {
        let Self { address, qpn, remote } = self;
        format!("{address} {} {} {}", qpn.get(), remote.address, remote.rkey.0)
    }

    fn parse(line: &str) -> Outcome<Self> {
        let mut parts = line.split(' ');
        let mut part = || parts.next().ok_or("an end said too little about itself");
        Ok(Self {
            address: part()?.parse()?,
            qpn: Qpn::new(part()?.parse()?),
            remote: Remote { address: part()?.parse()?, rkey: Rkey(part()?.parse()?) },
        })
    }
}

/// An error if work was not done.
pub(crate) fn check(done: &Completion) -> Outcome<()> {
    match done.status {
        Status::Success => Ok(()),
        status => Err(format!("work ended with {status:?}; success was expected").into()),
    }
}
