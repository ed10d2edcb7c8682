//! Compiles `proto/` with protox, so that no protoc is needed on the machine.

use std::{env, error::Error, fs, path::PathBuf};

use prost::Message;

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
    Ok(())
}
