//! Streams at their edges. What becomes of pods stands in `tests/data/inject`.

use serde_json::Value;

use super::stream;

/// `text` with every document `{ changed: … }` changed.
fn rewritten(text: &str) -> String {
    stream::rewrite(text, |document| match document.get_mut("changed") {
        Some(changed) => {
            *changed = Value::from("yes");
            true
        }
        None => false,
    })
    .unwrap_or_else(|fault| panic!("{text}: {fault}"))
}

#[test]
fn documents_are_cut_where_yaml_cuts_them() {
    let check = |text: &str, expected: &str| assert_eq!(rewritten(text), expected, "{text}");
    let same = |text: &str| check(text, text);
    same("");
    same("\n");
    same("# nothing\n");
    same("---\n");
    same("---");
    same("a: 1");
    same("a: 1\n...\n");
    same("a: |\n  ---\n  changed: no\n");
    same("---a: 1\n");
    same("a: 1\r\n---\r\nb: 2\r\n");
    check("changed: no", "changed: \"yes\"\n");
    check("--- {changed: no}\n", "---\nchanged: \"yes\"\n");
    check(
        "--- # why\nchanged: no # lost\n---\nb: 1",
        "--- # why\nchanged: \"yes\"\n---\nb: 1",
    );
    check(
        "# one\n\n# two\nchanged: no\n...\n",
        "# one\n\n# two\nchanged: \"yes\"\n...\n",
    );
    check(
        "%YAML 1.2\n---\nchanged: 1\n",
        "%YAML 1.2\n---\nchanged: \"yes\"\n",
    );
    check(
        "{\"changed\": 1}{\"b\":2}\n",
        "{\n  \"changed\": \"yes\"\n}{\"b\":2}\n",
    );
    check("{changed: 1}\n", "changed: \"yes\"\n");
}

/// Readers of YAML 1.1 take the tab for an indentation.
#[test]
fn no_line_of_a_block_begins_with_a_tab() {
    let check = |text: &str, written: &str| {
        let rewritten = stream::rewrite("a: 1\n", |document| {
            *document = serde_json::json!({ "a": text });
            true
        });
        assert_eq!(rewritten.expect("a document"), written);
    };
    check("one\ntwo\n", "a: |\n  one\n  two\n");
    check("\tone\ntwo\n", "a: \"\\tone\\ntwo\\n\"\n");
    check("one\n  \ttwo\n", "a: \"one\\n  \\ttwo\\n\"\n");
}

#[test]
fn what_cannot_be_read_is_named_by_its_line() {
    let check = |text: &str, line: &str| {
        let fault = stream::rewrite(text, |_| false).expect_err("it cannot be read");
        assert!(fault.to_string().contains(line), "{text}: {fault}");
    };
    check("a: {", "begins at line 1 ");
    check("a: 1\n---\nb: 1\n---\nc: [", "begins at line 4 ");
    check("a: &a [1]\nb: *c\n", "begins at line 1 ");
    // Nine aliases of nine aliases, and so on.
    let bomb: String = (1..9)
        .map(|level| {
            format!(
                "l{level}: &l{level} [{}]
",
                vec![format!("*l{}", level - 1); 9].join(",")
            )
        })
        .collect();
    check(&format!("l0: &l0 [x]\n{bomb}"), "begins at line 1 ");
}

#[test]
fn words_and_numbers_are_read_as_kubectl_does() {
    let check = |text: &str, expected: Value| {
        let mut found = Value::Null;
        let read = stream::rewrite(&format!("v: {text}\n"), |document| {
            found = document["v"].take();
            false
        });
        read.unwrap_or_else(|fault| panic!("{text}: {fault}"));
        assert_eq!(found, expected, "{text}");
    };
    check("0644", Value::from(420));
    check("0o644", Value::from(420));
    check("yes", Value::from(true));
    check("Off", Value::from(false));
    check("'yes'", Value::from("yes"));
    check("~", Value::Null);
    check("22:22", Value::from("22:22"));
    check("2001-01-01", Value::from("2001-01-01"));
    check("1.5", Value::from(1.5));
    check("9007199254740993", Value::from(9_007_199_254_740_993_u64));
    check("100m", Value::from("100m"));
}
