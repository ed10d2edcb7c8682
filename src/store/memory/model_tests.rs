//! A table against a map that forgets nothing by itself.

use std::collections::BTreeMap;

use hashbrown::DefaultHashBuilder;
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use super::{
    key::Key,
    log::Log,
    shard::Shard,
    words::{KeptKey, NewClaim},
};
use crate::{
    domain::{
        claim::{ClaimState, Nonce, Record, Sighting},
        key::{KeyName, Partition},
        place::Position,
        time::EventTime,
    },
    store::NamespaceId,
};

const KEYS: u64 = 3_000;
const STEPS: u64 = 40_000;

struct Table {
    shard: Shard,
    hasher: DefaultHashBuilder,
    model: BTreeMap<u64, (Record, u64)>,
    now_ms: u64,
}

/// Ids of all lengths, and digests.
fn id(number: u64) -> Option<Vec<u8>> {
    let repeat = 1 + number as usize % 40;
    number
        .is_multiple_of(3)
        .then(|| format!("{number}-").repeat(repeat).into_bytes())
}

fn with_key<R>(number: u64, hasher: &DefaultHashBuilder, work: impl FnOnce(&Key<'_>) -> R) -> R {
    let id = id(number);
    let name = match &id {
        Some(id) => KeyName::Id(&id[..id.len().min(512)]),
        None => KeyName::Decimal(u128::from(number) << 70 | 7),
    };
    // The same digest under two namespaces is two claims.
    work(&Key::new(NamespaceId(number as u16 % 2), name, hasher))
}

fn record(number: u64, dice: &mut ChaCha8Rng) -> Record {
    let states = [
        ClaimState::Pending,
        ClaimState::Claimed,
        ClaimState::Confirmed,
    ];
    let time = EventTime::from_unix_nanos(dice.random());
    let is_id = id(number).is_some();
    let is_session = !is_id && dice.random_bool(0.2);
    let has_position = !is_id && !is_session && dice.random_bool(0.3);
    Record {
        state: states[dice.random_range(0..3)],
        nonce: Nonce::from_bytes(dice.random()),
        sighting: Sighting {
            time: (!is_id).then_some(time),
            latest: is_session.then_some(time),
            content_hash: (!is_session && dice.random_bool(0.5)).then(|| dice.random()),
            position: has_position.then(|| {
                Position::from_stored(
                    dice.random_range(-90.0..90.0),
                    dice.random_range(0.0..180.0),
                )
            }),
        },
    }
}

impl Table {
    fn new(first_piece: u64) -> Self {
        Self {
            shard: Shard::beginning_at(first_piece),
            hasher: DefaultHashBuilder::default(),
            model: BTreeMap::new(),
            now_ms: 1,
        }
    }

    fn put(&mut self, number: u64, record: Record, ttl_ms: u64) {
        let (now_ms, expires_at_ms) = (self.now_ms, self.now_ms + ttl_ms);
        with_key(number, &self.hasher, |key| {
            let seen = self.shard.find(key, now_ms);
            let holding = (record.state, record.nonce);
            let partition = Some(Partition(number));
            let claim = NewClaim::new(key, partition, holding, &record.sighting, expires_at_ms);
            if !seen.is_some_and(|seen| self.shard.overwrite(seen, &claim)) {
                self.shard.insert(key, seen, &claim, now_ms, &self.hasher);
            }
        });
        self.model.insert(number, (record, expires_at_ms));
    }

    fn restate(&mut self, number: u64, ttl_ms: u64) {
        let (now_ms, expires_at_ms) = (self.now_ms, self.now_ms + ttl_ms);
        let nonce = Nonce::from_bytes([9; 8]);
        with_key(number, &self.hasher, |key| {
            if let Some(seen) = self.shard.find(key, now_ms)
                && self.shard.record(seen).is_some()
            {
                let holding = (ClaimState::Confirmed, nonce);
                self.shard.restate(seen, holding, expires_at_ms);
            }
        });
        if let Some((record, until)) = self.model.get_mut(&number).filter(|(_, at)| *at > now_ms) {
            (record.state, record.nonce, *until) = (ClaimState::Confirmed, nonce, expires_at_ms);
        }
    }

    fn remove(&mut self, number: u64) {
        with_key(number, &self.hasher, |key| {
            self.shard.remove(key, self.now_ms)
        });
        self.model.remove(&number);
    }

    fn get(&self, number: u64) -> Option<(Record, u64)> {
        with_key(number, &self.hasher, |key| {
            self.shard.get_with_expiry(key, self.now_ms)
        })
    }

    fn in_model(&self, number: u64) -> Option<(Record, u64)> {
        let found = self.model.get(&number).copied();
        found.filter(|(_, expires_at_ms)| *expires_at_ms > self.now_ms)
    }

    #[track_caller]
    fn check_all(&mut self) {
        let now_ms = self.now_ms;
        self.model
            .retain(|_, (_, expires_at_ms)| *expires_at_ms > now_ms);
        for number in 0..KEYS {
            assert_eq!(self.get(number), self.in_model(number), "key {number}");
        }
        assert!(self.shard.len() >= self.model.len());
        let mut walked = BTreeMap::new();
        let end = self.shard.walk(&mut self.shard.reach(), |claim| {
            if claim.meta().is_live(now_ms) {
                let number = match claim.key() {
                    KeptKey::Digest {
                        digest, partition, ..
                    } => {
                        assert_eq!(partition, Some(Partition((digest >> 70) as u64)));
                        (digest >> 70) as u64
                    }
                    KeptKey::Id(id) => {
                        let text = String::from_utf8(id.to_vec()).expect("an id of digits");
                        let number = text.split('-').next().expect("a number");
                        number.parse().expect("a number")
                    }
                };
                let there = (claim.record(), claim.meta().expires_at_ms());
                assert_eq!(
                    walked.insert(number, there),
                    None,
                    "{number} is there twice"
                );
            }
            true
        });
        assert!(end);
        assert_eq!(walked, self.model);
    }
}

#[test]
fn a_table_holds_what_a_map_holds() {
    // The second one's piece numbers leave the bits that a place has for them behind.
    for (seed, first_piece) in [(1, 0), (2, Log::PIECE_NUMBERS - 40)] {
        let mut dice = ChaCha8Rng::seed_from_u64(seed);
        let mut table = Table::new(first_piece);
        for step in 0..STEPS {
            // Now and then few keys, so that tables shrink and are nearly empty.
            let keys = if step / 8_000 % 2 == 0 { KEYS } else { 20 };
            let number = dice.random_range(0..keys);
            let ttl_ms = [50, 400, 400, 400, 30_000][dice.random_range(0..5)];
            match dice.random_range(0..100) {
                0..60 => {
                    let record = record(number, &mut dice);
                    table.put(number, record, ttl_ms);
                }
                60..80 => table.remove(number),
                80..90 => table.restate(number, ttl_ms),
                _ => table.now_ms += dice.random_range(0..20),
            }
            assert_eq!(table.get(number), table.in_model(number), "step {step}");
            if step % 500 == 0 {
                table.check_all();
            }
            if step % 1_700 == 0 {
                table.shard.sweep_all(table.now_ms, &table.hasher);
                table.check_all();
                assert_eq!(table.shard.len(), table.model.len());
            }
        }
        table.now_ms += 100_000;
        table.shard.sweep_all(table.now_ms, &table.hasher);
        assert_eq!((table.shard.len(), table.shard.bytes()), (0, 0));
    }
}

/// A claim of a long TTL among many of a short one keeps the others' memory for a while only.
#[test]
fn what_stays_among_what_leaves_is_brought_together() {
    let mut table = Table::new(0);
    let mut dice = ChaCha8Rng::seed_from_u64(3);
    let mut most = 0;
    for step in 0..60_000 {
        // Digests alone, so that a claim's size is known.
        let number = step * 3 + 1;
        let record = Record {
            sighting: Sighting {
                time: Some(EventTime::from_unix_nanos(0)),
                ..Sighting::default()
            },
            ..record(1, &mut dice)
        };
        let ttl_ms = if step % 10 == 0 { 10_000 } else { 200 };
        table.put(number, record, ttl_ms);
        table.now_ms += 1;
        if step > 20_000 {
            most = most.max(table.shard.bytes());
        }
    }
    // 1,000 live claims of the long TTL and 180 of the short one, of six words. Without that, the
    // pieces of 10,000.
    let live = 1_180 * 6 * 8;
    assert!(most * 2 < live * 5, "{most} bytes for {live}");
}
