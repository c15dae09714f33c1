//! A queue pair of ours and one of the kernel, connected, and single operations between them.

use std::net::IpAddr;
use std::time::Duration;

use ferroce_verbs::{
    Access, AddressVector, Completion, CompletionQueue, ConnectOptions, Context, MemoryRegion, MemoryWindow,
    PathMtu, ProtectionDomain, QKey, QpAddress, QueuePair, QueuePairBuilder, RemoteRegion, Rkey, Service,
    SharedReceiveQueue, Status, WindowKind, WorkKind,
};

use crate::Result;
use crate::far::{Far, FarCompletion, FarSpec, GRH, WITH_IMM};
use crate::pattern::{pattern, sum};

/// How long one operation may take. Nothing waits so long unless something is wrong.
pub(crate) const LIMIT: Duration = Duration::from_secs(60);

/// How long we wait for an answer of the kernel, eight times: 0.5 s each. The kernel tries for ever; we would give up
/// after half a second with its 67 ms, and a guest on a busy machine may stand still for longer than that.
pub(crate) const NEAR_TIMEOUT: u8 = 17;

/// The Q_Key of both sides.
pub(crate) const QKEY: QKey = QKey(0x1111_1111);

/// Bytes before a received datagram.
pub(crate) const HEADER: usize = 40;

/// All that memory can be used for.
const OPEN: Access = Access::LOCAL_WRITE
    .union(Access::REMOTE_WRITE)
    .union(Access::REMOTE_READ)
    .union(Access::REMOTE_ATOMIC)
    .union(Access::BIND_WINDOW);

/// The side that asks the other one to do something.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Asks {
    /// We are the requester, the kernel responds.
    We,
    /// The kernel is the requester, we respond.
    Kernel,
}

/// An operation that moves bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    Send,
    SendImm,
    Write,
    WriteImm,
    Read,
}

impl Verb {
    const fn name(self) -> &'static str {
        match self {
            Self::Send => "send",
            Self::SendImm => "send_imm",
            Self::Write => "write",
            Self::WriteImm => "write_imm",
            Self::Read => "read",
        }
    }

    /// What the requester's completion says.
    const fn kind(self) -> WorkKind {
        match self {
            Self::Send | Self::SendImm => WorkKind::Send,
            Self::Write | Self::WriteImm => WorkKind::Write,
            Self::Read => WorkKind::Read,
        }
    }

    /// What the responder's completion says, if it has one.
    const fn received(self) -> Option<WorkKind> {
        match self {
            Self::Send | Self::SendImm => Some(WorkKind::Receive),
            Self::WriteImm => Some(WorkKind::ReceiveWithImm),
            Self::Write | Self::Read => None,
        }
    }

    const fn has_imm(self) -> bool {
        matches!(self, Self::SendImm | Self::WriteImm)
    }
}

/// How a pair is to be.
#[derive(Clone, Copy, Debug)]
pub(crate) struct PairSpec {
    pub(crate) service: Service,
    pub(crate) near: IpAddr,
    /// Our address of the far side's control connection and its GID index.
    pub(crate) guest: IpAddr,
    pub(crate) far_gid_index: u32,
    pub(crate) mtu: PathMtu,
    /// The longest message.
    pub(crate) size: usize,
    /// Retries of both sides; the kernel takes 7 for "for ever".
    pub(crate) retry_count: u8,
    /// How long the kernel waits for an answer, and how long we do: 4.096 us * 2^timeout.
    pub(crate) timeout: u8,
    pub(crate) near_timeout: u8,
    /// Bits by which each side's idea of the other's number is wrong.
    pub(crate) wrong_qpn: u32,
}

/// What a queue pair of ours is made from.
pub(crate) struct Parts {
    pub(crate) domain: ProtectionDomain,
    pub(crate) queue: CompletionQueue,
    pub(crate) srq: Option<SharedReceiveQueue>,
}

/// A queue pair of ours and one of the kernel. Both have memory for what is sent (its first half) and for what
/// arrives (its second half).
pub(crate) struct Pair {
    pub(crate) context: Context,
    pub(crate) domain: ProtectionDomain,
    pub(crate) queue: CompletionQueue,
    pub(crate) near: QueuePair,
    pub(crate) region: MemoryRegion,
    pub(crate) far: Far,
    pub(crate) peer: QpAddress,
    pub(crate) remote: RemoteRegion,
    /// Where our receives come from, if not from the queue pair's own queue.
    pub(crate) srq: Option<SharedReceiveQueue>,
    /// Where what arrives goes, on both sides.
    pub(crate) target: usize,
    spec: PairSpec,
    /// Counts operations: the name of each, and what its bytes are made from.
    serial: u64,
}

impl Pair {
    /// Makes both and connects them.
    pub(crate) fn new(context: &Context, spec: PairSpec) -> Result<Self> {
        let (domain, queue) = (context.protection_domain()?, context.completion_queue(1024)?);
        Self::of_parts(context, spec, Parts { domain, queue, srq: None })
    }

    /// The same with objects that were made before.
    pub(crate) fn of_parts(context: &Context, spec: PairSpec, parts: Parts) -> Result<Self> {
        let Parts { domain, queue, srq } = parts;
        let target = spec.size.next_multiple_of(4096);
        let len = 2 * target + 4096;
        let near = domain.queue_pair(spec.service).completion_queue(&queue).address(spec.near);
        let near = srq.iter().fold(near, QueuePairBuilder::shared_receive_queue).build()?;
        let region = domain.allocate(len, OPEN)?;
        let mut far = Far::connect(spec.guest)?;
        let far_spec = FarSpec {
            service: spec.service,
            gid_index: spec.far_gid_index,
            len,
            retry_count: spec.retry_count,
            timeout: spec.timeout,
        };
        let (peer, remote) = far.create(&far_spec)?;
        let wrong = |address: QpAddress| QpAddress {
            qpn: ferroce_verbs::Qpn::new(address.qpn.get() ^ spec.wrong_qpn),
            ..address
        };
        far.join(&wrong(near.local_address()), spec.mtu)?;
        if spec.service == Service::Ud {
            near.activate(QKEY)?;
        } else {
            let options = ConnectOptions {
                path_mtu: Some(spec.mtu),
                retry_count: spec.retry_count,
                timeout: spec.near_timeout,
                ..ConnectOptions::default()
            };
            near.connect_with(&wrong(peer), &options)?;
        }
        let context = context.clone();
        Ok(Self { context, domain, queue, near, region, far, peer, remote, srq, target, spec, serial: 0 })
    }

    /// Moves `len` bytes as `verb` does, and compares what arrived.
    pub(crate) fn transfer(&mut self, asks: Asks, verb: Verb, len: usize) -> Result<()> {
        let moved = match (asks, verb) {
            (Asks::We, Verb::Read) => self.we_read(len),
            (Asks::Kernel, Verb::Read) => self.kernel_reads(len),
            (Asks::We, _) => self.we_push(verb, len),
            (Asks::Kernel, _) => self.kernel_pushes(verb, len),
        };
        moved.map_err(|error| format!("{} of {len} bytes: {error}", verb.name()).into())
    }

    /// The next number for an operation.
    pub(crate) const fn next(&mut self) -> u64 {
        self.serial += 1;
        self.serial
    }

    /// Our next completion, which must be a success for this request.
    pub(crate) fn near_done(&self, id: u64, kind: WorkKind) -> Result<Completion> {
        let done = *self.queue.wait(LIMIT)?.result()?;
        check("our completion is for request", done.id, id)?;
        check("our completion says", done.kind, kind)?;
        Ok(done)
    }

    /// Our next completion, which must have this status.
    pub(crate) fn near_fails(&self, status: Status) -> Result<()> {
        check("our completion says", self.queue.wait(LIMIT)?.status, status)
    }

    /// The kernel's next completion, which must be a success for this request.
    pub(crate) fn far_done(&mut self, id: u64, kind: WorkKind) -> Result<FarCompletion> {
        let done = self.far.wait(LIMIT)?.ok_or("no completion of the kernel")?;
        check("the kernel's completion says", done.status, u64::from(Status::Success.code()))?;
        check("the kernel's completion is for request", done.id, id)?;
        check("the kernel's completion is of kind", done.opcode, u64::from(kind.code()))?;
        Ok(done)
    }

    /// The kernel's next completion, which must have this status.
    pub(crate) fn far_fails(&mut self, status: Status) -> Result<()> {
        let done = self.far.wait(LIMIT)?.ok_or("no completion of the kernel")?;
        check("the kernel's completion says", done.status, u64::from(status.code()))
    }

    /// Opens a memory window of ours over a part of our region, for this queue pair alone, and gives its key.
    /// It is open as long as the window is kept.
    pub(crate) fn window(&mut self, offset: usize, len: usize) -> Result<(MemoryWindow, Rkey)> {
        let window = self.domain.memory_window(WindowKind::Type2)?;
        let id = self.next();
        let binding = window.bind(self.region.slice(offset..offset + len), Access::REMOTE_WRITE);
        let key = binding.rkey();
        self.near.bind_window(binding).id(id).signaled().post()?;
        self.near_done(id, WorkKind::BindWindow)?;
        Ok((window, key))
    }

    fn we_push(&mut self, verb: Verb, len: usize) -> Result<()> {
        let (id, head) = (self.next(), self.header());
        let bytes = pattern(id, len);
        self.region.write_at(0, &bytes)?;
        if verb.received().is_some() {
            self.far.receive(id, self.target, len + head)?;
        } else {
            self.far.fill(self.target, len, !id)?;
        }
        let to = self.remote.slice(self.target as u64..);
        let handle;
        let work = match verb {
            Verb::Write | Verb::WriteImm => self.near.write(self.region.slice(..len), to),
            _ if self.spec.service == Service::Ud => {
                let index = self.context.gid_index(self.spec.near).ok_or("our address is gone")?;
                handle = self.domain.address_handle(&AddressVector::new(self.peer.gid, index))?;
                self.near.send_to(&handle, self.peer.qpn, QKEY, self.region.slice(..len))
            }
            _ => self.near.send(self.region.slice(..len)),
        };
        let work = if verb.has_imm() { work.imm(imm(id)) } else { work };
        work.id(id).post()?;
        self.near_done(id, verb.kind())?;
        self.settle(Asks::We, verb)?;
        if let Some(kind) = verb.received() {
            let done = self.far_done(id, kind)?;
            check("bytes that the kernel received", done.byte_len, (len + head) as u64)?;
            if verb.has_imm() {
                check(
                    "immediate data at the kernel",
                    (done.flags & WITH_IMM, done.extra),
                    (WITH_IMM, imm(id).into()),
                )?;
            }
            if head > 0 {
                check("a header at the kernel", done.flags & GRH, GRH)?;
                check("the sender's number at the kernel", done.source_qp, self.near.qpn().get().into())?;
            }
        }
        let there = self.far.sum(self.target + head, len)?;
        check("checksum at the kernel", there, sum(&bytes))
    }

    fn kernel_pushes(&mut self, verb: Verb, len: usize) -> Result<()> {
        let (id, head) = (self.next(), self.header());
        let here = self.region.slice(self.target..self.target + head + len);
        self.far.fill(0, len, id)?;
        if verb.received().is_some() {
            self.near.receive(here).id(id).post()?;
        } else {
            self.region.write_at(self.target, &pattern(!id, len))?;
        }
        let (address, rkey) = match self.spec.service {
            Service::Ud => (u64::from(self.near.qpn().get()), u64::from(QKEY.0)),
            _ => (self.region.address() + self.target as u64, u64::from(self.region.rkey().0)),
        };
        self.far.post(id, verb.name(), (0, len), &[address, rkey, imm(id).into()])?;
        self.far_done(id, verb.kind())?;
        self.settle(Asks::Kernel, verb)?;
        if let Some(kind) = verb.received() {
            let done = self.near_done(id, kind)?;
            check("bytes that we received", done.byte_len as usize, len + head)?;
            check("immediate data at us", done.imm, verb.has_imm().then(|| imm(id)))?;
            if head > 0 {
                check("the sender's number at us", done.source_qp, Some(self.peer.qpn))?;
                let header = ferroce_verbs::DatagramHeader::read(&self.region, self.target)?;
                check("source of the datagram", header.source, self.peer.gid)?;
            }
        }
        let start = self.target + head;
        let there = self.far.sum(0, len)?;
        check("checksum at us", sum(&self.region.to_vec(start..start + len)?), there)
    }

    fn we_read(&mut self, len: usize) -> Result<()> {
        let id = self.next();
        self.far.fill(0, len, id)?;
        self.region.write_at(self.target, &pattern(!id, len))?;
        let into = self.region.slice(self.target..self.target + len);
        self.near.read(into, self.remote.slice(..)).id(id).post()?;
        let done = self.near_done(id, WorkKind::Read)?;
        check("bytes that we read", done.byte_len as usize, len)?;
        let there = self.far.sum(0, len)?;
        check("checksum at us", sum(&self.region.to_vec(self.target..self.target + len)?), there)
    }

    fn kernel_reads(&mut self, len: usize) -> Result<()> {
        let id = self.next();
        let bytes = pattern(id, len);
        self.region.write_at(0, &bytes)?;
        self.far.fill(self.target, len, !id)?;
        let from = [self.region.address(), self.region.rkey().0.into()];
        self.far.post(id, "read", (self.target, len), &from)?;
        let done = self.far_done(id, WorkKind::Read)?;
        check("bytes that the kernel read", done.byte_len, len as u64)?;
        let there = self.far.sum(self.target, len)?;
        check("checksum at the kernel", there, sum(&bytes))
    }

    /// A WRITE without acknowledgement is there when a message behind it is.
    fn settle(&mut self, asks: Asks, verb: Verb) -> Result<()> {
        if self.spec.service == Service::Uc && verb == Verb::Write {
            let last = self.target + self.target;
            let id = self.next();
            match asks {
                Asks::We => {
                    self.far.receive(id, last, 64)?;
                    self.near.send_inline(b"after").id(id).post()?;
                    self.near_done(id, WorkKind::Send)?;
                    self.far_done(id, WorkKind::Receive)?;
                }
                Asks::Kernel => {
                    self.near.receive(self.region.slice(last..last + 64)).id(id).post()?;
                    self.far.post(id, "send", (last, 5), &[])?;
                    self.far_done(id, WorkKind::Send)?;
                    self.near_done(id, WorkKind::Receive)?;
                }
            }
        }
        Ok(())
    }

    /// Our address.
    pub(crate) const fn address(&self) -> IpAddr {
        self.spec.near
    }

    /// Bytes that stand before what arrives.
    pub(crate) fn header(&self) -> usize {
        if self.spec.service == Service::Ud { HEADER } else { 0 }
    }
}

/// Immediate data of an operation.
fn imm(id: u64) -> u32 {
    0xfe22_0000 | u32::try_from(id & 0xffff).unwrap_or_default()
}

/// What was seen must be what was expected.
pub(crate) fn check<T: PartialEq + std::fmt::Debug>(what: &str, seen: T, expected: T) -> Result<()> {
    if seen == expected { Ok(()) } else { Err(format!("{what} {seen:?}, expected {expected:?}").into()) }
}
