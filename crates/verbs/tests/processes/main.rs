//! Two processes, each with a device of its own: what one-sided work needs of the other process (nothing),
//! and what is left when a process sleeps, spins, stops or dies.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../common/mod.rs"]
mod common;

mod child;
mod choices;
mod deaths;
mod deregistrations;
mod peer;
mod rests;

use std::time::Duration;

use child::{eventually, let_pass, soak_minutes};
use common::*;
use deregistrations::no_byte_comes_after_a_deregistration;
use ferroce_device::now;
use ferroce_verbs::*;
use peer::{AT_LEAST, LAST, Link, SEEN, WORD};

/// Addresses are 127.0.NET.x; each test has its own two.
pub(crate) const NET: u8 = 90;

/// What a child of this binary does; nothing in the parent.
#[test]
fn the_other_process() {
    match child::role().as_deref() {
        None => {}
        Some("choice") => choices::play(),
        Some("deaths") => deaths::play(),
        Some("rests") => rests::play(),
        Some(role) => peer::play(role),
    }
}

ferroce_testkit::over_both! {
    one_sided_work_is_done_while_the_target_sleeps: [1, 2], [11, 11];
    one_sided_work_is_done_while_the_target_spins: [3, 4], [12, 12];
    an_idle_driver_costs_nothing: [5, 6], [13, 13];
    a_killed_peer_is_noticed_and_the_rest_goes_on: [7, 8], [14, 14];
    a_descheduled_process_is_not_a_dead_peer: [9, 10], [15, 15];
    no_byte_comes_after_a_deregistration: [16, 17], [18, 18];
}

/// WRITE, READ and FETCH AND ADD, each done before this returns.
fn one_sided_work(link: &Link) {
    let Link { end, remote, .. } = link;
    let bytes: Vec<u8> = (0..=250).cycle().take(2000).collect();
    end.region.write_at(0, &bytes).unwrap();
    end.qp.write(end.region.slice(..2000), remote.slice(..2000)).id(1).post().unwrap();
    assert_eq!(end.done().id, 1);
    end.qp.read(end.region.slice(4000..6000), remote.slice(..2000)).id(2).post().unwrap();
    assert_eq!(end.done().id, 2);
    assert_eq!(end.region.to_vec(4000..6000).unwrap(), bytes);
    for add in [5, 6] {
        let at = remote.slice(WORD as u64..WORD as u64 + 8);
        end.qp.fetch_add(end.region.slice(8000..8008), at, add).id(3).post().unwrap();
        assert_eq!(end.done().id, 3);
    }
    assert_eq!(end.region.load_u64(8000), Ok(5), "what was there before the second");
}

fn one_sided_work_is_done_while_the_target_sleeps(addresses: [u8; 2]) {
    let mut link = Link::start("sleep", NET, addresses, &ConnectOptions::default());
    let other = &link.other;
    eventually("the target blocks in a read", || other.is_in_state('S'));
    one_sided_work(&link);
    assert!(link.other.is_in_state('S'), "it slept all the time");
    link.other.say("wake up");
    assert_eq!(link.other.hear(), "11", "what it finds in its memory");
    link.other.join();
}

fn one_sided_work_is_done_while_the_target_spins(addresses: [u8; 2]) {
    let mut link = Link::start("spin", NET, addresses, &ConnectOptions::default());
    assert!(!link.other.is_in_state('S'), "it spins");
    for _ in 0..20 {
        link.end.region.store_u64(8000, 0).unwrap();
        one_sided_work_again(&link);
    }
    let at = LAST as u64;
    link.end.qp.write_inline(&[SEEN], link.remote.slice(at..=at)).id(4).post().unwrap();
    assert_eq!(link.end.done().id, 4);
    assert_eq!(link.other.hear(), "seen");
    link.other.join();
}

/// The same, wherever the counter stands.
fn one_sided_work_again(link: &Link) {
    let at = WORD as u64;
    let clear = link.remote.slice(at..at + 8);
    link.end.qp.write_inline(&[0; 8], clear).id(9).post().unwrap();
    assert_eq!(link.end.done().id, 9);
    one_sided_work(link);
}

fn an_idle_driver_costs_nothing(addresses: [u8; 2]) {
    let mut link = Link::start("rest", NET, addresses, &ConnectOptions::default());
    one_sided_work(&link);
    let driver = link.other.driver();
    let mut last = time_on_cpu(&driver);
    eventually("the driver comes to rest", || {
        // Long enough for a driver that only waits for a core of a busy machine.
        let_pass(Duration::from_millis(250));
        let before = std::mem::replace(&mut last, time_on_cpu(&driver));
        before == last
    });
    // Less than 0.2 ms in a second: a thread that wakes once a millisecond uses ten times as much.
    let seconds = if soak_minutes().is_some() { 5 } else { 1 };
    let_pass(Duration::from_secs(seconds));
    let (time, turns) = time_on_cpu(&driver);
    assert!(time - last.0 < Duration::from_micros(200 * seconds), "{:?} in {seconds} s", time - last.0);
    assert_eq!(turns - last.1, 0, "times that it ran in {seconds} s");
    // And it still wakes when it is needed.
    one_sided_work_again(&link);
    link.other.say("wake up");
    assert_eq!(link.other.hear(), "11");
}

/// How long a thread has run, and how often it was put on a core.
fn time_on_cpu(task: &str) -> (Duration, u64) {
    let text = std::fs::read_to_string(format!("{task}/schedstat")).expect("the thread lives");
    let numbers: Vec<u64> = text.split_whitespace().map(|word| word.parse().expect("a number")).collect();
    (Duration::from_nanos(numbers[0]), numbers[2])
}

fn a_killed_peer_is_noticed_and_the_rest_goes_on(addresses: [u8; 2]) {
    let options = ConnectOptions { timeout: 13, retry_count: 3, ..Default::default() };
    let budget = Duration::from_nanos(4096 << options.timeout) * (u32::from(options.retry_count) + 1) * 4;
    let mut link = Link::start("sleep", NET, addresses, &options);
    let mut stream = Stream::default();
    while stream.done < 500 {
        stream.step(&link);
    }
    stream.fill(&link);
    link.other.kill();
    // What is posted from now on cannot arrive, so that there is something to fail.
    let killed = now();
    let failed = loop {
        stream.fill(&link);
        let done = link.end.cq.wait(SOON).unwrap();
        assert_eq!(done.id, stream.done, "in order");
        stream.done += 1;
        if !done.is_success() {
            break done;
        }
    };
    let took = now().since(killed);
    assert_eq!(failed.status, Status::RetryExceeded);
    // A loaded machine may look late at the clock, but not by seconds.
    assert!(took < budget + Duration::from_secs(3), "noticed after {took:?}; the budget is {budget:?}");
    while stream.done < stream.posted {
        let done = link.end.cq.wait(SOON).unwrap();
        assert_eq!((done.id, done.status), (stream.done, Status::Flushed));
        stream.done += 1;
    }
    assert_eq!(link.end.qp.state(), State::Err);

    // The same device works with a new process, which has the address of the dead one.
    let Link { end, other, .. } = link;
    drop(other);
    let fresh = End::new(&end.context, Service::Rc);
    let mut link = Link::with(fresh, "sleep", [127, 0, NET, addresses[1]], &ConnectOptions::default());
    one_sided_work(&link);
    link.other.say("wake up");
    assert_eq!(link.other.hear(), "11");
    drop(end);
}

/// A stream of WRITEs, many under way at a time.
#[derive(Debug, Default)]
struct Stream {
    posted: u64,
    done: u64,
}

impl Stream {
    const DEPTH: u64 = 64;

    fn fill(&mut self, link: &Link) {
        while self.posted - self.done < Self::DEPTH {
            let work = link.end.qp.write(link.end.region.slice(..4000), link.remote.slice(..4000));
            match work.id(self.posted).post() {
                Ok(()) => self.posted += 1,
                Err(error) => panic!("refused: {error}"),
            }
        }
    }

    fn step(&mut self, link: &Link) {
        self.fill(link);
        assert_eq!(link.end.done().id, self.done);
        self.done += 1;
    }
}

fn a_descheduled_process_is_not_a_dead_peer(addresses: [u8; 2]) {
    // We are patient enough. The stopped process is not, but the silence is its own.
    let options = ConnectOptions { timeout: 17, retry_count: 7, ..Default::default() };
    let mut link = Link::start("stream", NET, addresses, &options);
    let mut stream = Stream::default();
    let rounds = if soak_minutes().is_some() { 20 } else { 2 };
    for _ in 0..rounds {
        let before = stream.done;
        while stream.done < before + 300 {
            stream.step(&link);
        }
        stream.fill(&link);
        link.other.signal("STOP");
        let other = &link.other;
        eventually("it is stopped", || other.is_in_state('T'));
        let_pass(Duration::from_millis(600));
        link.other.signal("CONT");
    }
    let before = stream.done;
    while stream.done < before + 300 {
        stream.step(&link);
    }
    while stream.done < stream.posted {
        assert_eq!(link.end.done().id, stream.done);
        stream.done += 1;
    }
    assert_eq!(link.end.qp.state(), State::Rts);
    link.other.say("enough");
    let said = link.other.hear();
    let (errors, sent) = said.split_once(" errors of ").expect("an account");
    assert_eq!(errors, "0", "{said}");
    assert!(sent.parse::<u64>().expect("a number") >= AT_LEAST, "{said}");
    link.other.join();
}
