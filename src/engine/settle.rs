//! Confirm, Release, Renew: by token only.

use std::sync::Arc;

use super::{Engine, RequestFault, Waiting};
use crate::{
    domain::{
        claim::{SettleAction, SettleOutcome},
        token::Token,
    },
    store::{HoldMs, Reply, SettleItem, SettleRequest, StoreError},
};

/// What became of one token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Settlement {
    Settled(SettleOutcome),
    StoreUnavailable,
    /// Not a token, or of a namespace that is not configured.
    Malformed,
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
        let mut request = SettleRequest::new(action);
        let mut settlements = Vec::with_capacity(tokens.len());
        for token in tokens {
            let item = Token::decode(token).and_then(|token| {
                let namespace = self.by_tag(token.namespace)?;
                let policy = &namespace.policy;
                let hold = match action {
                    // A claim of an instance that still has a lease must not be cut short.
                    SettleAction::Renew if policy.lease().is_zero() => policy.ttl(),
                    SettleAction::Renew => policy.lease(),
                    SettleAction::Confirm | SettleAction::Release => policy.ttl(),
                };
                Some(SettleItem {
                    namespace: namespace.id,
                    partition: token.partition,
                    key: request.names.intern(token.key),
                    nonce: token.nonce,
                    hold: HoldMs::at_least(hold),
                })
            });
            settlements.push(if item.is_some() {
                Settlement::StoreUnavailable
            } else {
                Settlement::Malformed
            });
            request.items.extend(item);
        }
        let asks = !request.items.is_empty() && self.breaker.admits();
        let asked_at = asks.then(|| self.clock.monotonic());
        let reply = if asks {
            self.store
                .settle(request)
                .map_err(|full| RequestFault::Overloaded {
                    retry_after: full.retry_after,
                })?
        } else {
            Reply::ready(vec![Err(StoreError::Connection); request.items.len()])
        };
        let waiting = Waiting::new(self, asked_at, &reply);
        Ok(Settling {
            waiting,
            settlements,
            reply,
        })
    }
}

/// A request whose place in the order is taken.
#[derive(Debug)]
pub struct Settling {
    waiting: Waiting,
    /// Every token that is not malformed awaits its outcome.
    settlements: Vec<Settlement>,
    reply: Reply<Vec<Result<SettleOutcome, StoreError>>>,
}

impl Settling {
    /// One settlement for each token, in order.
    pub async fn finish(self) -> Vec<Settlement> {
        let Self {
            waiting,
            mut settlements,
            reply,
        } = self;
        let outcomes = reply.await;
        waiting.answered(|latencies| &latencies.settle, outcomes.iter().copied());
        let awaiting = settlements
            .iter_mut()
            .filter(|settlement| **settlement != Settlement::Malformed);
        for (settlement, outcome) in awaiting.zip(outcomes) {
            *settlement = outcome.map_or(Settlement::StoreUnavailable, Settlement::Settled);
        }
        settlements
    }
}
