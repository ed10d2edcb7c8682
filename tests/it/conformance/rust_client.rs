//! Takes the steps of the script.

use std::time::Duration;

use dedupd::grpc::proto::{
    ConfirmResponse, ExplainRequest, ForgetRequest, GetCountersRequest, ListNamespacesRequest,
    ListNoisySubjectsRequest, ReleaseResponse, RenewResponse, StreamRequest, WatchCountersRequest,
    dedup_service_client::DedupServiceClient, inspect_service_client::InspectServiceClient,
    stream_request::Operation, stream_response::Result as Outcome,
};
use serde_json::Value;
use tokio::{sync::mpsc, time};
use tokio_stream::wrappers::ReceiverStream;
use tonic::{
    Request, Status,
    transport::{Channel, Endpoint},
};
use tonic_health::pb::{HealthCheckRequest, health_client::HealthClient};

use super::{Places, lines::Lines, messages};
use crate::client::connect;

const TIMEOUT_MS: u64 = 30_000;

/// All answers to the script, as text.
pub(super) async fn run(places: &Places, script: &str) -> String {
    let socket = Endpoint::from_shared(format!("unix:{}", places.socket())).expect("an address");
    let [here, away, socket] = [
        connect(&places.here).await,
        connect(&places.away).await,
        socket.connect().await.expect("it listens"),
    ];
    let mut lines = Lines::default();
    for (index, written) in script.lines().enumerate() {
        let step: Value = serde_json::from_str(written).expect("JSON");
        let namespace = messages::text(&step["namespace"]);
        let words = [
            (index + 1).to_string(),
            messages::text(&step["do"]),
            namespace,
        ];
        lines.text += words.join(" ").trim_end();
        lines.text.push('\n');
        let channel = match step["through"].as_str() {
            Some("socket") => &socket,
            Some("away") => &away,
            _ => &here,
        };
        if let Err(status) = take(channel.clone(), &words[0], &step, &mut lines).await {
            lines.refused(&status);
        }
    }
    lines.text
}

async fn take(
    channel: Channel,
    number: &str,
    step: &Value,
    lines: &mut Lines,
) -> Result<(), Status> {
    match step["do"].as_str().expect("a name") {
        "admit" | "confirm" | "release" | "renew" => unary(channel, number, step, lines).await,
        "stream" => converse(channel, number, step, lines).await,
        "watch" => watch(channel, step, lines).await,
        "health" => {
            let service = messages::text(&step["service"]);
            let answer = HealthClient::new(channel)
                .check(HealthCheckRequest { service })
                .await?;
            lines.line(answer.get_ref().status().as_str_name());
            Ok(())
        }
        "sleep" => {
            time::sleep(milliseconds(&step["milliseconds"])).await;
            Ok(())
        }
        _ => look(channel, step, lines).await,
    }
}

fn milliseconds(written: &Value) -> Duration {
    Duration::from_millis(written.as_u64().unwrap_or(TIMEOUT_MS))
}

async fn unary(
    channel: Channel,
    number: &str,
    step: &Value,
    lines: &mut Lines,
) -> Result<(), Status> {
    let mut dedup = DedupServiceClient::new(channel);
    match messages::operation(step, &lines.tokens).expect("an operation") {
        Operation::Admit(request) => {
            lines.admitted(dedup.admit(request).await?.get_ref(), number);
        }
        Operation::Confirm(request) => {
            lines.settled(dedup.confirm(request).await?.get_ref().outcomes());
        }
        Operation::Release(request) => {
            lines.settled(dedup.release(request).await?.get_ref().outcomes());
        }
        Operation::Renew(request) => {
            lines.settled(dedup.renew(request).await?.get_ref().outcomes());
        }
    }
    Ok(())
}

async fn look(channel: Channel, step: &Value, lines: &mut Lines) -> Result<(), Status> {
    let mut inspect = InspectServiceClient::new(channel);
    let namespace = messages::text(&step["namespace"]);
    let event = step.get("event").map(messages::event);
    match step["do"].as_str().expect("a name") {
        "explain" => {
            let answer = inspect.explain(ExplainRequest { namespace, event }).await?;
            lines.explained(answer.get_ref());
        }
        "forget" => {
            let answer = inspect.forget(ForgetRequest { namespace, event }).await?;
            let words = ["forgotten".to_owned()].into_iter();
            let words: Vec<_> = words.chain(answer.into_inner().keys).collect();
            lines.line(words.join(" "));
        }
        "counters" => {
            let answer = inspect
                .get_counters(GetCountersRequest { namespace })
                .await?;
            lines.counted(&answer.get_ref().counters);
        }
        "namespaces" => {
            let answer = inspect.list_namespaces(ListNamespacesRequest {}).await?;
            lines.namespaces(answer.get_ref());
        }
        "noisy" => {
            let limit = step["limit"].as_u64().expect("a number") as u32;
            let request = ListNoisySubjectsRequest { namespace, limit };
            let answer = inspect.list_noisy_subjects(request).await?;
            let words = ["noisy".to_owned()].into_iter();
            let words = words.chain(
                answer
                    .into_inner()
                    .subjects
                    .into_iter()
                    .map(|subject| subject.id),
            );
            lines.line(words.collect::<Vec<_>>().join(" "));
        }
        unknown => panic!("{unknown}"),
    }
    Ok(())
}

/// An answer behind each request, or all requests first.
async fn converse(
    channel: Channel,
    number: &str,
    step: &Value,
    lines: &mut Lines,
) -> Result<(), Status> {
    let operations = step["operations"].as_array().expect("operations");
    let (sender, receiver) = mpsc::channel(operations.len().max(1));
    let mut request = Request::new(ReceiverStream::new(receiver));
    request.set_timeout(milliseconds(&step["timeout_milliseconds"]));
    let mut answers = DedupServiceClient::new(channel)
        .stream(request)
        .await?
        .into_inner();
    let pipelined = step["pipelined"].as_bool() == Some(true);
    let request = |written: &Value, lines: &Lines| StreamRequest {
        batch_id: messages::text(&written["batch_id"])
            .parse()
            .expect("a number"),
        operation: messages::operation(written, &lines.tokens),
    };
    if pipelined {
        for written in operations {
            sender.send(request(written, lines)).await.expect("room");
        }
    }
    for (index, written) in operations.iter().enumerate() {
        if !pipelined {
            sender.send(request(written, lines)).await.expect("room");
        }
        let answer = answers.message().await?.expect("an answer");
        lines.line(format_args!("batch {}", answer.batch_id));
        match answer.result.expect("a result") {
            Outcome::Admit(answer) => lines.admitted(&answer, &format!("{number}.{index}")),
            Outcome::Confirm(ConfirmResponse { outcomes })
            | Outcome::Release(ReleaseResponse { outcomes })
            | Outcome::Renew(RenewResponse { outcomes }) => {
                lines.settled(
                    outcomes
                        .iter()
                        .map(|&outcome| outcome.try_into().expect("known")),
                );
            }
            Outcome::Error(error) => lines.error(&error),
        }
    }
    if step["cancel"].as_bool() == Some(true) {
        // To drop the stream is to cancel the call; nobody is left to be told.
        return Err(Status::cancelled(""));
    }
    let _open = step.get("timeout_milliseconds").map(|_| sender.clone());
    drop(sender);
    assert!(answers.message().await?.is_none(), "an answer to nothing");
    lines.line("end");
    Ok(())
}

async fn watch(channel: Channel, step: &Value, lines: &mut Lines) -> Result<(), Status> {
    let interval = milliseconds(&step["interval_milliseconds"]);
    let mut request = Request::new(WatchCountersRequest {
        namespace: messages::text(&step["namespace"]),
        interval: Some(interval.try_into().expect("a duration")),
    });
    request.set_timeout(milliseconds(&step["timeout_milliseconds"]));
    let answers = InspectServiceClient::new(channel)
        .watch_counters(request)
        .await?;
    let mut answers = answers.into_inner();
    for _ in 0..step["looks"].as_u64().expect("a number") {
        let look = answers.message().await?.expect("it goes on");
        lines.counted(&look.counters);
    }
    if step.get("timeout_milliseconds").is_none() {
        return Err(Status::cancelled(""));
    }
    answers.message().await.map(|_| ())
}
