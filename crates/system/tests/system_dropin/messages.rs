//! Every operation, with what arrives.

use ferroce_system::{Bytes, CardCompletion, Library, Operation, QueuePairOptions, ReceiveWork, SendWork};
use ferroce_transport::{Attributes, Completion, Remote, SendFlags, State, Status, WorkKind};
use ferroce_wire::{Rkey, Service};

use crate::child::over_dropin;
use crate::connected::{Bench, is_held, next, well};

over_dropin! {
    fn every_operation_of_rc_moves_its_bytes(library: Library) {
        let bench = Bench::new(library);
        let [ann, bob] = bench.pair(&bench.options(Service::Rc));
        let (here, source) = bench.region(4096);
        let (there, target) = bench.region(4096);
        let at = |offset| Remote { address: target.address() + offset, rkey: target.rkey() };
        let send = |operation, range| {
            ann.post_send(&[SendWork::new(1, operation, Bytes::Pieces(&[source.piece(range)]))]).unwrap();
            bench.done()
        };
        let receive = |id, range| {
            bob.post_receive(&[ReceiveWork { id, pieces: &[target.piece(range)] }]).unwrap();
        };
        let bytes: Vec<u8> = (0..=255).cycle().take(1500).collect();
        here.write(0, &bytes).unwrap();
        let two = |first: CardCompletion| {
            let both = [well(first), well(bench.done())];
            both.into_iter().find(|done| done.id != 1).unwrap()
        };

        receive(2, 0..2000);
        let received = two(send(Operation::Send, 0..1500));
        assert_eq!((received.id, received.kind, received.byte_len), (2, WorkKind::Receive, 1500));
        assert_eq!((received.qpn, received.imm, received.source_qp), (bob.qpn(), None, None));
        let mut seen = vec![0; 1500];
        there.read(0, &mut seen).unwrap();
        assert_eq!(seen, bytes);

        receive(3, 0..8);
        let received = two(send(Operation::SendImm(0xfeed), 0..8));
        assert_eq!((received.id, received.imm), (3, Some(0xfeed)));
        receive(4, 0..0);
        let received = two(send(Operation::WriteImm(at(2000), 7), 0..1500));
        assert_eq!((received.kind, received.imm), (WorkKind::ReceiveWithImm, Some(7)));
        there.read(2000, &mut seen).unwrap();
        assert_eq!(seen, bytes);

        assert_eq!(well(send(Operation::Write(at(100)), 0..16)).kind, WorkKind::Write);
        let mut some = [0; 16];
        there.read(100, &mut some).unwrap();
        assert_eq!(some, bytes[..16]);
        there.write(3000, &[9; 16]).unwrap();
        let read = well(send(Operation::Read(at(3000)), 2000..2016));
        assert_eq!(read.kind, WorkKind::Read);
        here.read(2000, &mut some).unwrap();
        assert_eq!(some, [9; 16]);

        there.store_u64(64, 5).unwrap();
        let added = well(send(Operation::FetchAdd { remote: at(64), add: 3 }, 2048..2056));
        assert_eq!((added.kind, here.load_u64(2048), there.load_u64(64)), (WorkKind::FetchAdd, Ok(5), Ok(8)));
        let swap = |compare| Operation::CompareSwap { remote: at(64), compare, swap: 99 };
        well(send(swap(7), 2048..2056));
        assert_eq!((here.load_u64(2048), there.load_u64(64)), (Ok(8), Ok(8)));
        assert_eq!(well(send(swap(8), 2048..2056)).kind, WorkKind::CompareSwap);
        assert_eq!(there.load_u64(64), Ok(99));
        here.store_u64(2048, 123).unwrap();
        assert_eq!(well(send(Operation::AtomicWrite(at(72)), 2048..2056)).kind, WorkKind::AtomicWrite);
        assert_eq!(there.load_u64(72), Ok(123));
    }

    fn pieces_are_gathered_and_scattered(library: Library) {
        let bench = Bench::new(library);
        let [ann, bob] = bench.pair(&bench.options(Service::Rc));
        let ((here, one), (_, other)) = (bench.region(64), bench.region(64));
        let (there, target) = bench.region(64);
        here.write(0, b"gathered").unwrap();
        bob.post_receive(&[ReceiveWork { id: 2, pieces: &[target.piece(10..13), target.piece(0..9)] }]).unwrap();
        let pieces = [one.piece(0..4), one.piece(4..8), other.piece(0..2)];
        ann.post_send(&[SendWork::new(1, Operation::Send, Bytes::Pieces(&pieces))]).unwrap();
        assert_eq!(bench.all_done(2), [1, 2]);
        let mut seen = [1; 13];
        there.read(0, &mut seen).unwrap();
        assert_eq!(&seen, b"hered\0\0\0\0\0gat");
    }

    fn inline_bytes_need_no_region(library: Library) {
        let bench = Bench::new(library);
        let [ann, bob] = bench.pair(&bench.options(Service::Rc));
        let (there, target) = bench.region(64);
        let to = Remote { address: target.address(), rkey: target.rkey() };
        {
            let text = b"gone before it arrives".to_vec();
            ann.post_send(&[SendWork::new(1, Operation::Write(to), Bytes::Inline(&text))]).unwrap();
        }
        well(bench.done());
        bob.post_receive(&[ReceiveWork { id: 2, pieces: &[target.piece(32..64)] }]).unwrap();
        ann.post_send(&[SendWork::new(3, Operation::Send, Bytes::Inline(b""))]).unwrap();
        assert_eq!(bench.all_done(2), [2, 3]);
        let mut seen = [0; 22];
        there.read(0, &mut seen).unwrap();
        assert_eq!(&seen, b"gone before it arrives");
    }

    fn uc_sends_and_writes(library: Library) {
        let bench = Bench::new(library);
        let [ann, bob] = bench.pair(&bench.options(Service::Uc));
        let (here, source) = bench.region(64);
        let (there, target) = bench.region(64);
        here.store_u64(0, 77).unwrap();
        bob.post_receive(&[ReceiveWork { id: 2, pieces: &[target.all()] }]).unwrap();
        ann.post_send(&[SendWork::new(1, Operation::Send, Bytes::Pieces(&[source.piece(0..8)]))]).unwrap();
        assert_eq!((bench.all_done(2).as_slice(), there.load_u64(0)), ([1, 2].as_slice(), Ok(77)));
    }

    fn a_bad_key_is_a_status_and_flushes_the_rest(library: Library) {
        let bench = Bench::new(library);
        let [ann, bob] = bench.pair(&bench.options(Service::Rc));
        let (memory, region) = bench.region(64);
        let bad = Remote { address: region.address(), rkey: Rkey(region.rkey().0 ^ 0xabcd_0000) };
        let bytes = [region.piece(0..8)];
        let work = [Operation::Read(bad), Operation::Write(bad), Operation::Read(bad)]
            .map(|operation| SendWork { flags: SendFlags::empty(), ..SendWork::new(5, operation, Bytes::Pieces(&bytes)) });
        ann.post_receive(&[ReceiveWork { id: 9, pieces: &[region.all()] }]).unwrap();
        ann.post_send(&work).unwrap();
        drop(region);
        let failed = bench.done();
        assert_eq!((failed.status(), failed.kind, failed.id), (Status::RemoteAccess, WorkKind::Read, 5));
        assert!(failed.vendor_error != 0 && failed.byte_len == 0);
        let told = Completion::from(failed).result().unwrap_err().to_string();
        assert!(told.contains("remote access error"), "{told}");
        let mut rest: Vec<_> = (0..3).map(|_| bench.done()).map(|done| (done.id, done.status(), done.kind)).collect();
        rest.sort_by_key(|(id, ..)| *id);
        assert_eq!(rest[0], (5, Status::Flushed, WorkKind::Write));
        assert_eq!(rest[1..], [(5, Status::Flushed, WorkKind::Read), (9, Status::Flushed, WorkKind::Receive)]);
        assert!(!is_held(&memory), "all of its work is done");
        assert_eq!(ann.query().unwrap().attributes.state, State::Err);
        drop((ann, bob));
    }

    fn a_queue_pair_lives_again_after_reset(library: Library) {
        let bench = Bench::new(library);
        let [ann, bob] = bench.pair(&bench.options(Service::Rc));
        let (memory, region) = bench.region(64);
        let forgotten = [ReceiveWork { id: 1, pieces: &[region.all()] }, ReceiveWork { id: 2, pieces: &[] }];
        bob.post_receive(&forgotten).unwrap();
        drop(region);
        assert!(is_held(&memory));
        for qp in [&ann, &bob] {
            qp.modify(&Attributes::to(State::Reset), None).unwrap();
        }
        assert!(!is_held(&memory), "the card has forgotten its work");
        bench.connect(&ann, bob.qpn());
        bench.connect(&bob, ann.qpn());
        bob.post_receive(&[ReceiveWork { id: 3, pieces: &[] }]).unwrap();
        ann.post_send(&[SendWork::new(4, Operation::Send, Bytes::Inline(&[]))]).unwrap();
        assert_eq!(bench.all_done(2), [3, 4]);
    }

    fn what_is_known_of_a_queue_pair_is_what_it_was_told(library: Library) {
        let bench = Bench::new(library);
        let [ann, bob] = bench.pair(&bench.options(Service::Rc));
        let known = ann.query().unwrap();
        assert_eq!((known.attributes.state, known.attributes.dest_qpn), (State::Rts, bob.qpn()));
        assert_eq!((known.attributes.retry_count, known.attributes.timeout), (7, 14));
        assert_eq!(known.address.unwrap().gid, bench.address().gid);
        assert_eq!(known.caps, ann.caps());
        let error = ann.modify(&Attributes::to(State::Rtr), None).unwrap_err();
        assert_eq!((error.call, error.code), ("ibv_modify_qp", libc::EINVAL));
    }

    fn completions_can_tell_times(library: Library) {
        let bench = Bench::new(library);
        let options = ferroce_system::CompletionQueueOptions::new(64).timestamps();
        let timed = bench.context.completion_queue_with(&options).unwrap();
        let [ann, bob] = bench.pair(&QueuePairOptions::new(Service::Rc, &timed));
        let (_, region) = bench.region(64);
        for id in 0..3 {
            bob.post_receive(&[ReceiveWork { id: 10 + id, pieces: &[region.all()] }]).unwrap();
            ann.post_send(&[SendWork::new(id, Operation::SendImm(6), Bytes::Inline(b"abc"))]).unwrap();
        }
        let mut all: Vec<_> = (0..6).map(|_| well(next(&timed))).collect();
        all.sort_by_key(|done| done.id);
        let ticks: Vec<u64> = all.iter().map(|done| done.ticks.unwrap()).collect();
        assert!(ticks[..3].is_sorted() && ticks[3..].is_sorted() && ticks[0] > 0, "{ticks:?}");
        assert!(all[3..].iter().all(|done| (done.byte_len, done.imm) == (3, Some(6))), "{all:?}");
        let mut none = [CardCompletion::EMPTY; 4];
        assert_eq!(timed.poll(&mut none), Ok(0));
    }
}
