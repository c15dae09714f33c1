//! Messages that are posted one by one: which leave at once, and which wait for others.
#![allow(missing_docs, reason = "a test")]
#![allow(clippy::unwrap_used, reason = "a test")]

mod common;

use std::collections::BTreeSet;
use std::net::{IpAddr, UdpSocket};

use common::{PATIENCE, Peer, Side, signaled};
use ferroce_device::{Config, Nic, PathPolicy};
use ferroce_transport::{Attributes, Completion, SendFlags, SendOp, SendRequest, State};
use ferroce_wire::{Qpn, Rkey};

/// So many packets under way make a stream, whatever the time between two posts.
const STREAM: usize = 20;

/// The first PSN of [`Side::connect_with`].
const FIRST: u32 = 0xff_fff0;

/// A peer that takes packets and never answers.
struct Silent {
    socket: UdpSocket,
    came: BTreeSet<u32>,
}

impl Silent {
    fn new(address: [u8; 4]) -> (Self, Peer) {
        let socket = UdpSocket::bind((IpAddr::from(address), 4791)).unwrap();
        socket.set_read_timeout(Some(PATIENCE)).unwrap();
        let peer = Peer { qpn: Qpn::new(0x77), gid: IpAddr::from(address).into(), memory: 0, rkey: Rkey(0) };
        (Self { socket, came: BTreeSet::new() }, peer)
    }

    /// Waits until so many packets have come; those that come again do not count.
    fn wait_for(&mut self, count: usize) {
        while self.came.len() < count {
            let mut bytes = [0; 2048];
            let length = self.socket.recv(&mut bytes);
            let length =
                length.unwrap_or_else(|error| panic!("{} of {count} came: {error}", self.came.len()));
            assert!(length >= 16, "a packet of {length} bytes");
            let psn = u32::from_be_bytes([0, bytes[9], bytes[10], bytes[11]]);
            self.came.insert(psn.wrapping_sub(FIRST) & 0xff_ffff);
        }
    }
}

/// An end that sends to a peer which never answers.
fn end(address: [u8; 4], peer: &Peer, gathering: bool) -> Side {
    let config = Config { address: Some(IpAddr::from(address)), gathering, ..Config::new("lo") };
    let side = Side::with(&Nic::open(config).unwrap(), address, PathPolicy::Forbid, 1024);
    // The longest time: what is not acknowledged is not sent again soon.
    side.connect_with(peer, 31, 7);
    side
}

fn post(side: &Side, count: usize, flags: SendFlags) {
    let sges = [side.sge(0, 64)];
    for _ in 0..count {
        side.qp.post_send(&[SendRequest { flags, ..signaled(1, SendOp::Send, &sges) }]).unwrap();
    }
}

#[test]
fn a_message_by_itself_leaves_at_once() {
    let (mut silent, peer) = Silent::new([127, 0, 86, 1]);
    let side = end([127, 0, 86, 2], &peer, true);
    post(&side, 1, SendFlags::empty());
    silent.wait_for(1);
    assert_eq!(side.nic.counters().posts_gathered, 0);
}

#[test]
fn what_a_program_leaves_waiting_is_sent_by_the_driver() {
    let (mut silent, peer) = Silent::new([127, 0, 86, 3]);
    let side = end([127, 0, 86, 4], &peer, true);
    post(&side, STREAM, SendFlags::empty());
    silent.wait_for(STREAM);
    // Asking for the counters sends what waits, so they are asked for when all has come.
    let mut sent = STREAM;
    while side.nic.counters().gathered_by_driver < 2 {
        assert!(sent < 120, "{:?}", side.nic.counters());
        post(&side, 1, SendFlags::empty());
        sent += 1;
        silent.wait_for(sent);
    }
    assert!(side.nic.counters().posts_gathered >= 2);
}

#[test]
fn a_poll_that_finds_nothing_sends_what_waits() {
    let (mut silent, peer) = Silent::new([127, 0, 86, 5]);
    let side = end([127, 0, 86, 6], &peer, true);
    // Less than a poll leaves waiting.
    for sent in 1..50 {
        post(&side, 1, SendFlags::empty());
        assert_eq!(side.cq.poll(&mut [Completion::EMPTY]), 0);
        silent.wait_for(sent);
    }
}

#[test]
fn a_stream_leaves_in_runs() {
    let (mut silent, peer) = Silent::new([127, 0, 86, 7]);
    let side = end([127, 0, 86, 8], &peer, true);
    post(&side, 200, SendFlags::empty());
    silent.wait_for(200);
    let counters = side.nic.counters();
    // A thread that is kept from running has the driver send some of them, and then posts others that leave at once; and
    // while the driver is at work, they gather in its mail.
    assert!(counters.posts_gathered > 0 || counters.send_calls < 20, "{counters:?}");
    assert!(counters.send_calls + 20 < counters.packets_sent, "{counters:?}");
}

#[test]
fn messages_that_are_to_be_heard_at_once_and_those_of_a_device_that_was_told_so_never_wait() {
    let (mut silent, peer) = Silent::new([127, 0, 86, 9]);
    for (last, gathering, flags) in [(10, true, SendFlags::SOLICITED), (11, false, SendFlags::empty())] {
        let side = end([127, 0, 86, last], &peer, gathering);
        post(&side, 100, flags);
        silent.wait_for(100);
        silent.came.clear();
        assert_eq!(side.nic.counters().posts_gathered, 0);
    }
}

/// It was: what waited for company when a program destroyed its queue pair, or ended its connection, was thrown away.
#[test]
fn what_was_posted_before_a_queue_pair_goes_has_left() {
    for (last, is_destroyed) in [(20, true), (30, false)] {
        let (mut silent, peer) = Silent::new([127, 0, 86, last]);
        for round in 1..=5 {
            let side = end([127, 0, 86, last + round], &peer, true);
            post(&side, STREAM, SendFlags::empty());
            silent.wait_for(STREAM);
            post(&side, 3, SendFlags::empty());
            if is_destroyed {
                drop(side.qp);
            } else {
                side.qp.modify(&Attributes::to(State::Err), None).unwrap();
            }
            silent.wait_for(STREAM + 3);
            silent.came.clear();
        }
    }
}
