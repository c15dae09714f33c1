//! RoCEv2 on the wire.
#![no_std]
#![forbid(unsafe_code)]

mod bytes;
pub mod describe;
mod error;
mod num;

pub use error::{BufferTooSmall, ParseError};
pub use num::{Gid, Lkey, Msn, PKey, Psn, QKey, Qpn, Rkey, Srqn};
