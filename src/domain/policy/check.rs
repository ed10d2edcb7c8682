//! The relations between the parts of a policy.

use std::time::Duration;

use super::super::{key::Digest, kind::Accepts};
use super::{Bounds, MAX_SPAN, PolicyDraft, PolicyFault, Window};

/// Every fault of the draft, with its path in the namespace's configuration.
pub(super) fn faults(draft: &PolicyDraft) -> Vec<PolicyFault> {
    let mut faults = Vec::new();
    check_kinds(draft, &mut faults);
    check_window(draft, &mut faults);
    check_spans(draft, &mut faults);
    check_bounds(draft, &mut faults);
    faults
}

fn check_kinds(draft: &PolicyDraft, faults: &mut Vec<PolicyFault>) {
    let Accepts {
        transition,
        ping,
        keyed,
    } = draft.accepts;
    if !transition && !ping && !keyed {
        faults.push(PolicyFault::new(
            "accepts",
            "must name at least one of transition, ping, keyed",
        ));
    }
    if keyed && (transition || ping) {
        faults.push(PolicyFault::new(
            "accepts",
            "keyed stands alone: give keyed events a namespace of their own",
        ));
    }
    match (keyed, draft.window) {
        (true, Window::Buckets { .. } | Window::Session { .. }) => {
            faults.push(PolicyFault::new(
                "window",
                "keyed events have none: write `window: none`",
            ));
        }
        (false, Window::None) if transition || ping => {
            faults.push(PolicyFault::new(
                "window",
                "`none` is for keyed events only",
            ));
        }
        _ => {}
    }
    if ping && !transition && draft.digest == Some(Digest::Xxh3) {
        faults.push(PolicyFault::new(
            "key.digest",
            "pings have no other digest than blake2b",
        ));
    }
    if keyed && draft.digest.is_some() {
        faults.push(PolicyFault::new(
            "key.digest",
            "keyed events have no digest: the id is the key",
        ));
    }
}

fn check_window(draft: &PolicyDraft, faults: &mut Vec<PolicyFault>) {
    let (width_ns, guard_ns) = match draft.window {
        Window::None => return,
        Window::Buckets { width_ns, guard_ns } => (width_ns, guard_ns),
        Window::Session { gap_ns } => (gap_ns, 0),
    };
    if width_ns == 0 || u128::from(width_ns) > MAX_SPAN.as_nanos() {
        faults.push(PolicyFault::new(
            "window",
            "must be longer than 0 and at most 10 years",
        ));
    }
    if guard_ns > width_ns {
        faults.push(PolicyFault::new(
            "window.guard",
            "must not be wider than the window",
        ));
    }
    if draft.accepts.ping && width_ns % 1_000_000_000 != 0 {
        faults.push(PolicyFault::new(
            "window",
            "must be whole seconds where pings are accepted, since their keys hold the bucket's start in seconds",
        ));
    }
    let needed = Duration::from_nanos(width_ns.saturating_add(guard_ns));
    if draft.ttl < needed {
        faults.push(PolicyFault::new(
            "ttl",
            format!("{:?} is shorter than the window plus its guard, {needed:?}: copies within the window would pass", draft.ttl),
        ));
    }
    if matches!(draft.window, Window::Session { .. })
        && draft.place.is_some_and(|place| place.guard_m > 0.0)
    {
        faults.push(PolicyFault::new(
            "place.guard_m",
            "a session window has no space guard: set it to 0",
        ));
    }
}

fn check_spans(draft: &PolicyDraft, faults: &mut Vec<PolicyFault>) {
    if draft.ttl.is_zero() || draft.ttl > MAX_SPAN {
        faults.push(PolicyFault::new(
            "ttl",
            "must be longer than 0 and at most 10 years",
        ));
    }
    if draft.lease > draft.ttl {
        faults.push(PolicyFault::new("lease", "must not be longer than the ttl"));
    }
    if draft.in_flight_retry.is_zero() || draft.in_flight_retry > MAX_SPAN {
        faults.push(PolicyFault::new(
            "in_flight_retry",
            "must be longer than 0 and at most 10 years",
        ));
    }
}

/// max_duplicate_spread < reach of the window < min_revisit, or no width can be right.
fn check_bounds(draft: &PolicyDraft, faults: &mut Vec<PolicyFault>) {
    let Bounds {
        max_duplicate_spread,
        min_revisit,
    } = draft.bounds;
    let Window::Buckets { width_ns, guard_ns } = draft.window else {
        if draft.bounds != Bounds::default() {
            faults.push(PolicyFault::new(
                "bounds",
                "hold for tumbling and sliding windows only",
            ));
        }
        return;
    };
    let (width, guard) = (
        Duration::from_nanos(width_ns),
        Duration::from_nanos(guard_ns),
    );
    if let (Some(spread), Some(revisit)) = (max_duplicate_spread, min_revisit)
        && spread >= revisit
    {
        faults.push(PolicyFault::new(
            "bounds",
            "no width fits: duplicates spread as far as genuine events lie apart; \
             send the device's `sequence` with each transition instead",
        ));
        return;
    }
    if let Some(spread) = max_duplicate_spread
        && spread >= guard
    {
        faults.push(PolicyFault::new(
            "bounds.max_duplicate_spread",
            format!(
                "{spread:?} must be less than the guard, {guard:?} (for a sliding window its width)"
            ),
        ));
    }
    if let Some(revisit) = min_revisit
        && width >= revisit
    {
        faults.push(PolicyFault::new(
            "bounds.min_revisit",
            format!("{revisit:?} must be more than the window, {width:?}"),
        ));
    }
}
