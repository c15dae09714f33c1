//! Objects: how they are made, how they hang together, and how they go.

mod common;

use std::os::fd::AsFd;

use common::*;
use ferroce_verbs::*;

const NET: u8 = 45;

#[test]
fn everything_may_go_to_other_threads() {
    fn both<T: Send + Sync>() {}
    both::<Context>();
    both::<Events>();
    both::<ProtectionDomain>();
    both::<MemoryRegion>();
    both::<Memory>();
    both::<CompletionQueue>();
    both::<CompletionChannel>();
    both::<QueuePair>();
    both::<SharedReceiveQueue>();
    both::<AddressHandle>();
    both::<Poller>();
    both::<Work<'_>>();
    both::<Receive<'_>>();
    both::<Batch<'_>>();
    both::<NextCompletion<'_>>();
}

#[test]
fn the_order_of_dropping_does_not_matter() {
    let (a, b) = wire(NET);
    let srq = b.pd.shared_receive_queue(4, 1).unwrap();
    let last =
        b.pd.queue_pair(Service::Rc).completion_queue(&b.cq).shared_receive_queue(&srq).build().unwrap();
    srq.receive(&b.region).id(1).post().unwrap();
    a.qp.reset().unwrap();
    connect(&a.qp, &last);
    let receives = last.receive_completions();
    drop((srq, b));
    a.qp.send_inline(b"still there").post().unwrap();
    assert_eq!(receives.wait(SOON).unwrap().byte_len, 11);
    drop((a.context, a.pd, a.region));
    a.qp.send_inline(b"no receive is left").post().unwrap();
    drop((last, receives, a.qp, a.cq));
}

#[test]
fn one_device_has_two_names_and_one_set_of_settings() {
    let one = open([127, 0, NET, 4]);
    let other = Context::builder("ferroce_lo").address([127, 0, NET, 4]).open().unwrap();
    assert_eq!(one, other);
    assert_ne!(one, open([127, 0, NET, 1]));
    let changed = Context::builder("lo").address([127, 0, NET, 4]).path(PathPolicy::Forbid).open();
    let error = changed.unwrap_err();
    assert!(matches!(error, OpenError::Device(_)), "{error}");
}

#[test]
fn a_device_that_is_not_offered_is_not_opened() {
    let error = Context::open("nosuch0").unwrap_err();
    assert!(error.to_string().contains("name its interface in FERROCE_NETDEV"), "{error}");
    assert!(devices().unwrap().iter().any(|info| info.interface == "lo"));
}

#[test]
fn the_port_is_described() {
    let context = open([127, 0, NET, 1]);
    let port = context.port();
    assert_eq!(port.state, PortState::Active);
    assert_eq!(port.gids, [Gid::from(std::net::Ipv4Addr::new(127, 0, NET, 1))]);
    assert_eq!(port.pkeys, [PKey::DEFAULT]);
    assert_eq!(context.query().name, "ferroce_lo");
    assert_eq!(context.gid_index([127, 0, NET, 1]), Some(0));
    assert!(context.receive_buffer() > 0);
}

#[test]
fn a_queue_pair_needs_completion_queues_and_an_address() {
    let context = open([127, 0, NET, 1]);
    let pd = context.protection_domain().unwrap();
    let cq = context.completion_queue(4).unwrap();
    let error = pd.queue_pair(Service::Rc).send_queue(&cq, 4).build().unwrap_err();
    assert_eq!(error, BuildError::NoCompletionQueue { queue: "receive" });
    let error = pd.queue_pair(Service::Rc).completion_queue(&cq).address([127, 0, 0, 9]).build().unwrap_err();
    assert!(error.to_string().contains("127.0.0.9"), "{error}");
    let error = pd.queue_pair(Service::Rc).completion_queue(&cq).gid_index(3).build().unwrap_err();
    assert_eq!(error.to_string(), "GID index 3: the port has 1 GIDs, from index 0");
    let error = pd.queue_pair(Service::Rc).completion_queue(&cq).max_sge(33).build().unwrap_err();
    assert_eq!(error.to_string(), "33 pieces of a send: between 0 and 32 are possible");
    let other = open([127, 0, NET, 2]).completion_queue(4).unwrap();
    let error = pd.queue_pair(Service::Rc).completion_queue(&other).build().unwrap_err();
    assert_eq!(error, BuildError::Create(CreateError::OtherDevice { what: "completion queue" }));
    let qp = pd.queue_pair(Service::Rc).completion_queue(&cq).in_reset().build().unwrap();
    assert_eq!(qp.state(), State::Reset);
}

#[test]
fn a_queue_pair_can_be_connected_again() {
    let (a, b) = wire(NET);
    let before = a.qp.local_address();
    for id in 0..3 {
        a.qp.flush().unwrap();
        a.qp.reset().unwrap();
        b.qp.reset().unwrap();
        assert_eq!(a.qp.local_address().qpn, before.qpn);
        let options = ConnectOptions {
            path_mtu: Some(PathMtu::B256),
            source_port: SourcePort::Prefer(50_000),
            ..Default::default()
        };
        a.qp.connect_with(&b.qp.local_address(), &options).unwrap();
        b.qp.connect_with(&a.qp.local_address(), &options).unwrap();
        a.qp.write(&a.region, b.region.remote()).id(id).post().unwrap();
        assert_eq!(a.done().id, id);
    }
    assert_eq!(a.qp.query().unwrap().attributes.path_mtu, PathMtu::B256);
    assert!(a.qp.counters().requests_sent >= 32);
    assert!(a.context.counters().packets_sent > 0);
}

#[test]
fn each_service_has_its_way_to_work() {
    let context = open([127, 0, NET, 1]);
    let (rc, ud) = (End::new(&context, Service::Rc), End::new(&context, Service::Ud));
    let error = ud.qp.connect(&rc.qp.local_address()).unwrap_err();
    assert_eq!(
        error.to_string(),
        format!("queue pair {} is UD: use activate, which lets it send to any queue pair", ud.qp.qpn())
    );
    let error = rc.qp.activate(QKey(1)).unwrap_err();
    assert!(matches!(error, QpConnectError::WrongService { service: Service::Rc, .. }));
    let required =
        rc.pd.queue_pair(Service::Rc).completion_queue(&rc.cq).path(PathPolicy::Require).build().unwrap();
    let elsewhere = End::new(&open([127, 0, NET, 2]), Service::Rc);
    let error = required.connect(&elsewhere.qp.local_address()).unwrap_err();
    assert!(
        Chain::of(&error).to_string().contains("its policy does not allow the path that there is (wire: "),
        "{error}"
    );
    let (one, other) = (End::new(&context, Service::Uc), End::new(&context, Service::Uc));
    connect(&one.qp, &other.qp);
    one.qp.write_inline(b"unreliable", other.region.remote()).post().unwrap();
    assert!(one.done().is_success());
}

#[test]
fn datagrams_tell_where_they_came_from() {
    let (a, b) = (open([127, 0, NET, 1]), open([127, 0, NET, 2]));
    let (a, b) = (End::new(&a, Service::Ud), End::new(&b, Service::Ud));
    let qkey = QKey(0x1234);
    a.qp.activate(qkey).unwrap();
    b.qp.activate(qkey).unwrap();
    b.qp.receive(b.region.slice(..2048)).id(1).post().unwrap();
    a.qp.receive(a.region.slice(..2048)).id(2).post().unwrap();
    let there = a.pd.address_handle(&AddressVector::new(b.qp.local_address().gid, 0)).unwrap();
    a.qp.send_inline_to(&there, b.qp.qpn(), qkey, b"what is this?").imm(3).post().unwrap();
    drop(there);
    assert!(a.done().is_success());
    let got = b.done();
    assert_eq!((got.byte_len, got.imm), (40 + 13, Some(3)));
    let header = DatagramHeader::read(&b.region, 0).unwrap();
    assert_eq!((header.source, header.dest), (a.qp.local_address().gid, b.qp.local_address().gid));
    assert_eq!(DatagramHeader::read(&b.region, 4096), Err(HeaderError::NotThere { offset: 4096 }));

    let back = b.pd.address_handle(&header.reply_to(0)).unwrap();
    b.region.write_at(4096, b"it is me").unwrap();
    b.qp.send_to(&back, got.source_qp.unwrap(), qkey, b.region.slice(4096..4104)).post().unwrap();
    assert_eq!(a.done().id, 2);
    assert_eq!(a.region.to_vec(40..48).unwrap(), b"it is me");
    let foreign = a.qp.send_inline_to(&back, b.qp.qpn(), qkey, b"").post().unwrap_err();
    assert_eq!(foreign, PostError::OtherDevice { qpn: a.qp.qpn() });
}

#[test]
fn a_shared_queue_that_runs_low_raises_an_event() {
    let (a, b) = (End::new(&open([127, 0, NET, 5]), Service::Rc), open([127, 0, NET, 6]));
    let pd = b.protection_domain().unwrap();
    let (cq, region) = (b.completion_queue(8).unwrap(), pd.allocate(64, OPEN).unwrap());
    let srq = pd.shared_receive_queue(4, 1).unwrap();
    let qp = pd.queue_pair(Service::Rc).completion_queue(&cq).shared_receive_queue(&srq).build().unwrap();
    connect(&a.qp, &qp);
    for id in 0..2 {
        srq.receive(&region).id(id).post().unwrap();
    }
    assert_eq!((srq.len(), srq.depth(), srq.is_empty()), (2, 4, false));
    srq.set_limit(2).unwrap();
    assert!(srq.set_limit(5).is_err());
    a.qp.send_inline(b"one").post().unwrap();
    assert_eq!(cq.wait(SOON).unwrap().id, 0);
    let events = b.events();
    assert!(events.as_fd().try_clone_to_owned().is_ok());
    assert_eq!(events.wait(SOON).unwrap(), AsyncEvent::SharedQueueLimit(srq.id()));
    let error = qp.receive(&region).post().unwrap_err();
    assert!(Chain::of(&error).to_string().ends_with("post them there"), "{error}");
}

#[test]
fn faults_are_injected_where_they_are_asked_for() {
    let plan = FaultPlan::parse("loss=0.02,seed=7").unwrap();
    let faulty = Context::builder("lo").address([127, 0, NET, 7]).faults(plan).open().unwrap();
    let (a, b) = (End::new(&faulty, Service::Rc), End::new(&faulty, Service::Rc));
    let options = ConnectOptions { path_mtu: Some(PathMtu::B256), ..Default::default() };
    a.qp.connect_with(&b.qp.local_address(), &options).unwrap();
    b.qp.connect_with(&a.qp.local_address(), &options).unwrap();
    assert_eq!(a.qp.path().unwrap().reason, PathReason::Middleware);
    a.region.fill(.., 0x5a).unwrap();
    for id in 0..20 {
        a.qp.write(&a.region, b.region.remote()).id(id).post().unwrap();
    }
    assert!((0..20).all(|id| a.done().id == id));
    assert_eq!(b.region.to_vec(..).unwrap(), vec![0x5a; 8192]);
    assert!(a.qp.counters().retransmitted > 0);
}
