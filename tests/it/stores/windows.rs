//! Tumbling, guarded and sliding windows.

use super::*;

pub(super) async fn first_sighting_then_redelivery_or_restamped(engine: Arc<Engine>) {
    let ns = "suite-guarded";
    check(
        &engine,
        ns,
        &[transition("a", T0 + 500 * MS)],
        &[Reason::FirstSeen],
    )
    .await;
    check(
        &engine,
        ns,
        &[transition("a", T0 + 500 * MS)],
        &[Reason::Redelivery],
    )
    .await;
    check(
        &engine,
        ns,
        &[transition("a", T0 + 501 * MS)],
        &[Reason::Restamped],
    )
    .await;
    check(
        &engine,
        ns,
        &[transition("b", T0 + 500 * MS)],
        &[Reason::FirstSeen],
    )
    .await;
    let late = admit(&engine, ns, None, &[transition("a", T0 + 502 * MS)]).await;
    assert_eq!(
        late.verdicts()[0]
            .first_occurred_at
            .map(|time| time.unix_nanos()),
        Some(T0 + 500 * MS)
    );
}

pub(super) async fn guard_is_strict_and_compares_times(engine: Arc<Engine>) {
    let ns = "suite-guarded";
    let edge = T0 + 2000 * MS;
    for (device, first, second, expected) in [
        ("inside", edge - MS, edge + 198 * MS, Reason::Boundary),
        ("last", edge - MS, edge + 199 * MS - 1, Reason::Boundary),
        ("exact", edge - MS, edge + 199 * MS, Reason::FirstSeen),
        (
            "backward",
            edge + 100 * MS,
            edge - 99 * MS,
            Reason::Boundary,
        ),
        (
            "backward-exact",
            edge + 100 * MS,
            edge - 100 * MS,
            Reason::FirstSeen,
        ),
        ("negative", -MS, 198 * MS, Reason::Boundary),
        ("negative-exact", -MS, 199 * MS, Reason::FirstSeen),
        (
            "halves",
            (1 << 32) * 1000 - 1,
            (1 << 32) * 1000,
            Reason::Restamped,
        ),
    ] {
        check(
            &engine,
            ns,
            &[transition(device, first)],
            &[Reason::FirstSeen],
        )
        .await;
        check(&engine, ns, &[transition(device, second)], &[expected]).await;
    }
}

pub(super) async fn sliding_window_has_no_edges(engine: Arc<Engine>) {
    let ns = "suite-sliding";
    for start in [T0 + 900 * MS, -1, i64::MIN, i64::MAX - 2_000 * MS] {
        let device = start.to_string();
        check(
            &engine,
            ns,
            &[transition(&device, start)],
            &[Reason::FirstSeen],
        )
        .await;
        check(
            &engine,
            ns,
            &[transition(&device, start + 999_999_999)],
            &[Reason::Restamped],
        )
        .await;
        check(
            &engine,
            ns,
            &[transition(&device, start + 1000 * MS)],
            &[Reason::FirstSeen],
        )
        .await;
    }
}

pub(super) async fn copies_in_one_request_name_the_first(engine: Arc<Engine>) {
    let (e1, e2) = (transition("c10", T0), transition("c10-other", T0));
    let events = [
        e1,
        e1,
        e2,
        e1,
        transition("edge", T0 - MS),
        transition("edge", T0 + MS),
    ];
    for (ns, copy) in [
        ("suite-guarded", Reason::Redelivery),
        ("suite-leased", Reason::InFlight),
    ] {
        let admission = admit(&engine, ns, None, &events).await;
        let seen: Vec<_> = admission
            .verdicts()
            .iter()
            .map(|verdict| (verdict.reason, verdict.copy_of_index))
            .collect();
        let across = if ns == "suite-leased" {
            Reason::InFlight
        } else {
            Reason::Boundary
        };
        let expected = [
            (Reason::FirstSeen, None),
            (copy, Some(0)),
            (Reason::FirstSeen, None),
            (copy, Some(0)),
            (Reason::FirstSeen, None),
            (across, Some(4)),
        ];
        assert_eq!(seen, expected, "{ns}");
        admission.delivered();
    }
}
