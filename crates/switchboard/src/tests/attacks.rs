//! What a process of the same user may try, and what it gets: nothing that others would notice.

use std::os::fd::{AsFd, AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::Duration;

use ferroce_sys::descriptor::wait_readable;
use ferroce_sys::unix;

use super::{connection, enter, eventually, group, is_cut};
use crate::connections::Connections;
use crate::membership::{Membership, Slot};
use crate::names::{self, Place};
use crate::protocol::{Answer, Greeting};
use crate::{forward, stats, survey};

/// Whether the kernel knows of our lock on a slot. Its list comes in pieces, and may change between them.
fn is_locked(ours: &Slot) -> bool {
    let file = ours.member().inner().table.file();
    // SAFETY: a status of C is numbers, for which zero is a value.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a status that lives during the call.
    assert_eq!(unsafe { libc::fstat(file.as_raw_fd(), &raw mut status) }, 0);
    let (pid, inode) = (std::process::id().to_string(), format!(":{}", status.st_ino));
    let byte = ours.number().to_string();
    let locks = std::fs::read_to_string("/proc/locks").expect("a list");
    locks.lines().any(|line| {
        let words: Vec<&str> = line.split_whitespace().collect();
        matches!(words[..], [_, "POSIX", _, "WRITE", by, of, first, last]
            if by == pid && of.ends_with(&inode) && first == byte && last == byte)
    })
}

#[test]
fn a_shared_file_that_is_sent_to_a_member_does_not_cost_its_locks() {
    let ours = enter(21);
    eventually("the lock is there", || is_locked(&ours));
    let inner = ours.member().inner();
    let file = inner.table.file().as_raw_fd();
    let violations = || inner.refused.violations.load(Ordering::Relaxed);

    let before = violations();
    let socket = connection(21);
    unix::send(socket.as_fd(), &Greeting::Watch.emit(), &[file]).expect("it is sent");
    assert!(is_cut(&socket));
    eventually("the connection is a violation", || violations() > before);
    eventually("it is there after a connection to the leader", || is_locked(&ours));

    let before = violations();
    let post = unix::socket(libc::SOCK_DGRAM).expect("a socket");
    let owner = inner.table.entry(ours.number().into()).read().expect("it is published");
    unix::connect(post.as_fd(), &names::of_letters(owner.token)).expect("its socket");
    // It has seen the secret of the group, as every process of this user may.
    let mut letter = [0; forward::HEAD];
    letter[forward::SECRET..].copy_from_slice(&inner.table.secret().to_ne_bytes());
    unix::send(post.as_fd(), &letter, &[file]).expect("it is sent");
    eventually("the letter is a violation", || violations() > before);
    eventually("it is there after a forwarded message", || is_locked(&ours));
}

#[test]
fn a_name_that_is_no_text_does_not_hide_the_switchboard() {
    let ours = enter(22);
    let named = unix::socket(libc::SOCK_DGRAM).expect("a socket");
    let name = [b"ferroce/test/\xff\xfe/", &std::process::id().to_ne_bytes()[..]].concat();
    unix::bind(named.as_fd(), &name).expect("any name will do");
    // A program may call itself anything, and be shown in a terminal.
    let entry = ours.member().inner().table.entry(ours.number().into());
    entry.program[0].store(u64::from_ne_bytes(*b"\x1b[2Jx\x07\xff\0"), Ordering::SeqCst);
    let seen = survey(Some("lo")).expect("an answer");
    let seen = seen.iter().flatten().find(|seen| seen.group == group(22)).expect("our group");
    let row = seen.rows.iter().find(|row| row.slot == ours.number()).expect("our slot");
    assert_eq!(row.program, "\u{fffd}[2Jx\u{fffd}\u{fffd}");
}

#[test]
fn a_flood_of_connections_does_not_keep_the_leader_for_ever() {
    let ours = enter(23);
    let name = format!("ferroce/test/flood/{}", std::process::id());
    let listener = unix::listen(name.as_bytes()).expect("a name of our own");
    let flood: Vec<OwnedFd> = (0..100)
        .map(|_| {
            let socket = unix::socket(libc::SOCK_SEQPACKET).expect("a socket");
            unix::connect(socket.as_fd(), name.as_bytes()).expect("a process listens");
            socket
        })
        .collect();
    let mut connections = Connections::default();
    let waits = || wait_readable(listener.as_fd(), Some(Duration::ZERO)).expect("a look");
    connections.accept(ours.member().inner(), listener.as_fd());
    assert!(waits(), "after some of them something else is done");
    connections.accept(ours.member().inner(), listener.as_fd());
    assert!(!waits(), "the rest comes next time");
    drop(flood);
}

#[test]
fn a_leader_that_hands_out_the_file_of_another_group_costs_no_process_its_locks() {
    let ours = enter(24);
    let file = ours.member().inner().table.file().as_raw_fd();
    let sockets = ours.member().inner().descriptors();
    // Where the shared file should be, in the place of a socket, and with an answer that has none.
    let in_place_of_a_socket = [&sockets[1..2], &[file], &sockets[2..]].concat();
    for (address, descriptors) in [(25, &sockets[..]), (26, &in_place_of_a_socket), (27, &[file][..])] {
        let name = names::of_leader(&group(address), unix::own_uid(), Place::Usual);
        let listener = unix::listen(name.as_bytes()).expect("no process leads there");
        let hostile = std::thread::scope(|scope| {
            let newcomer = scope.spawn(|| Membership::join(&group(address), true));
            // A survey by another test may come first, and gets the same.
            let mut answered = Vec::new();
            while !newcomer.is_finished() {
                if wait_readable(listener.as_fd(), Some(Duration::from_millis(10))).expect("a look") {
                    let connection = unix::accept(listener.as_fd()).expect("a caller");
                    let _ = unix::send(connection.as_fd(), &Answer::Sockets.emit(), descriptors);
                    answered.push(connection);
                }
            }
            newcomer.join().expect("no panic").expect_err("it is refused").to_string()
        });
        assert!(hostile.contains("hands out the shared file of another one"), "{hostile}");
        eventually("the lock is there still", || is_locked(&ours));
    }
}

/// Connects to wherever this process tells what its queue pairs do: other tests of it have switchboards too.
fn ask_for_stats() -> Vec<OwnedFd> {
    let pid = format!("/{}/", std::process::id());
    let connect = |name: &String| {
        let socket = unix::socket(libc::SOCK_SEQPACKET).ok()?;
        unix::connect(socket.as_fd(), name.as_bytes()).ok()?;
        Some(socket)
    };
    let names = names::list_counters(unix::own_uid()).expect("a list of names");
    names.iter().filter(|name| name.contains(&pid)).filter_map(connect).collect()
}

#[test]
fn a_process_that_asks_for_counters_is_heard_once_and_briefly() {
    let ours = enter(28);
    let violations = || ours.member().inner().refused.violations.load(Ordering::Relaxed);
    let told = |pid| {
        let all = stats(&[pid]).expect("a list of sockets");
        all.into_iter().flatten().find(|process| process.group == group(28))
    };
    let seen = told(std::process::id()).expect("this process tells of itself");
    assert_eq!((seen.engines, seen.busy, seen.report.rows.len()), (0, 0, 0), "no device is open");

    // Nonsense, another version, and a question that is not asked here.
    let mut other = Greeting::Stats.emit();
    other[4] ^= 0x40;
    for nonsense in [&b"anything"[..], &other, &Greeting::Join.emit(), &[0; 64]] {
        let before = violations();
        let sockets = ask_for_stats();
        for socket in &sockets {
            drop(unix::send(socket.as_fd(), nonsense, &[]));
        }
        eventually("it is a violation", || violations() > before);
        assert!(sockets.iter().all(is_cut), "{nonsense:?}");
    }
    // A crowd that says nothing does not keep a process from an answer.
    let crowd: Vec<Vec<OwnedFd>> = (0..20).map(|_| ask_for_stats()).collect();
    assert!(told(std::process::id()).is_some());
    drop(crowd);
    assert!(told(1).is_none(), "only the slot that is asked for");
}
