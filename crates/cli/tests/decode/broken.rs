//! Frames and files that are not what they should be.

use std::fs;
use std::path::Path;

use serde_json::Value;

use crate::build::{
    ETHERNET, Frame, Order, block, frames, interface, packet, pcap, pcap_frame, pcapng, section,
};
use crate::capture;
use crate::run::{decode, decode_bytes};

/// The first frame of a capture with 90 bytes: 14 Ethernet, 20 IPv4, 8 UDP, 12 BTH, 32 message, 4 ICRC.
pub(crate) fn send() -> Frame {
    frames(&capture("rnr.pcap")).swap_remove(0)
}

pub(crate) fn with(at: usize, bytes: &[u8]) -> Frame {
    let mut frame = send();
    frame.bytes[at..at + bytes.len()].copy_from_slice(bytes);
    frame
}

pub(crate) fn file(frames: &[Frame]) -> Vec<u8> {
    pcap(Order::Little, false, ETHERNET, frames)
}

#[test]
fn malformed_frames_are_shown_with_their_reason() {
    // An option moves the ports, so they are written where they will be looked for.
    let mut options = with(38, &[0xc7, 0x39, 0x12, 0xb7]);
    options.bytes[14] = 0x46;
    for (frame, reason) in [
        (with(42, &[0xff]), "unknown opcode 0xff"),
        (options, "IPv4 header of 24 bytes: RoCEv2 allows no options"),
        (mended(with(20, &[0x20])), "IP fragment"),
        (mended(with(20, &[0xc0])), "IPv4 header with its reserved flag set"),
        (with(38, &[0, 99]), "UDP length field says 99 bytes, 56 are there"),
    ] {
        let file = file(&[send(), frame]);
        let clock = "01:11:34.317402";
        let long = decode_bytes(&[], &file).success();
        let line =
            format!("\n\n{clock} IP 10.77.0.3.51001 > 10.77.0.2.4791: malformed RoCEv2 frame: {reason}\n");
        assert!(long.stdout.ends_with(&line), "{}", long.stdout);
        assert_eq!(long.stderr, "2 frames, 2 RoCEv2, 0 wrong ICRC, 1 malformed, 0 cut, 0 other\n");

        let short = decode_bytes(&["--short", "--errors"], &file).success();
        let line = format!("    2 {clock} 10.77.0.3 > 10.77.0.2 malformed RoCEv2 frame: {reason}\n");
        assert_eq!(short.stdout, line);

        let json = decode_bytes(&["--json", "--errors"], &file).success();
        let object: Value = serde_json::from_str(&json.stdout).unwrap();
        assert_eq!(object["frame"], 2);
        assert_eq!(object["error"], reason);
        assert_eq!(object["ipv4"]["source"], "10.77.0.3");
        assert_eq!(object["udp"]["source_port"], 51001);
    }
}

/// The same frame with the right checksum in its IPv4 header.
pub(crate) fn mended(mut frame: Frame) -> Frame {
    let bytes = &mut frame.bytes;
    bytes[24..26].fill(0);
    let words = bytes[14..34].chunks(2).map(|word| u32::from(u16::from_be_bytes([word[0], word[1]])));
    let mut sum: u32 = words.sum();
    while sum > 0xffff {
        sum = (sum & 0xffff) + (sum >> 16);
    }
    bytes[24..26].copy_from_slice(&(!u16::try_from(sum).unwrap()).to_be_bytes());
    frame
}

#[test]
fn malformed_frames_are_found_by_queue_pair() {
    let file = file(&[with(42, &[0xff])]);
    assert_eq!(decode_bytes(&["--short", "--qp", "0x2b"], &file).success().stdout.lines().count(), 1);
    assert_eq!(decode_bytes(&["--short", "--qp", "0x2c"], &file).success().stdout, "");
}

#[test]
fn other_frames_are_counted_only() {
    let other = [
        with(12, &[0x08, 0x06]),
        with(36, &[0, 53]),
        mended(with(23, &[6])),
        mended(with(20, &[0, 9])),
        with(14, &[0x75]),
        // IPv4 behind the ethertype of IPv6.
        with(12, &[0x86, 0xdd]),
        Frame { bytes: vec![], ..send() },
    ];
    let mut frames = other.to_vec();
    frames.push(send());
    let out = decode_bytes(&["--short"], &file(&frames)).success();
    assert!(out.stdout.starts_with("    8 ") && out.stdout.lines().count() == 1, "{}", out.stdout);
    assert_eq!(out.stderr, "8 frames, 1 RoCEv2, 0 wrong ICRC, 0 malformed, 0 cut, 7 other\n");
}

#[test]
fn a_truncated_file_gives_its_whole_frames() {
    let small = frames(&capture("all_ud.pcap"));
    let mut next_to = Vec::new();
    for whole in [file(&small), pcapng(Order::Big, &small)] {
        let shown = decode_bytes(&["--short", "--quiet"], &whole).success().stdout;
        let mut ends = Vec::new();
        for len in 0..whole.len() {
            let out = decode_bytes(&["--short"], &whole[..len]);
            assert!(shown.starts_with(&out.stdout), "{len}");
            if out.code == Some(0) {
                ends.push(out.stdout.lines().count());
                continue;
            }
            let read = match out.stdout.lines().count() {
                0 => None,
                1 => Some("; 1 frame was read".to_string()),
                count => Some(format!("; {count} frames were read")),
            };
            let message = out.failure();
            assert!(message.contains(if len < 4 { "not a pcap" } else { "truncated inside" }), "{message}");
            assert!(read.is_none_or(|read| message.ends_with(&read)), "{message}");
            next_to.push(message.to_string());
        }
        // Where a header ends and no frame has come, and after every frame, a file may end.
        let expected: Vec<usize> = (0..small.len()).collect();
        ends.dedup();
        assert_eq!(ends, expected);
    }
    for message in [
        "not a pcap or pcapng file (starts with d4 c3)",
        "truncated inside the file header (23 of 24 bytes); no frame was read",
        "truncated inside the header of frame 2 (1 of 16 bytes); 1 frame was read",
        "truncated inside a section header (11 of 28 bytes); no frame was read",
        "truncated inside a block of type 0x00000001 (19 of 20 bytes); no frame was read",
    ] {
        assert!(next_to.contains(&format!("ferroce: standard input: {message}")), "{message}: {next_to:#?}");
    }
}

#[test]
fn the_message_names_file_frame_and_bytes() {
    let mut file = fs::read(capture("rnr.pcap")).unwrap();
    let ends = [24 + 3 * (16 + 90) + 3 * (16 + 62), 16, 16];
    file.truncate(ends.iter().sum());
    let path = Path::new(env!("CARGO_TARGET_TMPDIR")).join("cut.pcap");
    fs::write(&path, file).unwrap();
    let out = decode(&["--short"], &path);
    let name = path.display();
    assert_eq!(
        out.failure(),
        format!("ferroce: {name}: truncated inside frame 7 (16 of 90 bytes); 6 frames were read")
    );
    assert_eq!(out.stdout.lines().count(), 6);
}

#[test]
fn foreign_files_are_refused() {
    let elf = fs::read(env!("CARGO_BIN_EXE_ferroce")).unwrap();
    for (bytes, message) in [
        (&b""[..], "not a pcap or pcapng file (it is empty)"),
        (b"This is a text", "not a pcap or pcapng file (starts with 54 68 69 73)"),
        (&elf, "not a pcap or pcapng file (starts with 7f 45 4c 46)"),
        (b"\x1f\x8b\x08\0\0", "not a pcap or pcapng file (starts with 1f 8b 08 00: gzip; unpack it first)"),
        (b"\x0a\x0d\x0d\x0a\0\0\0\x1cabcdefghijklmnop", "byte-order mark 61 62 63 64 of a pcapng section"),
    ] {
        let out = decode_bytes(&[], bytes);
        assert!(out.failure().contains(message), "{}", out.failure());
        assert_eq!(out.stdout, "");
    }
    let missing = decode(&[], Path::new("no/such.pcap"));
    let message = "ferroce: no/such.pcap: cannot be opened: No such file or directory (os error 2)";
    assert_eq!(missing.failure(), message);
    assert!(
        decode(&[], Path::new(env!("CARGO_TARGET_TMPDIR"))).failure().contains("cannot be read: Is a dir")
    );
}

#[test]
fn lengths_and_numbers_that_cannot_be_are_damage() {
    let order = Order::Little;
    let classic = |len: u32| {
        let mut file = file(&[send()]);
        file.extend(pcap_frame(order, [0, 0, len, len]));
        file
    };
    let modern = |last: Vec<u8>| {
        let mut file = pcapng(order, &[send()]);
        file.extend(last);
        file
    };
    let announces = |len: u32| {
        let mut block = packet(order, 0, 0, &[0; 8]);
        block[20..24].copy_from_slice(&order.u32(len));
        block
    };
    let mut unequal = block(order, 9, &[]);
    unequal[8] = 16;
    for (file, message) in [
        (classic(u32::MAX), "frame 2 announces 4294967295 bytes, at most 262144 are possible"),
        (classic(262_145), "frame 2 announces 262145 bytes, at most 262144 are possible"),
        (classic(262_144), "truncated inside frame 2 (0 of 262144 bytes)"),
        (modern(announces(u32::MAX)), "frame 2 announces 4294967295 bytes, at most 262144 are possible"),
        (modern(announces(9)), "frame 2 announces 9 bytes in a block with room for 8"),
        (modern(packet(order, 1, 0, &[])), "frame 2 is from interface 1, but the section describes 1"),
        (modern(vec![9, 0, 0, 0, 0, 0, 0, 0]), "a block of type 0x00000009 announces 0 bytes"),
        (modern(vec![9, 0, 0, 0, 13, 0, 0, 0]), "a block of type 0x00000009 announces 13 bytes"),
        (modern([9, 0, 0, 0, 252, 255, 255, 255].into()), "0x00000009 (8 of 4294967292 bytes)"),
        (modern([6, 0, 0, 0, 252, 255, 255, 255].into()), "the block of frame 2 (8 of 4294967292 bytes)"),
        (modern(unequal), "a block of type 0x00000009 has 12 bytes in front and 16 behind"),
        (modern(block(order, 6, &[0; 16])), "the block of frame 2 has only 28 bytes"),
        (modern(interface(order, 1, &[(9, &[77])])), "time unit 0x4d of interface 1"),
    ] {
        let out = decode_bytes(&["--short"], &file);
        assert!(out.failure().contains(message), "{}", out.failure());
        assert!(out.failure().ends_with("; 1 frame was read"), "{}", out.failure());
        assert_eq!(out.stdout.lines().count(), 1);
    }
}

#[test]
fn unknown_link_types_are_named() {
    let message = "link type 147 is not supported";
    let out = decode_bytes(&[], &pcap(Order::Big, false, 147, &[send()]));
    assert!(out.failure().contains(message), "{}", out.failure());
    let order = Order::Big;
    let mut file = section(order);
    file.extend(interface(order, 1, &[]));
    file.extend(interface(order, 147, &[]));
    file.extend(packet(order, 0, 0, &send().bytes));
    file.extend(packet(order, 1, 0, &send().bytes));
    let out = decode_bytes(&["--short"], &file);
    assert!(out.failure().contains(message), "{}", out.failure());
    assert_eq!(out.stdout.lines().count(), 1);
}
