//! The product against the oracle: random streams, event by event, in process.
//!
//! `DEDUPD_PROPERTY_STREAMS` sets how many streams a test plays (by default 400 in memory, 300 on
//! each Redis; 10000 at night), `DEDUPD_PROPERTY_SEED` the first seed; each further stream has the
//! next one. What fails names its seed and the command that plays it again, with the steps that
//! are needed for it.

pub(crate) mod seeds;
pub(crate) mod translate;
pub(crate) mod world;

use std::{
    fmt::{Debug, Write},
    time::Duration,
};

use self::{
    seeds::{Playing, seeds},
    translate::{action_of, answer_of, outcome_name, policy_of, raw_event, raw_events},
    world::{Host, WITHIN_A_TICK, World, deliver},
};
use dedupd::{domain::place::Position, engine::known::KnownOptions};

use crate::{
    oracle::{
        self, Answer, Event, Identity, Oracle, Place, Rules, Time, Window,
        streams::{Act, Dice, Scope, Settle, Step, Stream},
    },
    support::redis::{Options, RedisServer, collating_locale, redis_62},
};

const MEMORY_STREAMS: u64 = 400;
const REDIS_STREAMS: u64 = 300;
const STEPS: usize = 60;

#[tokio::test]
async fn memory_agrees_with_the_oracle() {
    let test = "property::memory_agrees_with_the_oracle";
    check_streams(test, &Host::Memory, MEMORY_STREAMS).await;
}

#[tokio::test]
async fn redis_agrees_with_the_oracle() {
    let test = "property::redis_agrees_with_the_oracle";
    let server = RedisServer::start(Options {
        locale: collating_locale(),
        ..Options::default()
    });
    check_streams(test, &Host::Redis(server), REDIS_STREAMS).await;
}

#[tokio::test]
async fn redis_62_agrees_with_the_oracle() {
    let test = "property::redis_62_agrees_with_the_oracle";
    // Named by tests/run.sh where it is left out.
    let Some(binary) = redis_62() else { return };
    let server = RedisServer::start(Options {
        binary: Some(binary),
        locale: collating_locale(),
        ..Options::default()
    });
    check_streams(test, &Host::Redis(server), REDIS_STREAMS).await;
}

/// What Redis would say, said without it.
#[tokio::test]
async fn redis_and_what_is_remembered_of_it_agree_with_the_oracle() {
    let test = "property::redis_and_what_is_remembered_of_it_agree_with_the_oracle";
    let server = RedisServer::start(Options::default());
    let options = KnownOptions {
        max_age: WITHIN_A_TICK,
        max_bytes: 1 << 16,
        // No call is given up here.
        settled_after: Duration::ZERO,
    };
    let known = check_streams(test, &Host::Remembering(server, options), REDIS_STREAMS).await;
    assert!(known > 0, "nothing was remembered");
}

#[tokio::test]
async fn memory_admits_as_many_in_any_order() {
    let test = "property::memory_admits_as_many_in_any_order";
    check_orders(test, &Host::Memory, MEMORY_STREAMS / 4).await;
}

#[tokio::test]
async fn redis_admits_as_many_in_any_order() {
    let test = "property::redis_admits_as_many_in_any_order";
    let server = RedisServer::start(Options::default());
    check_orders(test, &Host::Redis(server), REDIS_STREAMS / 4).await;
}

/// Random positions never lie exactly at the radius.
#[tokio::test]
async fn jitter_reaches_as_far_as_its_radius() {
    // Along a meridian from the equator: there all ways to round the formula agree.
    let (here, there) = ((0.0, 10.0), (0.0001, 10.0));
    let position = |(latitude, longitude)| Position::new(latitude, longitude).unwrap();
    let ping = |(latitude, longitude), time_ns| Event {
        identity: Identity::Ping { asset: "a".into() },
        time: Time::Nanos(time_ns),
        ingested_at: None,
        position: oracle::Position::LatLng {
            latitude: Some(latitude),
            longitude: Some(longitude),
        },
        content_hash: None,
    };
    let mut stream = Stream::random_within(scope_on(&Host::Memory), 0, 1);
    stream.rules = Rules {
        accepts_transitions: false,
        accepts_pings: true,
        accepts_keyed: false,
        window: Window::Tumbling {
            width_ns: 1_000_000_000,
            guard_ns: 0,
        },
        place: Some(Place {
            resolution: 1,
            guard_m: 0.0,
            jitter_radius_m: position(here).distance_m(position(there)),
            region: None,
        }),
        ttl_ms: 1000,
        lease_ms: 0,
        max_future_ns: None,
        max_age_ns: None,
        clamp: false,
        mismatch_dead_letters: false,
        shadow: false,
    };
    stream.steps[0].act = Act::Admit {
        events: vec![ping(here, 0), ping(there, 1)],
        omit_claims: false,
    };
    play(&stream, &Host::Memory).await.unwrap();
}

/// What the product has today, on the host's grid of time.
pub(crate) const fn scope_on(host: &Host) -> Scope {
    Scope {
        sessions: true,
        space_guards: true,
        projections: true,
        tick_ms: host.tick_ms(),
    }
}

/// Says how many events were decided by what was remembered.
async fn check_streams(test: &'static str, host: &Host, default_streams: u64) -> u64 {
    let mut known = 0;
    for seed in seeds(default_streams) {
        let _playing = Playing { test, seed };
        let mut stream = Stream::random_within(scope_on(host), seed, STEPS);
        if !matches!(host, Host::Redis(_)) {
            // Nothing else can write there, or it is not noticed at once.
            stream
                .steps
                .retain(|step| !matches!(step.act, Act::Foreign { .. }));
        }
        let first = match play(&stream, host).await {
            Ok(events) => {
                known += events;
                continue;
            }
            Err(first) => first,
        };
        let stream = shrunk(stream, host).await;
        let Err(disagreement) = play(&stream, host).await else {
            panic!("at times, a race: {first}\n{}", excerpt(&stream));
        };
        panic!("{disagreement}\n{}", excerpt(&stream));
    }
    known
}

/// Both judges over one stream; the first disagreement. If there is none, how many events were
/// decided by what was remembered.
async fn play(stream: &Stream, host: &Host) -> Result<u64, String> {
    let Some(first) = stream.steps.first() else {
        return Ok(0);
    };
    let policy = policy_of(&stream.rules, stream.seed);
    let start_unix_ns = first.now_unix_ns - first.now_ms as i64 * 1_000_000;
    let mut both = Both {
        oracle: Oracle::new(stream.rules.clone()),
        product: host.world(policy, start_unix_ns).await,
        claims: Vec::new(),
        with_request_ids: stream.seed % 4 < 2,
    };
    let mut now_ms = 0;
    for (number, step) in stream.steps.iter().enumerate() {
        both.product.pass(step.now_ms - now_ms).await;
        now_ms = step.now_ms;
        both.take(number, step)
            .await
            .map_err(|disagreement| format!("step {number}: {disagreement}"))?;
    }
    Ok(both.product.known())
}

struct Both {
    oracle: Oracle,
    product: World,
    /// As handed out: the oracle's number and the product's token.
    claims: Vec<(usize, Vec<u8>)>,
    with_request_ids: bool,
}

impl Both {
    async fn take(&mut self, number: usize, step: &Step) -> Result<(), String> {
        match &step.act {
            Act::Admit {
                events,
                omit_claims,
            } => self.admit(number, step, events, *omit_claims).await,
            Act::Settle { settle, claims_ago } => {
                let Some((claim, token)) = self.claims.iter().rev().nth(*claims_ago) else {
                    return Ok(());
                };
                let action = action_of(*settle);
                let expected = match settle {
                    Settle::Confirm => self.oracle.confirm(step.now_ms, *claim),
                    Settle::Release => self.oracle.release(step.now_ms, *claim),
                    Settle::Renew => self.oracle.renew(step.now_ms, *claim),
                };
                let settled = self.product.settle(action, &[token]).await;
                same("settlement", &expected, &outcome_name(settled[0]))
            }
            Act::Foreign { event, ttl_ms } => {
                let expected =
                    self.oracle
                        .place_foreign(step.now_ms, step.now_unix_ns, event, *ttl_ms);
                let event = raw_event(event);
                // By the clock, so that it stays the same while the stream is cut down.
                let mut dice = Dice::new(step.now_ms);
                let placed = self.product.place_foreign(&event, *ttl_ms, &mut dice).await;
                same("has a primary key", &expected, &placed)
            }
        }
    }

    async fn admit(
        &mut self,
        number: usize,
        step: &Step,
        events: &[Event],
        omit_claims: bool,
    ) -> Result<(), String> {
        let (now_ms, now_unix_ns) = (step.now_ms, step.now_unix_ns);
        let expected = self.oracle.admit(now_ms, now_unix_ns, events, omit_claims);
        self.oracle.promises()?;
        let raw = raw_events(events);
        let explained = self.product.explain(&raw[0]).await;
        same(
            "reason by explain",
            &expected[0].reason,
            &explained.verdict.reason.name(),
        )?;

        let request_id = self
            .with_request_ids
            .then_some((number as u128).to_be_bytes());
        let submitted = self.product.submit(request_id, omit_claims, &raw);
        let admission = submitted.finish().await;
        let (verdicts, is_shadow) = (admission.verdicts().to_vec(), admission.is_shadow());
        let tokens = deliver(admission);
        for (index, (verdict, token)) in verdicts.iter().zip(tokens).enumerate() {
            let expected = &expected[index];
            let answer = answer_of(verdict, token.is_some(), is_shadow);
            let comparable = Answer {
                claim: expected.claim.map(|_| 0),
                ..expected.clone()
            };
            same(&format!("event {index}"), &comparable, &answer)?;
            let waits = verdict.retry_after.is_some();
            same("has retry_after", &(expected.reason == "IN_FLIGHT"), &waits)?;
            self.claims.extend(expected.claim.zip(token));
        }
        Ok(())
    }
}

fn same<T: PartialEq + Debug>(what: &str, oracle: &T, product: &T) -> Result<(), String> {
    if oracle == product {
        return Ok(());
    }
    Err(format!("{what}\n oracle  {oracle:?}\n product {product:?}"))
}

/// Without the steps and events that the disagreement does not need.
async fn shrunk(mut stream: Stream, host: &Host) -> Stream {
    let mut at = stream.steps.len();
    while at > 0 {
        at -= 1;
        let mut less = stream.clone();
        less.steps.remove(at);
        if play(&less, host).await.is_err() {
            stream = less;
            continue;
        }
        let mut event = 0;
        while let Act::Admit { events, .. } = &stream.steps[at].act
            && event < events.len()
            && events.len() > 1
        {
            let mut less = stream.clone();
            if let Act::Admit { events, .. } = &mut less.steps[at].act {
                events.remove(event);
            }
            if play(&less, host).await.is_err() {
                stream = less;
            } else {
                event += 1;
            }
        }
    }
    stream
}

fn excerpt(stream: &Stream) -> String {
    let mut text = format!("{:?}\n", stream.rules);
    for (number, step) in stream.steps.iter().enumerate() {
        let Step {
            now_ms,
            now_unix_ns,
            act,
        } = step;
        let _ = writeln!(text, "step {number}, at {now_ms} ms, {now_unix_ns} ns:");
        let _ = match act {
            Act::Admit {
                events,
                omit_claims,
            } => {
                let lines: String = events
                    .iter()
                    .map(|event| format!("\n  {event:?}"))
                    .collect();
                writeln!(text, " admit, omit_claims {omit_claims}{lines}")
            }
            other => writeln!(text, " {other:?}"),
        };
    }
    text
}

/// Section 3: with neither guard the number of admissions does not depend on the order of arrival.
async fn check_orders(test: &'static str, host: &Host, default_streams: u64) {
    for seed in seeds(default_streams) {
        let _playing = Playing { test, seed };
        // What a session admits depends on the order: an event between two joins them.
        let scope = Scope {
            sessions: false,
            ..scope_on(host)
        };
        let mut stream = Stream::random_within(scope, seed, STEPS);
        if let Window::Tumbling { guard_ns, .. } = &mut stream.rules.window {
            *guard_ns = 0;
        }
        if let Some(place) = &mut stream.rules.place {
            place.guard_m = 0.0;
        }
        let mut events: Vec<Event> = Vec::new();
        for step in &stream.steps {
            if let Act::Admit { events: more, .. } = &step.act {
                events.extend_from_slice(more);
            }
        }
        let mut dice = Dice::new(seed);
        let as_written = admissions(&stream, &events, &mut dice, host).await;
        for _ in 0..2 {
            for end in (1..events.len()).rev() {
                let other = dice.below(end as u64 + 1) as usize;
                events.swap(end, other);
            }
            let shuffled = admissions(&stream, &events, &mut dice, host).await;
            assert_eq!(shuffled, as_written, "{:?}\n{events:#?}", stream.rules);
        }
    }
}

/// All at one moment, in requests of a few events.
async fn admissions(stream: &Stream, events: &[Event], dice: &mut Dice, host: &Host) -> usize {
    let policy = policy_of(&stream.rules, stream.seed);
    let world = host.world(policy, stream.steps[0].now_unix_ns).await;
    let mut admitted = 0;
    let mut rest = events;
    while !rest.is_empty() {
        let (request, after) = rest.split_at(rest.len().min(1 + dice.below(40) as usize));
        rest = after;
        let admission = world
            .submit(None, false, &raw_events(request))
            .finish()
            .await;
        let reasons = admission
            .verdicts()
            .iter()
            .map(|verdict| verdict.reason.name());
        admitted += reasons
            .filter(|reason| matches!(*reason, "FIRST_SEEN" | "LATE"))
            .count();
        admission.delivered();
    }
    admitted
}
