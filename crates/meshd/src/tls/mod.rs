//! TLS with certificates on both sides: what the services speak to other machines.
//!
//! A certificate for a name allows to be the agent of that name, and a server at the names and addresses that
//! it carries. [`Credentials`] are what one program has of it, and [`Authority`] makes them for trials.

mod accept;
mod authority;
mod credentials;
mod dial;
mod files;
mod peer;
mod problem;
mod stream;

pub use authority::{Authority, AuthorityError, Validity};
pub use credentials::{CredentialFiles, Credentials};
pub use dial::HandshakeError;
pub use files::CredentialsError;
pub use problem::CertificateProblem;

pub(crate) use accept::{Gate, HandshakeCounts, TLS_ONLY};
pub(crate) use credentials::{is_name, trusting};
pub(crate) use dial::dial;
pub(crate) use peer::Peer;
pub(crate) use stream::Stream;
