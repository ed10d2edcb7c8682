//! Files as they come: broken, cut off, in odd units; none crashes, hangs or fills the memory.

use std::{
    fs,
    io::{Read, Write},
    process::{Command, Stdio},
};

use flate2::{Compression, write::GzEncoder};

use super::{count, dedupd, report, strategy, synth, words};

const ROWS: &str = "device_id,fence_id,transition,occurred_at,occurrence_id
d1,f1,ENTER,1700000000000,a
d1,f1,ENTER,1700000000100,a
d1,f1,ENTER,1700000009000,b
d2,f1,X,1700000009100,
";

fn packed(bytes: &[u8]) -> Vec<u8> {
    let mut packed = GzEncoder::new(Vec::new(), Compression::fast());
    packed.write_all(bytes).expect("memory");
    packed.finish().expect("memory")
}

/// Replays as it should, with so many rows left out for this reason.
#[track_caller]
fn check(arguments: &str, input: &[u8], events: u64, left_out: &[(u64, &str)]) {
    let report = report(&format!("- --strategy sliding {arguments}"), input);
    let sliding = strategy(&report, "sliding");
    assert_eq!(count(&sliding["events"]), events, "{report:#}");
    assert_eq!(
        count(&report["bad_rows"]["count"]),
        left_out.len() as u64,
        "{report:#}"
    );
    for (number, (line, why)) in left_out.iter().enumerate() {
        let bad = &report["bad_rows"]["first"][number];
        assert_eq!(count(&bad["line"]), *line, "{report:#}");
        let said = bad["why"].as_str().unwrap_or_default();
        assert!(said.contains(why), "{said}");
    }
}

/// Ends with this code and says this.
#[track_caller]
fn check_refused(arguments: &str, input: &[u8], code: i32, why: &str) {
    let output = dedupd(&words(&format!("replay {arguments}")), input);
    let said = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(code), "{arguments}: {said}");
    assert!(said.contains(why), "{arguments}: {said}");
    assert!(output.stdout.is_empty(), "{arguments}");
}

#[test]
fn rows_of_any_origin_are_the_same_events() {
    let crlf = ROWS.replace('\n', "\r\n");
    let marked = format!("\u{feff}{ROWS}");
    let quoted = ROWS.replace("d1,f1", "\"d1\",\"f1\"");
    let unended = ROWS.trim_end();
    let gaps = ROWS.replace('\n', "\n\n");
    for text in [ROWS, &crlf, &marked, &quoted, unended, &gaps] {
        check("", text.as_bytes(), 4, &[]);
        check("", &packed(text.as_bytes()), 4, &[]);
    }
    let two_members = [
        packed(&ROWS.as_bytes()[..70]),
        packed(&ROWS.as_bytes()[70..]),
    ]
    .concat();
    check("", &two_members, 4, &[]);
    check("--delimiter ;", ROWS.replace(',', ";").as_bytes(), 4, &[]);
    check(
        "--delimiter \\t",
        ROWS.replace(',', "\t").as_bytes(),
        4,
        &[],
    );
    check(
        "--device who",
        ROWS.replace("device_id", "who").as_bytes(),
        4,
        &[],
    );
    let seconds = ROWS.replace("00000,a", "00,a");
    check("--time-unit ms", seconds.as_bytes(), 4, &[]);
}

/// A column that the first row lacks is found in a later one.
#[test]
fn json_lines_are_read_as_csv_is() {
    let lines = r#"{"device_id":"d1","fence_id":"f1","transition":"ENTER","occurred_at":1700000000.000}
{"device_id":"d1","fence_id":"f1","transition":"enter","occurred_at":1700000009.000,"occurrence_id":"b","more":{}}
{"device_id":"d1","fence_id":"f1","transition":"E","occurred_at":"1700000009.1","occurrence_id":"b"}
{"device_id":["d1"],"fence_id":"f1","transition":"E","occurred_at":1700000009}
not JSON
[1]
"#;
    let left_out = [
        (4, "neither text nor"),
        (5, "no JSON"),
        (6, "no JSON object"),
    ];
    check("", lines.as_bytes(), 3, &left_out);
    check("", &packed(lines.as_bytes()), 3, &left_out);
    let report = report("- --strategy none", lines.as_bytes());
    let none = strategy(&report, "none");
    assert_eq!(count(&none["judged"]["triggered_again"]), 1, "{none:#}");
}

#[test]
fn bad_rows_are_told_by_their_line_and_spoil_no_other() {
    for (row, why) in [
        ("d1,f1,ENTER", "has 3 fields, the header 5"),
        ("d1,f1,ENTER,yesterday,", "neither a number nor RFC 3339"),
        (
            "d1,f1,ENTER,2023-11-14T22:14:00,",
            "RFC 3339 with an offset",
        ),
        (
            "d1,f1,ENTER,1700000000,",
            "looks like seconds, the first one like milliseconds",
        ),
        ("d1,f1,ENTER,9e99,", "out of range"),
        ("d1,f1,ENTER,,", "has no time"),
        ("d1,f1,LEAVE,1700000000000,", "is not ENTER, EXIT or DWELL"),
        ("\"d1,f1,ENTER,1700000000000,", "a quote that does not end"),
        ("d\u{fffd},f1,ENTER,17000000000x0,", "neither a number"),
    ] {
        let text = format!(
            "{ROWS}{row}\n{}",
            ROWS.split_once('\n').expect("a header").1
        );
        check("", text.as_bytes(), 8, &[(6, why)]);
    }
    let mut latin = ROWS.as_bytes().to_vec();
    latin.extend_from_slice(b"d\xe9,f1,ENTER,1700000000000,\n");
    check("", &latin, 4, &[(6, "is not UTF-8")]);
}

#[test]
fn files_that_are_no_traces_are_refused_with_what_to_do() {
    let whole = packed(&synth("--occurrences 5k --duration 10s"));
    let mut spoilt = whole.clone();
    let checksum = spoilt.len() - 8;
    spoilt[checksum] ^= 0xff;
    let utf_16: Vec<u8> = ROWS.encode_utf16().flat_map(u16::to_le_bytes).collect();
    let utf_16 = [&b"\xff\xfe"[..], &utf_16].concat();
    let header_only = ROWS.lines().next().expect("a header");
    let all_bad = format!("{header_only}\nd1,f1,ENTER,never,\n");
    let unnamed = ROWS.replace("device_id", "who");
    let rows: [(&str, &[u8], i32, &str); 12] = [
        (
            "-",
            &whole[..whole.len() / 2],
            65,
            "it was cut off; fetch it again",
        ),
        ("-", &spoilt, 65, "cannot read the standard input"),
        ("-", &utf_16, 65, "is UTF-16: save it as UTF-8"),
        ("-", b"", 65, "is empty"),
        ("-", header_only.as_bytes(), 65, "holds no events"),
        (
            "-",
            all_bad.as_bytes(),
            65,
            "none of the trace's 1 rows can be used; line 2",
        ),
        ("-", unnamed.as_bytes(), 65, "name them by --device"),
        (
            "- --device what",
            ROWS.as_bytes(),
            65,
            "there is no column \"what\" for --device",
        ),
        ("- --kind pings", ROWS.as_bytes(), 65, "name it by --asset"),
        (
            "/no/such/file.csv",
            b"",
            65,
            "cannot read /no/such/file.csv",
        ),
        (
            "- --strategy magic",
            ROWS.as_bytes(),
            64,
            "there are none, raw",
        ),
        ("", b"", 64, "TRACE"),
    ];
    for (arguments, input, code, why) in rows {
        check_refused(arguments, input, code, why);
    }
    check_refused("--synthetic --devices 0", b"", 64, "at least one device");
    check_refused("--synthetic --retried 2", b"", 64, "--retried is a share");
}

/// The line comes through a pipe; the process keeps a megabyte of it.
#[test]
fn a_line_of_a_gigabyte_is_left_out_in_bounded_memory() {
    let mut child = Command::new(env!("CARGO_BIN_EXE_dedupd"))
        .args(["replay", "-", "--strategy", "sliding", "--output", "json"])
        .env_clear()
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .spawn()
        .expect("dedupd runs");
    let mut stdin = child.stdin.take().expect("stdin is piped");
    stdin.write_all(ROWS.as_bytes()).expect("it reads");
    let part = vec![b'x'; 1 << 20];
    for _ in 0..1024 {
        stdin.write_all(&part).expect("it reads");
    }
    let status = fs::read_to_string(format!("/proc/{}/status", child.id())).expect("it runs");
    let peak = status
        .lines()
        .find(|line| line.starts_with("VmHWM"))
        .expect("a peak");
    let peak_kib: u64 = words(peak)[1].parse().expect("a number");
    assert!(peak_kib < 100 << 10, "{peak}");
    stdin
        .write_all(b"\nd3,f1,ENTER,1700000010000,\n")
        .expect("it reads");
    drop(stdin);
    let mut said = String::new();
    let mut stdout = child.stdout.take().expect("stdout is piped");
    stdout.read_to_string(&mut said).expect("text");
    assert!(child.wait().expect("it ends").success());
    let report: serde_json::Value = serde_json::from_str(&said).expect("JSON");
    assert_eq!(count(&strategy(&report, "sliding")["events"]), 5);
    assert_eq!(count(&report["bad_rows"]["first"][0]["line"]), 6);
}

#[test]
fn synth_writes_files_gzipped_by_name_and_fleets_in_their_turn() {
    let directory = tempfile::tempdir().expect("a directory");
    let recipe = "--occurrences 2k --duration 10s";
    for name in ["trace.csv", "trace.csv.gz"] {
        let path = directory.path().join(name);
        let path = path.to_str().expect("UTF-8");
        synth(&format!("{recipe} --output {path}"));
        let read = report(&format!("{path} --strategy none"), b"");
        assert!(count(&strategy(&read, "none")["events"]) > 2000);
    }
    let fleet = synth("--assets 20 --occurrences 2k --duration 1000s --parked 1 --noise-m 3");
    let read = report("- --width 1m", &fleet);
    let tumbling = strategy(&read, "tumbling");
    assert_eq!(count(&read["bad_rows"]["count"]), 0);
    assert!(
        count(&tumbling["by_reason"]["JITTER"]) > 500,
        "{tumbling:#}"
    );
}
