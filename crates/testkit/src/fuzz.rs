//! What the fuzz targets do with their bytes. Each function panics where a promise is broken.

use std::fs;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;

use ferroce_lane::{Consumer, LaneFile, Producer};
use ferroce_wire::describe::{Describe, Value, Visitor};
use ferroce_wire::mad::CmMad;
use ferroce_wire::net::Ethernet;
use ferroce_wire::{
    Captured, DataPacket, Flow, Frame, Kept, Long, MAX_PACKET_LEN, Packet, ParseError, PayloadLen,
};

/// Bytes as a packet, and as a frame: what parses prints, and survives being written and read again.
///
/// # Panics
/// If it does not.
pub fn packet(bytes: &[u8]) {
    let flow = Flow::new(([127, 0, 0, 1], 49152).into(), ([127, 0, 0, 2], 4791).into()).expect("one family");
    if let Ok(packet) = Packet::parse(bytes) {
        let text = packet.to_string();
        assert!(text.starts_with(&packet.opcode().to_string()), "{text}");
        let mut buffer = [0xaa; MAX_PACKET_LEN];
        let len = packet.emit(&flow, 0, &mut buffer).expect("room for the longest packet");
        assert_eq!(len, bytes.len());
        assert_eq!(len, packet.len());
        assert_eq!(Packet::parse(&buffer[..len]), Ok(packet));
        assert_eq!(flow.verify(&buffer[..len], 0), Ok(()));
        packet.describe(&mut Swallow(0)).expect("nothing to fail");
    }
    // The short way says the same, or nothing.
    if let Some((data, payload)) = DataPacket::parse(bytes) {
        let packet = Packet::parse(bytes).expect("what it reads is a packet");
        let mut same = data.to_packet().map_payload(|len| &payload[..len.0]);
        same.migrated = packet.migrated;
        assert_eq!(packet, same);
    }
    match flow.both(bytes, 0) {
        Ok((seen, computed)) => {
            assert_eq!(flow.verify(bytes, 0).is_ok(), seen == computed);
            if let Some(id) = flow.solve_ip_id(bytes) {
                assert_eq!(flow.verify(bytes, id), Ok(()));
            }
        }
        Err(error) => assert!(matches!(error, ParseError::TooShort { .. })),
    }
    frame(Frame::parse_ethernet(bytes));
    frame(Frame::parse_ip(bytes));
    captured(bytes);
    let mut behind_ethernet = bytes;
    if Ethernet::parse(&mut behind_ethernet).is_ok() {
        captured(behind_ethernet);
    }
}

fn frame(frame: Result<Frame<'_>, ParseError>) {
    match frame {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(frame) => {
            assert!(Long(&frame).to_string().starts_with("IP"));
            assert!(frame.to_string().contains(" > "));
            let mut buffer = vec![0; frame.len()];
            assert_eq!(frame.emit_with_icrc_as_seen(&mut buffer), Ok(frame.len()));
            assert_eq!(parsed_as(&frame, &buffer).icrc.seen, frame.icrc.seen);
            assert_eq!(frame.emit(&mut buffer), Ok(frame.len()));
            let again = parsed_as(&frame, &buffer);
            // Reserved bits are dropped on the way, so only the values must agree.
            assert_eq!((again.ip, again.udp, again.packet), (frame.ip, frame.udp, frame.packet));
            assert!(again.icrc.is_right());
        }
    }
}

/// Reads what was written of a frame.
fn parsed_as<'a>(frame: &Frame<'_>, bytes: &'a [u8]) -> Frame<'a> {
    let parsed = if frame.ethernet.is_some() { Frame::parse_ethernet(bytes) } else { Frame::parse_ip(bytes) };
    parsed.expect("what we wrote is a frame")
}

/// Bytes as a captured frame, whole and cut: all that is a frame is a captured one too, and
/// what was cut off changes nothing in what is left.
fn captured(bytes: &[u8]) {
    let whole = Captured::parse_ip(bytes, false);
    if let Ok(frame) = Frame::parse_ip(bytes) {
        let captured = whole.expect("a frame");
        assert_eq!(Captured { notes: captured.notes, ..frame.into() }, captured);
    }
    for kept in (0..bytes.len()).step_by(bytes.len() / 16 + 1) {
        match (whole, Captured::parse_ip(&bytes[..kept], true)) {
            (_, Err(error)) => assert!(!error.to_string().is_empty()),
            (Err(_), Ok(cut)) => assert!(cut.to_string().contains(" > ")),
            (Ok(whole), Ok(cut)) => {
                assert!(Long(&cut).to_string().starts_with("IP"));
                let ((headers, payload), (cut, kept)) = (parts(whole.packet), parts(cut.packet));
                assert_eq!(headers, cut);
                assert!(payload.starts_with(kept));
            }
        }
    }
}

/// The headers of a packet, and what was kept of its payload.
fn parts(packet: Packet<Kept<'_>>) -> (Packet<PayloadLen>, &[u8]) {
    let mut kept: &[u8] = &[];
    let headers = packet.map_payload(|payload| {
        kept = payload.bytes;
        PayloadLen(payload.len)
    });
    (headers, kept)
}

/// Bytes as a connection management message.
///
/// # Panics
/// If what parses does not survive being written and read again.
pub fn cm(bytes: &[u8]) {
    match CmMad::parse(bytes) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(mad) => {
            mad.describe(&mut Swallow(0)).expect("nothing to fail");
            let mut buffer = [0xaa; CmMad::LEN];
            mad.emit(&mut buffer);
            assert_eq!(CmMad::parse(&buffer), Ok(mad));
        }
    }
}

/// Bytes as a packet of a prober.
///
/// # Panics
/// If what parses does not survive being written and read again, or what does not gives no reason.
pub fn probe(bytes: &[u8]) {
    match ferroce_probe::Packet::parse(bytes) {
        Err(error) => assert!(!error.to_string().is_empty()),
        Ok(packet) => {
            let written = packet.emit();
            assert_eq!(ferroce_probe::Packet::parse(&written), Ok(packet));
            // All that is looked at comes back as it was: flags beyond the first two bits are not, and neither
            // are the second one in a second ACK, and the reserved bytes without the first one.
            let flags = if packet.kind == ferroce_probe::Kind::SecondAck { 1 } else { 3 };
            let looked_at = if packet.ports.is_some() { 40 } else { 36 };
            assert_eq!((&written[..3], written[3]), (&bytes[..3], bytes[3] & flags));
            assert_eq!(written[4..looked_at], bytes[4..looked_at]);
        }
    }
}

/// Bytes as what a hostile process does to both ends of a lane, and what those do in between: steps of a byte that says what,
/// and what it takes.
///
/// # Panics
/// If an end hands out more than a ring holds, or trusts again what it has found broken.
pub fn lane(bytes: &[u8]) {
    const RING: usize = LaneFile::LEAST_RING;
    const HEAD: u64 = 128;
    const TAIL: u64 = 256;
    const DATA: u64 = 4096;
    const WORDS: u16 = 512;
    let lane = LaneFile::create_with(RING).expect("a file in memory");
    let file = fs::File::from(lane.as_fd().try_clone_to_owned().expect("a descriptor"));
    let write = |at, bytes: &[u8]| file.write_all_at(bytes, at).expect("a file that can be written");
    let (mut producer, mut consumer) = lane.split();
    let mut rest = bytes;
    while let Some(step) = take(&mut rest) {
        let [step] = step;
        match step % 8 {
            0 => write(HEAD, &take::<8>(&mut rest).unwrap_or_default()),
            1 => write(TAIL, &take::<8>(&mut rest).unwrap_or_default()),
            2 => {
                let at = u16::from_le_bytes(take(&mut rest).unwrap_or_default()) % WORDS;
                write(DATA + u64::from(at) * 8, &take::<8>(&mut rest).unwrap_or_default());
            }
            3 => consume(&mut consumer, RING),
            4 => consumer.release(),
            5 => produce(&mut producer, u16::from_le_bytes(take(&mut rest).unwrap_or_default()).into()),
            6 => {
                let was_broken = producer.is_broken();
                assert!(!(producer.publish() && was_broken));
            }
            _ => {
                assert!(!(producer.is_empty() && producer.is_broken()));
                producer.give_pages_back().expect("a file with holes");
            }
        }
    }
}

/// Takes all records that there are, at most those of one ring.
fn consume(consumer: &mut Consumer, ring: usize) {
    let (was_broken, mut taken) = (consumer.is_broken(), 0);
    while consumer.look() {
        let Some(record) = consumer.next() else {
            assert!(consumer.is_broken());
            break;
        };
        let mut copy = vec![0; record.len() + 1];
        assert_eq!(record.copy_head(&mut copy), record.len());
        assert_eq!(record.bytes(), &copy[..record.len()]);
        taken += record.len() + 8;
        assert!(taken <= ring && record.len() <= ring / 2 && !was_broken);
    }
    assert_eq!(consumer.is_broken(), consumer.lie().is_some());
    assert!(consumer.lie().is_none_or(|lie| !lie.to_string().is_empty()));
}

/// Puts a record in, if there is room.
fn produce(producer: &mut Producer, len: usize) {
    let (was_broken, longest) = (producer.is_broken(), producer.longest());
    if let Some(room) = producer.room(len) {
        assert!(room.len() == len && len <= longest && !was_broken);
        room.fill(0xff);
        producer.commit(len.to_le_bytes()[0], len);
    }
}

/// The next bytes, if there are so many.
fn take<const N: usize>(rest: &mut &[u8]) -> Option<[u8; N]> {
    let (taken, behind) = rest.split_first_chunk()?;
    *rest = behind;
    Some(*taken)
}

/// Runs a target over its corpus in `fuzz/corpus` and returns how many entries it has.
///
/// # Panics
/// If the corpus cannot be read, or the target finds something.
pub fn replay(target: &str, body: fn(&[u8])) -> usize {
    let folder = crate::repository().join("fuzz/corpus").join(target);
    let entries = fs::read_dir(&folder).expect("a corpus");
    let mut count = 0;
    for entry in entries {
        let path = entry.expect("an entry of the corpus").path();
        body(&fs::read(&path).expect("a readable entry"));
        count += 1;
    }
    count
}

/// Looks at every value and keeps nothing.
struct Swallow(usize);

impl Visitor for Swallow {
    fn header(&mut self, key: &'static str, title: &'static str, _len: usize) -> std::fmt::Result {
        assert!(!key.is_empty() && !title.is_empty());
        Ok(())
    }

    fn field(&mut self, key: &'static str, label: &'static str, value: Value<'_>) -> std::fmt::Result {
        self.0 += value.to_string().len() + key.len() + label.len();
        Ok(())
    }

    fn data(&mut self, len: usize, bytes: &[u8]) -> std::fmt::Result {
        assert!(bytes.len() <= len);
        self.0 += bytes.len();
        Ok(())
    }
}
