//! The admission server: the API server asks it about every pod that is created in a namespace with
//! the label, and it answers with the patch that [`crate::inject`] makes.
//!
//! It keeps nothing, so that any number of instances can answer. The API server speaks to it over TLS
//! only: the certificate comes from files or is made here, and changes while calls go on. The client
//! of the API is a few requests on four kinds of object; a library for all of Kubernetes would bring
//! 26 crates for them.

pub mod review;

pub mod server;

pub mod certificate;

pub mod files;

pub mod api;

pub mod self_made;

pub mod events;

pub mod metrics;
