//! How long a settled claim suppresses copies: as written, or derived from how the pipeline retries.

use std::time::Duration;

use super::{
    scope::Scope,
    written::{Field, Ladder, Or},
};

/// A jitter beyond this is not a fraction of the delay any more.
const MAX_JITTER: f64 = 1.0;

/// The TTL, which must be written.
pub(super) fn ttl(
    written: Option<Field<Or<Duration, Ladder>>>,
    scope: &mut Scope<'_>,
) -> Option<Duration> {
    match scope.require("ttl", written)? {
        Or::Plain(ttl) => Some(ttl),
        Or::Section(ladder) => derived(ladder, scope),
    }
}

/// Until the last copy that a retry can send: all delays with their jitter, one attempt more than
/// there are delays, and an outage; at least as long as the dead-letter queue keeps events.
fn derived(ladder: Ladder, scope: &mut Scope<'_>) -> Option<Duration> {
    let (ladder, mut scope) = scope.section("ttl", Some(Ok(ladder)));
    if ladder.retry_delays.is_some() == ladder.retry_offsets.is_some() {
        scope.fault("must be a duration, or hold either retry_delays or retry_offsets");
    }
    let delays = scope
        .list("retry_delays", ladder.retry_delays)
        .map(|delays| {
            let sum = delays
                .iter()
                .fold(Duration::ZERO, |sum, delay| sum.saturating_add(*delay));
            (sum, delays.len())
        });
    let offsets = scope
        .list("retry_offsets", ladder.retry_offsets)
        .and_then(|offsets| Some((*offsets.iter().max()?, offsets.len())));
    let jitter = scope.checked(
        "retry_jitter",
        ladder.retry_jitter,
        0.0,
        |fraction| (0.0..=MAX_JITTER).contains(fraction),
        "must be a fraction of the delays, 0 to 1",
    );
    let mut span = |key, written| scope.read(key, written).unwrap_or_default();
    let attempt_time = span("attempt_time", ladder.attempt_time);
    let outage_margin = span("outage_margin", ladder.outage_margin);
    let dead_letter_retention = span("dead_letter_retention", ladder.dead_letter_retention);

    let (retries, count) = delays.or(offsets)?;
    let attempts = u32::try_from(count + 1).unwrap_or(u32::MAX);
    let until_last_copy = retries
        .saturating_add(
            Duration::try_from_secs_f64(retries.as_secs_f64() * jitter).unwrap_or(Duration::MAX),
        )
        .saturating_add(attempt_time.saturating_mul(attempts))
        .saturating_add(outage_margin);
    Some(until_last_copy.max(dead_letter_retention))
}
