//! One of the embedded store's tables: a log of claims, and an index that says where the claims
//! under a hash lie in it.

use hashbrown::DefaultHashBuilder;
use smallvec::SmallVec;

use super::{
    index::{At, Index},
    key::Key,
    log::{Log, Place},
    words::{Claim, NewClaim},
};
use crate::domain::claim::{ClaimState, Nonce, Record};

/// Pieces that the hand passes over whenever one is full.
const PIECES_PER_SWEEP: usize = 4;
/// Pieces of which the rest is appended again whenever one is full.
const PIECES_PER_CLEANING: usize = 4;
/// And at a tick: less than a millisecond's work.
const PIECES_PER_TICK: usize = 32;

#[derive(Debug, Default)]
pub(super) struct Shard {
    index: Index,
    log: Log,
    /// The piece that the hand came to.
    hand: u64,
    expired: u64,
}

/// A claim that was found, until the table changes.
#[derive(Clone, Copy, Debug)]
pub(super) struct Seen {
    at: At,
    place: Place,
    is_live: bool,
}

impl Shard {
    /// Claims, those that expired and were not forgotten yet included.
    pub(super) const fn len(&self) -> usize {
        self.log.claims()
    }

    /// Claims that were forgotten because their time ran out.
    pub(super) const fn expired(&self) -> u64 {
        self.expired
    }

    /// What the index and the log take.
    pub(super) fn bytes(&self) -> usize {
        self.index.bytes() + self.log.bytes()
    }

    /// Brings what a look-up of the key begins with into the cache.
    pub(super) fn touch_index(&self, key: &Key<'_>) {
        self.index.touch(key.hash);
    }

    /// Brings the place of the next claim into the cache.
    pub(super) fn touch_end(&self) {
        self.log.touch_end();
    }

    /// Brings the claim under the key into the cache, once the index is there.
    pub(super) fn touch_claim(&self, key: &Key<'_>) {
        let likely = self.index.likely(key.hash);
        std::hint::black_box(likely.and_then(|place| Some(self.log.claim(place)?.meta())));
    }

    /// The claim under a key, expired or not.
    pub(super) fn find(&self, key: &Key<'_>, now_ms: u64) -> Option<Seen> {
        let is = |place| self.log.claim(place).is_some_and(|claim| claim.is(key));
        let is_current = |place| self.log.is_current(place);
        let (at, place) = self.index.find(key.hash, is_current, is)?;
        let is_live = self.log.claim(place)?.meta().is_live(now_ms);
        Some(Seen { at, place, is_live })
    }

    /// What stands there, if it has not expired.
    pub(super) fn record(&self, seen: Seen) -> Option<Record> {
        self.record_and_expiry(seen).map(|(record, _)| record)
    }

    pub(super) fn record_and_expiry(&self, seen: Seen) -> Option<(Record, u64)> {
        let claim = self.log.claim(seen.place).filter(|_| seen.is_live)?;
        Some((claim.record(), claim.meta().expires_at_ms()))
    }

    pub(super) fn get(&self, key: &Key<'_>, now_ms: u64) -> Option<Record> {
        self.record(self.find(key, now_ms)?)
    }

    /// The live claim under a key and when it expires.
    pub(super) fn get_with_expiry(&self, key: &Key<'_>, now_ms: u64) -> Option<(Record, u64)> {
        self.record_and_expiry(self.find(key, now_ms)?)
    }

    /// What another claim would allocate.
    pub(super) fn growth_bytes(&self, key: &Key<'_>, claim: &NewClaim<'_>, now_ms: u64) -> usize {
        let in_log = self.log.growth_bytes(claim.words(), now_ms);
        let in_index = if self.index.holds(self.len() + 1) {
            0
        } else {
            Index::bytes_of(self.index.grown(key.hash)) - self.index.bytes()
        };
        in_log + in_index
    }

    /// Writes over the live claim that was seen. Says no where it has other words.
    pub(super) fn overwrite(&mut self, seen: Seen, claim: &NewClaim<'_>) -> bool {
        // One that has expired would keep its piece, the others of which leave with it.
        seen.is_live && self.log.overwrite(seen.place, claim)
    }

    /// Stores a claim in place of the one that was seen under its key.
    pub(super) fn insert(
        &mut self,
        key: &Key<'_>,
        seen: Option<Seen>,
        claim: &NewClaim<'_>,
        now_ms: u64,
        hasher: &DefaultHashBuilder,
    ) {
        if let Some(seen) = seen {
            self.expired += u64::from(!seen.is_live);
            self.remove_seen(seen);
        }
        if !self.log.has_room(claim.words()) {
            self.make_room(claim.words(), now_ms, hasher);
        }
        let place = self.log.append(claim);
        self.enter(key.hash, place, hasher);
    }

    /// Overwrites the claim that is there by the same one in another state.
    pub(super) fn restate(&mut self, seen: Seen, holding: (ClaimState, Nonce), expires_at_ms: u64) {
        self.log.restate(seen.place, holding, expires_at_ms);
    }

    pub(super) fn remove(&mut self, key: &Key<'_>, now_ms: u64) {
        if let Some(seen) = self.find(key, now_ms) {
            self.remove_seen(seen);
        }
    }

    pub(super) fn remove_seen(&mut self, seen: Seen) {
        self.remove_at(seen.at, seen.place);
    }

    fn remove_at(&mut self, at: At, place: Place) {
        self.index.remove(at);
        self.log.remove(place);
    }

    /// Puts the latest claim of the log into the index.
    fn enter(&mut self, hash: u32, place: Place, hasher: &DefaultHashBuilder) {
        let Self { index, log, .. } = self;
        if !index.holds(log.claims()) || !index.insert(hash, place, |at| log.is_current(at)) {
            self.rebuild_index(self.index.grown(hash), hasher);
        }
    }

    fn rebuild_index(&mut self, buckets: usize, hasher: &DefaultHashBuilder) {
        let Self { index, log, .. } = self;
        *index = Index::with_buckets(buckets);
        for piece in log.pieces() {
            for (place, claim) in log.claims_of(piece, 0) {
                index.insert(claim.hash(hasher), place, |at| log.is_current(at));
            }
        }
    }

    /// A piece is full: also the time to look after the others, by a bounded amount.
    fn make_room(&mut self, words: usize, now_ms: u64, hasher: &DefaultHashBuilder) {
        let mut spare = None;
        if self.log.oldest_has_expired(now_ms) {
            spare = Some(self.drop_oldest());
        }
        self.sweep(PIECES_PER_SWEEP, now_ms, hasher);
        self.clean(PIECES_PER_CLEANING, now_ms, hasher);
        if !self.log.has_room(words) {
            self.log.grow(words, spare);
        }
    }

    /// Returns its memory.
    fn drop_oldest(&mut self) -> Box<[u64]> {
        let (expired, memory) = self.log.drop_oldest();
        self.expired += expired as u64;
        memory
    }

    /// Drops the oldest pieces that have expired, moves the hand over others and removes what
    /// expired there.
    pub(super) fn sweep(&mut self, pieces: usize, now_ms: u64, hasher: &DefaultHashBuilder) {
        while self.log.oldest_has_expired(now_ms) {
            self.drop_oldest();
        }
        let all = self.log.pieces();
        for _ in 0..pieces.min(all.end.saturating_sub(all.start) as usize) {
            let all = self.log.pieces();
            if !all.contains(&self.hand) {
                self.hand = all.start;
            }
            if self.log.is_to_be_swept(self.hand, now_ms) {
                self.sweep_piece(self.hand, now_ms, hasher);
            }
            self.hand += 1;
        }
    }

    /// Removes all that expired, and gives memory back that a table has much too much of.
    pub(super) fn sweep_all(&mut self, now_ms: u64, hasher: &DefaultHashBuilder) {
        self.sweep(usize::MAX, now_ms, hasher);
        self.clean(PIECES_PER_TICK, now_ms, hasher);
        if !self.index.holds(self.len())
            || Index::buckets_for(self.len() * 4) < self.index.buckets()
        {
            self.rebuild_index(Index::buckets_for(self.len() * 3 / 2), hasher);
        }
        self.log.shrink();
    }

    fn sweep_piece(&mut self, piece: u64, now_ms: u64, hasher: &DefaultHashBuilder) {
        let gone: SmallVec<[(u32, Place); 64]> = self
            .log
            .claims_of(piece, 0)
            .filter(|(_, claim)| !claim.meta().is_live(now_ms))
            .map(|(place, claim)| (claim.hash(hasher), place))
            .collect();
        for (hash, _) in &gone {
            self.index.touch(*hash);
        }
        for (hash, place) in &gone {
            self.forget(*hash, *place);
        }
        self.log.was_swept(piece);
    }

    fn forget(&mut self, hash: u32, place: Place) {
        if let Some(at) = self.entry(hash, place) {
            self.remove_at(at, place);
            self.expired += 1;
        }
    }

    fn entry(&self, hash: u32, place: Place) -> Option<At> {
        let is_current = |at| self.log.is_current(at);
        let found = self.index.find(hash, is_current, |at| at == place);
        found.map(|(at, _)| at)
    }

    /// Appends what is left of the oldest pieces again while the log is sparse: claims of a longer
    /// TTL among others, or what is left where most were released.
    fn clean(&mut self, pieces: usize, now_ms: u64, hasher: &DefaultHashBuilder) {
        for piece in self.log.pieces().take(pieces) {
            if !self.log.is_sparse() {
                return;
            }
            self.sweep_piece(piece, now_ms, hasher);
            let left: SmallVec<[Place; 64]> = self
                .log
                .claims_of(piece, 0)
                .map(|(place, _)| place)
                .collect();
            for place in left {
                self.append_again(place, hasher);
            }
        }
    }

    fn append_again(&mut self, place: Place, hasher: &DefaultHashBuilder) {
        let Some(claim) = self.log.claim(place) else {
            return;
        };
        let hash = claim.hash(hasher);
        let words: SmallVec<[u64; 16]> = claim.all().into();
        let Some(at) = self.entry(hash, place) else {
            return;
        };
        self.remove_at(at, place);
        if !self.log.has_room(words.len()) {
            self.log.grow(words.len(), None);
        }
        let place = self.log.append_again(&words);
        self.enter(hash, place, hasher);
    }

    /// Claims in the order of the log from `at` on, up to the piece that ends it. `read` says whether
    /// it took the claim; else the next walk begins there. Says whether the end was reached.
    pub(super) fn walk(&self, at: &mut Reach, mut read: impl FnMut(Claim<'_>) -> bool) -> bool {
        while at.piece < at.end {
            for (place, claim) in self.log.claims_of(at.piece, at.word) {
                if !read(claim) {
                    at.word = place.word();
                    return false;
                }
            }
            (at.piece, at.word) = (at.piece + 1, 0);
        }
        true
    }

    pub(super) fn reach(&self) -> Reach {
        let all = self.log.pieces();
        Reach {
            piece: all.start,
            word: 0,
            end: all.end,
        }
    }
}

#[cfg(test)]
impl Shard {
    pub(super) fn beginning_at(first_piece: u64) -> Self {
        Self {
            log: Log::beginning_at(first_piece),
            ..Self::default()
        }
    }
}

/// Where a walk over the log has come to, and where it ends.
#[derive(Clone, Copy, Debug)]
pub(super) struct Reach {
    piece: u64,
    word: usize,
    end: u64,
}
