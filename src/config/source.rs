//! Where the configuration comes from: flag, environment, file, default, in this order.

use std::{
    ffi::OsString,
    fs::File,
    io::Read,
    net::SocketAddr,
    path::{Path, PathBuf},
    str::FromStr,
};

use clap::ValueEnum;
use serde_json::Value;
use serde_saphyr::UserMessageFormatter;

use super::{
    Config, ConfigErrors, GrpcAddress, LogFormat, StoreUrl,
    address::{parse_mode, parse_tcp},
    defaults,
    scope::Scope,
    store::{Files, Reported, Said},
    store_url::has_password,
    validate::{Origin, Overrides, validate},
    written::Written,
};
use crate::store::redis::target::Secret;

const BUILT_IN: &str = include_str!("built_in.yaml");

const CONFIG: &str = "DEDUPD_CONFIG";
const CONFIG_INLINE: &str = "DEDUPD_CONFIG_INLINE";
const STORE_URL: &str = "DEDUPD_STORE_URL";
pub(super) const STORE_PASSWORD: &str = "DEDUPD_STORE_PASSWORD";
const GRPC_LISTEN: &str = "DEDUPD_GRPC_LISTEN";
const SOCKET_MODE: &str = "DEDUPD_GRPC_SOCKET_MODE";
const ADMIN_LISTEN: &str = "DEDUPD_ADMIN_LISTEN";
const LOG_FORMAT: &str = "DEDUPD_LOG_FORMAT";

/// What the command line says; unset and empty: nothing.
#[derive(Clone, Debug, Default)]
pub struct Flags {
    pub config: Option<PathBuf>,
    pub store: Option<String>,
    pub grpc_listen: Vec<String>,
    pub admin_listen: Option<String>,
    pub log_format: Option<LogFormat>,
    /// The files that the store needs lie elsewhere: they are not looked at.
    pub without_store_files: bool,
    /// What this process may use, if that is known: the default bounds of stores keep within it.
    pub memory_limit_bytes: Option<u64>,
}

/// Reads and validates the configuration that flags, `environment` (a variable's name → its value)
/// and the file make together. Fails with all faults.
pub fn load(
    flags: &Flags,
    environment: &dyn Fn(&str) -> Option<OsString>,
) -> Result<(Config, LogFormat), ConfigErrors> {
    let mut errors = Vec::new();
    let mut scope = Scope::root(&mut errors);
    let overrides = overrides(flags, environment, &mut scope);
    let log_format = read_log_format(flags.log_format, environment, &mut scope);
    let config = text(flags, environment, &mut scope)
        .and_then(|(origin, text)| Some((origin, parse(origin.source(), &text, &mut scope)?)))
        .and_then(|(origin, root)| validate(origin, root, overrides, &mut scope));
    match config {
        Some(config) if errors.is_empty() => Ok((config, log_format)),
        _ => Err(ConfigErrors(errors)),
    }
}

/// Where the admin HTTP listens, as far as flags and `environment` say.
pub fn admin_address(
    flags: &Flags,
    environment: &dyn Fn(&str) -> Option<OsString>,
) -> Result<SocketAddr, ConfigErrors> {
    let mut errors = Vec::new();
    let mut scope = Scope::root(&mut errors);
    let admin = overrides(flags, environment, &mut scope).admin;
    if errors
        .iter()
        .any(|error| error.path == ADMIN_LISTEN || error.path == "--admin-listen")
    {
        return Err(ConfigErrors(errors));
    }
    Ok(admin.unwrap_or(defaults::ADMIN_LISTEN))
}

fn variable(
    name: &'static str,
    environment: &dyn Fn(&str) -> Option<OsString>,
    scope: &mut Scope<'_>,
) -> Option<String> {
    let value = environment(name)?;
    if value.is_empty() {
        scope
            .at(name)
            .fault("is set but empty: unset it, or give it a value");
        return None;
    }
    let text = value.into_string().ok();
    if text.is_none() {
        scope.at(name).fault("is not UTF-8");
    }
    text
}

fn overrides(
    flags: &Flags,
    environment: &dyn Fn(&str) -> Option<OsString>,
    scope: &mut Scope<'_>,
) -> Overrides {
    let mut said = |flag: &'static str, given: Option<String>, name: &'static str| match given {
        Some(text) => Some((flag, text)),
        None => variable(name, environment, scope).map(|text| (name, text)),
    };
    let flag_addresses = (!flags.grpc_listen.is_empty()).then(|| flags.grpc_listen.join(","));
    let store_url = said("--store", flags.store.clone(), STORE_URL);
    let grpc = said("--grpc-listen", flag_addresses, GRPC_LISTEN);
    let admin = said("--admin-listen", flags.admin_listen.clone(), ADMIN_LISTEN);
    let store_url = store_url.map(|(source, text)| {
        scope
            .read(source, Some(store_url_of(source, &text)))
            .ok_or(Reported)
    });
    let files = if flags.without_store_files {
        Files::Elsewhere
    } else {
        Files::Here
    };
    Overrides {
        store: Said {
            url: store_url,
            password: store_password(environment, scope),
            files,
            memory_limit_bytes: flags.memory_limit_bytes,
        },
        grpc: grpc.and_then(|(source, text)| {
            let addresses = text
                .split(',')
                .map(|address| GrpcAddress::from_str(address.trim()));
            scope.list(source, Some(Ok(addresses.collect())))
        }),
        socket_mode: variable(SOCKET_MODE, environment, scope)
            .and_then(|text| scope.read(SOCKET_MODE, Some(parse_mode(text.trim())))),
        admin: admin.and_then(|(source, text)| scope.read(source, Some(parse_tcp(text.trim())))),
    }
}

/// Like a file's, a secret in a variable often ends with a line break.
fn store_password(
    environment: &dyn Fn(&str) -> Option<OsString>,
    scope: &mut Scope<'_>,
) -> Option<Result<Secret, Reported>> {
    environment(STORE_PASSWORD)?;
    let password = variable(STORE_PASSWORD, environment, scope).ok_or(Reported);
    Some(password.and_then(|text| match text.trim_end() {
        "" => {
            scope
                .at(STORE_PASSWORD)
                .fault("holds nothing but white space");
            Err(Reported)
        }
        password => Ok(Secret::new(password.to_owned())),
    }))
}

fn store_url_of(source: &str, text: &str) -> Result<StoreUrl, String> {
    if source.starts_with("--") && has_password(text) {
        return Err(format!(
            "everyone on this machine can read a password on a command line: \
             put the URL into {STORE_URL}, or into a configuration file as store.url"
        ));
    }
    text.parse()
}

/// How logs are written, as far as a flag and `environment` say.
pub fn log_format(
    flag: Option<LogFormat>,
    environment: &dyn Fn(&str) -> Option<OsString>,
) -> Result<LogFormat, ConfigErrors> {
    let mut errors = Vec::new();
    let format = read_log_format(flag, environment, &mut Scope::root(&mut errors));
    if errors.is_empty() {
        Ok(format)
    } else {
        Err(ConfigErrors(errors))
    }
}

fn read_log_format(
    flag: Option<LogFormat>,
    environment: &dyn Fn(&str) -> Option<OsString>,
    scope: &mut Scope<'_>,
) -> LogFormat {
    if let Some(format) = flag {
        return format;
    }
    let Some(text) = variable(LOG_FORMAT, environment, scope) else {
        return defaults::LOG_FORMAT;
    };
    LogFormat::from_str(&text, false).unwrap_or_else(|_| {
        scope
            .at(LOG_FORMAT)
            .fault(format!("must be text or json, not {text:?}"));
        defaults::LOG_FORMAT
    })
}

/// The text of the configuration and what named it.
fn text(
    flags: &Flags,
    environment: &dyn Fn(&str) -> Option<OsString>,
    scope: &mut Scope<'_>,
) -> Option<(Origin, String)> {
    if let Some(path) = &flags.config {
        return read_file("--config", path, scope);
    }
    let is_set = |name| environment(name).is_some();
    match (is_set(CONFIG), is_set(CONFIG_INLINE)) {
        (false, false) => Some((Origin::BuiltIn, BUILT_IN.to_owned())),
        (true, false) => {
            let path = variable(CONFIG, environment, scope)?;
            read_file(CONFIG, Path::new(&path), scope)
        }
        (false, true) => Some((
            Origin::Text(CONFIG_INLINE),
            variable(CONFIG_INLINE, environment, scope)?,
        )),
        (true, true) => {
            scope
                .at(CONFIG_INLINE)
                .fault(format!("is set and so is {CONFIG}: unset one of them"));
            None
        }
    }
}

pub(super) fn read_file(
    source: &'static str,
    path: &Path,
    scope: &mut Scope<'_>,
) -> Option<(Origin, String)> {
    let mut text = String::new();
    let limit = defaults::MAX_TEXT_BYTES as u64 + 1;
    let read = File::open(path).and_then(|file| file.take(limit).read_to_string(&mut text));
    match read {
        Ok(_) => Some((Origin::Text(source), text)),
        Err(error) => {
            let shown: String = path.to_string_lossy().chars().take(200).collect();
            scope
                .at(source)
                .fault(format!("cannot read {shown:?}: {error}"));
            None
        }
    }
}

/// `source` is what named the text.
pub(super) fn parse<T: Written>(
    source: &'static str,
    text: &str,
    scope: &mut Scope<'_>,
) -> Option<T> {
    if text.len() > defaults::MAX_TEXT_BYTES {
        scope
            .at(source)
            .fault(format!("is longer than {} bytes", defaults::MAX_TEXT_BYTES));
        return None;
    }
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            max_nodes: defaults::MAX_TEXT_NODES,
            max_documents: 1,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: defaults::MAX_TEXT_NODES,
        },
        // `off` is a word here and not false.
        strict_booleans: true,
        // Snippets could show secrets.
        with_snippet: false,
    };
    let value = match serde_saphyr::from_str_with_options::<Value>(text, options) {
        Ok(Value::Null) => Value::Object(Default::default()),
        Ok(value) => value,
        Err(error) => {
            let message = error.render_with_formatter(&UserMessageFormatter);
            scope
                .at(source)
                .fault(format!("cannot be read as YAML: {message}"));
            return None;
        }
    };
    scope.read(source, Some(T::read(value)))
}
