//! The answer to `INFO`, as far as it matters here.
//!
//! Servers of other makes, versions and clouds leave lines out: whatever is missing is not known,
//! which is never a fault.

use std::fmt;

use hashbrown::HashMap;

#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Info {
    pub(super) version: Option<Version>,
    pub(super) run_id: Option<String>,
    pub(super) is_sentinel: bool,
    pub(super) is_cluster: bool,
    pub(super) role: Option<Role>,
    pub(super) is_loading: bool,
    pub(super) eviction: Option<String>,
    pub(super) max_memory_bytes: Option<u64>,
    pub(super) used_memory_bytes: Option<u64>,
    pub(super) evicted_keys: Option<u64>,
    pub(super) snapshot_failed: bool,
    pub(super) append_only: Option<bool>,
    pub(super) append_failed: bool,
    /// Unset unless it is a primary that was promoted.
    pub(super) promoted_from: Option<String>,
    pub(super) offset: Option<u64>,
    /// Of a primary.
    pub(super) replicas: Vec<Replica>,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Version {
    pub(super) product: Product,
    pub(super) number: (u64, u64),
    text: String,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Product {
    Redis,
    Valkey,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Role {
    Primary,
    Replica,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Replica {
    pub(super) is_online: bool,
    pub(super) offset: Option<u64>,
    /// Since it last said how far it is.
    pub(super) silent_s: Option<u64>,
}

impl fmt::Display for Version {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let product = match self.product {
            Product::Redis => "Redis",
            Product::Valkey => "Valkey",
        };
        write!(f, "{product} {}", self.text)
    }
}

impl Info {
    pub(super) fn parse(text: &str) -> Self {
        let fields: HashMap<&str, &str> = text
            .lines()
            .filter_map(|line| line.trim_end().split_once(':'))
            .collect();
        let text = |name: &str| fields.get(name).copied();
        let word = |name: &str| text(name).filter(|word| is_word(word)).map(str::to_owned);
        let number = |name: &str| text(name).and_then(|number| number.parse::<u64>().ok());
        let is = |name: &str, value: &str| text(name) == Some(value);
        Self {
            version: version(text("valkey_version"), text("redis_version")),
            run_id: word("run_id"),
            is_sentinel: is("redis_mode", "sentinel"),
            is_cluster: is("redis_mode", "cluster") || is("cluster_enabled", "1"),
            role: text("role").and_then(|role| match role {
                "master" => Some(Role::Primary),
                "slave" => Some(Role::Replica),
                _ => None,
            }),
            is_loading: is("loading", "1") || is("async_loading", "1"),
            eviction: word("maxmemory_policy"),
            max_memory_bytes: number("maxmemory"),
            used_memory_bytes: number("used_memory"),
            evicted_keys: number("evicted_keys"),
            snapshot_failed: is("rdb_last_bgsave_status", "err"),
            append_only: text("aof_enabled").map(|enabled| enabled == "1"),
            append_failed: is("aof_last_write_status", "err"),
            promoted_from: word("master_replid2").filter(|id| id.bytes().any(|byte| byte != b'0')),
            offset: number("master_repl_offset"),
            replicas: (0..number("connected_slaves").unwrap_or(0).min(MAX_REPLICAS))
                .filter_map(|index| text(&format!("slave{index}")))
                .map(replica)
                .collect(),
        }
    }
}

/// More than anyone has.
const MAX_REPLICAS: u64 = 64;
const MAX_WORD_BYTES: usize = 64;

/// It is shown: nothing that a line could be made of.
fn is_word(text: &str) -> bool {
    let allowed = |byte: u8| byte.is_ascii_alphanumeric() || matches!(byte, b'.' | b'-' | b'_');
    (1..=MAX_WORD_BYTES).contains(&text.len()) && text.bytes().all(allowed)
}

/// Valkey says which Redis it is like, too.
fn version(valkey: Option<&str>, redis: Option<&str>) -> Option<Version> {
    let (product, text) = match (valkey, redis) {
        (Some(text), _) => (Product::Valkey, text),
        (None, Some(text)) => (Product::Redis, text),
        (None, None) => return None,
    };
    let mut numbers = text.split('.').map(str::parse);
    let (Some(Ok(major)), Some(Ok(minor))) = (numbers.next(), numbers.next()) else {
        return None;
    };
    is_word(text).then(|| Version {
        product,
        number: (major, minor),
        text: text.to_owned(),
    })
}

/// `ip=…,port=…,state=online,offset=…,lag=…`
fn replica(line: &str) -> Replica {
    let field = |name: &str| {
        let mut fields = line.split(',').filter_map(|field| field.split_once('='));
        fields
            .find(|(field, _)| *field == name)
            .map(|(_, value)| value)
    };
    Replica {
        is_online: field("state") == Some("online"),
        offset: field("offset").and_then(|offset| offset.parse().ok()),
        silent_s: field("lag").and_then(|lag| lag.parse().ok()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_a_server_says_is_read() {
        let text = "# Server\r\nredis_version:7.0.15\r\nredis_mode:standalone\r\nrun_id:5e64d9\r\n\
            # Memory\r\nused_memory:939352\r\nmaxmemory:2097152\r\nmaxmemory_policy:allkeys-lru\r\n\
            loading:0\r\nrdb_last_bgsave_status:err\r\naof_enabled:1\r\naof_last_write_status:ok\r\n\
            evicted_keys:7\r\nrole:master\r\nconnected_slaves:1\r\n\
            slave0:ip=127.0.0.1,port=6380,state=online,offset=98,lag=2\r\n\
            master_replid2:00000\r\nmaster_repl_offset:100\r\ncluster_enabled:0\r\n";
        let info = Info::parse(text);
        assert_eq!(info.version.expect("known").to_string(), "Redis 7.0.15");
        let expected = Info {
            version: None,
            run_id: Some("5e64d9".to_owned()),
            role: Some(Role::Primary),
            eviction: Some("allkeys-lru".to_owned()),
            max_memory_bytes: Some(2_097_152),
            used_memory_bytes: Some(939_352),
            evicted_keys: Some(7),
            snapshot_failed: true,
            append_only: Some(true),
            offset: Some(100),
            replicas: vec![Replica {
                is_online: true,
                offset: Some(98),
                silent_s: Some(2),
            }],
            ..Info::default()
        };
        assert_eq!(
            Info {
                version: None,
                ..Info::parse(text)
            },
            expected
        );
    }

    #[test]
    fn versions_are_told_apart() {
        let rows = [
            ("redis_version:6.2.14", Some("Redis 6.2.14")),
            (
                "redis_version:7.2.4\nserver_name:valkey\nvalkey_version:8.0.1",
                Some("Valkey 8.0.1"),
            ),
            ("redis_version:255.255.255", Some("Redis 255.255.255")),
            ("redis_version:seven", None),
            ("redis_version:7.0 <b>", None),
            ("", None),
        ];
        for (text, expected) in rows {
            let version = Info::parse(text).version.map(|version| version.to_string());
            assert_eq!(version.as_deref(), expected, "{text}");
        }
    }

    #[test]
    fn what_makes_no_sense_is_not_known() {
        let hostile = "role\nrole:king\nmaxmemory:-1\nmaxmemory_policy:no\x1b[31m\nrun_id:\n\
            connected_slaves:99999999999\nslave0:\nslave1:offset=x,,state=wait_bgsave\n:::\n";
        let unknown = Replica {
            is_online: false,
            offset: None,
            silent_s: None,
        };
        let expected = Info {
            replicas: vec![unknown.clone(), unknown],
            ..Info::default()
        };
        assert_eq!(Info::parse(hostile), expected);
    }
}
