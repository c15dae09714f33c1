//! RDMA in userspace, without special hardware: a RoCEv2 network card of our own over plain UDP sockets.
//!
//! Messages, memory and streams between two machines are in [`endpoint`], and need no knowledge of RDMA:
//!
//! ```
//! use ferroce::endpoint::{Connection, Listener};
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let listener = Listener::bind("127.0.46.2:7471")?;
//! let client = std::thread::spawn(|| {
//!     let connection = Connection::connect("127.0.46.2:7471").wait().unwrap();
//!     connection.send(b"hello, peer").wait().unwrap();
//! });
//! let connection = listener.accept().wait()?;
//! assert_eq!(connection.recv().wait()?.unwrap(), b"hello, peer");
//! # client.join().unwrap();
//! # Ok(())
//! # }
//! ```
//!
//! A mesh of servers in which every member talks to every other is in [`broker`].
//!
//! Everything else here is the verbs API: full control, without `unsafe`.
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

pub use ferroce_broker as broker;
pub use ferroce_endpoint as endpoint;
pub use ferroce_verbs::*;

/// The page on the broker, so that its programs compile and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/broker.md")]
struct Brokers;

/// The page on the pool, so that its programs compile and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/pool.md")]
struct Pools;

/// The page on cards, so that its program compiles.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/cards.md")]
struct Cards;

/// The page on endpoints, so that its programs compile and run.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/endpoints.md")]
struct Endpoints;

/// The page on errors, so that its program compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../../../docs/errors.md")]
struct Errors;

/// The example of the README, so that it compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../../../README.md")]
struct Readme;
