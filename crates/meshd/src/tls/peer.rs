//! What a connection's other end may be.

use std::sync::Arc;

use tokio_rustls::rustls::pki_types::CertificateDer;
use tonic::{Request, Status};

/// The other end of a connection.
#[derive(Clone, Debug)]
pub(crate) enum Peer {
    /// A program of this machine, without a certificate: it may be all that it says.
    Local,
    /// A program with a certificate that carries these names.
    Known(Arc<[String]>),
}

impl Peer {
    /// Refuses what is said in the name of an agent that the other end cannot be.
    pub(crate) fn check<T>(request: &Request<T>, agent: &str) -> Result<(), Status> {
        Self::of(request)?.may_be(agent)
    }

    /// The other end of the connection that a request came on.
    pub(crate) fn of<T>(request: &Request<T>) -> Result<Self, Status> {
        let peer = request.extensions().get::<Self>().cloned();
        peer.ok_or_else(|| Status::internal("it is not known where this comes from"))
    }

    /// Whether its certificate carries this name.
    pub(crate) fn may_be(&self, name: &str) -> Result<(), Status> {
        let Self::Known(names) = self else { return Ok(()) };
        if names.iter().any(|known| known == name) {
            return Ok(());
        }
        let said: String = name.chars().take(64).collect();
        let known = names.iter().take(8).map(String::as_str).collect::<Vec<_>>().join(" and ");
        Err(Status::permission_denied(format!("the certificate is for {known}, not for {said:?}")))
    }
}

/// The names that a certificate carries, without those that stand for many; none if it cannot be read.
pub(super) fn names(certificate: &CertificateDer<'_>) -> Option<Arc<[String]>> {
    let certificate = webpki::EndEntityCert::try_from(certificate).ok()?;
    let single = certificate.valid_dns_names().filter(|name| !name.contains('*'));
    Some(single.map(str::to_owned).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_certificate_allows_its_own_names_to_the_letter() {
        let peer = Peer::Known(["host1".to_owned(), "host1.example".to_owned()].into());
        for name in ["host1", "host1.example"] {
            assert!(peer.may_be(name).is_ok(), "{name}");
        }
        for name in ["host2", "HOST1", "", "host1.", "host", "host1.example.org"] {
            let refused = peer.may_be(name).unwrap_err();
            assert_eq!(refused.code(), tonic::Code::PermissionDenied, "{name}");
            assert!(refused.message().contains("for host1 and host1.example, not for"), "{refused:?}");
        }
        assert!(peer.may_be(&"x".repeat(1 << 20)).unwrap_err().message().len() < 200);
        assert!(Peer::Local.may_be("anything").is_ok());
        let unknown = Peer::check(&Request::new(()), "host1").unwrap_err();
        assert_eq!(unknown.code(), tonic::Code::Internal);
    }
}
