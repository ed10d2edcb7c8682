//! Deadlines as the wire has them: a client without a timer of its own.

use std::{collections::BTreeMap, time::Duration};

use axum::http::Request;
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

async fn code_of_call(mut client: SendRequest<Bytes>, number: usize, timeout_us: usize) -> String {
    let request = Request::post("http://localhost/dedupd.v1.DedupService/Admit")
        .header("content-type", "application/grpc")
        .header("te", "trailers")
        .header("grpc-timeout", format!("{timeout_us}u"))
        .body(())
        .expect("a request");
    let (response, mut body) = client
        .send_request(request, false)
        .expect("room for a call");
    let message = admit("events", vec![keyed(&format!("id{number}"))]).encode_to_vec();
    let mut frame = vec![0];
    frame.extend((message.len() as u32).to_be_bytes());
    frame.extend(message);
    // The answer may be there already, and the stream closed.
    let _ = body.send_data(frame.into(), true);
    let response = response.await.expect("an answer");
    // An answer has its status behind it, a refusal at once.
    let code = response.headers().get("grpc-status");
    code.map_or("", |code| code.to_str().expect("a number"))
        .to_owned()
}
