//! Everything that is wrong is named at once, and nothing secret with it.

use super::*;

#[test]
fn all_errors_are_found_at_once() {
    let yaml = r#"
listen: { grpc: [50061, "localhost:1", "unix:"], admin: x, tls: { cert_file: a, kye_file: b } }
store: { url: "ftp://host", budget: 0s, max_memory: 5, max_local_memory: 1kB, known_claims: { max_age: 2h, max_memory: 1kB, age: 1s } }
limits: { max_events_per_request: 0, max_request_bytes: 1, max_response_bytes: lots }
drian: {}
drain: { quiet: 2h }
inspect: { allow_forget: maybe }
namespaces:
  Bad Name: { accepts: [keyed], window: none, ttl: 1h, failure_mode: local }
  a:
    accepts: [ping]
    window: { tumbling: 2s, guard: 3s }
    place: { resolution: 16, guard_m: -1, region: [1, 2, 3] }
    ttl: 10s
    lease: 1m
    in_flight_retry: 0s
    failure_mode: sometimes
    key: { prefix: "dedup{", digest: xxh3, layout: 7 }
    bounds: { max_duplicate_spread: 5s, min_revisit: 1s }
    mode: watch
    time: { max_age: 0s, max_future: 0, implausible: no }
    content_mismatch: [suppress]
  b: { accepts: [transition, car], window: { session: 2s, guard: 1s }, ttl: -5m }
  c: { accepts: [ping], window: { tumbling: 1s, sliding: 1s }, ttl: 5m, failure_mode: open }
  d:
  e: { accepts: [transition], window: { session: 2s }, place: { resolution: 9, guard_m: 1 }, ttl: 5m, failure_mode: open }
"#;
    check_errors(
        load_text(yaml),
        &[
            ("drian", "is not a key; is `drain` meant?"),
            ("listen.grpc[0]", "not a number"),
            ("listen.grpc[1]", "nor unix:PATH"),
            ("listen.grpc[2]", "1 to 107 bytes"),
            ("listen.admin", "not an IP address with a port"),
            ("listen.tls.kye_file", "is `key_file` meant?"),
            ("listen.tls.key_file", "is required"),
            ("store.url", "the scheme must be memory, redis, rediss"),
            ("store.budget", "longer than 0 and at most 10s"),
            ("store.max_memory", "at least 1MiB"),
            ("store.max_local_memory", "at least 1MiB"),
            ("store.known_claims.age", "is not a key"),
            ("store.known_claims.max_age", "at most 1h, or 0s"),
            ("store.known_claims.max_memory", "at least 1MiB"),
            ("limits.max_events_per_request", "must be 1 to 100000"),
            ("limits.max_request_bytes", "must be 4KiB to 256MiB"),
            ("limits.max_response_bytes", "\"lots\" is not a size"),
            ("drain.quiet", "at most 1h"),
            ("inspect.allow_forget", "must be true or false, not text"),
            ("namespaces.\"Bad Name\"", "a namespace's name is"),
            ("namespaces.a.place.region", "[south, west, north, east]"),
            ("namespaces.a.place.resolution", "0 to 15"),
            (
                "namespaces.a.failure_mode",
                "must be open or closed or local, not \"sometimes\"",
            ),
            (
                "namespaces.a.content_mismatch",
                "must be dead_letter or suppress, not a list",
            ),
            ("namespaces.a.mode", "must be enforce or shadow"),
            ("namespaces.a.time.max_future", "with its unit"),
            ("namespaces.a.time.max_age", "for no limit write off"),
            (
                "namespaces.a.time.implausible",
                "must be dead_letter or clamp, not \"no\"",
            ),
            (
                "namespaces.a.key.layout",
                "must be plain or tagged, not a number",
            ),
            ("namespaces.a.key.digest", "no other digest than blake2b"),
            ("namespaces.a.window.guard", "not be wider than the window"),
            ("namespaces.a.lease", "not be longer than the ttl"),
            ("namespaces.a.in_flight_retry", "longer than 0"),
            ("namespaces.a.bounds", "`sequence`"),
            ("namespaces.a.key.prefix", "without { or }"),
            (
                "namespaces.b.accepts[1]",
                "must be transition or ping or keyed, not \"car\"",
            ),
            ("namespaces.b.window.guard", "is for tumbling windows"),
            ("namespaces.b.ttl", "is negative"),
            ("namespaces.b.failure_mode", "is required"),
            ("namespaces.c.window", "one of tumbling, sliding, session"),
            ("namespaces.c.place", "is required where pings are accepted"),
            ("namespaces.d", "must be a mapping, not nothing"),
            (
                "namespaces.e.place.guard_m",
                "a session window has no space guard",
            ),
        ],
    );
}

#[test]
fn a_text_needs_namespaces_and_yaml() {
    let rows = [
        ("# nothing", "namespaces", "is required"),
        ("namespaces: {}", "namespaces", "must not be empty"),
        (
            "namespaces: [a]",
            "namespaces",
            "must be a mapping, not a list",
        ),
        (
            "hello",
            "DEDUPD_CONFIG_INLINE",
            "must be a mapping, not text",
        ),
        ("a: [", "DEDUPD_CONFIG_INLINE", "line 1"),
        ("store: {}\nstore: {}", "DEDUPD_CONFIG_INLINE", "line 2"),
        ("a: b\n---\nc: d", "DEDUPD_CONFIG_INLINE", "line 2"),
    ];
    for (yaml, path, part) in rows {
        check_errors(load_text(yaml), &[(path, part)]);
    }
    let mut bomb = "a0: &a0 [x, x, x, x, x, x, x, x, x, x]\n".to_owned();
    for level in 1..9 {
        let below = vec![format!("*a{}", level - 1); 10].join(", ");
        bomb.push_str(&format!("a{level}: &a{level} [{below}]\n"));
    }
    check_errors(load_text(&bomb), &[("DEDUPD_CONFIG_INLINE", "")]);
    check_errors(
        load_text(&"#".repeat(2 << 20)),
        &[("DEDUPD_CONFIG_INLINE", "longer than 1048576 bytes")],
    );
}

#[test]
fn a_local_failure_mode_needs_a_store_that_can_be_away() {
    const NAMESPACES: &str =
        "namespaces: { n: { accepts: [keyed], window: none, ttl: 1h, failure_mode: local } }";
    let config = valid(&format!("store: {{ url: 'redis://host' }}\n{NAMESPACES}"));
    assert_eq!(config.namespaces[0].failure_mode(), FailureMode::Local);
    assert_eq!(config.store.max_local_memory_bytes, 256 << 20);
    assert_eq!(config.redacted()["store"]["max_local_memory"], "256MiB");
    let refused = ("namespaces.n.failure_mode", "write open or closed");
    for store in ["", "store: {}\n", "store: { url: 'memory://' }\n"] {
        check_errors(load_text(&format!("{store}{NAMESPACES}")), &[refused]);
    }
    // What is meant is not known.
    let wrong = format!("store: {{ url: 'ftp://host' }}\n{NAMESPACES}");
    check_errors(load_text(&wrong), &[("store.url", "the scheme must be")]);
    for (url, is_refused) in [("redis://host", false), ("memory://", true)] {
        let flags = Flags {
            store: Some(url.into()),
            ..Flags::default()
        };
        let loaded = load_with(&flags, &[("DEDUPD_CONFIG_INLINE", &wrong)]);
        assert_eq!(loaded.is_err(), is_refused, "{url}");
    }
}

#[test]
fn o05_t17_bounds_and_a_ttl_shorter_than_the_window() {
    let with = |window: &str, ttl: &str, bounds: &str| {
        load_text(&format!(
            "namespaces: {{ n: {{ accepts: [transition], window: {window}, ttl: {ttl}, failure_mode: closed, bounds: {bounds} }} }}"
        ))
    };
    let tumbling = "{ tumbling: 2s, guard: 200ms }";
    let fits = "{ max_duplicate_spread: 150ms, min_revisit: 5s }";
    assert!(with(tumbling, "2.2s", fits).is_ok());
    assert!(with("{ sliding: 200ms }", "5m", fits).is_ok());
    let rows = [
        (
            tumbling,
            "2199ms",
            fits,
            "ttl",
            "shorter than the window plus its guard, 2.2s",
        ),
        (
            "{ sliding: 1s }",
            "1999ms",
            "{}",
            "ttl",
            "shorter than the window plus its guard, 2s",
        ),
        (
            tumbling,
            "5m",
            "{ max_duplicate_spread: 200ms }",
            "bounds.max_duplicate_spread",
            "less than the guard",
        ),
        (
            tumbling,
            "5m",
            "{ min_revisit: 2s }",
            "bounds.min_revisit",
            "more than the window",
        ),
        (
            tumbling,
            "5m",
            "{ max_duplicate_spread: 5s, min_revisit: 5s }",
            "bounds",
            "send the device's `sequence`",
        ),
    ];
    for (window, ttl, bounds, path, part) in rows {
        check_errors(
            with(window, ttl, bounds),
            &[(&format!("namespaces.n.{path}"), part)],
        );
    }
}

#[test]
fn secrets_are_not_shown() {
    let redacted = [
        ("redis://app:hunter2@host/0", "redis://***@host/0"),
        ("redis://:hunter2@@host", "redis://***@host"),
        ("redis://:hun/ter2 x@host", "redis://***@host"),
        ("redis://host/0", "redis://host/0"),
        (
            "redis://:hunter2@host\nname@mail",
            "redis://***@host\nname@mail",
        ),
    ];
    for (text, expected) in redacted {
        assert_eq!(redact_user_info(text), expected);
    }
    let url: StoreUrl = "redis://app:hunter2@host".parse().expect("a URL");
    assert!(!format!("{url} {url:?}").contains("hunter2"));

    let refused = [
        "rediss://:hunter2@",
        "redis-sentinel://:hunter2@host",
        "redis-cluster://:hunter2@host/0",
        "redis+unix:///hunter2?x",
        "redis://:hunter2/x@host",
        "redis://:hunter2@",
        "redis://:hunter2@host/x",
        "redis://:hunter2@host?pass=hunter2",
        "redis://:hunter2 @host",
        "memory://:hunter2@host",
        ":hunter2@host",
        "hunter2://host",
    ];
    for url in refused {
        let stores = [
            format!("{{ url: '{url}' }}"),
            format!("'{url}'"),
            format!("[ '{url}' ]"),
            format!("{{ '{url}' }}"),
            format!("{{ url: '{url}', url: '{url}' }}"),
            format!("{{ url: '{url}' ]"),
        ];
        for store in stores {
            let errors =
                load_text(&format!("store: {store}\n{}", with_ttl("1h"))).expect_err(&store);
            assert!(
                !format!("{errors} {errors:?}").contains("hunter2"),
                "{store}: {errors}"
            );
        }
    }
}
