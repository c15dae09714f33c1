//! Datagram services: from a port to a queue pair.

use std::net::{IpAddr, SocketAddr};

use ferroce_verbs::cm::{self, CmError, DatagramService, ListenError};
use ferroce_verbs::{AddressVector, QKey, Service};

use crate::common::End;
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
    let nobody = "127.0.128.9:99".parse().unwrap();
    let error = cm::resolve(&hosts.client, from, nobody, &hasty()).unwrap_err();
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
