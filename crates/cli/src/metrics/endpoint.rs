//! `GET /metrics` over HTTP/1.1. Whoever reaches the address may ask: nothing there names a user, a file or a key.

use std::convert::Infallible;
use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use http_body_util::Full;
use hyper::body::{Bytes, Incoming};
use hyper::header::{ALLOW, CONTENT_TYPE};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, Response, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use prometheus_client::encoding::text::encode;
use prometheus_client::registry::Registry;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio::task::JoinHandle;
use tokio::time::timeout;

use super::{Family, Moment};
use crate::failure::Failure;

/// Connections at once; more wait in the kernel's queue.
const CONNECTIONS_MAX: usize = 16;
/// How long a connection may take for its one request and answer.
const CONNECTION_LIMIT: Duration = Duration::from_secs(10);
/// Lines of a request's head at most.
const HEADERS_MAX: usize = 64;
/// Bytes that are read ahead of a connection at most.
const BUFFER_LEN: usize = 16 << 10;

/// An address where a process tells its figures, until this is dropped.
#[derive(Debug)]
pub(crate) struct Endpoint {
    address: SocketAddr,
    task: JoinHandle<()>,
}

impl Endpoint {
    /// Listens, and answers with what `families` says at the time.
    pub(crate) async fn open(
        address: SocketAddr,
        families: impl Fn() -> Vec<Family> + Send + Sync + 'static,
    ) -> Result<Self, Failure> {
        let failed = |source| Failure::Metrics { address, source };
        let listener = TcpListener::bind(address).await.map_err(failed)?;
        let address = listener.local_addr().map_err(failed)?;
        let task = tokio::spawn(accept(listener, Arc::new(families)));
        tracing::info!(%address, "metrics at /metrics");
        Ok(Self { address, task })
    }

    /// The address, with the port.
    pub(crate) fn address(&self) -> SocketAddr {
        self.address
    }
}

impl Drop for Endpoint {
    fn drop(&mut self) {
        self.task.abort();
    }
}

type Families = Arc<dyn Fn() -> Vec<Family> + Send + Sync>;

async fn accept(listener: TcpListener, families: Families) {
    let places = Arc::new(Semaphore::new(CONNECTIONS_MAX));
    loop {
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
        match listener.accept().await {
            Ok((stream, _)) => {
                let families = Arc::clone(&families);
                tokio::spawn(async move {
                    let _ = timeout(CONNECTION_LIMIT, serve(stream, families)).await;
                    drop(place);
                });
            }
            // Such as too many open files: it may pass.
            Err(error) => {
                tracing::debug!(%error, "no connection for metrics");
                tokio::time::sleep(Duration::from_millis(100)).await;
            }
        }
    }
}

async fn serve(stream: TcpStream, families: Families) {
    let answer = service_fn(move |request| {
        let families = Arc::clone(&families);
        async move { Ok::<_, Infallible>(answer(&request, &*families)) }
    });
    let served = http1::Builder::new()
        .timer(TokioTimer::new())
        .header_read_timeout(CONNECTION_LIMIT)
        .keep_alive(false)
        .max_headers(HEADERS_MAX)
        .max_buf_size(BUFFER_LEN)
        .serve_connection(TokioIo::new(stream), answer)
        .await;
    if let Err(error) = served {
        tracing::debug!(%error, "a connection for metrics failed");
    }
}

fn answer(
    request: &Request<Incoming>,
    families: &dyn Fn() -> Vec<Family>,
) -> Response<Full<Bytes>> {
    if request.uri().path() != "/metrics" {
        return said(StatusCode::NOT_FOUND, "ask for /metrics\n");
    }
    if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let mut refused = said(StatusCode::METHOD_NOT_ALLOWED, "GET and HEAD alone\n");
        refused.headers_mut().insert(ALLOW, "GET, HEAD".parse().expect("plain text"));
        return refused;
    }
    let mut found = said(StatusCode::OK, &text(families()));
    found.headers_mut().insert(CONTENT_TYPE, OPEN_METRICS.parse().expect("plain text"));
    found
}

fn said(status: StatusCode, text: &str) -> Response<Full<Bytes>> {
    let mut response = Response::new(Full::new(Bytes::copy_from_slice(text.as_bytes())));
    *response.status_mut() = status;
    response
}

/// Families as text.
pub(super) fn text(families: Vec<Family>) -> String {
    let mut registry = Registry::default();
    registry.register_collector(Box::new(Moment(families)));
    let mut out = String::new();
    encode(&mut out, &registry).expect("a string takes all text");
    out
}

/// OpenMetrics 1.0, "Overall Structure".
const OPEN_METRICS: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};

    use super::*;

    #[tokio::test]
    async fn connections_for_metrics_are_bounded_and_one_that_ends_makes_room() {
        let none = SocketAddr::from(([127, 0, 0, 1], 0));
        let endpoint = Endpoint::open(none, Vec::new).await.unwrap();
        let connect = || TcpStream::connect(endpoint.address());
        let mut answered = Vec::new();
        for _ in 0..CONNECTIONS_MAX {
            let mut stream = connect().await.unwrap();
            // Half a request: the connection has been taken in once this is answered, which it is not yet.
            stream.write_all(b"GET /metrics HTTP/1.1\r\n").await.unwrap();
            answered.push(stream);
        }
        let mut last = connect().await.unwrap();
        last.write_all(b"GET /metrics HTTP/1.1\r\nHost: x\r\n\r\n").await.unwrap();
        let mut first = answered.remove(0);
        first.write_all(b"Host: x\r\n\r\n").await.unwrap();
        for mut stream in [first, last] {
            let mut answer = String::new();
            stream.read_to_string(&mut answer).await.unwrap();
            assert!(answer.starts_with("HTTP/1.1 200") && answer.ends_with("# EOF\n"), "{answer}");
        }
    }
}
