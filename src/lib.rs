//! dedupd: a gRPC deduplication sidecar.
//!
//! The modules stand in the order in which data meets them.

pub mod cli;

pub mod config;

pub mod app;

pub mod grpc;

pub mod domain;

pub mod store;

pub mod engine;

pub mod replay;

pub mod inject;

pub mod webhook;

pub mod bench;

pub mod telemetry;

pub mod admin;

pub mod clock;
