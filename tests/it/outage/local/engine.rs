//! The engine without the service around it: the write-back runs when the test lets it.

use std::sync::Arc;

use dedupd::{
    clock::Clock,
    domain::{
        claim::{ClaimState, SettleAction, SettleOutcome},
        event::RawEvent,
        kind::{Accepts, Kind},
        policy::{FailureMode, Policy, PolicyDraft, Window},
        reason::Reason,
    },
    engine::{
        Engine,
        admit::{Admission, AdmitOptions},
        local::write_back,
        settle::Settlement,
    },
};
use tokio::task::JoinHandle;

use super::*;
use crate::stores::{draft, redis_store, transition};

const T0: i64 = 1_700_000_040_000_000_000;
const SECOND: i64 = 1_000_000_000;

fn policies() -> Vec<Arc<Policy>> {
    let local = |name| PolicyDraft {
        failure_mode: FailureMode::Local,
        ..draft(name)
    };
    let drafts = [
        local("crossings"),
        PolicyDraft {
            lease: Duration::from_secs(30),
            ..local("leased")
        },
        PolicyDraft {
            accepts: Accepts::from_kinds([Kind::Keyed]),
            window: Window::None,
            ..draft("closed")
        },
    ];
    let policy = |draft| Arc::new(Policy::new(draft).expect("a valid policy"));
    drafts.into_iter().map(policy).collect()
}

/// An engine that has not reached its Redis yet.
fn engine(redis: &RedisServer) -> Arc<Engine> {
    let policies = policies();
    let store = redis_store(redis, &policies);
    let engine = Engine::new(policies, store, Clock::system(), 5000);
    Arc::new(engine.with_local(1 << 24))
}

fn reach(engine: &Engine) {
    engine.breaker().probe_answered();
}

fn lose(engine: &Engine) {
    while engine.breaker().admits() {
        engine.breaker().failed();
    }
}

async fn admitted(
    engine: &Arc<Engine>,
    namespace: &str,
    request_id: Option<[u8; 16]>,
    events: &[RawEvent<'_>],
) -> Admission {
    let options = AdmitOptions {
        namespace,
        request_id,
        omit_claims: false,
    };
    let prepared = engine.prepare(options, events.iter().copied());
    let admitting = engine.submit(prepared.expect("a good request"));
    admitting.expect("room").finish().await
}

fn reasons(admission: &Admission) -> Vec<(Reason, bool)> {
    let verdicts = admission.verdicts().iter();
    verdicts
        .map(|verdict| (verdict.reason, verdict.degraded))
        .collect()
}

fn delivered(admission: Admission) -> Vec<Vec<u8>> {
    let tokens = admission.answers().filter_map(|(_, token)| {
        let mut bytes = Vec::new();
        token?.encode(&mut bytes);
        Some(bytes)
    });
    let tokens = tokens.collect();
    admission.delivered();
    tokens
}

async fn settle(engine: &Arc<Engine>, action: SettleAction, token: &[u8]) -> Settlement {
    let settling = engine.settle(action, [token].into_iter());
    settling.expect("room").finish().await[0]
}

fn claims(engine: &Engine) -> u64 {
    let local = engine.local().expect("an embedded store");
    local.stats().claims.expect("it can tell")
}

fn writing(engine: &Arc<Engine>) -> JoinHandle<()> {
    tokio::spawn(write_back::keep(Arc::clone(engine)))
}

async fn until_empty(engine: &Engine) {
    let begun = Instant::now();
    while claims(engine) > 0 {
        assert!(begun.elapsed() < SLACK, "{} are left", claims(engine));
        time::sleep(Duration::from_millis(2)).await;
    }
}

fn late() -> (Reason, bool) {
    (Reason::Late, false)
}

const FALLBACK: (Reason, bool) = (Reason::Fallback, true);

#[tokio::test(flavor = "multi_thread")]
async fn r11_what_the_outage_decided_is_asked_first_and_redis_about_the_rest() {
    let redis = RedisServer::start(redis::Options::default());
    let engine = engine(&redis);
    let (near, far) = (transition("car", T0), transition("car", T0 + 5 * SECOND));
    let id = Some([5; 16]);
    let first = admitted(&engine, "leased", id, &[near, near]).await;
    assert_eq!(reasons(&first), [FALLBACK, (Reason::InFlight, true)]);
    assert_eq!(first.verdicts()[1].copy_of_index, Some(0));
    let tokens = delivered(first);
    reach(&engine);
    // One of them near a claim of the outage, the others not; a copy of either.
    let events = [near, far, transition("bus", T0), far];
    let mixed = admitted(&engine, "leased", None, &events).await;
    let in_flight = |degraded| (Reason::InFlight, degraded);
    assert_eq!(
        reasons(&mixed),
        [in_flight(true), late(), late(), in_flight(false)]
    );
    assert_eq!(mixed.verdicts()[3].copy_of_index, Some(1));
    let shared = delivered(mixed);
    // The retry finds its own here, and the other event in Redis.
    let retry = admitted(&engine, "leased", id, &[near, far]).await;
    assert_eq!(reasons(&retry), [FALLBACK, in_flight(false)]);
    let again = delivered(retry);
    assert_eq!(claims(&engine), 1);
    let applied = Settlement::Settled(SettleOutcome::Applied);
    for token in [&tokens[0], &shared[0], &shared[1]] {
        assert_eq!(settle(&engine, SettleAction::Confirm, token).await, applied);
    }
    let confirmed = settle(&engine, SettleAction::Confirm, &again[0]).await;
    let already = Settlement::Settled(SettleOutcome::AlreadyApplied);
    assert_eq!(confirmed, already);
    let retry = admitted(&engine, "leased", id, &[near]).await;
    assert_eq!(reasons(&retry), [(Reason::Redelivery, true)]);
    let writing = writing(&engine);
    until_empty(&engine).await;
    let retry = admitted(&engine, "leased", id, &[near]).await;
    assert_eq!(reasons(&retry), [(Reason::Redelivery, false)]);
    writing.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn g01_a_call_that_goes_away_leaves_nothing_here_or_in_redis() {
    let redis = RedisServer::start(redis::Options::default());
    let engine = engine(&redis);
    let event = [transition("car", T0)];
    // Not waited for; decided but not delivered; a retry's claim, which stays.
    let prepared = engine.prepare(
        AdmitOptions {
            namespace: "crossings",
            request_id: None,
            omit_claims: false,
        },
        event.iter().copied(),
    );
    drop(engine.submit(prepared.expect("a good request")));
    drop(admitted(&engine, "crossings", None, &event).await);
    assert_eq!(claims(&engine), 0);
    let id = Some([7; 16]);
    let first = admitted(&engine, "crossings", id, &event).await;
    let retry = admitted(&engine, "crossings", id, &event).await;
    assert_eq!(reasons(&retry), [FALLBACK]);
    delivered(retry);
    drop(first);
    assert_eq!(claims(&engine), 1);
    // Written to Redis before its call goes away; and one whose retry has taken it over.
    let other = [transition("bus", T0)];
    let undelivered = admitted(&engine, "crossings", None, &other).await;
    let taken = [transition("van", T0)];
    let first = admitted(&engine, "crossings", id, &taken).await;
    reach(&engine);
    let writing = writing(&engine);
    until_empty(&engine).await;
    let retry = admitted(&engine, "crossings", id, &taken).await;
    assert_eq!(reasons(&retry), [late()]);
    delivered(retry);
    let keys = || redis.cli(&["KEYS", "crossings:*"]).lines().count();
    assert_eq!(keys(), 3);
    drop(undelivered);
    drop(first);
    let begun = Instant::now();
    while keys() != 2 {
        assert!(begun.elapsed() < SLACK, "it stays");
    }
    time::sleep(Duration::from_millis(50)).await;
    let again = admitted(&engine, "crossings", None, &other).await;
    assert_eq!(reasons(&again), [late()]);
    for stays in [&event, &taken] {
        let copy = admitted(&engine, "crossings", None, stays).await;
        assert_eq!(reasons(&copy), [(Reason::Redelivery, false)]);
    }
    writing.abort();
}

#[tokio::test(flavor = "multi_thread")]
async fn b05_the_claims_of_an_outage_are_explained_and_forgotten() {
    let redis = RedisServer::start(redis::Options::default());
    let engine = engine(&redis);
    let event = transition("car", T0);
    let explained = async || {
        let explaining = engine.explain("crossings", &event).expect("a namespace");
        let explanation = explaining.await;
        let states = explanation
            .claims
            .iter()
            .map(|found| found.standing.state());
        (explanation.verdict.reason, states.collect::<Vec<_>>())
    };
    let forget = async |namespace| engine.forget(namespace, &event).expect("served").await;
    assert_eq!(explained().await, (Reason::Fallback, vec![]));
    assert!(forget("crossings").await.is_err(), "Redis cannot be asked");
    delivered(admitted(&engine, "crossings", None, &[event]).await);
    let claimed = Some(ClaimState::Claimed);
    assert_eq!(explained().await, (Reason::Redelivery, vec![claimed]));
    reach(&engine);
    assert_eq!(explained().await, (Reason::Redelivery, vec![claimed]));
    let keys = forget("crossings").await.expect("both stores");
    assert_eq!(keys.len(), 1);
    assert_eq!(
        (claims(&engine), explained().await),
        (0, (Reason::Late, vec![]))
    );
    lose(&engine);
    delivered(admitted(&engine, "leased", None, &[event]).await);
    assert!(forget("leased").await.is_err(), "its holder is at work");
}

/// Redis had one copy of an event when it went away, and the other copy was not decided.
#[tokio::test(flavor = "multi_thread")]
async fn r11_an_undecided_copy_of_what_redis_admitted_waits() {
    let redis = RedisServer::start(redis::Options::default());
    let engine = engine(&redis);
    reach(&engine);
    // Two keys of one device, of which the second holds another type.
    let events = [
        transition("car", T0 + SECOND),
        transition("car", T0 + 7 * SECOND),
    ];
    let explaining = engine
        .explain("crossings", &events[1])
        .expect("a namespace");
    redis.cli(&["RPUSH", &explaining.await.keys[0], "x"]);
    let verdicts = admitted(&engine, "crossings", None, &events).await;
    assert_eq!(
        reasons(&verdicts),
        [late(), (Reason::StoreUnavailable, true)]
    );
    assert_eq!(claims(&engine), 0);
    drop(verdicts);
    // Alone it is decided here.
    let alone = admitted(&engine, "crossings", None, &events[1..]).await;
    assert_eq!(reasons(&alone), [FALLBACK]);
}
