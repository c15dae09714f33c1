//! One end: a datagram queue pair with slots for what arrives and for what is sent.

use std::net::IpAddr;

use anyhow::Context as _;
use ferroce::{
    Access, AddressHandle, AddressVector, Completion, CompletionQueue, Context, DatagramHeader, FaultPlan,
    MemoryRegion, ProtectionDomain, QKey, Qpn, QueuePair, Service, Time, WaitError, WorkError,
};

use crate::packet::Packet;

/// A datagram that does not show it is dropped.
const QKEY: QKey = QKey(0x1111_1111);

/// Datagrams that may wait to be taken off, and as many that may be under way.
const SLOTS: u32 = 256;

/// Bytes of a slot for what arrives: 40 that tell where it came from, and the packet.
const INBOX_SLOT: usize = DatagramHeader::LEN + Packet::LEN;

/// Names of sends have this bit; names of receives are slots.
const SENT: u64 = 1 << 63;

/// A device, as both roles open it.
#[derive(Clone, Debug, clap::Args)]
pub(crate) struct Place {
    /// The address of the network card
    #[arg(long, value_name = "ADDRESS")]
    pub(crate) address: IpAddr,
    /// The device
    #[arg(long, value_name = "NAME", default_value = "ferroce_lo")]
    device: String,
    /// Faults in all that is sent, such as loss=0.1,seed=1
    #[arg(long, value_name = "PLAN", value_parser = faults)]
    faults: Option<FaultPlan>,
}

fn faults(text: &str) -> Result<FaultPlan, String> {
    FaultPlan::parse(text).map_err(|error| error.to_string())
}

/// A queue pair that sends and receives packets.
pub(crate) struct End {
    pub(crate) context: Context,
    domain: ProtectionDomain,
    queue: CompletionQueue,
    queue_pair: QueuePair,
    inbox: MemoryRegion,
    outbox: MemoryRegion,
    sent: u64,
}

/// What happened.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Happened {
    /// The packet with this number has left.
    Sent { number: u64, time: Time },
    /// A packet came.
    Arrived(Arrival),
    /// A datagram came that is no packet of ours.
    Strange,
    /// Work failed.
    Failed(WorkError),
}

/// A packet that came, and what is known of its way.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Arrival {
    pub(crate) packet: Packet,
    pub(crate) header: DatagramHeader,
    pub(crate) from: Qpn,
    pub(crate) time: Time,
}

impl End {
    pub(crate) fn open(place: &Place) -> anyhow::Result<Self> {
        let mut builder = Context::builder(&place.device).address(place.address);
        if let Some(plan) = place.faults {
            builder = builder.faults(plan);
        }
        let context = builder.open().with_context(|| format!("cannot open a device at {}", place.address))?;
        let domain = context.protection_domain()?;
        let queue = context.completion_queue(2 * SLOTS)?;
        let queue_pair =
            domain.queue_pair(Service::Ud).send_queue(&queue, SLOTS).receive_queue(&queue, SLOTS);
        let queue_pair = queue_pair.build()?;
        let slots = SLOTS as usize;
        let inbox = domain.allocate(slots * INBOX_SLOT, Access::LOCAL_WRITE)?;
        let outbox = domain.allocate(slots * Packet::LEN, Access::LOCAL_WRITE)?;
        let mut receives = queue_pair.receive_batch();
        for slot in 0..slots {
            receives.add(queue_pair.receive(inbox.slice(in_slot(slot))).id(slot as u64));
        }
        receives.post()?;
        queue_pair.activate(QKEY)?;
        Ok(Self { context, domain, queue, queue_pair, inbox, outbox, sent: 0 })
    }

    pub(crate) fn qpn(&self) -> Qpn {
        self.queue_pair.qpn()
    }

    pub(crate) fn handle(&self, to: &AddressVector) -> anyhow::Result<AddressHandle> {
        Ok(self.domain.address_handle(to)?)
    }

    /// The number that the next packet will have.
    pub(crate) const fn next_number(&self) -> u64 {
        self.sent
    }

    /// Posts a packet; the number under which its departure is told.
    pub(crate) fn send(&mut self, to: &AddressHandle, qpn: Qpn, packet: &Packet) -> anyhow::Result<u64> {
        let number = self.sent;
        // Sends complete in order, and no more are under way than there are slots.
        let start = usize::try_from(number % u64::from(SLOTS))? * Packet::LEN;
        self.outbox.write_at(start, &packet.emit())?;
        let bytes = self.outbox.slice(start..start + Packet::LEN);
        self.queue_pair.send_to(to, qpn, QKEY, bytes).id(SENT | number).post()?;
        self.sent += 1;
        Ok(number)
    }

    /// Waits for something to happen until a time; false if it is over.
    pub(crate) fn wait(&self, until: Time, happened: &mut Vec<Happened>) -> anyhow::Result<bool> {
        let mut done = [Completion::EMPTY; 32];
        let count = match self.queue.wait_into(&mut done, ferroce::time::until(until)) {
            Ok(count) => count,
            Err(WaitError::TimedOut(_)) => return Ok(false),
            Err(error) => return Err(error.into()),
        };
        for done in &done[..count] {
            happened.push(self.look(done)?);
        }
        Ok(true)
    }

    fn look(&self, done: &Completion) -> anyhow::Result<Happened> {
        if let Err(error) = done.result() {
            return Ok(Happened::Failed(error));
        }
        if done.id & SENT != 0 {
            return Ok(Happened::Sent { number: done.id & !SENT, time: done.time });
        }
        let slot = usize::try_from(done.id)?;
        let range = in_slot(slot);
        let header = DatagramHeader::read(&self.inbox, range.start);
        let end = range.start + usize::try_from(done.byte_len)?;
        let packet = self.inbox.to_vec(range.start + DatagramHeader::LEN..end)?;
        // What it says has been copied, so the slot can be used again.
        self.queue_pair.receive(self.inbox.slice(range)).id(done.id).post()?;
        Ok(match (Packet::parse(&packet), header, done.source_qp) {
            (Some(packet), Ok(header), Some(from)) => {
                Happened::Arrived(Arrival { packet, header, from, time: done.time })
            }
            _ => Happened::Strange,
        })
    }
}

const fn in_slot(slot: usize) -> std::ops::Range<usize> {
    slot * INBOX_SLOT..(slot + 1) * INBOX_SLOT
}
