//! Window and place of pings: the window collapses what a standing asset reports, and ends before the
//! asset can have come back; the cell lies above the scatter of its fixes.

use super::{
    Choice, Recommendation, Sureness, WindowAdvice, sureness,
    times::{push_window, spread_words, with_margin},
};
use crate::{
    domain::{cells::max_guard_m, policy::DEFAULT_JITTER_RADIUS_M},
    replay::advise::{
        assets::AssetsFound,
        distribution::Distribution,
        measure::Measured,
        parting::Parting,
        recommend::PlaceAdvice,
        rounding,
        stops::{MIN_STOP_FIXES, MIN_STOP_NS, RESOLUTIONS},
        units::{count, metres, percent, span},
    },
};

const SECOND: u64 = 1_000_000_000;
/// The built-in width. The trace cannot tell how fresh a parked asset's position has to be.
const WIDEST_NS: u64 = 300 * SECOND;
/// The quickest returns, of which so small a share may be noise. Of few the quickest counts.
const NOISY_RETURNS: f64 = 0.02;
/// Less flicker than this is not worth the further keys that a space guard looks at.
const TOLERABLE_FLICKER: f64 = 0.01;
/// Of the scatter: three assets in four. What is beyond flickers, and is shown by asset.
const ASSETS_COVERED: f64 = 0.75;

pub(super) fn pings(measured: &Measured, parting: Option<Parting>, advice: &mut Recommendation) {
    let Some(found) = &measured.assets else {
        return;
    };
    let index = place(found, advice);
    window(measured, found, &found.returns[index], parting, advice);
    if found.out_of_order > 0 {
        advice.remarks.push(format!(
            "{} reports older than their asset's last were left out of intervals, stops and returns.",
            count(found.out_of_order)
        ));
    }
    if found.without_position > 0 {
        advice.remarks.push(format!(
            "{} reports without a valid position were left out.",
            count(found.without_position)
        ));
    }
}

fn window(
    measured: &Measured,
    found: &AssetsFound,
    returns: &Distribution,
    parting: Option<Parting>,
    advice: &mut Recommendation,
) {
    let told = measured.tells_copies();
    let interval_ns = found.intervals.quantile(0.5).unwrap_or(0);
    let return_ns = returns.quantile(NOISY_RETURNS);
    let spread_ns = parting.map_or(0, |parting| parting.spread_ns);
    let width_ns = return_ns
        .and_then(|return_ns| rounding::down_to_seconds((return_ns as f64 / 1.25) as u64))
        .unwrap_or(if return_ns.is_some() {
            SECOND
        } else {
            WIDEST_NS
        })
        .min(WIDEST_NS);
    if let Some(return_ns) = return_ns
        && (return_ns <= with_margin(spread_ns) || return_ns <= 2 * interval_ns)
    {
        advice.crossing = Some(format!(
            "The bounds cross: assets come back to a place after {}, while copies lie up to {} apart and \
             reports {}. No window collapses what a standing asset reports without swallowing a return: \
             send pings at a higher rate, or tell copies by an id of the message in a keyed namespace.",
            span(return_ns),
            span(spread_ns),
            span(interval_ns)
        ));
    }
    let width_ns = if width_ns <= spread_ns {
        (spread_ns / SECOND + 1) * SECOND
    } else {
        width_ns
    };
    let guard_ns = if spread_ns == 0 {
        0
    } else {
        rounding::up(with_margin(spread_ns))
    };
    advice.window = WindowAdvice::Buckets {
        width_ns,
        guard_ns: if guard_ns > width_ns / 4 {
            width_ns
        } else {
            guard_ns
        },
    };
    if advice.crossing.is_none() {
        advice.spread_ns = (spread_ns > 0).then_some(spread_ns);
        advice.revisit_ns = return_ns.filter(|return_ns| *return_ns > width_ns);
    }
    let mut because = match return_ns {
        Some(return_ns) => format!(
            "Of {} returns to a cell that had been left all but the quickest 2 % took {} or more; {} took \
             less than {}, and a window of that width would swallow them.",
            count(returns.count()),
            span(return_ns),
            count(returns.count_below(WIDEST_NS)),
            span(WIDEST_NS)
        ),
        None => "No asset came back to a place that it had left: the built-in width.".to_owned(),
    };
    because.push_str(&format!(
        " Half of the reports come within {}.",
        span(interval_ns)
    ));
    match parting {
        Some(parting) => {
            because.push(' ');
            because.push_str(&spread_words(&parting, told));
        }
        None => because.push_str(" No copies stamped anew were seen: no guard is needed for them."),
    }
    push_window(advice, sureness(returns.count(), true), because);
    advice.missing.push(
        "How fresh a standing asset's position has to be: that is the consumer's to say; a narrower \
         window admits it more often."
            .to_owned(),
    );
}

/// Chooses the cell, and returns its index among the resolutions.
fn place(found: &AssetsFound, advice: &mut Recommendation) -> usize {
    let stops = found.radii_mm.count();
    let (Some(covered_mm), Some(typical_mm)) = (
        found.asset_radii_mm.quantile(ASSETS_COVERED),
        found.asset_radii_mm.quantile(0.5),
    ) else {
        assumed_place(advice);
        return RESOLUTIONS.len() - 1;
    };
    let across_m = 2.0 * covered_mm as f64 / 1000.0;
    let index = RESOLUTIONS
        .iter()
        .rposition(|resolution| resolution.edge_length_m() >= across_m)
        .unwrap_or(0);
    let resolution = RESOLUTIONS[index];
    let flicker = found.flicker[index];
    let widest_guard_m = (max_guard_m(resolution) * 10.0).floor() / 10.0;
    let guard_m = if flicker > TOLERABLE_FLICKER {
        ((across_m * 2.0).ceil() / 2.0).clamp(0.5, widest_guard_m)
    } else {
        0.0
    };
    let jitter_radius_m = across_m.ceil().max(1.0);
    advice.place = Some(PlaceAdvice {
        resolution: resolution.into(),
        guard_m,
        jitter_radius_m,
    });
    let sure = sureness(stops, true);
    let mut choose = |key, value: String, because: String| {
        advice.choices.push(Choice {
            key,
            value,
            sureness: sure,
            because,
        });
    };
    choose(
        "place.resolution",
        u8::from(resolution).to_string(),
        format!(
            "Of three in four of the {} assets that stood still ({} stops) 95 % of the fixes lie within {} of \
             a stop's centre, of half of them within {}; the cells' edges are {:.1} m, {}.",
            count(found.assets_that_stood as u64),
            count(stops),
            metres(covered_mm),
            metres(typical_mm),
            resolution.edge_length_m(),
            if resolution.edge_length_m() >= across_m {
                "longer than that is wide"
            } else {
                "the longest that are offered, and yet shorter than that is wide"
            }
        ),
    );
    choose(
        "place.guard_m",
        guard_m.to_string(),
        format!(
            "{} of a standing asset's fixes fall into another cell than most{}.",
            percent(flicker),
            if guard_m > 0.0 {
                ": the guard looks across that border"
            } else {
                ": no guard is needed"
            }
        ),
    );
    choose(
        "place.jitter_radius_m",
        jitter_radius_m.to_string(),
        "Twice that: two fixes of a stop are hardly farther apart. It names the reason only."
            .to_owned(),
    );
    if let Some(step_mm) = found.steps_mm.quantile(0.5)
        && (step_mm as f64) < resolution.edge_length_m() * 1000.0
    {
        advice.remarks.push(format!(
            "Assets on their way move {} between reports, less than a cell: a departure shows after a few \
             reports.",
            metres(step_mm)
        ));
    }
    index
}

fn assumed_place(advice: &mut Recommendation) {
    let resolution = RESOLUTIONS[RESOLUTIONS.len() - 1];
    advice.place = Some(PlaceAdvice {
        resolution: resolution.into(),
        guard_m: 0.0,
        jitter_radius_m: DEFAULT_JITTER_RADIUS_M,
    });
    advice.choices.push(Choice {
        key: "place.resolution",
        value: u8::from(resolution).to_string(),
        sureness: Sureness::Assumed,
        because: "No asset stood still: the built-in one.".to_owned(),
    });
    advice.missing.push(format!(
        "Stops: no asset stood still for {} and {MIN_STOP_FIXES} reports, so the scatter of fixes is not \
         known.",
        span(MIN_STOP_NS as u64)
    ));
}
