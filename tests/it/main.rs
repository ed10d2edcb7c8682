//! The integration tests, as one binary.

mod cli;
mod documents;
mod grpc_surface;
mod house;
mod memory_store;
mod model;
mod operation;
mod oracle;
mod property;
mod python;
mod stores;
mod support;
