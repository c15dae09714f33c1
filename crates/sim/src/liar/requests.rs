//! Requests that were never posted.

use ferroce_wire::{
    AtomicEth, Body, Feth, Packet, Psn, Qpn, Request, Reth, Rkey, Segment, SendTail, UcRequest,
};

use super::{Act, Liar, Lie, Said, When};

impl Liar {
    /// Requests in the name of `by`, whose own request is just on its way: most take its place.
    pub(super) fn request(&mut self, by: usize, honest: &Said<'_>, lies: &mut Vec<Lie>) {
        let psn = honest.psn;
        match self.dice.below(17) {
            0 => self.write_to_closed(by, psn, lies),
            1 => self.write_with_another_end(by, psn, lies),
            2 => self.write_without_end(by, psn, lies),
            3 => self.short_inside(by, psn, lies),
            4 => self.out_of_order(by, psn, lies),
            5 => self.read_of_closed(by, psn, lies),
            6 | 7 => self.read_and_repeat(by, psn, lies),
            8 => self.bad_atomic(by, psn, lies),
            9 => self.atomic_and_repeat(by, psn, lies),
            10 => self.ghost(by, psn, lies),
            11 | 12 => self.repeat_otherwise(by, lies),
            13 => self.nothing_by_a_bad_key(by, psn, lies),
            14 | 15 => self.read_and_revoke(by, psn, lies),
            _ => self.unusual(by, psn, lies),
        }
    }

    fn now(&mut self, by: usize, psn: Psn, request: Request<&[u8]>, lies: &mut Vec<Lie>) {
        let packet = self.to_peer(by, psn, Body::RcRequest(request));
        self.say(by, &packet, When::Arrived(0), lies);
    }

    fn write_to_closed(&mut self, by: usize, psn: Psn, lies: &mut Vec<Lie>) {
        let mtu = self.victims[1 - by].mtu;
        if self.dice.one_in(2) {
            let payload = self.rubbish(1, mtu);
            let place = self.closed_place(1 - by, u32::try_from(payload.len()).unwrap_or(0));
            return self.now(by, psn, Request::Write(Segment::Only(place, None), payload), lies);
        }
        let place = self.closed_place(1 - by, mtu * 3);
        let payload = self.rubbish(mtu, mtu);
        self.now(by, psn, Request::Write(Segment::First(place), payload), lies);
        self.now(by, psn.next(), Request::Write(Segment::Middle, payload), lies);
    }

    /// Its last packet is not as long as the first one said.
    fn write_with_another_end(&mut self, by: usize, psn: Psn, lies: &mut Vec<Lie>) {
        let mtu = self.victims[1 - by].mtu;
        let length = mtu + self.dice.between_u32(1, mtu);
        let place = self.open_place(1 - by, length);
        let (full, end) = (self.rubbish(mtu, mtu), self.rubbish(1, mtu));
        self.now(by, psn, Request::Write(Segment::First(place), full), lies);
        self.now(by, psn.next(), Request::Write(Segment::Last(None), end), lies);
    }

    /// It goes on beyond what the first packet said.
    fn write_without_end(&mut self, by: usize, psn: Psn, lies: &mut Vec<Lie>) {
        let mtu = self.victims[1 - by].mtu;
        let length = mtu + self.dice.between_u32(1, mtu);
        let place = self.open_place(1 - by, length);
        let full = self.rubbish(mtu, mtu);
        self.now(by, psn, Request::Write(Segment::First(place), full), lies);
        for more in 1..self.dice.between_u32(2, 4) {
            self.now(by, psn + more, Request::Write(Segment::Middle, full), lies);
        }
    }

    /// A packet inside a message is not full.
    fn short_inside(&mut self, by: usize, psn: Psn, lies: &mut Vec<Lie>) {
        let mtu = self.victims[1 - by].mtu;
        let short = self.rubbish(1, mtu - 1);
        let request = if self.dice.one_in(2) {
            let place = self.open_place(1 - by, mtu * 2);
            Request::Write(Segment::First(place), short)
        } else {
            Request::Send(Segment::First(()), short)
        };
        self.now(by, psn, request, lies);
    }

    /// A packet that does not follow what was before it, wherever that stands.
    fn out_of_order(&mut self, by: usize, psn: Psn, lies: &mut Vec<Lie>) {
        let mtu = self.victims[1 - by].mtu;
        let place = self.open_place(1 - by, mtu * 2);
        let (full, end) = (self.rubbish(mtu, mtu), self.rubbish(1, mtu));
        let only = Reth { length: u32::try_from(end.len()).unwrap_or(0), ..place };
        let request = match self.dice.below(7) {
            0 => Request::Send(Segment::Middle, full),
            1 => Request::Send(Segment::Last(SendTail::Plain), end),
            2 => Request::Write(Segment::Middle, full),
            3 => Request::Write(Segment::Last(None), end),
            4 => Request::Send(Segment::Only((), SendTail::Plain), end),
            5 => Request::Write(Segment::Only(only, None), end),
            _ => Request::Read(place),
        };
        self.now(by, psn, request, lies);
    }

    fn read_of_closed(&mut self, by: usize, psn: Psn, lies: &mut Vec<Lie>) {
        let mtu = self.victims[1 - by].mtu;
        let length = self.dice.pick(&[1, mtu, mtu * 3, u32::MAX]);
        let place = self.closed_place(1 - by, length);
        self.now(by, psn, Request::Read(place), lies);
    }

    /// A READ that is in order, and at once a repeat of it that is not, or asks for something else.
    fn read_and_repeat(&mut self, by: usize, psn: Psn, lies: &mut Vec<Lie>) {
        let Liar { victims, .. } = self;
        let (mtu, constant, revoked) =
            (victims[1 - by].mtu, victims[1 - by].constant, victims[1 - by].revoked);
        let length = mtu * self.dice.between_u32(1, 4);
        let good = Reth { address: constant.0, rkey: Rkey(constant.2), length };
        let again = match self.dice.below(5) {
            0 => Reth { rkey: Rkey(revoked), ..good },
            1 => Reth { length: length + mtu * self.dice.between_u32(1, 3), ..good },
            2 => Reth { address: constant.0 + constant.1 - u64::from(mtu), ..good },
            3 => self.closed_place(1 - by, length),
            _ => self.open_place(1 - by, length),
        };
        self.now(by, psn, Request::Read(good), lies);
        let later = self.dice.pick(&[0, 0, 0, 1]);
        self.now(by, psn + later, Request::Read(again), lies);
    }

    /// A long READ, whose key is taken out of use before all of its answer has left; and a repeat of it.
    fn read_and_revoke(&mut self, by: usize, psn: Psn, lies: &mut Vec<Lie>) {
        let victim = self.victims[1 - by];
        let Some(&key) = victim.fleeting.get(self.used[1 - by]) else { return };
        self.used[1 - by] += 1;
        let most = u32::try_from(victim.constant.1).unwrap_or(0) / victim.mtu;
        let packets = self.dice.between_u32(1, most.min(120));
        let place = Reth { address: victim.constant.0, rkey: Rkey(key), length: victim.mtu * packets };
        self.now(by, psn, Request::Read(place), lies);
        let soon = self.dice.log_between(100, 200_000);
        lies.push(Lie { act: Act::Revoke(victim.at.host, key), when: When::Arrived(soon) });
        let packet = self.to_peer(by, psn, Body::RcRequest(Request::Read(place)));
        let later = soon + self.dice.log_between(10, 100_000);
        self.say(by, &packet, When::Arrived(later), lies);
    }

    fn bad_atomic(&mut self, by: usize, psn: Psn, lies: &mut Vec<Lie>) {
        let cells = self.victims[1 - by].cells;
        let closed = self.closed_place(1 - by, 8);
        let (address, key) = match self.dice.below(3) {
            0 => (cells.0 + self.dice.between(1, 7), cells.2),
            1 => (cells.0 + cells.1, cells.2),
            _ => (closed.address & !7, closed.rkey.0),
        };
        let eth = AtomicEth { address, rkey: Rkey(key), swap_or_add: self.dice.word(), compare: 0 };
        let request = if self.dice.one_in(2) { Request::FetchAdd(eth) } else { Request::CompareSwap(eth) };
        self.now(by, psn, request, lies);
    }

    /// An atomic that is in order, and at once a repeat of it that adds something else.
    fn atomic_and_repeat(&mut self, by: usize, psn: Psn, lies: &mut Vec<Lie>) {
        let (start, len, key) = self.victims[1 - by].cells;
        let address = start + 8 * self.dice.below(len / 8);
        for _ in 0..2 {
            let eth = AtomicEth { address, rkey: Rkey(key), swap_or_add: self.dice.word(), compare: 0 };
            self.now(by, psn, Request::FetchAdd(eth), lies);
        }
    }

    /// A packet for a queue pair, or with a PSN, that never was.
    fn ghost(&mut self, by: usize, psn: Psn, lies: &mut Vec<Lie>) {
        let payload = self.rubbish(0, 64);
        let body = Body::RcRequest(Request::Send(Segment::Only((), SendTail::Plain), payload));
        let far = match self.dice.below(3) {
            0 => self.dice.between_u32(1, 64),
            1 => 0x10_0000 + self.dice.between_u32(0, 0x60_0000),
            _ => 0x80_0000 + self.dice.between_u32(0, 0x70_0000),
        };
        let mut packet = self.to_peer(by, psn + far, body);
        if self.dice.one_in(4) {
            packet.dest_qp = Qpn::new(0xab_cdef);
        }
        self.say(by, &packet, When::Arrived(0), lies);
    }

    /// A request that was made, once more but with other contents.
    fn repeat_otherwise(&mut self, by: usize, lies: &mut Vec<Lie>) {
        let index = self.dice.index(self.heard[by].len());
        let Some(bytes) = self.heard[by].get(index).cloned() else { return };
        let Ok(mut packet) = Packet::parse(&bytes) else { return };
        let mtu = self.victims[1 - by].mtu;
        let closed = self.closed_place(1 - by, mtu);
        let other = self.rubbish(1, mtu);
        let word = self.dice.word();
        let Body::RcRequest(request) = &mut packet.body else { return };
        match request {
            Request::Send(_, payload) | Request::Write(_, payload) if word & 1 == 0 => *payload = other,
            Request::Write(Segment::First(reth) | Segment::Only(reth, _), _) => *reth = closed,
            Request::Read(reth) if word & 1 == 0 => reth.length = reth.length.saturating_add(mtu),
            Request::Read(reth) => *reth = Reth { length: reth.length, ..closed },
            Request::CompareSwap(eth)
            | Request::FetchAdd(eth)
            | Request::MaskedCompareSwap(eth, _)
            | Request::MaskedFetchAdd(eth, _) => eth.swap_or_add = word,
            Request::AtomicWrite(_, operand) => *operand = word.to_ne_bytes(),
            Request::Send(..) | Request::Write(..) | Request::Flush(..) => {}
        }
        let later = if self.dice.one_in(2) { self.dice.log_between(100, 200_000) } else { 0 };
        self.say(by, &packet, When::Arrived(later), lies);
    }

    /// A message of no bytes needs no key.
    fn nothing_by_a_bad_key(&mut self, by: usize, psn: Psn, lies: &mut Vec<Lie>) {
        let place = Reth { length: 0, ..self.closed_place(1 - by, 8) };
        let nothing: &[u8] = &[];
        let request = match self.dice.below(2) {
            0 => Request::Write(Segment::Only(place, None), nothing),
            _ => Request::Read(place),
        };
        self.now(by, psn, request, lies);
    }

    /// What no honest end ever sends.
    fn unusual(&mut self, by: usize, psn: Psn, lies: &mut Vec<Lie>) {
        let place = self.open_place(1 - by, 64);
        let payload = self.rubbish(0, 64);
        let key = self.closed_place(1 - by, 8).rkey;
        let body = match self.dice.below(4) {
            0 => Body::RcRequest(Request::Send(Segment::Only((), SendTail::Invalidate(key)), payload)),
            1 => Body::RcRequest(Request::Flush(Feth::parse(&[0, 0, 0, 1]), place)),
            2 => Body::Uc(UcRequest::Send(Segment::Only((), None), payload)),
            _ => Body::RcRequest(Request::AtomicWrite(Reth { length: 64, ..place }, [0xe1; 8])),
        };
        let packet = self.to_peer(by, psn, body);
        self.say(by, &packet, When::Arrived(0), lies);
    }
}
