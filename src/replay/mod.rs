//! Strategies tried on a trace, in simulated time, through the same engine that serves.

pub mod baseline;
pub mod read;
pub mod report;
pub mod run;
pub mod strategy;
pub mod synth;
pub mod trace;
pub mod truth;
