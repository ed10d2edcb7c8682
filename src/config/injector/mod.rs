//! The configuration of the injector: what `dedupd webhook` and `dedupd inject` put into pods.
//!
//! It is read like the service's own: all faults at once, each by its path. The policies in it are
//! texts that sidecars will be started with; they are validated here by the code that the sidecars
//! run, so that a bad one is refused when it is written and not by a pod that crashes.

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, time::Duration};

pub use self::quantity::Quantity;
use super::LogFormat;

pub mod quantity;

mod written;

mod policies;

mod validate;

#[cfg(test)]
mod tests;

pub(crate) use self::validate::{DEFAULT_POLICY, PORTS, check_key, check_name};
pub use self::validate::{load, parse};

/// A configuration without faults.
#[derive(Clone, Debug, PartialEq)]
pub struct InjectorConfig {
    /// Of the admission server, with TLS.
    pub listen: SocketAddr,
    pub admin_listen: SocketAddr,
    pub tls: Option<Tls>,
    /// Say skips and refusals as Kubernetes Events.
    pub events: bool,
    pub api: Api,
    pub sidecar: Sidecar,
    /// What is allowed but probably not meant, for people.
    pub warnings: Vec<String>,
}

/// Where the admission server's certificate comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Tls {
    /// PEM files, read again when they change.
    Files {
        cert: PathBuf,
        key: PathBuf,
    },
    SelfMade(SelfMade),
}

/// A certificate that the process makes, keeps in a Secret and has the API server trust.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SelfMade {
    pub secret: String,
    pub service: String,
    pub webhook_configuration: String,
    /// Of the Secret and the Service; unset: the process's own.
    pub namespace: Option<String>,
    pub validity: Duration,
}

/// How the API server is reached; unset: as a pod does.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Api {
    /// `https://host:port`.
    pub server: Option<String>,
    pub ca_file: Option<PathBuf>,
    pub token_file: Option<PathBuf>,
}

/// What is put into a pod unless its annotations say otherwise.
#[derive(Clone, Debug, PartialEq)]
pub struct Sidecar {
    pub image: String,
    pub image_pull_policy: Option<PullPolicy>,
    /// Unset: the image's own.
    pub run_as_user: Option<u32>,
    pub resources: Resources,
    pub grpc: Grpc,
    pub grpc_port: u16,
    pub admin_port: u16,
    pub log_format: LogFormat,
    pub log_level: LogLevel,
    pub store: Store,
    /// By name; empty: the built-in namespaces.
    pub policies: BTreeMap<String, PolicyText>,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Resources {
    pub cpu_request: Option<Quantity>,
    pub cpu_limit: Option<Quantity>,
    pub memory_request: Option<Quantity>,
    pub memory_limit: Option<Quantity>,
}

/// Where the sidecar finds its store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Store {
    pub url: Option<StoreSource>,
    pub password: Option<SecretKey>,
    /// A Secret whose files are mounted.
    pub files_secret: Option<String>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreSource {
    /// Without a password.
    Url(String),
    Secret(SecretKey),
}

/// In the workload's own namespace.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SecretKey {
    pub secret: String,
    pub key: String,
}

/// A configuration of `dedupd serve` that is valid where its store is.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyText {
    pub text: String,
    pub without_store: WithoutStore,
}

/// What a policy means in a pod for which no store is named.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum WithoutStore {
    /// It names one itself, which goes before the one of all policies.
    OwnStore,
    /// Each pod decides alone.
    InMemory,
    /// It is not valid then; why.
    Refused(String),
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PullPolicy {
    Always,
    IfNotPresent,
    Never,
}

/// How the app reaches the sidecar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Grpc {
    Loopback,
    /// A Unix socket on a volume of the pod.
    Socket,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LogLevel {
    Error,
    Warn,
    Info,
    Debug,
    Trace,
}

impl PullPolicy {
    pub const fn name(self) -> &'static str {
        match self {
            PullPolicy::Always => "Always",
            PullPolicy::IfNotPresent => "IfNotPresent",
            PullPolicy::Never => "Never",
        }
    }
}

impl LogLevel {
    pub const ALL: [Self; 5] = [
        Self::Error,
        Self::Warn,
        Self::Info,
        Self::Debug,
        Self::Trace,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            LogLevel::Error => "error",
            LogLevel::Warn => "warn",
            LogLevel::Info => "info",
            LogLevel::Debug => "debug",
            LogLevel::Trace => "trace",
        }
    }
}
