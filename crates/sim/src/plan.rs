//! What a seed decides before the run begins: hosts, queue pairs, network, and which faults there are.

use ferroce_transport::{Access, Caps};
use ferroce_wire::{PathMtu, Service};

use crate::dice::Dice;
use crate::liar::LiarPlan;
use crate::link::LinkPlan;
use crate::world::HostPlan;

/// A whole run.
#[derive(Clone, Debug)]
pub struct Plan {
    /// The hosts.
    pub hosts: Vec<HostPlan>,
    /// The network.
    pub link: LinkPlan,
    /// The queue pairs, two by two.
    pub pairs: Vec<PairPlan>,
    /// Faults beside those of the network.
    pub chaos: Chaos,
    /// Data packets to be caused by posted work.
    pub packets: u64,
    /// Whether packets of connections go through memory, as between processes of one machine, until a host is cut off.
    pub through_memory: bool,
    /// Whether a liar speaks on the last of the pairs.
    pub liar: Option<LiarPlan>,
}

/// Two queue pairs that talk to each other.
#[derive(Clone, Copy, Debug)]
pub struct PairPlan {
    /// The service.
    pub service: Service,
    /// The host of each end.
    pub hosts: [usize; 2],
    /// Path MTU.
    pub mtu: PathMtu,
    /// First PSN of each end.
    pub psns: [u32; 2],
    /// Code of the transport time-out.
    pub timeout: u8,
    /// How often to try again.
    pub retry_count: u8,
    /// The same after RNR; 7 is for ever.
    pub rnr_retry: u8,
    /// Code of the RNR timer.
    pub min_rnr_timer: u8,
    /// READs and atomics under way from each end.
    pub max_rd_atomic: [u8; 2],
    /// READs and atomics that each end takes.
    pub max_dest_rd_atomic: [u8; 2],
    /// Sizes of the queues.
    pub caps: Caps,
    /// Whether all sends of each end are signaled.
    pub signal_all: [bool; 2],
    /// Whether each end takes receives from its host's shared queue.
    pub shared: [bool; 2],
    /// Whether each end has a protection domain of its own.
    pub own_domain: [bool; 2],
    /// Longest SEND, which is also the length of receives.
    pub send_max: u32,
    /// Longest WRITE and READ.
    pub rdma_max: u32,
    /// Whether receives are posted late.
    pub late_receives: bool,
    /// Requests that may be under way from one end.
    pub outstanding: usize,
    /// Longest pause between posts, in nanoseconds.
    pub pace: u64,
    /// How fast each end may send, in kilobits per second; 0 is without a limit.
    pub rate_limits: [u32; 2],
    /// What each end lets its peer do.
    pub rights: [Access; 2],
}

/// Faults beside those of the network, each on or off.
#[derive(Clone, Copy, Debug, Default)]
pub struct Chaos {
    /// Hosts are away for a while.
    pub away: bool,
    /// Hosts are cut off for a while.
    pub down: bool,
    /// Queue pairs are reset under the feet of their peers.
    pub restart: bool,
    /// Send queues are drained.
    pub drain: bool,
    /// Memory is deregistered while it is in use.
    pub deregister: bool,
    /// Requests that their target must refuse.
    pub bad_requests: bool,
    /// Requests that their own host must refuse.
    pub bad_local: bool,
    /// Receives that cannot take their message.
    pub bad_receives: bool,
}

/// Small socket buffer, as Linux gives it.
pub(crate) const SMALL_BUFFER: u32 = 208 * 1024;
/// Large socket buffer, as a careful administrator sets it.
pub(crate) const LARGE_BUFFER: u32 = 4 * 1024 * 1024;

impl Plan {
    /// The plan of a seed.
    #[must_use]
    pub fn draw(dice: &mut Dice) -> Self {
        // One seed in five has no fault at all; the others have each kind or not.
        let clean = dice.one_in(5);
        let hosts = usize::try_from(dice.between(2, 4)).unwrap_or(2);
        let link = if clean { quiet_link(dice) } else { bad_link(dice) };
        let mut on = |n| !clean && dice.one_in(n);
        let chaos = Chaos {
            away: on(3),
            down: on(4),
            restart: on(3),
            drain: on(3),
            deregister: on(3),
            bad_requests: on(3),
            bad_local: on(4),
            bad_receives: on(4),
        };
        let host_plans: Vec<HostPlan> = (0..hosts).map(|_| host(dice, clean)).collect();
        let timeout = shortest_timeout(&link, &host_plans);
        let count = dice.pick(&[1, 1, 2, 2, 3, 4, 5, 6]);
        let mut pairs: Vec<PairPlan> =
            (0..count).map(|index| pair(dice, hosts, index, clean, timeout)).collect();
        let packets = dice.log_between(700, 4000);
        let liar = dice.one_in(4).then(|| {
            let honest = pairs[0];
            pairs.push(lied_pair(dice, honest.hosts, clean, timeout));
            LiarPlan { every: dice.between(2, 24), ideas: dice.between(8, 80) }
        });
        let through_memory = dice.one_in(4);
        Self { hosts: host_plans, link, pairs, chaos, packets, through_memory, liar }
    }

    /// The same plan, but the pair that a liar would speak on is one like the others.
    #[must_use]
    pub fn without_liar(mut self) -> Self {
        if self.liar.take().is_some()
            && let Some(pair) = self.pairs.last_mut()
        {
            pair.rights = [RIGHTS; 2];
        }
        self
    }

    /// Whether nothing can go wrong in this run: then nothing may be sent twice.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        let LinkPlan { loss, duplicate, reorder, corrupt, .. } = self.link;
        let Chaos { away, down, restart, deregister, bad_requests, bad_local, bad_receives, .. } = self.chaos;
        let chaos = [away, down, restart, deregister, bad_requests, bad_local, bad_receives];
        let small = self.hosts.iter().any(|host| host.buffer < LARGE_BUFFER);
        loss + duplicate + reorder + corrupt == 0 && !small && !chaos.contains(&true)
    }
}

fn quiet_link(dice: &mut Dice) -> LinkPlan {
    LinkPlan {
        ns_per_kib: dice.between(80, 200),
        latency: dice.log_between(500, 20_000),
        mark: if dice.one_in(2) { 20_000 } else { 0 },
        ..LinkPlan::default()
    }
}

fn bad_link(dice: &mut Dice) -> LinkPlan {
    let mut rate =
        |worst| if dice.one_in(2) { 0 } else { u32::try_from(dice.log_between(500, worst)).unwrap_or(0) };
    let (loss, duplicate, reorder) = (rate(200_000), rate(100_000), rate(100_000));
    let (corrupt, mark) = (rate(50_000), rate(50_000));
    LinkPlan {
        ns_per_kib: dice.log_between(80, 8_000),
        latency: dice.log_between(500, 500_000),
        jitter: if dice.one_in(2) { 0 } else { dice.log_between(10, 20_000) },
        loss,
        duplicate,
        reorder,
        reorder_window: dice.log_between(1, 64),
        corrupt,
        mark,
    }
}

fn host(dice: &mut Dice, clean: bool) -> HostPlan {
    if clean {
        return HostPlan {
            buffer: LARGE_BUFFER,
            receive_cost: dice.between(50, 200),
            send_cost: dice.between(50, 200),
            batch: 64,
            hold_acks: dice.pick(&[0, 20_000]),
        };
    }
    HostPlan {
        buffer: dice.pick(&[SMALL_BUFFER, SMALL_BUFFER, 512 * 1024, LARGE_BUFFER]),
        receive_cost: dice.log_between(50, 4_000),
        send_cost: dice.log_between(50, 2_000),
        batch: dice.pick(&[1, 8, 64]),
        hold_acks: dice.pick(&[0, 0, 20_000, 50_000]),
    }
}

/// The shortest time-out that a program with sense would choose: the answer to a packet behind full
/// windows of all other hosts comes before it is over.
fn shortest_timeout(link: &LinkPlan, hosts: &[HostPlan]) -> u8 {
    const WINDOW_KIB: u64 = 1024;
    const WINDOW_DATAGRAMS: u64 = 1280;
    let senders = hosts.len() as u64;
    let slowest = hosts.iter().map(|host| host.receive_cost).max().unwrap_or(0);
    let patience = hosts.iter().map(|host| host.hold_acks).max().unwrap_or(0);
    let queued = senders * (WINDOW_KIB * link.ns_per_kib + WINDOW_DATAGRAMS * slowest);
    let longest = 2 * (link.latency + link.jitter) + patience + queued;
    (8..20).find(|code| 4096_u64 << code >= longest).unwrap_or(20)
}

fn pair(dice: &mut Dice, hosts: usize, index: u64, clean: bool, timeout: u8) -> PairPlan {
    let service = match dice.below(10) {
        0 if index > 0 => Service::Ud,
        1 if index > 0 => Service::Uc,
        _ => Service::Rc,
    };
    let first = dice.index(hosts);
    // Now and then both ends live on one host.
    let second = if dice.one_in(12) { first } else { (first + 1 + dice.index(hosts - 1)) % hosts };
    let depth = dice.pick(&[1, 2, 4, 16, 16]);
    let dest_depth = [(); 2].map(|()| dice.pick(&[1, 2, 4, 16]));
    // Asking for more READs than the peer takes is an error that the peer must notice.
    let over = !clean && dice.one_in(25);
    let max_rd_atomic = [1, 0].map(|peer: usize| if over { 16 } else { dest_depth[peer].min(depth) });
    let large = dice.one_in(40);
    let mut psn = || match dice.below(3) {
        0 => 0xff_ffff - u32::try_from(dice.below(300)).unwrap_or(0),
        1 => u32::try_from(dice.below(3)).unwrap_or(0),
        _ => u32::try_from(dice.below(1 << 24)).unwrap_or(0),
    };
    let psns = [psn(), psn()];
    let rights = [RIGHTS; 2];
    PairPlan {
        service,
        hosts: [first, second],
        mtu: dice.pick(&PathMtu::ALL),
        psns,
        timeout: timeout + dice.pick(&[0, 0, 1, 2]),
        retry_count: dice.pick(&[7, 7, 7, 5, 3, 1, 0]),
        rnr_retry: if clean { 7 } else { dice.pick(&[7, 7, 7, 6, 3, 1, 0]) },
        min_rnr_timer: dice.pick(&[1, 1, 2, 5, 9, 12, 14]),
        max_rd_atomic,
        max_dest_rd_atomic: dest_depth,
        caps: Caps { max_send: 32, max_receive: 32, max_send_sge: 4, max_receive_sge: 4, max_inline: 220 },
        signal_all: [dice.one_in(3), dice.one_in(3)],
        shared: [dice.one_in(5), dice.one_in(5)],
        own_domain: [dice.one_in(3), dice.one_in(3)],
        send_max: dice.pick(&[64, 1024, 5000, 16384]),
        rdma_max: if large { 1 << 20 } else { dice.pick(&[512, 8192, 40_000, 150_000]) },
        late_receives: !clean && dice.one_in(3),
        outstanding: dice.pick(&[1, 4, 16, 32]),
        pace: dice.log_between(200, 200_000),
        rate_limits: [(); 2].map(|()| match dice.below(6) {
            0 => u32::try_from(dice.log_between(50_000, 20_000_000)).unwrap_or(0),
            _ => 0,
        }),
        rights,
    }
}

/// What a peer may do, if nothing else is said.
const RIGHTS: Access = Access::REMOTE_WRITE.union(Access::REMOTE_READ).union(Access::REMOTE_ATOMIC);

/// The pair that a liar speaks on: it lives on the hosts of an honest one, and shares no memory with it but the
/// atomic cells. Its patience has an end, because a liar can ask for any.
fn lied_pair(dice: &mut Dice, hosts: [usize; 2], clean: bool, timeout: u8) -> PairPlan {
    let plan = pair(dice, 2, 0, clean, timeout);
    let rights = [(); 2].map(|()| match dice.below(12) {
        0 => RIGHTS - Access::REMOTE_WRITE,
        1 => RIGHTS - Access::REMOTE_READ,
        2 => RIGHTS - Access::REMOTE_ATOMIC,
        _ => RIGHTS,
    });
    PairPlan {
        hosts,
        rnr_retry: dice.pick(&[0, 1, 3, 6]),
        shared: [false; 2],
        own_domain: [true; 2],
        rdma_max: plan.rdma_max.min(40_000),
        late_receives: false,
        rights,
        ..plan
    }
}
