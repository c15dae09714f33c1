//! Two processes that talk to each other, and check every byte.

use std::time::Duration;

use ferroce_device::now;
use ferroce_verbs::*;

use crate::child::{Other, listen, tell};
use crate::common::{End, SOON};

/// Bytes of a message.
const LEN: usize = 3000;

/// Where messages come in.
const INBOX: usize = 4096;

/// Two processes, seen from the test.
pub(crate) struct Pair {
    ends: [Other; 2],
}

impl Pair {
    /// Two new processes on one address, connected to each other.
    pub(crate) fn start(address: [u8; 4]) -> Self {
        let address = std::net::Ipv4Addr::from(address).to_string();
        let start = |role| Other::start("the_other_process", role, &[("FERROCE_ADDRESS", address.as_str())]);
        let mut ends = [start("first"), start("second")];
        let [first, second] = &mut ends;
        let addresses = [first.hear(), second.hear()];
        first.say(&addresses[1]);
        second.say(&addresses[0]);
        assert_eq!((first.hear().as_str(), second.hear().as_str()), ("connected", "connected"));
        Self { ends }
    }

    /// Has them exchange messages, so many rounds or for so many milliseconds.
    pub(crate) fn go(&mut self, how: &str) {
        for end in &mut self.ends {
            end.say(how);
        }
    }

    /// What they say in the end.
    pub(crate) fn outcomes(&mut self) -> [String; 2] {
        let [first, second] = &mut self.ends;
        [first.hear(), second.hear()]
    }

    /// Both must have had the same number of rounds, without an error; how many.
    pub(crate) fn rounds(&mut self) -> u64 {
        let [first, second] = self.outcomes();
        assert_eq!(first, second);
        first.strip_suffix(" rounds").unwrap_or_else(|| panic!("{first}")).parse().unwrap()
    }

    /// Ends one of them without any warning.
    pub(crate) fn kill_one(&mut self, which: usize) {
        self.ends[which].kill();
    }

    pub(crate) fn has(&self, pid: u32) -> bool {
        self.ends.iter().any(|end| end.pid() == pid)
    }
}

/// The life of one of them.
pub(crate) fn play(role: &str) {
    let context = Context::open("lo").unwrap();
    let end = End::new(&context, Service::Rc);
    tell(&end.qp.local_address().to_string());
    let peer = listen().parse().unwrap();
    end.qp.connect(&peer).unwrap();
    receive(&end);
    tell("connected");
    let how = listen();
    let outcome = match exchange(&end, role == "first", &how) {
        Ok(rounds) => format!("{rounds} rounds"),
        Err(why) => format!("{why}; {:?}", context.counters()),
    };
    tell(&outcome);
    // The peer may still wait for an acknowledgement: leave only when both are heard.
    listen();
}

/// Exchanges messages until it is enough; how many. The first decides, and marks the last round.
fn exchange(end: &End, is_first: bool, how: &str) -> Result<u64, String> {
    let begin = now();
    let (what, number) = how.split_once(' ').unwrap();
    let number: u64 = number.parse().unwrap();
    let is_enough = |round| match what {
        "rounds" => round + 1 >= number,
        _ => now().since(begin) >= Duration::from_millis(number),
    };
    for round in 0.. {
        let at = |error| format!("round {round}: {error}");
        let is_last = if is_first {
            let is_last = is_enough(round);
            send(end, round, 1, is_last).and_then(|()| hear(end, round, 2)).map_err(at)?
        } else {
            let is_last = hear(end, round, 1).map_err(at)?;
            send(end, round, 2, is_last).map_err(at)?;
            is_last
        };
        if is_last {
            return Ok(round + 1);
        }
    }
    unreachable!("there are rounds without end")
}

/// What a message consists of.
fn pattern(round: u64, salt: u64) -> Vec<u8> {
    let mut state = round.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ salt;
    let mut byte = || {
        state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        state.to_be_bytes()[0]
    };
    (0..LEN).map(|_| byte()).collect()
}

fn receive(end: &End) {
    end.qp.receive(end.region.slice(INBOX..INBOX + LEN)).id(1).post().unwrap();
}

fn send(end: &End, round: u64, salt: u64, is_last: bool) -> Result<(), String> {
    let mut bytes = pattern(round, salt);
    bytes[0] = u8::from(is_last);
    end.region.write_at(0, &bytes).unwrap();
    end.qp.send(end.region.slice(..LEN)).id(2).post().map_err(|error| Chain::of(&error).to_string())
}

/// Waits for a message, and for the end of what was sent before it; whether it is the last.
fn hear(end: &End, round: u64, salt: u64) -> Result<bool, String> {
    loop {
        let done = end.cq.wait(SOON * 3).map_err(|error| error.to_string())?;
        if !done.is_success() {
            return Err(format!("{:?} of work {}", done.status, done.id));
        }
        if done.id == 1 {
            break;
        }
    }
    let seen = end.region.to_vec(INBOX..INBOX + LEN).unwrap();
    if seen[1..] != pattern(round, salt)[1..] {
        return Err("wrong bytes".to_owned());
    }
    receive(end);
    Ok(seen[0] == 1)
}
