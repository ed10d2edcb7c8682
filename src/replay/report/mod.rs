//! What a replay found, and how it was made: what every form of output is written from.

pub mod html;
pub mod json;
pub mod text;

use super::{run::Outcome, trace::BadRows};

/// The table of one replay.
#[derive(Clone, Debug)]
pub struct Report {
    /// A file's name, or the recipe in words.
    pub trace: String,
    /// How it was made: name and value, in the order in which they are shown.
    pub settings: Vec<(String, String)>,
    /// What a reader has to know to read the numbers rightly; full sentences.
    pub notes: Vec<String>,
    /// One row for each strategy, in the order in which they were asked for.
    pub outcomes: Vec<Outcome>,
    pub bad_rows: BadRows,
}
