//! The configuration: one YAML file, overridden by the environment, overridden by flags.
//!
//! Two shapes: what was written (`written`) and what was validated ([`Config`]). The step between
//! them (`validate`, `namespace`) finds all faults in one go and names each by its path. It leaves
//! every relation between the parts of a namespace to [`Policy::new`].

use std::{fmt, net::SocketAddr, path::PathBuf, sync::Arc, time::Duration};

use crate::domain::policy::{FailureMode, Policy};

pub(crate) use self::quantity::parse_duration;
pub use self::{
    address::GrpcAddress,
    source::{Flags, admin_address, load, log_format},
    store_url::{StoreUrl, redact_user_info},
};

pub mod defaults;

mod source;

mod written;

pub mod quantity;

mod address;

mod store_url;

mod store;

mod known_claims;

mod scope;

mod validate;

mod namespace;

mod ttl;

mod show;

pub mod injector;

#[cfg(test)]
mod tests;

/// A configuration without faults.
#[derive(Clone, Debug)]
pub struct Config {
    pub listen: Listen,
    pub store: StoreConfig,
    pub limits: Limits,
    pub drain: Drain,
    pub inspect: Inspect,
    /// By name; never empty.
    pub namespaces: Vec<Arc<Policy>>,
    /// What is allowed but probably not meant, for people.
    pub warnings: Vec<String>,
}

impl Config {
    /// Some namespace decides in an embedded store while the shared one is away.
    pub fn needs_local_store(&self) -> bool {
        self.namespaces
            .iter()
            .any(|policy| policy.failure_mode() == FailureMode::Local)
    }
}

#[derive(Clone, Debug)]
pub struct Listen {
    /// Never empty.
    pub grpc: Vec<GrpcAddress>,
    /// Permissions of Unix sockets' files.
    pub socket_mode: u32,
    pub admin: SocketAddr,
    /// For gRPC over TCP; Unix sockets stay plain.
    pub tls: Option<TlsFiles>,
}

/// PEM files. With a client CA, clients must show a certificate of it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TlsFiles {
    pub cert_file: PathBuf,
    pub key_file: PathBuf,
    pub client_ca_file: Option<PathBuf>,
}

#[derive(Clone, Debug)]
pub struct StoreConfig {
    /// With what the other keys add to it.
    pub url: StoreUrl,
    /// For one operation, counted from when it is sent.
    pub budget: Duration,
    /// Of the memory store.
    pub max_memory_bytes: u64,
    /// Of the embedded store for namespaces whose failure mode is local.
    pub max_local_memory_bytes: u64,
    pub known_claims: KnownClaims,
}

/// Confirmed claims in Redis that answer repeats without it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct KnownClaims {
    /// For how long they are believed to stand; zero: none are remembered.
    pub max_age: Duration,
    pub max_bytes: u64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Limits {
    pub max_events_per_request: usize,
    pub max_request_bytes: usize,
    pub max_response_bytes: usize,
}

/// How long to wait, after SIGTERM, for calls to cease and at most.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Drain {
    pub quiet: Duration,
    pub deadline: Duration,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Inspect {
    pub allow_forget: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, clap::ValueEnum)]
pub enum LogFormat {
    Text,
    Json,
}

/// One fault: what is wrong, and where.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigError {
    /// A key (`namespaces.orders.ttl`), a flag (`--store`) or a variable (`DEDUPD_CONFIG`).
    pub path: String,
    pub message: String,
}

impl fmt::Display for ConfigError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.path, self.message)
    }
}

/// Everything that is wrong; never empty.
#[derive(Clone, Debug, thiserror::Error)]
#[error("the configuration is not valid:{}", .0.iter().map(|error| format!("\n  {error}")).collect::<String>())]
pub struct ConfigErrors(pub Vec<ConfigError>);
