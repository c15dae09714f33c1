//! Windows: one for each receiver that queue pairs send to.

use std::collections::{HashMap, VecDeque};
use std::net::IpAddr;

use ferroce_transport::Window;
use ferroce_wire::Qpn;

use crate::engine::qps::slot_of;

/// A receiver: all queue pairs behind one socket of a peer share its buffer.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Receiver {
    address: IpAddr,
    slot: u8,
}

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
        Self { window: Window::new(), receiver, users, waiting: VecDeque::new(), blocked_at: 0 }
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
    pub(crate) fn join(&mut self, address: IpAddr, qpn: Qpn) -> WindowId {
        let receiver = Receiver { address, slot: slot_of(qpn) };
        if let Some(&index) = self.by_receiver.get(&receiver) {
            self.all[index].users += 1;
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

    /// A queue pair found no room: it waits until less is under way than now, by whomever.
    pub(crate) fn wait(&mut self, id: WindowId, index: u16) {
        let shared = &mut self.all[id.0];
        shared.blocked_at = shared.window.in_flight();
        if !shared.waiting.contains(&index) {
            shared.waiting.push_back(index);
        }
    }

    /// Takes off the queue pair that has waited longest, if there is room again.
    pub(crate) fn next_waiting(&mut self, id: WindowId) -> Option<u16> {
        let shared = &mut self.all[id.0];
        if shared.waiting.is_empty() || shared.window.in_flight() >= shared.blocked_at {
            return None;
        }
        shared.waiting.pop_front()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn whoever_found_no_room_is_called_when_another_makes_some() {
        let mut windows = Windows::new();
        let id = windows.join(IpAddr::from([127, 0, 0, 2]), Qpn::new(0x01_0005));
        windows.all[id.0].blocked_at = 5;
        windows.all[id.0].waiting.push_back(7);
        assert_eq!(windows.next_waiting(id), Some(7), "nothing is under way");
        windows.wait(id, 9);
        windows.wait(id, 9);
        assert_eq!(windows.next_waiting(id), None, "nothing has changed since");
        assert_eq!(windows.all[id.0].waiting, [9]);
    }

    #[test]
    fn queue_pairs_of_one_receiver_share_a_window_and_the_last_gives_it_back() {
        let (address, other) = (IpAddr::from([127, 0, 0, 2]), IpAddr::from([127, 0, 0, 3]));
        let mut windows = Windows::new();
        let first = windows.join(address, Qpn::new(0x01_0005));
        assert_eq!(windows.join(address, Qpn::new(0x01_0009)), first);
        let slot = windows.join(address, Qpn::new(0x02_0009));
        let elsewhere = windows.join(other, Qpn::new(0x01_0005));
        assert!(first != slot && first != elsewhere && slot != elsewhere && first != WindowId::NONE);
        windows.leave(first);
        assert_eq!(windows.join(address, Qpn::new(0x01_0001)), first);
        windows.leave(first);
        windows.leave(first);
        assert_eq!(windows.by_receiver.len(), 2);
        assert_eq!(windows.join(IpAddr::from([127, 0, 0, 4]), Qpn::new(7)), first, "its place is used again");
    }
}
