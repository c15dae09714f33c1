//! Memory that goes while work names it.

use ferroce_verbs::*;

use super::receives::sharing;
use crate::rig::{OPEN, Rig, Shape, pattern};
use crate::waiting::until;

pub(crate) fn dropped_region_stays_until_done(rig: &Rig) {
    let (a, b) = rig.rc();
    let (source, target) = (Memory::from(pattern(5000, 1)), Memory::from(vec![0; 5000]));
    let from = a.pd.register(source.clone(), Access::empty()).unwrap();
    // The peer has no receive yet, so the SEND waits, and holds its memory.
    a.qp.send(&from).post().unwrap();
    drop(from);
    let source = source.into_boxed().expect_err("the device holds it");
    let into = b.pd.register(target.clone(), Access::LOCAL_WRITE).unwrap();
    b.qp.receive(&into).post().unwrap();
    drop(into);
    a.sent();
    assert_eq!(b.received().byte_len, 5000);
    let mut held = vec![(source, &rig.a), (target, &rig.b)];
    let mut freed = Vec::new();
    until(|| {
        // Asking for counters lets the thread inside the device leave it first.
        for (memory, host) in std::mem::take(&mut held) {
            let _ = host.context.counters();
            match memory.into_boxed() {
                Ok(bytes) => freed.push(bytes),
                Err(memory) => held.push((memory, host)),
            }
        }
        held.is_empty()
    });
    for bytes in freed {
        assert!(*bytes == *pattern(5000, 1));
    }
}

pub(crate) fn dropped_region_stays_for_shared_receives(rig: &Rig) {
    let srq = rig.b.pd.shared_receive_queue(8, 1).unwrap();
    let (a, b) = (rig.a.end(Service::Rc, &Shape::default()), sharing(&rig.b, &srq));
    rig.connect(&a.qp, &b.qp, &Shape::default().options);
    let memory = Memory::from(vec![0; 4000]);
    let region = b.pd.register(memory.clone(), Access::LOCAL_WRITE).unwrap();
    for part in 0..4 {
        srq.receive(region.slice(part * 1000..part * 1000 + 1000)).id(part as u64).post().unwrap();
    }
    // Sends of the same queue pair name it as well.
    b.qp.send(region.slice(..1000)).id(9).signaled().post().unwrap();
    drop(region);
    let memory = memory.into_boxed().expect_err("receives and a send name it");
    // A queue of another size holds it no less.
    srq.resize(4).unwrap();
    for part in 0..4_u8 {
        a.qp.send_inline(&[part + 1; 60]).post().unwrap();
        a.sent();
        assert_eq!(b.received().id, u64::from(part));
    }
    a.qp.receive(a.region.slice(..1000)).post().unwrap();
    assert_eq!((a.received().byte_len, b.sent().id), (1000, 9));
    let mut held = Some(memory);
    until(|| {
        let _ = rig.b.context.counters();
        match held.take().unwrap().into_boxed() {
            Ok(bytes) => {
                assert!((0..4).all(|part| bytes[part * 1000] == u8::try_from(part).unwrap() + 1));
                true
            }
            Err(memory) => {
                held = Some(memory);
                false
            }
        }
    });
}

/// Bytes before and behind what a peer may touch.
const MARGIN: usize = 8192;
const LEN: usize = 40_000;

/// A region in the middle of some memory, whose margins no peer may touch.
fn with_margins(pd: &ProtectionDomain) -> (MemoryRegion, MemoryRegion) {
    let memory = Memory::zeroed(LEN + 2 * MARGIN).unwrap();
    let part = pd.register_part(memory.clone(), MARGIN..MARGIN + LEN, OPEN).unwrap();
    let whole = pd.register(memory, Access::LOCAL_WRITE).unwrap();
    whole.fill(.., 0x5a).unwrap();
    (part, whole)
}

fn margins_are_untouched(whole: &MemoryRegion) {
    for range in [0..MARGIN, MARGIN + LEN..2 * MARGIN + LEN] {
        assert!(whole.to_vec(range).unwrap().iter().all(|byte| *byte == 0x5a));
    }
}

pub(crate) fn a_part_is_all_a_peer_gets(rig: &Rig) {
    let (a, b) = rig.rc();
    let (part, whole) = with_margins(&b.pd);
    let bytes = pattern(LEN, 5);
    a.region.write_at(0, &bytes).unwrap();
    a.qp.write(a.region.slice(..LEN), part.remote()).post().unwrap();
    a.sent();
    assert!(whole.to_vec(MARGIN..MARGIN + LEN).unwrap() == bytes);
    margins_are_untouched(&whole);
    // The key opens no byte more.
    let mut beyond = part.remote();
    beyond.length += 1;
    a.qp.write(a.region.slice(..=LEN), beyond).post().unwrap();
    rig.assert_refused(&a.ended(), Status::RemoteAccess);
    margins_are_untouched(&whole);
}

/// Takes completions until one fails, and asserts that only flushed ones follow.
fn first_failure(ends: impl Fn() -> Completion, count: usize) -> Option<Status> {
    let mut failure = None;
    for _ in 0..count {
        let done = ends();
        match failure {
            None if done.is_success() => {}
            None => failure = Some(done.status),
            Some(_) => assert_eq!(done.status, Status::Flushed),
        }
    }
    failure
}

pub(crate) fn deregistering_the_target_under_load(rig: &Rig) {
    for after in [0, 3, 10] {
        let (a, b) = rig.rc_with(&Shape::depth(64));
        let (part, whole) = with_margins(&b.pd);
        a.region.fill(.., 0x33).unwrap();
        let remote = part.remote();
        for _ in 0..32 {
            a.qp.write(a.region.slice(..LEN), remote).post().unwrap();
        }
        for _ in 0..after {
            a.sent();
        }
        drop(part.deregister().unwrap());
        // From here on no peer may write.
        let at_once = whole.to_vec(..).unwrap();
        a.qp.write(a.region.slice(..LEN), remote).post().unwrap();
        let failure = first_failure(|| a.ended(), 33 - after).expect("the last one cannot succeed");
        if !(rig.is_lossy() && failure == Status::RetryExceeded) {
            assert_eq!(failure, Status::RemoteAccess);
        }
        assert!(whole.to_vec(..).unwrap() == at_once, "nothing is written after deregistration");
        margins_are_untouched(&whole);
    }
}

pub(crate) fn deregistering_the_source_under_load(rig: &Rig) {
    for after in [0, 3, 10] {
        let (a, b) = rig.rc_with(&Shape::depth(64));
        let (part, _whole) = with_margins(&a.pd);
        part.fill(.., 0x33).unwrap();
        for _ in 0..32 {
            a.qp.write(&part, b.region.remote()).post().unwrap();
        }
        for _ in 0..after {
            a.sent();
        }
        drop(part.deregister().unwrap().into_boxed());
        let failure = first_failure(|| a.ended(), 32 - after);
        assert!(matches!(failure, None | Some(Status::LocalProtection)), "{failure:?}");
        let bytes = b.region.to_vec(..LEN).unwrap();
        assert!(bytes.iter().all(|byte| matches!(byte, 0 | 0x33)), "no bytes of others were sent");
        assert!(b.region.to_vec(LEN..).unwrap().iter().all(|byte| *byte == 0));
    }
}

pub(crate) fn deregistering_what_is_read(rig: &Rig) {
    for after in [0, 3, 10] {
        let (a, b) = rig.rc_with(&Shape::depth(64));
        let (part, _whole) = with_margins(&b.pd);
        part.fill(.., 0x33).unwrap();
        let remote = part.remote();
        for _ in 0..32 {
            a.qp.read(a.region.slice(..LEN), remote).post().unwrap();
        }
        for _ in 0..after {
            a.sent();
        }
        drop(part.deregister().unwrap().into_boxed());
        a.qp.read(a.region.slice(..LEN), remote).post().unwrap();
        let failure = first_failure(|| a.ended(), 33 - after).expect("the last one cannot succeed");
        if !(rig.is_lossy() && failure == Status::RetryExceeded) {
            assert_eq!(failure, Status::RemoteAccess);
        }
        let bytes = a.region.to_vec(..).unwrap();
        assert!(bytes[..LEN].iter().all(|byte| matches!(byte, 0 | 0x33)), "no bytes of others came");
        assert!(bytes[LEN..].iter().all(|byte| *byte == 0));
    }
}

pub(crate) fn deregistering_a_receive_under_load(rig: &Rig) {
    for after in [0, 3, 10] {
        let (a, b) = rig.rc_with(&Shape::depth(64));
        let (part, whole) = with_margins(&b.pd);
        a.region.fill(.., 0x33).unwrap();
        for _ in 0..32 {
            b.qp.receive(&part).post().unwrap();
        }
        for _ in 0..32 {
            a.qp.send(a.region.slice(..LEN)).post().unwrap();
        }
        for _ in 0..after {
            b.received();
        }
        drop(part.deregister().unwrap());
        let at_once = whole.to_vec(..).unwrap();
        let failure = first_failure(|| b.receive_ended(), 32 - after);
        assert!(matches!(failure, None | Some(Status::LocalProtection)), "{failure:?}");
        let refused = first_failure(|| a.ended(), 32);
        match (failure, refused) {
            (None, None) | (Some(_), Some(Status::RemoteOperation)) => {}
            (Some(_), Some(Status::RetryExceeded)) if rig.is_lossy() => {}
            other => panic!("{other:?}"),
        }
        assert!(whole.to_vec(..).unwrap() == at_once, "nothing is written after deregistration");
        margins_are_untouched(&whole);
    }
}
