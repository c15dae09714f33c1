//! tshark reads what we export: every packet says what work it belongs to.

use std::process::Command;

use ferroce_testkit::judge;
use ferroce_trace::export::{Selection, pcapng};
use ferroce_wire::Packet;

use crate::made::{Made, WALL};

const FIELDS: &[&str] = &[
    "frame.interface_name",
    "frame.time_epoch",
    "frame.len",
    "frame.cap_len",
    "frame.comment",
    "infiniband.bth.opcode",
    "infiniband.bth.psn",
    "infiniband.bth.destqp",
    "ip.checksum.status",
    "udp.length",
];

#[test]
fn tshark_finds_the_work_of_every_packet() {
    if !judge::is_here("tshark") {
        return;
    }
    for ipv6 in [false, true] {
        let mut made = Made::new(&format!("wireshark-{ipv6}"), ipv6);
        made.traffic(4_000, 2);
        let timeline = made.timeline(2);
        let path = made.directory().join("out.pcapng");
        let mut bytes = Vec::new();
        let summary = pcapng(&timeline, &Selection::default(), &mut bytes, &mut |_| {}).unwrap();
        std::fs::write(&path, bytes).unwrap();

        let mut command = Command::new("tshark");
        command.args(["-n", "-o", "ip.check_checksum:TRUE", "-T", "fields", "-r"]).arg(&path);
        FIELDS.iter().for_each(|field| {
            command.args(["-e", field]);
        });
        let output = command.output().unwrap();
        assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        let text = String::from_utf8(output.stdout).unwrap();
        let rows: Vec<Vec<&str>> = text.lines().map(|line| line.split('\t').collect()).collect();

        // What the record itself says, without any of the code that exports it.
        let events = timeline.events().filter_map(|seen| match seen.stamped.event {
            ferroce_record::Event::Packet(packet)
                if !packet.flags.intersects(ferroce_record::PacketFlags::FATE) =>
            {
                Some((seen.source, seen.stamped.time, packet))
            }
            _ => None,
        });
        let expected: Vec<_> = events.collect();
        assert_eq!((rows.len(), summary.packets), (expected.len(), expected.len() as u64));
        for (row, (source, time, packet)) in rows.iter().zip(&expected) {
            let [name, epoch, len, kept, comment, opcode, psn, dest, checksum, udp] = row[..] else {
                panic!("{row:?}")
            };
            assert_eq!(name, ["client (4000)", "server (4001)"][*source], "{row:?}");
            let nanos = u128::from(WALL + time);
            assert_eq!(epoch, format!("{}.{:09}", nanos / 1_000_000_000, nanos % 1_000_000_000));
            let headers = packet.headers();
            let wire = usize::from(packet.headers_len) + usize::from(packet.payload).next_multiple_of(4) + 4;
            let parsed = Packet::parse_kept(headers, wire).unwrap();
            assert_eq!(opcode, parsed.opcode().byte().to_string(), "{row:?}");
            assert_eq!(psn, parsed.psn.get().to_string(), "{row:?}");
            assert_eq!(dest, format!("{:#08x}", parsed.dest_qp.get()), "{row:?}");
            let before = if ipv6 && packet.qpn.get() != 0x99 { 48 } else { 28 };
            assert_eq!(len, (wire + before).to_string(), "{row:?}");
            assert_eq!(kept, (headers.len() + before).to_string(), "{row:?}");
            assert_eq!(udp, (wire + 8).to_string(), "{row:?}");
            assert!(checksum.is_empty() || checksum == "1", "{row:?}");
            assert!(comment.contains("work ") || comment.starts_with("refused: "), "{row:?}");
        }
        assert_eq!(
            summary.joined * 2 + made.lone,
            summary.packets,
            "both ends of all but those that were lost"
        );
        assert!(summary.local > 0 && summary.left_out == 0, "{summary:?}");
    }
}
