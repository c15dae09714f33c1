//! One end of a connection: a device with one queue pair and a piece of memory.

use std::net::Ipv4Addr;
use std::sync::Arc;

use ferroce_device::memory::Allocation;
use ferroce_device::{AddressVector, CompletionQueue, Config, Nic, PathPolicy, Qp, QpSpec, WorkCompletion};
use ferroce_transport::{
    Access, AttributeMask, Attributes, Caps, ReceiveRequest, Remote, Sge, State, Status,
};
use ferroce_wire::{Gid, Lkey, PathMtu, Psn, Qpn, Rkey, Service};

use crate::Outcome;
use crate::peer::{Master, Peer};

/// Where the first process is, and the other one.
pub(crate) const HERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 2);
pub(crate) const THERE: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 3);

/// Receives that are kept posted.
pub(crate) const RECEIVES: u32 = 64;

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

/// What the other end has to know.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Card {
    address: Ipv4Addr,
    qpn: Qpn,
    pub(crate) remote: Remote,
}

/// A device of one address, or of all of loopback.
pub(crate) fn device(address: Option<Ipv4Addr>) -> Outcome<Nic> {
    let config = Config { address: address.map(Into::into), ..Config::new("lo") };
    Ok(Nic::open(config)?)
}

impl End {
    /// An end on this device, with so many requests and so many bytes.
    pub(crate) fn new(nic: &Nic, address: Ipv4Addr, depth: u32, bytes: usize) -> Outcome<Self> {
        let domain = nic.create_domain()?;
        let cq = CompletionQueue::new(nic, depth + RECEIVES, None)?;
        let caps = Caps {
            max_send: depth,
            max_receive: RECEIVES,
            max_send_sge: 1,
            max_receive_sge: 1,
            max_inline: 64,
        };
        let qp = Qp::new(
            nic,
            &QpSpec {
                service: Service::Rc,
                domain,
                send_cq: &cq,
                receive_cq: &cq,
                shared_queue: None,
                caps,
                signal_all: false,
                path: Some(PathPolicy::Prefer),
                engine: None,
            },
        )?;
        let memory = Allocation::zeroed(bytes)?;
        memory.fill(0, bytes, 0)?;
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        let (lkey, rkey) = nic.register(domain, &memory, (0, bytes), memory.address(), access)?;
        Ok(Self { nic: nic.clone(), cq, qp, memory, lkey, rkey, address })
    }

    /// The first process's end, connected to that of the other process.
    pub(crate) fn with_peer(peer: &mut Peer, depth: u32, bytes: usize) -> Outcome<(Self, Card)> {
        let end = Self::new(&device(Some(HERE))?, HERE, depth, bytes)?;
        peer.say(&format!("{depth} {bytes} {}", end.card().to_line()))?;
        let card = Card::parse(&peer.hear()?)?;
        end.connect(&card)?;
        // It is ready to receive before it says so.
        peer.hear()?;
        Ok((end, card))
    }

    /// The other process's end; `prepare` is called before the first process hears that it may begin.
    pub(crate) fn with_master(
        master: Master,
        prepare: impl FnOnce(&Self) -> Outcome<()>,
    ) -> Outcome<(Self, Card)> {
        let wanted = master.hear()?;
        let mut parts = wanted.splitn(3, ' ');
        let mut part = || parts.next().ok_or("the first process said too little");
        let (depth, bytes, card) = (part()?.parse()?, part()?.parse()?, part()?);
        let end = Self::new(&device(Some(THERE))?, THERE, depth, bytes)?;
        let card = Card::parse(card)?;
        end.connect(&card)?;
        prepare(&end)?;
        master.say(&end.card().to_line())?;
        master.say("ready")?;
        Ok((end, card))
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
        let end = self.memory.len() as u64;
        let piece = [self.piece(end - 64, 64)];
        for id in 0..count {
            let request = ReceiveRequest { id: id.into(), sges: &piece };
            self.qp.post_receive(&[request]).map_err(|(_, error)| error)?;
        }
        Ok(())
    }

    /// What happened that explains a figure: how packets left, and what went wrong.
    pub(crate) fn note(&self) -> Outcome<String> {
        let device = self.nic.counters();
        let queue_pair = self.qp.query()?.counters;
        let per_call = device.packets_sent as f64 / (device.send_calls as f64).max(1.0);
        let told = ["acks_sent", "retransmitted", "rewinds", "probes", "timeouts", "rnr_received"];
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
pub(crate) fn check(done: &WorkCompletion) -> Outcome<()> {
    match done.completion.status {
        Status::Success => Ok(()),
        status => Err(format!("work ended with {status:?}; success was expected").into()),
    }
}
