//! Each strategy's numbers against a program that is too simple to be wrong: it keeps every claim in
//! a list and compares each event with all of its subject. It shares no code with the product.

use std::collections::{BTreeMap, HashMap, HashSet};

use super::{count, report, strategy, synth};

const MS: i64 = 1_000_000;
const S: i64 = 1000 * MS;
const HOUR: i64 = 3600 * S;

struct Row {
    subject: String,
    occurred: i64,
    arrived: i64,
    occurrence: Option<String>,
}

fn rows(csv: &[u8]) -> Vec<Row> {
    let text = std::str::from_utf8(csv).expect("UTF-8");
    let parse = |line: &str| {
        let fields: Vec<&str> = line.split(',').collect();
        let [device, fence, kind, occurred, arrived, occurrence] = fields[..] else {
            panic!("{line}")
        };
        Row {
            subject: format!("{device}/{fence}/{kind}"),
            occurred: occurred.parse().expect("a time"),
            arrived: arrived.parse().expect("a time"),
            occurrence: (!occurrence.is_empty()).then(|| occurrence.to_owned()),
        }
    };
    text.lines().skip(1).map(parse).collect()
}

#[derive(Clone, Copy)]
enum Way {
    Everything,
    Identity,
    RawTime,
    /// Width and guard.
    Near(i64, i64),
    TwoKeys(i64, i64),
    Gap(i64),
}

/// Which events are admitted, where claims live for `ttl`; and how many events came so near to the
/// end of a claim that a clock that stands still for a thousandth of the TTL may decide otherwise.
fn admitted(way: Way, rows: &[Row], ttl: i64) -> (Vec<bool>, u64) {
    let mut claims: HashMap<&str, Vec<(i64, i64)>> = HashMap::new();
    let mut keys: HashMap<(&str, i64), i64> = HashMap::new();
    let mut doubtful = 0;
    let admitted = rows.iter().map(|row| {
        let (t, now) = (row.occurred, row.arrived);
        let mut set = |number: i64| {
            let age = keys
                .get(&(row.subject.as_str(), number))
                .map(|since| now - since);
            doubtful += u64::from(age.is_some_and(|age| (age - ttl).abs() <= ttl / 500));
            let absent = age.is_none_or(|age| age >= ttl);
            if absent {
                keys.insert((&row.subject, number), now);
            }
            absent
        };
        let of_subject = claims.entry(&row.subject).or_default();
        match way {
            Way::Everything => true,
            Way::Identity => set(0),
            Way::RawTime => set(t),
            Way::TwoKeys(w, g) => {
                let own = set(t.div_euclid(w));
                let beside = match t.rem_euclid(w) {
                    offset if offset < g => set(t.div_euclid(w) - 1),
                    offset if offset > w - g => set(t.div_euclid(w) + 1),
                    _ => true,
                };
                own && beside
            }
            Way::Near(w, g) => {
                let mut found = false;
                for (at, since) in of_subject.iter() {
                    if t.div_euclid(w) == at.div_euclid(w) || (t - at).abs() < g {
                        doubtful += u64::from((now - since - ttl).abs() <= ttl / 500);
                        found |= now - since < ttl;
                    }
                }
                if !found {
                    of_subject.push((t, now));
                }
                !found
            }
            Way::Gap(gap) => {
                let found = of_subject.iter().any(|(at, _)| (t - at).abs() <= gap);
                of_subject.push((t, now));
                !found
            }
        }
    });
    let admitted = admitted.collect();
    (admitted, doubtful)
}

/// Occurrences, those triggered again, those swallowed.
fn judge(rows: &[Row], admitted: &[bool]) -> [u64; 3] {
    let mut admissions: BTreeMap<String, u64> = BTreeMap::new();
    for (index, (row, admitted)) in rows.iter().zip(admitted).enumerate() {
        let single = || format!("single {index}");
        let occurrence = row.occurrence.clone().unwrap_or_else(single);
        *admissions.entry(occurrence).or_default() += u64::from(*admitted);
    }
    let of = |wanted: fn(&u64) -> bool| admissions.values().filter(|n| wanted(n)).count() as u64;
    [admissions.len() as u64, of(|n| *n > 1), of(|n| *n == 0)]
}

const WAYS: [(&str, Way); 9] = [
    ("none", Way::Everything),
    ("raw", Way::RawTime),
    ("tumbling", Way::Near(2 * S, 0)),
    ("guarded", Way::Near(2 * S, 200 * MS)),
    ("two-keys", Way::TwoKeys(2 * S, 200 * MS)),
    ("tumbling=30s", Way::Near(30 * S, 0)),
    ("sliding", Way::Near(200 * MS, 200 * MS)),
    ("session", Way::Gap(200 * MS)),
    ("id", Way::Identity),
];

/// Busy enough that every strategy meets everything there is.
const BUSY: &str = "--occurrences 6k --duration 20m --devices 90 --fences 2 --re-entries 0.2 \
                    --retried 0.3 --replayed 0.05 --replay-delay 10m";

#[track_caller]
fn check(recipe: &str, ttl: &str, ttl_ns: i64, ways: &[(&str, Way)]) {
    let csv = synth(recipe);
    let rows = rows(&csv);
    let report = report(&format!("- --ttl {ttl}"), &csv);
    for &(name, way) in ways {
        let found = strategy(&report, name);
        let (admitted, doubtful) = admitted(way, &rows, ttl_ns);
        let expected = judge(&rows, &admitted);
        let judged = &found["judged"];
        let numbers =
            ["occurrences", "triggered_again", "swallowed"].map(|name| count(&judged[name]));
        assert_eq!(
            count(&found["events"]),
            rows.len() as u64,
            "{recipe} {name}"
        );
        for (number, expected) in numbers.into_iter().zip(expected) {
            assert!(
                number.abs_diff(expected) <= doubtful,
                "{recipe} --ttl {ttl} {name}: {numbers:?}, by hand {expected:?} ± {doubtful}"
            );
        }
        assert!(doubtful * 50 < rows.len() as u64, "{doubtful} prove little");
    }
}

#[test]
fn every_strategy_decides_as_the_simple_program_does() {
    for seed in 1..=2 {
        check(&format!("{BUSY} --seed {seed}"), "12h", 12 * HOUR, &WAYS);
    }
}

#[test]
fn with_clock_jumps_too() {
    let jumps = "--clock-jumps 0.3 --clock-jump 3s --clock-skew 2s";
    check(&format!("{BUSY} {jumps} --seed 4"), "12h", 12 * HOUR, &WAYS);
}

/// A session extends what it has seen: its expiry is the store's own business.
#[test]
fn with_replays_that_come_too_late_too() {
    let ways: Vec<_> = WAYS
        .into_iter()
        .filter(|(name, _)| !matches!(*name, "session"))
        .collect();
    check(&format!("{BUSY} --seed 5"), "4m", 240 * S, &ways);
}

#[test]
fn a_made_up_trace_is_the_same_in_a_file_and_in_memory_and_by_any_number_of_jobs() {
    let recipe = "--occurrences 3k --duration 60s --devices 50 --fences 2 --seed 9";
    let from_file = report("-", &synth(recipe));
    let made_up = report(&format!("--synthetic {recipe}"), b"");
    let by_two = report(&format!("--synthetic {recipe} --jobs 2"), b"");
    for (name, _) in WAYS {
        for other in [&made_up, &by_two] {
            for part in ["events", "judged", "by_reason", "peak_claims"] {
                let (a, b) = (strategy(&from_file, name), strategy(other, name));
                assert_eq!(a[part], b[part], "{name} {part}");
            }
        }
    }
    assert_eq!(synth(recipe), synth(recipe));
    assert_ne!(
        synth(recipe),
        synth(&format!("{recipe} --seed 10").replace("--seed 9", ""))
    );
}

/// What a recipe says is what it makes.
#[test]
fn a_made_up_trace_keeps_its_recipe() {
    let rows = rows(&synth(
        "--occurrences 40k --duration 10m --devices 2000 --fences 3 --retried 0.06 --replayed 0.01 \
         --replay-delay 5m --min-revisit 500ms --retry-spread 200ms",
    ));
    let mut firsts: HashMap<&str, Vec<i64>> = HashMap::new();
    let mut copies: HashMap<&str, Vec<&Row>> = HashMap::new();
    let mut seen = HashSet::new();
    for row in &rows {
        let is_first = match &row.occurrence {
            None => true,
            Some(id) => {
                copies.entry(id).or_default().push(row);
                seen.insert(id)
            }
        };
        if is_first {
            firsts.entry(&row.subject).or_default().push(row.occurred);
        }
    }
    let occurrences: usize = firsts.values().map(Vec::len).sum();
    assert_eq!(occurrences, 40_000);
    for times in firsts.values() {
        assert!(times.windows(2).all(|pair| pair[1] - pair[0] >= 500 * MS));
    }
    for copies in copies.values() {
        let times = copies.iter().map(|row| row.occurred);
        let spread = times
            .clone()
            .max()
            .zip(times.min())
            .map(|(max, min)| max - min);
        assert!(spread.is_some_and(|spread| spread < 200 * MS), "{spread:?}");
        assert!(copies.len() > 1, "a label says that there is a copy");
    }
    let share = copies.len() as f64 / occurrences as f64;
    let expected = 0.06 + 0.01 - 0.06 * 0.01;
    // Five standard deviations.
    assert!(
        (share - expected).abs() < 5.0 * (expected / 40_000.0).sqrt(),
        "{share}"
    );
    assert!(
        rows.windows(2)
            .all(|pair| pair[0].arrived <= pair[1].arrived)
    );
    assert!(rows.len() > 42_000, "{}", rows.len());
}
