//! A process in a group: the sockets, the shared file, and the slots that it owns.

mod claims;
mod groups;
mod mads;

use std::net::IpAddr;
use std::os::fd::BorrowedFd;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, Weak};
use std::thread::JoinHandle;

pub use claims::ServiceClaim;
use ferroce_fabric::udp::Socket;
use ferroce_sys::Random;
use ferroce_sys::fork::{PerProcess, Record};
use ferroce_sys::sync::lock;

use super::error::{SwitchError, refused};
use super::forward::{Arrival, Kind};
use super::heard::Spread;
use super::inner::{Counts, Equipment, Inner, Refuses, Sink};
use super::lane::Reached;
use super::no_lane::NoLane;
use super::recording::Records;
use super::refusals::Refusals;
use super::{Group, Locals, SLOTS, join, lanes, lead};

/// What a process has seen and refused at a switchboard, counted since it joined.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Traffic {
    /// Datagrams of multicast groups that came from a network.
    pub group_packets: u64,
    /// Those of them with a wrong ICRC.
    pub group_icrc_errors: u64,
    /// Those that are no packet for another reason.
    pub group_malformed: u64,
    /// Packets that were handed on to other processes.
    pub forwarded: u64,
    /// Packets that other processes handed on to this one.
    pub forwarded_in: u64,
    /// Packets that are for no process, counted by the one that leads.
    pub strays: u64,
    /// Messages of connection management that no process waits for, counted by the one that leads.
    pub mads_unclaimed: u64,
    /// Messages of connection management for this process that found its queue full.
    pub mads_dropped: u64,
    /// Packets from this machine that no device sent.
    pub foreign_source: u64,
    /// What was refused at the sockets between processes.
    pub refused: Refusals,
}

/// A process in a group. All devices of this process on the group share it.
#[derive(Debug)]
pub struct Membership {
    inner: Arc<Inner>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The memberships of this process.
#[derive(Default)]
struct Registry {
    members: Mutex<Vec<Known>>,
    left: Condvar,
}

/// A membership that has not let go of everything yet.
struct Known {
    group: Group,
    number: u64,
    member: Weak<Membership>,
}

static NUMBERS: AtomicU64 = AtomicU64::new(0);
static REGISTRY: PerProcess<Registry> = PerProcess::new();

impl Membership {
    /// Joins a group, or makes it.
    pub fn join(group: &Group, is_loopback: bool) -> Result<Arc<Self>, SwitchError> {
        let registry = REGISTRY.get();
        let mut members = lock(&registry.members);
        while let Some(known) = members.iter().find(|known| known.group == *group) {
            if let Some(member) = known.member.upgrade() {
                return Ok(member);
            }
            // It is leaving just now. Its locks and ours would be the same: wait until it is gone.
            members = registry.left.wait(members).unwrap_or_else(PoisonError::into_inner);
        }
        let join::Joined { sockets, table, record, role, skipped } = join::join(group, is_loopback)?;
        let locals = Locals::new(is_loopback);
        let number = NUMBERS.fetch_add(1, Ordering::Relaxed);
        let gone = Box::new(move || {
            let registry = REGISTRY.get();
            lock(&registry.members).retain(|known| known.number != number);
            registry.left.notify_all();
        });
        let inner = Arc::new(Inner::new(group, sockets, table, record, locals, Equipment::open, gone)?);
        inner.refused.names_skipped.store(skipped, Ordering::Relaxed);
        let thread = match lead::spawn(Arc::clone(&inner), role) {
            Ok(thread) => thread,
            Err(error) => {
                // What leaves takes the list.
                drop(members);
                return Err(refused("a thread")(error));
            }
        };
        let member = Arc::new(Self { inner, thread: Mutex::new(Some(thread)) });
        members.push(Known { group: group.clone(), number, member: Arc::downgrade(&member) });
        Ok(member)
    }

    /// Takes a free slot.
    pub fn take(self: &Arc<Self>) -> Result<Slot, SwitchError> {
        if !self.is_ours() {
            return Err(SwitchError::Forked);
        }
        let start = usize::try_from(self.random()?).unwrap_or(0);
        let mut owned = lock(&self.inner.owned);
        for step in 0..SLOTS - 1 {
            // Not the same one again and again: late packets for the last owner should find none.
            let slot = 1 + start.wrapping_add(step) % (SLOTS - 1);
            if owned[slot] || !self.inner.table.lock_slot(slot).map_err(refused("a record lock"))? {
                continue;
            }
            owned[slot] = true;
            let incarnation = self.inner.move_in(slot);
            let number = u8::try_from(slot).unwrap_or(0);
            return Ok(Slot { member: Arc::clone(self), number, incarnation });
        }
        Err(SwitchError::Full { group: self.inner.group.clone() })
    }

    fn random(&self) -> Result<u32, SwitchError> {
        Ok(Random::from_system().map_err(refused("random numbers"))?.next_u32())
    }

    /// Whether this process joined, and not one that it was forked from.
    pub fn is_ours(&self) -> bool {
        self.inner.is_ours()
    }

    /// Hands packets to the owner of a slot; false if there is none, or it takes no more just now.
    pub fn forward(&self, slot: u8, arrival: &Arrival<'_>) -> bool {
        self.inner.forward(Kind::Packets, slot, arrival)
    }

    /// Hands a datagram to each other process that listens to its group.
    pub fn spread(&self, group: IpAddr, arrival: &Arrival<'_>) -> Spread {
        self.inner.spread(group, arrival)
    }

    /// Whether a peer of one of our addresses can only be a process of this group.
    pub fn shares(&self, local: IpAddr, remote: IpAddr) -> bool {
        let is_all_loopback = || self.inner.group.address.is_none() && local.is_loopback();
        local == remote || is_all_loopback() && remote.is_loopback()
    }

    /// What tells the owner of a slot from all others that it has had, if it has one that lives.
    pub fn living(&self, slot: u8) -> Option<u64> {
        self.inner.incarnation_of(slot).filter(|_| self.inner.is_alive(slot.into()))
    }

    /// What knows the descriptors that no forked child may keep.
    pub fn record(&self) -> &'static Record {
        self.inner.record
    }

    /// Lets other processes of this user ask this one to write down what happens.
    pub fn records_by(&self, records: Weak<dyn Records>) {
        *lock(&self.inner.records) = Some(records);
    }

    /// Has what a connection manager refuses told with the rest.
    pub fn count_refusals_of(&self, manager: Weak<dyn Refuses>) {
        let mut managers = lock(&self.inner.managers);
        managers.retain(|known| known.strong_count() > 0);
        managers.push(manager);
    }

    /// Which addresses are of this machine.
    pub fn locals(&self) -> &Locals {
        &self.inner.locals
    }

    pub(super) fn inner(&self) -> &Inner {
        &self.inner
    }

    /// What has happened here so far.
    #[must_use]
    pub fn traffic(&self) -> Traffic {
        let Counts { forwarded, forwarded_in, strays, mads_unclaimed, .. } = &self.inner.counts;
        let Counts { group_packets, group_icrc_errors, group_malformed, .. } = &self.inner.counts;
        Traffic {
            group_packets: group_packets.load(Ordering::Relaxed),
            group_icrc_errors: group_icrc_errors.load(Ordering::Relaxed),
            group_malformed: group_malformed.load(Ordering::Relaxed),
            forwarded: forwarded.load(Ordering::Relaxed),
            forwarded_in: forwarded_in.load(Ordering::Relaxed),
            strays: strays.load(Ordering::Relaxed),
            mads_unclaimed: mads_unclaimed.load(Ordering::Relaxed),
            mads_dropped: self.mads_dropped(),
            foreign_source: self.inner.foreign(),
            refused: self.inner.refused.read(),
        }
    }

    #[cfg(test)]
    pub(super) fn leads(&self) -> bool {
        self.inner.leads.load(Ordering::SeqCst)
    }
}

impl Drop for Membership {
    fn drop(&mut self) {
        let thread = lock(&self.thread).take();
        if !self.is_ours() {
            // The thread is the parent's, and so are the rest.
            std::mem::forget(thread);
            return;
        }
        self.inner.stop.store(true, Ordering::SeqCst);
        self.inner.bell.signal();
        if let Some(thread) = thread
            && thread.thread().id() != std::thread::current().id()
        {
            // One that panicked has said so already.
            drop(thread.join());
        }
    }
}

/// A slot that this process owns, until it is dropped.
#[derive(Debug)]
pub struct Slot {
    member: Arc<Membership>,
    number: u8,
    incarnation: u64,
}

impl Slot {
    /// Its number: the top byte of its queue pair numbers.
    #[must_use]
    pub const fn number(&self) -> u8 {
        self.number
    }

    /// How often the slot was taken before, and once more.
    #[must_use]
    pub const fn incarnation(&self) -> u64 {
        self.incarnation
    }

    /// The socket that gets the packets for this slot. It is the member's own: a clone may not outlive the slot.
    #[must_use]
    pub fn socket(&self) -> Socket {
        self.member.inner.sockets[usize::from(self.number)].clone()
    }

    /// The process that it belongs to.
    #[must_use]
    pub fn member(&self) -> &Arc<Membership> {
        &self.member
    }

    /// Offers descriptors to the process that owns another slot, and waits for those that it answers with: as a rule for
    /// a tenth of a millisecond, and for 200 ms at most.
    ///
    /// At most [`MOST_OFFERED`](crate::MOST_OFFERED) descriptors can be offered. The switchboard's thread must not call
    /// this. A thread that is in another network namespace by now reaches no process.
    ///
    /// # Errors
    /// The other process has not taken them, or it is not known whether it has. Nothing of them is left there then: what
    /// it may have taken, it is told to give up.
    pub fn reach(&self, to: u8, offer: &[BorrowedFd<'_>]) -> Result<Reached, NoLane> {
        lanes::reach(&self.member.inner, (self.number, self.incarnation), to, offer)
    }

    /// Says which sink takes forwarded packets.
    pub fn attach(&self, sink: Weak<dyn Sink>) {
        let mut sinks = self.member.inner.sinks.write().unwrap_or_else(PoisonError::into_inner);
        sinks.retain(|(slot, _)| *slot != self.number);
        sinks.push((self.number, sink));
    }
}

impl Drop for Slot {
    fn drop(&mut self) {
        if !self.member.is_ours() {
            return;
        }
        let mut sinks = self.member.inner.sinks.write().unwrap_or_else(PoisonError::into_inner);
        sinks.retain(|(slot, _)| *slot != self.number);
        drop(sinks);
        self.member.inner.move_out(usize::from(self.number));
    }
}
