//! How namespaces lay out their keys on a cluster.

use super::*;

#[test]
fn on_a_cluster_what_looks_at_several_keys_is_tagged() {
    let ping =
        |place: &str| format!("accepts: [ping], window: {{ tumbling: 60s }}, place: {place}");
    let transition = |window: &str| format!("accepts: [transition], window: {window}");
    let (both, keyed) = (
        "accepts: [ping, transition], window: { tumbling: 60s }, place: { resolution: 9, guard_m: 5 }",
        "accepts: [keyed], window: none",
    );
    let rows = [
        (transition("{ tumbling: 2s, guard: 1ns }"), true),
        (transition("{ sliding: 2s }"), true),
        (transition("{ session: 2s }"), true),
        (ping("{ resolution: 9, guard_m: 1 }"), true),
        (both.to_owned(), true),
        (transition("{ tumbling: 2s }"), false),
        (ping("{ resolution: 9 }"), false),
        (ping("none"), false),
        (keyed.to_owned(), false),
        // No pings, no place.
        (
            transition("{ tumbling: 2s }, place: { resolution: 9, guard_m: 1 }"),
            false,
        ),
    ];
    let layout = |url: &str, rules: &str, key: &str| {
        let yaml = format!(
            "store: {{ url: '{url}' }}\nnamespaces: {{ n: {{ {rules}, ttl: 1h, failure_mode: open, key: {{ {key} }} }} }}"
        );
        load_text(&yaml).map(|config| config.namespaces[0].scheme().layout())
    };
    for (rules, several_keys) in &rows {
        let on = |url, key| layout(url, rules, key).map_err(|errors| errors.0);
        let unset = if *several_keys {
            Layout::Tagged
        } else {
            Layout::Plain
        };
        for cluster in ["redis-cluster://h", "rediss-cluster://h,g"] {
            assert_eq!(on(cluster, ""), Ok(unset), "{rules}");
            assert_eq!(on(cluster, "layout: tagged"), Ok(Layout::Tagged), "{rules}");
            match on(cluster, "layout: plain") {
                Ok(layout) => assert!(!several_keys && layout == Layout::Plain, "{rules}"),
                Err(errors) => {
                    assert!(*several_keys && errors.len() == 1, "{rules}: {errors:?}");
                    assert_eq!(errors[0].path, "namespaces.n.key.layout");
                    assert!(errors[0].message.contains("over the slots of the cluster"));
                }
            }
        }
        for elsewhere in ["memory://", "redis://h", "redis-sentinel://h/m"] {
            assert_eq!(on(elsewhere, ""), Ok(Layout::Plain), "{rules}");
            assert_eq!(on(elsewhere, "layout: plain"), Ok(Layout::Plain), "{rules}");
        }
    }
    let environment = [("DEDUPD_STORE_URL", "redis-cluster://h")];
    let (config, _) = load_with(&Flags::default(), &environment).expect("is valid");
    let built_in = config
        .namespaces
        .iter()
        .map(|policy| (policy.name().as_str(), policy.scheme().layout()));
    assert!(built_in.eq([
        ("events", Layout::Plain),
        ("pings", Layout::Plain),
        ("transitions", Layout::Tagged),
    ]));
}
