//! The ways to hear of completions: polling, waiting, awaiting, channels, pollers.

mod common;

use std::future::Future;
use std::os::fd::AsFd;
use std::pin::pin;
use std::sync::{Arc, Mutex, mpsc};
use std::task::{Context as TaskContext, Poll};
use std::thread;
use std::time::Duration;

use common::*;
use ferroce_verbs::time::this_thread;
use ferroce_verbs::*;

const NET: u8 = 44;

#[test]
fn waiting_ends_with_a_typed_time_out() {
    let (a, _b) = wire(NET);
    let short = Duration::from_millis(1);
    assert_eq!(a.cq.wait(short), Err(WaitError::TimedOut(short)));
    assert_eq!(a.context.events().wait(Duration::ZERO), Err(WaitError::TimedOut(Duration::ZERO)));
    assert_eq!(a.cq.wait_into(&mut [], None), Ok(0));
    assert!(a.cq.poll_one().is_none());
}

#[test]
fn many_completions_come_in_order() {
    let (a, b) = local(NET);
    for id in 0..100 {
        a.qp.write_inline(b"x", b.region.remote()).id(id).post().unwrap();
    }
    let mut found = [Completion::EMPTY; 40];
    let mut next = 0;
    while next < 100 {
        let taken = a.cq.wait_into(&mut found, SOON).unwrap();
        for done in &found[..taken] {
            assert_eq!((done.id, done.status), (next, Status::Success));
            next += 1;
        }
    }
}

#[test]
fn completions_can_be_awaited() {
    let (a, b) = wire(NET);
    b.qp.receive(&b.region).id(4).post().unwrap();
    let receiver = thread::spawn(move || {
        let received = block_on(b.cq.next()).unwrap();
        (received.id, b.region.to_vec(..received.byte_len as usize).unwrap())
    });
    a.qp.send_inline(b"to a task").post().unwrap();
    assert!(block_on(a.cq.next()).unwrap().is_success());
    assert_eq!(receiver.join().unwrap(), (4, b"to a task".to_vec()));
}

#[test]
fn a_channel_tells_which_queue_has_something() {
    let (a, b) = (open([127, 0, NET, 1]), open([127, 0, NET, 2]));
    let channel = a.completion_channel().unwrap();
    let pd = a.protection_domain().unwrap();
    let (sends, receives) = (channel.completion_queue(8).unwrap(), channel.completion_queue(8).unwrap());
    let qp = pd.queue_pair(Service::Rc).send_queue(&sends, 8).receive_queue(&receives, 8).build().unwrap();
    let region = pd.allocate(64, OPEN).unwrap();
    let peer = End::new(&b, Service::Rc);
    connect(&qp, &peer.qp);
    assert!(channel.poll().is_none());

    receives.arm(Notify::Solicited);
    qp.receive(region.slice(..8)).id(1).post().unwrap();
    qp.receive(region.slice(8..16)).id(2).post().unwrap();
    peer.qp.send_inline(b"quiet").post().unwrap();
    assert!(peer.done().is_success());
    assert!(channel.poll().is_none(), "not solicited");
    peer.qp.send_inline(b"loud").solicited().post().unwrap();
    assert_eq!(channel.wait(SOON).unwrap(), receives);
    assert_eq!([1, 2], [receives.wait(SOON).unwrap().id, receives.wait(SOON).unwrap().id]);
    assert!(channel.poll().is_none(), "armed once, told once");

    sends.arm(Notify::Any);
    qp.write_inline(b"x", peer.region.remote()).post().unwrap();
    assert_eq!(channel.wait(SOON).unwrap(), sends);
    assert!(channel.as_fd().try_clone_to_owned().is_ok());
    let short = Duration::from_millis(1);
    assert_eq!(channel.wait(short).unwrap_err(), WaitError::TimedOut(short));
}

#[test]
fn an_overrun_queue_says_so() {
    let context = open([127, 0, NET, 3]);
    let pd = context.protection_domain().unwrap();
    let (cq, region) = (context.completion_queue(2).unwrap(), pd.allocate(8, OPEN).unwrap());
    let new = || pd.queue_pair(Service::Rc).completion_queue(&cq).build().unwrap();
    let (qp, peer) = (new(), new());
    connect(&qp, &peer);
    let mut batch = qp.batch();
    for _ in 0..8 {
        batch.add(qp.write_inline(b"x", region.remote()));
    }
    batch.post().unwrap();
    let lost = loop {
        if let Err(lost) = cq.wait(SOON) {
            break lost;
        }
    };
    assert_eq!(lost, WaitError::Overrun { capacity: cq.capacity() });
    assert_eq!(block_on(cq.next()), Err(lost));
}

#[test]
fn a_poller_hands_over_and_may_post() {
    let (a, b) = wire(NET);
    let (echo, region) = (Arc::new(b.qp), Arc::new(b.region));
    for slot in 0..4_usize {
        echo.receive(region.slice(slot * 64..(slot + 1) * 64)).id(slot as u64).post().unwrap();
    }
    let (qp, memory) = (Arc::clone(&echo), Arc::clone(&region));
    let poller = Poller::start(&b.cq, move |done| {
        if let Classified::Received(message) = done {
            let start = usize::try_from(message.id).unwrap() * 64;
            qp.send(memory.slice(start..start + message.byte_len as usize)).post().unwrap();
            qp.receive(memory.slice(start..start + 64)).id(message.id).post().unwrap();
        }
    })
    .unwrap();
    for round in 0..50_u8 {
        a.qp.receive(a.region.slice(..64)).post().unwrap();
        a.qp.send_inline(&[round; 20]).post().unwrap();
        while a.done().kind != WorkKind::Receive {}
        assert_eq!(a.region.to_vec(..20).unwrap(), [round; 20]);
        while a.cq.poll_one().is_some() {}
    }
    poller.stop().unwrap();
}

#[test]
fn a_poller_stops_at_once() {
    let (_a, b) = wire(NET);
    for _ in 0..20 {
        Poller::start(&b.cq, |_| {}).unwrap().stop().unwrap();
        drop(Poller::start(&b.cq, |_| {}).unwrap());
    }
}

/// Up to fifteen completions were lost with the one that the function panicked at.
#[test]
fn a_panic_in_a_poller_loses_no_completion() {
    const COUNT: u64 = 40;
    let (a, b) = wire(NET);
    for id in 0..COUNT {
        a.qp.write_inline(b"x", b.region.remote()).id(id).post().unwrap();
    }
    let (tell, told) = mpsc::channel();
    let poller = Poller::start(&a.cq, move |_| {
        tell.send(()).unwrap();
        std::panic::resume_unwind(Box::new("as planned"));
    })
    .unwrap();
    told.recv().unwrap();
    let Err(PollerError::Panicked { untold }) = poller.stop() else { panic!("its function panicked") };
    let mut ids: Vec<u64> = untold.iter().map(|completion| completion.id).collect();
    let all_but_the_first: Vec<u64> = (1..COUNT).collect();
    while ids.len() < all_but_the_first.len() {
        ids.push(a.cq.wait(SOON).unwrap().id);
    }
    assert_eq!(ids, all_but_the_first);
}

#[test]
fn a_poller_reports_a_panic_and_can_end_itself() {
    let (a, b) = wire(NET);
    let (tell, told) = mpsc::channel();
    let poller = Poller::start(&a.cq, move |_| {
        tell.send(()).unwrap();
        std::panic::resume_unwind(Box::new("as planned"));
    })
    .unwrap();
    a.qp.write_inline(b"x", b.region.remote()).post().unwrap();
    told.recv().unwrap();
    assert!(matches!(poller.stop(), Err(PollerError::Panicked { .. })));

    let (tell, told) = mpsc::channel();
    let own: Arc<Mutex<Option<Poller>>> = Arc::default();
    let inside = Arc::clone(&own);
    let poller = Poller::start(&a.cq, move |_| {
        drop(inside.lock().unwrap().take());
        tell.send(()).unwrap();
    })
    .unwrap();
    *own.lock().unwrap() = Some(poller);
    a.qp.write_inline(b"x", b.region.remote()).post().unwrap();
    told.recv().unwrap();
    assert!(told.recv().is_err(), "its thread ended");
}

/// The shortest executor: runs a future on this thread.
fn block_on<F: Future>(future: F) -> F::Output {
    let waker = this_thread();
    let mut future = pin!(future);
    loop {
        match future.as_mut().poll(&mut TaskContext::from_waker(&waker)) {
            Poll::Ready(output) => return output,
            Poll::Pending => thread::park(),
        }
    }
}
