//! The table of the transitions document, small: against formulas, and what nobody can have.

use super::{count, report, strategy};

/// As many a second as 410 million in twelve hours.
const ITS_RATE: &str = "--synthetic --occurrences 60k --duration 6300ms";

#[test]
fn copies_near_and_crossings_apart_the_sliding_window_errs_nowhere() {
    let report = report(&format!("{ITS_RATE} --devices 100k"), b"");
    let errors = |name: &str| {
        let judged = &strategy(&report, name)["judged"];
        (
            count(&judged["triggered_again"]),
            count(&judged["swallowed"]),
        )
    };
    assert_eq!(errors("sliding"), (0, 0));
    assert_eq!(errors("guarded").0, 0);
    assert_eq!(errors("two-keys").0, 0);
    assert!(
        errors("two-keys").1 > errors("guarded").1,
        "keys without times swallow more"
    );
    assert!(errors("tumbling=30s").1 > errors("tumbling").1);
    assert!(errors("tumbling").0 > 0);
    assert_eq!(errors("none").1, 0);
}

/// A retry comes up to 200 ms later, evenly, and up to three more follow, each with a chance of
/// 0.3: the last of them is away by 0.1118 s in the mean, so one retried crossing of 17.9 straddles
/// an edge of 2 s.
#[test]
fn rates_are_what_formulas_say() {
    let report = report(
        &format!("{ITS_RATE} --replayed 0 --re-entries 0 --devices 1M"),
        b"",
    );
    let spread_s: f64 = 0.2 * (0.7 / 2.0 + 0.21 * 2.0 / 3.0 + 0.063 * 0.75 + 0.027 * 0.8);
    for (name, expected) in [
        ("none", 0.06),
        ("raw", 0.06),
        ("tumbling", 0.06 * spread_s / 2.0),
        ("guarded", 0.0),
        ("sliding", 0.0),
        ("session", 0.0),
    ] {
        let judged = &strategy(&report, name)["judged"];
        let rate = judged["duplicate_trigger_rate"].as_f64().expect("a rate");
        let deviation = (expected / count(&judged["occurrences"]) as f64).sqrt();
        assert!(
            (rate - expected).abs() <= 5.0 * deviation,
            "{name}: {rate}, by the formula {expected} ± {deviation}"
        );
    }
}

#[test]
fn with_clock_jumps_and_late_replays_nobody_has_zero_and_the_table_says_so() {
    let report = report(
        &format!(
            "{ITS_RATE} --devices 100k --clock-jumps 0.05 --clock-jump 5s --replayed 0.01 \
             --replay-delay 2h --ttl 1h"
        ),
        b"",
    );
    for strategy in report["strategies"].as_array().expect("a list") {
        let judged = &strategy["judged"];
        let errors = count(&judged["triggered_again"]) + count(&judged["swallowed"]);
        assert!(errors > 0, "{strategy:#}");
    }
    let sliding = strategy(&report, "sliding");
    assert!(count(&sliding["by_reason"]["LATE"]) > 100, "{sliding:#}");
}

#[test]
fn what_is_held_at_peak_is_what_lives_and_its_bytes_are_the_tables() {
    // 20,000 crossings in 200 s, each claim for 20 s, shorter than the 30 s that are left out then:
    // 2,000 at a time.
    let report = report(
        "--synthetic --occurrences 20k --duration 200s --ttl 20s --retried 0 --replayed 0 --re-entries 0",
        b"",
    );
    for name in ["raw", "tumbling", "sliding", "id"] {
        let found = strategy(&report, name);
        let claims = count(&found["peak_claims"]);
        assert!((1900..2300).contains(&claims), "{name}: {claims}");
        assert!(count(&found["peak_bytes"]) >= claims * 32, "{name}");
        assert!(count(&found["decision"]["samples"]) >= 19, "{name}");
    }
}

#[test]
fn claims_that_do_not_fit_end_the_replay_with_advice() {
    let output = super::dedupd(
        &super::words(
            "replay --synthetic --occurrences 50k --duration 5s --max-memory 1MiB --strategy sliding",
        ),
        b"",
    );
    let why = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{why}");
    assert!(
        why.contains("--max-memory") && output.stdout.is_empty(),
        "{why}"
    );
}

#[test]
fn the_namespaces_of_a_configuration_are_strategies_without_limits_on_times() {
    let directory = tempfile::tempdir().expect("a directory");
    let config = directory.path().join("dedupd.yaml");
    let yaml = "namespaces:
  near: { accepts: [transition], window: { sliding: 200ms }, ttl: 1h, lease: 30s, failure_mode: open }
  wide: { accepts: [transition], window: { tumbling: 30s }, ttl: 1h, failure_mode: closed }
  other: { accepts: [keyed], window: none, ttl: 1h, failure_mode: closed }
";
    std::fs::write(&config, yaml).expect("the directory is ours");
    let report = report(&format!("{ITS_RATE} --config {}", config.display()), b"");
    assert_eq!(report["strategies"].as_array().map(Vec::len), Some(2));
    let near = strategy(&report, "near");
    assert_eq!(count(&near["judged"]["triggered_again"]), 0);
    assert_eq!(count(&near["refused"]), 0);
    let notes = report["notes"].to_string();
    assert!(
        notes.contains("other is left out") && notes.contains("lease"),
        "{notes}"
    );
}

#[test]
fn real_tracks_with_every_report_twice_admit_what_they_admit_once() {
    for track in ["aircraft-zurich-ground.csv", "car-track.csv"] {
        let path = format!("{}/tests/data/tracks/{track}", env!("CARGO_MANIFEST_DIR"));
        let text = std::fs::read_to_string(path).expect("a track");
        let (header, rows) = text.split_once('\n').expect("a header");
        let doubled: String = rows.lines().map(|row| format!("{row}\n{row}\n")).collect();
        let once = report("-", text.as_bytes());
        let twice = report("-", format!("{header}\n{doubled}").as_bytes());
        assert_eq!(count(&once["bad_rows"]["count"]), 0);
        for name in ["raw", "tumbling", "sliding"] {
            let (once, twice) = (strategy(&once, name), strategy(&twice, name));
            assert_eq!(count(&twice["events"]), 2 * count(&once["events"]));
            assert_eq!(once["admitted"], twice["admitted"], "{track} {name}");
            assert!(once["judged"].is_null(), "nothing tells which are copies");
        }
    }
}
