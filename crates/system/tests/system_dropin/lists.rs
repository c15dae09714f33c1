//! Many requests at once, and requests that cannot be.

use ferroce_system::{Bytes, CardCompletion, Library, Operation, PostWorkError, ReceiveWork, SendWork};
use ferroce_transport::{Caps, Remote, SendFlags};
use ferroce_wire::Service;

use crate::child::over_dropin;
use crate::connected::{Bench, is_held, well};

const CAPS: Caps =
    Caps { max_send: 64, max_receive: 64, max_send_sge: 8, max_receive_sge: 8, max_inline: 32 };

over_dropin! {
    fn long_lists_are_posted_in_their_order(library: Library) {
        let bench = Bench::new(library);
        let options = ferroce_system::QueuePairOptions { caps: CAPS, ..bench.options(Service::Rc) };
        let [ann, bob] = bench.pair(&options);
        let (memory, region) = bench.region(4096);
        // Of one piece and of many, so that lists are cut at each of their limits.
        let pieces: Vec<_> = (0..8).map(|at| region.piece(at..at + 1)).collect();
        let count = |id: u64| [1, 8, 3, 8, 8, 0][usize::try_from(id % 6).unwrap()];
        let receives: Vec<_> =
            (0..60).map(|id| ReceiveWork { id: 100 + id, pieces: &pieces[..count(id)] }).collect();
        bob.post_receive(&receives).unwrap();
        let sends: Vec<_> = (0..60)
            .map(|id| SendWork::new(id, Operation::Send, Bytes::Pieces(&pieces[..count(id)])))
            .collect();
        ann.post_send(&sends).unwrap();
        let done: Vec<CardCompletion> = (0..120).map(|_| well(bench.done())).collect();
        let of = |qpn| done.iter().filter(move |done| done.qpn == qpn).map(|done| done.id);
        assert!(of(ann.qpn()).eq(0..60) && of(bob.qpn()).eq(100..160));
        let lengths = done.iter().filter(|done| done.qpn == bob.qpn()).map(|done| done.byte_len as usize);
        assert!(lengths.eq((0..60).map(count)));
        drop(region);
        assert!(!is_held(&memory));
    }

    fn a_full_queue_says_how_much_it_took(library: Library) {
        let bench = Bench::new(library);
        let options = ferroce_system::QueuePairOptions { caps: CAPS, ..bench.options(Service::Rc) };
        let [_ann, bob] = bench.pair(&options);
        let (memory, region) = bench.region(64);
        let depth = bob.caps().max_receive;
        let pieces = [region.all()];
        let receives = vec![ReceiveWork { id: 1, pieces: &pieces }; depth as usize + 5];
        let error = bob.post_receive(&receives).unwrap_err();
        assert_eq!((error.taken, error.given), (depth as usize, depth as usize + 5));
        assert_eq!(error.error, PostWorkError::Full { depth });
        assert_eq!(error.to_string(), format!("{depth} of {} requests were posted, and the next was refused", depth + 5));
        drop((region, bob));
        assert!(!is_held(&memory));
    }

    fn the_first_request_that_cannot_be_ends_a_list(library: Library) {
        let bench = Bench::new(library);
        let options = ferroce_system::QueuePairOptions { caps: CAPS, ..bench.options(Service::Rc) };
        let [ann, _bob] = bench.pair(&options);
        let (memory, region) = bench.region(64);
        let to = Remote { address: region.address(), rkey: region.rkey() };
        let (allowed, inline) = (ann.caps().max_send_sge, ann.caps().max_inline);
        let many = vec![region.piece(0..1); allowed as usize + 1];
        let long = vec![0; inline as usize + 1];
        let outside = [region.piece(60..65)];
        let good = SendWork::new(1, Operation::Write(to), Bytes::Inline(b"good"));
        let cases = [
            (Bytes::Pieces(&many), PostWorkError::ManyPieces { given: many.len(), allowed }),
            (Bytes::Inline(&long), PostWorkError::LongInline { given: long.len(), allowed: inline }),
            (Bytes::Pieces(&outside), PostWorkError::Outside { start: 60, end: 65, size: 64 }),
        ];
        for (bytes, expected) in cases {
            let bad = SendWork { bytes, ..good };
            let error = ann.post_send(&[good, good, bad, good]).unwrap_err();
            assert_eq!((error.taken, error.error), (2, expected));
            assert_eq!(bench.all_done(2), [1, 1]);
        }
        let read = SendWork { operation: Operation::Read(to), ..good };
        assert_eq!(ann.post_send(&[read]).unwrap_err().error, PostWorkError::InlineAnswer);
        assert_eq!(ann.sends_under_way(), 0);
        drop(region);
        assert!(!is_held(&memory));
    }

    fn what_the_card_refuses_keeps_nothing(library: Library) {
        let bench = Bench::new(library);
        let [ann, _bob] = bench.pair(&bench.options(Service::Uc));
        let (memory, region) = bench.region(64);
        let to = Remote { address: region.address(), rkey: region.rkey() };
        let pieces = [region.piece(0..8)];
        let write = SendWork::new(1, Operation::Write(to), Bytes::Pieces(&pieces));
        // UC has no READs, and the library says so.
        let read = SendWork { operation: Operation::Read(to), ..write };
        let error = ann.post_send(&[write, read, write]).unwrap_err();
        let PostWorkError::Refused(refused) = error.error else { panic!("{error:?}") };
        assert_eq!((error.taken, refused.call, refused.code), (1, "ibv_post_send", libc::EINVAL));
        assert_eq!((well(bench.done()).id, ann.sends_under_way()), (1, 0));
        assert_eq!(ann.post_send(&[read]).unwrap_err().taken, 0);
        assert_eq!(ann.sends_under_way(), 0);
        drop(region);
        assert!(!is_held(&memory));
    }

    fn posting_and_polling_allocate_nothing(library: Library) {
        let bench = Bench::new(library);
        let [ann, bob] = bench.pair(&bench.options(Service::Rc));
        let (_, region) = bench.region(4096);
        let to = Remote { address: region.address(), rkey: region.rkey() };
        let pieces = [region.piece(0..8), region.piece(8..16)];
        let write = SendWork::new(1, Operation::Write(to), Bytes::Pieces(&pieces));
        let quiet = SendWork { flags: SendFlags::empty(), ..write };
        let message = SendWork::new(2, Operation::Send, Bytes::Inline(b"hello"));
        let allocated = allocation_counter::measure(|| {
            for _ in 0..50 {
                bob.post_receive(&[ReceiveWork { id: 3, pieces: &pieces }]).unwrap();
                ann.post_send(&[write]).unwrap();
                ann.post_send(&[quiet, quiet, message]).unwrap();
                let mut left = 3;
                let mut room = [CardCompletion::EMPTY; 16];
                while left > 0 {
                    left -= bench.completions.poll(&mut room).unwrap();
                }
            }
        });
        assert_eq!(allocated.count_total, 0);
    }
}
