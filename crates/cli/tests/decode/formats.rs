//! Every format, byte order, clock and link type tells the same.

use std::borrow::Cow;
use std::fs;
use std::io::{BufRead, BufReader, Write};
use std::time::Duration;

use pcap_file::pcapng::PcapNgWriter;
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketBlock;
use pcap_file::pcapng::blocks::interface_description::{
    InterfaceDescriptionBlock, InterfaceDescriptionOption,
};
use pcap_file::{DataLink, Endianness};

use crate::build::{
    ETHERNET, Frame, Order, block, frames, interface, packet, pcap, pcap_frame, pcap_header, pcapng, section,
};
use crate::run::{decode, decode_bytes, finish, start};
use crate::{all_captures, capture};

const ORDERS: [Order; 2] = [Order::Big, Order::Little];

#[test]
fn byte_orders_and_formats_do_not_matter() {
    for path in all_captures() {
        let frames = frames(&path);
        let expected = decode(&["--json"], &path).success();
        for order in ORDERS {
            for file in [pcap(order, false, ETHERNET, &frames), pcapng(order, &frames)] {
                let out = decode_bytes(&["--json"], &file).success();
                assert!(out.stdout == expected.stdout, "{} {order:?}", path.display());
                assert_eq!(out.stderr, expected.stderr);
            }
        }
    }
}

#[test]
fn nanoseconds_are_shown() {
    let mut frames = frames(&capture("rnr.pcap"));
    frames.truncate(1);
    frames[0].time = Duration::new(86_400 + 36_296, 1_234);
    for order in ORDERS {
        let file = pcap(order, true, ETHERNET, &frames);
        let long = decode_bytes(&[], &file).success().stdout;
        assert!(long.starts_with("10:04:56.000001234 IP 10.77.0.3.51001 > 10.77.0.2.4791: UDP, length 48\n"));
        let json = decode_bytes(&["--json"], &file).success().stdout;
        assert!(json.starts_with("{\"frame\":1,\"time\":\"122696.000001234\","), "{json}");
    }
}

#[test]
fn pcapng_as_others_write_it() {
    let frames = frames(&capture("v6/all_rc_multi.pcap"));
    let expected = decode(&["--short"], &capture("v6/all_rc_multi.pcap")).success().stdout;
    for endianness in [Endianness::Big, Endianness::Little] {
        let mut writer = PcapNgWriter::with_endianness(Vec::new(), endianness).unwrap();
        let options = vec![InterfaceDescriptionOption::IfTsResol(9)];
        let interface = InterfaceDescriptionBlock { linktype: DataLink::ETHERNET, snaplen: 0, options };
        writer.write_pcapng_block(interface).unwrap();
        for Frame { time, bytes } in &frames {
            let original_len = u32::try_from(bytes.len()).unwrap();
            let data = Cow::Borrowed(&bytes[..]);
            let (interface_id, timestamp, options) = (0, *time, Vec::new());
            let block = EnhancedPacketBlock { interface_id, timestamp, original_len, data, options };
            writer.write_pcapng_block(block).unwrap();
        }
        let out = decode_bytes(&["--short"], &writer.into_inner()).success().stdout;
        // The same but for three more digits of time.
        let shortened: Vec<String> = out.lines().map(|line| line.replacen("000 ", " ", 1)).collect();
        assert_eq!(shortened, expected.lines().collect::<Vec<_>>());
    }
}

#[test]
fn blocks_sections_and_clocks_of_pcapng() {
    let [big, little] = ORDERS;
    let frame = frames(&capture("rnr.pcap")).swap_remove(1).bytes;
    let total = u32::try_from(frame.len()).unwrap();
    let mut file = section(little);
    file.extend(block(little, 0xbad, &[7; 100_000]));
    file.extend(interface(little, 1, &[(2, b"eth0"), (9, &[0x8a]), (0, &[])]));
    file.extend(interface(little, 147, &[]));
    file.extend(interface(little, 101, &[(1, b"\xff\xff"), (9, &[3]), (14, &10_i64.to_le_bytes())]));
    file.extend(packet(little, 0, 1536, &frame));
    file.extend(packet(little, 2, 1_234, &frame[14..]));
    file.extend(block(little, 5, &[0; 8]));
    // The simple block has no time, the obsolete one a narrower interface number.
    file.extend(block(little, 3, &[&total.to_le_bytes()[..], &frame].concat()));
    file.extend(section(big));
    file.extend(interface(big, 1, &[]));
    let fields = [0_u32, 0, 2_000_003, total, total].map(u32::to_be_bytes).concat();
    file.extend(block(big, 2, &[&[0, 0, 0, 9], &fields[4..], &frame].concat()));

    let out = decode_bytes(&["--short"], &file).success();
    let starts: Vec<&str> = out.stdout.lines().map(|line| line.split(" 10.77").next().unwrap()).collect();
    assert_eq!(
        starts,
        [
            "    1 00:00:01.500000000",
            "    2 00:00:11.234000",
            "    3 --:--:--.------",
            "    4 00:00:02.000003"
        ]
    );
    assert_eq!(out.stderr, "4 frames, 4 RoCEv2, 0 wrong ICRC, 0 malformed, 0 cut, 0 other\n");
    let json = decode_bytes(&["--json"], &file).success().stdout;
    assert!(json.contains("{\"frame\":3,\"time\":null,"));

    file.extend(packet(big, 1, 0, &frame));
    let out = decode_bytes(&["--short"], &file);
    assert!(out.failure().contains("frame 5 is from interface 1"), "{}", out.failure());
    assert_eq!(out.stdout.lines().count(), 4);
}

#[test]
fn every_link_type_shows_the_same_packets() {
    for (name, v6) in [("all_rc.pcap", false), ("v6/all_uc.pcap", true)] {
        let ethertype: [u8; 2] = if v6 { [0x86, 0xdd] } else { [0x08, 0x00] };
        let cooked = [&[0; 14][..], &ethertype].concat();
        let cooked2 = [&ethertype, &[0; 18][..]].concat();
        let family = if v6 { 30 } else { 2 };
        let expected = decode(&["--short"], &capture(name)).success().stdout;
        for (link, header) in [
            (0, vec![family, 0, 0, 0]),
            (108, vec![0, 0, 0, family]),
            (12, vec![]),
            (14, vec![]),
            (101, vec![]),
            (if v6 { 229 } else { 228 }, vec![]),
            (113, cooked),
            (276, cooked2),
        ] {
            let mut frames = frames(&capture(name));
            for frame in &mut frames {
                frame.bytes.splice(..14, header.iter().copied());
            }
            let out = decode_bytes(&["--short"], &pcap(Order::Little, false, link, &frames)).success();
            assert!(out.stdout == expected, "link type {link}: {}", out.stdout);
        }
    }
}

#[test]
fn standard_input_is_shown_as_it_comes() {
    let file = fs::read(capture("rnr.pcap")).unwrap();
    let mut child = start(&["--short"]);
    let mut stdin = child.stdin.take().unwrap();
    let mut stdout = BufReader::new(child.stdout.take().unwrap());
    // The magic number in pieces, then the first frame of 90 bytes and no more.
    let (first, rest) = file.split_at(24 + 16 + 90);
    stdin.write_all(&first[..2]).unwrap();
    stdin.write_all(&first[2..]).unwrap();
    let mut line = String::new();
    stdout.read_line(&mut line).unwrap();
    assert!(line.starts_with("    1 01:11:34.317402 10.77.0.3 > 10.77.0.2 RC SEND Only "), "{line}");
    stdin.write_all(rest).unwrap();
    drop(stdin);
    assert_eq!(stdout.lines().count(), 7);
    finish(child).success();
}

#[test]
fn a_reader_that_has_seen_enough_is_no_error() {
    // More than any pipe holds: a child of another test may keep ours open until it runs its program.
    let file = repeated("loss.pcap", 100);
    for form in ["--json", "--short", "--quiet"] {
        let mut child = start(&[form]);
        drop(child.stdout.take());
        let _ = child.stdin.take().unwrap().write_all(&file);
        let out = finish(child).success();
        assert_eq!(out.stderr, "");
    }
}

#[test]
fn a_long_capture_is_read_to_its_end() {
    let count = frames(&capture("all_rc_multi.pcap")).len() * 500;
    let file = repeated("all_rc_multi.pcap", 500);
    let out = decode_bytes(&["--short"], &file).success();
    assert_eq!(out.stdout.lines().count(), count);
    assert_eq!(
        out.stderr,
        format!("{count} frames, {count} RoCEv2, 0 wrong ICRC, 0 malformed, 0 cut, 0 other\n")
    );
}

/// A capture with all its frames so many times.
fn repeated(name: &str, times: usize) -> Vec<u8> {
    let file = fs::read(capture(name)).unwrap();
    let (header, frames) = file.split_at(24);
    [header, &frames.repeat(times)].concat()
}

#[test]
fn an_empty_capture_is_a_capture() {
    for order in ORDERS {
        for file in [pcap_header(order, false, ETHERNET), section(order)] {
            let out = decode_bytes(&[], &file).success();
            assert_eq!(out.stdout, "");
            assert_eq!(out.stderr, "0 frames, 0 RoCEv2, 0 wrong ICRC, 0 malformed, 0 cut, 0 other\n");
        }
    }
    let mut file = pcap_header(Order::Big, false, ETHERNET);
    file.extend(pcap_frame(Order::Big, [0; 4]));
    let out = decode_bytes(&[], &file).success();
    assert_eq!(out.stderr, "1 frame, 0 RoCEv2, 0 wrong ICRC, 0 malformed, 0 cut, 1 other\n");
}
