//! A program that speaks as brokers do, by hand: it says whatever a test makes it say.

use std::net::{IpAddr, SocketAddr};

use ferroce_broker::{Member, Members};
use ferroce_verbs::cm::{self, CmError, CmOptions, ConnectRequest, Established, Listener};
use ferroce_verbs::{
    Access, CompletionQueue, Context, MemoryRegion, PathPolicy, ProtectionDomain, QueuePair, Service, Status,
};

use super::SOON;

/// Bytes of the longest frame of a handshake.
const LONGEST: usize = 32 * 1024;

/// The kinds of frames.
pub(crate) const PROOF: u8 = 1;
pub(crate) const HELLO: u8 = 2;
pub(crate) const READY: u8 = 3;
pub(crate) const WRONG_SECRET: u8 = 4;

/// What stands for a proof where there is no secret.
pub(crate) const NO_PROOF: [u8; 32] = [0; 32];

/// A device at an address, and nothing that a broker would add.
pub(crate) struct Stranger {
    pub(crate) context: Context,
    domain: ProtectionDomain,
}

/// One end of a connection, before or after it stands.
pub(crate) struct End {
    qp: QueuePair,
    sends: CompletionQueue,
    receives: CompletionQueue,
    /// One frame to be sent, and one that is received.
    frames: MemoryRegion,
    credit: MemoryRegion,
    established: Option<Established>,
}

/// The first words of either side: which member speaks to which.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Greeting {
    pub(crate) has_secret: bool,
    pub(crate) lane: u8,
    pub(crate) from: u32,
    pub(crate) to: u32,
    pub(crate) nonce: [u8; 16],
}

impl Greeting {
    pub(crate) const LEN: usize = 40;

    pub(crate) const fn new(from: u32, to: u32) -> Self {
        Self { has_secret: false, lane: 0, from, to, nonce: [7; 16] }
    }

    pub(crate) fn bytes(&self) -> [u8; Self::LEN] {
        let mut bytes = [0; Self::LEN];
        bytes[..6].copy_from_slice(b"fbrk\x00\x02");
        (bytes[6], bytes[7]) = (self.has_secret.into(), self.lane);
        bytes[8..12].copy_from_slice(&self.from.to_be_bytes());
        bytes[12..16].copy_from_slice(&self.to.to_be_bytes());
        bytes[16..24].copy_from_slice(&9_u64.to_be_bytes());
        bytes[24..].copy_from_slice(&self.nonce);
        bytes
    }
}

impl Stranger {
    pub(crate) fn at(address: IpAddr) -> Self {
        let context = Context::builder("lo").address(address).path(PathPolicy::Forbid).open().unwrap();
        let domain = context.protection_domain().unwrap();
        Self { context, domain }
    }

    pub(crate) fn listen(&self, port: u16) -> Listener {
        Listener::bind(&self.context, port, 64).unwrap()
    }

    /// Asks for a connection, with these words.
    pub(crate) fn ask(&self, member: Member, words: &[u8]) -> Result<End, CmError> {
        let mut end = End::new(self);
        let options = CmOptions::default().private_data(words);
        end.established = Some(cm::connect(member.address, &end.qp, &options)?);
        Ok(end)
    }

    /// Accepts a connection, with these words.
    pub(crate) fn accept(&self, request: ConnectRequest, words: &[u8]) -> Result<End, CmError> {
        let mut end = End::new(self);
        end.established = Some(request.accept(&end.qp, &CmOptions::default().private_data(words))?);
        Ok(end)
    }
}

impl End {
    fn new(stranger: &Stranger) -> Self {
        let [sends, receives] = [8, 64].map(|size| stranger.context.completion_queue(size).unwrap());
        let builder = stranger.domain.queue_pair(Service::Rc);
        let qp = builder.send_queue(&sends, 8).receive_queue(&receives, 64).max_sge(1).build().unwrap();
        let frames = stranger.domain.allocate(2 * LONGEST, Access::LOCAL_WRITE).unwrap();
        let credit = stranger.domain.allocate(8, Access::LOCAL_WRITE | Access::REMOTE_WRITE).unwrap();
        qp.receive(frames.slice(LONGEST..)).post().unwrap();
        Self { qp, sends, receives, frames, credit, established: None }
    }

    /// The first words of the other side.
    pub(crate) fn greeted(&self) -> &[u8] {
        self.established.as_ref().unwrap().private_data()
    }

    /// Sends a frame; whether it has arrived.
    pub(crate) fn say(&self, frame: &[u8]) -> bool {
        self.frames.write_at(0, frame).unwrap();
        let posted = self.qp.send(self.frames.slice(..frame.len())).signaled().post();
        posted.is_ok() && self.sends.wait(SOON).unwrap().status == Status::Success
    }

    /// The next frame; nothing if the other side has hung up.
    pub(crate) fn hear(&self) -> Option<Vec<u8>> {
        let completion = self.receives.wait(SOON).unwrap();
        let heard = LONGEST..LONGEST + completion.byte_len as usize;
        let frame = (completion.status == Status::Success).then(|| self.frames.to_vec(heard).unwrap());
        let again = self.qp.receive(self.frames.slice(LONGEST..)).post();
        frame.inspect(|_| again.unwrap())
    }

    /// A frame with all that a member with this list says of itself, and a proof.
    pub(crate) fn hello(&self, kind: u8, members: &Members, proof: &[u8]) -> Vec<u8> {
        let mut bytes = vec![kind];
        bytes.extend([4096_u32, 128].map(u32::to_be_bytes).concat());
        bytes.extend(self.credit.remote().to_bytes());
        bytes.extend([0; 8]);
        bytes.extend(u16::try_from(members.len()).unwrap().to_be_bytes());
        for Member { id, address } in members.iter() {
            let SocketAddr::V4(address) = address else { panic!("{address} is IPv6") };
            bytes.extend(id.to_be_bytes());
            bytes.extend(address.ip().to_ipv6_mapped().octets());
            bytes.extend(address.port().to_be_bytes());
        }
        bytes.extend([0; 2]);
        bytes.extend(proof);
        bytes
    }
}
