//! Unreliable connections.

use ferroce_transport::{SendOp, Sge};
use ferroce_verbs::*;

use crate::rig::{Rig, pattern};
use crate::waiting::until;

pub(crate) fn uc_send(rig: &Rig) {
    let (a, b) = rig.uc();
    let bytes = pattern(10_000, 1);
    a.region.write_at(0, &bytes).unwrap();
    for imm in [None, Some(5)] {
        b.region.fill(.., 0).unwrap();
        for id in 0..if rig.is_lossy() { 50 } else { 1 } {
            b.qp.receive(b.region.slice(1..20_001)).id(id).post().unwrap();
        }
        loop {
            let got = rig.deliver(&a, &b, || {
                let work = a.qp.send(a.region.slice(..10_000));
                imm.map_or(work, |imm| work.imm(imm)).post().unwrap();
            });
            assert_eq!((got.kind, got.byte_len), (WorkKind::Receive, 10_000));
            // A message of the round before may have come twice.
            if got.imm == imm {
                break;
            }
            assert!(rig.is_lossy());
        }
        assert_eq!(b.region.to_vec(1..10_001).unwrap(), bytes);
        assert_eq!(b.region.load_u8(10_001), Ok(0));
    }
}

pub(crate) fn uc_write(rig: &Rig) {
    let (a, b) = rig.uc();
    let bytes = pattern(10_000, 2);
    a.region.write_at(0, &bytes).unwrap();
    let arrived = || b.region.to_vec(64..10_064).unwrap() == bytes;
    let mut first = true;
    while !arrived() {
        if first || rig.is_lossy() {
            a.qp.write(a.region.slice(..10_000), b.region.remote().slice(64..)).post().unwrap();
            let done = a.sent();
            assert_eq!(done.kind, WorkKind::Write);
            first = false;
        }
        std::thread::yield_now();
    }
    assert_eq!((b.region.load_u8(63), b.region.load_u8(10_064)), (Ok(0), Ok(0)));
}

pub(crate) fn uc_write_with_immediate(rig: &Rig) {
    let (a, b) = rig.uc();
    let bytes = pattern(10_000, 3);
    a.region.write_at(0, &bytes).unwrap();
    for id in 0..if rig.is_lossy() { 50 } else { 1 } {
        b.qp.receive(&[]).id(id).post().unwrap();
    }
    let got = rig.deliver(&a, &b, || {
        a.qp.write(a.region.slice(..10_000), b.region.remote()).imm(6).post().unwrap();
    });
    assert_eq!((got.kind, got.byte_len, got.imm), (WorkKind::ReceiveWithImm, 10_000, Some(6)));
    assert_eq!(b.region.to_vec(..10_000).unwrap(), bytes);
}

pub(crate) fn uc_messages_come_whole_or_not_at_all(rig: &Rig) {
    const LEN: usize = 10_000;
    let (a, b) = rig.uc();
    let mut arrived = 0;
    let mut sent = 0_u32;
    // Four slots: a message that is torn keeps its receive, so slots are taken in turn.
    for slot in 0..4_usize {
        b.qp.receive(b.region.slice(16_000 * slot..16_000 * slot + LEN)).id(slot as u64).post().unwrap();
    }
    while arrived < 40 {
        a.region.write_at(0, &pattern(LEN, sent)).unwrap();
        a.qp.send(a.region.slice(..LEN)).imm(sent).post().unwrap();
        a.sent();
        sent += 1;
        assert!(sent < 1000, "{arrived} of {sent} arrived");
        let next = match rig.is_lossy() {
            false => Some(b.receive_ended()),
            true => (0..200).find_map(|_| {
                std::thread::yield_now();
                b.receives.poll_one()
            }),
        };
        let Some(got) = next else { continue };
        arrived += 1;
        let number = got.result().unwrap().imm.unwrap();
        let start = 16_000 * usize::try_from(got.id).unwrap();
        assert_eq!(got.byte_len as usize, LEN);
        assert!(
            b.region.to_vec(start..start + LEN).unwrap() == pattern(LEN, number),
            "message {number} is whole"
        );
        b.qp.receive(b.region.slice(start..start + LEN)).id(got.id).post().unwrap();
    }
    assert_eq!((a.qp.state(), b.qp.state()), (State::Rts, State::Rts));
    if rig.is_lossy() {
        assert!(sent > arrived, "some were lost");
    } else {
        assert_eq!((sent, b.qp.counters().uc_messages_dropped), (arrived, 0));
    }
}

pub(crate) fn uc_failed_send_stops_sending(rig: &Rig) {
    let (a, b) = rig.uc();
    let sge = Sge { lkey: Lkey(0x0bad_0000), ..a.sge(0, 8) };
    a.post_raw(1, SendOp::Send, &[sge]).unwrap();
    assert_eq!(a.ended().status, Status::LocalProtection);
    assert_eq!(a.qp.state(), State::Sqe);
    a.qp.send_inline(b"x").id(2).post().unwrap();
    assert_eq!(a.ended().status, Status::Flushed);
    // Receiving goes on (IBA 10.3.1.6).
    for id in 0..100 {
        a.qp.receive(&a.region).id(id).post().unwrap();
    }
    let got = rig.deliver(&b, &a, || b.qp.send_inline(b"still here").post().unwrap());
    assert_eq!(got.byte_len, 10);
    a.qp.modify(&Attributes::to(State::Rts), None).unwrap();
    b.qp.receive(&b.region).post().unwrap();
    assert_eq!(rig.deliver(&a, &b, || a.qp.send_inline(b"again").post().unwrap()).byte_len, 5);
}

/// What is unreliable completes as soon as it is posted, so a program that posts it, and waits for its memory
/// to change, finds each completion without looking for packets. It must not pass for one that looks: another
/// thread has to take in what comes for it.
pub(crate) fn a_poster_that_waits_for_its_memory_is_served(rig: &Rig) {
    let (a, b) = rig.uc();
    for byte in 1..=20 {
        // A program that looks in vain is left to itself.
        for _ in 0..100 {
            assert!(a.sends.poll_one().is_none());
        }
        until(|| {
            a.qp.write_inline(&[byte], b.region.remote()).post().unwrap();
            a.sent();
            b.region.load_u8(0) == Ok(byte)
        });
    }
}
