//! Servers that are callbacks only, and callbacks that misbehave.

use std::error::Error as _;
use std::sync::atomic::AtomicU64;
use std::sync::mpsc;
use std::thread;

use ferroce_verbs::{Access, Memory};

use super::*;
use crate::core::State as Stand;
use crate::done::DoneKind;
use crate::error::{AcceptError, AddressError, BindError, Cause, Error, SetupError};
use crate::listener::Listener;
use crate::options::{Polling, Priority};
use crate::reactor::{Acceptor, Handler, Reactor, ReactorOptions};

fn reactor() -> Reactor {
    Reactor::start(ReactorOptions::new()).unwrap()
}

/// A listener on an address of its own.
fn listener(host: u8) -> Listener {
    Listener::bind((IpAddr::from([127, 0, 110, host]), 0)).unwrap()
}

fn echo() -> Handler {
    Handler::new(|connection, message| drop(connection.send(&message.into_vec()).wait_for(SOON)))
}

fn connect(to: SocketAddr) -> Connection {
    Connection::connect(to).wait().unwrap()
}

fn check(connection: &Connection) {
    for len in [1, 40_000] {
        connection.send(&vec![7; len]).wait_for(SOON).unwrap();
        assert_eq!(connection.recv().wait_for(SOON).unwrap().unwrap().len(), len);
    }
}

#[test]
fn a_server_is_callbacks_only() {
    let reactor = reactor();
    let (tell, told) = mpsc::channel();
    let connected = move |connection: &Connection| {
        let peer = connection.peer_addr();
        tell.send(format!("connected {}", peer.ip())).unwrap();
        let (heard, ended) = (tell.clone(), tell.clone());
        Handler::new(move |connection, message| {
            heard.send(format!("received {}", message.len())).unwrap();
            connection.send(&message.into_vec()).wait_for(SOON).unwrap();
        })
        .on_closed(move |_, how| ended.send(format!("closed {how:?}")).unwrap())
    };
    let listening = reactor.listen(listener(1), connected).unwrap();
    let connection = connect(listening.local_addr());
    assert_eq!(told.recv().unwrap(), "connected 127.0.110.1");
    connection.send(b"five!").wait_for(SOON).unwrap();
    assert_eq!(told.recv().unwrap(), "received 5");
    assert_eq!(connection.recv().wait_for(SOON).unwrap().unwrap(), b"five!");
    connection.close().wait_for(SOON).unwrap();
    assert_eq!(told.recv().unwrap(), "closed Ok(())");
    assert_eq!(listening.counters().accepted, 1);
}

#[test]
fn a_server_that_is_stopped_lets_no_peer_in_and_serves_the_others() {
    let reactor = reactor();
    let (gone, when_gone) = mpsc::channel::<()>();
    let listening = reactor
        .listen(listener(2), move |_: &Connection| {
            let _held = &gone;
            echo()
        })
        .unwrap();
    let address = listening.local_addr();
    let stays = connect(address);
    check(&stays);
    listening.stop();
    listening.stop();
    // The function is dropped with what it holds.
    assert!(when_gone.recv().is_err());
    let late = Connection::connect_with(address, &Options::new().connect_timeout(SOON)).wait();
    assert!(late.is_err(), "{late:?}");
    check(&stays);
    // The port is free again.
    let again = reactor.listen(Listener::bind(address).unwrap(), |_: &Connection| echo()).unwrap();
    check(&connect(again.local_addr()));
}

#[test]
fn a_reactor_that_ends_closes_its_listeners() {
    let reactor = reactor();
    let listening = reactor.listen(listener(3), |_: &Connection| echo()).unwrap();
    let connection = connect(listening.local_addr());
    check(&connection);
    drop(reactor);
    // What it served was dropped, and so closed in peace.
    assert!(connection.recv().wait_for(SOON).unwrap().is_none());
    assert!(Connection::connect(listening.local_addr()).wait().is_err());
}

#[test]
fn an_accept_is_ended_by_another_thread() {
    let listener = listener(4);
    thread::scope(|scope| {
        let waiting: Vec<_> = (0..3).map(|_| scope.spawn(|| listener.accept().wait())).collect();
        let limited = scope.spawn(|| listener.accept().wait_for(SOON));
        let awaiting = scope.spawn(|| {
            let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
            runtime.block_on(async { listener.accept().await })
        });
        listener.close();
        for ended in waiting.into_iter().chain([limited, awaiting]) {
            assert_eq!(ended.join().unwrap().map(|_| ()), Err(AcceptError::Closed));
        }
    });
    assert_eq!(listener.accept().wait().map(|_| ()), Err(AcceptError::Closed));
    listener.close();
}

#[test]
fn a_function_that_panics_when_a_peer_connects_ends_that_connection() {
    let reactor = reactor();
    let mut count = 0;
    let acceptor = Acceptor::new(move |_| {
        count += 1;
        assert!(count != 2, "the second one, on purpose");
        echo()
    });
    let listening = reactor.listen(listener(5), acceptor).unwrap();
    let first = connect(listening.local_addr());
    check(&first);
    let second = connect(listening.local_addr());
    assert_eq!(second.recv().wait_for(SOON).map(|_| ()), Err(Error::Lost(Cause::PeerReset)));
    let third = connect(listening.local_addr());
    check(&third);
    check(&first);
    assert_eq!(reactor.counters().panics, 1);
}

#[test]
fn a_function_may_close_everything() {
    let reactor = Arc::new(std::sync::Mutex::new(Some(reactor())));
    let listener = listener(6);
    let address = listener.local_addr();
    let held = Arc::clone(&reactor);
    let (tell, told) = mpsc::channel();
    let (connects, connected) = mpsc::channel();
    let listening = {
        let lock = reactor.lock().unwrap();
        let connected = move |_: &Connection| {
            connects.send(()).unwrap();
            let (held, tell) = (Arc::clone(&held), tell.clone());
            Handler::new(move |connection, _| {
                connection.close().wait_for(SOON).unwrap();
                connection.abort();
                // Its own reactor, from within: the thread ends after this.
                drop(held.lock().unwrap().take());
                tell.send(()).unwrap();
            })
        };
        lock.as_ref().unwrap().listen(listener, connected).unwrap()
    };
    let connection = connect(address);
    let other = connect(address);
    // Both are served.
    connected.recv().unwrap();
    connected.recv().unwrap();
    connection.send(b"close everything").wait_for(SOON).unwrap();
    told.recv().unwrap();
    assert!(connection.recv().wait_for(SOON).unwrap().is_none());
    assert!(other.recv().wait_for(SOON).unwrap().is_none());
    listening.stop();
}

#[test]
fn a_function_that_blocks_lets_others_wait_and_loses_nothing() {
    let reactor = reactor();
    let (go, goes) = mpsc::channel::<()>();
    let goes = Arc::new(std::sync::Mutex::new(goes));
    let (enters, entered) = mpsc::channel();
    let listening = reactor
        .listen(listener(7), move |_: &Connection| {
            let (goes, enters) = (Arc::clone(&goes), enters.clone());
            Handler::new(move |connection, message| {
                if message == b"block" {
                    enters.send(()).unwrap();
                    goes.lock().unwrap().recv().unwrap();
                }
                connection.send(&message.into_vec()).wait_for(SOON).unwrap();
            })
        })
        .unwrap();
    let (blocks, waits) = (connect(listening.local_addr()), connect(listening.local_addr()));
    check(&waits);
    blocks.send(b"block").wait_for(SOON).unwrap();
    entered.recv().unwrap();
    waits.send(b"behind it").wait_for(SOON).unwrap();
    let moment = Duration::from_millis(200);
    assert_eq!(waits.recv().wait_for(moment).map(|_| ()), Err(Error::TimedOut(moment)));
    go.send(()).unwrap();
    assert_eq!(blocks.recv().wait_for(SOON).unwrap().unwrap(), b"block");
    assert_eq!(waits.recv().wait_for(SOON).unwrap().unwrap(), b"behind it");
    while reactor.counters().slow == 0 {
        thread::yield_now();
    }
    assert!(reactor.counters().longest >= Duration::from_millis(150), "{:?}", reactor.counters());
}

#[test]
fn callbacks_hear_of_begun_work() {
    let reactor = reactor();
    let (a, b) = pair(110);
    let all = Access::REMOTE_READ | Access::REMOTE_WRITE;
    let table = b.expose("t", Memory::zeroed(4096).unwrap(), all).wait_for(SOON).unwrap();
    let remote = a.remote("t").wait_for(SOON).unwrap();
    let ours = Arc::new(a.protection_domain().allocate(4096, Access::LOCAL_WRITE).unwrap());
    ours.fill(.., 9).unwrap();
    let (written, hear_written) = mpsc::channel();
    let (read, hear_read) = mpsc::channel();
    let (place, again) = (remote.at(0), Arc::clone(&ours));
    let handler = Handler::new(|_, _| ())
        .on_written(move |connection, done| {
            // A callback begins the next.
            let next = connection.begin_read(done.tag + 100, place.clone(), &again, 2048..).wait_for(SOON);
            written.send((done, next)).unwrap();
        })
        .on_read(move |_, done| read.send(done).unwrap());
    let user = a.clone();
    reactor.serve(a, handler).unwrap();
    for tag in 0..10 {
        user.begin_write(tag, &remote, &ours, ..2048, None).wait_for(SOON).unwrap();
        let (done, next) = hear_written.recv().unwrap();
        assert_eq!(
            (done.tag, done.kind, done.len, done.result, next),
            (tag, DoneKind::Written, 2048, Ok(()), Ok(()))
        );
        let done = hear_read.recv().unwrap();
        assert_eq!((done.tag, done.kind, done.result), (tag + 100, DoneKind::Read, Ok(())));
    }
    assert_eq!(table.to_vec(..2048).unwrap(), [9; 2048]);
    b.abort();
    while user.state() == Stand::Open {
        thread::yield_now();
    }
    let lost = user.begin_write(77, remote.at(0), &ours, ..8, None).wait_for(SOON);
    assert!(matches!(lost, Err(Error::Lost(_))), "{lost:?}");
}

/// Two classes on one reactor, each with more to do than there is time: how many events of the lower one there were when the
/// higher one was done with all of its own.
fn overload(each: u64, work: Duration) -> u64 {
    let (one, two) = (open(110, 11), open(110, 12));
    let reactor = reactor();
    let counts = Arc::new([const { AtomicU64::new(0) }; 2]);
    let (tell, told) = mpsc::channel();
    // So that all of them wait before the first is served.
    let (gate, at_gate) = mpsc::channel::<()>();
    let (blocker, blocked) = pair(110);
    reactor.serve(blocked, Handler::new(move |_, _| at_gate.recv().unwrap())).unwrap();
    blocker.send(b"hold").wait_for(SOON).unwrap();
    let mut clients = Vec::new();
    for class in [Priority::Normal, Priority::High] {
        let index = usize::from(class == Priority::High);
        for _ in 0..each / 50 {
            let options = Options::new().priority(class);
            let (a, b) = pair_with(&one, &two, &Options::new(), &options);
            let (counts, tell) = (Arc::clone(&counts), tell.clone());
            let handler = Handler::new(move |_, _| {
                let start = ferroce_verbs::time::now();
                while ferroce_verbs::time::now().since(start) < work {
                    std::hint::spin_loop();
                }
                if counts[index].fetch_add(1, Ordering::SeqCst) + 1 == each {
                    tell.send((class, counts[0].load(Ordering::SeqCst))).unwrap();
                }
            });
            reactor.serve(b, handler).unwrap();
            for _ in 0..50 {
                a.send(b"work").wait_for(SOON).unwrap();
            }
            // The device of the reactor has them all.
            a.flush().wait_for(SOON).unwrap();
            clients.push(a);
        }
    }
    gate.send(()).unwrap();
    let (class, normal) = told.recv().unwrap();
    assert_eq!(class, Priority::High, "it is first");
    // And then the lower one is not forgotten.
    assert_eq!(told.recv().unwrap(), (Priority::Normal, each));
    normal
}

/// The time is counted as it passes: a thread that is not given a processor for a while has had that time too. So an attempt that
/// was disturbed says nothing, and there are several.
#[test]
fn the_lower_class_gets_its_tenth_and_the_higher_one_the_rest() {
    const EACH: u64 = 400;
    let mut seen = Vec::new();
    for _ in 0..40 {
        let normal = overload(EACH, Duration::from_micros(100));
        // A ninth of the time of the other, which is a tenth of all.
        if (EACH / 12..=EACH / 7).contains(&normal) {
            return;
        }
        seen.push(normal);
    }
    panic!("of {EACH} each, so many of the lower class before the higher one was done: {seen:?}");
}

#[test]
fn idle_connections_are_woken_among_hot_ones() {
    for polling in [Polling::Event, Polling::Adaptive(Duration::from_micros(50)), Polling::Busy] {
        let reactor = reactor();
        let options = Options::new().polling(polling);
        let (one, two) = (open(110, 13), open(110, 14));
        let pairs: Vec<_> = (0..30)
            .map(|_| {
                let (a, b) = pair_with(&one, &two, &Options::new(), &options);
                reactor.serve(b, echo()).unwrap();
                a
            })
            .collect();
        // One of them is busy all the time; each of the others is asked once in a while.
        for (round, quiet) in pairs.iter().skip(1).enumerate() {
            for _ in 0..5 {
                pairs[0].send(b"busy").wait_for(SOON).unwrap();
                assert_eq!(pairs[0].recv().wait_for(SOON).unwrap().unwrap(), b"busy");
            }
            quiet.send(b"quiet").wait_for(SOON).unwrap();
            assert_eq!(quiet.recv().wait_for(SOON).unwrap().unwrap(), b"quiet", "{polling:?}, {round}");
        }
    }
}

#[test]
fn a_rate_of_nothing_is_refused_and_a_rate_is_kept() {
    let nothing = Listener::bind_with("127.0.110.8:0", &Options::new().rate_limit(0)).map(|_| ());
    assert!(matches!(nothing, Err(BindError::Setup(SetupError::NoRate))), "{nothing:?}");
    Listener::bind_with("127.0.110.8:0", &Options::new().rate_limit(0).no_rate_limit()).unwrap();
    // 16 Mbit/s are 2 bytes in a microsecond: 200,000 bytes take a tenth of a second, less what may go in one burst.
    let slow = Options::new().rate_limit(16_000);
    let (a, b) = pair_with(&open(110, 15), &open(110, 16), &slow, &Options::new());
    let start = ferroce_verbs::time::now();
    thread::scope(|scope| {
        scope.spawn(|| {
            for _ in 0..20 {
                assert_eq!(b.recv().wait_for(SOON).unwrap().unwrap().len(), 10_000);
            }
        });
        for _ in 0..20 {
            a.send(&[0; 10_000]).wait_for(SOON).unwrap();
        }
        a.flush().wait_for(SOON).unwrap();
    });
    let took = ferroce_verbs::time::now().since(start);
    assert!(took > Duration::from_millis(50), "{took:?}");
}

#[test]
fn an_address_that_means_nothing_keeps_its_cause() {
    for wrong in ["127.0.110.9", "256.1.2.3:x", "127.0.110.9:70000"] {
        let error = Listener::bind(wrong).unwrap_err();
        let BindError::Address(AddressError::Unknown(cause)) = &error else { panic!("{error:?}") };
        assert_eq!(cause.kind(), std::io::ErrorKind::InvalidInput);
        let below = error.source().map(ToString::to_string).unwrap_or_default();
        assert!(!below.is_empty() && !error.to_string().contains(&below), "{error}: {below}");
    }
}

/// It was: the end of the peer's messages was the end of all, although work was under way.
#[test]
fn begun_work_is_told_of_before_the_end() {
    let reactor = reactor();
    for _ in 0..10 {
        let (a, b) = pair(110);
        let len = 4 << 20;
        let _table = a.expose("t", Memory::zeroed(len).unwrap(), Access::REMOTE_READ).wait_for(SOON).unwrap();
        let (tell, told) = mpsc::channel();
        let (read, closed) = (tell.clone(), tell);
        let into = Arc::new(b.protection_domain().allocate(len, Access::LOCAL_WRITE).unwrap());
        let handler = Handler::new(move |connection, _| {
            let table = connection.remote("t").wait_for(SOON).unwrap();
            connection.begin_read(7, &table, &into, ..).wait_for(SOON).unwrap();
        })
        .on_read(move |_, done| read.send(format!("{:?}", done.result)).unwrap())
        .on_closed(move |_, how| closed.send(format!("closed {how:?}")).unwrap());
        a.send(b"fetch it").wait_for(SOON).unwrap();
        let asked = a.clone();
        let finishing = thread::spawn(move || asked.shutdown().wait_for(SOON));
        reactor.serve(b, handler).unwrap();
        assert_eq!(told.recv().unwrap(), "Ok(())");
        assert_eq!(told.recv().unwrap(), "closed Ok(())");
        finishing.join().unwrap().unwrap();
    }
}

/// It was: a function that judges peers ran without a guard, and under the lock of its listener.
#[test]
fn a_function_that_judges_peers_may_panic_or_use_its_listener() {
    let reactor = reactor();
    let known = Arc::new(std::sync::OnceLock::<crate::reactor::Listening>::new());
    let (count, inside) = (AtomicU64::new(0), Arc::clone(&known));
    let options = Options::new().admit(move |_| {
        assert!(count.fetch_add(1, Ordering::SeqCst) > 0, "the first one, on purpose");
        inside.get().is_some_and(|listening| listening.counters().accepted < 2)
    });
    let listening =
        reactor.listen(Listener::bind_with("127.0.110.20:0", &options).unwrap(), |_: &Connection| echo());
    let listening = listening.unwrap();
    known.set(listening.clone()).unwrap();
    let to = listening.local_addr();
    let patient = Options::new().connect_timeout(SOON);
    assert!(Connection::connect_with(to, &patient).wait().is_err());
    let let_in = [0, 1].map(|_| connect(to));
    let_in.iter().for_each(check);
    let refused = Connection::connect_with(to, &patient).wait();
    assert!(matches!(refused, Err(crate::ConnectError::Refused { .. })), "{refused:?}");
    assert_eq!(reactor.counters().panics, 1);
    let_in.iter().for_each(check);
}

/// It was: a connection stood twice in a list, and one of the two outlived it.
#[test]
fn a_reactor_sleeps_when_its_last_connection_is_gone() {
    let reactor = reactor();
    let options = Options::new().priority(Priority::High).polling(Polling::Event);
    for count in 1..20 {
        let (a, b) = pair_with(&open(110, 17), &open(110, 18), &Options::new(), &options);
        let (tell, told) = mpsc::channel();
        let handler = Handler::new(|_, _| ()).on_closed(move |_, how| tell.send(how).unwrap());
        reactor.serve(b, handler).unwrap();
        for _ in 0..count {
            a.send(b"x").wait_for(SOON).unwrap();
        }
        a.close().wait_for(SOON).unwrap();
        told.recv().unwrap().unwrap();
    }
    // Its thread is asleep, again and again.
    let asleep = || {
        let tasks = std::fs::read_dir("/proc/self/task").unwrap().flatten();
        let mut stats = tasks.filter_map(|task| std::fs::read_to_string(task.path().join("stat")).ok());
        stats.any(|stat| stat.contains("(ferroce-reactor) S"))
    };
    let mut seen = 0;
    let end = ferroce_verbs::time::now() + SOON;
    while seen < 50 {
        assert!(ferroce_verbs::time::now() < end, "it was asleep in {seen} looks in a row");
        seen = if asleep() { seen + 1 } else { 0 };
        thread::yield_now();
    }
}

/// It was: with more calls than places, each woke all others, for ever.
#[test]
fn many_calls_wait_for_a_connection_in_silence() {
    #[derive(Default)]
    struct Woken(AtomicU64);
    impl std::task::Wake for Woken {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }
    let listener = listener(21);
    let calls: Vec<_> = (0..300).map(|_| Arc::<Woken>::default()).collect();
    let mut polls = 0;
    let mut due: Vec<_> = calls.iter().collect();
    while !due.is_empty() {
        for call in due.drain(..) {
            call.0.store(0, Ordering::SeqCst);
            let waker = std::task::Waker::from(Arc::clone(call));
            assert!(listener.poll_accept(&mut std::task::Context::from_waker(&waker)).is_pending());
            polls += 1;
        }
        due.extend(calls.iter().filter(|call| call.0.load(Ordering::SeqCst) > 0));
        assert!(polls < 5000, "{} calls wake each other", calls.len());
    }
    listener.close();
    assert!(calls.iter().all(|call| call.0.load(Ordering::SeqCst) > 0), "all of them hear of the end");
}
