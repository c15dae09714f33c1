//! No call of a queue pair in RTS allocates: neither for a packet nor for a work request, with packets
//! lost or not.
//!
//! Two queue pairs and everything around them are made first, one round of work warms them up, and then
//! the allocations of this thread are counted while rounds of every kind of work go both ways.

mod host;

use allocation_counter::measure;
use ferroce_transport::{
    Access, Acks, AttributeMask, Attributes, Bind, Caps, Counters, Data, DomainId, MaskedAdd, MaskedSwap,
    PayloadSource, QpConfig, QueuePair, ReceiveRequest, Remote, SendFlags, SendOp, SendRequest, Sge, State,
    Time, Window,
};
use ferroce_wire::{Imm, Lkey, PathMtu, Psn, Qpn, Rkey, Service};
use host::Fixed;

const MASKED: MaskedSwap = MaskedSwap { compare: 0, compare_mask: 0, swap: 7, swap_mask: 3 };

/// Rounds whose allocations are counted.
const ROUNDS: usize = 200;

#[test]
fn the_counter_counts() {
    assert_eq!(measure(|| drop(std::hint::black_box(Box::new(1)))).count_total, 1);
}

#[test]
fn nothing_allocates_without_loss() {
    let counters = count(true, |_| false);
    assert_eq!((counters.retransmitted, counters.timeouts), (0, 0));
    assert!(counters.requests_sent > 10_000 && counters.responses_received > 5_000, "{counters:?}");
}

#[test]
fn nothing_allocates_when_packets_are_lost() {
    let counters = count(false, |number| scattered(number) % 100 < 4 || scattered(number / 8) % 100 < 1);
    let seen = [
        counters.nak_sequence_received,
        counters.duplicate_requests,
        counters.duplicate_reads,
        counters.duplicate_atomics,
        counters.implied_naks,
        counters.probes,
        counters.rewinds,
        counters.rnr_received,
    ];
    assert!(seen.iter().all(|count| *count > 0), "every way of going back is taken: {counters:?}");
}

/// A number without any pattern.
const fn scattered(number: u64) -> u64 {
    let word = number.wrapping_mul(0x9e37_79b9_7f4a_7c15);
    (word ^ (word >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32
}

/// Runs the rounds over a link that loses the packets with these numbers, with receives posted before or
/// after the peer needs them; returns what both ends counted.
fn count(receives_first: bool, lose: impl Fn(u64) -> bool) -> Counters {
    let mut link = Link::new(receives_first);
    link.round(&lose);
    let info = measure(|| {
        for _ in 0..ROUNDS {
            link.round(&lose);
        }
    });
    assert_eq!((info.count_total, info.bytes_total), (0, 0), "{info:?}");
    let mut counters = *link.ends[0].pair.counters();
    counters.add(link.ends[1].pair.counters());
    counters
}

/// Two queue pairs, and a wire on which one packet at a time is under way.
struct Link {
    ends: [End; 2],
    receives_first: bool,
    now: Time,
    packets: u64,
    next_id: u64,
}

struct End {
    pair: QueuePair,
    window: Window,
    host: Fixed,
}

impl Link {
    fn new(receives_first: bool) -> Self {
        Self { ends: [1, 2].map(End::new), receives_first, now: Time::from_nanos(1), packets: 0, next_id: 0 }
    }

    /// Posts every kind of work on both ends, and runs until all of it has completed.
    fn round(&mut self, lose: &impl Fn(u64) -> bool) {
        for end in &mut self.ends {
            end.post_all(&mut self.next_id);
            if self.receives_first {
                end.post_receives();
            }
        }
        while self.ends.iter().any(|end| end.pair.sends_waiting() > 0) {
            let sent = self.send_from(0, lose) | self.send_from(1, lose);
            if sent {
                continue;
            }
            if !self.receives_first {
                self.ends.iter_mut().for_each(End::post_receives);
            }
            let times = self.ends.iter().filter_map(|end| end.pair.poll_timeout());
            if let Some(at) = times.min() {
                self.now = self.now.max(at);
            }
            for End { pair, window, host } in &mut self.ends {
                pair.handle_timeout(self.now, window, host);
            }
        }
        for end in &self.ends {
            assert_eq!(end.pair.state(), State::Rts);
        }
    }

    /// Lets one end send all it has, each packet arriving at once or never.
    fn send_from(&mut self, from: usize, lose: &impl Fn(u64) -> bool) -> bool {
        let [a, b] = &mut self.ends;
        let (from, to) = if from == 0 { (a, b) } else { (b, a) };
        let mut buffer = [0; 4096];
        let mut any = false;
        while let Some(transmit) =
            from.pair.poll_transmit(self.now, Acks::Send, &mut from.window, &mut from.host)
        {
            any = true;
            self.packets += 1;
            self.now = self.now + core::time::Duration::from_micros(1);
            if lose(self.packets) {
                continue;
            }
            from.host.gather(&transmit.payload, &mut buffer);
            let packet = transmit.packet.map_payload(|len| &buffer[..len.0]);
            to.pair.handle_packet(self.now, &packet, None, &mut to.window, &mut to.host);
        }
        any
    }
}

impl End {
    fn new(number: u32) -> Self {
        let mut pair = QueuePair::new(QpConfig {
            qpn: Qpn::new(number),
            service: Service::Rc,
            domain: DomainId(1),
            caps: Caps { max_send: 32, max_receive: 32, max_send_sge: 3, max_receive_sge: 2, max_inline: 64 },
            signal_all: true,
            shared_queue: None,
        });
        let (mut window, mut host) = (Window::new(), Fixed::new());
        let steps = [
            Attributes::to(State::Init).with_pkey_index(0).with_port(1).with_access(Access::all()),
            Attributes::to(State::Rtr)
                .with(AttributeMask::AV)
                .with_path_mtu(PathMtu::B256)
                .with_dest_qpn(Qpn::new(3 - number))
                .with_rq_psn(Psn::new(0xff_ff00))
                .with_max_dest_rd_atomic(4)
                .with_min_rnr_timer(1),
            Attributes::to(State::Rts)
                .with_sq_psn(Psn::new(0xff_ff00))
                .with_timeout(14)
                .with_retry_count(7)
                .with_rnr_retry(7)
                .with_max_rd_atomic(4),
        ];
        for attributes in steps {
            pair.modify(&attributes, &mut window, &mut host).expect("a legal transition");
        }
        Self { pair, window, host }
    }

    /// Posts one work of each kind.
    fn post_all(&mut self, next_id: &mut u64) {
        let there = |offset| Remote { address: Fixed::BASE + offset, rkey: Rkey(Fixed::KEY) };
        let here = |offset, length| Sge { address: Fixed::BASE + offset, length, lkey: Lkey(Fixed::KEY) };
        let word = [here(64, 8)];
        let bind = Bind {
            window: Rkey(0x300),
            new_key: Rkey(0x301),
            region: Lkey(Fixed::KEY),
            address: Fixed::BASE,
            length: 8,
            access: Access::REMOTE_READ,
        };
        let pieces = [here(0, 700), here(9000, 1), here(2000, 1299)];
        let works = [
            (SendOp::Send, Data::Gather(&pieces)),
            (SendOp::Write(there(4096)), Data::Gather(&[here(0, 5000)])),
            (SendOp::SendImm(Imm(7)), Data::Inline(b"inline")),
            (SendOp::Read(there(8192)), Data::Gather(&[here(16384, 5001)])),
            (SendOp::CompareSwap { remote: there(8), compare: 0, swap: 1 }, Data::Gather(&word)),
            (
                SendOp::MaskedFetchAdd { remote: there(8), add: MaskedAdd { add: 3, boundaries: 1 } },
                Data::Gather(&word),
            ),
            (SendOp::MaskedCompareSwap { remote: there(8), swap: MASKED }, Data::Gather(&word)),
            (SendOp::FetchAdd { remote: there(16), add: 1 }, Data::Gather(&word)),
            (SendOp::AtomicWrite(there(24)), Data::Gather(&word)),
            (SendOp::WriteImm(there(0), Imm(8)), Data::Gather(&[here(100, 300)])),
            (SendOp::SendInvalidate(Rkey(0x300)), Data::Gather(&[here(0, 256)])),
            (SendOp::BindWindow(bind), Data::Gather(&[])),
            (SendOp::LocalInvalidate(Rkey(0x301)), Data::Gather(&[])),
            (SendOp::Read(there(0)), Data::Gather(&[here(0, 0)])),
        ];
        for (op, data) in works {
            *next_id += 1;
            let flags = SendFlags::SOLICITED;
            let request = SendRequest { id: *next_id, op, data, flags, dest: None };
            self.pair.post_send(&request, &mut self.host).expect("room in the queue");
        }
    }

    /// Posts as many receives as a round of the peer takes.
    fn post_receives(&mut self) {
        for _ in 0..4 {
            let at = |offset| Sge { address: Fixed::BASE + offset, length: 1024, lkey: Lkey(Fixed::KEY) };
            let request = ReceiveRequest { id: 0, sges: &[at(32768), at(40000)] };
            if self.pair.post_receive(&request, &mut self.host).is_err() {
                return;
            }
        }
    }
}

impl Fixed {
    /// Puts the payload of a packet to the front of `buffer`.
    fn gather(&self, payload: &PayloadSource<'_>, buffer: &mut [u8]) {
        match *payload {
            PayloadSource::Nothing => {}
            PayloadSource::Inline(bytes) => buffer[..bytes.len()].copy_from_slice(bytes),
            PayloadSource::Gather(pieces) => {
                let mut rest = buffer;
                for piece in pieces {
                    let (part, after) = rest.split_at_mut(piece.length as usize);
                    part.copy_from_slice(self.bytes(piece.address, part.len()));
                    rest = after;
                }
            }
            PayloadSource::Remote { address, len, .. } => {
                buffer[..len as usize].copy_from_slice(self.bytes(address, len as usize));
            }
        }
    }
}
