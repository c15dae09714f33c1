//! A work request as JSON, in one line.
//!
//! It is written as it is looked at, without a tree of values: a record has millions of them. Numbers of more than 32 bits that
//! are names, addresses or keys are strings, because many readers of JSON keep only 53 bits of a number; times are numbers of
//! nanoseconds.

use std::fmt::{self, Write};

use ferroce_record::{CompletedFlags, PacketFlags, PostedFlags};
use ferroce_wire::Packet;

use crate::filter::status_name;
use crate::show::FATES;
use crate::work::{CompletionState, LONGEST, PacketAt, Work, WorkState};

/// A work request of a record, as an object of JSON.
#[derive(Clone, Copy, Debug)]
pub struct Line<'a> {
    /// The record, by its place.
    pub record: usize,
    /// The work.
    pub work: &'a Work,
}

impl fmt::Display for Line<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let work = self.work;
        let posted = &work.posted;
        write!(f, "{{\"record\":{},\"queue\":\"{}\",\"work\":{}", self.record, posted.queue, posted.work)?;
        if let Some(qpn) = work.qpn() {
            write!(f, ",\"qpn\":{}", qpn.get())?;
        }
        let state = match work.state() {
            WorkState::Posted => "POSTED",
            WorkState::Processing => "PROCESSING",
            WorkState::Completed => "COMPLETED",
            WorkState::Error => "ERROR",
        };
        write!(f, ",\"state\":\"{state}\"")?;
        if let Some(state) = work.completion_state() {
            let state = if state == CompletionState::Polled { "POLLED" } else { "PENDING" };
            write!(f, ",\"completion_state\":\"{state}\"")?;
        }
        write!(f, ",\"posted_ns\":{}", work.posted_at)?;
        let times = [
            ("doorbell_ns", work.doorbell_at),
            ("begun_ns", work.begun_at()),
            ("answered_ns", work.answered_at),
            ("completed_ns", work.completed.map(|(time, _)| time)),
            ("polled_ns", work.polled_at),
            ("processed_ns", work.processed_at),
        ];
        for (name, time) in times {
            if let Some(time) = time {
                write!(f, ",\"{name}\":{time}")?;
            }
        }
        self.entry(f)?;
        self.packets(f)?;
        self.completion(f)?;
        f.write_char('}')
    }
}

impl Line<'_> {
    fn entry(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let work = self.work;
        let posted = &work.posted;
        write!(f, ",\"wqe\":{{\"id\":\"{:#x}\",\"opcode\":\"{}\"", posted.id, posted.op.name())?;
        list(f, "flags", posted.flags.iter_names().map(|(name, _)| name))?;
        write!(f, ",\"length\":{},\"imm\":{}", posted.length, posted.imm)?;
        if posted.flags.contains(PostedFlags::DATAGRAM) {
            let (handle, qpn) = (posted.remote >> 32, posted.remote & 0xff_ffff);
            write!(f, ",\"remote_qpn\":{qpn},\"address_handle\":{handle},\"qkey\":{}", posted.key.0)?;
        } else {
            write!(f, ",\"remote_address\":\"{:#x}\",\"rkey\":{}", posted.remote, posted.key.0)?;
        }
        if let Some(operands) = work.operands {
            write!(f, ",\"compare_add\":\"{:#x}\",\"swap\":\"{:#x}\"", operands.compare_add, operands.swap)?;
            let (compare, swap) = (operands.compare_mask, operands.swap_mask);
            write!(f, ",\"compare_mask\":\"{compare:#x}\",\"swap_mask\":\"{swap:#x}\"")?;
        }
        f.write_str(",\"sge\":[")?;
        if posted.pieces > 0 {
            let (address, lkey) = (posted.address, posted.lkey.0);
            let length = work.first_piece();
            write!(f, "{{\"address\":\"{address:#x}\",\"length\":{length},\"lkey\":{lkey}}}")?;
        }
        for piece in &work.pieces {
            let sge = piece.sge;
            let (address, length, lkey) = (sge.address, sge.length, sge.lkey.0);
            write!(f, ",{{\"address\":\"{address:#x}\",\"length\":{length},\"lkey\":{lkey}}}")?;
        }
        f.write_str("]}")
    }

    fn packets(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(",\"packets\":[")?;
        for (place, packet) in self.work.packets.iter().enumerate() {
            if place > 0 {
                f.write_char(',')?;
            }
            one_packet(f, packet)?;
        }
        f.write_char(']')?;
        match self.work.more_packets {
            0 => Ok(()),
            more => write!(f, ",\"more_packets\":{more}"),
        }
    }

    fn completion(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some((_, completed)) = self.work.completed else { return Ok(()) };
        let name = status_name(completed.status);
        write!(f, ",\"cqe\":{{\"status\":\"{name}\",\"status_code\":{}", completed.status.code())?;
        if let Some(code) = completed.vendor_code {
            write!(f, ",\"vendor_error\":{},\"vendor_error_text\":\"{code}\"", code.code())?;
        }
        write!(f, ",\"byte_length\":{},\"cq\":{}", completed.byte_len, completed.cq)?;
        if completed.flags.contains(CompletedFlags::IMM) {
            write!(f, ",\"imm\":{}", completed.imm)?;
        }
        if completed.flags.contains(CompletedFlags::INVALIDATED) {
            write!(f, ",\"invalidated_rkey\":{}", completed.invalidated.0)?;
        }
        if completed.source_qp != 0 {
            write!(f, ",\"source_qpn\":{}", completed.source_qp)?;
        }
        list(f, "flags", completed.flags.iter_names().map(|(name, _)| name))?;
        f.write_char('}')
    }
}

fn one_packet(f: &mut fmt::Formatter<'_>, at: &PacketAt) -> fmt::Result {
    let flags = at.packet.flags;
    let way = if flags.contains(PacketFlags::OUT) { "out" } else { "in" };
    write!(f, "{{\"time_ns\":{},\"way\":\"{way}\",\"payload\":{}", at.time, at.packet.payload)?;
    let (bytes, len) = at.header_bytes();
    let bytes = &bytes[..len];
    if let Ok(packet) = Packet::parse_kept(bytes, at.wire_len()) {
        write!(f, ",\"opcode\":\"{}\",\"dest_qpn\":{}", packet.opcode(), packet.dest_qp.get())?;
        write!(f, ",\"psn\":{},\"text\":\"{packet}\"", packet.psn.get())?;
    }
    f.write_str(",\"headers\":\"")?;
    let mut text = [0; 2 * LONGEST];
    for (pair, byte) in text.as_chunks_mut().0.iter_mut().zip(bytes) {
        *pair = [byte >> 4, byte & 15].map(|digit| b"0123456789abcdef"[usize::from(digit)]);
    }
    f.write_str(std::str::from_utf8(&text[..2 * len]).unwrap_or_default())?;
    f.write_char('"')?;
    if let Some(ends) = at.ends {
        write!(f, ",\"local\":\"{}\",\"remote\":\"{}\",\"port\":{}", ends.local, ends.remote, ends.port)?;
    }
    let notes = FATES.iter().filter(|(flag, _)| flags.contains(*flag)).map(|(_, text)| *text);
    list(f, "notes", notes)?;
    f.write_char('}')
}

/// A member that is a list of names, if there are any. Names are ours, and need no escapes.
fn list<'a>(f: &mut fmt::Formatter<'_>, name: &str, mut items: impl Iterator<Item = &'a str>) -> fmt::Result {
    let Some(first) = items.next() else { return Ok(()) };
    write!(f, ",\"{name}\":[\"{first}\"")?;
    items.try_for_each(|item| write!(f, ",\"{item}\""))?;
    f.write_char(']')
}

#[cfg(test)]
mod tests {
    use ferroce_record::{Operands, WorkOp};
    use ferroce_transport::Status;
    use serde_json::Value;

    use super::*;
    use crate::assemble::Assembler;
    use crate::scene::{NAK_ACCESS, Scene};

    #[test]
    fn a_work_request_is_one_line_of_json() {
        let mut scene = Scene::new(0x11, 0x22);
        let qpn = scene.qpn;
        scene.post(3, WorkOp::Write, 64);
        let operands =
            Operands { qpn, work: 3, compare_add: 1 << 60, swap: 2, compare_mask: 3, swap_mask: 4 };
        scene.then(operands).out(3, WorkOp::Write, 9, PacketFlags::REPEAT).answer(3, 9, NAK_ACCESS);
        scene.end(3, WorkOp::Write, Status::RemoteAccess);
        let mut assembler = Assembler::new();
        scene.events.iter().for_each(|event| assembler.take(event));
        assembler.settle();
        let work = assembler.next_over().unwrap();
        let text = Line { record: 1, work: &work }.to_string();
        assert!(!text.contains('\n'));
        let json: Value = serde_json::from_str(&text).unwrap();
        assert_eq!(json["record"], 1);
        assert_eq!(json["qpn"], 0x11);
        assert_eq!(json["state"], "ERROR");
        assert_eq!(json["completion_state"], "POLLED");
        assert_eq!(json["wqe"]["compare_add"], "0x1000000000000000");
        assert_eq!(json["wqe"]["sge"][0]["length"], 64);
        assert_eq!(json["cqe"]["status"], "remote-access");
        assert_eq!(json["packets"][0]["notes"][0], "sent again");
        assert_eq!(json["packets"][0]["opcode"], "RC RDMA WRITE Only");
        assert_eq!(json["packets"][1]["psn"], 9);
        assert_eq!(json["packets"][1]["way"], "in");
        assert_eq!(json["polled_ns"].as_u64().unwrap() - json["completed_ns"].as_u64().unwrap(), 10_000);
    }
}
