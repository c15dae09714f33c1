//! One run: a seed becomes a plan, the plan a world, and the world is watched until it rests.

use std::time::Duration;

use ferroce_transport::{Attributes, State};
use ferroce_wire::{Psn, Service};

use crate::check::witness::Witness;
use crate::check::{Violation, broken};
use crate::coverage::{Coverage, Kind, NETWORK, RINGS, mtu_name};
use crate::dice::Dice;
use crate::liar::Liar;
use crate::link::Fault;
use crate::plan::{PairPlan, Plan};
use crate::rings::Rings;
use crate::setup::{Built, CONSTANT, Home, build, transitions};
use crate::trace::Trace;
use crate::watch::{News, Watch};
use crate::world::{At, Step, World};

/// What a run gave.
#[derive(Debug)]
pub struct Outcome {
    /// What it met.
    pub coverage: Coverage,
    /// The promise that was broken, if one was.
    pub violation: Option<Violation>,
}

/// A run counts only with this many packets.
pub const MIN_PACKETS: u64 = 500;

/// No run may need more steps, or more virtual time.
const MAX_STEPS: u64 = 1_000_000;
const MAX_TIME: Duration = Duration::from_secs(900);

/// A run in progress.
pub(crate) struct Run<'a> {
    pub(crate) plan: Plan,
    pub(crate) dice: Dice,
    pub(crate) world: World,
    pub(crate) watch: Watch<'a>,
    pub(crate) homes: Vec<Home>,
    pub(crate) constants: Vec<u64>,
    pub(crate) ends: Vec<EndState>,
    /// Data packets that posted work may still cause.
    pub(crate) budget: u64,
    pub(crate) next_id: u64,
    /// Keys to be deregistered when their time comes.
    pub(crate) doomed: Vec<(usize, u32)>,
    /// Whether a repair is under way, for each pair.
    repairing: Vec<bool>,
    /// PSNs of the next life, for each pair.
    lives: Vec<u32>,
}

/// What the program at an end remembers.
#[derive(Clone, Copy, Debug)]
pub(crate) struct EndState {
    pub(crate) ticking: bool,
    pub(crate) window: WindowState,
    pub(crate) window_key: u32,
}

/// What the program does with its memory window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum WindowState {
    /// Nothing is bound.
    Free,
    /// A bind is posted.
    Binding,
    /// The peer may use it.
    Bound,
    /// It is being invalidated.
    Closing,
}

/// Why the world wakes the run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Token {
    /// The program at this end does something.
    Tick(usize),
    /// This pair is connected again.
    Repair(usize),
    /// The send queue of this end goes on.
    Resume(usize),
    /// Memory goes away.
    Deregister(usize),
    /// Something goes wrong.
    Chaos,
}

impl Token {
    const fn encode(self) -> u64 {
        match self {
            Self::Tick(end) => end as u64,
            Self::Repair(pair) => 1 << 32 | pair as u64,
            Self::Resume(end) => 2 << 32 | end as u64,
            Self::Deregister(index) => 3 << 32 | index as u64,
            Self::Chaos => 4 << 32,
        }
    }

    fn decode(code: u64) -> Self {
        let index = usize::try_from(code & 0xffff_ffff).unwrap_or(0);
        match code >> 32 {
            0 => Self::Tick(index),
            1 => Self::Repair(index),
            2 => Self::Resume(index),
            3 => Self::Deregister(index),
            _ => Self::Chaos,
        }
    }
}

/// Runs a seed. The same seed gives the same run, line by line.
pub fn run(seed: u64, trace: &mut Trace) -> Outcome {
    run_with(seed, true, trace)
}

/// The same; without liars, an honest pair is in the place of the one that a liar would speak on.
pub fn run_with(seed: u64, liars: bool, trace: &mut Trace) -> Outcome {
    let mut dice = Dice::new(seed);
    let plan = Plan::draw(&mut dice);
    let plan = if liars { plan } else { plan.without_liar() };
    let mut built = build(&plan);
    let liar = plan.liar.map(|liar| Liar::new(liar, dice.split(), built.victims(&plan)));
    let Built { nodes, model, homes, constants } = built;
    let rings = if plan.through_memory { Rings::between(plan.hosts.len()) } else { Rings::default() };
    let world = World::new(nodes, (plan.link, rings), dice.split(), liar);
    let ends = homes
        .iter()
        .map(|home| EndState { ticking: false, window: WindowState::Free, window_key: home.window })
        .collect();
    let mut coverage = Coverage::default();
    coverage.runs = 1;
    for pair in &plan.pairs {
        coverage.count(Kind::Mtu, mtu_name(pair.mtu));
    }
    coverage.count(Kind::Way, if plan.through_memory { RINGS } else { NETWORK });
    trace.line(world.now(), || format!("{plan:#?}"));
    let max_send = plan.pairs[0].caps.max_send;
    let watch = Watch { model, coverage, trace, news: Vec::new(), max_send };
    let (budget, pairs) = (plan.packets, plan.pairs.len());
    let mut run = Run {
        plan,
        dice,
        world,
        watch,
        homes,
        constants,
        ends,
        budget,
        next_id: 1,
        doomed: Vec::new(),
        repairing: vec![false; pairs],
        lives: vec![0; pairs],
    };
    let violation = run.whole().err();
    run.count();
    Outcome { coverage: run.watch.coverage, violation }
}

impl Run<'_> {
    fn whole(&mut self) -> Result<(), Violation> {
        for pair in 0..self.plan.pairs.len() {
            self.connect(pair, self.plan.pairs[pair].psns)?;
        }
        self.later(Token::Chaos, 10_000, 2_000_000);
        loop {
            self.until_rest()?;
            if self.world.packets >= MIN_PACKETS {
                break;
            }
            self.budget += MIN_PACKETS;
            for end in 0..self.ends.len() {
                self.tick_soon(end);
            }
        }
        self.watch.model.check_rest(&self.world.hosts)?;
        let len = usize::try_from(CONSTANT).unwrap_or(0);
        for host in 0..self.constants.len() {
            self.watch.model.check_constant(&self.world.hosts, host, self.constants[host], len)?;
        }
        if self.plan.is_clean() && self.plan.liar.is_some() {
            self.watch.model.check_neighbours()?;
        } else if self.plan.is_clean() {
            let rnr = self.watch.coverage.has(Kind::Nak, "RNR NAK");
            self.watch.model.check_no_repeats(&self.world.hosts, rnr)?;
        }
        self.end_all()
    }

    /// `comes-to-rest`: whatever the network does, a run ends within a bounded time. Packets still
    /// get through, so work must be done or must fail; nothing may wait for ever.
    fn until_rest(&mut self) -> Result<(), Violation> {
        let (start, mut steps) = (self.world.now(), 0);
        loop {
            match self.world.step(&mut self.watch)? {
                Step::Rest => return Ok(()),
                Step::Internal => {}
                Step::Wake(token) => self.wake(Token::decode(token))?,
            }
            self.react();
            steps += 1;
            if steps > MAX_STEPS || self.world.now().since(start) > MAX_TIME {
                let (time, open) = (self.world.now(), self.open_ends());
                return broken(
                    "comes-to-rest",
                    format!("{steps} steps, now {time}, and the run goes on: {open}"),
                );
            }
        }
    }

    /// What is still open, in words.
    fn open_ends(&self) -> String {
        let mut words = format!("budget {}", self.budget);
        for (index, end) in self.watch.model.ends.iter().enumerate() {
            let timer = self.world.hosts[end.at.host].node.queue_pair(end.at.slot).poll_timeout();
            let (open, unheard, receives) = (end.outstanding(), end.awaiting_receive(), end.receives.len());
            words += &format!(
                "; end {index} in {}: {open} sends open, {unheard} to be received, {receives} receives, timer {timer:?}",
                end.state
            );
        }
        words
    }

    fn wake(&mut self, token: Token) -> Result<(), Violation> {
        match token {
            Token::Tick(end) => self.tick(end),
            Token::Repair(pair) => self.repair(pair),
            Token::Resume(end) => self.resume(end),
            Token::Deregister(index) => {
                let (host, key) = self.doomed[index];
                self.world.hosts[host].node.device.memory.deregister(key);
                let now = self.world.now();
                self.watch.inject(now, Fault::Deregister, || format!("key 0x{key:x} of host {host}"));
                Ok(())
            }
            Token::Chaos => self.chaos(),
        }
    }

    /// Asks to be woken after a random time.
    pub(crate) fn later(&mut self, token: Token, shortest: u64, longest: u64) {
        let delay = self.dice.log_between(shortest, longest);
        self.world.wake_after(Duration::from_nanos(delay), token.encode());
    }

    pub(crate) fn tick_soon(&mut self, end: usize) {
        let PairPlan { pace, late_receives, .. } = self.plan.pairs[end / 2];
        let (shortest, longest) = if late_receives { (5_000, pace.max(500_000)) } else { (100, pace) };
        self.tick_after(end, shortest, longest);
    }

    /// Wakes the program at an end after a random time, unless it is to be woken anyway.
    pub(crate) fn tick_after(&mut self, end: usize, shortest: u64, longest: u64) {
        if !std::mem::replace(&mut self.ends[end].ticking, true) {
            self.later(Token::Tick(end), shortest, longest);
        }
    }

    pub(crate) fn at(&self, end: usize) -> At {
        self.watch.model.ends[end].at
    }

    /// What the programs do about what they hear.
    fn react(&mut self) {
        while let Some(news) = self.watch.news.pop() {
            match news {
                News::Broken(end) => {
                    self.ends[end].window = WindowState::Free;
                    if !std::mem::replace(&mut self.repairing[end / 2], true) {
                        self.later(Token::Repair(end / 2), 20_000, 400_000_000);
                    }
                }
                News::Drained(end) => self.later(Token::Resume(end), 100, 1_000_000),
                News::Bound(end, key) => self.ends[end].window_key = key,
                News::Invalidated(end, key) if key == self.ends[end].window_key => {
                    self.ends[end].window = WindowState::Free;
                }
                News::Invalidated(..) => {}
                News::Sent { end, id, good } => self.sent(end, id, good),
            }
        }
    }

    /// Moves an end through these steps.
    pub(crate) fn modify(&mut self, end: usize, attributes: &[Attributes]) -> Result<(), Violation> {
        for step in attributes {
            let result =
                self.world.call(self.at(end), &mut self.watch, |node, slot| node.modify(slot, step))?;
            if let Err(error) = result {
                return broken("legal-transition", format!("end {end}: {error}"));
            }
        }
        Ok(())
    }

    /// Brings both ends of a pair up.
    fn connect(&mut self, pair: usize, psns: [u32; 2]) -> Result<(), Violation> {
        let plan = self.plan.pairs[pair];
        for side in 0..2 {
            let end = pair * 2 + side;
            let peer = self.watch.model.ends[pair * 2 + 1 - side].qpn;
            self.modify(end, &transitions(&plan, side, psns, peer))?;
            if self.plan.liar.is_some() && pair + 1 == self.plan.pairs.len() {
                let mtu = u32::try_from(plan.mtu.bytes()).unwrap_or(256);
                let [sends_from, expects] = [psns[side], psns[1 - side]].map(Psn::new);
                let at = self.at(end);
                let counters = *self.world.hosts[at.host].node.queue_pair(at.slot).counters();
                let witness = Witness::new(mtu, plan.rights[side], (sends_from, expects), &counters);
                self.watch.model.ends[end].witness = Some(Box::new(witness));
            }
            self.tick_soon(end);
        }
        Ok(())
    }

    /// Both ends go to RESET, some by way of ERR, and come up again with other PSNs. Packets of their
    /// former life may still arrive.
    fn repair(&mut self, pair: usize) -> Result<(), Violation> {
        let plan = self.plan.pairs[pair];
        if plan.service != Service::Rc {
            return self.repair_unreliable(pair);
        }
        let ends = [pair * 2, pair * 2 + 1];
        for end in ends {
            let state = self.watch.model.ends[end].state;
            if state != State::Reset && (state == State::Err || self.dice.one_in(2)) {
                self.break_end(end)?;
            }
        }
        for end in ends {
            self.modify(end, &[Attributes::to(State::Reset)])?;
            let (at, qpn) = (self.at(end), self.watch.model.ends[end].qpn);
            self.world.hosts[at.host].node.device.memory.unbind_all(qpn);
            self.ends[end].window = WindowState::Free;
        }
        self.watch.model.forget(ends);
        let silent = plan.hosts.iter().any(|host| self.world.hosts[*host].is_silent(self.world.now()));
        for end in ends {
            self.watch.model.ends[end].silence = silent;
        }
        self.repairing[pair] = false;
        // Far from all PSNs of the lives before, as random ones would almost surely be.
        self.lives[pair] += 1;
        let shift = self.lives[pair] * 0x02_4321;
        self.connect(pair, plan.psns.map(|psn| psn.wrapping_add(shift) & 0xff_ffff))
    }

    /// A failed send of UC or UD leaves the receiving half alone.
    fn repair_unreliable(&mut self, pair: usize) -> Result<(), Violation> {
        self.repairing[pair] = false;
        for end in [pair * 2, pair * 2 + 1] {
            if self.watch.model.ends[end].state == State::Sqe {
                self.watch.model.ends[end].cause = None;
                self.modify(end, &[Attributes::to(State::Rts)])?;
                self.tick_soon(end);
            }
        }
        Ok(())
    }

    /// Moves an end into error. `all-flushed`: everything that was posted has completed by then.
    pub(crate) fn break_end(&mut self, end: usize) -> Result<(), Violation> {
        self.watch.program_breaks(end);
        self.modify(end, &[Attributes::to(State::Err)])?;
        let known = &self.watch.model.ends[end];
        let fine = |index: usize| {
            !known.messages[index].signaled
                && self.watch.model.check_done(&self.world.hosts, end, index).is_ok()
        };
        if !(known.completed..known.messages.len()).all(fine) || !known.receives.is_empty() {
            let (sends, receives) = (known.outstanding(), known.receives.len());
            let what = format!("end {end} is in error with {sends} sends and {receives} receives left");
            return broken("all-flushed", what);
        }
        Ok(())
    }

    fn resume(&mut self, end: usize) -> Result<(), Violation> {
        if self.watch.model.ends[end].state == State::Sqd {
            self.modify(end, &[Attributes::to(State::Rts)])?;
        }
        Ok(())
    }

    /// After the end: everything goes to ERR, which flushes the receives that are left.
    fn end_all(&mut self) -> Result<(), Violation> {
        for end in 0..self.ends.len() {
            if self.dice.one_in(2) {
                self.break_end(end)?;
            }
        }
        Ok(())
    }

    fn count(&mut self) {
        for end in &self.watch.model.ends {
            let counters = self.world.hosts[end.at.host].node.queue_pair(end.at.slot).counters();
            for (name, count) in counters.iter() {
                *self.watch.coverage.counters.entry(name).or_default() += count;
            }
        }
        self.watch.coverage.nanos = self.world.now().nanos();
    }
}
