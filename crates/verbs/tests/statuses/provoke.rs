//! One function for each status: it makes two hosts, does what ends so, looks at both sides, and hands out the completion.

use ferroce_verbs::*;

use crate::common::{End, OPEN, SOON, open};
use crate::liar::Liar;

/// The address of a host in a case: other tests have the first twenty of this net.
const fn at(case: u8, host: u8) -> [u8; 4] {
    [127, 0, 124, 20 + 10 * case + host]
}

/// Two hosts on addresses of their own, not yet connected.
fn strangers(case: u8) -> [End; 2] {
    [1, 2].map(|host| End::new(&open(at(case, host)), Service::Rc))
}

/// Two hosts that are connected with these options, over packets.
fn hosts_with(case: u8, options: &ConnectOptions) -> (End, End) {
    let [a, b] = strangers(case);
    a.qp.connect_with(&b.qp.local_address(), options).unwrap();
    b.qp.connect_with(&a.qp.local_address(), options).unwrap();
    assert_eq!(a.qp.path().unwrap().path, Path::Wire);
    (a, b)
}

fn hosts(case: u8) -> (End, End) {
    hosts_with(case, &ConnectOptions::default())
}

/// The next completion, whatever it is; it belongs to this work.
#[track_caller]
fn ended(end: &End, id: u64) -> Completion {
    let ended = end.cq.wait(SOON).unwrap_or_else(|error| panic!("work {id}: {error}: {:?}", end.qp.query()));
    assert_eq!((ended.id, ended.qpn), (id, end.qp.qpn()), "{ended:?}");
    ended
}

/// Waits for an event of this queue pair.
#[track_caller]
fn event(end: &End, wanted: Event) {
    let event = end.context.events().wait(SOON).unwrap_or_else(|error| panic!("{wanted:?}: {error}"));
    assert_eq!(event, AsyncEvent::QueuePair(end.qp.qpn(), wanted));
}

#[track_caller]
fn states(ends: [&End; 2], wanted: [State; 2]) {
    assert_eq!(ends.map(|end| end.qp.state()), wanted);
}

pub(crate) fn a_write_that_arrives_is_a_success() -> Completion {
    let (a, b) = hosts(0);
    a.qp.write_inline(b"arrived", b.region.remote()).id(1).post().unwrap();
    let done = ended(&a, 1);
    assert_eq!(b.region.to_vec(..7).unwrap(), b"arrived");
    states([&a, &b], [State::Rts; 2]);
    done
}

pub(crate) fn a_message_longer_than_its_receive_is_a_local_length_error() -> Completion {
    let (a, b) = hosts(1);
    b.qp.receive(b.region.slice(..8)).id(1).post().unwrap();
    a.qp.send_inline(b"nine byte").id(2).post().unwrap();
    let failed = ended(&b, 1);
    assert_eq!(ended(&a, 2).status, Status::RemoteInvalidRequest);
    states([&a, &b], [State::Err; 2]);
    event(&b, Event::RequestError);
    failed
}

pub(crate) fn invalidating_what_is_no_window_is_a_local_qp_operation_error() -> Completion {
    let (a, b) = hosts(2);
    a.qp.local_invalidate(a.region.rkey()).id(1).post().unwrap();
    let failed = ended(&a, 1);
    states([&a, &b], [State::Err, State::Rts]);
    failed
}

/// A receive into memory that was registered without LOCAL_WRITE, and the message that meets it.
fn into_read_only_memory(case: u8) -> [Completion; 2] {
    let (a, b) = hosts(case);
    let frozen = b.pd.register(vec![7; 64], Access::empty()).unwrap();
    b.qp.receive(&frozen).id(1).post().unwrap();
    a.qp.send_inline(b"hello").id(2).post().unwrap();
    let both = [ended(&b, 1), ended(&a, 2)];
    assert_eq!(frozen.to_vec(..).unwrap(), [7; 64]);
    states([&a, &b], [State::Err; 2]);
    both
}

pub(crate) fn a_receive_into_read_only_memory_is_a_local_protection_error() -> Completion {
    let [failed, refused] = into_read_only_memory(3);
    assert_eq!(refused.status, Status::RemoteOperation);
    failed
}

pub(crate) fn a_message_for_a_receive_that_fails_is_a_remote_operation_error() -> Completion {
    let [failed, refused] = into_read_only_memory(4);
    assert_eq!(failed.status, Status::LocalProtection);
    refused
}

pub(crate) fn work_of_a_queue_pair_in_error_is_flushed() -> Completion {
    let (a, b) = hosts(5);
    a.qp.receive(&a.region).id(1).post().unwrap();
    a.qp.flush().unwrap();
    let flushed = ended(&a, 1);
    // What is posted later ends in the same way.
    a.qp.write_inline(b"late", b.region.remote()).id(2).post().unwrap();
    assert_eq!(ended(&a, 2).status, Status::Flushed);
    states([&a, &b], [State::Err, State::Rts]);
    flushed
}

pub(crate) fn a_window_over_memory_without_bind_window_is_a_bind_error() -> Completion {
    let (a, b) = hosts(6);
    let window = a.pd.memory_window(WindowKind::Type2).unwrap();
    assert!(!a.region.access().contains(Access::BIND_WINDOW));
    a.qp.bind_window(window.bind(a.region.slice(..64), Access::REMOTE_READ)).id(1).post().unwrap();
    let failed = ended(&a, 1);
    states([&a, &b], [State::Err, State::Rts]);
    failed
}

pub(crate) fn a_read_answered_with_too_few_bytes_is_a_bad_response() -> Completion {
    let a = End::new(&open(at(7, 1)), Service::Rc);
    let liar = Liar::new(at(7, 2));
    a.qp.connect(&liar.address()).unwrap();
    a.region.fill(.., 0x5a).unwrap();
    let there = RemoteRegion { address: 0x1000, length: 64, rkey: Rkey(0x4711) };
    a.qp.read(a.region.slice(..64), there.slice(..)).id(1).post().unwrap();
    liar.answer_read(a.qp.qpn(), 63);
    let failed = ended(&a, 1);
    assert_eq!(a.region.to_vec(..64).unwrap(), [0x5a; 64], "nothing of a false answer is in memory");
    assert_eq!(a.qp.state(), State::Err);
    failed
}

/// An honest mistake with the same end: a READ is answered in pieces of the responder's path MTU.
#[test]
fn ends_with_different_path_mtus_get_a_bad_response() {
    let [a, b] = strangers(13);
    let with = |mtu| ConnectOptions { path_mtu: Some(mtu), ..ConnectOptions::default() };
    a.qp.connect_with(&b.qp.local_address(), &with(PathMtu::B4096)).unwrap();
    b.qp.connect_with(&a.qp.local_address(), &with(PathMtu::B1024)).unwrap();
    // What fits into one piece of either length does not show it.
    a.qp.read(a.region.slice(..1024), b.region.remote().slice(..1024)).id(1).post().unwrap();
    assert_eq!(ended(&a, 1).status, Status::Success);
    a.qp.read(a.region.slice(..2048), b.region.remote().slice(..2048)).id(2).post().unwrap();
    assert_eq!(ended(&a, 2).status, Status::BadResponse);
    states([&a, &b], [State::Err, State::Rts]);
}

pub(crate) fn a_message_that_takes_away_a_region_is_a_local_access_error() -> Completion {
    let (a, b) = hosts(8);
    b.qp.receive(&b.region).id(1).post().unwrap();
    // Only windows can be taken away by a message; the key of a region cannot.
    a.qp.send_inline(b"closing").invalidate(b.region.rkey()).id(2).post().unwrap();
    let failed = ended(&b, 1);
    assert_eq!(ended(&a, 2).status, Status::RemoteAccess);
    states([&a, &b], [State::Err; 2]);
    event(&b, Event::AccessError);
    failed
}

/// A WRITE with immediate data takes a receive before its memory is looked at.
#[test]
fn a_write_with_immediate_data_into_closed_memory_ends_a_receive_as_local_access() {
    let (a, b) = hosts(14);
    let closed = b.pd.register(vec![7; 64], Access::REMOTE_READ).unwrap();
    b.qp.receive(&b.region).id(1).post().unwrap();
    a.qp.write_inline(b"let me in", closed.remote()).imm(5).id(2).post().unwrap();
    assert_eq!(ended(&b, 1).status, Status::LocalAccess);
    assert_eq!(ended(&a, 2).status, Status::RemoteAccess);
    assert_eq!(closed.to_vec(..).unwrap(), [7; 64]);
    event(&b, Event::AccessError);
}

pub(crate) fn a_read_that_the_queue_pair_does_not_allow_is_a_remote_invalid_request() -> Completion {
    let options = ConnectOptions { access: Access::REMOTE_WRITE, ..ConnectOptions::default() };
    let (a, b) = hosts_with(9, &options);
    // The region allows it, the queue pair does not.
    assert!(b.region.access().contains(Access::REMOTE_READ));
    a.qp.read(a.region.slice(..8), b.region.remote().slice(..8)).id(1).post().unwrap();
    let refused = ended(&a, 1);
    states([&a, &b], [State::Err; 2]);
    event(&b, Event::RequestError);
    refused
}

pub(crate) fn a_write_into_read_only_memory_is_a_remote_access_error() -> Completion {
    let (a, b) = hosts(10);
    let closed = b.pd.register(vec![7; 64], Access::REMOTE_READ).unwrap();
    a.qp.write_inline(b"let me in", closed.remote()).id(1).post().unwrap();
    let refused = ended(&a, 1);
    assert_eq!(closed.to_vec(..).unwrap(), [7; 64]);
    states([&a, &b], [State::Err; 2]);
    event(&b, Event::AccessError);
    refused
}

pub(crate) fn a_peer_that_is_gone_exceeds_the_retries() -> Completion {
    // 4.096 us * 2^8 is a millisecond.
    let options = ConnectOptions { timeout: 8, retry_count: 2, ..ConnectOptions::default() };
    let (a, b) = hosts_with(11, &options);
    let there = b.region.remote();
    drop(b.qp);
    a.qp.write_inline(b"is a receive there?", there).id(1).post().unwrap();
    let failed = ended(&a, 1);
    assert!(a.qp.counters().timeouts > 2, "{:?}", a.qp.counters());
    assert_eq!(a.qp.state(), State::Err);
    failed
}

pub(crate) fn a_peer_without_receives_exceeds_the_rnr_retries() -> Completion {
    // Timer 1 is 0.01 ms.
    let options = ConnectOptions { rnr_retry: 2, min_rnr_timer: 1, ..ConnectOptions::default() };
    let (a, b) = hosts_with(12, &options);
    a.qp.send_inline(b"nowhere to put it").id(1).post().unwrap();
    let failed = ended(&a, 1);
    assert_eq!((a.qp.counters().rnr_received, b.qp.counters().rnr_sent), (3, 3));
    states([&a, &b], [State::Err, State::Rts]);
    assert_eq!(OPEN, b.region.access(), "memory has nothing to do with it");
    failed
}
