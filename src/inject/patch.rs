//! Whether a pod gets its sidecar, and the patch that gives it one.

use json_patch::{AddOperation, Patch, PatchOperation, jsonptr::PointerBuf};
use serde_json::{Value, json};

use super::{
    annotations::{self, INJECTED, Wanted, Wish},
    outcome::{Injection, Outcome, Refusal, Refused, Skip},
    pod::{List, Pod, is_mesh_proxy, items, name, named},
    sidecar::{self, ADDRESS_VARIABLE, CONTAINER, FILES_VOLUME, SOCKET_FOLDER, SOCKET_VOLUME},
};
use crate::config::injector::{DEFAULT_POLICY, Grpc, PolicyText, Sidecar, WithoutStore};

const MIRROR: &str = "kubernetes.io/config.mirror";

/// Which pods get a sidecar.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ask {
    /// Those whose annotation says so.
    Annotated,
    /// Those, and pods that say nothing about it.
    All,
}

/// What becomes of `pod`, which may also be the template of one.
pub fn inject(pod: &Value, configured: &Sidecar, ask: Ask) -> Outcome {
    match decide(pod, configured, ask) {
        Ok(Ok(injection)) => Outcome::Injected(injection),
        Ok(Err(skip)) => Outcome::Skipped(skip),
        Err(refused) => Outcome::Refused(refused),
    }
}

fn decide(pod: &Value, configured: &Sidecar, ask: Ask) -> Result<Result<Injection, Skip>, Refused> {
    let pod = Pod::new(pod)?;
    let annotations = pod.annotations();
    match (annotations::wish(&annotations)?, ask) {
        (Wish::Disabled, _) => return Ok(Err(Skip::AnnotationDisabled)),
        (Wish::Unsaid, Ask::Annotated) => return Ok(Err(Skip::AnnotationAbsent)),
        (Wish::Unsaid, Ask::All) | (Wish::Enabled, _) => {}
    }
    if let Some(injected) = annotations.get(INJECTED).and_then(Value::as_str)
        && let Some(place) = pod.sidecar_place()
    {
        return Ok(complete(&pod, injected, place));
    }
    let skips = [
        (annotations.contains_key(MIRROR), Skip::MirrorPod),
        (pod.uses_host_network(), Skip::HostNetwork),
        (pod.is_for_windows(), Skip::Windows),
    ];
    if let Some((_, skip)) = skips.into_iter().find(|(holds, _)| *holds) {
        return Ok(Err(skip));
    }
    let Wanted {
        sidecar: mut wanted,
        policy: policy_name,
        names_store,
    } = annotations::apply(&annotations, configured)?;
    let policy = policy(configured, policy_name.as_deref())?;
    let warnings = choose_store(&mut wanted, names_store, policy)?;
    refuse_taken(&pod, &wanted)?;
    let patch = patch(&pod, &wanted, policy.map(|policy| policy.text.as_str()));
    Ok(Ok(Injection { patch, warnings }))
}

/// `None`: the namespaces that are built in.
fn policy<'s>(
    configured: &'s Sidecar,
    named: Option<&str>,
) -> Result<Option<&'s PolicyText>, Refused> {
    let name = named.unwrap_or(DEFAULT_POLICY);
    let policy = configured.policies.get(name);
    if policy.is_some() || (named.is_none() && configured.policies.is_empty()) {
        return Ok(policy);
    }
    let known: Vec<&str> = configured.policies.keys().map(String::as_str).collect();
    let known = match known.as_slice() {
        [] => "none but the namespaces that are built in: leave it out".to_owned(),
        known => known.join(", "),
    };
    let shown: String = name.chars().take(64).collect();
    Err(Refused::new(
        Refusal::UnknownPolicy,
        format!("dedupd.io/config: there is no policy {shown:?}; there are {known}"),
    ))
}

/// The annotation's, or the policy's own, or the one that is configured for all.
fn choose_store(
    wanted: &mut Sidecar,
    is_annotated: bool,
    policy: Option<&PolicyText>,
) -> Result<Vec<String>, Refused> {
    match policy.map(|policy| &policy.without_store) {
        Some(WithoutStore::OwnStore) => {
            if !is_annotated {
                wanted.store.url = None;
            }
        }
        None | Some(WithoutStore::InMemory) => {
            if wanted.store.url.is_none() {
                return Ok(vec![
                    "dedupd: no store is named: this pod decides alone, in its memory; name a Secret that holds the URL of a Redis in dedupd.io/store-secret".to_owned(),
                ]);
            }
        }
        Some(WithoutStore::Refused(why)) => {
            if wanted.store.url.is_none() {
                return Err(Refused::new(
                    Refusal::StoreNeeded,
                    format!(
                        "the policy needs a store: name a Secret that holds its URL in dedupd.io/store-secret ({why})"
                    ),
                ));
            }
        }
    }
    Ok(Vec::new())
}

/// What the sidecar brings must not be there already.
fn refuse_taken(pod: &Pod<'_>, wanted: &Sidecar) -> Result<(), Refused> {
    let taken = |message: String| Err(Refused::new(Refusal::NameTaken, message));
    let brings: Vec<Value> = sidecar::volumes(wanted);
    for volume in pod.volumes() {
        if brings.iter().any(|ours| ours["name"] == volume["name"]) {
            return taken(format!("the pod has a volume {}: rename it", name(volume)));
        }
    }
    for (_, _, container) in pod.containers() {
        if container["name"] == CONTAINER {
            return taken(format!(
                "the pod has a container {CONTAINER} that was not injected: rename it, or remove it"
            ));
        }
        let mounts = items(container, "volumeMounts");
        if wanted.grpc == Grpc::Socket
            && mounts
                .iter()
                .any(|mount| mount["mountPath"] == SOCKET_FOLDER)
        {
            return taken(format!(
                "container {} mounts something at {SOCKET_FOLDER}, where the socket goes: move it, or set dedupd.io/grpc: loopback",
                name(container)
            ));
        }
        for port in items(container, "ports") {
            let port_is = |ours: u16| port["containerPort"].as_u64() == Some(u64::from(ours));
            let annotation = if port_is(wanted.admin_port) {
                "dedupd.io/admin-port"
            } else if wanted.grpc == Grpc::Loopback && port_is(wanted.grpc_port) {
                "dedupd.io/grpc-port"
            } else {
                continue;
            };
            return Err(Refused::new(
                Refusal::PortTaken,
                format!(
                    "container {} has port {}, which dedupd would listen on: choose another one in {annotation}",
                    name(container),
                    port["containerPort"]
                ),
            ));
        }
    }
    Ok(())
}

/// What containers lack that another injector has put into the pod after us.
fn complete(pod: &Pod<'_>, injected: &str, place: usize) -> Result<Injection, Skip> {
    let injected: Value = serde_json::from_str(injected).unwrap_or_default();
    let Some(address) = injected["address"].as_str() else {
        return Err(Skip::AlreadyInjected);
    };
    let has_socket = pod.has_volume(SOCKET_VOLUME);
    let mut operations = Operations::default();
    operations.reach(pod, place + 1, address, has_socket);
    if operations.0.is_empty() {
        return Err(Skip::AlreadyInjected);
    }
    Ok(Injection {
        patch: Patch(operations.0),
        warnings: Vec::new(),
    })
}

fn patch(pod: &Pod<'_>, wanted: &Sidecar, policy: Option<&str>) -> Patch {
    let mut operations = Operations::default();
    let address = sidecar::address(wanted);
    let place = pod.place();
    // Before the sidecar is inserted, so that indices are those of the pod as it came.
    let own_address = operations.reach(pod, place, &address, wanted.grpc == Grpc::Socket);
    let spec = ["spec".to_owned()];
    let volumes = sidecar::volumes(wanted);
    match pod.volumes() {
        [] if !volumes.is_empty() => operations.add(&spec, &["volumes"], volumes.into()),
        _ => volumes
            .into_iter()
            .for_each(|volume| operations.add(&spec, &["volumes", "-"], volume)),
    }
    let containers = &pod.value()["spec"]["initContainers"];
    let container = sidecar::container(wanted, policy);
    operations.insert(
        &spec,
        "initContainers",
        containers,
        &place.to_string(),
        container,
    );

    let mut injected = json!({ "address": address, "version": env!("CARGO_PKG_VERSION") });
    if !own_address.is_empty() {
        injected["own_address"] = own_address.into();
    }
    let injected = Value::from(injected.to_string());
    let metadata = &pod.value()["metadata"];
    if !metadata.is_object() {
        operations.add(
            &[],
            &["metadata"],
            json!({ "annotations": { INJECTED: injected } }),
        );
    } else if !metadata["annotations"].is_object() {
        operations.add(
            &[],
            &["metadata", "annotations"],
            json!({ INJECTED: injected }),
        );
    } else {
        operations.add(&[], &["metadata", "annotations", INJECTED], injected);
    }
    Patch(operations.0)
}

#[derive(Default)]
struct Operations(Vec<PatchOperation>);

impl Operations {
    /// Lets all containers but the first `skipped` init containers reach the sidecar at `address`.
    /// Returns all that say themselves where it is.
    fn reach<'v>(
        &mut self,
        pod: &Pod<'v>,
        skipped: usize,
        address: &str,
        over_socket: bool,
    ) -> Vec<&'v str> {
        let mut own_address = Vec::new();
        for (list, index, container) in pod.containers() {
            let has_own = named(items(container, "env"), ADDRESS_VARIABLE);
            if has_own {
                own_address.push(name(container));
            }
            if (list == List::InitContainers && index < skipped) || is_mesh_proxy(container) {
                continue;
            }
            let path = ["spec", list.key(), &index.to_string()].map(str::to_owned);
            if !has_own {
                let variable = json!({ "name": ADDRESS_VARIABLE, "value": address });
                // First, so that those behind it may refer to it.
                self.insert(&path, "env", &container["env"], "0", variable);
            }
            let mounts = &container["volumeMounts"];
            if over_socket && !named(items(container, "volumeMounts"), SOCKET_VOLUME) {
                self.insert(&path, "volumeMounts", mounts, "-", sidecar::app_mount());
            }
        }
        own_address
    }

    fn add(&mut self, parent: &[String], path: &[&str], value: Value) {
        let tokens = parent
            .iter()
            .map(String::as_str)
            .chain(path.iter().copied());
        self.0.push(PatchOperation::Add(AddOperation {
            path: PointerBuf::from_tokens(tokens),
            value,
        }));
    }

    /// Into `list` (the value at `key` of `parent`) at `place`, or into a new list.
    fn insert(&mut self, parent: &[String], key: &str, list: &Value, place: &str, item: Value) {
        match list.as_array().map(Vec::is_empty) {
            Some(false) => self.add(parent, &[key, place], item),
            Some(true) | None => self.add(parent, &[key], json!([item])),
        }
    }
}

/// Names of volumes that injection makes.
pub(super) const VOLUMES: [&str; 2] = [SOCKET_VOLUME, FILES_VOLUME];
