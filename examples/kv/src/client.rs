//! A client: gets and puts, all of it one-sided.

use std::sync::Arc;

use anyhow::{Context as _, bail, ensure};
use ferroce::broker::pool::{Item, Pool};
use ferroce::broker::{At, Broker, BrokerError, Piece, Post};
use ferroce::{Access, Context, RemoteRegion};

use crate::layout::{BODY, Bucket, Directory, Home, LOCK, REGION};
use crate::member::{Base, PATIENCE, Place};

/// How often a torn read or a taken lock is tried again before a client must be dead.
const TRIES: u32 = 1_000_000;

/// One client. It does one thing at a time; use more of them to do more.
pub(crate) struct Client {
    broker: Broker,
    context: Context,
    nodes: u32,
    directories: Vec<Directory>,
    /// What a lock that we have says.
    token: u64,
    /// Registered memory for what is under way.
    body: Arc<Item>,
    word: Arc<Item>,
    /// What a lock said before.
    before: Arc<Item>,
    last_id: u64,
    pub(crate) counters: Counters,
    /// Writes primaries in two halves, with a pause between them, so that gets meet torn buckets.
    pub(crate) tears: bool,
    _pool: Pool,
}

/// What happened on the way.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counters {
    /// READs that met a WRITE, and were done again.
    pub(crate) torn: u64,
    /// Locks that another client had.
    pub(crate) contended: u64,
    /// Messages that nodes have to handle: replicas, and our questions at the beginning.
    pub(crate) messages: u64,
}

impl Client {
    pub(crate) fn join(place: &Place) -> anyhow::Result<Self> {
        let base = Base::open(place, 4, Access::LOCAL_WRITE, 1)?;
        let broker = base.broker(place).start()?;
        let alloc = |size| anyhow::Ok(Arc::new(base.pool.alloc(u64::from(place.id), size)?));
        let mut client = Self {
            broker,
            context: base.context,
            nodes: place.nodes,
            directories: Vec::new(),
            // Never 0, which is a lock that no client has.
            token: u64::from(place.id) + 1,
            body: alloc(BODY)?,
            word: alloc(8)?,
            before: alloc(8)?,
            last_id: 0,
            counters: Counters::default(),
            tears: false,
            _pool: base.pool.clone(),
        };
        for node in 0..place.nodes {
            let directory =
                client.ask(node, &base.pool).with_context(|| format!("node {node} has no directory"))?;
            client.directories.push(directory);
        }
        let buckets: Vec<usize> =
            client.directories.iter().map(|directory| directory.primary.len()).collect();
        ensure!(
            buckets.windows(2).all(|pair| pair[0] == pair[1]),
            "nodes have different numbers of buckets: {buckets:?}"
        );
        Ok(client)
    }

    /// The time, in nanoseconds, the same for all clients of a process.
    pub(crate) fn now(&self) -> u64 {
        self.context.clock_now().nanos()
    }

    pub(crate) fn home(&self, key: &[u8]) -> Home {
        Home::of(key, self.nodes, self.directories[0].primary.len())
    }

    /// The value of a key, from the primary's memory. The primary's program does not notice.
    pub(crate) fn get(&mut self, key: &[u8]) -> anyhow::Result<Option<Vec<u8>>> {
        let home = self.home(key);
        Ok(self.read_bucket(home, false)?.get(key).map(<[u8]>::to_vec))
    }

    /// Puts a value: locks the bucket at the primary and reads it, writes the replica, then the primary, and unlocks.
    pub(crate) fn put(&mut self, key: &[u8], value: &[u8]) -> anyhow::Result<()> {
        let home = self.home(key);
        let offset = self.directories[home.primary as usize].primary[home.bucket];
        let (lock, primary) = (At::offset(REGION, offset), At::offset(REGION, offset + LOCK as u64));
        let mut bucket = self.lock_and_read(home.primary, lock, primary)?;
        if let Err(error) = bucket.set(key, value) {
            let unlock = self.swap(home.primary, lock, (self.token, 0))?;
            self.finish(home.primary, &[unlock])?;
            self.was_ours(home.primary)?;
            return Err(error);
        }
        self.body.write_at(0, &bucket.to_bytes())?;
        let body = Piece::from(&self.body);
        // The replica first, and for certain: what a get has seen at the primary is never lost with it.
        let replica = self.directories[home.replica as usize].replica[home.bucket];
        let replica = At::offset(REGION, replica + LOCK as u64);
        let imm = u32::try_from(home.bucket)?;
        self.counters.messages += 1;
        let copy = self.start(home.replica, |broker, post| {
            broker.post_write(home.replica, body.clone(), replica, post.imm(imm))
        })?;
        self.finish(home.replica, &[copy])?;
        // From the moment in which this has arrived, gets see the new value. Work of one connection is done in its order,
        // so the lock is open only then.
        if self.tears {
            let half = Piece::new(&self.body, ..BODY / 2);
            self.perform(home.primary, |broker, post| {
                broker.post_write(home.primary, half.clone(), primary, post)
            })?;
        }
        let write = self.start(home.primary, |broker, post| {
            broker.post_write(home.primary, body.clone(), primary, post)
        })?;
        let unlock = self.swap(home.primary, lock, (self.token, 0))?;
        self.finish(home.primary, &[write, unlock])?;
        self.was_ours(home.primary)
    }

    /// Locks a bucket and reads it, in one trip if no other client has it.
    fn lock_and_read(&mut self, node: u32, lock: At, from: At) -> anyhow::Result<Bucket> {
        for _ in 0..TRIES {
            let swap = self.swap(node, lock, (0, self.token))?;
            let body = Piece::from(&self.body);
            let read = self.start(node, |broker, post| broker.post_read(node, body.clone(), from, post))?;
            self.finish(node, &[swap, read])?;
            if self.before.load_u64(0)? == 0 {
                // It was read after it was locked, so no client was writing it.
                return self.bucket()?.context("a locked bucket is damaged");
            }
            self.counters.contended += 1;
        }
        bail!("a bucket of node {node} stays locked; has its client died?")
    }

    /// Sees that a lock that was opened was ours.
    fn was_ours(&self, node: u32) -> anyhow::Result<()> {
        let before = self.before.load_u64(0)?;
        ensure!(before == self.token, "our lock at node {node} said {before}, not {}", self.token);
        Ok(())
    }

    /// A bucket as it is at the primary, or at the replica.
    pub(crate) fn read_bucket(&mut self, home: Home, replica: bool) -> anyhow::Result<Bucket> {
        let (node, offset) = match replica {
            true => (home.replica, self.directories[home.replica as usize].replica[home.bucket]),
            false => (home.primary, self.directories[home.primary as usize].primary[home.bucket]),
        };
        let (body, from) = (Piece::from(&self.body), At::offset(REGION, offset + LOCK as u64));
        for _ in 0..TRIES {
            self.perform(node, |broker, post| broker.post_read(node, body.clone(), from, post))?;
            if let Some(bucket) = self.bucket()? {
                return Ok(bucket);
            }
            self.counters.torn += 1;
        }
        bail!("bucket {} of node {node} is damaged: {TRIES} reads were torn", home.bucket)
    }

    /// What a node has counted: calls of its application, and damaged replicas.
    pub(crate) fn node_counters(&mut self, node: u32) -> anyhow::Result<[u64; 2]> {
        let offset = self.directories[node as usize].counters;
        let mut read = |offset| -> anyhow::Result<u64> {
            let word = Piece::from(&self.word);
            self.perform(node, |broker, post| {
                broker.post_read(node, word.clone(), At::offset(REGION, offset), post)
            })?;
            Ok(self.word.load_u64(0)?)
        };
        Ok([read(offset)?, read(offset + 8)?])
    }

    pub(crate) fn leave(self) -> anyhow::Result<()> {
        Ok(self.broker.leave(PATIENCE)?)
    }

    /// What was read last, unless it was torn.
    fn bucket(&self) -> anyhow::Result<Option<Bucket>> {
        let mut bytes = [0; BODY];
        self.body.read_at(0, &mut bytes)?;
        Ok(Bucket::from_bytes(&bytes))
    }

    fn swap(&mut self, node: u32, at: At, swap: (u64, u64)) -> anyhow::Result<u64> {
        let before = Piece::from(&self.before);
        self.start(node, |broker, post| broker.compare_swap(node, before.clone(), at, swap, post))
    }

    /// Posts work and waits until it is done.
    fn perform(
        &mut self,
        node: u32,
        post: impl Fn(&Broker, Post) -> Result<(), BrokerError>,
    ) -> anyhow::Result<()> {
        let id = self.start(node, post)?;
        self.finish(node, &[id])
    }

    /// Posts work under a new name.
    fn start(
        &mut self,
        node: u32,
        post: impl Fn(&Broker, Post) -> Result<(), BrokerError>,
    ) -> anyhow::Result<u64> {
        self.last_id += 1;
        let (id, broker) = (self.last_id, &self.broker);
        broker.with_room(node, PATIENCE, || post(broker, Post::new().id(id)))?;
        Ok(id)
    }

    /// Waits until work is done.
    fn finish(&self, node: u32, ids: &[u64]) -> anyhow::Result<()> {
        let (mut left, mut failed) = (ids.len(), None);
        while left > 0 {
            let told = self.broker.wait_sends(PATIENCE, |done| {
                left -= usize::from(ids.contains(&done.id));
                failed = failed.or(done.result.err());
            })?;
            ensure!(told > 0, "node {node} has not answered for {PATIENCE:?}");
        }
        failed.map_or(Ok(()), |failure| Err(failure).with_context(|| format!("work at node {node}")))
    }

    /// Asks a node where its directory is, and reads it.
    fn ask(&mut self, node: u32, pool: &Pool) -> anyhow::Result<Directory> {
        self.counters.messages += 1;
        self.broker.wait_send(node, b"where?", Post::new(), PATIENCE)?;
        let mut answer = None;
        while answer.is_none() {
            let told = self.broker.wait_receives(PATIENCE, |message| {
                if message.peer() == node {
                    answer = Some(message.to_vec());
                }
            })?;
            ensure!(told > 0, "no answer for {PATIENCE:?}");
        }
        let place = RemoteRegion::from_bytes(&answer.unwrap_or_default())?;
        let item = Arc::new(pool.alloc(0, usize::try_from(place.length)?)?);
        let into = Piece::from(&item);
        self.perform(node, |broker, post| broker.post_read(node, into.clone(), place, post))?;
        Directory::from_bytes(&item.to_vec(..)?)
    }
}
