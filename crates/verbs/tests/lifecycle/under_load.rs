//! Things that end while others use them: a completion queue that no thread empties, memory that is
//! deregistered while a peer writes to it.

use std::sync::atomic::{AtomicBool, Ordering};

use ferroce_verbs::*;

use crate::common::*;
use crate::{NET, is_done_elsewhere};

/// A queue pair with a completion queue that is too small for it.
fn with_small_queue(context: &Context, capacity: u32) -> (ProtectionDomain, CompletionQueue, QueuePair) {
    let pd = context.protection_domain().unwrap();
    let cq = context.completion_queue(capacity).unwrap();
    let qp = pd.queue_pair(Service::Rc).completion_queue(&cq).build().unwrap();
    (pd, cq, qp)
}

/// One thread sends, the queue of the other end overflows while its own thread sleeps on it.
fn overflow(sender: &End, context: &Context) {
    const CAPACITY: u32 = 8;
    let (pd, cq, qp) = with_small_queue(context, CAPACITY);
    let bystander = (End::new(context, Service::Rc), End::new(context, Service::Rc));
    connect(&bystander.0.qp, &bystander.1.qp);
    connect(&sender.qp, &qp);
    let region = pd.allocate(64, OPEN).unwrap();
    for id in 0..64 {
        qp.receive(region.slice(..16)).id(id).post().unwrap();
    }
    let failed = std::thread::scope(|scope| {
        let sending = scope.spawn(|| {
            let mut failed = None;
            for id in 0..64 {
                sender.qp.send_inline(b"one more").id(id).post().unwrap();
            }
            for id in 0..64 {
                let done = sender.cq.wait(SOON).unwrap();
                assert_eq!(done.id, id, "in order");
                failed = failed.or((!done.is_success()).then_some(done));
            }
            failed
        });
        let event = context.events().wait(SOON).unwrap();
        assert_eq!(event, AsyncEvent::CompletionQueueOverrun(cq.id()), "the program is told");
        sending.join().unwrap()
    });
    assert!(cq.is_overrun());
    assert_eq!(qp.state(), State::Err);
    // What was in the queue is not lost: the first ones, in order.
    let kept: Vec<u64> = std::iter::from_fn(|| cq.poll_one()).map(|done| done.id).collect();
    assert_eq!(kept, (0..u64::from(CAPACITY)).collect::<Vec<_>>());
    assert_eq!(cq.wait(SOON), Err(WaitError::Overrun { capacity: CAPACITY }));
    let failed = failed.expect("a peer whose queue pair is in error does not acknowledge");
    assert!(matches!(failed.status, Status::RetryExceeded | Status::RemoteOperation), "{failed:?}");
    // Others on this device do not notice.
    let (one, other) = &bystander;
    one.qp.write(&one.region, other.region.remote()).id(3).post().unwrap();
    assert_eq!(one.done().id, 3);
}

#[test]
fn an_overrun_completion_queue_ends_its_queue_pair_and_no_other() {
    let sender = End::new(&open([127, 0, NET, 61]), Service::Rc);
    overflow(&sender, &open([127, 0, NET, 62]));
}

#[test]
fn memory_is_deregistered_while_a_peer_writes_to_it() {
    if is_done_elsewhere("under_load::memory_is_deregistered_while_a_peer_writes_to_it") {
        return;
    }
    deregister_under_load(&|| wire(NET + 1));
}

#[test]
fn memory_is_deregistered_while_a_local_peer_writes_to_it() {
    if is_done_elsewhere("under_load::memory_is_deregistered_while_a_local_peer_writes_to_it") {
        return;
    }
    deregister_under_load(&|| local(NET + 1));
}

/// One thread writes to a region of the other end until it is refused; another thread takes the region
/// away in the middle, and changes its bytes itself from then on.
fn deregister_under_load(ends: &dyn Fn() -> (End, End)) {
    for round in 0..10_u8 {
        let (a, b) = ends();
        let region = b.pd.register(vec![0xee_u8; 256 * 1024], OPEN).unwrap();
        let source = a.pd.register(vec![round; 256 * 1024], OPEN).unwrap();
        let remote = region.remote();
        let writing = AtomicBool::new(false);
        let memory = std::thread::scope(|scope| {
            let writer = scope.spawn(|| {
                let mut posted = 0_u64;
                let mut done = 0;
                loop {
                    while posted - done < 8 {
                        a.qp.write(&source, remote).id(posted).post().unwrap();
                        posted += 1;
                    }
                    let completion = a.cq.wait(SOON).unwrap();
                    assert_eq!(completion.id, done, "in order");
                    done += 1;
                    writing.store(true, Ordering::SeqCst);
                    match completion.status {
                        Status::Success => {}
                        Status::RemoteAccess => break,
                        other => panic!("{other}"),
                    }
                }
                while done < posted {
                    assert_eq!(a.cq.wait(SOON).unwrap().status, Status::Flushed);
                    done += 1;
                }
            });
            while !writing.load(Ordering::SeqCst) {
                std::thread::yield_now();
            }
            let memory = region.deregister().unwrap();
            // From here on only this thread touches the bytes, however many packets are still under way.
            let bytes = memory.into_boxed().expect("the last handle");
            let mut bytes = bytes.into_vec();
            bytes.fill(0x77);
            writer.join().unwrap();
            bytes
        });
        assert!(memory.iter().all(|byte| *byte == 0x77), "written after it was deregistered");
        assert_eq!(a.qp.state(), State::Err);
        assert_eq!(b.qp.state(), State::Err);
    }
}
