//! A made-up trace that knows its own truth: reproducible from its seed, of any length, in memory
//! that depends on what is under way only.
//!
//! Crossings come as a Poisson process over devices that are drawn at random; a share of them is
//! followed by a genuine re-entry of the same fence soon after. A share is retried: each retry
//! carries a time of its own, as producers that stamp anew do. A share is replayed from a
//! dead-letter queue much later, as it was. Clocks of devices are off by a constant, and may jump
//! between a crossing and its retry. Pings come from assets that drive and park in turn, each report
//! with the noise of its receiver.

mod recipe;

use std::{cmp::Reverse, collections::BinaryHeap, time::Duration};

use rand::{Rng, SeedableRng};
use rand_chacha::ChaCha8Rng;

pub use self::recipe::{Recipe, Subjects};
use super::trace::{About, BadRows, Occurrence, Trace, TraceBatch, TraceFault};
use crate::domain::identity::TransitionKind;

/// 2023-11-14T22:14:00Z: a multiple of a minute.
const START_NS: i64 = 1_700_000_040 * NS_PER_S as i64;
const NS_PER_S: f64 = 1e9;
/// Of latitude.
const METRES_PER_DEGREE: f64 = 111_195.0;
const MAX_RETRIES: u32 = 4;
const DRAWN_TOGETHER: usize = 64;

/// What arrives later than what was made before it.
#[derive(Clone, Copy, Debug)]
enum Coming {
    Copy {
        id: u64,
        is_last: bool,
        made: Made,
    },
    ReEntry {
        device: u32,
        fence: u32,
        kind: TransitionKind,
    },
}

/// An event as it is reported.
#[derive(Clone, Copy, Debug)]
struct Made {
    subject: u32,
    fence: u32,
    kind: TransitionKind,
    occurred_at_ns: i64,
    position: Option<(f64, f64)>,
}

/// By when it arrives; the number keeps the order of what arrives at once.
#[derive(Clone, Copy, Debug)]
struct Pending {
    at_ns: i64,
    number: u64,
    coming: Coming,
}

impl PartialEq for Pending {
    fn eq(&self, other: &Self) -> bool {
        self.cmp(other).is_eq()
    }
}

impl Eq for Pending {}

impl PartialOrd for Pending {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Pending {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        (self.at_ns, self.number).cmp(&(other.at_ns, other.number))
    }
}

/// Of an occurrence that no other one brings about.
#[derive(Clone, Copy, Debug, Default)]
struct Drawn {
    after_ns: i64,
    subject: u32,
    fence: u32,
}

#[derive(Clone, Debug, Default)]
struct Device {
    last_ns: i64,
    fence: u32,
    inside: bool,
}

#[derive(Clone, Debug, Default)]
struct Asset {
    latitude: f64,
    longitude: f64,
    heading: f64,
    parked: bool,
    changes_at_ns: i64,
    last_ns: i64,
}

/// A trace by a recipe.
#[derive(Debug)]
pub struct Synth {
    recipe: Recipe,
    random: ChaCha8Rng,
    pending: BinaryHeap<Reverse<Pending>>,
    numbers: u64,
    next_fresh_ns: i64,
    mean_fresh_ns: f64,
    drawn: Vec<Drawn>,
    made: u64,
    devices: Vec<Device>,
    assets: Vec<Asset>,
    bad_rows: BadRows,
    name: String,
    fence_name: String,
}

impl Synth {
    pub fn new(recipe: Recipe) -> Self {
        let mut random = ChaCha8Rng::seed_from_u64(recipe.seed);
        let (devices, assets) = match &recipe.subjects {
            Subjects::Fences { devices, .. } => {
                let never = START_NS - 86_400 * NS_PER_S as i64;
                let device = Device {
                    last_ns: never,
                    ..Device::default()
                };
                (vec![device; *devices as usize], Vec::new())
            }
            Subjects::Fleet { assets, parked, .. } => {
                let asset = |_| Asset {
                    latitude: random.random_range(47.0..47.6),
                    longitude: random.random_range(8.2..8.9),
                    heading: random.random_range(0.0..std::f64::consts::TAU),
                    parked: random.random_bool(*parked),
                    changes_at_ns: START_NS,
                    last_ns: START_NS,
                };
                (Vec::new(), (0..*assets).map(asset).collect())
            }
        };
        // Re-entries come on top of those that are drawn fresh.
        let fresh = match recipe.subjects {
            Subjects::Fences { re_entries, .. } => 1.0 - re_entries,
            Subjects::Fleet { .. } => 1.0,
        };
        let fresh = (recipe.occurrences.max(1) as f64 * fresh).max(1.0);
        Self {
            mean_fresh_ns: recipe.duration.as_nanos() as f64 / fresh,
            recipe,
            random,
            pending: BinaryHeap::new(),
            numbers: 0,
            next_fresh_ns: START_NS,
            drawn: Vec::new(),
            made: 0,
            devices,
            assets,
            bad_rows: BadRows::default(),
            name: "device-".to_owned(),
            fence_name: "fence-".to_owned(),
        }
    }

    /// Exponentially distributed, in nanoseconds.
    fn exponential_ns(&mut self, mean_ns: f64) -> i64 {
        let uniform: f64 = self.random.random_range(f64::MIN_POSITIVE..1.0);
        (-uniform.ln() * mean_ns) as i64
    }

    /// Less than the limit, and more than nothing.
    fn up_to_ns(&mut self, limit: Duration) -> i64 {
        let limit = limit.as_nanos() as i64;
        if limit == 0 {
            0
        } else {
            self.random.random_range(1..limit.max(2))
        }
    }

    /// Standard normal, by Box and Muller.
    fn normal(&mut self) -> f64 {
        let radius: f64 = self.random.random_range(f64::MIN_POSITIVE..1.0);
        let angle: f64 = self.random.random_range(0.0..std::f64::consts::TAU);
        (-2.0 * radius.ln()).sqrt() * angle.cos()
    }

    fn later(&mut self, at_ns: i64, coming: Coming) {
        self.numbers += 1;
        self.pending.push(Reverse(Pending {
            at_ns,
            number: self.numbers,
            coming,
        }));
    }

    /// Draws the next occurrences ahead, so that the devices' cache misses overlap.
    fn draw(&mut self) {
        self.drawn.clear();
        let (subjects, fences) = match self.recipe.subjects {
            Subjects::Fences {
                devices, fences, ..
            } => (devices, fences),
            Subjects::Fleet { .. } => (1, 1),
        };
        for _ in 0..DRAWN_TOGETHER {
            let drawn = Drawn {
                after_ns: self.exponential_ns(self.mean_fresh_ns),
                subject: self.random.random_range(0..subjects),
                fence: self.random.random_range(0..fences),
            };
            self.drawn.push(drawn);
        }
        let devices = self.drawn.iter().filter_map(|drawn| {
            let device = self.devices.get(drawn.subject as usize)?;
            Some(device.fence)
        });
        std::hint::black_box(devices.max());
    }

    fn next_drawn(&mut self) -> Drawn {
        if self.drawn.is_empty() {
            self.draw();
        }
        self.drawn.pop().unwrap_or_default()
    }

    fn fresh(&mut self, batch: &mut TraceBatch) {
        let at_ns = self.next_fresh_ns;
        let drawn = self.next_drawn();
        self.next_fresh_ns += drawn.after_ns;
        let made = match self.recipe.subjects {
            Subjects::Fences { min_revisit, .. } => self.crossing(at_ns, drawn, min_revisit),
            Subjects::Fleet { .. } => Some(self.report(at_ns)),
        };
        if let Some(made) = made {
            self.emit(at_ns, made, batch);
        }
    }

    /// `None`: the device that was drawn has crossed a moment ago, and is left alone.
    fn crossing(&mut self, at_ns: i64, drawn: Drawn, min_revisit: Duration) -> Option<Made> {
        let device = &mut self.devices[drawn.subject as usize];
        if at_ns - device.last_ns < min_revisit.as_nanos() as i64 {
            return None;
        }
        device.inside = !device.inside;
        if device.inside {
            device.fence = drawn.fence;
        }
        device.last_ns = at_ns;
        Some(Made {
            subject: drawn.subject,
            fence: device.fence,
            kind: if device.inside {
                TransitionKind::Enter
            } else {
                TransitionKind::Exit
            },
            occurred_at_ns: at_ns,
            position: None,
        })
    }

    fn report(&mut self, at_ns: i64) -> Made {
        let Subjects::Fleet {
            parked,
            noise_m,
            speed_m_per_s,
            ..
        } = self.recipe.subjects
        else {
            unreachable!("reports are a fleet's");
        };
        // Each in its turn, as fleets report at an interval.
        let subject = (self.made % self.assets.len() as u64) as usize;
        if self.assets[subject].changes_at_ns <= at_ns {
            let parks = self.random.random_bool(parked);
            let heading = self.random.random_range(0.0..std::f64::consts::TAU);
            let stays = self.exponential_ns(1200.0 * NS_PER_S);
            let asset = &mut self.assets[subject];
            (asset.parked, asset.heading) = (parks, heading);
            asset.changes_at_ns = at_ns + stays;
        }
        let asset = &mut self.assets[subject];
        if !asset.parked {
            let metres = (at_ns - asset.last_ns) as f64 / NS_PER_S * speed_m_per_s;
            asset.latitude += metres * asset.heading.cos() / METRES_PER_DEGREE;
            asset.latitude = asset.latitude.clamp(-80.0, 80.0);
            let shrink = asset.latitude.to_radians().cos();
            asset.longitude += metres * asset.heading.sin() / METRES_PER_DEGREE / shrink;
            asset.longitude = (asset.longitude + 180.0).rem_euclid(360.0) - 180.0;
        }
        asset.last_ns = at_ns;
        let (latitude, longitude) = (asset.latitude, asset.longitude);
        let (north, east) = (self.normal() * noise_m, self.normal() * noise_m);
        let shrink = latitude.to_radians().cos();
        Made {
            subject: subject as u32,
            fence: 0,
            kind: TransitionKind::Enter,
            occurred_at_ns: at_ns,
            position: Some((
                latitude + north / METRES_PER_DEGREE,
                longitude + east / METRES_PER_DEGREE / shrink,
            )),
        }
    }

    /// Writes the first report of an occurrence, and plans its copies.
    fn emit(&mut self, at_ns: i64, mut made: Made, batch: &mut TraceBatch) {
        made.occurred_at_ns += skew_ns(made.subject, self.recipe.clock_skew);
        self.made += 1;
        let id = self.made;
        let mut copies = self.copies(at_ns, made);
        let occurrence = if copies.is_empty() {
            Occurrence::Single
        } else {
            let is_last = false;
            Occurrence::Copy { id, is_last }
        };
        self.write(made, at_ns, occurrence, batch);
        copies.sort_by_key(|(at_ns, _)| *at_ns);
        let last = copies.len().saturating_sub(1);
        for (index, (at_ns, made)) in copies.into_iter().enumerate() {
            let is_last = index == last;
            self.later(at_ns, Coming::Copy { id, is_last, made });
        }
        if let Subjects::Fences {
            min_revisit,
            re_entries,
            mean_revisit,
            ..
        } = self.recipe.subjects
            && re_entries > 0.0
            && self.random.random_bool(re_entries)
        {
            let (device, fence, kind) = (made.subject, made.fence, made.kind);
            let again_ns = at_ns
                + min_revisit.as_nanos() as i64
                + self.exponential_ns(mean_revisit.as_nanos() as f64);
            self.devices[device as usize].last_ns = again_ns;
            self.later(
                again_ns,
                Coming::ReEntry {
                    device,
                    fence,
                    kind,
                },
            );
        }
    }

    /// When copies arrive, and what they say.
    fn copies(&mut self, at_ns: i64, made: Made) -> Vec<(i64, Made)> {
        let mut copies = Vec::new();
        if self.recipe.retried > 0.0 && self.random.random_bool(self.recipe.retried) {
            let mut retries = 1;
            while retries < MAX_RETRIES && self.random.random_bool(0.3) {
                retries += 1;
            }
            for _ in 0..retries {
                let after = self.up_to_ns(self.recipe.retry_spread);
                let mut retry = made;
                retry.occurred_at_ns += after;
                if self.recipe.clock_jumps > 0.0 && self.random.random_bool(self.recipe.clock_jumps)
                {
                    let jump = self.recipe.clock_jump.as_nanos() as i64;
                    let ahead = self.random.random_bool(0.5);
                    retry.occurred_at_ns += if ahead { jump } else { -jump };
                }
                copies.push((at_ns + after, retry));
            }
        }
        if self.recipe.replayed > 0.0 && self.random.random_bool(self.recipe.replayed) {
            let after = self.up_to_ns(self.recipe.replay_delay);
            copies.push((at_ns + after, made));
        }
        copies
    }

    fn write(&mut self, made: Made, at_ns: i64, occurrence: Occurrence, batch: &mut TraceBatch) {
        let name = numbered(&mut self.name, "device-", made.subject, 7);
        let about = match made.position {
            Some(_) => About::Ping { asset: name },
            None => About::Transition {
                device: name,
                fence: numbered(&mut self.fence_name, "fence-", made.fence, 3),
                kind: made.kind,
                sequence: None,
            },
        };
        let occurred = Some(made.occurred_at_ns);
        batch.push(about, occurred, at_ns, made.position, occurrence);
    }

    fn next_at_ns(&self) -> Option<i64> {
        let fresh = (self.made < self.recipe.occurrences).then_some(self.next_fresh_ns);
        let pending = self.pending.peek().map(|Reverse(pending)| pending.at_ns);
        [fresh, pending].into_iter().flatten().min()
    }
}

/// What begins the buffer and the number with at least so many digits: `format!` takes as long as a
/// decision.
fn numbered<'b>(buffer: &'b mut String, prefix: &str, number: u32, digits: usize) -> &'b str {
    const ZEROS: &str = "000000000";
    let mut formatted = itoa::Buffer::new();
    let number = formatted.format(number);
    buffer.truncate(prefix.len());
    buffer.push_str(&ZEROS[..digits.saturating_sub(number.len())]);
    buffer.push_str(number);
    buffer
}

/// A device's own constant error.
fn skew_ns(subject: u32, limit: Duration) -> i64 {
    let limit = limit.as_nanos() as i64;
    if limit == 0 {
        return 0;
    }
    let spread = xxhash_rust::xxh3::xxh3_64(&subject.to_be_bytes()) % (2 * limit as u64 + 1);
    spread as i64 - limit
}

impl Trace for Synth {
    fn fill(&mut self, batch: &mut TraceBatch) -> Result<bool, TraceFault> {
        while let Some(at_ns) = self.next_at_ns() {
            if batch.is_full_for(at_ns) {
                return Ok(true);
            }
            match self.pending.peek() {
                Some(Reverse(pending)) if pending.at_ns == at_ns => {
                    let coming = pending.coming;
                    self.pending.pop();
                    match coming {
                        Coming::Copy { id, is_last, made } => {
                            let copy = Occurrence::Copy { id, is_last };
                            self.write(made, at_ns, copy, batch);
                        }
                        Coming::ReEntry {
                            device,
                            fence,
                            kind,
                        } => {
                            if self.made < self.recipe.occurrences {
                                let made = Made {
                                    subject: device,
                                    fence,
                                    kind,
                                    occurred_at_ns: at_ns,
                                    position: None,
                                };
                                self.emit(at_ns, made, batch);
                            }
                        }
                    }
                }
                _ => self.fresh(batch),
            }
        }
        Ok(false)
    }

    fn progress(&self) -> (u64, Option<u64>) {
        (self.made, Some(self.recipe.occurrences))
    }

    fn bad_rows(&self) -> &BadRows {
        &self.bad_rows
    }
}
