//! What the report counts is what the service has counted.

use dedupd::domain::reason::Reason;
use serde_json::Value;

use super::{count, counted, end, measure, service, start};
use crate::support::{redis::RedisServer, service::Service};

const SHORT: &str = "--warm-up 0s --duration 200ms --batch 20 --in-flight 2";

/// Every event has a verdict, by the service's own counters too.
#[track_caller]
fn check_counters(service: &Service, namespace: &str, report: &Value) {
    let mut events = 0;
    for reason in Reason::ALL {
        let decision = reason.decision().name();
        let by_service = counted(service, namespace, decision, reason.name());
        let by_report = report["verdicts"][reason.name()].as_u64().unwrap_or(0);
        assert_eq!(by_report, by_service, "{}: {report:#}", reason.name());
        events += by_report;
    }
    assert_eq!(events, count(&report["events"]), "{report:#}");
    assert!(events > 0 && count(&report["calls"]) * 20 == events);
    assert_eq!(count(&report["refused_calls"]), 0);
}

#[track_caller]
fn check_repeats(redis: Option<&RedisServer>, kind: &str, namespace: &str, repeat: &str) {
    for form in ["--streams 2", "--streams 2 --connections 1 --unary"] {
        let service = service(redis.map(RedisServer::url));
        let arguments =
            format!("{SHORT} {form} --kind {kind} --duplicates 0.25 --repeat-within 100");
        let report = measure(&service, &arguments);
        check_counters(&service, namespace, &report);
        let (events, first) = (&report["events"], &report["verdicts"]["FIRST_SEEN"]);
        let expected = count(events) as f64 * 0.75;
        // Each of the two begins with a first sighting.
        assert!((count(first) as f64 - expected).abs() <= 2.0, "{report:#}");
        let repeats = count(events) - count(first);
        assert_eq!(count(&report["verdicts"][repeat]), repeats, "{report:#}");
    }
}

#[test]
fn transitions_and_keyed_events_are_repeated_as_they_were() {
    check_repeats(None, "transitions", "transitions", "REDELIVERY");
    check_repeats(None, "keyed", "events", "REDELIVERY");
}

#[test]
fn on_redis_too() {
    let redis = RedisServer::start(Default::default());
    check_repeats(Some(&redis), "keyed", "events", "REDELIVERY");
}

#[test]
fn pings_are_of_assets_that_move_or_of_such_that_are_parked() {
    let service = service(None);
    let moving = measure(&service, &format!("{SHORT} --kind moving-pings"));
    check_counters(&service, "pings", &moving);
    assert_eq!(moving["verdicts"]["FIRST_SEEN"], moving["events"]);

    let service = super::service(None);
    let parked = measure(&service, &format!("{SHORT} --kind parked-pings"));
    check_counters(&service, "pings", &parked);
    // One in thirty is another asset's, and some of them stand at the edge of a cell.
    let share = |name: &str| {
        let events = parked["verdicts"][name].as_u64().unwrap_or(0);
        events as f64 / count(&parked["events"]) as f64
    };
    let repeats = share("REOBSERVATION") + share("RESTAMPED") + share("REDELIVERY");
    assert!((0.85..=29.0 / 30.0).contains(&repeats), "{parked:#}");
}

#[test]
fn what_is_admitted_is_confirmed() {
    let service = service(None);
    for form in ["", "--unary"] {
        let report = measure(
            &service,
            &format!("{SHORT} {form} --kind keyed --namespace leased --confirm"),
        );
        assert_eq!(report["settled"]["APPLIED"], report["events"], "{report:#}");
        assert_eq!(
            report["latency"]["confirm_ns"]["samples"], report["calls"],
            "{report:#}"
        );
    }
    let report = measure(
        &service,
        &format!("{SHORT} --kind keyed --omit-claims --without-request-ids"),
    );
    assert_eq!(report["verdicts"]["FIRST_SEEN"], report["events"]);
    assert_eq!(report["settled"], serde_json::json!({}));
}

#[test]
fn a_warm_up_is_sent_and_not_counted() {
    let service = service(None);
    let report = measure(
        &service,
        "--warm-up 100ms --duration 100ms --kind keyed --batch 10",
    );
    let all = counted(&service, "events", "ADMIT", "FIRST_SEEN");
    let warm_up = count(&report["warm_up_events"]);
    assert!(warm_up > 0, "{report:#}");
    assert_eq!(count(&report["events"]) + warm_up, all, "{report:#}");
}

#[test]
fn several_namespaces_take_turns() {
    let service = service(None);
    measure(
        &service,
        "--warm-up 0s --duration 100ms --kind keyed --namespace events,leased --batch 1 --in-flight 1",
    );
    let counts = ["events", "leased"].map(|name| counted(&service, name, "ADMIT", "FIRST_SEEN"));
    assert!(counts[0] > 0 && counts[0] - counts[1] <= 1, "{counts:?}");
}

#[test]
fn processes_are_charged_with_what_they_spent() {
    let redis = RedisServer::start(Default::default());
    let service = service(Some(redis.url()));
    let (target, server_pid, redis_pid) = (service.grpc_addr(), service.pid(), redis.pid());
    let pids = format!("--server-pid {server_pid} --redis-pid {redis_pid}");
    let report = measure(&service, &format!("--kind keyed --duration 300ms {pids}"));
    for process in ["client", "server", "redis"] {
        let cpu = &report["cpu"][process];
        let (each, cores) = (cpu["per_event_ns"].as_f64(), cpu["cores"].as_f64());
        assert!(
            each > Some(10.0) && cores > Some(0.0),
            "{process}: {report:#}"
        );
    }
    let text = end(start(&format!(
        "--target {target} --kind keyed --duration 100ms --warm-up 0s {pids}"
    )));
    let text = String::from_utf8(text.stdout).expect("text");
    for part in [
        "events",
        "verdicts: FIRST_SEEN",
        "P99.9",
        "admit",
        "server",
        "redis",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}
