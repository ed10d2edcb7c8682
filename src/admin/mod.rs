//! HTTP for kubelets, Prometheus and people: probes, metrics, the configuration.
//!
//! Each connection carries one request and has a few seconds for all of it, and there are only so
//! many at a time: who is slow here holds nothing for long.

pub mod readiness;

use std::{sync::Arc, time::Duration};

use axum::{
    Router,
    extract::State,
    http::{StatusCode, header::CONTENT_TYPE},
    response::IntoResponse,
    routing::get,
};
use futures_util::{Stream, StreamExt, stream::FuturesUnordered};
use hyper::server::conn::http1;
use hyper_util::{
    rt::{TokioIo, TokioTimer},
    service::TowerToHyperService,
};
use tokio::{net::TcpStream, time};

use self::readiness::Readiness;
use crate::telemetry::metrics::{self, Metrics};

const MAX_CONNECTIONS: usize = 256;
/// From accepting a connection to closing it. A probe's own timeout is usually a second.
const CONNECTION_TIME: Duration = Duration::from_secs(5);

const NOT_FOUND: &str = "there is nothing here; there are /livez, /readyz, /metrics and /config\n";

/// What can be asked for.
#[derive(Debug)]
pub struct Admin {
    pub readiness: Arc<Readiness>,
    pub metrics: Metrics,
    /// JSON, without secrets.
    pub config: String,
}

pub fn routes(admin: Admin) -> Router {
    Router::new()
        .route("/livez", get(async || "alive\n"))
        .route("/readyz", get(readyz))
        .route("/metrics", get(exposition))
        .route("/config", get(config))
        .fallback(async || (StatusCode::NOT_FOUND, NOT_FOUND))
        .with_state(Arc::new(admin))
}

async fn readyz(State(admin): State<Arc<Admin>>) -> (StatusCode, String) {
    match admin.readiness.check() {
        Ok(()) => (StatusCode::OK, "ready\n".to_owned()),
        Err(why) => (StatusCode::SERVICE_UNAVAILABLE, format!("{why}\n")),
    }
}

async fn exposition(State(admin): State<Arc<Admin>>) -> impl IntoResponse {
    match admin.metrics.exposition() {
        Ok(exposition) => Ok(([(CONTENT_TYPE, metrics::CONTENT_TYPE)], exposition)),
        Err(_) => Err((
            StatusCode::INTERNAL_SERVER_ERROR,
            "the metrics could not be written\n",
        )),
    }
}

async fn config(State(admin): State<Arc<Admin>>) -> impl IntoResponse {
    ([(CONTENT_TYPE, "application/json")], admin.config.clone())
}

/// Answers until it is dropped, or there are no more connections.
pub async fn serve(mut incoming: impl Stream<Item = TcpStream> + Unpin, routes: Router) {
    let mut connections = FuturesUnordered::new();
    loop {
        tokio::select! {
            accepted = incoming.next(), if connections.len() < MAX_CONNECTIONS => match accepted {
                Some(stream) => connections.push(answer(stream, routes.clone())),
                None => return,
            },
            Some(()) = connections.next() => {}
        }
    }
}

async fn answer(stream: TcpStream, routes: Router) {
    let connection = http1::Builder::new()
        .timer(TokioTimer::new())
        .keep_alive(false)
        .serve_connection(TokioIo::new(stream), TowerToHyperService::new(routes));
    match time::timeout(CONNECTION_TIME, connection).await {
        Ok(Ok(())) => {}
        Ok(Err(error)) => tracing::debug!(%error, "admin HTTP: a connection failed"),
        Err(_) => tracing::debug!("admin HTTP: a connection took too long"),
    }
}

#[cfg(test)]
mod tests {
    use axum::{
        body::{Body, to_bytes},
        http::Request,
    };
    use tower::Service;

    use super::{readiness::Phase, *};
    use crate::{
        clock::Clock, domain::time::EventTime, engine::Engine, grpc::drain::InFlight,
        store::memory::MemoryStore, telemetry::metrics::Sources,
    };

    fn admin() -> (Router, Arc<Readiness>) {
        let clock = Clock::manual(EventTime::from_unix_nanos(0));
        let store = Arc::new(MemoryStore::new(clock.clone(), 1 << 20));
        let engine = Arc::new(Engine::new(Vec::new(), store, clock.clone(), 10));
        let readiness = Arc::new(Readiness::new(Arc::clone(&engine)));
        let metrics = Metrics::new(Sources {
            engine,
            keeper: Arc::default(),
            in_flight: InFlight::new(clock),
            store_is_per_instance: true,
        });
        let config = r#"{"store":{}}"#.to_owned();
        (
            routes(Admin {
                readiness: Arc::clone(&readiness),
                metrics,
                config,
            }),
            readiness,
        )
    }

    async fn check(routes: &mut Router, path: &str, status: u16, content_type: &str, text: &str) {
        let request = Request::get(path).body(Body::empty()).expect("a good path");
        let response = routes.call(request).await.expect("infallible");
        let header = response
            .headers()
            .get(CONTENT_TYPE)
            .expect("a content type")
            .clone();
        assert_eq!(
            (response.status().as_u16(), header.as_bytes()),
            (status, content_type.as_bytes()),
            "{path}"
        );
        let body = to_bytes(response.into_body(), usize::MAX)
            .await
            .expect("a body in memory");
        let body = String::from_utf8_lossy(&body);
        assert!(body.contains(text), "{path}: {text:?} is not in {body}");
    }

    #[tokio::test]
    async fn o02_every_path_answers_in_its_own_format() {
        let (mut routes, readiness) = admin();
        let plain = "text/plain; charset=utf-8";
        check(&mut routes, "/livez", 200, plain, "alive").await;
        check(&mut routes, "/metrics", 200, metrics::CONTENT_TYPE, "# EOF").await;
        check(
            &mut routes,
            "/config",
            200,
            "application/json",
            r#"{"store":{}}"#,
        )
        .await;
        check(&mut routes, "/", 404, plain, "/readyz").await;
        check(&mut routes, "/metrics/", 404, plain, "/metrics").await;
        let phases = [
            (Phase::Starting, 503, "starting"),
            (Phase::AwaitingStore, 503, "first contact"),
            (Phase::Serving, 200, "ready"),
            (Phase::AwaitingStore, 200, "ready"),
            (Phase::Draining, 503, "draining"),
            (Phase::Serving, 503, "draining"),
        ];
        for (phase, status, text) in phases {
            readiness.advance(phase);
            check(&mut routes, "/readyz", status, plain, text).await;
        }
    }
}
