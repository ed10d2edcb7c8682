//! What is right is understood, and shown so that it can be fed back.

use super::*;

#[test]
fn durations_and_sizes_are_read_and_written() {
    let durations = [
        ("250ns", Duration::from_nanos(250), "250ns"),
        ("500us", Duration::from_micros(500), "500µs"),
        ("200ms", Duration::from_millis(200), "200ms"),
        ("1.5s", Duration::from_millis(1_500), "1s500ms"),
        ("6h30m", Duration::from_secs(23_400), "6h30m"),
        ("30d", Duration::from_secs(30 * 86_400), "30d"),
        ("1d 12h", Duration::from_secs(129_600), "1d12h"),
        ("0s", Duration::ZERO, "0s"),
    ];
    for (text, duration, shown) in durations {
        assert_eq!(parse_duration(text), Ok(duration), "{text}");
        assert_eq!(duration_text(duration), shown);
        assert_eq!(parse_duration(shown), Ok(duration), "{shown}");
    }
    for text in [
        "",
        "5",
        "s",
        "5 parsecs",
        "1.5ns",
        "1 month",
        "P1D",
        "-1s",
        "1h ago",
        "1e16s",
    ] {
        assert!(parse_duration(text).is_err(), "{text}");
    }
    let sizes = [
        ("4MiB", 4 << 20, "4MiB"),
        ("1.5 GiB", 3 << 29, "1536MiB"),
        ("5kB", 5_000, "5000B"),
        ("4096", 4_096, "4KiB"),
    ];
    for (text, bytes, shown) in sizes {
        assert_eq!(parse_size(text), Ok(bytes), "{text}");
        assert_eq!(size_text(bytes), shown);
        assert_eq!(parse_size(shown), Ok(bytes), "{shown}");
    }
    for text in ["", "many", "-1", "4 parsecs"] {
        assert!(parse_size(text).is_err(), "{text}");
    }
}

#[test]
fn r09_ttl_zero_negative_fractional_huge() {
    for (ttl, expected) in [
        ("500us", Duration::from_micros(500)),
        ("1.5s", Duration::from_millis(1_500)),
    ] {
        assert_eq!(valid(&with_ttl(ttl)).namespaces[0].ttl(), expected);
    }
    let refused = [
        ("0", "with its unit"),
        ("-1s", "is negative"),
        ("10000000000000000s", "is too long"),
        ("9223372036854775807ms", "is too long"),
        ("11y", "is not a duration"),
        ("4000d", "at most 10 years"),
        ("2555000h", "at most 10 years"),
    ];
    for (ttl, part) in refused {
        check_errors(load_text(&with_ttl(ttl)), &[("namespaces.n.ttl", part)]);
    }
    let zero = [
        ("namespaces.n.ttl", "shorter than the window"),
        ("namespaces.n.ttl", "longer than 0"),
    ];
    check_errors(load_text(&with_ttl("0s")), &zero);
}

#[test]
fn o05_ttl_from_the_retry_ladder() {
    let rows = [
        (
            "{ retry_delays: [1s, 5s, 30s, 2m, 10m, 1h], retry_jitter: 0.2, attempt_time: 30s }",
            Duration::from_millis(5_437_200),
        ),
        (
            "{ retry_offsets: [1m, 5m, 30m, 2h, 6h], outage_margin: 30m }",
            Duration::from_secs(23_400),
        ),
        ("{ retry_offsets: [6h, 1m] }", Duration::from_secs(21_600)),
        (
            "{ retry_delays: [0s], attempt_time: 10s }",
            Duration::from_secs(20),
        ),
        (
            "{ retry_delays: [1s], dead_letter_retention: 14d }",
            Duration::from_secs(14 * 86_400),
        ),
    ];
    for (ttl, expected) in rows {
        assert_eq!(valid(&with_ttl(ttl)).namespaces[0].ttl(), expected, "{ttl}");
    }
    let ttl = "{ retry_delays: [1s, x], retry_offsets: [], retry_jitter: 3, attempts: 4 }";
    check_errors(
        load_text(&with_ttl(ttl)),
        &[
            ("namespaces.n.ttl.attempts", "is not a key"),
            ("namespaces.n.ttl", "either retry_delays or retry_offsets"),
            (
                "namespaces.n.ttl.retry_delays[1]",
                "\"x\" is not a duration",
            ),
            ("namespaces.n.ttl.retry_offsets", "must not be empty"),
            ("namespaces.n.ttl.retry_jitter", "0 to 1"),
        ],
    );
}

#[test]
fn o03_contract_lines_of_the_built_in_namespaces() {
    let (config, log_format) = load_with(&Flags::default(), &[]).expect("the built-in is valid");
    let contracts: Vec<_> = config
        .namespaces
        .iter()
        .map(|policy| (policy.name().to_string(), policy.contract()))
        .collect();
    let expected = [
        (
            "events",
            "v1 window=none place=- digest=- layout=plain prefix=dedup:; guard=0ns guard_m=0",
        ),
        (
            "pings",
            "v1 window=300000000000ns place=12 digest=blake2b layout=plain prefix=dedup:; guard=0ns guard_m=0",
        ),
        (
            "transitions",
            "v1 window=2000000000ns place=- digest=xxh3 layout=plain prefix=idem:; guard=200000000ns guard_m=0",
        ),
    ];
    assert_eq!(
        contracts,
        expected.map(|(name, contract)| (name.to_owned(), contract.to_owned()))
    );
    let hours = |hours: u64| Duration::from_secs(hours * 3_600);
    let rest = config
        .namespaces
        .iter()
        .map(|policy| (policy.ttl(), policy.lease(), policy.failure_mode()));
    assert!(rest.eq([
        (hours(48), Duration::ZERO, FailureMode::Closed),
        (hours(13) / 2, Duration::ZERO, FailureMode::Open),
        (hours(1) / 12, Duration::ZERO, FailureMode::Closed),
    ]));
    assert_eq!(
        config.listen.grpc,
        [GrpcAddress::Tcp(
            "127.0.0.1:50061".parse().expect("an address")
        )]
    );
    assert_eq!(config.listen.admin.to_string(), "127.0.0.1:9461");
    assert_eq!(
        (config.store.url, config.store.budget),
        (StoreUrl::Memory, Duration::from_millis(50))
    );
    assert_eq!(log_format, LogFormat::Text);
    // Pings and events share a prefix, as the seeds' consumers do: only the store is worth a word.
    assert_eq!(config.warnings.len(), 1, "{:?}", config.warnings);
}

/// Section 9 of the design, with what this version adds and without what it does not have yet.
const EVERY_KEY: &str = r#"
listen:
  grpc: ["127.0.0.1:50061", "unix:/run/dedupd.sock", "0.0.0.0:0"]
  admin: "127.0.0.1:9461"
  tls: { cert_file: cert.pem, key_file: key.pem, client_ca_file: ca.pem }
store: { url: "redis://app:hunter2@redis:6379/1", budget: 50ms, max_memory: 1GiB }
limits: { max_events_per_request: 5000, max_request_bytes: 4MiB, max_response_bytes: 4194304 }
drain: { quiet: 2s, deadline: 25s }
inspect: { allow_forget: true }
namespaces:
  transitions:
    accepts: [transition]
    window: { tumbling: 2s, guard: 200ms }
    ttl: 5m
    failure_mode: closed
    lease: 0s
    in_flight_retry: 200ms
    key: { prefix: "idem:", layout: plain, digest: blake2b }
    bounds: { max_duplicate_spread: 150ms, min_revisit: 5s }
    mode: shadow
    time: { max_future: 5m, max_age: off, implausible: clamp }
  pings:
    accepts: [ping]
    window: { tumbling: 5m }
    place: { resolution: 12, guard_m: 0, jitter_radius_m: 20, region: [45.8, 5.9, 47.9, 10.6] }
    ttl: { retry_offsets: [1m, 5m, 30m, 2h, 6h], outage_margin: 30m }
    failure_mode: open
  parked: { accepts: [ping, transition], window: { sliding: 10s }, place: none, ttl: 1h, failure_mode: open, key: { prefix: "dedup:p:", layout: tagged } }
  orders:
    accepts: [keyed]
    window: none
    ttl: 48h
    failure_mode: closed
    lease: 30s
    content_mismatch: suppress
"#;

#[test]
fn what_takes_effect_can_be_fed_back() {
    let config = valid(EVERY_KEY);
    let shown = config.redacted();
    assert_eq!(shown["namespaces"]["pings"]["ttl"], "6h30m");
    assert_eq!(shown["namespaces"]["transitions"]["time"]["max_age"], "off");
    assert_eq!(shown["store"]["url"], "redis://***:***@redis:6379/1");
    for config in [
        config,
        load_with(&Flags::default(), &[])
            .expect("the built-in is valid")
            .0,
    ] {
        let shown = config.redacted();
        let mut file = shown.clone();
        for namespace in file["namespaces"]
            .as_object_mut()
            .expect("a mapping")
            .values_mut()
        {
            namespace
                .as_object_mut()
                .expect("a mapping")
                .remove("contract");
        }
        assert_eq!(valid(&file.to_string()).redacted(), shown);
    }
    let transitions = valid(EVERY_KEY).namespaces[3].clone();
    assert_eq!(
        (transitions.name().as_str(), transitions.mode()),
        ("transitions", Mode::Shadow)
    );
}

#[test]
fn warnings_name_what_is_probably_not_meant() {
    let config = valid(EVERY_KEY);
    assert_eq!(config.warnings.len(), 1, "{:?}", config.warnings);
    assert!(config.warnings[0].starts_with(
        "namespaces.parked.key.prefix: \"dedup:p:\" begins with the prefix of namespace pings"
    ));
    let namespace =
        "{ accepts: [keyed], window: none, ttl: 1h, failure_mode: open, key: { prefix: same } }";
    let config = valid(&format!(
        "listen: {{ grpc: ['0.0.0.0:1', '[::1]:2', '127.1.2.3:3'] }}\nnamespaces: {{ a: {namespace}, b: {namespace} }}"
    ));
    let expected = [
        "listen.grpc: 0.0.0.0:1 is plain TCP",
        "store.url: memory://",
        "namespaces.b.key.prefix: \"same\"",
    ];
    assert_eq!(
        config.warnings.len(),
        expected.len(),
        "{:?}",
        config.warnings
    );
    for (warning, start) in config.warnings.iter().zip(expected) {
        assert!(warning.starts_with(start), "{warning}");
    }
}

#[test]
fn stores_in_memory_keep_within_what_the_process_may_use() {
    let check = |limit: Option<u64>, max_memory: &str, max_local: &str, known: &str| {
        let flags = Flags {
            memory_limit_bytes: limit,
            ..Flags::default()
        };
        let (config, _) = load_with(&flags, &[]).expect("the built-in namespaces");
        let store = config.store;
        assert_eq!(size_text(store.max_memory_bytes), max_memory, "{limit:?}");
        assert_eq!(
            size_text(store.max_local_memory_bytes),
            max_local,
            "{limit:?}"
        );
        let known_claims = size_text(store.known_claims.max_bytes);
        assert_eq!(known_claims, known, "{limit:?}");
    };
    check(None, "1GiB", "256MiB", "16MiB");
    check(Some(16 << 30), "1GiB", "256MiB", "16MiB");
    check(Some(128 << 20), "64MiB", "32MiB", "8MiB");
    check(Some(1 << 20), "1MiB", "1MiB", "1MiB");
}

#[test]
fn the_mode_of_sockets_is_octal() {
    assert_eq!(valid(&with_ttl("1s")).listen.socket_mode, 0o660);
    let listen = |mode: &str| format!("listen: {{ socket_mode: {mode} }}\n{}", with_ttl("1s"));
    assert_eq!(valid(&listen("'0666'")).listen.socket_mode, 0o666);
    let path = "listen.socket_mode";
    check_errors(load_text(&listen("0666")), &[(path, "in quotes")]);
    check_errors(load_text(&listen("'0999'")), &[(path, "in octal")]);
    check_errors(load_text(&listen("'7777'")), &[(path, "in octal")]);
    let text = with_ttl("1s");
    let environment = [
        ("DEDUPD_CONFIG_INLINE", text.as_str()),
        ("DEDUPD_GRPC_SOCKET_MODE", "0600"),
    ];
    let (config, _) = load_with(&Flags::default(), &environment).expect("a valid text");
    assert_eq!(config.listen.socket_mode, 0o600);
}
