//! The messages and services, as they are compiled from `proto/`.

/// What the controller, the agents and the analyzer of a mesh tell each other.
#[allow(
    clippy::all,
    clippy::allow_attributes_without_reason,
    clippy::pedantic,
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    reason = "compiled"
)]
pub mod v1 {
    tonic::include_proto!("ferroce.mesh.v1");
}

/// The protocol of the public rebuild of R-Pingmesh.
#[allow(
    clippy::all,
    clippy::allow_attributes_without_reason,
    clippy::pedantic,
    missing_docs,
    unreachable_pub,
    unused_qualifications,
    reason = "compiled"
)]
pub mod rebuild {
    tonic::include_proto!("controller_agent");
}
