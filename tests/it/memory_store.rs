//! What only the embedded store promises: a bound on memory, no eviction, expiry without sweeps.

use std::{sync::Arc, time::Duration};

use dedupd::{
    clock::Clock,
    domain::{
        claim::SettleAction,
        event::RawEvent,
        identity::RawIdentity,
        kind::{Accepts, Kind},
        policy::{FailureMode, NamespaceName, Policy, PolicyDraft, Window},
        reason::Reason,
        time::EventTime,
    },
    engine::Engine,
    store::{Store, memory::MemoryStore},
};

use crate::stores::{admit, deliver, draft, transition};

const DAY_NS: i64 = 86_400_000_000_000;
const NOW: EventTime = EventTime::from_unix_nanos(20_000 * DAY_NS);

fn setup(
    max_bytes: u64,
    ttl: Duration,
    failure_mode: FailureMode,
) -> (Arc<MemoryStore>, Arc<Engine>, Clock) {
    let clock = Clock::manual(NOW);
    let store = Arc::new(MemoryStore::new(clock.clone(), max_bytes));
    let window = Window::Buckets {
        width_ns: 1_000_000,
        guard_ns: 0,
    };
    let transitions = PolicyDraft {
        window,
        ttl,
        failure_mode,
        ..draft("bounded")
    };
    let accepts = Accepts::from_kinds([Kind::Keyed]);
    let keyed = PolicyDraft {
        accepts,
        window: Window::None,
        ttl,
        failure_mode,
        ..draft("bounded-keyed")
    };
    let leased = PolicyDraft {
        lease: Duration::from_secs(1).min(ttl),
        ..PolicyDraft {
            name: NamespaceName::new("bounded-leased").expect("a valid name"),
            ..transitions.clone()
        }
    };
    let policies = [transitions, keyed, leased]
        .map(|draft| Arc::new(Policy::new(draft).expect("a valid policy")));
    let engine = Engine::new(
        policies.to_vec(),
        Arc::clone(&store) as Arc<dyn Store>,
        clock.clone(),
        5000,
    );
    engine.breaker().probe_answered();
    (store, Arc::new(engine), clock)
}

/// Claims `count` transitions in batches and counts the reasons.
async fn claim_many(engine: &Arc<Engine>, first: usize, count: usize) -> (usize, usize) {
    let (mut admitted, mut refused) = (0, 0);
    for start in (first..first + count).step_by(1000) {
        let devices: Vec<String> = (start..start + 1000)
            .map(|number| format!("device-{number}"))
            .collect();
        let now = engine.clock().now().unix_nanos();
        let events: Vec<RawEvent<'_>> = devices
            .iter()
            .map(|device| transition(device, now))
            .collect();
        let admission = admit(engine, "bounded", None, &events).await;
        for verdict in admission.verdicts() {
            match verdict.reason {
                Reason::FirstSeen => admitted += 1,
                Reason::StoreUnavailable => refused += 1,
                other => panic!("unexpected {other:?}"),
            }
        }
        admission.delivered();
    }
    (admitted, refused)
}

#[tokio::test]
async fn full_is_an_outage_and_no_live_claim_is_evicted() {
    let limit = 4 << 20;
    let (store, engine, clock) = setup(limit, Duration::from_secs(60), FailureMode::Closed);
    let (admitted, refused) = claim_many(&engine, 0, 100_000).await;
    assert!(
        admitted > 20_000,
        "only {admitted} fitted into {limit} bytes"
    );
    assert!(refused > 0);
    let stats = store.stats();
    assert!(stats.bytes.is_some_and(|bytes| bytes <= limit), "{stats:?}");
    assert_eq!(stats.claims, Some(admitted as u64));
    // Every claim that was admitted is still there.
    let event = transition("device-0", NOW.unix_nanos());
    assert_eq!(
        admit(&engine, "bounded", None, &[event]).await.verdicts()[0].reason,
        Reason::Redelivery
    );
    // Keyed events see the same bound.
    let id = "x".repeat(512);
    let keyed = RawEvent {
        identity: RawIdentity::Keyed { event_id: &id },
        ..RawEvent::default()
    };
    let full = admit(&engine, "bounded-keyed", None, &[keyed]).await;
    assert_eq!(full.verdicts()[0].reason, Reason::StoreUnavailable);
    // Expired claims make room: where they stand at once, elsewhere after a round of ticks.
    clock.advance(Duration::from_secs(60));
    (0..32).for_each(|_| store.tick());
    let (admitted, refused) = claim_many(&engine, 200_000, 20_000).await;
    assert_eq!((admitted, refused), (20_000, 0));
}

/// Whatever lies beside them.
#[tokio::test]
async fn claims_that_are_renewed_keep_no_others() {
    const CLAIMS: usize = 5000;
    let (store, engine, clock) = setup(1 << 30, Duration::from_secs(60), FailureMode::Closed);
    let devices: Vec<String> = (0..CLAIMS)
        .map(|number| format!("device-{number}"))
        .collect();
    let events: Vec<RawEvent<'_>> = devices
        .iter()
        .map(|device| transition(device, NOW.unix_nanos()))
        .collect();
    let tokens = deliver(admit(&engine, "bounded-leased", None, &events).await);
    let renewed: Vec<&[u8]> = tokens.iter().step_by(10).map(Vec::as_slice).collect();
    for _ in 0..20 {
        clock.advance(Duration::from_millis(300));
        let renewing = engine.settle(SettleAction::Renew, renewed.iter().copied());
        renewing.expect("room in the queue").finish().await;
        (0..32).for_each(|_| store.tick());
    }
    assert_eq!(store.stats().claims, Some(renewed.len() as u64));
}

#[tokio::test]
async fn r15_expiry_is_checked_on_read_and_an_idle_store_shrinks() {
    let (store, engine, clock) = setup(1 << 30, Duration::from_secs(1), FailureMode::Closed);
    let (admitted, _) = claim_many(&engine, 0, 200_000).await;
    assert_eq!(admitted, 200_000);
    let loaded = store.stats();
    clock.advance(Duration::from_millis(1000));
    let event = transition("device-5", NOW.unix_nanos());
    assert_eq!(
        admit(&engine, "bounded", None, &[event]).await.verdicts()[0].reason,
        Reason::FirstSeen
    );
    for _ in 0..60 {
        clock.advance(Duration::from_secs(1));
        store.tick();
    }
    let idle = store.stats();
    assert_eq!(idle.claims, Some(0));
    assert!(
        idle.bytes < loaded.bytes.map(|bytes| bytes / 20),
        "{loaded:?} became {idle:?}"
    );
}

#[tokio::test]
async fn a_steady_stream_of_expiring_claims_costs_bounded_memory() {
    let (store, engine, clock) = setup(1 << 30, Duration::from_secs(1), FailureMode::Closed);
    let mut peak = 0;
    for round in 0..50 {
        claim_many(&engine, round * 20_000, 20_000).await;
        clock.advance(Duration::from_millis(250));
        peak = peak.max(store.stats().claims.unwrap_or(0));
    }
    // 80,000 live claims at a time; the hand leaves at most as many dead ones.
    assert!(peak <= 160_000, "{peak} claims held for 80000 live ones");
}

#[tokio::test]
async fn t15_the_ttl_counts_from_the_claim_not_from_the_event() {
    let (_, engine, clock) = setup(1 << 30, Duration::from_secs(600), FailureMode::Closed);
    let event = [transition("late", NOW.unix_nanos() - 3 * DAY_NS)];
    let first = admit(&engine, "bounded", None, &event).await;
    assert_eq!(first.verdicts()[0].reason, Reason::Late);
    first.delivered();
    clock.advance(Duration::from_secs(1));
    assert_eq!(
        admit(&engine, "bounded", None, &event).await.verdicts()[0].reason,
        Reason::Redelivery
    );
}
