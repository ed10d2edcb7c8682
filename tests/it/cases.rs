//! Real trouble, as small inputs, over gRPC against the real binary; names begin with the case's id.
//!
//! Unless a case says otherwise W = 60 s, G = 5 s, H3 resolution 9, TTL 600 s, and what is admitted
//! is confirmed at once. T0 lies longer ago than any TTL here, so what is admitted there is `LATE`.

mod claims;
mod counters;
mod forgetting;
mod identity;
mod occurrence;
mod plausibility;
mod sessions;
mod settling;
mod shadow;
mod space;
mod windows;

/// What every namespace of the cases says beside its kind and window.
const REST: &str = "ttl: 600s, failure_mode: closed, time: { max_future: off, max_age: off }";

/// Pings without place, transitions, and keyed events, by the cases' parameters.
fn usual() -> String {
    format!(
        "namespaces:
  pings: {{ accepts: [ping], window: {{ tumbling: 60s, guard: 5s }}, place: none, {REST} }}
  crossings: {{ accepts: [transition], window: {{ tumbling: 60s, guard: 5s }}, {REST} }}
  orders: {{ accepts: [keyed], window: none, {REST} }}
"
    )
}

/// The same under a lease.
fn leased(lease: &str) -> String {
    usual().replace(REST, &format!("{REST}, lease: {lease}"))
}
