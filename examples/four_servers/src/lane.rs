//! One thread of a server: its broker, and the work with the same thread of all others.

use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap, VecDeque};
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Context as _, anyhow, bail, ensure};
use ferroce::RemoteRegion;
use ferroce::broker::pool::{Item, Pool};
use ferroce::broker::{At, Broker, BrokerError, Change, Done, Message, Post, Why};
use ferroce::time::{Time, now};
use serde_json::{Value, json};

use crate::packet::{Header, Kind, filling, sum_of};
use crate::peer::{Numbers, Offer, Open, Peer, WINDOW, page};
use crate::server::{BOARD, BOARD_LEN, Order, Orders, say};

/// How long a lane sleeps when nothing happens, before it looks for orders.
const PAUSE: Duration = Duration::from_millis(1);

/// How long the others may take for the last messages of a lane that leaves.
const GOODBYE: Duration = Duration::from_secs(20);

/// How often a lane says how far it is.
const TOLD_EVERY: Duration = Duration::from_millis(50);

/// Changes that the broker told of, in order.
pub(crate) type Changes = Arc<Mutex<VecDeque<Change>>>;

/// What one thread has done in its life.
#[derive(Debug, Default)]
struct Totals {
    requests: u64,
    messages: u64,
    bytes: u64,
    writes: u64,
    reads: u64,
    atomics: u64,
    long: u64,
    lost: u64,
    done: u64,
    datagrams: u64,
}

/// One-sided work under a name.
#[derive(Debug)]
struct Job {
    peer: u32,
    connection: u64,
    item: Arc<Item>,
    what: What,
}

#[derive(Debug)]
enum What {
    /// Reads what our numbers at the peer are.
    Numbers,
    /// Reads a part of the peer's board.
    Board { number: u64, offset: usize },
    /// Adds to, or swaps, a number that must be this one before.
    Atomic { number: u64, before: u64 },
    /// Fetches a long message.
    Fetch(Offer),
}

/// One thread of a server.
pub(crate) struct Lane {
    broker: Broker,
    lane: u8,
    pool: Pool,
    changes: Changes,
    peers: BTreeMap<u32, Peer>,
    jobs: HashMap<u64, Job>,
    next_job: u64,
    totals: Totals,
    /// The first thing that went wrong in a function that was called.
    failed: Option<anyhow::Error>,
    /// The last order that was seen to be carried out.
    obeyed: Order,
    is_settled: bool,
    ended: bool,
    told_end: Vec<u32>,
    told_at: Time,
}

impl Lane {
    pub(crate) fn new(broker: Broker, lane: u8, pool: Pool, changes: Changes) -> anyhow::Result<Self> {
        let mut peers = BTreeMap::new();
        for id in broker.peers() {
            let page = pool.alloc_zeroed(lane.into(), page::len(broker.max_message()))?;
            peers.insert(id, Peer::new(page, filling(id.into(), BOARD_LEN)));
        }
        Ok(Self {
            broker,
            lane,
            pool,
            changes,
            peers,
            jobs: HashMap::new(),
            next_job: 0,
            totals: Totals::default(),
            failed: None,
            obeyed: Order::Work,
            is_settled: false,
            ended: false,
            told_end: Vec::new(),
            told_at: now(),
        })
    }

    /// Works until the end is told, and leaves.
    pub(crate) fn run(mut self, orders: &Orders) -> anyhow::Result<()> {
        let broker = self.broker.clone();
        loop {
            let order = orders.get();
            ensure!(order != Order::Gone, "the process that started this server is gone");
            self.take_changes()?;
            self.work(order)?;
            self.obey(order)?;
            if self.ended {
                break;
            }
            let mut datagrams = 0;
            {
                let lane = RefCell::new(&mut self);
                broker.wait(
                    PAUSE,
                    |message| lane.borrow_mut().take_message(&message),
                    |done| lane.borrow_mut().take_done(&done),
                )?;
                broker.poll_datagrams(|_| datagrams += 1)?;
            }
            self.totals.datagrams += datagrams;
            if let Some(error) = self.failed.take() {
                return Err(error);
            }
        }
        broker.leave(GOODBYE).with_context(|| format!("lane {} cannot leave in order", self.lane))
    }

    /// What this lane has done, for the process that compares.
    fn report(&self) -> anyhow::Result<Value> {
        let peers: anyhow::Result<Vec<_>> = self.peers.iter().map(|(id, peer)| peer.to_json(*id)).collect();
        let doorbells: u64 = self.broker.status().iter().map(|status| status.doorbells).sum();
        let totals = &self.totals;
        Ok(json!({
            "lane": self.lane,
            "requests": totals.requests,
            "doorbells": doorbells,
            "messages": totals.messages,
            "bytes": totals.bytes,
            "writes": totals.writes,
            "reads": totals.reads,
            "atomics": totals.atomics,
            "long": totals.long,
            "lost": totals.lost,
            "done": totals.done,
            "datagrams": totals.datagrams,
            "peers": peers?,
        }))
    }

    fn obey(&mut self, order: Order) -> anyhow::Result<()> {
        if self.told_at + TOLD_EVERY <= now() && order == Order::Work {
            self.told_at = now();
            let there = self.peers.values().filter(|peer| peer.is_there);
            let least = there.clone().map(|peer| peer.done).min().unwrap_or(0);
            say(&format!("progress {} {} {least} {}", self.lane, self.totals.done, there.count()));
        }
        if order >= Order::Finish && self.obeyed < Order::Finish {
            self.broker.broadcast(b"this lane asks for nothing more", Some(0))?;
            self.obeyed = Order::Finish;
        }
        if order == Order::Finish && !self.is_settled && self.peers.values().all(Peer::is_settled) {
            say(&format!("settled {}", self.lane));
            self.is_settled = true;
        }
        if order == Order::Report && self.obeyed < order {
            say(&format!("report {}", self.report()?));
            self.obeyed = order;
        }
        if order == Order::Terminate {
            self.terminate()?;
        }
        Ok(())
    }

    /// Tells all others that it is over; when they have left, this lane does.
    fn terminate(&mut self) -> anyhow::Result<()> {
        let peers: Vec<u32> = self.peers.keys().copied().collect();
        for peer in peers {
            if !self.told_end.contains(&peer) && self.send(peer, Kind::End, 0, 0, &[])?.is_some() {
                self.told_end.push(peer);
            }
        }
        self.broker.flush_all();
        self.ended = self.peers.values().all(|peer| !peer.is_there);
        Ok(())
    }

    fn take_changes(&mut self) -> anyhow::Result<()> {
        while let Some(change) = self.next_change() {
            let peer = self.peers.get_mut(&change.peer()).context("a change of no peer")?;
            match change {
                Change::Joined { peer: id, .. } => {
                    peer.joined();
                    say(&format!("joined {} {id}", self.lane));
                }
                Change::Left { peer: id, why, .. } => {
                    self.totals.lost += peer.left();
                    ensure!(
                        self.told_end.is_empty() || why == Why::Left,
                        "at the end server {id} did not leave in order: {why}"
                    );
                    say(&format!("left {} {id} {} {why}", self.lane, self.totals.done));
                }
            }
        }
        Ok(())
    }

    fn next_change(&self) -> Option<Change> {
        self.changes.lock().unwrap_or_else(PoisonError::into_inner).pop_front()
    }

    /// Posts what there is room for, to all peers.
    fn work(&mut self, order: Order) -> anyhow::Result<()> {
        let peers: Vec<u32> = self.peers.keys().copied().collect();
        for id in peers {
            let peer = self.peer(id)?;
            if !peer.is_there {
                continue;
            }
            if !peer.has_hello {
                let place = peer.page.remote().to_bytes();
                let posted = self.send(id, Kind::Hello, 0, 0, &place)?;
                self.peer(id)?.has_hello = posted.is_some();
            }
            if self.peer(id)?.its_page.is_some() && self.peer(id)?.numbers == Numbers::Unknown {
                self.ask_for_numbers(id)?;
            }
            self.answer(id)?;
            while order == Order::Work && self.peer(id)?.may_ask() && self.ask(id)? {}
        }
        Ok(())
    }

    /// Tells a peer what has arrived, and fetches what it offers.
    fn answer(&mut self, id: u32) -> anyhow::Result<()> {
        while let Some((number, sum)) = self.peer(id)?.answers.front().copied() {
            if self.send(id, Kind::Answer, number, sum, &[])?.is_none() {
                return Ok(());
            }
            self.peer(id)?.answers.pop_front();
        }
        while let Some(offer) = self.peer(id)?.offers.front().copied() {
            if !self.fetch(id, offer)? {
                return Ok(());
            }
            self.peer(id)?.offers.pop_front();
        }
        Ok(())
    }

    /// Opens the next request to a peer; false if there is no room now.
    fn ask(&mut self, id: u32) -> anyhow::Result<bool> {
        let (lane, longest, me) = (u64::from(self.lane), self.broker.max_message(), self.broker.me());
        let peer = self.peer(id)?;
        let number = peer.next;
        let seed = number << 16 | u64::from(me) << 12 | u64::from(id) << 8 | lane;
        // All lengths that a message can have, and all that fit behind its header.
        let len = usize::try_from(number * 37)? % (longest - crate::packet::HEADER + 1);
        let open = match number % 8 {
            0 => self.message(id, Kind::Copied, number, &filling(seed, len))?,
            1 => self.message(id, Kind::Buffered, number, &filling(seed, len))?,
            2 => self.message(id, Kind::InItem, number, &filling(seed, len))?,
            3 => self.message(id, Kind::Written, number, &filling(seed, len))?,
            4 => self.offer(id, number, &filling(seed, longest + len * 8))?,
            5 => self.read_board(id, number)?,
            6 => self.add(id, number)?,
            _ => self.swap(id, number)?,
        };
        let Some(open) = open else { return Ok(false) };
        let peer = self.peer(id)?;
        peer.open.insert(number, open);
        peer.next += 1;
        if number % 64 == 63 {
            // Now and then a lane does not wait for the batch to be full.
            self.broker.flush(id)?;
        }
        Ok(true)
    }

    fn message(&mut self, id: u32, kind: Kind, number: u64, body: &[u8]) -> anyhow::Result<Option<Open>> {
        let sum = self.send(id, kind, number, 0, body)?;
        Ok(sum.map(|sum| Open::Message { sum, _item: None }))
    }

    /// Lays a long message into an item of the pool, and tells the peer where it is.
    fn offer(&mut self, id: u32, number: u64, bytes: &[u8]) -> anyhow::Result<Option<Open>> {
        let item = self.item(bytes)?;
        let place = item.remote().to_bytes();
        let sum = self.send(id, Kind::Long, number, crc32fast::hash(bytes), &place)?;
        if sum.is_some() {
            self.totals.long += 1;
            self.totals.bytes += bytes.len() as u64;
        }
        Ok(sum.map(|sum| Open::Message { sum, _item: Some(item) }))
    }

    /// Sends a message; its checksum, or none if there is no room now.
    fn send(
        &mut self,
        id: u32,
        kind: Kind,
        number: u64,
        other_sum: u32,
        body: &[u8],
    ) -> anyhow::Result<Option<u32>> {
        let broker = self.broker.clone();
        let (lane, sequence) = (self.lane, self.peer(id)?.sequence_out);
        let bytes = Header { kind, lane, sequence, number, other_sum }.emit(body);
        let imm = imm_of(kind, number).map_or_else(Post::new, |imm| Post::new().imm(imm));
        let result = match kind {
            Kind::Buffered => broker.send_buf(id).and_then(|mut buf| {
                buf.append(&bytes)?;
                broker.post_send(buf, imm)
            }),
            Kind::InItem => broker.post_send_from(id, &self.item(&bytes)?, imm),
            Kind::Written => {
                let its_page = self.peer(id)?.its_page.context("a peer without a page")?;
                let start = (page::PLACES + place_of(number) * broker.max_message()) as u64;
                let to = its_page.slice(start..start + bytes.len() as u64);
                broker.post_write(id, &self.item(&bytes)?, to, imm)
            }
            _ => broker.send(id, &bytes, imm),
        };
        if !is_posted(result)? {
            return Ok(None);
        }
        let sum = sum_of(&bytes);
        let peer = self.peer(id)?;
        peer.sequence_out += 1;
        peer.sent.add(bytes.len(), sum);
        self.totals.requests += 1;
        self.totals.messages += 1;
        self.totals.bytes += bytes.len() as u64;
        self.totals.writes += u64::from(kind == Kind::Written);
        Ok(Some(sum))
    }

    fn ask_for_numbers(&mut self, id: u32) -> anyhow::Result<()> {
        let from = self.peer(id)?.its_page.context("a peer without a page")?.slice(..16);
        if self.post(id, 16, What::Numbers, |broker, item, post| broker.post_read(id, item, from, post))? {
            self.peer(id)?.numbers = Numbers::Asked;
            self.totals.reads += 1;
        }
        Ok(())
    }

    fn read_board(&mut self, id: u32, number: u64) -> anyhow::Result<Option<Open>> {
        let (len, offset) = (512, usize::try_from(number * 24)? % (BOARD_LEN - 512));
        let at = At::offset(BOARD, offset as u64);
        let what = What::Board { number, offset };
        let posted = self.post(id, len, what, |broker, item, post| broker.post_read(id, item, at, post))?;
        self.totals.reads += u64::from(posted);
        Ok(posted.then_some(Open::OneSided))
    }

    fn add(&mut self, id: u32, number: u64) -> anyhow::Result<Option<Open>> {
        let (add, before) = (number % 100 + 1, self.peer(id)?.added);
        let at = self.number_at(id, page::ADDED)?;
        let what = What::Atomic { number, before };
        let posted =
            self.post(id, 8, what, |broker, item, post| broker.fetch_add(id, item, at, add, post))?;
        if posted {
            self.peer(id)?.added = before.wrapping_add(add);
            self.totals.atomics += 1;
        }
        Ok(posted.then_some(Open::OneSided))
    }

    fn swap(&mut self, id: u32, number: u64) -> anyhow::Result<Option<Open>> {
        let before = self.peer(id)?.swapped;
        let both = (before, before + 1);
        let at = self.number_at(id, page::SWAPPED)?;
        let what = What::Atomic { number, before };
        let posted =
            self.post(id, 8, what, |broker, item, post| broker.compare_swap(id, item, at, both, post))?;
        if posted {
            self.peer(id)?.swapped = before + 1;
            self.totals.atomics += 1;
        }
        Ok(posted.then_some(Open::OneSided))
    }

    fn number_at(&mut self, id: u32, offset: usize) -> anyhow::Result<At> {
        let its_page = self.peer(id)?.its_page.context("a peer without a page")?;
        Ok(its_page.slice(offset as u64..offset as u64 + 8).into())
    }

    fn fetch(&mut self, id: u32, offer: Offer) -> anyhow::Result<bool> {
        let len = usize::try_from(offer.place.length)?;
        let what = What::Fetch(offer);
        let from: At = offer.place.into();
        let posted = self.post(id, len, what, |broker, item, post| broker.post_read(id, item, from, post))?;
        self.totals.reads += u64::from(posted);
        Ok(posted)
    }

    /// Posts one-sided work under a name, with a new item for what it brings; false if there is no room now.
    fn post(
        &mut self,
        id: u32,
        len: usize,
        what: What,
        post: impl FnOnce(&Broker, &Arc<Item>, Post) -> Result<(), BrokerError>,
    ) -> anyhow::Result<bool> {
        let item = Arc::new(self.pool.alloc(self.lane.into(), len)?);
        let name = self.next_job;
        if !is_posted(post(&self.broker, &item, Post::new().id(name)))? {
            return Ok(false);
        }
        let connection = self.peer(id)?.connection;
        self.jobs.insert(name, Job { peer: id, connection, item, what });
        self.next_job += 1;
        self.totals.requests += 1;
        Ok(true)
    }

    /// An item of the pool with these bytes. Work that names it holds it until it is done.
    fn item(&self, bytes: &[u8]) -> anyhow::Result<Arc<Item>> {
        let item = self.pool.alloc(self.lane.into(), bytes.len())?;
        item.write_at(0, bytes)?;
        Ok(Arc::new(item))
    }

    fn peer(&mut self, id: u32) -> anyhow::Result<&mut Peer> {
        self.peers.get_mut(&id).with_context(|| format!("{id} is no peer"))
    }

    /// Called by the broker for each message. It answers at once if there is room.
    fn take_message(&mut self, message: &Message<'_>) {
        let id = message.peer();
        let handled = self.take_changes().and_then(|()| self.handle(message)).and_then(|()| self.answer(id));
        self.keep(handled.with_context(|| format!("a message of server {id}")));
    }

    fn handle(&mut self, message: &Message<'_>) -> anyhow::Result<()> {
        let (id, lane, max) = (message.peer(), self.lane, self.broker.max_message());
        let peer = self.peer(id)?;
        let bytes = if message.is_write() {
            let place = message.imm().context("a WRITE without immediate data")?;
            let place = usize::try_from(place)?;
            ensure!(place < page::COUNT, "a WRITE to place {place}");
            let start = page::PLACES + place * max;
            peer.page.to_vec(start..start + message.len())?
        } else {
            message.to_vec()
        };
        let header = Header::parse(&bytes)?;
        let (sum, body) = (sum_of(&bytes), &bytes[crate::packet::HEADER..]);
        ensure!(header.lane == lane, "it is for lane {}, and this is lane {lane}", header.lane);
        let Header { sequence, number, kind, .. } = header;
        ensure!(sequence == peer.sequence_in, "it has number {sequence}, and {} is next", peer.sequence_in);
        let (imm, right) = (message.imm(), imm_of(kind, number));
        ensure!(imm == right, "{kind:?} {number} has immediate data {imm:?} instead of {right:?}");
        peer.sequence_in += 1;
        peer.received.add(bytes.len(), sum);
        match kind {
            Kind::Hello => peer.its_page = Some(RemoteRegion::from_bytes(body)?),
            Kind::Copied | Kind::Buffered | Kind::InItem | Kind::Written => {
                peer.answers.push_back((number, sum));
            }
            Kind::Long => {
                let place = RemoteRegion::from_bytes(body)?;
                peer.offers.push_back(Offer { number, place, sum: header.other_sum, told_by: sum });
            }
            Kind::Answer => match peer.open.remove(&number) {
                Some(Open::Message { sum, .. }) if sum == header.other_sum => self.count_done(id)?,
                other => {
                    bail!("the answer to {number} says {:#010x}, and {other:?} was sent", header.other_sum)
                }
            },
            Kind::End => self.ended = true,
        }
        Ok(())
    }

    /// Called by the broker for each work that is done.
    fn take_done(&mut self, done: &Done) {
        let taken = self.finish(done);
        self.keep(taken.with_context(|| format!("work {} for server {}", done.id, done.peer)));
    }

    fn finish(&mut self, done: &Done) -> anyhow::Result<()> {
        let Job { peer: id, connection, item, what } =
            self.jobs.remove(&done.id).ok_or_else(|| anyhow!("nothing was posted under this name"))?;
        let peer = self.peer(id)?;
        if done.result.is_err() || peer.connection != connection || !peer.is_there {
            // The connection is over, or will be in a moment; the broker tells.
            return Ok(());
        }
        match what {
            What::Numbers => {
                peer.added = item.load_u64(page::ADDED)?;
                peer.swapped = item.load_u64(page::SWAPPED)?;
                peer.numbers = Numbers::Known;
            }
            What::Board { number, offset } => {
                let right = &peer.board[offset..offset + item.len()];
                ensure!(item.to_vec(..)? == right, "READ {number} brought what is not on the board");
                peer.open.remove(&number);
                self.count_done(id)?;
            }
            What::Atomic { number, before } => {
                let found = item.load_u64(0)?;
                ensure!(found == before, "atomic {number} found {found} instead of {before}");
                peer.open.remove(&number);
                self.count_done(id)?;
            }
            What::Fetch(offer) => {
                let sum = crc32fast::hash(&item.to_vec(..)?);
                let Offer { number, sum: right, told_by, .. } = offer;
                ensure!(
                    sum == right,
                    "long message {number} has checksum {sum:#010x} instead of {right:#010x}"
                );
                peer.answers.push_back((number, told_by));
                self.answer(id)?;
            }
        }
        Ok(())
    }

    fn count_done(&mut self, id: u32) -> anyhow::Result<()> {
        self.totals.done += 1;
        self.peer(id)?.done += 1;
        Ok(())
    }

    fn keep(&mut self, result: anyhow::Result<()>) {
        if let Err(error) = result {
            self.failed.get_or_insert(error);
        }
    }
}

/// The immediate data that goes with a message.
fn imm_of(kind: Kind, number: u64) -> Option<u32> {
    match kind {
        Kind::Copied => Some(0),
        Kind::Buffered => Some(u32::try_from(number & 0xffff_ffff).unwrap_or(u32::MAX)),
        Kind::Written => u32::try_from(place_of(number)).ok(),
        _ => None,
    }
}

/// Where in the peer's page a WRITE goes.
fn place_of(number: u64) -> usize {
    usize::try_from(number % WINDOW / 8).unwrap_or(0)
}

/// Whether work was posted, or there is no room now; all else is an error.
fn is_posted(result: Result<(), BrokerError>) -> anyhow::Result<bool> {
    match result {
        Ok(()) => Ok(true),
        Err(BrokerError::WouldBlock { .. } | BrokerError::Gone { .. }) => Ok(false),
        Err(error) => Err(error.into()),
    }
}
