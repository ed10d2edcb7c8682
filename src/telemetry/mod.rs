//! What dedupd says about itself: counters, metrics, logs.

pub mod counters;
pub mod dead_letters;
pub(crate) mod families;
pub mod latency;
pub mod logs;
pub mod metrics;
pub mod noisy;
pub mod store_errors;
mod store_findings;
