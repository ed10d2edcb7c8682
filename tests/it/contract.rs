//! The contract of a namespace, between instances, restarts and losses of Redis.

mod faults;

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use dedupd::grpc::proto::{
    Reason::{self, FirstSeen, Late, Redelivery},
    StreamRequest,
    stream_request::Operation,
    stream_response::Result as Outcome,
};
use tonic::{Code, Status};
use tonic_types::StatusExt;

use crate::{
    client::{
        PATIENCE, World,
        events::{T0, enter, keyed, ping_at},
        request, wait_until,
    },
    support::{proxy::Proxy, redis::RedisServer, service::Options},
};

const ORDERS: &str = "accepts: [keyed], window: none, ttl: 600s, failure_mode: closed";
const USUAL_WINDOW: &str = "tumbling: 60s, guard: 5s";

/// Crossings by this window and key, pings of this resolution, and orders, which never change.
fn config(window: &str, key: &str, resolution: u8) -> String {
    let rest = "ttl: 600s, failure_mode: closed, time: { max_age: off }";
    format!(
        "namespaces:
  crossings: {{ accepts: [transition], window: {{ {window} }}, key: {{ {key} }}, {rest} }}
  pings: {{ accepts: [ping], window: {{ tumbling: 60s }}, place: {{ resolution: {resolution} }}, {rest} }}
  orders: {{ {ORDERS} }}
"
    )
}

fn usual() -> String {
    config(USUAL_WINDOW, "", 9)
}

/// Crossings with a TTL as short as can be.
fn brief(window: &str) -> String {
    format!(
        "namespaces:
  crossings: {{ accepts: [transition], window: {{ {window} }}, ttl: 1s, failure_mode: closed, time: {{ max_age: off }} }}
  orders: {{ {ORDERS} }}
"
    )
}

async fn redis_with_an_instance(config: &str) -> (Arc<RedisServer>, World) {
    let redis = Arc::new(RedisServer::start(Default::default()));
    let world = World::on(&redis, config).await;
    wait_until("ready", || world.service.http_get("/readyz").0 == 200);
    (redis, world)
}

/// An instance that has met its Redis.
async fn join(redis: &Arc<RedisServer>, config: &str, args: &[&str]) -> World {
    let options = Options {
        store_url: Some(redis.url()),
        args: args.iter().map(|&arg| arg.to_owned()).collect(),
        ..Options::default()
    };
    let world = World::with(Some(Arc::clone(redis)), config, options).await;
    world.service.wait_log("the store takes claims", PATIENCE);
    world
}

async fn refusal(world: &World, namespace: &str) -> Result<(), Status> {
    let event = match namespace {
        "pings" => ping_at("a", T0, (47.4, 8.5)),
        _ => enter("a", T0),
    };
    let answer = world.try_admit(request(namespace, vec![event])).await;
    answer.map(drop)
}

/// The namespace is refused for these fields and no others, the rest is served.
async fn check_refused(world: &World, namespace: &str, fields: &[&str]) {
    let status = refusal(world, namespace).await.expect_err("refused");
    assert_eq!(status.code(), Code::FailedPrecondition, "{status:?}");
    let info = status.get_details_error_info().expect("an ErrorInfo");
    assert_eq!(info.reason, "CONTRACT_MISMATCH");
    assert_eq!(info.metadata["namespace"], namespace);
    let difference = &info.metadata["difference"];
    for field in ["window=", "place=", "digest=", "layout=", "prefix="] {
        let named = difference.matches(field).count();
        let expected = if fields.contains(&field) { 2 } else { 0 };
        assert_eq!(named, expected, "{field} here and there: {difference}");
    }
    let (code, why) = world.service.http_get("/readyz");
    assert_eq!(code, 503);
    assert!(why.contains(namespace), "{why}");
    assert!(!why.contains("orders"), "{why}");
    let gauge = format!(r#"dedupd_namespace_refused{{namespace="{namespace}"}}"#);
    assert_eq!(world.service.metric(&gauge), Some(1.0));
    let batch = StreamRequest {
        batch_id: 1,
        operation: Some(Operation::Admit(request(namespace, vec![enter("a", T0)]))),
    };
    let answers = world
        .dedup()
        .stream(tokio_stream::once(batch))
        .await
        .expect("a stream");
    let answer = answers
        .into_inner()
        .message()
        .await
        .expect("open")
        .expect("an answer");
    let Some(Outcome::Error(error)) = answer.result else {
        panic!("{answer:?}")
    };
    assert_eq!(
        (error.code, error.reason.as_str()),
        (Code::FailedPrecondition as i32, "CONTRACT_MISMATCH")
    );
    check_served(world, "orders").await;
}

async fn check_served(world: &World, namespace: &str) {
    let (event, expected): (_, [Reason; 2]) = match namespace {
        "pings" => (ping_at("served", T0, (47.4, 8.5)), [Late, Redelivery]),
        "orders" => (keyed("served"), [FirstSeen, Redelivery]),
        _ => (enter("served", T0), [Late, Redelivery]),
    };
    let verdict = world.admit_one(namespace, &event).await;
    assert!(
        expected.contains(&verdict.reason()),
        "{namespace}: {verdict:?}"
    );
}

fn logged(world: &World, text: &str) -> bool {
    world.service.logs().iter().any(|line| line.contains(text))
}

#[tokio::test(flavor = "multi_thread")]
async fn o03_the_same_contract_is_served_by_both() {
    let (redis, first) = redis_with_an_instance(&usual()).await;
    let second = join(&redis, &usual(), &[]).await;
    for namespace in ["crossings", "pings", "orders"] {
        for world in [&first, &second] {
            check_served(world, namespace).await;
        }
    }
    assert_eq!(second.service.http_get("/readyz").0, 200);
    assert!(!logged(&second, "contract"), "{:#?}", second.service.logs());
    let line = redis.cli(&["GET", "dedupd:contract:crossings"]);
    let expected = "v1 window=60000000000ns place=- digest=xxh3 layout=plain prefix=crossings:; guard=5000000000ns guard_m=0";
    assert_eq!(line, expected);
    // 2 TTL + lease.
    let left: i64 = redis
        .cli(&["PTTL", "dedupd:contract:crossings"])
        .parse()
        .expect("a number");
    assert!((1_190_000..=1_200_000).contains(&left), "{left} ms");
}

#[tokio::test(flavor = "multi_thread")]
async fn o03_another_contract_is_refused_by_its_fields() {
    let rows: [(String, &str, &[&str]); 5] = [
        (
            config("tumbling: 300s, guard: 5s", "", 9),
            "crossings",
            &["window="],
        ),
        (
            config(USUAL_WINDOW, r#"prefix: "else:""#, 9),
            "crossings",
            &["prefix="],
        ),
        (
            config(USUAL_WINDOW, "digest: blake2b", 9),
            "crossings",
            &["digest="],
        ),
        (
            config("sliding: 2s", "layout: tagged", 9),
            "crossings",
            &["window=", "layout="],
        ),
        (config(USUAL_WINDOW, "", 8), "pings", &["place="]),
    ];
    let (redis, first) = redis_with_an_instance(&usual()).await;
    for (other, namespace, fields) in &rows {
        let second = join(&redis, other, &[]).await;
        check_refused(&second, namespace, fields).await;
        check_served(&first, namespace).await;
    }
    assert_eq!(first.service.http_get("/readyz").0, 200);
}

#[tokio::test(flavor = "multi_thread")]
async fn o03_guards_that_differ_are_a_warning() {
    let (redis, _first) = redis_with_an_instance(&usual()).await;
    let second = join(&redis, &config("tumbling: 60s, guard: 4s", "", 9), &[]).await;
    check_served(&second, "crossings").await;
    assert_eq!(second.service.http_get("/readyz").0, 200);
    let line = second.service.wait_log("different guards", PATIENCE);
    assert!(
        line.contains(r#""level":"WARN""#) && line.contains("crossings"),
        "{line}"
    );
}

/// A change orphans every key: what was confirmed before it is admitted again after it.
#[tokio::test(flavor = "multi_thread")]
async fn o03_a_changed_window_is_refused_until_it_is_meant() {
    let (redis, first) = redis_with_an_instance(&usual()).await;
    first.check("crossings", &[(enter("a", T0), Late)]).await;
    drop(first);
    let changed = config("tumbling: 300s, guard: 5s", "", 9);
    let refused = join(&redis, &changed, &[]).await;
    check_refused(&refused, "crossings", &["window="]).await;

    let meant = join(&redis, &changed, &["--replace-contract"]).await;
    let rows = [(enter("a", T0), Late), (enter("a", T0), Redelivery)];
    meant.check("crossings", &rows).await;
    assert_eq!(meant.service.http_get("/readyz").0, 200);
    let line = redis.cli(&["GET", "dedupd:contract:crossings"]);
    assert!(line.starts_with("v1 window=300000000000ns "), "{line}");
    // The flag is for the start; the old contract is refused like any other from now on.
    let old = join(&redis, &usual(), &[]).await;
    check_refused(&old, "crossings", &["window="]).await;
    // What was refused before looks again and finds its own line.
    wait_until("a second look", || {
        refused.service.http_get("/readyz").0 == 200
    });
    check_served(&refused, "crossings").await;
}

#[tokio::test(flavor = "multi_thread")]
async fn o03_a_rolling_change_is_served_after_a_quiet_ttl() {
    let (redis, old) = redis_with_an_instance(&brief("tumbling: 500ms")).await;
    let new = join(&redis, &brief("tumbling: 250ms"), &[]).await;
    check_refused(&new, "crossings", &["window="]).await;
    // The old one keeps its line for longer than a line lives.
    let begun = Instant::now();
    while begun.elapsed() < Duration::from_millis(2500) {
        let status = refusal(&new, "crossings")
            .await
            .expect_err("the old one lives");
        assert_eq!(status.code(), Code::FailedPrecondition);
        tokio::time::sleep(Duration::from_millis(100)).await;
    }
    drop(old);
    new.service.wait_log("the other contract is gone", PATIENCE);
    check_served(&new, "crossings").await;
    assert_eq!(new.service.http_get("/readyz").0, 200);
    let line = redis.cli(&["GET", "dedupd:contract:crossings"]);
    assert!(line.starts_with("v1 window=250000000ns "), "{line}");
}

#[tokio::test(flavor = "multi_thread")]
async fn o03_a_redis_that_comes_late_is_a_first_contact() {
    let (redis, _first) = redis_with_an_instance(&usual()).await;
    let proxy = Proxy::start(redis.addr());
    proxy.black_hole();
    let options = Options {
        store_url: Some(redis.url_at(proxy.addr())),
        ..Options::default()
    };
    let changed = config("tumbling: 300s, guard: 5s", "", 9);
    let late = World::with(Some(Arc::clone(&redis)), &changed, options).await;
    // Ready without a store, by the latch.
    wait_until("the latch", || late.service.http_get("/readyz").0 == 200);
    let verdict = late.admit_one("crossings", &enter("a", T0)).await;
    late.check_verdict(
        &verdict,
        Reason::StoreUnavailable,
        "before the first contact",
    );
    proxy.cut_connections();
    proxy.pass();
    late.service.wait_log("the store takes claims", PATIENCE);
    check_refused(&late, "crossings", &["window="]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn o03_a_flushed_redis_gets_its_lines_again() {
    let (redis, world) = redis_with_an_instance(&brief("tumbling: 500ms")).await;
    let line = redis.cli(&["GET", "dedupd:contract:crossings"]);
    assert_eq!(redis.cli(&["FLUSHALL"]), "OK");
    for namespace in ["crossings", "orders"] {
        let key = format!("dedupd:contract:{namespace}");
        wait_until("the line again", || redis.cli(&["EXISTS", &key]) == "1");
    }
    assert_eq!(redis.cli(&["GET", "dedupd:contract:crossings"]), line);
    check_served(&world, "crossings").await;
    assert_eq!(world.eternal_keys(), Vec::<String>::new());
}

/// Stopping a running fleet because of a new instance would be worse.
#[tokio::test(flavor = "multi_thread")]
async fn o03_another_contract_found_later_is_logged_counted_and_served_on() {
    let (redis, world) = redis_with_an_instance(&brief("tumbling: 500ms")).await;
    let other =
        "v1 window=7ns place=- digest=xxh3 layout=plain prefix=crossings:; guard=0ns guard_m=0";
    let set = ["SET", "dedupd:contract:crossings", other, "PX", "60000"];
    assert_eq!(redis.cli(&set), "OK");
    let line = world.service.wait_log("serving on", PATIENCE);
    assert!(
        line.contains("window=7ns") && line.contains(r#""level":"ERROR""#),
        "{line}"
    );
    assert!(world.service.metric("dedupd_contract_mismatches_total") >= Some(1.0));
    check_served(&world, "crossings").await;
    assert_eq!(world.service.http_get("/readyz").0, 200);
    assert_eq!(
        redis.cli(&["GET", "dedupd:contract:crossings"]),
        other,
        "never overwritten"
    );
}
