//! The admission server as a process, and who speaks to it.

use std::{
    env, fs,
    net::SocketAddr,
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::Arc,
    time::{Duration, Instant},
};

use base64::{Engine, prelude::BASE64_STANDARD};
use bytes::Bytes;
use http_body_util::{BodyExt, Full};
use hyper::{Request, client::conn::http1};
use hyper_util::rt::TokioIo;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::net::TcpStream;
use tokio_rustls::{
    TlsConnector,
    client::TlsStream,
    rustls::{
        ClientConfig, RootCertStore,
        client::Resumption,
        crypto::ring,
        pki_types::{CertificateDer, ServerName, pem::PemObject},
    },
};

use crate::support::{
    redis::send_signal,
    service::{Logs, exit_code, http_get, series_value},
};

pub(super) const TIMEOUT: Duration = Duration::from_secs(20);
const POLL_INTERVAL: Duration = Duration::from_millis(20);

/// A file of `tests/data/inject/`.
pub(super) fn data(file: &str) -> PathBuf {
    PathBuf::from(env!("CARGO_MANIFEST_DIR"))
        .join("tests/data/inject")
        .join(file)
}

/// `dedupd webhook`, on ports of its own, with the configuration in a folder of its own.
#[derive(Debug)]
pub(super) struct Webhook {
    child: Child,
    logs: Arc<Logs>,
    pub(super) https: SocketAddr,
    admin: SocketAddr,
    pub(super) folder: TempDir,
}

impl Webhook {
    /// `config` has everything but where it listens; the files of its `tls` are made beforehand.
    pub(super) fn start(folder: TempDir, config: &str) -> Self {
        write_config(folder.path(), config);
        let mut command = dedupd();
        command
            .args(["webhook", "--log-format", "json", "--config"])
            .arg(folder.path().join("injector.yaml"))
            .current_dir(folder.path())
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        let mut child = command.spawn().expect("dedupd runs");
        let logs = Arc::new(Logs::default());
        logs.collect(child.stdout.take().expect("stdout is piped"));
        logs.collect(child.stderr.take().expect("stderr is piped"));
        let listening = logs.wait(TIMEOUT, |line| {
            let line: Value = serde_json::from_str(line).ok()?;
            let fields = &line["fields"];
            let address = |name: &str| fields[name].as_str()?.parse().ok();
            (fields["message"] == "listening").then_some(())?;
            Some((address("https")?, address("admin")?))
        });
        let Some((https, admin)) = listening else {
            let _ = child.kill();
            let _ = child.wait();
            panic!("dedupd webhook does not listen: {:#?}", logs.lines());
        };
        Self {
            child,
            logs,
            https,
            admin,
            folder,
        }
    }

    pub(super) fn rewrite_config(&self, config: &str) {
        write_config(self.folder.path(), config);
    }

    pub(super) fn http_get(&self, path: &str) -> (u16, String) {
        http_get(self.admin, path)
    }

    pub(super) fn metric(&self, series: &str) -> f64 {
        let (status, body) = self.http_get("/metrics");
        assert_eq!(status, 200, "{body}");
        series_value(&body, series).unwrap_or_else(|| panic!("no {series} in {body}"))
    }

    /// Until `holds`; a failure shows `what`.
    pub(super) async fn wait(&self, what: &str, holds: impl Fn(&Self) -> bool) {
        let deadline = Instant::now() + TIMEOUT;
        while !holds(self) {
            assert!(Instant::now() < deadline, "not within {TIMEOUT:?}: {what}");
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    pub(super) async fn wait_ready(&self) {
        self.wait("ready", |webhook| webhook.http_get("/readyz").0 == 200)
            .await;
    }

    pub(super) fn sigterm(&self) {
        send_signal("TERM", self.child.id());
    }

    pub(super) fn wait_exit(&mut self) -> i32 {
        exit_code(&mut self.child, TIMEOUT)
            .unwrap_or_else(|| panic!("it still runs: {:#?}", self.logs.lines()))
    }

    pub(super) fn logs(&self) -> Vec<String> {
        self.logs.lines()
    }
}

impl Drop for Webhook {
    fn drop(&mut self) {
        // An error says that it has ended already.
        let _ = self.child.kill();
        let _ = self.child.wait();
        if std::thread::panicking() {
            let mut lines = self.logs.lines();
            lines.retain(|line| !line.contains("\"injected\""));
            eprintln!("log of dedupd webhook: {lines:#?}");
        }
    }
}

fn write_config(folder: &Path, config: &str) {
    let config = format!("listen: '127.0.0.1:0'\nadmin_listen: '127.0.0.1:0'\n{config}");
    // As one step: it is read while it is written.
    let new = folder.join("injector.yaml.new");
    fs::write(&new, config).expect("the folder is ours");
    fs::rename(new, folder.join("injector.yaml")).expect("the folder is ours");
}

/// The binary, without variables that it knows.
pub(super) fn dedupd() -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_dedupd"));
    for (name, _) in env::vars_os() {
        let name = name.to_string_lossy().into_owned();
        if name.starts_with("DEDUPD_") || name.starts_with("KUBERNETES_") || name == "RUST_LOG" {
            command.env_remove(name);
        }
    }
    command
}

/// Speaks to the admission server as an API server does that trusts these authorities.
#[derive(Clone)]
pub(super) struct Client {
    address: SocketAddr,
    tls: TlsConnector,
    name: ServerName<'static>,
}

pub(super) struct Connection {
    sender: http1::SendRequest<Full<Bytes>>,
    /// What the server has shown.
    pub(super) certificate: Vec<u8>,
}

impl Client {
    pub(super) fn new(address: SocketAddr, authorities: &[String], name: &str) -> Self {
        let mut roots = RootCertStore::empty();
        for authority in authorities {
            let root = CertificateDer::from_pem_slice(authority.as_bytes()).expect("PEM");
            roots.add(root).expect("an authority");
        }
        let mut config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .expect("ring has them")
            .with_root_certificates(roots)
            .with_no_client_auth();
        // A session that is resumed does not look at the certificate.
        config.resumption = Resumption::disabled();
        Self {
            address,
            tls: TlsConnector::from(Arc::new(config)),
            name: ServerName::try_from(name.to_owned()).expect("a name"),
        }
    }

    /// The bytes, for who speaks HTTP in pieces.
    pub(super) async fn open(&self) -> Result<TlsStream<TcpStream>, String> {
        let stream = TcpStream::connect(self.address)
            .await
            .map_err(|error| error.to_string())?;
        let stream = self.tls.connect(self.name.clone(), stream).await;
        stream.map_err(|error| error.to_string())
    }

    pub(super) async fn connect(&self) -> Result<Connection, String> {
        let stream = self.open().await?;
        let shown = stream.get_ref().1.peer_certificates();
        let certificate = shown.and_then(|chain| chain.first()).expect("it shows one");
        let certificate = certificate.to_vec();
        let (sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| error.to_string())?;
        tokio::spawn(connection);
        Ok(Connection {
            sender,
            certificate,
        })
    }

    /// Over a connection of its own.
    pub(super) async fn post(&self, body: impl Into<Bytes>) -> Result<(u16, String), String> {
        self.connect().await?.post(body).await
    }
}

impl Connection {
    pub(super) async fn send(
        &mut self,
        method: &str,
        path: &str,
        body: impl Into<Bytes>,
    ) -> Result<(u16, String), String> {
        let request = Request::builder()
            .method(method)
            .uri(path)
            .header("host", "injector")
            .header("content-type", "application/json")
            .body(Full::new(body.into()))
            .expect("a request");
        // Of a connection whose last answer was just read: its task may not know yet.
        self.sender
            .ready()
            .await
            .map_err(|error| error.to_string())?;
        let response = self
            .sender
            .send_request(request)
            .await
            .map_err(|error| error.to_string())?;
        let status = response.status().as_u16();
        let body = response
            .into_body()
            .collect()
            .await
            .map_err(|error| error.to_string())?;
        let body = String::from_utf8_lossy(&body.to_bytes()).into_owned();
        Ok((status, body))
    }

    /// The server has closed it.
    pub(super) async fn ended(&mut self) {
        while self.sender.ready().await.is_ok() {
            tokio::time::sleep(POLL_INTERVAL).await;
        }
    }

    pub(super) async fn post(&mut self, body: impl Into<Bytes>) -> Result<(u16, String), String> {
        self.send("POST", "/mutate", body).await
    }
}

/// What the API server asks when `pod` is created.
pub(super) fn review(pod: &Value) -> Value {
    json!({
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "705ab4f5-6393-11e8-b7cc-42010a800002",
            "kind": { "group": "", "version": "v1", "kind": "Pod" },
            "resource": { "group": "", "version": "v1", "resource": "pods" },
            "namespace": "shop",
            "operation": "CREATE",
            "userInfo": { "username": "system:serviceaccount:kube-system:replicaset-controller" },
            "object": pod,
            "oldObject": null,
            "dryRun": false,
        },
    })
}

/// A pod that wants a sidecar.
pub(super) fn pod() -> Value {
    json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "name": "app", "annotations": { "dedupd.io/inject": "enabled" } },
        "spec": { "containers": [{ "name": "app", "image": "app" }] },
    })
}

/// The patch in an answer.
pub(super) fn patch_of(answer: &str) -> Value {
    let answer: Value = serde_json::from_str(answer).expect("JSON");
    let response = &answer["response"];
    assert_eq!(response["allowed"], true, "{answer}");
    assert_eq!(response["patchType"], "JSONPatch", "{answer}");
    let patch = response["patch"].as_str().expect("a patch");
    let patch = BASE64_STANDARD.decode(patch).expect("base64");
    serde_json::from_slice(&patch).expect("JSON")
}
