//! Three clients send to one server, which has one pool of receives for all of them.
//!
//! Run it with `cargo run -p ferroce --example shared_receive_queue`.

use std::collections::HashMap;
use std::error::Error;
use std::time::Duration;

use ferroce::{Access, AsyncEvent, Context, Service, WorkKind};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const CLIENTS: usize = 3;
const SLOTS: usize = 8;
const SLOT: usize = 64;
const WAIT: Duration = Duration::from_secs(10);

/// Runs both ends in this process.
pub fn main() -> Result<()> {
    let server = Context::builder("ferroce_lo").address([127, 0, 0, 3]).open()?;
    let pd = server.protection_domain()?;
    let cq = server.completion_queue(64)?;
    let pool = pd.allocate(SLOTS * SLOT, Access::LOCAL_WRITE)?;
    let srq = pd.shared_receive_queue(16, 1)?;
    for slot in 0..SLOTS {
        srq.receive(pool.slice(slot * SLOT..(slot + 1) * SLOT)).id(slot as u64).post()?;
    }
    // Tell us when fewer than four are left.
    srq.set_limit(4)?;

    let context = Context::builder("ferroce_lo").address([127, 0, 0, 2]).open()?;
    let client_pd = context.protection_domain()?;
    let sent = context.completion_queue(64)?;
    let mut connections = HashMap::new();
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        let qp = pd.queue_pair(Service::Rc).completion_queue(&cq).shared_receive_queue(&srq).build()?;
        let client = client_pd.queue_pair(Service::Rc).completion_queue(&sent).build()?;
        qp.connect(&client.local_address())?;
        client.connect(&qp.local_address())?;
        connections.insert(qp.qpn(), (number, qp));
        clients.push(client);
    }

    println!("{} receives wait for {CLIENTS} clients", srq.len());
    for round in 0..2 {
        for (number, client) in clients.iter().enumerate() {
            client.send_inline(format!("message {round} of client {number}").as_bytes()).post()?;
        }
    }
    for _ in 0..2 * CLIENTS {
        let done = *cq.wait(WAIT)?.result()?;
        assert_eq!(done.kind, WorkKind::Receive);
        let slot = usize::try_from(done.id)?;
        let text = pool.to_vec(slot * SLOT..slot * SLOT + done.byte_len as usize)?;
        let (number, _) = connections.get(&done.qpn).ok_or("a queue pair of ours")?;
        println!("slot {slot}, from client {number}: {:?}", String::from_utf8_lossy(&text));
    }

    // The device has other events too, of other objects.
    while server.events().wait(WAIT)? != AsyncEvent::SharedQueueLimit(srq.id()) {}
    println!("the queue ran low: {} receives are left, posting more", srq.len());
    for slot in 0..6 {
        srq.receive(pool.slice(slot * SLOT..(slot + 1) * SLOT)).id(slot as u64).post()?;
    }
    println!("{} receives wait", srq.len());
    Ok(())
}
