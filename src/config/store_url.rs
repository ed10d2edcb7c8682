//! Where claims are kept, as a URL. It may hold a password: Display shows user and password as
//! `***`, and no message holds a part of the text.
//!
//! Several hosts and names in place of a path are no part of what URL parsers read, so it is split
//! here.

use std::{
    fmt::{self, Display},
    net::Ipv6Addr,
    str::FromStr,
};

use percent_encoding::{AsciiSet, NON_ALPHANUMERIC, percent_decode_str, utf8_percent_encode};

use super::address::check_socket_path;
use crate::store::redis::target::{
    Access, Address, Endpoint, Password, Secret, Target, Tls, Topology,
};

const REDIS_PORT: u16 = 6379;
const SENTINEL_PORT: u16 = 26379;
/// Of a domain name.
const MAX_HOST_BYTES: usize = 253;

const ESCAPES: &str = "cannot be taken apart: in user, password and names write %25 for a percent sign, \
                       %40 for an at sign, %3A for a colon, %2F for a slash, %3F for a question mark, %23 for #";

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreUrl {
    /// `memory://`: in this process, gone with it.
    Memory,
    /// `redis://` and its kin. The rest of `store` may add to what the URL says.
    Redis(Box<Target>),
}

impl StoreUrl {
    pub fn is_cluster(&self) -> bool {
        match self {
            StoreUrl::Memory => false,
            StoreUrl::Redis(target) => match target.topology {
                Topology::Cluster { .. } => true,
                Topology::Standalone { .. } | Topology::Sentinel { .. } => false,
            },
        }
    }
}

impl FromStr for StoreUrl {
    type Err = String;

    /// What is wrong, without a part of the URL, which may be secret.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // Secrets in files end with a line break.
        let text = text.trim();
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err("must be a URL, such as memory:// or redis://host:6379/0".to_owned());
        };
        let (topology, tls): (Reader, bool) = match scheme {
            "memory" if rest.is_empty() => return Ok(StoreUrl::Memory),
            "memory" => return Err("memory:// has no host or path".to_owned()),
            "redis" => (standalone, false),
            "rediss" => (standalone, true),
            "redis+unix" | "unix" => (socket, false),
            "redis-sentinel" => (sentinel, false),
            "rediss-sentinel" => (sentinel, true),
            "redis-cluster" => (cluster, false),
            "rediss-cluster" => (cluster, true),
            _ => {
                return Err(
                    "the scheme must be memory, redis, rediss, redis+unix, redis-sentinel, \
                     rediss-sentinel, redis-cluster or rediss-cluster"
                        .to_owned(),
                );
            }
        };
        let parts = Parts::split(rest)?;
        Ok(StoreUrl::Redis(Box::new(Target {
            topology: topology(&parts)?,
            access: parts.access(tls)?,
            wait_replicas: 0,
        })))
    }
}

/// Of the part that each scheme has its own way with.
type Reader = fn(&Parts<'_>) -> Result<Topology, String>;

/// What follows the scheme: `[user[:password]@]hosts[/path][?query]`.
struct Parts<'a> {
    user_info: &'a str,
    hosts: &'a str,
    /// Begins with `/`, or is empty.
    path: &'a str,
    query: Option<&'a str>,
}

impl<'a> Parts<'a> {
    fn split(rest: &'a str) -> Result<Self, String> {
        if rest.contains(|c: char| c.is_whitespace() || c.is_control()) {
            return Err("holds white space: hosts are separated by a comma alone, and a space is written %20".to_owned());
        }
        let (authority, after) = rest.split_at(rest.find(['/', '?', '#']).unwrap_or(rest.len()));
        let (user_info, hosts) = authority.rsplit_once('@').unwrap_or(("", authority));
        // An at sign elsewhere: the password holds one, or a mark that ends the hosts.
        if user_info.contains('@') || after.contains(['@', '#']) {
            return Err(ESCAPES.to_owned());
        }
        let (path, query) = match after.split_once('?') {
            Some((path, query)) => (path, Some(query)),
            None => (after, None),
        };
        Ok(Self {
            user_info,
            hosts,
            path,
            query,
        })
    }

    fn access(&self, tls: bool) -> Result<Access, String> {
        let (user, password) = self
            .user_info
            .split_once(':')
            .unwrap_or((self.user_info, ""));
        let (user, password) = (decode(user)?, decode(password)?);
        Ok(Access {
            tls: tls.then(Tls::default),
            user: (!user.is_empty()).then_some(user),
            password: (!password.is_empty()).then(|| Password::Text(Secret::new(password))),
        })
    }

    fn no_query(&self) -> Result<(), String> {
        match self.query {
            None => Ok(()),
            Some(_) => Err(
                "nothing may follow with a question mark: what is not in the URL has a key of its own under store"
                    .to_owned(),
            ),
        }
    }

    /// What the path holds, without its slash.
    fn tail(&self) -> &'a str {
        self.path.strip_prefix('/').unwrap_or(self.path)
    }

    fn addresses(&self, default_port: u16) -> Result<Vec<Address>, String> {
        self.hosts
            .split(',')
            .enumerate()
            .map(|(index, host)| {
                address(host, default_port)
                    .map_err(|message| format!("host {} of the list {message}", index + 1))
            })
            .collect()
    }
}

fn standalone(parts: &Parts<'_>) -> Result<Topology, String> {
    parts.no_query()?;
    if parts.hosts.contains(',') {
        return Err("several hosts are for redis-sentinel:// and redis-cluster://".to_owned());
    }
    let address =
        address(parts.hosts, REDIS_PORT).map_err(|message| format!("the host {message}"))?;
    Ok(Topology::Standalone {
        endpoint: Endpoint::Tcp(address),
        database: database(parts.tail())?,
    })
}

fn socket(parts: &Parts<'_>) -> Result<Topology, String> {
    if !parts.hosts.is_empty() || parts.path.is_empty() {
        return Err("a socket has a path and no host: redis+unix:///run/redis.sock".to_owned());
    }
    let database = match parts.query {
        None => 0,
        Some(query) => database(
            query
                .strip_prefix("db=")
                .ok_or("only ?db=number may follow the path of a socket")?,
        )?,
    };
    let path = decode(parts.path)?;
    check_socket_path(&path)?;
    Ok(Topology::Standalone {
        endpoint: Endpoint::Unix(path.into()),
        database,
    })
}

fn sentinel(parts: &Parts<'_>) -> Result<Topology, String> {
    parts.no_query()?;
    let tail = parts.tail();
    let (service, number) = tail.split_once('/').unwrap_or((tail, ""));
    let service = decode(service)?;
    if service.is_empty() {
        return Err(
            "the name that the sentinels know the primary by must follow the hosts: redis-sentinel://host:26379/mymaster/0"
                .to_owned(),
        );
    }
    Ok(Topology::Sentinel {
        sentinels: parts.addresses(SENTINEL_PORT)?,
        service,
        database: database(number)?,
        access: Access::default(),
    })
}

fn cluster(parts: &Parts<'_>) -> Result<Topology, String> {
    parts.no_query()?;
    if !parts.tail().is_empty() {
        return Err("a cluster has no databases: nothing may follow the hosts".to_owned());
    }
    Ok(Topology::Cluster {
        seeds: parts.addresses(REDIS_PORT)?,
    })
}

/// `host`, `host:port` or `[IPv6]:port`; an error is said of the host.
fn address(text: &str, default_port: u16) -> Result<Address, &'static str> {
    let (host, port) = match text.strip_prefix('[') {
        Some(bracketed) => {
            let (host, rest) = bracketed
                .split_once(']')
                .ok_or("begins with [ and has no ]")?;
            let host: Ipv6Addr = host
                .parse()
                .map_err(|_| "holds no IPv6 address between [ and ]")?;
            let port = match rest {
                "" => None,
                rest => Some(
                    rest.strip_prefix(':')
                        .ok_or("may have a port behind ], such as [::1]:6379, and nothing else")?,
                ),
            };
            (host.to_string(), port)
        }
        None => match text.split_once(':') {
            Some((_, port)) if port.contains(':') => {
                return Err(
                    "has more than one colon: an IPv6 address stands in brackets, such as [::1]:6379",
                );
            }
            Some((host, port)) => (host.to_owned(), Some(port)),
            None => (text.to_owned(), None),
        },
    };
    let in_name =
        |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'-' | b'.' | b'_' | b':');
    if host.is_empty() {
        return Err("is missing: write its name or IP address");
    }
    if host.len() > MAX_HOST_BYTES || !host.bytes().all(in_name) {
        return Err("is not a name or IP address: it holds letters, digits, - and . only");
    }
    let port = match port {
        None => default_port,
        Some(port) => number(port)
            .filter(|port| *port != 0)
            .ok_or("must have a port of 1 to 65535 behind its colon")?,
    };
    Ok(Address { host, port })
}

fn database(text: &str) -> Result<u32, String> {
    match text {
        "" => Ok(0),
        text => number(text).ok_or_else(|| {
            "a database is a number, such as 0, and nothing may follow it".to_owned()
        }),
    }
}

/// Digits alone.
fn number<T: FromStr>(text: &str) -> Option<T> {
    text.bytes()
        .all(|byte| byte.is_ascii_digit())
        .then(|| text.parse().ok())
        .flatten()
}

fn decode(text: &str) -> Result<String, String> {
    let escapes = text.split('%').skip(1);
    let whole = |escape: &str| {
        let digits = escape.as_bytes().get(..2);
        digits.is_some_and(|digits| digits.iter().all(u8::is_ascii_hexdigit))
    };
    if !escapes.clone().all(whole) {
        return Err(ESCAPES.to_owned());
    }
    match percent_decode_str(text).decode_utf8() {
        Ok(decoded) => Ok(decoded.into_owned()),
        Err(_) => Err("holds escapes (%..) that are not UTF-8".to_owned()),
    }
}

/// With every port and database, and user and password as `***`.
impl Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let target = match self {
            StoreUrl::Memory => return f.write_str("memory://"),
            StoreUrl::Redis(target) => target,
        };
        let Access {
            tls,
            user,
            password,
        } = &target.access;
        let redis = if tls.is_some() { "rediss" } else { "redis" };
        let user = if user.is_some() { "***" } else { "" };
        let who = match (user, password) {
            (_, Some(Password::Text(_))) => format!("{user}:***@"),
            ("", Some(Password::File(_)) | None) => String::new(),
            (_, Some(Password::File(_)) | None) => format!("{user}@"),
        };
        match &target.topology {
            Topology::Standalone {
                endpoint: Endpoint::Tcp(address),
                database,
            } => write!(f, "{redis}://{who}{address}/{database}"),
            Topology::Standalone {
                endpoint: Endpoint::Unix(path),
                database,
            } => {
                let path = path.to_string_lossy();
                let path = utf8_percent_encode(&path, PATH);
                write!(f, "redis+unix://{who}{path}?db={database}")
            }
            Topology::Sentinel {
                sentinels,
                service,
                database,
                access: _,
            } => {
                let (hosts, service) = (list(sentinels), utf8_percent_encode(service, NAME));
                write!(f, "{redis}-sentinel://{who}{hosts}/{service}/{database}")
            }
            Topology::Cluster { seeds } => write!(f, "{redis}-cluster://{who}{}", list(seeds)),
        }
    }
}

/// What is written as an escape.
const NAME: &AsciiSet = &NON_ALPHANUMERIC
    .remove(b'-')
    .remove(b'.')
    .remove(b'_')
    .remove(b'~');
const PATH: &AsciiSet = &NAME.remove(b'/');

fn list(addresses: &[Address]) -> String {
    let texts: Vec<_> = addresses.iter().map(ToString::to_string).collect();
    texts.join(",")
}

/// Whether what stands before the host, well formed or not, holds a password.
pub(super) fn has_password(url: &str) -> bool {
    let after_scheme = url.split_once("://").map_or(url, |(_, rest)| rest);
    let user_info = after_scheme
        .rsplit_once('@')
        .map(|(user_info, _)| user_info);
    user_info.is_some_and(|user_info| {
        user_info
            .split_once(':')
            .is_some_and(|(_, password)| !password.is_empty())
    })
}

/// `text` with user and password of URLs as `***`: on each line from `://` to the last `@`, since
/// people forget to write `/`, `@` or a space in a password as `%2F`, `%40` or `%20`.
pub fn redact_user_info(text: &str) -> String {
    let redact = |line: &str| {
        let (scheme, rest) = line.split_once("://")?;
        let (_, host) = rest.rsplit_once('@')?;
        Some(format!("{scheme}://***@{host}"))
    };
    text.split_inclusive('\n')
        .map(|line| redact(line).unwrap_or_else(|| line.to_owned()))
        .collect()
}
