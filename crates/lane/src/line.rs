//! Where a slot is called.

use std::sync::atomic::Ordering::{AcqRel, Relaxed, SeqCst};

use ferroce_sys::sync::prim::{AtomicU64, fence};

use crate::exchange::Exchange;

/// Words of calls: a bit for each slot.
const WORDS: usize = 4;

/// What stands in [`Words::asleep`] while the owner is awake.
const AWAKE: u64 = 0;

/// What owner and callers share: one cache line.
#[derive(Debug)]
#[repr(C, align(64))]
pub(crate) struct Words {
    /// Bit `n % 64` of word `n / 64` is set: slot `n` has called.
    called: [AtomicU64; WORDS],
    /// The number of the sleep that the owner is in or about to be in; 0 while it is awake.
    asleep: AtomicU64,
}

#[cfg(loom)]
impl Words {
    pub(crate) fn new() -> Self {
        Self { called: std::array::from_fn(|_| AtomicU64::new(0)), asleep: AtomicU64::new(AWAKE) }
    }
}

/// The owner's end of the line on which other processes call a slot.
///
/// A call says which lane to look at, and nothing more. The owner [takes](Self::take) the calls and then looks at those lanes;
/// before it sleeps on its eventfd it says so ([`going_to_sleep`](Self::going_to_sleep)), and a caller that finds it asleep
/// is told to signal the eventfd.
///
/// # Why no call is missed
///
/// Each side writes, then has a fence (`SeqCst`), then reads what the other side writes; all fences stand in one order, and a
/// read behind the later fence sees what was written before the earlier one.
///
/// *The record of a caller that finds its bit set already*, and leaves it so. The caller publishes the record (P), has a
/// fence (F1) and looks at the bit (L). The owner clears the bit (T), has a fence (F2) and looks at the ring (R). If F1 comes
/// before F2, R sees P. If F2 comes before F1, L sees T: the bit is not set, and the caller sets it. So if a bit was found
/// set, the [`take`](Self::take) that clears it looks at the ring late enough. Without F1 a processor may do L before P is
/// visible, and without F2 R before T.
///
/// *The caller that finds the owner awake.* It sets the bit, has a fence, and looks whether the owner sleeps. The owner says
/// that it goes to sleep, has a fence, and looks at the bits. At least one of them sees the other: the owner does not sleep,
/// or the caller signals. A bit that was found set needs no fence more: F1 has the same place between the setting of the bit,
/// which was earlier, and the look.
///
/// *The bit that is kept* ([`keep`](Self::keep)) is not cleared, so no caller counts on it to be: the owner looks into that lane
/// itself, as long as it is awake. Before it sleeps it keeps none, so that [`going_to_sleep`](Self::going_to_sleep) finds the bit, and
/// the [`take`](Self::take) that clears it is one as above.
///
/// *The caller that has signalled in this sleep* does not do so again: [`Caller`] remembers the number of the sleep. If it finds
/// that number although the owner is awake again, then its fence comes before that of the next
/// [`going_to_sleep`](Self::going_to_sleep), or it would find the next number; and so the owner finds the bit. The
/// number is remembered and not the bit, so that a bit that was left set by a process that died before it could signal keeps no
/// later one from it.
///
/// *The signal that is used up in vain.* A call may be taken just before the owner says a new number, and its caller signals for that
/// number: the owner wakes and finds nothing, and in this sleep the caller does not signal again. So an owner that was woken
/// does not sleep on under the same number ([`rests`](Self::rests)).
///
/// # On trust
///
/// All callers write to the same words. One that does not follow the rules can make up calls, and clear those of others: the
/// owner then looks at lanes in vain, or later than it could. It can also say that a sleeping owner is awake. It cannot make the
/// owner read what is not there, and a number here is a slot whatever is written. So an owner with callers that it does not trust
/// sleeps with a limit of time, and looks at all of its lanes, not only at those that were called, between
/// [`going_to_sleep`](Self::going_to_sleep) and its sleep, and when it wakes: then calls that were hidden cost time up to that
/// limit, and nothing is lost.
#[derive(Debug)]
pub struct Line {
    words: Exchange<Words>,
    /// The number of the last sleep.
    sleeps: u64,
    /// The bits of calls that are left alone.
    kept: [u64; WORDS],
    /// The words say that the owner sleeps.
    asleep: bool,
    /// Calls were taken since they said so.
    heard: bool,
}

impl Line {
    pub(crate) const fn new(words: Exchange<Words>) -> Self {
        Self { words, sleeps: AWAKE, asleep: false, heard: false, kept: [0; WORDS] }
    }

    /// Whether a slot has called. It only reads, and may be a moment late.
    #[must_use]
    #[inline]
    pub fn is_called(&self) -> bool {
        let words = self.words.get().called.iter().zip(self.kept);
        words.into_iter().any(|(word, kept)| word.load(Relaxed) & !kept != 0)
    }

    /// Leaves the calls of this slot alone from now on, and those of no other: the owner looks into its lane by itself, again and
    /// again. So its bit stays set, and neither side writes to this cache line for each call.
    pub const fn keep(&mut self, slot: u8) {
        self.kept = [0; WORDS];
        self.kept[slot as usize / 64] = 1 << (slot % 64);
    }

    /// Leaves no calls alone any more. What was left is a call like others: before the owner sleeps, it takes it, and looks.
    pub const fn keep_none(&mut self) {
        self.kept = [0; WORDS];
    }

    /// Takes all calls: the slots that have called, each once, lowest first. What they have published before is seen
    /// in their lanes from here on.
    #[inline]
    pub fn take(&mut self) -> Taken {
        let mut words = [0; WORDS];
        for ((taken, word), kept) in words.iter_mut().zip(&self.words.get().called).zip(self.kept) {
            // The load spares the cache line of the callers a write.
            if word.load(Relaxed) & !kept != 0 {
                *taken = word.fetch_and(kept, AcqRel) & !kept;
            }
        }
        if words != [0; WORDS] {
            self.heard = true;
            fence(SeqCst);
        }
        Taken { words }
    }

    /// For an owner that is about to sleep, or to sleep on: whether it has been called, and must not. It says
    /// [`awake`](Self::awake) when it is.
    ///
    /// It says that it sleeps under a new number if calls were taken since it last said so, or if it was `woken`: a caller signals
    /// once for each number, and may have done so for a call that was taken before the number was there. Whatever may have used
    /// up a signal (the eventfd was read, or reported) has to say so here. Else what it said still holds, and nothing is written.
    #[must_use]
    #[inline]
    pub fn rests(&mut self, woken: bool) -> bool {
        if self.asleep && !self.heard && !woken { false } else { self.going_to_sleep() }
    }

    /// Says that the owner goes to sleep, and then whether it has been called: if so, it must not sleep. It says
    /// [`awake`](Self::awake) in either case. Signals of earlier sleeps are taken back (the eventfd is cleared) before
    /// this, and never after.
    #[must_use]
    pub fn going_to_sleep(&mut self) -> bool {
        (self.asleep, self.heard) = (true, false);
        self.sleeps = self.sleeps.wrapping_add(1).max(AWAKE + 1);
        self.words.get().asleep.store(self.sleeps, Relaxed);
        fence(SeqCst);
        self.is_called()
    }

    /// Says that the owner is awake, or will not sleep after all. After this it takes the calls.
    #[inline]
    pub fn awake(&mut self) {
        if std::mem::take(&mut self.asleep) {
            // Without a fence: a caller that sees this late is seen by the next `going_to_sleep`.
            self.words.get().asleep.store(AWAKE, Relaxed);
        }
    }
}

/// Slots that have called, lowest first.
#[derive(Clone, Debug)]
pub struct Taken {
    words: [u64; WORDS],
}

impl Iterator for Taken {
    type Item = u8;

    #[inline]
    fn next(&mut self) -> Option<u8> {
        let (index, word) = (0..).zip(&mut self.words).find(|(_, word)| **word != 0)?;
        #[expect(clippy::cast_possible_truncation, reason = "fewer than 64")]
        let bit = word.trailing_zeros() as u8;
        *word &= *word - 1;
        Some(index * 64 + bit)
    }
}

/// The end of a [`Line`] from which its owner is called.
#[derive(Debug)]
pub struct Caller {
    words: Exchange<Words>,
    /// The sleep for which the owner was last signalled from here.
    signalled: u64,
}

impl Caller {
    pub(crate) const fn new(words: Exchange<Words>) -> Self {
        Self { words, signalled: AWAKE }
    }

    /// Calls the owner in the name of this slot, after something was published for it. Says whether it sleeps: then its
    /// eventfd has to be signalled. It says so once for each sleep.
    #[must_use = "an owner that sleeps is woken by its eventfd alone"]
    #[inline]
    pub fn call(&mut self, from: u8) -> bool {
        let words = self.words.get();
        let (word, bit) = (&words.called[usize::from(from / 64)], 1 << (from % 64));
        fence(SeqCst);
        // The load spares the cache line, as long as the owner is busy with other things.
        if word.load(Relaxed) & bit == 0 {
            word.fetch_or(bit, AcqRel);
            fence(SeqCst);
        }
        let sleep = words.asleep.load(Relaxed);
        if sleep == AWAKE || sleep == self.signalled {
            return false;
        }
        self.signalled = sleep;
        true
    }
}
