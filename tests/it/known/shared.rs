//! Several instances, and people who forget.

use super::*;

async fn forget(engine: &Arc<Engine>, namespace: &str, event: &RawEvent<'_>) -> usize {
    let forgetting = engine.forget(namespace, event).expect("a good event");
    forgetting.await.expect("a store").len()
}

/// Known to `engine`, told by Redis.
async fn learn(world: &World, engine: &Arc<Engine>, event: &RawEvent<'_>) {
    for _ in 0..2 {
        assert_eq!(reason(engine, OMITTING, event).await, Reason::Redelivery);
        world.clock.advance(SETTLED_AFTER);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn a_claim_of_another_instance_is_known_once_it_was_told_twice() {
    let world = World::start();
    let (engine, other) = (world.engine(Some(OPTIONS)), world.engine(Some(OPTIONS)));
    let event = keyed("a");
    assert_eq!(reason(&other, OMITTING, &event).await, Reason::FirstSeen);
    for after in [Duration::ZERO, HALF, HALF] {
        world.clock.advance(after);
        assert_eq!(reason(&engine, OMITTING, &event).await, Reason::Redelivery);
        assert_eq!(known(&engine, "orders"), 0);
    }
    world.empty();
    // How long it stands is not known: for a tenth of its TTL at most.
    world.clock.advance(Duration::from_millis(29_999));
    assert_eq!(reason(&engine, OMITTING, &event).await, Reason::Redelivery);
    assert_eq!(known(&engine, "orders"), 1);
    world.clock.advance(Duration::from_millis(1));
    assert_eq!(reason(&engine, OMITTING, &event).await, Reason::FirstSeen);
}

#[tokio::test(flavor = "multi_thread")]
async fn a_confirmed_claim_with_a_lease_is_known_once_it_was_told_twice() {
    let world = World::start();
    let engine = world.engine(Some(OPTIONS));
    let options = AdmitOptions {
        omit_claims: false,
        ..omitting("leased")
    };
    let admission = admit(&engine, options, &[keyed("a")]).await;
    let mut token = Vec::new();
    let held = admission.answers().next().and_then(|(_, token)| token);
    held.expect("a claim").encode(&mut token);
    admission.delivered();
    let action = dedupd::domain::claim::SettleAction::Confirm;
    let settling = engine.settle(action, [token.as_slice()].into_iter());
    settling.expect("room").finish().await;
    for expected in [0, 0, 1] {
        assert_eq!(
            reason(&engine, options, &keyed("a")).await,
            Reason::Redelivery
        );
        assert_eq!(known(&engine, "leased"), expected);
        world.clock.advance(SETTLED_AFTER);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn what_is_forgotten_here_is_not_known_at_once_and_elsewhere_after_its_age() {
    let world = World::start();
    let (engine, other) = (world.engine(Some(OPTIONS)), world.engine(Some(OPTIONS)));
    let event = keyed("a");
    assert_eq!(reason(&engine, OMITTING, &event).await, Reason::FirstSeen);
    learn(&world, &other, &event).await;
    assert_eq!(forget(&engine, "orders", &event).await, 1);
    assert_eq!(reason(&other, OMITTING, &event).await, Reason::Redelivery);
    assert_eq!(known(&other, "orders"), 1);
    let pending = AdmitOptions {
        omit_claims: false,
        ..OMITTING
    };
    assert_eq!(reason(&engine, pending, &event).await, Reason::FirstSeen);
    assert_eq!(known(&engine, "orders"), 0);

    world.empty();
    world.clock.advance(MAX_AGE);
    assert_eq!(reason(&other, OMITTING, &event).await, Reason::FirstSeen);
}

/// A claim that another key of the event's plan found.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_near_is_not_known_either() {
    let world = World::start();
    let engine = world.engine(Some(OPTIONS));
    let options = omitting("crossings");
    let (before, after) = (transition("car", T0 - 1), transition("car", T0 + 1));
    assert_eq!(reason(&engine, options, &before).await, Reason::FirstSeen);
    assert_eq!(reason(&engine, options, &before).await, Reason::Redelivery);
    assert_eq!(known(&engine, "crossings"), 1);
    assert_eq!(forget(&engine, "crossings", &after).await, 1);
    assert_eq!(reason(&engine, options, &before).await, Reason::FirstSeen);
}

/// Of a request that was under way while somebody forgot.
#[tokio::test(flavor = "multi_thread")]
async fn what_was_told_before_it_was_forgotten_is_not_learnt() {
    let world = World::start();
    let engine = world.engine(Some(KnownOptions {
        settled_after: Duration::ZERO,
        ..OPTIONS
    }));
    let other = world.engine(None);
    let event = keyed("a");
    assert_eq!(reason(&other, OMITTING, &event).await, Reason::FirstSeen);
    let told = submit(&engine, OMITTING, &[event]);
    assert_eq!(forget(&engine, "orders", &event).await, 1);
    let told = told.finish().await;
    assert_eq!(told.verdicts()[0].reason, Reason::Redelivery);
    told.delivered();
    let own = admit(&engine, OMITTING, &[event]).await;
    assert_eq!(own.verdicts()[0].reason, Reason::FirstSeen);
    assert_eq!(forget(&engine, "orders", &event).await, 1);
    own.delivered();
    assert_eq!(reason(&engine, OMITTING, &event).await, Reason::FirstSeen);
    assert_eq!(known(&engine, "orders"), 0);
}
