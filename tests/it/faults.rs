//! A fleet under faults, and a checker of what its callers were told.
//!
//! Consumers of two services take copies of events from a broker that delivers at least once; they
//! work, confirm, release, renew, fail and die, while a schedule drawn from a seed troubles the
//! wires, Redis and the services. Everything they asked and were told is recorded; then the faults
//! end, everything must come to rest, and [`checker`] decides whether a correct service can have
//! answered so. What it looks for is in `docs/faults.md`.
//!
//! Longer: `DEDUPD_FAULT_SECONDS=60 DEDUPD_FAULT_SEEDS=20 cargo test --test it faults::`; one seed
//! again: `DEDUPD_FAULT_SEED=n`. A seed gives the same schedule, not the same run: the processes
//! and their threads are real.

mod broker;
mod calls;
mod checker;
mod consumer;
mod embedded;
mod history;
mod recorder;
mod report;
mod run;
mod schedule;
mod site;
mod store;

use std::{collections::BTreeSet, time::Duration};

use tokio::sync::Mutex;

use self::{
    broker::namespace_of,
    checker::{Findings, Kind},
    history::History,
    report::Report,
    run::{Plan, play},
    schedule::Track,
    site::{Setup, Site},
    store::Topology,
};
use crate::property::seeds::variable;

const SEEDS: &str = "DEDUPD_FAULT_SEEDS";
const SEED: &str = "DEDUPD_FAULT_SEED";
const SECONDS: &str = "DEDUPD_FAULT_SECONDS";
const DEFAULT_SEED: u64 = 1;
const DEFAULT_SECONDS: u64 = 4;

const LEASE: Option<Duration> = Some(Duration::from_secs(1));
/// Longer than any run.
const TTL: Duration = Duration::from_secs(3600);
/// More than the default: on a busy machine 50 ms are an outage of their own.
const BUDGET: Duration = Duration::from_millis(100);

/// Runs share the machine with other tests, but not with each other.
static ONE_AT_A_TIME: Mutex<()> = Mutex::const_new(());

fn plan(topology: Topology, lease: Option<Duration>, seed: u64) -> Plan {
    Plan {
        seed,
        setup: Setup {
            topology,
            lease,
            ttl: TTL,
            budget: BUDGET,
            guards: [Duration::from_millis(200); 2],
        },
        tracks: vec![Track::Wires, Track::Servers, Track::Services],
        lasts: Duration::from_secs(variable(SECONDS).unwrap_or(DEFAULT_SECONDS)),
    }
}

/// `lease` may depend on the seed.
async fn check(test: &str, topology: Topology, lease: impl Fn(u64) -> Option<Duration>) {
    for seed in seeds() {
        let _alone = ONE_AT_A_TIME.lock().await;
        println!("{test}, seed {seed}; again: {SEED}={seed} cargo test --test it faults::{test}");
        let outcome = play(&plan(topology, lease(seed), seed), |_| {}).await;
        if !outcome.findings.wrong.is_empty() {
            println!("{:#?}", outcome.logs);
        }
        assert_right(seed, &outcome.history, &outcome.findings);
    }
}

fn seeds() -> std::ops::Range<u64> {
    let first = variable(SEED).unwrap_or(DEFAULT_SEED);
    first..first + variable(SEEDS).unwrap_or(1)
}

/// Every other seed goes without.
fn lease_at_times(seed: u64) -> Option<Duration> {
    LEASE.filter(|_| seed % 2 == 1)
}

#[track_caller]
fn assert_right(seed: u64, history: &History, findings: &Findings) {
    const SHOWN: usize = 20;
    let wrong: Vec<String> = findings.wrong.iter().map(ToString::to_string).collect();
    assert!(
        wrong.is_empty(),
        "seed {seed}: {} wrong, among them {:#?}\n{:#?}",
        wrong.len(),
        &wrong[..wrong.len().min(SHOWN)],
        history.troubles
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn one_server_with_leases() {
    check("one_server_with_leases", Topology::Standalone, |_| LEASE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn one_server_without_leases() {
    check("one_server_without_leases", Topology::Standalone, |_| None).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn servers_behind_sentinels() {
    check(
        "servers_behind_sentinels",
        Topology::Sentinels,
        lease_at_times,
    )
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn a_cluster() {
    check("a_cluster", Topology::Cluster, lease_at_times).await;
}

#[test]
fn the_embedded_store_under_a_clock_that_steps() {
    const EVENTS: usize = 1500;
    for seed in seeds() {
        let (history, findings) = embedded::play(seed, EVENTS);
        println!("seed {seed}: {}", Report(&history, &findings));
        assert_right(seed, &history, &findings);
    }
}

/// No troubles, but a store that is broken for three of the four namespaces, each in its way: the
/// checker must see each, and nothing wrong with the fourth.
#[tokio::test(flavor = "multi_thread")]
async fn a_broken_store_is_found_out() {
    let _alone = ONE_AT_A_TIME.lock().await;
    let mut plan = plan(Topology::Standalone, LEASE, DEFAULT_SEED);
    plan.tracks.clear();
    plan.lasts = Duration::from_secs(2);
    // One of the instances looks at no neighbour's key.
    plan.setup.guards[1] = Duration::ZERO;
    let meddle = |site: &Site| {
        let forget = "redis.call('DEL', key)";
        let confirm = "if string.byte(value, 1) == 0x81 then redis.call('SET', key, \
                       string.char(0x83) .. string.sub(value, 2), 'KEEPTTL') end";
        for _ in 0..50 {
            for_each_key(site, "orders", forget);
            for_each_key(site, "alerts", confirm);
            std::thread::sleep(Duration::from_millis(20));
        }
    };
    let wrong = play(&plan, meddle).await.findings.wrong;
    let found = |namespace: &str| -> BTreeSet<Kind> {
        let its = wrong
            .iter()
            .filter(|wrong| namespace_of(wrong.event) == namespace);
        its.map(|wrong| wrong.kind).collect()
    };
    assert!(found("crossings").contains(&Kind::TwoHolders), "{wrong:#?}");
    assert!(found("orders").contains(&Kind::ClaimVanished), "{wrong:#?}");
    assert!(
        found("alerts").contains(&Kind::SuppressedForNobody),
        "{wrong:#?}"
    );
    assert_eq!(found("sessions"), BTreeSet::new(), "{wrong:#?}");
}

/// Runs a script for each claim of a namespace, of which it knows the key and the value.
fn for_each_key(site: &Site, namespace: &str, script: &str) {
    let all = format!(
        "for _, key in ipairs(redis.call('KEYS', '{namespace}:*')) do \
         local value = redis.call('GET', key) {script} end"
    );
    site.with_store(|store| store.primaries()[0].cli(&["EVAL", &all, "0"]));
}
