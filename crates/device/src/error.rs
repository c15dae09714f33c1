//! Why the device says no: lists of reasons, each with what was given, what is allowed and what to do.

use std::io;
use std::net::IpAddr;

use ferroce_fabric::capture::CaptureError;
use ferroce_fabric::faults::FaultPlanError;
use ferroce_fabric::udp;
use ferroce_fabric::{PortRefusal, UnknownPolicy};
use ferroce_memory::MemoryError;
use ferroce_record::RecordError;
use ferroce_switchboard::SwitchError;
use ferroce_transport::ModifyError;
use ferroce_wire::PKeyTableError;
use thiserror::Error;

use crate::discovery::DiscoveryError;

/// Why a device cannot be opened.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum NicOpenError {
    /// The interfaces cannot be listed, or the one that is wanted is not there.
    #[error(transparent)]
    Discovery(#[from] DiscoveryError),
    /// The socket cannot be opened.
    #[error(transparent)]
    Socket(#[from] udp::SocketError),
    /// The port cannot be shared with the processes that have it.
    #[error(transparent)]
    Switchboard(#[from] SwitchError),
    /// The address is not of this interface.
    #[error("{interface} does not have the address {address}; it has {has:?}")]
    ForeignAddress {
        /// The interface.
        interface: String,
        /// The address that was asked for.
        address: IpAddr,
        /// What it has.
        has: Vec<IpAddr>,
    },
    /// The process has this device open with other settings.
    #[error(
        "{interface} is open in this process with other settings; use the same settings, or close it first"
    )]
    OtherSettings {
        /// The interface.
        interface: String,
    },
    /// The capture file cannot be written.
    #[error(transparent)]
    Capture(#[from] CaptureError),
    /// What happens cannot be written down.
    #[error("what happens cannot be recorded")]
    Trace(#[from] RecordError),
    /// A variable of the environment does not mean anything.
    #[error(transparent)]
    Setting(#[from] SettingError),
    /// The operating system refused a thread, a descriptor or random numbers.
    #[error("the operating system refused {what}")]
    System {
        /// What.
        what: &'static str,
        /// Why.
        #[source]
        error: io::Error,
    },
}

impl NicOpenError {
    /// Whether a device at one address was asked for and another one has all addresses of the interface, or the other way
    /// round.
    #[must_use]
    pub const fn overlaps(&self) -> bool {
        matches!(self, Self::Switchboard(SwitchError::Overlap { .. }))
    }
}

/// A variable of the environment that does not mean anything.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SettingError {
    /// `FERROCE_FAULTS`.
    #[error("FERROCE_FAULTS is no plan of faults")]
    Faults(#[from] FaultPlanError),
    /// `FERROCE_PATH`.
    #[error("FERROCE_PATH is not understood")]
    Path(#[from] UnknownPolicy),
    /// `FERROCE_ADDRESS`.
    #[error("FERROCE_ADDRESS: {0:?} is no IP address")]
    Address(String),
    /// A variable that is a number.
    #[error("{name}: {given:?} is no number of bytes")]
    Number {
        /// The variable.
        name: &'static str,
        /// What it is.
        given: String,
    },
    /// `FERROCE_ENGINES`, or what a program asked for.
    #[error("FERROCE_ENGINES: {given:?} is no number of engines; between 1 and {most} are possible")]
    Engines {
        /// What it is.
        given: String,
        /// The most.
        most: usize,
    },
    /// `FERROCE_PKEYS`: not a list of numbers.
    #[error("FERROCE_PKEYS: {given:?} is no list of P_Keys, such as 0x8001,0x0002")]
    PKey {
        /// What it is.
        given: String,
    },
    /// `FERROCE_PKEYS`, or what a program asked for.
    #[error("these P_Keys make no table")]
    PKeys(#[from] PKeyTableError),
    /// A variable that counts something.
    #[error("{name}: {given:?} is no number from 1 on")]
    Count {
        /// The variable.
        name: &'static str,
        /// What it is.
        given: String,
    },
    /// A variable that is on or off.
    #[error("{name}: {given:?} is neither 1 (on) nor 0 (off)")]
    Switch {
        /// The variable.
        name: &'static str,
        /// What it is.
        given: String,
    },
}

/// Why an object cannot be made or changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NicCreateError {
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
}

impl NicCreateError {
    pub(crate) fn check(
        what: &'static str,
        given: impl Into<u64>,
        least: impl Into<u64>,
        most: impl Into<u64>,
    ) -> Result<(), Self> {
        let (given, least, most) = (given.into(), least.into(), most.into());
        if (least..=most).contains(&given) {
            Ok(())
        } else {
            Err(Self::OutOfBounds { what, given, least, most })
        }
    }
}

/// Why an address leads nowhere.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum RouteError {
    /// There is no such GID index.
    #[error("GID index {given}: the port has {len} GIDs, from index 0")]
    NoSuchGid {
        /// The index.
        given: usize,
        /// How many there are.
        len: usize,
    },
    /// Packets cannot leave from the source port that is required.
    #[error("packets cannot leave from UDP port {port}: {why}")]
    SourcePort {
        /// The port.
        port: u16,
        /// Why not.
        why: PortRefusal,
    },
    /// One address is IPv4, the other IPv6.
    #[error("from {local} to {remote}: both must be IPv4 or both IPv6; choose another GID index")]
    Families {
        /// Ours.
        local: IpAddr,
        /// The peer's.
        remote: IpAddr,
    },
    /// The destination is no host.
    #[error("{0} is no address of a host")]
    NotAHost(IpAddr),
    /// The destination is no multicast group.
    #[error("{0} is no multicast group")]
    NotAGroup(IpAddr),
    /// A loopback device reaches only this machine.
    #[error(
        "{remote} cannot be reached from {local}: the loopback device reaches this machine only; \
             open another with FERROCE_NETDEV"
    )]
    BeyondLoopback {
        /// Ours.
        local: IpAddr,
        /// The peer's.
        remote: IpAddr,
    },
}

/// Why a queue pair cannot be changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum NicQpError {
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
    PathNotAllowed(ferroce_fabric::PathChoice),
    /// The queue pair is gone.
    #[error("the queue pair does not exist any more")]
    Gone,
    /// This process was forked from the one that opened the device.
    #[error("the device was opened before a fork, and belongs to the parent; open it anew")]
    Forked,
}
