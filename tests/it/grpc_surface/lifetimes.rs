//! How calls end before their answer: cancelled, out of time, drained.

use std::time::Duration;

use dedupd::grpc::proto::{
    self as pb, Reason, dedup_service_client::DedupServiceClient, stream_request::Operation,
    stream_response::Result as Outcome,
};
use tokio::time;
use tonic::{Code, Request, Status};
use tonic_types::StatusExt;

use super::{
    server::{Server, admit, keyed},
    streams::{admission, next, open, request},
};

const SOON: Duration = Duration::from_secs(5);

#[tokio::test]
async fn a_cancelled_call_gives_its_claims_back() {
    let server = Server::start().await;
    server.hold_answers();
    let mut client = server.dedup().await;
    let call = tokio::spawn(async move { client.admit(admit("events", vec![keyed("id")])).await });
    server.wait_in_flight(1).await;
    wait_claims(&server, "events", 1).await;
    call.abort();
    server.wait_in_flight(0).await;
    wait_claims(&server, "events", 0).await;
}

#[tokio::test]
async fn a_stream_dropped_before_its_answers_gives_their_claims_back() {
    let server = Server::start().await;
    let (requests, mut answers) = open(&mut server.dedup().await).await;
    requests.send(admission(1, "answered")).await.expect("open");
    next(&mut answers).await;
    server.hold_answers();
    requests.send(admission(2, "id")).await.expect("open");
    server.wait_in_flight(1).await;
    wait_claims(&server, "orders", 1).await;
    drop((requests, answers));
    server.wait_in_flight(0).await;
    wait_claims(&server, "orders", 0).await;
    server.release_answers();
    assert_eq!(
        server.claims_met_by("orders", keyed("answered")).await,
        1,
        "what was delivered stands"
    );
}

/// Such a batch is finished by a task of its own.
#[tokio::test]
async fn a_large_batch_of_a_dropped_stream_gives_its_claims_back() {
    let server = Server::start().await;
    let (requests, answers) = open(&mut server.dedup().await).await;
    server.hold_answers();
    let rest = (1..100).map(|number| keyed(&number.to_string()));
    let events = std::iter::once(keyed("id")).chain(rest).collect();
    let admit = Operation::Admit(admit("events", events));
    requests.send(request(1, admit)).await.expect("open");
    server.wait_in_flight(1).await;
    wait_claims(&server, "events", 1).await;
    drop((requests, answers));
    server.wait_in_flight(0).await;
    wait_claims(&server, "events", 0).await;
}

async fn wait_claims(server: &Server, namespace: &str, claims: usize) {
    let reached = async {
        while server.claims_met_by(namespace, keyed("id")).await != claims {
            time::sleep(Duration::from_millis(2)).await;
        }
    };
    time::timeout(SOON, reached)
        .await
        .unwrap_or_else(|_| panic!("not {claims} claims"));
}

/// The client of a channel has a timer of its own, which may win: without a channel only the
/// service's speaks.
#[tokio::test]
async fn a_passed_deadline_is_deadline_exceeded_and_gives_the_claims_back() {
    let server = Server::start().await;
    server.hold_answers();
    let mut client = DedupServiceClient::new(server.service.clone());
    for timeout in [Duration::from_millis(60), Duration::from_nanos(5)] {
        let mut request = Request::new(admit("events", vec![keyed("id")]));
        request.set_timeout(timeout);
        let status = client.admit(request).await.expect_err("out of time");
        assert_deadline_exceeded(&status);
        assert_eq!(server.claims_met_by("events", keyed("id")).await, 0);
    }
    assert_eq!(server.in_flight.in_flight(), 0);
}

#[tokio::test]
async fn a_stream_ends_at_its_deadline_too() {
    let server = Server::start().await;
    server.hold_answers();
    let mut client = DedupServiceClient::new(server.service.clone());
    let (requests, receiver) = tokio::sync::mpsc::channel(4);
    requests.send(admission(1, "id")).await.expect("open");
    let mut request = Request::new(tokio_stream::wrappers::ReceiverStream::new(receiver));
    request.set_timeout(Duration::from_millis(60));
    let mut answers = client.stream(request).await.expect("a stream").into_inner();
    let status = answers.message().await.expect_err("out of time");
    assert_deadline_exceeded(&status);
    assert_eq!(server.claims_met_by("orders", keyed("id")).await, 0);
    assert_eq!(server.in_flight.in_flight(), 0);
}

#[track_caller]
fn assert_deadline_exceeded(status: &Status) {
    assert_eq!(status.code(), Code::DeadlineExceeded, "{status:?}");
    let info = status.get_details_error_info().expect("an ErrorInfo");
    assert_eq!(info.reason, "DEADLINE_EXCEEDED");
}

#[tokio::test]
async fn a_drain_ends_idle_streams_and_lets_others_answer_first() {
    let server = Server::start().await;
    let mut client = server.dedup().await;
    let (_idle_requests, mut idle) = open(&mut client).await;
    server.hold_answers();
    let (requests, mut busy) = open(&mut client).await;
    requests.send(admission(1, "id")).await.expect("open");
    server.wait_in_flight(1).await;
    server.drain.begin();
    assert_unavailable(&idle.message().await.expect_err("drained"));
    assert_eq!(server.in_flight.in_flight(), 1);
    server.release_answers();
    let (batch_id, outcome) = next(&mut busy).await;
    let Outcome::Admit(answer) = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!(
        (batch_id, answer.verdicts[0].reason()),
        (1, Reason::FirstSeen)
    );
    assert_unavailable(&busy.message().await.expect_err("drained"));
    let claims = vec![answer.verdicts[0].claim.clone()];
    client
        .confirm(pb::ConfirmRequest { claims })
        .await
        .expect("calls that still come are served");
    let quiet = server.in_flight.quiet(Duration::from_millis(50));
    time::timeout(SOON, quiet)
        .await
        .expect("nothing is in flight");
}

#[track_caller]
fn assert_unavailable(status: &Status) {
    assert_eq!(status.code(), Code::Unavailable, "{status:?}");
    assert_eq!(
        status.get_details_error_info().map(|info| info.reason),
        Some("DRAINING".to_owned())
    );
}
