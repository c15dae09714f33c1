//! What can go wrong, and which side is at fault.

use std::fmt;
use std::io;
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ferroce_verbs::cm::{CmError, ListenError};
use ferroce_verbs::{BuildError, CreateError, OpenError, PostError, Status};
use thiserror::Error;

/// Why a call on a connection failed.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum Error {
    /// This end has closed it, or has said that it sends no more.
    #[error("this end of the connection is closed")]
    Closed,
    /// The other end has closed it in peace; nothing can be sent to it any more.
    #[error("the peer has closed the connection")]
    ClosedByPeer,
    /// It ended otherwise.
    #[error("the connection is lost: {0}")]
    Lost(Cause),
    /// The time for this call is over. The connection stands.
    #[error("not done within {0:?}; the connection stands: wait longer, or close it")]
    TimedOut(Duration),
    /// The peer does not take messages of this length.
    #[error("{len} bytes; the peer takes messages of up to {allowed}: see Options::max_message there")]
    TooLong {
        /// Bytes given.
        len: usize,
        /// Bytes that the peer takes.
        allowed: u64,
    },
    /// The name of exposed memory is too long.
    #[error("a name of {len} bytes; {allowed} are possible")]
    NameTooLong {
        /// Bytes given.
        len: usize,
        /// Bytes possible.
        allowed: usize,
    },
    /// More memory is exposed than one connection can have.
    #[error("{allowed} exposures are open already; close some")]
    TooManyExposures {
        /// How many are possible.
        allowed: usize,
    },
    /// The peer does not expose this memory any more.
    #[error("the peer has closed what it exposed as {name:?}")]
    NotExposed {
        /// Its name.
        name: String,
    },
    /// The peer exposed it for something else.
    #[error("the peer exposed {name:?} without the right for {what}")]
    NotAllowed {
        /// Its name.
        name: String,
        /// What was asked.
        what: &'static str,
    },
    /// Reached beyond what the peer exposed.
    #[error("{len} bytes from {offset} of {name:?}, which has {size}")]
    OutsideExposed {
        /// Its name.
        name: String,
        /// First byte.
        offset: u64,
        /// Bytes.
        len: u64,
        /// Bytes that it has.
        size: u64,
    },
    /// The peer has opened nothing under this name.
    #[error(
        "the peer has exposed nothing as {name:?} within {limit:?}; it has exposed {names}: check the name, or allow \
         more time with Options::name_timeout"
    )]
    NoSuchName {
        /// The name.
        name: String,
        /// How long it was waited for.
        limit: Duration,
        /// The names that there are.
        names: Names,
    },
    /// This end has exposed something under the same name already.
    #[error("this end exposes something as {name:?} already; drop that first, or take another name")]
    NameTaken {
        /// The name.
        name: String,
    },
    /// Reached beyond a place that is given by address and key.
    #[error("{len} bytes at {address:#x}, where there is room for {room}")]
    OutsidePlace {
        /// First byte.
        address: u64,
        /// Bytes.
        len: u64,
        /// Bytes that there is room for.
        room: u64,
    },
    /// An atomic works on eight bytes at a multiple of eight.
    #[error(
        "an atomic at offset {offset}, which is address {address:#x} of the peer and not a multiple of 8"
    )]
    Misaligned {
        /// The offset that was given.
        offset: u64,
        /// What that is in the peer's memory.
        address: u64,
    },
    /// The peer has no window for access by address.
    #[error("the peer has not opened a physical window; it must set Options::physical_window")]
    NoWindow,
    /// The peer has one, but not for us.
    #[error("the peer refuses access to its physical window to this end")]
    WindowRefused,
    /// Reached beyond the window.
    #[error("{len} bytes at {address:#x}; the window has {size:#x} bytes from {start:#x}")]
    OutsideWindow {
        /// First byte.
        address: u64,
        /// Bytes.
        len: u64,
        /// Where the window begins.
        start: u64,
        /// Bytes that it has.
        size: u64,
    },
    /// The window may only be read.
    #[error("the peer's physical window may only be read")]
    WindowReadOnly,
    /// Offset and length are not inside a buffer of our own.
    #[error("{len} bytes from {offset} of a buffer of {size}")]
    OutsideBuffer {
        /// First byte.
        offset: usize,
        /// Bytes.
        len: usize,
        /// Bytes that it has.
        size: usize,
    },
    /// The buffer is registered for another connection.
    #[error("the buffer was allocated by another connection; allocate it with this one")]
    OtherConnection,
    /// The device has no room for what is needed.
    #[error("the device refused")]
    Create(#[from] CreateError),
    /// The device did not take work that it should.
    #[error("the device refused work")]
    Post(#[from] PostError),
}

/// Names of memory that a peer has exposed.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Names(pub(crate) Vec<String>);

impl Names {
    /// The names, in order.
    pub fn iter(&self) -> impl Iterator<Item = &str> {
        self.0.iter().map(String::as_str)
    }

    /// How many there are.
    #[must_use]
    pub const fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub const fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl fmt::Display for Names {
    /// The first of them, and how many more there are.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const SHOWN: usize = 8;
        if self.0.is_empty() {
            return f.write_str("nothing");
        }
        for (index, name) in self.0.iter().take(SHOWN).enumerate() {
            write!(f, "{}{name:?}", if index > 0 { ", " } else { "" })?;
        }
        match self.0.len().saturating_sub(SHOWN) {
            0 => Ok(()),
            more => write!(f, " and {more} more"),
        }
    }
}

/// Why a connection was lost.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Cause {
    /// The peer does not answer any more: its process or machine is gone.
    #[error("the peer does not answer any more; its process or machine may be gone")]
    PeerSilent,
    /// The peer ended it without saying goodbye.
    #[error("the peer broke it off before everything was said")]
    PeerReset,
    /// The peer broke the rules between ends, and was cut off.
    #[error("the peer broke the rules: {0}")]
    Violation(Violation),
    /// The peer says that we broke the rules.
    #[error("the peer says that this end broke the rules: {0}")]
    Accused(Violation),
    /// The peer's device refused an access: what was exposed is closed there, or the keys it gave are wrong.
    #[error("the peer's device refused an access to its memory: {0}")]
    PeerRefused(Status),
    /// Our own queue pair failed.
    #[error("the queue pair failed: {0}")]
    Device(Status),
    /// This end broke it off.
    #[error("this end broke it off")]
    Aborted,
    /// A function of its handler panicked, and the reactor broke it off. The panic hook has told why.
    #[error("a function of its handler panicked; see what the panic said, and mend the handler")]
    HandlerPanicked,
    /// What was sent could not be delivered before the connection had to go.
    #[error("not everything was delivered within the time that was left after closing")]
    LingerOver,
}

impl From<Cause> for Error {
    fn from(cause: Cause) -> Self {
        Self::Lost(cause)
    }
}

impl From<Violation> for Cause {
    fn from(violation: Violation) -> Self {
        Self::Violation(violation)
    }
}

/// Which rule between two ends was broken.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Violation {
    /// A message without a sensible header.
    #[error("a message without a sensible header")]
    Header = 1,
    /// A message has another length than it says.
    #[error("a message of another length than it says")]
    Length = 2,
    /// A message is longer than this end takes.
    #[error("a message longer than this end takes")]
    TooLong = 3,
    /// More messages than there was room for.
    #[error("more messages than there was room for")]
    Overdrawn = 4,
    /// It says to have taken in messages that were never sent.
    #[error("it took in messages that were never sent")]
    Credit = 5,
    /// It says to have read messages that were never announced.
    #[error("it read messages that were never announced")]
    Pulled = 6,
    /// The memory that it announced cannot be read.
    #[error("the memory that it announced cannot be read")]
    Key = 7,
    /// An exposure makes no sense, or there are too many.
    #[error("an exposure without sense, or one too many")]
    Exposure = 8,
    /// A message out of turn: after the goodbye, or an answer to nothing.
    #[error("a message out of turn")]
    OutOfTurn = 9,
    /// It reached for memory that is not open to it; our device refused, and ended the connection.
    #[error("it reached for memory that is not open to it")]
    Access = 10,
}

impl Violation {
    const ALL: [Self; 10] = [
        Self::Header,
        Self::Length,
        Self::TooLong,
        Self::Overdrawn,
        Self::Credit,
        Self::Pulled,
        Self::Key,
        Self::Exposure,
        Self::OutOfTurn,
        Self::Access,
    ];

    /// The rule with this number.
    pub(crate) fn from_code(code: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|violation| *violation as u8 == code)
    }
}

/// Why the first words of a peer mean nothing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HelloError {
    /// They are not of our kind.
    #[error("the peer does not speak the protocol of endpoints")]
    NotOurs,
    /// They are of another version.
    #[error("the peer speaks version {given} of the protocol of endpoints; this is version {known}")]
    Version {
        /// The peer's.
        given: u8,
        /// Ours.
        known: u8,
    },
    /// A value makes no sense.
    #[error("the peer's {what} makes no sense")]
    Senseless {
        /// Which.
        what: &'static str,
    },
}

/// Why an end could not be made.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum SetupError {
    /// An option is out of range.
    #[error("{option} is {given}; {least} to {most} are possible")]
    Option {
        /// Which.
        option: &'static str,
        /// What was given.
        given: u64,
        /// The least.
        least: u64,
        /// The most.
        most: u64,
    },
    /// A rate limit of 0 would send nothing at all.
    #[error(
        "a rate limit of 0 kilobits per second would send nothing; for no limit use Options::no_rate_limit"
    )]
    NoRate,
    /// The device has no room for what is needed.
    #[error("the device refused")]
    Create(#[from] CreateError),
    /// The queue pair could not be made.
    #[error("the queue pair could not be made")]
    Build(#[from] BuildError),
    /// The device did not take the receives.
    #[error("the device refused work")]
    Post(#[from] PostError),
    /// The peer's first words.
    #[error(transparent)]
    Hello(#[from] HelloError),
    /// The operating system refused a thread.
    #[error("the operating system refused a thread: {0:?}")]
    Thread(io::ErrorKind),
}

/// Why there is no device for an address.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum AddressError {
    /// The name means nothing, or there is no port behind it.
    #[error(
        "the address means nothing; an address is a name or an IP address with a port, such as 127.0.0.1:7471"
    )]
    Unknown(#[source] io::Error),
    /// The name is known, and has no address.
    #[error("the name has no address")]
    Empty,
    /// No device has it, or leads to it.
    #[error("no device for {address}; only the loopback interface is one unless FERROCE_NETDEV names others")]
    NoDevice {
        /// The address.
        address: IpAddr,
    },
    /// The device cannot be opened.
    #[error(transparent)]
    Open(Box<OpenError>),
}

/// Why a program cannot listen.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum BindError {
    /// There is no device.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// An option is wrong.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The port cannot be had.
    #[error(transparent)]
    Listen(#[from] ListenError),
}

/// Why a connection was not accepted.
#[derive(Clone, Debug, PartialEq, Error)]
#[non_exhaustive]
pub enum AcceptError {
    /// The time is over.
    #[error("no peer connected within {0:?}")]
    TimedOut(Duration),
    /// The listener was closed.
    #[error("the listener is closed")]
    Closed,
    /// There is no room for one more; the peer was told.
    #[error(transparent)]
    Setup(#[from] SetupError),
}

/// Why there is no connection.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum ConnectError {
    /// There is no device.
    #[error(transparent)]
    Address(#[from] AddressError),
    /// Our end could not be made, or the peer's first words mean nothing.
    #[error(transparent)]
    Setup(#[from] SetupError),
    /// The peer's program refused.
    #[error("{peer} refused")]
    Refused {
        /// The peer.
        peer: SocketAddr,
        /// Why.
        #[source]
        why: Refusal,
    },
    /// The connection could not be set up.
    #[error(transparent)]
    Cm(CmError),
    /// The listener was asked several times, and the time is over.
    #[error(
        "not connected within {limit:?}, although asked {attempts} times (allow more time with \
         Options::connect_timeout, or let the listener take more with Options::backlog)"
    )]
    TimedOut {
        /// The time that it had.
        limit: Duration,
        /// How often the listener was asked.
        attempts: u32,
        /// What was answered last.
        #[source]
        last: CmError,
    },
    /// The attempt is over already.
    #[error("the attempt to connect is over; make another one")]
    Over,
}

/// Why a listener refuses.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum Refusal {
    /// The request is not of our kind, or of another version.
    #[error("it does not understand this version of the protocol of endpoints")]
    Foreign = 1,
    /// Its program does not want this peer.
    #[error("its program does not admit this peer")]
    NotAdmitted = 2,
    /// It has no room for one more.
    #[error("it has no room for one more connection")]
    NoRoom = 3,
}

impl Refusal {
    pub(crate) fn from_code(code: u8) -> Option<Self> {
        [Self::Foreign, Self::NotAdmitted, Self::NoRoom].into_iter().find(|why| *why as u8 == code)
    }
}
