//! Leases, the settling table, retries, giving back.

use super::*;

pub(super) async fn settling_table(engine: Arc<Engine>) {
    use SettleAction::{Confirm, Release, Renew};
    use SettleOutcome::{AlreadyApplied, AlreadyConfirmed, Applied, NotHeld};
    let rows: [(&str, &[SettleAction], SettleOutcome); 12] = [
        ("suite-leased", &[Confirm], Applied),
        ("suite-leased", &[Release], Applied),
        ("suite-leased", &[Renew], Applied),
        ("suite-guarded", &[Confirm], Applied),
        ("suite-guarded", &[Release], Applied),
        ("suite-guarded", &[Renew], AlreadyApplied),
        ("suite-leased", &[Confirm, Confirm], AlreadyApplied),
        ("suite-leased", &[Confirm, Release], AlreadyConfirmed),
        ("suite-leased", &[Confirm, Renew], AlreadyConfirmed),
        ("suite-leased", &[Release, Confirm], NotHeld),
        ("suite-leased", &[Release, Release], NotHeld),
        ("suite-leased", &[Release, Renew], NotHeld),
    ];
    for (row, (ns, actions, expected)) in rows.into_iter().enumerate() {
        let device = format!("settle-{row}");
        let tokens = check(
            &engine,
            ns,
            &[transition(&device, T0)],
            &[Reason::FirstSeen],
        )
        .await;
        let mut last = Settlement::Malformed;
        for &action in actions {
            last = settle(&engine, action, &tokens[0]).await;
        }
        assert_eq!(last, Settlement::Settled(expected), "{ns} {actions:?}");
    }
    // Another's claim: the first holder's token after release and a new claim.
    let first = check(
        &engine,
        "suite-leased",
        &[transition("taken", T0)],
        &[Reason::FirstSeen],
    )
    .await;
    settle(&engine, Release, &first[0]).await;
    let second = check(
        &engine,
        "suite-leased",
        &[transition("taken", T0)],
        &[Reason::FirstSeen],
    )
    .await;
    for action in [Confirm, Release, Renew] {
        assert_eq!(
            settle(&engine, action, &first[0]).await,
            Settlement::Settled(NotHeld)
        );
    }
    assert_eq!(
        settle(&engine, Confirm, &second[0]).await,
        Settlement::Settled(Applied)
    );
    check(
        &engine,
        "suite-leased",
        &[transition("taken", T0)],
        &[Reason::Redelivery],
    )
    .await;
    for bad in [
        &b""[..],
        b"nonsense",
        &first[0][..20],
        &[second[0].as_slice(), b"x"].concat(),
    ] {
        assert_eq!(settle(&engine, Confirm, bad).await, Settlement::Malformed);
    }
}

/// More than go into one command, one that another holds, and some twice.
pub(super) async fn many_settled_in_one_call(engine: Arc<Engine>) {
    use SettleOutcome::{AlreadyApplied, Applied, NotHeld};
    const MANY: usize = 2_300;
    const TAKEN: usize = 1_500;
    let ns = "suite-leased";
    let devices: Vec<String> = (0..MANY).map(|number| format!("many-{number}")).collect();
    let events: Vec<RawEvent<'_>> = devices
        .iter()
        .map(|device| transition(device, T0))
        .collect();
    let mut tokens = check(&engine, ns, &events, &[Reason::FirstSeen; MANY]).await;
    settle(&engine, SettleAction::Release, &tokens[TAKEN]).await;
    check(&engine, ns, &events[TAKEN..=TAKEN], &[Reason::FirstSeen]).await;
    tokens.extend([tokens[TAKEN].clone(), tokens[0].clone()]);
    tokens.insert(0, tokens[0].clone());
    for (action, first, again) in [
        (SettleAction::Renew, Applied, Applied),
        (SettleAction::Confirm, Applied, AlreadyApplied),
    ] {
        let settled = engine
            .settle(action, tokens.iter().map(Vec::as_slice))
            .expect("room in the queue")
            .finish()
            .await;
        let mut expected = vec![first; MANY];
        expected[TAKEN] = NotHeld;
        expected.extend([NotHeld, again]);
        expected.insert(1, again);
        let expected: Vec<Settlement> = expected.into_iter().map(Settlement::Settled).collect();
        assert_eq!(settled, expected, "{action:?}");
    }
    let mut expected = vec![Reason::Redelivery; MANY];
    expected[TAKEN] = Reason::InFlight;
    check(&engine, ns, &events, &expected).await;
}

pub(super) async fn lease_and_ttl_run_out(engine: Arc<Engine>) {
    for attempt in 0..10 {
        let device = format!("brief-{attempt}");
        if runs_out(&engine, &[transition(&device, T0)])
            .await
            .is_some()
        {
            return;
        }
    }
    panic!("ten times something took longer than a lease");
}

/// `None`: a step took so long that the claim may have ended before it.
async fn runs_out(engine: &Arc<Engine>, event: &[RawEvent<'_>]) -> Option<()> {
    const LEASE: Duration = Duration::from_millis(200);
    const TTL: Duration = Duration::from_millis(400);
    let within = |since: Instant, span: Duration| (since.elapsed() < span).then_some(());
    let half = || tokio::time::sleep(Duration::from_millis(120));
    let ns = "suite-brief";
    let claimed = Instant::now();
    let first = check(engine, ns, event, &[Reason::FirstSeen]).await;
    // Renewed at half of the lease, it is still held when the first lease would have ended.
    half().await;
    let renewed = Instant::now();
    let renewal = settle(engine, SettleAction::Renew, &first[0]).await;
    within(claimed, LEASE)?;
    assert_eq!(renewal, Settlement::Settled(SettleOutcome::Applied));
    half().await;
    let (held, _) = reasons(engine, ns, event).await;
    within(renewed, LEASE)?;
    assert_eq!(held, [Reason::InFlight]);
    tokio::time::sleep(LEASE).await;
    let claimed = Instant::now();
    let second = check(engine, ns, event, &[Reason::FirstSeen]).await;
    assert_eq!(
        settle(engine, SettleAction::Confirm, &first[0]).await,
        Settlement::Settled(SettleOutcome::NotHeld)
    );
    let confirmed = Instant::now();
    let confirmation = settle(engine, SettleAction::Confirm, &second[0]).await;
    within(claimed, LEASE)?;
    assert_eq!(confirmation, Settlement::Settled(SettleOutcome::Applied));
    // Confirmed for the TTL, which is longer than the lease was.
    tokio::time::sleep(LEASE + Duration::from_millis(20)).await;
    let (kept, _) = reasons(engine, ns, event).await;
    within(confirmed, TTL)?;
    assert_eq!(kept, [Reason::Redelivery]);
    tokio::time::sleep(TTL - LEASE).await;
    check(engine, ns, event, &[Reason::FirstSeen]).await;
    Some(())
}

pub(super) async fn retry_adopts_what_its_first_attempt_left(engine: Arc<Engine>) {
    for ns in ["suite-guarded", "suite-leased"] {
        let id = Some([7; 16]);
        // Twice the same key, one event at an edge, one other's.
        let events = [
            transition("mine", T0 + 500 * MS),
            transition("mine", T0 + 500 * MS),
            transition("mine-edge", T0 + MS),
            transition("theirs", T0),
        ];
        admit(&engine, ns, None, &events[3..]).await.delivered();
        let first = admit(&engine, ns, id, &events).await;
        let expected = first
            .verdicts()
            .iter()
            .map(|verdict| verdict.reason)
            .collect::<Vec<_>>();
        assert_eq!(expected[0], Reason::FirstSeen);
        let first = deliver(first);
        let again = admit(&engine, ns, id, &events).await;
        assert_eq!(
            again
                .verdicts()
                .iter()
                .map(|verdict| verdict.reason)
                .collect::<Vec<_>>(),
            expected,
            "{ns}"
        );
        assert_eq!(again.verdicts()[1].copy_of_index, Some(0));
        let again = deliver(again);
        // Either token settles: they name the same holder.
        assert_eq!(
            settle(&engine, SettleAction::Confirm, &first[0]).await,
            Settlement::Settled(SettleOutcome::Applied)
        );
        assert_eq!(
            settle(&engine, SettleAction::Confirm, &again[0]).await,
            Settlement::Settled(SettleOutcome::AlreadyApplied)
        );
        // Settled, it is a redelivery even for the same call; the other one is still its own.
        let third = admit(&engine, ns, id, &events).await;
        assert_eq!(third.verdicts()[0].reason, Reason::Redelivery);
        assert_eq!(third.verdicts()[1].copy_of_index, Some(0));
        assert_eq!(third.verdicts()[2].reason, Reason::FirstSeen);
        third.delivered();
        let stranger = admit(&engine, ns, Some([8; 16]), &events[2..3]).await;
        assert_ne!(stranger.verdicts()[0].reason, Reason::FirstSeen);
    }
}

pub(super) async fn a_dropped_call_gives_back_but_not_what_a_retry_adopted(engine: Arc<Engine>) {
    let ns = "suite-guarded";
    let event = [transition("dropped", T0)];
    drop(admit(&engine, ns, None, &event).await);
    eventually(&engine, ns, &event, Reason::FirstSeen).await;

    // A call, its retry, and only then the first call's give-back: the retry's claim stands.
    let event = [transition("adopted", T0)];
    let first = admit(&engine, ns, Some([9; 16]), &event).await;
    let retry = admit(&engine, ns, Some([9; 16]), &event).await;
    assert_eq!(retry.verdicts()[0].reason, Reason::FirstSeen);
    let tokens = deliver(retry);
    drop(first);
    tokio::time::sleep(Duration::from_millis(50)).await;
    check(&engine, ns, &event, &[Reason::Redelivery]).await;
    assert_eq!(
        settle(&engine, SettleAction::Confirm, &tokens[0]).await,
        Settlement::Settled(SettleOutcome::Applied)
    );
}

pub(super) async fn omitted_claims_cannot_be_settled(engine: Arc<Engine>) {
    let omit = |request_id| AdmitOptions {
        namespace: "suite-leased",
        request_id,
        omit_claims: true,
    };
    let event = [transition("omitted", T0)];
    for (id, expected) in [
        ([1; 16], Reason::FirstSeen),
        ([1; 16], Reason::FirstSeen),
        ([2; 16], Reason::Redelivery),
    ] {
        let prepared = engine
            .prepare(omit(Some(id)), event.iter().copied())
            .expect("a good request");
        let admission = engine.submit(prepared).expect("room").finish().await;
        assert_eq!(admission.verdicts()[0].reason, expected);
        assert_eq!(deliver(admission), Vec::<Vec<u8>>::new());
    }
}
