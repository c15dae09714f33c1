//! Changes of state, of attributes and of memory.

use std::collections::VecDeque;

use ferroce_transport::{Access, AttributeMask, Attributes, State};
use ferroce_wire::{PathMtu, Psn};

use super::rig::{DOMAIN, REGION, Rig, base, qpn};
use super::{Change, Config, ServiceKind};
use crate::pair::Pair;

impl Rig {
    pub(super) fn change(&mut self, side: usize, change: Change) {
        self.gentle = false;
        let attributes = match change {
            Change::Error => Attributes::to(State::Err),
            Change::Drain => Attributes::to(State::Sqd).with_notify_drained(true),
            Change::Resume => Attributes::to(State::Rts),
            Change::Reset => Attributes::to(State::Reset),
            Change::BringUp => return self.bring_up(side),
            Change::Any { state, mask } => Attributes {
                mask: AttributeMask::from_bits_retain(mask),
                state: State::ALL[usize::from(state) % State::ALL.len()],
                access: Access::from_bits_truncate(mask >> 8),
                timeout: 10,
                rnr_retry: 3,
                max_rd_atomic: state % 20,
                max_dest_rd_atomic: state % 20,
                ..Attributes::new()
            },
        };
        self.modify(side, &attributes);
    }

    /// Changes a queue pair, or nothing.
    pub(super) fn modify(&mut self, side: usize, attributes: &Attributes) {
        let (state, waiting) = (self.queue_pair(side).state(), self.queue_pair(side).sends_waiting());
        let result = self.nodes[side].modify(0, attributes);
        self.collect(side);
        let pair = self.nodes[side].queue_pair(0);
        if result.is_err() {
            assert_eq!((pair.state(), pair.sends_waiting()), (state, waiting), "refused, and yet changed");
        } else if pair.state() == State::Reset {
            self.ledgers[side].reset(self.config.shared);
        }
    }

    pub(super) fn reconnect(&mut self, forget: bool, psns: [u8; 2]) {
        self.gentle &= forget;
        if forget {
            self.link.iter_mut().for_each(VecDeque::clear);
        }
        for side in [0, 1] {
            self.asked[side] = Psn::new(self.asked[side].get().wrapping_add(u32::from(psns[side])));
            self.modify(side, &Attributes::to(State::Reset));
        }
        self.bring_up(0);
        self.bring_up(1);
    }

    /// From RESET to RTS, if it is in RESET.
    pub(super) fn bring_up(&mut self, side: usize) {
        let Config { service, mtu, timeout, retries, rd_atomic, .. } = self.config;
        let init = Attributes::to(State::Init).with_pkey_index(0).with_port(1);
        let rtr = Attributes::to(State::Rtr);
        let rts = Attributes::to(State::Rts).with_sq_psn(self.asked[side]);
        let connected = rtr
            .with(AttributeMask::AV)
            .with_path_mtu(PathMtu::from_code(1 + mtu % 3).expect("256, 512 or 1024"))
            .with_dest_qpn(qpn(1 - side))
            .with_rq_psn(self.asked[1 - side]);
        let steps = match service {
            ServiceKind::Ud => [init.with_qkey(Pair::QKEY), rtr, rts],
            ServiceKind::Uc => [init.with_access(Access::all()), connected, rts],
            _ => [
                init.with_access(Access::all()),
                connected.with_max_dest_rd_atomic(rd_atomic[1 - side] % 5).with_min_rnr_timer(1),
                rts.with_timeout(10 + timeout % 8)
                    .with_retry_count(retries % 8)
                    .with_rnr_retry(retries / 8 % 8)
                    .with_max_rd_atomic(rd_atomic[side] % 5),
            ],
        };
        for attributes in &steps {
            self.modify(side, attributes);
        }
    }

    pub(super) fn reregister(&mut self, side: usize, access: u8) {
        self.gentle = false;
        let memory = &mut self.nodes[side].device.memory;
        memory.deregister(self.keys[side]);
        let access = Access::from_bits_truncate(u32::from(access));
        self.keys[side] = memory.register(DOMAIN, base(side), REGION, access);
    }
}
