//! Two connected queue pairs and the network between them, which a random program drives twice: with shorter ways, and without.

#[path = "../direct/rig.rs"]
#[allow(dead_code, reason = "the tests of messages without packets use the rest")]
pub(crate) mod rig;

use std::collections::VecDeque;
use std::time::Duration;

use ferroce_sim::Device;
use ferroce_transport::{
    Access, Acks, Attributes, Bind, Data, Gather, Host, PayloadSource, ReceiveRequest, SendFlags, SendOp,
    SendRequest, Sge, State, Time, Window,
};
use ferroce_wire::{
    Aeth, Body, DataPacket, DataVerb, Imm, Lkey, LoneAck, LoneSend, Msn, Packet, PayloadLen, Psn, Request,
    Response, Reth, Rkey, SendTail, Syndrome,
};
use rig::{Setup, Two};

/// A packet as it left, and its payload.
pub(crate) type Sent = (Packet<PayloadLen>, Vec<u8>);

/// Two queue pairs that are connected, and the network between them.
struct World {
    two: Two,
    windows: [Window; 2],
    /// What is on its way to each side.
    coming: [VecDeque<Sent>; 2],
    now: Time,
    /// Which shorter ways are gone.
    short: Short,
    /// How often each was.
    gone: Gone,
    /// All that has left.
    left: Vec<Sent>,
    /// The PSN after the last request of each side.
    next: [Psn; 2],
    /// The receives of side 1 come from a shared queue.
    is_shared: bool,
}

/// The shorter ways.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Short {
    /// Of messages that are alone.
    pub(crate) posts: bool,
    /// Of the acknowledgement of the only message.
    pub(crate) acks: bool,
    /// Of requests that come next.
    pub(crate) requests: bool,
}

/// How often they were gone.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Gone {
    pub(crate) posts: usize,
    pub(crate) acks: usize,
    pub(crate) requests: usize,
}

/// What a program, or the network, does.
#[derive(Clone, Debug)]
pub(crate) enum Step {
    Post {
        side: usize,
        what: What,
        how: How,
        length: u32,
        flags: u8,
    },
    /// A receive is posted; inline there is none.
    Receive {
        side: usize,
        length: u32,
        how: How,
    },
    /// The oldest packet arrives, or is lost.
    Arrive {
        side: usize,
        is_lost: bool,
    },
    /// An acknowledgement that is owed leaves, and whatever else there is.
    Send {
        side: usize,
    },
    Wait {
        micros: u64,
    },
    /// An acknowledgement comes that no peer has sent, for a packet so many after the last request.
    Lie {
        side: usize,
        after: i32,
        syndrome: u8,
        msn: u32,
    },
    /// The send queue stops between messages, or goes on.
    Drain {
        side: usize,
        begins: bool,
    },
    /// Work that needs no packets: a window is bound, or a key is taken out of use that is none.
    Bind {
        side: usize,
        is_good: bool,
    },
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum What {
    Send,
    Write,
    SendImm,
    Read,
}

#[derive(Clone, Copy, Debug)]
pub(crate) enum How {
    OnePiece,
    TwoPieces,
    Inline,
    BadKey,
}

impl World {
    fn new(setup: &Setup, short: Short) -> Self {
        let mut two = Two::new(setup);
        for side in [0, 1] {
            for (index, byte) in two.memory(side).iter_mut().enumerate() {
                *byte = (index % 251).to_le_bytes()[0];
            }
        }
        let windows = [Window::new(), Window::new()];
        let (now, left, coming) = (Time::from_nanos(1000), Vec::new(), Default::default());
        let next = [Psn::new(100); 2];
        let is_shared = setup.shared;
        Self { two, windows, coming, now, short, gone: Gone::default(), left, next, is_shared }
    }

    fn run(&mut self, step: &Step) {
        match *step {
            Step::Post { side, what, how, length, flags } => self.post(side, what, how, length, flags),
            Step::Receive { side, length, how } => self.receive(side, length, how),
            Step::Arrive { side, is_lost } => {
                if let Some((packet, bytes)) = self.coming[side].pop_front().filter(|_| !is_lost) {
                    self.arrive(side, &packet.map_payload(|_| &bytes[..]));
                }
            }
            Step::Send { side } => self.send(side, Acks::Send),
            Step::Wait { micros } => {
                self.now = self.now + Duration::from_micros(micros);
                for side in [0, 1] {
                    let (pair, device) = (&mut self.two.pairs[side], &mut self.two.devices.0[side]);
                    if pair.poll_timeout().is_some_and(|due| due <= self.now) {
                        pair.handle_timeout(self.now, &mut self.windows[side], device);
                    }
                }
            }
            Step::Lie { side, after, syndrome, msn } => {
                let psn = Psn::new(self.next[side].get().wrapping_add_signed(after) & (Psn::COUNT - 1));
                let aeth = Aeth { syndrome: Syndrome::from_byte(syndrome), msn: Msn::new(msn) };
                let body = Body::RcResponse(Response::Acknowledge(aeth));
                self.arrive(side, &Packet::new(self.two.pairs[side].qpn(), psn, body));
            }
            Step::Drain { side, begins } => {
                let to = if begins { State::Sqd } else { State::Rts };
                let (pair, device) = (&mut self.two.pairs[side], &mut self.two.devices.0[side]);
                let _ = pair.modify(&Attributes::to(to), &mut self.windows[side], device);
                self.send(side, Acks::Hold);
            }
            Step::Bind { side, is_good } => self.bind(side, is_good),
        }
    }

    fn receive(&mut self, side: usize, length: u32, how: How) {
        let sge = self.two.sge(side, 0x8000, length);
        let sges = match how {
            How::BadKey => vec![Sge { lkey: Lkey(sge.lkey.0 ^ 1), ..sge }],
            How::TwoPieces => vec![self.two.sge(side, 0x7000, 5), sge],
            How::OnePiece | How::Inline => vec![sge],
        };
        if self.is_shared && side == 1 {
            self.two.devices.0[1].shared[0].push(7, &sges);
        }
        let request = ReceiveRequest { id: 7, sges: &sges };
        let _ = self.two.pairs[side].post_receive(&request, &mut self.two.devices.0[side]);
    }

    /// A packet comes to a side.
    fn arrive(&mut self, side: usize, packet: &Packet<&[u8]>) {
        let (pair, device) = (&mut self.two.pairs[side], &mut self.two.devices.0[side]);
        let window = &mut self.windows[side];
        match data_of(packet) {
            Some((DataPacket { pkey, psn, verb: DataVerb::Acknowledge(aeth), .. }, _)) => {
                let ack = LoneAck { pkey, psn, aeth };
                let is_taken = self.short.acks && pair.take_only_ack(self.now, &ack, window, device);
                if is_taken {
                    self.gone.acks += 1;
                    return;
                }
            }
            Some((data, payload)) if self.short.requests => {
                if pair.passes_over(&data) {
                    return;
                }
                let DataPacket { pkey, psn, ack_request, solicited, begins, ends, verb, .. } = data;
                let head = LoneSend { pkey, psn, ack_request, solicited };
                let is_whole = begins && ends && verb == DataVerb::Send(SendTail::Plain);
                // A device asks only where nothing can be passed over.
                let is_taken = is_whole
                    && !pair.may_pass_over()
                    && pair.take_send(self.now, &head, payload, window, device);
                if is_taken || pair.take_data(self.now, &data, payload, window, device) {
                    self.gone.requests += 1;
                    return;
                }
            }
            _ => {}
        }
        pair.handle_packet(self.now, packet, None, window, device);
    }

    fn post(&mut self, side: usize, what: What, how: How, length: u32, flags: u8) {
        let (remote, sge) = (self.two.remote(1 - side, 0x4000), self.two.sge(side, 0x100, length));
        let op = match what {
            What::Send => SendOp::Send,
            What::Write => SendOp::Write(remote),
            What::SendImm => SendOp::SendImm(Imm(5)),
            What::Read => SendOp::Read(remote),
        };
        let pieces = match how {
            How::BadKey => vec![Sge { lkey: Lkey(sge.lkey.0 ^ 1), ..sge }],
            How::TwoPieces => vec![sge, self.two.sge(side, 0x200, 3)],
            How::OnePiece | How::Inline => vec![sge],
        };
        let bytes = vec![0x5a; length as usize];
        let data = if let How::Inline = how { Data::Inline(&bytes) } else { Data::Gather(&pieces) };
        let flags = SendFlags::from_bits_truncate(flags);
        let request = SendRequest { id: 9, op, data, flags, dest: None };
        let (pair, device) = (&mut self.two.pairs[side], &mut self.two.devices.0[side]);
        let mut went = Vec::new();
        if self.short.posts
            && pair.post_alone(self.now, &request, &mut self.windows[side], device, into(&mut went))
        {
            self.gone.posts += 1;
            return self.leave(side, went);
        }
        assert!(went.is_empty(), "nothing leaves that was not taken");
        let _ = pair.post_send(&request, device);
        self.send(side, Acks::Hold);
    }

    fn bind(&mut self, side: usize, is_good: bool) {
        let sge = self.two.sge(side, 0x300, 0);
        let (pair, device) = (&mut self.two.pairs[side], &mut self.two.devices.0[side]);
        let op = if is_good {
            let window = Rkey(device.memory.make_window(rig::DOMAIN));
            let (address, access) = (sge.address, Access::empty());
            let bind = Bind { window, new_key: window, region: sge.lkey, address, length: 0, access };
            SendOp::BindWindow(bind)
        } else {
            SendOp::LocalInvalidate(Rkey(0))
        };
        let flags = SendFlags::SIGNALED;
        let _ =
            pair.post_send(&SendRequest { id: 8, op, data: Data::Gather(&[]), flags, dest: None }, device);
        self.send(side, Acks::Hold);
    }

    /// As a device sends: in a burst, and then packet by packet.
    fn send(&mut self, side: usize, acks: Acks) {
        let (pair, device) = (&mut self.two.pairs[side], &mut self.two.devices.0[side]);
        let (window, mut went) = (&mut self.windows[side], Vec::new());
        pair.poll_data(self.now, 64, Some(acks), window, device, into(&mut went));
        while went.len() < 128
            && let Some(transmit) = pair.poll_transmit(self.now, acks, window, device)
        {
            went.push((transmit.packet, bytes(device, &transmit.payload)));
        }
        self.leave(side, went);
    }

    fn leave(&mut self, side: usize, went: Vec<Sent>) {
        for (packet, _) in &went {
            let after = packet.psn.next();
            if matches!(packet.body, Body::RcRequest(_)) && after.is_after(self.next[side]) {
                self.next[side] = after;
            }
        }
        self.left.extend(went.iter().cloned());
        self.coming[1 - side].extend(went);
    }

    /// Everything that can be seen, and everything that cannot.
    fn state(&mut self) -> String {
        let completions = [self.two.completions(0), self.two.completions(1)];
        format!("{:?} {:?} {completions:?}", self.two.pairs, self.windows)
    }
}

/// What shorter ways have of a packet, if there are any for it.
fn data_of<'a>(packet: &Packet<&'a [u8]>) -> Option<(DataPacket, &'a [u8])> {
    let (verb, begins, ends, payload) = match packet.body {
        Body::RcResponse(Response::Acknowledge(aeth)) => (DataVerb::Acknowledge(aeth), true, true, &[][..]),
        Body::RcRequest(Request::Send(segment, payload)) => {
            let tail = segment.tail().unwrap_or(SendTail::Plain);
            (DataVerb::Send(tail), segment.head().is_some(), segment.tail().is_some(), payload)
        }
        Body::RcRequest(Request::Write(segment, payload)) => {
            let head = segment.head().unwrap_or(Reth { address: 0, rkey: Rkey(0), length: 0 });
            let (begins, ends) = (segment.head().is_some(), segment.tail().is_some());
            (DataVerb::Write(head, segment.tail().flatten()), begins, ends, payload)
        }
        _ => return None,
    };
    let Packet { dest_qp, pkey, psn, ack_request, solicited, .. } = *packet;
    let payload_len = payload.len();
    let data =
        DataPacket { dest_qp, pkey, psn, ack_request, solicited, begins, ends, verb, payload: payload_len };
    Some((data, payload))
}

fn into(went: &mut Vec<Sent>) -> impl FnMut(&mut Device, &DataPacket, &PayloadSource<'_>) -> bool {
    |device, data, payload| {
        // What memory refuses is for the machine to say so.
        if let PayloadSource::Gather(pieces) = payload
            && Gather::any(&mut pieces.clone(), |piece| {
                Host::check_local(device, rig::DOMAIN, piece, false).is_err()
            })
        {
            return false;
        }
        went.push((data.to_packet(), bytes(device, payload)));
        true
    }
}

fn bytes(device: &Device, payload: &PayloadSource<'_>) -> Vec<u8> {
    let slice = |address, len: u32| device.memory.slice(address, len as usize).to_vec();
    match *payload {
        PayloadSource::Nothing => Vec::new(),
        PayloadSource::Inline(bytes) => bytes.to_vec(),
        PayloadSource::Gather(gather) => {
            Gather::flat_map(gather, |piece: Sge| slice(piece.address, piece.length)).collect()
        }
        PayloadSource::Remote { address, len, .. } => slice(address, len),
    }
}

/// Runs the same program with the shorter ways and without; how often they were gone.
pub(crate) fn compare(setup: &Setup, ways: Short, steps: &[Step]) -> Gone {
    let (mut long, mut short) = (World::new(setup, Short::default()), World::new(setup, ways));
    for (number, step) in steps.iter().enumerate() {
        long.run(step);
        short.run(step);
        assert_eq!(long.left, short.left, "what left, after step {number}, {step:?}");
        assert_eq!(long.state(), short.state(), "after step {number}, {step:?}");
    }
    for side in [0, 1] {
        assert!(long.two.memory(side) == short.two.memory(side), "memory of {side}");
    }
    assert_eq!(long.gone, Gone::default());
    short.gone
}
