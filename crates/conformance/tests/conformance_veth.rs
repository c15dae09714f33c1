//! The conformance suite over a real link: two network namespaces joined by a pair of virtual Ethernet
//! interfaces, with MTUs of 1500 and 9000, over IPv4 and IPv6. Every frame on the link is captured, and
//! judged by `tshark` and by us: here, unlike behind a socket, the IPv4 identification is seen, and the ICRC
//! must be right with it.
//!
//! All of it happens in namespaces of a process of its own, which vanish with it. It needs no privileges
//! where users may have namespaces.
#![allow(clippy::unwrap_used, reason = "a case that cannot go on has failed")]

#[path = "conformance_veth/capture.rs"]
mod capture;
#[path = "conformance_veth/judge.rs"]
mod judge;
#[path = "conformance_veth/network.rs"]
mod network;

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitCode;

use capture::Capture;
use ferroce_conformance::{CASES, Rig, run_on};
use network::{Family, Network};

fn main() -> ExitCode {
    let wanted = std::env::args().skip(1).find(|word| !word.starts_with('-')).unwrap_or_default();
    if std::env::args().any(|word| word == "--list") {
        return ExitCode::SUCCESS;
    }
    if !network::is_inside() {
        return network::run_inside();
    }
    let mut failed = Vec::new();
    let mut frames = 0;
    for mtu in [1500, 9000] {
        let network = Network::new(mtu);
        for family in [Family::V4, Family::V6] {
            frames += run_all(&network, family, &wanted, &mut failed);
        }
    }
    println!("\n{frames} frames were judged; failures: {failed:?}");
    if failed.is_empty() { ExitCode::SUCCESS } else { ExitCode::FAILURE }
}

/// Runs all cases over one link, then judges its frames; how many there were.
fn run_all(network: &Network, family: Family, wanted: &str, failed: &mut Vec<String>) -> usize {
    let link = format!("veth_{}_{}", network.mtu(), family.name());
    let capture = Capture::start(network, family);
    let mut sent = 0;
    for case in CASES {
        let name = format!("{link}::{}", case.name);
        if !name.contains(wanted) {
            continue;
        }
        let passed = catch_unwind(AssertUnwindSafe(|| {
            let (a, b) = (network.open_near(family), network.open_far(family));
            let active = if network.mtu() == 1500 { 1024 } else { 4096 };
            assert_eq!(a.0.port().active_mtu.bytes(), active);
            let rig = Rig::of(a, b);
            run_on(&rig, case);
            let (a, b) = rig.counters();
            sent += a.packets_sent + b.packets_sent;
        }));
        println!("test {name} ... {}", if passed.is_ok() { "ok" } else { "FAILED" });
        if passed.is_err() {
            failed.push(name);
        }
    }
    let complete = failed.is_empty();
    let frames = capture.finish(network, family);
    let judged = catch_unwind(AssertUnwindSafe(|| {
        judge::judge(&link, &frames);
        // A last acknowledgement may leave after the counters were read.
        assert!(
            !complete || frames.len() as u64 >= sent,
            "{} frames, but {sent} packets were sent",
            frames.len()
        );
        if wanted.is_empty() && family == Family::V4 {
            assert!(judge::later_segments(&frames) > 100, "runs were cut apart");
        }
    }));
    println!("test {link}::frames_are_right ... {}", if judged.is_ok() { "ok" } else { "FAILED" });
    if judged.is_err() {
        failed.push(format!("{link}::frames_are_right"));
    }
    frames.len()
}
