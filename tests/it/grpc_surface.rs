//! The gRPC surface in process: the engine over an embedded store behind a gate, tonic's own client.

mod inspect;
mod lifetimes;
mod refusals;
mod server;
mod streams;
mod unary;
mod wire;
