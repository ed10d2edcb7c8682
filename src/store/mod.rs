//! Where claims live.
//!
//! One trait for every store. A store owns atomicity: each plan is decided in one step, reading all
//! of its keys and writing only the primary. It knows nothing of policies or reasons.
//!
//! An operation takes its place in the order of its subject when the method returns, before the
//! reply is awaited.

pub mod examination;
pub mod heal;
pub mod memory;
pub mod redis;
pub mod write_back;

use std::{
    fmt,
    future::Future,
    pin::Pin,
    sync::{Arc, atomic::AtomicBool},
    task::{Context, Poll},
    time::Duration,
};

use self::{
    examination::{Examination, ExamineRequest},
    heal::{HealRequest, Healed},
    write_back::{WriteBack, WrittenBack},
};
use crate::domain::{
    claim::Guards,
    claim::{ClaimState, Nonce, Rival, SettleAction, SettleOutcome, Standing},
    key::{KeyName, NameRef, Names, Partition},
    plan::PlanBatch,
};

/// A namespace's place in the list that the store was made with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct NamespaceId(pub u16);

/// How long a record is held, whole milliseconds, at least 1.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct HoldMs(u64);

impl HoldMs {
    /// Rounded up: a claim is never held for less than was asked.
    pub fn at_least(span: Duration) -> Self {
        Self(
            u64::try_from(span.as_nanos().div_ceil(1_000_000))
                .unwrap_or(u64::MAX)
                .max(1),
        )
    }

    pub const fn get(self) -> u64 {
        self.0
    }
}

/// One request's claims, in the order in which they are decided.
#[derive(Debug)]
pub struct ClaimRequest {
    pub namespace: NamespaceId,
    pub plans: PlanBatch,
    /// One for each plan.
    pub nonces: Vec<Nonce>,
    pub guards: Guards,
    /// What a won claim is stored as, and for how long.
    pub state: ClaimState,
    pub hold: HoldMs,
    /// For how long a session remembers what it has seen.
    pub seen_hold: HoldMs,
    /// Nonces are derived from the request, so that finding one's own means an earlier attempt.
    pub recognises_own: bool,
}

/// What a plan came to.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum ClaimOutcome {
    /// Stored under this nonce; `adopted` from an earlier attempt of the same call, or fresh.
    Claimed {
        nonce: Nonce,
        adopted: bool,
    },
    /// An earlier attempt of the same call stands under the primary key. Nothing was written.
    Own,
    Lost(Rival),
}

/// Why a store did not decide. Never a duplicate and never a first sighting.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, thiserror::Error)]
pub enum StoreError {
    #[error("the store did not answer within its budget")]
    Timeout,
    #[error("the connection to the store is down")]
    Connection,
    #[error("work waited too long for the store and was not sent")]
    Overloaded,
    #[error("the store is full")]
    Full,
    #[error("a key holds another type")]
    WrongType,
    #[error("the store is read-only, such as a demoted primary")]
    ReadOnly,
    #[error("the store is loading its data")]
    Loading,
    #[error("the store is at its memory limit")]
    OutOfMemory,
    #[error("the store refuses writes because it cannot persist them")]
    MisConfigured,
    #[error("the store has lost the script and would not take it again")]
    NoScript,
    #[error("the store has too few replicas")]
    NoReplicas,
    #[error("the key belongs to another node")]
    Moved,
    #[error("the cluster is down")]
    ClusterDown,
    #[error("the server of the cluster that has the key is down; others are up")]
    ShardDown,
    #[error("the store asks to try again")]
    TryAgain,
    #[error("the store is busy with a script")]
    Busy,
    #[error("the store does not permit a command or a key")]
    Denied,
    #[error("the store refuses the credentials")]
    Unauthenticated,
    #[error("the store gave an answer that makes no sense")]
    Protocol,
    #[error("the store reported another error")]
    Other,
}

impl StoreError {
    pub const ALL: [StoreError; 20] = [
        StoreError::Timeout,
        StoreError::Connection,
        StoreError::Overloaded,
        StoreError::Full,
        StoreError::WrongType,
        StoreError::ReadOnly,
        StoreError::Loading,
        StoreError::OutOfMemory,
        StoreError::MisConfigured,
        StoreError::NoScript,
        StoreError::NoReplicas,
        StoreError::Moved,
        StoreError::ClusterDown,
        StoreError::ShardDown,
        StoreError::TryAgain,
        StoreError::Busy,
        StoreError::Denied,
        StoreError::Unauthenticated,
        StoreError::Protocol,
        StoreError::Other,
    ];

    /// The metric's label.
    pub const fn name(self) -> &'static str {
        match self {
            StoreError::Timeout => "timeout",
            StoreError::Connection => "connection",
            StoreError::Overloaded => "overloaded",
            StoreError::Full => "full",
            StoreError::WrongType => "wrongtype",
            StoreError::ReadOnly => "readonly",
            StoreError::Loading => "loading",
            StoreError::OutOfMemory => "oom",
            StoreError::MisConfigured => "misconf",
            StoreError::NoScript => "noscript",
            StoreError::NoReplicas => "noreplicas",
            StoreError::Moved => "moved",
            StoreError::ClusterDown => "clusterdown",
            StoreError::ShardDown => "sharddown",
            StoreError::TryAgain => "tryagain",
            StoreError::Busy => "busy",
            StoreError::Denied => "denied",
            StoreError::Unauthenticated => "unauthenticated",
            StoreError::Protocol => "protocol",
            StoreError::Other => "other",
        }
    }

    /// Says something about the store as a whole, so that the breaker counts it.
    pub const fn is_outage(self) -> bool {
        match self {
            StoreError::Timeout
            | StoreError::Connection
            | StoreError::Unauthenticated
            | StoreError::ReadOnly
            | StoreError::Loading
            | StoreError::MisConfigured
            | StoreError::NoReplicas
            | StoreError::ClusterDown => true,
            StoreError::Overloaded
            | StoreError::Full
            | StoreError::WrongType
            | StoreError::OutOfMemory
            | StoreError::NoScript
            | StoreError::Moved
            | StoreError::ShardDown
            | StoreError::TryAgain
            | StoreError::Busy
            | StoreError::Denied
            | StoreError::Protocol
            | StoreError::Other => false,
        }
    }
}

impl StoreError {
    /// The same may work a little later, and says nothing about what is stored.
    pub const fn is_transient(self) -> bool {
        matches!(
            self,
            StoreError::Overloaded
                | StoreError::Full
                | StoreError::OutOfMemory
                | StoreError::NoScript
                | StoreError::Moved
                | StoreError::ShardDown
                | StoreError::TryAgain
                | StoreError::Busy
        )
    }
}

/// The store's own queue has no room for the request: nothing was claimed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct QueueFull {
    pub retry_after: Duration,
}

/// The claims of one request, given back when dropped before [`Claims::keep`]: a call that is
/// cancelled or times out leaves nothing behind.
pub struct Claims {
    store: Arc<dyn Store>,
    request: Arc<ClaimRequest>,
    outcomes: Vec<Result<ClaimOutcome, StoreError>>,
    kept: bool,
}

impl Claims {
    /// One outcome for each plan of the request.
    pub fn new(
        store: Arc<dyn Store>,
        request: Arc<ClaimRequest>,
        outcomes: Vec<Result<ClaimOutcome, StoreError>>,
    ) -> Self {
        debug_assert_eq!(outcomes.len(), request.plans.plans().len());
        Self {
            store,
            request,
            outcomes,
            kept: false,
        }
    }

    pub fn request(&self) -> &Arc<ClaimRequest> {
        &self.request
    }

    pub fn outcomes(&self) -> &[Result<ClaimOutcome, StoreError>] {
        &self.outcomes
    }

    /// For a plan that the store was not asked about.
    pub fn decide(&mut self, plan: usize, outcome: ClaimOutcome) {
        self.outcomes[plan] = Ok(outcome);
    }

    /// Takes over what a second round came to for the given plans.
    pub fn amend(&mut self, plans: &[usize], mut second: Claims) {
        for &plan in plans {
            self.outcomes[plan] = second.outcomes[plan];
        }
        second.keep();
    }

    /// The answer is on its way: what was claimed stays claimed.
    pub fn keep(&mut self) {
        self.kept = true;
    }
}

impl Drop for Claims {
    fn drop(&mut self) {
        if self.kept {
            return;
        }
        let claimed: Vec<GiveBack> = self
            .outcomes
            .iter()
            .enumerate()
            .filter_map(|(plan, outcome)| match outcome {
                Ok(ClaimOutcome::Claimed { nonce, .. }) => Some(GiveBack {
                    plan,
                    nonce: *nonce,
                }),
                Ok(ClaimOutcome::Own | ClaimOutcome::Lost(_)) | Err(_) => None,
            })
            .collect();
        if !claimed.is_empty() {
            self.store.give_back(&self.request, claimed);
        }
    }
}

impl fmt::Debug for Claims {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Claims")
            .field("outcomes", &self.outcomes)
            .field("kept", &self.kept)
            .finish_non_exhaustive()
    }
}

/// A claim to delete if its state and all eight bytes of its nonce still match.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct GiveBack {
    /// Which plan of the request.
    pub plan: usize,
    pub nonce: Nonce,
}

/// Claims to settle, of any namespaces.
#[derive(Debug)]
pub struct SettleRequest {
    pub action: SettleAction,
    pub items: Vec<SettleItem>,
    pub names: Names,
}

#[derive(Clone, Copy, Debug)]
pub struct SettleItem {
    pub namespace: NamespaceId,
    pub partition: Partition,
    pub key: NameRef,
    pub nonce: Nonce,
    /// The TTL for Confirm, the lease for Renew; without meaning for Release.
    pub hold: HoldMs,
}

impl SettleRequest {
    pub fn new(action: SettleAction) -> Self {
        Self {
            action,
            items: Vec::new(),
            names: Names::default(),
        }
    }

    pub fn key(&self, item: &SettleItem) -> KeyName<'_> {
        self.names.resolve(item.key)
    }
}

/// What stands under one key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Found {
    pub standing: Standing,
    /// `None`: it never expires.
    pub expires_in: Option<Duration>,
}

/// What a store holds and does, for metrics.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct StoreStats {
    /// Claims held, where the store can tell.
    pub claims: Option<u64>,
    /// Bytes held, where the store can tell.
    pub bytes: Option<u64>,
    pub connections: u64,
    /// Events waiting for the store or for its answer.
    pub queued_events: u64,
    /// Claims given back.
    pub given_back: u64,
    /// Claims that could not be given back because others had been suppressed on them.
    pub give_backs_kept: u64,
    /// Claims that could not be given back because the connection died or the list was full.
    pub give_backs_abandoned: u64,
    /// Connections made.
    pub connects: u64,
    /// Commands' worth of work that a cluster sent on to another server.
    pub redirections: u64,
}

pub trait Store: Send + Sync + fmt::Debug {
    /// Decides the given plans of the request, in their order. The other plans' outcomes in the
    /// reply are [`ClaimOutcome::Own`] and mean nothing.
    fn claim(
        self: Arc<Self>,
        request: Arc<ClaimRequest>,
        plans: Vec<usize>,
    ) -> Result<Reply<Claims>, QueueFull>;

    /// As [`Store::claim`], taking over what an earlier attempt of the same call left: unsettled
    /// claims, and confirmed ones where the request stores confirmed at once.
    fn adopt(self: Arc<Self>, request: Arc<ClaimRequest>, plans: Vec<usize>) -> Reply<Claims>;

    /// Deletes what is still held under all eight bytes of the nonce. Not awaited: the store tries
    /// until it succeeds or its bounded list of such work overflows.
    fn give_back(&self, request: &Arc<ClaimRequest>, claims: Vec<GiveBack>);

    fn settle(
        &self,
        request: SettleRequest,
    ) -> Result<Reply<Vec<Result<SettleOutcome, StoreError>>>, QueueFull>;

    /// Writes claims that were made elsewhere. What is not answered may have been written.
    fn write_back(&self, batch: &Arc<WriteBack>) -> Reply<Vec<Result<WrittenBack, StoreError>>>;

    /// Deletes those items that still stand as they were written, as [`Store::give_back`] does.
    fn withdraw(&self, batch: &Arc<WriteBack>, items: Vec<usize>);

    /// What stands under the keys of the request's first plan, in the plan's order.
    fn inspect(&self, request: Arc<ClaimRequest>) -> Reply<Result<Vec<Option<Found>>, StoreError>>;

    /// Deletes those keys of the request's first plan, by their places in the plan, under which
    /// the settled claim still stands that was found there. Returns their places.
    fn forget(
        &self,
        request: Arc<ClaimRequest>,
        found: Vec<(usize, Standing)>,
    ) -> Reply<Result<Vec<usize>, StoreError>>;

    /// A canary write: does the store take claims?
    fn probe(&self) -> Reply<Result<(), StoreError>>;

    /// Puts the namespace's contract line up if there is none, or if `replace`; extends its life
    /// if it is the same. Returns the line that stands.
    fn assert_contract(&self, assertion: ContractAssertion) -> Reply<Result<String, StoreError>>;

    /// Gives keys that would stay for ever a TTL, if they are claims or look like an older
    /// consumer's. Nothing is deleted or overwritten. One outcome for each item.
    fn heal(&self, request: HealRequest) -> Reply<Vec<Result<Healed, StoreError>>>;

    /// Looks the store over, by connections of its own. Writes nothing that stays.
    fn examine(&self, request: ExamineRequest) -> Reply<Examination>;

    /// Returns once a connection has been made since the last time; never for an embedded store.
    fn reconnected(&self) -> Reply<()>;

    fn stats(&self) -> StoreStats;
}

#[derive(Clone, Debug)]
pub struct ContractAssertion {
    pub namespace: String,
    pub line: String,
    pub hold: HoldMs,
    pub replace: bool,
}

/// A reply that is there already, or will be.
pub enum Reply<T> {
    Ready(Option<T>),
    Waiting {
        future: Pin<Box<dyn Future<Output = T> + Send>>,
        /// Set once the store has answered, whether or not the answer was taken.
        answered: Arc<AtomicBool>,
    },
}

impl<T> Reply<T> {
    pub fn ready(value: T) -> Self {
        Reply::Ready(Some(value))
    }

    pub fn waiting(future: impl Future<Output = T> + Send + 'static) -> Self {
        Self::answered_by(Arc::default(), future)
    }

    /// A reply of which `answered` tells before it is taken.
    pub fn answered_by(
        answered: Arc<AtomicBool>,
        future: impl Future<Output = T> + Send + 'static,
    ) -> Self {
        Reply::Waiting {
            future: Box::pin(future),
            answered,
        }
    }

    /// Set once the store has answered.
    pub fn answered(&self) -> Arc<AtomicBool> {
        match self {
            Reply::Ready(_) => Arc::new(AtomicBool::new(true)),
            Reply::Waiting { answered, .. } => Arc::clone(answered),
        }
    }
}

impl<T> Reply<T> {
    /// What is there already.
    pub fn now(self) -> Option<T> {
        match self {
            Reply::Ready(value) => value,
            Reply::Waiting { .. } => None,
        }
    }
}

impl<T: Unpin> Future for Reply<T> {
    type Output = T;

    fn poll(mut self: Pin<&mut Self>, context: &mut Context<'_>) -> Poll<T> {
        match &mut *self {
            Reply::Ready(value) => match value.take() {
                Some(value) => Poll::Ready(value),
                None => Poll::Pending,
            },
            Reply::Waiting { future, .. } => future.as_mut().poll(context),
        }
    }
}

impl<T> fmt::Debug for Reply<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Reply::Ready(_) => "Ready",
            Reply::Waiting { .. } => "Waiting",
        })
    }
}
