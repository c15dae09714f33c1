//! What stands in the queues of a queue pair, and what it waits for: for records of what happens.

use ferroce_wire::Psn;

use crate::qp::{Machine, QueuePair};
use crate::queue::Receive;
use crate::rc::requester::{Requester, cost, packets_at_once, packets_between};
use crate::time::Time;
use crate::window::Window;
use crate::work::{Data, SendFlags, SendOp, SendRequest, Sge};

/// A send that is posted and not over.
#[derive(Clone, Copy, Debug)]
pub struct PostedSend<'a> {
    /// Its number in the queue.
    pub number: u32,
    /// What was posted.
    pub request: SendRequest<'a>,
    /// Bytes of its message.
    pub length: u32,
    /// Packets that it has, or that its answer has.
    pub packets: u32,
}

/// What the next send waits for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Obstacle {
    /// Too much is under way to the same receiver.
    Window,
    /// The peer has no receive left, by its own count.
    Credit,
    /// The peer said that it has no receive.
    ReceiverNotReady,
    /// The rate limit.
    Rate,
    /// As many READs and atomics are under way as may be.
    ReadDepth,
    /// Earlier READs and atomics, by its fence.
    Fence,
    /// The send queue is being drained.
    Drain,
    /// Everything was sent, and not answered yet.
    Answer,
    /// The queue pair may not send in its state.
    State,
}

/// A send that waits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Waiting {
    /// Its number in the queue.
    pub number: u32,
    /// What for.
    pub obstacle: Obstacle,
    /// Until when, if that is known.
    pub until: Option<Time>,
}

/// A timer whose time has come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Alarm {
    /// No answer came in time.
    Acknowledgement,
    /// The last packets may be lost.
    Tail,
    /// The pause is over that a peer without a receive asked for.
    ReceiverNotReady,
    /// The rate limit lets the next packet out.
    Rate,
}

/// A timer whose time has come, and what it is about.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Due {
    /// Which one.
    pub alarm: Alarm,
    /// The oldest packet that is not answered.
    pub psn: Psn,
    /// The work of that packet.
    pub number: u32,
    /// How often this happened in a row, this time included, and how often it may.
    pub tries: (u8, u8),
}

impl QueuePair {
    /// Whether every send has a completion.
    #[must_use]
    pub const fn signals_all(&self) -> bool {
        self.connection.signal_all
    }

    /// The number that the next send gets.
    #[must_use]
    pub const fn next_send(&self) -> u32 {
        self.totals().0.0
    }

    /// The number of the first packet of the oldest send that is not over; if there is none, of the next.
    #[must_use]
    pub fn oldest_psn(&self) -> Psn {
        match &self.machine {
            Machine::Rc { requester, .. } => {
                let oldest = requester.queue.get(requester.queue.head());
                oldest.map_or(requester.next_psn, |work| work.first_psn)
            }
            Machine::Uc { sender, .. } | Machine::Ud { sender, .. } => sender.oldest_psn(),
        }
    }

    /// How many packets a send of so many bytes has, or its answer.
    #[must_use]
    pub const fn packets_of(&self, op: &SendOp, length: u32) -> u32 {
        self.connection.packets_of(op, length)
    }

    /// The number of the oldest send that is not over.
    #[must_use]
    pub const fn oldest_send(&self) -> u32 {
        self.totals().0.1
    }

    /// The number that the next receive of its own queue gets.
    #[must_use]
    pub const fn next_receive(&self) -> u32 {
        self.totals().1.0
    }

    /// Sends that are posted and not over, oldest first.
    pub fn posted_sends(&self) -> impl Iterator<Item = PostedSend<'_>> {
        let oldest = self.oldest_send();
        (0..self.sends_waiting()).filter_map(move |ahead| self.posted_send(oldest.wrapping_add(ahead)))
    }

    /// The send with this number, if it is not over.
    #[must_use]
    pub fn posted_send(&self, number: u32) -> Option<PostedSend<'_>> {
        let (queue, _) = self.queues();
        let work = queue.get(number)?;
        let data: Data<'_> = queue.data(number);
        let request = SendRequest { id: work.id, op: work.op, data, flags: work.flags, dest: work.dest };
        Some(PostedSend { number, request, length: work.length, packets: work.packets })
    }

    /// Receives of its own queue that are posted and not taken, oldest first: number, name and pieces.
    pub fn posted_receives(&self) -> impl Iterator<Item = (u32, u64, &[Sge])> {
        self.queues().1.queue.iter()
    }

    /// The receive that a message has taken and not ended, if so.
    #[must_use]
    pub fn taken_receive(&self) -> Option<&Receive> {
        let (_, inbound) = self.queues();
        inbound.has_taken().then(|| inbound.receive())
    }

    /// How many receives messages have taken so far, and the last of them.
    #[must_use]
    pub const fn last_taken(&self) -> (u32, &Receive) {
        let (_, inbound) = self.queues();
        (inbound.takes(), inbound.receive())
    }

    /// What the next send waits for; none if there is none, or if it may leave now.
    #[must_use]
    pub fn waits(&self, now: Time, window: &Window) -> Option<Waiting> {
        let oldest = self.oldest_send();
        if self.sends_waiting() == 0 {
            return None;
        }
        let wait = |obstacle, until| Some(Waiting { number: oldest, obstacle, until });
        if !self.state().sends_requests() {
            return wait(Obstacle::State, None);
        }
        let pause = self.pacer.resume_at().filter(|resume| *resume > now);
        match &self.machine {
            Machine::Rc { requester, .. } => {
                let (number, obstacle, until) = self.waits_for(requester, window, pause)?;
                Some(Waiting { number, obstacle, until })
            }
            Machine::Uc { sender, .. } | Machine::Ud { sender, .. } => {
                if sender.draining && sender.is_between_messages() {
                    return wait(Obstacle::Drain, None);
                }
                wait(Obstacle::Rate, Some(pause?))
            }
        }
    }

    /// Whether all that was posted to a connection has left, and nothing holds up what is posted next: if
    /// [`waits`](Self::waits) says anything, it is that answers have to come.
    #[must_use]
    #[inline]
    pub fn has_sent_all(&self) -> bool {
        match &self.machine {
            Machine::Rc { requester, .. } => {
                self.state().sends_requests()
                    && requester.retry.receiver_ready_at().is_none()
                    && requester.queue.get(requester.cursor.work).is_none()
            }
            _ => false,
        }
    }

    /// In the order in which the requester asks.
    fn waits_for(
        &self,
        requester: &Requester,
        window: &Window,
        pause: Option<Time>,
    ) -> Option<(u32, Obstacle, Option<Time>)> {
        let (retry, number) = (&requester.retry, requester.cursor.work);
        if let Some(until) = retry.receiver_ready_at() {
            return Some((number, Obstacle::ReceiverNotReady, Some(until)));
        }
        let answer = (requester.queue.head(), Obstacle::Answer, retry.answer_due_at());
        let Some(work) = requester.queue.get(number) else { return Some(answer) };
        let is_blocked = requester.blocked.is_some_and(|(blocked, _)| blocked == number);
        if is_blocked || (retry.is_cautious() && requester.is_waiting()) {
            return Some(answer);
        }
        let done = packets_between(work.first_psn, requester.cursor.psn);
        if requester.cursor.psn == requester.high && done == 0 {
            if requester.draining {
                return Some((number, Obstacle::Drain, None));
            }
            if work.flags.contains(SendFlags::FENCE) && requester.reads > 0 {
                return Some((number, Obstacle::Fence, None));
            }
        }
        let depth = u32::from(self.connection.max_rd_atomic);
        if work.op.is_read_or_atomic() && requester.reads >= depth {
            return Some((number, Obstacle::ReadDepth, None));
        }
        if requester.is_limited(work) && requester.is_waiting() && requester.asked_from.is_some() {
            return Some((number, Obstacle::Credit, None));
        }
        if pause.is_some() {
            return Some((number, Obstacle::Rate, pause));
        }
        let is_read = matches!(work.op, SendOp::Read(_)) && work.read_chunk == 0;
        let packets = if is_read { 1 } else { packets_at_once(work, done) };
        let fits = work.packets == 0 || window.allows(cost(work, done, packets, &self.connection, window));
        (!fits).then_some((number, Obstacle::Window, None))
    }

    /// The timer for which [`handle_timeout`](Self::handle_timeout) is about to be called.
    #[must_use]
    pub fn due(&self, now: Time) -> Option<Due> {
        if let Machine::Rc { requester, .. } = &self.machine
            && let Some((alarm, tries)) = requester.retry.due(now, &self.connection)
        {
            return Some(Due { alarm, psn: requester.una, number: requester.queue.head(), tries });
        }
        let is_over = self.pacer.resume_at().is_some_and(|resume| resume <= now);
        let due = Due { alarm: Alarm::Rate, psn: Psn::default(), number: self.oldest_send(), tries: (0, 0) };
        is_over.then_some(due)
    }
}
