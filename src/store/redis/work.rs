//! What a lane is asked to do, and how its replies are read.

use std::{
    sync::{Arc, atomic::Ordering},
    time::Duration,
};

use redis::Value;
use tokio::sync::oneshot;

use super::{
    batch::Batch,
    collector::Collector,
    commands::{self, Adoption, Debt, Decided, Round},
    connection::is_syntax_error,
    error::{Redirection, redirection},
    pipeline::{Answered, GivenBack},
    script::{Abilities, ScriptCall},
    write_back,
};
use crate::{
    domain::{
        claim::{SettleOutcome, Standing},
        key::KeyScheme,
    },
    store::{
        ClaimOutcome, ClaimRequest, Found, GiveBack, SettleRequest, StoreError,
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
        request: Arc<WriteBack>,
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
        key: Vec<u8>,
        reply: oneshot::Sender<Result<(), StoreError>>,
    },
    /// Is the connection alive? Nobody waits for the answer.
    Ping,
}

/// Which of a pipeline's replies belong to a piece of work.
#[derive(Debug, Default)]
pub(super) struct Share {
    first: usize,
    /// Items with a command of their own, whose replies come first.
    singles: Vec<usize>,
    /// Items of each script call.
    calls: Vec<Vec<usize>>,
}

/// What is needed to read replies.
pub(super) struct Reading<'a> {
    pub(super) schemes: &'a [KeyScheme],
    pub(super) abilities: &'a Abilities,
    pub(super) follows_redirections: bool,
    /// What was written counts: enough replicas have it.
    pub(super) replicated: bool,
}

impl Reading<'_> {
    fn redirection(&self, reply: &Value) -> Option<Redirection> {
        redirection(reply).filter(|_| self.follows_redirections)
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

    /// It may write what others rely on.
    pub(super) const fn writes(&self) -> bool {
        match self {
            Work::Claim { .. }
            | Work::Settle { .. }
            | Work::WriteBack { .. }
            | Work::Canary { .. } => true,
            Work::GiveBack { .. } | Work::Inspect { .. } | Work::Call { .. } | Work::Ping => false,
        }
    }

    /// Appends the commands.
    pub(super) fn push(&self, schemes: &[KeyScheme], batch: &mut Batch) -> Share {
        let first = batch.len();
        let (mut singles, mut calls) = (Vec::new(), Vec::new());
        match self {
            Work::Claim {
                request,
                plans,
                round,
                ..
            } => {
                let scheme = &schemes[usize::from(request.namespace.0)];
                (singles, calls) = commands::push_claims(request, plans, scheme, round, batch);
            }
            Work::Settle { request, items, .. } => {
                calls = commands::push_settlements(request, items, schemes, batch);
            }
            Work::WriteBack { request, items, .. } => {
                calls = batch.together(items.clone(), |item, key| {
                    write_back::write_key(request, item, schemes, key);
                });
                for items in &calls {
                    batch.call(write_back::call(request, items, schemes));
                }
            }
            Work::GiveBack { debts, .. } => calls = commands::push_give_backs(debts, batch),
            Work::Inspect { keys, .. } => {
                for key in keys {
                    batch.command("GET").arg(key.as_slice());
                    batch.command("PTTL").arg(key.as_slice());
                }
            }
            Work::Call { call, .. } => batch.call(call.clone()),
            Work::Canary { key, .. } => {
                batch
                    .command("SET")
                    .arg(key.as_slice())
                    .arg(1)
                    .arg("PX")
                    .arg(CANARY_MS);
            }
            Work::Ping => {
                batch.command("PING");
            }
        }
        Share {
            first,
            singles,
            calls,
        }
    }

    /// Hands the replies to whoever waits for them, and adds what else is to be done.
    pub(super) fn resolve(
        self,
        share: &Share,
        replies: &[Value],
        reading: &Reading<'_>,
        answered: &mut Answered,
    ) {
        let replies = replies.get(share.first..).unwrap_or_default();
        let head = replies.first().unwrap_or(&Value::Nil);
        match self {
            Work::Claim {
                request,
                round,
                collector,
                ..
            } => {
                let claims = ClaimReplies {
                    request: &request,
                    share,
                    adoption: round.adoption,
                    reading,
                };
                let (outcomes, redirected) = claims.read(replies, &mut answered.debts);
                answered.leave |= is_to_be_left(&outcomes);
                collector.fill(outcomes);
                for (redirection, plans) in redirected {
                    let work = Work::Claim {
                        request: Arc::clone(&request),
                        plans,
                        round: Arc::clone(&round),
                        collector: Arc::clone(&collector),
                    };
                    answered.redirected.push((redirection, work));
                }
            }
            Work::Settle {
                request, collector, ..
            } => {
                for (items, reply) in share.calls.iter().zip(replies) {
                    if let Some(redirection) = reading.redirection(reply) {
                        let work = Work::Settle {
                            request: Arc::clone(&request),
                            items: items.clone(),
                            collector: Arc::clone(&collector),
                        };
                        answered.redirected.push((redirection, work));
                        continue;
                    }
                    let outcomes = spread(items, reply, |part| {
                        match commands::settle_outcome(part) {
                            // Asked again, it will have been applied already.
                            Ok(SettleOutcome::Applied) if !reading.replicated => {
                                Err(StoreError::NoReplicas)
                            }
                            outcome => outcome,
                        }
                    });
                    answered.leave |= is_to_be_left(&outcomes);
                    collector.fill(outcomes);
                }
            }
            Work::WriteBack {
                request, collector, ..
            } => {
                for (items, reply) in share.calls.iter().zip(replies) {
                    if let Some(redirection) = reading.redirection(reply) {
                        let work = Work::WriteBack {
                            request: Arc::clone(&request),
                            items: items.clone(),
                            collector: Arc::clone(&collector),
                        };
                        answered.redirected.push((redirection, work));
                        continue;
                    }
                    let outcomes = spread(items, reply, |part| match write_back::outcome(part) {
                        // It is written again, until it counts.
                        Ok(WrittenBack::Stands) if !reading.replicated => {
                            Err(StoreError::NoReplicas)
                        }
                        outcome => outcome,
                    });
                    answered.leave |= is_to_be_left(&outcomes);
                    collector.fill(outcomes);
                }
            }
            Work::GiveBack { debts, twice } => {
                for (group, reply) in share.calls.iter().zip(replies) {
                    let debts = group.iter().map(|&debt| debts[debt].clone());
                    if let Some(redirection) = reading.redirection(reply) {
                        let debts = debts.collect();
                        let work = Work::GiveBack { debts, twice };
                        answered.redirected.push((redirection, work));
                    } else if let Some(counts) = GivenBack::read(reply) {
                        answered.given_back.add(counts);
                        answered.again.extend(debts.filter(|_| twice));
                    } else {
                        answered.again.extend(debts);
                    }
                }
            }
            work @ (Work::Inspect { .. } | Work::Call { .. }) => {
                if let Some(redirection) = reading.redirection(head) {
                    answered.redirected.push((redirection, work));
                } else {
                    answered.leave |= work.answer_one(replies);
                }
            }
            Work::Canary { reply, .. } => {
                let answer = match head {
                    Value::Okay if reading.replicated => Ok(()),
                    Value::Okay => Err(StoreError::NoReplicas),
                    other => Err(error_of(other)),
                };
                answered.leave |= answer.is_err_and(leaves);
                let _ = reply.send(answer);
            }
            Work::Ping => {}
        }
    }

    /// Answers work that one caller waits for. Says whether the server must be left.
    fn answer_one(self, replies: &[Value]) -> bool {
        match self {
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
                let answer = match replies.first() {
                    Some(Value::ServerError(error)) => Err(StoreError::from(error)),
                    Some(value) => Ok(value.clone()),
                    None => Err(StoreError::Protocol),
                };
                let leave = answer.as_ref().is_err_and(|error| leaves(*error));
                let _ = reply.send(answer);
                leave
            }
            Work::Claim { .. }
            | Work::Settle { .. }
            | Work::WriteBack { .. }
            | Work::GiveBack { .. }
            | Work::Canary { .. }
            | Work::Ping => false,
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
            Work::Canary { reply, .. } => {
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

type Outcomes = Vec<(usize, Result<Decided, StoreError>)>;
type Redirected = Vec<(Redirection, Vec<usize>)>;

/// The replies to a piece of claiming.
struct ClaimReplies<'a> {
    request: &'a ClaimRequest,
    share: &'a Share,
    adoption: Adoption,
    reading: &'a Reading<'a>,
}

impl ClaimReplies<'_> {
    /// What the plans came to, and which of them are to be sent elsewhere. Claims that do not count
    /// are added to `debts`.
    fn read(&self, replies: &[Value], debts: &mut Vec<Debt>) -> (Outcomes, Redirected) {
        let Self { request, share, .. } = self;
        let mut outcomes = Vec::with_capacity(share.singles.len());
        let mut redirected = Redirected::new();
        let (singles, calls) = replies.split_at(share.singles.len().min(replies.len()));
        for (&plan, reply) in share.singles.iter().zip(singles) {
            if let Some(redirection) = self.reading.redirection(reply) {
                match redirected.iter_mut().find(|(to, _)| *to == redirection) {
                    Some((_, plans)) => plans.push(plan),
                    None => redirected.push((redirection, vec![plan])),
                }
                continue;
            }
            if is_syntax_error(reply) {
                let abilities = self.reading.abilities;
                abilities.sets_and_gets.store(false, Ordering::Relaxed);
            }
            outcomes.push((plan, commands::single_outcome(request, plan, reply)));
        }
        for (plans, reply) in share.calls.iter().zip(calls) {
            if let Some(redirection) = self.reading.redirection(reply) {
                redirected.push((redirection, plans.clone()));
                continue;
            }
            outcomes.extend(spread_with(plans, reply, |plan, part| {
                commands::scripted_outcome(request, plan, self.adoption, part)
            }));
        }
        if !self.reading.replicated {
            self.withdraw(&mut outcomes, debts);
        }
        (outcomes, redirected)
    }

    /// Claims that too few replicas have.
    fn withdraw(&self, outcomes: &mut Outcomes, debts: &mut Vec<Debt>) {
        let mut claims = Vec::new();
        for (plan, outcome) in outcomes {
            if let Ok(Decided::Outcome(ClaimOutcome::Claimed { nonce, .. })) = outcome {
                claims.push(GiveBack {
                    plan: *plan,
                    nonce: *nonce,
                });
                *outcome = Err(StoreError::NoReplicas);
            }
        }
        let scheme = &self.reading.schemes[usize::from(self.request.namespace.0)];
        debts.extend(commands::debts(self.request, &claims, scheme));
    }
}

/// A script's array over the items, or its one error for all of them.
fn spread<T>(
    items: &[usize],
    reply: &Value,
    read: impl Fn(&Value) -> Result<T, StoreError>,
) -> Vec<(usize, Result<T, StoreError>)> {
    spread_with(items, reply, |_, part| read(part))
}

fn spread_with<T>(
    items: &[usize],
    reply: &Value,
    read: impl Fn(usize, &Value) -> Result<T, StoreError>,
) -> Vec<(usize, Result<T, StoreError>)> {
    let all = |error| items.iter().map(|&item| (item, Err(error))).collect();
    match reply {
        Value::Array(parts) if parts.len() == items.len() => items
            .iter()
            .zip(parts)
            .map(|(&item, part)| (item, read(item, part)))
            .collect(),
        other => all(error_of(other)),
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
