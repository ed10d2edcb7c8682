//! What may come of it that an embedded store decided in an outage: it knows the claims that it made
//! itself in that outage, and no others.

use super::{
    super::history::{Answer, Attempt, Mode, Span},
    Story,
};

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
            // Another outage, if Redis has decided meanwhile: by then it has the first claim.
            (true, true) => {
                self.redis_decided(first, second) || self.may_be_displaced(first, second.span)
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

    /// Whether the instance has been answered by Redis between the two.
    fn redis_decided(&self, first: &Attempt, second: &Attempt) -> bool {
        let between = Span {
            from: first.span.to,
            to: second.span.from,
        };
        self.history.attempts.iter().any(|attempt| {
            attempt.instance == first.instance
                && attempt.span.overlaps(between)
                && match attempt.answer {
                    Ok(Answer::Admitted) => true,
                    Ok(Answer::Suppressed | Answer::InFlight) => {
                        self.history.events[attempt.event].mode != Mode::Local
                    }
                    Ok(Answer::FellBack | Answer::FailedOpen | Answer::Undecided) | Err(_) => false,
                }
        })
    }
}

fn fell_back(attempt: &Attempt) -> bool {
    attempt.answer == Ok(Answer::FellBack)
}
