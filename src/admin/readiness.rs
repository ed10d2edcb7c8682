//! Whether this instance wants traffic.
//!
//! Ready means listening and configured, not that the store is there: a sidecar that goes unready
//! with its store takes the whole fleet out at once. Only the first contact is waited for, and not
//! for long, since that is where a contract mismatch shows.

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicU8, Ordering},
    },
};

use crate::engine::Engine;

/// In the order in which they are passed through; none is returned to.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    Starting = 0,
    AwaitingStore = 1,
    Serving = 2,
    Draining = 3,
}

#[derive(Debug)]
pub struct Readiness {
    phase: AtomicU8,
    engine: Arc<Engine>,
}

/// Why there should be no traffic, for people.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum NotReady {
    Starting,
    AwaitingStore,
    Draining,
    /// Names, each with the reason.
    Refused(Vec<(String, Arc<String>)>),
}

impl Readiness {
    pub fn new(engine: Arc<Engine>) -> Self {
        Self {
            phase: AtomicU8::new(Phase::Starting as u8),
            engine,
        }
    }

    /// Goes on to `phase`; does nothing if it has passed it already.
    pub fn advance(&self, phase: Phase) {
        self.phase.fetch_max(phase as u8, Ordering::AcqRel);
    }

    fn phase(&self) -> Phase {
        match self.phase.load(Ordering::Acquire) {
            0 => Phase::Starting,
            1 => Phase::AwaitingStore,
            2 => Phase::Serving,
            _ => Phase::Draining,
        }
    }

    pub fn check(&self) -> Result<(), NotReady> {
        match self.phase() {
            Phase::Starting => Err(NotReady::Starting),
            Phase::AwaitingStore => Err(NotReady::AwaitingStore),
            Phase::Draining => Err(NotReady::Draining),
            Phase::Serving => {
                let refused: Vec<(String, Arc<String>)> = self
                    .engine
                    .namespaces()
                    .iter()
                    .filter_map(|ns| Some((ns.policy().name().to_string(), ns.refused()?)))
                    .collect();
                if refused.is_empty() {
                    Ok(())
                } else {
                    Err(NotReady::Refused(refused))
                }
            }
        }
    }
}

impl fmt::Display for NotReady {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            NotReady::Starting => f.write_str("not ready: starting"),
            NotReady::AwaitingStore => {
                f.write_str("not ready: waiting for the first contact with the store")
            }
            NotReady::Draining => f.write_str("not ready: draining"),
            NotReady::Refused(namespaces) => {
                f.write_str("not ready: another contract stands in the store")?;
                namespaces
                    .iter()
                    .try_for_each(|(name, why)| write!(f, "\n{name}: {why}"))
            }
        }
    }
}
