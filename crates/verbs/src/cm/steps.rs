//! What a queue pair goes through, with the numbers that both sides agreed on.

use std::net::IpAddr;
use std::sync::{Arc, Weak};

use ferroce_device::cm::Inquiry;
use ferroce_device::{AddressVector, Qp};
use ferroce_transport::{AttributeMask, Attributes, State};
use ferroce_wire::mad::{Rep, Req};
use ferroce_wire::{PathMtu, Psn, Qpn, Service};

use crate::connect::ConnectOptions;
use crate::error::QpError;

/// A queue pair on its way. It is not kept alive: the program may drop it at any time.
#[derive(Clone, Debug)]
pub(crate) struct Steps {
    qp: Weak<Qp>,
    /// What we expect first, as the peer is told.
    psn: Psn,
    options: ConnectOptions,
    remote: IpAddr,
    sgid_index: usize,
    path_mtu: PathMtu,
}

/// What the peer is like.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Peer {
    qpn: Qpn,
    /// What it expects first.
    psn: Psn,
    /// READs and atomics of ours that it serves.
    serves: u8,
    /// READs and atomics that it wants to have under way here.
    asks: u8,
    rnr_retry: u8,
}

impl From<&Rep> for Peer {
    fn from(rep: &Rep) -> Self {
        Self {
            qpn: rep.local_qpn,
            psn: rep.starting_psn,
            serves: rep.responder_resources,
            asks: rep.initiator_depth,
            rnr_retry: rep.rnr_retry_count,
        }
    }
}

impl From<&Req> for Peer {
    fn from(req: &Req) -> Self {
        Self {
            qpn: req.local_qpn,
            psn: req.starting_psn,
            serves: req.responder_resources,
            asks: req.initiator_depth,
            rnr_retry: req.rnr_retry_count,
        }
    }
}

/// READs and atomics under way, as both sides agreed: ours, and the peer's here.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Depths {
    pub(crate) initiator: u8,
    pub(crate) responder: u8,
}

impl Steps {
    pub(crate) fn new(
        qp: &Arc<Qp>,
        psn: Psn,
        options: ConnectOptions,
        (remote, sgid_index): (IpAddr, usize),
        path_mtu: PathMtu,
    ) -> Self {
        Self { qp: Arc::downgrade(qp), psn, options, remote, sgid_index, path_mtu }
    }

    pub(crate) fn depths(&self, peer: &Peer) -> Depths {
        Depths {
            initiator: self.options.max_rd_atomic.min(peer.serves),
            responder: self.options.max_dest_rd_atomic.min(peer.asks),
        }
    }

    /// From INIT to RTS.
    pub(crate) fn take(&self, peer: &Peer) -> Result<Depths, QpError> {
        let qp = self.qp.upgrade().ok_or(QpError::Gone)?;
        let Self { options, .. } = self;
        let depths = self.depths(peer);
        let address = AddressVector {
            gid: self.remote.into(),
            sgid_index: self.sgid_index,
            traffic_class: options.traffic_class,
            hop_limit: options.hop_limit,
            flow_label: options.flow_label,
            source_port: options.source_port,
            static_rate: 0,
        };
        let mut rtr = Attributes::to(State::Rtr)
            .with(AttributeMask::AV)
            .with_access(options.access)
            .with_path_mtu(self.path_mtu)
            .with_dest_qpn(peer.qpn)
            .with_rq_psn(self.psn);
        if let Some(index) = options.pkey_index {
            rtr = rtr.with_pkey_index(index);
        }
        let mut rts = Attributes::to(State::Rts).with_sq_psn(peer.psn);
        if qp.service() == Service::Rc {
            rtr = rtr.with_max_dest_rd_atomic(depths.responder).with_min_rnr_timer(options.min_rnr_timer);
            rts = rts
                .with_timeout(options.timeout)
                .with_retry_count(options.retry_count)
                .with_rnr_retry(peer.rnr_retry.min(7))
                .with_max_rd_atomic(depths.initiator);
        }
        if options.rate_limit > 0 {
            rts = rts.with_rate_limit(options.rate_limit);
        }
        qp.modify(&rtr, Some(&address))?;
        qp.modify(&rts, None)?;
        Ok(depths)
    }

    /// Ends all work of the queue pair, if it is still there. What has arrived counts, and is acknowledged.
    pub(crate) fn flush(&self) {
        if let Some(qp) = self.qp.upgrade() {
            qp.settle();
            // Cannot fail while it is there: every state leads to ERR.
            let _ = qp.modify(&Attributes::to(State::Err), None);
        }
    }

    /// Has the peer asked whether it is there.
    pub(crate) fn ask(&self) -> Inquiry {
        let Some(qp) = self.qp.upgrade() else { return Inquiry::Gone };
        match qp.ask() {
            Ok(Some(signs)) => Inquiry::Sent(signs),
            Ok(None) if qp.service() != Service::Rc => Inquiry::Cannot,
            Ok(None) | Err(_) => Inquiry::Gone,
        }
    }

    /// How many packets have come that only the peer sends.
    pub(crate) fn signs_of_life(&self) -> u64 {
        let known = self.qp.upgrade().and_then(|qp| qp.query().ok());
        known.map_or(0, |known| known.counters.signs_of_life())
    }

    /// Whether the peer has sent something.
    pub(crate) fn has_data(&self) -> bool {
        let known = self.qp.upgrade().and_then(|qp| qp.query().ok());
        known.is_some_and(|known| known.counters.requests_received > 0)
    }
}
