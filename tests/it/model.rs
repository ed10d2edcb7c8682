//! Memory and Redis must answer alike: the same operations on both, step by step.
//!
//! Each admission has a request id, so that both derive the same nonces and the tokens are equal
//! byte for byte. What the oracle cannot judge happens here: retries under the same request id, also
//! while the first attempt is on its way, answers that are never handed over, tokens of others.
//! Sizes and seeds as in [`crate::property`]; by default 200 sequences.

use std::{
    fmt::{self, Debug},
    time::{Duration, Instant},
};

use dedupd::{
    domain::{claim::SettleAction, event::RawEvent, verdict::Verdict},
    engine::{
        admit::{Admission, Admitting},
        explain::Explanation,
        known::{KnownOptions, SETTLED_AFTER},
        settle::Settlement,
    },
};

use crate::{
    oracle::{
        Event,
        streams::{Act, Dice, Stream},
    },
    property::{
        scope_on,
        seeds::{Playing, seeds},
        translate::{policy_of, raw_event, raw_events},
        world::{Host, WITHIN_A_TICK, World, deliver, tokens_of},
    },
    support::redis::{Options, RedisServer, collating_locale},
};

const SEQUENCES: u64 = 200;
const STEPS: usize = 30;
/// Of the requests so far, those that are sent again.
const RECENT: usize = 6;
const A_DAY_MS: u64 = 86_400_000;
/// Giving back is not awaited by the product, but by this test.
const GIVEN_BACK_WITHIN: Duration = Duration::from_secs(10);

#[tokio::test]
async fn memory_and_redis_answer_alike() {
    let test = "model::memory_and_redis_answer_alike";
    check(test, Time::StandsStill, &redis()).await;
}

#[tokio::test]
async fn memory_and_redis_answer_alike_as_time_passes() {
    let test = "model::memory_and_redis_answer_alike_as_time_passes";
    check(test, Time::Passes, &redis()).await;
}

/// Among the answers that are not handed over some have claims that are stored as confirmed.
#[tokio::test]
async fn memory_and_what_is_remembered_of_redis_answer_alike() {
    let server = RedisServer::start(Options::default());
    let options = KnownOptions {
        max_age: WITHIN_A_TICK,
        max_bytes: 1 << 16,
        settled_after: SETTLED_AFTER,
    };
    let redis = Host::Remembering(server, options);
    let test = "model::memory_and_what_is_remembered_of_redis_answer_alike";
    let known = check(test, Time::Passes, &redis).await;
    assert!(known > 0, "nothing was remembered");
}

fn redis() -> Host {
    Host::Redis(RedisServer::start(Options {
        locale: collating_locale(),
        ..Options::default()
    }))
}

#[derive(Clone, Copy, PartialEq)]
enum Time {
    StandsStill,
    Passes,
}

/// Says how many events were decided by what was remembered.
async fn check(test: &'static str, time: Time, redis: &Host) -> u64 {
    let mut known = 0;
    for seed in seeds(SEQUENCES) {
        let _playing = Playing { test, seed };
        let mut stream = Stream::random_within(scope_on(redis), seed, STEPS);
        if time == Time::StandsStill {
            stream.rules.ttl_ms = A_DAY_MS;
            stream.rules.lease_ms = stream.rules.lease_ms.min(1) * A_DAY_MS / 2;
        }
        let policy = policy_of(&stream.rules, seed);
        let start_unix_ns = stream.steps[0].now_unix_ns;
        let mut both = Both {
            memory: Host::Memory.world(policy.clone(), start_unix_ns).await,
            redis: redis.world(policy, start_unix_ns).await,
            tick_ms: redis.tick_ms(),
            has_space_guard: stream.rules.place.is_some_and(|place| place.guard_m > 0.0),
            dice: Dice::new(seed),
            requests: Vec::new(),
            tokens: Vec::new(),
        };
        let mut now_ms = stream.steps[0].now_ms;
        for (number, step) in stream.steps.iter().enumerate() {
            if time == Time::Passes {
                both.memory.pass(step.now_ms - now_ms).await;
                both.redis.pass(step.now_ms - now_ms).await;
                now_ms = step.now_ms;
            }
            let operation = both.draw(&step.act);
            if let Err(difference) = both.carry_out(&operation).await {
                panic!(
                    "step {number}: {difference}\n{operation}\n{:?}",
                    stream.rules
                );
            }
        }
        for request in both
            .requests
            .split_off(both.requests.len().saturating_sub(RECENT))
        {
            if let Err(difference) = both.same_claims(&request.events).await {
                panic!("in the end: {difference}\n{:?}", stream.rules);
            }
        }
        known += both.redis.known();
    }
    known
}

#[derive(Clone, Debug)]
struct Request {
    id: u128,
    omit_claims: bool,
    events: Vec<Event>,
}

#[derive(Clone, Copy, Debug, PartialEq)]
enum Fate {
    Delivered,
    /// Decided, but nobody took the answer.
    Dropped,
    /// Nobody waited for the decision.
    Cancelled,
}

enum Operation {
    /// All are submitted before the first is awaited.
    Admit(Vec<(Request, Fate)>),
    Settle(SettleAction, Vec<Vec<u8>>),
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let requests = match self {
            Operation::Admit(requests) => requests,
            Operation::Settle(action, tokens) => return write!(f, "{action:?} {tokens:x?}"),
        };
        for (request, fate) in requests {
            let Request {
                id,
                omit_claims,
                events,
            } = request;
            writeln!(f, "admit under {id}, omit_claims {omit_claims}, {fate:?}")?;
            for event in events {
                writeln!(f, "  {event:?}")?;
            }
        }
        Ok(())
    }
}

struct Both {
    memory: World,
    redis: World,
    tick_ms: u64,
    has_space_guard: bool,
    dice: Dice,
    requests: Vec<Request>,
    tokens: Vec<Vec<u8>>,
}

impl Both {
    fn draw(&mut self, act: &Act) -> Operation {
        match act {
            Act::Admit {
                events,
                omit_claims,
            } => {
                let fresh = Request {
                    id: self.requests.len() as u128 + 1,
                    omit_claims: *omit_claims,
                    events: events.clone(),
                };
                let count = self.dice.pick(&[1, 1, 2]);
                let requests = (0..count).map(|_| (self.request(&fresh), self.fate()));
                Operation::Admit(requests.collect())
            }
            Act::Settle { .. } | Act::Foreign { .. } if self.tokens.is_empty() => {
                Operation::Settle(SettleAction::Renew, vec![b"not a token".to_vec()])
            }
            Act::Settle { .. } | Act::Foreign { .. } => {
                let action = self.dice.pick(&[
                    SettleAction::Confirm,
                    SettleAction::Release,
                    SettleAction::Renew,
                ]);
                let count = self.dice.pick(&[1, 1, 2, 3]);
                Operation::Settle(action, (0..count).map(|_| self.token()).collect())
            }
        }
    }

    /// The fresh one, or a retry of an earlier one: as it was, or with something changed.
    fn request(&mut self, fresh: &Request) -> Request {
        let known = self.requests.len();
        if known == 0 || self.dice.one_in(2) {
            self.requests.push(fresh.clone());
            return fresh.clone();
        }
        let recent = self.requests[known.saturating_sub(RECENT)..].to_vec();
        let mut request = self.dice.pick(&recent);
        match self.dice.below(8) {
            0 => request.omit_claims = !request.omit_claims,
            1 => request.events.clone_from(&fresh.events),
            2 => request.events.reverse(),
            _ => {}
        }
        request
    }

    fn fate(&mut self) -> Fate {
        use Fate::{Cancelled, Delivered, Dropped};
        let fate = self
            .dice
            .pick(&[Delivered, Delivered, Delivered, Dropped, Cancelled]);
        // Redis may need a further round for what lies in other cells, and nobody waits for it.
        if fate == Cancelled && self.has_space_guard {
            Dropped
        } else {
            fate
        }
    }

    /// One that was handed out (it may be stale by now), or one that never was.
    fn token(&mut self) -> Vec<u8> {
        const TAG: usize = 1;
        const NONCE: usize = 9;
        const ATTEMPT: usize = 16;
        let known = self.tokens.len();
        let recent = self.tokens[known.saturating_sub(8)..].to_vec();
        let mut token = self.dice.pick(&recent);
        match self.dice.below(12) {
            0 => token[NONCE + self.dice.below(7) as usize] ^= 1,
            1 => token[ATTEMPT] ^= 1,
            2 => token[TAG] ^= 1,
            3 => *token.last_mut().unwrap() ^= 1,
            4 => token.truncate(self.dice.below(token.len() as u64) as usize),
            _ => {}
        }
        token
    }

    async fn carry_out(&mut self, operation: &Operation) -> Result<(), String> {
        match operation {
            Operation::Admit(requests) => {
                let memory = admit(&self.memory, requests).await;
                let redis = admit(&self.redis, requests).await;
                same("answers", &memory, &redis)?;
                let handed_out = memory.into_iter().flat_map(|(_, tokens)| tokens);
                self.tokens.extend(handed_out.flatten());
                self.same_given_back().await?;
                // Of each request the last event: what others of its subject left is seen there too.
                for (request, _) in requests {
                    self.same_claims(&request.events[request.events.len() - 1..])
                        .await?;
                }
                Ok(())
            }
            Operation::Settle(action, tokens) => {
                let memory: Vec<Settlement> = self.memory.settle(*action, tokens).await;
                let redis = self.redis.settle(*action, tokens).await;
                same("settlements", &memory, &redis)?;
                let unavailable = memory.contains(&Settlement::StoreUnavailable);
                same("is unavailable", &unavailable, &false)
            }
        }
    }

    async fn same_given_back(&self) -> Result<(), String> {
        let given_back = |world: &World| world.engine.store().stats().given_back;
        let started = Instant::now();
        while given_back(&self.memory) != given_back(&self.redis)
            && started.elapsed() < GIVEN_BACK_WITHIN
        {
            self.redis.come_to_rest().await;
        }
        same(
            "given back",
            &given_back(&self.memory),
            &given_back(&self.redis),
        )
    }

    /// What stands under the keys of the events, and for how long.
    async fn same_claims(&self, events: &[Event]) -> Result<(), String> {
        for event in events {
            let event: RawEvent<'_> = raw_event(event);
            let memory = self.memory.explain(&event).await;
            let redis = self.redis.explain(&event).await;
            let (memory, redis) = (self.standing(memory), self.standing(redis));
            same("explanations", &memory, &redis)?;
        }
        Ok(())
    }

    /// The time that Redis has left is rounded up to what it was before the test took any.
    fn standing(&self, explanation: Explanation) -> (Verdict, Vec<String>) {
        let claims = explanation.claims.into_iter().map(|claim| {
            let expires_in_ms = claim
                .expires_in
                .map(|left| left.as_millis().next_multiple_of(self.tick_ms.into()));
            let (key, standing, near) = (claim.key, claim.standing, claim.near);
            format!("{key}: {standing:?}, near {near}, expires in {expires_in_ms:?} ms")
        });
        (explanation.verdict, claims.collect())
    }
}

type Answered = (Vec<Verdict>, Vec<Option<Vec<u8>>>);

/// Of the requests that were awaited.
async fn admit(world: &World, requests: &[(Request, Fate)]) -> Vec<Answered> {
    let mut cancelled: Vec<Admitting> = Vec::new();
    let mut awaited: Vec<(Admitting, Fate)> = Vec::new();
    for (request, fate) in requests {
        let events = raw_events(&request.events);
        let admitting = world.submit(Some(request.id.to_be_bytes()), request.omit_claims, &events);
        match fate {
            Fate::Cancelled => cancelled.push(admitting),
            Fate::Delivered | Fate::Dropped => awaited.push((admitting, *fate)),
        }
    }
    let mut decided: Vec<(Admission, Fate)> = Vec::new();
    for (admitting, fate) in awaited {
        decided.push((admitting.finish().await, fate));
    }
    if !cancelled.is_empty() {
        drop(cancelled);
        // Before time passes: the script that makes it pass goes another way.
        world.come_to_rest().await;
    }
    let answered = decided.into_iter().map(|(admission, fate)| {
        let verdicts = admission.verdicts().to_vec();
        let tokens = match fate {
            Fate::Delivered => deliver(admission),
            Fate::Dropped | Fate::Cancelled => tokens_of(&admission),
        };
        (verdicts, tokens)
    });
    answered.collect()
}

fn same<T: PartialEq + Debug>(what: &str, memory: &T, redis: &T) -> Result<(), String> {
    if memory == redis {
        return Ok(());
    }
    Err(format!("{what}\n memory {memory:#?}\n redis  {redis:#?}"))
}
