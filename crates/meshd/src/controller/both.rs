//! Both protocols on one socket.

use std::convert::Infallible;
use std::sync::Arc;

use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::codegen::{BoxFuture, Context, Poll, Service};
use tonic::server::NamedService;

use super::Shared;
use super::mesh_service::MeshService;
use super::rebuild_service::RebuildService;
use crate::proto::rebuild::controller_service_server::ControllerServiceServer;
use crate::proto::v1::mesh_server::MeshServer;

/// What a controller that stands by answers, too.
const COUNTERS: &str = "Counters";

/// Ours, and that of the rebuild; a path that begins with its name belongs to the latter.
#[derive(Clone, Debug)]
pub(super) struct Both {
    pub(super) shared: Arc<Shared>,
    pub(super) mesh: MeshServer<MeshService>,
    pub(super) rebuild: ControllerServiceServer<RebuildService>,
}

impl Service<Request<Body>> for Both {
    type Response = Response<Body>;
    type Error = Infallible;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let mut parts = request.uri().path().split('/').skip(1);
        let name = parts.next();
        if parts.next() != Some(COUNTERS)
            && let Err(stands_by) = self.shared.leads()
        {
            return Box::pin(async move { Ok(stands_by.into_http()) });
        }
        if name == Some(<ControllerServiceServer<RebuildService> as NamedService>::NAME) {
            self.rebuild.call(request)
        } else {
            self.mesh.call(request)
        }
    }
}
