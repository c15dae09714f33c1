//! How connections come to nothing: every call returns within its limit, with the cause.

use std::net::SocketAddr;
use std::time::Duration;

use ferroce_device::now;
use ferroce_verbs::cm::{self, CmError, Listener, RejectReason};
use ferroce_verbs::{Service, State, WaitError};

use crate::child::eventually;
use crate::common::{End, SOON, connect, open};
use crate::parties::{Hosts, hasty, patient};

#[test]
fn a_port_without_a_listener_is_known_at_once() {
    let hosts = Hosts::new(115);
    let peer = SocketAddr::new(hosts.address, 4242);
    let error = hosts.attempt(4242, &patient()).unwrap_err();
    assert_eq!(error, CmError::NotListening { peer });
    assert_eq!(
        error.to_string(),
        "no program listens on 127.0.115.1:4242; start the server, or look at the port"
    );
    // Also if that process has listeners for something else.
    let _other = Listener::bind(&hosts.server, 4243, 1).unwrap();
    assert_eq!(hosts.attempt(4242, &patient()).unwrap_err(), error);
}

#[test]
fn no_device_is_there() {
    let client = open([127, 0, 116, 2]);
    let end = End::new(&client, Service::Rc);
    let peer: SocketAddr = "127.0.116.1:4242".parse().unwrap();
    let before = now();
    let error = cm::connect(peer, &end.qp, &hasty().timeout(SOON)).unwrap_err();
    assert!(matches!(error, CmError::TimedOut { sent: "REQ", attempts: 4, .. }), "{error}");
    assert!(error.is_passing());
    assert!(now().since(before) < SOON);
    assert_eq!(end.qp.state(), State::Init, "it can be tried again");
    // The limit of the whole attempt counts, however often it would be tried.
    let options = cm::CmOptions { retries: 15, ..hasty().timeout(Duration::from_millis(120)) };
    let error = cm::connect(peer, &end.qp, &options).unwrap_err();
    assert!(matches!(error, CmError::TimedOut { attempts: 1..=3, .. }), "{error}");
}

#[test]
fn there_is_no_way() {
    let client = open([127, 0, 117, 2]);
    let end = End::new(&client, Service::Rc);
    let error = cm::connect("[::1]:4242".parse().unwrap(), &end.qp, &hasty()).unwrap_err();
    assert!(matches!(error, CmError::Family { .. }), "{error}");
    // The system refuses to send to the broadcast address.
    let error = cm::connect("255.255.255.255:4242".parse().unwrap(), &end.qp, &patient()).unwrap_err();
    assert!(matches!(error, CmError::Unreachable { .. }), "{error}");
}

#[test]
fn a_server_refuses_and_says_why() {
    let hosts = Hosts::new(118);
    let listener = Listener::bind(&hosts.server, 0, 8).unwrap();
    let end = End::new(&hosts.client, Service::Rc);
    let asking = cm::start_connect(hosts.at(&listener), &end.qp, &patient()).unwrap();
    listener.accept(SOON).unwrap().reject(b"members only").unwrap();
    let peer = hosts.at(&listener);
    match asking.wait().unwrap_err() {
        CmError::Refused { peer: by, reason, private_data } => {
            assert_eq!((by, reason), (peer, RejectReason::CONSUMER));
            assert_eq!((&private_data[..12], private_data.len()), (&b"members only"[..], 148));
        }
        other => panic!("{other}"),
    }
    // A request that is dropped is refused too.
    let asking = cm::start_connect(peer, &end.qp, &patient()).unwrap();
    drop(listener.accept(SOON).unwrap());
    assert!(matches!(asking.wait(), Err(CmError::Refused { reason: RejectReason::CONSUMER, .. })));
    // And what waits in a listener that is dropped.
    let asking = cm::start_connect(peer, &end.qp, &patient()).unwrap();
    eventually("the request waits", || hosts.server.connection_counters().received >= 3);
    drop(listener);
    let error = asking.wait().unwrap_err();
    assert!(matches!(error, CmError::Refused { .. } | CmError::NotListening { .. }), "{error}");
}

#[test]
fn a_full_backlog_is_told() {
    let hosts = Hosts::new(119);
    let listener = Listener::bind(&hosts.server, 0, 2).unwrap();
    let ends: Vec<_> = (0..3).map(|_| End::new(&hosts.client, Service::Rc)).collect();
    let mut asking: Vec<_> =
        ends.iter().map(|end| cm::start_connect(hosts.at(&listener), &end.qp, &patient()).unwrap()).collect();
    let error = asking.pop().unwrap().wait().unwrap_err();
    assert_eq!(error, CmError::Busy { peer: hosts.at(&listener) });
    assert!(error.is_passing());
    assert_eq!(hosts.server.connection_counters().backlog_full, 1);
    // Those that came before are served.
    for waits in asking {
        let end = End::new(&hosts.server, Service::Rc);
        let accepted = listener.accept(SOON).unwrap().start_accept(&end.qp, &patient()).unwrap();
        drop((waits.wait().unwrap(), accepted.wait().unwrap()));
    }
}

#[test]
fn a_client_that_gives_up_is_not_served() {
    let hosts = Hosts::new(120);
    let listener = Listener::bind(&hosts.server, 0, 8).unwrap();
    let end = End::new(&hosts.client, Service::Rc);
    let asking = cm::start_connect(hosts.at(&listener), &end.qp, &patient()).unwrap();
    let request = listener.accept(SOON).unwrap();
    asking.cancel();
    eventually("it is known here", || !request.is_pending());
    let there = End::new(&hosts.server, Service::Rc);
    let error = request.start_accept(&there.qp, &patient()).map(drop).unwrap_err();
    assert!(matches!(error, CmError::Withdrawn { .. }), "{error}");
    // One that is still in the listener is not even seen.
    let asking = cm::start_connect(hosts.at(&listener), &end.qp, &patient()).unwrap();
    eventually("it came", || hosts.server.connection_counters().received >= 3);
    asking.cancel();
    eventually("it went", || hosts.server.connection_counters().withdrawn == 2);
    assert!(listener.try_accept().is_none());
    assert!(matches!(listener.accept(Duration::from_millis(5)), Err(WaitError::TimedOut(_))));
}

#[test]
fn a_slow_server_is_waited_for() {
    let hosts = Hosts::new(121);
    let listener = Listener::bind(&hosts.server, 0, 8).unwrap();
    let end = End::new(&hosts.client, Service::Rc);
    // Sixteen times this is less than the server takes: the receipts keep it alive.
    let options = cm::CmOptions { response_timeout: Duration::from_millis(150), ..patient() };
    let asking = cm::start_connect(hosts.at(&listener), &end.qp, &options).unwrap();
    let request = listener.accept(SOON).unwrap();
    eventually("it asked again", || hosts.server.connection_counters().duplicates >= 1);
    crate::child::let_pass(Duration::from_millis(16 * 150 + 100));
    let there = End::new(&hosts.server, Service::Rc);
    let accepted = request.accept(&there.qp, &patient()).unwrap();
    drop((asking.wait().unwrap(), accepted));
}

#[test]
fn what_does_not_fit_is_refused_before_anything_is_sent() {
    let hosts = Hosts::new(122);
    let listener = Listener::bind(&hosts.server, 0, 8).unwrap();
    let at = hosts.at(&listener);
    let end = End::new(&hosts.client, Service::Rc);
    let error = cm::start_connect(at, &end.qp, &patient().private_data(&[1; 57])).map(drop).unwrap_err();
    assert_eq!(error, CmError::PrivateDataTooLong { given: 57, allowed: 56 });
    let datagrams = End::new(&hosts.client, Service::Ud);
    let error = cm::start_connect(at, &datagrams.qp, &patient()).map(drop).unwrap_err();
    assert!(matches!(error, CmError::WrongService { .. }), "{error}");
    let (one, other) = (End::new(&hosts.client, Service::Rc), End::new(&hosts.client, Service::Rc));
    connect(&one.qp, &other.qp);
    let error = cm::start_connect(at, &one.qp, &patient()).map(drop).unwrap_err();
    assert!(matches!(error, CmError::QueuePair { .. }), "{error}");
    assert_eq!(hosts.client.connection_counters().sent, 0);

    for wrong in [End::new(&hosts.server, Service::Uc), End::new(&hosts.client, Service::Rc)] {
        let asking = cm::start_connect(at, &end.qp, &patient()).unwrap();
        let request = listener.accept(SOON).unwrap();
        let error = request.start_accept(&wrong.qp, &patient()).map(drop).unwrap_err();
        assert!(matches!(error, CmError::WrongService { .. } | CmError::OtherDevice { .. }), "{error}");
        assert!(matches!(asking.wait(), Err(CmError::Refused { .. })));
    }
    let asking = cm::start_connect(at, &end.qp, &patient()).unwrap();
    let there = End::new(&hosts.server, Service::Rc);
    let long = patient().private_data(&[1; 197]);
    let error = listener.accept(SOON).unwrap().start_accept(&there.qp, &long).map(drop).unwrap_err();
    assert_eq!(error, CmError::PrivateDataTooLong { given: 197, allowed: 196 });
    asking.wait().unwrap_err();
    let asking = cm::start_connect(at, &end.qp, &patient()).unwrap();
    let error = listener.accept(SOON).unwrap().reject(&[1; 149]).unwrap_err();
    assert_eq!(error, CmError::PrivateDataTooLong { given: 149, allowed: 148 });
    asking.wait().unwrap_err();
}

#[test]
fn a_queue_pair_that_goes_during_the_handshake_is_missed_by_both() {
    let hosts = Hosts::new(123);
    let listener = Listener::bind(&hosts.server, 0, 8).unwrap();
    let end = End::new(&hosts.client, Service::Rc);
    let asking = cm::start_connect(hosts.at(&listener), &end.qp, &patient()).unwrap();
    drop(end);
    let there = End::new(&hosts.server, Service::Rc);
    let accepted = listener.accept(SOON).unwrap().start_accept(&there.qp, &patient()).unwrap();
    assert!(matches!(asking.wait(), Err(CmError::QueuePair { .. })));
    assert!(matches!(accepted.wait(), Err(CmError::Refused { .. })));
    assert_eq!(there.qp.state(), State::Err);
}
