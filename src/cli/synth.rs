//! `dedupd synth`: a made-up trace as labelled CSV.

use std::{
    fs::File,
    io::{self, BufWriter, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;
use flate2::{Compression, write::GzEncoder};

use super::{EXIT_USAGE, fail, trace_options::RecipeFlags};
use crate::replay::{synth::Synth, write::write_csv};

const BUFFER_BYTES: usize = 1 << 18;

#[derive(Args, Debug)]
pub struct SynthOptions {
    /// Where the CSV goes, gzipped if the name ends in .gz [default: stdout]
    #[arg(long, short, value_name = "FILE")]
    output: Option<PathBuf>,
    #[command(flatten)]
    recipe: RecipeFlags,
}

/// Writes the whole trace; a reader who has had enough is no fault.
pub fn synth(options: &SynthOptions) -> ExitCode {
    let recipe = match options.recipe.recipe() {
        Ok(recipe) => recipe,
        Err(why) => {
            eprintln!("dedupd: {why}");
            return ExitCode::from(EXIT_USAGE);
        }
    };
    let mut trace = Synth::new(recipe);
    let written = match &options.output {
        None => write_csv(
            &mut trace,
            &mut BufWriter::with_capacity(BUFFER_BYTES, io::stdout()),
        ),
        Some(path) => write_file(&mut trace, path),
    };
    match written {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => ExitCode::SUCCESS,
        Err(error) => fail(&format!("cannot write the trace: {error}")),
    }
}

fn write_file(trace: &mut Synth, path: &Path) -> io::Result<()> {
    let file = BufWriter::with_capacity(BUFFER_BYTES, File::create(path)?);
    if path.extension().is_some_and(|extension| extension == "gz") {
        let mut packed = GzEncoder::new(file, Compression::fast());
        write_csv(trace, &mut packed)?;
        packed.finish()?.flush()
    } else {
        let mut file = file;
        write_csv(trace, &mut file)
    }
}
