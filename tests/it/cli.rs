//! `dedupd check` and `dedupd key` as a shell sees them: arguments in, text and exit code out.

use std::{
    env, fs,
    process::{Command, Output},
};

use serde_json::{Value, json};

use crate::support::program::output_of;

mod golden;

/// Runs the binary with these `DEDUPD_…` variables only.
fn dedupd(arguments: &[&str], environment: &[(&str, &str)], input: &str) -> Output {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dedupd"));
    for (name, _) in env::vars_os() {
        if name.to_string_lossy().starts_with("DEDUPD_") {
            command.env_remove(name);
        }
    }
    let command = command.args(arguments).envs(environment.iter().copied());
    output_of(command, input.as_bytes())
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

/// One JSON object a line.
fn objects(output: &Output) -> Vec<Value> {
    text(&output.stdout)
        .lines()
        .map(|line| serde_json::from_str(line).expect("a JSON object"))
        .collect()
}

/// As `dedupd serve --help | head -1` may close the pipe before anything is written to it.
#[test]
fn help_for_a_reader_who_has_left_is_no_fault() {
    let (reader, writer) = std::io::pipe().expect("a pipe");
    drop(reader);
    let output = Command::new(env!("CARGO_BIN_EXE_dedupd"))
        .args(["serve", "--help"])
        .stdout(writer)
        .output()
        .expect("it runs");
    assert_eq!(output.status.code(), Some(0), "{}", text(&output.stderr));
    assert_eq!(text(&output.stderr), "");
}

#[test]
fn check_ends_with_its_codes_and_names_every_error() {
    const OK: &str = "store: { url: 'redis://:hunter2@host' }\n\
                      namespaces: { a: { accepts: [keyed], window: none, ttl: 5m, failure_mode: closed } }";
    const BAD: &str = "store: { url: 'rediss://:hunter2@host,host' }\n\
                       namespaces: { a: { accepts: [keyed], ttl: -5m, failure_mode: local } }";
    type Row<'a> = (&'a [&'a str], &'a [(&'a str, &'a str)], i32, &'a [&'a str]);
    let rows: [Row; 9] = [
        (&["check"], &[], 0, &["warning: store.url: memory://"]),
        (&["check"], &[("DEDUPD_CONFIG_INLINE", OK)], 0, &[]),
        (
            &["check"],
            &[("DEDUPD_CONFIG_INLINE", BAD)],
            64,
            &[
                "store.url: several hosts are for redis-sentinel://",
                "namespaces.a.window: is required",
                "namespaces.a.ttl: \"-5m\" is negative",
            ],
        ),
        (
            &["serve"],
            &[("DEDUPD_CONFIG_INLINE", BAD)],
            64,
            &["namespaces.a.window: is required"],
        ),
        (
            &["check", "--config", "/does/not/exist"],
            &[],
            64,
            &["--config: cannot read \"/does/not/exist\""],
        ),
        (
            &["check", "--store", "redis://:hunter2@host"],
            &[],
            64,
            &["--store: ", "DEDUPD_STORE_URL"],
        ),
        (
            &["check", "redis://:hunter2@host"],
            &[],
            64,
            &["unexpected argument 'redis://***@host'"],
        ),
        (&["check", "--log-format", "xml"], &[], 64, &["'xml'"]),
        (&[], &[], 64, &["Usage: dedupd"]),
    ];
    for (arguments, environment, code, parts) in rows {
        let output = dedupd(arguments, environment, "");
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
        for part in parts {
            assert!(
                errors.contains(part),
                "{arguments:?} should say {part:?}: {errors}"
            );
        }
        assert_eq!(errors.is_empty(), parts.is_empty(), "{errors}");
        assert!(
            !errors.contains("hunter2") && !text(&output.stdout).contains("hunter2"),
            "{errors}"
        );
    }
    assert_eq!(dedupd(&["--version"], &[], "").status.code(), Some(0));
}

#[test]
fn check_prints_what_takes_effect() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("dedupd.yaml");
    let namespace =
        "{ accepts: [transition], window: { sliding: 200ms }, ttl: 90s, failure_mode: open }";
    fs::write(&path, format!("namespaces: {{ doors: {namespace} }}"))
        .expect("the directory is ours");
    let path = path.to_str().expect("UTF-8");
    let output = dedupd(
        &[
            "check",
            "--config",
            path,
            "--grpc-listen",
            "[::1]:0",
            "--grpc-listen",
            "unix:/tmp/d.sock",
        ],
        &[
            ("DEDUPD_STORE_URL", "redis://app:hunter2@host/2"),
            ("DEDUPD_GRPC_LISTEN", "127.0.0.1:1"),
        ],
        "",
    );
    let shown: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        shown["listen"]["grpc"],
        json!(["[::1]:0", "unix:/tmp/d.sock"])
    );
    assert_eq!(shown["store"]["url"], "redis://***:***@host:6379/2");
    let doors = &shown["namespaces"]["doors"];
    assert_eq!(doors["window"], json!({ "sliding": "200ms" }));
    assert_eq!(doors["ttl"], "1m30s");
    assert_eq!(
        doors["contract"],
        "v1 window=200000000ns place=- digest=xxh3 layout=plain prefix=doors:; guard=200000000ns guard_m=0"
    );
}

#[test]
fn key_takes_the_built_in_namespace_of_the_events_kind() {
    let input = r#"
{"transition": {"deviceId": "d", "fenceId": "f", "kind": "TRANSITION_KIND_ENTER"}, "occurredAt": "1970-01-01T00:00:02.1Z"}
{"ping": {"asset_id": "a", "lat_lng": {"latitude": 47.4, "longitude": 8.5}}, "occurred_at_text": "1970-01-01T01:05:00+01:00"}
{"keyed": {"eventId": "id"}, "contentHash": "18446744073709551615"}
{"transition": {"deviceId": "d", "fenceId": "f", "kind": 2, "sequence": "7"}, "occurredAtUnixNanos": -1}
"#;
    let output = dedupd(&["key", "--no-time-limits"], &[], input);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let rows: Vec<_> = objects(&output)
        .iter()
        .map(|object| {
            json!([
                object["namespace"],
                object["material"],
                object["keys"].as_array().map(Vec::len)
            ])
        })
        .collect();
    let expected = [
        json!(["transitions", "d|f|E|1", 2]),
        json!(["pings", "a|300|8c1f8edb2b159ff", 1]),
        json!(["events", "id", 1]),
        json!(["transitions", "d|f|X|#7", 1]),
    ];
    assert_eq!(rows, expected);
}

#[test]
fn key_knows_the_layout_of_a_cluster_and_needs_no_files_of_the_store() {
    let config = "store: { user: app, password_file: /does/not/exist }\n\
                  namespaces: { doors: { accepts: [transition], window: { sliding: 1s }, ttl: 5m, failure_mode: open } }";
    let event = r#"{"transition": {"deviceId": "d", "fenceId": "f", "kind": 1, "sequence": "7"}, "occurredAtUnixNanos": "1"}"#;
    let keys = |url| {
        let environment = [("DEDUPD_CONFIG_INLINE", config), ("DEDUPD_STORE_URL", url)];
        let output = dedupd(&["key", "--no-time-limits"], &environment, event);
        assert_eq!(output.status.code(), Some(0), "{output:?}");
        objects(&output)[0]["keys"].clone()
    };
    let plain = keys("redis://host");
    let digest = plain[0].as_str().expect("a key").replace("doors:", "");
    let tagged = keys("redis-cluster://host");
    let tagged = tagged[0].as_str().expect("a key");
    assert!(
        tagged.starts_with("doors:{") && tagged.ends_with(&format!("}}:{digest}")),
        "{tagged}"
    );
}

#[test]
fn key_says_what_is_wrong_with_an_event() {
    let rows = [
        (
            r#"{"transition": {"deviceId": "d", "fenceId": "f", "kind": 1}}"#,
            "MISSING_TIME",
        ),
        (
            r#"{"transition": {"deviceId": "d", "fenceId": "f", "kind": 1}, "occurredAtUnixNanos": "1"}"#,
            "TIME_TOO_OLD",
        ),
        (
            r#"{"transition": {"deviceId": "d", "fenceId": "f", "kind": 9}}"#,
            "WRONG_KIND",
        ),
        (
            r#"{"occurredAtText": "2026-01-01T00:00:00Z"}"#,
            "MISSING_IDENTITY",
        ),
        (r#"{"keyed": {"eventId": " "}}"#, "MISSING_IDENTITY"),
        (r#"{"keyed": {"eventId": "a"}, "ping": {}}"#, "UNREADABLE"),
        (r#"{"keyed": {"eventId": 5}}"#, "UNREADABLE"),
        (r#"{"keyed": {"event": "a"}}"#, "UNREADABLE"),
        (
            r#"{"keyed": {"eventId": "a"}, "contentHash": -1}"#,
            "UNREADABLE",
        ),
        ("hello", "UNREADABLE"),
        (
            r#"{"ping": {"assetId": "a", "latLng": {"latitude": "NaN", "longitude": 1}}, "occurredAtText": "2026-01-01T00:00:00"}"#,
            "NAIVE_TIME",
        ),
        (
            r#"{"ping": {"assetId": "a"}, "occurredAt": "0001-01-01T00:00:00Z"}"#,
            "TIME_TOO_OLD",
        ),
    ];
    let input: String = rows.iter().map(|(line, _)| format!("{line}\n")).collect();
    let output = dedupd(&["key"], &[], &input);
    assert_eq!(output.status.code(), Some(1), "{output:?}");
    let answers = objects(&output);
    assert_eq!(answers.len(), rows.len());
    for ((line, reason), answer) in rows.iter().zip(&answers) {
        assert_eq!(answer["error"]["reason"], *reason, "{line}: {answer}");
    }
    let detail = answers[1]["error"]["detail"].as_str().expect("text");
    assert!(detail.starts_with("line 2: the time is"), "{detail}");
}

#[test]
fn key_needs_to_know_the_namespace() {
    let namespace = "{ accepts: [keyed], window: none, ttl: 5m, failure_mode: closed }";
    let config = format!("namespaces: {{ a: {namespace}, b: {namespace} }}");
    let environment = [("DEDUPD_CONFIG_INLINE", config.as_str())];
    let rows: [(&[&str], i32, &str); 5] = [
        (&["key"], 64, "choose one with --namespace, of a, b"),
        (
            &["key", "--namespace", "c"],
            64,
            "there is no \"c\"; there are a, b",
        ),
        (
            &["key", "--namespace", "b", "/does/not/exist"],
            64,
            "cannot read /does/not/exist",
        ),
        (&["key", "--namespace", "b"], 0, ""),
        (&["key", "--namespace", "b", "-"], 0, ""),
    ];
    for (arguments, code, part) in rows {
        let output = dedupd(arguments, &environment, r#"{"keyed": {"eventId": "x"}}"#);
        assert_eq!(output.status.code(), Some(code), "{arguments:?} {output:?}");
        assert!(
            text(&output.stderr).contains(part),
            "{arguments:?} {output:?}"
        );
        if code == 0 {
            assert_eq!(objects(&output)[0]["keys"], json!(["b:x"]));
        }
    }
    let output = dedupd(
        &["key", "--namespace", "b"],
        &environment,
        &"x".repeat(70_000),
    );
    assert_eq!(output.status.code(), Some(1));
    assert!(
        text(&output.stderr).contains("line 1 has 65536 bytes or more"),
        "{output:?}"
    );
}
