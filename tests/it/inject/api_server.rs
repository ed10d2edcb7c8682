//! Certificates that the server makes itself, and Events, with a real API server (and its etcd).

use std::{
    env, fs,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::{Duration, Instant},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use dedupd::{
    config::injector,
    webhook::api::{Api, Write},
};
use serde_json::{Value, json};
use tempfile::TempDir;

use super::support::{TIMEOUT, Webhook, pod};
use crate::support::redis::{ports::free_port, send_signal};

/// For the API server, which has a hundred things to do.
const START: Duration = Duration::from_secs(60);
const POLL_INTERVAL: Duration = Duration::from_millis(50);

struct ApiServer {
    processes: Vec<Child>,
    admin: Api,
    port: u16,
    folder: TempDir,
}

impl ApiServer {
    /// `None`, and a line that says so, where there are no programs for it.
    async fn start() -> Option<Self> {
        let Some(programs) = env::var_os("DEDUPD_TEST_KUBERNETES").map(PathBuf::from) else {
            eprintln!("left out: no DEDUPD_TEST_KUBERNETES, see tests/run.sh");
            return None;
        };
        let folder = tempfile::tempdir().expect("a folder");
        let path = |name: &str| folder.path().join(name);
        let key = Command::new("openssl")
            .args(["genrsa", "-out"])
            .arg(path("sa.key"))
            .arg("2048")
            .stderr(Stdio::null())
            .status();
        assert!(key.expect("openssl runs").success());
        fs::write(
            path("tokens.csv"),
            "admin-token,admin,1,system:masters\ninjector-token,injector,2,\n",
        )
        .expect("the folder is ours");
        for name in ["admin", "injector"] {
            fs::write(path(name), format!("{name}-token")).expect("the folder is ours");
        }
        let (etcd_port, peer_port, port) = (free_port(), free_port(), free_port());
        let local = |port: u16| format!("http://127.0.0.1:{port}");
        let etcd = Command::new("etcd")
            .arg("--data-dir")
            .arg(path("etcd"))
            .arg("--unsafe-no-fsync")
            .args(["--listen-client-urls", &local(etcd_port)])
            .args(["--advertise-client-urls", &local(etcd_port)])
            .args(["--listen-peer-urls", &local(peer_port)])
            .stdout(Stdio::null())
            .stderr(log(&path("etcd.log")))
            .spawn()
            .expect("etcd runs");
        let api_server = Command::new(programs.join("kube-apiserver"))
            .arg(format!("--etcd-servers={}", local(etcd_port)))
            .args(["--bind-address=127.0.0.1", "--advertise-address=127.0.0.1"])
            .arg(format!("--secure-port={port}"))
            .arg("--cert-dir")
            .arg(path("certs"))
            .args([
                "--service-account-issuer=https://kubernetes.default.svc",
                "--service-cluster-ip-range=10.96.0.0/16",
                "--authorization-mode=RBAC",
            ])
            .arg("--service-account-key-file")
            .arg(path("sa.key"))
            .arg("--service-account-signing-key-file")
            .arg(path("sa.key"))
            .arg("--token-auth-file")
            .arg(path("tokens.csv"))
            .stdout(Stdio::null())
            .stderr(log(&path("api-server.log")))
            .spawn()
            .expect("the API server runs");
        let admin = Api::new(&injector::Api {
            server: Some(format!("https://127.0.0.1:{port}")),
            ca_file: Some(path("certs/apiserver.crt")),
            token_file: Some(path("admin")),
        });
        let server = Self {
            processes: vec![api_server, etcd],
            admin: admin.expect("a URL"),
            port,
            folder,
        };
        // The namespace is made by the API server itself, when it is ready.
        let deadline = Instant::now() + START;
        while let Err(error) = server.admin.get("/api/v1/namespaces/kube-system").await {
            let log = || fs::read_to_string(server.folder.path().join("api-server.log"));
            assert!(Instant::now() < deadline, "{error}: {:?}", log());
            tokio::time::sleep(POLL_INTERVAL).await;
        }
        Some(server)
    }

    async fn create(&self, path: &str, object: Value) {
        let created = self.admin.write(path, Write::Create(&object)).await;
        created.unwrap_or_else(|error| panic!("{path}: {error}: {object:#}"));
    }

    /// What the chart makes: namespaces, the injector's rights, its Service, its Secret, the webhook.
    async fn install(&self) {
        let restricted = json!({
            "dedupd.io/inject": "enabled",
            "pod-security.kubernetes.io/enforce": "restricted",
        });
        for (name, labels) in [("release", json!({})), ("shop", restricted)] {
            let metadata = json!({ "name": name, "labels": labels });
            let namespace =
                json!({ "apiVersion": "v1", "kind": "Namespace", "metadata": metadata });
            self.create("/api/v1/namespaces", namespace).await;
        }
        // There is no controller that would make it.
        let account = json!({ "apiVersion": "v1", "kind": "ServiceAccount", "metadata": { "name": "default" } });
        self.create("/api/v1/namespaces/shop/serviceaccounts", account)
            .await;
        let rights = [
            (
                "",
                "secrets",
                json!(["get", "update"]),
                json!(["injector-tls"]),
            ),
            (
                "admissionregistration.k8s.io",
                "mutatingwebhookconfigurations",
                json!(["get", "patch"]),
                json!(["injector"]),
            ),
            ("events.k8s.io", "events", json!(["create"]), json!([])),
        ];
        let rules: Vec<Value> = rights
            .into_iter()
            .map(|(group, resource, verbs, names)| {
                json!({ "apiGroups": [group], "resources": [resource], "verbs": verbs, "resourceNames": names })
            })
            .collect();
        let rbac = "/apis/rbac.authorization.k8s.io/v1";
        let role = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole",
            "metadata": { "name": "injector" }, "rules": rules,
        });
        self.create(&format!("{rbac}/clusterroles"), role).await;
        let binding = json!({
            "apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRoleBinding",
            "metadata": { "name": "injector" },
            "roleRef": { "apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "injector" },
            "subjects": [{ "apiGroup": "rbac.authorization.k8s.io", "kind": "User", "name": "injector" }],
        });
        self.create(&format!("{rbac}/clusterrolebindings"), binding)
            .await;
        // No proxy leads to addresses of a cluster here: the name does.
        let service = json!({
            "apiVersion": "v1", "kind": "Service", "metadata": { "name": "injector" },
            "spec": { "type": "ExternalName", "externalName": "localhost" },
        });
        self.create("/api/v1/namespaces/release/services", service)
            .await;
        let secret = json!({
            "apiVersion": "v1", "kind": "Secret", "type": "Opaque", "metadata": { "name": "injector-tls" },
        });
        self.create("/api/v1/namespaces/release/secrets", secret)
            .await;
    }

    /// Every pod is shown to all of the servers, one after the other.
    async fn register(&self, servers: &[&Webhook]) {
        let webhooks: Vec<Value> = servers
            .iter()
            .enumerate()
            .map(|(index, server)| {
                json!({
                    "name": format!("injector-{index}.dedupd.io"),
                    "clientConfig": { "service": {
                        "namespace": "release", "name": "injector", "path": "/mutate",
                        "port": server.https.port(),
                    } },
                    "rules": [{ "apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"] }],
                    "namespaceSelector": { "matchLabels": { "dedupd.io/inject": "enabled" } },
                    "failurePolicy": "Fail", "sideEffects": "NoneOnDryRun", "timeoutSeconds": 10,
                    "admissionReviewVersions": ["v1"],
                })
            })
            .collect();
        let configuration = json!({
            "apiVersion": "admissionregistration.k8s.io/v1", "kind": "MutatingWebhookConfiguration",
            "metadata": { "name": "injector" }, "webhooks": webhooks,
        });
        let path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations";
        self.create(path, configuration).await;
    }

    fn webhook(&self, validity: &str) -> Webhook {
        let path = |name: &str| self.folder.path().join(name).display().to_string();
        let config = format!(
            "tls: {{ self_made: {{ secret: injector-tls, service: injector, webhook_configuration: injector, namespace: release, validity: {validity} }} }}\n\
             api: {{ server: 'https://127.0.0.1:{}', ca_file: '{}', token_file: '{}' }}\n\
             sidecar: {{ image: 'dedupd:test', store: {{ url: 'redis://redis:6379' }} }}\n",
            self.port,
            path("certs/apiserver.crt"),
            path("injector"),
        );
        Webhook::start(tempfile::tempdir().expect("a folder"), &config)
    }

    async fn secret(&self) -> Value {
        let path = "/api/v1/namespaces/release/secrets/injector-tls";
        self.admin.get(path).await.expect("the Secret")
    }
}

impl Drop for ApiServer {
    fn drop(&mut self) {
        for process in &mut self.processes {
            send_signal("KILL", process.id());
            let _ = process.wait();
        }
    }
}

fn log(path: &Path) -> Stdio {
    fs::File::create(path).expect("the folder is ours").into()
}

/// A pod that the restricted standard lets in.
fn restricted_pod() -> Value {
    let mut pod = pod();
    pod["metadata"] = json!({
        "generateName": "app-", "annotations": { "dedupd.io/inject": "enabled", "dedupd.io/grpc": "socket" },
    });
    pod["spec"]["securityContext"] =
        json!({ "runAsNonRoot": true, "seccompProfile": { "type": "RuntimeDefault" } });
    pod["spec"]["containers"][0]["securityContext"] =
        json!({ "allowPrivilegeEscalation": false, "capabilities": { "drop": ["ALL"] } });
    pod
}

const PODS: &str = "/api/v1/namespaces/shop/pods";

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn certificates_of_our_own_are_trusted_and_renewed_without_a_failed_admission() {
    let Some(server) = ApiServer::start().await else {
        return;
    };
    server.install().await;
    // They do not agree how long a certificate is valid, as in the middle of an upgrade: each makes
    // another one as soon as the last one has settled.
    let (one, two) = (server.webhook("1m"), server.webhook("70s"));
    assert_eq!(
        one.http_get("/readyz").0,
        503,
        "there is no configuration yet"
    );
    server.register(&[&one, &two]).await;
    one.wait_ready().await;
    two.wait_ready().await;
    let secret = server.secret().await;
    assert_eq!(secret["type"], "Opaque", "it was there, and empty");

    let created = server
        .admin
        .write(PODS, Write::Create(&restricted_pod()))
        .await;
    let created = created.expect("the restricted standard lets the sidecar in");
    let sidecar = &created["spec"]["initContainers"][0];
    assert_eq!(sidecar["name"], "dedupd", "{created:#}");
    assert_eq!(sidecar["restartPolicy"], "Always", "{created:#}");

    let stop = Arc::new(AtomicBool::new(false));
    let admissions = Arc::new(AtomicUsize::new(0));
    let callers: Vec<_> = (0..2)
        .map(|_| {
            let (api, stop) = (server.admin.clone(), Arc::clone(&stop));
            let admissions = Arc::clone(&admissions);
            tokio::spawn(async move {
                while !stop.load(Ordering::Relaxed) {
                    let path = format!("{PODS}?dryRun=All");
                    let admitted = api.write(&path, Write::Create(&restricted_pod())).await;
                    let admitted = admitted.expect("an admission");
                    assert_eq!(admitted["spec"]["initContainers"][0]["name"], "dedupd");
                    admissions.fetch_add(1, Ordering::Relaxed);
                    // The API server closes its connections to a webhook now and then only.
                    tokio::time::sleep(Duration::from_millis(20)).await;
                }
            })
        })
        .collect();
    let changes = |webhook: &Webhook| webhook.metric("dedupd_injector_certificate_changes_total");
    let deadline = Instant::now() + 4 * TIMEOUT;
    while changes(&one) < 3.0 || changes(&two) < 3.0 {
        assert!(Instant::now() < deadline, "{} changes", changes(&one));
        for caller in &callers {
            assert!(!caller.is_finished(), "an admission failed");
        }
        tokio::time::sleep(POLL_INTERVAL).await;
    }
    stop.store(true, Ordering::Relaxed);
    for caller in callers {
        caller.await.expect("no admission failed");
    }
    assert!(admissions.load(Ordering::Relaxed) > 100, "{admissions:?}");
    check_bundle(&server).await;

    // Like an upgrade of the chart that knows nothing of it.
    let path = "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/injector";
    let emptied = json!([{ "op": "remove", "path": "/webhooks/0/clientConfig/caBundle" }]);
    let emptied = server.admin.write(path, Write::JsonPatch(&emptied)).await;
    emptied.expect("the admin may");
    wait(&server, "the caBundle is back", async || {
        let configuration = server.admin.get(path).await.expect("the configuration");
        !configuration["webhooks"][0]["clientConfig"]["caBundle"].is_null()
    })
    .await;
    wait(&server, "pods are admitted again", async || {
        let path = format!("{PODS}?dryRun=All");
        server
            .admin
            .write(&path, Write::Create(&restricted_pod()))
            .await
            .is_ok()
    })
    .await;
}

/// Two authorities at most, and the one of what is served among them.
async fn check_bundle(server: &ApiServer) {
    let secret = server.secret().await;
    let bundle = secret["data"]["ca.crt"].as_str().expect("a bundle");
    let bundle = BASE64_STANDARD.decode(bundle).expect("base64");
    let bundle = String::from_utf8(bundle).expect("PEM");
    assert_eq!(bundle.matches("BEGIN CERTIFICATE").count(), 2, "{bundle}");
}

async fn wait(server: &ApiServer, what: &str, mut holds: impl AsyncFnMut() -> bool) {
    let deadline = Instant::now() + TIMEOUT;
    while !holds().await {
        assert!(
            Instant::now() < deadline,
            "not within {TIMEOUT:?}: {what} ({})",
            server.folder.path().display()
        );
        tokio::time::sleep(POLL_INTERVAL).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn skips_and_refusals_become_events_of_the_owner() {
    let Some(server) = ApiServer::start().await else {
        return;
    };
    server.install().await;
    let webhook = server.webhook("1h");
    server.register(&[&webhook]).await;
    webhook.wait_ready().await;
    let mut refused = restricted_pod();
    refused["metadata"]["annotations"]["dedupd.io/cpu-request"] = json!("10x");
    refused["metadata"]["ownerReferences"] = json!([{
        "apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "app-5f", "controller": true,
        "uid": "2f4b8a3e-1f06-4d8e-9d7a-0a6c4f9e7b11",
    }]);
    let dry = format!("{PODS}?dryRun=All");
    for path in [dry.as_str(), PODS, PODS] {
        let error = server.admin.write(path, Write::Create(&refused)).await;
        let error = error.expect_err("it is refused").to_string();
        let words =
            "dedupd cannot be put into this pod: dedupd.io/cpu-request: \"10x\" is not a quantity";
        assert!(error.contains(words), "{error}");
    }
    let created = "dedupd_injector_events_total{outcome=\"created\"}";
    webhook
        .wait("an Event", |webhook| webhook.metric(created) == 1.0)
        .await;
    // The dry run left none, and the second is the same once more.
    let events = server
        .admin
        .get("/apis/events.k8s.io/v1/namespaces/shop/events")
        .await
        .expect("events");
    let events = events["items"].as_array().expect("a list");
    assert_eq!(events.len(), 1, "{events:#?}");
    assert_eq!(events[0]["regarding"]["name"], "app-5f");
    assert_eq!(events[0]["reason"], "DedupdBadAnnotation");
    let note = events[0]["note"].as_str().expect("a note");
    assert!(note.contains("dedupd.io/cpu-request"), "{note}");
    assert_eq!(
        webhook.metric("dedupd_injector_events_total{outcome=\"failed\"}"),
        0.0
    );
}
