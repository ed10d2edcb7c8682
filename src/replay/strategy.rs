//! Ways to tell copies, to be compared on one trace.

use std::{fmt, sync::Arc, time::Duration};

use futures_util::FutureExt;

use super::{
    baseline::ExpiringKeys,
    trace::{TraceBatch, TraceEvent},
};
use crate::{
    clock::Clock,
    domain::{
        event::RawEvent,
        identity::{RawIdentity, RawTransitionKind},
        policy::Policy,
        reason::Reason,
        time::{EventTime, RawTime},
    },
    engine::{Engine, RequestFault, admit::AdmitOptions},
    store::{Store, memory::MemoryStore},
};

/// How often the embedded store is told to let go of what has expired, in simulated time.
const TICK: Duration = Duration::from_secs(1);
/// More seconds than that are not made up for one by one: every claim of before has been looked at.
const MAX_TICKS_AT_ONCE: u64 = 64;

/// How copies are told.
#[derive(Clone, Debug)]
pub enum Rule {
    /// Everything is admitted.
    None,
    /// By identity alone, whatever the time.
    IdentityOnly { ttl: Duration },
    /// The transitions document's own: the keys of the bucket and, near its edge, of the next one
    /// are set together, and any that stood already suppresses.
    TwoKeys {
        width_ns: i64,
        guard_ns: i64,
        ttl: Duration,
    },
    /// A namespace of dedupd.
    Namespace(Arc<Policy>),
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Rule::None => f.write_str("everything is admitted"),
            Rule::IdentityOnly { ttl } => write!(f, "identity alone, TTL {ttl:?}"),
            Rule::TwoKeys {
                width_ns,
                guard_ns,
                ttl,
            } => write!(
                f,
                "keys of the bucket and, near its edge, of the next one; width {:?}, guard {:?}, TTL {ttl:?}",
                Duration::from_nanos(width_ns.unsigned_abs()),
                Duration::from_nanos(guard_ns.unsigned_abs()),
            ),
            Rule::Namespace(policy) => {
                write!(f, "{}, TTL {:?}", policy.contract(), policy.ttl())
            }
        }
    }
}

#[derive(Clone, Debug)]
pub struct Strategy {
    pub name: String,
    pub rule: Rule,
}

/// What was said about one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Said {
    Admitted(Reason),
    Suppressed(Reason),
    /// Not an event that it can decide about.
    Refused(Reason),
}

/// A strategy at work.
#[derive(Debug)]
pub struct Decider {
    clock: Clock,
    started_at_ns: Option<i64>,
    ticked: u64,
    work: Work,
    key: Vec<u8>,
}

#[derive(Debug)]
enum Work {
    None,
    IdentityOnly(ExpiringKeys),
    TwoKeys {
        keys: ExpiringKeys,
        width_ns: i64,
        guard_ns: i64,
    },
    Engine {
        engine: Arc<Engine>,
        store: Arc<MemoryStore>,
        name: String,
        peak: (u64, u64),
    },
}

/// The trace and the strategy do not go together.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0}")]
pub struct StrategyFault(pub String);

impl Decider {
    /// `max_bytes` bounds the claims of a namespace; `max_events` those of one batch.
    pub fn new(rule: &Rule, max_bytes: u64, max_events: usize) -> Self {
        let clock = Clock::manual(EventTime::from_unix_nanos(0));
        let keys = |ttl: &Duration| {
            ExpiringKeys::new(u64::try_from(ttl.as_millis()).unwrap_or(u64::MAX / 2))
        };
        let work = match rule {
            Rule::None => Work::None,
            Rule::IdentityOnly { ttl } => Work::IdentityOnly(keys(ttl)),
            Rule::TwoKeys {
                width_ns,
                guard_ns,
                ttl,
            } => Work::TwoKeys {
                keys: keys(ttl),
                width_ns: *width_ns,
                guard_ns: *guard_ns,
            },
            Rule::Namespace(policy) => {
                let store = Arc::new(MemoryStore::new(clock.clone(), max_bytes));
                let engine = Engine::new(
                    vec![Arc::clone(policy)],
                    Arc::clone(&store) as Arc<dyn Store>,
                    clock.clone(),
                    max_events,
                );
                engine.breaker().probe_answered();
                Work::Engine {
                    engine: Arc::new(engine),
                    store,
                    name: policy.name().to_string(),
                    peak: (0, 0),
                }
            }
        };
        Self {
            clock,
            started_at_ns: None,
            ticked: 0,
            work,
            key: Vec::new(),
        }
    }

    /// Decides a batch, all of whose events arrive at once: when its first one does.
    pub fn decide(
        &mut self,
        batch: &TraceBatch,
        said: &mut Vec<Said>,
    ) -> Result<(), StrategyFault> {
        said.clear();
        let Some(now_ns) = batch.arrived_at_ns() else {
            return Ok(());
        };
        self.advance(now_ns);
        let now_ms = self.clock.monotonic_ms();
        let key = &mut self.key;
        match &mut self.work {
            Work::None => said.extend(batch.events().map(|_| Said::Admitted(Reason::FirstSeen))),
            Work::IdentityOnly(keys) => {
                for TraceEvent { event, .. } in batch.events() {
                    write_identity(&event, key);
                    said.push(first_or_not(keys.set_if_absent(key, now_ms)));
                }
            }
            Work::TwoKeys {
                keys,
                width_ns,
                guard_ns,
            } => {
                for TraceEvent { event, .. } in batch.events() {
                    said.push(two_keys(&event, keys, *width_ns, *guard_ns, now_ms, key));
                }
            }
            Work::Engine {
                engine,
                store,
                name,
                peak,
            } => {
                admit(engine, name, batch, said)?;
                let stats = store.stats();
                peak.0 = peak.0.max(stats.claims.unwrap_or(0));
                peak.1 = peak.1.max(stats.bytes.unwrap_or(0));
            }
        }
        Ok(())
    }

    /// Most claims held at a time, and their bytes.
    pub fn peak(&self) -> (u64, u64) {
        match &self.work {
            Work::None => (0, 0),
            Work::IdentityOnly(keys) | Work::TwoKeys { keys, .. } => keys.peak(),
            Work::Engine { peak, .. } => *peak,
        }
    }

    fn advance(&mut self, now_ns: i64) {
        let started = *self.started_at_ns.get_or_insert(now_ns);
        let since = u64::try_from(now_ns.saturating_sub(started)).unwrap_or(0);
        let elapsed = self.clock.monotonic().as_nanos() as u64;
        // Arrival times that go back stand still.
        self.clock
            .advance(Duration::from_nanos(since.saturating_sub(elapsed)));
        let due = since / TICK.as_nanos() as u64;
        if let Work::Engine { store, .. } = &self.work {
            for _ in 0..due.saturating_sub(self.ticked).min(MAX_TICKS_AT_ONCE) {
                store.tick();
            }
        }
        self.ticked = self.ticked.max(due);
    }
}

fn admit(
    engine: &Arc<Engine>,
    namespace: &str,
    batch: &TraceBatch,
    said: &mut Vec<Said>,
) -> Result<(), StrategyFault> {
    let options = AdmitOptions {
        namespace,
        request_id: None,
        omit_claims: true,
    };
    let fault = |fault: RequestFault| StrategyFault(fault.to_string());
    let events = batch.events().map(|event| event.event);
    let prepared = engine.prepare(options, events).map_err(fault)?;
    let admitting = engine.submit(prepared).map_err(fault)?;
    let Some(admission) = admitting.finish().now_or_never() else {
        return Err(StrategyFault(
            "the embedded store did not answer at once".to_owned(),
        ));
    };
    for verdict in admission.verdicts() {
        use crate::domain::reason::Decision;
        said.push(match verdict.reason.decision() {
            Decision::Admit => Said::Admitted(verdict.reason),
            Decision::Suppress => Said::Suppressed(verdict.reason),
            Decision::Retry | Decision::DeadLetter => Said::Refused(verdict.reason),
        });
    }
    admission.delivered();
    Ok(())
}

const fn first_or_not(first: bool) -> Said {
    if first {
        Said::Admitted(Reason::FirstSeen)
    } else {
        Said::Suppressed(Reason::Redelivery)
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

fn two_keys(
    event: &RawEvent<'_>,
    keys: &mut ExpiringKeys,
    width_ns: i64,
    guard_ns: i64,
    now_ms: u64,
    key: &mut Vec<u8>,
) -> Said {
    let RawTime::UnixNanos(time_ns) = event.time else {
        return Said::Refused(Reason::MissingTime);
    };
    let (bucket, offset) = (time_ns.div_euclid(width_ns), time_ns.rem_euclid(width_ns));
    let mut set = |bucket: i64| {
        write_identity(event, key);
        key.extend_from_slice(&bucket.to_be_bytes());
        keys.set_if_absent(key, now_ms)
    };
    let mut first = set(bucket);
    if offset < guard_ns {
        first &= set(bucket - 1);
    } else if offset > width_ns - guard_ns {
        first &= set(bucket + 1);
    }
    first_or_not(first)
}
