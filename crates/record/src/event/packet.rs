//! Events of packets.

use bitflags::bitflags;
use ferroce_wire::Qpn;

use super::work::numbered;
use super::{Head, Kind, Words};
use crate::packing::{BODY, Body, Packer, Unpacker};

/// Bytes of transport headers that an event of a packet holds.
pub const HEADERS: usize = 40;

/// Bytes of headers that the event after it holds, if there are more.
const MORE: usize = BODY * 8;

bitflags! {
    /// What is known of a packet.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct PacketFlags: u16 {
        /// It left; else it came.
        const OUT = 1 << 0;
        /// It stayed in this process: no network saw it.
        const LOCAL = 1 << 1;
        /// `work` says which work of the send queue it belongs to.
        const WORK = 1 << 2;
        /// It had been sent before.
        const REPEAT = 1 << 3;
        /// Fault injection took it: it did not leave.
        const TAKEN = 1 << 4;
        /// Fault injection sent it twice.
        const DOUBLED = 1 << 5;
        /// Fault injection held it back for a while.
        const DELAYED = 1 << 6;
        /// Fault injection changed a bit of it.
        const DAMAGED = 1 << 7;
        /// It was refused before a queue pair saw it.
        const REFUSED = 1 << 8;
        /// The network marked it: there is congestion.
        const CONGESTION = 1 << 9;
    }
}

numbered! {
    /// Why a packet was refused before a queue pair saw it.
    Refusal {
        /// It is no packet.
        Malformed = 1 "it is no RoCE packet",
        /// Its checksum is wrong.
        Icrc = 2 "its ICRC is wrong",
        /// No queue pair has this number.
        UnknownQp = 3 "no queue pair has this number",
        /// The queue pair is connected to another peer.
        WrongPeer = 4 "the queue pair is connected to another peer",
        /// The peer of the queue pair is in this process, and sends nothing over the network.
        WrongPath = 5 "the peer is in this process, and sends nothing over the network",
    }
}

/// A packet left or came.
///
/// With one of the flags of fault injection it is a remark on the last packet of this queue pair with these headers, and
/// no packet of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Packet {
    /// The queue pair of this process that sent it, or that it is for.
    pub qpn: Qpn,
    /// What is known of it.
    pub flags: PacketFlags,
    /// Which work of the send queue it belongs to, or why it was refused, if a flag says so.
    pub work: u32,
    /// Bytes of payload, which the record does not hold.
    pub payload: u16,
    /// Bytes of transport headers; those beyond [`HEADERS`] are in [`MoreHeaders`].
    pub headers_len: u8,
    /// How often it was sent before.
    pub repeat: u8,
    /// The first of them, as they were on the wire, from the base transport header on.
    pub headers: [u8; HEADERS],
}

impl PacketFlags {
    /// What fault injection did to a packet that had left.
    pub const FATE: Self = Self::TAKEN.union(Self::DOUBLED).union(Self::DELAYED).union(Self::DAMAGED);
}

impl Packet {
    /// Why it was refused before a queue pair saw it, if so.
    #[must_use]
    pub fn refusal(&self) -> Option<Refusal> {
        let code = u8::try_from(self.work).ok()?;
        Refusal::from_code(code).filter(|_| self.flags.contains(PacketFlags::REFUSED))
    }

    /// The headers, as far as this event holds them.
    #[must_use]
    pub fn headers(&self) -> &[u8] {
        &self.headers[..usize::from(self.headers_len).min(HEADERS)]
    }

    /// A packet with these headers, and what has to follow if they are longer than an event holds.
    #[must_use]
    #[inline]
    pub fn with_headers(mut self, headers: &[u8]) -> (Self, Option<MoreHeaders>) {
        self.headers_len = u8::try_from(headers.len()).unwrap_or(u8::MAX);
        let held = headers.len().min(HEADERS);
        self.headers[..held].copy_from_slice(&headers[..held]);
        let more = (headers.len() > HEADERS).then(|| MoreHeaders::new(self.qpn, &headers[HEADERS..]));
        (self, more)
    }
}

/// What is known of a packet besides its headers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PacketHead {
    /// The queue pair of this process that sent it, or that it is for.
    pub qpn: Qpn,
    /// What is known of it.
    pub flags: PacketFlags,
    /// Which work of the send queue it belongs to, or why it was refused, if a flag says so.
    pub work: u32,
    /// Bytes of payload.
    pub payload: u16,
    /// How often it was sent before.
    pub repeat: u8,
}

impl PacketHead {
    /// The event of a packet with these headers, as words, and what has to follow if they are longer than an event holds. The
    /// same as by way of [`Packet`], for packets that are many.
    #[inline(always)]
    pub(crate) fn words(&self, headers: &[u8]) -> (Words, Option<MoreHeaders>) {
        let Self { qpn, flags, work, payload, repeat } = *self;
        let len = u8::try_from(headers.len()).unwrap_or(u8::MAX);
        let first = u64::from(Packet::KIND) | u64::from(flags.bits()) << 16 | u64::from(qpn.get()) << 32;
        let second =
            u64::from(work) | u64::from(payload) << 32 | u64::from(len) << 48 | u64::from(repeat) << 56;
        let [a, b, c, d, e] = header_words(headers);
        let more = (headers.len() > HEADERS).then(|| MoreHeaders::new(qpn, &headers[HEADERS..]));
        ([0, first, second, a, b, c, d, e], more)
    }
}

/// The first bytes of headers, as words.
#[inline(always)]
fn header_words(headers: &[u8]) -> [u64; HEADERS / 8] {
    // Nearly all packets have headers of one of these lengths, and copying is cheap where the length is known: those of
    // nothing but the base transport header, with an immediate or an acknowledgement, with the address of a WRITE or READ.
    match headers.len() {
        12 => words_of::<12>(headers),
        16 => words_of::<16>(headers),
        28 => words_of::<28>(headers),
        HEADERS.. => words_of::<HEADERS>(headers),
        _ => {
            let mut bytes = [0; HEADERS];
            bytes[..headers.len()].copy_from_slice(headers);
            words_of::<HEADERS>(&bytes)
        }
    }
}

/// So many of the first bytes, as words.
#[inline(always)]
fn words_of<const LEN: usize>(bytes: &[u8]) -> [u64; HEADERS / 8] {
    let Some(bytes) = bytes.first_chunk::<LEN>() else { return [0; HEADERS / 8] };
    let byte = |at: usize| if at < LEN { u64::from(bytes[at]) << (at % 8 * 8) } else { 0 };
    std::array::from_fn(|word| {
        let at = word * 8;
        byte(at)
            | byte(at + 1)
            | byte(at + 2)
            | byte(at + 3)
            | byte(at + 4)
            | byte(at + 5)
            | byte(at + 6)
            | byte(at + 7)
    })
}

impl Kind for Packet {
    const KIND: u8 = 16;

    fn head(&self) -> Head {
        Head { flags: self.flags.bits(), number: self.qpn.get() }
    }

    #[inline]
    fn body(&self) -> Body {
        let first = Packer::default().u32(self.work).u16(self.payload).u8(self.headers_len).u8(self.repeat);
        let mut body = first.done();
        for (word, bytes) in body[1..].iter_mut().zip(self.headers.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        body
    }

    fn read(head: Head, body: &Body) -> Option<Self> {
        let mut from = Unpacker::new(body);
        let (work, payload, headers_len, repeat) = (from.u32(), from.u16(), from.u8(), from.u8());
        let mut headers = [0; HEADERS];
        for (bytes, word) in headers.as_chunks_mut().0.iter_mut().zip(&body[1..]) {
            *bytes = word.to_le_bytes();
        }
        let flags = PacketFlags::from_bits(head.flags)?;
        Some(Self { qpn: head.qpn()?, flags, work, payload, headers_len, repeat, headers })
    }
}

/// The rest of the headers of the packet before.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MoreHeaders {
    /// The queue pair of the packet.
    pub qpn: Qpn,
    /// The bytes; those behind the end of the headers are zero.
    pub bytes: [u8; MORE],
}

impl MoreHeaders {
    pub(super) fn new(qpn: Qpn, rest: &[u8]) -> Self {
        let mut bytes = [0; MORE];
        let held = rest.len().min(MORE);
        bytes[..held].copy_from_slice(&rest[..held]);
        Self { qpn, bytes }
    }
}

impl Kind for MoreHeaders {
    const KIND: u8 = 17;

    fn head(&self) -> Head {
        Head::of(self.qpn)
    }

    fn body(&self) -> Body {
        let mut body = Body::default();
        for (word, bytes) in body.iter_mut().zip(self.bytes.as_chunks().0) {
            *word = u64::from_le_bytes(*bytes);
        }
        body
    }

    fn read(head: Head, body: &Body) -> Option<Self> {
        let mut bytes = [0; MORE];
        for (bytes, word) in bytes.as_chunks_mut().0.iter_mut().zip(body) {
            *bytes = word.to_le_bytes();
        }
        Some(Self { qpn: head.qpn()?, bytes })
    }
}
