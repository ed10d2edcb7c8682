//! Claiming: what each plan of a request comes to.

use std::sync::atomic::Ordering;

use smallvec::SmallVec;

use super::{
    Change, MemoryStore, STRIPES, Trace,
    key::Key,
    later, place,
    shard::{Seen, Shard},
    words::NewClaim,
};
use crate::{
    domain::{
        claim::{self, Record, Sighting, Standing, Vicinity},
        plan::Plan,
    },
    store::{ClaimOutcome, ClaimRequest, HoldMs, StoreError},
};

/// A claim that finds no memory passes over this many pieces of the log before it gives up.
const PIECES_WHEN_FULL: usize = 4;

#[derive(Clone, Copy, Debug)]
pub enum Round {
    First,
    Adopting,
    /// Claims nothing: an event that is near no claim stays undecided.
    Looking,
}

/// A plan of the request, its table in the stripe and its primary key.
struct Due<'a> {
    plan: usize,
    table: usize,
    primary: Key<'a>,
}

impl<T: Trace> MemoryStore<T> {
    /// Decides the given plans, each subject's in their order, and says what each came to.
    pub fn decide_all(
        &self,
        request: &ClaimRequest,
        plans: &[usize],
        round: Round,
        mut decided: impl FnMut(usize, Result<ClaimOutcome, StoreError>),
    ) {
        let now_ms = self.clock.monotonic_ms();
        let all = request.plans.plans();
        let in_stripes = by_stripe(
            plans
                .iter()
                .map(|&plan| (plan, place(all[plan].partition()).0)),
        );
        for group in in_stripes.chunk_by(|a, b| a.1 == b.1) {
            let due: SmallVec<[Due<'_>; 16]> = group
                .iter()
                .map(|&(plan, _)| Due {
                    plan,
                    table: place(all[plan].partition()).1,
                    primary: self.key(request, request.plans.primary(&all[plan])),
                })
                .collect();
            let mut stripe = self.stripes[group[0].1].lock();
            self.touch(request, &due, &stripe);
            let mut change = Change::default();
            for due in &due {
                self.tracked(&mut stripe[due.table], &mut change, |shard| {
                    let decided = |outcome| decided(due.plan, outcome);
                    self.decide(request, due, round, shard, now_ms, decided);
                });
            }
            self.usage.add(&change);
        }
    }

    /// Brings what the plans will read into the cache, one step of all of them after the other, so
    /// that the misses overlap.
    fn touch(&self, request: &ClaimRequest, due: &[Due<'_>], stripe: &[Shard]) {
        for due in due {
            stripe[due.table].touch_index(&due.primary);
        }
        for due in due {
            stripe[due.table].touch_end();
            let plan = &request.plans.plans()[due.plan];
            for (name, _) in request.plans.neighbours(plan) {
                stripe[due.table].touch_index(&self.key(request, name));
            }
        }
        for due in due {
            stripe[due.table].touch_claim(&due.primary);
        }
    }

    /// Hands what the plan came to to `decided` where it is known, rather than up a stack: an outcome
    /// is large, and copying it waits for the writes before it.
    fn decide(
        &self,
        request: &ClaimRequest,
        due: &Due<'_>,
        round: Round,
        shard: &mut Shard,
        now_ms: u64,
        decided: impl FnOnce(Result<ClaimOutcome, StoreError>),
    ) {
        let plan = &request.plans.plans()[due.plan];
        let nonce = request.nonces[due.plan];
        let seen = shard.find(&due.primary, now_ms);
        let standing = seen.and_then(|seen| shard.record(seen));
        if let Some((seen, own)) = seen.zip(standing)
            && request.recognises_own
            && own.nonce.same_holder(nonce)
        {
            match round {
                Round::First | Round::Looking => return decided(Ok(ClaimOutcome::Own)),
                Round::Adopting => {
                    if let Some(taken) = own.adopted_as(plan.stored_state(request.state), nonce) {
                        let expires_at_ms = later(now_ms, request.hold);
                        shard.restate(seen, (taken.state, taken.nonce), expires_at_ms);
                        return decided(Ok(ClaimOutcome::Claimed {
                            nonce: taken.nonce,
                            adopted: true,
                        }));
                    }
                }
            }
        }
        let put = |shard: &mut Shard, holding, sighting: &Sighting, hold: HoldMs| {
            let (trace, expires_at_ms) = (T::of(plan.partition()), later(now_ms, hold));
            let claim = NewClaim::new(&due.primary, trace, holding, sighting, expires_at_ms);
            self.put(shard, &due.primary, seen, &claim, now_ms)
        };
        if let Some(rival) = self.rival(request, plan, shard, standing, now_ms) {
            let standing = standing.map(Standing::Record);
            let seen = claim::seen(plan.sighting(), &rival, standing.as_ref());
            let put = seen.map_or(Ok(()), |seen| {
                let holding = (seen.state, seen.nonce);
                put(shard, holding, &seen.sighting, request.seen_hold)
            });
            return decided(put.map(|()| ClaimOutcome::Lost(rival)));
        }
        match round {
            Round::Looking => return,
            Round::First | Round::Adopting => {}
        }
        let holding = (plan.stored_state(request.state), nonce);
        match put(shard, holding, plan.sighting(), request.hold) {
            Ok(()) => decided(Ok(ClaimOutcome::Claimed {
                nonce,
                adopted: false,
            })),
            Err(error) => decided(Err(error)),
        }
    }

    /// Stores a claim over the one that was seen under its key.
    pub(super) fn put(
        &self,
        shard: &mut Shard,
        key: &Key<'_>,
        seen: Option<Seen>,
        claim: &NewClaim<'_>,
        now_ms: u64,
    ) -> Result<(), StoreError> {
        if seen.is_some_and(|seen| shard.overwrite(seen, claim)) {
            return Ok(());
        }
        let bytes = shard.bytes();
        let fits = |shard: &Shard| {
            let growth = shard.growth_bytes(key, claim, now_ms);
            let change = growth as i64 - (bytes - shard.bytes()) as i64;
            growth == 0 || self.usage.bytes.load(Ordering::Relaxed) + change <= self.usage.max_bytes
        };
        if fits(shard) {
            shard.insert(key, seen, claim, now_ms, &self.hasher);
            return Ok(());
        }
        shard.sweep(PIECES_WHEN_FULL, now_ms, &self.hasher);
        if !fits(shard) {
            return Err(StoreError::Full);
        }
        let seen = shard.find(key, now_ms);
        shard.insert(key, seen, claim, now_ms, &self.hasher);
        Ok(())
    }

    fn rival(
        &self,
        request: &ClaimRequest,
        plan: &Plan,
        shard: &Shard,
        primary: Option<Record>,
        now_ms: u64,
    ) -> Option<claim::Rival> {
        if !plan.has_neighbours() {
            return Some(claim::only_rival(Standing::Record(primary?)));
        }
        let mut found: SmallVec<[(Vicinity, Standing); 3]> = SmallVec::new();
        if let Some(record) = primary {
            found.push((Vicinity::PRIMARY, Standing::Record(record)));
        }
        for (name, vicinity) in request.plans.neighbours(plan) {
            if let Some(record) = shard.get(&self.key(request, name), now_ms) {
                found.push((vicinity, Standing::Record(record)));
            }
        }
        if found.is_empty() {
            return None;
        }
        claim::rival(plan.sighting(), request.guards, found)
    }
}

/// Sorted by stripe, otherwise in the given order: a counting sort.
fn by_stripe(plans: impl Iterator<Item = (usize, usize)> + Clone) -> Vec<(usize, usize)> {
    let mut ends = [0; STRIPES];
    for (_, stripe) in plans.clone() {
        ends[stripe] += 1;
    }
    let mut next = 0;
    for end in &mut ends {
        (*end, next) = (next, next + *end);
    }
    let mut sorted = vec![(0, 0); next];
    for (plan, stripe) in plans {
        sorted[ends[stripe]] = (plan, stripe);
        ends[stripe] += 1;
    }
    sorted
}
