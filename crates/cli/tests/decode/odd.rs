//! Frames that a receiver would drop or ignore in part, and that a reader wants to see.

use serde_json::Value;

use crate::broken::{file, mended, send, with};
use crate::build::{ETHERNET, Frame, Order, frames, pcap_frame, pcap_header};
use crate::run::{Out, decode, decode_bytes, ferroce};
use crate::{all_captures, capture};

/// Frames of which a capture kept at most the first `snap` bytes.
fn snapped(frames: &[Frame], snap: usize) -> Vec<u8> {
    let mut file = pcap_header(Order::Little, false, ETHERNET);
    for Frame { bytes, .. } in frames {
        let kept = &bytes[..bytes.len().min(snap)];
        let [len, original] = [kept.len(), bytes.len()].map(|len| u32::try_from(len).unwrap());
        file.extend(pcap_frame(Order::Little, [0, 0, len, original]));
        file.extend(kept);
    }
    file
}

fn summary(out: &Out) -> &str {
    out.stderr.trim_end()
}

#[test]
fn a_cut_frame_shows_what_was_kept() {
    let line = "    1 00:00:00.000000 10.77.0.3 > 10.77.0.2";
    for kept in 0..90 {
        let file = snapped(&[send()], kept);
        let out = decode_bytes(&["--short"], &file).success();
        if kept < 38 {
            // Without its ports it is not known what the frame was.
            assert_eq!(out.stdout, "");
            assert_eq!(summary(&out), "1 frame, 0 RoCEv2, 0 wrong ICRC, 0 malformed, 0 cut, 1 other");
            continue;
        }
        assert_eq!(summary(&out), "1 frame, 1 RoCEv2, 0 wrong ICRC, 0 malformed, 1 cut, 0 other");
        if kept < 54 {
            let reason = format!("cut RoCEv2 frame: the capture kept {kept} of 90 bytes");
            assert_eq!(out.stdout, format!("{line} {reason}\n"));
            let long = decode_bytes(&[], &file).success().stdout;
            assert_eq!(long, format!("00:00:00.000000 IP 10.77.0.3.51001 > 10.77.0.2.4791: {reason}\n"));
        } else {
            let packet = "RC SEND Only qp=0x00002b psn=0x100000 ack-request data=32";
            let note = format!("cut by the capture, which kept {} of 48 bytes; ICRC not checked", kept - 42);
            assert_eq!(out.stdout, format!("{line} {packet} [{note}]\n"));
            let long = decode_bytes(&[], &file).success().stdout;
            assert!(long.ends_with(&format!("    Data: 32 bytes\n    Note: {note}\n")), "{long}");
            let json = decode_bytes(&["--json"], &file).success().stdout;
            let object: Value = serde_json::from_str(&json).unwrap();
            assert_eq!(object["payload"]["length"], 32);
            let bytes = object["payload"]["bytes"].as_str().unwrap();
            assert_eq!(bytes.len(), 2 * (kept - 54).min(32));
            assert_eq!(object["notes"], serde_json::json!([note]));
            assert!(object["icrc"].is_null());
        }
        assert_eq!(decode_bytes(&["--short", "--errors"], &file).success().stdout, "", "a cut is no error");
    }
}

#[test]
fn every_kernel_frame_cut_at_96_bytes_shows_its_headers() {
    for path in all_captures() {
        let frames = frames(&path);
        // An IPv6 header is twenty bytes longer.
        let snap = if frames[0].bytes[12] == 0x86 { 116 } else { 96 };
        let cut = frames.iter().filter(|frame| frame.bytes.len() > snap).count();
        let out = decode_bytes(&["--json"], &snapped(&frames, snap)).success();
        // The broken one is short enough to be whole.
        let wrong = usize::from(path.ends_with("udp_smoke.pcap"));
        let count = frames.len();
        let noun = if count == 1 { "frame" } else { "frames" };
        let expected =
            format!("{count} {noun}, {count} RoCEv2, {wrong} wrong ICRC, 0 malformed, {cut} cut, 0 other");
        assert_eq!(summary(&out), expected, "{}", path.display());
        let whole = decode(&["--json"], &path).success().stdout;
        for (line, whole) in out.stdout.lines().zip(whole.lines()) {
            let [cut, whole]: [Value; 2] = [line, whole].map(|line| serde_json::from_str(line).unwrap());
            for header in ["ipv4", "ipv6", "udp", "bth", "deth", "reth", "aeth", "atomiceth", "immdt"] {
                assert_eq!(cut[header], whole[header], "{line}");
            }
            if whole["mad"].is_null() {
                assert_eq!(cut["payload"]["length"], whole["payload"]["length"], "{line}");
            }
        }
    }
}

#[test]
fn what_is_odd_is_noted_in_every_form() {
    // One of the 32 bytes of payload less, and one byte of pad more, which is not zero.
    let padded = with(43, &[0x10]);
    for (frame, note) in [
        (with(24, &[0, 0]), "IPv4 header checksum 0x0000, computed 0x1764"),
        (with(46, &[0x01]), "reserved bits set"),
        (padded, "pad bytes not zero"),
    ] {
        let file = file(&[send(), frame]);
        let short = decode_bytes(&["--short"], &file).success();
        let line = short.stdout.lines().nth(1).unwrap();
        assert!(line.ends_with(&format!(" [{note}]")), "{line}");
        assert!(line.contains("RC SEND Only qp=0x00002b psn=0x100000"), "{line}");
        assert!(!short.stdout.lines().next().unwrap().contains('['), "{}", short.stdout);
        let long = decode_bytes(&[], &file).success().stdout;
        assert!(long.ends_with(&format!("\n    Note: {note}\n")), "{long}");
        let json = decode_bytes(&["--json"], &file).success().stdout;
        let objects: Vec<Value> = json.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
        assert!(objects[0]["notes"].is_null());
        assert_eq!(objects[1]["notes"], serde_json::json!([note]));
        assert!(summary(&short).contains(" 2 RoCEv2, ") && summary(&short).contains(" 0 malformed, "));
    }
    // The ICRC leaves the header checksum out: it is still right, and the frame no error.
    let offloaded = file(&[with(24, &[0, 0])]);
    assert_eq!(decode_bytes(&["--errors"], &offloaded).success().stdout, "");
}

#[test]
fn stacked_vlan_tags_are_taken_off() {
    let mut frame = send();
    frame.bytes.splice(12..12, [0x88, 0xa8, 0x20, 0x64, 0x81, 0x00, 0x00, 0x05]);
    let json = decode_bytes(&["--json"], &file(&[frame])).success().stdout;
    let object: Value = serde_json::from_str(&json).unwrap();
    assert_eq!(object["ethernet"]["outer_vlan"], 100);
    assert_eq!(object["ethernet"]["vlan"], 5);
    assert_eq!(object["icrc"]["check"], "correct");
}

#[test]
fn connections_and_services_that_are_refused_are_errors() {
    let rejected = decode(&["--short", "--errors"], &capture("cm_reject.pcap")).success().stdout;
    assert!(rejected.lines().all(|line| line.contains(" CM REJ transaction=")), "{rejected}");
    assert!(rejected.contains(" remote-id=") && rejected.contains(" reason=invalid service ID (8) "));
    assert_eq!(decode(&["--errors"], &capture("udaddy.pcap")).success().stdout, "");

    // The status of the reply: 14 Ethernet, 20 IPv4, 8 UDP, 12 BTH, 8 DETH, 24 MAD, 4 request ID.
    let mut replies = frames(&capture("udaddy.pcap"));
    replies.retain(|frame| frame.bytes.get(62 + 17) == Some(&0x18) && frame.bytes[42] == 0x64);
    assert!(!replies.is_empty());
    for frame in &mut replies {
        frame.bytes[62 + 24 + 4] = 1;
    }
    let json = decode_bytes(&["--json", "--errors"], &file(&replies)).success().stdout;
    let object: Value = serde_json::from_str(json.lines().next().unwrap()).unwrap();
    assert_eq!(object["cm.sidr_rep"]["status_name"], "service ID not supported");
    // Its ICRC no longer fits, which is an error too: cut off, the status alone must tell.
    let len = replies[0].bytes.len();
    let refused = decode_bytes(&["--short", "--errors"], &snapped(&replies, len - 1)).success().stdout;
    assert!(refused.contains(" status=service ID not supported (1) "), "{refused}");
}

/// As the help says: several packets in one datagram are not taken apart.
#[test]
fn segmentation_offload_comes_out_as_malformed() {
    let mut frame = frames(&capture("rnr.pcap")).swap_remove(1);
    let ack = frame.bytes[42..62].to_vec();
    frame.bytes.extend(ack);
    frame.bytes[16..18].copy_from_slice(&68_u16.to_be_bytes());
    frame.bytes[38..40].copy_from_slice(&48_u16.to_be_bytes());
    let out = decode_bytes(&["--short"], &file(&[mended(frame)])).success();
    assert!(
        out.stdout.contains("malformed RoCEv2 frame: RC Acknowledge with 20 payload bytes"),
        "{}",
        out.stdout
    );
}

#[test]
fn the_summary_in_the_help_is_true() {
    let help = ferroce(&["decode", "--help"]).success().stdout;
    let smoke = decode(&["--short"], &capture("udp_smoke.pcap")).success();
    assert!(help.contains(summary(&smoke)), "{help}");
    assert!(help.contains("udp_smoke.pcap"), "{help}");
}
