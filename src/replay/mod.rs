//! Strategies tried on a trace, in simulated time, through the same engine that serves.
//!
//! A trace is read or made up in batches; each strategy decides them as they come and forgets what
//! expires, so that memory is that of the claims that live and not of the trace.

pub mod advise;
pub mod baseline;
pub mod decider;
pub mod read;
pub mod report;
pub mod run;
pub mod strategy;
pub mod synth;
pub mod target;
pub mod trace;
pub mod truth;
pub mod write;
