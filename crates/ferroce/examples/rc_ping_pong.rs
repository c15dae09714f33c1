//! A message goes there and back, 1000 times, over a reliable connection between two addresses.
//!
//! Run it with `cargo run -p ferroce --example rc_ping_pong`.

use std::error::Error;
use std::thread;
use std::time::Duration;

use ferroce::{Access, CompletionQueue, Context, MemoryRegion, QpAddress, QueuePair, Service, WorkKind};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const ROUNDS: u32 = 1000;
const SIZE: usize = 64;

/// One end: a queue pair, where it completes, and memory for one message in and one out.
struct End {
    qp: QueuePair,
    cq: CompletionQueue,
    memory: MemoryRegion,
}

impl End {
    fn open(address: [u8; 4]) -> Result<Self> {
        let context = Context::builder("ferroce_lo").address(address).open()?;
        let pd = context.protection_domain()?;
        let cq = context.completion_queue(64)?;
        let qp = pd.queue_pair(Service::Rc).completion_queue(&cq).build()?;
        let memory = pd.allocate(2 * SIZE, Access::LOCAL_WRITE)?;
        // A receive must wait before the first message comes.
        qp.receive(memory.slice(..SIZE)).post()?;
        Ok(Self { qp, cq, memory })
    }

    fn send(&self, round: u32) -> Result<()> {
        self.memory.write_at(SIZE, &round.to_be_bytes())?;
        Ok(self.qp.send(self.memory.slice(SIZE..)).post()?)
    }

    /// Waits for a message, and posts the receive for the next.
    fn receive(&self) -> Result<u32> {
        while self.cq.wait(Duration::from_secs(10))?.result()?.kind != WorkKind::Receive {}
        let mut round = [0; 4];
        self.memory.read_at(0, &mut round)?;
        self.qp.receive(self.memory.slice(..SIZE)).post()?;
        Ok(u32::from_be_bytes(round))
    }
}

/// Answers every message with the next number.
fn pong(end: &End, peer: &QpAddress) -> Result<()> {
    end.qp.connect(peer)?;
    (0..ROUNDS).try_for_each(|_| end.send(end.receive()? + 1))
}

/// Runs both ends in this process.
pub fn main() -> Result<()> {
    let (ping, other) = (End::open([127, 0, 0, 2])?, End::open([127, 0, 0, 3])?);
    let (ours, theirs) = (ping.qp.local_address(), other.qp.local_address());
    println!("{ours} <-> {theirs}");
    let answering = thread::spawn(move || pong(&other, &ours).map(|()| other));
    ping.qp.connect(&theirs)?;
    let mut number = 0;
    for _ in 0..ROUNDS {
        ping.send(number)?;
        number = ping.receive()?;
    }
    let _other = answering.join().map_err(|_| "the other end panicked")??;
    let counters = ping.qp.counters();
    println!("{number} rounds over {}", ping.qp.path().ok_or("not connected")?);
    println!("{} requests sent, {} of them again", counters.requests_sent, counters.retransmitted);
    assert_eq!(number, ROUNDS);
    Ok(())
}
