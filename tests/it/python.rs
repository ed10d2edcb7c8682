//! A client that shares no code with the service: generated Python stubs over the wire.

use std::{env, process::Command};

use crate::support::service::{Options, Service};

#[test]
fn end_to_end_by_python() {
    let python = env::var_os("DEDUPD_TEST_PYTHON")
        .expect("DEDUPD_TEST_PYTHON is not set: tests/run.sh installs the interpreter and sets it");
    let service = Service::start(&Options::default());
    let output = Command::new(python)
        .args(["-m", "pytest", "-q", "-p", "no:cacheprovider"])
        .arg("tests/python/test_end_to_end.py")
        .current_dir(env!("CARGO_MANIFEST_DIR"))
        .env("DEDUPD_ADDRESS", service.grpc_addr().to_string())
        .env("PYTHONDONTWRITEBYTECODE", "1")
        .output()
        .expect("the interpreter runs");
    let text = String::from_utf8_lossy(&output.stdout);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{text}{errors}");
    println!("{text}");
}
