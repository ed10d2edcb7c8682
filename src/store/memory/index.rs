//! Where the claims under a hash lie.
//!
//! A bucket is one cache line, and nearly every look-up reads one. An entry is not deleted when its
//! claim has expired with the oldest of the log: it is out of date as soon as the log begins after
//! its place, and the next claim that comes by takes it.

use super::log::Place;

const ENTRIES: usize = 12;
/// Of twelve, in the mean. More, and many buckets overflow.
const FULL: usize = 10;

#[derive(Debug, Default)]
pub(super) struct Index {
    buckets: Vec<Bucket>,
}

#[derive(Clone, Debug)]
#[repr(C, align(64))]
struct Bucket {
    places: [Place; ENTRIES],
    /// The latest claim that found no room here and is in a bucket behind.
    overflow: Place,
    tags: [u8; ENTRIES],
}

const _: () = assert!(size_of::<Bucket>() == 64);

impl Bucket {
    const EMPTY: Self = Self {
        places: [Place::NONE; ENTRIES],
        overflow: Place::NONE,
        tags: [0; ENTRIES],
    };

    /// The entries that have the tag, and now and then one that has another.
    fn tagged(&self, tag: u8) -> impl Iterator<Item = usize> {
        /// Has the high bit of each byte that is zero; perhaps, that of a byte of 1 above one.
        const fn zero_bytes(word: u64) -> u64 {
            word.wrapping_sub(0x0101_0101_0101_0101) & !word & 0x8080_8080_8080_8080
        }
        // As words, which a processor has loaded at once.
        let (low, high) = self.tags.split_at(8);
        let (low, high) = (
            low.try_into().map_or(0, u64::from_le_bytes),
            high.try_into().map_or(0, u32::from_le_bytes),
        );
        let pattern = u64::from(tag) * 0x0101_0101_0101_0101;
        let low = zero_bytes(low ^ pattern);
        let high = zero_bytes(u64::from(high) ^ pattern >> 32);
        // Four bytes of the upper word are no entries.
        let mut found = u128::from(low) | u128::from(high & 0xFFFF_FFFF) << 64;
        std::iter::from_fn(move || {
            let entry = (found != 0).then(|| found.trailing_zeros() as usize / 8)?;
            found &= found - 1;
            Some(entry)
        })
    }
}

/// An entry, until the index changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct At {
    bucket: usize,
    entry: usize,
}

impl Index {
    pub(super) fn with_buckets(buckets: usize) -> Self {
        Self {
            buckets: vec![Bucket::EMPTY; buckets],
        }
    }

    pub(super) const fn buckets(&self) -> usize {
        self.buckets.len()
    }

    pub(super) const fn bytes(&self) -> usize {
        Self::bytes_of(self.buckets.len())
    }

    pub(super) const fn bytes_of(buckets: usize) -> usize {
        buckets * size_of::<Bucket>()
    }

    /// Has it room for so many claims?
    pub(super) const fn holds(&self, claims: usize) -> bool {
        claims <= self.buckets.len() * FULL
    }

    /// Buckets of an index that has become too small for a claim: by a quarter to three quarters
    /// more, since many tables of one size would else all grow at the same time.
    pub(super) const fn grown(&self, hash: u32) -> usize {
        let buckets = self.buckets.len();
        buckets + buckets / 4 + hash as usize % (buckets / 2 + 1) + 1
    }

    pub(super) const fn buckets_for(claims: usize) -> usize {
        claims.div_ceil(FULL)
    }

    const fn home(&self, hash: u32) -> usize {
        ((hash as u64 * self.buckets.len() as u64) >> 32) as usize
    }

    const fn behind(&self, bucket: usize) -> usize {
        if bucket + 1 < self.buckets.len() {
            bucket + 1
        } else {
            0
        }
    }

    /// Brings the bucket into the cache.
    pub(super) fn touch(&self, hash: u32) {
        std::hint::black_box(self.buckets.get(self.home(hash)).map(|home| home.overflow));
    }

    /// A place in the hash's own bucket that may be the sought one.
    pub(super) fn likely(&self, hash: u32) -> Option<Place> {
        let home = self.buckets.get(self.home(hash))?;
        let entry = home.tagged(hash as u8).next()?;
        Some(home.places[entry])
    }

    /// The entry whose place `is` the sought one. `is_current` tells of a place whether the log has
    /// it still.
    pub(super) fn find(
        &self,
        hash: u32,
        is_current: impl Fn(Place) -> bool,
        is: impl Fn(Place) -> bool,
    ) -> Option<(At, Place)> {
        let mut bucket = self.home(hash);
        for _ in 0..self.buckets.len() {
            let Bucket {
                places, overflow, ..
            } = &self.buckets[bucket];
            for entry in self.buckets[bucket].tagged(hash as u8) {
                if is(places[entry]) {
                    return Some((At { bucket, entry }, places[entry]));
                }
            }
            if !is_current(*overflow) {
                return None;
            }
            bucket = self.behind(bucket);
        }
        None
    }

    /// Says no where every entry is taken. The place is later than all others.
    pub(super) fn insert(
        &mut self,
        hash: u32,
        place: Place,
        is_current: impl Fn(Place) -> bool,
    ) -> bool {
        let mut bucket = self.home(hash);
        for _ in 0..self.buckets.len() {
            let Bucket {
                places,
                overflow,
                tags,
            } = &mut self.buckets[bucket];
            if let Some(entry) = places.iter().position(|place| !is_current(*place)) {
                places[entry] = place;
                tags[entry] = hash as u8;
                return true;
            }
            *overflow = place;
            bucket = self.behind(bucket);
        }
        false
    }

    pub(super) fn remove(&mut self, at: At) {
        self.buckets[at.bucket].places[at.entry] = Place::NONE;
    }
}
