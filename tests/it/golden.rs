//! Every golden vector through `Explain`: the running service has the keys of the reference
//! libraries.

use std::fs;

use dedupd::grpc::proto::{
    Event, Transition, TransitionKind,
    event::{Identity, Time},
};
use serde_json::{Map, Value, json};

use crate::client::{
    Kept, World,
    events::{event, keyed, ping, ping_at},
};

/// An event under a namespace, and what `Explain` must say of it.
struct Vector {
    /// Without its name.
    namespace: Value,
    event: Event,
    keys: Value,
    material: String,
    /// Where the vector tells.
    cell: Option<String>,
}

/// All vectors go to one service; those with equal namespaces share one.
async fn check_vectors(file: &str, to_vector: impl Fn(&Value) -> Vector) {
    let path = format!("{}/tests/data/golden/{file}", env!("CARGO_MANIFEST_DIR"));
    let text = fs::read_to_string(path).expect("the vectors");
    let vectors: Vec<(String, Vector)> = text
        .lines()
        .map(|line| {
            (
                line.to_owned(),
                to_vector(&serde_json::from_str(line).expect("JSON")),
            )
        })
        .collect();
    let mut namespaces: Vec<&Value> = vectors
        .iter()
        .map(|(_, vector)| &vector.namespace)
        .collect();
    namespaces.sort_unstable_by_key(|namespace| namespace.to_string());
    namespaces.dedup();
    let named = |index: usize| format!("n{index}");
    let section: Map<String, Value> = namespaces
        .iter()
        .enumerate()
        .map(|(index, namespace)| (named(index), (*namespace).clone()))
        .collect();
    let config = format!("namespaces: {}\n", Value::Object(section));
    let world = World::start(Kept::InMemory, &config).await;
    for (line, vector) in &vectors {
        let index = namespaces
            .iter()
            .position(|namespace| **namespace == vector.namespace);
        let namespace = named(index.expect("every namespace is served"));
        let explained = world.explain(&namespace, &vector.event).await;
        assert_eq!(json!(explained.keys), vector.keys, "{line}");
        assert_eq!(explained.material, vector.material, "{line}");
        if let Some(cell) = &vector.cell {
            assert_eq!(&explained.cell, cell, "{line}");
        }
    }
}

fn text(value: &Value) -> &str {
    value.as_str().expect("text")
}

fn number(value: &Value) -> i64 {
    value.as_i64().expect("a whole number")
}

fn degrees(vector: &Value) -> Option<(f64, f64)> {
    Some((vector["latitude"].as_f64()?, vector["longitude"].as_f64()?))
}

fn nanoseconds(value: &Value) -> String {
    format!("{value}ns")
}

fn escaped(id: &Value) -> String {
    text(id).replace('\\', r"\\").replace('|', r"\|")
}

/// What every vector's namespace says beside its kind and window.
fn namespace(kind: &str, window: Value, rest: Value) -> Value {
    let mut namespace = json!({
        "accepts": [kind],
        "window": window,
        "ttl": "30d",
        "failure_mode": "closed",
        "time": { "max_future": "off", "max_age": "off" },
    });
    let fields = namespace.as_object_mut().expect("an object");
    fields.extend(rest.as_object().expect("an object").clone());
    namespace
}

fn crossing(vector: &Value, nanos: i64) -> Event {
    let kind = format!("TRANSITION_KIND_{}", text(&vector["kind"]));
    let kind = TransitionKind::from_str_name(&kind).expect("a kind");
    let epoch = vector.get("sequence_epoch").map_or(0, number);
    let transition = Transition {
        device_id: text(&vector["device_id"]).to_owned(),
        fence_id: text(&vector["fence_id"]).to_owned(),
        kind: kind.into(),
        sequence: vector
            .get("sequence")
            .map(|number| number.as_u64().expect("64 bits")),
        sequence_epoch: u32::try_from(epoch).expect("32 bits"),
    };
    event(Identity::Transition(transition), nanos)
}

#[tokio::test(flavor = "multi_thread")]
async fn golden_transition_keys_over_grpc() {
    check_vectors("transition_keys.jsonl", |vector| {
        let window = json!({
            "tumbling": nanoseconds(&vector["width_ns"]),
            "guard": nanoseconds(&vector["guard_ns"]),
        });
        let kind = text(&vector["kind"]);
        let letter = if kind == "EXIT" { "X" } else { &kind[..1] };
        let (device, fence) = (escaped(&vector["device_id"]), escaped(&vector["fence_id"]));
        Vector {
            namespace: namespace(
                "transition",
                window,
                json!({ "key": { "prefix": "idem:" } }),
            ),
            event: crossing(vector, number(&vector["event_time_unix_nanos"])),
            keys: vector["keys"].clone(),
            material: format!("{device}|{fence}|{letter}|{}", vector["bucket"]),
            cell: None,
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn golden_ping_keys_over_grpc() {
    check_vectors("ping_keys.jsonl", |vector| {
        let window = json!({ "tumbling": format!("{}s", vector["width_s"]) });
        let rest = json!({
            "place": { "resolution": vector["h3_resolution"] },
            "key": { "prefix": "dedup:" },
        });
        let (asset, cell) = (&vector["asset_id"], text(&vector["cell"]));
        let nanos = number(&vector["event_time_unix_nanos"]);
        let position = degrees(vector).expect("a position");
        Vector {
            namespace: namespace("ping", window, rest),
            event: ping_at(text(asset), nanos, position),
            keys: json!([vector["key"]]),
            material: format!("{}|{}|{cell}", escaped(asset), vector["bucket_start_s"]),
            cell: Some(cell.to_owned()),
        }
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn golden_variant_keys_over_grpc() {
    check_vectors("variant_keys.jsonl", |vector| {
        let (rules, of) = (&vector["namespace"], &vector["event"]);
        let nanos = number(&of["event_time_unix_nanos"]);
        let (kind, event) = if let Some(transition) = of.get("transition") {
            ("transition", crossing(transition, nanos))
        } else if let Some(of_ping) = of.get("ping") {
            let asset = text(&of_ping["asset_id"]);
            let at = |position| ping_at(asset, nanos, position);
            (
                "ping",
                degrees(of_ping).map_or_else(|| ping(asset, nanos), at),
            )
        } else {
            let event = Event {
                time: Some(Time::OccurredAtUnixNanos(nanos)),
                ..keyed(text(&of["keyed"]["event_id"]))
            };
            ("keyed", event)
        };
        let place = Some(&rules["place"]).filter(|place| !place.is_null());
        let default_prefix = json!(format!("{}:", text(&rules["name"])));
        let prefix = Some(&rules["prefix"]).filter(|prefix| !prefix.is_null());
        let rest = json!({
            "place": place.unwrap_or(&json!("none")),
            "key": {
                "prefix": prefix.unwrap_or(&default_prefix),
                "layout": rules["layout"],
                "digest": rules["digest"],
            },
        });
        Vector {
            namespace: namespace(kind, window(&rules["window"]), rest),
            event,
            keys: vector["keys"].clone(),
            material: text(&vector["material"]).to_owned(),
            cell: None,
        }
    })
    .await;
}

fn window(written: &Value) -> Value {
    let span = |key: &str| written.get(key).map(nanoseconds);
    if let Some(width) = span("sliding_ns") {
        json!({ "sliding": width })
    } else if let Some(gap) = span("session_ns") {
        json!({ "session": gap })
    } else if let Some(width) = span("tumbling_ns") {
        json!({ "tumbling": width, "guard": span("guard_ns") })
    } else {
        json!("none")
    }
}
