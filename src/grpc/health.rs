//! gRPC health: `""` and the services say "listening and configured", `store` whether the store
//! takes part, for those who want to know.

use std::{sync::Arc, time::Duration};

use tokio::time;
use tonic_health::{
    ServingStatus,
    pb::health_server::HealthServer,
    server::{HealthReporter, HealthService},
};

use super::proto::{dedup_service_server, inspect_service_server};
use crate::engine::Engine;

/// How soon a trip of the breaker shows. The breaker wakes only its keeper.
const STORE_LOOK_PERIOD: Duration = Duration::from_millis(100);

const STORE: &str = "store";

const SERVICES: [&str; 3] = [
    "",
    dedup_service_server::SERVICE_NAME,
    inspect_service_server::SERVICE_NAME,
];

/// What health checks are answered. Cheap to clone.
#[derive(Clone, Debug)]
pub struct Health {
    reporter: HealthReporter,
}

impl Health {
    /// The services serve; of the store nothing is known yet.
    pub async fn serving() -> Self {
        let health = Self {
            reporter: HealthReporter::new(),
        };
        health.set_services(ServingStatus::Serving).await;
        health
            .reporter
            .set_service_status(STORE, ServingStatus::NotServing)
            .await;
        health
    }

    /// A drain began: callers look for another instance.
    pub async fn not_serving(&self) {
        self.set_services(ServingStatus::NotServing).await;
    }

    /// Keeps `store` up to date. Runs until it is dropped.
    pub async fn follow_store(&self, engine: Arc<Engine>) {
        let mut looks = time::interval(STORE_LOOK_PERIOD);
        looks.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
        let mut last = false;
        loop {
            looks.tick().await;
            let takes_part = engine.breaker().admits();
            if takes_part != last {
                let status = if takes_part {
                    ServingStatus::Serving
                } else {
                    ServingStatus::NotServing
                };
                self.reporter.set_service_status(STORE, status).await;
                last = takes_part;
            }
        }
    }

    pub(super) fn service(&self) -> HealthServer<HealthService> {
        HealthServer::new(HealthService::from_health_reporter(self.reporter.clone()))
    }

    async fn set_services(&self, status: ServingStatus) {
        for service in SERVICES {
            self.reporter.set_service_status(service, status).await;
        }
    }
}
