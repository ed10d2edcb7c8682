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
        assert_eq!(count(&report["events"]), 3_000, "{report:#}");
        // The last call is due at most 10 ms before the end.
        let measured_s = report["measured_s"].as_f64().expect("seconds");
        assert!(measured_s > 0.98, "{report:#}");
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
