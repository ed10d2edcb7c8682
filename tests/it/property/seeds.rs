//! Which random sequences a run plays, and how a failed one is played again.

use std::{env, fmt::Debug, ops::Range, str::FromStr, thread};

const STREAMS: &str = "DEDUPD_PROPERTY_STREAMS";
const SEED: &str = "DEDUPD_PROPERTY_SEED";
const DEFAULT_SEED: u64 = 20_261_130;

/// One seed for each sequence, counted up from the base.
pub(crate) fn seeds(default_streams: u64) -> Range<u64> {
    let first = variable(SEED).unwrap_or(DEFAULT_SEED);
    first..first + variable(STREAMS).unwrap_or(default_streams)
}

pub(crate) fn variable<T: FromStr<Err: Debug>>(name: &str) -> Option<T> {
    let text = env::var(name).ok()?;
    Some(text.parse().unwrap_or_else(|error| {
        panic!("{name}={text}: {error:?}");
    }))
}

/// Names the seed and the command if the test panics, in whichever way, while this lives.
pub(crate) struct Playing {
    pub(crate) test: &'static str,
    pub(crate) seed: u64,
}

impl Drop for Playing {
    fn drop(&mut self) {
        if thread::panicking() {
            let Self { test, seed } = self;
            eprintln!(
                "seed {seed}; again: {SEED}={seed} {STREAMS}=1 cargo test --test it {test} -- --exact"
            );
        }
    }
}
