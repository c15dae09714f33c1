//! Why an object of a device cannot be made or changed, whichever kind of device it is.

use std::io;
use std::net::IpAddr;

use ferroce_device::{NicCreateError, NicQpError, PathChoice};
use ferroce_system::{MakeError, RegisterError};
use ferroce_transport::ModifyError;
use thiserror::Error;

use crate::capability::{Capability, Unsupported};
use crate::error::{CallError, MemoryError, RouteError};

/// Why an object cannot be made or changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum CreateError {
    /// Something else records the device.
    #[error("the device is recorded already; one record at a time")]
    Recorded,
    /// A number outside of its bounds.
    #[error("{given} {what}: between {least} and {most} are possible")]
    OutOfBounds {
        /// What it counts.
        what: &'static str,
        /// What was asked for.
        given: u64,
        /// The least.
        least: u64,
        /// The most.
        most: u64,
    },
    /// The device has as many as it can.
    #[error("the device has {allowed} {what}, and no more are possible; destroy some first")]
    TooMany {
        /// What.
        what: &'static str,
        /// How many.
        allowed: usize,
    },
    /// The protection domain does not exist.
    #[error("no such protection domain; it was made on another device, or is gone")]
    UnknownDomain,
    /// Objects of different devices do not work together.
    #[error("the {what} belongs to another device; use one made from the same context")]
    OtherDevice {
        /// What.
        what: &'static str,
    },
    /// Objects of different protection domains do not work together.
    #[error("the {what} belongs to another protection domain")]
    OtherDomain {
        /// What.
        what: &'static str,
    },
    /// Only datagrams are stamped.
    #[error("completions with the kernel's times are for datagrams: a {given} queue pair has none")]
    OnlyDatagramsStamped {
        /// The service that was asked for.
        given: &'static str,
    },
    /// The network tells no times.
    #[error("the network does not tell when packets leave and come: {why}")]
    NoStamps {
        /// What the system said.
        why: String,
    },
    /// The service is none that a program can have queue pairs of.
    #[error("queue pairs of the service {given} are not supported; RC, UC and UD are")]
    NoSuchService {
        /// Its name.
        given: &'static str,
    },
    /// Only datagram queue pairs belong to multicast groups.
    #[error("a queue pair of the service {given} cannot belong to a multicast group; one of UD can")]
    NotADatagramQueue {
        /// Its service.
        given: &'static str,
    },
    /// The queue pair does not belong to the group.
    #[error("the queue pair is not attached to {group}")]
    NotAttached {
        /// The group.
        group: IpAddr,
    },
    /// The operating system does not let this process listen to a group.
    #[error("the operating system refused to listen to {group}: {kind}")]
    GroupRefused {
        /// The group.
        group: IpAddr,
        /// Why.
        kind: io::ErrorKind,
    },
    /// Memory cannot be registered.
    #[error(transparent)]
    Memory(#[from] MemoryError),
    /// The destination cannot be reached from here.
    #[error(transparent)]
    Address(#[from] RouteError),
    /// The operating system has no more descriptors.
    #[error("the operating system refused a descriptor: {0}")]
    Descriptor(io::ErrorKind),
    /// This process was forked from the one that opened the device.
    #[error("the device was opened before a fork, and belongs to the parent; open it anew")]
    Forked,
    /// The soft device refused for a reason that has no name here.
    #[error(transparent)]
    Nic(NicCreateError),
    /// The card, or its library, refused.
    #[error(transparent)]
    Card(CallError),
    /// An address of the program's choice that no page of a card can have.
    #[error(
        "a card cannot call the byte at 0x{own:x} 0x{chosen:x}: both must lie at the same place of their pages of 4096 bytes"
    )]
    OtherPlaceInPage {
        /// The address that was asked for.
        chosen: u64,
        /// The address of the byte.
        own: u64,
    },
    /// A card did not register memory.
    #[error(transparent)]
    CardMemory(RegisterError),
    /// The device cannot do this.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
}

impl From<NicCreateError> for CreateError {
    fn from(error: NicCreateError) -> Self {
        use NicCreateError as Nic;
        match error {
            Nic::Recorded => Self::Recorded,
            Nic::OutOfBounds { what, given, least, most } => Self::OutOfBounds { what, given, least, most },
            Nic::TooMany { what, allowed } => Self::TooMany { what, allowed },
            Nic::UnknownDomain => Self::UnknownDomain,
            Nic::OtherDevice { what } => Self::OtherDevice { what },
            Nic::OtherDomain { what } => Self::OtherDomain { what },
            Nic::OnlyDatagramsStamped { given } => Self::OnlyDatagramsStamped { given },
            Nic::NoStamps { why } => Self::NoStamps { why },
            Nic::NoSuchService { given } => Self::NoSuchService { given },
            Nic::NotADatagramQueue { given } => Self::NotADatagramQueue { given },
            Nic::NotAttached { group } => Self::NotAttached { group },
            Nic::GroupRefused { group, kind } => Self::GroupRefused { group, kind },
            Nic::Memory(error) => Self::Memory(error),
            Nic::Address(error) => Self::Address(error),
            Nic::Descriptor(kind) => Self::Descriptor(kind),
            Nic::Forked => Self::Forked,
            other => Self::Nic(other),
        }
    }
}

impl From<CallError> for CreateError {
    fn from(error: CallError) -> Self {
        if error.is_fork() { Self::Forked } else { Self::Card(error) }
    }
}

impl From<MakeError> for CreateError {
    fn from(error: MakeError) -> Self {
        match error {
            MakeError::OtherCard { what } => Self::OtherDevice { what },
            MakeError::OtherService { service } => Self::NoSuchService { given: service.name() },
            MakeError::TooLarge { what, given, allowed } => {
                Self::OutOfBounds { what, given, least: 0, most: allowed }
            }
            MakeError::Refused(error) => error.into(),
            _ => Self::UnknownDomain,
        }
    }
}

impl From<RegisterError> for CreateError {
    fn from(error: RegisterError) -> Self {
        match error {
            RegisterError::Outside { start, end, size } => {
                let len = end.saturating_sub(start);
                Self::Memory(MemoryError::OutsideAllocation { offset: start, len, size })
            }
            RegisterError::NoLocalWrite { access } => Self::Memory(MemoryError::NeedsLocalWrite { access }),
            RegisterError::ReadOnly { access } => Self::Memory(MemoryError::ReadOnly { access }),
            RegisterError::NoChosenAddress { .. } => Self::Unsupported(Capability::PhysicalWindows.into()),
            RegisterError::Refused(error) => error.into(),
            other => Self::CardMemory(other),
        }
    }
}

/// Why a queue pair cannot be changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum QpError {
    /// The change is not legal.
    #[error(transparent)]
    Modify(#[from] ModifyError),
    /// The destination leads nowhere.
    #[error(transparent)]
    Address(#[from] RouteError),
    /// The address vector is missing, although the attribute is announced.
    #[error("the change to RTR needs the address of the peer")]
    NoAddress,
    /// The path MTU does not fit the interface.
    #[error("path MTU {given} does not fit an interface of MTU {interface}: at most {most}")]
    MtuTooLarge {
        /// Asked for.
        given: usize,
        /// Of the interface.
        interface: u32,
        /// What fits.
        most: usize,
    },
    /// The policy of the queue pair does not allow the only path that there is.
    #[error("its policy does not allow the path that there is ({0})")]
    PathNotAllowed(PathChoice),
    /// The queue pair is gone.
    #[error("the queue pair does not exist any more")]
    Gone,
    /// This process was forked from the one that opened the device.
    #[error("the device was opened before a fork, and belongs to the parent; open it anew")]
    Forked,
    /// The soft device refused for a reason that has no name here.
    #[error(transparent)]
    Nic(NicQpError),
    /// The card, or its library, refused.
    #[error(transparent)]
    Card(CallError),
    /// The device cannot do this.
    #[error(transparent)]
    Unsupported(#[from] Unsupported),
}

impl From<NicQpError> for QpError {
    fn from(error: NicQpError) -> Self {
        use NicQpError as Nic;
        match error {
            Nic::Modify(error) => Self::Modify(error),
            Nic::Address(error) => Self::Address(error),
            Nic::NoAddress => Self::NoAddress,
            Nic::MtuTooLarge { given, interface, most } => Self::MtuTooLarge { given, interface, most },
            Nic::PathNotAllowed(choice) => Self::PathNotAllowed(choice),
            Nic::Gone => Self::Gone,
            Nic::Forked => Self::Forked,
            other => Self::Nic(other),
        }
    }
}

impl From<CallError> for QpError {
    fn from(error: CallError) -> Self {
        if error.is_fork() { Self::Forked } else { Self::Card(error) }
    }
}
