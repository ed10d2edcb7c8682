//! Points of a projected or geographic reference system, reprojected to EPSG:4326.
//!
//! What a code means is the PROJ string of crs-definitions, compiled in; proj4rs does the mathematics. No grid is
//! read and no file opened, so a datum shift is the string's own Helmert transformation, within a few metres of the
//! truth where an authority publishes a grid. **Keys of projected positions are defined by dedupd alone**: whoever
//! computes keys elsewhere sends `lat_lng`. A result is rounded to a billionth of a degree (a tenth of a millimetre),
//! so that the last bits of one machine's sines do not make a position another one.
//!
//! x is the easting and y the northing, in the system's own units, or its westing and southing where its axes point
//! there (the South African Lo zones), as pyproj has it with `always_xy`. Of a geographic system x is the longitude
//! and y the latitude, in degrees, and where its datum counts as WGS 84 (EPSG:4326, 4258, 4269, …) they are the
//! position as they stand, with the keys of the same `lat_lng`.
//!
//! A code is answered only if its string says all that the transformation needs ([`Refusal`] lists what is missing
//! otherwise). A string cannot tell a geographic 3D system from its 2D part, and they are read alike: height plays
//! no part.
//!
//! A point lies in the domain of its projection if the inverse yields a place on Earth, the forward projection of
//! that place is the point again within [`ROUND_TRIP_M`], and it is
//! where such a map is still used ([`Domain`]). That is wider than the area in which an authority means a system to be used: the namespace's region is for that.

use std::sync::{LazyLock, OnceLock};

use proj4rs::{Proj, transform::transform};

use super::{
    place::{EARTH_RADIUS_M, Position},
    reason::{Reason, Rejection},
};

/// How far from the point its place may be projected. In all areas of use it is 0.09 m at most: proj4rs inverts a
/// Helmert rotation to the first order only.
const ROUND_TRIP_M: f64 = 1.0;

/// The ends of web maps (EPSG's area of use of 3857): beyond, Mercator goes on for ever.
const MERCATOR_LATITUDE_DEG: f64 = 85.06;

/// Largest stretch or shrinking of lengths. In the areas of use it is 1.11 on the maps of countries, 1.30 on those of
/// continents and 1.41 on those of hemispheres.
const SCALE: f64 = 1.5;

/// Farthest that the map of a country or a continent reaches from its central meridian.
const MERIDIAN_DISTANCE_M: f64 = 4_000_000.0;

/// The scale is measured over 64 m along the meridian.
const SCALE_STEP_RAD: f64 = 1e-5;

/// Results are multiples of one part in this many of a degree.
const PARTS_OF_A_DEGREE: f64 = 1e9;

/// EPSG codes of reference systems fit in 16 bits, and so what is cached of them is bounded: 65,536 slots, in pages
/// that are made on first use (256 of 6 KiB), and one parsed definition for each of some 5,000 codes.
const PAGE_SLOTS: usize = 256;
type Page = Box<[OnceLock<Result<Box<Crs>, Refusal>>]>;

/// Systems whose strings lost what their meaning hangs on. Found by comparing every code with PROJ 9.5 at nine
/// points of its area of use: these lie more than a kilometre off. So do six that are kept: 3906, 3909, 6204 and
/// 6316, only where PROJ prefers an operation for Kosovo from which its others for the same place differ by 1.6 km too,
/// and 6996 and 6997, whose scale it has as 0.000001.
const MISDESCRIBED: [u16; 16] = [
    2065,  // southing and westing
    3303,  // shift of Fatu Iva 72
    3973,  // on the authalic sphere
    3974,  // on the authalic sphere
    3975,  // on the authalic sphere
    4055,  // latitudes of WGS 84 on a sphere
    4688,  // shift of Fatu Iva 72
    4807,  // grads
    4810,  // grads
    4811,  // grads
    4816,  // grads
    4819,  // grads
    5513,  // southing and westing
    6200,  // latitude of origin
    26591, // prime meridian
    26592, // prime meridian
];

/// Why a code is not answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
enum Refusal {
    Unknown,
    NotHorizontal,
    Method,
    Grid,
    Datum,
    Misdescribed,
}

impl Refusal {
    const fn in_words(self) -> &'static str {
        match self {
            Refusal::Unknown => "is not known as a projected or geographic reference system",
            Refusal::NotHorizontal => "is not a projected or geographic 2D reference system",
            Refusal::Method => "uses a map projection that is not supported",
            Refusal::Grid => "needs a datum grid, which dedupd does not carry",
            Refusal::Datum => "has no known transformation to WGS 84",
            Refusal::Misdescribed => "has units, axes or a datum that are not supported",
        }
    }
}

/// A reference system, ready to use.
#[derive(Debug)]
enum Crs {
    /// Longitude and latitude that are WGS 84's already.
    Wgs84,
    /// Longitude and latitude of another datum or prime meridian.
    Geographic(Proj),
    Projected(Proj, Domain),
}

/// Where a projection is taken at its word.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Domain {
    /// Cylinders and the like that show the whole Earth, once.
    World,
    Mercator,
    /// Round a pole or another point: where lengths are stretched or shrunk by [`SCALE`] at most.
    Azimuthal,
    /// The same, within [`MERIDIAN_DISTANCE_M`] of this meridian and on its side of the poles.
    Regional {
        meridian_deg: f64,
    },
}

/// The place in EPSG:4326 of a point of the reference system `EPSG:epsg`.
pub fn reproject(x: f64, y: f64, epsg: u32) -> Result<Position, Rejection> {
    if !x.is_finite() || !y.is_finite() {
        return Err(Rejection::new(
            Reason::InvalidPosition,
            format!("x {x:e} and y {y:e} must be finite"),
        ));
    }
    let crs = find(epsg).map_err(|refusal| {
        Rejection::new(
            Reason::UnknownCrs,
            format!(
                "EPSG:{epsg} {}; send EPSG:4326 as lat_lng",
                refusal.in_words()
            ),
        )
    })?;
    let (longitude_deg, latitude_deg) = crs.degrees_of(x, y).ok_or_else(|| {
        Rejection::new(
            Reason::InvalidPosition,
            format!("({x:e}, {y:e}) lies outside the domain of EPSG:{epsg}; easting and northing in its units?"),
        )
    })?;
    Position::new(latitude_deg, longitude_deg)
}

/// The first use of a code reads its definition; afterwards this is two atomic loads.
fn find(epsg: u32) -> Result<&'static Crs, Refusal> {
    static PAGES: [OnceLock<Page>; PAGE_SLOTS] = [const { OnceLock::new() }; PAGE_SLOTS];
    let code = u16::try_from(epsg).map_err(|_| Refusal::Unknown)?;
    let [page, slot] = code.to_be_bytes().map(usize::from);
    let page = PAGES[page].get_or_init(|| (0..PAGE_SLOTS).map(|_| OnceLock::new()).collect());
    match page[slot].get_or_init(|| read(code).map(Box::new)) {
        Ok(crs) => Ok(crs),
        Err(refusal) => Err(*refusal),
    }
}

fn read(code: u16) -> Result<Crs, Refusal> {
    let definition = crs_definitions::from_code(code)
        .ok_or(Refusal::Unknown)?
        .proj4;
    if MISDESCRIBED.contains(&code) {
        return Err(Refusal::Misdescribed);
    }
    let value_of = |name| parameter(definition, name);
    if value_of("vunits").is_some() || value_of("geoidgrids").is_some() {
        return Err(Refusal::NotHorizontal);
    }
    let domain = match value_of("proj").ok_or(Refusal::Unknown)? {
        "geocent" => return Err(Refusal::NotHorizontal),
        "longlat" => None,
        "cea" | "eqc" | "eqearth" => Some(Domain::World),
        "merc" => Some(Domain::Mercator),
        "laea" | "stere" => Some(Domain::Azimuthal),
        "aea" | "aeqd" | "cass" | "krovak" | "lcc" | "omerc" | "poly" | "somerc" | "sterea"
        | "tmerc" | "utm" => Some(Domain::Regional {
            meridian_deg: central_meridian_deg(definition),
        }),
        _ => return Err(Refusal::Method),
    };
    let shift = datum_shift(definition)?;
    if domain.is_none() && shift == Shift::None && value_of("pm").is_none() {
        return Ok(Crs::Wgs84);
    }
    let proj = Proj::from_proj_string(definition).map_err(|_| Refusal::Method)?;
    Ok(match domain {
        None => Crs::Geographic(proj),
        Some(domain) => Crs::Projected(proj, domain),
    })
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Shift {
    None,
    Known,
}

/// Without one, proj4rs would take any ellipsoid's degrees for those of WGS 84, up to a kilometre off.
fn datum_shift(definition: &str) -> Result<Shift, Refusal> {
    let value_of = |name| parameter(definition, name);
    match (value_of("nadgrids"), value_of("datum")) {
        (Some("@null"), _) => return Ok(Shift::Known),
        (Some(_), _) | (None, Some("NAD27")) => return Err(Refusal::Grid),
        (None, Some("WGS84" | "NAD83")) => return Ok(Shift::None),
        (None, Some(_)) => return Ok(Shift::Known),
        (None, None) => {}
    }
    // Their datums are within two metres of WGS 84 and of each other.
    let is_global = matches!(value_of("ellps"), Some("GRS80" | "WGS84"));
    match value_of("towgs84") {
        Some(shift) if !is_global || shift.split(',').any(|value| value != "0") => Ok(Shift::Known),
        None if !is_global => Err(Refusal::Datum),
        Some(_) | None => Ok(Shift::None),
    }
}

/// Of `+name=value`; nothing of `+name` is nothing.
fn parameter<'a>(definition: &'a str, name: &str) -> Option<&'a str> {
    definition
        .split_ascii_whitespace()
        .filter_map(|word| word.strip_prefix('+')?.split_once('='))
        .find(|(key, _)| *key == name)
        .map(|(_, value)| value)
}

impl Crs {
    /// Longitude and latitude, in degrees; `None` outside of the domain.
    fn degrees_of(&self, x: f64, y: f64) -> Option<(f64, f64)> {
        match self {
            Crs::Wgs84 => Some((x, y)),
            Crs::Geographic(proj) => {
                // proj4rs takes latitudes a little beyond the pole for the pole, and any longitude.
                let is_on_earth = x.abs() <= 180.0 && y.abs() <= 90.0;
                let (lon, lat) = to_wgs84(proj, x.to_radians(), y.to_radians())?;
                is_on_earth.then(|| (rounded_degrees(lon), rounded_degrees(lat)))
            }
            Crs::Projected(proj, domain) => {
                let (lon, lat) = to_wgs84(proj, x, y)?;
                let degrees = (rounded_degrees(lon), rounded_degrees(lat));
                let is_on_earth = degrees.0.abs() <= 180.0 && degrees.1.abs() <= 90.0;
                (is_on_earth
                    && domain.holds(proj, lon, lat)
                    && comes_back(proj, (x, y), (lon, lat)))
                .then_some(degrees)
            }
        }
    }
}

impl Domain {
    fn holds(self, proj: &Proj, lon: f64, lat: f64) -> bool {
        match self {
            Domain::World => true,
            Domain::Mercator => lat.to_degrees().abs() <= MERCATOR_LATITUDE_DEG,
            Domain::Azimuthal => has_fair_scale(proj, lon, lat),
            Domain::Regional { meridian_deg } => {
                let apart = lon - meridian_deg.to_radians() - proj.from_greenwich();
                let sine_limit = (MERIDIAN_DISTANCE_M / EARTH_RADIUS_M).sin();
                (lat.cos() * apart.sin()).abs() <= sine_limit
                    && apart.cos() >= 0.0
                    && has_fair_scale(proj, lon, lat)
            }
        }
    }
}

/// Zero where the string names none: the meridian of Greenwich, or of its own prime meridian.
fn central_meridian_deg(definition: &str) -> f64 {
    let number_of = |name| parameter(definition, name)?.parse::<f64>().ok();
    number_of("zone")
        .map(|zone| 6.0 * zone - 183.0)
        .or_else(|| number_of("lonc"))
        .or_else(|| number_of("lon_0"))
        .unwrap_or(0.0)
}

fn has_fair_scale(proj: &Proj, lon: f64, lat: f64) -> bool {
    scale_at(proj, lon, lat).is_some_and(|scale| (SCALE.recip()..=SCALE).contains(&scale))
}

/// Along the meridian, which is enough: these maps are conformal, or what they shrink one way they stretch the other.
fn scale_at(proj: &Proj, lon: f64, lat: f64) -> Option<f64> {
    let inward = lat - SCALE_STEP_RAD.copysign(lat);
    let (here, there) = (from_wgs84(proj, lon, lat)?, from_wgs84(proj, lon, inward)?);
    Some(distance_m(proj, here, there) / (EARTH_RADIUS_M * SCALE_STEP_RAD))
}

fn comes_back(proj: &Proj, point: (f64, f64), (lon, lat): (f64, f64)) -> bool {
    from_wgs84(proj, lon, lat).is_some_and(|back| distance_m(proj, point, back) <= ROUND_TRIP_M)
}

fn distance_m(proj: &Proj, a: (f64, f64), b: (f64, f64)) -> f64 {
    (a.0 - b.0).hypot(a.1 - b.1) * proj.to_meter()
}

fn to_wgs84(proj: &Proj, x: f64, y: f64) -> Option<(f64, f64)> {
    transformed(proj, wgs84(), x, y)
}

fn from_wgs84(proj: &Proj, lon: f64, lat: f64) -> Option<(f64, f64)> {
    transformed(wgs84(), proj, lon, lat)
}

/// proj4rs has angles in radians.
fn transformed(from: &Proj, to: &Proj, x: f64, y: f64) -> Option<(f64, f64)> {
    let mut point = (x, y, 0.0);
    transform(from, to, &mut point).ok()?;
    (point.0.is_finite() && point.1.is_finite()).then_some((point.0, point.1))
}

fn wgs84() -> &'static Proj {
    static WGS84: LazyLock<Proj> = LazyLock::new(|| {
        Proj::from_proj_string("+proj=longlat +datum=WGS84").expect("proj4rs knows WGS 84")
    });
    &WGS84
}

fn rounded_degrees(radians: f64) -> f64 {
    (radians.to_degrees() * PARTS_OF_A_DEGREE).round() / PARTS_OF_A_DEGREE
}

#[cfg(test)]
mod tests;
