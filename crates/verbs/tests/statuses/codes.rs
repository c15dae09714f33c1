//! One function for each vendor code that no test of a status provokes, and the table of them on the page.

use ferroce_transport::{Bind, Data, SendFlags, SendOp, SendRequest, Sge};
use ferroce_verbs::*;
use ferroce_wire::{Segment, SendTail};

use crate::common::{End, OPEN, SOON, connect, open};
use crate::liar::Liar;
use crate::page::the_page;
use crate::{ALONE, WITH_STATUSES};

/// Two hosts that are connected, over packets.
fn hosts(case: u8) -> (End, End) {
    let [a, b] = [1, 2].map(|host| End::new(&open([127, 0, 172, 10 * case + host]), Service::Rc));
    connect(&a.qp, &b.qp);
    (a, b)
}

#[track_caller]
fn ended(end: &End, id: u64) -> Completion {
    let ended = end.cq.wait(SOON).unwrap_or_else(|error| panic!("work {id}: {error}: {:?}", end.qp.query()));
    assert_eq!(ended.id, id, "{ended:?}");
    ended
}

/// Posts a request that the safe API does not let a program make, and waits for its end.
fn raw(end: &End, op: SendOp, sges: &[Sge]) -> Completion {
    let request = SendRequest { id: 1, op, data: Data::Gather(sges), flags: SendFlags::SIGNALED, dest: None };
    end.qp.as_device().unwrap().post_send(&[request]).unwrap();
    ended(end, 1)
}

/// A receive, and a peer that begins a message of two packets for it and goes on wrongly.
fn wrong_message(case: u8, second: Segment<(), SendTail>, len: usize) -> Completion {
    let a = End::new(&open([127, 0, 172, 10 * case + 1]), Service::Rc);
    let liar = Liar::new([127, 0, 172, 10 * case + 2]);
    a.qp.receive(&a.region).id(1).post().unwrap();
    let options = ConnectOptions { path_mtu: Some(PathMtu::B1024), ..ConnectOptions::default() };
    a.qp.connect_with(&liar.address(), &options).unwrap();
    let to = a.qp.local_address();
    liar.send(&to, 0, Segment::First(()), 1024);
    liar.send(&to, 1, second, len);
    ended(&a, 1)
}

pub(crate) fn a_packet_that_is_too_long_ends_a_receive() -> Completion {
    wrong_message(0, Segment::Last(SendTail::Plain), 2048)
}

pub(crate) fn a_message_that_is_broken_off_ends_a_receive() -> Completion {
    wrong_message(1, Segment::Only((), SendTail::Plain), 8)
}

pub(crate) fn a_send_with_a_local_key_of_nothing() -> Completion {
    let (a, _b) = hosts(2);
    let lkey = Lkey(a.region.lkey().0 ^ 0x5500);
    raw(&a, SendOp::Send, &[Sge { address: a.region.address(), length: 8, lkey }])
}

pub(crate) fn a_send_from_beyond_a_region() -> Completion {
    let (a, _b) = hosts(3);
    let (address, lkey) = (a.region.address() + 8190, a.region.lkey());
    raw(&a, SendOp::Send, &[Sge { address, length: 8, lkey }])
}

pub(crate) fn a_send_from_memory_of_another_domain() -> Completion {
    let (a, _b) = hosts(4);
    let elsewhere = a.context.protection_domain().unwrap().allocate(64, OPEN).unwrap();
    raw(&a, SendOp::Send, &[Sge { address: elsewhere.address(), length: 8, lkey: elsewhere.lkey() }])
}

pub(crate) fn work_that_is_posted_in_error() -> Completion {
    let (a, _b) = hosts(5);
    a.qp.flush().unwrap();
    a.qp.receive(&a.region).id(2).post().unwrap();
    assert_eq!(ended(&a, 2).vendor_code, Some(VendorCode::PostedInError));
    a.qp.send_inline(b"late").id(1).post().unwrap();
    ended(&a, 1)
}

/// Binds a window of an end over this memory.
fn bind(end: &End, region: Lkey, address: u64, length: u64) -> Completion {
    let window = end.pd.memory_window(WindowKind::Type2).unwrap();
    let access = Access::REMOTE_READ;
    let (window, new_key) = (window.rkey(), window.rkey());
    raw(end, SendOp::BindWindow(Bind { window, new_key, region, address, length, access }), &[])
}

pub(crate) fn a_window_over_a_region_that_is_not_there() -> Completion {
    let (a, _b) = hosts(6);
    bind(&a, Lkey(a.region.lkey().0 ^ 0x5500), a.region.address(), 8)
}

pub(crate) fn a_window_that_is_wider_than_its_region() -> Completion {
    let (a, _b) = hosts(7);
    let region = a.pd.allocate(64, OPEN | Access::BIND_WINDOW).unwrap();
    bind(&a, region.lkey(), region.address(), 65)
}

pub(crate) fn a_window_over_memory_of_another_domain() -> Completion {
    let (a, _b) = hosts(8);
    let elsewhere = a.context.protection_domain().unwrap().allocate(64, OPEN | Access::BIND_WINDOW).unwrap();
    bind(&a, elsewhere.lkey(), elsewhere.address(), 8)
}

pub(crate) fn a_read_answered_as_an_atomic() -> Completion {
    let a = End::new(&open([127, 0, 172, 91]), Service::Rc);
    let liar = Liar::new([127, 0, 172, 92]);
    a.qp.connect(&liar.address()).unwrap();
    let there = RemoteRegion { address: 0x1000, length: 64, rkey: Rkey(0x4711) };
    a.qp.read(a.region.slice(..8), there.slice(..8)).id(1).post().unwrap();
    liar.answer_as_atomic(a.qp.qpn());
    ended(&a, 1)
}

/// A peer that writes with immediate data to what it takes for memory of ours; the end of the receive.
fn written_by_a_peer(case: u8, to: impl FnOnce(&End) -> RemoteRegion) -> Completion {
    let (a, b) = hosts(case);
    b.qp.receive(&b.region).id(1).post().unwrap();
    a.qp.write_inline(b"let me in", to(&b)).imm(5).id(2).post().unwrap();
    assert_eq!(ended(&a, 2).vendor_code, Some(VendorCode::NakRemoteAccess), "the peer is not told why");
    ended(&b, 1)
}

pub(crate) fn a_peer_writes_with_a_key_of_nothing() -> Completion {
    written_by_a_peer(10, |b| {
        let true_one = b.region.remote();
        RemoteRegion { rkey: Rkey(true_one.rkey.0 ^ 0x5500), ..true_one }
    })
}

pub(crate) fn a_peer_writes_beyond_a_region() -> Completion {
    written_by_a_peer(11, |b| {
        let true_one = b.region.remote();
        RemoteRegion { address: true_one.address + true_one.length - 4, ..true_one }
    })
}

pub(crate) fn a_peer_writes_into_memory_of_another_domain() -> Completion {
    let mut kept = None;
    written_by_a_peer(12, |b| {
        let elsewhere = b.context.protection_domain().unwrap().allocate(64, OPEN).unwrap();
        kept.insert(elsewhere).remote()
    })
}

pub(crate) fn a_peer_that_answered_and_is_gone() -> Completion {
    // With the usual patience: the first WRITE has to arrive on a loaded machine too.
    let (a, b) = hosts(13);
    let there = b.region.remote();
    a.qp.write_inline(b"there", there).id(2).post().unwrap();
    assert!(ended(&a, 2).is_success());
    drop(b.qp);
    a.qp.write_inline(b"still there?", there).id(1).post().unwrap();
    ended(&a, 1)
}

/// The rows of the table of codes: all their cells.
fn rows(page: &str) -> Vec<Vec<String>> {
    let (_, table) = page.split_once("## Vendor codes").expect("the section");
    let table = table.split("\n## ").next().unwrap_or_default();
    let rows = table.lines().filter_map(|line| line.strip_prefix("| `"));
    let cells = rows.map(|row| row.trim_end_matches('|').split('|').map(|cell| cell.trim().replace('`', "")));
    cells.map(Iterator::collect).collect()
}

#[test]
fn every_vendor_code_has_a_row_and_a_test_and_no_row_is_of_another() {
    let tests = || WITH_STATUSES.iter().chain(ALONE);
    let wanted: Vec<Vec<String>> = VendorCode::ALL
        .iter()
        .map(|code| {
            let mut of_code = tests().filter(|(known, _)| known == code);
            let (_, test) = of_code.next().unwrap_or_else(|| panic!("no test provokes {code:?}"));
            assert!(of_code.next().is_none(), "{code:?} stands in both tables");
            let number = format!("0x{:02x}", code.code());
            vec![
                format!("{code:?}"),
                number,
                format!("{:?}", code.status()),
                code.text().into(),
                (*test).into(),
            ]
        })
        .collect();
    assert_eq!(rows(&the_page()), wanted);
}
