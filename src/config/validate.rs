//! From what was written to a configuration.

use std::{collections::BTreeMap, net::SocketAddr, ops::RangeInclusive, sync::Arc};

use super::{
    Config, Drain, GrpcAddress, Inspect, Limits, Listen, StoreConfig, StoreUrl, TlsFiles, defaults,
    namespace,
    quantity::{duration_text, size_text},
    scope::{Scope, shown_key},
    store::{self, Said},
    written::{self, Field, Size},
};
use crate::domain::policy::{FailureMode, Policy};

/// What holds the configuration's text.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Origin {
    BuiltIn,
    /// The flag or variable that names it.
    Text(&'static str),
}

impl Origin {
    pub(super) fn source(self) -> &'static str {
        match self {
            Origin::BuiltIn => "built-in",
            Origin::Text(source) => source,
        }
    }
}

/// What flags and the environment say in place of the text.
pub(super) struct Overrides {
    pub(super) store: Said,
    pub(super) grpc: Option<Vec<GrpcAddress>>,
    pub(super) socket_mode: Option<u32>,
    pub(super) admin: Option<SocketAddr>,
}

/// A configuration, if nothing is wrong with it or its overrides; all faults are on the scope.
pub(super) fn validate(
    origin: Origin,
    root: written::Root,
    overrides: Overrides,
    scope: &mut Scope<'_>,
) -> Option<Config> {
    scope.refuse_unknown_keys(&root);
    let listen = listen(
        root.listen,
        overrides.grpc,
        overrides.socket_mode,
        overrides.admin,
        scope,
    );
    let in_memory = store::is_memory(&overrides.store, root.store.as_ref());
    let store = store::store(root.store, overrides.store, scope);
    let limits = limits(root.limits, scope);
    let drain = drain(root.drain, scope);
    let inspect = inspect(root.inspect, scope);
    let namespaces = namespaces(root.namespaces, store.url.is_cluster(), scope);
    if in_memory {
        refuse_local(&namespaces, scope);
    }
    if scope.has_faults() {
        return None;
    }
    let warnings = warnings(origin, &listen, &store, &namespaces);
    Some(Config {
        listen,
        store,
        limits,
        drain,
        inspect,
        namespaces,
        warnings,
    })
}

fn listen(
    written: Option<Field<written::Listen>>,
    grpc: Option<Vec<GrpcAddress>>,
    socket_mode: Option<u32>,
    admin: Option<SocketAddr>,
    scope: &mut Scope<'_>,
) -> Listen {
    let (written, mut scope) = scope.section("listen", written);
    Listen {
        grpc: grpc
            .or_else(|| scope.list("grpc", written.grpc))
            .unwrap_or_else(|| vec![GrpcAddress::Tcp(defaults::GRPC_LISTEN)]),
        socket_mode: socket_mode
            .or_else(|| {
                let mode = scope.read("socket_mode", written.socket_mode)?;
                Some(mode.0)
            })
            .unwrap_or(defaults::SOCKET_MODE),
        admin: admin
            .or_else(|| scope.read("admin", written.admin))
            .unwrap_or(defaults::ADMIN_LISTEN),
        tls: written.tls.and_then(|tls| tls_files(tls, &mut scope)),
    }
}

fn tls_files(written: Field<written::Tls>, scope: &mut Scope<'_>) -> Option<TlsFiles> {
    let written = scope.read("tls", Some(written))?;
    let (written, mut scope) = scope.section("tls", Some(Ok(written)));
    let cert_file = scope.require("cert_file", written.cert_file);
    let key_file = scope.require("key_file", written.key_file);
    let client_ca_file = scope.read("client_ca_file", written.client_ca_file);
    Some(TlsFiles {
        cert_file: cert_file?,
        key_file: key_file?,
        client_ca_file,
    })
}

fn limits(written: Option<Field<written::Limits>>, scope: &mut Scope<'_>) -> Limits {
    let (written, mut scope) = scope.section("limits", written);
    let events = defaults::EVENTS_PER_REQUEST;
    let max_events = scope.checked(
        "max_events_per_request",
        written.max_events_per_request,
        defaults::MAX_EVENTS_PER_REQUEST as u64,
        |number| usize::try_from(*number).is_ok_and(|number| events.contains(&number)),
        &format!("must be {} to {}", events.start(), events.end()),
    );
    Limits {
        max_events_per_request: max_events as usize,
        max_request_bytes: message_bytes(
            "max_request_bytes",
            written.max_request_bytes,
            &mut scope,
        ),
        max_response_bytes: message_bytes(
            "max_response_bytes",
            written.max_response_bytes,
            &mut scope,
        ),
    }
}

fn message_bytes(key: &str, written: Option<Field<Size>>, scope: &mut Scope<'_>) -> usize {
    let bytes: RangeInclusive<u64> = defaults::MESSAGE_BYTES;
    let rule = format!(
        "must be {} to {}",
        size_text(*bytes.start()),
        size_text(*bytes.end())
    );
    let default = Size(defaults::MAX_MESSAGE_BYTES);
    scope
        .checked(key, written, default, |size| bytes.contains(&size.0), &rule)
        .0 as usize
}

fn drain(written: Option<Field<written::Drain>>, scope: &mut Scope<'_>) -> Drain {
    let (written, mut scope) = scope.section("drain", written);
    let rule = format!("must be at most {}", duration_text(defaults::MAX_DRAIN));
    let mut span = |key, written, default| {
        scope.checked(
            key,
            written,
            default,
            |span| *span <= defaults::MAX_DRAIN,
            &rule,
        )
    };
    Drain {
        quiet: span("quiet", written.quiet, defaults::DRAIN_QUIET),
        deadline: span("deadline", written.deadline, defaults::DRAIN_DEADLINE),
    }
}

fn inspect(written: Option<Field<written::Inspect>>, scope: &mut Scope<'_>) -> Inspect {
    let (written, mut scope) = scope.section("inspect", written);
    Inspect {
        allow_forget: scope
            .read("allow_forget", written.allow_forget)
            .unwrap_or(false),
    }
}

/// By name, since the map that was written is.
fn namespaces(
    written: Option<Field<BTreeMap<String, Field<written::Namespace>>>>,
    on_cluster: bool,
    scope: &mut Scope<'_>,
) -> Vec<Arc<Policy>> {
    let mut scope_of_all = scope.at("namespaces");
    if written.is_none() {
        scope_of_all.fault("is required: with a configuration only its own namespaces exist");
    }
    let Some(written) = scope_of_all.read("", written) else {
        return Vec::new();
    };
    if written.is_empty() {
        scope_of_all.fault("must not be empty");
    }
    let mut namespaces = Vec::with_capacity(written.len());
    for (name, namespace) in written {
        let mut scope = scope_of_all.at(shown_key(&name));
        let Some(namespace) = scope.read("", Some(namespace)) else {
            continue;
        };
        let valid = namespace::policy(&name, namespace, on_cluster, &mut scope);
        namespaces.extend(valid.map(Arc::new));
    }
    namespaces
}

/// What is in this process is never away.
fn refuse_local(namespaces: &[Arc<Policy>], scope: &mut Scope<'_>) {
    for policy in namespaces {
        match policy.failure_mode() {
            FailureMode::Open | FailureMode::Closed => {}
            FailureMode::Local => {
                let path = format!("namespaces.{}.failure_mode", policy.name());
                scope.at(path).fault(
                    "local needs a store that can be away; with memory:// write open or closed, for when it is full",
                );
            }
        }
    }
}

fn warnings(
    origin: Origin,
    listen: &Listen,
    store: &StoreConfig,
    namespaces: &[Arc<Policy>],
) -> Vec<String> {
    let mut warnings = Vec::new();
    if listen.tls.is_none() {
        warnings.extend(listen.grpc.iter().filter(|address| !address.is_local()).map(|address| {
            format!("listen.grpc: {address} is plain TCP beyond loopback: whoever reaches it can claim and release; set listen.tls")
        }));
    }
    if store.url == StoreUrl::Memory {
        warnings.push(
            "store.url: memory:// keeps claims per instance and until it ends: \
             copies that reach another instance, or this one after a restart, are not found"
                .to_owned(),
        );
    }
    if origin != Origin::BuiltIn {
        warnings.extend(shared_prefixes(namespaces));
    }
    warnings
}

fn shared_prefixes(namespaces: &[Arc<Policy>]) -> impl Iterator<Item = String> {
    namespaces.iter().flat_map(move |longer| {
        namespaces.iter().filter_map(move |shorter| {
            let (name, other) = (longer.name(), shorter.name());
            let (prefix, others) = (longer.scheme().prefix(), shorter.scheme().prefix());
            // Of two that are equal the later one is named.
            let meets = prefix.starts_with(others) && (prefix != others || other < name);
            (name != other && meets).then(|| {
                format!(
                    "namespaces.{name}.key.prefix: {prefix:?} begins with the prefix of namespace {other}, \
                     {others:?}: their keys may meet"
                )
            })
        })
    })
}
