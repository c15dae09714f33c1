//! What a program can set on a queue pair.

use core::fmt;

use bitflags::bitflags;
use ferroce_wire::{PathMtu, Psn, QKey, Qpn};

use super::State;
use crate::work::Access;

bitflags! {
    /// Which attributes are given. The bits and names are those of `ibv_qp_attr_mask`.
    #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, Default)]
    pub struct AttributeMask: u32 {
        /// The state to go to.
        const STATE = 1 << 0;
        /// The state that the caller takes the queue pair to be in.
        const CUR_STATE = 1 << 1;
        /// Whether the end of draining raises an event.
        const EN_SQD_ASYNC_NOTIFY = 1 << 2;
        /// What the peer may do with our memory.
        const ACCESS_FLAGS = 1 << 3;
        /// Which P_Key of the port.
        const PKEY_INDEX = 1 << 4;
        /// Which port.
        const PORT = 1 << 5;
        /// The key that datagrams must show.
        const QKEY = 1 << 6;
        /// Where the peer is. The value is the device's.
        const AV = 1 << 7;
        /// Payload of a full packet.
        const PATH_MTU = 1 << 8;
        /// How long to wait for an acknowledgement.
        const TIMEOUT = 1 << 9;
        /// How often to try again after silence or a sequence error.
        const RETRY_CNT = 1 << 10;
        /// How often to try again when the peer has no receive.
        const RNR_RETRY = 1 << 11;
        /// The first PSN to expect.
        const RQ_PSN = 1 << 12;
        /// READs and atomics under way as the requester.
        const MAX_QP_RD_ATOMIC = 1 << 13;
        /// A second way to the peer. The value is the device's.
        const ALT_PATH = 1 << 14;
        /// How long a peer waits when we have no receive.
        const MIN_RNR_TIMER = 1 << 15;
        /// The first PSN to send.
        const SQ_PSN = 1 << 16;
        /// READs and atomics under way as the responder.
        const MAX_DEST_RD_ATOMIC = 1 << 17;
        /// Which of the two ways is in use. The value is the device's.
        const PATH_MIG_STATE = 1 << 18;
        /// Sizes of the queues. The value is the device's, and fixed at creation.
        const CAP = 1 << 19;
        /// The peer's queue pair.
        const DEST_QPN = 1 << 20;
        /// How fast the queue pair may send.
        const RATE_LIMIT = 1 << 25;
    }
}

/// The names with commas between them, unknown bits in hexadecimal, or "nothing".
impl fmt::Display for AttributeMask {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.is_empty() {
            return f.write_str("nothing");
        }
        let mut separator = "";
        let mut names = self.iter_names();
        for (name, _) in names.by_ref() {
            write!(f, "{separator}{name}")?;
            separator = ", ";
        }
        match names.remaining().bits() {
            0 => Ok(()),
            unknown => write!(f, "{separator}unknown bits 0x{unknown:x}"),
        }
    }
}

/// New values for a queue pair: those whose bit is set in `mask`; the others mean nothing.
///
/// Each `with_` method sets a value and its bit together, so that a change reads as what it is:
/// `Attributes::to(State::Init).with_pkey_index(0).with_port(1).with_qkey(QKey(7))`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Attributes {
    /// Which of these are given, and which of the device's own.
    pub mask: AttributeMask,
    /// The state to go to.
    pub state: State,
    /// The state that the caller takes the queue pair to be in.
    pub current_state: State,
    /// What the peer may do with our memory.
    pub access: Access,
    /// Which P_Key of the port.
    pub pkey_index: u16,
    /// Which port, from 1.
    pub port: u8,
    /// The key that datagrams must show.
    pub qkey: QKey,
    /// Payload of a full packet.
    pub path_mtu: PathMtu,
    /// How long to wait for an acknowledgement: 4.096 us * 2^timeout, for ever if 0. Five bits.
    pub timeout: u8,
    /// How often to try again after silence or a sequence error. Three bits.
    pub retry_count: u8,
    /// How often to try again when the peer has no receive; 7 is for ever. Three bits.
    pub rnr_retry: u8,
    /// The first PSN to expect.
    pub rq_psn: Psn,
    /// The first PSN to send.
    pub sq_psn: Psn,
    /// READs and atomics under way as the requester.
    pub max_rd_atomic: u8,
    /// READs and atomics under way as the responder.
    pub max_dest_rd_atomic: u8,
    /// The code of how long a peer waits when we have no receive. Five bits.
    pub min_rnr_timer: u8,
    /// The peer's queue pair.
    pub dest_qpn: Qpn,
    /// Whether the end of draining raises an event.
    pub notify_drained: bool,
    /// How fast the queue pair may send, in kilobits per second; 0 is without a limit.
    ///
    /// What counts are the bytes of its requests from the base transport header to the ICRC, also when
    /// they are sent again. Answers to a peer leave at once: a READ is limited by its requester.
    pub rate_limit: u32,
    /// Whether the queue pair is in SQD and messages that it had begun are not done yet. Only told.
    pub draining: bool,
}

impl Default for Attributes {
    fn default() -> Self {
        Self::new()
    }
}

impl Attributes {
    /// Nothing is given: the queue pair stays as it is.
    #[must_use]
    pub const fn new() -> Self {
        Self {
            mask: AttributeMask::empty(),
            state: State::Reset,
            current_state: State::Reset,
            access: Access::empty(),
            pkey_index: 0,
            port: 1,
            qkey: QKey(0),
            path_mtu: PathMtu::B1024,
            timeout: 0,
            retry_count: 0,
            rnr_retry: 0,
            rq_psn: Psn::new(0),
            sq_psn: Psn::new(0),
            max_rd_atomic: 0,
            max_dest_rd_atomic: 0,
            min_rnr_timer: 0,
            dest_qpn: Qpn::new(0),
            notify_drained: false,
            rate_limit: 0,
            draining: false,
        }
    }

    /// Only the state to go to is given.
    #[must_use]
    pub const fn to(state: State) -> Self {
        Self::new().with_state(state)
    }

    /// Also gives attributes whose values the device keeps, such as [`AttributeMask::AV`].
    #[must_use]
    pub const fn with(mut self, given: AttributeMask) -> Self {
        self.mask = self.mask.union(given);
        self
    }
}

/// One method for each value: it sets the field and the bit.
macro_rules! setters {
    ($($method:ident, $field:ident: $type:ty, $bit:ident;)*) => {
        impl Attributes {$(
            #[doc = concat!("Gives [`", stringify!($field), "`](Self::", stringify!($field), ").")]
            #[must_use]
            pub const fn $method(mut self, $field: $type) -> Self {
                self.$field = $field;
                self.with(AttributeMask::$bit)
            }
        )*}
    };
}

setters! {
    with_state, state: State, STATE;
    with_current_state, current_state: State, CUR_STATE;
    with_access, access: Access, ACCESS_FLAGS;
    with_pkey_index, pkey_index: u16, PKEY_INDEX;
    with_port, port: u8, PORT;
    with_qkey, qkey: QKey, QKEY;
    with_path_mtu, path_mtu: PathMtu, PATH_MTU;
    with_timeout, timeout: u8, TIMEOUT;
    with_retry_count, retry_count: u8, RETRY_CNT;
    with_rnr_retry, rnr_retry: u8, RNR_RETRY;
    with_rq_psn, rq_psn: Psn, RQ_PSN;
    with_sq_psn, sq_psn: Psn, SQ_PSN;
    with_max_rd_atomic, max_rd_atomic: u8, MAX_QP_RD_ATOMIC;
    with_max_dest_rd_atomic, max_dest_rd_atomic: u8, MAX_DEST_RD_ATOMIC;
    with_min_rnr_timer, min_rnr_timer: u8, MIN_RNR_TIMER;
    with_dest_qpn, dest_qpn: Qpn, DEST_QPN;
    with_notify_drained, notify_drained: bool, EN_SQD_ASYNC_NOTIFY;
    with_rate_limit, rate_limit: u32, RATE_LIMIT;
}
