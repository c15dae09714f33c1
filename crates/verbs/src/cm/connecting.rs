//! Connections that are being set up.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context as TaskContext, Poll};
use std::time::Duration;

use ferroce_device::Nic;
use ferroce_device::cm::ConnectionManager;
use ferroce_transport::cm::{Connect, Ends};
use ferroce_transport::{ModifyError, State};
use ferroce_wire::mad::{
    CommId, IpCmHeader, IpPair, Opaque, PortSpace, Req, ReqPath, ServiceId, Timeout, TransportService,
};
use ferroce_wire::{PKey, Service};

use super::error::CmError;
use super::established::Established;
use super::link::{Link, Stage};
use super::options::CmOptions;
use super::steps::Steps;
use crate::capability::{Capability, Unsupported};
use crate::card::connector::{CardConnection, Wish};
use crate::device::Device;
use crate::queue_pair::{Of, QueuePair};

/// Connects a queue pair, from its own address to a port of a peer, and waits until the connection stands.
///
/// The queue pair must be new, or [reset](QueuePair::reset). Receives can be posted before.
///
/// # Errors
/// What is in the way. It returns within [`CmOptions::timeout`].
pub fn connect(peer: SocketAddr, qp: &QueuePair, options: &CmOptions) -> Result<Established, CmError> {
    start_connect(peer, qp, options)?.wait()
}

/// The same without waiting.
///
/// # Errors
/// What can be seen at once.
pub fn start_connect(peer: SocketAddr, qp: &QueuePair, options: &CmOptions) -> Result<Connecting, CmError> {
    let device = qp.domain().device();
    device.can(Capability::Connections).then_some(()).ok_or(Unsupported::from(Capability::Connections))?;
    let service = ServiceId::rdma_ip(PortSpace::Tcp, peer.port());
    check_new(qp)?;
    let transport_service = match qp.service() {
        Service::Rc => TransportService::Rc,
        Service::Uc => TransportService::Uc,
        given => return Err(CmError::WrongService { qpn: qp.qpn(), given, needed: Service::Rc }),
    };
    let local = qp.gid.ip();
    let (nic, soft) = match (&device, qp.of()) {
        (Device::Soft(nic), Of::Soft(soft)) => (nic, soft),
        (_, Of::Card(qp)) => {
            let connection = CardConnection::ask(&Wish { qp, local, peer, options })?;
            let link = Arc::clone(&connection.link);
            let attempt = Attempt { hold: Hold::Card(connection), link, limit: options.limit() };
            return Ok(Connecting::new(attempt));
        }
        // A queue pair is of its domain's device.
        (Device::Card(_), Of::Soft(_)) => return Err(CmError::OtherDevice { qpn: qp.qpn() }),
    };
    let (source_port, private_data) = ip_private_data(nic, (local, peer.ip()), &options.private_data)?;
    let path_mtu = options.qp.path_mtu.unwrap_or_else(|| nic.active_mtu());
    let psn = qp.local_address().psn;
    let primary = ReqPath {
        local_lid: ReqPath::ROCE_LID,
        remote_lid: ReqPath::ROCE_LID,
        local_gid: local.into(),
        remote_gid: peer.ip().into(),
        flow_label: options.qp.flow_label,
        traffic_class: options.qp.traffic_class,
        hop_limit: if options.qp.hop_limit == 0 { 64 } else { options.qp.hop_limit },
        local_ack_timeout: Timeout::new(options.qp.timeout),
        ..ReqPath::default()
    };
    let req = Req {
        local_ca_guid: nic.info().node_guid(),
        local_qpn: qp.qpn(),
        starting_psn: psn,
        responder_resources: options.qp.max_dest_rd_atomic,
        initiator_depth: options.qp.max_rd_atomic,
        transport_service,
        end_to_end_flow_control: true,
        retry_count: options.qp.retry_count,
        rnr_retry_count: options.qp.rnr_retry,
        pkey: pkey(qp, options)?,
        path_mtu: path_mtu.code(),
        srq: qp.has_shared_queue(),
        primary,
        private_data,
        ..Req::default()
    };
    let ends = Ends { local, remote: peer.ip() };
    let sgid_index = options.qp.gid_index.unwrap_or(qp.gid_index);
    let steps = Steps::new(soft, psn, options.qp, (peer.ip(), sgid_index), path_mtu);
    let link = Link::asking(peer, SocketAddr::new(local, source_port), qp.qpn(), steps);
    let manager = nic.connections().map_err(|error| CmError::system(&error))?;
    let wish = Connect { ends, req, service, patience: options.patience() };
    let watcher = Arc::clone(&link);
    let id = manager.connect(&wish, watcher).map_err(CmError::NoRoom)?;
    let hold = Hold::Soft { nic: nic.clone(), manager, id };
    Ok(Connecting::new(Attempt { hold, link, limit: options.limit() }))
}

/// The P_Key that a connection will have.
fn pkey(qp: &QueuePair, options: &CmOptions) -> Result<PKey, CmError> {
    let refused = |error| CmError::QueuePair { qpn: qp.qpn(), error };
    let index = match options.qp.pkey_index {
        Some(index) => index,
        None => qp.query().map_err(refused)?.attributes.pkey_index,
    };
    let table = qp.domain().device().pkeys();
    let found = table.get(usize::from(index)).copied();
    found.ok_or(CmError::NoSuchPKey { given: index, len: table.len() })
}

/// A connection that is being set up: wait for it, await it, or poll it. Dropping it gives the attempt up.
#[must_use = "dropping it gives the attempt up"]
#[derive(Debug)]
pub struct Connecting {
    /// What there is to give up; nothing once the outcome is known.
    attempt: Option<Attempt>,
}

/// One end of a connection.
#[derive(Debug)]
pub(crate) struct Attempt {
    pub(crate) hold: Hold,
    pub(crate) link: Arc<Link>,
    /// There is an outcome by then.
    pub(crate) limit: Duration,
}

/// What is held of a connection, whose end gives it up.
#[derive(Debug)]
pub(crate) enum Hold {
    /// The device, its manager, and our name for the connection.
    Soft {
        nic: Nic,
        manager: Arc<ConnectionManager>,
        id: CommId,
    },
    Card(Arc<CardConnection>),
}

impl Attempt {
    /// Whether the device was opened in this process.
    pub(crate) fn is_ours(&self) -> bool {
        match &self.hold {
            Hold::Soft { nic, .. } => nic.is_ours(),
            Hold::Card(connection) => connection.is_ours(),
        }
    }

    /// Gives it up.
    pub(crate) fn abandon(&self) {
        match &self.hold {
            Hold::Soft { manager, id, .. } => manager.abandon(*id),
            // It is given up as it is dropped, which follows.
            Hold::Card(_) => {}
        }
    }

    /// Ends the work of the queue pair, and asks the peer to do the same.
    pub(crate) fn disconnect(&self) {
        match &self.hold {
            Hold::Soft { manager, id, .. } => {
                self.link.flush();
                // If the peer was faster, that is as good.
                let _ = manager.disconnect(*id);
            }
            Hold::Card(connection) => connection.disconnect(),
        }
    }
}

impl Connecting {
    pub(crate) const fn new(attempt: Attempt) -> Self {
        Self { attempt: Some(attempt) }
    }

    /// Waits until the connection stands. It ends by itself within [`CmOptions::timeout`].
    ///
    /// # Errors
    /// Why it came to nothing.
    pub fn wait(mut self) -> Result<Established, CmError> {
        let Some(attempt) = self.attempt.take() else { return Err(forgotten()) };
        if !attempt.is_ours() {
            return Err(CmError::System(io::ErrorKind::NotConnected));
        }
        // The manager ends it in time, unless it is broken.
        match attempt.link.stage.wait(Some(attempt.limit), outcome) {
            Some(Ok(())) => Ok(Established::new(attempt)),
            Some(Err(error)) => Err(error),
            None => {
                attempt.abandon();
                Err(CmError::System(io::ErrorKind::TimedOut))
            }
        }
    }

    /// Looks whether the connection stands; if not, the task is woken when there is an outcome.
    pub fn poll_established(&mut self, cx: &mut TaskContext<'_>) -> Poll<Result<Established, CmError>> {
        let Some(attempt) = &self.attempt else { return Poll::Ready(Err(forgotten())) };
        let Some(outcome) = attempt.link.stage.poll(cx.waker(), outcome) else { return Poll::Pending };
        let attempt = self.attempt.take();
        Poll::Ready(match (outcome, attempt) {
            (Ok(()), Some(attempt)) => Ok(Established::new(attempt)),
            (Err(error), _) => Err(error),
            (Ok(()), None) => Err(forgotten()),
        })
    }

    /// Gives the attempt up, as dropping it does.
    pub fn cancel(self) {
        drop(self);
    }
}

impl Future for Connecting {
    type Output = Result<Established, CmError>;

    fn poll(mut self: Pin<&mut Self>, cx: &mut TaskContext<'_>) -> Poll<Self::Output> {
        self.poll_established(cx)
    }
}

impl Drop for Connecting {
    fn drop(&mut self) {
        if let Some(attempt) = self.attempt.take() {
            attempt.abandon();
        }
    }
}

/// A new connection may have ended already: that is told by what comes of it.
fn outcome(stage: &mut Stage) -> Option<Result<(), CmError>> {
    match stage {
        Stage::Waiting(_) => None,
        Stage::Stands(_) | Stage::Ending(..) | Stage::Ended(..) => Some(Ok(())),
        Stage::Failed(error) => Some(Err(error.clone())),
    }
}

/// The error of a future that is polled when it is done.
const fn forgotten() -> CmError {
    CmError::System(io::ErrorKind::NotConnected)
}

/// A queue pair can be connected from INIT only; one in RESET is taken there.
pub(crate) fn check_new(qp: &QueuePair) -> Result<(), CmError> {
    let refused = |error| CmError::QueuePair { qpn: qp.qpn(), error };
    qp.initialise().map_err(refused)?;
    let state = qp.state();
    if state == State::Init {
        return Ok(());
    }
    let (service, from, to) = (qp.service(), state, State::Rtr);
    Err(refused(ModifyError::NoTransition { service, from, to }.into()))
}

/// Private data that begin with the addresses of an IP service, and the port that we ask from.
pub(crate) fn ip_private_data<const N: usize>(
    nic: &Nic,
    (local, remote): (IpAddr, IpAddr),
    consumer: &[u8],
) -> Result<(u16, Opaque<N>), CmError> {
    let pair = IpPair::new(local, remote).ok_or(CmError::Family { local, peer: remote })?;
    // Any port of the dynamic range: nothing is bound to it.
    let source_port = 0xc000 | u16::try_from(nic.random_u32() & 0x3fff).unwrap_or(0);
    let too_long =
        CmError::PrivateDataTooLong { given: consumer.len(), allowed: N.saturating_sub(IpCmHeader::LEN) };
    let data = IpCmHeader::new(source_port, pair).private_data(consumer).map_err(|_| too_long)?;
    Ok((source_port, data))
}
