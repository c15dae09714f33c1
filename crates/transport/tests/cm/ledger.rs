//! What happens to connections is counted, each thing once and under its own name.

use std::time::Duration;

use ferroce_transport::cm::{Accept, End, Event, Failure, Limits, Manager, Refused};
use ferroce_wire::Qpn;
use ferroce_wire::mad::{AnswerTo, CmMad, CmMessage, Drep, Dreq, Mra, Rej, RejectReason, Rep, Rtu, Timeout};

use crate::common::{
    RESPONSE, SERVICE, TIME_WAIT, Two, acceptance, ends, manager, only, patience, rej, requested, sent,
    turned, wish,
};

/// The counters that are not zero.
fn books(manager: &Manager) -> Vec<(&'static str, u64)> {
    manager.counters().iter().filter(|(_, count)| *count > 0).collect()
}

#[test]
fn a_life_without_trouble() {
    let mut two = Two::new();
    let (ours, _) = two.connected(0x11);
    two.ann.disconnect(two.now, ours, b"").unwrap();
    two.exchange();
    assert_eq!(books(&two.ann), [("received", 2), ("sent", 3), ("established", 1), ("ended", 1)]);
    assert_eq!(books(&two.bob), [("received", 3), ("sent", 2), ("established", 1), ("ended", 1)]);
}

#[test]
fn a_request_without_an_answer() {
    let mut two = Two::new();
    two.ask(0x11);
    for _ in 0..4 {
        two.pass(RESPONSE);
    }
    assert_eq!(books(&two.ann), [("sent", 5), ("repeated", 3), ("timed_out", 1)]);
}

#[test]
fn an_acceptance_and_an_end_without_an_answer() {
    let mut two = Two::new();
    two.ask(0x11);
    two.exchange();
    let theirs = requested(&mut two.bob);
    two.bob.accept(two.now, theirs, &acceptance(two.now, 0x22)).unwrap();
    for _ in 0..4 {
        two.pass(RESPONSE);
    }
    // Four times REP, then REJ and DREQ.
    assert_eq!(books(&two.bob), [("received", 1), ("sent", 6), ("repeated", 3), ("timed_out", 1)]);
    for _ in 0..16 {
        two.pass(RESPONSE);
    }
    assert_eq!(
        books(&two.bob),
        [("received", 1), ("sent", 21), ("repeated", 18), ("ended", 1), ("timed_out", 2)]
    );
}

#[test]
fn a_request_that_its_peer_gives_up() {
    let mut two = Two::new();
    let ours = two.ask(0x11);
    two.exchange();
    requested(&mut two.bob);
    two.ann.abandon(two.now, ours);
    two.exchange();
    assert_eq!(books(&two.bob), [("received", 2), ("withdrawn", 1)]);
    let mut silent = Two::new();
    silent.ask(0x11);
    silent.exchange();
    silent.pass(Duration::from_secs(120));
    assert_eq!(books(&silent.bob), [("received", 1), ("sent", 1), ("withdrawn", 1)]);
}

#[test]
fn a_request_that_is_refused() {
    let mut two = Two::new();
    two.ask(0x11);
    two.exchange();
    let theirs = requested(&mut two.bob);
    two.bob.reject(two.now, theirs, RejectReason::CONSUMER, b"no").unwrap();
    two.exchange();
    assert_eq!(books(&two.ann), [("received", 1), ("sent", 1), ("rejected", 1)]);
    assert_eq!(books(&two.bob), [("received", 1), ("sent", 1), ("rejected", 1)]);
}

/// Every message comes once more than it should, in every state that it can come in.
#[test]
fn everything_comes_twice() {
    let mut two = Two::new();
    let (to_ann, to_bob) = (ends(1, 2), ends(2, 1));
    let ours = two.ask(0x11);
    let req = only(&mut two.ann);
    two.bob.handle_message(two.now, to_bob, &req);
    let theirs = requested(&mut two.bob);
    two.bob.accept(two.now, theirs, &acceptance(two.now, 0x22)).unwrap();
    let rep = only(&mut two.bob);
    two.bob.handle_message(two.now, to_bob, &req);
    assert_eq!(only(&mut two.bob), rep, "it was accepted");
    two.ann.handle_message(two.now, to_ann, &rep);
    two.ann.handle_message(two.now, to_ann, &rep);
    assert_eq!(sent(&mut two.ann), ["MRA"], "the program has not said yet that it is ready");
    two.ann.ready(ours).unwrap();
    let rtu = only(&mut two.ann);
    two.ann.handle_message(two.now, to_ann, &rep);
    assert_eq!(only(&mut two.ann), rtu);
    two.bob.handle_message(two.now, to_bob, &rtu);
    two.bob.handle_message(two.now, to_bob, &rtu);
    two.bob.handle_message(two.now, to_bob, &req);
    assert_eq!(sent(&mut two.bob), [""; 0], "it stands");
    two.ann.disconnect(two.now, ours, b"").unwrap();
    let dreq = only(&mut two.ann);
    two.ann.handle_message(two.now, to_ann, &rep);
    two.bob.handle_message(two.now, to_bob, &dreq);
    let drep = only(&mut two.bob);
    two.bob.handle_message(two.now, to_bob, &dreq);
    let again = only(&mut two.bob);
    assert_eq!((again.message, again.transaction_id), (drep.message, dreq.transaction_id));
    two.bob.handle_message(two.now, to_bob, &req);
    two.bob.handle_message(two.now, to_bob, &rtu);
    assert_eq!(sent(&mut two.bob), [""; 0], "it is over");
    two.ann.handle_message(two.now, to_ann, &drep);
    two.ann.handle_message(two.now, to_ann, &drep);
    two.ann.handle_message(two.now, to_ann, &rep);
    let refused = rej(&only(&mut two.ann));
    assert_eq!((refused.reason, refused.message), (RejectReason::INVALID_COMM_ID, AnswerTo::Rep));
    assert_eq!(
        books(&two.ann),
        [("received", 7), ("sent", 6), ("duplicates", 5), ("established", 1), ("ended", 1)]
    );
    assert_eq!(
        books(&two.bob),
        [
            ("received", 9),
            ("sent", 4),
            ("duplicates", 5),
            ("established", 1),
            ("ended", 1),
            ("unexpected", 1)
        ]
    );
    let all = std::iter::from_fn(|| two.ann.poll_event()).count();
    assert_eq!(all, 3, "accepted, established, ended: each once");
    assert_eq!(std::iter::from_fn(|| two.bob.poll_event()).count(), 2, "established, ended");
}

/// Messages that a connection of this state has no use for are counted, and nothing else.
#[test]
fn messages_out_of_place() {
    let mut two = Two::new();
    let ours = two.ask(0x11);
    two.exchange();
    let theirs = requested(&mut two.bob);
    let mra = Mra { message: AnswerTo::Rep, service_timeout: Timeout::MAX, ..Mra::default() };
    let to_ann: [CmMessage; 3] = [
        Rtu { local_comm_id: theirs, remote_comm_id: ours, ..Rtu::default() }.into(),
        Drep { local_comm_id: theirs, remote_comm_id: ours, ..Drep::default() }.into(),
        Mra { local_comm_id: theirs, remote_comm_id: ours, ..mra }.into(),
    ];
    let to_bob: [CmMessage; 5] = [
        Rep { local_comm_id: ours, remote_comm_id: theirs, ..Rep::default() }.into(),
        // It has no queue pair yet, and so this names the right one.
        Dreq { local_comm_id: ours, remote_comm_id: theirs, remote_qpn: Qpn::SMI, ..Dreq::default() }.into(),
        Rtu { local_comm_id: ours, remote_comm_id: theirs, ..Rtu::default() }.into(),
        Drep { local_comm_id: ours, remote_comm_id: theirs, ..Drep::default() }.into(),
        Mra { local_comm_id: ours, remote_comm_id: theirs, message: AnswerTo::Req, ..mra }.into(),
    ];
    for message in to_ann {
        two.ann.handle_message(two.now, ends(1, 2), &CmMad::new(1, message));
    }
    for message in to_bob {
        two.bob.handle_message(two.now, ends(2, 1), &CmMad::new(1, message));
    }
    assert_eq!(books(&two.ann), [("received", 3), ("sent", 1), ("unexpected", 3)]);
    assert_eq!(books(&two.bob), [("received", 6), ("unexpected", 5)]);
    assert!(two.ann.is_asking(ours) && two.bob.is_pending(theirs));
    assert_eq!((two.ann.poll_event(), two.bob.poll_event()), (None, None));
}

/// A queue pair of the peer that is connected to us already cannot accept once more.
#[test]
fn an_acceptance_by_a_queue_pair_that_is_taken() {
    let mut two = Two::new();
    two.connected(0x11);
    let second = two.ask(0x31);
    two.exchange();
    let theirs = requested(&mut two.bob);
    two.bob.accept(two.now, theirs, &acceptance(two.now, 0x12)).unwrap();
    two.exchange();
    let Some((failed, Event::Failed(Failure::Rejected { reason, .. }))) = two.ann.poll_event() else {
        panic!("it was taken")
    };
    assert_eq!((failed, reason), (second, RejectReason::STALE_CONNECTION));
    assert_eq!(books(&two.ann), [("received", 2), ("sent", 4), ("established", 1), ("stale", 1)]);
    assert_eq!(books(&two.bob), [("received", 4), ("sent", 2), ("established", 1), ("rejected", 1)]);
}

/// The acceptance was lost, and so was what took it back; its end arrives.
#[test]
fn an_end_before_the_acceptance() {
    let mut two = Two::new();
    let ours = two.ask(0x11);
    two.exchange();
    let theirs = requested(&mut two.bob);
    let dreq = Dreq { local_comm_id: theirs, remote_comm_id: ours, ..Dreq::default() };
    let wrong = Dreq { remote_qpn: Qpn::new(0x12), ..dreq };
    two.ann.handle_message(two.now, ends(1, 2), &CmMad::new(1, wrong));
    assert_eq!((sent(&mut two.ann), two.ann.poll_event()), (vec![], None));
    let right = Dreq { remote_qpn: Qpn::new(0x11), ..dreq };
    two.ann.handle_message(two.now, ends(1, 2), &CmMad::new(1, right));
    assert_eq!(sent(&mut two.ann), ["DREP"]);
    let Some((failed, Event::Failed(Failure::Rejected { reason, .. }))) = two.ann.poll_event() else {
        panic!("it was taken back")
    };
    assert_eq!((failed, reason), (ours, RejectReason::TIMEOUT));
    assert_eq!(books(&two.ann), [("received", 2), ("sent", 2), ("rejected", 1), ("unexpected", 1)]);
}

/// A peer that rejects its own connection after it stood ends it, whichever side had asked for the end.
#[test]
fn a_rejection_of_what_stands() {
    for asked in [false, true] {
        let mut two = Two::new();
        let (ours, theirs) = two.connected(0x11);
        if asked {
            two.ann.disconnect(two.now, ours, b"").unwrap();
        }
        let reason = RejectReason::TIMEOUT;
        let rejection = Rej {
            local_comm_id: theirs,
            remote_comm_id: ours,
            message: AnswerTo::Other,
            reason,
            ..Rej::default()
        };
        let late = Rej { message: AnswerTo::Req, ..rejection };
        two.ann.handle_message(two.now, ends(1, 2), &CmMad::new(1, late));
        assert_eq!(two.ann.poll_event(), None);
        two.ann.handle_message(two.now, ends(1, 2), &CmMad::new(1, rejection));
        let end = if asked { End::Here } else { End::Peer };
        assert_eq!(two.ann.poll_event(), Some((ours, Event::Ended(end))));
        two.ann.handle_message(two.now, ends(1, 2), &CmMad::new(1, rejection));
        assert_eq!((two.ann.poll_event(), two.ann.open()), (None, 0));
        let counters = two.ann.counters();
        assert_eq!((counters.ended, counters.unexpected, counters.rejected), (1, 2, 0));
    }
}

/// A message for a connection that is not there is counted as such, and so is a request that was given up unheard.
#[test]
fn messages_for_nothing() {
    let mut two = Two::new();
    let nothing = ferroce_wire::mad::CommId(0x0200_0009);
    let rtu = Rtu { local_comm_id: nothing, remote_comm_id: nothing, ..Rtu::default() };
    two.ann.handle_message(two.now, ends(1, 2), &CmMad::new(1, rtu));
    let given_up = Rej { local_comm_id: nothing, reason: RejectReason::TIMEOUT, ..Rej::default() };
    two.ann.handle_message(two.now, ends(1, 2), &CmMad::new(1, given_up));
    assert_eq!(books(&two.ann), [("received", 2), ("unknown", 2)]);
    assert_eq!(sent(&mut two.ann), [""; 0]);
    // A request is given up for one reason only, and by its own peer.
    let ours = two.ask(0x11);
    two.exchange();
    let theirs = requested(&mut two.bob);
    let withdrawal = Rej { local_comm_id: ours, ..given_up };
    for (from, reason) in [(ends(2, 1), RejectReason::CONSUMER), (ends(3, 1), RejectReason::TIMEOUT)] {
        two.bob.handle_message(two.now, from, &CmMad::new(1, Rej { reason, ..withdrawal }));
    }
    assert!(two.bob.is_pending(theirs));
    assert_eq!(books(&two.bob), [("received", 3), ("unknown", 2)]);
    two.bob.handle_message(two.now, ends(2, 1), &CmMad::new(1, withdrawal));
    assert!(!two.bob.is_pending(theirs));
}

#[test]
fn every_state_is_told_by_its_question() {
    let told = |manager: &Manager, id| {
        [manager.is_asking(id), manager.is_pending(id), manager.awaits_ready(id), manager.is_over(id)]
    };
    let mut two = Two::new();
    let ours = two.ask(0x11);
    assert_eq!(told(&two.ann, ours), [true, false, false, false]);
    two.exchange();
    let theirs = requested(&mut two.bob);
    assert_eq!((told(&two.bob, theirs), two.bob.half_open()), ([false, true, false, false], 1));
    assert_eq!(told(&two.bob, ours), [false, false, false, true], "it was never there");
    two.bob.accept(two.now, theirs, &acceptance(two.now, 0x22)).unwrap();
    assert_eq!((told(&two.bob, theirs), two.bob.half_open()), ([false, false, true, false], 1));
    assert_eq!(two.bob.disconnect(two.now, theirs, b""), Err(Refused::NotPending), "it does not stand yet");
    two.exchange();
    assert_eq!(told(&two.ann, ours), [false; 4]);
    two.ann.ready(ours).unwrap();
    assert_eq!(two.ann.ready(ours), Err(Refused::NotPending), "once is enough");
    two.exchange();
    assert_eq!((told(&two.bob, theirs), two.bob.half_open(), two.bob.open()), ([false; 4], 0, 1));
    two.ann.disconnect(two.now, ours, b"").unwrap();
    assert_eq!(told(&two.ann, ours), [false; 4], "the peer has not confirmed");
    two.exchange();
    for (manager, id) in [(&two.ann, ours), (&two.bob, theirs)] {
        assert_eq!(told(manager, id), [false, false, false, true]);
        assert_eq!((manager.open(), manager.remembered()), (0, 1));
    }
    two.pass(TIME_WAIT);
    assert_eq!((told(&two.ann, ours), two.ann.remembered()), ([false, false, false, true], 0));
}

/// All messages of one connection bear one transaction, which no other connection has.
#[test]
fn a_transaction_is_of_one_connection() {
    let mut two = Two::new();
    let [first, second] = [0x11, 0x21].map(|qpn| {
        let id = two.ask(qpn);
        (id, only(&mut two.ann).transaction_id)
    });
    for (id, transaction) in [first, second] {
        assert_eq!(transaction & 0xffff_ffff, u64::from(id.0));
    }
    assert_eq!(first.1 >> 32, second.1 >> 32, "what was drawn for the whole manager");
    assert_ne!(first.1 >> 32, 0);
    two.pass(RESPONSE);
    let again: Vec<u64> =
        std::iter::from_fn(|| two.ann.poll_transmit()).map(|it| it.mad.transaction_id).collect();
    assert_eq!(again.len(), 2);
    assert!(again.contains(&first.1) && again.contains(&second.1));
}

#[test]
fn more_connections_than_allowed_are_refused_on_both_sides() {
    let mut two = Two::new();
    two.ann = manager(1, Limits { connections: 1, ..Limits::default() });
    let ours = two.ask(0x11);
    let more = wish(two.now, ends(1, 2), 0x21);
    assert_eq!(two.ann.connect(two.now, &more), Err(Refused::TooMany { given: 1 }));
    two.ann.abandon(two.now, ours);
    assert!(two.ann.connect(two.now, &more).is_ok(), "what is over does not count");
    let mut bob = manager(2, Limits { connections: 1, ..Limits::default() });
    bob.listen(SERVICE, 4).unwrap();
    for (number, qpn) in [(5, 0x51), (6, 0x61)] {
        let mut other = manager(number, Limits::default());
        let from = ends(number, 2);
        other.connect(two.now, &wish(two.now, from, qpn)).unwrap();
        bob.handle_message(two.now, turned(from), &only(&mut other));
    }
    assert_eq!((bob.open(), books(&bob)), (1, vec![("received", 2), ("half_open_full", 1)]));
}

#[test]
fn a_receipt_is_waited_for_as_long_as_it_says_and_one_answer_more() {
    let mut two = Two::new();
    let ours = two.ask(0x11);
    let timeout = Timeout::new(18);
    let mra =
        Mra { remote_comm_id: ours, service_timeout: timeout, message: AnswerTo::Req, ..Mra::default() };
    two.ann.handle_message(two.now, ends(1, 2), &CmMad::new(1, mra));
    assert_eq!(two.ann.poll_timeout(), Some(two.now + timeout.duration() + RESPONSE));
    // Also for the confirmation of an acceptance.
    two.exchange();
    let theirs = requested(&mut two.bob);
    two.bob.accept(two.now, theirs, &acceptance(two.now, 0x22)).unwrap();
    let mra = Mra { local_comm_id: ours, remote_comm_id: theirs, message: AnswerTo::Rep, ..mra };
    two.bob.handle_message(two.now, ends(2, 1), &CmMad::new(1, mra));
    assert_eq!(two.bob.poll_timeout(), Some(two.now + timeout.duration() + RESPONSE));
    assert_eq!((two.ann.counters().unexpected, two.bob.counters().unexpected), (0, 0));
    // However long it says: no peer makes us wait for more than a minute with one message.
    let long = Accept {
        patience: ferroce_transport::cm::Patience {
            deadline: two.now + Duration::from_secs(3600),
            ..patience(two.now)
        },
        ..acceptance(two.now, 0x22)
    };
    let mut other = Two::new();
    let ours = other.ask(0x11);
    other.exchange();
    let theirs = requested(&mut other.bob);
    other.bob.accept(other.now, theirs, &long).unwrap();
    let mra = Mra { local_comm_id: ours, remote_comm_id: theirs, service_timeout: Timeout::MAX, ..mra };
    other.bob.handle_message(other.now, ends(2, 1), &CmMad::new(1, mra));
    assert_eq!(other.bob.poll_timeout(), Some(other.now + Duration::from_secs(60) + RESPONSE));
}

/// Until its peer has surely given up: all its attempts, and the time that a receipt grants.
#[test]
fn a_request_is_kept_until_its_peer_has_given_up() {
    let decision = Timeout::new(20).duration();
    let mut two = Two::new();
    two.ask(0x11);
    let req = only(&mut two.ann);
    let kept = Timeout::at_least(RESPONSE).duration() * 4 + decision;
    two.bob.handle_message(two.now, ends(2, 1), &req);
    assert_eq!(two.bob.poll_timeout(), Some(two.now + kept));
    // A sign of life, and the same time begins anew.
    two.now = two.now + RESPONSE;
    two.bob.handle_message(two.now, ends(2, 1), &req);
    assert_eq!(two.bob.poll_timeout(), Some(two.now + kept));
    assert_eq!(sent(&mut two.bob), ["MRA"]);
    // But not for ever.
    let CmMessage::Req(mut longest) = req.message else { panic!("no request") };
    longest.max_cm_retries = 15;
    longest.remote_cm_response_timeout = Timeout::new(26);
    two.bob.handle_message(two.now, ends(2, 1), &CmMad::new(1, longest));
    assert_eq!(two.bob.poll_timeout(), Some(two.now + Duration::from_secs(120)));
}

/// 50 ms for the first question, and twice as long for each further one: 1.55 s in all.
#[test]
fn a_peer_in_doubt_has_twice_the_time_for_each_further_question() {
    let mut two = Two::new();
    let (_, theirs) = two.connected(0x11);
    let mut reborn = manager(3, Limits::default());
    reborn.connect(two.now, &wish(two.now, ends(1, 2), 0x11)).unwrap();
    two.bob.handle_message(two.now, ends(2, 1), &only(&mut reborn));
    for millis in [50, 100, 200, 400, 800] {
        assert_eq!(two.bob.poll_event(), Some((theirs, Event::Doubted)));
        assert!(two.bob.is_doubted(theirs));
        let time = Duration::from_millis(millis);
        assert_eq!(two.bob.poll_timeout(), Some(two.now + time));
        two.pass(time);
    }
    assert_eq!(two.bob.poll_event(), Some((theirs, Event::Ended(End::Stale))));
    assert!(!two.bob.is_doubted(theirs));
}
