//! Window, guard, TTL and limits on event times.

use super::{Choice, Recommendation, Sureness, WindowAdvice, sureness};
use crate::{
    domain::time::{DEFAULT_MAX_AGE, DEFAULT_MAX_FUTURE},
    replay::{
        advise::{
            measure::Measured,
            parting::Parting,
            rounding,
            units::{count, percent, span, span_at_most},
        },
        read::TraceKind,
    },
};

const SECOND: u64 = 1_000_000_000;
/// What is measured is not the worst that will come.
const MARGIN: f64 = 1.25;
/// The same, for how late copies come: ladders have rare last rungs.
const LAG_MARGIN: f64 = 1.5;
/// A guard of at most a quarter of the width is looked for in half of the events at most; a wider
/// one is a sliding window at the same price.
const MAX_GUARD_SHARE: u64 = 4;
/// Wider windows only swallow revisits that the trace does not show.
const MAX_WIDTH_IN_GUARDS: u64 = 10;
/// Where no copy is stamped anew; the built-in width.
const PLAIN_WIDTH_NS: u64 = 2 * SECOND;
const DEFAULT_TTL_NS: u64 = 300 * SECOND;
const DEFAULT_PING_TTL_NS: u64 = 23_400 * SECOND;
const DEFAULT_KEYED_TTL_NS: u64 = 172_800 * SECOND;
const MIN_TTL_NS: u64 = 10 * SECOND;
/// Rare replays of which so few come later than nearly all others are not paid for by each claim.
const FAR_REPLAYS: u64 = 8;

pub(super) fn with_margin(ns: u64) -> u64 {
    (ns as f64 * MARGIN) as u64
}

/// A guard above the spread and a width below the revisits, or a sliding window.
pub(super) fn transitions(
    measured: &Measured,
    parting: Option<Parting>,
    advice: &mut Recommendation,
) {
    let told = measured.tells_copies();
    let Some(parting) = parting else {
        no_restamped_copies(measured, advice);
        return;
    };
    let Parting {
        spread_ns,
        revisit_ns,
        ..
    } = parting;
    let window = if parting.crosses() {
        advice.crossing = Some(crossing(&parting));
        let width_ns = revisit_ns
            .and_then(|revisit_ns| rounding::between(spread_ns, revisit_ns))
            .unwrap_or(spread_ns + 1);
        sliding(width_ns)
    } else {
        (advice.spread_ns, advice.revisit_ns) = (Some(spread_ns), revisit_ns);
        buckets(spread_ns, revisit_ns)
    };
    advice.window = window;
    let seen = parting.copies.min(match revisit_ns {
        Some(_) => parting.revisits,
        None => 0,
    });
    let because = format!(
        "{} {}",
        spread_words(&parting, told),
        revisit_words(&parting)
    );
    push_window(advice, sureness(seen, told), because);
    if measured.sequenced * 2 > measured.events {
        advice.remarks.push(
            "Most transitions carry a sequence: it decides, and the window plays no part for them."
                .to_owned(),
        );
    }
}

const fn sliding(width_ns: u64) -> WindowAdvice {
    let guard_ns = width_ns;
    WindowAdvice::Buckets { width_ns, guard_ns }
}

/// For bounds that do not cross.
fn buckets(spread_ns: u64, revisit_ns: Option<u64>) -> WindowAdvice {
    let round_guard_ns = rounding::up(with_margin(spread_ns));
    let Some(revisit_ns) = revisit_ns else {
        return WindowAdvice::Buckets {
            width_ns: round_guard_ns * MAX_GUARD_SHARE,
            guard_ns: round_guard_ns,
        };
    };
    let middle_ns = rounding::between(spread_ns, revisit_ns).unwrap_or(spread_ns + 1);
    let guard_ns = round_guard_ns.min(middle_ns);
    let width_ns = rounding::between(guard_ns, revisit_ns)
        .map(|width_ns| width_ns.min(guard_ns.saturating_mul(MAX_WIDTH_IN_GUARDS)));
    match width_ns {
        Some(width_ns) if width_ns / guard_ns >= MAX_GUARD_SHARE => {
            WindowAdvice::Buckets { width_ns, guard_ns }
        }
        _ => sliding(middle_ns),
    }
}

fn no_restamped_copies(measured: &Measured, advice: &mut Recommendation) {
    let told = measured.tells_copies();
    let revisits = if told {
        &measured.copies.revisits
    } else {
        &measured.copies.gaps
    };
    let width_ns = match revisits.least() {
        // A width that is no number of nanoseconds is none.
        Some(least) if least / 2 < PLAIN_WIDTH_NS => rounding::down(least / 2).unwrap_or(1),
        _ => PLAIN_WIDTH_NS,
    };
    advice.window = WindowAdvice::Buckets {
        width_ns,
        guard_ns: 0,
    };
    advice.revisit_ns = revisits.least().filter(|least| *least > width_ns);
    let same = measured.copies.same_time;
    let sure = if told {
        sureness(same, true)
    } else {
        Sureness::Assumed
    };
    let because = if told {
        format!(
            "All {} copies carry the time of their first, so any width catches them; this one is \
             below the shortest revisit.",
            count(same)
        )
    } else {
        format!(
            "Events of one subject show no valley between copies stamped anew and revisits ({} carry \
             the very same time), so nothing tells how wide the window must be.",
            count(same)
        )
    };
    push_window(advice, sure, because);
    if !told {
        advice.missing.push(
            "Copies that are stamped anew: none were recognised, so their spread is not known; set \
             the guard above your producers' retry delay."
                .to_owned(),
        );
    }
}

pub(super) fn push_window(advice: &mut Recommendation, sureness: Sureness, because: String) {
    let value = match advice.window {
        WindowAdvice::None => "none".to_owned(),
        WindowAdvice::Buckets { width_ns, guard_ns } if width_ns == guard_ns => {
            format!("sliding {}", span(width_ns))
        }
        WindowAdvice::Buckets { width_ns, guard_ns } => {
            format!("tumbling {}, guard {}", span(width_ns), span(guard_ns))
        }
    };
    advice.choices.push(Choice {
        key: "window",
        value,
        sureness,
        because,
    });
}

pub(super) fn spread_words(parting: &Parting, told: bool) -> String {
    let copies = parting.copies;
    let guessed = if told {
        ""
    } else {
        " (as guessed from the gaps)"
    };
    let kept = copies - parting.stray_copies;
    // With none of n beyond it, 3 in n are at 95 %: the rule of three.
    let beyond = if parting.stray_copies == 0 && copies >= 10 {
        format!(
            "; with none of {} beyond it, fewer than {} of copies are (at 95 % confidence)",
            count(copies),
            percent(3.0 / copies as f64)
        )
    } else {
        String::new()
    };
    format!(
        "{} of {} copies stamped anew{guessed} lie at most {} from their first{beyond}.",
        count(kept),
        count(copies),
        span_at_most(parting.spread_ns)
    )
}

fn revisit_words(parting: &Parting) -> String {
    match parting.revisit_ns {
        Some(revisit_ns) => format!(
            "{} of {} revisits of a subject come after {} or more.",
            count(parting.revisits - parting.stray_revisits),
            count(parting.revisits),
            span(revisit_ns)
        ),
        None => "No subject came again, so how soon one can is not known.".to_owned(),
    }
}

fn crossing(parting: &Parting) -> String {
    format!(
        "The bounds cross: {} of {} copies lie as far apart as revisits, and {} of {} revisits come as \
         soon as copies. No width is right: let the device send a `sequence` with each transition, which \
         decides without a window. Until it does, the window below errs least on this trace: {} \
         occurrences would be admitted again and {} swallowed.",
        count(parting.stray_copies),
        count(parting.copies),
        count(parting.stray_revisits),
        count(parting.revisits),
        count(parting.stray_copies),
        count(parting.stray_revisits),
    )
}

/// Above how late copies arrive, and never below what the window needs.
pub(super) fn ttl(measured: &Measured, parting: Option<Parting>, advice: &mut Recommendation) {
    let needed_ns = match advice.window {
        WindowAdvice::None => 0,
        WindowAdvice::Buckets { width_ns, guard_ns } => width_ns + guard_ns,
    };
    let lag = &measured.copies.lag;
    let by_gap_ns = parting.map_or(0, |parting| {
        measured.copies.max_lag_below(parting.spread_ns)
    });
    let latest_ns = lag.largest().unwrap_or(0).max(by_gap_ns);
    let (ttl_ns, sure, because) = if measured.tells_arrival() && latest_ns > 0 {
        let nearly_all_ns = lag.quantile(0.999).unwrap_or(0).max(by_gap_ns).max(1);
        let far = latest_ns / nearly_all_ns >= FAR_REPLAYS;
        let covered_ns = if far { nearly_all_ns } else { latest_ns };
        let late = lag.count() - lag.count_below(covered_ns.saturating_add(1));
        let because = format!(
            "The latest of {} copies arrived {} after its first{}; half as much again is allowed for \
             what the trace does not show.",
            count(lag.count()),
            span(latest_ns),
            if far {
                format!(
                    ", but 999 in 1000 within {}; {} copies beyond are not covered, since each claim \
                     would have to be kept for them",
                    span(nearly_all_ns),
                    count(late)
                )
            } else {
                String::new()
            },
        );
        let ttl_ns = rounding::up((covered_ns as f64 * LAG_MARGIN) as u64).max(MIN_TTL_NS);
        (
            ttl_ns,
            sureness(lag.count(), measured.tells_copies()),
            because,
        )
    } else {
        let ttl_ns = match measured.kind {
            TraceKind::Transitions => DEFAULT_TTL_NS,
            TraceKind::Pings => DEFAULT_PING_TTL_NS,
            TraceKind::Keyed => DEFAULT_KEYED_TTL_NS,
        };
        let because = "Not measured: this is the built-in one. It must outlive the whole retry ladder \
                       and any dead-letter replay of the sender: write it as `retry_delays` if they are \
                       known."
            .to_owned();
        (ttl_ns, Sureness::Assumed, because)
    };
    advice.ttl_ns = ttl_ns.max(rounding::up(needed_ns));
    advice.choices.push(Choice {
        key: "ttl",
        value: span(advice.ttl_ns),
        sureness: sure,
        because,
    });
}

/// Limits on event times, where the defaults would refuse what the trace holds.
pub(super) fn limits(measured: &Measured, advice: &mut Recommendation) {
    let beyond = |distribution: &crate::replay::advise::distribution::Distribution, limit: u64| {
        distribution.count() - distribution.count_below(limit.saturating_add(1))
    };
    let max_future_ns = DEFAULT_MAX_FUTURE.as_nanos() as u64;
    let max_age_ns = DEFAULT_MAX_AGE.as_nanos() as u64;
    let ahead = beyond(&measured.ahead, max_future_ns);
    let old = beyond(&measured.delay, max_age_ns);
    if ahead > 0 {
        advice.remarks.push(format!(
            "{} events are stamped more than {} ahead of their arrival, the farthest {}: they are dead \
             letters (TIME_TOO_NEW) unless `time.max_future` is raised; more likely a clock is wrong.",
            count(ahead),
            span(max_future_ns),
            span(measured.ahead.largest().unwrap_or(0))
        ));
    }
    if old > 0 {
        let age_ns = rounding::up(with_margin(measured.delay.largest().unwrap_or(0)));
        advice.max_age_ns = Some(age_ns);
        advice.remarks.push(format!(
            "{} events arrived more than {} after their time: `time.max_age` is raised for them.",
            count(old),
            span(max_age_ns)
        ));
    }
}
