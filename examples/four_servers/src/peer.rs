//! What a lane knows of one peer: how far both sides are, and what is under way.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use ferroce::RemoteRegion;
use ferroce::broker::pool::Item;
use serde_json::{Value, json};

/// Requests to one peer that may be open at a time, counted from the oldest.
pub(crate) const WINDOW: u64 = 32;

/// The page that a server has for each peer and lane: two numbers, and places for WRITEs.
pub(crate) mod page {
    /// The number that the peer adds to.
    pub(crate) const ADDED: usize = 0;
    /// The number that the peer swaps.
    pub(crate) const SWAPPED: usize = 8;
    /// Where the places begin.
    pub(crate) const PLACES: usize = 64;
    /// How many there are: one in eight requests is a WRITE, so none is used twice within a window.
    pub(crate) const COUNT: usize = 4;
    const _: () = assert!(COUNT as u64 * 8 == super::WINDOW);

    /// Bytes of a page whose places have this many bytes each.
    pub(crate) const fn len(place: usize) -> usize {
        PLACES + COUNT * place
    }
}

/// What went one way over a connection.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Flow {
    pub(crate) messages: u64,
    pub(crate) bytes: u64,
    /// The sum of all checksums.
    pub(crate) sum: u64,
}

impl Flow {
    pub(crate) const fn add(&mut self, bytes: usize, sum: u32) {
        self.messages += 1;
        self.bytes += bytes as u64;
        self.sum = self.sum.wrapping_add(sum as u64);
    }

    fn to_json(self) -> Value {
        json!([self.messages, self.bytes, self.sum])
    }
}

/// A request that is not done.
#[derive(Debug)]
pub(crate) enum Open {
    /// A message with this checksum that has not been answered. The item holds bytes that the peer fetches.
    Message { sum: u32, _item: Option<Arc<Item>> },
    /// One-sided work.
    OneSided,
}

/// A long message that the peer offers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Offer {
    pub(crate) number: u64,
    pub(crate) place: RemoteRegion,
    pub(crate) sum: u32,
    /// The checksum of the message that made the offer.
    pub(crate) told_by: u32,
}

/// Whether we know what our numbers at the peer are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Numbers {
    Unknown,
    Asked,
    Known,
}

/// A peer, on the connection that there is now.
#[derive(Debug)]
pub(crate) struct Peer {
    /// Our page for it.
    pub(crate) page: Arc<Item>,
    /// What its board has.
    pub(crate) board: Vec<u8>,
    /// Counts connections, so that what belongs to an earlier one is known.
    pub(crate) connection: u64,
    pub(crate) is_there: bool,
    pub(crate) has_hello: bool,
    /// Its page for us.
    pub(crate) its_page: Option<RemoteRegion>,
    pub(crate) numbers: Numbers,
    /// What our numbers in its page are when all that is under way is done.
    pub(crate) added: u64,
    pub(crate) swapped: u64,
    pub(crate) sequence_out: u64,
    pub(crate) sequence_in: u64,
    pub(crate) next: u64,
    pub(crate) open: BTreeMap<u64, Open>,
    /// Numbers and checksums that it has to be told.
    pub(crate) answers: VecDeque<(u64, u32)>,
    pub(crate) offers: VecDeque<Offer>,
    pub(crate) sent: Flow,
    pub(crate) received: Flow,
    /// Requests that are done.
    pub(crate) done: u64,
}

impl Peer {
    /// One that is not there yet.
    pub(crate) fn new(page: Item, board: Vec<u8>) -> Self {
        Self {
            page: Arc::new(page),
            board,
            connection: 0,
            is_there: false,
            has_hello: false,
            its_page: None,
            numbers: Numbers::Unknown,
            added: 0,
            swapped: 0,
            sequence_out: 0,
            sequence_in: 0,
            next: 0,
            open: BTreeMap::new(),
            answers: VecDeque::new(),
            offers: VecDeque::new(),
            sent: Flow::default(),
            received: Flow::default(),
            done: 0,
        }
    }

    /// A new connection begins: both sides count from nothing.
    pub(crate) fn joined(&mut self) {
        self.left();
        self.connection += 1;
        self.is_there = true;
        (self.sequence_out, self.sequence_in, self.next, self.done) = (0, 0, 0, 0);
        (self.sent, self.received) = (Flow::default(), Flow::default());
    }

    /// The connection is over; how many requests it is not known of whether they were done.
    pub(crate) fn left(&mut self) -> u64 {
        let lost = self.open.len() as u64;
        (self.is_there, self.has_hello) = (false, false);
        (self.its_page, self.numbers) = (None, Numbers::Unknown);
        self.open.clear();
        self.answers.clear();
        self.offers.clear();
        lost
    }

    /// Whether another request may be opened.
    pub(crate) fn may_ask(&self) -> bool {
        let oldest = self.open.first_key_value().map_or(self.next, |(number, _)| *number);
        self.is_there && self.numbers == Numbers::Known && self.next - oldest < WINDOW
    }

    /// Whether nothing is under way, in either direction, as far as is known here.
    pub(crate) fn is_settled(&self) -> bool {
        self.is_there
            && self.numbers == Numbers::Known
            && self.open.is_empty()
            && self.answers.is_empty()
            && self.offers.is_empty()
    }

    pub(crate) fn to_json(&self, id: u32) -> anyhow::Result<Value> {
        Ok(json!({
            "peer": id,
            "sent": self.sent.to_json(),
            "received": self.received.to_json(),
            "numbers_there": [self.added, self.swapped],
            "numbers_here": [self.page.load_u64(page::ADDED)?, self.page.load_u64(page::SWAPPED)?],
        }))
    }
}
