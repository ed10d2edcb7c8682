//! The integration tests, as one binary.

mod oracle;
mod stores;
mod support;
