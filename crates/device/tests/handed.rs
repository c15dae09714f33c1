//! Completions that a thread which polls is handed past the queue, and the same through the queue: programs notice no difference.
#![allow(missing_docs, reason = "a test")]
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::os::fd::AsFd;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Wake, Waker};

use common::{PATIENCE, Side, device, signaled};
use ferroce_device::{Channel, CompletionQueue, CqId, Notify, PathPolicy, QpReport};
use ferroce_sys::clock;
use ferroce_sys::descriptor::wait_readable;
use ferroce_transport::{Completion, ReceiveRequest, SendFlags, SendOp, SendRequest, Status, WorkKind};
use ferroce_wire::Imm;

/// Messages that are under way at a time at most.
const MOST: u64 = 5;

/// What a program learns from a completion, beside numbers that differ from run to run.
type Told = (u64, WorkKind, Status, u32, Option<u32>);

/// One end, and how its completions are taken.
struct End {
    side: Side,
    /// Another queue of the device. A thread that polls this one takes in the packets, and what they complete goes into the queue
    /// that it is for.
    other: Option<Arc<CompletionQueue>>,
    sent: Vec<Told>,
    received: Vec<Told>,
}

impl End {
    fn pair(first: [u8; 4], second: [u8; 4], is_handed: bool) -> [Self; 2] {
        let sides = [first, second].map(|at| Side::with(&device(at), at, PathPolicy::Forbid, 16));
        sides[0].connect(&sides[1].address());
        sides[1].connect(&sides[0].address());
        sides.map(|side| {
            let other = (!is_handed).then(|| CompletionQueue::new(&side.nic, 4, None).unwrap());
            Self { side, other, sent: Vec::new(), received: Vec::new() }
        })
    }

    /// Looks once, with room for so many.
    fn look(&mut self, room: usize) {
        let mut found = [Completion::EMPTY; 8];
        let count = match &self.other {
            None => self.side.cq.poll(&mut found[..room]),
            Some(other) => {
                assert_eq!(other.poll(&mut [Completion::EMPTY]), 0, "it is no queue pair's");
                self.side.cq.take(&mut found[..room])
            }
        };
        for Completion { id, kind, status, byte_len, imm, qpn, .. } in &found[..count] {
            assert_eq!(*qpn, self.side.qp.qpn());
            let is_receive = matches!(kind, WorkKind::Receive | WorkKind::ReceiveWithImm);
            let list = if is_receive { &mut self.received } else { &mut self.sent };
            list.push((*id, *kind, *status, *byte_len, *imm));
        }
    }

    fn look_until(&mut self, sent: usize, received: usize, random: &mut u64) {
        let end = clock::now() + PATIENCE;
        while self.sent.len() < sent || self.received.len() < received {
            let room = 1 + usize::try_from(next(random, 8)).unwrap();
            self.look(room);
            assert!(clock::now() < end, "{:?} and {:?} came", self.sent, self.received);
        }
        assert_eq!((self.sent.len(), self.received.len()), (sent, received), "no more than was posted");
    }
}

fn next(random: &mut u64, below: u64) -> u64 {
    *random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
    (*random >> 33) % below
}

/// Messages to and fro as a seed has it; what both programs have heard, and how the queue pairs stand then.
fn converse(seed: u64, addresses: [[u8; 4]; 2], is_handed: bool) -> Vec<(Vec<Told>, Vec<Told>, QpReport)> {
    let mut random = seed;
    // What is random of when a program looks, and does not change what is said.
    let mut when = seed ^ u64::from(is_handed);
    let mut ends = End::pair(addresses[0], addresses[1], is_handed);
    let (mut sent, mut received) = ([0; 2], [0; 2]);
    for round in 0..40 {
        let (from, to) = if round % 2 == 0 { (0, 1) } else { (1, 0) };
        let messages = 1 + next(&mut random, MOST);
        for number in 0..messages {
            let place = [ends[to].side.sge(4096 * number, 4096)];
            let request = ReceiveRequest { id: 1000 * round + number, sges: &place };
            ends[to].side.qp.post_receive(&[request]).unwrap();
        }
        for number in 0..messages {
            let length = u32::try_from(next(&mut random, 300)).unwrap();
            let place = [ends[from].side.sge(0, length)];
            let op = match next(&mut random, 4) {
                0 => SendOp::SendImm(Imm(u32::try_from(number).unwrap())),
                _ => SendOp::Send,
            };
            // The last gives a completion, so that the places of all are free again.
            let is_told = number + 1 == messages || next(&mut random, 2) == 0;
            let mut flags = if is_told { SendFlags::SIGNALED } else { SendFlags::empty() };
            flags.set(SendFlags::SOLICITED, next(&mut random, 3) == 0);
            let request = SendRequest { flags, ..signaled(number, op, &place) };
            ends[from].side.qp.post_send(&[request]).unwrap();
            sent[from] += usize::from(is_told);
            received[to] += 1;
        }
        // Most programs answer before they have heard that what they said has arrived.
        ends[to].look_until(sent[to], received[to], &mut when);
        if next(&mut random, 3) == 0 {
            ends[from].look_until(sent[from], received[from], &mut when);
        }
    }
    (0..2).for_each(|end| ends[end].look_until(sent[end], received[end], &mut when));
    let heard = ends.into_iter().map(|end| {
        let level = end.side.cq.level();
        assert_eq!((level.now, end.side.cq.is_overrun()), (0, false));
        assert!(level.most > 0, "some were there");
        (end.sent, end.received, end.side.qp.report().unwrap())
    });
    heard.collect()
}

#[test]
fn a_program_hears_the_same_past_the_queue_and_through_it() {
    for seed in 0..6 {
        let handed = converse(seed, [[127, 0, 90, 1], [127, 0, 90, 2]], true);
        let queued = converse(seed, [[127, 0, 90, 3], [127, 0, 90, 4]], false);
        for (handed, queued) in handed.iter().zip(&queued) {
            assert_eq!((&handed.0, &handed.1), (&queued.0, &queued.1), "seed {seed}");
            let [one, other] = [handed, queued].map(|(_, _, report)| report);
            let places = |report: &QpReport| (report.send_queue.now, report.receive_queue.now);
            assert_eq!((places(one), places(other)), ((0, 0), (0, 0)), "the program has heard of all");
            assert_eq!(one.totals.completions, other.totals.completions);
            let posted = |report: &QpReport| {
                (report.totals.sends_posted, report.totals.sends_done, report.totals.receives_posted)
            };
            assert_eq!(posted(one), posted(other));
        }
    }
}

/// Sends a message, and polls until it is there.
fn bring(from: &Side, to: &Side) {
    let (place, message) = ([to.sge(0, 64)], [from.sge(0, 64)]);
    to.qp.post_receive(&[ReceiveRequest { id: 7, sges: &place }]).unwrap();
    from.qp.post_send(&[signaled(8, SendOp::Send, &message)]).unwrap();
    let end = clock::now() + PATIENCE;
    let mut found = [Completion::EMPTY; 4];
    loop {
        let count = to.cq.poll(&mut found);
        if found[..count].iter().any(|found| found.kind == WorkKind::Receive) {
            break;
        }
        assert!(clock::now() < end, "nothing came");
    }
    assert_eq!(from.completion().id, 8);
}

/// Waits for an event: the thread that took the packet in tells of it when it has left the engine.
fn event(channel: &Channel) -> Option<CqId> {
    wait_readable(channel.as_fd(), Some(PATIENCE)).unwrap();
    channel.pop()
}

#[test]
fn a_thread_that_asked_for_an_event_has_it_although_another_polls() {
    let at = [[127, 0, 90, 5], [127, 0, 90, 6]];
    let from = Side::new(&device(at[0]), at[0], PathPolicy::Forbid);
    let (nic, channel) = (device(at[1]), Channel::new().unwrap());
    let cq = CompletionQueue::new(&nic, 16, Some(&channel)).unwrap();
    let to = Side::into_queue(&nic, at[1], PathPolicy::Forbid, (16, None), &cq);
    from.connect(&to.address());
    to.connect(&from.address());
    for _ in 0..20 {
        (0..4).for_each(|_| bring(&from, &to));
        assert_eq!(channel.pop(), None, "no thread has asked");
        cq.arm(Notify::Any);
        bring(&from, &to);
        assert_eq!(event(&channel), Some(cq.id()));
        cq.arm(Notify::Solicited);
        bring(&from, &to);
        assert_eq!(channel.pop(), None, "it was not such a one");
        cq.arm(Notify::Any);
        bring(&from, &to);
        assert_eq!(event(&channel), Some(cq.id()), "as often as it asks");
    }
}

/// Counts how often it is called.
#[derive(Default)]
struct Counting(AtomicU32);

impl Wake for Counting {
    fn wake(self: Arc<Self>) {
        self.0.fetch_add(1, Ordering::SeqCst);
    }
}

#[test]
fn a_waker_is_called_although_another_thread_polls() {
    let at = [[127, 0, 90, 7], [127, 0, 90, 8]];
    let [from, to] = at.map(|at| Side::new(&device(at), at, PathPolicy::Forbid));
    from.connect(&to.address());
    to.connect(&from.address());
    for round in 1..20 {
        (0..4).for_each(|_| bring(&from, &to));
        let counting = Arc::new(Counting::default());
        let waker = Waker::from(Arc::clone(&counting));
        assert_eq!(to.cq.poll_or_wake(&mut [Completion::EMPTY; 4], &waker), 0, "round {round}");
        bring(&from, &to);
        let end = clock::now() + PATIENCE;
        while counting.0.load(Ordering::SeqCst) == 0 {
            assert!(clock::now() < end, "round {round}: it was not called");
            std::thread::yield_now();
        }
    }
}

/// Two threads poll one queue: each completion goes to one of them.
#[test]
fn no_completion_is_lost_or_doubled_between_threads_that_poll() {
    let at = [[127, 0, 90, 9], [127, 0, 90, 10]];
    let [from, to] = at.map(|at| Side::new(&device(at), at, PathPolicy::Forbid));
    from.connect(&to.address());
    to.connect(&from.address());
    let (rounds, heard) = (300, AtomicU32::new(0));
    let (sum, end) = (std::sync::atomic::AtomicU64::new(0), clock::now() + PATIENCE);
    for id in 0..8 {
        let place = [to.sge(4096 * id, 64)];
        to.qp.post_receive(&[ReceiveRequest { id, sges: &place }]).unwrap();
    }
    std::thread::scope(|threads| {
        for _ in 0..2 {
            threads.spawn(|| {
                let mut found = [Completion::EMPTY; 3];
                while heard.load(Ordering::SeqCst) < rounds && clock::now() < end {
                    let count = to.cq.poll(&mut found);
                    for completion in &found[..count] {
                        assert_eq!(completion.status, Status::Success);
                        sum.fetch_add(u64::from(completion.byte_len), Ordering::SeqCst);
                        let place = [to.sge(0, 64)];
                        to.qp.post_receive(&[ReceiveRequest { id: 0, sges: &place }]).unwrap();
                        heard.fetch_add(1, Ordering::SeqCst);
                    }
                    if count == 0 {
                        std::thread::yield_now();
                    }
                }
            });
        }
        for number in 0..rounds {
            let message = [from.sge(0, number % 64)];
            from.qp.post_send(&[signaled(number.into(), SendOp::Send, &message)]).unwrap();
            assert_eq!(from.completion().id, u64::from(number));
        }
    });
    assert_eq!(heard.load(Ordering::SeqCst), rounds);
    assert_eq!(sum.load(Ordering::SeqCst), (0..u64::from(rounds)).map(|number| number % 64).sum::<u64>());
    let report = to.qp.report().unwrap();
    assert_eq!(report.totals.completions.receives(Status::Success), u64::from(rounds));
}
