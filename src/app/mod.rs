//! Wiring: the only place that binds and spawns.
//!
//! The order matters. All listeners are bound before anything runs, so that a conflict ends the
//! process before it has touched a store. The store is contacted before the first call is taken,
//! if it answers soon, so that no call meets a failure mode for want of a few milliseconds;
//! connections wait meanwhile. But the service never waits for a store that is not there.

mod bind;
mod connection;
mod doctor;
mod memory;
mod servers;
mod signals;
mod tls;
mod webhook;

use std::{future, io, process::ExitCode, sync::Arc, time::Duration};

use tokio::{runtime, task::JoinSet, time};

use self::{
    bind::{BindFault, Listeners, tcp_connections},
    servers::{Servers, Transport},
    signals::Signals,
    tls::TlsFault,
};
pub(crate) use self::{
    doctor::examine,
    memory::memory_limit_bytes,
    webhook::{ConfigFile, webhook},
};
use crate::{
    admin::{
        self, Admin,
        readiness::{Phase, Readiness},
    },
    clock::Clock,
    config::{self, Config, KnownClaims, LogFormat, StoreConfig, StoreUrl},
    domain::key::KeyScheme,
    engine::{
        Engine, examiner,
        keeper::{self, KeeperReport},
        known::{KnownOptions, SETTLED_AFTER},
        local, strangers,
    },
    grpc::{
        self, GrpcOptions,
        drain::{DrainSignal, InFlight},
        health::Health,
    },
    store::{
        Store,
        memory::MemoryStore,
        redis::{RedisOptions, RedisStore, target::Target},
    },
    telemetry::{
        logs,
        metrics::{Metrics, Sources},
    },
};

/// How long calls wait for the first contact with the store.
const CALLS_AWAIT_STORE: Duration = Duration::from_millis(500);
/// How long readiness does, the former included.
const READINESS_AWAITS_STORE: Duration = Duration::from_secs(5);
const MEMORY_TICK: Duration = Duration::from_secs(1);
/// Events that may wait for the store: a few milliseconds of its work. One request always may.
const MAX_QUEUED_EVENTS: usize = 50_000;

/// Runs the service until it is told to stop.
pub fn serve(config: Config, log_format: LogFormat, replace_contract: bool) -> ExitCode {
    begin(log_format, &config.warnings);
    to_its_end(run(config, replace_contract))
}

fn begin(log_format: LogFormat, warnings: &[String]) {
    logs::init(log_format);
    for warning in warnings {
        tracing::warn!("{warning}");
    }
}

fn to_its_end(work: impl Future<Output = Result<(), Failure>>) -> ExitCode {
    let outcome = runtime::Builder::new_multi_thread()
        .enable_all()
        .build()
        .map_err(Failure::System)
        .and_then(|runtime| {
            let outcome = runtime.block_on(work);
            // What still runs had its time.
            runtime.shutdown_background();
            outcome
        });
    match outcome {
        Ok(()) => ExitCode::SUCCESS,
        Err(failure) => {
            tracing::error!("{failure}");
            failure.exit_code()
        }
    }
}

/// Why the process ends otherwise than by a drain.
#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Bind(#[from] BindFault),
    #[error(transparent)]
    Tls(#[from] TlsFault),
    #[error("{0}")]
    Config(String),
    #[error("{0} ended, which it must not")]
    Task(String),
    #[error("gRPC cannot be served any more: {0}")]
    Servers(String),
    #[error("the operating system refuses what is needed: {0}")]
    System(io::Error),
    #[error("interrupted: the drain was cut short")]
    Interrupted,
}

impl Failure {
    /// As in `sysexits.h`, and 128 + 2 as a shell says of SIGINT.
    fn exit_code(&self) -> ExitCode {
        match self {
            Failure::Tls(_) | Failure::Config(_) => 64,
            Failure::Bind(_) => 69,
            Failure::Task(_) | Failure::Servers(_) => 70,
            Failure::System(_) => 71,
            Failure::Interrupted => 130,
        }
        .into()
    }
}

async fn run(config: Config, replace_contract: bool) -> Result<(), Failure> {
    let mut signals = Signals::listen().map_err(Failure::System)?;
    let tls = config
        .listen
        .tls
        .as_ref()
        .map(tls::server_tls)
        .transpose()?;
    let transport = Transport::new(tls)?;
    let listeners = Listeners::bind(&config.listen).await?;
    let (grpc_addresses, admin_address) = (listeners.grpc_addresses(), listeners.admin_address());
    let Listeners {
        grpc,
        admin,
        socket_files,
    } = listeners;

    let mut tasks = Tasks::default();
    let service = Service::start(&config, replace_contract, &mut tasks).await?;
    let routes = admin::routes(service.admin(&config));
    tasks.start(
        "admin HTTP",
        admin::serve(Box::pin(tcp_connections(admin)), routes),
    );

    let contacted = time::timeout(CALLS_AWAIT_STORE, service.keeper.wait_contacted())
        .await
        .is_ok();
    let (drain_signal, drain_watch) = grpc::drain::drain();
    let options = GrpcOptions {
        max_request_bytes: config.limits.max_request_bytes,
        max_response_bytes: config.limits.max_response_bytes,
        allow_forget: config.inspect.allow_forget,
    };
    let (routes, calls) = grpc::routes(
        &service.engine,
        options,
        &drain_watch,
        &service.in_flight,
        &service.health,
    );
    let mut servers = Servers::start(&transport, grpc, &routes, &calls);
    service.readiness.advance(if contacted {
        Phase::Serving
    } else {
        Phase::AwaitingStore
    });
    tasks.start("the watch for the first contact", service.latch_ready());
    tracing::info!(
        grpc = %grpc_addresses,
        admin = %admin_address,
        store = %config.store.url,
        version = env!("CARGO_PKG_VERSION"),
        "listening"
    );

    let signal = tokio::select! {
        signal = signals.stop() => signal,
        task = tasks.ended() => return Err(Failure::Task(task)),
        why = servers.ended() => return Err(Failure::Servers(why)),
    };
    tracing::info!(signal, "draining: calls that still come are served");
    service
        .drain(&drain_signal, config.drain, &mut signals)
        .await?;
    servers.close().await;
    service.report_unwritten();
    drop(socket_files);
    Ok(())
}

/// What runs beside the listeners.
#[derive(Debug)]
struct Service {
    engine: Arc<Engine>,
    keeper: Arc<KeeperReport>,
    in_flight: InFlight,
    health: Health,
    readiness: Arc<Readiness>,
}

impl Service {
    async fn start(
        config: &Config,
        replace_contract: bool,
        tasks: &mut Tasks,
    ) -> Result<Self, Failure> {
        let clock = Clock::system();
        let store = open_store(config, &clock, tasks);
        let max_events = config.limits.max_events_per_request;
        let mut engine = Engine::new(config.namespaces.clone(), store, clock.clone(), max_events);
        if config.needs_local_store() {
            engine = engine.with_local(config.store.max_local_memory_bytes);
        }
        if let Some(options) = known_options(&config.store) {
            engine = engine.with_known_claims(options);
        }
        let engine = Arc::new(engine);
        tasks.start(
            "the embedded store's write-back",
            local::write_back::keep(Arc::clone(&engine)),
        );
        let keeper = Arc::new(KeeperReport::default());
        let health = Health::serving().await;
        tasks.start(
            "the store's keeper",
            keeper::keep(Arc::clone(&engine), Arc::clone(&keeper), replace_contract),
        );
        tasks.start(
            "the store's examiner",
            examiner::examine(Arc::clone(&engine), Arc::clone(&keeper)),
        );
        tasks.start("the healing of keys", strangers::heal(Arc::clone(&engine)));
        tasks.start("the store's health", {
            let (health, engine) = (health.clone(), Arc::clone(&engine));
            async move { health.follow_store(engine).await }
        });
        let readiness = Arc::new(Readiness::new(Arc::clone(&engine)));
        Ok(Self {
            engine,
            keeper,
            in_flight: InFlight::new(clock),
            health,
            readiness,
        })
    }

    /// Ready from the first contact on, or when that was waited for long enough.
    fn latch_ready(&self) -> impl Future<Output = ()> + use<> {
        let (readiness, keeper) = (Arc::clone(&self.readiness), Arc::clone(&self.keeper));
        async move {
            let _ = time::timeout(
                READINESS_AWAITS_STORE - CALLS_AWAIT_STORE,
                keeper.wait_contacted(),
            )
            .await;
            readiness.advance(Phase::Serving);
            future::pending().await
        }
    }

    fn admin(&self, config: &Config) -> Admin {
        Admin {
            readiness: Arc::clone(&self.readiness),
            metrics: Metrics::new(Sources {
                engine: Arc::clone(&self.engine),
                keeper: Arc::clone(&self.keeper),
                in_flight: self.in_flight.clone(),
                store_is_per_instance: config.store.url == StoreUrl::Memory,
            }),
            config: format!("{:#}\n", config.redacted()),
        }
    }

    /// Claims of an outage die with the process.
    fn report_unwritten(&self) {
        let claims = self.engine.local().and_then(|local| local.stats().claims);
        if let Some(claims) = claims.filter(|claims| *claims > 0) {
            tracing::error!(
                claims,
                "claims of an outage were not written to the store: copies of their events will be admitted again"
            );
        }
    }

    /// Returns once nothing comes any more, or when time is up. Calls are served all along.
    async fn drain(
        &self,
        signal: &DrainSignal,
        limits: config::Drain,
        signals: &mut Signals,
    ) -> Result<(), Failure> {
        self.readiness.advance(Phase::Draining);
        self.health.not_serving().await;
        signal.begin();
        tokio::select! {
            () = self.in_flight.quiet(limits.quiet) => {
                tracing::info!("drained: no call was in flight for drain.quiet");
                Ok(())
            }
            () = time::sleep(limits.deadline) => {
                let in_flight = self.in_flight.in_flight();
                tracing::warn!(in_flight, "drain.deadline is reached while calls still come");
                Ok(())
            }
            () = signals.interrupt() => Err(Failure::Interrupted),
        }
    }
}

/// An embedded store answers as fast itself.
fn known_options(store: &StoreConfig) -> Option<KnownOptions> {
    let KnownClaims { max_age, max_bytes } = store.known_claims;
    (store.url != StoreUrl::Memory && !max_age.is_zero()).then_some(KnownOptions {
        max_age,
        max_bytes,
        settled_after: SETTLED_AFTER,
    })
}

fn open_store(config: &Config, clock: &Clock, tasks: &mut Tasks) -> Arc<dyn Store> {
    match &config.store.url {
        StoreUrl::Memory => {
            let store = Arc::new(MemoryStore::new(
                clock.clone(),
                config.store.max_memory_bytes,
            ));
            let ticking = Arc::clone(&store);
            tasks.start("the memory store's tick", async move {
                let mut ticks = time::interval(MEMORY_TICK);
                loop {
                    ticks.tick().await;
                    ticking.tick();
                }
            });
            store
        }
        StoreUrl::Redis(target) => {
            let schemes: Vec<KeyScheme> = config
                .namespaces
                .iter()
                .map(|policy| policy.scheme().clone())
                .collect();
            let (store, work) = RedisStore::new(RedisOptions {
                target: Target::clone(target),
                budget: config.store.budget,
                schemes: schemes.into(),
                max_queued_events: MAX_QUEUED_EVENTS.max(config.limits.max_events_per_request),
            });
            tasks.start("the store's work", work);
            Arc::new(store)
        }
    }
}

/// What runs for as long as the process does.
#[derive(Debug, Default)]
struct Tasks(JoinSet<&'static str>);

impl Tasks {
    fn start(&mut self, name: &'static str, task: impl Future<Output = ()> + Send + 'static) {
        self.0.spawn(async move {
            task.await;
            name
        });
    }

    /// Returns when one of them ends, which none should.
    async fn ended(&mut self) -> String {
        match self.0.join_next().await {
            None => "every task".to_owned(),
            Some(Ok(name)) => name.to_owned(),
            Some(Err(panic)) => panic.to_string(),
        }
    }
}
