//! For a terminal.

use std::fmt::Write;

use super::Advice;
use crate::replay::{
    advise::{
        distribution::Bin,
        evidence::Evidence,
        units::{bytes, count, span},
    },
    read::TraceKind,
    run::Outcome,
};

const BAR_WIDTH: usize = 44;
const BINS_PER_OCTAVE: u32 = 4;
/// Rows of a histogram; more are put together.
const MAX_ROWS: usize = 20;

pub(super) fn text(advice: &Advice) -> String {
    let mut out = String::new();
    // Writing to a String cannot fail.
    let _ = write(advice, &mut out);
    out
}

fn write(advice: &Advice, out: &mut String) -> std::fmt::Result {
    let measured = &advice.measured;
    let kind = match measured.kind {
        TraceKind::Transitions => "transitions",
        TraceKind::Pings => "pings",
        TraceKind::Keyed => "keyed events",
    };
    writeln!(
        out,
        "{}: {} {kind} in {}, {} rows left out",
        advice.trace,
        count(measured.events),
        span(measured.span_ns),
        count(measured.bad_rows.count)
    )?;
    for (line, why) in &measured.bad_rows.first {
        writeln!(out, "  line {line} {why}")?;
    }
    let recommendation = &advice.recommendation;
    if let Some(crossing) = &recommendation.crossing {
        writeln!(out, "\nCROSSING\n  {crossing}")?;
    }
    writeln!(out, "\nRECOMMENDED")?;
    for choice in &recommendation.choices {
        writeln!(
            out,
            "  {}: {}  ({})",
            choice.key, choice.value, choice.sureness
        )?;
        writeln!(out, "      {}", choice.because)?;
    }
    if let Some(outcome) = &advice.replayed {
        writeln!(
            out,
            "\nREPLAYED\n  {}",
            replay_words(measured.kind, outcome)
        )?;
    }
    let cost = &advice.cost;
    writeln!(
        out,
        "\nCOST\n  {} claims alive; {} in Redis or {} in the embedded store; {:.1} Redis commands a second; \
         {} shard(s)",
        count(cost.claims_alive.ceil() as u64),
        bytes(cost.redis_bytes),
        bytes(cost.embedded_bytes),
        cost.redis_commands_per_s,
        cost.shards
    )?;
    for line in &cost.arithmetic {
        writeln!(out, "      {line}")?;
    }
    for (title, lines) in [
        ("MISSING", &recommendation.missing),
        ("REMARKS", &recommendation.remarks),
    ] {
        if !lines.is_empty() {
            writeln!(out, "\n{title}")?;
        }
        for line in lines {
            writeln!(out, "  - {line}")?;
        }
    }
    noisiest(advice, out)?;
    writeln!(out, "\nEVIDENCE")?;
    for evidence in advice.evidence() {
        histogram(&evidence, out)?;
    }
    write!(out, "\nNAMESPACE\n{}", advice.yaml())
}

pub(super) fn replay_words(kind: TraceKind, outcome: &Outcome) -> String {
    let mut words = format!(
        "By the engine over the same trace: {} events, {} admitted, {} suppressed, {} refused",
        count(outcome.events),
        count(outcome.admitted),
        count(outcome.suppressed),
        count(outcome.refused)
    );
    match outcome.judged {
        Some(judged) => {
            let _ = write!(
                words,
                "; of {} occurrences {} were admitted again, {} never",
                count(judged.occurrences),
                count(judged.triggered_again),
                count(judged.swallowed)
            );
        }
        None => words.push_str("; which of them are copies the trace does not tell"),
    }
    words.push('.');
    if kind == TraceKind::Pings && outcome.judged.is_some() {
        words.push_str(
            " Of pings the latter are not lost: they say again where an asset is that was admitted there.",
        );
    }
    words
}

fn noisiest(advice: &Advice, out: &mut String) -> std::fmt::Result {
    let Some(found) = advice
        .measured
        .assets
        .as_ref()
        .filter(|found| !found.noisiest.is_empty())
    else {
        return Ok(());
    };
    writeln!(
        out,
        "\nJITTER BY ASSET (the noisiest of {} that stood still; median of their stops)",
        count(found.assets_that_stood as u64)
    )?;
    for asset in &found.noisiest {
        let name: String = asset
            .asset
            .chars()
            .filter(|c| !c.is_control())
            .take(40)
            .collect();
        writeln!(
            out,
            "  {name:<16} {:>8.2} m  {} stop(s)",
            asset.radius_m, asset.stops
        )?;
    }
    Ok(())
}

/// Marks stand between the rows, where their values lie.
fn histogram(evidence: &Evidence<'_>, out: &mut String) -> std::fmt::Result {
    writeln!(
        out,
        "\n  {} ({} in all)",
        evidence.title,
        count(evidence.of.count())
    )?;
    let bins = evidence.of.bins(BINS_PER_OCTAVE);
    let bins: Vec<Bin> = bins
        .chunks(bins.len().div_ceil(MAX_ROWS).max(1))
        .filter_map(|together| {
            Some(Bin {
                low: together.first()?.low,
                high: together.last()?.high,
                count: together.iter().map(|bin| bin.count).sum(),
            })
        })
        .collect();
    let most = bins.iter().map(|bin| bin.count).max().unwrap_or(1).max(1);
    let mut marks = evidence.marks.clone();
    marks.sort_by_key(|(_, value)| *value);
    let mut marks = marks.into_iter().peekable();
    let mark = |name: &str, value: u64| format!("  ---- {name} {} ----", evidence.unit.text(value));
    for bin in bins {
        while let Some((name, value)) = marks.next_if(|(_, value)| (*value as f64) < bin.high) {
            writeln!(out, "{}", mark(name, value))?;
        }
        let length = (bin.count as f64 / most as f64 * BAR_WIDTH as f64).ceil() as usize;
        writeln!(
            out,
            "  from {:>9} {:>12} {}",
            evidence.unit.text(bin.low as u64),
            count(bin.count),
            "#".repeat(length)
        )?;
    }
    for (name, value) in marks {
        writeln!(out, "{}", mark(name, value))?;
    }
    Ok(())
}
