//! Members that come and go, in one process.
#![allow(clippy::unwrap_used, reason = "a test stops here")]

mod rig;

use std::sync::{Arc, Mutex};
use std::time::Duration;

use ferroce_broker::*;
use ferroce_verbs::Access;
use rig::{SOON, builder, device, members, mesh, next_message};

type Log = Arc<Mutex<Vec<Change>>>;

fn logged(builder: Builder) -> (Builder, Log) {
    let log = Log::default();
    let told = Arc::clone(&log);
    (builder.on_change(move |_, change| told.lock().unwrap().push(*change)), log)
}

/// Polls until so many changes were told.
fn wait_changes(broker: &Broker, log: &Log, count: usize) -> Vec<Change> {
    while log.lock().unwrap().len() < count {
        broker.wait_receives(SOON, |_| ()).unwrap();
    }
    log.lock().unwrap().clone()
}

#[test]
fn members_may_start_in_any_order() {
    let members = members(185, 4);
    let order = [2, 0, 3, 1];
    let brokers = order.map(|id| builder(&members, id).launch().unwrap());
    for broker in &brokers {
        broker.wait_for_all(SOON).unwrap();
        assert!(broker.peers().all(|peer| broker.is_connected(peer)));
    }
}

#[test]
fn a_member_that_leaves_and_comes_back_is_told_of_in_order() {
    let members = members(186, 3);
    let (zero, log) = logged(builder(&members, 0));
    let zero = zero.launch().unwrap();
    let two = builder(&members, 2).launch().unwrap();
    let mut lives = Vec::new();
    for life in 0..3_u32 {
        let one = builder(&members, 1).start().unwrap();
        lives.push(one.incarnation());
        for number in 0..10_u32 {
            one.wait_send(0, &[life, number].map(u32::to_be_bytes).concat(), Post::new(), SOON).unwrap();
        }
        one.leave(SOON).unwrap();
        drop(one);
        // What was said before goodbye arrives before it.
        let mut next = 0;
        while log.lock().unwrap().iter().filter(|change| change.peer() == 1).count() < 2 * (life as usize + 1)
        {
            let take = |message: Message<'_>| {
                assert_eq!(message.to_vec(), [life, next].map(u32::to_be_bytes).concat());
                assert_eq!(message.incarnation(), lives[life as usize]);
                next += 1;
            };
            zero.wait_receives(SOON, take).unwrap();
            two.poll_receives(|_| ()).unwrap();
        }
        assert_eq!(next, 10);
        let gone = zero.send(1, b"are you there?", Post::new()).unwrap_err();
        assert_eq!(gone, BrokerError::Gone { peer: 1, why: Why::Left });
    }
    let log = log.lock().unwrap();
    let told: Vec<_> = log.iter().filter(|change| change.peer() == 1).copied().collect();
    let expected: Vec<_> = lives
        .iter()
        .flat_map(|&incarnation| {
            let peer = 1;
            [Change::Joined { peer, incarnation }, Change::Left { peer, incarnation, why: Why::Left }]
        })
        .collect();
    assert_eq!(told, expected);
}

#[test]
fn dropping_the_last_clone_leaves() {
    let members = members(187, 2);
    let (zero, log) = logged(builder(&members, 0));
    let zero = zero.launch().unwrap();
    let one = builder(&members, 1).start().unwrap();
    let clone = one.clone();
    drop(one);
    zero.wait_for_all(SOON).unwrap();
    zero.send(1, b"the clone hears it", Post::new()).unwrap();
    assert_eq!(next_message(&clone).2, b"the clone hears it");
    drop(clone);
    assert!(matches!(wait_changes(&zero, &log, 2)[1], Change::Left { peer: 1, why: Why::Left, .. }));
}

#[test]
fn a_callback_may_post_when_a_member_comes() {
    let members = members(188, 2);
    let greet = |broker: &Broker, change: &Change| {
        if let Change::Joined { peer, .. } = change {
            broker.send(*peer, b"welcome", Post::new()).unwrap();
        }
    };
    let zero = builder(&members, 0).on_change(greet).launch().unwrap();
    let one = builder(&members, 1).start().unwrap();
    std::thread::scope(|scope| {
        scope.spawn(|| zero.wait_receives(SOON, |_| ()).unwrap());
        assert_eq!(next_message(&one), (0, None, b"welcome".to_vec()));
    });
}

#[test]
fn a_buffer_for_a_member_that_came_back_is_not_sent() {
    let members = members(189, 2);
    let (zero, log) = logged(builder(&members, 0).ring(1));
    let zero = zero.launch().unwrap();
    let one = builder(&members, 1).ring(1).start().unwrap();
    zero.wait_for_all(SOON).unwrap();
    let mut buf = zero.send_buf(1).unwrap();
    buf.append(b"for the first life").unwrap();
    drop(one);
    wait_changes(&zero, &log, 2);
    let one = builder(&members, 1).ring(1).start().unwrap();
    wait_changes(&zero, &log, 3);
    let gone = zero.post_send(buf, Post::new()).unwrap_err();
    assert!(matches!(gone, BrokerError::Gone { peer: 1, .. }));
    // Its place has come back.
    zero.wait_send(1, b"for the second", Post::new(), SOON).unwrap();
    assert_eq!(next_message(&one).2, b"for the second");
}

#[test]
fn lanes_share_a_region_and_keep_apart() {
    let members = members(190, 2);
    let start = |id: u32| {
        let (context, domain) = device(&members, id);
        let region = Arc::new(domain.allocate(64, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap());
        let lanes = [0, 1].map(|lane| {
            let lane = Broker::builder(id, members.clone()).device(&context, &domain).lane(lane);
            lane.expose(0, &region).launch().unwrap()
        });
        (region, lanes)
    };
    let (_, zero) = start(0);
    let (region, one) = start(1);
    let local = Arc::new(zero[0].domain().allocate(8, Access::empty()).unwrap());
    for lane in [0, 1] {
        zero[lane].wait_for_all(SOON).unwrap();
        one[lane].wait_for_all(SOON).unwrap();
        zero[lane].send(1, &[u8::try_from(lane).unwrap()], Post::new()).unwrap();
        local.write_at(0, &[lane.to_be_bytes(), [0; 8]].concat()[..8]).unwrap();
        let at = At::offset(0, lane as u64 * 8);
        let memory = Arc::new(
            zero[lane]
                .domain()
                .register(vec![0xf0 + u8::try_from(lane).unwrap(); 8], Access::empty())
                .unwrap(),
        );
        zero[lane].post_write(1, &memory, at, Post::new().imm(7)).unwrap();
    }
    for lane in [0, 1] {
        let mut got = Vec::new();
        while got.len() < 2 {
            one[lane].wait_receives(SOON, |message| got.push((message.imm(), message.to_vec()))).unwrap();
        }
        assert_eq!(got, [(None, vec![u8::try_from(lane).unwrap()]), (Some(7), vec![])]);
        assert_eq!(region.load_u8(lane * 8).unwrap(), 0xf0 + u8::try_from(lane).unwrap());
    }
}

#[test]
fn one_broker_serves_many_threads() {
    const EACH: u32 = 2_000;
    let mesh = mesh(191, 2, |builder| builder.ring(16).batch(4));
    let next = Mutex::new(([0_u32; 4], 0));
    std::thread::scope(|scope| {
        for thread in 0..4_u32 {
            let broker = &mesh[0];
            scope.spawn(move || {
                for number in 0..EACH {
                    let bytes = [thread, number].map(u32::to_be_bytes).concat();
                    broker.wait_send(1, &bytes, Post::new(), SOON).unwrap();
                }
                broker.flush(1).unwrap();
            });
        }
        // Two threads take messages off; one at a time hands them over, so they stay in order.
        for _ in 0..2 {
            let (broker, next) = (&mesh[1], &next);
            scope.spawn(move || {
                while next.lock().unwrap().1 < 4 * EACH {
                    let take = |message: Message<'_>| {
                        let bytes = message.to_vec();
                        let [thread, number] = [&bytes[..4], &bytes[4..]]
                            .map(|part| u32::from_be_bytes(part.try_into().unwrap()));
                        let mut next = next.lock().unwrap();
                        assert_eq!(next.0[thread as usize], number, "thread {thread}");
                        next.0[thread as usize] += 1;
                        next.1 += 1;
                    };
                    broker.wait_receives(Duration::from_millis(50), take).unwrap();
                }
            });
        }
    });
}

#[test]
fn members_may_share_an_address_of_either_kind() {
    for host in ["127.0.198.1", "[::1]"] {
        let members: Members = format!("{host}:7471,{host}:7472,{host}:7473").parse().unwrap();
        // As a program without a wish would start them: they meet directly.
        let brokers = [0, 1, 2].map(|id| Broker::builder(id, members.clone()).launch().unwrap());
        brokers.iter().for_each(|broker| broker.wait_for_all(SOON).unwrap());
        for (from, to) in [(0, 1), (1, 2), (2, 0)] {
            brokers[from].send(to, host.as_bytes(), Post::new().imm(0)).unwrap();
            let (peer, imm, bytes) = next_message(&brokers[to as usize]);
            assert_eq!((peer as usize, imm, &bytes[..]), (from, Some(0), host.as_bytes()));
        }
        let broadcast = brokers[0].broadcast(b"all of you", None);
        broadcast.unwrap();
        for broker in &brokers[1..] {
            let mut heard = Vec::new();
            while heard.is_empty() {
                broker.wait_datagrams(SOON, |datagram| heard = datagram.bytes).unwrap();
            }
            assert_eq!(heard, b"all of you");
        }
    }
}

#[test]
fn a_mesh_of_one_is_lonely_and_well() {
    let members = members(199, 1);
    let broker = builder(&members, 0).start().unwrap();
    assert_eq!(broker.poll_receives(|_| ()), Ok(0));
    assert_eq!(broker.wait(Duration::from_millis(5), |_| (), |_| ()), Ok(0));
    assert_eq!(broker.broadcast(b"hello?", None), Ok(()));
    broker.leave(SOON).unwrap();
}

#[test]
fn brokers_may_go_to_other_threads_and_be_shared() {
    const fn is_shared<T: Send + Sync>() {}
    is_shared::<Broker>();
    is_shared::<SendBuf>();
    is_shared::<Piece>();
}

#[test]
fn goodbye_waits_until_everything_has_arrived() {
    let mesh = mesh(192, 2, |builder| builder.ring(256).batch(256).max_message(20_000));
    for number in 0..200_u32 {
        mesh[0].send(1, &vec![u8::try_from(number).unwrap(); 20_000], Post::new()).unwrap();
    }
    mesh[0].leave(SOON).unwrap();
    let gone = mesh[0].send(1, b"too late", Post::new()).unwrap_err();
    assert_eq!(gone, BrokerError::Gone { peer: 1, why: Why::LeftHere });
    let mut next = 0_u8;
    while next < 200 {
        let take = |message: Message<'_>| {
            assert_eq!(message.to_vec(), vec![next; 20_000]);
            next += 1;
        };
        assert!(mesh[1].wait_receives(SOON, take).unwrap() > 0);
    }
}
