//! The safe verbs API: RDMA without `unsafe`.
//!
//! # The life of one RDMA WRITE
//!
//! ```
//! # use std::time::Duration;
//! # use ferroce_verbs::{Access, Context, Service};
//! # fn main() -> Result<(), Box<dyn std::error::Error>> {
//! let context = Context::builder("ferroce_lo").address([127, 0, 41, 1]).open()?;
//! let pd = context.protection_domain()?;
//! let cq = context.completion_queue(16)?;
//! let ann = pd.queue_pair(Service::Rc).completion_queue(&cq).build()?;
//! let bob = pd.queue_pair(Service::Rc).completion_queue(&cq).build()?;
//! ann.connect(&bob.local_address())?;
//! bob.connect(&ann.local_address())?;
//! let source = pd.register(b"ten lines".to_vec(), Access::empty())?;
//! let target = pd.allocate(4096, Access::LOCAL_WRITE | Access::REMOTE_WRITE)?;
//! ann.write(&source, target.remote()).id(5).post()?;
//! cq.wait(Duration::from_secs(5))?.result()?;
//! assert_eq!(target.to_vec(..9)?, b"ten lines");
//! # Ok(())
//! # }
//! ```
//!
//! 1. A [`Context`] is an open device: here the loopback interface, with one address of its own.
//! 2. A [`ProtectionDomain`] holds what may work together: queue pairs and memory.
//! 3. A [`CompletionQueue`] is where finished work is reported.
//! 4. A [`QueuePair`] is one end of a connection. Each end gives its [`QpAddress`] to the other one
//!    over any channel there is, and connects to what it got.
//! 5. A [`MemoryRegion`] is memory that work can name. Its [`RemoteRegion`] is what a peer must know to
//!    reach it; it goes to the peer like the address.
//! 6. [`QueuePair::write`] describes the work, and [`Work::post`] hands it to the device, which goes on by
//!    itself: it sends packets, and sends them again until the peer has acknowledged them.
//! 7. The [`Completion`] says that the bytes are in the peer's memory. The peer's program has not
//!    noticed: that is what RDMA is.
//!
//! # What the types see to
//!
//! - **Posting needs no `unsafe`.** Work names parts of regions ([`LocalSlice`]), and these borrow the
//!   region, so a region cannot go before the work is posted. After that, the device holds the memory
//!   until the work is done: see [`MemoryRegion`].
//! - **Memory is a place, not a slice.** Peers write it at any moment, so the program copies in and out.
//! - **The order of dropping does not matter.** Objects hold what they need.
//! - **Every object may be used by many threads.**
//! - **Errors say what to do.** A refused request has changed nothing; work that failed later is a
//!   [`WorkError`] with the next step.
//!
//! # Cards
//!
//! The device is our own, in this process, or a card of the machine: [`Context::open`] finds either by its name, and nothing
//! else in a program differs. What a card cannot do is a [`Capability`] that [`Context::can`] tells, and that the error names
//! where it was asked for all the same ([`Unsupported`]). See docs/cards.md.
//!
//! # Ways to hear of completions
//!
//! | way | for |
//! |---|---|
//! | [`CompletionQueue::poll`] | the lowest latency: never waits |
//! | [`CompletionQueue::wait`] | a thread of its own: sleeps, with a time limit |
//! | [`CompletionQueue::next`] | async programs, on any runtime |
//! | [`CompletionChannel`] | many queues, or a poll loop with other descriptors |
//! | [`Poller`] | a function that is called for each completion |
//! | [`CompletionQueue::sleep_for_any`] | a thread with many queues: sleeps, takes nothing off |
//! | [`CompletionQueue::poll_or_wake`] | executors: a waker that is called when something completes |
//!
//! Deadlines, and waiting for other things than completions, are in [`time`].
#![forbid(unsafe_code)]

mod abort_handle;
mod address_handle;
mod batch;
mod capability;
mod card;
pub mod cm;
mod completion_channel;
mod completion_queue;
mod connect;
mod context;
mod datagram;
mod device;
mod error;
mod events;
mod lent_memory;
mod local_slice;
mod memory;
mod memory_region;
mod memory_window;
mod object_error;
mod poller;
mod port;
pub mod processes;
mod protection_domain;
mod provider;
mod qp_address;
mod queue_pair;
mod queue_pair_builder;
pub mod ranges;
mod receive;
mod recording;
mod remote;
mod shared_receive_queue;
pub mod time;
mod wait;
mod work;

pub use abort_handle::AbortHandle;
pub use address_handle::AddressHandle;
pub use batch::Batch;
pub use capability::{Capability, Unsupported};
pub use card::event::AsyncEvent;
pub use card::kept::{KeepLimits, KeptRegions};
pub use card::registrations::{HotPlace, Registrations};
pub use completion_channel::CompletionChannel;
pub use completion_queue::{CompletionQueue, Haste, NextCompletion};
pub use connect::ConnectOptions;
pub use context::{Context, ContextBuilder, devices};
pub use datagram::{DatagramHeader, Reply, ReplyPort};
pub use error::{
    AccessError, BatchError, BuildError, CallError, CreateError, DiscoveryError, HeaderError, LibraryError,
    LoaderMessage, MemoryError, NicOpenError, OpenCardError, OpenError, ParseAddressError, PostError,
    PostTarget, QpConnectError, QpError, RegisterError, ReplyError, RouteError, SettingError, WaitError,
};
pub use events::Events;
pub use lent_memory::LentMemory;
pub use local_slice::{LocalSlice, Pieces};
pub use memory::Memory;
pub use memory_region::{DeregisterError, MemoryRegion, Reregistration};
pub use memory_window::{Binding, MemoryWindow, WindowBindError};
pub use poller::{Poller, PollerError};
pub use port::{DeviceAttributes, Port, PortState};
pub use protection_domain::ProtectionDomain;
pub use provider::{
    Card, CardInfo, Provider, ProviderChoice, ProviderReason, cards, open_card_towards, open_cards_at,
};
pub use qp_address::QpAddress;
pub use queue_pair::QueuePair;
pub use queue_pair_builder::QueuePairBuilder;
pub use receive::{Receive, ReceiveBatch};
pub use recording::{Recording, RecordingError};
pub use remote::{RemoteRegion, RemoteSlice};
pub use shared_receive_queue::SharedReceiveQueue;
pub use work::Work;

pub use ferroce_device::discovery::DeviceInfo;
pub use ferroce_device::fabric::capture::CaptureError;
pub use ferroce_device::fabric::faults::{FaultPlan, FaultPlanError};
pub use ferroce_device::fabric::udp::SocketError;
pub use ferroce_device::memory::WindowKind;
pub use ferroce_device::{
    AddressVector, Chain, ClockReading, CqId, DeviceCounters, DeviceReport, Limits, Notify, Path, PathChoice,
    PathError, PathErrorKind, PathPolicy, PathReason, PathReport, PortRefusal, QpReport, QpState, SourcePort,
    UnknownPolicy,
};
pub use ferroce_system::PortEvent;
pub use ferroce_transport::{
    Access, AttributeMask, Attributes, Caps, Classified, Completion, Completions, Counters, Denied, DomainId,
    Event, Level, MaskedAdd, MaskedSwap, ModifyError, PostError as PostRefusal, QpTotals, SharedQueueId,
    State, Status, Time, TimeSource, VendorCode, WorkError, WorkKind,
};
pub use ferroce_wire::{Gid, Lkey, PKey, PathMtu, Psn, QKey, Qpn, Rkey, Service};
