//! Questions to the services, and how their addresses are written.

use std::net::SocketAddr;
use std::time::Duration;

use thiserror::Error;
use tonic::transport::{Channel, Endpoint};

use crate::proto::v1;

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
        /// Why.
        source: tonic::transport::Error,
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
    System(#[from] std::io::Error),
}

/// Where a service is, as text that others understand.
pub(crate) fn normal(url: &str) -> Result<String, UrlError> {
    let rest = url.strip_prefix("http://").unwrap_or(url);
    let rest = rest.strip_suffix('/').unwrap_or(rest);
    let short = || url.chars().take(64).collect::<String>();
    let address: SocketAddr = rest.parse().map_err(|_| UrlError::Text { url: short() })?;
    if !address.ip().to_canonical().is_loopback() || address.port() == 0 {
        return Err(UrlError::NotLoopback { address });
    }
    Ok(format!("http://{address}"))
}

/// How to get there.
pub(crate) fn endpoint(url: &str) -> Result<Endpoint, UrlError> {
    let url = normal(url)?;
    let endpoint = Endpoint::from_shared(url.clone()).map_err(|_| UrlError::Text { url })?;
    Ok(endpoint
        .connect_timeout(PATIENCE)
        .http2_keep_alive_interval(Duration::from_secs(10))
        .keep_alive_timeout(Duration::from_secs(5))
        .keep_alive_while_idle(true))
}

/// What is to be told of a service that does not go on answering.
pub(crate) fn said(service: &str, status: &tonic::Status) -> String {
    // What the other end said has no cause; what happened to the connection has one.
    match std::error::Error::source(status) {
        Some(_) => format!("the connection to the {service} broke"),
        None => format!("the {service} says: {}", status.message()),
    }
}

/// What an analyzer says is bad.
///
/// # Errors
/// It is not there, or does not answer.
pub fn findings(url: &str) -> Result<v1::FindingsReply, MeshClientError> {
    ask(url, async |channel| {
        v1::analysis_client::AnalysisClient::new(channel).findings(v1::FindingsRequest {}).await
    })
}

/// What an analyzer met, and the sums of what agents measured.
///
/// # Errors
/// It is not there, or does not answer.
pub fn tallies(url: &str) -> Result<v1::TalliesReply, MeshClientError> {
    ask(url, async |channel| {
        v1::analysis_client::AnalysisClient::new(channel).tallies(v1::TalliesRequest {}).await
    })
}

/// What a controller met.
///
/// # Errors
/// It is not there, or does not answer.
pub fn counters(url: &str) -> Result<v1::CountersReply, MeshClientError> {
    ask(url, async |channel| v1::mesh_client::MeshClient::new(channel).counters(v1::CountersRequest {}).await)
}

fn ask<T>(
    url: &str,
    question: impl AsyncFnOnce(Channel) -> Result<tonic::Response<T>, tonic::Status>,
) -> Result<T, MeshClientError> {
    let endpoint = endpoint(url)?.timeout(PATIENCE);
    let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build()?;
    runtime.block_on(async {
        let url = || url.to_owned();
        let channel =
            endpoint.connect().await.map_err(|source| MeshClientError::Away { url: url(), source })?;
        let answer = question(channel).await;
        answer
            .map(tonic::Response::into_inner)
            .map_err(|status| MeshClientError::Refused { url: url(), status: Box::new(status) })
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_service_is_an_address_with_a_port_on_this_machine() {
        for url in ["127.0.0.1:50051", "http://127.0.0.1:50051", "http://127.0.0.1:50051/"] {
            assert_eq!(normal(url).as_deref(), Ok("http://127.0.0.1:50051"));
        }
        assert_eq!(normal("[::1]:1").as_deref(), Ok("http://[::1]:1"));
        for url in ["", "localhost", "https://127.0.0.1:1", "127.0.0.1", "http://a:1/b"] {
            assert!(matches!(normal(url), Err(UrlError::Text { .. })), "{url}");
        }
        for url in ["10.0.0.1:50051", "127.0.0.1:0", "http://[2001:db8::1]:9"] {
            assert!(matches!(normal(url), Err(UrlError::NotLoopback { .. })), "{url}");
        }
    }

    #[test]
    fn a_service_that_is_away_is_said_to_be_so() {
        let error = findings("127.0.140.2:1").unwrap_err();
        assert!(error.to_string().contains("no service answers at 127.0.140.2:1"), "{error}");
    }
}
