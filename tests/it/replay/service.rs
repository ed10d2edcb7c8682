//! A trace through a running service says what the simulation says.

use super::{count, dedupd, report, strategy, words};
use crate::support::{
    redis::RedisServer,
    service::{Options, Service},
};

const RECIPE: &str = "--synthetic --occurrences 4k --duration 60s --devices 100 --fences 2";
const CONFIG: &str = "store: { budget: 10s }
namespaces:
  near:
    accepts: [transition]
    window: { sliding: 200ms }
    ttl: 1h
    failure_mode: closed
    time: { max_age: off }
";

#[track_caller]
fn check(service: &Service) {
    let address = service.grpc_addr();
    let simulated = report(&format!("{RECIPE} --strategy sliding"), b"");
    let real = report(
        &format!("{RECIPE} --target {address} --namespace near --batch 100 --in-flight 4"),
        b"",
    );
    let (simulated, real) = (strategy(&simulated, "sliding"), strategy(&real, "near"));
    for part in ["events", "judged", "admitted", "suppressed", "refused"] {
        assert_eq!(real[part], simulated[part], "{part}: {real:#}");
    }
    assert!(count(&real["request"]["samples"]) >= 40, "{real:#}");
    assert!(real["decision"].is_null());
}

#[test]
fn a_service_on_the_embedded_store_answers_as_the_simulation() {
    check(&Service::start(&Options {
        config: Some(CONFIG.to_owned()),
        ..Options::default()
    }));
}

#[test]
fn a_service_on_redis_answers_as_the_simulation() {
    let redis = RedisServer::start(Default::default());
    check(&Service::start(&Options {
        config: Some(CONFIG.to_owned()),
        store_url: Some(redis.url()),
        ..Options::default()
    }));
}

#[test]
fn a_rate_is_kept_and_what_cannot_be_reached_is_told() {
    let service = Service::start(&Options {
        config: Some(CONFIG.to_owned()),
        ..Options::default()
    });
    let address = service.grpc_addr();
    let to = |address: &str, more: &str| {
        format!("--synthetic --occurrences 1k --target {address} --namespace near {more}")
    };
    let address = address.to_string();
    let real = report(&to(&address, "--rate 1000 --batch 50"), b"");
    let took = strategy(&real, "near")["took_s"].as_f64().expect("seconds");
    assert!(took >= 0.9, "{took}");
    drop(service);
    for (arguments, why) in [
        (to(&address, ""), "cannot reach"),
        (to("https://127.0.0.1:1", ""), "TLS is not spoken here"),
    ] {
        let output = dedupd(&words(&format!("replay {arguments}")), b"");
        let said = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(1), "{said}");
        assert!(said.contains(why), "{said}");
    }
}

#[test]
fn a_namespace_that_is_not_there_ends_the_replay() {
    let service = Service::start(&Options::default());
    let arguments = format!(
        "replay {RECIPE} --target {} --namespace nowhere",
        service.grpc_addr()
    );
    let output = dedupd(&words(&arguments), b"");
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{said}");
    assert!(said.contains("there is no namespace"), "{said}");
}
