//! The integration tests, as one binary.

mod advise;
mod cases;
mod cli;
mod client;
mod concurrency;
mod contract;
mod documents;
mod golden;
mod grpc_surface;
mod house;
mod memory_store;
mod model;
mod operation;
mod oracle;
mod outage;
mod property;
mod python;
mod replay;
mod stores;
mod support;
mod topologies;
mod tracks;
mod verification;
