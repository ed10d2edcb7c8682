//! A run as text and as JSON.

use std::fmt::{self, Display};

use hdrhistogram::Histogram;
use serde_json::{Map, Value, json};

use super::{
    events::EventKind,
    load::{CallForm, Load, Pace, Settling},
    run::Ran,
};
use crate::{config::quantity::duration_text, replay::report::text::grouped};

const QUANTILES: [(&str, f64); 5] = [
    ("P50", 0.5),
    ("P90", 0.9),
    ("P99", 0.99),
    ("P99.9", 0.999),
    ("max", 1.0),
];

#[derive(Debug)]
pub struct Report {
    pub load: Load,
    pub ran: Ran,
}

impl Report {
    fn per_second(&self, count: u64) -> f64 {
        count as f64 / self.ran.measured.as_secs_f64().max(1e-9)
    }

    fn cpu(&self) -> [(&'static str, Option<u64>); 3] {
        let cpu = self.ran.cpu;
        [
            ("client", cpu.client_ns),
            ("server", cpu.server_ns),
            ("redis", cpu.redis_ns),
        ]
    }

    fn per_event_ns(&self, total_ns: u64) -> f64 {
        total_ns as f64 / self.ran.tally.events.max(1) as f64
    }

    fn cores(&self, total_ns: u64) -> f64 {
        total_ns as f64 / 1e9 / self.ran.measured.as_secs_f64().max(1e-9)
    }

    /// Latencies by what they are of.
    fn latencies(&self) -> [(&'static str, &Histogram<u64>); 3] {
        let tally = &self.ran.tally;
        [
            ("admit", &tally.admit_ns),
            ("confirm", &tally.confirm_ns),
            ("sent late", &tally.sent_late_ns),
        ]
    }

    pub fn json(&self) -> Value {
        let (load, tally) = (&self.load, &self.ran.tally);
        let verdicts = tally.by_reason();
        let verdicts: Map<_, _> = verdicts
            .map(|(reason, events)| (reason.name().to_owned(), json!(events)))
            .collect();
        let settled = tally.by_outcome();
        let settled: Map<_, _> = settled
            .map(|(outcome, claims)| (outcome.to_owned(), json!(claims)))
            .collect();
        let latencies = self.latencies().into_iter().map(|(name, times_ns)| {
            let quantiles = (!times_ns.is_empty()).then(|| quantiles(times_ns));
            (format!("{}_ns", name.replace(' ', "_")), json!(quantiles))
        });
        let cpu = self.cpu().into_iter().map(|(name, total_ns)| {
            let cpu = total_ns.map(|total_ns| {
                json!({
                    "per_event_ns": self.per_event_ns(total_ns),
                    "cores": self.cores(total_ns),
                })
            });
            (name.to_owned(), json!(cpu))
        });
        json!({
            "service": load.address,
            "namespaces": load.namespaces,
            "load": {
                "kind": kind(load.recipe.kind),
                "duplicates": load.recipe.duplicates,
                "subjects": load.recipe.subjects,
                "repeat_within": load.recipe.repeat_within,
                "form": form(load.form),
                "rate": match load.pace {
                    Pace::Open(rate) => Some(rate),
                    Pace::Closed => None,
                },
                "batch": load.batch_events,
                "streams": load.lanes,
                "connections": load.connections,
                "in_flight": load.in_flight,
                "claims": settling(load.settling),
                "request_ids": load.has_request_ids,
                "warm_up_s": load.warm_up.as_secs_f64(),
                "duration_s": load.duration.as_secs_f64(),
            },
            "measured_s": self.ran.measured.as_secs_f64(),
            "warm_up_events": tally.warm_up_events,
            "events": tally.events,
            "events_per_s": self.per_second(tally.events),
            "calls": tally.calls,
            "calls_per_s": self.per_second(tally.calls),
            "refused_calls": tally.refused_calls,
            "refused_events": tally.refused_events,
            "unsent_calls": tally.unsent_calls,
            "verdicts": verdicts,
            "settled": settled,
            "latency": latencies.collect::<Map<_, _>>(),
            "cpu": cpu.collect::<Map<_, _>>(),
        })
    }
}

impl Display for Report {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (load, tally) = (&self.load, &self.ran.tally);
        writeln!(f, "{}: {}", load.address, load.namespaces.join(", "))?;
        let pace = match load.pace {
            Pace::Open(rate) => format!("{} events a second", grouped(rate.round() as u64)),
            Pace::Closed => "as fast as it answers".to_owned(),
        };
        writeln!(
            f,
            "{}, {:.1} % duplicates; {pace}; {} × {}, {} events a call, {} in flight on each; claims {}",
            kind(load.recipe.kind),
            load.recipe.duplicates * 100.0,
            load.lanes,
            form(load.form),
            load.batch_events,
            load.in_flight,
            settling(load.settling),
        )?;
        writeln!(
            f,
            "{:.2} s measured after {} of warm-up\n",
            self.ran.measured.as_secs_f64(),
            duration_text(load.warm_up),
        )?;
        let mut rate = |name: &str, count: u64| {
            let per_second = self.per_second(count).round() as u64;
            let (count, per_second) = (grouped(count), grouped(per_second));
            writeln!(f, "{name:<10} {count:>14} {per_second:>14} /s")
        };
        rate("events", tally.events)?;
        rate("calls", tally.calls)?;
        if tally.refused_calls > 0 {
            rate("refused", tally.refused_calls)?;
        }
        if tally.unsent_calls > 0 {
            rate("not sent", tally.unsent_calls)?;
        }
        write!(f, "\nverdicts:")?;
        for (reason, events) in tally.by_reason() {
            write!(f, " {} {}", reason.name(), grouped(events))?;
        }
        writeln!(f)?;
        if tally.by_outcome().next().is_some() {
            write!(f, "confirmed:")?;
            for (outcome, claims) in tally.by_outcome() {
                write!(f, " {outcome} {}", grouped(claims))?;
            }
            writeln!(f)?;
        }
        write!(f, "\n{:<10}", "ms")?;
        for (name, _) in QUANTILES {
            write!(f, " {name:>10}")?;
        }
        writeln!(f)?;
        for (name, times_ns) in self.latencies() {
            if times_ns.is_empty() {
                continue;
            }
            write!(f, "{name:<10}")?;
            for (_, quantile) in QUANTILES {
                let ms = times_ns.value_at_quantile(quantile) as f64 / 1e6;
                write!(f, " {ms:>10.3}")?;
            }
            writeln!(f)?;
        }
        writeln!(f, "\n{:<10} {:>12} {:>8}", "CPU", "ns an event", "cores")?;
        for (name, total_ns) in self.cpu() {
            if let Some(total_ns) = total_ns {
                let (each, cores) = (self.per_event_ns(total_ns), self.cores(total_ns));
                writeln!(f, "{name:<10} {each:>12.0} {cores:>8.2}")?;
            }
        }
        Ok(())
    }
}

fn quantiles(times_ns: &Histogram<u64>) -> Map<String, Value> {
    let names = QUANTILES.map(|(name, _)| name.to_lowercase());
    let values = QUANTILES.map(|(_, quantile)| json!(times_ns.value_at_quantile(quantile)));
    names
        .into_iter()
        .zip(values)
        .chain([("samples".to_owned(), json!(times_ns.len()))])
        .collect()
}

const fn kind(kind: EventKind) -> &'static str {
    match kind {
        EventKind::Transitions => "transitions",
        EventKind::MovingPings => "moving-pings",
        EventKind::ParkedPings => "parked-pings",
        EventKind::Keyed => "keyed",
    }
}

const fn form(form: CallForm) -> &'static str {
    match form {
        CallForm::Stream => "stream",
        CallForm::Unary => "unary",
    }
}

const fn settling(settling: Settling) -> &'static str {
    match settling {
        Settling::Left => "left",
        Settling::Confirmed => "confirmed",
        Settling::Omitted => "omitted",
    }
}
