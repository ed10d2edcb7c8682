use super::*;
use crate::domain::{
    claim::{Nonce, Sighting},
    place::Position,
    time::EventTime,
};

const NAMESPACE: NamespaceId = NamespaceId(0);

fn record(number: u64) -> Record {
    Record {
        state: ClaimState::Confirmed,
        nonce: Nonce::from_bytes(number.to_be_bytes()),
        sighting: Sighting {
            time: Some(EventTime::from_unix_nanos(number as i64)),
            latest: None,
            content_hash: Some(number),
            position: Some(Position::from_stored(1.5, 2.5)),
        },
    }
}

fn hex(number: u64) -> Key {
    let digest = xxhash_rust::xxh3::xxh3_128(&number.to_be_bytes());
    Key::new(NAMESPACE, Partition(number), KeyName::Hex(digest)).expect("it fits")
}

fn learn(table: &Table, key: &Key, record: &Record, source: Source, until_ms: u64) {
    let mut encoded = Vec::new();
    record.encode(&mut encoded);
    table.learn(key, &encoded, source, until_ms, || true);
}

impl Table {
    fn find(&self, key: &Key, now_ms: u64) -> Option<Record> {
        let shard = self.shards[shard_of(key.hash)].lock();
        shard.get(self.set_of(key.hash))?.believed(key, now_ms)
    }
}

#[test]
fn an_entry_is_believed_until_its_time() {
    let table = Table::new(1);
    let (key, other) = (hex(1), hex(2));
    learn(&table, &key, &record(7), Source::Own, 100);
    assert_eq!(table.find(&key, 99), Some(record(7)));
    assert_eq!(table.find(&key, 100), None);
    assert_eq!(table.find(&other, 99), None);
    // Used or not; told again it is believed for longer.
    let told = |at_ms| Source::Told {
        at_ms,
        settled_after_ms: 10,
    };
    learn(&table, &key, &record(7), told(90), 190);
    assert_eq!(table.find(&key, 189), Some(record(7)));
    table.remove(&key);
    assert_eq!(table.find(&key, 99), None);
}

#[test]
fn of_another_holder_it_is_told_twice() {
    let table = Table::new(1);
    let key = hex(1);
    let told = |at_ms| Source::Told {
        at_ms,
        settled_after_ms: 10,
    };
    let rows = [
        (record(1), 100, false),
        (record(1), 109, false),
        (record(1), 110, true),
        // Another claim stands there by now.
        (record(2), 115, false),
        (record(2), 124, false),
        (record(2), 125, true),
    ];
    for (record, at_ms, is_believed) in rows {
        learn(&table, &key, &record, told(at_ms), at_ms + 100);
        assert_eq!(table.find(&key, at_ms).is_some(), is_believed, "{at_ms}");
    }
}

#[test]
fn what_holds_no_more_is_not_learnt() {
    let table = Table::new(1);
    let mut encoded = Vec::new();
    record(1).encode(&mut encoded);
    table.learn(&hex(1), &encoded, Source::Own, 100, || false);
    assert_eq!(table.find(&hex(1), 0), None);
}

#[test]
fn keys_are_compared_whole() {
    let table = Table::new(1);
    let key = |namespace, partition, name| {
        Key::new(NamespaceId(namespace), Partition(partition), name).expect("it fits")
    };
    let id = [7; MAX_ID_BYTES];
    let mut other_id = id;
    other_id[MAX_ID_BYTES - 1] = 8;
    let plain = Record {
        sighting: Sighting {
            position: None,
            ..record(1).sighting
        },
        ..record(1)
    };
    let known = [
        key(0, 1, KeyName::Decimal(5)),
        key(0, 1, KeyName::Id(&id)),
        key(0, 1, KeyName::Id(b"")),
    ];
    for known in &known {
        learn(&table, known, &plain, Source::Own, 100);
    }
    for known in &known {
        assert_eq!(table.find(known, 0), Some(plain));
    }
    let others = [
        key(1, 1, KeyName::Decimal(5)),
        key(0, 2, KeyName::Decimal(5)),
        key(0, 1, KeyName::Hex(5)),
        key(0, 1, KeyName::Decimal(5 | 1 << 127)),
        key(1, 1, KeyName::Id(&id)),
        key(0, 1, KeyName::Id(&other_id)),
        key(0, 1, KeyName::Id(&id[1..])),
    ];
    for other in &others {
        assert_eq!(table.find(other, 0), None);
    }
    let too_long = [7; MAX_ID_BYTES + 1];
    assert!(Key::new(NAMESPACE, Partition(1), KeyName::Id(&too_long)).is_none());
}

#[test]
fn a_flood_takes_no_more_memory_and_the_latest_stay() {
    const FLOOD: u64 = 100_000;
    let max_bytes = 1 << 20;
    let table = Table::new(max_bytes);
    for number in 0..FLOOD {
        learn(
            &table,
            &hex(number),
            &record(number),
            Source::Own,
            number + 1,
        );
    }
    let sets: usize = table.shards.iter().map(|shard| shard.lock().len()).sum();
    assert!((sets * size_of::<Set>()) as u64 <= max_bytes);
    let held: Vec<u64> = (0..FLOOD)
        .filter(|number| table.find(&hex(*number), 0).is_some())
        .collect();
    let room = (sets * WAYS) as u64;
    assert!(
        held.len() as u64 > room * 9 / 10,
        "{} of {room}",
        held.len()
    );
    let latest = held.iter().filter(|number| **number >= FLOOD - room / 2);
    assert!(latest.count() as u64 > room / 2 * 95 / 100);
}
