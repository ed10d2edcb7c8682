//! What is found out about a store, for people, logs and metrics.
//!
//! Each thing that is looked at has a fixed name, the [`Check`]; what was found there is a
//! [`Finding`] that says what is wrong and what to do. Nothing here is secret: no key, no value, no
//! word of an error that the store could have put a secret into.

use std::time::Duration;

use super::StoreError;
use crate::clock::Clock;

/// What is looked at, in the order in which it is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Check {
    /// Can the store be reached, and does it answer in time?
    Connection,
    /// Where each instance has claims of its own.
    PerInstance,
    /// What could not be looked at.
    Introspection,
    Version,
    /// A cluster or not, as it is configured.
    Topology,
    /// A primary or a replica.
    Role,
    Eviction,
    Memory,
    Persistence,
    Replication,
    Clock,
    RoundTrip,
    Permission,
    /// A claim that was made, confirmed and deleted, and one that was released.
    Canary,
    Contract,
    /// What stands under our prefixes that is not ours, or would stay for ever.
    Keys,
}

impl Check {
    pub const ALL: [Check; 16] = [
        Check::Connection,
        Check::PerInstance,
        Check::Introspection,
        Check::Version,
        Check::Topology,
        Check::Role,
        Check::Eviction,
        Check::Memory,
        Check::Persistence,
        Check::Replication,
        Check::Clock,
        Check::RoundTrip,
        Check::Permission,
        Check::Canary,
        Check::Contract,
        Check::Keys,
    ];

    /// The metric's label.
    pub const fn name(self) -> &'static str {
        match self {
            Check::Connection => "connection",
            Check::PerInstance => "per_instance",
            Check::Introspection => "introspection",
            Check::Version => "version",
            Check::Topology => "topology",
            Check::Role => "role",
            Check::Eviction => "eviction",
            Check::Memory => "memory",
            Check::Persistence => "persistence",
            Check::Replication => "replication",
            Check::Clock => "clock",
            Check::RoundTrip => "round_trip",
            Check::Permission => "permission",
            Check::Canary => "canary",
            Check::Contract => "contract",
            Check::Keys => "keys",
        }
    }
}

/// How bad it is; the worst is the greatest.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Severity {
    Ok,
    /// Worth knowing, nothing to do.
    Note,
    /// It works, and something can be lost or will fail.
    Warning,
    /// It does not work.
    Failure,
}

impl Severity {
    /// Those that are not fine.
    pub const FOUND: [Severity; 3] = [Severity::Note, Severity::Warning, Severity::Failure];

    /// The metric's label.
    pub const fn name(self) -> &'static str {
        match self {
            Severity::Ok => "ok",
            Severity::Note => "note",
            Severity::Warning => "warning",
            Severity::Failure => "failure",
        }
    }
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Finding {
    pub check: Check,
    pub severity: Severity,
    /// Which server, namespace or keys, where there are several.
    pub about: Option<String>,
    /// What is so, and what to do about it.
    pub message: String,
}

impl Finding {
    pub fn new(check: Check, severity: Severity, message: impl Into<String>) -> Self {
        Self {
            check,
            severity,
            about: None,
            message: message.into(),
        }
    }

    pub fn about(self, about: impl Into<String>) -> Self {
        Self {
            about: Some(about.into()),
            ..self
        }
    }
}

/// What is to be examined.
#[derive(Clone, Debug)]
pub struct ExamineRequest {
    /// Names, in the order of their ids.
    pub namespaces: Vec<String>,
    pub clock: Clock,
    /// For all of it.
    pub limit: Duration,
    /// Every prefix is tried, and what stands under it looked at.
    pub is_thorough: bool,
}

#[derive(Clone, Debug, Default, PartialEq)]
pub struct Examination {
    pub findings: Vec<Finding>,
    /// Those that hold claims; none for an embedded store, or where none was reached.
    pub servers: Vec<ServerFacts>,
    /// In the order of the namespaces' ids; empty where the store was not asked.
    pub contracts: Vec<FoundContract>,
    /// One for each prefix, if they were asked for and permitted.
    pub samples: Vec<Sample>,
}

impl Examination {
    pub fn worst(&self) -> Severity {
        let severities = self.findings.iter().map(|finding| finding.severity);
        severities.max().unwrap_or(Severity::Ok)
    }

    pub fn add(&mut self, check: Check, severity: Severity, message: impl Into<String>) {
        self.findings.push(Finding::new(check, severity, message));
    }
}

/// What a server says about itself, and what was measured. `None`: it does not tell.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct ServerFacts {
    /// Its address, where there are several servers.
    pub address: Option<String>,
    /// Such as `Redis 7.0.15`.
    pub version: Option<String>,
    /// Another one after each start.
    pub run_id: Option<String>,
    /// What it followed before it was promoted, if it was.
    pub promoted_from: Option<String>,
    pub used_memory_bytes: Option<u64>,
    /// 0: no limit.
    pub max_memory_bytes: Option<u64>,
    pub eviction: Option<String>,
    /// Since it started.
    pub evicted_keys: Option<u64>,
    pub replicas: Option<u64>,
    /// How far its clock is ahead of ours.
    pub clock_offset_s: Option<f64>,
    /// The median of a few.
    pub round_trip: Option<Duration>,
}

/// The contract line of a namespace, as it stands in the store.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum FoundContract {
    #[default]
    NotRead,
    Absent,
    Line(String),
    Unreadable(StoreError),
}

/// What some of the keys under a prefix hold.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Sample {
    pub prefix: String,
    /// All keys under it, as the store's own patterns say it.
    pub pattern: String,
    /// These were all.
    pub complete: bool,
    pub keys: u64,
    /// Claims of this version.
    pub claims: u64,
    /// Claims of a newer version.
    pub newer: u64,
    /// Values that are no claims, such as older consumers write.
    pub foreign: u64,
    /// Lists, hashes and the like.
    pub other_types: u64,
    /// Of all of these, those that would stay for ever.
    pub without_ttl: u64,
}

impl Sample {
    /// Adds what another server holds.
    pub fn add(&mut self, other: &Self) {
        self.complete &= other.complete;
        self.keys += other.keys;
        self.claims += other.claims;
        self.newer += other.newer;
        self.foreign += other.foreign;
        self.other_types += other.other_types;
        self.without_ttl += other.without_ttl;
    }
}
