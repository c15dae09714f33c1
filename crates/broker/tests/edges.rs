//! The edges of what can be posted: each is a test with its name.
#![allow(clippy::unwrap_used, reason = "a test stops here")]

mod rig;

use std::cell::RefCell;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use ferroce_broker::*;
use ferroce_verbs::{Access, Status, WorkKind};
use rig::{SOON, mesh, next_done, next_message};

#[test]
fn a_batch_larger_than_the_ring_is_the_ring() {
    let mesh = mesh(151, 2, |builder| builder.ring(4).batch(1000));
    for number in 0..4_u32 {
        mesh[0].send(1, &number.to_be_bytes(), Post::new()).unwrap();
    }
    // The ring is full, so the doorbell has been rung without the program asking for it.
    let mut got = Vec::new();
    while got.len() < 4 {
        mesh[1].poll_receives_from(0, |message| got.push(message.to_vec())).unwrap();
    }
    assert_eq!(got, (0..4_u32).map(|number| number.to_be_bytes().to_vec()).collect::<Vec<_>>());
    let doorbells = mesh[0].status()[0].doorbells;
    // Signs of life are doorbells too.
    assert!(doorbells < 4, "{doorbells} doorbells for one batch");
}

#[test]
fn work_is_gathered_until_the_batch_is_full_or_flushed() {
    let mesh = mesh(152, 2, |builder| builder.batch(4).patience(Duration::from_secs(600)));
    let seen = || {
        let mut seen = 0;
        mesh[1].wait_receives(Duration::from_millis(100), |_| seen += 1).unwrap();
        seen
    };
    // That the other member came is told once.
    assert_eq!(mesh[1].poll_receives(|_| ()).unwrap(), 1);
    for _ in 0..3 {
        mesh[0].send(1, b"gathered", Post::new()).unwrap();
    }
    assert_eq!(seen(), 0, "three of four have not left");
    mesh[0].flush(1).unwrap();
    let mut count = 0;
    while count < 3 {
        count += seen();
    }
    for _ in 0..4 {
        mesh[0].send(1, b"a batch", Post::new()).unwrap();
    }
    while count < 7 {
        count += seen();
    }
    assert_eq!(mesh[0].status()[0].doorbells, 2, "seven messages");
    mesh[0].send(1, b"alone", Post::new()).unwrap();
    assert_eq!(seen(), 0);
    // Nothing is found, so the doorbell is rung.
    mesh[0].poll_receives(|_| ()).unwrap();
    mesh[0].poll_receives(|_| ()).unwrap();
    while count < 8 {
        count += seen();
    }
}

#[test]
fn a_ring_of_one_carries_everything_one_by_one() {
    let mesh = mesh(153, 2, |builder| builder.ring(1).batch(16));
    std::thread::scope(|scope| {
        scope.spawn(|| {
            for number in 0..500_u32 {
                mesh[0].wait_send(1, &number.to_be_bytes(), Post::new(), SOON).unwrap();
            }
        });
        let mut next = 0_u32;
        while next < 500 {
            let take = |message: Message<'_>| {
                assert_eq!(message.to_vec(), next.to_be_bytes());
                next += 1;
            };
            mesh[1].wait_receives(SOON, take).unwrap();
        }
    });
}

#[test]
fn no_message_waits_for_a_receive() {
    // Receives are posted again in groups; the sender must never come before its group.
    for (net, ring, batch) in [(167, 1, 1), (168, 7, 3), (169, 64, 16)] {
        let mesh = mesh(net, 2, |builder| builder.ring(ring).batch(batch));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for number in 0..20 * ring + 100 {
                    mesh[0].wait_send(1, &number.to_be_bytes(), Post::new(), SOON).unwrap();
                }
                mesh[0].flush(1).unwrap();
            });
            let mut next = 0;
            while next < 20 * ring + 100 {
                let take = |message: Message<'_>| {
                    assert_eq!(message.to_vec(), next.to_be_bytes());
                    next += 1;
                };
                mesh[1].wait_receives(SOON, take).unwrap();
            }
        });
        assert_eq!(mesh[1].counters(0).unwrap().rnr_sent, 0, "a ring of {ring}");
        // To fill all the room that the sender knows of takes all receives that are sure to be there.
        let mut sent = 0;
        while mesh[0].wait_send(1, b"one more", Post::new().id(1), Duration::from_millis(20)).is_ok() {
            sent += 1;
        }
        assert!(sent >= ring.div_ceil(2), "{sent} of {ring}");
        let mut done = 0;
        while done < sent {
            mesh[0]
                .wait_sends(SOON, |sent| {
                    assert_eq!(sent.result, Ok(()));
                    done += 1;
                })
                .unwrap();
        }
        assert_eq!(mesh[1].counters(0).unwrap().rnr_sent, 0, "a ring of {ring}");
    }
}

#[test]
fn a_message_of_maximum_size_arrives_whole_and_one_over_it_is_refused() {
    let mesh = mesh(154, 2, |builder| builder.max_message(100_001).ring(4));
    let bytes: Vec<u8> = (0..100_001_u32).map(|i| u8::try_from(i % 251).unwrap()).collect();
    mesh[0].send(1, &bytes, Post::new()).unwrap();
    assert_eq!(next_message(&mesh[1]).2, bytes);
    let too_long = BrokerError::TooLong { peer: 1, given: 100_002, allowed: 100_001 };
    assert_eq!(mesh[0].send(1, &[0; 100_002], Post::new()).unwrap_err(), too_long);
    let region = Arc::new(mesh[0].domain().allocate(100_002, Access::empty()).unwrap());
    assert_eq!(mesh[0].post_send_from(1, &region, Post::new()).unwrap_err(), too_long);
    let mut buf = mesh[0].send_buf(1).unwrap();
    assert_eq!(buf.capacity(), 100_001);
    assert!(buf.write_at(100_000, &[1, 2]).is_err());
    buf.write_at(100_000, &[7]).unwrap();
    mesh[0].post_send(buf, Post::new()).unwrap();
    assert_eq!(next_message(&mesh[1]).2.last(), Some(&7));
    // An empty one is a message too.
    mesh[0].send(1, &[], Post::new()).unwrap();
    assert!(next_message(&mesh[1]).2.is_empty());
}

#[test]
fn an_unknown_peer_is_an_error_that_says_so() {
    let mesh = mesh(155, 2, |builder| builder);
    let unknown = BrokerError::UnknownPeer { peer: 7 };
    assert_eq!(mesh[0].send(7, b"hello?", Post::new()).unwrap_err(), unknown);
    assert_eq!(mesh[0].send_buf(7).unwrap_err(), unknown);
    assert_eq!(mesh[0].flush(7).unwrap_err(), unknown);
    assert_eq!(mesh[0].poll_sends_to(7, |_| ()).unwrap_err(), unknown);
    assert_eq!(mesh[0].poll_receives_from(7, |_| ()).unwrap_err(), unknown);
    assert_eq!(mesh[0].send(0, b"hello, me", Post::new()).unwrap_err(), BrokerError::Myself { me: 0 });
}

#[test]
fn a_callback_that_panics_is_contained() {
    let changes = Arc::new(AtomicU64::new(0));
    let counted = Arc::clone(&changes);
    let mesh = mesh(156, 2, |builder| {
        let counted = Arc::clone(&counted);
        builder.ring(2).on_change(move |broker, _| {
            counted.fetch_add(1, Ordering::Relaxed);
            assert_ne!(broker.me(), 1, "planned");
        })
    });
    assert_eq!(mesh[1].poll_receives(|_| ()).unwrap_err(), BrokerError::Panicked { peer: 0 }, "the change");
    for number in 0..20_u32 {
        mesh[0].wait_send(1, &number.to_be_bytes(), Post::new().id(7), SOON).unwrap();
        let panicked = loop {
            match mesh[1].wait_receives(SOON, |message| panic!("planned: {message:?}")) {
                Ok(0) => panic!("nothing came"),
                Ok(_) => {}
                Err(error) => break error,
            }
        };
        assert_eq!(panicked, BrokerError::Panicked { peer: 0 });
        let panicked = mesh[0].wait_sends(SOON, |_| panic!("planned"));
        assert_eq!(panicked.unwrap_err(), BrokerError::Panicked { peer: 1 });
    }
    // Everything works as before, and nothing comes twice.
    mesh[0].send(1, b"the last", Post::new()).unwrap();
    assert_eq!(next_message(&mesh[1]).2, b"the last");
    mesh[1].send(0, b"back", Post::new()).unwrap();
    mesh[0].poll_receives(|_| ()).ok();
}

#[test]
fn immediate_data_may_be_0_and_all_ones() {
    let mesh = mesh(157, 2, |builder| builder.allocate(0, 64));
    let region = Arc::new(mesh[0].domain().allocate(8, Access::empty()).unwrap());
    for imm in [None, Some(0), Some(1), Some(u32::MAX)] {
        let post = Post { imm, ..Post::new() };
        mesh[0].send(1, b"message", post).unwrap();
        assert_eq!(next_message(&mesh[1]), (0, imm, b"message".to_vec()));
        mesh[0].post_send_from(1, &region, post).unwrap();
        assert_eq!(next_message(&mesh[1]), (0, imm, vec![0; 8]));
    }
    for imm in [0, 1, u32::MAX] {
        mesh[0].post_write(1, &region, At::offset(0, 8), Post::new().imm(imm)).unwrap();
        let mut written = Vec::new();
        while written.is_empty() {
            let take = |message: Message<'_>| {
                written.push((message.imm(), message.is_write(), message.len(), message.to_vec()));
            };
            mesh[1].wait_receives(SOON, take).unwrap();
        }
        assert_eq!(written, [(Some(imm), true, 8, vec![])]);
    }
    let refused = mesh[0].post_read(1, &region, At::offset(0, 0), Post::new().imm(0));
    assert_eq!(refused.unwrap_err(), BrokerError::NoImm);
}

#[test]
fn one_sided_work_reaches_a_peer_by_offset_and_by_address() {
    let mesh = mesh(158, 2, |builder| builder.allocate(3, 4096));
    let access = Access::LOCAL_WRITE;
    let local = Arc::new(mesh[0].domain().allocate(64, access).unwrap());
    local.write_at(0, b"by offset   by address  ").unwrap();
    let remote = mesh[0].remote(1, 3).unwrap().remote;
    assert_eq!(remote.length, 4096);
    mesh[0].post_write(1, Piece::new(&local, ..12), At::offset(3, 100), Post::new().id(1)).unwrap();
    let at = At::address(3, remote.address + 112);
    mesh[0].post_write(1, Piece::new(&local, 12..24), at, Post::new().id(2)).unwrap();
    mesh[0].post_read(1, Piece::new(&local, 32..56), At::offset(3, 100), Post::new().id(3)).unwrap();
    let mut done = Vec::new();
    while done.len() < 3 {
        mesh[0].wait_sends(SOON, |one| done.push(one)).unwrap();
    }
    let expected = [(1, WorkKind::Write), (2, WorkKind::Write), (3, WorkKind::Read)];
    assert_eq!(done.iter().map(|done| (done.id, done.kind)).collect::<Vec<_>>(), expected);
    assert!(done.iter().all(|done| done.result.is_ok() && done.peer == 1));
    assert_eq!(local.to_vec(32..56).unwrap(), b"by offset   by address  ");
    assert_eq!(mesh[1].region(3).unwrap().to_vec(100..124).unwrap(), b"by offset   by address  ");
    // A place that the peer told about in its own way.
    mesh[0].post_read(1, Piece::new(&local, ..2), remote.slice(103..105), Post::new().id(4)).unwrap();
    assert_eq!(next_done(&mesh[0]).id, 4);
    assert_eq!(local.to_vec(..2).unwrap(), b"of");
}

#[test]
fn atomics_of_many_members_add_up() {
    let mesh = mesh(159, 4, |builder| builder.allocate(0, 16));
    std::thread::scope(|scope| {
        for broker in &mesh[1..] {
            scope.spawn(move || {
                let before = Arc::new(broker.domain().allocate(8, Access::LOCAL_WRITE).unwrap());
                for _ in 0..50 {
                    broker.fetch_add(0, &before, At::offset(0, 8), 2, Post::new().id(0)).unwrap();
                    assert_eq!(next_done(broker).kind, WorkKind::FetchAdd);
                    // A lock: the thread that swaps it in has it.
                    loop {
                        broker.compare_swap(0, &before, At::offset(0, 0), (0, 1), Post::new().id(0)).unwrap();
                        assert_eq!(next_done(broker).result, Ok(()));
                        if before.load_u64(0).unwrap() == 0 {
                            break;
                        }
                    }
                    broker.compare_swap(0, &before, At::offset(0, 0), (1, 0), Post::new().id(0)).unwrap();
                    assert_eq!(next_done(broker).result, Ok(()));
                    assert_eq!(before.load_u64(0).unwrap(), 1, "another member had the lock too");
                }
            });
        }
    });
    let region = mesh[0].region(0).unwrap();
    assert_eq!((region.load_u64(0).unwrap(), region.load_u64(8).unwrap()), (0, 3 * 50 * 2));
}

#[test]
fn work_outside_of_what_is_exposed_is_refused_with_both_values() {
    let mesh = mesh(160, 2, |builder| builder.allocate(0, 100));
    let local = Arc::new(mesh[0].domain().allocate(16, Access::LOCAL_WRITE).unwrap());
    let outside = mesh[0].post_write(1, &local, At::offset(0, 90), Post::new()).unwrap_err();
    let expected = BrokerError::OutsideRegion { peer: 1, region: 0, at: 90, len: 16, start: 0, size: 100 };
    assert_eq!(outside, expected);
    let start = mesh[0].remote(1, 0).unwrap().remote.address;
    for at in [start - 1, start + 85, u64::MAX] {
        let outside = mesh[0].post_read(1, &local, At::address(0, at), Post::new()).unwrap_err();
        assert_eq!(outside, BrokerError::OutsideRegion { peer: 1, region: 0, at, len: 16, start, size: 100 });
    }
    let unknown = mesh[0].post_write(1, &local, At::offset(9, 0), Post::new()).unwrap_err();
    assert_eq!(unknown, BrokerError::UnknownRegion { peer: 1, region: 9 });
    let not_eight = mesh[0].fetch_add(1, &local, At::offset(0, 0), 1, Post::new()).unwrap_err();
    assert_eq!(not_eight, BrokerError::NotEight { given: 16 });
    let beyond = mesh[0].post_write(1, Piece::new(&local, 8..17), At::offset(0, 0), Post::new());
    assert!(matches!(beyond.unwrap_err(), BrokerError::Access(_)));
}

#[test]
fn work_that_the_device_refuses_is_told_and_the_rest_goes_on() {
    let mesh = mesh(161, 2, |builder| builder.batch(3));
    let other_domain = mesh[0].context().protection_domain().unwrap();
    let foreign = Arc::new(other_domain.allocate(8, Access::empty()).unwrap());
    for refused_at in 0..3 {
        for place in 0..3 {
            let post = Post::new().id(place);
            match place == refused_at {
                true => mesh[0].post_send_from(1, &foreign, post).unwrap(),
                false => mesh[0].send(1, b"fine", post).unwrap(),
            }
        }
        let mut done = Vec::new();
        while done.len() < 3 {
            mesh[0].wait_sends(SOON, |one| done.push(one)).unwrap();
        }
        for Done { id, result, .. } in done {
            let is_refused = matches!(result, Err(WorkFailure::Refused(_)));
            assert_eq!(is_refused, id == refused_at, "{result:?}");
        }
    }
    let mut got = 0;
    while got < 6 {
        mesh[1].wait_receives(SOON, |_| got += 1).unwrap();
    }
    assert!(mesh[0].is_connected(1));
}

#[test]
fn a_failed_request_ends_one_connection_and_a_new_one_is_made() {
    let mesh = mesh(162, 3, |builder| builder.allocate(0, 64));
    let local = Arc::new(mesh[0].domain().allocate(8, Access::LOCAL_WRITE).unwrap());
    // A place that no member has exposed.
    let mut nowhere = mesh[0].remote(1, 0).unwrap().remote;
    nowhere.length = u64::MAX;
    mesh[0].post_read(1, &local, nowhere.slice(1 << 40..(1 << 40) + 8), Post::new().id(1)).unwrap();
    mesh[0].post_read(1, &local, At::offset(0, 0), Post::new().id(2)).unwrap();
    let mut done = Vec::new();
    while done.len() < 2 {
        mesh[0].wait_sends(SOON, |one| done.push(one.result)).unwrap();
    }
    assert_eq!(done, [Err(WorkFailure::Failed(Status::RemoteAccess)), Err(WorkFailure::Ended)]);
    // The others have noticed nothing.
    mesh[0].send(2, b"still here", Post::new()).unwrap();
    assert_eq!(next_message(&mesh[2]).2, b"still here");
    // Both sides take up the new connection as they poll.
    std::thread::scope(|scope| {
        let other = scope.spawn(|| {
            let mut got = Vec::new();
            while got.is_empty() {
                mesh[1].wait_receives(SOON, |message| got = message.to_vec()).unwrap();
            }
            got
        });
        loop {
            match mesh[0].send(1, b"again", Post::new()) {
                Ok(()) => break,
                Err(BrokerError::Gone { peer: 1, .. }) => {
                    mesh[0].wait_receives(SOON, |_| ()).unwrap();
                }
                Err(error) => panic!("{error}"),
            }
        }
        assert_eq!(other.join().unwrap(), b"again");
    });
}

#[test]
fn a_full_ring_is_back_pressure_and_ends_when_the_peer_polls() {
    let mesh = mesh(163, 2, |builder| builder.ring(8));
    let mut sent = 0_u32;
    let full = loop {
        match mesh[0].send(1, &sent.to_be_bytes(), Post::new()) {
            Ok(()) => sent += 1,
            Err(BrokerError::WouldBlock { peer: 1, full: full @ Full::Peer { .. } }) => break full,
            // What is under way arrives soon.
            Err(BrokerError::WouldBlock { full: Full::Ring { .. }, .. }) => {}
            Err(error) => panic!("{error}"),
        }
    };
    assert_eq!((full, sent), (Full::Peer { room: 8 }, 8));
    let limit = Duration::from_millis(30);
    let timed_out = mesh[0].wait_send(1, b"too early", Post::new(), limit).unwrap_err();
    assert_eq!(timed_out, BrokerError::TimedOut { peer: 1, after: limit, full });
    let mut got = 0;
    while got < 8 {
        mesh[1].wait_receives(SOON, |_| got += 1).unwrap();
    }
    mesh[0].wait_send(1, b"in time", Post::new(), SOON).unwrap();
    assert_eq!(next_message(&mesh[1]).2, b"in time");
    // Work under a name holds its place until it was asked for.
    let mut named = 0;
    while mesh[0].wait_send(1, b"named", Post::new().id(named), Duration::from_millis(100)).is_ok() {
        named += 1;
        assert_eq!(next_message(&mesh[1]).2, b"named");
    }
    assert_eq!(named, 8);
    let error = mesh[0].send(1, b"more", Post::new()).unwrap_err();
    assert_eq!(error, BrokerError::WouldBlock { peer: 1, full: Full::Unpolled { ring: 8 } });
    let mut ids = Vec::new();
    mesh[0].poll_sends(|done| ids.push(done.id)).unwrap();
    assert_eq!(ids, (0..8).collect::<Vec<_>>());
}

#[test]
fn a_buffer_that_is_dropped_gives_its_place_back() {
    let mesh = mesh(164, 2, |builder| builder.ring(2));
    for _ in 0..100 {
        let first = mesh[0].send_buf(1).unwrap();
        let second = mesh[0].send_buf(1).unwrap();
        assert!(mesh[0].send_buf(1).unwrap_err().is_would_block());
        drop((first, second));
    }
    mesh[0].send(1, b"fits", Post::new()).unwrap();
    assert_eq!(next_message(&mesh[1]).2, b"fits");
}

#[test]
fn a_callback_may_post_and_poll() {
    let mesh = mesh(165, 3, |builder| builder.ring(4));
    for peer in [1, 2] {
        mesh[0].send(peer, b"question", Post::new()).unwrap();
    }
    for broker in &mesh[1..] {
        let mut answered = false;
        while !answered {
            let take = |message: Message<'_>| {
                broker.send(message.peer(), b"answer", Post::new()).unwrap();
                assert_eq!(broker.poll_receives_from(message.peer(), |_| panic!("twice")), Ok(0));
                answered = true;
            };
            broker.wait_receives(SOON, take).unwrap();
        }
    }
    let got = RefCell::new(0);
    while *got.borrow() < 2 {
        let take = |_: Message<'_>| {
            *got.borrow_mut() += 1;
            // Another peer's messages may come in here.
            mesh[0].poll_receives(|_| *got.borrow_mut() += 1).unwrap();
        };
        mesh[0].wait_receives(SOON, take).unwrap();
    }
    assert_eq!(*got.borrow(), 2);
}

#[test]
fn datagrams_reach_everybody() {
    let mesh = mesh(166, 4, |builder| builder);
    let longest = vec![5; mesh[0].max_datagram()];
    for (bytes, imm) in [(&b"hear, hear"[..], Some(0)), (&[], None), (&longest, Some(u32::MAX))] {
        mesh[0].broadcast(bytes, imm).unwrap();
        for broker in &mesh[1..] {
            let mut got = Vec::new();
            while got.is_empty() {
                broker.wait_datagrams(SOON, |datagram| got.push(datagram)).unwrap();
            }
            assert_eq!(got, [Datagram { peer: 0, imm, bytes: bytes.to_vec() }]);
        }
    }
    let too_long = mesh[0].broadcast(&vec![0; longest.len() + 1], None).unwrap_err();
    assert_eq!(too_long, BrokerError::TooLong { peer: 0, given: longest.len() + 1, allowed: longest.len() });
    assert_eq!(mesh[1].strange_datagrams(), 0);
}
