//! Attributes and states of a queue pair: what a program changes and asks for.

use ferroce_wire::{Psn, RnrTimer};

use crate::connection::Connection;
use crate::host::Host;
use crate::pacing::Pacer;
use crate::qp::{Machine, QueuePair};
use crate::state::{self, AttributeMask, Attributes, ModifyError, State};
use crate::time::Time;
use crate::window::Window;

impl QueuePair {
    /// Its attributes as they are now: those of its service and state mean something.
    #[must_use]
    pub fn attributes(&self) -> Attributes {
        let connection = &self.connection;
        let (sq_psn, rq_psn) = match &self.machine {
            Machine::Rc { requester, responder } => (requester.next_psn, responder.expected),
            Machine::Uc { sender, receiver } => (sender.next_psn, receiver.expected),
            Machine::Ud { sender, .. } => (sender.next_psn, Psn::new(0)),
        };
        let mut now = Attributes::to(self.state)
            .with_access(connection.access)
            .with_qkey(connection.qkey)
            .with_path_mtu(connection.mtu)
            .with_timeout(connection.timeout)
            .with_retry_count(connection.retry_count)
            .with_rnr_retry(connection.rnr_retry)
            .with_sq_psn(sq_psn)
            .with_rq_psn(rq_psn)
            .with_max_rd_atomic(connection.max_rd_atomic)
            .with_max_dest_rd_atomic(connection.max_dest_rd_atomic)
            .with_min_rnr_timer(connection.min_rnr_timer.code())
            .with_dest_qpn(connection.dest_qpn)
            .with_rate_limit(self.pacer.allowed());
        now.current_state = self.state;
        now.pkey_index = self.pkey_index;
        now.draining = self.state == State::Sqd && !self.is_drained();
        now
    }

    /// Sends no faster than the way to its peer carries, in kilobits per second, whatever the program allows; 0
    /// takes that back.
    pub fn limit_way(&mut self, rate: u32) {
        self.pacer.carry(rate);
    }

    /// Changes attributes, and with them the state.
    ///
    /// # Errors
    /// What was given and what is allowed; nothing has changed.
    pub fn modify<H: Host>(
        &mut self,
        attributes: &Attributes,
        window: &mut Window,
        host: &mut H,
    ) -> Result<(), ModifyError> {
        let next = state::check(self.service, self.state, attributes, &Self::LIMITS)?;
        self.check_possible(attributes)?;
        self.set_attributes(attributes);
        let previous = core::mem::replace(&mut self.state, next);
        match next {
            State::Reset => {
                self.pacer = Pacer::default();
                self.clear(window);
            }
            State::Rtr => {
                self.established = false;
                match &mut self.machine {
                    Machine::Rc { responder, .. } => responder.start_at(attributes.rq_psn, &self.connection),
                    Machine::Uc { receiver, .. } => receiver.start_at(attributes.rq_psn),
                    Machine::Ud { .. } => {}
                }
            }
            State::Rts if previous == State::Rtr => match &mut self.machine {
                Machine::Rc { requester, .. } => requester.start_at(attributes.sq_psn, &self.connection),
                Machine::Uc { sender, .. } | Machine::Ud { sender, .. } => sender.start_at(attributes.sq_psn),
            },
            State::Rts => self.set_draining(false, false),
            State::Sqd if previous == State::Rts => {
                self.set_draining(true, attributes.notify_drained);
                self.report_drained(window, host);
            }
            State::Sqd => self.renew(attributes.mask),
            State::Err => self.flush_all(window, host),
            State::Init | State::Sqe => {}
        }
        Ok(())
    }

    /// What is legal by the table, but not here, or not yet.
    fn check_possible(&self, attributes: &Attributes) -> Result<(), ModifyError> {
        let given = attributes.mask;
        let unknown = given.intersection(AttributeMask::ALT_PATH.union(AttributeMask::PATH_MIG_STATE));
        if !unknown.is_empty() {
            return Err(ModifyError::NotSupported { attributes: unknown });
        }
        if given.contains(AttributeMask::PORT) && attributes.port != 1 {
            return Err(ModifyError::NoSuchPort { given: attributes.port });
        }
        if given.contains(AttributeMask::PKEY_INDEX) && self.pkeys.get(attributes.pkey_index.into()).is_none()
        {
            return Err(ModifyError::NoSuchPKey { given: attributes.pkey_index, len: self.pkeys.len() });
        }
        // IBA 10.3.1.5: nothing changes under messages that are still on their way.
        let changes = given.difference(AttributeMask::STATE.union(AttributeMask::CUR_STATE));
        let leaves =
            given.contains(AttributeMask::STATE) && matches!(attributes.state, State::Reset | State::Err);
        if self.state == State::Sqd && !changes.is_empty() && !leaves && !self.is_drained() {
            return Err(ModifyError::Draining { attributes: changes });
        }
        Ok(())
    }

    /// Whether every message that was begun is done.
    fn is_drained(&self) -> bool {
        match &self.machine {
            Machine::Rc { requester, .. } => requester.is_between_messages(),
            Machine::Uc { sender, .. } | Machine::Ud { sender, .. } => sender.is_between_messages(),
        }
    }

    /// The machines take over what was changed in SQD.
    fn renew(&mut self, changed: AttributeMask) {
        if let Machine::Rc { requester, responder } = &mut self.machine {
            if changed.intersects(AttributeMask::RETRY_CNT.union(AttributeMask::RNR_RETRY)) {
                requester.retry.begin(&self.connection);
            }
            if changed.contains(AttributeMask::MAX_DEST_RD_ATOMIC) {
                responder.resources.resize(self.connection.max_dest_rd_atomic);
            }
        }
    }

    fn set_attributes(&mut self, attributes: &Attributes) {
        let mask = attributes.mask;
        if mask.contains(AttributeMask::PKEY_INDEX)
            && let Some(key) = self.pkeys.get(attributes.pkey_index.into())
        {
            self.pkey_index = attributes.pkey_index;
            self.connection.pkey = key;
        }
        let connection = &mut self.connection;
        let mut set = |bit: AttributeMask, apply: &dyn Fn(&mut Connection)| {
            if mask.contains(bit) {
                apply(connection);
            }
        };
        set(AttributeMask::ACCESS_FLAGS, &|c| c.access = attributes.access);
        set(AttributeMask::QKEY, &|c| c.qkey = attributes.qkey);
        set(AttributeMask::PATH_MTU, &|c| c.mtu = attributes.path_mtu);
        set(AttributeMask::TIMEOUT, &|c| c.timeout = attributes.timeout);
        set(AttributeMask::RETRY_CNT, &|c| c.retry_count = attributes.retry_count);
        set(AttributeMask::RNR_RETRY, &|c| c.rnr_retry = attributes.rnr_retry);
        set(AttributeMask::MIN_RNR_TIMER, &|c| c.min_rnr_timer = RnrTimer::new(attributes.min_rnr_timer));
        set(AttributeMask::MAX_QP_RD_ATOMIC, &|c| c.max_rd_atomic = attributes.max_rd_atomic);
        set(AttributeMask::MAX_DEST_RD_ATOMIC, &|c| c.max_dest_rd_atomic = attributes.max_dest_rd_atomic);
        set(AttributeMask::DEST_QPN, &|c| c.dest_qpn = attributes.dest_qpn);
        if mask.contains(AttributeMask::RATE_LIMIT) {
            self.pacer.allow(attributes.rate_limit);
        }
    }

    fn set_draining(&mut self, on: bool, notify: bool) {
        let (draining, reported) = match &mut self.machine {
            Machine::Rc { requester, .. } => (&mut requester.draining, &mut requester.drained_reported),
            Machine::Uc { sender, .. } | Machine::Ud { sender, .. } => {
                (&mut sender.draining, &mut sender.drained_reported)
            }
        };
        *draining = on;
        *reported = !notify;
    }

    fn report_drained<H: Host>(&mut self, window: &mut Window, host: &mut H) {
        let (machine, mut cx) = self.split(Time::ZERO, window, host);
        match machine {
            Machine::Rc { requester, .. } => requester.report_drained(&mut cx),
            Machine::Uc { sender, .. } | Machine::Ud { sender, .. } => sender.retire(&mut cx),
        }
    }

    fn clear(&mut self, window: &mut Window) {
        match &mut self.machine {
            Machine::Rc { requester, responder } => {
                requester.clear(window);
                responder.clear();
            }
            Machine::Uc { sender, receiver } => {
                sender.clear();
                receiver.inbound.clear();
            }
            Machine::Ud { sender, inbound } => {
                sender.clear();
                inbound.clear();
            }
        }
    }
}
