//! A time-line as one page: a sequence diagram that needs no network.

mod lanes;
mod pack;

use std::fmt::Write as _;
use std::io::Write;

use ferroce_record::{CompletedFlags, PacketFlags, Queue, WorkOp};
use ferroce_transport::Status;
use ferroce_wire::{Opcode, Role};

use self::lanes::{Lanes, Stand};
use self::pack::{Columns, base64, json};
use super::follow::{PacketRow, Sink, WorkRow, follow};
use super::hash::Quick;
use super::words::escaped;
use super::{ExportError, Selection, Summary, process_names, wall_start};
use crate::timeline::Timeline;

/// Packets that a page holds at most, unless told otherwise.
pub const MOST_PACKETS: usize = 200_000;

/// How a page is made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct HtmlOptions {
    /// Which part of the time-line it shows.
    pub selection: Selection,
    /// Packets at most: the first of the selection; the page says how many are left out.
    pub packets: usize,
    /// What stands above it.
    pub title: String,
}

impl Default for HtmlOptions {
    fn default() -> Self {
        let title = "Time-line of work requests".to_owned();
        Self { selection: Selection::default(), packets: MOST_PACKETS, title }
    }
}

/// Writes a time-line as one page of HTML, with all that it needs inside.
///
/// Each queue pair is a line from top to bottom, beside that of its peer. Packets are arrows between them, slanted by
/// the time that they were under way; work requests are bars beside the lines.
///
/// # Errors
/// It cannot be written.
pub fn html(
    timeline: &Timeline,
    options: &HtmlOptions,
    out: &mut impl Write,
    progress: &mut dyn FnMut(u64),
) -> Result<Summary, ExportError> {
    let mut page = Page { most: options.packets, ..Page::default() };
    let summary = follow(timeline, &options.selection, &mut page, progress)?;
    page.write(timeline, options, &summary, out)?;
    out.flush()?;
    Ok(summary)
}

/// An arrow: a packet, seen where it left, where it came, or both.
#[derive(Clone, Copy, Debug)]
struct Arrow {
    sent: Option<u64>,
    came: Option<u64>,
    from: Stand,
    to: Stand,
    flags: PacketFlags,
    repeat: u8,
    payload: u16,
    /// Its work, by the place of its key; 0 if there is none.
    work: u32,
    /// Where its headers begin, and how long they are.
    headers: u32,
    headers_len: u8,
}

impl Arrow {
    fn first_at(&self) -> u64 {
        self.sent.or(self.came).unwrap_or(0).min(self.came.unwrap_or(u64::MAX))
    }
}

#[derive(Debug, Default)]
struct Page {
    most: usize,
    lanes: Lanes,
    arrows: Vec<Arrow>,
    /// The arrow of a packet that left, by its number.
    by_number: Quick<u64, usize>,
    headers: Vec<u8>,
    /// The number of each work request that something in the page belongs to; the first is 1.
    keys: Quick<(usize, Queue, u32), u32>,
    works: Vec<(u32, Stand, WorkRow)>,
    /// The last packet for which there was room.
    until: u64,
    is_cut: bool,
}

impl Sink for Page {
    fn is_full(&self, row: &PacketRow) -> bool {
        let is_known = row.other.is_some_and(|other| self.by_number.contains_key(&other.number));
        self.arrows.len() >= self.most && (row.is_out() || !is_known)
    }

    fn packet(&mut self, row: &PacketRow) -> Result<(), ExportError> {
        let here = self.lanes.here(row);
        let work = row.belongs.note().map_or(0, |note| self.key((note.source, note.queue, note.work)));
        self.until = self.until.max(row.time);
        self.is_cut |= self.arrows.len() + 1 >= self.most;
        if !row.is_out()
            && let Some(known) = row.other.and_then(|other| self.by_number.get(&other.number).copied())
        {
            let arrow = &mut self.arrows[known];
            let fresh = arrow.came.is_none();
            let mut joined = Arrow { came: Some(row.time), to: here, ..*arrow };
            joined.flags |= row.packet.flags & (PacketFlags::REFUSED | PacketFlags::CONGESTION);
            joined.work = if joined.work == 0 { work } else { joined.work };
            // What comes a second time is an arrow of its own.
            if fresh {
                self.arrows[known] = joined;
            } else {
                self.arrows.push(joined);
            }
            return Ok(());
        }
        let there = self.lanes.there(row);
        let (from, to) = if row.is_out() { (here, there) } else { (there, here) };
        let headers = u32::try_from(self.headers.len()).unwrap_or(u32::MAX);
        row.put_headers(&mut self.headers);
        if row.is_out() {
            self.by_number.insert(row.number, self.arrows.len());
        }
        self.arrows.push(Arrow {
            sent: row.is_out().then_some(row.time),
            came: (!row.is_out()).then_some(row.time),
            from,
            to,
            flags: row.packet.flags,
            repeat: row.packet.repeat,
            payload: row.packet.payload,
            work,
            headers,
            headers_len: row.packet.headers_len,
        });
        Ok(())
    }

    fn work(&mut self, row: &WorkRow) -> Result<(), ExportError> {
        let is_behind = self.is_cut && row.posted_at > self.until;
        if let Some(qpn) = row.qpn().filter(|_| !is_behind && self.works.len() < self.most) {
            let key = self.key((row.note.source, row.note.queue, row.note.work));
            let stand = self.lanes.of(row.note.source, qpn);
            self.works.push((key, stand, row.clone()));
        }
        Ok(())
    }
}

impl Page {
    fn key(&mut self, key: (usize, Queue, u32)) -> u32 {
        let next = u32::try_from(self.keys.len()).unwrap_or(u32::MAX - 1) + 1;
        *self.keys.entry(key).or_insert(next)
    }

    fn write(
        mut self,
        timeline: &Timeline,
        options: &HtmlOptions,
        summary: &Summary,
        out: &mut impl Write,
    ) -> Result<(), ExportError> {
        let places = self.lanes.places();
        let place = |stand: Stand| places.get(&stand).copied().unwrap_or(0);
        self.arrows.sort_by_key(Arrow::first_at);
        self.works.sort_by_key(|(_, _, row)| row.posted_at);

        let time = |time: Option<u64>| time.map_or(f64::NAN, float);
        let mut columns = Columns::default();
        let arrows = &self.arrows;
        columns.f64("sent", arrows.iter().map(|arrow| time(arrow.sent)));
        columns.f64("came", arrows.iter().map(|arrow| time(arrow.came)));
        columns.u32("work", arrows.iter().map(|arrow| arrow.work));
        columns.u32("head", arrows.iter().map(|arrow| arrow.headers));
        columns.u16("from", arrows.iter().map(|arrow| place(arrow.from)));
        columns.u16("to", arrows.iter().map(|arrow| place(arrow.to)));
        columns.u16("flags", arrows.iter().map(|arrow| arrow.flags.bits()));
        columns.u16("payload", arrows.iter().map(|arrow| arrow.payload));
        columns.u8("headLength", arrows.iter().map(|arrow| arrow.headers_len));
        columns.u8("repeat", arrows.iter().map(|arrow| arrow.repeat));
        let works = &self.works;
        let completed = |row: &WorkRow| row.completed.map(|(time, _)| time);
        columns.f64("posted", works.iter().map(|(_, _, row)| float(row.posted_at)));
        columns.f64("bell", works.iter().map(|(_, _, row)| time(row.doorbell_at)));
        columns.f64("begun", works.iter().map(|(_, _, row)| time(row.begun_at)));
        columns.f64("completed", works.iter().map(|(_, _, row)| time(completed(row))));
        columns.f64("polled", works.iter().map(|(_, _, row)| time(row.polled_at)));
        columns.u64("id", works.iter().map(|(_, _, row)| row.note.id));
        columns.u32("key", works.iter().map(|(key, _, _)| *key));
        columns.u32("number", works.iter().map(|(_, _, row)| row.note.work));
        columns.u32("length", works.iter().map(|(_, _, row)| row.note.length));
        columns.u16("lane", works.iter().map(|(_, stand, _)| place(*stand)));
        columns.u16("column", works.iter().map(|(_, _, row)| u16::try_from(row.lane).unwrap_or(u16::MAX)));
        columns.u8("op", works.iter().map(|(_, _, row)| row.note.op.map_or(u8::MAX, WorkOp::code)));
        columns.u8("status", works.iter().map(|(_, _, row)| status(row)));
        columns.u8("mark", works.iter().map(|(_, _, row)| marks(row)));
        columns.u8("headers", self.headers.iter().copied());

        let mut told = String::from("{");
        let texts = [("title", &options.title), ("selection", &selected(&options.selection))];
        for (name, text) in texts {
            let _ = write!(told, "\"{name}\":{},", json(text));
        }
        let _ = write!(
            told,
            "\"wall\":\"{}\",\"events\":{},\"packets\":{},\"joined\":{},\"leftOut\":{},\"works\":{},\"local\":{},",
            wall_start(timeline),
            summary.events,
            summary.packets,
            summary.joined,
            summary.left_out,
            summary.works,
            summary.local
        );
        let _ = write!(told, "\"lanes\":{},", self.lanes.json(&process_names(timeline)));
        tables(&mut told);
        let _ = write!(told, "\"columns\":{}}}", columns.json());

        let parts = PAGE.split("{{").map(|part| part.split_once("}}").unwrap_or(("", part)));
        for (name, text) in parts {
            match name {
                "title" => out.write_all(escaped(&options.title).as_bytes())?,
                "style" => out.write_all(STYLE.as_bytes())?,
                "told" => out.write_all(told.as_bytes())?,
                "data" => base64(&columns.bytes, out)?,
                "script" => SCRIPTS.iter().try_for_each(|script| out.write_all(script.as_bytes()))?,
                _ => {}
            }
            out.write_all(text.as_bytes())?;
        }
        Ok(())
    }
}

const PAGE: &str = include_str!("../page/page.html");
const STYLE: &str = include_str!("../page/page.css");
const SCRIPTS: &[&str] = &[
    include_str!("../page/data.js"),
    include_str!("../page/headers.js"),
    include_str!("../page/draw.js"),
    include_str!("../page/page.js"),
];

/// The numbers of JavaScript are exact for a hundred days of nanoseconds.
#[expect(clippy::cast_precision_loss, reason = "no record is that long")]
const fn float(time: u64) -> f64 {
    time as f64
}

/// The status of work, or what stands for none.
fn status(row: &WorkRow) -> u8 {
    row.completed.map_or(u8::MAX, |(_, completed)| completed.status.code())
}

/// What else the page knows of work.
fn marks(row: &WorkRow) -> u8 {
    let flags = row.completed.map_or(CompletedFlags::empty(), |(_, completed)| completed.flags);
    let bits = [
        !matches!(row.note.queue, Queue::Send(_)),
        row.is_local,
        flags.contains(CompletedFlags::QUIET),
        flags.contains(CompletedFlags::FORGOTTEN),
        flags.contains(CompletedFlags::OVERRUN),
    ];
    (0..).zip(bits).map(|(place, bit)| u8::from(bit) << place).sum()
}

/// The selection in words; nothing if it is all.
fn selected(selection: &Selection) -> String {
    let mut words = Vec::new();
    words.extend(selection.from.map(|from| format!("from {from} ns")));
    words.extend(selection.to.map(|to| format!("to {to} ns")));
    words.extend(selection.queue_pair.map(|qpn| format!("queue pair {qpn}")));
    words.join(", ")
}

/// What numbers stand for: opcodes, operations, statuses.
fn tables(told: &mut String) {
    let opcodes = Opcode::all().map(|opcode| {
        let info = opcode.info();
        let is_answer = u8::from(info.role == Role::Response);
        format!("\"{}\":[{},{},{is_answer}]", opcode.byte(), json(&opcode.to_string()), info.headers.bits())
    });
    let _ = write!(told, "\"opcodes\":{{{}}},", opcodes.collect::<Vec<_>>().join(","));
    let operations = WorkOp::ALL.iter().map(|op| format!("\"{}\":{}", op.code(), json(op.name())));
    let _ = write!(told, "\"operations\":{{{}}},", operations.collect::<Vec<_>>().join(","));
    let statuses =
        Status::ALL.iter().map(|status| format!("\"{}\":{}", status.code(), json(&status.to_string())));
    let _ = write!(told, "\"statuses\":{{{}}},", statuses.collect::<Vec<_>>().join(","));
    let syndromes = (0..=u8::MAX).map(|byte| json(ferroce_wire::Syndrome::from_byte(byte).name()));
    let _ = write!(told, "\"syndromes\":[{}],", syndromes.collect::<Vec<_>>().join(","));
}
