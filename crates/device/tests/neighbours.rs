//! A process of this user that offers to share memory and breaks the rules: it is refused, or harms only its own queue
//! pairs.

mod common;

use std::fs::File;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::process::Command;
use std::sync::{Arc, Mutex, Weak};
use std::time::Duration;

use common::{Side, signaled};
use ferroce_device::fabric::NotShared;
use ferroce_device::switchboard::{
    Arrival, Group, LaneOffer, LaneRefusal, Lifeline, Membership, NoLane, Reached, Report, Sink, Slot,
};
use ferroce_device::{Config, EventFd, Nic, Path, PathChoice, PathPolicy, PathReason, now};
use ferroce_lane::{LaneFile, LineFile};
use ferroce_testkit::process::{Parent, Peer};
use ferroce_transport::{SendOp, Status};
use ferroce_wire::{DataPacket, DataVerb, PKey, Psn, Qpn, Rkey, header::Reth};
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

const ADDRESS: [u8; 4] = [127, 0, 20, 40];
const ROLE: &str = "FERROCE_TEST_ROLE";
const SLOT: &str = "FERROCE_TEST_SLOT";

/// What the lines of the other process begin with: the harness writes there, too.
const MARK: char = '@';

/// Records of garbage.
const RECORDS: usize = 20_000;

/// What the other process does; nothing in the first one.
#[test]
fn the_other_process() {
    let act = match std::env::var(ROLE).as_deref() {
        Ok("offers") => offers,
        Ok("garbage") => garbage,
        Ok("lies") => lies,
        Ok("crosses") => crosses,
        Ok("succeeds") => succeeds,
        _ => return,
    };
    let last = std::env::var("FERROCE_TEST_LAST").expect("a number").parse().expect("a number");
    let group = Group { interface: "lo".to_owned(), address: Some(address(last).into()) };
    let member = Membership::join(&group, true).expect("a membership");
    let take = || member.take().expect("a slot");
    match std::env::var(SLOT) {
        Err(_) => act(&take()),
        // Slots are dealt at random: all that are free are taken until it is this one.
        Ok(wanted) => {
            let mut others = Vec::new();
            let slot = loop {
                let slot = take();
                if slot.number().to_string() == wanted {
                    break slot;
                }
                others.push(slot);
            };
            drop(others);
            act(&slot);
        }
    }
}

fn address(last: u8) -> [u8; 4] {
    let [a, b, c, _] = ADDRESS;
    [a, b, c, last]
}

/// A device of which other processes may ask to share memory, and one that asks in this role.
fn meet(role: &str, last: u8) -> (Nic, Peer) {
    let config = Config { address: Some(address(last).into()), shared: true, ..Config::new("lo") };
    let nic = Nic::open(config).expect("a device on lo");
    (nic, start(role, last, None))
}

/// Another process in this role, with this slot if it is to be a certain one.
fn start(role: &str, last: u8, slot: Option<u32>) -> Peer {
    let mut command = Command::new(std::env::current_exe().expect("a program"));
    command.args(["--exact", "the_other_process", "--nocapture"]);
    command.env(ROLE, role).env("FERROCE_TEST_LAST", last.to_string());
    command.envs(slot.map(|slot| (SLOT, slot.to_string())));
    Peer::start_by(command).expect("another process")
}

/// The next line of the other process.
fn hear(peer: &mut Peer) -> String {
    loop {
        let line = peer.hear().expect("it says something");
        if let Some((_, said)) = line.split_once(MARK) {
            return said.to_owned();
        }
    }
}

fn say(line: impl std::fmt::Display) {
    Parent.say(format_args!("\n{MARK}{line}")).expect("the first process listens");
}

fn heard_number() -> u32 {
    Parent.hear().expect("a line").parse().expect("a number")
}

/// Offers that are none, and one that is.
fn offers(slot: &Slot) {
    say("ready");
    let to = u8::try_from(heard_number()).expect("a slot");
    let [one, other] = [0; 2].map(|_| LaneFile::create().expect("a lane"));
    let short = LaneFile::create_with(4096).expect("a lane");
    let line = LineFile::create().expect("a line");
    let bell = EventFd::new().expect("an event");
    let null = File::open("/dev/null").expect("a file");
    let (pipe, _end) = std::io::pipe().expect("a pipe");
    let (one, other, short, line) = (one.as_fd(), other.as_fd(), short.as_fd(), line.as_fd());
    let (bell, null, pipe) = (bell.as_fd(), null.as_fd(), pipe.as_fd());
    let broken: [(&str, &[BorrowedFd<'_>]); 9] = [
        ("nothing", &[]),
        ("too few", &[one, other, line]),
        ("no memory", &[null, other, line, bell]),
        ("too short", &[one, short, line, bell]),
        ("a line for a lane", &[one, line, line, bell]),
        ("a lane for a line", &[one, other, one, bell]),
        ("one lane for both ways", &[one, one, line, bell]),
        ("a file for a bell", &[one, other, line, null]),
        ("a pipe for a bell", &[one, other, line, pipe]),
    ];
    for (what, offer) in broken {
        let refused = slot.reach(to, offer).map(|_| ());
        let expected = NoLane::Refused { slot: to, why: LaneRefusal::Broken };
        assert_eq!(refused, Err(expected), "{what}");
    }
    let reached = slot.reach(to, &[one, other, line, bell]).expect("this one is right");
    assert_eq!(reached.descriptors.len(), 2, "a line and a bell");
    let again = slot.reach(to, &[one, other, line, bell]).map(|_| ());
    assert!(
        matches!(again, Err(NoLane::Refused { why: LaneRefusal::Broken, .. })),
        "{again:?}: it has these"
    );
    say("all as expected");
}

#[test]
fn offers_that_are_none_are_refused() {
    let (nic, mut peer) = meet("offers", 41);
    let side = Side::new(&nic, address(41), PathPolicy::Prefer);
    assert_eq!(hear(&mut peer), "ready");
    peer.say(side.qp.qpn().get() >> 16).expect("it listens");
    assert_eq!(hear(&mut peer), "all as expected");
    peer.stop().expect("it ends well");
}

/// Shares memory as it should, and then writes what it should not.
fn garbage(slot: &Slot) {
    say(slot.number());
    let [target, bystander, rkey] = [0; 3].map(|_| heard_number());
    let place: u64 = Parent.hear().expect("a line").parse().expect("a number");
    let [out, back] = [0; 2].map(|_| LaneFile::create().expect("a lane"));
    let (line, bell) = (LineFile::create().expect("a line"), EventFd::new().expect("an event"));
    let to = u8::try_from(target >> 16).expect("a slot");
    let reached = slot.reach(to, &[out.as_fd(), back.as_fd(), line.as_fd(), bell.as_fd()]);
    let Reached { descriptors, lifeline, .. } = reached.expect("it takes the offer");
    let [theirs, rung] = <[_; 2]>::try_from(descriptors).expect("a line and a bell");
    let theirs = LineFile::accept(theirs.as_fd().try_clone_to_owned().expect("a copy")).expect("a line");
    let mut caller = theirs.caller();
    let mut producer = out.into_producer();
    let _consumer = back.into_consumer();
    say("shared");
    assert_eq!(Parent.hear().expect("a line"), "go on");
    let mut random = ChaCha8Rng::seed_from_u64(7);
    let mut sent = 0;
    let end = now() + Duration::from_secs(20);
    while sent < RECORDS {
        assert!(now() < end && !lifeline.is_cut(), "nothing is taken out any more, after {sent}");
        let len = usize::try_from(random.next_u32() % 4300).expect("small");
        let Some(room) = producer.room(len) else {
            std::thread::yield_now();
            continue;
        };
        random.fill_bytes(room);
        // To a queue pair whose peer is elsewhere with the right key, and to our own with a wrong one.
        let (dest_qp, key) = if sent % 2 == 0 { (bystander, rkey) } else { (target, rkey ^ 0x100) };
        let payload = len.saturating_sub(64) / 4 * 4;
        let data = DataPacket {
            dest_qp: Qpn::new(dest_qp),
            pkey: PKey::DEFAULT,
            psn: Psn::new(0xff_fff0 + u32::try_from(sent).expect("small")),
            ack_request: true,
            solicited: false,
            begins: true,
            ends: true,
            verb: DataVerb::Write(
                Reth { address: place, rkey: Rkey(key), length: u32::try_from(payload).expect("small") },
                None,
            ),
            payload,
        };
        let mut len = len;
        if sent % 4 < 2 && data.packet_len() <= len && data.emit_headers(room).is_some() {
            len = data.packet_len();
        }
        let kind = if sent % 4 < 2 { 64 } else { u8::try_from(sent % 256).expect("small") };
        producer.commit(kind, len);
        sent += 1;
        producer.publish();
        if caller.call(slot.number()) {
            ferroce_device::signal(rung.as_fd());
        }
    }
    while !producer.is_empty() {
        assert!(now() < end, "not all was taken out");
        std::thread::yield_now();
    }
    say("all was taken");
    Parent.wait();
}

#[test]
fn garbage_through_shared_memory_harms_no_other_queue_pair() {
    let (nic, mut peer) = meet("garbage", 42);
    let here = address(42);
    let [one, other, target] = [0; 3].map(|_| Side::new(&nic, here, PathPolicy::Prefer));
    one.connect(&other.address());
    other.connect(&one.address());
    let slot: u32 = hear(&mut peer).parse().expect("a slot");
    for number in [target.qp.qpn().get(), one.qp.qpn().get(), one.address().rkey.0] {
        peer.say(number).expect("it listens");
    }
    peer.say(one.address().memory).expect("it listens");
    assert_eq!(hear(&mut peer), "shared");
    target.connect(&common::Peer { qpn: Qpn::new(slot << 16 | 5), ..target.address() });
    let path = target.qp.query().expect("it is there").path.expect("it is connected");
    assert_eq!(path.path, Path::Shared, "{path}");
    let before = vec![0x77; one.memory.len()];
    for side in [&one, &other, &target] {
        side.memory.write(0, &before).expect("inside");
    }
    peer.say("go on").expect("it listens");
    assert_eq!(hear(&mut peer), "all was taken");
    let counters = nic.counters();
    let dropped = counters.malformed + counters.unknown_opcode + counters.unknown_qp + counters.wrong_peer;
    assert_eq!(counters.lane_packets_received, RECORDS as u64);
    assert!(dropped > RECORDS as u64 / 2 && counters.wrong_peer > 1000, "{counters:?}");
    let mut now = before.clone();
    for side in [&one, &other, &target] {
        side.memory.read(0, &mut now).expect("inside");
        assert!(now == before, "bytes of a region have changed");
    }
    // The others work as before.
    let to = other.address().at(64);
    one.qp.post_send(&[signaled(1, SendOp::Write(to), &[one.sge(0, 1000)])]).expect("room");
    assert_eq!(one.completion().status, Status::Success);
    peer.stop().expect("it ends well");
}

/// Shares memory as it should, and then says that the first process has sent more than it has.
fn lies(slot: &Slot) {
    say(slot.number());
    let to = u8::try_from(heard_number()).expect("a slot");
    let [out, back] = [0; 2].map(|_| LaneFile::create().expect("a lane"));
    let (line, bell) = (LineFile::create().expect("a line"), EventFd::new().expect("an event"));
    let offer = [out.as_fd(), back.as_fd(), line.as_fd(), bell.as_fd()];
    let Reached { descriptors, lifeline, .. } = slot.reach(to, &offer).expect("it takes the offer");
    say("shared");
    assert_eq!(Parent.hear().expect("a line"), "lie");
    // Where the word of the producer is: the first that is another one once something is published.
    let file = File::from(out.as_fd().try_clone_to_owned().expect("a copy"));
    let mut words = [0; 8192];
    file.read_exact_at(&mut words, 0).expect("a header");
    let [theirs, rung] = <[_; 2]>::try_from(descriptors).expect("a line and a bell");
    let theirs = LineFile::accept(theirs.as_fd().try_clone_to_owned().expect("a copy")).expect("a line");
    let mut producer = out.into_producer();
    producer.room(64).expect("an empty lane").fill(0);
    producer.commit(64, 64);
    producer.publish();
    let mut after = [0; 8192];
    file.read_exact_at(&mut after, 0).expect("a header");
    let word = (0..words.len()).step_by(8).find(|at| words[*at..at + 8] != after[*at..at + 8]);
    file.write_all_at(&[0xff; 8], word.expect("the word has changed") as u64).expect("a word");
    if theirs.caller().call(slot.number()) {
        ferroce_device::signal(rung.as_fd());
    }
    assert_eq!(Parent.hear().expect("a line"), "once more");
    let [one, other] = [0; 2].map(|_| LaneFile::create().expect("a lane"));
    let offer = [one.as_fd(), other.as_fd(), line.as_fd(), bell.as_fd()];
    let again = slot.reach(to, &offer).map(|_| ());
    assert!(matches!(again, Err(NoLane::Refused { why: LaneRefusal::Broken, .. })), "{again:?}");
    let end = now() + common::PATIENCE;
    while !lifeline.is_cut() {
        assert!(now() < end, "it does not say that nothing is shared any more");
        std::thread::yield_now();
    }
    say("refused");
    Parent.wait();
}

/// It was: a queue pair that was connected later to the same process was told that it shares memory, and its packets went over the
/// network.
/// And, now and then on a busy machine: the driver found the lie itself, and went to sleep without hanging up.
#[test]
fn after_a_lie_nothing_is_shared_with_that_process_again() {
    let (nic, mut peer) = meet("lies", 43);
    let sides = [0; 3].map(|_| Side::new(&nic, address(43), PathPolicy::Prefer));
    let slot: u32 = hear(&mut peer).parse().expect("a slot");
    peer.say(sides[0].qp.qpn().get() >> 16).expect("it listens");
    assert_eq!(hear(&mut peer), "shared");
    let path = |side: &Side| side.qp.query().expect("it is there").path.expect("it is connected");
    let to_liar = common::Peer { qpn: Qpn::new(slot << 16 | 5), ..sides[0].address() };
    sides[0].connect(&to_liar);
    assert_eq!(path(&sides[0]).path, Path::Shared);
    peer.say("lie").expect("it listens");
    let end = now() + common::PATIENCE;
    while nic.counters().lanes_broken == 0 {
        assert!(now() < end, "nothing was found broken: {:?}", nic.counters());
        let _ = sides[0].cq.poll(&mut []);
        std::thread::yield_now();
    }
    let broken = PathChoice { path: Path::Wire, reason: PathReason::NotShared(NotShared::Broken) };
    assert_eq!(path(&sides[0]), broken);
    sides[1].connect(&to_liar);
    assert_eq!(path(&sides[1]), broken, "connected later");
    peer.say("once more").expect("it listens");
    assert_eq!(hear(&mut peer), "refused");
    sides[2].connect(&to_liar);
    assert_eq!(path(&sides[2]), broken);
    peer.stop().expect("it ends well");
}

/// Takes an offer as it should, and keeps what tells whether it stands.
struct Taker {
    line: LineFile,
    bell: EventFd,
    kept: Mutex<Option<Lifeline>>,
}

impl Sink for Taker {
    fn arrived(&self, _: &Arrival<'_>) {}

    fn tell(&self, _: &mut Report, _: usize) -> bool {
        true
    }

    fn lane(&self, offer: LaneOffer) -> Result<Vec<OwnedFd>, LaneRefusal> {
        *self.kept.lock().expect("no panic") = Some(offer.lifeline);
        let copies = [self.line.as_fd(), self.bell.as_fd()].map(|own| own.try_clone_to_owned());
        Ok(copies.into_iter().map(|copy| copy.expect("a copy")).collect())
    }
}

/// Takes an offer while an offer of its own is under way, and offers anew when it has given up what it has taken.
fn crosses(slot: &Slot) {
    let (line, bell) = (LineFile::create().expect("a line"), EventFd::new().expect("an event"));
    let taker = Arc::new(Taker { line, bell, kept: Mutex::default() });
    slot.attach(Arc::downgrade(&taker) as Weak<dyn Sink>);
    say(slot.number());
    let target = heard_number();
    let to = u8::try_from(target >> 16).expect("a slot");
    let [out, back] = [0; 2].map(|_| LaneFile::create().expect("a lane"));
    let offer = [out.as_fd(), back.as_fd(), taker.line.as_fd(), taker.bell.as_fd()];
    let refused = NoLane::Refused { slot: to, why: LaneRefusal::TheirsStands };
    assert_eq!(slot.reach(to, &offer).map(|_| ()), Err(refused.clone()));
    let taken = taker.kept.lock().expect("no panic").take().expect("it was made an offer");
    assert!(!taken.is_cut(), "what it has taken is not given up for what came late");
    drop(taken);
    // Nothing stands any more, as soon as the thread that has answered the offer has let go of it, too.
    let end = now() + common::PATIENCE;
    let reached = loop {
        match slot.reach(to, &offer) {
            Ok(reached) => break reached,
            Err(error) => assert!(error == refused && now() < end, "{error:?}"),
        }
        std::thread::yield_now();
    };
    write_nothing(slot, reached, out, (Qpn::new(target), Psn::new(0)));
    say("sent");
    Parent.wait();
}

/// Takes a slot that another process had, and writes to a queue pair that was connected to that.
fn succeeds(slot: &Slot) {
    let (line, bell) = (LineFile::create().expect("a line"), EventFd::new().expect("an event"));
    say(slot.number());
    let target = heard_number();
    let to = u8::try_from(target >> 16).expect("a slot");
    let [out, back] = [0; 2].map(|_| LaneFile::create().expect("a lane"));
    let reached = slot.reach(to, &[out.as_fd(), back.as_fd(), line.as_fd(), bell.as_fd()]).expect("a lane");
    write_nothing(slot, reached, out, (Qpn::new(target), Psn::new(1)));
    say("sent");
    Parent.wait();
}

/// Sends a WRITE of no bytes, and waits until it was taken out. So long the lifeline has to hold, which is in `reached`.
fn write_nothing(slot: &Slot, reached: Reached, out: LaneFile, (dest_qp, psn): (Qpn, Psn)) {
    let [theirs, rung] = <[_; 2]>::try_from(reached.descriptors).expect("a line and a bell");
    let theirs = LineFile::accept(theirs.as_fd().try_clone_to_owned().expect("a copy")).expect("a line");
    let mut producer = out.into_producer();
    let data = DataPacket {
        dest_qp,
        pkey: PKey::DEFAULT,
        psn,
        ack_request: true,
        solicited: false,
        begins: true,
        ends: true,
        verb: DataVerb::Write(Reth { address: 0, rkey: Rkey(0), length: 0 }, None),
        payload: 0,
    };
    let len = data.packet_len();
    data.emit_headers(producer.room(len).expect("an empty lane")).expect("room");
    producer.commit(64, len);
    producer.publish();
    if theirs.caller().call(slot.number()) {
        ferroce_device::signal(rung.as_fd());
    }
    let end = now() + common::PATIENCE;
    while !producer.is_empty() {
        assert!(now() < end, "it was not taken out");
        std::thread::yield_now();
    }
}

/// It was: of two processes that offered to share memory at the same moment, each gave up what the other had taken; one then took
/// nothing that came by what was shared next, and both sent in vain until their retries were exhausted.
#[test]
fn offers_that_cross_come_to_one_and_what_is_shared_anew_is_for_all_connections() {
    let (nic, mut peer) = meet("crosses", 44);
    let side = Side::new(&nic, address(44), PathPolicy::Prefer);
    let slot: u32 = hear(&mut peer).parse().expect("a slot");
    side.connect(&common::Peer { qpn: Qpn::new(slot << 16 | 5), ..side.address() });
    let path = || side.qp.query().expect("it is there").path.expect("it is connected");
    assert_eq!(path().path, Path::Shared);
    peer.say(side.qp.qpn().get()).expect("it listens");
    assert_eq!(hear(&mut peer), "sent");
    let counters = nic.counters();
    assert_eq!((counters.lane_packets_received, counters.wrong_peer), (1, 0), "{counters:?}");
    let gone = PathReason::NotShared(NotShared::Gone);
    assert_eq!(path(), PathChoice { path: Path::Wire, reason: gone }, "it sends as since the loss");
    peer.stop().expect("it ends well");
}

/// It was: a queue pair took what came by memory from its peer's slot, whichever process had that by then.
#[test]
fn a_queue_pair_takes_nothing_from_the_process_that_has_the_slot_of_its_peer_next() {
    let (nic, mut peer) = meet("crosses", 45);
    let side = Side::new(&nic, address(45), PathPolicy::Prefer);
    let slot: u32 = hear(&mut peer).parse().expect("a slot");
    side.connect(&common::Peer { qpn: Qpn::new(slot << 16 | 5), ..side.address() });
    peer.say(side.qp.qpn().get()).expect("it listens");
    assert_eq!(hear(&mut peer), "sent");
    peer.stop().expect("it ends well");
    let mut next = start("succeeds", 45, Some(slot));
    assert_eq!(hear(&mut next), slot.to_string());
    next.say(side.qp.qpn().get()).expect("it listens");
    assert_eq!(hear(&mut next), "sent");
    let counters = nic.counters();
    assert_eq!((counters.lane_packets_received, counters.wrong_peer), (2, 1), "{counters:?}");
    next.stop().expect("it ends well");
}
