//! Points on the unit sphere, and what separates them.

use std::array;

/// x towards (0°, 0°), y towards (0°, 90° E), z towards the north pole.
#[derive(Clone, Copy, Debug)]
pub(super) struct Vector(pub(super) [f64; 3]);

impl Vector {
    pub(super) fn of(latitude: f64, longitude: f64) -> Self {
        Self::of_sin_cos(latitude.sin_cos(), longitude.sin_cos())
    }

    #[inline]
    pub(super) fn of_sin_cos(
        (sin_lat, cos_lat): (f64, f64),
        (sin_lng, cos_lng): (f64, f64),
    ) -> Self {
        Self([cos_lat * cos_lng, cos_lat * sin_lng, sin_lat])
    }

    /// The sum of vectors, each taken so many times.
    pub(super) fn sum<const N: usize>(terms: [(f64, Self); N]) -> Self {
        Self(array::from_fn(|at| {
            terms
                .iter()
                .map(|(times, vector)| times * vector.0[at])
                .sum()
        }))
    }

    #[inline]
    pub(super) fn dot(self, other: Self) -> f64 {
        let ([a, b, c], [x, y, z]) = (self.0, other.0);
        a * x + b * y + c * z
    }

    pub(super) fn cross(self, other: Self) -> Self {
        let ([a, b, c], [x, y, z]) = (self.0, other.0);
        Self([b * z - c * y, c * x - a * z, a * y - b * x])
    }

    pub(super) fn length(self) -> f64 {
        self.dot(self).sqrt()
    }

    pub(super) fn normalized(self) -> Self {
        Self::sum([(1.0 / self.length(), self)])
    }

    /// Exact for small angles too, where the cosine is not.
    pub(super) fn angle(self, other: Self) -> f64 {
        self.cross(other).length().atan2(self.dot(other))
    }
}
