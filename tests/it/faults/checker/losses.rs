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
            Ok(Answer::Admitted) => {
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
                // A later attempt of the call that was answered explains itself.
                let mut call = self.attempts().filter(|(_, it)| it.call == attempt.call);
                call.all(|(_, it)| it.answer.is_err())
                    .then_some(Counted::LostWithTheAnswer)
            }
            Ok(Answer::Suppressed | Answer::InFlight) | Err(NoAnswer::Refused) => None,
        }
    }
}
