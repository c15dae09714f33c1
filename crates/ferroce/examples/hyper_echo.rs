//! HTTP over RDMA: hyper serves and asks over a stream of ours, as it would over TCP.
//!
//! Run it with `cargo run -p ferroce --example hyper_echo --features tokio`.

use std::convert::Infallible;
use std::error::Error;

use ferroce::endpoint::{Connection, Listener};
use http_body_util::{BodyExt, Full};
use hyper::body::{Bytes, Incoming};
use hyper::service::service_fn;
use hyper::{Request, Response};
use hyper_util::rt::TokioIo;

type Result<T> = std::result::Result<T, Box<dyn Error + Send + Sync>>;

const ADDRESS: &str = "127.0.0.80:8080";

/// Answers every request with its own body.
async fn echo(request: Request<Incoming>) -> std::result::Result<Response<Full<Bytes>>, Infallible> {
    let body = request.into_body().collect().await.map(http_body_util::Collected::to_bytes);
    Ok(Response::new(Full::new(body.unwrap_or_default())))
}

/// Serves one connection.
async fn serve(listener: Listener) -> Result<()> {
    let stream = listener.accept().await?.into_stream();
    let http = hyper::server::conn::http1::Builder::new();
    Ok(http.serve_connection(TokioIo::new(stream), service_fn(echo)).await?)
}

/// Asks a few times over one connection.
async fn ask() -> Result<()> {
    let stream = Connection::connect(ADDRESS).await?.into_stream();
    let (mut sender, connection) = hyper::client::conn::http1::handshake(TokioIo::new(stream)).await?;
    let connection = tokio::spawn(connection);
    for len in [0, 5, 10_000, 3_000_000] {
        let body = Bytes::from(vec![b'x'; len]);
        let request = Request::post("/echo").header("host", ADDRESS).body(Full::new(body.clone()))?;
        let answer = sender.send_request(request).await?;
        println!("{} for {len} bytes", answer.status());
        assert_eq!(answer.into_body().collect().await?.to_bytes(), body);
    }
    drop(sender);
    Ok(connection.await??)
}

/// Runs both ends in this process.
pub fn main() -> Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread().build()?;
    runtime.block_on(async {
        let server = tokio::spawn(serve(Listener::bind(ADDRESS)?));
        ask().await?;
        server.await?
    })
}
