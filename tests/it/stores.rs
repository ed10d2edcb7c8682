//! One suite for every store: the same requests through the engine must give the same verdicts on
//! the embedded store and on each Redis, under a byte-wise and under a linguistic collation, and on
//! a server that does not know `SET … NX … GET`.

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
        policy::{
            Bounds, ContentMismatch, FailureMode, Mode, NamespaceName, Place, Policy, PolicyDraft,
            Window,
        },
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
    PolicyDraft {
        name: NamespaceName::new(name).expect("a valid name"),
        accepts: Accepts::from_kinds([Kind::Transition]),
        window: Window::Buckets {
            width_ns: 2_000_000_000,
            guard_ns: 200_000_000,
        },
        place: None,
        ttl: Duration::from_secs(300),
        lease: Duration::ZERO,
        in_flight_retry: Duration::from_millis(200),
        failure_mode: FailureMode::Closed,
        content_mismatch: ContentMismatch::DeadLetter,
        mode: Mode::Enforce,
        time_limits: TimeLimits::new(None, None, dedupd::domain::time::Implausible::DeadLetter),
        bounds: Bounds::default(),
        prefix: None,
        layout: None,
        digest: None,
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
        url: server.url(),
        budget: BUDGET,
        schemes: schemes.into(),
        max_queued_events: 100_000,
    };
    let (store, work) = RedisStore::new(options).expect("a valid URL");
    tokio::spawn(work);
    Arc::new(store)
}

/// Runs a test on every store; the engine's name is in each assertion's panic by the log line.
macro_rules! on_every_store {
    ($($test:ident)*) => {
        mod memory {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $test() {
                let store = Arc::new(super::MemoryStore::new(super::Clock::system(), 1 << 30));
                super::$test(super::engine_on(store, super::policies())).await;
            })*
            use std::sync::Arc;
        }
        on_every_store!(@redis redis_7 [Some(super::Options::default())] $($test)*);
        on_every_store!(@redis redis_7_collating [super::collating_locale().map(|locale| super::Options {
            locale: Some(locale), ..super::Options::default()
        })] $($test)*);
        on_every_store!(@redis redis_62 [super::redis_62().map(|binary| super::Options {
            binary: Some(binary), ..super::Options::default()
        })] $($test)*);
    };
    (@redis $name:ident [$options:expr] $($test:ident)*) => {
        mod $name {
            $(#[tokio::test(flavor = "multi_thread")]
            async fn $test() {
                // Named by tests/run.sh where it is left out.
                let Some(options) = $options else { return };
                let server = super::RedisServer::start(options);
                let policies = super::policies();
                let store = super::redis_store(&server, &policies);
                super::$test(super::engine_on(store, policies)).await;
            })*
        }
    };
}

on_every_store! {
    first_sighting_then_redelivery_or_restamped
    guard_is_strict_and_compares_times
    sliding_window_has_no_edges
    copies_in_one_request_name_the_first
    settling_table
    lease_and_ttl_run_out
    retry_adopts_what_its_first_attempt_left
    a_dropped_call_gives_back_but_not_what_a_retry_adopted
    keyed_content
    pings_by_cell
    a_space_guard_is_a_circle_across_cells
    a_session_is_extended_by_what_it_suppresses
    a_pending_session_is_not_extended
    omitted_claims_cannot_be_settled
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

fn deliver(admission: Admission) -> Vec<Vec<u8>> {
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

async fn first_sighting_then_redelivery_or_restamped(engine: Arc<Engine>) {
    let ns = "suite-guarded";
    check(
        &engine,
        ns,
        &[transition("a", T0 + 500 * MS)],
        &[Reason::FirstSeen],
    )
    .await;
    check(
        &engine,
        ns,
        &[transition("a", T0 + 500 * MS)],
        &[Reason::Redelivery],
    )
    .await;
    check(
        &engine,
        ns,
        &[transition("a", T0 + 501 * MS)],
        &[Reason::Restamped],
    )
    .await;
    check(
        &engine,
        ns,
        &[transition("b", T0 + 500 * MS)],
        &[Reason::FirstSeen],
    )
    .await;
    let late = admit(&engine, ns, None, &[transition("a", T0 + 502 * MS)]).await;
    assert_eq!(
        late.verdicts()[0]
            .first_occurred_at
            .map(|time| time.unix_nanos()),
        Some(T0 + 500 * MS)
    );
}

async fn guard_is_strict_and_compares_times(engine: Arc<Engine>) {
    let ns = "suite-guarded";
    let edge = T0 + 2000 * MS;
    for (device, first, second, expected) in [
        ("inside", edge - MS, edge + 198 * MS, Reason::Boundary),
        ("last", edge - MS, edge + 199 * MS - 1, Reason::Boundary),
        ("exact", edge - MS, edge + 199 * MS, Reason::FirstSeen),
        (
            "backward",
            edge + 100 * MS,
            edge - 99 * MS,
            Reason::Boundary,
        ),
        (
            "backward-exact",
            edge + 100 * MS,
            edge - 100 * MS,
            Reason::FirstSeen,
        ),
        ("negative", -MS, 198 * MS, Reason::Boundary),
        ("negative-exact", -MS, 199 * MS, Reason::FirstSeen),
        (
            "halves",
            (1 << 32) * 1000 - 1,
            (1 << 32) * 1000,
            Reason::Restamped,
        ),
    ] {
        check(
            &engine,
            ns,
            &[transition(device, first)],
            &[Reason::FirstSeen],
        )
        .await;
        check(&engine, ns, &[transition(device, second)], &[expected]).await;
    }
}

async fn sliding_window_has_no_edges(engine: Arc<Engine>) {
    let ns = "suite-sliding";
    for start in [T0 + 900 * MS, -1, i64::MIN, i64::MAX - 2_000 * MS] {
        let device = start.to_string();
        check(
            &engine,
            ns,
            &[transition(&device, start)],
            &[Reason::FirstSeen],
        )
        .await;
        check(
            &engine,
            ns,
            &[transition(&device, start + 999_999_999)],
            &[Reason::Restamped],
        )
        .await;
        check(
            &engine,
            ns,
            &[transition(&device, start + 1000 * MS)],
            &[Reason::FirstSeen],
        )
        .await;
    }
}

async fn copies_in_one_request_name_the_first(engine: Arc<Engine>) {
    let (e1, e2) = (transition("c10", T0), transition("c10-other", T0));
    let events = [
        e1,
        e1,
        e2,
        e1,
        transition("edge", T0 - MS),
        transition("edge", T0 + MS),
    ];
    for (ns, copy) in [
        ("suite-guarded", Reason::Redelivery),
        ("suite-leased", Reason::InFlight),
    ] {
        let admission = admit(&engine, ns, None, &events).await;
        let seen: Vec<_> = admission
            .verdicts()
            .iter()
            .map(|verdict| (verdict.reason, verdict.copy_of_index))
            .collect();
        let across = if ns == "suite-leased" {
            Reason::InFlight
        } else {
            Reason::Boundary
        };
        let expected = [
            (Reason::FirstSeen, None),
            (copy, Some(0)),
            (Reason::FirstSeen, None),
            (copy, Some(0)),
            (Reason::FirstSeen, None),
            (across, Some(4)),
        ];
        assert_eq!(seen, expected, "{ns}");
        admission.delivered();
    }
}

async fn settling_table(engine: Arc<Engine>) {
    use SettleAction::{Confirm, Release, Renew};
    use SettleOutcome::{AlreadyApplied, AlreadyConfirmed, Applied, NotHeld};
    let rows: [(&str, &[SettleAction], SettleOutcome); 12] = [
        ("suite-leased", &[Confirm], Applied),
        ("suite-leased", &[Release], Applied),
        ("suite-leased", &[Renew], Applied),
        ("suite-guarded", &[Confirm], Applied),
        ("suite-guarded", &[Release], Applied),
        ("suite-guarded", &[Renew], AlreadyApplied),
        ("suite-leased", &[Confirm, Confirm], AlreadyApplied),
        ("suite-leased", &[Confirm, Release], AlreadyConfirmed),
        ("suite-leased", &[Confirm, Renew], AlreadyConfirmed),
        ("suite-leased", &[Release, Confirm], NotHeld),
        ("suite-leased", &[Release, Release], NotHeld),
        ("suite-leased", &[Release, Renew], NotHeld),
    ];
    for (row, (ns, actions, expected)) in rows.into_iter().enumerate() {
        let device = format!("settle-{row}");
        let tokens = check(
            &engine,
            ns,
            &[transition(&device, T0)],
            &[Reason::FirstSeen],
        )
        .await;
        let mut last = Settlement::Malformed;
        for &action in actions {
            last = settle(&engine, action, &tokens[0]).await;
        }
        assert_eq!(last, Settlement::Settled(expected), "{ns} {actions:?}");
    }
    // Another's claim: the first holder's token after release and a new claim.
    let first = check(
        &engine,
        "suite-leased",
        &[transition("taken", T0)],
        &[Reason::FirstSeen],
    )
    .await;
    settle(&engine, Release, &first[0]).await;
    let second = check(
        &engine,
        "suite-leased",
        &[transition("taken", T0)],
        &[Reason::FirstSeen],
    )
    .await;
    for action in [Confirm, Release, Renew] {
        assert_eq!(
            settle(&engine, action, &first[0]).await,
            Settlement::Settled(NotHeld)
        );
    }
    assert_eq!(
        settle(&engine, Confirm, &second[0]).await,
        Settlement::Settled(Applied)
    );
    check(
        &engine,
        "suite-leased",
        &[transition("taken", T0)],
        &[Reason::Redelivery],
    )
    .await;
    for bad in [
        &b""[..],
        b"nonsense",
        &first[0][..20],
        &[second[0].as_slice(), b"x"].concat(),
    ] {
        assert_eq!(settle(&engine, Confirm, bad).await, Settlement::Malformed);
    }
}

async fn lease_and_ttl_run_out(engine: Arc<Engine>) {
    let ns = "suite-brief";
    let event = [transition("brief", T0)];
    let claimed = Instant::now();
    let first = check(&engine, ns, &event, &[Reason::FirstSeen]).await;
    check(&engine, ns, &event, &[Reason::InFlight]).await;
    // Renewed at half of the lease, it is still held when the first lease would have ended.
    tokio::time::sleep(Duration::from_millis(120)).await;
    assert_eq!(
        settle(&engine, SettleAction::Renew, &first[0]).await,
        Settlement::Settled(SettleOutcome::Applied)
    );
    tokio::time::sleep(Duration::from_millis(120)).await;
    if claimed.elapsed() < Duration::from_millis(300) {
        check(&engine, ns, &event, &[Reason::InFlight]).await;
    }
    tokio::time::sleep(Duration::from_millis(250)).await;
    let second = check(&engine, ns, &event, &[Reason::FirstSeen]).await;
    assert_eq!(
        settle(&engine, SettleAction::Confirm, &first[0]).await,
        Settlement::Settled(SettleOutcome::NotHeld)
    );
    assert_eq!(
        settle(&engine, SettleAction::Confirm, &second[0]).await,
        Settlement::Settled(SettleOutcome::Applied)
    );
    // Confirmed for the TTL, which is longer than the lease was.
    tokio::time::sleep(Duration::from_millis(250)).await;
    check(&engine, ns, &event, &[Reason::Redelivery]).await;
    tokio::time::sleep(Duration::from_millis(250)).await;
    check(&engine, ns, &event, &[Reason::FirstSeen]).await;
}

async fn retry_adopts_what_its_first_attempt_left(engine: Arc<Engine>) {
    for ns in ["suite-guarded", "suite-leased"] {
        let id = Some([7; 16]);
        // Twice the same key, one event at an edge, one other's.
        let events = [
            transition("mine", T0 + 500 * MS),
            transition("mine", T0 + 500 * MS),
            transition("mine-edge", T0 + MS),
            transition("theirs", T0),
        ];
        admit(&engine, ns, None, &events[3..]).await.delivered();
        let first = admit(&engine, ns, id, &events).await;
        let expected = first
            .verdicts()
            .iter()
            .map(|verdict| verdict.reason)
            .collect::<Vec<_>>();
        assert_eq!(expected[0], Reason::FirstSeen);
        let first = deliver(first);
        let again = admit(&engine, ns, id, &events).await;
        assert_eq!(
            again
                .verdicts()
                .iter()
                .map(|verdict| verdict.reason)
                .collect::<Vec<_>>(),
            expected,
            "{ns}"
        );
        assert_eq!(again.verdicts()[1].copy_of_index, Some(0));
        let again = deliver(again);
        // Either token settles: they name the same holder.
        assert_eq!(
            settle(&engine, SettleAction::Confirm, &first[0]).await,
            Settlement::Settled(SettleOutcome::Applied)
        );
        assert_eq!(
            settle(&engine, SettleAction::Confirm, &again[0]).await,
            Settlement::Settled(SettleOutcome::AlreadyApplied)
        );
        // Settled, it is a redelivery even for the same call; the other one is still its own.
        let third = admit(&engine, ns, id, &events).await;
        assert_eq!(third.verdicts()[0].reason, Reason::Redelivery);
        assert_eq!(third.verdicts()[2].reason, Reason::FirstSeen);
        third.delivered();
        let stranger = admit(&engine, ns, Some([8; 16]), &events[2..3]).await;
        assert_ne!(stranger.verdicts()[0].reason, Reason::FirstSeen);
    }
}

async fn a_dropped_call_gives_back_but_not_what_a_retry_adopted(engine: Arc<Engine>) {
    let ns = "suite-guarded";
    let event = [transition("dropped", T0)];
    drop(admit(&engine, ns, None, &event).await);
    eventually(&engine, ns, &event, Reason::FirstSeen).await;

    // A call, its retry, and only then the first call's give-back: the retry's claim stands.
    let event = [transition("adopted", T0)];
    let first = admit(&engine, ns, Some([9; 16]), &event).await;
    let retry = admit(&engine, ns, Some([9; 16]), &event).await;
    assert_eq!(retry.verdicts()[0].reason, Reason::FirstSeen);
    let tokens = deliver(retry);
    drop(first);
    tokio::time::sleep(Duration::from_millis(50)).await;
    check(&engine, ns, &event, &[Reason::Redelivery]).await;
    assert_eq!(
        settle(&engine, SettleAction::Confirm, &tokens[0]).await,
        Settlement::Settled(SettleOutcome::Applied)
    );
}

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

async fn keyed_content(engine: Arc<Engine>) {
    let ns = "suite-keyed";
    check(&engine, ns, &[keyed("E1", Some(1))], &[Reason::FirstSeen]).await;
    check(
        &engine,
        ns,
        &[keyed("E1", Some(2))],
        &[Reason::ContentMismatch],
    )
    .await;
    check(&engine, ns, &[keyed("E1", Some(1))], &[Reason::Redelivery]).await;
    check(&engine, ns, &[keyed("E1", None)], &[Reason::Redelivery]).await;
    check(
        &engine,
        ns,
        &[
            keyed("{E1}", None),
            keyed("\u{e9}", None),
            keyed("e\u{301}", None),
        ],
        &[Reason::FirstSeen; 3],
    )
    .await;
}

async fn pings_by_cell(engine: Arc<Engine>) {
    let ns = "suite-pings";
    let (lat, lon) = (52.520_008_7, 13.404_954_7);
    check(
        &engine,
        ns,
        &[ping("veh-88", T0, lat, lon)],
        &[Reason::FirstSeen],
    )
    .await;
    check(
        &engine,
        ns,
        &[ping("veh-88", T0, lat, lon)],
        &[Reason::Redelivery],
    )
    .await;
    check(
        &engine,
        ns,
        &[ping("veh-88", T0 + 20_000 * MS, lat, lon)],
        &[Reason::Reobservation],
    )
    .await;
    check(
        &engine,
        ns,
        &[ping("veh-88", T0 + 20_000 * MS, 52.520_041_0, 13.404_992_0)],
        &[Reason::Jitter],
    )
    .await;
    check(
        &engine,
        ns,
        &[ping("veh-88", T0 + 20_000 * MS, 52.524_1, 13.410_2)],
        &[Reason::FirstSeen],
    )
    .await;
    check(
        &engine,
        ns,
        &[ping("veh-88", T0 - MS, lat, lon)],
        &[Reason::Boundary],
    )
    .await;
    check(
        &engine,
        ns,
        &[ping("veh-91", T0, lat, lon)],
        &[Reason::FirstSeen],
    )
    .await;
    let same_place = [
        ping("s05", T0, 0.0, 10.0),
        ping("s05", T0, -0.0, 10.0),
        ping("s06", T0, 10.0, 180.0),
        ping("s06", T0, 10.0, -180.0),
    ];
    use Reason::{FirstSeen, Redelivery};
    check(
        &engine,
        ns,
        &same_place,
        &[FirstSeen, Redelivery, FirstSeen, Redelivery],
    )
    .await;
    assert_eq!(u8::from(place::Resolution::Twelve), 12);
}

async fn omitted_claims_cannot_be_settled(engine: Arc<Engine>) {
    let omit = |request_id| AdmitOptions {
        namespace: "suite-leased",
        request_id,
        omit_claims: true,
    };
    let event = [transition("omitted", T0)];
    for (id, expected) in [
        ([1; 16], Reason::FirstSeen),
        ([1; 16], Reason::FirstSeen),
        ([2; 16], Reason::Redelivery),
    ] {
        let prepared = engine
            .prepare(omit(Some(id)), event.iter().copied())
            .expect("a good request");
        let admission = engine.submit(prepared).expect("room").finish().await;
        assert_eq!(admission.verdicts()[0].reason, expected);
        assert_eq!(deliver(admission), Vec::<Vec<u8>>::new());
    }
}

async fn a_space_guard_is_a_circle_across_cells(engine: Arc<Engine>) {
    let ns = "suite-spaced";
    // S09: a parked asset that alternates between two cells, 3 m apart.
    let fixes: Vec<RawEvent<'_>> = (0..30)
        .map(|second| {
            let longitude = if second % 2 == 0 {
                2.351_485_795
            } else {
                2.351_525_796
            };
            ping(
                "s09",
                T0 + second * 1000 * MS,
                48.864_942_069_957_86,
                longitude,
            )
        })
        .collect();
    let admission = admit(&engine, ns, None, &fixes).await;
    let count = |reason| {
        admission
            .verdicts()
            .iter()
            .filter(|verdict| verdict.reason == reason)
            .count()
    };
    assert_eq!((count(Reason::FirstSeen), count(Reason::Boundary)), (1, 15));
    admission.delivered();
    // Steps of a third of the guard in every direction from a point near a border: near is less
    // than 60 m, also where a box round the circle would say otherwise.
    let (latitude, longitude) = (48.864_942, 2.351_505);
    let metre_deg = 1.0 / 111_195.08;
    let centre = place::Position::new(latitude, longitude).expect("valid");
    for (x, y) in (-4..=4).flat_map(|x| (-4..=4).map(move |y| (x, y))) {
        let asset = format!("circle {x} {y}");
        let there_latitude = latitude + f64::from(y) * 20.0 * metre_deg;
        let there_longitude =
            longitude + f64::from(x) * 20.0 * metre_deg / latitude.to_radians().cos();
        let there = place::Position::new(there_latitude, there_longitude).expect("valid");
        let resolution = place::Resolution::Nine;
        let near =
            there.distance_m(centre) < 60.0 || there.cell(resolution) == centre.cell(resolution);
        check(
            &engine,
            ns,
            &[ping(&asset, T0, latitude, longitude)],
            &[Reason::FirstSeen],
        )
        .await;
        let second = ping(&asset, T0 + 1000 * MS, there_latitude, there_longitude);
        let (seen, _) = reasons(&engine, ns, &[second]).await;
        assert_eq!(
            seen[0] != Reason::FirstSeen,
            near,
            "{x} {y}: {seen:?}, {} m",
            there.distance_m(centre)
        );
    }
}

async fn a_session_is_extended_by_what_it_suppresses(engine: Arc<Engine>) {
    use Reason::{FirstSeen, Redelivery, Restamped};
    let ns = "suite-session";
    let second = |number: i64| transition("session", T0 + number * 1000 * MS);
    // Each within the gap of something seen, the first of them 40 s behind the last.
    for (at, expected) in [
        (0, FirstSeen),
        (9, Restamped),
        (19, Restamped),
        (29, Restamped),
        (39, Restamped),
        (49, Restamped),
        (60, FirstSeen),
        (0, Redelivery),
        (49, Redelivery),
        // Exactly the gap behind the earliest is still within it, in both directions of arrival.
        (-10, Restamped),
        (-20, Restamped),
        (-31, FirstSeen),
    ] {
        let tokens = check(&engine, ns, &[second(at)], &[expected]).await;
        assert_eq!(
            tokens,
            Vec::<Vec<u8>>::new(),
            "stored confirmed: others may lose to it"
        );
    }
    let late = admit(&engine, ns, None, &[second(5)]).await;
    assert_eq!(
        late.verdicts()[0]
            .first_occurred_at
            .map(|time| time.unix_nanos()),
        Some(T0)
    );
    late.delivered();
    // A call that is dropped gives back, unless others were suppressed on its claim meanwhile.
    let before = engine.store().stats().give_backs_kept;
    let alone = [transition("alone", T0)];
    drop(admit(&engine, ns, None, &alone).await);
    eventually(&engine, ns, &alone, FirstSeen).await;
    let joined = admit(&engine, ns, None, &[transition("joined", T0)]).await;
    check(&engine, ns, &[transition("joined", T0 + MS)], &[Restamped]).await;
    drop(joined);
    tokio::time::sleep(Duration::from_millis(50)).await;
    check(&engine, ns, &[transition("joined", T0)], &[Redelivery]).await;
    assert_eq!(engine.store().stats().give_backs_kept, before + 1);
    // A retry takes over without forgetting what was seen since.
    let id = Some([3; 16]);
    admit(&engine, ns, id, &[transition("retried", T0)])
        .await
        .delivered();
    check(
        &engine,
        ns,
        &[transition("retried", T0 + 9_000 * MS)],
        &[Restamped],
    )
    .await;
    let retry = admit(&engine, ns, id, &[transition("retried", T0)]).await;
    assert_eq!(retry.verdicts()[0].reason, FirstSeen);
    retry.delivered();
    check(
        &engine,
        ns,
        &[transition("retried", T0 + 18_000 * MS)],
        &[Restamped],
    )
    .await;
}

async fn a_pending_session_is_not_extended(engine: Arc<Engine>) {
    use Reason::{FirstSeen, InFlight, Redelivery, Restamped};
    let ns = "suite-session-leased";
    let second = |number: i64| transition("pending", T0 + number * 1000 * MS);
    let tokens = check(&engine, ns, &[second(0)], &[FirstSeen]).await;
    check(&engine, ns, &[second(9)], &[InFlight]).await;
    let confirmed = settle(&engine, SettleAction::Confirm, &tokens[0]).await;
    assert_eq!(confirmed, Settlement::Settled(SettleOutcome::Applied));
    check(&engine, ns, &[second(0)], &[Redelivery]).await;
    check(&engine, ns, &[second(11)], &[FirstSeen]).await;
    check(&engine, ns, &[second(8)], &[Restamped]).await;
}
