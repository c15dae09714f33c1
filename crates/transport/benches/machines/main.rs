//! What the machines of a reliable connection cost, in nanoseconds per packet.
//!
//! `cargo bench -p ferroce-transport`. Both machines together: posting, the requester's packet, the
//! responder's judgement of it, the acknowledgement and what it completes. Packets are handed over as
//! values: no bytes are written or read, no CRC is made, and the memory finds keys in a small table but
//! copies nothing. All figures are per packet of the WRITE; acknowledgements are not counted as packets.
//! Handing over the same packets without machines is measured beside them in the same round.
#![expect(clippy::disallowed_methods, reason = "a benchmark reads the clock")]
#![expect(clippy::cast_precision_loss, reason = "nanoseconds of short rounds")]

use std::hint::black_box;
use std::time::{Duration, Instant};

use ferroce_testkit::figure::sample;
use ferroce_transport::{
    Access, Acks, Attributes, Caps, Data, DomainId, QpConfig, QueuePair, Remote, SendFlags, SendOp,
    SendRequest, Sge, State, Time, Window,
};
use ferroce_wire::{Body, Lkey, Packet, PathMtu, Psn, Qpn, Request, Reth, Rkey, Segment, Service};

mod table;
use table::Table;

/// Packets per measurement: few, so that most measurements are not interrupted.
const PACKETS: usize = 2_048;

/// Measurements of each figure.
const ROUNDS: usize = 201;

/// Packets that a device sends or takes at once.
const BATCH: usize = 16;

static PAYLOAD: [u8; 4096] = [0x5a; 4096];

/// What is measured.
struct Load {
    name: &'static str,
    /// Bytes of one WRITE.
    length: u32,
    /// WRITEs that are posted at once.
    posts: usize,
    /// Whether each packet that asks for it is acknowledged at once, or the last of a batch only.
    acks: Acks,
}

const LOADS: [Load; 3] = [
    Load { name: "64 B, an ACK each", length: 64, posts: BATCH, acks: Acks::Send },
    Load { name: "64 B, an ACK per 16", length: 64, posts: BATCH, acks: Acks::Hold },
    Load { name: "1 MiB at MTU 4096", length: 1 << 20, posts: 1, acks: Acks::Hold },
];

fn main() {
    // What the machines take, as lines for `cargo xtask bench pairs`.
    let once = std::env::args().any(|arg| arg == "--once");
    if !once {
        head();
    }
    for load in &LOADS {
        let mut pair = Connected::new();
        let mut figures: [Vec<f64>; 2 + STAGES.len()] = Default::default();
        for _ in 0..ROUNDS {
            let alone = time(load, |load| pair.hand_over(load));
            let machines = time(load, |load| pair.write(load, &mut |_| {}));
            let stages = stages(load, &mut pair);
            let round = [alone, machines].into_iter().chain(stages);
            figures.iter_mut().zip(round).for_each(|(figure, value)| figure.push(value));
        }
        let [alone, machines, stages @ ..] = figures;
        if once {
            println!("{}", sample(&format!("both machines, {}", load.name), "ns", median(machines)));
            continue;
        }
        let stages = STAGES.iter().zip(stages).map(|(name, figure)| format!("{name} {:.0}", median(figure)));
        let stages = stages.collect::<Vec<_>>().join(", ");
        println!("{:>20} | {:>22} {:>22} | {stages}", load.name, show(alone), show(machines));
    }
    if !once {
        println!("\nBudget: 150 ns per packet for both machines together. The stages are timed in rounds of");
        println!("their own, and reading the clock between them costs a few nanoseconds per packet.");
    }
}

fn head() {
    println!("RDMA WRITE on one RC connection, ns per packet: median of {ROUNDS} rounds (quartiles)\n");
    println!("{:>20} | {:>22} {:>22} | stages, median", "", "hand-over alone", "both machines");
}

/// Repeats a load, and gives nanoseconds per packet.
fn time(load: &Load, mut work: impl FnMut(&Load) -> usize) -> f64 {
    let start = Instant::now();
    let mut packets = 0;
    while packets < PACKETS {
        packets += black_box(work(black_box(load)));
    }
    start.elapsed().as_nanos() as f64 / packets as f64
}

const STAGES: [&str; 4] = ["post", "send", "receive", "acknowledge"];

/// The same with the clock read after each stage.
fn stages(load: &Load, pair: &mut Connected) -> [f64; STAGES.len()] {
    let mut spent = [Duration::ZERO; STAGES.len()];
    let mut packets = 0;
    while packets < PACKETS {
        let mut last = Instant::now();
        packets += pair.write(load, &mut |stage| {
            let now = Instant::now();
            spent[stage] += now - last;
            last = now;
        });
    }
    spent.map(|spent| spent.as_nanos() as f64 / packets as f64)
}

/// Two queue pairs in RTS, with nothing but a slice between them.
struct Connected {
    sides: [Side; 2],
    now: Time,
    wire: Vec<Packet<&'static [u8]>>,
    completed: u64,
}

struct Side {
    pair: QueuePair,
    window: Window,
    host: Table,
}

impl Connected {
    fn new() -> Self {
        let sides = [1, 2].map(Side::new);
        Self { sides, now: Time::ZERO, wire: Vec::with_capacity(BATCH), completed: 0 }
    }

    /// Writes a load from one side to the other until all of it has completed; returns its packets.
    fn write(&mut self, load: &Load, stage_done: &mut impl FnMut(usize)) -> usize {
        let [a, b] = &mut self.sides;
        for id in 0..load.posts {
            let sge = [Sge { address: Table::BASE, length: load.length, lkey: Lkey(Table::KEY) }];
            let request = SendRequest {
                id: id as u64,
                op: SendOp::Write(Remote { address: Table::BASE, rkey: Rkey(Table::KEY) }),
                data: Data::Gather(&sge),
                flags: SendFlags::SIGNALED,
                dest: None,
            };
            a.pair.post_send(black_box(&request), &mut a.host).expect("room for a batch");
        }
        stage_done(0);
        self.completed += load.posts as u64;
        let mut packets = 0;
        while a.host.completed < self.completed {
            self.now = self.now + Duration::from_micros(1);
            self.wire.clear();
            while self.wire.len() < BATCH
                && let Some(packet) = a.poll(self.now, Acks::Hold)
            {
                self.wire.push(packet);
            }
            packets += self.wire.len();
            black_box(a.pair.poll_timeout());
            stage_done(1);
            for packet in &self.wire {
                b.handle(self.now, packet);
                if load.acks == Acks::Send {
                    a.answer_from(b, self.now);
                }
            }
            stage_done(2);
            a.answer_from(b, self.now);
            stage_done(3);
        }
        packets
    }

    /// Makes and looks at the packets of a load without any machine.
    fn hand_over(&mut self, load: &Load) -> usize {
        let mut packets = 0;
        let mtu = PAYLOAD.len();
        let each = (load.length as usize).div_ceil(mtu);
        let reth = Reth { address: Table::BASE, rkey: Rkey(Table::KEY), length: load.length };
        while packets < load.posts * each {
            self.wire.clear();
            for number in packets..packets + BATCH {
                let segment = match (number % each, number % each + 1 == each) {
                    (0, true) => Segment::Only(reth, None),
                    (0, false) => Segment::First(reth),
                    (_, true) => Segment::Last(None),
                    (_, false) => Segment::Middle,
                };
                let write = Request::Write(segment, &PAYLOAD[..mtu.min(load.length as usize)]);
                let psn = Psn::new(u32::try_from(number).expect("few packets"));
                self.wire.push(black_box(Packet::new(Qpn::new(2), psn, Body::RcRequest(write))));
            }
            packets += self.wire.len();
            for packet in &self.wire {
                black_box(packet);
            }
        }
        packets
    }
}

impl Side {
    fn new(number: u32) -> Self {
        let config = QpConfig {
            qpn: Qpn::new(number),
            service: Service::Rc,
            domain: DomainId(1),
            caps: Caps { max_send: 64, max_receive: 64, max_send_sge: 1, max_receive_sge: 1, max_inline: 0 },
            signal_all: false,
            shared_queue: None,
        };
        let (mut window, mut host) = (Window::new(), Table::new());
        let mut pair = QueuePair::new(config);
        for attributes in bring_up(Qpn::new(3 - number)) {
            pair.modify(&attributes, &mut window, &mut host).expect("a legal transition");
        }
        Self { pair, window, host }
    }

    fn poll(&mut self, now: Time, acks: Acks) -> Option<Packet<&'static [u8]>> {
        let transmit = self.pair.poll_transmit(now, acks, &mut self.window, &mut self.host)?;
        Some(transmit.packet.map_payload(|len| &PAYLOAD[..len.0]))
    }

    fn handle(&mut self, now: Time, packet: &Packet<&[u8]>) {
        self.pair.handle_packet(now, black_box(packet), None, &mut self.window, &mut self.host);
    }

    /// Takes in everything that the other side has to answer.
    fn answer_from(&mut self, other: &mut Self, now: Time) {
        while let Some(answer) = other.poll(now, Acks::Send) {
            self.handle(now, &answer);
        }
        black_box(self.pair.poll_timeout());
    }
}

/// The steps from RESET to RTS.
fn bring_up(peer: Qpn) -> [Attributes; 3] {
    use ferroce_transport::AttributeMask;
    [
        Attributes::to(State::Init).with_pkey_index(0).with_port(1).with_access(Access::all()),
        Attributes::to(State::Rtr)
            .with(AttributeMask::AV)
            .with_path_mtu(PathMtu::B4096)
            .with_dest_qpn(peer)
            .with_rq_psn(Psn::new(0))
            .with_max_dest_rd_atomic(16)
            .with_min_rnr_timer(1),
        Attributes::to(State::Rts)
            .with_sq_psn(Psn::new(0))
            .with_timeout(14)
            .with_retry_count(7)
            .with_rnr_retry(7)
            .with_max_rd_atomic(16),
    ]
}

fn show(mut figure: Vec<f64>) -> String {
    figure.sort_by(f64::total_cmp);
    let at = |quarter: usize| figure[(figure.len() - 1) * quarter / 4];
    format!("{:.1} ({:.1} to {:.1})", at(2), at(1), at(3))
}

fn median(mut figure: Vec<f64>) -> f64 {
    figure.sort_by(f64::total_cmp);
    figure[figure.len() / 2]
}
