//! Threads, sequence numbers, and objects in unusual company.

use std::thread;

use ferroce_verbs::*;

use crate::rig::{End, Rig, Shape, pattern};
use crate::waiting::{completion, until};

pub(crate) fn two_threads_post_at_once(rig: &Rig) {
    const EACH: u64 = 200;
    let (a, b) = rig.rc_with(&Shape { completions: 512, ..Shape::depth(64) });
    let post = |thread: u64| {
        for round in 0..EACH {
            let place = b.region.remote().slice(8 * (thread * EACH + round)..);
            let work = a.qp.write_inline(&[1; 8], place).id(thread << 32 | round);
            // The queue is smaller than the work: others take completions off.
            until(|| match work.post() {
                Ok(()) => true,
                Err(PostError::Refused { error: PostRefusal::QueueFull { .. }, .. }) => false,
                Err(error) => panic!("{error}"),
            });
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| post(0));
        scope.spawn(|| post(1));
        let mut next = [0, 0];
        while next != [EACH, EACH] {
            let done = a.sent();
            let of = &mut next[usize::try_from(done.id >> 32).unwrap()];
            assert_eq!(done.id & 0xffff_ffff, *of, "in the order of each thread");
            *of += 1;
        }
    });
    let len = usize::try_from(16 * EACH).unwrap();
    assert_eq!(b.region.to_vec(..len).unwrap(), vec![1; len]);
}

pub(crate) fn ping_pong_between_sleepers(rig: &Rig) {
    const ROUNDS: u32 = 50;
    let (a, b) = rig.rc();
    let turn = |end: &End, begins: bool| {
        let from_peer = |end: &End| {
            let got = end.receive_ended();
            got.result().unwrap().imm.unwrap()
        };
        for round in 0..ROUNDS {
            end.qp.receive(&[]).post().unwrap();
            if begins {
                end.qp.send(&[]).imm(round).post().unwrap();
                assert_eq!(from_peer(end), round);
            } else {
                assert_eq!(from_peer(end), round);
                end.qp.send(&[]).imm(round).post().unwrap();
            }
            end.sent();
        }
    };
    thread::scope(|scope| {
        scope.spawn(|| turn(&b, false));
        turn(&a, true);
    });
}

pub(crate) fn atomics_are_atomic(rig: &Rig) {
    const EACH: u64 = 50;
    let pairs: Vec<(End, End)> = (0..3).map(|_| rig.rc()).collect();
    let counter = &pairs[0].1.region;
    let word = counter.remote().slice(..8);
    let add = |(a, _): &(End, End)| {
        for _ in 0..EACH {
            a.qp.fetch_add(a.region.slice(..8), word, 1).post().unwrap();
        }
        for _ in 0..EACH {
            a.sent();
        }
    };
    thread::scope(|scope| {
        for pair in &pairs {
            scope.spawn(|| add(pair));
        }
        // The program itself counts along.
        for _ in 0..EACH {
            counter.fetch_add_u64(0, 1).unwrap();
        }
    });
    assert_eq!(counter.load_u64(0), Ok(4 * EACH));
}

pub(crate) fn psn_wraps_around(rig: &Rig) {
    let shape = Shape::default();
    let (a, b) = (rig.a.end(Service::Rc, &shape), rig.b.end(Service::Rc, &shape));
    let connect = |end: &End, host: &crate::rig::Host, peer: &End, other: &crate::rig::Host| {
        let index = host.context.gid_index(host.address).unwrap();
        let rtr = Attributes::to(State::Rtr)
            .with(AttributeMask::AV)
            .with_path_mtu(PathMtu::B256)
            .with_dest_qpn(peer.qp.qpn())
            .with_rq_psn(Psn::new(0xff_fffd))
            .with_max_dest_rd_atomic(4)
            .with_min_rnr_timer(1);
        end.qp.modify(&rtr, Some(&AddressVector::new(other.address.into(), index))).unwrap();
        let rts = Attributes::to(State::Rts)
            .with_sq_psn(Psn::new(0xff_fffd))
            .with_timeout(14)
            .with_retry_count(7)
            .with_rnr_retry(7)
            .with_max_rd_atomic(4);
        end.qp.modify(&rts, None).unwrap();
    };
    connect(&a, &rig.a, &b, &rig.b);
    connect(&b, &rig.b, &a, &rig.a);
    let bytes = pattern(5000, 1);
    a.region.write_at(0, &bytes).unwrap();
    for round in 0..4_usize {
        b.qp.receive(b.region.slice(10_000 * round..10_000 * round + 5000)).post().unwrap();
        let remote = b.region.remote().slice(10_000 * round as u64..);
        a.qp.send(a.region.slice(..5000)).post().unwrap();
        a.qp.read(a.region.slice(10_000..15_000), remote).fence().post().unwrap();
        a.sent();
        a.sent();
        assert_eq!(b.received().byte_len, 5000);
        assert_eq!(a.region.to_vec(10_000..15_000).unwrap(), bytes);
        a.region.fill(10_000..15_000, 0).unwrap();
    }
}

pub(crate) fn a_queue_pair_may_be_its_own_peer(rig: &Rig) {
    rig.without_traffic();
    let a = rig.a.end(Service::Rc, &Shape::default());
    a.qp.connect_with(&a.qp.local_address(), &Shape::default().options).unwrap();
    a.region.write_at(0, b"to myself").unwrap();
    a.qp.receive(a.region.slice(100..200)).post().unwrap();
    a.qp.send(a.region.slice(..9)).post().unwrap();
    a.qp.write(a.region.slice(..9), a.region.remote().slice(200..)).post().unwrap();
    a.qp.read(a.region.slice(300..309), a.region.remote().slice(200..)).post().unwrap();
    assert_eq!(
        [a.sent().kind, a.sent().kind, a.sent().kind],
        [WorkKind::Send, WorkKind::Write, WorkKind::Read]
    );
    assert_eq!(a.received().byte_len, 9);
    for at in [100, 200, 300] {
        assert_eq!(a.region.to_vec(at..at + 9).unwrap(), b"to myself");
    }
}

pub(crate) fn a_dropped_queue_pair_is_forgotten(rig: &Rig) {
    let (a, b) = rig.rc();
    let memory = Memory::from(vec![0; 64]);
    let region = a.pd.register(memory.clone(), Access::LOCAL_WRITE).unwrap();
    for _ in 0..5 {
        a.qp.receive(&region).post().unwrap();
        a.qp.send(&region).post().unwrap();
    }
    b.until_not_ready(0);
    drop(region);
    drop(a.qp);
    assert!(memory.into_boxed().is_ok(), "its work is forgotten, and with it the memory");
    assert!(a.sends.poll_one().is_none() && a.receives.poll_one().is_none());
    assert_eq!(b.qp.state(), State::Rts, "the peer was not told");
    // Its completion queues go on.
    let fresh = rig.a.end(Service::Rc, &Shape::default());
    b.qp.reset().unwrap();
    rig.connect(&fresh.qp, &b.qp, &Shape::default().options);
    fresh.still_works(&b);
}

pub(crate) fn one_completion_queue_for_all(rig: &Rig) {
    let cq = rig.a.context.completion_queue(256).unwrap();
    let region = rig.a.pd.allocate(4096, Access::LOCAL_WRITE).unwrap();
    let pairs: Vec<(QueuePair, End)> = (0..3)
        .map(|_| {
            let qp = rig
                .a
                .pd
                .queue_pair(Service::Rc)
                .completion_queue(&cq)
                .address(rig.a.address)
                .build()
                .unwrap();
            let peer = rig.b.end(Service::Rc, &Shape::default());
            rig.connect(&qp, &peer.qp, &Shape::default().options);
            (qp, peer)
        })
        .collect();
    for (qp, peer) in &pairs {
        for id in 0..10 {
            qp.receive(&region).id(100 + id).post().unwrap();
            peer.qp.receive(&peer.region).post().unwrap();
            qp.send_inline(b"ping").id(id).post().unwrap();
            peer.qp.send_inline(b"pong").post().unwrap();
        }
    }
    let mut next = [[0, 100]; 3];
    for _ in 0..60 {
        let done = *completion(&cq, "a completion", String::new).result().unwrap();
        let place = pairs.iter().position(|(qp, _)| qp.qpn() == done.qpn).unwrap();
        let of = &mut next[place][usize::from(done.kind == WorkKind::Receive)];
        assert_eq!(done.id, *of, "each queue in its order");
        *of += 1;
    }
    assert_eq!(next, [[10, 110]; 3]);
}
