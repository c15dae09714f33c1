//! The peer itself means no good: it has the right address and knows every number.

use std::net::SocketAddr;

use ferroce_device::fabric::PORT;
use ferroce_device::{Nic, PathPolicy};
use ferroce_testkit::samples::{self, Numbers};
use ferroce_transport::{Attributes, Counters, ReceiveRequest, State, Status};
use ferroce_wire::{
    AtomicEth, Body, NakCode, Opcode, Packet, PayloadRule, Psn, Qpn, Request, Response, Reth, Rkey, Segment,
    SendTail, Service, Syndrome,
};
use rand_core::Rng;

use crate::NET;
use crate::attacker::{Attacker, TAIL};
use crate::common::{PATIENCE, Peer, Side, device};
use crate::victim::Watched;

/// A queue pair whose peer is a socket in our hands.
struct Betrayed {
    side: Side,
    peer: Peer,
    watched: Watched,
    attacker: Attacker,
}

impl Betrayed {
    fn new(victim: [u8; 4], address: [u8; 4], seed: u64) -> Self {
        let nic: Nic = device(victim);
        let side = Side::new(&nic, victim, PathPolicy::Prefer);
        let watched = Watched::new(&side);
        let attacker = Attacker::at(SocketAddr::new(address.into(), PORT), &nic, victim.into(), seed);
        attacker.socket.set_read_timeout(Some(PATIENCE)).expect("a time limit");
        let gid = std::net::IpAddr::from(address).into();
        let peer = Peer { qpn: Qpn::new(0x12_3456), gid, memory: 0, rkey: Rkey(0) };
        side.connect(&peer);
        Self { side, peer, watched, attacker }
    }

    /// The queue pair as new; what was answered to the old one is looked at and thrown away.
    fn again(&mut self) {
        self.side.qp.modify(&Attributes::to(State::Reset), None).expect("RESET");
        self.side.connect(&self.peer);
        self.attacker.socket.set_nonblocking(true).expect("a socket");
        let mut bytes = [0; 65_536];
        while let Ok(len) = self.attacker.socket.recv(&mut bytes) {
            assert!(!Watched::leaks_into(&bytes[..len]), "bytes from outside of the region were sent");
        }
        self.attacker.socket.set_nonblocking(false).expect("a socket");
    }

    fn state(&self) -> State {
        self.side.qp.query().expect("it is there").attributes.state
    }

    fn counters(&self) -> Counters {
        self.side.qp.query().expect("it is there").counters
    }

    fn send(&mut self, psn: u32, request: Request<&[u8]>) {
        self.send_body(psn, Body::RcRequest(request));
    }

    fn send_body(&mut self, psn: u32, body: Body<&[u8]>) {
        let packet = Packet { ack_request: true, ..Packet::new(self.side.qp.qpn(), Psn::new(psn), body) };
        let bytes = self.attacker.sealed(&packet);
        self.attacker.send(&bytes);
        self.attacker.settle();
    }

    /// What it answers.
    fn answer(&self) -> Syndrome {
        let mut bytes = [0; 65_536];
        let len = self.attacker.socket.recv(&mut bytes).expect("an answer");
        assert!(!Watched::leaks_into(&bytes[..len]), "bytes from outside of the region were sent");
        let packet = Packet::parse(&bytes[..len]).expect("a packet");
        match packet.body {
            Body::RcResponse(Response::Acknowledge(aeth)) => aeth.syndrome,
            other => panic!("{other:?}"),
        }
    }
}

const BYTES: &[u8] = &[0xbd; 64];

fn write(address: u64, rkey: Rkey, length: u32, bytes: &[u8]) -> Request<&[u8]> {
    Request::Write(Segment::Only(Reth { address, rkey, length }, None), bytes)
}

#[test]
fn a_peer_reaches_no_memory_that_it_was_not_given() {
    let mut victim = Betrayed::new([127, 0, NET, 31], [127, 0, NET, 32], 11);
    let (base, rkey) = (victim.watched.address(), victim.watched.rkey);
    let end = base + Watched::LEN;
    let read = |address, length| Request::Read(Reth { address, rkey, length });
    let add = |address| Request::FetchAdd(AtomicEth { address, rkey, swap_or_add: 1, compare: 0 });
    let access = NakCode::RemoteAccess;
    let invalid = NakCode::InvalidRequest;
    let cases: Vec<(&str, Request<&[u8]>, NakCode)> = vec![
        ("an unknown key", write(base, Rkey(rkey.0 ^ 0x100), 64, BYTES), access),
        ("an old key", write(base, Rkey(rkey.0 ^ 1), 64, BYTES), access),
        ("before the region", write(base - 1, rkey, 64, BYTES), access),
        ("across its end", write(end - 63, rkey, 64, BYTES), access),
        ("behind it", write(end, rkey, 64, BYTES), access),
        ("at the end of all addresses", write(u64::MAX - 63, rkey, 64, BYTES), access),
        ("at the beginning of all addresses", write(0, rkey, 64, BYTES), access),
        ("more bytes than announced", write(base, rkey, 8, BYTES), invalid),
        ("fewer bytes than announced", write(base, rkey, 65, BYTES), invalid),
        ("a READ across the end", read(end - 8, 9), access),
        ("a READ of everything", read(base, 0x8000_0000), access),
        ("a READ that goes round", read(u64::MAX - 1, 8), access),
        ("a READ longer than any message", read(base, u32::MAX), invalid),
        ("an atomic behind it", add(end), access),
        ("an atomic that is not aligned", add(base + 4), invalid),
        ("a middle without a first", Request::Write(Segment::Middle, &[0; 4096]), invalid),
        ("a last without a first", Request::Send(Segment::Last(SendTail::Plain), BYTES), invalid),
    ];
    for (what, request, code) in cases {
        victim.send(TAIL, request);
        assert_eq!(victim.answer(), Syndrome::Nak(code), "{what}");
        assert_eq!(victim.state(), State::Err, "{what}: such a connection is over");
        victim.watched.check_untouched();
        victim.again();
    }
}

#[test]
fn a_peer_that_miscounts_is_told_so() {
    let mut victim = Betrayed::new([127, 0, NET, 33], [127, 0, NET, 34], 12);
    let (base, rkey) = (victim.watched.address(), victim.watched.rkey);
    let good = write(base, rkey, 64, BYTES);
    victim.send(TAIL + 1, good);
    assert_eq!(victim.answer(), Syndrome::Nak(NakCode::SequenceError), "a packet is missing");
    victim.send(TAIL + 5, good);
    assert_eq!(victim.counters().out_of_sequence, 2, "said once, counted twice");
    victim.send(TAIL - 1, good);
    assert!(matches!(victim.answer(), Syndrome::Ack(_)), "seen before, as far as one can tell");
    assert_eq!(victim.counters().duplicate_requests, 1);
    victim.send(TAIL, Request::Send(Segment::Only((), SendTail::Plain), BYTES));
    assert!(matches!(victim.answer(), Syndrome::RnrNak(_)), "no receive is posted");
    victim.watched.check_untouched();
    assert_eq!(victim.state(), State::Rts);
    // A peer that comes back to its senses is served.
    victim.send(TAIL, good);
    assert!(matches!(victim.answer(), Syndrome::Ack(_)));
    victim.watched.check_guards();
}

/// What is wrong with a packet of a run.
#[derive(Clone, Copy, Debug)]
enum Wrong {
    Nothing,
    Icrc,
    Partition,
    QueuePair,
    /// It says that the network is congested, which is in order.
    Marked,
    /// It has come before.
    Again,
}

/// Packets of one sender that follow each other are taken in together, for the queue pair that packets are mostly for: and yet
/// each of them is judged.
#[test]
fn what_is_wrong_is_seen_among_packets_that_are_taken_together() {
    let mut victim = Betrayed::new([127, 0, NET, 39], [127, 0, NET, 40], 15);
    let qpn = victim.side.qp.qpn();
    let send = || Body::RcRequest(Request::Send(Segment::Only((), SendTail::Plain), BYTES));
    let mut psn = TAIL;
    let mut run_of = |victim: &mut Betrayed, count: u16, wrong: Option<(u16, Wrong)>| {
        let mut run = Vec::new();
        let from = psn;
        for place in 0..count {
            let wrong = wrong.and_then(|(at, wrong)| (at == place).then_some(wrong));
            let number = Psn::new((from + u32::from(place)) & 0xff_ffff);
            let mut packet = Packet { ack_request: true, ..Packet::new(qpn, number, send()) };
            match wrong {
                Some(Wrong::Partition) => packet.pkey.0 = 0x8001,
                Some(Wrong::QueuePair) => packet.dest_qp = Qpn::new(qpn.get() ^ 1),
                Some(Wrong::Marked) => packet.fecn = true,
                Some(Wrong::Again) => packet.psn = number.prev(),
                Some(Wrong::Nothing | Wrong::Icrc) | None => {}
            }
            let mut bytes = victim.attacker.sealed_at(&packet, place);
            if let (Some(Wrong::Icrc), Some(last)) = (wrong, bytes.last_mut()) {
                *last ^= 1;
            }
            run.extend(bytes);
        }
        let before = victim.counters().requests_received;
        let segment = run.len() / usize::from(count);
        victim.attacker.send_run(&run, segment);
        victim.attacker.settle();
        let taken = u32::try_from(victim.counters().requests_received - before).expect("few");
        psn = (from + taken) & 0xff_ffff;
        for _ in 0..taken {
            let done = victim.side.completion();
            assert_eq!((done.status, done.byte_len), (Status::Success, 64));
        }
        taken
    };
    let place = [victim.side.sge(0, 128)];
    let post = |victim: &Betrayed, count: u32| {
        for id in 0..count {
            let receive = ReceiveRequest { id: id.into(), sges: &place };
            victim.side.qp.post_receive(&[receive]).expect("room");
        }
    };
    post(&victim, 10);
    for _ in 0..5 {
        // From here on it is the queue pair that packets are for.
        assert_eq!(run_of(&mut victim, 2, None), 2);
    }
    let all = |victim: &Betrayed| {
        let (qp, nic) = (victim.counters(), victim.side.nic.counters());
        [nic.icrc_errors, nic.wrong_pkey, nic.unknown_qp, qp.congestion_marks, qp.duplicate_requests]
    };
    let wrongs =
        [Wrong::Nothing, Wrong::Icrc, Wrong::Partition, Wrong::QueuePair, Wrong::Marked, Wrong::Again];
    for (at, wrong) in [0, 1, 3, 4].into_iter().flat_map(|at| wrongs.map(|wrong| (at, wrong))) {
        post(&victim, 5);
        let before = all(&victim);
        let taken = run_of(&mut victim, 5, Some((at, wrong)));
        let seen = all(&victim);
        let rest = match wrong {
            Wrong::Nothing | Wrong::Marked => 0,
            _ => 5 - u32::from(at),
        };
        assert_eq!(taken, 5 - rest, "{wrong:?} at {at}");
        let counted = [
            matches!(wrong, Wrong::Icrc),
            matches!(wrong, Wrong::Partition),
            matches!(wrong, Wrong::QueuePair),
            matches!(wrong, Wrong::Marked),
            matches!(wrong, Wrong::Again),
        ];
        for (kind, counted) in counted.into_iter().enumerate() {
            assert_eq!(seen[kind] - before[kind], u64::from(counted), "{wrong:?} at {at}: kind {kind}");
        }
        if rest > 0 {
            // What was missing comes, and all that is behind it.
            assert_eq!(run_of(&mut victim, u16::try_from(rest).expect("few"), None), rest);
        }
        assert_eq!(victim.state(), State::Rts);
    }
    victim.watched.check_untouched();
}

#[test]
fn answers_to_nothing_are_ghosts() {
    let mut victim = Betrayed::new([127, 0, NET, 35], [127, 0, NET, 36], 13);
    let qpn = victim.side.qp.qpn();
    let mut sent = 0;
    for code in 0..=u8::MAX {
        for opcode in Opcode::all().filter(|opcode| opcode.info().service == Service::Rc) {
            let numbers = Numbers { pkey: 0xffff, code, ..Numbers::DISTINCT };
            let body = samples::packet(opcode, 64, &numbers).body;
            let full = opcode.info().payload == PayloadRule::FullMtu;
            if !matches!(body, Body::RcResponse(_)) || full {
                continue;
            }
            let nothing = opcode.info().payload == PayloadRule::Nothing;
            let numbers = Numbers { words: [qpn.get(), TAIL + code_step(code), 0, 0, 0, 0], ..numbers };
            let packet = samples::packet(opcode, if nothing { 0 } else { 64 }, &numbers);
            let bytes = victim.attacker.sealed(&packet.map_payload(|len| &BYTES[..len.0]));
            victim.attacker.send(&bytes);
            sent += 1;
        }
    }
    victim.attacker.settle();
    let counters = victim.counters();
    assert_eq!(counters.ghost_acks + counters.duplicate_responses, sent, "{counters:?}");
    assert_eq!(victim.state(), State::Rts);
    victim.watched.check_untouched();
}

fn code_step(code: u8) -> u32 {
    u32::from(code % 8)
}

/// Thousands of packets that are almost right.
#[test]
fn nothing_that_a_peer_sends_reaches_beyond_its_region() {
    let mut victim = Betrayed::new([127, 0, NET, 37], [127, 0, NET, 38], 14);
    let opcodes: Vec<Opcode> =
        Opcode::all().filter(|opcode| matches!(opcode.info().service, Service::Rc | Service::Cnp)).collect();
    let rounds = std::env::var("FERROCE_SOAK")
        .ok()
        .and_then(|text| text.parse().ok())
        .map_or(400, |n: u64| 50_000 * n);
    let mut served = Counters::default();
    for _ in 0..rounds {
        for id in 0..4 {
            let sge = victim.side.sge(0, 128);
            victim.side.qp.post_receive(&[ReceiveRequest { id, sges: &[sge] }]).expect("room");
        }
        let mut psn = TAIL;
        for _ in 0..12 {
            let opcode = opcodes[victim.attacker.below(opcodes.len())];
            let bytes = almost_right(&mut victim, opcode, &mut psn);
            victim.attacker.send(&bytes);
        }
        victim.attacker.settle();
        served.add(&victim.counters());
        victim.watched.check_guards();
        let mut found = [ferroce_transport::Completion::EMPTY; 16];
        while victim.side.cq.poll(&mut found) > 0 {}
        victim.again();
    }
    // The aim was good: much of it was served, and much was not.
    assert!(served.requests_received > rounds && served.responses_sent > rounds / 10, "{served:?}");
    assert!(
        served.nak_remote_access_sent > rounds / 20 && served.nak_invalid_request_sent > rounds / 20,
        "{served:?}"
    );
    assert!(served.ghost_acks > 0 && served.out_of_sequence > 0 && served.wrong_state > 0, "{served:?}");
}

fn almost_right(victim: &mut Betrayed, opcode: Opcode, psn: &mut u32) -> Vec<u8> {
    let (base, rkey) = (victim.watched.address(), victim.watched.rkey);
    let qpn = victim.side.qp.qpn();
    let attacker = &mut victim.attacker;
    let payload = match opcode.info().payload {
        PayloadRule::Nothing | PayloadRule::EightBytes => 0,
        PayloadRule::FullMtu => 4096,
        PayloadRule::OneToMtu | PayloadRule::UpToMtu => 1 + attacker.below(400),
    };
    let address = match attacker.below(12) {
        0 => attacker.random.next_u64(),
        1 => u64::MAX - attacker.random.next_u64() % 4096,
        2..5 => base - 64 + attacker.random.next_u64() % (Watched::LEN + 128),
        _ => base + attacker.random.next_u64() % 256 * 8,
    };
    let key = match attacker.below(16) {
        0 => attacker.random.next_u32(),
        1 => rkey.0.wrapping_add(1),
        _ => rkey.0,
    };
    let length = match attacker.below(10) {
        0 => attacker.random.next_u32(),
        1 => attacker.random.next_u32() % 10_000,
        _ if payload == 0 => attacker.random.next_u32() % 2048,
        _ => u32::try_from(payload).expect("small"),
    };
    let at = match attacker.below(20) {
        0 => psn.wrapping_sub(1 + attacker.random.next_u32() % 4),
        1 => psn.wrapping_add(1 + attacker.random.next_u32() % 4),
        _ => {
            *psn = psn.wrapping_add(1);
            psn.wrapping_sub(1)
        }
    };
    let numbers = Numbers {
        wide: [address, attacker.random.next_u64(), attacker.random.next_u64()],
        words: [qpn.get(), at & 0xff_ffff, key, length, attacker.random.next_u32(), 0],
        pkey: 0xffff,
        flags: u8::try_from(attacker.below(32)).expect("small"),
        code: u8::try_from(attacker.below(256)).expect("small"),
        operand: [0xbd; 8],
    };
    let bytes = vec![0xbd; payload];
    let packet = samples::packet(opcode, payload, &numbers);
    attacker.sealed(&packet.map_payload(|_| bytes.as_slice()))
}
