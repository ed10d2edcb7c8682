//! The container that is put into pods.

use serde_json::{Map, Value, json};

use crate::config::{
    LogFormat,
    injector::{Grpc, Resources, SecretKey, Sidecar, StoreSource},
};

pub(super) const CONTAINER: &str = "dedupd";
pub(super) const ADDRESS_VARIABLE: &str = "DEDUPD_ADDRESS";
pub(super) const SOCKET_VOLUME: &str = "dedupd-socket";
pub(super) const SOCKET_FOLDER: &str = "/run/dedupd";
pub(super) const FILES_VOLUME: &str = "dedupd-store";
pub(super) const FILES_FOLDER: &str = "/etc/dedupd/store";
const SOCKET_FILE: &str = "/run/dedupd/dedupd.sock";

/// What an app calls.
pub(super) fn address(sidecar: &Sidecar) -> String {
    match sidecar.grpc {
        Grpc::Loopback => format!("127.0.0.1:{}", sidecar.grpc_port),
        Grpc::Socket => format!("unix:{SOCKET_FILE}"),
    }
}

pub(super) fn container(sidecar: &Sidecar, policy: Option<&str>) -> Value {
    let mut container = json!({
        "name": CONTAINER,
        "image": sidecar.image,
        "args": ["serve"],
        "restartPolicy": "Always",
        "env": environment(sidecar, policy),
        "ports": [{ "name": "dedupd-admin", "containerPort": sidecar.admin_port, "protocol": "TCP" }],
        // Not over the network, which a mesh's proxy may hold until it has started itself.
        "startupProbe": {
            "exec": { "command": ["dedupd", "probe"] },
            "periodSeconds": 1,
            "timeoutSeconds": 5,
            "failureThreshold": 120,
        },
        "livenessProbe": {
            "httpGet": { "path": "/livez", "port": sidecar.admin_port },
            "periodSeconds": 10,
            "timeoutSeconds": 5,
            "failureThreshold": 6,
        },
        "readinessProbe": {
            "httpGet": { "path": "/readyz", "port": sidecar.admin_port },
            "periodSeconds": 3,
            "timeoutSeconds": 3,
        },
        "resources": resources(&sidecar.resources),
        "securityContext": security_context(sidecar.run_as_user),
        "terminationMessagePolicy": "FallbackToLogsOnError",
    });
    if let Some(policy) = sidecar.image_pull_policy {
        container["imagePullPolicy"] = policy.name().into();
    }
    let mut mounts = Vec::new();
    if sidecar.grpc == Grpc::Socket {
        mounts.push(json!({ "name": SOCKET_VOLUME, "mountPath": SOCKET_FOLDER }));
    }
    if sidecar.store.files_secret.is_some() {
        mounts.push(json!({ "name": FILES_VOLUME, "mountPath": FILES_FOLDER, "readOnly": true }));
    }
    if !mounts.is_empty() {
        container["volumeMounts"] = mounts.into();
    }
    container
}

/// The volumes that it needs.
pub(super) fn volumes(sidecar: &Sidecar) -> Vec<Value> {
    let mut volumes = Vec::new();
    if sidecar.grpc == Grpc::Socket {
        // In memory: what is on the node's disk keeps an autoscaler from removing the node.
        volumes.push(json!({
            "name": SOCKET_VOLUME,
            "emptyDir": { "medium": "Memory", "sizeLimit": "1Mi" },
        }));
    }
    if let Some(secret) = &sidecar.store.files_secret {
        volumes.push(json!({ "name": FILES_VOLUME, "secret": { "secretName": secret } }));
    }
    volumes
}

/// The app's way to the socket; connecting needs no writable mount.
pub(super) fn app_mount() -> Value {
    json!({ "name": SOCKET_VOLUME, "mountPath": SOCKET_FOLDER, "readOnly": true })
}

fn environment(sidecar: &Sidecar, policy: Option<&str>) -> Value {
    let mut variables = Vec::new();
    let mut text = |name: &str, value: &str| {
        // Kubernetes replaces $(NAME) and halves $$.
        variables.push(json!({ "name": name, "value": value.replace('$', "$$") }));
    };
    if let Some(policy) = policy {
        text("DEDUPD_CONFIG_INLINE", policy);
    }
    match sidecar.grpc {
        Grpc::Loopback => text("DEDUPD_GRPC_LISTEN", &address(sidecar)),
        Grpc::Socket => {
            text("DEDUPD_GRPC_LISTEN", &address(sidecar));
            // The users of the pod's containers differ; who mounts the volume may connect.
            text("DEDUPD_GRPC_SOCKET_MODE", "0666");
        }
    }
    text(
        "DEDUPD_ADMIN_LISTEN",
        &format!("[::]:{}", sidecar.admin_port),
    );
    let format = match sidecar.log_format {
        LogFormat::Text => "text",
        LogFormat::Json => "json",
    };
    text("DEDUPD_LOG_FORMAT", format);
    text("RUST_LOG", sidecar.log_level.name());
    if let Some(StoreSource::Url(url)) = &sidecar.store.url {
        text("DEDUPD_STORE_URL", url);
    }
    if let Some(StoreSource::Secret(key)) = &sidecar.store.url {
        variables.push(from_secret("DEDUPD_STORE_URL", key));
    }
    if let Some(key) = &sidecar.store.password {
        variables.push(from_secret("DEDUPD_STORE_PASSWORD", key));
    }
    variables.into()
}

fn from_secret(name: &str, key: &SecretKey) -> Value {
    let reference = json!({ "name": key.secret, "key": key.key });
    json!({ "name": name, "valueFrom": { "secretKeyRef": reference } })
}

fn resources(resources: &Resources) -> Value {
    let mut all = Map::new();
    let amounts = [
        ("requests", "cpu", &resources.cpu_request),
        ("requests", "memory", &resources.memory_request),
        ("limits", "cpu", &resources.cpu_limit),
        ("limits", "memory", &resources.memory_limit),
    ];
    for (kind, what, amount) in amounts {
        if let Some(amount) = amount {
            let kind = all.entry(kind).or_insert_with(|| json!({}));
            kind[what] = amount.as_str().into();
        }
    }
    all.into()
}

/// What the Pod Security Standard "restricted" asks for, and a read-only root.
fn security_context(run_as_user: Option<u32>) -> Value {
    let mut context = json!({
        "allowPrivilegeEscalation": false,
        "capabilities": { "drop": ["ALL"] },
        "readOnlyRootFilesystem": true,
        "runAsNonRoot": true,
        "seccompProfile": { "type": "RuntimeDefault" },
    });
    if let Some(user) = run_as_user {
        context["runAsUser"] = user.into();
        context["runAsGroup"] = user.into();
    }
    context
}
