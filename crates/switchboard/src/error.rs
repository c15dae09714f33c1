//! Why a process cannot join the switchboard: the cause, and what to do.

use std::fmt;
use std::io;

use ferroce_fabric::PORT;
use ferroce_fabric::udp;
use thiserror::Error;

use super::{Group, SLOTS};

/// Why a process has no slot.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum SwitchError {
    /// Every slot has an owner.
    #[error(
        "all {} slots of {group} are in use; `ferroce switchboard` shows by which processes: end some of them, \
         or let them open fewer engines",
        SLOTS - 1
    )]
    Full {
        /// Where.
        group: Group,
    },
    /// The process may not have enough descriptors for the sockets of all slots.
    #[error("NOFILE is {limit}, needs {needs}: ulimit -n {needs}")]
    TooFewDescriptors {
        /// How many this process may have.
        limit: u64,
        /// How many it would have.
        needs: u64,
    },
    /// Another user has the port.
    #[error(
        "UDP port {PORT} of {group} belongs to another user (uid {uid}, {what}); processes share a port only with \
         those of their own user: use another loopback address with FERROCE_ADDRESS (such as 127.0.0.2), \
         another network namespace, or run as that user"
    )]
    OtherUser {
        /// Where.
        group: Group,
        /// The user that has it.
        uid: u32,
        /// A switchboard or another program.
        what: &'static str,
    },
    /// A program that is no part of a switchboard has the port.
    #[error(
        "UDP port {PORT} of {group} is taken by {holder}, which is no switchboard; end it (`ss -lunp 'sport = \
         {PORT}'` shows all processes that have it), or use another loopback address with FERROCE_ADDRESS (such \
         as 127.0.0.2)"
    )]
    Foreign {
        /// Where.
        group: Group,
        /// The process that has it.
        holder: Holder,
    },
    /// A group of this user has the port, but for other addresses.
    #[error(
        "UDP port {PORT} of {group} overlaps with the switchboard of {holder}, which has {has}; give both the \
         same FERROCE_ADDRESS, or two different ones"
    )]
    Overlap {
        /// Where.
        group: Group,
        /// The process that has it.
        holder: Holder,
        /// What that has: all addresses, or one.
        has: &'static str,
    },
    /// The sockets of a group live on, but no process leads it.
    #[error(
        "UDP port {PORT} of {group} is held by {holder}, and no process answered for it in {seconds} s: a process \
         that was forked from a member, or one that is stopped, keeps the sockets; end it"
    )]
    Leaderless {
        /// Where.
        group: Group,
        /// The process that has the sockets.
        holder: Holder,
        /// How long we waited.
        seconds: u64,
    },
    /// The leader does not answer.
    #[error(
        "the leader of the switchboard on {group}, process {pid}, did not answer in {seconds} s; is it stopped? \
         `kill -CONT {pid}` lets it go on, and when it ends another process leads"
    )]
    LeaderSilent {
        /// Where.
        group: Group,
        /// The leader.
        pid: u32,
        /// How long we waited.
        seconds: u64,
    },
    /// The leader speaks another version of the protocol.
    #[error(
        "the switchboard on {group} is led by process {pid} with version {theirs} of its protocol, and this is \
         version {ours}; let all processes use the same version of ferroce"
    )]
    OtherVersion {
        /// Where.
        group: Group,
        /// The leader.
        pid: u32,
        /// Its version.
        theirs: u16,
        /// Ours.
        ours: u16,
    },
    /// The leader has as many connections as it takes.
    #[error("the leader of the switchboard on {group}, process {pid}, has as many connections as it takes")]
    LeaderFull {
        /// Where.
        group: Group,
        /// The leader.
        pid: u32,
    },
    /// A process does not say what its queue pairs do.
    #[error("process {pid} did not answer in {seconds} s; is it stopped?")]
    ProcessSilent {
        /// Which.
        pid: u32,
        /// How long we waited.
        seconds: u64,
    },
    /// There is no such process.
    #[error("process {pid} has no device open, or is not one of this user; `ferroce stat` shows which are")]
    NoSuchProcess {
        /// Which.
        pid: u32,
    },
    /// A process cannot be asked to record.
    #[error("process {pid} cannot record: it ended, or was built before there were records")]
    NoRecorder {
        /// Which.
        pid: u32,
    },
    /// A process refused to record, or to stop.
    #[error("process {pid}: {why}")]
    NotRecorded {
        /// Which.
        pid: u32,
        /// Why.
        why: String,
    },
    /// A process speaks another version of the protocol.
    #[error(
        "process {pid} speaks version {theirs} of the switchboard's protocol, and this is version {ours}"
    )]
    ProcessVersion {
        /// Which.
        pid: u32,
        /// Its version.
        theirs: u16,
        /// Ours.
        ours: u16,
    },
    /// The leader hands out the file of another group.
    #[error(
        "the leader of the switchboard on {group}, process {pid}, hands out the shared file of another one; it \
         breaks the rules: end it"
    )]
    ForeignFile {
        /// Where.
        group: Group,
        /// The leader.
        pid: u32,
    },
    /// Another copy of this code is in the process, and this system does not let them have slots beside each other.
    #[error(
        "another copy of Ferroce in this process has slots, which a second one would lose here: this system lets no \
         thread have descriptors of its own (close_range of Linux 5.9, or unshare); use one copy, or allow these calls"
    )]
    AnotherCopy,
    /// The kernel shows other users' processes as this one's.
    #[error(
        "this process runs as uid {uid}, which is also how the kernel shows it every user that its user namespace \
         does not know, and such may be in its network namespace: it cannot tell their processes from its own; \
         run it as another user, map all users, or give its user namespace a network namespace of its own"
    )]
    UserUnknown {
        /// As which.
        uid: u32,
    },
    /// The kernel does not hand datagrams to the sockets that they are for.
    #[error("a datagram for slot {slot} of {group} did not reach its socket; this needs Linux 4.6 or newer")]
    NotSteered {
        /// Where.
        group: Group,
        /// Which.
        slot: usize,
    },
    /// A service that another process listens for.
    #[error("service {service:#018x} is claimed by process {pid}")]
    ServiceClaimed {
        /// The service.
        service: u64,
        /// The process that listens for it.
        pid: u32,
        /// On the very address that was asked for, and on no other.
        exact: bool,
    },
    /// There are as many services as can be.
    #[error("the processes of this switchboard listen for {allowed} services, and no more are possible")]
    TooManyServices {
        /// How many.
        allowed: usize,
    },
    /// There are as many listeners of multicast groups as can be.
    #[error(
        "the processes of this switchboard listen to {allowed} multicast groups together, and no more are possible"
    )]
    TooManyListeners {
        /// How many.
        allowed: usize,
    },
    /// This process was forked from the one that joined.
    #[error("the device was opened before a fork, and belongs to the parent; open it anew")]
    Forked,
    /// The sockets cannot be opened.
    #[error(transparent)]
    Socket(#[from] udp::SocketError),
    /// The operating system refused something.
    #[error("the operating system refused {what} for the switchboard")]
    System {
        /// What.
        what: &'static str,
        /// Why.
        #[source]
        error: io::Error,
    },
}

/// A process that has a port, as far as this process may know.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Holder {
    /// Its user.
    pub uid: u32,
    /// Which, and what it is called.
    pub process: Option<(u32, String)>,
}

impl fmt::Display for Holder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.process {
            Some((pid, program)) => write!(f, "process {pid} ({program})"),
            None => write!(f, "a process of uid {} that cannot be seen from here", self.uid),
        }
    }
}

/// Says what was refused.
pub(super) fn refused(what: &'static str) -> impl FnOnce(io::Error) -> SwitchError {
    move |error| SwitchError::System { what, error }
}
