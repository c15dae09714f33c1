//! Datagrams: no connection, and each one tells where it came from.
//!
//! Run it with `cargo run -p ferroce --example ud_datagrams`.

use std::error::Error;
use std::time::Duration;

use ferroce::{
    Access, AddressVector, Completion, CompletionQueue, Context, DatagramHeader, MemoryRegion,
    ProtectionDomain, QKey, QueuePair, ReplyPort, Service, WorkKind,
};

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

/// Both ends must know it: a datagram that shows another one is dropped.
const QKEY: QKey = QKey(0x1122_3344);

struct End {
    pd: ProtectionDomain,
    cq: CompletionQueue,
    qp: QueuePair,
    inbox: MemoryRegion,
}

impl End {
    fn open(address: [u8; 4]) -> Result<Self> {
        let context = Context::builder("ferroce_lo").address(address).open()?;
        let pd = context.protection_domain()?;
        let cq = context.completion_queue(64)?;
        let qp = pd.queue_pair(Service::Ud).completion_queue(&cq).build()?;
        // A datagram needs 40 bytes more than its data: a header comes before it.
        let inbox = pd.allocate(DatagramHeader::LEN + 1024, Access::LOCAL_WRITE)?;
        qp.receive(&inbox).post()?;
        qp.activate(QKEY)?;
        Ok(Self { pd, cq, qp, inbox })
    }

    /// Waits for a datagram and shows it.
    fn receive(&self, name: &str) -> Result<(Completion, DatagramHeader)> {
        loop {
            let done = *self.cq.wait(Duration::from_secs(10))?.result()?;
            if done.kind == WorkKind::Receive {
                let header = DatagramHeader::read(&self.inbox, 0)?;
                let data = self.inbox.to_vec(DatagramHeader::LEN..done.byte_len as usize)?;
                println!("{name} got {:?} in {} bytes", String::from_utf8_lossy(&data), done.byte_len);
                println!("  from {} to {}, hop limit {}", header.source, header.dest, header.hop_limit);
                return Ok((done, header));
            }
        }
    }
}

/// Runs both ends in this process.
pub fn main() -> Result<()> {
    let (ann, bob) = (End::open([127, 0, 0, 2])?, End::open([127, 0, 0, 3])?);

    let to_bob = ann.pd.address_handle(&AddressVector::new(bob.qp.local_address().gid, 0))?;
    ann.qp.send_inline_to(&to_bob, bob.qp.qpn(), QKEY, b"is Bob there?").post()?;
    let (done, header) = bob.receive("bob")?;

    // The header and the completion are all that an answer needs.
    let back = bob.qp.reply_to(&done, &header, ReplyPort::Usual)?;
    bob.qp.send_inline_to(&back.address, back.qpn, back.qkey, b"only bob").post()?;
    let (_, header) = ann.receive("ann")?;
    assert_eq!(header.source, bob.qp.local_address().gid);

    // A wrong Q_Key is no error for the sender; the receiver drops the datagram.
    while ann.qp.counters().wrong_qkey == 0 {
        bob.qp.send_inline_to(&back.address, back.qpn, QKey(1), b"with the wrong key").post()?;
        bob.cq.wait(Duration::from_secs(10))?;
    }
    println!("ann dropped a datagram with the wrong Q_Key");
    Ok(())
}
