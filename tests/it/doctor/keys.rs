//! What stands under the prefixes: what the doctor sees of it, and what the service does about it.

use std::time::{Duration, Instant};

use dedupd::grpc::proto::{
    ClaimState, Event,
    Reason::{self, FirstSeen, InFlight, Redelivery, Unclassified},
};
use serde_json::json;

use super::{doctor, doctor_of};
use crate::{
    client::{
        Kept, PATIENCE, World,
        events::{SECOND, T0, enter, keyed},
        wait_until,
    },
    support::redis::{Options, RedisServer},
};

/// A confirmed record without fields, as a string of Lua; and one of a newer version.
const RECORD: &str = r"\131abcdefgh\0";
const NEWER: &str = r"\147abcdefgh\0and more";

fn set(redis: &RedisServer, key: &str, value: &str, options: &[&str]) {
    let script = format!(r#"return redis.call("SET", KEYS[1], "{value}", unpack(ARGV))"#);
    let words = ["EVAL", &script, "1", key];
    let words: Vec<&str> = words.iter().chain(options).copied().collect();
    assert_eq!(redis.cli(&words), "OK", "{script}");
}

#[test]
fn c11_foreign_values_and_eternal_keys_are_counted_by_the_doctor() {
    let redis = RedisServer::start(Options::default());
    let px = ["PX", "60000"];
    set(&redis, "orders:claim", RECORD, &px);
    set(&redis, "orders:eternal", RECORD, &[]);
    set(&redis, "orders:newer", NEWER, &px);
    set(&redis, "orders:foreign", "1", &px);
    set(&redis, "orders:long", &"long".repeat(1000), &px);
    redis.cli(&["RPUSH", "orders:list", "a list"]);
    set(&redis, "orderselse", "another's", &[]);
    let report = doctor(&redis.url());
    report.check_warnings(&[(
        "keys orders:*",
        "keys: 6; claims: 2; claims of a newer version: 1; values that are no claims, such as older \
         consumers write: 2; they suppress as UNCLASSIFIED; keys of another type: 1; claims on them fail: \
         find out who writes them; keys without a TTL: 2; the service gives one",
    )]);
    let expected = json!({ "prefix": "orders:", "complete": true, "keys": 6, "claims": 2, "newer": 1,
        "foreign": 2, "other_types": 1, "without_ttl": 2 });
    assert_eq!(report.object()["samples"][1], expected);
    assert_eq!(
        redis.cli(&["PTTL", "orders:eternal"]),
        "-1",
        "it only looks"
    );
    assert_eq!(redis.cli(&["DBSIZE"]), "7");
}

#[test]
fn c11_a_large_prefix_is_sampled_and_a_pattern_is_no_pattern() {
    let redis = RedisServer::start(Options::default());
    let fill = "for i = 1, 5000 do redis.call('SET', 'a*[b]?:' .. i, '1', 'PX', 600000) end \
                redis.call('SET', 'axb:', '1') return 'OK'";
    assert_eq!(redis.cli(&["EVAL", fill, "0"]), "OK");
    let config = "namespaces: { odd: { accepts: [keyed], window: none, ttl: 600s, failure_mode: closed, \
                  key: { prefix: 'a*[b]?:' } } }";
    let report = doctor_of(config, &redis.url());
    report.check_warnings(&[]);
    report.check_notes(
        "keys a\\*\\[b\\]\\?:*",
        "keys: 1000 and more; claims: 0; values that are no claims",
    );
    let sample = &report.object()["samples"][0];
    assert_eq!(
        (&sample["complete"], &sample["without_ttl"]),
        (&json!(false), &json!(0))
    );
}

fn service_config(rest: &str) -> String {
    format!(
        "namespaces: {{ orders: {{ accepts: [keyed], window: none, failure_mode: closed, {rest} }} }}"
    )
}

/// On a Redis of its own, once they have met.
async fn serve(config: &str) -> World {
    let world = World::start(Kept::InRedis, config).await;
    world.service.wait_log("the store takes claims", PATIENCE);
    world
}

fn count(world: &World, series: &str) -> f64 {
    let series = format!("dedupd_store_{series}");
    world.service.metric(&series).expect("a series")
}

async fn admit(world: &World, event: &Event, expected: Reason) {
    let verdict = world.admit_one("orders", event).await;
    world.check_verdict(&verdict, expected, format_args!("{event:?}"));
}

/// A lock that nobody takes away: one eternal suppression, then the TTL.
#[tokio::test(flavor = "multi_thread")]
async fn c11_a_foreign_key_without_ttl_is_counted_and_healed() {
    let world = serve(&service_config("ttl: 2s")).await;
    let redis = world.redis().expect("on Redis");
    let event = keyed("locked");
    assert_eq!(redis.cli(&["SET", "orders:locked", "1"]), "OK");
    admit(&world, &event, Unclassified).await;
    let foreign = r#"foreign_values_total{namespace="orders"}"#;
    assert_eq!(count(&world, foreign), 1.0);
    let found = world.explain("orders", &event).await.claims.remove(0);
    assert_eq!(found.state(), ClaimState::Foreign);
    let healed = r#"keys_without_ttl_total{namespace="orders",outcome="healed"}"#;
    wait_until("healed", || count(&world, healed) == 1.0);
    assert_eq!(redis.cli(&["GET", "orders:locked"]), "1", "its value stays");
    let left: i64 = redis
        .cli(&["PTTL", "orders:locked"])
        .parse()
        .expect("a number");
    assert!((1..=2000).contains(&left), "{left} ms");
    // The second look finds nothing to do, and the TTL is not begun again.
    admit(&world, &event, Unclassified).await;
    wait_until("it expires", || {
        redis.cli(&["EXISTS", "orders:locked"]) == "0"
    });
    admit(&world, &event, FirstSeen).await;
    assert_eq!((count(&world, foreign), count(&world, healed)), (2.0, 1.0));
    assert_eq!(world.eternal_keys(), Vec::<String>::new());
}

/// Whatever made a claim eternal: pending it would be asked about for ever.
#[tokio::test(flavor = "multi_thread")]
async fn c11_a_claim_without_ttl_is_healed_pending_or_settled() {
    let config = service_config("ttl: 600s, lease: 30s");
    let world = serve(&config).await;
    let redis = world.redis().expect("on Redis");
    let (pending, settled) = (keyed("pending"), keyed("settled"));
    admit(&world, &pending, FirstSeen).await;
    let claim = world.admit_one("orders", &settled).await;
    world.confirm(&claim).await;
    for key in ["orders:pending", "orders:settled"] {
        assert_eq!(redis.cli(&["PERSIST", key]), "1");
    }
    admit(&world, &pending, InFlight).await;
    admit(&world, &settled, Redelivery).await;
    wait_until("healed", || world.eternal_keys().is_empty());
    let healed = r#"keys_without_ttl_total{namespace="orders",outcome="healed"}"#;
    wait_until("counted", || count(&world, healed) == 2.0);
    assert_eq!(
        count(&world, r#"foreign_values_total{namespace="orders"}"#),
        0.0
    );
}

/// A claim in the bucket before, found through the guard.
#[tokio::test(flavor = "multi_thread")]
async fn c11_a_neighbour_without_ttl_is_healed() {
    let config = "namespaces: { crossings: { accepts: [transition], window: { tumbling: 60s, guard: 5s }, \
                  ttl: 600s, failure_mode: closed, time: { max_age: off } } }";
    let world = serve(config).await;
    let redis = world.redis().expect("on Redis");
    let at = |seconds: i64| enter("a", T0 + seconds * SECOND);
    let key = world.explain("crossings", &at(59)).await.keys.remove(0);
    let claim = world.admit_one("crossings", &at(59)).await;
    world.confirm(&claim).await;
    assert_eq!(redis.cli(&["PERSIST", &key]), "1");
    let verdict = world.admit_one("crossings", &at(61)).await;
    world.check_verdict(&verdict, Reason::Boundary, "beyond the edge");
    wait_until("healed", || world.eternal_keys().is_empty());
    let healed = r#"keys_without_ttl_total{namespace="crossings",outcome="healed"}"#;
    wait_until("counted", || count(&world, healed) == 1.0);
}

/// An event's id can be the name of another tenant's key.
#[tokio::test(flavor = "multi_thread")]
async fn c11_anothers_data_is_left_as_it_is() {
    let world = serve(&service_config("ttl: 600s")).await;
    let redis = world.redis().expect("on Redis");
    let data = "another tenant's data, which is longer than what a consumer leaves as its mark";
    assert_eq!(redis.cli(&["SET", "orders:data", data]), "OK");
    redis.cli(&["RPUSH", "orders:list", "a list"]);
    admit(&world, &keyed("data"), Unclassified).await;
    admit(&world, &keyed("list"), Reason::StoreUnavailable).await;
    let left = r#"keys_without_ttl_total{namespace="orders",outcome="left"}"#;
    wait_until("left", || count(&world, left) == 1.0);
    let of = |key: &str| redis.cli(&["PTTL", key]);
    assert_eq!(
        (of("orders:data"), of("orders:list")),
        ("-1".to_owned(), "-1".to_owned())
    );
    assert_eq!(redis.cli(&["GET", "orders:data"]), data);
    let healed = r#"keys_without_ttl_total{namespace="orders",outcome="healed"}"#;
    assert_eq!(count(&world, healed), 0.0);
}

/// Thousands of keys at once: every event is counted, and so many keys a second are looked at.
#[tokio::test(flavor = "multi_thread")]
async fn c11_healing_is_bounded_and_gets_there() {
    let world = serve(&service_config("ttl: 600s")).await;
    let redis = world.redis().expect("on Redis");
    let fill = "for i = 1, 300 do redis.call('SET', 'orders:' .. i, '1') end return 'OK'";
    assert_eq!(redis.cli(&["EVAL", fill, "0"]), "OK");
    let mut rounds = 0;
    let begun = Instant::now();
    while !world.eternal_keys().is_empty() {
        for id in 1..=300 {
            admit(&world, &keyed(&id.to_string()), Unclassified).await;
        }
        rounds += 1;
        assert!(begun.elapsed() < Duration::from_secs(30), "not healed");
    }
    let healed = r#"keys_without_ttl_total{namespace="orders",outcome="healed"}"#;
    wait_until("counted", || count(&world, healed) == 300.0);
    let events = 300.0 * f64::from(rounds);
    assert_eq!(
        count(&world, r#"foreign_values_total{namespace="orders"}"#),
        events
    );
    assert!(
        begun.elapsed() > Duration::from_secs(1),
        "300 keys, at most 150 a second"
    );
}
