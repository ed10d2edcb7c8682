//! What one measurement says.

use serde_json::Value;

/// Events a second, and nanoseconds of CPU per event of whom it was read.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Measured {
    pub(crate) events_per_s: f64,
    pub(crate) client_ns: Option<f64>,
    pub(crate) server_ns: Option<f64>,
    pub(crate) redis_ns: Option<f64>,
    pub(crate) p50_ns: Option<f64>,
    pub(crate) p99_ns: Option<f64>,
}

impl Measured {
    /// Of a report of `dedupd bench`.
    pub(crate) fn of(report: &Value) -> Self {
        let cpu = |process: &str| report["cpu"][process]["per_event_ns"].as_f64();
        let latency = |quantile: &str| report["latency"]["admit_ns"][quantile].as_f64();
        Self {
            events_per_s: report["events_per_s"].as_f64().unwrap_or(0.0),
            client_ns: cpu("client"),
            server_ns: cpu("server"),
            redis_ns: cpu("redis"),
            p50_ns: latency("p50"),
            p99_ns: latency("p99"),
        }
    }
}
