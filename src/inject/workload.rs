//! Which Kubernetes objects hold pods, and where.

use serde_json::Value;

/// The pod in an object of this group and kind, as a JSON pointer.
fn pod_path(object: &Value) -> Option<&'static str> {
    let api_version = object["apiVersion"].as_str()?;
    let group = api_version.split_once('/').map_or("", |(group, _)| group);
    Some(match (group, object["kind"].as_str()?) {
        ("", "Pod") => "",
        ("", "ReplicationController")
        | ("apps", "DaemonSet" | "Deployment" | "ReplicaSet" | "StatefulSet")
        | ("batch", "Job") => "/spec/template",
        ("", "PodTemplate") => "/template",
        ("batch", "CronJob") => "/spec/jobTemplate/spec/template",
        _ => return None,
    })
}

/// An object that holds a pod.
#[derive(Debug)]
pub struct Workload<'v> {
    /// `Deployment/shop/web`: kind, namespace where it is said, name.
    pub title: String,
    /// The pod, or its template.
    pub pod: &'v mut Value,
}

/// The workloads in a document: itself, or the items of a List.
pub fn workloads(document: &mut Value) -> Vec<Workload<'_>> {
    if document["apiVersion"] == "v1" && document["kind"] == "List" {
        let items = document["items"].as_array_mut();
        return items.into_iter().flatten().filter_map(workload).collect();
    }
    workload(document).into_iter().collect()
}

fn workload(object: &mut Value) -> Option<Workload<'_>> {
    let path = pod_path(object)?;
    let metadata = &object["metadata"];
    let name = metadata["name"]
        .as_str()
        .or(metadata["generateName"].as_str())
        .unwrap_or("without a name");
    let kind = object["kind"].as_str().unwrap_or_default();
    let title = match metadata["namespace"].as_str() {
        Some(namespace) => format!("{kind}/{namespace}/{name}"),
        None => format!("{kind}/{name}"),
    };
    let pod = object.pointer_mut(path)?;
    Some(Workload { title, pod })
}
