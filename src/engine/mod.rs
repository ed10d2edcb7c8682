//! The use cases: admit, settle, explain; what a store outage means.

pub mod admit;
pub mod breaker;
mod epoch;
pub mod examiner;
pub mod explain;
pub mod judgement;
pub mod keeper;
pub mod known;
pub mod local;
pub mod settle;
pub mod strangers;

use std::{
    borrow::Cow,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU8, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwapOption;
use hashbrown::HashMap;
use parking_lot::Mutex;

use self::{
    breaker::Breaker,
    examiner::Examined,
    known::{KnownClaims, Repeats},
    local::Local,
    strangers::{Strangers, Suspects},
};
use crate::{
    clock::Clock,
    domain::{
        policy::{FailureMode, Policy},
        reason::Reason,
        token::NamespaceTag,
        verdict::Verdict,
    },
    store::{NamespaceId, Reply, Store, StoreError},
    telemetry::{
        counters::Counters,
        dead_letters::DeadLetterLog,
        latency::{Latency, StoreLatencies},
        noisy::{NoisySubjects, Subject},
        store_errors::StoreErrors,
    },
};

/// What every surface shares.
#[derive(Debug)]
pub struct Engine {
    namespaces: Vec<Arc<Namespace>>,
    by_name: HashMap<String, NamespaceId>,
    by_tag: HashMap<NamespaceTag, NamespaceId>,
    store: Arc<dyn Store>,
    local: Option<Arc<Local>>,
    known: Option<KnownClaims>,
    breaker: Breaker,
    clock: Clock,
    store_errors: StoreErrors,
    store_latencies: StoreLatencies,
    examined: Examined,
    suspects: Suspects,
    max_events_per_request: usize,
    attempts: AtomicU8,
}

/// A configured namespace and what became of it.
#[derive(Debug)]
pub struct Namespace {
    id: NamespaceId,
    tag: NamespaceTag,
    policy: Arc<Policy>,
    counters: Counters,
    repeats: Repeats,
    noisy: Mutex<NoisySubjects>,
    dead_letters: DeadLetterLog,
    strangers: Strangers,
    /// Why it is not served: another contract stood at the first contact.
    refused: ArcSwapOption<String>,
}

impl Namespace {
    pub fn policy(&self) -> &Arc<Policy> {
        &self.policy
    }

    pub fn counters(&self) -> &Counters {
        &self.counters
    }

    /// The subjects with the most suppressed events of late.
    pub fn noisy_subjects(&self, limit: usize) -> Vec<Subject> {
        self.noisy.lock().top(limit)
    }

    /// What stands under its keys and is none of its claims.
    pub fn strangers(&self) -> &Strangers {
        &self.strangers
    }

    pub fn refused(&self) -> Option<Arc<String>> {
        self.refused.load_full()
    }
}

/// A request that is refused as a whole, before any claim.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum RequestFault {
    #[error("there is no namespace {0:?}; configured are: {1}")]
    UnknownNamespace(String, String),
    #[error("the request holds no {0}; send at least one")]
    Empty(&'static str),
    #[error(
        "the request holds {count} {what}; at most {limit} are allowed (limits.max_events_per_request)"
    )]
    TooMany {
        what: &'static str,
        count: usize,
        limit: usize,
    },
    #[error(
        "request_id is not a UUID, or the nil one; make a fresh one for each call, or leave it empty"
    )]
    BadRequestId,
    #[error(
        "the answer could take {bytes} bytes; at most {limit} are allowed (limits.max_response_bytes): send fewer events a request"
    )]
    ResponseTooLarge { bytes: usize, limit: usize },
    #[error("the request cannot be read as protobuf: {0}; send what dedupd's proto files describe")]
    Unreadable(String),
    #[error("the request names no operation")]
    NoOperation,
    #[error("namespace {namespace} is not served: {why}")]
    ContractMismatch { namespace: String, why: String },
    #[error("the queue to the store is full; try again")]
    Overloaded { retry_after: Duration },
    #[error("this needs the store, which is unavailable: {0}")]
    StoreUnavailable(StoreError),
    #[error("the event is refused as {reason}: {1}", reason = .0.name())]
    InvalidEvent(Reason, Cow<'static, str>),
    #[error(
        "an unsettled claim is near this event: let its holder settle it, or wait until its lease has run out"
    )]
    UnsettledClaim,
    #[error("the deadline passed")]
    DeadlineExceeded,
}

impl Engine {
    pub fn new(
        policies: Vec<Arc<Policy>>,
        store: Arc<dyn Store>,
        clock: Clock,
        max_events_per_request: usize,
    ) -> Self {
        let clock_start = clock.now().unix_nanos();
        let namespaces: Vec<Arc<Namespace>> = policies
            .into_iter()
            .zip(0..)
            .map(|(policy, index)| {
                Arc::new(Namespace {
                    id: NamespaceId(index),
                    tag: NamespaceTag::new(policy.name()),
                    policy,
                    counters: Counters::default(),
                    repeats: Repeats::default(),
                    noisy: Mutex::default(),
                    dead_letters: DeadLetterLog::default(),
                    strangers: Strangers::default(),
                    refused: ArcSwapOption::empty(),
                })
            })
            .collect();
        Self {
            by_name: namespaces
                .iter()
                .map(|ns| (ns.policy.name().to_string(), ns.id))
                .collect(),
            by_tag: namespaces
                .iter()
                .flat_map(|ns| [ns.tag, ns.tag.in_local_tokens()].map(|tag| (tag, ns.id)))
                .collect(),
            namespaces,
            store,
            local: None,
            known: None,
            breaker: Breaker::default(),
            clock,
            store_errors: StoreErrors::default(),
            store_latencies: StoreLatencies::default(),
            examined: Examined::default(),
            suspects: Suspects::default(),
            max_events_per_request,
            // Instances begin at different numbers.
            attempts: AtomicU8::new((clock_start ^ (clock_start >> 17)) as u8),
        }
    }

    pub fn namespaces(&self) -> &[Arc<Namespace>] {
        &self.namespaces
    }

    pub fn namespace(&self, name: &str) -> Result<&Arc<Namespace>, RequestFault> {
        match self.by_name.get(name) {
            Some(id) => Ok(&self.namespaces[usize::from(id.0)]),
            None => {
                let names: Vec<&str> = self
                    .namespaces
                    .iter()
                    .map(|ns| ns.policy.name().as_str())
                    .collect();
                let asked: String = name.chars().take(80).collect();
                Err(RequestFault::UnknownNamespace(asked, names.join(", ")))
            }
        }
    }

    /// A namespace that is served.
    fn served(&self, name: &str) -> Result<&Arc<Namespace>, RequestFault> {
        let namespace = self.namespace(name)?;
        match namespace.refused() {
            None => Ok(namespace),
            Some(why) => Err(RequestFault::ContractMismatch {
                namespace: name.to_owned(),
                why: why.to_string(),
            }),
        }
    }

    fn by_tag(&self, tag: NamespaceTag) -> Option<&Arc<Namespace>> {
        self.by_tag
            .get(&tag)
            .map(|id| &self.namespaces[usize::from(id.0)])
    }

    pub fn store(&self) -> &Arc<dyn Store> {
        &self.store
    }

    pub fn breaker(&self) -> &Breaker {
        &self.breaker
    }

    pub fn clock(&self) -> &Clock {
        &self.clock
    }

    pub fn store_latencies(&self) -> &StoreLatencies {
        &self.store_latencies
    }

    pub fn store_errors(&self) -> &StoreErrors {
        &self.store_errors
    }

    pub fn examined(&self) -> &Examined {
        &self.examined
    }

    fn check_count(&self, what: &'static str, count: usize) -> Result<(), RequestFault> {
        match count {
            0 => Err(RequestFault::Empty(what)),
            count if count > self.max_events_per_request => Err(RequestFault::TooMany {
                what,
                count,
                limit: self.max_events_per_request,
            }),
            _ => Ok(()),
        }
    }

    /// What is said about an event that the store did not decide about.
    fn undecided(&self, policy: &Policy, error: StoreError) -> Verdict {
        let retry_after = Some(self.breaker.retry_after(self.clock.monotonic_ms()));
        let degraded = |reason: Reason| Verdict {
            degraded: true,
            ..Verdict::of(reason)
        };
        match (error, policy.failure_mode()) {
            (StoreError::Overloaded, _) => Verdict {
                retry_after,
                ..degraded(Reason::Overloaded)
            },
            (_, FailureMode::Open) => degraded(Reason::FailOpen),
            // The embedded store did not decide either.
            (_, FailureMode::Closed | FailureMode::Local) => Verdict {
                retry_after,
                ..degraded(Reason::StoreUnavailable)
            },
        }
    }

    /// Tells the breaker how an operation on the store went, and counts its errors.
    fn observe<T>(&self, results: impl IntoIterator<Item = Result<T, StoreError>>) {
        let (mut decided, mut outages) = (0_usize, 0_usize);
        for result in results {
            match result {
                Ok(_) => decided += 1,
                Err(error) => {
                    self.store_errors.count(error);
                    outages += usize::from(error.is_outage());
                }
            }
        }
        if decided > 0 {
            self.breaker.succeeded();
        } else if outages > 0 {
            self.breaker_failed();
        }
    }

    fn breaker_failed(&self) {
        if self.breaker.failed() {
            tracing::error!("the store is unavailable: failure modes apply until a probe succeeds");
        }
    }

    /// The attempt byte of the next request's nonces: another one for each attempt of a call, so
    /// that what an earlier attempt gives back late is not what a later one has claimed anew.
    fn next_attempt(&self) -> u8 {
        self.attempts.fetch_add(1, Ordering::Relaxed)
    }
}

/// Callers who are less patient than this say nothing about the store.
const PATIENCE: Duration = Duration::from_millis(10);

/// A request that waits for the store. Dropped unanswered after a while, it counts as a failure of
/// the store: where every caller's deadline is shorter than the budget nothing else would tell.
#[derive(Debug)]
struct Waiting {
    engine: Arc<Engine>,
    /// By the monotonic clock; `None` where the store was not asked.
    asked_at: Option<Duration>,
    /// It has answered, though perhaps nobody took the answer.
    store_answered: Arc<AtomicBool>,
}

impl Waiting {
    /// `asked_at`: before the store was asked for `reply`; `None` if it was not.
    fn new<T>(engine: &Arc<Engine>, asked_at: Option<Duration>, reply: &Reply<T>) -> Self {
        Self {
            engine: Arc::clone(engine),
            asked_at,
            store_answered: reply.answered(),
        }
    }

    fn engine(&self) -> &Arc<Engine> {
        &self.engine
    }

    fn answered<T>(
        mut self,
        latency: impl FnOnce(&StoreLatencies) -> &Latency,
        results: impl IntoIterator<Item = Result<T, StoreError>>,
    ) -> Arc<Engine> {
        if let Some(asked_at) = self.asked_at.take() {
            let elapsed = self.engine.clock.monotonic() - asked_at;
            latency(&self.engine.store_latencies).observe(elapsed);
            self.engine.observe(results);
        }
        Arc::clone(&self.engine)
    }
}

impl Drop for Waiting {
    fn drop(&mut self) {
        if let Some(asked_at) = self.asked_at
            && !self.store_answered.load(Ordering::Relaxed)
            && self.engine.clock.monotonic() - asked_at >= PATIENCE
        {
            self.engine.breaker_failed();
        }
    }
}
