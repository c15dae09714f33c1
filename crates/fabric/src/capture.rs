//! Middleware: every packet into a capture file.
//!
//! The file is pcapng and opens in Wireshark. Packets are drawn with the IP and UDP headers that they
//! have on the network, as far as a socket knows them.

mod file;
mod open;

use std::io::{self, BufWriter};
use std::net::IpAddr;
use std::os::fd::RawFd;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::{ffi, fs, process};

use ferroce_sys::clock::since_1970;
use ferroce_wire::Flow;
use ferroce_wire::net::{Ip, Ipv4, Ipv6, Udp};
use thiserror::Error;

use super::{Fabric, Harm, Inbox, Outbox, PORT, PortRefusal, Received, Route, Sent, Tiding};
pub use file::CaptureCounts;
use file::{Direction, PcapNg};

/// A fabric that writes down what passes through it.
///
/// It stands next to the network, behind [`Faults`](super::faults::Faults): what is in the file is what
/// was handed to the network. The file is brought up to date whenever a `receive` finds nothing. If it
/// cannot be written any more, for instance because the disk is full, packets are counted instead and
/// go on as before.
#[derive(Debug)]
pub struct Capture<F> {
    inner: F,
    /// Shared by the fabrics of a device's engines.
    file: Arc<Mutex<PcapNg<BufWriter<fs::File>>>>,
}

/// Why there is no capture.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum CaptureError {
    /// The file cannot be made.
    #[error("cannot write the capture file {} (name a file in a folder that exists and can be written)", .path.display())]
    Create {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// Another user put something there.
    #[error(
        "the capture file {} is a {what} of another user (uid {uid}, this process is of uid {ours}), which could read \
         what is written or say where it goes; remove it, or name a file in a folder of your own", .path.display()
    )]
    OtherUser {
        /// The file.
        path: PathBuf,
        /// A file, a link, a pipe or a device.
        what: &'static str,
        /// Whose it is.
        uid: u32,
        /// Whose this process is.
        ours: u32,
    },
    /// The file has other names too.
    #[error(
        "the capture file {} exists, and has {links} names; another user may have given it this one, and what it \
         holds would be lost; remove the name, or choose another", .path.display()
    )]
    OtherNames {
        /// The file.
        path: PathBuf,
        /// How many names it has.
        links: u64,
    },
    /// There is something else.
    #[error("the capture file {} is {what}; name a file, a pipe or a device", .path.display())]
    NotAFile {
        /// The file.
        path: PathBuf,
        /// What it is.
        what: &'static str,
    },
}

impl<F> Capture<F> {
    /// Bytes that are written at once.
    const BUFFER: usize = 256 * 1024;

    /// Writes what passes to and from `inner` into a new file; one of the same name is replaced.
    /// In the path `%p` stands for the number of this process. Only its owner may read the file: it
    /// shows the content of memory.
    ///
    /// # Errors
    /// The file cannot be made, or what has its name is not rightly this user's: see [`CaptureError`].
    pub fn create(path: impl AsRef<Path>, inner: F) -> Result<Self, CaptureError> {
        let path = with_process_id(path.as_ref(), process::id());
        let file = open::open(&path)?;
        match PcapNg::begin(BufWriter::with_capacity(Self::BUFFER, file)) {
            Ok(file) => Ok(Self { inner, file: Arc::new(Mutex::new(file)) }),
            Err(source) => Err(CaptureError::Create { path, source }),
        }
    }

    /// How many packets are in the file, and how many are missing.
    #[must_use]
    pub fn counts(&self) -> CaptureCounts {
        self.file().counts()
    }

    /// Writes what passes to and from another fabric into the same file.
    #[must_use]
    pub fn around<G>(&self, inner: G) -> Capture<G> {
        Capture { inner, file: Arc::clone(&self.file) }
    }

    /// Writes down a packet that leaves another way.
    pub fn note_sent(&self, route: &Route, packet: &[u8]) {
        let mut file = self.file();
        file.packet(since_1970(), Direction::Outbound, outbound(route, 0), packet);
        file.flush();
    }

    /// Writes down a packet that came another way.
    pub fn note_received(&self, received: &Received, packet: &[u8]) {
        let mut file = self.file();
        file.packet(since_1970(), Direction::Inbound, inbound(received, 0, packet), packet);
        file.flush();
    }

    /// The file. If a thread panicked over it, the rest of it may be odd, but not this process.
    fn file(&self) -> MutexGuard<'_, PcapNg<BufWriter<fs::File>>> {
        self.file.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The fabric behind it.
    #[must_use]
    pub const fn inner(&self) -> &F {
        &self.inner
    }
}

impl<F: Fabric> Fabric for Capture<F> {
    fn coalesces(&self) -> bool {
        self.inner.coalesces()
    }

    fn run_limits(&self) -> (usize, usize) {
        self.inner.run_limits()
    }

    fn source_port(&mut self, wanted: u16, local: IpAddr) -> u16 {
        self.inner.source_port(wanted, local)
    }

    fn require_port(&mut self, wanted: u16, local: IpAddr) -> Result<(), PortRefusal> {
        self.inner.require_port(wanted, local)
    }

    fn send(&mut self, outbox: &mut Outbox) -> Sent {
        if !outbox.is_empty() {
            let mut file = self.file();
            let now = since_1970();
            for run in outbox.runs() {
                for (place, packet) in outbox.packets(run).enumerate() {
                    file.packet(now, Direction::Outbound, outbound(&run.route, place), packet);
                }
            }
        }
        self.inner.send(outbox)
    }

    fn receive(&mut self, inbox: &mut Inbox) -> io::Result<()> {
        self.inner.receive(inbox)?;
        if inbox.is_empty() {
            self.file().flush();
            return Ok(());
        }
        let mut file = self.file();
        let now = since_1970();
        for (received, bytes) in inbox.iter() {
            for (place, packet) in bytes.chunks(received.segment.max(1)).enumerate() {
                file.packet(now, Direction::Inbound, inbound(received, place, packet), packet);
            }
        }
        Ok(())
    }

    fn show_marks(&mut self) {
        self.inner.show_marks();
    }

    fn follow(&mut self) -> io::Result<()> {
        self.inner.follow()
    }

    fn watch_harm(&mut self, on: bool) {
        self.inner.watch_harm(on);
    }

    fn harm(&mut self, tell: &mut dyn FnMut(Harm, &[u8], usize)) {
        self.inner.harm(tell);
    }

    fn tidings(&mut self, tell: &mut dyn FnMut(Tiding<'_>)) {
        self.inner.tidings(tell);
    }

    fn dropped(&self) -> u64 {
        self.inner.dropped()
    }

    fn overflowed(&self) -> u64 {
        self.inner.overflowed()
    }

    fn holds_packets(&self) -> bool {
        self.inner.holds_packets()
    }

    fn descriptors(&self) -> &[RawFd] {
        self.inner.descriptors()
    }
}

/// The headers of a packet that leaves.
fn outbound(route: &Route, place: usize) -> Option<(Ip, Udp)> {
    let marks = Marks { class: route.traffic_class, hops: route.hop_limit, label: route.flow_label };
    headers((route.local, route.source_port), route.remote, marks, identification(place))
}

/// The headers of a packet that came. A socket does not show the identification; it is the one with which
/// the ICRC is right, else what the network stack would have given to a packet at this place.
fn inbound(received: &Received, place: usize, packet: &[u8]) -> Option<(Ip, Udp)> {
    const USUAL_HOP_LIMIT: u8 = 64;

    let (source, local) = ((received.source.0, received.source.1), received.local);
    let hop_limit = if received.hop_limit == 0 { USUAL_HOP_LIMIT } else { received.hop_limit };
    let marks = Marks { class: received.traffic_class, hops: hop_limit, label: received.flow_label };
    let (ip, udp) = headers(source, local, marks, identification(place))?;
    match ip {
        Ip::V4(v4) => {
            let id = Flow::of(&ip, &udp).solve_ip_id(packet).unwrap_or(v4.id);
            Some((Ip::V4(Ipv4 { id, ..v4 }), udp))
        }
        Ip::V6(_) => Some((ip, udp)),
    }
}

/// What an IP header says beside addresses and lengths.
#[derive(Clone, Copy)]
struct Marks {
    class: u8,
    hops: u8,
    label: u32,
}

/// Headers as our sockets write them; nothing if the addresses are of two families.
fn headers(
    (source, source_port): (IpAddr, u16),
    dest: IpAddr,
    Marks { class, hops, label }: Marks,
    id: u16,
) -> Option<(Ip, Udp)> {
    let ip = match (source.to_canonical(), dest.to_canonical()) {
        (IpAddr::V4(source), IpAddr::V4(dest)) => {
            Ip::V4(Ipv4 { tos: class, id, dont_fragment: true, ttl: hops, source, dest })
        }
        (IpAddr::V6(source), IpAddr::V6(dest)) => {
            Ip::V6(Ipv6 { traffic_class: class, flow_label: label, hop_limit: hops, source, dest })
        }
        _ => return None,
    };
    Some((ip, Udp { source_port, dest_port: PORT, checksum: 0 }))
}

fn identification(place: usize) -> u16 {
    u16::try_from(place).unwrap_or(u16::MAX)
}

/// The path with the number of a process in each place of `%p`.
#[must_use]
pub fn with_process_id(path: &Path, id: u32) -> PathBuf {
    let bytes = path.as_os_str().as_bytes();
    let mut replaced = Vec::with_capacity(bytes.len());
    let mut rest = bytes;
    while let Some((first, after)) = rest.split_first() {
        if let Some(behind) = rest.strip_prefix(b"%p") {
            replaced.extend_from_slice(id.to_string().as_bytes());
            rest = behind;
        } else {
            replaced.push(*first);
            rest = after;
        }
    }
    ffi::OsString::from_vec(replaced).into()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_process_id_takes_its_place() {
        for (path, named) in [("a.pcapng", "a.pcapng"), ("x/%p-%p%", "x/42-42%"), ("%%p", "%42"), ("", "")] {
            assert_eq!(with_process_id(Path::new(path), 42), Path::new(named));
        }
    }

    #[test]
    fn addresses_of_two_families_are_not_drawn() {
        let (v4, v6) = ("127.0.0.1".parse().unwrap(), "::1".parse().unwrap());
        let marks = Marks { class: 0, hops: 64, label: 0 };
        assert_eq!(headers((v4, 1), v6, marks, 0), None);
        let mapped = "::ffff:127.0.0.1".parse().unwrap();
        assert!(matches!(headers((v4, 1), mapped, marks, 0), Some((Ip::V4(_), _))));
    }
}
