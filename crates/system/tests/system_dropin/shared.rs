//! Shared receive queues.

use ferroce_system::{
    Bytes, CardCompletion, CardEvent, Destination, Library, Operation, PostWorkError, QueuePairOptions,
    ReceiveWork, SendWork,
};
use ferroce_transport::{Attributes, State};
use ferroce_wire::Service;

use crate::child::over_dropin;
use crate::connected::{Bench, QKEY, event, is_held, well};

over_dropin! {
    fn queue_pairs_share_receives(library: Library) {
        let bench = Bench::new(library);
        let queue = bench.domain.shared_receive_queue(32, 2).unwrap();
        let options = QueuePairOptions { shared_queue: Some(&queue), ..bench.options(Service::Rc) };
        let pairs = [bench.pair(&options), bench.pair(&options)];
        let (memory, region) = bench.region(64);
        let pieces = [region.piece(0..8), region.piece(8..16)];
        let receives: Vec<_> = (0..20).map(|id| ReceiveWork { id: 100 + id, pieces: &pieces }).collect();
        queue.post(&receives).unwrap();
        let error = pairs[0][0].post_receive(&receives).unwrap_err();
        assert_eq!((error.taken, error.error), (0, PostWorkError::Shared));
        drop(region);
        assert_eq!((queue.len(), queue.is_empty(), is_held(&memory)), (20, false, true));
        for round in 0..5 {
            for [ann, bob] in &pairs {
                for from in [ann, bob] {
                    from.post_send(&[SendWork::new(round, Operation::Send, Bytes::Inline(b"shared"))]).unwrap();
                }
            }
        }
        let done = bench.all_done(40);
        assert!(done[20..].iter().copied().eq(100..120), "{done:?}");
        assert_eq!((queue.len(), is_held(&memory)), (0, false));
    }

    fn a_shared_queue_outlives_its_queue_pairs(library: Library) {
        let bench = Bench::new(library);
        let queue = bench.domain.shared_receive_queue(16, 1).unwrap();
        let options = QueuePairOptions { shared_queue: Some(&queue), ..bench.options(Service::Rc) };
        let [ann, bob] = bench.pair(&options);
        let [eve, zoe] = bench.pair(&options);
        let (memory, region) = bench.region(64);
        let pieces = [region.all()];
        for id in 0..8 {
            queue.post(&[ReceiveWork { id, pieces: &pieces }]).unwrap();
        }
        drop(region);
        let hello = |from: &ferroce_system::QueuePair| {
            from.post_send(&[SendWork::new(100, Operation::Send, Bytes::Inline(b"hello"))]).unwrap();
        };
        // What was told of a queue pair and not polled is forgotten with it; what was told of another is not.
        for _ in 0..3 {
            hello(&ann);
            hello(&eve);
        }
        while queue.len() > 2 {
            let mut room = [CardCompletion::EMPTY; 4];
            let count = bench.completions.poll(&mut room[..1]).unwrap();
            assert!(room[..count].iter().all(CardCompletion::is_success));
            std::hint::spin_loop();
        }
        drop((ann, bob));
        hello(&zoe);
        let mut seen = 0;
        while queue.len() > 1 || seen == 0 {
            seen += bench.completions.poll(&mut [CardCompletion::EMPTY; 8]).unwrap();
        }
        assert_eq!((queue.len(), is_held(&memory)), (1, true));
        drop((eve, zoe));
        assert!(is_held(&memory), "a receive of the queue itself waits still");
        drop(queue);
        assert!(!is_held(&memory));
    }

    fn receives_that_are_done_are_known_when_a_queue_pair_goes(library: Library) {
        let bench = Bench::new(library);
        let queue = bench.domain.shared_receive_queue(16, 1).unwrap();
        let options = QueuePairOptions { shared_queue: Some(&queue), ..bench.options(Service::Rc) };
        let receives = bench.context.completion_queue(64).unwrap();
        let options = QueuePairOptions { receive_cq: &receives, ..options };
        let [ann, bob] = bench.pair(&options);
        let (memory, region) = bench.region(64);
        queue.post(&[ReceiveWork { id: 1, pieces: &[region.all()] }]).unwrap();
        drop(region);
        ann.post_send(&[SendWork::new(2, Operation::Send, Bytes::Inline(b"taken"))]).unwrap();
        // The message has arrived, and its receive was not polled.
        assert_eq!(well(bench.done()).id, 2);
        assert!(is_held(&memory));
        drop(bob);
        assert_eq!((queue.len(), is_held(&memory)), (0, false));
        assert_eq!(receives.poll(&mut [CardCompletion::EMPTY]), Ok(0));
        drop(ann);
    }

    fn datagrams_through_a_shared_queue_name_their_sender(library: Library) {
        let bench = Bench::new(library);
        let queue = bench.domain.shared_receive_queue(16, 1).unwrap();
        let shared = QueuePairOptions { shared_queue: Some(&queue), ..bench.options(Service::Ud) };
        let [ann, bob] = [bench.datagrams(&shared), bench.datagrams(&shared)];
        let (_, region) = bench.region(64);
        queue.post(&[ReceiveWork { id: 1, pieces: &[region.all()] }]).unwrap();
        let address = bench.domain.address_handle(&bench.address()).unwrap();
        let destination = Some(Destination { address: &address, qpn: bob.qpn(), qkey: QKEY });
        let work = SendWork::new(2, Operation::Send, Bytes::Inline(b"hello"));
        ann.post_send(&[SendWork { destination, ..work }]).unwrap();
        let both = [well(bench.done()), well(bench.done())];
        let received = both.iter().find(|done| done.id == 1).unwrap();
        assert_eq!((received.qpn, received.source_qp), (bob.qpn(), Some(ann.qpn())));
    }

    fn a_low_queue_is_an_event_and_can_grow(library: Library) {
        let bench = Bench::new(library);
        let events = bench.context.events();
        let queue = bench.domain.shared_receive_queue(4, 1).unwrap();
        let options = QueuePairOptions { shared_queue: Some(&queue), ..bench.options(Service::Rc) };
        let [ann, _bob] = bench.pair(&options);
        queue.post(&[ReceiveWork { id: 1, pieces: &[] }; 2]).unwrap();
        queue.set_limit(2).unwrap();
        ann.post_send(&[SendWork::new(2, Operation::Send, Bytes::Inline(&[]))]).unwrap();
        assert_eq!(bench.all_done(2), [1, 2]);
        let told = std::iter::repeat_with(|| event(&events));
        let limit = CardEvent::SharedQueueLimit(queue.number());
        assert!(told.take(8).any(|told| told == limit));
        queue.resize(64).unwrap();
        assert!(queue.depth() >= 64);
        queue.post(&[ReceiveWork { id: 1, pieces: &[] }; 60]).unwrap();
        assert_eq!(queue.set_limit(1 << 30).unwrap_err().call, "ibv_modify_srq");
        ann.modify(&Attributes::to(State::Err), None).unwrap();
    }
}
