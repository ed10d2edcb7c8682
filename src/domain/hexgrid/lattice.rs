//! Hexagons in the plane of a face: the nearest one, and its ancestors.
//!
//! Coordinates are along H3's axes i and j, 120° apart, in distances between neighbours; its third
//! axis k is −i − j. A resolution's grid is √7 times finer than the one before and turned by
//! 19.1°, to and fro (classes II and III), so that either turns whole coordinates into whole ones
//! and two steps are a factor of 7.

/// 7⁰ to 7¹⁵.
pub(super) const POWERS_OF_7: [f64; 16] = {
    let mut powers = [1.0; 16];
    let mut at = 1;
    while at < 16 {
        powers[at] = 7.0 * powers[at - 1];
        at += 1;
    }
    powers
};

#[derive(Clone, Copy, Debug)]
pub(super) struct Point {
    pub(super) i: f64,
    pub(super) j: f64,
}

impl Point {
    /// Whether all three edges of a triangle around the origin, with corners on the axes, are
    /// farther away from the origin than the point, if they are at `distance`.
    #[inline]
    pub(super) fn is_within_triangle(self, distance: f64) -> bool {
        let Self { i, j } = self;
        (i + j) / 2.0 < distance && j / 2.0 - i < distance && i / 2.0 - j < distance
    }

    /// From the origin.
    #[inline]
    pub(super) fn length_squared(self) -> f64 {
        self.i * self.i - self.i * self.j + self.j * self.j
    }

    /// In the grid of a resolution rather than 0.
    #[inline]
    pub(super) fn refined(self, resolution: u8) -> Self {
        let scale = POWERS_OF_7[usize::from(resolution / 2)];
        let (i, j) = (self.i * scale, self.j * scale);
        if resolution.is_multiple_of(2) {
            Self { i, j }
        } else {
            Self {
                i: 2.0 * i + j,
                j: 3.0 * j - i,
            }
        }
    }

    /// The nearest hexagon, and how far the point is from the hexagon's border; below 0 it would be
    /// outside.
    #[inline]
    pub(super) fn nearest(self) -> (i32, i32, f64) {
        let (mut i, mut di) = round(self.i);
        let (mut j, mut dj) = round(self.j);
        // Double the distances along the normals of the hexagon's edges.
        let (along_i, along_j) = (2.0 * di - dj, 2.0 * dj - di);
        if larger(along_i.abs(), along_j.abs()) > 1.0 {
            if along_i.abs() > along_j.abs() {
                i += along_i.signum() as i32;
                di -= along_i.signum();
            } else {
                j += along_j.signum() as i32;
                dj -= along_j.signum();
            }
        }
        let across = (di + dj).abs();
        let along = larger((2.0 * di - dj).abs(), (2.0 * dj - di).abs());
        (i, j, (1.0 - larger(along, across)) / 2.0)
    }
}

/// The nearest whole number of at most 31 bits, and what is left.
///
/// Where there are no digits after the point, adding rounds; the sum's low bits are the number.
#[inline]
pub(super) fn round(x: f64) -> (i32, f64) {
    const NO_FRACTIONS: f64 = 1.5 * (1_u64 << 52) as f64;
    let sum = x + NO_FRACTIONS;
    (sum.to_bits() as i32, x - (sum - NO_FRACTIONS))
}

/// One instruction, which `f64::max` is not, since it minds NaN.
fn larger(a: f64, b: f64) -> f64 {
    if a > b { a } else { b }
}

/// A hexagon's ancestor at resolution 0, and the way down to the hexagon: at each resolution which
/// one of seven.
pub(super) struct Ancestry {
    /// The ancestor's coordinates, each with 3 added: i · 8 + j.
    pub(super) base: usize,
    /// Three bits each, the finest last. A digit is 0 for the middle child, else the sum of its
    /// axes: 4 for i, 2 for j, 1 for k.
    pub(super) digits: u64,
}

impl Ancestry {
    /// Face and overhanging cells are within ±2.
    const OFFSET: i32 = 3;
    pub(super) const BASES: usize = 64;

    #[inline]
    pub(super) fn of(i: i32, j: i32, resolution: u8) -> Self {
        // Class III goes by its middle child, and that child's digit is dropped.
        let is_class3 = resolution % 2;
        let (i, j) = if is_class3 == 1 {
            (3 * i - j, i + 2 * j)
        } else {
            (i, j)
        };
        let pairs = resolution.div_ceil(2);
        let offset = Self::OFFSET * POWERS_OF_7[usize::from(pairs)] as i32;
        let (mut i, mut j) = ((i + offset) as u64, (j + offset) as u64);
        let (mut carry, mut digits) = (0, 0);
        for pair in 0..pairs {
            let (next_i, next_j) = (seventh(i), seventh(j));
            let rest = (i - 7 * next_i) * 8 + (j - 7 * next_j);
            let step = TWO_LEVELS[((rest + carry) & 63) as usize];
            digits |= u64::from(step & 0o77) << (6 * pair);
            carry = u64::from(step >> 6);
            (i, j) = (next_i, next_j);
        }
        Self {
            base: (i * 8 + j + carry) as usize,
            digits: digits >> (3 * is_class3),
        }
    }

    /// The first that is not 0; else 0.
    #[inline]
    pub(super) fn leading_digit(&self) -> usize {
        let highest_bit = 63 - (self.digits | 1).leading_zeros();
        (self.digits >> (highest_bit / 3 * 3) & 7) as usize
    }
}

/// Whole sevenths of less than 2³⁰: 7 · 613 566 757 is 2³² + 3.
const fn seventh(x: u64) -> u64 {
    (x * 613_566_757) >> 32
}

/// By the remainders of i and j modulo 7 (i · 8 + j; 7 is a remainder of 6 with a carry), for a
/// grid of class II: two digits, and above them what to add to the sevenths (i · 8 + j).
const TWO_LEVELS: [u16; 64] = {
    let mut steps = [0; 64];
    let mut at = 0;
    while at < 64 {
        let (i, j, fine) = parent(at / 8, at % 8, false);
        let (i, j, coarse) = parent(i, j, true);
        assert!(
            (i == 0 || i == 1) && (j == 0 || j == 1),
            "a carry of more than 1"
        );
        steps[at as usize] = ((i * 8 + j) as u16) << 6 | coarse << 3 | fine;
        at += 1;
    }
    steps
};

/// The coordinates of the hexagon of which this one is the digit-th child.
const fn parent(i: i32, j: i32, is_class3: bool) -> (i32, i32, u16) {
    let mut digit = 0;
    loop {
        let k = digit & 1;
        let (middle_i, middle_j) = (i - (digit >> 2) + k, j - (digit >> 1 & 1) + k);
        let (times_7_i, times_7_j) = if is_class3 {
            (3 * middle_i - middle_j, middle_i + 2 * middle_j)
        } else {
            (2 * middle_i + middle_j, 3 * middle_j - middle_i)
        };
        if times_7_i % 7 == 0 && times_7_j % 7 == 0 {
            return (times_7_i / 7, times_7_j / 7, digit as u16);
        }
        digit += 1;
    }
}

/// A turn by sixths about the middle of a base cell: half a turn or none, and thirds, counter-
/// clockwise.
#[derive(Clone, Copy, Debug)]
pub(super) struct Turn {
    halves: u16,
    thirds: u16,
}

impl Turn {
    pub(super) fn all() -> impl Iterator<Item = Self> {
        (0..6).map(Self::from_bits)
    }

    #[inline]
    pub(super) const fn from_bits(bits: u16) -> Self {
        Self {
            halves: bits & 1,
            thirds: bits >> 1 & 3,
        }
    }

    pub(super) const fn bits(self) -> u16 {
        self.thirds << 1 | self.halves
    }

    /// All digits at once: the opposite of a digit that is not 0 has the other bits, and a third
    /// of a turn takes i (4) to j (2), j to k (1), k to i.
    #[inline]
    pub(super) const fn of(self, digits: u64) -> u64 {
        const ONES: u64 = 0o111_111_111_111_111;
        let not_0 = (digits | digits >> 1 | digits >> 2) & ONES;
        let digits = digits ^ (not_0 * 7 * self.halves as u64);
        let moved = ONES * (7 >> self.thirds);
        let wrapped = (ONES * 7) ^ moved;
        (digits >> self.thirds & moved) | (digits << (3 - self.thirds) & wrapped)
    }
}
