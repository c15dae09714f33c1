//! The two ways to send and to take in data do the same: many packets in one call, and packet by packet.

#[path = "direct/rig.rs"]
#[allow(dead_code, reason = "the tests of messages without packets use the rest")]
mod rig;

use ferroce_sim::Device;
use ferroce_transport::{
    Access, Acks, Data, Gather, PayloadSource, Remote, SendFlags, SendOp, SendRequest, Sge, Status, Time,
    Window,
};
use ferroce_wire::{DataPacket, DataVerb, Imm, Packet, PayloadLen, Psn, Reth, Rkey, SendTail};
use rig::{Setup, Two};

const NOW: Time = Time::from_nanos(1000);
const ALL: usize = usize::MAX;

/// A packet as it left, and its payload.
type Sent = (Packet<PayloadLen>, Vec<u8>);

fn two() -> Two {
    with(&Setup::default())
}

fn with(setup: &Setup) -> Two {
    let mut two = Two::new(setup);
    for side in [0, 1] {
        for (index, byte) in two.memory(side).iter_mut().enumerate() {
            *byte = (index % 251).to_le_bytes()[0];
        }
    }
    two
}

fn bytes(device: &Device, payload: &PayloadSource<'_>) -> Vec<u8> {
    let slice = |address, len: u32| device.memory.slice(address, len as usize).to_vec();
    match *payload {
        PayloadSource::Nothing => Vec::new(),
        PayloadSource::Inline(bytes) => bytes.to_vec(),
        PayloadSource::Gather(gather) => {
            Gather::flat_map(gather, |piece: Sge| slice(piece.address, piece.length)).collect()
        }
        PayloadSource::Remote { address, len, .. } => slice(address, len),
    }
}

/// All that a side sends, packet by packet.
fn one_by_one(two: &mut Two, side: usize, window: &mut Window) -> Vec<Sent> {
    let (pair, device) = (&mut two.pairs[side], &mut two.devices.0[side]);
    let mut all = Vec::new();
    while let Some(transmit) = pair.poll_transmit(NOW, Acks::Send, window, device) {
        all.push((transmit.packet, bytes(device, &transmit.payload)));
    }
    all
}

/// What a side sends in one call with this limit, through a sink that takes no more than `room` packets.
fn at_once(two: &mut Two, side: usize, window: &mut Window, (limit, room): (usize, usize)) -> Vec<Sent> {
    let mut all = Vec::new();
    let sink = |device: &mut Device, data: &DataPacket, payload: &PayloadSource<'_>| {
        let takes = all.len() < room;
        if takes {
            all.push((data.to_packet(), bytes(device, payload)));
        }
        takes
    };
    let count = two.pairs[side].poll_data(NOW, limit, None, window, &mut two.devices.0[side], sink).sent;
    assert_eq!(count, all.len());
    all
}

fn post(two: &mut Two, id: u64, op: SendOp, data: Data<'_>, flags: SendFlags) {
    let request = SendRequest { id, op, data, flags, dest: None };
    two.pairs[0].post_send(&request, &mut two.devices.0[0]).expect("the work is in order");
}

/// Messages of every kind that bursts are for, of no, one and several packets; with one that takes a key out of use there
/// are 18 packets in all.
fn post_all(two: &mut Two) {
    post_most(two);
    let more = [two.sge(0, 100, 1025)];
    post(two, 5, SendOp::SendInvalidate(Rkey(9)), Data::Gather(&more), SendFlags::SIGNALED);
}

fn post_most(two: &mut Two) {
    let (plain, solicited) = (SendFlags::SIGNALED, SendFlags::SIGNALED | SendFlags::SOLICITED);
    let remote = two.remote(1, 0x4000);
    let sge = |length| [two.sge(0, 100, length)];
    let pieces = [two.sge(0, 0, 1000), two.sge(0, 5000, 30), two.sge(0, 9, 1470)];
    let (none, whole, long, more) = (sge(0), sge(1024), sge(3000), sge(1025));
    post(two, 1, SendOp::Send, Data::Gather(&none), plain);
    post(two, 2, SendOp::Send, Data::Inline(&[7]), solicited);
    post(two, 3, SendOp::Send, Data::Gather(&whole), solicited);
    post(two, 4, SendOp::SendImm(Imm(5)), Data::Gather(&pieces), solicited);
    post(two, 6, SendOp::Write(remote), Data::Gather(&long), solicited);
    post(two, 7, SendOp::WriteImm(remote, Imm(6)), Data::Gather(&more), solicited);
    post(two, 8, SendOp::Write(remote), Data::Inline(&[8; 64]), plain | SendFlags::FENCE);
    post(two, 9, SendOp::Write(remote), Data::Gather(&pieces), SendFlags::FENCE);
    post(two, 10, SendOp::Send, Data::Gather(&none), SendFlags::FENCE);
}

const PACKETS: usize = 18;

/// Asserts that two requesters are in the same state, as far as can be seen.
#[track_caller]
fn assert_same((one, window): (&mut Two, &Window), (other, other_window): (&mut Two, &Window)) {
    for side in [0, 1] {
        let [a, b] = [&one.pairs[side], &other.pairs[side]];
        assert_eq!(a.counters(), b.counters(), "counters of {side}");
        assert_eq!(a.poll_timeout(), b.poll_timeout());
        assert_eq!((a.totals(), a.state()), (b.totals(), b.state()));
        assert_eq!(a.owes_ack(), b.owes_ack());
        assert_eq!(one.completions(side), other.completions(side));
        assert!(one.memory(side) == other.memory(side), "memory of {side}");
    }
    assert_eq!(window.in_flight(), other_window.in_flight());
}

#[test]
fn a_burst_sends_what_is_sent_packet_by_packet() {
    let (mut slow, mut quick) = (two(), two());
    let [mut slow_window, mut quick_window] = [Window::new(), Window::new()];
    post_all(&mut slow);
    post_all(&mut quick);
    let expected = one_by_one(&mut slow, 0, &mut slow_window);
    assert_eq!(expected.len(), PACKETS);
    assert_eq!(at_once(&mut quick, 0, &mut quick_window, (ALL, ALL)), expected);
    assert_eq!(one_by_one(&mut quick, 0, &mut quick_window), []);
    assert_same((&mut slow, &slow_window), (&mut quick, &quick_window));
}

#[test]
fn a_burst_that_was_cut_short_goes_on_where_it_ended() {
    let mut slow = two();
    post_all(&mut slow);
    let mut slow_window = Window::new();
    let expected = one_by_one(&mut slow, 0, &mut slow_window);
    for most in [1, 2, 3, 5, PACKETS] {
        for room in [most, ALL] {
            let limit = if room == most { ALL } else { most };
            let (mut quick, mut window, mut all) = (two(), Window::new(), Vec::new());
            post_all(&mut quick);
            loop {
                let sent = at_once(&mut quick, 0, &mut window, (limit, room));
                assert_eq!(sent.len(), most.min(PACKETS - all.len()), "as many as there is room for");
                all.extend(sent);
                if all.len() == PACKETS {
                    break;
                }
            }
            assert_eq!(all, expected, "at most {most}");
            assert_same((&mut slow, &slow_window), (&mut quick, &window));
        }
    }
    assert_eq!(at_once(&mut two(), 0, &mut Window::new(), (ALL, ALL)), []);
}

/// The last packets before the window is full ask for an acknowledgement, and those before them do not.
#[test]
fn a_burst_fills_the_window_and_asks_before_it_is_full() {
    let (mut slow, mut quick) = (two(), two());
    let [mut slow_window, mut quick_window] = [Window::new(), Window::new()];
    for two in [&mut slow, &mut quick] {
        let (remote, sge) = (two.remote(1, 0), two.sge(0, 0, 60_000));
        for id in 0..4 {
            post(two, id, SendOp::Write(remote), Data::Gather(&[sge]), SendFlags::SIGNALED);
        }
    }
    let expected = one_by_one(&mut slow, 0, &mut slow_window);
    assert!(expected.len() > 59 && expected.len() < 4 * 59, "more than a message, and less than all");
    assert_eq!(at_once(&mut quick, 0, &mut quick_window, (ALL, ALL)), expected);
    assert_eq!(slow_window.in_flight(), quick_window.in_flight());
    let asking = expected.iter().filter(|(packet, _)| packet.ack_request).count();
    assert!(asking > 2 && asking < 40, "{asking}");
    assert_eq!(at_once(&mut quick, 0, &mut quick_window, (ALL, ALL)), [], "it is full");
}

#[test]
fn what_may_have_to_wait_is_in_no_burst() {
    // A READ, and what is fenced behind it.
    let (mut two, mut window) = (two(), Window::new());
    let (remote, sge) = (two.remote(1, 0), two.sge(0, 0, 8));
    post(&mut two, 1, SendOp::Read(remote), Data::Gather(&[sge]), SendFlags::SIGNALED);
    assert_eq!(at_once(&mut two, 0, &mut window, (ALL, ALL)), []);
    assert_eq!(one_by_one(&mut two, 0, &mut window).len(), 1);
    post(&mut two, 2, SendOp::Write(remote), Data::Gather(&[sge]), SendFlags::empty());
    assert_eq!(at_once(&mut two, 0, &mut window, (ALL, ALL)).len(), 1, "without a fence");
    post(&mut two, 3, SendOp::Write(remote), Data::Gather(&[sge]), SendFlags::FENCE);
    assert_eq!(at_once(&mut two, 0, &mut window, (ALL, ALL)), []);
    assert_eq!(one_by_one(&mut two, 0, &mut window), [], "and not packet by packet either");
    // Whatever is sent at a limited rate.
    let mut paced = with(&Setup { rate: 1000, ..Setup::default() });
    post(&mut paced, 1, SendOp::Write(remote), Data::Gather(&[sge]), SendFlags::empty());
    assert_eq!(at_once(&mut paced, 0, &mut Window::new(), (ALL, ALL)), []);
    assert_eq!(one_by_one(&mut paced, 0, &mut Window::new()).len(), 1);
}

/// Hands a packet to side 1; whether it was taken in the quick way.
fn arrive(two: &mut Two, data: &DataPacket, payload: &[u8], quick: bool) -> bool {
    let mut window = Window::new();
    let (pair, device) = (&mut two.pairs[1], &mut two.devices.0[1]);
    if quick && pair.take_data(NOW, data, payload, &mut window, device) {
        return true;
    }
    let packet = data.to_packet().map_payload(|_| payload);
    pair.handle_packet(NOW, &packet, None, &mut window, device);
    false
}

/// The packets of posted work, as data.
fn posted(two: &mut Two) -> Vec<(DataPacket, Vec<u8>)> {
    let mut all = Vec::new();
    let sink = |device: &mut Device, data: &DataPacket, payload: &PayloadSource<'_>| {
        all.push((*data, bytes(device, payload)));
        true
    };
    two.pairs[0].poll_data(NOW, ALL, None, &mut Window::new(), &mut two.devices.0[0], sink);
    all
}

/// The responder waits for the first packet of a connection to come the long way.
fn establish(two: &mut Two) {
    let remote = two.remote(1, 0);
    post(two, 0, SendOp::Write(remote), Data::Gather(&[]), SendFlags::empty());
    for (data, payload) in posted(two) {
        assert!(!arrive(two, &data, &payload, true), "the first packet establishes the connection");
    }
}

#[test]
fn both_ways_to_take_in_data_do_the_same() {
    let (mut slow, mut quick) = (two(), two());
    for (two, in_a_hurry) in [(&mut slow, false), (&mut quick, true)] {
        establish(two);
        for id in 50..60 {
            let sges = [two.sge(1, 0x8000, 2000), two.sge(1, 0x9000, 2000)];
            two.post_receive(id, &sges);
        }
        post_most(two);
        for (mut data, payload) in posted(two) {
            // As they are read from the wire: only the last packet of a message tells how it ends.
            match &mut data.verb {
                DataVerb::Send(tail) if !data.ends => *tail = SendTail::Plain,
                DataVerb::Write(_, imm) if !data.ends => *imm = None,
                _ => {}
            }
            let is_plain = matches!(data.verb, DataVerb::Write(_, None) | DataVerb::Send(SendTail::Plain));
            assert_eq!(arrive(two, &data, &payload, in_a_hurry), in_a_hurry && is_plain, "{data:?}");
        }
        let received = two.pairs[1].counters().requests_received;
        assert!(received > 10, "{received}");
    }
    let [one, other] = [&mut slow, &mut quick].map(|two| one_by_one(two, 1, &mut Window::new()));
    assert_eq!(one, other, "the same acknowledgements");
    assert_same((&mut slow, &Window::new()), (&mut quick, &Window::new()));
}

/// A packet of a WRITE that nothing is wrong with.
fn write(two: &Two, psn: u32, length: u32, (begins, ends): (bool, bool)) -> DataPacket {
    let Remote { address, rkey } = two.remote(1, 0x100);
    DataPacket {
        dest_qp: two.pairs[1].qpn(),
        pkey: ferroce_wire::PKey::DEFAULT,
        psn: Psn::new(psn),
        ack_request: true,
        solicited: false,
        begins,
        ends,
        verb: DataVerb::Write(Reth { address, rkey, length }, None),
        payload: 1024,
    }
}

/// What is out of the ordinary, the quick way leaves for the long one, as it found it.
#[test]
fn whatever_is_wrong_is_left_for_the_long_way() {
    type Spoil = fn(&mut DataPacket);
    let spoils: [(&str, Spoil); 12] = [
        ("a gap", |data| data.psn = Psn::new(103)),
        ("a repeated packet", |data| data.psn = Psn::new(100)),
        ("no beginning", |data| data.begins = false),
        ("a first packet that is not full", |data| (data.ends, data.payload) = (false, 1000)),
        ("a first packet of a message that it is all of", |data| data.ends = false),
        ("longer than was announced", |data| set_length(data, 1023)),
        ("shorter than was announced", |data| set_length(data, 1025)),
        ("longer than any message", |data| {
            data.ends = false;
            set_length(data, (1 << 31) + 1);
        }),
        ("more than the key opens", |data| {
            data.ends = false;
            set_length(data, 1 << 20);
        }),
        ("a key that opens nothing", |data| set_key(data, 0xdead)),
        ("a message without a receive", |data| data.verb = DataVerb::Send(SendTail::Plain)),
        ("immediate data", |data| {
            if let DataVerb::Write(reth, _) = data.verb {
                data.verb = DataVerb::Write(reth, Some(Imm(3)));
            }
        }),
    ];
    for (what, spoil) in spoils {
        let [mut slow, mut quick] = [two(), two()];
        for (two, in_a_hurry) in [(&mut slow, false), (&mut quick, true)] {
            establish(two);
            let mut data = write(two, 101, 1024, (true, true));
            spoil(&mut data);
            assert!(!arrive(two, &data, &vec![3; data.payload], in_a_hurry), "{what}");
        }
        let [one, other] = [&mut slow, &mut quick].map(|two| one_by_one(two, 1, &mut Window::new()));
        assert_eq!(one, other, "{what}");
        assert_same((&mut slow, &Window::new()), (&mut quick, &Window::new()));
    }
}

/// The longest message is judged by its key, and only a longer one by its length.
#[test]
fn a_write_of_the_longest_length_is_refused_for_its_key() {
    for (length, refused) in [(1 << 31, Status::LocalAccess), ((1 << 31) + 1, Status::LocalLength)] {
        let mut two = two();
        establish(&mut two);
        let data = write(&two, 101, length, (true, false));
        arrive(&mut two, &data, &[3; 1024], false);
        let answers = one_by_one(&mut two, 1, &mut Window::new());
        assert_eq!(answers.len(), 1);
        let counters = two.pairs[1].counters();
        let seen = (counters.nak_remote_access_sent, counters.nak_invalid_request_sent);
        assert_eq!(seen, if refused == Status::LocalAccess { (1, 0) } else { (0, 1) }, "{length}");
    }
}

/// A key may open more than the longest message: a longer one is refused for its length all the same.
#[test]
fn a_write_longer_than_any_message_is_left_for_the_long_way_although_its_key_opens_it() {
    let mut two = two();
    establish(&mut two);
    let mut data = write(&two, 101, (1 << 31) + 1, (true, false));
    let Remote { address, .. } = two.remote(1, 0);
    let key = two.devices.0[1].memory.register(rig::DOMAIN, address, 1 << 32, Access::all());
    set_key(&mut data, key);
    assert!(!arrive(&mut two, &data, &[3; 1024], true));
    assert_eq!(two.pairs[1].counters().nak_invalid_request_sent, 0, "it is owed");
    one_by_one(&mut two, 1, &mut Window::new());
    assert_eq!(two.pairs[1].counters().nak_invalid_request_sent, 1);
    set_length(&mut data, 1 << 31);
    let mut longest = self::two();
    establish(&mut longest);
    let key = longest.devices.0[1].memory.register(rig::DOMAIN, address, 1 << 32, Access::all());
    set_key(&mut data, key);
    assert!(arrive(&mut longest, &data, &[3; 1024], true), "the longest message is an ordinary one");
}

fn set_length(data: &mut DataPacket, length: u32) {
    if let DataVerb::Write(reth, _) = &mut data.verb {
        reth.length = length;
    }
}

fn set_key(data: &mut DataPacket, key: u32) {
    if let DataVerb::Write(reth, _) = &mut data.verb {
        reth.rkey = Rkey(key);
    }
}

/// A queue pair that lets its peer not write does not let it in a hurry either.
#[test]
fn rights_are_asked_for_in_both_ways() {
    for (rights, taken) in [(Access::all(), true), (Access::all().difference(Access::REMOTE_WRITE), false)] {
        let mut two = with(&Setup { rights, ..Setup::default() });
        two.post_receive(50, &[]);
        let mut data = write(&two, 100, 0, (true, true));
        (data.verb, data.payload) = (DataVerb::Send(SendTail::Plain), 0);
        arrive(&mut two, &data, &[], false);
        let data = write(&two, 101, 1024, (true, true));
        assert_eq!(arrive(&mut two, &data, &[3; 1024], true), taken);
    }
}

/// A message of several packets that goes on with a packet of another kind is none.
#[test]
fn messages_are_not_mixed_in_a_hurry() {
    for first_is_write in [true, false] {
        let mut two = two();
        establish(&mut two);
        let sges = [two.sge(1, 0, 4096)];
        two.post_receive(50, &sges);
        let mut first = write(&two, 101, 2048, (true, false));
        let mut last = write(&two, 102, 2048, (false, true));
        let other = if first_is_write { &mut last } else { &mut first };
        other.verb = DataVerb::Send(SendTail::Plain);
        assert!(arrive(&mut two, &first, &[3; 1024], true), "a message begins");
        assert!(!arrive(&mut two, &last, &[3; 1024], true));
        assert_eq!(one_by_one(&mut two, 1, &mut Window::new()).len(), 1, "a refusal");
        assert_eq!(two.pairs[1].counters().nak_invalid_request_sent, 1);
    }
}

#[test]
fn answers_to_reads_are_the_same_in_both_ways() {
    let [mut slow, mut quick] = [two(), two()];
    for two in [&mut slow, &mut quick] {
        for (id, length) in [(1, 3000), (2, 0), (3, 1024)] {
            let (remote, sge) = (two.remote(1, 0x40), two.sge(0, 0x8000, length));
            post(two, id, SendOp::Read(remote), Data::Gather(&[sge]), SendFlags::SIGNALED);
        }
        for (request, _) in one_by_one(two, 0, &mut Window::new()) {
            let request = request.map_payload(|_| &[][..]);
            let (pair, device) = (&mut two.pairs[1], &mut two.devices.0[1]);
            pair.handle_packet(NOW, &request, None, &mut Window::new(), device);
        }
    }
    let expected = one_by_one(&mut slow, 1, &mut Window::new());
    assert_eq!(expected.len(), 5);
    let mut window = Window::new();
    let mut sent = at_once(&mut quick, 1, &mut window, (2, ALL));
    assert_eq!(sent.len(), 2);
    sent.extend(at_once(&mut quick, 1, &mut window, (ALL, 1)));
    assert_eq!(sent.len(), 3);
    sent.extend(at_once(&mut quick, 1, &mut window, (ALL, ALL)));
    assert_eq!(sent, expected);
    assert_same((&mut slow, &Window::new()), (&mut quick, &Window::new()));
}
