//! What stands under our keys that should not: values that are no claims, and keys that never
//! expire.
//!
//! In a Redis with other tenants, or with consumers that are older than dedupd, an event can lose to
//! a value that nobody takes away again: it would be suppressed for ever. Such keys are given the
//! namespace's TTL. Which keys are looked at is decided after the answer, and there are only so many
//! in a second: what events lose to, foreign values first, then a sample of the others.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU64, Ordering},
    },
    time::Duration,
};

use parking_lot::Mutex;
use tokio::time;

use super::{Engine, Namespace};
use crate::{
    domain::{
        claim::{Rival, Standing},
        plan::Plan,
    },
    store::{
        ClaimOutcome, Claims, HoldMs, NamespaceId, StoreError,
        heal::{HealItem, HealRequest, Healed},
    },
};

/// Between two looks.
const PERIOD: Duration = Duration::from_millis(500);
/// Keys in one look, of events that lost to a foreign value: 200 a second in all.
const MAX_FOREIGN: usize = 75;
/// And of the others.
const MAX_OTHERS: usize = 25;
/// Keys of one request.
const MAX_PER_REQUEST: usize = 4;
/// Events of one request that are looked through for keys.
const MAX_CANDIDATES: usize = 32;

/// One namespace's, since the process started.
#[derive(Debug, Default)]
pub struct Strangers {
    foreign: AtomicU64,
    healed: AtomicU64,
    left: AtomicU64,
}

impl Strangers {
    /// Events that were suppressed by a value that is no claim.
    pub fn foreign(&self) -> u64 {
        self.foreign.load(Ordering::Relaxed)
    }

    /// Keys that would have stayed for ever and have a TTL now.
    pub fn healed(&self) -> u64 {
        self.healed.load(Ordering::Relaxed)
    }

    /// Times that a key was left as it is, since it looks like somebody else's.
    pub fn left(&self) -> u64 {
        self.left.load(Ordering::Relaxed)
    }

    fn count(&self, outcome: Result<Healed, StoreError>) {
        let counter = match outcome {
            Ok(Healed::Healed) => &self.healed,
            Ok(Healed::Left) => &self.left,
            Ok(Healed::Sound) => return,
            Err(error) => {
                tracing::debug!(%error, "a key could not be looked at");
                return;
            }
        };
        counter.fetch_add(1, Ordering::Relaxed);
    }
}

/// Keys that are to be looked at.
#[derive(Debug)]
pub(super) struct Suspects {
    foreign: List,
    others: List,
}

impl Default for Suspects {
    fn default() -> Self {
        Self {
            foreign: List::new(MAX_FOREIGN),
            others: List::new(MAX_OTHERS),
        }
    }
}

impl Suspects {
    /// Counts the foreign values among what the request's events lost to, and takes some keys.
    pub(super) fn note(&self, namespace: &Namespace, claims: &Claims) {
        let lost = |to_foreign: bool| {
            let plans = claims.request().plans.plans().iter();
            plans
                .zip(claims.outcomes())
                .filter_map(move |(plan, outcome)| {
                    let Ok(ClaimOutcome::Lost(rival)) = outcome else {
                        return None;
                    };
                    let is_foreign = matches!(rival.standing, Standing::Foreign);
                    (is_foreign == to_foreign).then_some((plan, rival))
                })
        };
        let foreign = lost(true).count() as u64;
        let mut taken = 0;
        if foreign > 0 {
            namespace
                .strangers
                .foreign
                .fetch_add(foreign, Ordering::Relaxed);
            taken = self
                .foreign
                .take_up(namespace, claims, lost(true), MAX_PER_REQUEST);
        }
        self.others
            .take_up(namespace, claims, lost(false), MAX_PER_REQUEST - taken);
    }
}

#[derive(Debug)]
struct List {
    keys: Mutex<HealRequest>,
    limit: usize,
    /// Read on every request.
    is_full: AtomicBool,
}

impl List {
    fn new(limit: usize) -> Self {
        Self {
            keys: Mutex::default(),
            limit,
            is_full: AtomicBool::new(false),
        }
    }

    /// How many keys were taken: none where waiting for the list would hold an answer up.
    fn take_up<'a>(
        &self,
        namespace: &Namespace,
        claims: &Claims,
        lost: impl Iterator<Item = (&'a Plan, &'a Rival)>,
        room: usize,
    ) -> usize {
        let mut lost = lost.take(MAX_CANDIDATES).peekable();
        if room == 0 || self.is_full.load(Ordering::Relaxed) || lost.peek().is_none() {
            return 0;
        }
        let Some(mut keys) = self.keys.try_lock() else {
            return 0;
        };
        let room = room.min(self.limit - keys.items.len());
        let (had, hold) = (keys.items.len(), HoldMs::at_least(namespace.policy().ttl()));
        for (plan, rival) in lost {
            for (name, vicinity) in claims.request().plans.keys(plan) {
                let is_known = || {
                    let mut items = keys.items.iter();
                    items.any(|item| {
                        item.namespace == namespace.id && keys.names.resolve(item.key) == name
                    })
                };
                if vicinity != rival.vicinity || keys.items.len() - had == room || is_known() {
                    continue;
                }
                let item = HealItem {
                    namespace: namespace.id,
                    partition: plan.partition(),
                    key: keys.names.intern(name),
                    hold,
                };
                keys.items.push(item);
            }
        }
        self.is_full
            .store(keys.items.len() == self.limit, Ordering::Relaxed);
        keys.items.len() - had
    }

    fn take_all(&self) -> HealRequest {
        let keys = std::mem::take(&mut *self.keys.lock());
        self.is_full.store(false, Ordering::Relaxed);
        keys
    }
}

/// Looks at the keys that were taken. Runs until it is dropped.
pub async fn heal(engine: Arc<Engine>) {
    let mut looks = time::interval(PERIOD);
    looks.set_missed_tick_behavior(time::MissedTickBehavior::Delay);
    loop {
        looks.tick().await;
        for list in [&engine.suspects.foreign, &engine.suspects.others] {
            let keys = list.take_all();
            // In an outage they are let go of: others come.
            if keys.items.is_empty() || !engine.breaker().admits() {
                continue;
            }
            let namespaces: Vec<NamespaceId> =
                keys.items.iter().map(|item| item.namespace).collect();
            let outcomes = engine.store().heal(keys).await;
            for (namespace, outcome) in namespaces.into_iter().zip(outcomes) {
                let strangers = &engine.namespaces()[usize::from(namespace.0)].strangers;
                strangers.count(outcome);
            }
        }
    }
}
