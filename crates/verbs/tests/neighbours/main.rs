//! Many processes on one address: they share the port of RoCEv2, and none of them notices the others come, go
//! or die.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../processes/child.rs"]
mod child;
#[path = "../common/mod.rs"]
mod common;

mod pair;

use std::time::Duration;

use child::{let_pass, soak_minutes};
use common::open;
use ferroce_device::now;
use ferroce_device::switchboard::survey;
use ferroce_verbs::*;
use pair::Pair;

/// Addresses are 127.0.NET.x; each test has its own.
const NET: u8 = 62;

/// What a child of this binary does; nothing in the parent.
#[test]
fn the_other_process() {
    if let Some(role) = child::role() {
        pair::play(&role);
    }
}

#[test]
fn two_processes_on_one_address_just_work() {
    let mut pair = Pair::start([127, 0, NET, 1]);
    pair.go("rounds 300");
    assert_eq!(pair.rounds(), 300);
}

#[test]
fn a_process_talks_to_one_that_was_there_before() {
    let ours = open([127, 0, NET, 2]);
    let end = common::End::new(&ours, Service::Rc);
    let mut pair = Pair::start([127, 0, NET, 2]);
    pair.go("rounds 20");
    assert_eq!(pair.rounds(), 20);
    assert!(end.qp.local_address().to_string().contains("127.0.62.2"));
}

/// Fifty pairs at once on two cores. A third of them is killed, one end each: the others do not notice.
#[test]
fn fifty_pairs_at_once_and_a_third_of_them_dies() {
    let rounds = soak_minutes().map_or(60, |minutes| 2_000 * minutes);
    let mut pairs: Vec<Pair> = (0..50).map(|_| Pair::start([127, 0, NET, 3])).collect();
    for pair in &mut pairs {
        pair.go(&format!("rounds {rounds}"));
    }
    let mut others = Vec::new();
    for (number, mut pair) in pairs.into_iter().enumerate() {
        if number % 3 == 0 {
            pair.kill_one(number % 2);
        } else {
            others.push(pair);
        }
    }
    for pair in &mut others {
        assert_eq!(pair.rounds(), rounds);
    }
    assert_eq!(others.len(), 33);
}

/// The leader is killed again and again, and with it the pair that it belongs to; every other pair's data
/// are right.
#[test]
fn pairs_go_on_while_leaders_die() {
    let address = [127, 0, NET, 4];
    let time = soak_minutes().map_or(Duration::from_secs(10), |minutes| Duration::from_secs(60 * minutes));
    let (mut killed, mut rounds) = (0, 0);
    let end = now() + time;
    while now() < end {
        let mut pairs: Vec<Pair> = (0..8).map(|_| Pair::start(address)).collect();
        for pair in &mut pairs {
            pair.go("millis 1500");
        }
        for _ in 0..12 {
            let_pass(Duration::from_millis(100));
            let leader = leader(address);
            let found = leader.and_then(|pid| pairs.iter().position(|pair| pair.has(pid)));
            if let Some(at) = found.filter(|_| pairs.len() > 2) {
                pairs.swap_remove(at);
                killed += 1;
            }
        }
        rounds += pairs.iter_mut().map(Pair::rounds).sum::<u64>();
    }
    assert!(killed > 3 && rounds > 100, "{killed} killed, {rounds} rounds");
    assert_eq!(leader(address), None, "no process is left");
}

/// The process that leads on an address.
fn leader(address: [u8; 4]) -> Option<u32> {
    let all = survey(Some("lo")).ok()?;
    all.into_iter().flatten().find(|seen| seen.group.address == Some(address.into())).map(|seen| seen.leader)
}
