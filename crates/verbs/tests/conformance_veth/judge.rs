//! What is to be said of captured frames: by us, and by tshark.

use std::fs::File;
use std::path::PathBuf;
use std::process::Command;

use ferroce_wire::Frame;
use ferroce_wire::net::Ip;
use pcap_file::DataLink;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};

/// Opcodes that tshark 4.0 does not know: ATOMIC WRITE. (The comparison of the wire crate lists
/// tshark's mistakes; no other one can be met here.)
const UNKNOWN_TO_TSHARK: &str = "29";

/// Judges all frames of a link.
pub(crate) fn judge(link: &str, frames: &[Vec<u8>]) {
    assert!(!frames.is_empty());
    judge_ourselves(frames);
    judge_with_tshark(link, frames);
}

/// Every frame is a packet whose ICRC is right with the identification that it really has.
fn judge_ourselves(frames: &[Vec<u8>]) {
    let mut identifications = 0;
    for (number, bytes) in (1..).zip(frames) {
        let frame = Frame::parse_ethernet(bytes).unwrap_or_else(|error| panic!("frame {number}: {error}"));
        assert!(frame.icrc.is_right(), "frame {number}: {frame:?}");
        if let Ip::V4(ip) = frame.ip {
            identifications += usize::from(ip.id > 0);
        }
    }
    let is_v4 = frames[0][12..14] == [0x08, 0x00];
    assert!(!is_v4 || identifications > 100, "runs were cut apart: {identifications} later segments");
}

/// tshark calls every frame RoCEv2, and complains about none.
fn judge_with_tshark(link: &str, frames: &[Vec<u8>]) {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{link}-{}.pcap", std::process::id()));
    write(&path, frames);
    let output = Command::new("tshark")
        .args(["-n", "-r"])
        .arg(&path)
        .args(["-T", "fields", "-E", "separator=|"])
        .args(["-e", "_ws.col.Protocol", "-e", "infiniband.bth.opcode", "-e", "_ws.expert.message"])
        .args(["-e", "_ws.col.Info"])
        .output()
        .unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let text = String::from_utf8_lossy(&output.stdout);
    let mut lines = 0;
    for (number, line) in (1..).zip(text.lines()) {
        lines += 1;
        let mut fields = line.splitn(4, '|');
        let mut next = || fields.next().unwrap_or_default();
        let (protocol, opcode, complaint, info) = (next(), next(), next(), next());
        assert_eq!(protocol, "RRoCE", "frame {number}: {line}");
        assert!(complaint.is_empty(), "frame {number}: {line}");
        let unknown = info.contains("Unknown");
        assert!(!unknown || opcode == UNKNOWN_TO_TSHARK, "frame {number}: {line}");
    }
    assert_eq!(lines, frames.len());
    std::fs::remove_file(&path).unwrap();
}

fn write(path: &PathBuf, frames: &[Vec<u8>]) {
    let header = PcapHeader { datalink: DataLink::ETHERNET, snaplen: 65_535, ..PcapHeader::default() };
    let mut writer = PcapWriter::with_header(File::create(path).unwrap(), header).unwrap();
    for (index, frame) in (0..).zip(frames) {
        let time = std::time::Duration::from_micros(index);
        writer.write_packet(&PcapPacket::new(time, u32::try_from(frame.len()).unwrap(), frame)).unwrap();
    }
}
