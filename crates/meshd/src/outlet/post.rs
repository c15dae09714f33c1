//! One request to another program, and what it said.

use std::time::Duration;

use http_body_util::{BodyExt, Collected, Full, Limited};
use hyper::body::Bytes;
use hyper::client::conn::http1;
use hyper::header::{CONTENT_TYPE, HOST, RETRY_AFTER, USER_AGENT};
use hyper::{Request, Response, StatusCode};
use hyper_util::rt::TokioIo;
use tokio::net::TcpStream;
use tokio::time::timeout;

use super::url::Target;

/// A connection has to come about within this time.
const CONNECT: Duration = Duration::from_secs(5);

/// Bytes of an answer that are read.
const ANSWER: usize = 16 << 10;

/// Letters of what another program says that are told.
const TOLD: usize = 200;

/// No wait that another program asks for is longer.
const WAIT: Duration = Duration::from_mins(1);

/// What is sent.
#[derive(Clone, Debug)]
pub(super) struct Letter {
    pub(super) body: Bytes,
    /// Names it, so that a double can be dropped.
    pub(super) id: Option<String>,
}

/// How it is sent.
#[derive(Clone, Copy, Debug)]
pub(super) struct Envelope {
    pub(super) content_type: &'static str,
    pub(super) headers: &'static [(&'static str, &'static str)],
}

/// What became of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Answer {
    /// It was taken, and this was said.
    Taken(Bytes),
    /// It will never be taken.
    Refused(String),
    /// It was not taken for now; perhaps the other end says when to try again.
    Away { why: String, after: Option<Duration> },
}

fn away(why: impl Into<String>) -> Answer {
    Answer::Away { why: why.into(), after: None }
}

/// Sends a letter, and waits so long for an answer.
pub(super) async fn post(to: &Target, envelope: Envelope, letter: Letter, patience: Duration) -> Answer {
    let Ok(stream) = timeout(CONNECT, TcpStream::connect(&*to.addresses())).await else {
        return away(format!("no connection to {to} in {} s", CONNECT.as_secs()));
    };
    let Ok(stream) = stream else { return away(format!("nothing answers at {to}")) };
    let _ = stream.set_nodelay(true);
    timeout(patience, exchange(to, envelope, letter, stream))
        .await
        .unwrap_or_else(|_| away(format!("{to} does not answer within {} s", patience.as_secs())))
}

async fn exchange(to: &Target, envelope: Envelope, letter: Letter, stream: TcpStream) -> Answer {
    let broken = |_| away(format!("the connection to {to} broke"));
    let mut request = Request::post(to.path())
        .header(HOST, to.authority())
        .header(USER_AGENT, concat!("ferroce-mesh/", env!("CARGO_PKG_VERSION")))
        .header(CONTENT_TYPE, envelope.content_type);
    for (name, value) in envelope.headers {
        request = request.header(*name, *value);
    }
    if let Some(id) = &letter.id {
        request = request.header("idempotency-key", id);
    }
    // The URL was checked, and all else is ours.
    let Ok(request) = request.body(Full::new(letter.body)) else {
        return Answer::Refused(format!("{to} cannot be asked for"));
    };
    let (mut sender, connection) = match http1::handshake(TokioIo::new(stream)).await {
        Ok(both) => both,
        Err(error) => return broken(error),
    };
    let talk = async {
        let response = sender.send_request(request).await?;
        let (status, after) = (response.status(), retry_after(&response));
        let body = Limited::new(response.into_body(), ANSWER).collect().await;
        Ok((status, after, body.map(Collected::to_bytes).unwrap_or_default()))
    };
    let carry = async {
        // It may end before all that came was looked at; what it ended with, the talk hears, too.
        let _ = connection.await;
        std::future::pending().await
    };
    let said: Result<_, hyper::Error> = tokio::select! {
        said = talk => said,
        never = carry => never,
    };
    match said {
        Ok((status, after, said)) => judge(to, status, after, said),
        Err(error) => broken(error),
    }
}

fn judge(to: &Target, status: StatusCode, after: Option<Duration>, said: Bytes) -> Answer {
    if status.is_success() {
        return Answer::Taken(said);
    }
    let words = String::from_utf8_lossy(&said);
    let words: String = words.split_whitespace().collect::<Vec<_>>().join(" ").chars().take(TOLD).collect();
    let why = format!("{to} says {}{}{words}", status.as_u16(), if words.is_empty() { "" } else { ": " });
    let is_for_now = status.is_server_error()
        || matches!(status, StatusCode::TOO_MANY_REQUESTS | StatusCode::REQUEST_TIMEOUT);
    if is_for_now { Answer::Away { why, after } } else { Answer::Refused(why) }
}

fn retry_after<T>(response: &Response<T>) -> Option<Duration> {
    let seconds = response.headers().get(RETRY_AFTER)?.to_str().ok()?.parse().ok()?;
    Some(Duration::from_secs(seconds).min(WAIT))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_for_now_is_tried_again_and_what_is_for_good_is_not() {
        let to = Target::read("http://127.0.0.1:1/x", (1, "/")).unwrap();
        let judge = |status: u16| {
            let status = StatusCode::from_u16(status).unwrap();
            judge(&to, status, None, Bytes::from_static(b"  out\n of   order "))
        };
        for status in [200, 202, 204] {
            assert!(matches!(judge(status), Answer::Taken(_)), "{status}");
        }
        for status in [301, 400, 401, 404, 413] {
            let why = format!("http://127.0.0.1:1/x says {status}: out of order");
            assert_eq!(judge(status), Answer::Refused(why));
        }
        for status in [408, 429, 500, 502, 503, 504] {
            assert!(matches!(judge(status), Answer::Away { .. }), "{status}");
        }
    }
}
