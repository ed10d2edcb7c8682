//! The recommendation as a namespace of a configuration file.

use std::fmt::Write;

use super::{
    recommend::{Recommendation, WindowAdvice},
    units::exact,
};
use crate::replay::read::TraceKind;

/// A whole file, which `dedupd check` accepts.
pub(super) fn namespace(name: &str, kind: TraceKind, advice: &Recommendation) -> String {
    let (accepts, failure_mode, why) = match kind {
        TraceKind::Transitions => ("transition", "closed", "nothing fires twice in an outage"),
        TraceKind::Pings => (
            "ping",
            "open",
            "in an outage copies pass and nothing is lost",
        ),
        TraceKind::Keyed => ("keyed", "closed", "nothing is done twice in an outage"),
    };
    let window = match advice.window {
        WindowAdvice::None => "none".to_owned(),
        WindowAdvice::Buckets { width_ns, guard_ns } if width_ns == guard_ns => {
            format!("{{ sliding: {} }}", exact(width_ns))
        }
        WindowAdvice::Buckets {
            width_ns,
            guard_ns: 0,
        } => {
            format!("{{ tumbling: {} }}", exact(width_ns))
        }
        WindowAdvice::Buckets { width_ns, guard_ns } => {
            format!(
                "{{ tumbling: {}, guard: {} }}",
                exact(width_ns),
                exact(guard_ns)
            )
        }
    };
    let mut yaml =
        format!("namespaces:\n  {name}:\n    accepts: [{accepts}]\n    window: {window}\n");
    let mut line = |text: String| {
        // Writing to a String cannot fail.
        let _ = writeln!(yaml, "    {text}");
    };
    if let Some(place) = advice.place {
        line(format!(
            "place: {{ resolution: {}, guard_m: {}, jitter_radius_m: {} }}",
            place.resolution, place.guard_m, place.jitter_radius_m
        ));
    }
    line(format!("ttl: {}", exact(advice.ttl_ns)));
    line(format!(
        "failure_mode: {failure_mode}   # yours to choose: {why}"
    ));
    let mut bounds = Vec::new();
    if let Some(spread_ns) = advice.spread_ns {
        bounds.push(format!("max_duplicate_spread: {}", exact(spread_ns)));
    }
    if let Some(revisit_ns) = advice.revisit_ns {
        bounds.push(format!("min_revisit: {}", exact(revisit_ns)));
    }
    if !bounds.is_empty() {
        line(format!(
            "bounds: {{ {} }}   # as measured",
            bounds.join(", ")
        ));
    }
    if let Some(max_age_ns) = advice.max_age_ns {
        line(format!("time: {{ max_age: {} }}", exact(max_age_ns)));
    }
    yaml
}
