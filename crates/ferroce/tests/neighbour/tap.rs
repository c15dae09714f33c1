//! What honest packets tell to a liar that hears all of them: the worst that can be known.
//!
//! The device writes its capture into a pipe, and a thread reads it there.

use std::collections::HashMap;
use std::io::{PipeReader, PipeWriter, pipe};
use std::net::{IpAddr, Ipv4Addr};
use std::os::fd::AsRawFd;
use std::sync::{Arc, Mutex, PoisonError};
use std::thread;

use ferroce_wire::mad::{CmMad, CmMessage, CommId};
use ferroce_wire::{Body, Packet, Psn, QKey, Qpn, Request, Rkey, UcRequest};
use pcap_file::pcapng::blocks::enhanced_packet::EnhancedPacketOption;
use pcap_file::pcapng::{Block, PcapNgReader};

use crate::pairs::LEN;

/// Where a queue pair is, and its number.
pub(crate) type Place = (IpAddr, u32);

/// Bytes before the packet: IPv4 and UDP.
const HEADERS: usize = 28;

/// Bytes of a full packet between two devices on the loopback interface.
const MTU: u32 = 4096;

/// The direction of a captured packet: out.
const OUTBOUND: u32 = 2;

/// What is known of queue pairs, by where they are.
#[derive(Debug, Default)]
pub(crate) struct Seen {
    /// The request that comes next to this queue pair.
    pub(crate) expects: HashMap<Place, Psn>,
    /// Memory that its peer writes to.
    pub(crate) memory: HashMap<Place, (u64, Rkey)>,
    /// The key of its datagrams, and the queue pair that they come from.
    pub(crate) datagrams: HashMap<Place, (QKey, Qpn)>,
    /// Its name for its connection, and the peer's.
    pub(crate) names: HashMap<Place, (CommId, CommId)>,
    /// Requests for connections: the queue pair by the name that its side gave.
    asked: HashMap<(IpAddr, u32), Qpn>,
    /// Answers to them: from where, by which queue pair, and under which name. Each side has a tap of its
    /// own, so either may be seen first.
    answered: HashMap<(IpAddr, u32), (IpAddr, Qpn, CommId)>,
}

/// What all taps of a scene have seen together.
#[derive(Clone, Debug, Default)]
pub(crate) struct Taps(Arc<Mutex<Seen>>);

impl Taps {
    /// Looks at what is known.
    pub(crate) fn look<T>(&self, look: impl FnOnce(&Seen) -> T) -> T {
        look(&self.0.lock().unwrap_or_else(PoisonError::into_inner))
    }

    /// A file for a device to capture into. The writer is kept until the device has opened it.
    pub(crate) fn file(&self) -> (String, PipeWriter) {
        let (from, to) = pipe().expect("a pipe");
        let path = format!("/proc/self/fd/{}", to.as_raw_fd());
        let seen = Arc::clone(&self.0);
        thread::spawn(move || listen(from, &seen));
        (path, to)
    }
}

/// Listens until the device is closed.
fn listen(from: PipeReader, seen: &Mutex<Seen>) {
    let Ok(mut reader) = PcapNgReader::new(from) else { return };
    while let Some(Ok(block)) = reader.next_block() {
        let Block::EnhancedPacket(packet) = block else { continue };
        let sent = packet
            .options
            .iter()
            .any(|option| matches!(option, EnhancedPacketOption::Flags(flags) if flags & 3 == OUTBOUND));
        if sent {
            seen.lock().unwrap_or_else(PoisonError::into_inner).note(&packet.data);
        }
    }
}

impl Seen {
    /// Notes what one frame tells, from its IPv4 header on.
    fn note(&mut self, frame: &[u8]) -> Option<()> {
        let address = |at: usize| Some(Ipv4Addr::from(*frame.get(at..)?.first_chunk::<4>()?).into());
        let (source, dest): (IpAddr, IpAddr) = (address(12)?, address(16)?);
        let packet = Packet::parse(frame.get(HEADERS..)?).ok()?;
        let place = (dest, packet.dest_qp.get());
        let mut steps = 1;
        match packet.body {
            Body::RcRequest(request) => {
                match request {
                    Request::Read(reth) => {
                        steps = reth.length.div_ceil(MTU).max(1);
                    }
                    Request::Write(segment, _) => self.write(place, segment.head()),
                    _ => {}
                }
                self.expects.insert(place, packet.psn + steps);
            }
            Body::Uc(request) => {
                if let UcRequest::Write(segment, _) = request {
                    self.write(place, segment.head());
                }
                self.expects.insert(place, packet.psn + steps);
            }
            Body::Ud(datagram) if packet.dest_qp == Qpn::GSI => {
                self.management(source, dest, datagram.payload);
            }
            Body::Ud(datagram) => {
                self.datagrams.insert(place, (datagram.deth.qkey, datagram.deth.source_qp));
                self.expects.insert(place, packet.psn + steps);
            }
            _ => {}
        }
        Some(())
    }

    fn write(&mut self, place: Place, head: Option<ferroce_wire::Reth>) {
        // Other WRITEs, such as those that tell of room, are not to the memory that is watched.
        if let Some(reth) = head.filter(|reth| reth.length as usize == LEN) {
            self.memory.insert(place, (reth.address, reth.rkey));
        }
    }

    fn management(&mut self, source: IpAddr, dest: IpAddr, bytes: &[u8]) {
        let call = match CmMad::parse(bytes).map(|mad| mad.message) {
            Ok(CmMessage::Req(req)) => {
                let call = (source, req.local_comm_id.0);
                self.asked.insert(call, req.local_qpn);
                call
            }
            Ok(CmMessage::Rep(rep)) => {
                let call = (dest, rep.remote_comm_id.0);
                self.answered.insert(call, (source, rep.local_qpn, rep.local_comm_id));
                call
            }
            _ => return,
        };
        if let (Some(asker), Some((there, answerer, name))) =
            (self.asked.get(&call), self.answered.get(&call))
        {
            let asked = CommId(call.1);
            self.names.insert((call.0, asker.get()), (asked, *name));
            self.names.insert((*there, answerer.get()), (*name, asked));
        }
    }
}
