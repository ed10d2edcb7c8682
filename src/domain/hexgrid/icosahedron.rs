//! The sphere onto the faces of H3's icosahedron.

use std::array;

use h3o::{LatLng, Resolution};

use super::{
    super::vector::Vector,
    lattice::{Point, round},
};

pub(super) const FACES: usize = 20;

const GOLDEN: f64 = 1.618_033_988_749_895;
const INVERSE: f64 = GOLDEN - 1.0;

/// The gnomonic projection onto a face's plane: coordinates are scalar products with `i` and `j`
/// over the one with `centre`.
#[derive(Clone, Copy, Debug)]
struct Face {
    centre: Vector,
    i: Vector,
    j: Vector,
}

pub(super) struct Icosahedron {
    /// Of -180° to 180°.
    whole_degrees: [(f64, f64); 361],
    /// Through the middles of edges, at right angles.
    axes: [Vector; 3],
    faces: [Face; FACES],
}

impl Icosahedron {
    pub(super) fn new() -> Self {
        let axes = axes();
        // A face may be turned by thirds against H3's: its digits are turned as h3o shows anyway.
        let faces = array::from_fn(|number| {
            let centre = face_centre(number);
            let corner = corners().max_by(|a, b| a.dot(centre).total_cmp(&b.dot(centre)));
            let on_sphere = |Vector([x, y, z])| {
                Vector::sum([(x, axes[0]), (y, axes[1]), (z, axes[2])]).normalized()
            };
            face(
                on_sphere(centre),
                on_sphere(corner.expect("twelve corners")),
            )
        });
        Self {
            whole_degrees: array::from_fn(|at| (at as f64 - 180.0).to_radians().sin_cos()),
            axes,
            faces,
        }
    }

    /// None for more than 180°.
    #[inline]
    pub(super) fn point(&self, latitude_deg: f64, longitude_deg: f64) -> Option<Vector> {
        Some(Vector::of_sin_cos(
            self.sin_cos(latitude_deg)?,
            self.sin_cos(longitude_deg)?,
        ))
    }

    /// By the addition theorems: a whole number of degrees from the table, and up to half a degree
    /// by the first terms of the series, of which those left out are below 10⁻²¹.
    fn sin_cos(&self, degrees: f64) -> Option<(f64, f64)> {
        let (whole, rest) = round(degrees);
        let &(sin, cos) = self.whole_degrees.get(usize::try_from(whole + 180).ok()?)?;
        let x = rest.to_radians();
        let x2 = x * x;
        let sin_x = x - x * x2 * (1.0 / 6.0 - x2 * (1.0 / 120.0 - x2 * (1.0 / 5040.0)));
        let versin_x = x2 * (0.5 - x2 * (1.0 / 24.0 - x2 * (1.0 / 720.0)));
        Some((
            sin + (cos * sin_x - sin * versin_x),
            cos - (sin * sin_x + cos * versin_x),
        ))
    }

    /// Near an edge possibly the second nearest.
    #[inline]
    pub(super) fn nearest_face(&self, point: Vector) -> usize {
        let [x, y, z] = self.axes.map(|axis| axis.dot(point));
        let [distance_x, distance_y, distance_z] = [x, y, z].map(f64::abs);
        let mut nearest = distance_x + distance_y + distance_z;
        let mut face = face_number(0, [x, y, z]);
        let rest = [
            (
                distance_x * INVERSE + distance_z * GOLDEN,
                face_number(8, [x, z]),
            ),
            (
                distance_x * GOLDEN + distance_y * INVERSE,
                face_number(12, [x, y]),
            ),
            (
                distance_y * GOLDEN + distance_z * INVERSE,
                face_number(16, [y, z]),
            ),
        ];
        for (along, number) in rest {
            if along > nearest {
                nearest = along;
                face = number;
            }
        }
        face
    }

    #[inline]
    pub(super) fn project(&self, point: Vector, face: usize) -> Point {
        let face = &self.faces[face];
        let scale = 1.0 / face.centre.dot(point);
        Point {
            i: face.i.dot(point) * scale,
            j: face.j.dot(point) * scale,
        }
    }
}

/// Base cells that are pentagons stand on the corners of H3's icosahedron. The middle of an edge
/// and the edge's direction are two of three axes in which its corners are (0, ±1, ±φ) and what
/// becomes of these when the coordinates change places in a ring.
fn axes() -> [Vector; 3] {
    let mut corners = Resolution::Zero.pentagons().map(|cell| {
        let centre = LatLng::from(cell);
        Vector::of(centre.lat_radians(), centre.lng_radians())
    });
    let corner = corners.next().expect("twelve pentagons");
    // cos 63.4° is 0.447; the next nearest corners are 116.6° away.
    let neighbour = corners
        .find(|other| other.dot(corner) > 0.4)
        .expect("five neighbours");
    let z = Vector::sum([(1.0, corner), (1.0, neighbour)]).normalized();
    let y = Vector::sum([(1.0, corner), (-1.0, neighbour)]).normalized();
    [y.cross(z), y, z]
}

fn corners() -> impl Iterator<Item = Vector> {
    (0..12).map(|number| {
        let mut corner = [0.0, sign(number), sign(number >> 1) * GOLDEN];
        corner.rotate_right(number / 4);
        Vector(corner)
    })
}

/// The corners of a cube, (±1, ±1, ±1), and of three rectangles; all of one length.
fn face_centre(number: usize) -> Vector {
    let [a, b, c] = [sign(number), sign(number >> 1), sign(number >> 2)];
    Vector(match number {
        0..8 => [a, b, c],
        8..12 => [a * INVERSE, 0.0, b * GOLDEN],
        12..16 => [a * GOLDEN, b * INVERSE, 0.0],
        _ => [0.0, a * GOLDEN, b * INVERSE],
    })
}

/// Of the faces counted from `first`, the one whose coordinates have these signs.
fn face_number<const N: usize>(first: usize, coordinates: [f64; N]) -> usize {
    let bits = coordinates.map(|coordinate| usize::from(coordinate < 0.0));
    (0..N).fold(first, |number, at| number | bits[at] << at)
}

fn sign(number: usize) -> f64 {
    if number & 1 == 0 { 1.0 } else { -1.0 }
}

/// The i-axis points at a corner, 2 units away, which the plane has at 2/φ².
fn face(centre: Vector, corner: Vector) -> Face {
    let x = Vector::sum([(1.0, corner), (-centre.dot(corner), centre)]).normalized();
    let y = centre.cross(x);
    let scale = GOLDEN * GOLDEN;
    let root = 3_f64.sqrt();
    Face {
        centre,
        i: Vector::sum([(scale, x), (scale / root, y)]),
        j: Vector::sum([(2.0 * scale / root, y)]),
    }
}
