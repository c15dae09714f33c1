//! Packets between two processes of a time-line: which that came is which that left.

use std::hash::{Hash, Hasher};
use std::net::IpAddr;

use ferroce_record::PacketFlags;
use ferroce_wire::Qpn;

use super::is_response;
use super::packets::{OtherEnd, PacketRow};
use super::works::Note;
use crate::export::hash::{Mix, Quick};

/// Flows that are told apart; packets of those beyond have one end only.
const FLOWS: usize = 1 << 16;

/// Packets that left, and are remembered: so many times [`WAYS`].
const SETS: usize = 1 << 14;

/// Places of packets that share a set. The oldest makes room.
const WAYS: usize = 8;

/// Where packets come from and go to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct FlowKey {
    pub(super) from: IpAddr,
    pub(super) to: IpAddr,
    pub(super) dest: Qpn,
    /// The queue pair that sends datagrams: those of several may come to one.
    pub(super) sender: Option<Qpn>,
}

/// A packet that left.
#[derive(Clone, Copy, Debug)]
struct Left {
    key: Key,
    opcode: u8,
    /// Whether it came.
    has_come: bool,
    /// Whether fault injection took it.
    is_taken: bool,
    end: OtherEnd,
    note: Option<Note>,
}

/// Flow, number and direction of a packet.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Key {
    flow: u32,
    psn: u32,
    is_response: bool,
}

impl Key {
    fn new(flow: u32, psn: u32, opcode: u8) -> Self {
        Self { flow, psn, is_response: is_response(opcode) }
    }

    fn set(self) -> usize {
        let mut mix = Mix::default();
        self.hash(&mut mix);
        #[expect(clippy::cast_possible_truncation, reason = "the lower bits are asked for")]
        let bits = mix.finish() as usize;
        bits & (SETS - 1)
    }
}

/// Packets under way, and what is known of flows.
#[derive(Debug, Default)]
pub(super) struct Flights {
    flows: Quick<FlowKey, u32>,
    /// The queue pair that sends over a flow.
    senders: Vec<Option<(usize, Qpn)>>,
    left: Vec<[Option<Left>; WAYS]>,
    /// Packets that came, are held back, and have not left yet.
    early: Quick<(Key, u8), OtherEnd>,
}

impl Flights {
    /// The number of a flow.
    pub(super) fn flow(&mut self, key: FlowKey) -> Option<u32> {
        if let Some(flow) = self.flows.get(&key) {
            return Some(*flow);
        }
        if self.flows.len() >= FLOWS {
            return None;
        }
        let flow = u32::try_from(self.flows.len()).ok()?;
        self.flows.insert(key, flow);
        self.senders.push(None);
        Some(flow)
    }

    pub(super) fn sends(&mut self, flow: u32, source: usize, qpn: Qpn) {
        if let Some(sender) = self.senders.get_mut(flow as usize) {
            *sender = Some((source, qpn));
        }
    }

    pub(super) fn sender(&self, flow: u32) -> Option<(usize, Qpn)> {
        self.senders.get(flow as usize).copied().flatten()
    }

    /// A packet left: if it came already, where.
    pub(super) fn left(
        &mut self,
        flow: u32,
        psn: u32,
        opcode: u8,
        end: OtherEnd,
        note: Option<Note>,
    ) -> Option<OtherEnd> {
        let key = Key::new(flow, psn, opcode);
        let came = self.early.remove(&(key, opcode));
        if self.left.is_empty() {
            self.left = vec![[None; WAYS]; SETS];
        }
        let set = &mut self.left[key.set()];
        let age = |place: &usize| set[*place].map_or(0, |left| left.end.number + 1);
        let place = (0..WAYS).min_by_key(age).unwrap_or(0);
        set[place] = Some(Left { key, opcode, has_come: came.is_some(), is_taken: false, end, note });
        came
    }

    /// A packet came: where it left, and for which work. It is the last that left and has not come yet; if there is
    /// none, the last that left.
    pub(super) fn came(
        &mut self,
        flow: u32,
        psn: u32,
        opcode: u8,
        end: OtherEnd,
    ) -> Option<(OtherEnd, Option<Note>)> {
        let key = Key::new(flow, psn, opcode);
        let set = self.left.get_mut(key.set());
        let fits = |left: &&mut Left| left.key == key && left.opcode == opcode && !left.is_taken;
        let fitting = set.into_iter().flatten().flatten().filter(fits);
        let Some(left) = fitting.max_by_key(|left| (!left.has_come, left.end.number)) else {
            self.early.insert((key, opcode), end);
            return None;
        };
        left.has_come = true;
        Some((left.end, left.note))
    }

    /// What fault injection did to a packet that had left.
    pub(super) fn fate(&mut self, number: u64, flow: Option<u32>, psn: u32, fate: PacketFlags) {
        let Some(flow) = flow.filter(|_| fate.contains(PacketFlags::TAKEN)) else { return };
        for is_response in [false, true] {
            let key = Key { flow, psn, is_response };
            if let Some(set) = self.left.get_mut(key.set()) {
                set.iter_mut().flatten().filter(|left| left.end.number == number).for_each(|left| {
                    left.is_taken = true;
                });
            }
        }
    }

    /// A packet is no longer held back: if it came from nowhere, that is so.
    pub(super) fn forget(&mut self, row: &PacketRow) {
        if !row.is_out()
            && row.other.is_none()
            && let Some(flow) = row.flow
        {
            let opcode = row.packet.headers[0];
            let key = (Key::new(flow, row.psn(), opcode), opcode);
            if self.early.get(&key).is_some_and(|end| end.number == row.number) {
                self.early.remove(&key);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const WRITE_ONLY: u8 = 0x0a;

    fn end(number: u64) -> OtherEnd {
        OtherEnd { number, source: 0, qpn: Qpn::new(7), time: number * 10 }
    }

    /// Packets of one number that left, and the numbers of those that came are asked for one after the other.
    fn came(flights: &mut Flights, number: u64) -> Option<u64> {
        flights.came(0, 5, WRITE_ONLY, end(number)).map(|(left, _)| left.number)
    }

    #[test]
    fn what_was_taken_never_comes() {
        let mut flights = Flights::default();
        for number in [1, 2] {
            assert_eq!(flights.left(0, 5, WRITE_ONLY, end(number), None), None);
        }
        flights.fate(2, Some(0), 5, PacketFlags::TAKEN);
        assert_eq!(came(&mut flights, 3), Some(1), "the first was late, and the repeat was taken");
    }

    #[test]
    fn the_last_that_left_comes_first_and_what_comes_twice_is_the_same() {
        let mut flights = Flights::default();
        for number in [1, 2] {
            assert_eq!(flights.left(0, 5, WRITE_ONLY, end(number), None), None);
        }
        flights.fate(2, Some(0), 5, PacketFlags::DOUBLED);
        let places = [3, 4, 5].map(|number| came(&mut flights, number));
        assert_eq!(places, [Some(2), Some(1), Some(2)]);
    }

    #[test]
    fn other_numbers_flows_and_opcodes_are_other_packets() {
        let mut flights = Flights::default();
        assert_eq!(flights.left(0, 5, WRITE_ONLY, end(1), None), None);
        assert_eq!(flights.came(0, 6, WRITE_ONLY, end(2)), None);
        assert_eq!(flights.came(1, 5, WRITE_ONLY, end(3)), None);
        assert_eq!(flights.came(0, 5, 0x04, end(4)), None);
        assert_eq!(flights.left(0, 6, WRITE_ONLY, end(5), None), Some(end(2)), "it came before it left");
    }
}
