//! A process that forks while its device is at work: it goes on as if nothing had happened, and the child has
//! a clean start.
#![allow(unsafe_code, reason = "only the system forks")]

mod common;

use std::io::{PipeReader, PipeWriter, Read, Write};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use common::{Peer, Side, device, signaled};
use ferroce_device::{NicCreateError, NicQpError, PathPolicy};
use ferroce_transport::{Access, PostError, PostListError, ReceiveRequest, SendOp, State, Status};
use ferroce_wire::{Gid, Qpn, Rkey};

const ADDRESS: [u8; 4] = [127, 0, 63, 1];

/// How often it is done: whatever the other threads are in the middle of must not matter.
const TIMES: usize = 20;

#[test]
fn a_fork_with_traffic_on_both_sides() {
    let nic = device(ADDRESS);
    let pair = || {
        let ends =
            (Side::new(&nic, ADDRESS, PathPolicy::Forbid), Side::new(&nic, ADDRESS, PathPolicy::Forbid));
        ends.0.connect(&ends.1.address());
        ends.1.connect(&ends.0.address());
        ends
    };
    let stop = Arc::new(AtomicBool::new(false));
    let streams: Vec<_> = (0..2)
        .map(|_| {
            let (ends, stop) = (pair(), Arc::clone(&stop));
            std::thread::spawn(move || {
                let mut messages = 0;
                while !stop.load(Ordering::Relaxed) {
                    write(&ends.0, &ends.1.address(), messages);
                    messages += 1;
                }
                messages
            })
        })
        .collect();
    for time in 0..TIMES {
        assert!(udp_sockets() > 0);
        let ours = Side::new(&nic, ADDRESS, PathPolicy::Prefer);
        let (to_child, from_parent) = pipe();
        let (to_parent, from_child) = pipe();
        let mut parent = Wire { out: to_child, input: from_child };
        let mut child = Wire { out: to_parent, input: from_parent };
        // SAFETY: the child touches locks of this process only where that is what is tried, and leaves with _exit.
        let pid = unsafe { libc::fork() };
        assert!(pid >= 0, "a process");
        if pid == 0 {
            let right = catch_unwind(AssertUnwindSafe(|| be_the_child(ours, &mut child)));
            // SAFETY: ends this process at once: what belongs to the parent is not cleaned up here.
            unsafe { libc::_exit(i32::from(right.is_err())) };
        }
        ours.connect(&parent.hear());
        parent.say(&ours.address());
        // The child writes into our memory, and says so.
        ours.qp.post_receive(&[ReceiveRequest { id: 7, sges: &[] }]).expect("room");
        parent.say(&ours.address());
        assert_eq!(ours.completion().status, Status::Success);
        let mut seen = vec![0; 10_000];
        ours.memory.read(0, &mut seen).expect("inside");
        assert!(seen.iter().all(|byte| *byte == 0xc5), "round {time}");
        let mut status = 0;
        // SAFETY: the pointer is to a number that lives during the call.
        assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
        assert_eq!(status, 0, "round {time}");
    }
    stop.store(true, Ordering::Relaxed);
    for stream in streams {
        assert!(stream.join().expect("no message was wrong") > 0);
    }
}

/// A message that is checked.
fn write(from: &Side, to: &Peer, number: u64) {
    from.memory.write(0, &number.to_ne_bytes()).expect("inside");
    let (out, into) = ([from.sge(0, 8)], [from.sge(128, 8)]);
    let requests = [signaled(1, SendOp::Write(to.at(64)), &out), signaled(2, SendOp::Read(to.at(64)), &into)];
    from.qp.post_send(&requests).expect("room");
    for id in [1, 2] {
        let done = from.completion();
        assert_eq!((done.id, done.status), (id, Status::Success));
    }
    let mut seen = [0; 8];
    from.memory.read(128, &mut seen).expect("inside");
    assert_eq!(u64::from_ne_bytes(seen), number);
}

/// UDP sockets among the descriptors of this process.
fn udp_sockets() -> usize {
    let text = |path| std::fs::read_to_string(path).unwrap_or_default();
    let known = text("/proc/self/net/udp") + &text("/proc/self/net/udp6");
    let inodes: Vec<String> = known
        .lines()
        .filter_map(|line| Some(format!("socket:[{}]", line.split_whitespace().nth(9)?)))
        .collect();
    let fds = std::fs::read_dir("/proc/self/fd").expect("descriptors").flatten();
    let links = fds.filter_map(|fd| std::fs::read_link(fd.path()).ok());
    links.filter(|link| inodes.iter().any(|inode| link.to_str() == Some(inode))).count()
}

fn be_the_child(before: Side, parent: &mut Wire) {
    assert_eq!(udp_sockets(), 0, "neither those of slots nor those for sending");
    // What was made before the fork returns errors, and hangs nowhere.
    assert!(!before.nic.is_ours());
    assert_eq!(before.nic.create_domain(), Err(NicCreateError::Forked));
    assert_eq!(
        before.nic.register(before.domain, &before.memory, (0, 8), 0, Access::empty()),
        Err(NicCreateError::Forked)
    );
    let request = signaled(1, SendOp::Send, &[]);
    assert_eq!(before.qp.post_send(&[request]), Err(PostListError::new(0, PostError::OtherProcess)));
    let receive = ReceiveRequest { id: 1, sges: &[] };
    assert_eq!(before.qp.post_receive(&[receive]), Err(PostListError::new(0, PostError::OtherProcess)));
    let to_error = ferroce_transport::Attributes::to(State::Err);
    assert_eq!(before.qp.modify(&to_error, None), Err(NicQpError::Forked));
    let mut found = [ferroce_transport::Completion::EMPTY];
    assert_eq!(before.cq.wait(&mut found, None), 0, "it does not wait for ever");
    drop(before);

    // And a device that is opened here has a slot of its own.
    let nic = device(ADDRESS);
    assert!(nic.is_ours());
    let ours = Side::new(&nic, ADDRESS, PathPolicy::Prefer);
    parent.say(&ours.address());
    let peer = parent.hear();
    assert_ne!(peer.qpn.get() >> 16, ours.qp.qpn().get() >> 16, "another slot");
    ours.connect(&peer);
    parent.hear();
    ours.memory.write(0, &[0xc5; 10_000]).expect("inside");
    let imm = ferroce_wire::Imm(1);
    ours.qp
        .post_send(&[signaled(1, SendOp::WriteImm(peer.at(0), imm), &[ours.sge(0, 10_000)])])
        .expect("room");
    assert_eq!(ours.completion().status, Status::Success);
}

/// The two ends of a pipe in each direction.
struct Wire {
    out: PipeWriter,
    input: PipeReader,
}

fn pipe() -> (PipeWriter, PipeReader) {
    let (input, out) = std::io::pipe().expect("a pipe");
    (out, input)
}

impl Wire {
    fn say(&mut self, peer: &Peer) {
        let mut bytes = [0; 32];
        bytes[..4].copy_from_slice(&peer.qpn.get().to_ne_bytes());
        bytes[4..12].copy_from_slice(&peer.memory.to_ne_bytes());
        bytes[12..16].copy_from_slice(&peer.rkey.0.to_ne_bytes());
        bytes[16..].copy_from_slice(&peer.gid.0);
        self.out.write_all(&bytes).expect("the other listens");
    }

    fn hear(&mut self) -> Peer {
        let mut bytes = [0; 32];
        self.input.read_exact(&mut bytes).expect("the other speaks");
        let word = |at: usize| u32::from_ne_bytes(*bytes[at..].first_chunk().expect("inside"));
        Peer {
            qpn: Qpn::new(word(0)),
            memory: u64::from_ne_bytes(*bytes[4..].first_chunk().expect("inside")),
            rkey: Rkey(word(12)),
            gid: Gid(*bytes[16..].first_chunk().expect("inside")),
        }
    }
}
