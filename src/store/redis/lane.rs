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

use backon::{BackoffBuilder, ExponentialBackoff, ExponentialBuilder};
use futures_util::{FutureExt, StreamExt, stream::FuturesUnordered};
use tokio::{
    sync::{Notify, mpsc, watch},
    time::{Instant, sleep_until},
};

use super::{
    commands::Debt,
    connection::{Connection, Connector, DialError},
    error::Redirection,
    pace::Pace,
    pipeline::{self, Answered, Boxed, Drained, Ending, GivenBack, Manner},
    routes::LaneInRoutes,
    sentinel::Sentinels,
    target::{Address, Endpoint},
    work::Work,
};
use crate::store::StoreError;

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
/// A connection that has been silent for so many budgets is left, though other lanes may do well.
const BUDGETS_TO_LEAVE: u32 = 3;
/// Between attempts to connect: the longest is half of what recovery may take.
const MIN_CONNECT_DELAY: Duration = Duration::from_millis(50);
const MAX_CONNECT_DELAY: Duration = Duration::from_secs(1);
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

/// Where a lane's server is.
#[derive(Clone, Debug)]
pub(super) enum Whereabouts {
    Fixed(Endpoint),
    /// The primary that the sentinels name.
    Primary(Arc<Sentinels>),
}

impl Whereabouts {
    async fn find(&self) -> Result<Endpoint, DialError> {
        match self {
            Whereabouts::Fixed(endpoint) => Ok(endpoint.clone()),
            Whereabouts::Primary(sentinels) => sentinels.find().await.map(Endpoint::Tcp),
        }
    }

    fn changes(&self) -> Option<watch::Receiver<Option<Address>>> {
        match self {
            Whereabouts::Fixed(_) => None,
            Whereabouts::Primary(sentinels) => Some(sentinels.primary()),
        }
    }
}

type Connected = Result<(Connection, Endpoint), DialError>;

/// A pipeline on its way.
struct Flight {
    generation: u64,
    sent_at: Instant,
    deadline: Instant,
    hops: u8,
    weight: usize,
    /// Commands on their way by then.
    in_flight: usize,
    ending: Ending,
}

pub(super) struct Lane {
    whereabouts: Whereabouts,
    connector: Connector,
    manner: Manner,
    budget: Duration,
    stats: Arc<LaneStats>,
    others: LaneInRoutes,
    waiting: VecDeque<Job>,
    /// Work that the server wants to be asked again, in the order of its time.
    later: VecDeque<(Instant, Job)>,
    connection: Option<(Connection, Endpoint)>,
    /// Which connection a pipeline was sent on.
    generation: u64,
    connecting: Option<Boxed<Connected>>,
    /// Not before this.
    connect_at: Instant,
    connect_delays: ExponentialBackoff,
    /// Something was asked of this lane: it is connected from then on.
    wanted: bool,
    /// The last attempt to connect failed, or the last connection was silent for too long: work is
    /// refused at once until there is a connection.
    down: Option<StoreError>,
    in_flight: FuturesUnordered<Boxed<Flight>>,
    commands_in_flight: usize,
    pace: Pace,
    draining: FuturesUnordered<Boxed<(u64, Drained)>>,
    /// To be given back as soon as there is a connection, before anything is claimed on it.
    debts: VecDeque<Debt>,
    /// To be given back once more, in the order of their time.
    debts_again: VecDeque<(Instant, Debt)>,
    /// Since when the connection owes an answer beyond the budget. While it does, the next pipeline
    /// gets no more time than its work has left.
    silent_since: Option<Instant>,
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
        let now = Instant::now();
        Self {
            whereabouts,
            connector,
            manner,
            budget,
            stats,
            others,
            waiting: VecDeque::new(),
            later: VecDeque::new(),
            connection: None,
            generation: 0,
            connecting: None,
            connect_at: now,
            connect_delays: connect_delays(),
            wanted: false,
            down: None,
            in_flight: FuturesUnordered::new(),
            commands_in_flight: 0,
            pace: Pace::new(budget),
            draining: FuturesUnordered::new(),
            debts: VecDeque::new(),
            debts_again: VecDeque::new(),
            silent_since: None,
            last_answer: now,
        }
    }

    /// Works until every sender of jobs is gone and the last job is answered.
    pub(super) async fn run(mut self, mut jobs: mpsc::UnboundedReceiver<Job>) {
        let mut open = true;
        let mut changes = self.whereabouts.changes();
        let lost = Arc::clone(self.connector.lost());
        while open || self.is_busy() {
            self.advance().await;
            let timer = self.next_timer();
            tokio::select! {
                job = jobs.recv(), if open => match job {
                    Some(job) => {
                        self.wanted = true;
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
                connected = wait_for(&mut self.connecting) => self.connected(connected),
                () = lost.notified() => self.check_connection().await,
                () = changed(&mut changes) => self.follow(&changes),
                () = sleep_until(timer) => {}
            }
        }
        self.retire();
        let debts: Vec<Debt> = self.take_debts();
        let lost = self.others.hand_over(debts);
        self.stats.abandon(lost);
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
        if self.silent_since.is_some()
            && self
                .waiting
                .iter()
                .any(|job| matches!(job.work, Work::Canary { .. }))
        {
            // A probe must not wait behind a connection that hangs.
            self.retire();
        }
        if self.connection.is_none() {
            if self.connecting.is_none() && self.wanted && self.connect_at <= Instant::now() {
                self.connect();
            }
            if let Some(error) = self.down {
                self.refuse_waiting(error);
            }
            return;
        }
        self.queue_debts();
        while let Some(batch) = self.next_batch() {
            self.send(batch).await;
        }
    }

    fn connect(&mut self) {
        let (whereabouts, connector) = (self.whereabouts.clone(), self.connector.clone());
        let connecting = async move {
            let endpoint = whereabouts.find().await?;
            let connection = connector.connect(&endpoint).await?;
            Ok((connection, endpoint))
        };
        self.connecting = Some(connecting.boxed());
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
        let Some((connection, _)) = &self.connection else {
            return;
        };
        let sent_at = Instant::now();
        let detour = batch.first().and_then(|job| job.detour);
        let deadline = match (detour, batch.first()) {
            (Some(detour), _) => detour.answer_by,
            (None, Some(first)) if self.silent_since.is_some() => first.queued_at + self.budget,
            (None, _) => sent_at + self.budget,
        };
        let weight = batch.iter().map(|job| job.work.weight()).sum();
        let work = batch.into_iter().map(|job| job.work).collect();
        let asking = detour.is_some_and(|detour| detour.asking);
        let ending = pipeline::send(work, connection, &self.manner, asking, deadline).await;
        let generation = self.generation;
        let hops = detour.map_or(0, |detour| detour.hops);
        self.commands_in_flight += weight;
        let in_flight = self.commands_in_flight;
        let flight = async move {
            Flight {
                generation,
                sent_at,
                deadline,
                hops,
                weight,
                in_flight,
                ending: ending.await,
            }
        };
        self.in_flight.push(flight.boxed());
    }

    fn finished(&mut self, flight: Flight) {
        let is_current = flight.generation == self.generation;
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
                    self.silent_since = None;
                    let took = now - flight.sent_at;
                    self.pace.answered(took, flight.weight, flight.in_flight);
                    if leave {
                        self.retire();
                    }
                }
                self.owe(debts);
                self.owe_again(again);
                let detour = Detour {
                    hops: flight.hops + 1,
                    asking: false,
                    answer_by: flight.deadline,
                };
                for (redirection, work) in redirected {
                    self.redirect(redirection, work, detour);
                }
            }
            Ending::TooLate { drain, debts } => {
                if is_current {
                    self.pace.late();
                    let since = *self.silent_since.get_or_insert(flight.sent_at);
                    if now >= since + self.budget * BUDGETS_TO_LEAVE {
                        self.leave_silent();
                    }
                }
                if self.draining.len() < MAX_DRAINING {
                    let generation = flight.generation;
                    let drain = async move { (generation, drain.await) };
                    self.draining.push(drain.boxed());
                } else {
                    self.owe(debts);
                }
            }
            Ending::Broken { debts } => {
                if is_current {
                    self.retire();
                    self.others.is_up(false);
                }
                self.owe(debts);
            }
        }
    }

    fn drained(&mut self, generation: u64, drained: Drained) {
        if drained.answered && generation == self.generation {
            // Slow, but alive.
            self.silent_since = None;
            self.last_answer = Instant::now();
        }
        self.stats.count(drained.given_back);
        self.owe(drained.debts);
        self.owe_again(drained.again);
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
                return self.owe_again(debts);
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
                self.others.forward(address, Some(slot), job(detour));
            }
            Redirection::Ask { address } => {
                let asking = true;
                self.others
                    .forward(address, None, job(Detour { asking, ..detour }));
            }
        }
    }

    fn connected(&mut self, connected: Connected) {
        self.connecting = None;
        match connected {
            Ok(connection) => {
                self.connection = Some(connection);
                self.generation += 1;
                self.silent_since = None;
                self.down = None;
                self.connect_delays = connect_delays();
                self.connect_at = Instant::now() + MIN_CONNECT_DELAY;
                self.others.is_up(true);
                self.stats.connected.notify_one();
            }
            Err(refused) => {
                tracing::debug!(%refused, "could not connect to the store");
                self.is_down(refused.error);
                let delay = self.connect_delays.next().unwrap_or(MAX_CONNECT_DELAY);
                self.connect_at = Instant::now() + delay.min(MAX_CONNECT_DELAY);
                let error = self.others.outage(refused.error);
                for job in std::mem::take(&mut self.waiting) {
                    self.give_up(job, error);
                }
            }
        }
    }

    /// The sentinels name a primary: if it is not this one, this one is left.
    fn follow(&mut self, changes: &Option<watch::Receiver<Option<Address>>>) {
        let named = changes
            .as_ref()
            .and_then(|changes| changes.borrow().clone());
        let (Some((_, current)), Some(named)) = (&self.connection, named) else {
            return;
        };
        if *current != Endpoint::Tcp(named) {
            self.retire();
        }
    }

    /// Some connection ended: if it was this one, nothing has to wait to find out.
    async fn check_connection(&mut self) {
        if self.connection.is_some() {
            self.send(vec![Job::new(Work::Ping)]).await;
        }
    }

    /// The socket lives on while replies on it are awaited.
    fn retire(&mut self) {
        self.connection = None;
        self.silent_since = None;
    }

    fn leave_silent(&mut self) {
        self.retire();
        self.is_down(StoreError::Timeout);
    }

    fn is_down(&mut self, error: StoreError) {
        self.down = Some(error);
        self.others.is_up(false);
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
            let error = if self.connection.is_none() {
                self.others
                    .outage(self.down.unwrap_or(StoreError::Connection))
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

    fn take_debts(&mut self) -> Vec<Debt> {
        let again = self.debts_again.drain(..).map(|(_, debt)| debt);
        self.debts.drain(..).chain(again).collect()
    }

    fn queue_due_work(&mut self) {
        let now = Instant::now();
        let due = self.later.partition_point(|(at, _)| *at <= now);
        for (_, job) in self.later.drain(..due).rev() {
            self.waiting.push_front(job);
        }
    }

    /// Due debts go before all that waits: a claim must not meet what is about to be given back.
    fn queue_debts(&mut self) {
        let now = Instant::now();
        let due = self.debts_again.partition_point(|(at, _)| *at <= now);
        let again: Vec<Debt> = self
            .debts_again
            .drain(..due)
            .map(|(_, debt)| debt)
            .collect();
        let first: Vec<Debt> = self.debts.drain(..).collect();
        for (debts, twice) in [(again, false), (first, true)] {
            for chunk in debts.rchunks(MAX_PIPELINE) {
                let debts = chunk.to_vec();
                let work = Work::GiveBack { debts, twice };
                self.waiting.push_front(Job::new(work));
            }
        }
    }

    /// When something has to be looked at though nothing happens.
    fn next_timer(&self) -> Instant {
        const IDLE: Duration = Duration::from_secs(3600);
        let waiting = self.waiting.front().map(|job| job.queued_at + self.budget);
        let later = self.later.front().map(|(due, _)| *due);
        let own = match &self.connection {
            Some(_) => self.debts_again.front().map(|(due, _)| *due),
            None if self.connecting.is_some() => None,
            None => self.wanted.then_some(self.connect_at),
        };
        [waiting, later, own]
            .into_iter()
            .flatten()
            .min()
            .unwrap_or_else(|| Instant::now() + IDLE)
    }
}

fn connect_delays() -> ExponentialBackoff {
    ExponentialBuilder::default()
        .with_min_delay(MIN_CONNECT_DELAY)
        .with_max_delay(MAX_CONNECT_DELAY)
        .with_jitter()
        .without_max_times()
        .build()
}

/// Never returns where nothing can change.
async fn changed(changes: &mut Option<watch::Receiver<Option<Address>>>) {
    if let Some(receiver) = changes {
        if receiver.changed().await.is_ok() {
            return;
        }
        *changes = None;
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
    fn abandon(&self, debts: usize) {
        self.abandoned.fetch_add(debts as u64, Ordering::Relaxed);
    }

    fn count(&self, given_back: GivenBack) {
        self.given_back
            .fetch_add(given_back.deleted, Ordering::Relaxed);
        self.kept.fetch_add(given_back.kept, Ordering::Relaxed);
    }
}
