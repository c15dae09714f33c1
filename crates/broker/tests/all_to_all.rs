//! All members talk to all others over a bad network, and every function that is called answers at once:
//! nothing is lost, nothing comes twice, and all is in order.
#![allow(clippy::unwrap_used, reason = "a test stops here")]

mod rig;

use std::cell::RefCell;
use std::collections::VecDeque;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::Duration;

use ferroce_broker::*;
use ferroce_verbs::time::now;
use ferroce_verbs::{Context, FaultPlan, PathPolicy};
use rig::{SOON, members};

const MEMBERS: u8 = 8;
const LANES: u8 = 2;
const RING: u32 = 64;
const LONGEST: usize = 4096;

/// Requests of one member to one other, on one lane, that have no answer yet.
const WINDOW: u64 = RING as u64 / 2;

/// Numbers without a pattern (xorshift64*).
struct Dice(u64);

impl Dice {
    fn roll(&mut self) -> u64 {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        self.0.wrapping_mul(0x2545_f491_4f6c_dd1d)
    }
}

/// What a message says: which it is, and bytes that only it has. Every order of magnitude of its size is as
/// likely.
fn fill(into: &mut Vec<u8>, (from, to, lane): (u32, u32, u8), is_answer: bool, number: u64) {
    let seed = (u64::from(from) << 40 | u64::from(to) << 32 | u64::from(lane) << 24) ^ number << 1;
    let mut dice = Dice((seed ^ u64::from(is_answer)).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1);
    let bits = dice.roll() % 13;
    let len = 9 + usize::try_from(dice.roll() % ((1 << bits) + 1)).unwrap();
    into.clear();
    into.push(u8::from(is_answer));
    into.extend(number.to_be_bytes());
    while into.len() < len.min(LONGEST) {
        into.extend(dice.roll().to_le_bytes());
    }
    into.truncate(len.min(LONGEST));
}

/// What one thread knows of one peer.
#[derive(Default)]
struct Talk {
    asked: u64,
    answered: u64,
    served: u64,
    /// Answers that found no room.
    owed: VecDeque<u64>,
}

struct Worker<'a> {
    broker: &'a Broker,
    lane: u8,
    requests: u64,
    /// By the number of the peer.
    talks: RefCell<Vec<Talk>>,
    buffer: RefCell<(Vec<u8>, Vec<u8>)>,
}

impl Worker<'_> {
    fn send(&self, peer: u32, is_answer: bool, number: u64) -> bool {
        let (bytes, _) = &mut *self.buffer.borrow_mut();
        fill(bytes, (self.broker.me(), peer, self.lane), is_answer, number);
        let imm = Post::new().imm(u32::try_from(number).unwrap());
        match self.broker.send(peer, bytes, imm) {
            Ok(()) => true,
            Err(BrokerError::WouldBlock { .. }) => false,
            Err(error) => panic!("{error}"),
        }
    }

    fn take(&self, message: Message<'_>) {
        let peer = message.peer();
        let mut talks = self.talks.borrow_mut();
        let talk = &mut talks[peer as usize];
        let number = {
            let (expected, bytes) = &mut *self.buffer.borrow_mut();
            bytes.resize(message.len(), 0);
            message.read_at(0, bytes).unwrap();
            let is_answer = bytes[0] == 1;
            let counter = if is_answer { &mut talk.answered } else { &mut talk.served };
            fill(expected, (peer, self.broker.me(), self.lane), is_answer, *counter);
            assert!(expected == bytes, "member {peer}: {:?}, expected {:?}", &bytes[..9], &expected[..9]);
            assert_eq!(message.imm(), Some(u32::try_from(*counter).unwrap()));
            *counter += 1;
            (!is_answer).then_some(*counter - 1)
        };
        if let Some(number) = number
            && !(talk.owed.is_empty() && self.send(peer, true, number))
        {
            talk.owed.push_back(number);
        }
    }

    /// Asks as long as there is room.
    fn ask(&self) {
        for peer in self.broker.peers() {
            let mut talks = self.talks.borrow_mut();
            let talk = &mut talks[peer as usize];
            while let Some(&number) = talk.owed.front() {
                if !self.send(peer, true, number) {
                    break;
                }
                talk.owed.pop_front();
            }
            while talk.asked < self.requests && talk.asked - talk.answered < WINDOW {
                if !self.send(peer, false, talk.asked) {
                    break;
                }
                talk.asked += 1;
            }
        }
    }

    fn is_done(&self) -> bool {
        let talks = self.talks.borrow();
        let done = |peer: u32| {
            let Talk { answered, served, owed, .. } = &talks[peer as usize];
            *answered == self.requests && *served == self.requests && owed.is_empty()
        };
        self.broker.peers().all(done)
    }

    fn work(&self, finished: &AtomicUsize) {
        let all = usize::from(MEMBERS) * usize::from(LANES);
        let mut is_done = false;
        // A thread that is done goes on for the others.
        while finished.load(Ordering::Relaxed) < all {
            self.ask();
            self.broker.wait_receives(Duration::from_millis(2), |message| self.take(message)).unwrap();
            if !is_done && self.is_done() {
                is_done = true;
                finished.fetch_add(1, Ordering::Relaxed);
            }
        }
        // No member says goodbye before all have heard everything.
        self.broker.flush_all();
    }
}

#[test]
fn everybody_answers_everybody_under_loss() {
    let is_long = std::env::var("FERROCE_SOAK").is_ok_and(|text| !text.is_empty());
    let total: u64 = if is_long { 5_000_000 } else { 200_000 };
    let pairs = u64::from(MEMBERS) * u64::from(MEMBERS - 1) * u64::from(LANES);
    let requests = total / 2 / pairs + 1;
    let members = members(195, MEMBERS);
    let finished = AtomicUsize::new(0);
    let begin = now();
    thread::scope(|scope| {
        for member in members.iter() {
            let plan = FaultPlan::parse(&format!("loss=0.005,seed={}", member.id + 1)).unwrap();
            let context = Context::builder("lo").address(member.address.ip()).path(PathPolicy::Forbid);
            let context = context.faults(plan).open().unwrap();
            let domain = context.protection_domain().unwrap();
            for lane in 0..LANES {
                let builder = Broker::builder(member.id, members.clone()).device(&context, &domain);
                let builder = builder.lane(lane).ring(RING).batch(8).deadline(SOON);
                let builder = builder.max_message(u32::try_from(LONGEST).unwrap());
                // A machine that is busy with other things is no reason to part.
                let builder = builder.patience(Duration::from_secs(60));
                let finished = &finished;
                scope.spawn(move || {
                    let broker = &builder.start().unwrap();
                    let talks = RefCell::new((0..MEMBERS).map(|_| Talk::default()).collect());
                    let buffer = RefCell::default();
                    Worker { broker, lane, requests, talks, buffer }.work(finished);
                    broker.leave(SOON).unwrap();
                });
            }
        }
    });
    let time = now().since(begin);
    let messages = requests * 2 * pairs;
    #[expect(clippy::cast_precision_loss, reason = "a rate to be read")]
    let rate = messages as f64 / time.as_secs_f64();
    println!("{messages} messages in {time:?}: {rate:.0}/s");
}
