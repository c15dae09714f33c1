//! A process that listens to multicast groups and sends to them, as it is told.

use std::net::IpAddr;

use ferroce_verbs::*;

use crate::child::{Other, listen, tell};
use crate::common::{End, SOON};

/// The Q_Key of every process.
const QKEY: QKey = QKey(0x4242);

/// How many receives wait.
const RECEIVES: u64 = 64;

/// Bytes of each.
const ROOM: usize = 128;

/// The life of the process. Its device is the first one that its environment opens, on `interface`.
pub(crate) fn play(interface: &str) {
    let context = Context::open(interface).unwrap();
    let end = End::new(&context, Service::Ud);
    end.qp.activate(QKEY).unwrap();
    for id in 0..RECEIVES {
        post(&end, id);
    }
    tell("ready");
    loop {
        let line = listen();
        let (word, rest) = line.split_once(' ').unwrap_or((&line, ""));
        tell(&match word {
            "attach" => outcome(end.qp.attach_to_group(gid(rest))),
            "detach" => outcome(end.qp.detach_from_group(gid(rest))),
            "send" => send(&end, rest),
            "get" => get(&end),
            "sent" => context.counters().packets_sent.to_string(),
            "wrong" => wrong_qkeys(&end, rest),
            "end" => return,
            other => panic!("no such word: {other}"),
        });
    }
}

fn gid(text: &str) -> Gid {
    text.parse::<IpAddr>().unwrap().into()
}

fn outcome(result: Result<(), CreateError>) -> String {
    result.map_or_else(|error| Chain::of(&error).to_string(), |()| "ok".to_owned())
}

fn post(end: &End, id: u64) {
    let from = usize::try_from(id % 32).unwrap() * ROOM;
    end.qp.receive(end.region.slice(from..from + ROOM)).id(id).post().unwrap();
}

/// `GROUP HOPS KEY TEXT`, from the first address of the right family.
fn send(end: &End, line: &str) -> String {
    let words: Vec<&str> = line.split(' ').collect();
    let [group, hops, key, text] = words[..] else { panic!("four words: {line}") };
    let group = gid(group);
    // Link-local addresses are no part of this.
    let is_ours = |gid: &Gid| match (gid.ip(), group.ip()) {
        (IpAddr::V4(_), IpAddr::V4(_)) => true,
        (IpAddr::V6(ip), IpAddr::V6(_)) => ip.segments()[0] != 0xfe80,
        _ => false,
    };
    let index = (0..).find(|index| is_ours(&end.context.gid(*index).unwrap())).unwrap();
    let address = AddressVector { hop_limit: hops.parse().unwrap(), ..AddressVector::new(group, index) };
    let handle = end.pd.address_handle(&address).unwrap();
    let key = QKey(QKEY.0 + key.parse::<u32>().unwrap());
    end.region.write_at(7000, text.as_bytes()).unwrap();
    end.qp.send_to_group(&handle, key, end.region.slice(7000..7000 + text.len())).id(1000).post().unwrap();
    // Its own copy may come first.
    loop {
        let done = end.cq.wait(SOON).unwrap();
        if done.id == 1000 {
            return outcome_of(&done);
        }
        STASH.with_borrow_mut(|stash| stash.push_back(done));
    }
}

thread_local! {
    /// Receives that were seen while something else was waited for.
    static STASH: std::cell::RefCell<std::collections::VecDeque<Completion>> = const {
        std::cell::RefCell::new(std::collections::VecDeque::new())
    };
}

fn outcome_of(done: &Completion) -> String {
    if done.is_success() { "ok".to_owned() } else { format!("{:?}", done.status) }
}

/// The next datagram: from which address, to which address, with how many hops left, and what it says.
fn get(end: &End) -> String {
    let done = STASH.with_borrow_mut(std::collections::VecDeque::pop_front);
    let nothing = |error| panic!("{error}: {:?}", end.context.counters());
    let done = done.unwrap_or_else(|| end.cq.wait(SOON).unwrap_or_else(nothing));
    assert!(done.is_success(), "{done:?}");
    let from = usize::try_from(done.id % 32).unwrap() * ROOM;
    let len = done.byte_len as usize;
    let header = DatagramHeader::read(&end.region, from).unwrap();
    let text = end.region.to_vec(from + DatagramHeader::LEN..from + len).unwrap();
    post(end, done.id);
    let text = String::from_utf8(text).unwrap();
    format!("{} {} {} {text}", header.source.ip(), header.dest.ip(), header.hop_limit)
}

/// Waits until as many datagrams had the wrong key.
fn wrong_qkeys(end: &End, count: &str) -> String {
    let wanted: u64 = count.parse().unwrap();
    crate::child::eventually("a wrong key is counted", || {
        assert!(end.cq.poll_one().is_none(), "nothing arrives");
        end.qp.counters().wrong_qkey >= wanted
    });
    end.qp.counters().wrong_qkey.to_string()
}

/// What another process is asked, and answers.
pub(crate) fn ask(other: &mut Other, line: &str) -> String {
    other.say(line);
    other.hear()
}

/// Asks for something that has to work.
pub(crate) fn order(other: &mut Other, line: &str) {
    assert_eq!(ask(other, line), "ok", "{line}");
}
