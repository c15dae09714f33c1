//! What another process may reach into, and how its owner learns that it does not any more.

use std::sync::atomic::Ordering::{Acquire, Relaxed, Release, SeqCst};

use ferroce_sys::sync::prim::{AtomicU64, fence};

use crate::exchange::Exchange;

/// How many doors one process has.
#[cfg(not(loom))]
pub(crate) const DOORS: usize = 8192 - 16;
/// A model has one for a region and one for a queue pair.
#[cfg(loom)]
pub(crate) const DOORS: usize = 2;

/// What stands at a door that is closed: no key is zero.
const CLOSED: u64 = 0;

/// What a hand shows that is in no door.
const NOWHERE: u64 = 0;

/// What the owner writes, and all others read: at each door the key that opens it.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct DoorWords {
    keys: [AtomicU64; DOORS],
}

/// What a visitor writes, and the owner of the doors reads: in which doors the visitor may have its hand.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct HandWord {
    doors: AtomicU64,
}

#[cfg(loom)]
impl DoorWords {
    pub(crate) fn new() -> Self {
        Self { keys: std::array::from_fn(|_| AtomicU64::new(CLOSED)) }
    }
}

#[cfg(loom)]
impl HandWord {
    pub(crate) fn new() -> Self {
        Self { doors: AtomicU64::new(NOWHERE) }
    }
}

/// A door and the key that it was open for when the visitor was told of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Door {
    /// Which one it is, from 0 on.
    pub number: u32,
    /// What opens it. The owner uses a key once: the next opening of the door has another.
    pub key: u64,
}

/// The doors of a process, as it opens and closes them itself.
///
/// A visitor that has mapped memory of the owner copies into it and out of it by itself, as long as two doors are open: that of
/// the region (or window), and that of the queue pair. The owner closes one of them when a region is deregistered or registered anew, a window
/// is invalidated, or a queue pair leaves RTS; and before it says that this is done, it waits until no visitor has its [`Hand`] in
/// that door.
///
/// # Why no byte comes later
///
/// A visitor shows its hand (H), has a fence (F1), and looks at the doors (L); if both are open it does its work (W), and then takes its
/// hand back, which releases what it did (R). The owner closes the door (C), has a fence (F2), and looks at the hand (S). All fences
/// stand in one order. If F1 comes before F2, S sees H or what was written later; so the owner waits, until it acquires R or what comes
/// behind it, and W is over. If F2 comes before F1, L sees C, and there is no W. A key that is used once keeps a visitor out that looks so late
/// that the door is open again for others.
///
/// A hand is a word that says where it is, and not a count of visits: what a visitor leaves behind that is killed in the middle says
/// no more than where it was. The owner does not look at hands of processes that are gone, so none is waited for in vain.
///
/// # On trust
///
/// A process that has mapped memory can do with it what it likes until it unmaps it; doors are a promise between two that keep their
/// word. One that shows its hand for ever makes the owner wait for as long as the owner chooses to. What is read here may be
/// any number, and is compared and nothing else.
#[derive(Debug)]
pub struct Doors {
    words: Exchange<DoorWords>,
}

impl Doors {
    pub(crate) const fn new(words: Exchange<DoorWords>) -> Self {
        Self { words }
    }

    /// Doors that there are; their numbers are below this.
    pub const COUNT: usize = DOORS;

    /// Opens a door. What the owner wrote into the memory behind it before is seen by those that come in.
    ///
    /// # Panics
    /// There is no such door, or no such key: zero is none.
    pub fn open(&self, door: Door) {
        assert!(door.key != CLOSED, "a door is closed by `close`");
        self.word(door.number).store(door.key, Release);
    }

    /// Closes a door. Hands that are in it now have to be [waited for](Hand::is_in), and no others.
    ///
    /// # Panics
    /// There is no such door.
    pub fn close(&self, number: u32) {
        self.word(number).store(CLOSED, Relaxed);
        fence(SeqCst);
    }

    fn word(&self, number: u32) -> &AtomicU64 {
        &self.words.get().keys[number as usize]
    }
}

/// The hand of a visitor, as the owner of the doors sees it.
#[derive(Debug)]
pub struct Hand {
    word: Exchange<HandWord>,
}

impl Hand {
    pub(crate) const fn new(word: Exchange<HandWord>) -> Self {
        Self { word }
    }

    /// Whether it may be in a door that this thread has closed before. If not, all that the visitor did behind that door is over,
    /// and seen from here on.
    #[must_use]
    pub fn is_in(&self, number: u32) -> bool {
        places(self.word.get().doors.load(Acquire)).contains(&Some(number))
    }
}

/// A visitor at the doors of another process, with a hand of its own.
#[derive(Debug)]
pub struct Visitor {
    doors: Exchange<DoorWords>,
    hand: Exchange<HandWord>,
}

impl Visitor {
    pub(crate) const fn new(doors: Exchange<DoorWords>, hand: Exchange<HandWord>) -> Self {
        Self { doors, hand }
    }

    /// Puts the hand into two doors, if both are open. Neither of them is taken for closed by its owner before what is returned here is
    /// dropped.
    #[must_use]
    #[inline]
    pub fn reach(&mut self, doors: [Door; 2]) -> Option<Reach<'_>> {
        let reach = Reach { hand: self.hand.get() };
        reach.hand.doors.store(shown(doors), Relaxed);
        fence(SeqCst);
        let keys = &self.doors.get().keys;
        let is_open = |door: Door| {
            // What the owner wrote before it opened the door is seen.
            keys.get(door.number as usize).is_some_and(|key| key.load(Acquire) == door.key)
        };
        // If not, the hand is taken back at once.
        doors.into_iter().all(|door| door.key != CLOSED && is_open(door)).then_some(reach)
    }
}

/// A hand in two open doors. It is taken back when this is dropped, and stays where it is if the process dies before.
#[derive(Debug)]
#[must_use = "what is done after this is dropped is done behind a closed door"]
pub struct Reach<'a> {
    hand: &'a HandWord,
}

impl Drop for Reach<'_> {
    #[inline]
    fn drop(&mut self) {
        self.hand.doors.store(NOWHERE, Release);
    }
}

/// The word of a hand that is in these doors: their numbers and one, so that no door is zero.
fn shown(doors: [Door; 2]) -> u64 {
    let [low, high] = doors.map(|door| u64::from(door.number.wrapping_add(1)));
    high << 32 | low
}

/// The doors that this word of a hand says.
fn places(word: u64) -> [Option<u32>; 2] {
    #[expect(clippy::cast_possible_truncation, reason = "the two halves")]
    [word as u32, (word >> 32) as u32].map(|half| half.checked_sub(1))
}
