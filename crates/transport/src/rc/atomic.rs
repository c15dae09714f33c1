//! Atomics between the wire and the host: the four with a value as their answer.

use ferroce_wire::{AtomicEth, AtomicMasks, Request, Rkey};

use crate::host::AtomicOp;
use crate::work::{MaskedAdd, MaskedSwap, SendOp};

/// An atomic whose answer is the value that was there before.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Atomic {
    pub(crate) rkey: Rkey,
    pub(crate) address: u64,
    pub(crate) op: AtomicOp,
}

impl Atomic {
    /// The atomic that this packet asks for.
    pub(crate) const fn requested<P>(request: &Request<P>) -> Option<Self> {
        let (eth, op) = match request {
            Request::CompareSwap(eth) => {
                (eth, AtomicOp::CompareSwap { compare: eth.compare, swap: eth.swap_or_add })
            }
            Request::FetchAdd(eth) => (eth, AtomicOp::FetchAdd(eth.swap_or_add)),
            Request::MaskedCompareSwap(eth, masks) => {
                let swap = MaskedSwap {
                    compare: eth.compare,
                    compare_mask: masks.compare,
                    swap: eth.swap_or_add,
                    swap_mask: masks.swap_or_add,
                };
                (eth, AtomicOp::MaskedCompareSwap(swap))
            }
            Request::MaskedFetchAdd(eth, masks) => {
                let add = MaskedAdd { add: eth.swap_or_add, boundaries: masks.swap_or_add };
                (eth, AtomicOp::MaskedFetchAdd(add))
            }
            _ => return None,
        };
        Some(Self { rkey: eth.rkey, address: eth.address, op })
    }

    /// The atomic that this work is.
    pub(crate) const fn posted(op: &SendOp) -> Option<Self> {
        let (remote, op) = match *op {
            SendOp::CompareSwap { remote, compare, swap } => {
                (remote, AtomicOp::CompareSwap { compare, swap })
            }
            SendOp::FetchAdd { remote, add } => (remote, AtomicOp::FetchAdd(add)),
            SendOp::MaskedCompareSwap { remote, swap } => (remote, AtomicOp::MaskedCompareSwap(swap)),
            SendOp::MaskedFetchAdd { remote, add } => (remote, AtomicOp::MaskedFetchAdd(add)),
            _ => return None,
        };
        Some(Self { rkey: remote.rkey, address: remote.address, op })
    }

    /// The packet that asks for it; none for a store, which has another form.
    pub(crate) fn request<P>(&self) -> Option<Request<P>> {
        let eth =
            |swap_or_add, compare| AtomicEth { address: self.address, rkey: self.rkey, swap_or_add, compare };
        Some(match self.op {
            AtomicOp::CompareSwap { compare, swap } => Request::CompareSwap(eth(swap, compare)),
            AtomicOp::FetchAdd(add) => Request::FetchAdd(eth(add, 0)),
            AtomicOp::MaskedCompareSwap(MaskedSwap { compare, compare_mask, swap, swap_mask }) => {
                let masks = AtomicMasks { swap_or_add: swap_mask, compare: compare_mask };
                Request::MaskedCompareSwap(eth(swap, compare), masks)
            }
            AtomicOp::MaskedFetchAdd(MaskedAdd { add, boundaries }) => {
                let masks = AtomicMasks { swap_or_add: boundaries, compare: 0 };
                Request::MaskedFetchAdd(eth(add, 0), masks)
            }
            AtomicOp::Store(_) => return None,
        })
    }
}
