//! What window, guard, resolution and TTL a trace asks for: measured, chosen, and what it costs.
//!
//! One reading measures, in bounded memory; the rules that come of it can be replayed over the same
//! trace by the engine itself, which is the proof.

pub mod advice;
pub mod assets;
pub mod copies;
pub mod cost;
pub mod distribution;
pub mod evidence;
pub mod measure;
pub mod parting;
pub mod recommend;
pub mod stops;

mod rounding;
mod sample;
mod units;
mod yaml;
