fn main() {
    use dedupd::{
        domain::{kind::*, policy::*, time::*},
        replay::{run::run, strategy::*, synth::*},
    };
    use std::{
        sync::Arc,
        time::{Duration, Instant},
    };
    let n: u64 = std::env::args()
        .nth(1)
        .and_then(|a| a.parse().ok())
        .unwrap_or(1_000_000);
    let hours: u64 = std::env::args()
        .nth(2)
        .and_then(|a| a.parse().ok())
        .unwrap_or(12);
    let policy = |name: &str, w: u64, g: u64| {
        let draft = PolicyDraft {
            time_limits: TimeLimits::new(None, None, Implausible::DeadLetter),
            ..PolicyDraft::new(
                NamespaceName::new(name).unwrap(),
                Accepts::from_kinds([Kind::Transition]),
                Window::Buckets {
                    width_ns: w,
                    guard_ns: g,
                },
                Duration::from_secs(7500),
                FailureMode::Closed,
            )
        };
        Strategy {
            name: name.into(),
            rule: Rule::Namespace(Arc::new(Policy::new(draft).unwrap())),
        }
    };
    let ttl = Duration::from_secs(7500);
    let all = [
        Strategy {
            name: "none".into(),
            rule: Rule::None,
        },
        policy("raw", 1, 0),
        policy("tumbling-2s", 2_000_000_000, 0),
        policy("tumbling-30s", 30_000_000_000, 0),
        policy("guarded", 2_000_000_000, 200_000_000),
        policy("sliding", 200_000_000, 200_000_000),
        Strategy {
            name: "two keys".into(),
            rule: Rule::TwoKeys {
                width_ns: 2_000_000_000,
                guard_ns: 200_000_000,
                ttl,
            },
        },
        Strategy {
            name: "id".into(),
            rule: Rule::IdentityOnly { ttl },
        },
    ];
    for s in all {
        let mut synth = Synth::new(Recipe {
            occurrences: n,
            duration: Duration::from_secs(hours * 3600 * n / 410_000_000 + 60),
            ..Recipe::default()
        });
        let t = Instant::now();
        let o = run(&mut synth, &[s], 16 << 30, |_, _| {})
            .unwrap()
            .remove(0);
        let e = t.elapsed();
        println!(
            "{:14} {:?} {} events {:.2} M/s all, {:.2} M/s decide, peak {:?} {:.1} B p50 {} p99 {} {:?}",
            o.name,
            o.judged.unwrap(),
            o.events,
            o.events as f64 / e.as_secs_f64() / 1e6,
            o.events as f64 / o.took.as_secs_f64() / 1e6,
            o.peak_claims,
            o.peak_bytes as f64 / o.peak_claims.max(1) as f64,
            o.decision.map_or(0, |q| q.p50_ns),
            o.decision.map_or(0, |q| q.p99_ns),
            o.by_reason
        );
    }
}
