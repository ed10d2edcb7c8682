//! Rows through one check.

use std::{collections::BTreeMap, ffi::OsString, time::Duration};

use super::{
    Config, ConfigErrors, Flags, GrpcAddress, LogFormat, StoreUrl, load,
    quantity::{duration_text, parse_duration, parse_size, size_text},
    redact_user_info,
};
use crate::{
    domain::{
        key::Layout,
        policy::{FailureMode, Mode},
    },
    store::redis::target::{Address, Password, Secret},
};

fn load_with(
    flags: &Flags,
    environment: &[(&str, &str)],
) -> Result<(Config, LogFormat), ConfigErrors> {
    let environment: BTreeMap<_, _> = environment.iter().copied().collect();
    load(flags, &|name| environment.get(name).map(OsString::from))
}

fn load_text(yaml: &str) -> Result<Config, ConfigErrors> {
    load_with(&Flags::default(), &[("DEDUPD_CONFIG_INLINE", yaml)]).map(|(config, _)| config)
}

fn valid(yaml: &str) -> Config {
    load_text(yaml).unwrap_or_else(|errors| panic!("{yaml}\n{errors}"))
}

/// The errors are these and in this order; of each message a part is enough.
#[track_caller]
fn check_errors(result: Result<Config, ConfigErrors>, expected: &[(&str, &str)]) {
    let errors = result.expect_err("is not valid").0;
    let paths: Vec<_> = errors.iter().map(|error| error.path.as_str()).collect();
    let expected_paths: Vec<_> = expected.iter().map(|(path, _)| *path).collect();
    assert_eq!(paths, expected_paths, "{errors:#?}");
    for (error, (_, part)) in errors.iter().zip(expected) {
        assert!(
            error.message.contains(part),
            "{error} should contain {part:?}"
        );
    }
}

/// A namespace of transitions with `ttl`.
fn with_ttl(ttl: &str) -> String {
    format!(
        "namespaces: {{ n: {{ accepts: [transition], window: {{ tumbling: 1ns }}, ttl: {ttl}, failure_mode: open }} }}"
    )
}

/// `store`, and a namespace that looks at one key.
fn with_store(store: &str) -> String {
    format!(
        "store: {store}\nnamespaces: {{ n: {{ accepts: [keyed], window: none, ttl: 1h, failure_mode: open }} }}"
    )
}

fn address(host: &str, port: u16) -> Address {
    Address {
        host: host.to_owned(),
        port,
    }
}

fn text(password: &str) -> Option<Password> {
    Some(Password::Text(Secret::new(password.to_owned())))
}

mod faults;

mod values;

mod sources;

mod store_url;

mod store;

mod cluster;
