//! Requests that are refused as a whole, before anything is claimed.

use dedupd::grpc::proto as pb;
use tonic::{Code, Status};
use tonic_types::StatusExt;

use super::server::{LIMITS, MAX_EVENTS, Server, admit, keyed};

#[track_caller]
fn assert_fault(status: &Status, code: Code, reason: &str, field: Option<&str>) {
    assert_eq!(status.code(), code, "{status:?}");
    let details = status.get_error_details();
    let info = details.error_info().expect("an ErrorInfo");
    assert_eq!(
        (info.reason.as_str(), info.domain.as_str()),
        (reason, "dedupd")
    );
    let named = details
        .bad_request()
        .and_then(|bad| bad.field_violations.first());
    assert_eq!(named.map(|violation| violation.field.as_str()), field);
}

#[tokio::test]
async fn whole_request_faults_carry_details_and_claim_nothing() {
    let server = Server::start().await;
    let mut client = server.dedup().await;
    let bad_id = pb::AdmitRequest {
        request_id: "17".to_owned(),
        ..admit("events", vec![keyed("id")])
    };
    let many = vec![keyed("id"); MAX_EVENTS + 1];
    let rows = [
        (
            admit("nowhere", vec![keyed("id")]),
            Code::NotFound,
            "UNKNOWN_NAMESPACE",
            None,
        ),
        (
            admit("events", vec![]),
            Code::InvalidArgument,
            "EMPTY_REQUEST",
            Some("events"),
        ),
        (
            admit("events", many),
            Code::InvalidArgument,
            "TOO_MANY_EVENTS",
            Some("events"),
        ),
        (
            bad_id,
            Code::InvalidArgument,
            "BAD_REQUEST_ID",
            Some("request_id"),
        ),
    ];
    for (request, code, reason, field) in rows {
        let status = client.admit(request).await.expect_err("refused");
        assert_fault(&status, code, reason, field);
    }
    let status = client
        .confirm(pb::ConfirmRequest { claims: vec![] })
        .await
        .expect_err("refused");
    assert_fault(
        &status,
        Code::InvalidArgument,
        "EMPTY_REQUEST",
        Some("claims"),
    );
    assert_eq!(server.claims_met_by("events", keyed("id")).await, 0);
}

#[tokio::test]
async fn g03_an_oversized_message_is_refused_before_any_claim() {
    let server = Server::start().await;
    let mut events = vec![keyed("first")];
    events.extend(
        (0..LIMITS.max_request_bytes / 500).map(|number| keyed(&format!("{number:0>500}"))),
    );
    let status = server
        .dedup()
        .await
        .admit(admit("events", events))
        .await
        .expect_err("refused");
    assert_eq!(status.code(), Code::OutOfRange, "{status:?}");
    assert_eq!(server.claims_met_by("events", keyed("first")).await, 0);
}

#[tokio::test]
async fn g03_a_response_that_would_pass_the_limit_is_refused_before_any_claim() {
    let server = Server::start().await;
    let mut client = server.dedup().await;
    let batch = |count: usize| {
        (0..count)
            .map(|number| keyed(&format!("{number:0>16}")))
            .collect::<Vec<_>>()
    };
    let most = LIMITS.max_response_bytes / 75;
    let status = client
        .admit(admit("events", batch(2 * most)))
        .await
        .expect_err("refused");
    assert_fault(
        &status,
        Code::InvalidArgument,
        "RESPONSE_TOO_LARGE",
        Some("events"),
    );
    assert_eq!(server.claims_met_by("events", batch(1).remove(0)).await, 0);
    let answer = client
        .admit(admit("events", batch(most)))
        .await
        .expect("16-byte ids take less than 75 bytes");
    assert_eq!(answer.into_inner().verdicts.len(), most);
}
