//! The Linux kernel's own handshakes, replayed: ours must understand it, and say the same.

use std::net::IpAddr;

use ferroce_testkit::captures;
use ferroce_transport::Time;
use ferroce_transport::cm::{
    Accept, Config, Connect, DatagramService, End, Ends, Event, Failure, Limits, Manager, Patience, Query,
};
use ferroce_wire::mad::{CmMad, CmMessage, CommId, RejectReason};
use ferroce_wire::{Frame, PKeyTable, PathMtu, Qpn, Role};

use crate::common::{only, patience, requested, sent, turned};

/// A message of the capture, as its sender saw it.
#[derive(Clone, Copy, Debug)]
struct Heard {
    ends: Ends,
    mad: CmMad,
}

/// All messages of a capture, without those that were sent again.
fn heard(name: &str) -> Vec<Heard> {
    let mut all: Vec<Heard> = Vec::new();
    for bytes in captures::named(name).frames {
        let frame = Frame::parse_ethernet(&bytes).expect("a RoCEv2 frame");
        if frame.packet.dest_qp != Qpn::GSI {
            continue;
        }
        let mad = CmMad::parse(frame.packet.payload()).expect("a message");
        let (local, remote): (IpAddr, IpAddr) = (frame.ip.source(), frame.ip.dest());
        if all.last().is_none_or(|last| last.mad != mad) {
            all.push(Heard { ends: Ends { local, remote }, mad });
        }
    }
    all
}

fn manager(path_mtu: PathMtu) -> Manager {
    let config = Config { limits: Limits::default(), slot: 3, path_mtu, pkeys: PKeyTable::DEFAULT };
    Manager::new(config, crate::common::chance(3))
}

const NOW: Time = Time::from_nanos(1);

/// The captures with one connection from beginning to end.
const CONNECTIONS: [&str; 4] = ["rping", "mtu9000/rping", "rstream", "ucmatose"];

/// Puts one name for a connection in the place of another.
fn renamed(mad: &CmMad, from: CommId, to: CommId) -> CmMad {
    let swap = |id: &mut CommId| {
        if *id == from {
            *id = to;
        }
    };
    let mut mad = *mad;
    match &mut mad.message {
        CmMessage::Req(it) => swap(&mut it.local_comm_id),
        CmMessage::Rep(it) => {
            swap(&mut it.local_comm_id);
            swap(&mut it.remote_comm_id);
        }
        CmMessage::Rtu(it) => {
            swap(&mut it.local_comm_id);
            swap(&mut it.remote_comm_id);
        }
        CmMessage::Dreq(it) => {
            swap(&mut it.local_comm_id);
            swap(&mut it.remote_comm_id);
        }
        CmMessage::Drep(it) => {
            swap(&mut it.local_comm_id);
            swap(&mut it.remote_comm_id);
        }
        CmMessage::Rej(it) => {
            swap(&mut it.local_comm_id);
            swap(&mut it.remote_comm_id);
        }
        other => panic!("not part of a connection: {other:?}"),
    }
    mad
}

/// The first connection of a capture: request, reply, confirmation, end and its confirmation.
fn connection(name: &str) -> [Heard; 5] {
    let all = heard(name);
    let names: Vec<_> = all.iter().map(|heard| heard.mad.message.name()).collect();
    assert_eq!(names[..3], ["REQ", "REP", "RTU"], "{name}");
    let CmMessage::Rtu(rtu) = all[2].mad.message else { panic!("no confirmation") };
    let sides = [(rtu.local_comm_id, rtu.remote_comm_id), (rtu.remote_comm_id, rtu.local_comm_id)];
    let end = |heard: &&Heard| match heard.mad.message {
        CmMessage::Dreq(dreq) => sides.contains(&(dreq.local_comm_id, dreq.remote_comm_id)),
        _ => false,
    };
    let confirmed = |heard: &&Heard| match heard.mad.message {
        CmMessage::Drep(drep) => sides.contains(&(drep.local_comm_id, drep.remote_comm_id)),
        _ => false,
    };
    let dreq = all.iter().find(end).expect("an end");
    let drep = all.iter().find(confirmed).expect("a confirmed end");
    [all[0], all[1], all[2], *dreq, *drep]
}

#[test]
fn our_listener_understands_the_kernels_client_and_answers_as_its_server() {
    for name in CONNECTIONS {
        let [req, rep, rtu, dreq, drep] = connection(name);
        let CmMessage::Req(asked) = req.mad.message else { panic!("no request") };
        let CmMessage::Rep(said) = rep.mad.message else { panic!("no reply") };
        let mut ours = manager(PathMtu::B4096);
        ours.listen(asked.service_id, 1).unwrap();
        ours.handle_message(NOW, turned(req.ends), &req.mad);
        let id = requested(&mut ours);
        ours.accept(NOW, id, &Accept { rep: said, patience: patience(NOW) }).unwrap();
        let to_ours = |mad: &CmMad| renamed(mad, said.local_comm_id, id);
        assert_eq!(only(&mut ours), to_ours(&rep.mad), "{name}: the very same reply");
        ours.handle_message(NOW, turned(req.ends), &to_ours(&rtu.mad));
        assert_eq!(ours.poll_event(), Some((id, Event::Established)), "{name}");
        if dreq.ends == req.ends {
            ours.handle_message(NOW, turned(req.ends), &to_ours(&dreq.mad));
            assert_eq!(only(&mut ours).message, to_ours(&drep.mad).message, "{name}");
            assert_eq!(ours.poll_event(), Some((id, Event::Ended(End::Peer))), "{name}");
        } else {
            ours.disconnect(NOW, id, b"").unwrap();
            // A server of the kernel begins a transaction of its own here.
            assert_eq!(only(&mut ours).message, to_ours(&dreq.mad).message, "{name}");
            ours.handle_message(NOW, turned(req.ends), &to_ours(&drep.mad));
            assert_eq!(ours.poll_event(), Some((id, Event::Ended(End::Here))), "{name}");
        }
    }
}

#[test]
fn our_client_asks_as_the_kernels_and_understands_its_server() {
    for name in CONNECTIONS {
        let [req, rep, rtu, dreq, drep] = connection(name);
        let CmMessage::Req(asked) = req.mad.message else { panic!("no request") };
        let response = asked.remote_cm_response_timeout.duration();
        let patience = Patience { response, retries: asked.max_cm_retries, ..patience(NOW) };
        let mut ours = manager(PathMtu::B4096);
        let wish = Connect { ends: req.ends, req: asked, service: asked.service_id, patience };
        let id = ours.connect(NOW, &wish).unwrap();
        let first = only(&mut ours);
        let transaction_id = first.transaction_id;
        let to_ours = |mad: &CmMad| CmMad { transaction_id, ..renamed(mad, asked.local_comm_id, id) };
        assert_eq!(first, to_ours(&req.mad), "{name}: the very same request");
        ours.handle_message(NOW, turned(rep.ends), &to_ours(&rep.mad));
        let Some((_, Event::Replied(said))) = ours.poll_event() else { panic!("{name}: not accepted") };
        assert_eq!(CmMessage::Rep(*said), to_ours(&rep.mad).message);
        ours.ready(id).unwrap();
        assert_eq!(only(&mut ours), to_ours(&rtu.mad), "{name}: the very same confirmation");
        assert_eq!(ours.poll_event(), Some((id, Event::Established)), "{name}");
        if dreq.ends == req.ends {
            ours.disconnect(NOW, id, b"").unwrap();
            assert_eq!(only(&mut ours), to_ours(&dreq.mad), "{name}: the very same end");
            ours.handle_message(NOW, turned(drep.ends), &to_ours(&drep.mad));
            assert_eq!(ours.poll_event(), Some((id, Event::Ended(End::Here))), "{name}");
        } else {
            ours.handle_message(NOW, turned(dreq.ends), &to_ours(&dreq.mad));
            assert_eq!(only(&mut ours).message, to_ours(&drep.mad).message, "{name}");
            assert_eq!(ours.poll_event(), Some((id, Event::Ended(End::Peer))), "{name}");
        }
    }
}

#[test]
fn a_service_without_a_listener_is_rejected_there_and_here() {
    let all = heard("cm_reject");
    let [req, rejection] = all[..] else { panic!("{all:?}") };
    let CmMessage::Req(asked) = req.mad.message else { panic!("no request") };
    // Our server says what the kernel's says.
    let mut server = manager(PathMtu::B4096);
    server.handle_message(NOW, turned(req.ends), &req.mad);
    let CmMessage::Rej(ours) = only(&mut server).message else { panic!("no rejection") };
    let CmMessage::Rej(theirs) = rejection.mad.message else { panic!("no rejection") };
    assert_eq!((ours.reason, ours.message), (theirs.reason, theirs.message));
    assert_eq!((ours.local_comm_id, ours.remote_comm_id), (theirs.local_comm_id, theirs.remote_comm_id));
    // Our client understands the kernel's.
    let mut client = manager(PathMtu::B4096);
    let wish = Connect { ends: req.ends, req: asked, service: asked.service_id, patience: patience(NOW) };
    let id = client.connect(NOW, &wish).unwrap();
    client.handle_message(NOW, turned(rejection.ends), &renamed(&rejection.mad, asked.local_comm_id, id));
    let Some((_, Event::Failed(Failure::Rejected { reason, .. }))) = client.poll_event() else {
        panic!("not rejected")
    };
    assert_eq!(reason, RejectReason::INVALID_SERVICE_ID);
}

#[test]
fn a_kernel_that_gives_up_frees_the_place_in_the_backlog() {
    let all = heard("req_retry");
    let req = all.iter().find(|heard| heard.mad.message.name() == "REQ").expect("a request");
    let rejection = all.iter().find(|heard| heard.mad.message.name() == "REJ").expect("it gives up");
    let CmMessage::Req(asked) = req.mad.message else { panic!("no request") };
    let mut ours = manager(PathMtu::B4096);
    ours.listen(asked.service_id, 1).unwrap();
    ours.handle_message(NOW, turned(req.ends), &req.mad);
    let id = requested(&mut ours);
    assert_eq!(sent(&mut ours), [""; 0]);
    ours.handle_message(NOW, turned(rejection.ends), &rejection.mad);
    assert_eq!(ours.poll_event(), Some((id, Event::Failed(Failure::Withdrawn))));
    assert_eq!(ours.half_open(), 0);
}

#[test]
fn many_connections_of_ucmatose_at_once() {
    let all = heard("ucmatose");
    let mut ours = manager(PathMtu::B4096);
    let mut names = Vec::new();
    for heard in &all {
        let CmMessage::Req(asked) = heard.mad.message else { continue };
        let _ = ours.listen(asked.service_id, 100);
        ours.handle_message(NOW, turned(heard.ends), &heard.mad);
        names.push(requested(&mut ours));
    }
    assert!(!names.is_empty());
    assert_eq!(ours.half_open(), names.len());
}

#[test]
fn udaddy_is_answered_as_the_kernel_does_and_asked_as_well() {
    let all = heard("udaddy");
    let [question, answer] = all[..] else { panic!("{all:?}") };
    let CmMessage::SidrReq(asked) = question.mad.message else { panic!("no question") };
    let CmMessage::SidrRep(said) = answer.mad.message else { panic!("no answer") };
    let mut server = manager(PathMtu::B4096);
    let offer = DatagramService { qpn: said.qpn, qkey: said.qkey, private_data: said.private_data };
    server.serve(asked.service_id, offer).unwrap();
    server.handle_message(NOW, turned(question.ends), &question.mad);
    assert_eq!(only(&mut server), answer.mad, "the very same answer");

    let mut client = manager(PathMtu::B4096);
    let query = Query { ends: question.ends, req: asked, patience: patience(NOW) };
    let id = client.resolve(NOW, &query).unwrap();
    let mut first = only(&mut client);
    let CmMessage::SidrReq(ours) = &mut first.message else { panic!("no question") };
    ours.request_id = asked.request_id;
    assert_eq!(first.message, question.mad.message, "the very same question");
    let mut named = answer.mad;
    if let CmMessage::SidrRep(rep) = &mut named.message {
        rep.request_id = id.0;
    }
    client.handle_message(NOW, turned(answer.ends), &named);
    let Some((_, Event::Resolved(found))) = client.poll_event() else { panic!("not found") };
    assert_eq!((found.qpn, found.qkey), (said.qpn, said.qkey));
}

/// It reads as if it were the other way round: each side says what it wants to hear first, not what it will say.
#[test]
fn each_side_begins_with_the_number_that_the_other_one_named() {
    for name in CONNECTIONS {
        let [req, rep, ..] = connection(name);
        let CmMessage::Req(asked) = req.mad.message else { panic!("no request") };
        let CmMessage::Rep(said) = rep.mad.message else { panic!("no reply") };
        let mut seen = [false; 2];
        for bytes in captures::named(name).frames {
            let frame = Frame::parse_ethernet(&bytes).expect("a RoCEv2 frame");
            let from_client = frame.ip.source() == req.ends.local;
            let (place, first, dest) = match from_client {
                true => (0, said.starting_psn, said.local_qpn),
                false => (1, asked.starting_psn, asked.local_qpn),
            };
            let is_request = frame.packet.opcode().info().role == Role::Request;
            if frame.packet.dest_qp == dest && is_request && !std::mem::replace(&mut seen[place], true) {
                assert_eq!(frame.packet.psn, first, "{name}, from the client: {from_client}");
            }
        }
        assert_eq!(seen, [true; 2], "{name}");
    }
}
