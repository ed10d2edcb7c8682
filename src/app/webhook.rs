//! Wiring of the admission server.

use std::{path::PathBuf, process::ExitCode, sync::Arc, time::Duration};

use tokio::{sync::watch, time};

use super::{
    Failure, Tasks,
    bind::{BindFault, bind_tcp, tcp_connections},
    signals::Signals,
};
use crate::{
    admin,
    clock::Clock,
    config::{
        LogFormat,
        injector::{InjectorConfig, Tls},
    },
    webhook::{
        api::{self, Api},
        certificate::Current,
        events::{self, Events},
        files,
        metrics::{Counts, Metrics},
        self_made::SelfMaker,
        server::{self, Injector, Phase, Ready},
    },
};

/// After SIGTERM, until nobody is sent here any more.
const LAME_TIME: Duration = Duration::from_secs(5);

/// Where the configuration came from, to be looked at again.
#[derive(Clone, Debug)]
pub(crate) struct ConfigFile {
    pub(crate) flag: &'static str,
    pub(crate) path: PathBuf,
}

/// Answers reviews until it is told to stop.
pub(crate) fn webhook(config: InjectorConfig, file: ConfigFile, log_format: LogFormat) -> ExitCode {
    super::begin(log_format, &config.warnings);
    super::to_its_end(run(config, file))
}

async fn run(config: InjectorConfig, file: ConfigFile) -> Result<(), Failure> {
    let mut signals = Signals::listen().map_err(Failure::System)?;
    let listener = bind_tcp(config.listen)
        .await
        .map_err(|error| BindFault::new("listen", &config.listen, error.into()))?;
    let admin_listener = bind_tcp(config.admin_listen)
        .await
        .map_err(|error| BindFault::new("admin_listen", &config.admin_listen, error.into()))?;
    let address = listener.local_addr().map_err(Failure::System)?;
    let admin_address = admin_listener.local_addr().map_err(Failure::System)?;

    let mut tasks = Tasks::default();
    let clock = Clock::system();
    let counts = Arc::new(Counts::default());
    let current = Arc::new(Current::default());
    let ready = Arc::new(Ready::default());
    let events = start_events(&config, &clock, &counts, &mut tasks);
    start_certificate(&config, &current, &ready, &clock, &mut tasks)?;
    let injector = Arc::new(Injector::new(
        config.sidecar.clone(),
        Arc::clone(&counts),
        events,
        clock,
    ));
    tasks.start(
        "the watch for the configuration",
        files::follow_config(
            file.flag,
            file.path,
            config,
            Arc::clone(&injector),
            Arc::clone(&counts),
        ),
    );
    let tls = current
        .server_config()
        .map_err(|error| Failure::Config(format!("TLS cannot be served: {error}")))?;
    let metrics = Metrics::new(counts, current);
    tasks.start(
        "admin HTTP",
        admin::serve(
            Box::pin(tcp_connections(admin_listener)),
            server::admin_routes(metrics, Arc::clone(&ready)),
        ),
    );
    let (phase, phase_watch) = watch::channel(Phase::Serving);
    let serving = server::serve(
        Box::pin(tcp_connections(listener)),
        tls,
        server::routes(injector),
        phase_watch,
    );
    let mut serving = std::pin::pin!(serving);
    tracing::info!(
        https = %address,
        admin = %admin_address,
        version = env!("CARGO_PKG_VERSION"),
        "listening"
    );
    let signal = tokio::select! {
        signal = signals.stop() => signal,
        task = tasks.ended() => return Err(Failure::Task(task)),
        () = serving.as_mut() => return Err(Failure::Task("the admission server".to_owned())),
    };
    tracing::info!(signal, "draining: reviews that still come are answered");
    ready.drain();
    phase.send_replace(Phase::Draining);
    tokio::select! {
        () = time::sleep(LAME_TIME) => {}
        () = serving.as_mut() => {}
        () = signals.interrupt() => return Err(Failure::Interrupted),
    }
    phase.send_replace(Phase::Closed);
    serving.await;
    Ok(())
}

fn start_events(
    config: &InjectorConfig,
    clock: &Clock,
    counts: &Arc<Counts>,
    tasks: &mut Tasks,
) -> Events {
    match Api::new(&config.api) {
        Ok(api) => {
            let (events, queue) = Events::queue(Arc::clone(counts));
            events.enable(config.events);
            let (clock, counts) = (clock.clone(), Arc::clone(counts));
            tasks.start(
                "the sender of Events",
                events::send(queue, api, clock, counts),
            );
            events
        }
        Err(message) => {
            if config.events {
                tracing::warn!("no Events are created: {message}");
            }
            Events::none(Arc::clone(counts))
        }
    }
}

fn start_certificate(
    config: &InjectorConfig,
    current: &Arc<Current>,
    ready: &Arc<Ready>,
    clock: &Clock,
    tasks: &mut Tasks,
) -> Result<(), Failure> {
    let (current, ready) = (Arc::clone(current), Arc::clone(ready));
    match &config.tls {
        None => Err(Failure::Config(
            "tls: is required: set tls.files or tls.self_made".to_owned(),
        )),
        Some(Tls::Files { cert, key }) => {
            let follow = files::follow_certificate(cert.clone(), key.clone(), current, ready);
            tasks.start("the watch for the certificate", follow);
            Ok(())
        }
        Some(Tls::SelfMade(self_made)) => {
            let namespace = self_made.namespace.clone().or_else(api::own_namespace);
            let namespace = namespace.ok_or_else(|| {
                Failure::Config("tls.self_made.namespace: is required outside of a pod".to_owned())
            })?;
            let maker = SelfMaker {
                api: Api::new(&config.api).map_err(Failure::Config)?,
                config: self_made.clone(),
                namespace,
                current,
                ready,
                clock: clock.clone(),
            };
            tasks.start("the keeper of the certificate", maker.keep());
            Ok(())
        }
    }
}
