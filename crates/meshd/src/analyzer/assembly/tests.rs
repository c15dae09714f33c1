//! Windows of agents that come in any order, late, twice or never.

use std::ops::{Deref, DerefMut};

use ferroce_probe::paths::Path;

use super::*;
use crate::analyzer::Keeping;
use crate::analyzer::judge::Judge;
use crate::histogram::Histogram;
use crate::service_flow::ServiceFlowReport;
use crate::store::StoreConfig;
use crate::window::Flow;

const SECOND: u64 = 1_000_000_000;
const LENGTH: u64 = 20 * SECOND;
/// A boundary between windows.
const ZERO: u64 = 1_000_000 * LENGTH;

fn address(last: u8) -> IpAddr {
    IpAddr::from([10, 0, 0, last])
}

fn roster(agents: &[(u8, &str, u32)]) -> v1::RosterState {
    let member = |(last, tor, qpn): &(u8, &str, u32)| v1::Member {
        agent: format!("a{last}"),
        host: format!("h{last}"),
        rnic: Some(v1::Rnic {
            address: address(*last).to_string(),
            qpn: *qpn,
            tor: (*tor).to_owned(),
            ..v1::Rnic::default()
        }),
    };
    v1::RosterState { version: 1, members: agents.iter().map(member).collect(), window_ms: 20_000 }
}

/// An assembly with a judge beside it.
struct Court {
    assembly: Assembly,
    judge: Judge,
    saved: Vec<News>,
}

impl Court {
    fn new(config: &AnalyzerServerConfig) -> Self {
        Self::after(config, &Kept::default())
    }

    /// One that goes on from what was kept.
    fn after(config: &AnalyzerServerConfig, kept: &Kept) -> Self {
        let mut assembly = Assembly::new(config);
        assembly.restore(kept);
        Self { assembly, judge: Judge::new(config, kept).unwrap(), saved: Vec::new() }
    }

    fn advance(&mut self, now: u64) {
        self.judge_until(now);
        if self.assembly.config.store.is_some() {
            let (news, generation) = self.assembly.unkept();
            self.assembly.kept(&news, generation);
            self.saved.push(news);
        }
    }

    /// Judges, and keeps nothing.
    fn judge_until(&mut self, now: u64) {
        while let Some(due) = self.assembly.due(now) {
            let judged = self.judge.judge(&due);
            self.assembly.judged(judged);
        }
    }
}

impl Deref for Court {
    type Target = Assembly;

    fn deref(&self) -> &Assembly {
        &self.assembly
    }
}

impl DerefMut for Court {
    fn deref_mut(&mut self) -> &mut Assembly {
        &mut self.assembly
    }
}

fn assembly(agents: &[(u8, &str, u32)]) -> Court {
    let mut assembly = Court::new(&AnalyzerServerConfig::new("127.0.0.1:1"));
    assembly.roster(&roster(agents), ZERO);
    for (last, ..) in agents {
        assembly.hello(&format!("a{last}"), ZERO).unwrap();
    }
    assembly
}

/// Window `number` of an agent, with flows to others.
fn window(from: u8, number: u64, flows: &[(u8, Outcomes)]) -> v1::Window {
    let flow = |(to, outcomes): &(u8, Outcomes)| Flow {
        from: address(from),
        to: address(*to),
        port: 50_000,
        reply_port: 50_000,
        outcomes: *outcomes,
        round_trips: Histogram::default(),
    };
    let report = WindowReport {
        start: ZERO + (number - 1) * LENGTH,
        end: ZERO + number * LENGTH,
        flows: flows.iter().map(flow).collect(),
        ..WindowReport::default()
    };
    report.to_message(Mark { epoch: 1, number })
}

fn ok(count: u32) -> Outcomes {
    Outcomes { ok: count, ..Outcomes::default() }
}

#[test]
fn a_window_is_looked_at_when_all_have_told_theirs_or_the_grace_is_over() {
    let mut assembly = assembly(&[(1, "t1", 5), (2, "t1", 5)]);
    let end = ZERO + LENGTH;
    assembly.take("a1", &window(1, 1, &[(2, ok(3))]), end);
    assembly.take("a2", &window(2, 1, &[(1, ok(3))]), end);
    assembly.advance(end);
    assert_eq!((assembly.counters.windows, assembly.counters.incomplete), (1, 0));
    let end = end + LENGTH;
    assembly.take("a1", &window(1, 2, &[(2, ok(3))]), end);
    assembly.advance(end + 9 * SECOND);
    assert_eq!(assembly.counters.windows, 1, "it waits for the other");
    assembly.advance(end + 10 * SECOND);
    assert_eq!((assembly.counters.windows, assembly.counters.incomplete), (2, 1));
    assembly.take("a2", &window(2, 2, &[(1, ok(3))]), end + 11 * SECOND);
    assert_eq!(
        (assembly.counters.too_late, assembly.counters.kept),
        (1, 4),
        "it counts, and is not looked at"
    );
    let tallies = assembly.tallies();
    assert!(
        tallies.agents.iter().all(|agent| agent.outcomes[0].count == 6 && agent.kept == 2),
        "{tallies:?}"
    );
}

#[test]
fn the_first_window_waits_for_all_that_have_said_hello() {
    let mut assembly = assembly(&[(1, "t1", 5), (2, "t1", 5)]);
    let end = ZERO + LENGTH;
    assembly.take("a1", &window(1, 1, &[(2, ok(3))]), end);
    assembly.advance(end + 9 * SECOND);
    assert_eq!(assembly.counters.windows, 0, "of the other nothing has come yet");
    assembly.take("a2", &window(2, 1, &[(1, ok(3))]), end + 9 * SECOND);
    assembly.advance(end + 9 * SECOND);
    assert_eq!((assembly.counters.windows, assembly.counters.too_late), (1, 0));
}

#[test]
fn a_card_that_is_gone_for_a_day_is_forgotten() {
    let mut assembly = assembly(&[(1, "t1", 5), (2, "t1", 5)]);
    assembly.roster(&roster(&[(1, "t1", 5)]), ZERO);
    assembly.roster(&roster(&[(1, "t1", 5)]), ZERO + GONE - 1);
    assert_eq!(assembly.members.len(), 2, "it may come back");
    assembly.roster(&roster(&[(1, "t1", 5), (2, "t1", 5)]), ZERO + GONE - 1);
    assembly.roster(&roster(&[(1, "t1", 5)]), ZERO + GONE);
    assert_eq!((assembly.members.len(), assembly.gone.len()), (2, 1), "it has come back, and is gone again");
    assembly.roster(&roster(&[(1, "t1", 5)]), ZERO + 2 * GONE);
    assert_eq!((assembly.members.len(), assembly.gone.len()), (1, 0));
}

#[test]
fn a_trace_to_a_card_that_is_not_known_yet_waits_for_it() {
    let mut assembly = assembly(&[(1, "t1", 5)]);
    let mut message = window(1, 1, &[]);
    message.traces = [2, 77].map(|to| trace(1, to, 50_000).to_message()).into();
    assembly.take("a1", &message, ZERO + LENGTH);
    assert_eq!((assembly.counters.traces, assembly.early.len()), (0, 2));
    assembly.roster(&roster(&[(1, "t1", 5), (2, "t1", 5)]), ZERO + LENGTH);
    assert_eq!((assembly.counters.traces, assembly.counters.foreign_traces), (1, 0));
    assert_eq!(assembly.early.len(), 1, "the other waits still");
    assembly.hello("a2", ZERO + LENGTH).unwrap();
    for number in 2..=4 {
        let end = ZERO + number * LENGTH;
        assembly.take("a1", &window(1, number, &[(2, ok(3))]), end);
        assembly.take("a2", &window(2, number, &[(1, ok(3))]), end);
        assembly.advance(end);
    }
    assert_eq!((assembly.early.len(), assembly.counters.foreign_traces), (0, 1), "but not for ever");
}

#[test]
fn a_judge_that_is_lost_leaves_its_findings_to_the_next() {
    let config = AnalyzerServerConfig::new("127.0.0.1:1");
    let agents: Vec<(u8, &str, u32)> = (1..=4).map(|last| (last, "t1", 5)).collect();
    let mut court = assembly(&agents);
    let lost = Outcomes { time_out: 50, ..Outcomes::default() };
    for number in 1..=6 {
        let end = ZERO + number * LENGTH;
        for from in 1..=4_u8 {
            let to = |to: u8| if to == 3 || from == 3 { lost } else { ok(50) };
            let flows: Vec<_> =
                (1..=4).filter(|other| *other != from).map(|other| (other, to(other))).collect();
            court.take(&format!("a{from}"), &window(from, number, &flows), end);
        }
        if number == 4 {
            assert!(court.assembly.due(end).is_some(), "this slot is lost");
            let kept = court.assembly.judge_lost();
            court.judge = Judge::new(&config, &kept).unwrap();
        }
        court.advance(end);
    }
    let findings = court.findings();
    assert_eq!(
        (findings.open.len(), findings.over.len(), court.counters.judges_lost),
        (1, 0, 1),
        "{findings:?}"
    );
    assert_eq!((findings.open[0].id, findings.open[0].since_unix_ns), (0, ZERO));
}

#[test]
fn a_card_that_answers_nothing_is_found_and_told_with_its_time() {
    let agents: Vec<(u8, &str, u32)> = (1..=4).map(|last| (last, "t1", 5)).collect();
    let mut assembly = assembly(&agents);
    let lost = Outcomes { time_out: 50, ..Outcomes::default() };
    for number in 1..=4 {
        let end = ZERO + number * LENGTH;
        for from in 1..=4_u8 {
            let to = |to: u8| if to == 3 || from == 3 { lost } else { ok(50) };
            let flows: Vec<_> =
                (1..=4).filter(|other| *other != from).map(|other| (other, to(other))).collect();
            assert_eq!(assembly.take(&format!("a{from}"), &window(from, number, &flows), end).1, None);
        }
        assembly.advance(end);
    }
    let findings = assembly.findings();
    assert_eq!((findings.windows, findings.agents, findings.open.len()), (4, 4, 1), "{findings:?}");
    let found = &findings.open[0];
    assert!(found.suspects.iter().any(|suspect| suspect.contains("10.0.0.3")), "{found:?}");
    assert_eq!((found.trouble.as_str(), found.since_unix_ns), ("loss", ZERO), "{found:?}");
}

#[test]
fn a_host_that_was_found_bad_stays_so_when_it_says_that_it_stood_still() {
    let agents: Vec<(u8, &str, u32)> = (1..=4).map(|last| (last, "t1", 5)).collect();
    let mut assembly = assembly(&agents);
    // It answers few probes, and its own are answered.
    let few = Outcomes { ok: 10, time_out: 40, ..Outcomes::default() };
    for number in 1..=8 {
        let end = ZERO + number * LENGTH;
        for from in 1..=4_u8 {
            let to = |to: u8| if to == 3 { few } else { ok(50) };
            let flows: Vec<_> =
                (1..=4).filter(|other| *other != from).map(|other| (other, to(other))).collect();
            let mut message = window(from, number, &flows);
            if from == 3 && number > 4 {
                let host = HostState { stalls: 3, longest: Duration::from_millis(300), receive_drops: 0 };
                let report = WindowReport { host, ..WindowReport::default() };
                message.host = report.to_message(Mark::default()).host;
            }
            assembly.take(&format!("a{from}"), &message, end);
        }
        assembly.advance(end);
        let findings = assembly.findings();
        let open: Vec<_> = findings.open.iter().map(|one| (one.id, one.suspects.clone())).collect();
        let expected = if number > 1 { vec![(0, vec!["host h3".to_owned()])] } else { Vec::new() };
        assert_eq!((open, findings.over), (expected, Vec::new()), "window {number}");
    }
}

#[test]
fn a_silent_agent_is_no_loss_of_the_network() {
    let agents: Vec<(u8, &str, u32)> = (1..=4).map(|last| (last, "t1", 5)).collect();
    let mut assembly = assembly(&agents);
    let lost = Outcomes { time_out: 50, ..Outcomes::default() };
    assembly.roster(&roster(&[(1, "t1", 5), (2, "t1", 5), (4, "t1", 5)]), ZERO);
    for number in 1..=4 {
        let end = ZERO + number * LENGTH;
        for from in [1, 2, 4_u8] {
            let to = |to: u8| if to == 3 { lost } else { ok(50) };
            let flows: Vec<_> =
                (1..=4).filter(|other| *other != from).map(|other| (other, to(other))).collect();
            assembly.take(&format!("a{from}"), &window(from, number, &flows), end);
        }
        assembly.advance(end);
    }
    assert_eq!((assembly.findings().windows, assembly.findings().open), (4, Vec::new()));
    assert_eq!(assembly.counters.topologies, 1, "what is gone keeps its place");
}

#[test]
fn an_agent_that_tells_nothing_in_time_is_no_loss_of_the_network() {
    let agents: Vec<(u8, &str, u32)> = (1..=4).map(|last| (last, "t1", 5)).collect();
    let mut assembly = assembly(&agents);
    let lost = Outcomes { time_out: 50, ..Outcomes::default() };
    for number in 1..=6 {
        let end = ZERO + number * LENGTH;
        // The third one stands still from the third window on; its lease runs.
        let is_still = number > 2;
        for from in (1..=4_u8).filter(|from| *from != 3 || !is_still) {
            let to = |to: u8| if to == 3 && is_still { lost } else { ok(50) };
            let flows: Vec<_> =
                (1..=4).filter(|other| *other != from).map(|other| (other, to(other))).collect();
            assembly.take(&format!("a{from}"), &window(from, number, &flows), end);
        }
        assembly.advance(end + 10 * SECOND);
    }
    assert_eq!((assembly.counters.windows, assembly.counters.incomplete), (6, 4));
    assert_eq!(assembly.findings().open, Vec::new(), "it may be all its own");
}

#[test]
fn what_strangers_and_liars_tell_is_counted_and_changes_nothing() {
    let mut assembly = assembly(&[(1, "t1", 5), (2, "t1", 5)]);
    assert!(assembly.hello("nobody", ZERO).is_err());
    assert!(assembly.take("nobody", &window(1, 1, &[]), ZERO).1.is_some());
    let end = ZERO + LENGTH;
    // Of the card of another, and to one that is not there.
    assembly.take("a1", &window(2, 1, &[(1, ok(1))]), end);
    assembly.take("a1", &window(1, 2, &[(77, ok(1))]), end + LENGTH);
    assert_eq!((assembly.counters.foreign_flows, assembly.counters.unknown_flows), (1, 1));
    let mut wrong = window(1, 3, &[(2, ok(1))]);
    wrong.flows[0].from.clear();
    let (settled, why) = assembly.take("a1", &wrong, end + 2 * LENGTH);
    assert_eq!((settled.number, why.is_some(), assembly.counters.malformed), (3, true, 1));
    let (_, why) = assembly.take("a1", &window(1, 400, &[]), end);
    assert!(why.unwrap().contains("set the clocks"));
    assembly.take("a1", &window(1, 2, &[(2, ok(9))]), end + LENGTH);
    assert_eq!((assembly.counters.replays, assembly.counters.refused), (1, 1));
}

#[test]
fn another_length_of_windows_begins_anew() {
    let mut assembly = assembly(&[(1, "t1", 5), (2, "t1", 5)]);
    assembly.take("a1", &window(1, 1, &[(2, ok(1))]), ZERO + LENGTH);
    let mut shorter = roster(&[(1, "t1", 5), (2, "t1", 5)]);
    shorter.window_ms = 1000;
    assembly.roster(&shorter, ZERO + LENGTH);
    assembly.advance(ZERO + 100 * LENGTH);
    assert_eq!((assembly.counters.windows, assembly.slots.len()), (0, 0));
    assembly.roster(&v1::RosterState::default(), ZERO);
    assembly.take("a1", &window(1, 2, &[(2, ok(1))]), ZERO + 2 * LENGTH);
    assembly.advance(ZERO + 100 * LENGTH);
    assert_eq!(assembly.counters.kept, 2, "a length of nothing divides nothing");
}

/// Two ToRs below two aggregations; probes of port 50000 go by the first, those of 50001 by the second.
fn switches() -> String {
    let switch = |name: &str, tier: &str, last: u8, above: &str| {
        format!(
            "[[switch]]\nname = \"{name}\"\ntier = \"{tier}\"\naddresses = [\"10.9.0.{last}\"]\nabove = [{above}]\n"
        )
    };
    let both = "\"g1\", \"g2\"";
    switch("t1", "tor", 1, both)
        + &switch("t2", "tor", 2, both)
        + &switch("g1", "aggregation", 3, "")
        + &switch("g2", "aggregation", 4, "")
}

/// The path of probes, or that of their answers, from one agent to another.
fn trace(from: u8, to: u8, port: u16) -> TraceReport {
    let tor = |last: u8| if last <= 2 { 1 } else { 2 };
    let by = if port == 50_000 { 3 } else { 4 };
    let mut routers = vec![tor(from)];
    if tor(from) != tor(to) {
        routers.extend([by, tor(to)]);
    }
    let routers = routers.into_iter().map(|last| Some(IpAddr::from([10, 9, 0, last]))).collect();
    TraceReport { from: address(from), to: address(to), port, path: Path { routers, reaches: true } }
}

const FOUR: [(u8, &str, u32); 4] = [(1, "t1", 5), (2, "t1", 5), (3, "t2", 5), (4, "t2", 5)];

/// A window in which the link from t1 to g1 loses a tenth.
fn lossy(assembly: &mut Court, number: u64, is_traced: bool) {
    lossy_with(assembly, number, is_traced, |_| Vec::new());
}

/// The same with services of agents.
fn lossy_with(
    assembly: &mut Court,
    number: u64,
    is_traced: bool,
    services: impl Fn(u8) -> Vec<v1::ServiceFlow>,
) {
    let is_below = |one: u8, other: u8| (one <= 2) == (other <= 2);
    for from in 1..=4_u8 {
        assembly.hello(&format!("a{from}"), ZERO).unwrap();
        let others = || (1..=4_u8).filter(|to| *to != from);
        let mut message = v1::Window { services: services(from), ..window(from, number, &[]) };
        for (to, port) in others().flat_map(|to| [(to, 50_000), (to, 50_001)]) {
            // On the way there, and on the way back.
            let there = from <= 2 && !is_below(from, to) && port == 50_000;
            let back = from > 2 && !is_below(from, to) && port == 50_000;
            let (time_out, ack1_lost) = (if there { 10 } else { 0 }, if back { 10 } else { 0 });
            let outcomes = Outcomes { ok: 100 - time_out - ack1_lost, time_out, ack1_lost, ..ok(0) };
            let (from, to) = (address(from), address(to));
            let round_trips = Histogram::default();
            let flow = Flow { from, to, port, reply_port: port, outcomes, round_trips };
            let report = WindowReport { flows: vec![flow], ..WindowReport::default() };
            message.flows.extend(report.to_message(Mark::default()).flows);
        }
        if is_traced {
            let traces = others().flat_map(|to| [50_000, 50_001].map(|port| trace(from, to, port)));
            message.traces = traces.map(|trace| trace.to_message()).collect();
        }
        let (_, refusal) = assembly.take(&format!("a{from}"), &message, ZERO + number * LENGTH);
        assert_eq!(refusal, None);
    }
    assembly.advance(ZERO + number * LENGTH);
}

#[test]
fn a_link_that_loses_packets_is_named_by_topology_file_and_traces() {
    let config =
        AnalyzerServerConfig { topology: Some(switches()), ..AnalyzerServerConfig::new("127.0.0.1:1") };
    let mut assembly = Court::new(&config);
    assembly.roster(&roster(&FOUR), ZERO);
    for number in 1..=4 {
        lossy(&mut assembly, number, true);
    }
    let findings = assembly.findings();
    let named: Vec<_> = findings.open.iter().map(|finding| finding.suspects.clone()).collect();
    // Whatever crosses the one link crosses the other, too: with two ToRs they cannot be told apart.
    assert_eq!(named, [["link t1 -> g1", "link g1 -> t2"]], "{findings:?}");
    assert_eq!((assembly.counters.traces, assembly.counters.foreign_traces), (4 * 4 * 6, 0));
    let mut foreign = window(1, 5, &[]);
    foreign.traces = vec![trace(2, 3, 50_000).to_message(), trace(1, 9, 50_000).to_message()];
    assembly.take("a1", &foreign, ZERO + 5 * LENGTH);
    assert_eq!((assembly.counters.foreign_traces, assembly.early.len()), (1, 1));
}

#[test]
fn a_finding_outlives_a_new_wiring() {
    let config =
        AnalyzerServerConfig { topology: Some(switches()), ..AnalyzerServerConfig::new("127.0.0.1:1") };
    let mut assembly = Court::new(&config);
    assembly.roster(&roster(&FOUR), ZERO);
    for number in 1..=3 {
        lossy(&mut assembly, number, true);
    }
    let before = assembly.findings().open;
    assert_eq!(before.len(), 1);
    // New RNICs stand before the others, so that all numbers are others; one has no place.
    let six = [(0, "t1", 5), (1, "t1", 5), (2, "t1", 5), (3, "t2", 5), (4, "t2", 5), (5, "t9", 5)];
    assembly.roster(&roster(&six), ZERO + 3 * LENGTH);
    for number in 4..=5 {
        lossy(&mut assembly, number, false);
        let after = assembly.findings();
        let what = |finding: &v1::Finding| (finding.id, finding.since_unix_ns, finding.suspects.clone());
        assert_eq!((after.open.len(), after.over.len()), (1, 0), "window {number}: {after:?}");
        assert_eq!(what(&after.open[0]), what(&before[0]));
        assert!(after.open[0].crossings > 1.0, "what was traced before is known still: {after:?}");
    }
    assert_eq!((assembly.counters.topologies, assembly.counters.misplaced), (2, 1), "t9 is not in the file");
}

#[test]
fn a_finding_outlives_the_analyzer_and_closes_if_nothing_is_seen_of_it_any_more() {
    let config = AnalyzerServerConfig {
        topology: Some(switches()),
        store: Some(Keeping::File(StoreConfig::new("not opened here"))),
        ..AnalyzerServerConfig::new("127.0.0.1:1")
    };
    let mut first = Court::new(&config);
    first.roster(&roster(&FOUR), ZERO);
    let mut kept = Kept::default();
    for number in 1..=3 {
        lossy(&mut first, number, true);
        let news = first.saved.pop().unwrap();
        assert_eq!((news.agents.len(), first.unkept().0), (4, News::default()));
        kept.agents = news.agents;
        kept.open = news.findings;
        kept.next = 8;
    }
    let before = first.findings().open;
    assert_eq!((before.len(), &kept.open), (1, &before));
    let what = |finding: &v1::Finding| (finding.id, finding.since_unix_ns, finding.suspects.clone());

    let mut later = Court::after(&config, &kept);
    assert_eq!(later.findings().open, before, "it is told at once");
    later.roster(&roster(&FOUR), ZERO + 3 * LENGTH);
    // What was told before is known; the fourth window is new.
    let mark = Mark { epoch: 1, number: 3 };
    assert_eq!(later.hello("a1", ZERO), Ok(mark));
    let (settled, refusal) = later.take("a1", &window(1, 3, &[(2, ok(9))]), ZERO + 4 * LENGTH);
    assert_eq!((settled, refusal, later.counters.replays), (mark, None, 1));
    for number in 4..=6 {
        lossy(&mut later, number, true);
        let open = later.findings().open;
        assert_eq!(open.iter().map(what).collect::<Vec<_>>(), [what(&before[0])], "window {number}");
    }
    let tallies = later.tallies();
    assert!(tallies.agents.iter().all(|agent| agent.kept == 6), "of both lives: {tallies:?}");

    // In another life, nothing is lost any more, and one finding names what is not there.
    let strange = v1::Finding { id: 5, suspects: vec!["link x -> y".to_owned()], ..before[0].clone() };
    kept.open.push(strange);
    let mut last = Court::after(&config, &kept);
    last.roster(&roster(&FOUR), ZERO + 3 * LENGTH);
    let mut open = Vec::new();
    for number in 4..=20 {
        for from in 1..=4_u8 {
            last.hello(&format!("a{from}"), ZERO).unwrap();
            let others: Vec<_> = (1..=4).filter(|to| *to != from).map(|to| (to, ok(50))).collect();
            last.take(&format!("a{from}"), &window(from, number, &others), ZERO + number * LENGTH);
        }
        last.advance(ZERO + number * LENGTH);
        open.push(last.findings().open.len());
    }
    assert_eq!(open[..4], [2, 2, 1, 1], "after three windows the one is over");
    assert_eq!(open[13..], [1, 0, 0, 0], "and the other after a while");
    let over: Vec<_> = last.findings().over.iter().map(what).collect();
    assert_eq!(over.len(), 2);
    assert_eq!(over[0], what(&before[0]));
}

#[test]
fn what_cannot_be_kept_is_told_nevertheless_and_is_new_still() {
    let config = AnalyzerServerConfig {
        topology: Some(switches()),
        store: Some(Keeping::File(StoreConfig::new("not opened here"))),
        ..AnalyzerServerConfig::new("127.0.0.1:1")
    };
    let mut court = Court::new(&config);
    court.roster(&roster(&FOUR), ZERO);
    for number in 1..=3 {
        lossy(&mut court, number, true);
    }
    assert_eq!(court.findings().open.len(), 1);
    // A window in which all is well, three times: the finding is over, but that is not kept yet.
    for number in 4..=8 {
        for from in 1..=4_u8 {
            let others: Vec<_> = (1..=4).filter(|to| *to != from).map(|to| (to, ok(50))).collect();
            court.take(&format!("a{from}"), &window(from, number, &others), ZERO + number * LENGTH);
        }
    }
    court.judge_until(ZERO + 8 * LENGTH);
    assert_eq!((court.findings().open.len(), court.findings().over.len()), (1, 0), "nothing is told early");
    let (news, _) = court.unkept();
    assert_eq!((news.findings.len(), news.agents.len()), (1, 4));
    court.not_kept(news.clone());
    assert_eq!((court.findings().open.len(), court.findings().over.len()), (0, 1));
    assert_eq!((court.unkept().0, court.counters.not_kept), (news, 1));
}

/// A queue pair of a service from one agent to another, with its number and its port; its peer's number is a hundred more.
fn service(name: &str, from: u8, to: u8, qpn: u32, port: u16, again: u64) -> v1::ServiceFlow {
    let (from, to) = (address(from), address(to));
    let service = name.to_owned();
    ServiceFlowReport { service, from, to, port, qpn, peer_qpn: qpn + 100, sent: 1000, again }.to_message()
}

#[test]
fn a_finding_says_which_services_it_concerns_and_liars_change_nothing() {
    let config = AnalyzerServerConfig {
        topology: Some(switches()),
        services: 5,
        ..AnalyzerServerConfig::new("127.0.0.1:1")
    };
    let mut assembly = Court::new(&config);
    assembly.roster(&roster(&FOUR), ZERO);
    // The link from t1 to g1 is bad, and packets of port 50000 cross it.
    let honest = [
        service("train", 1, 3, 10, 50_000, 7),
        service("train", 1, 4, 11, 50_001, 0),
        service("backup", 1, 4, 12, 50_000, 1),
        service("store", 1, 4, 13, 50_001, 90),
    ];
    for number in 1..=4 {
        lossy_with(&mut assembly, number, true, |agent| match agent {
            1 => honest.to_vec(),
            // Of cards of others, to none, to itself, and more than all agents may have.
            2 => vec![
                service("liar", 1, 3, 10, 50_000, 99),
                service("liar", 2, 99, 10, 50_000, 99),
                service("liar", 2, 2, 10, 50_000, 99),
                service("late", 2, 1, 20, 50_000, 0),
                service("later", 2, 1, 21, 50_000, 0),
            ],
            _ => Vec::new(),
        });
    }
    let counters = assembly.counters;
    assert_eq!((counters.services, counters.foreign_services, counters.unknown_services), (20, 4, 12));
    let reply = assembly.findings();
    let [finding] = &reply.open[..] else { panic!("{:#?}", reply.open) };
    assert!(finding.suspects.contains(&"link t1 -> g1".to_owned()), "{finding:#?}");
    let affected: Vec<_> =
        finding.services.iter().map(|one| (&one.service[..], &one.priority[..], one.flows)).collect();
    // The backup has not met it itself, but probes from its port have.
    assert_eq!(affected, [("backup", "P0", 1), ("train", "P0", 1)]);
    assert_eq!((finding.priority.as_str(), finding.services_left_out), ("P0", 0));
    let example = v1::Tuple { from: "10.0.0.1".to_owned(), to: "10.0.0.3".to_owned(), port: 50_000 };
    assert_eq!(finding.services[1].examples, [example]);
    let all: Vec<_> =
        reply.services.iter().map(|one| (&one.service[..], &one.priority[..], one.flows)).collect();
    assert_eq!(all, [("train", "P0", 2), ("backup", "P0", 1), ("late", "", 1), ("store", "", 1)]);
    let train = &reply.services[0];
    assert_eq!(
        (train.sent, train.again, &train.findings[..]),
        (6000, 21, &[finding.id][..]),
        "of three windows"
    );
    assert_eq!((train.hosts, &train.some_hosts[..]), (1, &["h1".to_owned()][..]));
}

#[test]
fn services_that_cannot_be_make_no_window() {
    let mut assembly = assembly(&[(1, "t1", 5), (3, "t1", 5)]);
    // Too long, not text, too many.
    let wrong = [
        vec![service(&"x".repeat(65), 1, 3, 1, 50_000, 0)],
        vec![service("bell\u{7}", 1, 3, 1, 50_000, 0)],
        vec![service("many", 1, 3, 1, 50_000, 0); 1025],
    ];
    for (number, services) in (1..).zip(wrong) {
        let message = v1::Window { services, ..window(1, number, &[]) };
        let (settled, refusal) = assembly.take("a1", &message, ZERO + number * LENGTH);
        assert_eq!((settled.number, refusal.is_some()), (number, true), "it is not asked for again");
    }
    assert_eq!((assembly.counters.malformed, assembly.counters.kept, assembly.counters.services), (3, 0, 0));
    let left_out = v1::Window { services_left_out: 7, ..window(1, 4, &[]) };
    assembly.take("a1", &left_out, ZERO + 4 * LENGTH);
    assert_eq!(assembly.counters.untold_services, 7);
}

#[test]
fn a_topology_file_that_is_none_is_refused_with_its_line() {
    let topology = Some(switches().replace("\"g2\"\ntier = \"aggregation\"", "\"g2\"\ntier = \"tor\""));
    let config = AnalyzerServerConfig { topology, ..AnalyzerServerConfig::new("127.0.0.1:1") };
    let error = Judge::new(&config, &Kept::default()).unwrap_err().to_string();
    assert!(error.starts_with("line 1: the cable from t1 to g2 makes a circle"), "{error}");
}
