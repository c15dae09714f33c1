//! Records as two devices write them that talk to each other, made without any: the same seed gives the same bytes.

use std::fs::OpenOptions;
use std::net::IpAddr;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use ferroce_record::{
    Begun, Completed, CompletedFlags, Doorbell, Ends, EngineRing, Event, HEADERS, Matched, Mode, Operands,
    Packet, PacketFlags, Polled, Posted, PostedFlags, ProgramRing, Queue, QueuePair, RecordConfig, Recorder,
    Refusal, StateChange, Step, Timer, TimerKind, Way, WorkOp,
};
use ferroce_trace::Timeline;
use ferroce_transport::{State, Status, WorkKind};
use ferroce_wire::{Lkey, Qpn, Rkey, Service};

/// Bytes of payload in a packet.
pub(crate) const MTU: u32 = 1024;

/// How long a packet is under way.
const UNDER_WAY: u64 = 4_000;

/// When these records began, in nanoseconds since 1970.
pub(crate) const WALL: u64 = 1_700_000_000_000_000_000;

/// Which end, and which of its rings.
type Place = (usize, bool);

/// The records of two processes.
pub(crate) struct Made {
    ends: [End; 2],
    /// What is not written yet.
    events: Vec<(u64, Place, Event)>,
    pub(crate) now: u64,
    pub(crate) written: u64,
    /// How much the clock of the second end is behind.
    pub(crate) behind: u64,
    /// Packets that one end only has.
    pub(crate) lone: u64,
    state: u64,
    directory: PathBuf,
}

struct End {
    /// Until the record is complete.
    recorder: Option<(Recorder, EngineRing, ProgramRing)>,
    path: PathBuf,
    address: IpAddr,
    pid: u32,
}

/// A queue pair of each end that are connected.
#[derive(Clone, Copy)]
pub(crate) struct Link {
    pub(crate) qpns: [Qpn; 2],
    psns: [u32; 2],
    works: [u32; 2],
    receives: [u32; 2],
    /// When the last send and the last receive of each end were over: they end in the order of posting.
    sent: [u64; 2],
    received: [u64; 2],
}

/// What becomes of one operation.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Fate {
    #[default]
    Well,
    /// The packet at this place is lost once; a record with fault injection says so.
    Lost(u32, bool),
    /// The answer is lost once.
    AnswerLost,
    /// The peer refuses it.
    Refused,
}

impl Made {
    /// In a directory of its own under this name.
    pub(crate) fn new(name: &str, ipv6: bool) -> Self {
        let directory = Path::new(env!("CARGO_TARGET_TMPDIR")).join(format!("{name}-{}", std::process::id()));
        std::fs::create_dir_all(&directory).unwrap();
        let addresses = if ipv6 { ["fd00::1", "fd00::2"] } else { ["10.0.0.1", "10.0.0.2"] };
        let end = |place: usize, program: &str| {
            let path = directory.join(format!("{program}.ftrace"));
            let _ = std::fs::remove_file(&path);
            let mut config = RecordConfig::new(Mode::Whole, &format!("/usr/bin/{program} --size 4096"));
            config.bytes = 4 << 20;
            config.engines = 1;
            config.host = format!("host{place}");
            let recorder = Recorder::create(&path, &config).unwrap();
            let (engine, ring) = (recorder.engine_ring().unwrap(), recorder.program_ring());
            let address = addresses[place].parse().unwrap();
            let pid = 4000 + u32::try_from(place).unwrap();
            End { recorder: Some((recorder, engine, ring)), path, address, pid }
        };
        let ends = [end(0, "client"), end(1, "server")];
        Self {
            ends,
            events: Vec::new(),
            now: 1_000_000,
            written: 0,
            behind: 0,
            lone: 0,
            state: 0x1234_5678_9abc_def1,
            directory,
        }
    }

    /// A number below this one.
    pub(crate) fn random(&mut self, below: u64) -> u64 {
        self.state ^= self.state << 13;
        self.state ^= self.state >> 7;
        self.state ^= self.state << 17;
        self.state % below
    }

    fn engine(&mut self, end: usize, at: u64, event: impl Into<Event>) {
        self.events.push((at, (end, false), event.into()));
    }

    fn program(&mut self, end: usize, at: u64, event: impl Into<Event>) {
        self.events.push((at, (end, true), event.into()));
    }

    /// Writes what happened before this time.
    pub(crate) fn write_until(&mut self, time: u64) {
        self.events.sort_by_key(|(at, _, _)| *at);
        let count = self.events.partition_point(|(at, _, _)| *at < time);
        for (at, (end, is_program), event) in self.events.drain(..count) {
            let (recorder, engine, program) = self.ends[end].recorder.as_mut().unwrap();
            let at = if end == 1 { at - self.behind } else { at };
            // A whole record loses what has no room: here its keeper is waited for.
            while recorder.unkept() > 10_000 {
                std::thread::yield_now();
            }
            if is_program {
                program.push(at, &event);
            } else {
                engine.push(at, &event);
            }
            self.written += 1;
        }
    }

    /// The time-line of both, or of the first alone, with clocks that never differ.
    pub(crate) fn timeline(&mut self, ends: usize) -> Timeline {
        self.write_until(u64::MAX);
        for end in &mut self.ends {
            let Some((recorder, engine, program)) = end.recorder.take() else { continue };
            drop((engine, program));
            drop(recorder);
            let file = OpenOptions::new().write(true).open(&end.path).unwrap();
            let mut bytes = end.pid.to_le_bytes().to_vec();
            bytes.extend(5_000_u64.to_le_bytes());
            bytes.extend(WALL.to_le_bytes());
            bytes.extend(77_u128.to_le_bytes());
            file.write_all_at(&bytes, 28).unwrap();
        }
        let paths: Vec<PathBuf> = self.ends[..ends].iter().map(|end| end.path.clone()).collect();
        Timeline::open(&paths).unwrap()
    }

    /// Where its files are.
    pub(crate) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Two queue pairs, connected.
    pub(crate) fn link(&mut self, numbers: [u32; 2]) -> Link {
        let qpns = numbers.map(Qpn::new);
        for end in 0..2 {
            let (qpn, peer) = (qpns[end], qpns[1 - end]);
            let (local, remote) = (self.ends[end].address, self.ends[1 - end].address);
            self.made(end, qpn, Service::Rc);
            let port = 50_000 + u16::try_from(numbers[end] & 0xff).unwrap();
            let way = Way { qpn, peer, local, remote, port, mtu: 1024, is_local: false };
            self.program(end, self.now, way);
            let change = StateChange { qpn, from: State::Rtr, to: State::Rts, is_asked: true };
            self.program(end, self.now, change);
        }
        self.now += 1_000;
        Link {
            qpns,
            psns: [0xff_fff0, 0x20],
            works: [0; 2],
            receives: [0; 2],
            sent: [0; 2],
            received: [0; 2],
        }
    }

    fn made(&mut self, end: usize, qpn: Qpn, service: Service) {
        let event = QueuePair {
            qpn,
            step: Step::Made,
            service,
            state: State::Reset,
            send_cq: 1,
            receive_cq: 2,
            shared: None,
            sends: 128,
            receives: 128,
        };
        self.program(end, self.now, event);
    }

    /// One operation from an end; the time goes on a little, and the operation takes longer.
    pub(crate) fn operation(&mut self, link: &mut Link, from: usize, op: WorkOp, length: u32, fate: Fate) {
        let (qpn, peer) = (link.qpns[from], link.qpns[1 - from]);
        let (queue, work) = (Queue::Send(qpn), link.works[from]);
        link.works[from] += 1;
        let first = link.psns[from];
        let count = if is_atomic(op) { 1 } else { length.div_ceil(MTU).max(1) };
        link.psns[from] = (first + count) & 0xff_ffff;
        let id = 0x1000 + u64::from(work);
        let begin = self.now;
        let takes = matches!(op, WorkOp::Send | WorkOp::SendImm | WorkOp::WriteImm);
        let receive = takes.then(|| self.receive(link, 1 - from, begin));

        self.program(from, begin, posted(queue, work, id, op, length));
        if is_atomic(op) {
            let (compare_add, swap, compare_mask, swap_mask) = (5, 6, 0, 0);
            self.program(from, begin, Operands { qpn, work, compare_add, swap, compare_mask, swap_mask });
        }
        self.program(from, begin + 60, Doorbell { queue, first: work, count: 1 });
        let mut at = begin + 400;
        let asks = op == WorkOp::Read || is_atomic(op);
        if count > 1 || asks {
            self.engine(from, at, Begun { qpn, work, psn: first, packets: count });
        }
        let sent = if asks { 1 } else { count };
        let request = |place: u32| {
            let payload = if asks { 0 } else { (length - place * MTU).min(MTU) };
            (request_headers(op, place, count, peer, first, length), payload)
        };
        let mut arrived = 0;
        let mut resent = None;
        for place in 0..sent {
            at += 150;
            let (headers, payload) = request(place);
            self.packet(from, at, qpn, Some(work), PacketFlags::OUT, (&headers, payload));
            match fate {
                Fate::Lost(lost, told) if lost == place => {
                    if told {
                        let flags = PacketFlags::OUT | PacketFlags::TAKEN;
                        self.packet(from, at + 10, qpn, Some(work), flags, (&headers, payload));
                    }
                    resent = Some(place);
                    self.lone += 1;
                }
                _ => {
                    arrived = at + UNDER_WAY;
                    self.packet(1 - from, arrived, peer, None, PacketFlags::empty(), (&headers, payload));
                }
            }
        }
        let answer_lost = fate == Fate::AnswerLost;
        if resent.is_some() || answer_lost {
            let answer = answer_headers(op, 0, count, qpn, first, length, Status::Success);
            if answer_lost {
                self.lone += 1;
                self.packet(1 - from, arrived + 500, peer, None, PacketFlags::OUT, (&answer.0, answer.1));
            }
            at += 60_000;
            let again = resent.unwrap_or(sent - 1);
            let (kind, psn) = (TimerKind::Acknowledgement, first + again);
            self.engine(from, at, Timer { qpn, kind, psn, work, tries: 1, most: 7 });
            for place in again..sent {
                at += 150;
                let (headers, payload) = request(place);
                let flags = PacketFlags::OUT | PacketFlags::REPEAT;
                self.packet(from, at, qpn, Some(work), flags, (&headers, payload));
                arrived = at + UNDER_WAY;
                self.packet(1 - from, arrived, peer, None, PacketFlags::empty(), (&headers, payload));
            }
        }
        let status = if fate == Fate::Refused { Status::RemoteAccess } else { Status::Success };
        if let Some(receive) = receive {
            self.received(link, 1 - from, receive, arrived, first, length);
        }
        let answers = if op == WorkOp::Read && status == Status::Success { count } else { 1 };
        let mut done = arrived;
        for place in 0..answers {
            let left = arrived + 500 + u64::from(place) * 150;
            let place = if answers == 1 { count - 1 } else { place };
            let (headers, payload) = answer_headers(op, place, count, qpn, first, length, status);
            self.packet(1 - from, left, peer, None, PacketFlags::OUT, (&headers, payload));
            done = left + UNDER_WAY;
            self.packet(from, done, qpn, Some(work), PacketFlags::empty(), (&headers, payload));
        }
        let done = done.max(link.sent[from]);
        link.sent[from] = done + 1;
        self.engine(from, done + 80, completed(queue, qpn, work, id, status, length));
        self.program(from, done + 900, Polled { qpn, cq: 1, id, is_receive: false, is_forgotten: false });
        self.now += 1_500;
    }

    /// A receive, posted.
    fn receive(&mut self, link: &mut Link, end: usize, at: u64) -> u32 {
        let work = link.receives[end];
        link.receives[end] += 1;
        let queue = Queue::Receive(link.qpns[end]);
        let post = posted(queue, work, 0x9000 + u64::from(work), WorkOp::Receive, 8192);
        self.program(end, at.saturating_sub(500), post);
        work
    }

    fn received(&mut self, link: &mut Link, end: usize, work: u32, at: u64, psn: u32, length: u32) {
        let (qpn, at) = (link.qpns[end], at.max(link.received[end]));
        link.received[end] = at + 1;
        let (queue, id) = (Queue::Receive(qpn), 0x9000 + u64::from(work));
        self.engine(end, at + 20, Matched { qpn, queue, work, id, psn });
        self.engine(end, at + 100, completed(queue, qpn, work, id, Status::Success, length));
        self.program(end, at + 1_000, Polled { qpn, cq: 2, id, is_receive: true, is_forgotten: false });
    }

    /// A WRITE that stays in the process of the first end.
    pub(crate) fn local(&mut self, link: &mut Link) {
        let (qpn, work) = (link.qpns[0], link.works[0]);
        let (queue, id) = (Queue::Send(qpn), 0x1000 + u64::from(work));
        link.works[0] += 1;
        self.program(0, self.now, posted(queue, work, id, WorkOp::Write, 64));
        self.program(0, self.now + 50, Begun { qpn, work, psn: 0, packets: 0 });
        let done = (self.now + 90).max(link.sent[0] + 80);
        link.sent[0] = done;
        self.program(0, done, completed(queue, qpn, work, id, Status::Success, 64));
        self.program(0, done + 820, Polled { qpn, cq: 1, id, is_receive: false, is_forgotten: false });
        self.now += 500;
    }

    /// A datagram from the first end to the second, with addresses of its own.
    pub(crate) fn datagram(&mut self, qpns: [u32; 2], work: u32) {
        let [qpn, dest] = qpns.map(Qpn::new);
        if work == 0 {
            self.made(0, qpn, Service::Ud);
            self.made(1, dest, Service::Ud);
        }
        let (queue, id, begin) = (Queue::Send(qpn), 0x7000 + u64::from(work), self.now);
        let mut post = posted(queue, work, id, WorkOp::Send, 256);
        post.flags |= PostedFlags::DATAGRAM;
        self.program(0, begin, post);
        let mut headers = bth(0x64, dest, work, false).to_vec();
        headers.extend(0x1111_1111_u32.to_be_bytes());
        headers.extend(qpn.get().to_be_bytes());
        let [local, remote] = [self.ends[0].address, self.ends[1].address];
        let port = 49_999;
        self.packet(0, begin + 300, qpn, Some(work), PacketFlags::OUT, (&headers, 256));
        self.engine(0, begin + 300, Ends { qpn, local, remote, port });
        let came = begin + 300 + UNDER_WAY;
        self.packet(1, came, dest, None, PacketFlags::empty(), (&headers, 256));
        self.engine(1, came, Ends { qpn: dest, local: remote, remote: local, port });
        self.engine(0, begin + 500, completed(queue, qpn, work, id, Status::Success, 256));
        self.program(0, begin + 800, Polled { qpn, cq: 1, id, is_receive: false, is_forgotten: false });
        self.now += 1_000;
    }

    /// A packet that no queue pair is for.
    pub(crate) fn refused(&mut self) {
        let (qpn, flags) = (Qpn::new(0x99), PacketFlags::REFUSED);
        let work = Refusal::UnknownQp.code().into();
        let packet =
            Packet { qpn, flags, work, payload: 0, headers_len: 0, repeat: 0, headers: [0; HEADERS] };
        let (packet, _) = packet.with_headers(&[&bth(0x04, qpn, 7, true)[..], &[]].concat());
        self.lone += 1;
        self.engine(1, self.now, packet);
        self.now += 100;
    }

    fn packet(
        &mut self,
        end: usize,
        at: u64,
        qpn: Qpn,
        work: Option<u32>,
        flags: PacketFlags,
        (headers, payload): (&[u8], u32),
    ) {
        let of_work = if work.is_some() { PacketFlags::WORK } else { PacketFlags::empty() };
        let packet = Packet {
            qpn,
            flags: flags | of_work,
            work: work.unwrap_or(0),
            payload: u16::try_from(payload).unwrap(),
            headers_len: 0,
            repeat: u8::from(flags.contains(PacketFlags::REPEAT)),
            headers: [0; HEADERS],
        };
        let (packet, more) = packet.with_headers(headers);
        self.engine(end, at, packet);
        if let Some(more) = more {
            self.engine(end, at, more);
        }
    }

    /// A bit of everything, until so many events are written.
    pub(crate) fn traffic(&mut self, events: u64, links: u32) {
        let mut all: Vec<Link> = (0..links).map(|link| self.link([0x11 + link * 2, 0x1000 + link])).collect();
        let mut datagrams = 0;
        while self.written < events {
            for _ in 0..200 {
                let choice = self.random(100);
                let place = usize::try_from(self.random(links.into())).unwrap();
                let link = &mut all[place];
                let from = usize::from(choice.is_multiple_of(5));
                let mut lost = None;
                let length = match self.random(4) {
                    0 => 64,
                    1 => 1000,
                    2 => 4096,
                    _ => 2500,
                };
                if self.random(60) == 0 {
                    lost = Some(self.random(2) == 0);
                }
                let fate = lost.map_or(Fate::Well, |told| Fate::Lost(0, told));
                match choice {
                    0..40 => self.operation(link, from, WorkOp::Write, length, fate),
                    40..65 => self.operation(link, from, WorkOp::Send, length, fate),
                    65..80 => self.operation(link, from, WorkOp::Read, length, Fate::Well),
                    80..88 => self.operation(link, from, WorkOp::FetchAdd, 8, Fate::Well),
                    88..90 => self.operation(link, from, WorkOp::CompareSwap, 8, Fate::AnswerLost),
                    90 => self.operation(link, from, WorkOp::Write, 64, Fate::Refused),
                    91 => self.refused(),
                    92..95 => self.local(link),
                    _ => {
                        self.datagram([0x800, 0x900], datagrams);
                        datagrams += 1;
                    }
                }
            }
            // All that is yet to come is later than this.
            self.write_until(self.now.saturating_sub(1_000));
        }
    }
}

impl Drop for Made {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.directory);
    }
}

/// A WRITE that loses a packet, a SEND, a READ, an atomic, and a WRITE that is refused.
pub(crate) fn five_operations(name: &str) -> Made {
    let mut made = Made::new(name, false);
    let mut link = made.link([0x11, 0x1000]);
    for (from, op, length, fate) in [
        (0, WorkOp::Write, 2500, Fate::Lost(1, true)),
        (0, WorkOp::Send, 64, Fate::Well),
        (1, WorkOp::Read, 3000, Fate::Well),
        (0, WorkOp::FetchAdd, 8, Fate::Well),
        (0, WorkOp::Write, 64, Fate::Refused),
    ] {
        made.operation(&mut link, from, op, length, fate);
        made.now += 1_200;
    }
    made
}

const fn is_atomic(op: WorkOp) -> bool {
    matches!(op, WorkOp::FetchAdd | WorkOp::CompareSwap)
}

fn posted(queue: Queue, work: u32, id: u64, op: WorkOp, length: u32) -> Posted {
    let flags = if op == WorkOp::Receive { PostedFlags::empty() } else { PostedFlags::SIGNALED };
    let (address, remote) = (0x7f00_0000_1000, 0x7f00_0010_0000);
    let (lkey, key) = (Lkey(0x1234), Rkey(0x8765_4321));
    Posted { queue, work, id, op, flags, pieces: 1, length, address, lkey, remote, key, imm: 0 }
}

fn completed(queue: Queue, qpn: Qpn, work: u32, id: u64, status: Status, byte_len: u32) -> Completed {
    Completed {
        queue,
        work,
        id,
        status,
        vendor_code: None,
        kind: if matches!(queue, Queue::Send(_)) { WorkKind::Send } else { WorkKind::Receive },
        flags: CompletedFlags::empty(),
        byte_len,
        imm: 0,
        cq: 1,
        qpn,
        source_qp: 0,
        invalidated: Rkey(0),
    }
}

/// A base transport header.
fn bth(opcode: u8, dest: Qpn, psn: u32, asks: bool) -> [u8; 12] {
    let ([_, a, b, c], [_, x, y, z]) = (dest.get().to_be_bytes(), (psn & 0xff_ffff).to_be_bytes());
    [opcode, 0x40, 0xff, 0xff, 0, a, b, c, u8::from(asks) << 7, x, y, z]
}

fn request_headers(op: WorkOp, place: u32, count: u32, dest: Qpn, first: u32, length: u32) -> Vec<u8> {
    let is_first = place == 0;
    let is_last = place + 1 == count;
    let base = match op {
        WorkOp::Send => 0x00,
        WorkOp::Write => 0x06,
        WorkOp::Read => 0x0c,
        WorkOp::CompareSwap => 0x13,
        _ => 0x14,
    };
    let segment = match (is_first, is_last) {
        _ if base >= 0x0c => 0,
        (true, false) => 0,
        (false, false) => 1,
        (false, true) => 2,
        (true, true) => 4,
    };
    let mut headers = bth(base + segment, dest, first + place, is_last).to_vec();
    // What is left of the last word is filled up.
    if is_last && base < 0x0c {
        headers[1] |= u8::try_from((4 - length % 4) % 4).unwrap() << 4;
    }
    if matches!(op, WorkOp::Write | WorkOp::Read) && is_first || is_atomic(op) {
        headers.extend(0x7f00_0010_0000_u64.to_be_bytes());
        headers.extend(0x8765_4321_u32.to_be_bytes());
    }
    if matches!(op, WorkOp::Write | WorkOp::Read) && is_first {
        headers.extend(length.to_be_bytes());
    }
    if is_atomic(op) {
        headers.extend(6_u64.to_be_bytes());
        headers.extend(5_u64.to_be_bytes());
    }
    headers
}

/// The headers of an answer, and its payload.
fn answer_headers(
    op: WorkOp,
    place: u32,
    count: u32,
    dest: Qpn,
    first: u32,
    length: u32,
    status: Status,
) -> (Vec<u8>, u32) {
    let read = op == WorkOp::Read && status == Status::Success;
    let opcode = match (place == 0, place + 1 == count) {
        _ if !read && is_atomic(op) => 0x12,
        _ if !read => 0x11,
        (true, false) => 0x0d,
        (false, false) => 0x0e,
        (false, true) => 0x0f,
        (true, true) => 0x10,
    };
    let mut headers = bth(opcode, dest, first + place, false).to_vec();
    if opcode != 0x0e {
        let syndrome = if status == Status::Success { 0x1f } else { 0x62 };
        headers.extend([syndrome, 0, 0, 1]);
    }
    if opcode == 0x12 {
        headers.extend(5_u64.to_be_bytes());
    }
    let payload = if read { (length - place * MTU).min(MTU) } else { 0 };
    (headers, payload)
}
