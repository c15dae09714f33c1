//! What a program shows of itself, and what it trusts.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use tokio_rustls::rustls::Error as TlsError;
use tokio_rustls::rustls::client::Resumption;
use tokio_rustls::rustls::crypto::{CryptoProvider, ring};
use tokio_rustls::rustls::pki_types::{CertificateDer, DnsName, UnixTime};
use tokio_rustls::rustls::server::WebPkiClientVerifier;
use tokio_rustls::rustls::server::danger::ClientCertVerifier;
use tokio_rustls::rustls::sign::CertifiedKey;
use tokio_rustls::rustls::{ClientConfig, InconsistentKeys, RootCertStore, ServerConfig, version};

use super::files::{self, CredentialsError};
use super::peer::names;
use super::problem::CertificateProblem;
use crate::clock;

/// The protocol inside of TLS: HTTP/2.
const INSIDE: &[u8] = b"h2";

/// Where the certificate of the CA, our own and our key are.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct CredentialFiles {
    /// The certificate of the CA that all others of the mesh are made by.
    pub ca: PathBuf,
    /// Our own certificate, and those between it and the CA, if there are any.
    pub certificate: PathBuf,
    /// Our key.
    pub key: PathBuf,
}

impl CredentialFiles {
    /// The files as [`Authority`](super::Authority) names them: `ca.pem`, and `NAME.pem` and `NAME.key`
    /// beside it, for a path that ends in the name.
    #[must_use]
    pub fn beside(path: &Path) -> Self {
        let with = |end: &str| {
            let mut name = path.file_name().unwrap_or_default().to_owned();
            name.push(end);
            path.with_file_name(name)
        };
        Self { ca: path.with_file_name("ca.pem"), certificate: with(".pem"), key: with(".key") }
    }
}

/// A certificate with its key, and the CA that the certificates of others must be made by.
#[derive(Clone, Debug)]
pub struct Credentials {
    names: Arc<[String]>,
    server: Arc<ServerConfig>,
    client: Arc<ClientConfig>,
}

impl Credentials {
    /// Reads them from PEM files, and makes sure that they are good at this time.
    ///
    /// # Errors
    /// A file cannot be read or holds something else, all users may read the key, the key is another's, or
    /// the certificate is expired or none of the CA.
    pub fn read(from: &CredentialFiles) -> Result<Self, CredentialsError> {
        let provider = Arc::new(ring::default_provider());
        let roots = roots(&from.ca)?;
        let chain = files::certificates(&from.certificate)?;
        let key = files::key(&from.key)?;
        let no_key = |_| CredentialsError::Key { path: from.key.clone() };
        let signing = provider.key_provider.load_private_key(key.clone_key()).map_err(no_key)?;
        let problem = |source| {
            let (path, ca) = (from.certificate.clone(), from.ca.clone());
            CredentialsError::Certificate { path, ca, source }
        };
        match CertifiedKey::new(chain.clone(), signing).keys_match() {
            // A kind of key that cannot be compared shows in the first handshake.
            Ok(()) | Err(TlsError::InconsistentKeys(InconsistentKeys::Unknown)) => {}
            Err(TlsError::InconsistentKeys(_)) => {
                let (key, certificate) = (from.key.clone(), from.certificate.clone());
                return Err(CredentialsError::Mismatch { key, certificate });
            }
            Err(_) => return Err(problem(CertificateProblem::Unreadable)),
        }
        let no_ca = |_| CredentialsError::Ca { path: from.ca.clone() };
        let judge = WebPkiClientVerifier::builder_with_provider(Arc::clone(&roots), Arc::clone(&provider));
        let judge = judge.build().map_err(no_ca)?;
        let names = own_names(&chain, &judge).map_err(problem)?;
        if names.is_empty() {
            return Err(CredentialsError::NoName { path: from.certificate.clone() });
        }
        let server = server(&provider, judge, chain.clone(), key.clone_key())?;
        let client = client(&provider, roots, chain, key)?;
        Ok(Self { names, server: Arc::new(server), client: Arc::new(client) })
    }

    /// The names that the certificate carries: its owner may be the agent of any of them.
    #[must_use]
    pub fn names(&self) -> &[String] {
        &self.names
    }

    pub(super) fn server(&self) -> Arc<ServerConfig> {
        Arc::clone(&self.server)
    }

    pub(super) fn client(&self) -> Arc<ClientConfig> {
        Arc::clone(&self.client)
    }
}

/// Whether a certificate can carry this name.
pub(crate) fn is_name(text: &str) -> bool {
    DnsName::try_from(text).is_ok()
}

fn roots(path: &Path) -> Result<Arc<RootCertStore>, CredentialsError> {
    let mut roots = RootCertStore::empty();
    for certificate in files::certificates(path)? {
        roots.add(certificate).map_err(|_| CredentialsError::Ca { path: path.to_owned() })?;
    }
    Ok(Arc::new(roots))
}

/// The names of our own certificate, if others will take it.
fn own_names(
    chain: &[CertificateDer<'static>],
    judge: &Arc<dyn ClientCertVerifier>,
) -> Result<Arc<[String]>, CertificateProblem> {
    let Some((own, between)) = chain.split_first() else { return Err(CertificateProblem::Missing) };
    let now = UnixTime::since_unix_epoch(Duration::from_nanos(clock::unix_nanos()));
    let taken = judge.verify_client_cert(own, between, now);
    taken.map_err(|error| CertificateProblem::of(&error).unwrap_or(CertificateProblem::Unreadable))?;
    names(own).ok_or(CertificateProblem::Unreadable)
}

fn server(
    provider: &Arc<CryptoProvider>,
    judge: Arc<dyn ClientCertVerifier>,
    chain: Vec<CertificateDer<'static>>,
    key: tokio_rustls::rustls::pki_types::PrivateKeyDer<'static>,
) -> Result<ServerConfig, CredentialsError> {
    let config = ServerConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&version::TLS13])
        .map_err(|_| CredentialsError::Ciphers)?
        .with_client_cert_verifier(judge)
        .with_single_cert(chain, key);
    let mut config = config.map_err(|_| CredentialsError::Ciphers)?;
    config.alpn_protocols = vec![INSIDE.to_vec()];
    // Each connection shows its certificate anew, so that an expired one is not carried on.
    config.send_tls13_tickets = 0;
    Ok(config)
}

fn client(
    provider: &Arc<CryptoProvider>,
    roots: Arc<RootCertStore>,
    chain: Vec<CertificateDer<'static>>,
    key: tokio_rustls::rustls::pki_types::PrivateKeyDer<'static>,
) -> Result<ClientConfig, CredentialsError> {
    let config = ClientConfig::builder_with_provider(Arc::clone(provider))
        .with_protocol_versions(&[&version::TLS13])
        .map_err(|_| CredentialsError::Ciphers)?
        .with_root_certificates(roots)
        .with_client_auth_cert(chain, key);
    let mut config = config.map_err(|_| CredentialsError::Ciphers)?;
    config.alpn_protocols = vec![INSIDE.to_vec()];
    config.resumption = Resumption::disabled();
    Ok(config)
}

/// Trusts servers of this CA, and shows them nothing: such as a database, which asks for a password.
pub(crate) fn trusting(ca: &Path) -> Result<ClientConfig, CredentialsError> {
    let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
        .with_protocol_versions(&[&version::TLS13])
        .map_err(|_| CredentialsError::Ciphers)?
        .with_root_certificates(roots(ca)?)
        .with_no_client_auth();
    Ok(config)
}
