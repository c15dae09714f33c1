//! A peer that sends whatever it likes, with the right PSN, to queue pairs that are at work: nothing panics,
//! nothing outside the registered regions is written, and the state stays one that makes sense.

use std::time::Duration;

use crate::common::*;
use ferroce_sim::{Pair, Setup, Side};
use ferroce_testkit::samples;
use ferroce_transport::{Access, Data, DomainId, SendFlags, SendOp, State};
use ferroce_wire::{
    Aeth, AtomicEth, Body, Datagram, Deth, Msn, Opcode, PKey, Packet, Payload, PayloadLen, PayloadRule, Psn,
    Request, Response, Reth, Rkey, Role, Segment, Service, Syndrome, UcRequest,
};
use proptest::prelude::*;

/// Bytes of B that a peer may touch, from this offset on; the rest of its memory has no key.
const OPEN: (u64, u64) = (0x2000, 0x1000);

/// Bytes of each host.
const MEMORY: usize = 0x8000;

/// Receives that B has posted.
const RECEIVES: usize = 8;

/// What B's own first request waits for.
const FIRST_RESPONSE: u32 = 0xff_fff0;

/// How a packet is bent towards its target, so that it gets past the first check.
#[derive(Clone, Copy, Debug)]
struct Aim {
    /// Distance of its PSN from the one that is expected.
    psn: i32,
    /// Whether its key is that of the open bytes.
    key: bool,
    /// Where in B's memory it points.
    offset: u64,
    /// What it claims to be long.
    length: u32,
    /// How long its payload is.
    payload: usize,
}

fn aims() -> impl Strategy<Value = Aim> {
    let psn = prop_oneof![8 => Just(0), 1 => -3..4_i32];
    let offset = prop_oneof![4 => OPEN.0..OPEN.0 + OPEN.1, 1 => 0..0x8000_u64];
    let length = prop_oneof![4 => 0..0x1100_u32, 1 => any::<u32>()];
    let payload = prop_oneof![2 => Just(1024_usize), 1 => 0..2048_usize];
    (psn, any::<bool>(), offset, length, payload).prop_map(|(psn, key, offset, length, payload)| Aim {
        psn,
        key,
        offset,
        length,
        payload,
    })
}

/// Packets of the services that the queue pairs speak, and of some others.
fn attacks() -> impl Strategy<Value = Vec<(Opcode, samples::Numbers, Aim)>> {
    let opcodes: Vec<Opcode> = Opcode::all().collect();
    prop::collection::vec((prop::sample::select(opcodes), samples::numbers(), aims()), 1..40)
}

/// The packet that an attack sends to B, which expects this PSN.
fn aimed(
    pair: &Pair,
    expected: u32,
    key: Rkey,
    (opcode, numbers, aim): &(Opcode, samples::Numbers, Aim),
) -> Packet<PayloadLen> {
    let len = match opcode.info().payload {
        PayloadRule::Nothing | PayloadRule::EightBytes => 0,
        PayloadRule::FullMtu | PayloadRule::UpToMtu => aim.payload,
        PayloadRule::OneToMtu => aim.payload.max(1),
    };
    let mut packet = samples::packet(*opcode, len, numbers);
    packet.dest_qp = Pair::qpn(Side::B);
    packet.psn = Psn::new(expected.wrapping_add_signed(aim.psn));
    packet.pkey = PKey::DEFAULT;
    let address = pair.remote(Side::B, aim.offset).address;
    let at = |reth: &mut Reth| {
        let rkey = if aim.key { key } else { reth.rkey };
        *reth = Reth { address, rkey, length: aim.length };
    };
    let atomic = |eth: &mut AtomicEth| {
        *eth = AtomicEth { address, rkey: if aim.key { key } else { eth.rkey }, ..*eth };
    };
    match &mut packet.body {
        Body::RcRequest(Request::Write(Segment::First(reth) | Segment::Only(reth, _), _))
        | Body::Uc(UcRequest::Write(Segment::First(reth) | Segment::Only(reth, _), _))
        | Body::RcRequest(Request::Read(reth)) => at(reth),
        Body::RcRequest(Request::AtomicWrite(reth, _)) => {
            at(reth);
            reth.length = if aim.length % 4 == 0 { aim.length } else { 8 };
        }
        Body::RcRequest(
            Request::CompareSwap(eth)
            | Request::FetchAdd(eth)
            | Request::MaskedCompareSwap(eth, _)
            | Request::MaskedFetchAdd(eth, _),
        ) => atomic(eth),
        Body::Ud(Datagram { deth, .. }) => *deth = Deth { qkey: Pair::QKEY, ..*deth },
        _ => {}
    }
    packet
}

/// A pair whose B is at work and whose own packets are all lost; B's memory is closed but for OPEN.
fn victim(service: Service) -> (Pair, Rkey) {
    let region_access = Access::LOCAL_WRITE;
    let setup = Setup { service, region_access, memory: MEMORY, ..Setup::default() };
    let mut pair = Pair::connect(&setup);
    let address = pair.remote(Side::B, OPEN.0).address;
    let memory = &mut pair.node(Side::B).device.memory;
    let key = memory.register(DomainId(1), address, OPEN.1, Access::all());
    for id in 0..RECEIVES as u64 {
        // All receives share bytes of the open range.
        post_receive(&mut pair, Side::B, id, OPEN.0, 0x900);
    }
    cut_both(&mut pair);
    if service == Service::Rc {
        let (long, short) = (pair.sge(Side::B, OPEN.0, 0x800), pair.sge(Side::B, OPEN.0, 8));
        let remote = pair.remote(Side::A, 0);
        let add = SendOp::FetchAdd { remote, add: 1 };
        let ops =
            [(SendOp::Write(remote), long), (SendOp::Read(remote), long), (add, short), (SendOp::Send, long)];
        for (id, (op, sge)) in (0..).zip(ops) {
            post_with(&mut pair, Side::B, id, op, Data::Gather(&[sge]), SendFlags::SIGNALED);
        }
    }
    pair.run_for(Duration::from_micros(1));
    (pair, Rkey(key))
}

/// Follows what a right packet would have to carry as its PSN.
fn expected_psn(pair: &Pair, before: u64, psn: u32, packet: &Packet<PayloadLen>) -> u32 {
    if pair.counters(Side::B).requests_received == before {
        return psn;
    }
    let packets = match &packet.body {
        Body::RcRequest(Request::Read(reth)) => reth.length.div_ceil(1024).max(1),
        _ => 1,
    };
    packet.psn.get() + packets
}

/// Sends all of it; whenever a queue pair has enough, the next one takes its place.
fn assault(service: Service, attacks: &[(Opcode, samples::Numbers, Aim)]) {
    let bytes = [0x5a; 4096];
    let mut rest = attacks;
    while !rest.is_empty() {
        let (mut pair, key) = victim(service);
        let (mut request, mut response) = (START, FIRST_RESPONSE);
        while let Some((attack, others)) = rest.split_first()
            && pair.queue_pair(Side::B).state() != State::Err
        {
            rest = others;
            let is_response = attack.0.info().role == Role::Response;
            let psn = if is_response { response } else { request };
            let packet = aimed(&pair, psn, key, attack);
            let before = pair.counters(Side::B).requests_received;
            pair.inject(Side::B, &packet.map_payload(|len| &bytes[..len.len()]));
            pair.run_for(Duration::from_micros(1));
            request = expected_psn(&pair, before, request, &packet);
            response += u32::from(is_response && attack.2.psn == 0);
        }
        assert_unharmed(pair, service);
    }
}

/// Beyond the open bytes nothing was written, and everything that was posted ends once.
fn assert_unharmed(mut pair: Pair, service: Service) {
    let (open, end) = (0x2000, 0x3000);
    assert_untouched(&mut pair, Side::B, 0, open);
    assert_untouched(&mut pair, Side::B, end, MEMORY - end);
    assert_untouched(&mut pair, Side::A, 0, MEMORY);
    let posted = if service == Service::Rc { 4 } else { 0 };
    let sends = pair.take_sends(Side::B).len();
    let receives = pair.take_receives(Side::B).len();
    match pair.queue_pair(Side::B).state() {
        State::Err => {
            assert_eq!((sends, receives), (posted, RECEIVES), "each work ends once");
            assert_eq!(pair.queue_pair(Side::B).poll_timeout(), None);
        }
        State::Rts => {
            assert_eq!(sends + pair.queue_pair(Side::B).sends_waiting() as usize, posted);
            assert!(receives <= RECEIVES);
        }
        other => panic!("a peer led the queue pair to {other}"),
    }
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn hostile_packets_harm_no_reliable_connection(attacks in attacks()) {
        assault(Service::Rc, &attacks);
    }

    #[test]
    fn hostile_packets_harm_no_unreliable_connection(attacks in attacks()) {
        assault(Service::Uc, &attacks);
    }

    #[test]
    fn hostile_packets_harm_no_datagram_queue_pair(attacks in attacks()) {
        assault(Service::Ud, &attacks);
    }
}

/// Answers with every syndrome and MSN, for PSNs under way: credits from nowhere cause no overflow.
#[test]
fn acks_with_any_syndrome_and_msn_are_harmless() {
    for byte in 0..=u8::MAX {
        for msn in [0, 1, 0x7f_ffff, 0x80_0000, 0xff_ffff] {
            let (mut pair, _) = victim(Service::Rc);
            let aeth = Aeth { syndrome: Syndrome::from_byte(byte), msn: Msn::new(msn) };
            let body = Body::RcResponse(Response::Acknowledge(aeth));
            pair.inject(Side::B, &Packet::new(Pair::qpn(Side::B), Psn::new(FIRST_RESPONSE), body));
            pair.run_for(Duration::from_micros(1));
            assert_unharmed(pair, Service::Rc);
        }
    }
}
