//! RDMA in userspace, without special hardware: a RoCEv2 network card of our own over plain UDP sockets.
//!
//! ```
//! use ferroce::{Access, Context, Service};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let context = Context::builder("ferroce_lo").address([127, 0, 46, 1]).open()?;
//! let pd = context.protection_domain()?;
//! let cq = context.completion_queue(16)?;
//! let ann = pd.queue_pair(Service::Rc).completion_queue(&cq).build()?;
//! let bob = pd.queue_pair(Service::Rc).completion_queue(&cq).build()?;
//! ann.connect(&bob.local_address())?;
//! bob.connect(&ann.local_address())?;
//! let memory = pd.allocate(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
//! ann.write_inline(b"hello, memory", memory.remote()).post()?;
//! cq.wait(None)?.result()?;
//! assert_eq!(memory.to_vec(..13)?, b"hello, memory");
//! # Ok(())
//! # }
//! ```
//!
//! What each line does is told in the documentation of [`QueuePair`], [`MemoryRegion`] and their friends.
//! The directory `examples` has whole programs: messages, datagrams, shared receive queues, completion
//! events and a counter that many add to.
#![forbid(unsafe_code)]

pub use ferroce_verbs::*;

/// The example of the README, so that it compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
