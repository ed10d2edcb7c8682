//! A program that is given its input and runs to its end.

use std::{
    io::Write,
    process::{Command, Output, Stdio},
    thread,
};

/// What it does not read of `input` is lost.
pub(crate) fn output_of(command: &mut Command, input: &[u8]) -> Output {
    let mut child = command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped())
        .spawn()
        .expect("it runs");
    let mut stdin = child.stdin.take().expect("stdin is piped");
    // Beside the reading: neither side waits for a full pipe of the other.
    thread::scope(|scope| {
        scope.spawn(move || {
            // A child that ends before it reads closes the pipe: that is not a fault of the test.
            let _ = stdin.write_all(input);
        });
        child.wait_with_output().expect("it ends")
    })
}
