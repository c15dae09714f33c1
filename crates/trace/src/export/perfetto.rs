//! A time-line as a trace of Perfetto: tracks for queues, slices for work, flows for packets.

use std::io::Write;

use ferroce_record::{CompletedFlags, PacketFlags, Queue, Timer, TimerKind, Wait, WaitReason, WorkOp};
use ferroce_transport::Status;
use ferroce_wire::{Opcode, Qpn};

use super::follow::{Note, PacketRow, Sink, WorkRow, follow};
use super::hash::Quick;
use super::proto::Message;
use super::words::FATES;
use super::{ExportError, Selection, Summary, process_name, wall_start};
use crate::timeline::Timeline;

/// Writes a time-line as a trace of Perfetto, which ui.perfetto.dev shows.
///
/// Each process is a process there. A queue has a track for each work request that it held at the same time, with a
/// slice from the call that posted it to the call that took its completion, in which others say how long it was
/// `queued`, with the `device`, and `unpolled`; and a counter of its depth. A queue pair has a track of its packets,
/// as instants, and one of its timers that fired and of what its next send waits for. Flows lead from work over its packets, and from each packet to the same one at the peer; a receive
/// has the flow of the work that took it.
///
/// # Errors
/// It cannot be written.
pub fn perfetto(
    timeline: &Timeline,
    selection: &Selection,
    out: &mut impl Write,
    progress: &mut dyn FnMut(u64),
) -> Result<Summary, ExportError> {
    let mut tracks = Tracks { out, message: Message::default(), known: Quick::default() };
    tracks.begin(timeline);
    let summary = follow(timeline, selection, &mut tracks, progress)?;
    tracks.flush()?;
    tracks.out.flush()?;
    Ok(summary)
}

/// Bytes that are written at once.
const BUFFER: usize = 1 << 16;

/// All packets are of one sequence: names are told once.
const SEQUENCE: u64 = 1;

// Fields of the messages of Perfetto.
const PACKET: u32 = 1;
const PACKET_CLOCKS: u32 = 6;
const PACKET_TIME: u32 = 8;
const PACKET_SEQUENCE: u32 = 10;
const PACKET_EVENT: u32 = 11;
const PACKET_NAMES: u32 = 12;
const PACKET_SEQUENCE_FLAGS: u32 = 13;
const PACKET_TRACK: u32 = 60;
const EVENT_CATEGORY: u32 = 3;
const EVENT_ANNOTATION: u32 = 4;
const EVENT_TYPE: u32 = 9;
const EVENT_NAME: u32 = 10;
const EVENT_TRACK: u32 = 11;
const EVENT_COUNTER: u32 = 30;
const EVENT_FLOW: u32 = 47;
const TRACK_ID: u32 = 1;
const TRACK_NAME: u32 = 2;
const TRACK_PROCESS: u32 = 3;
const TRACK_PARENT: u32 = 5;
const TRACK_COUNTER: u32 = 8;
const TRACK_ORDERING: u32 = 11;
const TRACK_RANK: u32 = 12;

const SLICE_BEGIN: u64 = 1;
const SLICE_END: u64 = 2;
const INSTANT: u64 = 3;
const COUNTER: u64 = 4;

/// What a track is of. Its number follows from that, so that the same record gives the same trace.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Track {
    Process(usize),
    Pair(usize, Qpn),
    Packets(usize, Qpn),
    Timing(usize, Qpn),
    Queue(usize, Queue),
    Lane(usize, Queue, u32),
    Depth(usize, Queue),
}

impl Track {
    /// The one that it is in.
    fn parent(self) -> Option<Self> {
        let home =
            |source, queue: Queue| queue.qpn().map_or(Self::Process(source), |qpn| Self::Pair(source, qpn));
        match self {
            Self::Process(_) => None,
            Self::Pair(source, _) => Some(Self::Process(source)),
            Self::Packets(source, qpn) | Self::Timing(source, qpn) => Some(Self::Pair(source, qpn)),
            Self::Queue(source, queue) | Self::Depth(source, queue) => Some(home(source, queue)),
            Self::Lane(source, queue, _) => Some(Self::Queue(source, queue)),
        }
    }

    fn name(self) -> String {
        let queue_name = |queue| match queue {
            Queue::Send(_) => "sends".to_owned(),
            Queue::Receive(_) => "receives".to_owned(),
            Queue::Shared(number) => format!("shared receive queue {number}"),
        };
        match self {
            Self::Process(_) => String::new(),
            Self::Pair(_, qpn) => format!("queue pair {qpn}"),
            Self::Packets(..) => "packets".to_owned(),
            Self::Timing(..) => "timers and waits".to_owned(),
            Self::Queue(_, queue) => queue_name(queue),
            Self::Lane(_, queue, lane) => format!("{} {lane}", queue_name(queue)),
            Self::Depth(_, queue) => format!("{}: depth", queue_name(queue)),
        }
    }

    /// Its place among those of the same parent.
    fn rank(self) -> u64 {
        match self {
            Self::Process(_) | Self::Queue(_, Queue::Send(_)) => 0,
            Self::Pair(_, qpn) => qpn.get().into(),
            Self::Depth(_, Queue::Send(_)) => 1,
            Self::Packets(..) => 2,
            Self::Queue(_, Queue::Receive(_)) => 3,
            Self::Depth(_, Queue::Receive(_)) => 4,
            Self::Timing(..) => 5,
            Self::Queue(_, Queue::Shared(number)) => (1 << 24) + u64::from(number) * 2,
            Self::Depth(_, Queue::Shared(number)) => (1 << 24) + u64::from(number) * 2 + 1,
            Self::Lane(_, _, lane) => lane.into(),
        }
    }
}

/// Numbers of names, which stand in the trace once: those of opcodes are 1 to 256, those of operations lie behind.
const OPERATIONS: u64 = 300;
const UNKNOWN_WORK: u64 = 290;
const QUEUED: u64 = 291;
const DEVICE: u64 = 292;
const UNPOLLED: u64 = 293;
const UNKNOWN_PACKET: u64 = 294;
const TIMERS: u64 = 400;
const WAITS: u64 = 500;

/// Numbers of what is told of slices and instants.
const ANNOTATIONS: &[(u64, &str)] = &[
    (1, "psn"),
    (2, "work"),
    (3, "id"),
    (4, "bytes"),
    (5, "status"),
    (6, "payload"),
    (7, "fate"),
    (8, "to queue pair"),
    (9, "local path"),
    (10, "repeat"),
    (11, "end"),
    (12, "in a row"),
    (13, "at most"),
    (14, "until"),
];

const CATEGORIES: &[(u64, &str)] =
    &[(1, "work"), (2, "packet out"), (3, "packet in"), (4, "timer"), (5, "wait")];

struct Tracks<'a, W> {
    out: &'a mut W,
    message: Message,
    /// Tracks that were told of.
    known: Quick<Track, u64>,
}

/// A flow of work: no packet has its number.
fn work_flow(note: &Note) -> u64 {
    let Queue::Send(qpn) = note.queue else { return 0 };
    1 << 63 | (note.source as u64 & 0x7f) << 56 | u64::from(qpn.get()) << 32 | u64::from(note.work)
}

/// A flow of a packet: that of the one that left, at both ends.
fn packet_flow(row: &PacketRow) -> u64 {
    row.common() + 1
}

impl<W: Write> Sink for Tracks<'_, W> {
    fn packet(&mut self, row: &PacketRow) -> Result<(), ExportError> {
        let track = self.track(Track::Packets(row.source, row.packet.qpn));
        let name = row.opcode().map_or(UNKNOWN_PACKET, |opcode| u64::from(opcode.byte()) + 1);
        let category = if row.is_out() { 2 } else { 3 };
        self.event(row.time, |event| {
            event.uint(EVENT_CATEGORY, category);
            number(event, 1, row.psn().into());
            number(event, 8, row.dest_qp().get().into());
            if row.packet.payload > 0 {
                number(event, 6, row.packet.payload.into());
            }
            if let Some(note) = row.belongs.note() {
                number(event, 2, note.work.into());
            }
            if row.packet.flags.contains(PacketFlags::REPEAT) {
                number(event, 10, row.packet.repeat.into());
            }
            for (_, fate) in FATES.iter().filter(|(flag, _)| row.packet.flags.contains(*flag)) {
                text(event, 7, fate);
            }
            if let Some(refusal) = row.packet.refusal() {
                text(event, 7, refusal.name());
            }
            event.uint(EVENT_TYPE, INSTANT).uint(EVENT_NAME, name).uint(EVENT_TRACK, track);
            event.fixed64(EVENT_FLOW, packet_flow(row));
            if let Some(note) = row.belongs.note() {
                event.fixed64(EVENT_FLOW, work_flow(note));
            }
        });
        self.flush_if_full()
    }

    fn work(&mut self, row: &WorkRow) -> Result<(), ExportError> {
        let track = self.track(Track::Lane(row.note.source, row.note.queue, row.lane));
        let name = row.note.op.map_or(UNKNOWN_WORK, |op| OPERATIONS + u64::from(op.code()));
        let end = row.last_at();
        let flow = match row.note.queue {
            Queue::Send(_) => Some(work_flow(&row.note)),
            _ => row.sender.as_ref().map(work_flow),
        };
        self.event(row.posted_at, |event| {
            event.uint(EVENT_CATEGORY, 1);
            number(event, 2, row.note.work.into());
            number(event, 3, row.note.id);
            number(event, 4, row.note.length.into());
            if row.is_local {
                number(event, 9, 1);
            }
            if let Some((_, completed)) = &row.completed {
                number(event, 5, completed.status.code().into());
                if completed.status != Status::Success {
                    text(event, 11, &completed.status.to_string());
                } else if completed.flags.contains(CompletedFlags::QUIET) {
                    text(event, 11, "not signaled");
                }
            }
            event.uint(EVENT_TYPE, SLICE_BEGIN).uint(EVENT_NAME, name).uint(EVENT_TRACK, track);
            if let Some(flow) = flow {
                event.fixed64(EVENT_FLOW, flow);
            }
        });
        // Where a part is not known, the one before it is as long as the rest.
        let completed = row.completed.map_or(end, |(time, _)| time).max(row.posted_at);
        let begun = row.begun_at.unwrap_or(completed).clamp(row.posted_at, completed);
        let parts = [(QUEUED, row.posted_at, begun), (DEVICE, begun, completed), (UNPOLLED, completed, end)];
        for (name, from, to) in parts.into_iter().filter(|(_, from, to)| from < to) {
            self.event(from, |event| {
                event.uint(EVENT_TYPE, SLICE_BEGIN).uint(EVENT_NAME, name).uint(EVENT_TRACK, track);
            });
            self.event(to, |event| {
                event.uint(EVENT_TYPE, SLICE_END).uint(EVENT_TRACK, track);
            });
        }
        self.event(end, |event| {
            event.uint(EVENT_TYPE, SLICE_END).uint(EVENT_TRACK, track);
        });
        self.flush_if_full()
    }

    fn depth(&mut self, time: u64, source: usize, queue: Queue, depth: u32) -> Result<(), ExportError> {
        let track = self.track(Track::Depth(source, queue));
        self.event(time, |event| {
            event.uint(EVENT_TYPE, COUNTER).uint(EVENT_TRACK, track).uint(EVENT_COUNTER, depth.into());
        });
        self.flush_if_full()
    }

    fn timer(&mut self, time: u64, source: usize, timer: Timer) -> Result<(), ExportError> {
        let track = self.track(Track::Timing(source, timer.qpn));
        self.event(time, |event| {
            event.uint(EVENT_CATEGORY, 4);
            number(event, 1, timer.psn.into());
            number(event, 2, timer.work.into());
            number(event, 12, timer.tries.into());
            number(event, 13, timer.most.into());
            let name = TIMERS + u64::from(timer.kind.code());
            event.uint(EVENT_TYPE, INSTANT).uint(EVENT_NAME, name).uint(EVENT_TRACK, track);
        });
        self.flush_if_full()
    }

    fn wait(&mut self, time: u64, source: usize, wait: Wait) -> Result<(), ExportError> {
        let track = self.track(Track::Timing(source, wait.qpn));
        self.event(time, |event| {
            event.uint(EVENT_CATEGORY, 5);
            number(event, 2, wait.work.into());
            if wait.until > 0 {
                number(event, 14, wait.until);
            }
            let name = WAITS + u64::from(wait.reason.code());
            event.uint(EVENT_TYPE, INSTANT).uint(EVENT_NAME, name).uint(EVENT_TRACK, track);
        });
        self.flush_if_full()
    }
}

impl<W: Write> Tracks<'_, W> {
    /// Clocks, names and processes.
    fn begin(&mut self, timeline: &Timeline) {
        const REALTIME: u64 = 1;
        const BOOTTIME: u64 = 6;
        const CLEARED: u64 = 1;
        let wall = wall_start(timeline);
        self.message.message(PACKET, |packet| {
            packet.message(PACKET_CLOCKS, |clocks| {
                for (clock, time) in [(BOOTTIME, 0), (REALTIME, wall)] {
                    clocks.message(1, |message| {
                        message.uint(1, clock).uint(2, time);
                    });
                }
            });
            packet.uint(PACKET_SEQUENCE, SEQUENCE);
        });
        let opcodes = Opcode::all().map(|opcode| (u64::from(opcode.byte()) + 1, opcode.to_string()));
        let operations =
            WorkOp::ALL.iter().map(|op| (OPERATIONS + u64::from(op.code()), op.name().to_owned()));
        let parts = [
            (UNKNOWN_WORK, "work posted before the record begins"),
            (UNKNOWN_PACKET, "packet of no known opcode"),
            (QUEUED, "queued"),
            (DEVICE, "device"),
            (UNPOLLED, "unpolled"),
        ];
        let parts = parts.into_iter().map(|(number, name)| (number, name.to_owned()));
        let timers =
            TimerKind::ALL.iter().map(|kind| (TIMERS + u64::from(kind.code()), kind.name().to_owned()));
        let waits = WaitReason::ALL
            .iter()
            .map(|reason| (WAITS + u64::from(reason.code()), format!("waits for {}", reason.name())));
        let names: Vec<(u64, String)> =
            opcodes.chain(operations).chain(parts).chain(timers).chain(waits).collect();
        self.message.message(PACKET, |packet| {
            packet.message(PACKET_NAMES, |interned| {
                let mut put = |field: u32, number: u64, name: &str| {
                    interned.message(field, |entry| {
                        entry.uint(1, number).text(2, name);
                    });
                };
                CATEGORIES.iter().for_each(|(number, name)| put(1, *number, name));
                names.iter().for_each(|(number, name)| put(2, *number, name));
                ANNOTATIONS.iter().for_each(|(number, name)| put(3, *number, name));
            });
            packet.uint(PACKET_SEQUENCE, SEQUENCE).uint(PACKET_SEQUENCE_FLAGS, CLEARED);
        });
        for (source, told) in timeline.sources().iter().enumerate() {
            let header = told.trace().header();
            let id = self.known.len() as u64 + 1;
            self.known.insert(Track::Process(source), id);
            self.message.message(PACKET, |packet| {
                packet.message(PACKET_TRACK, |track| {
                    track.uint(TRACK_ID, id).message(TRACK_PROCESS, |process| {
                        process.uint(1, header.pid.into());
                        for word in header.program.split_whitespace() {
                            process.text(2, word);
                        }
                        process.text(6, &process_name(header));
                    });
                });
                packet.uint(PACKET_SEQUENCE, SEQUENCE);
            });
        }
    }

    /// The number of a track, which is told of before it is used.
    fn track(&mut self, track: Track) -> u64 {
        if let Some(id) = self.known.get(&track) {
            return *id;
        }
        const EXPLICIT: u64 = 3;
        let parent = track.parent().map(|parent| self.track(parent));
        let id = self.known.len() as u64 + 1;
        self.known.insert(track, id);
        self.message.message(PACKET, |packet| {
            packet.message(PACKET_TRACK, |message| {
                message.uint(TRACK_ID, id).text(TRACK_NAME, &track.name());
                if let Some(parent) = parent {
                    message.uint(TRACK_PARENT, parent);
                }
                if matches!(track, Track::Depth(..)) {
                    message.message(TRACK_COUNTER, |counter| {
                        counter.text(6, "work requests");
                    });
                }
                message.uint(TRACK_ORDERING, EXPLICIT).uint(TRACK_RANK, track.rank());
            });
            packet.uint(PACKET_SEQUENCE, SEQUENCE);
        });
        id
    }

    fn event(&mut self, time: u64, make: impl FnOnce(&mut Message)) {
        const NEEDS_NAMES: u64 = 2;
        self.message.message(PACKET, |packet| {
            packet.uint(PACKET_TIME, time).uint(PACKET_SEQUENCE, SEQUENCE);
            packet.message(PACKET_EVENT, make).uint(PACKET_SEQUENCE_FLAGS, NEEDS_NAMES);
        });
    }

    fn flush_if_full(&mut self) -> Result<(), ExportError> {
        if self.message.0.len() >= BUFFER { self.flush() } else { Ok(()) }
    }

    fn flush(&mut self) -> Result<(), ExportError> {
        self.out.write_all(&self.message.0)?;
        self.message.clear();
        Ok(())
    }
}

fn number(event: &mut Message, name: u64, value: u64) {
    event.message(EVENT_ANNOTATION, |annotation| {
        annotation.uint(1, name).uint(3, value);
    });
}

fn text(event: &mut Message, name: u64, value: &str) {
    event.message(EVENT_ANNOTATION, |annotation| {
        annotation.uint(1, name).text(6, value);
    });
}
