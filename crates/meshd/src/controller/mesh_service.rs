//! Our own protocol.

use std::net::IpAddr;
use std::sync::Arc;

use ferroce_mesh::controller::{LeaseLost, Registration, Rnic};
use ferroce_probe::net::QKEY;
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Request, Response, Status};

use super::desk::Refusal;
use super::{Shared, Standing, watch};
use crate::database::AnalyzerPlace;
use crate::proto::v1;
use crate::tls::Peer;
use crate::window::{address, bytes};
use crate::{client, clock};

/// The name that the certificate of an analyzer carries.
const ANALYZER: &str = "analyzer";

/// Addresses that an agent may ask for at once.
pub(crate) const LOCATED: usize = 256;

#[derive(Debug)]
pub(super) struct MeshService {
    pub(super) shared: Arc<Shared>,
}

impl MeshService {
    fn lease(&self, analyzer: &str) -> Response<v1::Lease> {
        let config = &self.shared.config;
        Response::new(v1::Lease {
            lease_ms: clock::millis(config.registry.lease),
            analyzer: analyzer.to_owned(),
            window_ms: clock::millis(config.window),
        })
    }
}

#[tonic::async_trait]
impl v1::mesh_server::Mesh for MeshService {
    async fn register(&self, request: Request<v1::RegisterRequest>) -> Result<Response<v1::Lease>, Status> {
        self.shared.refuse_foreign(Peer::check(&request, &request.get_ref().agent))?;
        let request = request.into_inner();
        let epoch = request.epoch;
        let most = self.shared.config.registry.rnics;
        let done = self.shared.at_desk(|desk| {
            let registration =
                registration(request, most).inspect_err(|_| desk.counters.refused_rnics += 1)?;
            desk.register(registration, epoch, clock::now()).map_err(|refusal| refused(&refusal))?;
            Ok::<_, Status>(desk.analyzer().to_owned())
        });
        Ok(self.lease(&done?))
    }

    async fn renew(&self, request: Request<v1::RenewRequest>) -> Result<Response<v1::Lease>, Status> {
        self.shared.refuse_foreign(Peer::check(&request, &request.get_ref().agent))?;
        let v1::RenewRequest { agent, epoch } = request.into_inner();
        let done = self.shared.at_desk(|desk| {
            desk.renew(&agent, epoch, clock::now())?;
            Ok(desk.analyzer().to_owned())
        });
        done.map(|analyzer: String| self.lease(&analyzer)).map_err(|lost| no_lease(&lost))
    }

    type WatchStream = ReceiverStream<Result<v1::Pinglist, Status>>;

    async fn watch(&self, request: Request<v1::WatchRequest>) -> Result<Response<Self::WatchStream>, Status> {
        self.shared.refuse_foreign(Peer::check(&request, &request.get_ref().agent))?;
        let v1::WatchRequest { agent, epoch } = request.into_inner();
        let place = watch::place(&self.shared)?;
        let number = self.shared.at_desk(|desk| desk.begin_watch(&agent, epoch, clock::now()));
        let number = number.map_err(|lost| no_lease(&lost))?;
        let shared = Arc::clone(&self.shared);
        Ok(Response::new(watch::pinglists(shared, place, agent, epoch, number)))
    }

    async fn locate(&self, request: Request<v1::LocateRequest>) -> Result<Response<v1::LocateReply>, Status> {
        self.shared.refuse_foreign(Peer::check(&request, &request.get_ref().agent))?;
        let v1::LocateRequest { agent, addresses } = request.into_inner();
        if addresses.len() > LOCATED {
            return Err(Status::invalid_argument(format!(
                "{} addresses, and there may be {LOCATED}",
                addresses.len()
            )));
        }
        let addresses: Vec<IpAddr> = addresses.iter().filter_map(|bytes| address(bytes).ok()).collect();
        let found = self.shared.at_desk(|desk| desk.locate(&agent, &addresses, clock::now()));
        let found = found.map_err(|lost| no_lease(&lost))?;
        let rnic = |(address, qpn)| v1::Located { address: bytes(address), qpn };
        Ok(Response::new(v1::LocateReply { rnics: found.into_iter().map(rnic).collect() }))
    }

    type RosterStream = ReceiverStream<Result<v1::RosterState, Status>>;

    async fn roster(
        &self,
        request: Request<v1::RosterRequest>,
    ) -> Result<Response<Self::RosterStream>, Status> {
        // All agents will report to it.
        self.shared.refuse_foreign(Peer::check(&request, ANALYZER))?;
        let v1::RosterRequest { analyzer, term } = request.into_inner();
        let url = client::normal(&analyzer, self.shared.credentials.as_ref())
            .map_err(|error| Status::invalid_argument(error.to_string()))?;
        let place = watch::place(&self.shared)?;
        self.shared.at_desk(|desk| desk.set_analyzer(AnalyzerPlace { url, term }));
        Ok(Response::new(watch::rosters(Arc::clone(&self.shared), place)))
    }

    async fn counters(&self, _: Request<v1::CountersRequest>) -> Result<Response<v1::CountersReply>, Status> {
        let counters = self.shared.desk().counters.to_message();
        let Standing { leads, trouble } = self.shared.standing().clone();
        Ok(Response::new(v1::CountersReply { counters, leads, trouble }))
    }
}

pub(super) fn no_lease(lost: &LeaseLost) -> Status {
    Status::not_found(lost.to_string())
}

/// An older life is told apart by its code, and the known one is in the message, so that an agent whose clock was
/// set back can begin a later one.
fn refused(refusal: &Refusal) -> Status {
    let text = refusal.to_string();
    match refusal {
        Refusal::OldEpoch { known, .. } => {
            let mut status = Status::failed_precondition(text);
            status.metadata_mut().insert("known-epoch", (*known).into());
            status
        }
        Refusal::Registry(_) => Status::invalid_argument(text),
    }
}

fn registration(request: v1::RegisterRequest, most: usize) -> Result<Registration, Status> {
    let v1::RegisterRequest { agent, host, rnics, .. } = request;
    let wrong = |text: String| Err(Status::invalid_argument(text));
    // One more than may be, so that the registry says what is wrong.
    let rnics = rnics.into_iter().take(most + 1).map(|rnic| {
        let v1::Rnic { address, gid, qpn, qkey, tor, device } = rnic;
        let Some(parsed) = parse(&address) else {
            return wrong(format!("{:?} is no address", short(&address)));
        };
        if !gid.is_empty() && parse(&gid) != Some(parsed) {
            return wrong(format!("GID {:?} does not belong to {parsed}", short(&gid)));
        }
        if qkey != QKEY.0 {
            return wrong(format!("Q_Key {qkey:#x} of {parsed}; responders have {:#x}", QKEY.0));
        }
        Ok(Rnic { address: parsed, qpn, host: host.clone(), tor, device })
    });
    Ok(Registration { agent, rnics: rnics.collect::<Result<_, _>>()? })
}

/// An address, as IPv4 if it is one in the clothes of IPv6.
pub(super) fn parse(text: &str) -> Option<IpAddr> {
    text.parse().ok().map(|address: IpAddr| address.to_canonical())
}

/// As much of a foreign text as is said again.
pub(super) fn short(text: &str) -> String {
    text.chars().take(64).collect()
}
