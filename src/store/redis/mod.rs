//! Claims in Redis, shared by a fleet.
//!
//! Work is split by slot over the servers of a cluster. To each there is one lane, with one
//! connection; see [`lane`] for order, budget and what happens when a connection fails.

mod batch;
mod cluster;
mod collector;
mod commands;
mod connection;
mod error;
mod examine;
mod heal;
mod lane;
mod pipeline;
mod routes;
mod script;
mod sentinel;
mod slot;
pub mod target;
mod topology;
mod wire;
mod work;
mod write_back;

use std::{
    fmt,
    sync::{
        Arc,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use futures_util::future::join_all;
use hashbrown::HashMap;
use redis::Value;
use tokio::sync::{mpsc, oneshot};

use self::{
    collector::Collector,
    commands::{Adoption, Debt, Decided, Round},
    connection::Dialer,
    examine::Examiner,
    lane::{Job, LaneStats},
    pipeline::Manner,
    routes::{LaneMaker, LaneSender, Node, Routes},
    script::ScriptCall,
    target::{Target, Topology},
    work::Work,
};
use super::{
    ClaimOutcome, ClaimRequest, Claims, ContractAssertion, Found, GiveBack, QueueFull, Reply,
    SettleRequest, Store, StoreError, StoreStats,
    examination::{Examination, ExamineRequest},
    heal::{HealRequest, Healed},
    write_back::{WriteBack, WrittenBack},
};
use crate::domain::{
    claim::{SettleOutcome, Standing},
    key::{KeyScheme, RESERVED_PREFIX},
};

/// Events in one piece of work, so that a large request does not hold up the others and its parts
/// have a budget each.
const CHUNK: usize = 256;

/// Times that a plan with a space guard is asked about before it is given up. Once is enough but
/// for distances within a micrometre of the guard.
const MAX_ROUNDS: usize = 4;

#[derive(Clone, Debug)]
pub struct RedisOptions {
    pub target: Target,
    /// For each operation, counted from when it is sent.
    pub budget: Duration,
    /// How each namespace writes its keys, in the order of their ids.
    pub schemes: Arc<[KeyScheme]>,
    /// Bound on events that wait for Redis or its answer.
    pub max_queued_events: usize,
}

pub struct RedisStore {
    examiner: Examiner,
    routes: Arc<Routes>,
    schemes: Arc<[KeyScheme]>,
    budget: Duration,
    queue: Arc<Queue>,
    stats: Arc<LaneStats>,
}

impl RedisStore {
    /// Connects to nothing yet: that happens with the first work, save that a cluster is asked for
    /// its servers. The future is the store's own work, to be spawned; it ends when the store is
    /// dropped.
    pub fn new(options: RedisOptions) -> (Self, impl Future<Output = ()> + Send) {
        let RedisOptions {
            target,
            budget,
            schemes,
            max_queued_events,
        } = options;
        let stats = Arc::new(LaneStats::default());
        let target = Arc::new(target);
        let dialer = Dialer::new(Arc::clone(&target), budget);
        let (started, lanes) = mpsc::unbounded_channel();
        let maker = LaneMaker {
            dialer: dialer.clone(),
            manner: Manner {
                schemes: Arc::clone(&schemes),
                per_slot: matches!(target.topology, Topology::Cluster { .. }),
                wait_replicas: target.wait_replicas,
                wait_for: budget / 2,
            },
            budget,
            stats: Arc::clone(&stats),
            started,
        };
        let examiner = Examiner::new(dialer.clone(), Arc::clone(&schemes), budget);
        let (routes, watching) = topology::routes(maker, dialer, &target.topology);
        let queue = Arc::new(Queue {
            events: AtomicUsize::new(0),
            max_events: max_queued_events,
        });
        let store = Self {
            examiner,
            routes,
            schemes,
            budget,
            queue,
            stats,
        };
        (store, topology::drive(lanes, watching))
    }

    /// To the server that has the keys.
    fn lane_of(&self, keys: &[Vec<u8>]) -> Option<LaneSender> {
        let key = keys.first().map_or(&[][..], Vec::as_slice);
        let table = self.routes.table();
        let node = table.node_of(|name| name.extend_from_slice(key))?;
        Some(table.nodes()[node].lane.clone())
    }

    fn call(&self, call: ScriptCall) -> Reply<Result<Value, StoreError>> {
        let (reply, receiver) = oneshot::channel();
        let lane = self.lane_of(&call.keys);
        send(lane.as_ref(), Work::Call { call, reply });
        awaited(receiver)
    }

    fn give_debts_back(&self, debts: &[Debt], twice: bool) {
        let all: Vec<usize> = (0..debts.len()).collect();
        let key = |debt: usize, key: &mut Vec<u8>| key.extend_from_slice(&debts[debt].key);
        for (lane, items) in self.split(&all, key) {
            let debts = items.into_iter().map(|item| debts[item].clone()).collect();
            send(lane.as_ref(), Work::GiveBack { debts, twice });
        }
    }

    /// The items for each lane in chunks, in their order; no lane where no server has their slot.
    fn split(
        &self,
        items: &[usize],
        key: impl Fn(usize, &mut Vec<u8>),
    ) -> Vec<(Option<LaneSender>, Vec<usize>)> {
        let table = self.routes.table();
        let chunks = |node: Option<&Node>, items: &[usize]| {
            let of_lane = |chunk: &[usize]| (node.map(|node| node.lane.clone()), chunk.to_vec());
            items.chunks(CHUNK).map(of_lane).collect::<Vec<_>>()
        };
        if let Some(node) = table.only() {
            return chunks(Some(node), items);
        }
        let nodes = table.nodes();
        let mut by_node = vec![Vec::new(); nodes.len() + 1];
        for &item in items {
            let node = table.node_of(|name| key(item, name));
            by_node[node.unwrap_or(nodes.len())].push(item);
        }
        let by_node = by_node.iter().enumerate();
        by_node
            .flat_map(|(node, items)| chunks(nodes.get(node), items))
            .collect()
    }

    /// Sends one round of a request's plans to their lanes. The answer comes with the plans that
    /// must be asked again, and what is known about them by then.
    fn send_round(
        self: &Arc<Self>,
        request: &Arc<ClaimRequest>,
        plans: &[usize],
        round: Round,
        place: Option<Place>,
        answered: &Arc<AtomicBool>,
    ) -> impl Future<Output = (Claims, HashMap<usize, Vec<u8>>)> + Send + use<> {
        let (sender, receiver) = oneshot::channel();
        let all = request.plans.plans();
        let store = Arc::clone(self);
        let for_claims = Arc::clone(request);
        let own = Decided::Outcome(ClaimOutcome::Own);
        let answered = Arc::clone(answered);
        let collector = Collector::new(all.len(), Ok(own), move |decided| {
            answered.store(true, Ordering::Relaxed);
            drop(place);
            // If nobody waits any more, dropping the claims gives them back.
            drop(sender.send(into_claims(store, for_claims, decided)));
        });
        collector.fill(
            plans
                .iter()
                .map(|&plan| (plan, Err(StoreError::Connection))),
        );
        let round = Arc::new(round);
        let scheme = &self.schemes[usize::from(request.namespace.0)];
        let key = |plan: usize, key: &mut Vec<u8>| {
            let plan = &all[plan];
            scheme.write_key(request.plans.primary(plan), plan.partition(), key);
        };
        for (lane, plans) in self.split(plans, key) {
            let work = Work::Claim {
                request: Arc::clone(request),
                plans,
                round: Arc::clone(&round),
                collector: Arc::clone(&collector),
            };
            send(lane.as_ref(), work);
        }
        let (store, request) = (Arc::clone(self), Arc::clone(request));
        async move {
            receiver.await.unwrap_or_else(|_| {
                let lost = vec![Err(StoreError::Connection); request.plans.plans().len()];
                (Claims::new(store, request, lost), HashMap::new())
            })
        }
    }

    /// Asks until every plan is decided.
    fn send_claims(
        self: Arc<Self>,
        request: Arc<ClaimRequest>,
        plans: Vec<usize>,
        adoption: Adoption,
        place: Option<Place>,
    ) -> Reply<Claims> {
        let known = HashMap::new();
        let answered = Arc::default();
        let round = Round { adoption, known };
        let first = self.send_round(&request, &plans, round, place, &answered);
        Reply::answered_by(Arc::clone(&answered), async move {
            let (mut claims, mut known) = first.await;
            for _ in 1..MAX_ROUNDS {
                if known.is_empty() {
                    break;
                }
                let mut plans: Vec<usize> = known.keys().copied().collect();
                plans.sort_unstable();
                let round = Round { adoption, known };
                let (again, still) = self
                    .send_round(&request, &plans, round, None, &answered)
                    .await;
                claims.amend(&plans, again);
                known = still;
            }
            claims
        })
    }
}

/// The claims of one round, and the plans that it could not decide.
fn into_claims(
    store: Arc<RedisStore>,
    request: Arc<ClaimRequest>,
    decided: Vec<Result<Decided, StoreError>>,
) -> (Claims, HashMap<usize, Vec<u8>>) {
    let mut known = HashMap::new();
    let outcomes = decided
        .into_iter()
        .enumerate()
        .map(|(plan, decided)| match decided {
            Ok(Decided::Outcome(outcome)) => Ok(outcome),
            Ok(Decided::NotNear(values)) => {
                known.insert(plan, values);
                Err(StoreError::TryAgain)
            }
            Err(error) => Err(error),
        });
    let outcomes = outcomes.collect();
    (Claims::new(store, request, outcomes), known)
}

impl fmt::Debug for RedisStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RedisStore")
            .field("queue", &self.queue)
            .finish_non_exhaustive()
    }
}

/// What waits for Redis, over all lanes.
#[derive(Debug)]
struct Queue {
    events: AtomicUsize,
    max_events: usize,
}

/// Room for a request's events, free again when dropped.
#[derive(Debug)]
struct Place {
    queue: Arc<Queue>,
    events: usize,
}

impl Queue {
    /// An empty queue takes any request, so that the largest permitted one always fits.
    fn reserve(self: &Arc<Self>, events: usize) -> Option<Place> {
        self.events
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |queued| {
                (queued == 0 || queued + events <= self.max_events).then_some(queued + events)
            })
            .ok()
            .map(|_| Place {
                queue: Arc::clone(self),
                events,
            })
    }
}

impl Drop for Place {
    fn drop(&mut self) {
        self.queue.events.fetch_sub(self.events, Ordering::Relaxed);
    }
}

impl Store for RedisStore {
    fn claim(
        self: Arc<Self>,
        request: Arc<ClaimRequest>,
        plans: Vec<usize>,
    ) -> Result<Reply<Claims>, QueueFull> {
        let place = self.queue.reserve(plans.len()).ok_or(QueueFull {
            retry_after: self.budget,
        })?;
        Ok(self.send_claims(request, plans, Adoption::Nothing, Some(place)))
    }

    fn adopt(self: Arc<Self>, request: Arc<ClaimRequest>, plans: Vec<usize>) -> Reply<Claims> {
        self.send_claims(request, plans, Adoption::Own, None)
    }

    fn give_back(&self, request: &Arc<ClaimRequest>, claims: Vec<GiveBack>) {
        let scheme = &self.schemes[usize::from(request.namespace.0)];
        let debts = commands::debts(request, &claims, scheme);
        self.give_debts_back(&debts, false);
    }

    fn settle(
        &self,
        request: SettleRequest,
    ) -> Result<Reply<Vec<Result<SettleOutcome, StoreError>>>, QueueFull> {
        let items = request.items.len();
        let place = self.queue.reserve(items).ok_or(QueueFull {
            retry_after: self.budget,
        })?;
        let (sender, receiver) = oneshot::channel();
        let request = Arc::new(request);
        let all: Vec<usize> = (0..items).collect();
        let parts = self.split(&all, |item, key| {
            commands::write_settled_key(&request, item, &self.schemes, key);
        });
        let answered = Arc::<AtomicBool>::default();
        let is_answered = Arc::clone(&answered);
        let collector = Collector::new(items, Err(StoreError::Connection), move |outcomes| {
            is_answered.store(true, Ordering::Relaxed);
            drop(place);
            drop(sender.send(outcomes));
        });
        for (lane, items) in parts {
            let (request, collector) = (Arc::clone(&request), Arc::clone(&collector));
            let work = Work::Settle {
                request,
                items,
                collector,
            };
            send(lane.as_ref(), work);
        }
        Ok(Reply::answered_by(answered, async move {
            receiver
                .await
                .unwrap_or_else(|_| vec![Err(StoreError::Connection); items])
        }))
    }

    fn write_back(&self, batch: &Arc<WriteBack>) -> Reply<Vec<Result<WrittenBack, StoreError>>> {
        self.send_write_back(batch)
    }

    fn withdraw(&self, batch: &Arc<WriteBack>, items: Vec<usize>) {
        self.send_withdrawal(batch, &items);
    }

    fn inspect(&self, request: Arc<ClaimRequest>) -> Reply<Result<Vec<Option<Found>>, StoreError>> {
        if request.plans.plans().is_empty() {
            return Reply::ready(Ok(Vec::new()));
        }
        let keys = commands::plan_keys(&request, &self.schemes[usize::from(request.namespace.0)]);
        let (reply, receiver) = oneshot::channel();
        let lane = self.lane_of(&keys);
        send(lane.as_ref(), Work::Inspect { keys, reply });
        awaited(receiver)
    }

    fn forget(
        &self,
        request: Arc<ClaimRequest>,
        found: Vec<(usize, Standing)>,
    ) -> Reply<Result<Vec<usize>, StoreError>> {
        if request.plans.plans().is_empty() {
            return Reply::ready(Ok(Vec::new()));
        }
        let scheme = &self.schemes[usize::from(request.namespace.0)];
        let deleted = self.call(commands::forget_call(&request, &found, scheme));
        Reply::waiting(async move {
            let Value::Array(deleted) = deleted.await? else {
                return Err(StoreError::Protocol);
            };
            let places = found.into_iter().map(|(place, _)| place).zip(deleted);
            Ok(places
                .filter(|(_, deleted)| *deleted == Value::Int(1))
                .map(|(place, _)| place)
                .collect())
        })
    }

    /// The server must take writes; of a cluster, one of them.
    fn probe(&self) -> Reply<Result<(), StoreError>> {
        let table = self.routes.table();
        let ask = |node: &Node| {
            let (reply, receiver) = oneshot::channel();
            let key = node.canary_key.clone();
            send(Some(&node.lane), Work::Canary { key, reply });
            awaited(receiver)
        };
        let answers: Vec<_> = table.nodes().iter().map(ask).collect();
        Reply::waiting(async move {
            let none = Err(StoreError::ClusterDown);
            let answers = join_all(answers).await.into_iter();
            answers.fold(none, |answer, next| answer.or(takes_work(next)))
        })
    }

    fn assert_contract(&self, assertion: ContractAssertion) -> Reply<Result<String, StoreError>> {
        let ContractAssertion {
            namespace,
            line,
            hold,
            replace,
        } = assertion;
        let key = format!("{RESERVED_PREFIX}contract:{namespace}");
        let line = self.call(commands::contract_call(key, line, hold.get(), replace));
        Reply::waiting(async move {
            match line.await? {
                Value::BulkString(line) => Ok(String::from_utf8_lossy(&line).into_owned()),
                _ => Err(StoreError::Protocol),
            }
        })
    }

    fn heal(&self, request: HealRequest) -> Reply<Vec<Result<Healed, StoreError>>> {
        let calls = heal::calls(&request, &self.schemes);
        let replies = join_all(calls.map(|call| self.call(call)).collect::<Vec<_>>());
        Reply::waiting(async move { replies.await.into_iter().map(heal::outcome).collect() })
    }

    fn examine(&self, request: ExamineRequest) -> Reply<Examination> {
        Reply::waiting(self.examiner.clone().examine(request))
    }

    fn reconnected(&self) -> Reply<()> {
        let stats = Arc::clone(&self.stats);
        Reply::waiting(async move { stats.connected.notified().await })
    }

    fn stats(&self) -> StoreStats {
        let of = |counter: &std::sync::atomic::AtomicU64| counter.load(Ordering::Relaxed);
        StoreStats {
            claims: None,
            bytes: None,
            connections: of(&self.stats.connections),
            queued_events: self.queue.events.load(Ordering::Relaxed) as u64,
            given_back: of(&self.stats.given_back),
            give_backs_kept: of(&self.stats.kept),
            give_backs_abandoned: of(&self.stats.abandoned),
            connects: of(&self.stats.connects),
            redirections: of(&self.stats.redirected),
        }
    }
}

/// A server that is full takes no claims, but it settles them: that is no outage.
fn takes_work(canary: Result<(), StoreError>) -> Result<(), StoreError> {
    match canary {
        Err(StoreError::OutOfMemory) => Ok(()),
        answer => answer,
    }
}

fn send(lane: Option<&LaneSender>, work: Work) {
    match lane {
        Some(lane) => routes::send(lane, Job::new(work)),
        None => work.fail(StoreError::ClusterDown),
    }
}

fn awaited<T: Send + 'static>(
    receiver: oneshot::Receiver<Result<T, StoreError>>,
) -> Reply<Result<T, StoreError>> {
    Reply::waiting(async move { receiver.await.unwrap_or(Err(StoreError::Connection)) })
}
