//! The subjects with the most suppressed events: a stuck device shows at the top.
//!
//! Bounded whatever ids arrive: a count-min sketch (Cormode and Muthukrishnan, 2005, with
//! conservative update) estimates how often a subject was suppressed, and the few with the largest
//! estimates are listed by name and counted exactly from then on. All counts are halved every
//! minute, so that the list tells of now and not of last week. The cells of one subject share a
//! cache line, since a sketch of rows would cost a miss for each of them at every suppressed event.

use hashbrown::HashMap;
use xxhash_rust::xxh3::xxh3_64;

/// Subjects that are counted by name; the API lists at most as many.
pub const LISTED: usize = 100;
/// With so many and 100,000 healthy subjects of four copies each, an estimate is too large by less
/// than half a copy in the mean and by six to eight at most: what a stuck device repeats in seconds.
const LINES: usize = 1 << 14;
const CELLS_PER_LINE: usize = 16;
/// Of its line, for each subject.
const CELLS: usize = 4;
const HALF_LIFE_MS: u64 = 60_000;

/// Estimates that share a cache line.
#[derive(Clone, Debug)]
#[repr(align(64))]
struct Line([u32; CELLS_PER_LINE]);

#[derive(Debug, Default)]
pub struct NoisySubjects {
    /// Empty until something is suppressed.
    sketch: Vec<Line>,
    listed: HashMap<u64, Subject>,
    /// No listed subject has fewer suppressed events.
    floor: u32,
    halved_at_ms: u64,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Subject {
    pub id: String,
    /// Recent suppressed events, and recent events of any decision since it is listed.
    pub suppressed: u32,
    pub events: u32,
}

impl NoisySubjects {
    /// There is nothing to count an event against unless it is suppressed.
    pub fn is_empty(&self) -> bool {
        self.listed.is_empty()
    }

    /// Counts one request's events: the subject's name, and whether the event was suppressed.
    pub fn observe<'a>(&mut self, now_ms: u64, events: impl Iterator<Item = (&'a [u8], bool)>) {
        self.halve_if_due(now_ms);
        for (id, suppressed) in events {
            if !suppressed && self.listed.is_empty() {
                continue;
            }
            let hash = xxh3_64(id);
            if let Some(subject) = self.listed.get_mut(&hash) {
                subject.events += 1;
                subject.suppressed += u32::from(suppressed);
            } else if suppressed {
                self.count(hash, id);
            }
        }
    }

    /// The most suppressed first.
    pub fn top(&self, limit: usize) -> Vec<Subject> {
        let mut subjects: Vec<Subject> = self.listed.values().cloned().collect();
        subjects.sort_unstable_by(|a, b| {
            b.suppressed
                .cmp(&a.suppressed)
                .then_with(|| a.id.cmp(&b.id))
        });
        subjects.truncate(limit);
        subjects
    }

    fn count(&mut self, hash: u64, id: &[u8]) {
        let estimate = self.estimate_with_one_more(hash);
        if self.listed.len() >= LISTED {
            if estimate <= self.floor {
                return;
            }
            let least = self
                .listed
                .iter()
                .min_by_key(|(_, subject)| subject.suppressed);
            let Some((&least, floor)) = least.map(|(hash, subject)| (hash, subject.suppressed))
            else {
                return;
            };
            self.floor = floor;
            if estimate <= floor {
                return;
            }
            self.listed.remove(&least);
        }
        let id = String::from_utf8_lossy(id).into_owned();
        self.listed.insert(
            hash,
            Subject {
                id,
                suppressed: estimate,
                events: estimate,
            },
        );
    }

    fn estimate_with_one_more(&mut self, hash: u64) -> u32 {
        if self.sketch.is_empty() {
            self.sketch = vec![Line([0; CELLS_PER_LINE]); LINES];
        }
        let Line(line) = &mut self.sketch[hash as usize % LINES];
        // Bits that have not chosen the line.
        let cells: [usize; CELLS] =
            std::array::from_fn(|cell| (hash >> (32 + 8 * cell)) as usize % CELLS_PER_LINE);
        let estimate = 1 + cells.map(|cell| line[cell]).into_iter().min().unwrap_or(0);
        for cell in cells {
            line[cell] = line[cell].max(estimate);
        }
        estimate
    }

    fn halve_if_due(&mut self, now_ms: u64) {
        let halvings = now_ms.saturating_sub(self.halved_at_ms) / HALF_LIFE_MS;
        if halvings == 0 {
            return;
        }
        self.halved_at_ms += halvings * HALF_LIFE_MS;
        let shift = u32::try_from(halvings).unwrap_or(u32::MAX);
        let halve = |count: &mut u32| *count = count.checked_shr(shift).unwrap_or(0);
        let cells = self.sketch.iter_mut().flat_map(|Line(cells)| cells);
        cells.for_each(halve);
        self.listed.retain(|_, subject| {
            halve(&mut subject.suppressed);
            halve(&mut subject.events);
            subject.suppressed > 0
        });
        self.floor = 0;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Rounds of one second: every healthy subject sends one event, of which some are suppressed.
    fn observe_healthy(noisy: &mut NoisySubjects, second: u64, healthy: u32) {
        let ids: Vec<String> = (0..healthy)
            .map(|number| format!("healthy-{number}"))
            .collect();
        let events = ids
            .iter()
            .zip(0_u64..)
            .map(|(id, number)| (id.as_bytes(), (number + second).is_multiple_of(17)));
        noisy.observe(second * 1000, events);
    }

    #[test]
    fn one_stuck_device_shows_within_a_minute_among_100000_healthy_ones() {
        let mut noisy = NoisySubjects::default();
        for second in 0..55 {
            observe_healthy(&mut noisy, second, 100_000);
            noisy.observe(second * 1000, [(&b"stuck"[..], true)].into_iter());
        }
        let top = noisy.top(10);
        assert_eq!(top[0].id, "stuck");
        assert_eq!(top[0].suppressed, top[0].events, "100 % suppressed");
        assert!(noisy.listed.len() <= LISTED);
    }

    #[test]
    fn estimates_of_100000_healthy_subjects_are_close() {
        let mut noisy = NoisySubjects::default();
        let hashes: Vec<u64> = (0..100_000_u64)
            .map(|number| xxh3_64(&number.to_be_bytes()))
            .collect();
        let mut largest = 0;
        for copies in 1..=4 {
            for &hash in &hashes {
                largest = largest.max(noisy.estimate_with_one_more(hash) - copies);
            }
        }
        assert!(largest <= 8, "too large by {largest}");
    }

    #[test]
    fn i14_a_constant_id_shows_at_the_top_and_fades_when_it_stops() {
        let mut noisy = NoisySubjects::default();
        noisy.observe(0, (0..1829).map(|number| (&b"0"[..], number > 0)));
        assert_eq!(
            noisy.top(1)[0],
            Subject {
                id: "0".to_owned(),
                suppressed: 1828,
                events: 1828
            }
        );
        noisy.observe(60_000, std::iter::empty());
        assert_eq!(noisy.top(1)[0].suppressed, 914);
        noisy.observe(60_000 * 40, std::iter::empty());
        assert_eq!(noisy.top(1), []);
    }
}
