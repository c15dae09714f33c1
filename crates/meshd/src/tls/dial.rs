//! Connections to services.

use std::io;
use std::time::Duration;

use thiserror::Error;
use tokio::io::AsyncBufReadExt;
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsConnector;
use tokio_rustls::client::TlsStream;
use tokio_rustls::rustls::AlertDescription;
use tokio_rustls::rustls::Error as TlsError;
use tokio_rustls::rustls::pki_types::ServerName;

use super::credentials::Credentials;
use super::problem::CertificateProblem;
use super::stream::Stream;

/// Why no connection to a service comes about.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum HandshakeError {
    /// Nothing is there.
    #[error("nothing answers there")]
    Away,
    /// It takes too long.
    #[error("it does not answer in time")]
    Late,
    /// The service has no certificates.
    #[error("what answers there does not speak TLS; is it run without certificates?")]
    PlainText,
    /// Its certificate is not one that we take.
    #[error("its certificate is refused here: {problem}")]
    Theirs {
        /// What is wrong with it.
        problem: CertificateProblem,
    },
    /// It does not take our certificate.
    #[error("it refuses the certificate that is shown to it: {problem}")]
    Ours {
        /// What is wrong with it.
        problem: CertificateProblem,
    },
    /// The connection broke during the handshake.
    #[error("the connection broke during the handshake")]
    Broken,
}

/// Connects to a host, by its name or address, and with credentials makes sure that it is this host.
pub(crate) async fn dial(
    host: &str,
    port: u16,
    credentials: Option<&Credentials>,
    patience: Duration,
) -> Result<Stream, HandshakeError> {
    let connect = async {
        let stream = TcpStream::connect((host, port)).await.map_err(|_| HandshakeError::Away)?;
        let _ = stream.set_nodelay(true);
        match credentials {
            None => Ok(Stream::Plain(stream)),
            Some(ours) => Ok(Stream::Tls(Box::new(shake_hands(host, stream, ours).await?.into()))),
        }
    };
    timeout(patience, connect).await.unwrap_or(Err(HandshakeError::Late))
}

async fn shake_hands(
    host: &str,
    stream: TcpStream,
    ours: &Credentials,
) -> Result<TlsStream<TcpStream>, HandshakeError> {
    let name = ServerName::try_from(host).map_err(|_| HandshakeError::Away)?.to_owned();
    let why = |error: io::Error| why(&error);
    let mut stream = TlsConnector::from(ours.client()).connect(name, stream).await.map_err(why)?;
    // Its first bytes tell that it has taken our certificate, as it looks at that after our side of the
    // handshake.
    let is_over = stream.fill_buf().await.map_err(why)?.is_empty();
    if is_over { Err(HandshakeError::Broken) } else { Ok(stream) }
}

fn why(error: &io::Error) -> HandshakeError {
    let Some(cause) = error.get_ref().and_then(|cause| cause.downcast_ref::<TlsError>()) else {
        return HandshakeError::Broken;
    };
    if let Some(problem) = CertificateProblem::of(cause) {
        return HandshakeError::Theirs { problem };
    }
    match cause {
        // Ours speak the one version, or none at all.
        TlsError::AlertReceived(AlertDescription::ProtocolVersion) | TlsError::InvalidMessage(_) => {
            HandshakeError::PlainText
        }
        TlsError::AlertReceived(alert) => match CertificateProblem::of_alert(*alert) {
            Some(problem) => HandshakeError::Ours { problem },
            None => HandshakeError::Broken,
        },
        _ => HandshakeError::Broken,
    }
}
