//! A strategy at work, in the trace's own time.

use std::{sync::Arc, time::Duration};

use futures_util::FutureExt;

use super::{
    baseline::{ExpiringKeys, Living},
    strategy::Rule,
    trace::{TraceBatch, TraceEvent},
    truth::Fate,
};
use crate::{
    clock::Clock,
    domain::{
        event::RawEvent,
        identity::{RawIdentity, RawTransitionKind},
        policy::Window,
        reason::{Decision, Reason},
        time::{EventTime, RawTime},
    },
    engine::{Engine, RequestFault, admit::AdmitOptions},
    store::{Store, memory::MemoryStore},
};

/// Ticks of the embedded store in one TTL. Thirty-two of them pass over all its tables; the hand
/// that moves at every claim forgets most of what expired before they do.
const TICKS_PER_TTL: u32 = 64;
/// After more than these every claim of before has been looked at.
const MAX_TICKS_AT_ONCE: u64 = 64;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Said {
    pub fate: Fate,
    pub reason: Reason,
}

impl Said {
    pub const fn of(reason: Reason) -> Self {
        let fate = match reason.decision() {
            Decision::Admit => Fate::Admitted,
            Decision::Suppress => Fate::Suppressed,
            Decision::Retry | Decision::DeadLetter => Fate::Refused,
        };
        Self { fate, reason }
    }

    const fn first_or_not(first: bool) -> Self {
        Self::of(if first {
            Reason::FirstSeen
        } else {
            Reason::Redelivery
        })
    }
}

/// The trace and the strategy do not go together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum DecideFault {
    #[error("the claims do not fit into {0} bytes: allow more by --max-memory, or shorten the TTL")]
    NoRoom(u64),
    #[error("{0}")]
    Refused(String),
}

#[derive(Debug)]
pub struct Decider {
    clock: Clock,
    started_at_ns: i64,
    max_bytes: u64,
    work: Work,
    key: Vec<u8>,
}

#[derive(Debug)]
enum Work {
    None,
    Keys { keys: ExpiringKeys, made_of: MadeOf },
    Engine(Box<Embedded>),
}

#[derive(Clone, Copy, Debug)]
enum MadeOf {
    Identity,
    IdentityAndTime,
    TwoBuckets { width_ns: i64, guard_ns: i64 },
}

/// The engine that serves, on the embedded store.
#[derive(Debug)]
struct Embedded {
    engine: Arc<Engine>,
    store: Arc<MemoryStore>,
    namespace: String,
    tick_ns: u64,
    ticked: u64,
    /// `None` where suppressed events live on too: the store's count has to do.
    living: Option<Living>,
    peak_claims: u64,
    peak_bytes: u64,
}

impl Decider {
    /// `max_bytes` bounds what holds the claims, `max_events` the events of one batch.
    pub fn new(rule: &Rule, started_at_ns: i64, max_bytes: u64, max_events: usize) -> Self {
        let clock = Clock::manual(EventTime::from_unix_nanos(started_at_ns));
        let keys = |ttl: &Duration, made_of| Work::Keys {
            keys: ExpiringKeys::new(ttl_ms(*ttl)),
            made_of,
        };
        let work = match rule {
            Rule::None => Work::None,
            Rule::IdentityOnly { ttl } => keys(ttl, MadeOf::Identity),
            Rule::RawTime { ttl } => keys(ttl, MadeOf::IdentityAndTime),
            &Rule::TwoKeys {
                width_ns,
                guard_ns,
                ref ttl,
            } => keys(ttl, MadeOf::TwoBuckets { width_ns, guard_ns }),
            Rule::Namespace(policy) => {
                let store = Arc::new(MemoryStore::new(clock.clone(), max_bytes));
                let policies = vec![Arc::clone(policy)];
                let shared = Arc::clone(&store) as Arc<dyn Store>;
                let engine = Engine::new(policies, shared, clock.clone(), max_events);
                engine.breaker().probe_answered();
                let living = match policy.window() {
                    Window::None | Window::Buckets { .. } => {
                        Some(Living::new(ttl_ms(policy.ttl())))
                    }
                    Window::Session { .. } => None,
                };
                Work::Engine(Box::new(Embedded {
                    engine: Arc::new(engine),
                    store,
                    namespace: policy.name().to_string(),
                    tick_ns: (policy.ttl() / TICKS_PER_TTL).as_nanos().max(1) as u64,
                    ticked: 0,
                    living,
                    peak_claims: 0,
                    peak_bytes: 0,
                }))
            }
        };
        Self {
            clock,
            started_at_ns,
            max_bytes,
            work,
            key: Vec::new(),
        }
    }

    /// Moves the trace's time on; what arrived earlier than what is known already moves nothing.
    pub fn advance(&mut self, now_ns: i64) {
        let since = u64::try_from(now_ns.saturating_sub(self.started_at_ns)).unwrap_or(0);
        let elapsed = self.clock.monotonic().as_nanos() as u64;
        self.clock
            .advance(Duration::from_nanos(since.saturating_sub(elapsed)));
        if let Work::Engine(embedded) = &mut self.work {
            let due = since / embedded.tick_ns;
            for _ in 0..due.saturating_sub(embedded.ticked).min(MAX_TICKS_AT_ONCE) {
                embedded.store.tick();
            }
            embedded.ticked = embedded.ticked.max(due);
        }
    }

    /// Decides a batch, all of whose events arrive at the time that [`Self::advance`] was told.
    pub fn decide(&mut self, batch: &TraceBatch, said: &mut Vec<Said>) -> Result<(), DecideFault> {
        said.clear();
        let now_ms = self.clock.monotonic_ms();
        match &mut self.work {
            Work::None => said.extend(batch.events().map(|_| Said::of(Reason::FirstSeen))),
            Work::Keys { keys, made_of } => {
                for TraceEvent { event, .. } in batch.events() {
                    said.push(made_of.decide(&event, keys, now_ms, &mut self.key));
                }
                if keys.bytes() > self.max_bytes {
                    return Err(DecideFault::NoRoom(self.max_bytes));
                }
            }
            Work::Engine(embedded) => embedded.admit(batch, self.max_bytes, said)?,
        }
        Ok(())
    }

    /// Counts what is held after a batch.
    pub fn measure(&mut self, said: &[Said]) {
        if let Work::Engine(embedded) = &mut self.work {
            embedded.measure(said, self.clock.monotonic_ms());
        }
    }

    /// Most claims held at a time, and the bytes of what holds them.
    pub fn peak(&self) -> (u64, u64) {
        match &self.work {
            Work::None => (0, 0),
            Work::Keys { keys, .. } => (keys.peak(), keys.bytes()),
            Work::Engine(embedded) => {
                let living = embedded.living.as_ref();
                let claims = living.map_or(embedded.peak_claims, Living::peak);
                (claims, embedded.peak_bytes)
            }
        }
    }
}

fn ttl_ms(ttl: Duration) -> u64 {
    u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX / 2)
}

impl Embedded {
    fn admit(
        &self,
        batch: &TraceBatch,
        max_bytes: u64,
        said: &mut Vec<Said>,
    ) -> Result<(), DecideFault> {
        let options = AdmitOptions {
            namespace: &self.namespace,
            request_id: None,
            omit_claims: true,
        };
        let refused = |fault: RequestFault| DecideFault::Refused(fault.to_string());
        let events = batch.events().map(|event| event.event);
        let prepared = self.engine.prepare(options, events).map_err(refused)?;
        let admitting = self.engine.submit(prepared).map_err(refused)?;
        let Some(admission) = admitting.finish().now_or_never() else {
            let message = "the embedded store did not answer at once";
            return Err(DecideFault::Refused(message.to_owned()));
        };
        let verdicts = admission.verdicts().iter();
        said.extend(verdicts.map(|verdict| Said::of(verdict.reason)));
        admission.delivered();
        // The one error of the embedded store: it is full.
        let undecided = [
            Reason::FailOpen,
            Reason::StoreUnavailable,
            Reason::Overloaded,
        ];
        if said.iter().any(|said| undecided.contains(&said.reason)) {
            return Err(DecideFault::NoRoom(max_bytes));
        }
        Ok(())
    }

    fn measure(&mut self, said: &[Said], now_ms: u64) {
        let stats = self.store.stats();
        self.peak_claims = self.peak_claims.max(stats.claims.unwrap_or(0));
        self.peak_bytes = self.peak_bytes.max(stats.bytes.unwrap_or(0));
        if let Some(living) = &mut self.living {
            let admitted = said.iter().filter(|said| said.fate == Fate::Admitted);
            living.add(admitted.count() as u64, now_ms);
        }
    }
}

impl MadeOf {
    fn decide(
        self,
        event: &RawEvent<'_>,
        keys: &mut ExpiringKeys,
        now_ms: u64,
        key: &mut Vec<u8>,
    ) -> Said {
        write_identity(event, key);
        let time_ns = match event.time {
            RawTime::UnixNanos(time_ns) => time_ns,
            RawTime::Unset | RawTime::Text(_) | RawTime::Timestamp { .. } => 0,
        };
        let identity_len = key.len();
        let mut set = |number: i64| {
            key.truncate(identity_len);
            key.extend_from_slice(&number.to_be_bytes());
            keys.set_if_absent(key, now_ms)
        };
        Said::first_or_not(match self {
            MadeOf::Identity => set(0),
            MadeOf::IdentityAndTime => set(time_ns),
            MadeOf::TwoBuckets { width_ns, guard_ns } => {
                let (bucket, offset) = (time_ns.div_euclid(width_ns), time_ns.rem_euclid(width_ns));
                let own = set(bucket);
                // Both are set in one transaction: the second whatever became of the first.
                let beside = if offset < guard_ns {
                    set(bucket - 1)
                } else if offset > width_ns - guard_ns {
                    set(bucket + 1)
                } else {
                    true
                };
                own && beside
            }
        })
    }
}

/// Device, fence and kind; asset; or id.
fn write_identity(event: &RawEvent<'_>, out: &mut Vec<u8>) {
    out.clear();
    match event.identity {
        RawIdentity::Unset => {}
        RawIdentity::Transition {
            device_id,
            fence_id,
            kind,
            ..
        } => {
            out.extend_from_slice(device_id.as_bytes());
            out.push(b'|');
            out.extend_from_slice(fence_id.as_bytes());
            out.push(b'|');
            if let Some(RawTransitionKind::Known(kind)) = kind {
                out.push(kind.letter());
            }
        }
        RawIdentity::Ping { asset_id } => out.extend_from_slice(asset_id.as_bytes()),
        RawIdentity::Keyed { event_id } => out.extend_from_slice(event_id.as_bytes()),
    }
}
