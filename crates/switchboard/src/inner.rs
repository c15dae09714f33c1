//! What a member of a group and its thread share: the sockets, the shared file, and the sinks of packets.

use std::io;
use std::mem::ManuallyDrop;
use std::os::fd::{AsFd as _, OwnedFd, RawFd};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, RwLock, Weak};

use ferroce_fabric::udp::{Drops, Socket};
use ferroce_sys::descriptor::EventFd;
use ferroce_sys::fork::{self, Record};
use ferroce_sys::sync::lock;
use ferroce_sys::{Random, clock, unix};

use super::error::{SwitchError, refused};
use super::forward::{self, Arrival, Handed, Kind};
use super::heard::HeardGroups;
use super::lane::{LaneOffer, Lanes};
use super::mad_queue::MadQueue;
use super::no_lane::LaneRefusal;
use super::post::Post;
use super::recording::Records;
use super::refusals::{RefusalCounts, Refusals};
use super::rows::Report;
use super::table::{PROGRAM, Published, Table};
use super::{Group, Locals, SLOTS, ports};

/// What takes the packets that other members forward to a slot.
pub trait Sink: Send + Sync {
    /// Packets that came to another slot; never waits.
    fn arrived(&self, arrival: &Arrival<'_>);

    /// Adds what its engine tells of itself, of at most so many queue pairs and so many other queues of a
    /// kind. False, and nothing added, if its engine does not answer within a moment.
    fn tell(&self, into: &mut Report, most: usize) -> bool;

    /// The owner of another slot offers descriptors; never waits.
    ///
    /// It is called by the switchboard's thread. If the offer is taken, what is returned, at most
    /// [`MOST_ANSWERED`](crate::MOST_ANSWERED) of them, goes back to the other process and is closed here. That the
    /// answer arrives is not certain: if it does not, the lifeline of the offer ends.
    fn lane(&self, offer: LaneOffer) -> Result<Vec<OwnedFd>, LaneRefusal> {
        drop(offer);
        Err(LaneRefusal::Forbidden)
    }
}

/// What else refuses on behalf of a process: its connection managers.
pub trait Refuses: Send + Sync {
    /// Adds what was refused so far, if that can be seen without waiting.
    fn add_refusals(&self, to: &mut Refusals);
}

/// What a membership and its thread share.
pub(super) struct Inner {
    pub(super) group: Group,
    pub(super) uid: u32,
    /// All of them, by slot.
    pub(super) sockets: Vec<Socket>,
    /// Taken when this is dropped, so that it is gone before `gone` is called.
    pub(super) table: ManuallyDrop<Table>,
    /// Which slots this membership owns. Taken for every change, because its locks do not keep one thread of it from
    /// another.
    pub(super) owned: Mutex<[bool; SLOTS]>,
    pub(super) sinks: RwLock<Vec<(u8, Weak<dyn Sink>)>>,
    pub(super) managers: Mutex<Vec<Weak<dyn Refuses>>>,
    /// What writes down what happens, if it is asked to.
    pub(super) records: Mutex<Option<Weak<dyn Records>>>,
    /// Where others send packets to, and from where we do.
    pub(super) post: Post,
    pub(super) mads: MadQueue,
    /// Where the owners of other slots offer descriptors.
    pub(super) lanes: Lanes,
    /// Multicast groups of a network.
    pub(super) heard: HeardGroups,
    /// From which addresses only devices may send.
    pub(super) locals: Locals,
    pub(super) counts: Counts,
    /// What the kernel has dropped at the socket for what no device has sent.
    turned_away: Mutex<Drops>,
    pub(super) refused: RefusalCounts,
    pub(super) stop: AtomicBool,
    pub(super) bell: EventFd,
    /// This process leads.
    pub(super) leads: AtomicBool,
    pub(super) record: &'static Record,
    generation: u32,
    /// Called when it has let go of everything.
    gone: Box<dyn Fn() + Send + Sync>,
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
    /// Messages for queue pair 1 that no process took.
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

/// What a member opens for itself.
pub(super) struct Equipment {
    post: Post,
    mads: MadQueue,
    lanes: Lanes,
    bell: EventFd,
}

impl Equipment {
    pub(super) fn open(record: &'static Record) -> Result<Self, SwitchError> {
        let mut random = Random::from_system().map_err(refused("random numbers"))?;
        let token = [random.next_u64(), random.next_u64()];
        Ok(Self {
            post: Post::open(record, token).map_err(refused("a socket for forwarded packets"))?,
            mads: MadQueue::new().map_err(refused("a descriptor"))?,
            lanes: Lanes::open(record, &mut random),
            bell: EventFd::new().map_err(refused("a descriptor"))?,
        })
    }
}

impl Inner {
    /// If it comes to nothing, the record is free for others.
    pub(super) fn new(
        group: &Group,
        sockets: Vec<Socket>,
        mut table: Table,
        record: &'static Record,
        locals: Locals,
        equip: fn(&'static Record) -> Result<Equipment, SwitchError>,
        gone: Box<dyn Fn() + Send + Sync>,
    ) -> Result<Self, SwitchError> {
        let equipped = equip(record).and_then(|equipment| {
            equipment.post.guard(table.secret());
            let kept = table.keep_locks(Some(equipment.post.as_fd()));
            kept.map_err(refused("a thread that keeps locks"))?;
            match table.lock_letters(equipment.post.token()).map_err(refused("a record lock"))? {
                true => Ok(equipment),
                false => Err(refused("a record lock")(io::ErrorKind::AddrInUse.into())),
            }
        });
        let Equipment { post, mads, lanes, bell } = match equipped {
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
            table: ManuallyDrop::new(table),
            owned: Mutex::new([false; SLOTS]),
            sinks: RwLock::default(),
            managers: Mutex::default(),
            records: Mutex::default(),
            post,
            mads,
            lanes,
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
            gone,
        })
    }

    pub(super) fn is_ours(&self) -> bool {
        self.generation == fork::generation()
    }

    /// The socket of slot 0, which belongs to no process and carries what is for all of them.
    pub(super) fn common_socket(&self) -> &Socket {
        &self.sockets[0]
    }

    /// Packets that no device has sent: those that the kernel turned away, and those that we did.
    pub(super) fn foreign(&self) -> u64 {
        let mut away = lock(&self.turned_away);
        if self.is_ours()
            && let Some(socket) = self.sockets.get(SLOTS)
        {
            away.look(socket);
        }
        away.sum() + self.counts.foreign.load(Ordering::Relaxed)
    }

    /// What a newcomer gets: the shared file, then the sockets by slot.
    pub(super) fn descriptors(&self) -> Vec<RawFd> {
        let file = std::os::fd::AsRawFd::as_raw_fd(&self.table.file());
        std::iter::once(file).chain(self.sockets.iter().map(Socket::raw)).collect()
    }

    /// A slot was locked: drops what was for its last owner, and publishes this process as its owner.
    pub(super) fn move_in(&self, slot: usize) -> u64 {
        // An owner that is published may be sent to at once. How much room it wants is for the owner to say.
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
            lanes: self.lanes.word(),
            program: program(),
        });
        incarnation
    }

    pub(super) fn move_out(&self, slot: usize) {
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

    /// Whether a process owns a slot, whatever stands in the shared file.
    pub(super) fn is_alive(&self, slot: usize) -> bool {
        self.owns(slot) || self.table.is_slot_locked(slot)
    }

    /// Hands packets to the owner of a slot, and counts them.
    pub(super) fn forward(&self, kind: Kind, slot: u8, arrival: &Arrival<'_>) -> bool {
        let done = self.hand_over(kind, slot, arrival) == Handed::Taken;
        if done && kind == Kind::Packets {
            self.counts.forwarded.fetch_add(arrival.packets(), Ordering::Relaxed);
        }
        done
    }

    /// Hands packets to the owner of a slot: in this process, or with one message to another.
    pub(super) fn hand_over(&self, kind: Kind, slot: u8, arrival: &Arrival<'_>) -> Handed {
        let Some(token) = self.token_of(slot).filter(|_| self.is_ours()) else { return Handed::Gone };
        if token == self.token() {
            let taken = match kind {
                Kind::Packets => self.deliver(slot, arrival),
                Kind::Management => self.mads.push(arrival),
            };
            return if taken { Handed::Taken } else { Handed::Gone };
        }
        let head = forward::head(kind, slot, arrival);
        match self.post.send(&self.table, token, head, arrival.bytes) {
            Ok(()) => Handed::Taken,
            Err(error) if error.kind() == io::ErrorKind::WouldBlock => Handed::Full,
            Err(_) => Handed::Gone,
        }
    }

    /// What the owner of a slot has told, if there is one.
    pub(super) fn owner_of(&self, slot: u8) -> Option<Published> {
        let at = usize::from(slot);
        (at > 0 && at < SLOTS).then(|| self.table.entry(at).read())?
    }

    fn token_of(&self, slot: u8) -> Option<[u64; 2]> {
        self.owner_of(slot).map(|owner| owner.token)
    }

    /// What tells the owner of a slot from those before it, if there is one.
    pub(super) fn incarnation_of(&self, slot: u8) -> Option<u64> {
        self.owner_of(slot).map(|owner| owner.incarnation)
    }

    /// What letters to the owner of a slot are written to, if there is such a way at the moment.
    pub(super) fn way_to(&self, slot: u8) -> Option<RawFd> {
        self.post.way_to(self.token_of(slot)?)
    }

    /// Gives packets that others forwarded to one of our slots; false if it is none, or has no sink.
    pub(super) fn deliver(&self, slot: u8, arrival: &Arrival<'_>) -> bool {
        let Some(sink) = self.sink_of(slot) else { return false };
        // Before they are there: a program that has seen the last of them finds it counted.
        self.counts.forwarded_in.fetch_add(arrival.packets(), Ordering::Relaxed);
        sink.arrived(arrival);
        true
    }

    /// Gives packets to one of our slots; false if it is none, or has no sink.
    pub(super) fn give(&self, slot: u8, arrival: &Arrival<'_>) -> bool {
        let Some(sink) = self.sink_of(slot) else { return false };
        sink.arrived(arrival);
        true
    }

    pub(super) fn sink_of(&self, slot: u8) -> Option<Arc<dyn Sink>> {
        let sinks = self.sinks.read().unwrap_or_else(PoisonError::into_inner);
        sinks.iter().find(|(of, _)| *of == slot).and_then(|(_, sink)| sink.upgrade())
    }

    /// What this process has refused, but for what its engines have.
    pub(super) fn refusals(&self) -> Refusals {
        let mut all = self.refused.read();
        let Counts { strays, mads_unclaimed, group_icrc_errors, group_malformed, .. } = &self.counts;
        all.foreign_source += self.foreign();
        all.strays += strays.load(Ordering::Relaxed);
        all.mads_unclaimed += mads_unclaimed.load(Ordering::Relaxed);
        all.icrc_errors += group_icrc_errors.load(Ordering::Relaxed);
        all.malformed += group_malformed.load(Ordering::Relaxed);
        let managers = lock(&self.managers).clone();
        for manager in managers.iter().filter_map(Weak::upgrade) {
            manager.add_refusals(&mut all);
        }
        all
    }

    /// The sinks of our slots.
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
        // SAFETY: this is the only place that takes it, and it runs once; nothing uses the field after it.
        let mut table = unsafe { ManuallyDrop::take(&mut self.table) };
        if !self.is_ours() {
            return;
        }
        let held = fork::hold();
        self.record.release(&held);
        self.sockets.clear();
        // Its locks go with it.
        table.close();
        drop(held);
        // A thread that waits to join may be handed the same file: this process must not count as a member with it then.
        drop(table);
        (self.gone)();
    }
}

impl std::fmt::Debug for Inner {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "member of {}", self.group)
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
