//! Records made by hand, for tests.

use std::convert::Infallible;
use std::net::IpAddr;
use std::ops::ControlFlow;

use ferroce_record::{
    Completed, CompletedFlags, Doorbell, Event, HEADERS, Packet, PacketFlags, Polled, Posted, PostedFlags,
    Queue, QueuePair, Region, RegionKind, Stamped, StateChange, Step, Way, WorkOp,
};
use ferroce_transport::{Access, State, Status, VendorCode, WorkKind};
use ferroce_wire::{Lkey, Qpn, Rkey, Service};

use crate::assemble::Assembler;
use crate::read::{Told, put_together};
use crate::timeline::Seen;

/// One process: its queue pair, that of its peer, and what happened so far.
#[derive(Clone, Debug)]
pub(crate) struct Scene {
    pub(crate) qpn: Qpn,
    pub(crate) peer: Qpn,
    pub(crate) time: u64,
    pub(crate) events: Vec<Stamped>,
}

impl Scene {
    pub(crate) fn new(qpn: u32, peer: u32) -> Self {
        Self { qpn: Qpn::new(qpn), peer: Qpn::new(peer), time: 0, events: Vec::new() }
    }

    /// Ten microseconds later, this happens.
    pub(crate) fn then(&mut self, event: impl Into<Event>) -> &mut Self {
        self.time += 10_000;
        let number = self.events.len() as u64;
        self.events.push(Stamped { time: self.time, ring: 1, number, event: event.into() });
        self
    }

    /// Time passes.
    pub(crate) fn after(&mut self, nanos: u64) -> &mut Self {
        self.time += nanos;
        self
    }

    fn address(qpn: Qpn) -> IpAddr {
        IpAddr::from([10, 0, 0, qpn.get().to_be_bytes()[3]])
    }

    /// The queue pair is made and connected.
    pub(crate) fn connected(&mut self) -> &mut Self {
        let Self { qpn, peer, .. } = *self;
        let made = QueuePair {
            qpn,
            step: Step::Made,
            service: Service::Rc,
            state: State::Reset,
            send_cq: 1,
            receive_cq: 1,
            shared: None,
            sends: 16,
            receives: 16,
        };
        let (local, remote) = (Self::address(qpn), Self::address(peer));
        self.then(made).then(Way { qpn, peer, local, remote, port: 0, mtu: 1024, is_local: false });
        self.state(State::Reset, State::Rts, true)
    }

    pub(crate) fn state(&mut self, from: State, to: State, is_asked: bool) -> &mut Self {
        let qpn = self.qpn;
        self.then(StateChange { qpn, from, to, is_asked })
    }

    pub(crate) fn posted(&self, work: u32, op: WorkOp, length: u32) -> Posted {
        let queue = if op == WorkOp::Receive { Queue::Receive(self.qpn) } else { Queue::Send(self.qpn) };
        Posted {
            queue,
            work,
            id: u64::from(work) + 0x100,
            op,
            flags: PostedFlags::SIGNALED,
            pieces: 1,
            length,
            address: 0x1000,
            lkey: Lkey(5),
            remote: 0x20_0000,
            key: Rkey(0x77),
            imm: 0,
        }
    }

    /// Work is posted, and for sends the bell is rung.
    pub(crate) fn post(&mut self, work: u32, op: WorkOp, length: u32) -> &mut Self {
        let posted = self.posted(work, op, length);
        self.then(posted);
        if op != WorkOp::Receive {
            self.then(Doorbell { queue: posted.queue, first: work, count: 1 });
        }
        self
    }

    /// A packet with these headers.
    pub(crate) fn raw(&mut self, flags: PacketFlags, work: u32, payload: u16, headers: &[u8]) -> &mut Self {
        let qpn = self.qpn;
        let packet = Packet { qpn, flags, work, payload, headers_len: 0, repeat: 0, headers: [0; HEADERS] };
        self.then(packet.with_headers(headers).0)
    }

    /// A request of work leaves: RC SEND Only or WRITE Only.
    pub(crate) fn out(&mut self, work: u32, op: WorkOp, psn: u32, more: PacketFlags) -> &mut Self {
        let headers = request(self.peer, op, psn);
        self.raw(PacketFlags::OUT | PacketFlags::WORK | more, work, 64, &headers)
    }

    /// A request of the peer comes.
    pub(crate) fn request(&mut self, op: WorkOp, psn: u32) -> &mut Self {
        let headers = request(self.qpn, op, psn);
        self.raw(PacketFlags::empty(), 0, 64, &headers)
    }

    /// An answer to work comes.
    pub(crate) fn answer(&mut self, work: u32, psn: u32, syndrome: u8) -> &mut Self {
        let headers = answer(self.qpn, psn, syndrome);
        self.raw(PacketFlags::WORK, work, 0, &headers)
    }

    /// An answer to the peer leaves.
    pub(crate) fn respond(&mut self, psn: u32, syndrome: u8) -> &mut Self {
        let headers = answer(self.peer, psn, syndrome);
        self.raw(PacketFlags::OUT, 0, 0, &headers)
    }

    pub(crate) fn completed(&self, work: u32, op: WorkOp, status: Status) -> Completed {
        let queue = if op == WorkOp::Receive { Queue::Receive(self.qpn) } else { Queue::Send(self.qpn) };
        Completed {
            queue,
            work,
            id: u64::from(work) + 0x100,
            status,
            vendor_code: VendorCode::ALL.iter().copied().find(|code| code.status() == status),
            kind: if op == WorkOp::Receive { WorkKind::Receive } else { WorkKind::Write },
            flags: CompletedFlags::empty(),
            byte_len: 0,
            imm: 0,
            cq: 1,
            qpn: self.qpn,
            source_qp: 0,
            invalidated: Rkey(0),
        }
    }

    /// Work ends, and its completion is taken.
    pub(crate) fn end(&mut self, work: u32, op: WorkOp, status: Status) -> &mut Self {
        let completed = self.completed(work, op, status);
        let (qpn, is_receive) = (self.qpn, op == WorkOp::Receive);
        self.then(completed).then(Polled { qpn, cq: 1, id: completed.id, is_receive, is_forgotten: false })
    }

    /// Work of one packet that ends well.
    pub(crate) fn good(&mut self, work: u32, op: WorkOp, psn: u32) -> &mut Self {
        self.post(work, op, 64).out(work, op, psn, PacketFlags::empty());
        self.answer(work, psn, ACK).end(work, op, Status::Success)
    }

    pub(crate) fn region(&mut self, step: Step, address: u64, length: u64, access: Access) -> &mut Self {
        let kind = RegionKind::Region;
        let (lkey, rkey) = (Lkey(5), Rkey(0x77));
        self.then(Region { step, kind, lkey, rkey, address, length, access, domain: 1 })
    }
}

pub(crate) const ACK: u8 = 0x1f;
pub(crate) const RNR: u8 = 0x21;
pub(crate) const NAK_SEQUENCE: u8 = 0x60;
pub(crate) const NAK_INVALID: u8 = 0x61;
pub(crate) const NAK_ACCESS: u8 = 0x62;
pub(crate) const NAK_OPERATION: u8 = 0x63;

fn base(opcode: u8, dest: Qpn, psn: u32) -> Vec<u8> {
    let mut bytes = vec![opcode, 0x40, 0xff, 0xff, 0];
    bytes.extend(&dest.get().to_be_bytes()[1..]);
    bytes.push(0x80);
    bytes.extend(&(psn & 0xff_ffff).to_be_bytes()[1..]);
    bytes
}

pub(crate) fn request(dest: Qpn, op: WorkOp, psn: u32) -> Vec<u8> {
    if op == WorkOp::Send {
        return base(0x04, dest, psn);
    }
    let mut bytes = base(if op == WorkOp::Read { 0x0c } else { 0x0a }, dest, psn);
    bytes.extend(0x20_0000_u64.to_be_bytes());
    bytes.extend(0x77_u32.to_be_bytes());
    bytes.extend(64_u32.to_be_bytes());
    bytes
}

pub(crate) fn answer(dest: Qpn, psn: u32, syndrome: u8) -> Vec<u8> {
    let mut bytes = base(0x11, dest, psn);
    bytes.extend([syndrome, 0, 0, 1]);
    bytes
}

/// Reads scenes, each of which is a record, as if they were files.
pub(crate) fn told(scenes: &[&Scene], mut each: impl FnMut(Told)) {
    let of = |(source, scene): (usize, &&Scene)| {
        let seen = |stamped: &Stamped| Seen { source, stamped: *stamped };
        scene.events.iter().map(seen).collect::<Vec<_>>()
    };
    let mut all: Vec<Seen> = scenes.iter().enumerate().flat_map(of).collect();
    all.sort_by_key(|seen| seen.stamped.time);
    let assemblers = scenes.iter().map(|_| Assembler::new()).collect();
    let Ok(()) = put_together(assemblers, &mut all.into_iter(), |told| {
        each(told);
        ControlFlow::<Infallible>::Continue(())
    });
}
