//! Both protocols on one socket.

use std::convert::Infallible;

use tonic::body::Body;
use tonic::codegen::http::{Request, Response};
use tonic::codegen::{BoxFuture, Context, Poll, Service};
use tonic::server::NamedService;

use super::mesh_service::MeshService;
use super::rebuild_service::RebuildService;
use crate::proto::rebuild::controller_service_server::ControllerServiceServer;
use crate::proto::v1::mesh_server::MeshServer;

/// Ours, and that of the rebuild; a path that begins with its name belongs to the latter.
#[derive(Clone, Debug)]
pub(super) struct Both {
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
        let name = request.uri().path().split('/').nth(1);
        if name == Some(<ControllerServiceServer<RebuildService> as NamedService>::NAME) {
            self.rebuild.call(request)
        } else {
            self.mesh.call(request)
        }
    }
}
