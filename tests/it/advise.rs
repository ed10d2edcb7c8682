//! Advice: what is measured is what the trace was made of, and the rules that come of it hold.

mod command_line;
mod made_up;
mod tracks;

use std::sync::Arc;

use dedupd::{
    config::{self, Flags},
    domain::{
        policy::Policy,
        time::{Implausible, TimeLimits},
    },
    replay::{
        advise::{advice::Advice, measure::measure},
        read::TraceKind,
        run::{self, Outcome},
        strategy::{Rule, Strategy},
        trace::{BadRows, Occurrence, Trace, TraceBatch, TraceFault},
    },
};

const MAX_CLAIM_BYTES: u64 = 1 << 30;

fn advise(trace: &mut dyn Trace, kind: TraceKind) -> Advice {
    let measured = measure(trace, kind, |_, _| ()).expect("a trace that can be read");
    Advice::new("a trace".to_owned(), "advised".to_owned(), measured)
}

/// The namespace as a configuration reads it, for a trace that is years old.
fn policy(advice: &Advice) -> Policy {
    let yaml = advice.yaml();
    let environment = |name: &str| (name == "DEDUPD_CONFIG_INLINE").then(|| yaml.clone().into());
    let (config, _) = config::load(&Flags::default(), &environment)
        .unwrap_or_else(|errors| panic!("{errors}\n{yaml}"));
    let [policy] = &config.namespaces[..] else {
        panic!("{yaml}");
    };
    let unlimited = TimeLimits::new(None, None, Implausible::DeadLetter);
    Policy::clone(policy).with_time_limits(unlimited)
}

fn replay(trace: &mut dyn Trace, advice: &Advice) -> Outcome {
    let strategies = [Strategy {
        name: "advised".to_owned(),
        rule: Rule::Namespace(Arc::new(policy(advice))),
    }];
    let outcomes = run::run(trace, &strategies, MAX_CLAIM_BYTES, |_| ());
    outcomes
        .expect("a replay")
        .outcomes
        .pop()
        .expect("one strategy")
}

/// A trace that does not tell which events are copies.
#[derive(Debug)]
struct Untold<T>(T);

impl<T: Trace> Trace for Untold<T> {
    fn fill(&mut self, batch: &mut TraceBatch) -> Result<bool, TraceFault> {
        let mut told = TraceBatch::new(512, 50_000_000);
        let more = self.0.fill(&mut told)?;
        for event in told.events() {
            batch.push(
                made_up::about(&event),
                made_up::time(&event),
                event.arrived_at_ns,
                made_up::position(&event),
                Occurrence::Unknown,
            );
        }
        Ok(more)
    }

    fn progress(&self) -> (u64, Option<u64>) {
        self.0.progress()
    }

    fn bad_rows(&self) -> &BadRows {
        self.0.bad_rows()
    }
}
