//! Where the copies of events wait: at least once, as brokers deliver.

use std::{
    collections::VecDeque,
    sync::{
        Arc, Mutex,
        atomic::{AtomicBool, AtomicUsize, Ordering},
    },
    time::Duration,
};

use dedupd::grpc::proto;
use tokio::{sync::Notify, time};

use super::{
    history::{Ending, Event, Mode},
    recorder::Recorder,
};
use crate::client::{
    Dice,
    events::{MS, SECOND, T0, enter, keyed, ping},
};

/// Copies that are not acknowledged; past that no new events come.
const MAX_OPEN: usize = 150;

const NAMESPACES: [&str; 5] = ["orders", "alerts", "crossings", "sessions", "readings"];

pub(super) fn namespace_of(event: usize) -> &'static str {
    NAMESPACES[event % NAMESPACES.len()]
}

/// A copy on its way to a consumer.
#[derive(Clone, Copy, Debug)]
pub(super) struct Copy {
    pub(super) event: usize,
    pub(super) delivery: usize,
    /// Which of the event's copies: their times may differ.
    number: usize,
}

impl Copy {
    pub(super) fn namespace(&self) -> &'static str {
        namespace_of(self.event)
    }

    pub(super) fn event(&self) -> proto::Event {
        let id = format!("e-{}", self.event);
        // In turn 50 ms before and after an edge.
        let aside = [-50, 50][self.number % 2] * MS;
        match self.namespace() {
            "crossings" => enter(&id, T0 + 60 * SECOND + aside),
            // In one bucket of the session.
            "sessions" => ping(&id, T0 + 5 * SECOND + aside),
            _ => keyed(&id),
        }
    }
}

pub(super) struct Broker {
    recorder: Arc<Recorder>,
    ready: Mutex<VecDeque<Copy>>,
    open: AtomicUsize,
    closed: AtomicBool,
    changed: Notify,
}

impl Broker {
    pub(super) fn new(recorder: Arc<Recorder>) -> Arc<Self> {
        Arc::new(Self {
            recorder,
            ready: Mutex::default(),
            open: AtomicUsize::new(0),
            closed: AtomicBool::new(false),
            changed: Notify::new(),
        })
    }

    /// A new event at each interval until closed.
    pub(super) async fn produce(self: &Arc<Self>, mut dice: Dice, interval: Duration) {
        let mut ticks = time::interval(interval);
        while !self.closed.load(Ordering::Relaxed) {
            ticks.tick().await;
            if self.open() >= MAX_OPEN {
                continue;
            }
            let event = self.recorder.event(|number| Event {
                mode: match namespace_of(number) {
                    "alerts" => Mode::Open,
                    "readings" => Mode::Local,
                    _ => Mode::Closed,
                },
            });
            for number in 0..1 + dice.below(3) {
                let delivery = self.recorder.delivery(event);
                self.open.fetch_add(1, Ordering::Relaxed);
                let copy = Copy {
                    event,
                    delivery,
                    number,
                };
                let pause = match dice.below(3) {
                    0 => Duration::ZERO,
                    1 => Duration::from_millis(dice.below(30) as u64),
                    _ => Duration::from_millis(dice.below(1500) as u64),
                };
                self.again_after(copy, pause);
            }
        }
    }

    /// No further events; those that there are go on.
    pub(super) fn close(&self) {
        self.closed.store(true, Ordering::Relaxed);
        self.changed.notify_waiters();
    }

    /// Copies that are not acknowledged.
    pub(super) fn open(&self) -> usize {
        self.open.load(Ordering::Relaxed)
    }

    /// Some copies of one namespace, at most so many; none once all are acknowledged.
    pub(super) async fn take(&self, count: usize) -> Vec<Copy> {
        loop {
            let changed = self.changed.notified();
            {
                let mut ready = self.ready.lock().expect("no panic inside");
                if let Some(first) = ready.pop_front() {
                    let mut taken = vec![first];
                    while taken.len() < count
                        && let Some(next) =
                            ready.pop_front_if(|it| it.namespace() == first.namespace())
                    {
                        taken.push(next);
                    }
                    return taken;
                }
            }
            if self.closed.load(Ordering::Relaxed) && self.open() == 0 {
                return Vec::new();
            }
            // A notification that is missed costs so much.
            let _ = time::timeout(Duration::from_millis(50), changed).await;
        }
    }

    pub(super) fn again_after(self: &Arc<Self>, copy: Copy, pause: Duration) {
        let this = Arc::clone(self);
        tokio::spawn(async move {
            time::sleep(pause).await;
            this.ready.lock().expect("no panic inside").push_back(copy);
            this.changed.notify_one();
        });
    }

    pub(super) fn acknowledge(&self, copy: Copy, ending: Ending) {
        self.recorder.ends(copy.delivery, ending);
        self.open.fetch_sub(1, Ordering::Relaxed);
    }
}
