//! Which addresses are of this machine.
//!
//! Every user of a machine can send from every address of it, from any port that is free. What cannot be had is a
//! port on which another user's sockets are: so a packet from this machine tells by its port whether a device sent
//! it. Devices send from the port of RoCEv2 to peers of the same machine, and nothing else is taken from there.
//! Between machines the port says nothing: it spreads packets over ways through the network.

use std::net::IpAddr;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Mutex, PoisonError, RwLock};
use std::time::Duration;

use ferroce_fabric::PORT;
use ferroce_sys::clock;
use ferroce_sys::interfaces;
use ferroce_sys::sync::lock;
use ferroce_transport::Time;

/// How long a list of addresses is good for: the kernel is not asked for each address handle anew.
const FRESH: Duration = Duration::from_millis(100);

/// The addresses of this machine, as far as they concern one interface.
#[derive(Debug)]
pub struct Locals {
    /// The interface is a loopback one: all that comes over it is from this machine.
    loopback: bool,
    /// The network namespace of the interface, where the kernel tells.
    namespace: Option<u64>,
    addresses: RwLock<Vec<IpAddr>>,
    looked: Mutex<Option<Time>>,
    /// How often the list has changed.
    version: AtomicU64,
}

/// The last address that was seen to be of another machine, so that the next packet from there is not looked up.
#[derive(Clone, Copy, Debug, Default)]
pub struct Distant(Option<(IpAddr, u64)>);

impl Locals {
    pub(super) fn new(loopback: bool) -> Self {
        let locals = Self {
            loopback,
            namespace: interfaces::network_namespace(),
            addresses: RwLock::default(),
            looked: Mutex::default(),
            version: AtomicU64::new(0),
        };
        locals.look_again();
        locals
    }

    /// Whether an address is of this machine, by a list that is fresh.
    pub fn asked_anew(&self, address: IpAddr) -> bool {
        self.look_again();
        self.has(address)
    }

    /// Whether a datagram comes from this machine, but not from the port that devices send from.
    #[inline]
    pub fn is_foreign(&self, (address, port): (IpAddr, u16), distant: &mut Distant) -> bool {
        port != PORT && (self.loopback || self.is_near(address, distant))
    }

    fn is_near(&self, address: IpAddr, distant: &mut Distant) -> bool {
        let version = self.version.load(Ordering::Acquire);
        if distant.0 == Some((address, version)) {
            return false;
        }
        let near = self.has(address);
        distant.0 = (!near).then_some((address, version));
        near
    }

    fn has(&self, address: IpAddr) -> bool {
        let known = || self.addresses.read().unwrap_or_else(PoisonError::into_inner).contains(&address);
        self.loopback || address.is_loopback() || known()
    }

    /// Asks the kernel, unless it was asked just now. What it does not tell stays as it was, and a thread of
    /// another network namespace would be told of that one.
    fn look_again(&self) {
        if self.loopback {
            return;
        }
        let mut looked = lock(&self.looked);
        let now = clock::now();
        if looked.is_some_and(|last| now.since(last) < FRESH) {
            return;
        }
        if interfaces::network_namespace() != self.namespace {
            return;
        }
        let Ok(found) = interfaces::addresses() else { return };
        *looked = Some(now);
        let mut addresses = self.addresses.write().unwrap_or_else(PoisonError::into_inner);
        if *addresses != found {
            *addresses = found;
            self.version.fetch_add(1, Ordering::Release);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn with(addresses: &[&str]) -> Locals {
        let addresses: Vec<IpAddr> = addresses.iter().map(|text| text.parse().unwrap()).collect();
        Locals {
            loopback: false,
            namespace: interfaces::network_namespace(),
            addresses: RwLock::new(addresses),
            looked: Mutex::new(None),
            version: AtomicU64::new(1),
        }
    }

    #[test]
    fn from_this_machine_only_the_port_of_devices_counts() {
        let locals = with(&["10.0.0.1", "fd00::1"]);
        let mut distant = Distant::default();
        let mut foreign = |text: &str, port| locals.is_foreign((text.parse().unwrap(), port), &mut distant);
        for here in ["10.0.0.1", "fd00::1", "127.0.0.1", "127.8.8.8", "::1"] {
            assert!(foreign(here, 50_000), "{here}");
            assert!(!foreign(here, PORT), "{here}");
        }
        for there in ["10.0.0.2", "10.0.0.2", "fd00::2", "10.0.0.2"] {
            assert!(!foreign(there, 50_000), "{there}");
        }
    }

    #[test]
    fn over_a_loopback_interface_everything_is_from_this_machine() {
        let locals = Locals::new(true);
        assert!(locals.is_foreign(("192.0.2.1".parse().unwrap(), 50_000), &mut Distant::default()));
        assert!(locals.asked_anew("192.0.2.1".parse().unwrap()));
    }

    #[test]
    fn an_address_that_comes_to_this_machine_is_not_taken_for_a_distant_one_any_more() {
        let locals = with(&[]);
        let mut distant = Distant::default();
        let source = ("10.0.0.1".parse().unwrap(), 50_000);
        assert!(!locals.is_foreign(source, &mut distant));
        *locals.addresses.write().unwrap() = vec![source.0];
        locals.version.fetch_add(1, Ordering::Release);
        assert!(locals.is_foreign(source, &mut distant));
    }

    #[test]
    fn the_kernel_tells_the_addresses_of_this_machine() {
        let locals = with(&[]);
        assert!(!locals.has("192.0.2.77".parse().unwrap()));
        locals.look_again();
        let all = locals.addresses.read().unwrap().clone();
        assert!(all.contains(&IpAddr::from([127, 0, 0, 1])), "{all:?}");
    }

    /// A device of one namespace took peers for neighbours, and dropped their packets, when a thread of
    /// another one had made its queue pair.
    #[test]
    fn a_thread_of_another_network_namespace_does_not_change_the_list() {
        let locals = Locals { namespace: Some(0), ..with(&["10.0.0.1"]) };
        assert!(locals.asked_anew([10, 0, 0, 1].into()));
        assert_eq!(*locals.addresses.read().unwrap(), [IpAddr::from([10, 0, 0, 1])]);
    }

    #[test]
    fn a_fresh_list_of_addresses_is_not_asked_for_again_and_the_same_list_is_no_change() {
        let locals = with(&[]);
        let seen = || (locals.version.load(Ordering::Acquire), locals.addresses.read().unwrap().is_empty());
        *locals.looked.lock().unwrap() = Some(clock::now() + Duration::from_secs(3600));
        locals.look_again();
        assert_eq!(seen(), (1, true), "it is fresh");
        *locals.looked.lock().unwrap() = None;
        locals.look_again();
        assert_eq!(seen(), (2, false));
        assert!(locals.looked.lock().unwrap().is_some(), "it is remembered when that was");
        *locals.looked.lock().unwrap() = None;
        locals.look_again();
        assert_eq!(seen(), (2, false), "the same list");
        assert!(locals.asked_anew([127, 0, 0, 1].into()) && !locals.asked_anew([192, 0, 2, 77].into()));
    }
}
