//! Takes out what was put in.

use serde_json::Value;

use super::{
    annotations::INJECTED,
    patch::VOLUMES,
    pod::{List, name},
    sidecar::{ADDRESS_VARIABLE, CONTAINER},
};

/// Removes the sidecar from a pod, or the template of one, and says whether there was one. Lists
/// that are empty then are removed, too: a list that was there and empty is absent afterwards.
pub fn uninject(pod: &mut Value) -> bool {
    let Some(injected) = pod["metadata"]["annotations"][INJECTED].as_str() else {
        return false;
    };
    // Whatever it was changed to, the names of what was put in are known.
    let injected: Value = serde_json::from_str(injected).unwrap_or_default();
    if let Some(spec) = pod.get_mut("spec") {
        remove_from_spec(spec, &injected);
    }
    remove_annotation(pod);
    true
}

fn remove_from_spec(spec: &mut Value, injected: &Value) {
    let sets_own = |container: &Value| {
        let own = injected["own_address"].as_array();
        own.is_some_and(|own| own.iter().any(|own| own == name(container)))
    };
    remove(spec, "initContainers", |container| {
        container["name"] == CONTAINER
    });
    for list in [List::InitContainers, List::Containers] {
        let containers = spec.get_mut(list.key()).and_then(Value::as_array_mut);
        for container in containers.into_iter().flatten() {
            if !sets_own(container) {
                remove(container, "env", |variable| {
                    variable["name"] == ADDRESS_VARIABLE && variable["value"] == injected["address"]
                });
            }
            remove(container, "volumeMounts", is_ours);
        }
    }
    remove(spec, "volumes", is_ours);
}

fn is_ours(named: &Value) -> bool {
    VOLUMES.iter().any(|volume| named["name"] == *volume)
}

/// Those items of the list at `key` for which `goes` holds, and the list if nothing stays.
fn remove(parent: &mut Value, key: &str, goes: impl Fn(&Value) -> bool) {
    let Some(parent) = parent.as_object_mut() else {
        return;
    };
    let Some(list) = parent.get_mut(key).and_then(Value::as_array_mut) else {
        return;
    };
    let before = list.len();
    list.retain(|item| !goes(item));
    if list.is_empty() && before > 0 {
        parent.remove(key);
    }
}

fn remove_annotation(pod: &mut Value) {
    let Some(metadata) = pod.get_mut("metadata").and_then(Value::as_object_mut) else {
        return;
    };
    if let Some(annotations) = metadata
        .get_mut("annotations")
        .and_then(Value::as_object_mut)
    {
        annotations.remove(INJECTED);
        if annotations.is_empty() {
            metadata.remove("annotations");
        }
    }
    if metadata.is_empty()
        && let Some(pod) = pod.as_object_mut()
    {
        pod.remove("metadata");
    }
}
