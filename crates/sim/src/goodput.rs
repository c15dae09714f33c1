//! Goodput in virtual time: how much of a link the transport uses, by loss, buffer and queue pairs.
//!
//! Everything is deterministic, so the table is a snapshot: a change of the transport that costs
//! goodput shows as a changed number.

use std::fmt;
use std::time::Duration;

use ferroce_transport::{
    Access, Caps, Data, DomainId, QpConfig, Remote, SendFlags, SendOp, SendRequest, Sge, Status, Time,
};
use ferroce_wire::{Lkey, PathMtu, Qpn, Rkey, Service};

use crate::dice::Dice;
use crate::host::{Action, Device};
use crate::link::{Fault, LinkPlan};
use crate::memory::Memory;
use crate::node::{Datagram, Node, Received};
use crate::plan::{LARGE_BUFFER, PairPlan, SMALL_BUFFER};
use crate::rings::Rings;
use crate::setup::transitions;
use crate::world::{At, HostPlan, HostState, Observer, Step, World};

/// Nanoseconds per KiB: 40 Gbit/s.
const NS_PER_KIB: u64 = 205;
/// One way, in nanoseconds.
const LATENCY: u64 = 10_000;
/// What a datagram costs the host that takes it, and the one that sends it, in nanoseconds.
const RECEIVE_COST: u64 = 900;
const SEND_COST: u64 = 600;
/// Bytes of a message, messages that a queue pair keeps posted, and bytes of a measurement.
const MESSAGE: u32 = 1 << 20;
const DEPTH: u32 = 4;
const TOTAL: u64 = 48 << 20;

/// What moves the bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// RDMA WRITE.
    Write,
    /// RDMA READ.
    Read,
}

/// One measurement.
#[derive(Clone, Copy, Debug)]
pub struct Case {
    /// WRITE or READ.
    pub direction: Direction,
    /// Queue pairs that share the receiver.
    pub pairs: usize,
    /// Bytes of its socket buffer.
    pub buffer: u32,
    /// Packets lost, in parts per million.
    pub loss: u32,
}

/// What a measurement gave.
#[derive(Clone, Copy, Debug)]
pub struct Measured {
    /// Megabytes (10^6) per second of virtual time.
    pub megabytes: u64,
    /// Packets sent again, in tenths of a percent of all.
    pub repeated: u64,
    /// Packets that found no room.
    pub tail_drops: u64,
    /// Probes sent.
    pub probes: u64,
    /// Transport time-outs.
    pub timeouts: u64,
}

/// All measurements, in the order of the table.
#[derive(Clone, Debug)]
pub struct Table(pub Vec<(Case, Measured)>);

/// Measures everything.
#[must_use]
pub fn table() -> Table {
    let mut rows = Vec::new();
    for direction in [Direction::Write, Direction::Read] {
        for pairs in [1, 8] {
            for buffer in [SMALL_BUFFER, LARGE_BUFFER] {
                for loss in [0, 1_000, 10_000, 50_000] {
                    let case = Case { direction, pairs, buffer, loss };
                    rows.push((case, measure(&case)));
                }
            }
        }
    }
    Table(rows)
}

impl Table {
    /// The measurement of a case.
    #[must_use]
    pub fn get(&self, direction: Direction, pairs: usize, buffer: u32, loss: u32) -> Option<Measured> {
        let wanted = |case: &Case| {
            case.direction == direction && case.pairs == pairs && case.buffer == buffer && case.loss == loss
        };
        self.0.iter().find(|(case, _)| wanted(case)).map(|(_, measured)| *measured)
    }
}

impl fmt::Display for Table {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(
            f,
            "Goodput in virtual time. Link 40 Gbit/s, 10 us one way; MTU 4096; messages of 1 MiB, 4 posted per"
        )?;
        writeln!(
            f,
            "queue pair; a datagram costs its receiver {RECEIVE_COST} ns and its sender {SEND_COST} ns; 48 MiB per measurement."
        )?;
        writeln!(f)?;
        writeln!(f, "         QPs  buffer   loss    MB/s  repeated  tail drops  probes  time-outs")?;
        for (case, measured) in &self.0 {
            let buffer = format!("{}K", case.buffer / 1024);
            let loss = format!("{}.{} %", case.loss / 10_000, case.loss % 10_000 / 1000);
            let repeated = format!("{}.{} %", measured.repeated / 10, measured.repeated % 10);
            writeln!(
                f,
                "{:<7} {:>4}  {buffer:>6}  {loss:>5}  {:>6}  {repeated:>8}  {:>10}  {:>6}  {:>9}",
                format!("{:?}", case.direction).to_uppercase(),
                case.pairs,
                measured.megabytes,
                measured.tail_drops,
                measured.probes,
                measured.timeouts,
            )?;
        }
        Ok(())
    }
}

/// Counts, and checks nothing but that work succeeds.
#[derive(Debug, Default)]
struct Meter {
    done: Vec<(usize, Time)>,
    failed: Option<Status>,
    tail_drops: u64,
}

impl Observer for Meter {
    type Error = std::convert::Infallible;

    fn acted(&mut self, now: Time, _: &[HostState], at: At, action: &Action) -> Result<(), Self::Error> {
        if let Action::SendDone(completion) = action {
            self.done.push((at.slot, now));
            if completion.status != Status::Success {
                self.failed = Some(completion.status);
            }
        }
        Ok(())
    }

    fn returned(&mut self, _: Time, _: &[HostState], _: At) -> Result<(), Self::Error> {
        Ok(())
    }

    fn sent(&mut self, _: Time, _: &[HostState], _: At, _: &Datagram) -> Result<(), Self::Error> {
        Ok(())
    }

    fn fault(&mut self, _: Time, fault: Fault, _: &Datagram) {
        self.tail_drops += u64::from(fault == Fault::TailDrop);
    }

    fn received(&mut self, _: Time, _: &Datagram, _: Received) -> Result<(), Self::Error> {
        Ok(())
    }

    fn timer(&mut self, _: Time, _: At) {}
}

const DOMAIN: DomainId = DomainId(1);

/// Measures one case.
///
/// # Panics
/// Work fails: on this network none should.
#[must_use]
pub fn measure(case: &Case) -> Measured {
    let (mut world, keys) = build(case);
    let mut meter = Meter::default();
    let wanted = TOTAL / u64::from(MESSAGE);
    let mut posted = 0;
    for pair in 0..case.pairs {
        for _ in 0..DEPTH {
            posted += 1;
            post(&mut world, &mut meter, case, pair, keys);
        }
    }
    let (mut finished, mut end) = (0, Time::ZERO);
    while finished < wanted {
        let Ok(step) = world.step(&mut meter);
        assert!(step != Step::Rest, "{case:?} stopped after {finished} messages");
        for (pair, at) in std::mem::take(&mut meter.done) {
            finished += 1;
            end = at;
            if posted < wanted {
                posted += 1;
                post(&mut world, &mut meter, case, pair, keys);
            }
        }
        assert_eq!(meter.failed, None, "{case:?}");
        assert!(world.now() < Time::ZERO + Duration::from_secs(60), "{case:?} takes for ever");
    }
    let node = |host: usize| &world.hosts[host].node;
    let sum = |name: &str| -> u64 {
        let all = (0..2).flat_map(|host| (0..case.pairs).map(move |slot| (host, slot)));
        all.flat_map(|(host, slot)| node(host).queue_pair(slot).counters().iter())
            .filter(|(counter, _)| *counter == name)
            .map(|(_, count)| count)
            .sum()
    };
    let moved = finished * u64::from(MESSAGE);
    let ideal = moved / 4096;
    let data = if case.direction == Direction::Write { sum("requests_sent") } else { sum("responses_sent") };
    Measured {
        megabytes: moved * 1000 / end.nanos().max(1),
        repeated: data.saturating_sub(ideal) * 1000 / data.max(1),
        tail_drops: meter.tail_drops,
        probes: sum("probes"),
        timeouts: sum("timeouts"),
    }
}

fn build(case: &Case) -> (World, [u32; 2]) {
    let host = HostPlan {
        buffer: case.buffer,
        receive_cost: RECEIVE_COST,
        send_cost: SEND_COST,
        batch: 64,
        hold_acks: 0,
    };
    let link = LinkPlan { ns_per_kib: NS_PER_KIB, latency: LATENCY, loss: case.loss, ..LinkPlan::default() };
    let mut keys = [0; 2];
    let nodes = [0, 1].map(|index| {
        let mut memory = Memory::new(base(index), MESSAGE as usize);
        keys[index] = memory.register(DOMAIN, base(index), u64::from(MESSAGE), Access::all());
        (Node::new(index, 2, Device::new(memory)), host)
    });
    let mut world = World::new(nodes.into(), (link, Rings::default()), Dice::new(1), None);
    let caps = Caps { max_send: 16, max_receive: 1, max_send_sge: 1, max_receive_sge: 1, max_inline: 0 };
    for pair in 0..case.pairs {
        let plan = pair_plan(caps);
        for side in 0..2 {
            let config = QpConfig {
                qpn: qpn(pair, side),
                service: Service::Rc,
                domain: DOMAIN,
                caps,
                signal_all: true,
                shared_queue: None,
            };
            let slot = world.hosts[side].node.add(config, Some(1 - side));
            for step in transitions(&plan, side, plan.psns, qpn(pair, 1 - side)) {
                world.hosts[side].node.modify(slot, &step).expect("the plan is one that queue pairs take");
            }
        }
    }
    (world, keys)
}

const fn base(host: usize) -> u64 {
    0x1000_0000 * (host as u64 + 1)
}

fn qpn(pair: usize, side: usize) -> Qpn {
    Qpn::new(u32::try_from(0x100 + pair * 2 + side).unwrap_or(0))
}

const fn pair_plan(caps: Caps) -> PairPlan {
    PairPlan {
        service: Service::Rc,
        hosts: [0, 1],
        mtu: PathMtu::B4096,
        psns: [0xff_fe00, 7],
        timeout: 14,
        retry_count: 7,
        rnr_retry: 7,
        min_rnr_timer: 1,
        max_rd_atomic: [16; 2],
        max_dest_rd_atomic: [16; 2],
        caps,
        signal_all: [true; 2],
        shared: [false; 2],
        own_domain: [false; 2],
        send_max: 0,
        rdma_max: MESSAGE,
        late_receives: false,
        outstanding: 4,
        pace: 1000,
        rate_limits: [0; 2],
        rights: [Access::REMOTE_WRITE.union(Access::REMOTE_READ); 2],
    }
}

fn post(world: &mut World, meter: &mut Meter, case: &Case, pair: usize, keys: [u32; 2]) {
    let remote = Remote { address: base(1), rkey: Rkey(keys[1]) };
    let op = match case.direction {
        Direction::Write => SendOp::Write(remote),
        Direction::Read => SendOp::Read(remote),
    };
    let sges = [Sge { address: base(0), length: MESSAGE, lkey: Lkey(keys[0]) }];
    let request =
        SendRequest { id: 0, op, data: Data::Gather(&sges), flags: SendFlags::SIGNALED, dest: None };
    let Ok(result) =
        world.call(At { host: 0, slot: pair }, meter, |node, slot| node.post_send(slot, &request));
    result.expect("there is room in the queue");
}
