//! Taking the claims of an outage: every store as `domain::reconcile` says.

use dedupd::{
    domain::{
        claim::{
            ClaimState::{self, Claimed, Confirmed, Pending},
            Nonce, Record, Sighting, Standing,
        },
        event::Event,
        key::Names,
        plan::Planner,
        reconcile::{Reconciled, reconcile},
    },
    store::{
        HoldMs, NamespaceId,
        write_back::{WriteBack, WriteBackItem, WrittenBack},
    },
};

use super::*;

const MINE: Nonce = Nonce::from_bytes([1, 2, 3, 4, 5, 6, 7, 8]);
const OTHERS: Nonce = Nonce::from_bytes([9, 2, 3, 4, 5, 6, 7, 8]);
/// Far longer than a test takes.
const SHORTER: Duration = Duration::from_secs(1000);
const LONGER: Duration = Duration::from_secs(2000);

/// A session's events, so that their records may hold two times.
const NAMESPACE: &str = "suite-session";

fn batch(engine: &Engine, device: &str, record: Record, hold: Duration) -> Arc<WriteBack> {
    let (place, namespace) = engine
        .namespaces()
        .iter()
        .zip(0..)
        .find_map(|(namespace, place)| {
            let is_it = namespace.policy().name().as_str() == NAMESPACE;
            is_it.then_some((place, namespace))
        })
        .expect("a namespace");
    let (policy, raw) = (namespace.policy(), transition(device, T0));
    let event = Event::new(&raw, policy, EventTime::from_unix_nanos(T0)).expect("a good event");
    let mut planner = Planner::new(policy, 1);
    planner.plan(&event, 0);
    let plans = planner.finish();
    let plan = &plans.plans()[0];
    let mut names = Names::default();
    let item = WriteBackItem {
        namespace: NamespaceId(place),
        partition: plan.partition(),
        key: names.intern(plans.primary(plan)),
        record,
        hold: HoldMs::at_least(hold),
    };
    let items = vec![item];
    Arc::new(WriteBack { items, names })
}

async fn write(engine: &Engine, batch: &Arc<WriteBack>) -> WrittenBack {
    let written = engine.store().write_back(batch).await;
    written[0].expect("a healthy store")
}

/// What stands under the primary key of a device's event, and for how long.
async fn standing(engine: &Arc<Engine>, device: &str) -> Option<(Record, Duration)> {
    let explained = engine.explain(NAMESPACE, &transition(device, T0));
    let explanation = explained.expect("a namespace").await;
    let found = explanation.claims.into_iter().next()?;
    match found.standing {
        Standing::Record(record) => Some((record, found.expires_in.expect("a claim expires"))),
        other => panic!("{other:?}"),
    }
}

fn sightings() -> [Sighting; 4] {
    let plain = Sighting {
        time: Some(EventTime::from_unix_nanos(T0)),
        content_hash: Some(7),
        ..Sighting::default()
    };
    // One of them across the 32-bit halves in which a script compares times.
    let session = |earliest, latest| Sighting {
        time: Some(EventTime::from_unix_nanos(earliest)),
        latest: Some(EventTime::from_unix_nanos(latest)),
        ..Sighting::default()
    };
    [
        plain,
        session(T0, T0 + 5_000_000_000),
        session(T0 - 1, T0 + 1),
        session(-7, 7),
    ]
}

pub(super) async fn the_claims_of_an_outage_are_reconciled(engine: Arc<Engine>) {
    let states = [Pending, Claimed, Confirmed];
    let with = |nonce: Nonce| {
        let records = sightings().into_iter().flat_map(move |sighting| {
            states.map(|state: ClaimState| Record {
                state,
                nonce,
                sighting,
            })
        });
        records.collect::<Vec<_>>()
    };
    let seen = with(Nonce::NOBODY)
        .into_iter()
        .filter(|record| record.state == Confirmed && record.sighting.is_session());
    let ours: Vec<Record> = seen.clone().chain(with(MINE.written_back())).collect();
    let stored: Vec<Record> = seen.chain(with(MINE)).chain(with(OTHERS)).collect();
    let mut row = 0;
    for theirs in std::iter::once(None).chain(stored.into_iter().map(Some)) {
        for ours in &ours {
            row += 1;
            let id = format!("reconciled-{row}");
            if let Some(theirs) = theirs {
                write(&engine, &batch(&engine, &id, theirs, LONGER)).await;
            }
            let written = write(&engine, &batch(&engine, &id, *ours, SHORTER)).await;
            let (record, hold) = standing(&engine, &id).await.expect("a claim");
            let expected = match reconcile(theirs.map(Standing::Record).as_ref(), ours) {
                Reconciled::Write(record) => (WrittenBack::Stands, record, SHORTER),
                Reconciled::Join(record) => (WrittenBack::Stands, record, LONGER),
                Reconciled::Leave => (WrittenBack::Stands, theirs.expect("found"), LONGER),
                Reconciled::Taken => (WrittenBack::Taken, theirs.expect("found"), LONGER),
            };
            let rounded = if hold > SHORTER { LONGER } else { SHORTER };
            assert_eq!((written, record, rounded), expected, "{theirs:?} {ours:?}");
        }
    }
}

pub(super) async fn what_was_written_is_withdrawn_unless_it_has_changed(engine: Arc<Engine>) {
    let record = Record {
        state: Claimed,
        nonce: MINE.written_back(),
        sighting: Sighting {
            time: Some(EventTime::from_unix_nanos(T0)),
            ..Sighting::default()
        },
    };
    let written = batch(&engine, "withdrawn", record, LONGER);
    write(&engine, &written).await;
    engine.store().withdraw(&written, vec![0]);
    let event = [transition("withdrawn", T0)];
    eventually(&engine, NAMESPACE, &event, Reason::FirstSeen).await;
    for (id, change) in [
        (
            "confirmed",
            Record {
                state: Confirmed,
                ..record
            },
        ),
        (
            "taken-over",
            Record {
                nonce: MINE,
                ..record
            },
        ),
        (
            "anothers",
            Record {
                nonce: OTHERS,
                ..record
            },
        ),
    ] {
        write(&engine, &batch(&engine, id, change, LONGER)).await;
        let late = batch(&engine, id, record, LONGER);
        engine.store().withdraw(&late, vec![0]);
        tokio::time::sleep(Duration::from_millis(50)).await;
        let (stands, _) = standing(&engine, id).await.expect("it stays");
        assert_eq!(stands, change, "{id}");
    }
}
