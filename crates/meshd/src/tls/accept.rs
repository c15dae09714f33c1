//! The gate of a service: which connections are let in.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;
use tokio_rustls::rustls::Error as TlsError;

use super::credentials::Credentials;
use super::peer::{Peer, names};
use super::problem::CertificateProblem;
use super::stream::Stream;

/// A connection that has not shown within this time what it is ends.
const PATIENCE: Duration = Duration::from_secs(5);

/// What a program reads that does not speak TLS.
pub(crate) const TLS_ONLY: &str =
    "this service speaks TLS only: connect with https and a certificate of the mesh's CA";

/// So long a stranger may take to read why it is refused.
const LAST_WORDS: Duration = Duration::from_secs(1);

/// What a program is told that speaks TLS to a service that does not: that no version of it is spoken, as an
/// alert.
const NO_TLS: [u8; 7] = [21, 3, 3, 0, 2, 2, 70];

/// The first byte of a TLS handshake.
const HANDSHAKE: u8 = 22;

/// How connections to a service began.
#[derive(Debug, Default)]
pub(crate) struct HandshakeCounts {
    pub(crate) connections: AtomicU64,
    pub(crate) refused_plain_text: AtomicU64,
    pub(crate) refused_tls: AtomicU64,
    pub(crate) refused_no_certificate: AtomicU64,
    pub(crate) refused_certificates: AtomicU64,
    pub(crate) broken_handshakes: AtomicU64,
    pub(crate) late_handshakes: AtomicU64,
    pub(crate) crowded_handshakes: AtomicU64,
}

/// Lets connections in: with credentials those that have certificates of the CA, and without them those of
/// this machine.
#[derive(Clone)]
pub(crate) struct Gate {
    tls: Option<TlsAcceptor>,
    pub(crate) counts: Arc<HandshakeCounts>,
}

impl Gate {
    pub(crate) fn new(credentials: Option<&Credentials>, counts: Arc<HandshakeCounts>) -> Self {
        Self { tls: credentials.map(|ours| TlsAcceptor::from(ours.server())), counts }
    }

    /// A connection that is let in, with what its other end may be; none if it is not. Each is counted.
    pub(crate) async fn admit(&self, stream: TcpStream) -> Option<(Stream, Peer)> {
        let counts = &self.counts;
        let (count, admitted) = match timeout(PATIENCE, self.look(stream)).await {
            Ok(Ok(admitted)) => (&counts.connections, Some(admitted)),
            Ok(Err(Stranger::PlainText)) => (&counts.refused_plain_text, None),
            Ok(Err(Stranger::Tls)) => (&counts.refused_tls, None),
            Ok(Err(Stranger::Certificate(CertificateProblem::Missing))) => {
                (&counts.refused_no_certificate, None)
            }
            Ok(Err(Stranger::Certificate(_))) => (&counts.refused_certificates, None),
            Ok(Err(Stranger::Broken)) => (&counts.broken_handshakes, None),
            Err(_) => (&counts.late_handshakes, None),
        };
        count.fetch_add(1, Ordering::Relaxed);
        admitted
    }

    async fn look(&self, stream: TcpStream) -> Result<(Stream, Peer), Stranger> {
        let mut first = [0; 4];
        let len = stream.peek(&mut first).await.map_err(|_| Stranger::Broken)?;
        if len == 0 {
            return Err(Stranger::Broken);
        }
        let speaks_tls = first[0] == HANDSHAKE;
        let Some(tls) = &self.tls else {
            if speaks_tls {
                tell(stream, &NO_TLS).await;
                return Err(Stranger::Tls);
            }
            return Ok((Stream::Plain(stream), Peer::Local));
        };
        if !speaks_tls {
            tell(stream, &plain_answer(&first[..len])).await;
            return Err(Stranger::PlainText);
        }
        let stream = tls.accept(stream).await.map_err(|error| Stranger::of(&error))?;
        let shown = stream.get_ref().1.peer_certificates().and_then(<[_]>::first).and_then(names);
        let shown = shown.ok_or(Stranger::Certificate(CertificateProblem::Unreadable))?;
        Ok((Stream::Tls(Box::new(stream.into())), Peer::Known(shown)))
    }
}

impl std::fmt::Debug for Gate {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Gate").field("tls", &self.tls.is_some()).field("counts", &self.counts).finish()
    }
}

/// Why a connection is not let in.
enum Stranger {
    PlainText,
    Tls,
    Certificate(CertificateProblem),
    Broken,
}

impl Stranger {
    fn of(error: &io::Error) -> Self {
        let cause = error.get_ref().and_then(|cause| cause.downcast_ref::<TlsError>());
        cause.and_then(CertificateProblem::of).map_or(Self::Broken, Self::Certificate)
    }
}

/// Says something to a stranger, and then reads what it has said: a connection with bytes that were not read
/// ends so hard that the answer might be lost. It may not be read, and the stranger is refused all the same.
async fn tell(mut stream: TcpStream, words: &[u8]) {
    let talk = async {
        stream.write_all(words).await?;
        stream.shutdown().await?;
        let mut rest = [0; 1024];
        for _ in 0..16 {
            if stream.read(&mut rest).await? == 0 {
                break;
            }
        }
        Ok::<_, io::Error>(())
    };
    let _ = timeout(LAST_WORDS, talk).await;
}

/// What a program is told that does not speak TLS, in the protocol that it seems to speak.
fn plain_answer(first: &[u8]) -> Vec<u8> {
    let text = TLS_ONLY;
    if !b"PRI ".starts_with(first) {
        return format!(
            "HTTP/1.1 400 Bad Request\r\nconnection: close\r\ncontent-type: text/plain\r\n\
             content-length: {}\r\n\r\n{text}\n",
            text.len() + 1
        )
        .into_bytes();
    }
    // HTTP/2: SETTINGS without any, then GOAWAY with INADEQUATE_SECURITY.
    let mut frames = vec![0, 0, 0, 4, 0, 0, 0, 0, 0];
    let len = u8::try_from(8 + text.len()).unwrap_or(8);
    frames.extend([0, 0, len, 7, 0, 0, 0, 0, 0]);
    frames.extend([0, 0, 0, 0, 0, 0, 0, 12]);
    frames.extend(&text.as_bytes()[..usize::from(len) - 8]);
    frames
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_without_tls_is_answered_in_its_own_protocol() {
        let answer = plain_answer(b"GET ");
        assert!(answer.starts_with(b"HTTP/1.1 400 Bad Request\r\n") && answer.ends_with(b"CA\n"));
        let answer = plain_answer(b"PRI ");
        let frame = &answer[9..];
        let len = usize::from(frame[2]);
        assert_eq!((frame[3], frame.len()), (7, 9 + len));
        assert!(frame.ends_with(b"of the mesh's CA"));
    }
}
