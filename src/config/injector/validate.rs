//! From what was written to a configuration of the injector.

use std::{
    net::{IpAddr, Ipv6Addr, SocketAddr},
    ops::RangeInclusive,
    path::Path,
    time::Duration,
};

use super::{
    Api, Grpc, InjectorConfig, LogLevel, Resources, SecretKey, SelfMade, Sidecar, Store,
    StoreSource, Tls, WithoutStore,
    policies::policies,
    quantity::Quantity,
    written::{self, RunAsUser},
};
use crate::config::{
    ConfigErrors, LogFormat, StoreUrl, defaults,
    quantity::duration_text,
    scope::Scope,
    source::{self, read_file},
    store_url::has_password,
    written::Field,
};

/// Of pods that name none.
pub(crate) const DEFAULT_POLICY: &str = "default";

/// Above the ports that need a privilege.
pub(crate) const PORTS: RangeInclusive<u16> = 1024..=65_535;
const LISTEN: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 8_443);
const ADMIN_LISTEN: SocketAddr = SocketAddr::new(IpAddr::V6(Ipv6Addr::UNSPECIFIED), 9_461);
/// The nonroot user of the usual base images.
const RUN_AS_USER: u32 = 65_532;
/// Short enough that a lost key is not lost for long, long enough to survive a freeze of changes.
const VALIDITY: Duration = Duration::from_secs(90 * 86_400);
/// Time for the API server to hear of a new authority, with a margin.
const LEAST_VALIDITY: Duration = Duration::from_secs(60);
/// What a sidecar needs at rest, and with room for a burst of full batches.
const CPU_REQUEST: &str = "50m";
const MEMORY_REQUEST: &str = "64Mi";
const MEMORY_LIMIT: &str = "256Mi";

/// Reads and validates the file that `flag` names.
pub fn load(flag: &'static str, path: &Path) -> Result<InjectorConfig, ConfigErrors> {
    let mut errors = Vec::new();
    let mut scope = Scope::root(&mut errors);
    match read_file(flag, path, &mut scope) {
        Some((_, text)) => parse(flag, &text),
        None => Err(ConfigErrors(errors)),
    }
}

/// Validates the text of a file; an empty one gives the defaults.
pub fn parse(flag: &'static str, text: &str) -> Result<InjectorConfig, ConfigErrors> {
    let mut errors = Vec::new();
    let mut scope = Scope::root(&mut errors);
    let config = source::parse::<written::Root>(flag, text, &mut scope)
        .map(|root| validate(root, &mut scope));
    match config {
        Some(config) if errors.is_empty() => Ok(config),
        _ => Err(ConfigErrors(errors)),
    }
}

fn validate(root: written::Root, scope: &mut Scope<'_>) -> InjectorConfig {
    scope.refuse_unknown_keys(&root);
    let listen = scope.read("listen", root.listen).unwrap_or(LISTEN);
    let admin_listen = scope
        .read("admin_listen", root.admin_listen)
        .unwrap_or(ADMIN_LISTEN);
    let tls = root.tls.and_then(|written| tls(written, scope));
    let events = scope.read("events", root.events).unwrap_or(true);
    let api = api(root.api, scope);
    let sidecar = sidecar(root.sidecar, scope);
    let warnings = warnings(&sidecar);
    InjectorConfig {
        listen,
        admin_listen,
        tls,
        events,
        api,
        sidecar,
        warnings,
    }
}

fn tls(written: Field<written::Tls>, scope: &mut Scope<'_>) -> Option<Tls> {
    let written = scope.read("tls", Some(written))?;
    let (written, mut scope) = scope.section("tls", Some(Ok(written)));
    match (written.files, written.self_made) {
        (Some(files), None) => {
            let (files, mut scope) = scope.section("files", Some(files));
            let cert = scope.require("cert", files.cert);
            let key = scope.require("key", files.key);
            Some(Tls::Files {
                cert: cert?,
                key: key?,
            })
        }
        (None, Some(self_made)) => self_made_of(self_made, &mut scope).map(Tls::SelfMade),
        (Some(_), Some(_)) | (None, None) => {
            scope.fault("needs one of files and self_made");
            None
        }
    }
}

fn self_made_of(written: Field<written::SelfMade>, scope: &mut Scope<'_>) -> Option<SelfMade> {
    let (written, mut scope) = scope.section("self_made", Some(written));
    let mut name = |key, field| {
        let name = scope.require(key, field);
        checked_name(key, name, &mut scope)
    };
    let secret = name("secret", written.secret);
    let service = name("service", written.service);
    let webhook_configuration = name("webhook_configuration", written.webhook_configuration);
    let namespace = scope.read("namespace", written.namespace);
    let namespace = checked_name("namespace", namespace, &mut scope);
    let validity = scope.checked(
        "validity",
        written.validity,
        VALIDITY,
        |validity| *validity >= LEAST_VALIDITY,
        &format!("must be at least {}", duration_text(LEAST_VALIDITY)),
    );
    Some(SelfMade {
        secret: secret?,
        service: service?,
        webhook_configuration: webhook_configuration?,
        namespace,
        validity,
    })
}

/// A name as Kubernetes has them: it becomes part of a path of the API.
fn checked_name(key: &str, name: Option<String>, scope: &mut Scope<'_>) -> Option<String> {
    let name = name?;
    if let Err(message) = check_name(&name) {
        scope.at(key).fault(message);
        return None;
    }
    Some(name)
}

/// A DNS subdomain of RFC 1123.
pub(crate) fn check_name(name: &str) -> Result<(), String> {
    let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || matches!(c, '-' | '.');
    let at_ends = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit();
    if name.len() <= 253
        && name.starts_with(at_ends)
        && name.ends_with(at_ends)
        && name.chars().all(allowed)
    {
        return Ok(());
    }
    Err(
        "is not a name as Kubernetes has them: small letters, digits, '-' and '.', a letter or digit at both ends"
            .to_owned(),
    )
}

/// What a key of a Secret is made of.
pub(crate) fn check_key(key: &str) -> Result<(), String> {
    let allowed = |c: char| c.is_ascii_alphanumeric() || matches!(c, '-' | '.' | '_');
    if (1..=253).contains(&key.len()) && key.chars().all(allowed) {
        return Ok(());
    }
    Err("is not a key of a Secret: letters, digits, '-', '.' and '_'".to_owned())
}

fn api(written: Option<Field<written::Api>>, scope: &mut Scope<'_>) -> Api {
    let (written, mut scope) = scope.section("api", written);
    let server = scope.read("server", written.server);
    if server
        .as_deref()
        .is_some_and(|server| !server.starts_with("https://"))
    {
        scope.at("server").fault("must begin with https://");
    }
    Api {
        server,
        ca_file: scope.read("ca_file", written.ca_file),
        token_file: scope.read("token_file", written.token_file),
    }
}

fn sidecar(written: Option<Field<written::Sidecar>>, scope: &mut Scope<'_>) -> Sidecar {
    let (written, mut scope) = scope.section("sidecar", written);
    let image = scope
        .read("image", written.image)
        .unwrap_or_else(|| concat!("dedupd:", env!("CARGO_PKG_VERSION")).to_owned());
    if image.trim().is_empty() {
        scope.at("image").fault("must not be empty");
    }
    let grpc_port = port(
        "grpc_port",
        written.grpc_port,
        defaults::GRPC_LISTEN.port(),
        &mut scope,
    );
    let admin_port = port(
        "admin_port",
        written.admin_port,
        defaults::ADMIN_LISTEN.port(),
        &mut scope,
    );
    if grpc_port == admin_port {
        scope.at("admin_port").fault("is the port of grpc_port too");
    }
    let store = store(written.store, &mut scope);
    Sidecar {
        image,
        image_pull_policy: scope.read("image_pull_policy", written.image_pull_policy),
        run_as_user: scope
            .read("run_as_user", written.run_as_user)
            .map_or(Some(RUN_AS_USER), |RunAsUser(user)| user),
        resources: resources(written.resources, &mut scope),
        grpc: scope.read("grpc", written.grpc).unwrap_or(Grpc::Loopback),
        grpc_port,
        admin_port,
        log_format: scope
            .read("log_format", written.log_format)
            .unwrap_or(LogFormat::Json),
        log_level: scope
            .read("log_level", written.log_level)
            .unwrap_or(LogLevel::Info),
        policies: policies(written.policies, &store, &mut scope),
        store,
    }
}

fn port(key: &str, written: Option<Field<u64>>, default: u16, scope: &mut Scope<'_>) -> u16 {
    let port = scope.checked(
        key,
        written,
        u64::from(default),
        |port| u16::try_from(*port).is_ok_and(|port| PORTS.contains(&port)),
        &format!("must be {} to {}", PORTS.start(), PORTS.end()),
    );
    port as u16
}

/// Written, it replaces the default as a whole.
fn resources(written: Option<Field<written::Resources>>, scope: &mut Scope<'_>) -> Resources {
    let Some(written) = scope.read("resources", written) else {
        return Resources {
            cpu_request: Quantity::parse(CPU_REQUEST).ok(),
            cpu_limit: None,
            memory_request: Quantity::parse(MEMORY_REQUEST).ok(),
            memory_limit: Quantity::parse(MEMORY_LIMIT).ok(),
        };
    };
    let (written, mut scope) = scope.section("resources", Some(Ok(written)));
    let (requests, mut requests_scope) = scope.section("requests", written.requests);
    let cpu_request = requests_scope.read("cpu", requests.cpu);
    let memory_request = requests_scope.read("memory", requests.memory);
    let (limits, mut limits_scope) = scope.section("limits", written.limits);
    let cpu_limit = limits_scope.read("cpu", limits.cpu);
    let memory_limit = limits_scope.read("memory", limits.memory);
    let resources = Resources {
        cpu_request,
        cpu_limit,
        memory_request,
        memory_limit,
    };
    for (what, message) in resources.contradictions() {
        scope.at("limits").at(what).fault(message);
    }
    resources
}

impl Resources {
    /// Limits below their requests, which Kubernetes refuses: `cpu` or `memory`, and why.
    pub(crate) fn contradictions(&self) -> Vec<(&'static str, String)> {
        [
            ("cpu", &self.cpu_request, &self.cpu_limit),
            ("memory", &self.memory_request, &self.memory_limit),
        ]
        .into_iter()
        .filter_map(|(what, request, limit)| {
            let (request, limit) = (request.as_ref()?, limit.as_ref()?);
            request
                .exceeds(limit)
                .then(|| (what, format!("{limit} is less than the request, {request}")))
        })
        .collect()
    }
}

fn store(written: Option<Field<written::Store>>, scope: &mut Scope<'_>) -> Store {
    let (written, mut scope) = scope.section("store", written);
    let url = scope.read("url", written.url);
    let secret = scope.read("secret", written.secret);
    let secret = checked_name("secret", secret, &mut scope);
    let key = scope.read("key", written.key);
    let url = match (url, secret, key) {
        (Some(_), Some(_), _) => {
            scope
                .at("secret")
                .fault("is set and url too: keep one of them");
            None
        }
        (_, None, Some(_)) => {
            scope.at("key").fault("is of a Secret: name it in secret");
            None
        }
        (Some(url), None, None) => {
            check_url(&url, &mut scope);
            Some(StoreSource::Url(url))
        }
        (None, Some(secret), key) => Some(StoreSource::Secret(SecretKey {
            secret,
            key: checked_secret_key(key, "url", &mut scope),
        })),
        (None, None, None) => None,
    };
    let password = written.password.and_then(|password| {
        let (written, mut scope) = scope.section("password", Some(password));
        let secret = scope.require("secret", written.secret);
        let secret = checked_name("secret", secret, &mut scope);
        let key = scope.read("key", written.key);
        let key = checked_secret_key(key, "password", &mut scope);
        Some(SecretKey {
            secret: secret?,
            key,
        })
    });
    let files_secret = scope.read("files_secret", written.files_secret);
    let files_secret = checked_name("files_secret", files_secret, &mut scope);
    Store {
        url,
        password,
        files_secret,
    }
}

fn check_url(url: &str, scope: &mut Scope<'_>) {
    if has_password(url) {
        scope.at("url").fault(
            "holds a password, which everyone who may read a pod could read: put the URL into a Secret and name it in secret, or the password in password",
        );
    } else if let Err(message) = url.parse::<StoreUrl>() {
        scope.at("url").fault(message);
    }
}

fn checked_secret_key(key: Option<String>, default: &str, scope: &mut Scope<'_>) -> String {
    let key = key.unwrap_or_else(|| default.to_owned());
    if let Err(message) = check_key(&key) {
        scope.at("key").fault(message);
    }
    key
}

fn warnings(sidecar: &Sidecar) -> Vec<String> {
    let mut warnings = Vec::new();
    if sidecar.policies.is_empty() && sidecar.store.url.is_none() {
        warnings.push(
            "sidecar.store: names no store: each pod decides alone, in its memory, unless its annotation names a Secret".to_owned(),
        );
    }
    let unnamed = sidecar
        .policies
        .iter()
        .filter(|_| sidecar.store.url.is_none());
    for (name, policy) in unnamed {
        match policy.without_store {
            WithoutStore::OwnStore => {}
            WithoutStore::InMemory => warnings.push(format!(
                "sidecar.policies.{name}: names no store, nor does sidecar.store: each pod decides alone, in its memory, unless its annotation names a Secret"
            )),
            WithoutStore::Refused(_) => warnings.push(format!(
                "sidecar.policies.{name}: needs a store, which sidecar.store does not name: pods without the annotation of a Secret are refused"
            )),
        }
    }
    warnings
}
