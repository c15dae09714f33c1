use std::fs::OpenOptions;
use std::net::{IpAddr, Ipv4Addr};
use std::os::unix::fs::FileExt;

use ferroce_record::{HEADERS, Mode, Packet, PacketFlags, RecordConfig, Recorder, Way};
use ferroce_wire::Qpn;

use super::*;

/// A folder that is gone when the test is over.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Self {
        let path = std::env::temp_dir().join(format!("ferroce-timeline-{name}-{}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Self(path)
    }

    /// Makes a record of a machine whose clocks showed this as it began.
    fn record(&self, name: &str, boot: u128, clock: u64, wall: u64, events: &[(u64, Event)]) -> PathBuf {
        let path = self.0.join(name);
        let config = RecordConfig { bytes: 1 << 20, ..RecordConfig::new(Mode::Whole, name) };
        let recorder = Recorder::create(&path, &config).unwrap();
        let mut ring = recorder.engine_ring().unwrap();
        events.iter().for_each(|(time, event)| ring.push(*time, event));
        drop(recorder);
        let file = OpenOptions::new().write(true).open(&path).unwrap();
        file.write_all_at(&clock.to_le_bytes(), 32).unwrap();
        file.write_all_at(&wall.to_le_bytes(), 40).unwrap();
        file.write_all_at(&boot.to_le_bytes(), 48).unwrap();
        path
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

fn way(number: u32) -> Event {
    let address = |number: u32| IpAddr::V4(Ipv4Addr::from(0x0a00_0000 + number));
    let (qpn, peer) = (Qpn::new(number), Qpn::new(3 - number));
    let (local, remote) = (address(number), address(3 - number));
    Way { qpn, peer, local, remote, port: 0, mtu: 1024, is_local: false }.into()
}

fn packet(number: u32, is_out: bool, psn: u8) -> Event {
    let dest = if is_out { 3 - number } else { number };
    let flags = if is_out { PacketFlags::OUT } else { PacketFlags::empty() };
    let headers = [4, 0x40, 0xff, 0xff, 0, 0, 0, u8::try_from(dest).unwrap(), 0, 0, 0, psn];
    let qpn = Qpn::new(number);
    let packet = Packet { qpn, flags, work: 0, payload: 8, headers_len: 0, repeat: 0, headers: [0; HEADERS] };
    packet.with_headers(&headers).0.into()
}

fn times(timeline: &Timeline) -> Vec<(usize, u64)> {
    timeline.events().map(|seen| (seen.source, seen.stamped.time)).collect()
}

#[test]
fn records_of_one_boot_have_one_clock() {
    let folder = Folder::new("boot");
    let first = folder.record("a", 7, 5_000, 0, &[(0, way(1)), (2_000, way(1))]);
    let second = folder.record("b", 7, 4_000, 999_999, &[(500, way(2)), (2_000, way(2))]);
    let timeline = Timeline::open(&[first, second]).unwrap();
    assert!(timeline.alignment().is_empty());
    assert_eq!(times(&timeline), [(1, 500), (0, 1_000), (1, 2_000), (0, 3_000)]);
}

#[test]
fn records_of_two_machines_meet_by_their_packets() {
    let folder = Folder::new("packets");
    // In truth both began at once, and the wall of the second is an hour late.
    let here = [(0, way(1)), (10_000, packet(1, true, 5)), (50_000, packet(1, false, 6))];
    let there = [(0, way(2)), (16_000, packet(2, false, 5)), (45_000, packet(2, true, 6))];
    let hour = 3_600_000_000_000;
    let first = folder.record("a", 7, 5_000, 2 * hour, &here);
    let second = folder.record("b", 8, 77_000_000, hour, &there);
    let timeline = Timeline::open(&[first, second]).unwrap();
    let [alignment] = timeline.alignment() else { panic!("{timeline:?}") };
    assert_eq!(alignment.basis, Basis::Packets { packets: 2, within: 5_500 });
    assert_eq!(alignment.ahead, 77_000_000 - 5_000 + 500, "six microseconds there, five back");
    let all = [(1, 0), (0, 500), (0, 10_500), (1, 16_000), (1, 45_000), (0, 50_500)];
    assert_eq!(times(&timeline), all, "on the clock of the first");
    assert!(alignment.to_string().contains("right within 5.500 us"), "{alignment}");
}

#[test]
fn without_packets_the_wall_is_all_there_is() {
    let folder = Folder::new("wall");
    let first = folder.record("a", 7, 5_000, 1_000_000, &[(0, way(1))]);
    let second = folder.record("b", 8, 77_000_000, 1_000_300, &[(0, way(2))]);
    let timeline = Timeline::open(&[first, second]).unwrap();
    assert_eq!(timeline.alignment()[0].basis, Basis::Wall);
    assert_eq!(times(&timeline), [(0, 0), (1, 300)]);
}

#[test]
fn a_machine_is_reached_by_way_of_another() {
    let folder = Folder::new("chain");
    // The second talks with both; the third knows the first only through it.
    let relabel = |event: Event| match event {
        Event::Way(way) => Event::Way(Way { local: way.remote, remote: IpAddr::from([10, 0, 0, 9]), ..way }),
        other => other,
    };
    let far_way = |event: Event| match event {
        Event::Way(way) => Event::Way(Way { local: IpAddr::from([10, 0, 0, 9]), remote: way.local, ..way }),
        other => other,
    };
    let a = [(0, way(1)), (10_000, packet(1, true, 5)), (50_000, packet(1, false, 6))];
    let mut b = vec![(0, way(2)), (16_000, packet(2, false, 5)), (45_000, packet(2, true, 6))];
    // The same queue pair numbers again, over other addresses.
    b.push((100_000, relabel(way(1))));
    b.extend([(110_000, packet(1, true, 15)), (130_000, packet(1, false, 16))]);
    let c = [(0, far_way(way(2))), (115_000, packet(2, false, 15)), (126_000, packet(2, true, 16))];
    let far = [
        folder.record("a", 7, 1_000_000_000, 1, &a),
        folder.record("b", 8, 3_000_000_000, 2, &b),
        folder.record("c", 9, 9_000_000_000, 3, &c),
    ];
    let timeline = Timeline::open(&far).unwrap();
    let [b, c] = timeline.alignment() else { panic!("{timeline:?}") };
    assert_eq!((b.source, c.source), (1, 2));
    assert!(matches!(b.basis, Basis::Packets { packets: 2, within: 5_500 }), "{b:?}");
    assert!(matches!(c.basis, Basis::Packets { packets: 2, within: 10_000 }), "{c:?}");
    assert!(c.ahead.abs_diff(8_000_000_000) < 10_000, "{c:?}");
}

#[test]
fn what_happens_until_later_is_on_the_same_time_line() {
    let folder = Folder::new("until");
    let wait = |until| {
        let reason = ferroce_record::WaitReason::Rate;
        Event::Wait(Wait { qpn: Qpn::new(1), reason, work: 0, until })
    };
    let first = folder.record("a", 7, 1_000, 0, &[(0, way(1))]);
    let second = folder.record("b", 7, 5_000, 0, &[(0, wait(700)), (1, wait(0))]);
    let timeline = Timeline::open(&[first, second]).unwrap();
    let until = |seen: Seen| match seen.stamped.event {
        Event::Wait(wait) => Some(wait.until),
        _ => None,
    };
    assert_eq!(timeline.events().filter_map(until).collect::<Vec<_>>(), [4_700, 0]);
}
