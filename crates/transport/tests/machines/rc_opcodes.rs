//! Requests that break the protocol: every opcode in every position where it may not come, and
//! lengths that contradict each other (IBA 9.7.4.1.3 to 9.7.4.1.6). All of them end the connection.

use crate::common::*;
use ferroce_sim::{Pair, Side};
use ferroce_transport::{Event, State, Status};
use ferroce_wire::header::{FlushPlacement, FlushScope};
use ferroce_wire::{AtomicEth, AtomicMasks, Feth, Imm, Request, Reth, Rkey, Segment, SendTail};

const FULL: &[u8] = &[0xaa; 1024];
const REST: &[u8] = &[0xbb; 10];

type Name = &'static str;
type Packets = Vec<Request<&'static [u8]>>;

/// Every request there is, with a WRITE that announces `FULL` and `REST` where it announces.
fn every_request(pair: &Pair) -> Vec<(Name, Request<&'static [u8]>)> {
    use Segment::{First, Last, Middle, Only};
    let (plain, imm) = (SendTail::Plain, SendTail::Immediate(Imm(1)));
    let invalidate = SendTail::Invalidate(Rkey(1));
    let (two, one) = (reth(pair, 0, 1034), reth(pair, 0, 10));
    let Reth { address, rkey, .. } = one;
    let atomic = AtomicEth { address, rkey, swap_or_add: 1, compare: 0 };
    let masks = AtomicMasks { swap_or_add: 1, compare: 1 };
    let feth = Feth { placement: FlushPlacement::empty(), scope: FlushScope::Range };
    vec![
        ("SEND First", Request::Send(First(()), FULL)),
        ("SEND Middle", Request::Send(Middle, FULL)),
        ("SEND Last", Request::Send(Last(plain), REST)),
        ("SEND Last with Immediate", Request::Send(Last(imm), REST)),
        ("SEND Last with Invalidate", Request::Send(Last(invalidate), REST)),
        ("SEND Only", Request::Send(Only((), plain), REST)),
        ("SEND Only with Immediate", Request::Send(Only((), imm), REST)),
        ("SEND Only with Invalidate", Request::Send(Only((), invalidate), REST)),
        ("WRITE First", Request::Write(First(two), FULL)),
        ("WRITE Middle", Request::Write(Middle, FULL)),
        ("WRITE Last", Request::Write(Last(None), REST)),
        ("WRITE Last with Immediate", Request::Write(Last(Some(Imm(1))), REST)),
        ("WRITE Only", Request::Write(Only(one, None), REST)),
        ("WRITE Only with Immediate", Request::Write(Only(one, Some(Imm(1))), REST)),
        ("READ Request", Request::Read(one)),
        ("Compare and Swap", Request::CompareSwap(atomic)),
        ("Fetch and Add", Request::FetchAdd(atomic)),
        ("Masked Compare and Swap", Request::MaskedCompareSwap(atomic, masks)),
        ("Masked Fetch and Add", Request::MaskedFetchAdd(atomic, masks)),
        ("ATOMIC WRITE", Request::AtomicWrite(reth(pair, 0, 8), [1; 8])),
        ("FLUSH", Request::Flush(feth, one)),
    ]
}

/// The names of those that may come when `open` has begun, or when nothing has.
fn legal(open: Option<Name>) -> Vec<Name> {
    match open {
        None => vec![
            "SEND First",
            "SEND Only",
            "SEND Only with Immediate",
            "SEND Only with Invalidate",
            "WRITE First",
            "WRITE Only",
            "WRITE Only with Immediate",
            "READ Request",
            "Compare and Swap",
            "Fetch and Add",
            "Masked Compare and Swap",
            "Masked Fetch and Add",
            "ATOMIC WRITE",
        ],
        Some("SEND First") => {
            vec!["SEND Middle", "SEND Last", "SEND Last with Immediate", "SEND Last with Invalidate"]
        }
        Some(_) => vec!["WRITE Middle", "WRITE Last", "WRITE Last with Immediate"],
    }
}

/// A pair whose A has three packets under way that B never sees, so that B's answers to what is
/// injected are answers to A. B has one receive.
fn waiting_pair() -> Pair {
    let mut pair = pair(|_| {});
    cut(&mut pair, Side::A);
    post_write(&mut pair, 1, 3 * 1024);
    post_receive(&mut pair, Side::B, 50, 0x8000, 4096);
    pair.step();
    pair
}

/// B has refused the packet with this PSN as invalid and the connection is over on both sides.
#[track_caller]
fn assert_refused(mut pair: Pair, psn: u32, receive: Status, case: &str) {
    pair.run();
    let answer = wire_of(&pair, Side::B).pop();
    assert_eq!(answer, Some(format!("B NAK Invalid Request {psn:x} msn=0")), "{case}");
    assert_eq!(pair.counters(Side::B).nak_invalid_request_sent, 1, "{case}");
    assert_eq!(pair.counters(Side::A).nak_fatal_received, 1, "{case}");
    assert_sends(&mut pair, Side::A, &[(1, Status::RemoteInvalidRequest, 0)]);
    assert_receives(&mut pair, Side::B, &[(50, receive, 0)]);
    assert_states(&pair, State::Err, State::Err);
    assert_events(&mut pair, &[], &[Event::RequestError]);
}

#[test]
fn an_unexpected_opcode_in_any_position_is_an_invalid_request() {
    let mut seen = 0;
    for open in [None, Some("SEND First"), Some("WRITE First")] {
        let all = every_request(&waiting_pair());
        for (name, request) in &all {
            if legal(open).contains(name) {
                continue;
            }
            let mut pair = waiting_pair();
            let mut psn = START;
            if let Some(open) = open {
                let (_, first) = all.iter().find(|(name, _)| *name == open).unwrap();
                inject_request(&mut pair, psn, *first);
                psn += 1;
            }
            inject_request(&mut pair, psn, *request);
            // The receive that a begun SEND has taken ends with the message, others are flushed.
            let receive = if open == Some("SEND First") { Status::LocalQpOperation } else { Status::Flushed };
            assert_refused(pair, psn, receive, &format!("{name} after {open:?}"));
            seen += 1;
        }
    }
    assert_eq!(seen, 8 + 17 + 18);
}

/// The other half of the table: none of these is refused for its position.
#[test]
fn an_expected_opcode_in_any_position_is_taken() {
    for open in [None, Some("SEND First"), Some("WRITE First")] {
        let all = every_request(&waiting_pair());
        for name in legal(open) {
            let mut pair = waiting_pair();
            for (psn, wanted) in (START..).zip(open.into_iter().chain([name])) {
                let (_, request) = all.iter().find(|(name, _)| *name == wanted).unwrap();
                // The WRITE that was opened has room for its Last only.
                let request = match (wanted, name) {
                    ("WRITE First", "WRITE Middle") => {
                        Request::Write(Segment::First(reth(&pair, 0, 2058)), FULL)
                    }
                    _ => *request,
                };
                // Key 1 cannot be invalidated: another reason to refuse.
                if !wanted.ends_with("Invalidate") {
                    inject_request(&mut pair, psn, request);
                }
            }
            assert_eq!(pair.counters(Side::B).nak_invalid_request_sent, 0, "{name} after {open:?}");
            assert_eq!(pair.queue_pair(Side::B).state(), State::Rts, "{name} after {open:?}");
        }
    }
}

#[test]
fn a_length_that_contradicts_mtu_or_message_is_an_invalid_request() {
    use Segment::{First, Last, Middle, Only};
    const SHORT: &[u8] = &[0; 512];
    const LONG: &[u8] = &[0; 2048];
    let sample = waiting_pair();
    let at = |length| reth(&sample, 0, length);
    let plain = SendTail::Plain;
    let cases: Vec<(Name, Packets, Status)> = vec![
        ("a short SEND First", vec![Request::Send(First(()), SHORT)], Status::LocalLength),
        ("a long SEND First", vec![Request::Send(First(()), LONG)], Status::LocalLength),
        ("a long SEND Only", vec![Request::Send(Only((), plain), LONG)], Status::LocalLength),
        (
            "a short SEND Middle",
            vec![Request::Send(First(()), FULL), Request::Send(Middle, SHORT)],
            Status::LocalLength,
        ),
        (
            "a long SEND Last",
            vec![Request::Send(First(()), FULL), Request::Send(Last(plain), LONG)],
            Status::LocalLength,
        ),
        ("a short WRITE First", vec![Request::Write(First(at(2048)), SHORT)], Status::Flushed),
        ("a WRITE First that is all", vec![Request::Write(First(at(1024)), FULL)], Status::Flushed),
        ("a WRITE Only with too little", vec![Request::Write(Only(at(11), None), REST)], Status::Flushed),
        ("a WRITE Only with too much", vec![Request::Write(Only(at(9), None), REST)], Status::Flushed),
        (
            "a WRITE Middle that should be the Last",
            vec![Request::Write(First(at(2048)), FULL), Request::Write(Middle, FULL)],
            Status::Flushed,
        ),
        (
            "a WRITE Last with too little",
            vec![Request::Write(First(at(1035)), FULL), Request::Write(Last(None), REST)],
            Status::Flushed,
        ),
        (
            "a WRITE Last with too much",
            vec![Request::Write(First(at(1033)), FULL), Request::Write(Last(None), REST)],
            Status::Flushed,
        ),
        ("a WRITE of more than 2 GiB", vec![Request::Write(First(at((1 << 31) + 1)), FULL)], Status::Flushed),
        ("a READ of more than 2 GiB", vec![Request::Read(at((1 << 31) + 1))], Status::Flushed),
        ("an ATOMIC WRITE of 4 bytes", vec![Request::AtomicWrite(at(4), [1; 8])], Status::Flushed),
    ];
    for (case, requests, receive) in cases {
        let mut pair = waiting_pair();
        let mut last = START;
        for (psn, request) in (START..).zip(requests) {
            inject_request(&mut pair, psn, request);
            last = psn;
        }
        assert_refused(pair, last, receive, case);
    }
}

/// What a refused packet carried is nowhere, and what came before it stays.
#[test]
fn a_refused_packet_writes_nothing() {
    let mut pair = waiting_pair();
    let first = Request::Write(Segment::First(reth(&pair, 0, 2048)), FULL);
    inject_request(&mut pair, START, first);
    inject_request(&mut pair, START + 1, send_only(REST));
    pair.run();
    assert_eq!(&pair.memory(Side::B)[..1024], FULL);
    assert_untouched(&mut pair, Side::B, 1024, 0x10000);
    assert_sends(&mut pair, Side::A, &[(1, Status::RemoteInvalidRequest, 0)]);
}

/// After the NAK the responder is silent: no second answer, whatever comes.
#[test]
fn a_responder_in_error_answers_no_more() {
    let mut pair = waiting_pair();
    inject_request(&mut pair, START, Request::Send(Segment::Middle, FULL));
    inject_request(&mut pair, START, send_only(REST));
    inject_request(&mut pair, START + 1, send_only(REST));
    pair.run();
    assert_eq!(wire_of(&pair, Side::B), ["B NAK Invalid Request 10 msn=0"]);
    assert_eq!(pair.counters(Side::B).wrong_state, 2);
}
