//! The embedded store: claims in this process, for one instance.
//!
//! Many small tables, chosen by the subject's partition, so that growth moves one small table.
//! Tables share a few dozen locks: a large request takes each lock once and finds its claims in a
//! loop whose cache misses overlap, which a lock for each claim would prevent. A live claim is never
//! evicted: where the bound on memory is reached the store is full, which is an outage and not a
//! first sighting. Claims are forgotten by a hand that passes over a few slots at every call and a
//! few tables at every tick, so that expiry costs a bounded amount and never a full sweep.

mod pieces;
mod settle;
mod shard;
mod slot;
mod slots;
mod trace;
pub mod walk;
mod write_back;

use std::{
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use smallvec::SmallVec;

use self::shard::{Key, Shard};
pub use self::trace::{Trace, WholeKey};
use super::{
    ClaimOutcome, ClaimRequest, Claims, ContractAssertion, Found, GiveBack, HoldMs, QueueFull,
    Reply, SettleRequest, Store, StoreError, StoreStats,
    examination::{Check, Examination, ExamineRequest, Severity},
    heal::{HealRequest, Healed},
    write_back::{WriteBack, WrittenBack},
};
use crate::{
    clock::Clock,
    domain::{
        claim::{self, Record, SettleOutcome, Standing, Vicinity},
        key::{KeyName, Partition},
        plan::Plan,
    },
};

/// Locks. A request of 500 events holds each for eight claims, a microsecond or so.
const STRIPES: usize = 64;
const SHARDS_PER_STRIPE: usize = 64;
/// At ten million claims a table holds 2,400: moving it takes tens of microseconds.
const SHARDS: usize = STRIPES * SHARDS_PER_STRIPE;
/// A claim that finds no memory passes over this many pieces of slots before it gives up.
const PIECES_WHEN_FULL: usize = 4;
/// Tables that one tick passes over, so that an idle store is clean after half a minute.
const SHARDS_PER_TICK: usize = SHARDS / 32;

/// Claims in this process.
#[derive(Debug)]
pub struct MemoryStore<T = ()> {
    stripes: Box<[Mutex<Stripe<T>>]>,
    clock: Clock,
    hasher: hashbrown::DefaultHashBuilder,
    usage: Usage,
    next_tick_shard: AtomicUsize,
    given_back: AtomicU64,
    give_backs_kept: AtomicU64,
}

/// Tables behind one lock.
type Stripe<T> = Box<[Shard<T>]>;

/// Which stripe, and which of its tables.
const fn place(partition: Partition) -> (usize, usize) {
    let shard = partition.0 as usize % SHARDS;
    (shard % STRIPES, shard / STRIPES)
}

/// What the tables hold, together. Signed: shards report differences in any order.
#[derive(Debug)]
struct Usage {
    bytes: AtomicI64,
    claims: AtomicI64,
    expired: AtomicU64,
    max_bytes: i64,
}

/// What became of some tables while their lock was held.
#[derive(Debug, Default)]
struct Change {
    claims: i64,
    expired: u64,
}

impl Usage {
    fn add(&self, change: &Change) {
        if change.claims != 0 {
            self.claims.fetch_add(change.claims, Ordering::Relaxed);
        }
        if change.expired != 0 {
            self.expired.fetch_add(change.expired, Ordering::Relaxed);
        }
    }
}

impl MemoryStore {
    pub fn new(clock: Clock, max_bytes: u64) -> Self {
        Self::make(clock, max_bytes)
    }
}

impl<T: Trace> MemoryStore<T> {
    fn make(clock: Clock, max_bytes: u64) -> Self {
        Self {
            stripes: std::iter::repeat_with(|| {
                Mutex::new(
                    std::iter::repeat_with(Shard::default)
                        .take(SHARDS_PER_STRIPE)
                        .collect(),
                )
            })
            .take(STRIPES)
            .collect(),
            clock,
            hasher: hashbrown::DefaultHashBuilder::default(),
            usage: Usage {
                bytes: AtomicI64::new(0),
                claims: AtomicI64::new(0),
                expired: AtomicU64::new(0),
                max_bytes: i64::try_from(max_bytes).unwrap_or(i64::MAX),
            },
            next_tick_shard: AtomicUsize::new(0),
            given_back: AtomicU64::new(0),
            give_backs_kept: AtomicU64::new(0),
        }
    }

    /// Forgets what expired in some of the tables and gives their memory back. Called once a second.
    pub fn tick(&self) {
        let now_ms = self.clock.monotonic_ms();
        for _ in 0..SHARDS_PER_TICK {
            let next = self.next_tick_shard.fetch_add(1, Ordering::Relaxed);
            self.with_shard(Partition(next as u64), |shard| {
                shard.sweep_all(now_ms, &self.hasher)
            });
        }
    }

    /// Holds no claim, not even one that has expired: one load.
    pub fn is_empty(&self) -> bool {
        self.usage.claims.load(Ordering::Relaxed) <= 0
    }

    /// Claims that were forgotten because their time ran out.
    pub fn expired(&self) -> u64 {
        self.usage.expired.load(Ordering::Relaxed)
    }

    fn with_shard<R>(&self, partition: Partition, work: impl FnOnce(&mut Shard<T>) -> R) -> R {
        let (stripe, table) = place(partition);
        let mut stripe = self.stripes[stripe].lock();
        let mut change = Change::default();
        let result = self.tracked(&mut stripe[table], &mut change, work);
        self.usage.add(&change);
        result
    }

    /// Runs `work` and adds what it changed: bytes to the store's usage at once, since they are
    /// bounded, and the rest to `change`, since an atomic for each claim would wait for the writes
    /// before it.
    fn tracked<R>(
        &self,
        shard: &mut Shard<T>,
        change: &mut Change,
        work: impl FnOnce(&mut Shard<T>) -> R,
    ) -> R {
        let (bytes, claims, expired) = (shard.bytes(), shard.len(), shard.expired());
        let result = work(shard);
        let delta = |before: usize, after: usize| after as i64 - before as i64;
        if shard.bytes() != bytes {
            let delta = delta(bytes, shard.bytes());
            self.usage.bytes.fetch_add(delta, Ordering::Relaxed);
        }
        change.claims += delta(claims, shard.len());
        change.expired += shard.expired() - expired;
        result
    }

    fn key<'a>(&self, request: &ClaimRequest, name: KeyName<'a>) -> Key<'a> {
        Key::new(request.namespace, name, &self.hasher)
    }

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
            let keys: SmallVec<[(usize, usize, Key<'_>); 16]> = group
                .iter()
                .map(|&(index, _)| {
                    let plan = &all[index];
                    let table = place(plan.partition()).1;
                    (index, table, self.key(request, request.plans.primary(plan)))
                })
                .collect();
            let mut stripe = self.stripes[group[0].1].lock();
            for (index, table, key) in &keys {
                stripe[*table].touch(key);
                for (name, _) in request.plans.neighbours(&all[*index]) {
                    stripe[*table].touch(&self.key(request, name));
                }
            }
            let mut change = Change::default();
            for (index, table, key) in &keys {
                self.tracked(&mut stripe[*table], &mut change, |shard| {
                    let decided = |outcome| decided(*index, outcome);
                    self.decide(request, *index, key, round, shard, now_ms, decided);
                });
            }
            self.usage.add(&change);
        }
    }

    /// Hands what the plan came to to `decided` where it is known, rather than up a stack: an outcome
    /// is large, and copying it waits for the writes before it.
    #[expect(clippy::too_many_arguments)]
    fn decide(
        &self,
        request: &ClaimRequest,
        index: usize,
        primary: &Key<'_>,
        round: Round,
        shard: &mut Shard<T>,
        now_ms: u64,
        decided: impl FnOnce(Result<ClaimOutcome, StoreError>),
    ) {
        let plan = &request.plans.plans()[index];
        let nonce = request.nonces[index];
        let trace = || T::of(request.plans.primary(plan), plan.partition());
        shard.sweep_now_and_then(now_ms, &self.hasher);
        let standing = shard.get(primary, now_ms);
        let own = standing.filter(|own| request.recognises_own && own.nonce.same_holder(nonce));
        if let Some(own) = own {
            match round {
                Round::First | Round::Looking => return decided(Ok(ClaimOutcome::Own)),
                Round::Adopting => {
                    if let Some(taken) = own.adopted_as(plan.stored_state(request.state), nonce) {
                        shard.replace(primary, &taken, later(now_ms, request.hold));
                        let nonce = taken.nonce;
                        return decided(Ok(ClaimOutcome::Claimed {
                            nonce,
                            adopted: true,
                        }));
                    }
                }
            }
        }
        if let Some(rival) = self.rival(request, plan, shard, standing, now_ms) {
            let standing = standing.map(Standing::Record);
            let seen = claim::seen(plan.sighting(), &rival, standing.as_ref());
            let put = seen.map_or(Ok(()), |seen| {
                self.put(shard, primary, trace(), &seen, request.seen_hold, now_ms)
            });
            return decided(put.map(|()| ClaimOutcome::Lost(rival)));
        }
        match round {
            Round::Looking => return,
            Round::First | Round::Adopting => {}
        }
        let record = plan.record(request.state, nonce);
        match self.put(shard, primary, trace(), &record, request.hold, now_ms) {
            Ok(()) => decided(Ok(ClaimOutcome::Claimed {
                nonce,
                adopted: false,
            })),
            Err(error) => decided(Err(error)),
        }
    }

    fn put(
        &self,
        shard: &mut Shard<T>,
        key: &Key<'_>,
        trace: T,
        record: &Record,
        hold: HoldMs,
        now_ms: u64,
    ) -> Result<(), StoreError> {
        if !self.has_room(shard, key, record, now_ms) {
            return Err(StoreError::Full);
        }
        let expires_at_ms = later(now_ms, hold);
        shard.insert(key, trace, record, expires_at_ms, now_ms, &self.hasher);
        Ok(())
    }

    fn rival(
        &self,
        request: &ClaimRequest,
        plan: &Plan,
        shard: &Shard<T>,
        primary: Option<Record>,
        now_ms: u64,
    ) -> Option<claim::Rival> {
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

    /// Is there memory for the key, if need be after some of what expired has gone?
    fn has_room(&self, shard: &mut Shard<T>, key: &Key<'_>, record: &Record, now_ms: u64) -> bool {
        let bytes = shard.bytes();
        let fits = |shard: &Shard<T>| {
            let growth = shard.growth_bytes(key, record);
            let change = growth as i64 - (bytes - shard.bytes()) as i64;
            growth == 0 || self.usage.bytes.load(Ordering::Relaxed) + change <= self.usage.max_bytes
        };
        fits(shard) || {
            shard.sweep(PIECES_WHEN_FULL, now_ms, &self.hasher);
            fits(shard)
        }
    }

    fn claims(
        self: Arc<Self>,
        request: Arc<ClaimRequest>,
        plans: &[usize],
        round: Round,
    ) -> Claims {
        let mut outcomes = vec![Ok(ClaimOutcome::Own); request.plans.plans().len()];
        self.decide_all(&request, plans, round, |plan, outcome| {
            outcomes[plan] = outcome;
        });
        Claims::new(self, request, outcomes)
    }
}

#[derive(Clone, Copy, Debug)]
pub enum Round {
    First,
    Adopting,
    /// Claims nothing: an event that is near no claim stays undecided.
    Looking,
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

fn later(now_ms: u64, hold: HoldMs) -> u64 {
    now_ms.saturating_add(hold.get())
}

impl<T: Trace> Store for MemoryStore<T> {
    fn claim(
        self: Arc<Self>,
        request: Arc<ClaimRequest>,
        plans: Vec<usize>,
    ) -> Result<Reply<Claims>, QueueFull> {
        Ok(Reply::ready(self.claims(request, &plans, Round::First)))
    }

    fn adopt(self: Arc<Self>, request: Arc<ClaimRequest>, plans: Vec<usize>) -> Reply<Claims> {
        Reply::ready(self.claims(request, &plans, Round::Adopting))
    }

    fn give_back(&self, request: &Arc<ClaimRequest>, claims: Vec<GiveBack>) {
        for claim in claims {
            self.give_one_back(request, &claim);
        }
    }

    fn settle(
        &self,
        request: SettleRequest,
    ) -> Result<Reply<Vec<Result<SettleOutcome, StoreError>>>, QueueFull> {
        let now_ms = self.clock.monotonic_ms();
        let settle = |item| {
            let name = request.key(item);
            Ok(self.settle_at(now_ms, request.action, item, name))
        };
        Ok(Reply::ready(request.items.iter().map(settle).collect()))
    }

    fn write_back(&self, batch: &Arc<WriteBack>) -> Reply<Vec<Result<WrittenBack, StoreError>>> {
        let write = |item| self.write_one_back(batch, item);
        Reply::ready(batch.items.iter().map(write).collect())
    }

    fn withdraw(&self, batch: &Arc<WriteBack>, items: Vec<usize>) {
        for item in items {
            self.withdraw_one(batch, &batch.items[item]);
        }
    }

    fn inspect(&self, request: Arc<ClaimRequest>) -> Reply<Result<Vec<Option<Found>>, StoreError>> {
        let now_ms = self.clock.monotonic_ms();
        let Some(plan) = request.plans.plans().first() else {
            return Reply::ready(Ok(Vec::new()));
        };
        let found = self.with_shard(plan.partition(), |shard| {
            request
                .plans
                .keys(plan)
                .map(|(name, _)| {
                    let (record, expires_at_ms) =
                        shard.get_with_expiry(&self.key(&request, name), now_ms)?;
                    let expires_in = Duration::from_millis(expires_at_ms.saturating_sub(now_ms));
                    Some(Found {
                        standing: Standing::Record(record),
                        expires_in: Some(expires_in),
                    })
                })
                .collect()
        });
        Reply::ready(Ok(found))
    }

    fn forget(
        &self,
        request: Arc<ClaimRequest>,
        found: Vec<(usize, Standing)>,
    ) -> Reply<Result<Vec<usize>, StoreError>> {
        let now_ms = self.clock.monotonic_ms();
        let Some(plan) = request.plans.plans().first() else {
            return Reply::ready(Ok(Vec::new()));
        };
        let forgotten = self.with_shard(plan.partition(), |shard| {
            let keys: Vec<Key<'_>> = request
                .plans
                .keys(plan)
                .map(|(name, _)| self.key(&request, name))
                .collect();
            let still_there = |(place, standing): &(usize, Standing)| {
                let key = keys.get(*place)?;
                let record = shard
                    .get(key, now_ms)
                    .filter(|record| Standing::Record(*record) == *standing)?;
                record.state.is_settled().then(|| {
                    shard.remove(key, &self.hasher);
                    *place
                })
            };
            found.iter().filter_map(still_there).collect()
        });
        Reply::ready(Ok(forgotten))
    }

    fn probe(&self) -> Reply<Result<(), StoreError>> {
        Reply::ready(Ok(()))
    }

    /// Nobody else sees this store, so that the line that stands is always one's own.
    fn assert_contract(&self, assertion: ContractAssertion) -> Reply<Result<String, StoreError>> {
        Reply::ready(Ok(assertion.line))
    }

    /// Every claim here expires.
    fn heal(&self, request: HealRequest) -> Reply<Vec<Result<Healed, StoreError>>> {
        Reply::ready(vec![Ok(Healed::Sound); request.items.len()])
    }

    fn examine(&self, _: ExamineRequest) -> Reply<Examination> {
        let mut examination = Examination::default();
        examination.add(
            Check::PerInstance,
            Severity::Note,
            "claims are kept in this process: copies that reach another instance, or this one \
             after a restart, are not found; where that matters use redis://",
        );
        Reply::ready(examination)
    }

    fn reconnected(&self) -> Reply<()> {
        Reply::waiting(std::future::pending())
    }

    fn stats(&self) -> StoreStats {
        let gauge =
            |value: &AtomicI64| Some(u64::try_from(value.load(Ordering::Relaxed)).unwrap_or(0));
        StoreStats {
            claims: gauge(&self.usage.claims),
            bytes: gauge(&self.usage.bytes),
            given_back: self.given_back.load(Ordering::Relaxed),
            give_backs_kept: self.give_backs_kept.load(Ordering::Relaxed),
            ..StoreStats::default()
        }
    }
}
