//! How a quantity is distributed, in bounded memory: to a hundredth of its value, with the least and
//! the largest exactly.

use hdrhistogram::Histogram;

/// Ten years in nanoseconds.
const MAX: u64 = 320_000_000_000_000_000;

/// Of whole numbers: nanoseconds, or millimetres.
#[derive(Clone, Debug)]
pub struct Distribution {
    histogram: Histogram<u64>,
    least: u64,
    largest: u64,
    /// The greatest common divisor: what times were rounded to.
    quantum: u64,
}

/// A step of a histogram whose steps grow by a constant factor: from `low`, below `high`.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Bin {
    pub low: f64,
    pub high: f64,
    pub count: u64,
}

impl Default for Distribution {
    fn default() -> Self {
        Self {
            histogram: Histogram::new_with_bounds(1, MAX, 2).expect("the bounds are in order"),
            least: u64::MAX,
            largest: 0,
            quantum: 0,
        }
    }
}

impl Distribution {
    pub(super) fn record(&mut self, value: u64) {
        self.histogram.saturating_record(value);
        self.least = self.least.min(value);
        self.largest = self.largest.max(value);
        if self.quantum != 1 {
            self.quantum = greatest_common_divisor(self.quantum, value);
        }
    }

    pub fn count(&self) -> u64 {
        self.histogram.len()
    }

    pub fn is_empty(&self) -> bool {
        self.count() == 0
    }

    pub fn least(&self) -> Option<u64> {
        (!self.is_empty()).then_some(self.least)
    }

    pub fn largest(&self) -> Option<u64> {
        (!self.is_empty()).then_some(self.largest)
    }

    /// Of which every value is a multiple; 0 where there is none but 0.
    pub(super) const fn quantum(&self) -> u64 {
        self.quantum
    }

    /// Never outside of what was recorded.
    pub fn quantile(&self, quantile: f64) -> Option<u64> {
        let value = self.histogram.value_at_quantile(quantile);
        (!self.is_empty()).then(|| value.clamp(self.least, self.largest))
    }

    /// Exact at both ends, to a hundredth of `limit` between.
    pub fn count_below(&self, limit: u64) -> u64 {
        if self.is_empty() || limit <= self.least {
            0
        } else if limit > self.largest {
            self.count()
        } else {
            self.histogram.count_between(0, limit.saturating_sub(1))
        }
    }

    /// From the least to the largest; `per_octave` of them until the value has doubled.
    pub fn bins(&self, per_octave: u32) -> Vec<Bin> {
        let (Some(least), Some(largest)) = (self.least(), self.largest()) else {
            return Vec::new();
        };
        let place = |value: u64| {
            let octaves = (value.max(1) as f64).log2();
            (octaves * f64::from(per_octave)).floor() as i64
        };
        let first = place(least);
        let mut counts = vec![0_u64; (place(largest) - first + 1) as usize];
        for step in self.histogram.iter_recorded() {
            let value = step.value_iterated_to().clamp(least, largest);
            counts[(place(value) - first) as usize] += step.count_at_value();
        }
        let edge = |place: i64| (place as f64 / f64::from(per_octave)).exp2();
        let bins = counts.into_iter().zip(first..).map(|(count, place)| Bin {
            low: edge(place),
            high: edge(place + 1),
            count,
        });
        bins.collect()
    }
}

const fn greatest_common_divisor(mut a: u64, mut b: u64) -> u64 {
    while b != 0 {
        (a, b) = (b, a % b);
    }
    a
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ends_are_exact_and_bins_hold_everything() {
        let mut spread = Distribution::default();
        assert_eq!((spread.least(), spread.quantile(0.5)), (None, None));
        assert!(spread.bins(4).is_empty());
        for value in 1..=1000_u64 {
            spread.record(value * 1001);
        }
        assert_eq!(spread.quantum(), 1001);
        assert_eq!(
            (spread.least(), spread.largest()),
            (Some(1001), Some(1_001_000))
        );
        assert_eq!(spread.quantile(1.0), Some(1_001_000));
        assert_eq!(spread.count_below(1_001_001), 1000);
        assert_eq!(spread.count_below(1001), 0);
        let half = spread.count_below(500_500);
        assert!(half.abs_diff(500) < 10, "{half}");
        let bins = spread.bins(4);
        assert_eq!(bins.iter().map(|bin| bin.count).sum::<u64>(), 1000);
        assert!(
            bins.iter()
                .all(|bin| (bin.high / bin.low - 2_f64.powf(0.25)).abs() < 1e-9)
        );
    }
}
