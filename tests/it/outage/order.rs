//! The order of one subject's operations under load.

use dedupd::grpc::proto::{
    AdmitResponse, Reason, StreamRequest, StreamResponse, stream_request::Operation,
    stream_response::Result as Outcome,
};
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;

use super::world::{World, crossing, fresh_ids, keyed, request};

/// Requests of a stream whose answers are not awaited: copies of one event between thousands of
/// others. Only the first copy may be admitted, in whatever pipeline the others travel.
#[tokio::test(flavor = "multi_thread")]
async fn copies_on_one_stream_are_decided_in_the_order_of_the_stream() {
    let mut world = World::start(std::time::Duration::from_secs(2)).await;
    for guarded in [false, true] {
        let (requests, receiver) = mpsc::channel(64);
        let answers = world.client.stream(ReceiverStream::new(receiver)).await;
        let mut answers = answers.expect("a stream").into_inner();
        let sender = tokio::spawn(async move {
            for number in 0..600_u64 {
                // Each subject comes four times in a row, with a batch of others in between.
                let subject = format!("subject-{guarded}-{}", number / 4);
                let mut events: Vec<_> = fresh_ids(20).iter().map(|id| keyed(id)).collect();
                events.insert(10, keyed(&subject));
                let mut admission = request("closed", events, "");
                if guarded {
                    let others = fresh_ids(20);
                    let mut events: Vec<_> = others
                        .iter()
                        .map(|id| crossing(id, Default::default()))
                        .collect();
                    events.insert(10, crossing(&subject, Default::default()));
                    admission = request("fences", events, "");
                }
                let operation = Some(Operation::Admit(admission));
                let request = StreamRequest {
                    batch_id: number,
                    operation,
                };
                requests.send(request).await.expect("the stream lives");
            }
        });
        for number in 0..600 {
            let answer = answers.message().await.expect("the stream lives");
            let verdicts = admitted(answer, number).verdicts;
            let expected = match number % 4 {
                0 => Reason::FirstSeen,
                _ => Reason::Redelivery,
            };
            assert_eq!(
                verdicts[10].reason(),
                expected,
                "request {number}, guarded: {guarded}"
            );
        }
        sender.await.expect("all was sent");
    }
}

fn admitted(answer: Option<StreamResponse>, number: u64) -> AdmitResponse {
    let answer = answer.expect("an answer");
    assert_eq!(answer.batch_id, number);
    match answer.result {
        Some(Outcome::Admit(admission)) => admission,
        other => panic!("{other:?}"),
    }
}
