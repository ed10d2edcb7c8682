//! What a duplicate is.
//!
//! Pure: nothing here does IO, is async, reads a clock, logs, or imports another part of the crate.
//! Modules stand in the order in which data meets them.

pub mod policy;

pub mod time;

pub mod place;

pub mod cells;

pub mod identity;

pub mod event;

pub mod key;

pub mod plan;

pub mod claim;

pub mod token;

pub mod verdict;
