//! Callers who go away in mid-call.

use std::time::Duration;

use dedupd::grpc::proto::Reason;
use tokio::{task::JoinSet, time};
use tonic::{Code, Request};

use super::world::{AMPLE, World, admit, connect, fresh_ids, keyed, reasons, request, request_id};

/// Cancels the call once Redis has claimed its last event.
async fn cancelled(world: &World, namespace: &'static str, ids: &[String], request_id: &str) {
    world.proxy.hold_replies();
    let mut client = world.client.clone();
    let (owned, request_id) = (ids.to_vec(), request_id.to_owned());
    let call =
        tokio::spawn(async move { admit(&mut client, namespace, &owned, &request_id).await });
    for id in ids.iter().step_by(33) {
        world.until_stands(namespace, id, true, AMPLE / 2).await;
    }
    call.abort();
    until_none_in_flight(world).await;
}

async fn until_none_in_flight(world: &World) {
    while world.metric("dedupd_requests_in_flight") > 0.0 {
        time::sleep(Duration::from_millis(2)).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn g01_a_cancelled_batch_is_admitted_again_in_full() {
    let mut world = World::start(AMPLE * 2).await;
    for namespace in ["closed", "leased"] {
        let (ids, id) = (fresh_ids(100), request_id());
        cancelled(&world, namespace, &ids, &id).await;
        world.proxy.release_replies();
        let retry = admit(&mut world.client, namespace, &ids, &id).await;
        assert_eq!(reasons(&retry), [Reason::FirstSeen; 100], "{namespace}");
        time::sleep(Duration::from_millis(100)).await;
        let copies = admit(&mut world.client, namespace, &ids, "").await;
        assert!(
            copies
                .iter()
                .all(|copy| matches!(copy.reason(), Reason::Redelivery | Reason::InFlight)),
            "the retry holds all of them: {:?}",
            reasons(&copies)
        );
        // Another caller, later.
        let ids = fresh_ids(100);
        cancelled(&world, namespace, &ids, &request_id()).await;
        world.proxy.release_replies();
        world.until_stands(namespace, &ids[99], false, AMPLE).await;
        time::sleep(Duration::from_millis(50)).await;
        let others = admit(&mut world.client, namespace, &ids, "").await;
        assert_eq!(reasons(&others), [Reason::FirstSeen; 100], "{namespace}");
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn g01_another_caller_of_a_cancelled_batch_is_never_told_to_drop_it() {
    let mut world = World::start(AMPLE * 2).await;
    let ids = fresh_ids(100);
    cancelled(&world, "leased", &ids, "").await;
    world.proxy.release_replies();
    let others = admit(&mut world.client, "leased", &ids, "").await;
    assert!(
        others
            .iter()
            .all(|other| matches!(other.reason(), Reason::FirstSeen | Reason::InFlight)),
        "{:?}",
        reasons(&others)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn g01_a_call_whose_deadline_passes_gives_its_claim_back() {
    let mut world = World::start(AMPLE * 2).await;
    world.proxy.hold_replies();
    let mut call = Request::new(request("closed", vec![keyed("e")], ""));
    call.set_timeout(Duration::from_millis(150));
    let status = world.client.admit(call).await.expect_err("too late");
    // The client's own timer may win.
    assert!(
        matches!(status.code(), Code::DeadlineExceeded | Code::Cancelled),
        "{status:?}"
    );
    assert!(world.stands("closed", "e"));
    world.proxy.release_replies();
    world.until_stands("closed", "e", false, AMPLE).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn g01_a_thousand_cancelled_calls_leave_a_healthy_service() {
    let mut world = World::start(AMPLE * 5).await;
    world.proxy.hold_replies();
    let ids = fresh_ids(1000);
    // A few at a time, each time on a connection of their own: see the burst below.
    for chunk in ids.chunks(10) {
        let client = connect(&world.service).await;
        let mut calls = JoinSet::new();
        for id in chunk {
            let (mut client, id) = (client.clone(), id.clone());
            calls.spawn(async move { client.admit(request("closed", vec![keyed(&id)], "")).await });
        }
        time::sleep(Duration::from_millis(3)).await;
        calls.shutdown().await;
    }
    until_none_in_flight(&world).await;
    world.proxy.release_replies();
    time::sleep(AMPLE).await;
    assert_eq!(world.metric("dedupd_store_queued_events"), 0.0);
    assert_eq!(
        world.metric(r#"dedupd_breaker_state{state="admitting"}"#),
        1.0
    );
    for chunk in ids.chunks(100) {
        let verdicts = admit(&mut world.client, "closed", chunk, "").await;
        assert_eq!(reasons(&verdicts), [Reason::FirstSeen; 100]);
    }
}

/// The transport took a burst of cancelled calls for an attack, and ended the connection with all
/// other calls on it.
#[tokio::test(flavor = "multi_thread")]
async fn g01_a_burst_of_cancelled_calls_ends_no_other_call() {
    let world = World::start(AMPLE * 2).await;
    world.proxy.delay_replies(Duration::from_millis(100));
    for _ in 0..10 {
        let bystander = {
            let (mut client, ids) = (world.client.clone(), fresh_ids(1));
            tokio::spawn(async move {
                client
                    .admit(request("closed", vec![keyed(&ids[0])], ""))
                    .await
            })
        };
        time::sleep(Duration::from_millis(10)).await;
        let mut calls = JoinSet::new();
        for id in fresh_ids(200) {
            let mut client = world.client.clone();
            calls.spawn(async move { client.admit(request("closed", vec![keyed(&id)], "")).await });
        }
        time::sleep(Duration::from_millis(5)).await;
        calls.shutdown().await;
        let answer = bystander.await.expect("a task");
        assert!(answer.is_ok(), "{:?}", answer.expect_err("checked"));
    }
}
