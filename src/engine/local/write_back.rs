//! Writing the claims of an outage to the shared store, once it is back.
//!
//! One batch at a time, until the embedded store is empty. What was not answered may have been
//! written: it is sent again before anything else, and withdrawn if its holder has let go of it
//! meanwhile.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use hashbrown::HashSet;
use tokio::time;

use super::{Engine, Local};
use crate::{
    domain::{
        claim::{Nonce, Record},
        key::Names,
    },
    store::{
        HoldMs, NamespaceId, Reply, StoreError,
        memory::walk::{Cursor, Held, Since},
        write_back::{WriteBack, WriteBackItem, WrittenBack},
    },
};

/// Claims in one batch: Redis is busy with it for a millisecond or two.
const BATCH: usize = 256;
/// Between two batches, as a multiple of what the last one took: at most a fifth of the time of one
/// connection, and less where Redis is slow.
const PAUSE_FACTOR: u32 = 4;
/// At 256 claims in 10 ms a full store of 256 MiB is written in a minute or two.
const MIN_PAUSE: Duration = Duration::from_millis(10);
/// Before the shared store is looked at again, and after a walk that wrote nothing.
const RETRY: Duration = Duration::from_millis(100);
const TICK: Duration = Duration::from_secs(1);

/// Claims that were sent to the shared store.
#[derive(Debug)]
pub(super) struct Batch {
    request: Arc<WriteBack>,
    /// The same claims as they stood here.
    read: Vec<Held>,
    holders: HashSet<u64>,
}

impl Batch {
    pub(super) fn holds(&self, nonce: Nonce) -> bool {
        self.holders.contains(&nonce.holder())
    }

    fn new(read: Vec<Held>, names: Names, now_ms: u64) -> Arc<Self> {
        let items = read.iter().map(|held| {
            let left = held.expires_at_ms.saturating_sub(now_ms);
            WriteBackItem {
                namespace: held.namespace,
                partition: held.partition,
                key: held.key,
                record: Record {
                    nonce: held.record.nonce.written_back(),
                    ..held.record
                },
                hold: HoldMs::at_least(Duration::from_millis(left)),
            }
        });
        Arc::new(Self {
            request: Arc::new(WriteBack {
                items: items.collect(),
                names,
            }),
            holders: read.iter().map(|held| held.record.nonce.holder()).collect(),
            read,
        })
    }
}

/// Keeps the engine's embedded store: forgets what expires and writes back what it holds while the
/// shared store takes claims. Runs until it is dropped.
pub async fn keep(engine: Arc<Engine>) {
    let Some(local) = engine.local().cloned() else {
        return std::future::pending().await;
    };
    let ticking = async {
        let mut ticks = time::interval(TICK);
        loop {
            ticks.tick().await;
            local.store.tick();
        }
    };
    let writing = async {
        loop {
            if local.is_settled() {
                local.claimed.notified().await;
            }
            let walked = write_all(&engine, &local).await;
            if walked.is_err() || !local.is_settled() {
                time::sleep(RETRY).await;
            }
        }
    };
    tokio::join!(ticking, writing);
}

/// The shared store is away, or what is left cannot be written for now.
struct Stopped;

/// One walk over the embedded store.
async fn write_all(engine: &Engine, local: &Local) -> Result<(), Stopped> {
    let mut cursor = Some(Cursor::default());
    while let Some(from) = cursor {
        if !engine.breaker.admits() {
            return Err(Stopped);
        }
        let begun = engine.clock.monotonic();
        let Some((batch, reply, next)) = local.send(engine, from) else {
            return Ok(());
        };
        let results = reply.await;
        engine.observe(results.iter().copied());
        let uncertain = local.answered(engine, &batch, &results);
        if uncertain {
            return Err(Stopped);
        }
        cursor = next;
        let took = engine.clock.monotonic() - begun;
        time::sleep(MIN_PAUSE.max(took * PAUSE_FACTOR)).await;
    }
    Ok(())
}

type Answer = Reply<Vec<Result<WrittenBack, StoreError>>>;

impl Local {
    /// There is nothing to write, nor to withdraw.
    fn is_settled(&self) -> bool {
        self.is_empty() && self.unanswered.lock().is_none()
    }

    /// Sends what was not answered, or else the next claims from the cursor on; `None` if there is
    /// nothing.
    fn send(&self, engine: &Engine, from: Cursor) -> Option<(Arc<Batch>, Answer, Option<Cursor>)> {
        let mut unanswered = self.unanswered.lock();
        let now_ms = engine.clock.monotonic_ms();
        let (again, names) = match unanswered.take() {
            Some(batch) => self.read_again(engine, &batch),
            None => (Vec::new(), Names::default()),
        };
        let (batch, next) = if again.is_empty() {
            let is_served =
                |id: NamespaceId| engine.namespaces[usize::from(id.0)].refused().is_none();
            let mut names = Names::default();
            let (read, next) = self.store.read(from, BATCH, is_served, &mut names);
            if read.is_empty() {
                return None;
            }
            (Batch::new(read, names, now_ms), next)
        } else {
            (Batch::new(again, names, now_ms), Some(from))
        };
        let reply = engine.store.write_back(&batch.request);
        *unanswered = Some(Arc::clone(&batch));
        Some((batch, reply, next))
    }

    /// The claims of the batch as they stand now. What is gone is withdrawn.
    fn read_again(&self, engine: &Engine, batch: &Batch) -> (Vec<Held>, Names) {
        let names = batch.request.names.clone();
        let mut gone = Vec::new();
        let mut again = Vec::new();
        for (item, held) in batch.read.iter().enumerate() {
            match self.store.read_again(held, &names) {
                Some(held) => again.push(held),
                None => gone.push(item),
            }
        }
        withdraw(engine, batch, gone);
        (again, names)
    }

    /// Lets go of what stands in the shared store; true if some of it may be there or not.
    fn answered(
        &self,
        engine: &Engine,
        batch: &Batch,
        results: &[Result<WrittenBack, StoreError>],
    ) -> bool {
        let mut unanswered = self.unanswered.lock();
        let (mut uncertain, mut gone) = (Vec::new(), Vec::new());
        for (item, (held, result)) in batch.read.iter().zip(results).enumerate() {
            let written = match result {
                Ok(written) => *written,
                Err(error) => {
                    // What was refused stays, and is met again by the next walk.
                    uncertain.extend(is_sent_again(*error).then_some(*held));
                    continue;
                }
            };
            match (
                self.store.remove_unchanged(held, &batch.request.names),
                written,
            ) {
                (Since::Removed, WrittenBack::Stands) => {
                    self.written_back.fetch_add(1, Ordering::Relaxed);
                }
                (Since::Removed, WrittenBack::Taken) => {
                    let namespace = &engine.namespaces[usize::from(held.namespace.0)];
                    namespace.counters.double_admission();
                }
                (Since::Gone, WrittenBack::Stands) => gone.push(item),
                (Since::Gone, WrittenBack::Taken) | (Since::Changed, _) => {}
            }
        }
        withdraw(engine, batch, gone);
        let is_uncertain = !uncertain.is_empty();
        let names = batch.request.names.clone();
        *unanswered =
            is_uncertain.then(|| Batch::new(uncertain, names, engine.clock.monotonic_ms()));
        is_uncertain
    }
}

/// Deletes what was written of claims that their holders have let go of. What was only seen is
/// nobody's.
fn withdraw(engine: &Engine, batch: &Batch, mut items: Vec<usize>) {
    items.retain(|&item| batch.read[item].record.nonce != Nonce::NOBODY);
    if !items.is_empty() {
        engine.store.withdraw(&batch.request, items);
    }
}

/// It may have been written, or there was no time for it. What one server of a cluster has had on
/// its way when it went down may have been, too, but must not keep the others waiting.
const fn is_sent_again(error: StoreError) -> bool {
    matches!(
        error,
        StoreError::Timeout
            | StoreError::Connection
            | StoreError::NoReplicas
            | StoreError::Overloaded
    )
}
