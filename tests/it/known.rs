//! Known duplicates: what is remembered of Redis answers repeats as Redis would, and nothing is
//! remembered that may still go. Time moves by hand; a Redis that was emptied shows who answered.

mod outage;
mod shared;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use dedupd::{
    clock::Clock,
    domain::{
        event::{RawEvent, RawPosition},
        identity::RawIdentity,
        kind::{Accepts, Kind},
        policy::{FailureMode, Place, Policy, PolicyDraft, Window},
        reason::Reason,
        time::{EventTime, RawTime},
    },
    engine::{
        Engine,
        admit::{Admission, AdmitOptions, Admitting},
        known::{KnownOptions, SETTLED_AFTER},
    },
};

use crate::{
    outage::world,
    stores::{draft, redis_store, transition},
    support::redis::{Options, RedisServer},
};

const MAX_AGE: Duration = Duration::from_secs(60);
const HALF: Duration = SETTLED_AFTER.checked_div(2).unwrap();
const T0: i64 = 1_700_000_040_000_000_000;
const PATIENCE: Duration = Duration::from_secs(10);

const OPTIONS: KnownOptions = KnownOptions {
    max_age: MAX_AGE,
    max_bytes: 1 << 20,
    settled_after: SETTLED_AFTER,
};

fn policies() -> Vec<Arc<Policy>> {
    let keyed = |name| PolicyDraft {
        accepts: Accepts::from_kinds([Kind::Keyed]),
        window: Window::None,
        ..draft(name)
    };
    let drafts = [
        draft("crossings"),
        keyed("orders"),
        PolicyDraft {
            lease: Duration::from_secs(30),
            ..keyed("leased")
        },
        PolicyDraft {
            ttl: Duration::from_secs(5),
            ..keyed("brief")
        },
        PolicyDraft {
            failure_mode: FailureMode::Local,
            ..keyed("local")
        },
        PolicyDraft {
            window: Window::Session {
                gap_ns: 10_000_000_000,
            },
            ..draft("session")
        },
        PolicyDraft {
            accepts: Accepts::from_kinds([Kind::Ping]),
            place: Some(Place::new(9, 10.0, 20.0, None).expect("a valid place")),
            ..draft("pings")
        },
    ];
    let policy = |draft| Arc::new(Policy::new(draft).expect("a valid policy"));
    drafts.into_iter().map(policy).collect()
}

/// A Redis and engines on it with one clock.
struct World {
    redis: RedisServer,
    clock: Clock,
}

impl World {
    fn start() -> Self {
        Self {
            redis: RedisServer::start(Options::default()),
            // No event is late.
            clock: Clock::manual(EventTime::from_unix_nanos(i64::MIN)),
        }
    }

    fn engine(&self, options: Option<KnownOptions>) -> Arc<Engine> {
        let policies = policies();
        let store = redis_store(&self.redis, &policies);
        let mut engine = Engine::new(policies, store, self.clock.clone(), 5000);
        if let Some(options) = options {
            engine = engine.with_known_claims(options);
        }
        engine.breaker().probe_answered();
        Arc::new(engine.with_local(1 << 24))
    }

    fn empty(&self) {
        self.redis.cli(&["FLUSHALL"]);
    }
}

fn keyed(id: &str) -> RawEvent<'_> {
    RawEvent {
        identity: RawIdentity::Keyed { event_id: id },
        ..RawEvent::default()
    }
}

fn ping(nanos: i64, latitude: f64) -> RawEvent<'static> {
    RawEvent {
        identity: RawIdentity::Ping { asset_id: "truck" },
        time: RawTime::UnixNanos(nanos),
        position: RawPosition::LatLng {
            latitude: Some(latitude),
            longitude: Some(8.5),
        },
        ..RawEvent::default()
    }
}

/// Stored as confirmed at once.
const OMITTING: AdmitOptions<'_> = AdmitOptions {
    namespace: "orders",
    request_id: None,
    omit_claims: true,
};

fn omitting(namespace: &str) -> AdmitOptions<'_> {
    AdmitOptions {
        namespace,
        ..OMITTING
    }
}

fn submit(engine: &Arc<Engine>, options: AdmitOptions<'_>, events: &[RawEvent<'_>]) -> Admitting {
    let prepared = engine.prepare(options, events.iter().copied());
    let admitting = engine.submit(prepared.expect("a good request"));
    admitting.expect("room in the queue")
}

async fn admit(
    engine: &Arc<Engine>,
    options: AdmitOptions<'_>,
    events: &[RawEvent<'_>],
) -> Admission {
    submit(engine, options, events).finish().await
}

/// What is answered about one event; the answer is delivered.
async fn reason(engine: &Arc<Engine>, options: AdmitOptions<'_>, event: &RawEvent<'_>) -> Reason {
    let admission = admit(engine, options, &[*event]).await;
    let reason = admission.verdicts()[0].reason;
    admission.delivered();
    reason
}

/// Events of a namespace that were decided without Redis.
fn known(engine: &Engine, namespace: &str) -> u64 {
    let namespace = engine.namespace(namespace).expect("it is configured");
    namespace.counters().known()
}

/// Giving back is not awaited.
async fn until_first_seen(engine: &Arc<Engine>, options: AdmitOptions<'_>, event: &RawEvent<'_>) {
    let started = Instant::now();
    loop {
        match reason(engine, options, event).await {
            Reason::FirstSeen => return,
            other => assert!(started.elapsed() < PATIENCE, "still {other:?}"),
        }
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_confirmed_claim_of_ones_own_is_known_once_its_answer_is_delivered() {
    let world = World::start();
    let engine = world.engine(Some(OPTIONS));
    let first = admit(&engine, OMITTING, &[keyed("a")]).await;
    assert_eq!(first.verdicts()[0].reason, Reason::FirstSeen);
    assert_eq!(
        reason(&engine, OMITTING, &keyed("a")).await,
        Reason::Redelivery
    );
    assert_eq!(known(&engine, "orders"), 0);
    first.delivered();
    world.empty();
    // The tenth use does not make it younger.
    for times in 1..=10 {
        assert_eq!(
            reason(&engine, OMITTING, &keyed("a")).await,
            Reason::Redelivery
        );
        assert_eq!(known(&engine, "orders"), times);
        world.clock.advance(MAX_AGE / 10);
    }
    assert_eq!(
        reason(&engine, OMITTING, &keyed("a")).await,
        Reason::FirstSeen
    );
    assert_eq!(known(&engine, "orders"), 10);
}

/// With reason, time of the first, place in the request.
#[tokio::test(flavor = "multi_thread")]
async fn verdicts_are_those_of_redis() {
    let world = World::start();
    let knowing = world.engine(Some(OPTIONS));
    let asking = world.engine(None);
    let batches = [
        ("orders", vec![keyed("a"), keyed("b"), keyed("a")]),
        (
            "crossings",
            vec![
                transition("car", T0),
                transition("car", T0 + 100_000_000),
                // Across the edge, where the guard reaches.
                transition("car", T0 - 50_000_000),
            ],
        ),
        (
            "pings",
            vec![
                ping(T0, 47.0),
                ping(T0 + 1_000_000_000, 47.000_05),
                ping(T0 + 1_000_000_000, 47.000_5),
                ping(T0, 47.0),
            ],
        ),
    ];
    for (namespace, events) in &batches {
        admit(&knowing, omitting(namespace), events)
            .await
            .delivered();
        let told = admit(&asking, omitting(namespace), events).await;
        let before = known(&knowing, namespace);
        let answered = admit(&knowing, omitting(namespace), events).await;
        assert_eq!(told.verdicts(), answered.verdicts(), "{namespace}");
        assert!(known(&knowing, namespace) > before, "{namespace}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_may_still_be_released_is_not_known() {
    let world = World::start();
    let engine = world.engine(Some(KnownOptions {
        settled_after: Duration::ZERO,
        ..OPTIONS
    }));
    let rows = [("orders", Reason::Redelivery), ("leased", Reason::InFlight)];
    for (namespace, expected) in rows {
        let options = AdmitOptions {
            omit_claims: false,
            ..omitting(namespace)
        };
        assert_eq!(
            reason(&engine, options, &keyed("a")).await,
            Reason::FirstSeen
        );
        for _ in 0..3 {
            assert_eq!(reason(&engine, options, &keyed("a")).await, expected);
        }
        world.empty();
        assert_eq!(
            reason(&engine, options, &keyed("a")).await,
            Reason::FirstSeen
        );
        assert_eq!(known(&engine, namespace), 0, "{namespace}");
    }
}

/// Whoever repeats a session's event extends the session.
#[tokio::test(flavor = "multi_thread")]
async fn a_session_is_not_known() {
    let world = World::start();
    let engine = world.engine(Some(KnownOptions {
        settled_after: Duration::ZERO,
        ..OPTIONS
    }));
    for step in 0..5 {
        let event = transition("car", T0 + step * 6_000_000_000);
        let expected = match step {
            0 => Reason::FirstSeen,
            _ => Reason::Restamped,
        };
        assert_eq!(reason(&engine, omitting("session"), &event).await, expected);
        let again = reason(&engine, omitting("session"), &event).await;
        assert_eq!(again, Reason::Redelivery, "step {step}");
    }
    assert_eq!(known(&engine, "session"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_given_back_was_not_known() {
    let world = World::start();
    let engine = world.engine(Some(OPTIONS));
    let other = world.engine(Some(OPTIONS));
    let dropped = admit(&engine, OMITTING, &[keyed("a")]).await;
    for engine in [&engine, &other] {
        assert_eq!(
            reason(engine, OMITTING, &keyed("a")).await,
            Reason::Redelivery
        );
    }
    world.clock.advance(HALF);
    for engine in [&engine, &other] {
        assert_eq!(
            reason(engine, OMITTING, &keyed("a")).await,
            Reason::Redelivery
        );
    }
    drop(dropped);
    until_first_seen(&other, OMITTING, &keyed("a")).await;
    assert_eq!(known(&engine, "orders") + known(&other, "orders"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_retry_of_ones_own_call_asks_redis() {
    let world = World::start();
    let engine = world.engine(Some(OPTIONS));
    let of_call = AdmitOptions {
        request_id: Some([7; 16]),
        ..OMITTING
    };
    assert_eq!(
        reason(&engine, of_call, &keyed("a")).await,
        Reason::FirstSeen
    );
    assert_eq!(
        reason(&engine, OMITTING, &keyed("a")).await,
        Reason::Redelivery
    );
    assert_eq!(known(&engine, "orders"), 1);
    let again = admit(&engine, of_call, &[keyed("a"), keyed("a")]).await;
    assert_eq!(again.verdicts()[0].reason, Reason::FirstSeen);
    assert_eq!(again.verdicts()[1].reason, Reason::Redelivery);
    assert_eq!(again.verdicts()[1].copy_of_index, Some(0));
    let adopted = engine
        .namespace("orders")
        .expect("it is there")
        .counters()
        .adopted();
    assert_eq!(adopted, 1);
}

/// It takes over what its first attempt left, though that was delivered.
#[tokio::test(flavor = "multi_thread")]
async fn what_a_retry_gives_back_is_not_known() {
    let world = World::start();
    let engine = world.engine(Some(OPTIONS));
    let of_call = AdmitOptions {
        request_id: Some([7; 16]),
        ..OMITTING
    };
    assert_eq!(
        reason(&engine, of_call, &keyed("a")).await,
        Reason::FirstSeen
    );
    drop(admit(&engine, of_call, &[keyed("a")]).await);
    until_first_seen(&engine, OMITTING, &keyed("a")).await;
    assert_eq!(known(&engine, "orders"), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn nothing_is_known_for_longer_than_its_ttl() {
    let world = World::start();
    let engine = world.engine(Some(OPTIONS));
    assert_eq!(
        reason(&engine, omitting("brief"), &keyed("a")).await,
        Reason::FirstSeen
    );
    world.clock.advance(Duration::from_millis(4_999));
    assert_eq!(
        reason(&engine, omitting("brief"), &keyed("a")).await,
        Reason::Redelivery
    );
    assert_eq!(known(&engine, "brief"), 1);
    world.clock.advance(Duration::from_millis(1));
    world.empty();
    assert_eq!(
        reason(&engine, omitting("brief"), &keyed("a")).await,
        Reason::FirstSeen
    );
}
