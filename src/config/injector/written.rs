//! What was written to the injector's configuration.

use std::{collections::BTreeMap, net::SocketAddr, path::PathBuf, time::Duration};

use serde_json::Value;

use super::{Grpc, LogLevel, PullPolicy, quantity::Quantity};
use crate::config::{
    LogFormat,
    written::{Field, Section, Written, mapping, sections, take, text, word, words},
};

sections! {
    Root {
        listen: SocketAddr,
        admin_listen: SocketAddr,
        tls: Tls,
        events: bool,
        api: Api,
        sidecar: Sidecar,
    }
    Tls {
        files: Files,
        self_made: SelfMade,
    }
    Files {
        cert: PathBuf,
        key: PathBuf,
    }
    SelfMade {
        secret: String,
        service: String,
        webhook_configuration: String,
        namespace: String,
        validity: Duration,
    }
    Api {
        server: String,
        ca_file: PathBuf,
        token_file: PathBuf,
    }
    Sidecar {
        image: String,
        image_pull_policy: PullPolicy,
        run_as_user: RunAsUser,
        resources: Resources,
        grpc: Grpc,
        grpc_port: u64,
        admin_port: u64,
        log_format: LogFormat,
        log_level: LogLevel,
        store: Store,
        policies: BTreeMap<String, Field<String>>,
    }
    Resources {
        requests: Amounts,
        limits: Amounts,
    }
    Amounts {
        cpu: Quantity,
        memory: Quantity,
    }
    Store {
        url: String,
        secret: String,
        key: String,
        password: SecretKey,
        files_secret: String,
    }
    SecretKey {
        secret: String,
        key: String,
    }
}

/// `None` is the word `none`: the image's own.
pub(super) struct RunAsUser(pub(super) Option<u32>);

impl Written for RunAsUser {
    fn read(value: Value) -> Field<Self> {
        if value == "none" {
            return Ok(Self(None));
        }
        match value.as_u64().and_then(|id| u32::try_from(id).ok()) {
            Some(id) if id > 0 => Ok(Self(Some(id))),
            _ => Err("must be the number of a user other than root, or none".to_owned()),
        }
    }
}

impl Written for Quantity {
    fn read(value: Value) -> Field<Self> {
        match value {
            Value::Number(number) => Quantity::parse(&number.to_string()),
            other => Quantity::parse(&text(other, "a quantity such as 50m or 64Mi")?),
        }
    }
}

words! {
    PullPolicy { "Always" => Always, "IfNotPresent" => IfNotPresent, "Never" => Never, }
    Grpc { "loopback" => Loopback, "socket" => Socket, }
    LogFormat { "text" => Text, "json" => Json, }
    LogLevel {
        "error" => Error,
        "warn" => Warn,
        "info" => Info,
        "debug" => Debug,
        "trace" => Trace,
    }
}
