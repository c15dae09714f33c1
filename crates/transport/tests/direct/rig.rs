//! Two queue pairs in one process, each with memory of its own.

use ferroce_sim::{Action, Device, Memory};
use ferroce_transport::{
    Access, Accessor, AtomicOp, AttributeMask, Attributes, Bind, Caps, Completion, Data, Denied, Direct,
    DomainId, Event, Host, QpConfig, QueuePair, Receive, ReceiveQueue, ReceiveRequest, Remote, SendFlags,
    SendOp, SendRequest, Sge, SharedQueueId, Spot, State, Status, Time, Window,
};
use ferroce_wire::{Lkey, PathMtu, Psn, Qpn, Rkey, Service};

/// Bytes of each side, all of them in one region.
const BYTES: usize = 64 * 1024;

pub(crate) const DOMAIN: DomainId = DomainId(7);

/// How the two are set up.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Setup {
    /// What the one that answers lets the other do.
    pub(crate) rights: Access,
    pub(crate) mtus: [PathMtu; 2],
    /// Kilobits per second; 0 is without a limit.
    pub(crate) rate: u32,
    /// READs and atomics that the one that answers takes.
    pub(crate) depth: u8,
    /// Whether the one that answers stays where it has not heard of its peer.
    pub(crate) in_rtr: bool,
    /// Whether its receives come from a shared queue.
    pub(crate) shared: bool,
}

impl Default for Setup {
    fn default() -> Self {
        Self {
            rights: Access::all(),
            mtus: [PathMtu::B1024; 2],
            rate: 0,
            depth: 4,
            in_rtr: false,
            shared: false,
        }
    }
}

/// The two: the first asks, the second answers.
pub(crate) struct Two {
    pub(crate) pairs: [QueuePair; 2],
    pub(crate) devices: Devices,
    keys: [u32; 2],
    shared: bool,
    log: Vec<Action>,
}

/// Their memory and their completions.
pub(crate) struct Devices(pub(crate) [Device; 2]);

/// The device as one of them sees it.
pub(crate) struct Seen<'a>(&'a mut Device);

impl Two {
    pub(crate) fn new(setup: &Setup) -> Self {
        let mut keys = [0; 2];
        let devices = [0, 1].map(|side| {
            let mut memory = Memory::new(base(side), BYTES);
            keys[side] = memory.register(DOMAIN, base(side), BYTES as u64, Access::all());
            Device::new(memory)
        });
        let caps =
            Caps { max_send: 16, max_receive: 16, max_send_sge: 4, max_receive_sge: 4, max_inline: 64 };
        let mut devices = Devices(devices);
        devices.0[1].shared.push(ReceiveQueue::new(16, 4));
        let pairs = [0, 1].map(|side| {
            let config = QpConfig {
                qpn: qpn(side),
                service: Service::Rc,
                domain: DOMAIN,
                caps,
                signal_all: false,
                shared_queue: (setup.shared && side == 1).then_some(SharedQueueId(0)),
            };
            let mut pair = QueuePair::new(config);
            let rights = if side == 1 { setup.rights } else { Access::all() };
            let rts = Attributes::to(State::Rts).with_sq_psn(Psn::new(100)).with_rate_limit(setup.rate);
            let steps = [
                Attributes::to(State::Init).with_pkey_index(0).with_port(1).with_access(rights),
                Attributes::to(State::Rtr)
                    .with(AttributeMask::AV)
                    .with_path_mtu(setup.mtus[side])
                    .with_dest_qpn(qpn(1 - side))
                    .with_rq_psn(Psn::new(100))
                    .with_max_dest_rd_atomic(setup.depth)
                    .with_min_rnr_timer(1),
                rts.with_timeout(14).with_retry_count(7).with_rnr_retry(7).with_max_rd_atomic(4),
            ];
            let count = if setup.in_rtr && side == 1 { 2 } else { 3 };
            for step in &steps[..count] {
                pair.modify(step, &mut Window::new(), &mut devices.0[side]).expect("a legal step");
            }
            pair
        });
        Self { pairs, devices, keys, shared: setup.shared, log: Vec::new() }
    }

    /// Bytes of a side.
    pub(crate) fn memory(&mut self, side: usize) -> &mut [u8] {
        self.devices.0[side].memory.slice_mut(base(side), BYTES)
    }

    /// A piece of a side's memory.
    pub(crate) fn sge(&self, side: usize, offset: u64, length: u32) -> Sge {
        Sge { address: base(side) + offset, length, lkey: Lkey(self.keys[side]) }
    }

    /// The same as the peer names it.
    pub(crate) fn remote(&self, side: usize, offset: u64) -> Remote {
        Remote { address: base(side) + offset, rkey: Rkey(self.keys[side]) }
    }

    pub(crate) fn post(&mut self, id: u64, op: SendOp, data: Data<'_>) {
        let flags = SendFlags::SIGNALED | SendFlags::SOLICITED;
        let request = SendRequest { id, op, data, flags, dest: None };
        self.pairs[0].post_send(&request, &mut self.devices.0[0]).expect("the work is in order");
    }

    pub(crate) fn post_receive(&mut self, id: u64, sges: &[Sge]) {
        if self.shared {
            assert!(self.devices.0[1].shared[0].push(id, sges), "the shared queue has room");
            return;
        }
        let request = ReceiveRequest { id, sges };
        self.pairs[1].post_receive(&request, &mut self.devices.0[1]).expect("the receive is in order");
    }

    /// Does what is posted directly; how many messages were done.
    pub(crate) fn execute(&mut self, now: Time, limit: u32, bytes: u64) -> u32 {
        let [asking, answering] = &mut self.pairs;
        asking.execute_directly(answering, &mut self.devices, now, (limit, bytes))
    }

    /// Posts messages and does them directly, without putting them into the queue; how many.
    pub(crate) fn post_directly(&mut self, now: Time, requests: &[SendRequest<'_>], bytes: u64) -> u32 {
        let [asking, answering] = &mut self.pairs;
        asking.post_directly(answering, requests, &mut self.devices, now, bytes)
    }

    /// What completed at a side since the last time.
    pub(crate) fn completions(&mut self, side: usize) -> Vec<Completion> {
        self.devices.0[side].take_log(&mut self.log);
        let completed = self.log.drain(..).filter_map(|action| match action {
            Action::SendDone(completion) | Action::ReceiveDone(completion) => Some(completion),
            _ => None,
        });
        completed.collect()
    }

    /// The same in short: id, status, bytes.
    pub(crate) fn ends(&mut self, side: usize) -> Vec<(u64, Status, u32)> {
        self.completions(side).iter().map(|one| (one.id, one.status, one.byte_len)).collect()
    }
}

const fn base(side: usize) -> u64 {
    0x1_0000_0000 * (side as u64 + 1)
}

fn qpn(side: usize) -> Qpn {
    Qpn::new(if side == 0 { 0x11 } else { 0x22 })
}

impl Direct for Devices {
    type Side<'a> = Seen<'a>;

    fn requester(&mut self) -> Seen<'_> {
        Seen(&mut self.0[0])
    }

    fn responder(&mut self) -> Seen<'_> {
        Seen(&mut self.0[1])
    }

    fn copy(&mut self, from: Spot, to: Spot, len: u32) -> Result<(), Denied> {
        self.check(from, len, false)?;
        self.check(to, len, true)?;
        let (from, to) = (address(from), address(to));
        let bytes = self.0[side_of(from)].memory.slice(from, len as usize).to_vec();
        self.0[side_of(to)].memory.write(to, &bytes)
    }
}

impl Devices {
    fn check(&mut self, spot: Spot, length: u32, write: bool) -> Result<(), Denied> {
        match spot {
            Spot::Own(domain, lkey, address) => {
                self.0[side_of(address)].check_local(domain, Sge { address, length, lkey }, write)
            }
            Spot::Opened(by, rkey, address) => {
                let access = if write { Access::REMOTE_WRITE } else { Access::REMOTE_READ };
                self.0[side_of(address)].check_remote(by, rkey, address, length, access)
            }
        }
    }
}

const fn address(spot: Spot) -> u64 {
    match spot {
        Spot::Own(_, _, address) | Spot::Opened(_, _, address) => address,
    }
}

fn side_of(address: u64) -> usize {
    usize::from(address >= base(1))
}

impl Host for Seen<'_> {
    fn check_local(&mut self, domain: DomainId, sge: Sge, write: bool) -> Result<(), Denied> {
        self.0.check_local(domain, sge, write)
    }

    fn write_local(&mut self, lkey: Lkey, address: u64, bytes: &[u8]) -> Result<(), Denied> {
        self.0.write_local(lkey, address, bytes)
    }

    fn read_local(&mut self, lkey: Lkey, address: u64, bytes: &mut [u8]) -> Result<(), Denied> {
        self.0.read_local(lkey, address, bytes)
    }

    fn check_remote(
        &mut self,
        by: Accessor,
        rkey: Rkey,
        address: u64,
        len: u32,
        access: Access,
    ) -> Result<(), Denied> {
        self.0.check_remote(by, rkey, address, len, access)
    }

    fn write_remote(&mut self, by: Accessor, rkey: Rkey, address: u64, bytes: &[u8]) -> Result<(), Denied> {
        self.0.write_remote(by, rkey, address, bytes)
    }

    fn atomic(&mut self, by: Accessor, rkey: Rkey, address: u64, op: AtomicOp) -> Result<u64, Denied> {
        self.0.atomic(by, rkey, address, op)
    }

    fn invalidate(&mut self, by: Accessor, rkey: Rkey) -> Result<(), Denied> {
        self.0.invalidate(by, rkey)
    }

    fn bind(&mut self, by: Accessor, bind: &Bind) -> Result<(), Denied> {
        self.0.bind(by, bind)
    }

    fn take_shared(&mut self, queue: SharedQueueId, receive: &mut Receive) -> bool {
        self.0.take_shared(queue, receive)
    }

    fn peek_shared(&mut self, queue: SharedQueueId, receive: &mut Receive) -> bool {
        self.0.peek_shared(queue, receive)
    }

    fn complete_send(&mut self, number: u32, completion: Completion) {
        self.0.complete_send(number, completion);
    }

    fn complete_receive(&mut self, number: u32, completion: Completion) {
        self.0.complete_receive(number, completion);
    }

    fn event(&mut self, qpn: Qpn, event: Event) {
        self.0.event(qpn, event);
    }
}
