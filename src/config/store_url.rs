//! Where claims are kept. A URL may hold a password: nothing but [`RedisUrl::expose`] shows it.

use std::{fmt, str::FromStr};

use redis::IntoConnectionInfo;

/// Schemes that are understood but served by a later version.
const LATER_SCHEMES: [&str; 5] = [
    "rediss",
    "redis-sentinel",
    "redis-cluster",
    "redis+unix",
    "unix",
];

#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StoreUrl {
    /// `memory://`: in this process, gone with it.
    Memory,
    /// `redis://[user[:password]@]host[:port][/database]`
    Redis(RedisUrl),
}

/// A URL that the Redis client takes. Display and Debug leave out user and password.
#[derive(Clone, PartialEq, Eq)]
pub struct RedisUrl(String);

impl RedisUrl {
    /// Stopgap until URLs are read into targets.
    pub fn target(&self) -> crate::store::redis::target::Target {
        use crate::store::redis::target::*;
        let info = self.0.as_str().into_connection_info().expect("was parsed");
        let settings = info.redis_settings().clone();
        let endpoint = match info.addr().clone() {
            redis::ConnectionAddr::Tcp(host, port) => Endpoint::Tcp(Address { host, port }),
            redis::ConnectionAddr::Unix(path) => Endpoint::Unix(path),
            _ => unreachable!("refused"),
        };
        Target {
            topology: Topology::Standalone {
                endpoint,
                database: settings.db() as u32,
            },
            access: Access {
                tls: None,
                user: settings.username().map(str::to_owned),
                password: settings
                    .password()
                    .map(|text| Password::Text(Secret::new(text.to_owned()))),
            },
            wait_replicas: 0,
        }
    }

    /// The URL with its secrets: for the store only, never for a log, an error or a page.
    pub fn expose(&self) -> &str {
        &self.0
    }
}

impl FromStr for StoreUrl {
    type Err = String;

    /// What is wrong, without a part of the URL that may be secret.
    fn from_str(text: &str) -> Result<Self, Self::Err> {
        // Secrets in files end with a line break.
        let text = text.trim();
        let Some((scheme, rest)) = text.split_once("://") else {
            return Err("must be a URL, memory:// or redis://host:port/database".to_owned());
        };
        match scheme {
            "memory" if rest.is_empty() => Ok(StoreUrl::Memory),
            "memory" => Err("memory:// has no host or path".to_owned()),
            "redis" => parse_redis(text).map(StoreUrl::Redis),
            later if LATER_SCHEMES.contains(&later) => Err(format!(
                "{later}:// is not in this version yet: use redis:// or memory://"
            )),
            _ => Err("the scheme must be memory or redis".to_owned()),
        }
    }
}

fn parse_redis(text: &str) -> Result<RedisUrl, String> {
    if text.contains(|c: char| c.is_whitespace() || c.is_control()) {
        return Err("holds white space: write a space as %20".to_owned());
    }
    let url = redis::parse_redis_url(text).ok_or(
        "is not a URL such as redis://host:6379/0; in user and password \
         %40 stands for an at sign, %3A for a colon, %2F for a slash",
    )?;
    if url.fragment().is_some() || url.query_pairs().any(|(name, _)| name != "protocol") {
        return Err("only ?protocol=resp2 or ?protocol=resp3 may follow the database".to_owned());
    }
    match url.into_connection_info() {
        Ok(info) if info.redis_settings().db() < 0 => {
            Err("a database number is not negative".to_owned())
        }
        Ok(_) => Ok(RedisUrl(text.to_owned())),
        Err(error) => Err(format!("is refused by the Redis client: {error}")),
    }
}

impl fmt::Display for StoreUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            StoreUrl::Memory => f.write_str("memory://"),
            StoreUrl::Redis(url) => url.fmt(f),
        }
    }
}

impl fmt::Display for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&redact_user_info(&self.0))
    }
}

impl fmt::Debug for RedisUrl {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "RedisUrl({self})")
    }
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
