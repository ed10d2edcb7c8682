//! Confirm, Release, Renew: by token only.

use std::sync::Arc;

use super::{Engine, RequestFault, Waiting, local::LocallySettled};
use crate::{
    domain::{
        claim::{SettleAction, SettleOutcome},
        token::{Origin, Token},
    },
    store::{HoldMs, QueueFull, Reply, SettleItem, SettleRequest, StoreError},
};

/// What became of one token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settlement {
    Settled(SettleOutcome),
    StoreUnavailable,
    /// Not a token, or of a namespace that is not configured.
    Malformed,
}

/// What is known about a token before the shared store has answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Begun {
    Known(Settlement),
    Asked(Reading),
}

/// How the shared store's outcome is read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Reading {
    Plain,
    /// The claim was made in another instance's embedded store: if it is not there, it may not have
    /// been written yet.
    FromElsewhere,
    /// It was released in the embedded store. The shared one had to follow.
    Followed(SettleOutcome),
}

impl Begun {
    /// Something was done already.
    const fn is_settled(&self) -> bool {
        match self {
            Begun::Known(Settlement::Settled(_)) | Begun::Asked(Reading::Followed(_)) => true,
            Begun::Known(Settlement::StoreUnavailable | Settlement::Malformed)
            | Begun::Asked(Reading::Plain | Reading::FromElsewhere) => false,
        }
    }
}

impl Reading {
    fn read(self, outcome: Result<SettleOutcome, StoreError>) -> Settlement {
        match (self, outcome) {
            (_, Err(_)) | (Reading::FromElsewhere, Ok(SettleOutcome::Absent)) => {
                Settlement::StoreUnavailable
            }
            (Reading::Followed(outcome), Ok(_)) => Settlement::Settled(outcome),
            (Reading::Plain, Ok(SettleOutcome::Absent)) => {
                Settlement::Settled(SettleOutcome::NotHeld)
            }
            (Reading::Plain | Reading::FromElsewhere, Ok(outcome)) => Settlement::Settled(outcome),
        }
    }
}

impl Engine {
    /// Takes the request's place in the order of its subjects. An error means that nothing was
    /// settled.
    pub fn settle<'t>(
        self: &Arc<Self>,
        action: SettleAction,
        tokens: impl ExactSizeIterator<Item = &'t [u8]>,
    ) -> Result<Settling, RequestFault> {
        self.check_count("claims", tokens.len())?;
        let admits = self.breaker.admits();
        let mut request = SettleRequest::new(action);
        let mut begun = Vec::with_capacity(tokens.len());
        for token in tokens {
            begun.push(match Token::decode(token) {
                None => Begun::Known(Settlement::Malformed),
                Some(token) => self.begin_settling(&token, admits, &mut request),
            });
        }
        let asked = request.items.len();
        let asks = asked > 0 && admits;
        let asked_at = asks.then(|| self.clock.monotonic());
        let reply = if asks {
            match self.store.settle(request) {
                Ok(reply) => reply,
                // What was settled here cannot be taken back.
                Err(_) if begun.iter().any(Begun::is_settled) => {
                    Reply::ready(vec![Err(StoreError::Overloaded); asked])
                }
                Err(QueueFull { retry_after }) => {
                    return Err(RequestFault::Overloaded { retry_after });
                }
            }
        } else {
            Reply::ready(vec![Err(StoreError::Connection); asked])
        };
        let waiting = Waiting::new(self, asked_at, &reply);
        Ok(Settling {
            waiting,
            begun,
            reply,
        })
    }

    /// Settles in the embedded store what was claimed there; the rest is added to the request.
    fn begin_settling(
        &self,
        token: &Token<'_>,
        admits: bool,
        request: &mut SettleRequest,
    ) -> Begun {
        let Some(namespace) = self.by_tag(token.namespace) else {
            return Begun::Known(Settlement::Malformed);
        };
        let action = request.action;
        let policy = &namespace.policy;
        let hold = match action {
            // A claim of an instance that still has a lease must not be cut short.
            SettleAction::Renew if policy.lease().is_zero() => policy.ttl(),
            SettleAction::Renew => policy.lease(),
            SettleAction::Confirm | SettleAction::Release => policy.ttl(),
        };
        let item = SettleItem {
            namespace: namespace.id,
            partition: token.partition,
            key: request.names.intern(token.key),
            nonce: token.nonce,
            hold: HoldMs::at_least(hold),
        };
        let reading = match (token.origin, &self.local) {
            (Origin::Shared, _) => Reading::Plain,
            (Origin::Local(_), None) => Reading::FromElsewhere,
            (Origin::Local(_), Some(local)) => match local.settle(action, &item, token.key) {
                LocallySettled::Done(outcome) => {
                    return Begun::Known(Settlement::Settled(outcome));
                }
                // Where it is away, what it may have of the claim is withdrawn once it is back.
                LocallySettled::ToFollow(outcome) if !admits => {
                    return Begun::Known(Settlement::Settled(outcome));
                }
                LocallySettled::ToFollow(outcome) => Reading::Followed(outcome),
                LocallySettled::NotHere if token.origin == local.origin() => Reading::Plain,
                LocallySettled::NotHere => Reading::FromElsewhere,
            },
        };
        request.items.push(item);
        Begun::Asked(reading)
    }
}

/// A request whose place in the order is taken.
#[derive(Debug)]
pub struct Settling {
    waiting: Waiting,
    begun: Vec<Begun>,
    /// For those that the shared store was asked about.
    reply: Reply<Vec<Result<SettleOutcome, StoreError>>>,
}

impl Settling {
    /// One settlement for each token, in order.
    pub async fn finish(self) -> Vec<Settlement> {
        let Self {
            waiting,
            begun,
            reply,
        } = self;
        let outcomes = reply.await;
        waiting.answered(|latencies| &latencies.settle, outcomes.iter().copied());
        let mut outcomes = outcomes.into_iter();
        let settlement = |begun| match begun {
            Begun::Known(settlement) => settlement,
            Begun::Asked(reading) => outcomes
                .next()
                .map_or(Settlement::StoreUnavailable, |outcome| {
                    reading.read(outcome)
                }),
        };
        begun.into_iter().map(settlement).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// What a token comes to, by where its claim was made and what the shared store says.
    #[test]
    fn the_table_of_what_the_shared_store_says() {
        use Reading::{Followed, FromElsewhere, Plain};
        use SettleOutcome::{Absent, AlreadyApplied, AlreadyConfirmed, Applied, NotHeld};
        let own = [Applied, AlreadyApplied, AlreadyConfirmed];
        for outcome in own {
            for reading in [Plain, FromElsewhere] {
                assert_eq!(reading.read(Ok(outcome)), Settlement::Settled(outcome));
            }
        }
        let rows = [
            (Plain, Absent, Settlement::Settled(NotHeld)),
            (Plain, NotHeld, Settlement::Settled(NotHeld)),
            (FromElsewhere, Absent, Settlement::StoreUnavailable),
            (FromElsewhere, NotHeld, Settlement::Settled(NotHeld)),
        ];
        for (reading, outcome, expected) in rows {
            assert_eq!(
                reading.read(Ok(outcome)),
                expected,
                "{reading:?} {outcome:?}"
            );
        }
        for outcome in [Applied, AlreadyApplied, AlreadyConfirmed, NotHeld, Absent] {
            let followed = Followed(Applied).read(Ok(outcome));
            assert_eq!(followed, Settlement::Settled(Applied));
        }
        for reading in [Plain, FromElsewhere, Followed(Applied)] {
            let failed = reading.read(Err(StoreError::Timeout));
            assert_eq!(failed, Settlement::StoreUnavailable);
        }
    }
}
