//! gRPC on every listener, with the same services.

use std::{convert::Infallible, error::Error, time::Duration};

use futures_util::StreamExt;
use tokio::{sync::watch, task::JoinSet, time};
use tonic::{
    service::Routes,
    transport::{Server, ServerTlsConfig},
};

use super::{
    bind::{GrpcListener, tcp_connections, unix_connections},
    connection::Connection,
    tls::TlsFault,
};
use crate::grpc::calls::CallsLayer;

/// Finds peers that vanished, so that what they hold is given back.
const KEEPALIVE_INTERVAL: Duration = Duration::from_secs(30);
const KEEPALIVE_TIMEOUT: Duration = Duration::from_secs(10);
/// Calls in flight on one connection; the client waits with more.
const MAX_CONCURRENT_CALLS: u32 = 1024;
/// Calls that were cancelled before they were begun: a burst of deadlines in an outage is no attack
/// and must not end the connection for the others.
const MAX_PENDING_RESETS: usize = 4 * MAX_CONCURRENT_CALLS as usize;
/// For answers on their way when the process ends, and for clients to hear that it does.
const CLOSE_TIME: Duration = Duration::from_millis(500);

/// How connections are served.
#[derive(Debug)]
pub(super) struct Transport {
    plain: Server,
    tcp: Server,
    is_tls: bool,
}

impl Transport {
    /// TLS is for TCP: a Unix socket is guarded by its file's mode.
    pub(super) fn new(tls: Option<ServerTlsConfig>) -> Result<Self, TlsFault> {
        let plain = Server::builder()
            .http2_keepalive_interval(Some(KEEPALIVE_INTERVAL))
            .http2_keepalive_timeout(Some(KEEPALIVE_TIMEOUT))
            .max_concurrent_streams(MAX_CONCURRENT_CALLS)
            .http2_max_pending_accept_reset_streams(Some(MAX_PENDING_RESETS));
        let is_tls = tls.is_some();
        let tcp = match tls {
            None => plain.clone(),
            Some(tls) => plain
                .clone()
                .tls_config(tls)
                .map_err(|error| TlsFault::Unusable(in_full(&error)))?,
        };
        Ok(Self { plain, tcp, is_tls })
    }
}

/// The causes, too: the outermost error of the transport says only that there was one.
fn in_full(error: &dyn Error) -> String {
    match error.source() {
        None => error.to_string(),
        Some(source) => format!("{error}: {}", in_full(source)),
    }
}

fn answering<S>(stream: S, is_tls: bool) -> Result<Connection<S>, Infallible> {
    Ok(Connection::new(stream, is_tls))
}

/// The running servers.
#[derive(Debug)]
pub(super) struct Servers {
    running: JoinSet<Result<(), tonic::transport::Error>>,
    close: watch::Sender<bool>,
}

impl Servers {
    pub(super) fn start(
        transport: &Transport,
        listeners: Vec<GrpcListener>,
        routes: &Routes,
        calls: &CallsLayer,
    ) -> Self {
        let close = watch::Sender::new(false);
        let mut running = JoinSet::new();
        for listener in listeners {
            let mut closing = close.subscribe();
            let closed = async move {
                // An error says that the sender is gone: then there is nobody to serve for.
                let _ = closing.wait_for(|close| *close).await;
            };
            let (routes, calls) = (routes.clone(), calls.clone());
            let is_tls = transport.is_tls;
            match listener {
                GrpcListener::Tcp(listener) => {
                    let connections = Box::pin(
                        tcp_connections(listener).map(move |stream| answering(stream, is_tls)),
                    );
                    let server = transport.tcp.clone();
                    running.spawn(async move {
                        server
                            .layer(calls)
                            .add_routes(routes)
                            .serve_with_incoming_shutdown(connections, closed)
                            .await
                    });
                }
                GrpcListener::Unix(listener) => {
                    let connections =
                        Box::pin(unix_connections(listener).map(|stream| answering(stream, false)));
                    let server = transport.plain.clone();
                    running.spawn(async move {
                        server
                            .layer(calls)
                            .add_routes(routes)
                            .serve_with_incoming_shutdown(connections, closed)
                            .await
                    });
                }
            }
        }
        Self { running, close }
    }

    /// Returns when one of them ends, which none should.
    pub(super) async fn ended(&mut self) -> String {
        match self.running.join_next().await {
            None | Some(Ok(Ok(()))) => "it stopped accepting connections".to_owned(),
            Some(Ok(Err(error))) => in_full(&error),
            Some(Err(error)) => error.to_string(),
        }
    }

    /// Takes no more calls, lets the last answers out, and tells clients to go elsewhere.
    pub(super) async fn close(mut self) {
        self.close.send_replace(true);
        // What is still open after that is cut off.
        let _ = time::timeout(CLOSE_TIME, async {
            while self.running.join_next().await.is_some() {}
        })
        .await;
    }
}
