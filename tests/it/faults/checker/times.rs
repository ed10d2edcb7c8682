//! Whether every answered call kept the budget, but for what the machine added at that time.

use std::time::Duration;

use super::{
    super::history::{Deed, History, NoAnswer},
    Findings, Kind,
};

/// What every call may take beyond the budget, and beyond what the machine adds.
const BEYOND_BUDGET: Duration = Duration::from_millis(20);

pub(super) fn check(history: &History, findings: &mut Findings) {
    let admits = history.attempts.iter().filter_map(|attempt| {
        let answered = attempt.answer.is_ok() || attempt.answer == Err(NoAnswer::Refused);
        answered.then_some((attempt.event, attempt.span))
    });
    let settles = history.acts.iter().filter_map(|act| match act.deed {
        Deed::Settle(_, Ok(_)) => Some((history.attempts[act.holder].event, act.span)),
        Deed::Settle(_, Err(_)) | Deed::Work | Deed::Die => None,
    });
    for (event, call) in admits.chain(settles) {
        findings.slowest = findings.slowest.max(call.length());
        let Some(over) = call.length().checked_sub(history.rules.budget) else {
            continue;
        };
        let noise = history.noise.during(call);
        let over = over.saturating_sub(noise);
        findings.over_budget = findings.over_budget.max(over);
        if over > BEYOND_BUDGET {
            let why =
                format!("{call:?}: {over:?} over the budget, besides {noise:?} of the machine's");
            findings.wrong(Kind::TooSlow, event, why);
        }
    }
}
