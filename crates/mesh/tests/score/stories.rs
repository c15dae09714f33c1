//! Single stories: one fault each, and what is to be said of it.

use ferroce_clos::{Fabric, Fault, Node as Place, Shape, Stall, Trouble};
use ferroce_mesh::{Analyzer, AnalyzerConfig, Severity, State, Suspect};

use crate::contest::named;
use crate::scene::{Conditions, Scene};
use crate::truth::{Thing, Truth};

/// 256 RNICs below 8 ToRs.
const SHAPE: Shape = Shape { pods: 2, tors: 4, aggregations: 4, cores: 2, hosts: 8, rnics: 4 };
const SEED: u64 = 77;

fn scene(fabric: Fabric) -> Scene {
    Scene::of(fabric, Conditions::default(), SEED)
}

fn healthy() -> Fabric {
    Fabric::new(SHAPE, SEED)
}

fn analyzer(scene: &Scene) -> Analyzer {
    Analyzer::new(scene.paths(), AnalyzerConfig::default())
}

fn link(from: Place, to: Place) -> ferroce_clos::Place {
    ferroce_clos::Place::Link(SHAPE.link(from, to).unwrap())
}

#[test]
fn a_slow_link_is_named_as_slow() {
    let (from, to) = (Place::Aggregation(2), Place::Tor(3));
    let trouble = Trouble::Delay { rate: 0.05, extra: 100_000 };
    let scene = scene(healthy().with_fault(Fault { place: link(from, to), trouble }));
    let mut analyzer = analyzer(&scene);
    assert!(analyzer.window(&scene.window(0)).open.is_empty(), "one window is too few");
    let open = analyzer.window(&scene.window(1)).open;
    let topology = analyzer.paths().topology();
    let things: Vec<Thing> =
        open.iter().flat_map(|one| &one.suspects).map(|one| Thing::of(*one, topology, &SHAPE)).collect();
    assert_eq!(things, [Thing::Link(from, to)]);
    let (rate, severity) = (open[0].evidence.guilt.rate, open[0].severity);
    assert_eq!((open[0].trouble, severity), (ferroce_mesh::Trouble::Delay, Severity::Major));
    assert!((0.03..0.07).contains(&rate), "{rate}");
    assert!(open[0].evidence.top.len() == 5 && open[0].evidence.losses > 10.0 * open[0].evidence.expected);
    assert_eq!(open[0].suspects[0].name(topology), "link agg-2 -> tor-3");
}

/// A card that loses some packets is told from its links; one that loses all packets of some tuples is not, and
/// neither is one of which nothing came back.
#[test]
fn what_cannot_be_told_apart_follows_from_what_was_observed() {
    let card = Place::Rnic(70);
    let tor = Place::Tor(SHAPE.tor_of(70));
    let alone = vec![Thing::Node(card)];
    let with_links = vec![Thing::Node(card), Thing::Link(card, tor), Thing::Link(tor, card)];
    for (trouble, expected) in [
        (Trouble::Loss { rate: 0.03 }, &alone),
        (Trouble::Loss { rate: 0.7 }, &alone),
        (Trouble::Loss { rate: 0.998 }, &with_links),
        (Trouble::Loss { rate: 1.0 }, &with_links),
        (Trouble::BlackHole { share: 0.3, salt: 5 }, &with_links),
        (Trouble::BlackHole { share: 1.0, salt: 5 }, &with_links),
    ] {
        let scene = scene(healthy().with_fault(Fault { place: ferroce_clos::Place::Node(card), trouble }));
        let windows: Vec<_> = (0..3).map(|number| scene.window(number)).collect();
        let truth = Truth::of(&scene, &windows);
        let count = |sets: &[Vec<Thing>]| {
            let all = truth.score(sets, false).all;
            (all.found, all.missed, all.wrong)
        };
        assert_eq!(count(std::slice::from_ref(expected)), (1.0, 0.0, 0.0), "{trouble:?}");
        let other = if expected == &alone { &with_links } else { &alone };
        assert_eq!(count(std::slice::from_ref(other)), (0.0, 1.0, 1.0), "{trouble:?}");
        let (sets, _) = named(&scene, &windows);
        assert_eq!(count(&sets), (1.0, 0.0, 0.0), "{trouble:?}: {sets:?}");
    }
}

#[test]
fn a_fault_that_is_mended_is_over_after_three_windows() {
    let trouble = Trouble::Loss { rate: 0.02 };
    let bad =
        scene(healthy().with_fault(Fault { place: ferroce_clos::Place::Node(Place::Core(3)), trouble }));
    let good = scene(healthy());
    let mut analyzer = analyzer(&bad);
    let mut states = Vec::new();
    for number in 0..9 {
        let scene = if number < 4 { &bad } else { &good };
        let verdict = analyzer.window(&scene.window(number));
        assert!(verdict.over.iter().all(|finding| finding.state == State::Closed));
        states.push((verdict.open.len(), verdict.over.len()));
    }
    let open = (1, 0);
    assert_eq!(states, [(0, 0), open, open, open, open, open, (0, 1), (0, 0), (0, 0)]);
}

/// Even if it says nothing of itself: only probes that reach it are lost, and none that it sends.
#[test]
fn a_host_that_stalls_is_never_the_network() {
    let second = 1_000_000_000;
    let stall = Stall { host: 9, period: 3 * second, lasts: second / 2, phase: 0, drops: 1.0 };
    let scene = scene(healthy().with_stall(stall));
    for is_told in [true, false] {
        let mut analyzer = analyzer(&scene);
        for number in 0..4 {
            let mut window = scene.window(number);
            assert_eq!(window.hosts.len(), 1, "its agent has noticed");
            if !is_told {
                window.hosts.clear();
            }
            let verdict = analyzer.window(&window);
            assert!(verdict.open.iter().all(|finding| !finding.is_network()), "{:?}", verdict.open);
            if is_told {
                assert!(verdict.open.is_empty() && verdict.hosts[0].losses > 100.0, "{:?}", verdict.hosts);
            } else if number > 0 {
                let suspects: Vec<_> = verdict.open.iter().flat_map(|finding| &finding.suspects).collect();
                assert_eq!(suspects, [&Suspect::Host(ferroce_mesh::HostId(9))]);
            }
        }
    }
}

#[test]
fn an_agent_that_is_away_is_no_loss() {
    let conditions = Conditions { missing: 0.1, ..Conditions::default() };
    let scene = Scene::of(healthy(), conditions, SEED);
    let mut analyzer = analyzer(&scene);
    for number in 0..3 {
        let verdict = analyzer.window(&scene.window(number));
        assert!(verdict.open.is_empty(), "{:?}", verdict.open);
        let taken_out: u32 = verdict.hosts.iter().map(|note| note.taken_out).sum();
        assert!(taken_out > 100 && verdict.hosts.iter().all(|note| note.report.lapsed), "{taken_out}");
    }
}

/// Cards of which the topology knows nothing are counted, and harm nothing.
#[test]
fn reports_of_unknown_cards_are_refused() {
    let scene = scene(healthy());
    let mut analyzer = analyzer(&scene);
    let mut window = scene.window(0);
    window.observations[0].flow.to = ferroce_mesh::RnicId(99_999);
    window.observations[1].flow.to = window.observations[1].flow.from;
    let verdict = analyzer.window(&window);
    assert_eq!((verdict.unknown, verdict.open.len()), (2, 0));
}

/// It was: a host that had been named and was well again stayed an open finding for thirty windows, as if it spoke for itself.
#[test]
fn a_host_that_is_well_again_is_over_after_a_few_windows() {
    let second = 1_000_000_000;
    let stall = Stall { host: 9, period: 3 * second, lasts: second / 2, phase: 0, drops: 1.0 };
    let (bad, good) = (scene(healthy().with_stall(stall)), scene(healthy()));
    let mut analyzer = analyzer(&bad);
    let mut over = None;
    for number in 0..12 {
        let mut window = if number < 4 { bad.window(number) } else { good.window(number) };
        // Nothing but the flows tells of the host.
        window.hosts.clear();
        let verdict = analyzer.window(&window);
        let states: Vec<_> = verdict.over.iter().map(|finding| finding.state).collect();
        over = over.or((!states.is_empty()).then_some((number, states)));
    }
    let (number, states) = over.expect("it is over");
    assert!(
        (7..=9).contains(&number),
        "three windows after the last, which counts with two before it: {number}"
    );
    assert_eq!(states, [State::Closed], "it was no mistake");
}
