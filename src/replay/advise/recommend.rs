//! From what was measured to a namespace's rules, each with its reason and how sure it is.

mod pings;
mod times;

use std::fmt;

use serde::Serialize;

use super::{
    distribution::Distribution,
    measure::Measured,
    parting::{self, Parting},
    units::{count, span},
};
use crate::replay::read::TraceKind;

/// Copies or revisits of which fewer were seen than this tell little.
pub(super) const FEW: u64 = 20;
/// And of which so many were seen tell much.
pub(super) const MANY: u64 = 300;

/// How much of the trace a value rests on.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Serialize)]
#[serde(rename_all = "snake_case")]
pub enum Sureness {
    /// Not measured: a default that stands in.
    Assumed,
    /// Measured on little, or without knowing which events are copies.
    Fair,
    /// Measured on much.
    Sure,
}

impl fmt::Display for Sureness {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Sureness::Assumed => "assumed",
            Sureness::Fair => "fair",
            Sureness::Sure => "sure",
        })
    }
}

/// By how many were seen.
pub(super) const fn sureness(seen: u64, told: bool) -> Sureness {
    if told && seen >= MANY {
        Sureness::Sure
    } else if seen >= FEW {
        Sureness::Fair
    } else {
        Sureness::Assumed
    }
}

/// One recommended value.
#[derive(Clone, Debug, Serialize)]
pub struct Choice {
    /// The key in the namespace's configuration.
    pub key: &'static str,
    pub value: String,
    pub sureness: Sureness,
    /// A full sentence.
    pub because: String,
}

/// Which times are compared as near, in nanoseconds. A guard as wide as the window slides.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WindowAdvice {
    /// Keyed events have none.
    None,
    Buckets {
        width_ns: u64,
        guard_ns: u64,
    },
}

#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PlaceAdvice {
    pub resolution: u8,
    pub guard_m: f64,
    pub jitter_radius_m: f64,
}

#[derive(Clone, Debug)]
pub struct Recommendation {
    pub window: WindowAdvice,
    pub place: Option<PlaceAdvice>,
    pub ttl_ns: u64,
    /// Written as `bounds`, where they do not cross.
    pub spread_ns: Option<u64>,
    pub revisit_ns: Option<u64>,
    /// Written as `time`, where the defaults would refuse events of the trace.
    pub max_age_ns: Option<u64>,
    pub choices: Vec<Choice>,
    /// Which bounds cross, and what to do about it.
    pub crossing: Option<String>,
    /// What the trace does not hold.
    pub missing: Vec<String>,
    /// What else a reader has to know.
    pub remarks: Vec<String>,
}

/// The parting of copies from revisits, by truth where it is told.
pub fn part(measured: &Measured) -> Option<Parting> {
    let copies = &measured.copies;
    match (measured.kind, measured.tells_copies()) {
        (TraceKind::Keyed, _) => None,
        // A ping that comes again is wanted to be collapsed: returns to a place are its revisits.
        (TraceKind::Pings, true) => parting::by_truth(&copies.spread, &Distribution::default()),
        (TraceKind::Pings, false) => {
            let interval_ns = measured.assets.as_ref()?.intervals.quantile(0.5)?;
            parting::by_valley(&copies.gaps).filter(|parting| parting.spread_ns < interval_ns)
        }
        (TraceKind::Transitions, true) => parting::by_truth(&copies.spread, &copies.revisits),
        (TraceKind::Transitions, false) => parting::by_valley(&copies.gaps),
    }
}

pub fn recommend(measured: &Measured) -> Recommendation {
    let mut advice = Recommendation {
        window: WindowAdvice::None,
        place: None,
        ttl_ns: 0,
        spread_ns: None,
        revisit_ns: None,
        max_age_ns: None,
        choices: Vec::new(),
        crossing: None,
        missing: Vec::new(),
        remarks: Vec::new(),
    };
    let parting = part(measured);
    match measured.kind {
        TraceKind::Transitions => times::transitions(measured, parting, &mut advice),
        TraceKind::Pings => pings::pings(measured, parting, &mut advice),
        TraceKind::Keyed => {}
    }
    times::ttl(measured, parting, &mut advice);
    times::limits(measured, &mut advice);
    name_what_is_missing(measured, &mut advice);
    advice
}

fn name_what_is_missing(measured: &Measured, advice: &mut Recommendation) {
    let (events, copies) = (measured.events, &measured.copies);
    let mut missing = |text: String| advice.missing.push(text);
    if events < 1000 {
        missing(format!(
            "Events: {} are little; the rarest copies and the shortest revisits are hardly among them.",
            count(events)
        ));
    }
    if !measured.tells_copies() {
        missing(
            "occurrence_id: which events are copies is guessed from the gaps between them; a column \
             with one value for all copies of an occurrence (a message id of the sender) makes it sure."
                .to_owned(),
        );
    }
    if !measured.tells_arrival() {
        missing(
            "arrived_at: when events arrived, so that how late copies come, and with it the ttl, is \
             measured."
                .to_owned(),
        );
    } else if copies.lag.is_empty() && copies.gaps.is_empty() {
        missing("Copies: the trace holds none, so how late they come is not known.".to_owned());
    }
    let (followed, one_in) = copies.followed();
    if one_in > 1 {
        advice.remarks.push(format!(
            "Memory is bounded: one subject in {one_in} was followed ({} of them), each with all of \
             its events.",
            count(followed as u64)
        ));
    }
    if measured.span_ns > 0 {
        advice.remarks.push(format!(
            "The trace is {} long: what repeats later than that is not in it.",
            span(measured.span_ns)
        ));
    }
    if measured.unusable > 0 {
        advice.remarks.push(format!(
            "{} events without an identity or a time were left out.",
            count(measured.unusable)
        ));
    }
}
