//! What a lane is asked to do, and how its replies are read.

use std::{sync::Arc, time::Duration};

use redis::{Pipeline, Value};
use tokio::sync::oneshot;

use super::{
    collector::Collector,
    commands::{self, Adoption, ClaimCommands, Debt, Decided, Round},
    connection::CANARY_KEY,
    script::{Abilities, ScriptCall},
    write_back,
};
use crate::{
    domain::{
        claim::{SettleOutcome, Standing},
        key::KeyScheme,
    },
    store::{
        ClaimRequest, Found, GiveBack, SettleRequest, StoreError,
        write_back::{WriteBack, WrittenBack},
    },
};

/// How long a canary lives: it only has to be written.
const CANARY_MS: u64 = 1000;

#[derive(Debug)]
pub(super) enum Work {
    Claim {
        request: Arc<ClaimRequest>,
        plans: Vec<usize>,
        round: Arc<Round>,
        collector: Arc<Collector<Decided>>,
    },
    Settle {
        request: Arc<SettleRequest>,
        items: Vec<usize>,
        collector: Arc<Collector<SettleOutcome>>,
    },
    WriteBack {
        batch: Arc<WriteBack>,
        items: Vec<usize>,
        collector: Arc<Collector<WrittenBack>>,
    },
    /// `twice`: once more after a while, since a dead connection's commands may still be read.
    GiveBack { debts: Vec<Debt>, twice: bool },
    Inspect {
        keys: Vec<Vec<u8>>,
        reply: oneshot::Sender<Result<Vec<Option<Found>>, StoreError>>,
    },
    /// A script call whose reply the caller reads.
    Call {
        call: ScriptCall,
        reply: oneshot::Sender<Result<Value, StoreError>>,
    },
    /// A write that the server must take.
    Canary {
        reply: oneshot::Sender<Result<(), StoreError>>,
    },
    /// Is the connection alive? Nobody waits for the answer.
    Ping,
}

/// Which of a pipeline's replies belong to a piece of work.
#[derive(Debug)]
pub(super) struct Share {
    first: usize,
    claims: Option<ClaimCommands>,
}

impl Share {
    /// Where the first reply is.
    pub(super) const fn first(&self) -> usize {
        self.first
    }
}

impl Work {
    /// How many commands' worth of work this is, for the limit on a pipeline.
    pub(super) fn weight(&self) -> usize {
        match self {
            Work::Claim { plans, .. } => plans.len(),
            Work::Settle { items, .. } | Work::WriteBack { items, .. } => items.len(),
            Work::GiveBack { debts, .. } => debts.len(),
            Work::Inspect { keys, .. } => keys.len(),
            Work::Call { .. } | Work::Canary { .. } | Work::Ping => 1,
        }
    }

    /// Appends the commands, and the script calls with their places in the pipeline.
    pub(super) fn push(
        &self,
        schemes: &[KeyScheme],
        abilities: &Abilities,
        pipeline: &mut Pipeline,
        calls: &mut Vec<(usize, ScriptCall)>,
    ) -> Share {
        let first = pipeline.len();
        let mut call = |call: ScriptCall, pipeline: &mut Pipeline| {
            calls.push((pipeline.len(), call.clone()));
            call.push(abilities, pipeline);
        };
        let mut claims = None;
        match self {
            Work::Claim {
                request,
                plans,
                round,
                ..
            } => {
                let scheme = &schemes[usize::from(request.namespace.0)];
                let mut commands =
                    ClaimCommands::push(request, plans, scheme, round, abilities, pipeline);
                if let Some(call) = commands.call.take() {
                    calls.push((pipeline.len() - 1, call));
                }
                claims = Some(commands);
            }
            Work::Settle { request, items, .. } => {
                call(commands::settle_call(request, items, schemes), pipeline)
            }
            Work::WriteBack { batch, items, .. } => {
                call(write_back::call(batch, items, schemes), pipeline)
            }
            Work::GiveBack { debts, .. } => call(commands::give_back_call(debts), pipeline),
            Work::Inspect { keys, .. } => {
                for key in keys {
                    pipeline.cmd("GET").arg(key.as_slice());
                    pipeline.cmd("PTTL").arg(key.as_slice());
                }
            }
            Work::Call { call: script, .. } => call(script.clone(), pipeline),
            Work::Canary { .. } => {
                pipeline
                    .cmd("SET")
                    .arg(CANARY_KEY)
                    .arg(1)
                    .arg("PX")
                    .arg(CANARY_MS);
            }
            Work::Ping => {
                pipeline.cmd("PING");
            }
        }
        Share { first, claims }
    }

    /// Hands the replies to whoever waits for them. Says whether the server must be left: a
    /// demoted or loading one, in place of which the next connection may find the right one.
    pub(super) fn resolve(self, share: &Share, replies: &[Value]) -> bool {
        let replies = replies.get(share.first..).unwrap_or_default();
        let head = replies.first().unwrap_or(&Value::Nil);
        match self {
            Work::Claim {
                request,
                plans,
                round,
                collector,
            } => {
                let outcomes = match &share.claims {
                    Some(commands) => claim_outcomes(&request, commands, round.adoption, replies),
                    None => plans
                        .into_iter()
                        .map(|plan| (plan, Err(StoreError::Protocol)))
                        .collect(),
                };
                let leave = is_to_be_left(&outcomes);
                collector.fill(outcomes);
                leave
            }
            Work::Settle {
                items, collector, ..
            } => {
                let outcomes = spread(&items, head, commands::settle_outcome);
                let leave = is_to_be_left(&outcomes);
                collector.fill(outcomes);
                leave
            }
            Work::WriteBack {
                items, collector, ..
            } => {
                let outcomes = spread(&items, head, write_back::outcome);
                let leave = is_to_be_left(&outcomes);
                collector.fill(outcomes);
                leave
            }
            Work::Inspect { keys, reply } => {
                let (pairs, _) = replies.as_chunks::<2>();
                let found = pairs
                    .iter()
                    .take(keys.len())
                    .map(|[value, ttl]| found(value, ttl))
                    .collect();
                let _ = reply.send(found);
                false
            }
            Work::Call { reply, .. } => {
                let answer = match head {
                    Value::ServerError(error) => Err(StoreError::from(error)),
                    value => Ok(value.clone()),
                };
                let leave = answer.as_ref().is_err_and(|error| leaves(*error));
                let _ = reply.send(answer);
                leave
            }
            Work::Canary { reply } => {
                let answer = match head {
                    Value::Okay => Ok(()),
                    other => Err(error_of(other)),
                };
                let leave = answer.is_err_and(leaves);
                let _ = reply.send(answer);
                leave
            }
            Work::GiveBack { .. } | Work::Ping => false,
        }
    }

    pub(super) fn fail(self, error: StoreError) {
        match self {
            Work::Claim {
                plans, collector, ..
            } => collector.fill(plans.into_iter().map(|plan| (plan, Err(error)))),
            Work::Settle {
                items, collector, ..
            } => collector.fill(items.into_iter().map(|item| (item, Err(error)))),
            Work::WriteBack {
                items, collector, ..
            } => collector.fill(items.into_iter().map(|item| (item, Err(error)))),
            Work::Inspect { reply, .. } => {
                let _ = reply.send(Err(error));
            }
            Work::Call { reply, .. } => {
                let _ = reply.send(Err(error));
            }
            Work::Canary { reply } => {
                let _ = reply.send(Err(error));
            }
            Work::GiveBack { .. } | Work::Ping => {}
        }
    }

    /// What must be given back if it is not known whether the work was done.
    pub(super) fn debts(&self, schemes: &[KeyScheme]) -> Vec<Debt> {
        match self {
            Work::Claim { request, plans, .. } => {
                let claims: Vec<GiveBack> = plans
                    .iter()
                    .map(|&plan| GiveBack {
                        plan,
                        nonce: request.nonces[plan],
                    })
                    .collect();
                commands::debts(request, &claims, &schemes[usize::from(request.namespace.0)])
            }
            Work::GiveBack { debts, .. } => debts.clone(),
            Work::Settle { .. }
            | Work::WriteBack { .. }
            | Work::Inspect { .. }
            | Work::Call { .. }
            | Work::Canary { .. }
            | Work::Ping => Vec::new(),
        }
    }
}

const fn leaves(error: StoreError) -> bool {
    matches!(error, StoreError::ReadOnly | StoreError::Loading)
}

fn is_to_be_left<T>(outcomes: &[(usize, Result<T, StoreError>)]) -> bool {
    outcomes
        .iter()
        .any(|(_, outcome)| outcome.as_ref().is_err_and(|error| leaves(*error)))
}

fn claim_outcomes(
    request: &ClaimRequest,
    commands: &ClaimCommands,
    adoption: Adoption,
    replies: &[Value],
) -> Vec<(usize, Result<Decided, StoreError>)> {
    let (singles, rest) = replies.split_at(commands.singles.len().min(replies.len()));
    let mut outcomes: Vec<_> = commands
        .singles
        .iter()
        .zip(singles)
        .map(|(&plan, reply)| (plan, commands::single_outcome(request, plan, reply)))
        .collect();
    if let Some(reply) = rest.first().filter(|_| !commands.scripted.is_empty()) {
        match reply {
            Value::Array(parts) if parts.len() == commands.scripted.len() => {
                outcomes.extend(commands.scripted.iter().zip(parts).map(|(&plan, part)| {
                    (
                        plan,
                        commands::scripted_outcome(request, plan, adoption, part),
                    )
                }));
            }
            other => outcomes.extend(
                commands
                    .scripted
                    .iter()
                    .map(|&plan| (plan, Err(error_of(other)))),
            ),
        }
    }
    outcomes
}

/// A script's array over the items, or its one error for all of them.
fn spread<T>(
    items: &[usize],
    reply: &Value,
    read: impl Fn(&Value) -> Result<T, StoreError>,
) -> Vec<(usize, Result<T, StoreError>)> {
    match reply {
        Value::Array(parts) if parts.len() == items.len() => {
            items.iter().copied().zip(parts.iter().map(read)).collect()
        }
        other => items
            .iter()
            .map(|&item| (item, Err(error_of(other))))
            .collect(),
    }
}

fn found(value: &Value, ttl: &Value) -> Result<Option<Found>, StoreError> {
    let expires_in = match ttl {
        Value::Int(ms) => u64::try_from(*ms).ok().map(Duration::from_millis),
        other => return Err(error_of(other)),
    };
    match value {
        Value::Nil => Ok(None),
        Value::BulkString(value) => Ok(Some(Found {
            standing: Standing::decode(value),
            expires_in,
        })),
        // Another type under our key is as foreign as another value.
        Value::ServerError(error) if StoreError::from(error) == StoreError::WrongType => {
            Ok(Some(Found {
                standing: Standing::Foreign,
                expires_in,
            }))
        }
        other => Err(error_of(other)),
    }
}

pub(super) fn error_of(reply: &Value) -> StoreError {
    match reply {
        Value::ServerError(error) => error.into(),
        _ => StoreError::Protocol,
    }
}
