//! What a process of another user may do to names, and what it gets: nothing that anything else would notice.

use std::os::fd::AsFd;
use std::os::unix::process::CommandExt;
use std::time::Duration;

use ferroce_fabric::Received;
use ferroce_sys::clock;
use ferroce_sys::unix;

use super::other::Other;
use super::squatter;
use super::{address, enter, eventually, group};
use crate::{Arrival, stats, survey};

/// The other user, if there can be one.
fn squatter() -> Option<Other> {
    if unix::own_uid() != 0 {
        println!("SKIPPED: only root can become another user");
        return None;
    }
    let mut other = Other::start("squatter", address(0));
    assert_eq!(other.hear(), "ready");
    Some(other)
}

/// Where everything looks for the leader first.
fn usual(last: u8) -> String {
    format!("ferroce/switch/{}/lo/127.0.61.{last}", unix::own_uid())
}

/// The user that listens at a name.
fn user_at(name: &str) -> Option<u32> {
    let socket = unix::socket(libc::SOCK_SEQPACKET).expect("a socket");
    unix::connect(socket.as_fd(), name.as_bytes()).ok()?;
    unix::peer(socket.as_fd()).ok().map(|peer| peer.uid)
}

/// The process that leads, as the survey sees it.
fn leader(last: u8) -> Option<u32> {
    let seen = survey(Some("lo")).expect("a list of names");
    seen.into_iter().flatten().find(|seen| seen.group == group(last)).map(|seen| seen.leader)
}

#[test]
fn names_squatted_by_another_uid_do_not_block_opening() {
    let Some(mut squatter) = squatter() else { return };
    squatter.say(&format!("take {}", usual(60)));
    assert_eq!(squatter.hear(), "holds 1");
    assert_eq!(leader(60), None, "what another user listens at is no group of ours");
    let ours = enter(60);
    eventually("we lead", || ours.member().leads());
    assert_eq!(user_at(&usual(60)), Some(squatter::UID), "it was not enough to wait");
    let mut second = Other::start("member", address(60));
    let theirs = second.hear();
    assert!(theirs.starts_with("slot ") && theirs != format!("slot {}", ours.number()), "{theirs}");
    assert_eq!(leader(60), Some(std::process::id()));
    // When the name is free again, the leader is found there.
    squatter.say("end");
    eventually("the usual name is ours", || user_at(&usual(60)) == Some(0));
    let mut third = Other::start("member", address(60));
    assert!(third.hear().starts_with("slot "));
    assert_eq!(leader(60), Some(std::process::id()));
    assert!(ours.member().inner().refused.read().names_skipped > 0, "it is counted");
}

#[test]
fn a_name_squatted_in_an_election_does_not_stop_it() {
    let Some(mut squatter) = squatter() else { return };
    let mut first = Other::start("member", address(61));
    assert!(first.hear().starts_with("slot "));
    let mut second = Other::start("member", address(61));
    assert!(second.hear().starts_with("slot "));
    squatter.say(&format!("grab {}", usual(61)));
    assert_eq!(squatter.hear(), "waits");
    // The squatter is the first to notice that the leader is gone.
    second.signal(libc::SIGSTOP);
    eventually("all its threads are stopped", || second.is_stopped());
    first.signal(libc::SIGKILL);
    assert_eq!(squatter.hear(), "has it");
    second.signal(libc::SIGCONT);
    let ours = enter(61);
    assert!(!ours.member().leads());
    assert_eq!(leader(61), Some(second.pid()));
    // And once more, from a spare name to the next.
    second.signal(libc::SIGKILL);
    eventually("we lead", || ours.member().leads());
    let mut third = Other::start("member", address(61));
    assert!(third.hear().starts_with("slot "));
    assert_eq!(user_at(&usual(61)), Some(squatter::UID));
}

#[test]
fn a_crowd_of_squatted_names_delays_opening_by_less_than_a_second() {
    let Some(mut squatter) = squatter() else { return };
    squatter.say(&format!("take {}", usual(62)));
    assert_eq!(squatter.hear(), "holds 1");
    squatter.say(&format!("crowd {} 1000", usual(62)));
    assert_eq!(squatter.hear(), "holds 1001");
    let mut first = Other::start("member", address(62));
    assert!(first.hear().starts_with("slot "));
    let begin = clock::now();
    let ours = enter(62);
    let took = clock::now().since(begin);
    assert!(!ours.member().leads());
    println!("it took {took:?}");
    assert!(took < Duration::from_secs(1), "{took:?}");
    assert_eq!(leader(62), Some(first.pid()));
}

#[test]
fn a_squatter_that_cannot_be_asked_does_not_block_opening() {
    let Some(mut squatter) = squatter() else { return };
    squatter.say(&format!("clog {}", usual(63)));
    assert_eq!(squatter.hear(), "clogged");
    let ours = enter(63);
    eventually("we lead", || ours.member().leads());
    let mut second = Other::start("member", address(63));
    assert!(second.hear().starts_with("slot "));
}

#[test]
fn a_letter_for_a_process_that_is_gone_is_not_given_to_another_user() {
    let Some(mut squatter) = squatter() else { return };
    let ours = enter(64);
    let mut other = Other::start("member", address(64));
    let slot: u8 = other.hear()["slot ".len()..].parse().expect("a number");
    let received = Received {
        len: 64,
        segment: 64,
        source: (address(64), 1),
        local: address(64),
        traffic_class: 0,
        hop_limit: 64,
        flow_label: 0,
        stamp: 0,
    };
    let arrival = Arrival { received, place: 0, bytes: &[7; 64] };
    assert!(ours.member().forward(slot, &arrival), "as long as it lives");
    let [high, low] = ours.member().inner().table.entry(slot.into()).read().expect("it is published").token;
    other.signal(libc::SIGKILL);
    eventually("it is gone", || !ours.member().inner().is_alive(slot.into()));
    drop(other);
    // Its slot has no owner, and what it published stands there.
    assert!(ours.member().inner().table.entry(slot.into()).read().is_some());
    squatter.say(&format!("box ferroce/slot/{high:016x}{low:016x}"));
    assert_eq!(squatter.hear(), "has it");
    let given = ours.member().forward(slot, &arrival);
    squatter.say("letters?");
    assert_eq!((given, squatter.hear().as_str()), (false, "0"));
}

#[test]
fn squatted_names_do_not_keep_a_process_from_telling_its_counters() {
    let Some(mut squatter) = squatter() else { return };
    let pid = std::process::id();
    let names: Vec<String> = (0..64).map(|number| format!("ferroce/stat/0/{pid}/{number}")).collect();
    squatter.say(&format!("take {}", names.join(" ")));
    assert!(squatter.hear().starts_with("holds "));
    let ours = enter(65);
    let told = stats(&[pid]).expect("a list of names");
    assert!(told.into_iter().flatten().any(|process| process.group == group(65)));
    drop(ours);
}

#[test]
fn letters_and_connections_of_another_user_are_refused_and_counted_by_reason() {
    let Some(mut squatter) = squatter() else { return };
    let ours = enter(66);
    eventually("the usual name is ours", || user_at(&usual(66)) == Some(0));
    let inner = ours.member().inner();
    let [high, low] = inner.token();
    let before = inner.refused.read();
    squatter.say(&format!("write ferroce/slot/{high:016x}{low:016x}"));
    assert_eq!(squatter.hear(), "written");
    eventually("letters are counted", || inner.refused.read().foreign_letters > before.foreign_letters);
    squatter.say(&format!("connect {}", usual(66)));
    assert_eq!(squatter.hear(), "connected");
    let connections = || inner.refused.read().foreign_connections;
    eventually("the connection is counted", || connections() == before.foreign_connections + 1);
    assert_eq!(inner.refused.read().violations, before.violations, "none is taken for a process of ours");
    // The leader tells it, and so does the process itself.
    let seen = survey(Some("lo")).expect("a list of names");
    let seen = seen.into_iter().flatten().find(|seen| seen.group == group(66)).expect("our group");
    assert_eq!(seen.refused, inner.refused.read());
    let told = stats(&[std::process::id()]).expect("a list of names");
    let told = told.into_iter().flatten().find(|process| process.group == group(66)).expect("this process");
    assert_eq!(told.report.refused, inner.refused.read());
    assert_eq!(ours.member().traffic().refused, inner.refused.read());
}

/// In a user namespace that does not know the other user, that one is shown as uid 65534: as this process itself.
#[test]
fn a_user_that_cannot_be_told_from_others_is_refused() {
    let Some(mut squatter) = squatter() else { return };
    squatter.say("take ferroce/switch/65534/lo/127.0.61.67");
    assert_eq!(squatter.hear(), "holds 1");
    let enter_namespace = || {
        // SAFETY: takes and gives plain numbers.
        if unsafe { libc::unshare(libc::CLONE_NEWUSER) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
        std::fs::write("/proc/self/uid_map", "65534 0 1")
    };
    let started = Other::start_with("member", address(67), |command| {
        // SAFETY: between fork and exec it makes system calls, and allocates nothing but an error.
        unsafe { command.pre_exec(enter_namespace) };
    });
    match started {
        Ok(mut other) => {
            let why = other.hear();
            assert!(
                why.contains("runs as uid 65534") && why.contains("cannot tell their processes"),
                "{why}"
            );
        }
        Err(error) => println!("SKIPPED: no user namespaces here: {error}"),
    }
}
