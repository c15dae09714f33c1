//! What most questions about a packet need of its headers, without taking all of them apart.

use ferroce_record::Packet;
use ferroce_wire::{Aeth, AtomicEth, Bth, Headers, OpcodeInfo, Psn, Reth, Rkey, Role, Service, Syndrome};

/// A look at the headers of a packet.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Glance {
    pub(crate) info: &'static OpcodeInfo,
    pub(crate) psn: Psn,
    /// What an answer says.
    pub(crate) syndrome: Option<Syndrome>,
    /// The memory that a request names.
    pub(crate) target: Option<Target>,
}

/// Memory of the peer, as a request names it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Target {
    pub(crate) address: u64,
    pub(crate) key: Rkey,
    pub(crate) length: u64,
}

impl Glance {
    /// None if these headers are no packet.
    pub(crate) fn of(packet: &Packet) -> Option<Self> {
        let bytes = packet.headers();
        let bth = Bth::parse(bytes.first_chunk()?).ok()?;
        let info = bth.opcode.info();
        let rest = &bytes[Bth::LEN..];
        let has = |header| info.headers.contains(header);
        let is_plain = matches!(info.service, Service::Rc | Service::RcOwn | Service::Uc);
        let syndrome = rest.first_chunk().filter(|_| is_plain && has(Headers::AETH));
        let target = if !is_plain || has(Headers::FETH) {
            None
        } else if has(Headers::RETH) {
            rest.first_chunk().map(|bytes| {
                let Reth { address, rkey, length } = Reth::parse(bytes);
                Target { address, key: rkey, length: length.into() }
            })
        } else if has(Headers::ATOMIC_ETH) {
            rest.first_chunk().map(|bytes| {
                let AtomicEth { address, rkey, .. } = AtomicEth::parse(bytes);
                Target { address, key: rkey, length: 8 }
            })
        } else {
            None
        };
        let syndrome = syndrome.map(|bytes| Aeth::parse(bytes).syndrome);
        Some(Self { info, psn: bth.psn, syndrome, target })
    }

    pub(crate) fn is_request(&self) -> bool {
        self.info.role == Role::Request
    }
}
