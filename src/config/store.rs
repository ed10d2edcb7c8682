//! From what was written about the store to where claims are kept and how it is reached.
//!
//! The URL makes a [`Target`], with TLS or without by its scheme; the other keys complete it. Their
//! files are looked at here, so that a wrong one is found at the start; whoever connects reads them
//! anew.

use std::{
    fs::{self, File},
    io::{self, Read},
    path::{Path, PathBuf},
};

use super::{
    StoreConfig, StoreUrl, defaults,
    known_claims::known_claims,
    quantity::{duration_text, size_text},
    scope::Scope,
    source::STORE_PASSWORD,
    written::{self, Field, Size},
};
use crate::store::redis::target::{
    Access, ClientIdentity, Endpoint, Password, Secret, Target, Tls, Topology,
};

/// What flags and the environment say about the store.
pub(super) struct Said {
    pub(super) url: Option<Result<StoreUrl, Reported>>,
    pub(super) password: Option<Result<Secret, Reported>>,
    pub(super) files: Files,
    pub(super) memory_limit_bytes: Option<u64>,
}

/// What is wrong with it is on the scope already.
#[derive(Clone, Copy)]
pub(super) struct Reported;

/// Where the files are that the store needs.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Files {
    /// They must be readable.
    Here,
    /// They are not looked at.
    Elsewhere,
}

/// What only Redis has a use for, beside the URL.
struct Additions {
    user: Option<String>,
    password_file: Option<PathBuf>,
    password: Option<Secret>,
    /// A password is given beside the URL, right or wrong.
    says_password: bool,
    tls: Option<Tls>,
    sentinel: Option<Access>,
    wait_replicas: u32,
}

pub(super) fn store(
    written: Option<Field<written::Store>>,
    said: Said,
    root: &mut Scope<'_>,
) -> StoreConfig {
    let (written, mut scope) = root.section("store", written);
    let url = match (said.url, written.url) {
        (Some(url), _) => url.ok(),
        (None, Some(url)) => scope.read("url", Some(url)),
        (None, None) => Some(StoreUrl::Memory),
    };
    let budget = scope.checked(
        "budget",
        written.budget,
        defaults::STORE_BUDGET,
        |budget| !budget.is_zero() && *budget <= defaults::MAX_STORE_BUDGET,
        &format!(
            "must be longer than 0 and at most {}",
            duration_text(defaults::MAX_STORE_BUDGET)
        ),
    );
    let additions = Additions {
        user: user(written.user, &mut scope),
        says_password: said.password.is_some() || written.password_file.is_some(),
        password_file: password_file(written.password_file, said.files, &mut scope),
        password: said.password.and_then(Result::ok),
        tls: tls(written.tls, said.files, &mut scope),
        sentinel: sentinel(written.sentinel, said.files, &mut scope),
        wait_replicas: wait_replicas(written.wait_replicas, &mut scope),
    };
    let max_memory_bytes = memory_bytes(
        "max_memory",
        written.max_memory,
        defaults::max_memory_bytes(said.memory_limit_bytes),
        &mut scope,
    );
    let max_local_memory_bytes = memory_bytes(
        "max_local_memory",
        written.max_local_memory,
        defaults::max_local_memory_bytes(said.memory_limit_bytes),
        &mut scope,
    );
    let says_known_claims = written.known_claims.is_some();
    let known_claims = known_claims(written.known_claims, said.memory_limit_bytes, &mut scope);
    StoreConfig {
        url: match url {
            // Without it there is nothing to hold the rest against.
            None => StoreUrl::Memory,
            Some(StoreUrl::Memory) => {
                refuse_for_memory(&additions, says_known_claims, root);
                StoreUrl::Memory
            }
            Some(StoreUrl::Redis(target)) => {
                StoreUrl::Redis(Box::new(complete(*target, additions, root)))
            }
        },
        budget,
        max_memory_bytes,
        max_local_memory_bytes,
        known_claims,
    }
}

/// `memory://` is meant, and does not only stand in for a URL that is wrong.
pub(super) fn is_memory(said: &Said, written: Option<&Field<written::Store>>) -> bool {
    match (&said.url, written) {
        (Some(url), _) => matches!(url, Ok(StoreUrl::Memory)),
        (None, None) => true,
        (None, Some(Err(_))) => false,
        (None, Some(Ok(store))) => matches!(store.url, None | Some(Ok(StoreUrl::Memory))),
    }
}

pub(super) fn memory_bytes(
    key: &str,
    written: Option<Field<Size>>,
    default: u64,
    scope: &mut Scope<'_>,
) -> u64 {
    let least = defaults::LEAST_MAX_MEMORY_BYTES;
    let rule = format!("must be at least {}", size_text(least));
    scope
        .checked(key, written, Size(default), |size| size.0 >= least, &rule)
        .0
}

fn wait_replicas(written: Option<Field<u64>>, scope: &mut Scope<'_>) -> u32 {
    let most = u64::from(defaults::MAX_WAIT_REPLICAS);
    scope.checked(
        "wait_replicas",
        written,
        u64::from(defaults::WAIT_REPLICAS),
        |replicas| *replicas <= most,
        &format!("must be 0 to {most}"),
    ) as u32
}

fn user(written: Option<Field<String>>, scope: &mut Scope<'_>) -> Option<String> {
    let user = scope.read("user", written)?;
    if user.is_empty() {
        scope
            .at("user")
            .fault("must not be empty: leave it out for the default user");
    }
    Some(user)
}

fn tls(
    written: Option<Field<written::StoreTls>>,
    files: Files,
    scope: &mut Scope<'_>,
) -> Option<Tls> {
    let written = scope.read("tls", written)?;
    let (written, mut scope) = scope.section("tls", Some(Ok(written)));
    match (&written.certificate, &written.key) {
        (Some(_), None) => scope.at("key").fault("is required with certificate"),
        (None, Some(_)) => scope.at("certificate").fault("is required with key"),
        (None, None) | (Some(_), Some(_)) => {}
    }
    let mut file = |key, written, content| file(key, written, content, files, &mut scope);
    let ca = file("ca", written.ca, Content::Certificates);
    let certificate = file("certificate", written.certificate, Content::Certificates);
    let key = file("key", written.key, Content::Key);
    Some(Tls {
        ca,
        identity: certificate
            .zip(key)
            .map(|(certificate, key)| ClientIdentity { certificate, key }),
    })
}

fn sentinel(
    written: Option<Field<written::Sentinel>>,
    files: Files,
    scope: &mut Scope<'_>,
) -> Option<Access> {
    let written = scope.read("sentinel", written)?;
    let (written, mut scope) = scope.section("sentinel", Some(Ok(written)));
    if written.user.is_some() && written.password_file.is_none() {
        scope
            .at("password_file")
            .fault("is required with user, which says nothing without a password");
    }
    Some(Access {
        user: user(written.user, &mut scope),
        password: password_file(written.password_file, files, &mut scope).map(Password::File),
        tls: tls(written.tls, files, &mut scope),
    })
}

fn refuse_for_memory(additions: &Additions, says_known_claims: bool, root: &mut Scope<'_>) {
    let said = [
        ("store.user", additions.user.is_some()),
        ("store.password_file", additions.password_file.is_some()),
        (STORE_PASSWORD, additions.password.is_some()),
        ("store.tls", additions.tls.is_some()),
        ("store.sentinel", additions.sentinel.is_some()),
        ("store.wait_replicas", additions.wait_replicas > 0),
        ("store.known_claims", says_known_claims),
    ];
    for (path, _) in said.into_iter().filter(|(_, is_said)| *is_said) {
        root.at(path)
            .fault("is for Redis, and the store is memory://: leave it out, or set store.url");
    }
}

/// The target with what the other keys say, where it goes with the URL.
fn complete(mut target: Target, additions: Additions, root: &mut Scope<'_>) -> Target {
    target.wait_replicas = additions.wait_replicas;
    match (additions.tls, &mut target.access.tls) {
        (Some(files), Some(from_url)) => *from_url = files,
        (Some(_), None) => root.at("store.tls").fault(without_tls(&target.topology)),
        (None, _) => {}
    }
    match (additions.sentinel, &mut target.topology) {
        (Some(said), Topology::Sentinel { access, .. }) => *access = said,
        (Some(_), Topology::Standalone { .. } | Topology::Cluster { .. }) => root
            .at("store.sentinel")
            .fault("is for redis-sentinel:// and rediss-sentinel://, which store.url is not"),
        (None, _) => {}
    }
    let has_password = target.access.password.is_some() || additions.says_password;
    let names_user = match (additions.user, &mut target.access.user) {
        (Some(user), from_url) => {
            if from_url.replace(user).is_some() {
                root.at("store.user")
                    .fault("store.url names a user too: keep one of them");
            }
            Some("store.user")
        }
        (None, from_url) => from_url.as_ref().map(|_| "store.url"),
    };
    if let (Some(path), false) = (names_user, has_password) {
        root.at(path).fault(format!(
            "names a user, which says nothing without a password: \
             add it to the URL, or set store.password_file or {STORE_PASSWORD}"
        ));
    }
    let from_url = target.access.password.take();
    target.access.password = password(from_url, additions.password_file, additions.password, root);
    target
}

/// The one that is given.
fn password(
    from_url: Option<Password>,
    file: Option<PathBuf>,
    variable: Option<Secret>,
    root: &mut Scope<'_>,
) -> Option<Password> {
    if from_url.is_some() && file.is_some() {
        root.at("store.password_file")
            .fault("store.url holds a password too: keep one of them");
    }
    let other = match (&from_url, &file) {
        (Some(_), _) => Some("store.url holds a password"),
        (None, Some(_)) => Some("store.password_file is set"),
        (None, None) => None,
    };
    if let (Some(other), Some(_)) = (other, &variable) {
        root.at(STORE_PASSWORD)
            .fault(format!("is set and {other} too: keep one of them"));
    }
    from_url
        .or(file.map(Password::File))
        .or(variable.map(Password::Text))
}

/// Why there is nothing to say about TLS.
const fn without_tls(topology: &Topology) -> &'static str {
    match topology {
        Topology::Standalone {
            endpoint: Endpoint::Unix(_),
            ..
        } => "a Unix socket has no TLS: leave it out",
        Topology::Standalone {
            endpoint: Endpoint::Tcp(_),
            ..
        } => "store.url asks for no TLS: let it begin with rediss://",
        Topology::Sentinel { .. } => {
            "store.url asks for no TLS to Redis: let it begin with rediss-sentinel://; \
             for the sentinels there is store.sentinel.tls"
        }
        Topology::Cluster { .. } => {
            "store.url asks for no TLS: let it begin with rediss-cluster://"
        }
    }
}

/// What a file must hold.
#[derive(Clone, Copy)]
enum Content {
    Password,
    Certificates,
    Key,
}

fn password_file(
    written: Option<Field<PathBuf>>,
    files: Files,
    scope: &mut Scope<'_>,
) -> Option<PathBuf> {
    file("password_file", written, Content::Password, files, scope)
}

fn file(
    key: &str,
    written: Option<Field<PathBuf>>,
    content: Content,
    files: Files,
    scope: &mut Scope<'_>,
) -> Option<PathBuf> {
    let path = scope.read(key, written)?;
    let found = match files {
        Files::Here => look_at(&path, content),
        Files::Elsewhere => Ok(()),
    };
    if let Err(message) = found {
        scope.at(key).fault(message);
    }
    Some(path)
}

/// The message does not hold the path: it may be a secret that was written in its place.
fn look_at(path: &Path, content: Content) -> Result<(), String> {
    let bytes = read(path).map_err(|error| format!("names a file that cannot be used: {error}"))?;
    let text = str::from_utf8(&bytes).map_err(|_| "names a file that is not UTF-8")?;
    let (holds, what) = match content {
        Content::Password => (!text.trim_end().is_empty(), "password"),
        Content::Certificates => (
            text.contains("-----BEGIN CERTIFICATE-----"),
            "certificate in PEM, which has a line -----BEGIN CERTIFICATE-----",
        ),
        Content::Key => (
            text.contains("PRIVATE KEY-----"),
            "private key in PEM, which has a line -----BEGIN PRIVATE KEY-----",
        ),
    };
    if holds {
        Ok(())
    } else {
        Err(format!("names a file that holds no {what}"))
    }
}

fn read(path: &Path) -> io::Result<Vec<u8>> {
    // A pipe could keep us waiting for ever.
    if !fs::metadata(path)?.is_file() {
        return Err(io::Error::other("it is no regular file"));
    }
    let limit = defaults::MAX_STORE_FILE_BYTES;
    let mut bytes = Vec::new();
    File::open(path)?.take(limit + 1).read_to_end(&mut bytes)?;
    if bytes.len() as u64 > limit {
        let limit = size_text(limit);
        return Err(io::Error::other(format!("it is longer than {limit}")));
    }
    Ok(bytes)
}
