//! What Redis holds afterwards.

use dedupd::grpc::proto::{Reason, SettleOutcome};

use tokio::task::JoinSet;

use super::{
    super::world::{confirm, reasons, request_id},
    *,
};

const HOUR: Duration = Duration::from_secs(3600);

#[tokio::test(flavor = "multi_thread")]
async fn r11_an_outage_is_decided_here_and_known_to_all_afterwards() {
    let mut world = world().await;
    world.redis.kill();
    let ids = fresh_ids(1000);
    for chunk in ids.chunks(50) {
        let begun = Instant::now();
        let first = admit(&mut world.client, "local", chunk, "").await;
        first.iter().for_each(is_fallback);
        let copies = admit(&mut world.client, "local", chunk, "").await;
        assert_eq!(reasons(&copies), [Reason::Redelivery; 50]);
        assert!(copies.iter().all(|copy| copy.degraded));
        assert!(begun.elapsed() < AMPLE + SLACK);
    }
    assert_eq!(world.metric("dedupd_local_claims"), 1000.0);
    assert!(world.metric("dedupd_local_bytes") > 0.0);
    world.redis.restart();
    let back = Instant::now();
    until_written_back(&world).await;
    eprintln!(
        "1000 claims were written {:?} after the restart",
        back.elapsed()
    );
    assert_eq!(
        world.metric("dedupd_local_claims_written_back_total"),
        1000.0
    );
    assert_eq!(world.metric("dedupd_local_claims_expired_total"), 0.0);
    assert_eq!(double_admissions(&world, "local"), 0.0);
    for id in ids.iter().step_by(99) {
        check_in_redis(&world, &format!("local:{id}"), CLAIMED, HOUR);
    }
    let (_other, mut others) = other_pod(&world).await;
    for chunk in ids.chunks(50) {
        for client in [&mut others, &mut world.client] {
            let copies = admit(client, "local", chunk, "").await;
            assert_eq!(reasons(&copies), [Reason::Redelivery; 50]);
            assert!(copies.iter().all(|copy| !copy.degraded));
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r11_what_both_pods_admitted_is_counted_and_left_to_the_first() {
    let mut world = world().await;
    let (_other, mut others) = other_pod(&world).await;
    let before = one(&mut world.client, "held", "before").await;
    assert_eq!(before.reason(), Reason::FirstSeen);
    part(&mut world).await;
    let ours = one(&mut world.client, "held", "both").await;
    is_fallback(&ours);
    let theirs = one(&mut others, "held", "both").await;
    assert_eq!(theirs.reason(), Reason::FirstSeen);
    let again = one(&mut world.client, "held", "before").await;
    is_fallback(&again);
    for (id, command) in [("foreign", "SET"), ("list", "RPUSH")] {
        is_fallback(&one(&mut world.client, "held", id).await);
        world.redis.cli(&[command, &format!("held:{id}"), "1"]);
    }
    is_fallback(&one(&mut world.client, "held", "ours").await);
    join(&world);
    until_written_back(&world).await;
    assert_eq!(double_admissions(&world, "held"), 4.0);
    assert_eq!(world.metric("dedupd_local_claims_written_back_total"), 1.0);
    check_in_redis(&world, "held:ours", PENDING, Duration::from_secs(30));
    assert_eq!(world.redis.cli(&["GET", "held:foreign"]), "1");
    for lost in [&ours, &again] {
        assert_eq!(world.confirm(&lost.claim).await, SettleOutcome::NotHeld);
        assert_eq!(
            confirm(&mut others, &lost.claim).await,
            SettleOutcome::NotHeld
        );
    }
    assert_eq!(
        confirm(&mut others, &theirs.claim).await,
        SettleOutcome::Applied
    );
    assert_eq!(world.confirm(&before.claim).await, SettleOutcome::Applied);
}

/// Cut in the middle of the write-back, again and again: nothing is lost and nothing counts twice.
#[tokio::test(flavor = "multi_thread")]
async fn r11_an_outage_in_the_middle_of_the_write_back_only_delays_it() {
    const CLAIMS: usize = 2000;
    let mut world = world().await;
    part(&mut world).await;
    let ids = fresh_ids(CLAIMS);
    for chunk in ids.chunks(500) {
        let verdicts = admit(&mut world.client, "local", chunk, "").await;
        assert_eq!(reasons(&verdicts), [Reason::Fallback; 500]);
    }
    let mut outages = 0;
    while world.metric("dedupd_local_claims") > 0.0 {
        let written = world.metric("dedupd_local_claims_written_back_total");
        join(&world);
        let begun = Instant::now();
        while world.metric("dedupd_local_claims_written_back_total") == written
            && world.metric("dedupd_local_claims") > 0.0
        {
            assert!(begun.elapsed() < PATIENCE);
        }
        part(&mut world).await;
        outages += 1;
        // In the middle of it the claims that are left still decide.
        let held = world.metric("dedupd_local_claims");
        let copies = admit(&mut world.client, "local", &ids[..500], "").await;
        let (known, again): (Vec<_>, Vec<_>) = copies
            .iter()
            .partition(|copy| copy.reason() == Reason::Redelivery);
        assert!(again.iter().all(|copy| copy.reason() == Reason::Fallback));
        assert!(known.len() as f64 <= held);
        // They are ours, so that they are no double admissions under their own request id.
        let tokens: Vec<_> = again.iter().map(|copy| copy.claim.clone()).collect();
        for token in tokens {
            assert_eq!(world.release(&token).await, SettleOutcome::Applied);
        }
    }
    eprintln!("{outages} outages");
    assert!(outages > 1, "it was over before it was cut");
    join(&world);
    world.until_decided().await;
    assert_eq!(double_admissions(&world, "local"), 0.0);
    for chunk in ids.chunks(500) {
        let copies = admit(&mut world.client, "local", chunk, "").await;
        assert_eq!(reasons(&copies), [Reason::Redelivery; 500]);
    }
}

/// Redis took the commands, late: what they claim is the pod's own and not given back.
#[tokio::test(flavor = "multi_thread")]
async fn r11_a_hung_redis_executes_late_what_was_decided_here() {
    let mut world = world().await;
    world.redis.pause();
    let ids = fresh_ids(40);
    let begun = Instant::now();
    let mut calls = JoinSet::new();
    for (number, id) in ids.iter().enumerate() {
        let (mut client, id) = (world.client.clone(), id.clone());
        let namespace = ["local", "held"][number % 2];
        calls.spawn(async move { (id.clone(), one(&mut client, namespace, &id).await) });
    }
    let admitted = calls.join_all().await;
    let took = begun.elapsed();
    assert!(took < BUDGET + SLACK, "{took:?}");
    admitted
        .iter()
        .for_each(|(_, verdict)| is_fallback(verdict));
    until_tripped(&world.service, &mut world.client).await;
    let copy = one(&mut world.client, "local", &ids[0]).await;
    assert_eq!(copy.reason(), Reason::Redelivery);
    assert!(copy.degraded);
    world.redis.resume();
    until_written_back(&world).await;
    // What was not answered is given back once more.
    time::sleep(Duration::from_millis(2200)).await;
    let (_other, mut others) = other_pod(&world).await;
    for (number, id) in ids.iter().enumerate() {
        let (namespace, expected) =
            [("local", Reason::Redelivery), ("held", Reason::InFlight)][number % 2];
        let copy = one(&mut others, namespace, id).await;
        assert_eq!(copy.reason(), expected, "{namespace}:{id}");
    }
    for (_, verdict) in &admitted {
        assert_eq!(world.confirm(&verdict.claim).await, SettleOutcome::Applied);
    }
    for namespace in ["local", "held"] {
        assert_eq!(double_admissions(&world, namespace), 0.0);
    }
}

/// Errors that are no outage: the breaker admits all along.
#[tokio::test(flavor = "multi_thread")]
async fn r06_a_redis_that_is_full_is_written_to_when_there_is_room() {
    let mut world = world().await;
    world.redis.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    let ids = fresh_ids(50);
    let first = admit(&mut world.client, "local", &ids, "").await;
    first.iter().for_each(is_fallback);
    assert!(world.errors("oom") >= 50.0);
    let copies = admit(&mut world.client, "local", &ids, "").await;
    assert_eq!(reasons(&copies), [Reason::Redelivery; 50]);
    assert_eq!(
        world.metric(r#"dedupd_breaker_state{state="admitting"}"#),
        1.0
    );
    time::sleep(Duration::from_millis(300)).await;
    assert_eq!(world.metric("dedupd_local_claims"), 50.0);
    world.redis.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    until_written_back(&world).await;
    for id in &ids {
        check_in_redis(&world, &format!("local:{id}"), CLAIMED, HOUR);
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r11_the_embedded_store_has_a_bound_and_evicts_nothing() {
    let mut world = world_with(BUDGET, "1MiB").await;
    part(&mut world).await;
    let mut admitted = Vec::new();
    let begun = Instant::now();
    loop {
        let ids = fresh_ids(500);
        let verdicts = admit(&mut world.client, "local", &ids, "").await;
        let refused = verdicts
            .iter()
            .filter(|verdict| verdict.reason() == Reason::StoreUnavailable)
            .inspect(|verdict| assert!(verdict.degraded && verdict.retry_after.is_some()))
            .count();
        admitted.extend(
            ids.into_iter()
                .zip(verdicts)
                .filter(|(_, verdict)| verdict.reason() == Reason::Fallback)
                .map(|(id, _)| id),
        );
        if refused > 0 {
            break;
        }
        assert!(begun.elapsed() < SLACK, "{} fit", admitted.len());
    }
    eprintln!("{} claims fit into 1 MiB", admitted.len());
    assert!(world.metric("dedupd_local_bytes") <= f64::from(1 << 20));
    assert!(world.errors("full") > 0.0);
    for chunk in admitted.chunks(500) {
        let copies = admit(&mut world.client, "local", chunk, "").await;
        assert!(
            copies
                .iter()
                .all(|copy| copy.reason() == Reason::Redelivery)
        );
    }
    join(&world);
    let back = Instant::now();
    until_written_back(&world).await;
    eprintln!(
        "they were written {:?} after Redis was back",
        back.elapsed()
    );
    assert_eq!(
        world.metric("dedupd_local_claims_written_back_total"),
        admitted.len() as f64
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn r11_claims_that_expire_in_the_outage_are_forgotten() {
    let mut world = world().await;
    part(&mut world).await;
    let ids = fresh_ids(20);
    let first = admit(&mut world.client, "brief", &ids, "").await;
    first.iter().for_each(is_fallback);
    let kept = one(&mut world.client, "local", "kept").await;
    is_fallback(&kept);
    time::sleep(Duration::from_millis(250)).await;
    is_fallback(&one(&mut world.client, "brief", &ids[0]).await);
    time::sleep(Duration::from_millis(250)).await;
    join(&world);
    until_written_back(&world).await;
    assert_eq!(world.metric("dedupd_local_claims_expired_total"), 21.0);
    assert_eq!(world.metric("dedupd_local_claims_written_back_total"), 1.0);
}

/// A call that is retried under its request id, its first answer lost: before, in and after the
/// outage it is the same holder.
#[tokio::test(flavor = "multi_thread")]
async fn r01_a_retry_is_recognised_across_the_outage_and_the_recovery() {
    let mut world = world().await;
    let (_other, mut others) = other_pod(&world).await;
    let (early, late) = (request_id(), request_id());
    let before = admit(&mut world.client, "held", &["early"], &early).await;
    assert_eq!(reasons(&before), [Reason::FirstSeen]);
    part(&mut world).await;
    for _ in 0..2 {
        for (id, event) in [(&early, "early"), (&late, "late")] {
            let retry = admit(&mut world.client, "held", &[event], id).await;
            is_fallback(&retry[0]);
        }
    }
    let copy = one(&mut world.client, "held", "late").await;
    assert_eq!(copy.reason(), Reason::InFlight);
    assert!(copy.degraded && copy.retry_after.is_some());
    join(&world);
    until_written_back(&world).await;
    assert_eq!(double_admissions(&world, "held"), 0.0);
    for (id, event) in [(&early, "early"), (&late, "late")] {
        let copy = one(&mut others, "held", event).await;
        assert_eq!(copy.reason(), Reason::InFlight);
        for client in [&mut others, &mut world.client] {
            let retry = admit(client, "held", &[event], id).await;
            assert_eq!(reasons(&retry), [Reason::FirstSeen]);
            assert!(!retry[0].degraded);
        }
    }
    assert_eq!(
        world.confirm(&before[0].claim).await,
        SettleOutcome::Applied
    );
    let retry = admit(&mut world.client, "held", &["early"], &early).await;
    assert_eq!(reasons(&retry), [Reason::Redelivery]);
}

#[tokio::test(flavor = "multi_thread")]
async fn o02_claims_that_are_not_written_when_the_service_stops_are_named() {
    let mut world = world().await;
    part(&mut world).await;
    is_fallback(&one(&mut world.client, "local", "lost").await);
    drop(world.client);
    world.service.sigterm();
    assert_eq!(world.service.wait_exit(Duration::from_secs(5) + SLACK), 0);
    let line = world.service.wait_log("were not written", SLACK);
    assert!(line.contains(r#""claims":1"#), "{line}");
}
