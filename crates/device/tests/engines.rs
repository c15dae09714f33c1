//! Several engines in one device: eight threads post on eight queue pairs, which are spread over two engines
//! and complete into one queue. Nothing is lost, reordered or done twice.

mod common;

use std::net::IpAddr;
use std::sync::{Arc, Condvar, Mutex, PoisonError};
use std::time::Duration;

use common::{PATIENCE, Peer, Side, signaled};
use ferroce_device::fabric::faults::FaultPlan;
use ferroce_device::{CompletionQueue, Config, Nic, PathPolicy, now};
use ferroce_transport::{Completion, ReceiveRequest, SendOp, Status, WorkKind};

const THREADS: usize = 8;

/// The addresses of this file are 127.0.NET.*.
const NET: u8 = 71;

/// Requests of a queue.
const DEPTH: u32 = 32;

/// Messages of each queue pair in one round.
const MESSAGES: u64 = 1_000;

/// Where a side keeps things in its memory: what it sends, what it receives, a counter for its peer, and
/// where answers go.
const OUT: u64 = 0;
const IN: u64 = 64 * DEPTH as u64;
const COUNTER: u64 = 2 * IN;
const ANSWER: u64 = 3 * IN;

/// A device with two engines.
fn device(address: [u8; 4], path: PathPolicy, faults: Option<FaultPlan>) -> Nic {
    let address = Some(IpAddr::from(address));
    Nic::open(Config { address, engines: 2, path, faults, ..Config::new("lo") }).expect("a device on lo")
}

fn lossy(seed: u64) -> Option<FaultPlan> {
    Some(FaultPlan { loss: 0.01, dup: 0.01, reorder: 0.01, seed, ..FaultPlan::default() })
}

/// One device's part in it: queue pairs that all complete into one queue.
struct Crowd {
    cq: Arc<CompletionQueue>,
    members: Vec<Member>,
}

struct Member {
    side: Side,
    /// Messages that may be posted; a thread that waits for that sleeps on `freed`.
    places: Mutex<u64>,
    freed: Condvar,
}

/// What was seen of a queue pair.
#[derive(Clone, Copy, Debug)]
struct Seen {
    sends: u64,
    receives: u64,
}

impl Crowd {
    fn new(nic: &Nic, address: [u8; 4], path: PathPolicy) -> Self {
        let capacity = u32::try_from(THREADS).expect("small") * 3 * DEPTH;
        let cq = CompletionQueue::new(nic, capacity, None).expect("a completion queue");
        let member = |index| {
            // They live in the two engines by turns.
            let side = Side::into_queue(nic, address, path, (DEPTH, Some(index % 2)), &cq);
            Member { side, places: Mutex::new(u64::from(DEPTH / 2)), freed: Condvar::new() }
        };
        Self { members: (0..THREADS).map(member).collect(), cq }
    }

    /// Takes completions until all messages of this crowd have ended, and all for it have come.
    fn collect(&self, from: u64, to: u64) {
        let mut seen = [Seen { sends: 2 * from, receives: from }; THREADS];
        let mut left = THREADS as u64 * 3 * (to - from);
        let mut found = [Completion::EMPTY; 16];
        while left > 0 {
            let count = self.cq.wait(&mut found, Some(PATIENCE));
            assert!(count > 0, "{left} are missing: {seen:?} {:?}", self.members[0].side.qp.query());
            for completion in &found[..count] {
                let is_of = |member: &Member| member.side.qp.qpn() == completion.qpn;
                let index = self.members.iter().position(is_of).expect("one of ours");
                self.members[index].check(completion, &mut seen[index]);
                left -= 1;
            }
        }
    }
}

impl Member {
    fn post_receive(&self, number: u64) {
        let into = [self.side.sge(IN + 64 * (number % u64::from(DEPTH)), 64)];
        self.side.qp.post_receive(&[ReceiveRequest { id: number, sges: &into }]).expect("room");
    }

    /// Posts its messages: each a SEND with its number, and an addition to a counter of the peer.
    fn post_all(&self, peer: &Peer, from: u64, to: u64) {
        for number in from..to {
            let mut places = self.places.lock().unwrap_or_else(PoisonError::into_inner);
            while *places == 0 {
                places = self.freed.wait(places).unwrap_or_else(PoisonError::into_inner);
            }
            *places -= 1;
            drop(places);
            let at = OUT + 64 * (number % u64::from(DEPTH));
            self.side.memory.write(offset(at), &number.to_le_bytes()).expect("inside");
            let (out, answer) = ([self.side.sge(at, 64)], [self.side.sge(ANSWER, 8)]);
            let add = SendOp::FetchAdd { remote: peer.at(COUNTER), add: 1 };
            let work = [signaled(2 * number, SendOp::Send, &out), signaled(2 * number + 1, add, &answer)];
            self.side.qp.post_send(&work).expect("room");
        }
    }

    fn check(&self, done: &Completion, seen: &mut Seen) {
        assert_eq!(done.status, Status::Success, "{:?}", self.side.qp.query());
        if done.kind == WorkKind::Receive {
            assert_eq!(done.id, seen.receives, "receives complete in order");
            let at = IN + 64 * (done.id % u64::from(DEPTH));
            assert_eq!(self.side.memory.load_u64(offset(at)), Ok(done.id), "messages arrive in order");
            seen.receives += 1;
            self.post_receive(done.id + u64::from(DEPTH));
        } else {
            assert_eq!(done.id, seen.sends, "sends complete in order");
            seen.sends += 1;
            if seen.sends.is_multiple_of(2) {
                *self.places.lock().unwrap_or_else(PoisonError::into_inner) += 1;
                self.freed.notify_one();
            }
        }
    }
}

fn offset(place: u64) -> usize {
    usize::try_from(place).expect("small")
}

/// Which members talk to each other: a crowd and a member of it to another, and that one back.
type Partner = fn(usize, usize) -> (usize, usize);

/// A thread for each queue pair posts to its partner, and one for each crowd collects; again for as long as
/// asked.
fn exchange(crowds: &[Crowd], partner: Partner) {
    for (crowd, index) in all_members(crowds) {
        let member = &crowds[crowd].members[index];
        member.side.connect_with(&address_of(crowds, partner(crowd, index)), 17, 7);
        (0..u64::from(DEPTH)).for_each(|number| member.post_receive(number));
    }
    let end = now() + soak();
    let mut from = 0;
    loop {
        let to = from + MESSAGES;
        std::thread::scope(|scope| {
            for crowd in crowds {
                scope.spawn(move || crowd.collect(from, to));
            }
            for (crowd, index) in all_members(crowds) {
                let (member, peer) =
                    (&crowds[crowd].members[index], address_of(crowds, partner(crowd, index)));
                scope.spawn(move || member.post_all(&peer, from, to));
            }
        });
        // Each message came with one addition, and none was done twice.
        for member in crowds.iter().flat_map(|crowd| &crowd.members) {
            assert_eq!(member.side.memory.load_u64(offset(COUNTER)), Ok(to));
        }
        from = to;
        if now() >= end {
            return;
        }
    }
}

fn all_members(crowds: &[Crowd]) -> impl Iterator<Item = (usize, usize)> {
    (0..crowds.len()).flat_map(|crowd| (0..THREADS).map(move |index| (crowd, index)))
}

fn address_of(crowds: &[Crowd], (crowd, index): (usize, usize)) -> Peer {
    crowds[crowd].members[index].side.address()
}

/// How long the long form of a test takes; the short one is one round.
fn soak() -> Duration {
    let is_long = std::env::var("FERROCE_SOAK").is_ok_and(|minutes| !minutes.is_empty());
    Duration::from_secs(if is_long { 60 } else { 0 })
}

/// A crowd on a device of its own.
fn crowd(last: u8, path: PathPolicy, faults: Option<FaultPlan>) -> Crowd {
    let address = [127, 0, NET, last];
    Crowd::new(&device(address, path, faults), address, path)
}

#[test]
fn two_devices_under_loss() {
    let crowds = [1, 2].map(|last| crowd(last, PathPolicy::Forbid, lossy(last.into())));
    exchange(&crowds, |crowd, index| (1 - crowd, index ^ 1));
    let lost = crowds.iter().map(|crowd| crowd.members[0].side.nic.counters().packets_received).sum::<u64>();
    assert!(lost > 0, "nothing went over the network");
}

#[test]
fn two_engines_of_a_device_under_loss() {
    let crowds = [crowd(3, PathPolicy::Forbid, lossy(3))];
    exchange(&crowds, |_, index| (0, index ^ 1));
}

#[test]
fn two_engines_that_meet_directly() {
    let crowds = [crowd(4, PathPolicy::Require, None)];
    exchange(&crowds, |_, index| (0, index ^ 1));
    let counters = crowds[0].members[0].side.nic.counters();
    assert_eq!((counters.packets_sent, counters.packets_received), (0, 0));
    assert!(counters.local_messages + counters.local_packets > 0, "{counters:?}");
}

#[test]
fn queue_pairs_that_talk_to_themselves_under_loss() {
    exchange(&[crowd(5, PathPolicy::Forbid, lossy(5))], |_, index| (0, index));
}

#[test]
fn queue_pairs_that_talk_to_themselves_directly() {
    exchange(&[crowd(6, PathPolicy::Require, None)], |_, index| (0, index));
}

/// Two engines send to one socket of the receiver, then to two. Queue pairs whose packets arrive by the same
/// socket share its windows: each gets its part, whichever socket it sends by. How much each socket gets is
/// up to the system.
#[test]
fn windows_are_fair_over_several_sockets() {
    /// More share a window than are called at once when it has room.
    const STREAMS: usize = 64;
    const LEN: u32 = 16 * 1024;
    const UNDER_WAY: u32 = 8;
    /// Messages of each stream at the least, if those of a socket get the same.
    const SHARE: u64 = 400;

    let (here, there) = ([127, 0, NET, 7], [127, 0, NET, 8]);
    let [from, to] = [here, there].map(|address| device(address, PathPolicy::Forbid, None));
    for sockets in 1..=2 {
        // Both engines of the sender send to each socket of the receiver.
        let socket = |index: usize| index / 2 % sockets;
        let capacity = u32::try_from(STREAMS).expect("small") * UNDER_WAY * 4;
        let [cq, far_cq] =
            [&from, &to].map(|nic| CompletionQueue::new(nic, capacity, None).expect("a completion queue"));
        let end = |nic, address, engine, cq| {
            Side::into_queue(nic, address, PathPolicy::Forbid, (UNDER_WAY, Some(engine)), cq)
        };
        let stream = |index| {
            let (near, far) = (end(&from, here, index % 2, &cq), end(&to, there, socket(index), &far_cq));
            near.connect_with(&far.address(), 17, 7);
            far.connect_with(&near.address(), 17, 7);
            (near, far)
        };
        let streams: Vec<(Side, Side)> = (0..STREAMS).map(stream).collect();
        let post = |index: usize| {
            let (near, far) = &streams[index];
            let write = SendOp::Write(far.address().at(0));
            near.qp.post_send(&[signaled(index as u64, write, &[near.sge(0, LEN)])]).expect("room");
        };
        for _ in 0..UNDER_WAY {
            (0..STREAMS).for_each(post);
        }
        let mut done = [0; STREAMS];
        let share = |done: &[u64; STREAMS], of: usize| {
            let same = (0..STREAMS).filter(|index| socket(*index) == of);
            same.map(|index| done[index]).sum::<u64>() * sockets as u64 / STREAMS as u64
        };
        let mut found = [Completion::EMPTY; 16];
        while (0..sockets).any(|socket| share(&done, socket) < SHARE) {
            let count = cq.wait(&mut found, Some(PATIENCE));
            assert!(count > 0, "nothing more after {done:?}");
            for completion in &found[..count] {
                assert_eq!(completion.status, Status::Success);
                let index = usize::try_from(completion.id).expect("small");
                done[index] += 1;
                post(index);
            }
        }
        for (index, (near, _)) in streams.iter().enumerate() {
            let counters = near.qp.query().expect("it is there").counters;
            assert!(counters.window_waits > 0, "the window was no limit, and this test shows nothing");
            let (got, fair) = (done[index], share(&done, socket(index)));
            assert!(got >= fair / 2, "stream {index} got {got} of {fair}: {done:?} over {sockets} sockets");
        }
    }
}
