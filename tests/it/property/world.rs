//! The product on a store whose time moves by hand.
//!
//! In memory that is the clock which engine and store share. Redis has no simulated clock: there a
//! script takes the step from the remaining time of every key, rounded up to the next tick before,
//! so that the milliseconds which the test itself takes do not matter. All TTLs, leases and steps
//! are therefore multiples of the tick.

use std::{
    sync::Arc,
    time::{Duration, Instant},
};

use dedupd::{
    clock::Clock,
    domain::{
        claim::SettleAction,
        event::{Event, RawEvent},
        plan::Planner,
        policy::Policy,
        time::EventTime,
    },
    engine::{
        Engine,
        admit::{Admission, AdmitOptions, Admitting},
        explain::Explanation,
        known::KnownOptions,
        settle::Settlement,
    },
    store::{
        Store,
        memory::MemoryStore,
        redis::{RedisOptions, RedisStore},
    },
};
use redis::aio::MultiplexedConnection;

use super::translate::NAMESPACE;
use crate::{oracle::streams::Dice, support::redis::RedisServer};

/// Far more than a busy machine ever stalls.
const REDIS_TICK_MS: u64 = 10_000;
const REDIS_BUDGET: Duration = Duration::from_secs(10);

/// To be lifted: a value that begins like a record of this version but is not one (too short or too
/// long for its flags), on a neighbour's key, near in time. It is foreign, so the event is to be
/// admitted (section 3); claim.lua takes it for a claim, the domain does not, and the event becomes
/// `STORE_UNAVAILABLE`.
const WITH_MALFORMED_RECORDS: bool = true;

const PASS: &str = "
local tick, step = tonumber(ARGV[1]), tonumber(ARGV[2])
for _, key in ipairs(redis.call('KEYS', '*')) do
  local left = redis.call('PTTL', key)
  if left >= 0 then
    left = math.ceil(left / tick) * tick - step
    if left > 0 then redis.call('PEXPIRE', key, left) else redis.call('DEL', key) end
  end
end";

/// Where worlds are made.
pub(crate) enum Host {
    Memory,
    Redis(RedisServer),
    /// Confirmed claims are remembered by the engine.
    Remembering(RedisServer, KnownOptions),
}

/// Until the next tick: what has expired or was changed in Redis by then is not remembered.
pub(crate) const WITHIN_A_TICK: Duration = Duration::from_millis(REDIS_TICK_MS - 1);

impl Host {
    pub(crate) const fn tick_ms(&self) -> u64 {
        match self {
            Host::Memory => 1,
            Host::Redis(_) | Host::Remembering(..) => REDIS_TICK_MS,
        }
    }

    /// An empty world of one namespace, its clock at the given time.
    pub(crate) async fn world(&self, policy: Arc<Policy>, start_unix_ns: i64) -> World {
        let clock = Clock::manual(EventTime::from_unix_nanos(start_unix_ns));
        let (store, server): (Arc<dyn Store>, _) = match self {
            Host::Memory => (Arc::new(MemoryStore::new(clock.clone(), 1 << 30)), None),
            Host::Redis(server) | Host::Remembering(server, _) => {
                let client = redis::Client::open(server.url()).unwrap();
                let mut connection = client.get_multiplexed_async_connection().await.unwrap();
                let flush = redis::cmd("FLUSHALL");
                flush.exec_async(&mut connection).await.unwrap();
                let (store, work) = RedisStore::new(RedisOptions {
                    target: server.target(),
                    budget: REDIS_BUDGET,
                    schemes: [policy.scheme().clone()].into(),
                    max_queued_events: 10_000,
                });
                tokio::spawn(work);
                (Arc::new(store), Some(connection))
            }
        };
        let mut engine = Engine::new(vec![Arc::clone(&policy)], store, clock.clone(), 5000);
        if let Host::Remembering(_, options) = self {
            engine = engine.with_known_claims(*options);
        }
        engine.breaker().probe_answered();
        let world = World {
            engine: Arc::new(engine),
            policy,
            clock,
            server,
            tick_ms: self.tick_ms(),
        };
        world.come_to_rest().await;
        world
    }
}

pub(crate) struct World {
    pub(crate) engine: Arc<Engine>,
    policy: Arc<Policy>,
    clock: Clock,
    server: Option<MultiplexedConnection>,
    tick_ms: u64,
}

impl World {
    /// On Redis to be called at least once a tick, if only with a step of 0.
    pub(crate) async fn pass(&mut self, step_ms: u64) {
        self.clock.advance(Duration::from_millis(step_ms));
        if let Some(server) = &mut self.server {
            let mut pass = redis::cmd("EVAL");
            pass.arg(PASS).arg(0).arg(self.tick_ms).arg(step_ms);
            pass.exec_async(server).await.unwrap();
        }
    }

    /// Events that were decided by what is remembered.
    pub(crate) fn known(&self) -> u64 {
        self.engine.namespaces()[0].counters().known()
    }

    pub(crate) fn submit(
        &self,
        request_id: Option<[u8; 16]>,
        omit_claims: bool,
        events: &[RawEvent<'_>],
    ) -> Admitting {
        let options = AdmitOptions {
            namespace: NAMESPACE,
            request_id,
            omit_claims,
        };
        let prepared = self.engine.prepare(options, events.iter().copied());
        let prepared = prepared.expect("a good request");
        self.engine.submit(prepared).expect("room in the queue")
    }

    /// Returns when the store is connected and all that was submitted has been decided, also what
    /// nobody waits for.
    pub(crate) async fn come_to_rest(&self) {
        let started = Instant::now();
        while let Err(error) = self.engine.store().probe().await {
            assert!(started.elapsed() < REDIS_BUDGET, "{error}");
        }
    }

    pub(crate) async fn settle(
        &self,
        action: SettleAction,
        tokens: &[impl AsRef<[u8]>],
    ) -> Vec<Settlement> {
        let tokens = tokens.iter().map(AsRef::as_ref);
        let settling = self.engine.settle(action, tokens);
        settling.expect("room in the queue").finish().await
    }

    pub(crate) async fn explain(&self, event: &RawEvent<'_>) -> Explanation {
        let explaining = self.engine.explain(NAMESPACE, event);
        explaining.expect("a known namespace").await
    }

    /// Something else writes to the primary key of the event. False where the event is faulty.
    /// For worlds on Redis.
    pub(crate) async fn place_foreign(
        &mut self,
        event: &RawEvent<'_>,
        ttl_ms: Option<u64>,
        dice: &mut Dice,
    ) -> bool {
        let Ok(event) = Event::new(event, &self.policy, self.clock.now()) else {
            return false;
        };
        let mut planner = Planner::new(&self.policy, 1);
        planner.plan(&event, 0);
        let batch = planner.finish();
        let plan = &batch.plans()[0];
        let mut key = Vec::new();
        let scheme = self.policy.scheme();
        scheme.write_key(batch.primary(plan), plan.partition(), &mut key);
        let value = dice.pick(&foreign_values(event.time()));
        let mut set = redis::cmd("SET");
        set.arg(key).arg(value);
        if let Some(ttl_ms) = ttl_ms {
            set.arg("PX").arg(ttl_ms);
        }
        let server = self.server.as_mut().expect("a world on Redis");
        set.exec_async(server).await.unwrap();
        true
    }
}

/// What no dedupd of this version wrote: texts, nearly records, a settled record of a newer version.
fn foreign_values(time: Option<EventTime>) -> Vec<Vec<u8>> {
    let bits = time.map_or(0, EventTime::unix_nanos) as u64 ^ 1 << 63;
    let record = |head: u8, flags: u8, tail: &[u8]| {
        let nonce = *b"a nonce!";
        let head = [&[head][..], &nonce, &[flags]].concat();
        [&head[..], &bits.to_be_bytes(), tail].concat()
    };
    let mut values = vec![
        b"1".to_vec(),
        Vec::new(),
        b"{\"processed_at\":1700000040}".to_vec(),
        vec![0x81],
        record(0x71, 1, &[]),
        record(0x80, 1, &[]),
        record(0x84, 1, &[]),
        record(0x93, 1, &[]),
        record(0x83, 16 + 1, &[]),
    ];
    if WITH_MALFORMED_RECORDS {
        values.extend([
            record(0x83, 1, b"x"),
            record(0x82, 2 + 1, &[]),
            record(0x81, 4 + 1, &[]),
        ]);
    }
    values
}

/// Hands the answer over: the claims stand. The tokens, one place for each event.
pub(crate) fn deliver(admission: Admission) -> Vec<Option<Vec<u8>>> {
    let tokens = tokens_of(&admission);
    admission.delivered();
    tokens
}

pub(crate) fn tokens_of(admission: &Admission) -> Vec<Option<Vec<u8>>> {
    let bytes_of = |token: dedupd::domain::token::Token<'_>| {
        let mut bytes = Vec::new();
        token.encode(&mut bytes);
        bytes
    };
    let tokens = admission.answers().map(|(_, token)| token.map(bytes_of));
    tokens.collect()
}
