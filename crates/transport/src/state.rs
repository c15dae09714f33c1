//! The life of a queue pair: its states, and what a program must bring to move between them.
//!
//! ```text
//!                                      +--> SQD --+
//!                                      |          |
//!  RESET --> INIT --> RTR --> RTS -----+<---------+
//!                              ^
//!                              +------ SQE <-- a failed send of UC or UD, by itself
//!
//!  from everywhere: to RESET, to ERR
//! ```
//!
//! A program changes state and attributes in one step (IBA 10.3.1, 11.2.5.2). [`check`] judges
//! that step against one table and changes nothing; the queue pair takes over what it allowed.

mod attributes;
mod table;
#[cfg(test)]
mod tests;

use core::fmt;

use ferroce_wire::Service;
use thiserror::Error;

pub use attributes::{AttributeMask, Attributes};

/// Where a queue pair stands in its life. The numbers are those of `ibv_qp_state`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
#[repr(u8)]
pub enum State {
    /// New or emptied: takes no work, drops every packet (IBA 10.3.1.1).
    #[default]
    Reset = 0,
    /// Knows its port: takes receives, drops every packet (IBA 10.3.1.2).
    Init = 1,
    /// Ready to receive: knows its peer and answers it (IBA 10.3.1.3).
    Rtr = 2,
    /// Ready to send: everything works (IBA 10.3.1.4).
    Rts = 3,
    /// Send queue drained, or draining: finishes what it began and begins nothing more (IBA 10.3.1.5).
    Sqd = 4,
    /// Send queue error: a send of UC or UD failed, receiving goes on (IBA 10.3.1.6).
    Sqe = 5,
    /// Error: all work, old and new, is flushed (IBA 10.3.1.7).
    Err = 6,
}

impl State {
    /// All of them, ascending by number.
    pub const ALL: [Self; 7] =
        [Self::Reset, Self::Init, Self::Rtr, Self::Rts, Self::Sqd, Self::Sqe, Self::Err];

    /// The state with this number in `ibv_qp_state`.
    #[must_use]
    pub const fn from_code(code: u8) -> Option<Self> {
        match code {
            0 => Some(Self::Reset),
            1 => Some(Self::Init),
            2 => Some(Self::Rtr),
            3 => Some(Self::Rts),
            4 => Some(Self::Sqd),
            5 => Some(Self::Sqe),
            6 => Some(Self::Err),
            _ => None,
        }
    }

    /// Its number, 0 to 6.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// The usual name, in upper case.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Reset => "RESET",
            Self::Init => "INIT",
            Self::Rtr => "RTR",
            Self::Rts => "RTS",
            Self::Sqd => "SQD",
            Self::Sqe => "SQE",
            Self::Err => "ERR",
        }
    }

    /// Whether receives may be posted. In ERR they are taken and flushed.
    #[must_use]
    pub const fn takes_receives(self) -> bool {
        !matches!(self, Self::Reset)
    }

    /// Whether sends may be posted. In SQD they wait; in SQE and ERR they are flushed.
    #[must_use]
    pub const fn takes_sends(self) -> bool {
        matches!(self, Self::Rts | Self::Sqd | Self::Sqe | Self::Err)
    }

    /// Whether the responder works: arriving requests are executed and answered.
    #[must_use]
    pub const fn handles_requests(self) -> bool {
        matches!(self, Self::Rtr | Self::Rts | Self::Sqd | Self::Sqe)
    }

    /// Whether the requester listens: arriving acknowledgements and read data count.
    #[must_use]
    pub const fn handles_responses(self) -> bool {
        matches!(self, Self::Rts | Self::Sqd)
    }

    /// Whether the requester may send packets. In SQD only those of messages that it had begun,
    /// again if they were lost; [`starts_requests`](Self::starts_requests) tells the two apart.
    #[must_use]
    pub const fn sends_requests(self) -> bool {
        matches!(self, Self::Rts | Self::Sqd)
    }

    /// Whether the requester may begin with the next message of the send queue.
    #[must_use]
    pub const fn starts_requests(self) -> bool {
        matches!(self, Self::Rts)
    }
}

impl fmt::Display for State {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(self.name())
    }
}

/// How many READs and atomics the device lets a queue pair have under way.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    /// As the requester: the most that `max_rd_atomic` may ask for.
    pub max_rd_atomic: u8,
    /// As the responder: the most that `max_dest_rd_atomic` may ask for.
    pub max_dest_rd_atomic: u8,
}

/// The state into which `attributes` take a queue pair of `service` that is in `current`.
///
/// Without [`AttributeMask::STATE`] it stays where it is. Only fields whose bit is set are looked at.
///
/// Not judged here, because the answer is not in the attributes: whether a port, a P_Key index or
/// an address exists, whether there is a second path, and whether a queue pair in SQD has drained, as
/// a change of its attributes requires (IBA 10.3.1.5).
///
/// # Errors
///
/// The first rule that is broken, in the order of [`ModifyError`].
pub fn check(
    service: Service,
    current: State,
    attributes: &Attributes,
    limits: &Limits,
) -> Result<State, ModifyError> {
    let given = attributes.mask;
    if matches!(service, Service::Cnp | Service::RcOwn | Service::XrcOwn) {
        return Err(ModifyError::NotAQueuePair { service });
    }
    if given.contains(AttributeMask::CUR_STATE) && attributes.current_state != current {
        return Err(ModifyError::OtherState { given: attributes.current_state, actual: current });
    }
    let (from, to) = (current, if given.contains(AttributeMask::STATE) { attributes.state } else { current });
    let Some(rule) = table::rule(service, from, to) else {
        return Err(ModifyError::NoTransition { service, from, to });
    };

    let missing = rule.required.difference(given);
    if !missing.is_empty() {
        return Err(ModifyError::Missing { service, from, to, missing, required: rule.required });
    }
    let allowed = rule.required.union(rule.optional);
    let surplus = given.difference(allowed.union(AttributeMask::STATE));
    if !surplus.is_empty() {
        return Err(ModifyError::NotAllowed { service, from, to, surplus, allowed });
    }
    check_ranges(attributes, limits)?;
    Ok(to)
}

/// Whether every number that is given fits its bits, or what the device can do.
///
/// There is no rule for the destination: real NICs take any 24-bit number, also 0 and 1,
/// and programs with an FPGA at the other end use that.
fn check_ranges(attributes: &Attributes, limits: &Limits) -> Result<(), ModifyError> {
    let ranges = [
        (AttributeMask::TIMEOUT, attributes.timeout, 31),
        (AttributeMask::RETRY_CNT, attributes.retry_count, 7),
        (AttributeMask::RNR_RETRY, attributes.rnr_retry, 7),
        (AttributeMask::MAX_QP_RD_ATOMIC, attributes.max_rd_atomic, limits.max_rd_atomic),
        (AttributeMask::MIN_RNR_TIMER, attributes.min_rnr_timer, 31),
        (AttributeMask::MAX_DEST_RD_ATOMIC, attributes.max_dest_rd_atomic, limits.max_dest_rd_atomic),
    ];
    for (attribute, given, max) in ranges {
        if attributes.mask.contains(attribute) && given > max {
            return Err(ModifyError::OutOfRange { attribute, given, max });
        }
    }
    Ok(())
}

/// Why a queue pair cannot be changed as asked: each reason with what was given and
/// what would have been right. Nothing was changed.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum ModifyError {
    /// The service has packets but no queue pairs.
    #[error("{} has no queue pairs; RC, UC, UD and XRC have", service.name())]
    NotAQueuePair {
        /// What was given.
        service: Service,
    },
    /// The caller takes the queue pair to be in another state.
    #[error("CUR_STATE is {given}, but the queue pair is in {actual}")]
    OtherState {
        /// What the caller believes.
        given: State,
        /// What is true.
        actual: State,
    },
    /// No way leads from one state to the other, for this service.
    #[error("{from} to {to} is not a transition of {}; from {from} one can go to {}",
        service.name(), NextStates(*service, *from))]
    NoTransition {
        /// Of the queue pair.
        service: Service,
        /// Where it is.
        from: State,
        /// Where it was to go.
        to: State,
    },
    /// The transition needs attributes that were not given.
    #[error("{from} to {to} of {} lacks {missing}; it needs {required}", service.name())]
    Missing {
        /// Of the queue pair.
        service: Service,
        /// Where it is.
        from: State,
        /// Where it was to go.
        to: State,
        /// What is needed and was not given.
        missing: AttributeMask,
        /// All that is needed.
        required: AttributeMask,
    },
    /// Attributes were given that the transition cannot change.
    #[error("{from} to {to} of {} does not take {surplus}; it takes {allowed}", service.name())]
    NotAllowed {
        /// Of the queue pair.
        service: Service,
        /// Where it is.
        from: State,
        /// Where it was to go.
        to: State,
        /// What was given and is not allowed.
        surplus: AttributeMask,
        /// All that is allowed beside STATE.
        allowed: AttributeMask,
    },
    /// Attributes that are legal, but that this device does not have.
    #[error("{attributes} is not supported: a queue pair has one path, and no other to migrate to")]
    NotSupported {
        /// Which.
        attributes: AttributeMask,
    },
    /// There is no such port.
    #[error("port {given} does not exist; the device has port 1")]
    NoSuchPort {
        /// What was given.
        given: u8,
    },
    /// There is no such P_Key.
    #[error(
        "P_Key index {given} does not exist; the port has {len}, from index 0 on (FERROCE_PKEYS adds some)"
    )]
    NoSuchPKey {
        /// What was given.
        given: u16,
        /// How many there are.
        len: usize,
    },
    /// The queue pair is in SQD, and messages that it had begun are not done.
    #[error("{attributes} cannot change while the send queue drains; wait for its event, or ask again")]
    Draining {
        /// What was to be changed.
        attributes: AttributeMask,
    },
    /// An attribute is larger than its field, or than the device can do.
    #[error("{attribute} is {given}; at most {max} is allowed")]
    OutOfRange {
        /// Which: one bit.
        attribute: AttributeMask,
        /// What was given.
        given: u8,
        /// The most that is allowed.
        max: u8,
    },
}

/// Prints the states that a queue pair can go to from here.
struct NextStates(Service, State);

impl fmt::Display for NextStates {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(service, from) = *self;
        for to in table::next_states(service, from) {
            write!(f, "{to}, ")?;
        }
        // These two are possible from everywhere.
        write!(f, "{}, {}", State::Err, State::Reset)
    }
}
