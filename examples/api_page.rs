//! Prints docs/api.md from the comments in `proto/`:
//! `cargo run --example api_page > docs/api.md`.

use std::error::Error;

use prost::Message;
use prost_types::{
    DescriptorProto, EnumDescriptorProto, FieldDescriptorProto, FileDescriptorProto,
    FileDescriptorSet, ServiceDescriptorProto, field_descriptor_proto::Type,
};

// Not those of the library: with them this would link all of it.
const DESCRIPTORS: &[u8] = include_bytes!(concat!(env!("OUT_DIR"), "/dedupd.binpb"));
const FILES: [&str; 4] = ["dedup", "event", "verdict", "inspect"];
const HEAD: &str = "\
# The API, `dedupd.v1`

From the comments in [`proto/`](../proto/dedupd/v1), by `cargo run --example api_page > docs/api.md`.
A field marked *optional* can be told from one that is zero. New fields, values and calls may be
added; numbers are never used again. What each status means and how leases work:
[what is guaranteed](guarantees.md). Real calls: [grpcurl](grpcurl.md).";

// Numbers of fields in descriptor.proto, of which paths to comments are made.
const MESSAGES: i32 = 4;
const ENUMS: i32 = 5;
const SERVICES: i32 = 6;
const MEMBERS: i32 = 2;
const ONEOFS: i32 = 8;

fn main() -> Result<(), Box<dyn Error>> {
    let set = FileDescriptorSet::decode(DESCRIPTORS)?;
    println!("{HEAD}");
    for name in FILES {
        let path = format!("dedupd/v1/{name}.proto");
        let file = set.file.iter().find(|file| file.name() == path);
        print_file(file.ok_or(path)?);
    }
    Ok(())
}

fn print_file(file: &FileDescriptorProto) {
    println!("\n## {}", file.name());
    for (service, place) in file.service.iter().zip(0..) {
        print_service(file, service, &[SERVICES, place]);
    }
    for (message, place) in file.message_type.iter().zip(0..) {
        print_message(file, message, &[MESSAGES, place]);
    }
    for (values, place) in file.enum_type.iter().zip(0..) {
        print_enum(file, values, &[ENUMS, place]);
    }
}

fn print_service(file: &FileDescriptorProto, service: &ServiceDescriptorProto, path: &[i32]) {
    print_head(service.name(), &comment(file, path));
    println!("\n| call | request | answer | |\n| --- | --- | --- | --- |");
    for (method, place) in service.method.iter().zip(0..) {
        let stream = |is_stream| if is_stream { "stream of " } else { "" };
        println!(
            "| `{}` | {}{} | {}{} | {} |",
            method.name(),
            stream(method.client_streaming()),
            link(method.input_type()),
            stream(method.server_streaming()),
            link(method.output_type()),
            comment(file, &[path, &[MEMBERS, place]].concat()),
        );
    }
}

fn print_message(file: &FileDescriptorProto, message: &DescriptorProto, path: &[i32]) {
    let is_map = |nested: &DescriptorProto| nested.options.as_ref().is_some_and(|o| o.map_entry());
    assert!(
        message.nested_type.iter().all(is_map) && message.enum_type.is_empty(),
        "{}: nested types have no place on this page",
        message.name()
    );
    print_head(message.name(), &comment(file, path));
    for (oneof, place) in message.oneof_decl.iter().zip(0..) {
        let text = comment(file, &[path, &[ONEOFS, place]].concat());
        if !text.is_empty() {
            println!("\n`{}`: {text}", oneof.name());
        }
    }
    if message.field.is_empty() {
        println!("\nEmpty.");
    } else {
        println!("\n| field | number | type | |\n| --- | --- | --- | --- |");
    }
    for (field, place) in message.field.iter().zip(0..) {
        println!(
            "| `{}` | {} | {} | {} |",
            field.name(),
            field.number(),
            type_of(message, field),
            comment(file, &[path, &[MEMBERS, place]].concat()),
        );
    }
    let numbers = message.reserved_range.iter().map(|range| {
        // The end is exclusive.
        (range.start()..range.end())
            .map(|number| number.to_string())
            .collect::<Vec<_>>()
            .join(", ")
    });
    let names = message.reserved_name.iter().map(|name| format!("`{name}`"));
    let reserved: Vec<_> = numbers.chain(names).collect();
    if !reserved.is_empty() {
        println!("\nReserved: {}.", reserved.join(", "));
    }
}

fn print_enum(file: &FileDescriptorProto, values: &EnumDescriptorProto, path: &[i32]) {
    print_head(values.name(), &comment(file, path));
    println!("\n| value | number | |\n| --- | --- | --- |");
    for (value, place) in values.value.iter().zip(0..) {
        println!(
            "| `{}` | {} | {} |",
            value.name(),
            value.number(),
            comment(file, &[path, &[MEMBERS, place]].concat()),
        );
    }
}

fn print_head(name: &str, text: &str) {
    println!("\n### {name}");
    if !text.is_empty() {
        println!("\n{text}");
    }
}

/// The comment before a declaration, as one line.
fn comment(file: &FileDescriptorProto, path: &[i32]) -> String {
    let locations = file.source_code_info.iter().flat_map(|info| &info.location);
    let comment = locations
        .filter(|location| location.path == path)
        .find_map(|location| location.leading_comments.as_deref());
    let lines = comment.unwrap_or_default().lines().map(str::trim);
    lines.collect::<Vec<_>>().join(" ").replace('|', "\\|")
}

fn type_of(message: &DescriptorProto, field: &FieldDescriptorProto) -> String {
    let entry_name = field.type_name().rsplit('.').next();
    let mut entries = message.nested_type.iter();
    if let Some(entry) = entries.find(|entry| Some(entry.name()) == entry_name) {
        let [key, value] = [0, 1].map(|place| type_of(entry, &entry.field[place]));
        return format!("map of {key} to {value}");
    }
    let name = match field.r#type() {
        Type::Message | Type::Enum => link(field.type_name()),
        scalar => scalar.as_str_name()["TYPE_".len()..].to_lowercase(),
    };
    let repeated = field.label() == prost_types::field_descriptor_proto::Label::Repeated;
    match field.oneof_index {
        Some(_) if field.proto3_optional() => format!("optional {name}"),
        Some(place) => {
            let oneof = &message.oneof_decl[usize::try_from(place).expect("an index")];
            format!("{name}, one of `{}`", oneof.name())
        }
        None if repeated => format!("repeated {name}"),
        None => name,
    }
}

/// To a type of this page; others by their full name.
fn link(type_name: &str) -> String {
    match type_name.strip_prefix(".dedupd.v1.") {
        Some(name) => format!("[{name}](#{})", name.to_lowercase()),
        None => format!("`{}`", type_name.trim_start_matches('.')),
    }
}
