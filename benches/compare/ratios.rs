//! The tables, as Markdown: what was measured, and the ratios with their goals.

use crate::{Round, contenders::CONTENDERS, measured::Measured};

#[derive(Clone, Copy)]
enum Of {
    Rate,
    ServerCpu,
    RedisCpu,
    P50,
    P99,
}

impl Of {
    fn read(self, measured: &Measured) -> Option<f64> {
        match self {
            Of::Rate => Some(measured.events_per_s),
            Of::ServerCpu => measured.server_ns,
            Of::RedisCpu => measured.redis_ns,
            Of::P50 => measured.p50_ns,
            Of::P99 => measured.p99_ns,
        }
    }

    const fn name(self) -> &'static str {
        match self {
            Of::Rate => "rate",
            Of::ServerCpu => "server CPU",
            Of::RedisCpu => "Redis CPU",
            Of::P50 => "P50",
            Of::P99 => "P99",
        }
    }
}

#[derive(Clone, Copy)]
enum Goal {
    AtMost(f64),
    AtLeast(f64),
    None,
}

/// One measurement over the sum of others.
struct Ratio(&'static str, Of, &'static [(&'static str, Of)], Goal);

use Goal::{AtLeast, AtMost};
use Of::{P50, P99, Rate, RedisCpu, ServerCpu};

const RATIOS: &[Ratio] = &[
    Ratio(
        "embedded, transitions",
        ServerCpu,
        &[("bare, transitions", ServerCpu)],
        AtMost(2.0),
    ),
    Ratio(
        "embedded, keyed",
        ServerCpu,
        &[("bare, keyed", ServerCpu)],
        AtMost(2.0),
    ),
    Ratio(
        "embedded, keyed, no request ids",
        ServerCpu,
        &[("bare, keyed", ServerCpu)],
        AtMost(2.0),
    ),
    Ratio(
        "embedded, moving pings",
        ServerCpu,
        &[("bare, moving pings", ServerCpu)],
        AtMost(6.0),
    ),
    Ratio(
        "embedded, parked pings",
        ServerCpu,
        &[("bare, parked pings", ServerCpu)],
        AtMost(2.5),
    ),
    Ratio(
        "redis, transitions",
        Rate,
        &[("redis-benchmark", Rate)],
        Goal::None,
    ),
    // The goal is of the same command: with a claim's key and record.
    Ratio(
        "redis, transitions",
        Rate,
        &[("redis-benchmark, bytes of a transition", Rate)],
        AtLeast(1.1),
    ),
    Ratio(
        "redis, transitions",
        Rate,
        &[("redis-benchmark, command of a transition", Rate)],
        Goal::None,
    ),
    Ratio(
        "redis, transitions",
        Rate,
        &[("pipelined client", Rate)],
        AtLeast(0.95),
    ),
    // A rate holds only where nothing else wants the machine; what a command costs Redis does.
    Ratio(
        "redis, transitions",
        RedisCpu,
        &[("redis-benchmark, bytes of a transition", RedisCpu)],
        AtMost(0.91),
    ),
    Ratio(
        "redis, transitions",
        RedisCpu,
        &[("redis-benchmark, command of a transition", RedisCpu)],
        Goal::None,
    ),
    Ratio(
        "redis, transitions",
        RedisCpu,
        &[("pipelined client", RedisCpu)],
        AtMost(1.05),
    ),
    Ratio(
        "redis, transitions",
        ServerCpu,
        &[("bare, transitions", ServerCpu)],
        AtMost(4.5),
    ),
    Ratio(
        "redis, keyed",
        Rate,
        &[("redis-benchmark, bytes of a keyed event", Rate)],
        AtLeast(1.1),
    ),
    Ratio(
        "redis, keyed",
        ServerCpu,
        &[("bare, keyed", ServerCpu)],
        AtMost(4.5),
    ),
    Ratio(
        "redis, 64 single calls",
        Rate,
        &[("bare, 64 single calls", Rate)],
        AtLeast(0.9),
    ),
    Ratio(
        "redis, single call",
        P50,
        &[("bare, single call", P50), ("redis-benchmark, one", P50)],
        AtMost(1.15),
    ),
    Ratio(
        "redis, confirmed",
        Rate,
        &[("redis, transitions", Rate)],
        AtLeast(0.45),
    ),
    Ratio(
        "embedded, confirmed",
        Rate,
        &[("embedded, transitions", Rate)],
        AtLeast(0.5),
    ),
    Ratio(
        "redis, guarded",
        RedisCpu,
        &[("redis, transitions", RedisCpu)],
        AtMost(1.4),
    ),
    Ratio(
        "redis, sliding",
        Rate,
        &[("redis, transitions", Rate)],
        AtLeast(0.33),
    ),
    Ratio(
        "redis, parked pings, known claims",
        Rate,
        &[("redis, parked pings", Rate)],
        AtLeast(2.5),
    ),
    Ratio(
        "redis, parked pings, known claims",
        RedisCpu,
        &[("redis, parked pings", RedisCpu)],
        AtMost(0.1),
    ),
    Ratio(
        "redis, keyed",
        Rate,
        &[("python, one at a time", Rate)],
        AtLeast(40.0),
    ),
    Ratio(
        "redis, keyed",
        Rate,
        &[("python, gather", Rate)],
        AtLeast(25.0),
    ),
    Ratio(
        "redis, keyed",
        Rate,
        &[("python, pipeline", Rate)],
        AtLeast(6.0),
    ),
    Ratio(
        "python client of dedupd",
        Rate,
        &[("python, one at a time", Rate)],
        AtLeast(35.0),
    ),
    Ratio(
        "python client of dedupd",
        Rate,
        &[("python, gather", Rate)],
        AtLeast(20.0),
    ),
    Ratio(
        "python client of dedupd",
        Rate,
        &[("python, pipeline", Rate)],
        AtLeast(5.0),
    ),
    Ratio(
        "redis, half load",
        P99,
        &[("redis, half load", P50)],
        AtMost(3.0),
    ),
    Ratio(
        "python, pipeline",
        Rate,
        &[("redis-benchmark", Rate)],
        Goal::None,
    ),
    Ratio("jetstream", Rate, &[("redis-benchmark", Rate)], Goal::None),
    Ratio(
        "benthos, memory",
        Rate,
        &[("redis-benchmark", Rate)],
        Goal::None,
    ),
    Ratio(
        "benthos, redis",
        Rate,
        &[("redis-benchmark", Rate)],
        Goal::None,
    ),
];

impl Ratio {
    fn of(&self, round: &Round) -> Option<f64> {
        let Ratio(over, of, under, _) = self;
        let read = |name: &str, of: Of| of.read(round.get(name)?);
        let under: Option<f64> = under.iter().map(|(name, of)| read(name, *of)).sum();
        Some(read(over, *of)? / under?)
    }

    fn text(&self) -> String {
        let Ratio(over, of, under, _) = self;
        let under = under
            .iter()
            .map(|(name, of)| format!("{name}: {}", of.name()));
        format!(
            "{over}: {} / {}",
            of.name(),
            under.collect::<Vec<_>>().join(" + ")
        )
    }
}

impl Goal {
    fn text(self, median: f64) -> (String, &'static str) {
        let (text, is_met) = match self {
            AtMost(most) => (format!("≤ {most}"), median <= most),
            AtLeast(least) => (format!("≥ {least}"), median >= least),
            Goal::None => return (String::new(), ""),
        };
        (text, if is_met { "yes" } else { "**no**" })
    }
}

pub(crate) fn median(values: &mut [f64]) -> f64 {
    values.sort_by(f64::total_cmp);
    match values {
        [] => f64::NAN,
        values => values[values.len() / 2],
    }
}

/// Medians of the rounds. They are this machine's in this hour, and say little elsewhere.
pub(crate) fn print_rows(rounds: &[Round]) {
    println!("| row | events/s | client CPU ns | server CPU ns | Redis CPU ns | P50 µs | P99 µs |");
    println!("| --- | ---: | ---: | ---: | ---: | ---: | ---: |");
    for (name, _) in CONTENDERS {
        let found: Vec<&Measured> = rounds.iter().filter_map(|round| round.get(name)).collect();
        if found.is_empty() {
            continue;
        }
        let cell = |read: &dyn Fn(&Measured) -> Option<f64>, digits: usize| {
            let mut values: Vec<f64> = found.iter().filter_map(|measured| read(measured)).collect();
            match values.is_empty() {
                true => "–".to_owned(),
                false => format!("{:.digits$}", median(&mut values)),
            }
        };
        println!(
            "| {name} | {} | {} | {} | {} | {} | {} |",
            cell(&|measured| Some(measured.events_per_s), 0),
            cell(&|measured| measured.client_ns, 0),
            cell(&|measured| measured.server_ns, 0),
            cell(&|measured| measured.redis_ns, 0),
            cell(&|measured| Some(measured.p50_ns? / 1e3), 0),
            cell(&|measured| Some(measured.p99_ns? / 1e3), 0),
        );
    }
}

pub(crate) fn print_ratios(rounds: &[Round]) {
    println!("| ratio | median | min | max | goal | met |");
    println!("| --- | ---: | ---: | ---: | ---: | --- |");
    for ratio in RATIOS {
        let mut values: Vec<f64> = rounds.iter().filter_map(|round| ratio.of(round)).collect();
        if values.is_empty() {
            continue;
        }
        let median = median(&mut values);
        let (goal, is_met) = ratio.3.text(median);
        println!(
            "| {} | {median:.2} | {:.2} | {:.2} | {goal} | {is_met} |",
            ratio.text(),
            values[0],
            values[values.len() - 1],
        );
    }
}
