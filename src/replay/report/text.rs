//! The report as text: the table, then the reasons, then what has to be known.

use std::fmt::{self, Display, Write};

use super::Report;
use crate::replay::run::{Outcome, Quantiles};

const HEADINGS: [&str; 9] = [
    "strategy",
    "events",
    "triggered again",
    "swallowed",
    "suppressed",
    "claims at peak",
    "bytes",
    "P50 / P99",
    "events/s",
];
const NOTHING: &str = "–";

/// As it is printed.
#[derive(Clone, Copy, Debug)]
pub struct Text<'r>(pub &'r Report);

impl Display for Text<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let report = self.0;
        writeln!(f, "{}", report.trace)?;
        for (name, value) in &report.settings {
            writeln!(f, "{name}: {value}")?;
        }
        writeln!(f)?;
        let mut rows = vec![HEADINGS.map(str::to_owned)];
        rows.extend(report.outcomes.iter().map(row));
        write_table(f, &rows)?;
        writeln!(f)?;
        for outcome in &report.outcomes {
            write!(f, "{} ({}):", outcome.name, outcome.rule)?;
            for (reason, events) in &outcome.by_reason {
                write!(f, " {} {}", reason.name(), grouped(*events))?;
            }
            writeln!(f)?;
        }
        for note in &report.notes {
            writeln!(f, "\n{note}")?;
        }
        let bad = &report.bad_rows;
        if bad.count > 0 {
            writeln!(f, "\n{} rows were left out:", grouped(bad.count))?;
            for (line, why) in &bad.first {
                writeln!(f, "line {line} {why}")?;
            }
            if bad.count > bad.first.len() as u64 {
                writeln!(f, "…")?;
            }
        }
        Ok(())
    }
}

fn row(outcome: &Outcome) -> [String; HEADINGS.len()] {
    let part = |count: Option<u64>, rate: Option<f64>| match (count, rate) {
        (Some(count), Some(rate)) => format!("{} ({})", grouped(count), percent(rate)),
        _ => NOTHING.to_owned(),
    };
    let judged = outcome.judged;
    let held = |number: String| match outcome.request {
        None => number,
        Some(_) => NOTHING.to_owned(),
    };
    let seconds = outcome.took.as_secs_f64();
    [
        outcome.name.clone(),
        grouped(outcome.events),
        part(
            judged.map(|judged| judged.triggered_again),
            outcome.duplicate_trigger_rate(),
        ),
        part(
            judged.map(|judged| judged.swallowed),
            outcome.swallow_rate(),
        ),
        grouped(outcome.suppressed),
        held(grouped(outcome.peak_claims)),
        held(bytesize::ByteSize(outcome.peak_bytes).to_string()),
        match outcome.decision.or(outcome.request) {
            Some(Quantiles { p50_ns, p99_ns, .. }) => {
                format!("{} / {}", short_time(p50_ns), short_time(p99_ns))
            }
            None => NOTHING.to_owned(),
        },
        if seconds > 0.0 {
            grouped((outcome.events as f64 / seconds) as u64)
        } else {
            NOTHING.to_owned()
        },
    ]
}

fn write_table(f: &mut fmt::Formatter<'_>, rows: &[[String; HEADINGS.len()]]) -> fmt::Result {
    let width = |column: usize| rows.iter().map(|row| row[column].chars().count()).max();
    let widths: [usize; HEADINGS.len()] = std::array::from_fn(|column| width(column).unwrap_or(0));
    for row in rows {
        let mut line = String::new();
        for (column, (text, width)) in row.iter().zip(widths).enumerate() {
            match column {
                0 => write!(line, "{text:<width$}")?,
                _ => write!(line, "  {text:>width$}")?,
            }
        }
        writeln!(f, "{}", line.trim_end())?;
    }
    Ok(())
}

/// `1234567` as `1,234,567`.
pub fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut grouped = String::new();
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            grouped.push(',');
        }
        grouped.push(digit);
    }
    grouped
}

/// Zero is exact; what is not zero never looks like it.
pub fn percent(rate: f64) -> String {
    let percent = rate * 100.0;
    if percent == 0.0 {
        "0 %".to_owned()
    } else if percent < 0.001 {
        format!("{percent:.1e} %")
    } else {
        format!("{percent:.3} %")
    }
}

fn short_time(nanos: u64) -> String {
    match nanos {
        0..1_000 => format!("{nanos} ns"),
        1_000..1_000_000 => format!("{:.1} µs", nanos as f64 / 1e3),
        1_000_000.. => format!("{:.1} ms", nanos as f64 / 1e6),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_readable_and_zero_is_zero() {
        assert_eq!(grouped(0), "0");
        assert_eq!(grouped(999), "999");
        assert_eq!(grouped(410_000_000), "410,000,000");
        assert_eq!(percent(0.0), "0 %");
        assert_eq!(percent(1.0 / 410e6), "2.4e-7 %");
        assert_eq!(percent(0.0362), "3.620 %");
        assert_eq!(short_time(1_500), "1.5 µs");
    }
}
