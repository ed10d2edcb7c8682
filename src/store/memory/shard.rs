//! One of the embedded store's tables.
//!
//! A claim under a digest is one slot of 64 bytes, a cache line; a keyed claim holds its id.
//! State, flags, namespace and expiry are packed into one word.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable, hash_table::Entry};

use super::{
    trace::{Trace, WholeKey},
    walk::InSlot,
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

/// A pass of the hand over a table takes a quarter as many claims as the table has slots.
const SLOTS_PER_CLAIM: usize = 4;
const CLAIMS_PER_SWEEP: usize = 16;

/// A key with its hash, which is seeded at random so that nobody can choose ids that collide.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key<'a> {
    namespace: NamespaceId,
    name: Name<'a>,
    hash: u64,
}

#[derive(Clone, Copy, Debug)]
enum Name<'a> {
    Digest([u64; 2]),
    Id(&'a [u8]),
}

impl<'a> Key<'a> {
    pub(super) fn new(
        namespace: NamespaceId,
        name: KeyName<'a>,
        hasher: &DefaultHashBuilder,
    ) -> Self {
        match name {
            KeyName::Decimal(digest) | KeyName::Hex(digest) => {
                let digest = [(digest >> 64) as u64, digest as u64];
                Self {
                    namespace,
                    name: Name::Digest(digest),
                    hash: hash_digest(namespace, digest, hasher),
                }
            }
            KeyName::Id(id) => Self {
                namespace,
                name: Name::Id(id),
                hash: hash_id(namespace, id, hasher),
            },
        }
    }
}

fn hash_digest(namespace: NamespaceId, digest: [u64; 2], hasher: &DefaultHashBuilder) -> u64 {
    hasher.hash_one((namespace, digest))
}

fn hash_id(namespace: NamespaceId, id: &[u8], hasher: &DefaultHashBuilder) -> u64 {
    hasher.hash_one((namespace, id))
}

/// Expiry in milliseconds (43 bits: 278 years), namespace (16), flags (3), state (2).
#[derive(Clone, Copy, Debug)]
struct Meta(u64);

impl Meta {
    const HAS_HASH: u64 = 1 << 2;
    const HAS_POSITION: u64 = 1 << 3;
    const IS_SESSION: u64 = 1 << 4;
    const MAX_EXPIRY_MS: u64 = (1 << 43) - 1;

    fn new(namespace: NamespaceId, record: &Record, expires_at_ms: u64) -> Self {
        let sighting = &record.sighting;
        let flag = |set: bool, flag: u64| if set { flag } else { 0 };
        Self(
            (expires_at_ms.min(Self::MAX_EXPIRY_MS) << 21)
                | (u64::from(namespace.0) << 5)
                | flag(sighting.position.is_some(), Self::HAS_POSITION)
                | flag(sighting.content_hash.is_some(), Self::HAS_HASH)
                | flag(sighting.is_session(), Self::IS_SESSION)
                | record.state as u64,
        )
    }

    const fn expires_at_ms(self) -> u64 {
        self.0 >> 21
    }

    const fn is_live(self, now_ms: u64) -> bool {
        self.expires_at_ms() > now_ms
    }

    const fn namespace(self) -> NamespaceId {
        NamespaceId((self.0 >> 5) as u16)
    }

    const fn state(self) -> ClaimState {
        match self.0 & 3 {
            1 => ClaimState::Pending,
            2 => ClaimState::Claimed,
            _ => ClaimState::Confirmed,
        }
    }

    fn content_hash(self, stored: u64) -> Option<u64> {
        (self.0 & Self::HAS_HASH != 0).then_some(stored)
    }
}

/// Every claim under a digest has a time: only keyed events have none.
#[derive(Debug)]
struct DigestSlot<T> {
    trace: T,
    digest: [u64; 2],
    meta: Meta,
    nonce: u64,
    time_unix_nanos: i64,
    /// Under a session, which keeps no hash, the latest time.
    hash_or_latest: u64,
    latitude_deg: f64,
    longitude_deg: f64,
}

const _: () = assert!(size_of::<DigestSlot<()>>() == 64);

impl<T> DigestSlot<T> {
    fn new(
        trace: T,
        namespace: NamespaceId,
        digest: [u64; 2],
        record: &Record,
        expires_at_ms: u64,
    ) -> Self {
        let Sighting {
            time,
            latest,
            content_hash,
            position,
        } = record.sighting;
        let latest = latest.map(|latest| latest.unix_nanos() as u64);
        let degrees = |read: fn(Position) -> f64| position.map_or(0.0, read);
        Self {
            trace,
            digest,
            meta: Meta::new(namespace, record, expires_at_ms),
            nonce: u64::from_be_bytes(record.nonce.to_bytes()),
            time_unix_nanos: time.map_or(0, EventTime::unix_nanos),
            hash_or_latest: content_hash.or(latest).unwrap_or(0),
            latitude_deg: degrees(Position::latitude_deg),
            longitude_deg: degrees(Position::longitude_deg),
        }
    }

    fn record(&self) -> Record {
        let has_position = self.meta.0 & Meta::HAS_POSITION != 0;
        let is_session = self.meta.0 & Meta::IS_SESSION != 0;
        Record {
            state: self.meta.state(),
            nonce: Nonce::from_bytes(self.nonce.to_be_bytes()),
            sighting: Sighting {
                time: Some(EventTime::from_unix_nanos(self.time_unix_nanos)),
                latest: is_session.then(|| EventTime::from_unix_nanos(self.hash_or_latest as i64)),
                content_hash: self.meta.content_hash(self.hash_or_latest),
                position: has_position
                    .then(|| Position::from_stored(self.latitude_deg, self.longitude_deg)),
            },
        }
    }
}

#[derive(Debug)]
struct IdSlot {
    id: Box<[u8]>,
    meta: Meta,
    nonce: u64,
    content_hash: u64,
}

impl IdSlot {
    fn record(&self) -> Record {
        Record {
            state: self.meta.state(),
            nonce: Nonce::from_bytes(self.nonce.to_be_bytes()),
            sighting: Sighting {
                content_hash: self.meta.content_hash(self.content_hash),
                ..Sighting::default()
            },
        }
    }
}

#[derive(Debug)]
pub(super) struct Shard<T> {
    digests: HashTable<DigestSlot<T>>,
    ids: HashTable<IdSlot>,
    id_bytes: usize,
    hand: usize,
    claims_until_sweep: usize,
    expired: u64,
}

impl<T> Default for Shard<T> {
    fn default() -> Self {
        Self {
            digests: HashTable::new(),
            ids: HashTable::new(),
            id_bytes: 0,
            hand: 0,
            claims_until_sweep: 0,
            expired: 0,
        }
    }
}

impl<T: Trace> Shard<T> {
    pub(super) fn len(&self) -> usize {
        self.digests.len() + self.ids.len()
    }

    /// Claims that were forgotten because their time ran out.
    pub(super) fn expired(&self) -> u64 {
        self.expired
    }

    /// What the tables and the ids take. Asked at every claim, and so from the tables' sizes: what
    /// `allocation_size` computes takes longer.
    pub(super) fn bytes(&self) -> usize {
        fn table<S>(table: &HashTable<S>) -> usize {
            const CONTROL_BYTES: usize = 1;
            if table.capacity() == 0 {
                0
            } else {
                table.num_buckets() * (size_of::<S>() + CONTROL_BYTES)
            }
        }
        table(&self.digests) + table(&self.ids) + self.id_bytes
    }

    pub(super) fn get(&self, key: &Key<'_>, now_ms: u64) -> Option<Record> {
        self.get_with_expiry(key, now_ms).map(|(record, _)| record)
    }

    /// Brings what a look-up of the key will read into the cache, so that the misses of several
    /// keys overlap.
    pub(super) fn touch(&self, key: &Key<'_>) {
        let found = match key.name {
            Name::Digest(_) => self.digests.find(key.hash, |_| true).is_some(),
            Name::Id(_) => self.ids.find(key.hash, |_| true).is_some(),
        };
        std::hint::black_box(found);
    }

    /// The live claim under a key and when it expires.
    pub(super) fn get_with_expiry(&self, key: &Key<'_>, now_ms: u64) -> Option<(Record, u64)> {
        let (meta, record) = match key.name {
            Name::Digest(digest) => {
                let slot = self
                    .digests
                    .find(key.hash, same_digest(key.namespace, digest))?;
                (slot.meta, slot.record())
            }
            Name::Id(id) => {
                let slot = self.ids.find(key.hash, same_id(key.namespace, id))?;
                (slot.meta, slot.record())
            }
        };
        meta.is_live(now_ms)
            .then_some((record, meta.expires_at_ms()))
    }

    /// What the insertion of the key would allocate; nothing where it stands already.
    pub(super) fn growth_bytes(&self, key: &Key<'_>) -> usize {
        const FIRST_TABLE_BYTES: usize = 512;
        /// Full, and not just of tombstones, which are cleared in place.
        fn grows<S>(table: &HashTable<S>) -> bool {
            table.len() == table.capacity() && (table.len() + 1) * 16 > table.num_buckets() * 7
        }
        let table = |bytes: usize, grows: bool| {
            if grows {
                bytes.max(FIRST_TABLE_BYTES)
            } else {
                0
            }
        };
        match key.name {
            Name::Digest(_) if !grows(&self.digests) => 0,
            Name::Digest(digest) => {
                let found = self
                    .digests
                    .find(key.hash, same_digest(key.namespace, digest));
                table(self.digests.allocation_size(), found.is_none())
            }
            Name::Id(id) => match self.ids.find(key.hash, same_id(key.namespace, id)) {
                Some(_) => 0,
                None => table(self.ids.allocation_size(), grows(&self.ids)) + id.len(),
            },
        }
    }

    /// Stores a claim, over whatever expired one stands there.
    pub(super) fn insert(
        &mut self,
        key: &Key<'_>,
        trace: T,
        record: &Record,
        expires_at_ms: u64,
        now_ms: u64,
        hasher: &DefaultHashBuilder,
    ) {
        let namespace = key.namespace;
        match key.name {
            Name::Digest(digest) => {
                let slot = DigestSlot::new(trace, namespace, digest, record, expires_at_ms);
                let rehash =
                    |slot: &DigestSlot<T>| hash_digest(slot.meta.namespace(), slot.digest, hasher);
                match self
                    .digests
                    .entry(key.hash, same_digest(namespace, digest), rehash)
                {
                    Entry::Occupied(mut entry) => {
                        self.expired += u64::from(!entry.get().meta.is_live(now_ms));
                        *entry.get_mut() = slot;
                    }
                    Entry::Vacant(entry) => {
                        entry.insert(slot);
                    }
                }
            }
            Name::Id(id) => {
                let meta = Meta::new(namespace, record, expires_at_ms);
                let nonce = u64::from_be_bytes(record.nonce.to_bytes());
                let content_hash = record.sighting.content_hash.unwrap_or(0);
                let rehash = |slot: &IdSlot| hash_id(slot.meta.namespace(), &slot.id, hasher);
                match self.ids.entry(key.hash, same_id(namespace, id), rehash) {
                    Entry::Occupied(mut entry) => {
                        let slot = entry.get_mut();
                        self.expired += u64::from(!slot.meta.is_live(now_ms));
                        (slot.meta, slot.nonce, slot.content_hash) = (meta, nonce, content_hash);
                    }
                    Entry::Vacant(entry) => {
                        self.id_bytes += id.len();
                        entry.insert(IdSlot {
                            id: id.into(),
                            meta,
                            nonce,
                            content_hash,
                        });
                    }
                }
            }
        }
    }

    /// Overwrites a claim that is there.
    pub(super) fn replace(&mut self, key: &Key<'_>, record: &Record, expires_at_ms: u64) {
        let meta = Meta::new(key.namespace, record, expires_at_ms);
        let nonce = u64::from_be_bytes(record.nonce.to_bytes());
        match key.name {
            Name::Digest(digest) => {
                if let Some(slot) = self
                    .digests
                    .find_mut(key.hash, same_digest(key.namespace, digest))
                {
                    *slot =
                        DigestSlot::new(slot.trace, key.namespace, digest, record, expires_at_ms);
                }
            }
            Name::Id(id) => {
                if let Some(slot) = self.ids.find_mut(key.hash, same_id(key.namespace, id)) {
                    slot.content_hash = record.sighting.content_hash.unwrap_or(0);
                    (slot.meta, slot.nonce) = (meta, nonce);
                }
            }
        }
    }

    pub(super) fn remove(&mut self, key: &Key<'_>) {
        match key.name {
            Name::Digest(digest) => {
                if let Ok(entry) = self
                    .digests
                    .find_entry(key.hash, same_digest(key.namespace, digest))
                {
                    entry.remove();
                }
            }
            Name::Id(id) => {
                if let Ok(entry) = self.ids.find_entry(key.hash, same_id(key.namespace, id)) {
                    self.id_bytes -= entry.remove().0.id.len();
                }
            }
        }
    }

    /// Counts a claim; now and then moves the hand. Neighbouring slots in one go cost a fraction of
    /// what the same number costs one by one, each time out of another cache line.
    pub(super) fn sweep_now_and_then(&mut self, now_ms: u64) {
        if self.claims_until_sweep > 0 {
            self.claims_until_sweep -= 1;
        } else {
            self.claims_until_sweep = CLAIMS_PER_SWEEP - 1;
            self.sweep(SLOTS_PER_CLAIM * CLAIMS_PER_SWEEP, now_ms);
        }
    }

    /// Moves the hand over `slots` slots and removes what expired there.
    pub(super) fn sweep(&mut self, slots: usize, now_ms: u64) {
        let total = self.slots();
        for _ in 0..slots.min(total) {
            self.hand = if self.hand + 1 < total {
                self.hand + 1
            } else {
                0
            };
            self.clear_if_expired(self.hand, now_ms);
        }
    }

    /// Removes all that expired, and shrinks tables that are nearly empty.
    pub(super) fn sweep_all(&mut self, now_ms: u64, hasher: &DefaultHashBuilder) {
        for slot in 0..self.slots() {
            self.clear_if_expired(slot, now_ms);
        }
        if self.digests.len() * 8 < self.digests.capacity() {
            let rehash =
                |slot: &DigestSlot<T>| hash_digest(slot.meta.namespace(), slot.digest, hasher);
            self.digests.shrink_to(self.digests.len() * 2, rehash);
        }
        if self.ids.len() * 8 < self.ids.capacity() {
            let rehash = |slot: &IdSlot| hash_id(slot.meta.namespace(), &slot.id, hasher);
            self.ids.shrink_to(self.ids.len() * 2, rehash);
        }
    }

    /// Slots are counted through the digests' table and then the ids'.
    pub(super) fn clear_if_expired(&mut self, slot: usize, now_ms: u64) {
        let expired = |meta: Meta| !meta.is_live(now_ms);
        let digests = self.digests.num_buckets();
        if slot < digests {
            if self
                .digests
                .get_bucket(slot)
                .is_some_and(|claim| expired(claim.meta))
                && let Ok(entry) = self.digests.get_bucket_entry(slot)
            {
                entry.remove();
                self.expired += 1;
            }
        } else if self
            .ids
            .get_bucket(slot - digests)
            .is_some_and(|claim| expired(claim.meta))
            && let Ok(entry) = self.ids.get_bucket_entry(slot - digests)
        {
            self.id_bytes -= entry.remove().0.id.len();
            self.expired += 1;
        }
    }

    /// Of both tables: the digests', then the ids'.
    pub(super) fn slots(&self) -> usize {
        self.digests.num_buckets() + self.ids.num_buckets()
    }
}

impl Shard<WholeKey> {
    /// The live claim in a slot.
    pub(super) fn live(&self, slot: usize, now_ms: u64) -> Option<InSlot<'_>> {
        let digests = self.digests.num_buckets();
        let (meta, partition, name, record) = if slot < digests {
            let slot = self.digests.get_bucket(slot)?;
            let name = slot.trace.name(slot.digest);
            (slot.meta, slot.trace.partition(), name, slot.record())
        } else {
            let slot = self.ids.get_bucket(slot - digests)?;
            let partition = Partition::of_id(&slot.id);
            (slot.meta, partition, KeyName::Id(&slot.id), slot.record())
        };
        meta.is_live(now_ms).then(|| InSlot {
            namespace: meta.namespace(),
            partition,
            name,
            record,
            expires_at_ms: meta.expires_at_ms(),
        })
    }
}

fn same_digest<T>(namespace: NamespaceId, digest: [u64; 2]) -> impl Fn(&DigestSlot<T>) -> bool {
    move |slot| slot.digest == digest && slot.meta.namespace() == namespace
}

fn same_id(namespace: NamespaceId, id: &[u8]) -> impl Fn(&IdSlot) -> bool {
    move |slot| *slot.id == *id && slot.meta.namespace() == namespace
}
