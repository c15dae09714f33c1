//! A plain socket that sends whatever it likes.

use std::net::{IpAddr, SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;

use ferroce_device::fabric::PORT;
use ferroce_device::{Nic, now};
use ferroce_testkit::samples;
use ferroce_wire::{Flow, Opcode, Packet, PayloadRule, Qpn};
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use crate::common::PATIENCE;
use crate::numbers_for;
use crate::victim::Victim;

/// The lowest PSN of packets that are in order as far as an attacker can guess.
pub(crate) const TAIL: u32 = 0xff_fff0;

/// Bytes that may wait in the device's socket. A run counts with all its segments.
const UNDER_WAY: usize = 32 * 1024;

/// What the kernel adds to each datagram in a socket's buffer, roughly.
const OVERHEAD: usize = 768;

/// A sender that means no good, with a plain socket.
pub(crate) struct Attacker {
    pub(crate) socket: UdpSocket,
    pub(crate) random: ChaCha8Rng,
    nic: Nic,
    flow: Flow,
    target: SocketAddr,
    /// The slot that its bytes are aimed at.
    slot: u8,
    before: u64,
    sent: u64,
    under_way: usize,
}

impl Attacker {
    /// At an address of its own.
    pub(crate) fn new(address: [u8; 4], victim: &Victim, seed: u64) -> Self {
        let source = SocketAddr::new(address.into(), PORT);
        let slot = victim.rc().get() >> 16;
        Self {
            slot: u8::try_from(slot).expect("a byte"),
            ..Self::at(source, victim.nic(), victim.address, seed)
        }
    }

    /// At this address and port.
    pub(crate) fn at(source: SocketAddr, nic: &Nic, victim: IpAddr, seed: u64) -> Self {
        let socket = UdpSocket::bind(source).expect("a loopback address");
        let target = SocketAddr::new(victim, PORT);
        let flow = Flow::new(source, target).expect("one family");
        let before = seen(nic);
        let random = ChaCha8Rng::seed_from_u64(seed);
        Self { socket, random, nic: nic.clone(), flow, target, slot: 0, before, sent: 0, under_way: 0 }
    }

    /// Packets sent so far.
    pub(crate) const fn sent(&self) -> u64 {
        self.sent
    }

    /// Bytes that the kernel hands to the victim's slot, if they are enough to have one at all.
    pub(crate) fn random_bytes(&mut self, len: usize) -> Vec<u8> {
        let mut bytes = vec![0; len];
        self.random.fill_bytes(&mut bytes);
        if let Some(byte) = bytes.get_mut(5) {
            *byte = self.slot;
        }
        bytes
    }

    pub(crate) fn below(&mut self, limit: usize) -> usize {
        usize::try_from(self.random.next_u64() % limit as u64).expect("below a limit")
    }

    /// The bytes of a packet with the right ICRC for this sender.
    pub(crate) fn sealed(&self, packet: &Packet<impl AsRef<[u8]> + Copy>) -> Vec<u8> {
        self.sealed_at(packet, 0)
    }

    /// The same for a place in a run.
    pub(crate) fn sealed_at(&self, packet: &Packet<impl AsRef<[u8]> + Copy>, place: u16) -> Vec<u8> {
        let mut payload = Vec::new();
        let packet = packet.map_payload(|bytes| {
            payload.extend_from_slice(bytes.as_ref());
            payload.len()
        });
        let packet = packet.map_payload(|_| payload.as_slice());
        let mut bytes = vec![0; packet.len()];
        packet.emit(&self.flow, place, &mut bytes).expect("a legal packet");
        bytes
    }

    /// Sends a datagram; waits if more are under way than a small buffer holds.
    pub(crate) fn send(&mut self, bytes: &[u8]) {
        self.socket.send_to(bytes, self.target).expect("the loopback interface takes it");
        self.count(1, bytes.len());
    }

    /// Sends a run: the kernel is told to cut it into datagrams of this length.
    pub(crate) fn send_run(&mut self, bytes: &[u8], segment: usize) {
        self.set_segment(segment);
        self.socket.send_to(bytes, self.target).expect("the loopback interface takes it");
        self.set_segment(0);
        self.count(bytes.len().div_ceil(segment), bytes.len());
    }

    fn set_segment(&self, segment: usize) {
        let value = libc::c_int::try_from(segment).expect("small");
        let len = libc::socklen_t::try_from(size_of_val(&value)).expect("small");
        let at = (&raw const value).cast();
        let fd = self.socket.as_raw_fd();
        // SAFETY: the pointer and length are of a number that lives during the call.
        let done = unsafe { libc::setsockopt(fd, libc::SOL_UDP, libc::UDP_SEGMENT, at, len) };
        assert_eq!(done, 0, "{}", std::io::Error::last_os_error());
    }

    fn count(&mut self, packets: usize, bytes: usize) {
        self.sent += packets as u64;
        self.under_way += bytes + OVERHEAD;
        if self.under_way > UNDER_WAY {
            self.settle();
        }
    }

    /// Waits until the device has seen everything.
    pub(crate) fn settle(&mut self) {
        self.under_way = 0;
        let end = now() + PATIENCE;
        while seen(&self.nic) - self.before < self.sent {
            std::thread::yield_now();
            let counters = self.nic.counters();
            assert!(now() < end, "{} sent, but {counters:?}", self.sent);
        }
    }
}

/// Packets that were looked at: by the device, or, of those that are for no slot, by the leader of its port.
fn seen(nic: &Nic) -> u64 {
    let counters = nic.counters();
    counters.packets_received + counters.strays + counters.mads_unclaimed
}

/// A legal packet of every opcode to this queue pair.
pub(crate) fn every_opcode(attacker: &mut Attacker, qpn: Qpn) -> Vec<Packet<&'static [u8]>> {
    static PAYLOAD: [u8; 4096] = [0xbd; 4096];
    let mut packets = Vec::new();
    for opcode in Opcode::all() {
        let len = match opcode.info().payload {
            PayloadRule::Nothing | PayloadRule::EightBytes => 0,
            PayloadRule::FullMtu => 4096,
            PayloadRule::OneToMtu | PayloadRule::UpToMtu => 1 + attacker.below(300),
        };
        let numbers = numbers_for(attacker, qpn);
        packets.push(samples::packet(opcode, len, &numbers).map_payload(|len| &PAYLOAD[..len.0]));
    }
    packets
}
