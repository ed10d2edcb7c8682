use super::*;

/// The faults, each as `path: message`; none: it is valid.
#[track_caller]
fn check(text: &str, faults: &[&str]) {
    let found: Vec<String> = match parse("--config", text) {
        Ok(_) => Vec::new(),
        Err(errors) => errors.0.iter().map(ToString::to_string).collect(),
    };
    assert_eq!(found.len(), faults.len(), "{found:#?}");
    for fault in faults {
        assert!(
            found.iter().any(|found| found.starts_with(fault)),
            "{fault:?} is not in {found:#?}"
        );
    }
    assert!(!format!("{found:?}").contains("hunter2"), "{found:?}");
}

const POLICY: &str =
    "{ namespaces: { a: { accepts: [keyed], window: none, ttl: 5m, failure_mode: closed } } }";

fn with_policy(store: &str, policy: &str) -> String {
    format!("sidecar: {{ store: {store}, policies: {{ default: \"{policy}\" }} }}")
}

#[test]
fn an_empty_file_gives_the_defaults() {
    let config = parse("--config", "").expect("nothing is wrong with it");
    assert_eq!(config.listen.to_string(), "[::]:8443");
    assert_eq!(config.sidecar.run_as_user, Some(65_532));
    assert_eq!(config.sidecar.admin_port, 9_461);
    assert_eq!(config.warnings.len(), 1, "{:?}", config.warnings);
    assert!(config.sidecar.policies.is_empty());
}

#[test]
fn every_fault_is_named_by_its_path() {
    check(
        "listen: here\n\
         tls: { files: { cert: a }, self_made: { secret: a } }\n\
         sidecars: {}\n\
         sidecar: { image: ' ', run_as_user: 0, grpc: tcp, grpc_port: 80, log_level: loud, resources: { requests: { cpu: 10x, memory: 2Gi }, limits: { memory: 1Gi } } }",
        &[
            "sidecars: is not a key; is `sidecar` meant?",
            "listen: \"here\" is not an IP address",
            "tls: needs one of files and self_made",
            "sidecar.image: must not be empty",
            "sidecar.run_as_user: must be the number of a user other than root",
            "sidecar.grpc: must be loopback or socket",
            "sidecar.grpc_port: must be 1024 to 65535",
            "sidecar.log_level: must be error or warn",
            "sidecar.resources.requests.cpu: \"10x\" is not a quantity",
            "sidecar.resources.limits.memory: 1Gi is less than the request, 2Gi",
        ],
    );
    check(
        "tls: { files: { cert: a } }",
        &["tls.files.key: is required"],
    );
    check(
        "tls: { self_made: { secret: A/b, service: s, validity: 5s } }",
        &[
            "tls.self_made.secret: is not a name as Kubernetes has them",
            "tls.self_made.webhook_configuration: is required",
            "tls.self_made.validity: must be at least 1m",
        ],
    );
    check(
        "sidecar: { grpc_port: 9461 }",
        &["sidecar.admin_port: is the port of grpc_port too"],
    );
    check(": {", &["--config: cannot be read as YAML"]);
}

#[test]
fn a_store_is_named_once_and_its_password_by_a_secret_only() {
    check("sidecar: { store: { url: 'redis://redis:6379' } }", &[]);
    check("sidecar: { store: { secret: redis, key: URL } }", &[]);
    check(
        "sidecar: { store: { url: 'redis://:hunter2@redis' } }",
        &["sidecar.store.url: holds a password"],
    );
    check(
        "sidecar: { store: { url: 'http://redis' } }",
        &["sidecar.store.url: "],
    );
    check(
        "sidecar: { store: { url: 'redis://redis', secret: redis } }",
        &["sidecar.store.secret: is set and url too"],
    );
    check(
        "sidecar: { store: { key: url } }",
        &["sidecar.store.key: is of a Secret"],
    );
    check(
        "sidecar: { store: { url: 'redis://app@redis', password: { key: a/b } } }",
        &[
            "sidecar.store.password.secret: is required",
            "sidecar.store.password.key: is not a key of a Secret",
        ],
    );
}

#[test]
fn policies_are_validated_as_the_sidecar_would() {
    check(&with_policy("{}", POLICY), &[]);
    check(
        &with_policy(
            "{}",
            "{ namespaces: { a: { accepts: [keyed], ttl: -5m, failure_mode: closed } } }",
        ),
        &[
            "sidecar.policies.default: namespaces.a.window: is required",
            "sidecar.policies.default: namespaces.a.ttl: ",
        ],
    );
    check(
        &format!("sidecar: {{ policies: {{ orders: \"{POLICY}\" }} }}"),
        &["sidecar.policies: needs one named default"],
    );
    // A user needs a password, which a Secret may hold.
    check(
        &with_policy("{ url: 'redis://app@redis' }", POLICY),
        &["sidecar.policies.default: store.url: names a user"],
    );
    check(
        &with_policy(
            "{ url: 'redis://app@redis', password: { secret: redis } }",
            POLICY,
        ),
        &[],
    );
    check(
        &with_policy(
            "{}",
            &POLICY.replacen('{', "{ store: { url: 'redis://:hunter2@redis' },", 1),
        ),
        &["sidecar.policies.default: store.url holds a password"],
    );
}

#[test]
fn what_a_policy_means_without_a_store() {
    let check = |store: &str, policy: &str, expected: fn(&WithoutStore) -> bool| {
        let config =
            parse("--config", &with_policy(store, policy)).expect("nothing is wrong with it");
        let found = &config.sidecar.policies["default"].without_store;
        assert!(expected(found), "{store}, {policy}: {found:?}");
    };
    let in_memory = |found: &WithoutStore| *found == WithoutStore::InMemory;
    let own_store = |found: &WithoutStore| *found == WithoutStore::OwnStore;
    let refused = |found: &WithoutStore| matches!(found, WithoutStore::Refused(why) if why.contains("local needs a store"));
    let local = POLICY.replace("closed", "local");
    check("{}", POLICY, in_memory);
    check("{ url: 'redis://redis' }", POLICY, in_memory);
    check("{ secret: redis }", &local, refused);
    check("{}", &local, refused);
    check(
        "{}",
        &POLICY.replacen('{', "{ store: { url: 'redis://redis', budget: 20ms },", 1),
        own_store,
    );
    check(
        "{ url: 'redis://app@other', password: { secret: redis } }",
        &POLICY.replacen('{', "{ store: { url: 'redis://app@redis' },", 1),
        own_store,
    );
}
