//! The surface on a loopback port, over a store that can be held up.

use std::{
    net::{Ipv4Addr, SocketAddr},
    sync::Arc,
    time::Duration,
};

use dedupd::{
    clock::Clock,
    domain::{
        claim::Standing,
        kind::{Accepts, Kind},
        policy::{FailureMode, Mode, NamespaceName, Place, Policy, PolicyDraft, Window},
        time::EventTime,
        time::{Implausible, TimeLimits},
    },
    engine::Engine,
    grpc::{
        self, GrpcOptions,
        calls::Calls,
        drain::{DrainSignal, InFlight},
        health::Health,
        proto::{
            self as pb, dedup_service_client::DedupServiceClient, event,
            inspect_service_client::InspectServiceClient,
        },
    },
    store::{
        ClaimRequest, Claims, ContractAssertion, Found, GiveBack, QueueFull, Reply, SettleRequest,
        Store, StoreError, StoreStats,
        examination::{Examination, ExamineRequest},
        heal::{HealRequest, Healed},
        memory::MemoryStore,
        write_back::{WriteBack, WrittenBack},
    },
};
use tokio::{net::TcpListener, sync::watch, task::JoinHandle, time};
use tokio_stream::wrappers::TcpListenerStream;
use tonic::{
    service::Routes,
    transport::{Channel, Endpoint},
};
use tower::Layer;

pub(super) const MAX_EVENTS: usize = 5000;
pub(super) const LIMITS: GrpcOptions = GrpcOptions {
    max_request_bytes: 64 * 1024,
    max_response_bytes: 8 * 1024,
    allow_forget: true,
};

/// An event with this id makes the store panic.
pub(super) const PANICS: &str = "this one panics";

pub(super) struct Server {
    pub(super) engine: Arc<Engine>,
    /// Without a connection.
    pub(super) service: Calls<Routes>,
    pub(super) drain: DrainSignal,
    pub(super) in_flight: InFlight,
    pub(super) health: Health,
    gate: watch::Sender<bool>,
    pub(super) addr: SocketAddr,
    task: JoinHandle<()>,
}

impl Server {
    pub(super) async fn start() -> Self {
        let clock = Clock::system();
        let (gate, _) = watch::channel(true);
        let store = GatedStore {
            inner: Arc::new(MemoryStore::new(clock.clone(), 1 << 26)),
            gate: gate.clone(),
        };
        let engine = Arc::new(Engine::new(
            policies(),
            Arc::new(store),
            clock.clone(),
            MAX_EVENTS,
        ));
        engine.breaker().probe_answered();
        let (drain, watch) = grpc::drain::drain();
        let in_flight = InFlight::new(clock);
        let health = Health::serving().await;
        let (routes, calls) = grpc::routes(&engine, LIMITS, &watch, &in_flight, &health);
        let listener = TcpListener::bind((Ipv4Addr::LOCALHOST, 0))
            .await
            .expect("a free port");
        let addr = listener.local_addr().expect("a bound socket");
        let serving = tonic::transport::Server::builder()
            .layer(calls.clone())
            .add_routes(routes.clone())
            .serve_with_incoming(TcpListenerStream::new(listener));
        let task = tokio::spawn(async move { serving.await.expect("it serves") });
        Self {
            engine,
            service: calls.layer(routes),
            drain,
            in_flight,
            health,
            gate,
            addr,
            task,
        }
    }

    pub(super) async fn channel(&self) -> Channel {
        let endpoint = Endpoint::from_shared(format!("http://{}", self.addr)).expect("an address");
        endpoint.connect().await.expect("the server listens")
    }

    pub(super) async fn dedup(&self) -> DedupServiceClient<Channel> {
        DedupServiceClient::new(self.channel().await)
    }

    pub(super) async fn inspect(&self) -> InspectServiceClient<Channel> {
        InspectServiceClient::new(self.channel().await)
    }

    /// The store claims, and keeps its answers to itself.
    pub(super) fn hold_answers(&self) {
        self.gate.send_replace(false);
    }

    pub(super) fn release_answers(&self) {
        self.gate.send_replace(true);
    }

    pub(super) async fn wait_in_flight(&self, calls: usize) {
        let reached = async {
            while self.in_flight.in_flight() != calls {
                time::sleep(Duration::from_millis(2)).await;
            }
        };
        let in_time = time::timeout(Duration::from_secs(5), reached).await;
        assert!(
            in_time.is_ok(),
            "{} calls in flight, not {calls}",
            self.in_flight.in_flight()
        );
    }

    /// How many claims stand that this event would meet.
    pub(super) async fn claims_met_by(&self, namespace: &str, event: pb::Event) -> usize {
        let request = pb::ExplainRequest {
            namespace: namespace.to_owned(),
            event: Some(event),
        };
        let explained = self
            .inspect()
            .await
            .explain(request)
            .await
            .expect("an explanation");
        explained.into_inner().claims.len()
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        self.task.abort();
    }
}

pub(super) fn admit(namespace: &str, events: Vec<pb::Event>) -> pb::AdmitRequest {
    pb::AdmitRequest {
        namespace: namespace.to_owned(),
        events,
        ..pb::AdmitRequest::default()
    }
}

pub(super) fn keyed(event_id: &str) -> pb::Event {
    let keyed = pb::Keyed {
        event_id: event_id.to_owned(),
    };
    pb::Event {
        identity: Some(event::Identity::Keyed(keyed)),
        ..pb::Event::default()
    }
}

fn policies() -> Vec<Arc<Policy>> {
    let keyed = |name, lease, mode| {
        policy(PolicyDraft {
            lease,
            mode,
            ..draft(name, Kind::Keyed, Window::None)
        })
    };
    let place = Place::new(12, 0.0, 20.0, None).expect("a place");
    let window = Window::Buckets {
        width_ns: 300_000_000_000,
        guard_ns: 0,
    };
    vec![
        policy(PolicyDraft {
            place: Some(place),
            ..draft("pings", Kind::Ping, window)
        }),
        policy(draft("transitions", Kind::Transition, window)),
        keyed("events", Duration::ZERO, Mode::Enforce),
        keyed("orders", Duration::from_secs(30), Mode::Enforce),
        keyed("watched", Duration::ZERO, Mode::Shadow),
    ]
}

fn policy(draft: PolicyDraft) -> Arc<Policy> {
    Arc::new(Policy::new(draft).expect("a policy"))
}

fn draft(name: &str, kind: Kind, window: Window) -> PolicyDraft {
    PolicyDraft {
        time_limits: TimeLimits::new(None, None, Implausible::DeadLetter),
        ..PolicyDraft::new(
            NamespaceName::new(name).expect("a name"),
            Accepts::from_kinds([kind]),
            window,
            Duration::from_secs(3600),
            FailureMode::Closed,
        )
    }
}

/// The time of every ping here: in the middle of a bucket.
pub(super) const AT: EventTime = EventTime::from_unix_nanos(1_800_000_100_000_000_000);

pub(super) fn ping(asset_id: &str, latitude: f64) -> pb::Event {
    let at = pb::LatLng {
        latitude: Some(latitude),
        longitude: Some(8.5),
    };
    let ping = pb::Ping {
        asset_id: asset_id.to_owned(),
        position: Some(pb::ping::Position::LatLng(at)),
    };
    pb::Event {
        identity: Some(event::Identity::Ping(ping)),
        time: Some(event::Time::OccurredAtUnixNanos(AT.unix_nanos())),
        ..pb::Event::default()
    }
}

/// An embedded store whose claims are made at once, and told of while the gate is open.
#[derive(Debug)]
struct GatedStore {
    inner: Arc<MemoryStore>,
    gate: watch::Sender<bool>,
}

impl GatedStore {
    fn behind_gate<T: Send + Unpin + 'static>(&self, reply: Reply<T>) -> Reply<T> {
        let mut gate = self.gate.subscribe();
        if *gate.borrow() {
            return reply;
        }
        Reply::waiting(async move {
            gate.wait_for(|open| *open).await.expect("the server lives");
            reply.await
        })
    }
}

impl Store for GatedStore {
    fn claim(
        self: Arc<Self>,
        request: Arc<ClaimRequest>,
        asked: Vec<usize>,
    ) -> Result<Reply<Claims>, QueueFull> {
        let plans = &request.plans;
        let panics =
            |name| matches!(name, dedupd::domain::key::KeyName::Id(id) if id == PANICS.as_bytes());
        assert!(
            !plans.plans().iter().any(|plan| panics(plans.primary(plan))),
            "as the test wants it"
        );
        Ok(self.behind_gate(Arc::clone(&self.inner).claim(request, asked)?))
    }

    fn adopt(self: Arc<Self>, request: Arc<ClaimRequest>, plans: Vec<usize>) -> Reply<Claims> {
        Arc::clone(&self.inner).adopt(request, plans)
    }

    fn give_back(&self, request: &Arc<ClaimRequest>, claims: Vec<GiveBack>) {
        self.inner.give_back(request, claims);
    }

    fn settle(
        &self,
        request: SettleRequest,
    ) -> Result<Reply<Vec<Result<dedupd::domain::claim::SettleOutcome, StoreError>>>, QueueFull>
    {
        Ok(self.behind_gate(self.inner.settle(request)?))
    }

    fn write_back(&self, batch: &Arc<WriteBack>) -> Reply<Vec<Result<WrittenBack, StoreError>>> {
        self.inner.write_back(batch)
    }

    fn withdraw(&self, batch: &Arc<WriteBack>, items: Vec<usize>) {
        self.inner.withdraw(batch, items);
    }

    fn inspect(&self, request: Arc<ClaimRequest>) -> Reply<Result<Vec<Option<Found>>, StoreError>> {
        self.inner.inspect(request)
    }

    fn forget(
        &self,
        request: Arc<ClaimRequest>,
        plans: Vec<(usize, Standing)>,
    ) -> Reply<Result<Vec<usize>, StoreError>> {
        self.inner.forget(request, plans)
    }

    fn probe(&self) -> Reply<Result<(), StoreError>> {
        self.inner.probe()
    }

    fn assert_contract(&self, assertion: ContractAssertion) -> Reply<Result<String, StoreError>> {
        self.inner.assert_contract(assertion)
    }

    fn heal(&self, request: HealRequest) -> Reply<Vec<Result<Healed, StoreError>>> {
        self.inner.heal(request)
    }

    fn examine(&self, request: ExamineRequest) -> Reply<Examination> {
        self.inner.examine(request)
    }

    fn reconnected(&self) -> Reply<()> {
        self.inner.reconnected()
    }

    fn stats(&self) -> StoreStats {
        self.inner.stats()
    }
}
