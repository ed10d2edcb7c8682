//! A caller of the real binary: its events, its calls, and what they must be answered.

pub(crate) mod events;
pub(crate) mod monitor;

use std::{
    fmt,
    sync::Arc,
    thread,
    time::{Duration, Instant},
};

use dedupd::grpc::proto::{
    AdmitRequest, AdmitResponse, ConfirmRequest, Decision, Event, ExplainRequest, ExplainResponse,
    Reason, ReleaseRequest, RenewRequest, SettleOutcome, StreamRequest, Verdict,
    dedup_service_client::DedupServiceClient, inspect_service_client::InspectServiceClient,
    stream_request::Operation, stream_response::Result as Outcome,
};
use tokio::time;
use tonic::{Status, transport::Channel};

use crate::support::{
    redis::RedisServer,
    service::{Options, Service},
};

/// Whatever is awaited comes sooner, on a busy machine too.
pub(crate) const PATIENCE: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(10);
/// A busy machine is no outage.
const STORE: &str = "store: { budget: 10s }\n";

/// Where claims are kept.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Kept {
    InMemory,
    InRedis,
}

pub(crate) const EVERY_STORE: [Kept; 2] = [Kept::InMemory, Kept::InRedis];

/// The running service, its Redis if it has one, and a connection to it.
pub(crate) struct World {
    pub(crate) service: Service,
    redis: Option<Arc<RedisServer>>,
    channel: Channel,
}

impl World {
    /// `config` is YAML without a `store` section.
    pub(crate) async fn start(kept: Kept, config: &str) -> Self {
        match kept {
            Kept::InMemory => Self::with(None, config, Options::default()).await,
            Kept::InRedis => {
                let redis = Arc::new(RedisServer::start(Default::default()));
                Self::on(&redis, config).await
            }
        }
    }

    /// One of several instances on the same Redis.
    pub(crate) async fn on(redis: &Arc<RedisServer>, config: &str) -> Self {
        let options = Options {
            store_url: Some(redis.url()),
            ..Options::default()
        };
        Self::with(Some(Arc::clone(redis)), config, options).await
    }

    pub(crate) async fn with(
        redis: Option<Arc<RedisServer>>,
        config: &str,
        options: Options,
    ) -> Self {
        let service = Service::start(&Options {
            config: Some(format!("{STORE}{config}")),
            ..options
        });
        let channel = connect(&service).await;
        Self {
            service,
            redis,
            channel,
        }
    }

    pub(crate) fn redis(&self) -> Option<&RedisServer> {
        self.redis.as_deref()
    }

    pub(crate) fn dedup(&self) -> DedupServiceClient<Channel> {
        DedupServiceClient::new(self.channel.clone())
    }

    pub(crate) fn inspect(&self) -> InspectServiceClient<Channel> {
        InspectServiceClient::new(self.channel.clone())
    }

    pub(crate) async fn try_admit(&self, request: AdmitRequest) -> Result<AdmitResponse, Status> {
        let answer = self.dedup().admit(request).await?;
        Ok(answer.into_inner())
    }

    pub(crate) async fn admit(&self, namespace: &str, events: Vec<Event>) -> Vec<Verdict> {
        let answer = self.try_admit(request(namespace, events)).await;
        answer.expect("an answer").verdicts
    }

    pub(crate) async fn admit_one(&self, namespace: &str, event: &Event) -> Verdict {
        self.admit(namespace, vec![event.clone()]).await.remove(0)
    }

    /// Asks until the answer is not to ask again.
    pub(crate) async fn admit_at_last(&self, namespace: &str, event: &Event) -> Verdict {
        let decided = async {
            loop {
                let verdict = self.admit_one(namespace, event).await;
                if verdict.decision() != Decision::Retry {
                    return verdict;
                }
                time::sleep(POLL_INTERVAL).await;
            }
        };
        let decided = time::timeout(PATIENCE, decided).await;
        decided.unwrap_or_else(|_| panic!("{namespace}: still RETRY: {event:?}"))
    }

    /// One call for each event, in order. What is admitted is confirmed at once.
    pub(crate) async fn check(&self, namespace: &str, rows: &[(Event, Reason)]) {
        for (row, (event, expected)) in rows.iter().enumerate() {
            let verdict = self.admit_one(namespace, event).await;
            self.check_verdict(&verdict, *expected, format_args!("row {row}: {event:?}"));
            if !verdict.claim.is_empty() {
                assert_eq!(self.confirm(&verdict).await, SettleOutcome::Applied);
            }
        }
    }

    /// All events in one call, confirmed afterwards.
    pub(crate) async fn check_batch(&self, namespace: &str, rows: &[(Event, Reason)]) {
        let events = rows.iter().map(|(event, _)| event.clone()).collect();
        let verdicts = self.admit(namespace, events).await;
        assert_eq!(verdicts.len(), rows.len());
        for (row, ((event, expected), verdict)) in rows.iter().zip(&verdicts).enumerate() {
            self.check_verdict(verdict, *expected, format_args!("row {row}: {event:?}"));
        }
        for verdict in verdicts.iter().filter(|verdict| !verdict.claim.is_empty()) {
            assert_eq!(self.confirm(verdict).await, SettleOutcome::Applied);
        }
    }

    pub(crate) fn check_verdict(
        &self,
        verdict: &Verdict,
        expected: Reason,
        what: impl fmt::Display,
    ) {
        let decided = (verdict.decision(), verdict.reason());
        let store = self.redis.as_ref().map_or("memory", |_| "Redis");
        assert_eq!(
            decided,
            (decision_of(expected), expected),
            "on {store}: {what}: {verdict:?}"
        );
        let is_dead = verdict.decision() == Decision::DeadLetter;
        assert_eq!(!verdict.detail.is_empty(), is_dead, "{what}: {verdict:?}");
    }

    /// All requests on one stream, and their answers in the same order.
    pub(crate) async fn stream(&self, requests: Vec<AdmitRequest>) -> Vec<AdmitResponse> {
        let sent = requests.len();
        let requests = requests.into_iter().zip(0..);
        let requests = requests.map(|(admit, batch_id)| StreamRequest {
            batch_id,
            operation: Some(Operation::Admit(admit)),
        });
        let requests = tokio_stream::iter(requests.collect::<Vec<_>>());
        let answers = self.dedup().stream(requests).await.expect("a stream");
        let mut answers = answers.into_inner();
        let mut admitted = Vec::with_capacity(sent);
        while let Some(answer) = answers.message().await.expect("an open stream") {
            assert_eq!(answer.batch_id, admitted.len() as u64);
            match answer.result {
                Some(Outcome::Admit(answer)) => admitted.push(answer),
                other => panic!("{other:?}"),
            }
        }
        assert_eq!(admitted.len(), sent);
        admitted
    }

    pub(crate) async fn confirm(&self, verdict: &Verdict) -> SettleOutcome {
        let claims = vec![verdict.claim.clone()];
        let answer = self.dedup().confirm(ConfirmRequest { claims }).await;
        answer
            .expect("an answer")
            .get_ref()
            .outcomes()
            .next()
            .expect("one")
    }

    pub(crate) async fn release(&self, verdict: &Verdict) -> SettleOutcome {
        let claims = vec![verdict.claim.clone()];
        let answer = self.dedup().release(ReleaseRequest { claims }).await;
        answer
            .expect("an answer")
            .get_ref()
            .outcomes()
            .next()
            .expect("one")
    }

    pub(crate) async fn renew(&self, verdict: &Verdict) -> SettleOutcome {
        let claims = vec![verdict.claim.clone()];
        let answer = self.dedup().renew(RenewRequest { claims }).await;
        answer
            .expect("an answer")
            .get_ref()
            .outcomes()
            .next()
            .expect("one")
    }

    pub(crate) async fn explain(&self, namespace: &str, event: &Event) -> ExplainResponse {
        let request = ExplainRequest {
            namespace: namespace.to_owned(),
            event: Some(event.clone()),
        };
        let answer = self.inspect().explain(request).await;
        answer.expect("an answer").into_inner()
    }

    /// Events of a namespace that were decided for this reason.
    pub(crate) fn counted(&self, namespace: &str, reason: Reason) -> f64 {
        let name = |name: &str, prefix| name.strip_prefix(prefix).expect("it has one").to_owned();
        let decision = name(decision_of(reason).as_str_name(), "DECISION_");
        let reason = name(reason.as_str_name(), "REASON_");
        let series = format!(
            r#"dedupd_decisions_total{{namespace="{namespace}",decision="{decision}",reason="{reason}"}}"#
        );
        self.service.metric(&series).expect("every reason is there")
    }

    /// Keys that would stay for ever: none, if they are ours.
    pub(crate) fn eternal_keys(&self) -> Vec<String> {
        const ETERNAL: &str = "local found = {} for _, key in ipairs(redis.call('KEYS', '*')) do \
            if redis.call('PTTL', key) < 0 then found[#found + 1] = key end end return found";
        let found = self.redis().map(|redis| redis.cli(&["EVAL", ETERNAL, "0"]));
        let found = found.unwrap_or_default();
        found
            .lines()
            .filter(|key| !key.is_empty())
            .map(str::to_owned)
            .collect()
    }
}

pub(crate) async fn connect(service: &Service) -> Channel {
    let endpoint = Channel::from_shared(service.grpc_url()).expect("a URL");
    endpoint.connect().await.expect("gRPC listens")
}

pub(crate) fn request(namespace: &str, events: Vec<Event>) -> AdmitRequest {
    AdmitRequest {
        namespace: namespace.to_owned(),
        events,
        ..AdmitRequest::default()
    }
}

/// Reasons are numbered by decision.
pub(crate) fn decision_of(reason: Reason) -> Decision {
    match reason as i32 {
        1..20 => Decision::Admit,
        20..40 => Decision::Suppress,
        40..60 => Decision::Retry,
        60..100 => Decision::DeadLetter,
        _ => Decision::Unspecified,
    }
}

/// Blocks until it holds; for what no log line and no answer tells.
#[track_caller]
pub(crate) fn wait_until(what: &str, holds: impl Fn() -> bool) {
    let deadline = Instant::now() + PATIENCE;
    while !holds() {
        assert!(Instant::now() < deadline, "not within {PATIENCE:?}: {what}");
        thread::sleep(POLL_INTERVAL);
    }
}

/// xorshift64*: the same numbers for the same seed, on every machine.
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) | 1)
    }

    pub(crate) fn below(&mut self, bound: usize) -> usize {
        self.0 ^= self.0 >> 12;
        self.0 ^= self.0 << 25;
        self.0 ^= self.0 >> 27;
        let number = self.0.wrapping_mul(0x2545_F491_4F6C_DD1D) >> 32;
        usize::try_from(number).expect("32 bits") % bound
    }

    pub(crate) fn shuffle<T>(&mut self, items: &mut [T]) {
        for last in (1..items.len()).rev() {
            items.swap(last, self.below(last + 1));
        }
    }
}
