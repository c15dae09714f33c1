//! Every frame that passes the link, in the order of passing.

use std::net::{SocketAddr, UdpSocket};
use std::process::{Child, Stdio};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::thread;

use pcap_file::pcap::PcapReader;

use super::network::{Family, Network, far_command, far_interface};

/// Where a probe goes: no program listens there.
const DISCARD: u16 = 9;

/// A running capture at the far end of the link.
pub(crate) struct Capture {
    program: Child,
    frames: Receiver<Vec<u8>>,
    family: Family,
}

impl Capture {
    /// Starts it, and returns when it captures.
    pub(crate) fn start(_: &Network, family: Family) -> Self {
        let mut program = far_command("dumpcap")
            .args(["-q", "-P", "-B", "128", "-s", "10000", "-i", far_interface(), "-f", "udp", "-w", "-"])
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        let output = program.stdout.take().unwrap();
        let (tell, frames) = channel();
        thread::spawn(move || {
            let mut reader = PcapReader::new(output).unwrap();
            while let Some(Ok(packet)) = reader.next_packet() {
                assert_eq!(usize::try_from(packet.orig_len).unwrap(), packet.data.len(), "nothing is cut");
                if tell.send(packet.data.into_owned()).is_err() {
                    break;
                }
            }
        });
        let capture = Self { program, frames, family };
        capture.until_probed(b"begin", |_| {});
        capture
    }

    /// Ends it, and returns all frames but our probes.
    pub(crate) fn finish(mut self, _: &Network, _: Family) -> Vec<Vec<u8>> {
        let mut all = Vec::new();
        self.until_probed(b"the end", |frame| all.push(frame));
        self.program.kill().unwrap();
        self.program.wait().unwrap();
        all.retain(|frame| !is_probe(frame, b"begin"));
        all
    }

    /// Sends probes until one comes by. Frames pass in order, so all that were before it have come too.
    fn until_probed(&self, word: &[u8], mut keep: impl FnMut(Vec<u8>)) {
        let from = SocketAddr::new(self.family.address(1), 0);
        let to = SocketAddr::new(self.family.address(2), DISCARD);
        let socket = UdpSocket::bind(from).unwrap();
        let deadline = ferroce_device::now() + ferroce_conformance::SOON;
        loop {
            // No program listens, and the socket may say so: that is no matter.
            let _ = socket.send_to(word, to);
            loop {
                match self.frames.try_recv() {
                    Ok(frame) if is_probe(&frame, word) => return,
                    Ok(frame) => keep(frame),
                    Err(TryRecvError::Empty) => break,
                    Err(TryRecvError::Disconnected) => panic!("dumpcap ended"),
                }
            }
            assert!(ferroce_device::now() < deadline, "dumpcap captures nothing");
            thread::yield_now();
        }
    }
}

fn is_probe(frame: &[u8], word: &[u8]) -> bool {
    let is_v4 = frame[12..14] == [0x08, 0x00];
    let udp = if is_v4 { 14 + 20 } else { 14 + 40 };
    frame[udp + 2..udp + 4] == DISCARD.to_be_bytes() && frame[udp + 8..].starts_with(word)
}
