//! Cards: what the objects of verbs are on a device of the machine's own library.

mod clock;
mod completion_queue;
pub(crate) mod connector;
pub(crate) mod convert;
pub(crate) mod event;
mod groups;
pub(crate) mod kept;
mod lookout;
pub(crate) mod post;
mod queue_pair;
pub(crate) mod registrations;

use std::collections::HashMap;
use std::fmt;
use std::net::IpAddr;
use std::sync::atomic::{AtomicU32, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError, Weak};

use ferroce_sys::Random;
use ferroce_system::{Card, CardAttributes, GidEntry, ProtectionDomain};
use ferroce_transport::DomainId;
use ferroce_wire::{Gid, PKey, PathMtu};

pub(crate) use completion_queue::CardQueue;
use event::{AsyncEvent, told};

pub(crate) use post::Receiver;
pub(crate) use queue_pair::{CardQueuePair, CardSharedQueue, Parts};

use crate::capability::Capability;
use crate::error::{CreateError, OpenError};
use clock::CardClock;
use connector::Connector;
use groups::Groups;
use lookout::Lookout;
use registrations::Watch;

/// An open card.
pub(crate) struct OpenCard {
    pub(crate) system: ferroce_system::Context,
    attributes: CardAttributes,
    /// None if it does not tell when work ended.
    pub(crate) clock: Option<CardClock>,
    pub(crate) registrations: Watch,
    domains: AtomicU32,
    queues: Mutex<HashMap<u32, Weak<CardQueue>>>,
    pub(crate) connector: Connector,
    pub(crate) groups: Groups,
    /// Keeps watch for threads and tasks that wait. It goes before the card does.
    pub(crate) lookout: Lookout,
}

/// The port of a card that is used.
pub(crate) const PORT: u8 = 1;

/// The cards that this process has open.
static OPENED: Mutex<Vec<Weak<OpenCard>>> = Mutex::new(Vec::new());

impl OpenCard {
    /// Opens a card, or gives the one that this process has open already.
    pub(crate) fn open(card: &Card) -> Result<Arc<Self>, OpenError> {
        let mut opened = lock(&OPENED);
        opened.retain(|known| known.strong_count() > 0);
        let name = card.name();
        let is_it = |known: &Arc<Self>| {
            known.name() == name && known.system.library() == card.library() && known.is_ours()
        };
        if let Some(known) = opened.iter().filter_map(Weak::upgrade).find(is_it) {
            return Ok(known);
        }
        let system = card.open()?;
        let attributes = system.query().map_err(OpenError::Cards)?;
        if !system.port(PORT).map_err(OpenError::Cards)?.ethernet {
            return Err(OpenError::NotEthernet { name });
        }
        let lookout = Lookout::default();
        let clock = CardClock::new(attributes.core_clock_khz, attributes.timestamp_mask)
            .filter(|_| system.tells_times() && system.clock().is_ok());
        let made = Arc::new(Self {
            system,
            attributes,
            clock,
            registrations: Watch::default(),
            domains: AtomicU32::new(0),
            queues: Mutex::default(),
            connector: Connector::default(),
            groups: Groups::default(),
            lookout,
        });
        opened.push(Arc::downgrade(&made));
        Ok(made)
    }

    /// The cards of this name that this process has open.
    pub(crate) fn opened_here(name: &str) -> Vec<Arc<Self>> {
        let opened = lock(&OPENED);
        let known = opened.iter().filter_map(Weak::upgrade);
        known.filter(|known| known.name() == name && known.is_ours()).collect()
    }

    pub(crate) fn name(&self) -> &str {
        self.system.name()
    }

    pub(crate) fn is_ours(&self) -> bool {
        self.system.is_ours()
    }

    pub(crate) const fn attributes(&self) -> &CardAttributes {
        &self.attributes
    }

    pub(crate) fn can(&self, capability: Capability) -> bool {
        match capability {
            Capability::PhysicalWindows => self.system.library().chooses_addresses(),
            Capability::Connections => self.system.library().load_connections().is_ok(),
            Capability::Windows => self.attributes.max_memory_windows > 0,
            Capability::Timestamps => self.clock.is_some(),
            Capability::Moderation => self.attributes.moderation.is_some(),
            Capability::AtomicWrites => self.attributes.atomic_writes,
            Capability::RateLimits | Capability::Rebinding | Capability::HopLimits => {
                self.system.library().is_ours()
            }
            // That of the kernel has none of them; what others have is not told.
            Capability::PeerEvents => !self.system.is_soft(),
            _ => false,
        }
    }

    pub(crate) fn protection_domain(&self) -> Result<(ProtectionDomain, DomainId), CreateError> {
        let domain = self.system.protection_domain()?;
        let number = self.domains.fetch_add(1, Ordering::Relaxed).wrapping_add(1);
        Ok((domain, DomainId(number)))
    }

    /// A completion queue that events may be about.
    pub(crate) fn enroll(&self, queue: &Arc<CardQueue>) {
        lock(&self.queues).insert(queue.number(), Arc::downgrade(queue));
    }

    /// The queue of this number is gone.
    pub(crate) fn strike(&self, number: u32) {
        lock(&self.queues).remove(&number);
        self.lookout.strike(number);
    }

    /// The oldest event, if there is one. A card that cannot be asked any more tells nothing.
    pub(crate) fn next_event(&self) -> Option<AsyncEvent> {
        let event = told(self.system.events().poll().ok().flatten()?);
        if let AsyncEvent::CompletionQueueOverrun(id) = event {
            let queue = lock(&self.queues).get(&id.0).and_then(Weak::upgrade);
            if let Some(queue) = queue {
                queue.overrun();
            }
        }
        Some(event)
    }

    /// Its addresses that lead further than the next switch, each once.
    pub(crate) fn ips(&self) -> Vec<IpAddr> {
        let mut found = Vec::new();
        for (_, address) in self.addresses() {
            if leads_on(&address) && !found.contains(&address) {
                found.push(address);
            }
        }
        found
    }

    pub(crate) fn is_up(&self) -> bool {
        self.system.port(PORT).is_ok_and(|port| port.active)
    }

    pub(crate) fn active_mtu(&self) -> PathMtu {
        self.system.port(PORT).ok().and_then(|port| port.active_mtu).unwrap_or(PathMtu::B256)
    }

    /// The table of addresses as far as it is in use. Places between that are not in use are zero.
    pub(crate) fn gids(&self) -> Vec<Gid> {
        let mut gids: Vec<Gid> =
            (0..self.gid_count()).map(|index| self.gid(index).unwrap_or_default()).collect();
        let used = gids.iter().rposition(|gid| *gid != Gid::default()).map_or(0, |last| last + 1);
        gids.truncate(used);
        gids
    }

    pub(crate) fn gid(&self, index: usize) -> Option<Gid> {
        if index >= self.gid_count() {
            return None;
        }
        self.system.gid(PORT, u32::try_from(index).ok()?).ok()
    }

    pub(crate) fn gid_count(&self) -> usize {
        self.system.port(PORT).map_or(0, |port| usize::try_from(port.gids).unwrap_or(0))
    }

    /// The addresses that packets of RoCEv2 may have, with their indexes.
    fn addresses(&self) -> Vec<(usize, IpAddr)> {
        let place = |entry: &GidEntry| usize::try_from(entry.index).ok();
        if let Ok(Some(entries)) = self.system.gids() {
            let of_port = |entry: &&GidEntry| entry.port == u32::from(PORT) && entry.is_roce_v2;
            let known = entries.iter().filter(of_port);
            return known.filter_map(|entry| Some((place(entry)?, entry.gid.ip()))).collect();
        }
        // A library that does not tell kinds: the kernel puts that of RoCEv2 behind that of RoCEv1.
        let mut known: Vec<(usize, IpAddr)> = Vec::new();
        for (index, gid) in self.gids().into_iter().enumerate().filter(|(_, gid)| *gid != Gid::default()) {
            known.retain(|(_, address)| *address != gid.ip());
            known.push((index, gid.ip()));
        }
        known
    }

    /// The addresses that packets of RoCEv2 may have, with the kernel's number of each one's interface; 0 where the library does not
    /// tell it.
    fn own_addresses(&self) -> Vec<(IpAddr, u32)> {
        let known = self.system.gids().ok().flatten().unwrap_or_default();
        let interface = |index: usize| {
            let is_it = |entry: &&GidEntry| {
                usize::try_from(entry.index) == Ok(index) && entry.port == u32::from(PORT)
            };
            known.iter().find(is_it).map_or(0, |entry| entry.interface)
        };
        self.addresses().into_iter().map(|(index, address)| (address, interface(index))).collect()
    }

    pub(crate) fn gid_index(&self, wanted: IpAddr) -> Option<usize> {
        let found = self.addresses().into_iter().find(|(_, address)| *address == wanted);
        found.map(|(index, _)| index)
    }

    /// The first address that leads further than the next switch; else the first one.
    pub(crate) fn usual_gid(&self) -> usize {
        let known = self.addresses();
        let best = known.iter().find(|(_, address)| leads_on(address)).or(known.first());
        best.map_or(0, |(index, _)| *index)
    }

    pub(crate) fn pkeys(&self) -> Vec<PKey> {
        let count = self.system.port(PORT).map_or(0, |port| port.pkeys);
        let all = (0..count).map_while(|index| self.system.pkey(PORT, index).ok());
        let mut all: Vec<PKey> = all.collect();
        let used = all.iter().rposition(|key| key.0 != 0).map_or(0, |last| last + 1);
        all.truncate(used);
        all
    }
}

impl Drop for OpenCard {
    fn drop(&mut self) {
        let is_ours = self.is_ours();
        self.connector.end(is_ours);
        self.lookout.end(is_ours);
    }
}

impl fmt::Debug for OpenCard {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "OpenCard({})", self.name())
    }
}

/// Whether packets with this address go further than the next switch.
const fn leads_on(address: &IpAddr) -> bool {
    match address {
        IpAddr::V4(v4) => !v4.is_link_local(),
        IpAddr::V6(v6) => !v6.is_unicast_link_local(),
    }
}

/// A number that no other process can guess.
pub(crate) fn random_u32() -> u32 {
    Random::from_system().map_or(0, |mut random| random.next_u32())
}

/// Locks. Nothing that is locked here is left half done by a panic.
pub(crate) fn lock<T>(mutex: &Mutex<T>) -> MutexGuard<'_, T> {
    mutex.lock().unwrap_or_else(PoisonError::into_inner)
}
