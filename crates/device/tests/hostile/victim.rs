//! A device with a queue pair of each service, and memory that is watched.

use std::net::IpAddr;
use std::sync::Arc;

use ferroce_device::memory::Allocation;
use ferroce_device::{DeviceCounters, Nic, PathPolicy, Qp};
use ferroce_transport::{Attributes, SendOp, State, Status};
use ferroce_wire::{Psn, QKey, Qpn, Rkey, Service};

use crate::common::{OPEN, Side, connect_uc, device, signaled, unreliable};

/// Bytes of the watched memory: the middle third is registered.
const THIRD: usize = 4096;
const GUARD: u8 = 0x5c;
const INSIDE: u8 = 0x33;

/// A device under attack, with a connection to an honest peer.
pub(crate) struct Victim {
    pub(crate) address: IpAddr,
    rc: Side,
    honest: Side,
    uc: Arc<Qp>,
    ud: Arc<Qp>,
    watched: Watched,
    before: DeviceCounters,
}

/// Memory of which the middle is registered, and nothing may change around it.
pub(crate) struct Watched {
    memory: Arc<Allocation>,
    pub(crate) rkey: Rkey,
}

impl Watched {
    pub(crate) const LEN: u64 = THIRD as u64;

    pub(crate) fn new(side: &Side) -> Self {
        let memory = Allocation::zeroed(3 * THIRD).expect("memory");
        memory.fill(0, 3 * THIRD, GUARD).expect("inside");
        memory.fill(THIRD, THIRD, INSIDE).expect("inside");
        let address = memory.address() + THIRD as u64;
        let keys = side.nic.register(side.domain, &memory, (THIRD, THIRD), address, OPEN);
        let (_, rkey) = keys.expect("a region");
        Self { memory, rkey }
    }

    /// The address of the first registered byte.
    pub(crate) fn address(&self) -> u64 {
        self.memory.address() + THIRD as u64
    }

    /// Whether nothing was written around the region.
    pub(crate) fn check_guards(&self) {
        let mut bytes = [0; THIRD];
        for offset in [0, 2 * THIRD] {
            self.memory.read(offset, &mut bytes).expect("inside");
            assert!(bytes.iter().all(|byte| *byte == GUARD), "bytes outside of the region were written");
        }
    }

    /// Whether nothing was written at all.
    pub(crate) fn check_untouched(&self) {
        self.check_guards();
        let mut bytes = [0; THIRD];
        self.memory.read(THIRD, &mut bytes).expect("inside");
        assert!(bytes.iter().all(|byte| *byte == INSIDE), "bytes inside of the region were written");
    }

    /// Whether a packet carries bytes from around the region.
    pub(crate) fn leaks_into(packet: &[u8]) -> bool {
        packet.windows(4).any(|bytes| bytes == [GUARD; 4])
    }
}

impl Victim {
    pub(crate) fn new(address: [u8; 4], honest: [u8; 4]) -> Self {
        let nic = device(address);
        let rc = Side::new(&nic, address, PathPolicy::Prefer);
        let honest = Side::new(&device(honest), honest, PathPolicy::Prefer);
        rc.connect(&honest.address());
        honest.connect(&rc.address());
        let (uc, ud) = (unreliable(&rc, Service::Uc), unreliable(&rc, Service::Ud));
        connect_uc(&uc, &honest, &rc);
        activate(&ud);
        let watched = Watched::new(&rc);
        let before = nic.counters();
        Self { address: address.into(), rc, honest, uc, ud, watched, before }
    }

    pub(crate) fn nic(&self) -> &Nic {
        &self.rc.nic
    }

    pub(crate) fn rc(&self) -> Qpn {
        self.rc.qp.qpn()
    }

    pub(crate) fn uc(&self) -> Qpn {
        self.uc.qpn()
    }

    pub(crate) fn ud(&self) -> Qpn {
        self.ud.qpn()
    }

    /// All that was counted since it was made: by the device, and by its queue pairs together.
    pub(crate) fn counted(&self) -> Vec<(String, u64)> {
        let device = self.nic().counters();
        // What is of another partition is counted for its queue pair too.
        let device = device.iter().zip(self.before.iter()).filter(|((name, _), _)| *name != "wrong_pkey");
        let device = device.map(|((name, now), (_, then))| (name, now - then));
        let mut all: Vec<(String, u64)> = device.map(|(name, value)| (name.to_owned(), value)).collect();
        for qp in [&self.rc.qp, &self.uc, &self.ud] {
            let counters = qp.query().expect("it is there").counters;
            all.extend(counters.iter().map(|(name, value)| (name.to_owned(), value)));
        }
        all.retain(|(_, value)| *value > 0);
        all
    }

    /// The connection that was attacked still does all its work, both ways, and nothing else was touched.
    pub(crate) fn still_works(&self) {
        self.watched.check_untouched();
        for (from, to) in [(&self.rc, &self.honest), (&self.honest, &self.rc)] {
            from.memory.fill(0, 10_000, 0x42).expect("inside");
            let peer = to.address();
            let (out, into) = ([from.sge(0, 10_000)], [from.sge(20_000, 10_000)]);
            let work = [
                signaled(1, SendOp::Write(peer.at(50_000)), &out),
                signaled(2, SendOp::Read(peer.at(50_000)), &into),
            ];
            from.qp.post_send(&work).expect("room");
            for id in [1, 2] {
                let done = from.completion();
                assert_eq!((done.id, done.status), (id, Status::Success));
            }
            let mut seen = [0; 10_000];
            from.memory.read(20_000, &mut seen).expect("inside");
            assert!(seen.iter().all(|byte| *byte == 0x42));
        }
        for qp in [&self.rc.qp, &self.uc, &self.ud] {
            assert_eq!(qp.query().expect("it is there").attributes.state, State::Rts);
        }
    }
}

fn activate(qp: &Qp) {
    let init = Attributes::to(State::Init).with_pkey_index(0).with_port(1).with_qkey(QKey(0x1234));
    qp.modify(&init, None).expect("INIT");
    qp.modify(&Attributes::to(State::Rtr), None).expect("RTR");
    qp.modify(&Attributes::to(State::Rts).with_sq_psn(Psn::new(0)), None).expect("RTS");
}
