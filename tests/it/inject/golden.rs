//! Golden patches: what becomes of pods as they are in the world (`tests/data/inject/`).
//!
//! `DEDUPD_TEST_BLESS=1` writes them anew, to be read before they are committed.

use std::{env, fs, path::Path};

use dedupd::{
    config::injector::{self, InjectorConfig},
    inject::{Ask, Outcome, inject, stream, uninject, workload::workloads},
};
use serde_json::{Map, Value, json};

use super::support::data;

pub(super) fn config() -> InjectorConfig {
    injector::load("--injector-config", &data("injector.yaml")).expect("a good configuration")
}

/// A patch, or why there is none.
fn shown(outcome: &Outcome) -> Value {
    match outcome {
        Outcome::Injected(injection) => {
            let patch = serde_json::to_value(&injection.patch).expect("a patch is JSON");
            match injection.warnings.as_slice() {
                [] => patch,
                warnings => json!({ "patch": patch, "warnings": warnings }),
            }
        }
        Outcome::Skipped(skip) => json!(format!("skipped: {}", skip.name())),
        Outcome::Refused(refused) => {
            json!(format!("refused: {}: {refused}", refused.reason.name()))
        }
    }
}

/// What becomes of each workload of a manifest; along the way, that it can be undone.
fn outcomes(path: &Path) -> Value {
    let config = config();
    let mut outcomes = Map::new();
    let text = fs::read_to_string(path).expect("a shape");
    let rewritten = stream::rewrite(&text, |document| {
        for workload in workloads(document) {
            let original = workload.pod.clone();
            let outcome = inject(workload.pod, &config.sidecar, Ask::Annotated);
            if let Outcome::Injected(injection) = &outcome {
                json_patch::patch(workload.pod, &injection.patch).expect("the patch fits");
                let again = inject(workload.pod, &config.sidecar, Ask::Annotated);
                assert_eq!(shown(&again), "skipped: already_injected");
                assert!(uninject(workload.pod));
                assert_eq!(*workload.pod, original, "{}", workload.title);
            }
            outcomes.insert(workload.title, shown(&outcome));
        }
        false
    });
    assert_eq!(rewritten.expect("a manifest"), text);
    outcomes.into()
}

#[test]
fn every_shape_has_its_patch() {
    let mut shapes = 0;
    for entry in fs::read_dir(data("")).expect("the shapes") {
        let path = entry.expect("an entry").path();
        let is_shape = path
            .extension()
            .is_some_and(|extension| extension == "yaml");
        if !is_shape || path.ends_with("injector.yaml") {
            continue;
        }
        shapes += 1;
        let found = outcomes(&path);
        let golden = path.with_extension("golden.json");
        if env::var_os("DEDUPD_TEST_BLESS").is_some() {
            fs::write(&golden, format!("{found:#}\n")).expect("the folder is ours");
        }
        let text = fs::read_to_string(&golden)
            .unwrap_or_else(|error| panic!("{}: {error}", golden.display()));
        let expected: Value = serde_json::from_str(&text).expect("JSON");
        assert_eq!(found, expected, "{}: {found:#}", path.display());
    }
    assert!(shapes >= 15, "{shapes} shapes");
}
