//! Event time: when it happened by the device's own clock.
//!
//! Signed 64-bit nanoseconds since 1970-01-01T00:00:00Z cover the years 1677 to 2262; what lies
//! outside is implausible by definition. Floor division is toward minus infinity, so that the
//! bucket before the epoch is −1 and not a second bucket 0.

use std::{borrow::Cow, time::Duration};

use jiff::{Timestamp, civil, fmt::temporal::DateTimeParser};

use super::reason::{Reason, Rejection};

const NANOS_PER_SECOND: i64 = 1_000_000_000;

/// GPS week numbers have ten bits: a receiver that lost count is off by a multiple of this.
const ROLLOVER_SECONDS: i64 = 1024 * 7 * 86_400;

/// How far from a whole number of rollovers a time may lie and still be called one.
const ROLLOVER_TOLERANCE_SECONDS: i64 = 86_400;

/// Clocks of devices run ahead by minutes, not more.
pub const DEFAULT_MAX_FUTURE: Duration = Duration::from_secs(5 * 60);
/// Buffers on devices are drained within weeks.
pub const DEFAULT_MAX_AGE: Duration = Duration::from_secs(30 * 86_400);

/// Nanoseconds since 1970-01-01T00:00:00Z.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct EventTime(i64);

impl EventTime {
    pub const fn from_unix_nanos(nanos: i64) -> Self {
        Self(nanos)
    }

    pub const fn unix_nanos(self) -> i64 {
        self.0
    }

    /// |self − other|; u64 holds every difference of two i64.
    pub const fn distance_ns(self, other: Self) -> u64 {
        self.0.abs_diff(other.0)
    }

    /// Whole seconds, rounded down, and the nanoseconds that remain: a protobuf Timestamp.
    pub const fn seconds_and_nanos(self) -> (i64, i32) {
        let nanos = self.0.rem_euclid(NANOS_PER_SECOND);
        (self.0.div_euclid(NANOS_PER_SECOND), nanos as i32)
    }
}

/// A time as it came, not judged yet.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub enum RawTime<'a> {
    #[default]
    Unset,
    Timestamp {
        seconds: i64,
        nanos: i32,
    },
    Text(&'a str),
    UnixNanos(i64),
}

/// A moment that is well formed but may lie outside what an [`EventTime`] holds.
#[derive(Clone, Copy)]
enum Moment {
    At(EventTime),
    BeforeAll,
    AfterAll,
}

impl RawTime<'_> {
    fn read(self) -> Result<Moment, Rejection> {
        match self {
            RawTime::Unset => Err(Rejection::new(
                Reason::MissingTime,
                "the event has no time; send the device's own, never the time of arrival",
            )),
            RawTime::UnixNanos(nanos) => Ok(Moment::At(EventTime(nanos))),
            RawTime::Timestamp { seconds, nanos } => {
                from_timestamp(seconds, nanos).ok_or_else(|| {
                    Rejection::new(
                        Reason::MalformedTime,
                        format!("occurred_at.nanos is {nanos}; it must lie in 0..=999999999"),
                    )
                })
            }
            RawTime::Text(text) => from_text(text),
        }
    }
}

fn from_timestamp(seconds: i64, nanos: i32) -> Option<Moment> {
    if !(0..NANOS_PER_SECOND as i32).contains(&nanos) {
        return None;
    }
    Some(from_wide(
        i128::from(seconds) * i128::from(NANOS_PER_SECOND) + i128::from(nanos),
    ))
}

fn from_wide(nanos: i128) -> Moment {
    match i64::try_from(nanos) {
        Ok(nanos) => Moment::At(EventTime(nanos)),
        Err(_) if nanos < 0 => Moment::BeforeAll,
        Err(_) => Moment::AfterAll,
    }
}

/// RFC 3339 with an offset. Digits of a second beyond the ninth are cut off, not rounded.
fn from_text(text: &str) -> Result<Moment, Rejection> {
    let malformed = || {
        Rejection::new(
            Reason::MalformedTime,
            format!(
                "{:?} is not RFC 3339, such as 2026-11-30T14:05:00.250+01:00",
                excerpt(text)
            ),
        )
    };
    let trimmed = text.trim();
    // Brackets name a time zone (RFC 9557), which no device may make this service look up.
    if trimmed.len() > 128 || trimmed.contains('[') {
        return Err(malformed());
    }
    let cut = without_excess_fraction(trimmed);
    if let Ok(timestamp) = cut.parse::<Timestamp>() {
        return Ok(from_wide(timestamp.as_nanosecond()));
    }
    match DateTimeParser::new().parse_datetime(cut.as_bytes()) {
        Ok(civil::DateTime { .. }) if !has_offset(&cut) => Err(Rejection::new(
            Reason::NaiveTime,
            format!(
                "{:?} has no offset; append Z or one such as +02:00",
                excerpt(text)
            ),
        )),
        _ => Err(malformed()),
    }
}

fn has_offset(text: &str) -> bool {
    let time = text.get(10..).unwrap_or_default();
    time.contains(['Z', 'z', '+', '-'])
}

fn without_excess_fraction(text: &str) -> Cow<'_, str> {
    let Some(point) = text.find(['.', ',']) else {
        return Cow::Borrowed(text);
    };
    let digits = text[point + 1..]
        .bytes()
        .take_while(u8::is_ascii_digit)
        .count();
    if digits <= 9 {
        return Cow::Borrowed(text);
    }
    let rest = point + 1 + digits;
    Cow::Owned(format!("{}{}", &text[..point + 10], &text[rest..]))
}

fn excerpt(text: &str) -> String {
    text.chars().take(40).collect()
}

/// What becomes of a time outside the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Implausible {
    DeadLetter,
    /// `ingested_at` stands in for it.
    Clamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeLimits {
    max_future_ns: Option<u64>,
    max_age_ns: Option<u64>,
    implausible: Implausible,
}

impl TimeLimits {
    /// `None` is no limit.
    pub fn new(
        max_future: Option<Duration>,
        max_age: Option<Duration>,
        implausible: Implausible,
    ) -> Self {
        Self {
            max_future_ns: max_future.map(saturating_nanos),
            max_age_ns: max_age.map(saturating_nanos),
            implausible,
        }
    }

    pub const fn max_future_ns(&self) -> Option<u64> {
        self.max_future_ns
    }

    pub const fn max_age_ns(&self) -> Option<u64> {
        self.max_age_ns
    }

    pub const fn implausible(&self) -> Implausible {
        self.implausible
    }
}

impl Default for TimeLimits {
    fn default() -> Self {
        Self::new(
            Some(DEFAULT_MAX_FUTURE),
            Some(DEFAULT_MAX_AGE),
            Implausible::DeadLetter,
        )
    }
}

fn saturating_nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

/// A time that passed, and whether it had to be replaced.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PlausibleTime {
    pub time: EventTime,
    pub clamped: bool,
}

/// Judges a time against `limits`, measured from `ingested_at` if that is set, else from `now`.
pub fn judge(
    raw: RawTime<'_>,
    ingested_at: Option<(i64, i32)>,
    now: EventTime,
    limits: &TimeLimits,
) -> Result<PlausibleTime, Rejection> {
    let moment = raw.read()?;
    let ingested_at = ingested_at.map(read_ingested_at).transpose()?;
    let reference = ingested_at.unwrap_or(now);
    let Some(rejection) = implausibility(moment, reference, limits) else {
        let Moment::At(time) = moment else {
            unreachable!("what does not fit is always implausible");
        };
        return Ok(PlausibleTime {
            time,
            clamped: false,
        });
    };
    match (limits.implausible(), ingested_at) {
        (Implausible::Clamp, Some(time)) => Ok(PlausibleTime {
            time,
            clamped: true,
        }),
        (Implausible::Clamp, None) => Err(Rejection {
            detail: format!(
                "{}; it cannot be clamped without ingested_at",
                rejection.detail
            )
            .into(),
            ..rejection
        }),
        (Implausible::DeadLetter, _) => Err(rejection),
    }
}

fn read_ingested_at((seconds, nanos): (i64, i32)) -> Result<EventTime, Rejection> {
    match from_timestamp(seconds, nanos) {
        Some(Moment::At(time)) => Ok(time),
        _ => Err(Rejection::new(
            Reason::MalformedTime,
            "ingested_at has nanos outside 0..=999999999 or lies outside the years 1677 to 2262",
        )),
    }
}

fn implausibility(moment: Moment, reference: EventTime, limits: &TimeLimits) -> Option<Rejection> {
    let time = match moment {
        Moment::At(time) => time,
        Moment::BeforeAll => {
            return Some(Rejection::new(
                Reason::TimeTooOld,
                "the time lies before 1677, where 64-bit nanoseconds begin; is its unit right?",
            ));
        }
        Moment::AfterAll => {
            return Some(Rejection::new(
                Reason::TimeTooNew,
                "the time lies after 2262, where 64-bit nanoseconds end; is its unit right?",
            ));
        }
    };
    let (reason, limit_ns, direction) = if time > reference {
        (Reason::TimeTooNew, limits.max_future_ns()?, "ahead of")
    } else {
        (Reason::TimeTooOld, limits.max_age_ns()?, "behind")
    };
    let off_ns = time.distance_ns(reference);
    if off_ns <= limit_ns {
        return None;
    }
    let off_seconds = off_ns / NANOS_PER_SECOND as u64;
    let mut detail = format!("the time is {off_seconds} s {direction} the reference time");
    if let Some(weeks) = rollover_weeks(off_seconds) {
        detail.push_str(&format!(
            "; that is {weeks} weeks, a GPS week rollover of the receiver"
        ));
    }
    Some(Rejection::new(reason, detail))
}

fn rollover_weeks(off_seconds: u64) -> Option<u64> {
    let period = ROLLOVER_SECONDS as u64;
    let rollovers = (off_seconds + period / 2) / period;
    let remainder = off_seconds.abs_diff(rollovers * period);
    (rollovers > 0 && remainder <= ROLLOVER_TOLERANCE_SECONDS as u64).then_some(rollovers * 1024)
}
