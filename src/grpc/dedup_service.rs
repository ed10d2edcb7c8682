//! `DedupService`: the four operations, one by one or on a stream.

use tonic::{Request, Response, Status, Streaming};

use super::{
    conversation::Conversation,
    deadline::Deadline,
    drain::{DrainWatch, InFlight},
    operations::{Operations, unreadable},
    proto as pb,
    server::dedup_service_server::DedupService,
    status::Fault,
    wire::{AdmitRequest, Encoded, Received},
};
use crate::domain::claim::SettleAction;

#[derive(Debug)]
pub(super) struct Dedup {
    pub(super) operations: Operations,
    pub(super) drain: DrainWatch,
    pub(super) in_flight: InFlight,
}

impl Dedup {
    async fn settle(
        &self,
        action: SettleAction,
        claims: Vec<bytes::Bytes>,
    ) -> Result<Vec<i32>, Status> {
        let claims: Vec<&[u8]> = claims.iter().map(AsRef::as_ref).collect();
        let settling = self.operations.settle(action, &claims)?;
        Ok(settling.await)
    }
}

#[tonic::async_trait]
impl DedupService for Dedup {
    type StreamStream = Conversation;

    async fn admit(&self, request: Request<Received>) -> Result<Response<Encoded>, Status> {
        let Received(request) = request.into_inner();
        let request = AdmitRequest::read(&request).map_err(|why| Fault::from(unreadable(why)))?;
        let admitting = self.operations.admit(&request)?;
        let answer = admitting.await?;
        Ok(Response::new(answer.deliver().alone()))
    }

    async fn confirm(
        &self,
        request: Request<pb::ConfirmRequest>,
    ) -> Result<Response<pb::ConfirmResponse>, Status> {
        let outcomes = self
            .settle(SettleAction::Confirm, request.into_inner().claims)
            .await?;
        Ok(Response::new(pb::ConfirmResponse { outcomes }))
    }

    async fn release(
        &self,
        request: Request<pb::ReleaseRequest>,
    ) -> Result<Response<pb::ReleaseResponse>, Status> {
        let outcomes = self
            .settle(SettleAction::Release, request.into_inner().claims)
            .await?;
        Ok(Response::new(pb::ReleaseResponse { outcomes }))
    }

    async fn renew(
        &self,
        request: Request<pb::RenewRequest>,
    ) -> Result<Response<pb::RenewResponse>, Status> {
        let outcomes = self
            .settle(SettleAction::Renew, request.into_inner().claims)
            .await?;
        Ok(Response::new(pb::RenewResponse { outcomes }))
    }

    async fn stream(
        &self,
        request: Request<Streaming<Received>>,
    ) -> Result<Response<Conversation>, Status> {
        let deadline = request.extensions().get::<Deadline>().copied();
        Ok(Response::new(Conversation::new(
            self.operations.clone(),
            self.in_flight.clone(),
            request.into_inner(),
            deadline,
            self.drain.clone(),
        )))
    }
}
