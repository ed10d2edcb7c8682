//! Each error reply, for each command, alone and in a batch; the real ones with the real Redis.

use std::{sync::Arc, time::Duration};

use dedupd::grpc::proto::{ConfirmRequest, Reason, RenewRequest, SettleOutcome};
use tokio::time;

use super::{
    fake::{FakeRedis, script_name},
    world::{
        AMPLE, World, admit, admit_events, confirm, connect, crossing, fresh_ids, reasons, request,
        serve, until_decided,
    },
};
use crate::support::redis::{Options, RedisServer};

/// The reply and its kind.
const REPLIES: [(&str, &str); 14] = [
    ("LOADING Redis is loading the dataset in memory", "loading"),
    ("MASTERDOWN Link with MASTER is down", "loading"),
    (
        "READONLY You can't write against a read only replica.",
        "readonly",
    ),
    (
        "MISCONF Redis is configured to save RDB snapshots",
        "misconf",
    ),
    ("CLUSTERDOWN The cluster is down", "clusterdown"),
    (
        "OOM command not allowed when used memory > 'maxmemory'.",
        "oom",
    ),
    (
        "NOREPLICAS Not enough good replicas to write.",
        "noreplicas",
    ),
    ("BUSY Redis is busy running a script.", "busy"),
    (
        "TRYAGAIN Multiple keys request during rehashing of slot",
        "tryagain",
    ),
    ("MOVED 3999 127.0.0.1:6381", "moved"),
    ("NOSCRIPT No matching script.", "noscript"),
    (
        "WRONGTYPE Operation against a key holding the wrong kind of value",
        "wrongtype",
    ),
    ("NOPERM this user has no permissions", "denied"),
    ("ERR something new", "other"),
];

#[tokio::test(flavor = "multi_thread")]
async fn r06_an_error_reply_is_a_store_error_of_its_own_kind() {
    let redis = Arc::new(FakeRedis::start());
    let service = serve(&redis.url(), AMPLE);
    let mut client = connect(&service).await;
    until_decided(&mut client).await;
    let errors = |kind: &str| {
        let series = format!(r#"dedupd_store_errors_total{{kind="{kind}"}}"#);
        service.metric(&series).expect("a series")
    };
    for (reply, kind) in REPLIES {
        // The third of eight keys; a whole script, in its own words; one part of its answer.
        let ids = fresh_ids(8);
        let bad = ids[3].clone();
        let line = format!("-{reply}\r\n");
        redis.answer(move |words| {
            let is_bad = words
                .get(1)
                .is_some_and(|key| key.ends_with(bad.as_bytes()));
            let script = script_name(words).filter(|name| matches!(*name, "claim" | "settle"));
            ((words[0] == b"SET" && is_bad) || script.is_some()).then(|| line.clone())
        });
        let before = errors(kind);
        for (namespace, reason) in [
            ("open", Reason::FailOpen),
            ("closed", Reason::StoreUnavailable),
        ] {
            let verdicts = admit(&mut client, namespace, &ids, "").await;
            for (index, verdict) in verdicts.iter().enumerate() {
                let expected = if index == 3 {
                    reason
                } else {
                    Reason::FirstSeen
                };
                assert_eq!(
                    verdict.reason(),
                    expected,
                    "{index} of {namespace}, {reply}"
                );
                assert_eq!(verdict.degraded, index == 3);
            }
            let settled = confirm(&mut client, &verdicts[0].claim).await;
            assert_eq!(settled, SettleOutcome::StoreUnavailable, "{reply}");
        }
        let guarded = request("fences", vec![crossing("device", Duration::ZERO)], "");
        let verdicts = admit_events(&mut client, guarded).await;
        assert_eq!(reasons(&verdicts), [Reason::StoreUnavailable], "{reply}");
        assert_eq!(errors(kind) - before, 5.0, "{reply}");
        redis.answer(|_| None);
        until_decided(&mut client).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn r06_an_error_in_a_scripts_answer_is_one_events_own() {
    let redis = FakeRedis::start();
    let service = serve(&redis.url(), AMPLE);
    let mut client = connect(&service).await;
    until_decided(&mut client).await;
    for (reply, kind) in REPLIES {
        let text = format!("${}\r\n{reply}\r\n", reply.len());
        // Each plan has its primary and one neighbour at most; the last of each call is bad.
        redis.answer(move |words| {
            (script_name(words)? == "claim").then_some(())?;
            let keys: usize = String::from_utf8_lossy(&words[2]).parse().expect("a count");
            let plans = (words.len() - 3 - keys - 6) / 3;
            Some(format!(
                "*{plans}\r\n{}{text}",
                ":256\r\n".repeat(plans - 1)
            ))
        });
        let events = (0..20)
            .map(|n| crossing(&format!("{n}"), Duration::ZERO))
            .collect();
        let verdicts = admit_events(&mut client, request("fences", events, "")).await;
        let failed = verdicts
            .iter()
            .filter(|v| v.reason() == Reason::StoreUnavailable)
            .count();
        let decided = verdicts
            .iter()
            .filter(|v| v.reason() == Reason::FirstSeen)
            .count();
        assert!(
            failed <= 2 && failed > 0 && failed + decided == 20,
            "{reply}: {:?}",
            reasons(&verdicts)
        );
        let series = format!(r#"dedupd_store_errors_total{{kind="{kind}"}}"#);
        assert!(service.metric(&series) >= Some(failed as f64), "{kind}");
        redis.answer(|_| None);
        until_decided(&mut client).await;
    }
}

/// One bad key, again and again.
#[tokio::test(flavor = "multi_thread")]
async fn r06_one_bad_key_trips_nothing() {
    let mut world = World::start(AMPLE).await;
    world.redis.cli(&["RPUSH", "closed:bad", "a list"]);
    for _ in 0..20 {
        assert_eq!(
            world.admit("closed", "bad").await.reason(),
            Reason::StoreUnavailable
        );
    }
    let both = admit(&mut world.client, "open", &["bad", "good"], "").await;
    assert_eq!(reasons(&both), [Reason::FirstSeen; 2], "another key");
    assert_eq!(world.errors("wrongtype"), 20.0);
    assert_eq!(world.metric("dedupd_breaker_trips_total"), 0.0);
    assert_eq!(
        world.admit("closed", "good").await.reason(),
        Reason::FirstSeen
    );
    assert_eq!(world.redis.cli(&["LLEN", "closed:bad"]), "1");
}

#[tokio::test(flavor = "multi_thread")]
async fn r06_a_full_redis_still_settles() {
    let mut world = World::start(AMPLE).await;
    let ids = ["confirmed", "released", "renewed"];
    let held = admit(&mut world.client, "leased", &ids, "").await;
    world.redis.cli(&["CONFIG", "SET", "maxmemory", "1"]);
    for id in fresh_ids(10) {
        assert_eq!(
            world.admit("closed", &id).await.reason(),
            Reason::StoreUnavailable
        );
        assert_eq!(world.admit("open", &id).await.reason(), Reason::FailOpen);
    }
    let guarded = request("fences", vec![crossing("device", Duration::ZERO)], "");
    let verdicts = admit_events(&mut world.client, guarded).await;
    assert_eq!(reasons(&verdicts), [Reason::StoreUnavailable]);
    assert_eq!(world.errors("oom"), 21.0);
    assert_eq!(world.confirm(&held[0].claim).await, SettleOutcome::Applied);
    assert_eq!(world.release(&held[1].claim).await, SettleOutcome::Applied);
    let claims = vec![held[2].claim.clone()];
    let renewed = world.client.renew(RenewRequest { claims }).await;
    let renewed = renewed.expect("an answer").into_inner();
    assert_eq!(renewed.outcomes().next(), Some(SettleOutcome::Applied));
    let left = world.redis.cli(&["PTTL", "leased:confirmed"]);
    assert!(left.parse::<u64>().expect("ms") > 3_000_000, "{left}");
    world.redis.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    let again = admit(&mut world.client, "leased", &ids, "").await;
    let expected = [Reason::Redelivery, Reason::FirstSeen, Reason::InFlight];
    assert_eq!(reasons(&again), expected);
}

/// Claims of namespaces with their own TTLs, one that is not there, one under whose key stands
/// what no namespace writes, and one twice.
#[tokio::test(flavor = "multi_thread")]
async fn r06_each_claim_of_a_call_is_settled_for_itself() {
    let mut world = World::start(AMPLE).await;
    let ids = ["kept", "deleted", "replaced"];
    let mut held = admit(&mut world.client, "leased", &ids, "").await;
    let fences = request("fences", vec![crossing("kept", Duration::ZERO)], "");
    held.extend(admit_events(&mut world.client, fences).await);
    held.push(held[0].clone());
    world
        .redis
        .cli(&["DEL", "leased:deleted", "leased:replaced"]);
    world.redis.cli(&["RPUSH", "leased:replaced", "a list"]);
    let claims = held.iter().map(|verdict| verdict.claim.clone()).collect();
    let confirmed = world.client.confirm(ConfirmRequest { claims }).await;
    let outcomes = confirmed.expect("an answer").into_inner();
    use SettleOutcome::{AlreadyApplied, Applied, NotHeld, StoreUnavailable};
    assert_eq!(
        outcomes.outcomes().collect::<Vec<_>>(),
        [Applied, NotHeld, StoreUnavailable, Applied, AlreadyApplied]
    );
    let left = |pattern: &str| {
        let keys = world.redis.cli(&["KEYS", pattern]);
        let left = world.redis.cli(&["PTTL", keys.trim()]);
        left.parse::<u64>().expect("ms") / 60_000
    };
    assert_eq!((left("leased:kept"), left("fences:*")), (59, 4));
}

#[tokio::test(flavor = "multi_thread")]
async fn r06_lost_scripts_are_sent_again() {
    let mut world = World::start(AMPLE).await;
    for number in 0..20 {
        world.redis.cli(&["SCRIPT", "FLUSH"]);
        let device = format!("device-{number}");
        let guarded = request("fences", vec![crossing(&device, Duration::ZERO)], "");
        let verdicts = admit_events(&mut world.client, guarded.clone()).await;
        assert_eq!(reasons(&verdicts), [Reason::FirstSeen]);
        world.redis.cli(&["SCRIPT", "FLUSH"]);
        assert_eq!(
            world.confirm(&verdicts[0].claim).await,
            SettleOutcome::Applied
        );
        let copies = admit_events(&mut world.client, guarded).await;
        assert_eq!(reasons(&copies), [Reason::Redelivery]);
    }
    assert_eq!(world.errors("noscript"), 0.0);
}

#[tokio::test(flavor = "multi_thread")]
async fn r06_a_primary_without_its_replicas_takes_no_claims() {
    let mut world = World::start(AMPLE).await;
    world
        .redis
        .cli(&["CONFIG", "SET", "min-replicas-to-write", "1"]);
    for _ in 0..10 {
        assert_eq!(
            world.admit("closed", "e").await.reason(),
            Reason::StoreUnavailable
        );
    }
    assert!(world.errors("noreplicas") >= 5.0);
    world
        .redis
        .cli(&["CONFIG", "SET", "min-replicas-to-write", "0"]);
    world.until_decided().await;
    assert_eq!(world.admit("closed", "e").await.reason(), Reason::FirstSeen);
}

#[tokio::test(flavor = "multi_thread")]
async fn r04_a_demoted_primary_is_left_at_once() {
    let mut world = World::start(AMPLE).await;
    let new_primary = RedisServer::start(Options::default());
    world.redis.cli(&["REPLICAOF", "127.0.0.1", "1"]);
    world.proxy.set_target(new_primary.addr());
    let ids = fresh_ids(16);
    let first = admit(&mut world.client, "closed", &ids, "").await;
    assert_eq!(reasons(&first), [Reason::StoreUnavailable; 16]);
    time::sleep(Duration::from_millis(50)).await;
    let second = admit(&mut world.client, "closed", &ids, "").await;
    assert_eq!(reasons(&second), [Reason::FirstSeen; 16]);
    assert!(world.errors("readonly") >= 16.0);
}

/// A foreign value of another type under one namespace's contract.
#[tokio::test(flavor = "multi_thread")]
async fn r06_a_bad_contract_key_stops_no_other_namespace() {
    let redis = RedisServer::start(Options::default());
    redis.cli(&["RPUSH", "dedupd:contract:open", "a list"]);
    let service = serve(&redis.url(), AMPLE);
    let mut client = connect(&service).await;
    until_decided(&mut client).await;
}
