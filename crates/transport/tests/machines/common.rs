//! What the named tests share: short words for posting, for what completed, for what went over
//! the wire, and for packets of a peer that does not follow the rules.

use std::time::Duration;

use ferroce_sim::{Pair, Sent, Setup, Side, Verdict};
use ferroce_transport::{
    Completion, Data, Event, ReceiveRequest, SendFlags, SendOp, SendRequest, Sge, State, Status,
};
use ferroce_wire::{
    Aeth, Body, CreditCode, Msn, NakCode, Packet, Psn, ReadSegment, Request, Response, Reth, RnrTimer,
    Segment, SendTail, Syndrome,
};

/// The first PSN of A in a pair with default setup.
pub(crate) const START: u32 = 0x10;

/// A pair whose setup differs from the default in these points.
pub(crate) fn pair(change: impl FnOnce(&mut Setup)) -> Pair {
    let mut setup = Setup::default();
    change(&mut setup);
    Pair::connect(&setup)
}

/// Posts signaled work on A.
pub(crate) fn post(pair: &mut Pair, id: u64, op: SendOp, sges: &[Sge]) {
    post_with(pair, Side::A, id, op, Data::Gather(sges), SendFlags::SIGNALED);
}

/// Posts work.
pub(crate) fn post_with(pair: &mut Pair, side: Side, id: u64, op: SendOp, data: Data<'_>, flags: SendFlags) {
    pair.post_send(side, &SendRequest { id, op, data, flags, dest: None }).expect("the work is in order");
}

/// Posts a signaled WRITE of `length` bytes at the front of A's memory to the front of B's.
pub(crate) fn post_write(pair: &mut Pair, id: u64, length: u32) {
    let op = SendOp::Write(pair.remote(Side::B, 0));
    let sge = pair.sge(Side::A, 0, length);
    post(pair, id, op, &[sge]);
}

/// Posts a signaled READ of `length` bytes at the front of B's memory to the front of A's.
pub(crate) fn post_read(pair: &mut Pair, id: u64, length: u32) {
    let op = SendOp::Read(pair.remote(Side::B, 0));
    let sge = pair.sge(Side::A, 0, length);
    post(pair, id, op, &[sge]);
}

/// Posts a signaled SEND of `length` bytes at the front of A's memory.
pub(crate) fn post_message(pair: &mut Pair, id: u64, length: u32) {
    let sge = pair.sge(Side::A, 0, length);
    post(pair, id, SendOp::Send, &[sge]);
}

/// Posts a signaled fetch-and-add to B's word at `word`, whose answer goes to A's word at `answer`.
pub(crate) fn post_add(pair: &mut Pair, id: u64, (word, answer): (u64, u64), add: u64) {
    let op = SendOp::FetchAdd { remote: pair.remote(Side::B, word), add };
    let sge = pair.sge(Side::A, answer, 8);
    post(pair, id, op, &[sge]);
}

/// Posts a receive of one piece.
pub(crate) fn post_receive(pair: &mut Pair, side: Side, id: u64, offset: u64, length: u32) {
    let sges = [pair.sge(side, offset, length)];
    pair.post_receive(side, &ReceiveRequest { id, sges: &sges }).expect("the receive is in order");
}

/// Puts a pattern into a side's memory: byte `i` of it depends on `i` and on `tag`.
pub(crate) fn fill(pair: &mut Pair, side: Side, offset: usize, len: usize, tag: u8) {
    for (index, byte) in pair.memory(side)[offset..offset + len].iter_mut().enumerate() {
        *byte = pattern(index, tag);
    }
}

fn pattern(index: usize, tag: u8) -> u8 {
    let mixed = (index + 1).wrapping_mul(0x9e37_79b1) >> 7;
    mixed.to_le_bytes()[0] ^ tag
}

/// Asserts that a side's memory holds that pattern.
#[track_caller]
pub(crate) fn assert_filled(pair: &mut Pair, side: Side, offset: usize, len: usize, tag: u8) {
    let bytes = &pair.memory(side)[offset..offset + len];
    let wrong = bytes.iter().enumerate().find(|(index, byte)| **byte != pattern(*index, tag));
    assert_eq!(wrong, None, "{side:?} holds another byte than was sent");
}

/// Asserts that nothing was written to a side's memory.
#[track_caller]
pub(crate) fn assert_untouched(pair: &mut Pair, side: Side, offset: usize, len: usize) {
    let touched = pair.memory(side)[offset..offset + len].iter().position(|byte| *byte != 0);
    assert_eq!(touched, None, "{side:?} was written to");
}

/// The eight bytes at `offset` as a number.
pub(crate) fn word(pair: &mut Pair, side: Side, offset: usize) -> u64 {
    let mut word = [0; 8];
    word.copy_from_slice(&pair.memory(side)[offset..offset + 8]);
    u64::from_ne_bytes(word)
}

/// Stores a number.
pub(crate) fn set_word(pair: &mut Pair, side: Side, offset: usize, value: u64) {
    pair.memory(side)[offset..offset + 8].copy_from_slice(&value.to_ne_bytes());
}

/// What a completion says, in short: id, status, bytes.
pub(crate) type End = (u64, Status, u32);

fn ends(completions: &[Completion]) -> Vec<End> {
    completions.iter().map(|one| (one.id, one.status, one.byte_len)).collect()
}

/// Asserts how a side's sends ended since the last time, in order.
#[track_caller]
pub(crate) fn assert_sends(pair: &mut Pair, side: Side, wanted: &[End]) {
    assert_eq!(ends(&pair.take_sends(side)), wanted, "send completions of {side:?}");
}

/// Asserts how a side's receives ended since the last time, in order.
#[track_caller]
pub(crate) fn assert_receives(pair: &mut Pair, side: Side, wanted: &[End]) {
    assert_eq!(ends(&pair.take_receives(side)), wanted, "receive completions of {side:?}");
}

/// Asserts the states of A and of B.
#[track_caller]
pub(crate) fn assert_states(pair: &Pair, a: State, b: State) {
    let states = [Side::A, Side::B].map(|side| pair.queue_pair(side).state());
    assert_eq!(states, [a, b], "states of A and B");
}

/// Asserts which events A and B had since the last time.
#[track_caller]
pub(crate) fn assert_events(pair: &mut Pair, a: &[Event], b: &[Event]) {
    let events = [Side::A, Side::B].map(|side| pair.take_events(side));
    assert_eq!(events, [a, b], "events of A and B");
}

/// Asserts that both are in RTS, without events, and with nothing more completed.
#[track_caller]
pub(crate) fn assert_at_peace(pair: &mut Pair) {
    assert_states(pair, State::Rts, State::Rts);
    assert_events(pair, &[], &[]);
    for side in [Side::A, Side::B] {
        assert_sends(pair, side, &[]);
        assert_receives(pair, side, &[]);
        assert_eq!(pair.queue_pair(side).sends_waiting(), 0, "{side:?} still has work");
        assert_eq!(pair.queue_pair(side).poll_timeout(), None, "{side:?} still has a timer");
    }
}

/// The packets of both sides in the order in which they left, one short line each.
///
/// Side, operation, PSN; `ask` if an acknowledgement is asked for; what a READ asks for, as
/// offset and length; of answers the syndrome and the MSN.
pub(crate) fn wire(pair: &Pair) -> Vec<String> {
    pair.sent.iter().map(|sent| line(pair, sent)).collect()
}

/// The lines of one side only.
pub(crate) fn wire_of(pair: &Pair, side: Side) -> Vec<String> {
    pair.sent.iter().filter(|sent| sent.from == side).map(|sent| line(pair, sent)).collect()
}

/// Asserts what went over the wire.
#[track_caller]
pub(crate) fn assert_wire(pair: &Pair, wanted: &[&str]) {
    let lines = wire(pair);
    assert_eq!(lines, wanted, "packets:\n{}", lines.join("\n"));
}

fn line(pair: &Pair, sent: &Sent) -> String {
    let packet = sent.packet();
    let (side, psn) = (sent.from, packet.psn.get());
    let ask = if packet.ack_request { " ask" } else { "" };
    let name = packet.opcode().info().operation.name();
    let (name, more) = match packet.body {
        Body::RcResponse(Response::Acknowledge(Aeth { syndrome, msn })) => {
            (syndrome.name(), format!(" msn={}", msn.get()))
        }
        Body::RcResponse(
            Response::AtomicAcknowledge(Aeth { msn, .. }, _)
            | Response::Read(
                ReadSegment::First(Aeth { msn, .. })
                | ReadSegment::Last(Aeth { msn, .. })
                | ReadSegment::Only(Aeth { msn, .. }),
                _,
            ),
        ) => (name, format!(" msn={}", msn.get())),
        Body::RcRequest(Request::Read(reth)) => {
            let offset = reth.address.wrapping_sub(pair.remote(side.other(), 0).address);
            (name, format!(" at={offset} len={}", reth.length))
        }
        _ => (name, String::new()),
    };
    let name = name.strip_prefix("RDMA ").unwrap_or(name);
    format!("{side:?} {name} {psn:x}{ask}{more}")
}

/// Loses the packets with these numbers (from 0, in the order of leaving) of one side.
pub(crate) fn lose(pair: &mut Pair, from: Side, numbers: &[usize]) {
    let numbers = numbers.to_vec();
    pair.filter(move |sent| {
        if sent.from == from && numbers.contains(&sent.number) { Verdict::Drop } else { Verdict::Deliver }
    });
}

/// Loses everything that one side sends.
pub(crate) fn cut(pair: &mut Pair, from: Side) {
    pair.filter(move |sent| if sent.from == from { Verdict::Drop } else { Verdict::Deliver });
}

/// Loses everything: what arrives is what the test injects.
pub(crate) fn cut_both(pair: &mut Pair) {
    pair.filter(|_| Verdict::Drop);
}

/// Loses nothing.
pub(crate) fn heal(pair: &mut Pair) {
    pair.filter(|_| Verdict::Deliver);
}

/// Lets B receive a request of A's that A never sent, and gives B the time to answer.
pub(crate) fn inject_request(pair: &mut Pair, psn: u32, request: Request<&[u8]>) {
    let mut packet = Packet::new(Pair::qpn(Side::B), Psn::new(psn), Body::RcRequest(request));
    packet.ack_request = true;
    pair.inject(Side::B, &packet);
    pair.run_for(Duration::from_micros(1));
}

/// Lets A receive a response that B never sent.
pub(crate) fn inject_response(pair: &mut Pair, psn: u32, response: Response<&[u8]>) {
    let packet = Packet::new(Pair::qpn(Side::A), Psn::new(psn), Body::RcResponse(response));
    pair.inject(Side::A, &packet);
    pair.run_for(Duration::from_micros(1));
}

/// An acknowledgement by a responder that counts no credits.
pub(crate) fn ack(msn: u32) -> Response<&'static [u8]> {
    answer(Syndrome::Ack(CreditCode::UNCOUNTED), msn)
}

/// A refusal.
pub(crate) fn nak(code: NakCode, msn: u32) -> Response<&'static [u8]> {
    answer(Syndrome::Nak(code), msn)
}

/// No receive is posted.
pub(crate) fn rnr(timer: u8, msn: u32) -> Response<&'static [u8]> {
    answer(Syndrome::RnrNak(RnrTimer::new(timer)), msn)
}

fn answer(syndrome: Syndrome, msn: u32) -> Response<&'static [u8]> {
    Response::Acknowledge(Aeth { syndrome, msn: Msn::new(msn) })
}

/// The AETH of a READ response or atomic answer that counts no credits.
pub(crate) fn aeth(msn: u32) -> Aeth {
    Aeth { syndrome: Syndrome::Ack(CreditCode::UNCOUNTED), msn: Msn::new(msn) }
}

/// Where a message goes in B's memory.
pub(crate) fn reth(pair: &Pair, offset: u64, length: u32) -> Reth {
    let remote = pair.remote(Side::B, offset);
    Reth { address: remote.address, rkey: remote.rkey, length }
}

/// A SEND of one packet.
pub(crate) fn send_only(payload: &[u8]) -> Request<&[u8]> {
    Request::Send(Segment::Only((), SendTail::Plain), payload)
}
