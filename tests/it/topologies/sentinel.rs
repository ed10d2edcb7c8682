//! A primary that sentinels name.

use std::{
    fmt::Write,
    time::{Duration, Instant},
};

use dedupd::grpc::proto::{Reason, SettleOutcome};

use super::{admit_keyed, decided_by, until};
use crate::{
    outage::world::{admit, confirm, fresh_ids, until_decided},
    support::{
        certificates,
        redis::{
            Tls,
            replicated::{Replicated, ReplicatedOptions, SERVICE},
        },
    },
};

/// From the end of the primary: the sentinels' second, their election, and ours.
const FAILOVER: Duration = Duration::from_secs(10);

fn url(scheme: &str, fleet: &Replicated, user_info: &str) -> String {
    let mut url = format!("{scheme}://{user_info}");
    for (number, address) in fleet.sentinel_addrs().iter().enumerate() {
        let comma = if number == 0 { "" } else { "," };
        write!(url, "{comma}{address}").expect("a String");
    }
    format!("{url}/{SERVICE}")
}

#[tokio::test(flavor = "multi_thread")]
async fn r04_a_killed_primary_is_followed_by_the_promoted_one() {
    let mut fleet = Replicated::start(&ReplicatedOptions::default());
    let store = format!("url: \"{}\"", url("redis-sentinel", &fleet, ""));
    let (service, mut client) = decided_by(&store).await;
    let before = fresh_ids(8);
    assert_eq!(
        admit_keyed(&mut client, &before).await,
        [Reason::FirstSeen; 8]
    );
    fleet.wait_in_sync();
    fleet.servers[0].kill();
    let killed = Instant::now();
    let promoted = async || (fleet.primary() == Some(1)).then_some(());
    until("the replica is promoted", FAILOVER, promoted).await;
    let took = until_decided(&mut client).await;
    assert!(
        took < Duration::from_secs(3),
        "after the promotion {took:?}"
    );
    println!("decided again {:?} after the kill", killed.elapsed());
    assert_eq!(
        admit_keyed(&mut client, &before).await,
        [Reason::Redelivery; 8]
    );
    let connections = service.metric("dedupd_store_connections");
    assert!(connections <= Some(4.0), "{connections:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn an_orderly_failover_is_followed_over_tls_with_passwords() {
    let fleet = Replicated::start(&ReplicatedOptions {
        password: Some("of-primary".to_owned()),
        sentinel_password: Some("of-sentinels".to_owned()),
        tls: Some(Tls::ServerOnly),
        ..ReplicatedOptions::default()
    });
    let file = tempfile::NamedTempFile::new().expect("a file");
    std::fs::write(file.path(), "of-sentinels").expect("written");
    let ca = certificates::path("ca.pem");
    let store = format!(
        "url: \"{}\", tls: {{ ca: \"{ca}\" }}, \
         sentinel: {{ password_file: \"{}\", tls: {{ ca: \"{ca}\" }} }}",
        url("rediss-sentinel", &fleet, ":of-primary@"),
        file.path().display(),
        ca = ca.display(),
    );
    let (service, mut client) = decided_by(&store).await;
    let claim = admit(&mut client, "leased", &["a"], "")
        .await
        .remove(0)
        .claim;
    fleet.wait_in_sync();
    fleet.failover();
    until_decided(&mut client).await;
    assert_eq!(confirm(&mut client, &claim).await, SettleOutcome::Applied);
    for secret in ["of-primary", "of-sentinels"] {
        let told = service.logs().iter().any(|line| line.contains(secret));
        assert!(!told, "{:?}", service.logs());
    }
}

/// The old primary still answers, and knows nothing of its successor: the sentinels' word counts.
#[tokio::test(flavor = "multi_thread")]
async fn a_primary_that_was_cut_off_is_left() {
    let fleet = Replicated::start(&ReplicatedOptions::default());
    let store = format!("url: \"{}\"", url("redis-sentinel", &fleet, ""));
    let (_service, mut client) = decided_by(&store).await;
    fleet.cut_off(0);
    let promoted = async || (fleet.primary() == Some(1)).then_some(());
    until("the replica is promoted", FAILOVER, promoted).await;
    assert!(fleet.is_primary(0), "the old one takes writes still");
    let written = async || {
        let id = fresh_ids(1);
        let verdicts = admit_keyed(&mut client, &id).await;
        let key = format!("closed:{}", id[0]);
        let there = fleet.servers[1].cli(&["EXISTS", &key]) == "1";
        (verdicts == [Reason::FirstSeen] && there).then_some(())
    };
    let (_, took) = until(
        "claims go to the new primary",
        Duration::from_secs(4),
        written,
    )
    .await;
    println!("left the old primary {took:?} after the promotion");
    fleet.rejoin(0);
}

/// What an asynchronous replica had not got is forgotten: that is said in the documentation.
#[tokio::test(flavor = "multi_thread")]
async fn r08_a_failover_may_forget_claims_and_tells_no_lies() {
    let mut fleet = Replicated::start(&ReplicatedOptions {
        sentinels: 0,
        ..ReplicatedOptions::default()
    });
    let url = format!("redis://{}", fleet.proxies[0].addr());
    let (_service, mut client) = decided_by(&format!("url: \"{url}\"")).await;
    fleet.servers[1].pause();
    let ids = fresh_ids(100);
    let first = admit(&mut client, "leased", &ids, "").await;
    assert!(
        first
            .iter()
            .all(|verdict| verdict.reason() == Reason::FirstSeen)
    );
    fleet.servers[0].kill();
    fleet.servers[1].resume();
    fleet.servers[1].cli(&["REPLICAOF", "NO", "ONE"]);
    fleet.proxies[0].cut_connections();
    fleet.proxies[0].set_target(fleet.servers[1].addr());
    until_decided(&mut client).await;
    let again = admit(&mut client, "leased", &ids, "").await;
    let admitted = again
        .iter()
        .filter(|verdict| verdict.reason() == Reason::FirstSeen)
        .count();
    println!("{admitted} of 100 claims were forgotten");
    for (old, new) in first.iter().zip(&again) {
        let settled = confirm(&mut client, &old.claim).await;
        let expected = match new.reason() {
            Reason::FirstSeen => SettleOutcome::NotHeld,
            Reason::InFlight => SettleOutcome::Applied,
            other => panic!("{other:?}"),
        };
        assert_eq!(settled, expected);
    }
}
