//! Running it: probes, metrics, signals, listeners, exit codes. All against the real binary.

mod drain;
mod listeners;

use std::{
    collections::BTreeSet,
    io::{Read, Write},
    net::TcpStream,
    thread,
    time::{Duration, Instant},
};

use dedupd::grpc::proto::{
    AdmitRequest, AdmitResponse, Event, Keyed, Reason, dedup_service_client::DedupServiceClient,
    event::Identity,
};
use tonic::{Code, transport::Channel};

use crate::support::{
    redis::RedisServer,
    service::{Options, Service},
};

/// Nothing listens there.
const NO_STORE: &str = "redis://127.0.0.1:1";
/// What a busy machine may add to a time.
const SLACK: Duration = Duration::from_secs(3);

fn orders(rest: &str) -> Options {
    let namespace = "{ accepts: [keyed], window: none, ttl: 1h, failure_mode: closed, lease: 30s }";
    Options {
        config: Some(format!("{rest}\nnamespaces:\n  orders: {namespace}\n")),
        ..Options::default()
    }
}

async fn connect(service: &Service) -> DedupServiceClient<Channel> {
    DedupServiceClient::connect(service.grpc_url())
        .await
        .expect("gRPC listens")
}

fn order(event_id: &str) -> Event {
    let event_id = event_id.to_owned();
    Event {
        identity: Some(Identity::Keyed(Keyed { event_id })),
        ..Event::default()
    }
}

fn request(namespace: &str, events: Vec<Event>) -> AdmitRequest {
    AdmitRequest {
        namespace: namespace.to_owned(),
        events,
        ..AdmitRequest::default()
    }
}

async fn admit(client: &mut DedupServiceClient<Channel>, event_id: &str) -> AdmitResponse {
    let request = request("orders", vec![order(event_id)]);
    client.admit(request).await.expect("an answer").into_inner()
}

fn series(exposition: &str) -> BTreeSet<&str> {
    let samples = exposition.lines().filter(|line| !line.starts_with('#'));
    samples
        .filter_map(|line| Some(line.rsplit_once(' ')?.0))
        .collect()
}

#[test]
fn o02_readiness_awaits_the_first_contact_and_latches_without_it() {
    let begun = Instant::now();
    let options = Options {
        store_url: Some(NO_STORE.to_owned()),
        ..Options::default()
    };
    let service = Service::start(&options);
    assert_eq!(service.http_get("/livez").0, 200);
    let (status, why) = service.http_get("/readyz");
    assert_eq!(status, 503);
    assert!(why.contains("first contact"), "{why}");
    while service.http_get("/readyz").0 == 503 {
        assert!(
            begun.elapsed() < Duration::from_secs(5) + SLACK,
            "it does not latch"
        );
        thread::sleep(Duration::from_millis(50));
    }
    assert!(begun.elapsed() >= Duration::from_secs(4), "it did not wait");
    assert_eq!(service.http_get("/readyz"), (200, "ready\n".to_owned()));
    assert_eq!(
        service.metric(r#"dedupd_breaker_state{state="admitting"}"#),
        Some(0.0)
    );
    assert!(service.metric(r#"dedupd_store_errors_total{kind="connection"}"#) > Some(0.0));
}

#[test]
fn o02_a_namespace_under_another_contract_is_named_by_readiness() {
    let redis = RedisServer::start(Default::default());
    redis.cli(&[
        "SET",
        "dedupd:contract:orders",
        "v1 window=none place=- digest=- layout=plain prefix=other:;",
    ]);
    let options = Options {
        store_url: Some(redis.url()),
        ..orders("")
    };
    let service = Service::start(&options);
    let (status, why) = service.http_get("/readyz");
    assert_eq!(status, 503);
    assert!(
        why.contains("orders") && why.contains("prefix=other:"),
        "{why}"
    );
    assert_eq!(
        service.metric(r#"dedupd_namespace_refused{namespace="orders"}"#),
        Some(1.0)
    );
}

#[tokio::test(flavor = "multi_thread")]
async fn o02_the_first_call_finds_a_store_that_is_there() {
    let redis = RedisServer::start(Default::default());
    let service = Service::start(&Options {
        store_url: Some(redis.url()),
        ..orders("")
    });
    let answer = admit(&mut connect(&service).await, "at once").await;
    assert_eq!(answer.verdicts[0].reason(), Reason::FirstSeen);
    assert_eq!(service.http_get("/readyz").0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn o02_metrics_count_events_by_reason() {
    let service = Service::start(&orders(""));
    let mut client = connect(&service).await;
    admit(&mut client, "one").await;
    admit(&mut client, "two").await;
    let metric = |decision: &str, reason: &str| {
        service.metric(&format!(
            r#"dedupd_decisions_total{{namespace="orders",decision="{decision}",reason="{reason}"}}"#
        ))
    };
    assert_eq!(metric("ADMIT", "FIRST_SEEN"), Some(2.0));
    assert_eq!(metric("SUPPRESS", "REDELIVERY"), Some(0.0));
    assert_eq!(metric("DEAD_LETTER", "MISSING_IDENTITY"), Some(0.0));
    assert_eq!(service.metric("dedupd_store_claims"), Some(2.0));
    assert_eq!(service.metric("dedupd_requests_in_flight"), Some(0.0));
    assert_eq!(
        service.metric(r#"dedupd_store_operation_seconds_count{operation="claim"}"#),
        Some(2.0)
    );
    assert_eq!(
        service.metric(r#"dedupd_breaker_state{state="admitting"}"#),
        Some(1.0)
    );
    let (_, exposition) = service.http_get("/metrics");
    assert!(exposition.ends_with("# EOF\n"), "{exposition}");
}

#[tokio::test(flavor = "multi_thread")]
async fn b01_what_callers_send_makes_no_series() {
    let service = Service::start(&orders(""));
    let mut client = connect(&service).await;
    let (_, before) = service.http_get("/metrics");
    for number in 0..50 {
        let namespace = format!("unknown-{number}\"\n");
        let refused = client.admit(request(&namespace, vec![order("id")])).await;
        assert_eq!(
            refused.expect_err("an unknown namespace").code(),
            Code::NotFound
        );
        admit(&mut client, &format!("id-{number}\"}} 1\n")).await;
    }
    let (_, after) = service.http_get("/metrics");
    assert_eq!(series(&after), series(&before));
}

#[tokio::test(flavor = "multi_thread")]
async fn b06_dead_letters_are_one_warning_and_duplicates_none() {
    let service = Service::start(&orders(""));
    let mut client = connect(&service).await;
    for _ in 0..20 {
        let bad = client
            .admit(request("orders", vec![order(" "); 100]))
            .await
            .expect("an answer");
        let reasons = bad
            .into_inner()
            .verdicts
            .into_iter()
            .map(|verdict| verdict.reason);
        assert!(
            reasons
                .into_iter()
                .all(|reason| reason == Reason::MissingIdentity as i32)
        );
        admit(&mut client, "again and again").await;
    }
    service.wait_log("dead-lettered", SLACK);
    let logs = service.logs();
    let warnings: Vec<_> = logs
        .iter()
        .filter(|line| line.contains("dead-lettered"))
        .collect();
    assert_eq!(warnings.len(), 1, "{warnings:#?}");
    assert!(
        warnings[0].contains(r#""level":"WARN""#) && warnings[0].contains("orders"),
        "{warnings:?}"
    );
    let says_duplicate =
        |line: &&String| line.contains("again and again") || line.contains("REDELIVERY");
    let duplicates = logs.iter().filter(says_duplicate);
    assert_eq!(duplicates.count(), 0, "{logs:#?}");
}

#[test]
fn o02_the_configuration_is_shown_without_secrets() {
    let store_url = "redis://someone:s3cret%2Fword@127.0.0.1:1/3".to_owned();
    let options = Options {
        env: vec![("DEDUPD_STORE_URL".to_owned(), store_url)],
        ..Options::default()
    };
    let service = Service::start(&options);
    let (status, config) = service.http_get("/config");
    assert_eq!(status, 200);
    let config: serde_json::Value = serde_json::from_str(&config).expect("JSON");
    assert_eq!(config["store"]["url"], "redis://***:***@127.0.0.1:1/3");
    let (_, exposition) = service.http_get("/metrics");
    for text in [config.to_string(), exposition, service.logs().join("\n")] {
        assert!(
            !text.contains("s3cret") && !text.contains("someone"),
            "{text}"
        );
    }
}

#[test]
fn o02_unknown_paths_are_answered_with_the_known_ones() {
    let (status, body) = Service::start(&Options::default()).http_get("/health");
    assert_eq!(status, 404);
    for path in ["/livez", "/readyz", "/metrics", "/config"] {
        assert!(body.contains(path), "{body}");
    }
}

#[test]
fn o02_a_client_that_says_nothing_is_disconnected() {
    let service = Service::start(&Options::default());
    let mut silent = TcpStream::connect(service.admin_addr()).expect("admin HTTP listens");
    silent
        .set_read_timeout(Some(Duration::from_secs(5) + SLACK))
        .expect("a TCP socket");
    silent
        .write_all(b"GET /livez HTTP/1.1\r\nHost: ")
        .expect("admin HTTP reads");
    let mut answer = Vec::new();
    silent
        .read_to_end(&mut answer)
        .expect("disconnected, not timed out");
    assert_eq!(answer, b"");
}

#[test]
fn o07_a_store_of_one_instance_is_flagged() {
    let service = Service::start(&Options::default());
    assert_eq!(service.metric("dedupd_store_per_instance"), Some(1.0));
    let options = Options {
        store_url: Some(NO_STORE.to_owned()),
        ..Options::default()
    };
    let service = Service::start(&options);
    assert_eq!(service.metric("dedupd_store_per_instance"), Some(0.0));
}

#[test]
fn o02_a_bad_configuration_is_exit_64_and_named_in_full() {
    let config =
        "drain: { quiet: soon }\nnamespaces:\n  orders: { accepts: [keyed], window: none }\n";
    let options = Options {
        config: Some(config.to_owned()),
        ..Options::default()
    };
    let ended = Service::try_start(&options).expect_err("it must not start");
    assert_eq!(ended.exit_code, 64, "{ended:#?}");
    for fault in [
        "drain.quiet",
        "namespaces.orders.ttl",
        "namespaces.orders.failure_mode",
    ] {
        assert!(
            ended.logs.iter().any(|line| line.contains(fault)),
            "{fault}: {ended:#?}"
        );
    }
}
