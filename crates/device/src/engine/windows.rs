//! Windows: one for each receiver that queue pairs send to.

use std::collections::HashMap;
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
        let nobody = Shared { window: Window::new(), receiver: None, users: 0 };
        Self { all: vec![nobody], by_receiver: HashMap::new(), free: Vec::new() }
    }

    /// The window of the receiver of this queue pair there.
    pub(crate) fn join(&mut self, address: IpAddr, qpn: Qpn) -> WindowId {
        let receiver = Receiver { address, slot: slot_of(qpn) };
        if let Some(&index) = self.by_receiver.get(&receiver) {
            self.all[index].users += 1;
            return WindowId(index);
        }
        let shared = Shared { window: Window::new(), receiver: Some(receiver), users: 1 };
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
}

#[cfg(test)]
mod tests {
    use super::*;

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
