//! The routes to a target, and the work that keeps them right.

use std::{
    sync::{Arc, Weak},
    time::Duration,
};

use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};
use tokio::{
    sync::mpsc,
    time::{sleep, timeout},
};

use super::{
    cluster,
    connection::Dialer,
    lane::Whereabouts,
    pipeline::Boxed,
    routes::{LaneMaker, Routes},
    sentinel::Sentinels,
    target::{Address, Topology},
};

/// A cluster is asked for its layout when something tells that it has changed, and now and then.
const DISCOVER_AT_MOST_EVERY: Duration = Duration::from_millis(100);
const DISCOVER_AT_LEAST_EVERY: Duration = Duration::from_secs(15);

pub(super) fn routes(
    maker: LaneMaker,
    dialer: Dialer,
    topology: &Topology,
) -> (Arc<Routes>, Boxed<()>) {
    match topology {
        Topology::Standalone { endpoint, .. } => {
            let whereabouts = Whereabouts::Fixed(endpoint.clone());
            let routes = Routes::to_one(maker, whereabouts);
            (routes, std::future::pending().boxed())
        }
        Topology::Sentinel {
            sentinels,
            service,
            access,
            ..
        } => {
            let sentinels =
                Sentinels::new(dialer, sentinels.clone(), service.clone(), access.clone());
            let sentinels = Arc::new(sentinels);
            let whereabouts = Whereabouts::Primary(Arc::clone(&sentinels));
            let routes = Routes::to_one(maker, whereabouts);
            (routes, sentinels.watch().boxed())
        }
        Topology::Cluster { seeds } => {
            let routes = Routes::to_cluster(maker);
            let watching = follow(Arc::downgrade(&routes), dialer, seeds.clone());
            (routes, watching.boxed())
        }
    }
}

/// Keeps the routes to a cluster's servers as the cluster says.
async fn follow(routes: Weak<Routes>, dialer: Dialer, seeds: Vec<Address>) {
    loop {
        let Some(current) = routes.upgrade() else {
            return;
        };
        let mut candidates = current.addresses();
        let stale = Arc::clone(current.stale());
        drop(current);
        candidates.extend(
            seeds
                .iter()
                .filter(|seed| !candidates.contains(seed))
                .cloned()
                .collect::<Vec<_>>(),
        );
        match cluster::discover(&dialer, candidates).await {
            Ok(map) => {
                if let Some(current) = routes.upgrade() {
                    current.install(&map);
                }
            }
            Err(unknown) => tracing::debug!(%unknown, "no server told how the cluster is laid out"),
        }
        sleep(DISCOVER_AT_MOST_EVERY.mul_f64(rand::random_range(0.75..1.25))).await;
        let _ = timeout(DISCOVER_AT_LEAST_EVERY, stale.notified()).await;
    }
}

/// Runs the lanes as they come, until the last one has ended and no more can come.
pub(super) async fn drive(mut started: mpsc::UnboundedReceiver<Boxed<()>>, watching: Boxed<()>) {
    let mut lanes = FuturesUnordered::new();
    let mut watching = watching.fuse();
    let mut open = true;
    while open || !lanes.is_empty() {
        tokio::select! {
            lane = started.recv(), if open => match lane {
                Some(lane) => lanes.push(lane),
                None => open = false,
            },
            Some(()) = lanes.next(), if !lanes.is_empty() => {}
            () = &mut watching => {}
        }
    }
}
