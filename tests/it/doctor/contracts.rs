//! The contracts in the store against ours; the doctor only reads them.

use super::{CONFIG, doctor, doctor_of};
use crate::support::redis::{Options, RedisServer};

const KEY: &str = "dedupd:contract:crossings";

fn put_up(redis: &RedisServer, line: &str) {
    assert_eq!(redis.cli(&["SET", KEY, line, "PX", "60000"]), "OK");
}

fn line(width_s: u64, guard_s: u64) -> String {
    format!(
        "v1 window={width_s}000000000ns place=- digest=xxh3 layout=plain prefix=crossings:; \
         guard={guard_s}000000000ns guard_m=0"
    )
}

#[test]
fn o03_contracts_are_held_against_ours() {
    let redis = RedisServer::start(Options::default());
    let check = |expected: &str| {
        let report = doctor(&redis.url());
        let found = report.findings();
        let of = |(check, severity, about, message): super::Row| {
            let ours = check == "contract" && about.as_deref() == Some("crossings");
            ours.then_some((severity, message))
        };
        let found: Vec<_> = found.into_iter().filter_map(of).collect();
        let (severity, message) = &found[0];
        assert!(
            format!("{severity}: {message}").contains(expected),
            "{found:?}"
        );
        report
    };
    check("note: no instance has put it up");
    assert_eq!(redis.cli(&["EXISTS", KEY]), "0", "none is put up");

    put_up(&redis, &line(60, 5));
    check("ok: v1 window=60000000000ns").check_warnings(&[]);

    put_up(&redis, &line(60, 4));
    check("warning: instances use different guards: here guard=5000000000ns").check_warnings(&[(
        "contract crossings",
        "in the store guard=4000000000ns guard_m=0",
    )]);

    put_up(&redis, &line(300, 5));
    let report = check(
        "failure: its contract here has window=60000000000ns, in the store window=300000000000ns",
    );
    report.check_failures(&[("contract crossings", "or start with --replace-contract")]);
    let shown = &report.object()["namespaces"][0];
    assert_eq!(shown["contract_in_store"], line(300, 5).as_str());
    assert_eq!(shown["contract"], line(60, 5).as_str());
    assert_eq!(redis.cli(&["GET", KEY]), line(300, 5), "it is not replaced");

    put_up(&redis, "\u{1b}[31m red \n and long ");
    let report = check("failure: its contract here has ");
    let object = report.object();
    let line = object["namespaces"][0]["contract_in_store"].as_str();
    assert!(
        line.is_some_and(|line| line.starts_with("\u{fffd}[31m red \u{fffd} and")),
        "{line:?}"
    );

    redis.cli(&["DEL", KEY]);
    redis.cli(&["RPUSH", KEY, "a list"]);
    check("failure: the key dedupd:contract:crossings cannot be read: a key holds another type");
}

#[test]
fn o03_a_line_lives_no_longer_for_being_read() {
    let redis = RedisServer::start(Options::default());
    put_up(&redis, &line(60, 5));
    doctor(&redis.url()).check_warnings(&[]);
    let left: i64 = redis.cli(&["PTTL", KEY]).parse().expect("a number");
    assert!((1..60_000).contains(&left), "{left} ms");
}

#[test]
fn o03_a_layout_is_part_of_it() {
    let redis = RedisServer::start(Options::default());
    put_up(&redis, &line(60, 5));
    let tagged = CONFIG.replace("guard: 5s }", "guard: 5s }, key: { layout: tagged }");
    let report = doctor_of(&tagged, &redis.url());
    report.check_failures(&[(
        "contract crossings",
        "layout=tagged, in the store layout=plain",
    )]);
    assert_eq!(report.object()["namespaces"][0]["layout"], "tagged");
}
