//! Probes of a RoCE network as pure state machines.
//!
//! Nothing here touches a socket, a clock, a thread or a random number: times, numbers and packets are passed in, so
//! the same code runs over queue pairs and over a simulated network.
//!
//! - [`packet`]: the 40 bytes of a probe and of its two answers.
#![forbid(unsafe_code)]

pub mod packet;
mod stamp;

pub use packet::{Kind, Packet, Ports, ProbePacketError, Sequence};
pub use stamp::{Stamp, StampSource};
