//! What may come of it that an embedded store decided in an outage: it knows the claims that it made
//! itself in that outage, and no others.

use std::time::Duration;

use super::{
    super::history::{Answer, Attempt, Span},
    Story,
};

/// Between two outages: the breaker is told of the end of one and the claims of it are written.
const SHORTEST_PEACE: Duration = Duration::from_millis(10);

impl Story<'_> {
    /// Whether two admissions may both stand because an embedded store made one of them, or both.
    pub(super) fn by_fallback(&self, one: &Attempt, other: &Attempt) -> bool {
        let (first, second) = if one.span.to <= other.span.to {
            (one, other)
        } else {
            (other, one)
        };
        if first.instance != second.instance {
            return fell_back(first) || fell_back(second);
        }
        match (fell_back(first), fell_back(second)) {
            (false, false) => false,
            // What Redis knew is not known.
            (false, true) => true,
            // In another outage, if Redis can have got the first claim between them.
            (true, true) => {
                second.span.to > first.span.to + SHORTEST_PEACE
                    || self.may_be_displaced(first, second.span)
            }
            (true, false) => self.may_be_displaced(first, second.span),
        }
    }

    /// Whether a claim of an embedded store need not be in Redis by the end of the later call,
    /// since another one may have been there when it was to be written.
    pub(super) fn may_be_displaced(&self, claim: &Attempt, later: Span) -> bool {
        fell_back(claim)
            && self.attempts().any(|(index, other)| {
                other.call != claim.call
                    && other.span != later
                    && other.span.from <= later.to
                    && self.holds.of(index).possible_until > claim.span.from
            })
    }
}

fn fell_back(attempt: &Attempt) -> bool {
    attempt.answer == Ok(Answer::FellBack)
}
