//! Futures, callbacks and streams, and every way to let go of them too early.

use std::future::Future;
use std::pin::{Pin, pin};
use std::sync::mpsc;
use std::task::{Context as TaskContext, Poll, Waker};
use std::thread;

use ferroce_verbs::{Access, Memory};

use super::*;
use crate::core::State as Stand;
use crate::error::{Cause, Error};
use crate::hub::CompletionHub;
use crate::options::Polling;
use crate::reactor::{Handler, Reactor, ReactorOptions};

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_current_thread().enable_time().build().unwrap()
}

/// Polls a future once, and forgets it.
fn poll_once<F: Future>(future: F) -> Poll<F::Output> {
    let mut context = TaskContext::from_waker(Waker::noop());
    pin!(future).poll(&mut context)
}

#[test]
fn echo_with_await() {
    let (a, b) = pair(114);
    runtime().block_on(async {
        let server = tokio::spawn(async move {
            while let Some(message) = b.recv().await.unwrap() {
                b.send(&message.into_vec()).await.unwrap();
            }
            b.close().await.unwrap();
        });
        for len in [0, 5, 10_000, 400_000] {
            let sent = vec![9; len];
            a.send(&sent).await.unwrap();
            assert!(a.recv().await.unwrap().unwrap().into_vec() == sent);
        }
        a.shutdown().await.unwrap();
        assert!(a.recv().await.unwrap().is_none());
        server.await.unwrap();
    });
}

#[test]
fn many_connections_on_one_thread() {
    let (one, two) = (open(114, 1), open(114, 2));
    let hub = CompletionHub::new(&two, 20_000).unwrap();
    let shared = Options::new().completion_hub(&hub);
    runtime().block_on(async {
        let mut tasks = Vec::new();
        for i in 0_u32..100 {
            let (a, b) = pair_with(&one, &two, &Options::new(), &shared);
            tasks.push(tokio::spawn(async move {
                while let Some(message) = b.recv().await.unwrap() {
                    b.send(&message.into_vec()).await.unwrap();
                }
            }));
            tasks.push(tokio::spawn(async move {
                for round in 0..20_u32 {
                    a.send_with_imm(&i.to_be_bytes(), round).await.unwrap();
                    assert_eq!(a.recv().await.unwrap().unwrap(), &i.to_be_bytes());
                }
                a.close().await.unwrap();
            }));
        }
        for task in tasks {
            task.await.unwrap();
        }
    });
}

#[test]
fn a_receive_that_is_dropped_loses_no_message() {
    let (a, b) = pair(114);
    for i in 0..200_u32 {
        assert!(poll_once(b.recv()).is_pending());
        let large = if i % 3 == 0 { 100_000 } else { 4 };
        let mut message = vec![0; large];
        message[..4].copy_from_slice(&i.to_be_bytes());
        a.send(&message).wait_for(SOON).unwrap();
        // Whether it is there yet or not: it is not lost by a receive that looks and goes.
        let mut got = None;
        for _ in 0..3 {
            if let Poll::Ready(message) = poll_once(b.recv()) {
                got = message.unwrap();
                break;
            }
        }
        let got = got.unwrap_or_else(|| b.recv().wait_for(SOON).unwrap().unwrap());
        assert!(got.into_vec() == message, "message {i}");
    }
}

#[test]
fn a_send_that_is_dropped_is_sent_whole_or_not_at_all() {
    let (a, b) = pair(114);
    let mut expected = Vec::new();
    for i in 0..300_u32 {
        let message = vec![u8::try_from(i % 251).unwrap(); if i % 5 == 0 { 50_000 } else { 10 }];
        match poll_once(a.send(&message)) {
            Poll::Ready(sent) => {
                sent.unwrap();
                expected.push(message);
            }
            // It waits for room, and is given up.
            Poll::Pending => {
                if let Some(first) = (!expected.is_empty()).then(|| expected.remove(0)) {
                    assert!(b.recv().wait_for(SOON).unwrap().unwrap().into_vec() == first);
                }
            }
        }
    }
    assert!(a.counters().stalls > 0, "some had to wait");
    // A send that was given up has left the queue: others get through.
    thread::scope(|scope| {
        scope.spawn(|| a.send(b"last").wait_for(SOON).unwrap());
        for message in expected {
            assert!(b.recv().wait_for(SOON).unwrap().unwrap().into_vec() == message);
        }
        assert_eq!(b.recv().wait_for(SOON).unwrap().unwrap(), b"last");
    });
}

#[test]
fn work_that_is_dropped_is_done_by_the_device_and_its_memory_stays() {
    let (a, b) = pair(114);
    let all = Access::REMOTE_READ | Access::REMOTE_WRITE;
    let size = 1 << 20;
    let table = b.expose("t", Memory::zeroed(size).unwrap(), all).wait_for(SOON).unwrap();
    let remote = a.remote("t").wait_for(SOON).unwrap();
    for round in 1..=20_u8 {
        let bytes = vec![round; size];
        // The first look posts it, and no thread waits for it.
        let _ = poll_once(a.write(&remote, 0, &bytes));
        drop(bytes);
        let _ = poll_once(a.read(&remote, 0, size));
        // What is posted later is done later.
        a.write(&remote, 0, b"").wait_for(SOON).unwrap();
        assert!(table.to_vec(..).unwrap() == vec![round; size], "round {round}");
    }
    let held = a.memory();
    assert!(held.peak <= Options::new().most_memory() + 8 * size as u64, "{held:?}");
}

#[test]
fn a_connection_that_is_dropped_with_work_under_way() {
    for _ in 0..20 {
        let (a, b) = pair(114);
        let access = Access::REMOTE_READ | Access::REMOTE_WRITE;
        let table = b.expose("t", Memory::zeroed(1 << 20).unwrap(), access).wait_for(SOON).unwrap();
        let remote = a.remote("t").wait_for(SOON).unwrap();
        let bytes = vec![1; 1 << 20];
        let _ = poll_once(a.write(&remote, 0, &bytes));
        let _ = poll_once(a.read(&remote, 0, 1 << 20));
        let _ = poll_once(a.send(&bytes));
        drop((a, bytes));
        assert_eq!(b.recv().wait_for(SOON).unwrap().unwrap().len(), 1 << 20);
        assert!(b.recv().wait_for(SOON).unwrap().is_none());
        assert_eq!(table.load_u8(0).unwrap(), 1);
    }
}

#[test]
fn a_message_outlives_its_connection() {
    let (a, b) = pair(114);
    a.send(&[5; 100_000]).wait_for(SOON).unwrap();
    let message = b.recv().wait_for(SOON).unwrap().unwrap();
    drop((a, b));
    assert!(message.into_vec() == [5; 100_000]);
}

#[test]
fn callbacks_get_everything_in_order_and_the_end() {
    for polling in [Polling::Event, Polling::Adaptive(Duration::from_micros(20)), Polling::Busy] {
        let (a, b) = pair(114);
        let reactor = Reactor::start(ReactorOptions::new().polling(polling).cpu(0)).unwrap();
        let (tell, told) = mpsc::channel();
        let closed = tell.clone();
        let handler = Handler::new(move |connection, message| {
            connection.send(&message.to_vec()).wait_for(SOON).unwrap();
            tell.send(message.imm()).unwrap();
        });
        let handler = handler.on_closed(move |_, how| {
            how.unwrap();
            closed.send(Some(u32::MAX)).unwrap();
        });
        reactor.serve(b, handler).unwrap();
        for i in 0..100 {
            a.send_with_imm(&[3; 20_000], i).wait_for(SOON).unwrap();
            assert_eq!(a.recv().wait_for(SOON).unwrap().unwrap().len(), 20_000);
        }
        a.close().wait_for(SOON).unwrap();
        for i in (0..100).chain([u32::MAX]) {
            assert_eq!(told.recv().unwrap(), Some(i));
        }
    }
}

#[test]
fn a_callback_may_close_its_own_connection() {
    let (a, b) = pair(114);
    let reactor = Reactor::start(ReactorOptions::new()).unwrap();
    let (tell, told) = mpsc::channel();
    let handler = Handler::new(|connection, _| {
        connection.send(b"good night").wait_for(SOON).unwrap();
        connection.close().wait_for(SOON).unwrap();
    });
    let handler = handler.on_closed(move |connection, how| tell.send((connection.state(), how)).unwrap());
    reactor.serve(b, handler).unwrap();
    a.send(b"hello").wait_for(SOON).unwrap();
    assert_eq!(a.recv().wait_for(SOON).unwrap().unwrap(), b"good night");
    assert!(a.recv().wait_for(SOON).unwrap().is_none());
    assert_eq!(told.recv().unwrap(), (Stand::Closed, Ok(())));
}

#[test]
fn a_connection_may_be_closed_during_a_callback() {
    let (a, b) = pair(114);
    let reactor = Reactor::start(ReactorOptions::new()).unwrap();
    let (inside, entered) = mpsc::channel();
    let (go, goes) = mpsc::channel::<()>();
    let (tell, told) = mpsc::channel();
    let mut sent = Some(tell);
    let handler = Handler::new(move |connection, message| {
        inside.send(()).unwrap();
        goes.recv().unwrap();
        // The message is whole although the connection is gone.
        assert_eq!(message.to_vec(), [8; 100_000]);
        let result = connection.send(b"too late").wait_for(SOON);
        sent.take().unwrap().send(result).unwrap();
    });
    let held = b.clone();
    reactor.serve(b, handler).unwrap();
    a.send(&[8; 100_000]).wait_for(SOON).unwrap();
    entered.recv().unwrap();
    held.abort();
    go.send(()).unwrap();
    assert_eq!(told.recv().unwrap(), Err(Error::Lost(Cause::Aborted)));
}

#[test]
fn a_stream_for_threads() {
    use std::io::{Read, Write};

    let (a, b) = pair(114);
    let (mut a, b) = (a.into_stream(), b.into_stream());
    let text: Vec<u8> = (0..3_000_000_u32).map(|i| u8::try_from(i * 7 % 256).unwrap()).collect();
    thread::scope(|scope| {
        scope.spawn(|| {
            // Back as it comes.
            let mut piece = vec![0; 33_333];
            loop {
                let count = (&b).read(&mut piece).unwrap();
                if count == 0 {
                    return b.shutdown_write().unwrap();
                }
                (&b).write_all(&piece[..count]).unwrap();
            }
        });
        let out = &a;
        let text = &text;
        let writer = scope.spawn(move || {
            for piece in text.chunks(70_001) {
                { out }.write_all(piece).unwrap();
            }
            out.shutdown_write().unwrap();
        });
        let mut back = Vec::new();
        (&a).read_to_end(&mut back).unwrap();
        assert!(back == *text);
        writer.join().unwrap();
    });
    assert_eq!(a.read(&mut [0; 4]).unwrap(), 0);
}

#[test]
fn a_stream_for_tasks() {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    let (a, b) = pair(114);
    let (mut a, b) = (a.into_stream(), b.into_stream());
    runtime().block_on(async {
        let (mut read, mut write) = tokio::io::split(b);
        let echo = tokio::spawn(async move {
            tokio::io::copy(&mut read, &mut write).await.unwrap();
            write.shutdown().await.unwrap();
        });
        a.write_all(&[4; 1_000_000]).await.unwrap();
        a.shutdown().await.unwrap();
        let mut back = Vec::new();
        a.read_to_end(&mut back).await.unwrap();
        assert_eq!(back.len(), 1_000_000);
        echo.await.unwrap();
    });
}

/// A future that was awaited elsewhere is awaited on.
#[test]
fn a_future_may_move_between_tasks() {
    let (a, b) = pair(114);
    runtime().block_on(async {
        let mut receive = Box::pin(async move { b.recv().await.unwrap().unwrap().into_vec() });
        let first = tokio::time::timeout(Duration::from_millis(1), Pin::as_mut(&mut receive)).await;
        assert!(first.is_err());
        let other = tokio::spawn(receive);
        a.send(b"found you").await.unwrap();
        assert_eq!(other.await.unwrap(), b"found you");
    });
}
