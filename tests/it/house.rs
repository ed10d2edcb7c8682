//! The invariants of the house that the compiler does not hold.

use std::{
    fs,
    path::{Path, PathBuf},
};

fn sources(folder: &str) -> Vec<(PathBuf, String)> {
    let mut found = Vec::new();
    let mut folders = vec![Path::new(env!("CARGO_MANIFEST_DIR")).join(folder)];
    while let Some(folder) = folders.pop() {
        for entry in fs::read_dir(folder)
            .expect("a readable folder")
            .map(|entry| entry.expect("an entry").path())
        {
            if entry.is_dir() {
                folders.push(entry);
            } else if entry.extension().is_some_and(|extension| extension == "rs") {
                let text = fs::read_to_string(&entry).expect("a readable file");
                found.push((entry, text));
            }
        }
    }
    assert!(!found.is_empty(), "no sources in {folder}");
    found
}

/// No file of `folder`, save those that end in one of `except`, holds one of `words`.
#[track_caller]
fn check(folder: &str, except: &[&str], words: &[&str], why: &str) {
    for (path, text) in sources(folder) {
        if except.iter().any(|end| path.ends_with(end)) {
            continue;
        }
        for (number, line) in text.lines().enumerate() {
            let code = line.split("//").next().unwrap_or_default();
            for word in words {
                assert!(
                    !code.contains(word),
                    "{}:{}: `{word}`: {why}",
                    path.display(),
                    number + 1
                );
            }
        }
    }
}

#[test]
fn the_domain_touches_nothing() {
    let words = [
        "async ",
        ".await",
        "std::fs",
        "std::net",
        "std::io",
        "std::env",
        "std::thread",
        "tokio",
        "tracing",
        "println!",
        "Instant",
        "SystemTime",
        "crate::",
        "rand::",
        "::now()",
    ];
    // `crate::` would be another part of this crate; within the domain paths begin with super.
    check(
        "src/domain",
        &[],
        &words,
        "the domain does no IO, reads no clock, logs nothing and imports nothing else",
    );
}

/// `domain/mod.rs` lists the modules so that none needs one below it: no circles.
#[test]
fn no_module_of_the_domain_needs_one_below_it() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/domain");
    let map = fs::read_to_string(folder.join("mod.rs")).expect("a readable file");
    let modules: Vec<&str> = map
        .lines()
        .filter_map(|line| line.strip_prefix("pub mod ")?.strip_suffix(';'))
        .collect();
    assert!(modules.len() > 10, "{modules:?}");
    for (place, module) in modules.iter().enumerate() {
        let text =
            fs::read_to_string(folder.join(format!("{module}.rs"))).expect("a readable file");
        let code = text.split("#[cfg(test)]").next().unwrap_or_default();
        let start = code.find("use super::").map_or("", |start| &code[start..]);
        let imports = &start[..start.find(';').unwrap_or(0)];
        for below in &modules[place + 1..] {
            assert!(
                !imports.contains(&format!("{below}::")),
                "domain/{module}.rs needs {below}.rs, which stands below it"
            );
        }
    }
}

#[test]
fn injection_touches_nothing() {
    let words = [
        "async ", ".await", "std::fs", "std::net", "std::io", "std::env", "tokio", "tracing",
        "println!", "::now()",
    ];
    check(
        "src/inject",
        &[],
        &words,
        "what the server and the command line share does no IO",
    );
}

#[test]
fn generated_types_stay_on_the_surface() {
    check(
        "src",
        &["grpc/mod.rs"],
        &["include_proto!", "include_file_descriptor_set!"],
        "generated code has one home",
    );
    for folder in [
        "src/domain",
        "src/store",
        "src/engine",
        "src/config",
        "src/telemetry",
        "src/admin",
        "src/inject",
        "src/webhook",
    ] {
        check(
            folder,
            &[],
            &["proto::", "tonic::", "prost"],
            "generated types do not leave grpc/",
        );
    }
}

#[test]
fn only_the_clock_reads_time() {
    let words = [
        "SystemTime::now",
        "std::time::Instant",
        "Timestamp::now",
        "UNIX_EPOCH",
    ];
    check(
        "src",
        &["clock.rs"],
        &words,
        "only clock.rs reads time; timers are tokio's",
    );
}

#[test]
fn only_the_app_binds_and_spawns() {
    for folder in [
        "src/domain",
        "src/store",
        "src/engine",
        "src/grpc",
        "src/admin",
        "src/telemetry",
        "src/config",
        "src/inject",
        "src/webhook",
    ] {
        check(
            folder,
            // The two ends of a connection must be moved though nobody asks for it, and one stream
            // must be able to use several cores.
            &["wire/mod.rs", "conversation.rs"],
            &["tokio::spawn", "thread::spawn", "Listener::bind"],
            "only the app binds and spawns",
        );
    }
}

#[test]
fn stores_know_nothing_of_policies_or_reasons() {
    check(
        "src/store",
        &[],
        &["Policy", "Reason", "Verdict", "FailureMode"],
        "a store owns atomicity, the domain meaning",
    );
}
