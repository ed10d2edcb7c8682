//! Tokens of claims that were made in an outage: settled before, during and after the write-back,
//! here and through another pod.

use std::sync::Arc;

use dedupd::grpc::proto::{
    Reason, ReleaseRequest, RenewRequest,
    SettleOutcome::{self, AlreadyApplied, AlreadyConfirmed, Applied, NotHeld, StoreUnavailable},
};

use super::{
    super::world::{confirm, reasons},
    *,
};

const LEASE: Duration = Duration::from_secs(30);
const HOUR: Duration = Duration::from_secs(3600);

async fn release(client: &mut Client, claim: &[u8]) -> SettleOutcome {
    let claims = vec![claim.to_vec().into()];
    let answer = client.release(ReleaseRequest { claims }).await;
    let answer = answer.expect("an answer").into_inner();
    answer.outcomes().next().expect("one")
}

async fn renew(client: &mut Client, claim: &[u8]) -> SettleOutcome {
    let claims = vec![claim.to_vec().into()];
    let answer = client.renew(RenewRequest { claims }).await;
    let answer = answer.expect("an answer").into_inner();
    answer.outcomes().next().expect("one")
}

async fn fallback(world: &mut World, namespace: &str, id: &str) -> Vec<u8> {
    let verdict = one(&mut world.client, namespace, id).await;
    is_fallback(&verdict);
    verdict.claim.to_vec()
}

#[tokio::test(flavor = "multi_thread")]
async fn c14_tokens_are_settled_in_the_outage_and_their_state_is_written() {
    let mut world = world().await;
    part(&mut world).await;
    let [confirmed, released, renewed, open] =
        ["confirmed", "released", "renewed", "open"].map(str::to_owned);
    let token = fallback(&mut world, "held", &confirmed).await;
    assert_eq!(world.confirm(&token).await, Applied);
    assert_eq!(world.confirm(&token).await, AlreadyApplied);
    assert_eq!(world.release(&token).await, AlreadyConfirmed);
    let token = fallback(&mut world, "held", &released).await;
    assert_eq!(world.release(&token).await, Applied);
    // Whether Redis has it is not known while Redis is away.
    assert_eq!(world.release(&token).await, StoreUnavailable);
    let second = fallback(&mut world, "held", &released).await;
    assert_eq!(world.release(&second).await, Applied);
    let token = fallback(&mut world, "held", &renewed).await;
    assert_eq!(renew(&mut world.client, &token).await, Applied);
    let claimed = fallback(&mut world, "local", &open).await;
    assert_eq!(renew(&mut world.client, &claimed).await, AlreadyApplied);
    join(&world);
    until_written_back(&world).await;
    check_in_redis(&world, "held:confirmed", CONFIRMED, HOUR);
    check_in_redis(&world, "held:renewed", PENDING, LEASE);
    check_in_redis(&world, "local:open", CLAIMED, HOUR);
    assert_eq!(in_redis(&world, "held:released"), None);
    assert_eq!(world.metric("dedupd_local_claims_written_back_total"), 3.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn c14_tokens_are_settled_elsewhere_once_their_claims_are_written() {
    let mut world = world().await;
    let (_other, mut others) = other_pod(&world).await;
    part(&mut world).await;
    let mut tokens = Vec::new();
    for id in ["a", "b", "c", "d"] {
        tokens.push(fallback(&mut world, "held", id).await);
    }
    for token in &tokens {
        assert_eq!(confirm(&mut others, token).await, StoreUnavailable);
        assert_eq!(release(&mut others, token).await, StoreUnavailable);
        assert_eq!(renew(&mut others, token).await, StoreUnavailable);
    }
    join(&world);
    until_written_back(&world).await;
    // Written: through either pod.
    assert_eq!(renew(&mut others, &tokens[0]).await, Applied);
    assert_eq!(confirm(&mut others, &tokens[0]).await, Applied);
    assert_eq!(world.confirm(&tokens[0]).await, AlreadyApplied);
    assert_eq!(world.confirm(&tokens[1]).await, Applied);
    assert_eq!(confirm(&mut others, &tokens[1]).await, AlreadyApplied);
    assert_eq!(release(&mut others, &tokens[2]).await, Applied);
    // Gone since: only the pod that made the claim knows that it was written.
    assert_eq!(world.release(&tokens[2]).await, NotHeld);
    assert_eq!(world.confirm(&tokens[2]).await, NotHeld);
    assert_eq!(confirm(&mut others, &tokens[2]).await, StoreUnavailable);
    // Another's by now.
    assert_eq!(world.release(&tokens[3]).await, Applied);
    let theirs = one(&mut others, "held", "d").await;
    assert_eq!(theirs.reason(), Reason::FirstSeen);
    assert_eq!(confirm(&mut others, &tokens[3]).await, NotHeld);
    assert_eq!(world.confirm(&tokens[3]).await, NotHeld);
}

/// Claims that are written, with the answer still under way.
async fn being_written(world: &mut World, namespace: &str, ids: &[String]) -> Vec<Vec<u8>> {
    part(world).await;
    let mut tokens = Vec::new();
    for id in ids {
        tokens.push(fallback(world, namespace, id).await);
    }
    // Time to hold the answer that matters.
    world.proxy.delay_replies(AMPLE / 2);
    join(world);
    for (number, id) in ids.iter().enumerate() {
        let within = WRITTEN_BACK + SLACK;
        world.until_stands(namespace, id, true, within).await;
        if number == 0 {
            world.proxy.hold_replies();
        }
    }
    assert_eq!(world.metric("dedupd_local_claims_written_back_total"), 0.0);
    tokens
}

/// Released when Redis had the claim already but the pod did not know it yet.
#[tokio::test(flavor = "multi_thread")]
async fn c06_what_is_settled_while_it_is_being_written_is_settled_in_redis() {
    let mut world = world().await;
    let (_other, mut others) = other_pod(&world).await;
    let ids = fresh_ids(3);
    let tokens = being_written(&mut world, "local", &ids).await;
    let mut client = world.client.clone();
    let proxy = Arc::clone(&world.proxy);
    let (released, confirmed, ()) = tokio::join!(
        release(&mut world.client, &tokens[0]),
        confirm(&mut client, &tokens[1]),
        async move {
            time::sleep(Duration::from_millis(10)).await;
            proxy.pass();
        },
    );
    assert_eq!((released, confirmed), (Applied, Applied));
    let redelivered = one(&mut others, "local", &ids[0]).await;
    assert_eq!(redelivered.reason(), Reason::FirstSeen);
    until_written_back(&world).await;
    check_in_redis(&world, &format!("local:{}", ids[1]), CONFIRMED, HOUR);
    check_in_redis(&world, &format!("local:{}", ids[2]), CLAIMED, HOUR);
    time::sleep(SECOND_WITHDRAWAL).await;
    let copy = one(&mut others, "local", &ids[0]).await;
    assert_eq!(copy.reason(), Reason::Redelivery, "its new holder has it");
    assert_eq!(double_admissions(&world, "local"), 0.0);
}

/// Longer than a lane waits before it gives back a second time.
const SECOND_WITHDRAWAL: Duration = Duration::from_millis(2200);

/// The batch was written, its answer was lost, and Redis was away again when claims were released.
#[tokio::test(flavor = "multi_thread")]
async fn c06_what_was_released_after_a_lost_answer_is_withdrawn() {
    let mut world = world().await;
    let (_other, mut others) = other_pod(&world).await;
    let ids = fresh_ids(3);
    let tokens = being_written(&mut world, "local", &ids).await;
    part(&mut world).await;
    world.proxy.pass();
    assert_eq!(world.metric("dedupd_local_claims"), 3.0);
    assert_eq!(world.release(&tokens[0]).await, Applied);
    assert_eq!(world.confirm(&tokens[1]).await, Applied);
    for id in &ids {
        assert!(world.stands("local", id), "Redis does not know");
    }
    join(&world);
    until_written_back(&world).await;
    world.until_stands("local", &ids[0], false, SLACK).await;
    check_in_redis(&world, &format!("local:{}", ids[1]), CONFIRMED, HOUR);
    check_in_redis(&world, &format!("local:{}", ids[2]), CLAIMED, HOUR);
    assert_eq!(double_admissions(&world, "local"), 0.0);
    let verdicts = admit(&mut others, "local", &ids, "").await;
    assert_eq!(
        reasons(&verdicts),
        [Reason::FirstSeen, Reason::Redelivery, Reason::Redelivery]
    );
}

/// With nothing left in the embedded store the withdrawal was forgotten.
#[tokio::test(flavor = "multi_thread")]
async fn c06_the_last_claim_of_an_outage_is_withdrawn_too() {
    let mut world = world().await;
    let ids = fresh_ids(1);
    let tokens = being_written(&mut world, "local", &ids).await;
    part(&mut world).await;
    world.proxy.pass();
    assert_eq!(world.release(&tokens[0]).await, Applied);
    assert_eq!(world.metric("dedupd_local_claims"), 0.0);
    assert!(world.stands("local", &ids[0]), "Redis does not know");
    join(&world);
    world
        .until_stands("local", &ids[0], false, WRITTEN_BACK + SLACK)
        .await;
}
