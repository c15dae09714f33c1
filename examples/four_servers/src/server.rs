//! One server: a device, a pool that all its threads share, and a thread for each lane.

use std::collections::VecDeque;
use std::io::{BufRead, Write};
use std::sync::atomic::{AtomicU8, Ordering};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, anyhow, ensure};
use ferroce::broker::pool::Pool;
use ferroce::broker::{Broker, Change, Members, Secret};
use ferroce::{Access, Context, FaultPlan, MemoryRegion};

use crate::lane::{Changes, Lane};
use crate::packet::filling;

/// Threads of each server.
pub(crate) const LANES: u8 = 2;

/// The region that every server exposes to be read, and its bytes.
pub(crate) const BOARD: u32 = 7;
pub(crate) const BOARD_LEN: usize = 64 << 10;

/// Bytes of the memory that a pool deals out.
const POOL: usize = 32 << 20;

/// Options of `ferroce-four-servers server`.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Args {
    /// The number of this server
    #[arg(long, value_name = "N")]
    id: u32,
    /// All servers as HOST:PORT,HOST:PORT,...
    #[arg(long, value_name = "LIST")]
    members: Members,
    #[command(flatten)]
    pub(crate) settings: Settings,
}

/// What is the same for all servers.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Settings {
    /// Requests that are gathered for one doorbell
    #[arg(long, value_name = "N", default_value_t = 8, value_parser = clap::value_parser!(u32).range(1..))]
    pub(crate) batch: u32,
    /// Places of each ring
    #[arg(long, value_name = "N", default_value_t = 64, value_parser = clap::value_parser!(u32).range(2..=16_384))]
    pub(crate) ring: u32,
    /// Bytes of a place of the ring; longer messages are fetched by the receiver
    #[arg(long, value_name = "BYTES", default_value_t = 1024, value_parser = clap::value_parser!(u32).range(64..=4096))]
    pub(crate) message: u32,
    /// After how long a silent server is taken for dead
    #[arg(long, value_name = "MS", default_value_t = 1500, value_parser = clap::value_parser!(u64).range(100..=60_000))]
    pub(crate) patience: u64,
    /// Faults in all that is sent, such as loss=0.005,seed=1
    #[arg(long, value_name = "PLAN", value_parser = faults)]
    pub(crate) faults: Option<FaultPlan>,
}

fn faults(text: &str) -> Result<FaultPlan, String> {
    FaultPlan::parse(text).map_err(|error| error.to_string())
}

impl Settings {
    /// As arguments of another process.
    pub(crate) fn to_args(&self) -> Vec<String> {
        let mut args = Vec::new();
        let numbers = [
            ("batch", u64::from(self.batch)),
            ("ring", self.ring.into()),
            ("message", self.message.into()),
            ("patience", self.patience),
        ];
        for (name, value) in numbers {
            args.push(format!("--{name}={value}"));
        }
        if let Some(FaultPlan { loss, dup, reorder, corrupt, seed }) = self.faults {
            args.push(format!(
                "--faults=loss={loss},dup={dup},reorder={reorder},corrupt={corrupt},seed={seed}"
            ));
        }
        args
    }
}

/// What the process that started the servers wants, in the order in which it wants it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Order {
    /// Open requests as long as there is room.
    Work,
    /// Open no more, and say so when nothing is under way.
    Finish,
    /// Tell what was done.
    Report,
    /// Tell all others that it is over.
    Terminate,
    /// There is no such process any more.
    Gone,
}

impl Order {
    const ALL: [Self; 5] = [Self::Work, Self::Finish, Self::Report, Self::Terminate, Self::Gone];

    pub(crate) fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }
}

/// The order that holds now, for all lanes of a server.
#[derive(Debug, Default)]
pub(crate) struct Orders(AtomicU8);

impl Orders {
    pub(crate) fn get(&self) -> Order {
        Order::ALL[usize::from(self.0.load(Ordering::Relaxed))]
    }

    fn set(&self, order: Order) {
        self.0.store(order as u8, Ordering::Relaxed);
    }
}

/// Tells the process that started this one.
pub(crate) fn say(line: &str) {
    // If it is gone, standard input has ended as well, and the lanes see that.
    let mut out = std::io::stdout().lock();
    let _ = writeln!(out, "{line}").and_then(|()| out.flush());
}

pub(crate) fn run(args: &Args) -> anyhow::Result<()> {
    // The secret comes by standard input: arguments can be read by all users of a machine.
    let mut secret = String::new();
    std::io::stdin().read_line(&mut secret)?;
    let secret: Secret = secret.trim().try_into().context("the first line of input is no secret")?;
    let me = args.members.get(args.id).with_context(|| format!("server {} is not on the list", args.id))?;
    let mut device = Context::builder("ferroce_lo").address(me.address.ip()).engines(LANES.into());
    if let Some(plan) = args.settings.faults {
        // What befalls one server is not to befall all at the same time.
        device = device.faults(FaultPlan { seed: plan.seed.wrapping_add(100 * u64::from(args.id)), ..plan });
    }
    let context = device.open().with_context(|| format!("cannot open a device at {}", me.address.ip()))?;
    let domain = context.protection_domain()?;
    let all = Access::LOCAL_WRITE | Access::REMOTE_READ | Access::REMOTE_WRITE | Access::REMOTE_ATOMIC;
    let pool = Pool::builder().slab_size(64 << 10).allocate(&domain, POOL, all)?;
    let board = domain.allocate(BOARD_LEN, Access::LOCAL_WRITE | Access::REMOTE_READ)?;
    board.write_at(0, &filling(args.id.into(), BOARD_LEN))?;
    let board: Arc<MemoryRegion> = Arc::new(board);

    let orders = Arc::new(Orders::default());
    listen(&orders)?;
    let lanes: anyhow::Result<Vec<_>> = thread::scope(|scope| {
        let start = |lane| {
            let changes = Changes::default();
            let broker = Broker::builder(args.id, args.members.clone())
                .lane(lane)
                .device(&context, &domain)
                .secret(secret.clone())
                .ring(args.settings.ring)
                .batch(args.settings.batch)
                .max_message(args.settings.message)
                .patience(Duration::from_millis(args.settings.patience))
                .expose(BOARD, &board)
                .require(BOARD, BOARD_LEN as u64)
                .on_change(note(&changes));
            let (pool, orders) = (pool.clone(), Arc::clone(&orders));
            scope.spawn(move || -> anyhow::Result<()> {
                let lane = Lane::new(broker.start()?, lane, pool, changes)?;
                lane.run(&orders).inspect_err(|error| {
                    // The other lanes of this server would wait for ever.
                    eprintln!("ferroce-four-servers: server {}: {error:#}", args.id);
                    std::process::exit(1);
                })
            })
        };
        let lanes: Vec<_> = (0..LANES).map(start).collect();
        lanes.into_iter().map(|lane| lane.join().map_err(|_| anyhow!("a lane panicked"))?).collect()
    });
    lanes?;
    let usage = pool.usage();
    ensure!(usage.free_slabs == usage.slabs, "at the end the pool is not empty: {usage}");
    say("bye");
    Ok(())
}

fn note(changes: &Changes) -> impl Fn(&Broker, &Change) + Send + Sync + 'static {
    let changes: Arc<Mutex<VecDeque<Change>>> = Arc::clone(changes);
    move |_, change| changes.lock().unwrap_or_else(PoisonError::into_inner).push_back(*change)
}

/// Reads orders, one in each line, until there are no more.
fn listen(orders: &Arc<Orders>) -> anyhow::Result<()> {
    let orders = Arc::clone(orders);
    let read = move || {
        for line in std::io::stdin().lock().lines() {
            let Ok(line) = line else { break };
            if let Some(order) = Order::ALL.into_iter().find(|order| order.name() == line.trim()) {
                orders.set(order);
            }
        }
        orders.set(Order::Gone);
    };
    thread::Builder::new().name("orders".to_owned()).spawn(read).context("no thread for orders")?;
    Ok(())
}
