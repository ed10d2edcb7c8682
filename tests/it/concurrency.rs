//! Two instances on one Redis, at the same instant.

use std::{sync::Arc, time::Instant};

use dedupd::grpc::proto::{
    AdmitRequest, Decision, Event,
    Reason::{FirstSeen, InFlight},
    SettleOutcome::Applied,
    StreamRequest,
    stream_request::Operation,
    stream_response::Result as Outcome,
};
use tokio::{
    sync::{Barrier, mpsc},
    task::JoinSet,
};
use tokio_stream::wrappers::ReceiverStream;

use crate::{
    client::{
        Dice, PATIENCE, World,
        events::{MINUTE, MS, SECOND, T0, enter, keyed, ping, ping_at},
        monitor::Monitor,
        request, wait_until,
    },
    support::{proxy::Proxy, redis::RedisServer, service::Options},
};

const CONFIG: &str = "namespaces:
  crossings:
    accepts: [transition]
    window: { tumbling: 2s, guard: 200ms }
    ttl: 600s
    failure_mode: closed
    time: { max_age: off }
  pings:
    accepts: [ping]
    window: { tumbling: 60s, guard: 5s }
    place: none
    ttl: 600s
    failure_mode: closed
    time: { max_age: off }
  places:
    accepts: [ping]
    window: { tumbling: 60s }
    place: { resolution: 12 }
    ttl: 600s
    failure_mode: closed
    time: { max_age: off }
  sessions:
    accepts: [ping]
    window: { session: 60s }
    place: none
    ttl: 600s
    failure_mode: closed
    time: { max_age: off }
  circles:
    accepts: [ping]
    window: { tumbling: 60s, guard: 5s }
    place: { resolution: 12, guard_m: 5 }
    ttl: 600s
    failure_mode: closed
    time: { max_age: off }
  orders: { accepts: [keyed], window: none, ttl: 600s, failure_mode: closed, lease: 30s }
";

async fn two_instances() -> (Arc<RedisServer>, [Arc<World>; 2]) {
    let redis = Arc::new(RedisServer::start(Default::default()));
    let worlds = [
        World::on(&redis, CONFIG).await,
        World::on(&redis, CONFIG).await,
    ];
    (redis, worlds.map(Arc::new))
}

#[tokio::test(flavor = "multi_thread")]
async fn of_5000_events_sent_to_both_each_is_admitted_once() {
    const EVENTS_OF_EACH: usize = 1250;
    let (_redis, worlds) = two_instances().await;
    let crossings = |number: usize| {
        // Some near an edge, so that both kinds of plan are made.
        let nanos = T0 + (number / 500) as i64 * MINUTE + (number % 20) as i64 * 100 * MS;
        enter(&format!("device-{}", number % 500), nanos)
    };
    let places = |number: usize| ping_at(&format!("asset-{number}"), T0, (47.4, 8.5));
    let sessions = |number: usize| ping(&format!("asset-{number}"), T0);
    let kinds: [(&str, &dyn Fn(usize) -> Event); 4] = [
        ("crossings", &crossings),
        ("places", &places),
        ("circles", &places),
        ("sessions", &sessions),
    ];
    for (namespace, event) in kinds {
        let events: Arc<Vec<Event>> = Arc::new((0..EVENTS_OF_EACH).map(event).collect());
        let start = Arc::new(Barrier::new(worlds.len()));
        let mut senders = JoinSet::new();
        for (seed, world) in (1..).zip(&worlds) {
            let (world, events, start) =
                (Arc::clone(world), Arc::clone(&events), Arc::clone(&start));
            senders.spawn(async move { admitted(&world, namespace, &events, seed, &start).await });
        }
        let admitted = senders.join_all().await;
        assert!(
            admitted
                .iter()
                .all(|numbers| numbers.len() > EVENTS_OF_EACH / 10),
            "one of them came too late"
        );
        let mut admitted = admitted.concat();
        admitted.sort_unstable();
        assert_eq!(
            admitted,
            (0..EVENTS_OF_EACH).collect::<Vec<_>>(),
            "{namespace}"
        );
    }
}

/// Which of the events were admitted, sent on one stream in an order of the seed's. Each batch
/// waits for the other instance's, so that neither runs ahead.
async fn admitted(
    world: &World,
    namespace: &str,
    events: &[Event],
    seed: u64,
    start: &Barrier,
) -> Vec<usize> {
    const BATCH: usize = 250;
    let mut order: Vec<usize> = (0..events.len()).collect();
    Dice::new(seed).shuffle(&mut order);
    let (requests, receiver) = mpsc::channel(1);
    let answers = world.dedup().stream(ReceiverStream::new(receiver)).await;
    let mut answers = answers.expect("a stream").into_inner();
    let mut admitted = Vec::new();
    for (batch_id, batch) in (0..).zip(order.chunks(BATCH)) {
        let events = batch.iter().map(|&number| events[number].clone()).collect();
        let operation = Some(Operation::Admit(request(namespace, events)));
        start.wait().await;
        let sent = requests
            .send(StreamRequest {
                batch_id,
                operation,
            })
            .await;
        sent.expect("an open stream");
        let answer = answers.message().await.expect("open").expect("an answer");
        let Some(Outcome::Admit(answer)) = answer.result else {
            panic!("{answer:?}")
        };
        let verdicts = batch.iter().zip(answer.verdicts);
        let new = verdicts.filter(|(_, verdict)| verdict.decision() == Decision::Admit);
        admitted.extend(new.map(|(&number, _)| number));
    }
    admitted
}

#[tokio::test(flavor = "multi_thread")]
async fn t02_both_sides_of_an_edge_at_the_same_instant() {
    const PAIRS: usize = 1000;
    const LANES: usize = 4;
    let (_redis, worlds) = two_instances().await;
    let mut lanes = JoinSet::new();
    for lane in 0..LANES {
        let barrier = Arc::new(Barrier::new(2));
        for (side, world) in worlds.iter().enumerate() {
            let (barrier, world) = (Arc::clone(&barrier), Arc::clone(world));
            lanes.spawn(async move {
                let nanos = T0 + 60 * SECOND + [-MS, MS][side];
                let mut admitted = Vec::new();
                for number in (lane..PAIRS).step_by(LANES) {
                    let event = ping(&format!("asset-{number}"), nanos);
                    barrier.wait().await;
                    let verdict = world.admit_one("pings", &event).await;
                    if verdict.decision() == Decision::Admit {
                        admitted.push(number);
                    }
                }
                admitted
            });
        }
    }
    let mut admitted = lanes.join_all().await.concat();
    admitted.sort_unstable();
    assert_eq!(admitted, (0..PAIRS).collect::<Vec<_>>());
}

/// The first call's give-back travels slowly, and finds what the retry has taken over.
#[tokio::test(flavor = "multi_thread")]
async fn a_delayed_give_back_spares_the_retrys_claim() {
    let redis = Arc::new(RedisServer::start(Default::default()));
    let proxy = Proxy::start(redis.addr());
    let options = Options {
        store_url: Some(redis.url_at(proxy.addr())),
        ..Options::default()
    };
    let slow = World::with(Some(Arc::clone(&redis)), CONFIG, options).await;
    let fast = World::on(&redis, CONFIG).await;
    let call = AdmitRequest {
        request_id: "7d444840-9dc0-11d1-b245-5ffdce74fad2".to_owned(),
        ..request("orders", vec![keyed("retried")])
    };
    let copy = keyed("retried");
    // The connection's handshake is over.
    slow.check("orders", &[(keyed("another"), FirstSeen)]).await;

    proxy.hold_replies();
    let first = tokio::spawn({
        let (mut client, call) = (slow.dedup(), call.clone());
        async move { client.admit(call).await }
    });
    wait_until("the first claim", || {
        redis.cli(&["EXISTS", "orders:retried"]) == "1"
    });
    let first_record = redis.cli(&["--no-raw", "GET", "orders:retried"]);
    proxy.black_hole();
    first.abort();
    let in_flight = || slow.service.metric("dedupd_requests_in_flight") == Some(0.0);
    wait_until("the cancellation", in_flight);

    let retried = fast
        .try_admit(call)
        .await
        .expect("an answer")
        .verdicts
        .remove(0);
    fast.check_verdict(&retried, FirstSeen, "adopted");
    let adopted = fast
        .service
        .metric(r#"dedupd_claims_adopted_total{namespace="orders"}"#);
    assert_eq!(adopted, Some(1.0));
    let second_record = redis.cli(&["--no-raw", "GET", "orders:retried"]);
    assert_ne!(first_record, second_record, "the attempt is counted");

    let mut monitor = Monitor::start(&redis);
    proxy.pass();
    let gives_back = |line: &String| line.contains("EVAL") && line.contains("orders:retried");
    let begun = Instant::now();
    let mut told = Vec::new();
    while !told.iter().any(gives_back) {
        assert!(begun.elapsed() < PATIENCE, "no give-back: {told:#?}");
        told.extend(monitor.commands());
    }
    let deletes =
        |line: &String| line.to_uppercase().contains(r#""DEL""#) && line.contains("orders:retried");
    assert!(!told.iter().any(deletes), "{told:#?}");

    for world in [&slow, &fast] {
        let verdict = world.admit_one("orders", &copy).await;
        world.check_verdict(&verdict, InFlight, "the retry's claim stands");
    }
    assert_eq!(slow.confirm(&retried).await, Applied);
}
