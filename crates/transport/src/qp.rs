//! A queue pair: state, attributes, and the machines of its service.

use ferroce_wire::{Body, Grh, Lkey, PKey, Packet, PathMtu, Psn, QKey, Qpn, RnrTimer, Service};

use crate::completion::{Event, Status, WorkKind};
use crate::connection::{Connection, Context, Failed};
use crate::counters::Counters;
use crate::host::{DomainId, Host, SharedQueueId};
use crate::inbound::{Inbound, ReceiveMark};
use crate::posting::{PostError, PostRules};
use crate::queue::{ReceiveQueue, SendQueue};
use crate::rc::direct::{Direct, Ends};
use crate::rc::requester::Requester;
use crate::rc::resources::MAX_RESOURCES;
use crate::rc::responder::{RequestInfo, Responder};
use crate::state::{self, AttributeMask, Attributes, Limits, ModifyError, State};
use crate::time::Time;
use crate::transmit::{Acks, Transmit};
use crate::unreliable::{Sender, UcReceiver, handle_datagram};
use crate::window::Window;
use crate::work::{Access, ReceiveRequest, SendRequest};

/// How large the queues of a queue pair are. All their memory is taken at once.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caps {
    /// Send requests that may wait.
    pub max_send: u32,
    /// Receive requests that may wait.
    pub max_receive: u32,
    /// Pieces of a send request, at most 255.
    pub max_send_sge: u32,
    /// Pieces of a receive request, at most 255. With a shared queue: of its requests.
    pub max_receive_sge: u32,
    /// Bytes of an inline request.
    pub max_inline: u32,
}

/// What a queue pair is made of.
#[derive(Clone, Copy, Debug)]
pub struct QpConfig {
    /// Its number.
    pub qpn: Qpn,
    /// RC, UC or UD.
    pub service: Service,
    /// The protection domain of its memory.
    pub domain: DomainId,
    /// How large its queues are.
    pub caps: Caps,
    /// Whether every send request gives a completion.
    pub signal_all: bool,
    /// Where receives come from, if not from its own queue.
    pub shared_queue: Option<SharedQueueId>,
}

/// How far the queues of a queue pair have to go until a piece of memory is free.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Hold {
    /// The last send request that names it.
    send: Option<u32>,
    /// The last receive requests that name it.
    receive: Option<ReceiveMark>,
}

/// A queue pair.
///
/// See the [crate](crate) for the contract between a queue pair and its device.
#[derive(Debug)]
pub struct QueuePair {
    connection: Connection,
    service: Service,
    caps: Caps,
    state: State,
    counters: Counters,
    /// Whether a packet has arrived since RTR.
    established: bool,
    machine: Machine,
}

#[derive(Debug)]
#[expect(clippy::large_enum_variant, reason = "a queue pair is made once and never moved about")]
enum Machine {
    Rc { requester: Requester, responder: Responder },
    Uc { sender: Sender, receiver: UcReceiver },
    Ud { sender: Sender, inbound: Inbound },
}

impl QueuePair {
    /// The READ and atomic depths that a queue pair can have on each side.
    pub const LIMITS: Limits = Limits { max_rd_atomic: MAX_RESOURCES, max_dest_rd_atomic: MAX_RESOURCES };

    /// A queue pair in RESET.
    ///
    /// # Panics
    /// If the service is none of RC, UC and UD.
    #[must_use]
    pub fn new(config: QpConfig) -> Self {
        let caps = config.caps;
        let sends = SendQueue::new(caps.max_send, caps.max_send_sge as usize, caps.max_inline as usize);
        let own = if config.shared_queue.is_some() { 0 } else { caps.max_receive };
        let receives = ReceiveQueue::new(own, caps.max_receive_sge as usize);
        let inbound = Inbound::new(receives, caps.max_receive_sge as usize);
        let machine = match config.service {
            Service::Rc => {
                Machine::Rc { requester: Requester::new(sends), responder: Responder::new(inbound) }
            }
            Service::Uc => Machine::Uc { sender: Sender::new(sends), receiver: UcReceiver::new(inbound) },
            Service::Ud => Machine::Ud { sender: Sender::new(sends), inbound },
            other => panic!("{} is no service of a queue pair", other.name()),
        };
        let connection = Connection {
            qpn: config.qpn,
            domain: config.domain,
            shared_queue: config.shared_queue,
            signal_all: config.signal_all,
            dest_qpn: Qpn::default(),
            pkey: PKey::DEFAULT,
            qkey: QKey::default(),
            mtu: PathMtu::B4096,
            access: Access::empty(),
            timeout: 0,
            retry_count: 0,
            rnr_retry: 0,
            min_rnr_timer: RnrTimer::new(0),
            max_rd_atomic: 0,
            max_dest_rd_atomic: 0,
        };
        let (service, state) = (config.service, State::Reset);
        Self { connection, service, caps, state, counters: Counters::default(), established: false, machine }
    }

    /// Gives it another number, before anybody knows it by the first.
    pub const fn set_number(&mut self, qpn: Qpn) {
        self.connection.qpn = qpn;
    }

    /// Sets how long a datagram may be: those have no path MTU of their own, only their port's.
    pub const fn limit_datagrams(&mut self, mtu: PathMtu) {
        if matches!(self.service, Service::Ud) {
            self.connection.mtu = mtu;
        }
    }

    /// Its number.
    #[must_use]
    pub const fn qpn(&self) -> Qpn {
        self.connection.qpn
    }

    /// Its service.
    #[must_use]
    pub const fn service(&self) -> Service {
        self.service
    }

    /// Its state.
    #[must_use]
    pub const fn state(&self) -> State {
        self.state
    }

    /// What has happened to it.
    #[must_use]
    pub const fn counters(&self) -> &Counters {
        &self.counters
    }

    /// Its attributes as they are now: those of its service and state mean something.
    #[must_use]
    pub const fn attributes(&self) -> Attributes {
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
            .with_dest_qpn(connection.dest_qpn);
        now.current_state = self.state;
        now
    }

    /// How large its queues are.
    #[must_use]
    pub const fn caps(&self) -> &Caps {
        &self.caps
    }

    /// Send requests that are posted and not completed.
    #[must_use]
    pub fn sends_waiting(&self) -> u32 {
        match &self.machine {
            Machine::Rc { requester, .. } => requester.queue.len(),
            Machine::Uc { sender, .. } | Machine::Ud { sender, .. } => sender.queue.len(),
        }
    }

    /// Whether an acknowledgement waits for [`Acks::Send`].
    #[must_use]
    pub const fn owes_ack(&self) -> bool {
        match &self.machine {
            Machine::Rc { responder, .. } => responder.owes_ack(),
            Machine::Uc { .. } | Machine::Ud { .. } => false,
        }
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
        self.set_attributes(attributes);
        let previous = core::mem::replace(&mut self.state, next);
        match next {
            State::Reset => self.clear(window),
            State::Rtr => {
                self.established = false;
                match &mut self.machine {
                    Machine::Rc { responder, .. } => responder.start_at(attributes.rq_psn, &self.connection),
                    Machine::Uc { receiver, .. } => receiver.start_at(attributes.rq_psn),
                    Machine::Ud { .. } => {}
                }
            }
            State::Sqd if attributes.mask.contains(AttributeMask::MAX_DEST_RD_ATOMIC) => {
                if let Machine::Rc { responder, .. } = &mut self.machine {
                    responder.resources.reset(attributes.max_dest_rd_atomic);
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
            State::Err => self.flush_all(window, host),
            State::Init | State::Sqd | State::Sqe => {}
        }
        Ok(())
    }

    fn set_attributes(&mut self, attributes: &Attributes) {
        let mask = attributes.mask;
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

    /// The machines, and the world for one call of them.
    fn split<'a, H>(
        &'a mut self,
        now: Time,
        window: &'a mut Window,
        host: &'a mut H,
    ) -> (&'a mut Machine, Context<'a, H>) {
        let Self { connection, counters, machine, .. } = self;
        (machine, Context { now, connection, counters, window, host })
    }

    /// What a request is checked against before it is taken. It changes only with [`modify`](Self::modify)
    /// and when the queue pair fails, so a device may keep a copy where posting does not meet the machine.
    #[must_use]
    pub const fn rules(&self) -> PostRules {
        PostRules {
            state: self.state,
            service: self.service,
            caps: self.caps,
            path_mtu: self.connection.mtu,
            max_rd_atomic: self.connection.max_rd_atomic,
            shared_queue: self.connection.shared_queue.is_some(),
        }
    }

    /// How far the queues have to go until no work that is posted now names memory of this key. It
    /// looks at all of it; `None` if none does.
    #[must_use]
    pub fn hold_on(&self, lkey: Lkey) -> Option<Hold> {
        let (sends, inbound) = self.queues();
        let hold = Hold { send: sends.last_use(lkey), receive: inbound.last_use(lkey) };
        (hold != Hold::default()).then_some(hold)
    }

    /// Whether the queues have not gone that far yet.
    #[must_use]
    pub fn holds(&self, hold: &Hold) -> bool {
        let (sends, inbound) = self.queues();
        hold.send.is_some_and(|number| sends.get(number).is_some())
            || hold.receive.is_some_and(|number| inbound.still_has(number))
    }

    const fn queues(&self) -> (&SendQueue, &Inbound) {
        match &self.machine {
            Machine::Rc { requester, responder } => (&requester.queue, &responder.inbound),
            Machine::Uc { sender, receiver } => (&sender.queue, &receiver.inbound),
            Machine::Ud { sender, inbound } => (&sender.queue, inbound),
        }
    }

    /// Receive requests of its own queue that a message has taken and not ended.
    #[must_use]
    pub fn receives_taken(&self) -> u32 {
        u32::from(self.connection.shared_queue.is_none() && self.queues().1.has_taken())
    }

    /// Receive requests that are posted and not taken.
    #[must_use]
    pub const fn receives_waiting(&self) -> u32 {
        match &self.machine {
            Machine::Rc { responder, .. } => responder.inbound.queue.len(),
            Machine::Uc { receiver, .. } => receiver.inbound.queue.len(),
            Machine::Ud { inbound, .. } => inbound.queue.len(),
        }
    }

    /// Counts what is under way in another window from now on: the peer has moved.
    pub const fn move_to_window(&self, from: &mut Window, to: &mut Window) {
        if let Machine::Rc { requester, .. } = &self.machine {
            from.change_in_flight(requester.in_flight, 0);
            to.change_in_flight(0, requester.in_flight);
        }
    }

    /// Posts a send request.
    ///
    /// # Errors
    /// Why it is not taken; nothing has changed.
    pub fn post_send<H: Host>(&mut self, request: &SendRequest<'_>, host: &mut H) -> Result<(), PostError> {
        let length = self.rules().check_send(request)?;
        if self.sends_waiting() >= self.caps.max_send {
            return Err(PostError::QueueFull { what: "send", depth: self.caps.max_send });
        }
        if matches!(self.state, State::Err | State::Sqe) {
            host.complete_send(self.connection.completion(request.id, Status::Flushed, request.op.kind()));
            return Ok(());
        }
        match &mut self.machine {
            Machine::Rc { requester, .. } => requester.post(request, length, &self.connection),
            Machine::Uc { sender, .. } | Machine::Ud { sender, .. } => {
                sender.post(request, length, &self.connection);
            }
        }
        Ok(())
    }

    /// Posts a receive request.
    ///
    /// # Errors
    /// Why it is not taken; nothing has changed.
    pub fn post_receive<H: Host>(
        &mut self,
        request: &ReceiveRequest<'_>,
        host: &mut H,
    ) -> Result<(), PostError> {
        self.rules().check_receive(request)?;
        if self.state == State::Err {
            let completion = self.connection.completion(request.id, Status::Flushed, WorkKind::Receive);
            host.complete_receive(completion);
            return Ok(());
        }
        if self.inbound().queue.push(request.id, request.sges) {
            Ok(())
        } else {
            Err(PostError::QueueFull { what: "receive", depth: self.caps.max_receive })
        }
    }

    const fn inbound(&mut self) -> &mut Inbound {
        match &mut self.machine {
            Machine::Rc { responder, .. } => &mut responder.inbound,
            Machine::Uc { receiver, .. } => &mut receiver.inbound,
            Machine::Ud { inbound, .. } => inbound,
        }
    }

    /// Takes in a packet for this queue pair whose ICRC was found right. `prefix` is what a
    /// receiver of a datagram finds before it: the forty bytes with its addresses.
    pub fn handle_packet<H: Host>(
        &mut self,
        now: Time,
        packet: &Packet<&[u8]>,
        prefix: Option<&[u8; Grh::LEN]>,
        window: &mut Window,
        host: &mut H,
    ) {
        if !packet.pkey.admits(self.connection.pkey) {
            self.counters.wrong_service += 1;
            return;
        }
        self.counters.congestion_marks += u64::from(packet.fecn);
        let state = self.state;
        let takes = match packet.body {
            Body::RcResponse(_) => state.handles_responses(),
            Body::Congestion => true,
            _ => state.handles_requests(),
        };
        if !takes {
            self.counters.wrong_state += 1;
            return;
        }
        let of_connection = matches!(
            (self.service, &packet.body),
            (Service::Rc, Body::RcRequest(_) | Body::RcResponse(_)) | (Service::Uc, Body::Uc(_))
        );
        if of_connection {
            self.establish(host);
        }
        let (machine, mut cx) = self.split(now, window, host);
        let info =
            RequestInfo { psn: packet.psn, ack_request: packet.ack_request, solicited: packet.solicited };
        let result = match (machine, &packet.body) {
            (Machine::Rc { responder, .. }, Body::RcRequest(request)) => {
                responder.handle_request(info, request, &mut cx)
            }
            (Machine::Rc { requester, .. }, Body::RcResponse(response)) => {
                requester.handle_response(packet.psn, response, &mut cx)
            }
            (Machine::Uc { receiver, .. }, Body::Uc(request)) => {
                receiver.handle(packet.psn, packet.solicited, request, &mut cx)
            }
            (Machine::Ud { inbound, .. }, Body::Ud(datagram)) => {
                let prefix = prefix.unwrap_or(&[0; Grh::LEN]);
                handle_datagram(inbound, datagram, packet.solicited, prefix, &mut cx)
            }
            (_, Body::Congestion) => {
                cx.counters.congestion_notifications += 1;
                Ok(())
            }
            _ => {
                cx.counters.wrong_service += 1;
                Ok(())
            }
        };
        if result == Err(Failed) {
            self.enter_error(window, host);
        }
    }

    /// IBA 10.3.1.3: the first packet tells a passive side that its peer is ready.
    fn establish<H: Host>(&mut self, host: &mut H) {
        if !self.established {
            self.established = true;
            if self.state == State::Rtr {
                host.event(self.connection.qpn, Event::Established);
            }
        }
    }

    /// The next packet to send, if there is one. Call it until there is none.
    pub fn poll_transmit<H: Host>(
        &mut self,
        now: Time,
        acks: Acks,
        window: &mut Window,
        host: &mut H,
    ) -> Option<Transmit<'_>> {
        if let Machine::Rc { .. } = self.machine {
            return self.poll_rc(now, acks, window, host);
        }
        if !self.state.sends_requests() {
            return None;
        }
        let (machine, mut cx) = self.split(now, window, host);
        let sender = match machine {
            Machine::Uc { sender, .. } | Machine::Ud { sender, .. } => sender,
            Machine::Rc { .. } => return None,
        };
        match sender.poll(&mut cx) {
            Err(Failed) => {
                self.enter_send_error(window, host);
                None
            }
            Ok(None) => None,
            Ok(Some(chosen)) => match &self.machine {
                Machine::Uc { sender, .. } | Machine::Ud { sender, .. } => Some(sender.transmit(chosen)),
                Machine::Rc { .. } => None,
            },
        }
    }

    fn poll_rc<H: Host>(
        &mut self,
        now: Time,
        acks: Acks,
        window: &mut Window,
        host: &mut H,
    ) -> Option<Transmit<'_>> {
        let sends = self.state.sends_requests();
        let (machine, mut cx) = self.split(now, window, host);
        let Machine::Rc { requester, responder } = machine else { return None };
        let chosen = match responder.poll(acks, &mut cx) {
            Ok(Some(response)) => return Some(response),
            Ok(None) if sends => requester.poll(&mut cx),
            Ok(None) => return None,
            Err(Failed) => Err(Failed),
        };
        match chosen {
            Err(Failed) => {
                self.enter_error(window, host);
                self.poll_refusal(now, window, host)
            }
            Ok(None) => None,
            Ok(Some(chosen)) => match &self.machine {
                Machine::Rc { requester, .. } => Some(requester.transmit(chosen)),
                Machine::Uc { .. } | Machine::Ud { .. } => None,
            },
        }
    }

    /// The NAK with which a failed responder takes its leave.
    fn poll_refusal<H: Host>(
        &mut self,
        now: Time,
        window: &mut Window,
        host: &mut H,
    ) -> Option<Transmit<'static>> {
        let (machine, mut cx) = self.split(now, window, host);
        match machine {
            Machine::Rc { responder, .. } => responder.poll(Acks::Send, &mut cx).ok().flatten(),
            Machine::Uc { .. } | Machine::Ud { .. } => None,
        }
    }

    /// Does posted work directly at `peer`, which is in the same process and connected to this
    /// queue pair; at most `limit` messages, and no more after so many `bytes`. How many messages.
    /// What cannot be done directly is left for [`poll_transmit`](Self::poll_transmit).
    pub fn execute_directly<D: Direct>(
        &mut self,
        peer: &mut Self,
        direct: &mut D,
        limit: u32,
        bytes: u64,
    ) -> u32 {
        let together = self.state == State::Rts
            && peer.state.handles_requests()
            && peer.connection.dest_qpn == self.connection.qpn
            && self.connection.dest_qpn == peer.connection.qpn
            && self.connection.mtu == peer.connection.mtu
            && peer.connection.pkey.admits(self.connection.pkey);
        if !together || self.sends_waiting() == 0 {
            return 0;
        }
        peer.establish(&mut direct.responder());
        let (Machine::Rc { requester, .. }, Machine::Rc { responder, .. }) =
            (&mut self.machine, &mut peer.machine)
        else {
            return 0;
        };
        let (asking, answering) = (&self.connection, &peer.connection);
        let mut ends = Ends { requester, asking, responder, answering, direct };
        let mut done = 0;
        if ends.are_idle() {
            let mut moved = 0;
            while done < limit
                && moved < bytes
                && let Some(length) = ends.next()
            {
                moved += u64::from(length);
                done += 1;
            }
        }
        self.counters.direct_requests += u64::from(done);
        peer.counters.direct_responses += u64::from(done);
        done
    }

    /// Does what is due at this time.
    pub fn handle_timeout<H: Host>(&mut self, now: Time, window: &mut Window, host: &mut H) {
        let (machine, mut cx) = self.split(now, window, host);
        if let Machine::Rc { requester, .. } = machine
            && requester.handle_timeout(&mut cx) == Err(Failed)
        {
            self.enter_error(window, host);
        }
    }

    /// When [`handle_timeout`](Self::handle_timeout) wants to be called.
    #[must_use]
    pub fn poll_timeout(&self) -> Option<Time> {
        match &self.machine {
            Machine::Rc { requester, .. } => requester.retry.next_deadline(),
            Machine::Uc { .. } | Machine::Ud { .. } => None,
        }
    }

    /// Gives all timers their full time again: for a device that was kept from running, so
    /// that it does not take its own absence for the peer's.
    pub fn restart_timers<H: Host>(&mut self, now: Time, window: &mut Window, host: &mut H) {
        let (machine, cx) = self.split(now, window, host);
        if let Machine::Rc { requester, .. } = machine {
            requester.restart_timers(&cx);
        }
    }

    /// Something failed for good: the queue pair is in error, and all its work with it.
    fn enter_error<H: Host>(&mut self, window: &mut Window, host: &mut H) {
        if self.state != State::Err {
            self.state = State::Err;
            self.flush_all(window, host);
        }
    }

    /// A send of UC or UD failed: the sending half stops, the receiving half goes on (IBA 10.3.1.6).
    fn enter_send_error<H: Host>(&mut self, window: &mut Window, host: &mut H) {
        self.state = State::Sqe;
        let (machine, mut cx) = self.split(Time::ZERO, window, host);
        if let Machine::Uc { sender, .. } | Machine::Ud { sender, .. } = machine {
            sender.flush(&mut cx);
        }
    }

    /// IBA 10.3.1.7: whatever is posted ends as flushed.
    fn flush_all<H: Host>(&mut self, window: &mut Window, host: &mut H) {
        let (machine, mut cx) = self.split(Time::ZERO, window, host);
        match machine {
            Machine::Rc { requester, responder } => {
                requester.flush(&mut cx);
                responder.inbound.flush(&mut cx);
                responder.silence();
            }
            Machine::Uc { sender, receiver } => {
                sender.flush(&mut cx);
                receiver.inbound.flush(&mut cx);
            }
            Machine::Ud { sender, inbound } => {
                sender.flush(&mut cx);
                inbound.flush(&mut cx);
            }
        }
        if cx.connection.shared_queue.is_some() {
            cx.host.event(cx.connection.qpn, Event::LastWorkRequestReached);
        }
    }
}
