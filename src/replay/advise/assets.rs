//! What the positions of assets tell: how often they report, where they stand, how far their fixes
//! scatter, and how soon they come back to a place that they had left.

use smallvec::SmallVec;

use super::{
    distribution::Distribution,
    sample::Sampled,
    stops::{RESOLUTIONS, Stop, StopFinder},
};
use crate::domain::place::Position;

/// Assets that are followed at a time, with up to 16 KB of fixes and places each.
pub(super) const MAX_ASSETS: usize = 1 << 13;
/// Places that are remembered of each, by resolution.
const RECENT_PLACES: usize = 12;
/// A place is a cell, and is left by those who are more than so many edges from where they were in it.
const AWAY_EDGES: f64 = 2.5;
/// Shorter steps are taken for noise, not for a journey.
const MIN_STEP_M: f64 = 15.0;
/// Stops that are remembered of each asset, for its own median.
const STOPS_PER_ASSET: usize = 15;
/// So many different fixes in a row far from a place have left it: fewer may be wild ones.
const AWAY_IN_A_ROW: u32 = 3;
/// Assets that are shown.
const SHOWN_ASSETS: usize = 10;

/// What positions came to.
#[derive(Debug)]
pub struct Assets {
    followed: Sampled<Asset>,
    /// Between reports of an asset that follow each other in time.
    pub intervals: Distribution,
    /// Metres between them, in millimetres, while the asset is on its way.
    pub steps_mm: Distribution,
    /// Of stops: within which 95 of 100 of its fixes lie, in millimetres.
    pub radii_mm: Distribution,
    /// Of stops, how long they lasted.
    pub stops: Distribution,
    flicker: [f64; RESOLUTIONS.len()],
    /// Between leaving a place and coming back to it, by [`RESOLUTIONS`].
    pub returns: [Distribution; RESOLUTIONS.len()],
    pub without_position: u64,
    pub out_of_order: u64,
}

#[derive(Clone, Debug, Default)]
struct Asset {
    name: String,
    last: Option<(i64, Position)>,
    finder: StopFinder,
    radii_mm: SmallVec<[u64; 4]>,
    stops: u64,
    places: [Vec<VisitedPlace>; RESOLUTIONS.len()],
}

#[derive(Clone, Copy, Debug)]
struct VisitedPlace {
    cell: u64,
    at: Position,
    last_ns: i64,
    /// Fixes far from it, in a row; once it is left they are not counted any more.
    away: u32,
}

/// One asset's scatter.
#[derive(Clone, Debug, PartialEq)]
pub struct AssetJitter {
    pub asset: String,
    pub stops: u64,
    /// Of its stops, the median.
    pub radius_m: f64,
}

impl Assets {
    pub(super) fn new() -> Self {
        Self {
            followed: Sampled::new(MAX_ASSETS),
            intervals: Distribution::default(),
            steps_mm: Distribution::default(),
            radii_mm: Distribution::default(),
            stops: Distribution::default(),
            flicker: [0.0; RESOLUTIONS.len()],
            returns: Default::default(),
            without_position: 0,
            out_of_order: 0,
        }
    }

    pub(super) fn observe(
        &mut self,
        name: &str,
        hash: u64,
        at_ns: i64,
        position: Option<Position>,
    ) {
        let Some(position) = position else {
            self.without_position += 1;
            return;
        };
        let Some(asset) = self.followed.follow(hash) else {
            return;
        };
        if let Some((last_ns, last)) = asset.last {
            if at_ns <= last_ns {
                self.out_of_order += u64::from(at_ns < last_ns);
                return;
            }
            self.intervals.record(at_ns.abs_diff(last_ns));
            let step_m = last.distance_m(position);
            // Farther than noise goes: it is on its way.
            if step_m > MIN_STEP_M {
                self.steps_mm.record(millimetres(step_m));
            }
        } else {
            name.clone_into(&mut asset.name);
        }
        let previous = asset
            .last
            .replace((at_ns, position))
            .map(|(_, position)| position);
        let repeats = previous == Some(position);
        for (index, returns) in self.returns.iter_mut().enumerate() {
            if let Some(returned) = asset.visit(index, at_ns, position, repeats) {
                returns.record(returned);
            }
        }
        if let Some(stop) = asset.finder.observe(at_ns, position) {
            let asset_stops = (&mut asset.radii_mm, &mut asset.stops);
            note(
                &mut self.radii_mm,
                &mut self.stops,
                &mut self.flicker,
                asset_stops,
                &stop,
            );
        }
    }

    /// Ends the stops that are under way.
    pub(super) fn finish(self) -> AssetsFound {
        let followed = (self.followed.len(), self.followed.one_in());
        let (mut radii_mm, mut stops, mut flicker) = (self.radii_mm, self.stops, self.flicker);
        let mut by_asset: Vec<AssetJitter> = Vec::new();
        let mut asset_radii_mm = Distribution::default();
        for mut asset in self.followed.into_values() {
            if let Some(stop) = asset.finder.finish() {
                let asset_stops = (&mut asset.radii_mm, &mut asset.stops);
                note(&mut radii_mm, &mut stops, &mut flicker, asset_stops, &stop);
            }
            asset.radii_mm.sort_unstable();
            if let Some(median) = asset.radii_mm.get(asset.radii_mm.len() / 2) {
                asset_radii_mm.record(*median);
                by_asset.push(AssetJitter {
                    asset: asset.name,
                    stops: asset.stops,
                    radius_m: *median as f64 / 1000.0,
                });
            }
        }
        by_asset.sort_by(|a, b| {
            b.radius_m
                .total_cmp(&a.radius_m)
                .then_with(|| a.asset.cmp(&b.asset))
        });
        let assets_that_stood = by_asset.len();
        by_asset.truncate(SHOWN_ASSETS);
        let stood = stops.count().max(1) as f64;
        AssetsFound {
            intervals: self.intervals,
            steps_mm: self.steps_mm,
            radii_mm,
            asset_radii_mm,
            stops,
            flicker: flicker.map(|sum| sum / stood),
            returns: self.returns,
            noisiest: by_asset,
            assets_that_stood,
            followed,
            without_position: self.without_position,
            out_of_order: self.out_of_order,
        }
    }
}

/// What the positions of a whole trace tell.
#[derive(Clone, Debug)]
pub struct AssetsFound {
    pub intervals: Distribution,
    pub steps_mm: Distribution,
    pub radii_mm: Distribution,
    /// Of assets that stood: the median of their stops' radii, so that each has one voice.
    pub asset_radii_mm: Distribution,
    pub stops: Distribution,
    /// In the mean of all stops, share of fixes outside of the commonest cell.
    pub flicker: [f64; RESOLUTIONS.len()],
    /// By [`RESOLUTIONS`].
    pub returns: [Distribution; RESOLUTIONS.len()],
    pub noisiest: Vec<AssetJitter>,
    pub assets_that_stood: usize,
    /// How many assets, and that they are one of so many.
    pub followed: (usize, u64),
    pub without_position: u64,
    pub out_of_order: u64,
}

fn note(
    radii_mm: &mut Distribution,
    stops: &mut Distribution,
    flicker: &mut [f64; RESOLUTIONS.len()],
    (asset_radii, asset_stops): (&mut SmallVec<[u64; 4]>, &mut u64),
    stop: &Stop,
) {
    let radius_mm = millimetres(stop.radius_m);
    radii_mm.record(radius_mm);
    stops.record(stop.lasted_ns.unsigned_abs());
    for (sum, share) in flicker.iter_mut().zip(stop.flicker) {
        *sum += share;
    }
    *asset_stops += 1;
    if asset_radii.len() < STOPS_PER_ASSET {
        asset_radii.push(radius_mm);
    }
}

fn millimetres(metres: f64) -> u64 {
    (metres * 1000.0).round() as u64
}

impl Asset {
    /// How long it had been away, if it comes back.
    fn visit(
        &mut self,
        index: usize,
        at_ns: i64,
        position: Position,
        repeats: bool,
    ) -> Option<u64> {
        let resolution = RESOLUTIONS[index];
        let cell = position.cell(resolution).index();
        let away_m = AWAY_EDGES * resolution.edge_length_m();
        let places = &mut self.places[index];
        let mut returned = None;
        let mut known = false;
        for place in &mut *places {
            if place.cell == cell {
                known = true;
                if place.away >= AWAY_IN_A_ROW {
                    returned = Some(at_ns.abs_diff(place.last_ns));
                }
                (place.at, place.last_ns, place.away) = (position, at_ns, 0);
            } else if place.away < AWAY_IN_A_ROW && !repeats {
                let is_away = place.at.distance_m(position) > away_m;
                place.away = if is_away { place.away + 1 } else { 0 };
            }
        }
        if !known {
            if places.len() == RECENT_PLACES
                && let Some(oldest) = (0..RECENT_PLACES).min_by_key(|index| places[*index].last_ns)
            {
                places.swap_remove(oldest);
            }
            places.push(VisitedPlace {
                cell,
                at: position,
                last_ns: at_ns,
                away: 0,
            });
        }
        returned
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coming_back_from_afar_is_a_return_and_noise_is_none() {
        let mut assets = Assets::new();
        let fix = |metres: f64| Position::new(47.0 + metres / 111_195.0, 8.0).ok();
        // Away for one fix, for one that is repeated, and for three.
        let track = [
            (0, 0.0),
            (10, 900.0),
            (20, 0.0),
            (21, 800.0),
            (22, 800.0),
            (23, 800.0),
            (30, 0.0),
        ]
        .into_iter()
        .chain([(40, 500.0), (50, 510.0), (60, 500.0), (100, 3.0)]);
        for (second, metres) in track {
            assets.observe("a", 1, second * 1_000_000_000, fix(metres));
        }
        assets.observe("a", 1, 5, fix(0.0));
        assets.observe("b", 2, 5, None);
        let found = assets.finish();
        let finest = &found.returns[4];
        assert_eq!((finest.count(), finest.least()), (1, Some(70_000_000_000)));
        assert!(found.returns[0].is_empty(), "500 m are within its reach");
        assert_eq!((found.out_of_order, found.without_position), (1, 1));
        assert_eq!(found.intervals.count(), 10);
    }
}
