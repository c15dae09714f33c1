//! One of our queue pairs in the place of the kernel's responder.

use std::collections::{BTreeMap, BTreeSet};

use ferroce_transport::{
    Access, Acks, AttributeMask, Attributes, Caps, DomainId, PayloadSource, QpConfig, QueuePair,
    ReceiveRequest, Sge, State, Time, Window,
};
use ferroce_wire::{Body, Lkey, Psn, Qpn, Request, Rkey, Service};

use crate::conversation::{Answer, Asked, Conversation};
use crate::memory::Memory;

/// The code of the RNR timer that the capturing programs asked for: 640 us.
const MIN_RNR_TIMER: u8 = 12;

/// What our responder answers to the requests of a conversation, in order, and how many bytes of the
/// kernel's answers could be judged by what had been written before.
pub(crate) fn replay(conversation: &Conversation<'_>, refused: &[Rkey]) -> (Vec<Answer>, usize) {
    let mut window = Window::new();
    let mut host = Memory::new(keys(conversation, refused));
    let mut pair = responder(conversation, &mut window, &mut host);
    let mut rnr_left = rnr_naks(conversation);
    let mut answers = Vec::new();
    for (number, asked) in (1_u64..).zip(&conversation.requests) {
        let now = Time::from_nanos(number * 1_000_000);
        seed(asked, conversation, &mut host);
        let withheld = rnr_left.get_mut(&asked.packet.psn.get()).filter(|left| **left > 0);
        if let Some(left) = withheld {
            *left -= 1;
        } else if asked.needs_receive() {
            let sges = [Sge { address: 0, length: 1 << 24, lkey: Lkey(0) }];
            pair.post_receive(&ReceiveRequest { id: number, sges: &sges }, &mut host).expect("room");
        }
        pair.handle_packet(now, &asked.packet, None, &mut window, &mut host);
        while let Some(transmit) = pair.poll_transmit(now, Acks::Send, &mut window, &mut host) {
            let Body::RcResponse(response) = transmit.packet.body else { panic!("{:?}", transmit.packet) };
            let data = match transmit.payload {
                PayloadSource::Remote { address, len, .. } => host.read(address, len as usize),
                PayloadSource::Nothing => Vec::new(),
                other => panic!("{other:?} in an answer"),
            };
            let (psn, opcode) = (transmit.packet.psn, transmit.packet.opcode());
            answers.push(Answer::new(asked.frame, psn, opcode, &response, data));
        }
    }
    (answers, host.judged)
}

/// A queue pair that expects the first request.
fn responder(conversation: &Conversation<'_>, window: &mut Window, host: &mut Memory) -> QueuePair {
    let depth = u32::try_from(conversation.requests.len()).expect("few requests");
    let mut pair = QueuePair::new(QpConfig {
        qpn: conversation.qpn,
        service: Service::Rc,
        domain: DomainId(1),
        caps: Caps { max_send: 1, max_receive: depth, max_send_sge: 1, max_receive_sge: 1, max_inline: 0 },
        signal_all: false,
        shared_queue: None,
    });
    let steps = [
        Attributes::to(State::Init).with_pkey_index(0).with_port(1).with_access(Access::all()),
        Attributes::to(State::Rtr)
            .with(AttributeMask::AV)
            .with_path_mtu(conversation.mtu)
            .with_dest_qpn(Qpn::new(1))
            .with_rq_psn(conversation.first_psn)
            .with_max_dest_rd_atomic(16)
            .with_min_rnr_timer(MIN_RNR_TIMER),
    ];
    for attributes in steps {
        pair.modify(&attributes, window, host).expect("a legal transition");
    }
    pair
}

/// The keys that the requests name, without those that the kernel's side did not know.
fn keys(conversation: &Conversation<'_>, refused: &[Rkey]) -> BTreeSet<u32> {
    let named = conversation.requests.iter().filter_map(|asked| match asked.request {
        Request::Write(segment, _) => segment.head().map(|reth| reth.rkey),
        Request::Read(reth) => Some(reth.rkey),
        Request::CompareSwap(atomic) | Request::FetchAdd(atomic) => Some(atomic.rkey),
        _ => None,
    });
    named.filter(|rkey| !refused.contains(rkey)).map(|rkey| rkey.0).collect()
}

/// How often the kernel had no receive for each PSN.
fn rnr_naks(conversation: &Conversation<'_>) -> BTreeMap<u32, usize> {
    let mut counts = BTreeMap::new();
    for answer in conversation.answers.iter().filter(|answer| answer.is_rnr()) {
        *counts.entry(answer.psn.get()).or_default() += 1;
    }
    counts
}

/// Puts into memory what the kernel's answer shows to have been there.
fn seed(asked: &Asked<'_>, conversation: &Conversation<'_>, host: &mut Memory) {
    let first = asked.packet.psn;
    let find = |psn: Psn| conversation.answers.iter().find(|answer| answer.psn == psn);
    match asked.request {
        Request::Read(reth) => {
            for number in 0..asked.psns(conversation.mtu) {
                let offset = u64::from(number) * conversation.mtu.bytes() as u64;
                if let Some(answer) = find(first + number) {
                    host.seed(reth.address + offset, &answer.data);
                }
            }
        }
        Request::CompareSwap(atomic) | Request::FetchAdd(atomic) => {
            if let Some(original) = find(first).and_then(|answer| answer.data.as_slice().try_into().ok()) {
                host.seed(atomic.address, &u64::from_be_bytes(original).to_ne_bytes());
            }
        }
        _ => {}
    }
}
