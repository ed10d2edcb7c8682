//! `benches/compare.sh` at a size that measures nothing: every row that it would have is there.

use std::{
    env,
    process::{Command, Stdio},
};

/// What it prints.
#[track_caller]
fn printed(arguments: &[&str], only: &str) -> String {
    let output = Command::new("benches/compare.sh")
        .args(arguments)
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .envs([
            ("PROFILE", "dev"),
            ("ROUNDS", "1"),
            ("SECONDS", "0.2"),
            ("WARM_UP", "0.1"),
            ("CLAIMS", "100000"),
            ("ONLY", only),
        ])
        .envs(env::var("DEDUPD_TEST_PYTHON").map(|python| ("PYTHON", python)))
        .stdin(Stdio::null())
        .output()
        .expect("bash runs");
    assert!(output.status.success(), "{output:?}");
    String::from_utf8(output.stdout).expect("text")
}

/// The rows of the first table with a column so called.
fn rows<'t>(text: &'t str, column: &str) -> Vec<&'t str> {
    let lines = text.lines().skip_while(|line| !line.contains(column));
    let rows = lines.skip(2).take_while(|line| line.starts_with('|'));
    rows.map(|row| row.split('|').nth(1).unwrap_or_default().trim())
        .collect()
}

#[test]
fn contenders_are_measured_and_compared_also_by_python() {
    let only = "redis-benchmark;pipelined client;bare, keyed;embedded, keyed;redis, transitions;\
                redis, keyed;redis, confirmed;redis, half load;single call;python;jetstream";
    let text = printed(&[], only);
    let found = rows(&text, "events/s");
    for name in only.split(';') {
        assert!(found.iter().any(|row| row.contains(name)), "{name}: {text}");
    }
    let ratios = rows(&text, "median");
    for ratio in [
        "embedded, keyed: server CPU / bare, keyed: server CPU",
        "redis, transitions: rate / redis-benchmark: rate",
        "redis, single call: P50 / bare, single call: P50 + redis-benchmark, one: P50",
        "python client of dedupd: rate / python, gather: rate",
        "redis, half load: P99 / redis, half load: P50",
        "jetstream: rate / redis-benchmark: rate",
    ] {
        assert!(ratios.contains(&ratio), "{ratio}: {text}");
    }
    assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
}

#[test]
fn growth_is_measured() {
    let text = printed(
        &["growth"],
        "events a call, Redis;live claims, embedded;shards",
    );
    for (table, expected) in [
        ("events a call, Redis", "500 1 10 100 1000 5000"),
        ("live claims, embedded", "100000"),
        ("shards of a cluster", "1 2 3"),
    ] {
        assert_eq!(rows(&text, table).join(" "), expected, "{text}");
    }
    assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
}
