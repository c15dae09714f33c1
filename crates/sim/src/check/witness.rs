//! What an end may do while a liar speaks to it.
//!
//! On such a connection nothing can be compared with what was posted at the other end: what arrives is what the liar
//! made of it. So the witness of an end looks at the packets themselves, as they arrive and leave, and keeps just enough of the
//! protocol to say what each of them may cause. What the connection comes to is its own affair: it may end at any
//! time.

mod actions;

use std::collections::VecDeque;

use ferroce_transport::{Access, Accessor, Counters, Denied, State};
use ferroce_wire::{
    Aeth, Body, Packet, PathMtu, PayloadLen, PayloadRule, Psn, Request, Response, Reth, Syndrome,
};

use super::model::{Cause, End, Model};
use super::{Violation, broken};
use crate::memory::Memory;
use crate::world::HostState;

/// What is known of an end in its present life.
#[derive(Debug)]
pub struct Witness {
    mtu: u32,
    /// What the queue pair lets its peer do.
    rights: Access,
    /// The PSN of the request that comes next.
    expected: Psn,
    message: Arriving,
    /// READs that came, the newest last.
    asked: VecDeque<Asked>,
    /// Atomics that were done, and what each found, the newest last.
    found: VecDeque<(Psn, u64)>,
    /// Behind this PSN something arrived before it.
    gap: Option<Psn>,
    /// Requests that the machine took, when it was last looked at.
    taken: u64,
    /// The packet that the machine has before it.
    arrived: Option<Arrived>,
    /// Bytes of it that were placed.
    placed: u32,
    /// One past the last PSN that was sent, and that was answered.
    sent: Psn,
    answered: Psn,
    /// Messages whose PSNs are counted, and the PSN of the next one.
    counted: (usize, Psn),
}

/// The message that is arriving.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Arriving {
    Nothing,
    Send { received: u32 },
    Write { place: Reth, placed: u32 },
}

/// A READ request.
#[derive(Clone, Copy, Debug)]
struct Asked {
    psn: Psn,
    packets: u32,
    place: Reth,
    /// It was not taken as the next request: it came again.
    again: bool,
    /// Packets of its answer that left.
    answered: u32,
}

/// A packet that has arrived.
#[derive(Debug)]
struct Arrived {
    psn: Psn,
    body: Body<PayloadLen>,
    payload: Vec<u8>,
}

/// READs and atomics that are remembered.
const REMEMBERED: usize = 64;

/// No peer has so many packets under way.
const PLAUSIBLE: i32 = 1 << 20;

impl Witness {
    /// The witness of an end that begins like this.
    #[must_use]
    pub fn new(mtu: u32, rights: Access, (sends_from, expects): (Psn, Psn), counters: &Counters) -> Self {
        Self {
            mtu,
            rights,
            expected: expects,
            message: Arriving::Nothing,
            asked: VecDeque::new(),
            found: VecDeque::new(),
            gap: None,
            taken: counters.requests_received,
            arrived: None,
            placed: 0,
            sent: sends_from,
            answered: sends_from,
            counted: (0, sends_from),
        }
    }

    fn packets(&self, length: u32) -> u32 {
        length.div_ceil(self.mtu).max(1)
    }

    /// The request that the machine has before it, if it is the one that comes next.
    fn next_request(&self) -> Option<(&Request<PayloadLen>, &[u8])> {
        match &self.arrived {
            Some(Arrived { psn, body: Body::RcRequest(request), payload }) if *psn == self.expected => {
                Some((request, payload))
            }
            _ => None,
        }
    }

    /// Where the bytes of a packet of a WRITE belong.
    fn place_of(&self, request: &Request<PayloadLen>) -> Option<(Reth, u32)> {
        match (request, self.message) {
            (Request::Write(segment, _), _) if segment.head().is_some() => Some((segment.head()?, 0)),
            (Request::Write(..), Arriving::Write { place, placed }) => Some((place, placed)),
            _ => None,
        }
    }

    /// Whether a request that was taken keeps the rules; what is wrong if it does not.
    fn objection(
        &self,
        request: &Request<PayloadLen>,
        len: u32,
        memory: &Memory,
        end: &End,
    ) -> Option<String> {
        let (needed, key) = match request {
            Request::Send(..) => (Access::empty(), None),
            Request::Write(segment, _) => (Access::REMOTE_WRITE, segment.head()),
            Request::Read(reth) => (Access::REMOTE_READ, Some(*reth)),
            Request::Flush(..) => return Some("a FLUSH, which is not offered".into()),
            atomic => {
                let (place, op) = actions::requested(atomic)?;
                if place.length != 8 || !place.address.is_multiple_of(8) {
                    return Some("no eight bytes at a multiple of eight".into());
                }
                (op.access(), Some(place))
            }
        };
        if !self.rights.contains(needed) {
            return Some(format!("the queue pair does not give {needed:?}"));
        }
        if let Some(reth) = key.filter(|reth| reth.length > 0)
            && let Err(denied) = self.check_key(reth, needed, memory, end)
        {
            return Some(format!("{denied} ({reth:x?})"));
        }
        let position = match request {
            Request::Send(segment, _) => (segment.head().is_some(), segment.tail().is_some()),
            Request::Write(segment, _) => (segment.head().is_some(), segment.tail().is_some()),
            _ if self.message != Arriving::Nothing => return Some("it came inside of a message".into()),
            _ => return None,
        };
        let continues = match (self.message, request) {
            (Arriving::Nothing, _) => None,
            (Arriving::Send { .. }, Request::Send(..)) | (Arriving::Write { .. }, Request::Write(..)) => {
                Some(true)
            }
            _ => Some(false),
        };
        if position.0 != continues.is_none() || continues == Some(false) {
            return Some(format!("it does not follow {:?}", self.message));
        }
        let rule = PayloadRule::of_position(position.0, position.1);
        let mtu = PathMtu::ALL.into_iter().find(|mtu| mtu.bytes() == self.mtu as usize)?;
        if !rule.permits_at(len as usize, mtu) {
            return Some(format!("{len} bytes in a packet of this place"));
        }
        let (place, placed) = self.place_of(request)?;
        let after = u64::from(placed) + u64::from(len);
        let fits =
            if position.1 { after == u64::from(place.length) } else { after < u64::from(place.length) };
        (!fits).then(|| format!("byte {after} of a WRITE of {} bytes", place.length))
    }

    fn check_key(&self, reth: Reth, needed: Access, memory: &Memory, end: &End) -> Result<(), Denied> {
        memory.check_remote(end.domain, end.qpn, reth.rkey, (reth.address, u64::from(reth.length)), needed)
    }

    /// A request was taken.
    fn advance(&mut self, request: &Request<PayloadLen>, len: u32) {
        let mut packets = 1;
        match request {
            Request::Send(segment, _) => {
                let received = match self.message {
                    Arriving::Send { received } => received,
                    _ => 0,
                };
                let ends = segment.tail().is_some();
                self.message =
                    if ends { Arriving::Nothing } else { Arriving::Send { received: received + len } };
            }
            Request::Write(segment, _) => {
                let ends = segment.tail().is_some();
                self.message = match self.place_of(request) {
                    Some((place, placed)) if !ends => Arriving::Write { place, placed: placed + len },
                    _ => Arriving::Nothing,
                };
            }
            Request::Read(place) => {
                packets = self.packets(place.length);
                self.ask(self.expected, *place, false);
            }
            _ => {}
        }
        self.expected += packets;
    }

    fn ask(&mut self, psn: Psn, place: Reth, again: bool) {
        if self.asked.len() == REMEMBERED {
            self.asked.pop_front();
        }
        let packets = self.packets(place.length);
        self.asked.push_back(Asked { psn, packets, place, again, answered: 0 });
    }

    /// A response was taken in: what it may have answered.
    fn hear(&mut self, psn: Psn, response: &Response<PayloadLen>) {
        // Of what was never sent it says nothing.
        if !psn.is_before(self.sent) {
            return;
        }
        let upto = match response {
            Response::Acknowledge(Aeth { syndrome: Syndrome::Reserved(_), .. }) => return,
            Response::Acknowledge(Aeth { syndrome: Syndrome::Nak(_) | Syndrome::RnrNak(_), .. }) => psn,
            _ => psn.next(),
        };
        if upto.is_after(self.answered) {
            self.answered = upto;
        }
    }
}

impl Model {
    /// Whether a liar speaks to this end.
    #[must_use]
    pub fn is_lied_to(&self, end: usize) -> bool {
        self.ends[end].witness.is_some()
    }

    /// The end that has this queue pair on a host, if a liar speaks to it.
    pub(super) fn lied_to(&self, host: usize, by: Accessor) -> Option<usize> {
        let end = self.ends.iter().position(|end| end.at.host == host && end.qpn == by.qpn)?;
        self.is_lied_to(end).then_some(end)
    }

    /// A packet has arrived at an end; the machine has dealt with it.
    pub fn witness_arrival(&mut self, end: usize, packet: &Packet<&[u8]>) {
        if let Some(witness) = &mut self.ends[end].witness {
            let payload = packet.payload().to_vec();
            let body = packet.map_payload(|payload| PayloadLen(payload.len())).body;
            if let Body::RcResponse(response) = &body {
                witness.hear(packet.psn, response);
            }
            witness.arrived = Some(Arrived { psn: packet.psn, body, payload });
            witness.placed = 0;
        }
    }

    /// A machine has returned.
    ///
    /// `nothing-twice`: only the request that comes next is taken, and only if it keeps all rules: the order of
    /// packets, their lengths, the key of the whole range, the rights of the queue pair.
    ///
    /// `repeats-end-nothing`: a request that came before, in whatever form it comes again, ends no connection; not at
    /// once, and not when its answer leaves.
    ///
    /// # Errors
    /// One of these does not hold.
    pub fn witness_return(&mut self, hosts: &[HostState], by: usize, state: State) -> Result<(), Violation> {
        let end = &mut self.ends[by];
        let Some(mut witness) = end.witness.take() else { return Ok(()) };
        let node = &hosts[end.at.host].node;
        let took = node.queue_pair(end.at.slot).counters().requests_received;
        let is_taken = took > witness.taken;
        witness.taken = took;
        let fell = state == State::Err
            && end.state != State::Err
            && end.cause.is_none_or(|cause| cause == Cause::Peer);
        let arrived = witness.arrived.take();
        let result = match &arrived {
            Some(Arrived { psn, body: Body::RcRequest(request), payload }) => {
                let len = u32::try_from(payload.len()).unwrap_or(u32::MAX);
                let distance = psn.distance_from(witness.expected);
                if distance < 0 && fell {
                    broken("repeats-end-nothing", format!("end {by} fell by {request:x?}, which came before"))
                } else if is_taken && distance != 0 {
                    let what = format!("end {by} took {request:x?} with psn 0x{:x}", psn.get());
                    broken("nothing-twice", format!("{what}, and expected 0x{:x}", witness.expected.get()))
                } else if is_taken {
                    // A SEND may have taken the key of its own window out of use; the others need theirs still.
                    match witness.objection(request, len, &node.device.memory, end) {
                        Some(why) => broken("nothing-twice", format!("end {by} took {request:x?}: {why}")),
                        None => {
                            witness.advance(request, len);
                            Ok(())
                        }
                    }
                } else {
                    if (1..PLAUSIBLE).contains(&distance) {
                        witness.gap = Some(witness.expected);
                    }
                    if let Request::Read(place) = request
                        && distance < 0
                    {
                        witness.ask(*psn, *place, true);
                    }
                    Ok(())
                }
            }
            None if fell && end.cause == Some(Cause::Peer) => {
                // Without a packet only a READ can have done it whose memory is gone before its answer left.
                let is_reason = |asked: &Asked| {
                    let open = asked.answered < asked.packets && !asked.again;
                    open && witness
                        .check_key(asked.place, Access::REMOTE_READ, &node.device.memory, end)
                        .is_err()
                };
                let what =
                    format!("end {by} fell while it answered, and no READ that it took gives a reason");
                if witness.asked.iter().any(is_reason) { Ok(()) } else { broken("repeats-end-nothing", what) }
            }
            _ => Ok(()),
        };
        self.ends[by].witness = Some(witness);
        result
    }
}
