//! What Prometheus scrapes.
//!
//! Nothing is recorded here: one collector reads what the engine, the keeper and the store count
//! for themselves, so that a request pays for no label look-up. Labels are namespaces and names of
//! our own enums, so that the number of series is known from the configuration; ids are never
//! labels.

use std::{fmt, sync::Arc};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, text},
    registry::{Registry, Unit},
};

use super::{counters::LAG_BOUNDS_S, families::Families, latency::LATENCY_BOUNDS_S};
use crate::{
    domain::reason::Reason,
    engine::{Engine, Namespace, breaker::BreakerState, keeper::KeeperReport},
    grpc::drain::InFlight,
};

/// OpenMetrics, which is what [`Metrics::exposition`] writes.
pub const CONTENT_TYPE: &str = "application/openmetrics-text; version=1.0.0; charset=utf-8";

const PREFIX: &str = "dedupd";
/// Of noisy subjects.
const RANKS: [&str; 5] = ["1", "2", "3", "4", "5"];

/// Everything that can be scraped.
#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
}

/// Where the numbers come from.
#[derive(Debug)]
pub struct Sources {
    pub engine: Arc<Engine>,
    pub keeper: Arc<KeeperReport>,
    pub in_flight: InFlight,
    /// Each instance decides alone, so that copies that reach two instances are not found.
    pub store_is_per_instance: bool,
}

impl Metrics {
    pub fn new(sources: Sources) -> Self {
        let mut registry = Registry::with_prefix(PREFIX);
        registry.register_collector(Box::new(sources));
        Self { registry }
    }

    pub fn exposition(&self) -> Result<String, fmt::Error> {
        let mut exposition = String::new();
        text::encode(&mut exposition, &self.registry)?;
        Ok(exposition)
    }
}

impl Collector for Sources {
    fn encode(&self, encoder: DescriptorEncoder) -> fmt::Result {
        let mut families = Families(encoder);
        self.events(&mut families)?;
        self.noisy_subjects(&mut families)?;
        self.namespaces(&mut families)?;
        self.store_operations(&mut families)?;
        self.breaker(&mut families)?;
        self.store(&mut families)?;
        self.local(&mut families)?;
        self.store_findings(&mut families)?;
        self.strangers(&mut families)?;
        self.process(&mut families)
    }
}

impl Sources {
    fn events(&self, families: &mut Families) -> fmt::Result {
        families.counters(
            "decisions",
            "Events decided, by decision and reason; in shadow mode what would have been decided",
            self.engine.namespaces().iter().flat_map(|namespace| {
                Reason::ALL.iter().map(|&reason| {
                    let labels = [
                        ("namespace", name(namespace)),
                        ("decision", reason.decision().name()),
                        ("reason", reason.name()),
                    ];
                    (labels, namespace.counters().events(reason))
                })
            }),
        )?;
        families.counters(
            "events_clamped",
            "Events whose implausible time was replaced by ingested_at",
            self.each(|namespace| namespace.counters().clamped()),
        )?;
        families.counters(
            "claims_adopted",
            "Claims that a retried call took over after its first answer was lost",
            self.each(|namespace| namespace.counters().adopted()),
        )?;
        families.counters(
            "known_duplicates",
            "Events decided by a claim that was known to stand, without asking the store",
            self.each(|namespace| namespace.counters().known()),
        )?;
        families.histograms(
            "event_time_lag",
            "How far an event's own time lies behind the time of its decision",
            &LAG_BOUNDS_S,
            self.each(|namespace| namespace.counters().lag()),
        )
    }

    /// By rank: whose events they are, `InspectService` tells.
    fn noisy_subjects(&self, families: &mut Families) -> fmt::Result {
        let mut suppressed = Vec::new();
        let mut events = Vec::new();
        for namespace in self.engine.namespaces() {
            let subjects = namespace.noisy_subjects(RANKS.len());
            for (index, rank) in RANKS.into_iter().enumerate() {
                let labels = [("namespace", name(namespace)), ("rank", rank)];
                let subject = subjects.get(index);
                suppressed.push((
                    labels,
                    subject.map_or(0, |noisy| u64::from(noisy.suppressed)),
                ));
                events.push((labels, subject.map_or(0, |noisy| u64::from(noisy.events))));
            }
        }
        families.gauges(
            "noisy_subject_suppressed",
            "Recent suppressed events of the subjects with the most of them",
            suppressed,
        )?;
        families.gauges(
            "noisy_subject_events",
            "Recent events of any decision of the same subjects: where nearly all are suppressed a device is stuck",
            events,
        )
    }

    fn namespaces(&self, families: &mut Families) -> fmt::Result {
        families.gauges(
            "namespace_refused",
            "1: not served, because another contract stands in the store",
            self.each(|namespace| u64::from(namespace.refused().is_some())),
        )?;
        let modes: Vec<(&str, String)> = self
            .engine
            .namespaces()
            .iter()
            .map(|namespace| {
                (
                    name(namespace),
                    namespace.policy().failure_mode().to_string(),
                )
            })
            .collect();
        families.infos(
            "namespace_failure_mode",
            "What a store outage means for the namespace",
            modes.iter().map(|(namespace, mode)| {
                [("namespace", *namespace), ("failure_mode", mode.as_str())]
            }),
        )?;
        families.counter(
            "contract_mismatches",
            "Times that another contract stood in the store after the first contact",
            self.keeper.mismatches(),
        )
    }

    fn store_operations(&self, families: &mut Families) -> fmt::Result {
        families.counters(
            "store_errors",
            "Results that the store did not give, by kind of error",
            self.engine
                .store_errors()
                .by_kind()
                .map(|(error, count)| ([("kind", error.name())], count)),
        )?;
        let latencies = self.engine.store_latencies();
        families.histograms(
            "store_operation",
            "How long a request waits for the store",
            &LATENCY_BOUNDS_S,
            [("claim", &latencies.claim), ("settle", &latencies.settle)]
                .map(|(operation, latency)| ([("operation", operation)], latency.read())),
        )
    }

    fn breaker(&self, families: &mut Families) -> fmt::Result {
        let now = self.engine.breaker().state();
        families.gauges(
            "breaker_state",
            "1 for the state that the breaker is in",
            BreakerState::ALL.map(|state| ([("state", state.name())], u64::from(state == now))),
        )?;
        families.counter(
            "breaker_trips",
            "Outages of the store",
            self.engine.breaker().trips(),
        )
    }

    fn store(&self, families: &mut Families) -> fmt::Result {
        let stats = self.engine.store().stats();
        let local = self.engine.local().map(|local| local.stats());
        let local = local.unwrap_or_default();
        families.gauge(
            "store_per_instance",
            "1: claims are known to this instance only, so copies that reach others are not found",
            u64::from(self.store_is_per_instance),
        )?;
        families.gauge(
            "store_connections",
            "Connections to the store",
            stats.connections,
        )?;
        families.counter(
            "store_connects",
            "Connections made to the store",
            stats.connects,
        )?;
        families.counter(
            "store_redirections",
            "Keys that a cluster wanted to be asked for elsewhere",
            stats.redirections,
        )?;
        families.gauge(
            "store_queued_events",
            "Events that wait for the store or for its answer",
            stats.queued_events,
        )?;
        if let Some(claims) = stats.claims {
            families.gauge("store_claims", "Claims held", claims)?;
        }
        if let Some(bytes) = stats.bytes {
            families.gauge_in("store", Unit::Bytes, "Memory that claims take", bytes)?;
        }
        families.counter(
            "claims_given_back",
            "Claims deleted because their call was cancelled or timed out",
            stats.given_back + local.given_back,
        )?;
        families.counter(
            "give_backs_kept",
            "Claims that stayed when given back, because other events had been suppressed on them",
            stats.give_backs_kept + local.give_backs_kept,
        )?;
        families.counter(
            "give_backs_abandoned",
            "Claims that could not be given back: their events wait for the lease or the TTL",
            stats.give_backs_abandoned,
        )
    }

    /// Of the embedded store that decides in an outage of the shared one.
    fn local(&self, families: &mut Families) -> fmt::Result {
        let local = self.engine.local();
        let stats = local.map(|local| local.stats()).unwrap_or_default();
        families.gauge(
            "local_claims",
            "Claims of an outage that are not written to the store yet",
            stats.claims.unwrap_or(0),
        )?;
        families.gauge_in(
            "local",
            Unit::Bytes,
            "Memory that the claims of an outage take",
            stats.bytes.unwrap_or(0),
        )?;
        families.counter(
            "local_claims_written_back",
            "Claims of an outage that were written to the store afterwards",
            local.map_or(0, |local| local.written_back()),
        )?;
        families.counter(
            "local_claims_expired",
            "Claims of an outage whose time ran out before they were written",
            local.map_or(0, |local| local.expired()),
        )?;
        families.counters(
            "double_admissions",
            "Events admitted in an outage though another claim stood in the store afterwards",
            self.each(|namespace| namespace.counters().double_admissions()),
        )
    }

    fn process(&self, families: &mut Families) -> fmt::Result {
        families.gauge(
            "requests_in_flight",
            "Calls and batches being answered",
            self.in_flight.in_flight() as u64,
        )?;
        families.infos(
            "build",
            "What runs",
            [[("version", env!("CARGO_PKG_VERSION"))]],
        )
    }

    pub(super) fn each<T>(
        &self,
        read: impl Fn(&Namespace) -> T,
    ) -> impl Iterator<Item = ([(&'static str, &str); 1], T)> {
        self.engine
            .namespaces()
            .iter()
            .map(move |namespace| ([("namespace", name(namespace))], read(namespace)))
    }
}

fn name(namespace: &Namespace) -> &str {
    namespace.policy().name().as_str()
}

#[cfg(test)]
mod tests {
    use std::{collections::BTreeSet, time::Duration};

    use super::*;
    use crate::{
        clock::Clock,
        domain::{
            kind::{Accepts, Kind},
            policy::{FailureMode, NamespaceName, Policy, PolicyDraft, Window},
            time::EventTime,
        },
        store::memory::MemoryStore,
        telemetry::counters::Tally,
    };

    /// What dashboards and alerts are written against: families and their label sets.
    const EXPOSED: [&str; 41] = [
        "dedupd_breaker_state{state}",
        "dedupd_breaker_trips_total",
        "dedupd_build_info{version}",
        "dedupd_claims_adopted_total{namespace}",
        "dedupd_claims_given_back_total",
        "dedupd_contract_mismatches_total",
        "dedupd_decisions_total{namespace,decision,reason}",
        "dedupd_double_admissions_total{namespace}",
        "dedupd_event_time_lag_seconds_bucket{le,namespace}",
        "dedupd_event_time_lag_seconds_count{namespace}",
        "dedupd_event_time_lag_seconds_sum{namespace}",
        "dedupd_events_clamped_total{namespace}",
        "dedupd_give_backs_abandoned_total",
        "dedupd_give_backs_kept_total",
        "dedupd_known_duplicates_total{namespace}",
        "dedupd_local_bytes",
        "dedupd_local_claims",
        "dedupd_local_claims_expired_total",
        "dedupd_local_claims_written_back_total",
        "dedupd_namespace_failure_mode_info{namespace,failure_mode}",
        "dedupd_namespace_refused{namespace}",
        "dedupd_noisy_subject_events{namespace,rank}",
        "dedupd_noisy_subject_suppressed{namespace,rank}",
        "dedupd_requests_in_flight",
        "dedupd_store_bytes",
        "dedupd_store_claims",
        "dedupd_store_clock_offset_seconds",
        "dedupd_store_connections",
        "dedupd_store_connects_total",
        "dedupd_store_epoch_changes_total",
        "dedupd_store_errors_total{kind}",
        "dedupd_store_evicted_keys_total",
        "dedupd_store_findings{check,severity}",
        "dedupd_store_foreign_values_total{namespace}",
        "dedupd_store_keys_without_ttl_total{namespace,outcome}",
        "dedupd_store_operation_seconds_bucket{le,operation}",
        "dedupd_store_operation_seconds_count{operation}",
        "dedupd_store_operation_seconds_sum{operation}",
        "dedupd_store_per_instance",
        "dedupd_store_queued_events",
        "dedupd_store_redirections_total",
    ];

    fn policy(name: &str) -> Arc<Policy> {
        let draft = PolicyDraft::new(
            NamespaceName::new(name).expect("a good name"),
            Accepts::from_kinds([Kind::Keyed]),
            Window::None,
            Duration::from_secs(60),
            FailureMode::Closed,
        );
        Arc::new(Policy::new(draft).expect("a good policy"))
    }

    fn engine(names: &[&str]) -> Arc<Engine> {
        let clock = Clock::manual(EventTime::from_unix_nanos(0));
        let store = Arc::new(MemoryStore::new(clock.clone(), 1 << 20));
        Arc::new(Engine::new(
            names.iter().map(|name| policy(name)).collect(),
            store,
            clock,
            10,
        ))
    }

    fn exposition(engine: &Arc<Engine>) -> String {
        let sources = Sources {
            engine: Arc::clone(engine),
            keeper: Arc::default(),
            in_flight: InFlight::new(engine.clock().clone()),
            store_is_per_instance: true,
        };
        Metrics::new(sources)
            .exposition()
            .expect("writing to a string")
    }

    /// `name{label,label}` of a line such as `name{label="value"} 1`.
    fn signature(line: &str) -> String {
        let (series, value) = line.rsplit_once(' ').expect("a value");
        value.parse::<f64>().expect("a number");
        let Some((name, labels)) = series.split_once('{') else {
            return series.to_owned();
        };
        let labels = labels
            .strip_suffix("\"}")
            .expect("closed labels")
            .split("\",");
        let keys: Vec<&str> = labels
            .map(|label| label.split_once("=\"").expect("a quoted value").0)
            .collect();
        format!("{name}{{{}}}", keys.join(","))
    }

    #[test]
    fn o02_these_names_are_exposed_and_no_others() {
        let exposition = exposition(&engine(&["events", "orders"]));
        assert!(exposition.ends_with("# EOF\n"), "{exposition}");
        let exposed: BTreeSet<String> = exposition
            .lines()
            .filter(|line| !line.starts_with('#'))
            .map(signature)
            .collect();
        assert_eq!(exposed, EXPOSED.map(str::to_owned).into());
    }

    #[test]
    fn b01_the_number_of_series_follows_from_the_configuration() {
        let series = |names: &[&str]| {
            let exposition = exposition(&engine(names));
            let series: Vec<&str> = exposition
                .lines()
                .filter(|line| !line.starts_with('#'))
                .filter_map(|line| Some(line.rsplit_once(' ')?.0))
                .collect();
            let distinct: BTreeSet<&&str> = series.iter().collect();
            assert_eq!(distinct.len(), series.len(), "a series stands twice");
            series.len()
        };
        // By reason; clamped, adopted, known, double, refused, failure mode; foreign values, and keys without a
        // TTL by outcome; the lag's buckets, sum and count; two for each rank.
        let per_namespace = Reason::ALL.len() + 6 + 3 + LAG_BOUNDS_S.len() + 3 + 2 * RANKS.len();
        assert_eq!(
            series(&["events", "orders"]) - series(&["events"]),
            per_namespace
        );
    }

    #[test]
    fn o02_the_numbers_are_those_of_the_sources() {
        let engine = engine(&["events"]);
        let mut tally = Tally::default();
        tally.reason(Reason::FirstSeen);
        tally.reason(Reason::FirstSeen);
        tally.lag_ns(500_000_000);
        engine.namespaces()[0].counters().add(&tally);
        engine
            .store_latencies()
            .settle
            .observe(Duration::from_millis(2));
        engine.breaker().probe_answered();
        let exposition = exposition(&engine);
        for line in [
            r#"dedupd_decisions_total{namespace="events",decision="ADMIT",reason="FIRST_SEEN"} 2"#,
            r#"dedupd_decisions_total{namespace="events",decision="DEAD_LETTER",reason="NULL_ISLAND"} 0"#,
            r#"dedupd_event_time_lag_seconds_bucket{le="0.1",namespace="events"} 0"#,
            r#"dedupd_event_time_lag_seconds_bucket{le="1.0",namespace="events"} 1"#,
            r#"dedupd_event_time_lag_seconds_bucket{le="+Inf",namespace="events"} 1"#,
            r#"dedupd_store_operation_seconds_count{operation="settle"} 1"#,
            r#"dedupd_breaker_state{state="admitting"} 1"#,
            r#"dedupd_breaker_state{state="tripped"} 0"#,
            r#"dedupd_store_errors_total{kind="timeout"} 0"#,
            r#"dedupd_namespace_failure_mode_info{namespace="events",failure_mode="closed"} 1"#,
            "dedupd_store_per_instance 1",
            "dedupd_store_claims 0",
        ] {
            assert!(
                exposition.lines().any(|exposed| exposed == line),
                "{line} is not in {exposition}"
            );
        }
    }
}
