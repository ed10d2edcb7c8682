//! One service, one Redis, the wire between them, and a caller.

use std::{
    sync::{
        Arc, LazyLock,
        atomic::{AtomicU64, Ordering},
    },
    time::{Duration, Instant, SystemTime, UNIX_EPOCH},
};

use dedupd::grpc::proto::{
    AdmitRequest, ConfirmRequest, Event, Keyed, Reason, ReleaseRequest, SettleOutcome, Transition,
    TransitionKind, Verdict,
    dedup_service_client::DedupServiceClient,
    event::{Identity, Time},
};
use tokio::time;
use tonic::transport::Channel;

use crate::support::{
    proxy::Proxy,
    redis::{self, RedisServer},
    service::{Options, Service},
};

/// Enough that a healthy Redis keeps it on a busy machine.
pub(crate) const AMPLE: Duration = Duration::from_millis(400);

pub(crate) type Client = DedupServiceClient<Channel>;

#[derive(Debug)]
pub(crate) struct World {
    pub(crate) redis: RedisServer,
    pub(crate) proxy: Arc<Proxy>,
    pub(crate) service: Service,
    pub(crate) client: Client,
}

impl World {
    pub(crate) async fn start(budget: Duration) -> Self {
        Self::start_on(budget, redis::Options::default()).await
    }

    pub(crate) async fn start_on(budget: Duration, options: redis::Options) -> Self {
        let redis = RedisServer::start(options);
        let proxy = Proxy::start(redis.addr());
        let service = serve(&redis.url_at(proxy.addr()), budget);
        let client = connect(&service).await;
        let mut world = Self {
            redis,
            proxy,
            service,
            client,
        };
        world.until_decided().await;
        world
    }

    /// Admits one keyed event for a caller that does not retry its call.
    pub(crate) async fn admit(&mut self, namespace: &str, id: &str) -> Verdict {
        admit(&mut self.client, namespace, &[id], "")
            .await
            .remove(0)
    }

    pub(crate) async fn confirm(&mut self, claim: &[u8]) -> SettleOutcome {
        confirm(&mut self.client, claim).await
    }

    pub(crate) async fn release(&mut self, claim: &[u8]) -> SettleOutcome {
        let claims = vec![claim.to_vec().into()];
        let answer = self.client.release(ReleaseRequest { claims }).await;
        answer
            .expect("an answer")
            .into_inner()
            .outcomes()
            .next()
            .expect("one")
    }

    /// Waits until Redis decides again; how long that took.
    pub(crate) async fn until_decided(&mut self) -> Duration {
        until_decided(&mut self.client).await
    }

    /// Whether something stands under the key of a keyed event.
    pub(crate) fn stands(&self, namespace: &str, id: &str) -> bool {
        self.redis.cli(&["EXISTS", &format!("{namespace}:{id}")]) == "1"
    }

    pub(crate) async fn until_stands(
        &self,
        namespace: &str,
        id: &str,
        stands: bool,
        within: Duration,
    ) {
        let deadline = Instant::now() + within;
        while self.stands(namespace, id) != stands {
            assert!(
                Instant::now() < deadline,
                "{namespace}:{id}: not {stands} within {within:?}"
            );
            time::sleep(Duration::from_millis(5)).await;
        }
    }

    pub(crate) fn metric(&self, series: &str) -> f64 {
        self.service
            .metric(series)
            .unwrap_or_else(|| panic!("no series {series}"))
    }

    /// Connections to Redis that were ever made.
    pub(crate) fn connects(&self) -> f64 {
        self.metric("dedupd_store_connects_total")
    }

    pub(crate) fn errors(&self, kind: &str) -> f64 {
        self.metric(&format!(r#"dedupd_store_errors_total{{kind="{kind}"}}"#))
    }
}

pub(crate) fn serve(url: &str, budget: Duration) -> Service {
    serve_store(&format!("url: \"{url}\", budget: {}ms", budget.as_millis()))
}

/// `store`: what is between the braces of that part of the configuration.
pub(crate) fn serve_store(store: &str) -> Service {
    let keyed = "accepts: [keyed], window: none, ttl: 1h";
    let fences = "accepts: [transition], window: { tumbling: 2s, guard: 200ms }, ttl: 5m";
    let config = format!(
        "store: {{ {store} }}
inspect: {{ allow_forget: true }}
namespaces:
  open: {{ {keyed}, failure_mode: open }}
  closed: {{ {keyed}, failure_mode: closed }}
  leased: {{ {keyed}, failure_mode: closed, lease: 30s }}
  fences: {{ {fences}, failure_mode: closed, time: {{ max_age: off, max_future: off }} }}
"
    );
    Service::start(&Options {
        config: Some(config),
        ..Options::default()
    })
}

pub(crate) async fn connect(service: &Service) -> Client {
    DedupServiceClient::connect(service.grpc_url())
        .await
        .expect("gRPC listens")
}

/// A fresh request id.
pub(crate) fn request_id() -> String {
    static NEXT: AtomicU64 = AtomicU64::new(1);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    format!("00000000-0000-4000-8000-{number:012x}")
}

pub(crate) fn keyed(id: &str) -> Event {
    let event_id = id.to_owned();
    Event {
        identity: Some(Identity::Keyed(Keyed { event_id })),
        ..Event::default()
    }
}

/// An event at the beginning of a bucket with a guard, so that Redis looks at two keys, in a script;
/// so long after the beginning of the tests.
pub(crate) fn crossing(device: &str, later: Duration) -> Event {
    static BEGUN: LazyLock<Duration> = LazyLock::new(|| {
        SystemTime::now()
            .duration_since(UNIX_EPOCH)
            .expect("a clock")
    });
    let transition = Transition {
        device_id: device.to_owned(),
        fence_id: "fence".to_owned(),
        kind: TransitionKind::Enter.into(),
        ..Transition::default()
    };
    let at = Duration::from_secs(BEGUN.as_secs() / 2 * 2) + later;
    Event {
        identity: Some(Identity::Transition(transition)),
        time: Some(Time::OccurredAtUnixNanos(at.as_nanos() as i64)),
        ..Event::default()
    }
}

pub(crate) fn request(namespace: &str, events: Vec<Event>, request_id: &str) -> AdmitRequest {
    AdmitRequest {
        namespace: namespace.to_owned(),
        request_id: request_id.to_owned(),
        events,
        ..AdmitRequest::default()
    }
}

pub(crate) async fn admit(
    client: &mut Client,
    namespace: &str,
    ids: &[impl AsRef<str>],
    request_id: &str,
) -> Vec<Verdict> {
    let events = ids.iter().map(|id| keyed(id.as_ref())).collect();
    admit_events(client, request(namespace, events, request_id)).await
}

pub(crate) async fn admit_events(client: &mut Client, request: AdmitRequest) -> Vec<Verdict> {
    let answer = client.admit(request).await.expect("an answer");
    answer.into_inner().verdicts
}

pub(crate) async fn confirm(client: &mut Client, claim: &[u8]) -> SettleOutcome {
    let claims = vec![claim.to_vec().into()];
    let answer = client.confirm(ConfirmRequest { claims }).await;
    answer
        .expect("an answer")
        .into_inner()
        .outcomes()
        .next()
        .expect("one")
}

/// Ids that no other test of this process uses.
pub(crate) fn fresh_ids(count: usize) -> Vec<String> {
    let batch = request_id();
    (0..count)
        .map(|number| format!("{batch}-{number}"))
        .collect()
}

pub(crate) async fn until_decided(client: &mut Client) -> Duration {
    let begun = Instant::now();
    loop {
        let verdicts = admit(client, "leased", &fresh_ids(16), "").await;
        if reasons(&verdicts) == [Reason::FirstSeen; 16] {
            return begun.elapsed();
        }
        assert!(
            begun.elapsed() < Duration::from_secs(10),
            "Redis does not decide: {:?}",
            reasons(&verdicts)
        );
        time::sleep(Duration::from_millis(5)).await;
    }
}

pub(crate) fn reasons(verdicts: &[Verdict]) -> Vec<Reason> {
    verdicts.iter().map(Verdict::reason).collect()
}
