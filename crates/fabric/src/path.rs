//! Which way the packets of a queue pair take, and what decides it.

use std::fmt;
use std::str::FromStr;

use thiserror::Error;

/// What is wanted of the local path: both queue pairs in this process, and no packets at all.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum PathPolicy {
    /// Take it where it is possible.
    #[default]
    Prefer,
    /// Take it, or refuse to connect.
    Require,
    /// Never take it: everything goes over the network.
    Forbid,
}

/// What `FERROCE_PATH` may not be.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[error("{0:?} is no path policy; use prefer (or auto), require (or local), or forbid (or wire)")]
pub struct UnknownPolicy(String);

impl FromStr for PathPolicy {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        match text {
            "prefer" | "auto" | "" => Ok(Self::Prefer),
            "require" | "local" => Ok(Self::Require),
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
    /// The peer's address is not of this device.
    OtherAddress,
    /// The peer's address is of this device, but the queue pair number is not of this process.
    OtherProcess,
    /// The local path is forbidden.
    Forbidden,
    /// Faults are injected or packets captured, and the local path has none.
    Middleware,
}

impl fmt::Display for PathChoice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let path = match self.path {
            Path::Local => "local",
            Path::Wire => "wire",
        };
        let reason = match self.reason {
            PathReason::PeerIsHere => "the peer is in this process",
            PathReason::OtherAddress => "the peer's address is not of this device",
            PathReason::OtherProcess => "the peer's queue pair is not of this process",
            PathReason::Forbidden => "the local path is forbidden",
            PathReason::Middleware => "packets are captured or faults injected",
        };
        write!(f, "{path}: {reason}")
    }
}
