//! The H3 cell of a position: h3o's answer in an eighth of its time.
//!
//! H3 lays hexagons on the faces of an icosahedron (h3geo.org, *Coordinate systems*): the nearest
//! face, the gnomonic projection onto it, the nearest hexagon there, then its ancestors up to one
//! of the 122 base cells, which gives the index its digits. h3o takes the C library's way through
//! angles, an arc cosine, a tangent, an arc tangent and sines for each position. Here the
//! projection is three scalar products and a division, sines and cosines come from a table of
//! whole degrees, and two levels of ancestors are one look-up.
//!
//! # Why the answer is the same
//!
//! Both compute the same point of the face's plane, each with its rounding. Lengths are in units
//! of the grid of resolution 0 (2,433 km), ρ ≤ 2 is the point's distance from the face's centre,
//! and roundings are half-ulps, 2⁻⁵³.
//!
//! - h3o takes the arc cosine of a number near 1 that is off by two roundings, so that the angle r
//!   is off by two by sin r, and sin r ≥ 0.3 ρ; the tangent and the unit multiply that by up to
//!   4.2: 28 roundings by ρ. Its azimuth is a difference of angles of up to 2π, which moves the
//!   point by ρ times its error; with the constants, powers of √7 and what follows some 60.
//! - Here sines, scalar products, division and axes make some 30.
//!
//! As ρ ≤ 2, that is less than 210 roundings by ρ, 2.4·10⁻¹⁴; nearly ten million points on
//! borders, those around the faces' centres included, differed by 0.9·10⁻¹⁴ by ρ at most. Who is
//! farther than [`TOLERANCE`] by ρ from the border of a hexagon, forty times the bound, is in
//! that hexagon either way. All others, and those within centimetres of another face, are h3o's:
//! one in 75,000 at resolution 15, and a seventh of that two resolutions above.
//!
//! Which base cell stands where on a face, and how its digits are turned against the face's, is
//! asked of h3o at the first position that needs it: see [`Placements`].
//!
//! A debug build compares every cell with h3o's; `tests/it/hexgrid.rs` seeks out the borders.

mod icosahedron;
mod lattice;

use std::sync::{
    LazyLock,
    atomic::{AtomicU16, Ordering},
};

use h3o::{CellIndex, LatLng, Resolution};

use icosahedron::{FACES, Icosahedron};
use lattice::{Ancestry, POWERS_OF_7, Turn};

static ICOSAHEDRON: LazyLock<Icosahedron> = LazyLock::new(Icosahedron::new);
static PLACEMENTS: Placements = Placements::new();

/// 2.4 micrometres.
const TOLERANCE: f64 = 1e-12;
/// How far a face certainly reaches; its edges are at 1.
const WITHIN_FACE: f64 = 1.0 - 1e-8;

/// The index of the cell that holds a position, of finite degrees.
pub(super) fn index(latitude_deg: f64, longitude_deg: f64, resolution: Resolution) -> u64 {
    let by_h3o = || {
        LatLng::new(latitude_deg, longitude_deg)
            .expect("a position is finite, and h3o refuses nothing else")
            .to_cell(resolution)
    };
    let Some(hexagon) = Hexagon::of(latitude_deg, longitude_deg, resolution) else {
        return by_h3o().into();
    };
    let index = hexagon
        .index(&PLACEMENTS)
        .unwrap_or_else(|| PLACEMENTS.learn(&hexagon, by_h3o()));
    debug_assert_eq!(
        index,
        u64::from(by_h3o()),
        "({latitude_deg:e}, {longitude_deg:e}) at {resolution}"
    );
    index
}

/// A cell as the face that it lies on counts.
struct Hexagon {
    face: usize,
    resolution: u8,
    ancestry: Ancestry,
}

impl Hexagon {
    /// None where rounding might decide.
    fn of(latitude_deg: f64, longitude_deg: f64, resolution: Resolution) -> Option<Self> {
        let icosahedron = &*ICOSAHEDRON;
        let point = icosahedron.point(latitude_deg, longitude_deg)?;
        let face = icosahedron.nearest_face(point);
        let at = icosahedron.project(point, face);
        if !at.is_within_triangle(WITHIN_FACE) {
            return None;
        }
        let resolution = u8::from(resolution);
        let (i, j, to_border) = at.refined(resolution).nearest();
        // In units of the resolution, of which one of resolution 0 has the root of 7 to its power.
        let tolerance_squared = TOLERANCE * TOLERANCE * POWERS_OF_7[usize::from(resolution)];
        let is_clear =
            to_border > 0.0 && to_border * to_border * at.length_squared() > tolerance_squared;
        is_clear.then(|| Self {
            face,
            resolution,
            ancestry: Ancestry::of(i, j, resolution),
        })
    }

    /// None until h3o has shown where its base cell stands.
    fn index(&self, placements: &Placements) -> Option<u64> {
        let (base_cell, turn) = placements.get(self)?;
        let unused = self.unused_bits();
        Some(
            1 << 59
                | u64::from(self.resolution) << 52
                | u64::from(base_cell) << 45
                | turn.of(self.ancestry.digits) << unused
                | ((1 << unused) - 1),
        )
    }

    /// Those of finer digits, all set.
    fn unused_bits(&self) -> u8 {
        3 * (15 - self.resolution)
    }
}

/// What h3o has shown so far: the number of the base cell that stands at a place of a face, and
/// the turn from the face's digits to the cell's.
///
/// A hexagon's digits are all turned alike. A pentagon has no cells with the leading digit 1, and
/// how H3 closes the gap depends on the leading digit (the first that is not 0) and nothing else.
/// So one cell shows the turn of all that share face, place and leading digit, some 2,000 groups.
///
/// An entry only ever changes from unknown to its value, whoever writes it.
struct Placements([[AtomicU16; Self::ENTRIES]; FACES]);

impl Placements {
    const ENTRIES: usize = Ancestry::BASES * 8;
    const KNOWN: u16 = 1 << 15;

    const fn new() -> Self {
        Self([const { [const { AtomicU16::new(0) }; Self::ENTRIES] }; FACES])
    }

    fn entry(&self, hexagon: &Hexagon) -> Option<&AtomicU16> {
        let ancestry = &hexagon.ancestry;
        self.0[hexagon.face].get(ancestry.base * 8 + ancestry.leading_digit())
    }

    fn get(&self, hexagon: &Hexagon) -> Option<(u8, Turn)> {
        let entry = self.entry(hexagon)?.load(Ordering::Relaxed);
        let base_cell = (entry >> 3 & 0x7f) as u8;
        (entry & Self::KNOWN != 0).then_some((base_cell, Turn::from_bits(entry & 7)))
    }

    #[cold]
    fn learn(&self, hexagon: &Hexagon, cell: CellIndex) -> u64 {
        let index = u64::from(cell);
        let digits = (index & ((1 << 45) - 1)) >> hexagon.unused_bits();
        let turn = Turn::all().find(|turn| turn.of(hexagon.ancestry.digits) == digits);
        if let (Some(entry), Some(turn)) = (self.entry(hexagon), turn) {
            let base_cell = u16::from(u8::from(cell.base_cell()));
            entry.store(
                Self::KNOWN | base_cell << 3 | turn.bits(),
                Ordering::Relaxed,
            );
        }
        index
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Else every cell would be right and slow.
    #[track_caller]
    fn check_share_of_h3o(resolution: Resolution, limit: usize) {
        // A spiral around the globe with equal areas; the step is the golden angle.
        let points = 200_000;
        let unclear = (0..points)
            .filter(|&at| {
                let height = 1.0 - (2.0 * f64::from(at) + 1.0) / f64::from(points);
                let longitude = (f64::from(at) * 137.507_764_05).rem_euclid(360.0) - 180.0;
                Hexagon::of(height.asin().to_degrees(), longitude, resolution).is_none()
            })
            .count();
        assert!(unclear <= limit, "{unclear} of {points} at {resolution}");
    }

    #[test]
    fn hardly_a_position_is_left_to_h3o() {
        check_share_of_h3o(Resolution::Nine, 1);
        check_share_of_h3o(Resolution::Twelve, 2);
        check_share_of_h3o(Resolution::Fifteen, 12);
    }

    #[test]
    fn h3o_is_asked_once_for_what_a_group_of_cells_shares() {
        let placements = Placements::new();
        let check = |latitude, longitude, known: bool| {
            let hexagon = Hexagon::of(latitude, longitude, Resolution::Twelve);
            let hexagon = hexagon.expect("away from borders");
            let point = LatLng::new(latitude, longitude).expect("finite");
            let cell = u64::from(point.to_cell(Resolution::Twelve));
            assert_eq!(hexagon.index(&placements), known.then_some(cell));
            assert_eq!(
                placements.learn(&hexagon, point.to_cell(Resolution::Twelve)),
                cell
            );
        };
        // Berlin; Beijing, in a pentagon.
        check(52.52, 13.405, false);
        check(52.53, 13.411, true);
        check(39.904, 116.407, false);
        check(39.914, 116.391, true);
    }
}
