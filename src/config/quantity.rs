//! Durations and sizes as people write them, and back.

use std::time::Duration;

use bytesize::ByteSize;
use jiff::{
    SpanRelativeTo,
    fmt::friendly::{Spacing, SpanParser, SpanPrinter},
};

const DAY_SECONDS: u64 = 86_400;

/// Reads `250ns`, `200ms`, `1.5s`, `6h30m` or `30d`; a day has 24 h.
pub(crate) fn parse_duration(text: &str) -> Result<Duration, String> {
    if text.trim_start().starts_with('-') {
        return Err(format!("{text:?} is negative"));
    }
    let duration = SpanParser::new()
        .parse_span(text)
        .and_then(|span| span.to_duration(SpanRelativeTo::days_are_24_hours()))
        .map_err(|_| format!("{text:?} is not a duration such as 250ns, 200ms, 1.5s, 6h30m or 30d, or is too long"))?;
    Duration::try_from(duration).map_err(|_| format!("{text:?} is negative"))
}

/// As [`parse_duration`] reads it, exactly.
pub fn duration_text(duration: Duration) -> String {
    let days = duration.as_secs() / DAY_SECONDS;
    let rest = duration - Duration::from_secs(days * DAY_SECONDS);
    let rest_text = SpanPrinter::new()
        .spacing(Spacing::None)
        .unsigned_duration_to_string(&rest);
    match (days, rest.is_zero()) {
        (0, _) => rest_text,
        (_, true) => format!("{days}d"),
        (_, false) => format!("{days}d{rest_text}"),
    }
}

/// Reads `4MiB`, `512kB` or a number of bytes.
pub fn parse_size(text: &str) -> Result<u64, String> {
    match text.parse::<ByteSize>() {
        Ok(size) => Ok(size.as_u64()),
        Err(_) => Err(format!(
            "{text:?} is not a size such as 4MiB, 512KiB or 1048576"
        )),
    }
}

/// As [`parse_size`] reads it, exactly.
pub fn size_text(bytes: u64) -> String {
    let units = [("GiB", 30), ("MiB", 20), ("KiB", 10)];
    let unit = units
        .iter()
        .find(|(_, shift)| bytes > 0 && bytes.trailing_zeros() >= *shift);
    match unit {
        Some((unit, shift)) => format!("{}{unit}", bytes >> shift),
        None => format!("{bytes}B"),
    }
}
