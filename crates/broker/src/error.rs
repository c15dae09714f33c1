//! What can go wrong: lists of reasons, with the values of both sides.

use std::fmt;
use std::net::IpAddr;
use std::time::Duration;

use ferroce_verbs::cm::{CmError, ListenError};
use ferroce_verbs::{
    AccessError, BuildError, Chain, CreateError, OpenError, PostError, QpConnectError, QpError, Status,
};
use thiserror::Error;

use crate::members::Member;
use crate::secret::SecretError;

/// Why something could not be done. Nothing has changed.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BrokerError {
    /// No member of the mesh has this number.
    #[error("there is no member {peer} in the mesh")]
    UnknownPeer {
        /// What was given.
        peer: u32,
    },
    /// A member has no connection to itself.
    #[error("member {me} cannot talk to itself")]
    Myself {
        /// Our own number.
        me: u32,
    },
    /// There is no room now. Trying again later helps.
    #[error("member {peer}: {full}")]
    WouldBlock {
        /// The member.
        peer: u32,
        /// What is full.
        full: Full,
    },
    /// There was no room for so long.
    #[error("member {peer}: within {after:?}, {full}")]
    TimedOut {
        /// The member.
        peer: u32,
        /// How long.
        after: Duration,
        /// What is full.
        full: Full,
    },
    /// The member is not connected now.
    #[error("member {peer} is not there: {why}")]
    Gone {
        /// The member.
        peer: u32,
        /// Since when it is gone, in a manner of speaking.
        why: Why,
    },
    /// A message longer than the mesh carries.
    #[error(
        "{given} bytes to member {peer}; messages have at most {allowed}. Raise max_message on all members"
    )]
    TooLong {
        /// The member.
        peer: u32,
        /// Bytes given.
        given: usize,
        /// Bytes allowed.
        allowed: usize,
    },
    /// The member has exposed nothing under this number.
    #[error("member {peer} exposes no region {region}")]
    UnknownRegion {
        /// The member.
        peer: u32,
        /// What was asked for.
        region: u32,
    },
    /// The work does not stay inside of the member's region.
    #[error(
        "{len} bytes at {at:#x} are not inside region {region} of member {peer}, which has {size} from {start:#x} on"
    )]
    OutsideRegion {
        /// The member.
        peer: u32,
        /// Which region.
        region: u32,
        /// Where the work begins: an offset, or an address.
        at: u64,
        /// Bytes of the work.
        len: u64,
        /// Where the region begins, counted the same way.
        start: u64,
        /// Bytes of the region.
        size: u64,
    },
    /// An atomic works on eight bytes.
    #[error("an atomic brings eight bytes, and the local piece has {given}")]
    NotEight {
        /// Bytes given.
        given: usize,
    },
    /// Bytes outside of a buffer.
    #[error(transparent)]
    Access(#[from] AccessError),
    /// A function of the program panicked. What it was called for counts as done.
    #[error("the function that was called for member {peer} panicked")]
    Panicked {
        /// The member that it was called for.
        peer: u32,
    },
    /// Immediate data, with work that carries none.
    #[error("immediate data goes with messages and WRITEs, not with READs and atomics")]
    NoImm,
}

impl BrokerError {
    /// Whether the same may succeed a moment later.
    #[must_use]
    pub const fn is_would_block(&self) -> bool {
        matches!(self, Self::WouldBlock { .. })
    }
}

/// What has no room.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Full {
    /// As much work is under way as the ring has places.
    Ring {
        /// Places.
        ring: u32,
    },
    /// The member has as many messages waiting as it has room for: its program has to poll.
    Peer {
        /// Messages that it has room for.
        room: u32,
    },
    /// Work that is done waits to be polled.
    Unpolled {
        /// Places.
        ring: u32,
    },
}

impl fmt::Display for Full {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Ring { ring } => {
                write!(f, "all {ring} places of the ring are under way; poll, and try again")
            }
            Self::Peer { room } => {
                write!(f, "it has not taken the last {room} messages off; try again when it has")
            }
            Self::Unpolled { ring } => {
                write!(f, "all {ring} places of the ring are done and wait for poll_sends")
            }
        }
    }
}

/// Why a member is not there.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Why {
    /// It has not been there yet.
    NotYet,
    /// It said goodbye.
    Left,
    /// It does not answer any more, or a request was refused: with what.
    Lost(Status),
    /// It came back without having said goodbye.
    CameBack,
    /// We have left.
    LeftHere,
}

impl fmt::Display for Why {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NotYet => f.write_str("it has not been there yet"),
            Self::Left => f.write_str("it left"),
            Self::Lost(status) => write!(f, "the connection was lost ({status})"),
            Self::CameBack => f.write_str("it came back without having left"),
            Self::LeftHere => f.write_str("this member left"),
        }
    }
}

/// Why work that was posted has not been done.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum WorkFailure {
    /// It failed; a failure ends the connection, and the broker makes a new one.
    #[error("{0}")]
    Failed(Status),
    /// It had not begun, or it is not known how far it came, when the connection ended.
    #[error("the connection ended before it was done")]
    Ended,
    /// The device refused it.
    #[error(transparent)]
    Refused(PostError),
}

/// Why two members do not work together. Each names what both sides have.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum MemberRefusal {
    /// It cannot be reached, as far as is known.
    #[error(transparent)]
    Unreached(#[from] CmError),
    /// What answers or asks there is no broker.
    #[error("what speaks there is not a broker")]
    NoBroker,
    /// It speaks another version.
    #[error("it speaks version {there} of the broker's protocol, and this member version {here}")]
    Version {
        /// Ours.
        here: u16,
        /// Its.
        there: u16,
    },
    /// A request in the name of a member came from an address that is not the member's.
    #[error(
        "a request in the name of {member} came from {from}; a member asks from its address on the list, so \
         correct the list, or see what runs at {from}"
    )]
    ForeignAddress {
        /// The member in whose name it was, with its address on the list.
        member: Member,
        /// Where the request came from.
        from: IpAddr,
    },
    /// One has a secret, the other has none.
    #[error("{} here, and {} there", secret(*here), secret(*there))]
    SecretMissing {
        /// Whether we have one.
        here: bool,
        /// Whether it has one.
        there: bool,
    },
    /// Its secret is not ours.
    #[error("the secret of member {there} is not that of member {here}")]
    WrongSecret {
        /// Our number.
        here: u32,
        /// Its number.
        there: u32,
    },
    /// Another member is at its address.
    #[error("member {asked} was asked for, and member {found} is there")]
    OtherMember {
        /// The member that the asking side meant.
        asked: u32,
        /// The member that is there.
        found: u32,
    },
    /// Lanes are counted differently.
    #[error("it is lane {there} that listens there, and lane {here} asks")]
    Lane {
        /// Ours.
        here: u8,
        /// Its.
        there: u8,
    },
    /// The lists of members differ: only one side has this member.
    #[error("{member} is on the list {}, and not on the other", if *here { "here" } else { "there" })]
    Unlisted {
        /// The member.
        member: Member,
        /// Whether it is our list that has it.
        here: bool,
    },
    /// The lists of members differ: one member has two addresses.
    #[error("{here} is at {} according to the list there", there.address)]
    OtherAddress {
        /// As we know it.
        here: Member,
        /// As the other side knows it.
        there: Member,
    },
    /// Messages have different limits.
    #[error(
        "messages have at most {here} bytes here and {there} there; give all members the same max_message"
    )]
    MaxMessage {
        /// Ours.
        here: u32,
        /// Its.
        there: u32,
    },
    /// A region that we need is too small, or not there at all.
    #[error("region {region} has {there} bytes there, and {needed} are needed here")]
    RegionTooSmall {
        /// Which.
        region: u32,
        /// Bytes that we need.
        needed: u64,
        /// Bytes that it has; 0 if it exposes none.
        there: u64,
    },
    /// It asks, and should wait until it is asked.
    #[error("member {there} asks member {here}; of two members the one with the larger number asks")]
    OutOfTurn {
        /// Our number.
        here: u32,
        /// Its number.
        there: u32,
    },
    /// More requests than are answered at a time. It may ask again.
    #[error("{most} handshakes that others have begun are under way, and no more are; it may ask again")]
    TooMany {
        /// Handshakes at a time, in all or of one member.
        most: usize,
    },
    /// What it said makes no sense.
    #[error("its hello cannot be read ({0})")]
    Malformed(&'static str),
    /// It did not say all that it should in time.
    #[error("it did not finish the handshake in time")]
    Silent,
    /// It ended the connection during the handshake.
    #[error("it ended the connection during the handshake")]
    HungUp,
    /// Our own device refused something.
    #[error(transparent)]
    Here(#[from] BrokerSetupError),
}

const fn secret(is_set: bool) -> &'static str {
    if is_set { "a secret is set" } else { "no secret is set" }
}

impl MemberRefusal {
    /// Whether waiting does not help, because the version or a setting of a member has to change.
    pub(crate) const fn is_definite(&self) -> bool {
        matches!(
            self,
            Self::Version { .. }
                | Self::ForeignAddress { .. }
                | Self::SecretMissing { .. }
                | Self::WrongSecret { .. }
                | Self::OtherMember { .. }
                | Self::Lane { .. }
                | Self::Unlisted { .. }
                | Self::OtherAddress { .. }
                | Self::MaxMessage { .. }
                | Self::RegionTooSmall { .. }
        )
    }

    /// Whether it was found in a hello, which only members can say if there is a secret.
    pub(crate) const fn is_from_hello(&self) -> bool {
        matches!(
            self,
            Self::Unlisted { .. }
                | Self::OtherAddress { .. }
                | Self::MaxMessage { .. }
                | Self::RegionTooSmall { .. }
        )
    }
}

/// Why the device did not give what a broker needs.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum BrokerSetupError {
    /// An object.
    #[error(transparent)]
    Create(#[from] CreateError),
    /// A queue pair.
    #[error(transparent)]
    Build(#[from] BuildError),
    /// A change of a queue pair.
    #[error(transparent)]
    QueuePair(#[from] QpError),
    /// A receive.
    #[error(transparent)]
    Post(#[from] PostError),
    /// Datagrams.
    #[error(transparent)]
    Connect(#[from] QpConnectError),
    /// Bytes of its own memory.
    #[error(transparent)]
    Access(#[from] AccessError),
}

/// Why a broker did not start.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum StartError {
    /// We are not a member.
    #[error("member {me} is not on the list {members}")]
    NotListed {
        /// The number given.
        me: u32,
        /// The list.
        members: String,
    },
    /// A setting is outside of what is possible.
    #[error("{what} is {given}; {least} to {most} are possible")]
    Setting {
        /// Which.
        what: &'static str,
        /// What was given.
        given: u64,
        /// The least.
        least: u64,
        /// The most.
        most: u64,
    },
    /// The secret is one that could be guessed, or was not copied whole.
    #[error(transparent)]
    Secret(#[from] SecretError),
    /// Two regions have one number.
    #[error("two regions are exposed as {region}; give each its own number")]
    DuplicateRegion {
        /// The number.
        region: u32,
    },
    /// No device has our address.
    #[error("no device of this machine has the address of {me}; see FERROCE_NETDEV")]
    NoDevice {
        /// Us.
        me: Member,
    },
    /// The domain or the regions are of another device than the context.
    #[error("a protection domain was given without its context; give both with `device`")]
    NoContext,
    /// The device cannot be opened.
    #[error(transparent)]
    Open(#[from] Box<OpenError>),
    /// Our port cannot be listened to.
    #[error("{me} cannot listen on its port {port}")]
    Listen {
        /// Us.
        me: Member,
        /// The port of our lane.
        port: u16,
        /// Why not.
        #[source]
        error: Box<ListenError>,
    },
    /// The device did not give what is needed.
    #[error(transparent)]
    Setup(#[from] BrokerSetupError),
    /// The operating system refused a thread.
    #[error("the operating system refused a thread: {0}")]
    Thread(std::io::ErrorKind),
    /// A member does not fit.
    #[error("{me} and {member} do not fit together")]
    Refused {
        /// Us.
        me: Member,
        /// The other one.
        member: Member,
        /// Why.
        #[source]
        refusal: Box<MemberRefusal>,
    },
    /// Not all members came in time.
    #[error("{me} waited {after:?} for: {}", List(missing))]
    Missing {
        /// Us.
        me: Member,
        /// How long.
        after: Duration,
        /// The members that are missing, and what is known about them.
        missing: Vec<Absent>,
    },
}

/// A member that is not there.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Absent {
    /// The member.
    pub member: Member,
    /// What came of the last attempt to meet it; nothing if it has not asked yet.
    pub refusal: Option<MemberRefusal>,
}

struct List<'a>(&'a [Absent]);

impl fmt::Display for List<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (place, Absent { member, refusal }) in self.0.iter().enumerate() {
            let comma = if place == 0 { "" } else { "; " };
            match refusal {
                Some(refusal) => write!(f, "{comma}{member}: {}", Chain::of(refusal))?,
                None => write!(f, "{comma}{member}: it has not asked yet")?,
            }
        }
        Ok(())
    }
}
