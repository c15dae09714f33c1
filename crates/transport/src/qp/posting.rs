//! Posting work to a queue pair, and what is known about work that waits.

use ferroce_wire::Lkey;

use crate::host::Host;
use crate::inbound::Inbound;
use crate::posting::{PostError, PostListError, PostRules};
use crate::qp::{Hold, Machine, QueuePair};
use crate::queue::SendQueue;
use crate::state::State;
use crate::status::WorkKind;
use crate::time::{Time, sooner};
use crate::vendor::VendorCode;
use crate::window::Window;
use crate::work::{ReceiveRequest, SendRequest};

/// How things stand with a queue pair after a call.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Standing {
    /// Send requests that are posted and not completed.
    pub sends: u32,
    /// Receive requests of its own queue that are posted and not ended.
    pub receives: u32,
    /// When [`QueuePair::handle_timeout`] wants to be called.
    pub timeout: Option<Time>,
    /// Whether an acknowledgement waits for [`Acks::Send`](crate::Acks::Send).
    pub owes_ack: bool,
}

impl QueuePair {
    /// Send requests that are posted and not completed.
    #[must_use]
    pub fn sends_waiting(&self) -> u32 {
        match &self.machine {
            Machine::Rc { requester, .. } => requester.queue.len(),
            Machine::Uc { sender, .. } | Machine::Ud { sender, .. } => sender.queue.len(),
        }
    }

    /// Packets of requests that were sent on a reliable connection and are not answered yet.
    #[must_use]
    #[inline]
    pub fn packets_under_way(&self) -> u32 {
        match &self.machine {
            Machine::Rc { requester, .. } => requester.packets_under_way(),
            Machine::Uc { .. } | Machine::Ud { .. } => 0,
        }
    }

    /// Send requests that were posted, and that are done; then receives that were posted here, and that were taken.
    /// Since the queue pair was made; the numbers wrap.
    #[must_use]
    pub const fn totals(&self) -> ((u32, u32), (u32, u32)) {
        match &self.machine {
            Machine::Rc { requester, responder } => {
                (requester.queue.totals(), responder.inbound.queue.totals())
            }
            Machine::Uc { sender, receiver } => (sender.queue.totals(), receiver.inbound.queue.totals()),
            Machine::Ud { sender, inbound } => (sender.queue.totals(), inbound.queue.totals()),
        }
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

    pub(super) const fn queues(&self) -> (&SendQueue, &Inbound) {
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

    /// What a device looks at after each call, in one look.
    #[must_use]
    #[inline(always)]
    pub fn standing(&self) -> Standing {
        let (sends, inbound, retry, owes_ack) = match &self.machine {
            Machine::Rc { requester, responder } => {
                let retry = requester.retry.next_deadline();
                (&requester.queue, &responder.inbound, retry, responder.owes_ack())
            }
            Machine::Uc { sender, receiver } => (&sender.queue, &receiver.inbound, None, false),
            Machine::Ud { sender, inbound } => (&sender.queue, inbound, None, false),
        };
        let sends = sends.len();
        // A pause matters only while there is something to send.
        let timeout = match self.pacer.resume_at() {
            None => retry,
            pause => sooner(retry, pause.filter(|_| sends > 0)),
        };
        let taken = u32::from(self.connection.shared_queue.is_none() && inbound.has_taken());
        Standing { sends, receives: inbound.queue.len() + taken, timeout, owes_ack }
    }

    /// Counts what is under way in another window from now on: the peer has moved, or is reached another way.
    pub fn move_to_window(&mut self, from: &mut Window, to: &mut Window) {
        if let Machine::Rc { requester, .. } = &mut self.machine {
            requester.move_to_window(&self.connection, from, to);
        }
    }

    /// Posts a send request.
    ///
    /// # Errors
    /// Why it is not taken; nothing has changed.
    pub fn post_send<H: Host>(&mut self, request: &SendRequest<'_>, host: &mut H) -> Result<(), PostError> {
        self.post_sends(core::slice::from_ref(request), host).map_err(|refused| refused.error)
    }

    /// Posts send requests, in order.
    ///
    /// # Errors
    /// How many were taken, and why the next was not.
    #[inline]
    pub fn post_sends<H: Host>(
        &mut self,
        requests: &[SendRequest<'_>],
        host: &mut H,
    ) -> Result<(), PostListError> {
        let rules = self.rules();
        let depth = self.caps.max_send;
        let free = depth.saturating_sub(self.sends_waiting()) as usize;
        let flushes = matches!(self.state, State::Err | State::Sqe);
        for (index, request) in requests.iter().enumerate() {
            let length = rules.check_send(request).map_err(|error| PostListError::new(index, error))?;
            if flushes {
                let (id, kind) = (request.id, request.op.kind());
                let failed = self.connection.failure(id, VendorCode::PostedInError, kind);
                // The queue is empty: all that was in it was flushed.
                let queue = self.send_queue();
                let number = queue.head();
                queue.skip_one();
                host.complete_send(number, failed);
                continue;
            }
            if index >= free {
                return Err(PostListError::new(index, PostError::QueueFull { what: "send", depth }));
            }
            match &mut self.machine {
                Machine::Rc { requester, .. } => requester.post(request, length, &self.connection),
                Machine::Uc { sender, .. } | Machine::Ud { sender, .. } => {
                    sender.post(request, length, &self.connection);
                }
            }
        }
        Ok(())
    }

    /// Posts a receive request.
    ///
    /// # Errors
    /// Why it is not taken; nothing has changed.
    #[inline]
    pub fn post_receive<H: Host>(
        &mut self,
        request: &ReceiveRequest<'_>,
        host: &mut H,
    ) -> Result<(), PostError> {
        self.rules().check_receive(request)?;
        if self.state == State::Err {
            let completion =
                self.connection.failure(request.id, VendorCode::PostedInError, WorkKind::Receive);
            let queue = &mut self.inbound().queue;
            let (number, _) = queue.totals();
            queue.skip_one();
            host.complete_receive(number, completion);
            return Ok(());
        }
        if self.inbound().queue.push(request.id, request.sges) {
            Ok(())
        } else {
            Err(PostError::QueueFull { what: "receive", depth: self.caps.max_receive })
        }
    }

    /// Posts a receive request if all that is to be done is to put it into its queue. Whether it was; else nothing has changed, and
    /// [`post_receive`](Self::post_receive) says why, or ends it at once.
    #[inline(always)]
    pub fn post_receive_alone(&mut self, request: &ReceiveRequest<'_>) -> bool {
        // In ERR it ends at once.
        !matches!(self.state, State::Reset | State::Err)
            && self.connection.shared_queue.is_none()
            && self.inbound().queue.push(request.id, request.sges)
    }

    const fn send_queue(&mut self) -> &mut SendQueue {
        match &mut self.machine {
            Machine::Rc { requester, .. } => &mut requester.queue,
            Machine::Uc { sender, .. } | Machine::Ud { sender, .. } => &mut sender.queue,
        }
    }

    const fn inbound(&mut self) -> &mut Inbound {
        match &mut self.machine {
            Machine::Rc { responder, .. } => &mut responder.inbound,
            Machine::Uc { receiver, .. } => &mut receiver.inbound,
            Machine::Ud { inbound, .. } => inbound,
        }
    }
}
