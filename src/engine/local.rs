//! `failure_mode: local`: an embedded store decides while the shared one is away.
//!
//! What it claims is written to the shared store afterwards, see [`write_back`]. Until then it is
//! asked first. A claim is in the embedded store, or was answered to be in the shared one, or both:
//! it leaves only when it was written and has not changed since.

pub mod write_back;

use std::sync::{
    Arc,
    atomic::{AtomicU64, Ordering},
};

use hashbrown::HashSet;
use parking_lot::Mutex;
use rand::RngCore;
use tokio::sync::Notify;

use self::write_back::Batch;
use super::{Engine, Namespace, admit::positions, known::Known};
use crate::{
    clock::Clock,
    domain::{
        claim::{SettleAction, SettleOutcome, Standing},
        key::KeyName,
        policy::FailureMode,
        token::{InstanceMark, Origin},
    },
    store::{
        ClaimOutcome, ClaimRequest, Claims, Found, GiveBack, SettleItem, Store, StoreError,
        StoreStats,
        memory::{MemoryStore, Round, WholeKey},
    },
};

/// The embedded store and what is under way between it and the shared one.
#[derive(Debug)]
pub struct Local {
    store: MemoryStore<WholeKey>,
    mark: InstanceMark,
    /// Written, but not known to have been: at most one batch. Held while claims are read and sent,
    /// so that what is settled meanwhile goes to the shared store behind them.
    unanswered: Mutex<Option<Arc<Batch>>>,
    claimed: Notify,
    written_back: AtomicU64,
}

/// What settling in the embedded store came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum LocallySettled {
    /// The holder has nothing here.
    NotHere,
    Done(SettleOutcome),
    /// The shared store may have it, too, and must follow.
    ToFollow(SettleOutcome),
}

impl Local {
    pub(super) fn new(clock: Clock, max_bytes: u64) -> Self {
        Self {
            store: MemoryStore::for_write_back(clock, max_bytes),
            mark: InstanceMark(rand::rng().next_u32()),
            unanswered: Mutex::default(),
            claimed: Notify::new(),
            written_back: AtomicU64::new(0),
        }
    }

    /// What tokens of its claims say.
    pub(super) const fn origin(&self) -> Origin {
        Origin::Local(self.mark)
    }

    pub(super) fn is_empty(&self) -> bool {
        self.store.is_empty()
    }

    pub fn stats(&self) -> StoreStats {
        self.store.stats()
    }

    /// Claims that were written to the shared store, or found there.
    pub fn written_back(&self) -> u64 {
        self.written_back.load(Ordering::Relaxed)
    }

    /// Claims whose time ran out before they were written.
    pub fn expired(&self) -> u64 {
        self.store.expired()
    }

    pub(super) fn settle(
        &self,
        action: SettleAction,
        item: &SettleItem,
        name: KeyName<'_>,
    ) -> LocallySettled {
        let unanswered = self.unanswered.lock();
        let outcome = self.store.settle_one(action, item, name);
        match (outcome, action) {
            (SettleOutcome::Absent | SettleOutcome::NotHeld, _) => LocallySettled::NotHere,
            // What is confirmed or renewed stays here and is written again.
            (SettleOutcome::Applied, SettleAction::Release)
                if unanswered
                    .as_ref()
                    .is_some_and(|batch| batch.holds(item.nonce)) =>
            {
                LocallySettled::ToFollow(outcome)
            }
            (
                SettleOutcome::Applied
                | SettleOutcome::AlreadyApplied
                | SettleOutcome::AlreadyConfirmed,
                _,
            ) => LocallySettled::Done(outcome),
        }
    }

    /// What stands here under the keys of the request's first plan.
    pub(super) fn inspect(&self, request: &Arc<ClaimRequest>) -> Vec<Option<Found>> {
        let found = self.store.inspect(Arc::clone(request)).now();
        found.and_then(Result::ok).unwrap_or_default()
    }

    /// As [`Store::forget`].
    pub(super) fn forget(
        &self,
        request: &Arc<ClaimRequest>,
        found: Vec<(usize, Standing)>,
    ) -> Vec<usize> {
        let forgotten = self.store.forget(Arc::clone(request), found).now();
        forgotten.and_then(Result::ok).unwrap_or_default()
    }
}

impl Engine {
    /// Adds an embedded store for the namespaces whose failure mode is local.
    #[must_use]
    pub fn with_local(mut self, max_bytes: u64) -> Self {
        self.local = Some(Arc::new(Local::new(self.clock.clone(), max_bytes)));
        self
    }

    pub fn local(&self) -> Option<&Arc<Local>> {
        self.local.as_ref()
    }

    /// The embedded store, if it is what decides about the namespace in an outage.
    pub(super) fn local_of(&self, namespace: &Namespace) -> Option<&Arc<Local>> {
        match namespace.policy.failure_mode() {
            FailureMode::Local => self.local.as_ref(),
            FailureMode::Open | FailureMode::Closed => None,
        }
    }
}

/// What the embedded store came to about some of a request's plans. Dropped before
/// [`LocalClaims::keep`], it gives back what it claimed.
#[derive(Debug)]
pub(super) struct LocalClaims {
    local: Arc<Local>,
    engine: Arc<Engine>,
    request: Arc<ClaimRequest>,
    /// One for each plan; `None`: it is for the shared store to decide.
    outcomes: Vec<Option<Result<ClaimOutcome, StoreError>>>,
    kept: bool,
}

impl LocalClaims {
    /// Before the shared store is asked: claims if that one is away, else only looks. `None`: there
    /// is nothing to see. What is known to stand in the shared store is not claimed here.
    pub(super) fn begin(
        engine: &Arc<Engine>,
        namespace: &Namespace,
        request: &Arc<ClaimRequest>,
        known: &Known,
        store_is_away: bool,
    ) -> Option<Self> {
        let local = engine.local_of(namespace)?;
        if !store_is_away && local.is_empty() {
            return None;
        }
        let mut claims = Self::nothing(engine, local, request);
        let plans = request.plans.plans().len();
        if store_is_away {
            let looked_for: Vec<usize> = known.plans().collect();
            claims.decide(&looked_for, Round::Looking);
            let claimed: Vec<usize> = known.others(plans).collect();
            claims.claim(&claimed);
        } else {
            let all: Vec<usize> = (0..plans).collect();
            claims.decide(&all, Round::Looking);
        }
        Some(claims)
    }

    fn nothing(engine: &Arc<Engine>, local: &Arc<Local>, request: &Arc<ClaimRequest>) -> Self {
        Self {
            local: Arc::clone(local),
            engine: Arc::clone(engine),
            request: Arc::clone(request),
            outcomes: vec![None; request.plans.plans().len()],
            kept: false,
        }
    }

    pub(super) fn outcome(&self, plan: usize) -> Option<Result<ClaimOutcome, StoreError>> {
        self.outcomes[plan]
    }

    pub(super) fn origin(&self) -> Origin {
        self.local.origin()
    }

    /// Decides what the shared store left undecided, and takes over what an earlier attempt of the
    /// call left here.
    pub(super) fn complete(
        begun: Option<Self>,
        engine: &Arc<Engine>,
        namespace: &Namespace,
        shared: &Claims,
    ) -> Option<Self> {
        let local = engine.local_of(namespace)?;
        let request = shared.request();
        let undecided = undecided(begun.as_ref(), shared);
        if begun.is_none() && undecided.is_empty() {
            return None;
        }
        let mut claims = begun.unwrap_or_else(|| Self::nothing(engine, local, request));
        claims.claim(&undecided);
        let own = positions(&claims.outcomes, |outcome| {
            *outcome == Some(Ok(ClaimOutcome::Own))
        });
        claims.decide(&own, Round::Adopting);
        Some(claims)
    }

    fn claim(&mut self, plans: &[usize]) {
        if plans.is_empty() {
            return;
        }
        self.decide(plans, Round::First);
        self.local.claimed.notify_one();
    }

    fn decide(&mut self, plans: &[usize], round: Round) {
        let Self {
            local,
            engine,
            outcomes,
            ..
        } = self;
        local
            .store
            .decide_all(&self.request, plans, round, |plan, outcome| {
                if let Err(error) = outcome {
                    engine.store_errors.count(error);
                }
                outcomes[plan] = Some(outcome);
            });
    }

    /// The answer is on its way: what was claimed stays claimed.
    pub(super) fn keep(&mut self) {
        self.kept = true;
    }
}

/// The plans that the shared store was asked about and did not decide. Where it had no time for
/// them that is no outage. Where it claimed another event of the subject they might be copies of
/// that one: they wait.
fn undecided(begun: Option<&LocalClaims>, shared: &Claims) -> Vec<usize> {
    let failed = positions(shared.outcomes(), |outcome| match outcome {
        Ok(_) | Err(StoreError::Overloaded) => false,
        Err(_) => true,
    });
    let mut undecided: Vec<usize> = failed
        .into_iter()
        .filter(|&plan| begun.is_none_or(|begun| begun.outcome(plan).is_none()))
        .collect();
    if !undecided.is_empty() {
        let plans = shared.request().plans.plans();
        let claimed: HashSet<u64> = shared
            .outcomes()
            .iter()
            .zip(plans)
            .filter(|(outcome, _)| matches!(outcome, Ok(ClaimOutcome::Claimed { .. })))
            .map(|(_, plan)| plan.partition().0)
            .collect();
        undecided.retain(|&plan| !claimed.contains(&plans[plan].partition().0));
    }
    undecided
}

impl Drop for LocalClaims {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        let mut gone = Vec::new();
        for (plan, outcome) in self.outcomes.iter().enumerate() {
            if let Some(Ok(ClaimOutcome::Claimed { nonce, .. })) = outcome {
                let nonce = *nonce;
                let claim = GiveBack { plan, nonce };
                if !self.local.store.give_one_back(&self.request, &claim) {
                    let nonce = nonce.written_back();
                    gone.push(GiveBack { plan, nonce });
                }
            }
        }
        // They may have been written to the shared store meanwhile.
        if !gone.is_empty() {
            self.engine.store.give_back(&self.request, gone);
        }
    }
}
