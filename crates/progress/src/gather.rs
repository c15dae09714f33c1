//! Whether work that was just posted leaves at once, or waits a moment for company.
//!
//! A message by itself costs a turn of the engine, a system call and an acknowledgement; thirty that leave
//! together cost hardly more. So the messages of a program that posts one after the other gather, as long as
//! earlier ones are on their way to the same peer: it has something to do until these come. A message that
//! finds nothing under way leaves at once.
//!
//! What waits leaves with the next post that finds enough of it, or finds that it has waited
//! [`GATHER_LONGEST`], and with any poll that finds no completion, unless so much is under way that the peer
//! is kept busy. Should the program do neither, an alarm
//! has the driver send it, [`GATHER_ALARM`] after it was posted at the latest. To set an alarm costs about as
//! much as to send a message, and one that goes off costs the driver a wake: so it is set once for many
//! messages, and again before it goes off, as long as the program posts.

use ferroce_transport::Time;

use crate::table::{
    GATHER_AFTER, GATHER_ALARM, GATHER_BUSY, GATHER_BYTES, GATHER_DEEP, GATHER_GAP, GATHER_LONGEST,
    GATHER_MESSAGES, GATHER_RESTS, GATHER_RESTS_MOST, GATHER_SPARE,
};

/// What was posted in one call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Posting {
    /// Work requests.
    pub messages: u32,
    /// Bytes of all of them.
    pub bytes: u64,
    /// Earlier packets of the same connection that are not acknowledged yet.
    pub under_way: u32,
    /// The program wants it to leave at once.
    pub is_urgent: bool,
}

/// What becomes of work that was just posted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Departure {
    /// It leaves now, with all that waits.
    Now,
    /// It waits. If there is a time, an alarm has to be set to it.
    Later(Option<Time>),
}

/// The work of an engine that waits for company, and what is known of the program that posts it.
#[derive(Clone, Copy, Debug)]
pub struct Gather {
    /// When work was posted last.
    posted: Time,
    /// Posts each of which came soon after the one before.
    streak: u8,
    /// Since when the oldest waits.
    since: Option<Time>,
    messages: u32,
    bytes: u64,
    /// When the alarm goes off that was set last.
    alarm: Time,
    /// Posts that are to leave at once, because the program left others waiting.
    rests: u16,
    /// How many it will be the next time.
    next_rests: u16,
}

impl Gather {
    /// Nothing waits.
    #[must_use]
    pub const fn new() -> Self {
        let never = Time::from_nanos(0);
        Self {
            posted: never,
            streak: 0,
            since: None,
            messages: 0,
            bytes: 0,
            alarm: never,
            rests: 0,
            next_rests: GATHER_RESTS,
        }
    }

    /// Work was posted: whether it waits. If it leaves, [`left`](Self::left) has to follow.
    #[inline]
    pub fn posted(&mut self, now: Time, posting: Posting) -> Departure {
        let is_soon = now <= self.posted + GATHER_GAP || posting.under_way >= GATHER_BUSY;
        self.streak = if is_soon { self.streak.saturating_add(1) } else { 0 };
        self.posted = now;
        if posting.under_way == 0 || posting.is_urgent || self.streak < GATHER_AFTER {
            return Departure::Now;
        }
        if self.rests > 0 {
            self.rests -= 1;
            return Departure::Now;
        }
        self.messages = self.messages.saturating_add(posting.messages);
        self.bytes = self.bytes.saturating_add(posting.bytes);
        if self.messages >= GATHER_MESSAGES || self.bytes >= GATHER_BYTES {
            return Departure::Now;
        }
        if let Some(since) = self.since {
            let is_long = now >= since + GATHER_LONGEST;
            return if is_long { Departure::Now } else { Departure::Later(None) };
        }
        self.since = Some(now);
        if self.alarm >= now + GATHER_SPARE {
            return Departure::Later(None);
        }
        self.alarm = now + GATHER_ALARM;
        Departure::Later(Some(self.alarm))
    }

    /// A poll has found no completion: whether what waits goes on to do so. `under_way` counts packets that are
    /// not acknowledged.
    #[inline]
    #[must_use]
    pub fn goes_on(&self, now: Time, under_way: u32) -> bool {
        under_way >= GATHER_DEEP && self.since.is_some_and(|since| now < since + GATHER_LONGEST)
    }

    /// Whether work waits.
    #[must_use]
    pub const fn is_waiting(&self) -> bool {
        self.since.is_some()
    }

    /// How many posts leave at once because the program went away from others.
    #[must_use]
    pub const fn rests_left(&self) -> u16 {
        self.rests
    }

    /// All that waited has left.
    #[inline]
    pub fn left(&mut self) {
        if self.since.is_some() {
            // A program that comes back for what it has left is trusted again: it may only have been kept from
            // running.
            self.next_rests = (self.next_rests / 2).max(GATHER_RESTS);
        }
        self.since = None;
        self.messages = 0;
        self.bytes = 0;
    }

    /// The alarm went off, and the driver is about to send what waits. Had that waited for long, the program
    /// went away from it: its next posts leave at once, and more of them each time.
    ///
    /// [`left`](Self::left) has to follow.
    pub fn alarmed(&mut self, now: Time) {
        if self.since.is_some_and(|since| now >= since + GATHER_LONGEST) {
            self.rests = self.next_rests;
            self.since = None;
            self.next_rests = (self.next_rests * 2).min(GATHER_RESTS_MOST);
        }
    }
}

impl Default for Gather {
    fn default() -> Self {
        Self::new()
    }
}
