//! Keeps the store in hand: the first contact, the contract of each namespace, probes in an outage.
//!
//! Each instance puts up one line for each namespace; one that finds another line at its first
//! contact does not serve that namespace and looks again, one that finds it later serves on and
//! says so: stopping a running fleet because of a new instance would be worse.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use backon::{BackoffBuilder, ExponentialBuilder};
use tokio::{sync::watch, time};

use super::{Engine, Namespace};
use crate::store::{ContractAssertion, HoldMs, StoreError};

/// Between two probes: the longest is half of what recovery may take.
const MIN_PROBE_DELAY: Duration = Duration::from_millis(50);
const MAX_PROBE_DELAY: Duration = Duration::from_secs(1);
/// However short a TTL is.
const MIN_REFRESH: Duration = Duration::from_millis(10);
/// How often a refused namespace looks whether the other contract has gone.
const REFUSED_RECHECK: Duration = Duration::from_secs(10);

/// What the keeper found, for readiness and metrics.
#[derive(Debug, Default)]
pub struct KeeperReport {
    contacted: watch::Sender<bool>,
    mismatches: AtomicU64,
    replaced: AtomicBool,
}

impl KeeperReport {
    /// Returns once the store was reached for the first time.
    pub async fn wait_contacted(&self) {
        // The sender lives in self, so that waiting cannot fail.
        let _ = self
            .contacted
            .subscribe()
            .wait_for(|contacted| *contacted)
            .await;
    }

    pub fn contacted(&self) -> bool {
        *self.contacted.borrow()
    }

    /// Another contract found after the first contact.
    pub fn mismatches(&self) -> u64 {
        self.mismatches.load(Ordering::Relaxed)
    }
}

/// Runs until it is dropped.
pub async fn keep(engine: Arc<Engine>, report: Arc<KeeperReport>, replace_contracts: bool) {
    report.replaced.store(!replace_contracts, Ordering::Relaxed);
    let refresh = refresh_period(&engine);
    loop {
        if !engine.breaker().admits() {
            recover(&engine, &report).await;
        }
        tokio::select! {
            () = engine.breaker().wait_tripped() => {}
            () = time::sleep(refresh) => {}
            () = engine.store().reconnected() => {}
            () = recheck_due(&engine) => {}
        }
        if engine.breaker().admits()
            && let Err(error) = assert_contracts(&engine, &report).await
        {
            tracing::warn!(%error, "could not renew the contracts in the store");
        }
    }
}

/// A third of the shortest TTL.
fn refresh_period(engine: &Engine) -> Duration {
    let shortest = engine
        .namespaces()
        .iter()
        .map(|namespace| namespace.policy().ttl())
        .min();
    (shortest.unwrap_or(Duration::MAX) / 3).clamp(MIN_REFRESH, Duration::from_secs(3600))
}

async fn recheck_due(engine: &Engine) {
    if engine
        .namespaces()
        .iter()
        .any(|namespace| namespace.refused().is_some())
    {
        time::sleep(REFUSED_RECHECK).await;
    } else {
        std::future::pending::<()>().await;
    }
}

/// Probes with growing, jittered delays until the store takes claims and the contracts stand.
async fn recover(engine: &Engine, report: &KeeperReport) {
    let clock = engine.clock();
    let first = !report.contacted();
    let mut delays = ExponentialBuilder::default()
        .with_min_delay(MIN_PROBE_DELAY)
        .with_max_delay(MAX_PROBE_DELAY)
        .with_jitter()
        .without_max_times()
        .build();
    let mut failures = 0_u64;
    loop {
        engine.breaker().probe_sent();
        match contact(engine, report).await {
            Ok(()) => break,
            Err(error) => {
                engine.store_errors().count(error);
                // The first failure and then every hundredth or so: one line in a minute or two.
                if failures.is_multiple_of(100) {
                    tracing::warn!(%error, failures, "the store does not take claims; probing");
                }
                failures += 1;
            }
        }
        let delay = delays
            .next()
            .unwrap_or(MAX_PROBE_DELAY)
            .min(MAX_PROBE_DELAY);
        engine
            .breaker()
            .probe_planned(clock.monotonic_ms() + delay.as_millis() as u64);
        tokio::select! {
            () = time::sleep(delay) => {}
            () = engine.store().reconnected() => {}
        }
    }
    engine.breaker().probe_answered();
    report.contacted.send_replace(true);
    if first {
        tracing::info!(failed_probes = failures, "the store takes claims");
    } else {
        tracing::warn!(failed_probes = failures, "the store takes claims again");
    }
}

async fn contact(engine: &Engine, report: &KeeperReport) -> Result<(), StoreError> {
    engine.store().probe().await?;
    assert_contracts(engine, report).await
}

async fn assert_contracts(engine: &Engine, report: &KeeperReport) -> Result<(), StoreError> {
    let replace = !report.replaced.load(Ordering::Relaxed);
    for namespace in engine.namespaces() {
        assert_contract(engine, namespace, report, replace).await?;
    }
    report.replaced.store(true, Ordering::Relaxed);
    Ok(())
}

async fn assert_contract(
    engine: &Engine,
    namespace: &Namespace,
    report: &KeeperReport,
    replace: bool,
) -> Result<(), StoreError> {
    let policy = namespace.policy();
    let ours = policy.contract();
    let hold = HoldMs::at_least(policy.ttl() * 2 + policy.lease());
    let assertion = ContractAssertion {
        namespace: policy.name().to_string(),
        line: ours.clone(),
        hold,
        replace,
    };
    let name = policy.name();
    let theirs = match engine.store().assert_contract(assertion).await {
        Ok(theirs) => Ok(theirs),
        Err(error) if error.is_outage() => return Err(error),
        // It says nothing of the contract, and the next look may find it.
        Err(error) if error.is_transient() => {
            tracing::warn!(namespace = %name, %error, "could not look at the contract in the store");
            return Ok(());
        }
        // One bad key is this namespace's trouble alone.
        Err(error) => Err(format!(
            "the contract under dedupd:contract:{name} cannot be read or written: {error}; \
             delete that key, or permit it"
        )),
    };
    let difference = match &theirs {
        Ok(theirs) => contract_difference(&ours, theirs),
        Err(why) => Some(why.clone()),
    };
    match difference {
        Some(difference) if !report.contacted() || namespace.refused().is_some() => {
            if namespace.refused().is_none() {
                tracing::error!(namespace = %name, %difference, "the contract in the store is another one: the namespace is not served");
            }
            namespace.refused.store(Some(Arc::new(difference)));
        }
        Some(difference) => {
            report.mismatches.fetch_add(1, Ordering::Relaxed);
            tracing::error!(namespace = %name, %difference, "another contract stands in the store now; serving on");
        }
        None => {
            if namespace.refused.swap(None).is_some() {
                tracing::warn!(namespace = %name, "the other contract is gone: the namespace is served");
            }
            if let Ok(theirs) = theirs
                && ours != theirs
            {
                tracing::warn!(namespace = %name, %ours, %theirs, "instances use different guards");
            }
        }
    }
    Ok(())
}

/// What differs before the `;`, for people; `None` where the contracts agree.
pub(super) fn contract_difference(ours: &str, theirs: &str) -> Option<String> {
    let binding = |line: &str| line.split(';').next().unwrap_or_default().to_owned();
    let (ours, theirs) = (binding(ours), binding(theirs));
    if ours == theirs {
        return None;
    }
    let fields = |line: &str| -> Vec<String> { line.split(' ').map(str::to_owned).collect() };
    let (ours, theirs) = (fields(&ours), fields(&theirs));
    let here: Vec<&str> = ours
        .iter()
        .filter(|field| !theirs.contains(field))
        .map(String::as_str)
        .collect();
    let there: Vec<&str> = theirs
        .iter()
        .filter(|field| !ours.contains(field))
        .map(String::as_str)
        .collect();
    Some(format!(
        "its contract here has {}, in the store {}; change the configuration back, wait until the other \
         contract has expired, or start with --replace-contract",
        here.join(" "),
        there.join(" ")
    ))
}
