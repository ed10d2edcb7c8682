//! A pod, or the template of one, to look at.

use serde_json::{Map, Value};

use super::{
    outcome::{Refusal, Refused},
    sidecar::CONTAINER,
};

/// Where containers stand in a pod's spec.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum List {
    InitContainers,
    Containers,
}

impl List {
    pub(super) const fn key(self) -> &'static str {
        match self {
            List::InitContainers => "initContainers",
            List::Containers => "containers",
        }
    }
}

#[derive(Clone, Copy, Debug)]
pub(super) struct Pod<'v> {
    root: &'v Value,
}

/// As native sidecars: what starts before them is not in the mesh yet. They need no address.
const MESH_PROXIES: [&str; 4] = [
    "istio-proxy",
    "linkerd-proxy",
    "kuma-sidecar",
    "consul-dataplane",
];

impl<'v> Pod<'v> {
    /// Fails where what is looked at later is not what it should be.
    pub(super) fn new(root: &'v Value) -> Result<Self, Refused> {
        let bad = |what: &str| Err(Refused::new(Refusal::BadPod, format!("the pod's {what}")));
        if !root["spec"].is_object() {
            return bad("spec is missing, or no mapping");
        }
        let pod = Self { root };
        if !root["metadata"].is_null() && !root["metadata"].is_object() {
            return bad("metadata is no mapping");
        }
        let annotations = &root["metadata"]["annotations"];
        if !annotations.is_null() && !annotations.is_object() {
            return bad("metadata.annotations is no mapping");
        }
        for key in ["initContainers", "containers", "volumes"] {
            let list = &root["spec"][key];
            let all_mappings = list
                .as_array()
                .is_some_and(|items| items.iter().all(Value::is_object));
            if !all_mappings && !list.is_null() {
                return bad(&format!("spec.{key} is no list of mappings"));
            }
        }
        for (_, _, container) in pod.containers() {
            for key in ["env", "volumeMounts", "ports"] {
                if !container[key].is_null() && !container[key].is_array() {
                    return bad(&format!("container {}: {key} is no list", name(container)));
                }
            }
        }
        if pod.list(List::Containers).is_empty() {
            return bad("spec.containers is empty");
        }
        Ok(pod)
    }

    pub(super) fn value(&self) -> &'v Value {
        self.root
    }

    pub(super) fn annotations(&self) -> Map<String, Value> {
        let annotations = self.root["metadata"]["annotations"].as_object();
        annotations.cloned().unwrap_or_default()
    }

    pub(super) fn list(&self, list: List) -> &'v [Value] {
        let items = self.root["spec"][list.key()].as_array();
        items.map_or(&[], Vec::as_slice)
    }

    /// All of them, as they start.
    pub(super) fn containers(&self) -> impl Iterator<Item = (List, usize, &'v Value)> + use<'v> {
        let of = |list: List| {
            let items = self.list(list).iter().enumerate();
            items.map(move |(index, container)| (list, index, container))
        };
        of(List::InitContainers).chain(of(List::Containers))
    }

    pub(super) fn volumes(&self) -> &'v [Value] {
        let volumes = self.root["spec"]["volumes"].as_array();
        volumes.map_or(&[], Vec::as_slice)
    }

    pub(super) fn has_volume(&self, name: &str) -> bool {
        named(self.volumes(), name)
    }

    /// Of the sidecar that was injected, among the init containers.
    pub(super) fn sidecar_place(&self) -> Option<usize> {
        let containers = self.list(List::InitContainers);
        containers
            .iter()
            .position(|container| container["name"] == CONTAINER)
    }

    pub(super) fn uses_host_network(&self) -> bool {
        self.root["spec"]["hostNetwork"] == true
    }

    pub(super) fn is_for_windows(&self) -> bool {
        let spec = &self.root["spec"];
        spec["os"]["name"] == "windows" || spec["nodeSelector"]["kubernetes.io/os"] == "windows"
    }

    /// Where the sidecar goes among the init containers: first, or next to the last proxy of a mesh,
    /// so that it can be probed and reaches its store through the mesh.
    pub(super) fn place(&self) -> usize {
        let is_native =
            |container: &Value| container["restartPolicy"] == "Always" && is_mesh_proxy(container);
        let last = self.list(List::InitContainers).iter().rposition(is_native);
        last.map_or(0, |index| index + 1)
    }
}

pub(super) fn name(item: &Value) -> &str {
    item["name"].as_str().unwrap_or("without a name")
}

pub(super) fn named(items: &[Value], name: &str) -> bool {
    items.iter().any(|item| item["name"] == name)
}

pub(super) fn is_mesh_proxy(container: &Value) -> bool {
    MESH_PROXIES.iter().any(|proxy| container["name"] == *proxy)
}

/// The items of a list that may be absent.
pub(super) fn items<'v>(parent: &'v Value, key: &str) -> &'v [Value] {
    parent[key].as_array().map_or(&[], Vec::as_slice)
}
