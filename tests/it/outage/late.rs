//! Commands that are executed though nobody waits for them any more, and giving back what they
//! claimed.

use std::time::{Duration, Instant};

use dedupd::grpc::proto::{Reason, SettleOutcome};
use tokio::time;

use super::{
    SLACK,
    world::{AMPLE, World, admit, confirm, connect, fresh_ids, reasons, request_id, serve},
};

/// Longer than a lane waits before it gives back a second time.
const SECOND_GIVE_BACK: Duration = Duration::from_millis(2200);

/// A first attempt whose connection died gave back the claim of its own retry: both have the same
/// nonce where the first one was never executed.
#[tokio::test(flavor = "multi_thread")]
async fn r01_the_give_back_of_a_cut_attempt_leaves_its_retry_alone() {
    let mut world = World::start(AMPLE).await;
    let id = request_id();
    world.proxy.black_hole();
    let mut client = world.client.clone();
    let first = tokio::spawn({
        let id = id.clone();
        async move { admit(&mut client, "closed", &["e"], &id).await }
    });
    time::sleep(AMPLE / 4).await;
    world.proxy.cut_connections();
    world.proxy.pass();
    let first = first.await.expect("an answer");
    assert_eq!(reasons(&first), [Reason::StoreUnavailable]);
    assert!(!world.stands("closed", "e"), "the first attempt was lost");
    let retry = admit(&mut world.client, "closed", &["e"], &id).await;
    assert_eq!(reasons(&retry), [Reason::FirstSeen]);
    assert_eq!(world.confirm(&retry[0].claim).await, SettleOutcome::Applied);
    time::sleep(SECOND_GIVE_BACK).await;
    assert_eq!(
        world.admit("closed", "e").await.reason(),
        Reason::Redelivery
    );
}

/// The same through two instances: what the first sends late gives back what the second admitted.
#[tokio::test(flavor = "multi_thread")]
async fn r01_a_late_attempt_leaves_the_retry_through_another_instance_alone() {
    let mut first = World::start(AMPLE).await;
    let other = serve(&first.redis.url(), AMPLE);
    let mut second = connect(&other).await;
    super::world::until_decided(&mut second).await;
    let id = request_id();
    first.proxy.black_hole();
    let lost = admit(&mut first.client, "closed", &["e"], &id).await;
    assert_eq!(reasons(&lost), [Reason::StoreUnavailable]);
    let retry = admit(&mut second, "closed", &["e"], &id).await;
    assert_eq!(reasons(&retry), [Reason::FirstSeen]);
    assert_eq!(
        confirm(&mut second, &retry[0].claim).await,
        SettleOutcome::Applied
    );
    first.proxy.pass();
    first.until_decided().await;
    time::sleep(Duration::from_millis(300)).await;
    let copy = admit(&mut second, "closed", &["e"], "").await;
    assert_eq!(reasons(&copy), [Reason::Redelivery]);
}

/// Leaves a claim in Redis whose answer was lost with its connection.
async fn cut_after_claim(world: &World, event: &str) {
    world.proxy.hold_replies();
    let mut client = world.client.clone();
    let ids = [event.to_owned()];
    let call = tokio::spawn(async move { admit(&mut client, "closed", &ids, "").await });
    world.until_stands("closed", event, true, AMPLE / 2).await;
    world.proxy.cut_connections();
    let answer = call.await.expect("an answer");
    world.proxy.release_replies();
    assert_eq!(reasons(&answer), [Reason::StoreUnavailable]);
    assert!(answer[0].degraded && answer[0].claim.is_empty() && answer[0].retry_after.is_some());
}

/// New work on the fresh connection was sent ahead of what had to be given back: the caller who
/// was told to ask again met the claim of its own first call.
#[tokio::test(flavor = "multi_thread")]
async fn r01_a_fresh_connection_gives_back_before_it_claims() {
    let mut world = World::start(AMPLE).await;
    cut_after_claim(&world, "e").await;
    assert_eq!(world.admit("closed", "e").await.reason(), Reason::FirstSeen);
}

/// Without further work no lane connected again, and the claim stayed for other instances to meet.
#[tokio::test(flavor = "multi_thread")]
async fn r01_a_cut_claim_is_given_back_without_further_calls() {
    let world = World::start(AMPLE).await;
    cut_after_claim(&world, "e").await;
    world.until_stands("closed", "e", false, SLACK).await;
}

/// What was due for its second time, later, stood before what was due now.
#[tokio::test(flavor = "multi_thread")]
async fn r01_a_second_cut_is_given_back_as_soon_as_the_first() {
    let mut world = World::start(AMPLE).await;
    cut_after_claim(&world, "one").await;
    world.until_decided().await;
    world.until_stands("closed", "one", false, SLACK).await;
    cut_after_claim(&world, "two").await;
    world.until_decided().await;
    world
        .until_stands("closed", "two", false, Duration::from_millis(700))
        .await;
}

/// One connection of two lost its way back; answers on the other one kept the breaker from
/// counting, and half of the subjects were answered by the failure mode for ever.
#[tokio::test(flavor = "multi_thread")]
async fn r01_one_deaf_connection_is_replaced_though_the_other_one_works() {
    let mut world = World::start(AMPLE / 4).await;
    world.proxy.swallow_replies(1);
    let begun = Instant::now();
    let mut failed = 0;
    let last = loop {
        let verdicts = admit(&mut world.client, "closed", &fresh_ids(16), "").await;
        let all = reasons(&verdicts) == [Reason::FirstSeen; 16];
        failed += usize::from(!all);
        if (all && failed > 0) || begun.elapsed() > Duration::from_secs(4) {
            break reasons(&verdicts);
        }
    };
    assert_eq!(
        last,
        [Reason::FirstSeen; 16],
        "after {failed} failed batches"
    );
}
