//! One end of a connection: a device, a queue pair and a piece of memory.

use std::io::{BufRead, BufReader, Read};
use std::net::IpAddr;
use std::process::{Child, Command, Stdio};
use std::sync::Arc;

use ferroce_device::memory::Allocation;
use ferroce_device::{AddressVector, CompletionQueue, Config, Nic, PathPolicy, Qp, QpSpec};
use ferroce_transport::{
    Access, AttributeMask, Attributes, Caps, ReceiveRequest, Remote, Sge, State, Status, WorkKind,
};
use ferroce_wire::{Gid, Lkey, PathMtu, Psn, Qpn, Rkey, Service};

use crate::found::{Found, told, why};
use crate::{Outcome, STUCK};

/// Where the devices are.
const ADDRESSES: [[u8; 4]; 2] = [[127, 0, 89, 1], [127, 0, 89, 2]];

/// Bytes of memory.
const MEMORY: usize = 4096;

/// Where messages arrive in it, and where WRITEs do.
const INBOX: usize = 1024;

/// What may be done to it.
const ACCESS: Access = Access::LOCAL_WRITE.union(Access::REMOTE_WRITE);

pub(crate) struct End {
    nic: Nic,
    pub(crate) cq: Arc<CompletionQueue>,
    pub(crate) qp: Arc<Qp>,
    memory: Arc<Allocation>,
    keys: (Lkey, Rkey),
    gid: (usize, Gid),
}

/// Two ends that are connected: of one device if the path is local, else of two.
pub(crate) fn connected(path: PathPolicy) -> Outcome<(End, End)> {
    let first = device(ADDRESSES[0], Config::new("lo"))?;
    let from = End::new(&first, ADDRESSES[0], (path, None))?;
    let to = match path {
        PathPolicy::Forbid => {
            End::new(&device(ADDRESSES[1], Config::new("lo"))?, ADDRESSES[1], (path, None))?
        }
        _ => End::new(&first, ADDRESSES[0], (path, None))?,
    };
    join(from, to)
}

/// Two ends in engines of their own, whose way goes through memory. `None` where there is no such way.
pub(crate) fn sharing() -> Option<Outcome<(End, End)>> {
    let path: PathPolicy = "shared".parse().ok()?;
    let both = || {
        let nic = device(ADDRESSES[0], Config { engines: 2, path, ..Config::new("lo") })?;
        let end = |engine| End::new(&nic, ADDRESSES[0], (path, Some(engine)));
        join(end(0)?, end(1)?)
    };
    Some(both())
}

/// Processes, and engines of each of them, that are neighbours of the first one.
const PROCESSES: usize = 8;
const EACH: usize = 8;

/// An end with 64 neighbours that do nothing, in processes that end with what comes with it. `None` where there are none.
pub(crate) fn among_neighbours() -> Option<Outcome<(End, Idle)>> {
    let path: PathPolicy = "shared".parse().ok()?;
    Some(with_neighbours(path))
}

fn with_neighbours(path: PathPolicy) -> Outcome<(End, Idle)> {
    let nic = device(ADDRESSES[0], Config { path, ..Config::new("lo") })?;
    let end = End::new(&nic, ADDRESSES[0], (path, None))?;
    let mut idle = Idle { processes: Vec::new(), ends: Vec::new() };
    for _ in 0..PROCESSES {
        let mut command = Command::new(std::env::current_exe()?);
        command.arg(NEIGHBOUR).stdin(Stdio::piped()).stdout(Stdio::piped());
        let mut process = command.spawn()?;
        let said = process.stdout.take().ok_or("a pipe")?;
        idle.processes.push(process);
        for line in BufReader::new(said).lines().take(EACH) {
            let mine = End::new(&nic, ADDRESSES[0], (path, None))?;
            mine.connect_to(Qpn::new(line?.parse()?), mine.gid.1)?;
            idle.ends.push(mine);
        }
    }
    Ok((end, idle))
}

/// What a process that is a neighbour is started with.
pub(crate) const NEIGHBOUR: &str = "--neighbour";

/// The life of a neighbour: it has an engine for each queue pair, says their numbers, and waits until its parent is gone.
pub(crate) fn be_neighbour() -> Outcome<()> {
    let path: PathPolicy = "shared".parse().map_err(|_| "older than shared memory")?;
    let nic = device(ADDRESSES[0], Config { engines: EACH, path, ..Config::new("lo") })?;
    let ends = (0..EACH).map(|engine| End::new(&nic, ADDRESSES[0], (path, Some(engine))));
    let ends: Vec<End> = ends.collect::<Outcome<_>>()?;
    for end in &ends {
        println!("{}", end.qp.qpn().get());
    }
    std::io::stdin().read_to_end(&mut Vec::new())?;
    Ok(())
}

/// Neighbours that do nothing.
pub(crate) struct Idle {
    processes: Vec<Child>,
    ends: Vec<End>,
}

impl Drop for Idle {
    fn drop(&mut self) {
        self.ends.clear();
        for process in &mut self.processes {
            // It ends when its input does.
            drop(process.stdin.take());
            drop(process.wait());
        }
    }
}

fn join(from: End, to: End) -> Outcome<(End, End)> {
    from.connect(&to)?;
    to.connect(&from)?;
    Ok((from, to))
}

fn device(address: [u8; 4], config: Config) -> Outcome<Nic> {
    Ok(Nic::open(Config { address: Some(address.into()), ..config })?)
}

impl End {
    fn new(nic: &Nic, address: [u8; 4], (path, engine): (PathPolicy, Option<usize>)) -> Outcome<Self> {
        let cq = CompletionQueue::new(nic, 256, None)?;
        let domain = nic.create_domain()?;
        let memory = Allocation::zeroed(MEMORY)?;
        let keys = nic.register(domain, &memory, (0, MEMORY), memory.address(), ACCESS)?;
        let spec = QpSpec {
            service: Service::Rc,
            domain,
            send_cq: &cq,
            receive_cq: &cq,
            shared_queue: None,
            caps: Caps { max_send: 64, max_receive: 64, max_send_sge: 1, max_receive_sge: 1, max_inline: 0 },
            signal_all: false,
            path: Some(path),
            engine,
            stamps: false,
        };
        let qp = Qp::new(nic, &spec)?;
        let address = IpAddr::from(address);
        let index = nic.gid_index(address).ok_or("the device has not its own address")?;
        Ok(Self { nic: nic.clone(), cq, qp, memory, keys, gid: (index, address.into()) })
    }

    fn connect(&self, other: &Self) -> Outcome<()> {
        self.connect_to(other.qp.qpn(), other.gid.1)
    }

    fn connect_to(&self, peer: Qpn, gid: Gid) -> Outcome<()> {
        let init = Attributes::to(State::Init).with_pkey_index(0).with_port(1).with_access(ACCESS);
        self.qp.modify(&init, None)?;
        let rtr = Attributes::to(State::Rtr)
            .with(AttributeMask::AV)
            .with_path_mtu(PathMtu::B4096)
            .with_dest_qpn(peer)
            .with_rq_psn(Psn::new(77))
            .with_max_dest_rd_atomic(16)
            .with_min_rnr_timer(1);
        self.qp.modify(&rtr, Some(&AddressVector::new(gid, self.gid.0)))?;
        let rts = Attributes::to(State::Rts)
            // Under a profiler all takes long, and nothing is to be sent twice: 4.3 s.
            .with_timeout(20)
            .with_retry_count(7)
            .with_rnr_retry(7)
            .with_sq_psn(Psn::new(77))
            .with_max_rd_atomic(16);
        Ok(self.qp.modify(&rts, None)?)
    }

    /// What it sends from the beginning of its memory.
    pub(crate) fn fill(&self, byte: u8) -> Outcome<()> {
        Ok(self.memory.fill(0, INBOX, byte)?)
    }

    /// The first bytes of its memory.
    pub(crate) fn piece(&self, length: u32) -> Sge {
        Sge { address: self.memory.address(), length, lkey: self.keys.0 }
    }

    /// Where others may write.
    pub(crate) fn remote(&self) -> Remote {
        Remote { address: self.memory.address() + INBOX as u64, rkey: self.keys.1 }
    }

    pub(crate) fn post_receive(&self, length: u32) -> Outcome<()> {
        let place = [Sge { address: self.remote().address, ..self.piece(length) }];
        let request = ReceiveRequest { id: 2, sges: &place };
        Ok(self.qp.post_receive(&[request]).map_err(why)?)
    }

    /// Polls until work of this kind is done; other work may be done meanwhile.
    pub(crate) fn find(&self, kind: WorkKind) -> Outcome<()> {
        let mut found = [Found::EMPTY; 4];
        for _ in 0..STUCK {
            let count = self.cq.poll(&mut found);
            for done in &found[..count] {
                let (_, status) = told(done);
                if status != Status::Success {
                    return Err(format!("work ended with {status:?}; success was expected").into());
                }
            }
            if found[..count].iter().any(|done| told(done).0 == kind) {
                return Ok(());
            }
        }
        Err(format!("no completion of a {kind:?} came").into())
    }

    /// Polls once, and takes what there is.
    pub(crate) fn find_what_is_there(&self) -> Outcome<()> {
        let mut found = [Found::EMPTY; 4];
        let count = self.cq.poll(&mut found);
        match found[..count].iter().map(told).find(|(_, status)| *status != Status::Success) {
            None => Ok(()),
            Some((_, status)) => Err(format!("work ended with {status:?}; success was expected").into()),
        }
    }

    /// Polls, and finds nothing.
    pub(crate) fn find_nothing(&self) -> Outcome<()> {
        let mut found = [Found::EMPTY; 4];
        match self.cq.poll(&mut found) {
            0 => Ok(()),
            came => Err(format!("{came} completions came of nothing").into()),
        }
    }

    /// Whether these bytes came.
    pub(crate) fn check_bytes(&self, byte: u8, length: u32) -> Outcome<()> {
        let mut bytes = vec![0; usize::try_from(length)?];
        self.memory.read(INBOX, &mut bytes)?;
        if bytes.iter().all(|one| *one == byte) { Ok(()) } else { Err("other bytes came".into()) }
    }

    pub(crate) fn packets_sent(&self) -> u64 {
        self.nic.counters().packets_sent
    }
}
