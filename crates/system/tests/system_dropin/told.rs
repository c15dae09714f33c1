//! Events: of completions, and of what happens to objects.

use std::time::Duration;

use ferroce_system::{
    Bytes, CardCompletion, CardEvent, CompletionQueueOptions, Library, Operation, QueuePairEvent,
    QueuePairOptions, ReceiveWork, SendWork,
};
use ferroce_transport::Remote;
use ferroce_wire::{Rkey, Service};

use crate::child::over_dropin;
use crate::connected::{Bench, event, is_readable, next, well};

over_dropin! {
    fn an_armed_queue_reports_once_on_its_channel(library: Library) {
        let bench = Bench::new(library);
        let channel = bench.context.completion_channel().unwrap();
        let queue = bench.context.completion_queue_with(&CompletionQueueOptions::new(64).channel(&channel)).unwrap();
        let options = QueuePairOptions { receive_cq: &queue, ..bench.options(Service::Rc) };
        let [ann, bob] = bench.pair(&options);
        for round in 1..=5 {
            assert!(channel.poll().unwrap().is_none());
            queue.arm(false).unwrap();
            bob.post_receive(&[ReceiveWork { id: round, pieces: &[] }]).unwrap();
            ann.post_send(&[SendWork::new(9, Operation::Send, Bytes::Inline(&[]))]).unwrap();
            assert!(is_readable(&channel, Duration::from_secs(60)));
            assert_eq!(channel.poll().unwrap().as_ref(), Some(&queue));
            assert_eq!((well(next(&queue)).id, channel.taken()), (round, round));
            well(bench.done());
        }
        // Every event was acknowledged, so none of these waits.
        drop((ann, bob, queue, channel));
    }

    fn only_what_is_solicited_reports_if_that_was_asked(library: Library) {
        let bench = Bench::new(library);
        let channel = bench.context.completion_channel().unwrap();
        let queue = bench.context.completion_queue_with(&CompletionQueueOptions::new(64).channel(&channel)).unwrap();
        let options = QueuePairOptions { receive_cq: &queue, ..bench.options(Service::Rc) };
        let [ann, bob] = bench.pair(&options);
        bob.post_receive(&[ReceiveWork { id: 1, pieces: &[] }; 2]).unwrap();
        queue.arm(true).unwrap();
        let plain = SendWork::new(9, Operation::Send, Bytes::Inline(&[]));
        ann.post_send(&[plain]).unwrap();
        well(next(&queue));
        assert!(channel.poll().unwrap().is_none());
        let flags = plain.flags | ferroce_transport::SendFlags::SOLICITED;
        ann.post_send(&[SendWork { flags, ..plain }]).unwrap();
        assert!(is_readable(&channel, Duration::from_secs(60)));
        assert_eq!(channel.poll().unwrap(), Some(queue.clone()));
    }

    fn a_queue_goes_also_with_events_that_were_not_taken(library: Library) {
        let bench = Bench::new(library);
        let channel = bench.context.completion_channel().unwrap();
        let options = CompletionQueueOptions::new(64).channel(&channel);
        let other = bench.context.completion_queue_with(&options).unwrap();
        let queue = bench.context.completion_queue_with(&options).unwrap();
        let [ann, bob] = bench.pair(&QueuePairOptions { receive_cq: &queue, ..bench.options(Service::Rc) });
        queue.arm(false).unwrap();
        bob.post_receive(&[ReceiveWork { id: 1, pieces: &[] }]).unwrap();
        ann.post_send(&[SendWork::new(2, Operation::Send, Bytes::Inline(&[]))]).unwrap();
        assert!(is_readable(&channel, Duration::from_secs(60)));
        drop((ann, bob, queue));
        assert!(channel.poll().unwrap().is_none());
        assert_eq!(channel.taken(), 0);
        drop((channel, other));
    }

    fn what_happens_to_a_queue_pair_is_an_event(library: Library) {
        let bench = Bench::new(library);
        let events = bench.context.events();
        assert_eq!(events.poll(), Ok(None));
        let [ann, bob] = bench.pair(&bench.options(Service::Rc));
        let bad = Remote { address: 1, rkey: Rkey(0xdead_0000) };
        ann.post_send(&[SendWork::new(1, Operation::Write(bad), Bytes::Inline(b"bad"))]).unwrap();
        assert!(!bench.done().is_success());
        let expected = CardEvent::QueuePair(bob.qpn(), QueuePairEvent::AccessError);
        assert!(std::iter::repeat_with(|| event(&events)).take(8).any(|told| told == expected));
        // The event was acknowledged, so this does not wait; nor does one that was not taken keep anything.
        drop(bob);
        drop(ann);
    }

    fn an_overrun_queue_is_an_event_with_its_number(library: Library) {
        let bench = Bench::new(library);
        let events = bench.context.events();
        let small = bench.context.completion_queue(1).unwrap();
        let capacity = u64::from(small.capacity());
        let [ann, bob] = bench.pair(&QueuePairOptions { receive_cq: &small, ..bench.options(Service::Rc) });
        for id in 0..=capacity {
            bob.post_receive(&[ReceiveWork { id, pieces: &[] }]).unwrap();
            ann.post_send(&[SendWork::new(9, Operation::Send, Bytes::Inline(&[]))]).unwrap();
            let _ = bench.done();
        }
        let expected = CardEvent::CompletionQueueOverrun(small.number());
        assert!(std::iter::repeat_with(|| event(&events)).take(8).any(|told| told == expected));
        drop((ann, bob, small));
    }

    fn events_wait_for_as_many_completions_as_was_said(library: Library) {
        let bench = Bench::new(library);
        assert_eq!(bench.context.query().unwrap().moderation, Some((u16::MAX, u16::MAX)));
        let channel = bench.context.completion_channel().unwrap();
        let queue = bench.context.completion_queue_with(&CompletionQueueOptions::new(64).channel(&channel)).unwrap();
        let [ann, bob] = bench.pair(&QueuePairOptions { receive_cq: &queue, ..bench.options(Service::Rc) });
        bob.post_receive(&[ReceiveWork { id: 1, pieces: &[] }; 3]).unwrap();
        queue.moderate(3, u16::MAX).unwrap();
        let error = queue.moderate(u16::MAX, 1).unwrap_err();
        assert_eq!(error.call, "ibv_modify_cq", "more than it holds");
        queue.arm(false).unwrap();
        let plain = SendWork::new(9, Operation::Send, Bytes::Inline(&[]));
        for _ in 0..3 {
            ann.post_send(&[plain]).unwrap();
        }
        assert!(is_readable(&channel, Duration::from_secs(60)));
        assert_eq!(channel.poll().unwrap(), Some(queue.clone()));
        // One is enough again.
        queue.moderate(0, 0).unwrap();
        bob.post_receive(&[ReceiveWork { id: 1, pieces: &[] }]).unwrap();
        for _ in 0..3 {
            well(next(&queue));
        }
        queue.arm(false).unwrap();
        ann.post_send(&[plain]).unwrap();
        assert!(is_readable(&channel, Duration::from_secs(60)));
    }

    fn work_ends_at_a_time_of_a_clock_that_can_be_read(library: Library) {
        let bench = Bench::new(library);
        assert!(bench.context.tells_times());
        let timed = bench.context.completion_queue_with(&CompletionQueueOptions::new(64).timestamps()).unwrap();
        let [ann, bob] = bench.pair(&QueuePairOptions { send_cq: &timed, ..bench.options(Service::Rc) });
        let mut before = bench.context.clock().unwrap();
        for id in 0..3 {
            bob.post_receive(&[ReceiveWork { id, pieces: &[] }]).unwrap();
            ann.post_send(&[SendWork::new(id, Operation::Send, Bytes::Inline(&[]))]).unwrap();
            let done = well(next(&timed));
            let after = bench.context.clock().unwrap();
            assert!(done.ticks.is_some_and(|ticks| before <= ticks && ticks <= after), "{done:?}");
            before = after;
        }
    }

    fn a_completion_queue_can_grow(library: Library) {
        let bench = Bench::new(library);
        let queue = bench.context.completion_queue(4).unwrap();
        queue.resize(500).unwrap();
        assert!(queue.capacity() >= 500);
        assert_eq!(queue.resize(u32::MAX).unwrap_err().call, "ibv_resize_cq");
        assert_eq!(queue.poll(&mut [CardCompletion::EMPTY; 0]), Ok(0));
    }
}
