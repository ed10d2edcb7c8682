//! Which lane a key's work goes to: one server has all keys, or each of a cluster's has its slots.

use std::{
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use arc_swap::ArcSwap;
use parking_lot::Mutex;
use tokio::{
    sync::{Notify, mpsc},
    time::Instant,
};

use super::{
    cluster::SlotMap,
    commands::Debt,
    connection::{Connector, Dialer},
    lane::{Job, Lane, LaneStats, Whereabouts},
    pipeline::{Boxed, Manner},
    slot::{SLOTS, slot_of},
    target::{Address, Endpoint},
    work::Work,
};
use crate::store::StoreError;

const CANARY_KEY: &str = "dedupd:canary";
const UNASSIGNED: u16 = u16::MAX;

pub(super) type LaneSender = mpsc::UnboundedSender<Job>;

/// What every lane is made with.
pub(super) struct LaneMaker {
    pub(super) dialer: Dialer,
    pub(super) manner: Manner,
    pub(super) budget: Duration,
    pub(super) stats: Arc<LaneStats>,
    /// The lanes' own work, for whoever drives it.
    pub(super) started: mpsc::UnboundedSender<Boxed<()>>,
}

/// A server and the lane to it. One connection keeps Redis busy, which works on one core: with
/// several, what could share a pipeline would be spread over shorter ones.
#[derive(Clone)]
pub(super) struct Node {
    address: Option<Address>,
    pub(super) lane: LaneSender,
    pub(super) canary_key: Vec<u8>,
    up: Arc<AtomicBool>,
}

pub(super) struct Table {
    nodes: Vec<Node>,
    /// The place in `nodes` for each slot; `None`: there is one server.
    slots: Option<Vec<u16>>,
}

impl Table {
    pub(super) fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// There is one server, which has all keys.
    pub(super) fn only(&self) -> Option<&Node> {
        self.nodes.first().filter(|_| self.slots.is_none())
    }

    /// The place in [`Self::nodes`] of the server that has a key; `None`: none has its slot.
    pub(super) fn node_of(&self, key: impl FnOnce(&mut Vec<u8>)) -> Option<usize> {
        let Some(slots) = &self.slots else {
            return Some(0);
        };
        let mut name = Vec::with_capacity(64);
        key(&mut name);
        let node = slots[slot_of(&name)];
        (node != UNASSIGNED).then(|| usize::from(node))
    }

    fn slots_of(&self, node: usize) -> impl Iterator<Item = usize> {
        let slots = self.slots.as_deref().unwrap_or_default();
        (0..slots.len()).filter(move |&slot| usize::from(slots[slot]) == node)
    }
}

pub(super) struct Routes {
    table: ArcSwap<Table>,
    maker: LaneMaker,
    /// Tables are made from the one before, one at a time.
    changing: Mutex<()>,
    /// Told when the cluster may have changed.
    stale: Arc<Notify>,
}

impl Routes {
    /// To one server at a time.
    pub(super) fn to_one(maker: LaneMaker, whereabouts: Whereabouts) -> Arc<Self> {
        Self::new(maker, |routes| Table {
            nodes: vec![routes.node(&whereabouts, None, CANARY_KEY.into())],
            slots: None,
        })
    }

    /// To the servers of a cluster, none of which is known yet.
    pub(super) fn to_cluster(maker: LaneMaker) -> Arc<Self> {
        Self::new(maker, |_| Table {
            nodes: Vec::new(),
            slots: Some(vec![UNASSIGNED; SLOTS]),
        })
    }

    fn new(maker: LaneMaker, table: impl FnOnce(&Arc<Self>) -> Table) -> Arc<Self> {
        let empty = Table {
            nodes: Vec::new(),
            slots: None,
        };
        let routes = Arc::new(Self {
            table: ArcSwap::from_pointee(empty),
            maker,
            changing: Mutex::default(),
            stale: Arc::default(),
        });
        routes.table.store(Arc::new(table(&routes)));
        routes
    }

    pub(super) fn table(&self) -> arc_swap::Guard<Arc<Table>> {
        self.table.load()
    }

    pub(super) fn stale(&self) -> &Arc<Notify> {
        &self.stale
    }

    pub(super) fn addresses(&self) -> Vec<Address> {
        let table = self.table();
        let known = table.nodes.iter();
        known.filter_map(|node| node.address.clone()).collect()
    }

    fn node(
        self: &Arc<Self>,
        whereabouts: &Whereabouts,
        address: Option<Address>,
        canary_key: Vec<u8>,
    ) -> Node {
        let maker = &self.maker;
        let up = Arc::new(AtomicBool::new(false));
        let (sender, receiver) = mpsc::unbounded_channel();
        let connector = Connector::new(
            maker.dialer.clone(),
            canary_key.clone(),
            Arc::clone(&maker.stats),
        );
        let lane = Lane::new(
            whereabouts.clone(),
            connector,
            maker.manner.clone(),
            maker.budget,
            Arc::clone(&maker.stats),
            LaneInRoutes {
                routes: Arc::downgrade(self),
                address: address.clone(),
                up: Arc::clone(&up),
            },
        );
        // Whoever drives the lanes outlives this, or nothing matters any more.
        let _ = maker.started.send(Box::pin(lane.run(receiver)));
        Node {
            address,
            lane: sender,
            canary_key,
            up,
        }
    }

    /// Follows what the cluster says of itself. Lanes to servers that are still there live on.
    pub(super) fn install(self: &Arc<Self>, map: &SlotMap) {
        let _changing = self.changing.lock();
        let before = self.table();
        let mut table = Table {
            nodes: Vec::new(),
            slots: None,
        };
        let mut slots = vec![UNASSIGNED; SLOTS];
        for (first, last, address) in &map.ranges {
            let place = self.place_of(&mut table.nodes, &before.nodes, address);
            slots[*first..=*last].fill(place);
        }
        table.slots = Some(slots);
        for node in 0..table.nodes.len() {
            if let Some(key) = canary_in(table.slots_of(node)) {
                table.nodes[node].canary_key = key;
            }
        }
        self.table.store(Arc::new(table));
    }

    /// The place of a server in `nodes`, which it joins if it is not there yet.
    fn place_of(self: &Arc<Self>, nodes: &mut Vec<Node>, known: &[Node], address: &Address) -> u16 {
        let is_it = |node: &&Node| node.address.as_ref() == Some(address);
        let place = nodes
            .iter()
            .position(|node| is_it(&node))
            .unwrap_or_else(|| {
                let node = known.iter().find(is_it).cloned().unwrap_or_else(|| {
                    let whereabouts = Whereabouts::Fixed(Endpoint::Tcp(address.clone()));
                    self.node(&whereabouts, Some(address.clone()), CANARY_KEY.into())
                });
                nodes.push(node);
                nodes.len() - 1
            });
        // A cluster has at most as many servers as slots.
        u16::try_from(place).unwrap_or(UNASSIGNED)
    }

    /// Sends work on to the server that a cluster named for it; `slot`: which is that server's now.
    fn forward(self: &Arc<Self>, address: &Address, slot: Option<usize>, job: Job) {
        let changing = self.changing.lock();
        let table = self.table();
        let known = table
            .nodes
            .iter()
            .position(|node| node.address.as_ref() == Some(address));
        let is_current = known.is_some_and(|place| {
            slot.is_none_or(|slot| {
                let slots = table.slots.as_deref().unwrap_or_default();
                slots.get(slot).is_some_and(|it| usize::from(*it) == place)
            })
        });
        let sender = if let Some(place) = known.filter(|_| is_current) {
            table.nodes[place].lane.clone()
        } else {
            let mut nodes = table.nodes.clone();
            let place = self.place_of(&mut nodes, &[], address);
            let mut slots = table.slots.clone();
            if let (Some(slots), Some(slot)) = (&mut slots, slot) {
                slots[slot] = place;
            }
            let sender = nodes[usize::from(place)].lane.clone();
            self.table.store(Arc::new(Table { nodes, slots }));
            self.stale.notify_one();
            sender
        };
        drop(changing);
        send(&sender, job);
    }
}

/// To a lane. It outlives its senders; if it is gone all the same, dropping the work answers it.
pub(super) fn send(lane: &LaneSender, job: Job) {
    let _ = lane.send(job);
}

/// A key that is in one of the slots: about as many tries as there are servers.
fn canary_in(slots: impl Iterator<Item = usize>) -> Option<Vec<u8>> {
    let mut wanted = [false; SLOTS];
    slots.for_each(|slot| wanted[slot] = true);
    (0..SLOTS as u32 * 4)
        .map(|number| format!("{CANARY_KEY}:{number}").into_bytes())
        .find(|key| wanted[slot_of(key)])
}

/// What a lane knows of the others.
pub(super) struct LaneInRoutes {
    routes: std::sync::Weak<Routes>,
    address: Option<Address>,
    up: Arc<AtomicBool>,
}

impl LaneInRoutes {
    /// Sends work on; an address without a host is on this lane's own.
    pub(super) fn forward(&self, mut address: Address, slot: Option<usize>, job: Job) {
        let Some(routes) = self.routes.upgrade() else {
            return job.work.fail(StoreError::Moved);
        };
        if let (true, Some(own)) = (address.host.is_empty(), &self.address) {
            address.host.clone_from(&own.host);
        }
        routes.forward(&address, slot, job);
    }

    /// Hands debts to whoever holds their keys by now; returns those that nobody does.
    pub(super) fn hand_over(&self, debts: Vec<Debt>) -> usize {
        let Some(routes) = self.routes.upgrade() else {
            return debts.len();
        };
        let table = routes.table();
        let mut lost = 0;
        for debt in debts {
            let node = table.node_of(|key| key.extend_from_slice(&debt.key));
            match node {
                Some(node) => send(
                    &table.nodes[node].lane,
                    Job::new(Work::GiveBack {
                        debts: vec![debt],
                        twice: true,
                    }),
                ),
                None => lost += 1,
            }
        }
        lost
    }

    pub(super) fn is_up(&self, up: bool) {
        self.up.store(up, Ordering::Relaxed);
        if !up && let Some(routes) = self.routes.upgrade() {
            routes.stale.notify_one();
        }
    }

    /// What it means that this server is down: little while others of the cluster are up.
    pub(super) fn outage(&self, error: StoreError) -> StoreError {
        let others_up = self.routes.upgrade().is_some_and(|routes| {
            let table = routes.table();
            table
                .nodes
                .iter()
                .any(|node| node.address != self.address && node.up.load(Ordering::Relaxed))
        });
        if others_up {
            StoreError::ShardDown
        } else {
            error
        }
    }
}

impl Job {
    pub(super) fn new(work: Work) -> Self {
        Self {
            work,
            queued_at: Instant::now(),
            detour: None,
        }
    }
}
