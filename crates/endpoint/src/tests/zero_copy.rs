//! One-sided work from and into regions of the program's own.

use std::sync::Arc;
use std::thread;

use ferroce_verbs::{Access, Memory, MemoryRegion, RemoteRegion, Reregistration, Rkey};

use super::*;
use crate::done::DoneKind;
use crate::error::{Cause, Error};
use crate::physical::PhysicalWindow;
use crate::place::Place;

const ALL: Access = Access::REMOTE_READ.union(Access::REMOTE_WRITE).union(Access::REMOTE_ATOMIC);

fn region(connection: &Connection, len: usize) -> Arc<MemoryRegion> {
    let region = connection.protection_domain().allocate(len, Access::LOCAL_WRITE | ALL).unwrap();
    for at in 0..len / 8 {
        region.store_u64(at * 8, at as u64).unwrap();
    }
    Arc::new(region)
}

#[test]
fn regions_are_written_from_and_read_into_by_name() {
    let (a, b) = pair(117);
    let table = b.expose("table", Memory::zeroed(1 << 20).unwrap(), ALL).wait_for(SOON).unwrap();
    let remote = a.remote("table").wait_for(SOON).unwrap();
    let (from, into) = (region(&a, 1 << 20), region(&a, 1 << 20));
    into.fill(.., 0).unwrap();
    a.write_from(&remote, &from, .., None).wait_for(SOON).unwrap();
    assert!(table.to_vec(..).unwrap() == from.to_vec(..).unwrap());
    a.write_from(remote.at(4096), &from, 8..16, 9).wait_for(SOON).unwrap();
    let told = b.recv().wait_for(SOON).unwrap().unwrap();
    assert_eq!((told.written(), told.imm()), (Some(8), Some(9)));
    assert_eq!(table.load_u64(4096), Ok(1));
    a.read_into(remote.at(8), &into, 100..200).wait_for(SOON).unwrap();
    assert!(into.to_vec(100..200).unwrap() == table.to_vec(8..108).unwrap());
    assert!(into.to_vec(..100).unwrap().iter().chain(&into.to_vec(200..).unwrap()).all(|byte| *byte == 0));
    // Nothing is nothing.
    a.write_from(remote.at(1 << 20), &from, 5..5, None).wait_for(SOON).unwrap();
}

#[test]
fn places_by_address_and_key_and_by_window() {
    let memory = Memory::zeroed(4096).unwrap();
    let window = PhysicalWindow::read_write(memory, 0x5000);
    let theirs = Options::new().physical_window(window, |_| true);
    let (a, b) = pair_with(&open(117, 1), &open(117, 2), &Options::new(), &theirs);
    let (target, ours) = (region(&b, 4096), region(&a, 4096));
    let known: RemoteRegion = target.remote();
    ours.fill(.., 7).unwrap();
    a.write_from(Place::raw(known.address + 16, known.rkey), &ours, ..8, None).wait_for(SOON).unwrap();
    assert_eq!(target.to_vec(8..32).unwrap()[8..16], [7; 8]);
    a.read_into(known, &ours, ..8).wait_for(SOON).unwrap();
    assert_eq!(ours.load_u64(0), Ok(0));
    let outside = Error::OutsidePlace { address: known.address, len: 4096, room: 4095 };
    let short = RemoteRegion { length: 4095, ..known };
    assert_eq!(a.write_from(short, &ours, .., None).wait_for(SOON), Err(outside));
    let around = a.read_into(Place::raw(u64::MAX - 6, known.rkey), &ours, ..8).wait_for(SOON);
    assert_eq!(around, Err(Error::OutsidePlace { address: u64::MAX - 6, len: 8, room: 7 }));
    // By address, without a key.
    ours.fill(.., 3).unwrap();
    a.write_from(Place::physical(0x5010), &ours, ..100, None).wait_for(SOON).unwrap();
    ours.fill(.., 0).unwrap();
    a.read_into(Place::physical(0x5010), &ours, 100..200).wait_for(SOON).unwrap();
    assert_eq!(ours.to_vec(100..200).unwrap(), [3; 100]);
    let beyond = a.read_into(Place::physical(0x5fff), &ours, ..2).wait_for(SOON);
    assert_eq!(beyond, Err(Error::OutsideWindow { address: 0x5fff, len: 2, start: 0x5000, size: 4096 }));
    let none = b.read_into(Place::physical(0x5000), &target, ..1).wait_for(SOON);
    assert_eq!(none, Err(Error::NoWindow));
}

#[test]
fn regions_that_do_not_do_are_refused_here_and_the_connection_stands() {
    let (a, b) = pair(117);
    let _open = b.expose("t", Memory::zeroed(64).unwrap(), ALL).wait_for(SOON).unwrap();
    let remote = a.remote("t").wait_for(SOON).unwrap();
    let ours = region(&a, 64);
    let outside = a.write_from(&remote, &ours, 60..70, None).wait_for(SOON);
    assert_eq!(outside, Err(Error::OutsideBuffer { offset: 60, len: 10, size: 64 }));
    let long = region(&a, 128);
    let too_long = a.write_from(&remote, &long, .., None).wait_for(SOON);
    let name = || "t".to_owned();
    assert_eq!(too_long, Err(Error::OutsideExposed { name: name(), offset: 0, len: 128, size: 64 }));
    let begun = a.begin_read(1, remote.at(60), &ours, ..8).wait_for(SOON);
    assert_eq!(begun, Err(Error::OutsideExposed { name: name(), offset: 60, len: 8, size: 64 }));
    // Of another connection, and one that may not be written.
    let foreign = region(&b, 64);
    assert_eq!(a.write_from(&remote, &foreign, .., None).wait_for(SOON), Err(Error::OtherConnection));
    assert_eq!(a.read_into(&remote, &foreign, ..).wait_for(SOON), Err(Error::OtherConnection));
    let constant = Arc::new(a.protection_domain().allocate(64, Access::empty()).unwrap());
    let refused = a.read_into(&remote, &constant, ..).wait_for(SOON);
    assert!(matches!(refused, Err(Error::NotAllowed { .. })), "{refused:?}");
    // It does for writing.
    a.write_from(&remote, &constant, .., None).wait_for(SOON).unwrap();
    assert_eq!(a.next_done().wait_for(SOON), Ok(None), "nothing was begun");
}

#[test]
fn begun_work_is_collected_in_order_and_has_a_limit() {
    let ours = Options::new().send_depth(8).signal_every(4);
    let (a, b) = pair_with(&open(117, 1), &open(117, 2), &ours, &Options::new());
    let table = b.expose("t", Memory::zeroed(1 << 16).unwrap(), ALL).wait_for(SOON).unwrap();
    let remote = a.remote("t").wait_for(SOON).unwrap();
    let (from, into) = (region(&a, 1 << 16), region(&a, 1 << 16));
    for (tag, at) in (0..8_u64).zip((0..).step_by(8)) {
        a.begin_write(tag, remote.at(tag * 8), &from, at..at + 8, None).wait_for(SOON).unwrap();
    }
    // Done or not, nothing has heard of them: there is no room for a ninth.
    a.flush().wait_for(SOON).unwrap();
    let moment = Duration::from_millis(20);
    let full = a.begin_write(8, &remote, &from, ..8, None).wait_for(moment);
    assert_eq!(full, Err(Error::TimedOut(moment)));
    for tag in 0..8 {
        let done = a.next_done().wait_for(SOON).unwrap().unwrap();
        assert_eq!((done.tag, done.kind, done.len, done.result), (tag, DoneKind::Written, 8, Ok(())));
    }
    assert_eq!(a.next_done().wait_for(SOON), Ok(None));
    for tag in 0..8 {
        assert_eq!(table.load_u64(tag * 8), Ok(tag as u64));
    }
    // A thread that collects makes room for one that begins.
    thread::scope(|scope| {
        scope.spawn(|| {
            for tag in 0..200 {
                a.begin_read(tag, &remote, &into, ..64).wait_for(SOON).unwrap();
            }
        });
        let mut tag = 0;
        while tag < 200 {
            let Some(done) = a.next_done().wait_for(SOON).unwrap() else {
                thread::yield_now();
                continue;
            };
            assert_eq!((done.tag, done.kind, done.len, done.result), (tag, DoneKind::Read, 64, Ok(())));
            tag += 1;
        }
    });
    assert!(into.to_vec(..64).unwrap() == table.to_vec(..64).unwrap());
}

#[test]
fn a_region_stays_while_given_up_work_needs_it() {
    let (a, b) = pair(117);
    let table = b.expose("t", Memory::zeroed(1 << 20).unwrap(), ALL).wait_for(SOON).unwrap();
    let remote = a.remote("t").wait_for(SOON).unwrap();
    for round in 1..20_u8 {
        let ours = region(&a, 1 << 20);
        ours.fill(.., round).unwrap();
        // Whether it was begun or not, it is given up, and the region is dropped.
        let _ = a.write_from(&remote, &ours, .., None).wait_for(Duration::ZERO);
        a.begin_write(u64::from(round), &remote, &ours, .., None).wait_for(SOON).unwrap();
        drop(ours);
        let done = a.next_done().wait_for(SOON).unwrap().unwrap();
        assert_eq!((done.tag, done.result), (u64::from(round), Ok(())));
        assert!(table.to_vec(..).unwrap().iter().all(|byte| *byte == round));
    }
}

#[test]
fn a_key_that_is_revoked_in_the_middle_ends_the_connection_with_its_reason() {
    let (a, b) = pair(117);
    let pd = b.protection_domain();
    let mut target = pd.allocate(4096, Access::LOCAL_WRITE | ALL).unwrap();
    let known = target.remote();
    let ours = region(&a, 4096);
    a.write_from(known, &ours, .., None).wait_for(SOON).unwrap();
    // The peer takes its key back: the old one opens nothing any more.
    target.reregister(Reregistration::new().access(Access::LOCAL_WRITE | ALL)).unwrap();
    target.fill(.., 0xee).unwrap();
    for tag in 0..4 {
        // The connection may be lost before the last is begun.
        let _ = a.begin_write(tag, known, &ours, .., None).wait_for(SOON);
    }
    let mut told = 0;
    while let Some(done) = a.next_done().wait_for(SOON).unwrap() {
        assert_eq!(done.tag, told, "each is told, in order");
        assert!(matches!(done.result, Err(Error::Lost(Cause::PeerRefused(_)))), "{done:?}");
        told += 1;
    }
    assert!(told >= 1);
    let refused = a.read_into(known, &ours, ..8).wait_for(SOON);
    assert!(matches!(refused, Err(Error::Lost(Cause::PeerRefused(_)))), "{refused:?}");
    assert_eq!(target.to_vec(..).unwrap(), [0xee; 4096]);
    assert_eq!(b.recv().wait_for(SOON).map(|_| ()), Err(Error::Lost(crate::Violation::Access.into())));
}

#[test]
fn memory_that_is_closed_is_not_begun_on() {
    let (a, b) = pair(117);
    let table = b.expose("t", Memory::zeroed(64).unwrap(), ALL).wait_for(SOON).unwrap();
    let remote = a.remote("t").wait_for(SOON).unwrap();
    let (place, ours) = (remote.at(0), region(&a, 64));
    a.begin_write(0, place.clone(), &ours, .., None).wait_for(SOON).unwrap();
    assert_eq!(a.next_done().wait_for(SOON).unwrap().unwrap().result, Ok(()));
    drop(table);
    b.send(b"closed").wait_for(SOON).unwrap();
    assert_eq!(a.recv().wait_for(SOON).unwrap().unwrap(), b"closed");
    let gone = Err(Error::NotExposed { name: "t".to_owned() });
    assert_eq!(a.write_from(place.clone(), &ours, .., None).wait_for(SOON), gone);
    assert_eq!(a.begin_read(1, place, &ours, ..).wait_for(SOON), gone);
    let wrong = a.write_from(Place::raw(0x1000, Rkey(0x1234)), &ours, .., None).wait_for(SOON);
    assert!(matches!(wrong, Err(Error::Lost(Cause::PeerRefused(_)))), "{wrong:?}");
}

/// It was: a call that waited for room among work that is done stood in the queue of those that send.
#[test]
fn a_call_that_waits_for_done_work_lets_others_send() {
    let ours = Options::new().send_depth(8).signal_every(4);
    let (a, b) = pair_with(&open(117, 1), &open(117, 2), &ours, &Options::new());
    let _table = b.expose("t", Memory::zeroed(64).unwrap(), ALL).wait_for(SOON).unwrap();
    let (remote, ours) = (a.remote("t").wait_for(SOON).unwrap(), region(&a, 64));
    for tag in 0..8 {
        a.begin_write(tag, &remote, &ours, .., None).wait_for(SOON).unwrap();
    }
    thread::scope(|scope| {
        let ninth = scope.spawn(|| a.begin_write(8, &remote, &ours, .., None).wait_for(SOON));
        // Before or after the ninth waits: both must go.
        for _ in 0..20 {
            a.send(b"meanwhile").wait_for(SOON).unwrap();
            assert_eq!(b.recv().wait_for(SOON).unwrap().unwrap(), b"meanwhile");
            thread::yield_now();
        }
        for tag in 0..9 {
            let done = a.next_done().wait_for(SOON).unwrap().unwrap();
            assert_eq!((done.tag, done.result), (tag, Ok(())));
            if tag == 0 {
                // It has room now; else nothing would be under way when the others are told of.
                while a.counters().operations < 9 {
                    thread::yield_now();
                }
            }
        }
        assert_eq!(ninth.join().unwrap(), Ok(()));
    });
}

/// It was: in the order of the places that they had in a list.
#[test]
fn failed_work_is_told_in_the_order_in_which_it_was_begun() {
    let (a, b) = pair(117);
    let _table = b.expose("t", Memory::zeroed(64).unwrap(), ALL).wait_for(SOON).unwrap();
    let (remote, ours) = (a.remote("t").wait_for(SOON).unwrap(), region(&a, 1 << 20));
    for round in 0..20_u64 {
        a.begin_write(round, &remote, &ours, ..64, None).wait_for(SOON).unwrap();
    }
    for _ in 0..20 {
        a.next_done().wait_for(SOON).unwrap().unwrap().result.unwrap();
    }
    // Places are used again, the last first. The peer opened nothing of this: the first fails, and all behind it.
    for tag in 0..20 {
        let _ = a.begin_write(tag, Place::raw(0x1000, Rkey(0x77)), &ours, .., None).wait_for(SOON);
    }
    let mut tags = Vec::new();
    while let Some(done) = a.next_done().wait_for(SOON).unwrap() {
        assert!(done.result.is_err(), "{done:?}");
        tags.push(done.tag);
    }
    assert!(!tags.is_empty() && tags.is_sorted(), "{tags:?}");
}

#[test]
fn a_write_that_tells_is_no_message_after_the_last() {
    let (a, b) = pair(117);
    let table = b.expose("t", Memory::zeroed(64).unwrap(), ALL).wait_for(SOON).unwrap();
    let (remote, ours) = (a.remote("t").wait_for(SOON).unwrap(), region(&a, 64));
    a.shutdown().wait_for(SOON).unwrap();
    assert_eq!(a.write_from(&remote, &ours, .., 5).wait_for(SOON), Err(Error::Closed));
    assert_eq!(a.write_with_imm(&remote, 0, b"x", 5).wait_for(SOON), Err(Error::Closed));
    // One that tells nothing goes: the peer still sends.
    a.write_from(&remote, &ours, .., None).wait_for(SOON).unwrap();
    assert_eq!(table.load_u64(8), Ok(1));
    assert!(b.recv().wait_for(SOON).unwrap().is_none());
}
