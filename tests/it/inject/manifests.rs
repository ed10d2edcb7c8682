//! `dedupd inject` and `dedupd uninject` as a shell sees them.

use std::{fs, process::Output};

use serde_json::Value;

use super::support::{data, dedupd};
use crate::support::program::output_of;

fn run(arguments: &[&str], input: &str) -> Output {
    output_of(dedupd().args(arguments), input.as_bytes())
}

fn text(bytes: &[u8]) -> &str {
    std::str::from_utf8(bytes).expect("UTF-8")
}

const APP: &str = "apiVersion: v1
kind: Pod
metadata:
  annotations:
    dedupd.io/inject: enabled
  name: app
spec:
  containers:
  - image: app
    name: app
";

const OTHERS: &str = "# A map of theirs.\n\
    apiVersion: v1   # stays\n\
    kind: ConfigMap\n\
    metadata: { name: a }\n\
    data:\n  text: |\n    a: {{ no yaml }}\n    ...x\n\n    \ttab  \n\
    --- # the next one\n\
    %not a directive\n";

#[test]
fn other_documents_stay_as_they_are_byte_for_byte() {
    let deployment_of_others = "apiVersion: example.com/v1\r\nkind: Deployment\r\nspec: {template: {spec: {containers: [{name: a}]}}}\r\n";
    let empty = "---\n# nothing but a comment\n\n";
    let map = OTHERS.split("---").next().expect("the first document");
    let input = format!(
        "{map}---\n{deployment_of_others}{empty}--- # ours\n# Source: app.yaml\n\n{APP}---\n{map}"
    );
    let output = run(&["inject"], &input);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let injected = text(&output.stdout);
    let head = format!(
        "{map}---\n{deployment_of_others}{empty}--- # ours\n# Source: app.yaml\n\napiVersion: v1\nkind: Pod\n"
    );
    assert!(injected.starts_with(&head), "{injected}");
    assert!(injected.ends_with(&format!("---\n{map}")), "{injected}");
    assert!(injected.contains("- name: DEDUPD_ADDRESS"), "{injected}");
    assert_eq!(
        text(&output.stderr).lines().next(),
        Some("Pod/app: injected"),
        "{output:?}"
    );

    let again = run(&["inject"], injected);
    assert_eq!(text(&again.stdout), injected);
    assert!(text(&again.stderr).contains("Pod/app: left as it is: it has its dedupd already"));
    let undone = run(&["uninject", "-f", "-"], injected);
    assert_eq!(text(&undone.stdout), input);
    assert_eq!(text(&undone.stderr), "Pod/app: uninjected\n");
    let undone_again = run(&["uninject"], text(&undone.stdout));
    assert_eq!(text(&undone_again.stdout), input);
}

#[test]
fn json_stays_json() {
    let pod = |name: &str| {
        format!(
            "{{\"apiVersion\":\"v1\",\"kind\":\"Pod\",\"metadata\":{{\"name\":\"{name}\"}},\"spec\":{{\"containers\":[{{\"name\":\"a\"}}]}}}}"
        )
    };
    let service = "{\"apiVersion\": \"v1\",   \"kind\": \"Service\"}";
    let input = format!("{service}\n{}\n{}\n", pod("a"), pod("b"));
    let output = run(&["inject", "--all"], &input);
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let injected = text(&output.stdout);
    assert!(injected.starts_with(service), "{injected}");
    let values: Vec<Value> = serde_json::Deserializer::from_str(injected)
        .into_iter()
        .collect::<Result<_, _>>()
        .expect("JSON");
    assert_eq!(values.len(), 3);
    for value in &values[1..] {
        assert_eq!(value["spec"]["initContainers"][0]["name"], "dedupd");
    }
    let undone = run(&["uninject"], injected);
    let values: Vec<Value> = serde_json::Deserializer::from_str(text(&undone.stdout))
        .into_iter()
        .collect::<Result<_, _>>()
        .expect("JSON");
    assert_eq!(values[1].to_string(), pod("a"));
}

#[test]
fn files_follow_each_other_and_what_does_not_ask_is_left() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = |name: &str, text: &str| {
        let path = folder.path().join(name);
        fs::write(&path, text).expect("the folder is ours");
        path.to_str().expect("UTF-8").to_owned()
    };
    let silent = APP.replace("  annotations:\n    dedupd.io/inject: enabled\n", "");
    let (one, two) = (path("1.yaml", &silent), path("2.yaml", APP.trim_end()));
    let three = path("3.yaml", &APP.replace("enabled", "disabled"));
    let files = ["-f", &one, "-f", &two, "-f", &three];
    let output = run(&[&["inject"], files.as_slice()].concat(), "");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    let written = text(&output.stdout);
    assert!(written.starts_with(&silent), "{written}");
    assert_eq!(written.matches("\n---\n").count(), 2, "{written}");
    assert_eq!(
        written.matches("restartPolicy: Always").count(),
        1,
        "{written}"
    );
    let all = run(&[&["inject", "--all"], files.as_slice()].concat(), "");
    let written = text(&all.stdout);
    assert_eq!(
        written.matches("restartPolicy: Always").count(),
        2,
        "{written}"
    );
    let reasons: Vec<&str> = text(&all.stderr)
        .lines()
        .filter(|line| !line.contains("warning"))
        .collect();
    assert_eq!(
        reasons,
        [
            "Pod/app: injected",
            "Pod/app: injected",
            "Pod/app: left as it is: the annotation dedupd.io/inject is disabled"
        ]
    );
}

#[test]
fn where_one_is_refused_nothing_is_written() {
    let bad = APP.replace("enabled", "enabled\n    dedupd.io/grpc: tcp");
    let config = data("injector.yaml");
    let config = config.to_str().expect("UTF-8");
    type Row<'a> = (&'a [&'a str], &'a str, i32, &'a str);
    let both = format!("{APP}---\n{bad}");
    let rows: [Row; 7] = [
        (
            &["inject"],
            &both,
            65,
            "Pod/app: refused: dedupd.io/grpc: \"tcp\" is none of loopback, socket",
        ),
        (
            &["inject"],
            "a: b\n---\na: {\n",
            65,
            "the document that begins at line 2 cannot be read",
        ),
        (&["inject"], "a: 1\na: 2\n", 65, "cannot be read"),
        (
            &["uninject", "-f", "/does/not/exist"],
            "",
            65,
            "cannot read /does/not/exist",
        ),
        (
            &["inject", "--injector-config", "/does/not/exist"],
            "",
            64,
            "--injector-config: cannot read",
        ),
        (&["inject", "manifest.yaml"], "", 64, "unexpected argument"),
        (&["inject", "--injector-config", config], "", 0, ""),
    ];
    for (arguments, input, code, message) in rows {
        let output = run(arguments, input);
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
        assert!(errors.contains(message), "{arguments:?}: {errors}");
        assert_eq!(text(&output.stdout), "", "{arguments:?}");
    }
}

#[test]
fn probe_says_whether_the_service_is_there() {
    let service = crate::support::service::Service::start(&Default::default());
    let admin = service.admin_addr().to_string();
    type Row<'a> = (&'a [&'a str], i32, &'a str);
    let rows: [Row; 4] = [
        (&["probe", "--admin-listen", &admin], 0, ""),
        (&["probe", "/readyz", "--admin-listen", &admin], 0, ""),
        (
            &["probe", "/config", "--admin-listen", &admin],
            64,
            "/livez",
        ),
        (
            &["probe", "--admin-listen", "here"],
            64,
            "not an IP address",
        ),
    ];
    for (arguments, code, message) in rows {
        let output = run(arguments, "");
        let errors = text(&output.stderr);
        assert_eq!(output.status.code(), Some(code), "{arguments:?}: {errors}");
        assert!(errors.contains(message), "{arguments:?}: {errors}");
    }
    // As in a pod: it listens on every address.
    let every = format!("[::]:{}", service.admin_addr().port());
    let output = dedupd()
        .arg("probe")
        .env("DEDUPD_ADMIN_LISTEN", every)
        .output()
        .expect("dedupd runs");
    assert_eq!(output.status.code(), Some(0), "{output:?}");
    drop(service);
    let output = run(&["probe", "--admin-listen", &admin], "");
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}
