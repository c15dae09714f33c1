//! READs and atomics: cut to the window, repeated from where they stopped, executed once.

use crate::common::*;
use ferroce_sim::{Pair, Side, Verdict};
use ferroce_transport::{Acks, Event, State, Status};
use ferroce_wire::{AtomicEth, AtomicMasks, Body, PathMtu, Psn, ReadSegment, Request, Response, Reth};

/// A READ request that was sent: first PSN, offset in B's memory, length, packets of its answer.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Asked {
    psn: Psn,
    offset: u64,
    length: u32,
    packets: u32,
}

/// All READ requests of A, with the number of packets that were sent before each.
fn asked(pair: &Pair, mtu: PathMtu) -> Vec<(usize, Asked)> {
    let mtu = u32::try_from(mtu.bytes()).expect("at most 4096");
    let requests = pair.sent.iter().enumerate().filter_map(|(index, sent)| {
        let packet = sent.packet();
        let Body::RcRequest(Request::Read(Reth { address, length, .. })) = packet.body else { return None };
        let offset = address - pair.remote(Side::B, 0).address;
        Some((index, Asked { psn: packet.psn, offset, length, packets: length.div_ceil(mtu) }))
    });
    requests.collect()
}

/// The most READ requests that were under way at once: asked for, and the last answer not yet arrived.
fn most_under_way(pair: &Pair, mtu: PathMtu) -> usize {
    let latency = std::time::Duration::from_micros(5);
    let last_answers: Vec<_> = pair
        .sent
        .iter()
        .filter(|sent| {
            let body = sent.packet().body;
            matches!(body, Body::RcResponse(Response::Read(ReadSegment::Last(_) | ReadSegment::Only(_), _)))
        })
        .map(|sent| sent.at + latency)
        .collect();
    let requests = asked(pair, mtu);
    let under_way = requests.iter().enumerate().map(|(earlier, (index, _))| {
        let now = pair.sent[*index].at;
        earlier + 1 - last_answers.iter().filter(|at| **at <= now).count()
    });
    under_way.max().unwrap_or(0)
}

/// A READ larger than the window leaves as several requests that follow each other without a gap.
#[test]
fn a_read_larger_than_the_window_is_cut() {
    const LEN: u32 = 1_000_000;
    for depth in [1, 2, 3, 16] {
        let mtu = PathMtu::B4096;
        let mut pair = pair(|setup| {
            setup.mtu = mtu;
            setup.max_rd_atomic = depth;
            setup.psns[0] = 0xff_ffe0;
        });
        fill(&mut pair, Side::B, 0, LEN as usize, 1);
        post_read(&mut pair, 1, LEN);
        pair.run();
        assert_sends(&mut pair, Side::A, &[(1, Status::Success, LEN)]);
        assert_filled(&mut pair, Side::A, 0, LEN as usize, 1);
        let requests = asked(&pair, mtu);
        assert!(requests.len() > 4, "{} requests", requests.len());
        let (mut psn, mut offset) = (Psn::new(0xff_ffe0), 0);
        for (_, request) in &requests {
            assert_eq!((request.psn, request.offset), (psn, offset));
            // What one request brings must fit the smallest window, in true size.
            assert!(request.packets * 8768 <= 256 * 1024, "{request:?}");
            psn += request.packets;
            offset += u64::from(request.length);
        }
        assert_eq!(offset, u64::from(LEN));
        let most = most_under_way(&pair, mtu);
        assert!(most <= usize::from(depth), "{most} under way, {depth} allowed");
        assert_eq!(pair.counters(Side::A).rewinds, 0);
        assert_at_peace(&mut pair);
    }
}

/// Many small READs and atomics: never more under way than the depth allows.
#[test]
fn the_depth_holds_reads_and_atomics_back() {
    for depth in [1, 2, 5] {
        let mut pair = pair(|setup| {
            setup.max_rd_atomic = depth;
            setup.max_dest_rd_atomic = depth;
        });
        for id in 0..10 {
            post_read(&mut pair, 2 * id, 100);
            post_add(&mut pair, 2 * id + 1, (0x4000, 0x4000), 1);
        }
        pair.run();
        let ids: Vec<_> = pair.take_sends(Side::A).iter().map(|one| (one.id, one.status)).collect();
        let wanted: Vec<_> = (0..20).map(|id| (id, Status::Success)).collect();
        assert_eq!(ids, wanted);
        assert_eq!(word(&mut pair, Side::B, 0x4000), 10);
        let rounds: Vec<_> =
            pair.sent.iter().filter(|sent| sent.from == Side::A).map(|sent| sent.at).collect();
        let at_start = rounds.iter().filter(|at| **at == rounds[0]).count();
        assert_eq!(at_start, usize::from(depth));
        assert!(pair.counters(Side::A).depth_waits > 0);
        assert_eq!(pair.counters(Side::B).nak_invalid_request_sent, 0);
        assert_at_peace(&mut pair);
    }
}

/// READ partial retry: a lost response in the middle is asked for again from there, not from the start.
#[test]
fn a_lost_middle_response_is_asked_for_again_from_there() {
    let mut pair = pair(|_| {});
    fill(&mut pair, Side::B, 0, 6000, 1);
    post_read(&mut pair, 1, 6000);
    lose(&mut pair, Side::B, &[2]);
    pair.run();
    assert_wire(
        &pair,
        &[
            "A READ Request 10 ask at=0 len=6000",
            "B READ Response First 10 msn=1",
            "B READ Response Middle 11",
            "B READ Response Middle 12",
            "B READ Response Middle 13",
            "B READ Response Middle 14",
            "B READ Response Last 15 msn=1",
            "A READ Request 12 ask at=2048 len=3952",
            "B READ Response First 12 msn=1",
            "B READ Response Middle 13",
            "B READ Response Middle 14",
            "B READ Response Last 15 msn=1",
        ],
    );
    assert_sends(&mut pair, Side::A, &[(1, Status::Success, 6000)]);
    assert_filled(&mut pair, Side::A, 0, 6000, 1);
    assert_eq!(pair.counters(Side::A).implied_naks, 3, "13, 14 and 15 all say the same");
    assert_eq!(pair.counters(Side::A).rewinds, 1);
    assert_eq!(pair.counters(Side::B).duplicate_reads, 1);
    assert_at_peace(&mut pair);
}

/// Whichever response is lost, what is asked again lies inside one request as it was first sent.
#[test]
fn a_repeated_read_request_stays_within_its_first_form() {
    const LEN: u32 = 300_000;
    let mtu = PathMtu::B4096;
    for lost in 0..74 {
        let mut pair = pair(|setup| setup.mtu = mtu);
        fill(&mut pair, Side::B, 0, LEN as usize, 1);
        post_read(&mut pair, 1, LEN);
        lose(&mut pair, Side::B, &[lost]);
        pair.run();
        assert_sends(&mut pair, Side::A, &[(1, Status::Success, LEN)]);
        assert_filled(&mut pair, Side::A, 0, LEN as usize, 1);
        let mut first_forms: Vec<Asked> = Vec::new();
        for (_, request) in asked(&pair, mtu) {
            let last = request.psn + (request.packets - 1);
            let home = first_forms.iter().find(|home| request.psn.is_within(home.psn, home.packets));
            let Some(home) = home else {
                first_forms.push(request);
                continue;
            };
            assert_eq!(last, home.psn + (home.packets - 1), "lost {lost}: {request:?} of {home:?}");
            let into = request.offset.abs_diff(home.offset);
            assert_eq!(into, u64::from(home.length - request.length));
        }
        assert_eq!(pair.counters(Side::B).stale_duplicates, 0);
        assert_at_peace(&mut pair);
    }
}

/// A READ that comes again is read again: it gives what is there now (IBA 9.7.5.1.4).
#[test]
fn a_repeated_read_is_executed_again() {
    let mut pair = pair(|_| {});
    cut(&mut pair, Side::A);
    let request = Request::Read(reth(&pair, 0, 1));
    pair.memory(Side::B)[0] = b'o';
    inject_request(&mut pair, START, request);
    pair.memory(Side::B)[0] = b'n';
    inject_request(&mut pair, START, request);
    assert_wire(&pair, &["B READ Response Only 10 msn=1", "B READ Response Only 10 msn=1"]);
    let payloads: Vec<_> = pair.sent.iter().map(|sent| sent.packet().payload().to_vec()).collect();
    assert_eq!(payloads, [b"o", b"n"]);
    assert_eq!(pair.counters(Side::B).duplicate_reads, 1);
}

/// A repetition that asks for more than the request first did is none.
#[test]
fn a_repeated_read_beyond_its_first_form_is_dropped() {
    let mut pair = pair(|_| {});
    cut(&mut pair, Side::A);
    let (short, long) = (Request::Read(reth(&pair, 0, 1024)), Request::Read(reth(&pair, 0, 1025)));
    inject_request(&mut pair, START, short);
    inject_request(&mut pair, START, long);
    assert_wire(&pair, &["B READ Response Only 10 msn=1"]);
    assert_eq!(pair.counters(Side::B).stale_duplicates, 1);
    assert_eq!(pair.queue_pair(Side::B).state(), State::Rts);
}

/// An atomic that comes again after later requests gets its first answer and is not executed again.
#[test]
fn a_repeated_atomic_after_a_later_request_is_answered_from_the_replay_store() {
    let mut pair = pair(|_| {});
    cut(&mut pair, Side::A);
    set_word(&mut pair, Side::B, 0, 40);
    let Reth { address, rkey, .. } = reth(&pair, 0, 8);
    let add = Request::FetchAdd(AtomicEth { address, rkey, swap_or_add: 2, compare: 0 });
    let swap = Request::CompareSwap(AtomicEth { address, rkey, swap_or_add: 7, compare: 42 });
    inject_request(&mut pair, START, add);
    inject_request(&mut pair, START + 1, swap);
    inject_request(&mut pair, START, add);
    inject_request(&mut pair, START + 1, swap);
    let originals: Vec<_> = pair
        .sent
        .iter()
        .filter_map(|sent| match sent.packet().body {
            Body::RcResponse(Response::AtomicAcknowledge(aeth, eth)) => Some((aeth.msn.get(), eth.original)),
            _ => None,
        })
        .collect();
    assert_eq!(originals, [(1, 40), (2, 42), (1, 40), (2, 42)]);
    assert_eq!(word(&mut pair, Side::B, 0), 7);
    assert_eq!(pair.counters(Side::B).duplicate_atomics, 2);
}

/// The same of masked atomics: they share the places and the order of all others.
#[test]
fn a_repeated_masked_atomic_is_answered_from_the_replay_store() {
    let mut pair = pair(|_| {});
    cut(&mut pair, Side::A);
    set_word(&mut pair, Side::B, 0, 0x00ff_0040);
    let Reth { address, rkey, .. } = reth(&pair, 0, 8);
    let eth = |swap_or_add, compare| AtomicEth { address, rkey, swap_or_add, compare };
    let masks = |swap_or_add, compare| AtomicMasks { swap_or_add, compare };
    let add = Request::MaskedFetchAdd(eth(0x0001_0002, 0), masks(0x0080_8080, 0));
    let swap = Request::MaskedCompareSwap(eth(0x7777, 0x42), masks(0xff00, 0x00ff));
    for (psn, request) in [(START, add), (START + 1, swap), (START, add), (START + 1, swap)] {
        inject_request(&mut pair, psn, request);
    }
    let originals: Vec<_> = pair
        .sent
        .iter()
        .filter_map(|sent| match sent.packet().body {
            Body::RcResponse(Response::AtomicAcknowledge(_, eth)) => Some(eth.original),
            _ => None,
        })
        .collect();
    assert_eq!(originals, [0x00ff_0040, 0x42, 0x00ff_0040, 0x42]);
    assert_eq!(word(&mut pair, Side::B, 0), 0x7742);
    assert_eq!(pair.counters(Side::B).duplicate_atomics, 2);
}

/// An atomic older than the responder must remember is dropped, not executed.
#[test]
fn an_atomic_that_is_too_old_is_neither_answered_nor_executed() {
    let mut pair = pair(|setup| setup.max_dest_rd_atomic = 2);
    cut(&mut pair, Side::A);
    let Reth { address, rkey, .. } = reth(&pair, 0, 8);
    let add = Request::FetchAdd(AtomicEth { address, rkey, swap_or_add: 1, compare: 0 });
    for psn in START..START + 3 {
        inject_request(&mut pair, psn, add);
    }
    inject_request(&mut pair, START, add);
    assert_eq!(wire_of(&pair, Side::B).len(), 3);
    assert_eq!(word(&mut pair, Side::B, 0), 3);
    assert_eq!(pair.counters(Side::B).stale_duplicates, 1);
    assert_eq!(pair.queue_pair(Side::B).state(), State::Rts);
}

/// More READs at once than the responder promised to hold is an invalid request (IBA 9.7.4.1.4).
#[test]
fn too_many_outstanding_reads_are_an_invalid_request() {
    let mut pair = pair(|setup| {
        setup.max_rd_atomic = 3;
        setup.max_dest_rd_atomic = 2;
    });
    for id in 1..4 {
        post_read(&mut pair, id, 100);
    }
    let now = pair.now();
    // All three arrive before B sends anything.
    while let Some(datagram) = pair.node(Side::A).transmit(now, 0, Acks::Send) {
        pair.node(Side::B).receive(now, &datagram);
    }
    pair.run();
    // What came before is answered first: a NAK speaks for everything before it.
    let answers =
        ["B READ Response Only 10 msn=1", "B READ Response Only 11 msn=2", "B NAK Invalid Request 12 msn=2"];
    assert_eq!(wire_of(&pair, Side::B), answers);
    assert_eq!(pair.counters(Side::B).nak_invalid_request_sent, 1);
    let wanted = [(1, Status::Success, 100), (2, Status::Success, 100), (3, Status::RemoteInvalidRequest, 0)];
    assert_sends(&mut pair, Side::A, &wanted);
    assert_states(&pair, State::Err, State::Err);
    assert_events(&mut pair, &[], &[Event::RequestError]);
}

/// The duplicate of an atomic request on the wire, with nothing lost, is one execution.
#[test]
fn a_duplicated_atomic_packet_is_one_execution() {
    let mut pair = pair(|_| {});
    pair.filter(|sent| if sent.from == Side::A { Verdict::Duplicate } else { Verdict::Deliver });
    for id in 0..10 {
        post_add(&mut pair, id, (64, 8 * id), 1);
    }
    pair.run();
    assert_eq!(word(&mut pair, Side::B, 64), 10);
    for id in 0..10_u8 {
        assert_eq!(word(&mut pair, Side::A, 8 * usize::from(id)), u64::from(id));
    }
    let ids: Vec<_> = pair.take_sends(Side::A).iter().map(|one| (one.id, one.status)).collect();
    assert_eq!(ids, (0..10).map(|id| (id, Status::Success)).collect::<Vec<_>>());
    assert_at_peace(&mut pair);
}
