//! Which way the packets of a queue pair take, and what decides it.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// Which paths packets may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PathPolicy {
    /// Take the shortest path that is possible: local, shared, wire.
    #[default]
    Prefer,
    /// Take the local path or the shared one, or refuse to connect.
    Require,
    /// Take the shared path, also where the local one is possible, or refuse to connect.
    Shared,
    /// Everything goes over the network.
    Forbid,
}

/// What `FERROCE_PATH` may not be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} is no path policy; use prefer (or auto), require (or local), shared, or forbid (or wire)")]
pub struct UnknownPolicy(String);

impl FromStr for PathPolicy {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        match text {
            "prefer" | "auto" | "" => Ok(Self::Prefer),
            "require" | "local" => Ok(Self::Require),
            "shared" => Ok(Self::Shared),
            "forbid" | "wire" => Ok(Self::Forbid),
            other => Err(UnknownPolicy(other.to_owned())),
        }
    }
}

/// A way that packets take.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Path {
    /// None: the peer is in this process, and work is done directly.
    Local,
    /// Through memory that this process shares with that of the peer.
    Shared,
    /// RoCEv2 over UDP.
    Wire,
}

/// A path, and why it was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PathChoice {
    /// The path.
    pub path: Path,
    /// Why.
    pub reason: PathReason,
}

/// Why a path was taken.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PathReason {
    /// The peer's address and queue pair number are of this process.
    PeerIsHere,
    /// The peer's process is on this machine, and has memory in common with this one.
    PeerIsNear,
    /// The peer's address is not of this device.
    OtherAddress,
    /// The peer's address is of this device, but the queue pair number is not of this process.
    OtherProcess,
    /// The peer's process is on this machine, and has no memory in common with this one.
    NotShared(NotShared),
    /// Other paths are forbidden.
    Forbidden,
    /// Faults are injected or packets captured, and only the wire has those.
    Middleware,
}

/// Why a process has no memory in common with another one of this machine.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[non_exhaustive]
pub enum NotShared {
    /// It is switched off in this process (`FERROCE_SHARED=0`, `FERROCE_PATH=forbid`).
    SwitchedOff,
    /// No process has the queue pair number.
    NoOwner,
    /// The other process does not take part, or its settings do not allow it.
    Refused,
    /// This process takes no descriptors from others: its user, or its system, does not allow it.
    Unfit,
    /// The other process speaks another version.
    OtherVersion,
    /// The other process has not answered in time.
    NoAnswer,
    /// The other process went.
    Gone,
    /// What the other process gave is not what it should be.
    Broken,
    /// No descriptor is left (`ulimit -n`).
    NoDescriptors,
    /// No memory is left.
    NoMemory,
    /// Files of this process may not be so long (`ulimit -f`).
    FileLimit,
    /// The system does not let this process make files in memory.
    SystemForbids,
    /// The system refused something else.
    System,
}

impl NotShared {
    const fn words(self) -> &'static str {
        match self {
            Self::SwitchedOff => {
                "sharing memory is switched off in this process (FERROCE_SHARED, FERROCE_PATH)"
            }
            Self::NoOwner => "no process of this machine has the peer's queue pair number",
            Self::Refused => "the peer's process takes no part in sharing memory",
            Self::Unfit => "the user or the system of this process does not allow to share memory",
            Self::OtherVersion => "the peer's process has another version of Ferroce",
            Self::NoAnswer => "the peer's process did not answer; is it stopped?",
            Self::Gone => "the peer's process went",
            Self::Broken => "the peer's process broke the rules of sharing memory",
            Self::NoDescriptors => "no descriptor is left to share memory with; raise `ulimit -n`",
            Self::NoMemory => "no memory is left to share",
            Self::FileLimit => "files of this process may not be so long; raise `ulimit -f`",
            Self::SystemForbids => "memfd_create is forbidden here, which sharing memory needs",
            Self::System => "the operating system refused to share memory",
        }
    }
}

impl fmt::Display for PathChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = match self.path {
            Path::Local => "local",
            Path::Shared => "shared",
            Path::Wire => "wire",
        };
        let reason = match self.reason {
            PathReason::PeerIsHere => "the peer is in this process",
            PathReason::PeerIsNear => "the peer's process shares memory with this one",
            PathReason::OtherAddress => "the peer's address is not of this device",
            PathReason::OtherProcess => "the peer's queue pair is not of this process",
            PathReason::NotShared(why) => why.words(),
            PathReason::Forbidden => "other paths are forbidden",
            PathReason::Middleware => "packets are captured or faults injected",
        };
        write!(f, "{path}: {reason}")
    }
}
