//! From requests to commands, and from replies to outcomes.
//!
//! A plan with one key is one `SET key record NX PX hold GET`; plans with neighbours share one
//! script call. A subject with any such plan in the request goes through the script with all its
//! events, so that they are decided in their order.

use hashbrown::HashSet;
use redis::{Pipeline, Value};
use smallvec::SmallVec;

use super::{connection::Abilities, error::from_text};
use crate::{
    domain::{
        claim::{
            self, ClaimState, MAX_RECORD_BYTES, SettleAction, SettleOutcome, Standing, Vicinity,
        },
        key::KeyScheme,
        plan::Plan,
    },
    store::{ClaimOutcome, ClaimRequest, GiveBack, SettleRequest, StoreError},
};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Script {
    Claim = 0,
    Settle = 1,
    GiveBack = 2,
    Contract = 3,
}

impl Script {
    pub(super) const ALL: [Script; 4] = [
        Script::Claim,
        Script::Settle,
        Script::GiveBack,
        Script::Contract,
    ];

    pub(super) const fn source(self) -> &'static str {
        match self {
            Script::Claim => include_str!("scripts/claim.lua"),
            Script::Settle => include_str!("scripts/settle.lua"),
            Script::GiveBack => include_str!("scripts/give_back.lua"),
            Script::Contract => include_str!("scripts/contract.lua"),
        }
    }
}

/// What a claim may take over on its primary key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Adoption {
    Nothing,
    /// What an earlier attempt of the same call left.
    Own,
}

/// A script call with its keys and arguments, kept until its reply, since the server may have
/// lost the script.
#[derive(Clone, Debug)]
pub(super) struct ScriptCall {
    pub(super) script: Script,
    keys: Vec<Vec<u8>>,
    arguments: Vec<Vec<u8>>,
}

impl ScriptCall {
    fn new(script: Script) -> Self {
        Self {
            script,
            keys: Vec::new(),
            arguments: Vec::new(),
        }
    }

    /// By its hash if the server has it.
    pub(super) fn push(&self, abilities: &Abilities, pipeline: &mut Pipeline) {
        match abilities.hash(self.script) {
            Some(hash) => self.push_as("EVALSHA", hash, pipeline),
            None => self.push_text(pipeline),
        }
    }

    /// By its text, which also makes the server keep it.
    pub(super) fn push_text(&self, pipeline: &mut Pipeline) {
        self.push_as("EVAL", self.script.source(), pipeline);
    }

    fn push_as(&self, command: &str, script: &str, pipeline: &mut Pipeline) {
        let command = pipeline.cmd(command).arg(script).arg(self.keys.len());
        for key in &self.keys {
            command.arg(key.as_slice());
        }
        for argument in &self.arguments {
            command.arg(argument.as_slice());
        }
    }
}

/// How the plans of one job are sent: which by a command of their own, which by the script.
#[derive(Debug)]
pub(super) struct ClaimCommands {
    pub(super) singles: Vec<usize>,
    pub(super) scripted: Vec<usize>,
    pub(super) call: Option<ScriptCall>,
}

impl ClaimCommands {
    /// Appends the commands for the given plans; the script call comes last.
    pub(super) fn push(
        request: &ClaimRequest,
        plans: &[usize],
        scheme: &KeyScheme,
        adoption: Adoption,
        abilities: &Abilities,
        pipeline: &mut Pipeline,
    ) -> Self {
        let (scripted, singles) = split(
            request,
            plans,
            abilities.sets_and_gets && adoption == Adoption::Nothing,
        );
        let mut key = Vec::with_capacity(64);
        let mut record = Vec::with_capacity(MAX_RECORD_BYTES);
        for &index in &singles {
            write_key_and_record(request, index, scheme, &mut key, &mut record);
            pipeline
                .cmd("SET")
                .arg(key.as_slice())
                .arg(record.as_slice())
                .arg("NX")
                .arg("PX")
                .arg(request.hold.get())
                .arg("GET");
        }
        let call = (!scripted.is_empty()).then(|| claim_call(request, &scripted, scheme, adoption));
        if let Some(call) = &call {
            call.push(abilities, pipeline);
        }
        Self {
            singles,
            scripted,
            call,
        }
    }
}

/// The plans that must go through the script, and the others.
fn split(request: &ClaimRequest, plans: &[usize], sets_and_gets: bool) -> (Vec<usize>, Vec<usize>) {
    let of = |index: usize| &request.plans.plans()[index];
    if !sets_and_gets {
        return (plans.to_vec(), Vec::new());
    }
    let guarded: HashSet<u64> = plans
        .iter()
        .map(|&index| of(index))
        .filter(|plan| plan.has_neighbours())
        .map(|plan| plan.partition().0)
        .collect();
    if guarded.is_empty() {
        return (Vec::new(), plans.to_vec());
    }
    plans
        .iter()
        .partition(|&&index| guarded.contains(&of(index).partition().0))
}

fn write_key_and_record(
    request: &ClaimRequest,
    index: usize,
    scheme: &KeyScheme,
    key: &mut Vec<u8>,
    record: &mut Vec<u8>,
) {
    let plan = &request.plans.plans()[index];
    key.clear();
    scheme.write_key(request.plans.primary(plan), plan.partition(), key);
    record.clear();
    plan.record(request.state, request.nonces[index])
        .encode(record);
}

fn claim_call(
    request: &ClaimRequest,
    plans: &[usize],
    scheme: &KeyScheme,
    adoption: Adoption,
) -> ScriptCall {
    let adopts = match (adoption, request.state) {
        (Adoption::Nothing, _) => 0,
        (Adoption::Own, ClaimState::Pending | ClaimState::Claimed) => 1,
        (Adoption::Own, ClaimState::Confirmed) => 2,
    };
    let text = |number: u64| number.to_string().into_bytes();
    let mut call = ScriptCall::new(Script::Claim);
    let guard_ns = request.guards.time_ns;
    call.arguments.extend([
        text(request.hold.get()),
        text(guard_ns >> 32),
        text(guard_ns & 0xffff_ffff),
        text(adopts),
    ]);
    for &index in plans {
        let plan = &request.plans.plans()[index];
        for (name, _) in request.plans.keys(plan) {
            let mut key = Vec::with_capacity(64);
            scheme.write_key(name, plan.partition(), &mut key);
            call.keys.push(key);
        }
        let mut record = Vec::with_capacity(MAX_RECORD_BYTES);
        plan.record(request.state, request.nonces[index])
            .encode(&mut record);
        let neighbours = request.plans.neighbours(plan).len() as u64;
        call.arguments.extend([record, text(neighbours)]);
    }
    call
}

/// The reply to one `SET … NX … GET`.
pub(super) fn single_outcome(
    request: &ClaimRequest,
    index: usize,
    reply: &Value,
) -> Result<ClaimOutcome, StoreError> {
    match reply {
        Value::Nil => Ok(ClaimOutcome::Claimed {
            nonce: request.nonces[index],
            adopted: false,
        }),
        Value::BulkString(value) => lost(
            request,
            index,
            Adoption::Nothing,
            std::iter::once((Vicinity::PRIMARY, Standing::decode(value))),
        ),
        Value::ServerError(error) => Err(error.into()),
        _ => Err(StoreError::Protocol),
    }
}

/// One plan's part of the script's reply.
pub(super) fn scripted_outcome(
    request: &ClaimRequest,
    index: usize,
    adoption: Adoption,
    reply: &Value,
) -> Result<ClaimOutcome, StoreError> {
    let nonce = request.nonces[index];
    match reply {
        Value::Int(256) => Ok(ClaimOutcome::Claimed {
            nonce,
            adopted: false,
        }),
        Value::Int(attempt @ 0..=255) => Ok(ClaimOutcome::Claimed {
            nonce: nonce.with_attempt(*attempt as u8),
            adopted: true,
        }),
        Value::Int(_) => Err(StoreError::WrongType),
        Value::BulkString(text) => Err(from_text(&String::from_utf8_lossy(text))),
        Value::Array(values) => {
            let plan: &Plan = &request.plans.plans()[index];
            let found = request.plans.keys(plan).zip(values).filter_map(
                |((_, vicinity), value)| match value {
                    Value::BulkString(value) => Some((vicinity, Standing::decode(value))),
                    _ => None,
                },
            );
            lost(request, index, adoption, found)
        }
        _ => Err(StoreError::Protocol),
    }
}

fn lost(
    request: &ClaimRequest,
    index: usize,
    adoption: Adoption,
    found: impl Iterator<Item = (Vicinity, Standing)>,
) -> Result<ClaimOutcome, StoreError> {
    let found: SmallVec<[(Vicinity, Standing); 3]> = found.collect();
    let own = found.iter().any(|(vicinity, standing)| {
        *vicinity == Vicinity::PRIMARY
            && standing
                .nonce()
                .is_some_and(|nonce| nonce.same_holder(request.nonces[index]))
    });
    if own && request.recognises_own && adoption == Adoption::Nothing {
        return Ok(ClaimOutcome::Own);
    }
    // A script that found something near where the rule finds nothing would be a fault of either.
    claim::rival(
        request.plans.plans()[index].sighting(),
        request.guards,
        found,
    )
    .map(ClaimOutcome::Lost)
    .ok_or(StoreError::Protocol)
}

pub(super) fn settle_call(
    request: &SettleRequest,
    items: &[usize],
    schemes: &[KeyScheme],
) -> ScriptCall {
    let mut call = ScriptCall::new(Script::Settle);
    let action = match request.action {
        SettleAction::Confirm => "confirm",
        SettleAction::Release => "release",
        SettleAction::Renew => "renew",
    };
    call.arguments.push(action.into());
    for &index in items {
        let item = &request.items[index];
        let mut key = Vec::with_capacity(64);
        schemes[usize::from(item.namespace.0)].write_key(
            request.key(item),
            item.partition,
            &mut key,
        );
        call.keys.push(key);
        call.arguments.extend([
            item.nonce.to_bytes().to_vec(),
            item.hold.get().to_string().into_bytes(),
        ]);
    }
    call
}

pub(super) fn settle_outcome(reply: &Value) -> Result<SettleOutcome, StoreError> {
    match reply {
        Value::Int(0) => Ok(SettleOutcome::NotHeld),
        Value::Int(1) => Ok(SettleOutcome::Applied),
        Value::Int(2) => Ok(SettleOutcome::AlreadyApplied),
        Value::Int(3) => Ok(SettleOutcome::AlreadyConfirmed),
        Value::BulkString(text) => Err(from_text(&String::from_utf8_lossy(text))),
        _ => Err(StoreError::Protocol),
    }
}

/// A claim that must be given back, with its key as the store knows it.
#[derive(Clone, Debug)]
pub(super) struct Debt {
    key: Vec<u8>,
    nonce: [u8; 8],
}

pub(super) fn debts(request: &ClaimRequest, claims: &[GiveBack], scheme: &KeyScheme) -> Vec<Debt> {
    claims
        .iter()
        .map(|claim| {
            let plan = &request.plans.plans()[claim.plan];
            let mut key = Vec::with_capacity(64);
            scheme.write_key(request.plans.primary(plan), plan.partition(), &mut key);
            Debt {
                key,
                nonce: claim.nonce.to_bytes(),
            }
        })
        .collect()
}

pub(super) fn give_back_call(debts: &[Debt]) -> ScriptCall {
    let mut call = ScriptCall::new(Script::GiveBack);
    call.keys.extend(debts.iter().map(|debt| debt.key.clone()));
    call.arguments
        .extend(debts.iter().map(|debt| debt.nonce.to_vec()));
    call
}

pub(super) fn contract_call(key: String, line: String, hold_ms: u64, replace: bool) -> ScriptCall {
    let mut call = ScriptCall::new(Script::Contract);
    call.keys.push(key.into_bytes());
    call.arguments.extend([
        line.into_bytes(),
        hold_ms.to_string().into_bytes(),
        vec![b'0' + u8::from(replace)],
    ]);
    call
}
