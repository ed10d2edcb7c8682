//! Settling and giving back.

use std::sync::atomic::Ordering;

use super::{MemoryStore, Trace, key::Key, later};
use crate::{
    domain::{
        claim::{self, ClaimState, SettleAction, SettleEffect, SettleOutcome},
        key::KeyName,
    },
    store::{ClaimRequest, GiveBack, SettleItem},
};

impl<T: Trace> MemoryStore<T> {
    /// Says whether the claim stood there as it was made.
    pub fn give_one_back(&self, request: &ClaimRequest, claim: &GiveBack) -> bool {
        let now_ms = self.clock.monotonic_ms();
        let plan = &request.plans.plans()[claim.plan];
        let key = self.key(request, request.plans.primary(plan));
        self.with_shard(plan.partition(), |shard| {
            let state = plan.stored_state(request.state);
            let found = shard
                .get(&key, now_ms)
                .filter(|found| found.nonce == claim.nonce && found.state == state);
            if found.is_some_and(|found| found.saw_one_event()) {
                shard.remove(&key, now_ms);
                self.given_back.fetch_add(1, Ordering::Relaxed);
            } else if found.is_some() {
                self.give_backs_kept.fetch_add(1, Ordering::Relaxed);
            }
            found.is_some()
        })
    }

    /// Settles one claim, of which `name` is the key.
    pub fn settle_one(
        &self,
        action: SettleAction,
        item: &SettleItem,
        name: KeyName<'_>,
    ) -> SettleOutcome {
        self.settle_at(self.clock.monotonic_ms(), action, item, name)
    }

    pub(super) fn settle_at(
        &self,
        now_ms: u64,
        action: SettleAction,
        item: &SettleItem,
        name: KeyName<'_>,
    ) -> SettleOutcome {
        let key = Key::new(item.namespace, name, &self.hasher);
        self.with_shard(item.partition, |shard| {
            let seen = shard.find(&key, now_ms);
            let Some((seen, own)) = seen.and_then(|seen| Some((seen, shard.record(seen)?))) else {
                return SettleOutcome::Absent;
            };
            if !own.nonce.same_holder(item.nonce) {
                return SettleOutcome::NotHeld;
            }
            let (outcome, effect) = claim::settle(action, own.state);
            let expires_at_ms = later(now_ms, item.hold);
            match effect {
                SettleEffect::Confirm => {
                    shard.restate(seen, (ClaimState::Confirmed, own.nonce), expires_at_ms);
                }
                SettleEffect::Extend => {
                    shard.restate(seen, (own.state, own.nonce), expires_at_ms);
                }
                SettleEffect::Delete => shard.remove_seen(seen),
                SettleEffect::Nothing => {}
            }
            outcome
        })
    }
}
