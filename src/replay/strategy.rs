//! Ways to tell copies, to be compared on one trace.

use std::{fmt, sync::Arc, time::Duration};

use crate::domain::policy::{Policy, Window};

/// How copies are told.
#[derive(Clone, Debug)]
pub enum Rule {
    /// Everything is admitted.
    None,
    /// By identity alone, whatever the time.
    IdentityOnly { ttl: Duration },
    /// By identity and the time as it came.
    RawTime { ttl: Duration },
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

#[derive(Clone, Debug)]
pub struct Strategy {
    pub name: String,
    pub rule: Rule,
}

impl Rule {
    /// How long what was admitted is remembered.
    pub fn ttl(&self) -> Option<Duration> {
        match self {
            Rule::None => None,
            Rule::IdentityOnly { ttl } | Rule::RawTime { ttl } | Rule::TwoKeys { ttl, .. } => {
                Some(*ttl)
            }
            Rule::Namespace(policy) => Some(policy.ttl()),
        }
    }
}

impl fmt::Display for Rule {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let nanos = |nanos: u64| Duration::from_nanos(nanos);
        match self {
            Rule::None => return f.write_str("everything is admitted"),
            Rule::IdentityOnly { .. } => f.write_str("identity alone")?,
            Rule::RawTime { .. } => f.write_str("identity and the time as it came")?,
            Rule::TwoKeys {
                width_ns, guard_ns, ..
            } => write!(
                f,
                "{:?} buckets, the key of the next one set too within {:?} of an edge",
                nanos(width_ns.unsigned_abs()),
                nanos(guard_ns.unsigned_abs())
            )?,
            Rule::Namespace(policy) => {
                match policy.window() {
                    Window::None => f.write_str("the event id")?,
                    Window::Buckets { width_ns, guard_ns } if width_ns == guard_ns => {
                        write!(f, "sliding {:?}", nanos(width_ns))?;
                    }
                    Window::Buckets { width_ns, guard_ns } => {
                        write!(f, "{:?} buckets", nanos(width_ns))?;
                        if guard_ns > 0 {
                            write!(f, ", guard {:?}", nanos(guard_ns))?;
                        }
                    }
                    Window::Session { gap_ns } => write!(f, "session, gap {:?}", nanos(gap_ns))?,
                }
                if let Some(place) = policy.place() {
                    write!(f, ", H3 {}", place.resolution())?;
                    if place.guard_m() > 0.0 {
                        write!(f, " with a guard of {} m", place.guard_m())?;
                    }
                }
            }
        }
        match self.ttl() {
            Some(ttl) => write!(f, "; TTL {ttl:?}"),
            None => Ok(()),
        }
    }
}
