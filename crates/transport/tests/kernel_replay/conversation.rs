//! What a capture holds: which side asked which on a reliable connection, and what was answered.

use std::collections::BTreeMap;
use std::net::IpAddr;

use ferroce_testkit::captures::Capture;
use ferroce_wire::{
    Aeth, Body, CreditCode, Frame, Opcode, Packet, PathMtu, Psn, Qpn, ReadSegment, Request, Response,
    Segment, Syndrome,
};

/// The requests to one queue pair, and its answers. The other direction is a conversation of its own.
pub(crate) struct Conversation<'a> {
    pub(crate) responder: IpAddr,
    pub(crate) qpn: Qpn,
    /// The PSN that the responder expected first.
    pub(crate) first_psn: Psn,
    pub(crate) mtu: PathMtu,
    pub(crate) requests: Vec<Asked<'a>>,
    pub(crate) answers: Vec<Answer>,
}

/// A request, and which frame of the capture it is.
pub(crate) struct Asked<'a> {
    pub(crate) frame: usize,
    pub(crate) packet: Packet<&'a [u8]>,
    pub(crate) request: Request<&'a [u8]>,
}

/// What is compared of an answer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Answer {
    /// The frame that it is, or the frame that it answers.
    pub(crate) frame: usize,
    pub(crate) opcode: Opcode,
    pub(crate) psn: Psn,
    /// Without credits, which each side counts as it likes.
    pub(crate) aeth: Option<Aeth>,
    /// Memory that was read, or the value that an atomic found.
    pub(crate) data: Vec<u8>,
}

impl Answer {
    pub(crate) fn new<P>(
        frame: usize,
        psn: Psn,
        opcode: Opcode,
        response: &Response<P>,
        data: Vec<u8>,
    ) -> Self {
        let aeth = match response {
            Response::Read(ReadSegment::Middle, _) => None,
            Response::Acknowledge(aeth)
            | Response::AtomicAcknowledge(aeth, _)
            | Response::Read(
                ReadSegment::First(aeth) | ReadSegment::Last(aeth) | ReadSegment::Only(aeth),
                _,
            ) => Some(*aeth),
        };
        let data = match response {
            Response::AtomicAcknowledge(_, found) => found.original.to_be_bytes().to_vec(),
            Response::Acknowledge(_) | Response::Read(..) => data,
        };
        let aeth = aeth.map(|Aeth { syndrome, msn }| match syndrome {
            Syndrome::Ack(_) => Aeth { syndrome: Syndrome::Ack(CreditCode::UNCOUNTED), msn },
            _ => Aeth { syndrome, msn },
        });
        Self { frame, opcode, psn, aeth, data }
    }

    pub(crate) fn is_rnr(&self) -> bool {
        self.aeth.is_some_and(|aeth| matches!(aeth.syndrome, Syndrome::RnrNak(_)))
    }
}

impl Asked<'_> {
    /// How many PSNs it takes, answers of a READ included.
    pub(crate) fn psns(&self, mtu: PathMtu) -> u32 {
        match self.request {
            Request::Read(reth) => {
                reth.length.div_ceil(u32::try_from(mtu.bytes()).expect("at most 4096")).max(1)
            }
            _ => 1,
        }
    }

    /// Whether it cannot be taken without a receive.
    pub(crate) fn needs_receive(&self) -> bool {
        match self.request {
            Request::Send(segment, _) => segment.head().is_some(),
            Request::Write(segment, _) => segment.tail().flatten().is_some(),
            _ => false,
        }
    }
}

/// Sender, receiver and queue pair.
type Stream = (IpAddr, IpAddr, Qpn);

/// All conversations of a capture. Frames with a wrong ICRC never reached a queue pair and are left out.
pub(crate) fn conversations(capture: &Capture) -> Vec<Conversation<'_>> {
    let mut requests: BTreeMap<Stream, Vec<Asked<'_>>> = BTreeMap::new();
    let mut answers: BTreeMap<Stream, Vec<(Answer, PathHint)>> = BTreeMap::new();
    for (frame, bytes) in capture.frames.iter().enumerate() {
        let parsed = Frame::parse_ethernet(bytes).expect("a RoCEv2 frame");
        let packet = parsed.packet;
        let stream = (parsed.ip.source(), parsed.ip.dest(), packet.dest_qp);
        match packet.body {
            _ if !parsed.icrc.is_right() => {}
            Body::RcRequest(request) => {
                requests.entry(stream).or_default().push(Asked { frame, packet, request });
            }
            Body::RcResponse(response) => {
                let data = packet.payload().to_vec();
                let hint = PathHint::of_answer(&response, data.len());
                let answer = Answer::new(frame, packet.psn, packet.opcode(), &response, data);
                answers.entry(stream).or_default().push((answer, hint));
            }
            _ => {}
        }
    }
    let found = requests.into_iter().map(|(stream, requests)| pair(stream, requests, &mut answers)).collect();
    assert!(answers.is_empty(), "{}: answers to no request: {:?}", capture.name, answers.keys());
    found
}

/// Finds the answers to these requests: nothing in a packet names its sender, but its PSN belongs to
/// one sequence.
fn pair<'a>(
    (requester, responder, qpn): Stream,
    requests: Vec<Asked<'a>>,
    answers: &mut BTreeMap<Stream, Vec<(Answer, PathHint)>>,
) -> Conversation<'a> {
    let first_psn = requests
        .iter()
        .map(|asked| asked.packet.psn)
        .fold(requests[0].packet.psn, |first, psn| if psn.is_before(first) { psn } else { first });
    let near = |answer: &Answer| answer.psn.is_within(first_psn, 0x1000);
    let stream = answers
        .iter()
        .find(|((from, to, _), list)| {
            (*from, *to) == (responder, requester) && list.iter().all(|(answer, _)| near(answer))
        })
        .map(|(stream, _)| *stream);
    let answers = stream.and_then(|stream| answers.remove(&stream)).unwrap_or_default();
    let hints = requests.iter().map(PathHint::of_request).chain(answers.iter().map(|(_, hint)| *hint));
    let mtu = path_mtu(hints);
    let answers = answers.into_iter().map(|(answer, _)| answer).collect();
    Conversation { responder, qpn, first_psn, mtu, requests, answers }
}

/// What a packet says about the path MTU.
#[derive(Clone, Copy)]
enum PathHint {
    /// It is full: exactly this.
    Full(usize),
    /// At least this.
    Holds(usize),
}

impl PathHint {
    fn of_request(asked: &Asked<'_>) -> Self {
        let len = asked.packet.payload().len();
        match asked.request {
            Request::Send(Segment::First(()) | Segment::Middle, _)
            | Request::Write(Segment::First(_) | Segment::Middle, _) => Self::Full(len),
            _ => Self::Holds(len),
        }
    }

    fn of_answer<P>(response: &Response<P>, len: usize) -> Self {
        match response {
            Response::Read(ReadSegment::First(_) | ReadSegment::Middle, _) => Self::Full(len),
            _ => Self::Holds(len),
        }
    }
}

/// The path MTU that the packets show; 1024, the programs' own choice, where all are short.
fn path_mtu(hints: impl Iterator<Item = PathHint>) -> PathMtu {
    let (mut full, mut holds) = (None, 1024);
    for hint in hints {
        match hint {
            PathHint::Full(len) => {
                assert!(full.is_none_or(|full| full == len), "full packets of {full:?} and of {len} bytes");
                full = Some(len);
            }
            PathHint::Holds(len) => holds = holds.max(len),
        }
    }
    let bytes = full.unwrap_or(holds);
    let mtus = (1..=5).filter_map(PathMtu::from_code);
    mtus.into_iter().find(|mtu| mtu.bytes() >= bytes).expect("no payload is longer than 4096 bytes")
}
