//! Times that cannot be, or can hardly be.

use dedupd::grpc::proto::{
    Event, Keyed,
    Reason::{
        FirstSeen, Late, MalformedTime, MissingTime, NaiveTime, Redelivery, Reobservation,
        TimeTooNew, TimeTooOld,
    },
    event::{Identity, Time},
};

use super::usual;
use crate::{
    client::{
        EVERY_STORE, Kept, World,
        events::{MINUTE, SECOND, T0, event, keyed, now, ping, stamp, timestamp},
    },
    support::service::Options,
};

/// Of asset a.
fn timed(time: Option<Time>) -> Event {
    Event {
        time,
        ..ping("a", 0)
    }
}

fn text(text: &str) -> Event {
    timed(Some(Time::OccurredAtText(text.to_owned())))
}

fn ingested(event: Event, nanos: i64) -> Event {
    Event {
        ingested_at: Some(timestamp(nanos)),
        ..event
    }
}

/// Pings that nothing but the default limits judges.
fn limited() -> String {
    usual().replace("time: { max_future: off, max_age: off }", "lease: 0s")
}

#[tokio::test(flavor = "multi_thread")]
async fn t05_nanos_out_of_range_are_malformed() {
    let seconds = T0 / SECOND;
    let rows = [
        (timed(stamp(seconds, -1)), MalformedTime),
        (timed(stamp(seconds, 1_000_000_000)), MalformedTime),
        (timed(stamp(seconds, i32::MAX)), MalformedTime),
        (timed(stamp(seconds, 999_999_999)), Late),
        (timed(stamp(seconds, 0)), Reobservation),
    ];
    for kept in EVERY_STORE {
        World::start(kept, &usual())
            .await
            .check_batch("pings", &rows)
            .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn t08_times_in_another_unit_never_share_a_bucket() {
    const PINGS: usize = 30;
    let pings = |unit: fn(i64) -> Option<Time>, expected| {
        let times = (0..30).map(move |minute| unit(T0 / SECOND + minute * 60));
        times
            .map(|time| (timed(time), expected))
            .collect::<Vec<_>>()
    };
    let kiloseconds = |seconds: i64| stamp(seconds / 1000, (seconds % 1000) as i32 * 1_000_000);
    let milliseconds = |seconds| stamp(seconds * 1000, 0);
    let microseconds = |seconds| stamp(seconds * 1_000_000, 0);
    for (config, limits) in [(limited(), true), (usual(), false)] {
        let world = World::start(Kept::InMemory, &config).await;
        world
            .check_batch("pings", &pings(milliseconds, TimeTooNew))
            .await;
        world
            .check_batch("pings", &pings(microseconds, TimeTooNew))
            .await;
        assert_eq!(world.counted("pings", TimeTooNew), 2.0 * PINGS as f64);
        // In 1970, which only a limit can find wrong.
        if limits {
            world
                .check_batch("pings", &pings(kiloseconds, TimeTooOld))
                .await;
            assert_eq!(world.counted("pings", TimeTooOld), PINGS as f64);
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn t09_a_ping_from_2099_blinds_nobody() {
    const IN_2099: i64 = 4_070_908_800 * SECOND;
    let config = usual().replace("max_future: off", "max_future: 5m");
    let rows = [
        (ping("a", IN_2099), TimeTooNew),
        (ping("a", T0), Late),
        (ping("a", T0 + MINUTE), Late),
        (ping("a", IN_2099), TimeTooNew),
        (ping("a", T0 + 2 * MINUTE), Late),
    ];
    for kept in EVERY_STORE {
        let world = World::start(kept, &config).await;
        world.check("pings", &rows).await;
        assert_eq!(world.eternal_keys(), Vec::<String>::new());
        let Some(redis) = world.redis() else { continue };
        let keys = redis.cli(&["KEYS", "dedup:*"]);
        assert_eq!(keys.lines().count(), 3, "{keys}");
        for key in keys.lines() {
            let left: i64 = redis.cli(&["PTTL", key]).parse().expect("a number");
            assert!(left <= 600_000, "{key} for {left} ms");
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn t11_a_week_rollover_is_named_and_never_corrected() {
    let now = 1_572_739_200 * SECOND;
    let rolled_over = ingested(ping("a", 953_424_000 * SECOND), now);
    let rows = [
        (rolled_over.clone(), TimeTooOld),
        (rolled_over.clone(), TimeTooOld),
        (ingested(ping("a", now), now), Late),
    ];
    let world = World::start(Kept::InMemory, &limited()).await;
    world.check("pings", &rows).await;
    let detail = world.admit_one("pings", &rolled_over).await.detail;
    assert!(detail.contains("1024 weeks"), "{detail}");
    let merely_old = ingested(ping("a", 950_000_000 * SECOND), now);
    let detail = world.admit_one("pings", &merely_old).await.detail;
    assert!(!detail.contains("1024 weeks"), "{detail}");
}

#[tokio::test(flavor = "multi_thread")]
async fn t12_a_missing_time_is_not_1970() {
    let missing = vec![(timed(None), MissingTime); 100];
    let world = World::start(Kept::InMemory, &usual()).await;
    world.check_batch("pings", &missing).await;
    let explicit = [stamp(0, 0), Some(Time::OccurredAtUnixNanos(0))].map(timed);
    let rows: Vec<_> = explicit.into_iter().zip([Late, Redelivery]).collect();
    world.check("pings", &rows).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn t20_a_text_without_a_zone_is_refused_and_the_servers_is_not_asked() {
    let rows = [
        ("2023-10-29T02:30:00+02:00", Late),
        ("2023-10-29T00:30:00Z", Redelivery),
        ("2023-10-29T02:30:00", NaiveTime),
        ("2023-10-29 02:30:00", NaiveTime),
        ("2023-10-29T00:30:00z", Redelivery),
        ("2023-10-29t00:30:00Z", Redelivery),
        ("2023-10-29 00:30:00Z", Redelivery),
        ("2023-10-29T00:30:00.000000000Z", Redelivery),
        ("2023-10-29T00:30:00.0-00:00", Redelivery),
        ("2023-10-28T19:00:00-05:30", Redelivery),
        ("2023-10-29T06:00:00+05:30", Redelivery),
        ("2023-10-29T00:30:00.000000001Z", Reobservation),
        ("2023-10-29T24:30:00Z", MalformedTime),
        ("2023-10-29T00:30:00 Europe/Paris", MalformedTime),
        ("29.10.2023 02:30", MalformedTime),
        ("", MalformedTime),
    ];
    let rows = rows.map(|(time, expected)| (text(time), expected));
    for zone in ["Asia/Kolkata", "UTC"] {
        let options = Options {
            env: vec![("TZ".to_owned(), zone.to_owned())],
            ..Options::default()
        };
        World::with(None, &usual(), options)
            .await
            .check("pings", &rows)
            .await;
    }
}

/// Older than the TTL: an expired claim cannot be excluded. Never for keyed events.
#[tokio::test(flavor = "multi_thread")]
async fn late_is_what_is_older_than_the_ttl() {
    let order = |nanos| {
        let event_id = "an old order".to_owned();
        event(Identity::Keyed(Keyed { event_id }), nanos)
    };
    let now = now();
    for kept in EVERY_STORE {
        let world = World::start(kept, &limited()).await;
        let rows = [
            (ping("a", now - 11 * MINUTE), Late),
            (ping("a", now - 11 * MINUTE), Redelivery),
            (ping("a", now - 9 * MINUTE), FirstSeen),
            (
                ingested(ping("a", now - 13 * MINUTE), now - 13 * MINUTE),
                Late,
            ),
        ];
        world.check("pings", &rows).await;
        world.check("orders", &[(order(T0), FirstSeen)]).await;
        let unreadable = Event {
            time: Some(Time::OccurredAtText("yesterday".to_owned())),
            ..keyed("an order of yesterday")
        };
        world.check("orders", &[(unreadable, FirstSeen)]).await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn clamped_times_are_those_of_ingestion_and_counted() {
    let config = usual().replace(
        "time: { max_future: off, max_age: off }",
        "time: { implausible: clamp }",
    );
    let now = now();
    let from_2099 = |asset| ping(asset, 4_070_908_800 * SECOND);
    let beyond_64_bits = ingested(timed(stamp(1_700_000_040_000, 0)), now);
    let rows = [
        (ingested(from_2099("a"), now), FirstSeen, true),
        (ingested(ping("a", 0), now), Redelivery, true),
        (ingested(ping("a", now), now), Redelivery, false),
        (beyond_64_bits, Redelivery, true),
        (ingested(from_2099("b"), now - 20 * MINUTE), Late, true),
        (from_2099("c"), TimeTooNew, false),
        (ping("c", 0), TimeTooOld, false),
        (ingested(timed(None), now), MissingTime, false),
        (ingested(timed(stamp(0, -1)), now), MalformedTime, false),
        (ingested(text("2023-10-29T02:30:00"), now), NaiveTime, false),
    ];
    for kept in EVERY_STORE {
        let world = World::start(kept, &config).await;
        for (row, (event, expected, clamped)) in rows.iter().enumerate() {
            let verdict = world.admit_one("pings", event).await;
            world.check_verdict(&verdict, *expected, format_args!("row {row}: {event:?}"));
            assert_eq!(verdict.time_clamped, *clamped, "row {row}: {verdict:?}");
        }
        let counted = world
            .service
            .metric(r#"dedupd_events_clamped_total{namespace="pings"}"#);
        assert_eq!(counted, Some(4.0));
    }
}
