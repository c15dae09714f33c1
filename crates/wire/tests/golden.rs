//! Every frame of the Linux kernel's captures: read into values, printed, written back byte for byte.

use std::collections::BTreeMap;

use ferroce_testkit::captures;
use ferroce_wire::mad::CmMad;
use ferroce_wire::{Body, Captured, Flow, Frame, Icrc, Long, Operation, Packet, PayloadLen, Qpn};

/// The one frame that was sent with a wrong ICRC to see it go unanswered.
const BROKEN_ON_PURPOSE: (&str, usize) = ("udp_smoke", 5);

#[test]
fn every_kernel_frame_is_read_printed_and_written_back() {
    let mut frames = 0;
    let mut operations = BTreeMap::new();
    for capture in captures::linux_rxe() {
        for (index, bytes) in capture.frames.iter().enumerate() {
            let at = format!("{} frame {}", capture.name, index + 1);
            let frame = Frame::parse_ethernet(bytes).unwrap_or_else(|error| panic!("{at}: {error}"));

            let broken = (capture.name.as_str(), index + 1) == BROKEN_ON_PURPOSE;
            let mut again = vec![0xaa; bytes.len()];
            assert_eq!(frame.emit_with_icrc_as_seen(&mut again), Ok(bytes.len()), "{at}");
            assert_eq!(again, *bytes, "{at}");
            // The ICRC comes from the values alone, and only that of the broken frame differs.
            again.fill(0xaa);
            let silent = Frame { icrc: Icrc { seen: 0, computed: 0 }, ..frame };
            assert_eq!(silent.emit(&mut again), Ok(bytes.len()), "{at}");
            assert_eq!(again == *bytes, !broken, "{at}");
            assert_eq!(again[..again.len() - 4], bytes[..bytes.len() - 4], "{at}");
            assert_eq!(again[again.len() - 4..], frame.icrc.computed.to_le_bytes(), "{at}");

            let long = Long(&frame).to_string();
            assert!(long.lines().count() >= 17, "{at}: {long}");
            assert!(long.contains(frame.packet.opcode().info().operation.name()), "{at}: {long}");
            assert_eq!(frame.to_string().lines().count(), 1, "{at}");

            assert_eq!(frame.icrc.is_right(), !broken, "{at}");
            assert_eq!(long.contains("Check: wrong"), broken, "{at}");
            if !broken {
                assert_eq!(rebuilt(&frame), packet_bytes(bytes, &frame), "{at}");
            }
            management_datagrams_come_back(&frame, &at);

            frames += 1;
            *operations.entry(frame.packet.opcode().byte()).or_insert(0) += 1;
        }
    }
    assert_eq!(frames, 1352, "the captures are complete");
    assert_eq!(operations.len(), 36, "opcodes that the kernel sent: {operations:?}");
}

/// The packet as our own sending path builds it, ICRC included.
fn rebuilt(frame: &Frame<'_>) -> Vec<u8> {
    let id = match frame.ip {
        ferroce_wire::net::Ip::V4(ip) => ip.id,
        ferroce_wire::net::Ip::V6(_) => 0,
    };
    let mut packet = vec![0xaa; frame.packet.len()];
    frame.packet.emit(&Flow::of(&frame.ip, &frame.udp), id, &mut packet).expect("room for the packet");
    packet
}

fn packet_bytes(bytes: &[u8], frame: &Frame<'_>) -> Vec<u8> {
    bytes[bytes.len() - frame.packet.len()..].to_vec()
}

fn management_datagrams_come_back(frame: &Frame<'_>, at: &str) {
    let Body::Ud(datagram) = frame.packet.body else { return };
    if frame.packet.dest_qp != Qpn::GSI {
        return;
    }
    let mad = CmMad::parse(datagram.payload).unwrap_or_else(|error| panic!("{at}: {error}"));
    let mut again = [0xaa; CmMad::LEN];
    mad.emit(&mut again);
    assert_eq!(again, datagram.payload, "{at}");
    assert!(Long(frame).to_string().contains("CM "), "{at}");
}

/// A socket does not show the identification: it must come out of the ICRC.
#[test]
fn the_identification_of_every_kernel_frame_is_found() {
    let mut found = 0;
    for capture in captures::linux_rxe() {
        for (index, bytes) in capture.frames.iter().enumerate() {
            let frame = Frame::parse_ethernet(bytes).unwrap();
            let ferroce_wire::net::Ip::V4(ip) = frame.ip else { continue };
            let solved = Flow::of(&frame.ip, &frame.udp).solve_ip_id(&packet_bytes(bytes, &frame));
            if (capture.name.as_str(), index + 1) == BROKEN_ON_PURPOSE {
                assert_eq!(solved, None);
            } else {
                assert_eq!(solved, Some(ip.id), "{} frame {}", capture.name, index + 1);
                found += 1;
            }
        }
    }
    assert_eq!(found, 1249);
}

/// The printed form follows the layout of the packet text that people know.
#[test]
fn the_long_form_has_one_line_per_field() {
    let captures = captures::linux_rxe();
    let capture = captures.iter().find(|capture| capture.name == "write").unwrap();
    let write = capture.frames.iter().find_map(|bytes| {
        let frame = Frame::parse_ethernet(bytes).unwrap();
        (frame.packet.opcode().info().operation == Operation::WriteOnly).then_some(frame)
    });
    let text = Long(&write.expect("a WRITE Only")).to_string();
    let lines: Vec<&str> = text.lines().collect();
    assert!(lines[0].starts_with("IP 10.77.0.3.") && lines[0].contains(" > 10.77.0.2.4791: UDP, length "));
    assert!(lines[1].starts_with("    Ethernet II, Src: "));
    assert!(lines[2].starts_with("    Internet Protocol Version 4, Src: 10.77.0.3, Dst: 10.77.0.2"));
    assert!(lines[3].starts_with("    User Datagram Protocol, Src Port: "));
    assert_eq!(lines[4], "    InfiniBand: Base Transport Header (12 bytes)");
    assert!(lines.contains(&"        Opcode: RDMA WRITE Only (0x0a)"));
    assert!(lines.contains(&"        Solicited Event: 0"));
    assert!(lines.contains(&"        Partition Key: 0xffff"));
    assert!(lines.contains(&"    InfiniBand: RDMA Extended Transport Header (16 bytes)"));
    assert!(lines.contains(&"    InfiniBand: Invariant CRC (4 bytes)"));
    assert!(lines.contains(&"        Check: correct"));
}

/// What cannot be a packet is refused with its reason, at every length.
#[test]
fn every_truncation_of_a_kernel_frame_is_refused() {
    for capture in captures::linux_rxe().iter().filter(|capture| capture.frames.len() < 20) {
        for bytes in &capture.frames {
            let frame = Frame::parse_ethernet(bytes).unwrap();
            for len in 0..bytes.len() {
                assert!(Frame::parse_ethernet(&bytes[..len]).is_err(), "{} {len}", capture.name);
            }
            let packet = packet_bytes(bytes, &frame);
            for len in 0..packet.len() {
                let cut = Packet::parse(&packet[..len]);
                assert!(cut.is_err() || cut.unwrap().len() == len, "{} {len}", capture.name);
            }
        }
    }
}

/// A capture that keeps only the first bytes of each frame still shows all headers in them.
#[test]
fn a_cut_kernel_frame_shows_its_headers() {
    let mut cut = 0;
    for capture in captures::linux_rxe().iter().filter(|capture| capture.frames.len() < 20) {
        for bytes in &capture.frames {
            let frame = Frame::parse_ethernet(bytes).unwrap();
            let headers = frame.packet.map_payload(|payload| PayloadLen(payload.len()));
            let ip = &bytes[14..];
            let needed = frame.ip.len() + 8 + frame.packet.header_len();
            for kept in 0..ip.len() {
                assert!(Captured::parse_ip(&ip[..kept], false).is_err(), "{}", capture.name);
                let captured = Captured::parse_ip(&ip[..kept], true);
                assert_eq!(captured.is_ok(), kept >= needed, "{} {kept}: {captured:?}", capture.name);
                let Ok(captured) = captured else { continue };
                assert_eq!((captured.ip, captured.udp, captured.icrc), (frame.ip, frame.udp, None));
                let payload = &frame.packet.payload()[..frame.packet.payload().len().min(kept - needed)];
                let kept_payload = captured.packet.map_payload(|kept| {
                    assert_eq!(kept.bytes, payload);
                    PayloadLen(kept.len)
                });
                assert_eq!(kept_payload, headers);
                assert!(captured.is_cut() && captured.notes.iter().count() == 1);
                cut += 1;
            }
            let whole = Captured::parse_ip(ip, true);
            assert_eq!(whole, Ok(Captured { ethernet: None, ..frame.into() }));
        }
    }
    assert!(cut > 10_000, "{cut}");
}
