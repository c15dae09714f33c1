//! The shared file: which process owns which slot, and which listens for which service or multicast group.
//!
//! It is memory that other processes write at any moment. Everything in it is an atomic number, and a
//! value means nothing until it was checked: whether a slot has an owner is said by its lock alone.

use std::io;
use std::os::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use std::ptr::NonNull;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

use ferroce_sys::Random;
use ferroce_sys::descriptor::owned;
use ferroce_sys::fork::PerProcess;
use ferroce_sys::fork::{Held, Record};
use ferroce_sys::lock_keeper::LockKeeper;
use ferroce_sys::record_lock;
use ferroce_sys::sync::lock;

use super::SLOTS;
use super::claim::Claim;
use super::names::Place;

/// Services that the processes of a group listen for, at most.
pub(super) const CLAIMS: usize = 4096;

/// Multicast groups that processes listen to, at most; each counts once for every process.
pub(super) const LISTENERS: usize = 1024;

/// Words of the name of the group that the file is of.
const IDENTITY: usize = 12;

/// Bytes of a program's name that are kept.
pub(super) const PROGRAM: usize = 32;

/// What the file begins with, its version included.
const MAGIC: u64 = 0x4645_5252_4f43_4505;

/// The byte that is locked while claims and listeners are changed; those of the slots come before it.
const CLAIMS_LOCK: u64 = 4096;

/// The byte that is locked by the process that leads, as long as it does.
const LEADER_LOCK: u64 = 4097;

/// The first of the bytes that say that a process gets letters: which of them, its token says.
const LETTERS_LOCKS: u64 = 1 << 62;

/// The file as it lies in memory.
#[repr(C, align(4096))]
struct Layout {
    magic: AtomicU64,
    /// The name of the group that the file is of.
    identity: [AtomicU64; IDENTITY],
    /// Where the leader listens, as [`Place`] has it in a word.
    leader: AtomicU64,
    /// What letters of members are known by.
    secret: AtomicU64,
    slots: [Entry; SLOTS],
    /// How many of the claims were ever used, and how many were ever made.
    claims_used: AtomicU64,
    claims_made: AtomicU64,
    claims: [Claim; CLAIMS],
    /// How many of the listeners were ever used: no more have to be looked at.
    listeners_used: AtomicU64,
    listeners: [Listener; LISTENERS],
}

/// What the owner of a slot has published.
#[repr(C, align(128))]
#[derive(Debug)]
pub(super) struct Entry {
    /// How often the slot was taken.
    pub(super) incarnation: AtomicU64,
    /// The incarnation that the rest speaks of; 0 while it is being written.
    pub(super) published: AtomicU64,
    pub(super) pid: AtomicU32,
    /// When the slot was taken, in milliseconds since 1970.
    pub(super) since: AtomicU64,
    /// What the name of its socket for forwarded packets is made from.
    pub(super) token: [AtomicU64; 2],
    /// What the name at which it takes offers of lanes is made from; 0 if it takes none.
    pub(super) lanes: AtomicU64,
    /// The name of its program, padded with zeroes.
    pub(super) program: [AtomicU64; PROGRAM / 8],
}

/// A process that listens to a multicast group.
#[repr(C)]
#[derive(Debug)]
pub(super) struct Listener {
    /// One of its slots and the low bits of its incarnation; 0 if the place is free.
    pub(super) owner: AtomicU64,
    /// The address of the group, of IPv4 in the dress of IPv6.
    pub(super) group: [AtomicU64; 2],
}

/// What an entry says, read in one piece.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Published {
    pub(super) incarnation: u64,
    pub(super) pid: u32,
    pub(super) since: u64,
    pub(super) token: [u64; 2],
    pub(super) lanes: u64,
    pub(super) program: [u8; PROGRAM],
}

/// The shared file, mapped.
#[derive(Debug)]
pub(super) struct Table {
    map: NonNull<Layout>,
    /// What has the locks; `None` before there are any, and when all were given up early.
    keeper: Option<LockKeeper>,
    /// `None` when it was closed early. This copy of the code has no second descriptor of it, but for the keeper's own.
    file: Option<OwnedFd>,
    inode: Inode,
}

/// What tells one file from all others: device and number.
type Inode = (u64, u64);

/// The files of the memberships of this process.
static IN_USE: PerProcess<Mutex<Vec<Inode>>> = PerProcess::new();

// SAFETY: the map is atomics in memory that stays mapped until the table is dropped; the kernel keeps it from
// shrinking, because the file is sealed.
unsafe impl Send for Table {}
// SAFETY: as above; atomics may be used by any number of threads.
unsafe impl Sync for Table {}

impl Table {
    /// Bytes.
    pub(super) const LEN: usize = size_of::<Layout>();

    /// A new file of the group of this name, with no process in it.
    pub(super) fn create(name: &str) -> io::Result<Self> {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the pointer is to a text with its zero, which is static.
        let file = owned(unsafe { libc::memfd_create(c"ferroce-switchboard".as_ptr(), flags) })?;
        let len = libc::off_t::try_from(Self::LEN).unwrap_or(0);
        // SAFETY: takes and gives plain numbers.
        if unsafe { libc::ftruncate(file.as_raw_fd(), len) } != 0 {
            return Err(io::Error::last_os_error());
        }
        // SAFETY: takes and gives plain numbers.
        if unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, SEALS) } != 0 {
            return Err(io::Error::last_os_error());
        }
        let table = Self::map(file)?;
        for (word, value) in table.layout().identity.iter().zip(identity(name)) {
            word.store(value, Ordering::Relaxed);
        }
        table.layout().secret.store(Random::from_system()?.next_u64(), Ordering::Relaxed);
        table.layout().magic.store(MAGIC, Ordering::Release);
        Ok(table)
    }

    /// A file that came from the leader of the group of this name; an error if it is not what it should be.
    pub(super) fn adopt(file: OwnedFd, name: &str) -> io::Result<Self> {
        // SAFETY: takes and gives plain numbers.
        let seals = unsafe { libc::fcntl(file.as_raw_fd(), libc::F_GET_SEALS) };
        // SAFETY: a status of C is numbers, for which zero is a value.
        let mut status: libc::stat = unsafe { std::mem::zeroed() };
        // SAFETY: the pointer is to a status that lives during the call.
        let known = unsafe { libc::fstat(file.as_raw_fd(), &raw mut status) } == 0;
        let sealed = seals >= 0 && seals & SEALS == SEALS;
        if !known || !sealed || usize::try_from(status.st_size) != Ok(Self::LEN) {
            return Err(io::ErrorKind::InvalidData.into());
        }
        let table = Self::map(file)?;
        let Layout { magic, identity: seen, .. } = table.layout();
        let is_ours = seen.iter().zip(identity(name)).all(|(word, own)| word.load(Ordering::Relaxed) == own);
        if magic.load(Ordering::Acquire) != MAGIC || !is_ours {
            return Err(io::ErrorKind::InvalidData.into());
        }
        Ok(table)
    }

    /// Whether a descriptor is of a file that this process is a member with. Where locks are the process's, to close a
    /// second descriptor of such a file would end all locks of that membership.
    pub(super) fn is_in_use(file: BorrowedFd<'_>) -> bool {
        inode(file).is_some_and(|inode| lock(IN_USE.get()).contains(&inode))
    }

    fn map(file: OwnedFd) -> io::Result<Self> {
        let (access, kind) = (libc::PROT_READ | libc::PROT_WRITE, libc::MAP_SHARED);
        // SAFETY: a new mapping wherever the kernel likes; nothing that exists is touched.
        let at = unsafe { libc::mmap(std::ptr::null_mut(), Self::LEN, access, kind, file.as_raw_fd(), 0) };
        if at == libc::MAP_FAILED {
            return Err(io::Error::last_os_error());
        }
        let Some(map) = NonNull::new(at.cast::<Layout>()) else {
            return Err(io::ErrorKind::OutOfMemory.into());
        };
        let inode = inode(file.as_fd()).unwrap_or_default();
        lock(IN_USE.get()).push(inode);
        Ok(Self { map, keeper: None, file: Some(file), inode })
    }

    /// From now on there may be locks. The socket for letters stays open until they have ended.
    pub(super) fn keep_locks(&mut self, letters: Option<BorrowedFd<'_>>) -> io::Result<()> {
        self.keeper = Some(LockKeeper::start(self.file(), letters)?);
        Ok(())
    }

    fn lock(&self, byte: u64) -> io::Result<bool> {
        let keeper = self.keeper.as_ref().ok_or(io::ErrorKind::NotConnected)?;
        keeper.lock(self.file(), byte)
    }

    fn unlock(&self, byte: u64) {
        // Nothing can be done about a refusal, and none is known.
        drop(self.keeper.as_ref().map(|keeper| keeper.unlock(self.file(), byte)));
    }

    /// Whether a process has locked a byte, be it this one. Where locks are the process's, those of this one are not seen.
    fn is_locked(&self, byte: u64) -> bool {
        record_lock::is_locked_by_another(self.file(), byte)
    }

    fn layout(&self) -> &Layout {
        // SAFETY: `map` is a mapping of the length of a layout, aligned to pages as a layout is, which lives as
        // long as the table; every bit pattern is a value of atomics, and all that is done to them is atomic.
        unsafe { self.map.as_ref() }
    }

    /// The number that `/proc` knows the file by.
    #[cfg(test)]
    pub(super) const fn inode(&self) -> u64 {
        self.inode.1
    }

    /// Has a record remember where it is mapped: a forked child finds zeroes there.
    pub(super) fn track(&self, record: &Record, held: &Held) {
        // SAFETY: the mapping has that length and lives until the table is dropped, before which its membership
        // releases the record; it holds atomic numbers alone, of which zero is a value.
        unsafe { record.track_map(held, self.map.as_ptr().cast(), Self::LEN) };
    }

    pub(super) fn file(&self) -> BorrowedFd<'_> {
        // It is not used once it is closed: the thread that closes it is the only one that has the table.
        self.file.as_ref().expect("it is closed last").as_fd()
    }

    /// Ends all locks and closes the file; what is mapped stays until the table is dropped.
    pub(super) fn close(&mut self) {
        self.keeper = None;
        self.file = None;
    }

    /// The entry of a slot.
    pub(super) fn entry(&self, slot: usize) -> &Entry {
        &self.layout().slots[slot]
    }

    pub(super) fn claims(&self) -> &[Claim] {
        let used = usize::try_from(self.layout().claims_used.load(Ordering::SeqCst)).unwrap_or(CLAIMS);
        &self.layout().claims[..used.min(CLAIMS)]
    }

    /// The place of one more claim than were ever used, if there is room; the claims are locked.
    pub(super) fn new_claim(&self) -> Option<usize> {
        let place = self.claims().len();
        self.layout().claims.get(place)?.clear();
        self.layout().claims_used.store(place as u64 + 1, Ordering::SeqCst);
        Some(place)
    }

    /// What tells a new claim from all others.
    pub(super) fn next_claim_number(&self) -> u64 {
        self.layout().claims_made.fetch_add(1, Ordering::SeqCst).wrapping_add(1).max(1)
    }

    pub(super) fn listeners(&self) -> &[Listener] {
        let used = usize::try_from(self.layout().listeners_used.load(Ordering::SeqCst)).unwrap_or(LISTENERS);
        &self.layout().listeners[..used.min(LISTENERS)]
    }

    /// One more than was ever used, if there is room; the claims are locked.
    pub(super) fn new_listener(&self) -> Option<&Listener> {
        let place = self.listeners().len();
        let listener = self.layout().listeners.get(place)?;
        listener.owner.store(0, Ordering::SeqCst);
        self.layout().listeners_used.store(place as u64 + 1, Ordering::SeqCst);
        Some(listener)
    }

    /// Locks a slot for this process; false if another has it.
    pub(super) fn lock_slot(&self, slot: usize) -> io::Result<bool> {
        self.lock(slot as u64)
    }

    pub(super) fn unlock_slot(&self, slot: usize) {
        self.unlock(slot as u64);
    }

    /// Whether a process owns a slot; of slots of this process it may say no.
    pub(super) fn is_slot_locked(&self, slot: usize) -> bool {
        self.is_locked(slot as u64)
    }

    /// Makes this process the one that leads; false if another does.
    pub(super) fn lock_leader(&self) -> io::Result<bool> {
        self.lock(LEADER_LOCK)
    }

    pub(super) fn unlock_leader(&self) {
        self.unlock(LEADER_LOCK);
    }

    /// Says where the leader listens; this process leads.
    pub(super) fn publish_leader(&self, place: Place) {
        self.layout().leader.store(place.word(), Ordering::SeqCst);
    }

    /// Where the leader listens, or the one before it did.
    pub(super) fn leader(&self) -> Place {
        Place::of_word(self.layout().leader.load(Ordering::SeqCst))
    }

    /// What letters of members are known by: nothing that has not got the file knows it.
    pub(super) fn secret(&self) -> u64 {
        self.layout().secret.load(Ordering::Relaxed)
    }

    /// Says that this process has the name for letters that its token makes, until it ends or closes the file.
    pub(super) fn lock_letters(&self, token: [u64; 2]) -> io::Result<bool> {
        self.lock(letters_byte(token))
    }

    /// Whether another process has the name for letters that this token makes.
    pub(super) fn has_letters(&self, token: [u64; 2]) -> bool {
        self.is_locked(letters_byte(token))
    }

    /// Locks the claims against other processes; false if one has them.
    pub(super) fn lock_claims(&self) -> io::Result<bool> {
        self.lock(CLAIMS_LOCK)
    }

    pub(super) fn unlock_claims(&self) {
        self.unlock(CLAIMS_LOCK);
    }
}

impl Drop for Table {
    fn drop(&mut self) {
        let mut in_use = lock(IN_USE.get());
        if let Some(place) = in_use.iter().position(|inode| *inode == self.inode) {
            in_use.swap_remove(place);
        }
        drop(in_use);
        // SAFETY: the mapping is this table's own, and nothing borrows it any more.
        unsafe { libc::munmap(self.map.as_ptr().cast(), Self::LEN) };
    }
}

/// The byte of a process that gets letters. Two tokens have the same one as rarely as two are the same.
const fn letters_byte(token: [u64; 2]) -> u64 {
    LETTERS_LOCKS | token[0] >> 2
}

/// The name of a group in words, cut or padded with zeroes.
fn identity(name: &str) -> [u64; IDENTITY] {
    let mut words = [0; IDENTITY];
    for (word, bytes) in words.iter_mut().zip(name.as_bytes().chunks(8)) {
        let mut padded = [0; 8];
        padded[..bytes.len()].copy_from_slice(bytes);
        *word = u64::from_ne_bytes(padded);
    }
    words
}

fn inode(file: BorrowedFd<'_>) -> Option<Inode> {
    // SAFETY: a status of C is numbers, for which zero is a value.
    let mut status: libc::stat = unsafe { std::mem::zeroed() };
    // SAFETY: the pointer is to a status that lives during the call.
    let known = unsafe { libc::fstat(file.as_raw_fd(), &raw mut status) } == 0;
    known.then_some((status.st_dev, status.st_ino))
}

/// The file keeps its size for ever, so that no access to it can fail.
const SEALS: libc::c_int = libc::F_SEAL_SHRINK | libc::F_SEAL_GROW | libc::F_SEAL_SEAL;

impl Entry {
    /// Writes what the owner of the slot says of itself; the lock of the slot is held.
    pub(super) fn publish(&self, new: &Published) {
        self.published.store(0, Ordering::SeqCst);
        self.pid.store(new.pid, Ordering::SeqCst);
        self.since.store(new.since, Ordering::SeqCst);
        for (word, value) in self.token.iter().zip(new.token) {
            word.store(value, Ordering::SeqCst);
        }
        self.lanes.store(new.lanes, Ordering::SeqCst);
        for (word, bytes) in self.program.iter().zip(new.program.as_chunks().0) {
            word.store(u64::from_ne_bytes(*bytes), Ordering::SeqCst);
        }
        self.published.store(new.incarnation, Ordering::SeqCst);
    }

    /// Takes it back.
    pub(super) fn withdraw(&self) {
        self.published.store(0, Ordering::SeqCst);
    }

    /// What was published; `None` if nothing is, or it changes just now.
    pub(super) fn read(&self) -> Option<Published> {
        let incarnation = self.published.load(Ordering::SeqCst);
        let pid = self.pid.load(Ordering::SeqCst);
        let since = self.since.load(Ordering::SeqCst);
        let token = [self.token[0].load(Ordering::SeqCst), self.token[1].load(Ordering::SeqCst)];
        let lanes = self.lanes.load(Ordering::SeqCst);
        let mut program = [0; PROGRAM];
        for (word, bytes) in self.program.iter().zip(program.as_chunks_mut().0) {
            *bytes = word.load(Ordering::SeqCst).to_ne_bytes();
        }
        let same = self.published.load(Ordering::SeqCst) == incarnation;
        (same && incarnation != 0).then_some(Published { incarnation, pid, since, token, lanes, program })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::eventually;

    #[test]
    fn what_is_published_can_be_read_and_taken_back() {
        let table = Table::create("test").unwrap();
        let entry = table.entry(5);
        assert_eq!(entry.read(), None);
        let mut program = [0; PROGRAM];
        program[..4].copy_from_slice(b"test");
        let published = Published { incarnation: 7, pid: 42, since: 99, token: [1, 2], lanes: 3, program };
        entry.publish(&published);
        assert_eq!(entry.read(), Some(published));
        entry.withdraw();
        assert_eq!(entry.read(), None);
    }

    #[test]
    fn only_a_sealed_file_of_the_right_size_is_taken() {
        let table = Table::create("ferroce/one").unwrap();
        let second = || table.file().try_clone_to_owned().unwrap();
        assert!(Table::adopt(second(), "ferroce/one").is_ok());
        assert!(Table::adopt(second(), "ferroce/two").is_err(), "the file of another group");
        assert!(Table::is_in_use(table.file()));
        // SAFETY: the pointer is to a text with its zero, which is static.
        let unsealed = owned(unsafe { libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC) }).unwrap();
        assert!(Table::adopt(unsealed, "ferroce/one").is_err());
        let pipe = io::pipe().unwrap().0;
        assert!(Table::adopt(pipe.into(), "ferroce/one").is_err());
    }

    /// A file in memory of this size, with these seals and these first bytes.
    fn file(len: usize, seals: libc::c_int, magic: u64) -> OwnedFd {
        let flags = libc::MFD_CLOEXEC | libc::MFD_ALLOW_SEALING;
        // SAFETY: the pointer is to a text with its zero, which is static.
        let file = owned(unsafe { libc::memfd_create(c"test".as_ptr(), flags) }).unwrap();
        // SAFETY: takes and gives plain numbers.
        assert_eq!(unsafe { libc::ftruncate(file.as_raw_fd(), libc::off_t::try_from(len).unwrap()) }, 0);
        let mut words = vec![magic];
        words.extend(identity("ferroce/name"));
        let bytes: Vec<u8> = words.iter().flat_map(|word| word.to_ne_bytes()).collect();
        // SAFETY: the pointer is to that many bytes, which live during the call.
        let wrote = unsafe { libc::pwrite(file.as_raw_fd(), bytes.as_ptr().cast(), bytes.len(), 0) };
        assert_eq!(usize::try_from(wrote), Ok(bytes.len()));
        // SAFETY: takes and gives plain numbers.
        assert_eq!(unsafe { libc::fcntl(file.as_raw_fd(), libc::F_ADD_SEALS, seals) }, 0);
        file
    }

    #[test]
    fn a_file_is_taken_with_all_its_seals_its_size_and_its_beginning_only() {
        let is_taken = |file| Table::adopt(file, "ferroce/name").is_ok();
        assert!(is_taken(file(Table::LEN, SEALS, MAGIC)));
        for seal in [libc::F_SEAL_SHRINK, libc::F_SEAL_GROW, libc::F_SEAL_SEAL] {
            assert!(!is_taken(file(Table::LEN, SEALS & !seal, MAGIC)), "without seal {seal}");
        }
        assert!(!is_taken(file(Table::LEN + 4096, SEALS, MAGIC)), "another size");
        assert!(!is_taken(file(Table::LEN, SEALS, MAGIC + 1)), "another version");
        let other = Table::adopt(file(Table::LEN, SEALS, MAGIC), "ferroce/eman");
        assert!(other.is_err(), "another group whose name is as long");
    }

    #[test]
    fn files_of_memberships_are_known_as_long_as_they_last() {
        let first = Table::create("ferroce/one").unwrap();
        let second = Table::create("ferroce/two").unwrap();
        let kept = [&first, &second].map(|table| table.file().try_clone_to_owned().unwrap());
        assert!(kept.iter().all(|file| Table::is_in_use(file.as_fd())));
        drop(first);
        assert_eq!([&kept[0], &kept[1]].map(|file| Table::is_in_use(file.as_fd())), [false, true]);
        assert_ne!(second.secret(), Table::create("ferroce/two").unwrap().secret(), "each draws its own");
    }

    #[test]
    fn names_are_told_apart_by_all_their_letters() {
        assert_eq!(identity(""), [0; IDENTITY]);
        let long = "x".repeat(8 * IDENTITY);
        for at in 0..long.len() {
            let mut other = long.clone();
            other.replace_range(at..=at, "y");
            assert_ne!(identity(&other), identity(&long), "letter {at}");
        }
        assert_eq!(identity("abcdefghi")[1], u64::from_ne_bytes(*b"i\0\0\0\0\0\0\0"));
    }

    #[test]
    fn listeners_are_as_many_as_were_ever_used() {
        let table = Table::create("test").unwrap();
        for used in 0..LISTENERS {
            assert_eq!(table.listeners().len(), used);
            assert!(table.new_listener().is_some());
        }
        assert!(table.new_listener().is_none() && table.listeners().len() == LISTENERS);
        // Another process may write anything there.
        table.layout().listeners_used.store(u64::MAX, Ordering::SeqCst);
        assert_eq!(table.listeners().len(), LISTENERS);
    }

    #[test]
    fn bytes_of_letters_lie_beyond_all_others() {
        assert_eq!(letters_byte([0, 5]), LETTERS_LOCKS);
        assert_eq!(letters_byte([u64::MAX, 0]), (1 << 63) - 1, "the last that a lock can have");
        assert_ne!(letters_byte([4, 0]), letters_byte([8, 0]));
    }

    /// Asserts that this process has locked these bytes of a table's file. The kernel's list comes in pieces, and may
    /// change between them: it is asked again.
    fn assert_locked(table: &Table, bytes: &[u64]) {
        eventually(&format!("locks of {bytes:?}"), || locked(table) == bytes);
    }

    /// The bytes of a table's file that this process has locked, as the kernel lists them.
    fn locked(table: &Table) -> Vec<u64> {
        let (pid, inode) = (std::process::id().to_string(), format!(":{}", table.inode()));
        let locks = std::fs::read_to_string("/proc/locks").unwrap();
        let byte = |line: &str| {
            let words: Vec<&str> = line.split_whitespace().collect();
            match words[..] {
                [_, "POSIX", _, "WRITE", by, of, first, last] if by == pid && of.ends_with(&inode) => {
                    assert_eq!(first, last, "a lock is of one byte");
                    first.parse().ok()
                }
                _ => None,
            }
        };
        locks.lines().filter_map(byte).collect()
    }

    #[test]
    fn each_lock_is_of_a_byte_of_its_own_and_can_be_given_back() {
        let mut table = Table::create("locks").unwrap();
        assert!(table.lock_leader().is_err(), "nothing keeps locks yet");
        table.keep_locks(None).unwrap();
        assert_locked(&table, &[]);
        assert!(table.lock_leader().unwrap());
        assert_locked(&table, &[LEADER_LOCK]);
        table.unlock_leader();
        assert!(table.lock_claims().unwrap());
        assert_locked(&table, &[CLAIMS_LOCK]);
        table.unlock_claims();
        assert!(table.lock_slot(5).unwrap());
        assert_locked(&table, &[5]);
        assert!(table.is_slot_locked(5) && !table.is_slot_locked(6));
        // A second descriptor that this process closes ends nothing.
        drop(table.file().try_clone_to_owned().unwrap());
        assert_locked(&table, &[5]);
        table.unlock_slot(5);
        assert_locked(&table, &[]);
        assert!(table.lock_letters([8, 0]).unwrap());
        assert_locked(&table, &[LETTERS_LOCKS + 2]);
        table.close();
        assert_locked(&table, &[]);
    }
}
