//! While Redis is away, what is known stays known; and the service, by its configuration.

use dedupd::grpc::proto::{self, AdmitRequest};

use super::*;

fn lose(engine: &Engine) {
    while engine.breaker().admits() {
        engine.breaker().failed();
    }
}

/// Reason, and whether the store took no part.
async fn answer(engine: &Arc<Engine>, namespace: &str, event: &RawEvent<'_>) -> (Reason, bool) {
    let admission = admit(engine, omitting(namespace), &[*event]).await;
    let verdict = admission.verdicts()[0].clone();
    admission.delivered();
    (verdict.reason, verdict.degraded)
}

#[tokio::test(flavor = "multi_thread")]
async fn in_an_outage_known_duplicates_are_answered() {
    let world = World::start();
    let engine = world.engine(Some(OPTIONS));
    for namespace in ["orders", "local"] {
        assert_eq!(
            reason(&engine, omitting(namespace), &keyed("a")).await,
            Reason::FirstSeen
        );
    }
    lose(&engine);
    let redelivery = (Reason::Redelivery, false);
    for (namespace, otherwise) in [
        ("orders", Reason::StoreUnavailable),
        ("local", Reason::Fallback),
    ] {
        assert_eq!(answer(&engine, namespace, &keyed("a")).await, redelivery);
        let other = answer(&engine, namespace, &keyed("b")).await;
        assert_eq!(other, (otherwise, true), "{namespace}");
    }
    // What the embedded store has decided is its own to answer, also when Redis is back.
    let decided_here = (Reason::Redelivery, true);
    assert_eq!(answer(&engine, "local", &keyed("b")).await, decided_here);
    let before = known(&engine, "local");
    engine.breaker().probe_answered();
    assert_eq!(answer(&engine, "local", &keyed("b")).await, decided_here);
    assert_eq!(known(&engine, "local"), before);

    world.clock.advance(MAX_AGE);
    lose(&engine);
    let unavailable = (Reason::StoreUnavailable, true);
    assert_eq!(answer(&engine, "orders", &keyed("a")).await, unavailable);
    let fallback = (Reason::Fallback, true);
    assert_eq!(answer(&engine, "local", &keyed("a")).await, fallback);
    // It stands in both now.
    assert_eq!(answer(&engine, "local", &keyed("a")).await, decided_here);
}

#[tokio::test(flavor = "multi_thread")]
async fn claims_are_known_unless_the_configuration_says_otherwise() {
    let redis = RedisServer::start(Options::default());
    let rows = [("", 1.0), (", known_claims: { max_age: 0s }", 0.0)];
    for (row, (said, expected)) in rows.into_iter().enumerate() {
        let service = world::serve_store(&format!("url: \"{}\", budget: 5s{said}", redis.url()));
        let mut client = world::connect(&service).await;
        let id = format!("row-{row}");
        let request = AdmitRequest {
            omit_claims: true,
            ..world::request("closed", vec![world::keyed(&id)], "")
        };
        for reason in [proto::Reason::FirstSeen, proto::Reason::Redelivery] {
            let verdicts = world::admit_events(&mut client, request.clone()).await;
            assert_eq!(verdicts[0].reason(), reason, "{said}");
        }
        let series = r#"dedupd_known_duplicates_total{namespace="closed"}"#;
        assert_eq!(service.metric(series), Some(expected), "{said}");
    }
}
