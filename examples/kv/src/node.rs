//! A node: memory that clients read and write, and a thread that is told of replicas.

use std::io::{self, BufRead, Write};
use std::sync::{Condvar, Mutex, MutexGuard, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{anyhow, ensure};
use ferroce::Access;
use ferroce::broker::pool::{Item, Pool};
use ferroce::broker::{Broker, Message, Post};

use crate::layout::{BODY, BUCKET, Bucket, Directory, LOCK, REGION};
use crate::member::{Base, Place, SLAB};

/// Options of `ferroce-kv node`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    #[command(flatten)]
    place: Place,
    /// Buckets of four keys that this node is the primary of; the same for all nodes
    #[arg(long, value_name = "N", default_value_t = 256, value_parser = buckets)]
    buckets: usize,
}

/// A directory must fit into a slab.
const MOST_BUCKETS: usize = (SLAB / 8 - 3) / 2;

pub(crate) fn buckets(text: &str) -> Result<usize, String> {
    let wrong = || format!("{text:?} is no number from 1 to {MOST_BUCKETS}");
    let number: usize = text.parse().map_err(|_| wrong())?;
    if (1..=MOST_BUCKETS).contains(&number) { Ok(number) } else { Err(wrong()) }
}

/// The pool's partitions.
const PRIMARY: u64 = 1;
const REPLICA: u64 = 2;
const OFFICE: u64 = 3;

/// Buckets in a slab: their class is a power of two.
const PER_SLAB: usize = SLAB / BUCKET.next_power_of_two();

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    ensure!(args.place.id < args.place.nodes, "member {} is a client: nodes come first", args.place.id);
    let access = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    // Primary buckets, replicas, the directory and the counters.
    let slabs = 2 * args.buckets.div_ceil(PER_SLAB) + 2;
    // Two engines serve clients at the same time, so a READ can meet a WRITE halfway.
    let base = Base::open(&args.place, slabs, access, 2)?;
    let node = Node::new(&base.pool, args.buckets)?;
    let broker = base.broker(&args.place).expose(REGION, &base.region).start()?;
    let switch = Switch::default();
    thread::scope(|scope| {
        let serving = scope.spawn(|| serve(&broker, &node, &switch));
        // What the process that started us writes: it may put the application's thread to sleep, to show that
        // gets go on.
        for line in io::stdin().lock().lines() {
            match line?.as_str() {
                "sleep" => switch.set(Wanted::Asleep),
                "wake" => switch.set(Wanted::Awake),
                other => eprintln!("ferroce-kv: node {}: {other:?} means nothing", args.place.id),
            }
        }
        switch.set(Wanted::Gone);
        serving.join().map_err(|_| anyhow!("the thread of node {} panicked", args.place.id))?
    })?;
    // Clients are gone, so there is nothing to wait for.
    drop(broker);
    Ok(())
}

/// The memory of a node.
struct Node {
    replicas: Vec<Item>,
    /// They stay where they are, and no thread here looks at them.
    _primaries: Vec<Item>,
    directory: Item,
    counters: Item,
}

impl Node {
    fn new(pool: &Pool, buckets: usize) -> anyhow::Result<Self> {
        let empty = Bucket::default().to_bytes();
        let make = |key| -> anyhow::Result<Vec<Item>> {
            let bucket = |_| {
                let item = pool.alloc_zeroed(key, BUCKET)?;
                item.write_at(LOCK, &empty)?;
                Ok(item)
            };
            (0..buckets).map(bucket).collect()
        };
        let (primaries, replicas) = (make(PRIMARY)?, make(REPLICA)?);
        let counters = pool.alloc_zeroed(OFFICE, 16)?;
        let offsets = |items: &[Item]| items.iter().map(|item| item.offset() as u64).collect();
        let places = Directory {
            counters: counters.offset() as u64,
            primary: offsets(&primaries),
            replica: offsets(&replicas),
        };
        let directory = pool.alloc(OFFICE, Directory::len(buckets))?;
        directory.write_at(0, &places.to_bytes())?;
        Ok(Self { replicas, _primaries: primaries, directory, counters })
    }

    /// All the application code that a node has: it tells a client where things are, and looks at replicas.
    fn handle(&self, broker: &Broker, message: &Message<'_>) -> anyhow::Result<()> {
        self.counters.fetch_add_u64(0, 1)?;
        if !message.is_write() {
            let answer = self.directory.remote().to_bytes();
            broker.wait_send(message.peer(), &answer, Post::new(), Duration::from_secs(10))?;
            return Ok(());
        }
        let bucket = message.imm().and_then(|imm| self.replicas.get(usize::try_from(imm).ok()?));
        let is_whole = bucket.is_some_and(|item| (0..1000).any(|_| is_whole(item)));
        if !is_whole {
            self.counters.fetch_add_u64(8, 1)?;
        }
        Ok(())
    }
}

/// Whether a replica can be read. Another put may be writing it now, so it is worth another look if not.
fn is_whole(replica: &Item) -> bool {
    let mut body = [0; BODY];
    replica.read_at(LOCK, &mut body).is_ok() && Bucket::from_bytes(&body).is_some()
}

/// The thread of the application.
fn serve(broker: &Broker, node: &Node, switch: &Switch) -> anyhow::Result<()> {
    let mut failed = None;
    while failed.is_none() && switch.may_go_on() {
        broker.wait_receives(Duration::from_millis(50), |message| {
            if let Err(error) = node.handle(broker, &message) {
                failed = Some(error);
            }
        })?;
    }
    failed.map_or(Ok(()), Err)
}

/// What the application's thread is to do.
#[derive(Default)]
struct Switch {
    wanted: Mutex<Wanted>,
    changed: Condvar,
}

#[derive(Clone, Copy, Default, PartialEq, Eq)]
enum Wanted {
    #[default]
    Awake,
    Asleep,
    Gone,
}

impl Switch {
    fn set(&self, wanted: Wanted) {
        *self.lock() = wanted;
        self.changed.notify_all();
    }

    /// Sleeps as long as it is asked to, and says so; whether there is more to do then.
    fn may_go_on(&self) -> bool {
        let mut wanted = self.lock();
        if *wanted == Wanted::Asleep {
            // The process that asked for it waits for this line.
            println!("asleep");
            let _ = io::stdout().flush();
        }
        while *wanted == Wanted::Asleep {
            wanted = self.changed.wait(wanted).unwrap_or_else(PoisonError::into_inner);
        }
        *wanted != Wanted::Gone
    }

    fn lock(&self) -> MutexGuard<'_, Wanted> {
        self.wanted.lock().unwrap_or_else(PoisonError::into_inner)
    }
}
