//! The product's cells are h3o's, above all where rounding might decide.
//!
//! A stream has a resolution and 10,000 positions:
//! `DEDUPD_PROPERTY_STREAMS=10000 cargo test --release --test it hexgrid::` is 100 million.

use dedupd::domain::place::{Position, Resolution};
use h3o::{BaseCell, CellIndex, LatLng};
use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

use crate::property::seeds::{Playing, seeds};

type Vector = [f64; 3];

/// Every resolution has one.
const STREAMS: u64 = 16;

struct Stream {
    random: ChaCha8Rng,
    resolution: Resolution,
    checked: u64,
}

impl Stream {
    fn check(&mut self, latitude: f64, longitude: f64) {
        let Ok(position) = Position::new(latitude, longitude) else {
            assert!(latitude == 0.0 && longitude == 0.0, "null island alone");
            return;
        };
        let point = LatLng::new(latitude, longitude).expect("finite");
        let (resolution, cell) = (self.resolution, point.to_cell(self.resolution));
        assert_eq!(
            position.cell(resolution).index(),
            u64::from(cell),
            "({latitude:e}, {longitude:e}) at {resolution}"
        );
        self.checked += 1;
    }

    /// Beside a point of the sphere: there, within a nanometre, or as far as `reach`, any order of
    /// magnitude as likely.
    fn check_beside(&mut self, point: Vector, reach: f64) {
        let nearest = 1e-16_f64;
        let far = nearest * (reach / nearest).powf(self.random.random());
        let point = point.map(|part| part + far * self.random.random_range(-1.0..=1.0));
        let [x, y, z] = scaled(point, 1.0 / dot(point, point).sqrt());
        self.check(
            z.clamp(-1.0, 1.0).asin().to_degrees(),
            y.atan2(x).to_degrees(),
        );
    }

    /// Corners and edges, and a way off them.
    fn check_border(&mut self, cell: CellIndex) {
        let boundary = cell.boundary();
        let width = cell.resolution().edge_length_rads();
        for at in 0..boundary.len() {
            let (from, to) = (boundary[at], boundary[(at + 1) % boundary.len()]);
            let share = self.random.random();
            self.check(from.lat(), from.lng());
            self.check_beside(vector(from), width);
            self.check_beside(between(vector(from), vector(to), share), width);
        }
    }

    fn anywhere(&mut self) -> LatLng {
        let height: f64 = self.random.random_range(-1.0..=1.0);
        let longitude = self.random.random_range(-180.0..=180.0);
        LatLng::new(height.asin().to_degrees(), longitude).expect("finite")
    }

    fn play(&mut self) {
        for _ in 0..100 {
            let point = self.anywhere();
            self.check(point.lat(), point.lng());
            self.check_border(point.to_cell(self.resolution));
        }
        for base_cell in BaseCell::iter() {
            self.check_base_cell(base_cell);
        }
        for pentagon in self.resolution.pentagons() {
            self.check_beside(vector(pentagon.into()), 1.0);
            for cell in pentagon.grid_disk_safe(1) {
                self.check_border(cell);
            }
        }
        self.check_faces();
        self.check_degrees();
    }

    fn check_base_cell(&mut self, base_cell: BaseCell) {
        let index = (1 << 59) | (u64::from(u8::from(base_cell)) << 45) | ((1 << 45) - 1);
        let cell = CellIndex::try_from(index).expect("a cell of resolution 0");
        self.check_border(cell);
        let centre = LatLng::from(cell);
        self.check(centre.lat(), centre.lng());
        self.check_beside(vector(centre), 0.2);
        // A cell where two base cells meet.
        let boundary = cell.boundary();
        let share = self.random.random();
        let (from, to) = (vector(boundary[0]), vector(boundary[1]));
        let [x, y, z] = between(from, to, share);
        let on_edge = LatLng::from_radians(z.asin(), y.atan2(x)).expect("finite");
        self.check_border(on_edge.to_cell(self.resolution));
    }

    /// The icosahedron's edges and the centres of its faces, between pentagons.
    fn check_faces(&mut self) {
        let corners: Vec<Vector> = Resolution::Zero
            .pentagons()
            .map(|cell| vector(cell.into()))
            .collect();
        let are_neighbours = |a: Vector, b: Vector| dot(a, b) > 0.4 && dot(a, b) < 0.9;
        let (mut edges, mut faces) = (0, 0);
        for (at, &a) in corners.iter().enumerate() {
            for (next, &b) in corners.iter().enumerate().skip(at) {
                if !are_neighbours(a, b) {
                    continue;
                }
                edges += 1;
                for _ in 0..5 {
                    let share = self.random.random();
                    self.check_beside(between(a, b, share), 1e-3);
                }
                for &c in &corners[next..] {
                    if !(are_neighbours(a, c) && are_neighbours(b, c)) {
                        continue;
                    }
                    faces += 1;
                    let sum = [0, 1, 2].map(|at| a[at] + b[at] + c[at]);
                    for _ in 0..5 {
                        self.check_beside(scaled(sum, 1.0 / dot(sum, sum).sqrt()), 1e-2);
                    }
                }
            }
        }
        assert_eq!((edges, faces), (30, 20));
    }

    /// Poles, antimeridian, whole and half degrees, and the next numbers on either side.
    fn check_degrees(&mut self) {
        for _ in 0..100 {
            let latitude = f64::from(self.random.random_range(-180..=180)) / 2.0;
            let longitude = f64::from(self.random.random_range(-360..=360)) / 2.0;
            let any = self.anywhere();
            for (latitude, longitude) in [
                (latitude, longitude),
                (latitude, any.lng()),
                (any.lat(), longitude),
                (any.lat(), 180.0),
                (any.lat(), (-180.0_f64).next_up()),
                (90.0, any.lng()),
                ((-90.0_f64).next_up(), any.lng()),
            ] {
                self.check(latitude, longitude);
                self.check(latitude.next_up().min(90.0), longitude.next_up().min(180.0));
                self.check(
                    latitude.next_down().max(-90.0),
                    longitude.next_down().max(-180.0),
                );
            }
        }
    }
}

fn vector(at: LatLng) -> Vector {
    let (latitude, longitude) = (at.lat_radians(), at.lng_radians());
    [
        latitude.cos() * longitude.cos(),
        latitude.cos() * longitude.sin(),
        latitude.sin(),
    ]
}

fn dot(a: Vector, b: Vector) -> f64 {
    a.iter().zip(b).map(|(a, b)| a * b).sum()
}

fn scaled(a: Vector, times: f64) -> Vector {
    a.map(|part| part * times)
}

/// On the sphere.
fn between(a: Vector, b: Vector, share: f64) -> Vector {
    let sum = [0, 1, 2].map(|at| (1.0 - share) * a[at] + share * b[at]);
    scaled(sum, 1.0 / dot(sum, sum).sqrt())
}

#[test]
fn every_cell_is_h3os() {
    for seed in seeds(STREAMS) {
        let _playing = Playing {
            test: "hexgrid::every_cell_is_h3os",
            seed,
        };
        let resolution = u8::try_from(seed % 16).expect("below 16");
        let mut stream = Stream {
            random: ChaCha8Rng::seed_from_u64(seed),
            resolution: Resolution::try_from(resolution).expect("0 to 15"),
            checked: 0,
        };
        stream.play();
        assert!(stream.checked > 10_000, "{} positions", stream.checked);
    }
}
