//! What is to be said of captured frames: by us, and by tshark.

use std::fs::File;
use std::path::PathBuf;
use std::process::Command;

use ferroce_wire::Frame;
use ferroce_wire::net::Ip;
use pcap_file::DataLink;
use pcap_file::pcap::{PcapHeader, PcapPacket, PcapWriter};

/// What tshark does not know: ATOMIC WRITE, and the masked atomics of our own make.
const UNKNOWN_TO_TSHARK: [&str; 3] = ["29", "211", "212"];

/// Protocols that tshark guesses from the bytes of a message; ours are none of them.
const GUESSES: [&str; 15] = [
    "eth_over_ib",
    "fc_infiniband",
    "iser_ib_private",
    "iser_infiniband",
    "lnet_ib",
    "lnet_ib_cm_private",
    "mellanox_eoib",
    "nvme_rdma",
    "nvme_rdma_cm_private",
    "rpcrdma_infiniband",
    "sdp_ib_private",
    "sdp_infiniband",
    "smb_direct_infiniband",
    "smcr_infiniband",
    "drbd_rdma",
];

/// Judges all frames of a link.
pub(crate) fn judge(link: &str, frames: &[Vec<u8>]) {
    judge_ourselves(frames);
    judge_with_tshark(link, frames);
}

/// Every frame is a packet whose ICRC is right with the identification that it really has.
fn judge_ourselves(frames: &[Vec<u8>]) {
    for (number, bytes) in (1..).zip(frames) {
        let frame = Frame::parse_ethernet(bytes).unwrap_or_else(|error| panic!("frame {number}: {error}"));
        assert!(frame.icrc.is_right(), "frame {number}: {frame:?}");
    }
}

/// Frames of IPv4 whose identification shows that they are later segments of a run.
pub(crate) fn later_segments(frames: &[Vec<u8>]) -> usize {
    let is_later = |frame: &Frame<'_>| matches!(frame.ip, Ip::V4(ip) if ip.id > 0);
    frames.iter().filter_map(|bytes| Frame::parse_ethernet(bytes).ok()).filter(is_later).count()
}

/// tshark calls every frame RoCEv2, and complains about none.
fn judge_with_tshark(link: &str, frames: &[Vec<u8>]) {
    let path = PathBuf::from(env!("CARGO_TARGET_TMPDIR")).join(format!("{link}-{}.pcap", std::process::id()));
    write(&path, frames);
    let output = Command::new("tshark")
        .args(["-n", "-r"])
        .arg(&path)
        .args(["-T", "fields", "-E", "separator=|"])
        .args(GUESSES.iter().flat_map(|guess| ["--disable-heuristic", guess]))
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
        assert!(!unknown || UNKNOWN_TO_TSHARK.contains(&opcode), "frame {number}: {line}");
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
