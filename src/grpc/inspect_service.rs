//! `InspectService`: for people and grpcurl.

use std::{future, pin::Pin, sync::Arc, time::Duration};

use futures_util::{Stream, stream};
use prost::Message;
use tokio::time::{self, Interval, MissedTickBehavior};
use tonic::{Request, Response, Status};

use super::{
    deadline::Deadline,
    drain::DrainWatch,
    encode,
    operations::unreadable,
    proto::{self as pb, inspect_service_server::InspectService},
    status::Fault,
    wire,
};
use crate::{
    domain::event::RawEvent,
    engine::{Engine, Namespace, RequestFault},
    telemetry::noisy::LISTED,
};

/// Subjects that are listed unless the caller says how many.
const DEFAULT_SUBJECTS: usize = 10;
const DEFAULT_INTERVAL: Duration = Duration::from_secs(1);
/// More often would be a poll of every counter for nobody's eyes.
const MIN_INTERVAL: Duration = Duration::from_millis(100);

#[derive(Debug)]
pub(super) struct Inspect {
    pub(super) engine: Arc<Engine>,
    pub(super) allow_forget: bool,
    pub(super) drain: DrainWatch,
}

#[tonic::async_trait]
impl InspectService for Inspect {
    type WatchCountersStream =
        Pin<Box<dyn Stream<Item = Result<pb::WatchCountersResponse, Status>> + Send>>;

    async fn explain(
        &self,
        request: Request<pb::ExplainRequest>,
    ) -> Result<Response<pb::ExplainResponse>, Status> {
        let pb::ExplainRequest { namespace, event } = request.into_inner();
        let event = event.unwrap_or_default().encode_to_vec();
        let raw = raw(&event)?;
        let explaining = self.engine.explain(&namespace, &raw).map_err(Fault::from)?;
        Ok(Response::new(encode::explanation(explaining.await)))
    }

    async fn get_counters(
        &self,
        request: Request<pb::GetCountersRequest>,
    ) -> Result<Response<pb::GetCountersResponse>, Status> {
        let namespaces = chosen(&self.engine, &request.get_ref().namespace)?;
        Ok(Response::new(pb::GetCountersResponse {
            counters: counters(namespaces),
        }))
    }

    async fn watch_counters(
        &self,
        request: Request<pb::WatchCountersRequest>,
    ) -> Result<Response<Self::WatchCountersStream>, Status> {
        let deadline = request.extensions().get::<Deadline>().copied();
        let pb::WatchCountersRequest {
            namespace,
            interval,
        } = request.into_inner();
        chosen(&self.engine, &namespace)?;
        let mut looks = time::interval(period(interval)?);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        let watch = CounterWatch {
            engine: Arc::clone(&self.engine),
            namespace,
            looks,
            deadline,
            drain: self.drain.clone(),
        };
        Ok(Response::new(Box::pin(stream::unfold(
            Some(watch),
            CounterWatch::next,
        ))))
    }

    async fn list_namespaces(
        &self,
        _request: Request<pb::ListNamespacesRequest>,
    ) -> Result<Response<pb::ListNamespacesResponse>, Status> {
        let namespaces = self
            .engine
            .namespaces()
            .iter()
            .map(|namespace| encode::namespace(namespace))
            .collect();
        Ok(Response::new(pb::ListNamespacesResponse { namespaces }))
    }

    async fn list_noisy_subjects(
        &self,
        request: Request<pb::ListNoisySubjectsRequest>,
    ) -> Result<Response<pb::ListNoisySubjectsResponse>, Status> {
        let pb::ListNoisySubjectsRequest { namespace, limit } = request.into_inner();
        let namespace = self.engine.namespace(&namespace).map_err(Fault::from)?;
        let limit = match limit as usize {
            0 => DEFAULT_SUBJECTS,
            limit @ ..=LISTED => limit,
            _ => {
                let problem = "must be at most 100";
                return Err(Fault::Field {
                    field: "limit",
                    problem,
                }
                .into());
            }
        };
        let subjects = namespace
            .noisy_subjects(limit)
            .into_iter()
            .map(encode::subject);
        Ok(Response::new(pb::ListNoisySubjectsResponse {
            subjects: subjects.collect(),
        }))
    }

    async fn forget(
        &self,
        request: Request<pb::ForgetRequest>,
    ) -> Result<Response<pb::ForgetResponse>, Status> {
        if !self.allow_forget {
            return Err(Fault::ForgetNotAllowed.into());
        }
        let pb::ForgetRequest { namespace, event } = request.into_inner();
        let event = event.unwrap_or_default().encode_to_vec();
        let raw = raw(&event)?;
        let forgetting = self.engine.forget(&namespace, &raw).map_err(Fault::from)?;
        let keys = forgetting.await.map_err(Fault::from)?;
        Ok(Response::new(pb::ForgetResponse { keys }))
    }
}

/// The event again as Admit reads it.
fn raw(event: &[u8]) -> Result<RawEvent<'_>, Fault> {
    wire::event(event).map_err(|why| unreadable(why).into())
}

/// The named namespace, or all of them.
fn chosen<'e>(engine: &'e Engine, name: &str) -> Result<&'e [Arc<Namespace>], Fault> {
    if name.is_empty() {
        Ok(engine.namespaces())
    } else {
        Ok(std::slice::from_ref(engine.namespace(name)?))
    }
}

fn counters(namespaces: &[Arc<Namespace>]) -> Vec<pb::Counter> {
    namespaces
        .iter()
        .flat_map(|namespace| encode::counters(namespace))
        .collect()
}

fn period(interval: Option<prost_types::Duration>) -> Result<Duration, Fault> {
    match interval.map(Duration::try_from) {
        None => Ok(DEFAULT_INTERVAL),
        Some(Ok(period)) if period >= MIN_INTERVAL => Ok(period),
        Some(_) => Err(Fault::Field {
            field: "interval",
            problem: "must be at least 100 ms",
        }),
    }
}

struct CounterWatch {
    engine: Arc<Engine>,
    namespace: String,
    looks: Interval,
    deadline: Option<Deadline>,
    drain: DrainWatch,
}

impl CounterWatch {
    async fn next(
        watch: Option<Self>,
    ) -> Option<(Result<pb::WatchCountersResponse, Status>, Option<Self>)> {
        let mut watch = watch?;
        let fault = tokio::select! {
            biased;
            () = watch.drain.clone().begun() => Fault::Draining,
            () = passed(watch.deadline) => Fault::from(RequestFault::DeadlineExceeded),
            _ = watch.looks.tick() => match chosen(&watch.engine, &watch.namespace) {
                Ok(namespaces) => {
                    let at = Some(encode::timestamp(watch.engine.clock().now()));
                    let counters = counters(namespaces);
                    return Some((Ok(pb::WatchCountersResponse { at, counters }), Some(watch)));
                }
                Err(fault) => fault,
            },
        };
        Some((Err(fault.into()), None))
    }
}

async fn passed(deadline: Option<Deadline>) {
    match deadline {
        Some(Deadline(at)) => time::sleep_until(at).await,
        None => future::pending().await,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_interval_is_at_least_100_ms() {
        let span = |seconds, nanos| Some(prost_types::Duration { seconds, nanos });
        let rows = [
            (None, Some(DEFAULT_INTERVAL)),
            (span(0, 100_000_000), Some(MIN_INTERVAL)),
            (
                span(i64::MAX, 0),
                Some(Duration::from_secs(i64::MAX as u64)),
            ),
            (span(0, 99_999_999), None),
            (span(0, 0), None),
            (span(-1, 0), None),
        ];
        for (interval, expected) in rows {
            assert_eq!(period(interval).ok(), expected, "{interval:?}");
        }
    }
}
