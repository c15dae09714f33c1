//! Connections of browsers: so many, for so long.

use std::convert::Infallible;
use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll};
use std::time::Duration;

use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::time::{Sleep, sleep};
use tokio_stream::StreamExt;

use super::{Shared, routes};
use crate::listen::Listener;

/// Serves connections until the listener ends.
pub(super) async fn serve(listener: Listener, shared: Arc<Shared>) {
    let config = shared.config;
    let Ok(mut connections) = listener.connections(config.connections) else { return };
    let router = routes::router(shared);
    while let Some(connection) = connections.next().await {
        let Ok(connection) = connection else { continue };
        let service = TowerToHyperService::new(router.clone());
        tokio::spawn(async move {
            let io = TokioIo::new(Unstuck { inner: connection, patience: config.stuck, stuck: None });
            let served = http1::Builder::new()
                .timer(TokioTimer::new())
                .header_read_timeout(config.request)
                .max_buf_size(config.head)
                .serve_connection(io, service);
            // A browser that goes away is no error of ours.
            let _ = tokio::time::timeout(config.longest, served).await;
            Ok::<(), Infallible>(())
        });
    }
}

/// A connection that is given up if nothing can be written for a while.
struct Unstuck<T> {
    inner: T,
    patience: Duration,
    /// Since when nothing can be written.
    stuck: Option<Pin<Box<Sleep>>>,
}

impl<T: AsyncRead + Unpin> AsyncRead for Unstuck<T> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        into: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        Pin::new(&mut self.inner).poll_read(cx, into)
    }
}

impl<T: AsyncWrite + Unpin> Unstuck<T> {
    fn watch<R>(&mut self, polled: Poll<io::Result<R>>, cx: &mut Context<'_>) -> Poll<io::Result<R>> {
        if polled.is_ready() {
            self.stuck = None;
            return polled;
        }
        let patience = self.patience;
        let stuck = self.stuck.get_or_insert_with(|| Box::pin(sleep(patience)));
        match stuck.as_mut().poll(cx) {
            Poll::Ready(()) => Poll::Ready(Err(io::ErrorKind::TimedOut.into())),
            Poll::Pending => Poll::Pending,
        }
    }
}

impl<T: AsyncWrite + Unpin> AsyncWrite for Unstuck<T> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        let polled = Pin::new(&mut self.inner).poll_write(cx, bytes);
        self.watch(polled, cx)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_flush(cx);
        self.watch(polled, cx)
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        let polled = Pin::new(&mut self.inner).poll_shutdown(cx);
        self.watch(polled, cx)
    }
}
