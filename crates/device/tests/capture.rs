//! What a capture file shows of the packets that passed.

mod common;
mod pipe;

use std::fs::{self, File};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{MetadataExt, PermissionsExt, lchown, symlink};
use std::path::{Path, PathBuf};
use std::process::{self, Command};
use std::time::Duration;

use common::{Side, signaled};
use ferroce_device::fabric::capture::{Capture, CaptureError};
use ferroce_device::fabric::{Fabric, Inbox, Outbox, Received, Route};
use ferroce_device::{Config, Nic, PathPolicy};
use ferroce_testkit::judge;
use ferroce_transport::{SendOp, Status};
use ferroce_wire::net::Ip;
use ferroce_wire::{Captured, Frame};
use pcap_file::DataLink;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::{Block, PcapNgReader};

use pipe::{Pipe, push, route, sealed};

const INBOUND: u32 = 1;
const OUTBOUND: u32 = 2;

/// An empty folder for one test.
fn folder(name: &str) -> PathBuf {
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("capture-{name}"));
    let _ = fs::remove_dir_all(&folder);
    fs::create_dir_all(&folder).expect("a temporary folder");
    folder
}

/// The direction and the bytes of every frame in a file.
fn frames(path: &Path) -> Vec<(u32, Vec<u8>)> {
    let mut reader = PcapNgReader::new(File::open(path).expect("a file")).expect("pcapng");
    let mut frames = Vec::new();
    while let Some(block) = reader.next_block() {
        match block.expect("a block") {
            Block::InterfaceDescription(interface) => assert_eq!(interface.linktype, DataLink::RAW),
            Block::EnhancedPacket(packet) => {
                let [EnhancedPacketOption::Flags(direction)] = packet.options[..] else {
                    panic!("{:?}", packet.options)
                };
                assert_eq!(packet.original_len as usize, packet.data.len());
                assert!(packet.timestamp.as_secs() > 1_700_000_000, "{:?} since 1970", packet.timestamp);
                frames.push((direction, packet.data.to_vec()));
            }
            other => panic!("{other:?}"),
        }
    }
    frames
}

/// A datagram of two packets to `route.local`, sealed for these identifications.
fn datagram(route: &Route, ids: [u16; 2]) -> (Received, Vec<u8>) {
    let back = Route { local: route.remote, remote: route.local, ..*route };
    let [first, second] = [(100, 64, ids[0]), (101, 13, ids[1])].map(|(p, l, id)| sealed(&back, p, l, id));
    let received = Received {
        len: first.len() + second.len(),
        segment: first.len(),
        source: (back.local, back.source_port),
        local: back.remote,
        traffic_class: 1,
        hop_limit: 0,
        flow_label: 0,
        stamp: 0,
    };
    (received, [first, second].concat())
}

/// A capture with a run of three packets sent and a datagram of two received, over IPv4 and over IPv6.
fn captured(path: &Path) -> Capture<Pipe> {
    let mut pipe = Pipe::default();
    let routes = [route("127.0.0.1", "127.0.0.2"), route("fd00::1", "fd00::2")];
    pipe.arriving.push_back(datagram(&routes[0], [0x1234, 0x1235]));
    pipe.arriving.push_back(datagram(&routes[1], [0, 0]));
    let mut capture = Capture::create(path, pipe).expect("a new file");
    assert!(capture.coalesces());

    let mut outbox = Outbox::new(65_536, 8);
    for route in &routes {
        for (psn, len) in [(7, 1024), (8, 1024), (9, 1)] {
            push(&mut outbox, route, psn, len, capture.run_limits());
        }
    }
    assert_eq!(outbox.runs().len(), 2);
    assert_eq!(capture.send(&mut outbox).packets, 6);
    assert_eq!(capture.inner().sent.len(), 6);

    let mut inbox = Inbox::new(4);
    capture.receive(&mut inbox).expect("a pipe never fails");
    assert_eq!(inbox.len(), 2);
    capture
}

#[test]
fn every_packet_reads_back_with_the_right_icrc() {
    let path = folder("reads-back").join("a.pcapng");
    drop(captured(&path));
    let frames = frames(&path);
    let mut shown = Vec::new();
    for (direction, bytes) in &frames {
        let frame = Frame::parse_ip(bytes).unwrap();
        assert!(frame.icrc.is_right(), "{frame:?}");
        let kindly = Captured::parse_ip(bytes, false).unwrap();
        assert_eq!(kindly.notes.iter().count(), 0);
        let (id, hops) = match frame.ip {
            Ip::V4(ip) => {
                assert!(ip.dont_fragment);
                (Some(ip.id), ip.ttl)
            }
            Ip::V6(ip) => (None, ip.hop_limit),
        };
        assert_eq!((frame.udp.source_port, frame.udp.dest_port), (50_123, 4791));
        shown.push((*direction, frame.ip.source().to_string(), id, hops, frame.packet.psn.get()));
    }
    let row = |direction, source: &str, id, hops, psn| (direction, source.to_owned(), id, hops, psn);
    assert_eq!(
        shown,
        [
            row(OUTBOUND, "127.0.0.1", Some(0), 63, 7),
            row(OUTBOUND, "127.0.0.1", Some(1), 63, 8),
            row(OUTBOUND, "127.0.0.1", Some(2), 63, 9),
            row(OUTBOUND, "fd00::1", None, 63, 7),
            row(OUTBOUND, "fd00::1", None, 63, 8),
            row(OUTBOUND, "fd00::1", None, 63, 9),
            row(INBOUND, "127.0.0.2", Some(0x1234), 64, 100),
            row(INBOUND, "127.0.0.2", Some(0x1235), 64, 101),
            row(INBOUND, "fd00::2", None, 64, 100),
            row(INBOUND, "fd00::2", None, 64, 101),
        ]
    );
}

#[test]
fn a_damaged_packet_is_shown_as_it_came() {
    let path = folder("damaged").join("a.pcapng");
    let mut pipe = Pipe::default();
    let (received, mut bytes) = datagram(&route("127.0.0.1", "127.0.0.2"), [0, 1]);
    let last = bytes.len() - 6;
    bytes[last] ^= 0x10;
    pipe.arriving.push_back((received, bytes.clone()));
    let mut capture = Capture::create(&path, pipe).unwrap();
    capture.receive(&mut Inbox::new(1)).unwrap();
    drop(capture);
    let frames = frames(&path);
    let [good, bad] = [0, 1].map(|index: usize| Frame::parse_ip(&frames[index].1).unwrap());
    assert!(good.icrc.is_right() && !bad.icrc.is_right());
    assert!(matches!(bad.ip, Ip::V4(ip) if ip.id == 1), "the place in the datagram");
    assert_eq!(frames[1].1[28..], bytes[received.segment..]);
}

#[test]
fn bytes_that_are_no_packet_are_shown_at_any_length() {
    let path = folder("junk").join("a.pcapng");
    let mut pipe = Pipe::default();
    let (received, _) = datagram(&route("127.0.0.1", "127.0.0.2"), [0, 1]);
    for len in 0..24 {
        pipe.arriving.push_back((Received { len, segment: len, ..received }, vec![0xa5; len]));
    }
    let mut capture = Capture::create(&path, pipe).unwrap();
    capture.receive(&mut Inbox::new(24)).unwrap();
    drop(capture);
    // Nothing is drawn of an empty datagram: it has no packet.
    let lengths: Vec<usize> = frames(&path).iter().map(|(_, bytes)| bytes.len()).collect();
    assert_eq!(lengths, (28 + 1..28 + 24).collect::<Vec<_>>());
}

#[test]
fn an_idle_receive_brings_the_file_up_to_date() {
    let path = folder("idle").join("a.pcapng");
    let mut capture = captured(&path);
    capture.receive(&mut Inbox::new(1)).unwrap();
    assert_eq!(frames(&path).len(), 10, "while the capture is still open");
    let counts = capture.counts();
    assert_eq!((counts.captured, counts.missed), (10, 0));
}

#[test]
fn the_file_is_private_and_may_carry_the_process_id() {
    let folder = folder("named");
    drop(Capture::create(folder.join("run-%p.pcapng"), Pipe::default()).unwrap());
    let path = folder.join(format!("run-{}.pcapng", process::id()));
    assert_eq!(fs::metadata(&path).unwrap().permissions().mode() & 0o077, 0);
    assert_eq!(frames(&path), []);
}

#[test]
fn a_file_that_cannot_be_made_is_named() {
    let path = folder("missing").join("nowhere").join("a.pcapng");
    let error = Capture::create(&path, Pipe::default()).unwrap_err();
    let text = error.to_string();
    assert!(text.contains(path.to_str().unwrap()), "{text}");
    assert!(matches!(error, CaptureError::Create { path: named, .. } if named == path));
}

/// A user that nothing else runs as.
const STRANGER: u32 = 54_321;

/// Whether there can be another user.
fn is_root() -> bool {
    let is_root = fs::metadata("/proc/self").expect("this process").uid() == 0;
    if !is_root {
        println!("SKIPPED: only root can make files of another user");
    }
    is_root
}

/// Why there is no capture; in a thread of its own, because it must not wait for anything.
#[expect(clippy::disallowed_methods, reason = "a thread that waits for ever is what is looked for")]
fn why_not(path: &Path) -> String {
    let (tell, hear) = std::sync::mpsc::channel();
    let name = path.to_owned();
    std::thread::spawn(move || {
        tell.send(Capture::create(name, Pipe::default()).map(drop).map_err(|error| error.to_string()))
    });
    let made = hear.recv_timeout(Duration::from_secs(10)).expect("it does not wait");
    made.expect_err("it is refused")
}

#[test]
fn a_capture_file_is_not_opened_through_another_users_link() {
    if !is_root() {
        return;
    }
    let folder = folder("links");
    let (precious, name) = (folder.join("precious"), folder.join("a.pcapng"));
    fs::write(&precious, "precious").unwrap();
    for target in [precious.clone(), folder.join("new")] {
        symlink(&target, &name).unwrap();
        lchown(&name, Some(STRANGER), Some(STRANGER)).unwrap();
        let why = why_not(&name);
        assert!(why.contains(name.to_str().unwrap()) && why.contains("a link of another user"), "{why}");
        assert!(why.contains("uid 54321") && why.contains("remove it"), "{why}");
        fs::remove_file(&name).unwrap();
    }
    assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
    assert!(!folder.join("new").exists());
    // Nor behind a link of our own.
    let second = folder.join("second");
    symlink("precious", &second).unwrap();
    lchown(&second, Some(STRANGER), Some(STRANGER)).unwrap();
    symlink("second", &name).unwrap();
    assert!(why_not(&name).contains("second is a link of another user"));
    assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
}

#[test]
fn another_users_file_pipe_or_device_is_not_written_to() {
    if !is_root() {
        return;
    }
    let folder = folder("strangers");
    let name = folder.join("a.pcapng");
    let make = |kind: &[&str]| match kind {
        [] => fs::write(&name, "").is_ok(),
        kind => Command::new("mknod").arg(&name).args(kind).status().is_ok_and(|status| status.success()),
    };
    for (what, kind) in [("file", &[][..]), ("pipe", &["p"]), ("device", &["c", "1", "3"])] {
        if !make(kind) {
            assert_eq!(what, "device", "only devices may be forbidden here");
            continue;
        }
        lchown(&name, Some(STRANGER), Some(STRANGER)).unwrap();
        let why = why_not(&name);
        assert!(why.contains(&format!("is a {what} of another user (uid 54321")), "{why}");
        assert_eq!(fs::metadata(&name).unwrap().len(), 0);
        fs::remove_file(&name).unwrap();
    }
}

#[test]
fn a_file_with_a_second_name_is_not_emptied() {
    let folder = folder("names");
    let (precious, name) = (folder.join("precious"), folder.join("a.pcapng"));
    fs::write(&precious, "precious").unwrap();
    fs::hard_link(&precious, &name).unwrap();
    let why = why_not(&name);
    assert!(why.contains("has 2 names") && why.contains("choose another"), "{why}");
    assert_eq!(fs::read_to_string(&precious).unwrap(), "precious");
    assert!(why_not(&folder).contains("is a folder"));
}

#[test]
fn a_file_or_link_of_ours_is_replaced() {
    let folder = folder("ours");
    let (old, name) = (folder.join("old"), folder.join("a.pcapng"));
    fs::write(&old, vec![7; 100_000]).unwrap();
    drop(Capture::create(&old, Pipe::default()).unwrap());
    assert_eq!(frames(&old), []);
    symlink("made", &name).unwrap();
    for _ in 0..2 {
        drop(Capture::create(&name, Pipe::default()).unwrap());
        assert_eq!(frames(&folder.join("made")), []);
    }
    assert_eq!(fs::metadata(folder.join("made")).unwrap().permissions().mode() & 0o077, 0);
    symlink("a-circle", folder.join("a-circle")).unwrap();
    assert!(why_not(&folder.join("a-circle")).contains("a-circle"));
}

#[test]
fn a_disk_that_is_full_at_the_start_is_an_error() {
    let error = Capture::create("/dev/full", Pipe::default()).unwrap_err();
    assert!(error.to_string().contains("/dev/full"), "{error}");
}

#[test]
fn a_file_that_cannot_be_written_any_more_does_not_stop_traffic() {
    let (reader, writer) = std::io::pipe().unwrap();
    let path = format!("/proc/self/fd/{}", writer.as_raw_fd());
    let mut capture = Capture::create(path, Pipe::default()).unwrap();
    drop(reader);
    let (mut inbox, mut outbox) = (Inbox::new(1), Outbox::new(8192, 8));
    for psn in 0..10 {
        push(&mut outbox, &route("127.0.0.1", "127.0.0.2"), psn, 100, capture.run_limits());
        assert_eq!(capture.send(&mut outbox).packets, 1);
        // Nothing has come, so the file would be brought up to date.
        capture.receive(&mut inbox).unwrap();
    }
    assert_eq!(capture.inner().sent.len(), 10);
    let counts = capture.counts();
    assert_eq!((counts.captured, counts.missed), (1, 9));
}

#[test]
fn tshark_takes_every_frame_for_rocev2() {
    if !judge::is_here("tshark") {
        return;
    }
    let folder = folder("tshark");
    let path = folder.join("a.pcapng");
    drop(captured(&path));
    let mut command = Command::new("tshark");
    // An empty home: no user's preferences and plugins take part.
    command.env("HOME", &folder).env("XDG_CONFIG_HOME", &folder).env_remove("WIRESHARK_CONFIG_DIR");
    command.args(["-n", "-o", "ip.check_checksum:TRUE", "-T", "fields", "-E", "separator=;"]);
    for field in
        ["_ws.col.Protocol", "frame.packet_flags_direction", "infiniband.bth.psn", "_ws.expert.message"]
    {
        command.args(["-e", field]);
    }
    // A guess that it makes from the content of a SEND.
    command.args(["--disable-heuristic", "rpcrdma_infiniband"]);
    let output = command.arg("-r").arg(&path).output().unwrap();
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let out = ["7", "8", "9", "7", "8", "9"].map(|psn| format!("RRoCE;0x00000002;{psn};\n"));
    let back = ["100", "101", "100", "101"].map(|psn| format!("RRoCE;0x00000001;{psn};\n"));
    // RoCEv2 allows a UDP checksum of 0 over IPv6, since it has the ICRC; tshark does not know that.
    let shown = String::from_utf8_lossy(&output.stdout).replace("Illegal checksum value (0)", "");
    assert_eq!(shown, out.concat() + &back.concat());
}

/// Two engines of a device write into one file, whole packets one after the other.
#[test]
fn the_engines_of_a_device_share_a_file() {
    let path = folder("engines").join("both.pcapng");
    let address = [127, 0, 72, 1];
    let config = Config {
        address: Some(address.into()),
        engines: 2,
        capture: Some(path.clone()),
        ..Config::new("lo")
    };
    let nic = Nic::open(config).expect("a device on lo");
    let sides = [0, 1].map(|_| Side::new(&nic, address, PathPolicy::Prefer));
    sides[0].connect(&sides[1].address());
    sides[1].connect(&sides[0].address());
    for round in 0..50 {
        for (from, to) in [(0, 1), (1, 0)] {
            let target = sides[to].address().at(0);
            let piece = [sides[from].sge(0, 10_000)];
            sides[from].qp.post_send(&[signaled(round, SendOp::Write(target), &piece)]).expect("room");
        }
        for side in &sides {
            assert_eq!(side.completion().status, Status::Success);
        }
    }
    let counters = nic.counters();
    let slots = sides.each_ref().map(|side| side.qp.qpn().get().to_be_bytes()[1]);
    assert_ne!(slots[0], slots[1], "two engines");
    drop((sides, nic));
    let frames = frames(&path);
    let way = |wanted| frames.iter().filter(|(direction, _)| *direction == wanted).count() as u64;
    // A few acknowledgements may have followed.
    assert!(way(OUTBOUND) >= counters.packets_sent && way(INBOUND) >= counters.packets_received);
    for slot in slots {
        // Behind 20 bytes of IP and 8 of UDP, the sixth byte of a packet is the slot of its queue pair.
        assert!(frames.iter().any(|(_, frame)| frame[28 + 5] == slot), "slot {slot} is missing");
    }
}
