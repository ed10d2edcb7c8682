//! A table of bounded size over any number of subjects.
//!
//! Followed are the subjects whose hash has so many leading zeros; whenever the table is full, one
//! more is asked for. What is left is a fair sample of the subjects, each with all of its events.

use hashbrown::HashMap;

#[derive(Debug)]
pub(super) struct Sampled<T> {
    entries: HashMap<u64, T>,
    leading_zeros: u32,
    capacity: usize,
}

impl<T: Default> Sampled<T> {
    pub(super) fn new(capacity: usize) -> Self {
        Self {
            entries: HashMap::new(),
            leading_zeros: 0,
            capacity,
        }
    }

    /// What is known of a subject; `None` where it is not in the sample.
    pub(super) fn follow(&mut self, hash: u64) -> Option<&mut T> {
        if hash.leading_zeros() < self.leading_zeros {
            return None;
        }
        if self.entries.len() >= self.capacity && !self.entries.contains_key(&hash) {
            while self.entries.len() >= self.capacity {
                self.leading_zeros += 1;
                let wanted = self.leading_zeros;
                self.entries
                    .retain(|hash, _| hash.leading_zeros() >= wanted);
            }
            if hash.leading_zeros() < self.leading_zeros {
                return None;
            }
        }
        Some(self.entries.entry(hash).or_default())
    }

    /// One subject in so many is followed.
    pub(super) fn one_in(&self) -> u64 {
        1_u64.checked_shl(self.leading_zeros).unwrap_or(u64::MAX)
    }

    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn into_values(self) -> impl Iterator<Item = T> {
        self.entries.into_values()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use xxhash_rust::xxh3::xxh3_64;

    #[test]
    fn a_full_table_follows_a_fair_share_with_all_of_its_events() {
        let mut table: Sampled<u32> = Sampled::new(1000);
        for _ in 0..3 {
            for subject in 0..100_000_u64 {
                if let Some(events) = table.follow(xxh3_64(&subject.to_be_bytes())) {
                    *events += 1;
                }
            }
        }
        assert!(
            (100_000 / 1000..=256).contains(&table.one_in()),
            "{}",
            table.one_in()
        );
        let expected = 100_000 / table.one_in() as usize;
        assert!(
            table.len().abs_diff(expected) < expected / 4,
            "{}",
            table.len()
        );
        assert!(table.into_values().all(|events| events == 3));
    }
}
