//! One run: load and troubles, then peace, then the checker.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::{Duration, Instant},
};

use tokio::{task, task::JoinSet, time};

use super::{
    broker::Broker,
    calls::Caller,
    checker::{Findings, check},
    consumer::Consumer,
    history::{History, Loses, Rules, Span, Trouble},
    recorder::Recorder,
    report::Report,
    schedule::{self, Track},
    site::{Needs, SERVICES, Setup, Site},
    store::Topology,
};
use crate::client::Dice;

const CONSUMERS: usize = 16;
const EVENT_EVERY: Duration = Duration::from_millis(8);
const PULSE_EVERY: Duration = Duration::from_millis(10);
/// After the last trouble every copy is acknowledged by then.
const SETTLED_WITHIN: Duration = Duration::from_secs(60);
/// After the last call the services are at rest by then.
const AT_REST_WITHIN: Duration = Duration::from_secs(30);
/// To one server.
const MAX_CONNECTIONS: usize = 1;
/// What a service may need beyond what it needed before the load: the allocator keeps some, and in
/// a cluster another server may have been met.
const MAX_MORE_KIB: usize = 64 * 1024;
const MAX_MORE_SOCKETS: usize = 6;
/// Keys without expiry, and records that are pending.
const ODD_KEYS: &str = "local odd = {} for _, key in ipairs(redis.call('KEYS', '*')) do \
    local value = redis.call('GET', key) \
    if value and (redis.call('PTTL', key) < 0 or string.byte(value, 1) == 0x81) then \
    odd[#odd + 1] = key end end return odd";

#[derive(Clone, Debug)]
pub(super) struct Plan {
    pub(super) seed: u64,
    pub(super) setup: Setup,
    pub(super) tracks: Vec<Track>,
    pub(super) lasts: Duration,
}

pub(super) struct Outcome {
    pub(super) history: History,
    pub(super) findings: Findings,
    /// Of the services.
    pub(super) logs: Vec<String>,
}

/// Up until it is dropped, so that what runs beside a test ends with it, also where it fails.
#[derive(Debug, Default)]
struct Flag(Arc<AtomicBool>);

#[derive(Debug)]
pub(super) struct Seen(Arc<AtomicBool>);

impl Flag {
    fn seen(&self) -> Seen {
        Seen(Arc::clone(&self.0))
    }
}

impl Drop for Flag {
    fn drop(&mut self) {
        self.0.store(true, Ordering::Relaxed);
    }
}

impl Seen {
    pub(super) fn is_up(&self) -> bool {
        !self.0.load(Ordering::Relaxed)
    }
}

/// Plays the plan; `meddle` runs beside it, for a test that breaks something on purpose.
pub(super) async fn play(plan: &Plan, meddle: impl FnOnce(&Site) + Send + 'static) -> Outcome {
    let Setup {
        lease, ttl, budget, ..
    } = plan.setup;
    let site = Arc::new(Site::start(plan.setup.clone()));
    let recorder = Arc::new(Recorder::new(Rules { lease, ttl, budget }));
    let broker = Broker::new(Arc::clone(&recorder));
    let caller = Caller::new(Arc::clone(&site), Arc::clone(&recorder));
    until_contact(&caller).await;
    let before: Vec<Needs> = (0..SERVICES).map(|it| site.needs(it)).collect();

    let listening = Flag::default();
    let noise = listen(&caller, &listening);
    let consumers = consume(plan, &broker, &caller);
    let producer = tokio::spawn({
        let (broker, dice) = (Arc::clone(&broker), plan.dice(1));
        async move { broker.produce(dice, EVENT_EVERY).await }
    });
    let meddler = task::spawn_blocking({
        let site = Arc::clone(&site);
        move || meddle(&site)
    });
    trouble(plan, &site, &recorder).await;
    meddler.await.expect("no panic");
    broker.close();
    producer.await.expect("no panic");
    // What is not acknowledged by then, the checker finds.
    let _ = time::timeout(SETTLED_WITHIN, consumers.join_all()).await;
    drop(listening);
    noise.join_all().await;

    if site.unplanned() > 0 {
        // When is not known.
        recorder.trouble(Trouble {
            what: "unplanned failover",
            span: Span {
                from: Duration::ZERO,
                to: site.now(),
            },
            loses: Loses::LatestWrites,
        });
    }
    let history = recorder.history();
    let findings = check(&history);
    println!("seed {}: {}", plan.seed, Report(&history, &findings));
    let logs = site.logs();
    let at_rest = task::spawn_blocking(move || at_rest(&site, &before));
    at_rest.await.expect("at rest");
    Outcome {
        history,
        findings,
        logs,
    }
}

impl Plan {
    fn dice(&self, what: u64) -> Dice {
        Dice::new(self.seed.wrapping_mul(1000) + what)
    }
}

/// Troubles the site for as long as the plan says, and leaves it without a fault.
async fn trouble(plan: &Plan, site: &Arc<Site>, recorder: &Arc<Recorder>) {
    let at_war = Flag::default();
    let tracks: Vec<_> = (10..)
        .zip(&plan.tracks)
        .map(|(what, track)| {
            let (site, recorder) = (Arc::clone(site), Arc::clone(recorder));
            schedule::run(*track, plan.dice(what), site, recorder, at_war.seen())
        })
        .collect();
    time::sleep(plan.lasts).await;
    drop(at_war);
    let ended = task::spawn_blocking(|| {
        for track in tracks {
            track.join().expect("no panic");
        }
    });
    ended.await.expect("no panic");
}

fn consume(plan: &Plan, broker: &Arc<Broker>, caller: &Arc<Caller>) -> JoinSet<()> {
    let consumers = (100..).take(CONSUMERS).map(|what| {
        let consumer = Consumer {
            broker: Arc::clone(broker),
            caller: Arc::clone(caller),
            lease: plan.setup.lease,
            budget: plan.setup.budget,
            dice: plan.dice(what),
        };
        consumer.run()
    });
    consumers.collect()
}

/// Records what the machine adds to each call.
fn listen(caller: &Arc<Caller>, listening: &Flag) -> JoinSet<()> {
    let mut noise = JoinSet::new();
    for service in 0..SERVICES {
        let (caller, listening) = (Arc::clone(caller), listening.seen());
        noise.spawn(async move {
            while listening.is_up() {
                let at = caller.site.now() + PULSE_EVERY;
                caller.pulse(service, at).await;
            }
        });
    }
    let (caller, listening) = (Arc::clone(caller), listening.seen());
    noise.spawn_blocking(move || watch_waits(&caller, &listening));
    noise
}

/// Redis decides, through each service.
async fn until_contact(caller: &Caller) {
    for service in 0..SERVICES {
        while !caller.pulse(service, caller.site.now()).await {
            time::sleep(PULSE_EVERY).await;
        }
        let admitting = || {
            let series = r#"dedupd_breaker_state{state="admitting"}"#;
            caller
                .site
                .with_service(service, |service| service.metric(series))
                == Some(1.0)
        };
        while !admitting() {
            time::sleep(PULSE_EVERY).await;
        }
    }
}

/// Records what the services' threads wait for a core.
fn watch_waits(caller: &Caller, listening: &Seen) {
    let waited = || [0, 1].map(|service| caller.site.waited(service));
    let (mut before, mut from) = (waited(), caller.site.now());
    while listening.is_up() {
        std::thread::sleep(PULSE_EVERY / 2);
        let (now, to) = (waited(), caller.site.now());
        // A new service has waited less than the one before.
        let more = now.iter().zip(before);
        let more = more.map(|(now, before)| now.saturating_sub(before)).sum();
        caller.recorder.wait(Span { from, to }, more);
        (before, from) = (now, to);
    }
}

/// Nothing is left of the load and the troubles: no work, no further connection, no memory, no
/// claim that is not settled, no key without its expiry, no panic.
fn at_rest(site: &Site, before: &[Needs]) {
    let began = Instant::now();
    loop {
        let unrest = unrest(site, before);
        if unrest.is_empty() {
            break;
        }
        assert!(began.elapsed() < AT_REST_WITHIN, "not at rest: {unrest:#?}");
        std::thread::sleep(Duration::from_millis(100));
    }
    let panics: Vec<_> = site
        .logs()
        .into_iter()
        .filter(|line| line.contains("panic"))
        .collect();
    assert!(panics.is_empty(), "{panics:#?}");
}

fn unrest(site: &Site, before: &[Needs]) -> Vec<String> {
    let mut unrest = Vec::new();
    for (number, before) in before.iter().enumerate() {
        let metric = |series: &str| site.with_service(number, |service| service.metric(series));
        let gauges = [
            ("dedupd_requests_in_flight", 0.0),
            ("dedupd_store_queued_events", 0.0),
            ("dedupd_local_claims", 0.0),
            (r#"dedupd_breaker_state{state="admitting"}"#, 1.0),
        ];
        for (series, rest) in gauges {
            let value = metric(series);
            if value != Some(rest) {
                unrest.push(format!("service {number}: {series} = {value:?}"));
            }
        }
        if site.topology() == Topology::Standalone {
            let counted = metric("dedupd_store_connections");
            let open = site.wires()[number].connections();
            if counted != Some(open as f64) || open > MAX_CONNECTIONS {
                unrest.push(format!(
                    "service {number}: {open} connections, {counted:?} counted"
                ));
            }
        }
        let now = site.needs(number);
        if now.resident_kib > before.resident_kib + MAX_MORE_KIB
            || now.sockets > before.sockets + MAX_MORE_SOCKETS
        {
            unrest.push(format!("service {number}: {now:?}, and {before:?} before"));
        }
    }
    let odd = site.with_store(|store| {
        let primaries = store.primaries();
        let odd = primaries
            .iter()
            .map(|redis| redis.cli(&["EVAL", ODD_KEYS, "0"]));
        odd.collect::<String>()
    });
    if !odd.is_empty() {
        unrest.push(format!("pending claims or keys without expiry: {odd}"));
    }
    unrest
}
