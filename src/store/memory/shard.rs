//! One of the embedded store's tables: where the claims under each key lie.
//!
//! The table itself holds four bytes for each claim, the place of its slot; slots lie densely in
//! lists that grow without being moved. A table that doubles, or is half empty, costs little this way.

use std::hash::BuildHasher;

use hashbrown::{DefaultHashBuilder, HashTable};

use super::{
    pieces::PIECE_ITEMS,
    slots::{Place, Slots},
    trace::{Trace, WholeKey},
    walk::InSlot,
};
use crate::{
    domain::{claim::Record, key::KeyName},
    store::NamespaceId,
};

/// The hand moves over a piece of the slots in so many claims: a pass takes a quarter as many claims
/// as the table holds.
const CLAIMS_PER_SWEEP: usize = PIECE_ITEMS / 4;

/// A key with its hash, which is seeded at random so that nobody can choose ids that collide.
#[derive(Clone, Copy, Debug)]
pub(super) struct Key<'a> {
    pub(super) namespace: NamespaceId,
    pub(super) name: Name<'a>,
    hash: u64,
}

#[derive(Clone, Copy, Debug)]
pub(super) enum Name<'a> {
    Digest([u64; 2]),
    Id(&'a [u8]),
}

impl<'a> Key<'a> {
    pub(super) fn new(
        namespace: NamespaceId,
        name: KeyName<'a>,
        hasher: &DefaultHashBuilder,
    ) -> Self {
        let (name, hash) = match name {
            KeyName::Decimal(digest) | KeyName::Hex(digest) => {
                let digest = [(digest >> 64) as u64, digest as u64];
                (Name::Digest(digest), hash_digest(namespace, digest, hasher))
            }
            KeyName::Id(id) => (Name::Id(id), hash_id(namespace, id, hasher)),
        };
        Self {
            namespace,
            name,
            hash,
        }
    }

    pub(super) const fn id_bytes(&self) -> usize {
        match self.name {
            Name::Digest(_) => 0,
            Name::Id(id) => id.len(),
        }
    }
}

pub(super) fn hash_digest(
    namespace: NamespaceId,
    digest: [u64; 2],
    hasher: &DefaultHashBuilder,
) -> u64 {
    // Two words, without the length that an array's hash begins with.
    hasher.hash_one((digest[0] ^ u64::from(namespace.0), digest[1]))
}

pub(super) fn hash_id(namespace: NamespaceId, id: &[u8], hasher: &DefaultHashBuilder) -> u64 {
    hasher.hash_one((namespace, id))
}

#[derive(Debug)]
pub(super) struct Shard<T> {
    index: HashTable<Place>,
    slots: Slots<T>,
    hand: usize,
    claims_until_sweep: usize,
    expired: u64,
}

impl<T> Default for Shard<T> {
    fn default() -> Self {
        Self {
            index: HashTable::new(),
            slots: Slots::default(),
            hand: 0,
            claims_until_sweep: 0,
            expired: 0,
        }
    }
}

impl<T: Trace> Shard<T> {
    /// Claims, those that expired and were not forgotten yet included.
    pub(super) fn len(&self) -> usize {
        self.slots.len()
    }

    /// Claims that were forgotten because their time ran out.
    pub(super) fn expired(&self) -> u64 {
        self.expired
    }

    /// What the table, the slots and the ids take. Asked at every claim, and so from the table's
    /// size: what `allocation_size` computes takes longer.
    pub(super) fn bytes(&self) -> usize {
        const CONTROL_BYTES: usize = 1;
        let buckets = if self.index.capacity() == 0 {
            0
        } else {
            self.index.num_buckets()
        };
        buckets * (size_of::<Place>() + CONTROL_BYTES) + self.slots.bytes()
    }

    fn find(&self, key: &Key<'_>) -> Option<Place> {
        let is = |place: &Place| self.slots.is(*place, key);
        self.index.find(key.hash, is).copied()
    }

    /// Brings what a look-up of the key will read into the cache, so that the misses of several
    /// keys overlap.
    pub(super) fn touch(&self, key: &Key<'_>) {
        let found = self.index.find(key.hash, |_| true);
        std::hint::black_box(found.map(|place| self.slots.meta(*place)));
    }

    pub(super) fn get(&self, key: &Key<'_>, now_ms: u64) -> Option<Record> {
        self.get_with_expiry(key, now_ms).map(|(record, _)| record)
    }

    /// The live claim under a key and when it expires.
    pub(super) fn get_with_expiry(&self, key: &Key<'_>, now_ms: u64) -> Option<(Record, u64)> {
        let place = self.find(key)?;
        let meta = self.slots.meta(place);
        meta.is_live(now_ms)
            .then(|| (self.slots.record(place), meta.expires_at_ms()))
    }

    /// What storing the record under the key would allocate; little where a claim stands already.
    pub(super) fn growth_bytes(&self, key: &Key<'_>, record: &Record) -> usize {
        const FIRST_TABLE_BYTES: usize = 64;
        let in_slots = self.slots.growth_bytes(key, record);
        let (len, buckets) = (self.index.len(), self.index.num_buckets());
        // Full, and not just of tombstones, which are cleared in place.
        let index_grows = len == self.index.capacity() && (len + 1) * 16 > buckets * 7;
        if in_slots == 0 && !index_grows {
            return 0;
        }
        if self.find(key).is_some() {
            return 0;
        }
        let in_index = if index_grows {
            self.index.allocation_size().max(FIRST_TABLE_BYTES)
        } else {
            0
        };
        in_slots + in_index
    }

    /// Stores a claim, over whatever stands there.
    pub(super) fn insert(
        &mut self,
        key: &Key<'_>,
        trace: T,
        record: &Record,
        expires_at_ms: u64,
        now_ms: u64,
        hasher: &DefaultHashBuilder,
    ) {
        if let Some(place) = self.find(key) {
            self.expired += u64::from(!self.slots.meta(place).is_live(now_ms));
            if self
                .slots
                .overwrite(place, key, trace, record, expires_at_ms)
            {
                return;
            }
            self.remove_at(place, hasher);
        }
        let place = self.slots.add(key, trace, record, expires_at_ms);
        let Self { index, slots, .. } = self;
        index.insert_unique(key.hash, place, |place| slots.hash(*place, hasher));
    }

    /// Overwrites the claim that is there by the same one in another state.
    pub(super) fn replace(&mut self, key: &Key<'_>, record: &Record, expires_at_ms: u64) {
        if let Some(place) = self.find(key) {
            self.slots.restate(place, record, expires_at_ms);
        }
    }

    pub(super) fn remove(&mut self, key: &Key<'_>, hasher: &DefaultHashBuilder) {
        if let Some(place) = self.find(key) {
            self.remove_at(place, hasher);
        }
    }

    fn remove_at(&mut self, place: Place, hasher: &DefaultHashBuilder) {
        let hash = self.slots.hash(place, hasher);
        if let Ok(entry) = self.index.find_entry(hash, |at| *at == place) {
            entry.remove();
        }
        if let Some(moved_from) = self.slots.remove(place) {
            let hash = self.slots.hash(place, hasher);
            if let Some(at) = self.index.find_mut(hash, |at| *at == moved_from) {
                *at = place;
            }
        }
    }

    /// Counts a claim; now and then moves the hand on.
    pub(super) fn sweep_now_and_then(&mut self, now_ms: u64, hasher: &DefaultHashBuilder) {
        if self.claims_until_sweep > 0 {
            self.claims_until_sweep -= 1;
        } else {
            self.claims_until_sweep = CLAIMS_PER_SWEEP - 1;
            self.sweep(1, now_ms, hasher);
        }
    }

    /// Moves the hand over pieces of the slots, downwards, and removes what expired there.
    pub(super) fn sweep(&mut self, pieces: usize, now_ms: u64, hasher: &DefaultHashBuilder) {
        for _ in 0..pieces.min(self.slots.pieces()) {
            if self.hand == 0 || self.hand > self.slots.pieces() {
                self.hand = self.slots.pieces();
            }
            self.hand = self.hand.saturating_sub(1);
            self.sweep_piece(self.hand, now_ms, hasher);
        }
    }

    /// Removes all that expired, and gives memory back that a table has much too much of.
    pub(super) fn sweep_all(&mut self, now_ms: u64, hasher: &DefaultHashBuilder) {
        // Downwards: what moves into a place that becomes free has been looked at.
        for piece in (0..self.slots.pieces()).rev() {
            self.sweep_piece(piece, now_ms, hasher);
        }
        let Self { index, slots, .. } = self;
        if index.len() * 8 < index.capacity() {
            index.shrink_to(index.len() * 2, |place| slots.hash(*place, hasher));
        }
        slots.shrink();
    }

    fn sweep_piece(&mut self, piece: usize, now_ms: u64, hasher: &DefaultHashBuilder) {
        let Some((first, len)) = self.slots.piece(piece) else {
            return;
        };
        if !self.slots.may_have_expired(first, now_ms) {
            return;
        }
        for number in (0..len).rev() {
            let place = first.offset(number);
            if !self.slots.meta(place).is_live(now_ms) {
                self.remove_at(place, hasher);
                self.expired += 1;
            }
        }
        self.slots.was_swept(first);
    }

    /// Slots are numbered through all lists.
    pub(super) fn clear_if_expired(
        &mut self,
        number: usize,
        now_ms: u64,
        hasher: &DefaultHashBuilder,
    ) {
        let place = self.slots.place(number);
        if let Some(place) = place.filter(|place| !self.slots.meta(*place).is_live(now_ms)) {
            self.remove_at(place, hasher);
            self.expired += 1;
        }
    }
}

impl Shard<WholeKey> {
    /// The live claim in a slot.
    pub(super) fn live(&self, number: usize, now_ms: u64) -> Option<InSlot<'_>> {
        let place = self.slots.place(number)?;
        self.slots
            .meta(place)
            .is_live(now_ms)
            .then(|| self.slots.whole(place))
    }
}
