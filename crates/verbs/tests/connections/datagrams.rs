//! Datagram services: from a port to a queue pair.

use std::net::{IpAddr, SocketAddr};
use std::os::fd::AsFd;
use std::time::Duration;

use ferroce_device::{now, wait_readable};
use ferroce_verbs::cm::{
    self, CmCounters, CmError, DatagramListener, DatagramPeer, DatagramService, ListenError, SidrStatus,
};
use ferroce_verbs::{AddressVector, QKey, Service};

use crate::awaited::block_on;
use crate::common::{End, SOON};
use crate::parties::{Hosts, hasty, patient};

const QKEY: QKey = QKey(0x0123_4567);

#[test]
fn a_datagram_finds_its_way_by_a_port() {
    let hosts = Hosts::new(127);
    let (here, there) = (End::new(&hosts.client, Service::Ud), End::new(&hosts.server, Service::Ud));
    here.qp.activate(QKEY).unwrap();
    there.qp.activate(QKEY).unwrap();
    let service = DatagramService::bind(&there.qp, 7174, QKEY, b"udaddy").unwrap();
    let peer = SocketAddr::new(hosts.address, service.port());
    let from: IpAddr = [127, 0, 127, 2].into();
    let found = cm::resolve(&hosts.client, from, peer, &patient()).unwrap();
    assert_eq!((found.qpn, found.qkey), (there.qp.qpn(), QKEY));
    assert_eq!((&found.private_data[..6], found.private_data.len()), (&b"udaddy"[..], 136));
    let handle = here.pd.address_handle(&AddressVector::new(found.gid, 0)).unwrap();
    there.qp.receive(there.region.slice(..100)).id(1).post().unwrap();
    here.qp.send_inline_to(&handle, found.qpn, found.qkey, b"hello").id(2).post().unwrap();
    assert_eq!(there.done().id, 1);
    assert_eq!(here.done().id, 2);
}

#[test]
fn a_service_that_is_not_there_and_a_host_that_is_not() {
    let hosts = Hosts::new(128);
    let from: IpAddr = [127, 0, 128, 2].into();
    let peer = SocketAddr::new(hosts.address, 99);
    let error = cm::resolve(&hosts.client, from, peer, &patient()).unwrap_err();
    assert_eq!(error, CmError::NotListening { peer });
    let silent = "127.0.128.9:99".parse().unwrap();
    let error = cm::resolve(&hosts.client, from, silent, &hasty()).unwrap_err();
    assert!(matches!(error, CmError::TimedOut { sent: "SIDR_REQ", .. }), "{error}");
}

#[test]
fn only_datagrams_and_only_once() {
    let hosts = Hosts::new(129);
    let connected = End::new(&hosts.server, Service::Rc);
    let error = DatagramService::bind(&connected.qp, 5, QKEY, b"").unwrap_err();
    assert!(matches!(error, ListenError::WrongService { .. }), "{error}");
    let end = End::new(&hosts.server, Service::Ud);
    let error = DatagramService::bind(&end.qp, 5, QKEY, &[0; 137]).unwrap_err();
    assert!(matches!(error, ListenError::PrivateDataTooLong { given: 137, allowed: 136 }), "{error}");
    let _first = DatagramService::bind(&end.qp, 5, QKEY, b"").unwrap();
    let error = DatagramService::bind(&end.qp, 5, QKEY, b"").unwrap_err();
    assert!(matches!(error, ListenError::Taken { port: 5, .. }), "{error}");
}

/// A program that hears of questions for a datagram service, and one that asks.
struct Asking {
    hosts: Hosts,
    end: End,
    listener: DatagramListener,
    from: IpAddr,
}

impl Asking {
    fn new(net: u8, backlog: usize) -> Self {
        let hosts = Hosts::new(net);
        let end = End::new(&hosts.server, Service::Ud);
        end.qp.activate(QKEY).unwrap();
        let listener = DatagramListener::bind(&hosts.server, 0, backlog).unwrap();
        Self { hosts, end, listener, from: [127, 0, net, 2].into() }
    }

    fn peer(&self) -> SocketAddr {
        SocketAddr::new(self.hosts.address, self.listener.port())
    }

    fn ask(&self, words: &[u8]) -> cm::Resolving {
        let options = patient().private_data(words);
        cm::start_resolve(&self.hosts.client, self.from, self.peer(), &options).unwrap()
    }

    /// Waits until the listener's device has counted so many.
    fn counted(&self, what: impl Fn(&CmCounters) -> u64, many: u64) {
        let end = now() + SOON;
        while what(&self.hosts.server.connection_counters()) < many {
            assert!(now() < end, "{:?}", self.hosts.server.connection_counters());
            std::thread::yield_now();
        }
    }

    fn check(&self, found: Result<DatagramPeer, CmError>, words: &[u8]) {
        let found = found.unwrap();
        assert_eq!((found.qpn, found.qkey), (self.end.qp.qpn(), QKEY));
        assert_eq!(&found.private_data[..words.len()], words);
    }
}

#[test]
fn a_program_that_waits_hears_of_questions_for_datagrams() {
    let asking = Asking::new(137, 8);
    let nothing = asking.listener.accept(Duration::from_millis(1));
    assert!(nothing.is_err(), "{nothing:?}");
    let asked = asking.ask(b"which one?");
    let request = asking.listener.accept(SOON).unwrap();
    assert_eq!((request.peer().ip(), request.local()), (asking.from, asking.peer()));
    assert_eq!(&request.private_data()[..10], b"which one?");
    assert_eq!(request.private_data().len(), 180);
    request.accept(&asking.end.qp, QKEY, b"this one").unwrap();
    asking.check(asked.wait(), b"this one");
    assert_eq!(asking.hosts.server.connection_counters().resolved, 1);
}

#[test]
fn a_program_that_awaits_or_polls_hears_of_questions_for_datagrams() {
    let asking = Asking::new(138, 8);
    assert!(asking.listener.try_accept().is_none());
    assert!(!wait_readable(asking.listener.as_fd(), Some(Duration::from_millis(1))).unwrap());
    let asked = asking.ask(b"");
    assert!(wait_readable(asking.listener.as_fd(), Some(SOON)).unwrap());
    let request = asking.listener.try_accept().unwrap();
    assert!(!wait_readable(asking.listener.as_fd(), Some(Duration::ZERO)).unwrap(), "nothing waits any more");
    request.accept(&asking.end.qp, QKEY, b"polled").unwrap();
    asking.check(asked.wait(), b"polled");

    // The task sleeps before the question comes, and is woken by it.
    std::thread::scope(|scope| {
        let answering = scope.spawn(|| {
            block_on(async {
                let request = asking.listener.next().await;
                request.accept(&asking.end.qp, QKEY, b"awaited").unwrap();
            });
        });
        asking.check(block_on(asking.ask(b"")), b"awaited");
        answering.join().unwrap();
    });
}

#[test]
fn questions_that_are_refused_or_dropped_and_a_listener_that_goes() {
    let asking = Asking::new(139, 8);
    let peer = asking.peer();
    let refused = asking.ask(b"");
    asking.listener.accept(SOON).unwrap().reject(b"not you").unwrap();
    let Err(CmError::Unresolved { status, private_data, .. }) = refused.wait() else { panic!("not refused") };
    assert_eq!((status, &private_data[..7]), (SidrStatus::REJECTED, &b"not you"[..]));
    let dropped = asking.ask(b"");
    drop(asking.listener.accept(SOON).unwrap());
    let error = dropped.wait().unwrap_err();
    assert!(matches!(error, CmError::Unresolved { status: SidrStatus::REJECTED, .. }), "{error}");
    // What cannot be told is refused.
    let wrong = asking.ask(b"");
    let connected = End::new(&asking.hosts.server, Service::Rc);
    let error = asking.listener.accept(SOON).unwrap().accept(&connected.qp, QKEY, b"").unwrap_err();
    assert!(matches!(error, CmError::WrongService { .. }), "{error}");
    assert!(wrong.wait().is_err());

    let taken = DatagramService::bind(&asking.end.qp, asking.listener.port(), QKEY, b"").unwrap_err();
    assert!(matches!(taken, ListenError::Taken { .. }), "{taken}");
    let Asking { hosts, listener, from, .. } = asking;
    drop(listener);
    let error = cm::resolve(&hosts.client, from, peer, &patient()).unwrap_err();
    assert_eq!(error, CmError::NotListening { peer });
}

#[test]
fn a_full_listener_for_datagrams_hears_of_those_that_ask_again() {
    let asking = Asking::new(140, 1);
    // More than may wait: those that find no room ask again, until there is.
    let asked: Vec<cm::Resolving> = (0..5).map(|_| asking.ask(b"")).collect();
    asking.counted(|counters| counters.backlog_full, 4);
    for _ in 0..5 {
        asking.listener.accept(SOON).unwrap().accept(&asking.end.qp, QKEY, b"").unwrap();
    }
    for asked in asked {
        asking.check(asked.wait(), b"");
    }
}

#[test]
fn a_question_that_is_asked_again_is_heard_once() {
    let asking = Asking::new(141, 8);
    let options = cm::CmOptions { response_timeout: Duration::from_millis(200), ..patient() };
    let asked = cm::start_resolve(&asking.hosts.client, asking.from, asking.peer(), &options).unwrap();
    let request = asking.listener.accept(SOON).unwrap();
    asking.counted(|counters| counters.received, 4);
    assert!(asking.listener.try_accept().is_none(), "the program thinks about it");
    request.accept(&asking.end.qp, QKEY, b"at last").unwrap();
    asking.check(asked.wait(), b"at last");
}
