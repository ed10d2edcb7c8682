//! What a strategy should have done: each occurrence admitted once.

use hashbrown::HashMap;

use super::trace::Occurrence;

/// Copies of an occurrence that are still to come are expected within so much of the trace's time,
/// where nothing says which copy is the last; the occurrence is judged then.
const HORIZON_NS: i64 = 48 * 3600 * 1_000_000_000;

/// Occurrences and what became of them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Judgement {
    pub occurrences: u64,
    /// Admitted more than once: its effect happened twice.
    pub triggered_again: u64,
    /// Never admitted: it was taken for a copy of another.
    pub swallowed: u64,
    /// Nothing was decided about any of its events, which were dead-lettered or to be retried.
    pub refused: u64,
}

/// What became of one event.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fate {
    Admitted,
    Suppressed,
    Refused,
}

/// What became of an occurrence so far; later ones win over earlier ones.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
enum Became {
    Refused,
    Swallowed,
    AdmittedOnce,
    AdmittedAgain,
}

impl Became {
    fn and(self, fate: Fate) -> Self {
        match fate {
            Fate::Refused => self,
            Fate::Suppressed => self.max(Became::Swallowed),
            Fate::Admitted if self >= Became::AdmittedOnce => Became::AdmittedAgain,
            Fate::Admitted => Became::AdmittedOnce,
        }
    }
}

/// Follows occurrences until their last copy.
#[derive(Debug, Default)]
pub struct Truth {
    judged: Judgement,
    /// Occurrences whose last copy has not come; two generations, so that the older one can be
    /// judged and let go.
    open: [HashMap<u64, Became>; 2],
    turned_at_ns: Option<i64>,
    knows: bool,
}

impl Truth {
    pub fn observe(&mut self, occurrence: Occurrence, arrived_at_ns: i64, fate: Fate) {
        match occurrence {
            Occurrence::Unknown => {}
            Occurrence::Single => {
                self.knows = true;
                self.judge(Became::Refused.and(fate));
            }
            Occurrence::Copy { id, is_last } => {
                self.knows = true;
                self.turn(arrived_at_ns);
                let before = self.open[0]
                    .remove(&id)
                    .or_else(|| self.open[1].remove(&id))
                    .unwrap_or(Became::Refused);
                let became = before.and(fate);
                if is_last {
                    self.judge(became);
                } else {
                    self.open[0].insert(id, became);
                }
            }
        }
    }

    fn judge(&mut self, became: Became) {
        let judged = &mut self.judged;
        judged.occurrences += 1;
        match became {
            Became::Refused => judged.refused += 1,
            Became::Swallowed => judged.swallowed += 1,
            Became::AdmittedOnce => {}
            Became::AdmittedAgain => judged.triggered_again += 1,
        }
    }

    fn turn(&mut self, arrived_at_ns: i64) {
        let turned_at = *self.turned_at_ns.get_or_insert(arrived_at_ns);
        if arrived_at_ns.saturating_sub(turned_at) > HORIZON_NS {
            self.turned_at_ns = Some(arrived_at_ns);
            self.open.swap(0, 1);
            let old = std::mem::take(&mut self.open[0]);
            old.into_values().for_each(|became| self.judge(became));
        }
    }

    /// What became of all occurrences; `None` where the trace does not tell them.
    pub fn finish(mut self) -> Option<Judgement> {
        for open in std::mem::take(&mut self.open) {
            open.into_values().for_each(|became| self.judge(became));
        }
        self.knows.then_some(self.judged)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn copy(id: u64, is_last: bool) -> Occurrence {
        Occurrence::Copy { id, is_last }
    }

    #[test]
    fn each_occurrence_is_judged_once() {
        let mut truth = Truth::default();
        truth.observe(Occurrence::Single, 0, Fate::Admitted);
        truth.observe(Occurrence::Single, 0, Fate::Suppressed);
        truth.observe(Occurrence::Single, 0, Fate::Refused);
        for (id, is_last, fate) in [
            (1, false, Fate::Admitted),
            (2, false, Fate::Admitted),
            (1, true, Fate::Suppressed),
            (2, false, Fate::Admitted),
            (2, true, Fate::Admitted),
            (3, false, Fate::Suppressed),
            (3, false, Fate::Refused),
        ] {
            truth.observe(copy(id, is_last), 0, fate);
        }
        let expected = Judgement {
            occurrences: 6,
            triggered_again: 1,
            swallowed: 2,
            refused: 1,
        };
        assert_eq!(truth.finish(), Some(expected));
        assert_eq!(Truth::default().finish(), None);
    }

    #[test]
    fn occurrences_without_a_last_copy_are_let_go_after_the_horizon() {
        let mut truth = Truth::default();
        for turn in 0..10 {
            let at_ns = turn as i64 * (HORIZON_NS + 1);
            truth.observe(copy(turn, false), at_ns, Fate::Admitted);
            assert!(truth.open.iter().map(HashMap::len).sum::<usize>() <= 3);
        }
        assert_eq!(truth.finish().map(|judged| judged.occurrences), Some(10));
    }
}
