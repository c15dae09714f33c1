//! Questions to the services, and how their addresses are written.

use std::io;
use std::net::SocketAddr;
use std::time::Duration;

use hyper_util::rt::TokioIo;
use thiserror::Error;
use tonic::codegen::http::Uri;
use tonic::codegen::{BoxFuture, Context, Poll, Service};
use tonic::transport::{Channel, Endpoint};

use crate::proto::v1;
use crate::tls::{Credentials, HandshakeError, Stream, TLS_ONLY, dial, is_name};

/// How long a connection may take, and a question that is answered at once.
pub(crate) const PATIENCE: Duration = Duration::from_secs(5);

/// Why a text does not say where a service is.
#[derive(Clone, Debug, PartialEq, Eq, Error)]
#[non_exhaustive]
pub enum UrlError {
    /// It is no address with a port.
    #[error(
        "{url:?} does not say where a service is; write an address and a port, such as http://127.0.0.1:50051"
    )]
    Text {
        /// The text.
        url: String,
    },
    /// It is not on this machine.
    #[error("{address} is not on this machine, and without certificates nothing is said to others")]
    NotLoopback {
        /// The address.
        address: SocketAddr,
    },
    /// It needs certificates, and there are none.
    #[error("{url:?} is a service with TLS, which needs certificates")]
    NeedsCertificates {
        /// The text.
        url: String,
    },
    /// It is without TLS, and there are certificates.
    #[error("{url:?} is a service without TLS; with certificates, write https")]
    PlainText {
        /// The text.
        url: String,
    },
    /// It is an address that stands for all of a machine.
    #[error("agents cannot find a service at {address}: say the address or name that they are to use")]
    Unspecified {
        /// The address.
        address: SocketAddr,
    },
}

/// Why a question was not answered.
#[derive(Debug, Error)]
#[non_exhaustive]
pub enum MeshClientError {
    /// The address is none.
    #[error(transparent)]
    Url(#[from] UrlError),
    /// There is no service.
    #[error("no service answers at {url}; is it running?")]
    Away {
        /// Where it should be.
        url: String,
    },
    /// There is no connection to the service.
    #[error("no connection to {url}")]
    Handshake {
        /// Where it should be.
        url: String,
        /// Why.
        source: HandshakeError,
    },
    /// It speaks TLS only.
    #[error("{url} speaks TLS only; it needs certificates")]
    NeedsCertificates {
        /// Where it is.
        url: String,
    },
    /// It does not answer the question.
    #[error("{url} does not answer: {}", status.message())]
    Refused {
        /// Where it is.
        url: String,
        /// What it says.
        status: Box<tonic::Status>,
    },
    /// No thread or socket can be had.
    #[error("cannot ask")]
    System(#[from] io::Error),
}

/// Where a service is, as text that others understand.
pub(crate) fn normal(url: &str, credentials: Option<&Credentials>) -> Result<String, UrlError> {
    Place::read(url, credentials.is_some()).map(|place| place.url())
}

/// Where several services are of which one leads; there is at least one.
pub(crate) fn all_normal(
    urls: &[String],
    credentials: Option<&Credentials>,
) -> Result<Vec<String>, UrlError> {
    if urls.is_empty() {
        return Err(UrlError::Text { url: String::new() });
    }
    urls.iter().map(|url| normal(url, credentials)).collect()
}

/// Goes around among several services until one is found that leads.
#[derive(Debug)]
pub(crate) struct Round {
    urls: Vec<String>,
    at: usize,
}

impl Round {
    pub(crate) const fn new(urls: Vec<String>) -> Self {
        Self { urls, at: 0 }
    }

    /// The service that is talked to.
    pub(crate) fn url(&self) -> &str {
        self.urls.get(self.at).map_or("", String::as_str)
    }

    /// It does not help: the next one may. True if all were asked by now.
    pub(crate) const fn pass(&mut self) -> bool {
        self.at = if self.at + 1 < self.urls.len() { self.at + 1 } else { 0 };
        self.at == 0
    }
}

/// Where a service is.
#[derive(Clone, Debug, PartialEq, Eq)]
struct Place {
    /// A name, or an address without brackets.
    host: String,
    port: u16,
    is_tls: bool,
}

impl Place {
    fn read(url: &str, is_tls: bool) -> Result<Self, UrlError> {
        let short = || url.chars().take(64).collect::<String>();
        let rest = match url.split_once("://") {
            None => url,
            Some(("https", rest)) if is_tls => rest,
            Some(("http", rest)) if !is_tls => rest,
            Some(("https", _)) => return Err(UrlError::NeedsCertificates { url: short() }),
            Some(("http", _)) => return Err(UrlError::PlainText { url: short() }),
            Some(_) => return Err(UrlError::Text { url: short() }),
        };
        let rest = rest.strip_suffix('/').unwrap_or(rest);
        if let Ok(address) = rest.parse::<SocketAddr>() {
            if address.ip().is_unspecified() && is_tls {
                return Err(UrlError::Unspecified { address });
            }
            if !is_tls && !address.ip().to_canonical().is_loopback() || address.port() == 0 {
                return Err(UrlError::NotLoopback { address });
            }
            return Ok(Self { host: address.ip().to_string(), port: address.port(), is_tls });
        }
        let named = rest.rsplit_once(':').and_then(|(host, port)| Some((host, port.parse::<u16>().ok()?)));
        match named {
            Some((host, port)) if is_tls && port != 0 && is_name(host) => {
                Ok(Self { host: host.to_owned(), port, is_tls })
            }
            _ => Err(UrlError::Text { url: short() }),
        }
    }

    fn url(&self) -> String {
        let Self { host, port, is_tls } = self;
        let scheme = if *is_tls { "https" } else { "http" };
        if host.contains(':') {
            format!("{scheme}://[{host}]:{port}")
        } else {
            format!("{scheme}://{host}:{port}")
        }
    }
}

/// Why there is no connection to a service.
#[derive(Debug)]
pub(crate) enum ConnectTrouble {
    Url(UrlError),
    Handshake(HandshakeError),
}

impl ConnectTrouble {
    /// What is to be told of it.
    pub(crate) fn told(&self, service: &str, url: &str) -> String {
        match self {
            Self::Url(error) => error.to_string(),
            Self::Handshake(HandshakeError::Away) => format!("no {service} answers at {url}"),
            Self::Handshake(error) => format!("no connection to the {service} at {url}: {error}"),
        }
    }
}

/// Connects to a service. When the connection breaks, it is not made anew.
pub(crate) async fn connect(
    url: &str,
    credentials: Option<&Credentials>,
    answer_within: Option<Duration>,
) -> Result<Channel, ConnectTrouble> {
    let place = Place::read(url, credentials.is_some()).map_err(ConnectTrouble::Url)?;
    let stream = dial(&place.host, place.port, credentials, PATIENCE).await;
    let stream = stream.map_err(ConnectTrouble::Handshake)?;
    let url = place.url();
    let endpoint = Endpoint::from_shared(url.clone());
    let mut endpoint = endpoint
        .map_err(|_| ConnectTrouble::Url(UrlError::Text { url }))?
        .http2_keep_alive_interval(Duration::from_secs(10))
        .keep_alive_timeout(Duration::from_secs(5))
        .keep_alive_while_idle(true);
    if let Some(limit) = answer_within {
        endpoint = endpoint.timeout(limit);
    }
    let once = Once(Some(TokioIo::new(stream)));
    let channel = endpoint.connect_with_connector(once).await;
    channel.map_err(|_| ConnectTrouble::Handshake(HandshakeError::Broken))
}

/// Hands out the connection that was made, once.
struct Once(Option<TokioIo<Stream>>);

impl Service<Uri> for Once {
    type Response = TokioIo<Stream>;
    type Error = io::Error;
    type Future = BoxFuture<Self::Response, Self::Error>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), Self::Error>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, _: Uri) -> Self::Future {
        let stream = self.0.take().ok_or_else(|| io::ErrorKind::NotConnected.into());
        Box::pin(async { stream })
    }
}

/// What is to be told of a service that does not go on answering.
pub(crate) fn said(service: &str, status: &tonic::Status) -> String {
    // What the other end said has no cause; what happened to the connection has one.
    match std::error::Error::source(status) {
        Some(_) if wants_tls(status) => format!("the {service} speaks TLS only; it needs certificates"),
        Some(_) => format!("the connection to the {service} broke"),
        None => format!("the {service} says: {}", status.message()),
    }
}

/// Whether the other end ended the connection since it speaks TLS only.
fn wants_tls(status: &tonic::Status) -> bool {
    let causes = std::iter::successors(std::error::Error::source(status), |cause| cause.source());
    causes.into_iter().any(|cause| cause.to_string().contains(TLS_ONLY))
}

/// A service that can be asked.
#[derive(Clone, Debug)]
pub struct Inquiry {
    url: String,
    credentials: Option<Credentials>,
}

impl Inquiry {
    /// The service at this address, which is on this machine.
    #[must_use]
    pub fn new(url: &str) -> Self {
        Self { url: url.to_owned(), credentials: None }
    }

    /// The service at this address, which has a certificate of the same CA.
    #[must_use]
    pub fn with(url: &str, credentials: Option<Credentials>) -> Self {
        Self { url: url.to_owned(), credentials }
    }

    /// What an analyzer says is bad.
    ///
    /// # Errors
    /// It is not there, or does not answer.
    pub fn findings(&self) -> Result<v1::FindingsReply, MeshClientError> {
        self.ask(async |channel| {
            v1::analysis_client::AnalysisClient::new(channel).findings(v1::FindingsRequest {}).await
        })
    }

    /// What an analyzer met, and the sums of what agents measured.
    ///
    /// # Errors
    /// It is not there, or does not answer.
    pub fn tallies(&self) -> Result<v1::TalliesReply, MeshClientError> {
        self.ask(async |channel| {
            v1::analysis_client::AnalysisClient::new(channel).tallies(v1::TalliesRequest {}).await
        })
    }

    /// What a controller met.
    ///
    /// # Errors
    /// It is not there, or does not answer.
    pub fn counters(&self) -> Result<v1::CountersReply, MeshClientError> {
        self.ask(async |channel| {
            v1::mesh_client::MeshClient::new(channel).counters(v1::CountersRequest {}).await
        })
    }

    fn ask<T>(
        &self,
        question: impl AsyncFnOnce(Channel) -> Result<tonic::Response<T>, tonic::Status>,
    ) -> Result<T, MeshClientError> {
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
        runtime.block_on(async {
            let url = || self.url.clone();
            let channel = connect(&self.url, self.credentials.as_ref(), Some(PATIENCE)).await;
            let channel = channel.map_err(|trouble| match trouble {
                ConnectTrouble::Url(error) => MeshClientError::Url(error),
                ConnectTrouble::Handshake(HandshakeError::Away) => MeshClientError::Away { url: url() },
                ConnectTrouble::Handshake(source) => MeshClientError::Handshake { url: url(), source },
            })?;
            let answer = question(channel).await;
            answer.map(tonic::Response::into_inner).map_err(|status| {
                if wants_tls(&status) {
                    return MeshClientError::NeedsCertificates { url: url() };
                }
                MeshClientError::Refused { url: url(), status: Box::new(status) }
            })
        })
    }
}

/// What an analyzer of this machine says is bad.
///
/// # Errors
/// It is not there, or does not answer.
pub fn findings(url: &str) -> Result<v1::FindingsReply, MeshClientError> {
    Inquiry::new(url).findings()
}

/// What an analyzer of this machine met, and the sums of what agents measured.
///
/// # Errors
/// It is not there, or does not answer.
pub fn tallies(url: &str) -> Result<v1::TalliesReply, MeshClientError> {
    Inquiry::new(url).tallies()
}

/// What a controller of this machine met.
///
/// # Errors
/// It is not there, or does not answer.
pub fn counters(url: &str) -> Result<v1::CountersReply, MeshClientError> {
    Inquiry::new(url).counters()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(url: &str, is_tls: bool) -> Result<String, UrlError> {
        Place::read(url, is_tls).map(|place| place.url())
    }

    #[test]
    fn services_are_asked_in_turn_and_all_of_them_before_it_is_waited() {
        let mut one = Round::new(vec!["a".to_owned()]);
        assert!(one.pass() && one.pass());
        let mut three = Round::new(["a", "b", "c"].map(str::to_owned).to_vec());
        let mut seen = Vec::new();
        for _ in 0..4 {
            seen.push((three.url().to_owned(), three.pass()));
        }
        let expected = [("a", false), ("b", false), ("c", true), ("a", false)];
        assert_eq!(seen, expected.map(|(url, is_last)| (url.to_owned(), is_last)));
        assert!(all_normal(&[], None).is_err());
    }

    #[test]
    fn without_certificates_a_service_is_an_address_with_a_port_on_this_machine() {
        for url in ["127.0.0.1:50051", "http://127.0.0.1:50051", "http://127.0.0.1:50051/"] {
            assert_eq!(read(url, false).as_deref(), Ok("http://127.0.0.1:50051"));
        }
        assert_eq!(read("[::1]:1", false).as_deref(), Ok("http://[::1]:1"));
        for url in ["", "localhost", "localhost:1", "ftp://127.0.0.1:1", "127.0.0.1", "http://a:1/b"] {
            assert!(matches!(read(url, false), Err(UrlError::Text { .. })), "{url}");
        }
        for url in ["10.0.0.1:50051", "127.0.0.1:0", "http://[2001:db8::1]:9"] {
            assert!(matches!(read(url, false), Err(UrlError::NotLoopback { .. })), "{url}");
        }
        let needs = read("https://127.0.0.1:1", false).unwrap_err();
        assert!(matches!(needs, UrlError::NeedsCertificates { .. }), "{needs}");
    }

    #[test]
    fn with_certificates_a_service_is_a_name_or_any_address() {
        for (url, normal) in [
            ("10.0.0.1:50051", "https://10.0.0.1:50051"),
            ("https://[2001:db8::1]:9/", "https://[2001:db8::1]:9"),
            ("https://controller.example:50051", "https://controller.example:50051"),
            ("localhost:1", "https://localhost:1"),
        ] {
            assert_eq!(read(url, true).as_deref(), Ok(normal));
        }
        for url in ["", "host", "host:0", "host:70000", "ho st:1", "https://a:1/b", "https://:1", "a:b:1"] {
            assert!(matches!(read(url, true), Err(UrlError::Text { .. })), "{url}");
        }
        assert!(matches!(read("http://10.0.0.1:1", true), Err(UrlError::PlainText { .. })));
        assert!(matches!(read("0.0.0.0:1", true), Err(UrlError::Unspecified { .. })));
    }

    #[test]
    fn a_service_that_is_away_is_said_to_be_so() {
        let error = findings("127.0.140.2:1").unwrap_err();
        assert!(error.to_string().contains("no service answers at 127.0.140.2:1"), "{error}");
    }
}
