//! Partitions: packets carry the P_Key of their queue pair, and reach queue pairs of the same partition only.
#![allow(clippy::unwrap_used, reason = "a test that cannot go on has failed")]

mod common;

use ferroce_verbs::cm::{self, CmError, CmOptions, DatagramService, Listener};
use ferroce_verbs::*;

use common::{End, SOON};

const NET: u8 = 171;
const QKEY: QKey = QKey(0x77);

/// A full member of partition 1, a limited one of it, a full one of 2, and a limited one of 2: indices 1 to 4.
const KEYS: [PKey; 4] = [PKey(0x8001), PKey(0x0001), PKey(0x8002), PKey(0x0002)];

fn host(last: u8, keys: &[PKey]) -> Context {
    Context::builder("lo").address([127, 0, NET, last]).pkeys(keys).path(PathPolicy::Forbid).open().unwrap()
}

/// Index 0 is the default partition, of which all are full members.
fn key(index: u16) -> PKey {
    if index == 0 { PKey::DEFAULT } else { KEYS[usize::from(index) - 1] }
}

/// Waits until something holds, or says what did not come.
fn until(what: &str, mut holds: impl FnMut() -> bool) {
    let limit = ferroce_device::now() + SOON;
    while !holds() {
        assert!(ferroce_device::now() < limit, "{what}");
        std::thread::yield_now();
    }
}

#[test]
fn the_table_of_a_port_is_what_was_asked_for() {
    let context = host(1, &KEYS);
    assert_eq!(context.port().pkeys, [&[PKey::DEFAULT], &KEYS[..]].concat());
    let open = |keys: &[PKey]| Context::builder("lo").address([127, 0, NET, 2]).pkeys(keys).open();
    let error = open(&[PKey(0x8000)]).unwrap_err();
    assert!(Chain::of(&error).to_string().contains("partition 0"), "{}", Chain::of(&error));
    let end = End::new(&context, Service::Ud);
    let error = end.qp.activate_in(QKEY, 5).unwrap_err();
    assert!(
        Chain::of(&error).to_string().contains("P_Key index 5 does not exist; the port has 5"),
        "{error}"
    );
    end.qp.activate_in(QKEY, 4).unwrap();
    assert_eq!(end.qp.query().unwrap().attributes.pkey_index, 4);
}

#[test]
fn datagrams_reach_members_of_their_partition_of_which_one_is_full() {
    let (a, b) = (host(3, &KEYS), host(4, &KEYS));
    for from in 0..5 {
        for to in 0..5 {
            let (a, b) = (End::new(&a, Service::Ud), End::new(&b, Service::Ud));
            a.qp.activate_in(QKEY, from).unwrap();
            b.qp.activate_in(QKEY, to).unwrap();
            b.qp.receive(b.region.slice(..2048)).id(1).post().unwrap();
            let there = a.pd.address_handle(&AddressVector::new(b.qp.local_address().gid, 0)).unwrap();
            let before = b.context.counters().wrong_pkey;
            a.qp.send_inline_to(&there, b.qp.qpn(), QKEY, b"hello").post().unwrap();
            assert!(a.done().is_success(), "a sender of datagrams does not hear of it");
            if key(from).admits(key(to)) {
                assert_eq!(b.done().byte_len, 45, "{from} to {to}");
            } else {
                until("the datagram is dropped and counted", || b.qp.counters().wrong_pkey == 1);
                assert_eq!(b.context.counters().wrong_pkey, before + 1);
                assert_eq!(b.cq.poll_one(), None, "{from} to {to}");
            }
        }
    }
}

#[test]
fn connections_work_within_a_partition_and_not_across() {
    let (a, b) = (host(5, &KEYS), host(6, &KEYS));
    for service in [Service::Rc, Service::Uc] {
        for (from, to) in [(1, 1), (1, 2), (2, 1), (2, 2), (1, 3), (3, 3), (0, 1)] {
            let (a, b) = (End::new(&a, service), End::new(&b, service));
            // Where nothing can arrive, silence need not be long; elsewhere a loaded machine may keep it for a while.
            let usual = ConnectOptions::default();
            let (timeout, retry_count) =
                if key(from).admits(key(to)) { (usual.timeout, usual.retry_count) } else { (8, 1) };
            let options = |index| ConnectOptions { pkey_index: Some(index), timeout, retry_count, ..usual };
            a.qp.connect_with(&b.qp.local_address(), &options(from)).unwrap();
            b.qp.connect_with(&a.qp.local_address(), &options(to)).unwrap();
            b.qp.receive(b.region.slice(..64)).id(1).post().unwrap();
            a.qp.send_inline(b"hello").post().unwrap();
            let sent = a.cq.wait(SOON).unwrap();
            if key(from).admits(key(to)) {
                assert!(sent.is_success(), "{service:?} {from} to {to}: {sent:?}");
                assert_eq!((b.done().byte_len, b.qp.counters().wrong_pkey), (5, 0));
            } else {
                let status = if service == Service::Rc { Status::RetryExceeded } else { Status::Success };
                assert_eq!(sent.status, status, "{service:?} {from} to {to}");
                until("the packet is dropped and counted", || b.qp.counters().wrong_pkey > 0);
                assert_eq!(b.cq.poll_one(), None);
            }
        }
    }
}

#[test]
fn queue_pairs_of_one_process_are_kept_apart_too() {
    let context = Context::builder("lo").address([127, 0, NET, 7]).pkeys(KEYS).open().unwrap();
    let (a, b) = (End::new(&context, Service::Rc), End::new(&context, Service::Rc));
    let options = ConnectOptions { timeout: 8, retry_count: 1, ..ConnectOptions::default() };
    let in_one = ConnectOptions { pkey_index: Some(1), ..options };
    a.qp.connect_with(&b.qp.local_address(), &in_one).unwrap();
    b.qp.connect_with(&a.qp.local_address(), &options).unwrap();
    let remote = b.region.remote();
    a.qp.write_inline(b"inside", remote.slice(..6)).post().unwrap();
    assert_eq!(a.cq.wait(SOON).unwrap().status, Status::RetryExceeded);
    assert_eq!(b.region.to_vec(..6).unwrap(), [0; 6]);
    assert!(b.qp.counters().wrong_pkey > 0);
}

#[test]
fn a_connection_has_the_partition_of_its_request() {
    let (client, server) = (host(8, &KEYS[1..2]), host(9, &KEYS[..1]));
    let listener = Listener::bind(&server, 7180, 8).unwrap();
    let at = ([127, 0, NET, 9], 7180).into();
    let (a, b) = (End::new(&client, Service::Rc), End::new(&server, Service::Rc));
    let mut options = CmOptions::default();
    options.qp.pkey_index = Some(1);
    let asking = cm::start_connect(at, &a.qp, &options).unwrap();
    let accepted = listener.accept(SOON).unwrap().start_accept(&b.qp, &CmOptions::default()).unwrap();
    let (_here, _there) = (asking.wait().unwrap(), accepted.wait().unwrap());
    // The client is a limited member at its index 1, the server a full one at its.
    for end in [&a, &b] {
        assert_eq!(end.qp.query().unwrap().attributes.pkey_index, 1);
    }
    b.qp.receive(b.region.slice(..64)).id(1).post().unwrap();
    a.qp.send_inline(b"members").post().unwrap();
    assert!(a.done().is_success());
    assert_eq!(b.done().byte_len, 7);
}

#[test]
fn a_request_of_a_foreign_partition_is_rejected() {
    let (client, server) = (host(10, &KEYS), host(11, &KEYS[1..2]));
    let _listener = Listener::bind(&server, 7181, 8).unwrap();
    let offered = End::new(&server, Service::Ud);
    let _service = DatagramService::bind(&offered.qp, 7181, QKEY, b"").unwrap();
    let at = ([127, 0, NET, 11], 7181).into();
    // The server is a limited member of partition 1, and in no other beside the default one.
    for index in [2, 3] {
        let mut options = CmOptions::default();
        options.qp.pkey_index = Some(index);
        let a = End::new(&client, Service::Rc);
        let error = cm::connect(at, &a.qp, &options).unwrap_err();
        assert!(error.to_string().contains("unsupported request"), "{error}");
        let error = cm::resolve(&client, [127, 0, NET, 10].into(), at, &options).unwrap_err();
        assert!(Chain::of(&error).to_string().contains("rejected"), "{}", Chain::of(&error));
    }
    assert_eq!(server.connection_counters().wrong_pkey, 4);
    let mut options = CmOptions::default();
    options.qp.pkey_index = Some(9);
    let a = End::new(&client, Service::Rc);
    let error = cm::connect(at, &a.qp, &options).unwrap_err();
    assert!(matches!(error, CmError::NoSuchPKey { given: 9, len: 5 }), "{error}");
    options.qp.pkey_index = Some(1);
    cm::resolve(&client, [127, 0, NET, 10].into(), at, &options).unwrap();
}
