//! Connection management against the Linux kernel's own messages, and against chance.

use std::collections::BTreeMap;
use std::net::Ipv4Addr;

use ferroce_testkit::captures::{self, Capture};
use ferroce_wire::describe::{Describe, Value, Visitor};
use ferroce_wire::mad::{
    AnswerTo, CmMad, CmMessage, CommId, Failover, IpCmHeader, IpPair, MadHeader, Mra, PortSpace,
    RejectReason, Req, ReqPath, ServiceId, SidrStatus, Timeout, TransportService,
};
use ferroce_wire::{Frame, PKey, ParseError, PathMtu, Psn, QKey, Qpn};
use proptest::prelude::*;

#[path = "cm/strategies.rs"]
mod strategies;
use strategies::{any_bytes, ip_cm_header, mad};

// What Linux sends.

#[test]
fn every_captured_message_comes_back_byte_for_byte() {
    let mut seen = BTreeMap::new();
    for capture in captures::linux_rxe() {
        for bytes in mads(&capture) {
            let mad = parsed(&bytes);
            assert_eq!(emitted(&mad), bytes, "{} in {}", mad.message.name(), capture.name);
            *seen.entry(mad.message.name()).or_insert(0) += 1;
        }
    }
    let at_least = [
        ("REQ", 11),
        ("REP", 6),
        ("RTU", 6),
        ("REJ", 2),
        ("DREQ", 6),
        ("DREP", 6),
        ("SIDR_REQ", 1),
        ("SIDR_REP", 1),
    ];
    for (kind, least) in at_least {
        let count = seen.get(kind).copied().unwrap_or(0);
        assert!(count >= least, "only {count} {kind} in the captures, {least} expected");
    }
}

#[test]
fn rping_asks_as_rdma_cm_does() {
    let (server, client) = (Ipv4Addr::new(10, 77, 0, 2), Ipv4Addr::new(10, 77, 0, 3));
    let all = messages("rping");
    let [
        CmMessage::Req(req),
        CmMessage::Rep(rep),
        CmMessage::Rtu(rtu),
        CmMessage::Dreq(dreq),
        CmMessage::Drep(drep),
    ] = all[..]
    else {
        panic!("not one connection from beginning to end: {all:?}");
    };

    assert_eq!(req.service_id.as_rdma_ip(), Some((PortSpace::Tcp, 7174)));
    assert_eq!(req.local_ca_guid, 0x5054_00ff_fe77_0003);
    assert_eq!((req.local_qpn, req.starting_psn), (Qpn::new(0x17), Psn::new(0xa4_a0b7)));
    assert_eq!((req.responder_resources, req.initiator_depth), (1, 1));
    assert_eq!(req.transport_service, TransportService::Rc);
    assert_eq!(req.mtu(), Some(PathMtu::B1024));
    assert_eq!((req.retry_count, req.rnr_retry_count, req.max_cm_retries), (7, 7, 15));
    assert_eq!(req.remote_cm_response_timeout, Timeout::new(0x14));
    assert_eq!(req.local_cm_response_timeout, Timeout::new(0x14));
    assert_eq!(req.pkey, PKey::DEFAULT);
    let primary = ReqPath {
        local_lid: ReqPath::ROCE_LID,
        remote_lid: ReqPath::ROCE_LID,
        local_gid: client.into(),
        remote_gid: server.into(),
        flow_label: 0x6c1c0,
        hop_limit: 64,
        local_ack_timeout: Timeout::new(0x13),
        ..ReqPath::default()
    };
    assert_eq!(req.primary, primary);
    assert!(!req.alternate.is_present());
    let (header, consumer) = req.ip().unwrap();
    assert_eq!(header, IpCmHeader::new(0xbb06, IpPair::V4 { source: client, destination: server }));
    assert_eq!(consumer, [0; 56]);

    assert_eq!((rep.local_qpn, rep.starting_psn), (Qpn::new(0x17), Psn::new(0x39_d2dc)));
    assert_eq!((rep.target_ack_delay, rep.rnr_retry_count), (Timeout::new(15), 7));
    assert_eq!(rep.failover, Failover::Accepted);
    assert_eq!(rep.local_ca_guid, 0x5054_00ff_fe77_0002);
    assert_eq!(dreq.remote_qpn, rep.local_qpn);

    let (requester, replier) = (req.local_comm_id, rep.local_comm_id);
    assert_eq!((requester, replier), (CommId(0x9062_f52e), CommId(0x0408_ba35)));
    assert_eq!(rep.remote_comm_id, requester);
    assert_eq!((rtu.local_comm_id, rtu.remote_comm_id), (requester, replier));
    assert_eq!((dreq.local_comm_id, dreq.remote_comm_id), (requester, replier));
    assert_eq!((drep.local_comm_id, drep.remote_comm_id), (replier, requester));
}

#[test]
fn a_large_link_gives_a_large_path_mtu() {
    let CmMessage::Req(req) = messages("mtu9000/rping")[0] else { panic!("no REQ first") };
    assert_eq!(req.mtu(), Some(PathMtu::B4096));
}

#[test]
fn a_service_without_a_listener_is_reason_8() {
    let all = messages("cm_reject");
    let [CmMessage::Req(req), CmMessage::Rej(rej)] = all[..] else { panic!("{all:?}") };
    assert_eq!(rej.reason, RejectReason::INVALID_SERVICE_ID);
    assert_eq!(rej.message, AnswerTo::Req);
    assert_eq!((rej.local_comm_id, rej.remote_comm_id), (CommId(0), req.local_comm_id));
}

#[test]
fn udaddy_finds_a_queue_pair_and_its_key() {
    let all = messages("udaddy");
    let [CmMessage::SidrReq(request), CmMessage::SidrRep(reply)] = all[..] else { panic!("{all:?}") };
    assert_eq!(request.service_id, ServiceId::rdma_ip(PortSpace::Udp, 7174));
    assert_eq!(request.pkey, PKey::DEFAULT);
    assert_eq!(request.ip().unwrap().0.source_port, 0xbfd1);
    assert_eq!(reply.request_id, request.request_id);
    assert_eq!(reply.status, SidrStatus::VALID);
    assert_eq!(reply.service_id, request.service_id);
    assert_eq!((reply.qpn, reply.qkey), (Qpn::new(0x19), QKey(0x0123_4567)));
}

#[test]
fn descriptions_account_for_every_byte_and_every_key_is_used_once() {
    let kinds =
        captures::linux_rxe().into_iter().flat_map(|capture| mads(&capture)).map(|bytes| parsed(&bytes));
    for mad in kinds.chain([CmMad::new(1, Mra::default())]) {
        let mut told = Told::default();
        mad.describe(&mut told).unwrap();
        assert_eq!(told.headers.values().sum::<usize>(), CmMad::LEN, "{}", mad.message.name());
        assert!(told.headers.contains_key("mad"));
    }
}

#[test]
fn what_a_request_says_can_be_read() {
    let mut told = Told::default();
    parsed(&mads(&captures::named("rping"))[0]).describe(&mut told).unwrap();
    let headers: Vec<_> = told.headers.keys().copied().collect();
    assert_eq!(
        headers,
        ["cm.req", "cm.req.alternate", "cm.req.ip", "cm.req.primary", "cm.req.private", "mad"]
    );
    let expected = [
        ("mad.class", "Communication Management (0x07)"),
        ("mad.attribute_id", "REQ (0x0010)"),
        ("mad.transaction_id", "0x000000022ef56290"),
        ("cm.req.service_id", "0x0000000001061c06"),
        ("cm.req.transport_service", "Reliable Connection (0x0)"),
        ("cm.req.starting_psn", "0xa4a0b7"),
        ("cm.req.path_mtu", "1024 (0x3)"),
        ("cm.req.primary.remote_gid", "::ffff:10.77.0.2"),
        ("cm.req.primary.flow_label", "0x6c1c0"),
        ("cm.req.primary.local_ack_timeout", "19"),
        ("cm.req.ip.source_port", "47878"),
        ("cm.req.ip.destination_ip", "10.77.0.2"),
        ("cm.req.private.private_data", ""),
    ];
    for (key, value) in expected {
        assert_eq!(told.fields.get(key).map(String::as_str), Some(value), "{key}");
    }
}

/// Remembers what a description said.
#[derive(Default)]
struct Told {
    current: &'static str,
    headers: BTreeMap<&'static str, usize>,
    fields: BTreeMap<String, String>,
}

impl Visitor for Told {
    fn header(&mut self, key: &'static str, _: &'static str, len: usize) -> std::fmt::Result {
        assert_eq!(self.headers.insert(key, len), None, "{key} twice");
        self.current = key;
        Ok(())
    }

    fn field(&mut self, key: &'static str, _: &'static str, value: Value<'_>) -> std::fmt::Result {
        let key = format!("{}.{key}", self.current);
        assert_eq!(self.fields.insert(key.clone(), value.to_string()), None, "{key} twice");
        Ok(())
    }

    fn data(&mut self, _: usize, _: &[u8]) -> std::fmt::Result {
        panic!("every byte of a CM message belongs to a field");
    }
}

/// The messages of one capture, without the copies that were sent again.
fn messages(name: &str) -> Vec<CmMessage> {
    let mut all: Vec<_> = mads(&captures::named(name)).iter().map(|bytes| parsed(bytes).message).collect();
    all.dedup();
    all
}

/// The payloads of SENDs to queue pair 1 in a capture.
fn mads(capture: &Capture) -> Vec<[u8; CmMad::LEN]> {
    let to_gsi = |bytes| {
        let packet = Frame::parse_ethernet(bytes).expect("a RoCEv2 frame").packet;
        (packet.dest_qp == Qpn::GSI).then(|| packet.payload().try_into().expect("256 bytes"))
    };
    capture.frames.iter().filter_map(|bytes| to_gsi(bytes)).collect()
}

// What could be sent.

proptest! {
    #[test]
    fn every_message_survives_the_wire(mad in mad()) {
        prop_assert_eq!(CmMad::parse(&emitted(&mad)), Ok(mad));
    }

    #[test]
    fn any_body_of_any_kind_is_read_and_then_stable(
        attribute in 0x10_u8..=0x18,
        mut bytes in any_bytes(),
    ) {
        bytes[..4].copy_from_slice(&[1, 7, 2, 3]);
        bytes[16..18].copy_from_slice(&[0, attribute]);
        let mad = parsed(&bytes);
        mad.describe(&mut Told::default()).unwrap();
        prop_assert_eq!(CmMad::parse(&emitted(&mad)), Ok(mad));
    }

    #[test]
    fn any_bytes_of_any_length_are_read_or_refused(bytes in any_bytes(), len in 0..=CmMad::LEN) {
        match CmMad::parse(&bytes[..len]) {
            Err(ParseError::TooShort { need, have, .. }) => prop_assert_eq!((need, have), (CmMad::LEN, len)),
            Err(ParseError::NotCm { .. } | ParseError::UnknownAttribute(_)) | Ok(_) => {
                prop_assert_eq!(len, CmMad::LEN);
            }
            Err(other) => prop_assert!(false, "{}", other),
        }
    }

    #[test]
    fn any_mad_header_survives_the_wire(mut bytes: [u8; MadHeader::LEN]) {
        bytes[18..20].fill(0);
        let mut again = [0xee; MadHeader::LEN];
        MadHeader::parse(&bytes).emit(&mut again);
        prop_assert_eq!(again, bytes);
    }

    #[test]
    fn an_ip_cm_header_survives_the_wire(header in ip_cm_header(), consumer in any::<[u8; 32]>()) {
        let private_data = header.private_data(&consumer).unwrap();
        let service_id = ServiceId::rdma_ip(PortSpace::Tcp, 1);
        let req = Req { service_id, private_data, ..Req::default() };
        let (read, rest) = req.ip().unwrap();
        prop_assert_eq!(read, header);
        prop_assert_eq!(&rest[..32], consumer);
        let other_service = Req { service_id: ServiceId(1), ..req };
        prop_assert_eq!(other_service.ip(), None);
    }
}

fn parsed(bytes: &[u8; CmMad::LEN]) -> CmMad {
    CmMad::parse(bytes).expect("a CM message")
}

/// Over a buffer that was in use before, so that nothing may be left unwritten.
const fn emitted(mad: &CmMad) -> [u8; CmMad::LEN] {
    let mut bytes = [0xee; CmMad::LEN];
    mad.emit(&mut bytes);
    bytes
}
