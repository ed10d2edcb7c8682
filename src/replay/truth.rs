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
}

/// Follows occurrences until their last copy.
#[derive(Debug, Default)]
pub struct Truth {
    judged: Judgement,
    /// Admissions of occurrences whose last copy has not come; two generations, so that the older
    /// one can be judged and let go.
    open: [HashMap<u64, u32>; 2],
    turned_at_ns: Option<i64>,
    knows: bool,
}

impl Truth {
    pub fn observe(&mut self, occurrence: Occurrence, arrived_at_ns: i64, admitted: bool) {
        match occurrence {
            Occurrence::Unknown => {}
            Occurrence::Single => {
                self.knows = true;
                self.judge(u32::from(admitted));
            }
            Occurrence::Copy { id, is_last } => {
                self.knows = true;
                self.turn(arrived_at_ns);
                let before = self.open[0]
                    .remove(&id)
                    .or_else(|| self.open[1].remove(&id))
                    .unwrap_or(0);
                let admissions = before + u32::from(admitted);
                if is_last {
                    self.judge(admissions);
                } else {
                    self.open[0].insert(id, admissions);
                }
            }
        }
    }

    fn judge(&mut self, admissions: u32) {
        self.judged.occurrences += 1;
        self.judged.triggered_again += u64::from(admissions > 1);
        self.judged.swallowed += u64::from(admissions == 0);
    }

    fn turn(&mut self, arrived_at_ns: i64) {
        let turned_at = *self.turned_at_ns.get_or_insert(arrived_at_ns);
        if arrived_at_ns.saturating_sub(turned_at) > HORIZON_NS {
            self.turned_at_ns = Some(arrived_at_ns);
            self.open.swap(0, 1);
            let old: Vec<u32> = self.open[0]
                .drain()
                .map(|(_, admissions)| admissions)
                .collect();
            for admissions in old {
                self.judge(admissions);
            }
        }
    }

    /// What became of all occurrences; `None` where the trace does not tell them.
    pub fn finish(mut self) -> Option<Judgement> {
        let open: Vec<u32> = self
            .open
            .iter_mut()
            .flat_map(HashMap::drain)
            .map(|(_, n)| n)
            .collect();
        for admissions in open {
            self.judge(admissions);
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
        truth.observe(Occurrence::Single, 0, true);
        truth.observe(Occurrence::Single, 0, false);
        for (id, is_last, admitted) in [
            (1, false, true),
            (2, false, true),
            (1, true, false),
            (2, false, true),
            (2, true, true),
            (3, false, false),
        ] {
            truth.observe(copy(id, is_last), 0, admitted);
        }
        let expected = Judgement {
            occurrences: 5,
            triggered_again: 1,
            swallowed: 2,
        };
        assert_eq!(truth.finish(), Some(expected));
        assert_eq!(Truth::default().finish(), None);
    }

    #[test]
    fn occurrences_without_a_last_copy_are_let_go_after_the_horizon() {
        let mut truth = Truth::default();
        for turn in 0..10 {
            truth.observe(copy(turn, false), turn as i64 * (HORIZON_NS + 1), true);
            assert!(truth.open.iter().map(HashMap::len).sum::<usize>() <= 3);
        }
        assert_eq!(truth.finish().map(|judged| judged.occurrences), Some(10));
    }
}
