//! What is wrong with a server, of what it said about itself and what was measured. Pure.

use std::time::Duration;

use super::info::{Info, Product, Replica, Role, Version};
use crate::store::examination::{Check, Finding, ServerFacts, Severity};

/// Older servers have no `GET` in `SET`, or no `PX` that keeps what a script needs of it.
const OLDEST: (u64, u64) = (6, 2);
/// From here on a claim of one key is one command.
const SETS_AND_GETS: (u64, u64) = (7, 0);
/// Claims are refused, or evicted, soon.
const NEARLY_FULL_PERCENT: u64 = 90;
/// Clocks that are kept in step differ by milliseconds.
const MAX_CLOCK_OFFSET_S: f64 = 1.0;
/// A replica that works is behind by what is on the wire.
const MAX_BEHIND_BYTES: u64 = 1 << 20;
/// Replicas report every second.
const MAX_SILENT_S: u64 = 10;

/// What is known of one server.
#[derive(Clone, Debug, Default)]
pub(super) struct Observed {
    /// `None`: it is not permitted.
    pub(super) info: Option<Info>,
    /// It takes snapshots; `None`: that is not known.
    pub(super) snapshots: Option<bool>,
    pub(super) clock: Option<ClockReading>,
    /// The median of a few.
    pub(super) round_trip: Option<Duration>,
    pub(super) refused: Vec<Introspection>,
}

/// Commands that only look.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Introspection {
    Info,
    Config,
    Time,
}

/// How far the server's clock is ahead of ours, and by how much that may be wrong.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(super) struct ClockReading {
    pub(super) offset_s: f64,
    pub(super) error_s: f64,
}

/// How the store is configured.
#[derive(Clone, Copy, Debug)]
pub(super) struct Expected {
    pub(super) is_cluster: bool,
    pub(super) wait_replicas: u32,
    pub(super) budget: Duration,
}

pub(super) fn facts(observed: &Observed) -> ServerFacts {
    let info = observed.info.clone().unwrap_or_default();
    ServerFacts {
        address: None,
        version: info.version.as_ref().map(Version::to_string),
        run_id: info.run_id,
        promoted_from: info.promoted_from,
        used_memory_bytes: info.used_memory_bytes,
        max_memory_bytes: info.max_memory_bytes,
        eviction: info.eviction,
        evicted_keys: info.evicted_keys,
        replicas: observed
            .info
            .as_ref()
            .map(|info| info.replicas.len() as u64),
        clock_offset_s: observed.clock.map(|clock| clock.offset_s),
        round_trip: observed.round_trip,
    }
}

pub(super) fn findings(observed: &Observed, expected: Expected) -> Vec<Finding> {
    let mut found: Vec<Option<Finding>> = observed.refused.iter().copied().map(refused).collect();
    if let Some(info) = &observed.info {
        found.extend([
            version(info),
            topology(info, expected),
            role(info),
            eviction(info),
            memory(info),
            persistence(info, observed.snapshots),
            replication(info, expected),
        ]);
    }
    found.push(observed.clock.map(clock));
    found.push(
        observed
            .round_trip
            .map(|median| round_trip(median, expected.budget)),
    );
    found.into_iter().flatten().collect()
}

fn refused(command: Introspection) -> Option<Finding> {
    let message = match command {
        Introspection::Info => {
            "INFO is refused: version, role, eviction, memory, persistence and replication are not \
             known; permit +info"
        }
        Introspection::Config => {
            "CONFIG GET is refused: whether snapshots are taken is not known; permit +config|get"
        }
        Introspection::Time => "TIME is refused: the clock is not known; permit +time",
    };
    Some(Finding::new(Check::Introspection, Severity::Note, message))
}

fn version(info: &Info) -> Option<Finding> {
    let version = info.version.as_ref()?;
    let (severity, message) = match (version.product, version.number) {
        (Product::Valkey, _) => (Severity::Ok, version.to_string()),
        (Product::Redis, number) if number < OLDEST => (
            Severity::Failure,
            format!("{version} is too old; use Redis 6.2 or later, or Valkey"),
        ),
        (Product::Redis, number) if number < SETS_AND_GETS => (
            Severity::Note,
            format!("{version}: every claim is a script, which costs more than one command of 7.0"),
        ),
        (Product::Redis, _) => (Severity::Ok, version.to_string()),
    };
    Some(Finding::new(Check::Version, severity, message))
}

fn topology(info: &Info, expected: Expected) -> Option<Finding> {
    let wrong = match (info.is_sentinel, info.is_cluster, expected.is_cluster) {
        (true, _, _) => {
            "this is a sentinel, which holds no claims: use the primary's address, or redis-sentinel://"
        }
        (false, true, false) => {
            "this server is one of a cluster: keys of the others are refused (MOVED); use redis-cluster://"
        }
        (false, false, true) => "this server is not one of a cluster: use redis://",
        (false, true, true) | (false, false, false) => return None,
    };
    Some(Finding::new(Check::Topology, Severity::Failure, wrong))
}

fn role(info: &Info) -> Option<Finding> {
    let (severity, message) = match info.role? {
        Role::Replica => (
            Severity::Failure,
            "this is a replica, which takes no claims (READONLY): use the primary's address",
        ),
        Role::Primary if info.is_loading => (
            Severity::Warning,
            "it is loading its data (LOADING): claims are taken once it is done",
        ),
        Role::Primary => (Severity::Ok, "primary"),
    };
    Some(Finding::new(Check::Role, severity, message))
}

fn eviction(info: &Info) -> Option<Finding> {
    let policy = info.eviction.as_deref()?;
    let evicted = info.evicted_keys.unwrap_or(0);
    let (severity, message) = match (policy, evicted) {
        ("noeviction", 0) => (Severity::Ok, "noeviction".to_owned()),
        ("noeviction", evicted) => (
            Severity::Note,
            format!("noeviction now, but {evicted} keys were evicted since the server started"),
        ),
        (policy, evicted) => (
            Severity::Warning,
            format!(
                "maxmemory-policy is {policy} ({evicted} keys evicted so far): at maxmemory claims are \
                 forgotten and their copies admitted; set maxmemory-policy noeviction"
            ),
        ),
    };
    Some(Finding::new(Check::Eviction, severity, message))
}

fn memory(info: &Info) -> Option<Finding> {
    let (used, limit) = (info.used_memory_bytes?, info.max_memory_bytes?);
    if limit == 0 {
        let message = "no maxmemory: the machine's memory is the limit, and the end of it the server's; set maxmemory";
        return Some(Finding::new(Check::Memory, Severity::Note, message));
    }
    let percent = used.saturating_mul(100) / limit;
    let (severity, message) = if percent >= NEARLY_FULL_PERCENT {
        (
            Severity::Warning,
            format!(
                "{percent} % of maxmemory is used: at the limit claims are refused (OOM), or evicted; \
                 raise maxmemory, shorten TTLs, or move other tenants"
            ),
        )
    } else {
        (Severity::Ok, format!("{percent} % of maxmemory is used"))
    };
    Some(Finding::new(Check::Memory, severity, message))
}

fn persistence(info: &Info, snapshots: Option<bool>) -> Option<Finding> {
    let appends = info.append_only?;
    let (severity, message) = match (info.snapshot_failed, info.append_failed) {
        (_, true) => (
            Severity::Warning,
            "the last write to the append-only file failed: writes are refused (MISCONF) until the disk \
             takes them again",
        ),
        (true, false) => (
            Severity::Warning,
            "the last snapshot failed: while one does, writes are refused (MISCONF) unless \
             stop-writes-on-bgsave-error is off; look into the server's log and its disk",
        ),
        (false, false) => match (appends, snapshots) {
            (true, _) => (Severity::Ok, "append-only file"),
            (false, Some(true)) => (
                Severity::Ok,
                "snapshots: a restart forgets the claims since the last one",
            ),
            (false, Some(false)) => (
                Severity::Note,
                "none: a restart forgets every claim, and copies are admitted once more",
            ),
            (false, None) => return None,
        },
    };
    Some(Finding::new(Check::Persistence, severity, message))
}

fn replication(info: &Info, expected: Expected) -> Option<Finding> {
    if info.role != Some(Role::Primary) {
        return None;
    }
    let all = info.replicas.len();
    let late = info
        .replicas
        .iter()
        .filter(|one| is_late(one, info))
        .count();
    let wanted = expected.wait_replicas as usize;
    let (severity, message) = match (all, late) {
        (all, late) if all - late < wanted => (
            Severity::Failure,
            format!(
                "replicas that follow: {}, and store.wait_replicas is {wanted}: no claim counts; bring \
                 replicas back, or lower it",
                all - late
            ),
        ),
        (0, _) => (
            Severity::Note,
            "no replica: while this server is away failure modes apply".to_owned(),
        ),
        (all, 0) => (Severity::Ok, format!("replicas that follow: {all}")),
        (all, late) => (
            Severity::Warning,
            format!(
                "{late} of {all} replicas do not follow (not online, silent for {MAX_SILENT_S} s, or 1 MiB \
                 behind): what one lacks is admitted again if it is promoted; look into its log"
            ),
        ),
    };
    Some(Finding::new(Check::Replication, severity, message))
}

fn is_late(replica: &Replica, info: &Info) -> bool {
    let behind = info.offset.zip(replica.offset);
    !replica.is_online
        || replica.silent_s.is_some_and(|silent| silent > MAX_SILENT_S)
        || behind
            .is_some_and(|(primary, replica)| primary.saturating_sub(replica) > MAX_BEHIND_BYTES)
}

fn clock(reading: ClockReading) -> Finding {
    let ClockReading { offset_s, error_s } = reading;
    if offset_s.abs() - error_s <= MAX_CLOCK_OFFSET_S {
        return Finding::new(
            Check::Clock,
            Severity::Ok,
            format!("{:.3} s from ours", offset_s.abs()),
        );
    }
    let direction = if offset_s > 0.0 { "ahead of" } else { "behind" };
    let message = format!(
        "the server's clock is {:.1} s {direction} ours: keep both machines' time (NTP); event times are \
         judged by ours, and where the server's jumps ahead, claims expire early",
        offset_s.abs()
    );
    Finding::new(Check::Clock, Severity::Warning, message)
}

fn round_trip(median: Duration, budget: Duration) -> Finding {
    let (median_ms, budget_ms) = (median.as_secs_f64() * 1e3, budget.as_secs_f64() * 1e3);
    let advice = "look for a Redis nearer by, or a busy one, or raise store.budget";
    let (severity, message) = if median >= budget {
        (
            Severity::Failure,
            format!(
                "{median_ms:.1} ms, and store.budget is {budget_ms:.0} ms: no claim is decided in time; {advice}"
            ),
        )
    } else if median * 2 >= budget {
        (
            Severity::Warning,
            format!(
                "{median_ms:.1} ms is half of store.budget ({budget_ms:.0} ms) or more: claims time out; {advice}"
            ),
        )
    } else {
        (Severity::Ok, format!("{median_ms:.1} ms"))
    };
    Finding::new(Check::RoundTrip, severity, message)
}

#[cfg(test)]
mod tests;
