//! What a duplicate is.
//!
//! Pure: nothing here does IO, is async, reads a clock, logs, or imports another part of the crate.
//! No module needs one that stands below it.

pub mod reason;

pub mod kind;

mod vector;

mod hexgrid;

pub mod time;

pub mod place;

pub mod projection;

pub mod cells;

pub mod identity;

pub mod key;

pub mod claim;

pub mod reconcile;

pub mod policy;

pub mod event;

pub mod plan;

pub mod token;

pub mod verdict;
