//! Session windows.

use super::*;

pub(super) async fn a_session_is_extended_by_what_it_suppresses(engine: Arc<Engine>) {
    use Reason::{FirstSeen, Redelivery, Restamped};
    let ns = "suite-session";
    let second = |number: i64| transition("session", T0 + number * 1000 * MS);
    // Each within the gap of something seen, the first of them 40 s behind the last.
    for (at, expected) in [
        (0, FirstSeen),
        (9, Restamped),
        (19, Restamped),
        (29, Restamped),
        (39, Restamped),
        (49, Restamped),
        (60, FirstSeen),
        (0, Redelivery),
        (49, Redelivery),
        // Exactly the gap behind the earliest is still within it, in both directions of arrival.
        (-10, Restamped),
        (-20, Restamped),
        (-31, FirstSeen),
    ] {
        let tokens = check(&engine, ns, &[second(at)], &[expected]).await;
        assert_eq!(
            tokens,
            Vec::<Vec<u8>>::new(),
            "stored confirmed: others may lose to it"
        );
    }
    let late = admit(&engine, ns, None, &[second(5)]).await;
    assert_eq!(
        late.verdicts()[0]
            .first_occurred_at
            .map(|time| time.unix_nanos()),
        Some(T0)
    );
    late.delivered();
    // A call that is dropped gives back, unless others were suppressed on its claim meanwhile.
    let before = engine.store().stats().give_backs_kept;
    let alone = [transition("alone", T0)];
    drop(admit(&engine, ns, None, &alone).await);
    eventually(&engine, ns, &alone, FirstSeen).await;
    let joined = admit(&engine, ns, None, &[transition("joined", T0)]).await;
    check(&engine, ns, &[transition("joined", T0 + MS)], &[Restamped]).await;
    drop(joined);
    tokio::time::sleep(Duration::from_millis(50)).await;
    check(&engine, ns, &[transition("joined", T0)], &[Redelivery]).await;
    assert_eq!(engine.store().stats().give_backs_kept, before + 1);
    // A retry takes over without forgetting what was seen since.
    let id = Some([3; 16]);
    admit(&engine, ns, id, &[transition("retried", T0)])
        .await
        .delivered();
    check(
        &engine,
        ns,
        &[transition("retried", T0 + 9_000 * MS)],
        &[Restamped],
    )
    .await;
    let retry = admit(&engine, ns, id, &[transition("retried", T0)]).await;
    assert_eq!(retry.verdicts()[0].reason, FirstSeen);
    retry.delivered();
    check(
        &engine,
        ns,
        &[transition("retried", T0 + 18_000 * MS)],
        &[Restamped],
    )
    .await;
}

pub(super) async fn a_pending_session_is_not_extended(engine: Arc<Engine>) {
    use Reason::{FirstSeen, InFlight, Redelivery, Restamped};
    let ns = "suite-session-leased";
    let second = |number: i64| transition("pending", T0 + number * 1000 * MS);
    let tokens = check(&engine, ns, &[second(0)], &[FirstSeen]).await;
    check(&engine, ns, &[second(9)], &[InFlight]).await;
    let confirmed = settle(&engine, SettleAction::Confirm, &tokens[0]).await;
    assert_eq!(confirmed, Settlement::Settled(SettleOutcome::Applied));
    check(&engine, ns, &[second(0)], &[Redelivery]).await;
    check(&engine, ns, &[second(11)], &[FirstSeen]).await;
    check(&engine, ns, &[second(8)], &[Restamped]).await;
}
