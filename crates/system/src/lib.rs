//! Real cards: the machine's own `libibverbs.so.1`, looked for while the program runs.
//!
//! A program that was compiled with this crate runs on machines with and without RDMA: nothing of it is linked.
//! [`Library::load`] finds the library, or says why not; [`Library::cards`] lists what the machine has. The objects of a card
//! are those of verbs, and as safe: they hold what they need, so the order of dropping does not matter, and memory that
//! posted work names stays registered until that work is done.
//!
//! ```no_run
//! use std::sync::Arc;
//! use ferroce_system::{CardCompletion, Library, QueuePairOptions};
//! use ferroce_memory::Allocation;
//! use ferroce_transport::Access;
//! use ferroce_wire::Service;
//!
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let library = Library::load()?;
//! let card = library.cards()?.into_iter().next().ok_or("this machine has no card")?;
//! let context = card.open()?;
//! let domain = context.protection_domain()?;
//! let completions = context.completion_queue(128)?;
//! let qp = domain.queue_pair(&QueuePairOptions::new(Service::Rc, &completions))?;
//! let region = domain.register(&Allocation::zeroed(4096)?, Access::LOCAL_WRITE)?;
//! let mut done = [CardCompletion::EMPTY; 16];
//! let count = completions.poll(&mut done)?;
//! # let _ = (qp, region, count);
//! # Ok(())
//! # }
//! ```
//!
//! # What it sees to on cards
//!
//! - **Dropped regions.** A card knows memory by its key alone, and the library takes it away at once. So each queue has a
//!   shadow here, with a place for each request, which holds the regions, address handles and windows that the request
//!   names. The number that a card sees is that of the place.
//! - **Events are acknowledged as they are taken.** The library lets no object go while one of its events is not.
//! - **Optional access** is asked for where the library knows it (`ibv_reg_mr_iova2`), and left out elsewhere.
//! - **`retry_cnt` of 7** is for ever on the kernel's soft device: there it is 6.
//! - **Limits explain themselves**: memory that cannot be locked names the limit of the process, and how to raise it.
//! - **Forks**: where the library keeps the pages of registered memory from children, only memory is registered that has its
//!   pages for itself. A neighbour in a page would be missing in the child. In a child, objects of the parent refuse
//!   ([`CallError::FORKED`]), and dropping them forgets them.
//! - **Connections** by `librdmacm.so.1`, for queue pairs of the program: [`Library::connection_channel`]. That library is loaded
//!   when it is needed first.
//! - **Failing to destroy something** leaks it: a card that may still write to memory keeps that memory.
#![allow(
    unsafe_code,
    reason = "a home of unsafe code: every call goes to a library that was found at run time"
)]

mod address;
mod attributes;
mod card;
mod completion;
mod completion_channel;
mod completion_queue;
mod connection;
mod context;
mod dl;
mod domain;
mod error;
mod events;
mod fork;
mod handle;
mod held;
mod library;
mod members;
mod port;
mod post;
mod queue_pair;
mod region;
mod request;
mod shadow;
mod shared_receive_queue;
mod symbols;
mod window;
mod work;

pub use address::{Address, AddressHandle};
pub use attributes::QueuePairState;
pub use card::Card;
pub use completion::CardCompletion;
pub use completion_channel::CompletionChannel;
pub use completion_queue::{CompletionQueue, CompletionQueueOptions};
pub use connection::{
    ConnectionChannel, ConnectionEvent, ConnectionEventKind, ConnectionId, ConnectionParameters, Preparation,
};
pub use context::Context;
pub use domain::ProtectionDomain;
pub use error::{
    CallError, ConnectionError, MakeError, OpenCardError, PostWorkError, PostWorkListError, RegisterError,
};
pub use events::{CardEvent, Events, PortEvent, QueuePairEvent};
pub use library::{ForkCare, Library, LibraryError, LoaderMessage, Paths};
pub use port::{CardAttributes, GidEntry, Port};
pub use queue_pair::{QueuePair, QueuePairOptions, Sends};
pub use region::{MemoryRegion, Piece, RegisterOptions};
pub use shared_receive_queue::SharedReceiveQueue;
pub use window::{Binding, MemoryWindow};
pub use work::{Bytes, Destination, Operation, ReceiveWork, SendWork};
