//! Times of a trace as nanoseconds since 1970.

use jiff::Timestamp;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeUnit {
    Seconds,
    Milliseconds,
    Microseconds,
    Nanoseconds,
}

impl TimeUnit {
    pub const ALL: [TimeUnit; 4] = [
        TimeUnit::Seconds,
        TimeUnit::Milliseconds,
        TimeUnit::Microseconds,
        TimeUnit::Nanoseconds,
    ];

    pub const fn name(self) -> &'static str {
        match self {
            TimeUnit::Seconds => "seconds",
            TimeUnit::Milliseconds => "milliseconds",
            TimeUnit::Microseconds => "microseconds",
            TimeUnit::Nanoseconds => "nanoseconds",
        }
    }

    const fn nanos(self) -> i64 {
        match self {
            TimeUnit::Seconds => 1_000_000_000,
            TimeUnit::Milliseconds => 1_000_000,
            TimeUnit::Microseconds => 1_000,
            TimeUnit::Nanoseconds => 1,
        }
    }

    /// The unit in which a number since 1970 lies between the years 1973 and 2286.
    fn of(number: f64) -> Option<Self> {
        Self::ALL.into_iter().find(|unit| {
            let seconds = number.abs() * unit.nanos() as f64 / 1e9;
            (1e8..1e10).contains(&seconds)
        })
    }
}

/// Reads times; a number's unit is that of the first, where none was given.
#[derive(Debug)]
pub(super) struct Times {
    given: Option<TimeUnit>,
    first: Option<TimeUnit>,
}

impl Times {
    pub(super) const fn new(given: Option<TimeUnit>) -> Self {
        Self { given, first: None }
    }

    pub(super) fn read(&mut self, text: &str) -> Result<i64, String> {
        let text = text.trim();
        if text.is_empty() {
            return Err("has no time".to_owned());
        }
        let is_number = text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b'+' | b'e' | b'E'));
        let number = text.parse::<f64>().ok().filter(|_| is_number);
        match number {
            Some(number) => self.number(text, number),
            None => {
                let timestamp: Timestamp = text.parse().map_err(|_| {
                    let shown: String = text.chars().take(40).collect();
                    format!(
                        "time {shown:?} is neither a number nor RFC 3339 with an offset, such as 2026-11-30T14:05:00Z"
                    )
                })?;
                i64::try_from(timestamp.as_nanosecond())
                    .map_err(|_| format!("time {text} is not between the years 1677 and 2262"))
            }
        }
    }

    fn number(&mut self, text: &str, number: f64) -> Result<i64, String> {
        let looks = TimeUnit::of(number);
        let unit = match (self.given, self.first, looks) {
            (Some(given), _, _) => given,
            (None, Some(first), Some(looks)) if first != looks => {
                return Err(format!(
                    "time {text} looks like {}, the first one like {}: give --time-unit, or mend the file",
                    looks.name(),
                    first.name()
                ));
            }
            (None, Some(first), _) => first,
            (None, None, Some(looks)) => {
                self.first = Some(looks);
                looks
            }
            (None, None, None) => {
                return Err(format!(
                    "time {text} is in no unit since 1970: give --time-unit"
                ));
            }
        };
        // Whole numbers are exact; a fraction is as exact as its digits.
        if let Ok(whole) = text.parse::<i64>() {
            return whole
                .checked_mul(unit.nanos())
                .ok_or_else(|| format!("time {text} {} is out of range", unit.name()));
        }
        let nanos = number * unit.nanos() as f64;
        if nanos.is_finite() && nanos.abs() < i64::MAX as f64 {
            Ok(exact_fraction(text, unit).unwrap_or(nanos as i64))
        } else {
            Err(format!("time {text} {} is out of range", unit.name()))
        }
    }
}

/// `1700000040.123456789` without the rounding of a double.
fn exact_fraction(text: &str, unit: TimeUnit) -> Option<i64> {
    let (whole, fraction) = text.split_once('.')?;
    let digits: String = fraction.chars().take(9).collect();
    let scale = 10_i64.checked_pow(u32::try_from(digits.len()).ok()?)?;
    let negative = whole.starts_with('-');
    let whole: i64 = whole.parse().ok()?;
    let part = digits.parse::<i64>().ok()?.checked_mul(unit.nanos())? / scale;
    let nanos = whole.checked_mul(unit.nanos())?;
    if negative {
        nanos.checked_sub(part)
    } else {
        nanos.checked_add(part)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const AT_NS: i64 = 1_700_000_040_250_000_000;

    #[test]
    fn the_first_number_tells_the_unit() {
        for text in [
            "1700000040.25",
            "1700000040250",
            "1700000040250000",
            "1700000040250000000",
            "2023-11-14T22:14:00.25Z",
            "2023-11-14T23:14:00.25+01:00",
        ] {
            assert_eq!(Times::new(None).read(text), Ok(AT_NS), "{text}");
        }
    }

    #[test]
    fn mixed_units_and_no_times_are_told() {
        let mut times = Times::new(None);
        assert!(times.read("1700000040").is_ok());
        let mixed = times.read("1700000040000").unwrap_err();
        assert!(
            mixed.contains("milliseconds") && mixed.contains("--time-unit"),
            "{mixed}"
        );
        assert_eq!(
            times.read("17"),
            Ok(17_000_000_000),
            "the unit is known by now"
        );
        for text in ["", "yesterday", "2023-11-14T22:14:00", "1e400", "NaN"] {
            assert!(Times::new(None).read(text).is_err(), "{text}");
        }
        let given = Some(TimeUnit::Nanoseconds);
        assert_eq!(Times::new(given).read("-1"), Ok(-1));
        assert_eq!(
            Times::new(Some(TimeUnit::Seconds)).read("-0.5"),
            Ok(-500_000_000)
        );
    }
}
