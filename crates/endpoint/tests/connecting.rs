//! Connections by address: what comes about, what does not, and why.
#![allow(clippy::unwrap_used, reason = "a test stops here")]

use std::net::SocketAddr;
use std::os::fd::AsFd;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Wake, Waker};
use std::thread;
use std::time::Duration;

use ferroce_endpoint::*;
use ferroce_verbs::cm::{self, CmError, CmOptions};
use ferroce_verbs::time::{now, park, until, wait_readable};
use ferroce_verbs::{CompletionQueue, QueuePair, Service, Time};

/// Long enough for a loaded machine; no test waits for it to pass.
const SOON: Duration = Duration::from_secs(30);

fn open(host: u8) -> Context {
    Context::builder("lo").address([127, 0, 115, host]).open().unwrap()
}

/// A listener on one host, and options for clients on another.
fn listener(options: Options) -> (Listener, Options, String) {
    let listener = Listener::bind_with("127.0.115.1:0", &options.context(&open(1))).unwrap();
    let address = listener.local_addr().to_string();
    (listener, Options::new().context(&open(2)), address)
}

#[test]
fn messages_both_ways_and_a_quiet_end() {
    let (listener, options, address) = listener(Options::new());
    thread::scope(|scope| {
        scope.spawn(|| {
            let connection = listener.accept().wait_for(SOON).unwrap();
            assert_eq!(connection.peer_addr().ip().to_string(), "127.0.115.2");
            while let Some(message) = connection.recv().wait_for(SOON).unwrap() {
                connection.send(&message.into_vec()).wait_for(SOON).unwrap();
            }
            connection.close().wait_for(SOON).unwrap();
        });
        let connection = Connection::connect_with(&address, &options).wait().unwrap();
        assert_eq!(connection.peer_addr().to_string(), address);
        for len in [0, 3, 10_000, 1_000_000] {
            connection.send(&vec![6; len]).wait_for(SOON).unwrap();
            assert_eq!(connection.recv().wait_for(SOON).unwrap().unwrap().len(), len);
        }
        connection.shutdown().wait_for(SOON).unwrap();
        assert!(connection.recv().wait_for(SOON).unwrap().is_none());
        connection.close().wait_for(SOON).unwrap();
        assert_eq!(connection.state(), State::Closed);
    });
    assert_eq!(listener.counters().accepted, 1);
}

#[test]
fn one_address_is_enough_for_both_ends() {
    both_ends_at("127.0.115.7:0");
    both_ends_at("[::1]:0");
}

fn both_ends_at(address: &str) {
    let listener = Listener::bind(address).unwrap();
    let address = listener.local_addr();
    thread::scope(|scope| {
        let client = scope.spawn(move || {
            let connection = Connection::connect(address).wait().unwrap();
            connection.send(b"hello").wait().unwrap();
        });
        let connection = listener.accept().wait_for(SOON).unwrap();
        assert_eq!(connection.recv().wait_for(SOON).unwrap().unwrap(), b"hello");
        assert!(connection.recv().wait_for(SOON).unwrap().is_none(), "dropped in peace");
        client.join().unwrap();
    });
}

#[test]
fn no_device_no_listener_no_admission() {
    let (listener, options, address) = listener(Options::new().admit(|_| false));
    let timeout = Duration::from_millis(400);
    let started = open(2).clock_now();
    let dead = Connection::connect_with("127.0.115.99:7", &options.clone().connect_timeout(timeout)).wait();
    assert!(matches!(dead, Err(ConnectError::Cm(CmError::TimedOut { .. }))), "{dead:?}");
    assert!(open(2).clock_now().since(started) < SOON);
    let deaf = Connection::connect_with("127.0.115.1:7", &options).wait();
    assert!(matches!(deaf, Err(ConnectError::Cm(CmError::NotListening { .. }))), "{deaf:?}");
    thread::scope(|scope| {
        let accepting = scope.spawn(|| listener.accept().wait_for(Duration::from_secs(2)));
        let refused = Connection::connect_with(&address, &options).wait();
        let why = Refusal::NotAdmitted;
        assert!(matches!(refused, Err(ConnectError::Refused { why: w, .. }) if w == why), "{refused:?}");
        assert!(matches!(accepting.join().unwrap(), Err(AcceptError::TimedOut(_))));
    });
    assert_eq!(listener.counters().not_admitted, 1);
    let nowhere = Connection::connect("256.1.2.3:x").wait();
    assert!(matches!(nowhere, Err(ConnectError::Address(AddressError::Unknown(_)))), "{nowhere:?}");
}

#[test]
fn a_peer_with_another_protocol_is_told() {
    let (listener, _, address) = listener(Options::new());
    let other = open(3);
    let pd = other.protection_domain().unwrap();
    let cq = other.completion_queue(16).unwrap();
    let qp = pd.queue_pair(Service::Rc).completion_queue(&cq).build().unwrap();
    let options = CmOptions::default().private_data(b"GET / HTTP/1.1");
    thread::scope(|scope| {
        let accepting = scope.spawn(|| listener.accept().wait_for(SOON));
        let refused = cm::connect(address.parse().unwrap(), &qp, &options).unwrap_err();
        assert!(
            matches!(&refused, CmError::Refused { private_data, .. } if private_data[0] == 1),
            "{refused}"
        );
        assert_eq!(listener.counters().foreign, 1);
        // Others are not disturbed.
        let client = Connection::connect_with(&address, &Options::new().context(&open(2))).wait().unwrap();
        assert!(accepting.join().unwrap().is_ok());
        drop(client);
    });
}

#[test]
fn a_server_that_accepts_and_vanishes() {
    let (listener, options, address) = listener(Options::new().linger(Duration::ZERO));
    thread::scope(|scope| {
        scope.spawn(|| {
            let connection = listener.accept().wait_for(SOON).unwrap();
            connection.abort();
        });
        let connection = Connection::connect_with(&address, &options).wait().unwrap();
        let received = connection.recv().wait_for(SOON).map(|_| ());
        assert_eq!(received, Err(Error::Lost(Cause::PeerReset)));
        assert_eq!(connection.send(b"?").wait_for(SOON), Err(Error::Lost(Cause::PeerReset)));
    });
}

/// A listener that takes one request at a time, with one that waits: others are told that it is busy.
struct Busy {
    listener: cm::Listener,
    address: SocketAddr,
    first: Option<cm::Connecting>,
    /// Stays, so that no other queue pair gets its number: that one would be taken for this one.
    _asks: QueuePair,
    _queue: CompletionQueue,
}

impl Busy {
    fn new(server: &Context, client: &Context) -> Self {
        let listener = cm::Listener::bind(server, 0, 1).unwrap();
        let address = SocketAddr::new([127, 0, 115, 1].into(), listener.port());
        let queue = client.completion_queue(16).unwrap();
        let domain = client.protection_domain().unwrap();
        let qp = domain.queue_pair(Service::Rc).completion_queue(&queue).build().unwrap();
        let first = cm::start_connect(address, &qp, &CmOptions::default().timeout(SOON)).unwrap();
        assert!(wait_readable(listener.as_fd(), Some(SOON)).unwrap(), "it waits");
        Self { listener, address, first: Some(first), _asks: qp, _queue: queue }
    }

    /// The next request finds room, and is not answered.
    fn make_room(&mut self) {
        drop(self.first.take());
        // It is refused, if it has not been given up: either way the place is free.
        drop(self.listener.try_accept());
    }
}

/// A listener that is busy for half of the time and silent for the rest does not get the whole time again.
fn has_one_deadline(connect: impl FnOnce(Connect) -> Result<Connection, ConnectError>) {
    let (server, client) = (open(1), open(2));
    let mut busy = Busy::new(&server, &client);
    let limit = Duration::from_secs(3);
    let options = Options::new().context(&client).connect_timeout(limit);
    let connecting = Connection::connect_with(busy.address, &options);
    let begun = now();
    let (outcome, end) = thread::scope(|scope| {
        scope.spawn(|| {
            // The time is what this is about.
            park_until(begun + limit / 2);
            busy.make_room();
        });
        let outcome = connect(connecting);
        (outcome, now())
    });
    let Err(ConnectError::TimedOut { limit: told, attempts, last }) = outcome else { panic!("{outcome:?}") };
    assert_eq!((told, last), (limit, CmError::Busy { peer: busy.address }));
    assert!((3..100).contains(&attempts), "{attempts} attempts, with pauses that grow");
    let took = end.since(begun);
    assert!(took < limit + limit / 3, "{took:?}");
}

#[test]
fn waiting_to_connect_has_one_deadline() {
    has_one_deadline(Connect::wait);
}

#[test]
fn awaiting_to_connect_has_one_deadline() {
    let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
    has_one_deadline(|connecting| runtime.block_on(connecting));
}

#[test]
fn awaiting_asks_a_busy_listener_again_as_waiting_does() {
    let (server, client) = (open(1), open(2));
    let mut busy = Busy::new(&server, &client);
    let options = Options::new().context(&client).connect_timeout(SOON);
    let mut connecting = Connection::connect_with(busy.address, &options);
    let (tell, told) = std::sync::mpsc::channel();
    let waker = Waker::from(Arc::new(Tell(tell)));
    let mut context = TaskContext::from_waker(&waker);
    // Asked, and the answer has come: it is busy.
    assert!(Pin::new(&mut connecting).poll(&mut context).is_pending());
    told.recv().unwrap();
    let answered = Pin::new(&mut connecting).poll(&mut context);
    assert!(answered.is_pending(), "{answered:?}");
    busy.make_room();
    // It is asked again without the program's help.
    let outcome = thread::scope(|scope| {
        let runtime = tokio::runtime::Builder::new_current_thread().build().unwrap();
        let asks_again = scope.spawn(move || runtime.block_on(connecting));
        busy.listener.accept(SOON).unwrap().reject(&[2]).unwrap();
        asks_again.join().unwrap()
    });
    let why = Refusal::NotAdmitted;
    assert!(matches!(outcome, Err(ConnectError::Refused { why: w, .. }) if w == why), "{outcome:?}");
}

struct Tell(std::sync::mpsc::Sender<()>);

impl Wake for Tell {
    fn wake(self: Arc<Self>) {
        // The test may be over.
        let _ = self.0.send(());
    }
}

fn park_until(time: Time) {
    while !until(time).is_zero() {
        park(Some(until(time)));
    }
}

#[test]
fn a_crowd_comes_and_goes() {
    let soak = std::env::var("FERROCE_SOAK").is_ok_and(|minutes| !minutes.is_empty());
    let count = if soak { 4000 } else { 1000 };
    // Small rings: most of these connections say little.
    let small = Options::new().receive_depth(8).send_depth(8).signal_every(4).eager(2048).backlog(256);
    let (listener, _, address) = listener(small.clone());
    let options = small.context(&open(2)).connect_timeout(Duration::from_secs(60));
    let runtime =
        tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().unwrap();
    runtime.block_on(async move {
        let server = tokio::spawn(async move {
            let mut tasks = Vec::new();
            for _ in 0..count {
                let connection = listener.accept().await.unwrap();
                tasks.push(tokio::spawn(async move {
                    while let Some(message) = connection.recv().await.unwrap() {
                        connection.send(&message.into_vec()).await.unwrap();
                    }
                    connection.close().await.unwrap();
                }));
            }
            for task in tasks {
                task.await.unwrap();
            }
        });
        // Opened and closed in a random order, with all of them open at once in the middle.
        let (barrier, dice) = (Arc::new(tokio::sync::Barrier::new(count)), open(2).clock_now().nanos());
        let asking = Arc::new(tokio::sync::Semaphore::new(64));
        let mut clients = Vec::new();
        for i in 0..count as u64 {
            let (options, address) = (options.clone(), address.clone());
            let (barrier, asking) = (Arc::clone(&barrier), Arc::clone(&asking));
            clients.push(tokio::spawn(async move {
                let turn = asking.acquire().await.unwrap();
                let connection = Connection::connect_with(&address, &options).await.unwrap();
                drop(turn);
                let roll = (dice ^ i).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 33;
                let len = usize::try_from(roll % 5000).unwrap();
                let echo = async |rounds: u64| {
                    for round in 0..rounds {
                        let sent = vec![u8::try_from((i + round) % 256).unwrap(); len];
                        connection.send(&sent).await.unwrap();
                        assert!(connection.recv().await.unwrap().unwrap().into_vec() == sent);
                    }
                };
                echo(1 + roll % 3).await;
                barrier.wait().await;
                echo(roll % 4).await;
                connection.shutdown().await.unwrap();
                assert!(connection.recv().await.unwrap().is_none());
                if roll % 2 == 0 {
                    connection.close().await.unwrap();
                }
            }));
        }
        for client in clients {
            client.await.unwrap();
        }
        server.await.unwrap();
    });
}

/// It was: an address that this process had as a device of its own kept `0.0.0.0` out, and the other way round.
#[test]
fn a_wildcard_listens_beside_others_of_the_same_process() {
    let (one, other) = (Listener::bind("127.0.115.31:0").unwrap(), Listener::bind("127.0.115.32:0").unwrap());
    let all = Listener::bind("0.0.0.0:0").unwrap();
    assert!(all.local_addr().ip().is_unspecified());
    let meet = |listener: &Listener, to: SocketAddr| {
        thread::scope(|scope| {
            let client = scope.spawn(move || Connection::connect(to).wait().unwrap());
            let accepted = listener.accept().wait_for(SOON).unwrap();
            assert_eq!(accepted.local_addr().ip(), to.ip());
            client.join().unwrap();
        });
    };
    meet(&one, one.local_addr());
    meet(&other, other.local_addr());
    // By the interface's own address, and by those that are devices of their own.
    for address in [[127, 0, 0, 1], [127, 0, 115, 31], [127, 0, 115, 32]] {
        meet(&all, (address, all.local_addr().port()).into());
    }
    let taken = Listener::bind(("0.0.0.0", one.local_addr().port())).map(|_| ());
    assert!(matches!(taken, Err(BindError::Listen(_))), "{taken:?}");
}
