//! A run of packets for several processes: the kernel gives all of it to the first one's slot, and that
//! process hands the others on.
#![allow(unsafe_code, reason = "only the system forks, and cuts runs")]

mod common;

use std::io::{PipeReader, Read, Write};
use std::net::{SocketAddr, UdpSocket};
use std::os::fd::AsRawFd;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use common::{PATIENCE, Side, device};
use ferroce_device::fabric::PORT;
use ferroce_device::{CompletionQueue, PathPolicy, Qp, QpSpec};
use ferroce_transport::{Attributes, Caps, Completion, ReceiveRequest, State, Status};
use ferroce_wire::{Body, Datagram, Deth, Flow, Grh, Packet, Psn, QKey, Qpn, Service};

const ADDRESS: [u8; 4] = [127, 0, 64, 1];
const QKEY: QKey = QKey(0x1234);

/// Packets for the other process in each run; the first is for this one.
const RIDERS: usize = 5;
const RUNS: usize = 20;

#[test]
fn a_run_for_two_processes_reaches_both() {
    let ours = Datagrams::new();
    let (from_child, mut to_parent) = std::io::pipe().expect("a pipe");
    let (mut from_parent, mut to_child) = std::io::pipe().expect("a pipe");
    // SAFETY: the child opens a device of its own and leaves with _exit.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0, "a process");
    if pid == 0 {
        drop((to_child, from_child));
        let right = catch_unwind(AssertUnwindSafe(|| {
            let theirs = Datagrams::new();
            for run in 0..RUNS {
                theirs.expect(RIDERS);
                to_parent.write_all(&theirs.qp.qpn().get().to_ne_bytes()).expect("the parent listens");
                theirs.check(run, RIDERS);
            }
            let counters = theirs.side.nic.counters();
            assert_eq!(counters.forwarded_in, (RUNS * RIDERS) as u64);
            from_parent.read_exact(&mut [0]).expect("the parent speaks");
        }));
        // SAFETY: ends this process at once: what belongs to the parent is not cleaned up here.
        unsafe { libc::_exit(i32::from(right.is_err())) };
    }
    let sender = Sender::new();
    for run in 0..RUNS {
        ours.expect(1);
        let other = qpn(&from_child);
        assert_ne!(other.get() >> 16, ours.qp.qpn().get() >> 16, "another slot");
        let mut targets = vec![ours.qp.qpn()];
        targets.extend([other; RIDERS]);
        sender.send(run, &targets);
        ours.check(run, 1);
    }
    to_child.write_all(&[0]).expect("the child listens");
    let mut status = 0;
    // SAFETY: the pointer is to a number that lives during the call.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    assert_eq!(status, 0);
    let counters = ours.side.nic.counters();
    assert_eq!((counters.forwarded, counters.unknown_qp), ((RUNS * RIDERS) as u64, 0));
}

fn qpn(mut from: &PipeReader) -> Qpn {
    let mut bytes = [0; 4];
    from.read_exact(&mut bytes).expect("the child speaks");
    Qpn::new(u32::from_ne_bytes(bytes))
}

/// A queue pair that takes datagrams.
struct Datagrams {
    side: Side,
    cq: Arc<CompletionQueue>,
    qp: Arc<Qp>,
}

impl Datagrams {
    fn new() -> Self {
        let side = Side::new(&device(ADDRESS), ADDRESS, PathPolicy::Prefer);
        let cq = CompletionQueue::new(&side.nic, 64, None).expect("a completion queue");
        let caps = Caps { max_send: 4, max_receive: 16, max_send_sge: 1, max_receive_sge: 1, max_inline: 0 };
        let spec = QpSpec {
            service: Service::Ud,
            domain: side.domain,
            send_cq: &cq,
            receive_cq: &cq,
            shared_queue: None,
            caps,
            signal_all: true,
            path: None,
            engine: None,
            stamps: false,
        };
        let qp = Qp::new(&side.nic, &spec).expect("a queue pair");
        let init = Attributes::to(State::Init).with_pkey_index(0).with_port(1).with_qkey(QKEY);
        qp.modify(&init, None).expect("INIT");
        qp.modify(&Attributes::to(State::Rtr), None).expect("RTR");
        Self { side, cq, qp }
    }

    fn expect(&self, count: usize) {
        for id in 0..count as u64 {
            let sges = [self.side.sge(id * 1024, 1024)];
            self.qp.post_receive(&[ReceiveRequest { id, sges: &sges }]).expect("room");
        }
    }

    /// Waits for the datagrams of a run, and looks at every byte.
    fn check(&self, run: usize, count: usize) {
        for id in 0..count as u64 {
            let mut found = [Completion::EMPTY];
            assert_eq!(self.cq.wait(&mut found, Some(PATIENCE)), 1, "{:?}", self.side.nic.counters());
            let done = found[0];
            assert_eq!((done.id, done.status, done.byte_len), (id, Status::Success, LEN_AND_GRH));
            let mut seen = [0; LEN];
            self.side
                .memory
                .read(usize::try_from(id).expect("small") * 1024 + Grh::LEN, &mut seen)
                .expect("inside");
            assert_eq!(seen, [byte(run); LEN]);
        }
    }
}

const LEN: usize = 64;
const LEN_AND_GRH: u32 = 104;

/// What a run consists of.
fn byte(run: usize) -> u8 {
    u8::try_from(run).expect("few")
}

/// A peer that sends runs as no sender of ours would.
struct Sender {
    socket: UdpSocket,
    flow: Flow,
}

impl Sender {
    fn new() -> Self {
        let socket = UdpSocket::bind("127.0.64.2:4791").expect("a socket");
        let set = |level, name, value: libc::c_int| {
            let from = (&raw const value).cast();
            // SAFETY: `from` points to a number on this stack, which outlives the call.
            let result = unsafe { libc::setsockopt(socket.as_raw_fd(), level, name, from, 4) };
            assert_eq!(result, 0, "{}", std::io::Error::last_os_error());
        };
        set(libc::IPPROTO_IP, libc::IP_MTU_DISCOVER, libc::IP_PMTUDISC_DO);
        let len = packet(Qpn::new(0), 0).len();
        set(libc::SOL_UDP, libc::UDP_SEGMENT, libc::c_int::try_from(len).expect("small"));
        let flow = Flow::new(socket.local_addr().expect("a name"), SocketAddr::new(ADDRESS.into(), PORT));
        Self { flow: flow.expect("one family"), socket }
    }

    /// One run, with a packet for each of these.
    fn send(&self, run: usize, targets: &[Qpn]) {
        let mut bytes = Vec::new();
        for (place, target) in targets.iter().enumerate() {
            let payload = [byte(run); LEN];
            let packet = packet(*target, run).map_payload(|_| &payload[..]);
            let start = bytes.len();
            bytes.resize(start + packet.len(), 0);
            packet.emit(&self.flow, u16::try_from(place).expect("few"), &mut bytes[start..]).expect("room");
        }
        let to = SocketAddr::new(ADDRESS.into(), PORT);
        assert_eq!(self.socket.send_to(&bytes, to).expect("it is sent"), bytes.len());
    }
}

fn packet(target: Qpn, run: usize) -> Packet<&'static [u8]> {
    let deth = Deth { qkey: QKEY, source_qp: Qpn::new(7) };
    let body = Body::Ud(Datagram { deth, imm: None, payload: &[0_u8; LEN][..] });
    Packet::new(target, Psn::new(u32::try_from(run).expect("few")), body)
}
