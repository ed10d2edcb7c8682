//! A table of fixed size: shards behind a lock each, of sets of a few entries. A full set loses the
//! entry that is worth least.
//!
//! A false hit would lose an event, so keys are compared whole: a digest with its partition (together
//! they are the store's key), an id byte by byte. Ids of more than [`MAX_ID_BYTES`] are not held.

use parking_lot::Mutex;

use crate::{
    domain::{
        claim::{ClaimState, MAX_RECORD_BYTES, Record, Standing},
        key::{KeyName, Partition},
        plan::Plan,
    },
    store::{ClaimRequest, NamespaceId},
};

const WAYS: usize = 8;
const SHARD_BITS: u32 = 6;
const SHARDS: usize = 1 << SHARD_BITS;

/// Namespace and kind of name.
const KEY_HEAD_BYTES: usize = 3;
const DIGEST_KEY_BYTES: usize = KEY_HEAD_BYTES + 8 + 16;
/// A digest with the longest record. The record of an id has no position.
const ENTRY_BYTES: usize = DIGEST_KEY_BYTES + MAX_RECORD_BYTES;
const POSITION_BYTES: usize = 16;
/// A UUID in text has 36.
pub(super) const MAX_ID_BYTES: usize =
    ENTRY_BYTES - KEY_HEAD_BYTES - (MAX_RECORD_BYTES - POSITION_BYTES);
const MAX_KEY_BYTES: usize = KEY_HEAD_BYTES + MAX_ID_BYTES;

const _: () = assert!(MAX_ID_BYTES >= 36 && MAX_KEY_BYTES >= DIGEST_KEY_BYTES);
const _: () = assert!(size_of::<Entry>() <= 80);

/// A primary key, as the table compares it.
pub(super) struct Key {
    hash: u64,
    bytes: [u8; MAX_KEY_BYTES],
    length: usize,
}

impl Key {
    /// `None`: the table does not hold what stands there.
    pub(super) fn of(request: &ClaimRequest, plan: &Plan) -> Option<Self> {
        if plan.sighting().is_session() {
            return None;
        }
        Self::new(
            request.namespace,
            plan.partition(),
            request.plans.primary(plan),
        )
    }

    pub(super) fn new(
        namespace: NamespaceId,
        partition: Partition,
        name: KeyName<'_>,
    ) -> Option<Self> {
        let mut bytes = [0; MAX_KEY_BYTES];
        let (head, rest) = bytes.split_at_mut(KEY_HEAD_BYTES);
        let mut digest = |digest: u128| {
            rest[..8].copy_from_slice(&partition.0.to_ne_bytes());
            rest[8..24].copy_from_slice(&digest.to_ne_bytes());
            DIGEST_KEY_BYTES
        };
        let (kind, length) = match name {
            KeyName::Decimal(decimal) => (0, digest(decimal)),
            KeyName::Hex(hex) => (1, digest(hex)),
            KeyName::Id(id) => {
                rest.get_mut(..id.len())?.copy_from_slice(id);
                (2, KEY_HEAD_BYTES + id.len())
            }
        };
        let [low, high] = namespace.0.to_ne_bytes();
        head.copy_from_slice(&[low, high, kind]);
        Some(Self {
            hash: hash_of(partition, name),
            bytes,
            length,
        })
    }

    fn bytes(&self) -> &[u8] {
        &self.bytes[..self.length]
    }
}

/// As good as random: of a digest, or of the subject.
fn hash_of(partition: Partition, name: KeyName<'_>) -> u64 {
    match name {
        KeyName::Decimal(digest) | KeyName::Hex(digest) => digest as u64,
        KeyName::Id(_) => partition.0,
    }
}

const fn shard_of(hash: u64) -> usize {
    (hash >> (64 - SHARD_BITS)) as usize
}

/// Never 0, which marks a free entry.
const fn tag(hash: u64) -> u8 {
    hash as u8 | 1
}

/// How it is known that a claim stands.
#[derive(Clone, Copy, Debug)]
pub(super) enum Source {
    /// This instance made it, and its holder knows.
    Own,
    /// The store told of it. It is believed once the store tells again, so much later.
    Told { at_ms: u64, settled_after_ms: u64 },
}

#[derive(Clone, Copy, Debug)]
struct Entry {
    /// Believed until then; or, not believed yet, told of first then. The smaller, the less it is
    /// worth.
    time_ms: u64,
    is_believed: bool,
    key_bytes: u8,
    record_bytes: u8,
    /// The key, then the encoded record.
    bytes: [u8; ENTRY_BYTES],
}

impl Entry {
    const FREE: Self = Self {
        time_ms: 0,
        is_believed: false,
        key_bytes: 0,
        record_bytes: 0,
        bytes: [0; ENTRY_BYTES],
    };

    fn key(&self) -> &[u8] {
        &self.bytes[..usize::from(self.key_bytes)]
    }

    fn record(&self) -> &[u8] {
        let start = usize::from(self.key_bytes);
        &self.bytes[start..start + usize::from(self.record_bytes)]
    }
}

#[derive(Clone, Debug)]
struct Set {
    tags: [u8; WAYS],
    entries: [Entry; WAYS],
}

impl Set {
    const FREE: Self = Self {
        tags: [0; WAYS],
        entries: [Entry::FREE; WAYS],
    };

    fn has(&self, tag: u8) -> bool {
        self.tags.contains(&tag)
    }

    fn believed(&self, key: &Key, now_ms: u64) -> Option<Record> {
        let entry = &self.entries[self.find(key)?];
        if !entry.is_believed || now_ms >= entry.time_ms {
            return None;
        }
        match Standing::decode(entry.record()) {
            Standing::Record(record) if record.state == ClaimState::Confirmed => Some(record),
            Standing::Record(_) | Standing::Newer { .. } | Standing::Foreign => None,
        }
    }

    fn find(&self, key: &Key) -> Option<usize> {
        let tag = tag(key.hash);
        (0..WAYS).find(|&way| self.tags[way] == tag && self.entries[way].key() == key.bytes())
    }

    fn least_worth(&self) -> usize {
        let ways = 0..WAYS;
        let way = ways.min_by_key(|&way| (self.tags[way] != 0, self.entries[way].time_ms));
        way.unwrap_or_default()
    }
}

/// The plans of a request by the shard that their keys are in, each with its key's hash.
struct ByShard {
    sorted: Vec<(u64, u32)>,
    ends: [u32; SHARDS],
}

/// A counting sort.
fn by_shard(request: &ClaimRequest) -> ByShard {
    let plans = request.plans.plans();
    let hash = |plan: &Plan| hash_of(plan.partition(), request.plans.primary(plan));
    let mut next = [0; SHARDS];
    for plan in plans {
        next[shard_of(hash(plan))] += 1;
    }
    let mut before = 0;
    for next in &mut next {
        (*next, before) = (before, before + *next);
    }
    let mut sorted = vec![(0, 0); plans.len()];
    for (place, plan) in (0..).zip(plans) {
        let hash = hash(plan);
        let next = &mut next[shard_of(hash)];
        sorted[*next as usize] = (hash, place);
        *next += 1;
    }
    ByShard { sorted, ends: next }
}

impl ByShard {
    fn iter_shards(&self) -> impl Iterator<Item = (usize, &[(u64, u32)])> {
        let mut start = 0;
        self.ends
            .iter()
            .enumerate()
            .filter_map(move |(shard, &end)| {
                let places = &self.sorted[start..end as usize];
                start = end as usize;
                (!places.is_empty()).then_some((shard, places))
            })
    }
}

/// Its sets are made when the first entry comes, which takes some ten microseconds.
type Shard = Vec<Set>;

#[derive(Debug)]
pub(super) struct Table {
    shards: [Mutex<Shard>; SHARDS],
    sets_per_shard: usize,
}

impl Table {
    pub(super) fn new(max_bytes: u64) -> Self {
        let sets = max_bytes as usize / size_of::<Set>();
        Self {
            shards: [const { Mutex::new(Vec::new()) }; SHARDS],
            sets_per_shard: (sets / SHARDS).max(1),
        }
    }

    fn set_of(&self, hash: u64) -> usize {
        let below_shard = u128::from(hash << SHARD_BITS);
        ((below_shard * self.sets_per_shard as u128) >> 64) as usize
    }

    /// The confirmed records that are believed to stand under the plans' primary keys; empty if there
    /// are none. The plans of a shard are looked for under one lock, and all their tags before the
    /// first entry: so the processor waits for several at a time where they are not in its caches.
    pub(super) fn find_all(&self, request: &ClaimRequest, now_ms: u64) -> Vec<Option<Record>> {
        let plans = request.plans.plans();
        let mut found = Vec::new();
        let mut candidates = Vec::new();
        for (shard, places) in by_shard(request).iter_shards() {
            let shard = self.shards[shard].lock();
            if shard.is_empty() {
                continue;
            }
            candidates.clear();
            for &(hash, place) in places {
                let set = self.set_of(hash);
                if shard[set].has(tag(hash)) {
                    candidates.push((set, place as usize));
                }
            }
            for &(set, place) in &candidates {
                let key = Key::of(request, &plans[place]);
                let record = key.and_then(|key| shard[set].believed(&key, now_ms));
                if record.is_some() {
                    if found.is_empty() {
                        found.resize(plans.len(), None);
                    }
                    found[place] = record;
                }
            }
        }
        found
    }

    /// `still_holds` is asked under the lock that [`Self::remove`] takes.
    pub(super) fn learn(
        &self,
        key: &Key,
        record: &[u8],
        source: Source,
        until_ms: u64,
        still_holds: impl FnOnce() -> bool,
    ) {
        let length = key.length + record.len();
        if length > ENTRY_BYTES {
            return;
        }
        let mut shard = self.shards[shard_of(key.hash)].lock();
        if !still_holds() {
            return;
        }
        if shard.is_empty() {
            *shard = vec![Set::FREE; self.sets_per_shard];
        }
        let set = &mut shard[self.set_of(key.hash)];
        let found = set.find(key);
        let before = found
            .map(|way| &set.entries[way])
            .filter(|entry| entry.record() == record);
        let (is_believed, time_ms) = match (source, before) {
            (Source::Own, _) => (true, until_ms),
            (Source::Told { .. }, Some(before)) if before.is_believed => {
                (true, until_ms.max(before.time_ms))
            }
            (
                Source::Told {
                    at_ms,
                    settled_after_ms,
                },
                before,
            ) => {
                let first_ms = before.map_or(at_ms, |before| before.time_ms.min(at_ms));
                match at_ms - first_ms >= settled_after_ms {
                    true => (true, until_ms),
                    false => (false, first_ms),
                }
            }
        };
        let way = found.unwrap_or_else(|| set.least_worth());
        let mut bytes = [0; ENTRY_BYTES];
        bytes[..key.length].copy_from_slice(key.bytes());
        bytes[key.length..length].copy_from_slice(record);
        set.tags[way] = tag(key.hash);
        set.entries[way] = Entry {
            time_ms,
            is_believed,
            key_bytes: key.length as u8,
            record_bytes: record.len() as u8,
            bytes,
        };
    }

    pub(super) fn remove(&self, key: &Key) {
        let mut shard = self.shards[shard_of(key.hash)].lock();
        let Some(set) = shard.get_mut(self.set_of(key.hash)) else {
            return;
        };
        if let Some(way) = set.find(key) {
            set.tags[way] = 0;
            set.entries[way] = Entry::FREE;
        }
    }
}

#[cfg(test)]
mod tests;
