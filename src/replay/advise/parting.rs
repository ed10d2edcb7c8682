//! Where copies end and revisits begin.

use super::distribution::{Bin, Distribution};

/// A bin is empty enough where it holds so small a share of the peaks on both sides.
const VALLEY_DEPTH: f64 = 0.1;
/// A peak of fewer is none.
const MIN_PEAK: u64 = 15;
const BINS_PER_OCTAVE: u32 = 4;
/// More than this share on the wrong side: the two cross.
const CROSSING_SHARE: f64 = 0.001;

/// The two sides, and what lies on the wrong one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Parting {
    /// Nearly all copies are at most so far apart.
    pub spread_ns: u64,
    /// Nearly all revisits are at least so far apart; `None`: none was seen.
    pub revisit_ns: Option<u64>,
    pub copies: u64,
    pub revisits: u64,
    /// Copies that lie as far apart as revisits, or farther.
    pub stray_copies: u64,
    /// Revisits that come as soon as copies.
    pub stray_revisits: u64,
}

impl Parting {
    /// No width between can be right.
    pub fn crosses(&self) -> bool {
        let share = |stray: u64, of: u64| stray as f64 > CROSSING_SHARE * of as f64;
        share(self.stray_copies, self.copies) || share(self.stray_revisits, self.revisits)
    }
}

/// Parts known copies from known revisits: where the fewest lie on the wrong side.
pub(super) fn by_truth(spread: &Distribution, revisits: &Distribution) -> Option<Parting> {
    let largest = spread.largest()?;
    let clean = revisits.least().is_none_or(|least| least > largest);
    if clean {
        return Some(Parting {
            spread_ns: largest,
            revisit_ns: revisits.least(),
            copies: spread.count(),
            revisits: revisits.count(),
            stray_copies: 0,
            stray_revisits: 0,
        });
    }
    let edges = spread.bins(16).into_iter().chain(revisits.bins(16));
    let wrong = |at: u64| {
        (
            spread.count() - spread.count_below(at),
            revisits.count_below(at),
        )
    };
    let at = edges.map(|bin| bin.high as u64).min_by_key(|at| {
        let (copies, revisits) = wrong(*at);
        // Of equally good ones the smallest: it swallows the least that was not seen.
        (copies + revisits, *at)
    })?;
    let (stray_copies, stray_revisits) = wrong(at);
    let among = |distribution: &Distribution, rank: u64| {
        let share = rank as f64 / distribution.count() as f64;
        distribution.quantile(share)
    };
    Some(Parting {
        spread_ns: among(spread, spread.count() - stray_copies).map_or(at, |ns| ns.min(at)),
        revisit_ns: among(revisits, stray_revisits + 1).map(|ns| ns.max(at + 1)),
        copies: spread.count(),
        revisits: revisits.count(),
        stray_copies,
        stray_revisits,
    })
}

/// Parts gaps of unknown kind at the first valley behind a peak: copies are the nearest. `None`:
/// there is no valley.
pub(super) fn by_valley(gaps: &Distribution) -> Option<Parting> {
    let mut bins = gaps.bins(BINS_PER_OCTAVE);
    // Bins narrower than what times are rounded to are empty for no other reason.
    let coarse = |bin: &Bin| bin.high - bin.low >= 2.0 * gaps.quantum() as f64;
    let first = bins.iter().position(coarse)?;
    let fine = bins.drain(..first).map(|bin| bin.count).sum::<u64>();
    bins[0].count += fine;
    let valley = valley(&bins)?;
    let at = bins[valley].low as u64;
    let copies = gaps.count_below(at);
    let revisits = gaps.count() - copies;
    let quantile = |rank: u64| gaps.quantile(rank as f64 / gaps.count() as f64);
    Some(Parting {
        spread_ns: quantile(copies)?.min(at),
        revisit_ns: quantile(copies + 1).map(|ns| ns.max(at + 1)),
        copies,
        revisits,
        stray_copies: 0,
        stray_revisits: 0,
    })
}

/// The middle of the emptiest bins between the first two peaks that are parted by a valley.
fn valley(bins: &[Bin]) -> Option<usize> {
    let mut left_peak = 0;
    let mut from = 0;
    while from < bins.len() {
        let count = bins[from].count;
        let is_low = |count: u64, peak: u64| (count as f64) <= VALLEY_DEPTH * peak as f64;
        if left_peak >= MIN_PEAK && is_low(count, left_peak) {
            let rises = bins[from..]
                .iter()
                .position(|bin| bin.count >= MIN_PEAK && !is_low(bin.count, left_peak))?;
            let floor = &bins[from..from + rises];
            let least = floor.iter().map(|bin| bin.count).min()?;
            let emptiest: Vec<usize> = (0..floor.len())
                .filter(|index| floor[*index].count == least)
                .collect();
            let right_peak = bins[from + rises..].iter().map(|bin| bin.count).max()?;
            if is_low(least, right_peak) {
                return Some(from + emptiest[emptiest.len() / 2]);
            }
            from += rises;
        }
        left_peak = left_peak.max(count);
        from += 1;
    }
    None
}

#[cfg(test)]
mod tests {
    use super::*;

    fn uniform(ranges: &[(u64, u64, u64)]) -> Distribution {
        let mut all = Distribution::default();
        for (low, high, count) in ranges {
            for index in 0..*count {
                all.record(low + (high - low) * index / count);
            }
        }
        all
    }

    #[test]
    fn clean_sides_are_told_exactly() {
        let parting = by_truth(
            &uniform(&[(1, 2000, 500)]),
            &uniform(&[(5000, 90_000, 500)]),
        );
        let parting = parting.expect("copies");
        assert_eq!((parting.spread_ns, parting.revisit_ns), (1996, Some(5000)));
        assert!(!parting.crosses());
        assert_eq!(
            by_truth(&Distribution::default(), &uniform(&[(1, 9, 9)])),
            None
        );
    }

    #[test]
    fn sides_that_cross_are_parted_where_the_fewest_are_wrong() {
        let copies = uniform(&[(1000, 2000, 990), (8000, 9000, 10)]);
        let parting = by_truth(&copies, &uniform(&[(5000, 90_000, 1000)])).expect("copies");
        assert!((1990..5000).contains(&parting.spread_ns), "{parting:?}");
        assert_eq!((parting.stray_copies, parting.stray_revisits), (10, 0));
        assert!(parting.crosses());
    }

    #[test]
    fn a_valley_parts_and_a_single_hill_does_not() {
        let parting = by_valley(&uniform(&[(10, 2000, 1000), (5000, 90_000, 1000)])).expect("two");
        assert!((1900..=2000).contains(&parting.spread_ns), "{parting:?}");
        assert!(
            (4900..=5100).contains(&parting.revisit_ns.expect("seen")),
            "{parting:?}"
        );
        assert_eq!((parting.copies, parting.revisits), (1000, 1000));
        assert_eq!(by_valley(&uniform(&[(10, 90_000, 2000)])), None);
        let rounded = uniform(&[(1, 400, 4000), (600, 4000, 9000)]);
        let mut in_ms = Distribution::default();
        for bin in rounded.bins(64) {
            (0..bin.count).for_each(|_| in_ms.record(bin.low.round() as u64 * 1_000_000));
        }
        let parting = by_valley(&in_ms).expect("two");
        assert!(
            (380_000_000..=410_000_000).contains(&parting.spread_ns),
            "{parting:?}"
        );
        assert_eq!(
            by_valley(&uniform(&[(10, 12, 5), (9000, 90_000, 500)])),
            None
        );
    }
}
