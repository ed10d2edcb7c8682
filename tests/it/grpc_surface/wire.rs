//! What no generated client does: calls without a timer of their own, and messages that nobody can
//! read.

use std::{collections::BTreeMap, time::Duration};

use axum::http::{Request, request::Builder};
use dedupd::grpc::proto::{self as pb, stream_response::Result as Outcome};
use h2::client::SendRequest;
use prost::{Message, bytes::Bytes};
use tokio::{net::TcpStream, task::JoinSet, time};

use super::server::{Server, admit, keyed};

const CALLS: usize = 2000;

/// tonic's own timer answers CANCELLED. It began earlier than ours where routes began their calls
/// only when first polled, so that one call in five hundred had its answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 4)]
async fn every_passed_deadline_is_deadline_exceeded_on_the_wire() {
    let server = Server::start().await;
    server.hold_answers();
    let tcp = TcpStream::connect(server.addr).await.expect("it listens");
    let (client, connection) = h2::client::handshake(tcp).await.expect("HTTP/2");
    tokio::spawn(connection);
    let mut calls = JoinSet::new();
    for number in 0..CALLS {
        server.engine.breaker().probe_answered();
        let client = client.clone().ready().await.expect("room for a call");
        calls.spawn(code_of_call(client, number, 1 + number * 37 % 40_000));
        if number % 10 == 0 {
            time::sleep(Duration::from_micros(300)).await;
        }
    }
    let mut codes = BTreeMap::new();
    while let Some(code) = calls.join_next().await {
        *codes.entry(code.expect("a call")).or_insert(0) += 1;
    }
    // Impatient callers trip the breaker, and then calls are answered by the failure mode.
    let answered = codes.remove("").unwrap_or(0);
    assert!(answered < CALLS / 2, "{answered} calls did not wait");
    assert_eq!(codes, BTreeMap::from([("4".to_owned(), CALLS - answered)]));
    server.wait_in_flight(0).await;
    assert_eq!(server.claims_met_by("events", keyed("id7")).await, 0);
}

/// A message with its length, as gRPC frames it.
fn framed(message: &[u8]) -> Bytes {
    let mut frame = vec![0];
    frame.extend((message.len() as u32).to_be_bytes());
    frame.extend(message);
    frame.into()
}

fn call(method: &str) -> Builder {
    Request::post(format!("http://localhost/dedupd.v1.DedupService/{method}"))
        .header("content-type", "application/grpc")
        .header("te", "trailers")
}

/// The messages of an answer, and the status behind them.
async fn answers(response: h2::client::ResponseFuture) -> (Vec<Vec<u8>>, String) {
    let (head, mut body) = response.await.expect("an answer").into_parts();
    let mut bytes = Vec::new();
    while let Some(data) = body.data().await {
        let data = data.expect("data");
        body.flow_control()
            .release_capacity(data.len())
            .expect("room");
        bytes.extend(data);
    }
    let trailers = body.trailers().await.expect("an end");
    let status = head
        .headers
        .get("grpc-status")
        .or(trailers.as_ref().and_then(|t| t.get("grpc-status")));
    let status = status
        .expect("a status")
        .to_str()
        .expect("a number")
        .to_owned();
    let mut messages = Vec::new();
    let mut rest = bytes.as_slice();
    while let Some((head, after)) = rest.split_first_chunk::<5>() {
        let len = u32::from_be_bytes([head[1], head[2], head[3], head[4]]) as usize;
        let (message, after) = after.split_at(len);
        messages.push(message.to_vec());
        rest = after;
    }
    (messages, status)
}

/// An Admit of one event with such an id, as bytes that a text may not have.
fn admit_of(namespace: &[u8], id: &[u8]) -> Vec<u8> {
    let nested = |number: u8, bytes: &[u8]| {
        let mut field = vec![number << 3 | 2, bytes.len() as u8];
        field.extend(bytes);
        field
    };
    let event = nested(3, &nested(1, id));
    [nested(1, namespace), nested(3, &event)].concat()
}

#[tokio::test]
async fn what_cannot_be_read_ends_its_call_and_nothing_of_it_was_claimed() {
    const INVALID_ARGUMENT: &str = "3";
    let server = Server::start().await;
    let tcp = TcpStream::connect(server.addr).await.expect("it listens");
    let (client, connection) = h2::client::handshake(tcp).await.expect("HTTP/2");
    tokio::spawn(connection);

    let on_stream = |batch_id: u8, admit: &[u8]| {
        let mut message = vec![2 << 3 | 2, admit.len() as u8];
        message.extend(admit);
        message.extend([1 << 3, batch_id]);
        message
    };
    let both = [
        admit_of(b"events", b"good"),
        admit_of(b"events", b"\xff")[8..].to_vec(),
    ];
    let unreadable = [
        on_stream(2, &both.concat()),
        on_stream(2, &admit_of(b"\xff", b"good")),
        on_stream(2, &admit_of(b"events", b"good")[1..]),
        vec![0xff],
    ];
    for (number, unreadable) in unreadable.iter().enumerate() {
        let first = format!("first of {number}");
        let requests = [
            &on_stream(1, &admit_of(b"events", first.as_bytes())),
            unreadable,
            &on_stream(3, &admit_of(b"events", b"never read")),
        ];
        let mut client = client.clone().ready().await.expect("room for a call");
        let (response, mut body) = client
            .send_request(call("Stream").body(()).expect("a request"), false)
            .expect("room for a call");
        for request in requests {
            body.send_data(framed(request), false).expect("room");
        }
        let (messages, status) = answers(response).await;
        assert_eq!(status, INVALID_ARGUMENT);
        let [only] = messages.as_slice() else {
            panic!("{messages:?}");
        };
        let answer = pb::StreamResponse::decode(only.as_slice()).expect("an answer");
        let Some(Outcome::Admit(admitted)) = answer.result else {
            panic!("{answer:?}");
        };
        assert_eq!(answer.batch_id, 1);
        assert_eq!(admitted.verdicts[0].reason(), pb::Reason::FirstSeen);
    }
    for id in ["good", "never read"] {
        assert_eq!(server.claims_met_by("events", keyed(id)).await, 0);
    }

    for message in [admit_of(b"events", b"\xff"), vec![0xff]] {
        let mut client = client.clone().ready().await.expect("room for a call");
        let (response, mut body) = client
            .send_request(call("Admit").body(()).expect("a request"), false)
            .expect("room for a call");
        body.send_data(framed(&message), true).expect("room");
        assert_eq!(
            answers(response).await,
            (Vec::new(), INVALID_ARGUMENT.to_owned())
        );
    }
}

async fn code_of_call(mut client: SendRequest<Bytes>, number: usize, timeout_us: usize) -> String {
    let request = call("Admit")
        .header("grpc-timeout", format!("{timeout_us}u"))
        .body(())
        .expect("a request");
    let (response, mut body) = client
        .send_request(request, false)
        .expect("room for a call");
    let message = admit("events", vec![keyed(&format!("id{number}"))]).encode_to_vec();
    // The answer may be there already, and the stream closed.
    let _ = body.send_data(framed(&message), true);
    let response = response.await.expect("an answer");
    // An answer has its status behind it, a refusal at once.
    let code = response.headers().get("grpc-status");
    code.map_or("", |code| code.to_str().expect("a number"))
        .to_owned()
}
