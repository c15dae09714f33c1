//! How connections end.

use std::thread;

use ferroce_verbs::cm::{Disconnected, Listener};
use ferroce_verbs::{State, Status};

use crate::common::{SOON, nic};
use crate::parties::{Hosts, talk};

#[test]
fn either_side_ends_it_and_both_know() {
    let hosts = Hosts::new(109);
    let listener = Listener::bind(&hosts.server, 0, 8).unwrap();
    for by_client in [true, false] {
        let (here, there) = hosts.connect(&listener);
        let (first, second) = if by_client { (here, there) } else { (there, here) };
        // A thread waits for it meanwhile.
        let seen = thread::scope(|scope| {
            let waits = scope.spawn(|| second.link.wait_disconnected(SOON));
            first.link.disconnect();
            waits.join().unwrap()
        });
        assert_eq!(seen, Ok(Disconnected::Peer));
        assert_eq!(first.link.wait_disconnected(SOON), Ok(Disconnected::Here));
        assert_eq!((first.end.qp.state(), second.end.qp.state()), (State::Err, State::Err));
        first.link.disconnect();
        assert_eq!(first.link.disconnected(), Some(Disconnected::Here), "it stays as it is");
    }
}

#[test]
fn both_end_it_at_once() {
    let hosts = Hosts::new(110);
    let listener = Listener::bind(&hosts.server, 0, 8).unwrap();
    for _ in 0..20 {
        let (here, there) = hosts.connect(&listener);
        thread::scope(|scope| {
            scope.spawn(|| here.link.disconnect());
            scope.spawn(|| there.link.disconnect());
        });
        for link in [&here.link, &there.link] {
            let how = link.wait_disconnected(SOON).unwrap();
            assert!(matches!(how, Disconnected::Here | Disconnected::Peer), "{how:?}");
        }
    }
}

#[test]
fn dropping_it_ends_it() {
    let hosts = Hosts::new(111);
    let listener = Listener::bind(&hosts.server, 0, 8).unwrap();
    let (here, there) = hosts.connect(&listener);
    drop(here.link);
    assert_eq!(there.link.wait_disconnected(SOON), Ok(Disconnected::Peer));
    assert_eq!(here.end.qp.state(), State::Err);
    // Also everything of one side at once.
    let (here, there) = hosts.connect(&listener);
    drop(here);
    assert_eq!(there.link.wait_disconnected(SOON), Ok(Disconnected::Peer));
    // The queue pair first.
    let (here, there) = hosts.connect(&listener);
    drop(there.end);
    here.link.disconnect();
    assert_eq!(there.link.wait_disconnected(SOON), Ok(Disconnected::Peer));
}

#[test]
fn what_is_posted_is_flushed() {
    let hosts = Hosts::new(112);
    let listener = Listener::bind(&hosts.server, 0, 8).unwrap();
    let (here, there) = hosts.connect(&listener);
    there.end.qp.receive(there.end.region.slice(..64)).id(3).post().unwrap();
    here.link.disconnect();
    let flushed = there.end.cq.wait(SOON).unwrap();
    assert_eq!((flushed.id, flushed.status), (3, Status::Flushed));
    assert_eq!(there.link.disconnected(), Some(Disconnected::Peer), "in this order");
}

#[test]
fn the_last_message_before_the_end_is_known_to_have_arrived() {
    let hosts = Hosts::new(113);
    let listener = Listener::bind(&hosts.server, 0, 8).unwrap();
    for _ in 0..50 {
        let (here, there) = hosts.connect(&listener);
        there.end.qp.receive(there.end.region.slice(..64)).id(1).post().unwrap();
        here.end.qp.send_inline(b"last words").id(2).post().unwrap();
        assert_eq!(there.end.done().id, 1);
        // The receiver ends the connection at once: the acknowledgement leaves before.
        there.link.disconnect();
        assert_eq!(here.end.done().id, 2);
    }
}

#[test]
fn many_connections_come_and_go_and_nothing_is_left() {
    let hosts = Hosts::new(114);
    let listener = Listener::bind(&hosts.server, 0, 64).unwrap();
    for round in 0..100 {
        let (here, there) = hosts.connect(&listener);
        if round % 10 == 0 {
            talk(&here.end, &there.end);
        }
        drop((here, there));
    }
    for host in [1, 2] {
        let manager = nic([127, 0, 114, host]).connections().unwrap();
        crate::child::eventually("all is forgotten", || manager.census() == (0, 0, 0));
    }
}

#[test]
fn a_device_that_listened_or_asked_closes() {
    for round in 0..100 {
        let context = crate::common::open([127, 0, 140, 1]);
        let listener = Listener::bind(&context, 0, 1).unwrap();
        let end = crate::common::End::new(&context, ferroce_verbs::Service::Rc);
        let peer = ([127, 0, 140, 1], listener.port()).into();
        let asking = ferroce_verbs::cm::start_connect(peer, &end.qp, &crate::parties::patient()).unwrap();
        // In every order.
        match round % 3 {
            0 => drop((asking, end, listener, context)),
            1 => drop((context, listener, end, asking)),
            _ => drop((listener, asking, context, end)),
        }
    }
}
