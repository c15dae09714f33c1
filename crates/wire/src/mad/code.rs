//! Small numbers of connection management that have names.

use core::fmt;

use crate::describe::Value;

/// The kind of service that a connection request asks for, 2 bits (IBA 12.7.6).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum TransportService {
    /// Reliable connection.
    #[default]
    Rc,
    /// Unreliable connection.
    Uc,
    /// Reliable datagram.
    Rd,
    /// One that the extended transport type names (IBA A14).
    Extended,
}

impl TransportService {
    /// The service in the low 2 bits of `code`.
    #[must_use]
    pub const fn new(code: u8) -> Self {
        match code & 3 {
            0 => Self::Rc,
            1 => Self::Uc,
            2 => Self::Rd,
            _ => Self::Extended,
        }
    }

    /// The 2-bit code.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    pub(super) fn value(self) -> Value<'static> {
        let name = match self {
            Self::Rc => "Reliable Connection",
            Self::Uc => "Unreliable Connection",
            Self::Rd => "Reliable Datagram",
            Self::Extended => "Extended",
        };
        Value::named(name, self.code(), 2)
    }
}

/// Which message a rejection or a receipt answers, 2 bits (IBA 12.6.6, 12.6.7).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum AnswerTo {
    /// A connection request.
    #[default]
    Req,
    /// A connection reply.
    Rep,
    /// In a rejection no message at all, in a receipt the request for an alternate path.
    Other,
    /// Not defined.
    Reserved,
}

impl AnswerTo {
    /// The answered message in the low 2 bits of `code`.
    #[must_use]
    pub const fn new(code: u8) -> Self {
        match code & 3 {
            0 => Self::Req,
            1 => Self::Rep,
            2 => Self::Other,
            _ => Self::Reserved,
        }
    }

    /// The 2-bit code.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    /// With the name that code 2 has in the message at hand.
    pub(super) fn value(self, other: &'static str) -> Value<'static> {
        let name = match self {
            Self::Req => "REQ",
            Self::Rep => "REP",
            Self::Other => other,
            Self::Reserved => "Reserved",
        };
        Value::named(name, self.code(), 2)
    }
}

/// What became of the alternate path of a request, 2 bits (IBA 12.6.8).
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
pub enum Failover {
    /// Accepted, or none was asked for.
    #[default]
    Accepted,
    /// The replier cannot change paths.
    NotSupported,
    /// The replier can, but not to this one.
    Rejected,
    /// Not defined.
    Reserved,
}

impl Failover {
    /// The answer in the low 2 bits of `code`.
    #[must_use]
    pub const fn new(code: u8) -> Self {
        match code & 3 {
            0 => Self::Accepted,
            1 => Self::NotSupported,
            2 => Self::Rejected,
            _ => Self::Reserved,
        }
    }

    /// The 2-bit code.
    #[must_use]
    pub const fn code(self) -> u8 {
        self as u8
    }

    pub(super) fn value(self) -> Value<'static> {
        let name = match self {
            Self::Accepted => "Accepted",
            Self::NotSupported => "Not Supported",
            Self::Rejected => "Rejected",
            Self::Reserved => "Reserved",
        };
        Value::named(name, self.code(), 2)
    }
}

/// Makes a number whose well-known values are constants with names, and the rest still a number.
macro_rules! named_codes {
    (
        $(#[$doc:meta])* $type:ident($repr:ty), $bits:literal bits;
        $($constant:ident = $code:literal, $name:literal;)*
    ) => {
        $(#[$doc])*
        #[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, Default)]
        pub struct $type(pub $repr);

        impl $type {
            $(#[doc = concat!("Code ", stringify!($code), ": ", $name, ".")]
            pub const $constant: Self = Self($code);)*

            /// What the code stands for, if it is a well-known one.
            #[must_use]
            pub const fn name(self) -> Option<&'static str> {
                match self.0 {
                    $($code => Some($name),)*
                    _ => None,
                }
            }

            pub(super) fn value(self) -> Value<'static> {
                match self.name() {
                    Some(name) => Value::named(name, self.0, $bits),
                    None => Value::hex(self.0, $bits),
                }
            }
        }

        impl fmt::Display for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                match self.name() {
                    Some(name) => write!(f, "{name} ({})", self.0),
                    None => write!(f, "{}", self.0),
                }
            }
        }

        impl fmt::Debug for $type {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                write!(f, concat!(stringify!($type), "({})"), self)
            }
        }
    };
}

named_codes! {
    /// Why a message was rejected (IBA 12.6.7.2).
    RejectReason(u16), 16 bits;
    NO_QP = 1, "no queue pair available";
    NO_EEC = 2, "no end-to-end context available";
    NO_RESOURCES = 3, "no resources available";
    TIMEOUT = 4, "timeout";
    UNSUPPORTED_REQUEST = 5, "unsupported request";
    INVALID_COMM_ID = 6, "invalid communication ID";
    INVALID_COMM_INSTANCE = 7, "invalid communication instance";
    INVALID_SERVICE_ID = 8, "invalid service ID";
    INVALID_TRANSPORT_SERVICE = 9, "invalid transport service type";
    STALE_CONNECTION = 10, "stale connection";
    NO_RDC = 11, "reliable datagram channel does not exist";
    INVALID_PRIMARY_GID = 12, "primary remote GID rejected";
    INVALID_PRIMARY_LID = 13, "primary remote LID rejected";
    INVALID_PRIMARY_SL = 14, "invalid primary service level";
    INVALID_PRIMARY_TRAFFIC_CLASS = 15, "invalid primary traffic class";
    INVALID_PRIMARY_HOP_LIMIT = 16, "invalid primary hop limit";
    INVALID_PRIMARY_PACKET_RATE = 17, "invalid primary packet rate";
    INVALID_ALTERNATE_GID = 18, "alternate remote GID rejected";
    INVALID_ALTERNATE_LID = 19, "alternate remote LID rejected";
    INVALID_ALTERNATE_SL = 20, "invalid alternate service level";
    INVALID_ALTERNATE_TRAFFIC_CLASS = 21, "invalid alternate traffic class";
    INVALID_ALTERNATE_HOP_LIMIT = 22, "invalid alternate hop limit";
    INVALID_ALTERNATE_PACKET_RATE = 23, "invalid alternate packet rate";
    PORT_AND_CM_REDIRECT = 24, "port and connection manager redirection";
    PORT_REDIRECT = 25, "port redirection";
    INVALID_PATH_MTU = 26, "invalid path MTU";
    INSUFFICIENT_RESPONDER_RESOURCES = 27, "insufficient responder resources";
    CONSUMER = 28, "rejected by consumer";
    RNR_RETRY_COUNT = 29, "RNR retry count rejected";
    DUPLICATE_LOCAL_COMM_ID = 30, "duplicate local communication ID";
    INVALID_CLASS_VERSION = 31, "unsupported class version";
    INVALID_PRIMARY_FLOW_LABEL = 32, "invalid primary flow label";
    INVALID_ALTERNATE_FLOW_LABEL = 33, "invalid alternate flow label";
    VENDOR_OPTION_NOT_SUPPORTED = 35, "vendor option not supported";
}

named_codes! {
    /// The outcome of a service ID resolution (IBA 12.11.2).
    SidrStatus(u8), 8 bits;
    VALID = 0, "valid queue pair";
    SERVICE_ID_NOT_SUPPORTED = 1, "service ID not supported";
    REJECTED = 2, "rejected by service";
    NO_QP = 3, "no queue pair available";
    REDIRECT = 4, "redirected";
    VERSION_NOT_SUPPORTED = 5, "version not supported";
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_bit_codes_come_back_as_they_went() {
        for code in 0..4 {
            assert_eq!(TransportService::new(code | 0xf0).code(), code);
            assert_eq!(AnswerTo::new(code | 0xf0).code(), code);
            assert_eq!(Failover::new(code | 0xf0).code(), code);
        }
    }

    #[test]
    fn unknown_codes_have_no_name() {
        assert_eq!(RejectReason(8).name(), Some("invalid service ID"));
        assert_eq!(RejectReason(34).name(), None);
        assert_eq!(SidrStatus(1), SidrStatus::SERVICE_ID_NOT_SUPPORTED);
        assert_eq!(SidrStatus(6).name(), None);
    }
}
