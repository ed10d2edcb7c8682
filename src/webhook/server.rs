//! HTTP over TLS for the API server, and plain HTTP for kubelets and Prometheus.

use std::{
    panic::{self, AssertUnwindSafe},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use axum::{
    Router,
    body::{Body, to_bytes},
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::{IntoResponse, Response},
    routing::{get, post},
};
use futures_util::{Stream, StreamExt, stream::FuturesUnordered};
use http_body_util::LengthLimitError;
use hyper::body::Body as _;
use hyper_util::{
    rt::{TokioExecutor, TokioIo, TokioTimer},
    server::conn::auto,
    service::TowerToHyperService,
};
use tokio::{
    net::TcpStream,
    sync::{Semaphore, watch},
    time,
};
use tokio_rustls::{TlsAcceptor, rustls::ServerConfig};

use super::{
    events::Events,
    metrics::{Counts, Decision, Metrics},
    review::{Malformed, Review},
};
use crate::{
    clock::Clock,
    config::injector::Sidecar,
    inject::{Ask, Outcome, Skip, inject},
    telemetry::metrics::CONTENT_TYPE as METRICS_TYPE,
};

const MAX_CONNECTIONS: usize = 1024;
const HANDSHAKE_TIME: Duration = Duration::from_secs(10);
/// For the head of a request, and for its body. The API server itself waits 10 s by default.
const READ_TIME: Duration = Duration::from_secs(10);
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
/// An object of 3 MiB, the API server's own limit, stands in a review twice when it is updated.
pub const MAX_BODY_BYTES: usize = 8 << 20;
/// Of bodies at a time; who comes when it is used up waits.
const MAX_BODIES_BYTES: usize = 8 * MAX_BODY_BYTES;
/// Of a connection that comes while the server drains.
const LATECOMER_TIME: Duration = Duration::from_millis(500);
/// For what is open when the server closes.
const CLOSE_TIME: Duration = Duration::from_secs(5);

const NOT_FOUND: &str = "there is nothing here; reviews go to POST /mutate\n";
const FAULT: &str = "a fault of dedupd: this review could not be answered\n";
const ADMIN_NOT_FOUND: &str = "there is nothing here; there are /livez, /readyz and /metrics\n";

/// What answers reviews.
#[derive(Debug)]
pub struct Injector {
    pub sidecar: ArcSwap<Sidecar>,
    pub counts: Arc<Counts>,
    pub events: Events,
    pub clock: Clock,
    bodies: Semaphore,
}

impl Injector {
    pub fn new(sidecar: Sidecar, counts: Arc<Counts>, events: Events, clock: Clock) -> Self {
        Self {
            sidecar: ArcSwap::from_pointee(sidecar),
            counts,
            events,
            clock,
            bodies: Semaphore::new(MAX_BODIES_BYTES),
        }
    }

    async fn review(&self, body: Body) -> Result<Response, (StatusCode, String)> {
        // The API server says how long it is.
        let length = body.size_hint().upper().unwrap_or(u64::MAX);
        let length = length.min(MAX_BODY_BYTES as u64) as u32;
        let _room = self.bodies.acquire_many(length).await;
        let body = time::timeout(READ_TIME, to_bytes(body, MAX_BODY_BYTES))
            .await
            .map_err(|_| {
                let message = format!("the body did not come within {} s\n", READ_TIME.as_secs());
                (StatusCode::REQUEST_TIMEOUT, message)
            })?
            .map_err(unreadable)?;
        let begun = self.clock.monotonic();
        // A panic is an outage for this review, which failurePolicy decides about.
        let (review, outcome) = panic::catch_unwind(AssertUnwindSafe(|| self.decide(&body)))
            .map_err(|_| (StatusCode::INTERNAL_SERVER_ERROR, FAULT.to_owned()))?
            .map_err(|malformed| (StatusCode::BAD_REQUEST, format!("{malformed}\n")))?;
        self.counts.decided(Decision::of(&outcome));
        self.events.tell(&review, &outcome);
        log(&review, &outcome);
        let answer = review.answer(&outcome).to_string();
        let answer = ([(CONTENT_TYPE, "application/json")], answer).into_response();
        self.counts.took(self.clock.monotonic() - begun);
        Ok(answer)
    }

    fn decide(&self, body: &[u8]) -> Result<(Review, Outcome), Malformed> {
        let review = Review::read(body)?;
        let outcome = if review.creates_pod {
            inject(&review.object, &self.sidecar.load(), Ask::Annotated)
        } else {
            Outcome::Skipped(Skip::NotAPod)
        };
        Ok((review, outcome))
    }
}

fn unreadable(error: axum::Error) -> (StatusCode, String) {
    let error = error.into_inner();
    if error.is::<LengthLimitError>() {
        let message = format!("the body has more than {MAX_BODY_BYTES} bytes\n");
        return (StatusCode::PAYLOAD_TOO_LARGE, message);
    }
    let message = format!("the body cannot be read: {error}\n");
    (StatusCode::BAD_REQUEST, message)
}

fn log(review: &Review, outcome: &Outcome) {
    let metadata = &review.object["metadata"];
    let name = metadata["name"]
        .as_str()
        .or(metadata["generateName"].as_str());
    let (namespace, pod) = (&review.namespace, name.unwrap_or_default());
    match outcome {
        Outcome::Injected(_) => tracing::info!(%namespace, pod, "injected"),
        Outcome::Skipped(skip) if skip.is_surprising() => {
            tracing::warn!(%namespace, pod, reason = skip.name(), "skipped");
        }
        Outcome::Skipped(skip) => {
            tracing::debug!(%namespace, pod, reason = skip.name(), "skipped");
        }
        Outcome::Refused(refused) => {
            let reason = refused.reason.name();
            tracing::warn!(%namespace, pod, reason, "refused: {refused}");
        }
    }
}

pub fn routes(injector: Arc<Injector>) -> Router {
    Router::new()
        .route("/mutate", post(mutate))
        .fallback(async || (StatusCode::NOT_FOUND, NOT_FOUND))
        .with_state(injector)
}

async fn mutate(State(injector): State<Arc<Injector>>, body: Body) -> Response {
    match injector.review(body).await {
        Ok(response) => response,
        Err((status, message)) => {
            injector.counts.decided(if status.is_server_error() {
                Decision::Failed
            } else {
                Decision::Malformed
            });
            tracing::warn!(%status, "a review was not answered: {}", message.trim_end());
            (status, message).into_response()
        }
    }
}

/// Returns when a connection that is open now should come to its end.
async fn ending(mut phase: watch::Receiver<Phase>) {
    let opened = *phase.borrow();
    let next = phase.wait_for(|phase| *phase > opened);
    // Errors say that it took long enough, or that there is nobody to serve for any more.
    match opened {
        Phase::Serving => drop(next.await),
        Phase::Draining | Phase::Closed => drop(time::timeout(LATECOMER_TIME, next).await),
    }
}

/// Whether reviews should be sent here.
#[derive(Debug, Default)]
pub struct Ready {
    draining: AtomicBool,
    trusted: AtomicBool,
}

impl Ready {
    pub fn drain(&self) {
        self.draining.store(true, Ordering::Release);
    }

    /// The API server was told which authority to trust. Never taken back.
    pub fn trusted(&self) {
        self.trusted.store(true, Ordering::Release);
    }

    fn check(&self) -> Result<(), &'static str> {
        if self.draining.load(Ordering::Acquire) {
            return Err("not ready: draining\n");
        }
        if self.trusted.load(Ordering::Acquire) {
            return Ok(());
        }
        Err("not ready: no certificate that the API server was told to trust yet\n")
    }
}

pub fn admin_routes(metrics: Metrics, ready: Arc<Ready>) -> Router {
    let metrics = Arc::new(metrics);
    let exposition = async move || match metrics.exposition() {
        Ok(text) => ([(CONTENT_TYPE, METRICS_TYPE)], text).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    };
    let readyz = async move || match ready.check() {
        Ok(()) => (StatusCode::OK, "ready\n"),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, why),
    };
    Router::new()
        .route("/livez", get(async || "alive\n"))
        .route("/readyz", get(readyz))
        .route("/metrics", get(exposition))
        .fallback(async || (StatusCode::NOT_FOUND, ADMIN_NOT_FOUND))
}

/// How the server ends.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    Serving,
    /// What is open is brought to its end: whoever stays connected would be answered by what is in
    /// effect here, while others are answered by our successor already. Who comes anew is answered.
    Draining,
    Closed,
}

/// Answers until it is closed; then what is open has a little time.
pub async fn serve(
    mut incoming: impl Stream<Item = TcpStream> + Unpin,
    tls: Arc<ServerConfig>,
    routes: Router,
    mut phase: watch::Receiver<Phase>,
) {
    let acceptor = TlsAcceptor::from(tls);
    let mut connections = FuturesUnordered::new();
    let connection_phase = phase.clone();
    loop {
        tokio::select! {
            accepted = incoming.next(), if connections.len() < MAX_CONNECTIONS => match accepted {
                Some(stream) => connections.push(answer(
                    stream,
                    acceptor.clone(),
                    routes.clone(),
                    connection_phase.clone(),
                )),
                None => break,
            },
            Some(()) = connections.next() => {}
            // An error says that the sender is gone: then there is nobody to serve for.
            _ = phase.wait_for(|phase| *phase == Phase::Closed) => break,
        }
    }
    drop(incoming);
    // What is still open after that is cut off.
    let _ = time::timeout(CLOSE_TIME, async {
        while connections.next().await.is_some() {}
    })
    .await;
}

async fn answer(
    stream: TcpStream,
    acceptor: TlsAcceptor,
    routes: Router,
    phase: watch::Receiver<Phase>,
) {
    let stream = match time::timeout(HANDSHAKE_TIME, acceptor.accept(stream)).await {
        Ok(Ok(stream)) => stream,
        Ok(Err(error)) => return tracing::info!(%error, "a TLS handshake failed"),
        Err(_) => return tracing::info!("a TLS handshake took too long"),
    };
    let mut server = auto::Builder::new(TokioExecutor::new());
    server
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(READ_TIME);
    server
        .http2()
        .timer(TokioTimer::new())
        .keep_alive_interval(KEEPALIVE_INTERVAL);
    let connection =
        server.serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
    let mut connection = std::pin::pin!(connection);
    let ended = tokio::select! {
        ended = connection.as_mut() => ended,
        () = ending(phase) => {
            connection.as_mut().graceful_shutdown();
            connection.await
        }
    };
    if let Err(error) = ended {
        tracing::debug!(%error, "a connection failed");
    }
}
