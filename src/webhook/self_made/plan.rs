//! What is kept, and when it is renewed. Pure.

use std::time::Duration;

use crate::webhook::certificate::{BACKDATED, Facts, Pair};

/// What the Secret holds.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Kept {
    /// The authorities to trust, the newest first.
    pub(super) bundle: String,
    pub(super) served: Pair,
    /// To be served once its authority is trusted.
    pub(super) next: Option<Pair>,
    /// The last step, in seconds since 1970.
    pub(super) since_s: i64,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Step {
    Nothing,
    /// Make the next certificate, and have its authority trusted.
    Prepare,
    /// Serve it.
    Promote,
}

/// Renewed when this part of its time is left.
const RENEWED_AT: u32 = 3;
/// For every API server to hear of an authority, and for every instance to look at the Secret.
const SETTLE: Duration = Duration::from_secs(60);
/// That, where certificates are valid for minutes only.
const SETTLE_PART: u32 = 12;

const END: &str = "-----END CERTIFICATE-----\n";

impl Kept {
    /// The authority before the last one is not trusted any more.
    pub(super) fn prepare(&self, authority: &str, pair: Pair, now_s: i64) -> Self {
        let newest_end = self.bundle.find(END).map_or(0, |start| start + END.len());
        Self {
            bundle: format!("{authority}{}", &self.bundle[..newest_end]),
            served: self.served.clone(),
            next: Some(pair),
            since_s: now_s,
        }
    }

    pub(super) fn promote(&self, now_s: i64) -> Self {
        Self {
            bundle: self.bundle.clone(),
            served: self.next.clone().unwrap_or_else(|| self.served.clone()),
            next: None,
            since_s: now_s,
        }
    }
}

/// `facts` are those of the certificate that is served.
pub(super) fn step(
    kept: &Kept,
    facts: &Facts,
    names: &[String],
    validity: Duration,
    now_s: i64,
) -> Step {
    let seconds = |span: Duration| i64::try_from(span.as_secs()).unwrap_or(i64::MAX);
    if now_s - kept.since_s < seconds(SETTLE.min(validity / SETTLE_PART)) {
        // The API server may not know the next authority yet; some instance may still serve what
        // was served before.
        return Step::Nothing;
    }
    if kept.next.is_some() {
        return Step::Promote;
    }
    let valid_s = facts.not_after_s - facts.not_before_s - seconds(BACKDATED);
    let is_due = facts.not_after_s - now_s < seconds(validity / RENEWED_AT);
    let is_as_configured = (valid_s - seconds(validity)).abs() <= 1 && facts.names == names;
    if is_due || !is_as_configured {
        Step::Prepare
    } else {
        Step::Nothing
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const MADE_S: i64 = 1_800_000_000;
    const DAY: i64 = 86_400;
    const VALIDITY: Duration = Duration::from_secs(90 * DAY as u64);

    fn pair(name: &str) -> Pair {
        Pair {
            certificate: name.to_owned(),
            key: String::new(),
        }
    }

    fn kept() -> Kept {
        Kept {
            bundle: format!("A{END}"),
            served: pair("a"),
            next: None,
            since_s: MADE_S,
        }
    }

    fn facts() -> Facts {
        Facts {
            not_before_s: MADE_S - 300,
            not_after_s: MADE_S + 90 * DAY,
            names: vec!["injector.ns.svc".to_owned()],
        }
    }

    #[test]
    fn a_certificate_is_renewed_in_time_and_when_another_is_configured() {
        let check = |kept: &Kept, names: &str, validity: Duration, after_s: i64, expected| {
            let found = step(
                kept,
                &facts(),
                &[names.to_owned()],
                validity,
                MADE_S + after_s,
            );
            assert_eq!(found, expected, "{names}, {validity:?}, {after_s} s");
        };
        let (kept, name) = (kept(), "injector.ns.svc");
        check(&kept, name, VALIDITY, 0, Step::Nothing);
        check(&kept, name, VALIDITY, 60 * DAY, Step::Nothing);
        check(&kept, name, VALIDITY, 60 * DAY + 1, Step::Prepare);
        check(&kept, name, VALIDITY, 91 * DAY, Step::Prepare);
        check(&kept, name, VALIDITY / 2, 59, Step::Nothing);
        check(&kept, name, VALIDITY / 2, 60, Step::Prepare);
        check(&kept, "other.ns.svc", VALIDITY, 60, Step::Prepare);
        let prepared = kept.prepare(&format!("B{END}"), pair("b"), MADE_S + 60 * DAY);
        check(&prepared, name, VALIDITY, 60 * DAY + 59, Step::Nothing);
        check(&prepared, name, VALIDITY, 60 * DAY + 60, Step::Promote);
        let promoted = prepared.promote(MADE_S + 60 * DAY + 60);
        check(&promoted, name, VALIDITY / 2, 60 * DAY + 119, Step::Nothing);
        check(&promoted, name, VALIDITY / 2, 60 * DAY + 120, Step::Prepare);
    }

    #[test]
    fn what_is_served_is_always_trusted_and_so_is_what_was_served_before() {
        let first = kept();
        let prepared = first.prepare(&format!("B{END}"), pair("b"), 0);
        assert_eq!(prepared.bundle, format!("B{END}A{END}"));
        assert_eq!(prepared.served, pair("a"));
        let promoted = prepared.promote(1);
        assert_eq!(promoted.bundle, prepared.bundle);
        assert_eq!((&promoted.served, &promoted.next), (&pair("b"), &None));
        let again = promoted.prepare(&format!("C{END}"), pair("c"), 2);
        assert_eq!(again.bundle, format!("C{END}B{END}"));
        assert_eq!(again.served, pair("b"));
    }
}
