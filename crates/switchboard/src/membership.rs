//! A process in a group: the sockets, the shared file, and the slots that it owns.

use std::io;
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError, RwLock, Weak};
use std::thread::JoinHandle;

use ferroce_fabric::udp::Socket;
use ferroce_sys::Random;
use ferroce_sys::clock;
use ferroce_sys::descriptor::EventFd;
use ferroce_sys::fork::{self, PerProcess, Record};
use ferroce_sys::sync::lock;
use ferroce_sys::unix;

use super::error::{SwitchError, refused};
use super::forward::{self, Arrival, Kind};
use super::mads::MadQueue;
use super::multicast::{HeardGroups, Spread};
use super::post::Post;
use super::refusals::{RefusalCounts, Refusals};
use super::stats::QpStats;
use super::table::{PROGRAM, Published, Table};
use super::{Group, Locals, SLOTS, join, lead, ports};

/// Who takes the packets that other members forward to a slot.
pub trait Sink: Send + Sync {
    /// Packets that came to another slot; never waits.
    fn arrived(&self, arrival: &Arrival<'_>);

    /// Tells of its queue pairs, at most so many; how many there are. `None` if somebody was at work all the time.
    fn tell(&self, into: &mut Vec<QpStats>, most: usize, refused: &mut Refusals) -> Option<usize>;
}

/// What else refuses on behalf of a process: its connection managers.
pub trait Refuses: Send + Sync {
    /// Adds what was refused so far, if that can be seen without waiting.
    fn add_refusals(&self, to: &mut Refusals);
}

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

/// What a membership and its thread share.
pub(super) struct Inner {
    pub(super) group: Group,
    pub(super) uid: u32,
    /// All of them, by slot.
    sockets: Vec<Socket>,
    pub(super) table: Table,
    /// Which slots this process owns. Taken for every change, because record locks do not keep one
    /// thread of a process from another.
    owned: Mutex<[bool; SLOTS]>,
    sinks: RwLock<Vec<(u8, Weak<dyn Sink>)>>,
    managers: Mutex<Vec<Weak<dyn Refuses>>>,
    /// Where others send packets to, and from where we do.
    pub(super) post: Post,
    pub(super) mads: MadQueue,
    /// Multicast groups of a network.
    pub(super) heard: HeardGroups,
    /// From which addresses only devices may send.
    pub(super) locals: Locals,
    pub(super) counts: Counts,
    turned_away: Mutex<TurnedAway>,
    pub(super) refused: RefusalCounts,
    pub(super) stop: AtomicBool,
    pub(super) bell: EventFd,
    /// This process leads.
    pub(super) leads: AtomicBool,
    pub(super) record: &'static Record,
    generation: u32,
    /// Which membership of this process.
    number: u64,
}

/// What happened to a membership.
#[derive(Debug, Default)]
pub(super) struct Counts {
    /// Packets that came to a wrong slot and were handed to their owner.
    pub(super) forwarded: AtomicU64,
    /// Packets that others forwarded to us.
    pub(super) forwarded_in: AtomicU64,
    /// Packets in slot 0 that are for no queue pair of it.
    pub(super) strays: AtomicU64,
    /// Messages for queue pair 1 that nobody waits for.
    pub(super) mads_unclaimed: AtomicU64,
    /// Packets from this machine that no device has sent, beside those that the kernel turned away.
    pub(super) foreign: AtomicU64,
    /// Packets that were sent to multicast groups of a network.
    pub(super) group_packets: AtomicU64,
    /// Those of them with a wrong ICRC.
    pub(super) group_icrc_errors: AtomicU64,
    /// Those that are no packets.
    pub(super) group_malformed: AtomicU64,
}

/// What the kernel has dropped at the socket for what no device has sent: its count goes round, this one does not.
#[derive(Debug, Default)]
struct TurnedAway {
    last: u32,
    sum: u64,
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
        let inner = Arc::new(Inner::new(group, sockets, table, record, locals, Equipment::open)?);
        inner.refused.names_skipped.store(skipped, Ordering::Relaxed);
        let number = inner.number;
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
            // Not the same one again and again: late packets for the last owner should find nobody.
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

    /// What knows the descriptors that no forked child may keep.
    pub fn record(&self) -> &'static Record {
        self.inner.record
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

/// What a member opens for itself.
pub(super) struct Equipment {
    post: Post,
    mads: MadQueue,
    bell: EventFd,
}

impl Equipment {
    fn open(record: &'static Record) -> Result<Self, SwitchError> {
        let mut random = Random::from_system().map_err(refused("random numbers"))?;
        let token = [random.next_u64(), random.next_u64()];
        Ok(Self {
            post: Post::open(record, token).map_err(refused("a socket for forwarded packets"))?,
            mads: MadQueue::new().map_err(refused("a descriptor"))?,
            bell: EventFd::new().map_err(refused("a descriptor"))?,
        })
    }
}

impl Inner {
    /// If it comes to nothing, the record is free for others.
    pub(super) fn new(
        group: &Group,
        sockets: Vec<Socket>,
        table: Table,
        record: &'static Record,
        locals: Locals,
        equip: fn(&'static Record) -> Result<Equipment, SwitchError>,
    ) -> Result<Self, SwitchError> {
        let equipped = equip(record).and_then(|equipment| {
            equipment.post.guard(table.secret());
            match table.lock_letters(equipment.post.token()).map_err(refused("a record lock"))? {
                true => Ok(equipment),
                false => Err(refused("a record lock")(io::ErrorKind::AddrInUse.into())),
            }
        });
        let Equipment { post, mads, bell } = match equipped {
            Ok(equipment) => equipment,
            Err(error) => {
                // Else a fork would put something else in the place of whatever has these numbers by then.
                let held = fork::hold();
                record.release(&held);
                drop((sockets, table));
                return Err(error);
            }
        };
        Ok(Self {
            group: group.clone(),
            uid: unix::own_uid(),
            sockets,
            table,
            owned: Mutex::new([false; SLOTS]),
            sinks: RwLock::default(),
            managers: Mutex::default(),
            post,
            mads,
            heard: HeardGroups::default(),
            locals,
            counts: Counts::default(),
            turned_away: Mutex::default(),
            refused: RefusalCounts::default(),
            stop: AtomicBool::new(false),
            bell,
            leads: AtomicBool::new(false),
            record,
            generation: fork::generation(),
            number: NUMBERS.fetch_add(1, Ordering::Relaxed),
        })
    }

    pub(super) fn is_ours(&self) -> bool {
        self.generation == fork::generation()
    }

    /// The socket of slot 0.
    pub(super) fn socket_of_nobody(&self) -> &Socket {
        &self.sockets[0]
    }

    /// Packets that no device has sent: those that the kernel turned away, and those that we did.
    pub(super) fn foreign(&self) -> u64 {
        let mut away = lock(&self.turned_away);
        if self.is_ours()
            && let Some(socket) = self.sockets.get(SLOTS)
        {
            let now = socket.drops();
            away.sum += u64::from(now.wrapping_sub(away.last));
            away.last = now;
        }
        away.sum + self.counts.foreign.load(Ordering::Relaxed)
    }

    /// What a newcomer gets: the shared file, then the sockets by slot.
    pub(super) fn descriptors(&self) -> Vec<RawFd> {
        let file = std::os::fd::AsRawFd::as_raw_fd(&self.table.file());
        std::iter::once(file).chain(self.sockets.iter().map(Socket::raw)).collect()
    }

    /// A slot was locked: drops what was for its last owner, and says who owns it now.
    fn move_in(&self, slot: usize) -> u64 {
        // Whoever is seen may be sent to at once. How much room it wants is for the owner to say.
        drop(self.sockets[slot].prepare_to_receive(ports::BUFFER, true));
        if !(cfg!(test) && super::planted("no-drain")) {
            ports::drain(&self.sockets[slot]);
        }
        drop(self.sockets[slot].hear());
        let entry = self.table.entry(slot);
        let incarnation = entry.incarnation.fetch_add(1, Ordering::SeqCst).wrapping_add(1).max(1);
        entry.publish(&Published {
            incarnation,
            pid: std::process::id(),
            since: clock::wall_millis(),
            token: self.token(),
            program: program(),
        });
        incarnation
    }

    fn move_out(&self, slot: usize) {
        let mut owned = lock(&self.owned);
        self.table.entry(slot).withdraw();
        // Nothing reads it from now on.
        drop(self.sockets[slot].turn_deaf());
        drop(self.sockets[slot].prepare_to_receive(ports::BUFFER, true));
        ports::drain(&self.sockets[slot]);
        self.table.unlock_slot(slot);
        owned[slot] = false;
    }

    /// Whether this process owns a slot.
    pub(super) fn owns(&self, slot: usize) -> bool {
        lock(&self.owned).get(slot).copied().unwrap_or(false)
    }

    /// Whether anybody owns a slot, whatever stands in the shared file.
    pub(super) fn is_alive(&self, slot: usize) -> bool {
        self.owns(slot) || self.table.is_owned_by_another(slot)
    }

    /// Hands packets to the owner of a slot, and counts them.
    pub(super) fn forward(&self, kind: Kind, slot: u8, arrival: &Arrival<'_>) -> bool {
        let done = self.hand_over(kind, slot, arrival);
        if done && kind == Kind::Packets {
            self.counts.forwarded.fetch_add(arrival.packets(), Ordering::Relaxed);
        }
        done
    }

    /// Hands packets to the owner of a slot: in this process, or with one message to another.
    fn hand_over(&self, kind: Kind, slot: u8, arrival: &Arrival<'_>) -> bool {
        let at = usize::from(slot);
        if at == 0 || at >= SLOTS || !self.is_ours() {
            return false;
        }
        let Some(owner) = self.table.entry(at).read() else { return false };
        if owner.token == self.token() {
            return match kind {
                Kind::Packets => self.deliver(slot, arrival),
                Kind::Management => self.mads.push(arrival),
            };
        }
        let head = forward::head(kind, slot, arrival);
        self.post.send(&self.table, owner.token, head, arrival.bytes).is_ok()
    }

    /// Gives packets that others forwarded to one of our slots; false if it is none, or nobody takes them.
    pub(super) fn deliver(&self, slot: u8, arrival: &Arrival<'_>) -> bool {
        let taken = self.give(slot, arrival);
        if taken {
            self.counts.forwarded_in.fetch_add(arrival.packets(), Ordering::Relaxed);
        }
        taken
    }

    /// Gives packets to one of our slots; false if it is none, or nobody takes them.
    pub(super) fn give(&self, slot: u8, arrival: &Arrival<'_>) -> bool {
        let sinks = self.sinks.read().unwrap_or_else(PoisonError::into_inner);
        let found = sinks.iter().find(|(of, _)| *of == slot).and_then(|(_, sink)| sink.upgrade());
        drop(sinks);
        let Some(sink) = found else { return false };
        sink.arrived(arrival);
        true
    }

    /// What this process has refused, but for what its engines have.
    pub(super) fn refusals(&self) -> Refusals {
        let mut all = self.refused.read_with(self);
        let managers = lock(&self.managers).clone();
        for manager in managers.iter().filter_map(Weak::upgrade) {
            manager.add_refusals(&mut all);
        }
        all
    }

    /// All who take packets of our slots.
    pub(super) fn sinks(&self) -> Vec<Arc<dyn Sink>> {
        let sinks = self.sinks.read().unwrap_or_else(PoisonError::into_inner);
        sinks.iter().filter_map(|(_, sink)| sink.upgrade()).collect()
    }

    /// What tells this process from others in the shared file.
    pub(super) const fn token(&self) -> [u64; 2] {
        self.post.token()
    }
}

impl Drop for Inner {
    fn drop(&mut self) {
        if !self.is_ours() {
            return;
        }
        let held = fork::hold();
        self.record.release(&held);
        self.sockets.clear();
        // Its locks go with it.
        self.table.close();
        drop(held);
        let registry = REGISTRY.get();
        lock(&registry.members).retain(|known| known.number != self.number);
        registry.left.notify_all();
    }
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "member of {}", self.group)
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

    /// Says who takes forwarded packets.
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

/// The name of this program, padded with zeroes.
pub(super) fn program() -> [u8; PROGRAM] {
    let name = std::fs::read("/proc/self/comm").unwrap_or_default();
    let mut program = [0; PROGRAM];
    for (to, from) in program.iter_mut().zip(name.trim_ascii_end()) {
        *to = *from;
    }
    program
}

/// Remembers what no child may keep.
pub(super) fn track(
    record: &'static Record,
    held: &fork::Held,
    sockets: &[Socket],
    table: &Table,
) -> io::Result<()> {
    let file = std::os::fd::AsRawFd::as_raw_fd(&table.file());
    let all = std::iter::once(file).chain(sockets.iter().map(Socket::raw));
    table.track(record, held);
    for fd in all {
        if !record.track(held, fd) {
            return Err(io::Error::from_raw_os_error(libc::EMFILE));
        }
    }
    Ok(())
}
