//! One server, however it is reached.

use std::{fs, time::Duration};

use dedupd::grpc::proto::{
    ExplainRequest, ForgetRequest, Reason, RenewRequest, SettleOutcome,
    inspect_service_client::InspectServiceClient,
};
use tokio::time;

use super::{BUDGET, admit_keyed, decided_by, until};
use crate::{
    outage::world::{
        admit, admit_events, confirm, connect, crossing, fresh_ids, keyed, reasons, request,
        serve_store, until_decided,
    },
    support::{
        certificates,
        redis::{
            Options, RedisServer, Tls,
            replicated::{Replicated, ReplicatedOptions},
        },
    },
};

fn path(name: &str) -> String {
    certificates::path(name).display().to_string()
}

#[tokio::test(flavor = "multi_thread")]
async fn over_tls_with_an_authority_of_its_own() {
    let redis = RedisServer::start(Options {
        tls: Some(Tls::ServerOnly),
        ..Options::default()
    });
    let url = redis.url();
    let (_service, mut client) = decided_by(&format!(
        "url: \"{url}\", tls: {{ ca: \"{}\" }}",
        path("ca.pem")
    ))
    .await;
    let ids = fresh_ids(8);
    assert_eq!(admit_keyed(&mut client, &ids).await, [Reason::FirstSeen; 8]);
    assert_eq!(
        admit_keyed(&mut client, &ids).await,
        [Reason::Redelivery; 8]
    );
}

/// The system's authorities do not know the test's: nothing is decided, and nothing is sent.
#[tokio::test(flavor = "multi_thread")]
async fn a_server_that_no_authority_vouches_for_is_no_store() {
    let redis = RedisServer::start(Options {
        tls: Some(Tls::ServerOnly),
        ..Options::default()
    });
    let service = serve_store(&format!("url: \"{}\", {BUDGET}", redis.url()));
    let mut client = connect(&service).await;
    let verdicts = admit_keyed(&mut client, &fresh_ids(2)).await;
    assert_eq!(verdicts, [Reason::StoreUnavailable; 2]);
    assert_eq!(redis.cli(&["DBSIZE"]), "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn over_tls_with_a_client_certificate() {
    let redis = RedisServer::start(Options {
        tls: Some(Tls::Mutual),
        password: Some("secret".to_owned()),
        ..Options::default()
    });
    let url = redis.url();
    let (ca, certificate, key) = (path("ca.pem"), path("client.pem"), path("client.key"));
    let (_service, mut client) = decided_by(&format!(
        "url: \"{url}\", tls: {{ ca: \"{ca}\", certificate: \"{certificate}\", key: \"{key}\" }}"
    ))
    .await;
    let ids = fresh_ids(2);
    assert_eq!(admit_keyed(&mut client, &ids).await, [Reason::FirstSeen; 2]);

    let without = serve_store(&format!(
        "url: \"{url}\", tls: {{ ca: \"{ca}\" }}, {BUDGET}"
    ));
    let mut client = connect(&without).await;
    let verdicts = admit_keyed(&mut client, &ids).await;
    assert_eq!(verdicts, [Reason::StoreUnavailable; 2]);
}

#[tokio::test(flavor = "multi_thread")]
async fn over_a_unix_socket_in_a_database() {
    let redis = RedisServer::start(Options::default());
    let socket = redis.socket_path();
    let url = format!("redis+unix://{}?db=3", socket.display());
    let (_service, mut client) = decided_by(&format!("url: \"{url}\"")).await;
    let id = fresh_ids(1);
    assert_eq!(admit_keyed(&mut client, &id).await, [Reason::FirstSeen]);
    let key = format!("closed:{}", id[0]);
    assert_eq!(redis.cli(&["-n", "3", "EXISTS", &key]), "1");
    assert_eq!(redis.cli(&["-n", "0", "DBSIZE"]), "0");
}

#[tokio::test(flavor = "multi_thread")]
async fn in_a_database_over_tcp() {
    let redis = RedisServer::start(Options::default());
    let (_service, mut client) = decided_by(&format!("url: \"{}/7\"", redis.url())).await;
    let id = fresh_ids(1);
    assert_eq!(admit_keyed(&mut client, &id).await, [Reason::FirstSeen]);
    assert_eq!(
        redis.cli(&["-n", "7", "EXISTS", &format!("closed:{}", id[0])]),
        "1"
    );
    assert_eq!(redis.cli(&["-n", "0", "DBSIZE"]), "0");
}

/// The rule is the one that the documentation gives.
fn documented_rule() -> String {
    let page = include_str!("../../../docs/redis.md");
    let rule = page
        .lines()
        .find(|line| line.starts_with("ACL SETUSER dedupd"));
    let rule = rule.expect("docs/redis.md has the rule");
    let words = rule.split_whitespace().skip(3);
    words
        .filter(|word| !matches!(*word, "on") && !word.starts_with('>'))
        .map(|word| word.replace("orders:", "closed:"))
        .collect::<Vec<_>>()
        .join(" ")
}

/// Every operation, by a user who may do no more than the documentation says.
#[tokio::test(flavor = "multi_thread")]
async fn with_the_smallest_acl_rule() {
    let prefixes = "~open:* ~leased:* ~fences:*";
    // What is refused stands in the server's log: looking is permitted, too.
    let looks = "+info +time +config|get";
    let rule = format!("{} {prefixes} {looks}", documented_rule());
    let redis = RedisServer::start(Options::default().user("dedupd", "secret", &rule));
    let address = redis.addr();
    let url = format!("redis://dedupd:secret@{address}");
    let (service, mut client) = decided_by(&format!("url: \"{url}\"")).await;
    let guarded = request("fences", vec![crossing("a", Duration::ZERO)], "");
    let verdicts = admit_events(&mut client, guarded).await;
    assert_eq!(reasons(&verdicts), [Reason::FirstSeen]);
    assert_eq!(
        confirm(&mut client, &verdicts[0].claim).await,
        SettleOutcome::Applied
    );
    let leased = admit(&mut client, "leased", &["b"], "").await.remove(0);
    let claims = vec![leased.claim.clone()];
    let renewed = client
        .renew(RenewRequest { claims })
        .await
        .expect("an answer");
    assert_eq!(
        renewed.into_inner().outcomes().next(),
        Some(SettleOutcome::Applied)
    );
    assert_eq!(
        confirm(&mut client, &leased.claim).await,
        SettleOutcome::Applied
    );
    let mut inspect = InspectServiceClient::connect(service.grpc_url())
        .await
        .expect("gRPC listens");
    let explain = ExplainRequest {
        namespace: "leased".to_owned(),
        event: Some(keyed("b")),
    };
    inspect.explain(explain).await.expect("an explanation");
    let forget = ForgetRequest {
        namespace: "leased".to_owned(),
        event: Some(keyed("b")),
    };
    inspect.forget(forget).await.expect("it is forgotten");
    let denied = redis.cli(&["ACL", "LOG"]);
    assert_eq!(denied, "", "{denied}");
    let keys = redis.cli(&["KEYS", "*"]);
    for key in keys.lines() {
        let ours = ["dedupd:", "open:", "closed:", "leased:", "fences:"];
        assert!(ours.iter().any(|prefix| key.starts_with(prefix)), "{key}");
    }
}

/// The file is read for each connection: a password may change while the service runs.
#[tokio::test(flavor = "multi_thread")]
async fn a_password_may_be_rotated() {
    let redis = RedisServer::start(Options {
        password: Some("old".to_owned()),
        ..Options::default()
    });
    let file = tempfile::NamedTempFile::new().expect("a file");
    fs::write(file.path(), "old\n").expect("written");
    let address = redis.addr();
    let shown = file.path().display();
    let store = format!("url: \"redis://{address}\", password_file: \"{shown}\"");
    let (service, mut client) = decided_by(&store).await;
    redis.cli(&["CONFIG", "SET", "requirepass", "new"]);
    let killed = [
        "-a",
        "new",
        "--no-auth-warning",
        "CLIENT",
        "KILL",
        "TYPE",
        "normal",
    ];
    redis.cli(&killed);
    time::sleep(Duration::from_millis(200)).await;
    fs::write(file.path(), "new").expect("written");
    until_decided(&mut client).await;
    assert!(
        !service
            .logs()
            .iter()
            .any(|line| line.contains("\"old\"") || line.contains("\"new\"")),
        "{:?}",
        service.logs()
    );
}

/// A claim that too few replicas have does not count, and nothing of it is left behind.
#[tokio::test(flavor = "multi_thread")]
async fn waits_for_replicas() {
    let fleet = Replicated::start(&ReplicatedOptions {
        sentinels: 0,
        ..ReplicatedOptions::default()
    });
    let url = fleet.servers[0].url();
    let (service, mut client) = decided_by(&format!("url: \"{url}\", wait_replicas: 1")).await;
    let ids = fresh_ids(4);
    assert_eq!(admit_keyed(&mut client, &ids).await, [Reason::FirstSeen; 4]);
    for id in &ids {
        assert_eq!(
            fleet.servers[1].cli(&["EXISTS", &format!("closed:{id}")]),
            "1"
        );
    }

    fleet.servers[1].pause();
    let unseen = fresh_ids(4);
    let verdicts = admit_keyed(&mut client, &unseen).await;
    assert_eq!(verdicts, [Reason::StoreUnavailable; 4]);
    let missing = service.metric(r#"dedupd_store_errors_total{kind="noreplicas"}"#);
    assert!(missing >= Some(4.0), "{missing:?}");
    let gone = async || {
        let stands =
            |id: &String| fleet.servers[0].cli(&["EXISTS", &format!("closed:{id}")]) == "1";
        (!unseen.iter().any(stands)).then_some(())
    };
    until("the claims are given back", Duration::from_secs(5), gone).await;

    fleet.servers[1].resume();
    until_decided(&mut client).await;
    assert_eq!(
        admit_keyed(&mut client, &unseen).await,
        [Reason::FirstSeen; 4]
    );
}
