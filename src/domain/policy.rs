//! A namespace's rules. A [`Policy`] that exists is consistent: every relation between its parts
//! was checked by [`Policy::new`], which names all faults at once.

mod check;

use std::{fmt, time::Duration};

use super::{
    cells,
    claim::Guards,
    key::{Digest, KeyScheme, Layout, default_prefix},
    kind::Accepts,
    place::{Region, Resolution},
    time::TimeLimits,
};

/// Longest window, TTL and other span, so that sums of them fit: 10 years.
pub const MAX_SPAN: Duration = Duration::from_secs(3_653 * 86_400);

/// A polling hint: how soon to ask again while another holds the claim.
const DEFAULT_IN_FLIGHT_RETRY: Duration = Duration::from_millis(200);
/// Twice the usual error of a receiver with open sky.
pub const DEFAULT_JITTER_RADIUS_M: f64 = 20.0;

/// How event times are compared.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Window {
    /// Keyed events: the id alone decides.
    None,
    /// Buckets of `width`, with a tolerance `guard` across their edges. A guard of zero is the
    /// tumbling window, a guard as wide as the bucket the sliding one.
    Buckets { width_ns: u64, guard_ns: u64 },
    /// An event joins what was seen within `gap` of it, and extends it.
    Session { gap_ns: u64 },
}

/// How positions are compared, where they are part of the key.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Place {
    resolution: Resolution,
    guard_m: f64,
    jitter_radius_m: f64,
    region: Option<Region>,
}

impl Place {
    pub fn new(
        resolution: u8,
        guard_m: f64,
        jitter_radius_m: f64,
        region: Option<Region>,
    ) -> Result<Self, PolicyFault> {
        let resolution = Resolution::try_from(resolution).map_err(|_| {
            PolicyFault::new("place.resolution", "must be an H3 resolution, 0 to 15")
        })?;
        for (path, metres) in [
            ("place.guard_m", guard_m),
            ("place.jitter_radius_m", jitter_radius_m),
        ] {
            if !metres.is_finite() || metres < 0.0 {
                return Err(PolicyFault::new(
                    path,
                    "must be a number of metres, not negative",
                ));
            }
        }
        let widest_m = cells::max_guard_m(resolution);
        if guard_m > widest_m {
            return Err(PolicyFault::new(
                "place.guard_m",
                format!(
                    "must be at most {widest_m:.1} m at resolution {resolution}, one edge of its cells: \
                     beyond that a plan has too many keys, and a coarser resolution is meant"
                ),
            ));
        }
        Ok(Self {
            resolution,
            guard_m,
            jitter_radius_m,
            region,
        })
    }

    pub const fn resolution(&self) -> Resolution {
        self.resolution
    }

    pub const fn guard_m(&self) -> f64 {
        self.guard_m
    }

    pub const fn jitter_radius_m(&self) -> f64 {
        self.jitter_radius_m
    }

    pub const fn region(&self) -> Option<&Region> {
        self.region.as_ref()
    }
}

/// What a store outage means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureMode {
    /// Admit, degraded: duplicates pass, nothing is lost.
    Open,
    /// Retry: nothing passes, nothing is lost while the caller keeps it.
    Closed,
    /// Decide in the embedded store, and write its claims to the shared one afterwards.
    Local,
}

impl fmt::Display for FailureMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FailureMode::Open => "open",
            FailureMode::Closed => "closed",
            FailureMode::Local => "local",
        })
    }
}

/// What the same event id with other content is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ContentMismatch {
    DeadLetter,
    Suppress,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    Enforce,
    /// Only watch: every event is admitted, and the reason says what would have been.
    Shadow,
}

impl fmt::Display for Mode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Mode::Enforce => "enforce",
            Mode::Shadow => "shadow",
        })
    }
}

/// What the owner knows about the stream, held against the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Bounds {
    pub max_duplicate_spread: Option<Duration>,
    pub min_revisit: Option<Duration>,
}

/// A namespace's name: 1 to 63 characters of a-z, 0-9 and `-`.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NamespaceName(String);

impl NamespaceName {
    pub fn new(name: &str) -> Result<Self, PolicyFault> {
        let allowed = |byte: u8| byte.is_ascii_lowercase() || byte.is_ascii_digit() || byte == b'-';
        if (1..=63).contains(&name.len()) && name.bytes().all(allowed) {
            Ok(Self(name.to_owned()))
        } else {
            Err(PolicyFault::new(
                "",
                "a namespace's name is 1 to 63 characters of a-z, 0-9 and -",
            ))
        }
    }

    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for NamespaceName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

/// What is wrong with a policy, and at which key of its namespace's configuration.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PolicyFault {
    pub path: &'static str,
    pub message: String,
}

impl PolicyFault {
    pub fn new(path: &'static str, message: impl Into<String>) -> Self {
        Self {
            path,
            message: message.into(),
        }
    }
}

/// The parts of a policy before they are held against each other.
#[derive(Clone, Debug)]
pub struct PolicyDraft {
    pub name: NamespaceName,
    pub accepts: Accepts,
    pub window: Window,
    pub place: Option<Place>,
    pub ttl: Duration,
    pub lease: Duration,
    pub in_flight_retry: Duration,
    pub failure_mode: FailureMode,
    pub content_mismatch: ContentMismatch,
    pub mode: Mode,
    pub time_limits: TimeLimits,
    pub bounds: Bounds,
    pub prefix: Option<String>,
    pub layout: Option<Layout>,
    pub digest: Option<Digest>,
}

impl PolicyDraft {
    /// From what must be said of a namespace; the rest as where nothing is said.
    pub fn new(
        name: NamespaceName,
        accepts: Accepts,
        window: Window,
        ttl: Duration,
        failure_mode: FailureMode,
    ) -> Self {
        Self {
            name,
            accepts,
            window,
            place: None,
            ttl,
            lease: Duration::ZERO,
            in_flight_retry: DEFAULT_IN_FLIGHT_RETRY,
            failure_mode,
            content_mismatch: ContentMismatch::DeadLetter,
            mode: Mode::Enforce,
            time_limits: TimeLimits::default(),
            bounds: Bounds::default(),
            prefix: None,
            layout: None,
            digest: None,
        }
    }

    /// A plan may look at more than its primary key.
    pub fn has_guards(&self) -> bool {
        let Guards { time_ns, space_m } = guards(self.window, self.accepts, self.place.as_ref());
        time_ns > 0 || space_m > 0.0
    }
}

/// The time guard G and the space guard R. A session's gap is inclusive, a guard is not.
fn guards(window: Window, accepts: Accepts, place: Option<&Place>) -> Guards {
    let time_ns = match window {
        Window::Buckets { guard_ns, .. } => guard_ns,
        Window::Session { gap_ns } => gap_ns.saturating_add(1),
        Window::None => 0,
    };
    let space_m = place
        .filter(|_| accepts.ping)
        .map_or(0.0, |place| place.guard_m);
    Guards { time_ns, space_m }
}

/// A namespace's rules, consistent.
#[derive(Clone, Debug)]
pub struct Policy {
    name: NamespaceName,
    accepts: Accepts,
    window: Window,
    place: Option<Place>,
    ttl: Duration,
    lease: Duration,
    in_flight_retry: Duration,
    failure_mode: FailureMode,
    content_mismatch: ContentMismatch,
    mode: Mode,
    time_limits: TimeLimits,
    bounds: Bounds,
    scheme: KeyScheme,
}

impl Policy {
    /// Checks every relation between the parts and names all faults.
    pub fn new(draft: PolicyDraft) -> Result<Self, Vec<PolicyFault>> {
        let mut faults = check::faults(&draft);
        let prefix = draft
            .prefix
            .unwrap_or_else(|| default_prefix(draft.name.as_str()));
        let scheme = KeyScheme::new(
            prefix,
            draft.layout.unwrap_or(Layout::Plain),
            draft.digest.unwrap_or(Digest::Xxh3),
        );
        match scheme {
            Ok(scheme) if faults.is_empty() => Ok(Self {
                name: draft.name,
                accepts: draft.accepts,
                window: draft.window,
                place: draft.place,
                ttl: draft.ttl,
                lease: draft.lease,
                in_flight_retry: if draft.lease.is_zero() {
                    draft.in_flight_retry
                } else {
                    draft.in_flight_retry.min(draft.lease)
                },
                failure_mode: draft.failure_mode,
                content_mismatch: draft.content_mismatch,
                mode: draft.mode,
                time_limits: draft.time_limits,
                bounds: draft.bounds,
                scheme,
            }),
            Ok(_) => Err(faults),
            Err(message) => {
                faults.push(PolicyFault::new("key.prefix", message));
                Err(faults)
            }
        }
    }

    pub const fn name(&self) -> &NamespaceName {
        &self.name
    }

    pub const fn accepts(&self) -> Accepts {
        self.accepts
    }

    pub const fn window(&self) -> Window {
        self.window
    }

    pub const fn place(&self) -> Option<&Place> {
        self.place.as_ref()
    }

    /// How long a settled claim suppresses copies.
    pub const fn ttl(&self) -> Duration {
        self.ttl
    }

    /// How long an admitted event may stay unsettled; zero: no lease.
    pub const fn lease(&self) -> Duration {
        self.lease
    }

    pub const fn in_flight_retry(&self) -> Duration {
        self.in_flight_retry
    }

    pub const fn failure_mode(&self) -> FailureMode {
        self.failure_mode
    }

    pub const fn content_mismatch(&self) -> ContentMismatch {
        self.content_mismatch
    }

    pub const fn mode(&self) -> Mode {
        self.mode
    }

    pub const fn time_limits(&self) -> &TimeLimits {
        &self.time_limits
    }

    pub const fn bounds(&self) -> Bounds {
        self.bounds
    }

    /// The same rules with other limits on event times.
    pub fn with_time_limits(self, time_limits: TimeLimits) -> Self {
        Self {
            time_limits,
            ..self
        }
    }

    pub const fn scheme(&self) -> &KeyScheme {
        &self.scheme
    }

    pub fn guards(&self) -> Guards {
        guards(self.window, self.accepts, self.place.as_ref())
    }

    /// The canonical line that every instance sharing a store must agree on, up to the `;`.
    pub fn contract(&self) -> String {
        let window = match self.window {
            Window::None => "window=none".to_owned(),
            Window::Buckets { width_ns, .. } => format!("window={width_ns}ns"),
            Window::Session { gap_ns } => format!("session={gap_ns}ns"),
        };
        let place = match (self.accepts.ping, self.place) {
            (true, Some(place)) => u8::from(place.resolution).to_string(),
            _ => "-".to_owned(),
        };
        let digest = if self.accepts.keyed {
            "-"
        } else if self.accepts.transition {
            self.scheme.transition_digest().name()
        } else {
            Digest::Blake2b.name()
        };
        let guard_ns = match self.window {
            Window::Buckets { guard_ns, .. } => guard_ns,
            Window::None | Window::Session { .. } => 0,
        };
        format!(
            "v1 {window} place={place} digest={digest} layout={} prefix={}; guard={guard_ns}ns guard_m={}",
            self.scheme.layout().name(),
            self.scheme.prefix(),
            self.guards().space_m,
        )
    }
}
