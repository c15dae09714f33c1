//! Datagram services: the question and its answer.

use ferroce_transport::Time;
use ferroce_transport::cm::{DatagramService, Event, Failure, Limits, Query, Refused, Resolved};
use ferroce_wire::mad::{IpCmHeader, IpPair, Opaque, PortSpace, ServiceId, SidrReq, SidrStatus};
use ferroce_wire::{PKey, QKey, Qpn};

use crate::common::{RESPONSE, Two, address, ends, manager, only, patience, sent};

const SERVICE: ServiceId = ServiceId::rdma_ip(PortSpace::Udp, 7174);

fn query(now: Time) -> Query {
    let ends = ends(1, 2);
    let pair = IpPair::new(ends.local, ends.remote).expect("one family");
    let private_data = IpCmHeader::new(40_000, pair).private_data(b"hi").expect("it fits");
    let req = SidrReq { pkey: PKey::DEFAULT, service_id: SERVICE, private_data, ..SidrReq::default() };
    Query { ends, req, patience: patience(now) }
}

#[test]
fn a_service_is_found() {
    let mut two = Two::new();
    let (qpn, qkey) = (Qpn::new(0x19), QKey(0x0123_4567));
    let private_data = Opaque::new(b"me").unwrap();
    let offer = DatagramService { qpn, qkey, private_data };
    two.bob.serve(SERVICE, offer).unwrap();
    assert_eq!(two.bob.serve(SERVICE, offer), Err(Refused::Listening(SERVICE)));
    let id = two.ann.resolve(two.now, &query(two.now)).unwrap();
    two.exchange();
    let found = Resolved { address: address(2), qpn, qkey, private_data };
    assert_eq!(two.ann.poll_event(), Some((id, Event::Resolved(Box::new(found)))));
    assert_eq!(two.ann.poll_timeout(), None);
    assert_eq!(two.bob.counters().resolved, 1);
}

#[test]
fn a_service_that_no_program_offers_is_not_resolved() {
    let mut two = Two::new();
    let id = two.ann.resolve(two.now, &query(two.now)).unwrap();
    two.exchange();
    let Some((failed, Event::Failed(Failure::Unresolved { status, .. }))) = two.ann.poll_event() else {
        panic!("not refused")
    };
    assert_eq!((failed, status), (id, SidrStatus::SERVICE_ID_NOT_SUPPORTED));
    assert_eq!(two.bob.counters().unserved, 1);
}

#[test]
fn a_question_without_an_answer_times_out() {
    let mut two = Two::new();
    let id = two.ann.resolve(two.now, &query(two.now)).unwrap();
    for _ in 0..4 {
        assert_eq!(sent(&mut two.ann), ["SIDR_REQ"]);
        two.pass(RESPONSE);
    }
    let failure = Failure::TimedOut { sent: "SIDR_REQ", attempts: 4 };
    assert_eq!(two.ann.poll_event(), Some((id, Event::Failed(failure))));
    assert_eq!((two.ann.poll_timeout(), sent(&mut two.ann).len()), (None, 0));
}

#[test]
fn a_question_can_be_dropped_and_its_answer_comes_to_nothing() {
    let mut two = Two::new();
    let id = two.ann.resolve(two.now, &query(two.now)).unwrap();
    two.ann.abandon(two.now, id);
    two.exchange();
    assert_eq!((two.ann.poll_event(), two.ann.counters().unknown), (None, 1));
    two.pass(RESPONSE);
    assert_eq!(two.ann.poll_timeout(), None);
}

#[test]
fn answers_of_others_are_none_and_questions_are_limited() {
    let now = Time::from_nanos(1);
    let mut ann = manager(1, Limits { queries: 1, ..Limits::default() });
    let mut bob = manager(2, Limits::default());
    ann.resolve(now, &query(now)).unwrap();
    assert_eq!(ann.resolve(now, &query(now)), Err(Refused::TooMany { given: 1 }));
    bob.handle_message(now, ends(2, 1), &only(&mut ann));
    let answer = only(&mut bob);
    ann.handle_message(now, ends(1, 3), &answer);
    assert_eq!((ann.poll_event(), ann.counters().strangers), (None, 1));
}

/// Only what is asked again counts as repeated.
#[test]
fn a_first_question_is_not_a_repeated_one() {
    let mut two = Two::new();
    two.ann.resolve(two.now, &query(two.now)).unwrap();
    assert_eq!((sent(&mut two.ann).len(), two.ann.counters().repeated), (1, 0));
    two.pass(RESPONSE);
    assert_eq!((sent(&mut two.ann).len(), two.ann.counters().repeated), (1, 1));
}
