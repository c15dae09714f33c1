//! What a record holds if its program is killed.

use std::collections::BTreeSet;
use std::path::Path;

use ferroce::Recording;
use ferroce_record::{Event, Packet, PacketFlags, Trace};

use crate::program::{End, Program};
use crate::support::{Folder, trace, wait_for};

/// Packets that the peer has before the program is killed.
const PACKETS: u64 = 4000;

/// Packets of a record that left, or that came, for this queue pair at their destination: their numbers in the order of the
/// record, and whether they were sent before.
fn packets(path: &Path, to: u32, is_out: bool) -> Vec<(u32, bool)> {
    let number = |bytes: &[u8]| u32::from_be_bytes([0, bytes[0], bytes[1], bytes[2]]);
    let wanted = |packet: &Packet| {
        packet.flags.contains(PacketFlags::OUT) == is_out && number(&packet.headers()[5..]) == to
    };
    let trace = Trace::open(path).unwrap();
    let packet = |event| match event {
        Event::Packet(packet) if wanted(&packet) => {
            Some((number(&packet.headers()[9..]), packet.flags.contains(PacketFlags::REPEAT)))
        }
        _ => None,
    };
    trace.events().filter_map(|stamped| packet(stamped.event)).collect()
}

/// A program writes to this process until it is killed. The records of both.
fn killed(name: &str, flight: Option<&str>, addresses: [&str; 2]) {
    let folder = Folder::new(name);
    let (theirs, ours) = (folder.path("killed.ftrace"), folder.path("peer.ftrace"));
    let here = End::open(addresses[0]).unwrap();
    let mut recording = Recording::into_file(&[&here.context], &ours).unwrap();
    let (mut program, line) = Program::recorded(&theirs, flight, addresses[1]);
    here.connect(&line);
    program.does(&format!("connect {}", here.line()));
    program.does("stream");
    wait_for("packets of the program", || {
        (here.context.counters().packets_received >= PACKETS).then_some(())
    });
    program.kill();
    recording.stop();

    let record = Trace::open(&theirs).unwrap();
    assert!(!record.header().has_ended && record.rings().all(|ring| ring.lost == 0), "{name}");
    let left = packets(&theirs, here.qp.qpn().get(), true);
    let mut came: BTreeSet<u32> =
        packets(&ours, here.qp.qpn().get(), false).into_iter().map(|(psn, _)| psn).collect();
    // Some may have come twice.
    assert!(came.len() as u64 >= PACKETS / 2, "{name}: {} packets came", came.len());
    if flight.is_some() {
        assert!(record.rings().any(|ring| ring.overwritten > 0), "{name}");
        // Sent for the first time, packets leave in the order of their numbers: those behind this one are held.
        let (oldest, _) = left.iter().find(|(_, is_repeat)| !is_repeat).unwrap();
        came.retain(|psn| psn.wrapping_sub(*oldest) & 0x80_0000 == 0);
        assert!(came.len() > 500, "{name}: {} of those that came are held", came.len());
    }
    let left: BTreeSet<u32> = left.into_iter().map(|(psn, _)| psn).collect();
    let missing: Vec<&u32> = came.difference(&left).collect();
    assert!(missing.is_empty(), "{name}: {missing:x?} came, and are not in the record");

    let told = trace(&[&"explain", &theirs, &ours]);
    assert!(told.err.contains("still being written, or its program was killed"), "{}", told.err);
    let told = trace(&[&"stats", &"--json", &theirs, &ours]);
    assert_eq!(told.code, Some(0), "{}", told.err);
}

#[test]
fn all_that_a_peer_received_is_in_the_record_of_a_killed_program() {
    killed("whole", None, ["127.0.158.1", "127.0.158.2"]);
}

#[test]
fn a_flight_recorder_of_a_killed_program_has_its_last_packets() {
    killed("flight", Some("1"), ["127.0.158.3", "127.0.158.4"]);
}
