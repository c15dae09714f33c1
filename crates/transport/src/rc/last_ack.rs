//! What a connection acknowledged last: enough to answer a peer that asks again when the queue pair is gone.

use ferroce_wire::{Aeth, Body, CreditCode, Msn, PKey, Packet, Psn, Qpn, Request, Response, Syndrome};

use crate::transmit::{Destination, PayloadSource, Transmit};

/// The last acknowledgement of a reliable connection. See [`QueuePair::last_ack`](crate::QueuePair::last_ack).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LastAck {
    pub(crate) peer: Qpn,
    pub(crate) pkey: PKey,
    pub(crate) psn: Psn,
    pub(crate) msn: Msn,
}

impl LastAck {
    /// The answer to a packet of the peer, if it repeats what was acknowledged (IBA 9.7.5.1.2: a duplicate SEND or WRITE is
    /// acknowledged again, with the last PSN). What a READ or an atomic found went with the queue pair.
    #[must_use]
    pub fn answer(&self, packet: &Packet<&[u8]>) -> Option<Transmit<'static>> {
        let Body::RcRequest(Request::Send(..) | Request::Write(..) | Request::AtomicWrite(..)) = packet.body
        else {
            return None;
        };
        if packet.psn.is_after(self.psn) || !packet.pkey.admits(self.pkey) {
            return None;
        }
        let syndrome = Syndrome::Ack(CreditCode::UNCOUNTED);
        let response = Response::Acknowledge(Aeth { syndrome, msn: self.msn });
        let mut packet = Packet::new(self.peer, self.psn, Body::RcResponse(response));
        packet.pkey = self.pkey;
        Some(Transmit { packet, payload: PayloadSource::Nothing, dest: Destination::Peer })
    }
}

#[cfg(test)]
mod tests {
    use ferroce_wire::{Reth, Rkey, Segment, SendTail};

    use super::*;

    #[test]
    fn only_what_was_acknowledged_is_acknowledged_again() {
        let last =
            LastAck { peer: Qpn::new(7), pkey: PKey::DEFAULT, psn: Psn::new(1), msn: Msn::default().next() };
        let send = |psn: Psn| {
            let bytes: &[u8] = b"abc";
            Packet::new(
                Qpn::new(9),
                psn,
                Body::RcRequest(Request::Send(Segment::Only((), SendTail::Plain), bytes)),
            )
        };
        for psn in [Psn::new(1), Psn::new(0), Psn::new(0xff_ffff)] {
            let answer = last.answer(&send(psn)).unwrap().packet;
            assert_eq!((answer.dest_qp, answer.psn), (Qpn::new(7), Psn::new(1)));
        }
        // It never came: to acknowledge it would be a lie.
        assert!(last.answer(&send(Psn::new(2))).is_none());
        let reth = Reth { address: 0, rkey: Rkey(1), length: 4 };
        let read = Packet::new(Qpn::new(9), Psn::new(1), Body::RcRequest(Request::Read(reth)));
        assert!(last.answer(&read).is_none());
    }
}
