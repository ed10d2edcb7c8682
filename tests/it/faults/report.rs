//! One line about a run.

use std::{collections::BTreeMap, fmt};

use dedupd::grpc::proto::SettleOutcome;

use super::{
    checker::Findings,
    history::{Answer, Deed, History, NoAnswer},
};

pub(super) struct Report<'r>(pub(super) &'r History, pub(super) &'r Findings);

impl fmt::Display for Report<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self(history, findings) = self;
        let troubles = count(history.troubles.iter().map(|trouble| trouble.what));
        let answers = count(history.attempts.iter().map(|attempt| match attempt.answer {
            Ok(Answer::Admitted) => "admitted",
            Ok(Answer::FellBack) => "fell back",
            Ok(Answer::FailedOpen) => "failed open",
            Ok(Answer::Suppressed) => "suppressed",
            Ok(Answer::InFlight) => "in flight",
            Ok(Answer::Undecided) => "undecided",
            Err(no_answer) => named(no_answer),
        }));
        let settled = count(history.acts.iter().filter_map(|act| match act.deed {
            Deed::Settle(_, Ok(SettleOutcome::NotHeld)) => Some("not held"),
            Deed::Settle(_, Ok(SettleOutcome::StoreUnavailable)) => Some("unavailable"),
            Deed::Settle(_, Ok(_)) => Some("settled"),
            Deed::Settle(_, Err(no_answer)) => Some(named(no_answer)),
            Deed::Work | Deed::Die => None,
        }));
        write!(
            f,
            "{} events in {} copies; {} troubles {troubles:?}; {} verdicts {answers:?}; settlements {settled:?}; \
             wrong {}; counted {:?}; slowest answer {:.0?}, at most {:.0?} over the budget besides the machine's",
            history.events.len(),
            history.deliveries.len(),
            history.troubles.len(),
            history
                .attempts
                .iter()
                .filter(|it| it.answer.is_ok())
                .count(),
            findings.wrong.len(),
            findings.counted,
            findings.slowest,
            findings.over_budget,
        )
    }
}

fn named(no_answer: NoAnswer) -> &'static str {
    match no_answer {
        NoAnswer::Refused => "refused",
        NoAnswer::Cancelled => "cancelled",
        NoAnswer::Gone => "gone",
        NoAnswer::Hung => "hung",
    }
}

fn count<'t>(names: impl Iterator<Item = &'t str>) -> BTreeMap<&'t str, usize> {
    let mut counts = BTreeMap::new();
    for name in names {
        *counts.entry(name).or_default() += 1;
    }
    counts
}
