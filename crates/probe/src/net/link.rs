//! A queue pair for probes, with slots for what arrives.

use std::net::IpAddr;
use std::time::Duration;

use ferroce_verbs::{
    Access, AddressHandle, Completion, CompletionQueue, Context, DatagramHeader, MemoryRegion, PathPolicy,
    ProtectionDomain, QueuePair, Service, Status, WorkKind,
};

use super::QKEY;
use super::clock::ProbeClock;
use super::end_error::ProbeEndError;
use crate::packet::Packet;
use crate::report::Peer;
use crate::stamp::Stamp;

/// Sends whose completions have not come.
pub(super) const SENDS: u32 = 512;

/// Datagrams that may arrive while the program does something else.
const RECEIVES: u32 = 1024;

/// Bytes of a slot: a header, and the longest datagram, so that no foreign one breaks the queue pair.
const SLOT: usize = DatagramHeader::LEN + 4096;

/// Bytes that are looked at: more than a probe has, so that what is longer is seen to be so.
const LOOK: usize = DatagramHeader::LEN + Packet::LEN + 8;

/// Completions that are taken off at once.
const BATCH: usize = 32;

/// Times that a turn looks for more before it says what it has: then the caller gets its turn.
const ROUNDS: usize = 64;

#[derive(Debug)]
pub(super) struct Link<C> {
    pub(super) qp: QueuePair,
    pub(super) pd: ProtectionDomain,
    pub(super) clock: C,
    cq: CompletionQueue,
    memory: MemoryRegion,
    pub(super) gid_index: usize,
    /// Sends whose completions have not come.
    pub(super) under_way: u32,
}

/// What a completion is to a prober or a responder.
#[derive(Debug)]
pub(super) enum News {
    /// A send is done, well or not.
    Sent(Completion),
    /// A datagram came.
    Came(Completion, Datagram),
}

/// A datagram that came.
#[derive(Clone, Copy, Debug)]
pub(super) struct Datagram {
    pub(super) header: DatagramHeader,
    pub(super) from: Peer,
    bytes: [u8; LOOK],
    len: usize,
}

impl Datagram {
    /// What it holds; of a long one only the beginning, which is too long still.
    pub(super) fn bytes(&self) -> &[u8] {
        &self.bytes[DatagramHeader::LEN..self.len]
    }
}

impl<C: ProbeClock> Link<C> {
    /// A queue pair on this address of a card, whose times are those of a clock.
    pub(super) fn open(context: &Context, address: IpAddr, clock: C) -> Result<Self, ProbeEndError> {
        let pd = context.protection_domain()?;
        let cq = context.completion_queue(SENDS + RECEIVES)?;
        let qp = pd
            .queue_pair(Service::Ud)
            .address(address)
            .send_queue(&cq, SENDS)
            .receive_queue(&cq, RECEIVES)
            .path(PathPolicy::Forbid)
            .stamps()
            .build()?;
        let memory = pd.allocate(RECEIVES as usize * SLOT, Access::LOCAL_WRITE)?;
        let gid_index = context.gid_index(address).unwrap_or(0);
        let link = Self { qp, pd, clock, cq, memory, gid_index, under_way: 0 };
        for slot in 0..u64::from(RECEIVES) {
            link.receive(slot)?;
        }
        link.qp.activate(QKEY)?;
        Ok(link)
    }

    /// Sends a packet.
    pub(super) fn send(
        &mut self,
        to: &AddressHandle,
        qpn: u32,
        id: u64,
        packet: &Packet,
    ) -> Result<(), ProbeEndError> {
        if self.under_way >= SENDS {
            return Err(ProbeEndError::Busy { under_way: self.under_way });
        }
        let bytes = packet.emit();
        let work = self.qp.send_inline_to(to, ferroce_verbs::Qpn::new(qpn), QKEY, &bytes);
        work.id(id).post().map_err(ProbeEndError::Send)?;
        self.under_way += 1;
        Ok(())
    }

    /// Takes in everything that is there, each piece with the time at which it is handled.
    pub(super) fn turn(
        &mut self,
        mut take: impl FnMut(&mut Self, News, Stamp) -> Result<(), ProbeEndError>,
    ) -> Result<(), ProbeEndError> {
        let mut found = [Completion::EMPTY; BATCH];
        for _ in 0..ROUNDS {
            let count = self.cq.poll(&mut found);
            if count == 0 {
                break;
            }
            for done in &found[..count] {
                let now = self.clock.now();
                if let Some(news) = self.read(done)? {
                    take(self, news, now)?;
                }
            }
        }
        Ok(())
    }

    /// Sleeps until something is to be taken in, or the time is over.
    pub(super) fn sleep(&self, limit: Duration) {
        CompletionQueue::sleep_for_any([&self.cq], limit, |_| true);
    }

    fn read(&mut self, done: &Completion) -> Result<Option<News>, ProbeEndError> {
        if done.kind != WorkKind::Receive {
            self.under_way = self.under_way.saturating_sub(1);
            return match done.status {
                Status::Flushed => Err(ProbeEndError::Broken { status: done.status }),
                _ => Ok(Some(News::Sent(*done))),
            };
        }
        if done.status != Status::Success {
            return Err(ProbeEndError::Broken { status: done.status });
        }
        let datagram = self.datagram(done);
        self.receive(done.id)?;
        Ok(datagram.map(|datagram| News::Came(*done, datagram)))
    }

    fn datagram(&self, done: &Completion) -> Option<Datagram> {
        let mut bytes = [0; LOOK];
        let len = usize::try_from(done.byte_len).ok()?.min(LOOK);
        let offset = usize::try_from(done.id).ok()? * SLOT;
        self.memory.read_at(offset, &mut bytes[..len]).ok()?;
        let header = DatagramHeader::parse(&bytes[..len]).ok()?;
        let from = Peer { address: header.source.ip(), qpn: done.source_qp?.get() };
        Some(Datagram { header, from, bytes, len })
    }

    fn receive(&self, slot: u64) -> Result<(), ProbeEndError> {
        let start = usize::try_from(slot).unwrap_or_default() * SLOT;
        let place = self.memory.slice(start..start + SLOT);
        self.qp.receive(place).id(slot).post().map_err(ProbeEndError::Receive)
    }
}
