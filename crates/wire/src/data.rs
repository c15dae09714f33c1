//! Packets of a reliable connection, of SENDs, WRITEs and answers to READs, and acknowledgements, in the form in which they are
//! sent by the thousand: the same bytes as those of a [`Packet`], written with fewer questions.

use crate::header::{Aeth, Bth, CreditCode, Ieth, Imm, Reth, Syndrome};
use crate::icrc::ICRC_LEN;
use crate::mtu::PathMtu;
use crate::num::{Msn, PKey, Psn, Qpn, Rkey};
use crate::packet::{Body, Packet, PayloadLen, ReadSegment, Request, Response, Segment, SendTail};

/// Everything before the payload of one packet of a SEND, a WRITE or the answer to a READ.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataPacket {
    /// The queue pair that it is for.
    pub dest_qp: Qpn,
    /// The partition.
    pub pkey: PKey,
    /// Its place in the sequence of packets.
    pub psn: Psn,
    /// The responder is asked to acknowledge.
    pub ack_request: bool,
    /// The receiver is asked to raise a completion event.
    pub solicited: bool,
    /// The message begins here.
    pub begins: bool,
    /// The message ends here.
    pub ends: bool,
    /// What is done with the message.
    pub verb: DataVerb,
    /// Bytes of payload, 4096 at most.
    pub payload: usize,
}

/// What is done with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DataVerb {
    /// It goes into a receive of the peer.
    Send(SendTail),
    /// It goes into memory of the peer.
    Write(Reth, Option<Imm>),
    /// It is what the peer reads.
    Answer(Aeth),
    /// There is none: the peer is told how far its own have come. Such a packet has no payload, and is all of itself.
    Acknowledge(Aeth),
}

/// A SEND of one packet that brings nothing but its payload.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoneSend {
    /// The partition.
    pub pkey: PKey,
    /// Its place in the sequence of packets.
    pub psn: Psn,
    /// The responder is asked to acknowledge.
    pub ack_request: bool,
    /// The receiver is asked to raise a completion event.
    pub solicited: bool,
}

/// An acknowledgement.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LoneAck {
    /// The partition.
    pub pkey: PKey,
    /// How far the packets of the one that hears it have come.
    pub psn: Psn,
    /// What it says of that.
    pub aeth: Aeth,
}

impl DataPacket {
    /// Bytes before the payload.
    #[must_use]
    #[inline(always)]
    pub const fn header_len(&self) -> usize {
        Bth::LEN
            + match self.verb {
                DataVerb::Write(_, imm) => {
                    let head = if self.begins { Reth::LEN } else { 0 };
                    if self.ends && imm.is_some() { head + Imm::LEN } else { head }
                }
                DataVerb::Send(SendTail::Immediate(_) | SendTail::Invalidate(_)) if self.ends => Imm::LEN,
                DataVerb::Answer(_) if self.begins || self.ends => Aeth::LEN,
                DataVerb::Acknowledge(_) => Aeth::LEN,
                DataVerb::Send(_) | DataVerb::Answer(_) => 0,
            }
    }

    /// Bytes of the packet, from the base transport header to the ICRC.
    #[must_use]
    #[inline(always)]
    pub const fn packet_len(&self) -> usize {
        self.header_len() + self.payload.next_multiple_of(4) + ICRC_LEN
    }

    /// Writes everything before the payload to the front of `buffer` and returns its length; `None`, and nothing
    /// written, if the buffer is shorter than [`header_len`](Self::header_len).
    #[inline(always)]
    pub fn emit_headers(&self, buffer: &mut [u8]) -> Option<usize> {
        // The most frequent form is written in one go.
        if let DataVerb::Write(reth, None) = &self.verb
            && self.begins
        {
            let header = buffer.first_chunk_mut::<{ Bth::LEN + Reth::LEN }>()?;
            let (bth, rest) = header.split_first_chunk_mut()?;
            *bth = self.bth();
            reth.emit(rest.first_chunk_mut()?);
            return Some(Bth::LEN + Reth::LEN);
        }
        let len = self.header_len();
        let (bth, mut rest) = buffer.get_mut(..len)?.split_first_chunk_mut()?;
        *bth = self.bth();
        if let DataVerb::Write(reth, _) = &self.verb
            && self.begins
        {
            let (header, after) = rest.split_first_chunk_mut()?;
            reth.emit(header);
            rest = after;
        }
        if let Some(last) = rest.first_chunk_mut() {
            match self.verb {
                DataVerb::Write(_, Some(imm)) | DataVerb::Send(SendTail::Immediate(imm)) => imm.emit(last),
                DataVerb::Send(SendTail::Invalidate(rkey)) => Ieth(rkey).emit(last),
                DataVerb::Answer(aeth) | DataVerb::Acknowledge(aeth) => aeth.emit(last),
                DataVerb::Write(_, None) | DataVerb::Send(SendTail::Plain) => {}
            }
        }
        Some(len)
    }

    /// The base transport header, which is three words.
    #[inline(always)]
    #[expect(clippy::cast_possible_truncation, reason = "at most 3")]
    fn bth(&self) -> [u8; Bth::LEN] {
        let pad = (self.payload.wrapping_neg() & 3) as u32;
        let flags = u32::from(self.solicited) << 7 | pad << 4;
        let first = u32::from(self.opcode()) << 24 | flags << 16 | u32::from(self.pkey.0);
        let last = u32::from(self.ack_request) << 31 | self.psn.get();
        let mut bytes = [0; Bth::LEN];
        for (word, value) in bytes.chunks_exact_mut(4).zip([first, self.dest_qp.get(), last]) {
            word.copy_from_slice(&value.to_be_bytes());
        }
        bytes
    }

    /// The opcode (IBA 9.2.1): SENDs begin at 0, WRITEs at 6, answers at 13, and those with invalidate are an
    /// afterthought.
    #[inline(always)]
    const fn opcode(&self) -> u8 {
        let (base, tail) = match self.verb {
            DataVerb::Send(SendTail::Plain) => (0, 0),
            DataVerb::Send(SendTail::Immediate(_)) => (0, 1),
            DataVerb::Send(SendTail::Invalidate(_)) => match (self.begins, self.ends) {
                (false, true) => return 0x16,
                (true, true) => return 0x17,
                _ => (0, 0),
            },
            DataVerb::Write(_, None) => (6, 0),
            DataVerb::Write(_, Some(_)) => (6, 1),
            DataVerb::Answer(_) => match (self.begins, self.ends) {
                (true, true) => return 0x10,
                _ => (13, 0),
            },
            DataVerb::Acknowledge(_) => return 0x11,
        };
        base + match (self.begins, self.ends) {
            (true, false) => 0,
            (false, false) => 1,
            (false, true) => 2 + tail,
            (true, true) => 4 + tail,
        }
    }

    /// Bytes that [`parse_head`](Self::parse_head) looks at: the longest headers before a payload.
    pub const HEAD: usize = Bth::LEN + Reth::LEN;

    /// Reads a packet of a plain SEND or WRITE, one whose opcode is First, Middle, Last or Only, and nothing else; or an
    /// acknowledgement. With it comes its payload. `None` for all other packets, for those with a congestion mark, and for what is no packet:
    /// [`Packet::parse`] tells them apart. The ICRC is left out, as there.
    #[inline(always)]
    #[must_use]
    pub fn parse(packet: &[u8]) -> Option<(Self, &[u8])> {
        let Head { words, place, verb, payload, at } = Head::read(packet, packet.len())?;
        let bytes = packet.get(at..)?.get(..payload)?;
        // Made where it stays: to copy it costs as much as to read it.
        Some((words.data(place, verb, payload), bytes))
    }

    /// As [`parse`](Self::parse), for a SEND of one packet to this queue pair, and nothing else: with fewer questions.
    #[inline(always)]
    #[must_use]
    pub fn parse_send(packet: &[u8], dest: Qpn) -> Option<(LoneSend, &[u8])> {
        let (bth, rest) = packet.split_first_chunk::<{ Bth::LEN }>()?;
        let Words([first, second, third]) = Words::of(bth);
        // The opcode, and the version of the header.
        if first & 0xff0f_0000 != 0x0400_0000 || second != dest.get() || !packet.len().is_multiple_of(4) {
            return None;
        }
        let behind = ICRC_LEN + (first >> 20 & 3) as usize;
        let payload = rest.get(..rest.len().checked_sub(behind)?)?;
        if payload.len() > PathMtu::B4096.bytes() {
            return None;
        }
        let head = LoneSend {
            pkey: PKey((first & 0xffff) as u16),
            psn: Psn::new(third & 0x00ff_ffff),
            ack_request: third >> 31 != 0,
            solicited: first & 0x0080_0000 != 0,
        };
        Some((head, payload))
    }

    /// As [`parse`](Self::parse), for an acknowledgement to this queue pair, and nothing else: with fewer questions.
    #[inline(always)]
    #[must_use]
    pub fn parse_ack(packet: &[u8], dest: Qpn) -> Option<LoneAck> {
        let packet: &[u8; Bth::LEN + Aeth::LEN + ICRC_LEN] = packet.try_into().ok()?;
        let (bth, rest) = packet.split_first_chunk::<{ Bth::LEN }>()?;
        let Words([first, second, third]) = Words::of(bth);
        // The opcode, no pad, and the version of the header.
        if first & 0xff3f_0000 != 0x1100_0000 || second != dest.get() {
            return None;
        }
        let (psn, pkey) = (Psn::new(third & 0x00ff_ffff), PKey((first & 0xffff) as u16));
        Some(LoneAck { pkey, psn, aeth: Aeth::parse(rest.first_chunk()?) })
    }

    /// As [`parse`](Self::parse), from the first [`HEAD`](Self::HEAD) bytes of a packet that has `len` of them, or all if it has fewer. With it
    /// comes where its payload begins. For bytes that may change while they are looked at: what is read here is a copy.
    #[inline(always)]
    #[must_use]
    pub fn parse_head(head: &[u8], len: usize) -> Option<(Self, usize)> {
        let Head { words, place, verb, payload, at } = Head::read(head, len)?;
        Some((words.data(place, verb, payload), at))
    }

    /// As [`parse_head`](Self::parse_head), for a packet of the answer to a READ.
    #[inline]
    #[must_use]
    pub fn parse_answer_head(head: &[u8], len: usize) -> Option<(Self, usize)> {
        let (bth, rest) = head.split_first_chunk::<{ Bth::LEN }>()?;
        let words = Words::of(bth);
        let [opcode, flags, ..] = words.0[0].to_be_bytes();
        let (begins, ends) = match opcode {
            0x0d => (true, false),
            0x0e => (false, false),
            0x0f => (false, true),
            0x10 => (true, true),
            _ => return None,
        };
        if flags & 0x8f != 0 || words.is_marked() || words.0[2] >> 31 != 0 || !len.is_multiple_of(4) {
            return None;
        }
        let mut at = Bth::LEN;
        let mut aeth = Aeth { syndrome: Syndrome::Ack(CreditCode::UNCOUNTED), msn: Msn::new(0) };
        if begins || ends {
            aeth = Aeth::parse(rest.first_chunk()?);
            at += Aeth::LEN;
        }
        let payload = len.checked_sub(at + ICRC_LEN + usize::from(flags >> 4 & 3))?;
        if payload > PathMtu::B4096.bytes() {
            return None;
        }
        Some((words.data((begins, ends), DataVerb::Answer(aeth), payload), at))
    }

    /// The same as a packet.
    #[must_use]
    pub fn to_packet(&self) -> Packet<PayloadLen> {
        let len = PayloadLen(self.payload);
        let body = match self.verb {
            DataVerb::Send(tail) => Body::RcRequest(Request::Send(self.segment((), tail), len)),
            DataVerb::Write(reth, imm) => Body::RcRequest(Request::Write(self.segment(reth, imm), len)),
            DataVerb::Answer(aeth) => Body::RcResponse(Response::Read(self.read_segment(aeth), len)),
            DataVerb::Acknowledge(aeth) => Body::RcResponse(Response::Acknowledge(aeth)),
        };
        let mut packet = Packet::new(self.dest_qp, self.psn, body);
        packet.pkey = self.pkey;
        packet.ack_request = self.ack_request;
        packet.solicited = self.solicited;
        packet
    }

    const fn segment<H: Copy, T: Copy>(&self, head: H, tail: T) -> Segment<H, T> {
        match (self.begins, self.ends) {
            (true, true) => Segment::Only(head, tail),
            (true, false) => Segment::First(head),
            (false, true) => Segment::Last(tail),
            (false, false) => Segment::Middle,
        }
    }

    const fn read_segment(&self, aeth: Aeth) -> ReadSegment {
        match (self.begins, self.ends) {
            (true, true) => ReadSegment::Only(aeth),
            (true, false) => ReadSegment::First(aeth),
            (false, true) => ReadSegment::Last(aeth),
            (false, false) => ReadSegment::Middle,
        }
    }
}

/// What the headers of such a packet say.
struct Head {
    words: Words,
    /// Whether its message begins with it, and ends.
    place: (bool, bool),
    verb: DataVerb,
    payload: usize,
    /// Where the payload begins.
    at: usize,
}

impl Head {
    #[inline(always)]
    fn read(head: &[u8], len: usize) -> Option<Self> {
        let (bth, rest) = head.split_first_chunk::<{ Bth::LEN }>()?;
        let words = Words::of(bth);
        let [opcode, flags, ..] = words.0[0].to_be_bytes();
        let place @ (begins, _) = match opcode {
            0 | 6 => (true, false),
            1 | 7 => (false, false),
            2 | 8 => (false, true),
            4 | 10 | 0x11 => (true, true),
            _ => return None,
        };
        if flags & 0x0f != 0 || words.is_marked() || !len.is_multiple_of(4) {
            return None;
        }
        let mut at = Bth::LEN;
        let mut verb = DataVerb::Send(SendTail::Plain);
        if opcode == 0x11 {
            let header = rest.first_chunk()?;
            at += Aeth::LEN;
            if len != at + ICRC_LEN || flags & 0x30 != 0 {
                return None;
            }
            verb = DataVerb::Acknowledge(Aeth::parse(header));
        } else if opcode >= 6 {
            let mut reth = Reth { address: 0, rkey: Rkey(0), length: 0 };
            if begins {
                reth = Reth::parse(rest.first_chunk()?);
                at += Reth::LEN;
            }
            verb = DataVerb::Write(reth, None);
        }
        let pad = usize::from(flags >> 4 & 3);
        let payload = len.checked_sub(at + ICRC_LEN + pad)?;
        if payload > PathMtu::B4096.bytes() {
            return None;
        }
        Some(Self { words, place, verb, payload, at })
    }
}

/// The three words of a base transport header.
#[derive(Clone, Copy)]
struct Words([u32; 3]);

impl Words {
    #[inline(always)]
    const fn of(bth: &[u8; Bth::LEN]) -> Self {
        let [a, b, c, d, e, f, g, h, i, j, k, l] = *bth;
        Self([
            u32::from_be_bytes([a, b, c, d]),
            u32::from_be_bytes([e, f, g, h]),
            u32::from_be_bytes([i, j, k, l]),
        ])
    }

    /// Whether the network says that it is congested.
    #[inline(always)]
    const fn is_marked(self) -> bool {
        self.0[1] >> 30 != 0
    }

    /// The packet, with what its opcode says, and with what lies behind this header.
    #[inline(always)]
    const fn data(self, (begins, ends): (bool, bool), verb: DataVerb, payload: usize) -> DataPacket {
        let Self([first, second, third]) = self;
        DataPacket {
            dest_qp: Qpn::new(second & 0x00ff_ffff),
            pkey: PKey((first & 0xffff) as u16),
            psn: Psn::new(third & 0x00ff_ffff),
            ack_request: third >> 31 != 0,
            solicited: first & 0x0080_0000 != 0,
            begins,
            ends,
            verb,
            payload,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_writes_what_a_packet_writes() {
        let reth = Reth { address: 0x0102_0304_0506_0708, rkey: Rkey(0xa1b2_c3d4), length: 77_777 };
        let verbs = [
            DataVerb::Send(SendTail::Plain),
            DataVerb::Send(SendTail::Immediate(Imm(0x1234_5678))),
            DataVerb::Send(SendTail::Invalidate(Rkey(0x9abc_def0))),
            DataVerb::Write(reth, None),
            DataVerb::Write(reth, Some(Imm(5))),
            DataVerb::Answer(Aeth {
                syndrome: Syndrome::Ack(CreditCode::UNCOUNTED),
                msn: Msn::new(0x31_4159),
            }),
            DataVerb::Acknowledge(Aeth {
                syndrome: Syndrome::Ack(CreditCode::UNCOUNTED),
                msn: Msn::new(0x31_4159),
            }),
        ];
        for verb in verbs {
            let is_ack = matches!(verb, DataVerb::Acknowledge(_));
            for bits in 0..16_u8 {
                for payload in [0, 1, 2, 3, 4, 63, 64, 4095, 4096] {
                    if is_ack && (payload > 0 || bits & 3 != 3) {
                        continue;
                    }
                    let [begins, ends, ack_request, solicited] = [1, 2, 4, 8].map(|bit| bits & bit != 0);
                    let (dest_qp, pkey, psn) = (Qpn::new(0x01_0203), PKey(0xffff), Psn::new(0xab_cdef));
                    let data = DataPacket {
                        dest_qp,
                        pkey,
                        psn,
                        ack_request,
                        solicited,
                        begins,
                        ends,
                        verb,
                        payload,
                    };
                    let packet = data.to_packet();
                    assert_eq!(data.packet_len(), packet.len(), "{data:?}");
                    let (mut ours, mut theirs) = ([0x77; 64], [0x77; 64]);
                    let Ok(expected) = packet.emit_headers(&mut theirs) else { continue };
                    assert_eq!(data.emit_headers(&mut ours), Some(expected), "{data:?}");
                    assert_eq!(ours, theirs, "{data:?}");
                    assert_eq!(data.emit_headers(&mut [0; 11]), None);
                }
            }
        }
    }

    /// The ways for one kind of packet alone say the same too, and take whatever is of their kind and to their queue pair.
    fn compare_lone(bytes: &[u8], parsed: Option<&(DataPacket, &[u8])>) {
        let word =
            |at: usize| bytes.get(at..at + 4).map_or(0, |word| u32::from_be_bytes(word.try_into().unwrap()));
        let dest = Qpn::new(word(4) & 0xff_ffff);
        let other = Qpn::new(dest.get() ^ 1);
        assert_eq!(DataPacket::parse_send(bytes, other), None);
        assert_eq!(DataPacket::parse_ack(bytes, other), None);
        // Reserved bits next to the queue pair are left to the long way.
        let is_clean = word(4) >> 24 == 0;
        let send = DataPacket::parse_send(bytes, dest);
        let ack = DataPacket::parse_ack(bytes, dest);
        match parsed {
            Some((data, payload)) if is_clean && bytes[0] == 4 => {
                let DataPacket { pkey, psn, ack_request, solicited, .. } = *data;
                assert_eq!(send, Some((LoneSend { pkey, psn, ack_request, solicited }, *payload)));
                assert_eq!(ack, None);
            }
            Some((DataPacket { pkey, psn, verb: DataVerb::Acknowledge(aeth), .. }, _)) if is_clean => {
                assert_eq!(ack, Some(LoneAck { pkey: *pkey, psn: *psn, aeth: *aeth }));
                assert_eq!(send, None);
            }
            _ => assert_eq!((send, ack), (None, None)),
        }
    }

    /// Whatever bytes come, it says the same as the long way or nothing.
    fn compare(bytes: &[u8]) -> bool {
        let head = &bytes[..bytes.len().min(DataPacket::HEAD)];
        let from_head = DataPacket::parse_head(head, bytes.len());
        assert_eq!(from_head.map(|(data, _)| data), DataPacket::parse(bytes).map(|(data, _)| data));
        if let Some((data, at)) = DataPacket::parse_answer_head(head, bytes.len()) {
            let mut packet = Packet::parse(bytes).expect("what is no packet is nothing here either");
            packet.migrated = data.to_packet().migrated;
            assert_eq!(packet.map_payload(|payload| PayloadLen(payload.len())), data.to_packet());
            let body = Packet::parse(bytes).expect("as above").body;
            let payload = &bytes[at..at + data.payload];
            assert!(matches!(body, Body::RcResponse(Response::Read(_, same)) if same == payload));
            return true;
        }
        let parsed = DataPacket::parse(bytes);
        compare_lone(bytes, parsed.as_ref());
        let Some((data, payload)) = parsed else { return false };
        let mut packet = Packet::parse(bytes).expect("what is no packet is nothing here either");
        assert!(!packet.fecn && !packet.becn);
        // Who receives it does not look at this one.
        packet.migrated = data.to_packet().migrated;
        assert_eq!(packet.map_payload(|payload| PayloadLen(payload.len())), data.to_packet());
        let body = Packet::parse(bytes).expect("as above").body;
        assert!(
            matches!(body, Body::RcRequest(Request::Send(_, same) | Request::Write(_, same)) if same == payload)
                || (matches!(body, Body::RcResponse(Response::Acknowledge(_))) && payload.is_empty())
        );
        true
    }

    #[test]
    fn it_reads_what_a_packet_reads() {
        let mut read = [0; 256];
        for opcode in 0..=255_u8 {
            for len in [0, 11, 12, 15, 16, 19, 20, 28, 31, 32, 36, 40, 4116, 4120, 4128, 4132, 4136, 8000] {
                for flags in [0x00, 0x10, 0x20, 0x30, 0x40, 0x80, 0xf0, 0x01, 0x08] {
                    for (mark, asks) in [(0, 0), (0x80, 0x80), (0x40, 0), (0x3f, 0x7f), (0, 0xff)] {
                        let mut bytes = [0; 8000];
                        for (byte, value) in bytes.iter_mut().zip((0..251).cycle()) {
                            *byte = value;
                        }
                        let bytes = &mut bytes[..len];
                        for (at, value) in [(0, opcode), (1, flags), (4, mark), (8, asks)] {
                            if let Some(byte) = bytes.get_mut(at) {
                                *byte = value;
                            }
                        }
                        read[usize::from(opcode)] += u32::from(compare(bytes));
                    }
                }
            }
        }
        for (opcode, count) in read.into_iter().enumerate() {
            let is_plain = [0, 1, 2, 4, 6, 7, 8, 10, 0x0d, 0x0e, 0x0f, 0x10, 0x11].contains(&opcode);
            assert_eq!(count > 0, is_plain, "opcode {opcode}");
        }
    }
}
