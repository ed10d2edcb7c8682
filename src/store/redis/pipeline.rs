//! One pipeline: built from several pieces of work, sent, and followed to its end.

use std::{
    pin::Pin,
    sync::{
        Arc,
        atomic::{AtomicBool, Ordering},
    },
    time::Duration,
};

use futures_util::{FutureExt, future::poll_immediate};
use redis::{RedisError, Value};
use tokio::{
    task::unconstrained,
    time::{Instant, timeout, timeout_at},
};

use super::{
    batch::Batch,
    commands::{self, Debt},
    connection::{Connection, Link},
    error::Redirection,
    script::ScriptCall,
    wire::Wire,
    work::{Reading, Share, Work, error_of},
};
use crate::{domain::key::KeyScheme, store::StoreError};

/// How long the fate of a pipeline that missed its budget is followed.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);

pub(super) type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// How pipelines are sent.
#[derive(Clone, Debug)]
pub(super) struct Manner {
    pub(super) schemes: Arc<[KeyScheme]>,
    /// The server belongs to a cluster.
    pub(super) per_slot: bool,
    /// Replicas that must have a write before it counts.
    pub(super) wait_replicas: u32,
    /// For how long they are waited for.
    pub(super) wait_for: Duration,
}

/// Sends a pipeline on the connection: it has taken its place there when this returns. The future
/// answers the work and says how it ended.
pub(super) async fn send(
    work: Vec<Work>,
    connection: &Connection,
    manner: &Manner,
    asking: bool,
    deadline: Instant,
) -> Boxed<Ending> {
    let abilities = Arc::clone(connection.abilities());
    let commands = work.iter().map(Work::weight).sum();
    let mut batch = Batch::new(commands, abilities, manner.per_slot, asking);
    let parts: Vec<(Work, Share)> = work
        .into_iter()
        .map(|work| {
            let share = work.push(&manner.schemes, &mut batch);
            (work, share)
        })
        .collect();
    let waits = manner.wait_replicas > 0 && parts.iter().any(|(work, _)| work.writes());
    if waits {
        push_wait(&mut batch, manner);
    }
    let link = connection.link();
    let given_up = Arc::new(AtomicBool::new(false));
    let sent = SentPipeline {
        parts,
        link: link.clone(),
        given_up: Arc::clone(&given_up),
        waits,
        another: batch.another(),
        manner: manner.clone(),
    };
    let mut exchange =
        exchange(link.client, batch, waits.then(|| manner.clone()), given_up).boxed();
    // Polled once here, so that pipelines enter the connection in the order of these calls.
    // Unconstrained, since a task that has used up its share of time would poll in vain.
    let early = unconstrained(poll_immediate(&mut exchange)).await;
    async move {
        let result = match early {
            Some(result) => Ok(result),
            None => timeout_at(deadline, &mut exchange).await,
        };
        match result {
            Ok(Ok(replies)) => sent.answered(&replies),
            Ok(Err(error)) => sent.broken(&error),
            Err(_) => sent.too_late(exchange).await,
        }
    }
    .boxed()
}

/// `WAIT` says how many replicas have all that this connection has written.
fn push_wait(batch: &mut Batch, manner: &Manner) {
    batch.command("WAIT").arg(manner.wait_replicas).arg(
        u64::try_from(manner.wait_for.as_millis())
            .unwrap_or(u64::MAX)
            .max(1),
    );
}

/// How a pipeline ended within its budget.
pub(super) enum Ending {
    Answered(Answered),
    /// The debts are the drain's too; they are for a caller who does not follow it.
    TooLate {
        drain: Boxed<Drained>,
        debts: Vec<Debt>,
    },
    Broken {
        debts: Vec<Debt>,
    },
}

#[derive(Default)]
pub(super) struct Answered {
    /// The server must be left: a demoted or loading one.
    pub(super) leave: bool,
    pub(super) given_back: GivenBack,
    /// Debts to be given back once more.
    pub(super) again: Vec<Debt>,
    /// Claims that did not count after all.
    pub(super) debts: Vec<Debt>,
    /// What the cluster wants to be sent elsewhere.
    pub(super) redirected: Vec<(Redirection, Work)>,
}

/// What became of a pipeline that missed its budget: claims that are still owed, or none.
#[derive(Default)]
pub(super) struct Drained {
    /// It was answered in the end.
    pub(super) answered: bool,
    pub(super) given_back: GivenBack,
    pub(super) debts: Vec<Debt>,
    /// Debts whose give-back met an error, or is owed once more.
    pub(super) again: Vec<Debt>,
}

/// Sends a pipeline; sends again, as text, the scripts that the server has lost.
async fn exchange(
    client: Wire,
    mut batch: Batch,
    waits: Option<Manner>,
    given_up: Arc<AtomicBool>,
) -> Result<Vec<Value>, RedisError> {
    let (commands, replies) = batch.take_commands();
    let replies = client.send(commands, replies).await?;
    let mut replies = batch.replies(replies);
    let lost: Vec<&(usize, ScriptCall)> = batch
        .calls()
        .iter()
        .filter(|(place, _)| {
            replies.get(*place).is_some_and(|reply| {
                matches!(reply, Value::ServerError(_)) && error_of(reply) == StoreError::NoScript
            })
        })
        .collect();
    // Behind a give-back nothing may be claimed any more.
    if lost.is_empty() || given_up.load(Ordering::Relaxed) {
        return Ok(replies);
    }
    let mut texts = batch.another();
    for (_, call) in &lost {
        texts.call_by_text(call);
    }
    let mut places: Vec<usize> = lost.iter().map(|(place, _)| *place).collect();
    if let Some(manner) = &waits {
        push_wait(&mut texts, manner);
        places.push(replies.len().saturating_sub(1));
    }
    let (commands, replies_of_texts) = texts.take_commands();
    let second = client.send(commands, replies_of_texts).await?;
    for (place, reply) in places.into_iter().zip(texts.replies(second)) {
        replies[place] = reply;
    }
    Ok(replies)
}

/// A pipeline on its way, with what is needed however it ends.
struct SentPipeline {
    parts: Vec<(Work, Share)>,
    link: Link,
    given_up: Arc<AtomicBool>,
    /// The last reply says how many replicas have what was written.
    waits: bool,
    /// For commands to the same server.
    another: Batch,
    manner: Manner,
}

impl SentPipeline {
    fn answered(self, replies: &[Value]) -> Ending {
        let replicated = !self.waits
            || matches!(replies.last(), Some(Value::Int(replicas))
                if *replicas >= i64::from(self.manner.wait_replicas));
        let reading = Reading {
            schemes: &self.manner.schemes,
            abilities: self.another.abilities(),
            follows_redirections: self.another.follows_redirections(),
            replicated,
        };
        let mut answered = Answered::default();
        for (work, share) in self.parts {
            work.resolve(&share, replies, &reading, &mut answered);
        }
        Ending::Answered(answered)
    }

    fn broken(self, error: &RedisError) -> Ending {
        let mut debts = Vec::new();
        for (work, _) in self.parts {
            debts.extend(work.debts(&self.manner.schemes));
            work.fail(StoreError::from(error));
        }
        Ending::Broken { debts }
    }

    /// Answers the work, and queues what it may have claimed to be given back behind it.
    async fn too_late(self, pending: Boxed<Result<Vec<Value>, RedisError>>) -> Ending {
        self.given_up.store(true, Ordering::Relaxed);
        let (mut debts, mut owed_twice) = (Vec::new(), Vec::new());
        for (work, _) in self.parts {
            debts.extend(work.debts(&self.manner.schemes));
            if let Work::GiveBack { debts, twice: true } = &work {
                owed_twice.extend_from_slice(debts);
            }
            work.fail(StoreError::Timeout);
        }
        let mut batch = self.another;
        let groups = commands::push_give_backs(&debts, &mut batch);
        let link = self.link;
        let mut give_back = async move {
            if batch.is_empty() {
                return Ok(Vec::new());
            }
            let (commands, replies) = batch.take_commands();
            let replies = link.client.send(commands, replies).await?;
            Ok(batch.replies(replies))
        }
        .boxed();
        let early = unconstrained(poll_immediate(&mut give_back)).await;
        let owed = debts.clone();
        let drain = async move {
            let both = async {
                let claims = pending.await;
                let given_back = match early {
                    Some(result) => result,
                    None => give_back.await,
                };
                claims.and(given_back)
            };
            match timeout(DRAIN_LIMIT, both).await {
                Ok(Ok(replies)) => {
                    let mut drained = Drained {
                        answered: true,
                        ..Drained::default()
                    };
                    for (group, reply) in groups.iter().zip(&replies) {
                        match GivenBack::read(reply) {
                            Some(counts) => drained.given_back.add(counts),
                            None => drained
                                .again
                                .extend(group.iter().map(|&debt| debts[debt].clone())),
                        }
                    }
                    drained.again.extend(owed_twice);
                    drained
                }
                Ok(Err(_)) | Err(_) => Drained {
                    debts,
                    ..Drained::default()
                },
            }
        };
        Ending::TooLate {
            drain: drain.boxed(),
            debts: owed,
        }
    }
}

/// What give-backs came to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GivenBack {
    pub(super) deleted: u64,
    pub(super) kept: u64,
}

impl GivenBack {
    /// `None`: the give-back met an error.
    pub(super) fn read(reply: &Value) -> Option<Self> {
        let Value::Array(counts) = reply else {
            return None;
        };
        let [Value::Int(deleted), Value::Int(kept)] = counts.as_slice() else {
            return None;
        };
        Some(Self {
            deleted: u64::try_from(*deleted).ok()?,
            kept: u64::try_from(*kept).ok()?,
        })
    }

    pub(super) const fn add(&mut self, other: Self) {
        self.deleted += other.deleted;
        self.kept += other.kept;
    }
}
