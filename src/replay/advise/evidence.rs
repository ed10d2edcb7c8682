//! The distributions that a recommendation rests on, and where its values lie in them.

use super::{
    distribution::Distribution,
    measure::Measured,
    recommend::{Recommendation, WindowAdvice},
    stops::RESOLUTIONS,
    units::{metres, span},
};

/// One histogram with the chosen values drawn in.
#[derive(Clone, Debug)]
pub struct Evidence<'m> {
    pub title: &'static str,
    pub of: &'m Distribution,
    pub unit: Unit,
    /// Name and value, in the distribution's unit.
    pub marks: Vec<(&'static str, u64)>,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Unit {
    Nanoseconds,
    Millimetres,
}

impl Unit {
    pub(super) fn text(self, value: u64) -> String {
        match self {
            Unit::Nanoseconds => span(value),
            Unit::Millimetres => metres(value),
        }
    }

    pub(super) const fn key(self) -> &'static str {
        match self {
            Unit::Nanoseconds => "ns",
            Unit::Millimetres => "mm",
        }
    }
}

/// Those of which something was seen.
pub fn evidence<'m>(measured: &'m Measured, advice: &Recommendation) -> Vec<Evidence<'m>> {
    let mut window_marks = Vec::new();
    let mut width_mark = Vec::new();
    if let WindowAdvice::Buckets { width_ns, guard_ns } = advice.window {
        if guard_ns == width_ns {
            window_marks.push(("sliding window", width_ns));
        } else {
            if guard_ns > 0 {
                window_marks.push(("guard", guard_ns));
            }
            window_marks.push(("window", width_ns));
        }
        width_mark.push(("window", width_ns));
    }
    let copies = &measured.copies;
    let of_time = |title, of, marks: &[(&'static str, u64)]| Evidence {
        title,
        of,
        unit: Unit::Nanoseconds,
        marks: marks.to_vec(),
    };
    let ttl_mark = [("ttl", advice.ttl_ns)];
    let mut all = vec![
        of_time(
            "Spread of copies stamped anew",
            &copies.spread,
            &window_marks,
        ),
        of_time(
            "Revisits: from one occurrence of a subject to the next",
            &copies.revisits,
            &window_marks,
        ),
        of_time(
            "Gaps between a subject's events, copies or not",
            &copies.gaps,
            &window_marks,
        ),
        of_time(
            "How late copies arrive after their first",
            &copies.lag,
            &ttl_mark,
        ),
    ];
    if let Some(found) = &measured.assets {
        all.push(of_time("Report intervals", &found.intervals, &width_mark));
        let chosen = advice.place.and_then(|place| {
            RESOLUTIONS
                .iter()
                .position(|resolution| u8::from(*resolution) == place.resolution)
        });
        if let Some(index) = chosen {
            let returns = &found.returns[index];
            all.push(of_time(
                "Returns to a cell that was left",
                returns,
                &width_mark,
            ));
        }
        all.push(of_time(
            "How long assets stood still",
            &found.stops,
            &width_mark,
        ));
        let radius_mm = advice
            .place
            .map(|place| (place.jitter_radius_m * 1000.0) as u64);
        all.push(Evidence {
            title: "Scatter of a stop: 95 % of its fixes lie within",
            of: &found.radii_mm,
            unit: Unit::Millimetres,
            marks: radius_mm
                .map(|radius_mm| ("jitter radius", radius_mm))
                .into_iter()
                .collect(),
        });
    }
    if measured.tells_arrival() {
        all.push(of_time(
            "Delay: from an event's time to its arrival",
            &measured.delay,
            &[],
        ));
    }
    // Copies that all arrive at once are no distribution.
    all.retain(|evidence| evidence.of.largest().is_some_and(|largest| largest > 0));
    all
}
