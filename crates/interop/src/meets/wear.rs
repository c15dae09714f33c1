//! Objects of a card that are left in the ways that leak: regions dropped under work, queues with events that were never taken,
//! processes that are killed. Afterwards the kernel's own counts must be what they were.

use std::collections::BTreeMap;
use std::io::{BufRead as _, BufReader};
use std::process::{Command, Stdio};

use ferroce_verbs::{
    Access, CompletionChannel, CompletionQueue, ConnectOptions, Context, MemoryRegion, Notify,
    ProtectionDomain, QueuePair, Service, SharedReceiveQueue,
};

use crate::{Result, SOON, ensure};

/// What a process says when it has all that it is to be killed with.
const HOLDS: &str = "holds";
const LEN: usize = 16 << 10;
/// How often the counts are asked for before they are what they are; each time is a process that starts.
const LOOKS: u32 = 300;

/// Leaves objects once, in one way.
type Way<'a> = &'a dyn Fn(u32) -> Result<()>;

/// Leaves everything so many times in each way, and compares the counts. `program` starts this program again.
pub(crate) fn wear(device: &str, rounds: u32, program: &str) -> Result<()> {
    let ways: [(&str, Way<'_>); 3] = [
        ("dropped regions", &|round| drop_regions(device, round)),
        ("events pending", &|_| leave_events(device)),
        ("kill -9", &|_| kill(device, program)),
    ];
    let before = counts()?;
    for (name, way) in ways {
        for round in 0..rounds {
            way(round).map_err(|error| format!("{name}, round {round}: {error}"))?;
        }
        // What a killed process had goes a little later.
        let mut after = counts()?;
        for _ in 0..LOOKS {
            if after == before {
                break;
            }
            after = counts()?;
        }
        ensure(after == before, || format!("{name}: the kernel has {after:?}, and had {before:?}"))?;
        println!("{name}: {rounds} times, and the kernel has what it had: {after:?}");
    }
    Ok(())
}

/// Holds objects with work and events under way until it is killed.
pub(crate) fn hold(device: &str) -> Result<()> {
    let _all = Party::new(device)?.busy()?;
    println!("{HOLDS}");
    loop {
        std::thread::park();
    }
}

/// What the kernel counts of each kind of object, over all devices.
fn counts() -> Result<BTreeMap<String, u64>> {
    let said = Command::new("rdma").args(["resource", "show"]).output()?;
    ensure(said.status.success(), || {
        format!("rdma resource show: {}", String::from_utf8_lossy(&said.stderr))
    })?;
    let text = String::from_utf8_lossy(&said.stdout).into_owned();
    // Lines such as `0: rxe0: pd 1 cq 1 qp 1 cm_id 0 mr 0 ctx 0 srq 0`.
    let words: Vec<&str> = text.split_whitespace().filter(|word| !word.ends_with(':')).collect();
    let mut counts = BTreeMap::new();
    for pair in words.chunks(2) {
        let [name, count] = pair else { return Err(format!("rdma resource show says {text:?}").into()) };
        *counts.entry((*name).to_owned()).or_default() += count.parse::<u64>()?;
    }
    ensure(!counts.is_empty(), || "rdma resource show says nothing".to_owned())?;
    Ok(counts)
}

/// Two queue pairs of one device that are connected, and what they have.
struct Party {
    context: Context,
    domain: ProtectionDomain,
    channel: CompletionChannel,
    queue: CompletionQueue,
    shared: SharedReceiveQueue,
    ann: QueuePair,
    bob: QueuePair,
}

impl Party {
    fn new(device: &str) -> Result<Self> {
        let context = Context::open(device)?;
        let domain = context.protection_domain()?;
        let channel = context.completion_channel()?;
        let queue = channel.completion_queue(64)?;
        let shared = domain.shared_receive_queue(15, 1)?;
        let ann = domain.queue_pair(Service::Rc).send_queue(&queue, 16).receive_queue(&queue, 16).build()?;
        let bob = domain.queue_pair(Service::Rc).send_queue(&queue, 16).receive_queue(&queue, 16);
        let bob = bob.shared_receive_queue(&shared).build()?;
        let options = ConnectOptions { min_rnr_timer: 1, ..ConnectOptions::default() };
        ann.connect_with(&bob.local_address(), &options)?;
        bob.connect_with(&ann.local_address(), &options)?;
        Ok(Self { context, domain, channel, queue, shared, ann, bob })
    }

    fn region(&self) -> Result<MemoryRegion> {
        let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ;
        Ok(self.domain.allocate(LEN, access)?)
    }

    /// Has a completion event and an event of the device wait to be taken, receives that wait for messages, and a message
    /// that waits for a receive.
    fn busy(self) -> Result<(Self, MemoryRegion)> {
        let region = self.region()?;
        for id in 0..4 {
            self.shared.receive(region.slice(..64)).id(id).post()?;
            self.ann.receive(region.slice(..64)).id(id).post()?;
        }
        self.shared.set_limit(4)?;
        self.queue.arm(Notify::Any);
        self.ann.send(region.slice(..64)).signaled().post()?;
        let mut done = 0;
        // Its completion and that of the receive: the events are there before they are.
        while done < 2 {
            self.queue.wait(SOON)?;
            done += 1;
        }
        self.queue.arm(Notify::Any);
        for _ in 0..5 {
            self.ann.send(region.slice(..64)).signaled().post()?;
        }
        Ok((self, region))
    }
}

/// Drops regions that work names: at once, or when it is done.
fn drop_regions(device: &str, round: u32) -> Result<()> {
    let party = Party::new(device)?;
    let (from, to) = (party.region()?, party.region()?);
    let remote = to.remote();
    for id in 0..4 {
        party.ann.receive(to.slice(..64)).id(id).post()?;
        party.shared.receive(to.slice(..64)).id(id).post()?;
    }
    for id in 0..4 {
        party.ann.write(from.slice(..4096), remote).id(id).signaled().post()?;
        party.ann.send(from.slice(..64)).id(id).signaled().post()?;
    }
    drop(from);
    if round.is_multiple_of(2) {
        // The target stays until all is there.
        for _ in 0..12 {
            party.queue.wait(SOON)?.result().map_err(|error| error.to_string())?;
        }
    }
    drop(to);
    Ok(())
}

/// Drops queues whose events were never taken, and the channel before them.
fn leave_events(device: &str) -> Result<()> {
    let (party, region) = Party::new(device)?.busy()?;
    let Party { context, domain, channel, queue, shared, ann, bob } = party;
    drop(channel);
    drop((queue, bob, shared));
    drop((ann, region, domain, context));
    Ok(())
}

/// Starts a process that holds everything, and kills it.
fn kill(device: &str, program: &str) -> Result<()> {
    let mut held =
        Command::new(program).args(["hold", device]).stdin(Stdio::null()).stdout(Stdio::piped()).spawn()?;
    let mut line = String::new();
    let read = held.stdout.take().map(|out| BufReader::new(out).read_line(&mut line));
    let killed = held.kill();
    let status = held.wait()?;
    killed?;
    ensure(line.trim() == HOLDS, || format!("{line:?} ({read:?}) from a process that ended with {status}"))
}
