//! The claims of one table in the order in which they were made.
//!
//! They lie in pieces that are filled one after the other. Nothing in a piece is moved: claims with
//! one TTL expire in the order of the log, and then the oldest piece leaves as a whole, without a
//! look at what is in it. A claim that leaves before its piece is marked; where too much is marked
//! the table appends what is left of the oldest piece again ([`super::shard`]).

use std::collections::VecDeque;

use super::words::{self, Claim, NewClaim};
use crate::domain::claim::{ClaimState, Nonce};

/// 51 transitions. A place has eight bits for a word of a piece.
pub(super) const PIECE_WORDS: usize = 256;
/// Of the first piece of a small table, which grows to a whole one.
const MIN_PIECE_WORDS: usize = 16;
const WORD_BYTES: usize = size_of::<u64>();
/// For so long a claim that has expired may wait for the rest of its piece.
const LEAVES_SOON_MS: u64 = 1_000;

/// Where a claim begins: the low bits of its piece's number, and a word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Place(u32);

impl Place {
    /// No claim is so short that it begins at the last word.
    pub(super) const NONE: Self = Self(u32::MAX);
    const WORD_BITS: u32 = 8;
    const PIECES: u64 = 1 << (u32::BITS - Self::WORD_BITS);

    const fn new(piece: u64, word: usize) -> Self {
        Self((piece as u32) << Self::WORD_BITS | word as u32)
    }

    pub(super) const fn word(self) -> usize {
        self.0 as usize % PIECE_WORDS
    }
}

#[derive(Debug, Default)]
pub(super) struct Log {
    pieces: VecDeque<Piece>,
    /// The number of the oldest piece. Places know the low bits of it, so that after 2^24 pieces an
    /// index may have entries that seem to be current: nothing but the claim itself says whose it is.
    first: u64,
    claims: usize,
    allocated_words: usize,
    removed_words: usize,
    /// Pieces behind the oldest that have no claims, and no memory.
    empty_pieces: usize,
}

#[derive(Debug)]
struct Piece {
    /// All of them are there from the beginning, so that the next claim's can be brought into the
    /// cache.
    words: Box<[u64]>,
    used_words: u16,
    claims: u16,
    removed_words: u16,
    /// No claim expires before.
    expires_from_ms: u64,
    /// No claim expires later.
    expires_until_ms: u64,
}

impl Piece {
    const fn new(words: Box<[u64]>) -> Self {
        Self {
            words,
            used_words: 0,
            claims: 0,
            removed_words: 0,
            expires_from_ms: u64::MAX,
            expires_until_ms: 0,
        }
    }

    const fn has_room(&self, words: usize) -> bool {
        self.used_words as usize + words <= self.words.len()
    }

    fn used(&self) -> &[u64] {
        &self.words[..self.used_words as usize]
    }

    fn keeps_until(&mut self, expires_at_ms: u64) {
        self.expires_from_ms = self.expires_from_ms.min(expires_at_ms);
        self.expires_until_ms = self.expires_until_ms.max(expires_at_ms);
    }
}

impl Log {
    pub(super) const fn claims(&self) -> usize {
        self.claims
    }

    pub(super) fn bytes(&self) -> usize {
        self.allocated_words * WORD_BYTES + self.pieces.capacity() * size_of::<Piece>()
    }

    /// The numbers of its pieces.
    pub(super) fn pieces(&self) -> std::ops::Range<u64> {
        self.first..self.first + self.pieces.len() as u64
    }

    const fn number(&self, place: Place) -> usize {
        let low = (place.0 >> Place::WORD_BITS) as u64;
        (low.wrapping_sub(self.first) % Place::PIECES) as usize
    }

    /// Whether the log has a piece there.
    pub(super) fn is_current(&self, place: Place) -> bool {
        place != Place::NONE && self.number(place) < self.pieces.len()
    }

    pub(super) fn claim(&self, place: Place) -> Option<Claim<'_>> {
        let words = self.pieces.get(self.number(place))?.used();
        let words = words
            .get(place.word()..)
            .filter(|words| !words.is_empty())?;
        Some(Claim::at(words))
    }

    /// Brings the place of the next claim into the cache.
    pub(super) fn touch_end(&self) {
        const FIRST_AND_LAST: [usize; 2] = [0, 7];
        if let Some(piece) = self.pieces.back() {
            let next = FIRST_AND_LAST.map(|word| piece.words.get(piece.used_words as usize + word));
            std::hint::black_box(next.map(|word| word.copied()));
        }
    }

    /// What a claim of so many words would allocate.
    pub(super) fn growth_bytes(&self, words: usize, now_ms: u64) -> usize {
        let Some(last) = self.pieces.back() else {
            return first_capacity(words) * WORD_BYTES + size_of::<Piece>();
        };
        if last.has_room(words) {
            return 0;
        }
        if let Some(capacity) = self.grown_first(words) {
            return (capacity - last.words.len()) * WORD_BYTES;
        }
        if self.oldest_has_expired(now_ms) {
            return 0;
        }
        let in_list = if self.pieces.len() == self.pieces.capacity() {
            list_growth(self.pieces.len()) * size_of::<Piece>()
        } else {
            0
        };
        PIECE_WORDS.max(words) * WORD_BYTES + in_list
    }

    /// The new capacity of the only piece, where it is to grow.
    fn grown_first(&self, words: usize) -> Option<usize> {
        let piece = self.pieces.back().filter(|_| self.pieces.len() == 1)?;
        let capacity = first_capacity(piece.used_words as usize + words);
        (capacity <= PIECE_WORDS && !piece.words.is_empty()).then_some(capacity)
    }

    pub(super) fn has_room(&self, words: usize) -> bool {
        self.pieces
            .back()
            .is_some_and(|piece| piece.has_room(words))
    }

    /// Makes room for so many words, in `spare` if that is a whole piece.
    pub(super) fn grow(&mut self, words: usize, spare: Option<Box<[u64]>>) {
        if let Some(capacity) = self.grown_first(words) {
            let piece = &mut self.pieces[0];
            let mut memory = zeros(capacity);
            memory[..piece.words.len()].copy_from_slice(&piece.words);
            self.allocated_words += capacity - piece.words.len();
            piece.words = memory;
            return;
        }
        let capacity = if self.pieces.is_empty() {
            first_capacity(words)
        } else {
            PIECE_WORDS.max(words)
        };
        let spare = spare.filter(|spare| spare.len() >= capacity);
        let memory = spare.unwrap_or_else(|| zeros(capacity));
        self.allocated_words += memory.len();
        self.push(memory);
    }

    /// Appends a claim, for which there is room.
    pub(super) fn append(&mut self, claim: &NewClaim<'_>) -> Place {
        let expires_at_ms = claim.meta().expires_at_ms();
        self.append_with(claim.words(), expires_at_ms, |words| claim.write_to(words))
    }

    /// Appends a claim that was in the log before, for which there is room.
    pub(super) fn append_again(&mut self, claim: &[u64]) -> Place {
        let expires_at_ms = Claim::at(claim).meta().expires_at_ms();
        self.append_with(claim.len(), expires_at_ms, |words| {
            words.copy_from_slice(claim)
        })
    }

    /// # Panics
    ///
    /// If there is no room.
    fn append_with(
        &mut self,
        words: usize,
        expires_at_ms: u64,
        write: impl FnOnce(&mut [u64]),
    ) -> Place {
        let number = self.first + self.pieces.len() as u64 - 1;
        let piece = self.pieces.back_mut().expect("a piece with room");
        let first = piece.used_words as usize;
        write(&mut piece.words[first..first + words]);
        piece.used_words += words as u16;
        piece.claims += 1;
        piece.keeps_until(expires_at_ms);
        self.claims += 1;
        Place::new(number, first)
    }

    /// Writes over a claim with the same key. Says no where the new one has other words.
    pub(super) fn overwrite(&mut self, place: Place, claim: &NewClaim<'_>) -> bool {
        let number = self.number(place);
        let piece = &mut self.pieces[number];
        let words = &mut piece.words[place.word()..];
        let fits = claim.fits(words);
        if fits {
            claim.write_to(&mut words[..claim.words()]);
            piece.keeps_until(claim.meta().expires_at_ms());
        }
        fits
    }

    /// The claim there is another's, or in another state; the sighting stays.
    pub(super) fn restate(
        &mut self,
        place: Place,
        (state, nonce): (ClaimState, Nonce),
        expires_at_ms: u64,
    ) {
        let number = self.number(place);
        let piece = &mut self.pieces[number];
        words::restate(
            &mut piece.words[place.word()..],
            state,
            nonce,
            expires_at_ms,
        );
        piece.keeps_until(expires_at_ms);
    }

    /// Marks a claim as removed; a piece without claims loses its memory, save the last one.
    pub(super) fn remove(&mut self, place: Place) {
        let number = self.number(place);
        let piece = &mut self.pieces[number];
        let words = &mut piece.words[place.word()..];
        let removed_words = Claim::at(words).words();
        words::mark_removed(words);
        piece.claims -= 1;
        piece.removed_words += removed_words as u16;
        self.claims -= 1;
        self.removed_words += removed_words;
        if piece.claims == 0 {
            let Piece {
                words: memory,
                removed_words,
                ..
            } = std::mem::replace(piece, Piece::new(Box::default()));
            self.removed_words -= removed_words as usize;
            self.empty_pieces += 1;
            if number + 1 == self.pieces.len() {
                // A claim that is made and removed, over and over, allocates nothing. Under a new
                // number, since a place is never used again.
                self.push(memory);
            } else {
                self.allocated_words -= memory.len();
            }
            self.drop_empty();
        }
    }

    fn push(&mut self, memory: Box<[u64]>) {
        if self.pieces.len() == self.pieces.capacity() {
            self.pieces.reserve_exact(list_growth(self.pieces.len()));
        }
        self.pieces.push_back(Piece::new(memory));
    }

    fn drop_empty(&mut self) {
        while let Some(oldest) = self.pieces.front()
            && oldest.words.is_empty()
        {
            self.pieces.pop_front();
            self.first += 1;
            self.empty_pieces -= 1;
        }
    }

    pub(super) fn oldest_has_expired(&self, now_ms: u64) -> bool {
        self.pieces
            .front()
            .is_some_and(|oldest| oldest.expires_until_ms <= now_ms)
    }

    /// Drops the oldest piece with all that is in it; says how many claims that was, and gives its
    /// memory.
    pub(super) fn drop_oldest(&mut self) -> (usize, Box<[u64]>) {
        let Some(oldest) = self.pieces.pop_front() else {
            return (0, Box::default());
        };
        self.first += 1;
        self.claims -= oldest.claims as usize;
        self.allocated_words -= oldest.words.len();
        self.removed_words -= oldest.removed_words as usize;
        self.drop_empty();
        (oldest.claims as usize, oldest.words)
    }

    /// Is it time to look for claims of the piece that have expired? Not where it leaves as a whole in a
    /// moment, which costs next to nothing; unless it was about to before, and was held up.
    pub(super) fn is_to_be_swept(&self, piece: u64, now_ms: u64) -> bool {
        self.piece(piece).is_some_and(|piece| {
            let left_ms = piece.expires_until_ms.saturating_sub(now_ms);
            let waited_ms = now_ms.saturating_sub(piece.expires_from_ms);
            let leaves_soon = left_ms > 0 && left_ms.max(waited_ms) <= LEAVES_SOON_MS;
            piece.claims > 0 && piece.expires_from_ms <= now_ms && !leaves_soon
        })
    }

    /// After all that had expired in the piece was removed.
    pub(super) fn was_swept(&mut self, number: u64) {
        let (mut from, mut until) = (u64::MAX, 0);
        for (_, claim) in self.claims_of(number, 0) {
            from = from.min(claim.meta().expires_at_ms());
            until = until.max(claim.meta().expires_at_ms());
        }
        if let Some(index) = number.checked_sub(self.first)
            && let Some(piece) = self.pieces.get_mut(index as usize)
        {
            (piece.expires_from_ms, piece.expires_until_ms) = (from, until);
        }
    }

    fn piece(&self, number: u64) -> Option<&Piece> {
        let index = number.checked_sub(self.first)?;
        self.pieces.get(index as usize)
    }

    /// The claims of a piece from a word on, in their order.
    pub(super) fn claims_of(
        &self,
        number: u64,
        from_word: usize,
    ) -> impl Iterator<Item = (Place, Claim<'_>)> {
        let words = self
            .piece(number)
            .map_or(&[][..], |piece| &piece.words[..piece.used_words as usize]);
        let mut next = from_word;
        let all = std::iter::from_fn(move || {
            let claim = Claim::at(words.get(next..).filter(|words| !words.is_empty())?);
            let place = Place::new(number, next);
            next += claim.words();
            Some((place, claim))
        });
        all.filter(|(_, claim)| !claim.is_removed())
    }

    /// More than a quarter is of claims that have left, or half of the pieces are: time to append
    /// what is left of the oldest piece again.
    pub(super) fn is_sparse(&self) -> bool {
        self.removed_words * 4 > self.allocated_words + PIECE_WORDS
            || self.empty_pieces * 2 > self.pieces.len() + 8
    }

    pub(super) fn shrink(&mut self) {
        if self.pieces.capacity() > 2 * self.pieces.len() + 4 {
            self.pieces.shrink_to(self.pieces.len());
        }
    }
}

#[cfg(test)]
impl Log {
    pub(super) const PIECE_NUMBERS: u64 = Place::PIECES;

    pub(super) fn beginning_at(first: u64) -> Self {
        Self {
            first,
            ..Self::default()
        }
    }
}

fn zeros(words: usize) -> Box<[u64]> {
    vec![0; words].into()
}

/// A power of two, up to a whole piece.
const fn first_capacity(words: usize) -> usize {
    let capacity = words.next_power_of_two();
    if capacity < MIN_PIECE_WORDS {
        MIN_PIECE_WORDS
    } else {
        capacity
    }
}

const fn list_growth(pieces: usize) -> usize {
    pieces / 4 + 1
}
