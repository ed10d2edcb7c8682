//! Streams of YAML documents, and JSON, as kubectl reads them.
//!
//! A document that holds no workload, or in which nothing changes, stays as it is byte for byte. One
//! that changes is written anew: comments above its first line stay, those within are lost.

use serde::de::IgnoredAny;
use serde_json::Value;
use serde_saphyr::UserMessageFormatter;

/// Documents change one by one: `change` says whether it changed something.
pub fn rewrite(text: &str, mut change: impl FnMut(&mut Value) -> bool) -> Result<String, Fault> {
    let mut out = String::with_capacity(text.len());
    let mut line = 1;
    for document in split(text) {
        rewrite_document(document, line, &mut out, &mut change)?;
        line += document.lines().count();
    }
    Ok(out)
}

#[derive(Debug, thiserror::Error)]
pub enum Fault {
    #[error("the document that begins at line {line} cannot be read: {message}")]
    Unreadable { line: usize, message: String },
    #[error("the document that begins at line {line} cannot be written: {message}")]
    Unwritable { line: usize, message: String },
}

/// Cut before each line that begins with `---`: nothing else in YAML can.
fn split(text: &str) -> impl Iterator<Item = &str> {
    let mut starts: Vec<usize> = vec![0];
    let mut position = 0;
    for line in text.split_inclusive('\n') {
        if position > 0 && is_marker(line, "---") {
            starts.push(position);
        }
        position += line.len();
    }
    let ends: Vec<usize> = starts.iter().skip(1).copied().chain([text.len()]).collect();
    starts
        .into_iter()
        .zip(ends)
        .map(|(start, end)| &text[start..end])
}

fn is_marker(line: &str, marker: &str) -> bool {
    line.strip_prefix(marker)
        .is_some_and(|rest| rest.is_empty() || rest.starts_with([' ', '\t', '\r', '\n']))
}

fn rewrite_document(
    document: &str,
    line: usize,
    out: &mut String,
    change: &mut impl FnMut(&mut Value) -> bool,
) -> Result<(), Fault> {
    let head = head_bytes(document);
    let body = &document[head..];
    if body.trim().is_empty() {
        out.push_str(document);
        return Ok(());
    }
    if body.starts_with('{') && is_json(body) {
        out.push_str(&document[..head]);
        return rewrite_json(body, line, out, change);
    }
    let mut value = read_yaml(document).map_err(|message| Fault::Unreadable { line, message })?;
    if !change(&mut value) {
        out.push_str(document);
        return Ok(());
    }
    let written = write_yaml(&value).map_err(|message| Fault::Unwritable { line, message })?;
    out.push_str(&document[..head]);
    if is_marker(body, "---") {
        // Its line holds content, too.
        out.push_str("---\n");
    }
    out.push_str(&written);
    if !written.ends_with('\n') {
        out.push('\n');
    }
    if document.lines().any(|line| is_marker(line, "...")) {
        out.push_str("...\n");
    }
    Ok(())
}

/// Its `---`, comments, directives and empty lines before the first line of content.
fn head_bytes(document: &str) -> usize {
    document
        .split_inclusive('\n')
        .take_while(|line| {
            let text = line.strip_prefix("---").unwrap_or(line).trim();
            text.is_empty() || text.starts_with(['#', '%'])
        })
        .map(str::len)
        .sum()
}

fn is_json(text: &str) -> bool {
    serde_json::Deserializer::from_str(text)
        .into_iter::<IgnoredAny>()
        .all(|value| value.is_ok())
}

/// One value behind the other.
fn rewrite_json(
    text: &str,
    line: usize,
    out: &mut String,
    change: &mut impl FnMut(&mut Value) -> bool,
) -> Result<(), Fault> {
    let mut values = serde_json::Deserializer::from_str(text).into_iter::<Value>();
    let mut start = 0;
    while let Some(value) = values.next() {
        let end = values.byte_offset();
        let mut value = value.map_err(|error| Fault::Unreadable {
            line,
            message: error.to_string(),
        })?;
        let original = &text[start..end];
        start = end;
        if change(&mut value) {
            let space = original.len() - original.trim_start().len();
            out.push_str(&original[..space]);
            out.push_str(&format!("{value:#}"));
        } else {
            out.push_str(original);
        }
    }
    out.push_str(&text[start..]);
    Ok(())
}

/// As kubectl does: `yes` and `on` are booleans, `0644` is octal.
fn read_yaml(text: &str) -> Result<Value, String> {
    let options = serde_saphyr::options! {
        budget: serde_saphyr::budget! {
            // One for every byte: a manifest of any size, but no bomb of aliases.
            max_nodes: text.len().max(1),
            max_documents: 1,
        },
        alias_limits: serde_saphyr::alias_limits! {
            max_total_replayed_events: 100_000,
        },
        legacy_octal_numbers: true,
        strict_booleans: false,
        with_snippet: false,
    };
    serde_saphyr::from_str_with_options(text, options)
        .map_err(|error| error.render_with_formatter(&UserMessageFormatter))
}

/// So that a reader of YAML 1.1, as kubectl is, finds the same: words of it are quoted, and so are
/// texts of several lines where the reader takes a tab for a wrong indentation.
fn write_yaml(value: &Value) -> Result<String, String> {
    let options = serde_saphyr::ser_options! {
        prefer_block_scalars: !has_line_with_tab(value),
    };
    serde_saphyr::to_string_with_options(value, options).map_err(|error| error.to_string())
}

fn has_line_with_tab(value: &Value) -> bool {
    match value {
        Value::Null | Value::Bool(_) | Value::Number(_) => false,
        Value::String(text) => {
            let begins_with_tab = |line: &str| line.trim_start_matches(' ').starts_with('\t');
            text.contains('\n') && text.lines().any(begins_with_tab)
        }
        Value::Array(items) => items.iter().any(has_line_with_tab),
        Value::Object(map) => map.values().any(has_line_with_tab),
    }
}
