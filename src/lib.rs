//! dedupd: a gRPC deduplication sidecar.
//!
//! The modules stand in the order in which data meets them.

pub mod domain;

pub mod store;

pub mod engine;

pub mod telemetry;

pub mod clock;
