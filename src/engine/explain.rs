//! Explain and Forget: what would be decided now, from what, and how to undo it.

use std::{sync::Arc, time::Duration};

use super::{Engine, Namespace, RequestFault, local::Local};
use crate::{
    domain::{
        claim::{self, ClaimState, Nonce, Standing, Vicinity},
        event::{Event, Fix, RawEvent},
        plan::Planner,
        policy::{Mode, Policy},
        reason::Reason,
        time::EventTime,
        verdict::Verdict,
    },
    store::{ClaimRequest, Found, HoldMs, Reply, StoreError},
};

#[derive(Debug)]
pub struct Explanation {
    pub verdict: Verdict,
    pub shadow: bool,
    /// Store keys, the primary first.
    pub keys: Vec<String>,
    pub material: String,
    pub contract: String,
    pub time: Option<EventTime>,
    pub fix: Option<Fix>,
    pub claims: Vec<FoundClaim>,
}

#[derive(Debug)]
pub struct FoundClaim {
    pub key: String,
    pub standing: Standing,
    pub expires_in: Option<Duration>,
    /// In time and in space.
    pub near: bool,
}

impl Engine {
    /// What would be decided for this event now. Changes nothing. Not an async fn: the event is
    /// borrowed only until the store was asked.
    pub fn explain(
        self: &Arc<Self>,
        namespace: &str,
        raw: &RawEvent<'_>,
    ) -> Result<impl Future<Output = Explanation> + Send + use<>, RequestFault> {
        let namespace = self.namespace(namespace)?;
        let policy = namespace.policy();
        let now = self.clock.now();
        let mut explanation = Explanation {
            verdict: Verdict::of(Reason::FirstSeen),
            shadow: policy.mode() == Mode::Shadow,
            keys: Vec::new(),
            material: String::new(),
            contract: policy.contract(),
            time: None,
            fix: None,
            claims: Vec::new(),
        };
        let mut inquiry = None;
        match Event::new(raw, policy, now) {
            Ok(event) => {
                let (asked, material) = self.inquire(namespace, &event);
                explanation.material = material;
                explanation.time = event.time();
                explanation.fix = event.fix();
                explanation.verdict.time_clamped = event.clamped();
                inquiry = Some(asked);
            }
            Err(rejection) => explanation.verdict = Verdict::rejected(rejection),
        }
        let (engine, namespace) = (Arc::clone(self), Arc::clone(namespace));
        Ok(async move {
            if let Some(inquiry) = inquiry {
                inquiry
                    .explain(&engine, namespace.policy(), now, &mut explanation)
                    .await;
            }
            explanation
        })
    }

    /// Drops every settled claim that suppresses this event and returns their keys. Refused while
    /// an unsettled one is near: its holder is at work.
    pub fn forget(
        self: &Arc<Self>,
        namespace: &str,
        raw: &RawEvent<'_>,
    ) -> Result<impl Future<Output = Result<Vec<String>, RequestFault>> + Send + use<>, RequestFault>
    {
        let namespace = self.served(namespace)?;
        let event = Event::new(raw, namespace.policy(), self.clock.now())
            .map_err(|rejection| RequestFault::InvalidEvent(rejection.reason, rejection.detail))?;
        let (inquiry, _) = self.inquire(namespace, &event);
        let (engine, namespace) = (Arc::clone(self), Arc::clone(namespace));
        Ok(async move {
            let keys = inquiry.forget(&engine).await?;
            if !keys.is_empty() {
                let name = namespace.policy().name();
                tracing::warn!(namespace = %name, ?keys, "claims were forgotten on request");
            }
            Ok(keys)
        })
    }

    /// Asks the store what stands under the event's keys. Also says what they are digests of.
    fn inquire(&self, namespace: &Namespace, event: &Event<'_>) -> (Inquiry, String) {
        let policy = namespace.policy();
        let mut planner = Planner::new(policy, 1);
        planner.plan(event, 0);
        let material = planner.material(event);
        let plans = planner.finish();
        let keys = plans.plans().iter().flat_map(|plan| {
            plans.keys(plan).map(|(name, vicinity)| {
                let mut key = Vec::new();
                policy.scheme().write_key(name, plan.partition(), &mut key);
                (String::from_utf8_lossy(&key).into_owned(), vicinity)
            })
        });
        let keys = keys.collect();
        let request = Arc::new(ClaimRequest {
            namespace: namespace.id,
            plans,
            nonces: vec![Nonce::NOBODY],
            guards: policy.guards(),
            state: ClaimState::Confirmed,
            hold: HoldMs::at_least(policy.ttl()),
            seen_hold: HoldMs::at_least(policy.ttl()),
            recognises_own: false,
        });
        let answer = if self.breaker.admits() {
            self.store.inspect(Arc::clone(&request))
        } else {
            Reply::ready(Err(StoreError::Connection))
        };
        let local = self.local_of(namespace).map(|local| {
            let found = local.inspect(&request);
            (Arc::clone(local), found)
        });
        let inquiry = Inquiry {
            request,
            keys,
            local,
            answer,
        };
        (inquiry, material)
    }
}

/// A look at what stands under an event's keys.
struct Inquiry {
    request: Arc<ClaimRequest>,
    keys: Vec<(String, Vicinity)>,
    /// Where the embedded store decides in an outage: what stands there. It is asked first.
    local: Option<(Arc<Local>, Vec<Option<Found>>)>,
    answer: Reply<Result<Vec<Option<Found>>, StoreError>>,
}

impl Inquiry {
    async fn explain(
        self,
        engine: &Engine,
        policy: &Policy,
        now: EventTime,
        explanation: &mut Explanation,
    ) {
        let Self {
            request,
            keys,
            local,
            answer,
        } = self;
        let found = answer.await;
        let Some(plan) = request.plans.plans().first() else {
            return;
        };
        let repeated = |found: &[Option<Found>]| {
            let standing = keys
                .iter()
                .zip(found)
                .filter_map(|((_, vicinity), found)| Some((*vicinity, found.as_ref()?.standing)));
            let rival = claim::rival(plan.sighting(), request.guards, standing)?;
            let verdict = Verdict::repeated(plan.kind(), plan.sighting(), &rival, policy);
            Some(verdict)
        };
        let locally = local.as_ref().map(|(_, found)| {
            let degraded = true;
            repeated(found).map(|verdict| Verdict {
                degraded,
                ..verdict
            })
        });
        let verdict = match (locally, &found) {
            (Some(Some(verdict)), _) => verdict,
            (Some(None), Err(error)) if *error != StoreError::Overloaded => Verdict::fallback(None),
            (_, Err(error)) => engine.undecided(policy, *error),
            (_, Ok(found)) => repeated(found)
                .unwrap_or_else(|| Verdict::admitted(plan.sighting(), policy, now, None)),
        };
        let time_clamped = explanation.verdict.time_clamped;
        explanation.verdict = Verdict {
            time_clamped,
            ..verdict
        };
        for found in [local.map(|(_, found)| found), found.ok()]
            .into_iter()
            .flatten()
        {
            for ((key, vicinity), found) in keys.iter().zip(found) {
                explanation.claims.extend(found.map(|found| FoundClaim {
                    key: key.clone(),
                    standing: found.standing,
                    expires_in: found.expires_in,
                    near: claim::is_near(
                        plan.sighting(),
                        *vicinity,
                        request.guards,
                        &found.standing,
                    ),
                }));
            }
        }
        explanation.keys = keys.into_iter().map(|(key, _)| key).collect();
    }

    async fn forget(self, engine: &Engine) -> Result<Vec<String>, RequestFault> {
        let Self {
            request,
            keys,
            local,
            answer,
        } = self;
        let found = answer.await;
        let Some(plan) = request.plans.plans().first() else {
            return Ok(Vec::new());
        };
        let near = |found: Vec<Option<Found>>| -> Result<Vec<(usize, Standing)>, RequestFault> {
            let near = keys.iter().zip(found).enumerate();
            let near = near.filter_map(|(place, ((_, vicinity), found))| {
                let standing = found?.standing;
                let guards = request.guards;
                claim::is_near(plan.sighting(), *vicinity, guards, &standing)
                    .then_some((place, standing))
            });
            let near: Vec<(usize, Standing)> = near.collect();
            if near.iter().any(|(_, standing)| !standing.is_settled()) {
                return Err(RequestFault::UnsettledClaim);
            }
            Ok(near)
        };
        let near_in_store = found.map(&near);
        let mut forgotten = Vec::new();
        engine.forget_known(&request, plan);
        if let Some((local, found)) = local {
            forgotten = local.forget(&request, near(found)?);
        }
        let in_store = match near_in_store {
            Ok(near) => engine.store.forget(Arc::clone(&request), near?).await,
            Err(error) => Err(error),
        };
        engine.forget_known(&request, plan);
        match in_store {
            Ok(places) => forgotten.extend(places),
            Err(_) if !forgotten.is_empty() => {}
            Err(error) => return Err(RequestFault::StoreUnavailable(error)),
        }
        Ok(forgotten
            .into_iter()
            .map(|place| keys[place].0.clone())
            .collect())
    }
}
