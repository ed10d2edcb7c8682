//! What comes from files and changes with them: the certificate and the configuration.
//!
//! Their content is looked at, not their times: a ConfigMap's files are links that are exchanged.

use std::{
    fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use tokio::time;

use super::{
    certificate::{Current, Pair},
    metrics::Counts,
    server::{Injector, Ready},
};
use crate::config::injector::{self, InjectorConfig};

/// Kubelets take a minute to bring a change: two seconds more do not matter.
const LOOK: Duration = Duration::from_secs(2);

fn read_pair(certificate: &Path, key: &Path) -> Result<Pair, String> {
    let read = |path: &Path| {
        fs::read_to_string(path).map_err(|error| format!("cannot read {}: {error}", path.display()))
    };
    Ok(Pair {
        certificate: read(certificate)?,
        key: read(key)?,
    })
}

/// Keeps the certificate that of the files. It need not be there yet.
pub async fn follow_certificate(
    certificate: PathBuf,
    key: PathBuf,
    current: Arc<Current>,
    ready: Arc<Ready>,
) {
    let mut seen = None;
    loop {
        let found = read_pair(&certificate, &key);
        if seen.as_ref() != Some(&found) {
            match found
                .as_ref()
                .map_err(Clone::clone)
                .and_then(|pair| current.change(pair))
            {
                Ok(()) => {
                    ready.trusted();
                    tracing::info!("the certificate of {} is served", certificate.display());
                }
                Err(message) => {
                    // Also where one file is new and the other is not yet.
                    current.failed();
                    tracing::error!("tls.files: {message}; what was served before stays");
                }
            }
            seen = Some(found);
        }
        time::sleep(LOOK).await;
    }
}

/// Keeps what is injected that of the configuration's file.
pub async fn follow_config(
    flag: &'static str,
    path: PathBuf,
    first: InjectorConfig,
    injector: Arc<Injector>,
    counts: Arc<Counts>,
) {
    let mut applied = first;
    let mut seen: Option<Result<String, io::ErrorKind>> = None;
    loop {
        let found = fs::read_to_string(&path).map_err(|error| error.kind());
        if seen.as_ref() != Some(&found) {
            match injector::load(flag, &path) {
                Ok(config) if config == applied => {}
                Ok(config) => {
                    warn_of_restart(&applied, &config);
                    for warning in &config.warnings {
                        tracing::warn!("{warning}");
                    }
                    injector.sidecar.store(Arc::new(config.sidecar.clone()));
                    injector.events.enable(config.events);
                    counts.reloaded(true);
                    tracing::info!("the new configuration is in effect");
                    applied = config;
                }
                Err(errors) => {
                    counts.reloaded(false);
                    tracing::error!("{errors}\nthe configuration before stays in effect");
                }
            }
            seen = Some(found);
        }
        time::sleep(LOOK).await;
    }
}

fn warn_of_restart(before: &InjectorConfig, after: &InjectorConfig) {
    let same = before.listen == after.listen
        && before.admin_listen == after.admin_listen
        && before.tls == after.tls
        && before.api == after.api;
    if !same {
        tracing::warn!("listen, admin_listen, tls and api need a restart");
    }
}
