//! Deadlines of callers: the `grpc-timeout` header.
//!
//! tonic ends a call whose time is up with CANCELLED, and a stream not at all. Its own timer lies
//! outside of everything that can be added to its server, so the header cannot be taken away from
//! it. Instead the timers here run out a little earlier.

use std::time::Duration;

use axum::http::HeaderMap;
use tokio::time::Instant;

/// One tick of tokio's timer: what runs out a tick earlier is seen first.
pub(super) const HEAD_START: Duration = Duration::from_millis(1);

/// When a call's time is up; found among the extensions of its request.
#[derive(Clone, Copy, Debug)]
pub(super) struct Deadline(pub(super) Instant);

/// How long the caller waits; `None` where it does not say, or says what is no timeout.
pub(super) fn timeout(headers: &HeaderMap) -> Option<Duration> {
    let text = headers.get("grpc-timeout")?.to_str().ok()?;
    let unit = text.chars().next_back()?;
    let digits = text.strip_suffix(unit)?;
    if !(1..=8).contains(&digits.len()) || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
        return None;
    }
    let count: u64 = digits.parse().ok()?;
    match unit {
        'H' => Some(Duration::from_secs(count * 3600)),
        'M' => Some(Duration::from_secs(count * 60)),
        'S' => Some(Duration::from_secs(count)),
        'm' => Some(Duration::from_millis(count)),
        'u' => Some(Duration::from_micros(count)),
        'n' => Some(Duration::from_nanos(count)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use axum::http::HeaderValue;

    use super::*;

    #[test]
    fn a_timeout_has_one_to_eight_digits_and_a_unit() {
        let rows = [
            ("1H", Some(Duration::from_secs(3600))),
            ("2M", Some(Duration::from_secs(120))),
            ("3S", Some(Duration::from_secs(3))),
            ("250m", Some(Duration::from_millis(250))),
            ("4u", Some(Duration::from_micros(4))),
            ("5n", Some(Duration::from_nanos(5))),
            ("0m", Some(Duration::ZERO)),
            ("99999999H", Some(Duration::from_secs(99_999_999 * 3600))),
            ("100000000n", None),
            ("+1S", None),
            ("1", None),
            ("S", None),
            ("1s", None),
            ("", None),
        ];
        for (text, expected) in rows {
            let value = HeaderValue::from_static(text);
            let headers = HeaderMap::from_iter([(
                axum::http::HeaderName::from_static("grpc-timeout"),
                value,
            )]);
            assert_eq!(timeout(&headers), expected, "{text:?}");
        }
        assert_eq!(timeout(&HeaderMap::new()), None);
    }
}
