//! A queue pair for datagrams on one device, with places for what comes and for what goes.

use std::net::{IpAddr, SocketAddr, SocketAddrV6};
use std::sync::Arc;

use ferroce_cabi::cm::RDMA_UDP_QKEY;
use ferroce_device::{AddressHandle, Channel, CompletionQueue, Notify, Qp, QpSpec};
use ferroce_transport::{
    Attributes, Caps, Completion, Data, DatagramDest, ReceiveRequest, SendFlags, SendOp, SendRequest, Sge,
    State, Status,
};
use ferroce_wire::{Lkey, Psn, QKey, Qpn, Service};

use super::headers::{LABEL, label, longest, parse_label};
use crate::address::ends_of;
use crate::cm::devices::CmDevice;
use crate::cm::rs::buffer::{Buffer, Parts};
use crate::cm::rs::options::Sizes;
use crate::domain::Pd;
use crate::refusal::{Answer, Refused};

/// Bytes of the header that a device writes in front of a datagram.
const HEADER: usize = 40;
/// Bytes of one place, for a header, a label and the longest message.
const PLACE: usize = 2176;
/// Completions that are looked at together.
const BATCH: usize = 32;
/// Names of requests: whether it is a send, and which place it has.
const SEND: u64 = 1 << 32;

/// A queue pair for datagrams, on one device.
pub(super) struct Port {
    /// It goes first: the device uses the buffers until then.
    qp: Arc<Qp>,
    cq: Arc<CompletionQueue>,
    pub(super) device: &'static CmDevice,
    receives: Buffer,
    sends: Buffer,
    /// Places for sends that nothing is sent from.
    free: Vec<u32>,
    /// Where the others go: a handle lives as long as its sends.
    under_way: Vec<Option<Arc<AddressHandle>>>,
}

/// A message that lies in a place of a port.
#[derive(Clone, Copy, Debug)]
pub(super) struct Arrival {
    pub(super) place: u32,
    pub(super) from: SocketAddr,
    pub(super) qpn: Qpn,
    start: usize,
    pub(super) len: usize,
}

/// How many places a buffer of so many bytes is.
fn places(bytes: usize) -> u32 {
    u32::try_from(bytes / PLACE).unwrap_or(u32::MAX).clamp(16, 4096)
}

impl Port {
    pub(super) fn new(device: &'static CmDevice, channel: &Arc<Channel>, sizes: Sizes) -> Answer<Self> {
        let nic = &device.context.nic;
        let (max_send, max_receive) = (places(sizes.send_buffer), places(sizes.receive_buffer));
        let cq = CompletionQueue::new(nic, max_send + max_receive, Some(channel))?;
        // SAFETY: the domain of a device lives as long as the process.
        let domain = unsafe { Pd::of(device.pd) }?.domain;
        let caps = Caps { max_send, max_receive, max_send_sge: 1, max_receive_sge: 1, max_inline: 0 };
        let spec = QpSpec {
            service: Service::Ud,
            domain,
            send_cq: &cq,
            receive_cq: &cq,
            shared_queue: None,
            caps,
            signal_all: true,
            path: None,
            engine: None,
            stamps: false,
        };
        let qp = Qp::new(nic, &spec)?;
        let sends = Buffer::new(device.pd, max_send as usize * PLACE, false)?;
        let receives = Buffer::new(device.pd, max_receive as usize * PLACE, false)?;
        let init = Attributes::to(State::Init).with_pkey_index(0).with_port(1);
        qp.modify(&init.with_qkey(QKey(RDMA_UDP_QKEY)), None)?;
        qp.modify(&Attributes::to(State::Rtr), None)?;
        qp.modify(&Attributes::to(State::Rts).with_sq_psn(Psn::new(0)), None)?;
        let under_way = vec![None; max_send as usize];
        let port = Self { qp, cq, device, receives, sends, free: (0..max_send).collect(), under_way };
        for place in 0..max_receive {
            port.post_receive(place)?;
        }
        Ok(port)
    }

    pub(super) fn qpn(&self) -> Qpn {
        self.qp.qpn()
    }

    pub(super) fn arm(&self) {
        self.cq.arm(Notify::Any);
    }

    /// Whether all that was sent has left.
    pub(super) fn is_quiet(&self) -> bool {
        self.free.len() == self.under_way.len()
    }

    pub(super) fn has_room(&self) -> bool {
        !self.free.is_empty()
    }

    /// The longest message that a packet has room for.
    pub(super) fn longest(&self, is_v4: bool) -> usize {
        self.device.context.nic.active_mtu().bytes().saturating_sub(LABEL).min(longest(is_v4))
    }

    fn post_receive(&self, place: u32) -> Answer<()> {
        let sge = sge(&self.receives, place, PLACE);
        let request = ReceiveRequest { id: place.into(), sges: &[sge] };
        self.qp.post_receive(&[request]).map_err(|refused| Refused::from(refused.error))
    }

    /// A message was read: its place may be filled again.
    pub(super) fn give_back(&self, place: u32) {
        // Nothing but the end of the device refuses it, and then nothing comes any more.
        let _ = self.post_receive(place);
    }

    /// Sees what has completed; whether anything had. Messages are handed to `arrives`, which says whether it keeps them.
    pub(super) fn progress(&mut self, mut arrives: impl FnMut(Arrival) -> bool) -> bool {
        let mut batch = [Completion::EMPTY; BATCH];
        let mut any = false;
        loop {
            let count = self.cq.poll(&mut batch);
            for completion in &batch[..count] {
                let place = u32::try_from(completion.id & (SEND - 1)).unwrap_or(0);
                if completion.id & SEND != 0 {
                    if let Some(handle) = self.under_way.get_mut(place as usize) {
                        *handle = None;
                        self.free.push(place);
                    }
                } else if completion.status == Status::Success
                    && !self.arrival(place, completion).is_some_and(&mut arrives)
                {
                    self.give_back(place);
                }
            }
            any |= count > 0;
            if count < BATCH {
                return any;
            }
        }
    }

    /// What lies in a place; nothing if it is no message of a socket.
    fn arrival(&self, place: u32, completion: &Completion) -> Option<Arrival> {
        let at = place as usize * PLACE;
        let is_v4 = !completion.over_ipv6;
        let (ip, ..) = ends_of(&self.receives.read::<HEADER>(at)).ok()?;
        let whole = usize::try_from(completion.byte_len).ok()?.checked_sub(HEADER)?;
        let bytes = self.receives.read::<LABEL>(at + HEADER);
        let (port, label) = parse_label(bytes.get(..whole.min(LABEL))?, is_v4)?;
        let from = match ip {
            IpAddr::V6(v6) if v6.is_unicast_link_local() => {
                SocketAddrV6::new(v6, port, 0, self.device.context.nic.info().index).into()
            }
            ip => SocketAddr::new(ip, port),
        };
        let (start, len) = (at + HEADER + label, whole - label);
        let qpn = completion.source_qp?;
        (start + len <= at + PLACE).then_some(Arrival { place, from, qpn, start, len })
    }

    /// Copies a message to the program, or as much as there is room for; how much.
    pub(super) fn copy(&self, arrival: &Arrival, parts: &mut Parts<'_>) -> usize {
        let len = parts.left().min(arrival.len);
        // SAFETY: the part is inside of the buffer, and no device writes it before it is given back.
        unsafe { parts.fill(self.receives.part(arrival.start, len), len) };
        len
    }

    /// Sends a message; false if there is no place for it, or it cannot be posted.
    pub(super) fn send(
        &mut self,
        from: SocketAddr,
        to: &Arc<AddressHandle>,
        qpn: Qpn,
        message: &[u8],
    ) -> bool {
        let Some(place) = self.free.pop() else { return false };
        let (label, len) = label(from);
        let at = place as usize * PLACE;
        self.sends.write(at, &label[..len]);
        self.sends.write(at + len, message);
        let sge = sge(&self.sends, place, len + message.len());
        let dest = DatagramDest { handle: to.number(), qpn, qkey: QKey(RDMA_UDP_QKEY) };
        let request = SendRequest {
            id: SEND | u64::from(place),
            op: SendOp::Send,
            data: Data::Gather(&[sge]),
            flags: SendFlags::SIGNALED,
            dest: Some(dest),
        };
        if self.qp.post_send(&[request]).is_err() {
            self.free.push(place);
            return false;
        }
        self.under_way[place as usize] = Some(Arc::clone(to));
        true
    }
}

fn sge(buffer: &Buffer, place: u32, len: usize) -> Sge {
    let address = buffer.address(place as usize * PLACE);
    Sge { address, length: u32::try_from(len).unwrap_or(0), lkey: Lkey(buffer.lkey) }
}
