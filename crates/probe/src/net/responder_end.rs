//! The responder over a queue pair.

use std::collections::{BTreeMap, HashMap};
use std::net::IpAddr;
use std::time::Duration;

use ferroce_verbs::cm::DatagramService;
use ferroce_verbs::{Completion, Context, Reply, ReplyPort, Status};

use super::QKEY;
use super::clock::{CardClock, ProbeClock};
use super::end_error::ProbeEndError;
use super::link::{Datagram, Link, News};
use crate::counters::ResponderCounters;
use crate::packet::{Packet, Ports};
use crate::prober::Arrival;
use crate::report::Peer;
use crate::responder::{Answer, Responder, ResponderConfig, Ticket};
use crate::stamp::Stamp;

/// Ways back to probers that are kept; when there are more, all are made anew.
const REPLIES: usize = 1024;

/// A responder with a queue pair of its own, which probers find by asking its card.
///
/// ACKs leave from the port that their probe came from, so that networks that choose ways by ports choose for
/// both directions alike.
#[derive(Debug)]
pub struct ResponderEnd<C = CardClock> {
    link: Link<C>,
    answers: Answers,
    _service: Option<DatagramService>,
}

/// All but the queue pair.
#[derive(Debug)]
struct Answers {
    responder: Responder,
    replies: HashMap<WayBack, Reply>,
    /// First ACKs whose sends are not done, by the number of the send.
    first: HashMap<u64, First>,
    next: u64,
    unsure: u64,
}

/// What a way back to a prober follows from.
type WayBack = (Peer, u16, IpAddr, u8, u32);

#[derive(Debug)]
struct First {
    ticket: Ticket,
    reply: Reply,
    /// Whether T3 means something.
    is_sure: bool,
}

impl ResponderEnd {
    /// A responder on this address of a card; probers find it under the port, if there is one.
    ///
    /// # Errors
    /// The card does not give what it needs, or another responder has the port.
    pub fn open(
        context: &Context,
        address: IpAddr,
        service: Option<u16>,
        config: ResponderConfig,
    ) -> Result<Self, ProbeEndError> {
        Self::open_by(context, address, service, config, CardClock)
    }
}

impl<C: ProbeClock> ResponderEnd<C> {
    /// The same, by another clock.
    ///
    /// # Errors
    /// As above.
    #[doc(hidden)]
    pub fn open_by(
        context: &Context,
        address: IpAddr,
        service: Option<u16>,
        config: ResponderConfig,
        clock: C,
    ) -> Result<Self, ProbeEndError> {
        let link = Link::open(context, address, clock)?;
        let service = service.map(|port| DatagramService::bind(&link.qp, port, QKEY, &[])).transpose()?;
        let answers = Answers {
            responder: Responder::new(config),
            replies: HashMap::new(),
            first: HashMap::new(),
            next: 0,
            unsure: 0,
        };
        Ok(Self { link, answers, _service: service })
    }

    /// The number of its queue pair, for probers that cannot ask.
    #[must_use]
    pub fn qpn(&self) -> u32 {
        self.link.qp.qpn().get()
    }

    /// Answers everything that came.
    ///
    /// # Errors
    /// The queue pair does not work any more.
    pub fn turn(&mut self) -> Result<(), ProbeEndError> {
        let Self { link, answers, .. } = self;
        link.turn(|link, news, now| {
            match news {
                News::Came(done, datagram) => answers.came(link, &done, &datagram, now),
                News::Sent(done) => answers.sent(link, &done),
            }
            Ok(())
        })?;
        self.answers.responder.advance(self.link.clock.now());
        Ok(())
    }

    /// Sleeps until something came, or no longer than this; then [`turn`](Self::turn).
    pub fn sleep(&self, limit: Duration) {
        let due = self.answers.responder.wake_at().map_or(limit, |due| self.link.clock.until(due).min(limit));
        self.link.sleep(due);
    }

    /// What came, by kind.
    #[must_use]
    pub const fn counters(&self) -> &ResponderCounters {
        self.answers.responder.counters()
    }

    /// Stamps that were taken while the clock was set: no second ACK follows.
    #[must_use]
    pub const fn unsure_stamps(&self) -> u64 {
        self.answers.unsure
    }

    /// How many probes of each source and port were answered since this was asked last.
    pub fn take_tallies(&mut self) -> BTreeMap<(IpAddr, u16), u64> {
        self.answers.responder.take_tallies()
    }
}

impl Answers {
    fn came<C: ProbeClock>(
        &mut self,
        link: &mut Link<C>,
        done: &Completion,
        datagram: &Datagram,
        now: Stamp,
    ) {
        let stamp = link.clock.stamp_of(done);
        self.unsure += u64::from(stamp.is_none());
        let (at, source) = stamp.unwrap_or((now, crate::StampSource::AfterCall));
        let arrival = Arrival { bytes: datagram.bytes(), from: datagram.from, at, source };
        let Some(answer) = self.responder.take(&arrival, now) else { return };
        match self.reply(link, done, datagram) {
            Some(reply) => self.send_first(link, &answer, reply, stamp.is_some()),
            None => self.responder.send_failed(answer.ticket),
        }
    }

    fn send_first<C: ProbeClock>(
        &mut self,
        link: &mut Link<C>,
        answer: &Answer,
        reply: Reply,
        is_sure: bool,
    ) {
        let id = self.next;
        self.next += 1;
        let packet = leaving(&reply, answer.packet);
        match link.send(&reply.address, reply.qpn.get(), id, &packet) {
            Ok(()) => {
                self.first.insert(id, First { ticket: answer.ticket, reply, is_sure });
            }
            Err(_) => self.responder.send_failed(answer.ticket),
        }
    }

    /// A send is done: that of a first ACK is followed by the second one.
    fn sent<C: ProbeClock>(&mut self, link: &mut Link<C>, done: &Completion) {
        let Some(First { ticket, reply, is_sure }) = self.first.remove(&done.id) else { return };
        if done.status != Status::Success {
            self.responder.send_failed(ticket);
            return;
        }
        let Some((at, _)) = link.clock.stamp_of(done).filter(|_| is_sure) else {
            // The machine gives the stamp up by itself.
            self.unsure += u64::from(is_sure);
            return;
        };
        let Some(answer) = self.responder.sent(ticket, at) else { return };
        let id = self.next;
        self.next += 1;
        // A second ACK that is not taken is as one that is lost, which probers expect.
        let _ = link.send(&reply.address, reply.qpn.get(), id, &leaving(&reply, answer.packet));
    }

    fn reply<C>(&mut self, link: &Link<C>, done: &Completion, datagram: &Datagram) -> Option<Reply> {
        let Datagram { header, from, .. } = datagram;
        let port = done.source_port.map_or(0, std::num::NonZeroU16::get);
        let key = (*from, port, header.dest.ip(), header.traffic_class, header.flow_label);
        if let Some(known) = self.replies.get(&key) {
            return Some(known.clone());
        }
        let reply = link.qp.reply_to(done, header, ReplyPort::Theirs).ok()?;
        if self.replies.len() >= REPLIES {
            self.replies.clear();
        }
        self.replies.insert(key, reply.clone());
        Some(reply)
    }
}

/// The ACK with the port that it really leaves from.
fn leaving(reply: &Reply, packet: Packet) -> Packet {
    let ports = packet.ports.map(|ports| Ports { sent: reply.address.source_port(), ..ports });
    Packet { ports, ..packet }
}
