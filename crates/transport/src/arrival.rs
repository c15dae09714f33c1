//! The rules for SENDs and WRITEs where they arrive, each written once.
//!
//! Four ways lead here: the ladder of the responder, the quick way for packets that are next in order,
//! packets of an unreliable connection, and messages that two queue pairs of one process do directly. Each
//! makes an [`Arrival`] out of what it has, asks these rules in the order that its service wants, and moves
//! the bytes itself.

use ferroce_wire::{
    DataPacket, DataVerb, Imm, PathMtu, PayloadRule, Request, Reth, Rkey, SendTail, UcRequest,
};

use crate::connection::{Connection, Context};
use crate::host::{Denied, Host};
use crate::inbound::{Inbound, MAX_MESSAGE, Message};
use crate::planted::{Bug, is_planted};
use crate::work::Access;

/// A packet of a SEND or WRITE, or a whole message that needs no packets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Arrival {
    pub(crate) verb: Verb,
    /// The message begins here.
    pub(crate) begins: bool,
    /// The message ends here.
    pub(crate) ends: bool,
    /// Bytes that arrive.
    pub(crate) len: u32,
    /// The receiver is asked to raise a completion event.
    pub(crate) solicited: bool,
}

/// What is done with a message.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Verb {
    /// It goes into a receive. The tail counts where the message ends.
    Send(SendTail),
    /// It goes where a key opens memory. The place counts where the message begins, the immediate data
    /// where it ends.
    Write(Reth, Option<Imm>),
}

/// Why an arriving message cannot be taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Fault {
    /// The packet does not continue the message, or begins another one inside it.
    Sequence,
    /// The queue pair does not let its peer do this.
    NotAllowed,
    /// The payload is not as long as path MTU or message allow.
    Length,
    /// The message is longer than the receive.
    TooLong,
    /// No receive is posted.
    NoReceive,
    /// The remote key does not open this memory, or cannot be taken out of use.
    Key(Denied),
    /// The receive itself names memory that cannot be written.
    Receive(Denied),
}

/// The place of a WRITE that goes on.
const ELSEWHERE: Reth = Reth { address: 0, rkey: Rkey(0), length: 0 };

impl Arrival {
    /// A packet of a reliable connection with its payload, if it is of a SEND or WRITE.
    pub(crate) fn of_request<'a>(request: &Request<&'a [u8]>, solicited: bool) -> Option<(Self, &'a [u8])> {
        let (verb, begins, ends, payload) = match request {
            Request::Send(segment, payload) => {
                let tail = segment.tail();
                (
                    Verb::Send(tail.unwrap_or(SendTail::Plain)),
                    segment.head().is_some(),
                    tail.is_some(),
                    *payload,
                )
            }
            Request::Write(segment, payload) => {
                let (head, tail) = (segment.head(), segment.tail());
                let verb = Verb::Write(head.unwrap_or(ELSEWHERE), tail.flatten());
                (verb, head.is_some(), tail.is_some(), *payload)
            }
            _ => return None,
        };
        Some((Self { verb, begins, ends, len: length(payload), solicited }, payload))
    }

    /// A packet of an unreliable connection with its payload.
    pub(crate) fn of_uc<'a>(request: &UcRequest<&'a [u8]>, solicited: bool) -> (Self, &'a [u8]) {
        let (verb, begins, ends, payload) = match request {
            UcRequest::Send(segment, payload) => {
                let tail = segment.tail();
                let verb = Verb::Send(tail.flatten().map_or(SendTail::Plain, SendTail::Immediate));
                (verb, segment.head().is_some(), tail.is_some(), *payload)
            }
            UcRequest::Write(segment, payload) => {
                let (head, tail) = (segment.head(), segment.tail());
                let verb = Verb::Write(head.unwrap_or(ELSEWHERE), tail.flatten());
                (verb, head.is_some(), tail.is_some(), *payload)
            }
        };
        (Self { verb, begins, ends, len: length(payload), solicited }, payload)
    }

    /// A packet of a plain SEND or WRITE; nothing for all others.
    #[inline]
    pub(crate) fn of_data(data: &DataPacket, payload: &[u8]) -> Option<Self> {
        let verb = match data.verb {
            DataVerb::Send(SendTail::Plain) => Verb::Send(SendTail::Plain),
            DataVerb::Write(reth, None) => Verb::Write(reth, None),
            _ => return None,
        };
        let DataPacket { begins, ends, solicited, .. } = *data;
        Some(Self { verb, begins, ends, len: length(payload), solicited })
    }

    /// A whole message, without packets.
    #[inline]
    pub(crate) const fn whole(verb: Verb, len: u32, solicited: bool) -> Self {
        Self { verb, begins: true, ends: true, len, solicited }
    }

    /// Whether all of the message arrives here.
    #[inline]
    pub(crate) const fn is_whole(&self) -> bool {
        self.begins && self.ends
    }

    /// IBA 9.7.4.1.4: the queue pair must have been opened for WRITEs; SENDs need a receive and nothing else.
    #[inline]
    pub(crate) fn check_allowed(&self, connection: &Connection) -> Result<(), Fault> {
        match self.verb {
            Verb::Send(_) => Ok(()),
            Verb::Write(..) if connection.lets(Access::REMOTE_WRITE) => Ok(()),
            Verb::Write(..) => Err(Fault::NotAllowed),
        }
    }

    /// Whether a receive is taken here (IBA 9.7.7.1): where a SEND begins, and where a WRITE with immediate
    /// data ends.
    #[inline]
    pub(crate) const fn takes_receive(&self) -> bool {
        match self.verb {
            Verb::Send(_) => self.begins,
            Verb::Write(_, imm) => self.ends && imm.is_some(),
        }
    }

    /// Whether the end of the message completes a receive. A plain WRITE does not, even if an earlier
    /// message has left one behind that it had taken.
    const fn completes_receive(&self) -> bool {
        match self.verb {
            Verb::Send(_) => true,
            Verb::Write(_, imm) => imm.is_some(),
        }
    }

    /// IBA 9.7.4.1.6, 9.8.2.2: full packets inside a message, and the rest at its end.
    #[inline]
    pub(crate) fn check_position(&self, mtu: PathMtu) -> Result<(), Fault> {
        let rule = PayloadRule::of_position(self.begins, self.ends);
        let fits = rule.permits_at(self.len as usize, mtu) || is_planted(Bug::ShortPacketTaken);
        if fits { Ok(()) } else { Err(Fault::Length) }
    }

    /// IBA 9.7.4.1.5: where a WRITE begins, its key must open the whole of it. A WRITE of nothing needs no
    /// key.
    #[inline]
    pub(crate) fn check_key<H: Host>(&self, connection: &Connection, host: &mut H) -> Result<(), Fault> {
        match self.verb {
            Verb::Write(Reth { address, rkey, length: length @ 1.. }, _) if self.begins => {
                let by = connection.accessor();
                host.check_remote(by, rkey, address, length, Access::REMOTE_WRITE).map_err(Fault::Key)
            }
            Verb::Write(..) | Verb::Send(_) => Ok(()),
        }
    }

    /// Where a SEND with invalidate ends, it takes a key out of use (IBA 9.4.1.1.3).
    #[inline]
    pub(crate) fn invalidate<H: Host>(&self, connection: &Connection, host: &mut H) -> Result<(), Fault> {
        match self.verb {
            Verb::Send(SendTail::Invalidate(rkey)) if self.ends => {
                host.invalidate(connection.accessor(), rkey).map_err(Fault::Key)
            }
            Verb::Send(_) | Verb::Write(..) => Ok(()),
        }
    }
}

impl Inbound {
    /// IBA 9.7.4.1.3: a message begins where none is arriving, and inside one only its own middle or last
    /// packet comes.
    #[inline]
    pub(crate) fn check_sequence(&self, arrival: &Arrival) -> Result<(), Fault> {
        let fits = match (self.message, arrival.verb) {
            (Message::None, _) => arrival.begins,
            (Message::Send { .. }, Verb::Send(_)) | (Message::Write { .. }, Verb::Write(..)) => {
                !arrival.begins
            }
            (Message::Send { .. }, Verb::Write(..)) | (Message::Write { .. }, Verb::Send(_)) => false,
        };
        if fits || is_planted(Bug::SegmentOrderUnchecked) { Ok(()) } else { Err(Fault::Sequence) }
    }

    /// IBA 9.7.4.1.6: a WRITE brings as much as it has announced, and no message is longer than
    /// [`MAX_MESSAGE`]. What a SEND may bring its receive says ([`check_room`](Self::check_room)).
    #[inline]
    pub(crate) fn check_announced(&self, arrival: &Arrival) -> Result<(), Fault> {
        let Verb::Write(reth, _) = arrival.verb else { return Ok(()) };
        let (Reth { length: remaining, .. }, total) = self.rest_of_write(arrival, reth)?;
        let fits = if arrival.ends {
            arrival.len == remaining || is_planted(Bug::WriteEndUnchecked)
        } else {
            arrival.len < remaining || is_planted(Bug::WriteGoesOn)
        };
        if fits && total <= MAX_MESSAGE { Ok(()) } else { Err(Fault::Length) }
    }

    /// IBA 9.7.4.1.6: a SEND fits into the receive that it has taken, or would take.
    pub(crate) fn check_room(&self, arrival: &Arrival) -> Result<(), Fault> {
        match arrival.verb {
            Verb::Send(_) => self.end_of_send(arrival.len as usize).map(drop),
            Verb::Write(..) => Ok(()),
        }
    }

    /// Places the bytes of a packet, and takes note of them.
    #[inline]
    pub(crate) fn place<H: Host>(
        &mut self,
        arrival: &Arrival,
        payload: &[u8],
        cx: &mut Context<'_, H>,
    ) -> Result<(), Fault> {
        match arrival.verb {
            Verb::Send(_) => self.place_send(payload, cx),
            Verb::Write(reth, _) => {
                let (Reth { address, rkey, .. }, _) = self.rest_of_write(arrival, reth)?;
                let is_last = arrival.ends && !arrival.begins;
                let forgotten = is_planted(Bug::AcknowledgedBeforePlacement) && is_last;
                if !payload.is_empty() && !forgotten {
                    let by = cx.connection.accessor();
                    cx.host.write_remote(by, rkey, address, payload).map_err(Fault::Key)?;
                }
                self.note_placed(arrival)
            }
        }
    }

    /// Takes note of bytes that were placed.
    #[inline]
    pub(crate) fn note_placed(&mut self, arrival: &Arrival) -> Result<(), Fault> {
        self.message = match arrival.verb {
            Verb::Send(_) => Message::Send { received: self.end_of_send(arrival.len as usize)? },
            Verb::Write(reth, _) => {
                let (Reth { address, rkey, length }, total) = self.rest_of_write(arrival, reth)?;
                let address = address.wrapping_add(arrival.len.into());
                Message::Write { rkey, address, remaining: length.saturating_sub(arrival.len), total }
            }
        };
        Ok(())
    }

    /// The message has arrived: completes its receive, if it took one.
    #[inline]
    pub(crate) fn end_message<H: Host>(&mut self, arrival: &Arrival, connection: &Connection, host: &mut H) {
        if !arrival.completes_receive() {
            self.forget_message();
            return;
        }
        let (imm, invalidated) = match arrival.verb {
            Verb::Send(SendTail::Plain) => return self.finish_plain(arrival.solicited, connection, host),
            Verb::Send(SendTail::Immediate(imm)) => (Some(imm), None),
            Verb::Send(SendTail::Invalidate(rkey)) => (None, Some(rkey)),
            Verb::Write(_, imm) => (imm, None),
        };
        self.finish_for(
            |completion| {
                completion.imm = imm.map(|imm| imm.0);
                completion.invalidated = invalidated;
                completion.solicited = arrival.solicited;
            },
            connection,
            host,
        );
    }

    /// What is left of a WRITE before this packet, and how long it is as a whole.
    #[inline]
    const fn rest_of_write(&self, arrival: &Arrival, reth: Reth) -> Result<(Reth, u32), Fault> {
        match self.message {
            _ if arrival.begins => Ok((reth, reth.length)),
            Message::Write { rkey, address, remaining, total } => {
                Ok((Reth { address, rkey, length: remaining }, total))
            }
            Message::None | Message::Send { .. } => Err(Fault::Sequence),
        }
    }
}

/// The length of a payload.
#[expect(clippy::cast_possible_truncation, reason = "a payload has at most 4096 bytes")]
#[inline]
const fn length(payload: &[u8]) -> u32 {
    payload.len() as u32
}
