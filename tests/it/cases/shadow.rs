//! Shadow mode: everything is admitted, and what enforcing would have said is told.

use dedupd::grpc::proto::{
    Decision, Event,
    Reason::{
        self, FirstSeen, InFlight, Late, MissingIdentity, MissingTime, Redelivery, Restamped,
        StoreUnavailable, WrongKind,
    },
    SettleOutcome::Applied,
    Verdict,
};

use super::{leased, usual};
use crate::{
    client::{
        EVERY_STORE, World, decision_of,
        events::{SECOND, T0, enter, keyed, ping},
    },
    support::service::Options,
};

fn watching(config: &str) -> String {
    config.replace("failure_mode: closed", "failure_mode: closed, mode: shadow")
}

#[track_caller]
fn check_shadow(verdict: &Verdict, expected: Reason, what: &Event) {
    assert_eq!(
        (verdict.decision(), verdict.reason(), verdict.shadow),
        (Decision::Admit, expected, true),
        "{what:?}: {verdict:?}"
    );
    // A token only where something was claimed.
    let claimed = decision_of(expected) == Decision::Admit;
    assert_eq!(!verdict.claim.is_empty(), claimed, "{what:?}: {verdict:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn shadow_admits_all_and_says_what_enforcing_would() {
    let no_time = Event {
        time: None,
        ..enter("a", T0)
    };
    let rows = [
        (enter("a", T0), Late),
        (enter("a", T0), Redelivery),
        (enter("a", T0 + SECOND), Restamped),
        (enter("", T0), MissingIdentity),
        (no_time, MissingTime),
        (ping("a", T0), WrongKind),
        (enter("b", T0), Late),
    ];
    for kept in EVERY_STORE {
        let world = World::start(kept, &watching(&usual())).await;
        for (event, expected) in &rows {
            let verdict = world.admit_one("crossings", event).await;
            check_shadow(&verdict, *expected, event);
        }
        let events = rows.iter().map(|(event, _)| event.clone()).collect();
        let again = world.admit("crossings", events).await;
        for (verdict, (event, expected)) in again.iter().zip(&rows) {
            let expected = if *expected == Late {
                Redelivery
            } else {
                *expected
            };
            check_shadow(verdict, expected, event);
        }
        // Counters carry what would have been.
        assert_eq!(world.counted("crossings", Late), 2.0);
        assert_eq!(world.counted("crossings", Redelivery), 1.0 + 3.0);
        assert_eq!(world.counted("crossings", MissingTime), 2.0);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn shadow_claims_are_held_and_settled_like_others() {
    let event = keyed("held");
    for kept in EVERY_STORE {
        let world = World::start(kept, &watching(&leased("30s"))).await;
        let held = world.admit_one("orders", &event).await;
        check_shadow(&held, FirstSeen, &event);
        let copy = world.admit_one("orders", &event).await;
        check_shadow(&copy, InFlight, &event);
        assert_eq!(world.confirm(&held).await, Applied);
        let copy = world.admit_one("orders", &event).await;
        check_shadow(&copy, Redelivery, &event);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn shadow_admits_in_an_outage_too() {
    let options = Options {
        store_url: Some("redis://127.0.0.1:1".to_owned()),
        ..Options::default()
    };
    let world = World::with(None, &watching(&usual()), options).await;
    for (event, expected) in [
        (keyed("any"), StoreUnavailable),
        (keyed(""), MissingIdentity),
    ] {
        let verdict = world.admit_one("orders", &event).await;
        check_shadow(&verdict, expected, &event);
    }
}
