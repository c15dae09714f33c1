//! What is said of a packet and its work, in words.

use std::fmt::{self, Write};

use ferroce_record::{PacketFlags, Queue};
use ferroce_wire::{Aeth, Headers, Operation, Service, Syndrome};

use super::follow::{Belongs, Note, PacketRow};

/// What is said of a packet: the work request that it belongs to, and what befell it.
pub(super) fn comment(text: &mut String, row: &PacketRow, processes: &[String]) {
    // Writing to a string never fails.
    let _ = write_comment(text, row, processes);
}

fn write_comment(text: &mut String, row: &PacketRow, processes: &[String]) -> fmt::Result {
    let operation = row.opcode().map(|opcode| opcode.info().operation);
    if row.packet.flags.contains(PacketFlags::REFUSED) {
        text.push_str("refused: ");
        text.push_str(row.packet.refusal().map_or("the reason is not known", |refusal| refusal.name()));
    } else if operation == Some(Operation::Congestion) {
        text.push_str("a congestion notification");
    } else {
        if row.is_response() {
            answer(text, row, operation)?;
        }
        match &row.belongs {
            Belongs::Own(note) => work(text, row, note, None)?,
            Belongs::Peer(note) => work(text, row, note, processes.get(note.source).map(String::as_str))?,
            Belongs::Nothing => of_no_work(text, row),
        }
    }
    if row.packet.flags.contains(PacketFlags::REPEAT) {
        text.push_str(", sent again");
        if row.packet.repeat > 1 {
            write!(text, " ({} times)", row.packet.repeat)?;
        }
    }
    for (flag, what) in FATES {
        if row.packet.flags.contains(*flag) {
            text.push_str(", ");
            text.push_str(what);
        }
    }
    Ok(())
}

/// What may befall a packet.
pub(super) const FATES: &[(PacketFlags, &str)] = &[
    (PacketFlags::LOCAL, "in this process"),
    (PacketFlags::TAKEN, "taken by fault injection"),
    (PacketFlags::DOUBLED, "doubled by fault injection"),
    (PacketFlags::DELAYED, "held back by fault injection"),
    (PacketFlags::DAMAGED, "damaged by fault injection"),
    (PacketFlags::CONGESTION, "marked for congestion"),
];

/// What an answer says.
fn answer(text: &mut String, row: &PacketRow, operation: Option<Operation>) -> fmt::Result {
    match (operation, syndrome(row)) {
        (Some(Operation::AtomicAcknowledge), _) => text.push_str("atomic ACK for "),
        (Some(Operation::Acknowledge), Some(Syndrome::RnrNak(timer))) => {
            write!(text, "NAK, no receive, again after {:?}, for ", timer.duration())?;
        }
        (Some(Operation::Acknowledge), Some(syndrome @ Syndrome::Nak(_))) => {
            write!(text, "{}, for ", syndrome.name())?;
        }
        (Some(Operation::Acknowledge), _) => text.push_str("ACK for "),
        _ => text.push_str("answer to "),
    }
    Ok(())
}

/// The syndrome of an answer.
pub(super) fn syndrome(row: &PacketRow) -> Option<Syndrome> {
    let opcode = row.opcode()?;
    let info = opcode.info();
    let is_there = info.headers.contains(Headers::AETH) && info.service != Service::Ud;
    let bytes = row.packet.headers().get(12..16)?.first_chunk().filter(|_| is_there)?;
    Some(Aeth::parse(bytes).syndrome)
}

/// A work request, and which of its packets this is; of the peer, with its process.
fn work(text: &mut String, row: &PacketRow, note: &Note, process: Option<&str>) -> fmt::Result {
    name(text, note)?;
    if let Some(process) = process {
        text.push_str(" of ");
        text.push_str(process);
    }
    details(text, note)?;
    if let Some(place) = note.place(row.psn()).filter(|_| note.packets > 1) {
        let is_counted = row.opcode().is_some_and(|opcode| counts(opcode.info().operation));
        if is_counted {
            write!(text, ", packet {} of {}", place + 1, note.packets)?;
        }
    }
    Ok(())
}

/// Whether packets of this kind are numbered within their work: an ACK may be for several.
const fn counts(operation: Operation) -> bool {
    !matches!(operation, Operation::Acknowledge | Operation::AtomicAcknowledge | Operation::ReadRequest)
}

/// The name of a work request.
pub(super) fn name(text: &mut String, note: &Note) -> fmt::Result {
    match note.queue {
        Queue::Send(qpn) => write!(text, "work {} of queue pair {qpn}", note.work),
        queue => write!(text, "work {} of {queue}", note.work),
    }
}

/// What a work request is.
pub(super) fn details(text: &mut String, note: &Note) -> fmt::Result {
    match note.op {
        Some(op) => write!(text, ": {}, id {:#x}, {} bytes", op.name(), note.id, note.length),
        None => {
            text.push_str(", posted before the record begins");
            Ok(())
        }
    }
}

/// A packet whose work is not known.
fn of_no_work(text: &mut String, row: &PacketRow) {
    text.push_str(match (row.is_out(), row.is_response()) {
        (false, false) | (true, true) => "a request of the peer",
        (true, false) => "a request of this end, of work that is not recorded",
        (false, true) => "a request of this end that is not recorded",
    });
}

/// A text that may stand between tags of HTML, XML and SVG, and in attributes.
pub(super) fn escaped(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '&' => safe.push_str("&amp;"),
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '"' => safe.push_str("&quot;"),
            '\'' => safe.push_str("&#39;"),
            // What XML has no place for at all.
            control if control.is_control() && !"\n\t".contains(control) => safe.push('\u{fffd}'),
            other => safe.push(other),
        }
    }
    safe
}

/// How long something took, in the unit that fits.
pub(super) fn duration(nanos: u64) -> String {
    #[expect(clippy::cast_precision_loss, reason = "three places are shown")]
    match nanos {
        0..1_000 => format!("{nanos} ns"),
        1_000..1_000_000 => format!("{:.2} µs", nanos as f64 / 1e3),
        1_000_000..1_000_000_000 => format!("{:.2} ms", nanos as f64 / 1e6),
        _ => format!("{:.3} s", nanos as f64 / 1e9),
    }
}
