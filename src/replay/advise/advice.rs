//! A trace's advice in every form of output.

mod json;
mod page;
mod text;

use super::{
    cost::{Cost, cost},
    evidence::{Evidence, evidence},
    measure::Measured,
    parting::Parting,
    recommend::{Recommendation, part, recommend},
    yaml,
};
use crate::replay::run::Outcome;

/// What was measured, what is recommended, and what it costs.
#[derive(Debug)]
pub struct Advice {
    /// The trace's name.
    pub trace: String,
    /// The namespace's name.
    pub namespace: String,
    pub measured: Measured,
    pub parting: Option<Parting>,
    pub recommendation: Recommendation,
    /// What the recommendation did to the trace, if it was replayed.
    pub replayed: Option<Outcome>,
    pub cost: Cost,
}

impl Advice {
    pub fn new(trace: String, namespace: String, measured: Measured) -> Self {
        let recommendation = recommend(&measured);
        Self {
            trace,
            namespace,
            parting: part(&measured),
            cost: cost(&measured, &recommendation, None),
            measured,
            recommendation,
            replayed: None,
        }
    }

    /// With what came of it when it was replayed: the costs are those then.
    pub fn with_replay(self, outcome: Outcome) -> Self {
        Self {
            cost: cost(&self.measured, &self.recommendation, Some(&outcome)),
            replayed: Some(outcome),
            ..self
        }
    }

    /// A configuration file.
    pub fn yaml(&self) -> String {
        yaml::namespace(&self.namespace, self.measured.kind, &self.recommendation)
    }

    pub fn evidence(&self) -> Vec<Evidence<'_>> {
        evidence(&self.measured, &self.recommendation)
    }

    pub fn text(&self) -> String {
        text::text(self)
    }

    pub fn json(&self) -> String {
        json::json(self)
    }

    /// One self-contained page.
    pub fn html(&self) -> String {
        page::page(self)
    }
}
