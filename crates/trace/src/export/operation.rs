//! One operation: a work request, its packets at both ends, and the receive that it took.

use ferroce_record::PacketFlags;
use ferroce_transport::Status;
use ferroce_wire::{Operation as WireOperation, Qpn, Syndrome};

use super::follow::{Note, PacketRow, Sink, WorkRow, follow};
use super::words::{details, duration, syndrome};
use super::{ExportError, Selection, Summary, process_names};
use crate::timeline::Timeline;

/// Packets that a picture shows at most; those beyond are counted.
const LEGS: usize = 48;

/// Which work request is meant: the first of a send queue that fits all that is said.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Choice {
    /// Of this record of the time-line, by its place.
    pub source: Option<usize>,
    /// Of this queue pair.
    pub queue_pair: Option<Qpn>,
    /// With this number in its queue.
    pub work: Option<u32>,
    /// With this id.
    pub id: Option<u64>,
}

impl Choice {
    fn fits(&self, note: &Note) -> bool {
        let ferroce_record::Queue::Send(qpn) = note.queue else { return false };
        self.source.is_none_or(|source| source == note.source)
            && self.queue_pair.is_none_or(|wanted| wanted == qpn)
            && self.work.is_none_or(|work| work == note.work)
            && self.id.is_none_or(|id| id == note.id && note.op.is_some())
    }
}

/// What became of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Request,
    Answer,
    Repeat,
    Lost,
}

/// A packet on its way from one end to the other.
#[derive(Clone, Debug)]
pub(super) struct Leg {
    common: u64,
    pub(super) sent: Option<u64>,
    pub(super) came: Option<u64>,
    pub(super) is_answer: bool,
    pub(super) kind: Kind,
    pub(super) text: String,
    /// What befell it.
    pub(super) fate: Option<&'static str>,
}

impl Leg {
    pub(super) fn first_at(&self) -> u64 {
        self.sent.or(self.came).unwrap_or(0)
    }
}

/// Something that happened at one end.
#[derive(Clone, Debug)]
pub(super) struct Mark {
    pub(super) at: u64,
    pub(super) is_peer: bool,
    /// In a few words, and in more.
    pub(super) name: &'static str,
    pub(super) lines: Vec<String>,
    pub(super) is_bad: bool,
}

/// One operation, as pictures show it.
#[derive(Clone, Debug)]
pub(super) struct Operation {
    /// The two ends: process, and queue pair.
    pub(super) ends: [[String; 2]; 2],
    pub(super) title: String,
    /// When it was posted.
    pub(super) start: u64,
    pub(super) legs: Vec<Leg>,
    pub(super) more: u64,
    pub(super) marks: Vec<Mark>,
    pub(super) is_local: bool,
}

/// Finds it.
pub(super) fn operation(
    timeline: &Timeline,
    choice: &Choice,
    progress: &mut dyn FnMut(u64),
) -> Result<(Operation, Summary), ExportError> {
    let mut found = Found { choice: *choice, ..Found::default() };
    let read = follow(timeline, &Selection::default(), &mut found, progress)?;
    let row = found.row.take().ok_or(ExportError::NoSuchWork)?;
    let summary = Summary {
        packets: found.packets,
        joined: found.joined,
        left_out: found.more,
        works: 1 + u64::from(found.receive.is_some()),
        local: u64::from(row.is_local),
        ..read
    };
    Ok((found.told(&row, &process_names(timeline)), summary))
}

#[derive(Debug, Default)]
struct Found {
    choice: Choice,
    /// The work, once something of it was seen.
    note: Option<Note>,
    row: Option<WorkRow>,
    receive: Option<WorkRow>,
    legs: Vec<Leg>,
    more: u64,
    packets: u64,
    joined: u64,
    /// The process and the queue pair of the peer, as far as packets tell.
    peer: Option<(Option<usize>, Qpn)>,
}

impl Sink for Found {
    fn packet(&mut self, row: &PacketRow) -> Result<(), ExportError> {
        let Some(note) = row.belongs.note().filter(|note| self.is_it(note)) else { return Ok(()) };
        let is_own = note.source == row.source && note.queue.qpn() == Some(row.packet.qpn);
        self.packets += 1;
        if is_own && self.peer.is_none_or(|(source, _)| source.is_none()) {
            let far = row.other.map(|other| other.source);
            self.peer = row.far_qpn().map(|qpn| (far, qpn)).or(self.peer);
        }
        self.joined += u64::from(!row.is_out() && row.other.is_some());
        let common = row.common();
        if let Some(leg) = self.legs.iter_mut().rev().find(|leg| leg.common == common) {
            if row.is_out() {
                leg.sent = Some(row.time);
            } else {
                leg.came = leg.came.or(Some(row.time));
            }
            return Ok(());
        }
        if self.legs.len() >= LEGS {
            self.more += 1;
            return Ok(());
        }
        let flags = row.packet.flags;
        self.legs.push(Leg {
            common,
            sent: row.is_out().then_some(row.time),
            came: (!row.is_out()).then_some(row.time),
            is_answer: row.is_response(),
            kind: match (flags.contains(PacketFlags::REPEAT), row.is_response()) {
                _ if flags.intersects(PacketFlags::TAKEN | PacketFlags::REFUSED) => Kind::Lost,
                (true, _) => Kind::Repeat,
                (false, true) => Kind::Answer,
                (false, false) => Kind::Request,
            },
            text: leg_text(row),
            fate: fate(flags),
        });
        Ok(())
    }

    fn work(&mut self, row: &WorkRow) -> Result<(), ExportError> {
        if self.is_it(&row.note) {
            self.row.get_or_insert_with(|| row.clone());
        } else if row.sender.is_some_and(|sender| self.is_it(&sender)) {
            // It may be over before the work that took it.
            self.receive.get_or_insert_with(|| row.clone());
        }
        Ok(())
    }
}

impl Found {
    /// Whether this is the work; the first that fits is it.
    fn is_it(&mut self, note: &Note) -> bool {
        match self.note {
            Some(known) => known.is(note),
            None if self.choice.fits(note) => {
                self.note = Some(*note);
                true
            }
            None => false,
        }
    }

    fn told(mut self, row: &WorkRow, processes: &[String]) -> Operation {
        let name = |source: Option<usize>| {
            source
                .and_then(|source| processes.get(source))
                .cloned()
                .unwrap_or_else(|| "not recorded".to_owned())
        };
        let pair = |qpn: Option<Qpn>| qpn.map_or_else(String::new, |qpn| format!("queue pair {qpn}"));
        let (far, far_qpn) = self.peer.map_or((None, None), |(source, qpn)| (source, Some(qpn)));
        let ends = [
            [name(Some(row.note.source)), pair(row.qpn())],
            [if row.is_local { String::new() } else { name(far) }, pair(far_qpn)],
        ];
        // What did not come, although the other end recorded, is lost.
        for leg in self.legs.iter_mut().filter(|leg| leg.came.is_none() && far.is_some()) {
            leg.kind = Kind::Lost;
            leg.fate = leg.fate.or(Some("not seen at the other end"));
        }
        self.legs.sort_by_key(Leg::first_at);
        let mut marks = work_marks(row, false);
        if let Some(receive) = &self.receive {
            marks.extend(work_marks(receive, true));
        }
        marks.sort_by_key(|mark| mark.at);
        let start = row.posted_at.min(marks.first().map_or(u64::MAX, |mark| mark.at));
        let (legs, more) = (self.legs, self.more);
        Operation { ends, title: title(&row.note), start, legs, more, marks, is_local: row.is_local }
    }
}

/// A work request in one line.
fn title(note: &Note) -> String {
    let mut text = format!("work {}", note.work);
    // Writing to a string never fails.
    let _ = details(&mut text, note);
    text
}

/// What happened to work at its end.
fn work_marks(row: &WorkRow, is_peer: bool) -> Vec<Mark> {
    let op = row.note.op.map_or("work", |op| op.name());
    let mut marks = vec![Mark {
        at: row.posted_at,
        is_peer,
        name: "WQE",
        lines: vec![
            format!("WQE {}: {op}", row.note.work),
            format!("id {:#x}, {} bytes", row.note.id, row.note.length),
        ],
        is_bad: false,
    }];
    if let Some((at, completed)) = &row.completed {
        let is_bad = completed.status != Status::Success;
        let took = duration(at.saturating_sub(row.posted_at));
        let words = completed.status.to_string();
        let short = words.split(':').next().unwrap_or_default();
        let lines = if row.has_completion() {
            vec![format!("CQE: {short}"), format!("after {took}")]
        } else {
            vec!["no CQE".to_owned(), format!("over after {took}")]
        };
        marks.push(Mark { at: *at, is_peer, name: "CQE", lines, is_bad });
    }
    if let Some(at) = row.polled_at {
        marks.push(Mark { at, is_peer, name: "polled", lines: vec!["polled".to_owned()], is_bad: false });
    }
    marks
}

/// What a packet is, in a few words.
fn leg_text(row: &PacketRow) -> String {
    let Some(opcode) = row.opcode() else { return "no known opcode".to_owned() };
    let operation = opcode.info().operation;
    let name = match (operation, syndrome(row)) {
        (WireOperation::Acknowledge, Some(Syndrome::Ack(_))) => "ACK",
        (WireOperation::Acknowledge, Some(syndrome)) => syndrome.name(),
        (operation, _) => operation.name(),
    };
    let bytes = match row.packet.payload {
        0 => String::new(),
        bytes => format!(", {bytes} bytes"),
    };
    format!("{name}, PSN {:#08x}{bytes}", row.psn())
}

/// The worst that befell a packet.
fn fate(flags: PacketFlags) -> Option<&'static str> {
    let list = [
        (PacketFlags::TAKEN, "taken by fault injection"),
        (PacketFlags::REFUSED, "refused"),
        (PacketFlags::DAMAGED, "damaged by fault injection"),
        (PacketFlags::DELAYED, "held back by fault injection"),
        (PacketFlags::DOUBLED, "doubled by fault injection"),
        (PacketFlags::REPEAT, "sent again"),
    ];
    list.into_iter().find(|(flag, _)| flags.contains(*flag)).map(|(_, text)| text)
}
