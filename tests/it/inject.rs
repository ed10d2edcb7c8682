//! `dedupd inject`, `uninject` and `webhook`: a dedupd beside the apps of pods.

mod api_server;
mod documents;
mod golden;
mod manifests;
mod property;
mod renewal;
mod reviews;
mod support;
