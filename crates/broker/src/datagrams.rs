//! Datagrams to all members: quick, small, and without a promise.

use std::sync::Mutex;

use ferroce_verbs::{
    Access, AddressHandle, AddressVector, BatchError, Completion, CompletionQueue, Context, DatagramHeader,
    Gid, MemoryRegion, ProtectionDomain, QKey, Qpn, QueuePair, Service, Status,
};

use crate::conn::Conn;
use crate::error::{BrokerError, BrokerSetupError, Full};
use crate::lock;
use crate::receiving::call;
use crate::sending::Look;
use crate::settings::Settings;

/// A datagram, as it was taken off.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Datagram {
    /// The member that sent it.
    pub peer: u32,
    /// The four bytes that its sender added, if it did.
    pub imm: Option<u32>,
    /// What it says.
    pub bytes: Vec<u8>,
}

/// The datagram queue pair of a broker.
pub(crate) struct Datagrams {
    qp: QueuePair,
    qkey: QKey,
    send_queue: CompletionQueue,
    receive_queue: CompletionQueue,
    domain: ProtectionDomain,
    gid_index: usize,
    /// Bytes of the longest datagram.
    longest: usize,
    outgoing: MemoryRegion,
    incoming: MemoryRegion,
    sending: Mutex<Sending>,
    receiving: Mutex<Receiving>,
}

#[derive(Default)]
struct Sending {
    free: Vec<u32>,
    /// Requests that are posted. The last one of a datagram gives back its place.
    posted: u32,
    depth: u32,
    handles: Vec<(u32, AddressHandle)>,
}

#[derive(Default)]
struct Receiving {
    strangers: u64,
}

/// Datagrams under way, and datagrams that wait to be polled: later ones are lost.
const SENDS: u32 = 16;
const RECEIVES: u32 = 128;

/// Where a member takes datagrams.
pub(crate) struct Recipient {
    pub(crate) peer: u32,
    pub(crate) gid: Gid,
    pub(crate) qpn: Qpn,
    pub(crate) qkey: QKey,
}

impl Recipient {
    pub(crate) fn of(peer: u32, conn: &Conn) -> Self {
        let (qpn, qkey) = conn.peer.datagrams;
        let gid = conn.established.peer().ip().into();
        Self { peer, gid, qpn: Qpn::new(qpn), qkey: QKey(qkey) }
    }
}

impl Datagrams {
    pub(crate) fn new(
        context: &Context,
        domain: &ProtectionDomain,
        settings: &Settings,
        peers: usize,
    ) -> Result<Self, BrokerSetupError> {
        let depth = SENDS * u32::try_from(peers.max(1)).unwrap_or(u32::MAX);
        let send_queue = context.completion_queue(depth)?;
        let receive_queue = context.completion_queue(RECEIVES)?;
        let address = settings.me.address.ip();
        let qp = domain
            .queue_pair(Service::Ud)
            .send_queue(&send_queue, depth)
            .receive_queue(&receive_queue, RECEIVES)
            .max_sge(1)
            .signal_all(false)
            .address(address)
            .build()?;
        let qkey = context.random_qkey();
        let longest = context.port().active_mtu.bytes();
        let slot = longest + DatagramHeader::LEN;
        let incoming = domain.allocate_or_reuse(slot * RECEIVES as usize, Access::LOCAL_WRITE)?;
        let outgoing = domain.allocate_or_reuse(longest * SENDS as usize, Access::empty())?;
        qp.activate(qkey)?;
        let sending = Sending { free: (0..SENDS).collect(), depth, ..Sending::default() };
        let datagrams = Self {
            qp,
            qkey,
            send_queue,
            receive_queue,
            domain: domain.clone(),
            gid_index: context.gid_index(address).unwrap_or(0),
            longest,
            outgoing,
            incoming,
            sending: Mutex::new(sending),
            receiving: Mutex::default(),
        };
        for place in 0..RECEIVES {
            datagrams.post_receive(u64::from(place))?;
        }
        Ok(datagrams)
    }

    /// What others must know of it.
    pub(crate) fn address(&self) -> (u32, u32) {
        (self.qp.qpn().get(), self.qkey.0)
    }

    pub(crate) const fn longest(&self) -> usize {
        self.longest
    }

    pub(crate) const fn receive_queue(&self) -> &CompletionQueue {
        &self.receive_queue
    }

    /// Sends one datagram to each of these, with one doorbell.
    pub(crate) fn send(
        &self,
        to: &[Recipient],
        bytes: &[u8],
        imm: Option<u32>,
        me: u32,
    ) -> Result<(), BrokerError> {
        if bytes.len() > self.longest {
            return Err(BrokerError::TooLong { peer: me, given: bytes.len(), allowed: self.longest });
        }
        let Some(last) = to.len().checked_sub(1) else { return Ok(()) };
        let mut sending = lock(&self.sending);
        self.reap(&mut sending, Look::Take);
        if sending.free.is_empty() || sending.posted as usize + to.len() > sending.depth as usize {
            self.reap(&mut sending, Look::Poll);
        }
        let full = BrokerError::WouldBlock { peer: me, full: Full::Ring { ring: SENDS } };
        if sending.posted as usize + to.len() > sending.depth as usize {
            return Err(full);
        }
        for recipient in to {
            self.find_handle(&mut sending, recipient)?;
        }
        let place = sending.free.pop().ok_or(full)?;
        let start = place as usize * self.longest;
        self.outgoing.write_at(start, bytes)?;
        let local = self.outgoing.slice(start..start + bytes.len());
        let Sending { handles, posted, .. } = &mut *sending;
        let mut batch = self.qp.batch();
        let mut count = 0;
        for (index, Recipient { peer, qpn, qkey, .. }) in to.iter().enumerate() {
            let Some((_, handle)) = handles.iter().find(|(known, _)| known == peer) else { continue };
            let work =
                self.qp.send_to(handle, *qpn, *qkey, local).id((u64::from(place) << 32) | (last as u64 + 1));
            let work = imm.map_or(work, |imm| work.imm(imm));
            batch.add(if index == last { work.signaled() } else { work });
            count += 1;
        }
        match batch.post() {
            Ok(()) => *posted += count,
            // Nothing of it can be refused but by a queue pair that is broken, and then nothing goes any
            // more.
            Err(BatchError { .. }) => sending.free.push(place),
        }
        Ok(())
    }

    fn find_handle(&self, sending: &mut Sending, recipient: &Recipient) -> Result<(), BrokerError> {
        let Recipient { peer, gid, .. } = recipient;
        if sending.handles.iter().any(|(known, _)| known == peer) {
            return Ok(());
        }
        let address = AddressVector::new(*gid, self.gid_index);
        let handle = self.domain.address_handle(&address);
        // It leads where the connection leads already.
        let handle = handle.map_err(|_| BrokerError::UnknownPeer { peer: *peer })?;
        sending.handles.push((*peer, handle));
        Ok(())
    }

    fn reap(&self, sending: &mut Sending, look: Look) {
        let mut found = [Completion::EMPTY; 16];
        loop {
            let taken = look.at(&self.send_queue, &mut found);
            for completion in &found[..taken] {
                // The last one of a datagram is signaled, and tells how many there were.
                let count = u32::try_from(completion.id & 0xffff_ffff).unwrap_or(0);
                sending.posted = sending.posted.saturating_sub(count);
                sending.free.push(u32::try_from(completion.id >> 32).unwrap_or(0));
            }
            if taken < found.len() {
                return;
            }
        }
    }

    /// Hands over what has arrived from these members; how many.
    pub(crate) fn poll(
        &self,
        look: Look,
        sender: impl Fn(Gid, Qpn) -> Option<u32>,
        each: &mut dyn FnMut(Datagram),
    ) -> Result<usize, BrokerError> {
        // A thread that polls within the function that it gave finds nothing, and so does a second thread.
        let Ok(mut receiving) = self.receiving.try_lock() else { return Ok(0) };
        let mut count = 0;
        let mut found = [Completion::EMPTY];
        while look.at(&self.receive_queue, &mut found) > 0 {
            let completion = found[0];
            if completion.status != Status::Success {
                continue;
            }
            let datagram = self.read(completion.id, completion.byte_len as usize).and_then(|(gid, bytes)| {
                let peer = sender(gid, completion.source_qp?)?;
                Some(Datagram { peer, imm: completion.imm, bytes })
            });
            // If the device does not take it, there is one place less.
            let _ = self.post_receive(completion.id);
            match datagram {
                Some(datagram) => {
                    count += 1;
                    let peer = datagram.peer;
                    call(peer, || each(datagram))?;
                }
                None => receiving.strangers += 1,
            }
        }
        Ok(count)
    }

    /// Datagrams that did not come from a member of the mesh.
    pub(crate) fn strangers(&self) -> u64 {
        lock(&self.receiving).strangers
    }

    fn read(&self, place: u64, len: usize) -> Option<(Gid, Vec<u8>)> {
        let start = usize::try_from(place).ok()? * (self.longest + DatagramHeader::LEN);
        let header = DatagramHeader::read(&self.incoming, start).ok()?;
        let bytes =
            self.incoming.to_vec(start + DatagramHeader::LEN..start + len.max(DatagramHeader::LEN)).ok()?;
        Some((header.source, bytes))
    }

    fn post_receive(&self, place: u64) -> Result<(), BrokerSetupError> {
        let slot = self.longest + DatagramHeader::LEN;
        let start = usize::try_from(place).unwrap_or(0) * slot;
        Ok(self.qp.receive(self.incoming.slice(start..start + slot)).id(place).post()?)
    }
}
