//! The claims of one table, densely packed in three lists by what they keep.

use hashbrown::DefaultHashBuilder;

use super::{
    pieces::{PIECE_ITEMS, Pieces},
    shard::{Key, Name, hash_digest, hash_id},
    slot::{DigestSlot, IdSlot, Meta, Narrow, Wide},
    trace::{Trace, WholeKey},
    walk::InSlot,
};
use crate::domain::{
    claim::{Record, Sighting},
    key::{KeyName, Partition},
};

/// A list and a number in it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(u32);

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum List {
    Narrow = 0,
    Wide = 1,
    Ids = 2,
}

impl Place {
    const NUMBER_BITS: u32 = 30;

    /// A list of 2^30 slots would take 40 GiB of one table in 4,096.
    fn new(list: List, number: usize) -> Self {
        debug_assert!(number < 1 << Self::NUMBER_BITS);
        Self((list as u32) << Self::NUMBER_BITS | number as u32)
    }

    pub(super) const fn offset(self, by: usize) -> Self {
        Self(self.0 + by as u32)
    }

    const fn list(self) -> List {
        match self.0 >> Self::NUMBER_BITS {
            0 => List::Narrow,
            1 => List::Wide,
            _ => List::Ids,
        }
    }

    const fn number(self) -> usize {
        (self.0 & ((1 << Self::NUMBER_BITS) - 1)) as usize
    }
}

#[derive(Debug)]
pub(super) struct Slots<T> {
    narrow: Pieces<Narrow<T>>,
    wide: Pieces<Wide<T>>,
    ids: Pieces<IdSlot>,
    id_bytes: usize,
}

impl<T> Default for Slots<T> {
    fn default() -> Self {
        Self {
            narrow: Pieces::default(),
            wide: Pieces::default(),
            ids: Pieces::default(),
            id_bytes: 0,
        }
    }
}

/// The list that a record belongs to.
const fn list_for(name: &Name<'_>, sighting: &Sighting) -> List {
    let Sighting {
        time: _,
        latest,
        content_hash,
        position,
    } = sighting;
    match name {
        Name::Id(_) => List::Ids,
        Name::Digest(_) if latest.is_some() || content_hash.is_some() || position.is_some() => {
            List::Wide
        }
        Name::Digest(_) => List::Narrow,
    }
}

impl<T: Trace> Slots<T> {
    pub(super) fn len(&self) -> usize {
        self.narrow.len() + self.wide.len() + self.ids.len()
    }

    /// What the lists and the ids take.
    pub(super) fn bytes(&self) -> usize {
        self.narrow.bytes() + self.wide.bytes() + self.ids.bytes() + self.id_bytes
    }

    /// What another claim would allocate.
    pub(super) fn growth_bytes(&self, key: &Key<'_>, record: &Record) -> usize {
        match list_for(&key.name, &record.sighting) {
            List::Narrow => self.narrow.growth_bytes(),
            List::Wide => self.wide.growth_bytes(),
            List::Ids => self.ids.growth_bytes() + key.id_bytes(),
        }
    }

    fn lens(&self) -> [(List, usize); 3] {
        [
            (List::Narrow, self.narrow.len()),
            (List::Wide, self.wide.len()),
            (List::Ids, self.ids.len()),
        ]
    }

    /// The how-many-th of all: the narrow ones, the wide ones, the ids.
    pub(super) fn place(&self, number: usize) -> Option<Place> {
        let mut number = number;
        for (list, len) in self.lens() {
            if number < len {
                return Some(Place::new(list, number));
            }
            number -= len;
        }
        None
    }

    pub(super) fn pieces(&self) -> usize {
        self.narrow.pieces() + self.wide.pieces() + self.ids.pieces()
    }

    /// Where a piece of them begins, and how many it has.
    pub(super) fn piece(&self, piece: usize) -> Option<(Place, usize)> {
        let mut first = piece * PIECE_ITEMS;
        for (list, len) in self.lens() {
            if first < len {
                return Some((Place::new(list, first), (len - first).min(PIECE_ITEMS)));
            }
            first -= len.next_multiple_of(PIECE_ITEMS);
        }
        None
    }

    /// May a claim of this one's piece have expired?
    pub(super) fn may_have_expired(&self, place: Place, now_ms: u64) -> bool {
        match place.list() {
            List::Narrow => self.narrow.may_have_expired(place.number(), now_ms),
            List::Wide => self.wide.may_have_expired(place.number(), now_ms),
            List::Ids => self.ids.may_have_expired(place.number(), now_ms),
        }
    }

    /// After all that expired in this one's piece was removed.
    pub(super) fn was_swept(&mut self, place: Place) {
        match place.list() {
            List::Narrow => self.narrow.was_swept(place.number()),
            List::Wide => self.wide.was_swept(place.number()),
            List::Ids => self.ids.was_swept(place.number()),
        }
    }

    pub(super) fn is(&self, place: Place, key: &Key<'_>) -> bool {
        let number = place.number();
        match (place.list(), key.name) {
            (List::Narrow, Name::Digest(digest)) => self.narrow[number].is(key.namespace, digest),
            (List::Wide, Name::Digest(digest)) => self.wide[number].is(key.namespace, digest),
            (List::Ids, Name::Id(id)) => self.ids[number].is(key.namespace, id),
            (List::Narrow | List::Wide, Name::Id(_)) | (List::Ids, Name::Digest(_)) => false,
        }
    }

    pub(super) fn meta(&self, place: Place) -> Meta {
        match place.list() {
            List::Narrow => self.narrow[place.number()].meta,
            List::Wide => self.wide[place.number()].meta,
            List::Ids => self.ids[place.number()].meta,
        }
    }

    pub(super) fn record(&self, place: Place) -> Record {
        match place.list() {
            List::Narrow => self.narrow[place.number()].record(),
            List::Wide => self.wide[place.number()].record(),
            List::Ids => self.ids[place.number()].record(),
        }
    }

    /// Of the key that the claim stands under.
    pub(super) fn hash(&self, place: Place, hasher: &DefaultHashBuilder) -> u64 {
        fn of<T, D>(slot: &DigestSlot<T, D>, hasher: &DefaultHashBuilder) -> u64 {
            hash_digest(slot.meta.namespace(), slot.digest, hasher)
        }
        match place.list() {
            List::Narrow => of(&self.narrow[place.number()], hasher),
            List::Wide => of(&self.wide[place.number()], hasher),
            List::Ids => {
                let slot = &self.ids[place.number()];
                hash_id(slot.meta.namespace(), &slot.id, hasher)
            }
        }
    }

    pub(super) fn add(
        &mut self,
        key: &Key<'_>,
        trace: T,
        record: &Record,
        expires_at_ms: u64,
    ) -> Place {
        let (namespace, name) = (key.namespace, &key.name);
        let list = list_for(name, &record.sighting);
        let number = match *name {
            Name::Digest(digest) if list == List::Narrow => self.narrow.push(DigestSlot::new(
                trace,
                namespace,
                digest,
                record,
                expires_at_ms,
            )),
            Name::Digest(digest) => self.wide.push(DigestSlot::new(
                trace,
                namespace,
                digest,
                record,
                expires_at_ms,
            )),
            Name::Id(id) => {
                self.id_bytes += id.len();
                let slot = IdSlot::new(namespace, id, record, expires_at_ms);
                self.ids.push(slot)
            }
        };
        Place::new(list, number)
    }

    /// Writes over the claim there. Says no where the record does not belong into its list.
    pub(super) fn overwrite(
        &mut self,
        place: Place,
        key: &Key<'_>,
        trace: T,
        record: &Record,
        expires_at_ms: u64,
    ) -> bool {
        let list = place.list();
        if list_for(&key.name, &record.sighting) != list {
            return false;
        }
        let number = place.number();
        match key.name {
            Name::Digest(digest) if list == List::Narrow => self.narrow.change(number, |slot| {
                *slot = DigestSlot::new(trace, key.namespace, digest, record, expires_at_ms);
            }),
            Name::Digest(digest) => self.wide.change(number, |slot| {
                *slot = DigestSlot::new(trace, key.namespace, digest, record, expires_at_ms);
            }),
            Name::Id(_) => {
                let overwrite = |slot: &mut IdSlot| slot.overwrite(record, expires_at_ms);
                self.ids.change(number, overwrite);
            }
        }
        true
    }

    /// The claim there is another's, or in another state; the sighting stays.
    pub(super) fn restate(&mut self, place: Place, record: &Record, expires_at_ms: u64) {
        let number = place.number();
        match place.list() {
            List::Narrow => {
                let restate = |slot: &mut Narrow<T>| slot.restate(record, expires_at_ms);
                self.narrow.change(number, restate);
            }
            List::Wide => {
                let restate = |slot: &mut Wide<T>| slot.restate(record, expires_at_ms);
                self.wide.change(number, restate);
            }
            List::Ids => {
                let restate = |slot: &mut IdSlot| slot.overwrite(record, expires_at_ms);
                self.ids.change(number, restate);
            }
        }
    }

    /// Removes a claim. The last of its list takes its place; says where that one was.
    pub(super) fn remove(&mut self, place: Place) -> Option<Place> {
        let number = place.number();
        let last = match place.list() {
            List::Narrow => {
                self.narrow.swap_remove(number);
                self.narrow.len()
            }
            List::Wide => {
                self.wide.swap_remove(number);
                self.wide.len()
            }
            List::Ids => {
                self.id_bytes -= self.ids.swap_remove(number).id.len();
                self.ids.len()
            }
        };
        (last != number).then(|| Place::new(place.list(), last))
    }

    pub(super) fn shrink(&mut self) {
        self.narrow.shrink();
        self.wide.shrink();
        self.ids.shrink();
    }
}

impl Slots<WholeKey> {
    pub(super) fn whole(&self, place: Place) -> InSlot<'_> {
        let of = |trace: WholeKey, digest| (trace.partition(), trace.name(digest));
        let number = place.number();
        let (partition, name) = match place.list() {
            List::Narrow => of(self.narrow[number].trace, self.narrow[number].digest),
            List::Wide => of(self.wide[number].trace, self.wide[number].digest),
            List::Ids => {
                let id = &self.ids[number].id;
                (Partition::of_id(id), KeyName::Id(id))
            }
        };
        let meta = self.meta(place);
        InSlot {
            namespace: meta.namespace(),
            partition,
            name,
            record: self.record(place),
            expires_at_ms: meta.expires_at_ms(),
        }
    }
}
