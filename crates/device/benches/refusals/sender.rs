//! The child that sends forged packets.

use std::io::{self, Read, Write};
use std::net::{IpAddr, SocketAddr, UdpSocket};

use ferroce_device::fabric::PORT;
use ferroce_testkit::process::{Peer, PeerError};
use ferroce_testkit::shared_port::beside_a_device;
use ferroce_wire::header::Deth;
use ferroce_wire::mad::{
    CmMad, CmMessage, CommId, Dreq, IpCmHeader, IpPair, PortSpace, Req, ReqPath, Rtu, ServiceId, Timeout,
};
use ferroce_wire::{Body, Datagram, Flow, Packet, PathMtu, Psn, QKey, Qpn, Request, Reth, Rkey, Segment};

use crate::class::{Class, Lie};
use crate::{LOT, Outcome};

pub(crate) const VICTIM: [u8; 4] = [127, 0, 88, 1];
pub(crate) const PEER: [u8; 4] = [127, 0, 88, 2];
const STRANGER: [u8; 4] = [127, 0, 88, 3];

/// The queue pair that the victim's is connected to.
pub(crate) const PEER_QPN: Qpn = Qpn::new(0x4711);

/// The port that the victim listens on, as a service, and one on which nothing does.
const LISTENS: u16 = 7471;
const UNSERVED: u16 = 7472;
pub(crate) const SERVICE: ServiceId = ServiceId::rdma_ip(PortSpace::Tcp, LISTENS);

/// The peer's name for its connection.
const PEER_NAME: CommId = CommId(0x1234);

/// The next request that the victim's queue pair expects.
const EXPECTED: Psn = Psn::new(0xff_fff0);

/// Orders to the child: one byte, and a communication id.
const SEND_LOT: u8 = 1;
const ASK: u8 = 2;
const CONFIRM: u8 = 3;

/// The child, as the victim sees it.
#[derive(Debug)]
pub(crate) struct Sender(Peer);

impl Sender {
    /// Starts this program again, to send packets of a class to a queue pair or to its process.
    pub(crate) fn start(class: &Class, qpn: Qpn) -> Outcome<Self> {
        Ok(Self(Peer::start(["--sender", class.name, "--qpn", &qpn.get().to_string()])?))
    }

    /// Has a lot sent; when this returns, all of it waits in sockets of the victim.
    pub(crate) fn send_lot(&mut self, name: CommId) -> Outcome<()> {
        self.order(SEND_LOT, name)
    }

    /// Has a connection asked for, with nothing wrong.
    pub(crate) fn ask_for_connection(&mut self) -> Outcome<()> {
        self.order(ASK, CommId(0))
    }

    /// Has the connection of this name confirmed.
    pub(crate) fn confirm(&mut self, name: CommId) -> Outcome<()> {
        self.order(CONFIRM, name)
    }

    fn order(&mut self, what: u8, CommId(name): CommId) -> Outcome<()> {
        let [a, b, c, d] = name.to_be_bytes();
        // Bytes and no text: what the victim does for an order is counted with the lot.
        Ok(self.0.exchange(&[what, a, b, c, d], &mut [0])?)
    }

    /// Tells it to end.
    pub(crate) fn stop(self) -> Result<(), PeerError> {
        self.0.stop().map(drop)
    }
}

/// Is the child, until the pipe of its orders ends.
pub(crate) fn play(class: &Class, qpn: Qpn) -> Outcome<()> {
    let (mut orders, mut answers) = (io::stdin().lock(), io::stdout().lock());
    let peer = Line::new(PEER, PORT)?;
    let line = match class.lie {
        Lie::Port => Line::new(PEER, 0)?,
        Lie::Peer | Lie::StrangerId => Line::new(STRANGER, PORT)?,
        _ => Line { socket: peer.socket.try_clone()?, flow: peer.flow },
    };
    let mut lot = Vec::new();
    let mut order = [0; 5];
    while orders.read_exact(&mut order).is_ok() {
        let [what, name @ ..] = order;
        let name = CommId(u32::from_be_bytes(name));
        match what {
            SEND_LOT => {
                if lot.is_empty() {
                    let numbers = 0..u32::try_from(LOT)?;
                    lot = numbers.map(|number| forge(class.lie, &line.flow, qpn, name, number)).collect();
                }
                lot.iter().try_for_each(|bytes| line.send(bytes))?;
            }
            ASK => peer.send(&sealed_mad(&peer.flow, request(PEER_NAME, PEER_QPN)))?,
            CONFIRM => {
                let rtu = Rtu { local_comm_id: PEER_NAME, remote_comm_id: name, ..Rtu::default() };
                peer.send(&sealed_mad(&peer.flow, rtu))?;
            }
            other => return Err(format!("no order is called {other}").into()),
        }
        answers.write_all(&[0])?;
        answers.flush()?;
    }
    Ok(())
}

/// A socket that seems to be one host.
struct Line {
    socket: UdpSocket,
    flow: Flow,
}

impl Line {
    fn new(source: [u8; 4], port: u16) -> Outcome<Self> {
        let source = SocketAddr::new(source.into(), port);
        // A port that the kernel chooses is of no device.
        let socket = if port == 0 { UdpSocket::bind(source)? } else { beside_a_device(source) };
        let flow = Flow::new(socket.local_addr()?, target()).ok_or("two families")?;
        Ok(Self { socket, flow })
    }

    fn send(&self, bytes: &[u8]) -> Outcome<()> {
        self.socket.send_to(bytes, target())?;
        Ok(())
    }
}

fn target() -> SocketAddr {
    SocketAddr::new(VICTIM.into(), PORT)
}

/// A packet that is right in all but one thing.
fn forge(lie: Lie, flow: &Flow, qpn: Qpn, name: CommId, number: u32) -> Vec<u8> {
    let own = CommId(0x7000 + number);
    let asking = request(own, Qpn::new(0x5000 + number));
    let ending = Dreq { local_comm_id: PEER_NAME, remote_comm_id: name, remote_qpn: qpn, ..Dreq::default() };
    match lie {
        // Inside of the header with address and key.
        Lie::Cut => write(flow, qpn, EXPECTED, 64)[..20].to_vec(),
        Lie::Opcode => with_byte(write(flow, qpn, EXPECTED, 64), 0, 0x3f),
        Lie::Icrc(payload) => {
            let bytes = write(flow, qpn, EXPECTED, payload);
            let (last, wrong) = (bytes.len() - 1, bytes[bytes.len() - 1] ^ 0x10);
            with_byte(bytes, last, wrong)
        }
        Lie::Qpn => write(flow, Qpn::new(qpn.get() ^ 0x8000), EXPECTED, 64),
        Lie::Slot => write(flow, Qpn::new(5), EXPECTED, 64),
        Lie::Peer | Lie::Port => write(flow, qpn, EXPECTED, 64),
        Lie::Future => write(flow, qpn, EXPECTED + ((1 << 22) + number), 64),
        Lie::Past => write(flow, qpn, EXPECTED + ((1 << 24) - 1 - number), 64),
        Lie::UnknownId | Lie::StrangerId => sealed_mad(flow, ending),
        Lie::Invalid => sealed_mad(flow, Req { path_mtu: 9, ..asking }),
        Lie::Claim => sealed_mad(flow, Req { local_qpn: PEER_QPN, ..asking }),
        Lie::Service => {
            sealed_mad(flow, Req { service_id: ServiceId::rdma_ip(PortSpace::Tcp, UNSERVED), ..asking })
        }
        Lie::Backlog => sealed_mad(flow, asking),
    }
}

fn with_byte(mut bytes: Vec<u8>, at: usize, value: u8) -> Vec<u8> {
    bytes[at] = value;
    bytes
}

/// An RC WRITE that wants an answer. Its key is never looked at.
fn write(flow: &Flow, qpn: Qpn, psn: Psn, payload: usize) -> Vec<u8> {
    let payload = vec![0xbd; payload];
    let reth = Reth { address: 0, rkey: Rkey(0), length: u32::try_from(payload.len()).unwrap_or(0) };
    let body = Body::RcRequest(Request::Write(Segment::Only(reth, None), payload.as_slice()));
    sealed(&Packet { ack_request: true, ..Packet::new(qpn, psn, body) }, flow)
}

/// A request for a connection that nothing is wrong with.
fn request(local_comm_id: CommId, local_qpn: Qpn) -> Req {
    let (from, to) = (IpAddr::from(PEER), IpAddr::from(VICTIM));
    let pair = IpPair::new(from, to).expect("two of one family");
    Req {
        local_comm_id,
        local_qpn,
        service_id: SERVICE,
        path_mtu: PathMtu::B1024.code(),
        max_cm_retries: 15,
        // It waits for minutes: 4.3 s for each of the tries.
        remote_cm_response_timeout: Timeout::new(20),
        primary: ReqPath { local_gid: from.into(), remote_gid: to.into(), ..ReqPath::default() },
        private_data: IpCmHeader::new(1, pair).private_data(b"").expect("it fits"),
        ..Req::default()
    }
}

fn sealed_mad(flow: &Flow, message: impl Into<CmMessage>) -> Vec<u8> {
    let mut mad = [0; CmMad::LEN];
    CmMad::new(1, message).emit(&mut mad);
    let deth = Deth { qkey: QKey::GSI, source_qp: Qpn::GSI };
    let body = Body::Ud(Datagram { deth, imm: None, payload: &mad[..] });
    sealed(&Packet::new(Qpn::GSI, Psn::new(0), body), flow)
}

fn sealed(packet: &Packet<&[u8]>, flow: &Flow) -> Vec<u8> {
    let mut bytes = vec![0; packet.len()];
    packet.emit(flow, 0, &mut bytes).expect("a legal packet");
    bytes
}
