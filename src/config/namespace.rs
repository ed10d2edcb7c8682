//! From what was written about one namespace to its rules.
//!
//! Where a part is wrong, one that no rule objects to stands in for it, so that the others are
//! still held against each other; without `accepts` and `window` that would say nothing.

use std::time::Duration;

use super::{
    scope::Scope,
    ttl,
    written::{self, Field, Limit, Or},
};
use crate::domain::{
    key::Layout,
    kind::{Accepts, Kind},
    place::Region,
    policy::{
        Bounds, DEFAULT_JITTER_RADIUS_M, FailureMode, MAX_SPAN, NamespaceName, Place, Policy,
        PolicyDraft, Window,
    },
    time::{DEFAULT_MAX_AGE, DEFAULT_MAX_FUTURE, Implausible, TimeLimits},
};

/// The rules, if they could be made; all faults are on the scope.
pub(super) fn policy(
    name: &str,
    written: written::Namespace,
    on_cluster: bool,
    scope: &mut Scope<'_>,
) -> Option<Policy> {
    scope.refuse_unknown_keys(&written);
    let name = NamespaceName::new(name).map_err(|fault| scope.at(fault.path).fault(fault.message));
    let accepts = accepts(written.accepts, scope);
    let window = window(written.window, scope);
    let pings = accepts.is_some_and(|accepts| accepts.ping);
    let place = place(written.place, pings, scope);
    let ttl = ttl::ttl(written.ttl, scope);
    let failure_mode = scope.require("failure_mode", written.failure_mode);
    let lease = scope.read("lease", written.lease);
    let in_flight_retry = scope.read("in_flight_retry", written.in_flight_retry);
    let content_mismatch = scope.read("content_mismatch", written.content_mismatch);
    let mode = scope.read("mode", written.mode);
    let time_limits = time_limits(written.time, scope);
    let bounds = bounds(written.bounds, scope);
    let (key, mut key_scope) = scope.section("key", written.key);
    let prefix = key_scope.read("prefix", key.prefix);
    let layout = key_scope.read("layout", key.layout);
    let digest = key_scope.read("digest", key.digest);
    let unsaid = PolicyDraft::new(
        name.ok()?,
        accepts?,
        window?,
        ttl.unwrap_or(MAX_SPAN),
        failure_mode.unwrap_or(FailureMode::Closed),
    );
    let mut draft = PolicyDraft {
        place,
        lease: lease.unwrap_or(unsaid.lease),
        in_flight_retry: in_flight_retry.unwrap_or(unsaid.in_flight_retry),
        content_mismatch: content_mismatch.unwrap_or(unsaid.content_mismatch),
        mode: mode.unwrap_or(unsaid.mode),
        time_limits,
        bounds,
        prefix,
        layout,
        digest,
        ..unsaid
    };
    if on_cluster {
        lay_out_for_cluster(&mut draft, scope);
    }
    match Policy::new(draft) {
        Ok(policy) => Some(policy),
        Err(faults) => {
            for fault in faults {
                scope.at(fault.path).fault(fault.message);
            }
            None
        }
    }
}

/// A cluster takes no command over keys of several slots.
fn lay_out_for_cluster(draft: &mut PolicyDraft, scope: &mut Scope<'_>) {
    match draft.layout {
        None if draft.has_guards() => draft.layout = Some(Layout::Tagged),
        Some(Layout::Plain) if draft.has_guards() => scope.at("key.layout").fault(
            "plain spreads an event's keys over the slots of the cluster, and a guard, a sliding or a \
             session window looks at several of them at once: write tagged, or leave it out",
        ),
        None | Some(Layout::Plain | Layout::Tagged) => {}
    }
}

fn accepts(written: Option<Field<Vec<Field<Kind>>>>, scope: &mut Scope<'_>) -> Option<Accepts> {
    if written.is_none() {
        scope.at("accepts").fault("is required");
    }
    scope.list("accepts", written).map(Accepts::from_kinds)
}

fn window(
    written: Option<Field<Or<written::Absent, written::Window>>>,
    scope: &mut Scope<'_>,
) -> Option<Window> {
    let section = match scope.require("window", written)? {
        Or::Plain(written::Absent) => return Some(Window::None),
        Or::Section(section) => section,
    };
    let (section, mut scope) = scope.section("window", Some(Ok(section)));
    let guard = section.guard.map(|guard| scope.read("guard", Some(guard)));
    let kinds = (
        section
            .tumbling
            .map(|width| scope.read("tumbling", Some(width))),
        section
            .sliding
            .map(|width| scope.read("sliding", Some(width))),
        section.session.map(|gap| scope.read("session", Some(gap))),
    );
    if guard.is_some() && kinds.0.is_none() {
        scope
            .at("guard")
            .fault("is for tumbling windows; a sliding one has a guard as wide as itself");
    }
    match kinds {
        (Some(width), None, None) => Some(Window::Buckets {
            width_ns: nanos(width?),
            guard_ns: nanos(guard.unwrap_or(Some(Duration::ZERO))?),
        }),
        (None, Some(width), None) => {
            let width_ns = nanos(width?);
            Some(Window::Buckets {
                width_ns,
                guard_ns: width_ns,
            })
        }
        (None, None, Some(gap)) => Some(Window::Session {
            gap_ns: nanos(gap?),
        }),
        _ => {
            scope.fault("must hold one of tumbling, sliding, session");
            None
        }
    }
}

/// What is more than u64 holds (584 years) is refused as too long all the same.
fn nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

fn place(
    written: Option<Field<Or<written::Absent, written::Place>>>,
    pings: bool,
    scope: &mut Scope<'_>,
) -> Option<Place> {
    if written.is_none() && pings {
        scope
            .at("place")
            .fault("is required where pings are accepted: { resolution: 12 }, or none where positions play no part");
    }
    let section = match scope.read("place", written)? {
        Or::Plain(written::Absent) => return None,
        Or::Section(section) => section,
    };
    let (section, mut scope_of_place) = scope.section("place", Some(Ok(section)));
    let resolution = scope_of_place.require("resolution", section.resolution);
    let guard_m = scope_of_place.read("guard_m", section.guard_m);
    let jitter_radius_m = scope_of_place.read("jitter_radius_m", section.jitter_radius_m);
    let region = region(section.region, &mut scope_of_place);
    // What no u8 holds is no resolution either.
    let resolution = u8::try_from(resolution?).unwrap_or(u8::MAX);
    let place = Place::new(
        resolution,
        guard_m.unwrap_or_default(),
        jitter_radius_m.unwrap_or(DEFAULT_JITTER_RADIUS_M),
        region,
    );
    place
        .map_err(|fault| scope.at(fault.path).fault(fault.message))
        .ok()
}

fn region(written: Option<Field<Vec<Field<f64>>>>, scope: &mut Scope<'_>) -> Option<Region> {
    let corners = scope.list("region", written)?;
    let region = <[f64; 4]>::try_from(corners)
        .map_err(|_| "must be [south, west, north, east] in degrees")
        .and_then(Region::new);
    region
        .map_err(|message| scope.at("region").fault(message))
        .ok()
}

fn time_limits(written: Option<Field<written::Time>>, scope: &mut Scope<'_>) -> TimeLimits {
    let (written, mut scope) = scope.section("time", written);
    let max_future = scope.read("max_future", written.max_future);
    let Limit(max_age) = scope.checked(
        "max_age",
        written.max_age,
        Limit(Some(DEFAULT_MAX_AGE)),
        |limit| limit.0 != Some(Duration::ZERO),
        "must be longer than 0, or nothing passes; for no limit write off",
    );
    TimeLimits::new(
        max_future.map_or(Some(DEFAULT_MAX_FUTURE), |limit| limit.0),
        max_age,
        scope
            .read("implausible", written.implausible)
            .unwrap_or(Implausible::DeadLetter),
    )
}

fn bounds(written: Option<Field<written::Bounds>>, scope: &mut Scope<'_>) -> Bounds {
    let (written, mut scope) = scope.section("bounds", written);
    Bounds {
        max_duplicate_spread: scope.read("max_duplicate_spread", written.max_duplicate_spread),
        min_revisit: scope.read("min_revisit", written.min_revisit),
    }
}
