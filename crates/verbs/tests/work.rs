//! Every operation, over both paths.
#![allow(clippy::unwrap_used, reason = "a test stops here")]

mod common;

use common::*;
use ferroce_verbs::*;

const NET: u8 = 40;

fn every_operation((a, b): (End, End), path: Path) {
    assert_eq!((a.qp.state(), a.qp.path().unwrap().path), (State::Rts, path));
    let remote = b.region.remote();
    a.region.write_at(0, b"written by the peer").unwrap();

    a.qp.write(a.region.slice(0..19), remote.slice(100..)).id(1).post().unwrap();
    let done = a.done();
    assert_eq!((done.id, done.kind), (1, WorkKind::Write));
    assert_eq!(b.region.to_vec(100..119).unwrap(), b"written by the peer");

    a.qp.write_inline(b"inline", remote.slice(200..206)).id(2).post().unwrap();
    a.qp.read(a.region.slice(1000..1006), remote.slice(200..206)).fence().id(3).post().unwrap();
    assert_eq!([a.done().id, a.done().id], [2, 3]);
    assert_eq!(a.region.to_vec(1000..1006).unwrap(), b"inline");

    b.qp.receive(&[b.region.slice(300..304), b.region.slice(400..500)]).id(7).post().unwrap();
    a.qp.send(&[a.region.slice(0..7), a.region.slice(8..10)]).imm(99).solicited().post().unwrap();
    a.done();
    let got = b.done();
    assert_eq!((got.id, got.byte_len, got.imm, got.kind), (7, 9, Some(99), WorkKind::Receive));
    assert_eq!(b.region.to_vec(300..304).unwrap(), b"writ");
    assert_eq!(b.region.to_vec(400..405).unwrap(), b"tenby");

    b.qp.receive(b.region.slice(..0)).id(8).post().unwrap();
    a.qp.write(a.region.slice(0..4), remote.slice(600..604)).imm(5).post().unwrap();
    a.done();
    assert!(matches!(b.done().classify(), Classified::Written(Completion { id: 8, imm: Some(5), .. })));

    b.region.store_u64(4096, 40).unwrap();
    let word = remote.slice(4096..4104);
    a.qp.fetch_add(a.region.slice(64..72), word, 2).post().unwrap();
    a.qp.compare_swap(a.region.slice(72..80), word, 42, 1000).post().unwrap();
    assert!(matches!(a.done().classify(), Classified::Atomic(_)));
    a.done();
    assert_eq!((a.region.load_u64(64), a.region.load_u64(72)), (Ok(40), Ok(42)));
    assert_eq!(b.region.load_u64(4096), Ok(1000));

    a.qp.atomic_write_inline(&7_u64.to_ne_bytes(), word).post().unwrap();
    assert!(matches!(a.done().classify(), Classified::Wrote(_)));
    assert_eq!(b.region.load_u64(4096), Ok(7));
}

#[test]
fn every_operation_works_over_the_wire() {
    every_operation(wire(NET), Path::Wire);
}

#[test]
fn every_operation_works_in_the_process() {
    every_operation(local(NET), Path::Local);
}
