//! A lane: one connection to a server, all work for it, and what happens when it fails.
//!
//! Operations on one subject reach Redis in the order in which they were asked for, since one server
//! has all its keys. Work of concurrent requests is merged into shared
//! pipelines, and a few pipelines are on their way at a time.
//!
//! A pipeline that does not answer within the budget may still be executed. Its connection is
//! therefore kept, and what it may have claimed is given back on it, behind the claims. If the
//! connection dies, the debts are given back over a fresh one, twice: the server may still be
//! reading what the dead one sent.

mod debts;
mod pace;
mod uplink;

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
    sync::{Notify, mpsc, watch},
    time::{Instant, sleep_until},
};

pub(super) use self::uplink::Whereabouts;
use self::{
    debts::Debts,
    pace::Pace,
    uplink::{Connected, Uplink},
};
use super::{
    connection::Connector,
    error::Redirection,
    pipeline::{self, Answered, Boxed, Drained, Ending, GivenBack, Manner},
    routes::LaneInRoutes,
    target::Address,
    work::Work,
};
use crate::store::StoreError;

/// Pipelines on their way at a time: enough that Redis never waits for this side.
const MAX_IN_FLIGHT: usize = 4;
/// Commands in one pipeline. A piece of work may be larger; it is then sent alone.
const MAX_PIPELINE: usize = 512;
/// Pipelines whose fate is followed at a time.
const MAX_DRAINING: usize = 64;
/// Before a server is asked again some of whose keys are on their way to another.
const ASK_AGAIN_AFTER: Duration = Duration::from_millis(5);
/// Times that work is sent on from one server of a cluster to another.
const MAX_HOPS: u8 = 8;

#[derive(Debug)]
pub(super) struct Job {
    pub(super) work: Work,
    pub(super) queued_at: Instant,
    pub(super) detour: Option<Detour>,
}

/// Work that another server has sent on, or this one has sent away for a moment.
#[derive(Clone, Copy, Debug)]
pub(super) struct Detour {
    hops: u8,
    /// The slot is only on its way to the server.
    asking: bool,
    /// When the budget that began with the first sending ends.
    answer_by: Instant,
}

/// What lanes count, together.
#[derive(Debug, Default)]
pub(super) struct LaneStats {
    pub(super) connections: AtomicU64,
    pub(super) connects: AtomicU64,
    pub(super) given_back: AtomicU64,
    pub(super) kept: AtomicU64,
    pub(super) abandoned: AtomicU64,
    pub(super) redirected: AtomicU64,
    /// A connection was made.
    pub(super) connected: Notify,
}

/// A pipeline on its way.
struct Flight {
    generation: u64,
    sent_at: Instant,
    deadline: Instant,
    hops: u8,
    asking: bool,
    weight: usize,
    /// Commands on their way by then.
    in_flight: usize,
    ending: Ending,
}

pub(super) struct Lane {
    uplink: Uplink,
    manner: Manner,
    budget: Duration,
    stats: Arc<LaneStats>,
    others: LaneInRoutes,
    waiting: VecDeque<Job>,
    /// Work that the server wants to be asked again, in the order of its time.
    later: VecDeque<(Instant, Job)>,
    in_flight: FuturesUnordered<Boxed<Flight>>,
    commands_in_flight: usize,
    pace: Pace,
    draining: FuturesUnordered<Boxed<(u64, Drained)>>,
    debts: Debts,
    last_answer: Instant,
}

impl Lane {
    pub(super) fn new(
        whereabouts: Whereabouts,
        connector: Connector,
        manner: Manner,
        budget: Duration,
        stats: Arc<LaneStats>,
        others: LaneInRoutes,
    ) -> Self {
        Self {
            uplink: Uplink::new(whereabouts, connector, budget),
            manner,
            budget,
            others,
            waiting: VecDeque::new(),
            later: VecDeque::new(),
            in_flight: FuturesUnordered::new(),
            commands_in_flight: 0,
            pace: Pace::new(budget),
            draining: FuturesUnordered::new(),
            debts: Debts::new(Arc::clone(&stats)),
            stats,
            last_answer: Instant::now(),
        }
    }

    /// Works until every sender of jobs is gone and the last job is answered.
    pub(super) async fn run(mut self, mut jobs: mpsc::UnboundedReceiver<Job>) {
        let mut open = true;
        let mut changes = self.uplink.changes();
        let lost = Arc::clone(self.uplink.connector.lost());
        while open || self.is_busy() {
            self.advance().await;
            let timer = self.next_timer();
            tokio::select! {
                job = jobs.recv(), if open => match job {
                    Some(job) => {
                        self.uplink.wanted = true;
                        self.waiting.push_back(job);
                        // Whatever else has arrived goes into the same pipeline.
                        while let Ok(job) = jobs.try_recv() {
                            self.waiting.push_back(job);
                        }
                    }
                    None => open = false,
                },
                Some(flight) = self.in_flight.next(), if !self.in_flight.is_empty() => {
                    self.finished(flight);
                }
                Some((generation, drained)) = self.draining.next(), if !self.draining.is_empty() => {
                    self.drained(generation, drained);
                }
                connected = wait_for(&mut self.uplink.connecting) => self.connected(connected),
                () = lost.notified() => self.check_connection().await,
                primary = changed(&mut changes) => self.uplink.follow(primary),
                () = sleep_until(timer) => {}
            }
        }
        let lost = self.others.hand_over(self.debts.take());
        self.debts.abandon(lost);
    }

    fn is_busy(&self) -> bool {
        !self.waiting.is_empty()
            || !self.later.is_empty()
            || !self.in_flight.is_empty()
            || !self.draining.is_empty()
    }

    /// Sends what can be sent.
    async fn advance(&mut self) {
        self.queue_due_work();
        self.expire_waiting();
        let probes = |job: &Job| matches!(job.work, Work::Canary { .. });
        if self.uplink.is_silent() && self.waiting.iter().any(probes) {
            // A probe must not wait behind a connection that hangs.
            self.uplink.retire();
        }
        if self.uplink.connection().is_none() {
            self.uplink.connect();
            if let Some(error) = self.uplink.down() {
                self.refuse_waiting(error);
            }
            return;
        }
        self.debts.queue(&mut self.waiting);
        while let Some(batch) = self.next_batch() {
            self.send(batch).await;
        }
    }

    /// The next pipeline's work, if one may be sent.
    fn next_batch(&mut self) -> Option<Vec<Job>> {
        let limit = self.pace.limit();
        let room = limit.saturating_sub(self.commands_in_flight);
        let first = self.waiting.front()?;
        let mut weight = first.work.weight();
        let may_send =
            self.in_flight.is_empty() || (self.in_flight.len() < MAX_IN_FLIGHT && weight <= room);
        if !may_send {
            return None;
        }
        let alone = first.detour.is_some();
        let mut batch: Vec<Job> = self.waiting.pop_front().into_iter().collect();
        while let Some(job) = self.waiting.front() {
            weight += job.work.weight();
            if alone || job.detour.is_some() || weight > MAX_PIPELINE.min(room) {
                break;
            }
            batch.extend(self.waiting.pop_front());
        }
        Some(batch)
    }

    async fn send(&mut self, batch: Vec<Job>) {
        let Some(connection) = self.uplink.connection() else {
            return;
        };
        let sent_at = Instant::now();
        let detour = batch.first().and_then(|job| job.detour);
        let deadline = match (detour, batch.first()) {
            (Some(detour), _) => detour.answer_by,
            // Nobody waits two budgets for a server that has not answered anything meanwhile.
            (None, Some(first)) if self.last_answer < first.queued_at => {
                first.queued_at + self.budget
            }
            (None, _) => sent_at + self.budget,
        };
        let weight = batch.iter().map(|job| job.work.weight()).sum();
        let work = batch.into_iter().map(|job| job.work).collect();
        let asking = detour.is_some_and(|detour| detour.asking);
        let ending = pipeline::send(work, connection, &self.manner, asking, deadline).await;
        let generation = self.uplink.generation();
        let hops = detour.map_or(0, |detour| detour.hops);
        self.commands_in_flight += weight;
        let in_flight = self.commands_in_flight;
        let flight = async move {
            Flight {
                generation,
                sent_at,
                deadline,
                hops,
                asking,
                weight,
                in_flight,
                ending: ending.await,
            }
        };
        self.in_flight.push(flight.boxed());
    }

    fn finished(&mut self, flight: Flight) {
        let is_current = flight.generation == self.uplink.generation();
        let now = Instant::now();
        self.commands_in_flight -= flight.weight;
        match flight.ending {
            Ending::Answered(Answered {
                leave,
                given_back,
                again,
                debts,
                redirected,
            }) => {
                self.stats.count(given_back);
                self.last_answer = now;
                if is_current {
                    self.uplink.heard();
                    let took = now - flight.sent_at;
                    self.pace.answered(took, flight.weight, flight.in_flight);
                    if leave {
                        self.uplink.retire();
                    }
                }
                self.debts.owe(debts);
                self.debts.owe_again(again);
                let detour = Detour {
                    hops: flight.hops + 1,
                    asking: flight.asking,
                    answer_by: flight.deadline,
                };
                for (redirection, work) in redirected {
                    self.redirect(redirection, work, detour);
                }
            }
            Ending::TooLate { drain, debts } => {
                if is_current {
                    self.pace.late();
                    if self.uplink.late(flight.sent_at) {
                        self.others.is_up(false);
                    }
                }
                if self.draining.len() < MAX_DRAINING {
                    let generation = flight.generation;
                    let drain = async move { (generation, drain.await) };
                    self.draining.push(drain.boxed());
                } else {
                    self.debts.owe(debts);
                }
            }
            Ending::Broken { debts } => {
                if is_current {
                    self.uplink.retire();
                    self.others.is_up(false);
                }
                self.debts.owe(debts);
            }
        }
    }

    fn drained(&mut self, generation: u64, drained: Drained) {
        if drained.answered && generation == self.uplink.generation() {
            // Slow, but alive.
            self.uplink.heard();
            self.last_answer = Instant::now();
        }
        self.stats.count(drained.given_back);
        self.debts.owe(drained.debts);
        self.debts.owe_again(drained.again);
    }

    /// Work that the cluster wants to be sent elsewhere, or again.
    fn redirect(&mut self, redirection: Redirection, work: Work, detour: Detour) {
        let now = Instant::now();
        self.stats
            .redirected
            .fetch_add(work.weight() as u64, Ordering::Relaxed);
        let mut detour = detour;
        if let Work::GiveBack { debts, .. } = work {
            // Nobody waits for it.
            if detour.hops > MAX_HOPS {
                return self.debts.owe_again(debts);
            }
            detour.answer_by = now + self.budget;
            return self.send_on(redirection, Work::GiveBack { debts, twice: true }, detour);
        }
        if detour.answer_by <= now || detour.hops > MAX_HOPS {
            return work.fail(match redirection {
                Redirection::Again => StoreError::TryAgain,
                Redirection::Moved { .. } | Redirection::Ask { .. } => StoreError::Moved,
            });
        }
        self.send_on(redirection, work, detour);
    }

    fn send_on(&mut self, redirection: Redirection, work: Work, detour: Detour) {
        let now = Instant::now();
        let job = |detour| Job {
            work,
            queued_at: now,
            detour: Some(detour),
        };
        match redirection {
            Redirection::Again => {
                // The budget ends it, not the number of times.
                let again = job(Detour { hops: 0, ..detour });
                self.later.push_back((now + ASK_AGAIN_AFTER, again));
            }
            Redirection::Moved { slot, address } => {
                let asking = false;
                let job = job(Detour { asking, ..detour });
                self.others.forward(address, Some(slot), job);
            }
            Redirection::Ask { address } => {
                let asking = true;
                let job = job(Detour { asking, ..detour });
                self.others.forward(address, None, job);
            }
        }
    }

    fn connected(&mut self, connected: Connected) {
        match self.uplink.connected(connected) {
            Ok(()) => {
                self.others.is_up(true);
                self.stats.connected.notify_one();
            }
            Err(error) => {
                self.others.is_up(false);
                let error = self.others.outage(error);
                for job in std::mem::take(&mut self.waiting) {
                    self.give_up(job, error);
                }
            }
        }
    }

    /// Some connection ended: if it was this one, nothing has to wait to find out.
    async fn check_connection(&mut self) {
        if self.uplink.connection().is_some() {
            self.send(vec![Job::new(Work::Ping)]).await;
        }
    }

    /// Answers at once what waits for a server that is down; a probe waits for the connection.
    fn refuse_waiting(&mut self, error: StoreError) {
        if self.waiting.is_empty() {
            return;
        }
        let error = self.others.outage(error);
        for job in std::mem::take(&mut self.waiting) {
            if matches!(job.work, Work::Canary { .. }) {
                self.waiting.push_back(job);
            } else {
                self.give_up(job, error);
            }
        }
    }

    /// Answers the work that has waited a whole budget without being sent.
    fn expire_waiting(&mut self) {
        let now = Instant::now();
        while let Some(job) = self
            .waiting
            .pop_front_if(|job| job.queued_at + self.budget <= now)
        {
            let error = if self.uplink.connection().is_none() {
                let error = self.uplink.down().unwrap_or(StoreError::Connection);
                self.others.outage(error)
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
            self.debts.owe(debts);
        } else {
            job.work.fail(error);
        }
    }

    fn queue_due_work(&mut self) {
        let now = Instant::now();
        let due = self.later.partition_point(|(at, _)| *at <= now);
        for (_, job) in self.later.drain(..due).rev() {
            self.waiting.push_front(job);
        }
    }

    /// When something has to be looked at though nothing happens.
    fn next_timer(&self) -> Instant {
        const IDLE: Duration = Duration::from_secs(3600);
        let waiting = self.waiting.front().map(|job| job.queued_at + self.budget);
        let later = self.later.front().map(|(due, _)| *due);
        let own = match self.uplink.connection() {
            Some(_) => self.debts.next_due(),
            None => self.uplink.next_attempt(),
        };
        [waiting, later, own]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or_else(|| Instant::now() + IDLE)
    }
}

/// Another primary; never returns where there can be none.
async fn changed(changes: &mut Option<watch::Receiver<Option<Address>>>) -> Address {
    while let Some(receiver) = changes {
        if receiver.changed().await.is_err() {
            *changes = None;
        } else if let Some(primary) = receiver.borrow_and_update().clone() {
            return primary;
        }
    }
    std::future::pending().await
}

async fn wait_for(connecting: &mut Option<Boxed<Connected>>) -> Connected {
    match connecting {
        Some(connecting) => connecting.await,
        None => std::future::pending().await,
    }
}

impl LaneStats {
    fn count(&self, given_back: GivenBack) {
        self.given_back
            .fetch_add(given_back.deleted, Ordering::Relaxed);
        self.kept.fetch_add(given_back.kept, Ordering::Relaxed);
    }
}
