//! Events whose verdicts are known in advance: first sightings, and repeats of one of the latest.

use crate::grpc::proto::{Event, Keyed, LatLng, Ping, Transition, TransitionKind, event, ping};

/// Leaves any cell of resolution 12 at each step.
const STEP_DEGREES: f64 = 3e-4;
const STEPS: u64 = 20_000;
/// A metre to either side, of a receiver that stands still.
const NOISE_DEGREES: f64 = 1e-5;

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Recipe {
    pub kind: EventKind,
    /// Devices, or moving assets.
    pub subjects: u64,
    /// The share of events that repeat an earlier one; below 1.
    pub duplicates: f64,
    /// A repeat is of one of so many latest first sightings of its lane.
    pub repeat_within: usize,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum EventKind {
    /// A repeat is the same event again.
    Transitions,
    /// Each report is from another place. A repeat is the same event again.
    MovingPings,
    /// A first sighting is another asset's. A repeat is its next report, some noise away.
    ParkedPings,
    /// A repeat is the same event again.
    Keyed,
}

impl EventKind {
    /// Of the built-in namespaces.
    pub const fn namespace(self) -> &'static str {
        match self {
            EventKind::Transitions => "transitions",
            EventKind::MovingPings | EventKind::ParkedPings => "pings",
            EventKind::Keyed => "events",
        }
    }
}

/// One lane's events. No other lane and no other run makes the same first sighting.
#[derive(Debug)]
pub struct Events {
    recipe: Recipe,
    run: u32,
    lane: u64,
    made: u64,
    fresh: u64,
    /// When the latest first sightings occurred: that with number n at n modulo the length.
    times_ns: Box<[i64]>,
}

impl Events {
    pub fn new(recipe: Recipe, run: u32, lane: usize) -> Self {
        Self {
            recipe,
            run,
            lane: lane as u64,
            made: 0,
            fresh: 0,
            times_ns: vec![0; recipe.repeat_within.max(1)].into(),
        }
    }

    /// The next `count`; first sightings occur now.
    pub fn take(&mut self, count: usize, now_ns: i64) -> Vec<Event> {
        (0..count).map(|_| self.next(now_ns)).collect()
    }

    fn next(&mut self, now_ns: i64) -> Event {
        // Less than one of the first, which is fresh therefore.
        let repeats = ((self.made + 1) as f64 * self.recipe.duplicates) as u64;
        let is_fresh = repeats == self.made - self.fresh;
        let remembered = self.times_ns.len() as u64;
        let number = if is_fresh {
            self.fresh += 1;
            self.fresh - 1
        } else {
            self.fresh - 1 - mixed(self.made) % self.fresh.min(remembered)
        };
        let time_ns = &mut self.times_ns[(number % remembered) as usize];
        if is_fresh || self.recipe.kind == EventKind::ParkedPings {
            *time_ns = now_ns;
        }
        let time_ns = *time_ns;
        self.made += 1;
        Event {
            identity: Some(self.identity(number)),
            time: Some(event::Time::OccurredAtUnixNanos(time_ns)),
            ..Event::default()
        }
    }

    fn identity(&self, number: u64) -> event::Identity {
        let (subject, step) = (number % self.recipe.subjects, number / self.recipe.subjects);
        match self.recipe.kind {
            EventKind::Transitions => event::Identity::Transition(Transition {
                device_id: id("device-", &[subject]),
                fence_id: id("fence-", &[self.run.into(), self.lane, step]),
                kind: TransitionKind::Enter as i32,
                ..Transition::default()
            }),
            EventKind::MovingPings => {
                let (latitude, longitude) = home(subject);
                let north = (step % STEPS) as f64 * STEP_DEGREES;
                let east = (step / STEPS) as f64 * STEP_DEGREES;
                self.ping(subject, latitude + north, longitude + east)
            }
            EventKind::ParkedPings => {
                let (latitude, longitude) = home(number);
                self.ping(number, latitude + noise(self.made), longitude)
            }
            EventKind::Keyed => event::Identity::Keyed(Keyed {
                event_id: id("", &[self.run.into(), self.lane, number]),
            }),
        }
    }

    fn ping(&self, asset: u64, latitude: f64, longitude: f64) -> event::Identity {
        event::Identity::Ping(Ping {
            asset_id: id("", &[self.run.into(), self.lane, asset]),
            position: Some(ping::Position::LatLng(LatLng {
                latitude: Some(latitude),
                longitude: Some(longitude),
            })),
        })
    }
}

/// Such as `fence-1595672490-3-17`.
fn id(kind: &str, numbers: &[u64]) -> String {
    let mut digits = itoa::Buffer::new();
    let mut id = String::with_capacity(32);
    id.push_str(kind);
    for (place, number) in numbers.iter().enumerate() {
        if place > 0 {
            id.push('-');
        }
        id.push_str(digits.format(*number));
    }
    id
}

/// Latitude and longitude, somewhere in the middle of Europe.
fn home(asset: u64) -> (f64, f64) {
    let place = mixed(asset);
    let degrees = |bits: u64| (bits & 0xF_FFFF) as f64 * 5e-6;
    (45.0 + degrees(place), 5.0 + degrees(place >> 32))
}

fn noise(number: u64) -> f64 {
    let share = (mixed(number) >> 40) as f64 / (1_u64 << 24) as f64;
    (2.0 * share - 1.0) * NOISE_DEGREES
}

/// A bijection that leaves no pattern: the finaliser of SplitMix64.
const fn mixed(number: u64) -> u64 {
    let mut bits = number.wrapping_add(0x9E37_79B9_7F4A_7C15);
    bits = (bits ^ (bits >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
    bits = (bits ^ (bits >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
    bits ^ (bits >> 31)
}

#[cfg(test)]
mod tests {
    use std::collections::HashMap;

    use super::*;

    #[track_caller]
    fn check(kind: EventKind, duplicates: f64, expected_fresh: usize) {
        let recipe = Recipe {
            kind,
            subjects: 10,
            duplicates,
            repeat_within: 50,
        };
        let mut events = Events::new(recipe, 1, 0);
        let mut seen = HashMap::new();
        for now_ns in 0..1_000 {
            for event in events.take(1, now_ns) {
                let event::Identity::Ping(ping) = event.identity.clone().expect("it has one")
                else {
                    *seen.entry(format!("{event:?}")).or_insert(0) += 1;
                    continue;
                };
                let key = match kind {
                    EventKind::ParkedPings => ping.asset_id,
                    _ => format!("{event:?}"),
                };
                *seen.entry(key).or_insert(0) += 1;
            }
        }
        assert_eq!(seen.len(), expected_fresh, "{kind:?} {duplicates}");
    }

    /// A repeat has the time of its original, too; that of a parked asset is a report of its own.
    #[test]
    fn of_events_a_share_repeats_earlier_ones() {
        for kind in [
            EventKind::Transitions,
            EventKind::MovingPings,
            EventKind::ParkedPings,
            EventKind::Keyed,
        ] {
            check(kind, 0.0, 1_000);
            check(kind, 0.25, 750);
            check(kind, 0.99, 10);
        }
    }

    #[test]
    fn lanes_and_runs_make_other_events() {
        let recipe = Recipe {
            kind: EventKind::Keyed,
            subjects: 1,
            duplicates: 0.0,
            repeat_within: 1,
        };
        let first = |run, lane| Events::new(recipe, run, lane).take(1, 0);
        assert_eq!(first(1, 1), first(1, 1));
        assert_ne!(first(1, 1), first(1, 2));
        assert_ne!(first(1, 1), first(2, 1));
    }
}
