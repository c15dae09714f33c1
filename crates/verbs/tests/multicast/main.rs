//! Multicast between processes that share a loopback device: each process that is attached gets one copy of
//! each datagram, whichever process sends it; one that has died is no burden; and no packet to a group's
//! address leaves.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

#[path = "../processes/child.rs"]
mod child;
#[path = "../common/mod.rs"]
mod common;
mod member;

use child::Other;
use member::{ask, order};

const GROUP: &str = "239.7.7.7";
const SECOND: &str = "ff15::77";

/// What a child of this binary does; nothing in the parent.
#[test]
fn the_other_process() {
    if child::role().is_some() {
        member::play("lo");
    }
}

/// Some processes at one address.
fn start(address: &str, count: usize, engines: &str) -> Vec<Other> {
    let variables = [("FERROCE_ADDRESS", address), ("FERROCE_ENGINES", engines)];
    let mut all: Vec<Other> =
        (0..count).map(|_| Other::start("the_other_process", "member", &variables)).collect();
    for other in &mut all {
        assert_eq!(other.hear(), "ready");
    }
    all
}

/// What every attached process gets of this text.
fn copy(address: &str, group: &str, text: &str) -> String {
    format!("{address} {group} 9 {text}")
}

#[test]
fn every_process_of_a_switchboard_gets_one_copy() {
    let address = "127.0.94.1";
    for engines in ["1", "2"] {
        let mut all = start(address, 4, engines);
        for other in &mut all[..3] {
            order(other, &format!("attach {GROUP}"));
        }
        for (round, sender) in [0, 3, 1].into_iter().enumerate() {
            // A second message follows the first: a process that got one twice does not see it next.
            for text in [format!("first-{round}"), format!("second-{round}")] {
                order(&mut all[sender], &format!("send {GROUP} 9 0 {text}"));
                for other in &mut all[..3] {
                    assert_eq!(ask(other, "get"), copy(address, GROUP, &text));
                }
            }
        }
        // The fourth got none of it: what it sees first is what came after it was attached.
        order(&mut all[3], &format!("attach {GROUP}"));
        order(&mut all[0], &format!("detach {GROUP}"));
        order(&mut all[2], &format!("send {GROUP} 9 0 third"));
        for other in &mut all[1..] {
            assert_eq!(ask(other, "get"), copy(address, GROUP, "third"));
        }
        order(&mut all[0], &format!("attach {GROUP}"));
        order(&mut all[2], &format!("send {GROUP} 9 0 fourth"));
        for other in &mut all {
            assert_eq!(ask(other, "get"), copy(address, GROUP, "fourth"));
        }
        // A wrong key is counted by each queue pair, and nothing arrives.
        order(&mut all[1], &format!("send {GROUP} 9 1 wrong"));
        for other in &mut all {
            assert_eq!(ask(other, "wrong 1"), "1");
        }
        for other in &mut all {
            assert_eq!(ask(other, "sent"), "0", "nothing left over the network");
        }
        for other in &mut all {
            other.say("end");
        }
        all.into_iter().for_each(Other::join);
    }
}

#[test]
fn a_killed_member_is_no_member() {
    let address = "127.0.94.2";
    let mut all = start(address, 3, "1");
    for other in &mut all {
        order(other, &format!("attach {GROUP}"));
    }
    // It may be the leader.
    all[0].kill();
    let mut rest = all.split_off(1);
    for round in 0..20 {
        order(&mut rest[round % 2], &format!("send {GROUP} 9 0 text-{round}"));
        for other in &mut rest {
            assert_eq!(ask(other, "get"), copy(address, GROUP, &format!("text-{round}")));
        }
    }
    // Its place in the table is free for others, and a newcomer is found.
    let mut newcomer = start(address, 1, "1").remove(0);
    order(&mut newcomer, &format!("attach {GROUP}"));
    order(&mut rest[0], &format!("send {GROUP} 9 0 again"));
    for other in rest.iter_mut().chain([&mut newcomer]) {
        assert_eq!(ask(other, "get"), copy(address, GROUP, "again"));
    }
}

#[test]
fn what_is_no_group_is_refused() {
    let mut other = start("127.0.94.3", 1, "1").remove(0);
    assert_eq!(ask(&mut other, "attach 127.0.94.3"), "127.0.94.3 is no multicast group");
    assert_eq!(ask(&mut other, "attach fe80::1"), "fe80::1 is no multicast group");
    assert_eq!(
        ask(&mut other, &format!("detach {GROUP}")),
        format!("the queue pair is not attached to {GROUP}")
    );
    order(&mut other, &format!("attach {SECOND}"));
    order(&mut other, &format!("detach {SECOND}"));
}

#[test]
fn two_addresses_are_two_switchboards() {
    // They cannot hear each other: as docs/device.md says.
    let mut one = start("127.0.94.4", 1, "1").remove(0);
    let mut two = start("127.0.94.5", 1, "1").remove(0);
    order(&mut one, &format!("attach {GROUP}"));
    order(&mut two, &format!("attach {GROUP}"));
    order(&mut one, &format!("send {GROUP} 9 0 here"));
    order(&mut two, &format!("send {GROUP} 9 0 there"));
    assert_eq!(ask(&mut one, "get"), copy("127.0.94.4", GROUP, "here"));
    assert_eq!(ask(&mut two, "get"), copy("127.0.94.5", GROUP, "there"));
}

#[test]
fn a_process_has_as_many_groups_as_the_table_has_room_for() {
    let mut other = start("127.0.94.6", 2, "1");
    let mut refused = 0;
    for number in 0..1100 {
        let group = format!("239.9.{}.{}", number / 250, number % 250 + 1);
        let said = ask(&mut other[0], &format!("attach {group}"));
        if said != "ok" {
            assert!(said.contains("1024 multicast groups of all processes"), "{said}");
            refused += 1;
        }
    }
    assert_eq!(refused, 1100 - 1024);
    // When it has died, all of them are free again.
    other[0].kill();
    order(&mut other[1], &format!("attach {GROUP}"));
}
