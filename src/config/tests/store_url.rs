//! Where claims are kept, as a URL.

use super::*;
use crate::store::redis::target::{Access, Endpoint, Topology};

#[test]
fn urls_are_read_and_shown_without_user_and_password() {
    type Row = (
        &'static str,
        &'static str,
        Option<&'static str>,
        Option<&'static str>,
    );
    let rows: [Row; 18] = [
        ("redis://redis", "redis://redis:6379/0", None, None),
        ("redis://redis:7000/3\n", "redis://redis:7000/3", None, None),
        ("redis://10.0.0.1/", "redis://10.0.0.1:6379/0", None, None),
        ("redis://[::1]", "redis://[::1]:6379/0", None, None),
        (
            "redis://[2001:DB8::1]:7000",
            "redis://[2001:db8::1]:7000/0",
            None,
            None,
        ),
        (
            "redis://:pw@redis",
            "redis://:***@redis:6379/0",
            None,
            Some("pw"),
        ),
        (
            "redis://app:@redis",
            "redis://***@redis:6379/0",
            Some("app"),
            None,
        ),
        (
            "redis://a%40b:p:%2F%3F%23%25%C3%A9,@redis/1",
            "redis://***:***@redis:6379/1",
            Some("a@b"),
            Some("p:/?#%é,"),
        ),
        (
            "rediss://app:pw@redis.example.com",
            "rediss://***:***@redis.example.com:6379/0",
            Some("app"),
            Some("pw"),
        ),
        (
            "redis+unix:///run/redis.sock",
            "redis+unix:///run/redis.sock?db=0",
            None,
            None,
        ),
        (
            "unix://app:pw@/run/a%20b/r.sock?db=2",
            "redis+unix://***:***@/run/a%20b/r.sock?db=2",
            Some("app"),
            Some("pw"),
        ),
        (
            "redis-sentinel://s1/mymaster",
            "redis-sentinel://s1:26379/mymaster/0",
            None,
            None,
        ),
        (
            "redis-sentinel://app:pw@s1,s2:5000,[::1],[::2]:5001/my%2Fmaster%20é/4",
            "redis-sentinel://***:***@s1:26379,s2:5000,[::1]:26379,[::2]:5001/my%2Fmaster%20%C3%A9/4",
            Some("app"),
            Some("pw"),
        ),
        (
            "rediss-sentinel://s1/mymaster/",
            "rediss-sentinel://s1:26379/mymaster/0",
            None,
            None,
        ),
        (
            "redis-cluster://c1,c2:7001",
            "redis-cluster://c1:6379,c2:7001",
            None,
            None,
        ),
        (
            "redis-cluster://:pw@c1/",
            "redis-cluster://:***@c1:6379",
            None,
            Some("pw"),
        ),
        (
            "rediss-cluster://app:pw@[::1]:7000,c2",
            "rediss-cluster://***:***@[::1]:7000,c2:6379",
            Some("app"),
            Some("pw"),
        ),
        (
            "redis://my_redis.ns.svc:1",
            "redis://my_redis.ns.svc:1/0",
            None,
            None,
        ),
    ];
    for (written, shown, user, password) in rows {
        let url: StoreUrl = written.parse().expect(written);
        assert_eq!(url.to_string(), shown, "{written}");
        let again: StoreUrl = shown.parse().expect(shown);
        assert_eq!(again.to_string(), shown);
        let StoreUrl::Redis(target) = url else {
            panic!("{written} is not memory://");
        };
        assert_eq!(target.access.user.as_deref(), user, "{written}");
        assert_eq!(target.access.password, password.and_then(text), "{written}");
        assert_eq!(target.access.tls.is_some(), written.starts_with("rediss"));
        assert!(!format!("{target:?}").contains("pw"), "{target:?}");
    }
}

#[test]
fn a_url_becomes_a_topology() {
    let topology = |url: &str| match url.parse() {
        Ok(StoreUrl::Redis(target)) => target.topology,
        other => panic!("{url}: {other:?}"),
    };
    assert_eq!(
        topology("redis://[::1]:7000/2"),
        Topology::Standalone {
            endpoint: Endpoint::Tcp(address("::1", 7000)),
            database: 2,
        }
    );
    assert_eq!(
        topology("unix:///tmp/%40r.sock?db=1"),
        Topology::Standalone {
            endpoint: Endpoint::Unix("/tmp/@r.sock".into()),
            database: 1,
        }
    );
    assert_eq!(
        topology("rediss-sentinel://app:pw@s1,[::1]:5000/my%20master/7"),
        Topology::Sentinel {
            sentinels: vec![address("s1", 26379), address("::1", 5000)],
            service: "my master".to_owned(),
            database: 7,
            // The user and the password are Redis's own.
            access: Access::default(),
        }
    );
    assert_eq!(
        topology("redis-cluster://c1,c2:7000"),
        Topology::Cluster {
            seeds: vec![address("c1", 6379), address("c2", 7000)],
        }
    );
}

#[test]
fn urls_that_are_refused() {
    let rows = [
        ("hunter2", "must be a URL, such as"),
        ("hunter2://host", "the scheme must be memory, redis"),
        ("valkey://host", "the scheme must be memory, redis"),
        ("memory://hunter2", "has no host or path"),
        ("redis://", "the host is missing"),
        ("redis:///1", "the host is missing"),
        ("redis://:hunter2@", "the host is missing"),
        ("redis://:hunter2@:6379", "the host is missing"),
        ("redis://:hunter2@host:", "a port of 1 to 65535"),
        ("redis://host:hunter2", "a port of 1 to 65535"),
        ("redis://host:0", "a port of 1 to 65535"),
        ("redis://host:+1", "a port of 1 to 65535"),
        ("redis://host:65536", "a port of 1 to 65535"),
        ("redis://::1:6379", "stands in brackets"),
        ("redis://[::1", "has no ]"),
        ("redis://[hunter2]", "no IPv6 address between"),
        ("redis://[::1]6379", "and nothing else"),
        ("redis://hunter2!", "is not a name or IP address"),
        ("redis://hünter2", "is not a name or IP address"),
        ("redis://%68unter2", "is not a name or IP address"),
        (
            "redis://a,hunter2",
            "several hosts are for redis-sentinel://",
        ),
        ("redis://host/hunter2", "a database is a number"),
        ("redis://host/1/hunter2", "a database is a number"),
        ("redis://host/-1", "a database is a number"),
        ("redis://host/4294967296", "a database is a number"),
        (
            "redis://host?password=hunter2",
            "a key of its own under store",
        ),
        (
            "redis://host/1?protocol=resp3",
            "a key of its own under store",
        ),
        ("redis://host/1#hunter2", "write %25 for a percent sign"),
        ("redis://:hunter2%@host", "write %25 for a percent sign"),
        ("redis://:hunter2%zz@host", "write %25 for a percent sign"),
        ("redis://:hunter2%ff@host", "not UTF-8"),
        ("redis://:hun@ter2hunter2@host", "%40 for an at sign"),
        ("redis://a:hunter2@h1,b:hunter2@h2", "%40 for an at sign"),
        ("redis://:hunter2/x@host", "%2F for a slash"),
        ("redis://:hunter2?x@host", "%3F for a question mark"),
        ("redis://:hunter2#x@host", "%23 for #"),
        ("redis://:hunter2 @host", "holds white space"),
        ("redis-cluster://c1, c2", "a comma alone"),
        ("redis+unix://hunter2", "a path and no host"),
        ("redis+unix://host/hunter2", "a path and no host"),
        ("redis+unix:///s?pass=hunter2", "only ?db=number"),
        ("redis+unix:///s?db=hunter2", "a database is a number"),
        ("redis+unix:///hunter2%00", "none of them zero"),
        ("redis-sentinel://s1", "the name that the sentinels know"),
        ("redis-sentinel://s1//0", "the name that the sentinels know"),
        (
            "redis-sentinel:///mymaster",
            "host 1 of the list is missing",
        ),
        (
            "redis-sentinel://s1,,s3/mymaster",
            "host 2 of the list is missing",
        ),
        (
            "redis-sentinel://s1/mymaster/hunter2",
            "a database is a number",
        ),
        ("redis-sentinel://s1/mymaster/0/1", "a database is a number"),
        ("redis-cluster://", "host 1 of the list is missing"),
        (
            "redis-cluster://c1,c2:hunter2",
            "host 2 of the list must have a port",
        ),
        ("redis-cluster://c1/0", "a cluster has no databases"),
        (
            "rediss-cluster://c1?x=hunter2",
            "a key of its own under store",
        ),
    ];
    for (url, part) in rows {
        let message = url.parse::<StoreUrl>().expect_err(url);
        assert!(message.contains(part), "{url}: {message}");
        assert!(!message.contains("hunter2"), "{message}");
        check_errors(
            load_text(&with_store(&format!("{{ url: '{url}' }}"))),
            &[("store.url", part)],
        );
    }
    let long = format!("redis+unix:///{}", "a".repeat(107));
    assert!(long.parse::<StoreUrl>().is_err());
    let long = format!("redis://{}", "a".repeat(254));
    assert!(long.parse::<StoreUrl>().is_err());
}

/// Neither panics; and what is shown is read as the same.
#[test]
fn any_text_is_read_or_refused() {
    use rand::{Rng, SeedableRng, rngs::StdRng, seq::IndexedRandom};
    const PIECES: [&str; 24] = [
        "redis",
        "rediss",
        "-sentinel",
        "-cluster",
        "+unix",
        "://",
        ":",
        "@",
        "/",
        "//",
        ",",
        "?",
        "?db=",
        "#",
        "%",
        "%41",
        "%ff",
        "[",
        "]",
        "[::1]",
        "a",
        "6379",
        "é",
        " ",
    ];
    let mut random = StdRng::seed_from_u64(1);
    let mut read = 0;
    for _ in 0..20_000 {
        let scheme = [
            "",
            "redis://",
            "redis-sentinel://",
            "redis-cluster://",
            "unix://",
        ];
        let mut text = (*scheme.choose(&mut random).expect("not empty")).to_owned();
        for _ in 0..random.random_range(0..8) {
            text += PIECES.choose(&mut random).expect("not empty");
        }
        let Ok(url) = text.parse::<StoreUrl>() else {
            continue;
        };
        read += 1;
        let shown = url.to_string();
        let again: StoreUrl = shown
            .parse()
            .unwrap_or_else(|message| panic!("{text}: {shown}: {message}"));
        let topology = |url: &StoreUrl| match url {
            StoreUrl::Redis(target) => target.topology.clone(),
            StoreUrl::Memory => panic!("{text} is not memory://"),
        };
        assert_eq!(topology(&again), topology(&url), "{text}: {shown}");
        assert_eq!(again.to_string(), shown, "{text}");
    }
    assert!(read > 200, "only {read} were read");
}
