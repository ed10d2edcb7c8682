//! What the examiner found in the store, as metrics.

use std::fmt;

use prometheus_client::registry::Unit;

use super::{families::Families, metrics::Sources};
use crate::store::examination::{Check, Severity};

impl Sources {
    pub(super) fn store_findings(&self, families: &mut Families) -> fmt::Result {
        let examined = self.engine.examined();
        let last = examined.last();
        let findings = Check::ALL.into_iter().flat_map(|check| {
            let last = &last;
            Severity::FOUND.into_iter().map(move |severity| {
                let labels = [("check", check.name()), ("severity", severity.name())];
                let found = last.findings.iter();
                let count = found.filter(|one| one.check == check && one.severity == severity);
                (labels, count.count() as u64)
            })
        });
        families.gauges(
            "store_findings",
            "What the last examination of the store found; dedupd doctor says more",
            findings,
        )?;
        let servers = examined.servers();
        let offsets = servers.iter().filter_map(|server| server.clock_offset_s);
        families.gauge_in(
            "store_clock_offset",
            Unit::Seconds,
            "How far the store's clock is ahead of ours; of several the one that is furthest away",
            offsets
                .max_by(|a, b| a.abs().total_cmp(&b.abs()))
                .unwrap_or(0.0),
        )?;
        families.counter(
            "store_evicted_keys",
            "Keys that the store's servers evicted since they started: claims among them are forgotten",
            servers.iter().filter_map(|server| server.evicted_keys).sum(),
        )?;
        families.counter(
            "store_epoch_changes",
            "Times that a server of the store was started anew or replaced by another one",
            examined.epoch_changes(),
        )
    }

    pub(super) fn strangers(&self, families: &mut Families) -> fmt::Result {
        families.counters(
            "store_foreign_values",
            "Events that were suppressed by a value in the store that is no claim",
            self.each(|namespace| namespace.strangers().foreign()),
        )?;
        families.counters(
            "store_keys_without_ttl",
            "Keys without a TTL that events lost to: given one, or left as another's data",
            self.engine.namespaces().iter().flat_map(|namespace| {
                let name = namespace.policy().name().as_str();
                let met = namespace.strangers();
                [("healed", met.healed()), ("left", met.left())]
                    .map(|(outcome, keys)| ([("namespace", name), ("outcome", outcome)], keys))
            }),
        )
    }
}
