//! For a browser.

use super::{Advice, text::replay_words};
use crate::replay::{
    advise::{
        evidence::{Evidence, Unit},
        units::{bytes, count, span},
    },
    report::html::{chart::Histogram, page::Page},
};

const BINS_PER_OCTAVE: u32 = 4;

pub(super) fn page(advice: &Advice) -> String {
    let measured = &advice.measured;
    let recommendation = &advice.recommendation;
    let mut page = Page::new("Advice", &advice.trace);
    page.pairs(&[
        ("events".to_owned(), count(measured.events)),
        ("length".to_owned(), span(measured.span_ns)),
    ]);
    if let Some(crossing) = &recommendation.crossing {
        page.warning(crossing);
    }
    page.heading("Recommended");
    let choices = recommendation.choices.iter().map(|choice| {
        vec![
            choice.key.to_owned(),
            choice.value.clone(),
            choice.sureness.to_string(),
            choice.because.clone(),
        ]
    });
    page.table(&["key", "value", "how sure", "because"], 4, choices);
    page.code(&advice.yaml());
    if let Some(outcome) = &advice.replayed {
        page.paragraph(&replay_words(measured.kind, outcome));
    }
    page.heading("What it costs");
    let cost = &advice.cost;
    let figures = [
        ("claims alive", count(cost.claims_alive.ceil() as u64)),
        ("in Redis", bytes(cost.redis_bytes)),
        ("in the embedded store", bytes(cost.embedded_bytes)),
        (
            "Redis commands a second",
            format!("{:.1}", cost.redis_commands_per_s),
        ),
        ("shards", cost.shards.to_string()),
    ];
    let rows = figures
        .into_iter()
        .map(|(name, value)| vec![name.to_owned(), value]);
    page.table(&["figure", "value"], 1, rows);
    page.notes(&cost.arithmetic);
    page.heading("Evidence");
    for evidence in advice.evidence() {
        let caption = format!("{} ({} in all)", evidence.title, count(evidence.of.count()));
        page.figure(&caption, &histogram(&evidence).svg());
    }
    if let Some(found) = measured
        .assets
        .as_ref()
        .filter(|found| !found.noisiest.is_empty())
    {
        page.heading("Jitter by asset");
        page.paragraph(&format!(
            "The noisiest of {} that stood still: the median, over its stops, of the radius that holds 95 % of \
             the fixes.",
            count(found.assets_that_stood as u64)
        ));
        let rows = found.noisiest.iter().map(|asset| {
            vec![
                asset.asset.clone(),
                format!("{:.2} m", asset.radius_m),
                asset.stops.to_string(),
            ]
        });
        page.table(&["asset", "radius", "stops"], 1, rows);
    }
    for (title, lines) in [
        ("What the trace does not hold", &recommendation.missing),
        ("Remarks", &recommendation.remarks),
    ] {
        if !lines.is_empty() {
            page.heading(title);
            page.notes(lines);
        }
    }
    page.bad_rows(&measured.bad_rows);
    page.finish()
}

fn histogram(evidence: &Evidence<'_>) -> Histogram {
    let bins = evidence.of.bins(BINS_PER_OCTAVE);
    let marks = evidence.marks.iter().map(|(name, value)| {
        (
            *value as f64,
            format!("{name} {}", evidence.unit.text(*value)),
        )
    });
    Histogram {
        title: evidence.title.to_owned(),
        bins: bins
            .iter()
            .map(|bin| (bin.low, bin.high, bin.count))
            .collect(),
        ticks: ticks(evidence.unit),
        marks: marks.collect(),
    }
}

/// Round values, from the least that can be.
fn ticks(unit: Unit) -> Vec<(f64, String)> {
    match unit {
        Unit::Nanoseconds => {
            let below_a_minute = (0..=10).map(|power| 10_u64.pow(power));
            let above = [60, 600, 3600, 6 * 3600, 86_400, 604_800, 2_592_000];
            let above = above.map(|seconds| seconds * 1_000_000_000);
            below_a_minute
                .chain(above)
                .map(|ns| (ns as f64, span(ns)))
                .collect()
        }
        Unit::Millimetres => (0..=7)
            .map(|power| {
                let millimetres = 10_u64.pow(power);
                (
                    millimetres as f64,
                    format!("{} m", millimetres as f64 / 1000.0),
                )
            })
            .collect(),
    }
}
