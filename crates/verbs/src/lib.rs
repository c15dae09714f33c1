//! The safe verbs API.
#![forbid(unsafe_code)]

mod address_handle;
mod batch;
mod completion;
mod completion_channel;
mod completion_queue;
mod connect;
mod context;
mod error;
mod events;
mod local_slice;
mod memory;
mod memory_region;
mod poller;
mod port;
mod protection_domain;
mod qp_address;
mod queue_pair;
mod queue_pair_builder;
mod receive;
mod remote;
mod shared_receive_queue;
mod wait;
mod work;

pub use address_handle::{AddressHandle, DatagramHeader};
pub use batch::Batch;
pub use completion::{Classified, Completion, WorkError};
pub use completion_channel::CompletionChannel;
pub use completion_queue::{CompletionQueue, NextCompletion};
pub use connect::ConnectOptions;
pub use context::{Context, ContextBuilder, devices};
pub use error::{
    AccessError, AddressError, BatchError, BuildError, ConnectError, CreateError, DiscoveryError,
    HeaderError, MemoryError, OpenError, ParseAddressError, PostError, PostTarget, SettingError, WaitError,
};
pub use events::Events;
pub use local_slice::{LocalSlice, Pieces};
pub use memory::Memory;
pub use memory_region::{DeregisterError, MemoryRegion};
pub use poller::{Poller, PollerError};
pub use port::{DeviceAttributes, Port, PortState};
pub use protection_domain::ProtectionDomain;
pub use qp_address::QpAddress;
pub use queue_pair::QueuePair;
pub use queue_pair_builder::QueuePairBuilder;
pub use receive::Receive;
pub use remote::{RemoteRegion, RemoteSlice};
pub use shared_receive_queue::SharedReceiveQueue;
pub use work::Work;

pub use ferroce_device::discovery::DeviceInfo;
pub use ferroce_device::fabric::faults::{FaultPlan, FaultPlanError};
pub use ferroce_device::{
    AddressVector, AsyncEvent, CqId, DeviceCounters, Notify, Path, PathChoice, PathPolicy, PathReason,
    QpError, QpState,
};
pub use ferroce_transport::{
    Access, AttributeMask, Attributes, Caps, Counters, DomainId, Event, ModifyError,
    PostError as RefusedError, SharedQueueId, State, Status, Time, WorkKind,
};
pub use ferroce_wire::{Gid, Lkey, PKey, PathMtu, Psn, QKey, Qpn, Rkey, Service};
