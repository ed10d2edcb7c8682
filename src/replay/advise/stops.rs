//! Where assets stand still, and how far their fixes scatter while they do.
//!
//! Fixes are taken in pieces of two minutes. A piece stands still if its two halves lie no farther
//! apart than its fixes scatter; where they scatter widely, the steps between fixes must be as wide:
//! noise jumps, a journey does not. A piece whose centre lies within a stop belongs to it, be its noise
//! as it may. Approach and departure are trimmed. The centre is the median of each coordinate and the radius a quantile, so that a few wild
//! fixes move neither.

use crate::domain::place::{Position, Resolution};

/// A piece lasts at least so long and holds at least so many fixes.
pub const MIN_STOP_NS: i64 = 120_000_000_000;
pub const MIN_STOP_FIXES: u64 = 12;
/// Silence after which a piece begins anew.
const SILENCE_NS: i64 = 3_600_000_000_000;
/// Fixes that scatter no farther may be slow noise, whatever their steps.
const USUAL_SCATTER_M: f64 = 30.0;
/// Beyond that nothing stands still.
const WIDEST_SCATTER_M: f64 = 600.0;
/// Median step of noise, in median radii; twice as much where each fix is independent.
const NOISY_STEP_RADII: f64 = 0.7;
/// Kept of a piece and of a stop; beyond that every second is let go, then every fourth, and so on.
const MAX_FIXES: usize = 256;
/// Fixes at both ends that scatter more than so many median radii are approach and departure.
const TRIM_RADII: f64 = 4.0;
/// Halves farther apart than so many median radii wander. Noise alone parts them by half of one.
const WANDER_RADII: f64 = 1.25;
/// Positions are written to a few decimals: what moves less stands still.
const QUANTUM_M: f64 = 0.5;

/// Among which a cell is chosen. Finer ones tell more than most consumers need: 12 is the built-in one.
pub const RESOLUTIONS: [Resolution; 5] = [
    Resolution::Eight,
    Resolution::Nine,
    Resolution::Ten,
    Resolution::Eleven,
    Resolution::Twelve,
];

/// A stop that ended.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Stop {
    pub fixes: u64,
    pub lasted_ns: i64,
    /// Within which 95 of 100 of its fixes lie.
    pub radius_m: f64,
    /// Share of its fixes outside of its commonest cell, by [`RESOLUTIONS`].
    pub flicker: [f64; RESOLUTIONS.len()],
}

/// Fixes in the order of their times, thinned evenly.
#[derive(Clone, Debug, Default)]
struct Fixes {
    kept: Vec<(i64, Position)>,
    seen: u64,
    one_in: u64,
}

/// Follows one asset's fixes in the order of their times.
#[derive(Clone, Debug, Default)]
pub(super) struct StopFinder {
    piece: Fixes,
    /// Of pieces at one place.
    stop: Fixes,
}

impl Fixes {
    fn push(&mut self, at_ns: i64, position: Position) {
        if self.kept.len() == MAX_FIXES {
            let mut index = 0;
            self.kept.retain(|_| {
                index += 1;
                index % 2 == 1
            });
            self.one_in *= 2;
        }
        self.one_in = self.one_in.max(1);
        if self.seen.is_multiple_of(self.one_in) {
            self.kept.push((at_ns, position));
        }
        self.seen += 1;
    }

    fn clear(&mut self) {
        self.kept.clear();
        (self.seen, self.one_in) = (0, 1);
    }

    fn is_whole_at(&self, at_ns: i64) -> bool {
        self.seen >= MIN_STOP_FIXES
            && self
                .kept
                .first()
                .is_some_and(|(first_ns, _)| at_ns - first_ns >= MIN_STOP_NS)
    }
}

impl StopFinder {
    /// A stop, if this fix ended one.
    pub(super) fn observe(&mut self, at_ns: i64, position: Position) -> Option<Stop> {
        let mut ended = None;
        let last_ns = self
            .piece
            .kept
            .last()
            .map_or(at_ns, |(last_ns, _)| *last_ns);
        if at_ns - last_ns > SILENCE_NS {
            self.piece.clear();
            ended = self.end();
        } else if self.piece.is_whole_at(at_ns) {
            ended = self.judge_piece();
        }
        self.piece.push(at_ns, position);
        ended
    }

    /// The stop that is under way.
    pub(super) fn finish(&mut self) -> Option<Stop> {
        let last_ns = self.piece.kept.last().map_or(0, |(last_ns, _)| *last_ns);
        let ended = self
            .piece
            .is_whole_at(last_ns)
            .then(|| self.judge_piece())
            .flatten();
        ended.or_else(|| self.end())
    }

    /// Joins the piece to the stop, or ends the stop.
    fn judge_piece(&mut self) -> Option<Stop> {
        let mut piece = std::mem::take(&mut self.piece.kept);
        self.piece.clear();
        let is_at_stop = trimmed(&piece).and_then(Scatter::of).is_some_and(|here| {
            Scatter::of(&self.stop.kept).is_some_and(|stop| {
                let apart_m = stop.centre.distance_m(here.centre);
                apart_m <= stop.most_m().max(USUAL_SCATTER_M)
            })
        });
        let ended = if is_at_stop { None } else { self.end() };
        let fixes = if is_at_stop {
            trimmed(&piece)
        } else {
            standing(&piece)
        };
        for (at_ns, position) in fixes.unwrap_or_default() {
            self.stop.push(*at_ns, *position);
        }
        piece.clear();
        self.piece.kept = piece;
        ended
    }

    fn end(&mut self) -> Option<Stop> {
        let fixes = std::mem::take(&mut self.stop);
        let scatter = Scatter::of(&fixes.kept)?;
        let (first, last) = (fixes.kept.first()?, fixes.kept.last()?);
        Some(Stop {
            fixes: fixes.seen,
            lasted_ns: last.0 - first.0,
            radius_m: scatter.most_m(),
            flicker: RESOLUTIONS.map(|resolution| flicker(&fixes.kept, resolution)),
        })
    }
}

/// A centre, and how far from it fixes lie.
struct Scatter {
    centre: Position,
    sorted_radii_m: Vec<f64>,
}

impl Scatter {
    fn of(fixes: &[(i64, Position)]) -> Option<Self> {
        let centre = median_of(fixes)?;
        let mut radii: Vec<f64> = fixes
            .iter()
            .map(|(_, fix)| centre.distance_m(*fix))
            .collect();
        radii.sort_unstable_by(f64::total_cmp);
        Some(Self {
            centre,
            sorted_radii_m: radii,
        })
    }

    fn median_m(&self) -> f64 {
        self.sorted_radii_m[self.sorted_radii_m.len() / 2]
    }

    /// Of 95 in 100.
    fn most_m(&self) -> f64 {
        self.sorted_radii_m[(self.sorted_radii_m.len() * 95).div_ceil(100) - 1]
    }
}

/// The fixes of a piece that stands still.
fn standing(fixes: &[(i64, Position)]) -> Option<&[(i64, Position)]> {
    let fixes = trimmed(fixes)?;
    let scatter = Scatter::of(fixes)?;
    let (before, after) = fixes.split_at(fixes.len() / 2);
    let wandered_m = median_of(before)?.distance_m(median_of(after)?);
    if fixes.len() < 4
        || wandered_m > (WANDER_RADII * scatter.median_m()).max(QUANTUM_M)
        || scatter.most_m() > WIDEST_SCATTER_M
    {
        return None;
    }
    // A receiver that repeats a fix has not stepped.
    let mut steps: Vec<f64> = fixes
        .windows(2)
        .map(|pair| pair[0].1.distance_m(pair[1].1))
        .filter(|step_m| *step_m > 0.0)
        .collect();
    steps.sort_unstable_by(f64::total_cmp);
    let step_m = steps.get(steps.len() / 2).copied().unwrap_or(0.0);
    let is_noise =
        scatter.most_m() <= USUAL_SCATTER_M || step_m >= NOISY_STEP_RADII * scatter.median_m();
    is_noise.then_some(fixes)
}

/// Without approach and departure.
fn trimmed(fixes: &[(i64, Position)]) -> Option<&[(i64, Position)]> {
    let scatter = Scatter::of(fixes)?;
    let limit_m = (TRIM_RADII * scatter.median_m()).max(QUANTUM_M);
    let stands = |(_, fix): &(i64, Position)| scatter.centre.distance_m(*fix) <= limit_m;
    let from = fixes.iter().position(stands)?;
    let to = fixes.iter().rposition(stands)?;
    Some(&fixes[from..=to])
}

/// Of each coordinate. Stops at the antimeridian come out wrong, and are told by their wandering.
fn median_of(fixes: &[(i64, Position)]) -> Option<Position> {
    let median = |coordinate: fn(Position) -> f64| {
        let mut all: Vec<f64> = fixes.iter().map(|(_, fix)| coordinate(*fix)).collect();
        let middle = all.len() / 2;
        (!all.is_empty()).then(|| *all.select_nth_unstable_by(middle, f64::total_cmp).1)
    };
    Position::new(
        median(Position::latitude_deg)?,
        median(Position::longitude_deg)?,
    )
    .ok()
}

fn flicker(fixes: &[(i64, Position)], resolution: Resolution) -> f64 {
    let mut cells: Vec<u64> = fixes
        .iter()
        .map(|(_, fix)| fix.cell(resolution).index())
        .collect();
    cells.sort_unstable();
    let commonest = cells
        .chunk_by(|a, b| a == b)
        .map(<[u64]>::len)
        .max()
        .unwrap_or(0);
    1.0 - commonest as f64 / cells.len() as f64
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;

    fn at(north_m: f64, east_m: f64) -> Position {
        Position::new(47.0 + north_m / 111_195.0, 8.0 + east_m / 75_834.0).expect("on Earth")
    }

    #[test]
    fn a_stop_is_what_is_left_between_approach_and_departure() {
        let mut finder = StopFinder::default();
        let mut stops = Vec::new();
        let drive = |from: i64| (0..20).map(move |second| (from + second, second as f64 * 10.0));
        let mut second = 0;
        for (_, metres) in drive(0) {
            second += 1;
            stops.extend(finder.observe(second * SECOND, at(metres - 200.0, 0.0)));
        }
        for step in 0..300 {
            second += 1;
            // On a circle of 3 m, and once far off.
            let angle = step as f64 * 2.4;
            let radius = if step == 150 { 5000.0 } else { 3.0 };
            let fix = at(radius * angle.cos(), radius * angle.sin());
            stops.extend(finder.observe(second * SECOND, fix));
        }
        for (_, metres) in drive(0) {
            second += 1;
            stops.extend(finder.observe(second * SECOND, at(metres, 0.0)));
        }
        stops.extend(finder.finish());
        let [stop] = stops[..] else {
            panic!("{stops:?}");
        };
        assert!((stop.radius_m - 3.0).abs() < 0.1, "{stop:?}");
        assert!(stop.lasted_ns >= 200 * SECOND, "{stop:?}");
        assert!(
            stop.flicker.is_sorted(),
            "finer cells flicker more: {stop:?}"
        );
    }

    #[test]
    fn creeping_and_driving_are_no_stops() {
        // Slower than half a metre in a minute counts as standing.
        for speed_m_per_s in [0.02, 0.1, 0.3, 10.0] {
            let mut finder = StopFinder::default();
            for second in 0..3600 {
                let fix = at(second as f64 * speed_m_per_s, 0.0);
                let stop = finder.observe(second * SECOND, fix);
                assert_eq!(stop, None, "{speed_m_per_s} m/s");
            }
            assert_eq!(finder.finish(), None, "{speed_m_per_s} m/s");
        }
    }

    #[test]
    fn wide_noise_stands_still_and_a_round_of_the_block_does_not() {
        let stands = |fix: &dyn Fn(f64) -> Position| {
            let mut finder = StopFinder::default();
            let mut found = None;
            for second in 0..900 {
                found = found.or(finder.observe(second * SECOND, fix(second as f64)));
            }
            found.or(finder.finish())
        };
        let noise = |second: f64| {
            let (angle, radius) = (second * 2.4, 150.0 * (second * 0.618).fract());
            at(radius * angle.cos(), radius * angle.sin())
        };
        let radius_m = stands(&noise).expect("it stood").radius_m;
        assert!((radius_m - 142.0).abs() < 8.0, "{radius_m}");
        // Two rounds of 100 m radius in the time of a piece.
        let round = |second: f64| {
            let angle = second * std::f64::consts::TAU / 60.0;
            at(100.0 * angle.cos(), 100.0 * angle.sin())
        };
        assert_eq!(stands(&round), None);
    }

    #[test]
    fn the_same_fix_again_and_again_scatters_by_nothing() {
        let mut finder = StopFinder::default();
        for second in 0..100_000 {
            finder.observe(second * SECOND, at(0.0, 0.0));
        }
        let stop = finder.finish().expect("it stood");
        // The last piece was not whole.
        assert_eq!(stop.radius_m, 0.0);
        assert!((99_880..=100_000).contains(&stop.fixes), "{stop:?}");
        assert!(finder.stop.kept.len() <= MAX_FIXES);
    }
}
