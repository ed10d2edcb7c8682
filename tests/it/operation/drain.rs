//! From a signal to the exit code.

use std::time::{Duration, Instant};

use dedupd::grpc::proto::{
    ConfirmRequest, SettleOutcome, StreamRequest, StreamResponse,
    dedup_service_client::DedupServiceClient, stream_request::Operation,
};
use tokio::{sync::mpsc, time};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{Code, Streaming, transport::Channel};

use super::{SLACK, admit, connect, order, orders, request};
use crate::support::service::Service;

/// A stream that has answered one batch, and the sender that keeps its client's side open.
async fn open_stream(
    client: &mut DedupServiceClient<Channel>,
) -> (mpsc::Sender<StreamRequest>, Streaming<StreamResponse>) {
    let (sender, receiver) = mpsc::channel(1);
    let operation = Some(Operation::Admit(request("orders", vec![order("streamed")])));
    sender
        .send(StreamRequest {
            batch_id: 7,
            operation,
        })
        .await
        .expect("room for one");
    let answers = client
        .stream(ReceiverStream::new(receiver))
        .await
        .expect("a stream");
    let mut answers = answers.into_inner();
    let first = answers
        .message()
        .await
        .expect("an answer")
        .expect("an open stream");
    assert_eq!(first.batch_id, 7);
    (sender, answers)
}

#[tokio::test(flavor = "multi_thread")]
async fn o02_calls_that_come_while_draining_are_served() {
    let quiet = Duration::from_millis(1500);
    let mut service = Service::start(&orders("drain: { quiet: 1500ms, deadline: 20s }"));
    let mut client = connect(&service).await;
    let claim = admit(&mut client, "worked on").await.verdicts[0]
        .claim
        .clone();
    service.sigterm();
    time::sleep(Duration::from_secs(1)).await;
    let (status, why) = service.http_get("/readyz");
    assert_eq!(status, 503);
    assert!(why.contains("draining"), "{why}");
    let confirmed = client
        .confirm(ConfirmRequest {
            claims: vec![claim],
        })
        .await;
    let confirmed_at = Instant::now();
    assert_eq!(
        confirmed.expect("an answer").into_inner().outcomes,
        [SettleOutcome::Applied as i32]
    );
    // The connection stays open: without a call it holds nothing.
    assert_eq!(service.wait_exit(quiet + SLACK), 0);
    assert!(
        confirmed_at.elapsed() >= quiet - Duration::from_millis(100),
        "the call did not count"
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn o02_an_idle_stream_does_not_hold_the_drain() {
    let mut service = Service::start(&orders("drain: { quiet: 200ms, deadline: 20s }"));
    let mut client = connect(&service).await;
    let (_sender, mut answers) = open_stream(&mut client).await;
    service.sigterm();
    let ended = time::timeout(SLACK, answers.message())
        .await
        .expect("the stream is ended");
    assert_eq!(
        ended.expect_err("ended by the service").code(),
        Code::Unavailable
    );
    assert_eq!(service.wait_exit(SLACK), 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn o02_the_deadline_ends_a_drain_that_calls_keep_alive() {
    let deadline = Duration::from_millis(1500);
    let mut service = Service::start(&orders("drain: { quiet: 1s, deadline: 1500ms }"));
    let mut client = connect(&service).await;
    let calls = tokio::spawn(async move {
        let mut answered = 0;
        while client
            .admit(request("orders", vec![order("again")]))
            .await
            .is_ok()
        {
            answered += 1;
            time::sleep(Duration::from_millis(50)).await;
        }
        answered
    });
    let begun = Instant::now();
    service.sigterm();
    assert_eq!(service.wait_exit(deadline + SLACK), 0);
    assert!(begun.elapsed() >= deadline - Duration::from_millis(100));
    service.wait_log("drain.deadline", SLACK);
    assert!(
        calls.await.expect("no panic") >= 10,
        "calls were not served while draining"
    );
}

#[test]
fn o02_a_second_interrupt_ends_it_at_once() {
    let mut service = Service::start(&orders("drain: { quiet: 10s, deadline: 20s }"));
    service.signal("INT");
    service.wait_log("draining", SLACK);
    service.signal("INT");
    assert_eq!(service.wait_exit(SLACK), 130);
}
