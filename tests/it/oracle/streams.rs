//! Random streams from a seed: hostile where real ones are, and exact where the rule turns over.
//!
//! A stream is neutral data: what is sent, at which moment of a simulated clock. A settlement names a claim by how
//! many claims ago it was handed out, so that any judge can follow with its own claims or tokens.

mod draws;
mod scope;

pub(crate) use draws::{Dice, destination, random_rules, text_of};
use draws::{homes, identity, resolution_of, twins};
pub(crate) use scope::Scope;

use super::{Event, Identity, Position, Rules, Time, Window};

const SECOND: i64 = 1_000_000_000;

#[derive(Clone, Debug)]
pub(crate) struct Stream {
    pub(crate) seed: u64,
    pub(crate) rules: Rules,
    pub(crate) steps: Vec<Step>,
}

/// Both clocks move together; `now_ms` starts at 0 and never runs backwards.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) now_ms: u64,
    pub(crate) now_unix_ns: i64,
    pub(crate) act: Act,
}

#[derive(Clone, Debug)]
pub(crate) enum Act {
    Admit {
        events: Vec<Event>,
        omit_claims: bool,
    },
    /// Of the claims handed out so far, the last but `claims_ago`; nothing to do where there are fewer.
    Settle {
        settle: Settle,
        claims_ago: usize,
    },
    Foreign {
        event: Event,
        ttl_ms: Option<u64>,
    },
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Settle {
    Confirm,
    Release,
    Renew,
}

impl Stream {
    pub(crate) fn random(seed: u64, steps: usize) -> Self {
        Self::random_within(Scope::FULL, seed, steps)
    }

    pub(crate) fn random_within(scope: Scope, seed: u64, steps: usize) -> Self {
        let mut dice = Dice::new(seed);
        let homes = homes(&mut dice);
        let mut rules = random_rules(&mut dice, homes[0]);
        while !scope.holds_rules(&rules) {
            rules = random_rules(&mut dice, homes[0]);
        }
        rules.ttl_ms = scope.on_the_grid(rules.ttl_ms);
        rules.lease_ms = scope.on_the_grid(rules.lease_ms);
        let steps = Author::new(scope, dice, rules.clone(), homes).write(steps);
        Self { seed, rules, steps }
    }
}

/// An event before it is written down.
#[derive(Clone, Debug)]
struct Sketch {
    identity: Identity,
    time_ns: i64,
    ingested_at: Option<i64>,
    place: (f64, f64),
    content_hash: Option<u64>,
}

struct Author {
    scope: Scope,
    dice: Dice,
    rules: Rules,
    homes: Vec<(f64, f64)>,
    identities: Vec<Identity>,
    start_unix_ns: i64,
    now_ms: u64,
    sketches: Vec<Sketch>,
    /// When something may expire.
    moments_ms: Vec<u64>,
}

impl Author {
    fn new(scope: Scope, mut dice: Dice, rules: Rules, homes: Vec<(f64, f64)>) -> Self {
        let start_unix_ns = dice.pick(&[
            1_700_000_040 * SECOND,
            1_699_999_999 * SECOND + 999_000_000,
            0,
        ]);
        let mut identities: Vec<Identity> = (0..1 + dice.below(4))
            .map(|_| identity(&mut dice, &rules))
            .collect();
        if rules.accepts_transitions && dice.one_in(4) {
            identities.extend(twins(&mut dice));
        }
        Self {
            scope,
            dice,
            rules,
            homes,
            identities,
            start_unix_ns,
            now_ms: 0,
            sketches: Vec::new(),
            moments_ms: Vec::new(),
        }
    }

    fn write(mut self, steps: usize) -> Vec<Step> {
        (0..steps)
            .map(|_| {
                self.let_time_pass();
                let act = self.act();
                Step {
                    now_ms: self.now_ms,
                    now_unix_ns: self.now_unix_ns(),
                    act,
                }
            })
            .collect()
    }

    fn now_unix_ns(&self) -> i64 {
        self.start_unix_ns + i64::try_from(self.now_ms).expect("a short stream") * 1_000_000
    }

    fn width_ns(&self) -> i64 {
        match self.rules.window {
            Window::Tumbling { width_ns, .. } => width_ns,
            Window::Session { gap_ns } => gap_ns,
            Window::None => SECOND,
        }
    }

    fn let_time_pass(&mut self) {
        let (now_ms, tick_ms) = (self.now_ms, self.scope.tick_ms);
        self.moments_ms.retain(|moment_ms| *moment_ms > now_ms);
        match self.dice.below(4) {
            0 => {
                let step_ms = 1 + self.dice.below(1 + self.rules.ttl_ms / 4);
                self.now_ms += self.scope.on_the_grid(step_ms);
            }
            1 if !self.moments_ms.is_empty() => {
                let moment_ms = self.dice.pick(&self.moments_ms);
                self.now_ms = self.dice.pick(&[
                    moment_ms - tick_ms,
                    moment_ms,
                    moment_ms,
                    moment_ms + tick_ms,
                ]);
            }
            _ => {}
        }
    }

    fn act(&mut self) -> Act {
        self.moments_ms.push(self.now_ms + self.rules.ttl_ms);
        self.moments_ms
            .push(self.now_ms + self.rules.lease_ms.max(self.scope.tick_ms));
        match self.dice.below(10) {
            0..4 => Act::Settle {
                settle: self.dice.pick(&[
                    Settle::Confirm,
                    Settle::Confirm,
                    Settle::Release,
                    Settle::Renew,
                ]),
                claims_ago: self.dice.pick(&[0, 0, 0, 1, 2, 5]),
            },
            4 if self.dice.one_in(4) => Act::Foreign {
                event: self.event(),
                ttl_ms: self
                    .dice
                    .pick(&[None, Some(self.rules.ttl_ms), Some(self.scope.tick_ms)]),
            },
            _ => Act::Admit {
                events: (0..1 + self.dice.below(6)).map(|_| self.event()).collect(),
                omit_claims: self.dice.one_in(6),
            },
        }
    }

    fn event(&mut self) -> Event {
        let sketch = match self.sketches.len() {
            0 => self.fresh(),
            _ if self.dice.one_in(2) => self.fresh(),
            known => {
                let recent = self.sketches[known.saturating_sub(12)..].to_vec();
                let sketch = self.dice.pick(&recent);
                self.variation_of(sketch)
            }
        };
        self.sketches.push(sketch.clone());
        let event = self.written(sketch);
        if self.dice.one_in(12) {
            self.spoilt(event)
        } else {
            event
        }
    }

    fn fresh(&mut self) -> Sketch {
        let now_ns = self.now_unix_ns();
        let home = self.dice.pick(&self.homes);
        Sketch {
            identity: self.dice.pick(&self.identities),
            time_ns: self.moment(),
            ingested_at: self
                .dice
                .one_in(5)
                .then(|| now_ns - self.dice.pick(&[0, 1, SECOND, self.width_ns()])),
            place: self.moved(home),
            content_hash: self
                .dice
                .pick(&[None, None, Some(0), Some(1), Some(u64::MAX)]),
        }
    }

    /// A time near an edge of a bucket, of the TTL, or of a limit.
    fn moment(&mut self) -> i64 {
        let (now_ns, width_ns) = (self.now_unix_ns(), self.width_ns());
        let guard_ns = match self.rules.window {
            Window::Tumbling { guard_ns, .. } => guard_ns,
            Window::Session { .. } | Window::None => 0,
        };
        let ttl_ns = i64::try_from(self.rules.ttl_ms).expect("short") * 1_000_000;
        let near_an_edge = [0, 0, guard_ns, width_ns - guard_ns, width_ns / 2];
        let step = self.dice.pick(&[-1, 0, 0, 1]);
        match self.dice.below(8) {
            0 => now_ns - ttl_ns + step,
            1 => now_ns + self.rules.max_future_ns.unwrap_or(0) + step,
            2 => now_ns - self.rules.max_age_ns.unwrap_or(width_ns) + step,
            _ => {
                let bucket = now_ns.div_euclid(width_ns) + self.dice.pick(&[-2, -1, 0, 0, 1]);
                bucket * width_ns + self.dice.pick(&near_an_edge) + step
            }
        }
    }

    fn variation_of(&mut self, mut sketch: Sketch) -> Sketch {
        let width_ns = self.width_ns();
        let guard_ns = match self.rules.window {
            Window::Tumbling { guard_ns, .. } => guard_ns,
            Window::Session { gap_ns } => gap_ns,
            Window::None => 0,
        };
        if self.dice.one_in(2) {
            let apart = self.dice.pick(&[
                0,
                1,
                guard_ns - 1,
                guard_ns,
                guard_ns + 1,
                // Two claims this far apart have a point just as near to both.
                2 * (guard_ns - 1),
                width_ns,
                width_ns / 2,
            ]);
            sketch.time_ns += if self.dice.one_in(2) { apart } else { -apart };
        }
        if self.dice.one_in(3) {
            sketch.place = self.moved(sketch.place);
        }
        if self.dice.one_in(4) {
            sketch.content_hash = self.dice.pick(&[None, Some(0), Some(1)]);
        }
        if self.dice.one_in(8) {
            sketch.identity = self.dice.pick(&self.identities);
        }
        sketch
    }

    /// A place a telling distance away, under one of its names.
    fn moved(&mut self, from: (f64, f64)) -> (f64, f64) {
        let Some(place) = self.rules.place else {
            return from;
        };
        let edge_m = resolution_of(place.resolution).edge_length_m();
        let (guard_m, jitter_m) = (place.guard_m, place.jitter_radius_m);
        let far_m = self.dice.fraction() * edge_m;
        let distances_m = [
            0.0,
            1e-3,
            guard_m * 0.999_999,
            guard_m * 1.000_001,
            jitter_m * 0.999_999,
            jitter_m * 1.000_001,
            far_m,
        ];
        let distance_m = self.dice.pick(&distances_m);
        let (mut latitude, mut longitude) = if distance_m == 0.0 {
            from
        } else {
            destination(from, self.dice.fraction() * 360.0, distance_m)
        };
        if longitude.abs() == 180.0 && self.dice.one_in(2) {
            longitude = -longitude;
        }
        if latitude == 0.0 && self.dice.one_in(2) {
            latitude = -latitude;
        }
        if longitude == 0.0 && self.dice.one_in(2) {
            longitude = -longitude;
        }
        (latitude, longitude)
    }

    fn written(&mut self, sketch: Sketch) -> Event {
        let is_ping = matches!(sketch.identity, Identity::Ping { .. });
        let time = match self.dice.below(4) {
            _ if matches!(sketch.identity, Identity::Keyed { .. }) && self.dice.one_in(2) => {
                Time::Missing
            }
            0 => Time::Stamp {
                seconds: sketch.time_ns.div_euclid(SECOND),
                nanos: i32::try_from(sketch.time_ns.rem_euclid(SECOND))
                    .expect("less than a second"),
            },
            1 => Time::Text(text_of(sketch.time_ns, self.dice.pick(&[0, 0, 120, -570]))),
            _ => Time::Nanos(sketch.time_ns),
        };
        let position = match sketch.place {
            _ if !is_ping || (self.rules.place.is_none() && self.dice.one_in(2)) => {
                Position::Missing
            }
            (latitude, longitude) => Position::LatLng {
                latitude: Some(latitude),
                longitude: Some(longitude),
            },
        };
        Event {
            identity: sketch.identity,
            time,
            ingested_at: sketch.ingested_at,
            position,
            content_hash: sketch.content_hash,
        }
    }

    /// One or two faults in it, or nearly so.
    fn spoilt(&mut self, mut event: Event) -> Event {
        let is_ping = matches!(event.identity, Identity::Ping { .. });
        for _ in 0..1 + self.dice.below(2) {
            match self.dice.below(if is_ping { 3 } else { 2 }) {
                0 => event.identity = self.bad_identity(event.identity),
                1 => event.time = self.bad_time(),
                _ => event.position = self.bad_position(),
            }
        }
        if !matches!(event.identity, Identity::Ping { .. }) {
            event.position = Position::Missing;
        }
        event
    }

    fn bad_identity(&mut self, identity: Identity) -> Identity {
        let id = self
            .dice
            .pick(&["", " ", "\t\u{2003}\u{3000}", "\u{200b}"])
            .to_owned();
        let id = if self.dice.one_in(2) {
            "a".repeat(513)
        } else {
            id
        };
        match identity {
            _ if self.dice.one_in(6) => Identity::Missing,
            _ if self.dice.one_in(4) => self.dice.pick(&[
                Identity::Keyed { id: id.clone() },
                Identity::Ping { asset: "a".into() },
                Identity::Keyed { id: "a".into() },
            ]),
            Identity::Transition {
                device,
                fence,
                kind,
                sequence,
                sequence_epoch,
            } => match self.dice.below(4) {
                0 => Identity::Transition {
                    device: id,
                    fence,
                    kind,
                    sequence,
                    sequence_epoch,
                },
                1 => Identity::Transition {
                    device,
                    fence: id,
                    kind,
                    sequence,
                    sequence_epoch,
                },
                _ => {
                    let kind = self.dice.pick(&[0, 4, -1]);
                    Identity::Transition {
                        device,
                        fence,
                        kind,
                        sequence,
                        sequence_epoch,
                    }
                }
            },
            Identity::Ping { .. } => Identity::Ping { asset: id },
            Identity::Keyed { .. } => Identity::Keyed { id },
            Identity::Missing => Identity::Missing,
        }
    }

    fn bad_time(&mut self) -> Time {
        let now_s = self.now_unix_ns() / SECOND;
        self.dice.pick(&[
            Time::Missing,
            Time::Stamp {
                seconds: now_s,
                nanos: -1,
            },
            Time::Stamp {
                seconds: now_s,
                nanos: 1_000_000_000,
            },
            Time::Stamp {
                seconds: now_s * 1000,
                nanos: 0,
            },
            Time::Stamp {
                seconds: i64::MIN,
                nanos: 0,
            },
            Time::Stamp {
                seconds: -9_223_372_037,
                nanos: 145_224_191,
            },
            Time::Stamp {
                seconds: 9_223_372_036,
                nanos: 854_775_808,
            },
            Time::Stamp {
                seconds: i64::MAX,
                nanos: i32::MAX,
            },
            Time::Nanos(i64::MIN),
            Time::Nanos(i64::MAX),
            Time::Nanos(0),
            Time::Text("2023-10-29T02:30:00".into()),
            Time::Text("2023-10-29T25:30:00Z".into()),
            Time::Text("2023-02-29T00:00:00Z".into()),
            Time::Text("2400-01-01T00:00:00Z".into()),
            Time::Text("now".into()),
        ])
    }

    fn bad_position(&mut self) -> Position {
        let at = |latitude, longitude| Position::LatLng {
            latitude: Some(latitude),
            longitude: Some(longitude),
        };
        let projected = |x, y, epsg| Position::Projected {
            x: Some(x),
            y: Some(y),
            epsg,
        };
        let bad = [
            Position::Missing,
            Position::LatLng {
                latitude: None,
                longitude: Some(f64::NAN),
            },
            Position::LatLng {
                latitude: Some(10.0),
                longitude: None,
            },
            at(f64::NAN, 10.0),
            at(10.0, f64::INFINITY),
            at(90.000_000_1, 10.0),
            at(-91.0, 10.0),
            at(10.0, 180.000_000_1),
            at(10.0, 540.0),
            at(488_647_160.0, 23_490_140.0),
            at(0.0, 0.0),
            at(-0.0, 0.0),
            at(0.0, -0.0),
            at(-0.0, -0.0),
            at(35.0, 139.0),
            Position::Projected {
                x: Some(f64::NAN),
                y: Some(0.0),
                epsg: 0,
            },
            Position::Projected {
                x: Some(261_000.0),
                y: None,
                epsg: 0,
            },
            projected(261_000.0, 6_250_000.0, 0),
            // Not all of them bad.
            projected(261_000.0, 6_250_000.0, 3857),
            projected(-20_000_000.0, -1e6, 3857),
            projected(139.0, 35.0, 4326),
            projected(-0.0, 0.0, 3857),
            projected(2.1e7, 1e6, 3857),
            projected(261_000.0, 6_250_000.0, 4326),
        ];
        loop {
            let position = self.dice.pick(&bad);
            if self.scope.holds_position(position) {
                return position;
            }
        }
    }
}
