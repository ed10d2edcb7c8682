//! A namespace's rules. A [`Policy`] that exists is consistent: every relation between its parts
//! was checked by [`Policy::new`], which names all faults at once.

use std::{fmt, time::Duration};

use super::{
    cells,
    key::{Digest, KeyScheme, Layout, default_prefix},
    place::{Region, Resolution},
};

/// Longest window, TTL and other span, so that sums of them fit: 10 years.
pub const MAX_SPAN: Duration = Duration::from_secs(3_653 * 86_400);

/// A polling hint: how soon to ask again while another holds the claim.
pub const DEFAULT_IN_FLIGHT_RETRY: Duration = Duration::from_millis(200);
/// Clocks of devices run ahead by minutes, not more.
pub const DEFAULT_MAX_FUTURE: Duration = Duration::from_secs(5 * 60);
/// Buffers on devices are drained within weeks.
pub const DEFAULT_MAX_AGE: Duration = Duration::from_secs(30 * 86_400);
/// Twice the usual error of a receiver with open sky.
pub const DEFAULT_JITTER_RADIUS_M: f64 = 20.0;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    Transition,
    Ping,
    Keyed,
}

impl fmt::Display for Kind {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Kind::Transition => "transition",
            Kind::Ping => "ping",
            Kind::Keyed => "keyed",
        })
    }
}

/// The kinds of event that a namespace takes: keyed alone, or transitions, pings or both.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Accepts {
    pub transition: bool,
    pub ping: bool,
    pub keyed: bool,
}

impl Accepts {
    pub fn from_kinds(kinds: impl IntoIterator<Item = Kind>) -> Self {
        kinds
            .into_iter()
            .fold(Self::default(), |accepts, kind| match kind {
                Kind::Transition => Self {
                    transition: true,
                    ..accepts
                },
                Kind::Ping => Self {
                    ping: true,
                    ..accepts
                },
                Kind::Keyed => Self {
                    keyed: true,
                    ..accepts
                },
            })
    }

    pub const fn contains(self, kind: Kind) -> bool {
        match kind {
            Kind::Transition => self.transition,
            Kind::Ping => self.ping,
            Kind::Keyed => self.keyed,
        }
    }

    pub fn kinds(self) -> impl Iterator<Item = Kind> {
        [Kind::Transition, Kind::Ping, Kind::Keyed]
            .into_iter()
            .filter(move |kind| self.contains(*kind))
    }
}

impl fmt::Display for Accepts {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, kind) in self.kinds().enumerate() {
            let separator = if index == 0 { "" } else { " and " };
            write!(f, "{separator}{kind}s")?;
        }
        Ok(())
    }
}

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

/// What becomes of a time outside the limits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Implausible {
    DeadLetter,
    /// `ingested_at` stands in for it.
    Clamp,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct TimeLimits {
    max_future_ns: Option<u64>,
    max_age_ns: Option<u64>,
    implausible: Implausible,
}

impl TimeLimits {
    /// `None` is no limit.
    pub fn new(
        max_future: Option<Duration>,
        max_age: Option<Duration>,
        implausible: Implausible,
    ) -> Self {
        Self {
            max_future_ns: max_future.map(saturating_nanos),
            max_age_ns: max_age.map(saturating_nanos),
            implausible,
        }
    }

    pub const fn max_future_ns(&self) -> Option<u64> {
        self.max_future_ns
    }

    pub const fn max_age_ns(&self) -> Option<u64> {
        self.max_age_ns
    }

    pub const fn implausible(&self) -> Implausible {
        self.implausible
    }
}

impl Default for TimeLimits {
    fn default() -> Self {
        Self::new(
            Some(DEFAULT_MAX_FUTURE),
            Some(DEFAULT_MAX_AGE),
            Implausible::DeadLetter,
        )
    }
}

/// What a store outage means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FailureMode {
    /// Admit, degraded: duplicates pass, nothing is lost.
    Open,
    /// Retry: nothing passes, nothing is lost while the caller keeps it.
    Closed,
}

impl fmt::Display for FailureMode {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            FailureMode::Open => "open",
            FailureMode::Closed => "closed",
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
        let mut faults = Vec::new();
        check_kinds(&draft, &mut faults);
        check_window(&draft, &mut faults);
        check_spans(&draft, &mut faults);
        check_bounds(&draft, &mut faults);
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
            Err(fault) => {
                faults.push(fault);
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

    /// The time guard G and the space guard R. A session's gap is inclusive, a guard is not.
    pub fn guards(&self) -> Guards {
        let time_ns = match self.window {
            Window::Buckets { guard_ns, .. } => guard_ns,
            Window::Session { gap_ns } => gap_ns + 1,
            Window::None => 0,
        };
        Guards {
            time_ns,
            space_m: self
                .place
                .filter(|_| self.accepts.ping)
                .map_or(0.0, |place| place.guard_m),
        }
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

/// How far apart two events in different buckets or cells may be and still be near, exclusive.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Guards {
    pub time_ns: u64,
    pub space_m: f64,
}

fn saturating_nanos(span: Duration) -> u64 {
    u64::try_from(span.as_nanos()).unwrap_or(u64::MAX)
}

fn check_kinds(draft: &PolicyDraft, faults: &mut Vec<PolicyFault>) {
    let Accepts {
        transition,
        ping,
        keyed,
    } = draft.accepts;
    if !transition && !ping && !keyed {
        faults.push(PolicyFault::new(
            "accepts",
            "must name at least one of transition, ping, keyed",
        ));
    }
    if keyed && (transition || ping) {
        faults.push(PolicyFault::new(
            "accepts",
            "keyed stands alone: give keyed events a namespace of their own",
        ));
    }
    match (keyed, draft.window) {
        (true, Window::Buckets { .. } | Window::Session { .. }) => {
            faults.push(PolicyFault::new(
                "window",
                "keyed events have none: write `window: none`",
            ));
        }
        (false, Window::None) if transition || ping => {
            faults.push(PolicyFault::new(
                "window",
                "`none` is for keyed events only",
            ));
        }
        _ => {}
    }
    if ping && !transition && draft.digest == Some(Digest::Xxh3) {
        faults.push(PolicyFault::new(
            "key.digest",
            "pings have no other digest than blake2b",
        ));
    }
    if keyed && draft.digest.is_some() {
        faults.push(PolicyFault::new(
            "key.digest",
            "keyed events have no digest: the id is the key",
        ));
    }
}

fn check_window(draft: &PolicyDraft, faults: &mut Vec<PolicyFault>) {
    let (width_ns, guard_ns) = match draft.window {
        Window::None => return,
        Window::Buckets { width_ns, guard_ns } => (width_ns, guard_ns),
        Window::Session { gap_ns } => (gap_ns, 0),
    };
    if width_ns == 0 || u128::from(width_ns) > MAX_SPAN.as_nanos() {
        faults.push(PolicyFault::new(
            "window",
            "must be longer than 0 and at most 10 years",
        ));
    }
    if guard_ns > width_ns {
        faults.push(PolicyFault::new(
            "window.guard",
            "must not be wider than the window",
        ));
    }
    if draft.accepts.ping && width_ns % 1_000_000_000 != 0 {
        faults.push(PolicyFault::new(
            "window",
            "must be whole seconds where pings are accepted, since their keys hold the bucket's start in seconds",
        ));
    }
    let needed = Duration::from_nanos(width_ns.saturating_add(guard_ns));
    if draft.ttl < needed {
        faults.push(PolicyFault::new(
            "ttl",
            format!("{:?} is shorter than the window plus its guard, {needed:?}: copies within the window would pass", draft.ttl),
        ));
    }
    if matches!(draft.window, Window::Session { .. })
        && draft.place.is_some_and(|place| place.guard_m > 0.0)
    {
        faults.push(PolicyFault::new(
            "place.guard_m",
            "a session window has no space guard: set it to 0",
        ));
    }
}

fn check_spans(draft: &PolicyDraft, faults: &mut Vec<PolicyFault>) {
    if draft.ttl.is_zero() || draft.ttl > MAX_SPAN {
        faults.push(PolicyFault::new(
            "ttl",
            "must be longer than 0 and at most 10 years",
        ));
    }
    if draft.lease > draft.ttl {
        faults.push(PolicyFault::new("lease", "must not be longer than the ttl"));
    }
    if draft.in_flight_retry.is_zero() || draft.in_flight_retry > MAX_SPAN {
        faults.push(PolicyFault::new(
            "in_flight_retry",
            "must be longer than 0 and at most 10 years",
        ));
    }
}

/// max_duplicate_spread < reach of the window < min_revisit, or no width can be right.
fn check_bounds(draft: &PolicyDraft, faults: &mut Vec<PolicyFault>) {
    let Bounds {
        max_duplicate_spread,
        min_revisit,
    } = draft.bounds;
    let Window::Buckets { width_ns, guard_ns } = draft.window else {
        if draft.bounds != Bounds::default() {
            faults.push(PolicyFault::new(
                "bounds",
                "hold for tumbling and sliding windows only",
            ));
        }
        return;
    };
    let (width, guard) = (
        Duration::from_nanos(width_ns),
        Duration::from_nanos(guard_ns),
    );
    if let (Some(spread), Some(revisit)) = (max_duplicate_spread, min_revisit)
        && spread >= revisit
    {
        faults.push(PolicyFault::new(
            "bounds",
            "no width fits: duplicates spread as far as genuine events lie apart; \
             send the device's `sequence` with each transition instead",
        ));
        return;
    }
    if let Some(spread) = max_duplicate_spread
        && spread >= guard
    {
        faults.push(PolicyFault::new(
            "bounds.max_duplicate_spread",
            format!(
                "{spread:?} must be less than the guard, {guard:?} (for a sliding window its width)"
            ),
        ));
    }
    if let Some(revisit) = min_revisit
        && width >= revisit
    {
        faults.push(PolicyFault::new(
            "bounds.min_revisit",
            format!("{revisit:?} must be more than the window, {width:?}"),
        ));
    }
}
