//! Claims that a lane owes back.

use std::{
    collections::VecDeque,
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use tokio::time::Instant;

use super::{Job, LaneStats, MAX_PIPELINE};
use crate::store::redis::{commands::Debt, work::Work};

/// Debts that wait for a connection; more are abandoned and counted.
const MAX_DEBTS: usize = 50_000;
/// Between the two times that a debt is given back over a fresh connection, and before one that met
/// an error is sent again.
const SECOND_SEND_AFTER: Duration = Duration::from_millis(1500);

#[derive(Debug)]
pub(super) struct Debts {
    /// To be given back as soon as there is a connection, before anything is claimed on it.
    now: VecDeque<Debt>,
    /// To be given back once more, in the order of their time.
    again: VecDeque<(Instant, Debt)>,
    stats: Arc<LaneStats>,
}

impl Debts {
    pub(super) fn new(stats: Arc<LaneStats>) -> Self {
        Self {
            now: VecDeque::new(),
            again: VecDeque::new(),
            stats,
        }
    }

    /// Debts to be given back twice.
    pub(super) fn owe(&mut self, debts: Vec<Debt>) {
        let room = MAX_DEBTS.saturating_sub(self.now.len());
        self.abandon(debts.len().saturating_sub(room));
        self.now.extend(debts.into_iter().take(room));
    }

    /// Debts to be given back once more, after a while.
    pub(super) fn owe_again(&mut self, debts: Vec<Debt>) {
        let due = Instant::now() + SECOND_SEND_AFTER;
        let room = MAX_DEBTS.saturating_sub(self.again.len());
        self.abandon(debts.len().saturating_sub(room));
        let debts = debts.into_iter().take(room);
        self.again.extend(debts.map(|debt| (due, debt)));
    }

    pub(super) fn abandon(&self, debts: usize) {
        let abandoned = &self.stats.abandoned;
        abandoned.fetch_add(debts as u64, Ordering::Relaxed);
    }

    /// When the next one is to be given back once more.
    pub(super) fn next_due(&self) -> Option<Instant> {
        self.again.front().map(|(due, _)| *due)
    }

    pub(super) fn take(&mut self) -> Vec<Debt> {
        let again = self.again.drain(..).map(|(_, debt)| debt);
        self.now.drain(..).chain(again).collect()
    }

    /// Due debts go before all that waits: a claim must not meet what is about to be given back.
    pub(super) fn queue(&mut self, waiting: &mut VecDeque<Job>) {
        let now = Instant::now();
        let due = self.again.partition_point(|(at, _)| *at <= now);
        let again: Vec<Debt> = self.again.drain(..due).map(|(_, debt)| debt).collect();
        let first: Vec<Debt> = self.now.drain(..).collect();
        for (debts, twice) in [(again, false), (first, true)] {
            for chunk in debts.rchunks(MAX_PIPELINE) {
                let debts = chunk.to_vec();
                waiting.push_front(Job::new(Work::GiveBack { debts, twice }));
            }
        }
    }
}
