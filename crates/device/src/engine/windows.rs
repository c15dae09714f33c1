//! Windows: one for each receiver that queue pairs send to.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use ferroce_switchboard::slot_of;
use ferroce_transport::Window;
use ferroce_wire::Qpn;

/// A receiver: all queue pairs behind one socket of a peer share its buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Receiver {
    address: IpAddr,
    slot: u8,
    /// Its packets come through a lane, and not to its socket.
    by_lane: bool,
}

/// Bytes that may be under way through a lane: so much of a ring that connections without a window find room beside them. What
/// else there is, answers to READs above all, has packets wait for room.
const LANE: u32 = 192 * 1024;

/// Queue pairs that are called at once when there is room.
const CALLED: usize = 16;

/// The windows of a device.
#[derive(Debug)]
pub(crate) struct Windows {
    all: Vec<Shared>,
    by_receiver: HashMap<Receiver, usize>,
    free: Vec<usize>,
}

#[derive(Debug)]
struct Shared {
    window: Window,
    receiver: Option<Receiver>,
    users: u32,
    /// Queue pairs that found no room, and how much was under way when the last of them did.
    waiting: VecDeque<u16>,
    blocked_at: u32,
}

impl Shared {
    fn new(receiver: Option<Receiver>) -> Self {
        let users = u32::from(receiver.is_some());
        let by_lane = receiver.is_some_and(|receiver| receiver.by_lane);
        Self {
            window: if by_lane { Window::ring(LANE) } else { Window::new() },
            receiver,
            users,
            waiting: VecDeque::with_capacity(CALLED),
            blocked_at: 0,
        }
    }
}

/// Which window a queue pair uses.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct WindowId(usize);

impl WindowId {
    /// The window of queue pairs that have no peer.
    pub(crate) const NONE: Self = Self(0);
}

impl Windows {
    pub(crate) fn new() -> Self {
        Self { all: vec![Shared::new(None)], by_receiver: HashMap::new(), free: Vec::new() }
    }

    /// The window of the receiver of this queue pair there.
    pub(crate) fn join(&mut self, address: IpAddr, qpn: Qpn, by_lane: bool) -> WindowId {
        let receiver = Receiver { address, slot: slot_of(qpn), by_lane };
        if let Some(&index) = self.by_receiver.get(&receiver) {
            let shared = &mut self.all[index];
            shared.users += 1;
            // Each of them may have to wait, and then nothing is to be allocated.
            let missing = (shared.users as usize).saturating_sub(shared.waiting.len());
            shared.waiting.reserve(missing);
            return WindowId(index);
        }
        let shared = Shared::new(Some(receiver));
        let index = match self.free.pop() {
            Some(index) => {
                self.all[index] = shared;
                index
            }
            None => {
                self.all.push(shared);
                self.all.len() - 1
            }
        };
        self.by_receiver.insert(receiver, index);
        WindowId(index)
    }

    /// A queue pair has done with its window.
    pub(crate) fn leave(&mut self, id: WindowId) {
        let Some(shared) = self.all.get_mut(id.0).filter(|shared| shared.users > 0) else { return };
        shared.users -= 1;
        if shared.users == 0
            && let Some(receiver) = shared.receiver.take()
        {
            self.by_receiver.remove(&receiver);
            self.free.push(id.0);
        }
    }

    pub(crate) fn get(&mut self, id: WindowId) -> &mut Window {
        &mut self.all[id.0].window
    }

    /// Two different windows at once.
    pub(crate) fn two(&mut self, one: WindowId, other: WindowId) -> Option<[&mut Window; 2]> {
        let [one, other] = self.all.get_disjoint_mut([one.0, other.0]).ok()?;
        Some([&mut one.window, &mut other.window])
    }

    /// A queue pair found no room: it waits until less is under way than now, of all queue pairs. If it has
    /// sent something, its turn is over and it goes to the end; else it keeps its place.
    pub(crate) fn wait(&mut self, id: WindowId, index: u16, has_sent: bool) {
        let shared = &mut self.all[id.0];
        shared.blocked_at = shared.window.in_flight();
        let place = shared.waiting.iter().position(|waiting| *waiting == index);
        if let Some(place) = place.filter(|_| has_sent) {
            shared.waiting.remove(place);
        }
        if has_sent || place.is_none() {
            shared.waiting.push_back(index);
        }
    }

    /// A queue pair does not wait for room any more.
    pub(crate) fn leave_queue(&mut self, id: WindowId, index: u16) {
        let waiting = &mut self.all[id.0].waiting;
        if let Some(place) = waiting.iter().position(|waiting| *waiting == index) {
            waiting.remove(place);
        }
    }

    /// Whether queue pairs wait for room.
    #[inline]
    pub(crate) fn is_waited_for(&self, id: WindowId) -> bool {
        !self.all[id.0].waiting.is_empty()
    }

    /// The queue pairs that have waited longest, if there is room again: as many as could use it. They keep
    /// their places until they have sent something.
    pub(crate) fn called(&self, id: WindowId) -> impl Iterator<Item = u16> {
        let shared = &self.all[id.0];
        let has_room = shared.window.in_flight() < shared.blocked_at;
        shared.waiting.iter().copied().take(if has_room { CALLED } else { 0 })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_queue_pair_that_found_no_room_is_called_when_another_makes_some() {
        let mut windows = Windows::new();
        let id = windows.join(IpAddr::from([127, 0, 0, 2]), Qpn::new(0x01_0005), false);
        let called = |windows: &Windows| windows.called(id).collect::<Vec<_>>();
        for index in [7, 8, 9] {
            windows.wait(id, index, false);
        }
        assert_eq!(called(&windows), [0_u16; 0], "nothing has changed since");
        windows.all[id.0].blocked_at = 5;
        assert_eq!(called(&windows), [7, 8, 9], "less is under way");
        windows.wait(id, 7, true);
        windows.wait(id, 8, false);
        assert_eq!(windows.all[id.0].waiting, [8, 9, 7], "a queue pair that has sent goes to the end");
        windows.leave_queue(id, 9);
        assert_eq!(windows.all[id.0].waiting, [8, 7]);
    }

    #[test]
    fn queue_pairs_of_one_receiver_share_a_window_and_the_last_gives_it_back() {
        let (address, other) = (IpAddr::from([127, 0, 0, 2]), IpAddr::from([127, 0, 0, 3]));
        let mut windows = Windows::new();
        let first = windows.join(address, Qpn::new(0x01_0005), false);
        assert_eq!(windows.join(address, Qpn::new(0x01_0009), false), first);
        let slot = windows.join(address, Qpn::new(0x02_0009), false);
        let elsewhere = windows.join(other, Qpn::new(0x01_0005), false);
        assert!(first != slot && first != elsewhere && slot != elsewhere && first != WindowId::NONE);
        windows.leave(first);
        assert_eq!(windows.join(address, Qpn::new(0x01_0001), false), first);
        windows.leave(first);
        windows.leave(first);
        assert_eq!(windows.by_receiver.len(), 2);
        assert_eq!(
            windows.join(IpAddr::from([127, 0, 0, 4]), Qpn::new(7), false),
            first,
            "its place is used again"
        );
    }
}
