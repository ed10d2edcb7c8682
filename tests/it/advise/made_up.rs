//! On traces that are made up, what is measured against the recipe, over many seeds.

use std::time::Duration;

use dedupd::{
    domain::{
        event::RawPosition,
        identity::{RawIdentity, RawTransitionKind},
        time::RawTime,
    },
    replay::{
        advise::recommend::{Sureness, WindowAdvice},
        read::TraceKind,
        synth::{Recipe, Subjects, Synth},
        trace::{About, TraceEvent},
    },
};

use super::{Untold, advise, policy, replay};

const SEEDS: u64 = 6;
const MILLISECOND: u64 = 1_000_000;

pub(super) fn about<'a>(event: &TraceEvent<'a>) -> About<'a> {
    match event.event.identity {
        RawIdentity::Transition {
            device_id,
            fence_id,
            kind: Some(RawTransitionKind::Known(kind)),
            sequence,
            ..
        } => About::Transition {
            device: device_id,
            fence: fence_id,
            kind,
            sequence,
        },
        RawIdentity::Ping { asset_id } => About::Ping { asset: asset_id },
        other => panic!("{other:?}"),
    }
}

pub(super) fn time(event: &TraceEvent<'_>) -> Option<i64> {
    match event.event.time {
        RawTime::UnixNanos(nanos) => Some(nanos),
        _ => None,
    }
}

pub(super) fn position(event: &TraceEvent<'_>) -> Option<(f64, f64)> {
    match event.event.position {
        RawPosition::LatLng {
            latitude,
            longitude,
        } => latitude.zip(longitude),
        _ => None,
    }
}

fn crossings(seed: u64) -> Recipe {
    Recipe {
        seed,
        occurrences: 20_000,
        duration: Duration::from_secs(2 * 3600),
        subjects: Subjects::Fences {
            devices: 5_000,
            fences: 50,
            min_revisit: Duration::from_millis(500),
            re_entries: 0.05,
            mean_revisit: Duration::from_secs(1),
        },
        retried: 0.06,
        retry_spread: Duration::from_millis(200),
        replayed: 0.002,
        replay_delay: Duration::from_secs(3600),
        ..Recipe::default()
    }
}

fn fleet(seed: u64, noise_m: f64) -> Recipe {
    Recipe {
        seed,
        occurrences: 15_000,
        duration: Duration::from_secs(3600),
        subjects: Subjects::Fleet {
            assets: 50,
            parked: 0.6,
            noise_m,
            speed_m_per_s: 12.0,
        },
        retried: 0.05,
        retry_spread: Duration::from_millis(300),
        replayed: 0.0,
        ..Recipe::default()
    }
}

#[test]
fn told_copies_and_revisits_come_out_and_the_recommendation_errs_never() {
    for seed in 1..=SEEDS {
        let advice = advise(&mut Synth::new(crossings(seed)), TraceKind::Transitions);
        let parting = advice.parting.expect("copies and revisits");
        // Some 1,500 retries up to 200 ms apart, 1,000 re-entries from half a second on.
        assert!(
            (194..=200).contains(&(parting.spread_ns / MILLISECOND)),
            "seed {seed}: {parting:?}"
        );
        let revisit_ms = parting.revisit_ns.expect("revisits") / MILLISECOND;
        assert!((500..520).contains(&revisit_ms), "seed {seed}: {parting:?}");
        assert_eq!(advice.recommendation.crossing, None, "seed {seed}");
        let outcome = replay(&mut Synth::new(crossings(seed)), &advice);
        let judged = outcome.judged.expect("it tells");
        assert_eq!(
            (judged.triggered_again, judged.swallowed),
            (0, 0),
            "seed {seed}: {}",
            advice.yaml()
        );
        assert_eq!(outcome.refused, 0);
    }
}

/// Copies that are not told are paired with all of their subject's, the next crossing's among them:
/// both ends of the valley move inwards, by no more than the spread.
#[test]
fn untold_copies_are_parted_from_revisits_at_the_valley() {
    for seed in 1..=SEEDS {
        let mut untold = Untold(Synth::new(crossings(seed)));
        let advice = advise(&mut untold, TraceKind::Transitions);
        let parting = advice.parting.expect("a valley");
        let (spread_ms, revisit_ms) = (
            parting.spread_ns / MILLISECOND,
            parting.revisit_ns.expect("revisits") / MILLISECOND,
        );
        assert!((180..=320).contains(&spread_ms), "seed {seed}: {parting:?}");
        assert!(
            (300..=510).contains(&revisit_ms),
            "seed {seed}: {parting:?}"
        );
        let sure = advice.recommendation.choices[0].sureness;
        assert!(sure < Sureness::Sure, "a guess is not sure");
        assert!(
            advice
                .recommendation
                .missing
                .iter()
                .any(|text| text.starts_with("occurrence_id")),
            "{:?}",
            advice.recommendation.missing
        );
        let outcome = replay(&mut Synth::new(crossings(seed)), &advice);
        let judged = outcome.judged.expect("it tells");
        assert_eq!(judged.triggered_again, 0, "seed {seed}: {}", advice.yaml());
        assert_eq!(judged.swallowed, 0, "seed {seed}: {}", advice.yaml());
    }
}

#[test]
fn bounds_that_cross_are_told_and_the_sequence_recommended() {
    for seed in 1..=3 {
        let mut recipe = crossings(seed);
        recipe.retry_spread = Duration::from_secs(4);
        let advice = advise(&mut Synth::new(recipe.clone()), TraceKind::Transitions);
        let crossing = advice.recommendation.crossing.as_ref().expect("told");
        assert!(crossing.contains("`sequence`"), "{crossing}");
        let parting = advice.parting.expect("copies");
        // The window that it falls back to errs about as often as was said.
        let judged = replay(&mut Synth::new(recipe), &advice)
            .judged
            .expect("it tells");
        let said = parting.stray_copies + parting.stray_revisits;
        let errs = judged.triggered_again + judged.swallowed;
        assert!(
            errs > 0 && errs < 2 * said,
            "seed {seed}: {errs} errors, {said} foretold"
        );
        policy(&advice);
    }
}

#[test]
fn a_clock_that_jumps_makes_the_bounds_cross() {
    let mut recipe = crossings(1);
    recipe.clock_jumps = 0.05;
    let advice = advise(&mut Synth::new(recipe), TraceKind::Transitions);
    assert!(advice.recommendation.crossing.is_some());
    let spread_ms = advice.parting.expect("copies").spread_ns / MILLISECOND;
    assert!(spread_ms <= 210, "jumps move the spread to {spread_ms} ms");
}

/// 95 % of fixes with normal noise in two coordinates lie within 2.448 standard deviations.
#[test]
fn the_scatter_of_parked_assets_is_the_receivers() {
    for seed in 1..=SEEDS {
        for noise_m in [1.5, 8.0] {
            let advice = advise(&mut Synth::new(fleet(seed, noise_m)), TraceKind::Pings);
            let found = advice.measured.assets.as_ref().expect("pings");
            let radius_m = found.asset_radii_mm.quantile(0.5).expect("stops") as f64 / 1000.0;
            let expected_m = 2.448 * noise_m;
            assert!(
                (radius_m / expected_m - 1.0).abs() < 0.08,
                "seed {seed}: {radius_m} m of {expected_m} m"
            );
            let interval_s = found.intervals.quantile(0.5).expect("reports") as f64 / 1e9;
            // 50 assets in turn, 15,000 reports in an hour.
            assert!((interval_s / 12.0 - 1.0).abs() < 0.05, "{interval_s}");
            let place = advice.recommendation.place.expect("a place");
            assert!(
                place.jitter_radius_m >= 2.0 * expected_m * 0.92,
                "{place:?}"
            );
        }
    }
}

#[test]
fn doubled_reports_of_a_fleet_are_admitted_once() {
    for seed in 1..=2 {
        let advice = advise(&mut Synth::new(fleet(seed, 4.0)), TraceKind::Pings);
        let outcome = replay(&mut Synth::new(fleet(seed, 4.0)), &advice);
        let judged = outcome.judged.expect("it tells");
        assert_eq!(judged.triggered_again, 0, "seed {seed}: {}", advice.yaml());
        // Two assets in five drive, and are admitted wherever they go.
        assert!(outcome.admitted * 3 < outcome.events * 2, "{outcome:?}");
    }
}

#[test]
fn the_ttl_is_above_how_late_copies_come() {
    for seed in 1..=3 {
        let advice = advise(&mut Synth::new(crossings(seed)), TraceKind::Transitions);
        let late_s = advice.measured.copies.lag.largest().expect("copies") / 1_000_000_000;
        let ttl_s = advice.recommendation.ttl_ns / 1_000_000_000;
        assert!(
            late_s > 2000 && ttl_s > late_s && ttl_s <= 3 * late_s,
            "{ttl_s} {late_s}"
        );
    }
}

#[test]
fn too_little_is_told() {
    let mut recipe = crossings(1);
    recipe.occurrences = 40;
    let advice = advise(&mut Synth::new(recipe), TraceKind::Transitions);
    let recommendation = &advice.recommendation;
    assert!(
        recommendation
            .missing
            .iter()
            .any(|text| text.starts_with("Events: ")),
        "{:?}",
        recommendation.missing
    );
    assert_eq!(recommendation.choices[0].sureness, Sureness::Assumed);
    policy(&advice);
}

/// Whatever is measured, what comes of it is a configuration.
#[test]
fn every_recommendation_is_accepted() {
    for seed in 0..24_u64 {
        let mut recipe = crossings(seed);
        recipe.occurrences = [1, 3, 50, 1500][seed as usize % 4];
        recipe.retry_spread = Duration::from_nanos(10_u64.pow(seed as u32 % 12));
        recipe.replay_delay = Duration::from_millis(10_u64.pow(seed as u32 % 9));
        recipe.retried = [0.0, 0.3][seed as usize / 2 % 2];
        recipe.replayed = [0.3, 0.0][seed as usize / 3 % 2];
        if let Subjects::Fences { min_revisit, .. } = &mut recipe.subjects {
            *min_revisit = Duration::from_nanos(10_u64.pow(seed as u32 * 5 % 11));
        }
        for kind in [TraceKind::Transitions, TraceKind::Pings] {
            if kind == TraceKind::Pings {
                recipe.subjects = fleet(seed, 0.1 * seed as f64).subjects;
            }
            for told in [true, false] {
                let synth = Synth::new(recipe.clone());
                let advice = if told {
                    advise(&mut { synth }, kind)
                } else {
                    advise(&mut Untold(synth), kind)
                };
                let policy = policy(&advice);
                let is_bucketed = matches!(
                    advice.recommendation.window,
                    WindowAdvice::Buckets { width_ns, guard_ns } if guard_ns <= width_ns
                );
                assert!(is_bucketed, "{policy:?}");
                assert!(!advice.text().is_empty() && !advice.html().is_empty());
            }
        }
    }
}
