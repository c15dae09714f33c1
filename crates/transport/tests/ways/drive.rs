//! One message after the other, down one of the ways that a SEND or WRITE can take.

use ferroce_sim::{Action, Device};
use ferroce_transport::{
    Acks, Data, Gather, Host, PayloadSource, QueuePair, SendRequest, Sge, State, Time, Window,
};
use ferroce_wire::{DataPacket, Flow, Packet, PayloadLen};

use crate::rig::{DOMAIN, Setup, Two};

/// How messages get from one queue pair to the other.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// As packets, each up the ladder of the responder.
    Ladder,
    /// As packets in bursts, each by the quick way where that takes it.
    Quick,
    /// Directly, out of the queue.
    Queued,
    /// Directly, in the call that posts.
    Posted,
}

impl Way {
    pub(crate) const ALL: [Self; 4] = [Self::Ladder, Self::Quick, Self::Queued, Self::Posted];

    /// Whether it does without packets what can be done without.
    pub(crate) const fn is_direct(self) -> bool {
        matches!(self, Self::Queued | Self::Posted)
    }
}

/// Two queue pairs, and the way between them.
pub(crate) struct Course {
    pub(crate) two: Two,
    pub(crate) way: Way,
    pub(crate) now: Time,
    windows: [Window; 2],
    /// Everything that the side which answers has sent.
    pub(crate) answers: Vec<Vec<u8>>,
}

impl Course {
    pub(crate) fn new(setup: &Setup, way: Way) -> Self {
        let mut two = Two::new(setup);
        for side in [0, 1] {
            for (index, byte) in two.memory(side).iter_mut().enumerate() {
                *byte = (index * 7 + side * 3 + index / 251).to_le_bytes()[0];
            }
        }
        let (now, windows) = (Time::from_nanos(1000), [Window::new(), Window::new()]);
        Self { two, way, now, windows, answers: Vec::new() }
    }

    /// Posts a message and lets it run as far as it comes.
    pub(crate) fn send(&mut self, request: &SendRequest<'_>) {
        let requests = [*request];
        let done = match self.way {
            Way::Posted => self.two.post_directly(self.now, &requests, u64::MAX),
            Way::Ladder | Way::Quick | Way::Queued => 0,
        };
        if done == 0 {
            let posted = self.two.pairs[0].post_send(request, &mut self.two.devices.0[0]);
            posted.expect("the work is in order");
        }
        self.run();
    }

    /// Does what can be done now.
    pub(crate) fn run(&mut self) {
        loop {
            if self.way.is_direct() {
                self.two.execute(self.now, u32::MAX, u64::MAX);
            }
            let sent = self.packets(0);
            let answers = self.packets(1);
            if sent + answers == 0 {
                return;
            }
        }
    }

    /// Moves the clock to where something is due, and does it; false if nothing is.
    pub(crate) fn wait(&mut self) -> bool {
        let Some(at) = self.two.pairs[0].poll_timeout() else { return false };
        self.now = at;
        let (pair, device) = (&mut self.two.pairs[0], &mut self.two.devices.0[0]);
        pair.handle_timeout(at, &mut self.windows[0], device);
        self.run();
        true
    }

    /// What happened at a side since the last time.
    pub(crate) fn log(&mut self, side: usize) -> Vec<String> {
        let mut log = Vec::new();
        self.two.devices.0[side].take_log(&mut log);
        let told = log.iter().filter(|action| {
            matches!(
                action,
                Action::SendDone(_) | Action::ReceiveDone(_) | Action::Event(..) | Action::Invalidated(_)
            )
        });
        told.map(|action| format!("{action:?}")).collect()
    }

    /// Whether both can still work.
    pub(crate) fn is_alive(&self) -> bool {
        self.two.pairs[0].state() == State::Rts && self.two.pairs[1].state() != State::Err
    }

    /// Lets all that a side sends arrive at the other; how many packets.
    fn packets(&mut self, side: usize) -> usize {
        let mut count = 0;
        while let Some(bytes) = self.next_packet(side) {
            count += 1;
            self.arrive(1 - side, &bytes);
            if side == 1 {
                self.answers.push(bytes);
            }
        }
        count
    }

    fn next_packet(&mut self, side: usize) -> Option<Vec<u8>> {
        let (pair, device) = (&mut self.two.pairs[side], &mut self.two.devices.0[side]);
        let window = &mut self.windows[side];
        if self.way == Way::Quick {
            let mut bytes = None;
            let sink = |device: &mut Device, data: &DataPacket, payload: &PayloadSource<'_>| {
                bytes = may_be_read(payload, device).then(|| encode(&data.to_packet(), payload, device));
                bytes.is_some()
            };
            pair.poll_data(self.now, 1, Some(Acks::Send), window, device, sink);
            if bytes.is_some() {
                return bytes;
            }
        }
        let transmit = pair.poll_transmit(self.now, Acks::Send, window, device)?;
        Some(encode(&transmit.packet, &transmit.payload, device))
    }

    fn arrive(&mut self, side: usize, bytes: &[u8]) {
        let (pair, device) = (&mut self.two.pairs[side], &mut self.two.devices.0[side]);
        let window = &mut self.windows[side];
        if self.way == Way::Quick
            && let Some((data, payload)) = DataPacket::parse(bytes)
            && pair.take_data(self.now, &data, payload, window, device)
        {
            return;
        }
        let packet = Packet::parse(bytes).expect("machines send packets");
        pair.handle_packet(self.now, &packet, None, window, device);
    }
}

/// All that can be seen of a side that is at rest, beside its memory.
pub(crate) fn seen(pair: &QueuePair) -> impl PartialEq + std::fmt::Debug + use<> {
    let counters = pair.counters();
    let refusals = [
        counters.nak_invalid_request_sent,
        counters.nak_remote_access_sent,
        counters.nak_remote_operation_sent,
        counters.rnr_sent,
        counters.nak_fatal_received,
        counters.rnr_received,
    ];
    let receives = (pair.receives_waiting(), pair.receives_taken());
    // The last acknowledgement tells which PSN is expected, and how many messages have passed.
    (pair.state(), pair.totals(), receives, pair.last_ack(), pair.owes_ack(), refusals)
}

fn may_be_read(payload: &PayloadSource<'_>, device: &mut Device) -> bool {
    match *payload {
        PayloadSource::Gather(mut pieces) => {
            pieces.all(|piece| device.check_local(DOMAIN, piece, false).is_ok())
        }
        PayloadSource::Nothing | PayloadSource::Inline(_) | PayloadSource::Remote { .. } => true,
    }
}

/// A packet as it goes over a wire.
fn encode(packet: &Packet<PayloadLen>, payload: &PayloadSource<'_>, device: &Device) -> Vec<u8> {
    let slice = |address, len: u32| device.memory.slice(address, len as usize).to_vec();
    let payload = match *payload {
        PayloadSource::Nothing => Vec::new(),
        PayloadSource::Inline(bytes) => bytes.to_vec(),
        PayloadSource::Gather(pieces) => {
            Gather::flat_map(pieces, |piece: Sge| slice(piece.address, piece.length)).collect()
        }
        PayloadSource::Remote { address, len, .. } => slice(address, len),
    };
    let packet = packet.map_payload(|_| &payload[..]);
    let mut bytes = vec![0; packet.len()];
    let flow = Flow::v4(([127, 0, 0, 1].into(), 4791), ([127, 0, 0, 1].into(), 4791), true);
    packet.emit(&flow, 0, &mut bytes).expect("the buffer has the length of the packet");
    bytes
}

/// The bytes of a request.
pub(crate) fn data<'a>(sges: &'a [Sge], inline: Option<&'a [u8]>) -> Data<'a> {
    inline.map_or(Data::Gather(sges), Data::Inline)
}
