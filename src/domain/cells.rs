//! The cells that a space guard reaches into.
//!
//! Cells have great-circle edges (H3 cuts straight lines on the faces of an icosahedron, and the
//! gnomonic projection keeps them straight), so that the distance to a cell is the distance to the
//! nearest of its edges. A cell too many costs a look-up and changes nothing, a missing one would
//! admit a duplicate: everything is measured with a little slack.

use h3o::{CellIndex, LatLng, Resolution};
use smallvec::SmallVec;

use super::{
    place::{Cell, EARTH_RADIUS_M, Position},
    vector::Vector,
};

/// Most cells beside its own that a plan looks at.
///
/// Reached where a guard of a whole edge stands at the centre of a small cell among small ones.
pub const MAX_NEIGHBOUR_CELLS: usize = 18;

/// Against rounding in the cells' corners, metres.
const SLACK_M: f64 = 0.01;

/// The widest space guard at a resolution: one edge of its cells, on average.
pub const fn max_guard_m(resolution: Resolution) -> f64 {
    resolution.edge_length_m()
}

/// The cells beside `cell`, which holds `position`, that have a point less than `radius_m` away,
/// ascending. `radius_m` is at most [`max_guard_m`].
pub fn cells_within(position: Position, cell: Cell, radius_m: f64) -> SmallVec<[Cell; 4]> {
    let reach = (radius_m + SLACK_M) / EARTH_RADIUS_M;
    let point = Vector::of(
        position.latitude_deg().to_radians(),
        position.longitude_deg().to_radians(),
    );
    let home = CellIndex::from(cell);
    let mut found = SmallVec::new();
    if distance_to_border(point, home) >= reach {
        return found;
    }
    // Edges are at least 0.55 of their average: half an average one never crosses a ring of cells,
    // a whole one never two.
    let rings = if radius_m <= 0.5 * home.resolution().edge_length_m() {
        1
    } else {
        2
    };
    found.extend(
        home.grid_disk_safe(rings)
            .filter(|&other| other != home && distance_to_border(point, other) < reach)
            .map(Cell::from),
    );
    found.sort_unstable_by_key(|cell| cell.index());
    debug_assert!(found.len() <= MAX_NEIGHBOUR_CELLS);
    found
}

/// Radians from a point to the nearest edge of a cell.
fn distance_to_border(point: Vector, cell: CellIndex) -> f64 {
    let boundary = cell.boundary();
    let corner = |at: &LatLng| Vector::of(at.lat_radians(), at.lng_radians());
    let corners: SmallVec<[Vector; 10]> = boundary.iter().map(corner).collect();
    let next = corners.iter().cycle().skip(1);
    corners
        .iter()
        .zip(next)
        .map(|(&a, &b)| distance_to_arc(point, a, b))
        .fold(f64::INFINITY, f64::min)
}

/// Radians from a point to the shorter great-circle arc from `a` to `b`.
fn distance_to_arc(point: Vector, a: Vector, b: Vector) -> f64 {
    let normal = a.cross(b);
    let to_ends = point.angle(a).min(point.angle(b));
    let length = normal.length();
    if length == 0.0 {
        return to_ends;
    }
    // The foot of the perpendicular lies on the arc if it is inside of both ends.
    let inside = normal.cross(a).dot(point) > 0.0 && b.cross(normal).dot(point) > 0.0;
    if inside {
        (normal.dot(point) / length).clamp(-1.0, 1.0).asin().abs()
    } else {
        to_ends
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Every cell that a ring of points just inside of the guard lies in must be found.
    #[track_caller]
    fn check(latitude: f64, longitude: f64, resolution: Resolution, share_of_edge: f64) {
        let position = Position::new(latitude, longitude).expect("a valid position");
        let cell = position.cell(resolution);
        let radius_m = share_of_edge * resolution.edge_length_m();
        let found = cells_within(position, cell, radius_m);
        assert!(found.is_sorted_by_key(|cell| cell.index()));
        for step in 0..180 {
            let bearing = f64::from(2 * step).to_radians();
            for share in [0.999, 0.7, 0.4] {
                let reached = at(position, bearing, share * radius_m / EARTH_RADIUS_M);
                let Some(reached) = reached.filter(|there| position.distance_m(*there) < radius_m)
                else {
                    continue;
                };
                let there = reached.cell(resolution);
                assert!(
                    there == cell || found.contains(&there),
                    "({latitude}, {longitude}) at {resolution}: {there} is {} m away, guard {radius_m} m",
                    position.distance_m(reached)
                );
            }
        }
    }

    fn at(from: Position, bearing: f64, distance: f64) -> Option<Position> {
        let (lat, lon) = (
            from.latitude_deg().to_radians(),
            from.longitude_deg().to_radians(),
        );
        let sin_lat = lat.sin() * distance.cos() + lat.cos() * distance.sin() * bearing.cos();
        let y = bearing.sin() * distance.sin() * lat.cos();
        let x = distance.cos() - lat.sin() * sin_lat;
        let lon = (lon + y.atan2(x)).to_degrees();
        Position::new(
            sin_lat.clamp(-1.0, 1.0).asin().to_degrees(),
            (lon + 540.0) % 360.0 - 180.0,
        )
        .ok()
    }

    #[test]
    fn s09_every_cell_within_the_guard_is_found() {
        let mut seed = 1_u64;
        let mut random = || {
            seed = seed
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            (seed >> 11) as f64 / (1_u64 << 53) as f64
        };
        for round in 0..400 {
            let resolution = Resolution::try_from(round % 16).expect("a resolution");
            let latitude = (2.0 * random() - 1.0).asin().to_degrees();
            check(latitude, 360.0 * random() - 180.0, resolution, random());
        }
    }

    #[test]
    fn poles_antimeridian_and_pentagons_are_no_exception() {
        for resolution in [
            Resolution::Two,
            Resolution::Nine,
            Resolution::Twelve,
            Resolution::Thirteen,
        ] {
            for share in [0.4, 1.0] {
                for (latitude, longitude) in [
                    (90.0, 0.0),
                    (-90.0, 7.0),
                    (89.9999, 180.0),
                    (10.0, 180.0),
                    (10.0, -179.99999),
                ] {
                    check(latitude, longitude, resolution, share);
                }
                for pentagon in resolution.pentagons() {
                    let centre = LatLng::from(pentagon);
                    check(centre.lat(), centre.lng(), resolution, share);
                    let corner = pentagon.boundary()[0];
                    check(corner.lat(), corner.lng(), resolution, share);
                }
            }
        }
    }
}
