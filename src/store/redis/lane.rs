//! A lane: one connection, the work that is pinned to it, and what happens when it fails.
//!
//! Subjects are pinned to lanes by their partition, so that operations on one subject reach Redis
//! in the order in which they were asked for. Work of concurrent requests is merged into shared
//! pipelines, and a few pipelines are on their way at a time.
//!
//! A pipeline that does not answer within the budget may still be executed. Its connection is
//! therefore kept, and what it may have claimed is given back on it, behind the claims. If the
//! connection dies, the debts are given back over a fresh one, twice: the server may still be
//! reading what the dead one sent.

use std::{
    collections::VecDeque,
    sync::{
        Arc,
        atomic::{AtomicU64, Ordering},
    },
    time::Duration,
};

use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};
use tokio::{
    sync::{Notify, mpsc},
    time::{Instant, sleep_until},
};

use super::{
    commands::Debt,
    connection::{Connection, Connector},
    pipeline::{self, Boxed, DEBTS_PER_CALL, Drained, Ending, GivenBack},
    work::Work,
};
use crate::{domain::key::KeyScheme, store::StoreError};

/// Pipelines on their way at a time: enough that Redis never waits for this side.
const MAX_IN_FLIGHT: usize = 4;
/// Commands in one pipeline. A piece of work may be larger; it is then sent alone.
const MAX_PIPELINE: usize = 512;
/// Pipelines whose fate is followed at a time.
const MAX_DRAINING: usize = 64;
/// Debts that wait for a connection; more are abandoned and counted.
const MAX_DEBTS: usize = 50_000;
/// Between the two times that a debt is given back over a fresh connection, and before one that met
/// an error is sent again.
const SECOND_SEND_AFTER: Duration = Duration::from_millis(1500);
/// A connection that was late as often in a row is left, though other lanes may do well.
const LATE_TO_LEAVE: u32 = 3;
/// Between attempts to connect for nothing but debts.
const CONNECT_FOR_DEBTS_EVERY: Duration = Duration::from_secs(1);

#[derive(Debug)]
pub(super) struct Job {
    pub(super) work: Work,
    pub(super) queued_at: Instant,
}

/// What lanes count, together.
#[derive(Debug, Default)]
pub(super) struct LaneStats {
    pub(super) connections: AtomicU64,
    pub(super) connects: AtomicU64,
    pub(super) given_back: AtomicU64,
    pub(super) kept: AtomicU64,
    pub(super) abandoned: AtomicU64,
    /// A connection was made.
    pub(super) connected: Notify,
}

pub(super) struct Lane {
    connector: Connector,
    lost: Arc<Notify>,
    schemes: Arc<[KeyScheme]>,
    budget: Duration,
    stats: Arc<LaneStats>,
    waiting: VecDeque<Job>,
    connection: Option<Connection>,
    /// Which connection a pipeline was sent on.
    generation: u64,
    connecting: Option<Boxed<Result<Connection, StoreError>>>,
    in_flight: FuturesUnordered<Boxed<(u64, Ending)>>,
    draining: FuturesUnordered<Boxed<Drained>>,
    /// To be given back as soon as there is a connection, before anything is claimed on it.
    debts: VecDeque<Debt>,
    /// To be given back once more, in the order of their time.
    debts_again: VecDeque<(Instant, Debt)>,
    connect_for_debts_at: Instant,
    /// Pipelines that missed their budget since the last answer. While there are any, the next one
    /// gets no more time than its work has left.
    late_in_a_row: u32,
    last_answer: Instant,
}

impl Lane {
    pub(super) fn new(
        connector: Connector,
        lost: Arc<Notify>,
        schemes: Arc<[KeyScheme]>,
        budget: Duration,
        stats: Arc<LaneStats>,
    ) -> Self {
        Self {
            connector,
            lost,
            schemes,
            budget,
            stats,
            waiting: VecDeque::new(),
            connection: None,
            generation: 0,
            connecting: None,
            in_flight: FuturesUnordered::new(),
            draining: FuturesUnordered::new(),
            debts: VecDeque::new(),
            debts_again: VecDeque::new(),
            connect_for_debts_at: Instant::now(),
            late_in_a_row: 0,
            last_answer: Instant::now(),
        }
    }

    /// Works until every sender of jobs is gone and the last job is answered.
    pub(super) async fn run(mut self, mut jobs: mpsc::UnboundedReceiver<Job>) {
        let mut open = true;
        while open || !self.waiting.is_empty() || !self.in_flight.is_empty() {
            self.advance().await;
            let timer = self.next_timer();
            tokio::select! {
                job = jobs.recv(), if open => match job {
                    Some(job) => {
                        self.waiting.push_back(job);
                        // Whatever else has arrived goes into the same pipeline.
                        while let Ok(job) = jobs.try_recv() {
                            self.waiting.push_back(job);
                        }
                    }
                    None => open = false,
                },
                Some((generation, ending)) = self.in_flight.next(), if !self.in_flight.is_empty() => {
                    self.finished(generation, ending);
                }
                Some(drained) = self.draining.next(), if !self.draining.is_empty() => {
                    self.stats.count(drained.given_back);
                    self.owe(drained.debts);
                    self.owe_again(drained.again);
                }
                connected = wait_for(&mut self.connecting) => self.connected(connected),
                () = self.lost.notified() => self.check_connection().await,
                () = sleep_until(timer) => {}
            }
        }
    }

    /// Sends what can be sent.
    async fn advance(&mut self) {
        self.expire_waiting();
        if self.late_in_a_row > 0
            && self
                .waiting
                .iter()
                .any(|job| matches!(job.work, Work::Canary { .. }))
        {
            // A probe must not wait behind a connection that hangs.
            self.retire();
        }
        if self.connection.is_none() {
            let for_debts = self.owes() && self.connect_for_debts_at <= Instant::now();
            if self.connecting.is_none() && (for_debts || !self.waiting.is_empty()) {
                if self.waiting.is_empty() {
                    self.connect_for_debts_at = Instant::now() + CONNECT_FOR_DEBTS_EVERY;
                }
                let connector = self.connector.clone();
                self.connecting = Some(async move { connector.connect().await }.boxed());
            }
            return;
        }
        self.queue_due_debts();
        while !self.waiting.is_empty() && self.in_flight.len() < MAX_IN_FLIGHT {
            let mut batch = Vec::new();
            let mut weight = 0;
            while let Some(job) = self.waiting.front() {
                if weight > 0 && weight + job.work.weight() > MAX_PIPELINE {
                    break;
                }
                weight += job.work.weight();
                batch.extend(self.waiting.pop_front());
            }
            self.send(batch).await;
        }
    }

    async fn send(&mut self, batch: Vec<Job>) {
        let Some(connection) = &self.connection else {
            return;
        };
        let now = Instant::now();
        let deadline = match batch.first() {
            Some(first) if self.late_in_a_row > 0 => first.queued_at + self.budget,
            _ => now + self.budget,
        };
        let work = batch.into_iter().map(|job| job.work).collect();
        let ending = pipeline::send(work, connection, &self.schemes, deadline).await;
        let generation = self.generation;
        self.in_flight
            .push(async move { (generation, ending.await) }.boxed());
    }

    fn finished(&mut self, generation: u64, ending: Ending) {
        let is_current = generation == self.generation;
        match ending {
            Ending::Answered {
                leave,
                given_back,
                again,
            } => {
                self.stats.count(given_back);
                self.last_answer = Instant::now();
                if is_current {
                    self.late_in_a_row = 0;
                    if leave {
                        self.retire();
                    }
                }
                self.owe_again(again);
            }
            Ending::TooLate { drain, debts } => {
                if is_current {
                    self.late_in_a_row += 1;
                    if self.late_in_a_row >= LATE_TO_LEAVE {
                        self.retire();
                    }
                }
                if self.draining.len() < MAX_DRAINING {
                    self.draining.push(drain);
                } else {
                    self.owe(debts);
                }
            }
            Ending::Broken { debts } => {
                if is_current {
                    self.retire();
                }
                self.owe(debts);
            }
        }
    }

    fn connected(&mut self, connected: Result<Connection, StoreError>) {
        self.connecting = None;
        match connected {
            Ok(connection) => {
                self.connection = Some(connection);
                self.generation += 1;
                self.late_in_a_row = 0;
                self.stats.connections.fetch_add(1, Ordering::Relaxed);
                self.stats.connects.fetch_add(1, Ordering::Relaxed);
                self.stats.connected.notify_one();
            }
            Err(error) => {
                self.connect_for_debts_at = Instant::now() + CONNECT_FOR_DEBTS_EVERY;
                for job in std::mem::take(&mut self.waiting) {
                    self.give_up(job, error);
                }
            }
        }
    }

    /// Some connection ended: if it was this one, nothing has to wait to find out.
    async fn check_connection(&mut self) {
        if self.connection.is_some() {
            self.send(vec![Job {
                work: Work::Ping,
                queued_at: Instant::now(),
            }])
            .await;
        }
    }

    fn retire(&mut self) {
        if let Some(connection) = self.connection.take() {
            self.stats.connections.fetch_sub(1, Ordering::Relaxed);
            connection.retire();
        }
    }

    /// Answers the work that has waited a whole budget without being sent.
    fn expire_waiting(&mut self) {
        let now = Instant::now();
        while let Some(job) = self
            .waiting
            .pop_front_if(|job| job.queued_at + self.budget <= now)
        {
            let error = if self.connection.is_none() {
                StoreError::Connection
            } else if self.last_answer > job.queued_at {
                StoreError::Overloaded
            } else {
                StoreError::Timeout
            };
            self.give_up(job, error);
        }
    }

    /// Answers work that was not sent. Debts are not let go of.
    fn give_up(&mut self, job: Job, error: StoreError) {
        if let Work::GiveBack { debts, .. } = job.work {
            self.owe(debts);
        } else {
            job.work.fail(error);
        }
    }

    /// Debts to be given back twice.
    fn owe(&mut self, debts: Vec<Debt>) {
        let room = MAX_DEBTS.saturating_sub(self.debts.len());
        self.stats.abandon(debts.len().saturating_sub(room));
        self.debts.extend(debts.into_iter().take(room));
    }

    /// Debts to be given back once more, after a while.
    fn owe_again(&mut self, debts: Vec<Debt>) {
        let due = Instant::now() + SECOND_SEND_AFTER;
        let room = MAX_DEBTS.saturating_sub(self.debts_again.len());
        self.stats.abandon(debts.len().saturating_sub(room));
        self.debts_again
            .extend(debts.into_iter().take(room).map(|debt| (due, debt)));
    }

    fn owes(&self) -> bool {
        !self.debts.is_empty() || !self.debts_again.is_empty()
    }

    /// Due debts go before all that waits: a claim must not meet what is about to be given back.
    fn queue_due_debts(&mut self) {
        let now = Instant::now();
        let mut due: Vec<(Vec<Debt>, bool)> = Vec::new();
        while !self.debts.is_empty() {
            let chunk = self.debts.len().min(DEBTS_PER_CALL);
            due.push((self.debts.drain(..chunk).collect(), true));
        }
        let count = self.debts_again.partition_point(|(at, _)| *at <= now);
        let again: Vec<Debt> = self
            .debts_again
            .drain(..count)
            .map(|(_, debt)| debt)
            .collect();
        due.extend(
            again
                .chunks(DEBTS_PER_CALL)
                .map(|chunk| (chunk.to_vec(), false)),
        );
        for (debts, twice) in due.into_iter().rev() {
            self.waiting.push_front(Job {
                work: Work::GiveBack { debts, twice },
                queued_at: now,
            });
        }
    }

    /// When something has to be looked at though nothing happens.
    fn next_timer(&self) -> Instant {
        const IDLE: Duration = Duration::from_secs(3600);
        let waiting = self.waiting.front().map(|job| job.queued_at + self.budget);
        let owed = match &self.connection {
            Some(_) => self.debts_again.front().map(|(due, _)| *due),
            None if self.connecting.is_some() => None,
            None => self.owes().then_some(self.connect_for_debts_at),
        };
        [waiting, owed]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or_else(|| Instant::now() + IDLE)
    }
}

async fn wait_for(
    connecting: &mut Option<Boxed<Result<Connection, StoreError>>>,
) -> Result<Connection, StoreError> {
    match connecting {
        Some(connecting) => connecting.await,
        None => std::future::pending().await,
    }
}

impl LaneStats {
    fn abandon(&self, debts: usize) {
        self.abandoned.fetch_add(debts as u64, Ordering::Relaxed);
    }

    fn count(&self, given_back: GivenBack) {
        self.given_back
            .fetch_add(given_back.deleted, Ordering::Relaxed);
        self.kept.fetch_add(given_back.kept, Ordering::Relaxed);
    }
}
