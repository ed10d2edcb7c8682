//! What the injector counts, and its exposition.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use prometheus_client::{
    collector::Collector,
    encoding::{DescriptorEncoder, text},
    registry::Registry,
};

use super::certificate::Current;
use crate::{
    inject::{Outcome, Refusal, Skip},
    telemetry::{
        families::Families,
        latency::{LATENCY_BOUNDS_S, Latency},
    },
};

/// What became of a review.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Decision {
    Injected,
    Skipped(Skip),
    Refused(Refusal),
    /// No review at all.
    Malformed,
    /// Not answered, for a fault of ours.
    Failed,
}

impl Decision {
    pub fn of(outcome: &Outcome) -> Self {
        match outcome {
            Outcome::Injected(_) => Decision::Injected,
            Outcome::Skipped(skip) => Decision::Skipped(*skip),
            Outcome::Refused(refused) => Decision::Refused(refused.reason),
        }
    }

    fn all() -> impl Iterator<Item = Self> {
        [Decision::Injected]
            .into_iter()
            .chain(Skip::ALL.map(Decision::Skipped))
            .chain(Refusal::ALL.map(Decision::Refused))
            .chain([Decision::Malformed, Decision::Failed])
    }

    /// `outcome` and `reason`.
    const fn labels(self) -> [(&'static str, &'static str); 2] {
        let (outcome, reason) = match self {
            Decision::Injected => ("injected", "injected"),
            Decision::Skipped(skip) => ("skipped", skip.name()),
            Decision::Refused(refusal) => ("refused", refusal.name()),
            Decision::Malformed => ("malformed", "malformed"),
            Decision::Failed => ("failed", "failed"),
        };
        [("outcome", outcome), ("reason", reason)]
    }
}

/// What became of an Event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Told {
    Created = 0,
    Failed = 1,
    /// More came than are sent.
    Dropped = 2,
}

#[derive(Debug)]
pub struct Counts {
    decisions: Vec<(Decision, AtomicU64)>,
    latency: Latency,
    reloads_applied: AtomicU64,
    reloads_refused: AtomicU64,
    events: [AtomicU64; 3],
}

impl Default for Counts {
    fn default() -> Self {
        Self {
            decisions: Decision::all()
                .map(|decision| (decision, AtomicU64::new(0)))
                .collect(),
            latency: Latency::default(),
            reloads_applied: AtomicU64::new(0),
            reloads_refused: AtomicU64::new(0),
            events: Default::default(),
        }
    }
}

impl Counts {
    pub fn decided(&self, decision: Decision) {
        let count = self.decisions.iter().find(|(known, _)| *known == decision);
        if let Some((_, count)) = count {
            count.fetch_add(1, Ordering::Relaxed);
        }
    }

    pub fn took(&self, elapsed: Duration) {
        self.latency.observe(elapsed);
    }

    pub fn reloaded(&self, applied: bool) {
        let count = if applied {
            &self.reloads_applied
        } else {
            &self.reloads_refused
        };
        count.fetch_add(1, Ordering::Relaxed);
    }

    pub fn told(&self, told: Told) {
        self.events[told as usize].fetch_add(1, Ordering::Relaxed);
    }
}

#[derive(Debug)]
pub struct Metrics {
    registry: Registry,
}

impl Metrics {
    pub fn new(counts: Arc<Counts>, certificate: Arc<Current>) -> Self {
        let mut registry = Registry::with_prefix("dedupd");
        registry.register_collector(Box::new(Sources {
            counts,
            certificate,
        }));
        Self { registry }
    }

    pub fn exposition(&self) -> Result<String, fmt::Error> {
        let mut exposition = String::new();
        text::encode(&mut exposition, &self.registry)?;
        Ok(exposition)
    }
}

#[derive(Debug)]
struct Sources {
    counts: Arc<Counts>,
    certificate: Arc<Current>,
}

impl Collector for Sources {
    fn encode(&self, encoder: DescriptorEncoder<'_>) -> fmt::Result {
        let mut families = Families(encoder);
        let read = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let counts = &self.counts;
        families.counters(
            "injector_admissions",
            "Admission reviews, by what became of them",
            counts
                .decisions
                .iter()
                .map(|(decision, count)| (decision.labels(), read(count))),
        )?;
        families.histograms(
            "injector_admission",
            "How long a review took, once its body was there",
            &LATENCY_BOUNDS_S,
            [([("path", "/mutate")], counts.latency.read())],
        )?;
        families.gauge(
            "injector_certificate_not_after_timestamp_seconds",
            "When the certificate that is served ends to be valid, in seconds since 1970; 0: there is none",
            self.certificate.not_after_s(),
        )?;
        families.counter(
            "injector_certificate_changes",
            "Times that another certificate was served from then on",
            self.certificate.changes(),
        )?;
        families.counter(
            "injector_certificate_errors",
            "Times that a certificate could not be read, made or made known",
            self.certificate.errors(),
        )?;
        families.counters(
            "injector_config_reloads",
            "Times that the configuration's file had changed",
            [
                ([("outcome", "applied")], read(&counts.reloads_applied)),
                ([("outcome", "refused")], read(&counts.reloads_refused)),
            ],
        )?;
        families.counters(
            "injector_events",
            "Kubernetes Events about skips and refusals",
            ["created", "failed", "dropped"]
                .into_iter()
                .zip(&counts.events)
                .map(|(outcome, count)| ([("outcome", outcome)], read(count))),
        )?;
        families.infos(
            "build",
            "What runs",
            [[("version", env!("CARGO_PKG_VERSION"))]],
        )
    }
}
