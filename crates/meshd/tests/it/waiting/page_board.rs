//! The board: what it keeps, and that it keeps no more than it says.

#![allow(clippy::unwrap_used, reason = "a test")]

use std::sync::Arc;

use crate::waiting::page_support::simulated::{LENGTH, START, Simulated};
use ferroce_mesh::{Outcomes, Topology};
use ferroce_meshd::Histogram;
use ferroce_meshd::board::{Board, BoardConfig, BoardWindow, Depth};
use ferroce_verbs::time::now;

fn small() -> BoardConfig {
    BoardConfig { windows: 6, whole: 2, ..BoardConfig::default() }
}

#[test]
fn a_window_is_summed_by_pairs_of_tors() {
    let mut network = Simulated::new(3, 4, 2);
    let window = network.window(5, 0);
    let flows = window.flows.clone();
    let topology = Arc::clone(&window.topology);
    let mut board = Board::new(small());
    assert_eq!(board.window(window), 1);
    let kept = board.newest().unwrap();
    let tor = |rnic| topology.switch(topology.rnic(rnic).tor).name.clone();
    for (row, from) in ["rack1", "rack2", "rack3"].iter().enumerate() {
        for (column, to) in ["rack1", "rack2", "rack3"].iter().enumerate() {
            let of_pair: Vec<_> =
                flows.iter().filter(|flow| tor(flow.key.from) == *from && tor(flow.key.to) == *to).collect();
            let cell = kept.record.matrix.cell(row, column);
            let sum = |of: fn(&Outcomes) -> u32| of_pair.iter().map(|flow| of(&flow.outcomes)).sum::<u32>();
            assert_eq!((cell.probes, cell.lost), (sum(|one| one.ok + one.time_out), sum(|one| one.time_out)));
            assert_eq!(kept.flows(row, column).len(), of_pair.len(), "there is room for all");
            let worst: Vec<u32> = kept.flows(row, column).iter().map(|flow| flow.outcomes.time_out).collect();
            assert!(worst.is_sorted_by(|one, other| one >= other), "the worst first: {worst:?}");
            let mut whole = Histogram::default();
            for flow in &of_pair {
                for (nanos, count) in flow.trips.iter() {
                    (0..count).for_each(|_| whole.add(std::time::Duration::from_nanos(nanos)));
                }
            }
            let exact = |part| whole.percentile(part).map(|time| u64::try_from(time.as_nanos()).unwrap());
            assert_eq!((cell.p50, cell.p99), (exact(0.5), exact(0.99)), "no percentiles are averaged");
        }
    }
    let (hosts, left_out) = kept.detail.hosts();
    assert_eq!((hosts.len(), left_out), (6, 0), "hosts with nothing to say are there, too");
    let sent: u64 = hosts.iter().map(|host| host.sent).sum();
    assert_eq!(sent, kept.record.matrix.sums().0);
}

#[test]
fn old_windows_keep_their_trouble_and_the_oldest_go() {
    let mut network = Simulated::new(4, 2, 2);
    let mut board = Board::new(small());
    for number in 0..20 {
        board.window(network.window(number, 0));
        assert!(board.windows().len() <= 6);
    }
    let numbers: Vec<u64> = board.windows().map(|kept| kept.record.number).collect();
    assert_eq!(numbers, [15, 16, 17, 18, 19, 20]);
    assert!(board.find(14).is_none() && board.find(21).is_none() && board.find(u64::MAX).is_none());
    for kept in board.windows() {
        let is_new = kept.record.number > 18;
        assert_eq!(kept.detail.depth(), if is_new { Depth::All } else { Depth::Trouble });
        assert_eq!(kept.detail.flows().iter().any(|flow| flow.outcomes.time_out == 0), is_new);
        let lost: u64 = kept.detail.flows().iter().map(|flow| u64::from(flow.outcomes.time_out)).sum();
        assert_eq!(lost, kept.record.matrix.sums().1, "flows with losses stay");
        assert_eq!(kept.record.start, START + (kept.record.number - 1) * LENGTH);
    }
    let findings: Vec<_> = board.totals().findings_by_kind().filter(|(_, opened, _)| *opened > 0).collect();
    assert_eq!(findings.len(), 1, "one that stays open is opened once: {findings:?}");
    // It is not told any more: it is over, also if nothing said so.
    board.window(network.window(21, 99));
    let (_, opened, over) = board.totals().findings_by_kind().find(|(_, opened, _)| *opened > 0).unwrap();
    assert_eq!((opened, over), (1, 1));
}

/// No more bytes than it says, with so many RNICs that not even all pairs have room for their flows.
fn stays_within(tors: u32, below: u32, ports: u16, config: BoardConfig, windows: u64) -> Board {
    let mut network = Simulated::new(tors, below, ports);
    let mut board = Board::new(config);
    for number in 0..windows {
        let window = network.window(number, 2);
        let flows = window.flows.len();
        board.window(window);
        let [bytes, ..] = board.bytes();
        assert!(bytes <= config.bytes || board.windows().len() == 1, "{bytes} bytes with {flows} flows");
        for kept in board.windows() {
            let most = match kept.detail.depth() {
                Depth::All => config.flows,
                Depth::Trouble => config.troubled_flows,
            };
            assert!(kept.detail.flows().len() <= most, "{} flows", kept.detail.flows().len());
        }
    }
    board
}

#[test]
fn the_bytes_of_the_board_are_bounded() {
    let config = BoardConfig { bytes: 2 << 20, flows: 4096, troubled_flows: 64, ..BoardConfig::default() };
    let board = stays_within(80, 8, 2, config, 60);
    let kept = board.windows().len();
    assert!((10..60).contains(&kept), "{kept} windows: bytes, not their number, are the bound");
    let newest = board.newest().unwrap();
    let pairs = newest.record.matrix.probes().iter().filter(|probes| **probes > 0).count();
    assert_eq!(pairs, 80 * 80, "all pairs of ToRs are probed");
    let some = newest.detail.flows().len();
    assert!(some <= 4096, "{some}");
}

/// With `FERROCE_BOARD_PORTS=8`, RNICs have as many ports as they usually have; that takes gigabytes for a
/// moment.
#[test]
fn a_network_of_10240_rnics_fits() {
    let ports = std::env::var("FERROCE_BOARD_PORTS").ok().map_or(1, |ports| ports.parse().unwrap());
    let begun = now();
    let mut board = stays_within(320, 32, ports, BoardConfig::default(), 5);
    Simulated::new(320, 32, ports).trace(&mut board, usize::MAX);
    let resident = std::fs::read_to_string("/proc/self/status").unwrap();
    let resident: Vec<&str> =
        resident.lines().filter(|line| line.starts_with("VmRSS") || line.starts_with("VmHWM")).collect();
    let [windows, sums, traces] = board.bytes();
    println!("windows {windows}, sums {sums}, traces {traces} bytes; {resident:?}; {:?}", now() - begun);
    assert!(traces < 64 << 20, "{traces} bytes of traces");
    // An old window is as small as this, so that so many fit.
    let old = &board.windows().next().unwrap().record.matrix;
    assert_eq!((old.tors().len(), old.probes().len()), (320, 320 * 320));
    let newest = board.newest().unwrap();
    let has_flows = (0..320).all(|row| (0..320).all(|column| !newest.flows(row, column).is_empty()));
    assert!(has_flows, "each pair can be looked into");
}

#[test]
fn sums_count_what_agents_tell_and_never_go_back() {
    let mut board = Board::new(small());
    let outcomes = Outcomes { ok: 5, slow: 2, time_out: 1, host: 3, ..Outcomes::default() };
    let mut last = [0; 8];
    for round in 0..30_u32 {
        let tor = format!("t{}", round % 4);
        board.flow(Some(&tor), Some("t0"), &outcomes, &Histogram::default());
        board.flow(Some(&tor), None, &outcomes, &Histogram::default());
        let all = board.totals().all();
        assert!(all.iter().zip(last).all(|(new, old)| *new >= old));
        last = all;
    }
    assert_eq!(last, [5, 2, 0, 0, 1, 0, 0, 3].map(|count| count * 60));
    let of = |from, to| board.totals().pair(board.tor(from).unwrap(), board.tor(to).unwrap())[0];
    assert_eq!((of("t0", "t0"), of("t3", "t0"), of("t3", "(unknown)"), of("t0", "t3")), (40, 35, 35, 0));
}

#[test]
fn flows_of_cards_that_the_wiring_lacks_are_counted_and_nothing_else() {
    let mut network = Simulated::new(2, 2, 1);
    let mut window = network.window(0, 9);
    window.flows.iter_mut().for_each(|flow| flow.key.to.0 = u32::MAX);
    let flows = u64::try_from(window.flows.len()).unwrap();
    let mut board = Board::new(small());
    board.window(window);
    let record = &board.newest().unwrap().record;
    assert_eq!((record.unknown, record.matrix.sums()), (flows, (0, 0)));
    // Nothing at all is a window, too.
    let nothing = BoardWindow {
        start: 0,
        end: 1,
        agents: 0,
        is_complete: false,
        topology: Arc::new(Topology::default()),
        flows: Vec::new(),
        hosts: Vec::new(),
        open: Vec::new(),
        over: Vec::new(),
        services: Vec::new(),
        services_left_out: 0,
    };
    board.window(nothing);
    assert_eq!(board.newest().unwrap().record.matrix.tors().len(), 0);
}
