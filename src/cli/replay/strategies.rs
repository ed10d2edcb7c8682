//! Which strategies are compared: by name and flags, or the namespaces of a configuration.

use std::{sync::Arc, time::Duration};

use clap::Args;

use crate::{
    cli::ConfigOption,
    config::{
        self, Flags,
        quantity::{duration_text, parse_duration},
    },
    domain::{
        kind::{Accepts, Kind},
        policy::{
            DEFAULT_JITTER_RADIUS_M, FailureMode, NamespaceName, Place, Policy, PolicyDraft, Window,
        },
        time::{Implausible, TimeLimits},
    },
    replay::{
        read::TraceKind,
        strategy::{Rule, Strategy},
    },
};

const NAMES: &str = "none, raw, tumbling, guarded, two-keys, sliding, session and id";

#[derive(Args, Clone, Debug)]
#[command(next_help_heading = "Strategies")]
pub(super) struct StrategyFlags {
    /// One of none, raw, tumbling, guarded, two-keys, sliding, session and id, once for each; with
    /// a width of its own as tumbling=30s, sliding=1s or session=1m [default: all of them]
    #[arg(
        long = "strategy",
        value_name = "NAME[=WIDTH]",
        conflicts_with = "config"
    )]
    names: Vec<String>,
    #[command(flatten)]
    config: ConfigOption,
    /// Of tumbling, guarded and two-keys [default: 2s; pings: 5m]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    width: Option<Duration>,
    /// Of guarded and two-keys [default: 200ms; pings: 5s]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    guard: Option<Duration>,
    /// Of sliding [default: 200ms; pings: 10s]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    sliding: Option<Duration>,
    /// The gap of session [default: 200ms; pings: 10s]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    session: Option<Duration>,
    /// How long claims live [default: 1h; pings: 6h30m; keyed: 48h]
    #[arg(long, value_name = "DURATION", value_parser = parse_duration)]
    ttl: Option<Duration>,
    /// H3 resolution of pings, or none: positions play no part [default: 12]
    #[arg(long, value_name = "0-15|none", value_parser = parse_resolution)]
    resolution: Option<Resolution>,
    /// Cells that begin nearer than this are looked at too [default: 0]
    #[arg(long, value_name = "METRES")]
    guard_m: Option<f64>,
}

#[derive(Clone, Copy, Debug)]
struct Resolution(Option<u8>);

fn parse_resolution(text: &str) -> Result<Resolution, String> {
    if text == "none" {
        return Ok(Resolution(None));
    }
    let number = text.parse().ok().filter(|number| *number <= 15);
    number
        .map(|number| Resolution(Some(number)))
        .ok_or_else(|| "give 0 to 15, or none".to_owned())
}

/// What is used where no flag says otherwise.
struct Defaults {
    names: &'static [&'static str],
    width: Duration,
    guard: Duration,
    near: Duration,
    ttl: Duration,
}

const fn defaults(kind: TraceKind) -> Defaults {
    match kind {
        TraceKind::Transitions => Defaults {
            names: &[
                "none",
                "raw",
                "tumbling",
                "guarded",
                "two-keys",
                "tumbling=30s",
                "sliding",
                "session",
                "id",
            ],
            width: Duration::from_secs(2),
            guard: Duration::from_millis(200),
            near: Duration::from_millis(200),
            ttl: Duration::from_secs(3600),
        },
        TraceKind::Pings => Defaults {
            names: &[
                "none", "raw", "tumbling", "guarded", "sliding", "session", "id",
            ],
            width: Duration::from_secs(300),
            guard: Duration::from_secs(5),
            near: Duration::from_secs(10),
            ttl: Duration::from_secs(6 * 3600 + 1800),
        },
        TraceKind::Keyed => Defaults {
            names: &["none", "id"],
            width: Duration::from_secs(2),
            guard: Duration::ZERO,
            near: Duration::from_secs(2),
            ttl: Duration::from_secs(48 * 3600),
        },
    }
}

impl StrategyFlags {
    /// The strategies for a trace of this kind, and what is to be said about them.
    pub(super) fn strategies(
        &self,
        kind: TraceKind,
    ) -> Result<(Vec<Strategy>, Vec<String>), String> {
        if self.config.config.is_some() {
            return self.configured(kind);
        }
        let defaults = defaults(kind);
        let given: Vec<&str> = self.names.iter().map(String::as_str).collect();
        let names = if given.is_empty() {
            defaults.names
        } else {
            &given
        };
        let strategies: Result<_, String> = names
            .iter()
            .filter(|name| !given.is_empty() || fits(name, self.ttl))
            .map(|name| self.named(name, kind, &defaults))
            .collect();
        Ok((strategies?, Vec::new()))
    }

    fn named(&self, text: &str, kind: TraceKind, defaults: &Defaults) -> Result<Strategy, String> {
        let (name, own) = match text.split_once('=') {
            None => (text, None),
            Some((name, width)) => {
                let width =
                    parse_duration(width).map_err(|why| format!("--strategy {text}: {why}"))?;
                (name, Some(width))
            }
        };
        let width = own.or(self.width).unwrap_or(defaults.width);
        let guard = self.guard.unwrap_or(defaults.guard);
        let ttl = self.ttl.unwrap_or(defaults.ttl);
        let buckets = |width: Duration, guard: Duration| {
            let (width_ns, guard_ns) = (nanos(width)?, nanos(guard)?);
            self.namespace(text, kind, Window::Buckets { width_ns, guard_ns }, ttl)
        };
        let rule = match (name, kind) {
            ("none", _) => Rule::None,
            ("id", TraceKind::Keyed) => self.namespace(text, kind, Window::None, ttl)?,
            ("id", _) => Rule::IdentityOnly { ttl },
            (_, TraceKind::Keyed) => {
                return Err(format!("--strategy {text}: keyed events have none and id"));
            }
            ("raw", _) => Rule::RawTime { ttl },
            ("tumbling", _) => buckets(width, Duration::ZERO)?,
            ("guarded", _) => buckets(width, guard)?,
            ("two-keys", TraceKind::Transitions) => {
                if width.is_zero() || guard > width {
                    return Err(format!(
                        "--strategy {text}: needs a width, and a guard up to it"
                    ));
                }
                Rule::TwoKeys {
                    width_ns: nanos(width)? as i64,
                    guard_ns: nanos(guard)? as i64,
                    ttl,
                }
            }
            ("two-keys", TraceKind::Pings) => {
                return Err(format!("--strategy {text}: it is for transitions"));
            }
            ("sliding", _) => {
                let width = own.or(self.sliding).unwrap_or(defaults.near);
                buckets(width, width)?
            }
            ("session", _) => {
                let gap_ns = nanos(own.or(self.session).unwrap_or(defaults.near))?;
                self.namespace(text, kind, Window::Session { gap_ns }, ttl)?
            }
            _ => return Err(format!("--strategy {text}: there are {NAMES}")),
        };
        Ok(Strategy {
            name: text.to_owned(),
            rule,
        })
    }

    fn namespace(
        &self,
        text: &str,
        kind: TraceKind,
        window: Window,
        ttl: Duration,
    ) -> Result<Rule, String> {
        let fault = |why: String| format!("--strategy {text}: {why}");
        let resolution = self.resolution.map_or(Some(12), |given| given.0);
        let guard_m = self.guard_m.unwrap_or(0.0);
        let place = match (kind, resolution) {
            (TraceKind::Pings, Some(resolution)) => Some(
                Place::new(resolution, guard_m, DEFAULT_JITTER_RADIUS_M, None)
                    .map_err(|why| fault(why.message))?,
            ),
            (TraceKind::Pings, None) | (TraceKind::Transitions | TraceKind::Keyed, _) => None,
        };
        let name = NamespaceName::new("replay").map_err(|why| fault(why.message))?;
        let accepts = Accepts::from_kinds([event_kind(kind)]);
        let draft = PolicyDraft {
            place,
            time_limits: unlimited(),
            ..PolicyDraft::new(name, accepts, window, ttl, FailureMode::Closed)
        };
        match Policy::new(draft) {
            Ok(policy) => Ok(Rule::Namespace(Arc::new(policy))),
            Err(faults) => {
                let faults: Vec<String> = faults
                    .iter()
                    .map(|fault| format!("{} {}", fault.path, fault.message))
                    .collect();
                Err(fault(faults.join("; ")))
            }
        }
    }

    fn configured(&self, kind: TraceKind) -> Result<(Vec<Strategy>, Vec<String>), String> {
        let flags = Flags {
            config: self.config.config.clone(),
            without_store_files: true,
            ..Flags::default()
        };
        // The store of the file plays no part, nor does the environment.
        let (config, _) = config::load(&flags, &|_| None).map_err(|errors| errors.to_string())?;
        let kind = event_kind(kind);
        let (fitting, others): (Vec<_>, Vec<_>) = config
            .namespaces
            .iter()
            .partition(|policy| policy.accepts().contains(kind));
        if fitting.is_empty() {
            return Err(format!(
                "--config: no namespace accepts {kind}s, which the trace holds"
            ));
        }
        let mut notes = config.warnings;
        notes.extend(others.iter().map(|policy| {
            let name = policy.name();
            format!("Namespace {name} is left out: it accepts no {kind}s.")
        }));
        notes.extend(
            fitting
                .iter()
                .filter(|policy| !policy.lease().is_zero())
                .map(|policy| {
                    format!(
                        "Namespace {} has a lease of {}: here every claim is confirmed at once.",
                        policy.name(),
                        duration_text(policy.lease())
                    )
                }),
        );
        let strategies = fitting.into_iter().map(|policy| Strategy {
            name: policy.name().to_string(),
            rule: Rule::Namespace(Arc::new(
                Policy::clone(policy).with_time_limits(unlimited()),
            )),
        });
        Ok((strategies.collect(), notes))
    }
}

/// Of the usual strategies, whether the TTL that was asked for covers the width that it brings.
fn fits(name: &str, ttl: Option<Duration>) -> bool {
    let width = name
        .split_once('=')
        .and_then(|(_, width)| parse_duration(width).ok());
    width.zip(ttl).is_none_or(|(width, ttl)| ttl >= width)
}

fn unlimited() -> TimeLimits {
    TimeLimits::new(None, None, Implausible::DeadLetter)
}

const fn event_kind(kind: TraceKind) -> Kind {
    match kind {
        TraceKind::Transitions => Kind::Transition,
        TraceKind::Pings => Kind::Ping,
        TraceKind::Keyed => Kind::Keyed,
    }
}

fn nanos(duration: Duration) -> Result<u64, String> {
    i64::try_from(duration.as_nanos())
        .map(|nanos| nanos as u64)
        .map_err(|_| format!("{duration:?} is too long"))
}
