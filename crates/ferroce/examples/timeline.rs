//! What a work request is made of, what goes over the wire for it, and what its completion says: a SEND, a WRITE, a READ, two
//! atomics, and a WRITE that the peer refuses, each as the record of the device tells it.
//!
//! Run it with `cargo run -p ferroce --example timeline`.

use std::error::Error;
use std::time::Duration;

use ferroce::{Access, Context, Qpn, Recording, Rkey, Service};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const WAIT: Duration = Duration::from_secs(10);

/// The time-line of some operations, and the numbers in it that are others in each run.
pub struct Told {
    /// A block for each work request.
    pub text: String,
    /// Queue pairs: the one that asks, and the one that answers.
    pub qpns: [Qpn; 2],
    /// Regions by key and first address: ours, the peer's, and one of the peer that can only be read.
    pub regions: [(Rkey, u64); 3],
}

/// Does one of each, from one device to another.
pub fn run() -> Result<Told> {
    let client = Context::builder("ferroce_lo").address([127, 0, 0, 82]).open()?;
    let server = Context::builder("ferroce_lo").address([127, 0, 0, 83]).open()?;
    let recording = Recording::of(&[&client, &server])?;

    let (pd, cq) = (client.protection_domain()?, client.completion_queue(16)?);
    let (there, answers) = (server.protection_domain()?, server.completion_queue(16)?);
    let qp = pd.queue_pair(Service::Rc).completion_queue(&cq).build()?;
    let peer = there.queue_pair(Service::Rc).completion_queue(&answers).build()?;
    qp.connect(&peer.local_address())?;
    peer.connect(&qp.local_address())?;

    let ours = pd.allocate(4096, Access::LOCAL_WRITE)?;
    let open = Access::LOCAL_WRITE | Access::REMOTE_WRITE | Access::REMOTE_READ | Access::REMOTE_ATOMIC;
    let theirs = there.allocate(4096, open)?;
    let closed = there.allocate(4096, Access::LOCAL_WRITE | Access::REMOTE_READ)?;

    peer.receive(theirs.slice(..64)).id(0x10).post()?;
    qp.send(ours.slice(..64)).id(1).solicited().post()?;
    cq.wait(WAIT)?.result()?;
    answers.wait(WAIT)?.result()?;
    qp.write(ours.slice(..), theirs.remote()).id(2).post()?;
    cq.wait(WAIT)?.result()?;
    qp.read(ours.slice(..2048), theirs.remote().slice(..2048)).id(3).post()?;
    cq.wait(WAIT)?.result()?;
    qp.compare_swap(ours.slice(..8), theirs.remote(), 0, 42).id(4).post()?;
    cq.wait(WAIT)?.result()?;
    qp.fetch_add(ours.slice(..8), theirs.remote(), 1).id(5).post()?;
    cq.wait(WAIT)?.result()?;
    // This memory can be read, and not written.
    qp.write(ours.slice(..64), closed.remote()).id(6).post()?;
    assert!(cq.wait(WAIT)?.result().is_err(), "the peer refuses");

    let text = recording.text()?;
    let of = |region: &ferroce::MemoryRegion| (region.rkey(), region.address());
    Ok(Told { text, qpns: [qp.qpn(), peer.qpn()], regions: [of(&ours), of(&theirs), of(&closed)] })
}

/// Prints it.
pub fn main() -> Result<()> {
    print!("{}", run()?.text);
    Ok(())
}
