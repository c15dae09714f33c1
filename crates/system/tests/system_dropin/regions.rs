//! Memory: what is refused, and how long posted work keeps it.

use std::sync::Arc;

use ferroce_memory::Allocation;
use ferroce_system::{
    Bytes, CardCompletion, Library, Operation, QueuePairOptions, ReceiveWork, RegisterError, RegisterOptions,
    SendWork,
};
use ferroce_transport::{Access, Remote, SendFlags, Status};
use ferroce_wire::Service;

use crate::child::over_dropin;
use crate::connected::{Bench, is_held, open_access, well};

over_dropin! {
    fn a_dropped_region_stays_until_its_work_is_done(library: Library) {
        let bench = Bench::new(library);
        let [ann, bob] = bench.pair(&bench.options(Service::Rc));
        let (memory, region) = bench.region(64);
        bob.post_receive(&[ReceiveWork { id: 1, pieces: &[region.all()] }]).unwrap();
        bob.post_receive(&[ReceiveWork { id: 2, pieces: &[region.piece(0..8), region.piece(8..16)] }]).unwrap();
        drop(region);
        for (id, left) in [(1, true), (2, false)] {
            assert!(is_held(&memory));
            ann.post_send(&[SendWork::new(7, Operation::Send, Bytes::Inline(b"still there"))]).unwrap();
            let ids = bench.all_done(2);
            assert_eq!((ids.as_slice(), is_held(&memory)), ([id, 7].as_slice(), left));
        }
        let mut seen = [0; 11];
        memory.read(0, &mut seen).unwrap();
        assert_eq!(&seen, b"still there");
    }

    fn sends_without_completions_are_done_with_the_next_that_has_one(library: Library) {
        let bench = Bench::new(library);
        let [ann, _bob] = bench.pair(&bench.options(Service::Rc));
        let (_, target) = bench.region(64);
        let to = Remote { address: target.address(), rkey: target.rkey() };
        let quiet: Vec<Arc<Allocation>> = (0..3)
            .map(|id| {
                let (memory, region) = bench.region(64);
                let bytes = [region.all()];
                let work = SendWork::new(id, Operation::Write(to), Bytes::Pieces(&bytes));
                ann.post_send(&[SendWork { flags: SendFlags::empty(), ..work }]).unwrap();
                memory
            })
            .collect();
        // Whatever the card has done meanwhile, nothing was told.
        assert_eq!(bench.completions.poll(&mut [CardCompletion::EMPTY]), Ok(0));
        assert!(quiet.iter().all(is_held));
        assert_eq!(ann.sends_under_way(), 3);
        ann.post_send(&[SendWork::new(9, Operation::Write(to), Bytes::Inline(b"told"))]).unwrap();
        assert_eq!(well(bench.done()).id, 9);
        assert_eq!((quiet.iter().filter(|memory| is_held(memory)).count(), ann.sends_under_way()), (0, 0));
    }

    fn a_queue_pair_that_is_dropped_lets_go(library: Library) {
        let bench = Bench::new(library);
        let [ann, bob] = bench.pair(&bench.options(Service::Rc));
        let (memory, region) = bench.region(64);
        bob.post_receive(&[ReceiveWork { id: 1, pieces: &[region.all()] }]).unwrap();
        // There is no receive for it, so it waits.
        let bytes = [region.all()];
        bob.post_send(&[SendWork::new(2, Operation::Send, Bytes::Pieces(&bytes))]).unwrap();
        drop(region);
        drop(ann);
        assert!(is_held(&memory));
        drop(bob);
        assert!(!is_held(&memory));
        assert_eq!(bench.completions.poll(&mut [CardCompletion::EMPTY]), Ok(0));
    }

    fn the_order_of_dropping_does_not_matter(library: Library) {
        let bench = Bench::new(library);
        let [ann, bob] = bench.pair(&bench.options(Service::Rc));
        let (memory, region) = bench.region(64);
        let channel = bench.context.completion_channel().unwrap();
        let Bench { context, domain, completions } = bench;
        drop((context, domain));
        bob.post_receive(&[ReceiveWork { id: 1, pieces: &[region.all()] }]).unwrap();
        ann.post_send(&[SendWork::new(2, Operation::Send, Bytes::Inline(b"x"))]).unwrap();
        let mut ids = [crate::connected::next(&completions).id, crate::connected::next(&completions).id];
        ids.sort_unstable();
        assert_eq!(ids, [1, 2]);
        drop(completions);
        drop((ann, channel, region, bob));
        assert!(!is_held(&memory));
    }

    fn a_region_that_is_deregistered_is_gone_at_once(library: Library) {
        let bench = Bench::new(library);
        let [ann, bob] = bench.pair(&bench.options(Service::Rc));
        let memory = Allocation::from_boxed(vec![5; 64].into_boxed_slice());
        let region = bench.domain.register(&memory, open_access()).unwrap();
        bob.post_receive(&[ReceiveWork { id: 1, pieces: &[region.all()] }]).unwrap();
        drop(memory);
        let memory = region.deregister().map_err(|(_, error)| error).unwrap();
        assert_eq!(*memory.into_boxed().unwrap(), [5; 64]);
        ann.post_send(&[SendWork::new(2, Operation::Send, Bytes::Inline(b"late"))]).unwrap();
        let mut both = [bench.done(), bench.done()];
        both.sort_by_key(|done| done.id);
        assert_eq!(both.map(|done| done.status()), [Status::LocalProtection, Status::RemoteOperation]);
    }

    fn a_region_may_have_an_address_of_the_programs_choice(library: Library) {
        let bench = Bench::new(library);
        let [ann, _bob] = bench.pair(&bench.options(Service::Rc));
        let memory = Allocation::zeroed(128).unwrap();
        let options = RegisterOptions { address: Some(4096), relaxed_ordering: true };
        let region = bench.domain.register_part(&memory, 64..128, open_access(), options).unwrap();
        assert_eq!((region.address(), region.len()), (4096, 64));
        let to = Remote { address: 4096 + 8, rkey: region.rkey() };
        ann.post_send(&[SendWork::new(1, Operation::Write(to), Bytes::Inline(&7_u64.to_ne_bytes()))]).unwrap();
        well(bench.done());
        assert_eq!(memory.load_u64(72), Ok(7));
        let relaxed = RegisterOptions { address: None, relaxed_ordering: true };
        let plain = bench.domain.register_part(&memory, 0..64, Access::LOCAL_WRITE, relaxed).unwrap();
        assert_eq!(plain.address(), memory.address());
    }

    fn memory_that_cannot_be_is_refused_before_the_card_sees_it(library: Library) {
        let bench = Bench::new(library);
        let memory = Allocation::zeroed(64).unwrap();
        let refused = |range: std::ops::Range<usize>, access| {
            bench.domain.register_part(&memory, range, access, RegisterOptions::default()).unwrap_err()
        };
        assert_eq!(refused(1..65, Access::empty()), RegisterError::Outside { start: 1, end: 65, size: 64 });
        let access = Access::REMOTE_WRITE;
        assert_eq!(refused(0..64, access), RegisterError::NoLocalWrite { access });
        assert!(!is_held(&memory));
    }

    fn work_names_memory_of_its_own_domain(library: Library) {
        let bench = Bench::new(library);
        let other = Bench::new(library);
        let [ann, _bob] = bench.pair(&bench.options(Service::Rc));
        let (_, foreign) = other.region(64);
        let bytes = [foreign.all()];
        let error = ann.post_send(&[SendWork::new(1, Operation::Send, Bytes::Pieces(&bytes))]).unwrap_err().error;
        assert_eq!(error, ferroce_system::PostWorkError::OtherDomain { what: "memory region" });
        let mixed = QueuePairOptions { send_cq: &other.completions, ..bench.options(Service::Rc) };
        let error = bench.domain.queue_pair(&mixed).unwrap_err();
        assert!(error.to_string().contains("completion queue for sends is of another device"), "{error}");
    }
}
