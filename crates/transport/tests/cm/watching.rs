//! Whether the peers of connections that stand still live.

use std::time::Duration;

use ferroce_transport::cm::{End, Event, Limits, Patience, answer_unknown};
use ferroce_wire::mad::{AnswerTo, CmMad, CommId, Rej, RejectReason};

use crate::common::{Two, acceptance, ends, manager, only, requested, sent, wish};

/// A connection that stands, and that both sides watch: Ann's name for it, and Bob's.
fn watched(two: &mut Two) -> (CommId, CommId) {
    let watched = |patience| Patience { watched: true, tell_end: true, ..patience };
    let mut connect = wish(two.now, ends(1, 2), 0x11);
    connect.patience = watched(connect.patience);
    let ours = two.ann.connect(two.now, &connect).expect("room");
    two.exchange();
    let theirs = requested(&mut two.bob);
    let mut accept = acceptance(two.now, 0x22);
    accept.patience = watched(accept.patience);
    two.bob.accept(two.now, theirs, &accept).expect("it waits");
    two.exchange();
    two.ann.ready(ours).expect("it waits");
    two.exchange();
    while two.ann.poll_event().is_some() || two.bob.poll_event().is_some() {}
    (ours, theirs)
}

fn is_silent(two: &Two) -> [Vec<bool>; 2] {
    [&two.ann, &two.bob].map(|manager| manager.standing().map(|it| it.is_silent).collect())
}

#[test]
fn only_what_stands_and_is_to_be_watched_is_looked_at() {
    let mut two = Two::new();
    two.connected(0x31);
    assert_eq!(two.ann.standing().count(), 0, "it is not watched");
    let (ours, theirs) = watched(&mut two);
    let seen = two.ann.standing().next().unwrap();
    assert_eq!((seen.id, seen.peer_id, seen.ends), (ours, theirs, ends(1, 2)));
    assert_eq!(is_silent(&two), [[false], [false]]);
    two.ann.disconnect(two.now, ours, b"").unwrap();
    assert_eq!((two.ann.standing().count(), two.bob.standing().count()), (0, 1));
    two.exchange();
    assert_eq!(two.bob.standing().count(), 0);
}

#[test]
fn a_peer_that_lives_gives_a_sign_whichever_side_asked_for_the_connection() {
    let mut two = Two::new();
    let (ours, theirs) = watched(&mut two);
    for _ in 0..5 {
        two.ann.probe(ours);
        two.bob.probe(theirs);
        assert_eq!(is_silent(&two), [[true], [true]]);
        two.exchange();
        assert_eq!(is_silent(&two), [[false], [false]], "both have answered");
        two.pass(Duration::from_secs(10));
    }
    assert_eq!((two.ann.poll_event(), two.bob.poll_event()), (None, None), "nothing else comes of it");
    assert_eq!((two.ann.open(), two.bob.open()), (1, 1));
}

#[test]
fn silence_ends_nothing() {
    let mut two = Two::new();
    let (ours, _) = watched(&mut two);
    for _ in 0..100 {
        two.ann.probe(ours);
        assert_eq!(sent(&mut two.ann), ["REP"]);
        two.pass(Duration::from_secs(60));
        assert_eq!(two.ann.poll_event(), None);
    }
    assert_eq!(two.ann.open(), 1);
}

#[test]
fn where_nothing_knows_of_the_connection_it_ends() {
    for asks_with_ann in [true, false] {
        let mut two = Two::new();
        let (ours, theirs) = watched(&mut two);
        let (asking, id, between) =
            if asks_with_ann { (&mut two.ann, ours, ends(1, 2)) } else { (&mut two.bob, theirs, ends(2, 1)) };
        asking.probe(id);
        // What reads in the place of a process that is gone has no memory of it, and neither has its successor.
        let answer = if asks_with_ann {
            answer_unknown(&only(asking)).unwrap()
        } else {
            let mut reborn = manager(1, Limits::default());
            reborn.handle_message(two.now, ends(1, 2), &only(asking));
            only(&mut reborn)
        };
        asking.handle_message(two.now, between, &answer);
        assert_eq!(asking.poll_event(), Some((id, Event::Ended(End::Stale))));
        assert!(asking.tells_end(id));
        assert_eq!((asking.poll_transmit(), asking.standing().count()), (None, 0));
        asking.handle_timeout(two.now + Duration::from_secs(10));
        assert_eq!((asking.poll_event(), asking.remembered()), (Some((id, Event::Forgotten)), 0));
    }
}

/// What names only the request was said of another copy of it, and a stranger does not know both names.
#[test]
fn a_rejection_that_does_not_name_both_ends_is_no_proof() {
    let mut two = Two::new();
    let (ours, theirs) = watched(&mut two);
    two.ann.probe(ours);
    let rej = Rej {
        local_comm_id: theirs,
        remote_comm_id: ours,
        message: AnswerTo::Rep,
        reason: RejectReason::INVALID_COMM_ID,
        ..Rej::default()
    };
    for wrong in [
        Rej { message: AnswerTo::Req, ..rej },
        Rej { local_comm_id: CommId(0), ..rej },
        Rej { local_comm_id: CommId(theirs.0 ^ 1), ..rej },
        Rej { remote_comm_id: CommId(ours.0 ^ 1), ..rej },
    ] {
        two.ann.handle_message(two.now, ends(1, 2), &CmMad::new(1, wrong));
        assert_eq!((two.ann.poll_event(), two.ann.open()), (None, 1), "{wrong:?}");
    }
    two.ann.handle_message(two.now, ends(1, 3), &CmMad::new(1, rej));
    assert_eq!((two.ann.poll_event(), two.ann.open()), (None, 1), "it comes from elsewhere");
    two.ann.handle_message(two.now, ends(1, 2), &CmMad::new(1, rej));
    assert_eq!(two.ann.poll_event(), Some((ours, Event::Ended(End::Stale))));
}

#[test]
fn a_connection_whose_peer_is_known_to_be_gone_ends_without_a_word() {
    let mut two = Two::new();
    let (ours, _) = watched(&mut two);
    two.ann.lost(two.now, ours);
    assert_eq!(
        (two.ann.poll_event(), two.ann.poll_transmit()),
        (Some((ours, Event::Ended(End::Stale))), None)
    );
    two.ann.lost(two.now, ours);
    assert_eq!(two.ann.poll_event(), None, "once");
    two.ann.handle_timeout(two.now + Duration::from_secs(10));
    assert_eq!(two.ann.poll_event(), Some((ours, Event::Forgotten)));
}
