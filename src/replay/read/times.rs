//! Times of a trace as nanoseconds since 1970.

use jiff::Timestamp;

use super::fields::shown;

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

    /// Of a text without white space around it.
    pub(super) fn read(&mut self, text: &str) -> Result<i64, String> {
        // Whole numbers are exact; a fraction is as exact as its digits.
        if let Ok(whole) = text.parse::<i64>() {
            let unit = self.unit(text, whole as f64)?;
            return whole
                .checked_mul(unit.nanos())
                .ok_or_else(|| out_of_range(text, unit));
        }
        let is_number = text
            .bytes()
            .all(|byte| byte.is_ascii_digit() || matches!(byte, b'.' | b'-' | b'+' | b'e' | b'E'));
        if let Some(number) = text.parse::<f64>().ok().filter(|_| is_number) {
            let unit = self.unit(text, number)?;
            let nanos = number * unit.nanos() as f64;
            return if nanos.is_finite() && nanos.abs() < i64::MAX as f64 {
                Ok(exact_fraction(text, unit).unwrap_or(nanos as i64))
            } else {
                Err(out_of_range(text, unit))
            };
        }
        let timestamp: Timestamp = text.parse().map_err(|_| {
            format!(
                "time {:?} is neither a number nor RFC 3339 with an offset, such as 2026-11-30T14:05:00Z",
                shown(text)
            )
        })?;
        i64::try_from(timestamp.as_nanosecond()).map_err(|_| {
            format!(
                "time {:?} is not between the years 1677 and 2262",
                shown(text)
            )
        })
    }

    fn unit(&mut self, text: &str, number: f64) -> Result<TimeUnit, String> {
        if let Some(given) = self.given {
            return Ok(given);
        }
        match (self.first, TimeUnit::of(number)) {
            (Some(first), Some(looks)) if first != looks => Err(format!(
                "time {:?} looks like {}, the first one like {}: give --time-unit, or mend the file",
                shown(text),
                looks.name(),
                first.name()
            )),
            (Some(first), _) => Ok(first),
            (None, Some(looks)) => {
                self.first = Some(looks);
                Ok(looks)
            }
            (None, None) => Err(format!(
                "time {:?} is in no unit since 1970: give --time-unit",
                shown(text)
            )),
        }
    }
}

fn out_of_range(text: &str, unit: TimeUnit) -> String {
    format!("time {:?} {} is out of range", shown(text), unit.name())
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
