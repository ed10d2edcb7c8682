//! `dedupd webhook`: the admission server.

use std::{path::PathBuf, process::ExitCode};

use clap::Args;

use super::refuse;
use crate::{
    app::{self, ConfigFile},
    config::{LogFormat, injector, log_format},
};

const CONFIG: &str = "--config";

#[derive(Args, Debug)]
pub struct WebhookOptions {
    /// The injector's YAML file: how it listens, and what it puts into pods
    #[arg(long, value_name = "FILE")]
    config: PathBuf,
    /// How logs are written [env: DEDUPD_LOG_FORMAT] [default: text]
    #[arg(long, value_enum)]
    log_format: Option<LogFormat>,
}

/// Answers the API server until it is told to stop.
pub fn webhook(options: &WebhookOptions) -> ExitCode {
    let format = match log_format(options.log_format, &|name| std::env::var_os(name)) {
        Ok(format) => format,
        Err(errors) => return refuse(&errors),
    };
    match injector::load(CONFIG, &options.config) {
        Ok(config) => {
            let file = ConfigFile {
                flag: CONFIG,
                path: options.config.clone(),
            };
            app::webhook(config, file, format)
        }
        Err(errors) => refuse(&errors),
    }
}
