//! Every operation of a reliable connection.

use ferroce_verbs::*;

use crate::rig::{Rig, pattern};

pub(crate) fn send_arrives(rig: &Rig) {
    let (a, b) = rig.rc();
    let message = pattern(777, 1);
    a.region.write_at(10, &message).unwrap();
    b.qp.receive(b.region.slice(100..1100)).id(7).post().unwrap();
    a.qp.send(a.region.slice(10..787)).id(3).post().unwrap();
    let (sent, got) = (a.sent(), b.received());
    assert_eq!((sent.id, sent.kind, sent.qpn), (3, WorkKind::Send, a.qp.qpn()));
    assert_eq!((got.id, got.kind, got.byte_len, got.qpn), (7, WorkKind::Receive, 777, b.qp.qpn()));
    assert_eq!((got.imm, got.invalidated, got.source_qp, got.solicited), (None, None, None, false));
    assert_eq!(b.region.to_vec(100..877).unwrap(), message);
    assert_eq!(b.region.to_vec(..100).unwrap(), [0; 100], "before it");
    assert_eq!(b.region.to_vec(877..2000).unwrap(), [0; 1123], "behind it");
}

pub(crate) fn send_with_immediate(rig: &Rig) {
    let (a, b) = rig.rc();
    for imm in [0, 0x1234_5678, u32::MAX] {
        b.qp.receive(&b.region).post().unwrap();
        a.qp.send_inline(b"with a number").imm(imm).solicited().post().unwrap();
        assert_eq!(a.sent().kind, WorkKind::Send);
        let got = b.received();
        assert_eq!(
            (got.kind, got.byte_len, got.imm, got.solicited),
            (WorkKind::Receive, 13, Some(imm), rig.marks())
        );
    }
}

pub(crate) fn write_arrives(rig: &Rig) {
    let (a, b) = rig.rc();
    let bytes = pattern(1000, 2);
    a.region.write_at(0, &bytes).unwrap();
    a.qp.write(a.region.slice(..1000), b.region.remote().slice(5000..)).id(9).post().unwrap();
    let done = a.sent();
    assert_eq!((done.id, done.kind), (9, WorkKind::Write));
    assert_eq!(b.region.to_vec(5000..6000).unwrap(), bytes);
    assert_eq!(b.region.to_vec(..5000).unwrap(), [0; 5000]);
    assert_eq!(b.region.to_vec(6000..8000).unwrap(), [0; 2000]);
    assert!(b.receives.poll_one().is_none(), "a WRITE is not announced");
}

pub(crate) fn write_with_immediate(rig: &Rig) {
    let (a, b) = rig.rc();
    let bytes = pattern(9000, 3);
    a.region.write_at(0, &bytes).unwrap();
    b.qp.receive(&[]).id(4).post().unwrap();
    b.qp.receive(b.region.slice(..8)).id(5).post().unwrap();
    a.qp.write(a.region.slice(..9000), b.region.remote().slice(64..)).imm(77).solicited().post().unwrap();
    a.qp.write(a.region.slice(..0), b.region.remote()).imm(78).post().unwrap();
    assert_eq!((a.sent().kind, a.sent().kind), (WorkKind::Write, WorkKind::Write));
    let (first, second) = (b.received(), b.received());
    assert_eq!((first.id, first.kind, first.byte_len), (4, WorkKind::ReceiveWithImm, 9000));
    assert_eq!((first.imm, first.solicited), (Some(77), rig.marks()));
    assert_eq!((second.id, second.byte_len, second.imm, second.solicited), (5, 0, Some(78), false));
    assert_eq!(b.region.to_vec(64..9064).unwrap(), bytes);
    assert_eq!(b.region.to_vec(..64).unwrap(), [0; 64], "a receive is taken, not written");
}

pub(crate) fn read_brings(rig: &Rig) {
    let (a, b) = rig.rc();
    let bytes = pattern(9001, 4);
    b.region.write_at(33, &bytes).unwrap();
    a.qp.read(a.region.slice(7..9008), b.region.remote().slice(33..)).id(1).post().unwrap();
    let done = a.sent();
    assert_eq!((done.id, done.kind, done.byte_len), (1, WorkKind::Read, 9001));
    assert_eq!(a.region.to_vec(7..9008).unwrap(), bytes);
    assert_eq!(a.region.to_vec(..7).unwrap(), [0; 7]);
    assert_eq!(a.region.to_vec(9008..10_000).unwrap(), [0; 992]);
}

pub(crate) fn compare_and_swap(rig: &Rig) {
    let (a, b) = rig.rc();
    b.region.store_u64(4096, 40).unwrap();
    let word = b.region.remote().slice(4096..4104);
    a.qp.compare_swap(a.region.slice(0..8), word, 40, u64::MAX).id(1).post().unwrap();
    a.qp.compare_swap(a.region.slice(8..16), word, 40, 1).id(2).post().unwrap();
    let (first, second) = (a.sent(), a.sent());
    assert_eq!((first.id, first.kind, first.byte_len), (1, WorkKind::CompareSwap, 8));
    assert_eq!((second.id, second.kind), (2, WorkKind::CompareSwap));
    assert_eq!(
        (a.region.load_u64(0), a.region.load_u64(8)),
        (Ok(40), Ok(u64::MAX)),
        "the second found another"
    );
    assert_eq!(b.region.load_u64(4096), Ok(u64::MAX));
    assert_eq!((b.region.load_u64(4088), b.region.load_u64(4104)), (Ok(0), Ok(0)));
}

pub(crate) fn masked_compare_and_swap(rig: &Rig) {
    rig.needs(Capability::MaskedAtomics);
    let (a, b) = rig.rc();
    b.region.store_u64(64, 0x1122_3344_5566_7788).unwrap();
    let word = b.region.remote().slice(64..72);
    let swap = MaskedSwap { compare: 0x88, compare_mask: 0xff, swap: 0, swap_mask: 0xff << 56 };
    let other = MaskedSwap { compare: 0x89, ..swap };
    let never = MaskedSwap { compare_mask: 0, swap_mask: 0, ..swap };
    for (id, swap) in (1..).zip([swap, other, never]) {
        let into = a.region.slice(id * 8..id * 8 + 8);
        a.qp.masked_compare_swap(into, word, swap).id(id as u64).post().unwrap();
        let done = a.sent();
        assert_eq!((done.id, done.kind, done.byte_len), (id as u64, WorkKind::MaskedCompareSwap, 8));
    }
    let after = 0x0022_3344_5566_7788;
    let found = [8, 16, 24].map(|at| a.region.load_u64(at).unwrap());
    assert_eq!(found, [0x1122_3344_5566_7788, after, after]);
    assert_eq!(b.region.load_u64(64), Ok(after));
    assert_eq!((b.region.load_u64(56), b.region.load_u64(72)), (Ok(0), Ok(0)));
}

pub(crate) fn masked_fetch_and_add(rig: &Rig) {
    rig.needs(Capability::MaskedAtomics);
    let (a, b) = rig.rc();
    b.region.store_u64(8, 0xffff_ffff_ffff_fffe).unwrap();
    let word = b.region.remote().slice(8..16);
    // Four counters of 16 bits side by side; the third and the lowest wrap around, each for itself.
    let add = MaskedAdd { add: 0x0000_0001_0000_0003, boundaries: 0x8000_8000_8000_8000 };
    let mut before = 0xffff_ffff_ffff_fffe;
    for (id, after) in (0..).zip([0xffff_0000_ffff_0001, 0xffff_0001_ffff_0004, 0xffff_0002_ffff_0007]) {
        a.qp.masked_fetch_add(a.region.slice(..8), word, add).id(id).post().unwrap();
        let done = a.sent();
        assert_eq!((done.id, done.kind, done.byte_len), (id, WorkKind::MaskedFetchAdd, 8));
        assert_eq!(a.region.load_u64(0), Ok(before));
        before = after;
    }
    assert_eq!(b.region.load_u64(8), Ok(0xffff_0002_ffff_0007));
}

pub(crate) fn fetch_and_add(rig: &Rig) {
    let (a, b) = rig.rc();
    b.region.store_u64(8, u64::MAX - 1).unwrap();
    let word = b.region.remote().slice(8..16);
    for (round, before) in [u64::MAX - 1, 2, 6].into_iter().enumerate() {
        let add = 4;
        a.qp.fetch_add(a.region.slice(64..72), word, add).id(round as u64).post().unwrap();
        let done = a.sent();
        assert_eq!((done.id, done.kind), (round as u64, WorkKind::FetchAdd));
        assert_eq!(a.region.load_u64(64), Ok(before));
    }
    assert_eq!(b.region.load_u64(8), Ok(10), "it wraps around");

    // Its answer may go into pieces.
    let pieces = [a.region.slice(100..103), a.region.slice(200..205)];
    a.qp.fetch_add(&pieces, word, 0).post().unwrap();
    a.sent();
    let answer = [a.region.to_vec(100..103).unwrap(), a.region.to_vec(200..205).unwrap()].concat();
    assert_eq!(answer, 10_u64.to_ne_bytes());
}

pub(crate) fn atomic_write(rig: &Rig) {
    let (a, b) = rig.rc();
    a.region.store_u64(16, 0x0102_0304_0506_0708).unwrap();
    a.qp.atomic_write(a.region.slice(16..24), b.region.remote().slice(24..32)).id(5).post().unwrap();
    let done = a.sent();
    assert_eq!((done.id, done.kind), (5, WorkKind::AtomicWrite));
    assert_eq!(b.region.load_u64(24), Ok(0x0102_0304_0506_0708));
    assert_eq!((b.region.load_u64(16), b.region.load_u64(32)), (Ok(0), Ok(0)));
}

pub(crate) fn inline_forms(rig: &Rig) {
    let (a, b) = rig.rc();
    let longest = pattern(64, 5);
    b.qp.receive(b.region.slice(..100)).post().unwrap();
    {
        // It is copied when posted: what becomes of the bytes afterwards does not matter.
        let mut bytes = longest.clone();
        a.qp.send_inline(&bytes).post().unwrap();
        bytes.fill(0xee);
    }
    a.qp.write_inline(&longest, b.region.remote().slice(200..)).post().unwrap();
    assert_eq!([a.sent().kind, a.sent().kind], [WorkKind::Send, WorkKind::Write]);
    assert_eq!(b.received().byte_len, 64);
    assert_eq!(b.region.to_vec(..64).unwrap(), longest);
    assert_eq!(b.region.to_vec(200..264).unwrap(), longest);
    if rig.a.context.can(Capability::AtomicWrites) {
        a.qp.atomic_write_inline(b"8 bytes!", b.region.remote().slice(400..408)).post().unwrap();
        assert_eq!(a.sent().kind, WorkKind::AtomicWrite);
        assert_eq!(b.region.to_vec(400..408).unwrap(), b"8 bytes!");
    }
}

pub(crate) fn gather_and_scatter(rig: &Rig) {
    let (a, b) = rig.rc();
    let bytes = pattern(20_000, 6);
    a.region.write_at(0, &bytes).unwrap();
    // Pieces that are empty, odd, and longer than a packet.
    let from =
        [a.region.slice(1..1), a.region.slice(100..103), a.region.slice(5000..14_001), a.region.slice(0..1)];
    let wanted = [&bytes[100..103], &bytes[5000..14_001], &bytes[0..1]].concat();
    let into =
        [b.region.slice(10..15), b.region.slice(20..20), b.region.slice(1000..9000), b.region.slice(9500..)];
    let scattered = || {
        let parts = [b.region.to_vec(10..15), b.region.to_vec(1000..9000), b.region.to_vec(9500..10_500)];
        parts.map(Result::unwrap).concat()
    };
    b.qp.receive(&into).post().unwrap();
    a.qp.send(&from).post().unwrap();
    a.sent();
    assert_eq!(b.received().byte_len as usize, wanted.len());
    assert_eq!(scattered(), wanted);

    b.region.fill(.., 0).unwrap();
    a.qp.write(&from, b.region.remote().slice(3..)).post().unwrap();
    a.sent();
    assert_eq!(b.region.to_vec(3..3 + wanted.len()).unwrap(), wanted);
    assert_eq!(b.region.to_vec(3 + wanted.len()..10_000).unwrap(), vec![0; 10_000 - 3 - wanted.len()]);

    b.region.write_at(30_000, &bytes).unwrap();
    let into =
        [a.region.slice(40_000..40_007), a.region.slice(50_000..60_000), a.region.slice(41_000..41_001)];
    a.qp.read(&into, b.region.remote().slice(30_000..)).post().unwrap();
    assert_eq!(a.sent().byte_len, 10_008);
    let parts =
        [a.region.to_vec(40_000..40_007), a.region.to_vec(50_000..60_000), a.region.to_vec(41_000..41_001)];
    assert_eq!(parts.map(Result::unwrap).concat(), bytes[..10_008]);
}
