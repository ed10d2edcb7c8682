//! What a stream is drawn from: numbers, rules, identities, places, texts.

use h3o::{CellIndex, LatLng, Resolution};

use super::super::facts::{days_before_year, days_in};
use super::super::{EARTH_RADIUS_M, Identity, Place, Rules, Window};
use super::SECOND;

/// SplitMix64.
#[derive(Debug)]
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    pub(crate) fn roll(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, end: u64) -> u64 {
        self.roll() % end
    }

    pub(crate) fn one_in(&mut self, chances: u64) -> bool {
        self.below(chances) == 0
    }

    pub(crate) fn pick<T: Clone>(&mut self, from: &[T]) -> T {
        from[self.below(from.len() as u64) as usize].clone()
    }

    /// From 0 up to, not including, 1.
    pub(crate) fn fraction(&mut self) -> f64 {
        (self.roll() >> 11) as f64 / (1_u64 << 53) as f64
    }
}

/// Rules that a configuration would accept: whole seconds for pings, TTL ≥ window + guard, no guard in space under
/// a session, lease ≤ TTL, keyed events alone. The space guard stays below the length of a cell's edge.
pub(crate) fn random_rules(dice: &mut Dice, home: (f64, f64)) -> Rules {
    let accepts_keyed = dice.one_in(6);
    let accepts_transitions = !accepts_keyed && dice.one_in(2);
    let accepts_pings = !accepts_keyed && (!accepts_transitions || dice.one_in(3));

    let width_ns = if accepts_pings {
        dice.pick(&[1, 2, 60, 300]) * SECOND
    } else {
        dice.pick(&[10, 250, 200_000_000, 2 * SECOND, 60 * SECOND])
    };
    let window = match dice.below(8) {
        _ if accepts_keyed => Window::None,
        0 | 1 => Window::Tumbling {
            width_ns,
            guard_ns: 0,
        },
        2 | 3 => Window::Tumbling {
            width_ns,
            guard_ns: width_ns,
        },
        4 => Window::Session { gap_ns: width_ns },
        _ => Window::Tumbling {
            width_ns,
            guard_ns: dice.pick(&[1, width_ns / 10, width_ns / 2, width_ns - 1]),
        },
    };

    let least_ttl_ns = match window {
        Window::Tumbling { width_ns, guard_ns } => width_ns + guard_ns,
        Window::Session { gap_ns } => gap_ns,
        Window::None => SECOND,
    };
    let ttl_ms =
        least_ttl_ns.unsigned_abs().div_ceil(1_000_000) * dice.pick(&[1, 2, 10]) + dice.below(3);
    let lease_ms = if dice.one_in(2) {
        0
    } else {
        1 + dice.below(ttl_ms)
    };

    let place = (accepts_pings && !dice.one_in(4)).then(|| {
        let resolution = dice.pick(&[12, 12, 11, 9, 7, 4, 1]);
        let edge_m = resolution_of(resolution).edge_length_m();
        let guarded = !matches!(window, Window::Session { .. }) && dice.one_in(2);
        Place {
            resolution,
            guard_m: if guarded {
                edge_m * dice.pick(&[0.05, 0.3, 0.8])
            } else {
                0.0
            },
            jitter_radius_m: dice.pick(&[20.0, 1.0, edge_m / 10.0]),
            region: dice.one_in(8).then(|| {
                let (south, west) = ((home.0 - 1.0).max(-90.0), (home.1 - 1.0).max(-180.0));
                [
                    south,
                    west,
                    (home.0 + 0.001).min(90.0),
                    (home.1 + 1.0).min(180.0),
                ]
            }),
        }
    });

    let (max_future_ns, max_age_ns) = match dice.below(4) {
        0 => (Some(300 * SECOND), Some(30 * 86_400 * SECOND)),
        1 => (Some(3 * width_ns), Some(3 * width_ns)),
        _ => (None, None),
    };
    Rules {
        accepts_transitions,
        accepts_pings,
        accepts_keyed,
        window,
        place,
        ttl_ms,
        lease_ms,
        max_future_ns,
        max_age_ns,
        clamp: dice.one_in(3),
        mismatch_dead_letters: dice.one_in(2),
        shadow: dice.one_in(8),
    }
}

/// Places where geometry goes wrong: poles, the antimeridian, zeros, pentagons, the corners of cells.
pub(super) fn homes(dice: &mut Dice) -> Vec<(f64, f64)> {
    let resolution = resolution_of(dice.pick(&[12, 11, 9, 7, 4, 1]));
    let pentagons: Vec<CellIndex> = resolution.pentagons().collect();
    let pentagon = dice.pick(&pentagons);
    let corner_of = |dice: &mut Dice, cell: CellIndex| dice.pick(&cell.boundary());
    let bern = LatLng::new(46.948_09, 7.447_44)
        .expect("finite")
        .to_cell(resolution);
    let corners = [
        corner_of(dice, pentagon),
        corner_of(dice, bern),
        LatLng::from(pentagon),
    ];
    let mut homes = vec![
        (46.948_09, 7.447_44),
        (90.0, 0.0),
        (-90.0, 123.4),
        (89.999_999_9, -45.0),
        (10.0, 180.0),
        (-16.5, -180.0),
        (0.0, 10.0),
        (10.0, 0.0),
    ];
    homes.extend(corners.map(|corner| (corner.lat(), corner.lng())));
    (0..2).map(|_| dice.pick(&homes)).collect()
}

pub(super) fn identity(dice: &mut Dice, rules: &Rules) -> Identity {
    let hostile = [
        "a",
        "a|b",
        "a\\",
        "a\\|b",
        "\\|",
        "|",
        "b|c",
        "#1",
        "a#1.1",
        "{a}",
        "}{",
        "a:b",
        "0",
        "3.58899E+14",
        " a ",
        "\0",
        "a\nb",
        "\"a\"",
        "Caf\u{e9}-7",
        "Cafe\u{301}-7",
        "\u{212b}",
        "\u{c5}",
        "\u{1f69a}",
        "\u{202e}a",
        "\u{200b}",
    ];
    let id = |dice: &mut Dice| match dice.below(8) {
        0 => "|".repeat(512),
        1 => "\u{1f69a}".repeat(128),
        _ => dice.pick(&hostile).to_owned(),
    };
    if rules.accepts_keyed {
        return Identity::Keyed { id: id(dice) };
    }
    if rules.accepts_pings && (!rules.accepts_transitions || dice.one_in(2)) {
        return Identity::Ping { asset: id(dice) };
    }
    Identity::Transition {
        device: id(dice),
        fence: id(dice),
        kind: dice.pick(&[1, 2, 3]),
        sequence: dice.one_in(4).then(|| dice.pick(&[0, 1, u64::MAX])),
        sequence_epoch: dice.pick(&[0, 0, 1, u32::MAX]),
    }
}

/// Two subjects that a careless key would not tell apart.
pub(super) fn twins(dice: &mut Dice) -> [Identity; 2] {
    let transition = |device: &str, fence: &str, sequence, sequence_epoch| Identity::Transition {
        device: device.into(),
        fence: fence.into(),
        kind: 1,
        sequence,
        sequence_epoch,
    };
    dice.pick(&[
        [
            transition("a|b", "c", None, 0),
            transition("a", "b|c", None, 0),
        ],
        [
            transition("a\\", "b", None, 0),
            transition("a", "\\b", None, 0),
        ],
        [
            transition("a", "b", Some(1), 0),
            transition("a", "b", Some(1), 1),
        ],
        [
            transition("a", "b", Some(1), 0),
            transition("a", "b", None, 0),
        ],
    ])
}

pub(super) fn resolution_of(resolution: u8) -> Resolution {
    Resolution::try_from(resolution).expect("0 to 15")
}

/// Along a great circle on the sphere.
pub(crate) fn destination(
    (latitude, longitude): (f64, f64),
    bearing: f64,
    distance_m: f64,
) -> (f64, f64) {
    let (north, bearing, arc) = (
        latitude.to_radians(),
        bearing.to_radians(),
        distance_m / EARTH_RADIUS_M,
    );
    let sine = north.sin() * arc.cos() + north.cos() * arc.sin() * bearing.cos();
    let east = (bearing.sin() * arc.sin() * north.cos()).atan2(arc.cos() - north.sin() * sine);
    let longitude = longitude + east.to_degrees();
    let longitude = match longitude {
        beyond if beyond > 180.0 => beyond - 360.0,
        beyond if beyond < -180.0 => beyond + 360.0,
        within => within,
    };
    (sine.clamp(-1.0, 1.0).asin().to_degrees(), longitude)
}

/// RFC 3339 at an offset from UTC.
pub(crate) fn text_of(time_ns: i64, offset_minutes: i64) -> String {
    let local_s = i128::from(time_ns.div_euclid(SECOND)) + i128::from(offset_minutes) * 60;
    let (days, second_of_day) = (local_s.div_euclid(86_400), local_s.rem_euclid(86_400));
    let mut year = 1970 + days.div_euclid(366) - 2;
    while days_before_year(year + 1) <= days {
        year += 1;
    }
    let (mut month, mut day) = (1, days - days_before_year(year));
    while day >= days_in(year, month) {
        day -= days_in(year, month);
        month += 1;
    }
    let (hour, minute, second) = (
        second_of_day / 3600,
        second_of_day / 60 % 60,
        second_of_day % 60,
    );
    let nanos = time_ns.rem_euclid(SECOND);
    let fraction = if nanos == 0 {
        String::new()
    } else {
        format!(".{nanos:09}")
    };
    let offset = match (offset_minutes, offset_minutes.abs()) {
        (0, _) => "Z".to_owned(),
        (1.., minutes) => format!("+{:02}:{:02}", minutes / 60, minutes % 60),
        (_, minutes) => format!("-{:02}:{:02}", minutes / 60, minutes % 60),
    };
    format!(
        "{year:04}-{month:02}-{:02}T{hour:02}:{minute:02}:{second:02}{fraction}{offset}",
        day + 1
    )
}
