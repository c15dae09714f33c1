//! Descriptors that the owners of two slots hand each other, and what may go wrong on the way.

use std::fs::File;
use std::os::fd::{AsFd, AsRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileExt as _;
use std::sync::atomic::Ordering;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use ferroce_sys::clock;
use ferroce_sys::descriptor::{owned, wait_readable};
use ferroce_sys::limits::DescriptorLimit;
use ferroce_sys::unix::{self, Room};

use super::other::{Other, tell};
use super::squatter::UID;
use super::{address, enter, eventually, is_cut};
use crate::forward::Arrival;
use crate::inner::Sink;
use crate::lane::{LaneOffer, Lifeline, MOST_ANSWERED, MOST_OFFERED, Reached};
use crate::lanes::{MOST_SILENT, Offer};
use crate::membership::Slot;
use crate::names;
use crate::no_lane::{LaneRefusal, NoLane};
use crate::protocol::{Answer, Greeting, LEN, VERSION};
use crate::rows::Report;

/// Where the process that takes a file writes into it.
const MIDDLE: u64 = 2048;

/// A file in memory that begins with a text.
fn file(text: &str) -> File {
    // SAFETY: the pointer is to a text with its zero, which is static.
    let file = owned(unsafe { libc::memfd_create(c"test".as_ptr(), libc::MFD_CLOEXEC) }).expect("a file");
    let file = File::from(file);
    file.set_len(4096).expect("memory");
    file.write_all_at(text.as_bytes(), 0).expect("memory");
    file
}

fn text_at(file: impl AsFd, at: u64) -> String {
    let Ok(copy) = file.as_fd().try_clone_to_owned() else { return "no descriptor to read it".to_owned() };
    let file = File::from(copy);
    let mut bytes = [0; 256];
    file.read_exact_at(&mut bytes, at).expect("a file");
    String::from_utf8_lossy(&bytes).trim_end_matches('\0').to_owned()
}

/// What a sink does with offers.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Rule {
    Take,
    Refuse(LaneRefusal),
    /// It ends its process, and gives no answer.
    Die,
}

/// A sink that takes offers, and keeps their lifelines.
pub(super) struct Taker {
    rule: Rule,
    kept: Mutex<Vec<Lifeline>>,
    /// What takes the numbers that the process may have.
    ballast: Mutex<Vec<File>>,
}

impl Taker {
    fn attach(slot: &Slot, rule: Rule) -> Arc<Self> {
        let taker = Arc::new(Self { rule, kept: Mutex::default(), ballast: Mutex::default() });
        slot.attach(Arc::downgrade(&taker) as Weak<dyn Sink>);
        taker
    }
}

impl Sink for Taker {
    fn arrived(&self, _: &Arrival<'_>) {}

    fn tell(&self, _: &mut Report, _: usize) -> bool {
        true
    }

    /// Reads what the first file begins with, writes into it, and answers with one more.
    fn lane(&self, offer: LaneOffer) -> Result<Vec<OwnedFd>, LaneRefusal> {
        match self.rule {
            Rule::Take => {}
            Rule::Refuse(why) => return Err(why),
            // SAFETY: ends this process at once.
            Rule::Die => unsafe { libc::_exit(0) },
        }
        let LaneOffer { from, incarnation, descriptors, lifeline } = offer;
        let theirs = descriptors.first().ok_or(LaneRefusal::Broken)?.as_fd().try_clone_to_owned();
        let theirs = File::from(theirs.map_err(|_| LaneRefusal::NoDescriptors)?);
        let text = text_at(&theirs, 0);
        theirs.write_all_at(b"seen", MIDDLE).map_err(|_| LaneRefusal::Broken)?;
        let mut kept = self.kept.lock().expect("no panic");
        kept.retain(|lifeline| !lifeline.is_cut());
        kept.push(lifeline);
        let count = descriptors.len();
        Ok(vec![file(&format!("{count} of slot {from}, {incarnation}: {text}")).into()])
    }
}

/// Takes part as another process does, told what to do.
pub(super) fn play(slot: &Slot, taker: &mut Option<Arc<Taker>>, words: &[&str]) {
    let refusals = slot.member().traffic().refused;
    let kept = || taker.as_ref().expect("it takes offers").kept.lock().expect("no panic");
    let number = |word: &str| word.parse().expect("a number");
    match *words {
        ["take"] => *taker = Some(Taker::attach(slot, Rule::Take)),
        ["refuse"] => *taker = Some(Taker::attach(slot, Rule::Refuse(LaneRefusal::TheirsStands))),
        ["die"] => *taker = Some(Taker::attach(slot, Rule::Die)),
        ["reach", to] => return tell(&outcome(&slot.reach(number(to), &[file("theirs").as_fd()]))),
        ["reach", to, times] => {
            return tell(&hand_over(slot, number(to), times.parse().expect("a number")).to_string());
        }
        ["kept"] => {
            let kept = kept();
            return tell(&format!("{} {}", kept.len(), kept.iter().filter(|one| one.is_cut()).count()));
        }
        ["drop"] => kept().clear(),
        ["starve", left] => {
            let mut ballast = taker.as_ref().expect("it takes offers").ballast.lock().expect("no panic");
            *ballast = starve(left.parse().expect("a number"));
        }
        ["feed"] => taker.as_ref().expect("it takes offers").ballast.lock().expect("no panic").clear(),
        ["descriptors"] => return tell(&descriptors().to_string()),
        ["violations"] => return tell(&refusals.violations.to_string()),
        ["full"] => return tell(&refusals.connections_full.to_string()),
        ["foreign"] => return tell(&refusals.foreign_connections.to_string()),
        _ => unreachable!("{words:?}"),
    }
    tell("done");
}

/// Takes all descriptors that this process may have, but for so many.
fn starve(left: usize) -> Vec<File> {
    let limit = DescriptorLimit::get().expect("a limit");
    let most = descriptors() as u64 + 64;
    DescriptorLimit { soft: most.min(limit.hard), ..limit }.set().expect("it is less");
    let mut all: Vec<File> = std::iter::from_fn(|| File::open("/dev/null").ok()).collect();
    all.truncate(all.len() - left);
    all
}

/// Descriptors that this process has open.
fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").expect("a list").count()
}

/// What came of it, in words.
fn outcome(reached: &Result<Reached, NoLane>) -> String {
    match reached {
        Ok(reached) => reached.descriptors.iter().map(|one| text_at(one, 0)).collect::<Vec<_>>().join("; "),
        Err(why) => why.to_string(),
    }
}

/// Hands over so many times, and says how often no answer came in time: a processor may be busy elsewhere.
fn hand_over(slot: &Slot, to: u8, times: usize) -> usize {
    let mut late = 0;
    for _ in 0..times {
        while reach(slot, to).is_none() {
            late += 1;
            assert!(late < 1000, "it never came");
        }
    }
    late
}

/// Hands over once; `None` if no answer came in time.
fn reach(slot: &Slot, to: u8) -> Option<Reached> {
    let ours = file("ours");
    match slot.reach(to, &[ours.as_fd()]) {
        Ok(reached) => {
            assert_eq!(text_at(&ours, MIDDLE), "seen", "it has the very same file");
            let text = format!("1 of slot {}, {}: ours", slot.number(), slot.incarnation());
            assert_eq!(text_at(&reached.descriptors[0], 0), text);
            assert_eq!(Some(reached.incarnation), slot.member().living(to));
            Some(reached)
        }
        Err(NoLane::NoAnswer { .. }) => None,
        Err(other) => unreachable!("{other}"),
    }
}

fn reach_at_last(slot: &Slot, to: u8) -> Reached {
    std::iter::from_fn(|| Some(reach(slot, to))).take(1000).flatten().next().expect("it came")
}

/// Another member that does this with offers, and its slot.
fn other(last: u8, rule: &str) -> (Other, u8) {
    let mut other = Other::start("member", address(last));
    let slot = other.hear().strip_prefix("slot ").and_then(|slot| slot.parse().ok()).expect("a slot");
    ask(&mut other, rule);
    (other, slot)
}

fn ask(other: &mut Other, what: &str) -> String {
    other.say(&format!("lane {what}"));
    other.hear()
}

#[test]
fn the_owners_of_two_slots_hand_each_other_descriptors() {
    let ours = enter(70);
    let taker = Taker::attach(&ours, Rule::Take);
    let (mut other, theirs) = other(70, "take");
    let files = ["one", "two", "three", "four"].map(file);
    let offer = files.each_ref().map(File::as_fd);
    let reached = ours.reach(theirs, &offer).or_else(|_| ours.reach(theirs, &offer)).expect("a lane");
    let number = ours.number();
    assert_eq!(reached.descriptors.len(), 1);
    assert_eq!(text_at(&reached.descriptors[0], 0), format!("4 of slot {number}, 1: one"));
    assert_eq!(reached.incarnation, 1);
    let record = ours.member().record();
    assert!(reached.descriptors.iter().all(|one| record.tracks(one.raw())), "no forked child keeps them");
    assert!(record.tracks(reached.lifeline.as_fd().as_raw_fd()));
    assert_eq!(text_at(&files[0], MIDDLE), "seen");
    // And the other way.
    eventually("it answers in time", || {
        ask(&mut other, &format!("reach {number}")) == format!("1 of slot {theirs}, 1: theirs")
    });
    assert!(!taker.kept.lock().expect("no panic").is_empty());
    // Each notices when the other has dropped its end, or is gone.
    assert!(!reached.lifeline.is_cut());
    ask(&mut other, "drop");
    // The thread that has sent the answer holds it for a moment.
    eventually("it is cut", || reached.lifeline.is_cut());
    let again = reach_at_last(&ours, theirs);
    assert!(!again.lifeline.is_cut());
    other.signal(libc::SIGKILL);
    eventually("its end is seen", || again.lifeline.is_cut());
}

#[test]
fn two_processes_that_reach_for_each_other_at_once_both_get_an_answer() {
    const TIMES: usize = 200;
    let ours = enter(71);
    let _taker = Taker::attach(&ours, Rule::Take);
    let (mut other, theirs) = other(71, "take");
    other.say(&format!("lane reach {} {TIMES}", ours.number()));
    let late = hand_over(&ours, theirs, TIMES);
    let late = [late, other.hear().parse().expect("a number")];
    // If one had to wait for the other's thread, hardly any would be in time.
    assert!(late.iter().sum::<usize>() < TIMES / 10, "{late:?}");
}

#[test]
fn threads_of_a_process_reach_for_several_others_at_once() {
    let (one, two) = (enter(72), enter(72));
    let (first, second) = (other(72, "take"), other(72, "take"));
    std::thread::scope(|scope| {
        for slot in [&one, &two] {
            for (_, to) in [&first, &second] {
                scope.spawn(|| hand_over(slot, *to, 50));
            }
        }
    });
}

/// No process keeps what is over.
#[test]
fn a_thousand_lanes_that_were_given_up_leave_no_descriptor() {
    let ours = enter(73);
    let (mut one, _) = other(73, "take");
    let (mut two, to) = other(73, "take");
    let all = |one: &mut Other, two: &mut Other| {
        ask(two, "drop");
        [one, two].map(|other| ask(other, "descriptors"))
    };
    let before = all(&mut one, &mut two);
    let late: usize = ask(&mut one, &format!("reach {to} 1000")).parse().expect("a number");
    // What came too late may be taken in a little later.
    eventually(&format!("as many as before, {late} late"), || all(&mut one, &mut two) == before);
    drop(ours);
}

#[test]
fn what_cannot_be_is_refused_with_its_reason() {
    let (ours, second) = (enter(74), enter(74));
    let (mut other, theirs) = other(74, "refuse");
    let reach = |to: u8| ours.reach(to, &[]).expect_err("there is no lane");
    for slot in [&ours, &second] {
        assert_eq!(reach(slot.number()), NoLane::SameProcess { slot: slot.number() });
    }
    let free = (1..128).find(|slot| ![ours.number(), second.number(), theirs].contains(slot)).expect("one");
    for slot in [0, free, 128, u8::MAX] {
        assert_eq!(reach(slot), NoLane::NoOwner { slot });
    }
    let many = file("");
    let offer = [many.as_fd(); MOST_OFFERED + 1];
    let why = ours.reach(theirs, &offer).expect_err("too many");
    assert_eq!(why.to_string(), "5 descriptors were offered, and at most 4 can be");
    let refused = |expected| {
        eventually("an answer in time", || match reach(theirs) {
            NoLane::NoAnswer { .. } => false,
            other => {
                assert_eq!(other, NoLane::Refused { slot: theirs, why: expected });
                true
            }
        });
    };
    refused(LaneRefusal::TheirsStands);
    ask(&mut other, "take");
    refused(LaneRefusal::Broken);
    // A process without a device, and one whose device knows nothing of lanes.
    let (number, taker) = (ours.number(), Arc::new(Plain));
    let why = |why| format!("the process that owns slot {number} refused: {why}");
    for words in ["its device is not open yet, or not any more", "its settings do not allow it"] {
        eventually("an answer in time", || {
            let said = ask(&mut other, &format!("reach {number}"));
            assert!(said == why(words) || said.contains("did not answer"), "{said}");
            said == why(words)
        });
        ours.attach(Arc::downgrade(&taker) as Weak<dyn Sink>);
    }
}

/// A sink as it was before there were lanes.
struct Plain;

impl Sink for Plain {
    fn arrived(&self, _: &Arrival<'_>) {}

    fn tell(&self, _: &mut Report, _: usize) -> bool {
        true
    }
}

#[test]
fn a_process_that_goes_while_one_reaches_for_it_is_gone() {
    let ours = enter(75);
    for _ in 0..5 {
        let (_other, theirs) = other(75, "die");
        let reached = ours.reach(theirs, &[file("ours").as_fd()]);
        let why = reached.expect_err("it has not answered");
        assert!(matches!(why, NoLane::Gone { .. } | NoLane::NoAnswer { .. }), "{why}");
        eventually("its slot is free", || {
            ours.reach(theirs, &[]).is_err_and(|why| why == NoLane::NoOwner { slot: theirs })
        });
    }
}

#[test]
fn a_stopped_process_is_waited_for_briefly_and_then_told_that_it_is_over() {
    let ours = enter(76);
    let (mut other, theirs) = other(76, "take");
    other.signal(libc::SIGSTOP);
    eventually("it is stopped", || other.is_stopped());
    let begun = clock::now();
    let why = ours.reach(theirs, &[file("ours").as_fd()]).expect_err("it is stopped");
    let waited = clock::now().since(begun);
    assert_eq!(why, NoLane::NoAnswer { slot: theirs, millis: 200 });
    assert!((Duration::from_millis(200)..Duration::from_secs(20)).contains(&waited), "{waited:?}");
    other.signal(libc::SIGCONT);
    // It took the offer, and sees that there is no process behind it.
    eventually("it was taken and is over", || ask(&mut other, "kept") == "1 1");
}

#[test]
fn a_process_without_descriptors_says_so_and_goes_on_when_it_has_some() {
    let ours = enter(82);
    let _taker = Taker::attach(&ours, Rule::Take);
    let (mut other, theirs) = other(82, "take");
    // One for the connection, and none for what comes. The thread of the switchboard may be closing another just now, so
    // that there is one more in the end: then all is tried again.
    let refused = NoLane::Refused { slot: theirs, why: LaneRefusal::NoDescriptors };
    eventually("it says so", || {
        ask(&mut other, "starve 1");
        let why = ours.reach(theirs, &[file("ours").as_fd()]).err();
        ask(&mut other, "feed");
        why.as_ref() == Some(&refused)
    });
    // The file that it offers and the connection, and none for the answer; then none for the connection.
    for left in [2, 1] {
        eventually("it says so of itself", || {
            ask(&mut other, &format!("starve {left}"));
            let said = ask(&mut other, &format!("reach {}", ours.number()));
            ask(&mut other, "feed");
            said.starts_with("this process has no descriptors left")
        });
    }
    eventually("it cannot even hear it", || {
        ask(&mut other, "starve 0");
        let why = ours.reach(theirs, &[]).expect_err("nothing was offered");
        ask(&mut other, "feed");
        matches!(why, NoLane::NoAnswer { .. })
    });
    drop(reach_at_last(&ours, theirs));
}

/// A connection to where another process takes offers.
fn knock(ours: &Slot, to: u8) -> OwnedFd {
    let owner = ours.member().inner().owner_of(to).expect("an owner");
    let socket = unix::socket(libc::SOCK_SEQPACKET).expect("a socket");
    unix::connect(socket.as_fd(), names::of_lanes(owner.lanes).as_bytes()).expect("it listens");
    socket
}

/// What is said over a connection; `None` if it ends, or nothing comes for long.
fn heard(socket: &OwnedFd) -> Option<Vec<u8>> {
    wait_readable(socket.as_fd(), Some(Duration::from_secs(20))).expect("a wait");
    let mut bytes = vec![0; 64];
    let message =
        unix::receive(socket.as_fd(), &mut bytes, Room::None).ok().filter(|message| message.len > 0)?;
    bytes.truncate(message.len);
    Some(bytes)
}

fn refusal(why: LaneRefusal) -> Option<Vec<u8>> {
    Some([Answer::NoLane.emit().as_slice(), &[why.code()]].concat())
}

#[test]
fn offers_that_break_the_rules_are_cut_and_nothing_of_them_is_kept() {
    let ours = enter(77);
    let (mut other, theirs) = other(77, "take");
    let inner = ours.member().inner();
    let number = ours.number();
    let free = (1..128).find(|slot| ![number, theirs].contains(slot)).expect("one");
    let right = || Offer {
        secret: inner.table.secret(),
        incarnation: ours.incarnation(),
        expected: ours.member().living(theirs).expect("it lives"),
        from: number,
        to: theirs,
        reserved: [0; 6],
    };
    let before = ask(&mut other, "descriptors");
    let kept = file("ours");
    let say = |bytes: &[u8], count: usize| {
        let socket = knock(&ours, theirs);
        unix::send(socket.as_fd(), bytes, &vec![kept.as_raw_fd(); count]).expect("it is sent");
        let answer = heard(&socket);
        assert!(is_cut(&socket));
        answer
    };
    let message = right().emit();
    let mut version = message.clone();
    version[4..6].copy_from_slice(&(VERSION - 1).to_ne_bytes());
    let violations: [(&[u8], usize); 12] = [
        (b"garbage", 4),
        (&[0; 4000], 1),
        (&Greeting::Lane.emit(), 1),
        (&Greeting::Stats.emit(), 1),
        (&message[..message.len() - 1], 1),
        (&[message.as_slice(), &[0]].concat(), 1),
        (&message, MOST_OFFERED + 1),
        (&message, 200),
        (&Offer { secret: right().secret ^ 1, ..right() }.emit(), 1),
        (&Offer { from: 0, ..right() }.emit(), 1),
        (&Offer { from: 128, ..right() }.emit(), 1),
        (&Offer { from: theirs, incarnation: right().expected, ..right() }.emit(), 1),
    ];
    for (bytes, count) in violations {
        assert_eq!(say(bytes, count), None, "{bytes:?} with {count}");
    }
    assert_eq!(say(&version, 1), Some(Answer::OtherVersion(VERSION).emit().to_vec()));
    assert_eq!(ask(&mut other, "violations"), (violations.len() + 1).to_string());
    // What a process may say that keeps to the rules, and is too late.
    for (offer, why) in [
        (Offer { expected: right().expected + 1, ..right() }, LaneRefusal::NotTheOwner),
        (Offer { to: free, ..right() }, LaneRefusal::NotTheOwner),
        (Offer { to: 0, ..right() }, LaneRefusal::NotTheOwner),
        (Offer { to: u8::MAX, ..right() }, LaneRefusal::NotTheOwner),
        (Offer { from: free, ..right() }, LaneRefusal::UnknownSender),
        (Offer { incarnation: ours.incarnation() + 1, ..right() }, LaneRefusal::UnknownSender),
    ] {
        assert_eq!(say(&offer.emit(), 4), refusal(why), "{offer:?}");
    }
    assert_eq!(say(&message, 0), refusal(LaneRefusal::Broken), "so said the sink");
    // One that says nothing.
    assert!(is_cut(&knock(&ours, theirs)));
    eventually("it is a violation", || ask(&mut other, "violations") == (violations.len() + 2).to_string());
    assert_eq!(ask(&mut other, "descriptors"), before);
    drop(reach_at_last(&ours, theirs));
}

#[test]
fn a_crowd_that_says_nothing_is_bounded_and_keeps_no_process_from_an_answer() {
    let ours = enter(78);
    let (mut other, theirs) = other(78, "take");
    let number = |said: String| said.parse::<usize>().expect("a number");
    let before = number(ask(&mut other, "descriptors"));
    let crowd: Vec<OwnedFd> = (0..200).map(|_| knock(&ours, theirs)).collect();
    drop(reach_at_last(&ours, theirs));
    let full = number(ask(&mut other, "full"));
    // On a slow machine the time of some is over before their place is needed.
    let late = number(ask(&mut other, "violations"));
    assert!(full + late >= 200 - MOST_SILENT, "{full} and {late}");
    ask(&mut other, "drop");
    let during = number(ask(&mut other, "descriptors"));
    // What came too late for the thread that reached may be taken just now.
    assert!(during <= before + MOST_SILENT + 10, "{during} and {before} before");
    let busy = crowd.iter().filter(|socket| heard(socket) == refusal(LaneRefusal::Busy)).count();
    assert_eq!(busy, full, "they are told why");
    eventually("all are gone", || number(ask(&mut other, "descriptors")) == before);
}

/// Has a process of this test's own listen where the owner of a slot seems to.
fn listen_for(ours: &Slot, slot: u8, drawn: u64) {
    ours.member().inner().table.entry(slot.into()).lanes.store(drawn, Ordering::SeqCst);
}

#[test]
fn answers_that_break_the_rules_are_none() {
    let ours = enter(79);
    let (_other, theirs) = other(79, "take");
    let drawn = u64::from(std::process::id()) << 32 | 79;
    listen_for(&ours, theirs, drawn);
    assert_eq!(ours.reach(theirs, &[]).expect_err("none listens"), NoLane::NotListening { slot: theirs });
    let listener = unix::listen(names::of_lanes(drawn).as_bytes()).expect("a name");
    let kept = file("");
    let mut longer = Answer::Lane.emit().to_vec();
    longer.push(0);
    let broken = NoLane::BrokenAnswer { slot: theirs };
    let version = NoLane::OtherVersion { slot: theirs, theirs: 77, ours: VERSION };
    let answers: [(&[u8], usize, &NoLane); 8] = [
        (b"garbage", 1, &broken),
        (&longer, 1, &broken),
        (&Answer::Lane.emit(), MOST_ANSWERED + 1, &broken),
        (&Answer::Sockets.emit(), 1, &broken),
        (&Answer::NoLane.emit(), 1, &broken),
        (&[Answer::NoLane.emit().as_slice(), &[0]].concat(), 1, &broken),
        (&Answer::OtherVersion(77).emit(), 1, &version),
        (&[], 0, &NoLane::Gone { slot: theirs }),
    ];
    for (bytes, count, why) in answers {
        // The answer is there before the question: what is read is the same.
        let said = std::thread::scope(|scope| {
            let asking = scope.spawn(|| ours.reach(theirs, &[kept.as_fd()]));
            wait_readable(listener.as_fd(), None).expect("a look");
            let socket = unix::accept(listener.as_fd()).expect("it connects");
            assert_eq!(heard(&socket).map(|offer| offer.len()), Some(LEN + size_of::<Offer>()));
            let descriptors: Vec<RawFd> = vec![kept.as_raw_fd(); count];
            if !bytes.is_empty() {
                let _ = unix::send(socket.as_fd(), bytes, &descriptors);
            }
            drop(socket);
            asking.join().expect("no panic")
        });
        match said {
            Err(NoLane::NoAnswer { .. }) => println!("it took too long"),
            said => assert_eq!(said.expect_err("no lane"), *why, "{bytes:?}"),
        }
    }
    listen_for(&ours, theirs, 0);
    assert_eq!(ours.reach(theirs, &[]).expect_err("nowhere"), NoLane::NotListening { slot: theirs });
}

#[test]
fn other_users_neither_get_nor_offer_descriptors() {
    if unix::own_uid() != 0 {
        println!("SKIPPED: only root can become another user");
        return;
    }
    let ours = enter(80);
    let (mut other, theirs) = other(80, "take");
    let mut stranger = Other::start("squatter", address(80));
    assert_eq!(stranger.hear(), "ready");
    let name = |drawn| names::of_lanes(drawn);
    let lanes = ours.member().inner().owner_of(theirs).expect("an owner").lanes;
    stranger.say(&format!("connect {}", name(lanes)));
    assert_eq!(stranger.hear(), "connected");
    eventually("it is counted", || ask(&mut other, "foreign") == "1");
    let drawn = u64::from(UID) << 32 | u64::from(std::process::id());
    stranger.say(&format!("take {}", name(drawn)));
    assert_eq!(stranger.hear(), "holds 2");
    listen_for(&ours, theirs, drawn);
    assert_eq!(ours.reach(theirs, &[]).expect_err("it is a stranger"), NoLane::OtherUser { slot: theirs });
}

/// All users that the kernel cannot name look like this one.
#[test]
fn a_process_of_the_unknown_user_has_no_lanes() {
    if unix::own_uid() != 0 {
        println!("SKIPPED: only root can become another user");
        return;
    }
    let [mut one, mut two] = [1, 2].map(|_| Other::start("other-user", address(81)));
    let [_, theirs] = [one.hear(), two.hear()].map(|slot| slot.trim_start_matches("slot ").to_owned());
    ask(&mut two, "take");
    let said = ask(&mut one, &format!("reach {theirs}"));
    assert!(said.starts_with("this process runs as uid 65534, which is also how"), "{said}");
}
