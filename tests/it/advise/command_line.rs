//! `dedupd advise` as it is called: files whole and broken, and every form of output.

use std::{
    fs,
    io::Write,
    path::Path,
    process::{Command, Output, Stdio},
};

use flate2::{Compression, write::GzEncoder};
use serde_json::Value;
use tempfile::TempDir;

fn dedupd(arguments: &[&str], directory: &Path) -> Output {
    let output = Command::new(env!("CARGO_BIN_EXE_dedupd"))
        .args(arguments)
        .current_dir(directory)
        .env_clear()
        .stdin(Stdio::null())
        .output();
    output.expect("dedupd runs")
}

/// Crossings every ten seconds; one in four comes again, stamped 60 ms later.
fn crossings() -> String {
    let mut csv = "device_id,fence_id,transition,occurred_at,arrived_at,occurrence_id\n".to_owned();
    for index in 0..400_u64 {
        let at_ms = 1_700_000_000_000 + index * 10_000;
        for copy in 0..=u64::from(index % 4 == 0) {
            let (stamp, arrival) = (at_ms + copy * 60, at_ms + 20 + copy * 900);
            csv += &format!("<b>{},north,ENTER,{stamp},{arrival},o-{index}\n", index % 7);
        }
    }
    csv
}

fn written(name: &str, bytes: &[u8]) -> TempDir {
    let directory = tempfile::tempdir().expect("a directory");
    fs::write(directory.path().join(name), bytes).expect("the directory is ours");
    directory
}

fn gzipped(text: &str) -> Vec<u8> {
    let mut encoder = GzEncoder::new(Vec::new(), Compression::fast());
    encoder.write_all(text.as_bytes()).expect("memory");
    encoder.finish().expect("memory")
}

#[test]
fn check_accepts_the_yaml_and_the_json_says_the_same() {
    let directory = written("t.csv", crossings().as_bytes());
    let yaml = dedupd(&["advise", "t.csv", "--output", "yaml"], directory.path());
    assert!(yaml.status.success(), "{yaml:?}");
    fs::write(directory.path().join("c.yaml"), &yaml.stdout).expect("the directory is ours");
    let checked = dedupd(&["check", "--config", "c.yaml"], directory.path());
    assert!(checked.status.success(), "{checked:?}");
    let effective: Value = serde_json::from_slice(&checked.stdout).expect("JSON");
    assert_eq!(
        effective["namespaces"]["transitions"]["bounds"]["max_duplicate_spread"],
        "60ms"
    );

    let json = dedupd(&["advise", "t.csv", "--output", "json"], directory.path());
    let json: Value = serde_json::from_slice(&json.stdout).expect("JSON");
    assert_eq!(
        json["yaml"].as_str(),
        std::str::from_utf8(&yaml.stdout).ok()
    );
    assert_eq!(json["events"], 500);
    assert_eq!(json["parting"]["copies"], 100);
    assert_eq!(json["parting"]["revisit_ns"], 70_000_000_000_u64);
    assert_eq!(json["replayed"]["triggered_again"], 0);
    assert_eq!(json["replayed"]["swallowed"], 0);
}

#[test]
fn the_text_and_the_page_show_the_evidence() {
    let directory = written("t.csv", crossings().as_bytes());
    let text = dedupd(&["advise", "t.csv", "--report", "r.html"], directory.path());
    assert!(text.status.success(), "{text:?}");
    let text = String::from_utf8(text.stdout).expect("text");
    for part in [
        "RECOMMENDED",
        "REPLAYED",
        "COST",
        "EVIDENCE",
        "---- guard",
        "NAMESPACE",
        "shard",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
    let page = fs::read_to_string(directory.path().join("r.html")).expect("a page");
    assert!(page.contains("<svg") && page.contains("guard"), "{page}");
    for outside in ["http:", "https:", "<script", "<link", "url(", "src="] {
        assert!(!page.contains(outside), "{outside}");
    }
}

#[test]
fn ids_are_text_on_the_page() {
    let mut csv = "asset_id,occurred_at,latitude,longitude\n".to_owned();
    for second in 0..900 {
        csv += &format!(
            "<img src=x>,{},47.{:06},8.5\n",
            1_700_000_000 + second,
            second % 5 * 10
        );
    }
    let directory = written("t.csv", csv.as_bytes());
    let output = dedupd(&["advise", "t.csv", "--report", "r.html"], directory.path());
    assert!(output.status.success(), "{output:?}");
    let page = fs::read_to_string(directory.path().join("r.html")).expect("a page");
    assert!(
        page.contains("&lt;img src=x&gt;") && !page.contains("<img"),
        "{page}"
    );
}

#[test]
fn files_as_they_come_are_read_and_stdin_is_not_replayed() {
    let csv = crossings();
    let bom = format!("\u{feff}{}", csv.replace('\n', "\r\n"));
    for (name, bytes) in [("t.csv", bom.into_bytes()), ("t.csv.gz", gzipped(&csv))] {
        let directory = written(name, &bytes);
        let output = dedupd(&["advise", name, "--output", "json"], directory.path());
        let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
        assert_eq!(json["events"], 500, "{name}");
    }
    let directory = written("t.csv", csv.as_bytes());
    let output = Command::new(env!("CARGO_BIN_EXE_dedupd"))
        .args(["advise", "-", "--output", "json"])
        .env_clear()
        .stdin(fs::File::open(directory.path().join("t.csv")).expect("it was written"))
        .output()
        .expect("dedupd runs");
    let json: Value = serde_json::from_slice(&output.stdout).expect("JSON");
    assert_eq!(
        (&json["events"], &json["replayed"]),
        (&500.into(), &Value::Null)
    );
}

#[test]
fn broken_and_empty_files_end_in_words() {
    let csv = crossings();
    let packed = gzipped(&csv);
    let header = "device_id,fence_id,transition,occurred_at\n";
    for (name, bytes, said) in [
        ("t.csv", Vec::new(), "t.csv is empty"),
        ("t.csv", header.as_bytes().to_vec(), "holds no events"),
        (
            "t.csv",
            format!("{header}a,b,ENTER,yesterday\n").into_bytes(),
            "yesterday",
        ),
        ("t.csv", b"a,b\n1,2\n".to_vec(), "--device"),
        ("t.csv.gz", packed[..packed.len() / 2].to_vec(), "cut off"),
        ("t.jsonl", b"[1,2]\n".to_vec(), "line 1"),
    ] {
        let directory = written(name, &bytes);
        let output = dedupd(&["advise", name], directory.path());
        assert_eq!(output.status.code(), Some(65), "{name} {said}: {output:?}");
        let told = String::from_utf8_lossy(&output.stderr);
        assert!(told.contains(said), "{said}: {told}");
        assert!(output.stdout.is_empty());
    }
    let directory = written("t.csv", csv.as_bytes());
    let absent = dedupd(&["advise", "absent.csv"], directory.path());
    assert_eq!(absent.status.code(), Some(65), "{absent:?}");
    let name = dedupd(
        &["advise", "t.csv", "--namespace", "No Such"],
        directory.path(),
    );
    assert_eq!(name.status.code(), Some(64), "{name:?}");
}

#[test]
fn bad_rows_are_counted_and_named() {
    let csv = crossings() + "x,y,SIDEWAYS,1700000000000,1700000000000,o\n";
    let directory = written("t.csv", csv.as_bytes());
    let output = dedupd(&["advise", "t.csv"], directory.path());
    let text = String::from_utf8(output.stdout).expect("text");
    assert!(
        text.contains("1 rows left out") && text.contains("line 502"),
        "{text}"
    );
}
