//! Error replies are not answers.

use std::{
    sync::{
        Arc,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use dedupd::grpc::proto::Reason;
use tokio::time;

use super::{
    SLACK,
    fake::{FakeRedis, script_name},
    world::{
        AMPLE, World, admit, admit_events, connect, crossing, fresh_ids, reasons, request, serve,
        until_decided,
    },
};
use crate::support::{
    proxy::Proxy,
    redis::{Options, RedisServer, redis_62},
};

/// A script that meets an error answers with its text inside of an array: a demoted primary was not
/// left then, and suppressed copies in the same batch kept the breaker from counting.
#[tokio::test(flavor = "multi_thread")]
async fn r04_a_demoted_primary_is_left_by_scripts_too() {
    let mut world = World::start(AMPLE).await;
    let new_primary = RedisServer::start(Options::default());
    let batch = |number: u32| {
        let later = Duration::from_secs(60) * number;
        let events = vec![crossing("known", Duration::ZERO), crossing("device", later)];
        request("fences", events, "")
    };
    let first = admit_events(&mut world.client, batch(0)).await;
    assert_eq!(reasons(&first), [Reason::FirstSeen; 2]);
    world.redis.cli(&["REPLICAOF", "127.0.0.1", "1"]);
    world.proxy.set_target(new_primary.addr());
    let begun = Instant::now();
    for number in 1.. {
        let verdicts = admit_events(&mut world.client, batch(number)).await;
        if verdicts[1].reason() == Reason::FirstSeen {
            break;
        }
        assert_eq!(verdicts[1].reason(), Reason::StoreUnavailable);
        assert!(begun.elapsed() < SLACK, "it stays, at batch {number}");
        time::sleep(Duration::from_millis(20)).await;
    }
    assert!(world.errors("readonly") > 0.0);
}

/// A give-back that was answered with an error was forgotten.
#[tokio::test(flavor = "multi_thread")]
async fn r06_a_give_back_that_meets_an_error_is_sent_again() {
    let redis = FakeRedis::start();
    let service = serve(&redis.url(), AMPLE);
    let mut client = connect(&service).await;
    until_decided(&mut client).await;
    let give_backs = Arc::new(AtomicUsize::new(0));
    let counted = Arc::clone(&give_backs);
    redis.answer(move |words| {
        if words[0] == b"SET" && words[1] == b"closed:e" {
            thread::sleep(AMPLE + AMPLE / 2);
        }
        let first =
            script_name(words) == Some("give back") && counted.fetch_add(1, Ordering::SeqCst) == 0;
        first.then(|| "-READONLY You can't write against a read only replica.\r\n".to_owned())
    });
    let late = admit(&mut client, "closed", &["e"], "").await;
    assert_eq!(reasons(&late), [Reason::StoreUnavailable]);
    let begun = Instant::now();
    while give_backs.load(Ordering::SeqCst) < 2 {
        assert!(begun.elapsed() < SLACK, "given back once, and refused");
        time::sleep(Duration::from_millis(20)).await;
        until_decided(&mut client).await;
    }
}

/// At its first contact the server was full, and its refusal was taken for a yes to
/// `SET … NX … GET`, which a Redis 6.2 does not know.
#[tokio::test(flavor = "multi_thread")]
async fn r06_a_full_redis_62_decides_once_it_has_room() {
    let Some(binary) = redis_62() else {
        eprintln!("left out: no DEDUPD_TEST_REDIS_62, see tests/run.sh");
        return;
    };
    let redis = RedisServer::start(Options {
        binary: Some(binary),
        args: vec!["--maxmemory".into(), "1".into()],
        ..Options::default()
    });
    let service = serve(&redis.url(), AMPLE);
    let mut client = connect(&service).await;
    let full = admit(&mut client, "closed", &["e"], "").await;
    assert_eq!(reasons(&full), [Reason::StoreUnavailable]);
    time::sleep(Duration::from_millis(300)).await;
    redis.cli(&["CONFIG", "SET", "maxmemory", "0"]);
    until_decided(&mut client).await;
}

/// Each call tried to connect: an outage of the credentials, or a server with too many clients,
/// was none to the breaker.
#[tokio::test(flavor = "multi_thread")]
async fn r11_attempts_to_connect_are_backed_off_whatever_the_server_says() {
    let mut stormed = Vec::new();
    for reply in [
        "-WRONGPASS invalid username-password pair or user is disabled.\r\n",
        "-ERR max number of clients reached\r\n",
        "-NOAUTH Authentication required.\r\n",
    ] {
        let redis = FakeRedis::start();
        let proxy = Proxy::start(redis.addr);
        let service = serve(&format!("redis://{}", proxy.addr()), AMPLE);
        let mut client = connect(&service).await;
        until_decided(&mut client).await;
        redis.answer(|words| (words[0] == b"HELLO").then(|| reply.to_owned()));
        proxy.cut_connections();
        time::sleep(Duration::from_millis(100)).await;
        let before = proxy.accepted();
        for _ in 0..200 {
            let verdicts = admit(&mut client, "closed", &fresh_ids(1), "").await;
            assert_eq!(reasons(&verdicts), [Reason::StoreUnavailable], "{reply}");
        }
        let attempts = proxy.accepted() - before;
        if attempts > 40 {
            stormed.push((attempts, reply));
        }
    }
    assert!(stormed.is_empty(), "attempts for 200 calls: {stormed:?}");
}
