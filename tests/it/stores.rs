//! One suite for every store: the same requests through the engine must give the same verdicts on
//! the embedded store and on each Redis, under a byte-wise and under a linguistic collation, and on
//! a server that does not know `SET … NX … GET`.

mod places;
mod sessions;
mod settling;
mod windows;
mod write_back;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use dedupd::{
    clock::Clock,
    domain::{
        claim::{SettleAction, SettleOutcome},
        event::{RawEvent, RawPosition},
        identity::{RawIdentity, RawTransitionKind, TransitionKind},
        key::KeyScheme,
        kind::{Accepts, Kind},
        place,
        policy::{FailureMode, NamespaceName, Place, Policy, PolicyDraft, Window},
        reason::Reason,
        time::TimeLimits,
        time::{EventTime, RawTime},
    },
    engine::{
        Engine,
        admit::{Admission, AdmitOptions},
        settle::Settlement,
    },
    store::{
        Store,
        memory::MemoryStore,
        redis::{RedisOptions, RedisStore},
    },
};

use crate::support::redis::{Options, RedisServer, collating_locale, redis_62};

const BUDGET: Duration = Duration::from_secs(2);

/// A policy of transitions with a guarded window, to be changed by the test.
pub(crate) fn draft(name: &str) -> PolicyDraft {
    let window = Window::Buckets {
        width_ns: 2_000_000_000,
        guard_ns: 200_000_000,
    };
    PolicyDraft {
        time_limits: TimeLimits::new(None, None, dedupd::domain::time::Implausible::DeadLetter),
        ..PolicyDraft::new(
            NamespaceName::new(name).expect("a valid name"),
            Accepts::from_kinds([Kind::Transition]),
            window,
            Duration::from_secs(300),
            FailureMode::Closed,
        )
    }
}

/// The namespaces that the suite uses.
fn policies() -> Vec<Arc<Policy>> {
    let pings = PolicyDraft {
        accepts: Accepts::from_kinds([Kind::Ping]),
        window: Window::Buckets {
            width_ns: 60_000_000_000,
            guard_ns: 5_000_000_000,
        },
        place: Some(Place::new(12, 0.0, 20.0, None).expect("a valid place")),
        ..draft("suite-pings")
    };
    let spaced = PolicyDraft {
        place: Some(Place::new(9, 60.0, 20.0, None).expect("a valid place")),
        ..PolicyDraft {
            name: NamespaceName::new("suite-spaced").expect("a valid name"),
            ..pings.clone()
        }
    };
    let keyed = PolicyDraft {
        accepts: Accepts::from_kinds([Kind::Keyed]),
        window: Window::None,
        ..draft("suite-keyed")
    };
    let drafts = [
        draft("suite-guarded"),
        PolicyDraft {
            window: Window::Buckets {
                width_ns: 1_000_000_000,
                guard_ns: 1_000_000_000,
            },
            ..draft("suite-sliding")
        },
        PolicyDraft {
            lease: Duration::from_secs(30),
            ..draft("suite-leased")
        },
        PolicyDraft {
            window: Window::Buckets {
                width_ns: 100_000_000,
                guard_ns: 0,
            },
            ttl: Duration::from_millis(400),
            lease: Duration::from_millis(200),
            ..draft("suite-brief")
        },
        PolicyDraft {
            window: Window::Session {
                gap_ns: 10_000_000_000,
            },
            ..draft("suite-session")
        },
        PolicyDraft {
            window: Window::Session {
                gap_ns: 10_000_000_000,
            },
            lease: Duration::from_secs(30),
            ..draft("suite-session-leased")
        },
        pings,
        spaced,
        keyed,
    ];
    drafts
        .into_iter()
        .map(|draft| Arc::new(Policy::new(draft).expect("a valid policy")))
        .collect()
}

/// An engine whose store has been reached.
pub(crate) fn engine_on(store: Arc<dyn Store>, policies: Vec<Arc<Policy>>) -> Arc<Engine> {
    // A wall clock at the beginning of time, so that no event is late.
    let clock = Clock::manual(EventTime::from_unix_nanos(i64::MIN));
    let engine = Engine::new(policies, store, clock, 5000);
    engine.breaker().probe_answered();
    Arc::new(engine)
}

pub(crate) fn redis_store(server: &RedisServer, policies: &[Arc<Policy>]) -> Arc<dyn Store> {
    let schemes: Vec<KeyScheme> = policies
        .iter()
        .map(|policy| policy.scheme().clone())
        .collect();
    let options = RedisOptions {
        target: server.target(),
        budget: BUDGET,
        schemes: schemes.into(),
        max_queued_events: 100_000,
    };
    let (store, work) = RedisStore::new(options);
    tokio::spawn(work);
    Arc::new(store)
}

/// Runs a test on every store; the engine's name is in each assertion's panic by the log line.
macro_rules! on_every_store {
    ($($room:ident :: $test:ident)*) => {
        mod memory {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $test() {
                let store = Arc::new(super::MemoryStore::new(super::Clock::system(), 1 << 30));
                super::$room::$test(super::engine_on(store, super::policies())).await;
            })*
            use std::sync::Arc;
        }
        on_every_store!(@redis redis_7 [Some(super::Options::default())] $($room::$test)*);
        on_every_store!(@redis redis_7_collating [super::collating_locale().map(|locale| super::Options {
            locale: Some(locale), ..super::Options::default()
        })] $($room::$test)*);
        on_every_store!(@redis redis_62 [super::redis_62().map(|binary| super::Options {
            binary: Some(binary), ..super::Options::default()
        })] $($room::$test)*);
    };
    (@redis $name:ident [$options:expr] $($room:ident :: $test:ident)*) => {
        mod $name {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $test() {
                // Named by tests/run.sh where it is left out.
                let Some(options) = $options else { return };
                let server = super::RedisServer::start(options);
                let policies = super::policies();
                let store = super::redis_store(&server, &policies);
                super::$room::$test(super::engine_on(store, policies)).await;
            })*
        }
    };
}

on_every_store! {
    windows::first_sighting_then_redelivery_or_restamped
    windows::guard_is_strict_and_compares_times
    windows::sliding_window_has_no_edges
    windows::copies_in_one_request_name_the_first
    settling::settling_table
    settling::many_settled_in_one_call
    settling::lease_and_ttl_run_out
    settling::retry_adopts_what_its_first_attempt_left
    settling::a_dropped_call_gives_back_but_not_what_a_retry_adopted
    places::keyed_content
    places::pings_by_cell
    places::a_space_guard_is_a_circle_across_cells
    sessions::a_session_is_extended_by_what_it_suppresses
    sessions::a_pending_session_is_not_extended
    settling::omitted_claims_cannot_be_settled
    write_back::the_claims_of_an_outage_are_reconciled
    write_back::what_was_written_is_withdrawn_unless_it_has_changed
}

pub(crate) fn transition(device: &str, nanos: i64) -> RawEvent<'_> {
    RawEvent {
        identity: RawIdentity::Transition {
            device_id: device,
            fence_id: "north|gate",
            kind: Some(RawTransitionKind::Known(TransitionKind::Enter)),
            sequence: None,
            sequence_epoch: 0,
        },
        time: RawTime::UnixNanos(nanos),
        ..RawEvent::default()
    }
}

fn keyed(id: &str, content_hash: Option<u64>) -> RawEvent<'_> {
    RawEvent {
        identity: RawIdentity::Keyed { event_id: id },
        content_hash,
        ..RawEvent::default()
    }
}

fn ping(asset: &str, nanos: i64, latitude: f64, longitude: f64) -> RawEvent<'_> {
    RawEvent {
        identity: RawIdentity::Ping { asset_id: asset },
        time: RawTime::UnixNanos(nanos),
        position: RawPosition::LatLng {
            latitude: Some(latitude),
            longitude: Some(longitude),
        },
        ..RawEvent::default()
    }
}

pub(crate) async fn admit(
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
    let prepared = engine
        .prepare(options, events.iter().copied())
        .expect("a good request");
    engine
        .submit(prepared)
        .expect("room in the queue")
        .finish()
        .await
}

/// The reasons, and the tokens of what was admitted; the claims stand.
async fn reasons(
    engine: &Arc<Engine>,
    namespace: &str,
    events: &[RawEvent<'_>],
) -> (Vec<Reason>, Vec<Vec<u8>>) {
    let admission = admit(engine, namespace, None, events).await;
    let reasons = admission
        .verdicts()
        .iter()
        .map(|verdict| verdict.reason)
        .collect();
    (reasons, deliver(admission))
}

pub(crate) fn deliver(admission: Admission) -> Vec<Vec<u8>> {
    let tokens = admission
        .answers()
        .filter_map(|(_, token)| {
            let mut bytes = Vec::new();
            token?.encode(&mut bytes);
            Some(bytes)
        })
        .collect();
    admission.delivered();
    tokens
}

async fn check(
    engine: &Arc<Engine>,
    namespace: &str,
    events: &[RawEvent<'_>],
    expected: &[Reason],
) -> Vec<Vec<u8>> {
    let (reasons, tokens) = reasons(engine, namespace, events).await;
    assert_eq!(reasons, expected, "{namespace}: {events:?}");
    tokens
}

async fn settle(engine: &Arc<Engine>, action: SettleAction, token: &[u8]) -> Settlement {
    let settled = engine
        .settle(action, [token].into_iter())
        .expect("room in the queue")
        .finish()
        .await;
    settled[0]
}

const T0: i64 = 1_700_000_040_000_000_000;
const MS: i64 = 1_000_000;

/// Giving back is not awaited: asks until the event is admitted.
async fn eventually(engine: &Arc<Engine>, ns: &str, event: &[RawEvent<'_>], expected: Reason) {
    let started = Instant::now();
    loop {
        let admission = admit(engine, ns, None, event).await;
        let reason = admission.verdicts()[0].reason;
        admission.delivered();
        if reason == expected {
            return;
        }
        assert!(
            started.elapsed() < Duration::from_secs(5),
            "still {reason:?}"
        );
        tokio::time::sleep(Duration::from_millis(5)).await;
    }
}
