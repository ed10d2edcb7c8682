//! `InspectService`, health and reflection: what grpcurl and probes see.

use std::{sync::Arc, time::Duration};

use dedupd::grpc::proto::{self as pb, ClaimState, Reason};
use tokio::time;
use tonic::Code;
use tonic_health::pb::{
    HealthCheckRequest, health_check_response::ServingStatus, health_client::HealthClient,
};
use tonic_reflection::pb::{v1, v1alpha};

use super::server::{Server, admit, keyed, ping};

#[tokio::test]
async fn explain_shows_keys_and_claims_and_changes_nothing() {
    let server = Server::start().await;
    let mut client = server.inspect().await;
    let explain = |event| pb::ExplainRequest {
        namespace: "pings".to_owned(),
        event,
    };
    let event = ping("asset", 47.4);
    for _ in 0..2 {
        let first = client
            .explain(explain(Some(event.clone())))
            .await
            .expect("OK")
            .into_inner();
        assert_eq!(
            first.verdict.map(|verdict| verdict.reason()),
            Some(Reason::FirstSeen)
        );
        assert!(first.claims.is_empty());
    }
    server
        .dedup()
        .await
        .admit(admit("pings", vec![event.clone()]))
        .await
        .expect("OK");
    let then = client
        .explain(explain(Some(event)))
        .await
        .expect("OK")
        .into_inner();
    let verdict = then.verdict.expect("a verdict");
    assert_eq!(
        (verdict.reason(), verdict.claim.len()),
        (Reason::Redelivery, 0)
    );
    let [claim] = then.claims.as_slice() else {
        panic!("{:?}", then.claims)
    };
    assert_eq!(
        (claim.state(), claim.near, &claim.key),
        (ClaimState::Claimed, true, &then.keys[0])
    );
    assert_eq!(
        (claim.occurred_at, claim.position),
        (then.occurred_at, then.position)
    );
    assert!(
        claim
            .expires_in
            .is_some_and(|span| (3590..=3600).contains(&span.seconds))
    );
    assert!(then.material.ends_with(&then.cell) && then.material.starts_with("asset|"));
    let unset = client
        .explain(explain(None))
        .await
        .expect("OK")
        .into_inner();
    assert_eq!(
        unset.verdict.map(|verdict| verdict.reason()),
        Some(Reason::MissingIdentity)
    );
}

#[tokio::test]
async fn counters_name_every_reason_and_can_be_watched() {
    let server = Server::start().await;
    let mut client = server.inspect().await;
    server
        .dedup()
        .await
        .admit(admit("events", vec![keyed("id"); 3]))
        .await
        .expect("OK");
    let request = pb::GetCountersRequest {
        namespace: "events".to_owned(),
    };
    let counters = client
        .get_counters(request)
        .await
        .expect("OK")
        .into_inner()
        .counters;
    assert_eq!(counters.len(), 28, "one for each reason");
    let counted: Vec<_> = counters
        .iter()
        .filter(|counter| counter.events > 0)
        .map(|c| (c.reason(), c.events))
        .collect();
    assert_eq!(counted, [(Reason::FirstSeen, 1), (Reason::Redelivery, 2)]);
    let all = client
        .get_counters(pb::GetCountersRequest::default())
        .await
        .expect("OK")
        .into_inner();
    assert_eq!(all.counters.len(), 28 * server.engine.namespaces().len());

    let interval = |nanos| Some(prost_types::Duration { seconds: 0, nanos });
    let watch = |nanos| pb::WatchCountersRequest {
        namespace: "events".to_owned(),
        interval: interval(nanos),
    };
    let status = client
        .watch_counters(watch(99_000_000))
        .await
        .expect_err("too often");
    assert_eq!(status.code(), Code::InvalidArgument);
    let mut seen = client
        .watch_counters(watch(100_000_000))
        .await
        .expect("OK")
        .into_inner();
    for _ in 0..2 {
        let look = seen.message().await.expect("it lives").expect("a look");
        assert_eq!(
            (look.counters.as_slice(), look.at.is_some()),
            (counters.as_slice(), true)
        );
    }
    assert_eq!(server.in_flight.in_flight(), 0, "a watch is not in flight");
    server.drain.begin();
    let status = loop {
        match seen.message().await {
            Ok(look) => assert!(look.is_some(), "it ends with a status"),
            Err(status) => break status,
        }
    };
    assert_eq!(status.code(), Code::Unavailable);
}

#[tokio::test]
async fn namespaces_are_listed_and_unknown_ones_refused() {
    let server = Server::start().await;
    let mut client = server.inspect().await;
    let listed = client
        .list_namespaces(pb::ListNamespacesRequest {})
        .await
        .expect("OK")
        .into_inner();
    let orders = listed
        .namespaces
        .iter()
        .find(|namespace| namespace.name == "orders")
        .expect("configured");
    assert_eq!(
        orders.lease,
        Some(prost_types::Duration {
            seconds: 30,
            nanos: 0
        })
    );
    assert_eq!(
        (orders.failure_mode.as_str(), orders.mode.as_str()),
        ("closed", "enforce")
    );
    assert!(orders.refused.is_empty());
    let request = pb::GetCountersRequest {
        namespace: "nowhere".to_owned(),
    };
    assert_eq!(
        client
            .get_counters(request)
            .await
            .expect_err("unknown")
            .code(),
        Code::NotFound
    );
    let request = pb::ForgetRequest {
        namespace: "orders".to_owned(),
        event: Some(keyed("id")),
    };
    let forgotten = client.forget(request).await.expect("allowed").into_inner();
    assert_eq!(
        forgotten.keys,
        Vec::<String>::new(),
        "nothing suppresses it"
    );
}

#[tokio::test]
async fn health_says_listening_and_whether_the_store_takes_part() {
    let server = Server::start().await;
    let mut client = HealthClient::new(server.channel().await);
    let mut check = async |service: &str| {
        let request = HealthCheckRequest {
            service: service.to_owned(),
        };
        client
            .check(request)
            .await
            .map(|answer| answer.into_inner().status())
    };
    let services = ["", "dedupd.v1.DedupService", "dedupd.v1.InspectService"];
    for service in services {
        assert_eq!(
            check(service).await.expect("known"),
            ServingStatus::Serving,
            "{service:?}"
        );
    }
    assert_eq!(
        check("store").await.expect("known"),
        ServingStatus::NotServing,
        "nobody looked yet"
    );
    let (health, engine) = (server.health.clone(), Arc::clone(&server.engine));
    let following = tokio::spawn(async move { health.follow_store(engine).await });
    let mut becomes = async |expected: ServingStatus| {
        let reached = async {
            while check("store").await.expect("known") != expected {
                time::sleep(Duration::from_millis(5)).await;
            }
        };
        time::timeout(Duration::from_secs(5), reached)
            .await
            .expect("the store's health follows the breaker");
    };
    becomes(ServingStatus::Serving).await;
    server.engine.breaker().probe_sent();
    becomes(ServingStatus::NotServing).await;
    following.abort();
    server.health.not_serving().await;
    for service in services {
        assert_eq!(
            check(service).await.expect("known"),
            ServingStatus::NotServing,
            "{service:?}"
        );
    }
    assert_eq!(
        check("nothing").await.expect_err("unknown").code(),
        Code::NotFound
    );
}

const SERVED: [&str; 3] = [
    "dedupd.v1.DedupService",
    "dedupd.v1.InspectService",
    "grpc.health.v1.Health",
];

#[tokio::test]
async fn reflection_v1_lists_the_services_and_finds_their_files() {
    use v1::{
        ServerReflectionRequest, server_reflection_request::MessageRequest,
        server_reflection_response::MessageResponse,
    };
    let server = Server::start().await;
    let mut client =
        v1::server_reflection_client::ServerReflectionClient::new(server.channel().await);
    let ask = [
        MessageRequest::ListServices(String::new()),
        MessageRequest::FileContainingSymbol("dedupd.v1.DedupService".to_owned()),
        MessageRequest::FileByFilename("google/protobuf/timestamp.proto".to_owned()),
    ];
    let requests = ask.map(|request| ServerReflectionRequest {
        host: String::new(),
        message_request: Some(request),
    });
    let answers = client
        .server_reflection_info(tokio_stream::iter(requests))
        .await
        .expect("OK");
    let mut answers = answers.into_inner();
    let listed = answers
        .message()
        .await
        .expect("OK")
        .and_then(|answer| answer.message_response);
    let Some(MessageResponse::ListServicesResponse(listed)) = listed else {
        panic!("{listed:?}")
    };
    for service in SERVED {
        assert!(
            listed.service.iter().any(|listed| listed.name == service),
            "{service}"
        );
    }
    for _ in 0..2 {
        let found = answers
            .message()
            .await
            .expect("OK")
            .and_then(|answer| answer.message_response);
        let Some(MessageResponse::FileDescriptorResponse(found)) = found else {
            panic!("{found:?}")
        };
        assert_eq!(found.file_descriptor_proto.len(), 1);
    }
}

#[tokio::test]
async fn reflection_v1alpha_lists_the_services() {
    use v1alpha::{
        ServerReflectionRequest, server_reflection_request::MessageRequest,
        server_reflection_response::MessageResponse,
    };
    let server = Server::start().await;
    let mut client =
        v1alpha::server_reflection_client::ServerReflectionClient::new(server.channel().await);
    let message_request = Some(MessageRequest::ListServices(String::new()));
    let request = ServerReflectionRequest {
        host: String::new(),
        message_request,
    };
    let answers = client
        .server_reflection_info(tokio_stream::once(request))
        .await
        .expect("OK");
    let listed = answers
        .into_inner()
        .message()
        .await
        .expect("OK")
        .and_then(|answer| answer.message_response);
    let Some(MessageResponse::ListServicesResponse(listed)) = listed else {
        panic!("{listed:?}")
    };
    for service in SERVED {
        assert!(
            listed.service.iter().any(|listed| listed.name == service),
            "{service}"
        );
    }
}
