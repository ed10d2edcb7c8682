//! All that is printed, where it is the same each time.

use serde_json::{Value, json};

use super::{CONFIG, doctor, run};
use crate::{
    documents::{block, document},
    support::redis::{Options, RedisServer},
};

/// Each number of a measurement is 0; spaces that make columns are one.
fn without_figures(text: &str) -> String {
    let measured = [" clock ", " round_trip ", " version ", " memory "];
    let line = |line: &str| {
        let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
        if measured.iter().any(|check| line.contains(check)) {
            without_numbers(&line)
        } else {
            line
        }
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

fn without_numbers(text: &str) -> String {
    let mut shown = String::new();
    for c in text.chars() {
        match c {
            '0'..='9' if shown.ends_with('0') => {}
            '0'..='9' => shown.push('0'),
            other => shown.push(other),
        }
    }
    shown
}

#[test]
fn a_healthy_server_has_notes_and_exit_code_0() {
    let redis = RedisServer::start(Options::default());
    let report = run(
        &["--store", &redis.url()],
        &[("DEDUPD_CONFIG_INLINE", CONFIG)],
    );
    let expected = format!(
        "redis://{}/0
ok connection connected
ok version Redis 0.0.0
ok role primary
ok eviction noeviction
note memory no maxmemory: the machine's memory is the limit, and the end of it the server's; set maxmemory
note persistence none: a restart forgets every claim, and copies are admitted once more
note replication no replica: while this server is away failure modes apply
ok clock 0.0 s from ours
ok round_trip 0.0 ms
ok permission everything that the service does is permitted
ok canary claimed, confirmed and released under dedupd:, crossings:, orders:
note contract crossings: no instance has put it up yet, or none for a while
note contract orders: no instance has put it up yet, or none for a while
ok keys crossings:*: keys: 0; claims: 0
ok keys orders:*: keys: 0; claims: 0
failures: 0, warnings: 0, notes: 5",
        redis.addr()
    );
    assert_eq!(without_figures(&report.stdout), expected);
    assert_eq!((report.code, report.stderr.as_str()), (Some(0), ""));
    assert_eq!(redis.cli(&["DBSIZE"]), "0", "nothing stays");
}

/// The output in the documents is that of such a server.
#[test]
fn the_documents_show_what_is_printed() {
    let redis = RedisServer::start(Options {
        args: ["--maxmemory", "100mb", "--maxmemory-policy", "allkeys-lru"]
            .map(str::to_owned)
            .to_vec(),
        ..Options::default()
    });
    let other = "v1 window=300000000000ns place=- digest=xxh3 layout=plain prefix=crossings:; \
                 guard=5000000000ns guard_m=0";
    redis.cli(&["SET", "dedupd:contract:crossings", other, "PX", "60000"]);
    redis.cli(&["SET", "orders:4711", "1"]);
    let report = run(
        &["--store", &redis.url()],
        &[("DEDUPD_CONFIG_INLINE", CONFIG)],
    );
    let page = document("docs/operation.md");
    let shown = block(&page, "text", "## dedupd doctor");
    let printed = report.stdout.replace(&redis.port().to_string(), "6379");
    assert_eq!(
        without_figures(shown),
        without_figures(&printed),
        "docs/operation.md must hold:\n{printed}"
    );
    assert_eq!(report.code, Some(2));
}

#[test]
fn the_same_as_json() {
    let redis = RedisServer::start(Options {
        args: ["--maxmemory", "100mb"].map(str::to_owned).to_vec(),
        ..Options::default()
    });
    let report = doctor(&redis.url());
    let mut object = report.object();
    let findings = object["findings"].take();
    let measured = ["clock_offset_s", "round_trip_s", "used_memory_bytes"];
    for name in measured {
        let figure = object["servers"][0][name].take();
        assert!(
            figure.as_f64().is_some_and(|figure| figure < 1e9),
            "{figure}"
        );
    }
    let version = object["servers"][0]["version"].take();
    assert!(
        version
            .as_str()
            .is_some_and(|text| text.starts_with("Redis "))
    );
    let crossings = "v1 window=60000000000ns place=- digest=xxh3 layout=plain prefix=crossings:; \
                     guard=5000000000ns guard_m=0";
    let orders = "v1 window=none place=- digest=- layout=plain prefix=orders:; guard=0ns guard_m=0";
    let sample = |prefix: &str| {
        json!({ "prefix": prefix, "complete": true, "keys": 0, "claims": 0, "newer": 0,
            "foreign": 0, "other_types": 0, "without_ttl": 0 })
    };
    let namespace = |name: &str, contract: &str| {
        json!({ "name": name, "prefix": format!("{name}:"), "layout": "plain",
            "contract": contract, "contract_in_store": null })
    };
    let expected = json!({
        "store": format!("{}/0", redis.url()),
        "worst": "note",
        "findings": null,
        "servers": [{
            "address": null, "version": null, "eviction": "noeviction", "evicted_keys": 0,
            "used_memory_bytes": null, "max_memory_bytes": 104_857_600, "replicas": 0,
            "clock_offset_s": null, "round_trip_s": null,
        }],
        "namespaces": [namespace("crossings", crossings), namespace("orders", orders)],
        "samples": [sample("crossings:"), sample("orders:")],
    });
    assert_eq!(object, expected);
    assert_eq!(
        findings[0],
        json!({ "check": "connection", "severity": "ok", "about": null, "message": "connected" })
    );
    assert_eq!(findings.as_array().map(Vec::len), Some(15), "{findings}");
    report.check_warnings(&[]);
}

#[test]
fn a_memory_store_is_one_note() {
    let report = run(&[], &[]);
    let expected = "memory://
note per_instance claims are kept in this process: copies that reach another instance, or this one after \
a restart, are not found; where that matters use redis://
failures: 0, warnings: 0, notes: 1";
    assert_eq!(without_figures(&report.stdout), expected);
    assert_eq!(report.code, Some(0), "{report:?}");
    let report = run(&["--output", "json"], &[]);
    assert_eq!(report.object()["servers"], Value::Array(Vec::new()));
    assert_eq!(report.object()["worst"], "note");
}

#[test]
fn a_bad_command_line_or_configuration_ends_as_it_does_for_serve() {
    let rows: [(&[&str], &str); 5] = [
        (&["--store", "http://host"], "--store: the scheme"),
        (&["--store", "redis://:hunter2@host"], "--store: "),
        (&["--config", "/does/not/exist"], "--config: cannot read"),
        (&["--timeout", "soon"], "\"soon\" is not a duration"),
        (&["--output", "xml"], "'xml'"),
    ];
    for (arguments, part) in rows {
        let report = run(arguments, &[]);
        assert_eq!(report.code, Some(64), "{report:?}");
        assert!(report.stderr.contains(part), "{report:?}");
        assert!(!report.stderr.contains("hunter2"), "{report:?}");
        assert_eq!(report.stdout, "");
    }
}
