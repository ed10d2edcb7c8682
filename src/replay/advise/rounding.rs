//! Durations that people would write.

const SECOND: u64 = 1_000_000_000;
const MINUTE: u64 = 60 * SECOND;
const HOUR: u64 = 60 * MINUTE;
const DAY: u64 = 24 * HOUR;

/// In ascending order: 1, 1.5, 2, 3, 4, 5, 6 and 8 of each decade, then round minutes, hours, days.
fn ladder() -> impl Iterator<Item = u64> {
    let below_a_minute = (0..8_u32)
        .flat_map(|power| [10, 15, 20, 30, 40, 50, 60, 80].map(|tenths| tenths * 10_u64.pow(power)))
        .chain([10, 15, 20, 30, 40, 50].map(|tenths| tenths * SECOND / 10))
        .chain([6, 8, 10, 15, 20, 30, 45].map(|seconds| seconds * SECOND));
    below_a_minute
        .chain([2, 3, 4, 6, 10, 20, 30, 40, 60, 90].map(|halves| halves * MINUTE / 2))
        .chain([2, 3, 4, 6, 8, 12, 16, 24, 36].map(|halves| halves * HOUR / 2))
        .chain([1, 2, 3, 4, 7, 14, 30].map(|days| days * DAY))
}

/// At least `ns`, which is returned as it is where it is beyond the ladder.
pub(super) fn up(ns: u64) -> u64 {
    ladder().find(|step| *step >= ns).unwrap_or(ns)
}

/// At most `ns`; nothing where it is below the ladder.
pub(super) fn down(ns: u64) -> Option<u64> {
    ladder().take_while(|step| *step <= ns).last()
}

/// The same in whole seconds.
pub(super) fn down_to_seconds(ns: u64) -> Option<u64> {
    let whole = ladder().filter(|step| step.is_multiple_of(SECOND));
    whole.take_while(|step| *step <= ns).last()
}

/// Between two limits, neither of which it is: near their geometric mean, and round where it can be.
pub(super) fn between(low_ns: u64, high_ns: u64) -> Option<u64> {
    let within = |ns: &u64| (low_ns + 1..high_ns).contains(ns);
    let middle = ((low_ns.max(1) as f64) * (high_ns as f64)).sqrt();
    let far = |ns: u64| ((ns as f64) / middle).ln().abs();
    ladder()
        .filter(within)
        .min_by(|a, b| far(*a).total_cmp(&far(*b)))
        .or_else(|| Some(middle as u64).filter(within))
        .or_else(|| Some(low_ns + 1).filter(within))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_ladder_ascends_and_rounds_as_people_do() {
        let all: Vec<u64> = ladder().collect();
        assert!(all.is_sorted_by(|a, b| a < b), "{all:?}");
        assert_eq!(up(187_000_000), 200_000_000);
        assert_eq!(up(47 * SECOND), MINUTE);
        assert_eq!(up(90 * DAY), 90 * DAY);
        assert_eq!(down(119 * SECOND), Some(90 * SECOND));
        assert_eq!(down(3), None);
        assert_eq!(down_to_seconds(1_900_000_000), Some(SECOND));
        assert_eq!(between(200_000_000, 500_000_000), Some(300_000_000));
        assert_eq!(between(1_000_000_000, 1_000_000_003), Some(1_000_000_001));
        assert_eq!(between(7, 8), None);
    }
}
