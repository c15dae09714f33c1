//! Transport headers: each with the same verbs, `parse`, `emit` and `LEN`.

mod aeth;
mod atomic;
mod bth;
mod deth;
mod feth;
mod grh;
mod immediate;
mod reth;
mod xrceth;

pub use aeth::{Aeth, CreditCode, NakCode, ReservedSyndrome, RnrTimer, Syndrome};
pub use atomic::{AtomicAckEth, AtomicEth, AtomicMasks};
pub use bth::Bth;
pub use deth::Deth;
pub use feth::{Feth, FlushPlacement, FlushScope};
pub use grh::{DatagramPrefix, Grh};
pub use immediate::{Ieth, Imm};
pub use reth::Reth;
pub use xrceth::Xrceth;

/// Length of the zero bytes that follow the BTH of a congestion notification (annex A17).
pub(crate) const CNP_RESERVED_LEN: usize = 16;
