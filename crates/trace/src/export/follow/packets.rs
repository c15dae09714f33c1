//! Packets that are held back until all is known of them.

use std::collections::VecDeque;
use std::net::IpAddr;

use ferroce_record::{Ends, MoreHeaders, Packet, PacketFlags, Way};
use ferroce_wire::{Opcode, Qpn, Service};

use super::is_response;
use super::works::Note;

/// Packets that are held back.
const HELD: usize = 2048;

/// How many of them are looked at for one that fault injection did something to.
const LOOKED_AT: usize = 1024;

/// The addresses of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::export) struct Route {
    pub(in crate::export) from: IpAddr,
    pub(in crate::export) to: IpAddr,
    /// The UDP port that it left from.
    pub(in crate::export) port: u16,
}

impl Route {
    pub(super) const fn of_way(way: &Way, is_out: bool) -> Self {
        Self::new(way.local, way.remote, way.port, is_out)
    }

    pub(super) const fn of_ends(ends: &Ends, is_out: bool) -> Self {
        Self::new(ends.local, ends.remote, ends.port, is_out)
    }

    const fn new(local: IpAddr, remote: IpAddr, port: u16, is_out: bool) -> Self {
        let (from, to) = if is_out { (local, remote) } else { (remote, local) };
        Self { from, to, port }
    }
}

/// Which work a packet belongs to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::export) enum Belongs {
    /// To none that is known.
    Nothing,
    /// To work of the process that recorded it.
    Own(Note),
    /// To work of its peer.
    Peer(Note),
}

impl Belongs {
    pub(super) const fn own(&self) -> Option<Note> {
        match self {
            Self::Own(note) => Some(*note),
            _ => None,
        }
    }

    /// The work, at either end.
    pub(in crate::export) const fn note(&self) -> Option<&Note> {
        match self {
            Self::Own(note) | Self::Peer(note) => Some(note),
            Self::Nothing => None,
        }
    }
}

/// A packet at its other end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::export) struct OtherEnd {
    /// Its number there.
    pub(in crate::export) number: u64,
    pub(in crate::export) source: usize,
    pub(in crate::export) qpn: Qpn,
    pub(in crate::export) time: u64,
}

/// A packet, with all that is known of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::export) struct PacketRow {
    /// Its number among all packets of the time-line.
    pub(in crate::export) number: u64,
    pub(in crate::export) source: usize,
    pub(in crate::export) time: u64,
    pub(in crate::export) packet: Packet,
    pub(in crate::export) more: Option<MoreHeaders>,
    pub(in crate::export) route: Option<Route>,
    /// The queue pair that its own is connected to.
    pub(super) peer: Option<Qpn>,
    pub(in crate::export) belongs: Belongs,
    /// Where else it was seen.
    pub(in crate::export) other: Option<OtherEnd>,
    pub(super) flow: Option<u32>,
}

impl PacketRow {
    pub(super) const fn new(number: u64, source: usize, time: u64, packet: Packet) -> Self {
        Self {
            number,
            source,
            time,
            packet,
            more: None,
            route: None,
            peer: None,
            belongs: Belongs::Nothing,
            other: None,
            flow: None,
        }
    }

    pub(in crate::export) const fn is_out(&self) -> bool {
        self.packet.flags.contains(PacketFlags::OUT)
    }

    /// Whether it answers a request.
    pub(in crate::export) fn is_response(&self) -> bool {
        is_response(self.packet.headers[0])
    }

    pub(in crate::export) fn opcode(&self) -> Option<Opcode> {
        Opcode::from_byte(self.packet.headers[0])
    }

    pub(super) fn is_datagram(&self) -> bool {
        self.opcode().is_some_and(|opcode| opcode.info().service == Service::Ud)
    }

    pub(in crate::export) const fn psn(&self) -> u32 {
        self.number_at(9)
    }

    pub(in crate::export) const fn dest_qp(&self) -> Qpn {
        Qpn::new(self.number_at(5))
    }

    /// The queue pair at its other end, as far as this end knows.
    pub(in crate::export) fn far_qpn(&self) -> Option<Qpn> {
        match self.other {
            Some(other) => Some(other.qpn),
            None if self.is_out() => Some(self.dest_qp()),
            None if self.is_datagram() => Some(self.datagram_sender()),
            None => self.peer,
        }
    }

    /// The queue pair that sent it, as its datagram header says.
    pub(super) const fn datagram_sender(&self) -> Qpn {
        Qpn::new(self.number_at(17))
    }

    /// A number of 24 bits.
    const fn number_at(&self, at: usize) -> u32 {
        let headers = &self.packet.headers;
        u32::from_be_bytes([0, headers[at], headers[at + 1], headers[at + 2]])
    }

    /// The number that both ends of it have in common: that of the packet that left, if it is known.
    pub(in crate::export) fn common(&self) -> u64 {
        if self.is_out() { self.number } else { self.other.map_or(self.number, |other| other.number) }
    }

    /// Puts its transport headers behind what is there.
    pub(in crate::export) fn put_headers(&self, bytes: &mut Vec<u8>) {
        bytes.extend_from_slice(self.packet.headers());
        if let Some(more) = &self.more {
            let left = usize::from(self.packet.headers_len).saturating_sub(self.packet.headers().len());
            bytes.extend_from_slice(&more.bytes[..left.min(more.bytes.len())]);
        }
    }

    /// Bytes from its first header to its ICRC.
    pub(in crate::export) fn wire_len(&self) -> u32 {
        const ICRC: u32 = 4;
        u32::from(self.packet.headers_len) + u32::from(self.packet.payload).next_multiple_of(4) + ICRC
    }
}

/// Packets that are held back, in the order of their numbers.
#[derive(Debug, Default)]
pub(super) struct Held {
    rows: VecDeque<PacketRow>,
    /// The number of the first of them.
    first: u64,
}

impl Held {
    pub(super) fn next_number(&self) -> u64 {
        self.first + self.rows.len() as u64
    }

    pub(super) fn push(&mut self, row: PacketRow) {
        self.rows.push_back(row);
    }

    pub(super) fn pop_if_full(&mut self) -> Option<PacketRow> {
        if self.rows.len() > HELD { self.pop() } else { None }
    }

    pub(super) fn pop(&mut self) -> Option<PacketRow> {
        let row = self.rows.pop_front()?;
        self.first += 1;
        Some(row)
    }

    pub(super) fn get(&self, number: u64) -> Option<&PacketRow> {
        self.rows.get(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut PacketRow> {
        self.rows.get_mut(usize::try_from(number.checked_sub(self.first)?).ok()?)
    }

    /// The packet of a queue pair that came last, which more is told of. Events of other rings and processes may have
    /// come between.
    pub(super) fn last(&mut self, source: usize, qpn: Qpn) -> Option<&mut PacketRow> {
        const NEAR: usize = 64;
        let is_it = |row: &&mut PacketRow| row.source == source && row.packet.qpn == qpn;
        self.rows.iter_mut().rev().take(NEAR).find(is_it)
    }

    pub(super) fn more(&mut self, source: usize, more: MoreHeaders) {
        if let Some(row) = self.last(source, more.qpn) {
            row.more = Some(more);
        }
    }

    /// What fault injection did to a packet: the last one of these headers.
    pub(super) fn remark(&mut self, source: usize, remark: &Packet) -> Option<PacketRow> {
        let is_it = |row: &&mut PacketRow| {
            row.source == source
                && row.packet.qpn == remark.qpn
                && row.is_out()
                && row.packet.headers() == remark.headers()
        };
        let row = self.rows.iter_mut().rev().take(LOOKED_AT).find(is_it)?;
        row.packet.flags |= remark.flags & PacketFlags::FATE;
        Some(*row)
    }
}
