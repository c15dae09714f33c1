//! Connections by address and port: the connection management of InfiniBand, as every RoCE card and the Linux
//! kernel speak it.
//!
//! ```
//! # use std::time::Duration;
//! # use ferroce_verbs::{Context, Service};
//! # use ferroce_verbs::cm::{self, CmOptions, Listener};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let context = Context::builder("ferroce_lo").address([127, 0, 42, 1]).open()?;
//! let pd = context.protection_domain()?;
//! let cq = context.completion_queue(16)?;
//! let (server, client) = (
//!     pd.queue_pair(Service::Rc).completion_queue(&cq).build()?,
//!     pd.queue_pair(Service::Rc).completion_queue(&cq).build()?,
//! );
//! let listener = Listener::bind(&context, 7174, 16)?;
//! let asking = cm::start_connect(([127, 0, 42, 1], 7174).into(), &client, &CmOptions::default())?;
//! let request = listener.accept(Duration::from_secs(5))?;
//! let served = request.accept(&server, &CmOptions::default().private_data(b"welcome"))?;
//! let connected = asking.wait()?;
//! assert_eq!(&connected.private_data()[..7], b"welcome");
//! connected.disconnect();
//! served.wait_disconnected(Duration::from_secs(5))?;
//! # Ok(())
//! # }
//! ```
//!
//! - The server has a [`Listener`], takes a [`ConnectRequest`] off it, and accepts or rejects it.
//! - The client calls [`connect`], or [`start_connect`] to do something else meanwhile.
//! - Both get an [`Established`]: the queue pair is in RTS. Dropping it ends the connection.
//! - Datagrams need no connection, only the number and the key of a queue pair: [`DatagramService`]
//!   offers one under a port, and [`resolve`] finds it. A program that answers each question itself has a
//!   [`DatagramListener`].
//! - A program that speaks connection management itself, or tests how others do, sends each message with
//!   [`send_mad`].
//!
//! Everything that waits has a limit, and a form that does not wait: a future, `poll_*`, or a descriptor.
//! What to hand over when connecting fits into the private data: 56 bytes with a request, 196 with its
//! acceptance, 148 with its rejection. The wire has no length for it, so what arrives is filled up with
//! zeros.

mod connecting;
mod datagram;
mod datagram_listener;
pub(crate) mod error;
pub(crate) mod established;
mod in_turn;
pub(crate) mod link;
pub(crate) mod listener;
mod mad;
pub(crate) mod options;
mod request;
pub(crate) mod steps;

pub use connecting::{Connecting, connect, start_connect};
pub use datagram::{DatagramPeer, DatagramService, Resolving, resolve, start_resolve};
pub use datagram_listener::{DatagramListener, DatagramRequest};
pub use error::{CmError, ListenError};
pub use established::{Disconnected, Established};
pub use listener::Listener;
pub use mad::send_mad;
pub use options::CmOptions;
pub use request::ConnectRequest;

pub use ferroce_device::switchboard::SwitchError;
pub use ferroce_transport::cm::{CmCounters, Refused as CmRefusal};
pub use ferroce_wire::mad::{MAD_LEN, PortSpace, RejectReason, ServiceId, SidrStatus};

/// The page about connections, so that its program compiles and runs.
#[cfg(doctest)]
#[doc = include_str!("../../../../docs/connections.md")]
struct Page;
