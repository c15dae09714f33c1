//! One-sided work and what the ends open to each other.

use std::sync::Arc;

use ferroce_verbs::{Access, Memory};

use super::*;
use crate::error::Error;
use crate::physical::PhysicalWindow;

const ALL: Access = Access::REMOTE_READ.union(Access::REMOTE_WRITE).union(Access::REMOTE_ATOMIC);

#[test]
fn memory_is_written_read_and_counted_on() {
    let (a, b) = pair(112);
    let table = b.expose("table", Memory::zeroed(8192).unwrap(), ALL).wait_for(SOON).unwrap();
    let remote = a.remote("table").wait_for(SOON).unwrap();
    assert_eq!((remote.len(), remote.access(), remote.name()), (8192, ALL, "table"));
    a.write(&remote, 100, b"one-sided").wait_for(SOON).unwrap();
    assert_eq!(table.to_vec(100..109).unwrap(), b"one-sided");
    assert_eq!(a.read(&remote, 104, 5).wait_for(SOON).unwrap(), b"sided");
    assert_eq!(a.fetch_add(&remote, 8, 5).wait_for(SOON), Ok(0));
    assert_eq!(a.fetch_add(&remote, 8, 5).wait_for(SOON), Ok(5));
    assert_eq!(a.compare_swap(&remote, 8, 10, 99).wait_for(SOON), Ok(10));
    assert_eq!(a.compare_swap(&remote, 8, 10, 77).wait_for(SOON), Ok(99));
    assert_eq!(table.load_u64(8).unwrap(), 99);
    let buffer = a.allocate(4096).unwrap();
    buffer.write_at(0, &[7; 4096]).unwrap();
    let buffer = a.write_buffer(&remote, 4096, buffer, None).wait_for(SOON).unwrap();
    assert_eq!(buffer.len(), 4096);
    assert_eq!(table.to_vec(4096..).unwrap(), [7; 4096]);
    assert_eq!(a.read_buffer(&remote, 4096, 10).wait_for(SOON).unwrap().to_vec(..).unwrap(), [7; 10]);
    assert_eq!(a.counters().operations, 8);
}

#[test]
fn a_write_with_a_number_tells_the_peer() {
    let (a, b) = pair(112);
    let table = b.expose("t", Memory::zeroed(64).unwrap(), ALL).wait_for(SOON).unwrap();
    let remote = a.remote("t").wait_for(SOON).unwrap();
    a.send(b"before").wait_for(SOON).unwrap();
    for imm in [0, 5] {
        a.write_with_imm(&remote, 3, b"abc", imm).wait_for(SOON).unwrap();
    }
    assert_eq!(b.recv().wait_for(SOON).unwrap().unwrap(), b"before");
    for imm in [0, 5] {
        let told = b.recv().wait_for(SOON).unwrap().unwrap();
        assert_eq!((told.written(), told.imm(), told.len()), (Some(3), Some(imm), 0));
    }
    assert_eq!(table.to_vec(3..6).unwrap(), b"abc");
}

#[test]
fn what_is_not_open_is_refused_here_and_the_connection_stands() {
    let (a, b) = pair(112);
    let _r = b.expose("read", Memory::zeroed(16).unwrap(), Access::REMOTE_READ).wait_for(SOON).unwrap();
    let remote = a.remote("read").wait_for(SOON).unwrap();
    let name = || "read".to_owned();
    let refused = a.write(&remote, 0, b"x").wait_for(SOON);
    assert_eq!(refused, Err(Error::NotAllowed { name: name(), what: "writing" }));
    let outside = a.read(&remote, 10, 7).wait_for(SOON);
    assert_eq!(outside, Err(Error::OutsideExposed { name: name(), offset: 10, len: 7, size: 16 }));
    assert!(a.read(&remote, u64::MAX, 2).wait_for(SOON).is_err());
    let long = "n".repeat(65);
    let named = a.expose(&long, vec![0; 8], ALL).wait_for(SOON).map(|_| ());
    assert_eq!(named, Err(Error::NameTooLong { len: 65, allowed: 64 }));
    let w = b.expose("word", Memory::zeroed(16).unwrap(), ALL).wait_for(SOON).unwrap();
    let word = a.remote("word").wait_for(SOON).unwrap();
    let crooked = a.fetch_add(&word, 4, 1).wait_for(SOON);
    assert_eq!(crooked, Err(Error::Misaligned { offset: 4, address: w.address() + 4 }));
    assert_eq!(a.fetch_add(&word, 8, 1).wait_for(SOON), Ok(0));
}

#[test]
fn memory_that_is_closed_takes_no_more_and_breaks_nothing() {
    let (a, b) = pair(112);
    for round in 0..50 {
        let table = b.expose("t", Memory::zeroed(4096).unwrap(), ALL).wait_for(SOON).unwrap();
        let remote = a.remote("t").wait_for(SOON).unwrap();
        std::thread::scope(|scope| {
            scope.spawn(|| {
                // Until it is closed; every write before is done.
                for _ in 0..100 {
                    match a.write(&remote, 0, &[1; 4096]).wait_for(SOON) {
                        Ok(()) => {}
                        Err(Error::NotExposed { .. }) => break,
                        Err(other) => panic!("{other}"),
                    }
                }
                a.send(b"done").wait_for(SOON).unwrap();
            });
            drop(table);
            assert_eq!(b.recv().wait_for(SOON).unwrap().unwrap(), b"done", "round {round}");
        });
        b.send(b"next").wait_for(SOON).unwrap();
        assert_eq!(a.recv().wait_for(SOON).unwrap().unwrap(), b"next");
        assert!(!remote.is_open());
    }
}

#[test]
fn a_window_is_used_by_address_if_the_peer_lets_us() {
    let (one, two) = (open(112, 1), open(112, 2));
    let memory = Memory::zeroed(4096).unwrap();
    let with = |window, allowed| Options::new().physical_window(window, move |_| allowed);
    let start = 0x8000_0000_0000_0000;
    let open = with(PhysicalWindow::read_write(memory.clone(), start), true);
    let (a, b) = pair_with(&one, &two, &Options::new(), &open);
    a.physical_write(start + 10, b"by address").wait_for(SOON).unwrap();
    assert_eq!(a.physical_read(start + 13, 7).wait_for(SOON).unwrap(), b"address");
    let outside = |address, len| Err(Error::OutsideWindow { address, len, start, size: 4096 });
    assert_eq!(a.physical_read(start - 1, 1).wait_for(SOON).map(|_| ()), outside(start - 1, 1));
    assert_eq!(a.physical_read(start + 4096, 1).wait_for(SOON).map(|_| ()), outside(start + 4096, 1));
    assert_eq!(a.physical_write(start + 4095, b"ab").wait_for(SOON), outside(start + 4095, 2));
    assert_eq!(a.physical_read(u64::MAX, 2).wait_for(SOON).map(|_| ()), outside(u64::MAX, 2));
    assert_eq!(b.physical_read(0, 1).wait_for(SOON), Err(Error::NoWindow), "off unless opened");

    let read_only = with(PhysicalWindow::read_only(memory.clone(), 0), true);
    let (a, _b) = pair_with(&one, &two, &Options::new(), &read_only);
    assert_eq!(a.physical_read(10, 10).wait_for(SOON).unwrap(), b"by address");
    assert_eq!(a.physical_write(10, b"x").wait_for(SOON), Err(Error::WindowReadOnly));
    assert_eq!(a.physical_read(10, 2).wait_for(SOON).unwrap(), b"by", "the connection stands");

    let refused = with(PhysicalWindow::read_write(memory, 0), false);
    let (a, _b) = pair_with(&one, &two, &Options::new(), &refused);
    assert_eq!(a.physical_read(10, 10).wait_for(SOON), Err(Error::WindowRefused));
}

#[test]
fn buffers_and_regions_are_sent_without_a_copy() {
    let (a, b) = pair(112);
    let mut buffer = a.allocate(300_000).unwrap();
    buffer.write_at(100_000, b"here").unwrap();
    let place = buffer.region().unwrap().address();
    a.send_buffer(buffer, 9).wait_for(SOON).unwrap();
    let message = b.recv().wait_for(SOON).unwrap().unwrap();
    let mut found = [0; 4];
    message.read_at(100_000, &mut found).unwrap();
    assert_eq!((&found, message.imm(), message.len()), (b"here", Some(9), 300_000));
    // Once the peer has it, the same memory is used again.
    b.send(b"got it").wait_for(SOON).unwrap();
    a.recv().wait_for(SOON).unwrap();
    buffer = a.allocate(270_000).unwrap();
    assert_eq!(buffer.region().unwrap().address(), place);
    buffer.set_len(5);
    a.send_buffer(buffer, None).wait_for(SOON).unwrap();
    assert_eq!(b.recv().wait_for(SOON).unwrap().unwrap().len(), 5);

    let region = a.protection_domain().register(vec![3; 100_000], Access::REMOTE_READ).unwrap();
    let region = Arc::new(region);
    for _ in 0..20 {
        a.send_region(&region, 1.., None).wait_for(SOON).unwrap();
        assert_eq!(b.recv().wait_for(SOON).unwrap().unwrap().len(), 99_999);
    }
    let size = 100_000;
    let beyond = a.send_region(&region, 1..=size, None).wait_for(SOON);
    assert_eq!(beyond, Err(Error::OutsideBuffer { offset: 1, len: size, size }));
    let foreign = b.allocate(100).unwrap();
    assert_eq!(a.send_buffer(foreign, None).wait_for(SOON), Err(Error::OtherConnection));
}
