//! The responder: what it answers, what it does not, and what it keeps.
#![allow(clippy::unwrap_used, reason = "a test stops here")]

use std::net::IpAddr;
use std::time::Duration;

use ferroce_probe::{
    Answer, Arrival, Arrivals, Kind, Packet, Peer, Ports, Responder, ResponderConfig, Sequence, Stamp,
    StampSource,
};

fn prober(last: u8) -> Peer {
    Peer { address: IpAddr::from([10, 0, 0, last]), qpn: 0x21 }
}

fn probe(counter: u32) -> Packet {
    Packet {
        kind: Kind::Probe,
        sequence: Sequence::new(9, counter),
        t1: Stamp::from_nanos(123),
        t3: Stamp::default(),
        t4: Stamp::default(),
        ports: Some(Ports { sent: 50_000, reply: 51_000 }),
        arrivals: None,
    }
}

fn at(millis: u64) -> Stamp {
    Stamp::from_nanos(millis * 1_000_000)
}

fn take(responder: &mut Responder, packet: &Packet, from: Peer, millis: u64) -> Option<Answer> {
    let arrived = at(millis);
    let arrival = Arrival { bytes: &packet.emit(), from, at: arrived, source: StampSource::Kernel };
    responder.take(&arrival, arrived.plus(Duration::from_micros(7)))
}

#[test]
fn a_probe_gets_two_acks_the_second_when_the_first_has_left() {
    let mut responder = Responder::new(ResponderConfig::default());
    let first = take(&mut responder, &probe(1), prober(1), 5).unwrap();
    assert_eq!((first.to, first.port), (prober(1), 51_000));
    let expected = Packet {
        kind: Kind::FirstAck,
        t3: at(5),
        ports: Some(Ports { sent: 51_000, reply: 50_000 }),
        ..probe(1)
    };
    assert_eq!(first.packet, expected);
    let second = responder.sent(first.ticket, at(6)).unwrap();
    assert_eq!((second.to, second.port), (prober(1), 51_000), "the same way as the first one");
    assert_eq!(second.packet, Packet { kind: Kind::SecondAck, t4: at(6), ..expected });
    assert_eq!(responder.sent(first.ticket, at(7)), None);
    assert_eq!(responder.counters().stray_stamps, 1);
    assert_eq!((responder.pending(), responder.wake_at()), (0, None));
}

#[test]
fn a_probe_of_the_rebuild_tells_no_ports_and_gets_none() {
    let mut responder = Responder::new(ResponderConfig::default());
    let answer = take(&mut responder, &Packet { ports: None, ..probe(1) }, prober(1), 5).unwrap();
    assert_eq!((answer.port, answer.packet.ports), (0, None));
}

#[test]
fn what_is_no_probe_gets_no_answer() {
    let mut responder = Responder::new(ResponderConfig::default());
    let bytes = probe(1).emit();
    for (at, value, name) in
        [(0, 2, "wrong_version"), (1, 5, "wrong_kind"), (2, 1, "wrong_kind"), (2, 1, "wrong_kind")]
    {
        let mut bytes = bytes;
        bytes[at] = value;
        let stamp = Stamp::default();
        let arrival = Arrival { bytes: &bytes, from: prober(1), at: stamp, source: StampSource::Kernel };
        assert_eq!(responder.take(&arrival, stamp), None, "{name}");
    }
    for kind in [Kind::FirstAck, Kind::SecondAck] {
        assert_eq!(take(&mut responder, &Packet { kind, ..probe(1) }, prober(1), 1), None);
    }
    let arrival = Arrival { bytes: &[], from: prober(1), at: at(0), source: StampSource::Kernel };
    assert_eq!(responder.take(&arrival, at(0)), None);
    let counted: Vec<_> = responder.counters().iter().filter(|(_, count)| *count > 0).collect();
    let expected = [("wrong_length", 1), ("wrong_version", 1), ("wrong_kind", 3), ("not_probes", 2)];
    assert_eq!(counted, expected, "an answer to an answer would never end");
}

#[test]
fn a_source_beyond_its_rate_is_not_answered() {
    let config = ResponderConfig { rate: 100, burst: 5, sources: 2, ..ResponderConfig::default() };
    let mut responder = Responder::new(config);
    let mut answered = |from, millis| {
        (0..20)
            .filter(|counter| take(&mut responder, &probe(*counter), prober(from), millis).is_some())
            .count()
    };
    assert_eq!((answered(1, 0), answered(2, 0), answered(3, 0)), (5, 5, 0));
    assert_eq!(answered(1, 20), 2);
    assert_eq!((responder.counters().over_limit, responder.counters().crowded), (48, 20));
}

#[test]
fn probes_that_waited_for_us_are_judged_by_when_they_came() {
    let config = ResponderConfig { rate: 100, burst: 5, ..ResponderConfig::default() };
    let mut responder = Responder::new(config);
    for counter in 0..50 {
        let bytes = probe(counter).emit();
        let came = at(10 * u64::from(counter));
        let arrival = Arrival { bytes: &bytes, from: prober(1), at: came, source: StampSource::Kernel };
        assert!(responder.take(&arrival, at(900)).is_some(), "number {counter}, after a stall");
    }
}

#[test]
fn what_waits_for_stamps_is_bounded_in_number_and_time() {
    let config = ResponderConfig { pending: 2, ..ResponderConfig::default() };
    let mut responder = Responder::new(config);
    let tickets: Vec<_> =
        (0..3).map(|counter| take(&mut responder, &probe(counter), prober(1), 5).unwrap().ticket).collect();
    assert_eq!((responder.pending(), responder.counters().pushed_out), (2, 1));
    assert_eq!(responder.sent(tickets[0], at(6)), None, "the oldest made room");
    responder.send_failed(tickets[1]);
    responder.send_failed(tickets[1]);
    assert_eq!((responder.counters().send_failures, responder.counters().stray_stamps), (1, 2));
    let deadline = responder.wake_at().unwrap();
    assert_eq!(deadline, at(1005).plus(Duration::from_micros(7)));
    responder.advance(at(1005));
    assert_eq!(responder.pending(), 1);
    responder.advance(deadline);
    assert_eq!((responder.pending(), responder.counters().stamps_missing), (0, 1));
}

#[test]
fn answered_probes_are_counted_by_source_and_port() {
    let mut responder = Responder::new(ResponderConfig { tallies: 2, ..ResponderConfig::default() });
    for (from, port, times) in
        [(1, Some(50_000), 3), (2, None, 2), (3, Some(50_000), 4), (1, Some(50_000), 1)]
    {
        let ports = port.map(|sent| Ports { sent, reply: 0 });
        for _ in 0..times {
            take(&mut responder, &Packet { ports, ..probe(1) }, prober(from), 0).unwrap();
        }
    }
    let tallies: Vec<_> = responder.take_tallies().into_iter().collect();
    assert_eq!(tallies, [((prober(1).address, 50_000), 4), ((prober(2).address, 0), 2)]);
    assert_eq!(responder.counters().untallied, 4);
    assert!(responder.take_tallies().is_empty());
}

#[test]
fn probers_that_ask_are_told_how_many_of_their_probes_came() {
    let config = ResponderConfig { rate: 100, burst: 5, ..ResponderConfig::default() };
    let mut responder = Responder::new(config);
    let asks = |counter, sent| Packet {
        ports: Some(Ports { sent, reply: 0 }),
        // What a prober writes there is not believed.
        arrivals: Some(Arrivals { name: 7, refused: 8, answered: 9 }),
        ..probe(counter)
    };
    let mut told = |packet: &Packet, from, millis| {
        let first = take(&mut responder, packet, from, millis)?;
        assert_eq!(responder.sent(first.ticket, at(millis)).unwrap().packet.arrivals, None);
        Some(first.packet.arrivals)
    };
    let name = |millis: u64| u16::try_from((millis * 1_000_000) >> 10 & 0xffff).unwrap();
    let count = |name, refused, answered| Some(Some(Arrivals { name, refused, answered }));
    assert_eq!(told(&asks(1, 50_000), prober(1), 1), count(name(1), 0, 1));
    assert_eq!(told(&asks(1, 50_000), prober(1), 2), count(name(1), 0, 1), "a copy");
    assert_eq!(told(&asks(2, 50_001), prober(1), 3), count(name(3), 0, 1), "another port");
    let other = Packet { sequence: Sequence::new(10, 3), ..asks(3, 50_000) };
    assert_eq!(told(&other, prober(1), 4), count(name(4), 0, 1), "another epoch");
    assert_eq!(told(&probe(4), prober(1), 4), Some(None), "that does not ask");
    assert_eq!(told(&asks(5, 50_000), prober(1), 4), None, "too many");
    assert_eq!(told(&asks(6, 50_000), prober(1), 5000), count(name(1), 1, 2), "it came, but was refused");
    assert_eq!(told(&asks(7, 50_000), prober(2), 5000), count(name(5000), 0, 1), "another prober");
}
