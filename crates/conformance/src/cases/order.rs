//! What comes before what.

use ferroce_verbs::*;

use crate::rig::{Rig, Shape, pattern};
use crate::waiting::until;

pub(crate) fn completions_come_in_posting_order(rig: &Rig) {
    let (a, b) = rig.rc();
    let remote = b.region.remote();
    let mut wanted = Vec::new();
    for id in 0..60_u64 {
        let at = remote.slice(8 * id..8 * id + 8);
        let own = a.region.slice(0..8);
        let (work, kind) = match id % 6 {
            0 => (a.qp.write(a.region.slice(..8), at), WorkKind::Write),
            1 => (a.qp.read(own, at), WorkKind::Read),
            2 => (a.qp.fetch_add(own, at, 1), WorkKind::FetchAdd),
            3 => (a.qp.send_inline(b"x"), WorkKind::Send),
            4 if rig.a.context.can(Capability::AtomicWrites) => {
                (a.qp.atomic_write_inline(b"12345678", at), WorkKind::AtomicWrite)
            }
            _ => (a.qp.read(a.region.slice(1000..21_000), remote.slice(1000..)), WorkKind::Read),
        };
        if kind == WorkKind::Send {
            b.qp.receive(&b.region).id(id).post().unwrap();
        }
        work.id(id).post().unwrap();
        wanted.push((id, kind));
    }
    let got: Vec<_> = wanted.iter().map(|_| a.sent()).map(|done| (done.id, done.kind)).collect();
    assert_eq!(got, wanted);
    let receives: Vec<u64> = (0..10).map(|_| b.received().id).collect();
    assert_eq!(receives, [3, 9, 15, 21, 27, 33, 39, 45, 51, 57]);
}

pub(crate) fn unsignaled_work_is_silent(rig: &Rig) {
    let (a, b) = rig.rc_with(&Shape { depth: 16, ..Shape::unsignaled() });
    // Ten times as many as the queue holds: signaled ones free the places of those before them.
    for id in 0..160_u64 {
        let work = a.qp.write_inline(b"quiet", b.region.remote().slice(5 * id..)).id(id);
        if id % 8 == 7 { work.signaled() } else { work }.post().unwrap();
        if id % 16 == 15 {
            assert_eq!([a.sent().id, a.sent().id], [id - 8, id]);
        }
    }
    assert!(a.sends.poll_one().is_none());
    assert_eq!(b.region.to_vec(..800).unwrap(), b"quiet".repeat(160));
}

pub(crate) fn a_batch_is_one_list(rig: &Rig) {
    let (a, b) = rig.rc();
    let bytes = pattern(3200, 1);
    a.region.write_at(0, &bytes).unwrap();
    let mut batch = a.qp.batch();
    for part in 0..32_usize {
        let from = a.region.slice(100 * part..100 * part + 100);
        batch.add(a.qp.write(from, b.region.remote().slice(100 * part as u64..)).id(part as u64));
    }
    b.qp.receive(b.region.slice(4000..)).post().unwrap();
    batch.add(a.qp.send_inline(b"the end").id(32));
    batch.post().unwrap();
    for id in 0..=32 {
        assert_eq!(a.sent().id, id);
    }
    assert_eq!(b.received().byte_len, 7);
    assert_eq!(b.region.to_vec(..3200).unwrap(), bytes);
}

pub(crate) fn sends_arrive_in_order(rig: &Rig) {
    let (a, b) = rig.rc();
    for slot in 0..100_usize {
        b.qp.receive(b.region.slice(16 * slot..16 * slot + 16)).id(slot as u64).post().unwrap();
    }
    for number in 0..100_u64 {
        a.qp.send_inline(&number.to_le_bytes()).id(number).post().unwrap();
    }
    for number in 0..100_u64 {
        assert_eq!(a.sent().id, number);
        assert_eq!(b.received().id, number, "receives are taken in order");
        let slot = usize::try_from(number).unwrap() * 16;
        assert_eq!(b.region.to_vec(slot..slot + 8).unwrap(), number.to_le_bytes());
    }
}

pub(crate) fn a_read_after_a_write_sees_it(rig: &Rig) {
    let (a, b) = rig.rc();
    let place = b.region.remote().slice(100..6100);
    for round in 0..20_u32 {
        let bytes = pattern(6000, round);
        a.region.write_at(0, &bytes).unwrap();
        a.qp.write(a.region.slice(..6000), place).id(1).post().unwrap();
        a.qp.read(a.region.slice(10_000..16_000), place).id(2).post().unwrap();
        assert_eq!([a.sent().id, a.sent().id], [1, 2]);
        assert_eq!(a.region.to_vec(10_000..16_000).unwrap(), bytes);
    }
}

pub(crate) fn a_fence_waits_for_reads(rig: &Rig) {
    let (a, b) = rig.rc();
    let remote = b.region.remote();
    for round in 0..20_u32 {
        let bytes = pattern(10_000, round);
        b.region.write_at(0, &bytes).unwrap();
        // What the fenced WRITE sends is what the READ brings.
        a.qp.read(a.region.slice(..10_000), remote.slice(..10_000)).post().unwrap();
        a.qp.write(a.region.slice(..10_000), remote.slice(20_000..)).fence().post().unwrap();
        a.sent();
        a.sent();
        assert_eq!(b.region.to_vec(20_000..30_000).unwrap(), bytes);
    }
}

pub(crate) fn both_directions_at_once(rig: &Rig) {
    let (a, b) = rig.rc();
    let ends = [(&a, &b, 1_u32), (&b, &a, 2)];
    for (one, _, seed) in ends {
        one.region.write_at(0, &pattern(10_000, seed)).unwrap();
        for slot in 0..20_usize {
            one.qp.receive(one.region.slice(40_000 + 500 * slot..40_500 + 500 * slot)).post().unwrap();
        }
    }
    for id in 0..20_usize {
        for (one, other, _) in ends {
            let from = one.region.slice(500 * id..500 * id + 500);
            one.qp.send(from).id(id as u64).post().unwrap();
            one.qp.write(from, other.region.remote().slice(20_000 + 500 * id as u64..)).post().unwrap();
        }
    }
    for (one, other, seed) in ends {
        for _ in 0..40 {
            one.sent();
        }
        for _ in 0..20 {
            other.received();
        }
        assert_eq!(other.region.to_vec(40_000..50_000).unwrap(), pattern(10_000, seed));
        assert_eq!(other.region.to_vec(20_000..30_000).unwrap(), pattern(10_000, seed));
    }
}

pub(crate) fn four_connections_at_once(rig: &Rig) {
    let pairs: Vec<_> = (0..4).map(|_| rig.rc()).collect();
    for (seed, (a, b)) in (0_u32..).zip(&pairs) {
        a.region.write_at(0, &pattern(30_000, seed)).unwrap();
        for _ in 0..5 {
            a.qp.write(a.region.slice(..30_000), b.region.remote()).post().unwrap();
            a.qp.read(a.region.slice(30_000..60_000), b.region.remote()).post().unwrap();
        }
    }
    for (seed, (a, b)) in (0_u32..).zip(&pairs) {
        for _ in 0..10 {
            a.sent();
        }
        assert_eq!(b.region.to_vec(..30_000).unwrap(), pattern(30_000, seed));
        assert_eq!(a.region.to_vec(30_000..60_000).unwrap(), pattern(30_000, seed));
    }
}

pub(crate) fn eight_share_a_window(rig: &Rig) {
    // All of them send to the same host, so they share what may be under way to it.
    let pairs: Vec<_> = (0..8).map(|_| rig.rc()).collect();
    let post = |pair: usize| {
        let (a, b) = &pairs[pair];
        a.qp.write(a.region.slice(..32_768), b.region.remote()).post().unwrap();
    };
    for pair in 0..8 {
        (0..4).for_each(|_| post(pair));
    }
    let mut done = [0; 8];
    let mut total = 0;
    until(|| {
        for (pair, (a, _)) in pairs.iter().enumerate() {
            if let Some(completion) = a.sends.poll_one() {
                assert!(completion.is_success(), "{completion:?}");
                done[pair] += 1;
                total += 1;
                post(pair);
            }
        }
        total >= 800
    });
    // A fair share is 100.
    assert!(done.iter().all(|done| *done >= 20), "{done:?}");
}

pub(crate) fn more_reads_than_the_depth(rig: &Rig) {
    let shape = Shape::with(|options| {
        options.max_rd_atomic = 2;
        options.max_dest_rd_atomic = 2;
    });
    let (a, b) = rig.rc_with(&shape);
    b.region.store_u64(0, 0).unwrap();
    let word = b.region.remote().slice(..8);
    for id in 0..50_u64 {
        let place = 8 * usize::try_from(id).unwrap();
        a.qp.fetch_add(a.region.slice(place..place + 8), word, 1).id(id).post().unwrap();
        a.qp.read(a.region.slice(1000..6000), b.region.remote().slice(1000..)).id(id).post().unwrap();
    }
    for id in 0..50 {
        assert_eq!([a.sent().id, a.sent().id], [id, id]);
    }
    let found: Vec<u64> = (0..50).map(|place| a.region.load_u64(8 * place).unwrap()).collect();
    assert!(found.iter().copied().eq(0..50), "each was done once: {found:?}");
}

pub(crate) fn a_send_tells_of_the_writes_before_it(rig: &Rig) {
    let (a, b) = rig.rc();
    for round in 0..20_u32 {
        let bytes = pattern(30_000, round);
        a.region.write_at(0, &bytes).unwrap();
        b.qp.receive(&[]).post().unwrap();
        a.qp.write(a.region.slice(..15_000), b.region.remote()).post().unwrap();
        a.qp.write(a.region.slice(15_000..30_000), b.region.remote().slice(15_000..)).post().unwrap();
        a.qp.send(&[]).post().unwrap();
        b.received();
        assert!(b.region.to_vec(..30_000).unwrap() == bytes, "round {round}");
        for _ in 0..3 {
            a.sent();
        }
    }
}
