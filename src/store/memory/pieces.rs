//! A list of claims that grows without moving anything, and knows where some may have expired.

use std::ops::Index;

/// Of one allocation; only the first piece is smaller while the list is.
pub(super) const PIECE_ITEMS: usize = 64;
const MIN_ITEMS: usize = 4;

#[derive(Debug)]
pub(super) struct Pieces<S> {
    /// All full but the last, and that not empty.
    pieces: Vec<Piece<S>>,
    len: usize,
    /// A power of two, up to a whole piece.
    first_capacity: usize,
}

#[derive(Debug)]
struct Piece<S> {
    items: Vec<S>,
    /// None of them expires before.
    expires_from_ms: u64,
}

impl<S> Piece<S> {
    fn with_capacity(items: usize) -> Self {
        Self {
            items: Vec::with_capacity(items),
            expires_from_ms: u64::MAX,
        }
    }
}

pub(super) trait Expires {
    fn expires_at_ms(&self) -> u64;
}

impl<S> Default for Pieces<S> {
    fn default() -> Self {
        Self {
            pieces: Vec::new(),
            len: 0,
            first_capacity: 0,
        }
    }
}

impl<S> Index<usize> for Pieces<S> {
    type Output = S;

    fn index(&self, number: usize) -> &S {
        &self.pieces[number / PIECE_ITEMS].items[number % PIECE_ITEMS]
    }
}

impl<S: Expires> Pieces<S> {
    pub(super) const fn len(&self) -> usize {
        self.len
    }

    pub(super) const fn pieces(&self) -> usize {
        self.pieces.len()
    }

    pub(super) const fn bytes(&self) -> usize {
        let others = self.pieces.len().saturating_sub(1) * PIECE_ITEMS;
        (self.first_capacity + others) * size_of::<S>()
            + self.pieces.capacity() * size_of::<Piece<S>>()
    }

    /// What another item would allocate.
    pub(super) const fn growth_bytes(&self) -> usize {
        if self.has_room() {
            return 0;
        }
        if self.len < PIECE_ITEMS && self.len > 0 {
            return self.first_growth() * size_of::<S>();
        }
        let (used, capacity) = (self.pieces.len(), self.pieces.capacity());
        let (pieces, items) = match used {
            0 => (1, self.first_growth()),
            _ if used == capacity => (capacity + MIN_ITEMS, PIECE_ITEMS),
            _ => (0, PIECE_ITEMS),
        };
        items * size_of::<S>() + pieces * size_of::<Piece<S>>()
    }

    const fn has_room(&self) -> bool {
        if self.len < PIECE_ITEMS {
            self.len < self.first_capacity
        } else {
            !self.len.is_multiple_of(PIECE_ITEMS)
        }
    }

    const fn first_growth(&self) -> usize {
        if self.first_capacity == 0 {
            MIN_ITEMS
        } else {
            self.first_capacity
        }
    }

    /// Returns the item's number.
    pub(super) fn push(&mut self, item: S) -> usize {
        if !self.has_room() {
            self.grow();
        }
        if let Some(last) = self.pieces.last_mut() {
            last.expires_from_ms = last.expires_from_ms.min(item.expires_at_ms());
            last.items.push(item);
        }
        self.len += 1;
        self.len - 1
    }

    #[cold]
    fn grow(&mut self) {
        let growth = self.first_growth();
        if self.pieces.is_empty() {
            self.pieces.reserve_exact(1);
            self.pieces.push(Piece::with_capacity(growth));
            self.first_capacity = growth;
        } else if self.len < PIECE_ITEMS {
            self.pieces[0].items.reserve_exact(growth);
            self.first_capacity += growth;
        } else {
            self.pieces.push(Piece::with_capacity(PIECE_ITEMS));
        }
    }

    /// # Panics
    ///
    /// If there is no such item.
    pub(super) fn change<R>(&mut self, number: usize, change: impl FnOnce(&mut S) -> R) -> R {
        let piece = &mut self.pieces[number / PIECE_ITEMS];
        let item = &mut piece.items[number % PIECE_ITEMS];
        let result = change(item);
        piece.expires_from_ms = piece.expires_from_ms.min(item.expires_at_ms());
        result
    }

    /// Takes an item out; the last one takes its place.
    ///
    /// # Panics
    ///
    /// If there is no such item.
    pub(super) fn swap_remove(&mut self, number: usize) -> S {
        let piece = self.pieces.last_mut().expect("an item");
        let last = piece.items.pop().expect("an item");
        if piece.items.is_empty() {
            self.pieces.pop();
        }
        self.len -= 1;
        if self.len == 0 {
            self.first_capacity = 0;
        }
        if number == self.len {
            last
        } else {
            self.change(number, |item| std::mem::replace(item, last))
        }
    }

    /// May an item of this number's piece have expired?
    pub(super) fn may_have_expired(&self, number: usize, now_ms: u64) -> bool {
        self.pieces[number / PIECE_ITEMS].expires_from_ms <= now_ms
    }

    /// After all that expired in the number's piece was removed.
    pub(super) fn was_swept(&mut self, number: usize) {
        if let Some(piece) = self.pieces.get_mut(number / PIECE_ITEMS) {
            let expiries = piece.items.iter().map(Expires::expires_at_ms);
            piece.expires_from_ms = expiries.min().unwrap_or(u64::MAX);
        }
    }

    pub(super) fn shrink(&mut self) {
        if self.pieces.capacity() > 2 * self.pieces.len() + 4 {
            self.pieces.shrink_to(self.pieces.len());
        }
    }
}
