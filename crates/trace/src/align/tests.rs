use std::net::Ipv4Addr;

use ferroce_record::HEADERS;
use proptest::collection::vec;
use proptest::prelude::*;

use super::*;

const HERE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 1));
const THERE: IpAddr = IpAddr::V4(Ipv4Addr::new(10, 0, 0, 2));
/// The queue pairs of the two machines.
const QPNS: [Qpn; 2] = [Qpn::new(0x11), Qpn::new(0x22)];

/// A packet as a record has it: opcode, queue pair that it is for, sequence number, and for an answer how many messages.
fn packet(machine: usize, flags: PacketFlags, opcode: u8, dest: Qpn, psn: u32, msn: Option<u32>) -> Event {
    let mut bytes = vec![opcode, 0x40, 0xff, 0xff, 0];
    bytes.extend(&dest.get().to_be_bytes()[1..]);
    bytes.push(0x80);
    bytes.extend(&(psn & 0xff_ffff).to_be_bytes()[1..]);
    bytes.extend(msn.iter().flat_map(|msn| (0x1f00_0000 | msn).to_be_bytes()));
    let packet = Packet {
        qpn: QPNS[machine],
        flags,
        work: 0,
        payload: if msn.is_none() { 64 } else { 0 },
        headers_len: 0,
        repeat: 0,
        headers: [0; HEADERS],
    };
    packet.with_headers(&bytes).0.into()
}

/// What happens to one message: the pause before it, the trips of request and answer, and how often each is lost.
#[derive(Clone, Debug)]
struct Message {
    pause: u64,
    trips: [u64; 2],
    lost: [u8; 2],
}

fn message() -> impl Strategy<Value = Message> {
    let trip = || 4_000_u64..400_000;
    let lost = || prop_oneof![8 => Just(0_u8), 1 => Just(1), 1 => Just(2)];
    (60_000_000_u64..200_000_000, [trip(), trip()], [lost(), lost()])
        .prop_map(|(pause, trips, lost)| Message { pause, trips, lost })
}

/// A record: when, and what.
type Record = Vec<(u64, Event)>;

/// The records of both machines, by the true time. A sequence number comes again after 16 messages.
fn records(messages: &[Message], first: u32) -> [Record; 2] {
    let mut records = [Vec::new(), Vec::new()];
    let [out, repeat] = [PacketFlags::OUT, PacketFlags::OUT | PacketFlags::REPEAT];
    let mut time = 1_000_000_000;
    for (number, message) in (0_u32..).zip(messages) {
        time += message.pause;
        let psn = first.wrapping_add(number << 20);
        let (mut now, mut came) = (time, 0);
        // Sent again until the answer is there.
        for attempt in 0_u8.. {
            let flags = if attempt == 0 { out } else { repeat };
            records[0].push((now, packet(0, flags, 0x0a, QPNS[1], psn, None)));
            if attempt >= message.lost[0] {
                came += 1;
                let arrival = now + message.trips[0];
                records[1].push((arrival, packet(1, PacketFlags::empty(), 0x0a, QPNS[1], psn, None)));
                let ack =
                    |machine, flags| packet(machine, flags, 0x11, QPNS[0], psn, Some(number & 0xff_ffff));
                records[1].push((arrival + 2_000, ack(1, out)));
                if came > message.lost[1] {
                    let back = arrival + 2_000 + message.trips[1];
                    records[0].push((back, ack(0, PacketFlags::empty())));
                    break;
                }
            }
            now += 3_000_000;
        }
    }
    records.each_mut().map(|record| {
        record.sort_by_key(|(time, _)| *time);
        std::mem::take(record)
    })
}

fn feed(aligner: &mut Aligner, machine: usize, ahead: i64, record: &[(u64, Event)]) {
    let (local, remote) = if machine == 0 { (HERE, THERE) } else { (THERE, HERE) };
    let (qpn, peer) = (QPNS[machine], QPNS[1 - machine]);
    let way = Way { qpn, peer, local, remote, port: 0, mtu: 1024, is_local: false };
    aligner.take(machine, machine, 0, &way.into());
    for (time, event) in record {
        aligner.take(machine, machine, time.wrapping_add_signed(ahead), event);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    /// Clocks that are hours apart, trips that differ, loss, repeats, sequence numbers that go round, records that begin
    /// and end at different times, and a clock of the wall that tells nothing: the truth is where it is said to be.
    #[test]
    fn the_difference_of_two_clocks_is_found(
        messages in vec(message(), 40..150),
        first in 0_u32..1 << 24,
        ahead in -100_000_000_000_000_i64..100_000_000_000_000,
        by_wall in any::<i32>(),
        skipped in 0_usize..30,
        ended in 0_usize..30,
    ) {
        let [here, there] = records(&messages, first);
        let mut aligner = Aligner::new();
        let start = 200_000_000_000_000;
        feed(&mut aligner, 0, start, &here[..here.len() - ended.min(here.len() / 3)]);
        feed(&mut aligner, 1, start + ahead, &there[skipped.min(there.len() / 3)..]);
        let apart = aligner.apart(0, 1, i64::from(by_wall) * 50_000).unwrap();
        let within = apart.within.unwrap();
        prop_assert!(apart.ahead.abs_diff(ahead) <= within, "{apart:?}, in truth {ahead}");
        prop_assert!(within < 400_000, "{apart:?}");
        prop_assert!(apart.packets > 10);
        let back = aligner.apart(1, 0, 0).unwrap();
        prop_assert!(back.ahead.abs_diff(-apart.ahead) <= 1 && back.within == apart.within);
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(100))]

    /// Crystals are not alike: some parts in a million are milliseconds after a minute.
    #[test]
    fn clocks_that_drift_apart_are_followed(
        messages in vec(message(), 150..250),
        ahead in -100_000_000_000_000_i64..100_000_000_000_000,
        drift in -100_000_000_i64..100_000_000,
    ) {
        let [here, there] = records(&messages, 7);
        let drifted = |time: u64| {
            let more = i128::from(time) * i128::from(drift) / i128::from(DRIFT);
            time.wrapping_add_signed(i64::try_from(more).unwrap())
        };
        let there: Record = there.into_iter().map(|(time, event)| (drifted(time), event)).collect();
        let mut aligner = Aligner::new();
        let start = 200_000_000_000_000;
        feed(&mut aligner, 0, start, &here);
        feed(&mut aligner, 1, start + ahead, &there);
        let apart = aligner.apart(0, 1, ahead).unwrap();
        let within = apart.within.unwrap();
        // What it says, and what is true, at any moment.
        for (time, _) in &here {
            let truth = ahead + drifted(*time).wrapping_sub(*time).cast_signed();
            let since = time.wrapping_add_signed(start).wrapping_sub(apart.at).cast_signed();
            let more = i128::from(since) * i128::from(apart.drift) / i128::from(DRIFT);
            let said = apart.ahead + i64::try_from(more).unwrap();
            // A drift that is less than trips differ is not seen, and not followed.
            let unseen = if apart.drift == 0 { 3 * 400_000 } else { 0 };
            prop_assert!(said.abs_diff(truth) <= within + unseen, "{apart:?}: {said}, in truth {truth}");
        }
        prop_assert!(within < 1_000_000, "{apart:?}");
    }
}

#[test]
fn the_fastest_trips_say_how_wrong_it_may_be() {
    let message = |there, back| Message { pause: 50_000_000, trips: [there, back], lost: [0, 0] };
    let messages = [message(90_000, 7_000), message(5_000, 80_000), message(60_000, 60_000)];
    let [here, there] = records(&messages, 7);
    let mut aligner = Aligner::new();
    feed(&mut aligner, 0, 0, &here);
    feed(&mut aligner, 1, 1_000_000, &there);
    let expected =
        Apart { ahead: 1_000_000 - 1_000, at: 1_050_000_000, drift: 0, within: Some(6_000), packets: 6 };
    assert_eq!(aligner.apart(0, 1, 0), Some(expected), "5 us there, 7 us back");
}

#[test]
fn packets_of_one_way_or_none_are_said_to_be_so() {
    let messages = [Message { pause: 50_000_000, trips: [5_000, 5_000], lost: [0, 0] }];
    let [here, there] = records(&messages, 7);
    let mut aligner = Aligner::new();
    feed(&mut aligner, 0, 0, &here[..1]);
    assert_eq!(aligner.apart(0, 1, 0), None);
    feed(&mut aligner, 1, 0, &there);
    assert_eq!(
        aligner.apart(0, 1, 0),
        Some(Apart { ahead: 5_000, at: 1_050_000_000, drift: 0, within: None, packets: 1 })
    );
}

#[test]
fn an_answer_that_is_given_twice_tells_nothing() {
    let ack = |machine, flags| packet(machine, flags, 0x11, QPNS[0], 5, Some(3));
    let [out, came] = [PacketFlags::OUT, PacketFlags::empty()];
    // The first answer is on its way for long, and comes after the second one has left.
    let there = vec![(1_000, ack(1, out)), (100_000, ack(1, out))];
    let here = vec![(100_500, ack(0, came))];
    let mut aligner = Aligner::new();
    feed(&mut aligner, 0, 0, &here);
    feed(&mut aligner, 1, 0, &there);
    assert_eq!(aligner.apart(0, 1, 0), None);
}

#[test]
fn datagrams_are_known_by_the_addresses_that_follow_them() {
    let mut aligner = Aligner::new();
    for (machine, flags, local, remote, time) in
        [(0, PacketFlags::OUT, HERE, THERE, 10_000), (1, PacketFlags::empty(), THERE, HERE, 25_000)]
    {
        aligner.take(machine, machine, time, &packet(machine, flags, 0x64, QPNS[1], 9, None));
        let ends = Ends { qpn: QPNS[machine], local, remote, port: 4000 };
        aligner.take(machine, machine, time, &ends.into());
    }
    assert_eq!(
        aligner.apart(0, 1, 0),
        Some(Apart { ahead: 15_000, at: 10_000, drift: 0, within: None, packets: 1 })
    );
}

#[test]
fn memory_is_bounded_however_many_packets_there_are() {
    let mut aligner = Aligner::new();
    for machine in 0..2 {
        feed(&mut aligner, machine, 0, &[]);
        let flags = if machine == 0 { PacketFlags::OUT } else { PacketFlags::empty() };
        for psn in 0..150_000_u32 {
            let event = packet(machine, flags, 0x0a, QPNS[1], psn, None);
            let time = u64::from(psn) * 1_000 + 7_000 * machine as u64;
            aligner.take(machine, machine, time, &event);
        }
    }
    assert!(aligner.seen.len() <= KEPT);
    let apart = aligner.apart(0, 1, 0).unwrap();
    assert!(apart.ahead == 7_000 && apart.packets > 1_000, "{apart:?}");
}
