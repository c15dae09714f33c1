use std::net::{IpAddr, SocketAddr};
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::task::{Wake, Waker};
use std::time::Duration;

use ferroce_fabric::{NotShared, Path, PathChoice, PathPolicy, PathReason};
use ferroce_memory::{Allocation, WindowKind};
use ferroce_switchboard::slot_of;
use ferroce_sys::clock;
use ferroce_sys::descriptor::EventFd;
use ferroce_sys::sync::Calls;
use ferroce_testkit::shared_port::beside_a_device;
use ferroce_transport::{
    Access, AttributeMask, Attributes, Bind, Caps, Completion, Data, ReceiveRequest, Remote, SendFlags,
    SendOp, SendRequest, Sge, State, Status, Window,
};
use ferroce_wire::{Psn, Qpn, Rkey, Service};

use super::*;
use crate::address::AddressVector;
use crate::cq::CompletionQueue;
use crate::engine::Reason;
use crate::qp::{Qp, QpSpec};

/// A device that has this address of 127.0.48.* only.
fn device(last: u8, engines: usize) -> Nic {
    let address = Some(IpAddr::from([127, 0, 48, last]));
    Nic::open(Config { address, engines, ..Config::new("lo") }).unwrap()
}

fn queue_pair(nic: &Nic, domain: DomainId, cq: &Arc<CompletionQueue>, engine: usize) -> Arc<Qp> {
    let spec = QpSpec {
        service: Service::Rc,
        domain,
        send_cq: cq,
        receive_cq: cq,
        shared_queue: None,
        caps: Caps { max_send: 1, max_receive: 1, max_send_sge: 1, max_receive_sge: 1, max_inline: 0 },
        signal_all: true,
        path: None,
        engine: Some(engine),
        stamps: false,
    };
    let qp = Qp::new(nic, &spec).unwrap();
    let init = Attributes::to(State::Init).with_pkey_index(0).with_port(1).with_access(Access::REMOTE_WRITE);
    qp.modify(&init, None).unwrap();
    qp
}

/// Connects a queue pair to itself.
fn connect_to_itself(nic: &Nic, qp: &Qp) {
    connect_over(qp, &AddressVector::new(nic.gid(0).unwrap(), 0));
}

/// Connects a queue pair to itself over this way.
fn connect_over(qp: &Qp, way: &AddressVector) {
    connect_to(qp, qp.qpn(), way);
}

/// Connects a queue pair to another one over this way.
fn connect_to(qp: &Qp, peer: Qpn, way: &AddressVector) {
    let rtr = Attributes::to(State::Rtr)
        .with(AttributeMask::AV)
        .with_path_mtu(PathMtu::B1024)
        .with_dest_qpn(peer)
        .with_rq_psn(Psn::new(7))
        .with_max_dest_rd_atomic(1)
        .with_min_rnr_timer(1);
    qp.modify(&rtr, Some(way)).unwrap();
    let rts = Attributes::to(State::Rts)
        .with_timeout(14)
        .with_retry_count(7)
        .with_rnr_retry(7)
        .with_sq_psn(Psn::new(7))
        .with_max_rd_atomic(1);
    qp.modify(&rts, None).unwrap();
}

/// Waits for a completion.
fn completion(cq: &CompletionQueue) -> Completion {
    let mut found = [Completion::EMPTY];
    assert_eq!(cq.wait(&mut found, Some(Duration::from_secs(20))), 1);
    found[0]
}

/// Lets a turn of this engine panic: one of this thread's.
fn panic_here(nic: &Nic, engine: usize) {
    let engines = nic.engines();
    let mut visit = engines.enter(engine);
    visit.panics = true;
    let turn = AssertUnwindSafe(move || visit.turn(Reason::Posted));
    assert!(catch_unwind(turn).is_err());
}

/// Lets a turn of this engine panic: one of its driver's.
fn panic_in_its_driver(nic: &Nic, engine: usize) {
    let station = nic.engines().station(engine);
    let mut visit = nic.engines().enter(engine);
    visit.panics = true;
    visit.leave_ringing();
    station.driver.needed_at(Some(clock::now()));
}

#[test]
fn a_panic_inside_a_turn_breaks_its_own_engine_only() {
    for (last, panics) in [(2, panic_here as fn(&Nic, usize)), (3, panic_in_its_driver)] {
        breaks_its_own_engine_only(&device(last, 2), panics);
    }
}

fn breaks_its_own_engine_only(nic: &Nic, panics: fn(&Nic, usize)) {
    let domain = nic.create_domain().unwrap();
    let memory = Allocation::zeroed(64).unwrap();
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let (lkey, _) = nic.register(domain, &memory, (0, 64), 0, access).unwrap();
    let sges = [Sge { address: 0, length: 8, lkey }];
    let receive = ReceiveRequest { id: 1, sges: &sges };
    let cqs = [0, 1].map(|_| CompletionQueue::new(nic, 4, None).unwrap());
    let qps = [0, 1].map(|engine| queue_pair(nic, domain, &cqs[engine], engine));
    for qp in &qps {
        connect_to_itself(nic, qp);
        qp.post_receive(&[receive]).unwrap();
    }

    // A task waits for what never comes, and leaves the engine to its driver.
    let heard = Arc::new(EventFd::new().unwrap());
    let waker = Waker::from(Arc::new(Signal(Arc::clone(&heard))));
    let mut found = [Completion::EMPTY];
    assert_eq!(cqs[1].poll_or_wake(&mut found, &waker), 0);
    panics(nic, 1);

    assert!(heard.wait(Some(Duration::from_secs(20))).unwrap());
    assert_eq!(completion(&cqs[1]).status, Status::Flushed);
    assert_eq!(qps[1].query().unwrap().attributes.state, State::Err);
    assert_eq!(nic.next_event(), Some(AsyncEvent::DeviceFatal));
    // The other engine, and what they have in common, go on.
    let send = SendRequest {
        id: 2,
        op: SendOp::Send,
        data: Data::Gather(&sges),
        flags: SendFlags::empty(),
        dest: None,
    };
    qps[0].post_send(&[send]).unwrap();
    for _ in 0..2 {
        assert_eq!(completion(&cqs[0]).status, Status::Success);
    }
    assert_eq!(qps[0].query().unwrap().attributes.state, State::Rts);
    nic.deregister(domain, lkey).unwrap();
}

/// Tells that a waker was called.
struct Signal(Arc<EventFd>);

impl Wake for Signal {
    fn wake(self: Arc<Self>) {
        self.0.signal();
    }
}

/// The driver was woken by a packet, found a thread inside, and called it: that thread had looked at the socket
/// before the packet came, so it has to look again.
#[test]
fn a_call_is_not_lost_on_a_thread_that_only_empties_its_inbox() {
    let nic = device(4, 1);
    for (reason, rings) in [
        (Reason::InboxFilled, true),
        (Reason::Leaving, true),
        (Reason::Watched, false),
        (Reason::SocketSkipped, false),
        (Reason::Posted, false),
    ] {
        let mut visit = nic.engines().enter(0);
        nic.engines().station(0).turnstile.ring(Calls::ARRIVED);
        visit.turn(reason);
        assert_eq!(visit.leave_ringing(), rings, "{reason:?}");
        nic.engines().take_in(0);
    }
}

#[test]
fn work_in_the_mail_holds_its_memory() {
    let nic = device(1, 1);
    let domain = nic.create_domain().unwrap();
    let cq = CompletionQueue::new(&nic, 4, None).unwrap();
    let qp = queue_pair(&nic, domain, &cq, 0);
    let memory = Allocation::zeroed(64).unwrap();
    let (lkey, _) = nic.register(domain, &memory, (0, 64), 0, Access::LOCAL_WRITE).unwrap();
    let is_registered = || nic.engines().control(0, |engine| engine.tables.memory.region(lkey).is_some());

    // The engine is busy, so the work waits in the mail; and the thread that was busy leaves it there.
    let busy = nic.engines().enter(0);
    let sge = Sge { address: 0, length: 64, lkey };
    qp.post_receive(&[ReceiveRequest { id: 1, sges: &[sge] }]).unwrap();
    assert!(!nic.engines().station(0).mail.is_empty());
    assert!(busy.leave_ringing());

    nic.release(domain, lkey);
    assert!(is_registered());
    drop(qp);
    assert!(!is_registered());
}

/// A window, and a binding of it to a region under another key.
fn window_and_binding(nic: &Nic, domain: DomainId) -> (Rkey, Bind) {
    let memory = Allocation::zeroed(4096).unwrap();
    let access = Access::LOCAL_WRITE | Access::BIND_WINDOW;
    let (region, _) = nic.register(domain, &memory, (0, 4096), 0, access).unwrap();
    let window = nic.allocate_window(domain, WindowKind::Type1).unwrap();
    let new_key = nic.next_window_key(window);
    (window, Bind { window, new_key, region, address: 0, length: 8, access: Access::REMOTE_WRITE })
}

#[test]
fn binding_a_window_anew_waits_for_a_thread_that_uses_it_in_another_engine() {
    let nic = device(201, 2);
    let domain = nic.create_domain().unwrap();
    let (window, bind) = window_and_binding(&nic, domain);
    let done = EventFd::new().unwrap();
    std::thread::scope(|scope| {
        let (nic, done) = (&nic, &done);
        nic.engines().control(1, |_| {
            scope.spawn(move || {
                nic.bind_window(domain, &bind).unwrap();
                done.signal();
            });
            // The thread inside may have asked for memory by the old key, and be writing to it now.
            assert!(!done.wait(Some(Duration::from_millis(300))).unwrap(), "it was not waited for");
        });
        assert!(done.wait(Some(Duration::from_secs(20))).unwrap());
    });
    nic.free_window(domain, window).unwrap();
}

#[test]
fn a_window_is_freed_by_its_name_whatever_key_it_is_bound_under() {
    let nic = device(202, 1);
    let domain = nic.create_domain().unwrap();
    let (window, bind) = window_and_binding(&nic, domain);
    nic.bind_window(domain, &bind).unwrap();
    assert_eq!(nic.window_key(window), Some(bind.new_key));
    assert!(nic.free_window(domain, bind.new_key).is_err(), "a key is no name");
    nic.free_window(domain, window).unwrap();
    assert_eq!(nic.window_key(window), None);
    nic.deregister(domain, bind.region).unwrap();
    assert!(nic.destroy_domain(domain), "nothing uses it any more");
}

#[test]
fn two_threads_that_reregister_at_once_leave_the_domains_counted_right() {
    let nic = device(60, 2);
    let domains: Vec<DomainId> = (0..3).map(|_| nic.create_domain().unwrap()).collect();
    let memory = Allocation::zeroed(4096).unwrap();
    let access = Access::LOCAL_WRITE;
    let (lkey, _) = nic.register(domains[0], &memory, (0, 4096), 0, access).unwrap();
    std::thread::scope(|scope| {
        for start in 0..2 {
            let (nic, domains) = (&nic, &domains);
            scope.spawn(move || {
                for round in 0..500 {
                    let next = domains[(start + round) % 3];
                    nic.reregister_in_place(lkey, |spec| spec.domain = next).unwrap();
                }
            });
        }
    });
    let last = nic.engines().control(0, |engine| engine.tables.memory.region(lkey)).unwrap().domain;
    for domain in domains {
        assert_eq!(nic.destroy_domain(domain), domain != last, "{domain:?}, and {last:?} has the region");
    }
    nic.deregister(last, lkey).unwrap();
    assert!(nic.destroy_domain(last));
}

#[test]
fn a_static_rate_bounds_a_connection() {
    let nic = device(61, 1);
    let domain = nic.create_domain().unwrap();
    let memory = Allocation::zeroed(4096).unwrap();
    let (lkey, rkey) =
        nic.register(domain, &memory, (0, 4096), 0, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
    let cq = CompletionQueue::new(&nic, 4, None).unwrap();
    let sges = [Sge { address: 0, length: 2048, lkey }];
    let target = Remote { rkey, address: 2048 };
    let write = SendRequest {
        id: 1,
        op: SendOp::Write(target),
        data: Data::Gather(&sges),
        flags: SendFlags::empty(),
        dest: None,
    };
    // 2048 bytes at a megabit per second take 16 ms; at once go 125.
    for (static_rate, waits) in [(0, false), (1000, true)] {
        let qp = queue_pair(&nic, domain, &cq, 0);
        connect_over(&qp, &AddressVector { static_rate, ..AddressVector::new(nic.gid(0).unwrap(), 0) });
        for _ in 0..2 {
            qp.post_send(&[write]).unwrap();
            assert_eq!(completion(&cq).status, Status::Success);
        }
        let state = qp.query().unwrap();
        assert_eq!(state.counters.rate_waits > 0, waits, "{static_rate} kbit/s");
        assert_eq!(state.attributes.rate_limit, 0, "what the program allows is another number");
    }
}

/// It was: a queue pair whose lane was lost counted what it sent to a socket as if it went through a ring.
#[test]
fn a_queue_pair_whose_lane_is_lost_has_the_window_of_a_socket() {
    let address = Some(IpAddr::from([127, 0, 48, 64]));
    let config = Config { address, engines: 2, path: PathPolicy::Shared, ..Config::new("lo") };
    let nic = Nic::open(config).unwrap();
    let domain = nic.create_domain().unwrap();
    let memory = Allocation::zeroed(4096).unwrap();
    let access = Access::LOCAL_WRITE | Access::REMOTE_WRITE;
    let (lkey, rkey) = nic.register(domain, &memory, (0, 4096), 0, access).unwrap();
    let cq = CompletionQueue::new(&nic, 4, None).unwrap();
    let [qp, peer] = [0, 1].map(|engine| queue_pair(&nic, domain, &cq, engine));
    let way = AddressVector::new(nic.gid(0).unwrap(), 0);
    connect_to(&qp, peer.qpn(), &way);
    connect_to(&peer, qp.qpn(), &way);
    // Its limit, what 64 bytes cost in it, and what is under way.
    let window = |engine: &mut Engine| {
        let id = engine.qps.get(qp.qpn()).unwrap().window;
        let window = engine.windows.get(id);
        (window.limit(), window.packet_cost(64), window.in_flight())
    };
    let (ring, socket) = (Window::ring(1).packet_cost(64), Window::new().packet_cost(64));
    let sges = [Sge { address: 0, length: 64, lkey }];
    let op = SendOp::Write(Remote { address: 2048, rkey });
    let write = SendRequest { id: 7, op, data: Data::Gather(&sges), flags: SendFlags::empty(), dest: None };
    let [slot, other] = [&qp, &peer].map(|qp| slot_of(qp.qpn()));
    {
        // While this thread is inside, what is sent there stays under way.
        let mut there = nic.engines().enter(1);
        qp.post_send(&[write]).unwrap();
        nic.engines().control(0, |here| {
            let (limit, cost, under_way) = window(here);
            assert!(limit < Window::FLOOR, "{limit}");
            assert_eq!((cost, under_way), (ring, ring));
            here.lose_neighbour(other, 0, NotShared::Broken);
            assert_eq!(window(here), (Window::FLOOR, socket, socket));
        });
        there.lose_neighbour(slot, 0, NotShared::Broken);
        there.leave();
    }
    // What was lost with the lane is sent again.
    assert_eq!(completion(&cq).status, Status::Success);
    assert_eq!(nic.engines().control(0, window), (Window::FLOOR, socket, 0));
    let choice = PathChoice { path: Path::Wire, reason: PathReason::NotShared(NotShared::Broken) };
    assert_eq!(qp.query().unwrap().path, Some(choice));
}

#[test]
fn what_finds_the_receive_buffer_full_is_counted_and_told() {
    const SENT: u64 = 2000;
    let address = IpAddr::from([127, 0, 48, 62]);
    let config = Config { address: Some(address), receive_buffer: 64 << 10, engines: 1, ..Config::new("lo") };
    let (nic, peer) = (Nic::open(config).unwrap(), device(63, 1));
    let domain = nic.create_domain().unwrap();
    let cq = CompletionQueue::new(&nic, 4, None).unwrap();
    let qp = queue_pair(&nic, domain, &cq, 0);
    // No packets, but for the queue pair that they are for: it names the socket.
    let mut bytes = [0; 256];
    bytes[4..8].copy_from_slice(&qp.qpn().get().to_be_bytes());
    let from = beside_a_device(SocketAddr::new(peer.gid(0).unwrap().ip(), ferroce_fabric::PORT));
    let before = nic.counters();
    // No thread reads while this one is inside.
    nic.engines().control(0, |_| {
        for _ in 0..SENT {
            from.send_to(&bytes, (address, ferroce_fabric::PORT)).unwrap();
        }
    });
    let end = clock::now() + Duration::from_secs(20);
    let mut after = nic.counters();
    while after.packets_received - before.packets_received + after.receive_buffer_full < SENT {
        assert!(clock::now() < end, "{SENT} were sent: {after:?}");
        std::thread::yield_now();
        after = nic.counters();
    }
    let received = after.packets_received - before.packets_received;
    assert_eq!((before.receive_buffer_full, received + after.receive_buffer_full), (0, SENT));
    assert!(received > 0 && after.receive_buffer_full > 0, "{after:?}");
    assert_eq!(after.receive_dropped, 0);
    let told = nic.engines().control(0, |engine| engine.report(0).refused.receive_buffer_full);
    assert_eq!(told, after.receive_buffer_full);
    // An engine that has failed does not forget it.
    panic_here(&nic, 0);
    assert_eq!(nic.counters().receive_buffer_full, told);
}
