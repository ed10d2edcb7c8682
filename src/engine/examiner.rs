//! Has the store examined, now and then, and remembers what was found.
//!
//! A new warning is logged once, and once more when it has gone; metrics show what stands. None of
//! it is on the way of a request, and readiness does not wait for it.

use std::{
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use tokio::time;

use super::{Engine, epoch::Epochs, judgement, keeper::KeeperReport};
use crate::store::examination::{
    Check, Examination, ExamineRequest, Finding, ServerFacts, Severity,
};

/// Between two examinations of a store to which nothing happens.
const PERIOD: Duration = Duration::from_secs(60);
/// How soon a new connection is noticed, and at most one examination in this time.
const LOOK_PERIOD: Duration = Duration::from_secs(1);
/// A store that was not reached by then is examined for the reason.
const FIRST_CONTACT_LIMIT: Duration = Duration::from_secs(5);
/// For one examination.
const LIMIT: Duration = Duration::from_secs(5);

/// What the last examination found, and what became of the servers since the first.
#[derive(Debug, Default)]
pub struct Examined {
    last: ArcSwap<Examination>,
    servers: ArcSwap<Vec<ServerFacts>>,
    epoch_changes: AtomicU64,
}

impl Examined {
    pub fn last(&self) -> Arc<Examination> {
        self.last.load_full()
    }

    /// Those that were reached last.
    pub fn servers(&self) -> Arc<Vec<ServerFacts>> {
        self.servers.load_full()
    }

    /// Times that another server, or the same one anew, held the claims.
    pub fn epoch_changes(&self) -> u64 {
        self.epoch_changes.load(Ordering::Relaxed)
    }

    fn take(&self, examination: Examination, past: &mut Past) {
        let changes = past.epochs.changes(&examination.servers);
        if changes > 0 {
            tracing::warn!(
                changes,
                "the store was restarted or replaced: claims that it had not kept are admitted again"
            );
            self.epoch_changes.fetch_add(changes, Ordering::Relaxed);
        }
        if !examination.servers.is_empty() {
            self.servers.store(Arc::new(examination.servers.clone()));
        }
        past.log_changes(&examination);
        self.last.store(Arc::new(examination));
    }
}

/// Runs until it is dropped.
pub async fn examine(engine: Arc<Engine>, keeper: Arc<KeeperReport>) {
    let _ = time::timeout(FIRST_CONTACT_LIMIT, keeper.wait_contacted()).await;
    let request = ExamineRequest {
        namespaces: engine
            .namespaces()
            .iter()
            .map(|namespace| namespace.policy().name().to_string())
            .collect(),
        clock: engine.clock().clone(),
        limit: LIMIT,
        is_thorough: false,
    };
    let mut past = Past::default();
    loop {
        let connects = engine.store().stats().connects;
        let mut examination = engine.store().examine(request.clone()).await;
        let own = own_findings(&engine, &examination);
        examination.findings.extend(own);
        engine.examined().take(examination, &mut past);
        let next = time::Instant::now() + PERIOD;
        loop {
            time::sleep(LOOK_PERIOD).await;
            let has_reconnected = engine.store().stats().connects != connects;
            if has_reconnected || time::Instant::now() >= next {
                break;
            }
        }
    }
}

/// What the store alone cannot judge.
fn own_findings(engine: &Engine, examination: &Examination) -> Vec<Finding> {
    let contracts = engine
        .namespaces()
        .iter()
        .zip(&examination.contracts)
        .filter_map(|(namespace, found)| {
            let policy = namespace.policy();
            judgement::contract(policy.name().as_str(), &policy.contract(), found)
        });
    contracts
        .chain(
            engine
                .namespaces()
                .iter()
                .filter_map(|ns| judgement::strangers(ns)),
        )
        .collect()
}

/// What earlier examinations have left.
#[derive(Debug, Default)]
struct Past {
    epochs: Epochs,
    /// Warnings and failures that were logged and have not gone since.
    standing: Vec<Finding>,
}

impl Past {
    fn log_changes(&mut self, examination: &Examination) {
        let (new, gone) = self.changes(examination);
        for finding in new {
            let about = finding.about.as_deref().unwrap_or_default();
            let (check, severity) = (finding.check.name(), finding.severity.name());
            tracing::warn!(check, severity, about, "{}", finding.message);
        }
        for finding in gone {
            let about = finding.about.as_deref().unwrap_or_default();
            let (check, severity) = (finding.check.name(), finding.severity.name());
            tracing::info!(check, severity, about, "no longer found in the store");
        }
    }

    /// What is new, and what has gone. Where the store was not reached, nothing has gone.
    fn changes(&mut self, examination: &Examination) -> (Vec<Finding>, Vec<Finding>) {
        let mut found: Vec<Finding> = examination.findings.clone();
        found.retain(|finding| finding.severity >= Severity::Warning);
        let is_in = |one: &Finding, all: &[Finding]| all.iter().any(|other| same(one, other));
        let mut new = found.clone();
        new.retain(|finding| !is_in(finding, &self.standing));
        let is_cut_short = found
            .iter()
            .any(|finding| finding.check == Check::Connection);
        if is_cut_short {
            self.standing.extend_from_slice(&new);
            return (new, Vec::new());
        }
        let mut gone = std::mem::replace(&mut self.standing, found);
        gone.retain(|finding| !is_in(finding, &self.standing));
        (new, gone)
    }
}

/// Whether two findings are about the same trouble, though its figures may differ.
fn same(a: &Finding, b: &Finding) -> bool {
    (a.check, a.severity, &a.about) == (b.check, b.severity, &b.about)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_could_not_be_looked_at_has_not_gone() {
        use Check::{Connection, Eviction, Memory};
        use Severity::{Failure, Note, Ok, Warning};
        type Step<'a> = (&'a [(Check, Severity)], &'a [Check], &'a [Check]);
        let steps: [Step; 6] = [
            (&[(Eviction, Warning), (Memory, Note)], &[Eviction], &[]),
            (&[(Eviction, Warning)], &[], &[]),
            (&[(Connection, Failure)], &[Connection], &[]),
            (&[(Connection, Failure)], &[], &[]),
            (&[(Connection, Ok), (Eviction, Warning)], &[], &[Connection]),
            (&[(Connection, Ok), (Eviction, Ok)], &[], &[Eviction]),
        ];
        let mut past = Past::default();
        for (number, (findings, new, gone)) in steps.into_iter().enumerate() {
            let mut examination = Examination::default();
            for (check, severity) in findings {
                examination.add(*check, *severity, format!("step {number}"));
            }
            let (is_new, has_gone) = past.changes(&examination);
            let checks = |of: Vec<Finding>| of.iter().map(|one| one.check).collect::<Vec<_>>();
            assert_eq!(checks(is_new), new, "step {number}");
            assert_eq!(checks(has_gone), gone, "step {number}");
        }
    }
}
