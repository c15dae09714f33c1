//! One end of a connection.

use std::io::Write;

use ferroce_verbs::{
    Access, Completion, CompletionQueue, ConnectOptions, Context, MemoryRegion, PathMtu, PathPolicy,
    QpAddress, QueuePair, RemoteRegion, Service,
};

use crate::Result;

/// As the tools have them: sends under way, and receives that wait.
pub(crate) const SEND_DEPTH: u32 = 128;
pub(crate) const RECEIVE_DEPTH: u32 = 512;

/// A device with one queue pair and memory for a message in and one out.
#[derive(Debug)]
pub(crate) struct End {
    context: Context,
    pub(crate) queue: CompletionQueue,
    pub(crate) pair: QueuePair,
    pub(crate) memory: MemoryRegion,
    /// Bytes of a message.
    pub(crate) len: usize,
}

impl End {
    pub(crate) fn open(address: [u8; 4], len: usize) -> Result<Self> {
        let context = Context::builder("ferroce_lo").address(address).path(PathPolicy::Forbid).open()?;
        let domain = context.protection_domain()?;
        let queue = context.completion_queue(SEND_DEPTH + RECEIVE_DEPTH)?;
        let pair = domain
            .queue_pair(Service::Rc)
            .send_queue(&queue, SEND_DEPTH)
            .receive_queue(&queue, RECEIVE_DEPTH)
            .signal_all(false)
            .build()?;
        let memory = domain.allocate(2 * len, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
        Ok(Self { context, queue, pair, memory, len })
    }

    /// What the other end has to know, as a line.
    pub(crate) fn card(&self) -> Result<String> {
        let bytes =
            [&self.pair.local_address().to_bytes()[..], &self.memory.remote().to_bytes()[..]].concat();
        let mut line = Vec::new();
        for byte in bytes {
            write!(line, "{byte:02x}")?;
        }
        Ok(String::from_utf8(line)?)
    }

    /// Connects to the end that gave this card, and says where its memory is.
    pub(crate) fn connect(&self, card: &str) -> Result<RemoteRegion> {
        let digits = |at| card.get(at..at + 2).ok_or("the other end said too little about itself");
        let mut bytes = Vec::new();
        for at in (0..card.len()).step_by(2) {
            bytes.push(u8::from_str_radix(digits(at)?, 16)?);
        }
        let (peer, region) =
            bytes.split_at_checked(QpAddress::LEN).ok_or("the other end's card is too short")?;
        let options = ConnectOptions { path_mtu: Some(PathMtu::B4096), ..ConnectOptions::default() };
        self.pair.connect_with(&QpAddress::from_bytes(peer)?, &options)?;
        Ok(RemoteRegion::from_bytes(region)?)
    }

    /// Looks for completions; one that failed is an error.
    pub(crate) fn poll(&self, found: &mut [Completion]) -> Result<usize> {
        let count = self.queue.poll(found);
        for done in &found[..count] {
            done.result()?;
        }
        Ok(count)
    }

    /// What explains a figure: how packets left, and what was sent again.
    pub(crate) fn note(&self) -> String {
        let (device, pair) = (self.context.counters(), self.pair.counters());
        format!(
            "packets={} calls={} again={} timeouts={}",
            device.packets_sent, device.send_calls, pair.retransmitted, pair.timeouts
        )
    }
}
