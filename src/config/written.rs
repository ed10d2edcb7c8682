//! What was written: every value right or wrong, nothing held against anything else yet.
//!
//! A [`Field`] keeps the message instead of ending the reading, so that all faults are found in one
//! go. `null` is the same as not written. Messages never show a value that may be a secret.

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, time::Duration};

use serde_json::{Map, Value};

use super::{
    address::{GrpcAddress, parse_mode, parse_tcp},
    quantity::{parse_duration, parse_size},
    store_url::StoreUrl,
};
use crate::domain::{
    key::{Digest, Layout},
    kind::Kind,
    policy::{ContentMismatch, FailureMode, Mode},
    time::Implausible,
};

/// A value, or what is wrong with it.
pub(super) type Field<T> = Result<T, String>;

pub(super) trait Written: Sized {
    fn read(value: Value) -> Field<Self>;
}

/// A mapping with a fixed set of keys.
pub(super) trait Section: Written + Default {
    const KEYS: &'static [&'static str];

    fn unknown_keys(&self) -> &[String];
}

macro_rules! sections {
    ($($name:ident { $($key:ident: $shape:ty,)* })*) => {$(
        #[derive(Default)]
        pub(super) struct $name {
            $(pub(super) $key: Option<Field<$shape>>,)*
            unknown: Vec<String>,
        }

        impl Written for $name {
            fn read(value: Value) -> Field<Self> {
                let mut map = mapping(value)?;
                Ok(Self {
                    $($key: take(&mut map, stringify!($key)),)*
                    unknown: map.into_iter().map(|(key, _)| key).collect(),
                })
            }
        }

        impl Section for $name {
            const KEYS: &'static [&'static str] = &[$(stringify!($key)),*];

            fn unknown_keys(&self) -> &[String] {
                &self.unknown
            }
        }
    )*};
}

pub(super) use sections;

sections! {
    Root {
        listen: Listen,
        store: Store,
        limits: Limits,
        drain: Drain,
        inspect: Inspect,
        namespaces: BTreeMap<String, Field<Namespace>>,
    }
    Listen {
        grpc: Vec<Field<GrpcAddress>>,
        socket_mode: FileMode,
        admin: SocketAddr,
        tls: Tls,
    }
    Tls {
        cert_file: PathBuf,
        key_file: PathBuf,
        client_ca_file: PathBuf,
    }
    Store {
        url: StoreUrl,
        budget: Duration,
        user: String,
        password_file: PathBuf,
        tls: StoreTls,
        sentinel: Sentinel,
        wait_replicas: u64,
        max_memory: Size,
        max_local_memory: Size,
        known_claims: KnownClaims,
    }
    KnownClaims {
        max_age: Duration,
        max_memory: Size,
    }
    StoreTls {
        ca: PathBuf,
        certificate: PathBuf,
        key: PathBuf,
    }
    Sentinel {
        user: String,
        password_file: PathBuf,
        tls: StoreTls,
    }
    Limits {
        max_events_per_request: u64,
        max_request_bytes: Size,
        max_response_bytes: Size,
    }
    Drain {
        quiet: Duration,
        deadline: Duration,
    }
    Inspect {
        allow_forget: bool,
    }
    Namespace {
        accepts: Vec<Field<Kind>>,
        window: Or<Absent, Window>,
        place: Or<Absent, Place>,
        ttl: Or<Duration, Ladder>,
        failure_mode: FailureMode,
        lease: Duration,
        in_flight_retry: Duration,
        key: Key,
        bounds: Bounds,
        mode: Mode,
        time: Time,
        content_mismatch: ContentMismatch,
    }
    Window {
        tumbling: Duration,
        guard: Duration,
        sliding: Duration,
        session: Duration,
    }
    Place {
        resolution: u64,
        guard_m: f64,
        jitter_radius_m: f64,
        region: Vec<Field<f64>>,
    }
    Ladder {
        retry_delays: Vec<Field<Duration>>,
        retry_offsets: Vec<Field<Duration>>,
        retry_jitter: f64,
        attempt_time: Duration,
        outage_margin: Duration,
        dead_letter_retention: Duration,
    }
    Key {
        prefix: String,
        layout: Layout,
        digest: Digest,
    }
    Bounds {
        max_duplicate_spread: Duration,
        min_revisit: Duration,
    }
    Time {
        max_future: Limit,
        max_age: Limit,
        implausible: Implausible,
    }
}

/// A word or a text, or a mapping.
pub(super) enum Or<T, S> {
    Plain(T),
    Section(S),
}

/// The word `none`.
pub(super) struct Absent;

/// A number of bytes.
pub(super) struct Size(pub(super) u64);

/// Permissions of a file, in octal.
pub(super) struct FileMode(pub(super) u32);

/// How far a time may lie off; `None` is `off`.
pub(super) struct Limit(pub(super) Option<Duration>);

pub(super) fn take<T: Written>(map: &mut Map<String, Value>, key: &str) -> Option<Field<T>> {
    map.remove(key)
        .filter(|value| !value.is_null())
        .map(T::read)
}

pub(super) fn mapping(value: Value) -> Field<Map<String, Value>> {
    match value {
        Value::Object(map) => Ok(map),
        other => Err(format!("must be a mapping, not {}", kind_of(&other))),
    }
}

pub(super) fn text(value: Value, example: &str) -> Field<String> {
    match value {
        Value::String(text) => Ok(text),
        other => Err(format!("must be {example}, not {}", kind_of(&other))),
    }
}

const fn kind_of(value: &Value) -> &'static str {
    match value {
        Value::Null => "nothing",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "a mapping",
    }
}

/// One of a few words.
pub(super) fn word<T: Copy>(value: &Value, words: &[(&str, T)]) -> Field<T> {
    let found = words.iter().find(|(word, _)| value.as_str() == Some(word));
    found.map(|(_, meaning)| *meaning).ok_or_else(|| {
        let known: Vec<_> = words.iter().map(|(word, _)| *word).collect();
        let written = value.as_str().map_or(kind_of(value).to_owned(), |text| {
            format!("{:?}", text.chars().take(40).collect::<String>())
        });
        format!("must be {}, not {written}", known.join(" or "))
    })
}

impl<T: Written> Written for Vec<Field<T>> {
    fn read(value: Value) -> Field<Self> {
        match value {
            Value::Array(items) => Ok(items.into_iter().map(T::read).collect()),
            other => Err(format!("must be a list, not {}", kind_of(&other))),
        }
    }
}

impl<T: Written> Written for BTreeMap<String, Field<T>> {
    fn read(value: Value) -> Field<Self> {
        Ok(mapping(value)?
            .into_iter()
            .map(|(name, value)| (name, T::read(value)))
            .collect())
    }
}

impl<T: Written, S: Section> Written for Or<T, S> {
    fn read(value: Value) -> Field<Self> {
        match value {
            Value::Object(_) => S::read(value).map(Or::Section),
            plain => T::read(plain).map(Or::Plain),
        }
    }
}

impl Written for Absent {
    fn read(value: Value) -> Field<Self> {
        word(&value, &[("none", ())])
            .map(|()| Absent)
            .map_err(|message| format!("{message}; or a mapping"))
    }
}

impl Written for Duration {
    fn read(value: Value) -> Field<Self> {
        parse_duration(&text(
            value,
            "a duration with its unit, such as 250ns, 200ms, 1.5s, 6h30m or 30d",
        )?)
    }
}

impl Written for Limit {
    fn read(value: Value) -> Field<Self> {
        if value == "off" {
            return Ok(Limit(None));
        }
        Duration::read(value)
            .map(|limit| Limit(Some(limit)))
            .map_err(|message| format!("{message}; for no limit write off"))
    }
}

impl Written for Size {
    fn read(value: Value) -> Field<Self> {
        match value.as_u64() {
            Some(bytes) => Ok(Size(bytes)),
            None => parse_size(&text(value, "a size such as 4MiB")?).map(Size),
        }
    }
}

impl Written for FileMode {
    fn read(value: Value) -> Field<Self> {
        parse_mode(&text(
            value,
            "permissions in octal, in quotes, such as \"0660\"",
        )?)
        .map(FileMode)
    }
}

impl Written for GrpcAddress {
    fn read(value: Value) -> Field<Self> {
        text(
            value,
            "an address such as \"127.0.0.1:50061\" or \"unix:/run/dedupd.sock\"",
        )?
        .parse()
    }
}

impl Written for SocketAddr {
    fn read(value: Value) -> Field<Self> {
        parse_tcp(&text(value, "an address such as \"127.0.0.1:9461\"")?)
    }
}

impl Written for StoreUrl {
    fn read(value: Value) -> Field<Self> {
        text(value, "a URL, such as memory:// or redis://host:6379/0")?.parse()
    }
}

impl Written for String {
    fn read(value: Value) -> Field<Self> {
        text(value, "text (in quotes)")
    }
}

impl Written for PathBuf {
    fn read(value: Value) -> Field<Self> {
        match text(value, "the path of a file")? {
            empty if empty.is_empty() => Err("must not be empty".to_owned()),
            path => Ok(path.into()),
        }
    }
}

impl Written for bool {
    fn read(value: Value) -> Field<Self> {
        value
            .as_bool()
            .ok_or_else(|| format!("must be true or false, not {}", kind_of(&value)))
    }
}

impl Written for u64 {
    fn read(value: Value) -> Field<Self> {
        value.as_u64().ok_or_else(|| match value {
            Value::Number(number) => format!("must be a whole number, not {number}"),
            other => format!("must be a whole number, not {}", kind_of(&other)),
        })
    }
}

impl Written for f64 {
    fn read(value: Value) -> Field<Self> {
        value
            .as_f64()
            .ok_or_else(|| format!("must be a number, not {}", kind_of(&value)))
    }
}

macro_rules! words {
    ($($name:ident { $($word:literal => $variant:ident,)* })*) => {$(
        impl Written for $name {
            fn read(value: Value) -> Field<Self> {
                word(&value, &[$(($word, $name::$variant)),*])
            }
        }
    )*};
}

pub(super) use words;

words! {
    Kind { "transition" => Transition, "ping" => Ping, "keyed" => Keyed, }
    Layout { "plain" => Plain, "tagged" => Tagged, }
    Digest { "xxh3" => Xxh3, "blake2b" => Blake2b, }
    FailureMode { "open" => Open, "closed" => Closed, "local" => Local, }
    Mode { "enforce" => Enforce, "shadow" => Shadow, }
    Implausible { "dead_letter" => DeadLetter, "clamp" => Clamp, }
    ContentMismatch { "dead_letter" => DeadLetter, "suppress" => Suppress, }
}
