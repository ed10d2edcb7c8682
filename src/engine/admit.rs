//! Admit: from raw events to verdicts.
//!
//! Three steps, so that a stream can keep its order and the wire its limits: *prepare* validates
//! and plans without touching anything, *submit* takes the request's place in the store's order,
//! *finish* waits for the store and decides.

use std::sync::Arc;

use hashbrown::{HashTable, hash_table::Entry};
use rand::RngCore;
use xxhash_rust::xxh3::xxh3_64;

use super::{Engine, Namespace, RequestFault, Waiting, known::Known, local::LocalClaims};
use crate::{
    domain::{
        claim::{ClaimState, Nonce},
        event::{Event, RawEvent},
        key::KeyName,
        plan::{Plan, PlanBatch, Planner},
        policy::{Mode, Policy},
        reason::{Decision, Rejection},
        time::EventTime,
        token::{Origin, Token},
        verdict::Verdict,
    },
    store::{ClaimOutcome, ClaimRequest, Claims, HoldMs, Reply, StoreError},
    telemetry::counters::Tally,
};

/// What a request says beside its events.
#[derive(Clone, Copy, Debug)]
pub struct AdmitOptions<'a> {
    pub namespace: &'a str,
    /// 16 bytes of a UUID that is fresh for the call and the same for its retries.
    pub request_id: Option<[u8; 16]>,
    pub omit_claims: bool,
}

/// A request that was validated and planned; nothing was claimed.
#[derive(Debug)]
pub struct Prepared {
    namespace: Arc<Namespace>,
    now: EventTime,
    omit_claims: bool,
    judged: Judged,
    plans: PlanBatch,
    nonces: Vec<Nonce>,
    recognises_own: bool,
}

/// What validation said of events.
#[derive(Debug, Default)]
struct Judged {
    /// Of the events that have no plan, in their order.
    rejections: Vec<Rejection>,
    /// Events whose time was replaced.
    clamped: Vec<usize>,
}

/// What is known of an event before anything is claimed.
#[derive(Debug)]
pub enum Prospect<'a> {
    Rejected(&'a Rejection),
    Undecided {
        time_clamped: bool,
        /// Of the token that may be given out; 0: none will be.
        token_bytes: usize,
    },
}

impl Prepared {
    pub fn events(&self) -> usize {
        self.plans.plans().len() + self.judged.rejections.len()
    }

    /// One for each event.
    pub fn prospects(&self) -> impl Iterator<Item = Prospect<'_>> {
        let mut plans = self.plans.plans().iter().peekable();
        let mut rejections = self.judged.rejections.iter();
        let mut clamped = self.judged.clamped.iter().peekable();
        (0..self.events()).filter_map(move |event| {
            let Some(plan) = plans.next_if(|plan| plan.event_index() == event) else {
                return rejections.next().map(Prospect::Rejected);
            };
            Some(Prospect::Undecided {
                time_clamped: clamped.next_if(|index| **index == event).is_some(),
                token_bytes: if self.omit_claims {
                    0
                } else {
                    Token::encoded_bytes(&self.plans.primary(plan))
                },
            })
        })
    }
}

impl Engine {
    pub fn prepare<'e>(
        &self,
        options: AdmitOptions<'_>,
        events: impl ExactSizeIterator<Item = RawEvent<'e>>,
    ) -> Result<Prepared, RequestFault> {
        self.try_prepare(options, events.map(Ok))
    }

    /// As [`Self::prepare`], of events that are read on the way.
    pub fn try_prepare<'e>(
        &self,
        options: AdmitOptions<'_>,
        events: impl ExactSizeIterator<Item = Result<RawEvent<'e>, RequestFault>>,
    ) -> Result<Prepared, RequestFault> {
        let namespace = self.served(options.namespace)?;
        self.check_count("events", events.len())?;
        let policy = namespace.policy();
        let now = self.clock.now();
        let mut judged = Judged::default();
        let mut planner = Planner::new(policy, events.len());
        for (index, raw) in events.enumerate() {
            match Event::new(&raw?, policy, now) {
                Ok(event) => {
                    planner.plan(&event, index);
                    if event.clamped() {
                        judged.clamped.push(index);
                    }
                }
                Err(rejection) => judged.rejections.push(rejection),
            }
        }
        let plans = planner.finish();
        let nonces = match options.request_id {
            Some(request_id) => derived_nonces(&request_id, self.next_attempt(), &plans),
            None => random_nonces(plans.plans().len()),
        };
        Ok(Prepared {
            namespace: Arc::clone(namespace),
            now,
            omit_claims: options.omit_claims,
            judged,
            plans,
            nonces,
            recognises_own: options.request_id.is_some(),
        })
    }

    /// Takes the request's place in the order of its subjects. An error means that nothing was
    /// claimed.
    pub fn submit(self: &Arc<Self>, prepared: Prepared) -> Result<Admitting, RequestFault> {
        let Prepared {
            namespace,
            now,
            omit_claims,
            judged,
            plans,
            nonces,
            recognises_own,
        } = prepared;
        let policy = namespace.policy();
        let (state, hold) = holding(policy, omit_claims);
        let request = Arc::new(ClaimRequest {
            namespace: namespace.id,
            plans,
            nonces,
            guards: policy.guards(),
            state,
            hold,
            seen_hold: HoldMs::at_least(policy.ttl()),
            recognises_own,
        });
        let admits = self.breaker.admits();
        let mut known = Known::look(self, &namespace, &request);
        let local = LocalClaims::begin(self, &namespace, &request, &known, !admits);
        known.leave_to(local.as_ref());
        let asked: Vec<usize> = known
            .others(request.plans.plans().len())
            .filter(|&plan| admits && !is_local(local.as_ref(), plan))
            .collect();
        let asked_at = (!asked.is_empty()).then(|| self.clock.monotonic());
        let claims = if asked_at.is_some() {
            Arc::clone(&self.store)
                .claim(request, asked.clone())
                .map_err(|full| RequestFault::Overloaded {
                    retry_after: full.retry_after,
                })?
        } else {
            let undecided = vec![Err(StoreError::Connection); request.plans.plans().len()];
            Reply::ready(Claims::new(Arc::clone(&self.store), request, undecided))
        };
        let waiting = Waiting::new(self, asked_at, &claims);
        Ok(Admitting {
            waiting,
            namespace,
            now,
            judged,
            known,
            local,
            asked,
            claims,
        })
    }
}

fn is_local(local: Option<&LocalClaims>, plan: usize) -> bool {
    local.is_some_and(|local| local.outcome(plan).is_some())
}

impl Engine {
    /// Answers every event of a request by the failure mode: what a panic in its handling is.
    pub fn answer_undecided(
        self: &Arc<Self>,
        namespace: &str,
        events: usize,
    ) -> Result<Admission, RequestFault> {
        let namespace = Arc::clone(self.served(namespace)?);
        let policy = namespace.policy();
        let verdict = self.undecided(policy, StoreError::Other);
        let mut tally = Tally::default();
        (0..events).for_each(|_| tally.reason(verdict.reason));
        namespace.counters.add(&tally);
        let (state, hold) = holding(policy, true);
        let request = Arc::new(ClaimRequest {
            namespace: namespace.id,
            plans: PlanBatch::default(),
            nonces: Vec::new(),
            guards: policy.guards(),
            state,
            hold,
            seen_hold: HoldMs::at_least(policy.ttl()),
            recognises_own: false,
        });
        let claims = Claims::new(Arc::clone(&self.store), request, Vec::new());
        Ok(Admission {
            namespace,
            verdicts: vec![verdict; events],
            engine: Arc::clone(self),
            known: Known::default(),
            local: None,
            claims,
        })
    }
}

/// What a won claim is stored as, and for how long.
fn holding(policy: &Policy, omit_claims: bool) -> (ClaimState, HoldMs) {
    if omit_claims {
        (ClaimState::Confirmed, HoldMs::at_least(policy.ttl()))
    } else if policy.lease().is_zero() {
        (ClaimState::Claimed, HoldMs::at_least(policy.ttl()))
    } else {
        (ClaimState::Pending, HoldMs::at_least(policy.lease()))
    }
}

fn random_nonces(count: usize) -> Vec<Nonce> {
    let mut bytes = vec![0; count * 8];
    rand::rng().fill_bytes(&mut bytes);
    bytes
        .as_chunks::<8>()
        .0
        .iter()
        .map(|chunk| Nonce::from_bytes(*chunk))
        .collect()
}

/// Seven bytes from the request's id, the primary key and the how-many-th event of this key in the
/// request; then the attempt.
fn derived_nonces(request_id: &[u8; 16], attempt: u8, batch: &PlanBatch) -> Vec<Nonce> {
    let plans = batch.plans();
    // By the hash of the first event of a key, how many more there were; one alone has none.
    let mut repeats: HashTable<(u64, u32)> = HashTable::new();
    if plans.len() > 1 {
        repeats.reserve(plans.len(), |seen| seen.0);
    }
    let mut material = Vec::with_capacity(64);
    plans
        .iter()
        .map(|plan| {
            material.clear();
            material.extend_from_slice(request_id);
            material.extend_from_slice(&[0; 4]);
            match batch.primary(plan) {
                KeyName::Decimal(digest) | KeyName::Hex(digest) => {
                    material.extend_from_slice(&digest.to_be_bytes());
                }
                KeyName::Id(id) => material.extend_from_slice(id),
            }
            let first = xxh3_64(&material);
            if plans.len() == 1 {
                return Nonce::from_bytes(first.to_be_bytes()).with_attempt(attempt);
            }
            let hash = match repeats.entry(first, |seen| seen.0 == first, |seen| seen.0) {
                Entry::Vacant(entry) => {
                    entry.insert((first, 0));
                    first
                }
                Entry::Occupied(mut entry) => {
                    let (_, occurrence) = entry.get_mut();
                    *occurrence += 1;
                    material[16..20].copy_from_slice(&occurrence.to_be_bytes());
                    xxh3_64(&material)
                }
            };
            Nonce::from_bytes(hash.to_be_bytes()).with_attempt(attempt)
        })
        .collect()
}

/// A request whose place in the order is taken. Dropped, it gives back what it claimed.
#[derive(Debug)]
pub struct Admitting {
    waiting: Waiting,
    namespace: Arc<Namespace>,
    now: EventTime,
    judged: Judged,
    known: Known,
    /// What the embedded store has decided already.
    local: Option<LocalClaims>,
    /// The plans that are left for the shared store.
    asked: Vec<usize>,
    claims: Reply<Claims>,
}

impl Admitting {
    pub async fn finish(self) -> Admission {
        let Self {
            waiting,
            namespace,
            now,
            judged,
            mut known,
            local,
            asked,
            claims,
        } = self;
        let mut claims = claims.await;
        let is_own = |plan: &usize| claims.outcomes()[*plan] == Ok(ClaimOutcome::Own);
        let own: Vec<usize> = asked.iter().copied().filter(is_own).collect();
        if !own.is_empty() {
            // Only a call that is still waited for gets here: a cancelled one adopts nothing.
            let request = Arc::clone(claims.request());
            for &plan in &own {
                // The retry may give it back.
                let plan = &request.plans.plans()[plan];
                waiting.engine().forget_known(&request, plan);
            }
            let adopted = Arc::clone(&waiting.engine().store)
                .adopt(request, own.clone())
                .await;
            claims.amend(&own, adopted);
        }
        let engine = waiting.answered(
            |latencies| &latencies.claim,
            asked.iter().map(|&plan| claims.outcomes()[plan]),
        );
        let mut tally = Tally::default();
        tally.known(known.complete(&engine, &namespace, &asked, &mut claims));
        let local = LocalClaims::complete(local, &engine, &namespace, &claims);
        let decider = Decider {
            engine: &engine,
            policy: namespace.policy(),
            local: local.as_ref(),
            claims: &claims,
            now,
        };
        let verdicts = decider.decide(judged, &mut tally);
        engine.suspects.note(&namespace, &claims);
        namespace.counters.add(&tally);
        let batch = &claims.request().plans;
        let seen = batch.plans().iter().map(|plan| {
            let decision = verdicts[plan.event_index()].reason.decision();
            (batch.subject_name(plan), decision == Decision::Suppress)
        });
        let now_ms = engine.clock.monotonic_ms();
        if let Some((reason, count)) = tally.dead_letters() {
            let name = namespace.policy.name().as_str();
            namespace.dead_letters.note(name, reason, count, now_ms);
        }
        let mut noisy = namespace.noisy.lock();
        if tally.has_suppressed() || !noisy.is_empty() {
            noisy.observe(now_ms, seen);
        }
        drop(noisy);
        Admission {
            namespace,
            verdicts,
            engine,
            known,
            local,
            claims,
        }
    }
}

pub(super) fn positions<T>(items: &[T], wanted: impl Fn(&T) -> bool) -> Vec<usize> {
    items
        .iter()
        .enumerate()
        .filter(|(_, item)| wanted(item))
        .map(|(index, _)| index)
        .collect()
}

struct Decider<'a> {
    engine: &'a Engine,
    policy: &'a Policy,
    local: Option<&'a LocalClaims>,
    claims: &'a Claims,
    now: EventTime,
}

impl Decider<'_> {
    /// One verdict for each event.
    fn decide(&self, judged: Judged, tally: &mut Tally) -> Vec<Verdict> {
        let plans = self.claims.request().plans.plans();
        let mut rejected = judged.rejections.into_iter().map(Verdict::rejected);
        let mut verdicts = Vec::with_capacity(plans.len() + rejected.len());
        let mut holders = Holders::default();
        for (index, plan) in plans.iter().enumerate() {
            let before = plan.event_index() - verdicts.len();
            verdicts.extend(rejected.by_ref().take(before));
            if let Some(time) = plan.sighting().time {
                tally.lag_ns(if time < self.now {
                    time.distance_ns(self.now)
                } else {
                    0
                });
            }
            verdicts.push(self.verdict(index, plan, &mut holders, tally));
        }
        verdicts.extend(rejected);
        for event in judged.clamped {
            verdicts[event].time_clamped = true;
            tally.clamped();
        }
        for verdict in &verdicts {
            tally.reason(verdict.reason);
        }
        verdicts
    }

    fn verdict(
        &self,
        index: usize,
        plan: &Plan,
        holders: &mut Holders,
        tally: &mut Tally,
    ) -> Verdict {
        let request = self.claims.request();
        let locally = self.local.and_then(|local| local.outcome(index));
        match &locally.unwrap_or(self.claims.outcomes()[index]) {
            Ok(ClaimOutcome::Claimed { nonce, adopted }) => {
                if *adopted {
                    tally.adopted();
                }
                let settles = plan.stored_state(request.state) != ClaimState::Confirmed;
                let claim = settles.then_some(*nonce);
                if locally.is_some() {
                    Verdict::fallback(claim)
                } else {
                    Verdict::admitted(plan.sighting(), self.policy, self.now, claim)
                }
            }
            Ok(ClaimOutcome::Lost(rival)) => {
                let copy_of = rival
                    .standing
                    .nonce()
                    .and_then(|nonce| holders.find(self.claims, nonce));
                Verdict {
                    copy_of_index: copy_of
                        .filter(|first| *first < index)
                        .map(|first| request.plans.plans()[first].event_index() as u32),
                    degraded: locally.is_some(),
                    ..Verdict::repeated(plan.kind(), plan.sighting(), rival, self.policy)
                }
            }
            Ok(ClaimOutcome::Own) => self.engine.undecided(self.policy, StoreError::Protocol),
            Err(error) => self.engine.undecided(self.policy, *error),
        }
    }
}

/// Which plan of the request holds a nonce; made when the first event loses to something.
#[derive(Default)]
struct Holders(Option<HashTable<usize>>);

impl Holders {
    fn find(&mut self, claims: &Claims, nonce: Nonce) -> Option<usize> {
        let nonces = &claims.request().nonces;
        let holders = self.0.get_or_insert_with(|| {
            // What lost to another's holds nothing; any other may, even where the store's answer
            // went missing.
            let may_hold = |plan: &usize| match &claims.outcomes()[*plan] {
                Ok(ClaimOutcome::Lost(rival)) => {
                    let holder = rival.standing.nonce();
                    holder.is_some_and(|nonce| nonce.same_holder(nonces[*plan]))
                }
                _ => true,
            };
            let mut holders = HashTable::new();
            for plan in (0..nonces.len()).filter(may_hold) {
                holders.insert_unique(hash(nonces[plan]), plan, |plan| hash(nonces[*plan]));
            }
            holders
        });
        holders
            .find(hash(nonce), |plan| nonces[*plan].same_holder(nonce))
            .copied()
    }
}

/// Of a nonce, which is random or a digest, with its bits in the upper byte too.
const fn hash(nonce: Nonce) -> u64 {
    let holder = nonce.holder();
    holder ^ holder << 24
}

/// The verdicts of one request. Dropped before [`Admission::delivered`], it gives back its claims.
#[derive(Debug)]
pub struct Admission {
    namespace: Arc<Namespace>,
    verdicts: Vec<Verdict>,
    engine: Arc<Engine>,
    known: Known,
    /// Where it decided about a plan, the claims of the shared store mean nothing.
    local: Option<LocalClaims>,
    claims: Claims,
}

impl Admission {
    pub fn policy(&self) -> &Policy {
        self.namespace.policy()
    }

    pub fn is_shadow(&self) -> bool {
        self.policy().mode() == Mode::Shadow
    }

    pub fn verdicts(&self) -> &[Verdict] {
        &self.verdicts
    }

    /// One verdict for each event, with the token that settles its claim.
    pub fn answers(&self) -> impl Iterator<Item = (&Verdict, Option<Token<'_>>)> {
        let batch = &self.claims.request().plans;
        let mut plans = batch.plans().iter().enumerate().peekable();
        self.verdicts
            .iter()
            .enumerate()
            .map(move |(index, verdict)| {
                let plan = plans.next_if(|(_, plan)| plan.event_index() == index);
                let token = plan.zip(verdict.claim).map(|((place, plan), nonce)| Token {
                    namespace: self.namespace.tag,
                    origin: self.origin(place),
                    nonce,
                    partition: plan.partition(),
                    key: batch.primary(plan),
                });
                (verdict, token)
            })
    }

    fn origin(&self, plan: usize) -> Origin {
        self.local
            .as_ref()
            .filter(|local| local.outcome(plan).is_some())
            .map_or(Origin::Shared, LocalClaims::origin)
    }

    /// The answer was handed to the transport: the claims stand.
    pub fn delivered(mut self) {
        self.known
            .delivered(&self.engine, &self.claims, self.local.as_ref());
        self.claims.keep();
        if let Some(local) = &mut self.local {
            local.keep();
        }
    }
}
