//! A counter in one process's memory that others add to: its owner's program does nothing at all.
//!
//! Run it with `cargo run -p ferroce --example fetch_add_counter`.

use std::collections::BTreeSet;
use std::error::Error;
use std::thread;
use std::time::Duration;

use ferroce::{Access, Context, QueuePair, RemoteRegion, Service};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const WORKERS: usize = 4;
const TICKETS: usize = 250;
const WAIT: Duration = Duration::from_secs(10);

/// Draws tickets from the counter: no two draws give the same.
fn draw(context: &Context, counter: RemoteRegion, owner: &QueuePair) -> Result<Vec<u64>> {
    let pd = context.protection_domain()?;
    let cq = context.completion_queue(16)?;
    let qp = pd.queue_pair(Service::Rc).completion_queue(&cq).build()?;
    owner.connect(&qp.local_address())?;
    qp.connect(&owner.local_address())?;
    let before = pd.allocate(8, Access::LOCAL_WRITE)?;
    let mut tickets = Vec::with_capacity(TICKETS);
    for _ in 0..TICKETS {
        qp.fetch_add(&before, counter, 1).post()?;
        cq.wait(WAIT)?.result()?;
        tickets.push(before.load_u64(0)?);
    }
    Ok(tickets)
}

/// Runs both ends in this process.
pub fn main() -> Result<()> {
    let owner = Context::builder("ferroce_lo").address([127, 0, 0, 3]).open()?;
    let workers = Context::builder("ferroce_lo").address([127, 0, 0, 2]).open()?;
    let pd = owner.protection_domain()?;
    let unused = owner.completion_queue(16)?;
    let counter = pd.allocate(8, Access::LOCAL_WRITE | Access::REMOTE_ATOMIC)?;
    let ends = (0..WORKERS).map(|_| pd.queue_pair(Service::Rc).completion_queue(&unused).build());
    let ends: Vec<QueuePair> = ends.collect::<std::result::Result<_, _>>()?;

    let (workers, remote) = (&workers, counter.remote());
    let drawn: Vec<Result<Vec<u64>>> = thread::scope(|scope| {
        let start = |end| scope.spawn(move || draw(workers, remote, end));
        let threads: Vec<_> = ends.iter().map(start).collect();
        let panicked = || Err("a worker panicked".into());
        threads.into_iter().map(|thread| thread.join().unwrap_or_else(|_| panicked())).collect()
    });

    let mut all = BTreeSet::new();
    for (worker, tickets) in drawn.into_iter().enumerate() {
        let tickets = tickets?;
        println!("worker {worker} drew {} tickets, the last was {:?}", tickets.len(), tickets.last());
        all.extend(tickets);
    }
    println!("{} different tickets, and the counter is {}", all.len(), counter.load_u64(0)?);
    assert!(all.into_iter().eq(0..(WORKERS * TICKETS) as u64), "each ticket was drawn once");
    assert!(unused.poll_one().is_none(), "the owner has not heard of any of it");
    Ok(())
}
