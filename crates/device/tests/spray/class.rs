//! What a sprayer sends: one class of lies each.

use ferroce_wire::{
    Aeth, AtomicEth, Body, Datagram, Deth, Flow, Msn, Packet, Psn, QKey, Qpn, Request, Response, Reth, Rkey,
    Segment, SendTail, Syndrome, UcRequest,
};
use rand_chacha::ChaCha8Rng;
use rand_core::Rng;

/// The Q_Key of everything that is sent to queue pair 1.
const GENERAL_QKEY: QKey = QKey(0x8001_0000);

/// Bytes that the honest side never writes.
pub(crate) const LIE: u8 = 0xbd;

/// A class of packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Class {
    /// No packet at all.
    RandomBytes,
    /// A request of the future.
    PsnAhead,
    /// A request of the far past.
    PsnBehind,
    /// A request that was just served, with other contents.
    Replay,
    /// A key that opens nothing, or an address outside of the region.
    WrongKey,
    /// A queue pair that is not there.
    WrongQpn,
    /// More or fewer bytes than announced, or cut off.
    WrongLength,
    /// One bit wrong.
    WrongIcrc,
    /// An acknowledgement of what was never sent, or long ago.
    ForgedAck,
    /// The same as a refusal.
    ForgedNak,
    /// A congestion notification.
    Congestion,
    /// A request for a connection that no process waits for.
    ConnectRequest,
    /// Everything right, but from another sender.
    Stranger,
}

/// Which side seems to send it, and to which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Way {
    /// The honest requester to the responder.
    ToResponder,
    /// The responder to the honest requester.
    ToRequester,
    /// A stranger to the responder.
    FromStranger,
}

/// What the sprayer knows of those it aims at: everything.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Aim {
    pub(crate) responder: Qpn,
    pub(crate) requester: Qpn,
    pub(crate) uc: Qpn,
    pub(crate) rkey: Rkey,
    pub(crate) address: u64,
    pub(crate) len: u64,
}

impl Class {
    pub(crate) const ALL: [Self; 13] = [
        Self::RandomBytes,
        Self::PsnAhead,
        Self::PsnBehind,
        Self::Replay,
        Self::WrongKey,
        Self::WrongQpn,
        Self::WrongLength,
        Self::WrongIcrc,
        Self::ForgedAck,
        Self::ForgedNak,
        Self::Congestion,
        Self::ConnectRequest,
        Self::Stranger,
    ];

    pub(crate) const fn way(self) -> Way {
        match self {
            Self::ForgedAck | Self::ForgedNak => Way::ToRequester,
            Self::Stranger => Way::FromStranger,
            _ => Way::ToResponder,
        }
    }

    /// The counters that may count it.
    pub(crate) const fn counted_as(self) -> &'static [&'static str] {
        match self {
            Self::RandomBytes => &["malformed", "unknown_opcode", "icrc_errors", "unknown_qp", "strays"],
            Self::PsnAhead => &["out_of_sequence", "implausible"],
            Self::PsnBehind | Self::Replay => &["duplicate_requests"],
            Self::WrongKey => &["uc_refused"],
            Self::WrongQpn => &["unknown_qp"],
            Self::ConnectRequest => &["mads_unclaimed"],
            Self::WrongLength => &["uc_refused", "malformed", "icrc_errors"],
            Self::WrongIcrc => &["icrc_errors"],
            Self::ForgedAck | Self::ForgedNak => &["ghost_acks", "duplicate_responses", "bad_syndromes"],
            Self::Congestion => &["congestion_notifications"],
            Self::Stranger => &["wrong_peer"],
        }
    }

    /// The bytes of one such packet. Everything before `served` was served and acknowledged; what is
    /// under way comes within a few thousand packets after it.
    pub(crate) fn build(self, aim: &Aim, flow: &Flow, served: Psn, random: &mut ChaCha8Rng) -> Vec<u8> {
        let mut below = |limit: u32| random.next_u32() % limit;
        match self {
            Self::RandomBytes => {
                let mut bytes = vec![0; 1 + below(300) as usize];
                random.fill_bytes(&mut bytes);
                // For this device, if the kernel can see any slot in it.
                if let Some(slot) = bytes.get_mut(5) {
                    *slot = aim.responder.get().to_be_bytes()[1];
                }
                bytes
            }
            Self::PsnAhead => {
                let psn = served + (FAR + below(FAR_RANGE));
                request(aim, flow, psn, random)
            }
            Self::PsnBehind => {
                let psn = back(served, FAR + below(FAR_RANGE));
                request(aim, flow, psn, random)
            }
            Self::Replay => {
                let psn = back(served, 1 + below(200));
                request(aim, flow, psn, random)
            }
            Self::WrongKey => {
                let (rkey, address) = match below(4) {
                    0 => (aim.rkey.0 ^ 1, aim.address),
                    1 => (aim.rkey.0 ^ 0x100, aim.address),
                    2 => (aim.rkey.0, aim.address + aim.len - 8),
                    _ => (aim.rkey.0, aim.address.wrapping_sub(16)),
                };
                let reth = Reth { address, rkey: Rkey(rkey), length: 64 };
                let body = UcRequest::Write(Segment::Only(reth, None), &[LIE; 64][..]);
                seal(&Packet::new(aim.uc, served + below(1 << 23), Body::Uc(body)), flow)
            }
            Self::WrongQpn => {
                // Its own slot, but not the place of any of ours: the kernel keeps other slots from us.
                let wrong = aim.responder.get() ^ (1 + below(0xfffe));
                let qpn = [aim.responder, aim.requester, aim.uc, Qpn::SMI, Qpn::GSI, Qpn::MULTICAST];
                let free = (0..).find(|index| !qpn.contains(&Qpn::new(wrong ^ index))).unwrap_or(0);
                let wrong = wrong ^ free;
                let aim = Aim { responder: Qpn::new(wrong), ..*aim };
                request(&aim, flow, served, random)
            }
            Self::WrongLength => {
                let reth = Reth { address: aim.address, rkey: aim.rkey, length: 65 + below(4000) };
                let body = UcRequest::Write(Segment::Only(reth, None), &[LIE; 64][..]);
                let mut bytes = seal(&Packet::new(aim.uc, served + below(1 << 23), Body::Uc(body)), flow);
                if below(2) == 0 {
                    bytes.truncate(bytes.len() - 1 - below(60) as usize);
                }
                bytes
            }
            Self::WrongIcrc => {
                let mut bytes = request(aim, flow, served, random);
                let last = bytes.len() - 1 - random.next_u32() as usize % 4;
                bytes[last] ^= 1 << (random.next_u32() % 8);
                bytes
            }
            // The upper three bits say what it is: 0 is yes, 1 is wait, 3 is no.
            Self::ForgedAck => answer(aim, flow, served, below(32), random),
            Self::ForgedNak => {
                let refusal = if below(5) == 0 { 0x20 | below(32) } else { 0x60 | below(5) };
                answer(aim, flow, served, refusal, random)
            }
            Self::Congestion => {
                seal(&Packet::congestion(aim.responder).map_payload(|_: &[u8]| &[][..]), flow)
            }
            Self::ConnectRequest => connect_request(flow, random),
            Self::Stranger => {
                let psn = served + below(300);
                request(aim, flow, psn, random)
            }
        }
    }
}

/// Packets that no honest sender has under way, and how far beyond them lies go.
const FAR: u32 = 1 << 18;
const FAR_RANGE: u32 = 1 << 22;

fn back(psn: Psn, by: u32) -> Psn {
    psn + ((1 << 24) - by)
}

fn seal(packet: &Packet<&[u8]>, flow: &Flow) -> Vec<u8> {
    let mut bytes = vec![0; packet.len()];
    packet.emit(flow, 0, &mut bytes).expect("a legal packet");
    bytes
}

/// A request that would be served if its place in the sequence were right.
fn request(aim: &Aim, flow: &Flow, psn: Psn, random: &mut ChaCha8Rng) -> Vec<u8> {
    let (address, rkey) = (aim.address, aim.rkey);
    let reth = Reth { address, rkey, length: 64 };
    let body = match random.next_u32() % 5 {
        0 => Request::Send(Segment::Only((), SendTail::Plain), &[LIE; 64][..]),
        1 => Request::Read(Reth { length: 1 << 20, ..reth }),
        2 => Request::FetchAdd(AtomicEth { address, rkey, swap_or_add: 1, compare: 0 }),
        _ => Request::Write(Segment::Only(reth, None), &[LIE; 64][..]),
    };
    let packet = Packet { ack_request: true, ..Packet::new(aim.responder, psn, Body::RcRequest(body)) };
    seal(&packet, flow)
}

/// An answer to what was never asked, or is answered already.
fn answer(aim: &Aim, flow: &Flow, served: Psn, syndrome: u32, random: &mut ChaCha8Rng) -> Vec<u8> {
    let syndrome = Syndrome::from_byte(u8::try_from(syndrome).expect("a byte"));
    let step = FAR + random.next_u32() % FAR_RANGE;
    let psn = match random.next_u32() % 3 {
        0 => served + step,
        1 => back(served, step),
        _ => back(served, 1 + random.next_u32() % 200),
    };
    let aeth = Aeth { syndrome, msn: Msn::new(random.next_u32() & 0xff_ffff) };
    let body = Body::RcResponse(Response::Acknowledge(aeth));
    seal(&Packet::new(aim.requester, psn, body), flow)
}

/// A connection request as the kernel would send it, each with a name of its own.
fn connect_request(flow: &Flow, random: &mut ChaCha8Rng) -> Vec<u8> {
    let mut mad = [0; 256];
    random.fill_bytes(&mut mad);
    // Version, class, class version, method, and what it is: a request.
    mad[..4].copy_from_slice(&[1, 7, 2, 3]);
    mad[16..18].copy_from_slice(&[0, 0x10]);
    let deth = Deth { qkey: GENERAL_QKEY, source_qp: Qpn::GSI };
    let body = Body::Ud(Datagram { deth, imm: None, payload: &mad[..] });
    seal(&Packet::new(Qpn::GSI, Psn::new(random.next_u32() & 0xff_ffff), body), flow)
}
