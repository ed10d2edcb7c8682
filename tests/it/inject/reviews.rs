//! Admission reviews, good and bad, over TLS to the running server.

use std::fs;

use dedupd::{domain::time::EventTime, webhook::certificate};
use serde_json::{Value, json};

use super::support::{Client, TIMEOUT, Webhook, data, patch_of, pod, review};

const NAME: &str = "injector.ns.svc";

/// The configuration of the shapes, with a certificate.
pub(super) fn start() -> (Webhook, Client) {
    let folder = tempfile::tempdir().expect("a folder");
    let (authority, pair) = make();
    fs::write(folder.path().join("tls.crt"), &pair.certificate).expect("the folder is ours");
    fs::write(folder.path().join("tls.key"), &pair.key).expect("the folder is ours");
    let config = fs::read_to_string(data("injector.yaml")).expect("a configuration");
    let webhook = Webhook::start(folder, &config);
    let client = Client::new(webhook.https, &[authority], NAME);
    (webhook, client)
}

/// An authority and a certificate of it.
pub(super) fn make() -> (String, certificate::Pair) {
    let now = jiff::Timestamp::now().as_nanosecond();
    let now = EventTime::from_unix_nanos(i64::try_from(now).expect("before 2262"));
    let names = [NAME.to_owned()];
    certificate::make(&names, TIMEOUT * 100, now).expect("a certificate")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_review_is_answered_with_the_patch_of_the_library() {
    let (webhook, client) = start();
    webhook.wait_ready().await;
    let mut patched = pod();
    let (status, answer) = client
        .post(review(&pod()).to_string())
        .await
        .expect("an answer");
    assert_eq!(status, 200, "{answer}");
    let parsed: Value = serde_json::from_str(&answer).expect("JSON");
    assert_eq!(parsed["apiVersion"], "admission.k8s.io/v1");
    assert_eq!(
        parsed["response"]["uid"],
        "705ab4f5-6393-11e8-b7cc-42010a800002"
    );
    let patch: json_patch::Patch = serde_json::from_value(patch_of(&answer)).expect("a JSON patch");
    json_patch::patch(&mut patched, &patch).expect("it fits");
    assert_eq!(patched["spec"]["initContainers"][0]["name"], "dedupd");

    // What comes of it is left as it is, and so is what does not ask.
    let skipped = [
        ("already_injected", review(&patched)),
        ("annotation_absent", {
            let mut pod = pod();
            pod["metadata"]["annotations"] = json!({});
            review(&pod)
        }),
        ("not_a_pod", {
            let mut review = review(&pod());
            review["request"]["operation"] = json!("UPDATE");
            review
        }),
        ("not_a_pod", {
            let mut review = review(&pod());
            review["request"]["subResource"] = json!("ephemeralcontainers");
            review
        }),
        ("not_a_pod", {
            let mut review = review(&Value::Null);
            review["request"]["resource"]["resource"] = json!("namespaces");
            review["request"]["operation"] = json!("DELETE");
            review
        }),
    ];
    for (reason, review) in skipped {
        let before = webhook.metric(&series("skipped", reason));
        let (status, answer) = client.post(review.to_string()).await.expect("an answer");
        let answer: Value = serde_json::from_str(&answer).expect("JSON");
        assert_eq!(status, 200, "{answer}");
        assert_eq!(answer["response"]["allowed"], true, "{answer}");
        assert_eq!(answer["response"].get("patch"), None, "{answer}");
        assert_eq!(answer["response"].get("warnings"), None, "{answer}");
        assert_eq!(webhook.metric(&series("skipped", reason)), before + 1.0);
    }
    assert_eq!(webhook.metric(&series("injected", "injected")), 1.0);
    assert_eq!(
        webhook.metric("dedupd_injector_admission_seconds_count{path=\"/mutate\"}"),
        6.0
    );
}

fn series(outcome: &str, reason: &str) -> String {
    format!("dedupd_injector_admissions_total{{outcome=\"{outcome}\",reason=\"{reason}\"}}")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_refusal_and_a_surprising_skip_are_said_in_words() {
    let (webhook, client) = start();
    webhook.wait_ready().await;
    let mut bad = pod();
    bad["metadata"]["annotations"]["dedupd.io/cpu-request"] = json!("10x");
    let (status, answer) = client
        .post(review(&bad).to_string())
        .await
        .expect("an answer");
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    assert_eq!(status, 200);
    assert_eq!(answer["response"]["allowed"], false, "{answer}");
    assert_eq!(answer["response"]["status"]["code"], 400, "{answer}");
    let message = answer["response"]["status"]["message"]
        .as_str()
        .expect("text");
    assert!(
        message.contains("dedupd.io/cpu-request: \"10x\" is not a quantity"),
        "{message}"
    );
    assert_eq!(webhook.metric(&series("refused", "bad_annotation")), 1.0);

    let mut host = pod();
    host["spec"]["hostNetwork"] = json!(true);
    let (_, answer) = client
        .post(review(&host).to_string())
        .await
        .expect("an answer");
    let answer: Value = serde_json::from_str(&answer).expect("JSON");
    assert_eq!(answer["response"]["allowed"], true, "{answer}");
    let warning = answer["response"]["warnings"][0]
        .as_str()
        .expect("a warning");
    assert!(warning.contains("the host's network"), "{warning}");
    assert_eq!(webhook.metric(&series("skipped", "host_network")), 1.0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_no_review_gets_a_4xx_in_words_and_the_server_lives_on() {
    let (webhook, client) = start();
    webhook.wait_ready().await;
    let without = |path: &str| {
        let mut review = review(&pod());
        let (parent, key) = path.rsplit_once('/').expect("a path");
        let parent = review.pointer_mut(parent).and_then(Value::as_object_mut);
        parent.expect("a mapping").remove(key);
        review.to_string()
    };
    let deep = format!("{}{}", "[".repeat(100_000), "]".repeat(100_000));
    let with_object = |object: Value| review(&object).to_string();
    let rows: Vec<(Vec<u8>, u16, &str)> = vec![
        (b"".to_vec(), 400, "not JSON"),
        (b"{".to_vec(), 400, "not JSON"),
        (b"\xff\xfe".to_vec(), 400, "not JSON"),
        (deep.into(), 400, "not JSON"),
        (b"[]".to_vec(), 400, "no AdmissionReview"),
        (b"null".to_vec(), 400, "no AdmissionReview"),
        (
            with_object(pod())
                .replace("admission.k8s.io/v1", "admission.k8s.io/v1beta1")
                .into(),
            400,
            "no AdmissionReview",
        ),
        (without("/request").into(), 400, "request is missing"),
        (without("/request/uid").into(), 400, "request.uid"),
        (without("/request/object").into(), 400, "request.object"),
        (with_object(json!("pod")).into(), 400, "request.object"),
    ];
    let count = rows.len();
    for (body, status, message) in rows {
        let shown = String::from_utf8_lossy(&body[..body.len().min(80)]).into_owned();
        let (found, answer) = client.post(body).await.expect("an answer");
        assert_eq!(found, status, "{shown}: {answer}");
        assert!(answer.contains(message), "{shown}: {answer}");
    }
    assert_eq!(
        webhook.metric(&series("malformed", "malformed")),
        count as f64
    );

    // A pod that is none is refused like others, whatever its parts are.
    let pods = [
        json!({}),
        json!({ "spec": [] }),
        json!({ "metadata": 5, "spec": { "containers": [{}] } }),
        json!({ "metadata": { "annotations": [] }, "spec": { "containers": [{}] } }),
        json!({ "spec": { "containers": {} } }),
        json!({ "spec": { "containers": [5] } }),
        json!({ "spec": { "containers": [{ "env": {} }] } }),
        json!({ "spec": { "containers": [{}], "initContainers": "none" } }),
        json!({ "spec": { "containers": [{}], "volumes": [null] } }),
    ];
    for (index, pod) in pods.iter().enumerate() {
        let (status, answer) = client
            .post(with_object(pod.clone()))
            .await
            .expect("an answer");
        let answer: Value = serde_json::from_str(&answer).expect("JSON");
        assert_eq!(status, 200, "{pod}");
        assert_eq!(answer["response"]["allowed"], false, "{pod}: {answer}");
        assert_eq!(
            webhook.metric(&series("refused", "bad_pod")),
            (index + 1) as f64
        );
    }

    let mut connection = client.connect().await.expect("a connection");
    let (status, _) = connection
        .send("GET", "/mutate", "")
        .await
        .expect("an answer");
    assert_eq!(status, 405);
    let (status, answer) = connection.send("POST", "/", "{}").await.expect("an answer");
    assert_eq!(
        (status, answer.contains("POST /mutate")),
        (404, true),
        "{answer}"
    );
    let (status, answer) = connection
        .post(with_object(pod()))
        .await
        .expect("an answer");
    assert_eq!(status, 200, "{answer}");
    patch_of(&answer);
    assert!(
        !webhook.logs().iter().any(|line| line.contains("panicked")),
        "{:#?}",
        webhook.logs()
    );
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_review_may_be_as_large_as_the_api_server_lets_it_be_and_not_much_larger() {
    let (webhook, client) = start();
    webhook.wait_ready().await;
    let mut large = pod();
    let text = "x\u{1f980}\"\\".repeat((3 << 20) / 8);
    large["metadata"]["annotations"]["example.com/text"] = json!(text);
    let body = review(&large).to_string();
    assert!(
        (3 << 20..6 << 20).contains(&body.len()),
        "{} bytes",
        body.len()
    );
    let (status, answer) = client.post(body).await.expect("an answer");
    assert_eq!(status, 200);
    // The patch holds what is new and nothing of the rest.
    assert!(answer.len() < 10_000, "{} bytes", answer.len());
    patch_of(&answer);

    let many: Vec<Value> = (0..20_000)
        .map(|number| json!({ "name": format!("V{number}"), "value": "x".repeat(100) }))
        .collect();
    large = pod();
    large["spec"]["containers"][0]["env"] = many.into();
    let (status, answer) = client
        .post(review(&large).to_string())
        .await
        .expect("an answer");
    assert_eq!(status, 200);
    assert_eq!(patch_of(&answer)[0]["path"], "/spec/containers/0/env/0");

    large = pod();
    large["metadata"]["annotations"]["example.com/text"] = json!("x".repeat(9 << 20));
    // It may close the connection before all of it is sent.
    if let Ok((status, answer)) = client.post(review(&large).to_string()).await {
        assert_eq!(status, 413, "{answer}");
        assert!(answer.contains("more than 8388608 bytes"), "{answer}");
    }
    webhook
        .wait("the refusal is counted", |webhook| {
            webhook.metric(&series("malformed", "malformed")) == 1.0
        })
        .await;
    let (status, _) = client
        .post(review(&pod()).to_string())
        .await
        .expect("an answer");
    assert_eq!(status, 200);
}
