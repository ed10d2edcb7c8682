//! What dedupd says about itself: counters, metrics, logs.

pub mod counters;
pub mod store_errors;
