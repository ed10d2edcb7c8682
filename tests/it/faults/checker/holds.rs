//! From when until when each attempt's claim stood, at least and at most.

use std::{collections::HashMap, time::Duration};

use dedupd::grpc::proto::SettleOutcome;

use super::super::history::{
    Act, Action, Answer, At, Attempt, Deed, History, Loses, NoAnswer, Span,
};

/// Redis counts in milliseconds.
const CLOCK_GRAIN: Duration = Duration::from_millis(2);
/// A replica has a write after so long, though it had to connect anew.
const REPLICATION_LAG: Duration = Duration::from_secs(2);
/// What was on its way during some trouble is executed, and given back, so soon after it.
const AFTERMATH: Duration = Duration::from_secs(4);

#[derive(Clone, Copy, Debug)]
pub(super) struct Hold {
    pub(super) certain_until: At,
    pub(super) possible_until: At,
    /// When what makes it certain was written.
    pub(super) written: Span,
}

pub(super) struct Holds(HashMap<usize, Hold>);

impl Holds {
    pub(super) fn new(history: &History, attempts: &[usize], acts: &[Vec<Act>]) -> Self {
        let hold = |&index: &usize| {
            let hold = after(history, &history.attempts[index], &acts[index]);
            (index, hold)
        };
        Self(attempts.iter().map(hold).collect())
    }

    pub(super) fn of(&self, attempt: usize) -> Hold {
        self.0[&attempt]
    }
}

/// The hold of an attempt, when its holder has done so much.
pub(super) fn after(history: &History, attempt: &Attempt, acts: &[Act]) -> Hold {
    let rules = &history.rules;
    let nothing = Hold {
        certain_until: At::ZERO,
        possible_until: At::ZERO,
        written: attempt.span,
    };
    let admitted = Hold {
        certain_until: (attempt.span.from + rules.hold()).saturating_sub(CLOCK_GRAIN),
        possible_until: attempt.span.to + rules.hold(),
        written: attempt.span,
    };
    let mut hold = match attempt.answer {
        Ok(Answer::Admitted) => admitted,
        // Written to Redis with the rest of its time, which the way there prolongs.
        Ok(Answer::FellBack) => Hold {
            possible_until: executed_by(
                history,
                Span {
                    to: admitted.possible_until,
                    ..attempt.span
                },
            ),
            ..admitted
        },
        // The service gives back what it may have claimed, unless it ends before.
        Ok(Answer::Undecided | Answer::FailedOpen) => {
            let given_back = executed_by(history, attempt.span);
            let meanwhile = Span {
                to: given_back,
                ..attempt.span
            };
            let undone = service_ends(history, meanwhile) || failover_undoes(history, meanwhile);
            let hold = if undone { rules.hold() } else { Duration::ZERO };
            Hold {
                possible_until: given_back + hold,
                ..nothing
            }
        }
        Err(NoAnswer::Cancelled | NoAnswer::Gone | NoAnswer::Hung) => Hold {
            possible_until: executed_by(history, attempt.span) + rules.hold(),
            ..nothing
        },
        Ok(Answer::Suppressed | Answer::InFlight) | Err(NoAnswer::Refused) => nothing,
    };
    let mut confirming_since = None;
    for act in acts {
        let Deed::Settle(action, outcome) = act.deed else {
            continue;
        };
        if action == Action::Confirm {
            confirming_since.get_or_insert(act.span.from);
        }
        let period = match action {
            Action::Confirm => rules.ttl,
            Action::Renew => rules.hold(),
            Action::Release => Duration::ZERO,
        };
        let written = match (action, outcome) {
            (_, Ok(SettleOutcome::Applied)) => Some(act.span),
            // An earlier attempt was.
            (Action::Confirm, Ok(SettleOutcome::AlreadyApplied)) => {
                let from = confirming_since.unwrap_or(act.span.from);
                Some(Span { from, ..act.span })
            }
            _ => None,
        };
        match (action, written) {
            (Action::Confirm | Action::Renew, Some(written)) => {
                let until = (written.from + period).saturating_sub(CLOCK_GRAIN);
                if until > hold.certain_until {
                    (hold.certain_until, hold.written) = (until, written);
                }
                hold.possible_until = hold.possible_until.max(written.to + period);
            }
            (Action::Confirm | Action::Renew, None) => {
                if super::may_be_done(outcome) {
                    let late = executed_by(history, act.span) + period;
                    hold.possible_until = hold.possible_until.max(late);
                }
            }
            (Action::Release, written) => {
                hold.certain_until = hold.certain_until.min(act.span.from);
                if written.is_some_and(|written| !failover_undoes(history, written)) {
                    hold.possible_until = hold.possible_until.min(act.span.to);
                }
            }
        }
    }
    hold
}

/// When the last of what a call set going is over, if it was not answered.
fn executed_by(history: &History, call: Span) -> At {
    let troubles = history.troubles.iter();
    let met = troubles.filter(|trouble| trouble.span.overlaps(call));
    let last = met.map(|trouble| trouble.span.to).max().unwrap_or_default();
    last.max(call.to) + AFTERMATH
}

/// Whether a service ended during the time.
pub(super) fn service_ends(history: &History, during: Span) -> bool {
    let mut troubles = history.troubles.iter();
    troubles.any(|trouble| trouble.loses == Loses::Calls && trouble.span.overlaps(during))
}

/// Whether what was written then may be missing after a failover.
pub(super) fn failover_undoes(history: &History, written: Span) -> bool {
    failovers(history).any(|failover| loses(failover, written))
}

/// The same, where it has begun by the end of a later call.
pub(super) fn failover_undid(history: &History, written: Span, later: Span) -> bool {
    failovers(history).any(|failover| loses(failover, written) && failover.from <= later.to)
}

fn failovers(history: &History) -> impl Iterator<Item = Span> {
    let troubles = history.troubles.iter();
    troubles
        .filter(|trouble| trouble.loses == Loses::LatestWrites)
        .map(|trouble| trouble.span)
}

fn loses(failover: Span, written: Span) -> bool {
    written.to + REPLICATION_LAG >= failover.from && written.from <= failover.to
}
