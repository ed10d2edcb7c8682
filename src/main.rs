//! Command line → exit code.

use std::process::ExitCode;

use dedupd::cli::{self, Command};

/// Requests are thousands of small allocations that end together: an eighth less CPU per event than
/// with the system's allocator (`cargo bench --bench transport_floor`).
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> ExitCode {
    match cli::parse(std::env::args_os()) {
        Ok(Command::Serve(options)) => cli::serve(&options),
        Ok(Command::Check(options)) => cli::check(&options),
        Ok(Command::Doctor(options)) => cli::doctor(&options),
        Ok(Command::Key(options)) => cli::key(&options),
        Ok(Command::Replay(options)) => cli::replay(&options),
        Ok(Command::Advise(options)) => cli::advise(&options),
        Ok(Command::Synth(options)) => cli::synth(&options),
        Ok(Command::Inject(options)) => cli::inject(&options),
        Ok(Command::Uninject(options)) => cli::uninject(&options),
        Ok(Command::Webhook(options)) => cli::webhook(&options),
        Ok(Command::Probe(options)) => cli::probe(&options),
        Ok(Command::Bench(options)) => cli::bench(&options),
        Err(ended) => ended,
    }
}
