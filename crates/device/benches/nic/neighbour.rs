//! A neighbour that floods the devices: a process of another user, which knows the queue pairs, and sends
//! forged packets and messages of connection management in the name of each to the other.

use std::net::{SocketAddr, UdpSocket};
use std::sync::atomic::Ordering;
use std::thread;
use std::time::{Duration, Instant};

use ferroce_device::fabric::PORT;
use ferroce_testkit::neighbour::{Knowledge, Lie, Target, user};
use ferroce_testkit::process::{Parent, Peer};
use ferroce_wire::Flow;
use ferroce_wire::mad::CommId;
use ferroce_wire::{Psn, QKey};
use rand_chacha::ChaCha8Rng;
use rand_core::SeedableRng;

use crate::ends::Card;
use crate::{Outcome, Settings, peer};

/// The role of the process.
pub(crate) const NEIGHBOUR: &str = "neighbour";

/// A port that nothing listens on, for a neighbour that takes the machine's time only.
pub(crate) const UNUSED: u16 = PORT + 8;

/// Packets a second.
const RATE: u64 = 60_000;

/// It sends this often at most; what is late is made up for by longer bursts.
const PAUSE: Duration = Duration::from_micros(250);

/// It ends by itself after this, whatever becomes of the others.
const LONGEST: Duration = Duration::from_secs(120);

/// Packets that are made beforehand, for each direction: what making them costs is no matter of the receiver.
const READY: usize = 256;

/// Starts it against two ends of a connection, aimed at this port.
pub(crate) fn start(settings: &Settings, ends: [Card; 2], port: u16) -> Outcome<Peer> {
    let (command, is_other) = user::this_program()?;
    let mut peer = peer::start_by(command, NEIGHBOUR, settings)?;
    peer.say(format_args!("{port} {is_other}"))?;
    for [here, there] in [ends, [ends[1], ends[0]]] {
        let target = Target {
            address: here.address.into(),
            qpn: here.qpn,
            peer: there.address.into(),
            peer_qpn: there.qpn,
            expects: Psn::new(0),
            asks: Psn::new(0),
            place: here.remote.address,
            rkey: here.remote.rkey,
            qkey: QKey(0),
            name: CommId(1),
            peer_name: CommId(1),
            listens: 7471,
        };
        peer.say(target)?;
    }
    // It has made its packets.
    peer.hear()?;
    Ok(peer)
}

/// Is the neighbour.
pub(crate) fn play(parent: Parent) -> Outcome<()> {
    let first = parent.hear()?;
    let (port, is_other) = first.split_once(' ').ok_or("a port, and whether it is another user")?;
    let (port, is_other): (u16, bool) = (port.parse()?, is_other.parse()?);
    user::settle_down(is_other);
    let lines = [Line::new(&parent.hear()?, port)?, Line::new(&parent.hear()?, port)?];
    parent.say("ready")?;
    let stop = parent.watch();
    let begin = Instant::now();
    let mut sent = 0_u64;
    while !stop.load(Ordering::Relaxed) && begin.elapsed() < LONGEST {
        let due = u64::try_from(begin.elapsed().as_micros())? * RATE / 1_000_000;
        for at in sent..due {
            lines[usize::try_from(at % 2)?].send(usize::try_from(at / 2)?);
        }
        sent = sent.max(due);
        thread::sleep(PAUSE);
    }
    let rate = sent as f64 / begin.elapsed().as_secs_f64();
    let user = if is_other { "another user" } else { "the same user" };
    parent.say(format_args!("a neighbour of {user} sent {rate:.0} packets a second to port {port}"))?;
    Ok(())
}

/// One direction: a socket at the address of the peer, and packets that are ready.
struct Line {
    socket: UdpSocket,
    to: SocketAddr,
    packets: Vec<Vec<u8>>,
}

impl Line {
    fn new(line: &str, port: u16) -> Outcome<Self> {
        let target: Target = line.parse()?;
        let socket = UdpSocket::bind(SocketAddr::new(target.peer, 0))?;
        socket.set_nonblocking(true)?;
        let to = SocketAddr::new(target.address, port);
        let flow = Flow::new(socket.local_addr()?, SocketAddr::new(target.address, PORT));
        let flow = flow.ok_or("addresses of one family")?;
        let mut random = ChaCha8Rng::seed_from_u64(11);
        // The numbers of the queue pairs are right, all else is guessed: so nothing that is sent could be
        // served.
        let packet = |lie: Lie| {
            let target = target.known(Knowledge::Numbers, &mut random);
            lie.build(&target, &flow, &mut random)
        };
        let packets = Lie::all().cycle().take(READY).map(packet).collect();
        Ok(Self { socket, to, packets })
    }

    fn send(&self, at: usize) {
        // A port that is not used says so to the next call; and a full buffer is no news to a flood.
        drop(self.socket.send_to(&self.packets[at % self.packets.len()], self.to));
    }
}
