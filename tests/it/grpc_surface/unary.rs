//! One call at a time: verdicts by index, settling, shadow.

use dedupd::grpc::proto::{
    self as pb, Decision, Reason, SettleOutcome, event,
    event::{Identity, Time},
};
use prost_types::Timestamp;

use super::server::{AT, PANICS, Server, admit, keyed, ping};

const LATITUDE: f64 = 47.4;

fn decided(verdicts: &[pb::Verdict]) -> Vec<(Decision, Reason)> {
    verdicts
        .iter()
        .map(|verdict| (verdict.decision(), verdict.reason()))
        .collect()
}

#[tokio::test]
async fn g08_one_bad_event_never_fails_its_batch() {
    let server = Server::start().await;
    let events = vec![
        ping("a", LATITUDE),
        ping("b", f64::NAN),
        ping("c", LATITUDE),
        ping("", LATITUDE),
        ping("a", LATITUDE),
    ];
    let answer = server
        .dedup()
        .await
        .admit(admit("pings", events))
        .await
        .expect("OK")
        .into_inner();
    let expected = [
        (Decision::Admit, Reason::FirstSeen),
        (Decision::DeadLetter, Reason::InvalidPosition),
        (Decision::Admit, Reason::FirstSeen),
        (Decision::DeadLetter, Reason::MissingIdentity),
        (Decision::Suppress, Reason::Redelivery),
    ];
    assert_eq!(decided(&answer.verdicts), expected);
    let tokens: Vec<bool> = answer
        .verdicts
        .iter()
        .map(|verdict| !verdict.claim.is_empty())
        .collect();
    assert_eq!(tokens, [true, false, true, false, false]);
    let details: Vec<bool> = answer
        .verdicts
        .iter()
        .map(|verdict| !verdict.detail.is_empty())
        .collect();
    assert_eq!(details, [false, true, false, true, false]);
    let copy = &answer.verdicts[4];
    let (seconds, nanos) = AT.seconds_and_nanos();
    assert_eq!(
        (copy.copy_of_index, copy.first_occurred_at),
        (Some(0), Some(Timestamp { seconds, nanos }))
    );
    assert_eq!(
        answer.lease, None,
        "claims without a lease need no settling"
    );
}

#[tokio::test]
async fn g08_every_kind_of_bad_event_is_named_and_the_last_good_one_admitted() {
    let good = || ping("asset", LATITUDE);
    let timed = |time| pb::Event { time, ..good() };
    let text = |text: &str| timed(Some(Time::OccurredAtText(text.to_owned())));
    let stamp = |seconds, nanos| timed(Some(Time::OccurredAt(Timestamp { seconds, nanos })));
    let placed = |position| {
        let ping = pb::Ping {
            asset_id: "asset".to_owned(),
            position,
        };
        pb::Event {
            identity: Some(Identity::Ping(ping)),
            ..good()
        }
    };
    let at = |latitude, longitude| {
        placed(Some(pb::ping::Position::LatLng(pb::LatLng {
            latitude,
            longitude,
        })))
    };
    let projected = pb::ProjectedPoint {
        x: Some(1.0),
        y: Some(2.0),
        epsg: 1,
    };
    let rows = [
        (pb::Event::default(), Reason::MissingIdentity),
        (ping("\u{a0}\t", LATITUDE), Reason::MissingIdentity),
        (ping(&"x".repeat(513), LATITUDE), Reason::OversizedIdentity),
        (keyed("id"), Reason::WrongKind),
        (timed(None), Reason::MissingTime),
        (stamp(1, -1), Reason::MalformedTime),
        (text("yesterday"), Reason::MalformedTime),
        (text("2026-11-30T14:05:00"), Reason::NaiveTime),
        (stamp(i64::MIN, 0), Reason::TimeTooOld),
        (stamp(i64::MAX, 0), Reason::TimeTooNew),
        (placed(None), Reason::MissingPosition),
        (at(Some(LATITUDE), None), Reason::MissingPosition),
        (at(Some(90.5), Some(0.0)), Reason::InvalidPosition),
        (at(Some(-0.0), Some(0.0)), Reason::NullIsland),
        (
            placed(Some(pb::ping::Position::Projected(projected))),
            Reason::UnknownCrs,
        ),
        (good(), Reason::FirstSeen),
    ];
    let server = Server::start().await;
    let (events, expected): (Vec<_>, Vec<_>) = rows.into_iter().unzip();
    let answer = server
        .dedup()
        .await
        .admit(admit("pings", events))
        .await
        .expect("OK")
        .into_inner();
    let reasons: Vec<Reason> = answer.verdicts.iter().map(pb::Verdict::reason).collect();
    assert_eq!(reasons, expected);
}

#[tokio::test]
async fn kinds_of_transition_that_are_unset_or_unknown_are_told_apart() {
    let transition = |kind| {
        let transition = pb::Transition {
            device_id: "d".to_owned(),
            fence_id: "f".to_owned(),
            kind,
            ..Default::default()
        };
        pb::Event {
            identity: Some(event::Identity::Transition(transition)),
            time: Some(Time::OccurredAtUnixNanos(AT.unix_nanos())),
            ..pb::Event::default()
        }
    };
    let server = Server::start().await;
    let events = [0, 1, 2, 3, 4, 1].map(transition).to_vec();
    let answer = server
        .dedup()
        .await
        .admit(admit("transitions", events))
        .await
        .expect("OK")
        .into_inner();
    let reasons: Vec<Reason> = answer.verdicts.iter().map(pb::Verdict::reason).collect();
    let expected = [
        Reason::MissingIdentity,
        Reason::FirstSeen,
        Reason::FirstSeen,
        Reason::FirstSeen,
        Reason::WrongKind,
        Reason::Redelivery,
    ];
    assert_eq!(reasons, expected);
}

#[tokio::test]
async fn claims_under_a_lease_are_settled_by_their_tokens() {
    let server = Server::start().await;
    let mut client = server.dedup().await;
    let answer = client
        .admit(admit("orders", vec![keyed("one"), keyed("two")]))
        .await
        .expect("OK")
        .into_inner();
    assert_eq!(
        answer.lease,
        Some(prost_types::Duration {
            seconds: 30,
            nanos: 0
        })
    );
    let [one, two] = answer.verdicts.as_slice() else {
        panic!("two verdicts")
    };
    let held = client
        .admit(admit("orders", vec![keyed("one")]))
        .await
        .expect("OK")
        .into_inner();
    assert_eq!(
        decided(&held.verdicts),
        [(Decision::Retry, Reason::InFlight)]
    );
    let hint = prost_types::Duration {
        seconds: 0,
        nanos: 200_000_000,
    };
    assert_eq!(held.verdicts[0].retry_after, Some(hint));

    let claims = vec![one.claim.clone(), "nonsense".into(), "".into()];
    let confirmed = client
        .confirm(pb::ConfirmRequest { claims })
        .await
        .expect("OK")
        .into_inner();
    let expected = [
        SettleOutcome::Applied,
        SettleOutcome::Malformed,
        SettleOutcome::Malformed,
    ];
    assert_eq!(confirmed.outcomes().collect::<Vec<_>>(), expected);
    let claims = vec![two.claim.clone(), one.claim.clone()];
    let renewed = client
        .renew(pb::RenewRequest {
            claims: claims.clone(),
        })
        .await
        .expect("OK")
        .into_inner();
    let expected = [SettleOutcome::Applied, SettleOutcome::AlreadyConfirmed];
    assert_eq!(renewed.outcomes().collect::<Vec<_>>(), expected);
    let released = client
        .release(pb::ReleaseRequest { claims })
        .await
        .expect("OK")
        .into_inner();
    assert_eq!(released.outcomes().collect::<Vec<_>>(), expected);

    let request = pb::AdmitRequest {
        omit_claims: true,
        ..admit("orders", vec![keyed("two")])
    };
    let omitted = client.admit(request).await.expect("OK").into_inner();
    assert_eq!(
        decided(&omitted.verdicts),
        [(Decision::Admit, Reason::FirstSeen)]
    );
    assert!(omitted.verdicts[0].claim.is_empty() && omitted.lease.is_none());
}

#[tokio::test]
async fn in_shadow_copies_are_admitted_with_their_reason() {
    let server = Server::start().await;
    let events = vec![keyed("id"), keyed("id"), keyed("")];
    let answer = server
        .dedup()
        .await
        .admit(admit("watched", events))
        .await
        .expect("OK")
        .into_inner();
    let expected = [
        (Decision::Admit, Reason::FirstSeen),
        (Decision::Admit, Reason::Redelivery),
        (Decision::Admit, Reason::MissingIdentity),
    ];
    assert_eq!(decided(&answer.verdicts), expected);
    assert!(answer.verdicts.iter().all(|verdict| verdict.shadow));
}

#[tokio::test]
async fn a_panic_is_an_outage_for_its_request_only() {
    let server = Server::start().await;
    let mut client = server.dedup().await;
    let events = vec![keyed("id"), keyed(PANICS)];
    let answer = client
        .admit(admit("events", events))
        .await
        .expect("OK")
        .into_inner();
    let expected = [(Decision::Retry, Reason::StoreUnavailable); 2];
    assert_eq!(decided(&answer.verdicts), expected);
    assert!(
        answer
            .verdicts
            .iter()
            .all(|verdict| verdict.degraded && verdict.retry_after.is_some())
    );
    assert_eq!(server.claims_met_by("events", keyed("id")).await, 0);
    let answer = client
        .admit(admit("events", vec![keyed("id")]))
        .await
        .expect("OK")
        .into_inner();
    assert_eq!(
        decided(&answer.verdicts),
        [(Decision::Admit, Reason::FirstSeen)]
    );
    server.wait_in_flight(0).await;
}
