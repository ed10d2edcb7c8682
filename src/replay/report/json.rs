//! The report as JSON.

use serde_json::{Map, Value, json};

use super::Report;
use crate::replay::run::{Outcome, Quantiles};

pub fn json(report: &Report) -> Value {
    let settings: Map<String, Value> = report
        .settings
        .iter()
        .map(|(name, value)| (name.clone(), json!(value)))
        .collect();
    let bad_rows: Vec<Value> = report
        .bad_rows
        .first
        .iter()
        .map(|(line, why)| json!({ "line": line, "why": why }))
        .collect();
    json!({
        "trace": report.trace,
        "settings": settings,
        "notes": report.notes,
        "bad_rows": { "count": report.bad_rows.count, "first": bad_rows },
        "strategies": report.outcomes.iter().map(outcome).collect::<Vec<_>>(),
    })
}

fn outcome(outcome: &Outcome) -> Value {
    let by_reason: Map<String, Value> = outcome
        .by_reason
        .iter()
        .map(|(reason, events)| (reason.name().to_owned(), json!(events)))
        .collect();
    let judged = outcome.judged.map(|judged| {
        json!({
            "occurrences": judged.occurrences,
            "triggered_again": judged.triggered_again,
            "duplicate_trigger_rate": outcome.duplicate_trigger_rate(),
            "swallowed": judged.swallowed,
            "swallow_rate": outcome.swallow_rate(),
            "refused": judged.refused,
        })
    });
    json!({
        "name": outcome.name,
        "rule": outcome.rule,
        "events": outcome.events,
        "admitted": outcome.admitted,
        "suppressed": outcome.suppressed,
        "refused": outcome.refused,
        "by_reason": by_reason,
        "judged": judged,
        "peak_claims": outcome.peak_claims,
        "peak_bytes": outcome.peak_bytes,
        "decision": outcome.decision.map(quantiles),
        "request": outcome.request.map(quantiles),
        "trace_span_s": outcome.trace_span.as_secs_f64(),
        "took_s": outcome.took.as_secs_f64(),
    })
}

fn quantiles(quantiles: Quantiles) -> Value {
    json!({ "p50_ns": quantiles.p50_ns, "p99_ns": quantiles.p99_ns, "samples": quantiles.samples })
}
