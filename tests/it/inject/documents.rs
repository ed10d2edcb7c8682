//! What docs/injection.md shows is what happens.

use dedupd::{
    config::injector::{self, Grpc, StoreSource},
    inject::{Refusal, Skip, annotations},
};

use super::reviews::start;
use crate::documents::{block, document};

#[test]
fn every_key_of_the_file_is_understood_and_has_the_default_that_it_says() {
    let page = document("docs/injection.md");
    let text = block(&page, "yaml", "## The file");
    let shown = injector::parse("--config", text).unwrap_or_else(|errors| panic!("{errors}"));
    let defaults = injector::parse("--config", "").expect("nothing is wrong with it");
    let mut sidecar = shown.sidecar.clone();
    assert_eq!(sidecar.policies.len(), 2);
    assert!(matches!(sidecar.store.url, Some(StoreSource::Secret(_))));
    sidecar.policies.clear();
    sidecar.store = defaults.sidecar.store.clone();
    sidecar.image_pull_policy = None;
    assert_eq!(sidecar, defaults.sidecar);
    assert_eq!(sidecar.grpc, Grpc::Loopback);
    assert_eq!(
        (shown.listen, shown.admin_listen, shown.events),
        (defaults.listen, defaults.admin_listen, defaults.events)
    );
    // What stands in comments is understood, too.
    let lines = text.lines().filter_map(|line| {
        let (indent, text) = line.split_once("# ")?;
        let is_key = indent.trim().is_empty() && text.contains(": {");
        is_key.then_some(text.split("   #").next().unwrap_or_default())
    });
    let commented: Vec<&str> = lines.collect();
    assert_eq!(commented.len(), 2, "{commented:?}");
    for line in commented {
        let text = if line.starts_with("files") {
            format!("tls: {{ {line} }}")
        } else {
            line.to_owned()
        };
        injector::parse("--config", &text).unwrap_or_else(|errors| panic!("{line}: {errors}"));
    }
}

#[test]
fn every_annotation_and_every_reason_is_explained() {
    let page = document("docs/injection.md");
    let names = annotations::names()
        .chain(Skip::ALL.map(Skip::name))
        .chain(Refusal::ALL.map(Refusal::name));
    for name in names {
        let rows = page.lines().filter(|line| line.starts_with("| `"));
        let mut explained = rows.filter(|row| row.contains(&format!("`{name}`")));
        assert!(explained.next().is_some(), "no row for {name}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn every_metric_of_the_page_is_exposed_and_every_exposed_one_explained() {
    let page = document("docs/injection.md");
    let (webhook, _) = start();
    let (_, exposed) = webhook.http_get("/metrics");
    let families: Vec<&str> = exposed
        .lines()
        .filter_map(|line| line.strip_prefix("# TYPE ")?.split(' ').next())
        .filter(|family| family.starts_with("dedupd_injector_"))
        .collect();
    assert_eq!(families.len(), 7, "{families:?}");
    for family in &families {
        assert!(page.contains(family), "{family} is not explained");
    }
    for word in page.split(|c: char| !(c.is_ascii_alphanumeric() || c == '_')) {
        if word.starts_with("dedupd_") {
            assert!(exposed.contains(word), "{word} is not exposed");
        }
    }
}
