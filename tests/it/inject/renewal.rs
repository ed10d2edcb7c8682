//! What changes while the server runs: its certificate, its configuration; and how it stops.

use std::{
    collections::BTreeSet,
    fs,
    os::unix::fs::symlink,
    path::Path,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use bytes::Bytes;
use dedupd::webhook::certificate::Pair;
use http_body_util::Full;
use hyper::{Request, client::conn::http2};
use hyper_util::rt::{TokioExecutor, TokioIo};
use tokio::{
    io::{AsyncReadExt, AsyncWriteExt},
    time::timeout,
};

use super::{
    reviews::{make, start},
    support::{Client, Webhook, patch_of, pod, review},
};

/// Exchanges both files in one step, as a kubelet does with a Secret.
fn put(folder: &Path, version: &str, pair: &Pair) {
    let versioned = folder.join(version);
    fs::create_dir(&versioned).expect("the folder is ours");
    fs::write(versioned.join("tls.crt"), &pair.certificate).expect("the folder is ours");
    fs::write(versioned.join("tls.key"), &pair.key).expect("the folder is ours");
    symlink(version, folder.join("new")).expect("the folder is ours");
    fs::rename(folder.join("new"), folder.join("current")).expect("the folder is ours");
}

const CONFIG: &str = "tls: { files: { cert: current/tls.crt, key: current/tls.key } }\n";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_are_exchanged_under_load_without_a_failed_call() {
    let made: Vec<(String, Pair)> = (0..3).map(|_| make()).collect();
    let authorities: Vec<String> = made
        .iter()
        .map(|(authority, _)| authority.clone())
        .collect();
    let folder = tempfile::tempdir().expect("a folder");
    let webhook = Webhook::start(folder, CONFIG);
    // Without a certificate it listens, and is not ready.
    let (status, why) = webhook.http_get("/readyz");
    assert_eq!(
        (status, why.contains("no certificate")),
        (503, true),
        "{why}"
    );
    put(webhook.folder.path(), "0", &made[0].1);
    webhook.wait_ready().await;

    let client = Client::new(webhook.https, &authorities, "injector.ns.svc");
    let stop = Arc::new(AtomicBool::new(false));
    let calls = Arc::new(AtomicUsize::new(0));
    let seen: Arc<Mutex<BTreeSet<Vec<u8>>>> = Arc::default();
    let callers: Vec<_> = (0..4)
        .map(|number| {
            let (client, stop) = (client.clone(), Arc::clone(&stop));
            let (calls, seen) = (Arc::clone(&calls), Arc::clone(&seen));
            let body = review(&pod()).to_string();
            tokio::spawn(async move {
                let mut kept = client.connect().await.expect("a connection");
                while !stop.load(Ordering::Relaxed) {
                    // Half of them come anew each time, half keep their connection.
                    let (status, answer) = if number % 2 == 0 {
                        let mut connection = client.connect().await.expect("a connection");
                        let answer = connection.post(body.clone()).await.expect("an answer");
                        let certificate = connection.certificate;
                        seen.lock().expect("no panic inside").insert(certificate);
                        answer
                    } else {
                        kept.post(body.clone()).await.expect("an answer")
                    };
                    assert_eq!(status, 200, "{answer}");
                    calls.fetch_add(1, Ordering::Relaxed);
                }
            })
        })
        .collect();
    let changes = |webhook: &Webhook| webhook.metric("dedupd_injector_certificate_changes_total");
    let errors = |webhook: &Webhook| webhook.metric("dedupd_injector_certificate_errors_total");
    put(webhook.folder.path(), "1", &made[1].1);
    webhook
        .wait("the second is served", |webhook| changes(webhook) == 2.0)
        .await;
    let before = errors(&webhook);
    let mismatched = Pair {
        certificate: made[2].1.certificate.clone(),
        key: made[0].1.key.clone(),
    };
    put(webhook.folder.path(), "bad", &mismatched);
    webhook
        .wait("the bad one is counted", |webhook| {
            errors(webhook) == before + 1.0
        })
        .await;
    put(webhook.folder.path(), "2", &made[2].1);
    webhook
        .wait("the third is served", |webhook| changes(webhook) == 3.0)
        .await;
    let done = calls.load(Ordering::Relaxed);
    webhook
        .wait("calls go on", |_| calls.load(Ordering::Relaxed) > done + 20)
        .await;
    stop.store(true, Ordering::Relaxed);
    for caller in callers {
        caller.await.expect("no call failed");
    }
    assert_eq!(seen.lock().expect("no panic inside").len(), 3);
    assert!(webhook.metric("dedupd_injector_certificate_not_after_timestamp_seconds") > 1e9);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_new_configuration_takes_effect_and_a_bad_one_does_not() {
    let (webhook, client) = start();
    webhook.wait_ready().await;
    let image = async || {
        let (_, answer) = client
            .post(review(&pod()).to_string())
            .await
            .expect("an answer");
        let patch = patch_of(&answer);
        let container = patch.as_array().and_then(|operations| {
            operations
                .iter()
                .find(|operation| operation["path"] == "/spec/initContainers")
        });
        container.expect("a container")["value"][0]["image"].clone()
    };
    let reloads = |webhook: &Webhook, outcome: &str| {
        webhook.metric(&format!(
            "dedupd_injector_config_reloads_total{{outcome=\"{outcome}\"}}"
        ))
    };
    assert_eq!(image().await, "registry.example.com/dedupd:0.1.0");
    let config = "tls: { files: { cert: tls.crt, key: tls.key } }\n";
    webhook.rewrite_config(&format!("{config}sidecar: {{ image: 'other:1' }}"));
    webhook
        .wait("applied", |webhook| reloads(webhook, "applied") == 1.0)
        .await;
    assert_eq!(image().await, "other:1");
    webhook.rewrite_config(&format!("{config}sidecar: {{ images: 'other:2' }}"));
    webhook
        .wait("refused", |webhook| reloads(webhook, "refused") == 1.0)
        .await;
    assert_eq!(image().await, "other:1");
    let logs = webhook.logs().join("\n");
    assert!(
        logs.contains("sidecar.images: is not a key; is `image` meant?"),
        "{logs}"
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn it_stops_without_cutting_anybody_off() {
    let (mut webhook, client) = start();
    webhook.wait_ready().await;
    // One call is on its way, and one connection waits for another call.
    let body = review(&pod()).to_string();
    let (first, rest) = body.split_at(body.len() / 2);
    let mut slow = client.open().await.expect("a connection");
    let head = format!(
        "POST /mutate HTTP/1.1\r\nHost: injector\r\nContent-Length: {}\r\n\r\n{first}",
        body.len()
    );
    slow.write_all(head.as_bytes()).await.expect("it reads");
    slow.flush().await.expect("it reads");
    let mut kept = client.connect().await.expect("a connection");
    let (status, _) = kept.post(body.clone()).await.expect("an answer");
    assert_eq!(status, 200);
    let stream = TokioIo::new(client.open().await.expect("a connection"));
    let (mut sender, connection) = http2::handshake(TokioExecutor::new(), stream)
        .await
        .expect("HTTP/2");
    let multiplexed = tokio::spawn(connection);
    let request =
        Request::post("https://injector/mutate").body(Full::new(Bytes::from(body.clone())));
    let response = sender.send_request(request.expect("a request")).await;
    assert_eq!(response.expect("an answer").status(), 200);
    webhook.sigterm();
    webhook
        .wait("draining", |webhook| {
            webhook.http_get("/readyz").1.contains("draining")
        })
        .await;
    // Who stays connected is sent elsewhere at once; who comes is answered while it drains.
    let soon = Duration::from_secs(3);
    timeout(soon, kept.ended()).await.expect("HTTP/1.1 ends");
    let ended = timeout(soon, multiplexed).await.expect("HTTP/2 ends");
    ended.expect("no panic").expect("in order");
    let (status, _) = client.post(body.clone()).await.expect("an answer");
    assert_eq!(status, 200);
    slow.write_all(rest.as_bytes()).await.expect("it reads");
    let mut answer = String::new();
    slow.read_to_string(&mut answer)
        .await
        .expect("an answer, and an end");
    assert!(answer.starts_with("HTTP/1.1 200 OK"), "{answer}");
    assert_eq!(webhook.wait_exit(), 0);
}
