//! Answers that were never given.

use ferroce_wire::{
    Aeth, AtomicAckEth, Body, CreditCode, Msn, NakCode, Psn, ReadSegment, Response, RnrTimer, Syndrome,
};

use super::{Liar, Lie, Said, When};

impl Liar {
    /// An answer in the name of `by` to a request of its peer that is just on its way.
    pub(super) fn answer(&mut self, by: usize, request: &Said<'_>, lies: &mut Vec<Lie>) {
        let aeth = self.any_aeth();
        let response = match self.dice.below(8) {
            0..=3 => Response::Acknowledge(aeth),
            4 => Response::AtomicAcknowledge(aeth, AtomicAckEth { original: self.dice.word() }),
            _ => self.any_read(by, aeth),
        };
        let psn = self.psn_near(request.psn);
        let packet = self.to_peer(by, psn, Body::RcResponse(response));
        let when = When::Left(self.dice.log_between(10, 50_000));
        self.say(by, &packet, when, lies);
    }

    /// Another answer in the place of one that `by` is just giving, or behind it.
    pub(super) fn other_answer(&mut self, by: usize, honest: &Said<'_>, lies: &mut Vec<Lie>) {
        let Body::RcResponse(mut response) = honest.body else { return };
        let aeth = self.any_aeth();
        let mtu = self.victims[by].mtu;
        match &mut response {
            Response::Read(segment, payload) => match self.dice.below(4) {
                0 => *payload = self.rubbish(0, mtu),
                1 => *segment = self.any_segment(aeth),
                2 => *payload = &super::RUBBISH[..payload.len()],
                _ => response = Response::AtomicAcknowledge(aeth, AtomicAckEth { original: 1 }),
            },
            Response::AtomicAcknowledge(_, eth) if self.dice.one_in(2) => eth.original ^= 1,
            Response::AtomicAcknowledge(..) => response = self.any_read(by, aeth),
            Response::Acknowledge(said) => match self.dice.below(3) {
                0 => said.msn = Msn::new(said.msn.get() + self.dice.between_u32(1, 0x80_0000)),
                1 => said.syndrome = aeth.syndrome,
                _ => response = self.any_read(by, aeth),
            },
        }
        let psn = if self.dice.one_in(3) { self.psn_near(honest.psn) } else { honest.psn };
        let packet = self.to_peer(by, psn, Body::RcResponse(response));
        let later = if self.dice.one_in(3) { self.dice.log_between(100, 50_000) } else { 0 };
        self.say(by, &packet, When::Arrived(later), lies);
    }

    /// This one most often; else one before it, or one that was never sent.
    fn psn_near(&mut self, psn: Psn) -> Psn {
        match self.dice.below(4) {
            0 => psn + self.dice.between_u32(1, 64),
            1 => psn + (0x100_0000 - self.dice.between_u32(1, 8)),
            _ => psn,
        }
    }

    fn any_aeth(&mut self) -> Aeth {
        let small = u8::try_from(self.dice.below(16)).unwrap_or(0);
        let syndrome = match self.dice.below(10) {
            0 => Syndrome::Ack(CreditCode::new(0)),
            1 => Syndrome::Ack(CreditCode::new(30)),
            2 | 3 => Syndrome::Ack(CreditCode::new(small)),
            4 => Syndrome::Ack(CreditCode::UNCOUNTED),
            5 => Syndrome::RnrNak(RnrTimer::new(1 + small)),
            6 | 7 => Syndrome::Nak(NakCode::SequenceError),
            8 => {
                let codes = [NakCode::RemoteAccess, NakCode::InvalidRequest, NakCode::RemoteOperation];
                Syndrome::Nak(self.dice.pick(&codes))
            }
            _ => Syndrome::from_byte(0x80 | small),
        };
        Aeth { syndrome, msn: Msn::new(self.dice.between_u32(0, 0xff_ffff)) }
    }

    fn any_segment(&mut self, aeth: Aeth) -> ReadSegment {
        match self.dice.below(4) {
            0 => ReadSegment::First(aeth),
            1 => ReadSegment::Middle,
            2 => ReadSegment::Last(aeth),
            _ => ReadSegment::Only(aeth),
        }
    }

    fn any_read(&mut self, by: usize, aeth: Aeth) -> Response<&'static [u8]> {
        let mtu = self.victims[by].mtu;
        let segment = self.any_segment(aeth);
        let payload = match self.dice.below(3) {
            0 => self.rubbish(mtu, mtu),
            1 => self.rubbish(0, 16),
            _ => self.rubbish(0, mtu),
        };
        Response::Read(segment, payload)
    }
}
