//! Known duplicates: confirmed claims that were met of late answer repeats without the store.
//!
//! What an event with a confirmed claim under its primary key loses to is that claim, whatever
//! stands beside it (see [`crate::domain::claim::rival`]), and nothing is written then. Nobody can
//! release it either. So for a while it may be believed to stand. That is taken from two sources:
//!
//! - This instance stored it as confirmed, and the answer was handed to the transport.
//! - The store told of it, and told of the same again a while later: the call that stored it as
//!   confirmed may not have been answered yet, and would give it back.
//!
//! Not remembered are claims that may still be released, sessions (their repeats extend them), values
//! that are no records of this version, and ids that are too long for the table. A retry of the
//! call that holds the claim always asks the store, and what it finds is forgotten here: it takes
//! the claim over and may give it back.

mod table;

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering},
    },
    time::Duration,
};

use self::table::{Key, Source, Table};
use super::{Engine, Namespace, local::LocalClaims};
use crate::{
    domain::{
        claim::{ClaimState, Record, Rival, Standing, Vicinity},
        plan::Plan,
    },
    store::{ClaimOutcome, ClaimRequest, Claims},
};

/// A call that takes longer to be answered than this is one that was given up.
pub const SETTLED_AFTER: Duration = Duration::from_secs(1);
/// A claim of unknown age is believed for this part of its TTL at most, so that it is not believed for
/// much longer than it stands.
const PART_OF_TTL: u32 = 10;

#[derive(Clone, Copy, Debug)]
pub struct KnownOptions {
    /// How long a claim is believed to stand since the store told of it.
    pub max_age: Duration,
    pub max_bytes: u64,
    /// How far apart two tellings must lie of a claim that is not this instance's own.
    pub settled_after: Duration,
}

#[derive(Debug)]
pub(super) struct KnownClaims {
    table: Table,
    options: KnownOptions,
    /// Claims were forgotten so many times: what the store told before the last time counts no more.
    forgets: AtomicU64,
}

impl Engine {
    /// Remembers claims of a store that is shared with others. An embedded one is as fast itself.
    #[must_use]
    pub fn with_known_claims(mut self, options: KnownOptions) -> Self {
        self.known = Some(KnownClaims {
            table: Table::new(options.max_bytes),
            options,
            forgets: AtomicU64::new(0),
        });
        self
    }

    /// Nothing is known of the plan's keys any more, nor learnt from what the store has told by now. To
    /// be called before the store may delete what stands there; where it surely does, afterwards too.
    pub(super) fn forget_known(&self, request: &ClaimRequest, plan: &Plan) {
        let Some(known) = &self.known else { return };
        known.forgets.fetch_add(1, Ordering::SeqCst);
        for (name, _) in request.plans.keys(plan) {
            if let Some(key) = Key::new(request.namespace, plan.partition(), name) {
                known.table.remove(&key);
            }
        }
    }
}

/// Whether looking is worth it: whether enough of a namespace's events repeat.
#[derive(Debug)]
pub(super) struct Repeats {
    events: AtomicU32,
    repeats: AtomicU32,
    are_many: AtomicBool,
}

impl Default for Repeats {
    fn default() -> Self {
        Self {
            events: AtomicU32::new(0),
            repeats: AtomicU32::new(0),
            are_many: AtomicBool::new(true),
        }
    }
}

impl Repeats {
    /// Events between two judgements.
    const EVENTS: u32 = 4_096;
    /// One repeat in so many pays: asking the store costs some thirty times a look.
    const ONE_IN: u32 = 32;

    fn are_many(&self) -> bool {
        self.are_many.load(Ordering::Relaxed)
    }

    fn count(&self, events: usize, repeats: usize) {
        let repeats = self.repeats.fetch_add(repeats as u32, Ordering::Relaxed) + repeats as u32;
        let events = self.events.fetch_add(events as u32, Ordering::Relaxed) + events as u32;
        if events >= Self::EVENTS {
            self.are_many
                .store(repeats >= events / Self::ONE_IN, Ordering::Relaxed);
            self.events.store(0, Ordering::Relaxed);
            self.repeats.store(0, Ordering::Relaxed);
        }
    }
}

/// What is known about the plans of one request.
#[derive(Debug, Default)]
pub(super) struct Known {
    /// Of each plan the confirmed record under its primary key; empty if nothing is known.
    hits: Vec<Option<Record>>,
    /// What this request hears of the store was true at this time or later; `None`: nothing is
    /// learnt.
    heard: Option<Heard>,
}

#[derive(Clone, Copy, Debug)]
struct Heard {
    at_ms: u64,
    forgets: u64,
}

impl Known {
    /// To be called before the store is asked.
    pub(super) fn look(engine: &Engine, namespace: &Namespace, request: &ClaimRequest) -> Self {
        let Some(known) = &engine.known else {
            return Self::default();
        };
        if !namespace.repeats.are_many() {
            return Self::default();
        }
        let at_ms = engine.clock.monotonic_ms();
        let mut hits = known.table.find_all(request, at_ms);
        if request.recognises_own {
            for (hit, nonce) in hits.iter_mut().zip(&request.nonces) {
                hit.take_if(|record| record.nonce.same_holder(*nonce));
            }
        }
        let forgets = known.forgets.load(Ordering::SeqCst);
        Self {
            hits,
            heard: Some(Heard { at_ms, forgets }),
        }
    }

    pub(super) fn plans(&self) -> impl Iterator<Item = usize> {
        let hits = self.hits.iter().enumerate();
        hits.filter_map(|(plan, hit)| hit.is_some().then_some(plan))
    }

    /// Of so many plans those about which nothing is known.
    pub(super) fn others(&self, plans: usize) -> impl Iterator<Item = usize> {
        (0..plans).filter(|plan| !matches!(self.hits.get(*plan), Some(Some(_))))
    }

    /// The embedded store was asked first.
    pub(super) fn leave_to(&mut self, local: Option<&LocalClaims>) {
        if let Some(local) = local {
            for (plan, hit) in self.hits.iter_mut().enumerate() {
                hit.take_if(|_| local.outcome(plan).is_some());
            }
        }
    }

    /// Remembers what the store told of the plans that it was asked about, and adds what was known
    /// of the others. Says how many these are.
    pub(super) fn complete(
        &mut self,
        engine: &Engine,
        namespace: &Namespace,
        asked: &[usize],
        claims: &mut Claims,
    ) -> usize {
        let Some(known) = &engine.known else { return 0 };
        let request = Arc::clone(claims.request());
        let lost = asked.iter().filter_map(|&place| {
            let plan = &request.plans.plans()[place];
            Some((plan, lost_to(&claims.outcomes()[place])?))
        });
        let hits = self.plans().count();
        let mut repeats = hits;
        match self.heard {
            None => repeats += lost.count(),
            Some(heard) => {
                let mut learner = Learner::new(known, heard);
                for (plan, record) in lost {
                    repeats += 1;
                    let until_ms = heard.at_ms + known.age_ms(namespace.policy.ttl() / PART_OF_TTL);
                    let settled_after_ms = known.options.settled_after.as_millis() as u64;
                    let source = Source::Told {
                        at_ms: heard.at_ms,
                        settled_after_ms,
                    };
                    learner.learn(&request, plan, record, source, until_ms);
                }
            }
        }
        namespace.repeats.count(asked.len() + hits, repeats);
        for (plan, hit) in std::mem::take(&mut self.hits).into_iter().enumerate() {
            if let Some(record) = hit {
                claims.decide(plan, known_outcome(record));
            }
        }
        hits
    }

    /// The answer was handed to the transport: what was stored as confirmed stays so.
    pub(super) fn delivered(&self, engine: &Engine, claims: &Claims, local: Option<&LocalClaims>) {
        let request = claims.request();
        let (Some(known), Some(heard)) = (&engine.known, self.heard) else {
            return;
        };
        if request.state != ClaimState::Confirmed {
            return;
        }
        let mut learner = Learner::new(known, heard);
        let until_ms = heard.at_ms + known.age_ms(Duration::from_millis(request.hold.get()));
        let plans = request.plans.plans().iter().zip(claims.outcomes());
        for (place, (plan, outcome)) in plans.enumerate() {
            if let Ok(ClaimOutcome::Claimed {
                nonce,
                // The record is an earlier attempt's then.
                adopted: false,
            }) = outcome
                && local.is_none_or(|local| local.outcome(place).is_none())
                && !plan.sighting().is_session()
            {
                let record = plan.record(request.state, *nonce);
                learner.learn(request, plan, &record, Source::Own, until_ms);
            }
        }
    }
}

impl KnownClaims {
    fn age_ms(&self, most: Duration) -> u64 {
        self.options.max_age.min(most).as_millis() as u64
    }
}

/// The record that may be remembered, if that is what an event lost to.
fn lost_to<E>(outcome: &Result<ClaimOutcome, E>) -> Option<&Record> {
    match outcome {
        Ok(ClaimOutcome::Lost(Rival {
            standing: Standing::Record(record),
            vicinity: Vicinity::PRIMARY,
        })) if record.state == ClaimState::Confirmed && !record.sighting.is_session() => {
            Some(record)
        }
        Ok(ClaimOutcome::Lost(_) | ClaimOutcome::Claimed { .. } | ClaimOutcome::Own) | Err(_) => {
            None
        }
    }
}

const fn known_outcome(record: Record) -> ClaimOutcome {
    ClaimOutcome::Lost(Rival {
        standing: Standing::Record(record),
        vicinity: Vicinity::PRIMARY,
    })
}

struct Learner<'a> {
    known: &'a KnownClaims,
    heard: Heard,
    encoded: Vec<u8>,
}

impl<'a> Learner<'a> {
    const fn new(known: &'a KnownClaims, heard: Heard) -> Self {
        Self {
            known,
            heard,
            encoded: Vec::new(),
        }
    }

    fn learn(
        &mut self,
        request: &ClaimRequest,
        plan: &Plan,
        record: &Record,
        source: Source,
        until_ms: u64,
    ) {
        let Some(key) = Key::of(request, plan) else {
            return;
        };
        self.encoded.clear();
        record.encode(&mut self.encoded);
        let Heard { forgets, .. } = self.heard;
        // Under the set's lock: whoever forgets counts first and removes then.
        let still_holds = || self.known.forgets.load(Ordering::SeqCst) == forgets;
        self.known
            .table
            .learn(&key, &self.encoded, source, until_ms, still_holds);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn where_next_to_nothing_repeats_nobody_looks() {
        let repeats = Repeats::default();
        let steps = [
            (Repeats::EVENTS - 1, 0, true),
            (1, 0, false),
            (Repeats::EVENTS, Repeats::EVENTS / Repeats::ONE_IN, true),
            (
                Repeats::EVENTS,
                Repeats::EVENTS / Repeats::ONE_IN - 1,
                false,
            ),
        ];
        for (step, (events, of_these, are_many)) in steps.into_iter().enumerate() {
            repeats.count(events as usize, of_these as usize);
            assert_eq!(repeats.are_many(), are_many, "step {step}");
        }
    }
}
