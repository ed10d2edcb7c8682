//! Command line → exit code.

use std::process::ExitCode;

use dedupd::cli::{self, Command};

fn main() -> ExitCode {
    match cli::parse(std::env::args_os()) {
        Ok(Command::Serve(options)) => cli::serve(&options),
        Ok(Command::Check(options)) => cli::check(&options),
        Ok(Command::Key(options)) => cli::key(&options),
        Err(ended) => ended,
    }
}
