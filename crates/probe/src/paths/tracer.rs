//! Which hop limits to ask for, and when: routers answer only so many questions, so they come at a pace.

use std::collections::{BTreeMap, VecDeque};
use std::net::IpAddr;
use std::time::Duration;

use super::trace::Trace;
use crate::stamp::Stamp;

/// How ports are traced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TracerConfig {
    /// No path has more hops.
    pub max_hops: u8,
    /// How often a hop limit is asked for, if no answer comes.
    pub attempts: u8,
    /// The time between two packets.
    pub interval: Duration,
    /// How long to wait for an answer.
    pub wait: Duration,
}

impl Default for TracerConfig {
    fn default() -> Self {
        Self {
            max_hops: 8,
            attempts: 3,
            interval: Duration::from_millis(1),
            wait: Duration::from_millis(1100),
        }
    }
}

/// A probe that is to be sent from this port with this hop limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Ask {
    /// The source port.
    pub port: u16,
    /// The hop limit.
    pub hop_limit: u8,
}

/// Traces ports, all of them at once, at one pace.
#[derive(Clone, Debug)]
pub struct Tracer {
    config: TracerConfig,
    /// What is to be asked, the earliest first: all wait equally long.
    queue: VecDeque<Turn>,
    open: BTreeMap<u16, Open>,
    done: VecDeque<Trace>,
    not_before: Stamp,
}

#[derive(Clone, Copy, Debug)]
struct Turn {
    ask: Ask,
    /// Attempts before this one.
    attempts: u8,
    not_before: Stamp,
}

#[derive(Clone, Debug)]
struct Open {
    trace: Trace,
    /// Turns in the queue.
    turns: usize,
}

impl Tracer {
    /// Traces these ports.
    #[must_use]
    pub fn new(config: TracerConfig, ports: impl IntoIterator<Item = u16>) -> Self {
        let config =
            TracerConfig { max_hops: config.max_hops.max(1), attempts: config.attempts.max(1), ..config };
        let (queue, open, done) = (VecDeque::new(), BTreeMap::new(), VecDeque::new());
        let mut tracer = Self { config, queue, open, done, not_before: Stamp::default() };
        for port in ports {
            tracer.add(port);
        }
        tracer
    }

    /// Traces one more port, unless it is being traced.
    pub fn add(&mut self, port: u16) {
        if self.open.contains_key(&port) {
            return;
        }
        let max_hops = self.config.max_hops;
        let turns = usize::from(max_hops);
        self.open.insert(port, Open { trace: Trace::new(port, max_hops), turns });
        // First attempts come before second ones, which have to wait anyway.
        for hop_limit in (1..=max_hops).rev() {
            let ask = Ask { port, hop_limit };
            self.queue.push_front(Turn { ask, attempts: 0, not_before: Stamp::default() });
        }
    }

    /// What to send now; none if it is not the time, or nothing is left to ask.
    pub fn ask(&mut self, now: Stamp) -> Option<Ask> {
        loop {
            let turn = *self.queue.front()?;
            if turn.not_before.max(self.not_before) > now {
                return None;
            }
            let wants =
                self.open.get(&turn.ask.port).is_some_and(|open| open.trace.wants(turn.ask.hop_limit));
            let is_over = turn.attempts >= self.config.attempts;
            self.queue.pop_front();
            if !wants || is_over {
                self.end_turn(turn.ask.port);
                continue;
            }
            self.not_before = now.plus(self.config.interval);
            let again = Turn { attempts: turn.attempts + 1, not_before: now.plus(self.config.wait), ..turn };
            self.queue.push_back(again);
            return Some(turn.ask);
        }
    }

    /// When [`ask`](Self::ask) may have something again; none if all ports are traced.
    #[must_use]
    pub fn wake_at(&self) -> Option<Stamp> {
        self.queue.front().map(|turn| turn.not_before.max(self.not_before))
    }

    /// A router said that a packet from this port with this hop limit ended at it.
    pub fn router(&mut self, port: u16, hop_limit: u8, address: IpAddr) {
        self.tell(port, |trace| trace.router(hop_limit, address));
    }

    /// The target answered a packet from this port with this hop limit.
    pub fn reached(&mut self, port: u16, hop_limit: u8) {
        self.tell(port, |trace| trace.reached(hop_limit));
    }

    /// A port that is traced, as far as its routers answer; none if no other one is.
    pub fn poll(&mut self) -> Option<Trace> {
        self.done.pop_front()
    }

    fn tell(&mut self, port: u16, what: impl FnOnce(&mut Trace)) {
        let Some(open) = self.open.get_mut(&port) else { return };
        what(&mut open.trace);
        if open.trace.is_complete() {
            self.finish(port);
        }
    }

    fn end_turn(&mut self, port: u16) {
        let Some(open) = self.open.get_mut(&port) else { return };
        open.turns -= 1;
        if open.turns == 0 {
            self.finish(port);
        }
    }

    fn finish(&mut self, port: u16) {
        if let Some(open) = self.open.remove(&port) {
            self.queue.retain(|turn| turn.ask.port != port);
            self.done.push_back(open.trace);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const CONFIG: TracerConfig = TracerConfig {
        max_hops: 6,
        attempts: 3,
        interval: Duration::from_millis(1),
        wait: Duration::from_millis(100),
    };

    fn router(number: u8) -> IpAddr {
        IpAddr::from([10, 1, 0, number])
    }

    /// Traces with three routers before the target. A packet is answered if `answers` says so.
    fn run(ports: &[u16], mut answers: impl FnMut(Ask, u32) -> bool) -> (Vec<Trace>, u32) {
        let mut tracer = Tracer::new(CONFIG, ports.iter().copied());
        let (mut asked, mut traces) = (0, Vec::new());
        let mut last: Option<Stamp> = None;
        while let Some(now) = tracer.wake_at() {
            if let Some(ask) = tracer.ask(now) {
                assert!(
                    last.is_none_or(|last| now.since(last) >= CONFIG.interval),
                    "too soon after the last one"
                );
                last = Some(now);
                asked += 1;
                if answers(ask, asked) {
                    match ask.hop_limit {
                        4.. => tracer.reached(ask.port, ask.hop_limit),
                        hop_limit => tracer.router(ask.port, hop_limit, router(hop_limit)),
                    }
                }
            }
            traces.extend(std::iter::from_fn(|| tracer.poll()));
            assert!(asked < 10_000);
        }
        (traces, asked)
    }

    #[test]
    fn with_all_answers_each_hop_is_asked_for_once() {
        let (traces, asked) = run(&[50_000, 50_001], |_, _| true);
        assert_eq!((traces.len(), asked), (2, 8), "three routers and the target, for two ports");
        assert!(traces.iter().all(Trace::is_complete));
        assert_eq!(traces[0].path().routers, [1, 2, 3].map(|number| Some(router(number))));
    }

    #[test]
    fn what_is_missing_is_asked_for_again_and_then_left_out() {
        let (traces, _) = run(&[50_000], |_, number| number % 3 == 0);
        assert_eq!(traces.len(), 1);
        let (traces, asked) = run(&[50_000], |ask, _| ask.hop_limit != 2);
        assert_eq!((asked, traces[0].is_complete()), (6, false), "hop limit 2 three times");
        let routers: Vec<_> = traces[0].path().routers.iter().map(Option::is_some).collect();
        assert_eq!((routers, traces[0].path().reaches), (vec![true, false, true], true));
    }

    #[test]
    fn without_any_answer_it_ends_too() {
        let (traces, asked) = run(&[50_000], |_, _| false);
        assert_eq!((traces.len(), asked), (1, 18));
        assert!(traces[0].path().routers.is_empty());
    }

    #[test]
    fn a_port_is_traced_once_and_late_answers_are_dropped() {
        let mut tracer = Tracer::new(CONFIG, [50_000, 50_000]);
        tracer.add(50_000);
        let first_round: Vec<_> =
            (0..20).filter_map(|millis| tracer.ask(Stamp::from_nanos(millis * 1_000_000))).collect();
        assert_eq!(first_round.iter().map(|ask| ask.hop_limit).collect::<Vec<_>>(), [1, 2, 3, 4, 5, 6]);
        for hop_limit in 1..=3 {
            tracer.router(50_000, hop_limit, router(hop_limit));
        }
        tracer.reached(50_000, 4);
        assert!(tracer.poll().is_some_and(|trace| trace.is_complete()));
        tracer.router(50_000, 1, router(9));
        assert_eq!((tracer.poll(), tracer.ask(Stamp::default()), tracer.wake_at()), (None, None, None));
    }
}
