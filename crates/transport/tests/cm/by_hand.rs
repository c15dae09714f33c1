//! Each way that a connection can go, message by message.

use std::time::Duration;

use ferroce_transport::cm::{End, Event, Failure, Refused};
use ferroce_wire::mad::{
    AnswerTo, CmMad, CmMessage, CommId, Dreq, Mra, Rej, RejectReason, Rep, Req, ServiceId, Timeout,
    TransportService,
};
use ferroce_wire::{PathMtu, Qpn};

use crate::common::{
    RESPONSE, SERVICE, TIME_WAIT, Two, acceptance, address, ends, only, rej, requested, sent, turned, wish,
};

#[test]
fn a_connection_begins_and_ends() {
    let mut two = Two::new();
    let (ours, theirs) = two.connected(0x11);
    assert_eq!((two.ann.poll_timeout(), two.bob.poll_timeout()), (None, None), "nothing to wait for");
    two.ann.disconnect(two.now, ours, b"").unwrap();
    two.exchange();
    assert_eq!(two.ann.poll_event(), Some((ours, Event::Ended(End::Here))));
    assert_eq!(two.bob.poll_event(), Some((theirs, Event::Ended(End::Peer))));
    assert_eq!((two.ann.open(), two.ann.remembered()), (0, 1));
    two.pass(TIME_WAIT);
    assert_eq!((two.ann.remembered(), two.bob.remembered()), (0, 0));
    assert_eq!((two.ann.poll_timeout(), two.bob.poll_timeout()), (None, None));
}

#[test]
fn the_request_says_what_it_must() {
    let mut two = Two::new();
    let id = two.ask(0x11);
    let CmMessage::Req(req) = only(&mut two.ann).message else { panic!("no request") };
    assert_eq!((req.local_comm_id, req.service_id), (id, SERVICE));
    assert_eq!(id.0 >> 24, 1, "the answer finds its process");
    assert_eq!(req.max_cm_retries, 3);
    assert!(req.remote_cm_response_timeout.duration() >= RESPONSE);
}

#[test]
fn a_program_sees_which_peer_asks_and_what_it_said() {
    let mut two = Two::new();
    two.ask(0x11);
    two.exchange();
    let Some((_, Event::Requested(request))) = two.bob.poll_event() else { panic!("no request") };
    assert_eq!(request.peer(), (address(1), 40_000).into());
    assert_eq!(request.local(), (address(2), 7174).into());
    assert_eq!(&request.private_data()[..5], b"hello");
    assert_eq!(request.private_data().len(), 56);
}

#[test]
fn a_request_for_a_service_without_a_listener_is_rejected() {
    let mut two = Two::new();
    two.bob.stop_listening(SERVICE);
    let id = two.ask(0x11);
    two.exchange();
    let Some((failed, Event::Failed(Failure::Rejected { reason, .. }))) = two.ann.poll_event() else {
        panic!("not rejected")
    };
    assert_eq!((failed, reason), (id, RejectReason::INVALID_SERVICE_ID));
    assert_eq!((two.bob.open(), two.bob.remembered()), (0, 0), "nothing is kept of it");
    assert_eq!(two.bob.counters().unserved, 1);
}

#[test]
fn a_program_rejects_with_words_and_says_so_again() {
    let mut two = Two::new();
    let id = two.ask(0x11);
    let req = only(&mut two.ann);
    two.bob.handle_message(two.now, ends(2, 1), &req);
    let theirs = requested(&mut two.bob);
    two.bob.reject(two.now, theirs, RejectReason::CONSUMER, b"not today").unwrap();
    let first = only(&mut two.bob);
    two.bob.handle_message(two.now, ends(2, 1), &req);
    assert_eq!(only(&mut two.bob), first, "the same question, the same answer");
    two.ann.handle_message(two.now, ends(1, 2), &first);
    let Some((_, Event::Failed(Failure::Rejected { reason, private_data }))) = two.ann.poll_event() else {
        panic!("not rejected")
    };
    assert_eq!((reason, private_data.trimmed()), (RejectReason::CONSUMER, &b"not today"[..]));
    assert_eq!(two.bob.accept(two.now, theirs, &acceptance(two.now, 5)), Err(Refused::NotPending));
    // The same queue pair may ask again at once.
    two.ask(0x11);
    two.exchange();
    requested(&mut two.bob);
    assert!(!two.bob.is_pending(theirs));
    assert_eq!(two.ann.poll_event(), None, "{id}");
}

#[test]
fn a_request_without_an_answer_times_out() {
    let mut two = Two::new();
    let id = two.ask(0x11);
    for attempt in 1..=4 {
        assert_eq!(sent(&mut two.ann), ["REQ"], "attempt {attempt}");
        assert_eq!(two.ann.poll_event(), None);
        two.pass(RESPONSE);
    }
    assert_eq!(sent(&mut two.ann), ["REJ"], "says that it gave up");
    let failure = Failure::TimedOut { sent: "REQ", attempts: 4 };
    assert_eq!(two.ann.poll_event(), Some((id, Event::Failed(failure))));
    assert_eq!(two.ann.counters().repeated, 3);
}

#[test]
fn the_limit_of_the_whole_attempt_comes_first() {
    let mut two = Two::new();
    let mut wish = wish(two.now, ends(1, 2), 0x11);
    wish.patience.retries = 15;
    wish.patience.deadline = two.now + RESPONSE * 2 + Duration::from_millis(1);
    two.ann.connect(two.now, &wish).unwrap();
    two.pass(RESPONSE);
    two.pass(RESPONSE);
    assert_eq!(two.ann.poll_event(), None);
    assert_eq!(two.ann.poll_timeout(), Some(wish.patience.deadline));
    two.pass(Duration::from_millis(1));
    assert!(matches!(two.ann.poll_event(), Some((_, Event::Failed(Failure::TimedOut { .. })))));
}

#[test]
fn a_lost_reply_is_sent_again_when_the_request_is() {
    let mut two = Two::new();
    two.ask(0x11);
    let req = only(&mut two.ann);
    two.bob.handle_message(two.now, ends(2, 1), &req);
    let theirs = requested(&mut two.bob);
    two.bob.accept(two.now, theirs, &acceptance(two.now, 0x22)).unwrap();
    let lost = only(&mut two.bob);
    two.bob.handle_message(two.now, ends(2, 1), &req);
    assert_eq!(only(&mut two.bob), lost);
    assert_eq!(two.bob.poll_event(), None, "and the program does not hear of it");
    // By itself too.
    two.pass(RESPONSE);
    assert_eq!(only(&mut two.bob), lost);
}

#[test]
fn a_lost_confirmation_is_sent_again_when_the_reply_is() {
    let mut two = Two::new();
    let ours = two.ask(0x11);
    two.exchange();
    let theirs = requested(&mut two.bob);
    two.bob.accept(two.now, theirs, &acceptance(two.now, 0x22)).unwrap();
    two.exchange();
    assert!(matches!(two.ann.poll_event(), Some((_, Event::Replied(_)))));
    two.ann.ready(ours).unwrap();
    assert_eq!(sent(&mut two.ann), ["RTU"], "lost");
    two.pass(RESPONSE);
    two.exchange();
    assert_eq!(two.bob.poll_event(), Some((theirs, Event::Established)));
    assert_eq!(two.bob.poll_timeout(), None);
}

#[test]
fn the_first_data_confirm_too() {
    let mut two = Two::new();
    two.ask(0x11);
    two.exchange();
    let theirs = requested(&mut two.bob);
    two.bob.data_arrived(theirs);
    assert!(two.bob.is_pending(theirs), "not before it was accepted");
    two.bob.accept(two.now, theirs, &acceptance(two.now, 0x22)).unwrap();
    assert!(two.bob.awaits_ready(theirs));
    two.bob.data_arrived(theirs);
    assert_eq!(two.bob.poll_event(), Some((theirs, Event::Established)));
    two.bob.data_arrived(theirs);
    assert_eq!(two.bob.poll_event(), None, "once");
}

#[test]
fn an_acceptance_that_is_not_confirmed_is_taken_back() {
    let mut two = Two::new();
    two.ask(0x11);
    two.exchange();
    let theirs = requested(&mut two.bob);
    two.bob.accept(two.now, theirs, &acceptance(two.now, 0x22)).unwrap();
    for _ in 0..4 {
        assert_eq!(sent(&mut two.bob), ["REP"]);
        two.pass(RESPONSE);
    }
    let failure = Failure::TimedOut { sent: "REP", attempts: 4 };
    assert_eq!(two.bob.poll_event(), Some((theirs, Event::Failed(failure))));
    // It may stand for the other side, so the end is asked for until it is confirmed.
    assert_eq!(sent(&mut two.bob), ["REJ", "DREQ"]);
    for _ in 0..15 {
        two.pass(RESPONSE);
        assert_eq!(sent(&mut two.bob), ["DREQ"]);
    }
    two.pass(RESPONSE);
    assert_eq!((sent(&mut two.bob), two.bob.poll_event()), (vec![], None), "the program knows already");
    assert_eq!((two.bob.open(), two.bob.half_open()), (0, 0));
}

#[test]
fn a_program_that_thinks_long_is_waited_for() {
    let mut two = Two::new();
    let ours = two.ask(0x11);
    let req = only(&mut two.ann);
    two.bob.handle_message(two.now, ends(2, 1), &req);
    let theirs = requested(&mut two.bob);
    assert_eq!(sent(&mut two.bob), [""; 0]);
    two.pass(RESPONSE);
    two.exchange();
    assert_eq!(two.bob.counters().duplicates, 1, "the request came again, and a receipt went out");
    for _ in 0..8 {
        two.pass(RESPONSE);
    }
    assert_eq!(sent(&mut two.ann), [""; 0], "patient now");
    two.bob.accept(two.now, theirs, &acceptance(two.now, 0x22)).unwrap();
    two.exchange();
    assert!(matches!(two.ann.poll_event(), Some((id, Event::Replied(_))) if id == ours));
}

#[test]
fn a_receipt_does_not_move_the_limit() {
    let mut two = Two::new();
    let ours = two.ask(0x11);
    let deadline = wish(two.now, ends(1, 2), 0x11).patience.deadline;
    let mra = Mra {
        local_comm_id: CommId(77),
        remote_comm_id: ours,
        service_timeout: Timeout::MAX,
        message: AnswerTo::Req,
        ..Mra::default()
    };
    two.ann.handle_message(two.now, ends(1, 2), &CmMad::new(1, mra));
    assert_eq!(two.ann.poll_timeout(), Some(deadline));
    let wrong = Mra { message: AnswerTo::Rep, ..mra };
    two.ann.handle_message(two.now, ends(1, 2), &CmMad::new(1, wrong));
    assert_eq!(two.ann.counters().unexpected, 1);
}

#[test]
fn a_peer_that_gives_up_is_not_waited_for() {
    let mut two = Two::new();
    let ours = two.ask(0x11);
    two.exchange();
    let theirs = requested(&mut two.bob);
    two.ann.abandon(two.now, ours);
    two.exchange();
    assert_eq!(two.bob.poll_event(), Some((theirs, Event::Failed(Failure::Withdrawn))));
    assert_eq!((two.bob.half_open(), two.ann.open()), (0, 0));
    assert_eq!(two.ann.poll_event(), None, "the program did it itself");
}

#[test]
fn a_request_whose_peer_falls_silent_is_dropped_in_the_end() {
    let mut two = Two::new();
    two.ask(0x11);
    two.exchange();
    let theirs = requested(&mut two.bob);
    two.pass(Duration::from_secs(120));
    assert_eq!(two.bob.poll_event(), Some((theirs, Event::Failed(Failure::Withdrawn))));
    assert_eq!(two.bob.half_open(), 0);
}

#[test]
fn both_end_it_at_the_same_time() {
    let mut two = Two::new();
    let (ours, theirs) = two.connected(0x11);
    two.ann.disconnect(two.now, ours, b"").unwrap();
    two.bob.disconnect(two.now, theirs, b"").unwrap();
    two.exchange();
    assert_eq!(two.ann.poll_event(), Some((ours, Event::Ended(End::Here))));
    assert_eq!(two.bob.poll_event(), Some((theirs, Event::Ended(End::Here))));
    assert_eq!((two.ann.poll_event(), two.bob.poll_event()), (None, None));
}

#[test]
fn a_lost_confirmation_of_the_end_is_sent_again() {
    let mut two = Two::new();
    let (ours, theirs) = two.connected(0x11);
    two.ann.disconnect(two.now, ours, b"").unwrap();
    let dreq = only(&mut two.ann);
    two.bob.handle_message(two.now, ends(2, 1), &dreq);
    assert_eq!(sent(&mut two.bob), ["DREP"], "lost");
    two.pass(RESPONSE);
    two.exchange();
    assert_eq!(two.ann.poll_event(), Some((ours, Event::Ended(End::Here))));
    assert_eq!(two.bob.poll_event(), Some((theirs, Event::Ended(End::Peer))));
    // Also when nothing is known any more.
    two.pass(TIME_WAIT);
    assert_eq!(two.bob.remembered(), 0);
    two.bob.handle_message(two.now, ends(2, 1), &dreq);
    let CmMessage::Drep(drep) = only(&mut two.bob).message else { panic!("no confirmation") };
    assert_eq!((drep.local_comm_id, drep.remote_comm_id), (theirs, ours));
}

#[test]
fn a_dead_peer_does_not_keep_us_from_ending() {
    let mut two = Two::new();
    let (ours, _) = two.connected(0x11);
    two.ann.disconnect(two.now, ours, b"").unwrap();
    for _ in 0..16 {
        assert_eq!(sent(&mut two.ann), ["DREQ"]);
        two.pass(RESPONSE);
    }
    assert_eq!(two.ann.poll_event(), Some((ours, Event::Ended(End::Unanswered))));
}

#[test]
fn an_end_that_overtakes_the_confirmation_tells_both() {
    let mut two = Two::new();
    let ours = two.ask(0x11);
    two.exchange();
    let theirs = requested(&mut two.bob);
    two.bob.accept(two.now, theirs, &acceptance(two.now, 0x22)).unwrap();
    two.exchange();
    two.ann.poll_event();
    two.ann.ready(ours).unwrap();
    assert_eq!(sent(&mut two.ann), ["RTU"], "lost");
    two.ann.disconnect(two.now, ours, b"").unwrap();
    two.exchange();
    assert_eq!(two.bob.poll_event(), Some((theirs, Event::Established)));
    assert_eq!(two.bob.poll_event(), Some((theirs, Event::Ended(End::Peer))));
}

#[test]
fn a_queue_pair_that_asks_anew_ends_what_it_forgot() {
    let mut two = Two::new();
    let (ours, theirs) = two.connected(0x11);
    // Ann's host has started anew; its queue pair has the old number by chance.
    let mut reborn = crate::common::manager(3, ferroce_transport::cm::Limits::default());
    let again = reborn.connect(two.now, &wish(two.now, ends(1, 2), 0x11)).unwrap();
    two.bob.handle_message(two.now, ends(2, 1), &only(&mut reborn));
    let answer = two.bob.poll_transmit().unwrap().mad;
    let stale = rej(&answer);
    assert_eq!((stale.reason, stale.remote_comm_id), (RejectReason::STALE_CONNECTION, again));
    // The old peer is asked, and does not answer.
    let mut questions = 0;
    let end = loop {
        match two.bob.poll_event() {
            Some((id, Event::Doubted)) if id == theirs => {
                assert_eq!(sent(&mut two.bob), [""; 0], "nothing that a live peer would obey");
                questions += 1;
            }
            Some(other) => break other,
            None => two.pass(Duration::from_millis(50)),
        }
    };
    assert_eq!((end, questions), ((theirs, Event::Ended(End::Stale)), 5));
    assert_eq!(sent(&mut two.bob), ["DREQ"]);
    assert_eq!((two.bob.counters().stale, two.bob.counters().stale_refuted), (1, 0));
    // The confirmation of the end comes from a side that knows nothing, and is not told twice.
    let dreq = Dreq { local_comm_id: theirs, remote_comm_id: ours, ..Dreq::default() };
    reborn.handle_message(two.now, ends(1, 2), &CmMad::new(1, dreq));
    two.bob.handle_message(two.now, ends(2, 1), &only(&mut reborn));
    assert_eq!((two.bob.open(), two.bob.poll_event()), (0, None));
}

/// It was: any REQ from the peer's address that named the peer's queue pair ended the connection at once.
#[test]
fn a_stranger_that_names_the_queue_pair_of_a_peer_ends_nothing() {
    let mut two = Two::new();
    let (ours, theirs) = two.connected(0x11);
    let mut stranger = crate::common::manager(9, ferroce_transport::cm::Limits::default());
    for round in 1..=20 {
        stranger.connect(two.now, &wish(two.now, ends(1, 2), 0x11)).unwrap();
        two.bob.handle_message(two.now, ends(2, 1), &only(&mut stranger));
        assert_eq!(sent(&mut two.bob), ["REJ"]);
        assert_eq!(two.bob.poll_event(), Some((theirs, Event::Doubted)));
        // A second claim meanwhile asks no second question.
        stranger.connect(two.now, &wish(two.now, ends(1, 2), 0x11)).unwrap();
        two.bob.handle_message(two.now, ends(2, 1), &only(&mut stranger));
        assert_eq!((sent(&mut two.bob), two.bob.poll_event()), (vec!["REJ"], None));
        assert!(two.bob.is_doubted(theirs));
        two.bob.vouched(theirs);
        assert_eq!((two.bob.counters().stale, two.bob.counters().stale_refuted), (2 * round, round));
        two.pass(Duration::from_secs(60));
        assert_eq!((two.bob.poll_event(), two.bob.open()), (None, 1));
    }
    // Both still know of each other.
    two.ann.disconnect(two.now, ours, b"").unwrap();
    two.exchange();
    assert_eq!(two.bob.poll_event(), Some((theirs, Event::Ended(End::Peer))));
}

/// A claim about a connection that is being set up cancelled it.
#[test]
fn a_stranger_that_names_the_queue_pair_of_a_request_withdraws_nothing() {
    let mut two = Two::new();
    let ours = two.ask(0x11);
    two.exchange();
    let theirs = requested(&mut two.bob);
    let mut stranger = crate::common::manager(9, ferroce_transport::cm::Limits::default());
    let mut claim = |two: &mut Two| {
        stranger.connect(two.now, &wish(two.now, ends(1, 2), 0x11)).unwrap();
        two.bob.handle_message(two.now, ends(2, 1), &only(&mut stranger));
        assert_eq!((sent(&mut two.bob), two.bob.poll_event()), (vec!["REJ"], None));
    };
    claim(&mut two);
    two.bob.accept(two.now, theirs, &acceptance(two.now, 0x22)).unwrap();
    let rep = two.bob.poll_transmit().unwrap();
    claim(&mut two);
    two.ann.handle_message(two.now, ends(1, 2), &rep.mad);
    assert!(matches!(two.ann.poll_event(), Some((id, Event::Replied(_))) if id == ours));
    two.ann.ready(ours).unwrap();
    two.exchange();
    assert_eq!(two.bob.poll_event(), Some((theirs, Event::Established)));
}

#[test]
fn time_wait_keeps_the_queue_pair_and_the_name_from_others() {
    let mut two = Two::new();
    let (ours, _) = two.connected(0x11);
    two.ann.disconnect(two.now, ours, b"").unwrap();
    two.exchange();
    two.bob.poll_event();
    two.ask(0x11);
    two.exchange();
    assert_eq!(two.bob.poll_event(), None, "not while old packets may be under way");
    assert_eq!(two.bob.counters().stale, 1);
    two.pass(TIME_WAIT);
    two.ask(0x11);
    two.exchange();
    requested(&mut two.bob);
}

#[test]
fn what_cannot_be_is_rejected_with_the_reason() {
    type Spoil = fn(&mut Req);
    let reasons: [(RejectReason, Spoil); 7] = [
        (RejectReason::INVALID_TRANSPORT_SERVICE, |req| req.transport_service = TransportService::Rd),
        (RejectReason::UNSUPPORTED_REQUEST, |req| req.local_qpn = Qpn::GSI),
        (RejectReason::INVALID_PRIMARY_GID, |req| req.primary.local_gid = address(9).into()),
        (RejectReason::INVALID_PRIMARY_GID, |req| req.primary.remote_gid = address(9).into()),
        (RejectReason::INVALID_PATH_MTU, |req| req.path_mtu = PathMtu::B2048.code()),
        (RejectReason::INVALID_PATH_MTU, |req| req.path_mtu = 9),
        (RejectReason::UNSUPPORTED_REQUEST, |req| req.private_data.0[1] = 0x50),
    ];
    for (reason, spoil) in reasons {
        let mut two = Two::new();
        let mut wish = wish(two.now, ends(1, 2), 0x11);
        spoil(&mut wish.req);
        two.ann.connect(two.now, &wish).unwrap();
        two.bob.handle_message(two.now, ends(2, 1), &only(&mut two.ann));
        let rej = rej(&only(&mut two.bob));
        assert_eq!(rej.reason, reason);
        assert_eq!((two.bob.poll_event(), two.bob.open()), (None, 0));
        assert_eq!(two.bob.counters().invalid, 1);
        if reason == RejectReason::INVALID_PATH_MTU {
            assert_eq!((rej.info_len, rej.info.0[0]), (1, PathMtu::B1024.code()), "what would do");
        }
    }
}

#[test]
fn strangers_change_nothing() {
    let mut two = Two::new();
    let (ours, theirs) = two.connected(0x11);
    let dreq =
        Dreq { local_comm_id: theirs, remote_comm_id: ours, remote_qpn: Qpn::new(0x11), ..Dreq::default() };
    let wrong = [
        (ends(1, 3), dreq),
        (ends(4, 2), dreq),
        (ends(1, 2), Dreq { local_comm_id: CommId(5), ..dreq }),
        (ends(1, 2), Dreq { remote_qpn: Qpn::new(0x12), ..dreq }),
    ];
    for (ends, dreq) in wrong {
        two.ann.handle_message(two.now, ends, &CmMad::new(1, dreq));
    }
    assert_eq!((two.ann.poll_event(), sent(&mut two.ann).len()), (None, 0));
    assert_eq!((two.ann.counters().strangers, two.ann.counters().unexpected), (3, 1));
    two.ann.handle_message(two.now, ends(1, 2), &CmMad::new(1, dreq));
    assert_eq!(two.ann.poll_event(), Some((ours, Event::Ended(End::Peer))));
}

#[test]
fn a_reply_to_no_request_is_rejected_so_that_its_sender_does_not_wait() {
    let mut two = Two::new();
    let rep = Rep { local_comm_id: CommId(8), remote_comm_id: CommId(9), ..Rep::default() };
    two.ann.handle_message(two.now, ends(1, 2), &CmMad::new(3, rep));
    let answer = rej(&only(&mut two.ann));
    assert_eq!((answer.reason, answer.message), (RejectReason::INVALID_COMM_ID, AnswerTo::Rep));
    assert_eq!((answer.local_comm_id, answer.remote_comm_id), (CommId(9), CommId(8)));
    two.bob.handle_message(two.now, turned(ends(1, 2)), &CmMad::new(3, answer));
    assert_eq!(sent(&mut two.bob), [""; 0], "and that is the end of it");
}

#[test]
fn one_listener_per_service() {
    let mut two = Two::new();
    assert_eq!(two.bob.listen(SERVICE, 1), Err(Refused::Listening(SERVICE)));
    two.bob.listen(ServiceId(5), 1).unwrap();
}

#[test]
fn a_name_is_used_for_one_request_only() {
    let mut two = Two::new();
    two.ask(0x11);
    let first = only(&mut two.ann);
    two.bob.handle_message(two.now, ends(2, 1), &first);
    requested(&mut two.bob);
    let CmMessage::Req(req) = first.message else { panic!("no request") };
    let other = CmMad::new(4, Req { local_qpn: Qpn::new(0x12), ..req });
    two.bob.handle_message(two.now, ends(2, 1), &other);
    assert_eq!(rej(&only(&mut two.bob)).reason, RejectReason::DUPLICATE_LOCAL_COMM_ID);
}

#[test]
fn a_rejection_of_another_copy_of_the_request_ends_nothing_that_stands() {
    let mut two = Two::new();
    let (ours, _) = two.connected(0x11);
    let late = Rej {
        remote_comm_id: ours,
        message: AnswerTo::Req,
        reason: RejectReason::STALE_CONNECTION,
        ..Rej::default()
    };
    two.ann.handle_message(two.now, ends(1, 2), &CmMad::new(1, late));
    assert_eq!((two.ann.poll_event(), two.ann.open()), (None, 1));
    assert_eq!(two.ann.counters().unexpected, 1);
}

#[test]
fn an_acceptance_whose_peer_has_started_anew_is_taken_back_for_sure() {
    let mut two = Two::new();
    two.ask(0x11);
    two.exchange();
    let theirs = requested(&mut two.bob);
    two.bob.accept(two.now, theirs, &acceptance(two.now, 0x22)).unwrap();
    assert_eq!(sent(&mut two.bob), ["REP"]);
    let mut reborn = crate::common::manager(3, ferroce_transport::cm::Limits::default());
    reborn.connect(two.now, &wish(two.now, ends(1, 2), 0x11)).unwrap();
    two.bob.handle_message(two.now, ends(2, 1), &only(&mut reborn));
    assert_eq!(sent(&mut two.bob), ["REJ"], "to the new one: the old one has time until its limit");
    let mut all = Vec::new();
    while two.bob.poll_event().is_none() {
        two.pass(RESPONSE);
        all.extend(sent(&mut two.bob));
    }
    assert_eq!(all, ["REP", "REP", "REP", "REJ", "DREQ"]);
    two.pass(RESPONSE);
    assert_eq!(sent(&mut two.bob), ["DREQ"], "until it is confirmed");
}

#[test]
fn a_reply_that_comes_after_a_rejection_is_rejected() {
    let mut two = Two::new();
    let ours = two.ask(0x11);
    let req = only(&mut two.ann);
    let rejection = Rej { remote_comm_id: ours, reason: RejectReason::NO_RESOURCES, ..Rej::default() };
    two.ann.handle_message(two.now, ends(1, 2), &CmMad::new(1, rejection));
    assert!(matches!(two.ann.poll_event(), Some((_, Event::Failed(_)))));
    // Another copy of the request found room.
    two.bob.handle_message(two.now, ends(2, 1), &req);
    let theirs = requested(&mut two.bob);
    two.bob.accept(two.now, theirs, &acceptance(two.now, 0x22)).unwrap();
    two.exchange();
    assert!(matches!(two.bob.poll_event(), Some((_, Event::Failed(Failure::Rejected { .. })))));
}

#[test]
fn an_acceptance_that_waits_for_the_program_asks_for_patience_when_it_comes_again() {
    let mut two = Two::new();
    let ours = two.ask(0x11);
    two.exchange();
    let theirs = requested(&mut two.bob);
    two.bob.accept(two.now, theirs, &acceptance(two.now, 0x22)).unwrap();
    two.exchange();
    assert!(matches!(two.ann.poll_event(), Some((id, Event::Replied(_))) if id == ours));
    // Bob has three retries of half a second: without word from Ann the fourth ends it.
    for _ in 0..4 {
        two.pass(Duration::from_millis(500));
        two.exchange();
    }
    assert_eq!((two.bob.poll_event(), two.bob.open()), (None, 1), "it was asked to wait");
    two.ann.ready(ours).unwrap();
    two.exchange();
    assert_eq!(two.bob.poll_event(), Some((theirs, Event::Established)));
}

#[test]
fn an_acceptance_can_be_rejected_with_a_reason_and_with_data() {
    let mut two = Two::new();
    let ours = two.ask(0x11);
    two.exchange();
    let theirs = requested(&mut two.bob);
    two.bob.accept(two.now, theirs, &acceptance(two.now, 0x22)).unwrap();
    two.exchange();
    two.ann.reject(two.now, ours, RejectReason::CONSUMER, b"why").unwrap();
    two.exchange();
    let Some((id, Event::Failed(Failure::Rejected { reason, private_data }))) = two.bob.poll_event() else {
        panic!("it was rejected");
    };
    assert_eq!((id, reason, &private_data.0[..4]), (theirs, RejectReason::CONSUMER, &b"why\0"[..]));
    assert!(two.ann.reject(two.now, ours, RejectReason::CONSUMER, b"").is_err(), "once");
}

#[test]
fn a_request_that_is_forgotten_is_heard_of_again_when_the_peer_repeats_it() {
    let mut two = Two::new();
    let ours = two.ask(0x11);
    two.exchange();
    let first = requested(&mut two.bob);
    two.bob.forget(first);
    assert_eq!((sent(&mut two.bob), two.bob.open(), two.bob.half_open()), (vec![], 0, 0), "without a word");
    assert!(two.bob.accept(two.now, first, &acceptance(two.now, 0x22)).is_err());
    two.pass(Duration::from_millis(500));
    two.exchange();
    let second = requested(&mut two.bob);
    assert_ne!(first, second);
    two.bob.accept(two.now, second, &acceptance(two.now, 0x22)).unwrap();
    // What is accepted is not forgotten.
    two.bob.forget(second);
    assert_eq!(two.bob.open(), 1);
    two.exchange();
    assert!(matches!(two.ann.poll_event(), Some((id, Event::Replied(_))) if id == ours));
}

/// That a connection is forgotten is told once, of one that stood, and only where that was asked for.
#[test]
fn the_end_of_the_memory_of_a_connection_is_told_to_the_side_that_asked_for_it() {
    let mut two = Two::new();
    let mut connect = wish(two.now, ends(1, 2), 0x11);
    connect.patience.tell_end = true;
    let ours = two.ann.connect(two.now, &connect).unwrap();
    two.exchange();
    let theirs = requested(&mut two.bob);
    two.bob.accept(two.now, theirs, &acceptance(two.now, 0x22)).unwrap();
    two.exchange();
    two.ann.ready(ours).unwrap();
    two.exchange();
    two.bob.disconnect(two.now, theirs, b"").unwrap();
    two.exchange();
    let told = |manager: &mut ferroce_transport::cm::Manager| {
        std::iter::from_fn(|| manager.poll_event()).map(|(_, event)| event).last()
    };
    assert_eq!(told(&mut two.ann), Some(Event::Ended(End::Peer)));
    assert_eq!(told(&mut two.bob), Some(Event::Ended(End::Here)));
    assert!(two.ann.tells_end(ours) && !two.bob.tells_end(theirs));
    two.pass(TIME_WAIT);
    assert_eq!(two.ann.poll_event(), Some((ours, Event::Forgotten)));
    assert_eq!((two.ann.poll_event(), two.bob.poll_event()), (None, None));
    assert_eq!((two.ann.remembered(), two.bob.remembered()), (0, 0));
    // One that never stood is forgotten in silence.
    let never = two.ann.connect(two.now, &wish(two.now, ends(1, 2), 0x33)).unwrap();
    two.ann.abandon(two.now, never);
    two.pass(TIME_WAIT);
    assert_eq!(two.ann.poll_event(), None);
}

/// It was: of a connection that ended because its peer knew nothing of it, the memory's end was not told.
#[test]
fn the_end_of_the_memory_of_a_stale_connection_is_told_too() {
    let mut two = Two::new();
    two.ask(0x11);
    two.exchange();
    let theirs = requested(&mut two.bob);
    let mut accept = acceptance(two.now, 0x22);
    accept.patience.tell_end = true;
    two.bob.accept(two.now, theirs, &accept).unwrap();
    two.bob.data_arrived(theirs);
    let mut reborn = crate::common::manager(3, ferroce_transport::cm::Limits::default());
    reborn.connect(two.now, &wish(two.now, ends(1, 2), 0x11)).unwrap();
    two.bob.handle_message(two.now, ends(2, 1), &only(&mut reborn));
    let mut told = Vec::new();
    for _ in 0..400 {
        two.bob.handle_timeout(two.now);
        while let Some((_, event)) = two.bob.poll_event() {
            if event == Event::Ended(End::Stale) {
                assert!(two.bob.tells_end(theirs));
            }
            told.push(event);
        }
        two.now = two.now + Duration::from_millis(50);
    }
    assert_eq!(told[told.len() - 2..], [Event::Ended(End::Stale), Event::Forgotten]);
}
