//! Requests to the API server.

use std::{
    env, fs, io,
    path::{Path, PathBuf},
    sync::Arc,
    time::Duration,
};

use bytes::Bytes;
use futures_util::future;
use http_body_util::{BodyExt, Full, Limited};
use hyper::{
    Method, Request, StatusCode, Uri,
    client::conn::http1,
    header::{AUTHORIZATION, CONTENT_TYPE, HOST, HeaderValue},
};
use hyper_util::rt::TokioIo;
use serde_json::Value;
use tokio::{net::TcpStream, time};
use tokio_rustls::{
    TlsConnector,
    rustls::{
        ClientConfig, RootCertStore,
        crypto::ring,
        pki_types::{CertificateDer, ServerName, pem::PemObject},
    },
};

use crate::config::injector;

const SERVICE_ACCOUNT: &str = "/var/run/secrets/kubernetes.io/serviceaccount";
/// For one request, from connecting to the end of its answer.
const TIME: Duration = Duration::from_secs(10);
const MAX_ANSWER_BYTES: usize = 4 << 20;

/// How the API server is reached. The authority and the token are read for each request: both rotate.
#[derive(Clone, Debug)]
pub struct Api {
    host: String,
    port: u16,
    ca_file: PathBuf,
    token_file: PathBuf,
}

#[derive(Debug, thiserror::Error)]
pub enum ApiError {
    #[error("cannot read {0}: {1}")]
    File(PathBuf, io::Error),
    #[error("the API server cannot be reached: {0}")]
    Unreachable(String),
    #[error("the API server did not answer within 10 s")]
    Slow,
    #[error("the API server says {status}: {message}")]
    Refused { status: StatusCode, message: String },
}

impl ApiError {
    pub fn is(&self, wanted: StatusCode) -> bool {
        matches!(self, ApiError::Refused { status, .. } if *status == wanted)
    }
}

/// How a body changes an object.
#[derive(Clone, Copy, Debug)]
pub enum Write<'v> {
    Create(&'v Value),
    /// Fails with a conflict if it was changed since it was read.
    Replace(&'v Value),
    JsonPatch(&'v Value),
}

impl Api {
    /// As configured, and else as a pod reaches it.
    pub fn new(config: &injector::Api) -> Result<Self, String> {
        let server = match &config.server {
            Some(server) => server.clone(),
            None => in_cluster().ok_or(
                "this is no pod of Kubernetes (KUBERNETES_SERVICE_HOST is not set), and api.server is not set either",
            )?,
        };
        let uri: Uri = server
            .parse()
            .map_err(|error| format!("api.server: {server:?} is no URL: {error}"))?;
        let host = uri.host().ok_or("api.server: names no host")?;
        let mounted = |file: &str| Path::new(SERVICE_ACCOUNT).join(file);
        Ok(Self {
            host: host.trim_matches(['[', ']']).to_owned(),
            port: uri.port_u16().unwrap_or(443),
            ca_file: config.ca_file.clone().unwrap_or_else(|| mounted("ca.crt")),
            token_file: config
                .token_file
                .clone()
                .unwrap_or_else(|| mounted("token")),
        })
    }

    pub async fn get(&self, path: &str) -> Result<Value, ApiError> {
        self.request(Method::GET, path, "application/json", Bytes::new())
            .await
    }

    pub async fn write(&self, path: &str, write: Write<'_>) -> Result<Value, ApiError> {
        let (method, content_type, body) = match write {
            Write::Create(body) => (Method::POST, "application/json", body),
            Write::Replace(body) => (Method::PUT, "application/json", body),
            Write::JsonPatch(body) => (Method::PATCH, "application/json-patch+json", body),
        };
        let body = Bytes::from(body.to_string());
        self.request(method, path, content_type, body).await
    }

    async fn request(
        &self,
        method: Method,
        path: &str,
        content_type: &'static str,
        body: Bytes,
    ) -> Result<Value, ApiError> {
        let exchange = self.exchange(method, path, content_type, body);
        time::timeout(TIME, exchange)
            .await
            .unwrap_or(Err(ApiError::Slow))
    }

    async fn exchange(
        &self,
        method: Method,
        path: &str,
        content_type: &'static str,
        body: Bytes,
    ) -> Result<Value, ApiError> {
        let unreachable = |error: &dyn std::error::Error| ApiError::Unreachable(error.to_string());
        let request = self.head(method, path, content_type)?;
        let request = request
            .body(Full::new(body))
            .map_err(|error| unreachable(&error))?;
        let stream = TcpStream::connect((self.host.as_str(), self.port))
            .await
            .map_err(|error| unreachable(&error))?;
        let name = ServerName::try_from(self.host.clone()).map_err(|error| unreachable(&error))?;
        let stream = TlsConnector::from(self.tls()?)
            .connect(name, stream)
            .await
            .map_err(|error| unreachable(&error))?;
        let (mut sender, connection) = http1::handshake(TokioIo::new(stream))
            .await
            .map_err(|error| unreachable(&error))?;
        let answer = async move {
            let response = sender.send_request(request).await?;
            let status = response.status();
            let body = Limited::new(response.into_body(), MAX_ANSWER_BYTES);
            let body = body.collect().await?.to_bytes();
            Ok::<_, Box<dyn std::error::Error + Send + Sync>>((status, body))
        };
        // The connection ends when the sender does.
        let (answer, _) = future::join(answer, connection).await;
        let (status, body) = answer.map_err(|error| unreachable(&*error))?;
        let value: Value = serde_json::from_slice(&body).unwrap_or_default();
        if status.is_success() {
            return Ok(value);
        }
        let message = value["message"].as_str().unwrap_or("(no message)");
        Err(ApiError::Refused {
            status,
            message: message.to_owned(),
        })
    }

    fn head(
        &self,
        method: Method,
        path: &str,
        content_type: &'static str,
    ) -> Result<hyper::http::request::Builder, ApiError> {
        let token = read(&self.token_file)?;
        let mut bearer = HeaderValue::from_str(&format!("Bearer {}", token.trim()))
            .map_err(|_| ApiError::Unreachable("the token is no header's value".to_owned()))?;
        bearer.set_sensitive(true);
        let host = if self.host.contains(':') {
            format!("[{}]:{}", self.host, self.port)
        } else {
            format!("{}:{}", self.host, self.port)
        };
        Ok(Request::builder()
            .method(method)
            .uri(path)
            .header(HOST, host)
            .header(AUTHORIZATION, bearer)
            .header(CONTENT_TYPE, content_type))
    }

    fn tls(&self) -> Result<Arc<ClientConfig>, ApiError> {
        let unusable = |message: String| ApiError::Unreachable(message);
        let mut roots = RootCertStore::empty();
        let text = read(&self.ca_file)?;
        for certificate in CertificateDer::pem_slice_iter(text.as_bytes()) {
            certificate
                .map_err(|error| error.to_string())
                .and_then(|root| roots.add(root).map_err(|error| error.to_string()))
                .map_err(|error| unusable(format!("{}: {error}", self.ca_file.display())))?;
        }
        let config = ClientConfig::builder_with_provider(Arc::new(ring::default_provider()))
            .with_safe_default_protocol_versions()
            .map_err(|error| unusable(error.to_string()))?
            .with_root_certificates(roots)
            .with_no_client_auth();
        Ok(Arc::new(config))
    }
}

fn read(path: &Path) -> Result<String, ApiError> {
    fs::read_to_string(path).map_err(|error| ApiError::File(path.to_owned(), error))
}

fn in_cluster() -> Option<String> {
    let host = env::var("KUBERNETES_SERVICE_HOST").ok()?;
    let port = env::var("KUBERNETES_SERVICE_PORT").ok()?;
    Some(if host.contains(':') {
        format!("https://[{host}]:{port}")
    } else {
        format!("https://{host}:{port}")
    })
}

/// The namespace of this pod.
pub fn own_namespace() -> Option<String> {
    let text = fs::read_to_string(Path::new(SERVICE_ACCOUNT).join("namespace")).ok()?;
    Some(text.trim().to_owned())
}
