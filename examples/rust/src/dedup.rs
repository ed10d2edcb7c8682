//! The client: deadline, retries, keepalive and reconnection in one place.

use std::time::Duration;

use tokio::{task::JoinHandle, time};
use tonic::{
    Code, Status,
    transport::{Channel, Endpoint, Error},
};
use uuid::Uuid;

use crate::proto::{
    AdmitRequest, AdmitResponse, ConfirmRequest, Event, ReleaseRequest, RenewRequest,
    SettleOutcome, dedup_service_client::DedupServiceClient,
};

const FIRST_PAUSE: Duration = Duration::from_millis(50);
const LONGEST_PAUSE: Duration = Duration::from_secs(1);

#[derive(Clone)]
pub struct Dedup {
    client: DedupServiceClient<Channel>,
    namespace: &'static str,
}

impl Dedup {
    pub fn new(address: &str, namespace: &'static str) -> Result<Self, Error> {
        // Lazy: it connects at the first call, and again at the next one when the connection is lost.
        let channel = Endpoint::from_shared(format!("http://{address}"))?
            .connect_timeout(Duration::from_secs(1))
            .timeout(Duration::from_secs(5)) // the deadline of each attempt
            .http2_keep_alive_interval(Duration::from_secs(10))
            .keep_alive_timeout(Duration::from_secs(3))
            .keep_alive_while_idle(true)
            .connect_lazy();
        let client = DedupServiceClient::new(channel);
        Ok(Self { client, namespace })
    }

    /// Asks about a batch, and again under the same request id until there is an answer.
    ///
    /// tonic reads no service config, so the retries are a loop.
    pub async fn admit(&mut self, events: Vec<Event>) -> Result<AdmitResponse, Status> {
        let request = AdmitRequest {
            namespace: self.namespace.to_owned(),
            request_id: Uuid::new_v4().to_string(),
            events,
            omit_claims: false,
        };
        let mut pause = FIRST_PAUSE;
        loop {
            match self.client.admit(request.clone()).await {
                Ok(answer) => return Ok(answer.into_inner()),
                Err(status) if is_passing(status.code()) => {
                    time::sleep(pause).await;
                    pause = LONGEST_PAUSE.min(pause * 2);
                }
                // Wrong as a whole, such as a namespace that is not configured.
                Err(status) => return Err(status),
            }
        }
    }

    /// The work is done, and only this keeps its copies away: it is worth more than one try.
    pub async fn confirm(&mut self, claim: Vec<u8>) {
        if claim.is_empty() {
            return; // Admitted without the store: there is nothing to settle.
        }
        let mut outcome = SettleOutcome::StoreUnavailable;
        for _ in 0..10 {
            let claims = vec![claim.clone()];
            outcome = match self.client.confirm(ConfirmRequest { claims }).await {
                Ok(answer) => answer.get_ref().outcomes().next().unwrap_or_default(),
                Err(_) => SettleOutcome::StoreUnavailable,
            };
            if outcome != SettleOutcome::StoreUnavailable {
                break;
            }
            time::sleep(Duration::from_millis(100)).await;
        }
        match outcome {
            SettleOutcome::Applied | SettleOutcome::AlreadyApplied => {}
            outcome => eprintln!("not confirmed, it may be done twice: {outcome:?}"),
        }
    }

    /// Where this fails, the lease runs out.
    pub async fn release(&mut self, claim: Vec<u8>) {
        let claims = vec![claim];
        if let Err(status) = self.client.release(ReleaseRequest { claims }).await {
            eprintln!("not released: {status}");
        }
    }

    /// Renews a batch's claims until this is dropped: most of them wait for the work on those before
    /// them. What is settled meanwhile stays as it is.
    pub fn keep(&self, answer: &AdmitResponse) -> Leases {
        let claims: Vec<_> = answer
            .verdicts
            .iter()
            .map(|verdict| verdict.claim.clone())
            .collect();
        let claims: Vec<_> = claims
            .into_iter()
            .filter(|claim| !claim.is_empty())
            .collect();
        let lease = answer
            .lease
            .and_then(|lease| Duration::try_from(lease).ok());
        let mut client = self.client.clone();
        Leases(tokio::spawn(async move {
            // Without a lease there is nothing to renew.
            let Some(lease) = lease.filter(|_| !claims.is_empty()) else {
                return;
            };
            loop {
                time::sleep(lease / 3).await;
                let claims = claims.clone();
                if let Err(status) = client.renew(RenewRequest { claims }).await {
                    eprintln!("not renewed: {status}"); // The next one may succeed.
                }
            }
        }))
    }
}

pub struct Leases(JoinHandle<()>);

impl Drop for Leases {
    fn drop(&mut self) {
        self.0.abort();
    }
}

fn is_passing(code: Code) -> bool {
    matches!(
        code,
        Code::Unavailable | Code::DeadlineExceeded | Code::ResourceExhausted | Code::Cancelled
    )
}
