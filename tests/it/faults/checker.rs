//! Whether a history can be what a correct store and correct services do.
//!
//! A pure function. Instants are those before and after a call, and what happened in between
//! happened at an unknown one: a claim is *certainly* held from the end of the call that admitted it
//! until one hold after that call's beginning, and *possibly* until one hold after its end. Two
//! claims contradict each other if neither can have ended before the other was made.
//!
//! What the guarantees except is counted by kind: a failover of an asynchronous replica, and
//! without leases the losses that section "Without a lease" of `docs/guarantees.md` lists.

mod fallbacks;
mod holds;
mod losses;
mod tests;
mod times;

use std::{collections::BTreeMap, fmt, time::Duration};

use dedupd::grpc::proto::SettleOutcome;

use self::holds::{Holds, failover_undid, service_ends};
use super::history::{Act, Action, Answer, Attempt, Deed, Ending, History, Mode, NoAnswer, Span};

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Kind {
    /// Two callers held valid tokens for one event at the same time.
    TwoHolders,
    /// A copy was dropped though no work on the event can have been confirmed (without a lease:
    /// though nobody can have been admitted).
    SuppressedForNobody,
    /// A caller was sent away though nobody can have held a claim.
    BlockedForNobody,
    /// A claim that was certainly held was not there.
    ClaimVanished,
    /// An outcome of settling that nothing before it explains.
    ImpossibleOutcome,
    /// A failure mode that the namespace does not have.
    WrongFailureMode,
    /// No answer, though the service lived and the client was patient; or one beyond the budget.
    TooSlow,
    NeverDecided,
    /// Every copy was acknowledged, and nobody worked on the event.
    Lost,
}

#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Wrong {
    pub(super) kind: Kind,
    pub(super) event: usize,
    pub(super) why: String,
}

/// What is within the guarantees, but worth a number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Counted {
    AdmittedTwiceByFailover,
    ClaimLostByFailover,
    /// By the embedded store of one instance and by another.
    AdmittedTwiceByFallback,
    ClaimLostByFallback,
    WorkedMoreThanOnce,
    FailedOpen,
    FellBack,
    /// Every consumer of every copy gave up before it was decided.
    GivenUp,
    LostWithItsHolder,
    LostWithTheService,
    LostAfterRelease,
    LostWithTheAnswer,
    LostToAClaimGivenBack,
    /// A release that the promoted replica had not received.
    LostByFailover,
}

#[derive(Debug, Default)]
pub(super) struct Findings {
    pub(super) wrong: Vec<Wrong>,
    pub(super) counted: BTreeMap<Counted, usize>,
    /// The longest call that was answered.
    pub(super) slowest: Duration,
    /// The most that one took beyond the budget and what the machine added to it.
    pub(super) over_budget: Duration,
}

pub(super) fn check(history: &History) -> Findings {
    let mut findings = Findings::default();
    times::check(history, &mut findings);
    let mut by_event: Vec<Vec<usize>> = vec![Vec::new(); history.events.len()];
    for (index, attempt) in history.attempts.iter().enumerate() {
        by_event[attempt.event].push(index);
    }
    let mut endings: Vec<Vec<Option<Ending>>> = vec![Vec::new(); history.events.len()];
    for delivery in &history.deliveries {
        endings[delivery.event].push(delivery.ending);
    }
    let mut acts: Vec<Vec<Act>> = vec![Vec::new(); history.attempts.len()];
    for act in &history.acts {
        acts[act.holder].push(*act);
    }
    for (event, (attempts, endings)) in by_event.into_iter().zip(endings).enumerate() {
        let story = Story {
            history,
            event,
            endings,
            holds: Holds::new(history, &attempts, &acts),
            attempts,
            acts: &acts,
        };
        story.check_holders(&mut findings);
        story.check_answers(&mut findings);
        story.check_outcomes(&mut findings);
        story.check_end(&mut findings);
    }
    findings
}

/// What happened to one event.
struct Story<'h> {
    history: &'h History,
    event: usize,
    /// Of its copies.
    endings: Vec<Option<Ending>>,
    /// Indices of attempts, in the order of their ends.
    attempts: Vec<usize>,
    /// For each attempt of the history, in order.
    acts: &'h [Vec<Act>],
    holds: Holds,
}

impl Story<'_> {
    fn attempts(&self) -> impl Iterator<Item = (usize, &Attempt)> {
        self.attempts
            .iter()
            .map(|&index| (index, &self.history.attempts[index]))
    }

    fn admitted(&self) -> impl Iterator<Item = (usize, &Attempt)> {
        self.attempts().filter(|(_, attempt)| match attempt.answer {
            Ok(Answer::Admitted | Answer::FellBack) => true,
            Ok(_) | Err(_) => false,
        })
    }

    fn check_holders(&self, findings: &mut Findings) {
        for (one, first) in self.admitted() {
            for (other, second) in self.admitted().filter(|(other, _)| *other > one) {
                let (a, b) = (self.holds.of(one), self.holds.of(other));
                if second.span.to >= a.certain_until || first.span.to >= b.certain_until {
                    continue;
                }
                let by_failover = failover_undid(self.history, a.written, second.span)
                    || failover_undid(self.history, b.written, first.span);
                if by_failover {
                    findings.count(Counted::AdmittedTwiceByFailover);
                } else if self.by_fallback(first, second) {
                    findings.count(Counted::AdmittedTwiceByFallback);
                } else {
                    findings.wrong(
                        Kind::TwoHolders,
                        self.event,
                        format!(
                            "{first:?}, certain until {:?}, and {second:?}, certain until {:?}",
                            a.certain_until, b.certain_until
                        ),
                    );
                }
            }
        }
    }

    fn check_answers(&self, findings: &mut Findings) {
        let mode = self.history.events[self.event].mode;
        let leased = self.history.rules.lease.is_some();
        for (index, attempt) in self.attempts() {
            let fine = match attempt.answer {
                Ok(Answer::Suppressed) if leased => self.may_be_confirmed_by(attempt.span),
                Ok(Answer::Suppressed) => self.may_be_held(index),
                Ok(Answer::InFlight) => leased && self.may_be_held(index),
                Ok(Answer::FailedOpen) => mode == Mode::Open,
                Ok(Answer::FellBack) => mode == Mode::Local,
                Ok(Answer::Undecided | Answer::Admitted) => true,
                Err(NoAnswer::Gone) => service_ends(self.history, attempt.span),
                Err(NoAnswer::Hung) => false,
                Err(NoAnswer::Refused | NoAnswer::Cancelled) => true,
            };
            let kind = match attempt.answer {
                Ok(Answer::Suppressed) => Kind::SuppressedForNobody,
                Ok(Answer::InFlight) => Kind::BlockedForNobody,
                Ok(_) => Kind::WrongFailureMode,
                Err(_) => Kind::TooSlow,
            };
            if !fine {
                findings.wrong(kind, self.event, format!("{attempt:?}, in {}", self.told()));
            }
            match attempt.answer {
                Ok(Answer::FailedOpen) => findings.count(Counted::FailedOpen),
                Ok(Answer::FellBack) => findings.count(Counted::FellBack),
                Ok(_) | Err(_) => {}
            }
        }
    }

    /// Whether a confirmation may have been applied by the end of a call.
    fn may_be_confirmed_by(&self, call: Span) -> bool {
        let mut settled = self.attempts.iter().flat_map(|&index| &self.acts[index]);
        settled.any(|act| {
            act.span.from <= call.to
                && match act.deed {
                    Deed::Settle(Action::Confirm, outcome) => may_be_done(outcome),
                    Deed::Settle(Action::Release | Action::Renew, _) | Deed::Work | Deed::Die => {
                        false
                    }
                }
        })
    }

    fn may_be_held(&self, asking: usize) -> bool {
        self.possible_holders(&self.history.attempts[asking])
            .next()
            .is_some()
    }

    /// Whose claim, of another call or for another copy, may have stood during an attempt.
    fn possible_holders(&self, asking: &Attempt) -> impl Iterator<Item = usize> {
        let others = self.attempts().filter(|(index, other)| {
            (other.call, other.delivery) != (asking.call, asking.delivery)
                && other.span.from <= asking.span.to
                && self.holds.of(*index).possible_until >= asking.span.from
        });
        others.map(|(index, _)| index)
    }

    fn check_outcomes(&self, findings: &mut Findings) {
        for (holder, attempt) in self.admitted() {
            let acts = &self.acts[holder];
            for (number, act) in acts.iter().enumerate() {
                let Deed::Settle(action, outcome) = act.deed else {
                    continue;
                };
                let before = &acts[..number];
                let wrong = match outcome {
                    Ok(SettleOutcome::NotHeld) => {
                        let hold = holds::after(self.history, attempt, before);
                        let vanished = act.span.to < hold.certain_until;
                        if vanished && failover_undid(self.history, hold.written, act.span) {
                            findings.count(Counted::ClaimLostByFailover);
                            continue;
                        }
                        if vanished && self.may_be_displaced(attempt, act.span) {
                            findings.count(Counted::ClaimLostByFallback);
                            continue;
                        }
                        vanished.then_some(Kind::ClaimVanished)
                    }
                    Ok(SettleOutcome::Malformed | SettleOutcome::Unspecified) => {
                        Some(Kind::ImpossibleOutcome)
                    }
                    Ok(SettleOutcome::AlreadyApplied) if action == Action::Renew => {
                        // What is not leased needs no renewal.
                        let leased = self.history.rules.lease.is_some();
                        leased.then_some(Kind::ImpossibleOutcome)
                    }
                    Ok(SettleOutcome::AlreadyApplied | SettleOutcome::AlreadyConfirmed) => {
                        (!confirms(before)).then_some(Kind::ImpossibleOutcome)
                    }
                    Ok(SettleOutcome::Applied | SettleOutcome::StoreUnavailable) => None,
                    Err(NoAnswer::Hung) => Some(Kind::TooSlow),
                    Err(NoAnswer::Gone) => {
                        (!service_ends(self.history, act.span)).then_some(Kind::TooSlow)
                    }
                    Err(NoAnswer::Refused | NoAnswer::Cancelled) => None,
                };
                if let Some(kind) = wrong {
                    findings.wrong(
                        kind,
                        self.event,
                        format!("{act:?} of {attempt:?}, in {}", self.told()),
                    );
                }
            }
        }
    }

    fn check_end(&self, findings: &mut Findings) {
        if self.endings.contains(&None) {
            findings.wrong(Kind::NeverDecided, self.event, self.told());
            return;
        }
        let works = self.attempts.iter().flat_map(|&index| &self.acts[index]);
        let works = works.filter(|act| act.deed == Deed::Work).count();
        if works > 1 {
            findings.count(Counted::WorkedMoreThanOnce);
        }
        if works > 0 {
            return;
        }
        let kind = if !self.endings.contains(&Some(Ending::Dropped)) {
            Some(Counted::GivenUp)
        } else if self.history.rules.lease.is_some() {
            None
        } else {
            self.loss()
        };
        match kind {
            Some(kind) => findings.count(kind),
            None => findings.wrong(Kind::Lost, self.event, self.told()),
        }
    }

    /// The event's first and last attempts, for people.
    fn told(&self) -> String {
        const SHOWN: usize = 8;
        let count = self.attempts.len();
        let shown = self.attempts().enumerate();
        let shown = shown.filter(|(place, _)| *place < SHOWN || place + SHOWN >= count);
        let told = shown.map(|(place, (index, attempt))| {
            let acts = &self.acts[index];
            format!("{place}: {attempt:?} {acts:?}")
        });
        told.collect::<Vec<_>>().join("; ")
    }
}

fn may_be_done(outcome: Result<SettleOutcome, NoAnswer>) -> bool {
    match outcome {
        Ok(
            SettleOutcome::Applied
            | SettleOutcome::AlreadyApplied
            | SettleOutcome::AlreadyConfirmed
            | SettleOutcome::StoreUnavailable,
        )
        | Err(NoAnswer::Cancelled | NoAnswer::Gone | NoAnswer::Hung) => true,
        Ok(SettleOutcome::NotHeld | SettleOutcome::Malformed | SettleOutcome::Unspecified)
        | Err(NoAnswer::Refused) => false,
    }
}

/// Whether one of the acts may have confirmed the claim.
fn confirms(acts: &[Act]) -> bool {
    acts.iter().any(|act| match act.deed {
        Deed::Settle(Action::Confirm, outcome) => may_be_done(outcome),
        Deed::Settle(Action::Release | Action::Renew, _) | Deed::Work | Deed::Die => false,
    })
}

impl Findings {
    fn wrong(&mut self, kind: Kind, event: usize, why: String) {
        self.wrong.push(Wrong { kind, event, why });
    }

    fn count(&mut self, kind: Counted) {
        *self.counted.entry(kind).or_default() += 1;
    }
}

impl fmt::Display for Wrong {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { kind, event, why } = self;
        write!(f, "{kind:?}: event {event}: {why}")
    }
}
