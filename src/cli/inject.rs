//! `dedupd inject` and `dedupd uninject`: manifests in, manifests out.
//!
//! All or nothing: where one workload is refused nothing is written, so that a pipe to `kubectl
//! apply` applies nothing.

use std::{
    fs, io,
    io::{Read, Write},
    path::{Path, PathBuf},
    process::ExitCode,
};

use clap::Args;
use serde_json::Value;

use super::{EXIT_DATA, fail, refuse};
use crate::{
    config::injector,
    inject::{self, Ask, Outcome, stream, workload::workloads},
};

const INJECTOR_CONFIG: &str = "--injector-config";

#[derive(Args, Debug)]
pub struct InjectOptions {
    #[command(flatten)]
    manifests: ManifestOptions,
    /// The injector's YAML file: what is put in [default: the built-in namespaces on memory://]
    #[arg(long, value_name = "FILE")]
    injector_config: Option<PathBuf>,
    /// Also into pods without the annotation dedupd.io/inject; never where it is disabled
    #[arg(long)]
    all: bool,
}

#[derive(Args, Debug)]
pub struct ManifestOptions {
    /// YAML or JSON, once for each file; `-` is stdin
    #[arg(
        short = 'f',
        long = "filename",
        value_name = "FILE",
        default_value = "-"
    )]
    files: Vec<PathBuf>,
}

/// The manifests with sidecars on stdout; what became of each workload on stderr.
pub fn inject(options: &InjectOptions) -> ExitCode {
    let config = match &options.injector_config {
        Some(path) => injector::load(INJECTOR_CONFIG, path),
        None => injector::parse(INJECTOR_CONFIG, ""),
    };
    let config = match config {
        Ok(config) => config,
        Err(errors) => return refuse(&errors),
    };
    let ask = if options.all {
        Ask::All
    } else {
        Ask::Annotated
    };
    rewrite(&options.manifests, |title, pod| {
        match inject::inject(pod, &config.sidecar, ask) {
            Outcome::Injected(injection) => {
                json_patch::patch(pod, &injection.patch).map_err(|error| error.to_string())?;
                eprintln!("{title}: injected");
                for warning in &injection.warnings {
                    eprintln!("{title}: warning: {warning}");
                }
                Ok(true)
            }
            Outcome::Skipped(skip) => {
                eprintln!("{title}: left as it is: {skip}");
                Ok(false)
            }
            Outcome::Refused(refused) => Err(refused.message),
        }
    })
}

/// The manifests without sidecars on stdout; what became of each workload on stderr.
pub fn uninject(options: &ManifestOptions) -> ExitCode {
    rewrite(options, |title, pod| {
        let changed = inject::uninject(pod);
        if changed {
            eprintln!("{title}: uninjected");
        } else {
            eprintln!("{title}: left as it is: nothing was injected");
        }
        Ok(changed)
    })
}

fn rewrite(
    options: &ManifestOptions,
    mut change: impl FnMut(&str, &mut Value) -> Result<bool, String>,
) -> ExitCode {
    let mut out = String::new();
    let mut refused = false;
    for path in &options.files {
        let text = match read(path) {
            Ok(text) => text,
            Err(error) => {
                eprintln!("dedupd: cannot read {}: {error}", path.display());
                return ExitCode::from(EXIT_DATA);
            }
        };
        let rewritten = stream::rewrite(&text, |document| {
            let mut changed = false;
            for workload in workloads(document) {
                match change(&workload.title, workload.pod) {
                    Ok(has) => changed |= has,
                    Err(message) => {
                        eprintln!("{}: refused: {message}", workload.title);
                        refused = true;
                    }
                }
            }
            changed
        });
        match rewritten {
            Ok(rewritten) => append(&mut out, &rewritten),
            Err(fault) => {
                eprintln!("dedupd: {}: {fault}", path.display());
                return ExitCode::from(EXIT_DATA);
            }
        }
    }
    if refused {
        eprintln!("dedupd: nothing is written, since a workload was refused");
        return ExitCode::from(EXIT_DATA);
    }
    match io::stdout().write_all(out.as_bytes()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => fail(&format!("cannot write: {error}")),
    }
}

/// Files follow each other as documents of one stream.
fn append(out: &mut String, text: &str) {
    if !out.is_empty() {
        if !out.ends_with('\n') {
            out.push('\n');
        }
        if !text.starts_with("---") {
            out.push_str("---\n");
        }
    }
    out.push_str(text);
}

fn read(path: &Path) -> io::Result<String> {
    if path.as_os_str() == "-" {
        let mut text = String::new();
        io::stdin().read_to_string(&mut text)?;
        return Ok(text);
    }
    fs::read_to_string(path)
}
