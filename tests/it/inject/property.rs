//! What holds for any pod: injecting twice is injecting once, and undone it is as it was.

use dedupd::{
    config::injector::{self, Sidecar},
    inject::{Ask, Outcome, Skip, inject, stream, uninject},
};
use rand::{Rng, SeedableRng, seq::IndexedRandom};
use rand_chacha::ChaCha8Rng;
use serde_json::{Value, json};

use crate::property::seeds::{Playing, seeds};

const PODS: u64 = 500;

/// Texts that a reader of YAML could take for something else.
const TEXTS: [&str; 24] = [
    "",
    " ",
    "yes",
    "No",
    "on",
    "n",
    "~",
    "null",
    "012",
    "0x1f",
    "1e3",
    "1_000",
    "22:22",
    "2001-01-01",
    ".5",
    "-",
    "- a",
    "a: b # c",
    "<<",
    "=",
    "line\n\n\ttab \n",
    "\n lead",
    "é\u{2028}\u{a0}",
    "a long text of many words, a long text of many words, a long text of  many words ",
];

fn text(rng: &mut ChaCha8Rng) -> &'static str {
    TEXTS.choose(rng).expect("there are some")
}

fn container(rng: &mut ChaCha8Rng, name: &str) -> Value {
    let mut container = json!({ "name": name, "image": "registry.example.com/app:1" });
    if rng.random_bool(0.6) {
        let mut env: Vec<Value> = (0..rng.random_range(1..4))
            .map(|number| json!({ "name": format!("V{number}"), "value": text(rng) }))
            .collect();
        if rng.random_bool(0.2) {
            let addresses = [
                "127.0.0.1:50061",
                "unix:/run/dedupd/dedupd.sock",
                "elsewhere:1",
            ];
            let own = json!({ "name": "DEDUPD_ADDRESS", "value": addresses.choose(rng) });
            env.insert(rng.random_range(0..=env.len()), own);
        }
        container["env"] = env.into();
    }
    if rng.random_bool(0.4) {
        container["volumeMounts"] = json!([{ "name": "scratch", "mountPath": "/tmp" }]);
    }
    if rng.random_bool(0.3) {
        container["ports"] = json!([{ "containerPort": rng.random_range(1..1024) }]);
    }
    if rng.random_bool(0.3) {
        container["unknownField"] = json!({ "kept": [1.5, null, true, text(rng)] });
    }
    container
}

fn pod(rng: &mut ChaCha8Rng) -> Value {
    let containers: Vec<Value> = (0..rng.random_range(1..4))
        .map(|number| container(rng, &format!("app-{number}")))
        .collect();
    let mut pod = json!({
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": { "annotations": { "dedupd.io/inject": "enabled" } },
        "spec": { "containers": containers },
    });
    if rng.random_bool(0.5) {
        let mut init: Vec<Value> = (0..rng.random_range(1..4))
            .map(|number| container(rng, &format!("init-{number}")))
            .collect();
        if rng.random_bool(0.4) {
            let names = ["istio-proxy", "linkerd-proxy"];
            let name = *names.choose(rng).expect("there are some");
            let mut proxy = container(rng, name);
            if rng.random_bool(0.7) {
                proxy["restartPolicy"] = json!("Always");
            }
            init.insert(rng.random_range(0..=init.len()), proxy);
        }
        pod["spec"]["initContainers"] = init.into();
    }
    if rng.random_bool(0.5) {
        pod["spec"]["volumes"] = json!([{ "name": "scratch", "emptyDir": {} }]);
    }
    let annotations = [
        ("dedupd.io/grpc", "socket"),
        ("dedupd.io/grpc-port", "50070"),
        ("dedupd.io/store-secret", "redis"),
        ("dedupd.io/cpu-limit", "2"),
        ("example.com/note", text(rng)),
    ];
    for (name, value) in annotations {
        if rng.random_bool(0.3) {
            pod["metadata"]["annotations"][name] = json!(value);
        }
    }
    if rng.random_bool(0.1) {
        pod["metadata"] = Value::Null;
    }
    pod
}

fn sidecar(rng: &mut ChaCha8Rng) -> Sidecar {
    let texts = [
        "",
        "sidecar: { grpc: socket, store: { url: 'redis://redis', files_secret: redis-tls } }",
        "sidecar: { run_as_user: none, resources: {}, store: { secret: redis, password: { secret: redis } } }",
    ];
    let text = texts.choose(rng).expect("there are some");
    injector::parse("--injector-config", text)
        .expect("a good configuration")
        .sidecar
}

fn injected(pod: &Value, sidecar: &Sidecar) -> Value {
    let mut patched = pod.clone();
    match inject(pod, sidecar, Ask::All) {
        Outcome::Injected(injection) => {
            json_patch::patch(&mut patched, &injection.patch).expect("the patch fits");
        }
        outcome => panic!("{outcome:?}: {pod:#}"),
    }
    patched
}

#[test]
fn twice_is_once_and_undone_it_is_as_it_was() {
    for seed in seeds(PODS) {
        let _playing = Playing {
            test: "inject::property::twice_is_once_and_undone_it_is_as_it_was",
            seed,
        };
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let (sidecar, pod) = (sidecar(&mut rng), pod(&mut rng));
        // It says nothing about a sidecar where there was no metadata at all.
        let mut original = pod.clone();
        if original["metadata"].is_null() {
            original
                .as_object_mut()
                .expect("a mapping")
                .remove("metadata");
        }
        let mut patched = injected(&original, &sidecar);
        let again = inject(&patched, &sidecar, Ask::All);
        assert!(
            matches!(again, Outcome::Skipped(Skip::AlreadyInjected)),
            "{again:?}"
        );
        check_reached(&patched);
        check_stream(&patched);
        assert!(uninject(&mut patched));
        assert_eq!(patched, original);
        assert!(!uninject(&mut patched));
        assert_eq!(patched, original);
    }
}

/// Everything that starts after the sidecar knows where it is, but for proxies of meshes; and the
/// sidecar stands before everything but what a mesh needs.
fn check_reached(patched: &Value) {
    let init = patched["spec"]["initContainers"].as_array().expect("ours");
    let place = init
        .iter()
        .position(|container| container["name"] == "dedupd")
        .expect("ours");
    let is_proxy = |container: &Value| {
        let name = container["name"].as_str().expect("a name");
        name.ends_with("-proxy")
    };
    if place > 0 {
        let before = &init[place - 1];
        assert!(is_proxy(before) && before["restartPolicy"] == "Always");
    }
    let containers = patched["spec"]["containers"].as_array().expect("some");
    for container in init[place + 1..].iter().chain(containers) {
        let env = container["env"].as_array().map_or(&[][..], Vec::as_slice);
        let knows = env
            .iter()
            .any(|variable| variable["name"] == "DEDUPD_ADDRESS");
        assert!(knows || is_proxy(container), "{container}");
    }
}

/// Written as YAML and read again it is the same.
fn check_stream(patched: &Value) {
    let written = stream::rewrite("a: b\n", |document| {
        document.clone_from(patched);
        true
    });
    let written = written.expect("a document");
    let mut read = Value::Null;
    let unchanged = stream::rewrite(&written, |document| {
        read = document.clone();
        false
    });
    assert_eq!(unchanged.expect("a document"), written);
    assert_eq!(read, *patched, "{written}");
}

#[test]
fn containers_that_come_later_are_reached_too() {
    let config = injector::parse("--injector-config", "sidecar: { grpc: socket }");
    let sidecar = config.expect("a good configuration").sidecar;
    for seed in seeds(100) {
        let _playing = Playing {
            test: "inject::property::containers_that_come_later_are_reached_too",
            seed,
        };
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let mut pod = pod(&mut rng);
        pod["metadata"] = json!({ "annotations": { "dedupd.io/inject": "enabled" } });
        let mut whole = pod.clone();
        for list in ["containers", "initContainers"] {
            let late = container(&mut rng, &format!("late-{list}"));
            match whole["spec"][list].as_array_mut() {
                Some(containers) => containers.push(late),
                None => whole["spec"][list] = json!([late]),
            }
        }
        let mut patched = injected(&pod, &sidecar);
        for list in ["containers", "initContainers"] {
            let late = whole["spec"][list].as_array().and_then(|list| list.last());
            let late = late.expect("the late one").clone();
            let containers = patched["spec"][list].as_array_mut();
            containers.expect("some").push(late);
        }
        let patched = injected(&patched, &sidecar);
        assert_eq!(patched["spec"], injected(&whole, &sidecar)["spec"]);
    }
}
