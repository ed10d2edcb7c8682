//! Numbers as people read them.

use std::time::Duration;

use crate::config::quantity::duration_text;

pub(super) use crate::replay::report::html::{grouped as count, percent};

/// To three digits, as the configuration reads it.
pub(super) fn span(ns: u64) -> String {
    duration_text(Duration::from_nanos(three_digits(ns)))
}

/// Not less than it is.
pub(super) fn span_at_most(ns: u64) -> String {
    let down = three_digits(ns);
    if down == ns {
        span(ns)
    } else {
        span(down + step_of(ns))
    }
}

/// Durations of a minute and more to the second.
fn three_digits(ns: u64) -> u64 {
    ns - ns % step_of(ns)
}

fn step_of(ns: u64) -> u64 {
    if ns >= 60_000_000_000 {
        return 1_000_000_000;
    }
    let mut step = 1;
    while ns / step >= 1000 {
        step *= 10;
    }
    step
}

/// Exactly, as the configuration reads it.
pub(super) fn exact(ns: u64) -> String {
    duration_text(Duration::from_nanos(ns))
}

pub(super) fn bytes(bytes: f64) -> String {
    crate::replay::report::html::bytes(bytes as u64)
}

/// Millimetres as metres.
pub(super) fn metres(millimetres: u64) -> String {
    match millimetres as f64 / 1000.0 {
        metres if metres < 10.0 => format!("{metres:.2} m"),
        metres if metres < 100.0 => format!("{metres:.1} m"),
        metres => format!("{metres:.0} m"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_read_well() {
        assert_eq!(span(199_987_654), "199ms");
        assert_eq!(span_at_most(199_987_654), "200ms");
        assert_eq!(span(5_432_100_000), "5s430ms");
        assert_eq!(span(3_723_456_000_000), "1h2m3s");
        assert_eq!(count(410_000_000), "410,000,000");
        assert_eq!(count(999), "999");
        assert_eq!(percent(0.000_02), "2.0e-3 %");
        assert_eq!(percent(0.1234), "12.3 %");
        assert_eq!(bytes(177.0 * 1e6), "169 MiB");
        assert_eq!(metres(12_345), "12.3 m");
    }
}
