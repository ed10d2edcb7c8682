//! Kubernetes Events: why a workload has no sidecar, where its owner looks first.
//!
//! The pod of a review does not exist yet; an Event is about what creates it (a ReplicaSet, a Job).
//! Who creates a pod by hand reads the answer itself. One about the same thing is sent once in a
//! while, and when there are too many they are dropped: they are a courtesy.

use std::{
    collections::{HashMap, hash_map::Entry},
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use serde_json::{Value, json};
use tokio::sync::mpsc;

use super::{
    api::{Api, Write},
    metrics::{Counts, Told},
    review::{Review, skipped},
};
use crate::{clock::Clock, inject::Outcome};

const MAX_QUEUED: usize = 64;
/// A ReplicaSet tries again every few seconds to minutes, for days.
const PAUSE: Duration = Duration::from_secs(600);
/// What is remembered of the pause; beyond it Events are dropped.
const MAX_REMEMBERED: usize = 1024;
/// Kubernetes takes 1,024.
const MAX_NOTE_BYTES: usize = 1000;

#[derive(Debug)]
pub struct Events {
    queue: Option<mpsc::Sender<Event>>,
    enabled: AtomicBool,
    counts: Arc<Counts>,
}

#[derive(Debug)]
pub struct Event {
    namespace: String,
    /// `apiVersion`, `kind`, `name`, `uid`.
    owner: Value,
    reason: &'static str,
    note: String,
}

impl Events {
    /// Without a queue nothing is ever sent.
    pub fn none(counts: Arc<Counts>) -> Self {
        Self {
            queue: None,
            enabled: AtomicBool::new(false),
            counts,
        }
    }

    /// And the queue that [`send`] empties.
    pub fn queue(counts: Arc<Counts>) -> (Self, mpsc::Receiver<Event>) {
        let (sender, receiver) = mpsc::channel(MAX_QUEUED);
        let events = Self {
            queue: Some(sender),
            enabled: AtomicBool::new(true),
            counts,
        };
        (events, receiver)
    }

    pub fn enable(&self, enabled: bool) {
        self.enabled.store(enabled, Ordering::Relaxed);
    }

    pub(super) fn tell(&self, review: &Review, outcome: &Outcome) {
        let Some(queue) = &self.queue else { return };
        if review.dry_run || !self.enabled.load(Ordering::Relaxed) {
            return;
        }
        let (reason, note) = match outcome {
            Outcome::Skipped(skip) if skip.is_surprising() => (skip.name(), skipped(*skip)),
            Outcome::Refused(refused) => (refused.reason.name(), refused.to_string()),
            Outcome::Injected(_) | Outcome::Skipped(_) => return,
        };
        let owners = review.object["metadata"]["ownerReferences"].as_array();
        let owner = owners
            .into_iter()
            .flatten()
            .find(|owner| owner["controller"] == true);
        let Some(owner) = owner else { return };
        let event = Event {
            namespace: review.namespace.clone(),
            owner: owner.clone(),
            reason,
            note,
        };
        if queue.try_send(event).is_err() {
            self.counts.told(Told::Dropped);
        }
    }
}

/// Sends what is queued, one after the other, for ever.
pub async fn send(mut queue: mpsc::Receiver<Event>, api: Api, clock: Clock, counts: Arc<Counts>) {
    let mut sent: HashMap<(String, &'static str), Duration> = HashMap::new();
    while let Some(event) = queue.recv().await {
        let now = clock.monotonic();
        sent.retain(|_, at| now - *at < PAUSE);
        let uid = event.owner["uid"].as_str().unwrap_or_default().to_owned();
        let is_full = sent.len() >= MAX_REMEMBERED;
        match sent.entry((uid, event.reason)) {
            Entry::Occupied(_) => continue,
            Entry::Vacant(_) if is_full => {
                counts.told(Told::Dropped);
                continue;
            }
            Entry::Vacant(entry) => entry.insert(now),
        };
        let path = format!(
            "/apis/events.k8s.io/v1/namespaces/{}/events",
            event.namespace
        );
        match api.write(&path, Write::Create(&body(&event, &clock))).await {
            Ok(_) => counts.told(Told::Created),
            Err(error) => {
                counts.told(Told::Failed);
                tracing::warn!("an Event could not be created: {error}");
            }
        }
    }
}

fn body(event: &Event, clock: &Clock) -> Value {
    let now_ns = clock.now().unix_nanos();
    let now = jiff::Timestamp::from_nanosecond(i128::from(now_ns));
    let mut note = event.note.clone();
    note.truncate(note.floor_char_boundary(MAX_NOTE_BYTES));
    json!({
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {
            "name": format!("{}.{now_ns:x}", event.owner["name"].as_str().unwrap_or("pod")),
            "namespace": event.namespace,
        },
        "eventTime": now.map(|now| format!("{now:.6}")).unwrap_or_default(),
        "type": "Warning",
        "action": "Injecting",
        "reason": camel(event.reason),
        "note": note,
        "reportingController": "dedupd.io/injector",
        "reportingInstance": std::env::var("HOSTNAME").unwrap_or_else(|_| "injector".to_owned()),
        "regarding": {
            "apiVersion": event.owner["apiVersion"],
            "kind": event.owner["kind"],
            "name": event.owner["name"],
            "uid": event.owner["uid"],
            "namespace": event.namespace,
        },
    })
}

/// `host_network` → `DedupdHostNetwork`.
fn camel(name: &str) -> String {
    let words = name.split('_').map(|word| {
        let mut letters = word.chars();
        let first = letters.next().map(|letter| letter.to_ascii_uppercase());
        first.into_iter().chain(letters).collect::<String>()
    });
    format!("Dedupd{}", words.collect::<String>())
}
