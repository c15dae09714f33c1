//! An attacker that wants no connections, but to do harm: other peers are not disturbed.

use std::net::IpAddr;

use ferroce_testkit::shared_port::beside_a_device;
use ferroce_verbs::cm::{self, Listener, ServiceId};
use ferroce_verbs::{Context, Service};
use ferroce_wire::header::Deth;
use ferroce_wire::mad::{
    CmMad, CmMessage, CommId, Dreq, IpCmHeader, IpPair, Mra, PortSpace, Rej, Rep, Req, ReqPath, Rtu,
};
use ferroce_wire::{Body, Datagram, Flow, Packet, PathMtu, Psn, QKey, Qpn};

use crate::child::eventually;
use crate::common::{SOON, nic, open};
use crate::parties::{Hosts, patient, talk};

/// An address from which anything is sent.
struct Attacker {
    context: Context,
    from: IpAddr,
    to: IpAddr,
}

impl Attacker {
    fn new(net: u8, to: IpAddr) -> Self {
        let from = [127, 0, net, 66];
        Self { context: open(from), from: from.into(), to }
    }

    fn send(&self, bytes: &[u8; CmMad::LEN]) {
        // A full socket loses it, as any network may.
        let _ = cm::send_mad(&self.context, self.from, self.to, bytes);
    }

    fn say(&self, message: impl Into<CmMessage>) {
        let mut bytes = [0; CmMad::LEN];
        CmMad::new(1, message).emit(&mut bytes);
        self.send(&bytes);
    }

    fn request(&self, port: u16, number: u32) -> Req {
        request((self.from, self.to), port, number)
    }
}

/// A request that nothing is wrong with.
fn request((from, to): (IpAddr, IpAddr), port: u16, number: u32) -> Req {
    let pair = IpPair::new(from, to).unwrap();
    Req {
        local_comm_id: CommId(number),
        service_id: ServiceId::rdma_ip(PortSpace::Tcp, port),
        local_qpn: Qpn::new(0x100 + number),
        path_mtu: PathMtu::B1024.code(),
        max_cm_retries: 15,
        primary: ReqPath { local_gid: from.into(), remote_gid: to.into(), ..ReqPath::default() },
        private_data: IpCmHeader::new(1, pair).private_data(b"").unwrap(),
        ..Req::default()
    }
}

#[test]
fn a_flood_of_requests_is_bounded_and_others_come_through() {
    let hosts = Hosts::new(130);
    let listener = Listener::bind(&hosts.server, 0, 1024).unwrap();
    let attacker = Attacker::new(130, hosts.address);
    let manager = nic([127, 0, 130, 1]).connections().unwrap();
    let counters = || hosts.server.connection_counters();
    // So many that one address has taken all it may have, and more have come in vain.
    let mut number = 0;
    eventually("one address has all that it may have", || {
        for _ in 0..200 {
            number += 1;
            attacker.say(attacker.request(listener.port(), number));
        }
        counters().source_full > 1000 || counters().backlog_full > 1000
    });
    let (open, half_open, remembered) = manager.census();
    assert!(open <= 1024 && half_open <= 1024 && remembered <= 4096, "{open} {half_open} {remembered}");
    // The program clears the backlog, and serves a peer that wants a connection.
    while let Some(request) = listener.try_accept() {
        if request.peer().ip() == attacker.from {
            request.reject(b"").unwrap_or_default();
        }
    }
    let (here, there) = hosts.connect(&listener);
    talk(&here.end, &there.end);
    let (_, _, remembered) = manager.census();
    assert!(remembered <= 4096, "{remembered}");
}

#[test]
fn messages_that_make_no_sense_end_nothing() {
    let hosts = Hosts::new(131);
    let listener = Listener::bind(&hosts.server, 0, 1024).unwrap();
    let (here, there) = hosts.connect(&listener);
    let attacker = Attacker::new(131, hosts.address);
    let before = (hosts.server.connection_counters(), hosts.server.counters());
    let slot = nic([127, 0, 131, 1]).communication_id(0);
    for guess in 0..500_u32 {
        let remote_comm_id = CommId(slot | guess);
        let local_comm_id = CommId(guess);
        attacker.say(Dreq {
            local_comm_id,
            remote_comm_id,
            remote_qpn: there.end.qp.qpn(),
            ..Dreq::default()
        });
        attacker.say(Rej { local_comm_id, remote_comm_id, ..Rej::default() });
        attacker.say(Rep { local_comm_id, remote_comm_id, ..Rep::default() });
        attacker.say(Rtu { local_comm_id, remote_comm_id, ..Rtu::default() });
        attacker.say(Mra { local_comm_id, remote_comm_id, ..Mra::default() });
        attacker.say(Rej { local_comm_id, ..Rej::default() });
        let mut spoilt = [0; CmMad::LEN];
        CmMad::new(1, attacker.request(listener.port(), guess)).emit(&mut spoilt);
        spoilt[usize::try_from(guess).unwrap() % 24] ^= 0xa5;
        attacker.send(&spoilt);
        let mut req = attacker.request(listener.port(), guess);
        req.path_mtu = 9;
        attacker.say(req);
    }
    eventually("they were seen", || {
        let (ours, device) = (hosts.server.connection_counters(), hosts.server.counters());
        ours.unknown > before.0.unknown
            && ours.invalid > before.0.invalid
            && device.mads_unclaimed > before.1.mads_unclaimed
    });
    assert_eq!((here.link.disconnected(), there.link.disconnected()), (None, None));
    talk(&here.end, &there.end);
    let (_here, _there) = hosts.connect(&listener);
}

/// It was: a REQ that named the queue pair of a connected peer, from its address, ended the connection.
#[test]
fn a_stranger_that_names_the_queue_pair_of_a_peer_ends_nothing() {
    for service in [Service::Rc, Service::Uc] {
        let hosts = Hosts::new(133);
        let listener = Listener::bind(&hosts.server, 0, 1024).unwrap();
        let (here, there) = hosts.connect_with(&listener, service, &patient(), &patient());
        let from = here.link.local().ip();
        // From the port that devices send from, as on a network every port would do.
        let socket = beside_a_device((from, 4791).into());
        let flow = Flow::new((from, 4791).into(), (hosts.address, 4791).into()).unwrap();
        let claims = 20;
        for number in 0..claims {
            let request = request((from, hosts.address), listener.port(), number);
            let req = Req { local_qpn: here.end.qp.qpn(), ..request };
            let mut mad = [0; CmMad::LEN];
            CmMad::new(1, req).emit(&mut mad);
            let deth = Deth { qkey: QKey::GSI, source_qp: Qpn::GSI };
            let body = Body::Ud(Datagram { deth, imm: None, payload: &mad[..] });
            let packet = Packet::new(Qpn::GSI, Psn::new(0), body);
            let mut bytes = vec![0; packet.len()];
            packet.emit(&flow, 0, &mut bytes).unwrap();
            socket.send_to(&bytes, (hosts.address, 4791)).unwrap();
            eventually("the claim was refuted", || {
                let counters = hosts.server.connection_counters();
                counters.stale == u64::from(number) + 1 && counters.stale_refuted == counters.stale
            });
        }
        assert_eq!((here.link.disconnected(), there.link.disconnected()), (None, None));
        if service == Service::Rc {
            talk(&here.end, &there.end);
        }
        assert_eq!(hosts.server.connection_counters().ended, 0);
    }
}

#[test]
fn a_request_from_a_wrong_address_is_not_connected_to_another_peer() {
    let hosts = Hosts::new(132);
    let listener = Listener::bind(&hosts.server, 0, 8).unwrap();
    let attacker = Attacker::new(132, hosts.address);
    let mut req = attacker.request(listener.port(), 1);
    // The client's address in the path: the server's packets would go there.
    req.primary.local_gid = IpAddr::from([127, 0, 132, 2]).into();
    attacker.say(req);
    eventually("it is refused", || hosts.server.connection_counters().invalid == 1);
    assert!(listener.try_accept().is_none());
    let (here, there) = hosts.connect_with(&listener, Service::Rc, &patient(), &patient());
    talk(&here.end, &there.end);
    drop(here.link);
    there.link.wait_disconnected(SOON).unwrap();
}
