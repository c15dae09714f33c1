//! Multicast over a network: two namespaces joined by a link, two processes in each. A datagram to a group
//! goes over the link once, and every process whose queue pair is attached gets one copy.
//!
//! All of it happens in namespaces of a process of its own, as the conformance suite over a link does.
#![allow(clippy::unwrap_used, reason = "a case that cannot go on has failed")]

#[path = "processes/child.rs"]
mod child;
#[path = "common/mod.rs"]
mod common;
#[path = "multicast/member.rs"]
mod member;
#[path = "../../conformance/tests/conformance_veth/network.rs"]
#[allow(dead_code, reason = "the devices of this test are in other processes")]
mod network;

use std::process::{Command, ExitCode};

use child::{Other, ROLE};
use member::{ask, order};
use network::{Family, Network};

fn main() -> ExitCode {
    if std::env::args().any(|word| word == "--list") {
        return ExitCode::SUCCESS;
    }
    if let Some(interface) = child::role() {
        member::play(&interface);
        return ExitCode::SUCCESS;
    }
    if !network::is_inside() {
        return network::run_inside();
    }
    let network = Network::new(1500);
    for (family, group) in [(Family::V4, "239.7.7.8"), (Family::V6, "ff15::78"), (Family::V6, "ff02::4791")] {
        copies_cross_the_link(&network, family, group);
        println!("test copies_cross_the_link {group} ... ok");
    }
    ExitCode::SUCCESS
}

/// A process at one end of the link, on all addresses of its interface.
fn start(end: u8) -> Other {
    let exe = std::env::current_exe().unwrap();
    let interface = if end == 1 { network::near_interface() } else { network::far_interface() };
    let mut command = match end {
        1 => Command::new(exe),
        _ => network::far_command(exe.to_str().unwrap()),
    };
    command.env(ROLE, interface);
    let mut other = Other::start_by(command);
    assert_eq!(other.hear(), "ready");
    other
}

fn copies_cross_the_link(_: &Network, family: Family, group: &str) {
    // The first two are near, the others far.
    let mut all: Vec<Other> = [1, 1, 2, 2].map(start).into_iter().collect();
    let address = |member: usize| family.address(if member < 2 { 1 } else { 2 });
    let copy = |sender: usize, text: &str| format!("{} {group} 3 {text}", address(sender));
    // No process listens: it goes to the wire, and is gone.
    order(&mut all[0], &format!("send {group} 3 0 unheard"));
    for other in &mut all {
        order(other, &format!("attach {group}"));
        order(other, &format!("attach {group}"));
    }
    for sender in [0, 1, 2, 3] {
        // A second message follows the first: a process that got one twice does not see it next.
        for text in [format!("first-{sender}"), format!("second-{sender}")] {
            order(&mut all[sender], &format!("send {group} 3 0 {text}"));
            for (member, other) in all.iter_mut().enumerate() {
                assert_eq!(ask(other, "get"), copy(sender, &text), "member {member}");
            }
        }
    }
    let sent: Vec<String> = all.iter_mut().map(|other| ask(other, "sent")).collect();
    assert_eq!(sent, ["3", "2", "2", "2"], "each once, whichever process gets it");
    order(&mut all[1], &format!("detach {group}"));
    order(&mut all[2], &format!("detach {group}"));
    order(&mut all[0], &format!("send {group} 3 0 third"));
    for other in [0, 3] {
        assert_eq!(ask(&mut all[other], "get"), copy(0, "third"));
    }
    order(&mut all[1], &format!("attach {group}"));
    order(&mut all[2], &format!("attach {group}"));
    order(&mut all[2], &format!("send {group} 3 1 wrong"));
    for other in &mut all {
        assert_eq!(ask(other, "wrong 1"), "1");
    }
    // One dies; the rest goes on, and a newcomer is served.
    all[3].kill();
    all[3] = start(2);
    order(&mut all[3], &format!("attach {group}"));
    order(&mut all[1], &format!("send {group} 3 0 fourth"));
    for other in &mut all {
        assert_eq!(ask(other, "get"), copy(1, "fourth"));
    }
}
