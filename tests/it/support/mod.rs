//! What the tests run against: a real Redis, a faulty wire to it, the real binary.

#![allow(
    dead_code,
    reason = "this is a kit: a test takes what it needs, and may be the last to do so"
)]

pub(crate) mod certificates;
pub(crate) mod program;
pub(crate) mod proxy;
pub(crate) mod redis;
pub(crate) mod service;
