//! Flag before environment before file before default.

use super::*;

#[test]
fn flag_before_environment_before_file_before_default() {
    let file = format!(
        "store: {{ url: 'redis://file' }}\nlisten: {{ grpc: ['127.0.0.1:1'], admin: '127.0.0.1:2' }}\n{}",
        with_ttl("1h")
    );
    let environment = [
        ("DEDUPD_STORE_URL", "redis://:hunter2@environment\n"),
        ("DEDUPD_GRPC_LISTEN", "127.0.0.1:3, unix:/e"),
        ("DEDUPD_ADMIN_LISTEN", "127.0.0.1:4"),
        ("DEDUPD_LOG_FORMAT", "json"),
    ];
    let flags = Flags {
        store: Some("redis://flag".to_owned()),
        grpc_listen: vec!["127.0.0.1:5".to_owned(), "unix:/f".to_owned()],
        admin_listen: Some("127.0.0.1:6".to_owned()),
        log_format: Some(LogFormat::Text),
        ..Flags::default()
    };
    let in_file = [("DEDUPD_CONFIG_INLINE", file.as_str())];
    let all = [in_file.as_slice(), &environment].concat();
    type Row<'a> = (&'a Flags, &'a [(&'a str, &'a str)], [&'a str; 4]);
    let rows: [Row; 4] = [
        (
            &Flags::default(),
            &[],
            ["memory://", "127.0.0.1:50061", "127.0.0.1:9461", "Text"],
        ),
        (
            &Flags::default(),
            &in_file,
            ["redis://file:6379/0", "127.0.0.1:1", "127.0.0.1:2", "Text"],
        ),
        (
            &Flags::default(),
            &all,
            [
                "redis://:***@environment:6379/0",
                "127.0.0.1:3 unix:/e",
                "127.0.0.1:4",
                "Json",
            ],
        ),
        (
            &flags,
            &all,
            [
                "redis://flag:6379/0",
                "127.0.0.1:5 unix:/f",
                "127.0.0.1:6",
                "Text",
            ],
        ),
    ];
    for (flags, environment, expected) in rows {
        let (config, log_format) = load_with(flags, environment).expect("is valid");
        let grpc: Vec<_> = config.listen.grpc.iter().map(ToString::to_string).collect();
        let found = [
            config.store.url.to_string(),
            grpc.join(" "),
            config.listen.admin.to_string(),
            format!("{log_format:?}"),
        ];
        assert_eq!(found, expected);
    }
}

#[test]
fn what_flags_and_environment_get_wrong_is_named_by_them() {
    let flags = Flags {
        store: Some("redis://:hunter2@host".to_owned()),
        admin_listen: Some("9461".to_owned()),
        config: Some("/does/not/exist".into()),
        ..Flags::default()
    };
    let environment = [
        ("DEDUPD_GRPC_LISTEN", "127.0.0.1:1,2"),
        ("DEDUPD_LOG_FORMAT", "xml"),
    ];
    check_errors(
        load_with(&flags, &environment).map(|(config, _)| config),
        &[
            ("--store", "put the URL into DEDUPD_STORE_URL"),
            ("DEDUPD_GRPC_LISTEN[1]", "\"2\" is not"),
            ("--admin-listen", "\"9461\" is not"),
            ("DEDUPD_LOG_FORMAT", "text or json"),
            ("--config", "cannot read"),
        ],
    );
    let environment = [
        ("DEDUPD_CONFIG", "a"),
        ("DEDUPD_CONFIG_INLINE", "b"),
        ("DEDUPD_STORE_URL", ""),
    ];
    check_errors(
        load_with(&Flags::default(), &environment).map(|(config, _)| config),
        &[
            ("DEDUPD_STORE_URL", "set but empty"),
            ("DEDUPD_CONFIG_INLINE", "unset one of them"),
        ],
    );
}
