//! The open loop: its schedule waits for nobody, and its times begin when calls were due.

use std::thread;

use serde_json::Value;

use super::{STALL, count, end, measure, report, service, start, wait_for_events};

#[test]
fn a_rate_is_kept() {
    let service = service(None);
    for form in ["--streams 3", "--unary"] {
        let report = measure(
            &service,
            &format!("--kind keyed --rate 3000 --batch 10 {form} --warm-up 0s --duration 1s"),
        );
        // A busy machine may miss the last ones: those have no time after them to be made up for.
        let (sent, unsent) = (
            count(&report["events"]),
            10 * count(&report["unsent_calls"]),
        );
        assert_eq!(sent + unsent, 3_000, "{report:#}");
        assert!(sent > 2_000, "{report:#}");
        assert_eq!(
            report["latency"]["sent_late_ns"]["samples"],
            report["calls"]
        );
    }
}

/// With one call in flight, one call alone is slow by itself: the others are charged for waiting.
#[test]
fn a_service_that_stalls_is_charged_for_every_call_that_was_due() {
    let stalled = |pace: &str| -> Value {
        let service = service(None);
        let target = service.grpc_addr();
        let load = start(&format!(
            "--target {target} --output json --kind keyed --batch 1 --in-flight 1 {pace} \
             --warm-up 0s --duration 3s"
        ));
        wait_for_events(&service, "events");
        service.signal("STOP");
        thread::sleep(STALL);
        service.signal("CONT");
        report(&end(load))
    };
    let quantile = |report: &Value, name: &str| count(&report["latency"]["admit_ns"][name]);
    let half = STALL.as_nanos() as u64 / 2;
    let open = stalled("--rate 200");
    // A third of the time: those due in its first half wait for the second half at least.
    assert!(quantile(&open, "p90") > half, "{open:#}");
    assert!(quantile(&open, "max") > half, "{open:#}");
    let closed = stalled("");
    assert!(quantile(&closed, "p99") < half, "{closed:#}");
    assert!(quantile(&closed, "max") > half, "{closed:#}");
}

/// The rate is more than one call at a time can keep: the load ends in time, and says what is missing.
#[test]
fn a_rate_that_is_not_kept_is_told() {
    let service = service(None);
    let report = measure(
        &service,
        "--kind keyed --unary --rate 1000000 --batch 1 --in-flight 1 --warm-up 0s --duration 500ms",
    );
    let calls = count(&report["calls"]);
    assert_eq!(
        calls + count(&report["unsent_calls"]),
        500_000,
        "{report:#}"
    );
    assert!(calls < 250_000, "{report:#}");
    let late_ns = count(&report["latency"]["sent_late_ns"]["p99"]);
    assert!(late_ns > 200_000_000, "{report:#}");
}
