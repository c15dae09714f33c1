//! A message does the same on every way that it can take: as packets up the ladder, as packets by the quick
//! way, and directly between two queue pairs of one process.

#[path = "../direct/rig.rs"]
#[allow(dead_code, reason = "the tests of messages without packets use the rest")]
mod rig;

mod drive;
mod found;

use drive::{Course, Way, data, seen};
use ferroce_transport::{Access, Bind, Remote, SendFlags, SendOp, SendRequest, Sge, State};
use ferroce_wire::{Imm, Lkey, PathMtu, Rkey};
use proptest::prelude::*;
use rig::{DOMAIN, Setup};

/// Which key memory is named with.
#[derive(Clone, Copy, Debug)]
enum Key {
    /// That of the region.
    Region,
    /// That of a window over a part of it; only peers have such keys.
    Window,
    /// None that was ever given.
    Wrong,
}

#[derive(Clone, Copy, Debug)]
enum Op {
    Send,
    SendImm,
    SendInvalidate(Key),
    Write(Place),
    WriteImm(Place),
    Read(Place),
    FetchAdd(Place),
    LocalInvalidate,
}

/// Where a message goes in memory of the peer.
#[derive(Clone, Copy, Debug)]
struct Place {
    key: Key,
    offset: u64,
}

#[derive(Clone, Debug)]
struct Piece {
    key: Key,
    offset: u64,
    length: u32,
}

#[derive(Clone, Debug)]
struct Message {
    op: Op,
    pieces: Vec<Piece>,
    inline: bool,
    flags: u8,
    /// Receives that are posted before it.
    receives: Vec<Vec<Piece>>,
}

/// Where the window begins that peers may use, and its bytes.
const WINDOW: (u64, u64) = (0x3000, 0x1000);

fn key() -> impl Strategy<Value = Key> {
    prop_oneof![8 => Just(Key::Region), 3 => Just(Key::Window), 1 => Just(Key::Wrong)]
}

fn place() -> impl Strategy<Value = Place> {
    // At the end of the region, and of the window, some lengths fit and others do not.
    let offset =
        prop_oneof![4 => 0x3000_u64..0x3800, 1 => Just(0x3ff0), 1 => Just(0xfff0), 1 => Just(0x2000)];
    (key(), offset).prop_map(|(key, offset)| Place { key, offset: offset & !7 })
}

fn op() -> impl Strategy<Value = Op> {
    prop_oneof![
        4 => Just(Op::Send),
        2 => Just(Op::SendImm),
        1 => key().prop_map(Op::SendInvalidate),
        4 => place().prop_map(Op::Write),
        4 => place().prop_map(Op::WriteImm),
        1 => place().prop_map(Op::Read),
        1 => place().prop_map(Op::FetchAdd),
        1 => Just(Op::LocalInvalidate),
    ]
}

fn piece(offsets: std::ops::Range<u64>) -> impl Strategy<Value = Piece> {
    let key = prop_oneof![15 => Just(Key::Region), 1 => Just(Key::Wrong)];
    let length = prop_oneof![
        2 => Just(0_u32), 4 => 1_u32..20, 2 => 200_u32..300, 1 => Just(256), 1 => Just(512), 1 => 500_u32..900
    ];
    (key, offsets, length).prop_map(|(key, offset, length)| Piece { key, offset, length })
}

fn message() -> impl Strategy<Value = Message> {
    let pieces = prop::collection::vec(piece(0..0x4000), 0..4);
    let receive = prop::collection::vec(piece(0x5000..0x7000), 0..4);
    let receives = prop::collection::vec(receive, 0..3);
    (op(), pieces, any::<bool>(), 0..8_u8, receives).prop_map(|(op, mut pieces, inline, flags, receives)| {
        // How soon a message that needs a receive finds out in its middle that its own memory is at fault
        // depends on what its sender has heard of receives, and on a direct way that is nothing. So it
        // finds out at once.
        let faulty = pieces.iter().position(|piece| matches!(piece.key, Key::Wrong) && piece.length > 0);
        if let Some(at) = faulty.filter(|_| !matches!(op, Op::Write(_) | Op::Read(_))) {
            pieces.swap(0, at);
        }
        Message { op, pieces, inline, flags, receives }
    })
}

fn setup() -> impl Strategy<Value = Setup> {
    let all = Access::all();
    let rights = prop_oneof![
        6 => Just(all),
        1 => Just(all - Access::REMOTE_WRITE),
        1 => Just(Access::empty())
    ];
    let mtu = prop_oneof![Just(PathMtu::B256), Just(PathMtu::B1024)];
    let depth = prop_oneof![4 => Just(4_u8), 1 => Just(0)];
    (rights, mtu, depth, any::<bool>(), any::<bool>()).prop_map(|(rights, mtu, depth, in_rtr, shared)| {
        Setup { rights, mtus: [mtu; 2], depth, in_rtr, shared, ..Setup::default() }
    })
}

/// A course with a window at the side that answers; its key.
fn course(setup: &Setup, way: Way) -> (Course, Rkey) {
    let mut course = Course::new(setup, way);
    let (sge, qpn) = (course.two.sge(1, WINDOW.0, 0), course.two.pairs[1].qpn());
    let memory = &mut course.two.devices.0[1].memory;
    let window = memory.make_window(DOMAIN);
    let bind = Bind {
        window: Rkey(window),
        new_key: Rkey(window + 1),
        region: sge.lkey,
        address: sge.address,
        length: WINDOW.1,
        access: Access::REMOTE_WRITE | Access::REMOTE_READ,
    };
    memory.bind(DOMAIN, qpn, &bind).expect("the window can be bound");
    (course, Rkey(window + 1))
}

fn sges(course: &Course, side: usize, pieces: &[Piece]) -> Vec<Sge> {
    let named = pieces.iter().map(|piece| {
        let sge = course.two.sge(side, piece.offset, piece.length);
        match piece.key {
            Key::Region | Key::Window => sge,
            Key::Wrong => Sge { lkey: Lkey(sge.lkey.0 ^ 0x5500_0000), ..sge },
        }
    });
    named.collect()
}

/// Posts what a message finds, and sends it.
fn send(course: &mut Course, window: Rkey, id: u64, message: &Message) {
    for (number, pieces) in (0..).zip(&message.receives) {
        let sges = sges(course, 1, pieces);
        course.two.post_receive(1000 + id * 10 + number, &sges);
    }
    let rkey = |remote: Remote, key| match key {
        Key::Region => remote.rkey,
        Key::Window => window,
        Key::Wrong => Rkey(0xdead_0001),
    };
    let remote = |place: Place| {
        let remote = course.two.remote(1, place.offset);
        Remote { rkey: rkey(remote, place.key), ..remote }
    };
    let imm = Imm(7);
    let op = match message.op {
        Op::Send => SendOp::Send,
        Op::SendImm => SendOp::SendImm(imm),
        Op::SendInvalidate(key) => SendOp::SendInvalidate(rkey(course.two.remote(1, 0), key)),
        Op::Write(place) => SendOp::Write(remote(place)),
        Op::WriteImm(place) => SendOp::WriteImm(remote(place), imm),
        Op::Read(place) => SendOp::Read(remote(place)),
        Op::FetchAdd(place) => SendOp::FetchAdd { remote: remote(place), add: 3 },
        // Of a key that is none: the work fails where it is posted.
        Op::LocalInvalidate => SendOp::LocalInvalidate(Rkey(0xdead_0001)),
    };
    let mut gathered = sges(course, 0, &message.pieces);
    match message.op {
        Op::FetchAdd(_) => gathered = vec![course.two.sge(0, 0x8000, 3), course.two.sge(0, 0x8100, 5)],
        Op::LocalInvalidate => gathered.clear(),
        // Answers go where nothing else is sent from.
        Op::Read(_) => gathered.iter_mut().for_each(|sge| sge.address += 0x8000),
        _ => {}
    }
    let bytes: Vec<u8> = (0..64).map(|byte| byte ^ 0x5a).collect();
    let may_be_inline = !matches!(message.op, Op::Read(_) | Op::FetchAdd(_) | Op::LocalInvalidate);
    let len = gathered.iter().map(|sge| sge.length as usize).sum::<usize>().min(bytes.len());
    let inline = (message.inline && may_be_inline).then(|| &bytes[..len]);
    let flags = SendFlags::from_bits_truncate(message.flags);
    course.send(&SendRequest { id, op, data: data(&gathered, inline), flags, dest: None });
}

/// A message that waits for a receive gets one that takes anything.
fn help(course: &mut Course, id: u64) {
    let sges = [course.two.sge(1, 0x9000, 0x2000)];
    for number in 0..3 {
        if course.two.pairs[0].sends_waiting() == 0 || !course.is_alive() {
            return;
        }
        if number == 0 {
            course.two.post_receive(2000 + id, &sges);
        }
        assert!(course.wait(), "a message that waits is tried again");
    }
}

/// Sends the messages down every way, and compares after each what can be seen.
fn compare(setup: &Setup, messages: &[Message]) {
    let mut courses = Way::ALL.map(|way| course(setup, way));
    for (id, message) in (1..).zip(messages) {
        for (course, window) in &mut courses {
            send(course, *window, id, message);
        }
        assert_same(&mut courses, &format!("message {id}"));
        for (course, _) in &mut courses {
            help(course, id);
        }
        assert_same(&mut courses, &format!("message {id} after a wait"));
        if !courses[0].0.is_alive() {
            break;
        }
    }
}

#[track_caller]
fn assert_same(courses: &mut [(Course, Rkey); 4], what: &str) {
    let [(ladder, _), others @ ..] = courses;
    let told = [0, 1].map(|side| ladder.log(side));
    for (other, _) in others {
        let way = other.way;
        for side in [0, 1] {
            let [one, two] = [&*ladder, &*other].map(|course| seen(&course.two.pairs[side]));
            assert_eq!(one, two, "{what}, {way:?}: side {side}");
            assert_eq!(told[side], other.log(side), "{what}, {way:?}: what side {side} was told");
            let same = ladder.two.memory(side) == other.two.memory(side);
            assert!(same, "{what}, {way:?}: memory of side {side}");
        }
        let [one, two] = [&*ladder, &*other].map(|course| course.two.devices.0[1].shared[0].totals());
        assert_eq!(one, two, "{what}, {way:?}: the shared queue");
        if !way.is_direct() {
            assert_eq!(ladder.answers, other.answers, "{what}, {way:?}: what was answered");
            let [one, two] = [&*ladder, &*other].map(|course| *course.two.pairs[1].counters());
            assert_eq!(one, two, "{what}, {way:?}: counters");
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn a_message_does_the_same_on_every_way(
        setup in setup(),
        messages in prop::collection::vec(message(), 1..8),
    ) {
        compare(&setup, &messages);
    }
}

/// The comparison means something: on the direct ways most messages need no packets, and the quick way
/// takes them.
#[test]
fn ordinary_messages_take_the_way_that_they_are_sent_down() {
    for way in Way::ALL {
        let (mut course, window) = course(&Setup::default(), way);
        let pieces = vec![Piece { key: Key::Region, offset: 0, length: 100 }];
        let place = Place { key: Key::Window, offset: WINDOW.0 };
        let ops =
            [Op::Send, Op::SendImm, Op::Write(place), Op::WriteImm(place), Op::SendInvalidate(Key::Window)];
        for (id, op) in (1..).zip(ops) {
            let receives = vec![vec![Piece { key: Key::Region, offset: 0x5000, length: 200 }]];
            let message = Message { op, pieces: pieces.clone(), inline: false, flags: 2, receives };
            send(&mut course, window, id, &message);
        }
        assert_eq!(course.two.pairs.each_ref().map(ferroce_transport::QueuePair::state), [State::Rts; 2]);
        assert_eq!(course.two.pairs[0].sends_waiting(), 0, "{way:?}");
        let counters = course.two.pairs[1].counters();
        let by_packets = if way.is_direct() { (0, 5) } else { (5, 0) };
        assert_eq!((counters.requests_received, counters.direct_responses), by_packets, "{way:?}");
    }
}
