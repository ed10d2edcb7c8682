//! How far apart copies of one occurrence lie, and how soon a subject comes again.
//!
//! Where the trace tells occurrences (or transitions carry a sequence), each event is held against
//! the first copy of its own occurrence and against the others of its subject, as the rule holds it
//! against claims. Where it does not, all pairs of a subject's recent events go into one
//! distribution, to be parted later.

use smallvec::SmallVec;
use xxhash_rust::xxh3::xxh3_64;

use super::{distribution::Distribution, sample::Sampled};
use crate::replay::trace::Occurrence;

/// Subjects that are followed at a time.
pub(super) const MAX_SUBJECTS: usize = 1 << 18;
/// Occurrences that are remembered of each.
const RECENT: usize = 8;
const OCTAVES: usize = 64;

/// What copies and revisits came to.
#[derive(Debug)]
pub struct Copies {
    subjects: Sampled<SmallVec<[Seen; 2]>>,
    /// Between the time of a copy and that of its occurrence's first, where they differ.
    pub spread: Distribution,
    /// Copies that carry the very time of the first.
    pub same_time: u64,
    /// Between an occurrence and the nearest other of its subject.
    pub revisits: Distribution,
    /// Between events of a subject, where nothing tells which are copies.
    pub gaps: Distribution,
    /// How much later than the first a copy arrived.
    pub lag: Distribution,
    /// The same, at most, by the octave of the gap.
    max_lag_by_gap: [u64; OCTAVES],
    pub told: u64,
    pub untold: u64,
}

#[derive(Clone, Copy, Debug)]
struct Seen {
    occurrence: Option<u64>,
    occurred_at_ns: i64,
    arrived_at_ns: i64,
}

impl Copies {
    pub(super) fn new() -> Self {
        Self {
            subjects: Sampled::new(MAX_SUBJECTS),
            spread: Distribution::default(),
            same_time: 0,
            revisits: Distribution::default(),
            gaps: Distribution::default(),
            lag: Distribution::default(),
            max_lag_by_gap: [0; OCTAVES],
            told: 0,
            untold: 0,
        }
    }

    pub(super) fn observe(
        &mut self,
        subject: u64,
        occurrence: Occurrence,
        occurred_at_ns: i64,
        arrived_at_ns: i64,
    ) {
        let occurrence = match occurrence {
            Occurrence::Unknown => None,
            // It has no copies to be told from: any number that no other has will do.
            Occurrence::Single => Some(xxh3_64(&(self.told + self.untold).to_le_bytes())),
            Occurrence::Copy { id, .. } => Some(id),
        };
        if occurrence.is_some() {
            self.told += 1;
        } else {
            self.untold += 1;
        }
        let Some(seen) = self.subjects.follow(subject) else {
            return;
        };
        let apart = |other: &Seen| other.occurred_at_ns.abs_diff(occurred_at_ns);
        let lag = |other: &Seen| {
            u64::try_from(arrived_at_ns.saturating_sub(other.arrived_at_ns)).unwrap_or(0)
        };
        let first = match occurrence {
            Some(_) => seen.iter().find(|seen| seen.occurrence == occurrence),
            None => seen.iter().find(|seen| apart(seen) == 0),
        };
        if let Some(first) = first {
            self.lag.record(lag(first));
            match apart(first) {
                0 => self.same_time += 1,
                spread => self.spread.record(spread),
            }
            return;
        }
        if occurrence.is_some() {
            if let Some(revisit) = seen.iter().map(apart).min() {
                self.revisits.record(revisit);
            }
        } else {
            for other in seen.iter() {
                let gap = apart(other);
                self.gaps.record(gap);
                let longest = &mut self.max_lag_by_gap[gap.ilog2() as usize];
                *longest = lag(other).max(*longest);
            }
        }
        if seen.len() == RECENT {
            seen.remove(0);
        }
        seen.push(Seen {
            occurrence,
            occurred_at_ns,
            arrived_at_ns,
        });
    }

    /// Longest lag of copies that are less than `gap_ns` apart, of those nothing tells.
    pub(super) fn max_lag_below(&self, gap_ns: u64) -> u64 {
        let octaves = gap_ns.checked_ilog2().unwrap_or(0) as usize;
        self.max_lag_by_gap[..octaves]
            .iter()
            .copied()
            .max()
            .unwrap_or(0)
    }

    pub(super) fn followed(&self) -> (usize, u64) {
        (self.subjects.len(), self.subjects.one_in())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(id: u64) -> Occurrence {
        let is_last = false;
        Occurrence::Copy { id, is_last }
    }

    #[test]
    fn told_copies_are_held_against_their_first() {
        let mut copies = Copies::new();
        for (occurrence, occurred, arrived) in [
            (copy(1), 1000, 1000),
            (copy(1), 1100, 1150),
            (copy(2), 3000, 3000),
            (copy(1), 1000, 9000),
            (Occurrence::Single, 3500, 9500),
        ] {
            copies.observe(7, occurrence, occurred, arrived);
        }
        assert_eq!((copies.same_time, copies.spread.largest()), (1, Some(100)));
        assert_eq!(copies.revisits.least(), Some(500));
        assert_eq!(copies.lag.largest(), Some(8000));
        assert_eq!((copies.told, copies.untold), (5, 0));
    }

    #[test]
    fn untold_events_are_paired() {
        let mut copies = Copies::new();
        for (occurred, arrived) in [(0, 0), (100, 130), (100, 700), (5000, 5000)] {
            copies.observe(7, Occurrence::Unknown, occurred, arrived);
        }
        assert_eq!((copies.same_time, copies.lag.largest()), (1, Some(570)));
        assert_eq!(copies.gaps.count(), 3);
        assert_eq!(copies.max_lag_below(200), 130);
        assert_eq!(copies.max_lag_below(0), 0);
    }
}
