//! Two services on one store, and what can be done to them and to the wires.

use std::{
    fs,
    sync::{
        Arc, Mutex, RwLock,
        atomic::{AtomicUsize, Ordering},
    },
    thread,
    time::{Duration, Instant},
};

use dedupd::grpc::proto::dedup_service_client::DedupServiceClient;
use tokio::runtime::Handle;
use tonic::transport::Channel;

use super::{
    history::At,
    schedule::WireFault,
    store::{Store, Topology},
};
use crate::support::{
    proxy::Proxy,
    service::{Options, Service},
};

pub(super) const SERVICES: usize = 2;

pub(super) type Client = DedupServiceClient<Channel>;

/// What was configured.
#[derive(Clone, Debug)]
pub(super) struct Setup {
    pub(super) topology: Topology,
    pub(super) lease: Option<Duration>,
    pub(super) ttl: Duration,
    pub(super) budget: Duration,
    /// Of transitions, for each service.
    pub(super) guards: [Duration; SERVICES],
}

pub(super) struct Site {
    setup: Setup,
    began: Instant,
    runtime: Handle,
    store: Mutex<Store>,
    wires: Vec<Arc<Proxy>>,
    urls: Vec<String>,
    services: Vec<Mutex<Service>>,
    /// Of each service, with the number of the instance.
    clients: Vec<RwLock<(Client, usize)>>,
    /// The logs of services that have ended.
    ended: Mutex<Vec<String>>,
    /// Promotions of replicas that the schedule has brought about.
    planned: AtomicUsize,
}

impl Site {
    /// Called within a runtime, which the clients use.
    pub(super) fn start(setup: Setup) -> Self {
        let store = Store::start(setup.topology);
        let urls: Vec<_> = (0..SERVICES).map(|number| store.url(number)).collect();
        let runtime = Handle::current();
        let services: Vec<_> = (0..SERVICES)
            .map(|number| serve(&setup, number, &urls[number]))
            .collect();
        let clients = (0..).zip(&services);
        let clients: Vec<_> = clients
            .map(|(instance, service)| RwLock::new((client(service), instance)))
            .collect();
        Self {
            setup,
            began: Instant::now(),
            runtime,
            wires: store.wires().to_vec(),
            store: Mutex::new(store),
            urls,
            services: services.into_iter().map(Mutex::new).collect(),
            clients,
            ended: Mutex::default(),
            planned: AtomicUsize::new(0),
        }
    }

    pub(super) fn now(&self) -> At {
        self.began.elapsed()
    }

    pub(super) fn topology(&self) -> Topology {
        self.setup.topology
    }

    pub(super) fn client(&self, service: usize) -> (Client, usize) {
        let client = self.clients[service].read().expect("no panic inside");
        client.clone()
    }

    pub(super) fn with_service<T>(&self, number: usize, ask: impl FnOnce(&Service) -> T) -> T {
        ask(&self.services[number].lock().expect("no panic inside"))
    }

    pub(super) fn with_store<T>(&self, ask: impl FnOnce(&mut Store) -> T) -> T {
        ask(&mut self.store.lock().expect("no panic inside"))
    }

    pub(super) fn wires(&self) -> &[Arc<Proxy>] {
        &self.wires
    }

    /// Everything that any service has logged.
    pub(super) fn logs(&self) -> Vec<String> {
        let mut logs = self.ended.lock().expect("no panic inside").clone();
        logs.extend((0..SERVICES).flat_map(|number| self.with_service(number, Service::logs)));
        logs
    }

    pub(super) fn planned(&self, promotions: usize) {
        self.planned.fetch_add(promotions, Ordering::Relaxed);
    }

    /// Promotions that nobody asked for: the machine was too busy for servers to answer each other.
    pub(super) fn unplanned(&self) -> usize {
        let promotions = self.with_store(|store| store.promotions());
        promotions - self.planned.load(Ordering::Relaxed)
    }

    /// The fault is on the wire for so long.
    pub(super) fn disturb(&self, wire: usize, fault: WireFault, lasts: Duration) {
        let wire = &self.wires[wire];
        match fault {
            WireFault::SlowRequests(delay) => wire.delay_requests(delay),
            WireFault::SlowReplies(delay) => wire.delay_replies(delay),
            WireFault::Narrow(bytes_per_second) => wire.limit_requests(bytes_per_second),
            WireFault::LosesReplies(chunks) => wire.swallow_replies(chunks),
            WireFault::BlackHole | WireFault::BlackHoleThenCut => wire.black_hole(),
            WireFault::HoldsReplies => wire.hold_replies(),
            WireFault::Cut => wire.cut_connections(),
            WireFault::Refuses => wire.refuse(),
        }
        thread::sleep(lasts);
        if fault == WireFault::BlackHoleThenCut {
            wire.cut_connections();
        }
        wire.pass();
    }

    /// A service dies, with what it had not given back, and another takes its place.
    pub(super) fn replace(&self, number: usize) {
        let mut service = self.services[number].lock().expect("no panic inside");
        service.signal("KILL");
        service.wait_exit(Duration::from_secs(5));
        let mut ended = self.ended.lock().expect("no panic inside");
        ended.extend(service.logs());
        *service = serve(&self.setup, number, &self.urls[number]);
        let _runtime = self.runtime.enter();
        let mut current = self.clients[number].write().expect("no panic inside");
        *current = (client(&service), current.1 + SERVICES);
    }

    /// How long the threads of a service have waited for a core since they began.
    pub(super) fn waited(&self, service: usize) -> Duration {
        // While one takes the place of another, nobody waits.
        let Ok(service) = self.services[service].try_lock() else {
            return Duration::ZERO;
        };
        let tasks = fs::read_dir(format!("/proc/{}/task", service.pid()));
        let tasks = tasks.into_iter().flatten().flatten();
        let waited = tasks.filter_map(|task| {
            let text = fs::read_to_string(task.path().join("schedstat")).ok()?;
            text.split(' ').nth(1)?.parse::<u64>().ok()
        });
        Duration::from_nanos(waited.sum())
    }

    /// Resident memory, and open sockets.
    pub(super) fn needs(&self, service: usize) -> Needs {
        let pid = self.with_service(service, Service::pid);
        let status = fs::read_to_string(format!("/proc/{pid}/status")).expect("it runs");
        let line = status.lines().find_map(|line| line.strip_prefix("VmRSS:"));
        let resident = line.expect("VmRSS").trim().trim_end_matches(" kB");
        let files = fs::read_dir(format!("/proc/{pid}/fd")).expect("it runs");
        let targets = files.filter_map(|file| fs::read_link(file.ok()?.path()).ok());
        Needs {
            resident_kib: resident.parse().expect("a number"),
            sockets: targets
                .filter(|target| target.to_string_lossy().starts_with("socket:"))
                .count(),
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Needs {
    pub(super) resident_kib: usize,
    pub(super) sockets: usize,
}

fn client(service: &Service) -> Client {
    let endpoint = Channel::from_shared(service.grpc_url()).expect("a URL");
    DedupServiceClient::new(endpoint.connect_lazy())
}

fn serve(setup: &Setup, number: usize, url: &str) -> Service {
    let lease = setup.lease.unwrap_or_default().as_millis();
    let (ttl, budget) = (setup.ttl.as_millis(), setup.budget.as_millis());
    let guard = setup.guards[number].as_millis();
    let common = format!(
        "ttl: {ttl}ms, lease: {lease}ms, in_flight_retry: 50ms, \
         time: {{ max_age: off, max_future: off }}"
    );
    let config = format!(
        "store: {{ url: \"{url}\", budget: {budget}ms }}
namespaces:
  orders: {{ accepts: [keyed], window: none, failure_mode: closed, {common} }}
  readings: {{ accepts: [keyed], window: none, failure_mode: local, {common} }}
  alerts: {{ accepts: [keyed], window: none, failure_mode: open, {common} }}
  crossings: {{ accepts: [transition], window: {{ tumbling: 2s, guard: {guard}ms }}, failure_mode: closed, {common} }}
  sessions: {{ accepts: [ping], window: {{ session: 10s }}, place: none, failure_mode: closed, {common} }}
"
    );
    Service::start(&Options {
        config: Some(config),
        ..Options::default()
    })
}
