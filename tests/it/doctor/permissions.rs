//! ACL users that may do too little, each missing permission by its name.

use std::sync::Arc;

use dedupd::grpc::proto::{
    Reason::{FirstSeen, Redelivery},
    SettleOutcome,
};

use super::{CONFIG, Report, doctor};
use crate::{
    client::{
        World,
        events::{T0, enter, keyed},
    },
    documents::document,
    support::{
        redis::{Options, RedisServer, redis_62},
        service,
    },
};

/// What the service needs: the rule of docs/redis.md.
const KEYS: [&str; 3] = ["~dedupd:*", "~crossings:*", "~orders:*"];
const COMMANDS: [&str; 9] = [
    "+set",
    "+get",
    "+mget",
    "+pttl",
    "+pexpire",
    "+del",
    "+eval",
    "+evalsha",
    "+script|load",
];
/// And what only helps to find out what is wrong.
const LOOKS: [&str; 6] = [
    "+ping",
    "+info",
    "+time",
    "+config|get",
    "+scan",
    "+getrange",
];

fn url(redis: &RedisServer) -> String {
    format!("redis://app:app-password@{}", redis.addr())
}

fn permit<'r>(redis: &RedisServer, rules: impl IntoIterator<Item = &'r str>) {
    let rules = ["ACL", "SETUSER", "app", "reset", "on", ">app-password"]
        .into_iter()
        .chain(rules);
    assert_eq!(redis.cli(&rules.collect::<Vec<_>>()), "OK");
}

/// All of the rules but one.
fn permit_but(redis: &RedisServer, left_out: &str) -> Report {
    let all = KEYS.iter().chain(&COMMANDS).chain(&LOOKS);
    permit(redis, all.copied().filter(|rule| *rule != left_out));
    doctor(&url(redis))
}

fn servers() -> impl Iterator<Item = RedisServer> {
    [None, redis_62()]
        .into_iter()
        .enumerate()
        .filter(|(index, binary)| *index == 0 || binary.is_some())
        .map(|(_, binary)| {
            RedisServer::start(Options {
                binary,
                ..Options::default()
            })
        })
}

#[test]
fn each_missing_command_is_named() {
    for redis in servers() {
        permit_but(&redis, "nothing").check_warnings(&[]);
        for rule in COMMANDS {
            let report = permit_but(&redis, rule);
            if rule == "+script|load" {
                report.check_warnings(&[]);
                report.check_notes("permission", "permit +script|load");
                continue;
            }
            let expected = format!("permit {rule}");
            report.check_failures(&[("permission", &expected)]);
        }
        for rule in LOOKS {
            let report = permit_but(&redis, rule);
            report.check_warnings(&[]);
            if rule != "+ping" {
                report.check_notes("introspection", rule);
            }
        }
        permit(&redis, KEYS);
        let expected = "refused: SET, GET, MGET, PTTL, PEXPIRE, DEL, EVAL; permit +set +get";
        doctor(&url(&redis)).check_failures(&[("permission", expected)]);
    }
}

#[test]
fn a_database_that_may_not_be_selected_is_named() {
    let redis = RedisServer::start(Options::default());
    permit(&redis, KEYS.iter().chain(&COMMANDS).copied());
    let report = doctor(&format!("{}/2", url(&redis)));
    report.check_failures(&[("connection", "'select' command; permit what is refused")]);
    let all = KEYS.iter().chain(&COMMANDS).copied();
    permit(&redis, all.chain(["+select"]));
    doctor(&format!("{}/2", url(&redis))).check_warnings(&[]);
}

#[test]
fn the_documents_name_the_smallest_rule() {
    let page = document("docs/redis.md").replace("\\|", "|");
    let page: Vec<&str> = page.split([' ', '`', '\n']).collect();
    for rule in COMMANDS.iter().chain(&LOOKS) {
        assert!(page.contains(rule), "{rule}");
    }
}

#[test]
fn each_missing_prefix_is_named() {
    for redis in servers() {
        for rule in KEYS {
            let about = format!("permission {}", &rule[1..]);
            let expected = format!("may not be touched; permit {rule}");
            permit_but(&redis, rule).check_failures(&[(&about, &expected)]);
        }
        permit(&redis, COMMANDS);
        doctor(&url(&redis)).check_failures(&[
            ("permission dedupd:*", "permit ~dedupd:*"),
            ("permission crossings:*", "permit ~crossings:*"),
            ("permission orders:*", "permit ~orders:*"),
        ]);
    }
}

/// From Redis 7.0 on keys may be permitted for one half.
#[test]
fn keys_that_may_only_be_read_are_named() {
    let redis = RedisServer::start(Options::default());
    for (half, what) in [("%R~orders:*", "written"), ("%W~orders:*", "read")] {
        let rules = KEYS.iter().chain(&COMMANDS).copied();
        let rules = rules.filter(|rule| *rule != "~orders:*");
        permit(&redis, rules.chain([half]));
        let report = doctor(&url(&redis));
        let failures = report.faults("failure");
        assert_eq!(failures.len(), 1, "{report:?}");
        assert_eq!(failures[0].0, "permission orders:*");
        assert!(
            failures[0].1.contains(what) || failures[0].1.contains("touched"),
            "{report:?}"
        );
    }
}

/// The rule is enough for the service itself, on all that it does.
#[tokio::test(flavor = "multi_thread")]
async fn the_smallest_rule_is_enough() {
    for redis in servers() {
        permit(&redis, KEYS.iter().chain(&COMMANDS).copied());
        let redis = Arc::new(redis);
        let options = service::Options {
            env: vec![("DEDUPD_STORE_URL".to_owned(), url(&redis))],
            ..service::Options::default()
        };
        let config = CONFIG.replace("store: { budget: 1s }\n", "").replace(
            "failure_mode: closed }",
            "failure_mode: closed, time: { max_age: off } }",
        );
        let world = World::with(Some(Arc::clone(&redis)), &config, options).await;
        world
            .service
            .wait_log("the store takes claims", crate::client::PATIENCE);
        let rows = [(keyed("a"), FirstSeen), (keyed("a"), Redelivery)];
        world.check("orders", &rows).await;
        let first = world.admit_one("crossings", &enter("a", T0)).await;
        assert_eq!(world.release(&first).await, SettleOutcome::Applied);
        let again = world.admit_one("crossings", &enter("a", T0)).await;
        assert_eq!(world.confirm(&again).await, SettleOutcome::Applied);
        assert_eq!(world.explain("orders", &keyed("a")).await.claims.len(), 1);
        let denied = world
            .service
            .metric(r#"dedupd_store_errors_total{kind="denied"}"#);
        assert_eq!(denied, Some(0.0));
    }
}

/// A server whose user may not even write a canary is examined all the same, and says why.
#[tokio::test(flavor = "multi_thread")]
async fn the_service_names_what_is_refused_to_it_at_its_start() {
    let redis = RedisServer::start(Options::default());
    permit(&redis, KEYS.iter().chain(&COMMANDS[1..]).copied());
    let service = service::Service::start(&service::Options {
        config: Some(CONFIG.to_owned()),
        env: vec![("DEDUPD_STORE_URL".to_owned(), url(&redis))],
        ..service::Options::default()
    });
    let line = service.wait_log("refused: SET; permit +set", crate::client::PATIENCE);
    assert!(line.contains(r#""check":"permission""#), "{line}");
    assert!(!line.contains("app-password"), "{line}");
    let found = r#"dedupd_store_findings{check="permission",severity="failure"}"#;
    crate::client::wait_until("exported", || service.metric(found) == Some(1.0));
}
