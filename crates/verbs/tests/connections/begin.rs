//! How connections begin.

use std::time::Duration;

use ferroce_verbs::cm::{self, CmOptions, ListenError, Listener, RejectReason, ServiceId};
use ferroce_verbs::{ConnectOptions, Context, FaultPlan, Service, State};

use crate::child::let_pass;
use crate::common::{End, SOON, open};
use crate::parties::{Hosts, patient, talk};

#[test]
fn two_hosts_connect_talk_and_know_each_other() {
    let hosts = Hosts::new(101);
    let listener = Listener::bind(&hosts.server, 0, 8).unwrap();
    assert_ne!(listener.port(), 0, "a free one");
    for service in [Service::Rc, Service::Uc] {
        let (asking, asked) = (patient().private_data(b"let me in"), patient().private_data(b"come in"));
        let (here, there) = hosts.connect_with(&listener, service, &asking, &asked);
        assert_eq!(&here.link.private_data()[..7], b"come in");
        assert_eq!(&there.link.private_data()[..9], b"let me in");
        assert_eq!((here.link.private_data().len(), there.link.private_data().len()), (196, 56));
        assert_eq!(here.link.peer(), hosts.at(&listener));
        assert_eq!(there.link.peer(), here.link.local());
        assert_eq!((here.end.qp.state(), there.end.qp.state()), (State::Rts, State::Rts));
        // Each side has named what it expects first.
        let (ours, theirs) = (here.end.qp.local_address().psn, there.end.qp.local_address().psn);
        assert_eq!(here.end.qp.query().unwrap().attributes.rq_psn, ours);
        assert_eq!(there.end.qp.query().unwrap().attributes.rq_psn, theirs);
        talk(&here.end, &there.end);
        assert_eq!((here.link.disconnected(), there.link.disconnected()), (None, None));
    }
    let counters = hosts.server.connection_counters();
    assert_eq!((counters.established, counters.rejected), (2, 0), "{counters:?}");
}

#[test]
fn each_side_takes_what_the_other_can_do() {
    let hosts = Hosts::new(102);
    let listener = Listener::bind(&hosts.server, 7174, 8).unwrap();
    let depths = |ours, theirs| {
        let qp =
            ConnectOptions { max_rd_atomic: ours, max_dest_rd_atomic: theirs, ..ConnectOptions::default() };
        patient().qp(qp)
    };
    let (here, there) = hosts.connect_with(&listener, Service::Rc, &depths(7, 3), &depths(5, 4));
    assert_eq!((here.link.initiator_depth(), here.link.responder_resources()), (4, 3));
    assert_eq!((there.link.initiator_depth(), there.link.responder_resources()), (3, 4));
    let (ours, theirs) = (here.end.qp.query().unwrap(), there.end.qp.query().unwrap());
    assert_eq!((ours.attributes.max_rd_atomic, ours.attributes.max_dest_rd_atomic), (4, 3));
    assert_eq!((theirs.attributes.max_rd_atomic, theirs.attributes.max_dest_rd_atomic), (3, 4));
    let region = there.end.region.remote();
    here.end.qp.read(here.end.region.slice(..100), region.slice(..100)).post().unwrap();
    here.end.done();
}

#[test]
fn a_request_tells_what_is_wanted() {
    let hosts = Hosts::new(103);
    let listener = Listener::bind(&hosts.server, 0, 8).unwrap();
    let end = End::new(&hosts.client, Service::Uc);
    let mut options = patient().private_data(b"x");
    options.qp.max_rd_atomic = 2;
    let asking = cm::start_connect(hosts.at(&listener), &end.qp, &options).unwrap();
    let request = listener.accept(SOON).unwrap();
    assert_eq!(request.peer().ip(), std::net::IpAddr::from([127, 0, 103, 2]));
    assert_eq!(request.local(), hosts.at(&listener));
    assert_eq!((request.service(), request.initiator_depth()), (Service::Uc, 2));
    assert_eq!(request.private_data().len(), 56);
    assert!(request.is_pending());
    drop((asking, request));
}

#[test]
fn one_device_connects_to_itself() {
    let context = open([127, 0, 104, 1]);
    let listener = Listener::bind(&context, 0, 8).unwrap();
    let hosts = Hosts { server: context.clone(), client: context, address: [127, 0, 104, 1].into() };
    let (here, there) = hosts.connect(&listener);
    talk(&here.end, &there.end);
}

#[test]
fn ipv6_is_no_different() {
    let context = Context::builder("lo").address(std::net::Ipv6Addr::LOCALHOST).open().unwrap();
    let listener = Listener::bind(&context, 0, 8).unwrap();
    let address = std::net::Ipv6Addr::LOCALHOST.into();
    let hosts = Hosts { server: context.clone(), client: context, address };
    let (here, there) = hosts.connect(&listener);
    assert_eq!(here.link.peer(), hosts.at(&listener));
    assert_eq!(there.link.peer(), here.link.local());
    talk(&here.end, &there.end);
}

#[test]
fn an_address_among_many_of_a_device_is_the_one_that_answers() {
    // Of all addresses of the interface, the one that was asked must be the one that packets come from.
    let hosts = Hosts::new(105);
    let listener = Listener::bind(&hosts.server, 0, 8).unwrap();
    let (here, there) = hosts.connect(&listener);
    let address = there.end.qp.query().unwrap().address.unwrap();
    assert_eq!(address.gid.ip(), std::net::IpAddr::from([127, 0, 105, 2]));
    talk(&here.end, &there.end);
}

#[test]
fn a_port_has_one_listener() {
    let context = open([127, 0, 106, 1]);
    let first = Listener::bind(&context, 700, 1).unwrap();
    match Listener::bind(&context, 700, 1) {
        Err(ListenError::Taken { port: 700, pid, .. }) => assert_eq!(pid, std::process::id()),
        other => panic!("{other:?}"),
    }
    let other = Listener::bind(&context, 701, 1).unwrap();
    drop(first);
    let again = Listener::bind(&context, 700, 1).unwrap();
    assert_eq!((again.port(), other.port()), (700, 701));
    let service = Listener::bind_service(&context, ServiceId(0xfe00_0000_0000_0001), 1).unwrap();
    assert_eq!((service.port(), service.service()), (0, ServiceId(0xfe00_0000_0000_0001)));
}

#[test]
fn messages_are_lost_and_connections_come_about() {
    let faulty = |end: u8| {
        let plan = FaultPlan { loss: 0.3, dup: 0.2, seed: end.into(), ..FaultPlan::default() };
        Context::builder("lo").address([127, 0, 107, end]).faults(plan).open().unwrap()
    };
    let hosts = Hosts { server: faulty(1), client: faulty(2), address: [127, 0, 107, 1].into() };
    let listener = Listener::bind(&hosts.server, 0, 8).unwrap();
    let options = CmOptions { response_timeout: Duration::from_millis(20), ..patient() };
    for _ in 0..30 {
        let (here, there) = hosts.connect_with(&listener, Service::Rc, &options, &options);
        here.link.disconnect();
        here.link.wait_disconnected(SOON).unwrap();
        there.link.wait_disconnected(SOON).unwrap();
    }
    let (ours, theirs) = (hosts.client.connection_counters(), hosts.server.connection_counters());
    assert!(ours.repeated > 5 && theirs.duplicates > 0, "{ours:?} {theirs:?}");
}

#[test]
fn a_queue_pair_can_be_used_again() {
    let hosts = Hosts::new(108);
    let listener = Listener::bind(&hosts.server, 0, 8).unwrap();
    let end = End::new(&hosts.client, Service::Rc);
    let asking = cm::start_connect(hosts.at(&listener), &end.qp, &patient()).unwrap();
    listener.accept(SOON).unwrap().reject_with(RejectReason::NO_QP, b"").unwrap();
    asking.wait().unwrap_err();
    assert_eq!(end.qp.state(), State::Init, "nothing happened to it");
    for _ in 0..3 {
        let there = End::new(&hosts.server, Service::Rc);
        let connected = std::thread::scope(|scope| {
            let serves =
                scope.spawn(|| listener.accept(SOON).unwrap().accept(&there.qp, &patient()).unwrap());
            // Right after a connection its peer still remembers the queue pair: that passes.
            let connected = loop {
                match cm::connect(hosts.at(&listener), &end.qp, &patient()) {
                    Err(cm::CmError::Stale { .. }) => let_pass(Duration::from_millis(20)),
                    other => break other.unwrap(),
                }
            };
            (connected, serves.join().unwrap())
        });
        talk(&end, &there);
        drop(connected);
        end.qp.reset().unwrap();
    }
}
