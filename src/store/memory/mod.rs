//! The embedded store: claims in this process, for one instance.
//!
//! Many small tables, chosen by the subject's partition, so that growth moves one small table.
//! Tables share a few dozen locks: a large request takes each lock once and finds its claims in a
//! loop whose cache misses overlap, which a lock for each claim would prevent. A live claim is never
//! evicted: where the bound on memory is reached the store is full, which is an outage and not a
//! first sighting. A table is a log: what expires in the order in which it was claimed leaves it
//! without being looked at, and the rest is found by a hand that passes over a few pieces of the log
//! whenever one is full, and over a few tables at every tick. Expiry never is a full sweep.

mod decide;
mod index;
mod key;
mod log;
#[cfg(test)]
mod model_tests;
mod settle;
mod shard;
mod trace;
pub mod walk;
mod words;
mod write_back;

use std::{
    marker::PhantomData,
    sync::{
        Arc,
        atomic::{AtomicI64, AtomicU64, AtomicUsize, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;

pub use self::{
    decide::Round,
    trace::{Trace, WholeKey},
};
use self::{key::Key, shard::Shard};
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
        claim::{SettleOutcome, Standing},
        key::{KeyName, Partition},
    },
};

/// Locks. A request of 500 events holds each for eight claims, a microsecond or so.
const STRIPES: usize = 32;
const SHARDS_PER_STRIPE: usize = 32;
/// At ten million claims a table holds 2,400: moving it takes tens of microseconds.
const SHARDS: usize = STRIPES * SHARDS_PER_STRIPE;
/// Tables that one tick passes over, so that an idle store is clean after half a minute.
const SHARDS_PER_TICK: usize = SHARDS / 32;

/// Claims in this process.
#[derive(Debug)]
pub struct MemoryStore<T = ()> {
    stripes: Box<[Mutex<Stripe>]>,
    clock: Clock,
    hasher: hashbrown::DefaultHashBuilder,
    usage: Usage,
    next_tick_shard: AtomicUsize,
    given_back: AtomicU64,
    give_backs_kept: AtomicU64,
    trace: PhantomData<T>,
}

/// Tables behind one lock.
type Stripe = Box<[Shard]>;

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
            trace: PhantomData,
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

    fn with_shard<R>(&self, partition: Partition, work: impl FnOnce(&mut Shard) -> R) -> R {
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
        shard: &mut Shard,
        change: &mut Change,
        work: impl FnOnce(&mut Shard) -> R,
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
                    shard.remove(key, now_ms);
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
