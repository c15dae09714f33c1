//! Messages of every length.

use ferroce_transport::{Remote, SendOp};
use ferroce_verbs::*;

use crate::rig::{End, Rig, Shape, pattern};

/// Around nothing, the pad, and the borders of packets of every path MTU.
const LENGTHS: [usize; 20] =
    [0, 1, 2, 3, 4, 5, 7, 8, 255, 256, 257, 1023, 1024, 1025, 4095, 4096, 4097, 8191, 12_289, 20_000];

pub(crate) fn many_lengths(rig: &Rig) {
    let (a, b) = rig.rc();
    lengths(&a, &b);
}

pub(crate) fn path_mtu_256(rig: &Rig) {
    let (a, b) = rig.rc_with(&Shape::with(|options| options.path_mtu = Some(PathMtu::B256)));
    lengths(&a, &b);
    if rig.path() == Path::Wire {
        assert!(a.qp.counters().requests_sent > 256, "small packets are many");
    }
}

fn lengths(a: &End, b: &End) {
    let mut seed = 100;
    for len in LENGTHS {
        seed += 1;
        let bytes = pattern(len, seed);
        a.region.write_at(1, &bytes).unwrap();
        b.region.fill(.., 0xcc).unwrap();
        b.qp.receive(b.region.slice(1..1 + len)).post().unwrap();
        let remote = b.region.remote();
        a.qp.send(a.region.slice(1..1 + len)).id(1).post().unwrap();
        a.qp.write(a.region.slice(1..1 + len), remote.slice(30_001..)).id(2).post().unwrap();
        a.qp.read(a.region.slice(30_003..30_003 + len), remote.slice(30_001..)).id(3).post().unwrap();
        assert_eq!([a.sent().id, a.sent().id], [1, 2]);
        assert_eq!(a.sent().byte_len as usize, len);
        assert_eq!(b.received().byte_len as usize, len);
        for (end, start) in [(b, 1), (b, 30_001), (a, 30_003)] {
            assert_eq!(end.region.to_vec(start..start + len).unwrap(), bytes, "{len} bytes at {start}");
        }
        for at in [0, 1 + len, 30_000, 30_001 + len] {
            assert_eq!(b.region.load_u8(at), Ok(0xcc), "{len} bytes, beside them");
        }
    }
}

pub(crate) fn zero_length_needs_no_key(rig: &Rig) {
    let (a, b) = rig.rc();
    let nowhere = Remote { address: 5, rkey: Rkey(0xdead_beef) };
    a.post_raw(1, SendOp::Write(nowhere), &[]).unwrap();
    a.post_raw(2, SendOp::Read(nowhere), &[]).unwrap();
    b.qp.receive(&[]).id(3).post().unwrap();
    a.qp.send(&[]).id(4).post().unwrap();
    assert_eq!([a.sent().id, a.sent().id, a.sent().id], [1, 2, 4]);
    assert_eq!(b.received().id, 3);
    assert_eq!(a.qp.state(), State::Rts);
}

pub(crate) fn one_mebibyte(rig: &Rig) {
    large(rig, 1 << 20);
}

pub(crate) fn sixteen_mebibytes(rig: &Rig) {
    large(rig, 16 << 20);
}

fn large(rig: &Rig, len: usize) {
    let (a, b) = rig.rc_with(&Shape { region: 2 * len, ..Shape::default() });
    let bytes = pattern(len, 9);
    a.region.write_at(0, &bytes).unwrap();
    a.qp.write(a.region.slice(..len), b.region.remote()).id(1).post().unwrap();
    b.qp.receive(b.region.slice(len..)).post().unwrap();
    a.qp.send(a.region.slice(..len)).id(2).post().unwrap();
    assert_eq!((a.sent().id, a.sent().id), (1, 2));
    assert_eq!(b.received().byte_len as usize, len);
    assert!(b.region.to_vec(..len).unwrap() == bytes, "the WRITE");
    assert!(b.region.to_vec(len..).unwrap() == bytes, "the SEND");
    a.qp.read(a.region.slice(len..), b.region.remote().slice(..len as u64)).id(3).post().unwrap();
    assert_eq!(a.sent().byte_len as usize, len);
    assert!(a.region.to_vec(len..).unwrap() == bytes, "the READ");
}
