//! Who holds a claim, and for how long.

use std::time::{Duration, Instant};

use dedupd::grpc::proto::{
    ConfirmRequest, Decision, Event,
    Reason::{FirstSeen, InFlight, Late, Redelivery},
    ReleaseRequest,
    SettleOutcome::{self, AlreadyApplied, AlreadyConfirmed, Applied, Malformed, NotHeld},
    StreamRequest, Verdict,
    dedup_service_client::DedupServiceClient,
    stream_request::Operation,
};
use tokio::time;
use tonic::Request;

use super::{leased, usual};
use crate::client::{
    EVERY_STORE, World, connect,
    events::{MINUTE, T0, enter, keyed, ping, timestamp},
    request,
};

/// Admits an event that must be new, and keeps its claim.
async fn hold(world: &World, event: &Event) -> Verdict {
    let verdict = world.admit_one("orders", event).await;
    world.check_verdict(&verdict, FirstSeen, "to hold");
    verdict
}

async fn check_in_flight(world: &World, event: &Event) {
    let verdict = world.admit_one("orders", event).await;
    world.check_verdict(&verdict, InFlight, "held by another");
    let hint = verdict.retry_after.expect("a polling hint");
    assert_eq!((hint.seconds, hint.nanos), (0, 200_000_000));
    assert!(verdict.claim.is_empty());
}

#[tokio::test(flavor = "multi_thread")]
async fn c01_a_late_holder_cannot_release_the_next_ones_claim() {
    let event = keyed("c01");
    for kept in EVERY_STORE {
        let world = World::start(kept, &leased("1s")).await;
        let late = hold(&world, &event).await;
        let next = world.admit_at_last("orders", &event).await;
        world.check_verdict(&next, FirstSeen, "after the lease");
        assert_eq!(world.release(&late).await, NotHeld);
        assert_eq!(world.renew(&late).await, NotHeld);
        assert_eq!(world.confirm(&late).await, NotHeld);
        check_in_flight(&world, &event).await;
        assert_eq!(world.confirm(&next).await, Applied);
        world.check("orders", &[(event.clone(), Redelivery)]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c03_a_dead_holder_blocks_for_one_lease() {
    const LEASE: Duration = Duration::from_secs(1);
    let event = keyed("c03");
    for kept in EVERY_STORE {
        let world = World::start(kept, &leased("1s")).await;
        let begun = Instant::now();
        let mut doomed = DedupServiceClient::new(connect(&world.service).await);
        let batch = StreamRequest {
            batch_id: 1,
            operation: Some(Operation::Admit(request("orders", vec![event.clone()]))),
        };
        let answers = doomed
            .stream(tokio_stream::once(batch))
            .await
            .expect("a stream");
        let answer = answers
            .into_inner()
            .message()
            .await
            .expect("open")
            .expect("an answer");
        assert_eq!(answer.batch_id, 1);
        drop(doomed);
        check_in_flight(&world, &event).await;
        let next = world.admit_at_last("orders", &event).await;
        world.check_verdict(&next, FirstSeen, "after the lease");
        let blocked = begun.elapsed();
        assert!(blocked >= LEASE, "{blocked:?}: given up with the stream");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c04_a_lease_is_not_cut_to_the_calls_deadline() {
    const DEADLINE: Duration = Duration::from_millis(500);
    let event = keyed("c04");
    let config = leased("1h").replace("600s", "2h");
    for kept in EVERY_STORE {
        let world = World::start(kept, &config).await;
        let mut call = Request::new(request("orders", vec![event.clone()]));
        call.set_timeout(DEADLINE);
        let answer = world
            .dedup()
            .admit(call)
            .await
            .expect("in time")
            .into_inner();
        assert_eq!(answer.lease.map(|lease| lease.seconds), Some(3600));
        let held = answer.verdicts[0].clone();
        time::sleep(DEADLINE + Duration::from_millis(100)).await;
        check_in_flight(&world, &event).await;

        let left = async || {
            let found = world.explain("orders", &event).await.claims.remove(0);
            found.expires_in.expect("ours expire").seconds
        };
        // 50 minutes pass, where they can be made to.
        if let Some(redis) = world.redis() {
            assert_eq!(redis.cli(&["PEXPIRE", "orders:c04", "600000"]), "1");
            assert!(left().await <= 600);
        }
        assert_eq!(world.renew(&strangers(&held)).await, NotHeld);
        assert_eq!(world.renew(&held).await, Applied);
        let lease = left().await;
        assert!((3590..=3600).contains(&lease), "{lease} s");
    }
}

/// The same claim with another nonce.
fn strangers(verdict: &Verdict) -> Verdict {
    // The last byte of the nonce counts attempts and does not matter.
    const ATTEMPT: usize = 16;
    let mut claim = verdict.claim.to_vec();
    claim[ATTEMPT - 1] ^= 0xff;
    Verdict {
        claim: claim.into(),
        ..verdict.clone()
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c06_an_unconfirmed_claim_never_suppresses() {
    let (failed, dead) = (keyed("failed"), keyed("dead"));
    for kept in EVERY_STORE {
        let world = World::start(kept, &leased("1s")).await;
        hold(&world, &dead).await;
        let first = hold(&world, &failed).await;
        assert_eq!(world.release(&first).await, Applied);
        let rows = [(failed.clone(), FirstSeen), (failed.clone(), Redelivery)];
        world.check("orders", &rows).await;
        let next = world.admit_at_last("orders", &dead).await;
        assert_eq!(next.decision(), Decision::Admit, "{next:?}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c07_a_held_event_is_not_acknowledged() {
    let event = keyed("c07");
    for kept in EVERY_STORE {
        let world = World::start(kept, &leased("30s")).await;
        let a = hold(&world, &event).await;
        check_in_flight(&world, &event).await;
        check_in_flight(&world, &event).await;
        assert_eq!(world.release(&a).await, Applied);
        world.check("orders", &[(event.clone(), FirstSeen)]).await;
    }
}

/// A lease shorter than the usual hint is over sooner.
#[tokio::test(flavor = "multi_thread")]
async fn c07_the_polling_hint_is_at_most_the_lease() {
    let event = keyed("c07");
    for kept in EVERY_STORE {
        let world = World::start(kept, &leased("150ms")).await;
        let copies = world
            .admit("orders", vec![event.clone(), event.clone()])
            .await;
        world.check_verdict(&copies[1], InFlight, "a copy");
        let hint = copies[1].retry_after.expect("a polling hint");
        assert_eq!((hint.seconds, hint.nanos), (0, 150_000_000));
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c08_a_confirmed_event_is_acknowledged_at_every_redelivery() {
    let event = enter("a", T0);
    for kept in EVERY_STORE {
        let world = World::start(kept, &leased("30s")).await;
        world.check("crossings", &[(event.clone(), Late)]).await;
        for _ in 0..5 {
            let verdict = world.admit_one("crossings", &event).await;
            world.check_verdict(&verdict, Redelivery, "confirmed");
            assert_eq!(verdict.first_occurred_at, Some(timestamp(T0)));
            assert_eq!(verdict.retry_after, None);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c13_a_token_settles_its_own_claim_whatever_became_of_the_event() {
    let (event, changed) = (ping("a", T0), ping("a", T0 + 90 * MINUTE));
    for kept in EVERY_STORE {
        let world = World::start(kept, &leased("30s")).await;
        let held = world.admit_one("pings", &event).await;
        world.check_verdict(&held, Late, "first");
        assert_eq!(world.confirm(&held).await, Applied);
        let rows = [(event.clone(), Redelivery), (changed.clone(), Late)];
        world.check("pings", &rows).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c14_double_foreign_and_late_releases_change_nothing() {
    for (config, lease) in [(leased("30s"), true), (usual(), false)] {
        for kept in EVERY_STORE {
            let world = World::start(kept, &config).await;
            let twice = hold(&world, &keyed("twice")).await;
            assert_eq!(world.release(&twice).await, Applied);
            assert_eq!(world.release(&twice).await, NotHeld);

            let held = hold(&world, &keyed("held")).await;
            assert_eq!(world.release(&strangers(&held)).await, NotHeld);
            assert_eq!(
                world.renew(&held).await,
                if lease { Applied } else { AlreadyApplied }
            );
            assert_eq!(world.confirm(&held).await, Applied);
            assert_eq!(world.release(&held).await, AlreadyConfirmed);
            assert_eq!(world.release(&strangers(&held)).await, NotHeld);
            world.check("orders", &[(keyed("held"), Redelivery)]).await;

            let Some(redis) = world.redis() else { continue };
            assert_eq!(redis.cli(&["DEL", "orders:held"]), "1");
            assert_eq!(world.release(&held).await, NotHeld);
            assert_eq!(world.confirm(&held).await, NotHeld);
            assert_eq!(redis.cli(&["EXISTS", "orders:held"]), "0", "brought back");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn c14_what_is_no_token_is_malformed_and_spoils_no_other() {
    for kept in EVERY_STORE {
        let world = World::start(kept, &leased("30s")).await;
        let held = hold(&world, &keyed("held")).await.claim.to_vec();
        let cut = held[..held.len() / 4].to_vec();
        let mut elsewhere = held.clone();
        elsewhere[1] ^= 0xff;
        let claims = [
            Vec::new(),
            b"nonsense".to_vec(),
            cut,
            elsewhere,
            vec![0xff; 700],
            held,
        ];
        let claims: Vec<_> = claims.into_iter().map(Into::into).collect();
        let expected = [
            Malformed, Malformed, Malformed, Malformed, Malformed, Applied,
        ];
        let released = world
            .dedup()
            .release(ReleaseRequest {
                claims: claims.clone(),
            })
            .await;
        let released: Vec<SettleOutcome> =
            released.expect("an answer").get_ref().outcomes().collect();
        assert_eq!(released, expected);
        let confirmed = world.dedup().confirm(ConfirmRequest { claims }).await;
        let confirmed: Vec<SettleOutcome> =
            confirmed.expect("an answer").get_ref().outcomes().collect();
        assert_eq!(confirmed[5], NotHeld);
    }
}
