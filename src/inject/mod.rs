//! A dedupd beside an app: what it takes to put one into a pod, and to take it out again.
//!
//! Pure. A pod is the JSON of any Kubernetes version, of which only what matters here is looked at;
//! the result is a JSON patch (RFC 6902), which the admission server sends and the command line
//! applies, so that both do the same. The sidecar is a native one (an init container that is
//! restarted always): it listens before the app starts and ends after it.

pub mod annotations;

pub mod outcome;

mod sidecar;

mod pod;

mod patch;

mod uninject;

pub mod workload;

pub mod stream;

#[cfg(test)]
mod tests;

pub use self::{
    outcome::{Injection, Outcome, Refusal, Refused, Skip},
    patch::{Ask, inject},
    uninject::uninject,
};
