//! Every default and every bound of the configuration, each with its reason. Those of a
//! namespace's rules stand in [`crate::domain::policy`].

use std::{
    net::{IpAddr, Ipv4Addr, SocketAddr},
    ops::RangeInclusive,
    time::Duration,
};

use super::LogFormat;

const MIB: u64 = 1 << 20;

/// A sidecar is reached from its own pod only.
pub const GRPC_LISTEN: SocketAddr = loopback(50_061);
/// The owner and the group: a sidecar and its application often run as two users of one group.
pub const SOCKET_MODE: u32 = 0o660;
/// Probes and scrapers are let in on purpose, not by default.
pub const ADMIN_LISTEN: SocketAddr = loopback(9_461);

/// A healthy Redis answers in under 1 ms; a caller in a stream can bear 50.
pub const STORE_BUDGET: Duration = Duration::from_millis(50);
/// Longer than this a caller has given up.
pub const MAX_STORE_BUDGET: Duration = Duration::from_secs(10);
/// The primary alone, as the seeds' consumers do.
pub const WAIT_REPLICAS: u32 = 0;
/// A primary with more replicas than this is no store for claims.
pub const MAX_WAIT_REPLICAS: u32 = 5;
/// A bundle of all public authorities has a quarter of it.
pub const MAX_STORE_FILE_BYTES: u64 = MIB;
/// Some five million claims, and less than a node's spare memory.
const MAX_MEMORY_BYTES: u64 = 1 << 30;
/// Some two million claims: an hour of 600 events a second.
const MAX_LOCAL_MEMORY_BYTES: u64 = 256 * MIB;
/// Half of what the process may use, so that the failure mode speaks and not the kernel's killer.
pub fn max_memory_bytes(memory_limit_bytes: Option<u64>) -> u64 {
    within(MAX_MEMORY_BYTES, memory_limit_bytes, 2)
}

/// A quarter of it: less is needed while Redis is there.
pub fn max_local_memory_bytes(memory_limit_bytes: Option<u64>) -> u64 {
    within(MAX_LOCAL_MEMORY_BYTES, memory_limit_bytes, 4)
}

fn within(most: u64, limit: Option<u64>, part: u64) -> u64 {
    let part = limit.map_or(most, |limit| limit / part / MIB * MIB);
    part.clamp(LEAST_MAX_MEMORY_BYTES, most)
}

/// Spans the retries of a usual client and several reports of a parked asset; and who forgets a
/// claim through one instance can wait so long for the others.
pub const KNOWN_CLAIMS_MAX_AGE: Duration = Duration::from_secs(60);
/// Longer than this nobody waits for what was forgotten.
pub const MAX_KNOWN_CLAIMS_MAX_AGE: Duration = Duration::from_secs(3_600);
/// Some 200,000 claims.
const MAX_KNOWN_CLAIMS_BYTES: u64 = 16 * MIB;

/// A sixteenth of what the process may use: it only saves work.
pub fn known_claims_bytes(memory_limit_bytes: Option<u64>) -> u64 {
    within(MAX_KNOWN_CLAIMS_BYTES, memory_limit_bytes, 16)
}

/// Fewer bytes hold no useful number of claims.
pub const LEAST_MAX_MEMORY_BYTES: u64 = MIB;

/// A batch of a usual broker's poll (500 to 5000) goes through in one request.
pub const MAX_EVENTS_PER_REQUEST: usize = 5_000;
/// Above this one request holds up all others on its connection.
pub const EVENTS_PER_REQUEST: RangeInclusive<usize> = 1..=100_000;
/// What gRPC clients take and send unless they are told otherwise.
pub const MAX_MESSAGE_BYTES: u64 = 4 * MIB;
/// One event with its longest ids fits; one message never takes the memory of a pod.
pub const MESSAGE_BYTES: RangeInclusive<u64> = 4 << 10..=256 * MIB;

/// An app's last confirmations follow each other faster than this.
pub const DRAIN_QUIET: Duration = Duration::from_secs(2);
/// Kubernetes kills after 30 s; 5 s remain for the rest.
pub const DRAIN_DEADLINE: Duration = Duration::from_secs(25);
/// A drain that takes longer than an hour is a mistake in units.
pub const MAX_DRAIN: Duration = Duration::from_secs(3_600);

/// Logs are read by people first.
pub const LOG_FORMAT: LogFormat = LogFormat::Text;

/// Thousands of namespaces fit; whatever is longer is no configuration.
pub const MAX_TEXT_BYTES: usize = 1 << 20;
/// Far more than a text of that size needs, far less than aliases of aliases can make.
pub const MAX_TEXT_NODES: usize = 100_000;

const fn loopback(port: u16) -> SocketAddr {
    SocketAddr::new(IpAddr::V4(Ipv4Addr::LOCALHOST), port)
}
