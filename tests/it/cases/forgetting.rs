//! Why was this suppressed, and how to undo it.

use std::time::Duration;

use dedupd::grpc::proto::{
    ClaimState, Event, ForgetRequest,
    Reason::{FirstSeen, Late, Redelivery, Restamped, Unclassified},
    SettleOutcome,
};
use tonic::{Code, Status};
use tonic_types::StatusExt;

use super::{REST, leased, usual};
use crate::client::{
    EVERY_STORE, Kept, World,
    events::{MINUTE, MS, SECOND, T0, enter, keyed, timestamp},
};

const ALLOWED: &str = "inspect: { allow_forget: true }\n";

async fn forget(world: &World, event: &Event) -> Result<Vec<String>, Status> {
    forget_in(world, "crossings", event).await
}

async fn forget_in(world: &World, namespace: &str, event: &Event) -> Result<Vec<String>, Status> {
    let request = ForgetRequest {
        namespace: namespace.to_owned(),
        event: Some(event.clone()),
    };
    Ok(world.inspect().forget(request).await?.into_inner().keys)
}

#[track_caller]
fn assert_refused(forgotten: Result<Vec<String>, Status>, code: Code, reason: &str) {
    let status = forgotten.expect_err("refused");
    let info = status.get_details_error_info().expect("an ErrorInfo");
    assert_eq!(
        (status.code(), info.reason.as_str()),
        (code, reason),
        "{status:?}"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn b05_a_suppression_can_be_explained_and_forgotten() {
    let event = enter("a", T0 + 30 * SECOND);
    for kept in EVERY_STORE {
        let world = World::start(kept, &format!("{ALLOWED}{}", usual())).await;
        let rows = [(event.clone(), Late), (event.clone(), Redelivery)];
        world.check("crossings", &rows).await;
        let why = world.explain("crossings", &event).await;
        let verdict = why.verdict.expect("a verdict");
        world.check_verdict(&verdict, Redelivery, "explained");
        assert_eq!(verdict.first_occurred_at, why.occurred_at);
        let found = why.claims.first().expect("the claim");
        assert_eq!(
            (&found.key, found.state(), found.near),
            (&why.keys[0], ClaimState::Confirmed, true)
        );
        assert_eq!(found.occurred_at, Some(timestamp(T0 + 30 * SECOND)));

        assert_eq!(
            forget(&world, &event).await.expect("allowed"),
            [why.keys[0].clone()]
        );
        let line = world.service.wait_log("forgotten", Duration::from_secs(5));
        assert!(
            line.contains(&why.keys[0]) && line.contains("crossings"),
            "{line}"
        );
        world.check("crossings", &rows).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b05_every_settled_claim_that_is_near_is_forgotten_and_no_other() {
    let (before, after) = (enter("a", T0 + 57 * SECOND), enter("a", T0 + 62 * SECOND));
    let far = enter("a", T0 + 62 * SECOND + 60 * SECOND);
    // In the bucket of one and within the guard of the other.
    let between = enter("a", T0 + 59 * SECOND + 500 * MS);
    for kept in EVERY_STORE {
        let world = World::start(kept, &format!("{ALLOWED}{}", usual())).await;
        let rows = [before.clone(), after.clone(), far.clone()].map(|event| (event, Late));
        world.check("crossings", &rows).await;
        world
            .check("crossings", &[(between.clone(), Restamped)])
            .await;
        assert_eq!(forget(&world, &between).await.expect("allowed").len(), 2);
        let rows = [(between.clone(), Late), (far.clone(), Redelivery)];
        world.check("crossings", &rows).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b05_forgetting_is_refused_unless_allowed_and_while_a_holder_is_at_work() {
    let event = enter("a", T0 + 58 * SECOND);
    let copy = enter("a", T0 + 61 * SECOND);
    for kept in EVERY_STORE {
        let world = World::start(kept, &usual()).await;
        assert_refused(
            forget(&world, &event).await,
            Code::PermissionDenied,
            "FORGET_NOT_ALLOWED",
        );

        let world = World::start(kept, &format!("{ALLOWED}{}", leased("30s"))).await;
        let held = world.admit_one("crossings", &event).await;
        for event in [&event, &copy] {
            let forgotten = forget(&world, event).await;
            assert_refused(forgotten, Code::FailedPrecondition, "UNSETTLED_CLAIM");
        }
        assert_eq!(world.confirm(&held).await, SettleOutcome::Applied);
        assert_eq!(forget(&world, &copy).await.expect("settled").len(), 1);
        assert_eq!(
            forget(&world, &copy).await.expect("nothing left"),
            Vec::<String>::new()
        );
        let no_time = Event {
            time: None,
            ..event.clone()
        };
        assert_refused(
            forget(&world, &no_time).await,
            Code::InvalidArgument,
            "INVALID_EVENT",
        );
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn b05_a_session_is_forgotten_with_what_it_has_seen() {
    let session = format!("accepts: [transition], window: {{ session: 10m }}, {REST}");
    let config = format!("{ALLOWED}namespaces: {{ crossings: {{ {session} }} }}");
    // In three buckets.
    let seen = [0, 9, 18].map(|minutes| enter("a", T0 + minutes * MINUTE));
    for kept in EVERY_STORE {
        let world = World::start(kept, &config).await;
        let [first, second, third] = seen.clone();
        let rows = [
            (first, Late),
            (second.clone(), Restamped),
            (third, Restamped),
        ];
        world.check("crossings", &rows).await;
        assert_eq!(forget(&world, &second).await.expect("allowed").len(), 3);
        world.check("crossings", &[(second, Late)]).await;
    }
}

/// Another consumer's value says nothing, and suppresses like ours.
#[tokio::test(flavor = "multi_thread")]
async fn b05_a_foreign_claim_can_be_forgotten() {
    let event = keyed("old");
    let world = World::start(Kept::InRedis, &format!("{ALLOWED}{}", usual())).await;
    let redis = world.redis().expect("on Redis");
    assert_eq!(redis.cli(&["SET", "orders:old", "1"]), "OK");
    world
        .check("orders", &[(event.clone(), Unclassified)])
        .await;
    assert_eq!(
        forget_in(&world, "orders", &event).await.expect("allowed"),
        ["orders:old"]
    );
    world.check("orders", &[(event.clone(), FirstSeen)]).await;
}
