//! The neighbour's own side: it is told what to say, says it, and counts.

use std::collections::HashMap;
use std::io::{BufRead, Write, stdin, stdout};
use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::sync::mpsc::{Receiver, channel};
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;
use std::time::Duration;

use ferroce::time::park;
use ferroce_device::fabric::PORT;
use ferroce_testkit::neighbour::{Knowledge, Lie, Target, user};
use ferroce_wire::{Flow, Qpn};
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use crate::doors;
use crate::forged::Forged;
use crate::sockets;

/// The variable that makes a process the neighbour.
pub(crate) const ROLE: &str = "FERROCE_TEST_ROLE";

/// What its answers begin with: the test harness writes to the same place.
pub(crate) const MARK: char = '@';

/// Packets that are sent before a pause, and how long that is: about 60,000 a second at most.
const BURST: u64 = 64;
const PAUSE: Duration = Duration::from_millis(1);

/// Packets after which it takes another port.
const SAME_PORT: u64 = 1000;

/// Is the neighbour, if this process was started as that.
pub(crate) fn play() {
    let Ok(role) = std::env::var(ROLE) else { return };
    let is_other = role == "other";
    user::settle_down(is_other);
    let targets: Arc<Mutex<Vec<Target>>> = Arc::default();
    let orders = listen(Arc::clone(&targets));
    let mut liar = Liar::new(targets);
    while let Ok(order) = orders.recv() {
        let words: Vec<&str> = order.split(' ').collect();
        let number = |at: usize| words.get(at).and_then(|word| word.parse::<u64>().ok()).unwrap_or(0);
        let address = |at: usize| words.get(at).and_then(|word| word.parse().ok());
        let answer = match words[0] {
            "lie" => liar.lie(lie(words[1]), knowledge(words[2]), number(3), None).to_string(),
            "forge" => {
                let own = address(4).expect("an address of its own");
                let port = u16::try_from(number(5)).expect("a port");
                let door = Forged::open(own, port).expect("a free address");
                liar.lie(lie(words[1]), knowledge(words[2]), number(3), Some(door)).to_string()
            }
            "storm" => {
                let (mads, data) = liar.storm(number(1), number(2));
                format!("{mads} {data}")
            }
            "numbers" => liar.every_number(lie(words[1])).to_string(),
            "ports" => liar.sweep(number(1)),
            "doors" => doors::try_all(words[1..].iter().filter_map(|word| word.parse().ok())),
            "sockets" => sockets::shown(address(1).expect("an address")).expect("the kernel tells"),
            "heard" => liar.heard().to_string(),
            other => panic!("no order is called {other:?}"),
        };
        let mut out = stdout().lock();
        // The line of the harness before it has no end of its own.
        writeln!(out, "\n{MARK}{answer}").and_then(|()| out.flush()).expect("the test listens");
    }
}

/// Reads what the test says, also while lies are told; ends this process if the test is gone.
fn listen(targets: Arc<Mutex<Vec<Target>>>) -> Receiver<String> {
    let (to, orders) = channel();
    thread::spawn(move || {
        for line in stdin().lock().lines().map_while(Result::ok) {
            let mut known = targets.lock().unwrap_or_else(PoisonError::into_inner);
            if let Some((at, target)) = line.strip_prefix("target ").and_then(|line| line.split_once(' ')) {
                let (at, target): (usize, Target) =
                    (at.parse().expect("a number"), target.parse().expect("a target"));
                if at < known.len() {
                    known[at] = target;
                } else {
                    known.push(target);
                }
            } else if let Some(count) = line.strip_prefix("only ") {
                known.truncate(count.parse().expect("a number"));
            } else {
                drop(to.send(line));
            }
        }
        std::process::exit(0);
    });
    orders
}

fn lie(name: &str) -> Lie {
    Lie::all().find(|lie| format!("{lie:?}") == name).expect("the name of a lie")
}

fn knowledge(name: &str) -> Knowledge {
    Knowledge::ALL.into_iter().find(|known| format!("{known:?}") == name).expect("how much is known")
}

struct Liar {
    targets: Arc<Mutex<Vec<Target>>>,
    /// Plain sockets at the addresses of others, by the address.
    lines: HashMap<IpAddr, Line>,
    random: ChaCha8Rng,
    sent: u64,
    heard: u64,
}

/// A socket at the address of another.
struct Line {
    socket: UdpSocket,
    own: SocketAddr,
    used: u64,
}

impl Line {
    fn new(own: SocketAddr) -> std::io::Result<Self> {
        let socket = UdpSocket::bind(own)?;
        socket.set_nonblocking(true)?;
        let own = socket.local_addr()?;
        Ok(Self { socket, own, used: 0 })
    }

    /// Bytes that have come here.
    fn heard(&self) -> u64 {
        let mut bytes = [0; 9000];
        std::iter::from_fn(|| self.socket.recv(&mut bytes).ok()).map(|len| len as u64).sum()
    }
}

impl Liar {
    fn new(targets: Arc<Mutex<Vec<Target>>>) -> Self {
        let random = ChaCha8Rng::seed_from_u64(7);
        Self { targets, lines: HashMap::new(), random, sent: 0, heard: 0 }
    }

    fn target(&self, at: u64) -> Target {
        let targets = self.targets.lock().unwrap_or_else(PoisonError::into_inner);
        let at = usize::try_from(at % targets.len() as u64).expect("small");
        targets[at]
    }

    /// Tells a lie so many times, to all targets in turn; how often it was sent.
    fn lie(&mut self, lie: Lie, knowledge: Knowledge, count: u64, mut forged: Option<Forged>) -> u64 {
        let before = self.sent;
        for at in 0..count {
            let target = self.target(at).known(knowledge, &mut self.random);
            match &mut forged {
                None => self.send(lie, &target),
                Some(door) => {
                    let bytes = lie.build(&target, &door.flow(&target), &mut self.random);
                    self.sent += door.send(&target, &bytes);
                }
            }
            self.rest();
        }
        self.sent - before
    }

    /// All lies mixed, with all degrees of knowledge: so many of connection management and so many others;
    /// how many of each were sent.
    fn storm(&mut self, mads: u64, data: u64) -> (u64, u64) {
        let (mut left, mut sent) = ([mads, data], [0, 0]);
        while left != [0, 0] {
            let kind = usize::from(u64::from(self.random.next_u32()) % 2 == 1);
            let kind = if left[kind] == 0 { 1 - kind } else { kind };
            let table = [&Lie::MADS[..], &Lie::DATA[..]][kind];
            let lie = table[self.random.next_u32() as usize % table.len()];
            let knowledge = Knowledge::ALL[self.random.next_u32() as usize % Knowledge::ALL.len()];
            let at = self.random.next_u64();
            let target = self.target(at).known(knowledge, &mut self.random);
            let before = self.sent;
            self.send(lie, &target);
            sent[kind] += self.sent - before;
            left[kind] -= 1;
            self.rest();
        }
        (sent[0], sent[1])
    }

    /// Tells a lie with every number that the peer of each device could have: the slot can be seen. How often
    /// it was sent.
    fn every_number(&mut self, lie: Lie) -> u64 {
        let before = self.sent;
        let mut devices: Vec<Target> = Vec::new();
        for target in self.targets.lock().unwrap_or_else(PoisonError::into_inner).iter() {
            if devices.iter().all(|known| known.address != target.address) {
                devices.push(*target);
            }
        }
        for target in devices {
            let slot = target.peer_qpn.get() & 0xff_0000;
            for number in 0..=0xffff {
                let guess = target.known(Knowledge::Addresses, &mut self.random);
                self.send(lie, &Target { peer_qpn: Qpn::new(slot | number), ..guess });
                self.rest();
            }
        }
        self.sent - before
    }

    /// One WRITE with everything right, from every port that it gets at the peer's address; the ports that it
    /// got, and packets sent.
    fn sweep(&mut self, step: u64) -> String {
        let (mut ports, before) = (0, self.sent);
        let step = usize::try_from(step.max(1)).expect("small");
        for port in (1024..=u16::MAX).step_by(step) {
            let target = self.target(port.into());
            // Another program has it already.
            let Ok(line) = Line::new(SocketAddr::new(target.peer, port)) else { continue };
            ports += 1;
            self.lines.insert(target.peer, line);
            self.send(Lie::Write, &target);
            self.rest();
        }
        format!("{ports} {}", self.sent - before)
    }

    fn send(&mut self, lie: Lie, target: &Target) {
        let worn = self.lines.get(&target.peer).is_none_or(|line| line.used >= SAME_PORT);
        if worn {
            let line = Line::new(SocketAddr::new(target.peer, 0)).expect("a loopback address");
            let old = self.lines.insert(target.peer, line);
            self.heard += old.map_or(0, |old| old.heard());
        }
        let line = self.lines.get_mut(&target.peer).expect("it was just made");
        let to = SocketAddr::new(target.address, PORT);
        let flow = Flow::new(line.own, to).expect("one family");
        let bytes = lie.build(target, &flow, &mut self.random);
        line.used += 1;
        // A full buffer is no news to a flood.
        self.sent += u64::from(line.socket.send_to(&bytes, to).is_ok());
    }

    fn rest(&self) {
        if self.sent.is_multiple_of(BURST) {
            park(Some(PAUSE));
        }
    }

    /// Bytes that came to any socket of it, ever.
    fn heard(&mut self) -> u64 {
        self.heard += self.lines.values().map(Line::heard).sum::<u64>();
        self.heard
    }
}
