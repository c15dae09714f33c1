//! Bringing queue pairs to work: the steps from RESET to RTS in one call.

use std::sync::atomic::Ordering;

use ferroce_device::{AddressVector, Limits, SourcePort};
use ferroce_transport::{Access, AttributeMask, Attributes, State};
use ferroce_wire::{PathMtu, Psn, QKey, Service};

use crate::error::{QpConnectError, QpError};
use crate::qp_address::QpAddress;
use crate::queue_pair::QueuePair;

/// How a connection behaves. The default suits most programs; both ends may differ in
/// everything but the path MTU.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ConnectOptions {
    /// Payload of a full packet; without it, what both devices can carry.
    pub path_mtu: Option<PathMtu>,
    /// How long to wait for an acknowledgement: 4.096 us * 2^timeout, for ever if 0. A packet that is
    /// lost is found much earlier; this is how long a peer may be kept from its processor. 16 is 0.27 s.
    pub timeout: u8,
    /// How often to try again after silence, up to 7.
    pub retry_count: u8,
    /// How often to try again when the peer has no receive posted; 7 is for ever.
    pub rnr_retry: u8,
    /// The code of how long the peer waits when we have no receive posted.
    pub min_rnr_timer: u8,
    /// READs and atomics that we have under way; a card that has fewer takes as many as it has.
    pub max_rd_atomic: u8,
    /// READs and atomics that the peer may have under way here.
    pub max_dest_rd_atomic: u8,
    /// What the peer may do with regions that allow it.
    pub access: Access,
    /// How fast to send, in kilobits per second; 0 is without a limit.
    pub rate_limit: u32,
    /// IPv4 type of service or IPv6 traffic class.
    pub traffic_class: u8,
    /// Hops that a packet may take; 0 means 64.
    pub hop_limit: u8,
    /// Decides the UDP source port, and with it the way through a network; 0 lets the device choose.
    pub flow_label: u32,
    /// The UDP source port itself, if it must be a certain one.
    pub source_port: SourcePort,
    /// Which of our GIDs packets come from; without it, the one of the queue pair.
    pub gid_index: Option<usize>,
    /// Which of our P_Keys packets carry ([`Port::pkeys`](crate::Port::pkeys)): peers of another partition are not
    /// reached, and not heard. Without it, the one that the queue pair has: the default one, unless
    /// [`QueuePair::modify`] set another. A connection that is accepted has the partition of its request.
    pub pkey_index: Option<u16>,
}

impl ConnectOptions {
    /// All that a peer can be let do.
    pub const ALL_ACCESS: Access =
        Access::REMOTE_WRITE.union(Access::REMOTE_READ).union(Access::REMOTE_ATOMIC);
}

impl Default for ConnectOptions {
    fn default() -> Self {
        Self {
            path_mtu: None,
            timeout: 16,
            retry_count: 7,
            rnr_retry: 7,
            min_rnr_timer: 12,
            max_rd_atomic: Limits::READ_DEPTH,
            max_dest_rd_atomic: Limits::READ_DEPTH,
            access: Self::ALL_ACCESS,
            rate_limit: 0,
            traffic_class: 0,
            hop_limit: 0,
            flow_label: 0,
            source_port: SourcePort::Any,
            gid_index: None,
            pkey_index: None,
        }
    }
}

impl QueuePair {
    /// What a peer must know to connect to it.
    #[must_use]
    pub fn local_address(&self) -> QpAddress {
        QpAddress {
            qpn: self.qpn(),
            psn: self.psn(),
            mtu: self.domain().device().active_mtu(),
            gid: self.gid,
        }
    }

    /// Connects it to a peer, and takes it to RTS. The peer must do the same; until it has,
    /// what is sent to it is sent again.
    ///
    /// # Errors
    /// Which step was refused, and why.
    pub fn connect(&self, peer: &QpAddress) -> Result<(), QpConnectError> {
        self.connect_with(peer, &ConnectOptions::default())
    }

    /// The same in a particular way.
    ///
    /// # Errors
    /// Which step was refused, and why.
    pub fn connect_with(&self, peer: &QpAddress, options: &ConnectOptions) -> Result<(), QpConnectError> {
        let service = self.service();
        if service == Service::Ud {
            let instead = "activate, which lets it send to any queue pair";
            return Err(QpConnectError::WrongService { qpn: self.qpn(), service, instead });
        }
        let address = AddressVector {
            gid: peer.gid,
            sgid_index: options.gid_index.unwrap_or(self.gid_index),
            traffic_class: options.traffic_class,
            hop_limit: options.hop_limit,
            flow_label: options.flow_label,
            source_port: options.source_port,
            static_rate: 0,
        };
        let mtu = options.path_mtu.unwrap_or_else(|| peer.mtu.min(self.domain().device().active_mtu()));
        let mut rtr = Attributes::to(State::Rtr)
            .with(AttributeMask::AV)
            .with_access(options.access)
            .with_path_mtu(mtu)
            .with_dest_qpn(peer.qpn)
            .with_rq_psn(peer.psn);
        if let Some(index) = options.pkey_index {
            rtr = rtr.with_pkey_index(index);
        }
        let mut rts = Attributes::to(State::Rts).with_sq_psn(self.psn());
        if service == Service::Rc {
            // A card may have less of it than our own device.
            let (ours, theirs) = self.read_depths();
            let (ours, theirs) = (options.max_rd_atomic.min(ours), options.max_dest_rd_atomic.min(theirs));
            rtr = rtr.with_max_dest_rd_atomic(theirs).with_min_rnr_timer(options.min_rnr_timer);
            rts = rts
                .with_timeout(options.timeout)
                .with_retry_count(options.retry_count)
                .with_rnr_retry(options.rnr_retry)
                .with_max_rd_atomic(ours);
        }
        if options.rate_limit > 0 {
            rts = rts.with_rate_limit(options.rate_limit);
        }
        let steps = || {
            self.initialise()?;
            self.modify(&rtr, Some(&address))?;
            self.modify(&rts, None)
        };
        steps().map_err(|error| QpConnectError::Refused { qpn: self.qpn(), error })
    }

    /// Lets a datagram queue pair work: it takes datagrams that show this Q_Key, and sends to any peer.
    ///
    /// # Errors
    /// Which step was refused, and why.
    pub fn activate(&self, qkey: QKey) -> Result<(), QpConnectError> {
        self.activate_with(Attributes::to(State::Rtr).with_qkey(qkey))
    }

    /// The same in the partition of a P_Key of ours: datagrams of others are dropped.
    ///
    /// # Errors
    /// Which step was refused, and why.
    pub fn activate_in(&self, qkey: QKey, pkey_index: u16) -> Result<(), QpConnectError> {
        self.activate_with(Attributes::to(State::Rtr).with_qkey(qkey).with_pkey_index(pkey_index))
    }

    fn activate_with(&self, rtr: Attributes) -> Result<(), QpConnectError> {
        let service = self.service();
        if service != Service::Ud {
            let instead = "connect, which needs the address of its peer";
            return Err(QpConnectError::WrongService { qpn: self.qpn(), service, instead });
        }
        let steps = || {
            self.initialise()?;
            self.modify(&rtr, None)?;
            self.modify(&Attributes::to(State::Rts).with_sq_psn(self.psn()), None)
        };
        steps().map_err(|error| QpConnectError::Refused { qpn: self.qpn(), error })
    }

    /// Takes it back to INIT as a new one: its work is forgotten, its peer too, and its
    /// [`local_address`](Self::local_address) has another PSN. Then it can be connected again.
    ///
    /// # Errors
    /// The device refused.
    pub fn reset(&self) -> Result<(), QpError> {
        self.modify(&Attributes::to(State::Reset), None)?;
        self.psn.store(self.domain().device().random_u32(), Ordering::Relaxed);
        self.initialise()
    }

    /// Ends all its work: what is posted completes as flushed, and what is posted later too.
    ///
    /// # Errors
    /// The device refused.
    pub fn flush(&self) -> Result<(), QpError> {
        self.modify(&Attributes::to(State::Err), None)
    }

    /// Limits how fast it sends from now on, in kilobits per second; 0 takes the limit away.
    ///
    /// What counts are the bytes of its own requests, from the base transport header to the ICRC; what
    /// the peer reads is limited by the peer. After a pause it sends at once what the rate gives in
    /// a millisecond. Between two queue pairs of one process whole messages count, and none is cut.
    ///
    /// # Errors
    /// It is not in RTS.
    pub fn set_rate_limit(&self, kilobits_per_second: u32) -> Result<(), QpError> {
        self.modify(&Attributes::to(State::Rts).with_rate_limit(kilobits_per_second), None)
    }

    /// From RESET to INIT; in another state it stays.
    pub(crate) fn initialise(&self) -> Result<(), QpError> {
        if self.state() != State::Reset {
            return Ok(());
        }
        let init = Attributes::to(State::Init).with_pkey_index(0).with_port(1);
        let init = match self.service() {
            // Until `activate` says which Q_Key it is, packets are dropped anyway.
            Service::Ud => init.with_qkey(QKey(0)),
            _ => init.with_access(ConnectOptions::ALL_ACCESS),
        };
        self.modify(&init, None)
    }

    fn psn(&self) -> Psn {
        Psn::new(self.psn.load(Ordering::Relaxed))
    }
}
