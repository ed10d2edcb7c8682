//! What the other keys of `store` add to its URL, and their files.

use std::fs;

use tempfile::TempDir;

use super::*;
use crate::store::redis::target::{Access, ClientIdentity, Endpoint, Target, Tls, Topology};

fn target(config: &Config) -> &Target {
    match &config.store.url {
        StoreUrl::Redis(target) => target,
        StoreUrl::Memory => panic!("not memory://"),
    }
}

/// Password, certificate and key files that are in order.
struct Files(TempDir);

impl Files {
    fn new() -> Self {
        let files = Self(tempfile::tempdir().expect("a directory"));
        files.write("pw", "hunter2 \n");
        files.write("pem", "-----BEGIN CERTIFICATE-----\n");
        files.write("key", "-----BEGIN PRIVATE KEY-----\n");
        files
    }

    fn write(&self, name: &str, text: impl AsRef<[u8]>) {
        fs::write(self.0.path().join(name), text).expect("the directory is ours");
    }

    /// `$name` becomes the path of the file.
    fn in_store(&self, store: &str) -> String {
        with_store(&store.replace('$', &format!("{}/", self.0.path().display())))
    }
}

#[test]
fn other_keys_complete_what_the_url_says() {
    let files = Files::new();
    let path = |name: &str| files.0.path().join(name);
    let file = || Some(Password::File(path("pw")));
    let whole = Tls {
        ca: Some(path("pem")),
        identity: Some(ClientIdentity {
            certificate: path("pem"),
            key: path("key"),
        }),
    };
    let config = valid(&files.in_store(
        "{ url: 'rediss://redis', user: app, password_file: $pw, wait_replicas: 5, \
           tls: { ca: $pem, certificate: $pem, key: $key } }",
    ));
    assert_eq!(
        *target(&config),
        Target {
            topology: Topology::Standalone {
                endpoint: Endpoint::Tcp(address("redis", 6379)),
                database: 0,
            },
            access: Access {
                tls: Some(whole.clone()),
                user: Some("app".to_owned()),
                password: file(),
            },
            wait_replicas: 5,
        }
    );
    let config = valid(&files.in_store(
        "{ url: 'redis-sentinel://:pw@s1/m', user: app, \
           sentinel: { user: watch, password_file: $pw, tls: { ca: $pem, certificate: $pem, key: $key } } }",
    ));
    assert_eq!(
        *target(&config),
        Target {
            topology: Topology::Sentinel {
                sentinels: vec![address("s1", 26379)],
                service: "m".to_owned(),
                database: 0,
                access: Access {
                    tls: Some(whole),
                    user: Some("watch".to_owned()),
                    password: file(),
                },
            },
            access: Access {
                tls: None,
                user: Some("app".to_owned()),
                password: text("pw"),
            },
            wait_replicas: 0,
        }
    );
    // TLS to the sentinels alone, to Redis alone.
    for (scheme, sentinel, to_redis, to_sentinels) in [
        ("redis", "{ tls: {} }", false, true),
        ("rediss", "{}", true, false),
        ("rediss", "{ tls: {} }", true, true),
        ("redis", "{ tls: }", false, false),
    ] {
        let store = format!("{{ url: '{scheme}-sentinel://s1/m', sentinel: {sentinel} }}");
        let config = valid(&with_store(&store));
        let Topology::Sentinel { access, .. } = &target(&config).topology else {
            panic!("{store}");
        };
        let tls = |access: &Access| access.tls.is_some();
        assert_eq!(
            (tls(&target(&config).access), tls(access)),
            (to_redis, to_sentinels),
            "{store}"
        );
    }
}

#[test]
fn keys_that_do_not_go_together_are_refused() {
    let files = Files::new();
    type Row<'a> = (&'a str, &'a [(&'a str, &'a str)]);
    let rows: [Row; 19] = [
        (
            "{ user: app, password_file: $pw, tls: {}, sentinel: {}, wait_replicas: 1, known_claims: {} }",
            &[
                ("store.user", "the store is memory://"),
                ("store.password_file", "the store is memory://"),
                ("store.tls", "the store is memory://"),
                ("store.sentinel", "the store is memory://"),
                ("store.wait_replicas", "the store is memory://"),
                ("store.known_claims", "the store is memory://"),
            ],
        ),
        (
            "{ url: 'redis://h', tls: {} }",
            &[("store.tls", "let it begin with rediss://")],
        ),
        (
            "{ url: 'redis+unix:///s', tls: { ca: $pem } }",
            &[("store.tls", "a Unix socket has no TLS")],
        ),
        (
            "{ url: 'redis-cluster://h', tls: {} }",
            &[("store.tls", "let it begin with rediss-cluster://")],
        ),
        (
            "{ url: 'redis-sentinel://h/m', tls: {} }",
            &[("store.tls", "for the sentinels there is store.sentinel.tls")],
        ),
        (
            "{ url: 'rediss://h', tls: { certificate: $pem } }",
            &[("store.tls.key", "is required with certificate")],
        ),
        (
            "{ url: 'rediss://h', tls: { key: $key, cert: $pem } }",
            &[
                ("store.tls.cert", "is not a key"),
                ("store.tls.certificate", "is required with key"),
            ],
        ),
        (
            "{ url: 'redis://h', sentinel: {} }",
            &[("store.sentinel", "is for redis-sentinel://")],
        ),
        (
            "{ url: 'rediss-cluster://h', sentinel: { tls: {} } }",
            &[("store.sentinel", "is for redis-sentinel://")],
        ),
        (
            "{ url: 'redis-sentinel://h/m', sentinel: { user: '' } }",
            &[
                ("store.sentinel.password_file", "is required with user"),
                ("store.sentinel.user", "must not be empty"),
            ],
        ),
        (
            "{ url: 'redis-sentinel://h/m', sentinel: { password: hunter2, tls: { key: $key } } }",
            &[
                ("store.sentinel.password", "is not a key"),
                ("store.sentinel.tls.certificate", "is required with key"),
            ],
        ),
        (
            "{ url: 'redis://:hunter2@h', password_file: $pw }",
            &[("store.password_file", "store.url holds a password too")],
        ),
        (
            "{ url: 'redis://app:hunter2@h', user: app }",
            &[("store.user", "store.url names a user too")],
        ),
        (
            "{ url: 'redis://app@h' }",
            &[(
                "store.url",
                "names a user, which says nothing without a password",
            )],
        ),
        (
            "{ url: 'redis://h', user: app }",
            &[(
                "store.user",
                "set store.password_file or DEDUPD_STORE_PASSWORD",
            )],
        ),
        (
            "{ url: 'redis://h', user: app, password_file: 7 }",
            &[("store.password_file", "must be the path of a file")],
        ),
        (
            "{ url: 'redis://h', wait_replicas: 6, password_file: '', user: [] }",
            &[
                ("store.user", "must be text"),
                ("store.password_file", "must not be empty"),
                ("store.wait_replicas", "must be 0 to 5"),
            ],
        ),
        (
            "{ url: 'redis://h', wait_replicas: -1, tls: 5, sentinel: no }",
            &[
                ("store.tls", "must be a mapping"),
                ("store.sentinel", "must be a mapping"),
                ("store.wait_replicas", "must be a whole number"),
            ],
        ),
        // A URL that is wrong says nothing about the rest.
        (
            "{ url: 'redis://', tls: {}, sentinel: {}, user: app }",
            &[("store.url", "the host is missing")],
        ),
    ];
    for (store, expected) in rows {
        let result = load_text(&files.in_store(store));
        if let Err(errors) = &result {
            assert!(!format!("{errors}").contains("hunter2"), "{errors}");
        }
        check_errors(result, expected);
    }
}

#[test]
fn a_password_in_the_environment() {
    let files = Files::new();
    let load_store = |store: &str, password: &str| {
        let yaml = files.in_store(store);
        let environment = [
            ("DEDUPD_CONFIG_INLINE", yaml.as_str()),
            ("DEDUPD_STORE_PASSWORD", password),
        ];
        load_with(&Flags::default(), &environment).map(|(config, _)| config)
    };
    let config = load_store("{ url: 'redis://app@h' }", " hunter2\n").expect("is valid");
    assert_eq!(target(&config).access.password, text(" hunter2"));
    assert_eq!(
        config.redacted()["store"]["url"],
        "redis://***:***@h:6379/0"
    );
    assert!(!format!("{config:?}").contains("hunter2"));

    let here = "DEDUPD_STORE_PASSWORD";
    let both = "store.url holds a password too";
    type Row<'a> = (&'a str, &'a str, &'a [(&'a str, &'a str)]);
    let rows: [Row; 6] = [
        ("{ url: 'redis://:hunter2@h' }", "hunter2", &[(here, both)]),
        (
            "{ url: 'redis://h', password_file: $pw }",
            "hunter2",
            &[(here, "store.password_file is set too")],
        ),
        (
            "{ url: 'redis://:hunter2@h', password_file: $pw }",
            "hunter2",
            &[("store.password_file", both), (here, both)],
        ),
        ("{}", "hunter2", &[(here, "the store is memory://")]),
        ("{ url: 'redis://app@h' }", "", &[(here, "set but empty")]),
        ("{ url: 'redis://app@h' }", " \n", &[(here, "white space")]),
    ];
    for (store, password, expected) in rows {
        let result = load_store(store, password);
        if let Err(errors) = &result {
            assert!(!format!("{errors}").contains("hunter2"), "{errors}");
        }
        check_errors(result, expected);
    }

    // What the environment says of the URL counts, and if that is wrong, nothing is held against it.
    let yaml = with_store("{ url: 'redis://h', tls: {} }");
    let over = |url: &str| {
        let environment = [
            ("DEDUPD_CONFIG_INLINE", yaml.as_str()),
            ("DEDUPD_STORE_URL", url),
        ];
        load_with(&Flags::default(), &environment).map(|(config, _)| config)
    };
    assert_eq!(
        over("rediss://other")
            .expect("is valid")
            .store
            .url
            .to_string(),
        "rediss://other:6379/0"
    );
    check_errors(
        over("rediss://"),
        &[("DEDUPD_STORE_URL", "the host is missing")],
    );
}

#[test]
fn files_are_looked_at_but_not_named() {
    let files = Files::new();
    files.write("blank", "\n");
    files.write("binary", [0xff]);
    files.write("long", vec![b'x'; (1 << 20) + 1]);
    let password = |file: &str| format!("{{ url: 'redis://h', password_file: {file} }}");
    let rows = [
        ("hunter2", "cannot be used: No such file"),
        ("$", "cannot be used: it is no regular file"),
        ("/dev/zero", "cannot be used: it is no regular file"),
        ("$long", "cannot be used: it is longer than 1MiB"),
        ("$binary", "is not UTF-8"),
        ("$blank", "holds no password"),
    ];
    for (file, part) in rows {
        let result = load_text(&files.in_store(&password(file)));
        if let Err(errors) = &result {
            assert!(!format!("{errors}").contains("hunter2"), "{errors}");
        }
        check_errors(result, &[("store.password_file", part)]);
    }
    let all_wrong = files.in_store(
        "{ url: 'rediss-sentinel://h/m', password_file: hunter2, tls: { ca: $key, certificate: hunter2, key: $pem }, \
           sentinel: { password_file: $blank, tls: { ca: hunter2 } } }",
    );
    check_errors(
        load_text(&all_wrong),
        &[
            ("store.password_file", "cannot be used"),
            ("store.tls.ca", "-----BEGIN CERTIFICATE-----"),
            ("store.tls.certificate", "cannot be used"),
            ("store.tls.key", "-----BEGIN PRIVATE KEY-----"),
            ("store.sentinel.password_file", "holds no password"),
            ("store.sentinel.tls.ca", "cannot be used"),
        ],
    );
    let flags = Flags {
        without_store_files: true,
        ..Flags::default()
    };
    assert!(load_with(&flags, &[("DEDUPD_CONFIG_INLINE", &all_wrong)]).is_ok());
}

#[test]
fn what_takes_effect_of_the_store_can_be_fed_back() {
    let files = Files::new();
    let rows = [
        "{ url: 'redis://app:hunter2@h/2', wait_replicas: 2, known_claims: { max_age: 0s, max_memory: 3MiB } }",
        "{ url: 'redis+unix:///s', user: app, password_file: $pw }",
        "{ url: 'rediss://app@h', password_file: $pw, tls: { ca: $pem, certificate: $pem, key: $key } }",
        "{ url: 'redis-sentinel://h,g/m', sentinel: { user: watch, password_file: $pw, tls: {} } }",
        "{ url: 'rediss-sentinel://:hunter2@h/m/3', tls: { ca: $pem }, sentinel: { tls: { ca: $pem } } }",
        "{ url: 'rediss-cluster://h,g', password_file: $pw }",
    ];
    for store in rows {
        let config = valid(&files.in_store(store));
        let shown = config.redacted();
        let text = shown.to_string();
        for hidden in ["hunter2", "app", "watch"] {
            assert!(!text.contains(hidden), "{text}");
        }
        let mut file = shown.clone();
        let namespace = file["namespaces"]["n"].as_object_mut();
        namespace.expect("a mapping").remove("contract");
        assert_eq!(valid(&file.to_string()).redacted(), shown, "{store}");
    }
    let shown = valid(&files.in_store(rows[3])).redacted();
    let pw = files.0.path().join("pw").display().to_string();
    assert_eq!(
        shown["store"],
        serde_json::json!({
            "url": "redis-sentinel://h:26379,g:26379/m/0",
            "budget": "50ms",
            "max_memory": "1GiB",
            "max_local_memory": "256MiB",
            "wait_replicas": 0,
            "known_claims": { "max_age": "1m", "max_memory": "16MiB" },
            "sentinel": {
                "user": "***",
                "password_file": pw,
                "tls": { "ca": null, "certificate": null, "key": null },
            },
        })
    );
}
