//! The product beside what users have today, each measured in turn, several rounds in one run, and
//! one table of ratios. Run by `benches/compare.sh`, which brings the tools; docs/benchmarks.md says
//! what the rows are.
//!
//! The machine is never quiet enough for absolute figures: a ratio is of two measurements of one
//! round, and of the rounds' ratios the median, the least and the largest are shown.
//!
//! Sizes by environment: `ROUNDS` (3), `SECONDS` each is measured (3), `WARM_UP` seconds before (3.5);
//! `ONLY`, a list of rows; `OWN_CPU` and `OTHER_CPUS` as taskset takes them.

#[path = "../bare/mod.rs"]
mod bare;
mod contenders;
mod growth;
mod jetstream;
mod measured;
mod pipelined;
mod process;
mod ratios;

use std::{collections::BTreeMap, env, path::Path, time::Duration};

use contenders::{CONTENDERS, Sizes, World};
use measured::Measured;

type Error = Box<dyn std::error::Error>;

/// What each contender came to in one round.
type Round = BTreeMap<&'static str, Measured>;

fn main() -> Result<(), Error> {
    let arguments: Vec<String> = env::args().collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match words.as_slice() {
        [_, "bare", socket] => tokio::runtime::Builder::new_multi_thread()
            .worker_threads(2)
            .enable_all()
            .build()?
            .block_on(bare::serve(Path::new(socket))),
        // Cargo adds --bench.
        [_, "growth", ..] => growth::run(sizes()),
        _ => compare(),
    }
}

fn number(name: &str, default: f64) -> f64 {
    let given = env::var(name).ok().and_then(|text| text.parse().ok());
    given.unwrap_or(default)
}

fn sizes() -> Sizes {
    Sizes {
        warm_up: Duration::from_secs_f64(number("WARM_UP", 3.5)),
        duration: Duration::from_secs_f64(number("SECONDS", 3.0)),
    }
}

/// Whether `ONLY` lets a row be.
fn is_wanted(name: &str) -> bool {
    let only = env::var("ONLY").unwrap_or_default();
    only.is_empty() || only.split(';').any(|part| name.contains(part.trim()))
}

fn compare() -> Result<(), Error> {
    let (rounds, sizes) = (number("ROUNDS", 3.0) as usize, sizes());
    let world = World::start(sizes)?;
    println!(
        "{rounds} rounds, each row measured for {:.1} s after {:.1} s of warm-up",
        sizes.duration.as_secs_f64(),
        sizes.warm_up.as_secs_f64(),
    );
    let mut all: Vec<Round> = Vec::with_capacity(rounds);
    for number in 1..=rounds {
        let mut round = Round::new();
        for (name, how) in CONTENDERS.iter().filter(|(name, _)| is_wanted(name)) {
            match world.measure(how, &round) {
                Ok(Some(measured)) => {
                    round.insert(name, measured);
                }
                Ok(None) if number == 1 => eprintln!("left out, its tool is not there: {name}"),
                Ok(None) => {}
                Err(error) => return Err(format!("{name}: {error}").into()),
            }
        }
        eprintln!("round {number} of {rounds}");
        all.push(round);
    }
    println!();
    ratios::print_rows(&all);
    println!();
    ratios::print_ratios(&all);
    Ok(())
}
