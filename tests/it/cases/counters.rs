//! What is counted and logged, and how little of it.

use std::{collections::BTreeSet, net::TcpListener, sync::Arc, time::Instant};

use dedupd::grpc::proto::{
    Event,
    Reason::{FirstSeen, MissingIdentity, Redelivery, StoreUnavailable},
};

use super::usual;
use crate::{
    client::{Kept, PATIENCE, World, events::keyed, request},
    support::{proxy::Proxy, redis::RedisServer, service::Options},
};

/// Name and labels of every sample, if each line is what OpenMetrics allows.
fn series(exposition: &str) -> BTreeSet<String> {
    let body = exposition.strip_suffix("# EOF\n").expect("an end");
    let lines = body.lines().filter(|line| {
        let is_comment = ["# TYPE ", "# HELP ", "# UNIT "]
            .iter()
            .any(|kind| line.starts_with(kind));
        assert!(is_comment || !line.starts_with('#'), "{line:?}");
        !is_comment
    });
    let samples = lines.map(|line| {
        let (name, value) = line.rsplit_once(' ').unwrap_or_else(|| panic!("{line:?}"));
        value.parse::<f64>().unwrap_or_else(|_| panic!("{line:?}"));
        let (metric, labels) = name.split_once('{').unwrap_or((name, "}"));
        let is_word = |word: &str| word.chars().all(|c| c.is_ascii_alphanumeric() || c == '_');
        assert!(is_word(metric) && metric.starts_with("dedupd_"), "{line:?}");
        let labels = labels
            .strip_suffix('}')
            .unwrap_or_else(|| panic!("{line:?}"));
        for label in labels.split(',').filter(|label| !label.is_empty()) {
            let (label, value) = label.split_once('=').unwrap_or_else(|| panic!("{line:?}"));
            let value = value
                .strip_prefix('"')
                .and_then(|value| value.strip_suffix('"'));
            let is_plain = value.is_some_and(|value| !value.contains(['"', '\\']));
            assert!(is_word(label) && is_plain, "{line:?}");
        }
        name.to_owned()
    });
    samples.collect()
}

#[tokio::test(flavor = "multi_thread")]
async fn b01_hostile_ids_make_no_series() {
    const IDS: usize = 100_000;
    const BATCH: usize = 5000;
    let world = World::start(Kept::InMemory, &usual()).await;
    let (_, before) = world.service.http_get("/metrics");
    let hostile = |number: usize| keyed(&format!("{number}\"}} 1\n# \u{e9}\\"));
    let batches = (0..IDS / BATCH).map(|batch| {
        let ids = batch * BATCH..(batch + 1) * BATCH;
        request("orders", ids.map(hostile).collect())
    });
    let mut batches: Vec<_> = batches.collect();
    // The noisiest are listed by id, and scraped by rank.
    batches.push(request("orders", (0..500).map(hostile).collect()));
    world.stream(batches).await;
    assert_eq!(world.counted("orders", FirstSeen), IDS as f64);
    assert_eq!(world.counted("orders", Redelivery), 500.0);
    let (_, after) = world.service.http_get("/metrics");
    assert_eq!(series(&after), series(&before));
}

#[tokio::test(flavor = "multi_thread")]
async fn b06_duplicates_are_quiet_and_only_store_errors_are_errors() {
    let redis = Arc::new(RedisServer::start(Default::default()));
    let proxy = Proxy::start(redis.addr());
    let options = Options {
        store_url: Some(redis.url_at(proxy.addr())),
        ..Options::default()
    };
    let world = World::with(Some(redis), &usual(), options).await;
    let of_level = |level: &str| -> Vec<String> {
        let level = format!(r#""level":"{level}""#);
        let logs = world.service.logs();
        logs.into_iter()
            .filter(|line| line.contains(&level))
            .collect()
    };
    let at_start = of_level("WARN").len();
    world.admit("orders", vec![keyed("again"); 1001]).await;
    assert_eq!(world.counted("orders", Redelivery), 1000.0);
    let bad = |count| -> Vec<Event> { vec![keyed(""); count] };
    world.admit("orders", bad(10)).await;
    let line = world.service.wait_log("dead-lettered", PATIENCE);
    assert!(line.contains(r#""level":"WARN""#), "{line}");
    for _ in 0..10 {
        world.admit("orders", bad(1)).await;
    }
    assert_eq!(world.counted("orders", MissingIdentity), 20.0);
    assert_eq!(
        of_level("WARN").len() - at_start,
        1,
        "{:#?}",
        of_level("WARN")
    );
    assert_eq!(of_level("ERROR"), Vec::<String>::new());

    let nowhere = TcpListener::bind("127.0.0.1:0").and_then(|socket| socket.local_addr());
    proxy.set_target(nowhere.expect("a port that nobody listens on any more"));
    proxy.cut_connections();
    let begun = Instant::now();
    while of_level("ERROR").is_empty() {
        assert!(begun.elapsed() < PATIENCE, "{:#?}", world.service.logs());
        let verdict = world.admit_one("orders", &keyed("again")).await;
        if verdict.reason() != Redelivery {
            world.check_verdict(&verdict, StoreUnavailable, "in an outage");
        }
    }
    assert_eq!(of_level("ERROR").len(), 1, "{:#?}", of_level("ERROR"));
}
