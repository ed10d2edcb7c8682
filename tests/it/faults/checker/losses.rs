//! Which of the documented losses an event met, where claims suppress at once.

use super::{
    super::history::{Action, Answer, Deed, NoAnswer},
    Counted, Story,
    holds::{failover_undoes, service_ends},
};

impl Story<'_> {
    /// Why nobody worked on an event of which a copy was dropped: the first kind that explains it;
    /// `None` if none does.
    pub(super) fn loss(&self) -> Option<Counted> {
        let dropped = self
            .attempts()
            .filter(|(_, attempt)| attempt.answer == Ok(Answer::Suppressed));
        let kinds = dropped
            .flat_map(|(_, copy)| self.possible_holders(copy))
            .filter_map(|holder| self.loss_with(holder));
        kinds.min()
    }

    /// What became of a claim that a copy may have been dropped for.
    fn loss_with(&self, index: usize) -> Option<Counted> {
        let attempt = &self.history.attempts[index];
        match attempt.answer {
            Ok(Answer::Admitted | Answer::FellBack) => {
                let mut acts = self.acts[index].iter();
                acts.find_map(|act| match act.deed {
                    Deed::Die => Some(Counted::LostWithItsHolder),
                    Deed::Settle(Action::Release, _) if failover_undoes(self.history, act.span) => {
                        Some(Counted::LostByFailover)
                    }
                    Deed::Settle(Action::Release, _) => Some(Counted::LostAfterRelease),
                    Deed::Settle(Action::Confirm | Action::Renew, _) | Deed::Work => None,
                })
            }
            Ok(Answer::Undecided | Answer::FailedOpen) => Some(Counted::LostToAClaimGivenBack),
            Err(_) if service_ends(self.history, attempt.span) => Some(Counted::LostWithTheService),
            Err(NoAnswer::Cancelled | NoAnswer::Gone | NoAnswer::Hung) => {
                // What the call came to in the end, if it was tried again until it was decided.
                let mut call = self.attempts().filter(|(_, other)| {
                    (other.call, other.delivery) == (attempt.call, attempt.delivery)
                });
                let decided = call.find_map(|(index, other)| match other.answer {
                    Ok(Answer::Undecided) | Err(_) => None,
                    Ok(answer) => Some((index, answer)),
                });
                match decided {
                    None => Some(Counted::LostWithTheAnswer),
                    // Its own claim was given back by then, and another's stood there.
                    Some((_, Answer::Suppressed)) => Some(Counted::LostToAClaimGivenBack),
                    Some((index, _)) => self.loss_with(index),
                }
            }
            Ok(Answer::Suppressed | Answer::InFlight) | Err(NoAnswer::Refused) => None,
        }
    }
}
