//! What can be in the way of a process that joins, each with the words that it is told.

mod attacks;
mod handing;
mod lanes;
mod other;
mod squatted;
mod squatter;

use std::net::{IpAddr, UdpSocket};
use std::os::fd::{AsFd, OwnedFd};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ferroce_fabric::udp::Receiving;
use ferroce_fabric::{Inbox, PORT};
use ferroce_sys::clock;
use ferroce_sys::descriptor::{self, wait_readable};
use ferroce_sys::unix::{self, Room};
use ferroce_wire::mad::{CmMad, CmMessage, CommId, Req, ServiceId};
use other::Other;

use super::membership::{Membership, Slot};
use super::names::{self, Place};
use super::protocol::{Greeting, LEN};
use super::{Group, SLOTS, SwitchError, communication_id, survey};

/// Addresses are 127.0.61.x; each test has its own.
pub(super) fn address(last: u8) -> IpAddr {
    [127, 0, 61, last].into()
}

pub(super) fn group(last: u8) -> Group {
    Group { interface: "lo".to_owned(), address: Some(address(last)) }
}

pub(super) fn enter(last: u8) -> Slot {
    Membership::join(&group(last), true).and_then(|member| member.take()).expect("a slot")
}

fn why_not(last: u8) -> String {
    Membership::join(&group(last), true).expect_err("it is in the way").to_string()
}

pub(crate) fn eventually(what: &str, mut is_so: impl FnMut() -> bool) {
    let end = clock::now() + Duration::from_secs(60);
    while !is_so() {
        assert!(clock::now() < end, "it never came: {what}");
        clock::pause(Duration::from_millis(2));
    }
}

#[test]
fn the_other_process() {
    other::play();
}

/// It was: a thread that joined while another one left was handed the file of the membership that was just going, and
/// took the leader for a liar.
#[test]
fn a_process_comes_back_while_its_last_membership_goes() {
    let mut leader = Other::start("member", address(99));
    assert!(leader.hear().starts_with("slot "));
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| (0..200).for_each(|_| drop(enter(99))));
        }
    });
}

#[test]
fn a_second_process_gets_a_slot_of_its_own() {
    let ours = enter(1);
    let mut other = Other::start("member", address(1));
    let theirs = other.hear();
    assert!(theirs.starts_with("slot ") && theirs != format!("slot {}", ours.number()), "{theirs}");
    let seen = survey(Some("lo")).expect("an answer");
    let seen = seen.iter().flatten().find(|seen| seen.group == group(1)).expect("our group");
    assert_eq!(seen.leader, std::process::id());
    let alive: Vec<_> = seen.rows.iter().map(|row| (row.pid, row.alive, row.leads)).collect();
    assert!(alive.contains(&(std::process::id(), true, true)), "{alive:?}");
    assert!(alive.contains(&(other.pid(), true, false)), "{alive:?}");
    // Its slot is free again when it is gone, whatever way.
    other.signal(libc::SIGKILL);
    let slot: usize = theirs["slot ".len()..].parse().expect("a number");
    eventually("the slot is free", || !ours.member().inner().is_alive(slot));
}

#[test]
fn two_devices_of_a_process_are_one_member() {
    let (one, two) = (enter(2), enter(2));
    assert!(Arc::ptr_eq(one.member(), two.member()));
    assert_ne!(one.number(), two.number());
    let number = one.number();
    drop(one);
    assert!(!two.member().inner().owns(number.into()) && two.member().inner().owns(two.number().into()));
    drop(two);
    // And anew, by a leader that has left.
    assert_eq!(enter(2).incarnation(), 1, "a new group");
}

/// Sends so many datagrams to a slot, and waits until its socket has had all of them.
fn all_find_room(ours: &Slot, last: u8, datagrams: usize) {
    let sender = UdpSocket::bind((address(last + 1), PORT)).expect("a socket");
    let mut bytes = [0; 64];
    bytes[5] = ours.number();
    for _ in 0..datagrams {
        sender.send_to(&bytes, (address(last), PORT)).expect("sent");
    }
    let mut receiving = Receiving::new(Some(address(last)));
    let mut inbox = Inbox::new(datagrams);
    let mut came = 0;
    eventually("all datagrams", || {
        receiving.receive(&ours.socket(), &mut inbox).expect("a socket");
        came += inbox.len();
        came == datagrams
    });
}

/// It was: a process that was seen in a slot, and had no time to ask for a buffer yet, lost all but three
/// datagrams.
#[test]
fn a_slot_has_room_as_soon_as_it_is_seen() {
    let first = enter(50);
    all_find_room(&first, 50, 100);
    // A slot that was given back keeps nothing, until it is taken again.
    let member = Arc::clone(first.member());
    let number = usize::from(first.number());
    drop(first);
    let all: Vec<Slot> = (1..SLOTS).map(|_| member.take().expect("a slot")).collect();
    let again = all.iter().find(|slot| usize::from(slot.number()) == number).expect("the same slot");
    all_find_room(again, 50, 100);
}

#[test]
fn the_next_member_leads_when_the_leader_leaves() {
    let mut first = Other::start("member", address(3));
    first.hear();
    let ours = enter(3);
    assert!(!ours.member().leads());
    first.say("end");
    eventually("we lead", || ours.member().leads());
    let mut third = Other::start("member", address(3));
    assert!(third.hear().starts_with("slot "));
}

#[test]
fn another_users_switchboard_is_named() {
    if unix::own_uid() != 0 {
        println!("SKIPPED: only root can become another user");
        return;
    }
    let mut other = Other::start("other-user", address(4));
    assert!(other.hear().starts_with("slot "));
    let why = why_not(4);
    assert!(why.contains("belongs to another user (uid 65534, a switchboard)"), "{why}");
    assert!(why.contains("FERROCE_ADDRESS"), "{why}");
}

#[test]
fn a_foreign_program_on_the_port_is_named() {
    let _foreign = UdpSocket::bind((address(5), PORT)).expect("the port is free");
    let why = why_not(5);
    let name = std::fs::read_to_string("/proc/self/comm").expect("a name");
    let holder = format!("taken by process {} ({})", std::process::id(), name.trim_end());
    assert!(why.contains(&holder) && why.contains("no switchboard; end it (`ss -lunp"), "{why}");
}

#[test]
fn a_full_table_says_so() {
    let member = Membership::join(&group(6), true).expect("a group");
    let slots: Vec<Slot> = (1..SLOTS).map(|_| member.take().expect("a slot")).collect();
    let mut other = Other::start("member", address(6));
    for why in [member.take().expect_err("none is left").to_string(), other.hear()] {
        assert!(why.starts_with("all 127 slots of 127.0.61.6 on lo are in use"), "{why}");
        assert!(why.contains("`ferroce switchboard` shows by which processes"), "{why}");
    }
    drop(slots);
    assert!(member.take().is_ok());
}

#[test]
fn too_few_descriptors_are_counted() {
    let mut other = Other::start("poor", address(7));
    let why = other.hear();
    let (limit, needs) = why
        .strip_prefix("NOFILE is ")
        .and_then(|rest| rest.split_once(", needs "))
        .and_then(|(limit, rest)| Some((limit, rest.split_once(": ulimit -n ")?)))
        .expect(&why);
    assert_eq!((limit, needs.0), ("100", needs.1));
    assert!(needs.0.parse::<u64>().expect("a number") > SLOTS as u64);
    // A soft limit alone is raised.
    let mut other = Other::start("modest", address(7));
    assert!(other.hear().starts_with("slot "));
}

#[test]
fn a_stopped_leader_is_named() {
    let mut leader = Other::start("member", address(8));
    leader.hear();
    leader.signal(libc::SIGSTOP);
    eventually("all its threads are stopped", || leader.is_stopped());
    let why = why_not(8);
    let holder = format!("process {}, did not answer in 8 s; is it stopped? `kill -CONT", leader.pid());
    assert!(why.contains(&holder), "{why}");
    leader.signal(libc::SIGCONT);
    drop(enter(8));
}

/// A connection to the leader of a group.
fn connection(last: u8) -> OwnedFd {
    let socket = unix::socket(libc::SOCK_SEQPACKET).expect("a socket");
    let name = names::of_leader(&group(last), unix::own_uid(), Place::Usual);
    unix::connect(socket.as_fd(), name.as_bytes()).expect("a leader");
    socket
}

/// Whether the leader ends a connection; its last words do not count.
fn is_cut(socket: &OwnedFd) -> bool {
    let end = clock::now() + Duration::from_secs(10);
    while clock::now() < end {
        match unix::receive(socket.as_fd(), &mut [0; LEN], Room::None) {
            Ok(message) if message.len > 0 => {}
            Err(error) if error.kind() == std::io::ErrorKind::WouldBlock => {
                wait_readable(socket.as_fd(), Some(clock::until(end))).expect("a wait");
            }
            _ => return true,
        }
    }
    false
}

#[test]
fn a_process_that_breaks_the_protocol_is_cut_off_and_the_others_go_on() {
    let ours = enter(9);
    let mut other = Other::start("member", address(9));
    other.hear();
    let refused = || {
        let refused = ours.member().inner().refused.read();
        refused.violations + refused.connections_full
    };
    let before = refused();

    // Nonsense, too short, too long, another version, descriptors that were not asked for.
    let mut version = Greeting::Join.emit();
    version[4] ^= 1;
    let long = vec![0x5a; 60_000];
    let greetings: [&[u8]; 5] = [b"garbage", &long, &Greeting::Join.emit()[..15], &[0; LEN], &version];
    for greeting in greetings {
        let socket = connection(9);
        unix::send(socket.as_fd(), greeting, &[]).expect("it is sent");
        assert!(is_cut(&socket));
    }
    let socket = connection(9);
    let pipe = std::io::pipe().expect("a pipe").0;
    let fd = std::os::fd::AsRawFd::as_raw_fd(&pipe);
    unix::send(socket.as_fd(), &Greeting::Watch.emit(), &[fd, fd]).expect("it is sent");
    assert!(is_cut(&socket));
    // A member that talks on.
    let socket = connection(9);
    unix::send(socket.as_fd(), &Greeting::Watch.emit(), &[]).expect("it is sent");
    unix::send(socket.as_fd(), &Greeting::Join.emit(), &[]).expect("it is sent");
    assert!(is_cut(&socket));
    // One that says nothing, and too many of one process.
    let silent: Vec<OwnedFd> = (0..20).map(|_| connection(9)).collect();
    assert!(silent.iter().all(is_cut));
    assert!(refused() - before >= 7 + 20, "{}", refused() - before);
    assert!(ours.member().inner().refused.read().connections_full > 0);

    other.say("leads?");
    assert_eq!(other.hear(), "false");
    let mut third = Other::start("member", address(9));
    assert!(third.hear().starts_with("slot "), "newcomers are served");
}

#[test]
fn a_forked_child_is_clean_and_joins_anew() {
    let ours = enter(10);
    let mut parent = Other::start("fork", address(10));
    let theirs = parent.hear();
    assert_eq!(parent.hear(), "child right");
    // The parent did not lose its slot, nor its voice.
    parent.say("leads?");
    // One of the two processes hears each line: both say something we can tell apart.
    let slot: usize = theirs["slot ".len()..].parse().expect("a number");
    assert!(ours.member().inner().is_alive(slot));
    drop(parent);
    eventually("both are gone", || {
        (1..SLOTS).filter(|slot| ours.member().inner().is_alive(*slot)).count() == 1
    });
}

#[test]
fn a_process_that_fails_to_join_leaves_no_numbers_that_a_fork_would_replace() {
    let mut other = Other::start("unequipped", address(24));
    assert_eq!(other.hear(), "clean");
}

#[test]
fn connection_requests_reach_the_process_that_listens() {
    let ours = enter(11);
    let mut listener = Other::start("member", address(11));
    listener.hear();
    listener.say("claim 4711");
    assert_eq!(listener.hear(), "claimed");
    let why = ours.claim(4711).expect_err("it is taken").to_string();
    assert_eq!(why, format!("service 0x0000000000001267 is claimed by process {}", listener.pid()));

    // We lead: the request is handed to the other process, its answer comes to us.
    exchange(&ours, &mut listener, 11);
    // It goes on when another leads.
    let mut first = Other::start("member", address(12));
    first.hear();
    first.say("claim 4711");
    assert_eq!(first.hear(), "claimed");
    let ours = enter(12);
    assert!(!ours.member().leads());
    exchange(&ours, &mut first, 12);

    // A claim of a dead process is void, and no process keeps requests for it.
    first.signal(libc::SIGKILL);
    eventually("we lead", || ours.member().leads());
    let unclaimed = || ours.member().inner().counts.mads_unclaimed.load(Ordering::Relaxed);
    let before = unclaimed();
    ours.member().send_mad(address(12), address(12), &request(&ours)).expect("it is sent");
    eventually("it is for no process", || unclaimed() == before + 1);
    let claim = ours.claim(4711).expect("it is free");
    ours.member().send_mad(address(12), address(12), &request(&ours)).expect("it is sent");
    assert!(ours.member().next_mad(Duration::from_secs(60)).is_some());
    drop(claim);
    assert!(ours.claim(4711).is_ok());
}

/// A socket for letters holds ten of them in places, and what did not fit was lost: half a second for each connection.
#[test]
fn requests_that_come_all_at_once_reach_a_process_that_does_not_run_just_then() {
    const REQUESTS: u32 = 1000;
    let ours = enter(14);
    let mut listener = Other::start("member", address(14));
    listener.hear();
    listener.say("claim 4711");
    assert_eq!(listener.hear(), "claimed");
    listener.signal(libc::SIGSTOP);
    eventually("it is stopped", || listener.is_stopped());
    let is_taken_in = || {
        let fd = ours.member().inner().common_socket().raw();
        let mut entry = [libc::pollfd { fd, events: libc::POLLIN, revents: 0 }];
        descriptor::poll(&mut entry, Some(Duration::ZERO));
        entry[0].revents == 0
    };
    for number in 0..REQUESTS {
        ours.member().send_mad(address(14), address(14), &request_number(&ours, number)).expect("it is sent");
    }
    eventually("all are taken in", is_taken_in);
    listener.signal(libc::SIGCONT);
    listener.say(&format!("gather {REQUESTS}"));
    let numbers: Vec<String> = (0..REQUESTS).map(|number| number.to_string()).collect();
    assert_eq!(listener.hear(), numbers.join(" "));
    assert_eq!(ours.member().inner().counts.mads_unclaimed.load(Ordering::Relaxed), 0);
}

fn request(ours: &Slot) -> [u8; 256] {
    request_number(ours, 5)
}

fn request_number(ours: &Slot, number: u32) -> [u8; 256] {
    let local_comm_id = CommId(communication_id(ours.number(), number));
    let mut bytes = [0; CmMad::LEN];
    CmMad::new(1, Req { local_comm_id, service_id: ServiceId(4711), ..Req::default() }).emit(&mut bytes);
    bytes
}

/// A request from us to the service of another process, and its answer.
fn exchange(ours: &Slot, listener: &mut Other, last: u8) {
    listener.say("answer");
    ours.member().send_mad(address(last), address(last), &request(ours)).expect("it is sent");
    let heard = listener.hear();
    assert_eq!(heard, format!("answered ServiceId(0x0000000000001267) from 127.0.61.{last}"));
    let mad = ours.member().next_mad(Duration::from_secs(60)).expect("an answer");
    let Ok(CmMad { message: CmMessage::Rep(rep), .. }) = CmMad::parse(&mad.bytes) else {
        unreachable!("{mad:?}");
    };
    assert_eq!(rep.remote_comm_id, CommId(communication_id(ours.number(), 5)));
}

#[test]
fn services_are_bounded() {
    let ours = enter(13);
    let claims: Vec<_> = (0..4096).map(|service| ours.claim(service).expect("room")).collect();
    assert!(matches!(ours.claim(9999), Err(SwitchError::TooManyServices { allowed: 4096 })));
    drop(claims);
    assert!(ours.claim(9999).is_ok());
}
