//! Explain: what would be decided now, and from what. Changes nothing.

use std::{sync::Arc, time::Duration};

use super::{Engine, RequestFault};
use crate::{
    domain::{
        claim::{self, ClaimState, Nonce, Standing},
        event::{Event, Fix, RawEvent},
        plan::{PlanBatch, Planner},
        policy::Mode,
        time::EventTime,
        verdict::Verdict,
    },
    store::{ClaimRequest, HoldMs, StoreError},
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
    /// Not an async fn: the event is borrowed only until the store was asked.
    pub fn explain(
        self: &Arc<Self>,
        namespace: &str,
        raw: &RawEvent<'_>,
    ) -> Result<impl Future<Output = Explanation> + Send + use<>, RequestFault> {
        let namespace = Arc::clone(self.namespace(namespace)?);
        let policy = namespace.policy();
        let now = self.clock.now();
        let mut explanation = Explanation {
            verdict: Verdict::of(crate::domain::verdict::Reason::FirstSeen),
            shadow: policy.mode() == Mode::Shadow,
            keys: Vec::new(),
            material: String::new(),
            contract: policy.contract(),
            time: None,
            fix: None,
            claims: Vec::new(),
        };
        let mut plans = PlanBatch::default();
        match Event::new(raw, policy, now) {
            Ok(event) => {
                let mut planner = Planner::new(policy);
                planner.plan(&event, 0, &mut plans);
                explanation.material = planner.material().to_owned();
                (explanation.time, explanation.fix) = (event.time(), event.fix());
                explanation.verdict.time_clamped = event.clamped();
            }
            Err(rejection) => explanation.verdict = Verdict::rejected(rejection),
        }
        let request = Arc::new(ClaimRequest {
            namespace: namespace.id,
            plans,
            nonces: vec![Nonce::from_bytes([0; 8])],
            guards: policy.guards(),
            state: ClaimState::Confirmed,
            hold: HoldMs::at_least(policy.ttl()),
            recognises_own: false,
        });
        let inspection = self
            .breaker
            .admits()
            .then(|| self.store.inspect(Arc::clone(&request)));
        let engine = Arc::clone(self);
        Ok(async move {
            let policy = namespace.policy();
            let Some(plan) = request.plans.plans().first() else {
                return explanation;
            };
            let mut keys: Vec<(String, claim::Vicinity)> = Vec::new();
            for (name, vicinity) in request.plans.keys(plan) {
                let mut key = Vec::new();
                policy.scheme().write_key(name, plan.partition(), &mut key);
                keys.push((String::from_utf8_lossy(&key).into_owned(), vicinity));
            }
            let found = match inspection {
                Some(inspection) => inspection.await,
                None => Err(StoreError::Connection),
            };
            let clamped = explanation.verdict.time_clamped;
            explanation.verdict = match &found {
                Err(error) => engine.undecided(policy, *error),
                Ok(found) => {
                    let near = keys.iter().zip(found).filter_map(|((_, vicinity), found)| {
                        found.map(|found| (*vicinity, found.standing))
                    });
                    match claim::rival(plan.sighting(), request.guards, near) {
                        Some(rival) => {
                            Verdict::repeated(plan.kind(), plan.sighting(), &rival, policy)
                        }
                        None => Verdict::admitted(plan.sighting(), policy, now, None),
                    }
                }
            };
            explanation.verdict.time_clamped = clamped;
            for ((key, vicinity), found) in keys.iter().zip(found.unwrap_or_default()) {
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
            explanation.keys = keys.into_iter().map(|(key, _)| key).collect();
            explanation
        })
    }
}
