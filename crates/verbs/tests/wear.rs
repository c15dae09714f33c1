//! Objects of a card that are left in the ways that are hard on memory: regions dropped under work, queues with events that were never
//! taken, peers that are killed. Over our own drop-in library; `cargo xtask soak --only card-sanitizer` does it often under
//! AddressSanitizer.
#![allow(clippy::unwrap_used, reason = "a test stops here")]

use std::env;
use std::io::{BufRead as _, BufReader, Write as _};
use std::process::{Child, Stdio};
use std::time::Duration;

use ferroce_testkit::dropin::{address, command, folder, on_a_card, own_address, own_card, own_program};
use ferroce_verbs::*;

const NET: u8 = 187;
/// Long enough for a loaded machine; no test waits for it to pass.
const SOON: Duration = Duration::from_secs(20);
/// How often each thing is done: by the name of a variable of the environment, else so many times.
const ROUNDS: (&str, u32) = ("FERROCE_ROUNDS", 20);
const LEN: usize = 16 << 10;
/// Set for the process of a peer that is killed: the address and the region of the one that talks to it.
const PEER: &str = "FERROCE_WEAR_PEER";

fn rounds() -> u32 {
    env::var(ROUNDS.0).ok().and_then(|text| text.parse().ok()).unwrap_or(ROUNDS.1)
}

/// A peer that is gone is noticed after some ten milliseconds.
fn options() -> ConnectOptions {
    ConnectOptions { min_rnr_timer: 1, timeout: 8, retry_count: 3, ..ConnectOptions::default() }
}

fn open() -> Access {
    Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ
}

/// Two queue pairs of one card that are connected, and what they have.
struct Party {
    domain: ProtectionDomain,
    channel: CompletionChannel,
    queue: CompletionQueue,
    shared: SharedReceiveQueue,
    ann: QueuePair,
    bob: QueuePair,
}

impl Party {
    fn new(context: &Context) -> Self {
        let domain = context.protection_domain().unwrap();
        let channel = context.completion_channel().unwrap();
        let queue = channel.completion_queue(64).unwrap();
        let shared = domain.shared_receive_queue(15, 1).unwrap();
        let builder = || domain.queue_pair(Service::Rc).send_queue(&queue, 16).receive_queue(&queue, 16);
        let ann = builder().build().unwrap();
        let bob = builder().shared_receive_queue(&shared).build().unwrap();
        ann.connect_with(&bob.local_address(), &options()).unwrap();
        bob.connect_with(&ann.local_address(), &options()).unwrap();
        Self { domain, channel, queue, shared, ann, bob }
    }

    fn region(&self) -> MemoryRegion {
        self.domain.allocate(LEN, open()).unwrap()
    }
}

#[test]
fn regions_that_are_dropped_under_work_stay_until_it_is_done() {
    on_a_card(NET, "regions_that_are_dropped_under_work_stay_until_it_is_done", || {
        let context = Context::open(&own_card()).unwrap();
        for round in 0..rounds() {
            let party = Party::new(&context);
            let (from, to) = (party.region(), party.region());
            from.fill(.., 7).unwrap();
            for id in 0..4 {
                party.ann.receive(to.slice(..64)).id(id).post().unwrap();
                party.shared.receive(to.slice(..64)).id(id).post().unwrap();
            }
            let remote = to.remote();
            for id in 0..4 {
                party.ann.write(from.slice(..4096), remote).id(id).signaled().post().unwrap();
                party.ann.send(from.slice(..64)).id(id).signaled().post().unwrap();
            }
            drop(from);
            if round % 2 == 0 {
                // The target stays until all is there: of each WRITE and SEND, and of each receive of a SEND.
                for _ in 0..12 {
                    party.queue.wait(SOON).unwrap().result().unwrap();
                }
                assert_eq!(to.to_vec(..4096).unwrap(), [7; 4096]);
            }
            drop(to);
            if round % 3 == 0 {
                // Objects in the order in which nothing would let go of anything in C.
                let Party { domain, channel, queue, shared, ann, bob } = party;
                drop((domain, channel, queue, shared));
                drop((bob, ann));
            }
        }
    });
}

#[test]
fn a_queue_goes_with_events_that_were_never_taken() {
    on_a_card(NET, "a_queue_goes_with_events_that_were_never_taken", || {
        let context = Context::open(&own_card()).unwrap();
        for round in 0..rounds() {
            let party = Party::new(&context);
            let region = party.region();
            for id in 0..4 {
                party.shared.receive(region.slice(..64)).id(id).post().unwrap();
            }
            party.shared.set_limit(4).unwrap();
            party.queue.arm(Notify::Any);
            party.ann.send(region.slice(..64)).signaled().post().unwrap();
            for _ in 0..2 {
                party.queue.wait(SOON).unwrap().result().unwrap();
            }
            party.queue.arm(Notify::Any);
            for _ in 0..5 {
                party.ann.send(region.slice(..64)).signaled().post().unwrap();
            }
            let Party { domain, channel, queue, shared, ann, bob } = party;
            if round % 2 == 0 {
                drop(channel);
                drop((queue, bob, shared));
                drop((ann, region, domain));
            } else {
                drop((ann, bob, region));
                drop((queue, shared, channel, domain));
            }
        }
        // What happened to the shared queues was told meanwhile, and their numbers were of others since.
        while context.events().poll().is_some() {}
    });
}

/// A process that is connected to us, and has said where it is.
struct Peer {
    child: Child,
    address: QpAddress,
    region: RemoteRegion,
}

impl Peer {
    fn start(ours: QpAddress) -> Self {
        let test = "the_peer_that_is_killed";
        // The limit is of its process, which is ended long before.
        let at = address(NET + 1, "peer");
        let mut command = std::process::Command::new(own_program());
        command
            .args(["--exact", test, "--nocapture", "--test-threads=1"])
            .envs(variables(&at))
            .env(PEER, ours.to_string());
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let mut lines = BufReader::new(child.stdout.take().unwrap()).lines().map_while(Result::ok);
        // The harness begins the line with the name of the test.
        let said = lines.find_map(|line| line.split_once("here: ").map(|(_, text)| text.to_owned())).unwrap();
        let (address, region) = said.split_once(' ').unwrap();
        let address = QpAddress::from_bytes(&from_hex(address)).unwrap();
        let region = RemoteRegion::from_bytes(&from_hex(region)).unwrap();
        Self { child, address, region }
    }

    /// Says that we are connected, too.
    fn go_on(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    }

    fn kill(mut self) {
        self.child.kill().unwrap();
        assert!(!self.child.wait().unwrap().success());
    }
}

/// It does not outlive a test that fails.
impl Drop for Peer {
    fn drop(&mut self) {
        // It is gone already, if all went well.
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// The environment of a process with the drop-in library as its card.
fn variables(at: &str) -> Vec<(String, String)> {
    let text = |value: &std::ffi::OsStr| value.to_str().unwrap().to_owned();
    let command = command(&folder().join("nothing"), at);
    command.get_envs().filter_map(|(name, value)| Some((text(name), text(value?)))).collect()
}

fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn from_hex(text: &str) -> Vec<u8> {
    (0..text.len() / 2).map(|at| u8::from_str_radix(&text[2 * at..2 * at + 2], 16).unwrap()).collect()
}

/// Not a test of its own: what runs in the process of the peer, which writes to us, has receives and reads until it is killed.
#[test]
fn the_peer_that_is_killed() {
    let Ok(ours) = env::var(PEER) else { return };
    let context = Context::open(&own_card()).unwrap();
    let domain = context.protection_domain().unwrap();
    let queue = context.completion_queue(256).unwrap();
    let qp = domain.queue_pair(Service::Rc).completion_queue(&queue).build().unwrap();
    let region = domain.allocate(LEN, open()).unwrap();
    for id in 0..16 {
        qp.receive(region.slice(..64)).id(id).post().unwrap();
    }
    qp.connect_with(&ours.parse().unwrap(), &options()).unwrap();
    println!("here: {} {}", to_hex(&qp.local_address().to_bytes()), to_hex(&region.remote().to_bytes()));
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
    // From now on it only waits for its end, by which it ends at the latest.
    std::thread::spawn(move || {
        while std::io::stdin().read_line(&mut line).is_ok_and(|read| read > 0) {}
        std::process::exit(1);
    });
    loop {
        let Ok(done) = queue.wait(SOON) else { continue };
        if done.result().is_ok() && done.kind == WorkKind::Receive {
            qp.send(region.slice(..64)).post().unwrap();
        }
    }
}

#[test]
fn a_peer_that_is_killed_leaves_work_that_ends_and_memory_that_is_freed() {
    on_a_card(NET, "a_peer_that_is_killed_leaves_work_that_ends_and_memory_that_is_freed", || {
        assert!(own_address().starts_with("127."));
        let context = Context::open(&own_card()).unwrap();
        for round in 0..rounds() {
            let domain = context.protection_domain().unwrap();
            let queue = context.completion_queue(256).unwrap();
            let qp = domain.queue_pair(Service::Rc).completion_queue(&queue).build().unwrap();
            let region = domain.allocate(LEN, open()).unwrap();
            let mut peer = Peer::start(qp.local_address());
            qp.connect_with(&peer.address, &options()).unwrap();
            for id in 0..16 {
                qp.receive(region.slice(..64)).id(100 + id).post().unwrap();
            }
            peer.go_on();
            // It answers, so all is well until it is killed.
            qp.send(region.slice(..64)).id(1).signaled().post().unwrap();
            let mut seen = [false; 2];
            while seen != [true; 2] {
                let done = queue.wait(SOON).unwrap();
                done.result().unwrap();
                seen[usize::from(done.kind == WorkKind::Receive)] = true;
            }
            let remote = peer.region.slice(..4096);
            let work = |id| match id % 3 {
                0 => qp.write(region.slice(..4096), remote).id(id).signaled().post(),
                1 => qp.read(region.slice(..4096), remote).id(id).signaled().post(),
                _ => qp.send(region.slice(..64)).id(id).signaled().post(),
            };
            let before = u64::from(round % 12);
            (0..before).for_each(|id| work(id).unwrap());
            peer.kill();
            (before..12).for_each(|id| work(id).unwrap());
            if round % 3 == 0 {
                // All of it goes while the peer is missed.
                drop((qp, region));
                continue;
            }
            drop(region);
            // The receives are flushed, too, once it is known that the peer is gone.
            let mut left = (0..12).chain(100..116).collect::<std::collections::BTreeSet<u64>>();
            let mut ended = 0;
            while left.iter().any(|id| *id < 12) {
                let done = queue.wait(SOON).unwrap();
                assert!(left.remove(&done.id) || done.id >= 100, "{done:?}");
                ended += u32::from(done.result().is_err());
            }
            assert!(ended > 0, "nothing noticed that the peer is gone");
        }
    });
}
