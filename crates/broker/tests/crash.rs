//! A member that dies without a word, under load, and comes back: the others notice, go on, and take it in
//! again.
#![allow(clippy::unwrap_used, reason = "a test stops here")]

mod rig;

#[path = "../../verbs/tests/processes/child.rs"]
mod child;

use std::cell::RefCell;
use std::collections::{BTreeMap, VecDeque};
use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex};
use std::thread;
use std::time::Duration;

use child::{ROLE, listen, role, soak_minutes, tell};
use ferroce_broker::*;
use ferroce_verbs::time::{Time, now, park};
use rig::{SOON, members, near_members};

const NET: u8 = 193;
const QUIET_NET: u8 = 194;
const NEAR_NET: u8 = 195;
const MEMBERS: u8 = 5;
const VICTIM: u32 = 2;

/// The mode of members at one address, which share memory.
const NEAR: &str = "near";

/// The others have to know by then.
const LIMIT: Duration = Duration::from_secs(2);

/// What a member expects of another, in one of its lives.
#[derive(Default)]
struct Expected {
    incarnation: u64,
    /// The next number; within one connection there are no gaps.
    next: u64,
    /// A connection has begun, and what was sent on the one before may have been lost.
    may_skip: bool,
    received: u64,
}

/// A member in a process of its own: it sends to all others as fast as it can, and checks what it gets.
#[test]
fn the_other_process() {
    let Some(role) = role() else { return };
    let (mode, me) = role.split_once(' ').unwrap();
    let (is_quiet, me): (bool, u32) = (mode == "quiet", me.parse().unwrap());
    let members = match mode {
        "quiet" => members(QUIET_NET, 3),
        NEAR => near_members(NEAR_NET, MEMBERS),
        _ => members(NET, MEMBERS),
    };
    let expected: Arc<Mutex<BTreeMap<u32, Expected>>> = Arc::default();
    let told = Arc::clone(&expected);
    let on_change = move |_: &Broker, change: &Change| match change {
        Change::Joined { peer, incarnation } => {
            let mut expected = told.lock().unwrap();
            let from = expected.entry(*peer).or_default();
            if from.incarnation != *incarnation {
                *from =
                    Expected { incarnation: *incarnation, received: from.received, ..Expected::default() };
            }
            from.may_skip = true;
            tell(&format!("joined {peer}"));
        }
        Change::Left { peer, .. } => tell(&format!("left {peer}")),
    };
    let broker = Broker::builder(me, members)
        .ring(32)
        .batch(8)
        .secret("ferroce-secret-00112233445566778899aabbccddeeff-f07506ba");
    let broker = broker.deadline(SOON).on_change(on_change).start().unwrap();
    tell("started");
    let (commands, orders) = channel();
    thread::spawn(move || {
        loop {
            commands.send(listen()).unwrap();
        }
    });
    let numbers = RefCell::new(BTreeMap::<u32, u64>::new());
    loop {
        for peer in broker.peers().filter(|_| !is_quiet) {
            let mut numbers = numbers.borrow_mut();
            let number = numbers.entry(peer).or_default();
            // Not for ever: a peer that takes everything off at once would keep us from the others.
            for _ in 0..32 {
                let mut bytes = [&broker.incarnation().to_be_bytes()[..], &number.to_be_bytes()].concat();
                bytes.resize(
                    16 + usize::try_from(*number * 31 % 500).unwrap(),
                    u8::try_from(*number % 256).unwrap(),
                );
                match broker.send(peer, &bytes, Post::new()) {
                    Ok(()) => *number += 1,
                    Err(BrokerError::WouldBlock { .. } | BrokerError::Gone { .. }) => break,
                    Err(error) => panic!("{error}"),
                }
            }
        }
        let take = |message: Message<'_>| {
            let bytes = message.to_vec();
            let [incarnation, number] =
                [&bytes[..8], &bytes[8..16]].map(|part| u64::from_be_bytes(part.try_into().unwrap()));
            let mut expected = expected.lock().unwrap();
            let from = expected.get_mut(&message.peer()).expect("a member that has joined");
            assert_eq!(incarnation, from.incarnation, "a message from another life");
            assert_eq!(incarnation, message.incarnation());
            assert!(
                number == from.next || (from.may_skip && number >= from.next),
                "{number} after {}",
                from.next
            );
            let fill = u8::try_from(number % 256).unwrap();
            assert!(bytes[16..].iter().all(|byte| *byte == fill));
            assert_eq!(bytes.len(), 16 + usize::try_from(number * 31 % 500).unwrap());
            (from.next, from.may_skip) = (number + 1, false);
            from.received += 1;
        };
        broker.wait_receives(Duration::from_millis(1), take).unwrap();
        match orders.try_recv().as_deref() {
            Ok("count") => {
                let expected = expected.lock().unwrap();
                let among = expected.iter().filter(|(peer, _)| **peer != VICTIM);
                tell(&format!("count {}", among.map(|(_, from)| from.received).sum::<u64>()));
            }
            Ok("leave") => break,
            Ok(order) => panic!("no order {order}"),
            Err(_) => {}
        }
    }
    broker.leave(SOON).unwrap();
    tell("bye");
}

/// A member, and what it says, with the time when it was heard. Dropping it ends it.
struct Process {
    child: Child,
    orders: ChildStdin,
    heard: Receiver<(Time, String)>,
    /// What was heard while something else was waited for.
    kept: VecDeque<(Time, String)>,
}

impl Process {
    fn start(mode: &str, id: u32) -> Self {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "the_other_process", "--nocapture"]).env(ROLE, format!("{mode} {id}"));
        if mode == NEAR {
            // Any other path is refused.
            command.env("FERROCE_PATH", "shared");
        }
        let mut child = command.stdin(Stdio::piped()).stdout(Stdio::piped()).spawn().unwrap();
        let (tell, heard) = channel();
        let output = BufReader::new(child.stdout.take().unwrap());
        thread::spawn(move || {
            for line in output.lines().map_while(Result::ok) {
                let said = line.strip_prefix('@').map(|said| tell.send((now(), said.to_owned())));
                if said.is_some_and(|told| told.is_err()) {
                    return;
                }
            }
        });
        let orders = child.stdin.take().unwrap();
        Self { child, orders, heard, kept: VecDeque::new() }
    }

    /// When it said this; what it says before is passed over.
    fn hear(&mut self, what: &str) -> (Time, String) {
        loop {
            let (when, said) = match self.kept.pop_front() {
                Some(heard) => heard,
                None => self.next(what),
            };
            if said.starts_with(what) {
                return (when, said);
            }
        }
    }

    fn next(&self, what: &str) -> (Time, String) {
        self.heard.recv().unwrap_or_else(|_| panic!("it ended before {what:?}"))
    }

    fn order(&mut self, what: &str) {
        writeln!(self.orders, "{what}").unwrap();
    }

    /// Messages that it got from other members that stay. What else it says is kept.
    fn count(&mut self) -> u64 {
        self.order("count");
        loop {
            let (when, said) = self.next("a count");
            match said.strip_prefix("count ") {
                Some(count) => return count.parse().unwrap(),
                None => self.kept.push_back((when, said)),
            }
        }
    }

    fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

impl Drop for Process {
    fn drop(&mut self) {
        // It may have ended already, and then there is nothing to do.
        drop(self.child.kill());
        drop(self.child.wait());
    }
}

/// By how much this machine is late in waking threads, meanwhile.
struct Lateness {
    stop: Arc<AtomicBool>,
    thread: thread::JoinHandle<Duration>,
}

impl Lateness {
    fn watch() -> Self {
        let stop = Arc::new(AtomicBool::new(false));
        let stopped = Arc::clone(&stop);
        let thread = thread::spawn(move || {
            let (nap, mut late) = (Duration::from_millis(10), Duration::ZERO);
            while !stopped.load(Ordering::Relaxed) {
                let begin = now();
                park(Some(nap));
                late += now().since(begin).saturating_sub(nap);
            }
            late
        });
        Self { stop, thread }
    }

    /// By when the others have to know. Time in which this machine was too busy to run a thread that should
    /// wake does not count, neither here nor there.
    fn limit(self) -> Duration {
        self.stop.store(true, Ordering::Relaxed);
        LIMIT + 2 * self.thread.join().unwrap()
    }
}

/// Messages per second among the members that stay.
fn rate(survivors: &mut [Process], time: Duration) -> f64 {
    let begin = now();
    let before: u64 = survivors.iter_mut().map(Process::count).sum();
    child::let_pass(time);
    let after: u64 = survivors.iter_mut().map(Process::count).sum();
    #[expect(clippy::cast_precision_loss, reason = "a rate to be read")]
    let rate = (after - before) as f64 / now().since(begin).as_secs_f64();
    rate
}

#[test]
fn a_killed_member_is_noticed_and_taken_in_again() {
    killed_and_taken_in_again("loud");
}

#[test]
fn a_killed_member_that_shares_memory_is_noticed_and_taken_in_again() {
    killed_and_taken_in_again(NEAR);
}

fn killed_and_taken_in_again(mode: &str) {
    if role().is_some() {
        return;
    }
    let is_long = soak_minutes().is_some();
    let (rounds, window) =
        if is_long { (20, Duration::from_secs(3)) } else { (1, Duration::from_millis(400)) };
    let mut victim = Process::start(mode, VICTIM);
    let others = (0..u32::from(MEMBERS)).filter(|id| *id != VICTIM);
    let mut survivors: Vec<_> = others.map(|id| Process::start(mode, id)).collect();
    for process in survivors.iter_mut().chain([&mut victim]) {
        process.hear("started");
    }
    let mut ratios = Vec::new();
    for round in 0..rounds {
        let before = rate(&mut survivors, window);
        let (lateness, killed) = (Lateness::watch(), now());
        victim.kill();
        let after = rate(&mut survivors, window);
        let left = format!("left {VICTIM}");
        let times = survivors.iter_mut().map(|process| process.hear(&left).0.since(killed));
        let slowest = times.max().unwrap();
        let limit = lateness.limit();
        println!(
            "round {round}: noticed after {slowest:?} of {limit:?}; {before:.0}/s before, {after:.0}/s after"
        );
        assert!(slowest < limit, "noticed after {slowest:?}, not within {limit:?}");
        ratios.push(after / before);
        victim = Process::start(mode, VICTIM);
        victim.hear("started");
        for process in &mut survivors {
            process.hear(&format!("joined {VICTIM}"));
        }
    }
    if is_long {
        ratios.sort_by(f64::total_cmp);
        let median = ratios[ratios.len() / 2];
        assert!(median > 0.7, "the others went on at {median:.2} of their rate");
    }
    for process in survivors.iter_mut().chain([&mut victim]) {
        process.order("leave");
    }
    // No process has ended early, so nothing came twice or out of order.
    for process in survivors.iter_mut().chain([&mut victim]) {
        process.hear("bye");
    }
}

#[test]
fn a_killed_member_without_traffic_is_noticed() {
    if role().is_some() {
        return;
    }
    let mut all = [0, 1, 2].map(|id| Process::start("quiet", id));
    for process in &mut all {
        process.hear("started");
    }
    // One that asks others, and one that is asked.
    for victim in [2_u32, 0] {
        let (lateness, killed) = (Lateness::watch(), now());
        all[victim as usize].kill();
        let left = format!("left {victim}");
        let others = (0..).zip(&mut all).filter(|(id, _)| *id != victim);
        let slowest = others.map(|(_, process)| process.hear(&left).0.since(killed)).max().unwrap();
        let limit = lateness.limit();
        assert!(slowest < limit, "noticed after {slowest:?}, not within {limit:?}");
        all[victim as usize] = Process::start("quiet", victim);
        all[victim as usize].hear("started");
        for (_, process) in (0..).zip(&mut all).filter(|(id, _)| *id != victim) {
            process.hear(&format!("joined {victim}"));
        }
    }
}
