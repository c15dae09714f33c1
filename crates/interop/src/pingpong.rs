//! The kernel's own `ibv_rc_pingpong`, `ibv_uc_pingpong` and `ibv_ud_pingpong`, with us in the place of one of them.
//!
//! They find each other over TCP: the client says `LID:QPN:PSN:GID` in hexadecimal digits and a zero byte, the
//! server answers the same, the client says `done`. Then a message goes to and fro.

use std::io::{Read, Write};
use std::net::{TcpListener, TcpStream};
use std::time::Duration;

use ferroce_verbs::{
    Access, AddressHandle, AddressVector, CompletionQueue, ConnectOptions, MemoryRegion, PathMtu,
    ProtectionDomain, Psn, QpAddress, Qpn, QueuePair, Service, Status, WorkKind,
};

use crate::Result;
use crate::far::{gid_from_hex, gid_to_hex};
use crate::lab::{Family, Form, Lab};
use crate::pair::{Asks, HEADER, LIMIT, NEAR_TIMEOUT, QKEY};

/// Where the tools listen.
const PORT: u16 = 18515;

/// Bytes of what the two sides say first.
const HELLO: usize = "0000:000000:000000:00000000000000000000000000000000\0".len();

/// Receives that are posted at first.
const DEPTH: u32 = 64;

pub(crate) fn rc(lab: &mut Lab, asks: Asks) -> Result<()> {
    game(lab, asks, Service::Rc, rounds(lab, 1_000), false)
}

pub(crate) fn uc(lab: &mut Lab, asks: Asks) -> Result<()> {
    game(lab, asks, Service::Uc, rounds(lab, 1_000), false)
}

pub(crate) fn ud(lab: &mut Lab, asks: Asks) -> Result<()> {
    game(lab, asks, Service::Ud, rounds(lab, 1_000), false)
}

/// Some lost packets cost a timer: 67 ms at the kernel, 0.5 s at us.
pub(crate) fn rc_with_loss(lab: &mut Lab, asks: Asks) -> Result<()> {
    game(lab, asks, Service::Rc, rounds(lab, 200), true)
}

/// In the long form many, once for each family and each MTU.
fn rounds(lab: &Lab, some: u32) -> u32 {
    const FEW: u32 = 200;
    match lab.form {
        Form::Short => FEW,
        Form::Long if lab.is_diagonal() => 10_000,
        Form::Whole | Form::Long => some,
    }
}

/// One game. The side that asks is the client, and plays first. `loses` says that some of what the tool sends
/// is lost.
fn game(lab: &Lab, asks: Asks, service: Service, rounds: u32, loses: bool) -> Result<()> {
    let mut table = Table::set(lab, service)?;
    table.loses = loses;
    let mut far = lab.far()?;
    let (index, mtu, size) = (lab.family.far_gid_index(), lab.link.path_mtu().bytes(), table.size);
    let mtu = if service == Service::Ud { String::new() } else { format!("-m {mtu}") };
    let limit = if lab.form == Form::Long { 1200 } else { 170 };
    far.be_patient(Duration::from_secs(limit + 10))?;
    let tool = format!(
        "timeout {limit} ibv_{}_pingpong -d rxe0 -g {index} -s {size} {mtu} -n {rounds}",
        service.name().to_lowercase()
    );
    match asks {
        Asks::We => {
            far.start(&tool)?;
            lab.far()?.run(&format!(
                "for i in $(seq 1500); do ss -ltn | grep -q ':{PORT} ' && exit 0; usleep 20000; done; exit 1"
            ))?;
            let mut stream = TcpStream::connect((lab.guest, PORT))?;
            stream.set_read_timeout(Some(LIMIT))?;
            stream.write_all(&hello(&table.near.local_address()))?;
            let peer = read_hello(&mut stream)?;
            table.join(lab, &peer)?;
            stream.write_all(b"done\0")?;
            table.play(rounds, true)?;
        }
        Asks::Kernel => {
            let us = Family::V4.near();
            let listener = TcpListener::bind((us, PORT))?;
            // A tool that ends before it has called is followed by a call that says nothing, so that we do
            // not wait.
            far.start(&format!("{tool} {us}; ended=$?; nc -w 1 {us} {PORT}; exit $ended"))?;
            let (mut stream, _) = listener.accept()?;
            drop(listener);
            stream.set_read_timeout(Some(LIMIT))?;
            let peer = read_hello(&mut stream)?;
            table.join(lab, &peer)?;
            stream.write_all(&hello(&table.near.local_address()))?;
            let mut done = [0; 5];
            stream.read_exact(&mut done)?;
            table.play(rounds, false)?;
        }
    }
    match far.finish()? {
        (0, _) => Ok(()),
        (status, output) => Err(format!("the tool ended with {status}: {}", output.trim()).into()),
    }
}

/// Our side of a game.
struct Table {
    domain: ProtectionDomain,
    queue: CompletionQueue,
    near: QueuePair,
    region: MemoryRegion,
    size: usize,
    mtu: PathMtu,
    /// For datagrams: the other side.
    peer: Option<(AddressHandle, Qpn)>,
    /// What the other side sends may be lost.
    loses: bool,
}

impl Table {
    fn set(lab: &Lab, service: Service) -> Result<Self> {
        let mtu = lab.link.path_mtu();
        // What the tools take if nothing is said: several packets, or as long as a datagram may be.
        let size = if service == Service::Ud { mtu.bytes() } else { 4 * mtu.bytes() };
        let domain = lab.context.protection_domain()?;
        let queue = lab.context.completion_queue(4 * DEPTH)?;
        let near = domain.queue_pair(service).completion_queue(&queue).address(lab.family.near()).build()?;
        let region = domain.allocate(2 * (size + HEADER), Access::LOCAL_WRITE)?;
        let table = Self { domain, queue, near, region, size, mtu, peer: None, loses: false };
        for _ in 0..DEPTH {
            table.receive()?;
        }
        Ok(table)
    }

    fn receive(&self) -> Result<()> {
        Ok(self.near.receive(self.region.slice(self.size + HEADER..)).post()?)
    }

    fn join(&mut self, lab: &Lab, peer: &QpAddress) -> Result<()> {
        if self.near.service() == Service::Ud {
            self.near.activate(QKEY)?;
            let index = lab.context.gid_index(lab.family.near()).ok_or("our address is gone")?;
            let handle = self.domain.address_handle(&AddressVector::new(peer.gid, index))?;
            self.peer = Some((handle, peer.qpn));
        } else {
            let options = ConnectOptions {
                path_mtu: Some(self.mtu),
                timeout: NEAR_TIMEOUT,
                ..ConnectOptions::default()
            };
            self.near.connect_with(peer, &options)?;
        }
        Ok(())
    }

    /// Each side sends when it has received, and when its last message has left.
    fn play(&self, rounds: u32, mut may_send: bool) -> Result<()> {
        let (mut sent, mut received, mut leaving) = (0, 0, false);
        while sent < rounds || received < rounds || leaving {
            if may_send && !leaving && sent < rounds {
                self.send()?;
                (sent, may_send, leaving) = (sent + 1, false, true);
            }
            let limit = Duration::from_secs(30);
            let done = self.queue.wait(limit).map_err(|error| {
                format!(
                    "{error}; {sent} sent and {received} received of {rounds}, {:?}",
                    self.near.counters()
                )
            })?;
            // The tool is gone when it has the last message. If it is its last acknowledgement that is lost,
            // it is not repeated; whether the message came, the tool itself says by how it ends.
            let is_last = sent == rounds && received == rounds && done.kind == WorkKind::Send;
            if self.loses && is_last && done.status == Status::RetryExceeded {
                return Ok(());
            }
            match done.result()?.kind {
                WorkKind::Receive => {
                    (received, may_send) = (received + 1, true);
                    self.receive()?;
                }
                _ => leaving = false,
            }
        }
        Ok(())
    }

    fn send(&self) -> Result<()> {
        let bytes = self.region.slice(..self.size);
        let work = match &self.peer {
            Some((handle, qpn)) => self.near.send_to(handle, *qpn, QKEY, bytes),
            None => self.near.send(bytes),
        };
        Ok(work.post()?)
    }
}

/// What we say first. RoCE has no LIDs.
fn hello(address: &QpAddress) -> Vec<u8> {
    let (qpn, psn) = (address.qpn.get(), address.psn.get());
    format!("0000:{qpn:06x}:{psn:06x}:{}\0", gid_to_hex(address.gid)).into_bytes()
}

fn read_hello(stream: &mut impl Read) -> Result<QpAddress> {
    let mut bytes = [0; HELLO];
    stream.read_exact(&mut bytes)?;
    let text = String::from_utf8_lossy(&bytes);
    let words: Vec<&str> = text.trim_end_matches('\0').split(':').collect();
    let [_, qpn, psn, gid] = words[..] else {
        return Err(format!("{text:?} is not LID:QPN:PSN:GID").into());
    };
    let number = |text| u32::from_str_radix(text, 16);
    let (qpn, psn) = (Qpn::new(number(qpn)?), Psn::new(number(psn)?));
    Ok(QpAddress { qpn, psn, mtu: PathMtu::B4096, gid: gid_from_hex(gid)? })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_we_say_is_what_the_tools_say() {
        let text = "0000:000011:d0f3a1:00000000000000000000ffff0a4d0002\0";
        let address = read_hello(&mut text.as_bytes()).unwrap();
        assert_eq!((address.qpn, address.psn), (Qpn::new(0x11), Psn::new(0xd0_f3a1)));
        assert_eq!(address.gid.ip().to_string(), "10.77.0.2");
        assert_eq!(hello(&address), text.as_bytes());
        assert!(read_hello(&mut &b"no greeting at all, but long enough to be one......"[..]).is_err());
    }
}
