//! Positions and the cells that hold them.

use h3o::CellIndex;

use super::{
    hexgrid,
    reason::{Reason, Rejection},
};

pub use h3o::Resolution;

/// Mean radius of the Earth (IUGG R1), metres.
pub(super) const EARTH_RADIUS_M: f64 = 6_371_008.8;

/// EPSG:4326 in degrees, both finite and in range, −0 written as 0 and −180° as 180°.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Position {
    latitude_deg: f64,
    longitude_deg: f64,
}

impl Position {
    pub fn new(latitude_deg: f64, longitude_deg: f64) -> Result<Self, Rejection> {
        for (name, value, limit) in [
            ("latitude", latitude_deg, 90.0),
            ("longitude", longitude_deg, 180.0),
        ] {
            if !value.is_finite() || value.abs() > limit {
                return Err(Rejection::new(
                    Reason::InvalidPosition,
                    format!("{name} {value:e} is not within -{limit}..={limit} degrees"),
                ));
            }
        }
        if latitude_deg == 0.0 && longitude_deg == 0.0 {
            return Err(Rejection::new(
                Reason::NullIsland,
                "(0, 0) is what a receiver without a fix reports",
            ));
        }
        Ok(Self::from_stored(latitude_deg, longitude_deg))
    }

    /// A position that a claim holds: it was judged when the claim was made.
    pub(crate) fn from_stored(latitude_deg: f64, longitude_deg: f64) -> Self {
        let longitude_deg = if longitude_deg == -180.0 {
            180.0
        } else {
            longitude_deg
        };
        // −0 + 0 is 0; every other value stays as it is.
        Self {
            latitude_deg: latitude_deg + 0.0,
            longitude_deg: longitude_deg + 0.0,
        }
    }

    pub const fn latitude_deg(self) -> f64 {
        self.latitude_deg
    }

    pub const fn longitude_deg(self) -> f64 {
        self.longitude_deg
    }

    /// Great-circle distance in metres by the haversine formula.
    pub fn distance_m(self, other: Self) -> f64 {
        let (lat_a, lat_b) = (
            self.latitude_deg.to_radians(),
            other.latitude_deg.to_radians(),
        );
        let half_lat = (lat_b - lat_a) / 2.0;
        let half_lon = (other.longitude_deg - self.longitude_deg).to_radians() / 2.0;
        let h = half_lat.sin().powi(2) + lat_a.cos() * lat_b.cos() * half_lon.sin().powi(2);
        2.0 * EARTH_RADIUS_M * h.sqrt().min(1.0).asin()
    }

    /// Whether the distance is more than nothing and at most `radius_m`.
    pub fn is_beside(self, other: Self, radius_m: f64) -> bool {
        // The way along a meridian and then along the equator is no shorter, and where latitudes differ
        // by so much there is one: that settles nearly all without a sine. Radians of two positions are
        // rounded to some 1e-9 m each.
        const CERTAINLY_APART_DEG: f64 = 1e-12;
        const ROUNDING_M: f64 = 1e-6;
        let north_deg = (other.latitude_deg - self.latitude_deg).abs();
        let east_deg = (other.longitude_deg - self.longitude_deg).abs();
        let at_most_m = (north_deg + east_deg).to_radians() * EARTH_RADIUS_M;
        if north_deg >= CERTAINLY_APART_DEG && at_most_m <= radius_m - ROUNDING_M {
            return true;
        }
        let distance_m = self.distance_m(other);
        distance_m > 0.0 && distance_m <= radius_m
    }

    pub fn cell(self, resolution: Resolution) -> Cell {
        Cell(hexgrid::index(
            self.latitude_deg,
            self.longitude_deg,
            resolution,
        ))
    }
}

/// An H3 cell (H3 C library, version 4).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cell(u64);

impl Cell {
    /// The index, whose lower-case hexadecimal form goes into keys.
    pub const fn index(self) -> u64 {
        self.0
    }
}

impl From<Cell> for CellIndex {
    fn from(cell: Cell) -> Self {
        Self::try_from(cell.0).expect("the index of a cell")
    }
}

impl From<CellIndex> for Cell {
    fn from(index: CellIndex) -> Self {
        Self(index.into())
    }
}

impl std::fmt::Display for Cell {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:x}", self.index())
    }
}

/// A box between two parallels and two meridians, borders included; it may cross the antimeridian.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Region {
    south_deg: f64,
    west_deg: f64,
    north_deg: f64,
    east_deg: f64,
}

impl Region {
    /// `[south, west, north, east]` in degrees; west above east means across the antimeridian.
    pub fn new([south_deg, west_deg, north_deg, east_deg]: [f64; 4]) -> Result<Self, &'static str> {
        let latitudes = [south_deg, north_deg].iter().all(|deg| deg.abs() <= 90.0);
        let longitudes = [west_deg, east_deg].iter().all(|deg| deg.abs() <= 180.0);
        if !latitudes || !longitudes || south_deg > north_deg {
            return Err("must be [south, west, north, east] in degrees, south not above north");
        }
        Ok(Self {
            south_deg,
            west_deg,
            north_deg,
            east_deg,
        })
    }

    pub fn contains(&self, position: Position) -> bool {
        let lat = position.latitude_deg;
        let within = |lon: f64| {
            if self.west_deg <= self.east_deg {
                (self.west_deg..=self.east_deg).contains(&lon)
            } else {
                lon >= self.west_deg || lon <= self.east_deg
            }
        };
        let lon = position.longitude_deg;
        // The antimeridian has two numbers, and a position keeps only one of them.
        (self.south_deg..=self.north_deg).contains(&lat)
            && (within(lon) || (lon == 180.0 && within(-180.0)))
    }

    pub const fn corners_deg(&self) -> [f64; 4] {
        [self.south_deg, self.west_deg, self.north_deg, self.east_deg]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Pairs from everywhere, poles and the antimeridian included, from nothing to some metres apart.
    #[test]
    fn beside_is_what_the_distance_says() {
        let mut state = 7_u64;
        // Xorshift (Marsaglia, 2003): from 0 to 1.
        let mut random = || {
            state ^= state << 13;
            state ^= state >> 7;
            state ^= state << 17;
            (state >> 11) as f64 / (1_u64 << 53) as f64
        };
        let mut beside = 0;
        for _ in 0..200_000 {
            let latitude = match (random() * 4.0) as u8 {
                0 => 90.0,
                1 => -90.0 + random() * 1e-4,
                _ => random() * 180.0 - 90.0,
            };
            let longitude = match (random() * 4.0) as u8 {
                0 => 180.0,
                _ => random() * 360.0 - 180.0,
            };
            let mut moved = |degrees: f64, most: f64| {
                let step = match (random() * 6.0) as u8 {
                    0 => 0.0,
                    1 => 1e-12,
                    2 => 1e-13,
                    _ => (random() - 0.5) * 4e-4,
                };
                (degrees + step).clamp(-most, most)
            };
            let other = (moved(latitude, 90.0), moved(longitude, 180.0));
            let position = |(latitude, longitude)| Position::new(latitude, longitude);
            let (Ok(here), Ok(there)) = (position((latitude, longitude)), position(other)) else {
                continue;
            };
            let distance_m = here.distance_m(there);
            for radius_m in [0.0, 1e-3, 20.0, distance_m, distance_m * (1.0 - 1e-12)] {
                let expected = distance_m > 0.0 && distance_m <= radius_m;
                assert_eq!(
                    here.is_beside(there, radius_m),
                    expected,
                    "{here:?} {there:?} {radius_m}"
                );
                beside += usize::from(expected);
            }
        }
        assert!(beside > 100_000, "{beside}");
    }
}
