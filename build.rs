//! Compiles `proto/` with protox, so that no protoc is needed on the machine.

use std::{env, error::Error, fs, path::PathBuf};

use prost::Message;
use tonic_build::manual;

const FILES: [&str; 2] = ["dedupd/v1/dedup.proto", "dedupd/v1/inspect.proto"];

fn main() -> Result<(), Box<dyn Error>> {
    println!("cargo:rerun-if-changed=proto");
    let descriptors = protox::compile(FILES, ["proto"])?;
    let out = PathBuf::from(env::var("OUT_DIR")?);
    fs::write(out.join("dedupd.binpb"), descriptors.encode_to_vec())?;
    tonic_prost_build::configure()
        .bytes(".")
        .build_transport(true)
        .compile_fds(descriptors)?;
    manual::Builder::new()
        .build_client(false)
        .compile(&[dedup_service()]);
    Ok(())
}

/// `DedupService` for the server, whose hot calls take and give bytes: `src/grpc/wire` reads and
/// writes them.
fn dedup_service() -> manual::Service {
    const GENERATED: &str = "tonic_prost::ProstCodec";
    const WIRE: &str = "crate::grpc::wire::Unread";
    let method = |name: &str, route: &str, codec: &str, input: &str, output: &str| {
        manual::Method::builder()
            .name(name)
            .route_name(route)
            .codec_path(codec)
            .input_type(input)
            .output_type(output)
    };
    let bytes = |name: &str, route: &str| {
        let (input, output) = ("crate::grpc::wire::Received", "crate::grpc::wire::Encoded");
        method(name, route, WIRE, input, output)
    };
    let messages = |name: &str, route: &str| {
        let message = |what: &str| format!("crate::grpc::proto::{route}{what}");
        method(
            name,
            route,
            GENERATED,
            &message("Request"),
            &message("Response"),
        )
        .build()
    };
    manual::Service::builder()
        .name("DedupService")
        .package("dedupd.v1")
        .method(bytes("admit", "Admit").build())
        .method(messages("confirm", "Confirm"))
        .method(messages("release", "Release"))
        .method(messages("renew", "Renew"))
        .method(
            bytes("stream", "Stream")
                .client_streaming()
                .server_streaming()
                .build(),
        )
        .build()
}
