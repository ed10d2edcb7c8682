//! For programs.

use serde_json::{Value, json};

use super::Advice;
use crate::replay::{advise::distribution::Distribution, read::TraceKind};

pub(super) fn json(advice: &Advice) -> String {
    let measured = &advice.measured;
    let recommendation = &advice.recommendation;
    let kind = match measured.kind {
        TraceKind::Transitions => "transitions",
        TraceKind::Pings => "pings",
        TraceKind::Keyed => "keyed",
    };
    let bad_rows: Vec<Value> = measured
        .bad_rows
        .first
        .iter()
        .map(|(line, why)| json!({ "line": line, "why": why }))
        .collect();
    let evidence: Vec<Value> = advice
        .evidence()
        .iter()
        .map(|evidence| {
            let marks: Vec<Value> = evidence
                .marks
                .iter()
                .map(|(name, value)| json!({ "name": name, "value": value }))
                .collect();
            json!({
                "title": evidence.title,
                "unit": evidence.unit.key(),
                "distribution": distribution(evidence.of),
                "marks": marks,
            })
        })
        .collect();
    let noisiest: Vec<Value> = measured.assets.iter()
        .flat_map(|found| &found.noisiest)
        .map(|asset| json!({ "asset": asset.asset, "stops": asset.stops, "radius_m": asset.radius_m }))
        .collect();
    let parting = advice.parting.map(|parting| {
        json!({
            "by": if measured.tells_copies() { "truth" } else { "valley" },
            "spread_ns": parting.spread_ns,
            "revisit_ns": parting.revisit_ns,
            "copies": parting.copies,
            "revisits": parting.revisits,
            "stray_copies": parting.stray_copies,
            "stray_revisits": parting.stray_revisits,
        })
    });
    let replayed = advice.replayed.as_ref().map(|outcome| {
        json!({
            "events": outcome.events,
            "admitted": outcome.admitted,
            "suppressed": outcome.suppressed,
            "refused": outcome.refused,
            "triggered_again": outcome.judged.map(|judged| judged.triggered_again),
            "swallowed": outcome.judged.map(|judged| judged.swallowed),
            "peak_claims": outcome.peak_claims,
        })
    });
    let whole = json!({
        "trace": advice.trace,
        "kind": kind,
        "events": measured.events,
        "unusable": measured.unusable,
        "bad_rows": { "count": measured.bad_rows.count, "first": bad_rows },
        "span_ns": measured.span_ns,
        "parting": parting,
        "crossing": recommendation.crossing,
        "choices": recommendation.choices,
        "ttl_ns": recommendation.ttl_ns,
        "missing": recommendation.missing,
        "remarks": recommendation.remarks,
        "noisiest_assets": noisiest,
        "replayed": replayed,
        "cost": advice.cost,
        "evidence": evidence,
        "yaml": advice.yaml(),
    });
    format!("{whole:#}\n")
}

fn distribution(of: &Distribution) -> Value {
    let quantile = |share| of.quantile(share);
    json!({
        "count": of.count(),
        "least": of.least(),
        "p01": quantile(0.01),
        "p50": quantile(0.5),
        "p90": quantile(0.9),
        "p99": quantile(0.99),
        "p999": quantile(0.999),
        "largest": of.largest(),
    })
}
