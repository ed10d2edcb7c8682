//! The four operations on one stream.

use dedupd::grpc::proto::{
    self as pb, Reason, SettleOutcome, dedup_service_client::DedupServiceClient,
    stream_request::Operation, stream_response::Result as Outcome,
};
use tokio::sync::mpsc;
use tokio_stream::{StreamExt, wrappers::ReceiverStream};
use tonic::{Code, Streaming, transport::Channel};

use super::server::{LIMITS, PANICS, Server, admit, keyed};

pub(super) fn request(batch_id: u64, operation: Operation) -> pb::StreamRequest {
    pb::StreamRequest {
        batch_id,
        operation: Some(operation),
    }
}

pub(super) fn admission(batch_id: u64, id: &str) -> pb::StreamRequest {
    request(batch_id, Operation::Admit(admit("orders", vec![keyed(id)])))
}

pub(super) type Requests = mpsc::Sender<pb::StreamRequest>;

pub(super) async fn open(
    client: &mut DedupServiceClient<Channel>,
) -> (Requests, Streaming<pb::StreamResponse>) {
    let (requests, receiver) = mpsc::channel(64);
    let answers = client
        .stream(ReceiverStream::new(receiver))
        .await
        .expect("a stream")
        .into_inner();
    (requests, answers)
}

pub(super) async fn next(answers: &mut Streaming<pb::StreamResponse>) -> (u64, Outcome) {
    let answer = answers
        .message()
        .await
        .expect("the stream lives")
        .expect("an answer");
    (answer.batch_id, answer.result.expect("a result"))
}

#[track_caller]
fn reasons(outcome: &Outcome) -> Vec<Reason> {
    let Outcome::Admit(answer) = outcome else {
        panic!("{outcome:?}")
    };
    answer.verdicts.iter().map(pb::Verdict::reason).collect()
}

#[tokio::test]
async fn g05_a_half_close_right_after_the_last_event_loses_nothing() {
    let server = Server::start().await;
    let mut client = server.dedup().await;
    let requests: Vec<_> = (0..1000)
        .map(|number| admission(number, &number.to_string()))
        .collect();
    let mut answers = client
        .stream(tokio_stream::iter(requests))
        .await
        .expect("a stream")
        .into_inner();
    for number in 0..1000 {
        let (batch_id, outcome) = next(&mut answers).await;
        assert_eq!(
            (batch_id, reasons(&outcome)),
            (number, vec![Reason::FirstSeen])
        );
    }
    assert!(answers.message().await.expect("status OK").is_none());
}

#[tokio::test]
async fn g05_a_stream_without_a_message_ends_ok_at_once() {
    let server = Server::start().await;
    let requests = tokio_stream::empty::<pb::StreamRequest>();
    let mut answers = server
        .dedup()
        .await
        .stream(requests)
        .await
        .expect("a stream")
        .into_inner();
    assert!(answers.message().await.expect("status OK").is_none());
}

#[tokio::test]
async fn answers_come_in_order_and_operations_take_effect_as_sent() {
    let server = Server::start().await;
    let (requests, mut answers) = open(&mut server.dedup().await).await;
    server.hold_answers();
    for number in 0..8 {
        requests
            .send(admission(number, "the same"))
            .await
            .expect("open");
    }
    server.wait_in_flight(8).await;
    server.release_answers();
    let (_, first) = next(&mut answers).await;
    let Outcome::Admit(answer) = &first else {
        panic!("{first:?}")
    };
    let claims = vec![answer.verdicts[0].claim.clone()];
    for number in 1..8 {
        let (batch_id, outcome) = next(&mut answers).await;
        assert_eq!(
            (batch_id, reasons(&outcome)),
            (number, vec![Reason::InFlight])
        );
    }
    let renew = Operation::Renew(pb::RenewRequest {
        claims: claims.clone(),
    });
    let confirm = Operation::Confirm(pb::ConfirmRequest {
        claims: claims.clone(),
    });
    let release = Operation::Release(pb::ReleaseRequest { claims });
    for (batch_id, operation) in [(8, renew), (9, confirm), (10, release)] {
        requests
            .send(request(batch_id, operation))
            .await
            .expect("open");
    }
    requests
        .send(admission(11, "the same"))
        .await
        .expect("open");
    let renewed = pb::RenewResponse {
        outcomes: vec![SettleOutcome::Applied.into()],
    };
    assert_eq!(next(&mut answers).await, (8, Outcome::Renew(renewed)));
    let confirmed = pb::ConfirmResponse {
        outcomes: vec![SettleOutcome::Applied.into()],
    };
    assert_eq!(next(&mut answers).await, (9, Outcome::Confirm(confirmed)));
    let released = pb::ReleaseResponse {
        outcomes: vec![SettleOutcome::AlreadyConfirmed.into()],
    };
    assert_eq!(next(&mut answers).await, (10, Outcome::Release(released)));
    let (batch_id, outcome) = next(&mut answers).await;
    assert_eq!(
        (batch_id, reasons(&outcome)),
        (11, vec![Reason::Redelivery])
    );
}

#[tokio::test]
async fn at_most_sixteen_requests_of_a_stream_are_under_way() {
    let server = Server::start().await;
    server.hold_answers();
    let (requests, mut answers) = open(&mut server.dedup().await).await;
    for number in 0..40 {
        requests
            .send(admission(number, &number.to_string()))
            .await
            .expect("open");
    }
    server.wait_in_flight(16).await;
    tokio::time::sleep(std::time::Duration::from_millis(50)).await;
    assert_eq!(server.in_flight.in_flight(), 16);
    server.release_answers();
    for number in 0..40 {
        assert_eq!(next(&mut answers).await.0, number);
    }
    server.wait_in_flight(0).await;
}

#[tokio::test]
async fn a_refused_operation_is_an_answer_and_the_stream_lives_on() {
    let server = Server::start().await;
    let (requests, mut answers) = open(&mut server.dedup().await).await;
    let bad_id = pb::AdmitRequest {
        request_id: "x".to_owned(),
        ..admit("orders", vec![keyed("id")])
    };
    let large = (0..200)
        .map(|number| keyed(&format!("{number:0>16}")))
        .collect();
    let rows = [
        (
            Operation::Admit(admit("nowhere", vec![keyed("id")])),
            Code::NotFound,
            "UNKNOWN_NAMESPACE",
        ),
        (
            Operation::Admit(admit("orders", vec![])),
            Code::InvalidArgument,
            "EMPTY_REQUEST",
        ),
        (
            Operation::Admit(bad_id),
            Code::InvalidArgument,
            "BAD_REQUEST_ID",
        ),
        (
            Operation::Admit(admit("orders", large)),
            Code::InvalidArgument,
            "RESPONSE_TOO_LARGE",
        ),
        (
            Operation::Release(pb::ReleaseRequest { claims: vec![] }),
            Code::InvalidArgument,
            "EMPTY_REQUEST",
        ),
    ];
    for (batch_id, (operation, code, reason)) in rows.into_iter().enumerate() {
        requests
            .send(request(batch_id as u64, operation))
            .await
            .expect("open");
        let (answered, outcome) = next(&mut answers).await;
        let Outcome::Error(error) = outcome else {
            panic!("{outcome:?}")
        };
        assert_eq!(
            (answered, error.code, error.reason.as_str()),
            (batch_id as u64, code as i32, reason)
        );
    }
    requests
        .send(pb::StreamRequest {
            batch_id: 98,
            operation: None,
        })
        .await
        .expect("open");
    let (batch_id, outcome) = next(&mut answers).await;
    let Outcome::Error(error) = outcome else {
        panic!("{outcome:?}")
    };
    assert_eq!((batch_id, error.reason.as_str()), (98, "NO_OPERATION"));
    requests.send(admission(97, PANICS)).await.expect("open");
    let (batch_id, outcome) = next(&mut answers).await;
    assert_eq!(
        (batch_id, reasons(&outcome)),
        (97, vec![Reason::StoreUnavailable])
    );
    requests.send(admission(99, "good")).await.expect("open");
    let (batch_id, outcome) = next(&mut answers).await;
    assert_eq!((batch_id, reasons(&outcome)), (99, vec![Reason::FirstSeen]));
    drop(requests);
    assert!(answers.message().await.expect("status OK").is_none());
}

#[tokio::test]
async fn a_message_that_cannot_be_read_ends_the_stream_after_the_answers_before_it() {
    let server = Server::start().await;
    let oversized = keyed(&"x".repeat(LIMITS.max_request_bytes + 1));
    let requests = vec![
        admission(1, "one"),
        request(2, Operation::Admit(admit("orders", vec![oversized]))),
        admission(3, "three"),
    ];
    let mut client = server.dedup().await;
    let mut answers = client
        .stream(tokio_stream::iter(requests))
        .await
        .expect("a stream")
        .into_inner();
    let (batch_id, outcome) = next(&mut answers).await;
    assert_eq!((batch_id, reasons(&outcome)), (1, vec![Reason::FirstSeen]));
    let status = answers
        .next()
        .await
        .expect("an end")
        .expect_err("unreadable");
    assert_eq!(status.code(), Code::OutOfRange, "{status:?}");
    assert_eq!(server.claims_met_by("orders", keyed("three")).await, 0);
}
