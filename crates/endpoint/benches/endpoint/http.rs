//! HTTP with hyper, over a stream of ours and over TCP.

use std::convert::Infallible;
use std::time::Duration;

use ferroce_endpoint::{Connection, Listener, Options};
use ferroce_testkit::process::Parent;
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::{TcpListener, TcpStream};
use tokio::runtime::Runtime;

use crate::{Outcome, address, device, device_towards, each};

fn runtime() -> Outcome<Runtime> {
    Ok(tokio::runtime::Builder::new_current_thread().enable_io().build()?)
}

async fn answer(request: Request<Incoming>) -> Result<Response<Full<Bytes>>, Infallible> {
    let body = request.into_body().collect().await.map(http_body_util::Collected::to_bytes);
    Ok(Response::new(Full::new(body.unwrap_or_default())))
}

async fn serve_on(io: impl AsyncRead + AsyncWrite + Unpin + 'static) {
    let connection = hyper::server::conn::http1::Builder::new();
    // The client is killed or goes; either way that is the end.
    let _ = connection.serve_connection(TokioIo::new(io), service_fn(answer)).await;
}

pub(crate) fn serve(host: u8) -> Outcome<()> {
    runtime()?.block_on(async {
        let listener = Listener::bind_with(address(host), &Options::new().context(&device(host)?))?;
        Parent.say(listener.local_addr())?;
        serve_on(listener.accept().await?.into_stream()).await;
        Ok(())
    })
}

pub(crate) fn serve_tcp(host: u8) -> Outcome<()> {
    runtime()?.block_on(async {
        let listener = TcpListener::bind(address(host)).await?;
        Parent.say(listener.local_addr()?)?;
        let (stream, _) = listener.accept().await?;
        stream.set_nodelay(true)?;
        serve_on(stream).await;
        Ok(())
    })
}

pub(crate) fn small(address: &str, time: Duration) -> Outcome<f64> {
    over_stream(address, time, 64)
}

pub(crate) fn large(address: &str, time: Duration) -> Outcome<f64> {
    over_stream(address, time, 256 * 1024)
}

pub(crate) fn small_tcp(address: &str, time: Duration) -> Outcome<f64> {
    over_tcp(address, time, 64)
}

pub(crate) fn large_tcp(address: &str, time: Duration) -> Outcome<f64> {
    over_tcp(address, time, 256 * 1024)
}

fn over_stream(address: &str, time: Duration, len: usize) -> Outcome<f64> {
    let runtime = runtime()?;
    let options = Options::new().context(&device_towards(address)?);
    let stream = runtime.block_on(Connection::connect_with(address, &options))?.into_stream();
    ask(&runtime, stream, time, len)
}

fn over_tcp(address: &str, time: Duration, len: usize) -> Outcome<f64> {
    let runtime = runtime()?;
    let stream = runtime.block_on(TcpStream::connect(address))?;
    stream.set_nodelay(true)?;
    ask(&runtime, stream, time, len)
}

/// One request after the other.
fn ask(
    runtime: &Runtime,
    io: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    time: Duration,
    len: usize,
) -> Outcome<f64> {
    let shaking = hyper::client::conn::http1::handshake::<_, Full<Bytes>>(TokioIo::new(io));
    let (mut sender, connection) = runtime.block_on(shaking)?;
    runtime.spawn(connection);
    let body = Bytes::from(vec![b'x'; len]);
    each(time, || {
        runtime.block_on(async {
            let request = Request::post("/").header("host", "peer").body(Full::new(body.clone()))?;
            let back = sender.send_request(request).await?.into_body().collect().await?.to_bytes();
            if back.len() == len { Ok(()) } else { Err("another body came back".into()) }
        })
    })
}
