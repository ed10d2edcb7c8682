//! A certificate of our own: made, kept in a Secret, made known to the API server, renewed in time.
//!
//! All instances serve what the Secret holds, so that it does not matter which of them a call
//! reaches. A renewal takes two steps: first the new authority is trusted beside the old one, and a
//! while later the new certificate is served. So no call finds an instance whose certificate the API
//! server does not know yet, however far the instances are apart. Which instance takes a step does
//! not matter either: the Secret is written only by who has read it last.

use std::{sync::Arc, time::Duration};

use base64::{Engine, prelude::BASE64_STANDARD};
use hyper::StatusCode;
use serde_json::{Value, json};
use tokio::time;

use self::plan::{Kept, Step};
use super::{
    api::{Api, ApiError, Write},
    certificate::{self, Current, Pair},
    server::Ready,
};
use crate::{clock::Clock, config::injector::SelfMade};

mod plan;

/// Between two looks, so often that a caBundle that an upgrade has emptied is back in seconds.
const LOOK: Duration = Duration::from_secs(10);
/// After the Secret was written, by this instance or another one.
const SOON: Duration = Duration::from_millis(200);
/// Looks in the time that a certificate is valid, at least.
const LOOKS: u32 = 30;

#[derive(Debug)]
pub struct SelfMaker {
    pub api: Api,
    pub config: SelfMade,
    pub namespace: String,
    pub current: Arc<Current>,
    pub ready: Arc<Ready>,
    pub clock: Clock,
}

#[derive(Debug, thiserror::Error)]
enum Fault {
    #[error(transparent)]
    Api(#[from] ApiError),
    #[error("{0}")]
    Certificate(String),
}

/// When to look again.
#[derive(Clone, Copy, Debug)]
enum Next {
    Soon,
    Later,
}

impl SelfMaker {
    /// Keeps the certificate valid and trusted, for ever.
    pub async fn keep(self) {
        let pause = LOOK.min(self.config.validity / LOOKS);
        let mut last = None;
        let mut said = None;
        loop {
            let (next, fault) = match self.look(&mut last).await {
                Ok(next) => (next, None),
                Err(fault) => (Next::Later, Some(fault.to_string())),
            };
            if let Some(message) = &fault {
                self.current.failed();
                if said != fault {
                    tracing::error!("tls.self_made: {message}; it is tried again");
                }
            }
            said = fault;
            match next {
                Next::Soon => time::sleep(SOON).await,
                Next::Later => time::sleep(pause).await,
            }
        }
    }

    /// `last` is what the Secret held when it was looked at last.
    async fn look(&self, last: &mut Option<Kept>) -> Result<Next, Fault> {
        let secret = match self.api.get(&self.secret_path()).await {
            Ok(secret) => Some(secret),
            Err(error) if error.is(StatusCode::NOT_FOUND) => None,
            Err(error) => return Err(error.into()),
        };
        let found = secret.as_ref().and_then(kept_in);
        let Some(kept) = found else {
            // Deleted, it comes back as it was: other instances serve it still.
            let kept = match last.clone() {
                Some(kept) => kept,
                None => self.fresh()?,
            };
            self.write(secret.as_ref(), &kept).await?;
            return Ok(Next::Soon);
        };
        if last.as_ref().map(|last| &last.served) != Some(&kept.served) {
            self.current
                .change(&kept.served)
                .map_err(Fault::Certificate)?;
            tracing::info!("the certificate of Secret {} is served", self.config.secret);
        }
        *last = Some(kept.clone());
        let was_trusted = self.have_trusted(&kept.bundle).await?;
        self.ready.trusted();
        let facts = certificate::facts(&kept.served.certificate).map_err(Fault::Certificate)?;
        let now_s = self.now_s();
        match plan::step(&kept, &facts, &self.names(), self.config.validity, now_s) {
            Step::Nothing => {}
            Step::Prepare => {
                let (authority, pair) = self.make()?;
                tracing::info!("a new certificate is made; its authority is trusted first");
                let prepared = kept.prepare(&authority, pair, now_s);
                self.write(secret.as_ref(), &prepared).await?;
                return Ok(Next::Soon);
            }
            Step::Promote if was_trusted => {
                self.write(secret.as_ref(), &kept.promote(now_s)).await?;
                return Ok(Next::Soon);
            }
            Step::Promote => {}
        }
        Ok(Next::Later)
    }

    fn make(&self) -> Result<(String, Pair), Fault> {
        certificate::make(&self.names(), self.config.validity, self.clock.now())
            .map_err(Fault::Certificate)
    }

    fn now_s(&self) -> i64 {
        self.clock.now().unix_nanos() / 1_000_000_000
    }

    fn fresh(&self) -> Result<Kept, Fault> {
        let (bundle, served) = self.make()?;
        Ok(Kept {
            bundle,
            served,
            next: None,
            since_s: self.now_s(),
        })
    }

    /// What the API server may call the Service.
    fn names(&self) -> Vec<String> {
        let name = format!("{}.{}", self.config.service, self.namespace);
        vec![
            format!("{name}.svc"),
            format!("{name}.svc.cluster.local"),
            name,
        ]
    }

    fn secrets_path(&self) -> String {
        format!("/api/v1/namespaces/{}/secrets", self.namespace)
    }

    fn secret_path(&self) -> String {
        format!("{}/{}", self.secrets_path(), self.config.secret)
    }

    /// In place of `before`, or anew. Where another instance was faster its word stands.
    async fn write(&self, before: Option<&Value>, kept: &Kept) -> Result<(), Fault> {
        let written = match before {
            Some(before) => {
                let mut secret = before.clone();
                fill(&mut secret, kept);
                let path = self.secret_path();
                self.api.write(&path, Write::Replace(&secret)).await
            }
            None => {
                let mut secret = json!({
                    "apiVersion": "v1",
                    "kind": "Secret",
                    "type": "kubernetes.io/tls",
                    "metadata": {
                        "name": self.config.secret,
                        "ownerReferences": self.owner().await,
                    },
                });
                fill(&mut secret, kept);
                let path = self.secrets_path();
                self.api.write(&path, Write::Create(&secret)).await
            }
        };
        match written {
            Ok(_) => Ok(()),
            Err(error) if error.is(StatusCode::CONFLICT) => Ok(()),
            Err(error) => Err(error.into()),
        }
    }

    /// The Service, so that the Secret goes with it; nothing, if it cannot be read.
    async fn owner(&self) -> Value {
        let path = format!(
            "/api/v1/namespaces/{}/services/{}",
            self.namespace, self.config.service
        );
        match self.api.get(&path).await {
            Ok(service) => json!([{
                "apiVersion": "v1",
                "kind": "Service",
                "name": self.config.service,
                "uid": service["metadata"]["uid"],
            }]),
            Err(error) => {
                tracing::debug!("the Secret has no owner: {error}");
                json!([])
            }
        }
    }

    /// Says whether the API server knew the authorities already.
    async fn have_trusted(&self, bundle: &str) -> Result<bool, Fault> {
        let path = format!(
            "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations/{}",
            self.config.webhook_configuration
        );
        let configuration = self.api.get(&path).await?;
        let wanted = Value::from(BASE64_STANDARD.encode(bundle));
        let webhooks = configuration["webhooks"].as_array();
        let mut operations = Vec::new();
        for (index, webhook) in webhooks.into_iter().flatten().enumerate() {
            if webhook["clientConfig"]["caBundle"] == wanted {
                continue;
            }
            let at = format!("/webhooks/{index}");
            operations.push(json!({
                "op": "test", "path": format!("{at}/name"), "value": webhook["name"],
            }));
            operations.push(json!({
                "op": "add", "path": format!("{at}/clientConfig/caBundle"), "value": wanted,
            }));
        }
        if operations.is_empty() {
            return Ok(true);
        }
        self.api
            .write(&path, Write::JsonPatch(&operations.into()))
            .await?;
        tracing::info!("the API server was told which authorities to trust");
        Ok(false)
    }
}

/// When the last step was taken, in seconds since 1970.
const SINCE: &str = "dedupd.io/since";

/// What a Secret holds, if it can be served.
fn kept_in(secret: &Value) -> Option<Kept> {
    let text = |key: &str| {
        let bytes = BASE64_STANDARD.decode(secret["data"][key].as_str()?).ok()?;
        String::from_utf8(bytes).ok()
    };
    let pair = |certificate: &str, key: &str| {
        let pair = Pair {
            certificate: text(certificate)?,
            key: text(key)?,
        };
        Current::default().change(&pair).ok()?;
        Some(pair)
    };
    let since = secret["metadata"]["annotations"][SINCE].as_str();
    let since_s = since.and_then(|since| since.parse().ok()).unwrap_or(0);
    let bundle = text("ca.crt")?;
    certificate::facts(&bundle).ok()?;
    Some(Kept {
        bundle,
        served: pair("tls.crt", "tls.key")?,
        next: pair("next.crt", "next.key"),
        since_s,
    })
}

fn fill(secret: &mut Value, kept: &Kept) {
    let encode = |text: &str| Value::from(BASE64_STANDARD.encode(text));
    secret["data"] = json!({
        "ca.crt": encode(&kept.bundle),
        "tls.crt": encode(&kept.served.certificate),
        "tls.key": encode(&kept.served.key),
    });
    if !secret["metadata"]["annotations"].is_object() {
        secret["metadata"]["annotations"] = json!({});
    }
    secret["metadata"]["annotations"][SINCE] = kept.since_s.to_string().into();
    if let Some(pair) = &kept.next {
        secret["data"]["next.crt"] = encode(&pair.certificate);
        secret["data"]["next.key"] = encode(&pair.key);
    }
}
