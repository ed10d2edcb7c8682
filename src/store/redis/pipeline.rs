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
use redis::{Pipeline, RedisError, Value, aio::MultiplexedConnection};
use tokio::{
    task::unconstrained,
    time::{Instant, timeout, timeout_at},
};

use super::{
    commands::{self, Debt},
    connection::Connection,
    script::ScriptCall,
    work::{Share, Work, error_of},
};
use crate::{domain::key::KeyScheme, store::StoreError};

/// How long the fate of a pipeline that missed its budget is followed.
const DRAIN_LIMIT: Duration = Duration::from_secs(10);
/// Debts in one script call.
pub(super) const DEBTS_PER_CALL: usize = 256;

pub(super) type Boxed<T> = Pin<Box<dyn Future<Output = T> + Send>>;

/// Sends a pipeline on the connection: it has taken its place there when this returns. The future
/// answers the work and says how it ended.
pub(super) async fn send(
    work: Vec<Work>,
    connection: &Connection,
    schemes: &Arc<[KeyScheme]>,
    deadline: Instant,
) -> Boxed<Ending> {
    let mut pipeline = Pipeline::with_capacity(work.len());
    let mut calls = Vec::new();
    let parts: Vec<(Work, Share)> = work
        .into_iter()
        .map(|work| {
            let share = work.push(schemes, connection.abilities(), &mut pipeline, &mut calls);
            (work, share)
        })
        .collect();
    let client = connection.client();
    let given_up = Arc::new(AtomicBool::new(false));
    let mut exchange = exchange(client.clone(), pipeline, calls, Arc::clone(&given_up)).boxed();
    // Polled once here, so that pipelines enter the connection in the order of these calls.
    // Unconstrained, since a task that has used up its share of time would poll in vain.
    let early = unconstrained(poll_immediate(&mut exchange)).await;
    let sent = SentPipeline {
        parts,
        client,
        given_up,
        schemes: Arc::clone(schemes),
    };
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

/// How a pipeline ended within its budget.
pub(super) enum Ending {
    Answered {
        leave: bool,
        given_back: GivenBack,
        /// Debts to be given back once more.
        again: Vec<Debt>,
    },
    /// The debts are the drain's too; they are for a caller who does not follow it.
    TooLate {
        drain: Boxed<Drained>,
        debts: Vec<Debt>,
    },
    Broken {
        debts: Vec<Debt>,
    },
}

/// What became of a pipeline that missed its budget: claims that are still owed, or none.
#[derive(Default)]
pub(super) struct Drained {
    pub(super) given_back: GivenBack,
    pub(super) debts: Vec<Debt>,
    /// Debts whose give-back met an error, or is owed once more.
    pub(super) again: Vec<Debt>,
}

/// Sends a pipeline; sends again, as text, the scripts that the server has lost.
async fn exchange(
    mut client: MultiplexedConnection,
    pipeline: Pipeline,
    calls: Vec<(usize, ScriptCall)>,
    given_up: Arc<AtomicBool>,
) -> Result<Vec<Value>, RedisError> {
    let mut replies = client
        .send_packed_commands(&pipeline, 0, pipeline.len())
        .await?;
    let lost: Vec<&(usize, ScriptCall)> = calls
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
    let mut texts = Pipeline::new();
    for (_, call) in &lost {
        call.push_text(&mut texts);
    }
    let second = client.send_packed_commands(&texts, 0, texts.len()).await?;
    for ((place, _), reply) in lost.into_iter().zip(second) {
        replies[*place] = reply;
    }
    Ok(replies)
}

/// A pipeline on its way, with what is needed however it ends.
struct SentPipeline {
    parts: Vec<(Work, Share)>,
    client: MultiplexedConnection,
    given_up: Arc<AtomicBool>,
    schemes: Arc<[KeyScheme]>,
}

impl SentPipeline {
    fn answered(self, replies: &[Value]) -> Ending {
        let (mut leave, mut given_back, mut again) = (false, GivenBack::default(), Vec::new());
        for (work, share) in self.parts {
            if let Work::GiveBack { debts, twice } = work {
                let reply = replies.get(share.first());
                if let Some(counts) = reply.and_then(GivenBack::read) {
                    given_back.add(counts);
                    again.extend(debts.into_iter().filter(|_| twice));
                } else {
                    again.extend(debts);
                }
            } else {
                leave |= work.resolve(&share, replies);
            }
        }
        Ending::Answered {
            leave,
            given_back,
            again,
        }
    }

    fn broken(self, error: &RedisError) -> Ending {
        let mut debts = Vec::new();
        for (work, _) in self.parts {
            debts.extend(work.debts(&self.schemes));
            work.fail(StoreError::from(error));
        }
        Ending::Broken { debts }
    }

    /// Answers the work, and queues what it may have claimed to be given back behind it.
    async fn too_late(self, pending: Boxed<Result<Vec<Value>, RedisError>>) -> Ending {
        self.given_up.store(true, Ordering::Relaxed);
        let (mut debts, mut owed_twice) = (Vec::new(), Vec::new());
        for (work, _) in self.parts {
            debts.extend(work.debts(&self.schemes));
            if let Work::GiveBack { debts, twice: true } = &work {
                owed_twice.extend_from_slice(debts);
            }
            work.fail(StoreError::Timeout);
        }
        let mut pipeline = Pipeline::new();
        for debts in debts.chunks(DEBTS_PER_CALL) {
            commands::give_back_call(debts).push_text(&mut pipeline);
        }
        let mut client = self.client;
        let mut give_back = async move {
            if pipeline.is_empty() {
                return Ok(Vec::new());
            }
            client
                .send_packed_commands(&pipeline, 0, pipeline.len())
                .await
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
                    let mut drained = drained(&replies, &debts);
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

/// What the give-backs behind a late pipeline came to, a reply for each chunk of debts.
fn drained(replies: &[Value], debts: &[Debt]) -> Drained {
    let mut drained = Drained::default();
    for (chunk, reply) in debts.chunks(DEBTS_PER_CALL).zip(replies) {
        match GivenBack::read(reply) {
            Some(counts) => drained.given_back.add(counts),
            None => drained.again.extend_from_slice(chunk),
        }
    }
    drained
}

/// What give-backs came to.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct GivenBack {
    pub(super) deleted: u64,
    pub(super) kept: u64,
}

impl GivenBack {
    /// `None`: the give-back met an error.
    fn read(reply: &Value) -> Option<Self> {
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

    const fn add(&mut self, other: Self) {
        self.deleted += other.deleted;
        self.kept += other.kept;
    }
}
