//! A bare tonic service of the same API: it decodes and answers, and decides nothing.

use std::{error::Error, path::Path, pin::Pin};

use bytes::Bytes;
use dedupd::grpc::proto::{
    AdmitRequest, AdmitResponse, ConfirmRequest, ConfirmResponse, Decision, Reason, ReleaseRequest,
    ReleaseResponse, RenewRequest, RenewResponse, SettleOutcome, StreamRequest, StreamResponse,
    Verdict,
    dedup_service_server::{DedupService, DedupServiceServer},
    stream_request::Operation,
    stream_response::Result as Answer,
};
use futures_util::{Stream, StreamExt};
use tokio::net::UnixListener;
use tokio_stream::wrappers::UnixListenerStream;
use tonic::{Request, Response, Status, Streaming, transport::Server};

/// As long as what dedupd gives out for a transition.
static TOKEN: [u8; 41] = [7; 41];

/// Until the process is ended.
pub(crate) async fn serve(socket: &Path) -> Result<(), Box<dyn Error>> {
    let incoming = UnixListenerStream::new(UnixListener::bind(socket)?);
    Server::builder()
        .add_service(DedupServiceServer::new(Bare))
        .serve_with_incoming(incoming)
        .await?;
    Ok(())
}

#[derive(Debug)]
struct Bare;

type Answers = Pin<Box<dyn Stream<Item = Result<StreamResponse, Status>> + Send>>;

fn admit(request: &AdmitRequest) -> AdmitResponse {
    let verdict = Verdict {
        decision: Decision::Admit.into(),
        reason: Reason::FirstSeen.into(),
        claim: Bytes::from_static(&TOKEN),
        ..Verdict::default()
    };
    AdmitResponse {
        verdicts: vec![verdict; request.events.len()],
        lease: None,
    }
}

fn confirm(request: &ConfirmRequest) -> ConfirmResponse {
    ConfirmResponse {
        outcomes: vec![SettleOutcome::Applied.into(); request.claims.len()],
    }
}

#[tonic::async_trait]
impl DedupService for Bare {
    type StreamStream = Answers;

    async fn stream(
        &self,
        request: Request<Streaming<StreamRequest>>,
    ) -> Result<Response<Answers>, Status> {
        let answers = request.into_inner().map(|message| {
            let message = message?;
            let result = match message.operation {
                Some(Operation::Admit(request)) => Answer::Admit(admit(&request)),
                Some(Operation::Confirm(request)) => Answer::Confirm(confirm(&request)),
                Some(Operation::Release(_) | Operation::Renew(_)) | None => {
                    return Err(Status::unimplemented("admit and confirm only"));
                }
            };
            Ok(StreamResponse {
                batch_id: message.batch_id,
                result: Some(result),
            })
        });
        Ok(Response::new(Box::pin(answers)))
    }

    async fn admit(
        &self,
        request: Request<AdmitRequest>,
    ) -> Result<Response<AdmitResponse>, Status> {
        Ok(Response::new(admit(request.get_ref())))
    }

    async fn confirm(
        &self,
        request: Request<ConfirmRequest>,
    ) -> Result<Response<ConfirmResponse>, Status> {
        Ok(Response::new(confirm(request.get_ref())))
    }

    async fn release(
        &self,
        _: Request<ReleaseRequest>,
    ) -> Result<Response<ReleaseResponse>, Status> {
        Err(Status::unimplemented("admit and confirm only"))
    }

    async fn renew(&self, _: Request<RenewRequest>) -> Result<Response<RenewResponse>, Status> {
        Err(Status::unimplemented("admit and confirm only"))
    }
}
