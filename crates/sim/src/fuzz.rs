//! What the fuzz target `operations` does with its bytes: a list of `Operation`s against two connected
//! queue pairs.
//!
//! Whatever the list is, no machine panics, each request completes at most once and in the order of
//! posting, nothing is written outside of registered memory or outside of what a request named, and a
//! queue pair without work has nothing under way. At the end the link turns good: everything must come to
//! rest, and in ERR every request has ended.

mod hostile;
mod ledger;
mod posting;
mod rig;
mod states;

use arbitrary::{Arbitrary, Unstructured};

use rig::Rig;

/// No list is longer.
const MAX_OPERATIONS: usize = 400;

/// How the pair is made.
#[derive(Arbitrary, Clone, Copy, Debug)]
struct Config {
    service: ServiceKind,
    mtu: u8,
    psns: [PsnStart; 2],
    timeout: u8,
    retries: u8,
    rd_atomic: [u8; 2],
    shared: bool,
    signal_all: bool,
    /// Kinds of trouble that are left out, so that some lists get far.
    without: u8,
}

/// RC mostly: it has the most to go wrong.
#[derive(Arbitrary, Clone, Copy, Debug, PartialEq, Eq)]
enum ServiceKind {
    Rc,
    RcToo,
    RcAgain,
    Uc,
    Ud,
}

/// First PSNs at both ends of their range.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum PsnStart {
    Low(u8),
    High(u8),
}

/// One thing that a program, a peer, the network or the clock does. `b` means side B, else A.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Operation {
    /// Posts a send request; a high `odd` makes it one that cannot succeed.
    Post { b: bool, work: Work, place: u8, length: u16, pieces: u8, flags: u8, odd: u8 },
    /// Posts receive requests.
    PostReceive { b: bool, count: u8, length: u16 },
    /// Lets a side send.
    Transmit { b: bool, count: u8, hold_acks: bool },
    /// Lets a packet arrive: the oldest, or one that overtakes.
    Deliver { from_b: bool, index: u8 },
    /// Lets all packets of one side arrive.
    DeliverAll { from_b: bool },
    /// Lets both sides send and all packets arrive, a few times.
    Exchange { rounds: u8 },
    /// Loses a packet.
    Lose { from_b: bool, index: u8 },
    /// Lets a packet arrive and keeps it for later.
    Repeat { from_b: bool, index: u8 },
    /// Changes a bit of the headers; with a new ICRC it gets through.
    Corrupt { from_b: bool, index: u8, bit: u16, sealed: bool },
    /// Time goes on.
    Wait { micros: u16 },
    /// Time goes on to the next timer of a side.
    NextTimer { b: bool },
    /// Changes the state or attributes of a queue pair.
    Modify { b: bool, change: Change },
    /// Resets and connects both sides again; the network may still hold packets of before.
    Reconnect { forget: bool, psns: [u8; 2] },
    /// Takes the region of a side out of use and registers it anew under another key.
    Reregister { b: bool, access: u8 },
    /// A packet that no machine of ours would send now.
    Hostile { to_b: bool, psn: i8, packet: HostilePacket },
}

/// What a send request does.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Work {
    Send,
    SendImm,
    SendInvalidate,
    Write,
    WriteImm,
    Read,
    CompareSwap,
    FetchAdd,
    AtomicWrite,
    Bind,
    LocalInvalidate,
    MaskedCompareSwap,
    MaskedFetchAdd,
}

/// A change of state.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum Change {
    Error,
    Drain,
    Resume,
    Reset,
    BringUp,
    Any { state: u8, mask: u32 },
}

/// A packet from nowhere.
#[derive(Arbitrary, Clone, Copy, Debug)]
enum HostilePacket {
    Request { kind: u8, position: u8, key: u8, offset: u16, length: u16, payload: u16, ack_request: bool },
    Response { kind: u8, syndrome: u8, msn: u8, payload: u16 },
    Other { kind: u8, payload: u16 },
}

impl Config {
    /// Whether this kind of trouble happens in this list.
    const fn allows(&self, operation: &Operation) -> bool {
        let kind = match operation {
            Operation::Hostile { .. } => 0,
            Operation::Modify { .. } => 1,
            Operation::Reregister { .. } => 2,
            Operation::Corrupt { .. } => 3,
            Operation::Reconnect { .. } => 4,
            Operation::Lose { .. } => 5,
            _ => return true,
        };
        self.without >> kind & 1 == 0
    }
}

/// The body of the fuzz target.
///
/// # Panics
/// A promise is broken.
pub fn operations(bytes: &[u8]) {
    let mut input = Unstructured::new(bytes);
    let Ok(config) = Config::arbitrary(&mut input) else { return };
    let mut rig = Rig::new(config);
    for _ in 0..MAX_OPERATIONS {
        if input.is_empty() {
            break;
        }
        let Ok(operation) = Operation::arbitrary(&mut input) else { break };
        if config.allows(&operation) {
            rig.apply(operation);
            rig.check();
        }
    }
    rig.settle();
}
