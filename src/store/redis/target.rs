//! Which Redis, and how it is reached. Plain data: the configuration makes it, the connector reads
//! it. What is in files is read anew for each connection, so that passwords and certificates can be
//! rotated.

use std::{fmt, path::PathBuf};

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Target {
    pub topology: Topology,
    /// To the servers that hold claims.
    pub access: Access,
    /// Replicas that must have a write before it counts; 0: the primary alone.
    pub wait_replicas: u32,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Topology {
    /// One server, or a name that leads to the primary.
    Standalone { endpoint: Endpoint, database: u32 },
    /// Any sentinel tells where the primary of `service` is.
    Sentinel {
        sentinels: Vec<Address>,
        service: String,
        database: u32,
        /// To the sentinels themselves.
        access: Access,
    },
    /// Any seed tells which server holds which slot.
    Cluster { seeds: Vec<Address> },
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Endpoint {
    Tcp(Address),
    Unix(PathBuf),
}

/// A host's name or IP address (an IPv6 address without brackets), and a port.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Address {
    pub host: String,
    pub port: u16,
}

/// How a server is spoken to.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Access {
    pub tls: Option<Tls>,
    pub user: Option<String>,
    pub password: Option<Password>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Password {
    Text(Secret),
    /// The file's text without the white space at its end.
    File(PathBuf),
}

/// Shown by nothing but [`Secret::expose`].
#[derive(Clone, PartialEq, Eq)]
pub struct Secret(String);

/// PEM files.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Tls {
    /// Authorities to trust in place of the system's.
    pub ca: Option<PathBuf>,
    pub identity: Option<ClientIdentity>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClientIdentity {
    pub certificate: PathBuf,
    pub key: PathBuf,
}

impl Secret {
    pub fn new(text: String) -> Self {
        Self(text)
    }

    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Secret {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Secret(***)")
    }
}

impl fmt::Display for Address {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        if self.host.contains(':') {
            write!(f, "[{}]:{}", self.host, self.port)
        } else {
            write!(f, "{}:{}", self.host, self.port)
        }
    }
}
