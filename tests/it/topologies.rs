//! Redis as it is run: over TLS, behind sentinels, as a cluster.

mod cluster;
mod reached;
mod sentinel;

use std::time::{Duration, Instant};

use tokio::time;

use crate::{
    outage::world::{Client, admit, connect, reasons, serve_store, until_decided},
    support::service::Service,
};

/// Ample on a busy machine.
const BUDGET: &str = "budget: 400ms";

/// A service on this store, once it is decided there.
async fn decided_by(store: &str) -> (Service, Client) {
    let service = serve_store(&format!("{store}, {BUDGET}"));
    let mut client = connect(&service).await;
    until_decided(&mut client).await;
    (service, client)
}

/// What `decide` says in the end, and how long that took.
async fn until<T>(
    what: &str,
    within: Duration,
    mut decide: impl AsyncFnMut() -> Option<T>,
) -> (T, Duration) {
    let begun = Instant::now();
    loop {
        if let Some(found) = decide().await {
            return (found, begun.elapsed());
        }
        assert!(begun.elapsed() < within, "{what}: not within {within:?}");
        time::sleep(Duration::from_millis(10)).await;
    }
}

/// The reasons of keyed events of a namespace without a lease.
async fn admit_keyed(client: &mut Client, ids: &[String]) -> Vec<dedupd::grpc::proto::Reason> {
    reasons(&admit(client, "closed", ids, "").await)
}
