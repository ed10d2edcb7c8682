//! The report as one self-contained page: no script, nothing from outside, charts as inline SVG.
//! Every number that a chart draws also stands there as text.

pub(in crate::replay) mod chart;
pub(in crate::replay) mod page;

use chart::{Bar, Segment};
use page::Page;

use super::Report;
use crate::{
    domain::reason::Reason,
    replay::run::{Outcome, Quantiles},
};

pub fn html(report: &Report) -> String {
    let mut page = Page::new("Replay", &report.trace);
    page.pairs(&report.settings);
    page.notes(&report.notes);
    table(report, &mut page);
    charts(report, &mut page);
    by_reason(report, &mut page);
    page.bad_rows(&report.bad_rows);
    page.finish()
}

fn table(report: &Report, page: &mut Page) {
    let head = [
        "strategy",
        "rule",
        "events",
        "admitted",
        "suppressed",
        "refused",
        "duplicate triggers",
        "genuine swallowed",
        "claims at peak",
        "bytes at peak",
        "P50 of one decision",
        "P99",
    ];
    let rows = report.outcomes.iter().map(|outcome| {
        let judged = outcome.judged;
        let rate = |count: Option<u64>, rate: Option<f64>| match (count, rate) {
            (Some(count), Some(rate)) => format!("{} ({})", grouped(count), percent(rate)),
            _ => "not known".to_owned(),
        };
        let timed = outcome.decision.or(outcome.request);
        let time = |ns: fn(&Quantiles) -> u64| {
            timed
                .as_ref()
                .map_or_else(|| "–".to_owned(), |times| duration(ns(times)))
        };
        vec![
            outcome.name.clone(),
            outcome.rule.clone(),
            grouped(outcome.events),
            grouped(outcome.admitted),
            grouped(outcome.suppressed),
            grouped(outcome.refused),
            rate(
                judged.map(|judged| judged.triggered_again),
                outcome.duplicate_trigger_rate(),
            ),
            rate(
                judged.map(|judged| judged.swallowed),
                outcome.swallow_rate(),
            ),
            grouped(outcome.peak_claims),
            bytes(outcome.peak_bytes),
            time(|times| times.p50_ns),
            time(|times| times.p99_ns),
        ]
    });
    page.heading("The table");
    page.table(&head, 2, rows);
}

fn charts(report: &Report, page: &mut Page) {
    let outcomes = &report.outcomes;
    let bars = |value: &dyn Fn(&Outcome) -> Option<(f64, String)>| -> Vec<Bar> {
        let bar = |outcome: &Outcome| {
            value(outcome).map(|(value, text)| Bar {
                label: outcome.name.clone(),
                value,
                text,
            })
        };
        outcomes.iter().filter_map(bar).collect()
    };
    let rate = |rate: Option<f64>| rate.map(|rate| (rate, percent(rate)));
    let time = |times: Option<Quantiles>, ns: fn(&Quantiles) -> u64| {
        times
            .as_ref()
            .map(|times| (ns(times) as f64, duration(ns(times))))
    };
    let drawn: [(&str, Vec<Bar>); 8] = [
        (
            "Duplicate triggers: occurrences admitted more than once, of all",
            bars(&|outcome| rate(outcome.duplicate_trigger_rate())),
        ),
        (
            "Genuine events swallowed: occurrences never admitted, of all",
            bars(&|outcome| rate(outcome.swallow_rate())),
        ),
        (
            "Claims held at peak",
            bars(&|outcome| Some((outcome.peak_claims as f64, grouped(outcome.peak_claims)))),
        ),
        (
            "Bytes of claims at peak",
            bars(&|outcome| Some((outcome.peak_bytes as f64, bytes(outcome.peak_bytes)))),
        ),
        (
            "P50 of one decision, decided alone",
            bars(&|outcome| time(outcome.decision, |times| times.p50_ns)),
        ),
        (
            "P99 of one decision, decided alone",
            bars(&|outcome| time(outcome.decision, |times| times.p99_ns)),
        ),
        (
            "P50 of one call to the service",
            bars(&|outcome| time(outcome.request, |times| times.p50_ns)),
        ),
        (
            "P99 of one call to the service",
            bars(&|outcome| time(outcome.request, |times| times.p99_ns)),
        ),
    ];
    page.heading("By strategy");
    for (title, bars) in drawn {
        if !bars.is_empty() {
            page.figure(title, &chart::bars(title, &bars));
        }
    }
}

fn by_reason(report: &Report, page: &mut Page) {
    let met: Vec<Reason> = Reason::ALL
        .iter()
        .copied()
        .filter(|reason| {
            report
                .outcomes
                .iter()
                .any(|outcome| count_of(outcome, *reason) > 0)
        })
        .collect();
    if met.is_empty() {
        return;
    }
    let names: Vec<&str> = met.iter().map(|reason| reason.name()).collect();
    let rows: Vec<(String, Vec<Segment>)> = report
        .outcomes
        .iter()
        .map(|outcome| {
            let segments = met.iter().map(|reason| {
                let count = count_of(outcome, *reason);
                Segment {
                    value: count as f64,
                    text: format!("{}: {}", reason.name(), grouped(count)),
                }
            });
            (outcome.name.clone(), segments.collect())
        })
        .collect();
    page.heading("By reason");
    let title = "Events by reason";
    page.figure(title, &chart::stacked(title, &names, &rows));
    let mut head = vec!["strategy"];
    head.extend(&names);
    let rows = report.outcomes.iter().map(|outcome| {
        let mut row = vec![outcome.name.clone()];
        row.extend(met.iter().map(|reason| grouped(count_of(outcome, *reason))));
        row
    });
    page.table(&head, 1, rows);
}

fn count_of(outcome: &Outcome, reason: Reason) -> u64 {
    let found = outcome.by_reason.iter().find(|(other, _)| *other == reason);
    found.map_or(0, |(_, count)| *count)
}

pub(in crate::replay) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// To three digits; what is not nothing never reads as nothing.
pub(in crate::replay) fn percent(share: f64) -> String {
    match share * 100.0 {
        percent if percent <= 0.0 => "0 %".to_owned(),
        percent if percent >= 10.0 => format!("{percent:.1} %"),
        percent if percent >= 0.01 => format!("{percent:.3} %"),
        percent => format!("{percent:.1e} %"),
    }
}

pub(in crate::replay) fn bytes(bytes: u64) -> String {
    let units = ["B", "KiB", "MiB", "GiB", "TiB"];
    let (mut scaled, mut unit) = (bytes as f64, 0);
    while scaled >= 1024.0 && unit + 1 < units.len() {
        scaled /= 1024.0;
        unit += 1;
    }
    let digits = usize::from(unit > 0 && scaled < 100.0);
    format!("{scaled:.digits$} {}", units[unit])
}

fn duration(ns: u64) -> String {
    let units = [(1e9, "s"), (1e6, "ms"), (1e3, "µs"), (1.0, "ns")];
    let ns = ns as f64;
    let (scale, unit) = units
        .into_iter()
        .find(|(scale, _)| ns >= *scale)
        .unwrap_or((1.0, "ns"));
    let scaled = ns / scale;
    let digits = usize::from(scaled < 100.0 && unit != "ns");
    format!("{scaled:.digits$} {unit}")
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::page::escape;
    use super::*;
    use crate::replay::{trace::BadRows, truth::Judgement};

    fn report(name: &str) -> Report {
        let outcome = |rate: u64| Outcome {
            name: name.to_owned(),
            rule: "tumbling 2s".to_owned(),
            events: 1_000_000,
            admitted: 900_000,
            suppressed: 100_000,
            refused: 0,
            by_reason: vec![(Reason::FirstSeen, 900_000), (Reason::Restamped, 100_000)],
            judged: Some(Judgement {
                occurrences: 1_000_000,
                triggered_again: rate,
                swallowed: 7,
                refused: 0,
            }),
            peak_claims: 12_345,
            peak_bytes: 790_080,
            decision: Some(Quantiles {
                p50_ns: 310,
                p99_ns: 1_900,
                samples: 1000,
            }),
            request: None,
            trace_span: Duration::from_secs(43_200),
            took: Duration::from_secs(1),
        };
        Report {
            trace: format!("{name}.csv"),
            settings: vec![("seed".to_owned(), "1".to_owned())],
            notes: vec!["Nothing to add.".to_owned()],
            outcomes: vec![outcome(36_200), outcome(0)],
            bad_rows: BadRows {
                count: 1,
                first: vec![(7, format!("{name} is no number"))],
            },
        }
    }

    #[test]
    fn the_page_holds_every_number_and_nothing_from_outside() {
        let page = html(&report("ours"));
        for number in [
            "36,200 (3.620 %)",
            "12,345",
            "772 KiB",
            "310 ns",
            "1.9 µs",
            "RESTAMPED",
        ] {
            assert!(page.contains(number), "{number}");
        }
        for outside in [
            "http:", "https:", "<script", "<link", "url(", "@import", "src=",
        ] {
            assert!(!page.contains(outside), "{outside}");
        }
    }

    #[test]
    fn what_names_hold_is_text() {
        let page = html(&report("<img onerror=alert(1)>&\"'"));
        assert!(!page.contains("<img"), "{page}");
        assert!(
            page.contains("&lt;img onerror=alert(1)&gt;&amp;&quot;&#39;"),
            "{page}"
        );
        assert_eq!(escape("a\u{0}b\u{1b}"), "a\u{fffd}b\u{fffd}");
    }
}
