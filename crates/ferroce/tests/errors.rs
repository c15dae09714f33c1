//! Errors of the public API as programs meet them: a chain of causes tells each thing once, and loses none.

use std::error::Error;
use std::net::{Ipv4Addr, SocketAddr};
use std::thread;
use std::time::Duration;

use ferroce::broker::pool::Pool;
use ferroce::broker::{Absent, Broker, MemberRefusal, Members, Post, Secret, StartError};
use ferroce::cm::{self, CmError, CmOptions};
use ferroce::endpoint::{self, AcceptError, Connection, Options};
use ferroce::{
    Access, AddressVector, Chain, Context, DatagramHeader, FaultPlan, Gid, PathPolicy, ProtectionDomain,
    QpAddress, QpError, QueuePair, Service, WindowKind,
};

/// The network of these tests; the last byte is theirs to choose.
const NET: u8 = 203;

/// An address that no loopback device reaches, and that no test sends to.
const AWAY: Ipv4Addr = Ipv4Addr::new(192, 0, 2, 1);

/// More than a call that has nothing to wait for takes.
const SOON: Duration = Duration::from_secs(10);

fn open(last: u8) -> Context {
    Context::builder("ferroce_lo").address([127, 0, NET, last]).open().expect("loopback can be opened")
}

fn domain(last: u8) -> (Context, ProtectionDomain) {
    let context = open(last);
    let domain = context.protection_domain().expect("there is room for a domain");
    (context, domain)
}

fn queue_pair(context: &Context, domain: &ProtectionDomain, service: Service) -> QueuePair {
    let queue = context.completion_queue(16).expect("there is room for a queue");
    domain.queue_pair(service).completion_queue(&queue).max_inline(8).build().expect("it can be built")
}

/// Checks that a chain consists of exactly these links, each named by a part of its text, and that no text
/// occurs twice.
fn judge(error: &(dyn Error + 'static), links: &[&str]) {
    let printed = Chain::of(error).to_string();
    let mut texts = vec![error.to_string()];
    texts.extend(Chain::of(error).causes().map(ToString::to_string));
    assert_eq!(texts.join(": "), printed, "the chain is what its links are");
    assert_eq!(texts.len(), links.len(), "{texts:#?} should be {links:?}");
    for (place, (text, link)) in texts.iter().zip(links).enumerate() {
        assert!(text.contains(link), "link {place} of {printed:?} lacks {link:?}");
        for (other, again) in texts.iter().enumerate().filter(|(other, _)| *other != place) {
            assert!(!again.contains(text.as_str()), "link {place} of {printed:?} is in link {other} again");
        }
    }
}

#[test]
fn a_device_that_cannot_be_opened() {
    judge(&Context::open("no_such_device").unwrap_err(), &["\"no_such_device\" is not offered as a device"]);
    let foreign = Context::builder("ferroce_lo").address(AWAY).open().unwrap_err();
    judge(&foreign, &["does not have the address 192.0.2.1"]);
    let crowded = Context::builder("ferroce_lo").address([127, 0, NET, 1]).engines(1000).open().unwrap_err();
    judge(&crowded, &["FERROCE_ENGINES: \"1000\""]);
    let folder = std::env::temp_dir().join(format!("ferroce-no-folder-{}", std::process::id()));
    let file = folder.join("a.pcapng");
    let unwritten =
        Context::builder("ferroce_lo").address([127, 0, NET, 2]).capture(&file).open().unwrap_err();
    judge(&unwritten, &[file.to_str().expect("its name is text"), "No such file or directory"]);
}

#[test]
fn settings_that_mean_nothing() {
    judge(&FaultPlan::parse("loss=2").unwrap_err(), &["loss=\"2\" is not a rate"]);
    judge(&"sideways".parse::<PathPolicy>().unwrap_err(), &["\"sideways\" is no path policy"]);
    judge(&"7@nowhere".parse::<QpAddress>().unwrap_err(), &["cannot be read"]);
    judge(&"".parse::<Members>().unwrap_err(), &["the list has no members"]);
    judge(&"sesame".parse::<Secret>().unwrap_err(), &["a secret of 6 characters"]);
}

#[test]
fn objects_that_cannot_be_made() {
    let (context, domain) = domain(10);
    judge(&context.completion_queue(0).unwrap_err(), &["0 "]);
    let queue = context.completion_queue(16).unwrap();
    let unfinished = domain.queue_pair(Service::Rc).build().unwrap_err();
    judge(&unfinished, &["has no completion queue"]);
    let foreign = domain.queue_pair(Service::Rc).completion_queue(&queue).address([127, 0, NET, 9]);
    judge(&foreign.build().unwrap_err(), &["does not have the address"]);
    let large = domain.queue_pair(Service::Rc).completion_queue(&queue).max_sge(1000).build().unwrap_err();
    judge(&large, &["between"]);
    let unwritable = domain.allocate(64, Access::REMOTE_WRITE).unwrap_err();
    judge(&unwritable, &["lets peers write what the owner may not"]);
    let unreached = domain.address_handle(&AddressVector::new(AWAY.into(), 0)).unwrap_err();
    judge(&unreached, &["192.0.2.1 cannot be reached from"]);
}

#[test]
fn memory_that_is_not_there_or_cannot_go() {
    let (_context, domain) = domain(11);
    let access = Access::LOCAL_WRITE | Access::BIND_WINDOW;
    let region = domain.allocate(64, access).unwrap();
    judge(&region.write_at(60, b"too long").unwrap_err(), &["8 bytes at offset 60 are not inside 64 bytes"]);
    judge(&DatagramHeader::read(&region, 40).unwrap_err(), &["bytes at offset 40 are not inside 64 bytes"]);
    judge(&DatagramHeader::read(&region, 0).unwrap_err(), &["no datagram header at offset 0"]);
    judge(&DatagramHeader::parse(&[0; 39]).unwrap_err(), &["39 bytes are no datagram header"]);
    let window = domain.memory_window(WindowKind::Type1).unwrap();
    let plain = domain.allocate(64, Access::LOCAL_WRITE).unwrap();
    let denied = window.bind_now(plain.slice(..), Access::REMOTE_READ).unwrap_err();
    judge(&denied, &["the window was not bound", "this key does not give this access"]);
    window.bind_now(region.slice(..), Access::REMOTE_READ).unwrap();
    judge(
        &region.deregister().unwrap_err(),
        &["stays registered", "1 memory windows are bound to this region"],
    );
}

#[test]
fn work_that_is_refused() {
    let (context, domain) = domain(12);
    let [one, other] = [(), ()].map(|()| queue_pair(&context, &domain, Service::Rc));
    let by = format!("queue pair {} did not take the work", one.qpn());
    judge(&one.send_inline(b"early").post().unwrap_err(), &[&by, "a queue pair in INIT takes no sends"]);
    one.connect(&other.local_address()).unwrap();
    other.connect(&one.local_address()).unwrap();
    judge(&one.send_inline(b"nine long").post().unwrap_err(), &[&by, "9 inline bytes, at most 8 allowed"]);
    let region = domain.allocate(64, Access::LOCAL_WRITE).unwrap();
    judge(
        &one.send(region.slice(60..70)).post().unwrap_err(),
        &["bytes 60..70 are not inside a memory region"],
    );
    let mut batch = one.batch();
    batch.add(one.send_inline(b"short"));
    batch.add(one.send_inline(b"nine long"));
    let refused = batch.post().unwrap_err();
    assert_eq!((refused.taken, refused.given), (1, 2));
    judge(&refused, &["1 of 2 requests were posted", &by, "9 inline bytes"]);
    let mut receives = one.receive_batch();
    receives.add(one.receive(region.slice(..8)));
    receives.add(other.receive(region.slice(..8)));
    judge(&receives.post().unwrap_err(), &["1 of 2 requests were posted", "a receive of queue pair"]);
    let queue = context.completion_queue(1).unwrap();
    judge(&queue.wait(Duration::from_millis(1)).unwrap_err(), &["nothing within 1ms"]);
}

#[test]
fn queue_pairs_that_cannot_be_connected() {
    let (context, domain) = domain(13);
    let [one, datagrams] = [Service::Rc, Service::Ud].map(|service| queue_pair(&context, &domain, service));
    judge(&datagrams.connect(&one.local_address()).unwrap_err(), &["is UD: use activate"]);
    let mut away = one.local_address();
    away.gid = Gid::from(AWAY);
    let refused = one.connect(&away).unwrap_err();
    judge(&refused, &["cannot be connected", "192.0.2.1 cannot be reached from"]);
}

#[test]
fn a_connection_to_a_port_without_a_listener() {
    let (context, domain) = domain(14);
    let _peer = open(15);
    let port: SocketAddr = ([127, 0, NET, 15], 7471).into();
    let qp = queue_pair(&context, &domain, Service::Rc);
    let refused = cm::connect(port, &qp, &CmOptions::default().timeout(SOON)).unwrap_err();
    judge(&refused, &["listens on 127.0.203.15:7471"]);
    let options = Options::new().context(&context).connect_timeout(SOON);
    let refused = Connection::connect_with(port, &options).wait().unwrap_err();
    judge(&refused, &["listens on 127.0.203.15:7471"]);
    let listener = cm::Listener::bind(&context, 7471, 1).unwrap();
    judge(&cm::Listener::bind(&context, 7471, 1).unwrap_err(), &["port 7471"]);
    drop(listener);
}

#[test]
fn ends_that_cannot_be_made() {
    let nowhere = SocketAddr::new(AWAY.into(), 7471);
    judge(&endpoint::Listener::bind(nowhere).unwrap_err(), &["no device for 192.0.2.1"]);
    judge(&Connection::connect(nowhere).wait().unwrap_err(), &["no device for 192.0.2.1"]);
    let here: SocketAddr = ([127, 0, NET, 16], 7471).into();
    let refused = endpoint::Listener::bind_with(here, &Options::new().receive_depth(0)).unwrap_err();
    judge(&refused, &["is 0;"]);
    let listener = endpoint::Listener::bind_with(here, &Options::new().admit(|_| false)).unwrap();
    judge(&listener.accept().wait_for(Duration::from_millis(1)).unwrap_err(), &["connected within 1ms"]);
    judge(&endpoint::Listener::bind(here).unwrap_err(), &["port 7471"]);
    let asked = thread::spawn(move || Connection::connect(here).wait());
    while !asked.is_finished() {
        // Requests are looked at while the listener accepts; the one that asks gives up on its own.
        let none = listener.accept().wait_for(Duration::from_millis(10)).unwrap_err();
        assert!(matches!(none, AcceptError::TimedOut(_)), "{none}");
    }
    let refused = asked.join().unwrap().unwrap_err();
    judge(&refused, &["127.0.203.16:7471 refused", "its program does not admit this peer"]);
}

#[test]
fn a_connection_that_is_lost() {
    let here: SocketAddr = ([127, 0, NET, 17], 7471).into();
    let listener = endpoint::Listener::bind_with(here, &Options::new().max_message(1000)).unwrap();
    let asked = thread::spawn(move || Connection::connect(here).wait());
    let other = listener.accept().wait_for(SOON).unwrap();
    let one = asked.join().unwrap().unwrap();
    judge(&one.send(&vec![0; 20_000]).wait().unwrap_err(), &["the peer takes messages of up to 16384"]);
    judge(&one.recv().wait_for(Duration::from_millis(1)).unwrap_err(), &["not done within 1ms"]);
    other.abort();
    let lost = one.recv().wait_for(SOON).unwrap_err();
    judge(&lost, &["the connection is lost: the peer broke it off"]);
}

#[test]
fn brokers_that_do_not_start() {
    let members: Members = "127.0.203.21:7471,127.0.203.22:7471".parse().unwrap();
    judge(&Broker::builder(7, members.clone()).start().unwrap_err(), &["member 7 is not on the list"]);
    judge(&Broker::builder(0, members.clone()).ring(0).start().unwrap_err(), &["is 0;"]);
    let guessed = Broker::builder(0, members.clone()).secret("sesame").start().unwrap_err();
    judge(&guessed, &["a secret of 6 characters"]);
    let away: Members = "192.0.2.1:7471,127.0.203.22:7471".parse().unwrap();
    judge(&Broker::builder(0, away).start().unwrap_err(), &["no device of this machine has the address"]);
    let zero = Broker::builder(0, members.clone()).max_message(100).launch().unwrap();
    let again = Broker::builder(0, members.clone()).launch().unwrap_err();
    judge(&again, &["member 0 (127.0.203.21:7471) cannot listen on its port 7471", "is listened to already"]);
    judge(&zero.wait_for_all(Duration::ZERO).unwrap_err(), &["it has not asked yet"]);
    let misfit = Broker::builder(1, members).max_message(101).start().unwrap_err();
    assert!(matches!(misfit, StartError::Refused { .. }), "{misfit}");
    judge(&misfit, &["do not fit together", "101 bytes here and 100 there"]);
    judge(&zero.send(1, &[0; 101], Post::new()).unwrap_err(), &["messages have at most 100"]);
    judge(&zero.send(9, b"", Post::new()).unwrap_err(), &["there is no member 9"]);
}

#[test]
fn a_list_of_reasons_tells_their_causes_too() {
    // What is missing has no one cause: the reasons stand in the text, each with all that is behind it.
    let members: Members = "127.0.203.31:7471,127.0.203.32:7471".parse().unwrap();
    let (context, domain) = domain(33);
    let qpn = queue_pair(&context, &domain, Service::Rc).qpn();
    let gone = CmError::QueuePair { qpn, error: QpError::Gone };
    let told = format!("queue pair {qpn} cannot be connected: the queue pair does not exist any more");
    judge(&gone, &["cannot be connected", "does not exist any more"]);
    assert_eq!(Chain::of(&gone).to_string(), told);
    let [me, member] = [0, 1].map(|id| members.get(id).expect("it is on the list"));
    let missing = vec![Absent { member, refusal: Some(MemberRefusal::Unreached(gone)) }];
    judge(&StartError::Missing { me, after: SOON, missing }, &[&told]);
}

#[test]
fn pools_that_have_no_room() {
    let (_context, domain) = domain(34);
    let small = Pool::builder().allocate(&domain, 4096, Access::LOCAL_WRITE).unwrap_err();
    judge(&small, &["a region of 4096 bytes is too small"]);
    let pool = Pool::builder().slab_size(4096).allocate(&domain, 4096, Access::LOCAL_WRITE).unwrap();
    judge(&pool.alloc(1, 5000).unwrap_err(), &["5000 bytes; the largest item has the 4096 of a slab"]);
}
