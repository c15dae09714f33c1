//! A hostile neighbour: a process of another user, which binds the addresses of honest peers and says
//! everything that can be said to live connections of every kind. None of them ends, and no byte is read or
//! written.
//!
//! The neighbour is this program again, started as a user that has nothing; where the test is not root, it
//! stays the same user, and says so. It knows what it is told: addresses only, the numbers of queue pairs, or
//! all that honest packets say.
#![allow(clippy::unwrap_used, reason = "a test stops here")]

mod doors;
mod forged;
mod liar;
mod neighbour;
mod pairs;
mod scene;
mod services;
mod sockets;
mod tap;
mod verbs;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::Duration;

use ferroce::time::now;
use ferroce::{Access, Context};
use ferroce_device::fabric::PORT;
use ferroce_testkit::neighbour::{Knowledge, Lie};
use neighbour::Neighbour;
use scene::Scene;

/// How long anything may take before the test gives up, and says what it waited for.
const LIMIT: Duration = Duration::from_secs(20);

/// How long the neighbour may take for all that it has to say.
const LONG: Duration = Duration::from_secs(600);

/// All that memory can be used for.
const OPEN: Access =
    Access::LOCAL_WRITE.union(Access::REMOTE_WRITE).union(Access::REMOTE_READ).union(Access::REMOTE_ATOMIC);

/// How often each lie is told to connections that are quiet: to each of them, several times.
const EACH: u64 = 64;

/// Lies of connection management, and as many others, to connections at work.
fn many() -> u64 {
    if is_soak() { 1_000_000 } else { 50_000 }
}

fn is_soak() -> bool {
    std::env::var_os("FERROCE_SOAK").is_some()
}

/// The other process.
#[test]
fn the_neighbour() {
    liar::play();
}

/// Every lie with every degree of knowledge, to connections that are quiet: so what is told to the liar is
/// exact.
#[test]
fn no_lie_of_a_neighbour_is_believed() {
    let (mut scene, mut neighbour) = (Scene::new(181), Neighbour::start());
    let before = refused(&scene);
    let (mut harms, mut sent) = (Vec::new(), 0);
    for lie in Lie::all() {
        for knowledge in Knowledge::ALL {
            neighbour.tell(&scene.targets().unwrap());
            sent += neighbour.numbers(&format!("lie {lie:?} {knowledge:?} {EACH}"), LIMIT)[0];
            if let Err(harm) = scene.judge() {
                harms.push(format!("{lie:?} knowing {knowledge:?}: {harm}"));
                scene.renew();
            }
        }
    }
    let heard = neighbour.numbers("heard", LIMIT)[0];
    assert!(harms.is_empty(), "{} lies did harm:\n{}", harms.len(), harms.join("\n"));
    assert_eq!(heard, 0, "the neighbour was told something");
    scene.judge_newcomer().unwrap();
    must_be_refused(&scene, before, sent);
}

/// A request for a connection with each number that the peer's queue pair could have: one of them is right.
#[test]
fn a_request_with_every_number_ends_nothing() {
    let (mut scene, mut neighbour) = (Scene::new(187), Neighbour::start());
    let before = refused(&scene);
    neighbour.tell(&scene.targets().unwrap());
    let sent = neighbour.numbers("numbers Request", LONG)[0];
    assert!(sent > 120_000, "only {sent} could be sent");
    scene.judge().unwrap();
    must_be_refused(&scene, before, sent);
}

/// Lies of all kinds in a flood, while honest work goes on over each connection in a thread of its own.
#[test]
fn live_connections_stand_a_storm_of_lies() {
    let (mut scene, mut neighbour) = (Scene::new(182), Neighbour::start());
    let before = refused(&scene);
    let mut targets = scene.targets().unwrap();
    neighbour.tell(&targets);
    let mut pairs = std::mem::take(&mut scene.pairs);
    let (stop, rounds) = (AtomicBool::new(false), AtomicU64::new(0));
    let (mads, data) = (many(), many());
    let answer = thread::scope(|scope| {
        // Also if anything fails here: the scope waits for its threads.
        let stop_at_end = StopAtEnd(&stop);
        let workers: Vec<_> =
            pairs.iter_mut().map(|pair| scope.spawn(|| work(pair, &stop, &rounds))).collect();
        neighbour.ask(&format!("storm {mads} {data}"));
        let end = now() + LONG;
        // What is known of connections at work grows old: it is told again and again.
        let answer = loop {
            scene.refresh(&mut targets);
            neighbour.tell(&targets);
            if let Some(answer) = neighbour.answer_within(Duration::from_millis(2)) {
                break answer;
            }
            assert!(now() < end, "the neighbour is not done in {LONG:?}");
        };
        drop(stop_at_end);
        let harms: Vec<_> = workers.into_iter().filter_map(|worker| worker.join().unwrap().err()).collect();
        assert!(harms.is_empty(), "{} connections were harmed:\n{}", harms.len(), harms.join("\n"));
        answer
    });
    scene.pairs = pairs;
    scene.judge().unwrap();
    scene.judge_newcomer().unwrap();
    let sent: Vec<u64> = answer.split(' ').map(|number| number.parse().unwrap()).collect();
    assert_eq!(neighbour.numbers("heard", LIMIT), [0], "the neighbour was told something");
    println!("{} MADs and {} other packets, {} rounds of honest work", sent[0], sent[1], rounds.into_inner());
    assert!(sent.iter().all(|sent| *sent >= many() * 9 / 10), "{sent:?} could be sent");
    must_be_refused(&scene, before, sent.iter().sum());
}

/// Tells the workers to stop when it is dropped.
struct StopAtEnd<'a>(&'a AtomicBool);

impl Drop for StopAtEnd<'_> {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

/// Works until it is told to stop, or harm is done.
fn work(pair: &mut Box<dyn pairs::Pair>, stop: &AtomicBool, rounds: &AtomicU64) -> Result<(), String> {
    while !stop.load(Ordering::Relaxed) {
        let round = pair.check().and_then(|()| pair.round());
        round.map_err(|harm| format!("{}: {harm}", pair.name()))?;
        rounds.fetch_add(1, Ordering::Relaxed);
    }
    pair.check().map_err(|harm| format!("{}: {harm}", pair.name()))
}

/// Another user gets neither the port nor a port that packets of ours come from, at no address of ours.
#[test]
fn ports_of_ours_are_closed_to_another_user() {
    let (mut scene, mut neighbour) = (Scene::new(183), Neighbour::start());
    if !neighbour.is_other {
        return;
    }
    let [a, b] = scene.addresses;
    let answer = neighbour.numbers(&format!("doors {a} {b}"), LIMIT);
    assert!(
        answer[0] >= 16 && answer[0] == answer[1],
        "of {} attempts, {} were refused",
        answer[0],
        answer[1]
    );
    scene.judge().unwrap();
}

/// A WRITE with everything right, from each port that another user gets at the peer's address.
#[test]
fn no_port_that_a_neighbour_gets_is_believed() {
    let (mut scene, mut neighbour) = (Scene::new(184), Neighbour::start());
    let before = refused(&scene);
    neighbour.tell(&scene.targets().unwrap());
    let step = if is_soak() { 1 } else { 16 };
    let answer = neighbour.numbers(&format!("ports {step}"), LONG);
    assert!(answer[0] > 60_000 / step, "only {} ports were free", answer[0]);
    scene.judge().unwrap();
    must_be_refused(&scene, before, answer[1]);
}

/// A source that is forged with all that the system allows: the peer's address, and the port that messages of
/// connection management come from. One that knows addresses and numbers, but no sequence numbers, keys and
/// names, ends nothing.
#[test]
fn a_forged_source_without_sequence_numbers_and_names_ends_nothing() {
    let (mut scene, mut neighbour) = (Scene::new(185), Neighbour::start());
    let mut harms = Vec::new();
    // An unreliable connection takes the first packet of a message whatever its sequence number is (IBA
    // 9.8.2): a forger that has the number of the queue pair sends messages to it.
    for lie in Lie::all().filter(|lie| *lie != Lie::UcSend) {
        for knowledge in [Knowledge::Addresses, Knowledge::Numbers] {
            neighbour.tell(&scene.targets().unwrap());
            let sent =
                neighbour.numbers(&format!("forge {lie:?} {knowledge:?} {EACH} 127.0.185.77 {PORT}"), LIMIT);
            assert_eq!(sent, [EACH], "{lie:?}");
            // A request that reaches a listener is no harm where sources can be forged: the program may
            // refuse it.
            if let Err(harm) = scene.judge_connections() {
                harms.push(format!("{lie:?} knowing {knowledge:?}: {harm}"));
                scene.renew();
            }
            scene.turn_away();
        }
    }
    assert!(harms.is_empty(), "{} lies did harm:\n{}", harms.len(), harms.join("\n"));
}

/// What a forger can do whose source is right, for the documentation: without the sequence number, refusals,
/// which are counted here by their names; with it, whatever the peer can. The protocol has no other proof of
/// a sender.
#[test]
fn a_forged_source_is_refused_by_sequence_number_only() {
    let count = if is_soak() { 200_000 } else { 2000 };
    let (mut scene, mut neighbour) = (Scene::new(188), Neighbour::start());
    for lie in [Lie::Send, Lie::Write, Lie::Read, Lie::Acknowledge, Lie::Refuse, Lie::ReadResponse] {
        let before: BTreeMap<_, _> = scene.pairs[0].counted().into_iter().collect();
        neighbour.tell(&[scene.by_hand().unwrap()]);
        let order = format!("forge {lie:?} Numbers {count} 127.0.188.77 {PORT}");
        assert_eq!(neighbour.numbers(&order, LONG), [count]);
        scene.judge().unwrap_or_else(|harm| panic!("{lie:?}: {harm}"));
        let after = scene.pairs[0].counted().into_iter().map(|(name, now)| (name, now - before[name]));
        println!("{count} x {lie:?}: {:?}", after.filter(|(_, more)| *more > 0).collect::<Vec<_>>());
    }
    let end = now() + LIMIT;
    // What is told of a busy machine may be late, and is then told again.
    while scene.pairs[0].check().is_ok() {
        assert!(now() < end, "a WRITE that is right in every field was refused: say so in docs/security.md");
        neighbour.tell(&[scene.by_hand().unwrap()]);
        neighbour.numbers(&format!("forge Write Everything 1 127.0.188.77 {PORT}"), LIMIT);
    }
}

/// All sockets of a port look alike to another user, with devices that own a slot and without.
#[test]
fn sockets_of_the_port_look_alike_to_another_user() {
    let mut neighbour = Neighbour::start();
    let _device = Context::builder("lo").address([127, 0, 186, 1]).open().unwrap();
    neighbour.ask("sockets 127.0.186.1");
    let shown = neighbour.answer("sockets", LIMIT);
    let words: Vec<_> = shown.split(' ').collect();
    for way in ["netlink:", "proc:"] {
        let of_way: Vec<_> = words.iter().filter(|word| word.starts_with(way)).collect();
        let different: BTreeSet<_> = of_way.iter().collect();
        assert!(of_way.len() > 100, "{} sockets were seen by {way} {shown}", of_way.len());
        assert_eq!(different.len(), 1, "sockets differ by {way} {different:#?}");
    }
}

/// Packets that both devices, and the kernel for them, have refused because no device has sent them.
fn refused(scene: &Scene) -> u64 {
    scene.counters().get("foreign_source").copied().unwrap_or(0)
}

/// Of all that was sent since, as good as all arrived and was refused for its source. A machine under load
/// may lose some on the way.
fn must_be_refused(scene: &Scene, before: u64, sent: u64) {
    let refused = refused(scene) - before;
    let enough = sent - sent / 10..=sent;
    assert!(
        enough.contains(&refused),
        "{sent} were sent, {refused} refused for their source: {:?}",
        scene.counters()
    );
}
